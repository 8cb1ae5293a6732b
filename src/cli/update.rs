//! `interlock update`: commands and classifier, brought in one signed file.
//!
//! Whoever may write the state directory may apply: the daemon is only asked to read anew. What was switched is switched
//! back here when the daemon does not come to count on it, so that a cut in between leaves a set that the next start
//! judges by itself.

use std::fs::{self, DirBuilder};
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::args::{ApplyArgs, Lang, PackArgs, UpdateFrom, UpdateVerb};
use super::client::Client;
use super::error::{CliError, Exit};
use super::keep;
use super::out::Out;
use super::places;
use crate::boot::update::{self, InForce, Unfit};
use crate::config::{self, Config, commands, model};
use crate::store::update::{Active, Held, Kept, Manifest, Part, Update, UpdateError, Version, examine, pack};
use crate::sys::{clock, machine};

/// Room that must be left on the disk beside the update: the evidence log goes on meanwhile.
const ROOM_LEFT: u64 = 16 << 20;

pub(super) fn update(
    verb: &UpdateVerb,
    client: impl Fn() -> Result<Client, CliError>,
    out: &Out,
) -> Result<(), CliError> {
    match verb {
        UpdateVerb::Pack(args) => packed(args, out),
        UpdateVerb::Apply(args) => apply(args, client, out),
        UpdateVerb::Back(from) => switch(from, |held| held.back(), client, out),
        UpdateVerb::None(from) => switch(from, |held| held.none(), client, out),
        UpdateVerb::Show(from) => show(from, out),
    }
}

fn packed(args: &PackArgs, out: &Out) -> Result<(), CliError> {
    let version = Version::parse(&args.version).ok_or_else(|| {
        CliError::new(Exit::Usage, format!("{:?} is no version", args.version))
            .hint("one to four numbers with dots between them: 2026.12.1")
    })?;
    if let Some(folder) = &args.commands {
        // What no box would take is not signed.
        for file in toml_files(folder)? {
            commands::read(&file, &config::read(&file)?)?;
        }
    }
    let model = match &args.model {
        None => None,
        Some(folder) => {
            let manifest = folder.join("manifest.toml");
            let source = crate::boot::model::source(Some(&manifest))?;
            source.checked().map_err(|error| CliError::new(Exit::Data, error.to_string()))?;
            let model::Manifest { file, labels, pieces, .. } = model::read(&manifest)?;
            let names: Vec<PathBuf> = [file, labels].into_iter().chain(pieces.map(|(name, _)| name)).collect();
            Some((folder.as_path(), names))
        }
    };
    let model = model.as_ref().map(|(folder, names)| (*folder, names.as_slice()));
    let made = pack(&args.file, args.commands.as_deref(), model, &version, &args.key, clock::wall())
        .map_err(|error| failed(&error, out))?;
    if args.json {
        return out.json(&json!({
            "file": args.file, "version": version.to_string(), "files": made.files, "bytes": made.bytes,
            "signer": made.signer, "new_key": made.is_new_key,
        }));
    }
    let (file, files, signer) = (args.file.display(), made.files, &made.signer);
    out.line(&match out.lang() {
        Lang::Zh => format!("{file}：{version} 版，{files} 个文件；签名公钥 {signer}"),
        Lang::En => format!("{file}: version {version}, {files} files, signed by {signer}"),
    })?;
    if made.is_new_key {
        let key = args.key.display();
        out.note(&match out.lang() {
            Lang::Zh => format!("{key} 是新生成的私钥：请妥善保管，并把上面的公钥写入设备的 update-keys"),
            Lang::En => format!("{key} is a new secret key: keep it, and put the public key above into update-keys"),
        });
    }
    Ok(())
}

fn toml_files(folder: &Path) -> Result<Vec<PathBuf>, CliError> {
    let unreadable = |error: std::io::Error| CliError::new(Exit::NoInput, format!("{}: {error}", folder.display()));
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if path.extension().is_some_and(|ending| ending == "toml") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// A folder that is taken away again.
struct Passing(PathBuf);

impl Drop for Passing {
    fn drop(&mut self) {
        // Gone already when its content was taken in.
        let _gone = fs::remove_dir_all(&self.0);
    }
}

/// What is read first of the box that is meant.
struct Here {
    config: Config,
    in_force: InForce,
    state: PathBuf,
    kept: Kept,
}

impl Here {
    fn look(from: &UpdateFrom) -> Result<Here, CliError> {
        let state = keep::state(from.state.as_deref())?;
        if !state.is_dir() {
            return Err(CliError::new(Exit::NoInput, format!("{} is not there", state.display()))
                .hint("start the daemon once, or name its state directory: --state DIR"));
        }
        let mut config = config::load(places::config(from.config.as_deref()).as_deref())?;
        let in_force = update::settle(&mut config, &state);
        Ok(Here { config, in_force, kept: Kept::of(&state), state })
    }
}

fn apply(args: &ApplyArgs, client: impl Fn() -> Result<Client, CliError>, out: &Out) -> Result<(), CliError> {
    let not = |error: UpdateError| failed(&error, out);
    let here = Here::look(&args.from)?;
    let found = examine(&args.file, &update::trust(&here.config).map_err(not)?).map_err(not)?;
    let manifest = &found.manifest;
    if !args.older {
        for part in Part::ALL.into_iter().filter(|part| manifest.has(*part)) {
            match here.kept.floor(part).map_err(not)? {
                Some(floor) if manifest.version < floor => {
                    return Err(not(UpdateError::Older { part, version: manifest.version.clone(), floor }));
                }
                Some(_) | None => {}
            }
        }
    }
    if args.check {
        let passing = temporary()?;
        let folder = passing.0.join("update");
        let fit = judged(&here, &found, &folder, args.fewer, out)?;
        return told(&found.manifest, &fit, Stands::OnlyChecked, args.from.json, out);
    }
    let held = here.kept.hold().map_err(not)?;
    has_room(&here.state, manifest)?;
    let staging = held.staging().map_err(not)?;
    let passing = Passing(staging.clone());
    let fit = judged(&here, &found, &staging, args.fewer, out)?;
    let was = held.take(&found, &staging).map_err(not)?;
    drop(passing);
    let wanted = |told: &Value| {
        Part::ALL
            .into_iter()
            .filter(|part| manifest.has(*part))
            .find(|part| told["update"][part.word()]["id"] != manifest.id.as_str())
            .map(|part| why_not(told, part))
    };
    let stands = read_anew(&here.state, &held, &was, client, wanted, out)?;
    held.settle(Some(&found)).map_err(not)?;
    told(manifest, &fit, stands, args.from.json, out)
}

fn why_not(told: &Value, part: Part) -> String {
    let refused = told["update"]["refused"].as_array().into_iter().flatten();
    let why = refused.filter(|one| one["part"] == part.word()).find_map(|one| one["why"].as_str());
    why.map_or_else(|| format!("its {} do not count there", part.word()), str::to_owned)
}

/// A folder of one's own among what is temporary.
fn temporary() -> Result<Passing, CliError> {
    let path = std::env::temp_dir().join(format!("interlock-update-{}-{}", std::process::id(), clock::now().0));
    // One that is there already is somebody else's.
    DirBuilder::new().mode(0o700).create(&path).map_err(|error| {
        CliError::new(Exit::CannotWrite, format!("{}: {error}", path.display())).hint("name another place: TMPDIR")
    })?;
    Ok(Passing(path))
}

fn has_room(state: &Path, manifest: &Manifest) -> Result<(), CliError> {
    let cannot = |what: String| CliError::new(Exit::CannotWrite, format!("{}: {what}", state.display()));
    let room = machine::room(state).map_err(|error| cannot(error.to_string()))?;
    if room.read_only {
        return Err(cannot("read-only".to_owned()).hint("interlock doctor"));
    }
    let needed = manifest.bytes() + ROOM_LEFT;
    if room.free < needed {
        let (free, needed) = (room.free >> 20, needed.div_ceil(1 << 20));
        return Err(cannot(format!("{free} MiB are free; the update needs {needed}")).hint("make room on that disk"));
    }
    Ok(())
}

fn judged(here: &Here, found: &Update, folder: &Path, fewer: bool, out: &Out) -> Result<update::Fit, CliError> {
    found.unpack(folder).map_err(|error| failed(&error, out))?;
    update::judge(&here.config, &here.in_force, &found.manifest, folder, fewer).map_err(|unfit| {
        let exit = if let Unfit::Fewer(_) | Unfit::Overridden(_) = &unfit { Exit::NotSo } else { Exit::Config };
        let [en, zh] = unfit.hint();
        let message = if out.lang() == Lang::Zh { unfit.zh() } else { unfit.to_string() };
        CliError::new(exit, message).hint(out.pick(en, zh))
    })
}

/// What a switch came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stands {
    OnlyChecked,
    /// The daemon counts on it.
    Counts,
    /// No daemon runs on this state.
    AtNextStart,
}

/// Asks the daemon of this state, where one runs, to read anew; `amiss` says what is wrong with what it then counts on,
/// and then it goes back.
fn read_anew(
    state: &Path,
    held: &Held<'_>,
    was: &Active,
    client: impl Fn() -> Result<Client, CliError>,
    amiss: impl Fn(&Value) -> Option<String>,
    out: &Out,
) -> Result<Stands, CliError> {
    let same = |told: &Value| {
        let its = told["state"].as_str().map(PathBuf::from);
        its.is_some_and(|its| its.canonicalize().ok() == state.canonicalize().ok())
    };
    match client().and_then(|client| client.ask("status", json!({}))) {
        Ok(told) if same(&told) => {}
        Ok(_) => return Ok(Stands::AtNextStart),
        Err(error) if error.exit == Exit::Unavailable => return Ok(Stands::AtNextStart),
        Err(error) => return Err(back(held, was, &error.to_string(), out)),
    }
    let reload = || client().and_then(|client| client.ask("reload", json!({ "lang": out.lang_word() })));
    let read = reload().and_then(|_| client()?.ask("status", json!({})));
    let why = match read {
        Ok(told) => match amiss(&told) {
            None => return Ok(Stands::Counts),
            Some(why) => why,
        },
        Err(error) => error.to_string(),
    };
    let error = back(held, was, &why, out);
    // It counts on what it had; so it is told of nothing else at its next start.
    let _ = reload();
    Err(error)
}

fn back(held: &Held<'_>, was: &Active, why: &str, out: &Out) -> CliError {
    let message = match out.lang() {
        Lang::Zh => format!("守护进程未采用：{why}"),
        Lang::En => format!("the daemon does not take it: {why}"),
    };
    match held.switch(was) {
        Ok(()) => CliError::new(Exit::Config, message).hint(out.pick("what counted before counts", "原有内容继续生效")),
        Err(error) => CliError::new(Exit::CannotWrite, format!("{message}; and back: {error}"))
            .hint(out.pick("interlock update none", "请执行 interlock update none")),
    }
}

fn switch(
    from: &UpdateFrom,
    change: impl Fn(&Held<'_>) -> Result<Active, UpdateError>,
    client: impl Fn() -> Result<Client, CliError>,
    out: &Out,
) -> Result<(), CliError> {
    let not = |error: UpdateError| failed(&error, out);
    let here = Here::look(from)?;
    let held = here.kept.hold().map_err(not)?;
    let was = change(&held).map_err(not)?;
    let mut config = config::load(places::config(from.config.as_deref()).as_deref())?;
    let now = update::settle(&mut config, &here.state);
    if let Some(refused) = now.refused.first() {
        // Of what was asked for, something would not count: then nothing of it does.
        return Err(back(&held, &was, &refused.why, out));
    }
    let ids = Part::ALL.map(|part| (part, now.of(part).map(|of| of.id.clone())));
    let amiss = |told: &Value| {
        let other = |(part, id): &&(Part, Option<String>)| told["update"][part.word()]["id"].as_str() != id.as_deref();
        ids.iter().find(other).map(|(part, _)| why_not(told, *part))
    };
    let stands = read_anew(&here.state, &held, &was, client, amiss, out)?;
    held.settle(None).map_err(not)?;
    if from.json {
        return out.json(&json!({ "counts": now.to_json(), "in_force": stands == Stands::Counts }));
    }
    let [en, zh] = now.line();
    out.line(out.pick(&en, &zh))?;
    next_start(stands, out)
}

fn next_start(stands: Stands, out: &Out) -> Result<(), CliError> {
    match stands {
        Stands::AtNextStart => out.line(out.pick("it counts when the daemon starts", "守护进程启动后生效")),
        Stands::OnlyChecked | Stands::Counts => Ok(()),
    }
}

fn told(manifest: &Manifest, fit: &update::Fit, stands: Stands, json: bool, out: &Out) -> Result<(), CliError> {
    let (version, kind, signer) = (&manifest.version, manifest.kind(), &manifest.signer);
    if json {
        return out.json(&json!({
            "version": version.to_string(), "kind": kind, "id": manifest.id, "signer": signer, "made": manifest.made,
            "commands": fit.commands, "model_runs_on": fit.runs, "checked": stands == Stands::OnlyChecked,
            "in_force": stands == Stands::Counts,
        }));
    }
    out.line(&match (stands, out.lang()) {
        (Stands::OnlyChecked, Lang::Zh) => format!("可以安装：{kind} {version}，签名 {signer}；未做任何改动"),
        (Stands::OnlyChecked, Lang::En) => format!("{kind} {version} by {signer} fits; nothing was changed"),
        (Stands::Counts | Stands::AtNextStart, Lang::Zh) => format!("已安装：{kind} {version}，签名 {signer}"),
        (Stands::Counts | Stands::AtNextStart, Lang::En) => format!("{kind} {version} by {signer} is in place"),
    })?;
    if manifest.has(Part::Model) && fit.runs.is_none() {
        out.note(out.pick(
            "no ONNX Runtime here: the model was held against its hashes and the commands, and not run",
            "此处没有 ONNX Runtime：只核对了模型的校验和与标签，未实际运行",
        ));
    }
    next_start(stands, out)
}

fn show(from: &UpdateFrom, out: &Out) -> Result<(), CliError> {
    let not = |error: UpdateError| failed(&error, out);
    let here = Here::look(from)?;
    let active = here.kept.active().map_err(not)?;
    let floor = |part| here.kept.floor(part).map_err(not);
    let floors = [floor(Part::Commands)?, floor(Part::Model)?].map(|floor| floor.map(|floor| floor.to_string()));
    if from.json {
        let mut shown = here.in_force.to_json();
        shown["before"] = json!(active.before);
        shown["floor"] = json!({ "commands": floors[0], "model": floors[1] });
        return out.json(&shown);
    }
    let [en, zh] = here.in_force.line();
    out.line(out.pick(&en, &zh))?;
    for (part, floor) in Part::ALL.into_iter().zip(floors) {
        let word = if out.lang() == Lang::Zh { part.zh() } else { part.word() };
        if let Some(of) = here.in_force.of(part) {
            let (by, hash) = (out.pick("signed by", "签名"), out.pick("sha256", "校验和"));
            out.line(&format!("{word}: {hash} {}, {by} {}", of.id, of.signer))?;
        }
        if let Some(floor) = floor {
            let newest = out.pick("the newest that was here is", "装过的最高版本为");
            out.line(&format!("{word}: {newest} {floor}"))?;
        }
    }
    here.in_force.warnings().iter().try_for_each(|warning| out.line(&format!("warning: {warning}")))
}

fn failed(error: &UpdateError, out: &Out) -> CliError {
    let exit = match error {
        UpdateError::Io { source, .. } if source.kind() == ErrorKind::NotFound => Exit::NoInput,
        UpdateError::Io { source, .. } if source.kind() == ErrorKind::PermissionDenied => Exit::Permission,
        UpdateError::Io { .. } => Exit::CannotWrite,
        UpdateError::NotAnUpdate { .. }
        | UpdateError::Changed { .. }
        | UpdateError::Damaged { .. }
        | UpdateError::BadName { .. }
        | UpdateError::TooMuch { .. } => Exit::Data,
        UpdateError::Unsigned { .. } | UpdateError::NoKeys { .. } | UpdateError::Stranger { .. } => Exit::Permission,
        UpdateError::Older { .. } | UpdateError::Busy { .. } | UpdateError::NothingBefore => Exit::NotSo,
    };
    let message = if out.lang() == Lang::Zh { error.zh() } else { error.to_string() };
    let shown = CliError::new(exit, message);
    match error.hint() {
        Some([en, zh]) => shown.hint(out.pick(en, zh)),
        None => shown,
    }
}

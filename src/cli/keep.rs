//! `interlock backup`, `restore`, `factory-reset`: the state in one signed file, back, and away.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::args::{BackupArgs, Lang, ResetArgs, RestoreArgs};
use super::error::{CliError, Exit};
use super::out::Out;
use super::places;
use crate::store::backup::{self, BackupError};
use crate::store::error::StoreError;
use crate::store::keys;
use crate::sys::clock;

pub(super) fn backup(args: &BackupArgs, out: &Out) -> Result<(), CliError> {
    let state = state(args.state.as_deref())?;
    let made = backup::make(&state, &args.file, env!("CARGO_PKG_VERSION"), clock::wall()).map_err(failed)?;
    if args.json {
        return out.json(&json!({
            "file": args.file, "files": made.files, "bytes": made.bytes, "left_out": made.left_out,
            "signer": made.signer,
        }));
    }
    let (file, files, mib) = (args.file.display(), made.files, made.bytes >> 20);
    out.line(&match out.lang() {
        Lang::Zh => format!("{file}：{files} 个文件，{mib} MiB；含签名私钥，请像钥匙一样保管"),
        Lang::En => format!("{file}: {files} files, {mib} MiB; it has the secret key of the log: keep it like a key"),
    })?;
    let signer = made.signer;
    out.line(&match out.lang() {
        Lang::Zh => format!("签名者：{signer}（换到另一台设备上恢复时需要：--signer）"),
        Lang::En => format!("signer: {signer} (a restore on another machine asks for it: --signer)"),
    })
}

pub(super) fn restore(args: &RestoreArgs, out: &Out) -> Result<(), CliError> {
    let state = state(args.state.as_deref())?;
    let signer = match &args.signer {
        None => None,
        Some(text) => Some(backup::signer(text).ok_or_else(|| {
            CliError::new(Exit::Usage, "--signer is no key").hint("64 hexadecimal digits, as `backup` printed them")
        })?),
    };
    if args.check {
        let own = if signer.is_none() { keys::public_of_state(&state).map_err(|e| failed(e.into()))? } else { None };
        let contents = backup::examine(&args.file, signer.or(own).as_ref()).map_err(failed)?;
        let shown = json!({ "made": contents.made, "version": contents.version, "signer": contents.signer,
            "files": contents.files.len(), "bytes": contents.files.values().map(|file| file.len).sum::<u64>() });
        return if args.json {
            out.json(&shown)
        } else {
            let (file, made, files) = (args.file.display(), contents.made, contents.files.len());
            out.line(&match out.lang() {
                Lang::Zh => format!("{file} 完整：{made}，{files} 个文件"),
                Lang::En => format!("{file} is whole: made {made}, {files} files"),
            })
        };
    }
    let restored = backup::restore(&args.file, &state, signer.as_ref(), clock::wall()).map_err(failed)?;
    let verdict = restored.verdict.as_str();
    if args.json {
        return out.json(&json!({
            "made": restored.from.made, "version": restored.from.version, "files": restored.from.files.len(),
            "verdict": verdict, "aside": restored.aside,
        }));
    }
    let (made, files) = (&restored.from.made, restored.from.files.len());
    out.line(&match out.lang() {
        Lang::Zh => format!("已恢复 {made} 的备份：{files} 个文件，证据 {verdict}"),
        Lang::En => format!("the backup of {made} is in place: {files} files, evidence {verdict}"),
    })?;
    told_aside(restored.aside.as_deref(), out)
}

pub(super) fn factory_reset(args: &ResetArgs, out: &Out) -> Result<(), CliError> {
    let state = state(args.state.as_deref())?;
    if !state.is_dir() {
        return Err(CliError::new(Exit::NoInput, format!("{} is not there", state.display())));
    }
    let aside = backup::set_aside(&state, clock::wall()).map_err(failed)?;
    if args.json {
        return out.json(&json!({ "aside": aside }));
    }
    match &aside {
        None => out.line(out.pick("there was nothing to move aside", "没有需要移开的内容")),
        Some(_) => told_aside(aside.as_deref(), out),
    }
}

fn told_aside(aside: Option<&Path>, out: &Out) -> Result<(), CliError> {
    let Some(aside) = aside.map(Path::display) else { return Ok(()) };
    out.line(&match out.lang() {
        Lang::Zh => format!("原有内容在 {aside}；确认不再需要后请自行删除"),
        Lang::En => format!("what was there is in {aside}; delete it yourself when it is no longer needed"),
    })
}

pub(super) fn state(named: Option<&Path>) -> Result<PathBuf, CliError> {
    places::state(named)
        .ok_or_else(|| CliError::new(Exit::Usage, "there is no state directory").hint("name it: --state DIR"))
}

fn failed(error: BackupError) -> CliError {
    let exit = match &error {
        BackupError::Io { source, .. } if source.kind() == ErrorKind::NotFound => Exit::NoInput,
        BackupError::Io { source, .. } if source.kind() == ErrorKind::PermissionDenied => Exit::Permission,
        BackupError::Store(StoreError::InUse { .. }) | BackupError::Changed { .. } => Exit::NotSo,
        BackupError::Io { .. } | BackupError::Store(_) | BackupError::TooMuch { .. } => Exit::CannotWrite,
        BackupError::NotABackup { .. } | BackupError::Evidence { .. } => Exit::Data,
        BackupError::NoSigner { .. } | BackupError::OtherSigner { .. } => Exit::Permission,
    };
    let in_use = matches!(error, BackupError::Store(StoreError::InUse { .. }));
    let hint = if in_use { Some("stop it first: systemctl stop interlock".to_owned()) } else { error.hint() };
    let shown = CliError::new(exit, error.to_string());
    match hint {
        Some(hint) => shown.hint(hint),
        None => shown,
    }
}

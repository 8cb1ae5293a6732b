//! Signed updates of commands and of the classifier, as the person with the memory stick meets them.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};

use super::keep::{packed, unpacked};
use super::{Daemon, Home};

/// Two commands of the simulated plant, under other words than the shipped ones.
const COMMANDS: &str = r#"version = 1
[[command]]
id = "site_start_2"
text = "开工喽二号"
risk = "operate"
bind = { device = "pump-2", action = "start" }
[[command]]
id = "site_stop_2"
text = "收工歇着二号"
risk = "operate"
bind = { device = "pump-2", action = "stop" }
"#;

/// The same with one more.
const MORE: &str = r#"
[[command]]
id = "site_start_1"
text = "早班先开一号"
risk = "operate"
bind = { device = "pump-1", action = "start" }
"#;

fn interlock(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_interlock")).args(args).env("LANG", "C").output().unwrap()
}

fn path(of: &Path) -> &str {
    of.to_str().unwrap()
}

fn told(output: &Output) -> Value {
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Says what is wrong in one line, and what to do.
fn refused(output: &Output, code: i32, says: &str) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    assert!(stderr.contains(says) && stderr.contains("hint: "), "{says}: {stderr}");
}

/// A maker, and a box that knows it.
struct Maker {
    folder: tempfile::TempDir,
}

impl Maker {
    fn new() -> Maker {
        Maker { folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// An update of these commands.
    fn commands(&self, version: &str, text: &str) -> PathBuf {
        let folder = self.path(&format!("commands-{version}"));
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("site.toml"), text).unwrap();
        self.pack(version, &["--commands", path(&folder)])
    }

    fn pack(&self, version: &str, parts: &[&str]) -> PathBuf {
        let file = self.path(&format!("{version}.update"));
        let key = self.path("maker.key");
        let mut args = vec!["update", "pack", path(&file), "--version", version, "--key", path(&key), "--json"];
        args.extend(parts);
        let made = told(&interlock(&args));
        // What a box is given of it.
        fs::write(self.path("update-keys"), format!("# the maker\n{}\n", made["signer"].as_str().unwrap())).unwrap();
        file
    }

    /// A configuration that trusts this maker.
    fn config(&self, home: &Home, more: &str) -> PathBuf {
        let keys = self.path("update-keys");
        home.config(&format!("version = 1\n[update]\nkeys = {:?}\n{more}", path(&keys)))
    }
}

impl Daemon {
    fn update(&self, args: &[&str]) -> Output {
        let (state, config) = (self.path("state"), self.path("interlock.toml"));
        let mut all = vec!["update"];
        all.extend(args);
        all.extend(["--state", path(&state), "--config", path(&config)]);
        self.cli(&all)
    }

    fn shown(&self) -> Value {
        told(&self.update(&["show", "--json"]))
    }

    fn status_of_updates(&self) -> Value {
        self.ask("status", json!({})).unwrap()["update"].clone()
    }

    fn decision(&self, text: &str) -> String {
        self.say(text)["decision"].as_str().unwrap_or("none").to_owned()
    }

    /// The newest row about updates, once it says so.
    fn row(&self, to: &str) -> Value {
        self.eventually(to, || {
            let rows = self.ask("evidence.query", json!({ "kind": "update", "limit": 100 })).unwrap();
            rows.as_array().unwrap().last().filter(|row| row["to"] == to).cloned()
        })
    }
}

#[test]
fn commands_come_into_force_at_once_and_go_back() {
    let maker = Maker::new();
    let file = maker.commands("2026.12.1", COMMANDS);
    let home = Home::new();
    let config = maker.config(&home, "");
    let daemon = home.start(Some(&config));
    assert_eq!(daemon.decision("启动二号泵"), "allow");
    assert_ne!(daemon.decision("开工喽二号"), "allow");

    // It has fewer commands than are shipped: that is for a person to say.
    refused(&daemon.update(&["apply", path(&file)]), 1, "commands that are in force are not in it");
    let fits = told(&daemon.update(&["apply", path(&file), "--fewer", "--check", "--json"]));
    assert_eq!((&fits["checked"], &fits["commands"], &fits["kind"]), (&json!(true), &json!(2), &json!("commands")));
    assert_eq!(daemon.shown()["commands"], Value::Null, "a check changes nothing");

    let applied = told(&daemon.update(&["apply", path(&file), "--fewer", "--json"]));
    assert_eq!((&applied["in_force"], &applied["version"]), (&json!(true), &json!("2026.12.1")));
    let started = daemon.say("开工喽二号");
    assert_eq!((&started["decision"], &started["result"]), (&json!("allow"), &json!("done")), "{started}");
    assert_ne!(daemon.decision("停止二号泵"), "allow", "the set is switched as a whole");
    assert_eq!(daemon.status_of_updates()["commands"]["version"], "2026.12.1");
    let row = daemon.row("in_force");
    assert_eq!(row["detail"]["commands"]["id"], applied["id"], "{row}");
    assert_eq!(row["detail"]["commands"]["signer"], applied["signer"]);
    let line = daemon.cli(&["status"]);
    assert!(
        String::from_utf8_lossy(&line.stdout).contains("update    commands 2026.12.1, model as shipped"),
        "{line:?}"
    );

    // It is there after a restart, and after a pulled plug.
    let home = daemon.kill();
    let daemon = home.start(Some(&config));
    assert_eq!(daemon.say("收工歇着二号")["result"], "done");

    // A newer one, then the one before, then what was shipped.
    let newer = maker.commands("2026.12.2", &format!("{COMMANDS}{MORE}"));
    told(&daemon.update(&["apply", path(&newer), "--json"]));
    assert_eq!(daemon.decision("早班先开一号"), "allow");
    refused(&daemon.update(&["apply", path(&file)]), 1, "version 2026.12.2 was here already");
    let back = told(&daemon.update(&["back", "--json"]));
    assert_eq!((&back["counts"]["commands"]["version"], &back["in_force"]), (&json!("2026.12.1"), &json!(true)));
    assert_ne!(daemon.decision("早班先开一号"), "allow");
    told(&daemon.update(&["none", "--json"]));
    assert_eq!(daemon.say("启动二号泵")["result"], "done");
    assert_eq!(daemon.row("none")["detail"]["commands"], Value::Null);
    // Going back does not lower what counts as old; a person can.
    refused(&daemon.update(&["apply", path(&file)]), 1, "version 2026.12.2 was here already");
    told(&daemon.update(&["apply", path(&file), "--older", "--fewer", "--json"]));
    assert_eq!(daemon.shown()["floor"]["commands"], "2026.12.2");

    // A reset takes the commands away and not the memory of what is old.
    let (_, home) = daemon.end();
    let state = home.path("state");
    told(&interlock(&["factory-reset", "--yes", "--json", "--state", path(&state)]));
    let daemon = home.start(Some(&config));
    assert_eq!(daemon.decision("启动二号泵"), "allow");
    let shown = daemon.shown();
    assert_eq!((&shown["commands"], &shown["floor"]["commands"]), (&Value::Null, &json!("2026.12.2")));
    refused(&daemon.update(&["apply", path(&file), "--fewer"]), 1, "version 2026.12.2 was here already");
}

#[test]
fn what_is_not_whole_or_not_signed_by_the_maker_changes_nothing() {
    let maker = Maker::new();
    let file = maker.commands("2026.12.1", COMMANDS);
    let home = Home::new();
    let config = maker.config(&home, "");
    let daemon = home.start(Some(&config));
    let bad = maker.path("bad.update");
    let check = |what: &str, bytes: &[u8], code: i32, says: &str| {
        fs::write(&bad, bytes).unwrap();
        let output = daemon.update(&["apply", path(&bad), "--fewer"]);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{what}: {stderr}");
        assert!(stderr.contains(says) && stderr.contains("hint: "), "{what}: {stderr}");
    };
    let bytes = fs::read(&file).unwrap();
    check("empty", b"", 65, "is no whole update");
    check("no archive", b"hello", 65, "is no whole update");
    for n in 1..8 {
        check("cut", &bytes[..n * bytes.len() / 8], 65, "is no whole update");
    }
    let entries = unpacked(&bytes);
    let names: Vec<&str> = entries.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["manifest.json", "manifest.sig", "commands/site.toml"]);
    type Change = fn(&mut Vec<(String, Vec<u8>)>);
    let changes: [(&str, Change, i32, &str); 8] = [
        ("no signature", |all| drop(all.remove(1)), 77, "is not signed"),
        ("no content", |all| drop(all.remove(2)), 65, "commands/site.toml is missing"),
        ("changed", |all| all[2].1[0] ^= 1, 65, "commands/site.toml is not what was signed"),
        ("longer", |all| all[2].1.push(b'x'), 65, "commands/site.toml is not what was signed"),
        ("one more", |all| all.push(("commands/b.toml".to_owned(), b"x".to_vec())), 65, "is not in the manifest"),
        ("twice", |all| all.push(all[2].clone()), 65, "is there twice"),
        ("outside", |all| all.push(("commands/../../out".to_owned(), b"x".to_vec())), 65, "is no name of a file"),
        (
            "another manifest",
            |all| all[0].1 = String::from_utf8_lossy(&all[0].1).replace("2026.12.1", "2026.12.9").into_bytes(),
            65,
            "the signature does not fit",
        ),
    ];
    for (what, change, code, says) in changes {
        let mut entries = entries.clone();
        change(&mut entries);
        check(what, &packed(&entries), code, says);
    }
    // A link in the place of a file, and a header that promises a terabyte.
    let odd = |kind: tar::EntryType, size: u64| {
        let mut archive = tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()));
        for (name, bytes) in &entries[..2] {
            let mut header = tar::Header::new_ustar();
            header.set_size(bytes.len() as u64);
            header.set_mode(0o600);
            header.set_path(name).unwrap();
            header.set_cksum();
            archive.append(&header, bytes.as_slice()).unwrap();
        }
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(size);
        header.set_path("commands/site.toml").unwrap();
        if kind == tar::EntryType::Symlink {
            header.set_link_name("/etc/passwd").unwrap();
        }
        header.set_cksum();
        archive.get_mut().write_all(header.as_bytes()).unwrap();
        archive.into_inner().unwrap().finish().unwrap()
    };
    check("link", &odd(tar::EntryType::Symlink, 0), 65, "is no plain file");
    check("huge", &odd(tar::EntryType::Regular, 1 << 40), 65, "commands/site.toml is not what was signed");
    let sparse = fs::File::create(&bad).unwrap();
    sparse.set_len(1 << 40).unwrap();
    refused(&daemon.update(&["apply", path(&bad)]), 65, "are taken at most");

    // Somebody else's, and a box that knows nobody.
    let other = Maker::new();
    let foreign = other.commands("2027.1", COMMANDS);
    refused(&daemon.update(&["apply", path(&foreign), "--fewer"]), 77, "who is not among the keys");
    assert_eq!(daemon.shown()["commands"], Value::Null);
    assert_eq!(daemon.decision("启动二号泵"), "allow");
    fs::write(maker.path("update-keys"), "# nobody\n").unwrap();
    refused(&daemon.update(&["apply", path(&file), "--fewer"]), 77, "no key counts on this box");
    assert!(!daemon.path("state/out").exists() && !daemon.path("out").exists());
}

#[test]
fn what_does_not_fit_is_told_before_anything_changes() {
    let maker = Maker::new();
    let home = Home::new();
    let plain = maker.config(&home, "");
    // Made by somebody who does not look: `pack` would not sign it.
    let folder = maker.path("commands");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("site.toml"), "version = 1\n[[command]]\nid = \"a\"\n").unwrap();
    let (bad, key) = (maker.path("bad"), maker.path("maker.key"));
    let pack = ["update", "pack", path(&bad), "--version", "1", "--key", path(&key), "--commands", path(&folder)];
    let output = interlock(&pack);
    assert_eq!(output.status.code(), Some(78), "{output:?}");
    assert!(!bad.exists());

    let near = COMMANDS.replace("收工歇着二号", "开工楼二号");
    let file = maker.commands("1", &near);
    let daemon = home.start(Some(&plain));
    refused(&daemon.update(&["apply", path(&file), "--fewer"]), 78, "too near to each other");
    // A model whose labels are no commands of this box.
    let model = maker.path("model");
    copied(Path::new(env!("CARGO_MANIFEST_DIR")).join("models").as_path(), &model);
    let both = maker.commands("2", COMMANDS);
    told(&daemon.update(&["apply", path(&both), "--fewer", "--json"]));
    let shipped = maker.pack("3", &["--model", path(&model)]);
    refused(&daemon.update(&["apply", path(&shipped)]), 78, "of its labels are no commands here");
    told(&daemon.update(&["none", "--json"]));
    let applied = told(&daemon.update(&["apply", path(&shipped), "--json"]));
    assert_eq!((&applied["kind"], &applied["in_force"]), (&json!("model"), &json!(true)));
    assert_eq!(daemon.status_of_updates()["model"]["version"], "3");
    // A model that is not the one of its manifest is not even packed.
    fs::write(model.join("classifier/labels.txt"), "none\n").unwrap();
    let other = maker.path("other");
    let pack = ["update", "pack", path(&other), "--version", "4", "--key", path(&key), "--model", path(&model)];
    assert_eq!(interlock(&pack).status.code(), Some(65));
    drop(daemon);

    // A configuration with commands of its own.
    let home = Home::new();
    fs::write(home.path("own.toml"), COMMANDS).unwrap();
    let config = maker.config(&home, "[commands]\nfiles = [\"own.toml\"]\n");
    let daemon = home.start(Some(&config));
    refused(&daemon.update(&["apply", path(&both), "--fewer"]), 1, "names its own [commands] files");
}

#[test]
fn a_configuration_that_names_its_own_commands_keeps_them_and_check_says_so() {
    let maker = Maker::new();
    let file = maker.commands("1", COMMANDS);
    let home = Home::new();
    let config = maker.config(&home, "");
    let daemon = home.start(Some(&config));
    told(&daemon.update(&["apply", path(&file), "--fewer", "--json"]));
    fs::write(daemon.path("own.toml"), COMMANDS.replace("开工喽二号", "动起来二号")).unwrap();
    let keys = maker.path("update-keys");
    let text = format!("version = 1\n[update]\nkeys = {:?}\n[commands]\nfiles = [\"own.toml\"]\n", path(&keys));
    fs::write(&config, text).unwrap();
    daemon.ask("reload", json!({})).unwrap();
    assert_eq!(daemon.decision("动起来二号"), "allow");
    let status = daemon.status_of_updates();
    assert_eq!((&status["commands"], &status["overridden"]), (&Value::Null, &json!(["commands"])));
    let state = daemon.path("state");
    let check = told(&daemon.cli(&["check", "--config", path(&config), "--state", path(&state), "--json"]));
    let warning = check["warnings"][0].as_str().unwrap();
    assert!(warning.starts_with("[commands] files is set"), "{check}");
}

#[test]
fn a_set_that_is_damaged_or_no_longer_trusted_makes_way_for_the_one_before() {
    let maker = Maker::new();
    let (first, second) = (maker.commands("1", COMMANDS), maker.commands("2", &format!("{COMMANDS}{MORE}")));
    let home = Home::new();
    let config = maker.config(&home, "");
    let daemon = home.start(Some(&config));
    told(&daemon.update(&["apply", path(&first), "--fewer", "--json"]));
    let applied = told(&daemon.update(&["apply", path(&second), "--json"]));
    let (_, home) = daemon.end();
    let set = home.path("state/updates/sets").join(applied["id"].as_str().unwrap());
    fs::write(set.join("commands/site.toml"), "version = 1\n").unwrap();
    let daemon = home.start(Some(&config));
    let status = daemon.status_of_updates();
    assert_eq!(status["commands"]["version"], "1", "{status}");
    let why = status["refused"][0]["why"].as_str().unwrap();
    assert!(why.contains("commands/site.toml is not what was signed"), "{why}");
    assert_eq!(daemon.decision("开工喽二号"), "allow");
    let row = daemon.row("not_loaded");
    assert!(row["cause"].as_str().unwrap().contains("is not what was signed"), "{row}");
    // The same file again mends it.
    told(&daemon.update(&["apply", path(&second), "--json"]));
    assert_eq!(daemon.decision("早班先开一号"), "allow");
    daemon.row("in_force");

    // The maker's key is taken back: nothing of it counts, and the box still runs.
    let (_, home) = daemon.end();
    fs::write(
        maker.path("update-keys"),
        format!("{}\n", "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"),
    )
    .unwrap();
    let daemon = home.start(Some(&config));
    assert_eq!(daemon.status_of_updates()["refused"].as_array().unwrap().len(), 2);
    assert_eq!(daemon.say("启动二号泵")["result"], "done");
    let (state, config) = (daemon.path("state"), daemon.path("interlock.toml"));
    let doctor = daemon.cli(&["doctor", "--json", "--state", path(&state), "--config", path(&config)]);
    let lines: Vec<Value> =
        String::from_utf8_lossy(&doctor.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let line = lines.iter().find(|line| line["check"] == "update").unwrap();
    assert_eq!(line["verdict"], "bad", "{line}");
    // A pointer that nobody can read leads nowhere and stops nothing.
    let (_, home) = daemon.end();
    fs::write(home.path("state/updates/active"), "{\"commands\": \"../../../etc\"}").unwrap();
    let daemon = home.start(Some(&config));
    assert_eq!(daemon.decision("启动二号泵"), "allow");
    let (_, home) = daemon.end();
    fs::write(home.path("state/updates/active"), "half").unwrap();
    let daemon = home.start(Some(&config));
    assert_eq!(daemon.decision("启动二号泵"), "allow");
    assert_eq!(daemon.status_of_updates()["refused"][0]["part"], "commands");
}

#[test]
fn without_a_daemon_an_update_counts_at_the_next_start() {
    let maker = Maker::new();
    let file = maker.commands("1", COMMANDS);
    let home = Home::new();
    let config = maker.config(&home, "");
    let (_, home) = home.start(Some(&config)).end();
    let state = home.path("state");
    let apply =
        ["update", "apply", path(&file), "--fewer", "--json", "--state", path(&state), "--config", path(&config)];
    let socket = home.path("interlock.sock");
    let output =
        Command::new(env!("CARGO_BIN_EXE_interlock")).arg("--socket").arg(&socket).args(apply).output().unwrap();
    assert_eq!(told(&output)["in_force"], false);
    let daemon = home.start(Some(&config));
    assert_eq!(daemon.decision("开工喽二号"), "allow");
    daemon.row("in_force");
}

fn copied(from: &Path, to: &Path) {
    for name in ["manifest.toml", "classifier/commands.onnx", "classifier/labels.txt"] {
        let place = to.join(name);
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::copy(from.join(name), place).unwrap();
    }
}

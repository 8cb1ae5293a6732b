//! Backup, restore, factory reset and the bundle for support, as the person at the cabinet meets them.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

use super::{Daemon, Home};

fn interlock(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_interlock")).args(args).env("LANG", "C").output().unwrap()
}

fn told(output: &Output, code: i32) -> Value {
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap_or(Value::Null)
}

/// Says what is wrong in one line, and what to do.
fn refused(output: &Output, code: i32, says: &str) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    assert!(stderr.contains(says) && stderr.contains("hint: "), "{says}: {stderr}");
}

fn path(of: &Path) -> &str {
    of.to_str().unwrap()
}

fn verify(state: &Path) -> Value {
    told(&interlock(&["evidence", "verify", "--json", "--state", path(state)]), 0)
}

/// A backup that was made beside a daemon that runs, the file, its signer, and where it ran.
fn backed_up() -> (Home, std::path::PathBuf, String) {
    let daemon = Daemon::start();
    assert_eq!(daemon.say("启动二号泵")["result"], "done");
    let file = daemon.path("box.tar.gz");
    let state = daemon.path("state");
    let made = told(&interlock(&["backup", path(&file), "--state", path(&state), "--json"]), 0);
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600, "it has the secret key");
    let signer = made["signer"].as_str().unwrap().to_owned();
    // What happens after the backup is not in it.
    assert_eq!(daemon.say("停止二号泵")["result"], "done");
    refused(&interlock(&["restore", path(&file), "--state", path(&state)]), 1, "is in use by process");
    refused(&interlock(&["factory-reset", "--yes", "--state", path(&state)]), 1, "is in use by process");
    let (status, home) = daemon.end();
    assert!(status.success());
    (home, file, signer)
}

#[test]
fn a_backup_of_a_running_daemon_comes_back_whole_and_the_log_tells_of_it() {
    let (home, file, _) = backed_up();
    let state = home.path("state");
    let before = verify(&state)["rows"].as_u64().unwrap();
    refused(&interlock(&["backup", path(&file), "--state", path(&state)]), 73, "File exists");

    let restored = told(&interlock(&["restore", path(&file), "--state", path(&state), "--json"]), 0);
    assert_eq!(restored["verdict"], "INTACT");
    let rows = verify(&state)["rows"].as_u64().unwrap();
    assert!(rows < before, "{rows} rows of {before}: the second command came after the backup");
    // What was there is moved aside and still whole.
    let aside = Path::new(restored["aside"].as_str().unwrap());
    assert_eq!(verify(aside)["rows"].as_u64(), Some(before));

    let daemon = home.start(None);
    daemon.eventually("the row about the restore", || {
        let rows = daemon.ask("evidence.query", json!({ "kind": "restored", "limit": 10 })).unwrap();
        rows.as_array().unwrap().iter().any(|row| row["detail"]["verdict"] == "INTACT").then_some(())
    });
    assert_eq!(daemon.say("启动一号泵")["result"], "done");
    let (_, home) = daemon.end();
    assert_eq!(verify(&home.path("state"))["verdict"], "INTACT");
}

#[test]
fn a_backup_goes_to_another_machine_only_with_its_signer() {
    let (home, file, signer) = backed_up();
    let other = home.path("other");
    refused(&interlock(&["restore", path(&file), "--state", path(&other)]), 77, "knows no signer");
    refused(&interlock(&["restore", path(&file), "--state", path(&other), "--signer", "12"]), 64, "no key");
    let wrong = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";
    refused(&interlock(&["restore", path(&file), "--state", path(&other), "--signer", wrong]), 77, "not by");
    let whole = told(
        &interlock(&["restore", "--check", path(&file), "--signer", &signer, "--json", "--state", path(&other)]),
        0,
    );
    assert!(whole["files"].as_u64() >= Some(4), "{whole}");
    assert!(!other.join("evidence").exists(), "a check writes nothing");
    let restored =
        told(&interlock(&["restore", path(&file), "--signer", &signer, "--json", "--state", path(&other)]), 0);
    assert_eq!((&restored["verdict"], &restored["aside"]), (&json!("INTACT"), &Value::Null));
    assert_eq!(fs::metadata(other.join("keys/evidence.key")).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_backup_that_is_not_whole_changes_nothing() {
    let (home, file, signer) = backed_up();
    let bytes = fs::read(&file).unwrap();
    let state = home.path("state");
    let before = verify(&state);
    let bad = home.path("bad.tar.gz");
    let check = |what: &str, bytes: &[u8]| {
        fs::write(&bad, bytes).unwrap();
        let output = interlock(&["restore", path(&bad), "--state", path(&state), "--signer", &signer]);
        assert_eq!(output.status.code(), Some(65), "{what}: {output:?}");
    };
    check("empty", b"");
    check("no archive", b"hello");
    // A flipped bit every so often, and cuts: the compression, the archive, each file and the signature notice. A few
    // bits of a compressed file (lengths of codes that nothing uses) mean nothing; then it is the same backup.
    let plain = |bytes: &[u8]| {
        let mut plain = Vec::new();
        flate2::read::MultiGzDecoder::new(bytes).read_to_end(&mut plain).ok().map(|_| plain)
    };
    for n in 1..16 {
        let mut flipped = bytes.clone();
        flipped[n * bytes.len() / 16] ^= 0x10;
        if plain(&flipped) != plain(&bytes) {
            check("flipped", &flipped);
        }
        check("cut", &bytes[..n * bytes.len() / 16]);
    }
    // Somebody who knows the form and not the key: one file changed, one more, one that leads out, a link.
    let entries = unpacked(&bytes);
    type Change = fn(&mut Vec<(String, Vec<u8>)>);
    let changes: [(&str, Change); 5] = [
        ("changed", |all| all[0].1.push(b'x')),
        ("one more", |all| all.push(("state/policy".to_owned(), b"x".to_vec()))),
        ("twice", |all| all.push(all[0].clone())),
        ("outside", |all| all.push(("state/../../outside".to_owned(), b"x".to_vec()))),
        ("no signature", |all| all.retain(|(name, _)| name != "manifest.sig")),
    ];
    for (what, change) in changes {
        let mut entries = entries.clone();
        change(&mut entries);
        check(what, &packed(&entries));
    }
    assert_eq!(verify(&state), before);
    assert!(!state.join("restore-new").exists() && !home.path("outside").exists());
}

#[test]
fn a_restore_that_was_cut_off_keeps_the_daemon_from_starting_until_it_is_run_again() {
    let (home, file, _) = backed_up();
    let state = home.path("state");
    fs::create_dir(state.join("restore-new")).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_interlock"))
        .args(["run", "--state", path(&state), "--config", path(&home.config("version = 1\n"))])
        .arg("--socket")
        .arg(home.path("interlock.sock"))
        .env("LANG", "C")
        .output()
        .unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("in the middle of a restore"), "{output:?}");
    told(&interlock(&["restore", path(&file), "--state", path(&state), "--json"]), 0);
    home.start(None);
}

#[test]
fn a_factory_reset_moves_everything_aside_and_begins_anew() {
    let (home, _, signer) = backed_up();
    let state = home.path("state");
    let without = interlock(&["factory-reset", "--state", path(&state)]);
    assert_eq!(without.status.code(), Some(64), "{without:?}");
    let reset = told(&interlock(&["factory-reset", "--yes", "--json", "--state", path(&state)]), 0);
    assert!(verify(Path::new(reset["aside"].as_str().unwrap()))["rows"].as_u64() > Some(0));
    let again = told(&interlock(&["factory-reset", "--yes", "--json", "--state", path(&state)]), 0);
    assert_eq!(again["aside"], Value::Null);
    let daemon = home.start(None);
    let (_, home) = daemon.end();
    let key = fs::read_to_string(home.path("state").join("keys/evidence.pub")).unwrap();
    assert_ne!(key.trim(), signer, "a new life has a new key");
}

#[test]
fn a_support_bundle_has_what_helps_and_no_secret() {
    let home = Home::new();
    let secret = "kL9mN2pQ5rS8tU1vW4xY";
    let config = home.config(&format!(
        "version = 1\n[ask]\ntimeout = 60\n[[mcp.server]]\nname = \"none\"\ncommand = [\"true\"]\nenv = {{ API = \"{secret}\" }}\n"
    ));
    let daemon = home.start(Some(&config));
    // What somebody says goes into the log as it was said, and not into the bundle.
    daemon.say(&format!("密码 password={secret}"));
    assert_eq!(daemon.say("启动二号泵")["result"], "done");
    let file = daemon.path("support.tar.gz");
    let state = daemon.path("state");
    let arguments = ["support-bundle", path(&file), "--state", path(&state), "--config", path(&config), "--json"];
    let parts: BTreeMap<String, Vec<u8>> = daemon.eventually("the pump in the bundle", || {
        let _old = fs::remove_file(&file);
        let made = told(&daemon.cli(&arguments), 0);
        assert!(made["parts"].as_array().unwrap().len() >= 9, "{made}");
        let parts: BTreeMap<String, Vec<u8>> = unpacked(&fs::read(&file).unwrap()).into_iter().collect();
        let tail = String::from_utf8_lossy(&parts["interlock-support/evidence-tail.jsonl"]).into_owned();
        tail.contains("pump-2").then_some(parts)
    });
    for (name, bytes) in &parts {
        assert!(!String::from_utf8_lossy(bytes).contains(secret), "{name} has the secret");
    }
    let of = |name: &str| String::from_utf8_lossy(&parts[&format!("interlock-support/{name}")]).into_owned();
    let config: Value = serde_json::from_str(&of("config.json")).unwrap();
    assert_eq!(config["ask"]["timeout"], 60);
    assert_eq!(config["mcp"]["server"][0]["env"]["API"], "[removed]");
    for (name, says) in [("doctor.jsonl", "\"check\""), ("status.json", "\"pid\""), ("evidence-verify.json", "INTACT")]
    {
        assert!(of(name).contains(says), "{name}: {}", of(name));
    }
    // A box without a daemon and without a state still gives a bundle, which says what it could not have.
    let empty = daemon.path("empty");
    let second = daemon.path("second.tar.gz");
    let made =
        interlock(&["--socket", "/nonexistent", "support-bundle", path(&second), "--state", path(&empty), "--json"]);
    let missing = told(&made, 0)["parts"].as_array().unwrap().iter().filter(|part| part["missing"].is_string()).count();
    assert!(missing >= 4, "{made:?}");
    refused(&interlock(&["support-bundle", path(&second)]), 73, "File exists");
}

pub(super) fn unpacked(bytes: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(bytes));
    let entries = archive.entries().unwrap().map(|entry| {
        let mut entry = entry.unwrap();
        let name = entry.path().unwrap().display().to_string();
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).unwrap();
        (name, bytes)
    });
    entries.collect()
}

pub(super) fn packed(entries: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut archive = tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()));
    for (name, bytes) in entries {
        let mut header = tar::Header::new_ustar();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o600);
        // Written by hand: the library refuses to make a name that leads out.
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_cksum();
        archive.append(&header, bytes.as_slice()).unwrap();
    }
    archive.into_inner().unwrap().finish().unwrap()
}

//! `interlock evidence verify`, as a person calls it on what they have.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::{first_segment, log_of};

/// Exit code, verdict and all notes; nothing may take longer than the patience of a person.
fn verify(arguments: &[&Path]) -> (Option<i32>, String, String) {
    let output = Command::new("timeout")
        .args(["60", env!("CARGO_BIN_EXE_interlock"), "evidence", "verify", "--json"])
        .args(arguments)
        .env("LANG", "C")
        .output()
        .unwrap();
    let value: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let said = format!("{}{}", value["notes"], String::from_utf8_lossy(&output.stderr));
    (output.status.code(), value["verdict"].as_str().unwrap_or_default().to_owned(), said)
}

#[test]
fn each_thing_that_a_person_may_name_has_its_answer() {
    let state = log_of(20);
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name);
    let (flag_state, flag_checkpoints) = (Path::new("--state"), Path::new("--checkpoints"));
    let check = |arguments: &[&Path], code: i32, verdict: &str, said: &str| {
        let found = verify(arguments);
        assert_eq!((found.0, found.1.as_str()), (Some(code), verdict), "{arguments:?}: {}", found.2);
        assert!(found.2.contains(said), "{arguments:?}: {}", found.2);
    };
    check(&[flag_state, state.path()], 0, "INTACT", "");
    check(&[&first_segment(state.path())], 0, "INTACT", "");
    check(&[&path("nowhere")], 66, "", "No such file");
    check(&[place.path()], 1, "", "holds no evidence log");
    assert!(Command::new("mkfifo").arg(path("fifo")).status().unwrap().success());
    check(&[&path("fifo")], 65, "", "neither a directory nor a plain file");
    check(&[Path::new("/dev/null")], 65, "", "neither a directory nor a plain file");
    for (name, bytes) in [("empty.db", &b""[..]), ("garbage.db", &[0xa5; 20_000][..]), ("text", b"hello\n")] {
        fs::write(path(name), bytes).unwrap();
        check(&[&path(name)], 1, "ALTERED", "");
    }
    // A segment alone, with nothing to hold it against.
    fs::copy(first_segment(state.path()), path("7.db")).unwrap();
    check(&[&path("7.db")], 1, "UNANCHORED", "is not there");
    // Checkpoints that are none must not look as if they had been held against the log.
    for (name, said) in
        [("fifo", "is not a plain file"), ("garbage.db", "is not text"), ("text", "holds no checkpoint")]
    {
        check(&[flag_state, state.path(), flag_checkpoints, &path(name)], 65, "", said);
    }
    check(&[flag_state, state.path(), flag_checkpoints, &path("nowhere")], 66, "", "No such file");
    check(&[flag_state, state.path(), flag_checkpoints, &state.path().join("evidence/checkpoints")], 0, "INTACT", "");
    // Without its key the log can only be held against the key that it names itself, and that is said.
    fs::remove_dir_all(state.path().join("keys")).unwrap();
    check(&[flag_state, state.path()], 0, "INTACT", "there is no keys/evidence.pub");
}

/// Exit code and what was said on standard error, of `interlock evidence …`.
fn evidence(arguments: &[&str], from: &Path) -> (Option<i32>, String) {
    let output = Command::new("timeout")
        .args(["60", env!("CARGO_BIN_EXE_interlock"), "evidence"])
        .args(arguments)
        .arg("--state")
        .arg(from)
        .env("LANG", "C")
        .output()
        .unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn what_cannot_be_read_or_asked_is_told_apart_by_its_exit_code() {
    let state = log_of(20);
    let place = tempfile::tempdir().unwrap();
    let foreign = place.path().join("foreign");
    fs::create_dir_all(foreign.join("evidence")).unwrap();
    fs::write(foreign.join("evidence/1.db"), "").unwrap();
    let no_database = place.path().join("text");
    fs::write(&no_database, [b'x'; 4096]).unwrap();
    for (arguments, from, code, said) in [
        (&["query", "--limit", "0"][..], state.path(), 0, ""),
        (&["query", "--since", "5", "--until", "5"], state.path(), 0, ""),
        (&["query", "--since", "5", "--until", "4"], state.path(), 64, "--since 5 is after --until 4"),
        (&["query", "--kind", "'; drop table evidence;--"], state.path(), 0, ""),
        (&["query", "--task", "1"], state.path(), 64, "is not a task"),
        (&["query"], &no_database, 65, "file is not a database"),
        (&["query"], &foreign, 65, "no such table"),
        (&["export"], &foreign, 65, "no such table"),
        (&["stats"], &place.path().join("nowhere"), 66, "No such file"),
        (&["show", "999"], state.path(), 1, "there is no row 999"),
    ] {
        let found = evidence(arguments, from);
        assert_eq!(found.0, Some(code), "{arguments:?}: {}", found.1);
        assert!(found.1.contains(said), "{arguments:?}: {}", found.1);
    }
}

#[test]
fn a_reader_that_goes_away_is_no_error_and_a_full_disk_is_one() {
    let state = log_of(20);
    let export = |to: Stdio| {
        Command::new(env!("CARGO_BIN_EXE_interlock"))
            .args(["evidence", "export", "--state"])
            .arg(state.path())
            .env("LANG", "C")
            .stdout(to)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let mut left = export(Stdio::piped());
    drop(left.stdout.take());
    let left = left.wait_with_output().unwrap();
    assert_eq!((left.status.code(), String::from_utf8_lossy(&left.stderr).as_ref()), (Some(73), ""));
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let full = export(full.into()).wait_with_output().unwrap();
    assert_eq!(full.status.code(), Some(73));
    assert!(String::from_utf8_lossy(&full.stderr).contains("No space left"), "{full:?}");
}

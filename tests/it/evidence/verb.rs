//! `interlock evidence verify`, as a person calls it on what they have.

use std::fs;
use std::path::Path;
use std::process::Command;

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

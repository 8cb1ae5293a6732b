//! Histories on the command line.

use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

/// What `effects check` answers to these lines, and its exit code.
fn check(input: &str) -> (Vec<Value>, Option<i32>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_interlock"));
    command.args(["effects", "check"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let ended = child.wait_with_output().unwrap();
    let lines = String::from_utf8(ended.stdout).unwrap();
    (lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect(), ended.status.code())
}

#[test]
fn histories_are_answered_line_by_line_and_the_exit_code_says_what_was_found() {
    let good = r#"{"id": "g", "events": [["begin", "w", []]]}"#;
    let bad = r#"{"id": "b", "view": "runtime", "events": [["begin", "w", ["p"]], ["attempt", "a", "p", "w", "m"], ["commit", "w", ["m"]]]}"#;
    let broken = r#"{"id": "x", "events": [["begin", "w", []], ["effect", "e", "a", "r"]]}"#;
    assert_eq!(check(good), (vec![json!({ "id": "g", "anomalies": [] })], Some(0)));
    let why = "required operation p of w may have no effect at the commit";
    let possible = json!({ "kind": "A2", "verdict": "possible", "events": [1, 2], "why": why });
    let found = json!({ "id": "b", "anomalies": [possible] });
    assert_eq!(check(&format!("{good}\n\n{bad}\n")), (vec![json!({ "id": "g", "anomalies": [] }), found], Some(1)));
    let (answers, code) = check(&format!("{broken}\nnonsense\n{good}"));
    assert_eq!(answers[0], json!({ "line": 1, "error": "event 1: effect \"e\" comes before its attempt \"a\"" }));
    assert_eq!((answers[1]["line"].as_u64(), answers[2]["id"].as_str(), code), (Some(2), Some("g"), Some(65)));
}

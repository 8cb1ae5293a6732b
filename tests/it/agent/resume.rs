//! `kill -9` between the stations of a batch, and what the model reads of each call when its conversation goes on.

use std::io::Write;
use std::os::unix::net::UnixStream;

use serde_json::{Value, json};

use super::server::{Server, Wire, calls, text};
use super::{Run, rows};
use crate::daemon::{Daemon, Home};

fn shell(command: &str) -> Value {
    json!({ "command": command })
}

/// What the model reads of each call of its last answer, after `resume`: id and text.
fn told(daemon: &Daemon, server: &Server, run: &Value) -> Vec<(String, String)> {
    let before = server.requests().len();
    let (end, all) = Run::of(daemon, json!({ "text": "and now?", "resume": run })).end();
    assert_eq!(end["outcome"], "done", "{all:?}");
    let messages = server.requests()[before].body["messages"].as_array().unwrap().clone();
    let results = messages.iter().flat_map(|message| message["content"].as_array().cloned().unwrap_or_default());
    let of = |part: Value| {
        let id = part["tool_use_id"].as_str()?.to_owned();
        let text = match &part["content"] {
            Value::String(text) => text.clone(),
            parts => parts[0]["text"].as_str().unwrap_or_default().to_owned(),
        };
        Some((id, text))
    };
    results.filter_map(of).collect()
}

#[track_caller]
fn check(told: &[(String, String)], want: &[(&str, &str)]) {
    assert_eq!(told.len(), want.len(), "{told:?}");
    for ((id, text), (name, part)) in told.iter().zip(want) {
        assert!(id == name && text.contains(part), "{name} should say {part:?}: {told:?}");
        let both = ["[not_started]", "[outcome_unknown]"].iter().filter(|stub| text.contains(**stub)).count();
        assert!(both <= 1, "{text}");
    }
}

#[test]
fn each_call_is_told_as_far_as_it_had_come() {
    let mut answers = vec![calls(
        Wire::Anthropic,
        &[
            ("c1", "shell", shell("touch one.txt")),
            ("c2", "shell", shell("rm x")),
            // It never becomes a wish: the places in the batch are not those in the answer.
            ("c3", "no such tool", json!({})),
            ("c4", "shell", shell("sleep 600")),
            // Its intent is written one wave ahead: after a crash nobody can know that it had not begun.
            ("c5", "shell", shell("touch perhaps.txt")),
            ("c6", "shell", shell("touch never.txt")),
        ],
    )];
    answers.extend((0..5).map(|_| text(Wire::Anthropic, "I see")));
    let server = Server::start(answers);
    let home = Home::new();
    let config = home.config(&format!(
        "version = 1\n{}\n[policy]\nallow = [\"Bash(touch:*)\", \"Bash(sleep 600)\"]\ndeny = [\"Bash(rm:*)\"]\n",
        server.config(Wire::Anthropic, "")
    ));
    let daemon = home.start(Some(&config));
    let mut run = Run::of(&daemon, json!({ "text": "go" }));
    let run_id = run.until("begin")["run"].clone();
    daemon.eventually("the second start", || (rows(&daemon, &run_id, "started").len() == 2).then_some(()));
    daemon.eventually("the intent behind it", || (rows(&daemon, &run_id, "intent").len() == 3).then_some(()));
    daemon.eventually("the settlements", || (rows(&daemon, &run_id, "settled").len() == 2).then_some(()));
    let home = daemon.kill();
    drop(run);
    let history = home.path("state/spill").join(run_id.as_str().unwrap()).join("history.jsonl");
    let whole = std::fs::read_to_string(&history).unwrap();
    let without = |words: &[&str]| -> String {
        let lines = whole.lines().filter(|line| !words.iter().any(|word| line.starts_with(&format!("{{\"{word}\""))));
        lines.map(|line| format!("{line}\n")).collect()
    };
    let daemon = home.start(Some(&config));
    let known = [
        ("c1", "\"exit_code\":0"),
        ("c2", "[denied]"),
        ("c3", "[not_started]"),
        ("c4", "[outcome_unknown]"),
        ("c5", "[outcome_unknown]"),
        ("c6", "[not_started]"),
    ];
    let said = told(&daemon, &server, &run_id);
    check(&said, &known);
    assert!(said[1].1.contains("rule Bash(rm:*)") && said[3].1.contains("ask settle"), "{said:?}");
    assert!(!said[0].1.contains("lost"));
    // The crash came before the number of the batch was written down: the log has it.
    std::fs::write(&history, without(&["batch"])).unwrap();
    check(&told(&daemon, &server, &run_id), &known);
    // It came before anything was handed in.
    std::fs::write(&history, without(&["batch", "handing"])).unwrap();
    check(&told(&daemon, &server, &run_id), &["c1", "c2", "c3", "c4", "c5", "c6"].map(|id| (id, "[not_started]")));
    // What is found out about the unknown is what counts from then on.
    std::fs::write(&history, &whole).unwrap();
    let question = daemon.eventually("the question about the outcome", || {
        let list = daemon.ask("ask.list", json!({})).ok()?;
        list.as_array()?.iter().find(|row| row["kind"] == "outcome" && row.to_string().contains("sleep 600")).cloned()
    });
    let settled = json!({ "question": question["question"], "finding": "done", "note": "it slept" });
    daemon.ask("ask.settle", settled).unwrap();
    daemon.eventually("the finding", || rows(&daemon, &run_id, "resolved").pop());
    let said = told(&daemon, &server, &run_id);
    assert!(said[3].1.contains("found out later: done") && said[3].1.contains("it slept"), "{said:?}");
    assert!(!said[3].1.contains("[outcome_unknown]"), "{said:?}");
    // Without the log nobody knows what became of what was handed in.
    let home = daemon.kill();
    std::fs::remove_dir_all(home.path("state/evidence")).unwrap();
    let daemon = home.start(Some(&config));
    let unknown = |id| (id, if id == "c3" { "[not_started]" } else { "[outcome_unknown]" });
    check(&told(&daemon, &server, &run_id), &["c1", "c2", "c3", "c4", "c5", "c6"].map(unknown));
}

#[test]
fn a_question_that_was_open_was_not_started_and_a_no_is_a_denial() {
    let batch = [("c1", "shell", shell("sleep 600")), ("c2", "shell", shell("make"))];
    let server = Server::start(vec![
        calls(Wire::Anthropic, &batch),
        text(Wire::Anthropic, "I see"),
        calls(Wire::Anthropic, &batch),
        text(Wire::Anthropic, "I see"),
    ]);
    let home = Home::new();
    let config = home.config(&format!(
        "version = 1\n{}\n[policy]\nallow = [\"Bash(sleep 600)\"]\n",
        server.config(Wire::Anthropic, "")
    ));
    let daemon = home.start(Some(&config));
    let mut run = Run::of(&daemon, json!({ "text": "go" }));
    let run_id = run.until("begin")["run"].clone();
    run.until("question");
    // What is not on the disk yet is not known after a kill, and then it may have taken effect.
    daemon.eventually("the question in the log", || rows(&daemon, &run_id, "asked").pop());
    let home = daemon.kill();
    let daemon = home.start(Some(&config));
    check(&told(&daemon, &server, &run_id), &[("c1", "[not_started]"), ("c2", "[not_started]")]);

    let mut run = Run::of(&daemon, json!({ "text": "go" }));
    let run_id = run.until("begin")["run"].clone();
    let question = run.until("question");
    // The answer to a no comes with the end of its batch, and this batch never ends.
    let mut no = UnixStream::connect(&daemon.socket).unwrap();
    writeln!(no, "{}", json!({ "v": 1, "id": 1, "verb": "ask.deny", "args": { "question": question["question"] } }))
        .unwrap();
    daemon.eventually("the start of the other", || rows(&daemon, &run_id, "intent").pop());
    let home = daemon.kill();
    let daemon = home.start(Some(&config));
    check(&told(&daemon, &server, &run_id), &[("c1", "[outcome_unknown]"), ("c2", "[denied]")]);
}

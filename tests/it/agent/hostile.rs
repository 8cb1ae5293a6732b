//! What a hostile or broken model sends: each ends in a typed way, and nothing of it is dispatched.

use serde_json::{Value, json};

use super::server::{Answer, Server, Wire, calls, text};
use super::{Run, ask, daemon, results, rows};

/// An answer that is none: the run ends so, and nothing was wished for.
fn check(what: &str, answer: Answer, outcome: &str) {
    let server = Server::answering(move |_| answer.clone());
    let daemon = daemon(&server, Wire::Chat, "", "allow = [\"Device\", \"Bash\", \"Edit\"]");
    let (end, all) = ask(&daemon, "go");
    assert_eq!(end["outcome"], outcome, "{what}: {end}");
    assert_eq!(results(&all), [], "{what}");
    assert!(rows(&daemon, &end["run"], "requested").is_empty(), "{what}");
    // The daemon is well.
    assert!(daemon.ask("status", json!({})).is_ok(), "{what}");
}

#[test]
fn a_message_beyond_the_bounds_is_no_answer() {
    let write = json!({ "path": "a.txt", "content": "x".repeat(10 << 20) });
    check("10 MiB of arguments", calls(Wire::Chat, &[("c1", "write_file", write)]), "malformed");
    let read = json!({ "device": "pump-2", "action": "start" });
    let many: Vec<(&str, &str, Value)> = (0..10_000).map(|_| ("", "device", read.clone())).collect();
    check("10,000 calls", calls(Wire::Chat, &many), "malformed");
    let frame = |arguments: &str| {
        let call = json!({ "index": 0, "id": "c1", "function": { "name": "shell", "arguments": arguments } });
        let frame =
            json!({ "choices": [{ "index": 0, "delta": { "tool_calls": [call] }, "finish_reason": "tool_calls" }] });
        Answer::stream(format!("data: {frame}\n\ndata: [DONE]\n\n"))
    };
    let deep = format!("{{\"command\":{}1{}}}", "[".repeat(100_000), "]".repeat(100_000));
    check("deep arguments", frame(&deep), "malformed");
    let nested = format!("data: {}\n\n", "{\"choices\":".repeat(50_000));
    check("a deep frame", Answer::stream(nested), "malformed");
    check("one line without an end", Answer::stream(format!("data: {}", "x".repeat(20 << 20))), "malformed");
    check("arguments that are no object", frame("[1, 2]"), "malformed");
}

#[test]
fn an_input_that_is_too_deep_for_a_tool_is_told_to_the_model() {
    let deep = (0..40).fold(json!(1), |inner, _| json!([inner]));
    let server =
        Server::start(vec![calls(Wire::Chat, &[("c1", "shell", json!({ "command": deep }))]), text(Wire::Chat, "ok")]);
    let daemon = daemon(&server, Wire::Chat, "", "allow = [\"Bash\"]");
    let (end, all) = ask(&daemon, "go");
    assert_eq!(end["outcome"], "done");
    assert_eq!(results(&all)[0].0, "not_started");
    let told = server.requests()[1].body.to_string();
    assert!(told.contains("not started (bad_input)"), "{told}");
}

#[test]
fn what_hides_itself_is_shown_to_whoever_approves_it() {
    // A right-to-left override, a carriage return, an escape sequence, a zero-width space, a tag character.
    let command = "echo safe\u{202e}fr- mr\r\u{1b}[2K\u{200b}\u{e0041}";
    let server = Server::start(vec![
        calls(Wire::Chat, &[("c1", "shell", json!({ "command": command }))]),
        text(Wire::Chat, "ok"),
    ]);
    // An allow does not cover it: what cannot be read is never approved beforehand.
    let daemon = daemon(&server, Wire::Chat, "", "allow = [\"Bash(echo:*)\"]");
    let mut run = Run::of(&daemon, json!({ "text": "go" }));
    let question = run.until("question");
    let listed = daemon.ask("ask.list", json!({})).unwrap();
    let printed = String::from_utf8(daemon.cli(&["ask", "list"]).stdout).unwrap();
    for shown in [question["about"].as_str().unwrap(), &listed.to_string(), &printed] {
        for hidden in ['\u{202e}', '\r', '\u{1b}', '\u{200b}', '\u{e0041}'] {
            assert!(!shown.contains(hidden), "{hidden:?} is in {shown:?}");
        }
        assert!(shown.contains("202e") && shown.contains("echo safe"), "{shown}");
    }
    daemon.ask("ask.deny", json!({ "question": question["question"] })).unwrap();
    let (_, all) = run.end();
    assert_eq!(results(&all), [("not_started".to_owned(), "denied_by_person".to_owned())]);
}

//! The configured model as the classifier: its word counts where the mode asks nobody, and nothing else of it does.

use serde_json::{Value, json};

use super::server::{Answer, Server, Wire, calls, text};
use super::{Run, results};
use crate::daemon::{Daemon, Home};

/// What the model is told when it judges.
const JUDGES: &str = "You judge one tool call";

/// A server whose model wants this call, and judges it so.
fn server(wire: Wire, tool: &'static str, input: Value, judged: Answer) -> Server {
    let mut turn = 0;
    Server::answering(move |body| {
        if body.to_string().contains(JUDGES) {
            return judged.clone();
        }
        turn += 1;
        if turn == 1 { calls(wire, &[("c1", tool, input.clone())]) } else { text(wire, "ok") }
    })
}

fn judging(server: &Server, wire: Wire, more: &str) -> Daemon {
    let home = Home::new();
    let policy = format!("[policy]\nmode = \"bypassPermissions\"\nclassifier = \"model\"\n{more}\n");
    let config = home.config(&format!("version = 1\n{}\n{policy}", server.config(wire, "")));
    home.start(Some(&config))
}

fn judged(server: &Server) -> Vec<Value> {
    let asked = server.requests().into_iter().map(|request| request.body);
    asked.filter(|body| body.to_string().contains(JUDGES)).collect()
}

/// How the call ends; a question about it is answered with no.
fn end(daemon: &Daemon) -> (String, String) {
    let mut run = Run::of(daemon, json!({ "text": "go" }));
    loop {
        let told = run.next().unwrap();
        if told["event"] == "question" {
            daemon.ask("ask.deny", json!({ "question": told["question"] })).unwrap();
        }
        if told["event"] == "end" {
            assert_eq!(told["outcome"], "done");
            return results(&run.all).pop().unwrap();
        }
    }
}

#[test]
fn its_word_counts_in_every_dialect_and_what_is_no_word_asks_a_person() {
    let (done, denied) = (("done", "-"), ("not_started", "denied"));
    // Asked, and the person says no.
    let asked = ("not_started", "denied_by_person");
    let said = |word: &str| text(Wire::Chat, word);
    let table = [
        (said("allow"), "", done),
        (said("Deny."), "", denied),
        (said("ask"), "", asked),
        (said("{\"decision\": \"allow\"}"), "", done),
        (said("I think that one may allow it"), "", asked),
        (calls(Wire::Chat, &[("j1", "allow", json!({}))]), "", asked),
        (said("allow").broken(3, 0, true), "", asked),
        (Answer::error("500 Oops", "", "{}"), "", asked),
        (Answer::error("500 Oops", "", "{}"), "classifier-fails-open = true", done),
        (said("deny"), "classifier-fails-open = true", denied),
        // A rule comes first, and what no mode waives asks whatever it says.
        (said("allow"), "deny = [\"Bash(touch:*)\"]", denied),
    ];
    for (answer, more, want) in table {
        let server = server(Wire::Chat, "shell", json!({ "command": "touch marker" }), answer.clone());
        let daemon = judging(&server, Wire::Chat, more);
        let (result, code) = end(&daemon);
        assert_eq!((result.as_str(), code.as_str()), want, "{answer:?} {more}");
        let there = daemon.path("state/work/marker").exists();
        assert_eq!(there, want == done, "{answer:?} {more}");
        assert_eq!(judged(&server).len(), 1);
    }
    for wire in [Wire::Anthropic, Wire::Responses, Wire::Gemini] {
        let server = server(wire, "shell", json!({ "command": "touch marker" }), text(wire, "deny"));
        let (result, code) = end(&judging(&server, wire, ""));
        assert_eq!((result.as_str(), code.as_str()), denied, "{wire:?}");
        let asked = judged(&server).pop().unwrap().to_string();
        assert!(asked.contains("touch marker"), "{wire:?}: {asked}");
    }
}

#[test]
fn what_it_cannot_see_whole_and_what_no_mode_waives_is_asked_about() {
    let asked = ("not_started".to_owned(), "denied_by_person".to_owned());
    let long = json!({ "path": "long.txt", "content": "x".repeat(40_000) });
    let server_of = |tool, input| server(Wire::Chat, tool, input, text(Wire::Chat, "allow"));
    let server = server_of("write_file", long);
    assert_eq!(end(&judging(&server, Wire::Chat, "")), asked);
    assert_eq!(judged(&server).len(), 0, "a part of an input was judged");
    let server = server_of("shell", json!({ "command": "rm -rf /" }));
    assert_eq!(end(&judging(&server, Wire::Chat, "")), asked);
    // What hides itself from a reader is shown to it as what it is.
    let server = server_of("shell", json!({ "command": "echo a\u{202e}b" }));
    end(&judging(&server, Wire::Chat, ""));
    let judged = judged(&server).pop().unwrap().to_string();
    assert!(!judged.contains('\u{202e}') && judged.contains("u{202e}"), "{judged}");
    // A read is not judged at all.
    let server = server_of("device", json!({ "device": "pump-2", "action": "read" }));
    assert_eq!(end(&judging(&server, Wire::Chat, "")).0, "done");
    assert_eq!(judged_count(&server), 0);
}

fn judged_count(server: &Server) -> usize {
    judged(server).len()
}

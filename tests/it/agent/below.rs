//! Subagents as they are executed: how they begin, what they have, and what they have not.

use serde_json::{Value, json};

use super::server::{Server, Wire, calls, text};
use super::{Run, ask, daemon, results, rows, told_model};
use crate::daemon::Home;
use crate::daemon::proxy::{server as mcp_server, stands};

/// The run that a run made.
fn child_of(daemon: &crate::daemon::Daemon, run: &Value) -> Value {
    daemon.eventually("the child", || {
        let opened = daemon.ask("evidence.query", json!({ "kind": "run_opened", "limit": 50 })).ok()?;
        let rows = opened.as_array()?.clone();
        rows.into_iter().find(|row| row["detail"]["parent"] == *run).map(|row| row["run"].clone())
    })
}

fn offers(server: &Server, request: usize, tool: &str) -> bool {
    let tools = server.requests()[request].body["tools"].clone();
    tools.as_array().unwrap().iter().any(|offered| offered["function"]["name"] == tool)
}

#[test]
fn a_fork_knows_what_its_parent_knew_and_a_cold_start_its_task_alone() {
    for (fork, start) in [(true, "fork"), (false, "cold")] {
        let task = json!({ "task": "say the word", "profile": "branch" });
        let server = Server::start(vec![
            calls(Wire::Chat, &[("p1", "system", json!({ "verb": "version" }))]),
            calls(Wire::Chat, &[("p2", "subagent", task)]),
            text(Wire::Chat, "from below"),
            text(Wire::Chat, "done"),
        ]);
        let profile = format!("[[agent.profile]]\nname = \"branch\"\nfork = {fork}\n");
        let daemon = daemon(&server, Wire::Chat, &profile, "");
        let (end, all) = ask(&daemon, "the word is marmot");
        assert_eq!(end["outcome"], "done", "{all:?}");
        let child = &server.requests()[2].body["messages"];
        let roles: Vec<&str> = child.as_array().unwrap().iter().map(|one| one["role"].as_str().unwrap()).collect();
        let told = child.to_string();
        if fork {
            // The history before the answer that made it, its closed calls included, then the task.
            assert_eq!(roles, ["system", "user", "assistant", "tool", "user"], "{told}");
        } else {
            assert_eq!(roles, ["system", "user"], "{told}");
        }
        assert_eq!(told.contains("marmot"), fork, "{told}");
        assert!(told.contains("say the word"));
        assert!(told_model(&server, 3).contains("from below"));
        let child = child_of(&daemon, &end["run"]);
        let asked = daemon.eventually("what it was asked", || rows(&daemon, &child, "agent_asked").pop());
        assert_eq!(asked["detail"]["start"], start);
    }
}

#[test]
fn a_child_has_the_mode_of_its_parent_at_most_its_own_count_of_denials_and_no_word_that_was_said_to_its_parent() {
    // The parent is allowed once, by a person; the child asks again for the very same thing, and is told no.
    let start = || json!({ "device": "pump-1", "action": "start" });
    let make = || json!({ "command": "make" });
    let server = Server::start(vec![
        calls(Wire::Chat, &[("p1", "device", start()), ("p2", "shell", make())]),
        calls(Wire::Chat, &[("p3", "subagent", json!({ "task": "start pump 1", "profile": "wide" }))]),
        calls(Wire::Chat, &[("k1", "device", start()), ("k2", "shell", make())]),
        text(Wire::Chat, "no"),
        calls(Wire::Chat, &[("p4", "shell", make())]),
        text(Wire::Chat, "never asked for"),
    ]);
    let profile = "[[agent.profile]]\nname = \"wide\"\nmode = \"bypassPermissions\"\n";
    let policy = "deny = [\"Bash(make)\"]\ndenials-max = 2";
    let daemon = daemon(&server, Wire::Chat, profile, policy);
    let mut run = Run::of(&daemon, json!({ "text": "go" }));
    let first = run.until("question");
    daemon.ask("ask.allow", json!({ "question": first["question"] })).unwrap();
    let second = daemon.eventually("the question of the child", || {
        daemon
            .ask("ask.list", json!({}))
            .ok()?
            .as_array()?
            .iter()
            .find(|row| row["question"] != first["question"])
            .cloned()
    });
    assert!(second.to_string().contains("pump-1"), "{second}");
    daemon.ask("ask.deny", json!({ "question": second["question"] })).unwrap();
    let (end, all) = run.end();
    // The parent's second denial is its own second one: the child's did not count for it, nor its first for the child.
    assert_eq!(end["outcome"], "denied_repeatedly", "{all:?}");
    let of = |result: &str, code: &str| (result.to_owned(), code.to_owned());
    let parents =
        [of("done", "-"), of("not_started", "denied"), of("done", "-"), of("not_started", "denied_repeatedly")];
    assert_eq!(results(&all), parents);
    let child = child_of(&daemon, &end["run"]);
    let opened = rows(&daemon, &child, "run_opened").pop().unwrap();
    assert_eq!(opened["to"], "default", "the mode is clamped");
    let mut codes: Vec<String> = daemon.eventually("the settlements of the child", || {
        let rows = rows(&daemon, &child, "settled");
        (rows.len() == 2).then(|| rows.iter().map(|row| row["cause"].as_str().unwrap().to_owned()).collect())
    });
    codes.sort();
    assert_eq!(codes, ["denied", "denied_by_person"]);
}

#[test]
fn what_is_registered_after_a_child_has_begun_passes_its_filter() {
    let task = json!({ "task": "look", "profile": "narrow" });
    let echo = || json!({ "n": 1 });
    let server = Server::start(vec![
        calls(Wire::Chat, &[("p1", "subagent", task)]),
        // Held back until the new server is up.
        calls(Wire::Chat, &[("k1", "system", json!({ "verb": "version" }))]).slow(),
        calls(Wire::Chat, &[("k2", "late__echo", echo()), ("k3", "late__act", echo())]),
        text(Wire::Chat, "seen"),
        text(Wire::Chat, "done"),
    ]);
    let home = Home::new();
    let profile = "[[agent.profile]]\nname = \"narrow\"\ndeny = [\"mcp__late__act\", \"shell\"]\n";
    let before = format!("version = 1\n{}\n[policy]\nallow = [\"mcp__late\"]\n", server.config(Wire::Chat, profile));
    let path = home.config(&before);
    let late = mcp_server(&home, "late", "", "");
    let daemon = home.start(Some(&path));
    let mut run = Run::of(&daemon, json!({ "text": "go" }));
    run.until("call");
    daemon.eventually("the child's first request", || (server.requests().len() == 2).then_some(()));
    assert!(!offers(&server, 1, "late__echo"));
    std::fs::write(&path, format!("{before}{late}")).unwrap();
    daemon.ask("reload", json!({})).unwrap();
    stands(&daemon, "late", "up");
    (0..20).for_each(|_| server.go());
    let (end, all) = run.end();
    assert_eq!(end["outcome"], "done", "{all:?}");
    // It is offered what its lists leave of the new tools, and a call of the others ends as one of no tool at all.
    assert!(offers(&server, 2, "late__echo"), "{}", told_model(&server, 2));
    assert!(!offers(&server, 2, "late__act") && !offers(&server, 2, "shell"));
    let told = told_model(&server, 3);
    assert!(told.contains("no_such_tool") && told.contains("late__act"), "{told}");
    let child = child_of(&daemon, &end["run"]);
    daemon.eventually("the call of the new tool", || {
        let done = rows(&daemon, &child, "settled").into_iter().filter(|row| row["to"] == "done").count();
        (done == 2).then_some(())
    });
    assert!(!daemon.path("late").join("acts").exists(), "the denied tool ran");
    // The parent, whose lists are empty, is offered both.
    assert!(offers(&server, 4, "late__act") && offers(&server, 4, "late__echo"));
}

//! What a configuration adds to a run of a model: skills, checks of what it changed, aliases, and the end of patience.

use std::process::Command;

use serde_json::{Value, json};

use super::server::{Server, Wire, calls, text};
use super::{Run, ask, results, rows, told_model};
use crate::daemon::Home;

/// The trace of a run, from the log alone.
fn trace(state: &std::path::Path, run: &Value) -> Value {
    let ran = Command::new(env!("CARGO_BIN_EXE_interlock"))
        .args(["trace", run.as_str().unwrap(), "--format", "json", "--state"])
        .arg(state)
        .output()
        .unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    serde_json::from_slice(&ran.stdout).unwrap()
}

#[test]
fn a_skill_is_read_when_it_is_asked_for_and_a_change_is_checked_in_the_same_run() {
    let write = json!({ "path": "src.txt", "content": "new", "mode": "overwrite" });
    let server = Server::start(vec![
        calls(Wire::Chat, &[("c1", "skill", json!({ "name": "care" }))]),
        calls(Wire::Chat, &[("c2", "save", write)]),
        calls(Wire::Chat, &[("c3", "read_file", json!({ "path": "src.txt" }))]),
        text(Wire::Chat, "ok"),
    ]);
    let home = Home::new();
    std::fs::create_dir_all(home.path("skills/care")).unwrap();
    let skill =
        "---\nname: care\ndescription: how files are cared for\nallowed-tools: save, read_file\n---\nTake care.\n";
    std::fs::write(home.path("skills/care/SKILL.md"), skill).unwrap();
    let config = format!(
        "version = 1\n{}\n[policy]\nallow = [\"Edit\"]\n[skills]\nuser = [\"skills\"]\n[[alias]]\nname = \"save\"\n\
         tool = \"write_file\"\n[[maintenance]]\nname = \"build\"\npaths = [\"src.txt\"]\n\
         check = \"cat src.txt; echo checked; exit 3\"\n",
        server.config(Wire::Chat, "")
    );
    let path = home.config(&config);
    let daemon = home.start(Some(&path));
    let (end, all) = ask(&daemon, "care for it");
    assert_eq!(end["outcome"], "done", "{all:?}");
    let done = ("done".to_owned(), "-".to_owned());
    assert_eq!(results(&all), [done.clone(), done.clone(), done]);
    let (first, second, third, fourth) =
        (told_model(&server, 0), told_model(&server, 1), told_model(&server, 2), told_model(&server, 3));
    let offers = |request: &str, tool: &str| request.contains(&format!("\"name\":\"{tool}\""));
    // Its name and description are in the prompt, its words only when they are asked for; then it hides the other tools.
    assert!(first.contains("care: how files are cared for") && !first.contains("Take care."), "{first}");
    assert!(offers(&first, "shell") && offers(&first, "save"));
    assert!(second.contains("Take care.") && !offers(&second, "shell") && offers(&second, "save"), "{second}");
    // The change is checked once, and what the check says stands in the next request.
    assert!(third.contains("[maintenance] build: exit 3") && third.contains("checked"), "{third}");
    assert_eq!(fourth.matches("[maintenance]").count(), 1, "{fourth}");
    daemon
        .eventually("the check is in the log", || (rows(&daemon, &end["run"], "maintenance").len() == 1).then_some(()));
    let trace = trace(&daemon.path("state"), &end["run"]);
    assert_eq!(trace["maintenance_checks"], 1);
    assert_eq!(trace["calls"].as_array().unwrap().len(), 2, "the loop's own answers are no calls");
}

#[test]
fn repeated_denials_end_the_turn_and_an_alarm_stands() {
    let again = |id: &'static str| calls(Wire::Chat, &[(id, "shell", json!({ "command": "make" }))]);
    let server = Server::start(vec![again("c1"), again("c2"), again("c3"), again("c4"), again("c5"), again("c6")]);
    let config = format!(
        "version = 1\n{}\n[policy]\ndeny = [{{ rule = \"Bash\", match = [\"make\"] }}]\ndenials-max = 2\n",
        server.config(Wire::Chat, "")
    );
    let home = Home::new();
    let path = home.config(&config);
    let daemon = home.start(Some(&path));
    let (end, all) = ask(&daemon, "make it");
    let denied = |code: &str| ("not_started".to_owned(), code.to_owned());
    // The turn ends with it: in the reply, in the history that could go on, in the trace, and for scripts.
    assert_eq!(results(&all), [denied("denied"), denied("denied_repeatedly")]);
    assert_eq!((&end["outcome"], server.requests().len()), (&json!("denied_repeatedly"), 2));
    let message = end["message"].as_str().unwrap();
    assert!(
        message.starts_with("shell: denied at rule for the 2th time") && message.contains("tell a person"),
        "{end}"
    );
    let calls = trace(&daemon.path("state"), &end["run"])["calls"].clone();
    let told: Vec<&str> = calls.as_array().unwrap().iter().map(|call| call["code"].as_str().unwrap()).collect();
    assert_eq!(told, ["denied", "denied_repeatedly"]);
    let events = trace(&daemon.path("state"), &end["run"])["events"].clone();
    let ended = events.as_array().unwrap().iter().find(|event| event["kind"] == "agent_ended").unwrap().clone();
    assert_eq!(ended["agent"]["outcome"], "denied_repeatedly", "{ended}");
    let again = Run::of(&daemon, json!({ "text": "once more", "resume": end["run"] }));
    let (second, _) = again.end();
    // Another run counts anew, and the model reads of the denials that ended the last one.
    assert_eq!(second["outcome"], "denied_repeatedly");
    assert_eq!(daemon.cli(&["agent", "make", "it"]).status.code(), Some(77));
    let told = told_model(&server, 2);
    assert!(told.contains("denied (denied_repeatedly)") && told.contains("once more"), "{told}");
    daemon.eventually("the alarm", || {
        let said = daemon.ask("say", json!({ "text": "查看当前报警" })).ok()?;
        said["output"].to_string().contains("was denied 2 times").then_some(())
    });
}

#[test]
fn a_skill_is_told_otherwise_once_a_person_says_so_and_its_file_stays() {
    let ask_for_it = |id: &'static str| calls(Wire::Chat, &[(id, "skill", json!({ "name": "care" }))]);
    let server =
        Server::start(vec![ask_for_it("c1"), text(Wire::Chat, "ok"), ask_for_it("c2"), text(Wire::Chat, "ok")]);
    let home = Home::new();
    std::fs::create_dir_all(home.path("skills/care")).unwrap();
    let skill = "---\nname: care\ndescription: how files are cared for\n---\nUse the tool `read_flie`.\n";
    std::fs::write(home.path("skills/care/SKILL.md"), skill).unwrap();
    let path = home.config(&format!("version = 1\n{}\n[skills]\nuser = [\"skills\"]\n", server.config(Wire::Chat, "")));
    let daemon = home.start(Some(&path));
    let proposal = json!({
        "channel": "D", "of": "skill", "name": "care", "skill": skill, "files": ["SKILL.md"], "tools": ["read_file"],
        "text": skill.replace("read_flie", "read_file"),
    });
    let proposed = daemon.ask("learn.propose", json!({ "proposal": proposal })).unwrap();
    assert_eq!(proposed["verdict"], "operator", "{proposed}");
    let approved = daemon.ask("learn.approve", json!({ "proposal": proposed["proposal"] })).unwrap();
    assert_eq!(approved["version"], 1, "{approved}");
    ask(&daemon, "care for it");
    let told = told_model(&server, 1);
    assert!(told.contains("read_file`") && !told.contains("read_flie"), "{told}");
    assert_eq!(std::fs::read_to_string(daemon.path("skills/care/SKILL.md")).unwrap(), skill);
    // Back to what it was; and a text that mends nothing is refused.
    daemon.ask("learn.rollback", json!({ "version": 0 })).unwrap();
    ask(&daemon, "care for it");
    assert!(told_model(&server, 3).contains("read_flie"));
    let useless = json!({ "channel": "D", "of": "skill", "name": "care", "skill": skill, "text": skill,
                          "files": ["SKILL.md"], "tools": ["read_file"] });
    assert_eq!(daemon.ask("learn.propose", json!({ "proposal": useless })).unwrap()["verdict"], "refuse");
}

//! What is learned while the daemon runs: proposals, a person's word, versions, and what a speaker takes back.

use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::Daemon;

const AUTO: &str = "version = 1\n[learning]\npolicy = \"auto\"\n";

fn propose(daemon: &Daemon, line: Value) -> Value {
    daemon.ask("learn.propose", json!({ "proposal": line })).unwrap()
}

fn slang(phrase: &str, command: &str) -> Value {
    json!({ "id": phrase, "channel": "B", "phrase": phrase, "command": command })
}

/// What `match` says of a sentence with the learned set of the daemon's state.
fn matched(daemon: &Daemon, text: &str) -> Value {
    let mut child = Command::new(env!("CARGO_BIN_EXE_interlock"))
        .args(["match", "--json", "--state"])
        .arg(daemon.path("state"))
        .arg(text)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = std::io::read_to_string(child.stdout.take().unwrap()).unwrap();
    assert!(child.wait().unwrap().success(), "{output}");
    serde_json::from_str(&output).unwrap()
}

fn understood(daemon: &Daemon, text: &str) -> Value {
    let said = daemon.say(text)["command"].clone();
    assert_eq!(matched(daemon, text)["command"], said, "{text}");
    said
}

#[test]
fn nothing_is_learned_before_a_person_says_so_and_everything_can_be_taken_back() {
    let daemon = Daemon::start();
    assert_eq!(understood(&daemon, "给二号泵打水"), json!(null));
    let asked = propose(&daemon, slang("打水", "pump_start"));
    assert_eq!((&asked["verdict"], &asked["proposal"]), (&json!("operator"), &json!("p1")), "{asked}");
    assert_eq!(understood(&daemon, "给二号泵打水"), json!(null));
    // The same again is the same proposal.
    assert_eq!(propose(&daemon, slang("打水", "pump_start"))["proposal"], "p1");
    assert_eq!(daemon.list("learn.list").len(), 1);

    let approved = daemon.ask("learn.approve", json!({ "proposal": "p1" })).unwrap();
    assert_eq!((&approved["state"], &approved["version"]), (&json!("approved"), &json!(1)), "{approved}");
    assert_eq!(understood(&daemon, "给二号泵打水"), json!("pump_start"));
    let told = daemon.ask("evidence.show", json!({ "seq": approved["evidence"] })).unwrap();
    assert_eq!((&told["kind"], &told["to"]), (&json!("learning"), &json!("approved")), "{told}");
    let detail: Value = match &told["detail"] {
        Value::String(text) => serde_json::from_str(text).unwrap(),
        other => other.clone(),
    };
    assert_eq!((&detail["text"], &detail["version"]), (&json!("打水"), &json!(1)), "{told}");

    propose(&daemon, slang("吹风", "fan_start"));
    daemon.ask("learn.approve", json!({ "proposal": "吹风" })).unwrap();
    assert_eq!(understood(&daemon, "吹风"), json!("fan_start"));
    let versions = daemon.ask("learn.list", json!({ "versions": true })).unwrap();
    assert_eq!(versions.as_array().unwrap().len(), 2, "{versions}");

    let back = daemon.ask("learn.rollback", json!({ "version": 1 })).unwrap();
    assert_eq!((&back["version"], &back["items"]), (&json!(3), &json!(1)), "{back}");
    assert_eq!(understood(&daemon, "吹风"), json!(null));
    assert_eq!(understood(&daemon, "给二号泵打水"), json!("pump_start"));
    daemon.ask("learn.rollback", json!({ "version": 2 })).unwrap();
    assert_eq!(understood(&daemon, "吹风"), json!("fan_start"));
    daemon.ask("learn.rollback", json!({ "version": 0 })).unwrap();
    assert_eq!(understood(&daemon, "给二号泵打水"), json!(null));
    // Without a number: the version before the active one.
    assert_eq!(daemon.ask("learn.rollback", json!({})).unwrap()["why"], "back to 4");

    for (verb, args) in [
        ("learn.approve", json!({ "proposal": "p99" })),
        ("learn.approve", json!({ "proposal": "p1" })),
        ("learn.rollback", json!({ "version": 99 })),
    ] {
        let error = daemon.ask(verb, args.clone()).unwrap_err();
        assert!(error["hint"].is_string(), "{verb} {args}: {error}");
    }
}

#[test]
fn what_was_learned_outlives_the_daemon_and_a_person_can_say_no() {
    let daemon = Daemon::with(AUTO);
    assert_eq!(propose(&daemon, slang("打水", "pump_start"))["verdict"], "approve");
    let dangerous = propose(&daemon, slang("送电", "brk_close"));
    assert_eq!(dangerous["verdict"], "operator", "{dangerous}");
    let refused = propose(&daemon, slang("打水", "pump_stop"));
    assert_eq!((&refused["verdict"], &refused["version"]), (&json!("refuse"), &json!(null)), "{refused}");
    let no = daemon.cli(&["learn", "reject", dangerous["proposal"].as_str().unwrap(), "--note", "没人这么说"]);
    assert!(no.status.success(), "{no:?}");
    assert_eq!(understood(&daemon, "送电"), json!(null));
    let new = json!({
        "channel": "C", "command": "pump_both", "text": "双泵齐开", "risk": "operate",
        "bind": [{ "device": "pump-1", "action": "start" }, { "device": "pump-2", "action": "start" }],
    });
    assert_eq!(propose(&daemon, new)["verdict"], "approve");

    let (status, home) = daemon.end();
    assert!(status.success());
    let config = home.path("interlock.toml");
    let daemon = home.start(Some(&config));
    assert_eq!(understood(&daemon, "打水"), json!("pump_start"));
    // A command that was learned acts like one of the file.
    assert_eq!(daemon.say("双泵齐开")["result"], "done");
    let rows = daemon.ask("learn.list", json!({ "all": true })).unwrap();
    let states: Vec<_> = rows.as_array().unwrap().iter().map(|row| row["state"].clone()).collect();
    assert_eq!(states, ["approved", "rejected", "refused", "approved"], "{rows}");
    // A reload keeps it too.
    daemon.ask("reload", json!({})).unwrap();
    assert_eq!(understood(&daemon, "打水"), json!("pump_start"));
}

#[test]
fn the_set_is_swapped_as_a_whole_while_commands_run() {
    let daemon = Daemon::with(AUTO);
    std::thread::scope(|scope| {
        let talking = scope.spawn(|| {
            let mut known = false;
            for _ in 0..60 {
                let answer = daemon.say("给二号泵打水");
                match answer["command"].as_str() {
                    Some("pump_start") => known = true,
                    // Once it is known it stays known.
                    None => assert!(!known, "{answer}"),
                    Some(other) => panic!("{other}: {answer}"),
                }
                assert_eq!(daemon.say("启动一号泵")["result"], "done");
            }
        });
        assert_eq!(propose(&daemon, slang("打水", "pump_start"))["verdict"], "approve");
        assert_eq!(propose(&daemon, slang("吹风", "fan_start"))["verdict"], "approve");
        talking.join().unwrap();
    });
    assert_eq!(understood(&daemon, "给二号泵打水"), json!("pump_start"));
}

#[test]
fn a_speaker_who_takes_back_what_was_heard_makes_a_proposal() {
    let daemon = Daemon::start();
    assert_eq!(daemon.say("给一号泵打水")["command"], json!(null));
    let answer = daemon.say("不是，我说的是启动一号泵");
    assert_eq!((&answer["command"], &answer["result"]), (&json!("pump_start"), &json!("done")), "{answer}");
    let row = daemon.eventually("the proposal", || daemon.list("learn.list").pop());
    let facts = ["source", "state", "command"].map(|key| row[key].clone());
    assert_eq!(facts, ["correction", "waiting", "pump_start"], "{row}");
    // What is forbidden or asked about is no miss.
    daemon.say("不要启动二号泵");
    daemon.say("启动二号泵");
    assert_eq!(daemon.list("learn.list").len(), 1);
}

#[test]
fn propose_reads_lines_with_a_daemon_and_without() {
    let daemon = Daemon::start();
    let lines = concat!(
        "{\"id\": \"a\", \"channel\": \"B\", \"phrase\": \"打水\", \"command\": \"pump_start\"}\n",
        "nonsense\n",
        "{\"id\": \"b\", \"channel\": \"A\", \"wrong\": \"下班一起去喝茶\", \"command\": \"brk_close\"}\n",
    );
    let run = |socket: &std::path::Path| {
        let mut child = Command::new(env!("CARGO_BIN_EXE_interlock"))
            .arg("--socket")
            .arg(socket)
            .args(["learn", "propose"])
            .env("LANG", "C")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(65), "{output:?}");
        let answers: Vec<Value> =
            String::from_utf8(output.stdout).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(answers.len(), 3, "{answers:?}");
        assert_eq!((&answers[0]["id"], &answers[0]["verdict"]), (&json!("a"), &json!("operator")), "{answers:?}");
        assert_eq!(answers[1]["line"], 2, "{answers:?}");
        assert_eq!((&answers[2]["id"], &answers[2]["verdict"]), (&json!("b"), &json!("refuse")), "{answers:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    assert_eq!(run(&daemon.socket), "");
    assert_eq!(daemon.list("learn.list").len(), 1);
    assert!(daemon.cli(&["learn", "approve", "a"]).status.success());
    assert_eq!(understood(&daemon, "打水"), json!("pump_start"));
    assert!(run(&daemon.path("nobody.sock")).contains("nothing is kept"));
}

#[test]
fn a_slot_a_choice_and_a_confirmation_are_asked_for_and_do_not_mix() {
    let daemon = Daemon::with("version = 1\n[ask]\ndialogue = 60\n");
    let run = super::Register::of(&daemon, "pump-2", "run");
    let said = |text: &str, speaker: &str| {
        daemon.ask("say", json!({ "text": text, "speaker": speaker, "lang": "en" })).unwrap()
    };
    // A missing number, answered by the same speaker only.
    assert_eq!(said("启动水泵", "li")["outcome"], "incomplete");
    assert_eq!(said("二号", "wang")["result"], json!(null));
    assert_eq!(run.read(), 0);
    let answer = said("二号", "li");
    assert_eq!((&answer["command"], &answer["result"]), (&json!("pump_start"), &json!("done")), "{answer}");
    assert_eq!(run.read(), 1);
    // It was answered: the number by itself says nothing any more.
    assert_eq!(said("三号", "li")["result"], json!(null));

    // A dangerous command that lacks its number: the number leads to the question, and is not its answer.
    let closed = super::Register::of(&daemon, "breaker-1", "closed");
    assert_eq!(said("合上断路器", "li")["missing"], json!(["device"]));
    let nothing = said("确认", "li");
    assert_eq!(nothing["result"], json!(null), "{nothing}");
    assert_eq!(said("合上断路器", "li")["missing"], json!(["device"]));
    let asked = said("一号", "li");
    assert_eq!(asked["decision"], "ask", "{asked}");
    assert_eq!(closed.read(), 0);
    // Another sentence ends the dialogue: the confirmation that follows fits nothing.
    assert_eq!(said("启动一号风机", "li")["result"], "done");
    assert_eq!(said("确认", "li")["result"], json!(null));
    assert_eq!(said("确认", "wang")["result"], json!(null));
    assert_eq!(closed.read(), 0);

    // A word that several commands share.
    let which = said("启动", "li");
    assert_eq!(which["outcome"], "ambiguous", "{which}");
    assert!(which["candidates"].as_array().unwrap().len() <= 3, "{which}");
    assert_eq!(said("不要", "li")["message"], "dropped; nothing was done");
    assert_eq!(said("第一个", "li")["result"], json!(null));
    assert_eq!(said("启动", "li")["outcome"], "ambiguous");
    let fan = said("二号风机", "li");
    assert_eq!((&fan["command"], &fan["result"]), (&json!("fan_start"), &json!("done")), "{fan}");
}

#[test]
fn a_question_by_voice_runs_out() {
    let daemon = Daemon::with("version = 1\n[ask]\ndialogue = 1\n");
    let run = super::Register::of(&daemon, "pump-2", "run");
    daemon.eventually("an answer that comes too late", || {
        assert_eq!(daemon.say("启动水泵")["outcome"], "incomplete");
        let asked = std::time::Instant::now();
        while asked.elapsed() < std::time::Duration::from_millis(1100) {
            std::thread::yield_now();
        }
        Some(())
    });
    assert_eq!(daemon.say("二号")["result"], json!(null));
    assert_eq!(run.read(), 0);
    let refused = daemon.cli(&["check", "--config", "/nonexistent.toml"]);
    assert!(!refused.status.success());
}

#[test]
fn the_head_of_the_model_learns_and_goes_back_with_the_set() {
    if interlock::infer::runtime::find().is_none() {
        crate::skipped("daemon::learning::the_head_of_the_model_learns_and_goes_back_with_the_set", "no ONNX Runtime");
        return;
    }
    let daemon = Daemon::start();
    let taught = |version: u64, sentences: u64| {
        // A sentence that words and sounds do not decide: the model is asked, and learns before it answers.
        daemon.say("停审全部任模");
        daemon.eventually("the head is taught", || {
            let rows = daemon.ask("evidence.query", json!({ "kind": "model", "limit": 30 })).ok()?;
            rows.as_array()?.iter().find_map(|row| {
                let detail: Value = match &row["detail"] {
                    Value::String(text) => serde_json::from_str(text).ok()?,
                    other => other.clone(),
                };
                (row["to"] == "taught" && detail["version"] == version && detail["sentences"] == sentences)
                    .then(|| detail["head_sha256"].clone())
            })
        })
    };
    propose(&daemon, slang("打水", "pump_start"));
    daemon.ask("learn.approve", json!({ "proposal": "打水" })).unwrap();
    let one = taught(1, 1);
    propose(&daemon, slang("吹风", "fan_start"));
    daemon.ask("learn.approve", json!({ "proposal": "吹风" })).unwrap();
    assert_ne!(taught(2, 2), one);
    daemon.ask("learn.rollback", json!({ "version": 1 })).unwrap();
    assert_eq!(taught(3, 1), one, "the same set gives the same head");
    daemon.ask("learn.rollback", json!({ "version": 0 })).unwrap();
    assert_eq!(taught(4, 0), json!(""));
}

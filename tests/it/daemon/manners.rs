//! How the daemon behaves: bad input, a second daemon, reload, the end.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use serde_json::{Value, json};

use super::{DEADLINE, Daemon, Home, Register};

fn refused(config: &str) -> String {
    let home = Home::new();
    let path = home.config(config);
    let output = home.command(Some(&path)).output().unwrap();
    assert_eq!(output.status.code(), Some(78), "{config}\n{output:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    // The directory is another one each time.
    said.replace(home.directory.path().to_str().unwrap(), "DIR")
}

#[test]
fn a_wrong_configuration_is_refused_with_its_place() {
    let table = [
        ("version = 1\ncolour = 3\n", "DIR/interlock.toml:2:1: colour: unknown field"),
        ("version = 2\n", "DIR/interlock.toml:1:11: version: this build reads version 1, not 2"),
        ("version = 1\n[ask]\ntimeout = \"soon\"\n", "DIR/interlock.toml:3:11: ask.timeout: invalid type"),
        ("version = 1\n[ask]\ntimeout = 1\n", "DIR/interlock.toml:3:11: ask.timeout: 1 is outside 5 to 28800 seconds"),
        ("version = 1\n[policy]\nmode = \"free\"\n", "DIR/interlock.toml:3:8: policy.mode: there is no such mode"),
        (
            "version = 1\n[mcp]\nlisten = \"0.0.0.0:80\"\n",
            "DIR/interlock.toml:3:10: mcp.listen: MCP listens on loopback",
        ),
        ("version = 1\n[policy]\nallow = [\"Bash(\"]\n", "DIR/interlock.toml:3:10: policy.allow: rule"),
        ("version = 1\n[[device]]\nname = \"a\"\n", "DIR/interlock.toml:"),
        ("version = 1\n[commands]\nfiles = [\"none.toml\"]\n", "DIR/none.toml: No such file"),
    ];
    for (config, said) in table {
        let all = refused(config);
        assert!(all.starts_with(&format!("error: {said}")), "{config}\n{all}\nexpected {said}");
    }
}

#[test]
fn bad_lines_on_the_socket_cost_only_themselves() {
    let daemon = Daemon::start();
    let mut stream = UnixStream::connect(&daemon.socket).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let long = vec![b'x'; (1 << 20) + 10];
    let lines: [(&[u8], &str); 7] = [
        (b"garbage", "protocol"),
        (b"\xff\xfe\x00", "protocol"),
        (&long, "protocol"),
        (b"{\"v\":1}", "protocol"),
        (b"{\"v\":9,\"id\":1,\"verb\":\"status\"}", "protocol"),
        (b"{\"v\":1,\"id\":1,\"verb\":\"dance\"}", "usage"),
        (b"{\"v\":1,\"id\":1,\"verb\":\"task.show\",\"args\":{\"task\":\"seven\"}}", "usage"),
    ];
    let mut answers = BufReader::new(stream.try_clone().unwrap());
    for (line, kind) in lines {
        stream.write_all(line).unwrap();
        stream.write_all(b"\n").unwrap();
        let mut answer = String::new();
        answers.read_line(&mut answer).unwrap();
        let answer: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!(
            answer["error"]["kind"],
            kind,
            "{:?}: {answer}",
            String::from_utf8_lossy(&line[..line.len().min(60)])
        );
    }
    writeln!(stream, "{}", json!({ "v": 1, "id": "last", "verb": "status" })).unwrap();
    let mut answer = String::new();
    answers.read_line(&mut answer).unwrap();
    assert!(answer.contains("\"ready\":true"), "{answer}");
}

#[test]
fn a_second_daemon_on_the_same_state_is_refused_and_names_the_first() {
    let daemon = Daemon::start();
    let mut second = std::process::Command::new(env!("CARGO_BIN_EXE_interlock"));
    second.arg("--socket").arg(daemon.path("second.sock")).args(["run", "--state"]).arg(daemon.path("state"));
    second.arg("--config").arg(daemon.path("interlock.toml")).stdin(Stdio::null());
    let output = second.output().unwrap();
    assert_eq!(output.status.code(), Some(73), "{output:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains(&daemon.child.id().to_string()), "{said}");
    assert_eq!(daemon.say("启动二号泵")["result"], "done");
}

#[test]
fn a_reload_counts_whole_or_not_at_all() {
    let daemon = Daemon::with("version = 1\n");
    std::fs::write(daemon.path("interlock.toml"), "version = 1\n[policy]\ndeny = [\"Device(pump-2:start)\"]\n")
        .unwrap();
    let reloaded = daemon.cli(&["reload"]);
    assert_eq!(reloaded.status.code(), Some(0), "{reloaded:?}");
    let denied = daemon.say("启动二号泵");
    assert_eq!((&denied["decision"], &denied["result"]), (&json!("deny"), &json!("not_started")), "{denied}");
    assert_eq!(daemon.cli(&["say", "启动二号泵"]).status.code(), Some(77));

    std::fs::write(daemon.path("interlock.toml"), "version = 1\n[policy]\ndeny = 3\n").unwrap();
    let refused = daemon.cli(&["reload"]);
    assert_eq!(refused.status.code(), Some(78), "{refused:?}");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("interlock.toml:3:8: policy.deny"), "{refused:?}");
    // The old rules are still in force.
    assert_eq!(daemon.say("启动二号泵")["decision"], "deny");
    assert_eq!(daemon.say("启动一号泵")["result"], "done");
}

#[test]
fn sigterm_ends_it_clean_and_the_log_is_whole() {
    let daemon = Daemon::start();
    assert_eq!(daemon.say("启动二号泵")["result"], "done");
    daemon.say("监测传感器十分钟");
    let (status, home) = daemon.end();
    assert_eq!(status.code(), Some(0));
    assert!(!home.path("interlock.sock").exists());
    let verify = std::process::Command::new(env!("CARGO_BIN_EXE_interlock"))
        .args(["evidence", "verify", "--json", "--state"])
        .arg(home.path("state"))
        .output()
        .unwrap();
    assert_eq!(verify.status.code(), Some(0), "{verify:?}");
    let verdict: Value = serde_json::from_slice(&verify.stdout).unwrap();
    assert_eq!(verdict["verdict"], "INTACT", "{verdict}");
    // The next life goes on where this one stopped.
    let daemon = home.start(None);
    assert_eq!(daemon.say("停止二号泵")["result"], "done");
}

#[test]
fn without_a_daemon_the_command_line_says_so() {
    let home = Home::new();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_interlock"))
        .arg("--socket")
        .arg(home.path("none.sock"))
        .args(["say", "启动二号泵"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(69), "{output:?}");
}

/// Two actions of one sentence ask; who answers the first is not held until the second is answered.
#[test]
fn one_of_two_questions_is_answered_at_once() {
    let daemon = Daemon::with("version = 1\n[policy]\nask = [\"Device(pump-2)\", \"Device(valve-1)\"]\n");
    let (pump, valve) = (Register::of(&daemon, "pump-2", "run"), Register::of(&daemon, "valve-1", "opening-set"));
    let said = daemon.ask("say", json!({ "text": "启动二号泵然后关闭一号阀" })).unwrap();
    assert_eq!(said["decision"], "ask", "{said}");
    let ask = |verb: &str, question: &str| daemon.ask(verb, json!({ "question": question })).unwrap();
    let denied = ask("ask.deny", "q1");
    assert_eq!((&denied["decision"], &denied["waits_for"]), (&json!("deny"), &json!(["q2"])), "{denied}");
    assert!(denied["message"].as_str().unwrap().ends_with("starts before q2 is answered"), "{denied}");
    let allowed = ask("ask.allow", "q2");
    assert_eq!((&allowed["decision"], &allowed["result"]), (&json!("allow"), &json!("done")), "{allowed}");
    assert_eq!((pump.read(), valve.read()), (0, 0));
    let question = daemon.ask("say", json!({ "text": "启动二号泵" })).unwrap()["question"].clone();
    let denied = ask("ask.deny", question.as_str().unwrap());
    assert_eq!((&denied["decision"], &denied["result"]), (&json!("deny"), &json!("not_started")), "{denied}");
}

#[test]
fn a_list_that_a_rule_asks_about_says_so_and_waits_for_nobody() {
    let daemon = Daemon::with("version = 1\n[policy]\nask = [\"Device\"]\n");
    let refused = daemon.ask("device.list", json!({})).unwrap_err();
    assert!(refused["message"].as_str().unwrap().contains("before devices are read"), "{refused}");
    daemon.eventually("no question is left", || daemon.list("ask.list").is_empty().then_some(()));
}

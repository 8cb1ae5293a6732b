//! Agents over MCP, and what a tool starts: through the same gate, with no way to approve themselves.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use super::{Daemon, Register};

/// `interlock mcp`, spoken to by hand (MCP 2025-11-25, stdio).
pub(super) struct Agent {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    next: u64,
}

impl Agent {
    pub(super) fn of(daemon: &Daemon) -> Agent {
        let mut child = Command::new(env!("CARGO_BIN_EXE_interlock"))
            .arg("--socket")
            .arg(&daemon.socket)
            .arg("mcp")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdin = child.stdin.take().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let mut agent = Agent { child, stdin, stdout, next: 0 };
        let info = json!({ "name": "test", "version": "1" });
        let hello = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info });
        let welcome = agent.request("initialize", hello);
        assert_eq!(welcome["result"]["protocolVersion"], "2025-11-25", "{welcome}");
        agent.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        agent
    }

    fn send(&mut self, message: &Value) {
        writeln!(self.stdin, "{message}").unwrap();
        self.stdin.flush().unwrap();
    }

    fn request(&mut self, method: &str, params: Value) -> Value {
        self.next += 1;
        let id = self.next;
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        loop {
            let mut line = String::new();
            assert!(self.stdout.read_line(&mut line).unwrap() > 0, "the stream ended before the answer to {method}");
            let message: Value = serde_json::from_str(&line).unwrap();
            if message["id"] == id {
                return message;
            }
        }
    }

    pub(super) fn call(&mut self, tool: &str, input: Value) -> Value {
        self.request("tools/call", json!({ "name": tool, "arguments": input }))["result"].clone()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn an_agents_call_reaches_the_plant_through_the_same_gate() {
    let daemon =
        Daemon::with("version = 1\n[policy]\nallow = [\"Device(pump-3:start)\"]\ndeny = [\"Device(pump-1:*)\"]\n");
    let mut agent = Agent::of(&daemon);
    let tools = agent.request("tools/list", json!({}));
    let names: Vec<&str> =
        tools["result"]["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    for name in ["device", "http", "monitor", "read_file", "shell", "task", "write_file"] {
        assert!(names.contains(&name), "{names:?}");
    }
    assert!(!names.iter().any(|name| name.starts_with("ask") || name.contains("approve")), "{names:?}");
    let run = Register::of(&daemon, "pump-3", "run");
    let started = agent.call("device", json!({ "device": "pump-3", "action": "start" }));
    assert_ne!(started["isError"], true, "{started}");
    assert_eq!(run.read(), 1);
    let read = agent.call("device", json!({ "device": "pump-3", "action": "read", "point": "run" }));
    assert_eq!(read["structuredContent"]["value"], true, "{read}");

    let denied = agent.call("device", json!({ "device": "pump-1", "action": "start" }));
    assert_eq!(denied["isError"], true, "{denied}");
    assert_eq!(denied["_meta"]["interlock/outcome"]["ending"], "not_started", "{denied}");
    assert_eq!(Register::of(&daemon, "pump-1", "run").read(), 0);
    let rows = daemon.ask("evidence.query", json!({ "kind": "settled", "limit": 10 })).unwrap();
    assert!(
        rows.as_array().unwrap().iter().any(|row| row["to"] == "not_started" && row["cause"] == "denied"),
        "{rows}"
    );
}

#[test]
fn an_agents_dangerous_call_waits_for_a_person() {
    let daemon = Daemon::with("version = 1\n[policy]\nallow = [\"Device(*:*)\"]\n");
    let closed = Register::of(&daemon, "breaker-1", "close");
    std::thread::scope(|scope| {
        let daemon = &daemon;
        let agent = scope.spawn(move || {
            let mut agent = Agent::of(daemon);
            agent.call("device", json!({ "device": "breaker-1", "action": "close" }))
        });
        let question = daemon.eventually("the question", || {
            daemon.list("ask.list").pop().map(|row| row["question"].as_str().unwrap().to_owned())
        });
        assert_eq!(closed.read(), 0);
        assert_eq!(daemon.cli(&["ask", "allow", &question]).status.code(), Some(0));
        let answer = agent.join().unwrap();
        assert_ne!(answer["isError"], true, "{answer}");
    });
    assert_eq!(closed.read(), 1);
}

#[test]
fn a_process_that_a_tool_started_cannot_approve_itself() {
    let daemon = Daemon::with("version = 1\n[policy]\nallow = [\"Bash\"]\n");
    let asked = daemon.say("合上一号断路器");
    let question = asked["question"].as_str().unwrap().to_owned();
    // Where a command may write: beside the state it may not.
    let elsewhere = tempfile::tempdir().unwrap();
    let said = elsewhere.path().join("said");
    let binary = env!("CARGO_BIN_EXE_interlock");
    let socket = daemon.socket.display();
    let direct = format!("{binary} --socket {socket} ask allow {question}");
    // A double fork in a session of its own: its parent is gone, and it is still ours.
    let script = elsewhere.path().join("fork.sh");
    let text = format!(
        "setsid sh -c '({binary} --socket {socket} ask allow {question} > {said} 2>&1; echo ended $? >> {said}) &' &\n\
         wait\nwhile ! grep -q ended {said} 2> /dev/null; do :; done\ncat {said}\n",
        said = said.display()
    );
    std::fs::write(&script, text).unwrap();
    let forked = format!("sh {}", script.display());
    let mut agent = Agent::of(&daemon);
    for command in [direct, forked] {
        let ran = agent.call("shell", json!({ "command": command }));
        let text = ran.to_string();
        assert!(text.contains("started by a tool of the daemon"), "{command}: {text}");
    }
    assert_eq!(daemon.list("ask.list").len(), 1, "the question is still open");
    assert_eq!(Register::of(&daemon, "breaker-1", "close").read(), 0);
    // The same words from outside are obeyed.
    assert_eq!(daemon.cli(&["ask", "allow", &question]).status.code(), Some(0));
}

#[test]
fn the_python_client_lists_and_calls_in_both_eras_over_both_transports() {
    let Some(python) = crate::python() else {
        crate::skipped(
            "daemon::agents::the_python_client_lists_and_calls_in_both_eras_over_both_transports",
            "no Python with mcp: run cargo xtask test",
        );
        return;
    };
    let daemon = Daemon::start();
    let url = daemon.ask("status", json!({})).unwrap()["mcp"].as_str().unwrap().to_owned();
    let output = Command::new(python)
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/python_mcp.py"))
        .arg(url)
        .args(["device", r#"{"device": "pump-1", "action": "read", "point": "run"}"#, "--command"])
        .arg(env!("CARGO_BIN_EXE_interlock"))
        .arg("--socket")
        .arg(&daemon.socket)
        .arg("mcp")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}\n{}", String::from_utf8_lossy(&output.stderr), daemon.log());
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(said.lines().filter(|line| line.ends_with("ok, 13 tools")).count(), 6, "{said}");
}

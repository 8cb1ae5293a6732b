//! The daemon in front of other MCP servers: the cases that people report of such proxies, from outside.

mod access;
mod authority;
mod cases;
mod census;
mod drive;
mod fixture;
mod lies;
mod lives;
mod oauth;
mod others;
mod tasks;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use serde_json::{Value, json};

use super::{DEADLINE, Daemon, Home};

/// A client on `interlock mcp`, in either era.
struct Client {
    child: Child,
    stdin: ChildStdin,
    inbox: Receiver<Value>,
    kept: Vec<Value>,
    next: u64,
    capabilities: Option<Value>,
}

impl Client {
    fn start(daemon: &Daemon, capabilities: Option<Value>) -> Client {
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
        let (sender, inbox) = channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if sender.send(serde_json::from_str(&line).unwrap()).is_err() {
                    return;
                }
            }
        });
        Client { child, stdin, inbox, kept: Vec::new(), next: 100, capabilities }
    }

    /// A client of 2025-11-25.
    fn legacy(daemon: &Daemon, capabilities: Value) -> Client {
        let mut client = Client::start(daemon, None);
        let info = json!({"name": "test", "version": "1"});
        let hello = json!({"protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": info});
        let welcome = client.request("initialize", hello);
        assert_eq!(welcome["result"]["protocolVersion"], "2025-11-25", "{welcome}");
        client.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        client
    }

    /// A client of 2026-07-28.
    fn modern(daemon: &Daemon, capabilities: Value) -> Client {
        Client::start(daemon, Some(capabilities))
    }

    fn send(&mut self, message: &Value) {
        writeln!(self.stdin, "{message}").unwrap();
        self.stdin.flush().unwrap();
    }

    /// Sends a request and gives its id.
    fn ask(&mut self, method: &str, mut params: Value) -> u64 {
        self.next += 1;
        if let Some(capabilities) = &self.capabilities {
            params["_meta"]["io.modelcontextprotocol/protocolVersion"] = "2026-07-28".into();
            params["_meta"]["io.modelcontextprotocol/clientInfo"] = json!({"name": "test", "version": "1"});
            params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = capabilities.clone();
        }
        let id = self.next;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        id
    }

    /// The first message that fits, among those that came meanwhile and those that come.
    fn wait(&mut self, what: &str, fits: impl Fn(&Value) -> bool) -> Value {
        if let Some(at) = self.kept.iter().position(&fits) {
            return self.kept.remove(at);
        }
        loop {
            let message = self.inbox.recv_timeout(DEADLINE).unwrap_or_else(|_| panic!("{what} did not come"));
            if fits(&message) {
                return message;
            }
            self.kept.push(message);
        }
    }

    fn answer(&mut self, id: u64) -> Value {
        self.wait("the answer", |message| message["id"] == id && message.get("method").is_none())
    }

    fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.ask(method, params);
        self.answer(id)
    }

    fn call(&mut self, tool: &str, input: Value) -> Value {
        self.request("tools/call", json!({"name": tool, "arguments": input}))["result"].clone()
    }

    /// The listed tools, each as it came.
    fn tools(&mut self) -> Vec<Value> {
        let mut tools = Vec::new();
        let mut params = json!({});
        loop {
            let mut page = self.request("tools/list", params.clone())["result"].clone();
            tools.append(page["tools"].as_array_mut().unwrap());
            match page.get("nextCursor") {
                Some(next) => params = json!({"cursor": next}),
                None => return tools,
            }
        }
    }

    fn names(&mut self) -> Vec<String> {
        self.tools().iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn code(result: &Value) -> &str {
    result["_meta"]["interlock/outcome"]["code"].as_str().unwrap_or("none")
}

fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap_or_default()
}

/// `[[mcp.server]]` of the fixture. `more` are further lines of it.
pub(crate) fn server(home: &Home, name: &str, manners: &str, more: &str) -> String {
    let command = fixture::command();
    started_by(home, name, manners, &json!(command).to_string(), more)
}

/// The same, started by another command.
fn started_by(home: &Home, name: &str, manners: &str, command: &str, more: &str) -> String {
    let directory = home.path(name);
    std::fs::create_dir_all(&directory).unwrap();
    format!(
        "[[mcp.server]]\nname = \"{name}\"\ncommand = {command}\nenv = {{ {} = \"{}\", {} = \"{manners}\" }}\n{more}\n",
        fixture::DIRECTORY,
        directory.display(),
        fixture::MANNERS,
    )
}

/// A daemon with these servers, once those of `up` are.
fn daemon(home: Home, policy: &str, servers: &str, up: &[&str]) -> Daemon {
    let path = home.config(&format!("version = 1\n[policy]\n{policy}\n{servers}"));
    let daemon = home.start(Some(&path));
    for name in up {
        stands(&daemon, name, "up");
    }
    daemon
}

/// Waits until a server stands so; gives its row.
pub(crate) fn stands(daemon: &Daemon, name: &str, state: &str) -> Value {
    daemon.eventually(&format!("{name} {state}"), || {
        daemon.list("mcp.list").into_iter().find(|row| row["server"] == name && row["state"] == state)
    })
}

fn pid(row: &Value) -> i32 {
    i32::try_from(row["pid"].as_i64().unwrap()).unwrap()
}

fn kill(pid: i32) {
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL).unwrap();
}

/// Whether a process is there and not a zombie.
fn lives(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

fn lines(daemon: &Daemon, server: &str, file: &str) -> Vec<String> {
    lines_of(&daemon.path(server), file)
}

fn lines_of(directory: &Path, file: &str) -> Vec<String> {
    let text = std::fs::read_to_string(directory.join(file)).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// Waits until the log has rows of a kind that fit.
fn evidence(daemon: &Daemon, kind: &str, fits: impl Fn(&[Value]) -> bool) {
    // Rows of what changes nothing are written in batches.
    daemon.eventually(&format!("rows of {kind}"), || {
        let rows = daemon.ask("evidence.query", json!({"kind": kind, "limit": 30})).unwrap();
        fits(rows.as_array().unwrap()).then_some(())
    });
}

/// One call over MCP, on a connection of its own.
pub(super) fn once(daemon: &Daemon, tool: &str, input: Value) -> Value {
    Client::legacy(daemon, json!({})).call(tool, input)
}

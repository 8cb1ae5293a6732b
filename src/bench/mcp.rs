//! What the gate costs an agent: the same server called directly and through the daemon, in one run, turn about.
//!
//! Everything is measured from outside, over pipes and sockets, with the release binary itself as server and as daemon.
//! The path of the proxied call is one line to the daemon's socket, one line to the server, and back; the direct path is
//! one line to the server and back. So what is added is one bare hop and the gate; the bare hop is measured too, as a
//! `ping` to the daemon.

mod beside;

use std::io::{self, BufRead, BufReader, Write};
use std::net::TcpStream;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::sys::child::SIGKILL;
use crate::sys::pidfd;

/// Calls on each path, turn about.
const CALLS: usize = 3_000;

/// Calls before anything counts.
const WARM_UP: usize = 200;

/// Calls of the run with many at once, and how many those are.
const MANY: usize = 10_000;
const AT_ONCE: usize = 32;

/// Sessions that are opened and never closed.
const SESSIONS: usize = 1_000;

/// How long anything may take before it counts as broken.
const PATIENCE: Duration = Duration::from_secs(20);

/// How often a server is killed.
const DEATHS: usize = 5;

/// Serves MCP on standard input and output: a tool that gives back what it was called with, one that says that it
/// changes something, and nothing else.
///
/// # Errors
/// When the pipes break.
pub fn server() -> io::Result<()> {
    let (mut input, mut output) = (io::stdin().lock(), io::stdout().lock());
    let mut line = String::new();
    while input.read_line(&mut line)? > 0 {
        let message: Value = serde_json::from_str(&line)?;
        line.clear();
        let Some(id) = message.get("id") else { continue };
        let tool =
            |name: &str, hints: Value| json!({"name": name, "inputSchema": {"type": "object"}, "annotations": hints});
        let result = match message["method"].as_str().unwrap_or_default() {
            "initialize" => json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                "serverInfo": {"name": "echo", "version": "1"}}),
            "tools/list" => json!({"tools": [tool("echo", json!({"readOnlyHint": true})), tool("change", json!({}))]}),
            "tools/call" => json!({"content": [{"type": "text", "text": message["params"]["arguments"].to_string()}]}),
            _ => json!({}),
        };
        writeln!(output, "{}", json!({"jsonrpc": "2.0", "id": id, "result": result}))?;
        output.flush()?;
    }
    Ok(())
}

/// A line each way.
struct Peer<R, W> {
    read: BufReader<R>,
    write: W,
    next: u64,
    line: String,
}

impl<R: io::Read, W: Write> Peer<R, W> {
    fn new(read: R, write: W) -> Peer<R, W> {
        Peer { read: BufReader::new(read), write, next: 0, line: String::new() }
    }

    fn send(&mut self, method: &str, params: &Value) -> io::Result<u64> {
        self.next += 1;
        let message = json!({"jsonrpc": "2.0", "id": self.next, "method": method, "params": params});
        writeln!(self.write, "{message}")?;
        self.write.flush()?;
        Ok(self.next)
    }

    fn next(&mut self) -> io::Result<Value> {
        self.line.clear();
        if self.read.read_line(&mut self.line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(serde_json::from_str(&self.line)?)
    }

    fn answer(&mut self, id: u64) -> io::Result<Value> {
        loop {
            let message = self.next()?;
            if message["id"] == id {
                return Ok(message);
            }
        }
    }

    fn ask(&mut self, method: &str, params: &Value) -> io::Result<Value> {
        let id = self.send(method, params)?;
        self.answer(id)
    }

    fn greet(&mut self) -> io::Result<()> {
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": {"name": "bench", "version": "1"}});
        self.ask("initialize", &params)?;
        writeln!(self.write, "{}", json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))?;
        self.write.flush()
    }

    /// Microseconds of one call.
    fn call(&mut self, tool: &str, arguments: &Value) -> io::Result<f64> {
        let begun = Instant::now();
        let answer = self.ask("tools/call", &json!({"name": tool, "arguments": arguments}))?;
        let took = begun.elapsed().as_secs_f64() * 1e6;
        if answer["result"]["isError"] == true || answer.get("error").is_some() {
            return Err(io::Error::other(format!("{tool}: {answer}")));
        }
        Ok(took)
    }

    /// Calls a second with many at once.
    fn rush(&mut self, tool: &str, arguments: &Value) -> io::Result<f64> {
        let params = json!({"name": tool, "arguments": arguments});
        let begun = Instant::now();
        for _ in 0..AT_ONCE {
            self.send("tools/call", &params)?;
        }
        let (mut sent, mut done) = (AT_ONCE, 0);
        while done < MANY {
            let message = self.next()?;
            if message.get("id").is_none() {
                continue;
            }
            if message.get("error").is_some() || message["result"]["isError"] == true {
                return Err(io::Error::other(format!("{tool}: {message}")));
            }
            done += 1;
            if sent < MANY {
                self.send("tools/call", &params)?;
                sent += 1;
            }
        }
        Ok(MANY as f64 / begun.elapsed().as_secs_f64())
    }
}

type Direct = Peer<ChildStdout, ChildStdin>;
type Proxied = Peer<UnixStream, UnixStream>;

/// A process that goes with us.
struct Ours(Child);

impl Drop for Ours {
    fn drop(&mut self) {
        // Ended already, or measured enough.
        let _gone = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// Measures in `directory`, which is empty and the caller's; `beside` are other programs, `NAME=COMMAND` each.
///
/// # Errors
/// When the daemon or the server does not start, or a call goes wrong.
pub fn run(directory: &Path, beside: &[String]) -> io::Result<Value> {
    let binary = std::env::current_exe()?;
    let mut others = beside::start(beside, &binary)?;
    let daemon = Daemon::start(&binary, directory)?;
    let (mut direct, _server) = direct(&binary)?;
    let mut proxied = daemon.client()?;
    daemon.wait_up(&mut proxied)?;
    let version = json!({"verb": "version"});
    let text = json!({"text": "about as much as a reading of a register or a line of a log"});
    let (mut straight, mut through, mut hop) = (Vec::new(), Vec::new(), Vec::new());
    let mut own = Vec::new();
    for turn in 0..WARM_UP + CALLS {
        let figures = [
            direct.call("echo", &text)?,
            proxied.call("bench__echo", &text)?,
            {
                let begun = Instant::now();
                proxied.ask("ping", &json!({}))?;
                begun.elapsed().as_secs_f64() * 1e6
            },
            proxied.call("system", &version)?,
        ];
        for other in &mut others {
            other.call(turn >= WARM_UP)?;
        }
        if turn >= WARM_UP {
            for (all, figure) in [&mut straight, &mut through, &mut hop, &mut own].into_iter().zip(figures) {
                all.push(figure);
            }
        }
    }
    let at = |all: &mut Vec<f64>, percent: usize| percentile(all, percent);
    let mut changing = Vec::new();
    for _ in 0..CALLS / 10 {
        changing.push(proxied.call("bench__change", &text)?);
    }
    let calls_per_s = proxied.rush("bench__echo", &text)?;
    let own_calls_per_s = proxied.rush("system", &version)?;
    let beside = beside::figures(others)?;
    let mut deaths = daemon.deaths(&mut proxied)?;
    let sessions = daemon.sessions()?;
    let [direct_p50, direct_p99] = [50, 99].map(|percent| at(&mut straight, percent));
    let [proxied_p50, proxied_p99] = [50, 99].map(|percent| at(&mut through, percent));
    Ok(json!({
        "direct_us_p50": direct_p50,
        "direct_us_p99": direct_p99,
        "proxied_us_p50": proxied_p50,
        "proxied_us_p99": proxied_p99,
        "added_us_p50": ((proxied_p50 - direct_p50) * 10.0).round() / 10.0,
        "added_us_p99": ((proxied_p99 - direct_p99) * 10.0).round() / 10.0,
        "bare_hop_us_p50": at(&mut hop, 50),
        "own_tool_us_p50": at(&mut own, 50),
        "own_tool_us_p99": at(&mut own, 99),
        "changing_us_p50": at(&mut changing, 50),
        "calls_per_s": calls_per_s.round(),
        "own_tool_calls_per_s": own_calls_per_s.round(),
        "sessions_1000_mib": sessions,
        "dead_child_ms": at(&mut deaths, 50),
        "dead_child_ms_max": at(&mut deaths, 100),
        "beside": beside,
    }))
}

/// The figure below which so many of a hundred lie, to one decimal.
fn percentile(all: &mut [f64], percent: usize) -> f64 {
    all.sort_by(f64::total_cmp);
    let rank = (all.len() * percent).div_ceil(100).max(1);
    all.get(rank - 1).map_or(f64::NAN, |figure| (figure * 10.0).round() / 10.0)
}

fn direct(binary: &Path) -> io::Result<(Direct, Ours)> {
    piped(Command::new(binary).args(["bench", "mcp-server"]))
}

/// A server on its standard input and output, greeted.
fn piped(command: &mut Command) -> io::Result<(Direct, Ours)> {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let missing = || io::Error::other("the server has no pipe");
    let (stdin, stdout) = (child.stdin.take().ok_or_else(missing)?, child.stdout.take().ok_or_else(missing)?);
    let mut peer = Peer::new(stdout, stdin);
    let child = Ours(child);
    peer.greet()?;
    Ok((peer, child))
}

/// The daemon that is measured.
struct Daemon {
    child: Ours,
    socket: std::path::PathBuf,
}

impl Daemon {
    fn start(binary: &Path, home: &Path) -> io::Result<Daemon> {
        let notify = home.join("notify");
        let listener = UnixDatagram::bind(&notify)?;
        listener.set_read_timeout(Some(PATIENCE))?;
        let command = json!([binary, "bench", "mcp-server"]);
        let config = home.join("interlock.toml");
        std::fs::write(
            &config,
            format!(
                "version = 1\n[policy]\nallow = [\"mcp__bench\"]\n[[mcp.server]]\nname = \"bench\"\ncommand = {command}\n\
                 era = \"legacy\"\n"
            ),
        )?;
        let socket = home.join("interlock.sock");
        let mut command = Command::new(binary);
        command.arg("--socket").arg(&socket).arg("run").arg("--state").arg(home.join("state")).arg("--config");
        command.arg(&config).env("NOTIFY_SOCKET", &notify).env_remove("WATCHDOG_USEC");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = Ours(command.spawn()?);
        let mut message = [0; 4096];
        loop {
            let length = listener.recv(&mut message)?;
            if String::from_utf8_lossy(&message[..length]).lines().any(|line| line == "READY=1") {
                return Ok(Daemon { child, socket });
            }
        }
    }

    /// A request on the control socket.
    fn ask(&self, verb: &str) -> io::Result<Vec<Value>> {
        let mut stream = UnixStream::connect(&self.socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        writeln!(stream, "{}", json!({"v": 1, "id": 1, "verb": verb, "args": {}}))?;
        let mut items = Vec::new();
        for line in BufReader::new(stream).lines() {
            let mut line: Value = serde_json::from_str(&line?)?;
            if line.get("item").is_some() {
                items.push(line["item"].take());
            } else {
                items.extend(line.get_mut("ok").map(Value::take));
                break;
            }
        }
        Ok(items)
    }

    /// A client, as `interlock mcp` is one, without the process between.
    fn client(&self) -> io::Result<Proxied> {
        let mut stream = UnixStream::connect(&self.socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        writeln!(stream, "{}", json!({"v": 1, "id": 0, "verb": "mcp", "args": {}}))?;
        let mut peer = Peer::new(stream.try_clone()?, stream);
        peer.greet()?;
        Ok(peer)
    }

    /// Waits until the server's tools are listed. Asks again and again: each answer is a round trip, so this is no
    /// spinning.
    fn wait_up(&self, client: &mut Proxied) -> io::Result<()> {
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            if is_listed(client)? {
                return Ok(());
            }
        }
        Err(io::Error::other("the server did not come up"))
    }

    /// Milliseconds from the kill of the server to the news of it at a client.
    fn deaths(&self, client: &mut Proxied) -> io::Result<Vec<f64>> {
        let mut took = Vec::new();
        for _ in 0..DEATHS {
            let row = self.ask("mcp.list")?.into_iter().next().unwrap_or(Value::Null);
            let pid = row["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok());
            let pid = pid.ok_or_else(|| io::Error::other(format!("no process of the server: {row}")))?;
            let begun = Instant::now();
            pidfd::send_signal(&pidfd::open_process(pid)?, SIGKILL)?;
            loop {
                // News of the last coming up may still be on its way.
                while client.next()?["method"] != "notifications/tools/list_changed" {}
                let heard = begun.elapsed().as_secs_f64() * 1e3;
                if !is_listed(client)? {
                    took.push(heard);
                    break;
                }
            }
            self.wait_up(client)?;
        }
        Ok(took)
    }

    /// Mebibytes that a thousand sessions over HTTP cost.
    fn sessions(&self) -> io::Result<f64> {
        let status = self.ask("status")?.into_iter().next().unwrap_or(Value::Null);
        let url = status["mcp"].as_str().unwrap_or_default().to_owned();
        let address = url.split('/').nth(2).unwrap_or_default();
        let pid = self.child.0.id();
        let before = crate::sys::machine::resident_bytes_of(pid)?;
        let body =
            json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": "2025-11-25",
            "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}})
            .to_string();
        let head = format!(
            "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: application/json, \
             text/event-stream\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        for _ in 0..SESSIONS {
            let mut stream = TcpStream::connect(address)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.write_all(head.as_bytes())?;
            io::copy(&mut stream, &mut io::sink())?;
        }
        let after = crate::sys::machine::resident_bytes_of(pid)?;
        Ok((after.saturating_sub(before) as f64 / f64::from(1 << 20) * 10.0).round() / 10.0)
    }
}

fn is_listed(client: &mut Proxied) -> io::Result<bool> {
    let list = client.ask("tools/list", &json!({}))?;
    let tools = list["result"]["tools"].as_array().map_or(&[][..], Vec::as_slice);
    Ok(tools.iter().any(|tool| tool["name"] == "bench__echo"))
}

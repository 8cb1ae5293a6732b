//! A daemon with its tools: started, asked over its socket, killed and started again.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::servers::{self, Coils, Files};

/// The one deadline: what takes longer hangs.
pub(crate) const DEADLINE: Duration = Duration::from_secs(180);

pub(crate) struct Stand {
    child: Mutex<Child>,
    home: tempfile::TempDir,
    pub(crate) files: Files,
    /// The run that each unit of the Modbus line is in.
    pub(crate) units: Arc<Mutex<BTreeMap<u8, String>>>,
    pub(crate) coils: Coils,
    pub(crate) http: u16,
    /// Calls until the daemon is killed; 0 when nobody wants that.
    fuse: AtomicU64,
}

/// Lets time pass where a daemon takes some.
pub(crate) fn rest(millis: u64) {
    let (_never, wait): (Sender<()>, Receiver<()>) = channel();
    let _elapsed = wait.recv_timeout(Duration::from_millis(millis));
}

impl Stand {
    pub(crate) fn start(lanes: usize) -> Stand {
        let home = tempfile::tempdir().unwrap();
        for name in ["plans", "stories", "there", "work", "state"] {
            std::fs::create_dir(home.path().join(name)).unwrap();
        }
        std::fs::write(home.path().join("act.sh"), servers::SCRIPT).unwrap();
        let files = Files(home.path().to_owned());
        let units: Arc<Mutex<BTreeMap<u8, String>>> = Arc::default();
        let coils = Coils::default();
        let http = servers::http(&files);
        let mut config = config(&files.0, http, lanes);
        for lane in 0..lanes {
            let port = servers::modbus(&files, &units, &coils);
            config.push_str(&of_lane(lane, port, &files.0));
        }
        std::fs::write(home.path().join("interlock.toml"), config).unwrap();
        let child = Mutex::new(begin(&files.0));
        let stand = Stand { child, home, files, units, coils, http, fuse: AtomicU64::new(0) };
        stand.up();
        stand
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// Waits until it answers.
    fn up(&self) {
        let until = Instant::now() + DEADLINE;
        while self.asked("status", &json!({})).is_none() {
            let log = || std::fs::read_to_string(self.path("log")).unwrap_or_default();
            assert!(Instant::now() < until, "the daemon does not answer\n{}", log());
            rest(10);
        }
    }

    /// The daemon is killed within the next calls: in the midst of one, as likely as not.
    pub(crate) fn kill_soon(&self, seed: u64) {
        self.fuse.store(1 + seed % 7, Ordering::Relaxed);
    }

    /// One request; nothing when the daemon went away before its answer. It is up again then.
    pub(crate) fn ask(&self, verb: &str, args: &Value) -> Option<Value> {
        if self.burn() {
            let _lost = self.killed_in(|| self.asked(verb, args));
            self.up();
            return None;
        }
        let answer = self.asked(verb, args);
        if answer.is_none() {
            self.up();
        }
        answer
    }

    fn kill(&self) {
        let mut child = self.child.lock().unwrap();
        let _ = child.kill();
        let _ = child.wait();
        *child = begin(self.home.path());
    }

    fn asked(&self, verb: &str, args: &Value) -> Option<Value> {
        let mut stream = UnixStream::connect(self.path("s")).ok()?;
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        writeln!(stream, "{}", json!({"v": 1, "id": 1, "verb": verb, "args": args})).ok()?;
        let line = BufReader::new(stream).lines().next()?.ok()?;
        let answer: Value = serde_json::from_str(&line).ok()?;
        match answer.get("ok") {
            Some(ok) => Some(ok.clone()),
            // The daemon is stopping, or not yet there.
            None => Some(json!({"error": answer["error"]})),
        }
    }
}

/// `interlock mcp` on the socket of a daemon, with its standard input and output.
pub(crate) fn joined(socket: &Path) -> (Child, ChildStdin, BufReader<ChildStdout>) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_interlock"))
        .args(["--socket".as_ref(), socket.as_os_str(), "mcp".as_ref()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let (stdin, stdout) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
    (child, stdin, stdout)
}

/// A plain agent: `interlock mcp`, with no workflow and no guarantee. Gone with the daemon.
pub(crate) struct Agent {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Agent {
    fn request(&mut self, method: &str, params: &Value) -> Option<Value> {
        writeln!(self.stdin, "{}", json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})).ok()?;
        loop {
            let mut line = String::new();
            if self.stdout.read_line(&mut line).ok()? == 0 {
                return None;
            }
            let message: Value = serde_json::from_str(&line).ok()?;
            if message["id"] == 1 && message.get("method").is_none() {
                return Some(message["result"].clone());
            }
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Stand {
    /// One call of a plain agent, and how it ended: `done`, `failed`, `unknown`, `not_started`; nothing when the daemon
    /// was killed in it.
    pub(crate) fn call(&self, agent: &mut Option<Agent>, tool: &str, input: &Value) -> Option<String> {
        if agent.is_none() {
            *agent = self.agent();
        }
        let burnt = self.burn();
        let asked = agent.as_mut()?;
        let params = json!({"name": tool, "arguments": input});
        let answer = if burnt {
            self.killed_in(|| asked.request("tools/call", &params))
        } else {
            asked.request("tools/call", &params)
        };
        let ending = answer.as_ref().and_then(|answer| answer["_meta"]["interlock/outcome"]["ending"].as_str());
        if ending.is_none() {
            *agent = None;
            self.up();
        }
        ending.map(str::to_owned)
    }

    fn agent(&self) -> Option<Agent> {
        let (child, stdin, stdout) = joined(&self.path("s"));
        let mut agent = Agent { child, stdin, stdout };
        let info = json!({"name": "faults", "version": "1"});
        agent
            .request("initialize", &json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}))?;
        writeln!(agent.stdin, "{}", json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).ok()?;
        Some(agent)
    }

    /// The fuse is shorter by one call; true when it is burnt.
    fn burn(&self) -> bool {
        self.fuse.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)) == Ok(1)
    }

    /// Does something, and kills the daemon somewhere in it: it takes some milliseconds.
    fn killed_in<T>(&self, act: impl FnOnce() -> T) -> T {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                rest(u64::from(std::process::id()).wrapping_add(Instant::now().elapsed().subsec_nanos().into()) % 4);
                self.kill();
            });
            act()
        })
    }
}

impl Drop for Stand {
    fn drop(&mut self) {
        let child = self.child.get_mut().unwrap();
        let _ = child.kill();
        let _ = child.wait();
    }
}

fn begin(home: &std::path::Path) -> Child {
    let log = std::fs::OpenOptions::new().append(true).create(true).open(home.join("log")).unwrap();
    Command::new(env!("CARGO_BIN_EXE_interlock"))
        .arg("--socket")
        .arg(home.join("s"))
        .args(["run", "--state"])
        .arg(home.join("state"))
        .arg("--config")
        .arg(home.join("interlock.toml"))
        .env_remove("NOTIFY_SOCKET")
        .env_remove("WATCHDOG_USEC")
        .env("LANG", "C")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .unwrap()
}

fn config(home: &std::path::Path, http: u16, lanes: usize) -> String {
    let servers: String = (0..lanes).map(|lane| format!(", \"mcp__m{lane}\"")).collect();
    let root = format!("http://127.0.0.1:{http}");
    let undo = r#"effect = { inverse = "http", precondition = "any time", input = { url = "{input.url}", method = "DELETE" } }"#;
    let asked = |done: u16, failed: u16| {
        format!(
            "query = {{ tool = \"http\", input = {{ url = \"{{input.url}}\" }}, done = {{ status = {done} }}, failed = {{ status = {failed} }} }}"
        )
    };
    let contract = |path: &str, method: &str, more: &str| {
        format!(
            "[[contract]]\ntool = \"http\"\ninput = {{ url = \"{root}/{path}/*\", method = \"{method}\" }}\n\
             op-kind = \"{path}.{method}\"\nvisibility = \"private\"\n{more}\n"
        )
    };
    let key = "op-id = { header = \"Idempotency-Key\" }\noutcome = { resend-original-s = 86400 }\n";
    [
        format!(
            "version = 1\n[policy]\nmode = \"bypassPermissions\"\nallow = [\"Bash\", \"Edit\", \"WebFetch\", \"Device\"{servers}]\n\
             work-dirs = [{:?}]\n[mcp]\n",
            home.join("work")
        ),
        contract("keyed", "POST", &format!("{key}{undo}")),
        contract("keyed", "DELETE", key),
        contract("asked", "POST", &format!("{}\n{undo}", asked(200, 404))),
        contract("asked", "DELETE", &asked(404, 200)),
    ]
    .concat()
}

/// The Modbus line and the MCP server of one lane.
fn of_lane(lane: usize, port: u16, home: &std::path::Path) -> String {
    let mut text = format!("[[bus]]\nname = \"b{lane}\"\ntcp = \"127.0.0.1:{port}\"\n");
    // Two devices, since each operation has a resource of its own.
    for (at, op) in ["one", "two"].iter().enumerate() {
        let _ = writeln!(
            text,
            "[[device]]\nname = \"{op}-{lane}\"\nkind = \"pump\"\nbus = \"b{lane}\"\nunit = {}\n\
             points = {{ run = {{ coil = {at} }} }}\n[device.actions]\n\
             start = {{ writes = [{{ point = \"run\", value = true }}], inverse = \"stop\", inverse-when = \"any time\" }}\n\
             stop = {{ writes = [{{ point = \"run\", value = false }}] }}",
            lane + 1
        );
    }
    let _ = writeln!(
        text,
        "[[mcp.server]]\nname = \"m{lane}\"\ncommand = {}\nenv = {{ {} = {:?} }}",
        json!(servers::command()),
        servers::DIRECTORY,
        home
    );
    text
}

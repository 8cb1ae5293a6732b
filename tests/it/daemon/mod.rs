//! The daemon as its users meet it: the binary, its socket, its plant, its evidence.
mod agents;
mod answers;
mod browser;
mod commands;
mod console;
mod crash;
mod effects;
pub(crate) mod export;
mod flood;
mod four_eyes;
mod ground;
mod hostile;
mod interlocks;
mod keep;
mod learning;
mod manners;
pub(crate) mod proxy;
mod search;
mod updates;
mod voice;
mod workflows;
mod wyoming;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// The one deadline of these tests: what takes longer hangs. The machines that run them are slow and shared.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// A running daemon with a state directory of its own.
pub(crate) struct Daemon {
    child: Child,
    home: Option<tempfile::TempDir>,
    pub(crate) socket: PathBuf,
}

/// A directory for one daemon, with what it needs to be found.
pub(crate) struct Home {
    directory: tempfile::TempDir,
}

impl Home {
    pub(crate) fn new() -> Home {
        Home { directory: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn config(&self, text: &str) -> PathBuf {
        let path = self.path("interlock.toml");
        std::fs::write(&path, text).unwrap();
        path
    }

    fn command(&self, config: Option<&Path>) -> Command {
        self.command_on(&self.path("state"), config)
    }

    fn command_on(&self, state: &Path, config: Option<&Path>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_interlock"));
        command.arg("--socket").arg(self.path("interlock.sock")).arg("run").arg("--state").arg(state);
        // The machine's own configuration must not decide a test.
        let named = config.map_or_else(|| self.config("version = 1\n"), Path::to_owned);
        command.arg("--config").arg(named);
        command.env_remove("NOTIFY_SOCKET").env_remove("WATCHDOG_USEC").env("LANG", "C").stdin(Stdio::null());
        command
    }

    /// Starts the daemon and waits until it says that it is ready, as systemd does.
    pub(crate) fn start(self, config: Option<&Path>) -> Daemon {
        self.start_heard(config, &[]).0
    }

    /// The same, with variables of its own; gives the socket on which it speaks to systemd, too.
    fn start_heard(self, config: Option<&Path>, envs: &[(&str, &str)]) -> (Daemon, Heard) {
        let state = self.path("state");
        self.start_heard_on(&state, config, envs)
    }

    fn start_heard_on(self, state: &Path, config: Option<&Path>, envs: &[(&str, &str)]) -> (Daemon, Heard) {
        let notify = self.path("notify");
        // A second life in the same directory binds it anew.
        let _ = std::fs::remove_file(&notify);
        let listener = UnixDatagram::bind(&notify).unwrap();
        listener.set_read_timeout(Some(DEADLINE)).unwrap();
        let log = std::fs::File::create(self.path("log")).unwrap();
        let child = self
            .command_on(state, config)
            .env("NOTIFY_SOCKET", &notify)
            .envs(envs.iter().copied())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let socket = self.path("interlock.sock");
        let daemon = Daemon { child, home: Some(self.directory), socket };
        let mut heard = Heard { listener, told: Vec::new() };
        while !heard.told.iter().any(|line| line == "READY=1") {
            assert!(heard.listen(DEADLINE), "not ready: {:?}\n{}", heard.told, daemon.log());
        }
        (daemon, heard)
    }
}

/// What systemd hears.
struct Heard {
    listener: UnixDatagram,
    /// Every assignment, in order.
    told: Vec<String>,
}

impl Heard {
    /// Hears one message; false when none comes in this time.
    fn listen(&mut self, time: Duration) -> bool {
        self.listener.set_read_timeout(Some(time)).unwrap();
        let mut message = [0; 4096];
        let Ok(length) = self.listener.recv(&mut message) else { return false };
        self.told.extend(String::from_utf8_lossy(&message[..length]).lines().map(str::to_owned));
        true
    }

    /// Hears until something begins so; what was said before it is forgotten.
    fn until(&mut self, beginning: &str) -> String {
        let end = Instant::now() + DEADLINE;
        loop {
            if let Some(at) = self.told.iter().position(|line| line.starts_with(beginning)) {
                return self.told.drain(..=at).next_back().unwrap();
            }
            let left = end.saturating_duration_since(Instant::now());
            assert!(!left.is_zero() && self.listen(left), "{beginning} was not said");
        }
    }
}

impl Daemon {
    pub(crate) fn start() -> Daemon {
        Home::new().start(None)
    }

    pub(crate) fn with(config: &str) -> Daemon {
        let home = Home::new();
        let path = home.config(config);
        home.start(Some(&path))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.home.as_ref().unwrap().path().join(name)
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// One request on a connection of its own: the answer, or the error.
    pub(crate) fn ask(&self, verb: &str, args: Value) -> Result<Value, Value> {
        let (mut items, end) = self.lines(verb, args);
        match end {
            Some(Ok(value)) => Ok(value),
            Some(Err(error)) => Err(error),
            None => Ok(Value::Array(std::mem::take(&mut items))),
        }
    }

    fn lines(&self, verb: &str, args: Value) -> (Vec<Value>, Option<Result<Value, Value>>) {
        let mut stream = UnixStream::connect(&self.socket).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        let request = json!({ "v": 1, "id": 7, "verb": verb, "args": args });
        writeln!(stream, "{request}").unwrap();
        let mut items = Vec::new();
        for line in BufReader::new(stream).lines() {
            let line: Value =
                serde_json::from_str(&line.unwrap_or_else(|e| panic!("{verb}: {e}\n{}", self.log()))).unwrap();
            assert_eq!(line["id"], 7);
            if let Some(item) = line.get("item") {
                items.push(item.clone());
            } else if line.get("end").is_some() {
                return (items, None);
            } else if let Some(ok) = line.get("ok") {
                return (items, Some(Ok(ok.clone())));
            } else {
                return (items, Some(Err(line["error"].clone())));
            }
        }
        panic!("{verb}: the connection ended before the answer\n{}", self.log())
    }

    fn say(&self, text: &str) -> Value {
        self.ask("say", json!({ "text": text })).unwrap()
    }

    pub(crate) fn list(&self, verb: &str) -> Vec<Value> {
        self.ask(verb, json!({})).unwrap().as_array().unwrap().clone()
    }

    /// The command line, as a person types it.
    pub(crate) fn cli(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_interlock"));
        command.arg("--socket").arg(&self.socket).args(args).env("LANG", "C").stdin(Stdio::null());
        command.output().unwrap()
    }

    /// Waits until `seen` finds something; asks again only because the plant moves by itself.
    pub(crate) fn eventually<T>(&self, what: &str, seen: impl Fn() -> Option<T>) -> T {
        let until = Instant::now() + DEADLINE;
        loop {
            if let Some(found) = seen() {
                return found;
            }
            assert!(Instant::now() < until, "{what} did not come\n{}", self.log());
            std::thread::yield_now();
        }
    }

    /// The pulled plug of a process.
    pub(crate) fn kill(mut self) -> Home {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.left()
    }

    /// What systemd does at `stop`.
    fn end(mut self) -> (ExitStatus, Home) {
        self.signal(nix::sys::signal::Signal::SIGTERM);
        let status = self.child.wait().unwrap();
        (status, self.left())
    }

    fn signal(&self, signal: nix::sys::signal::Signal) {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.child.id()).unwrap());
        nix::sys::signal::kill(pid, signal).unwrap();
    }

    fn left(mut self) -> Home {
        Home { directory: self.home.take().unwrap() }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Ended already, or the test failed in the middle.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A point of the plant, read by a client that is not ours.
pub(crate) struct Register {
    address: String,
    unit: u8,
    kind: String,
    number: u16,
}

impl Register {
    pub(crate) fn of(daemon: &Daemon, device: &str, point: &str) -> Register {
        let rows = daemon.list("device.list");
        let row = rows.iter().find(|row| row["device"] == device && row["point"] == point);
        let row = row.unwrap_or_else(|| panic!("{device} has no {point}"));
        Register {
            address: row["bus"].as_str().unwrap().trim_start_matches("tcp://").to_owned(),
            unit: u8::try_from(row["unit"].as_u64().unwrap()).unwrap(),
            kind: row["kind"].as_str().unwrap().to_owned(),
            number: u16::try_from(row["address"].as_u64().unwrap()).unwrap(),
        }
    }

    /// The raw word on the wire: one Modbus TCP request written by hand (Modbus Application Protocol V1.1b3, 6.1-6.4).
    pub(crate) fn read(&self) -> u16 {
        let function = match self.kind.as_str() {
            "coil" => 1,
            "discrete" => 2,
            "holding" => 3,
            "input" => 4,
            other => panic!("{other} is no kind of register"),
        };
        let mut stream = std::net::TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        let [high, low] = self.number.to_be_bytes();
        stream.write_all(&[0, 9, 0, 0, 0, 6, self.unit, function, high, low, 0, 1]).unwrap();
        let mut head = [0; 9];
        std::io::Read::read_exact(&mut stream, &mut head).unwrap();
        assert_eq!((head[1], head[6], head[7]), (9, self.unit, function), "{head:?}");
        let mut data = vec![0; usize::from(head[8])];
        std::io::Read::read_exact(&mut stream, &mut data).unwrap();
        match data.as_slice() {
            [bits] => u16::from(bits & 1),
            [high, low] => u16::from_be_bytes([*high, *low]),
            other => panic!("{other:?} is no answer for one register"),
        }
    }
}

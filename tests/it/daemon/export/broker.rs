//! Mosquitto from Debian, a receiver that is not ours, and a link that can be cut.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Instant;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::daemon::DEADLINE;

/// Where Debian puts a program that is for root's path only.
const PLACES: [&str; 2] = ["/usr/sbin", "/usr/bin"];

/// The programs of Debian's packages `mosquitto` and `mosquitto-clients`, when they are there.
pub(super) fn mosquitto() -> Option<[PathBuf; 3]> {
    let found = |name: &str| PLACES.iter().map(|place| Path::new(place).join(name)).find(|path| path.exists());
    Some([found("mosquitto")?, found("mosquitto_sub")?, found("mosquitto_pub")?])
}

/// A port that nobody has now.
pub(super) fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}

/// A broker with a memory of its own.
pub(super) struct Broker {
    home: tempfile::TempDir,
    program: PathBuf,
    child: Option<Child>,
    pub(super) port: u16,
}

impl Broker {
    /// Starts one; `more` are lines of its configuration.
    pub(super) fn start(more: &str) -> Broker {
        let [program, ..] = mosquitto().unwrap();
        let home = tempfile::tempdir().unwrap();
        let port = free_port();
        let user = nix::unistd::User::from_uid(nix::unistd::getuid()).unwrap().unwrap().name;
        let text = format!(
            "per_listener_settings true\nlistener {port} 127.0.0.1\nuser {user}\npersistence true\npersistence_location {}/\n\
             max_queued_messages 0\nmax_inflight_messages 0\nallow_anonymous true\n{more}\n",
            home.path().display()
        );
        std::fs::write(home.path().join("broker.conf"), text).unwrap();
        let mut broker = Broker { home, program, child: None, port };
        broker.begin();
        broker
    }

    pub(super) fn begin(&mut self) {
        let log = std::fs::OpenOptions::new().append(true).create(true).open(self.home.path().join("log")).unwrap();
        let mut command = Command::new(&self.program);
        command.arg("-c").arg(self.home.path().join("broker.conf")).stdout(Stdio::null()).stderr(log);
        self.child = Some(command.spawn().unwrap());
        let until = Instant::now() + DEADLINE;
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            let ended = self.child.as_mut().unwrap().try_wait().unwrap();
            assert!(ended.is_none() && Instant::now() < until, "the broker did not come: {}", self.log());
            std::thread::yield_now();
        }
    }

    pub(super) fn log(&self) -> String {
        std::fs::read_to_string(self.home.path().join("log")).unwrap_or_default()
    }

    pub(super) fn signal(&self, signal: Signal) {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.child.as_ref().unwrap().id()).unwrap());
        nix::sys::signal::kill(pid, signal).unwrap();
    }

    /// Ends it in order, so that it keeps what it has taken.
    pub(super) fn end(&mut self) {
        self.signal(Signal::SIGTERM);
        self.child.take().unwrap().wait().unwrap();
    }
}

impl Broker {
    /// The pulled plug.
    pub(super) fn kill(&mut self) {
        self.signal(Signal::SIGKILL);
        self.child.take().unwrap().wait().unwrap();
    }

    /// Says something on a topic.
    pub(super) fn publish(&self, topic: &str, text: &str) {
        let [.., program] = mosquitto().unwrap();
        let port = self.port.to_string();
        let status =
            Command::new(program).args(["-h", "127.0.0.1", "-p", &port, "-q", "1", "-t", topic, "-m", text]).status();
        assert!(status.unwrap().success());
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// What has come.
#[derive(Default)]
pub(super) struct Inbox {
    /// Topic and text, in order.
    pub(super) messages: Vec<(String, String)>,
    /// The rows by their numbers, with how often each came.
    pub(super) rows: BTreeMap<u64, usize>,
}

impl Inbox {
    fn take(&mut self, line: &str) {
        let (topic, text) = line.split_once(' ').unwrap_or((line, ""));
        if topic.ends_with("/evidence")
            && let Some(seq) = serde_json::from_str::<Value>(text).ok().and_then(|row| row["seq"].as_u64())
        {
            *self.rows.entry(seq).or_default() += 1;
        }
        self.messages.push((topic.to_owned(), text.to_owned()));
    }

    /// Every number from `first` to `last` has come.
    pub(super) fn is_whole(&self, first: u64, last: u64) -> bool {
        self.rows.range(first..=last).count() as u64 == last + 1 - first
    }
}

/// `mosquitto_sub`, with a session that outlives its connections.
pub(super) struct Receiver {
    child: Child,
    inbox: Arc<(Mutex<Inbox>, Condvar)>,
}

impl Receiver {
    pub(super) fn of(broker: &Broker, filter: &str) -> Receiver {
        Receiver::told(broker, filter, "%t %p")
    }

    /// The same for payloads that are no text.
    pub(super) fn in_hex(broker: &Broker, filter: &str) -> Receiver {
        Receiver::told(broker, filter, "%t %x")
    }

    fn told(broker: &Broker, filter: &str, form: &str) -> Receiver {
        let [_, program, _] = mosquitto().unwrap();
        let mut child = Command::new(program)
            .args(["-h", "127.0.0.1", "-p", &broker.port.to_string(), "-V", "5", "-q", "1", "-c", "-x", "4294967295"])
            .args(["-i", "receiver", "-t", filter, "-F", form])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let inbox = Arc::new((Mutex::new(Inbox::default()), Condvar::new()));
        let filled = Arc::clone(&inbox);
        std::thread::spawn(move || {
            for line in output.lines() {
                let Ok(line) = line else { return };
                filled.0.lock().unwrap().take(&line);
                filled.1.notify_all();
            }
        });
        Receiver { child, inbox }
    }

    /// What has come so far says so.
    pub(super) fn has(&self, seen: impl Fn(&Inbox) -> bool) -> bool {
        seen(&self.inbox.0.lock().unwrap())
    }

    /// Waits until what has come says so.
    pub(super) fn until(&self, what: &str, seen: impl Fn(&Inbox) -> bool) {
        let until = Instant::now() + DEADLINE;
        let mut inbox = self.inbox.0.lock().unwrap();
        while !seen(&inbox) {
            let left = until.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "{what} did not come; {} messages did", inbox.messages.len());
            inbox = self.inbox.1.wait_timeout(inbox, left).unwrap().0;
        }
    }

    /// What has come on topics with this end, read as JSON.
    pub(super) fn json(&self, end: &str) -> Vec<Value> {
        let inbox = self.inbox.0.lock().unwrap();
        let ours = inbox.messages.iter().filter(|(topic, _)| topic.ends_with(end));
        ours.map(|(topic, text)| serde_json::from_str(text).unwrap_or_else(|e| panic!("{topic}: {e}: {text}")))
            .collect()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A way to a port that can be cut, as a cable is.
pub(super) struct Cable {
    pub(super) port: u16,
    ends: Arc<Mutex<Vec<TcpStream>>>,
    closed: Arc<AtomicBool>,
    unplugged: Arc<AtomicBool>,
}

impl Cable {
    pub(super) fn to(port: u16) -> Cable {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let cable = Cable {
            port: listener.local_addr().unwrap().port(),
            ends: Arc::default(),
            closed: Arc::default(),
            unplugged: Arc::default(),
        };
        let (ends, closed) = (Arc::clone(&cable.ends), Arc::clone(&cable.closed));
        let unplugged = Arc::clone(&cable.unplugged);
        std::thread::spawn(move || {
            for near in listener.incoming() {
                let Ok(near) = near else { return };
                if closed.load(Ordering::SeqCst) {
                    return;
                }
                if unplugged.load(Ordering::SeqCst) {
                    continue;
                }
                // A broker that is away: the connection ends at once.
                let Ok(far) = TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], port))) else { continue };
                ends.lock().unwrap().extend([near.try_clone().unwrap(), far.try_clone().unwrap()]);
                for (from, to) in
                    [(near.try_clone().unwrap(), far.try_clone().unwrap()), (far.try_clone().unwrap(), near)]
                {
                    std::thread::spawn(move || carry(from, to));
                }
            }
        });
        cable
    }

    /// Nothing gets through until it is plugged in again.
    pub(super) fn unplug(&self) {
        self.unplugged.store(true, Ordering::SeqCst);
        self.cut();
    }

    pub(super) fn plug(&self) {
        self.unplugged.store(false, Ordering::SeqCst);
    }

    pub(super) fn cut(&self) {
        for end in self.ends.lock().unwrap().drain(..) {
            let _ = end.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        self.closed.store(true, Ordering::SeqCst);
        self.cut();
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream) {
    let mut buffer = [0; 8192];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        if to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}

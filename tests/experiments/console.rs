//! What the console costs and how long a person waits for it: 1,000 tasks, 1,000,000 rows of evidence.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use interlock::record::{Row, Stamp, TimeQuality};
use interlock::store::chain::Algorithm;
use interlock::store::queue::Entry;
use interlock::store::{Limits, Settings, Store};
use interlock_domain::time::{Tick, Wall};
use serde_json::{Value, json};

use crate::{asked, asked_count};

const DEADLINE: Duration = Duration::from_secs(120);
const TASKS: usize = 1_000;
/// How often each page is asked for; the median counts.
const TIMES: usize = 9;

#[expect(clippy::print_stdout, reason = "an experiment prints what it measured")]
fn say(text: &str) {
    println!("{text}");
}

fn clock() -> Stamp {
    Stamp { mono: Tick(1), boottime_ns: 1, wall: Wall(1_764_500_000_000), quality: TimeQuality::Unknown }
}

/// A log with an often word, one in each thousandth row, and one in the oldest.
fn log(state: &Path, rows: u64) {
    let settings = Settings {
        state: state.to_owned(),
        boot_id: "0b5c9f4e-8f5e-4f0e-9d55-2f6a2f1f7b11".to_owned(),
        version: "0.1.0".to_owned(),
        clock,
        limits: Limits::default(),
        algorithm: Algorithm::default(),
    };
    let store = Store::open(&settings).unwrap().store;
    let writer = store.writer();
    for n in 0..rows {
        let word = match n {
            0 => "zeroth",
            n if n % 1_000 == 0 => "thousandth",
            _ => "often",
        };
        let detail =
            json!({ "input": { "device": "pump-2", "action": "read", "point": "pressure" }, "word": word, "n": n });
        let mut entry = Entry::relaxed(Row::new(clock(), "note").detailed(&detail));
        while let Err(not_taken) = writer.append(entry) {
            entry = *not_taken.entry;
            std::thread::yield_now();
        }
    }
    assert_eq!(store.close().unwritten, 0);
}

struct Daemon {
    child: Child,
    home: std::path::PathBuf,
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Daemon {
    fn start(home: &Path, state: &Path, config: &str) -> Daemon {
        let file = home.join("interlock.toml");
        std::fs::write(&file, format!("version = 1\n{config}")).unwrap();
        let log = std::fs::File::create(home.join("log")).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_interlock"))
            .args(["--socket".as_ref(), home.join("s").as_os_str(), "run".as_ref()])
            .args(["--config".as_ref(), file.as_os_str(), "--state".as_ref(), state.as_os_str()])
            .env_remove("NOTIFY_SOCKET")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        let daemon = Daemon { child: child.unwrap(), home: home.to_owned() };
        daemon.until("it listens", |daemon| UnixStream::connect(daemon.home.join("s")).is_ok());
        // The log is verified beside the start, and the memory of that is given back.
        daemon.until("the log is verified", |daemon| {
            let rows =
                daemon.ask("evidence.query", json!({ "kind": "verified", "limit": 1, "since": daemon.last() - 50 }));
            !rows.as_array().unwrap().is_empty()
        });
        daemon
    }

    fn until(&self, what: &str, seen: impl Fn(&Daemon) -> bool) {
        let end = Instant::now() + DEADLINE;
        while !seen(self) {
            assert!(Instant::now() < end, "{what}: {}", std::fs::read_to_string(self.home.join("log")).unwrap());
            std::thread::park_timeout(Duration::from_millis(50));
        }
    }

    fn last(&self) -> u64 {
        self.ask("evidence.query", json!({ "limit": 1 }))[0]["seq"].as_u64().unwrap()
    }

    fn ask(&self, verb: &str, args: Value) -> Value {
        let mut stream = UnixStream::connect(self.home.join("s")).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        writeln!(stream, "{}", json!({ "v": 1, "id": 7, "verb": verb, "args": args })).unwrap();
        let mut items = Vec::new();
        for line in BufReader::new(stream).lines() {
            let line: Value = serde_json::from_str(&line.unwrap()).unwrap();
            if let Some(item) = line.get("item") {
                items.push(item.clone());
            } else if line.get("end").is_some() {
                return Value::Array(items);
            } else {
                assert!(line.get("ok").is_some(), "{verb}: {line}");
                return line["ok"].clone();
            }
        }
        panic!("{verb} was not answered")
    }

    /// Resident memory in KiB: all of it, and what is not a file's.
    fn memory(&self) -> (u64, u64) {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let of = |key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap();
            line.trim().trim_end_matches(" kB").parse::<u64>().unwrap()
        };
        (of("VmRSS:"), of("RssAnon:"))
    }

    fn told(&self, what: &str, than: Option<(u64, u64)>) -> (u64, u64) {
        let now = self.memory();
        let mib = |kib: u64| kib as f64 / 1024.0;
        let more = than.map_or_else(String::new, |before| {
            let more = |now: u64, before: u64| (now as f64 - before as f64) / 1024.0;
            format!("; {:+.1} MiB, {:+.1} MiB", more(now.0, before.0), more(now.1, before.1))
        });
        say(&format!("{what}: {:.1} MiB resident, {:.1} MiB of it anonymous{more}", mib(now.0), mib(now.1)));
        now
    }
}

struct Browser {
    address: String,
    cookie: String,
}

impl Browser {
    fn of(daemon: &Daemon) -> Browser {
        let token = daemon.ask("console.token.add", json!({ "name": "wang", "role": "approve" }))["token"].clone();
        let url = daemon.ask("status", json!({}))["console"].as_str().unwrap().to_owned();
        let address = url.trim_start_matches("http://").trim_end_matches('/').to_owned();
        let form = format!("token={}", token.as_str().unwrap());
        let mut browser = Browser { address, cookie: String::new() };
        let head = format!("Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n", form.len());
        let answer = browser.send("POST", "/login", &head, &form);
        let line =
            answer.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap_or_else(|| panic!("{answer}"));
        browser.cookie = line.split(';').next().unwrap().to_owned();
        browser
    }

    fn send(&self, method: &str, path: &str, headers: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        let (address, cookie) = (&self.address, &self.cookie);
        let head = format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nCookie: {cookie}\r\n");
        stream.write_all(format!("{head}{headers}\r\n{body}").as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        String::from_utf8(answer).unwrap()
    }

    fn page(&self, path: &str) -> (Duration, String) {
        let begun = Instant::now();
        let answer = self.send("GET", path, "Accept: text/html\r\n", "");
        let took = begun.elapsed();
        assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
        (took, answer)
    }

    /// The median of several, and what the page weighs.
    fn told(&self, what: &str, path: &str) {
        let mut times: Vec<(Duration, String)> = (0..TIMES).map(|_| self.page(path)).collect();
        times.sort();
        let (median, page) = &times[TIMES / 2];
        let (longest, _) = times.last().unwrap();
        let ms = |time: &Duration| time.as_secs_f64() * 1e3;
        let kib = page.len() as f64 / 1024.0;
        say(&format!("{what}: {:.0} ms (longest of {TIMES}: {:.0}), {kib:.1} KiB", ms(median), ms(longest)));
    }

    /// Looks for a word until there is nothing older.
    fn looks(&self, what: &str, word: &str) {
        let mut path = format!("/evidence?text={word}");
        let (mut looks, mut longest, mut first, mut rows) = (0, Duration::ZERO, None, 0);
        let begun = Instant::now();
        loop {
            let (took, page) = self.page(&path);
            looks += 1;
            longest = longest.max(took);
            rows += page.matches("<td><a href=\"/evidence/").count();
            first = first.or_else(|| (rows > 0).then(|| begun.elapsed()));
            let next = page.split("href=\"").skip(1).map(|link| link.split('"').next().unwrap());
            let next = next.filter(|link| link.starts_with("/evidence?") && link.contains("until=")).last();
            // A common word would go on for ten thousand pages.
            match next {
                Some(link) if looks < 40 => path = link.replace("&amp;", "&"),
                _ => break,
            }
        }
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        say(&format!(
            "search, {what}: {looks} looks in {:.0} ms, the longest {:.0} ms; {rows} rows, the first after {}",
            ms(begun.elapsed()),
            ms(longest),
            first.map_or_else(|| "never".to_owned(), |first| format!("{:.0} ms", ms(first))),
        ));
    }
}

/// 1,000 watches, wished for by an agent.
fn tasks(daemon: &Daemon) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_interlock"))
        .arg("--socket")
        .arg(daemon.home.join("s"))
        .arg("mcp")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut request = |id: usize, method: &str, params: Value| {
        writeln!(stdin, "{}", json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })).unwrap();
        loop {
            let message: Value = serde_json::from_str(&lines.next().unwrap()).unwrap();
            if message["id"] == id {
                return message;
            }
        }
    };
    let info = json!({ "name": "test", "version": "1" });
    request(0, "initialize", json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info }));
    for id in 1..=TASKS {
        let input = json!({ "device": "sensor-1", "duration_s": 3600, "period_s": 3600 });
        let answer = request(id, "tools/call", json!({ "name": "monitor", "arguments": input }));
        assert_ne!(answer["result"]["isError"], true, "{id}: {answer}");
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_thousand_tasks_and_a_million_rows() {
    if !asked("console") {
        return;
    }
    let home = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let state = home.path().join("state");
    let rows = asked_count(1_000_000);
    let begun = Instant::now();
    log(&state, rows);
    say(&format!("{rows} rows in {:.0} s", begun.elapsed().as_secs_f64()));

    let daemon = Daemon::start(home.path(), &state, "[console]\nenabled = false\n");
    let off = daemon.told("console off", None);
    for _ in 0..20 {
        daemon.ask("evidence.query", json!({ "limit": 100 }));
        daemon.ask("device.list", json!({}));
    }
    let asked = daemon.told("console off, after the same questions on the socket", Some(off));
    drop(daemon);

    let daemon = Daemon::start(home.path(), &state, "[console]\nlisten = \"127.0.0.1:0\"\n");
    daemon.told("console on, nobody there", Some(off));
    let browser = Browser::of(&daemon);
    browser.told("first page", "/");
    daemon.told("after first pages", Some(off));
    for path in ["/console.css", "/live.js"] {
        browser.told(path, path);
    }
    for (what, word) in [
        ("a common word", "often"),
        ("one row in a thousand", "thousandth"),
        ("the oldest row", "zeroth"),
        ("nowhere", "xyzzy"),
    ] {
        browser.looks(what, word);
    }
    daemon.told("after the searches", Some(off));
    for _ in 0..5 {
        for path in ["/", "/questions", "/tasks", "/devices", "/reviews", "/evidence", "/policy", "/health"] {
            browser.page(path);
        }
    }
    daemon.told("after all pages five times", Some(asked));
    let streams: Vec<TcpStream> = (0..8)
        .map(|_| {
            let mut stream = TcpStream::connect(&browser.address).unwrap();
            stream.set_read_timeout(Some(DEADLINE)).unwrap();
            let (address, cookie) = (&browser.address, &browser.cookie);
            write!(stream, "GET /events HTTP/1.1\r\nHost: {address}\r\nCookie: {cookie}\r\n\r\n").unwrap();
            stream.read_exact(&mut [0; 12]).unwrap();
            stream
        })
        .collect();
    daemon.told("with eight streams of events", Some(asked));
    drop(streams);

    tasks(&daemon);
    let list = daemon.ask("task.list", json!({}));
    let (all, one) = (list.as_array().unwrap().len(), list[0]["task"].as_str().unwrap());
    browser.told(&format!("overview with {all} tasks"), "/");
    browser.told(&format!("tasks, the first hundred of {all}"), "/tasks");
    browser.told("one task", &format!("/tasks/{one}"));
    browser.told("policy", "/policy");
    browser.told("evidence", "/evidence");
    browser.told("health", "/health");
    browser.told("devices", "/devices");
}

//! What the exporters cost: memory beside a daemon that tells nobody, and how fast a backlog goes out.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use interlock::record::{Row, Stamp, TimeQuality};
use interlock::store::queue::Entry;
use interlock::store::state::State;
use interlock::store::{Limits, Settings, Store};
use interlock_domain::time::{Tick, Wall};
use serde_json::{Value, json};

use crate::skips::skipped;
use crate::{asked, asked_count};

/// Alarms that the webhook is told of; the list of what stands has no more.
const ALARMS: u64 = 256;

/// Longer than this, it hangs.
const DEADLINE: Duration = Duration::from_secs(600);

/// How long a daemon is left alone before its memory is read.
const REST: Duration = Duration::from_secs(3);

#[expect(clippy::print_stdout, reason = "an experiment prints what it measured")]
fn say(text: &str) {
    println!("{text}");
}

#[expect(clippy::disallowed_methods, reason = "memory is read in quiet, and asking without a pause would be the load")]
fn rest(time: Duration) {
    std::thread::sleep(time);
}

/// A process that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn clock() -> Stamp {
    Stamp { mono: Tick(1), boottime_ns: 1, wall: Wall(1_764_500_000_000), quality: TimeQuality::Unknown }
}

/// A log of so many rows, and alarms that stand.
fn seed(state: &Path, rows: u64) {
    let settings = Settings {
        state: state.to_owned(),
        boot_id: "0b5c9f4e-8f5e-4f0e-9d55-2f6a2f1f7b11".to_owned(),
        version: "0.1.0".to_owned(),
        clock,
        limits: Limits::default(),
        algorithm: Default::default(),
    };
    let store = Store::open(&settings).unwrap().store;
    let writer = store.writer();
    for n in 2..=rows {
        let detail =
            json!({ "n": n, "text": "what happened, as long as such a row often is: a call, its input and its end" });
        let mut entry = Entry::relaxed(Row::new(clock(), "note").detailed(&detail));
        while let Err(back) = writer.append(entry) {
            entry = *back.entry;
            std::thread::yield_now();
        }
    }
    assert_eq!(store.close().unwritten, 0);
    let mut kept = State::open(state).unwrap();
    for n in 0..ALARMS {
        kept.raise_alarm(&format!("line-{n}"), "a belt is torn, and somebody should go there and look", Wall(1))
            .unwrap();
    }
}

/// Takes whatever is posted.
fn sink() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || while take(&stream).is_some() {});
        }
    });
    port
}

fn take(stream: &TcpStream) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
        if line == "\r\n" {
            break;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
    }
    std::io::copy(&mut reader.take(length), &mut std::io::sink()).ok()?;
    let mut stream = stream;
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").ok()
}

fn broker(home: &Path) -> Option<(Running, u16)> {
    let program = ["/usr/sbin/mosquitto", "/usr/bin/mosquitto"].into_iter().find(|path| Path::new(path).exists())?;
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let file = home.join("broker.conf");
    let text =
        format!("listener {port} 127.0.0.1\nallow_anonymous true\nmax_queued_messages 0\nmax_inflight_messages 0\n");
    std::fs::write(&file, text).unwrap();
    let child = Command::new(program).arg("-c").arg(&file).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let until = Instant::now() + DEADLINE;
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(Instant::now() < until, "the broker does not come");
        std::thread::yield_now();
    }
    Some((Running(child), port))
}

fn status(socket: &Path) -> Option<Value> {
    let mut stream = UnixStream::connect(socket).ok()?;
    writeln!(stream, "{}", json!({ "v": 1, "id": 1, "verb": "status", "args": {} })).ok()?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).ok()?;
    Some(serde_json::from_str::<Value>(&line).ok()?["ok"].clone())
}

/// A line of `/proc/PID/status`, in KiB.
fn memory(daemon: &Running, line: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{}/status", daemon.0.id())).unwrap();
    let found = text.lines().find_map(|found| found.strip_prefix(line)).unwrap();
    found.split_whitespace().next().unwrap().parse().unwrap()
}

/// What one daemon used at rest and at most, and how fast each of its receivers was told.
struct Measured {
    resident: u64,
    most: u64,
    speeds: Vec<(String, f64)>,
}

fn measure(rows: u64, tables: &str) -> Measured {
    let home = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let at = |name: &str| -> PathBuf { home.path().join(name) };
    seed(&at("state"), rows);
    std::fs::write(at("secret"), "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n").unwrap();
    let text = format!("version = 1\n{}", tables.replace("SECRET", at("secret").to_str().unwrap()));
    std::fs::write(at("interlock.toml"), text).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_interlock"));
    command.arg("--socket").arg(at("s")).arg("run").arg("--state").arg(at("state"));
    command.arg("--config").arg(at("interlock.toml")).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let daemon = Running(command.spawn().unwrap());
    let (begun, mut ready, mut speeds) = (Instant::now(), None, Vec::new());
    loop {
        assert!(begun.elapsed() < DEADLINE, "it does not end: {:?}", status(&at("s")));
        let Some(now) = status(&at("s")) else { continue };
        let since = *ready.get_or_insert_with(Instant::now);
        let export = now["export"].as_object().cloned().unwrap_or_default();
        for (sink, standing) in &export {
            let arrived = standing["arrived"].as_u64().unwrap();
            let wanted = if sink == "webhook" { ALARMS } else { rows };
            if arrived >= wanted && !speeds.iter().any(|(known, _)| known == sink) {
                #[expect(clippy::cast_precision_loss, reason = "a count of rows")]
                speeds.push((sink.clone(), arrived as f64 / since.elapsed().as_secs_f64()));
            }
        }
        if speeds.len() == export.len() {
            break;
        }
        rest(Duration::from_millis(20));
    }
    rest(REST);
    Measured { resident: memory(&daemon, "VmRSS:"), most: memory(&daemon, "VmHWM:"), speeds }
}

/// 50,000 rows (or `INTERLOCK_EXPERIMENT_COUNT`) that wait, and 256 alarms that stand.
#[test]
fn figures() {
    if !asked("export-figures") {
        return;
    }
    let rows = asked_count(50_000);
    let home = tempfile::tempdir().unwrap();
    let Some((_broker, port)) = broker(home.path()) else { return skipped("export-figures", "no mosquitto of Debian") };
    let http = sink();
    let common = "device = \"box-1\"\n";
    let backlog = "rate = 100000\nbacklog-max = 10000000\n";
    let mqtt = format!("[export.mqtt]\nbroker = \"mqtt://127.0.0.1:{port}\"\n{common}{backlog}");
    let otlp = format!("[export.otlp]\nendpoint = \"http://127.0.0.1:{http}\"\n{common}{backlog}");
    let webhook = format!("[export.webhook]\nurl = \"http://127.0.0.1:{http}/\"\nsecret-file = \"SECRET\"\n{common}");
    let all = format!("{mqtt}{otlp}{webhook}");
    let build = if cfg!(debug_assertions) { "debug" } else { "release" };
    say(&format!("{rows} rows, {ALARMS} alarms, {build}; KiB resident at rest and at most, beside nobody told"));
    let none = measure(rows, "");
    say(&format!("nobody: {} at rest, {} at most", none.resident, none.most));
    for (name, tables) in [("mqtt", &mqtt), ("otlp", &otlp), ("webhook", &webhook), ("all", &all)] {
        let found = measure(rows, tables);
        let beside = |with: u64, without: u64| i64::try_from(with).unwrap() - i64::try_from(without).unwrap();
        let speeds: Vec<String> = found.speeds.iter().map(|(sink, speed)| format!("{sink} {speed:.0}/s")).collect();
        say(&format!(
            "{name}: {:+} at rest, {:+} at most; {}",
            beside(found.resident, none.resident),
            beside(found.most, none.most),
            speeds.join(", ")
        ));
    }
}

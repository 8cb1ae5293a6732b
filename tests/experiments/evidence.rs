//! What the evidence log costs, and what a large one costs a start and a reader.

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use interlock::engine::supervisor::{Finished, Heart, TaskSpec};
use interlock::record::{Row, Stamp, TimeQuality, kind};
use interlock::store::chain::Algorithm;
use interlock::store::queue::{Entry, NotTaken};
use interlock::store::read::{self, Query};
use interlock::store::verify::verify;
use interlock::store::{Limits, Settings, Store};
use interlock_domain::surface::outputs::Outputs;
use interlock_domain::time::{Tick, Wall};

use crate::article::House;
use crate::skips::skipped;
use crate::{asked, asked_count};

#[expect(clippy::print_stdout, reason = "an experiment prints what it measured")]
fn say(text: &str) {
    println!("{text}");
}

#[test]
fn figures() {
    if !asked("evidence-figures") {
        return;
    }
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let figures = interlock::bench::evidence::run(dir.path()).unwrap();
    say(&format!("{:#}", figures.to_json()));
}

fn clock() -> Stamp {
    Stamp { mono: Tick(1), boottime_ns: 1, wall: Wall(1_764_500_000_000), quality: TimeQuality::Unknown }
}

fn settings(state: &Path) -> Settings {
    Settings {
        state: state.to_owned(),
        boot_id: "0b5c9f4e-8f5e-4f0e-9d55-2f6a2f1f7b11".to_owned(),
        version: "0.1.0".to_owned(),
        clock,
        limits: Limits::default(),
        algorithm: Algorithm::default(),
    }
}

/// Time on the wall, and of this thread on a processor: on a busy machine only the second says what something costs.
fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration, Duration) {
    let on_cpu = || {
        let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
        Duration::from_nanos(stat.split(' ').next().unwrap().parse().unwrap())
    };
    let (begun, cpu) = (Instant::now(), on_cpu());
    let result = work();
    (result, begun.elapsed(), on_cpu() - cpu)
}

/// How long the daemon takes on a copy of such a log, from its start to its READY.
fn daemon_on(left: &Path, dir: &Path) {
    let state = dir.join("daemon");
    assert!(std::process::Command::new("cp").arg("-r").arg(left).arg(&state).status().unwrap().success());
    let wal: u64 = std::fs::read_dir(state.join("evidence"))
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.file_name().to_string_lossy().ends_with("-wal"))
        .map(|entry| entry.metadata().unwrap().len())
        .sum();
    let (notify, config) = (dir.join("notify"), dir.join("interlock.toml"));
    std::fs::write(&config, "version = 1\n").unwrap();
    let listener = std::os::unix::net::UnixDatagram::bind(&notify).unwrap();
    listener.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let begun = Instant::now();
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_interlock"))
        .arg("--socket")
        .arg(dir.join("interlock.sock"))
        .arg("run")
        .arg("--state")
        .arg(&state)
        .arg("--config")
        .arg(&config)
        .env("NOTIFY_SOCKET", &notify)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let mut message = [0; 4096];
    let ready = loop {
        let length = listener.recv(&mut message).unwrap();
        if message[..length].starts_with(b"READY=1") {
            break begun.elapsed();
        }
    };
    say(&format!(
        "daemon: READY after {:.0} ms, with {:.1} MB of hot write-ahead log",
        ready.as_secs_f64() * 1e3,
        wal as f64 / 1e6
    ));
    // The reading of the whole log goes on behind it.
    let verified = loop {
        let query = Query { kind: Some(kind::VERIFIED.into()), ..Query::default() };
        if let Some(row) = read::query(&state, &query).ok().and_then(|rows| rows.into_iter().next()) {
            break row.row.to.unwrap_or_default();
        }
        assert!(begun.elapsed() < Duration::from_secs(120));
        std::thread::park_timeout(Duration::from_millis(50));
    };
    say(&format!("daemon: the log was verified beside it ({verified}) after {:.1} s", begun.elapsed().as_secs_f64()));
    child.kill().unwrap();
    child.wait().unwrap();
}

/// What a day of 1,000 tasks writes to the disk: each begins, is stopped and is cleaned once a day, evenly spread.
///
/// Compressed: the day goes on as soon as the rows of one such moment are durable, and in the pauses is done what the
/// day would do: the kernel writes the head back when it was not for 35 s, and the log syncs head and checkpoints once
/// in 60 s. Runs in each `cargo test` with few tasks, because a row that is committed alone by mistake, or a sync too
/// many, is not seen otherwise; `evidence-wear` asks for more of them. In a process of its own: the kernel counts what a
/// process writes, and the tests beside this one write too.
#[test]
fn a_day_of_a_thousand_tasks_writes_less_than_50_mb() {
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "evidence::child_that_lives_a_day", "--nocapture", "--test-threads=1"])
        .env(A_DAY, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    say(said.trim_end());
    assert!(output.status.success() && said.contains("tasks: "), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Set for the child of the test above.
const A_DAY: &str = "INTERLOCK_TEST_A_DAY";

#[test]
fn child_that_lives_a_day() {
    const NAME: &str = "evidence::a_day_of_a_thousand_tasks_writes_less_than_50_mb";
    if std::env::var_os(A_DAY).is_none() {
        return;
    }
    const BETWEEN_S: f64 = 86_400.0 / 3_000.0;
    let tasks = if asked("evidence-wear") { asked_count(500) } else { 30 };
    let written = || {
        let io = std::fs::read_to_string("/proc/self/io").unwrap();
        let line = io.lines().find_map(|line| line.strip_prefix("write_bytes: ")).unwrap();
        line.parse::<u64>().unwrap()
    };
    let house = House::new();
    let head = std::fs::File::open(house.dir.path().join("evidence/head")).unwrap();
    let mut checkpoints = std::fs::File::create(house.dir.path().join("checkpoints of a day")).unwrap();
    let mut acks = house.store.writer().acks();
    let mut upto = acks.borrow().seq.0;
    let (mut now, mut dirty, mut synced, mut commits) = (0.0_f64, None, 0.0_f64, 0);
    // Waits until so many more rows are durable, then lets the time until the next ones pass.
    let mut moment = |rows: u64| {
        upto += rows;
        house.runtime.block_on(acks.wait_for(|acks| acks.seq.0 >= upto)).unwrap();
        upto = acks.borrow().seq.0;
        commits += 1;
        dirty.get_or_insert(now);
        now += BETWEEN_S;
        if now - synced >= 60.0 {
            checkpoints.write_all(&[b'c'; 250]).unwrap();
            checkpoints.sync_data().unwrap();
            head.sync_data().unwrap();
            (dirty, synced) = (None, now);
        } else if dirty.is_some_and(|since| now - since >= 35.0) {
            head.sync_data().unwrap();
            dirty = None;
        }
    };
    let none = Arc::new(Outputs::new(&serde_json::json!({ "type": "object" })).unwrap());
    let before = written();
    for n in 0..tasks {
        let rest = |heart: Heart| {
            while heart.rest(Duration::from_secs(3600)) {}
            Finished::Stopped(serde_json::Value::Null)
        };
        let spec = TaskSpec::new(format!("watches sensor-{n}.temperature"), "");
        let key = house.runtime.block_on(house.tasks.spawn(spec, Arc::clone(&none), rest)).unwrap().unwrap();
        moment(1);
        house.supervisor.stop(key.task).wait(Duration::from_secs(20)).unwrap().unwrap();
        moment(2);
        house.supervisor.clean(key.task).wait(Duration::from_secs(20)).unwrap().unwrap();
        moment(1);
    }
    let all = written() - before;
    let dir = house.end();
    let rows = read::stats(dir.path()).unwrap().rows;
    let day = all as f64 * 1_000.0 / tasks as f64 / 1e6;
    say(&format!(
        "{tasks} tasks: {rows} rows in {commits} commits, {:.1} MB, {:.1} KB a commit with heads and checkpoints; a day of \
         1,000 tasks: {day:.1} MB (goal 50)",
        all as f64 / 1e6,
        all as f64 / 1e3 / f64::from(commits),
    ));
    if all == 0 {
        return skipped(NAME, "writes to this disk are not counted");
    }
    assert!(day < 50.0, "{day:.1} MB a day");
}

/// A log of 512 MB (or `INTERLOCK_EXPERIMENT_COUNT` MB) that was left by `kill -9`, with a hot write-ahead log.
#[test]
fn a_large_log() {
    if !asked("evidence-large") {
        return;
    }
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let state = dir.path().join("state");
    let rows = asked_count(512) * 1024 * 1024 / 270;
    let store = Store::open(&settings(&state)).unwrap().store;
    let writer = store.writer();
    let call = "01KBA6AK800000000000000007.3.0".parse().unwrap();
    writer.append(Entry::relaxed(Row::new(clock(), "intent").of_call(call))).unwrap();
    for n in 0..rows {
        let row = Row::new(clock(), "note").of_call(call).detailed(&serde_json::json!({ "n": n, "value": 48.5 }));
        let mut entry = Entry::relaxed(Row { kind: kind::LATE_REPORT.into(), ..row });
        while let Err(NotTaken { entry: back, .. }) = writer.append(entry) {
            entry = *back;
            std::thread::yield_now();
        }
    }
    writer.append_durable(Row::new(clock(), "note")).unwrap();
    // As a kill leaves it: a copy while it is open.
    let left = dir.path().join("left");
    assert!(std::process::Command::new("cp").arg("-r").arg(&state).arg(&left).status().unwrap().success());
    store.close();
    let stats = read::stats(&left).unwrap();
    say(&format!("{} rows in {} segments, {} MB", stats.rows, stats.segments, stats.bytes / 1_000_000));
    let report = |what: &str, wall: Duration, cpu: Duration, rows: u64| {
        let per_s =
            if rows == 0 { String::new() } else { format!(", {:.0} rows/s of CPU", rows as f64 / cpu.as_secs_f64()) };
        say(&format!("{what}: {:.0} ms, {:.0} ms of CPU{per_s}", wall.as_secs_f64() * 1e3, cpu.as_secs_f64() * 1e3));
    };
    daemon_on(&left, dir.path());
    let (found, wall, cpu) = timed(|| verify(&left).unwrap());
    report(&format!("verify ({})", found.verdict.as_str()), wall, cpu, found.rows);
    let (opened, wall, cpu) = timed(|| Store::open(&settings(&left)).unwrap());
    assert_eq!(opened.open_calls.len(), 1);
    report("open", wall, cpu, 0);
    opened.store.close();
    let (_, wall, cpu) = timed(|| read::tail(&left, 100).unwrap());
    report("tail of 100", wall, cpu, 0);
    let (found, wall, cpu) = timed(|| read::query(&left, &Query { text: Some("nowhere".into()), ..Query::default() }));
    report(
        &format!("text that is nowhere ({})", found.map_or_else(|e| e.to_string(), |_| "read".into())),
        wall,
        cpu,
        0,
    );
    let (_, wall, cpu) = timed(|| read::stats(&left).unwrap());
    report("stats", wall, cpu, 0);
}

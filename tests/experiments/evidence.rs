//! What the evidence log costs, and what a large one costs a start and a reader.

use std::path::Path;
use std::time::{Duration, Instant};

use interlock::record::{Row, Stamp, TimeQuality, kind};
use interlock::store::chain::Algorithm;
use interlock::store::queue::{Entry, NotTaken};
use interlock::store::read::{self, Query};
use interlock::store::verify::verify;
use interlock::store::{Limits, Settings, Store};
use interlock_domain::time::{Tick, Wall};

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
        let mut entry = Entry::relaxed(Row { kind: kind::RESOLVED.into(), ..row });
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

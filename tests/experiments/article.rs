//! The article's other experiments, beside its own figures and beside a plain Python version of its protocol that is
//! measured in the same run: evidence of 100 tasks, overhead of one task, what 10 to 10,000 threads cost, and sessions
//! as ZooKeeper has them against beats with a progress counter.

#![expect(clippy::print_stdout, reason = "an experiment prints its table")]

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use interlock::engine::keeper;
use interlock::engine::supervisor::{Finished, Settings, Supervisor, TaskSpec};
use interlock::engine::tasks::{self, Tasks};
use interlock::store::chain::Algorithm;
use interlock::store::read::{self, Query};
use interlock::store::state::State as Kept;
use interlock::store::{Limits, Store};
use interlock::sys;
use interlock_domain::id::{TaskId, WorkerKey};
use interlock_domain::liveness::judge::Limits as Patience;
use interlock_domain::liveness::lifecycle::{Notice, State};
use interlock_domain::surface::outputs::Outputs;
use interlock_domain::time::Tick;
use serde_json::{Value, json};

use crate::asked;

const MS: Duration = Duration::from_millis(1);
const WAIT: Duration = Duration::from_secs(20);

fn python(arguments: &[&str]) -> Value {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/experiments/reliharness.py");
    let output = Command::new("python3").arg(script).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn supervisor(limits: Patience, workers_max: usize) -> (Supervisor, std::sync::mpsc::Receiver<Notice>) {
    let (sender, notices) = sync_channel(200_000);
    let offer = move |notice| {
        sender.try_send(notice).map_err(|error| match error {
            std::sync::mpsc::TrySendError::Full(notice) | std::sync::mpsc::TrySendError::Disconnected(notice) => notice,
        })
    };
    (Supervisor::start(Settings { limits, workers_max, ..Settings::default() }, Box::new(offer)).unwrap(), notices)
}

/// A supervisor whose notices become evidence, as in the daemon.
pub(crate) struct House {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) store: Store,
    pub(crate) supervisor: Supervisor,
    pub(crate) tasks: Tasks,
    owner: std::thread::JoinHandle<()>,
    pub(crate) runtime: tokio::runtime::Runtime,
}

impl House {
    pub(crate) fn new() -> House {
        House::with(Patience::default(), None)
    }

    /// With limits of its own, and a second reader of the notices.
    fn with(limits: Patience, copy: Option<std::sync::mpsc::SyncSender<Notice>>) -> House {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let settings = interlock::store::Settings {
            state: dir.path().to_owned(),
            boot_id: "0b5c9f4e-8f5e-4f0e-9d55-2f6a2f1f7b11".to_owned(),
            version: "0.1.0".to_owned(),
            clock: interlock::engine::stamp::now,
            limits: Limits::default(),
            algorithm: Algorithm::default(),
        };
        let store = Store::open(&settings).unwrap().store;
        let (keeper, _kept) = keeper::start(Kept::open(dir.path()).unwrap()).unwrap();
        let (offer, notices) = tasks::channel();
        let offer = move |notice: Notice| {
            let again = copy.as_ref().map(|_| notice.clone());
            offer.try_send(notice).map_err(tokio::sync::mpsc::error::TrySendError::into_inner)?;
            if let (Some(copy), Some(again)) = (&copy, again) {
                copy.try_send(again).unwrap();
            }
            Ok(())
        };
        let settings = Settings { limits, workers_max: 20_000, ..Settings::default() };
        let supervisor = Supervisor::start(settings, Box::new(offer)).unwrap();
        let (tasks, owner) = Tasks::new(supervisor.clone(), notices, store.writer(), keeper, TaskId(1));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        House { dir, store, supervisor, tasks, owner: owner.start().unwrap(), runtime }
    }

    /// Waits until all workers have ended and all that was said is written.
    pub(crate) fn end(self) -> tempfile::TempDir {
        let until = Instant::now() + WAIT;
        while self.supervisor.figures().living > 0 && Instant::now() < until {
            std::thread::yield_now();
        }
        drop(self.tasks);
        self.supervisor.end();
        drop(self.supervisor);
        self.owner.join().unwrap();
        self.store.close();
        self.dir
    }
}

/// 100 tasks that end as they should: is every event of their lives in the log, and what is each of their parameters?
#[test]
fn evidence() {
    if !asked("liveness-evidence") {
        return;
    }
    let house = House::new();
    let schema = json!({ "type": "object", "required": ["count", "mean", "unit", "ok"], "properties": {
        "count": { "type": "integer", "minimum": 0 }, "mean": { "type": "number", "minimum": 0, "maximum": 100 },
        "unit": { "enum": ["Hz", "bar"] }, "ok": { "type": "boolean" },
    } });
    let promised = Arc::new(Outputs::new(&schema).unwrap());
    // As the article's outputs were: most as declared, some that fit once normalized, 7 of 100 of another type.
    for n in 0..100_u64 {
        let output = match n % 100 {
            0..70 => json!({ "count": n, "mean": 48.5, "unit": "Hz", "ok": true }),
            70..93 => json!({ "count": n.to_string(), "mean": "48.5", "unit": "hz", "ok": "true" }),
            _ => json!({ "count": [n], "mean": 48.5, "unit": "Hz", "ok": true }),
        };
        let born = house.tasks.spawn(TaskSpec::new(format!("t{n}"), ""), Arc::clone(&promised), move |heart| {
            heart.progress(n);
            Finished::Done(output)
        });
        house.runtime.block_on(born).unwrap().unwrap();
    }
    let dir = house.end();
    let rows = |kind: &str| {
        let query = Query { kind: Some(kind.to_owned()), limit: Some(10_000), ..Query::default() };
        read::query(dir.path(), &query).unwrap()
    };
    let lifecycle = rows("lifecycle");
    let (born, ended): (Vec<_>, Vec<_>) = lifecycle.iter().partition(|row| row.row.from.is_none());
    let (mut valid, mut normalized, mut invalid) = (0, 0, 0);
    for row in rows("validity") {
        let detail: Value = serde_json::from_str(row.row.detail.as_deref().unwrap()).unwrap();
        let count = |key: &str| detail[key].as_array().unwrap().len();
        valid += count("valid");
        normalized += count("normalized");
        invalid += count("invalid");
    }
    let verdict = interlock::store::verify::verify(dir.path()).unwrap().verdict;
    let all = valid + normalized + invalid;
    let theirs = python(&["tasks", "100"]);
    println!("{:<44} {:>8} {:>8} {:>8}", "", "article", "python", "ours");
    let events = |part: u64, of: u64| format!("{part}/{of}");
    let python_events = events(theirs["events"].as_u64().unwrap(), theirs["expected"].as_u64().unwrap());
    let ours = events((born.len() + ended.len()) as u64, 200);
    println!("{:<44} {:>8} {python_events:>8} {ours:>8}", "lifecycle events of 100 tasks in the log", "100 %");
    let percent = |part: usize| format!("{:.1} %", part as f64 * 100.0 / all as f64);
    println!(
        "{:<44} {:>8} {:>8} {:>8}",
        "parameters that fit, normalized or not",
        "93 %",
        "-",
        percent(valid + normalized)
    );
    println!("{:<44} {:>8} {:>8} {:>8}", "  of these as they came", "-", "-", percent(valid));
    println!("{:<44} {:>8} {:>8} {:>8}", "parameters of another type, each named", "7 %", "-", percent(invalid));
    println!("the log is {} (the article's log has nothing to hold it against)", verdict.as_str());
}

/// What the framework adds to one task, split into its log and its beats.
#[test]
fn overhead() {
    if !asked("liveness-overhead") {
        return;
    }
    const TASKS: u32 = 2_000;
    let house = House::new();
    let writer = house.store.writer();
    let us = |time: Duration| time.as_secs_f64() * 1e6 / f64::from(TASKS);
    // On one thread: the parts that the thread of the task pays for.
    let began = Instant::now();
    for _ in 0..TASKS {
        let row = interlock::record::Row::new(interlock::engine::stamp::now(), "note");
        writer.append_or_count(interlock::store::queue::Entry::relaxed(row));
    }
    let log = us(began.elapsed());
    let (tell, told) = sync_channel(1);
    let beating = house.supervisor.spawn(TaskSpec::new("beats", ""), move |heart| {
        let best = (0..200).map(|_| {
            let began = Instant::now();
            for _ in 0..TASKS {
                heart.beat();
            }
            began.elapsed()
        });
        tell.send(best.min().unwrap()).unwrap();
        Finished::Done(Value::Null)
    });
    beating.wait(WAIT).unwrap().unwrap();
    let beat = us(told.recv_timeout(WAIT).unwrap());
    house.end();
    let theirs = python(&["tasks", "20000"]);
    let basis = python(&["50", "1", "0.5"]);
    println!("{:<36} {:>9} {:>9} {:>9}", "us of a task's own thread", "article", "python", "ours");
    let of = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
    println!("{:<36} {:>9} {:>9.3} {log:>9.3}", "one row or line of the log", "2.9", of(&basis["log_ns"]) / 1000.0);
    println!("{:<36} {:>9} {:>9.3} {beat:>9.4}", "one beat", "0.7", of(&basis["heartbeat_ns"]) / 1000.0);
    println!("{:<36} {:>9} {:>9.3} {:>9.3}", "both, for each task", "3.6", of(&theirs["added_us"]), log + beat);
    println!(
        "(ours: a row is handed to the log's writer and becomes durable there; theirs is a line in a buffer of the kernel)"
    );
}

/// CPU, memory, log, death and silence of 10, 100, 1,000 and 10,000 watched threads, whose notices become evidence.
#[test]
fn scale() {
    if !asked("liveness-scale") {
        return;
    }
    println!(
        "threads   scan us   CPU % (ours)   CPU % (python, whole)   MiB ours   MiB python   KiB of log for the births   log B/s at rest   (python)   death ms p50   hang after tau ms max"
    );
    let written = || {
        let io = std::fs::read_to_string("/proc/self/io").unwrap();
        let line = io.lines().find_map(|line| line.strip_prefix("write_bytes: ")).unwrap();
        line.parse::<u64>().unwrap() as f64
    };
    for count in [10_usize, 100, 1_000, 10_000] {
        let rss = || sys::machine::resident_bytes().unwrap_or(0) as f64 / f64::from(1 << 20);
        let patience = Patience { tau: MS * 2000, ..Patience::default() };
        let (copy, notices) = sync_channel(200_000);
        let house = House::with(patience, Some(copy));
        let supervisor = house.supervisor.clone();
        // One has lived before: what belongs to the process is there.
        let first = supervisor.spawn(TaskSpec::new("first", ""), |_| Finished::Done(Value::Null));
        first.wait(WAIT).unwrap().unwrap();
        std::thread::park_timeout(MS * 300);
        let (before, written_before) = (rss(), written());
        let spec = |name: &str| TaskSpec { stack: 64 * 1024, ..TaskSpec::new(name, "") };
        let mut living = 0;
        for _ in 0..count {
            let rest = |heart: interlock::engine::supervisor::Heart| {
                while heart.rest(MS * 1000) {}
                Finished::Stopped(Value::Null)
            };
            living += usize::from(supervisor.spawn(spec("rests"), rest).wait(WAIT).unwrap().is_ok());
        }
        std::thread::park_timeout(MS * 1500);
        let memory = rss() - before;
        let births_kib = (written() - written_before) / 1024.0;
        let (cpu, began, written_before) = (supervisor.figures().cpu_ns, Instant::now(), written());
        std::thread::park_timeout(MS * 4000);
        let at_rest = (written() - written_before) / began.elapsed().as_secs_f64();
        let share = (supervisor.figures().cpu_ns - cpu) as f64 / began.elapsed().as_nanos() as f64 * 100.0;
        let scan_us = supervisor.figures().last_scan_ns as f64 / 1000.0;
        notices.try_iter().for_each(drop);
        // Twenty deaths and twenty hangs among them.
        let mut parts: BTreeMap<WorkerKey, (bool, Arc<AtomicU64>)> = BTreeMap::new();
        let over = Arc::new(AtomicBool::new(false));
        for n in 0..40_u64 {
            let (stamp, dies, over) = (Arc::new(AtomicU64::new(0)), n % 2 == 0, Arc::clone(&over));
            let last = Arc::clone(&stamp);
            let born = supervisor.spawn(spec("part"), move |heart| {
                std::thread::park_timeout(MS * u32::try_from(n * 37 % 1000).unwrap());
                heart.beat();
                last.store(sys::clock::now().0, Ordering::Release);
                if dies {
                    sys::thread::raw_exit();
                }
                while !over.load(Ordering::Acquire) {
                    std::thread::park_timeout(MS * 50);
                }
                Finished::Done(Value::Null)
            });
            parts.insert(born.wait(WAIT).unwrap().unwrap(), (dies, stamp));
        }
        let (mut deaths, mut hangs) = (Vec::new(), Vec::new());
        let until = Instant::now() + MS * 6000;
        while let Ok(notice) = notices.recv_timeout(until.saturating_duration_since(Instant::now())) {
            let now = sys::clock::now();
            let Some((dies, stamp)) = notice.key.and_then(|key| parts.get(&key)) else { continue };
            let since = now.since(Tick(stamp.load(Ordering::Acquire))).as_secs_f64() * 1000.0;
            match (dies, notice.to) {
                (true, Some(State::Dead)) => deaths.push(since),
                (false, Some(State::Zombie)) if notice.from == Some(State::Running) => hangs.push(since - 2000.0),
                _ => {}
            }
        }
        over.store(true, Ordering::Release);
        supervisor.stop_all().wait(WAIT).unwrap();
        let until = Instant::now() + WAIT;
        while supervisor.figures().living > 0 && Instant::now() < until {
            std::thread::park_timeout(MS * 10);
        }
        drop(supervisor);
        house.end();
        deaths.sort_by(f64::total_cmp);
        let worst = hangs.iter().copied().fold(f64::NAN, f64::max);
        // Ten thousand Python threads take minutes.
        let theirs = if count <= 1_000 { python(&["scale", &count.to_string(), "4"]) } else { Value::Null };
        let of = |key: &str| theirs[key].as_f64().map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"));
        println!(
            "{living:>7}   {scan_us:>7.1}   {share:>12.3}   {:>21}   {memory:>8.1}   {:>10}   {births_kib:>25.0}   {at_rest:>15.0}   {:>8}   {:>12.3}   {worst:>12.1}  ({} of 20, {} of 20)",
            of("cpu_percent"),
            of("rss_mib"),
            of("log_bytes_per_s"),
            deaths.get(deaths.len() / 2).copied().unwrap_or(f64::NAN),
            deaths.len(),
            hangs.len(),
        );
    }
    println!(
        "article: 0.15 to 0.48 % of a core and 20 to 89 MB for 10 to 1,000 threads; a log below some hundred bytes a second; up to a scan of 5 s; 8.32 s at tau 5 s"
    );
    println!("ours with the stacks of the threads, which only hold what they touched");
}

/// Deadlocked against slow tasks, and sessions against beats with a counter. Time is compressed five times: tau 5 s is
/// 1 s here, a session's 30 s is 6 s, and a slow task is silent for up to 20 s, here 4 s.
#[test]
fn sessions() {
    if !asked("liveness-sessions") {
        return;
    }
    println!("time is compressed five times; the figures are in the article's seconds");
    println!(
        "                              tau s   false alarms of 20 slow   found of 10   latest after the last beat s"
    );
    let run = |tau: Duration, counts: bool| {
        let patience = Patience { tau, scan: MS * 200, scans: 2 };
        let (supervisor, notices) = supervisor(patience, 1_000);
        let mut parts: BTreeMap<WorkerKey, (bool, Arc<AtomicU64>)> = BTreeMap::new();
        let over = Arc::new(AtomicBool::new(false));
        for n in 0..30_u64 {
            let (slow, stamp, over) = (n < 20, Arc::new(AtomicU64::new(0)), Arc::clone(&over));
            let last = Arc::clone(&stamp);
            let born = supervisor.spawn(TaskSpec::new("part", ""), move |heart| {
                std::thread::park_timeout(MS * u32::try_from(n * 61 % 400).unwrap());
                heart.beat();
                last.store(sys::clock::now().0, Ordering::Release);
                let (mut done, mut beat_at) = (0, Instant::now());
                while !over.load(Ordering::Acquire) {
                    std::thread::park_timeout(MS * 100);
                    if slow {
                        done += 1;
                        if counts {
                            heart.progress(done);
                        }
                        // A beat only every four seconds: the work in between knows nothing of beats.
                        if beat_at.elapsed() >= MS * 4000 {
                            heart.beat();
                            beat_at = Instant::now();
                        }
                    }
                }
                Finished::Done(Value::Null)
            });
            parts.insert(born.wait(WAIT).unwrap().unwrap(), (slow, stamp));
        }
        let (mut wrong, mut found, mut latest) = (0, 0, 0.0_f64);
        let until = Instant::now() + tau + MS * 6000;
        let mut seen = std::collections::BTreeSet::new();
        while let Ok(notice) = notices.recv_timeout(until.saturating_duration_since(Instant::now())) {
            let zombie = notice.to == Some(State::Zombie) && notice.from == Some(State::Running);
            let Some((slow, stamp)) = notice.key.filter(|_| zombie).and_then(|key| parts.get(&key)) else { continue };
            if !seen.insert(notice.key) {
                continue;
            }
            if *slow {
                wrong += 1;
            } else {
                found += 1;
                latest = latest.max(notice.at.since(Tick(stamp.load(Ordering::Acquire))).as_secs_f64() * 5.0);
            }
        }
        over.store(true, Ordering::Release);
        std::thread::park_timeout(MS * 300);
        supervisor.end();
        (wrong, found, latest)
    };
    let row = |what: &str, tau_ms: u32, counts: bool| {
        let (wrong, found, latest) = run(MS * tau_ms, counts);
        println!("{what:<28} {:>6.0}   {wrong:>23}   {found:>11}   {latest:>12.2}", f64::from(tau_ms) / 200.0);
    };
    row("beats and progress (ours)", 1000, true);
    row("a session, as short", 1000, false);
    row("a session, safe", 6000, false);
    println!("article: 8.32 s with tau 5 s, 33.27 s with a session of 30 s");
    let theirs = python(&["slow", "50", "2", "1"]);
    println!("python, 50 deadlocked against 50 slow: {theirs}; the article: 50 found, 0 false alarms");
}

//! The paper's experiments on liveness, and those that a plant would do to us.
//!
//! The paper (ReliHarness, Electronics) ran on another machine: its figures are printed for orientation only. What is
//! compared is a plain Python version of its protocol, measured in the same run on this machine.

#![expect(clippy::print_stdout, reason = "an experiment prints its table")]

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use interlock::engine::supervisor::{Finished, Heart, Settings, Supervisor, TaskSpec};
use interlock::sys;
use interlock_domain::id::WorkerKey;
use interlock_domain::liveness::judge::Limits;
use interlock_domain::liveness::lifecycle::{Cause, Notice, State};
use interlock_domain::time::Tick;
use serde_json::Value;

use crate::asked;

const MS: Duration = Duration::from_millis(1);
const PATIENCE: Duration = Duration::from_secs(20);

fn supervisor(limits: Limits) -> (Supervisor, Receiver<Notice>) {
    let (sender, notices) = sync_channel(100_000);
    let offer = move |notice| {
        sender.try_send(notice).map_err(|error| match error {
            TrySendError::Full(notice) | TrySendError::Disconnected(notice) => notice,
        })
    };
    (Supervisor::start(Settings { limits, ..Settings::default() }, Box::new(offer)).unwrap(), notices)
}

fn spawn(supervisor: &Supervisor, tau: Duration, work: impl FnOnce(Heart) -> Finished + Send + 'static) -> WorkerKey {
    let spec = TaskSpec { tau: Some(tau), stack: 64 * 1024, ..TaskSpec::new("experiment", "") };
    supervisor.spawn(spec, work).wait(PATIENCE).unwrap().unwrap()
}

/// The notices of so much time.
fn listen(notices: &Receiver<Notice>, time: Duration) -> Vec<Notice> {
    let until = Instant::now() + time;
    let mut heard = Vec::new();
    while let Ok(notice) = notices.recv_timeout(until.saturating_duration_since(Instant::now())) {
        heard.push(notice);
    }
    heard
}

fn stopped() -> Finished {
    Finished::Stopped(Value::Null)
}

/// Beats at random gaps below `gap_ms` until it is told to stop.
fn beat_at_random(heart: &Heart, seed: u64, gap_ms: u64) -> Finished {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut next = Instant::now();
    while !heart.should_stop() {
        std::thread::park_timeout(next.saturating_duration_since(Instant::now()));
        if Instant::now() >= next {
            heart.beat();
            next = Instant::now() + MS * u32::try_from(random.u64(1..gap_ms)).unwrap();
        }
    }
    stopped()
}

/// Fault coverage with both channels, and with each alone; and the sweep of tau. 50 tasks of each kind; a minute.
#[test]
fn paper() {
    if !asked("liveness-paper") {
        return;
    }
    let tau = Duration::from_secs(5);
    let (supervisor, notices) = supervisor(Limits { tau, ..Limits::default() });
    let lock = Arc::new(Mutex::new(()));
    let held = lock.lock().unwrap();
    let mut parts: BTreeMap<WorkerKey, &str> = BTreeMap::new();
    let mut last_beat: BTreeMap<WorkerKey, Arc<AtomicU64>> = BTreeMap::new();
    for n in 0..50_u64 {
        for kind in ["deadlocked", "crashed", "normal", "slow"] {
            let (lock, beat) = (Arc::clone(&lock), Arc::new(AtomicU64::new(sys::clock::now().0)));
            let stamp = Arc::clone(&beat);
            let key = spawn(&supervisor, tau, move |heart| {
                let turns = Instant::now() + MS * u32::try_from(n * 40).unwrap();
                while Instant::now() < turns {
                    heart.beat();
                    stamp.store(sys::clock::now().0, Ordering::Release);
                    std::thread::park_timeout(MS * 20);
                }
                match kind {
                    "deadlocked" => drop(lock.lock()),
                    "crashed" => sys::thread::raw_exit(),
                    // No beats for long, but the counter moves.
                    "slow" => {
                        let mut done = 0;
                        while !heart.should_stop() {
                            done += 1;
                            heart.progress(done);
                            std::thread::park_timeout(MS * 500);
                        }
                    }
                    _ => {
                        while heart.rest(MS * 250) {
                            stamp.store(sys::clock::now().0, Ordering::Release);
                        }
                    }
                }
                stopped()
            });
            parts.insert(key, kind);
            last_beat.insert(key, beat);
        }
    }
    let heard = listen(&notices, tau + MS * 5000);
    let now = sys::clock::now();
    let mut both: BTreeMap<WorkerKey, State> = BTreeMap::new();
    for notice in heard.iter().filter(|notice| notice.from != notice.to) {
        if let (Some(key), Some(to)) = (notice.key, notice.to) {
            both.insert(key, to);
        }
    }
    let recovered = heard.iter().filter(|notice| notice.cause == Cause::RecoveredProgress).count();
    let soft = |key: &WorkerKey| now.since(Tick(last_beat[key].load(Ordering::Acquire))) >= tau;
    println!("kind         both channels      beats alone        thread alone");
    for kind in ["deadlocked", "crashed", "normal", "slow"] {
        let of_kind = || parts.iter().filter(move |(_, part)| **part == kind).map(|(key, _)| key);
        let count = |wanted: State| of_kind().filter(|key| both[*key] == wanted).count();
        let silent = of_kind().filter(|key| soft(key)).count();
        let dead = count(State::Dead);
        println!(
            "{kind:<12} R{:>3} Z{:>3} D{:>3}     R{:>3} Z{:>3}           R{:>3} D{:>3}",
            count(State::Running),
            count(State::Zombie),
            dead,
            50 - silent,
            silent,
            50 - dead,
            dead
        );
    }
    println!("recovered by progress: {recovered} of 50 slow (the paper: 50 of 50)");
    println!(
        "paper: both channels 100 % and right; beats alone call every crash a ZOMBIE; thread alone misses every deadlock"
    );
    drop(held);
    supervisor.stop_all().wait(PATIENCE).unwrap();
    listen(&notices, MS * 1000);

    println!("\ntau s   false alarms of 40 (gaps up to 4 s)   found of 10   latest after the last beat, s");
    let taus = [2_u64, 3, 4, 5, 8, 10, 15, 20].map(Duration::from_secs);
    let mut tasks: BTreeMap<WorkerKey, (Duration, bool, Arc<AtomicU64>)> = BTreeMap::new();
    for tau in taus {
        for n in 0..50_u64 {
            let (stuck, stamp) = (n < 10, Arc::new(AtomicU64::new(0)));
            let beat = Arc::clone(&stamp);
            let key = spawn(&supervisor, tau, move |heart| {
                if !stuck {
                    return beat_at_random(&heart, n, 4000);
                }
                std::thread::park_timeout(MS * u32::try_from(n * 97).unwrap());
                heart.beat();
                beat.store(sys::clock::now().0, Ordering::Release);
                while !heart.should_stop() {
                    std::thread::park_timeout(Duration::from_secs(1));
                }
                stopped()
            });
            tasks.insert(key, (tau, stuck, stamp));
        }
    }
    let heard = listen(&notices, Duration::from_secs(25));
    for tau in taus {
        let (mut wrong, mut found, mut latest) = (std::collections::BTreeSet::new(), 0, 0.0_f64);
        for notice in heard.iter().filter(|n| n.from == Some(State::Running) && n.to == Some(State::Zombie)) {
            match notice.key.and_then(|key| tasks.get(&key)) {
                Some((of, true, stamp)) if *of == tau => {
                    found += 1;
                    latest = latest.max(notice.at.since(Tick(stamp.load(Ordering::Acquire))).as_secs_f64());
                }
                Some((of, false, _)) if *of == tau => drop(wrong.insert(notice.key)),
                Some(_) | None => {}
            }
        }
        println!(
            "{:>5}   {:>12}                          {found:>5}         {latest:>8.3}",
            tau.as_secs(),
            wrong.len()
        );
    }
    supervisor.stop_all().wait(PATIENCE).unwrap();
    listen(&notices, MS * 2000);
    supervisor.end();
}

/// The bench beside the paper's protocol in Python, on this machine, in this run.
#[test]
fn python() {
    if !asked("liveness-python") {
        return;
    }
    let script = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/experiments/reliharness.py");
    let output = Command::new("python3").arg(script).args(["50", "5", "5"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let theirs: Value = serde_json::from_slice(&output.stdout).unwrap();
    let ours = serde_json::to_value(interlock::bench::liveness::run(false).unwrap()).unwrap();
    let row = |what: &str, paper: &str, python: &str, mine: &str| {
        let python_at = theirs[python].as_f64().unwrap_or(f64::NAN);
        let mine_at = ours[mine].as_f64().unwrap_or(f64::NAN);
        println!("{what:<38} {paper:>10} {python_at:>14.1} {mine_at:>12.2} {:>9.0}x", python_at / mine_at);
    };
    println!("{:<38} {:>10} {:>14} {:>12} {:>10}", "", "paper", "python here", "ours here", "python/ours");
    row("one heartbeat, ns", "700", "heartbeat_ns", "heartbeat_ns");
    row("scan of 10,000, us", "10,200", "scan_10000_us", "scan_10000_us");
    row("crash told, ms (p50)", "<= 5,000", "crash_detect_ms_p50", "crash_detect_ms_p50");
    println!(
        "missed of 150: python {}, ours {}; false alarms: python {}, ours {}",
        theirs["missed"], ours["missed"], theirs["false_alarms"], ours["false_alarms"]
    );
    println!("python: {theirs}\nours: {ours}");
}

/// 64 spinners on all CPUs and four workers that beat after so much work of their own; two minutes, tau 5 s.
#[test]
fn starved() {
    if !asked("liveness-starved") {
        return;
    }
    let (supervisor, notices) = supervisor(Limits { tau: Duration::from_secs(5), ..Limits::default() });
    let over = Arc::new(AtomicBool::new(false));
    let spinners: Vec<_> = (0..64)
        .map(|_| {
            let over = Arc::clone(&over);
            std::thread::spawn(move || {
                while !over.load(Ordering::Acquire) {
                    std::hint::spin_loop();
                }
            })
        })
        .collect();
    let gap_ns = Arc::new(AtomicU64::new(0));
    for _ in 0..4 {
        let gap_ns = Arc::clone(&gap_ns);
        spawn(&supervisor, Duration::from_secs(5), move |heart| {
            let mut last = sys::clock::now();
            while !heart.should_stop() {
                // Half a second of its own time between two beats.
                let until = sys::clock::thread_cpu_ns() + 500_000_000;
                while sys::clock::thread_cpu_ns() < until && !heart.should_stop() {
                    std::hint::spin_loop();
                }
                heart.beat();
                let now = sys::clock::now();
                gap_ns.fetch_max(u64::try_from(now.since(last).as_nanos()).unwrap(), Ordering::Relaxed);
                last = now;
            }
            stopped()
        });
    }
    let heard = listen(&notices, Duration::from_secs(crate::asked_count(120)));
    let count = |cause| heard.iter().filter(|notice| notice.cause == cause).count();
    let zombies = heard.iter().filter(|notice| notice.to == Some(State::Zombie)).count();
    println!(
        "ZOMBIE {zombies}, STARVED {}, gaps of the supervisor {}, longest gap between two beats {:.2} s",
        count(Cause::Starved),
        count(Cause::SupervisorGap),
        Duration::from_nanos(gap_ns.load(Ordering::Relaxed)).as_secs_f64()
    );
    over.store(true, Ordering::Release);
    spinners.into_iter().for_each(|spinner| spinner.join().unwrap());
    supervisor.stop_all().wait(PATIENCE).unwrap();
    listen(&notices, MS * 1000);
    supervisor.end();
    assert_eq!(zombies, 0);
}

/// Ten times the article's protocol: 1,500 tasks, 500 of each kind, tau 5 s; nothing is compressed.
#[test]
fn fifteen_hundred() {
    if !asked("liveness-1500") {
        return;
    }
    let figures = interlock::bench::liveness::run(true).unwrap();
    println!(
        "{} tasks: missed {}, false alarms {}, suspected of the normal ones {}; latest silence {:.1} ms after tau, death \
         told after {:.3} ms (p50) and {:.3} ms (p99)",
        figures.tasks,
        figures.missed,
        figures.false_alarms,
        figures.suspected,
        figures.stuck_detect_after_tau_ms_max,
        figures.crash_detect_ms_p50,
        figures.crash_detect_ms_p99,
    );
    assert_eq!((figures.missed, figures.false_alarms), (0, 0));
}

const STOPPED: &str = "INTERLOCK_EXPERIMENT_STOPPED";

/// Not an experiment: the process that is stopped, with 20 workers that beat each second, tau 5 s.
#[test]
fn child_that_is_stopped() {
    if std::env::var_os(STOPPED).is_none() {
        return;
    }
    let (supervisor, notices) = supervisor(Limits { tau: Duration::from_secs(5), ..Limits::default() });
    let hang = Arc::new(AtomicBool::new(false));
    for n in 0..20 {
        let hang = Arc::clone(&hang);
        spawn(&supervisor, Duration::from_secs(5), move |heart| {
            while heart.rest(Duration::from_secs(1)) {
                while n == 0 && hang.load(Ordering::Acquire) && !heart.should_stop() {
                    std::thread::park_timeout(MS * 100);
                }
            }
            stopped()
        });
    }
    listen(&notices, MS * 3000);
    println!("\nready");
    let mut word = String::new();
    std::io::stdin().read_line(&mut word).unwrap();
    let heard = listen(&notices, Duration::from_secs(10));
    let condemned = heard.iter().filter(|notice| matches!(notice.to, Some(State::Zombie | State::Dead))).count();
    let gaps: Vec<&str> = heard
        .iter()
        .filter(|notice| notice.cause == Cause::SupervisorGap)
        .map(|notice| notice.detail.as_str())
        .collect();
    println!("\ncondemned {condemned}; gaps {gaps:?}");
    let began = Instant::now();
    hang.store(true, Ordering::Release);
    let found = loop {
        let notice = notices.recv_timeout(PATIENCE).unwrap();
        if notice.to == Some(State::Zombie) {
            break began.elapsed();
        }
    };
    println!("\nthe next real hang was found after {:.1} s", found.as_secs_f64());
}

/// SIGSTOP for 60 s, then the process goes on: nobody is condemned, one gap is told, the next hang is found.
#[test]
fn sigstop() {
    if !asked("liveness-sigstop") {
        return;
    }
    use std::io::{BufRead, Write};
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "liveness::child_that_is_stopped", "--nocapture", "--test-threads=1"])
        .env(STOPPED, "1")
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = std::io::BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    lines.find(|line| line.contains("ready")).unwrap();
    let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGSTOP).unwrap();
    std::thread::park_timeout(Duration::from_secs(crate::asked_count(60)));
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGCONT).unwrap();
    writeln!(child.stdin.take().unwrap(), "go on").unwrap();
    lines.filter(|line| line.contains("condemned") || line.contains("hang")).for_each(|line| println!("{line}"));
    assert!(child.wait().unwrap().success());
}

/// How long each of 200 workers was silent before it was noticed, tau 1 s, scan 0.2 s (the article's 5 s and 1 s,
/// compressed five times).
#[test]
fn bound() {
    if !asked("liveness-bound") {
        return;
    }
    let (supervisor, notices) = supervisor(Limits { tau: MS * 1000, scan: MS * 200, scans: 2 });
    let mut stamps: BTreeMap<WorkerKey, Arc<AtomicU64>> = BTreeMap::new();
    for n in 0..200_u64 {
        let stamp = Arc::new(AtomicU64::new(0));
        let last = Arc::clone(&stamp);
        let key = spawn(&supervisor, MS * 1000, move |heart| {
            let until = Instant::now() + MS * u32::try_from(n * 7919 % 4000).unwrap();
            while Instant::now() < until {
                heart.beat();
                std::thread::park_timeout(MS * 10);
            }
            heart.beat();
            last.store(sys::clock::now().0, Ordering::Release);
            while !heart.should_stop() {
                std::thread::park_timeout(MS * 200);
            }
            stopped()
        });
        stamps.insert(key, stamp);
    }
    let heard = listen(&notices, MS * 7000);
    let mut late: Vec<f64> = heard
        .iter()
        .filter(|notice| notice.from == Some(State::Running) && notice.to == Some(State::Zombie))
        .filter_map(|notice| Some(notice.at.since(Tick(stamps.get(&notice.key?)?.load(Ordering::Acquire)))))
        .map(|late| late.as_secs_f64() * 1000.0)
        .collect();
    late.sort_by(f64::total_cmp);
    println!(
        "{} of 200 found; silent for {:.1} ms (least), {:.1} ms (p50), {:.1} ms (most); the bound is 1000 + 200 + 200",
        late.len(),
        late.first().copied().unwrap_or(f64::NAN),
        late.get(late.len() / 2).copied().unwrap_or(f64::NAN),
        late.last().copied().unwrap_or(f64::NAN)
    );
    supervisor.stop_all().wait(PATIENCE).unwrap();
    listen(&notices, MS * 1000);
    supervisor.end();
    // The stamp is made after the beat, so the least may be below tau by what lies between.
    assert!(late.len() == 200 && late.last().is_some_and(|most| *most <= 1400.0), "{late:?}");
}

//! `interlock bench liveness`: the supervisor on real threads.
//!
//! The protocol is the paper's (ReliHarness, "fault detection coverage": a third deadlocked, a third crashed, a third
//! normal) with tau = 5 s; beside it, the costs of one beat, of a scan and of a thousand workers. Nothing is scaled: a
//! figure on 10,000 threads is measured on 10,000 threads, or says on how many.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use interlock_domain::id::WorkerKey;
use interlock_domain::liveness::judge::Limits;
use interlock_domain::liveness::lifecycle::{Cause, Kind, Notice, State};
use interlock_domain::time::Tick;
use serde::Serialize;
use serde_json::Value;
use thiserror::Error;

use crate::engine::supervisor::{
    Finished, Heart, NoAnswer, Settings, SpawnRefused, StartError, Supervisor, TaskSpec, Tier,
};
use crate::sys;

/// The tau of the protocol. The paper's 15 s would only make the bench longer; its own sweep has 5 s as the edge.
const TAU: Duration = Duration::from_secs(5);
/// The longest that an answer of the supervisor is waited for.
const PATIENCE: Duration = Duration::from_secs(10);
/// A stack that the bench's workers fit in.
const STACK: usize = 64 * 1024;
/// Threads of the scan figure.
const MANY: usize = 10_000;

/// What was measured; each key carries its unit.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figures {
    /// The tier of the hard channel.
    pub tier: &'static str,
    /// One beat, the best of many short rounds.
    pub heartbeat_ns: f64,
    /// One thread's share of a scan of many.
    pub scan_ns_per_thread: f64,
    /// A complete scan of `scan_threads` threads, the median.
    pub scan_10000_us: f64,
    /// The same where deaths have to be asked for.
    pub scan_10000_polling_us: f64,
    /// How many threads there were: 10,000 unless the machine does not give so many.
    pub scan_threads: usize,
    /// From a thread's last instruction to the notice in the hands of its reader.
    pub crash_detect_ms_p50: f64,
    /// The same.
    pub crash_detect_ms_p99: f64,
    /// From the last beat plus tau to the notice.
    pub stuck_detect_after_tau_ms_p99: f64,
    /// The worst of all.
    pub stuck_detect_after_tau_ms_max: f64,
    /// Tasks of the protocol.
    pub tasks: usize,
    /// Normal tasks that were called ZOMBIE or DEAD, and deadlocked ones that were called DEAD.
    pub false_alarms: usize,
    /// Deadlocked ones that were not called ZOMBIE, and crashed ones that were not called DEAD.
    pub missed: usize,
    /// Normal tasks that were suspected (phi) in the time of the protocol.
    pub suspected: usize,
    /// CPU of the supervisor and of the beats of 1,000 workers, percent of one core.
    pub cpu_percent_1000: f64,
    /// Memory of 1,000 workers besides what 1,000 bare threads take.
    pub rss_mib_1000: f64,
}

/// Why nothing was measured.
#[derive(Debug, Error)]
pub enum BenchError {
    /// There is no supervisor.
    #[error(transparent)]
    Start(#[from] StartError),
    /// It does not answer.
    #[error(transparent)]
    Silent(#[from] NoAnswer),
    /// It starts nothing.
    #[error(transparent)]
    Refused(#[from] SpawnRefused),
    /// The system gives no thread.
    #[error("no thread: {0}")]
    NoThread(#[from] std::io::Error),
    /// A worker did not do its part.
    #[error("{0}")]
    Unfinished(&'static str),
}

/// Measures. Under a minute; ten times as many tasks of the protocol when `long`.
///
/// # Errors
/// When the machine does not give the threads for it.
pub fn run(long: bool) -> Result<Figures, BenchError> {
    let thousand = thousand()?;
    let scan = scan_many(None)?;
    let polling = scan_many(Some(Tier::Tryjoin))?;
    let heartbeat_ns = heartbeat()?;
    let crash_ms = crashes(if long { 2000 } else { 200 })?;
    let protocol = protocol(if long { 500 } else { 50 })?;
    Ok(Figures {
        tier: Tier::probe().name(),
        heartbeat_ns,
        scan_ns_per_thread: scan.us * 1000.0 / precise(scan.threads),
        scan_10000_us: scan.us,
        scan_10000_polling_us: polling.us,
        scan_threads: scan.threads,
        crash_detect_ms_p50: percentile(&crash_ms, 50),
        crash_detect_ms_p99: percentile(&crash_ms, 99),
        stuck_detect_after_tau_ms_p99: percentile(&protocol.stuck_ms, 99),
        stuck_detect_after_tau_ms_max: percentile(&protocol.stuck_ms, 100),
        tasks: protocol.tasks,
        false_alarms: protocol.false_alarms,
        missed: protocol.missed,
        suspected: protocol.suspected,
        cpu_percent_1000: (thousand.supervisor_ns + thousand.beats * heartbeat_ns) / thousand.wall_ns * 100.0,
        rss_mib_1000: thousand.rss_mib,
    })
}

struct Stage {
    supervisor: Supervisor,
    notices: Receiver<Notice>,
}

impl Stage {
    fn new(limits: Limits, tier: Option<Tier>) -> Result<Stage, StartError> {
        let (sender, notices) = sync_channel(4096);
        let offer = move |notice| {
            sender.try_send(notice).map_err(|error| match error {
                TrySendError::Full(notice) | TrySendError::Disconnected(notice) => notice,
            })
        };
        let settings = Settings { limits, tier, workers_max: MANY * 2, ..Settings::default() };
        Ok(Stage { supervisor: Supervisor::start(settings, Box::new(offer))?, notices })
    }

    fn spawn(&self, work: impl FnOnce(Heart) -> Finished + Send + 'static) -> Result<WorkerKey, BenchError> {
        let spec = TaskSpec { stack: STACK, ..TaskSpec::new("bench", "bench") };
        Ok(self.supervisor.spawn(spec, work).wait(PATIENCE)??)
    }

    /// Takes notices for this long.
    fn listen(&self, time: Duration, mut each: impl FnMut(&Notice, Tick) -> bool) {
        let until = Instant::now() + time;
        loop {
            match self.notices.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(notice) if each(&notice, sys::clock::now()) => return,
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Stops all and waits until they are gone.
    fn clear(self) -> Result<(), BenchError> {
        self.supervisor.stop_all().wait(PATIENCE)?;
        let until = Instant::now() + PATIENCE;
        while self.supervisor.figures().living > 0 && Instant::now() < until {
            self.listen(Duration::from_millis(5), |_, _| false);
        }
        self.supervisor.end();
        Ok(())
    }
}

fn resting(heart: &Heart, round: Duration) -> Finished {
    while heart.rest(round) {}
    Finished::Stopped(Value::Null)
}

fn heartbeat() -> Result<f64, BenchError> {
    // Short rounds, of which the best counts: a busy machine takes the CPU away within milliseconds.
    const BEATS: u32 = 20_000;
    const ROUNDS: u32 = 500;
    let stage = Stage::new(Limits::default(), None)?;
    let (sender, rounds) = sync_channel(1);
    stage.spawn(move |heart| {
        let mut best = f64::MAX;
        for _ in 0..ROUNDS {
            let began = Instant::now();
            for _ in 0..BEATS {
                heart.beat();
            }
            best = best.min(began.elapsed().as_secs_f64() * 1e9 / f64::from(BEATS));
        }
        // The receiver waits for it, or has given up.
        let _ = sender.send(best);
        Finished::Done(Value::Null)
    })?;
    let best =
        rounds.recv_timeout(PATIENCE).map_err(|_| BenchError::Unfinished("the beating worker gave no figure"))?;
    stage.clear()?;
    Ok(best)
}

struct Scan {
    us: f64,
    threads: usize,
}

fn scan_many(tier: Option<Tier>) -> Result<Scan, BenchError> {
    let limits = Limits { scan: Duration::from_millis(100), ..Limits::default() };
    let stage = Stage::new(limits, tier)?;
    let mut threads = 0;
    for _ in 0..MANY {
        match stage.spawn(|heart| resting(&heart, Duration::from_secs(2))) {
            Ok(_) => threads += 1,
            Err(BenchError::Refused(_)) => break,
            Err(other) => return Err(other),
        }
        while stage.notices.try_recv().is_ok() {}
    }
    // All are there, and the first beats are over.
    stage.listen(Duration::from_secs(1), |_, _| false);
    let mut scans = Vec::new();
    let mut seen = stage.supervisor.figures().scans;
    let until = Instant::now() + PATIENCE;
    while scans.len() < 31 && Instant::now() < until {
        stage.listen(Duration::from_millis(10), |_, _| false);
        let figures = stage.supervisor.figures();
        if figures.scans != seen {
            seen = figures.scans;
            scans.push(millis(Duration::from_nanos(figures.last_scan_ns)) * 1000.0);
        }
    }
    stage.clear()?;
    scans.sort_by(f64::total_cmp);
    Ok(Scan { us: percentile(&scans, 50), threads })
}

struct Thousand {
    supervisor_ns: f64,
    wall_ns: f64,
    beats: f64,
    rss_mib: f64,
}

fn thousand() -> Result<Thousand, BenchError> {
    const WORKERS: usize = 1000;
    const WINDOW: Duration = Duration::from_secs(5);
    let rss =
        || precise(usize::try_from(sys::machine::resident_bytes().unwrap_or(0)).unwrap_or(0)) / f64::from(1 << 20);
    // What belongs to the process and not to a thousand of anything is there before.
    let stage = Stage::new(Limits::default(), None)?;
    stage.spawn(|_| Finished::Done(Value::Null))?;
    let before = rss();
    let beats = Arc::new(AtomicU64::new(0));
    for _ in 0..WORKERS {
        let beats = Arc::clone(&beats);
        stage.spawn(move |heart| {
            let finished = resting(&heart, Duration::from_secs(1));
            beats.fetch_add(heart.beats(), Ordering::Relaxed);
            finished
        })?;
    }
    stage.listen(Duration::from_secs(1), |_, _| false);
    let supervised = rss() - before;
    let (cpu, began) = (stage.supervisor.figures().cpu_ns, Instant::now());
    stage.listen(WINDOW, |_, _| false);
    let supervisor_ns = millis(Duration::from_nanos(stage.supervisor.figures().cpu_ns - cpu)) * 1e6;
    let wall_ns = began.elapsed().as_secs_f64() * 1e9;
    let lived = began.elapsed() + Duration::from_secs(1);
    stage.clear()?;
    let beats =
        precise(usize::try_from(beats.load(Ordering::Relaxed)).unwrap_or(0)) * wall_ns / 1e9 / lived.as_secs_f64();

    // A larger stack, so that none of those that the C library kept is taken again and looks like no memory.
    let before = rss();
    let stop = Arc::new(AtomicBool::new(false));
    let mut threads = Vec::new();
    let (ready, readies) = sync_channel(WORKERS);
    for _ in 0..WORKERS {
        let (stop, ready) = (Arc::clone(&stop), ready.clone());
        let body = move || {
            // The receiver is there for as long as the threads are.
            let _ = ready.send(std::thread::current());
            while !stop.load(Ordering::Acquire) {
                std::thread::park_timeout(Duration::from_secs(1));
            }
        };
        threads.push(sys::thread::spawn("bare", STACK * 2, Box::new(body))?);
    }
    let unpark: Vec<_> = readies.iter().take(WORKERS).collect();
    let bare = rss() - before;
    stop.store(true, Ordering::Release);
    unpark.iter().for_each(std::thread::Thread::unpark);
    let until = Instant::now() + PATIENCE;
    while !threads.iter_mut().all(sys::thread::Thread::is_gone) && Instant::now() < until {
        std::thread::yield_now();
    }
    Ok(Thousand { supervisor_ns, wall_ns, beats, rss_mib: supervised - bare })
}

/// How long each of so many deaths took to be told, in ms and sorted. Half leave by the raw system call, half unwind.
fn crashes(count: usize) -> Result<Vec<f64>, BenchError> {
    let stage = Stage::new(Limits::default(), None)?;
    let mut took = Vec::new();
    for n in 0..count {
        let last = Arc::new(AtomicU64::new(0));
        let stamp = Arc::clone(&last);
        let key = stage.spawn(move |_| {
            // Somewhere inside a scan period, not at its start.
            std::thread::park_timeout(Duration::from_micros((n as u64 * 7919) % 20_000));
            stamp.store(sys::clock::now().0, Ordering::Release);
            if n % 2 == 0 {
                sys::thread::raw_exit();
            }
            std::panic::resume_unwind(Box::new("bench"))
        })?;
        stage.listen(PATIENCE, |notice, now| {
            let dead = notice.key == Some(key) && notice.to == Some(State::Dead);
            if dead {
                took.push(millis(now.since(Tick(last.load(Ordering::Acquire)))));
            }
            dead
        });
    }
    stage.clear()?;
    if took.len() < count {
        return Err(BenchError::Unfinished("a crash was not told in 10 s"));
    }
    took.sort_by(f64::total_cmp);
    Ok(took)
}

struct Protocol {
    tasks: usize,
    false_alarms: usize,
    missed: usize,
    suspected: usize,
    stuck_ms: Vec<f64>,
}

#[derive(Clone, Copy, PartialEq)]
enum Part {
    Deadlocked,
    Crashed,
    Normal,
}

/// `third` tasks of each kind, at once.
fn protocol(third: usize) -> Result<Protocol, BenchError> {
    let stage = Stage::new(Limits { tau: TAU, ..Limits::default() }, None)?;
    // What the deadlocked wait for; given back at the end, so that the bench leaves no thread behind.
    let lock = Arc::new(Mutex::new(()));
    let Ok(held) = lock.lock() else { return Err(BenchError::Unfinished("the lock of the bench is poisoned")) };
    let mut parts: BTreeMap<WorkerKey, (Part, Arc<AtomicU64>)> = BTreeMap::new();
    for n in 0..third * 3 {
        let part = [Part::Deadlocked, Part::Crashed, Part::Normal][n % 3];
        let (lock, last) = (Arc::clone(&lock), Arc::new(AtomicU64::new(0)));
        let stamp = Arc::clone(&last);
        // Each turns at its own moment within two scans.
        let turns_after = Duration::from_millis((n as u64 * 7919) % 2000);
        let key = stage.spawn(move |heart| {
            let until = Instant::now() + turns_after;
            while Instant::now() < until {
                heart.beat();
                std::thread::park_timeout(Duration::from_millis(20));
            }
            match part {
                Part::Deadlocked => {
                    stamp.store(sys::clock::now().0, Ordering::Release);
                    heart.beat();
                    drop(lock.lock());
                    Finished::Stopped(Value::Null)
                }
                Part::Crashed => std::panic::resume_unwind(Box::new("bench")),
                Part::Normal => resting(&heart, Duration::from_millis(500)),
            }
        })?;
        parts.insert(key, (part, last));
    }
    let mut found: BTreeMap<WorkerKey, (State, f64)> = BTreeMap::new();
    let (mut false_alarms, mut suspected) = (0, 0);
    // Two scans for the turning, tau, a scan and a half.
    stage.listen(TAU + Duration::from_millis(4500), |notice, now| {
        let (Some(key), Some(to)) = (notice.key, notice.to) else { return false };
        let Some((part, last)) = parts.get(&key) else { return false };
        suspected += usize::from(notice.cause == Cause::Suspicious && *part == Part::Normal);
        if notice.kind != Kind::Lifecycle {
            return false;
        }
        match (part, to) {
            (_, State::Running | State::Stopped | State::Cleaned) => {}
            (Part::Normal, State::Zombie | State::Dead)
            | (Part::Deadlocked, State::Dead)
            | (Part::Crashed, State::Zombie) => false_alarms += 1,
            (Part::Deadlocked, State::Zombie) => {
                let late = now.since(Tick(last.load(Ordering::Acquire)).after(TAU));
                found.insert(key, (to, millis(late)));
            }
            (Part::Crashed, State::Dead) => drop(found.insert(key, (to, 0.0))),
        }
        false
    });
    let missed = parts.iter().filter(|(key, (part, _))| *part != Part::Normal && !found.contains_key(key)).count();
    let mut stuck_ms: Vec<f64> =
        found.values().filter(|(state, _)| *state == State::Zombie).map(|(_, late)| *late).collect();
    stuck_ms.sort_by(f64::total_cmp);
    drop(held);
    stage.clear()?;
    Ok(Protocol { tasks: parts.len(), false_alarms, missed, suspected, stuck_ms })
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

#[expect(clippy::cast_precision_loss, reason = "counts of a bench are far below 2^52")]
fn precise(count: usize) -> f64 {
    count as f64
}

/// Of a sorted list; 0 of an empty one.
fn percentile(sorted: &[f64], percent: usize) -> f64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_ranks() {
        let ten: Vec<f64> = (1..=10).map(f64::from).collect();
        let all = [1, 50, 90, 99, 100].map(|percent| percentile(&ten, percent));
        assert_eq!(all, [1.0, 5.0, 9.0, 10.0, 10.0]);
        assert_eq!(percentile(&[], 99).to_bits(), 0.0_f64.to_bits());
    }
}

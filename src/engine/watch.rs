//! `interlock watch`: supervises a process that knows nothing of us, its threads and what it starts.
//!
//! A program that we start gets `NOTIFY_SOCKET` and `WATCHDOG_USEC`: if it beats, its beats are due. Everything else is
//! read from `/proc` and from handles; nothing is injected, nothing is traced, and a program that was there before is
//! never ended by us.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use interlock_domain::liveness::cause::Counters;
use interlock_domain::liveness::judge::{SCAN, TAU};
use interlock_domain::liveness::lifecycle::{Cause, State};
use interlock_domain::liveness::outsider::{Outsider, Verdict};
use interlock_domain::liveness::speaker::Speaker;
use interlock_domain::time::Tick;
use serde_json::{Value, json};
use thiserror::Error;

use super::supervisor::ChildSpec;
use crate::sys::child::{self, Exit, Process};
use crate::sys::notified::{Ear, group_of};
use crate::sys::wake::{Bell, Waiter};
use crate::sys::{clock, pidfd, proc};

/// Processes that are watched at most; a fork bomb must not take us along.
const PROCESSES_MAX: usize = 1024;
/// Threads of one process that are looked at; beyond it only its end is seen.
const THREADS_MAX: usize = 4096;
/// How long a program that we started may take to end when we are told to stop.
const GRACE: Duration = Duration::from_secs(10);
/// Messages taken in one round.
const HEARD_MAX: usize = 256;
/// Tokens of handles begin above these two.
const EAR: u64 = 1;
const FIRST_HANDLE: u64 = 2;

/// What is watched.
#[derive(Debug, Clone)]
pub enum Target {
    /// A process that is there.
    Pid(i32),
    /// A program that is started; it inherits our input and output.
    Command(ChildSpec),
}

/// How.
#[derive(Debug, Clone)]
pub struct Options {
    /// What.
    pub target: Target,
    /// Time between two scans.
    pub scan: Duration,
    /// Stillness, or silence of a program that beats, after which it is a ZOMBIE.
    pub tau: Duration,
    /// Set by the caller (on SIGINT) to end the watch; looked at once a scan.
    pub stop: Arc<AtomicBool>,
}

impl Options {
    /// With the defaults.
    #[must_use]
    pub fn new(target: Target) -> Options {
        Options { target, scan: SCAN, tau: TAU, stop: Arc::new(AtomicBool::new(false)) }
    }
}

/// Something that was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// Milliseconds since the watch began.
    pub ms: u64,
    /// The process.
    pub pid: i32,
    /// The thread; the process's own number where it is about the process.
    pub tid: i32,
    /// Its name.
    pub name: String,
    /// What happened.
    pub event: Event,
    /// Why, where there is a why.
    pub cause: Option<&'static str>,
    /// One line for a person; may be empty.
    pub detail: String,
}

impl Seen {
    /// As one line of `interlock watch --json`.
    #[must_use]
    pub fn json(&self) -> Value {
        json!({
            "ms": self.ms,
            "pid": self.pid,
            "tid": self.tid,
            "name": self.name,
            "event": self.event.name(),
            "cause": self.cause,
            "detail": self.detail,
        })
    }
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A process is there.
    ProcessBorn,
    /// A process is gone.
    ProcessGone,
    /// A thread is there.
    ThreadBorn,
    /// A thread is gone.
    ThreadGone,
    /// The process cannot go on by itself, or is silent although it beats.
    Zombie,
    /// It goes on.
    Running,
    /// It says something of itself (`STATUS=`).
    Status,
    /// The watch itself did not run for a while; nobody is judged on that time.
    Gap,
}

impl Event {
    /// The written form.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Event::ProcessBorn => "process_born",
            Event::ProcessGone => "process_gone",
            Event::ThreadBorn => "thread_born",
            Event::ThreadGone => "thread_gone",
            Event::Zombie => "zombie",
            Event::Running => "running",
            Event::Status => "status",
            Event::Gap => "gap",
        }
    }
}

/// How the watch ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The program that we started ended so.
    Exited(Exit),
    /// The process that was there is gone; how, only its parent knows.
    Gone,
    /// We were told to stop, and the process that was there goes on.
    Stopped,
}

/// Why there is nothing to watch.
#[derive(Debug, Error)]
pub enum WatchError {
    /// There is no such process.
    #[error("there is no process {0}: {1}")]
    NoProcess(i32, #[source] std::io::Error),
    /// The program does not start.
    #[error("{0} does not start: {1}")]
    NoProgram(String, #[source] std::io::Error),
    /// No descriptors.
    #[error("the watch has no descriptors: {0}")]
    NoDescriptors(#[source] std::io::Error),
}

/// Watches until the process ends or the caller says so. `tell` gets what is seen, in order.
///
/// # Errors
/// When there is nothing to watch.
pub fn run(options: &Options, mut tell: impl FnMut(&Seen)) -> Result<Ended, WatchError> {
    let mut waiter = Waiter::new().map_err(WatchError::NoDescriptors)?;
    let ear = Ear::open().map_err(WatchError::NoDescriptors)?;
    waiter.bell().add(&ear, EAR).map_err(WatchError::NoDescriptors)?;
    let (root, mut body) = match &options.target {
        Target::Pid(pid) => {
            let handle = pidfd::open_process(*pid).map_err(|error| WatchError::NoProcess(*pid, error))?;
            (*pid, Body::Theirs(handle))
        }
        Target::Command(child) => {
            let process = start(child, ear.address(), options.tau)?;
            (process.pid(), Body::Ours(process))
        }
    };
    pidfd::raise_descriptor_limit();
    let mut watch = Watch::new(options, root, waiter.bell());
    let mut next = clock::now();
    let mut asked: Option<Tick> = None;
    loop {
        let tokens = waiter.wait(next.since(clock::now()));
        let now = clock::now();
        if now >= next || tokens.iter().any(|token| *token != EAR) {
            watch.scan(now, &mut tell);
            next = now.after(options.scan);
        }
        // After the scan: who speaks in its first moment is known by then.
        if tokens.contains(&EAR) {
            watch.hear(&ear, now, &mut tell);
        }
        if let Some(ended) = body.ended() {
            watch.all_gone(now, &mut tell);
            return Ok(ended);
        }
        if options.stop.load(Ordering::Acquire) {
            match &body {
                Body::Theirs(_) => return Ok(Ended::Stopped),
                Body::Ours(process) => match asked {
                    None => {
                        asked = Some(now);
                        // Gone already: the next round sees it.
                        let _ = process.ask_to_end();
                    }
                    Some(since) if now.since(since) >= GRACE => process.kill_group(),
                    Some(_) => {}
                },
            }
        }
    }
}

fn start(spec: &ChildSpec, ear: &str, tau: Duration) -> Result<Process, WatchError> {
    let mut command = Command::new(&spec.program);
    child::forget_private(&mut command);
    command.args(&spec.args).envs(spec.envs.iter().map(|(key, value)| (key, value)));
    command.env("NOTIFY_SOCKET", ear).env("WATCHDOG_USEC", tau.as_micros().to_string());
    if let Some(folder) = &spec.folder {
        command.current_dir(folder);
    }
    let name = || spec.program.to_string_lossy().into_owned();
    Process::start(&mut command).map_err(|error| WatchError::NoProgram(name(), error))
}

enum Body {
    Ours(Process),
    Theirs(OwnedFd),
}

impl Body {
    fn ended(&mut self) -> Option<Ended> {
        match self {
            // What it left running is its own business.
            Body::Ours(process) => process.reap_alone().map(Ended::Exited),
            Body::Theirs(handle) => pidfd::is_gone(handle).then_some(Ended::Gone),
        }
    }
}

/// One thread that is there. The start time tells a reused number from the old one, and the handle does so for sure.
struct Thread {
    name: String,
    began: u64,
    handle: Option<OwnedFd>,
}

struct Seat {
    name: String,
    began: u64,
    threads: BTreeMap<i32, Thread>,
    outsider: Outsider,
    /// What it says of itself.
    speaker: Speaker,
}

struct Watch<'a> {
    options: &'a Options,
    root: i32,
    bell: Bell,
    began: Tick,
    last_scan: Tick,
    seats: BTreeMap<i32, Seat>,
    next_token: u64,
}

impl Watch<'_> {
    fn new(options: &Options, root: i32, bell: Bell) -> Watch<'_> {
        let now = clock::now();
        Watch { options, root, bell, began: now, last_scan: now, seats: BTreeMap::new(), next_token: FIRST_HANDLE }
    }

    fn seen(&self, now: Tick, pid: i32, tid: i32, name: &str, event: Event) -> Seen {
        let ms = u64::try_from(now.since(self.began).as_millis()).unwrap_or(u64::MAX);
        Seen { ms, pid, tid, name: name.to_owned(), event, cause: None, detail: String::new() }
    }

    fn scan(&mut self, now: Tick, tell: &mut impl FnMut(&Seen)) {
        let since = now.since(self.last_scan);
        if since > self.options.scan * 2 {
            self.gap(since, now, tell);
        }
        self.last_scan = now;
        let family = self.family();
        let gone: Vec<i32> = self.seats.keys().filter(|pid| !family.contains(pid)).copied().collect();
        for pid in gone {
            self.leave(pid, now, tell);
        }
        for pid in family {
            self.look(pid, now, tell);
        }
    }

    fn gap(&mut self, since: Duration, now: Tick, tell: &mut impl FnMut(&Seen)) {
        for seat in self.seats.values_mut() {
            seat.outsider.rebaseline();
            seat.speaker.rebaseline(now);
        }
        let mut seen = self.seen(now, self.root, self.root, "", Event::Gap);
        seen.cause = Some(Cause::SupervisorGap.name());
        seen.detail = format!("no scan for {:.3} s", since.as_secs_f64());
        tell(&seen);
    }

    /// The process and what descends from it, the dead that nobody has reaped left out.
    fn family(&self) -> BTreeSet<i32> {
        let (mut family, mut open) = (BTreeSet::new(), vec![self.root]);
        while let Some(pid) = open.pop() {
            let there = proc::process(pid).is_ok_and(|stat| stat.state.letter() != 'Z' || has_living_threads(pid));
            if family.len() >= PROCESSES_MAX || !there || !family.insert(pid) {
                continue;
            }
            open.extend(proc::children(pid).unwrap_or_default());
        }
        family
    }

    fn look(&mut self, pid: i32, now: Tick, tell: &mut impl FnMut(&Seen)) {
        let Ok(stat) = proc::process(pid) else { return };
        if self.seats.get(&pid).is_some_and(|seat| seat.began != stat.began) {
            self.leave(pid, now, tell);
        }
        if !self.seats.contains_key(&pid) {
            let mut seen = self.seen(now, pid, pid, &stat.name, Event::ProcessBorn);
            seen.detail = format!("parent {}", stat.parent);
            tell(&seen);
        }
        let mut seat = self.seats.remove(&pid).unwrap_or_else(|| Seat {
            name: stat.name.clone(),
            began: stat.began,
            threads: BTreeMap::new(),
            outsider: Outsider::default(),
            speaker: Speaker::default(),
        });
        // A program that was loaded in its place has another name.
        seat.name = stat.name;
        self.look_at_threads(pid, &mut seat, now, tell);
        self.judge(pid, &mut seat, now, tell);
        self.seats.insert(pid, seat);
    }

    fn look_at_threads(&mut self, pid: i32, seat: &mut Seat, now: Tick, tell: &mut impl FnMut(&Seen)) {
        let mut there = BTreeMap::new();
        for tid in proc::threads(pid).unwrap_or_default().into_iter().take(THREADS_MAX) {
            if let Ok(stat) = proc::thread(pid, tid) {
                there.insert(tid, stat);
            }
        }
        let same = |tid: &i32, thread: &Thread| {
            there.get(tid).is_some_and(|stat| stat.began == thread.began)
                && !thread.handle.as_ref().is_some_and(pidfd::is_gone)
        };
        let gone: Vec<i32> =
            seat.threads.iter().filter(|(tid, thread)| !same(tid, thread)).map(|(tid, _)| *tid).collect();
        for tid in gone {
            if let Some(thread) = seat.threads.remove(&tid) {
                tell(&self.seen(now, pid, tid, &thread.name, Event::ThreadGone));
            }
        }
        for (tid, stat) in there {
            if seat.threads.contains_key(&tid) {
                continue;
            }
            let handle = pidfd::open_thread(tid).ok();
            if let Some(handle) = &handle {
                self.next_token += 1;
                // Without it the end is seen at the next scan.
                let _ = self.bell.add(handle, self.next_token);
            }
            if tid != pid {
                tell(&self.seen(now, pid, tid, &stat.name, Event::ThreadBorn));
            }
            seat.threads.insert(tid, Thread { name: stat.name, began: stat.began, handle });
        }
    }

    fn judge(&mut self, pid: i32, seat: &mut Seat, now: Tick, tell: &mut impl FnMut(&Seen)) {
        let tids = seat.threads.keys();
        let counters: BTreeMap<i32, Counters> =
            tids.filter_map(|tid| Some((*tid, proc::counters(pid, *tid).ok()?))).collect();
        let tau = self.options.tau;
        if let Some(verdict) = seat.outsider.judge(&counters, tau, now) {
            let mut seen = self.found(pid, &seat.name, verdict, now);
            if seen.event == Event::Zombie {
                let wait: Vec<String> = counters
                    .iter()
                    .take(8)
                    .map(|(tid, c)| {
                        format!("{tid} {} in {}", c.state.letter(), if c.wchan.is_empty() { "?" } else { &c.wchan })
                    })
                    .collect();
                seen.detail = format!("all {} threads wait and none has run: {}", counters.len(), wait.join(", "));
            }
            tell(&seen);
        }
        let cpu_ns = counters.values().fold(0u64, |sum, it| sum.saturating_add(it.cpu_ns));
        if let Some(verdict) = seat.speaker.judge(cpu_ns, tau, now) {
            let mut seen = self.found(pid, &seat.name, verdict, now);
            if verdict.cause == Cause::NoBeat {
                seen.detail = format!("no WATCHDOG=1 for {:.1} s", tau.as_secs_f64());
            } else if verdict.cause == Cause::Livelock {
                let stands = (tau * 2).as_secs_f64();
                seen.detail = format!("it computes, and X_PROGRESS= has stood still for {stands:.1} s");
            }
            tell(&seen);
        }
    }

    fn found(&self, pid: i32, name: &str, verdict: Verdict, now: Tick) -> Seen {
        let event = if verdict.state == State::Zombie { Event::Zombie } else { Event::Running };
        Seen { cause: Some(verdict.cause.name()), ..self.seen(now, pid, pid, name, event) }
    }

    fn hear(&mut self, ear: &Ear, now: Tick, tell: &mut impl FnMut(&Seen)) {
        for _ in 0..HEARD_MAX {
            let Some(told) = ear.hear() else { break };
            // What the program runs speaks for it.
            let group = group_of(told.pid);
            let pid = if group == Some(self.root) { self.root } else { told.pid };
            for (key, value) in &told.fields {
                let Some(seat) = self.seats.get_mut(&pid) else { continue };
                let name = seat.name.clone();
                let back = match (key.as_str(), value.as_str()) {
                    ("WATCHDOG", "1") => seat.speaker.beat(now),
                    ("X_PROGRESS", count) => count.parse().ok().and_then(|count| seat.speaker.progress(count, now)),
                    ("STATUS", text) => {
                        let mut seen = self.seen(now, pid, pid, &name, Event::Status);
                        seen.detail = text.chars().take(256).collect();
                        tell(&seen);
                        None
                    }
                    // The rest of the protocol is about services, not about life.
                    (_, _) => None,
                };
                if let Some(verdict) = back {
                    tell(&self.found(pid, &name, verdict, now));
                }
            }
        }
        // A socket that cannot be armed is deaf: then beats stop, and that is seen.
        let _ = self.bell.rearm(ear, EAR);
    }

    fn leave(&mut self, pid: i32, now: Tick, tell: &mut impl FnMut(&Seen)) {
        if let Some(seat) = self.seats.remove(&pid) {
            for (tid, thread) in seat.threads.iter().filter(|(tid, _)| **tid != pid) {
                tell(&self.seen(now, pid, *tid, &thread.name, Event::ThreadGone));
            }
            tell(&self.seen(now, pid, pid, &seat.name, Event::ProcessGone));
        }
    }

    fn all_gone(&mut self, now: Tick, tell: &mut impl FnMut(&Seen)) {
        // What it started may live on, and is no longer ours to watch.
        self.leave(self.root, now, tell);
    }
}

/// A leader that has ended is not the end while other threads of the process work.
fn has_living_threads(pid: i32) -> bool {
    let living = |tid: &i32| proc::thread(pid, *tid).is_ok_and(|stat| stat.state.letter() != 'Z');
    proc::threads(pid).unwrap_or_default().iter().any(living)
}

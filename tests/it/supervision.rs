//! The supervisor on real threads: both channels, the five states, and what workers do to mislead them.
//!
//! Every wait is for an event, under one deadline for the whole test.

use std::collections::BTreeMap;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TrySendError, channel, sync_channel};
use std::time::{Duration, Instant};

use interlock::engine::supervisor::{
    Finished, Heart, Settings, SpawnRefused, Supervisor, TaskError, TaskRow, TaskSpec, Tier, Vital, Watchdog,
};
use interlock::sys;
use interlock_domain::id::{TaskId, WorkerKey};
use interlock_domain::liveness::judge::Limits;
use interlock_domain::liveness::lifecycle::{Cause, Kind, Notice, Outcome, State};
use serde_json::{Value, json};

use State::{Cleaned, Dead, Running, Stopped, Zombie};

/// The longest that any test waits in all, on a machine that does much else.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
pub(crate) const SCAN: Duration = Duration::from_millis(20);
pub(crate) const TAU: Duration = Duration::from_millis(200);

pub(crate) fn settings() -> Settings {
    Settings { limits: Limits { tau: TAU, scan: SCAN, scans: 2 }, ..Settings::default() }
}

/// A supervisor with everything that it said so far.
pub(crate) struct World {
    pub(crate) supervisor: Supervisor,
    pub(crate) notices: Receiver<Notice>,
    deadline: Instant,
}

impl World {
    pub(crate) fn new(settings: Settings) -> World {
        World::with_room(settings, 10_000)
    }

    pub(crate) fn with_room(settings: Settings, room: usize) -> World {
        let (sender, notices) = sync_channel(room);
        let offer = move |notice| {
            sender.try_send(notice).map_err(|error| match error {
                TrySendError::Full(notice) | TrySendError::Disconnected(notice) => notice,
            })
        };
        let supervisor = Supervisor::start(settings, Box::new(offer)).unwrap();
        World { supervisor, notices, deadline: Instant::now() + PATIENCE }
    }

    pub(crate) fn left(&self) -> Duration {
        let left = self.deadline.saturating_duration_since(Instant::now());
        assert!(!left.is_zero(), "the deadline of the test passed; tasks: {:#?}", self.list());
        left
    }

    /// Whether so much of the time of the test is over.
    pub(crate) fn spent(&self, time: Duration) -> bool {
        PATIENCE - self.left() >= time
    }

    pub(crate) fn spawn(&self, spec: TaskSpec, work: impl FnOnce(Heart) -> Finished + Send + 'static) -> WorkerKey {
        self.supervisor.spawn(spec, work).wait(self.left()).unwrap().unwrap()
    }

    /// A worker that does what it is told, one word at a time, and nothing in between.
    pub(crate) fn puppet(&self) -> (WorkerKey, Sender<Word>) {
        let (strings, words) = channel();
        (self.spawn(TaskSpec::new("puppet", "does what it is told"), move |heart| obey(&heart, &words)), strings)
    }

    pub(crate) fn list(&self) -> Vec<TaskRow> {
        self.supervisor.list().wait(PATIENCE).unwrap()
    }

    pub(crate) fn row(&self, key: WorkerKey) -> TaskRow {
        self.list().into_iter().find(|row| row.key == key).unwrap()
    }

    /// The next notice about `key` that `wanted` takes, and all that came before it.
    pub(crate) fn until(&self, key: WorkerKey, wanted: impl Fn(&Notice) -> bool) -> (Vec<Notice>, Notice) {
        let mut before = Vec::new();
        loop {
            match self.notices.recv_timeout(self.left()) {
                Ok(notice) if notice.key == Some(key) && wanted(&notice) => return (before, notice),
                Ok(notice) => before.push(notice),
                Err(RecvTimeoutError::Timeout) => panic!("not seen; before it: {before:#?}; tasks: {:#?}", self.list()),
                Err(RecvTimeoutError::Disconnected) => panic!("the supervisor is gone"),
            }
        }
    }

    pub(crate) fn until_state(&self, key: WorkerKey, state: State) -> Notice {
        self.until(key, |notice| notice.kind == Kind::Lifecycle && notice.to == Some(state)).1
    }

    pub(crate) fn until_cause(&self, key: WorkerKey, cause: Cause) -> Notice {
        self.until(key, |notice| notice.cause == cause).1
    }

    /// Waits for so many complete scans.
    pub(crate) fn scans(&self, count: u64) {
        let until = self.supervisor.figures().scans + count;
        while self.supervisor.figures().scans < until {
            std::thread::park_timeout(SCAN.min(self.left()));
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // A supervisor that does not answer has failed the test already.
        let _ = self.supervisor.stop_all().wait(PATIENCE);
        self.supervisor.end();
    }
}

pub(crate) enum Word {
    Beat,
    Progress(u64),
    Finish(Finished),
    Panic(&'static str),
    RawExit,
    Pause,
    Phase(&'static str, Duration),
    Idle,
}

pub(crate) fn obey(heart: &Heart, words: &Receiver<Word>) -> Finished {
    while let Ok(word) = words.recv() {
        match word {
            Word::Beat => {
                heart.beat();
            }
            Word::Progress(done) => {
                heart.progress(done);
            }
            Word::Finish(finished) => return finished,
            Word::Panic(text) => panic!("{text}"),
            Word::RawExit => sys::thread::raw_exit(),
            Word::Pause => while heart.paused() {},
            Word::Phase(name, limit) => {
                heart.phase(name, limit);
            }
            Word::Idle => {
                heart.idle();
            }
        }
    }
    Finished::Stopped(Value::Null)
}

#[test]
fn a_silent_worker_is_a_zombie_and_returns_with_a_beat_or_with_progress() {
    let world = World::new(settings());
    let (key, strings) = world.puppet();
    let born = world.until(key, |_| true).1;
    assert_eq!((born.from, born.to, born.cause), (None, Some(Running), Cause::Spawned));

    let zombie = world.until_state(key, Zombie);
    assert_eq!(zombie.from, Some(Running));
    assert_eq!(world.row(key).state, Zombie);
    strings.send(Word::Beat).unwrap();
    assert_eq!(world.until_state(key, Running).cause, Cause::RecoveredBeat);

    world.until_state(key, Zombie);
    strings.send(Word::Progress(1)).unwrap();
    assert_eq!(world.until_state(key, Running).cause, Cause::RecoveredProgress);
    strings.send(Word::Finish(Finished::Done(Value::Null))).unwrap();
    world.until_state(key, Stopped);
}

#[test]
fn a_panic_is_death_with_its_text_and_place() {
    let world = World::new(settings());
    let (key, strings) = world.puppet();
    strings.send(Word::Panic("the sensor is on fire")).unwrap();
    let dead = world.until_state(key, Dead);
    assert_eq!((dead.from, dead.cause), (Some(Running), Cause::Panic));
    assert!(dead.detail.starts_with("the sensor is on fire at tests/it/supervision.rs:"), "{}", dead.detail);
    assert!(dead.detail.ends_with(", thread puppet"), "{}", dead.detail);
    let row = world.row(key);
    assert_eq!((row.state, row.cause, row.outcome, row.last_beat_ms), (Dead, Some(Cause::Panic), None, None));
    assert_eq!(row.said, dead.detail);
}

#[test]
fn a_finished_worker_is_stopped_and_then_cleaned() {
    let world = World::new(settings());
    for (finished, outcome, cause, output) in [
        (Finished::Done(json!({"alarms": 2})), Outcome::Success, Cause::Success, Some(json!({"alarms": 2}))),
        (Finished::Failed("no such device".into()), Outcome::Error, Cause::Error, None),
        (Finished::Stopped(Value::Null), Outcome::Stopped, Cause::StoppedOnRequest, None),
    ] {
        let (key, strings) = world.puppet();
        let early = world.supervisor.clean(key.task).wait(PATIENCE).unwrap();
        assert!(matches!(early, Err(TaskError::NotCleaned(_))), "{early:?}");
        strings.send(Word::Finish(finished)).unwrap();
        assert_eq!(world.until_state(key, Stopped).cause, cause);
        let row = world.row(key);
        assert_eq!((row.state, row.outcome, row.output), (Stopped, Some(outcome), output.clone()));
        let late = world.supervisor.stop(key.task).wait(PATIENCE).unwrap();
        assert_eq!(late, Err(TaskError::Ended(key.task, Stopped)));

        assert_eq!(world.supervisor.clean(key.task).wait(PATIENCE).unwrap(), Ok(1));
        assert_eq!(world.until_state(key, Cleaned).cause, Cause::CleanedOnRequest);
        let row = world.row(key);
        assert_eq!((row.state, row.outcome, row.output), (Cleaned, Some(outcome), output));
    }
    let missing = world.supervisor.stop(TaskId(99)).wait(PATIENCE).unwrap();
    assert_eq!(missing, Err(TaskError::NoSuchTask(TaskId(99))));
}

#[test]
fn an_ended_task_is_cleaned_when_its_time_is_over() {
    let world = World::new(Settings { keep: Duration::ZERO, ..settings() });
    let (key, strings) = world.puppet();
    strings.send(Word::Finish(Finished::Done(Value::Null))).unwrap();
    world.until_state(key, Stopped);
    assert_eq!(world.until_state(key, Cleaned).cause, Cause::Expired);
}

/// Each way to leave, on each tier.
#[test]
fn every_death_is_noticed_on_every_tier() {
    for tier in Tier::ALL {
        if tier == Tier::Pidfd && Tier::probe() != Tier::Pidfd {
            crate::skipped("every_death_is_noticed_on_every_tier", "this kernel has no pidfd of threads");
            continue;
        }
        let world = World::new(Settings { tier: Some(tier), ..settings() });
        assert_eq!(world.supervisor.tier(), tier);
        for (word, state, cause) in [
            (Word::RawExit, Dead, Cause::Vanished),
            (Word::Panic("x"), Dead, Cause::Panic),
            (Word::Finish(Finished::Done(Value::Null)), Stopped, Cause::Success),
        ] {
            let (key, strings) = world.puppet();
            strings.send(word).unwrap();
            let (before, notice) = world.until(key, |notice| notice.to.is_some_and(|to| !to.is_living()));
            assert_eq!((notice.to, notice.cause), (Some(state), cause), "{tier:?}, before it: {before:?}");
        }
    }
}

#[test]
fn beats_from_another_thread_are_refused_and_counted() {
    let world = World::new(settings());
    let (give, given) = channel();
    let (hold, held) = channel::<()>();
    let key = world.spawn(TaskSpec::new("deadlocked", "lets a helper beat for it"), move |heart| {
        give.send(heart).unwrap();
        assert!(held.recv().is_err());
        Finished::Stopped(Value::Null)
    });
    let heart = given.recv_timeout(PATIENCE).unwrap();
    let helper = std::thread::spawn(move || {
        while !heart.should_stop() {
            assert!(!heart.beat() && !heart.progress(1) && !heart.idle() && !heart.checkpoint("x"));
            std::thread::park_timeout(Duration::from_millis(1));
        }
    });
    let (before, note) = world.until(key, |notice| notice.cause == Cause::WrongThreadHeartbeat);
    if !before.iter().any(|notice| notice.to == Some(Zombie)) {
        world.until_state(key, Zombie);
    }
    assert_eq!(note.kind, Kind::Note);
    assert!(world.row(key).wrong_thread_beats > 0);
    world.supervisor.stop(key.task).wait(PATIENCE).unwrap().unwrap();
    helper.join().unwrap();
    drop(hold);
    world.until_state(key, Stopped);
}

#[test]
fn what_a_lying_worker_says_is_refused_and_noted() {
    let world = World::new(settings());
    let (said, heard) = channel();
    let spec = TaskSpec { checkpoints: vec!["read", "write"], ..TaskSpec::new("liar", "lies") };
    let key = world.spawn(spec, move |heart| {
        let answers = [
            heart.progress(5),
            heart.progress(4),
            heart.progress(5),
            heart.checkpoint("read"),
            heart.checkpoint("read"),
            heart.checkpoint("write"),
            heart.checkpoint("read"),
            heart.checkpoint("nowhere"),
            heart.phase("ten years", Duration::from_secs(10 * 365 * 86_400)),
            heart.phase_over(),
        ];
        said.send(answers).unwrap();
        while heart.rest(Duration::from_secs(3600)) {}
        Finished::Stopped(Value::Null)
    });
    let answers = heard.recv_timeout(PATIENCE).unwrap();
    assert_eq!(answers, [true, false, true, true, false, true, true, false, true, true]);
    let mut missing = vec![Cause::ProgressBackwards, Cause::CheckpointOrder, Cause::PhaseLimitCut];
    while !missing.is_empty() {
        let (_, note) = world.until(key, |notice| notice.kind == Kind::Note);
        missing.retain(|cause| *cause != note.cause);
    }
    let row = world.row(key);
    assert_eq!((row.state, row.progress, row.checkpoint.as_str()), (Running, Some(5), "nowhere"));
}

#[test]
fn a_paused_worker_runs_and_owes_nothing_until_it_is_let_go() {
    let world = World::new(settings());
    let (key, strings) = world.puppet();
    world.supervisor.pause(key.task).wait(PATIENCE).unwrap().unwrap();
    assert_eq!((world.row(key).state, world.row(key).cause), (Running, Some(Cause::Paused)));
    strings.send(Word::Pause).unwrap();
    let (before, _) = world.until(key, |notice| notice.cause == Cause::Paused);
    assert!(before.iter().all(|notice| notice.cause != Cause::NoBeat));
    // Many times tau: whatever was noticed before the worker came to its pause, nothing is noticed after.
    world.scans(5);
    world.notices.try_iter().for_each(drop);
    world.scans(40);
    assert_eq!(world.notices.try_iter().filter(|notice| notice.to == Some(Zombie)).count(), 0);
    assert_eq!((world.row(key).state, world.row(key).cause), (Running, Some(Cause::Paused)));

    world.supervisor.resume(key.task).wait(PATIENCE).unwrap().unwrap();
    world.until_cause(key, Cause::Resumed);
    // It goes on: it obeys again, and its silence counts again.
    world.until_state(key, Zombie);
    strings.send(Word::Finish(Finished::Done(Value::Null))).unwrap();
    world.until_state(key, Stopped);
}

#[test]
fn stopping_ends_a_rest_and_a_pause() {
    let world = World::new(settings());
    let resting = world.spawn(TaskSpec::new("resting", "rests"), |heart| {
        while heart.rest(Duration::from_secs(3600)) {}
        Finished::Stopped(json!({"rounds": 1}))
    });
    let (paused, strings) = world.puppet();
    world.supervisor.pause(paused.task).wait(PATIENCE).unwrap().unwrap();
    strings.send(Word::Pause).unwrap();
    world.scans(40);
    assert_eq!(world.row(resting).state, Running, "a rest beats");
    drop(strings);
    for key in [resting, paused] {
        world.supervisor.stop(key.task).wait(PATIENCE).unwrap().unwrap();
        // Asking twice is no error; by now it may have ended.
        let _ = world.supervisor.stop(key.task).wait(PATIENCE).unwrap();
    }
    let (before, last) = world.until(resting, |notice| notice.to == Some(Stopped));
    assert_eq!(last.cause, Cause::StoppedOnRequest);
    let asked =
        |key| before.iter().filter(|notice| notice.key == Some(key) && notice.cause == Cause::StopAsked).count();
    assert_eq!(asked(resting), 1);
    if !before.iter().any(|notice| notice.key == Some(paused) && notice.to == Some(Stopped)) {
        world.until_state(paused, Stopped);
    }
}

#[test]
fn a_phase_has_its_own_limit() {
    let world = World::new(settings());
    let (key, strings) = world.puppet();
    strings.send(Word::Phase("load_model", Duration::from_millis(900))).unwrap();
    let (before, zombie) = world.until(key, |notice| notice.to == Some(Zombie));
    assert_eq!(zombie.cause, Cause::PhaseOverrun, "{before:?}");
    assert!(zombie.detail.starts_with("phase load_model: in its phase for "), "{}", zombie.detail);
    assert_eq!(world.row(key).phase, "load_model");
    strings.send(Word::Idle).unwrap();
    world.until_state(key, Running);
    world.scans(40);
    assert_eq!(world.row(key).state, Running, "idle owes nothing");
}

#[test]
fn an_abandoned_life_cannot_act_any_more() {
    let world = World::new(settings());
    let (said, heard) = channel();
    let (ask, asked) = channel::<()>();
    let key = world.spawn(TaskSpec::new("stuck", "is given up"), move |heart| {
        while asked.recv().is_ok() {
            heart.beat();
            said.send((heart.may_act(), heart.should_stop(), heart.progress(1))).unwrap();
        }
        Finished::Done(Value::Null)
    });
    ask.send(()).unwrap();
    assert_eq!(heard.recv_timeout(PATIENCE).unwrap(), (true, false, true));
    world.supervisor.abandon(key.task).wait(PATIENCE).unwrap().unwrap();
    for _ in 0..3 {
        ask.send(()).unwrap();
        assert_eq!(heard.recv_timeout(PATIENCE).unwrap(), (false, true, false));
        world.scans(10);
        assert_eq!((world.row(key).state, world.row(key).cause), (Zombie, Some(Cause::Abandoned)));
    }
    drop(ask);
    world.until_state(key, Stopped);
}

#[test]
fn beyond_the_bound_nothing_is_started_and_nothing_else_is_harmed() {
    let world = World::new(Settings { workers_max: 64, first_task: TaskId(500), ..settings() });
    let rest = |heart: Heart| {
        while heart.rest(Duration::from_secs(3600)) {}
        Finished::Stopped(Value::Null)
    };
    let keys: Vec<WorkerKey> = (0..64).map(|n| world.spawn(TaskSpec::new(format!("w{n}"), ""), rest)).collect();
    assert_eq!(keys[0], WorkerKey { task: TaskId(500), generation: 1 });
    for _ in 64..10_000 {
        let refused = world.supervisor.spawn(TaskSpec::new("late", ""), rest).wait(PATIENCE).unwrap();
        assert_eq!(refused, Err(SpawnRefused::TooMany { living: 64, max: 64 }));
    }
    assert_eq!(world.supervisor.figures().spawn_refused, 10_000 - 64);
    // The evidence is told when the count has doubled, not ten thousand times.
    let told = world.notices.try_iter().filter(|notice| notice.cause == Cause::SpawnRefused).count();
    assert!((10..=14).contains(&told), "{told} notices");
    assert!(world.list().iter().all(|row| row.state == Running));
    // A thread that the system does not give: an impossible stack.
    let world = World::new(settings());
    let spec = TaskSpec { stack: usize::MAX / 4, ..TaskSpec::new("huge", "") };
    let refused = world.supervisor.spawn(spec, rest).wait(PATIENCE).unwrap().unwrap_err();
    assert!(refused.to_string().starts_with("SPAWN_REFUSED: no thread for huge: "), "{refused}");
    assert!(world.list().is_empty());
}

/// A worker that ends while its beats go stale is never called a ZOMBIE after its record, and ends exactly once.
#[test]
fn a_thousand_ends_are_a_thousand_notices_in_order() {
    let world = World::with_room(Settings { workers_max: 2000, ..settings() }, 50);
    let mut keys = BTreeMap::new();
    let random = AtomicU64::new(1);
    for n in 0..1000_u64 {
        let wait = Duration::from_micros(random.fetch_add(7919, Ordering::Relaxed) * 613 % 300_000);
        let key = world.spawn(TaskSpec { stack: 1 << 16, ..TaskSpec::new("short", "") }, move |_| {
            // Silent for up to one and a half tau.
            std::thread::park_timeout(wait);
            match n % 3 {
                0 => Finished::Done(Value::Null),
                1 => std::panic::resume_unwind(Box::new("quiet")),
                _ => sys::thread::raw_exit(),
            }
        });
        keys.insert(key, (n % 3, Vec::new()));
    }
    let mut ended = 0;
    while ended < 1000 {
        let notice = world.notices.recv_timeout(world.left()).unwrap();
        let Some((_, said)) = notice.key.and_then(|key| keys.get_mut(&key)) else { continue };
        if notice.kind == Kind::Lifecycle {
            ended += usize::from(!notice.to.unwrap().is_living());
            said.push(notice);
        }
    }
    for (key, (way, said)) in keys {
        let mut state = None;
        for notice in &said {
            assert_eq!(notice.from, state, "{key:?}: {said:?}");
            assert!(state.is_none_or(|state: State| state.may_become(notice.to.unwrap())), "{said:?}");
            state = notice.to;
        }
        let expected = match way {
            0 => (Some(Stopped), Cause::Success),
            1 => (Some(Dead), Cause::Panic),
            _ => (Some(Dead), Cause::Vanished),
        };
        let last = said.last().unwrap();
        assert_eq!((last.to, last.cause), expected);
    }
    assert_eq!(world.supervisor.figures().notices_lost, 0);
}

/// The number of a dead worker's thread is given to another one at once; nobody mistakes one for the other.
#[test]
fn a_reused_tid_misleads_nobody() {
    const LAST_PID: &str = "/proc/sys/kernel/ns_last_pid";
    if std::fs::OpenOptions::new().write(true).open(LAST_PID).is_err() {
        crate::skipped("a_reused_tid_misleads_nobody", "ns_last_pid cannot be written");
        return;
    }
    for tier in [Tier::Tryjoin, Tier::Proc, Tier::probe()] {
        let world = World::new(Settings { tier: Some(tier), ..settings() });
        let reused = (0..200).any(|_| {
            let (old, strings) = world.puppet();
            while world.row(old).tid == 0 {
                world.left();
            }
            let tid = world.row(old).tid;
            strings.send(Word::RawExit).unwrap();
            // On a polled tier the old one may still be unnoticed when its number is taken again.
            while sys::proc::thread(i32::try_from(std::process::id()).unwrap(), tid).is_ok() {
                world.left();
            }
            std::fs::write(LAST_PID, (tid - 1).to_string()).unwrap();
            let (new, strings) = world.puppet();
            while world.row(new).tid == 0 {
                world.left();
            }
            let same = world.row(new).tid == tid;
            let dead = world.until_state(old, Dead);
            assert_eq!(dead.cause, Cause::Vanished);
            assert!(world.row(new).state.is_living());
            strings.send(Word::Finish(Finished::Done(Value::Null))).unwrap();
            assert_eq!(world.until_state(new, Stopped).cause, Cause::Success);
            same
        });
        assert!(reused, "the number was not given again in 200 tries on {tier:?}");
    }
}

#[test]
fn the_watchdog_is_fed_while_the_second_vital_advances() {
    let name = format!("interlock-test-watchdog-{}", std::process::id());
    let systemd = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    systemd.set_read_timeout(Some(PATIENCE)).unwrap();
    let count = Arc::new(AtomicU64::new(0));
    let read = Arc::clone(&count);
    let period = sys::notify::watchdog_period(Some("60000"), None, 0).unwrap().unwrap();
    let watchdog = Watchdog {
        notifier: sys::notify::Notifier::new(Some(&format!("@{name}"))).unwrap(),
        period,
        vital: Some(Vital {
            name: "the evidence writer",
            count: Box::new(move || read.fetch_add(1, Ordering::Relaxed)),
        }),
    };
    let world = World::new(Settings { watchdog: Some(watchdog), ..settings() });
    let mut message = [0; 64];
    for _ in 0..5 {
        let length = systemd.recv(&mut message).unwrap();
        assert_eq!(&message[..length], b"WATCHDOG=1\n");
    }
    drop(world);

    let watchdog = Watchdog {
        notifier: sys::notify::Notifier::new(Some(&format!("@{name}"))).unwrap(),
        period,
        vital: Some(Vital { name: "the evidence writer", count: Box::new(|| 7) }),
    };
    let world = World::new(Settings { watchdog: Some(watchdog), ..settings() });
    loop {
        let notice = world.notices.recv_timeout(world.left()).unwrap();
        if notice.cause == Cause::WatchdogHeld {
            assert_eq!(notice.detail, "the evidence writer does not advance; systemd will restart the service");
            break;
        }
    }
    let pings = world.supervisor.figures().pings;
    world.scans(10);
    assert_eq!(world.supervisor.figures().pings, pings);
}

#[test]
fn a_stuck_vital_worker_holds_the_watchdog() {
    let watchdog = Watchdog {
        notifier: sys::notify::Notifier::new(None).unwrap(),
        period: Duration::from_millis(20),
        vital: None,
    };
    let world = World::new(Settings { watchdog: Some(watchdog), ..settings() });
    let (strings, words) = channel();
    let spec = TaskSpec { vital: true, ..TaskSpec::new("mediator", "everything goes through it") };
    let key = world.spawn(spec, move |heart| obey(&heart, &words));
    world.until_state(key, Zombie);
    loop {
        let notice = world.notices.recv_timeout(world.left()).unwrap();
        if notice.cause == Cause::WatchdogHeld {
            assert!(notice.detail.starts_with("t1 (mediator) does not advance"), "{}", notice.detail);
            break;
        }
    }
    let pings = world.supervisor.figures().pings;
    strings.send(Word::Idle).unwrap();
    while world.supervisor.figures().pings == pings {
        world.scans(1);
    }
}

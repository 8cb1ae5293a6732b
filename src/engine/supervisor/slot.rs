//! One worker's place between it and the supervisor: atomics that one side writes and the other reads.
//!
//! Lines of the cache are kept apart by who writes them: what a worker writes on every beat ([`super::pulse`]), what
//! the supervisor orders, and what is refused. Texts lie behind a lock that the worker takes for a copy and the supervisor only tries.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use interlock_domain::id::WorkerKey;
use interlock_domain::liveness::judge::{Doing, PHASE_LIMIT_MAX, Phase};
use interlock_domain::liveness::lifecycle::{Outcome, Said};
use interlock_domain::time::Tick;
use serde_json::Value;

use super::heart::Finished;
use super::link::Link;
use super::pulse::{BUSY, IDLE, Line, PAUSED, PHASE, PHASE_EXTERNAL};
use crate::sys::clock;

/// How the death of the thread is learned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Deaths {
    /// It has not said yet.
    NotKnown = 0,
    /// An event tells.
    Told = 1,
    /// By joining it.
    Joined = 2,
    /// By asking its link.
    Asked = 3,
}

thread_local! {
    /// The token of the slot that the calling thread is registered with; 0 for none.
    pub(super) static OWN: Cell<u64> = const { Cell::new(0) };
    /// The slot itself, for the panic hook.
    static OWN_SLOT: RefCell<Option<Arc<Slot>>> = const { RefCell::new(None) };
    /// What the panic hook saw: message and place.
    static LAST_PANIC: RefCell<Option<(String, String)>> = const { RefCell::new(None) };
}

static NEXT_TOKEN: AtomicU64 = AtomicU64::new(1);

/// Written by the supervisor, read by the worker.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Orders {
    pub(super) stop: AtomicBool,
    pub(super) revoked: AtomicBool,
    pub(super) pause: AtomicBool,
}

/// What was refused. Written by whoever lies, which must not slow down the honest.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Lies {
    pub(super) wrong_thread: AtomicU64,
    pub(super) backwards: AtomicU64,
    pub(super) limit_cut: AtomicU64,
    pub(super) out_of_order: AtomicU64,
}

/// One worker's place between it and the supervisor.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) pulse: Line,
    pub(super) orders: Orders,
    pub(super) lies: Lies,
    /// Counts refusals of all workers, so that a scan looks at `lies` only when there is a new one.
    lies_total: Arc<AtomicU64>,
    pub(super) token: u64,
    name: String,
    pub(super) key: OnceLock<WorkerKey>,
    pub(super) tau: Duration,
    pub(super) checkpoints: Vec<&'static str>,
    /// The place in `checkpoints` after the last one that was passed.
    pub(super) next_checkpoint: AtomicU32,
    pub(super) tid: AtomicI32,
    dying_at: AtomicU64,
    /// How its death is learned; taken out once it is gone, since it may hold a descriptor. Locked by the worker at its
    /// start only; the supervisor only tries.
    link: Mutex<Option<Link>>,
    linked: AtomicU8,
    pub(super) said: OnceLock<Said>,
    pub(super) output: OnceLock<Value>,
    thread: OnceLock<std::thread::Thread>,
    /// The name of the phase and of the last checkpoint: texts, so not in an atomic. The worker locks for a copy, the
    /// supervisor only tries.
    pub(super) names: Mutex<Names>,
}

#[derive(Debug, Default, Clone)]
pub(super) struct Names {
    pub(super) phase: String,
    pub(super) checkpoint: String,
}

impl Slot {
    pub(super) fn new(
        name: &str,
        tau: Duration,
        checkpoints: Vec<&'static str>,
        lies_total: Arc<AtomicU64>,
        pulse: Line,
    ) -> Slot {
        Slot {
            pulse,
            orders: Orders::default(),
            lies: Lies::default(),
            lies_total,
            token: NEXT_TOKEN.fetch_add(1, Ordering::Relaxed),
            name: name.to_owned(),
            key: OnceLock::new(),
            tau,
            checkpoints,
            next_checkpoint: AtomicU32::new(0),
            tid: AtomicI32::new(0),
            dying_at: AtomicU64::new(0),
            link: Mutex::new(None),
            linked: AtomicU8::new(Deaths::NotKnown as u8),
            said: OnceLock::new(),
            output: OnceLock::new(),
            thread: OnceLock::new(),
            names: Mutex::new(Names::default()),
        }
    }

    /// Gives it the name under which it is known. Before its thread is made.
    pub(super) fn christen(&self, key: WorkerKey) {
        self.key.get_or_init(|| key);
    }

    /// Binds the calling thread: from here on only its beats count.
    pub(super) fn register(self: &Arc<Slot>, link: Link) {
        OWN.set(self.token);
        OWN_SLOT.with_borrow_mut(|own| *own = Some(Arc::clone(self)));
        self.tid.store(crate::sys::thread::own_tid(), Ordering::Release);
        self.thread.get_or_init(std::thread::current);
        self.pulse.beat_at.store(clock::coarse().0, Ordering::Release);
        let word = link.deaths() as u8;
        if let Ok(mut place) = self.link.lock() {
            *place = Some(link);
        }
        self.linked.store(word, Ordering::Release);
    }

    /// Frees the calling thread, whose work is over.
    pub(super) fn unregister(&self) {
        OWN.set(0);
        // A slot that was left by a raw exit keeps this reference: a leak of one slot for each such death.
        OWN_SLOT.with_borrow_mut(|own| *own = None);
    }

    /// How its death is learned.
    pub(super) fn deaths(&self) -> Deaths {
        let word = self.linked.load(Ordering::Acquire);
        let all = [Deaths::NotKnown, Deaths::Told, Deaths::Joined, Deaths::Asked];
        all.into_iter().find(|deaths| *deaths as u8 == word).unwrap_or(Deaths::NotKnown)
    }

    /// Looks at the link, unless it is just being made.
    pub(super) fn with_link<T>(&self, look: impl FnOnce(&Link) -> T) -> Option<T> {
        self.link.try_lock().ok()?.as_ref().map(look)
    }

    /// The thread is gone: what its link held is given back.
    pub(super) fn unlink(&self) {
        if let Ok(mut link) = self.link.try_lock() {
            *link = None;
        }
    }

    #[inline]
    pub(super) fn beat_at(&self) -> Tick {
        Tick(self.pulse.beat_at.load(Ordering::Relaxed))
    }

    #[inline]
    pub(super) fn progress_at(&self) -> Option<Tick> {
        let at = self.pulse.progress_at.load(Ordering::Acquire);
        (at != 0).then_some(Tick(at))
    }

    pub(super) fn progress(&self) -> u64 {
        self.pulse.progress.load(Ordering::Relaxed)
    }

    /// Whether it waits for nothing but work.
    #[inline]
    pub(super) fn is_plainly_busy(&self) -> bool {
        self.pulse.doing.load(Ordering::Relaxed) == BUSY
    }

    #[inline]
    pub(super) fn owes_nothing(&self) -> bool {
        matches!(self.pulse.doing.load(Ordering::Relaxed), IDLE | PAUSED)
    }

    pub(super) fn doing(&self) -> Doing {
        // The stamp is written before the word, so a fresh word is never seen with a stale stamp.
        match self.pulse.doing.load(Ordering::Acquire) {
            IDLE => Doing::Idle,
            PAUSED => Doing::Paused,
            word @ (PHASE | PHASE_EXTERNAL) => {
                let limit = self.pulse.phase_limit.load(Ordering::Acquire);
                let began = self.pulse.phase_began.load(Ordering::Acquire);
                // Between two phases: the next scan sees the new one.
                if limit == 0 || self.pulse.phase_limit.load(Ordering::Acquire) != limit {
                    return Doing::Phase(Phase {
                        began: clock::now(),
                        limit: PHASE_LIMIT_MAX,
                        external: word == PHASE_EXTERNAL,
                    });
                }
                Doing::Phase(Phase {
                    began: Tick(began),
                    limit: Duration::from_nanos(limit),
                    external: word == PHASE_EXTERNAL,
                })
            }
            _ => Doing::Busy,
        }
    }

    /// When the panic hook marked it, if it has not beaten since.
    pub(super) fn dying_since(&self) -> Option<Tick> {
        let at = Tick(self.dying_at.load(Ordering::Acquire));
        (at != Tick(0) && at >= self.beat_at()).then_some(at)
    }

    /// The names of its phase and last checkpoint, unless it is just writing them.
    pub(super) fn names(&self) -> (String, String) {
        self.names.try_lock().map(|names| (names.phase.clone(), names.checkpoint.clone())).unwrap_or_default()
    }

    pub(super) fn ask_to_stop(&self) {
        self.orders.stop.store(true, Ordering::Release);
        self.wake();
    }

    pub(super) fn stop_asked(&self) -> bool {
        self.orders.stop.load(Ordering::Acquire)
    }

    pub(super) fn set_pause(&self, pause: bool) {
        self.orders.pause.store(pause, Ordering::Release);
        self.wake();
    }

    /// Takes all rights from this life: it is replaced, and must never act under its old key.
    pub(super) fn revoke(&self) {
        self.orders.revoked.store(true, Ordering::Release);
        self.ask_to_stop();
    }

    fn wake(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    #[cold]
    pub(super) fn refuse(&self, lie: &AtomicU64) -> bool {
        lie.fetch_add(1, Ordering::Relaxed);
        self.lies_total.fetch_add(1, Ordering::Release);
        false
    }

    /// A child process says that it is at work.
    pub(super) fn told_beat(&self) {
        self.pulse.beat_at.store(clock::coarse().0, Ordering::Relaxed);
        self.pulse.beats.fetch_add(1, Ordering::Relaxed);
        self.pulse.doing.store(BUSY, Ordering::Release);
    }

    /// A child process says how far it is.
    pub(super) fn told_progress(&self, done: u64) {
        let before = self.pulse.progress.load(Ordering::Relaxed);
        if done < before {
            self.refuse(&self.lies.backwards);
        } else if done > before || self.pulse.progress_at.load(Ordering::Relaxed) == 0 {
            self.pulse.progress.store(done, Ordering::Relaxed);
            self.pulse.progress_at.store(clock::coarse().0.max(1), Ordering::Release);
        }
    }

    /// Nothing is due from it until it says otherwise.
    pub(super) fn told_idle(&self) {
        self.pulse.doing.store(IDLE, Ordering::Release);
    }

    /// Somebody else knows how it is watched: a child process has no thread of ours.
    pub(super) fn watched(&self, pid: i32, deaths: Deaths) {
        self.tid.store(pid, Ordering::Release);
        self.linked.store(deaths as u8, Ordering::Release);
    }

    pub(super) fn beats(&self) -> u64 {
        self.pulse.beats.load(Ordering::Relaxed)
    }

    /// Leaves a last word in its name.
    pub(super) fn leave(&self, said: Said) {
        self.said.get_or_init(|| said);
    }

    /// Leaves the last word. Only the first one counts.
    pub(super) fn finish(&self, finished: Finished) {
        let (outcome, text, output) = match finished {
            Finished::Done(output) => (Outcome::Success, String::new(), output),
            Finished::Failed(text) => (Outcome::Error, text, Value::Null),
            Finished::Stopped(output) => (Outcome::Stopped, String::new(), output),
        };
        if output != Value::Null {
            self.output.get_or_init(|| output);
        }
        self.said.get_or_init(|| Said::Finished { outcome, text });
    }

    pub(super) fn panicked(&self, payload: &(dyn std::any::Any + Send)) {
        let (text, place) = LAST_PANIC.take().unwrap_or_else(|| (panic_text(payload), "an unknown place".to_owned()));
        let place = format!("{place}, thread {}", self.name);
        self.said.get_or_init(|| Said::Panicked { text, place });
    }
}

fn panic_text(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied().or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a panic without a text").to_owned()
}

/// Marks a panicking worker before the hook that was there writes its backtrace, which can take over 100 ms.
pub(super) fn install_panic_hook() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let slot = OWN_SLOT.try_with(|own| own.try_borrow().ok()?.clone()).ok().flatten();
            if let Some(slot) = slot {
                let place = info.location().map(ToString::to_string).unwrap_or_default();
                // Never earlier than the last beat, which has the coarse clock's stamp.
                slot.dying_at.store(clock::now().0, Ordering::Release);
                LAST_PANIC.set(Some((panic_text(info.payload()), place)));
            }
            before(info);
        }));
    });
}

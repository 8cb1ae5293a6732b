//! Watches our own threads, and is itself watched by systemd.
//!
//! A plain OS thread, started before the async runtime, so that a wedged runtime cannot stop it. It never waits for a
//! thread that it watches: no lock (it only tries), no `recv`, no log call. A wait would let one stuck thread hide all
//! the others. It decides nothing: `domain::liveness` judges, this carries the verdicts out.
//!
//! If this thread itself fails, the process ends and systemd restarts it.

mod ask;
mod heart;
mod link;
mod outbox;
mod patrol;
mod watchdog;
mod worker;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use interlock_domain::id::{TaskId, WorkerKey};
use interlock_domain::liveness::census::{KEEP, NotCleaned};
use interlock_domain::liveness::judge::Limits;
use interlock_domain::liveness::lifecycle::{Cause, Notice, Outcome, State};
use interlock_domain::time::Wall;
use serde_json::Value;
use thiserror::Error;
use tokio::sync::oneshot;

pub use ask::{Ask, NoAnswer};
pub use heart::{Finished, Heart};
pub use link::Tier;
pub use watchdog::{Vital, Watchdog};
pub use worker::Work;

use crate::sys::wake::{Bell, Waiter};

/// Workers at once, by default: far below the 4,915 threads that systemd gives a unit, which the rest needs too.
pub const WORKERS_MAX: usize = 1024;
/// The stack of a worker unless it says otherwise. Only what is touched costs memory.
pub const STACK: usize = 1 << 20;
/// Requests that wait for the supervisor. It takes them within microseconds; a full queue means that it is gone.
const REQUESTS_MAX: usize = 1024;

/// How the supervisor works.
#[derive(Debug)]
pub struct Settings {
    /// How patient to be with a worker that does not say otherwise; its `scan` is the time between two scans.
    pub limits: Limits,
    /// The hard channel; none to take the best that the kernel has.
    pub tier: Option<Tier>,
    /// Workers at once.
    pub workers_max: usize,
    /// The number of the first task: above every number in the evidence.
    pub first_task: TaskId,
    /// How long ended tasks stay listed.
    pub keep: Duration,
    /// Reap orphans that come to us as the subreaper. Off where someone else waits for children late.
    pub reap_orphans: bool,
    /// What is fed while all is well.
    pub watchdog: Option<Watchdog>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            limits: Limits::default(),
            tier: None,
            workers_max: WORKERS_MAX,
            first_task: TaskId(1),
            keep: KEEP,
            reap_orphans: false,
            watchdog: None,
        }
    }
}

/// What is to be started, besides its work.
#[derive(Debug, Clone)]
pub struct TaskSpec {
    /// A short name: the thread carries it, cut to 15 bytes.
    pub name: String,
    /// What it does, for a person.
    pub about: String,
    /// Its own tau; none for the supervisor's.
    pub tau: Option<Duration>,
    /// Bytes of stack.
    pub stack: usize,
    /// Whether the watchdog is held while it is a ZOMBIE.
    pub vital: bool,
    /// The order in which its checkpoints come, round and round; empty when it declares none.
    pub checkpoints: Vec<&'static str>,
}

impl TaskSpec {
    /// With the defaults.
    #[must_use]
    pub fn new(name: impl Into<String>, about: impl Into<String>) -> TaskSpec {
        TaskSpec {
            name: name.into(),
            about: about.into(),
            tau: None,
            stack: STACK,
            vital: false,
            checkpoints: Vec::new(),
        }
    }
}

/// One row of `task list`.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskRow {
    /// Whose life it is.
    pub key: WorkerKey,
    /// Its name.
    pub name: String,
    /// What it does.
    pub about: String,
    /// Its state.
    pub state: State,
    /// Why; none for one that simply runs.
    pub cause: Option<Cause>,
    /// Milliseconds since its last beat; none once it has ended.
    pub last_beat_ms: Option<u64>,
    /// Its progress; none when it declared none.
    pub progress: Option<u64>,
    /// The kernel's number of its thread: a label, which may be someone else's once it has ended.
    pub tid: i32,
    /// When it was started.
    pub started: Wall,
    /// How it ended.
    pub outcome: Option<Outcome>,
    /// What it said at its end: an error, a panic with its place. Empty when nothing.
    pub said: String,
    /// What it gave back.
    pub output: Option<Value>,
    /// The name of the phase that it is in; empty when in none.
    pub phase: String,
    /// The last checkpoint that it passed; empty when none.
    pub checkpoint: String,
    /// Beats from other threads that were refused.
    pub wrong_thread_beats: u64,
    /// The counters of the last looks, while it is a suspect; empty otherwise.
    pub counters: String,
}

/// Why no worker was started.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SpawnRefused {
    /// As many run as may.
    #[error("SPAWN_REFUSED: {living} workers run, and {max} are allowed")]
    TooMany {
        /// How many run.
        living: usize,
        /// How many may.
        max: usize,
    },
    /// The system gives no thread.
    #[error("SPAWN_REFUSED: no thread for {name}: {error} (pids.max of the service: {pids_max})")]
    NoThread {
        /// The task.
        name: String,
        /// What the system said, with its errno.
        error: String,
        /// The limit of threads of our control group, `unknown` where it is hidden.
        pids_max: String,
    },
}

/// Why a task was left as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum TaskError {
    /// Nobody has that number.
    #[error("there is no task {0}")]
    NoSuchTask(TaskId),
    /// It has ended: there is nothing to stop, pause or resume.
    #[error("task {0} is {state}", state = .1.name())]
    Ended(TaskId, State),
    /// It cannot be cleaned.
    #[error(transparent)]
    NotCleaned(#[from] NotCleaned),
}

/// Why there is no supervisor.
#[derive(Debug, Error)]
pub enum StartError {
    /// No place to wait in.
    #[error("the supervisor has no descriptors: {0}")]
    NoDescriptors(#[source] std::io::Error),
    /// No thread.
    #[error("the supervisor has no thread: {0}")]
    NoThread(#[source] std::io::Error),
    /// The tier that was asked for is not there.
    #[error("this kernel has no {tier}: it needs Linux 6.9", tier = .0.name())]
    NoTier(Tier),
}

/// Figures of the supervisor itself, for `doctor`, the console and the bench.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Figures {
    /// Complete scans.
    pub scans: u64,
    /// How long the last scan took, ns.
    pub last_scan_ns: u64,
    /// The longest scan, ns.
    pub longest_scan_ns: u64,
    /// CPU time of the supervisor's thread, ns.
    pub cpu_ns: u64,
    /// How often it was itself late.
    pub gaps: u64,
    /// Workers that were not started.
    pub spawn_refused: u64,
    /// Beats, progress, phases and checkpoints that were refused.
    pub lies: u64,
    /// Notices that wait for someone to take them.
    pub notices_waiting: u64,
    /// Notices that were dropped.
    pub notices_lost: u64,
    /// Pings to systemd.
    pub pings: u64,
    /// Workers that run.
    pub living: u64,
}

macro_rules! shared_figures {
    ($($name:ident),*) => {
        #[derive(Debug, Default)]
        pub(crate) struct SharedFigures { $(pub(crate) $name: AtomicU64,)* pub(crate) lies: Arc<AtomicU64> }
        impl SharedFigures {
            fn read(&self) -> Figures {
                Figures { $($name: self.$name.load(Ordering::Relaxed),)* lies: self.lies.load(Ordering::Relaxed) }
            }
        }
    };
}
shared_figures!(
    scans,
    last_scan_ns,
    longest_scan_ns,
    cpu_ns,
    gaps,
    spawn_refused,
    notices_waiting,
    notices_lost,
    pings,
    living
);

type Reply<T> = oneshot::Sender<T>;

/// What the supervisor is asked.
enum Request {
    Spawn(TaskSpec, Work, Reply<Result<WorkerKey, SpawnRefused>>),
    Stop(TaskId, Reply<Result<(), TaskError>>),
    Pause(TaskId, bool, Reply<Result<(), TaskError>>),
    Abandon(TaskId, Reply<Result<(), TaskError>>),
    Clean(TaskId, Reply<Result<usize, TaskError>>),
    List(Reply<Vec<TaskRow>>),
    StopAll(Reply<usize>),
    End,
}

/// The handle of the supervisor: cheap to clone. Each question is answered at the supervisor's next wake, within
/// microseconds; await the answer, or wait for it with a limit.
#[derive(Debug, Clone)]
pub struct Supervisor {
    requests: SyncSender<Request>,
    bell: Bell,
    figures: Arc<SharedFigures>,
    tier: Tier,
}

/// Takes a notice without waiting, or gives it back. A closure over the `try_send` of a bounded channel.
pub type Offer = Box<dyn FnMut(Notice) -> Result<(), Notice> + Send>;

impl Supervisor {
    /// Starts the supervisor's thread. `offer` gets every notice for the evidence, in order.
    ///
    /// # Errors
    /// When there are no descriptors or no thread, or the tier that was asked for is not there.
    pub fn start(settings: Settings, offer: Offer) -> Result<Supervisor, StartError> {
        let best = Tier::probe();
        let tier = settings.tier.unwrap_or(best);
        if tier == Tier::Pidfd && best != Tier::Pidfd {
            return Err(StartError::NoTier(tier));
        }
        heart::install_panic_hook();
        crate::sys::pidfd::raise_descriptor_limit();
        let waiter = Waiter::new().map_err(StartError::NoDescriptors)?;
        let bell = waiter.bell();
        let (requests, inbox) = sync_channel(REQUESTS_MAX);
        let figures = Arc::new(SharedFigures::default());
        let patrol = patrol::Patrol::new(settings, tier, waiter, inbox, offer, Arc::clone(&figures));
        let body = move || {
            // Without a supervisor nothing may go on as if there were one: the process ends, systemd restarts it.
            if catch_unwind(AssertUnwindSafe(|| patrol.run())).is_err() {
                std::process::abort();
            }
        };
        crate::sys::thread::spawn("supervisor", STACK, Box::new(body)).map_err(StartError::NoThread)?;
        Ok(Supervisor { requests, bell, figures, tier })
    }

    /// Starts a worker on a thread of its own.
    pub fn spawn(
        &self,
        spec: TaskSpec,
        work: impl FnOnce(Heart) -> Finished + Send + 'static,
    ) -> Ask<Result<WorkerKey, SpawnRefused>> {
        self.ask(|reply| Request::Spawn(spec, Box::new(work), reply))
    }

    /// Asks a task to stop. It ends in its own time; asking twice is no error.
    #[must_use = "the answer says whether there is such a task"]
    pub fn stop(&self, task: TaskId) -> Ask<Result<(), TaskError>> {
        self.ask(|reply| Request::Stop(task, reply))
    }

    /// Asks a task to pause: it is shown as PAUSED from now on, and waits as soon as it comes to it.
    #[must_use = "the answer says whether there is such a task"]
    pub fn pause(&self, task: TaskId) -> Ask<Result<(), TaskError>> {
        self.ask(|reply| Request::Pause(task, true, reply))
    }

    /// Lets a paused task go on.
    #[must_use = "the answer says whether there is such a task"]
    pub fn resume(&self, task: TaskId) -> Ask<Result<(), TaskError>> {
        self.ask(|reply| Request::Pause(task, false, reply))
    }

    /// Gives a task up: its handle is revoked for ever (it is told to stop, its progress is refused, and it may not act),
    /// and it is a ZOMBIE until its thread is gone. A thread cannot be ended from outside.
    #[must_use = "the answer says whether there is such a task"]
    pub fn abandon(&self, task: TaskId) -> Ask<Result<(), TaskError>> {
        self.ask(|reply| Request::Abandon(task, reply))
    }

    /// Cleans an ended task; how many of its lives were cleaned.
    #[must_use = "the answer says whether there is such a task"]
    pub fn clean(&self, task: TaskId) -> Ask<Result<usize, TaskError>> {
        self.ask(|reply| Request::Clean(task, reply))
    }

    /// All tasks that are known, cleaned ones too, by number and generation.
    #[must_use = "the rows are the answer"]
    pub fn list(&self) -> Ask<Vec<TaskRow>> {
        self.ask(Request::List)
    }

    /// Asks all workers to stop; how many were asked.
    #[must_use = "the answer says how many are still there"]
    pub fn stop_all(&self) -> Ask<usize> {
        self.ask(Request::StopAll)
    }

    /// Ends the supervision itself. Workers that still run go on unwatched: stop them first.
    pub fn end(&self) {
        // A full or closed queue means that nobody supervises any more.
        let _ = self.requests.try_send(Request::End);
        self.bell.ring();
    }

    /// Figures of the supervisor, without asking it.
    #[must_use]
    pub fn figures(&self) -> Figures {
        self.figures.read()
    }

    /// The tier of the hard channel.
    #[must_use]
    pub fn tier(&self) -> Tier {
        self.tier
    }

    fn ask<T>(&self, request: impl FnOnce(Reply<T>) -> Request) -> Ask<T> {
        let (reply, answer) = oneshot::channel();
        match self.requests.try_send(request(reply)) {
            Ok(()) => self.bell.ring(),
            // The request is dropped with its reply: the asker sees that nobody answers.
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {}
        }
        Ask::new(answer)
    }
}

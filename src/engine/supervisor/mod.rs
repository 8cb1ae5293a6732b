//! Watches our own threads, and is itself watched by systemd.
//!
//! A plain OS thread, started before the async runtime, so that a wedged runtime cannot stop it. It never waits for a
//! thread that it watches: no lock (it only tries), no `recv`, no log call. A wait would let one stuck thread hide all
//! the others. It decides nothing: `domain::liveness` judges, this carries the verdicts out.
//!
//! If this thread itself fails, the process ends and systemd restarts it.

mod ask;
mod children;
mod glance;
mod heart;
mod ladder;
mod link;
mod notes;
mod outbox;
mod patrol;
mod probe;
mod pulse;
mod serve;
mod slot;
mod spec;
mod watchdog;
mod worker;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use interlock_domain::id::{TaskId, WorkerKey};
use interlock_domain::liveness::census::KEEP;
use interlock_domain::liveness::judge::Limits;
use interlock_domain::liveness::lifecycle::Notice;
use thiserror::Error;
use tokio::sync::oneshot;

pub use ask::{Ask, NoAnswer};
pub use heart::{Finished, Heart};
pub use link::Tier;
pub use probe::{runtime_probe, runtime_spec};
pub use spec::{Again, ChildSpec, ForeignAgain, Once, SpawnRefused, TaskError, TaskRow, TaskSpec};
pub use watchdog::{Vital, Watchdog};

use children::Launched;
use slot::Slot;
use spec::Work;

use crate::sys::notified::Ear;
use crate::sys::thread::Foreign;
use crate::sys::wake::{Bell, Waiter};

/// Workers at once, by default: far below the 4,915 threads that systemd gives a unit, which the rest needs too.
pub const WORKERS_MAX: usize = 1024;
/// The stack of a worker unless it says otherwise. Only what is touched costs memory.
pub const STACK: usize = 1 << 20;
/// Requests that wait for the supervisor. It takes them within microseconds; a full queue means that it is gone.
const REQUESTS_MAX: usize = 1024;

/// Ends the process in an orderly way and with a failure, so that systemd starts it anew. Must not wait.
pub type EndProcess = Box<dyn FnMut(&str) + Send>;

/// How the supervisor works.
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
    /// The last rung of the ladder, with the reason. Without it the watchdog is held instead.
    pub end_process: Option<EndProcess>,
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
            end_process: None,
        }
    }
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
    Adopt(TaskSpec, Arc<Slot>, Reply<Result<WorkerKey, SpawnRefused>>),
    Launched(Box<Launched>),
    Stop(TaskId, Reply<Result<(), TaskError>>),
    Pause(TaskId, bool, Reply<Result<(), TaskError>>),
    Abandon(TaskId, Reply<Result<(), TaskError>>),
    Restart(TaskId, Reply<Result<(), TaskError>>),
    Clean(TaskId, Reply<Result<usize, TaskError>>),
    List(Reply<Vec<TaskRow>>),
    StopAll(Reply<usize>),
    End,
}

/// The handle of the supervisor: cheap to clone. Each question is answered at the supervisor's next wake, within
/// microseconds; await the answer, or wait for it with a limit.
#[derive(Debug, Clone)]
pub struct Supervisor {
    /// Boxed: the ring touches every slot when it is made, and most requests are small.
    requests: SyncSender<Box<Request>>,
    bell: Bell,
    figures: Arc<SharedFigures>,
    tier: Tier,
    limits: Limits,
    ear: Arc<str>,
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
        slot::install_panic_hook();
        crate::sys::pidfd::raise_descriptor_limit();
        let waiter = Waiter::new().map_err(StartError::NoDescriptors)?;
        let ear = Ear::open().map_err(StartError::NoDescriptors)?;
        let (bell, address) = (waiter.bell(), Arc::from(ear.address()));
        bell.add(&ear, patrol::EAR).map_err(StartError::NoDescriptors)?;
        let limits = settings.limits;
        let (requests, inbox) = sync_channel(REQUESTS_MAX);
        let figures = Arc::new(SharedFigures::default());
        let patrol =
            patrol::Patrol::new(settings, tier, waiter, (requests.clone(), inbox), ear, offer, Arc::clone(&figures));
        let body = move || {
            // Without a supervisor nothing may go on as if there were one: the process ends, systemd restarts it.
            if catch_unwind(AssertUnwindSafe(|| patrol.run())).is_err() {
                std::process::abort();
            }
        };
        crate::sys::thread::spawn("supervisor", STACK, Box::new(body)).map_err(StartError::NoThread)?;
        Ok(Supervisor { requests, bell, figures, tier, limits, ear: address })
    }

    /// Starts a worker on a thread of its own.
    pub fn spawn(
        &self,
        spec: TaskSpec,
        work: impl FnOnce(Heart) -> Finished + Send + 'static,
    ) -> Ask<Result<WorkerKey, SpawnRefused>> {
        self.ask(|reply| Request::Spawn(spec, Work::Once(Box::new(work)), reply))
    }

    /// Starts a worker that may begin again after a failure, as its policy says: each life has a generation of its own.
    pub fn spawn_again(
        &self,
        spec: TaskSpec,
        work: impl Fn(Heart) -> Finished + Send + Sync + 'static,
    ) -> Ask<Result<WorkerKey, SpawnRefused>> {
        self.ask(|reply| Request::Spawn(spec, Work::Again(Arc::new(work)), reply))
    }

    /// Starts foreign code on a thread of its own, which it may leave by `pthread_exit` or by the raw system call. What
    /// it returns is its completion record: 0 for success. It owes no beats; its end is seen.
    pub fn spawn_foreign(
        &self,
        spec: TaskSpec,
        make: impl Fn() -> Foreign + Send + Sync + 'static,
    ) -> Ask<Result<WorkerKey, SpawnRefused>> {
        self.ask(|reply| Request::Spawn(spec, Work::Foreign(Arc::new(make)), reply))
    }

    /// Starts a program as a child process. Its loading happens on a thread of its own.
    pub fn spawn_child(&self, spec: TaskSpec, child: ChildSpec) -> Ask<Result<WorkerKey, SpawnRefused>> {
        let (reply, answer) = oneshot::channel();
        let launch = children::Launch {
            tau: spec.tau.unwrap_or(self.limits.tau),
            spec,
            child,
            again_for: None,
            reply: Some(reply),
            requests: self.requests.clone(),
            bell: self.bell.clone(),
            ear: Arc::clone(&self.ear),
        };
        // Without a thread the reply is dropped, and the asker sees that nobody answers.
        let _ = launch.start();
        Ask::new(answer)
    }

    /// Takes the calling thread under supervision, which somebody else made. Its heart is its own from here on: it
    /// says [`Heart::finish`] before the thread ends, or the thread has vanished.
    #[must_use = "the heart has to beat"]
    pub fn adopt(&self, spec: TaskSpec) -> (Heart, Ask<Result<WorkerKey, SpawnRefused>>) {
        let tau = spec.tau.unwrap_or(self.limits.tau);
        let lies = Arc::clone(&self.figures.lies);
        let slot = Slot::new(&spec.name, tau, spec.checkpoints.clone(), lies, pulse::Line::alone());
        let slot = Arc::new(slot);
        worker::announce(&slot, self.tier, &self.bell, false);
        let heart = Heart { slot: Arc::clone(&slot) };
        (heart, self.ask(|reply| Request::Adopt(spec, slot, reply)))
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

    /// Begins a task again that was held after too many restarts, or has ended and may begin again.
    #[must_use = "the answer says whether there is such a task"]
    pub fn restart(&self, task: TaskId) -> Ask<Result<(), TaskError>> {
        self.ask(|reply| Request::Restart(task, reply))
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
        let _ = self.requests.try_send(Box::new(Request::End));
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
        match self.requests.try_send(Box::new(request(reply))) {
            Ok(()) => self.bell.ring(),
            // The request is dropped with its reply: the asker sees that nobody answers.
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {}
        }
        Ask::new(answer)
    }
}

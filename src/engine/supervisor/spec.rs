//! What is started, what is shown of it, and what is refused.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use interlock_domain::id::{TaskId, WorkerKey};
use interlock_domain::liveness::census::NotCleaned;
use interlock_domain::liveness::lifecycle::{Cause, Outcome, State};
use interlock_domain::liveness::rate::Rate;
use interlock_domain::liveness::remedy::Policy;
use interlock_domain::time::Wall;
use serde_json::Value;
use thiserror::Error;

use super::STACK;
use super::heart::{Finished, Heart};
use crate::sys::thread::Foreign;

/// Work that can be done once.
pub type Once = Box<dyn FnOnce(Heart) -> Finished + Send>;
/// Work that can be begun again after a failure.
pub type Again = Arc<dyn Fn(Heart) -> Finished + Send + Sync>;
/// Makes foreign code ready to run, once for each life.
pub type ForeignAgain = Arc<dyn Fn() -> Foreign + Send + Sync>;

/// What a task does in each of its lives.
pub(super) enum Work {
    Once(Once),
    Again(Again),
    Foreign(ForeignAgain),
}

/// A program that runs as a child process, in a group of its own. It is told where to speak to (`NOTIFY_SOCKET`) and
/// how often (`WATCHDOG_USEC`): from its first `WATCHDOG=1` on, its beats are due; `X_PROGRESS=n` is its progress and
/// `STATUS=` what it says of itself. Without any of these, only its end is seen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChildSpec {
    /// The program.
    pub program: OsString,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Variables beside those that it inherits.
    pub envs: Vec<(OsString, OsString)>,
    /// The folder in which it starts; none for ours.
    pub folder: Option<PathBuf>,
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
    /// One of the daemon's own: nobody may stop or pause it, and lists show it only when something is wrong with it.
    pub own: bool,
    /// The order in which its checkpoints come, round and round; empty when it declares none.
    pub checkpoints: Vec<&'static str>,
    /// How often it beats while all is well; none when it declares no rhythm.
    pub rate: Option<Rate>,
    /// Tasks without which it cannot be right: it is noted when one of them dies of a panic.
    pub needs: Vec<TaskId>,
    /// What is done when it is stuck or dies.
    pub policy: Policy,
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
            own: false,
            checkpoints: Vec::new(),
            rate: None,
            needs: Vec::new(),
            policy: Policy::LEAVE,
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
    /// One of the daemon's own.
    pub own: bool,
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
    /// What it says of itself (`STATUS=` of a child process); empty when nothing.
    pub status: String,
    /// How unusual its silence is for itself (phi); none while too little is known.
    pub suspicion: Option<f64>,
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
    /// The life before it is still there and was not given up.
    #[error("SPAWN_REFUSED: the life before it is still there")]
    StillThere,
    /// The program does not start.
    #[error("SPAWN_REFUSED: {program} does not start: {error}")]
    NoProgram {
        /// The program.
        program: String,
        /// What the system said, with its errno.
        error: String,
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
    /// It is one of the daemon's own.
    #[error("task {0} is the daemon's own; stop the daemon instead")]
    Own(TaskId),
    /// It runs, or its work can be done only once.
    #[error("task {0} cannot begin again")]
    NotRestartable(TaskId),
    /// It cannot be cleaned.
    #[error(transparent)]
    NotCleaned(#[from] NotCleaned),
}

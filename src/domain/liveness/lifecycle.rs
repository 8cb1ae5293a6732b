//! The five states of a task, the legal moves between them, and the words for why.
//!
//! A move that is not in the table cannot be written: evidence that shows DEAD -> RUNNING would make every other row
//! doubtful. The names are for good: rows, scripts and people keep them for years.

use crate::id::WorkerKey;
use crate::time::Tick;

/// The state of one life of one task (ReliHarness, five-state machine).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// Alive and, as far as anyone can tell, at work (or paused, or waiting for work).
    Running,
    /// Alive but silent. Not final: the operator's window to tell a deadlock from slow work.
    Zombie,
    /// The thread is gone and left no completion record.
    Dead,
    /// The thread is gone and left a completion record.
    Stopped,
    /// What the task held is given back; only its record is left.
    Cleaned,
}

impl State {
    /// All of them, for tables.
    pub const ALL: [State; 5] = [State::Running, State::Zombie, State::Dead, State::Stopped, State::Cleaned];

    /// The written form.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            State::Running => "RUNNING",
            State::Zombie => "ZOMBIE",
            State::Dead => "DEAD",
            State::Stopped => "STOPPED",
            State::Cleaned => "CLEANED",
        }
    }

    /// The state with that written form.
    #[must_use]
    pub fn from_name(name: &str) -> Option<State> {
        State::ALL.into_iter().find(|state| state.name() == name)
    }

    /// Whether a life in this state may move to `to`. Staying is not a move.
    #[must_use]
    pub fn may_become(self, to: State) -> bool {
        match self {
            State::Running => matches!(to, State::Zombie | State::Dead | State::Stopped),
            State::Zombie => matches!(to, State::Running | State::Dead | State::Stopped),
            State::Dead | State::Stopped => matches!(to, State::Cleaned),
            State::Cleaned => false,
        }
    }

    /// Whether there is still a thread or a process behind it.
    #[must_use]
    pub fn is_living(self) -> bool {
        match self {
            State::Running | State::Zombie => true,
            State::Dead | State::Stopped | State::Cleaned => false,
        }
    }
}

/// How a task that said so ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// It did what it was for.
    Success,
    /// It says that it could not do it.
    Error,
    /// It was asked to stop, and did.
    Stopped,
}

impl Outcome {
    /// The written form, as `task list` shows it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Outcome::Success => "success",
            Outcome::Error => "error",
            Outcome::Stopped => "stopped",
        }
    }

    /// The cause of the move to STOPPED.
    #[must_use]
    pub fn cause(self) -> Cause {
        match self {
            Outcome::Success => Cause::Success,
            Outcome::Error => Cause::Error,
            Outcome::Stopped => Cause::StoppedOnRequest,
        }
    }
}

/// What a worker left behind as its last word: the completion record, or the panic that ended it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    /// The completion record.
    Finished {
        /// How it ended.
        outcome: Outcome,
        /// One sentence for a person; may be empty.
        text: String,
    },
    /// A panic: the thread has no completion record, but the reason is known.
    Panicked {
        /// The panic message.
        text: String,
        /// `file:line:column, thread NAME`.
        place: String,
    },
    /// The process of the worker was ended by a signal.
    Killed {
        /// Which, and by whom where this is known.
        text: String,
    },
}

macro_rules! causes {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// Why a state, a move or a note. One closed list: a cause that is not here cannot be written.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Cause { $($(#[$doc])* $variant,)* }

        impl Cause {
            /// All of them, for tables.
            pub const ALL: &'static [Cause] = &[$(Cause::$variant,)*];

            /// The written form.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Cause::$variant => $name,)* }
            }
        }
    };
}

causes! {
    /// A life began.
    Spawned = "SPAWNED",
    // While RUNNING.
    /// A person paused it.
    Paused = "PAUSED",
    /// A person let it go on.
    Resumed = "RESUMED",
    /// Beats are late because the machine does not give it time: more than half of the window on the run queue.
    Starved = "STARVED",
    /// Beats are late and progress moves.
    Slow = "SLOW",
    /// Stale beats, advancing progress: back to (or kept at) RUNNING.
    RecoveredProgress = "RECOVERED_PROGRESS",
    /// Beats came back, or the phase ended.
    RecoveredBeat = "RECOVERED_BEAT",
    /// Someone asked it to stop.
    StopAsked = "STOP_ASKED",
    /// Silent for half of tau; what the thread waits in is noted already (as Android does before an ANR).
    HalfTau = "HALF_TAU",
    /// Its silence is unusual for this very worker, long before tau (phi-accrual).
    Suspicious = "SUSPICIOUS",
    /// Fewer or more beats than it declared.
    BeatRate = "BEAT_RATE",
    /// A task that it declared to need died of a panic: what they share may be half done.
    DependencyPoisoned = "DEPENDENCY_POISONED",
    // Of a ZOMBIE.
    /// Silent, and the window is too short or the counters do not tell why.
    NoBeat = "NO_BEAT",
    /// No CPU, no switches, waiting for a futex in a busy phase.
    Deadlock = "DEADLOCK",
    /// No CPU, no switches, waiting in a read, write, poll, connect or accept.
    BlockedIo = "BLOCKED_IO",
    /// State D: nothing can be done before the kernel lets it go.
    BlockedInKernel = "BLOCKED_IN_KERNEL",
    /// In a declared external phase (an accelerator, a foreign library) beyond its limit.
    BlockedExternal = "BLOCKED_EXTERNAL",
    /// CPU or voluntary switches, but no progress.
    Livelock = "LIVELOCK",
    /// A declared phase went beyond its limit.
    PhaseOverrun = "PHASE_OVERRUN",
    /// Given up: its handle is revoked, it will not be RUNNING again, and its thread is still there.
    Abandoned = "ABANDONED",
    // Of DEAD.
    /// A panic.
    Panic = "PANIC",
    /// The thread is gone without a word: a raw exit system call, `pthread_exit` in foreign code.
    Vanished = "VANISHED",
    /// The process of the worker was ended by a signal.
    Killed = "KILLED",
    // Of STOPPED.
    /// Finished as meant.
    Success = "SUCCESS",
    /// Finished with an error of its own.
    Error = "ERROR",
    /// Finished because it was asked to.
    StoppedOnRequest = "STOPPED_ON_REQUEST",
    // Of CLEANED.
    /// A person cleaned it.
    CleanedOnRequest = "CLEANED_ON_REQUEST",
    /// It was listed for its time, or made room for newer ones.
    Expired = "EXPIRED",
    // Notes on a worker that lies.
    /// Beats from a thread that is not the worker's; refused and counted.
    WrongThreadHeartbeat = "WRONG_THREAD_HEARTBEAT",
    /// Progress that ran backwards; refused and counted.
    ProgressBackwards = "PROGRESS_BACKWARDS",
    /// A phase with a limit beyond the longest that is taken; cut.
    PhaseLimitCut = "PHASE_LIMIT_CUT",
    /// A checkpoint out of the declared order.
    CheckpointOrder = "CHECKPOINT_ORDER",
    // Notes on the supervisor itself.
    /// It began, with this tier of the hard channel.
    SupervisorStarted = "SUPERVISOR_STARTED",
    /// It was itself late by more than a scan: nobody is judged on that time.
    SupervisorGap = "SUPERVISOR_GAP",
    /// A worker could not be started.
    SpawnRefused = "SPAWN_REFUSED",
    /// Restarted too often: nothing more is done until a person looks.
    RestartHeld = "RESTART_HELD",
    /// Restarted too often, and the daemon cannot do without it: the process ends.
    Escalated = "ESCALATED",
    /// The wall clock was set. No deadline is counted in it.
    ClockStep = "CLOCK_STEP",
    /// Notices were dropped because nobody took them.
    NoticesLost = "NOTICES_LOST",
    /// The watchdog is not fed, because this vital part does not advance.
    WatchdogHeld = "WATCHDOG_HELD",
}

/// What a notice is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A birth or a move between two states.
    Lifecycle,
    /// The same state, with something to remember.
    Note,
    /// About the supervisor, not about one worker.
    Supervisor,
}

impl Kind {
    /// The written form.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Lifecycle => "LIFECYCLE",
            Kind::Note => "NOTE",
            Kind::Supervisor => "SUPERVISOR",
        }
    }
}

/// One thing worth remembering about a worker or about the supervisor; the evidence makes a row of each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// The life that it is about; none when it is about the supervisor.
    pub key: Option<WorkerKey>,
    /// What it is about.
    pub kind: Kind,
    /// The state before; none at birth.
    pub from: Option<State>,
    /// The state after; equal to `from` in a note.
    pub to: Option<State>,
    /// Why.
    pub cause: Cause,
    /// One line for a person, with the raw counters where there are any; may be empty.
    pub detail: String,
    /// When it was noticed.
    pub at: Tick,
}

impl Notice {
    /// A notice about the supervisor itself.
    #[must_use]
    pub fn supervisor(cause: Cause, detail: String, at: Tick) -> Notice {
        Notice { key: None, kind: Kind::Supervisor, from: None, to: None, cause, detail, at }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use State::{Cleaned, Dead, Running, Stopped, Zombie};

    #[test]
    fn only_the_eight_legal_moves_are_legal() {
        let legal = [
            (Running, Zombie),
            (Running, Dead),
            (Running, Stopped),
            (Zombie, Running),
            (Zombie, Dead),
            (Zombie, Stopped),
            (Dead, Cleaned),
            (Stopped, Cleaned),
        ];
        for from in State::ALL {
            for to in State::ALL {
                assert_eq!(from.may_become(to), legal.contains(&(from, to)), "{from:?} -> {to:?}");
            }
        }
    }

    #[test]
    fn names_are_read_back_and_differ() {
        for state in State::ALL {
            assert_eq!(State::from_name(state.name()), Some(state));
        }
        assert_eq!(State::from_name("running"), None);
        let names: std::collections::BTreeSet<_> = Cause::ALL.iter().map(|cause| cause.name()).collect();
        assert_eq!(names.len(), Cause::ALL.len());
    }
}

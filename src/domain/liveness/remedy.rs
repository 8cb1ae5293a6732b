//! What to do about a task that is stuck or has died: the ladder, and how often it may be climbed.
//!
//! Leave it to a person for a while; ask it to stop; give it up and put a new life in its place; after too many, hold
//! and tell a person, or end the process and let systemd begin anew. Restart intensity is OTP's (so many in so long).
//! Nothing here ends a thread by force: there is no way to do that which leaves the process whole.

use std::collections::VecDeque;
use std::time::Duration;

use super::lifecycle::{Cause, State};
use crate::time::Tick;

/// Whether a new life follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Restart {
    /// Never: a person decides.
    Never,
    /// After DEAD, after STOPPED with an error, and in the place of one that was given up.
    AfterFailure,
}

/// What is done when it has been restarted too often.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// Nothing more, until a person says so.
    Hold,
    /// The process ends, and systemd starts it anew: for what the daemon cannot do without.
    EndProcess,
}

/// How one task is treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// Whether a new life follows.
    pub restart: Restart,
    /// How long a ZOMBIE is left to a person before it is asked to stop.
    pub window: Duration,
    /// How long one that was asked to stop may take before it is given up.
    pub grace: Duration,
    /// So many restarts ...
    pub most: u32,
    /// ... in so long; one more is too many.
    pub within: Duration,
    /// The shortest life that counts as one: a crash loop must not starve the scan.
    pub run_min: Duration,
    /// The wait before the first restart; doubled for each life below `run_min`.
    pub backoff: Duration,
    /// The longest wait.
    pub backoff_max: Duration,
    /// What follows after too many.
    pub then: Then,
}

impl Policy {
    /// Leaves everything to a person, except that a stop that is ignored is not waited for for ever.
    pub const LEAVE: Policy = Policy {
        restart: Restart::Never,
        window: Duration::MAX,
        grace: Duration::from_secs(30),
        most: 0,
        within: Duration::ZERO,
        run_min: Duration::ZERO,
        backoff: Duration::ZERO,
        backoff_max: Duration::ZERO,
        then: Then::Hold,
    };
    /// Restarts after failures: five in a minute (OTP's intensity is 1 in 5 s by default, systemd's limit 5 in 10 s;
    /// both give up before a sensor's network is back).
    pub const RESTART: Policy = Policy {
        restart: Restart::AfterFailure,
        window: Duration::from_secs(15),
        grace: Duration::from_secs(10),
        most: 5,
        within: Duration::from_secs(60),
        run_min: Duration::from_secs(5),
        backoff: Duration::from_millis(100),
        backoff_max: Duration::from_secs(10),
        then: Then::Hold,
    };
}

/// What is to be done now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Ask the life to stop.
    AskToStop,
    /// Give it up: revoke its handle; kill it where it is a process.
    GiveUp,
    /// Begin a new life.
    Replace,
    /// Nothing more; tell a person.
    Hold,
    /// End the process.
    EndProcess,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Nothing to do.
    Well,
    /// A ZOMBIE since then; in the kernel's hands (state D) when `bound`.
    Silent { since: Tick, bound: bool },
    /// Asked to stop since then.
    Asked { since: Tick, bound: bool },
    /// A new life is due then.
    Replacing { at: Tick },
    /// Too many restarts: say so at the next turn.
    TooMany,
    /// It is over, or held.
    Over,
}

/// The ladder of one task, over all its lives.
#[derive(Debug, Clone)]
pub struct Remedy {
    policy: Policy,
    stage: Stage,
    born: Tick,
    /// The restarts of the last `within`.
    restarts: VecDeque<Tick>,
    /// Lives below `run_min` in a row.
    short: u32,
    /// A person wants it to end: nothing follows.
    dismissed: bool,
}

impl Remedy {
    /// For a task whose first life began at `now`.
    #[must_use]
    pub fn new(policy: Policy, now: Tick) -> Remedy {
        Remedy { policy, stage: Stage::Well, born: now, restarts: VecDeque::new(), short: 0, dismissed: false }
    }

    /// Someone asked the task to stop: it is waited for, and nothing follows it.
    pub fn dismiss(&mut self, now: Tick) {
        self.dismissed = true;
        match self.stage {
            Stage::Well => self.stage = Stage::Asked { since: now, bound: false },
            Stage::Silent { bound, .. } => self.stage = Stage::Asked { since: now, bound },
            Stage::Replacing { .. } | Stage::TooMany => self.stage = Stage::Over,
            Stage::Asked { .. } | Stage::Over => {}
        }
    }

    /// A person wants a held task to begin again: what was counted is forgotten.
    pub fn again(&mut self, now: Tick) -> bool {
        if self.stage != Stage::Over {
            return false;
        }
        self.dismissed = false;
        self.short = 0;
        self.restarts.clear();
        self.stage = Stage::Replacing { at: now };
        true
    }

    /// The living life is now in this state, for this cause. Only the newest life of a task is reported.
    pub fn seen(&mut self, to: State, cause: Cause, now: Tick, random: u64) {
        let bound = cause == Cause::BlockedInKernel;
        match (to, self.stage) {
            (State::Running, Stage::Silent { .. }) => self.stage = Stage::Well,
            (State::Zombie, Stage::Well) => self.stage = Stage::Silent { since: now, bound },
            // It left the kernel, or went into it: the waiting begins anew.
            (State::Zombie, Stage::Silent { bound: before, .. }) if before != bound => {
                self.stage = Stage::Silent { since: now, bound };
            }
            (State::Zombie, Stage::Asked { bound: before, .. }) if before != bound => {
                self.stage = Stage::Asked { since: now, bound };
            }
            (State::Dead | State::Stopped, Stage::Well | Stage::Silent { .. } | Stage::Asked { .. }) => {
                let failed = to == State::Dead || cause == Cause::Error || self.was_asked_by_us();
                self.ended(failed, now, random);
            }
            (State::Running | State::Zombie | State::Dead | State::Stopped | State::Cleaned, _) => {}
        }
    }

    fn was_asked_by_us(&self) -> bool {
        matches!(self.stage, Stage::Asked { .. }) && !self.dismissed
    }

    fn ended(&mut self, failed: bool, now: Tick, random: u64) {
        if self.dismissed || !failed || self.policy.restart == Restart::Never {
            self.stage = Stage::Over;
            return;
        }
        while self.restarts.front().is_some_and(|first| now.since(*first) > self.policy.within) {
            self.restarts.pop_front();
        }
        if self.restarts.len() >= self.policy.most as usize {
            self.stage = Stage::TooMany;
            return;
        }
        self.restarts.push_back(now);
        self.short = if now.since(self.born) < self.policy.run_min { self.short.saturating_add(1) } else { 0 };
        let doubled = self.policy.backoff.saturating_mul(1 << self.short.saturating_sub(1).min(16));
        let wait = doubled.min(self.policy.backoff_max);
        // A quarter more or less: what died together does not come back together.
        let wait = wait * 3 / 4 + wait / 2 * u32::try_from(random % 1024).unwrap_or(0) / 1024;
        self.stage = Stage::Replacing { at: now.after(wait) };
    }

    /// When a turn may find something to do; none while nothing is due.
    #[must_use]
    pub fn wake_at(&self) -> Option<Tick> {
        match self.stage {
            Stage::Silent { since, bound: false } => match self.policy.window {
                Duration::MAX => None,
                window => Some(since.after(window)),
            },
            Stage::Asked { since, bound: false } => Some(since.after(self.policy.grace)),
            Stage::Replacing { at } => Some(at),
            Stage::TooMany => Some(Tick(0)),
            Stage::Well | Stage::Over | Stage::Silent { bound: true, .. } | Stage::Asked { bound: true, .. } => None,
        }
    }

    /// What is due now. Each step is given once.
    pub fn turn(&mut self, now: Tick, random: u64) -> Option<Step> {
        if self.wake_at().is_none_or(|at| now < at) {
            return None;
        }
        match self.stage {
            Stage::Silent { .. } => {
                self.stage = Stage::Asked { since: now, bound: false };
                Some(Step::AskToStop)
            }
            Stage::Asked { .. } => {
                self.ended(true, now, random);
                Some(Step::GiveUp)
            }
            Stage::Replacing { .. } => {
                self.born = now;
                self.stage = Stage::Well;
                Some(Step::Replace)
            }
            Stage::TooMany => {
                self.stage = Stage::Over;
                Some(match self.policy.then {
                    Then::Hold => Step::Hold,
                    Then::EndProcess => Step::EndProcess,
                })
            }
            Stage::Well | Stage::Over => None,
        }
    }

    /// A new life could not begin: try again after the longest wait, or at once be too many.
    pub fn not_replaced(&mut self, now: Tick) {
        self.stage = Stage::Replacing { at: now.after(self.policy.backoff_max.max(Duration::from_secs(1))) };
    }

    /// Whether nothing will be done any more.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.stage == Stage::Over
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Step::{AskToStop, EndProcess, GiveUp, Hold, Replace};

    const POLICY: Policy = Policy {
        restart: Restart::AfterFailure,
        window: Duration::from_millis(100),
        grace: Duration::from_millis(50),
        most: 3,
        within: Duration::from_millis(10_000),
        run_min: Duration::from_millis(1000),
        backoff: Duration::from_millis(16),
        backoff_max: Duration::from_millis(64),
        then: Then::Hold,
    };

    fn ms(at: u64) -> Tick {
        Tick(at * 1_000_000)
    }

    enum Do {
        See(State, Cause),
        Dismiss,
        Again,
    }
    use Do::{Again, Dismiss, See};
    const DIES: Do = See(State::Dead, Cause::Panic);
    const SILENT: Do = See(State::Zombie, Cause::NoBeat);
    const BOUND: Do = See(State::Zombie, Cause::BlockedInKernel);

    /// What happens (at ms, what) gives which steps (at ms, step), turned every millisecond up to the end. With
    /// `random` 512 the wait is exactly the backoff.
    fn check(policy: Policy, happens: &[(u64, Do)], end: u64, expected: &[(u64, Step)]) {
        let mut remedy = Remedy::new(policy, ms(0));
        let mut steps = Vec::new();
        for at in 0..=end {
            for (_, what) in happens.iter().filter(|(when, _)| *when == at) {
                match what {
                    See(to, cause) => remedy.seen(*to, *cause, ms(at), 512),
                    Dismiss => remedy.dismiss(ms(at)),
                    Again => drop(Some(remedy.again(ms(at)))),
                }
            }
            while let Some(step) = remedy.turn(ms(at), 512) {
                steps.push((at, step));
            }
        }
        assert_eq!(steps, expected);
    }

    #[test]
    fn a_zombie_is_left_then_asked_then_given_up_and_replaced() {
        check(POLICY, &[(10, SILENT)], 2000, &[(110, AskToStop), (160, GiveUp), (176, Replace)]);
        // It returns in the window, or ends when asked.
        check(POLICY, &[(10, SILENT), (109, See(State::Running, Cause::RecoveredBeat))], 2000, &[]);
        let stops = See(State::Stopped, Cause::StoppedOnRequest);
        check(POLICY, &[(10, SILENT), (130, stops)], 2000, &[(110, AskToStop), (146, Replace)]);
    }

    #[test]
    fn nothing_is_done_while_the_kernel_holds_it() {
        check(POLICY, &[(10, BOUND)], 5000, &[]);
        let left = See(State::Zombie, Cause::BlockedIo);
        let steps = [(3100, AskToStop), (3150, GiveUp), (3166, Replace)];
        check(POLICY, &[(10, BOUND), (3000, left)], 4000, &steps);
        // It went in after it was asked.
        check(POLICY, &[(10, SILENT), (120, BOUND)], 5000, &[(110, AskToStop)]);
    }

    #[test]
    fn short_lives_wait_longer_and_too_many_are_held_for_a_person() {
        let happens = [(100, DIES), (200, DIES), (300, DIES), (400, DIES), (500, DIES), (600, Again), (700, DIES)];
        let steps = [(116, Replace), (232, Replace), (364, Replace), (400, Hold), (600, Replace), (716, Replace)];
        check(POLICY, &happens, 1000, &steps);
        // A life of its least length forgives.
        check(POLICY, &[(100, DIES), (1116, DIES)], 2000, &[(116, Replace), (1132, Replace)]);
        // Restarts of long ago do not count.
        let happens = [(1000, DIES), (5000, DIES), (9000, DIES), (19_001, DIES)];
        let steps = [(1016, Replace), (5016, Replace), (9016, Replace), (19_017, Replace)];
        check(POLICY, &happens, 20_000, &steps);
        let vital = Policy { then: Then::EndProcess, most: 0, ..POLICY };
        check(vital, &[(100, DIES)], 1000, &[(100, EndProcess)]);
    }

    #[test]
    fn success_and_a_persons_stop_are_followed_by_nothing() {
        check(POLICY, &[(10, See(State::Stopped, Cause::Success))], 1000, &[]);
        check(POLICY, &[(10, See(State::Stopped, Cause::Error))], 1000, &[(26, Replace)]);
        check(POLICY, &[(10, Dismiss), (30, DIES)], 1000, &[]);
        check(POLICY, &[(10, Dismiss)], 1000, &[(60, GiveUp)]);
        check(POLICY, &[(10, DIES), (20, Dismiss)], 1000, &[]);
    }

    #[test]
    fn left_to_a_person_is_left_to_a_person() {
        let leave = Policy { grace: Duration::from_millis(50), ..Policy::LEAVE };
        check(leave, &[(10, SILENT), (500, DIES)], 2000, &[]);
        check(leave, &[(10, SILENT), (20, Dismiss)], 2000, &[(70, GiveUp)]);
    }

    #[test]
    fn the_wait_varies_by_a_quarter() {
        for (random, expected) in [(0, 12), (512, 16), (1023, 19)] {
            let mut remedy = Remedy::new(POLICY, ms(0));
            remedy.seen(State::Dead, Cause::Panic, ms(100), random);
            assert_eq!(remedy.wake_at().map(|at| at.since(ms(100)).as_millis()), Some(expected));
        }
    }
}

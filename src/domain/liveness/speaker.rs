//! Judges a process that is not ours by what it says of itself: beats (`WATCHDOG=1`) and progress (`X_PROGRESS=`).
//!
//! The rows of the table for the two channels, without a phase: silence is a ZOMBIE unless progress was told meanwhile,
//! and beats without progress are one once the process computes for two tau and gets nowhere. From a program that has
//! told neither nothing is due.

use std::time::Duration;

use super::lifecycle::{Cause, State};
use super::outsider::Verdict;
use crate::time::Tick;

/// What a process has said, and what is held against it.
#[derive(Debug, Clone, Default)]
pub struct Speaker {
    beat_at: Option<Tick>,
    progress: Option<Progress>,
    stuck: Option<Cause>,
}

/// Since when the count stands still, and how much the process had computed at the first look after that.
#[derive(Debug, Clone, Copy)]
struct Progress {
    count: u64,
    since: Tick,
    cpu_ns: Option<u64>,
}

impl Speaker {
    /// `WATCHDOG=1`. Told at once when it ends a silence: the process may be gone at the next look.
    pub fn beat(&mut self, now: Tick) -> Option<Verdict> {
        self.beat_at = Some(now);
        let found = self.stuck.take_if(|stuck| *stuck == Cause::NoBeat);
        found.map(|_| Verdict { state: State::Running, cause: Cause::RecoveredBeat })
    }

    /// `X_PROGRESS=count`. A count that goes backwards is no progress; one that rises ends what was found.
    pub fn progress(&mut self, count: u64, now: Tick) -> Option<Verdict> {
        if self.progress.is_some_and(|told| count <= told.count) {
            return None;
        }
        self.progress = Some(Progress { count, since: now, cpu_ns: None });
        self.stuck.take().map(|_| Verdict { state: State::Running, cause: Cause::RecoveredProgress })
    }

    /// Looks once, at the processor time of all its threads in nanoseconds. None unless something new is found.
    pub fn judge(&mut self, cpu_ns: u64, tau: Duration, now: Tick) -> Option<Verdict> {
        let flat = self.progress.as_mut().map(|told| {
            let began = *told.cpu_ns.get_or_insert(cpu_ns);
            (now.since(told.since), u128::from(cpu_ns.saturating_sub(began)))
        });
        let silent = self.beat_at.is_some_and(|at| now.since(at) >= tau);
        let moves = flat.is_some_and(|(flat, _)| flat < tau);
        let busy = |(flat, used): (Duration, u128)| flat >= tau * 2 && used * 2 > flat.as_nanos();
        let found = match (moves, silent) {
            (true, _) => return None,
            (false, true) => Cause::NoBeat,
            (false, false) if flat.is_some_and(busy) => Cause::Livelock,
            (false, false) => return None,
        };
        (self.stuck.replace(found) != Some(found)).then_some(Verdict { state: State::Zombie, cause: found })
    }

    /// Time passed in which nobody listened: it counts against nobody.
    pub fn rebaseline(&mut self, now: Tick) {
        self.beat_at = self.beat_at.map(|_| now);
        self.progress = self.progress.map(|told| Progress { since: now, cpu_ns: None, ..told });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAU: Duration = Duration::from_secs(4);

    enum Says {
        Beat,
        Done(u64),
        Gap,
    }

    /// At a second: what is said, the processor seconds so far, and what is found.
    type Moment = (u64, Option<Says>, u64, Option<(State, Cause)>);

    fn check(seconds: &[Moment]) {
        let mut speaker = Speaker::default();
        for (at, says, cpu, expected) in seconds {
            let now = Tick(at * 1_000_000_000);
            let heard = match says {
                Some(Says::Beat) => speaker.beat(now),
                Some(Says::Done(count)) => speaker.progress(*count, now),
                Some(Says::Gap) => {
                    speaker.rebaseline(now);
                    None
                }
                None => None,
            };
            let found = heard.or_else(|| speaker.judge(cpu * 1_000_000_000, TAU, now));
            assert_eq!(found.map(|found| (found.state, found.cause)), *expected, "at {at} s");
        }
    }

    #[test]
    fn silence_is_condemned_and_progress_speaks_for_it() {
        let (zombie, back) = ((State::Zombie, Cause::NoBeat), (State::Running, Cause::RecoveredBeat));
        check(&[(0, None, 0, None), (50, None, 9, None)]);
        check(&[(0, Some(Says::Beat), 0, None), (3, None, 0, None), (4, None, 0, Some(zombie)), (5, None, 0, None)]);
        check(&[(0, Some(Says::Beat), 0, None), (4, None, 0, Some(zombie)), (5, Some(Says::Beat), 0, Some(back))]);
        check(&[
            (0, Some(Says::Beat), 0, None),
            (3, Some(Says::Done(1)), 0, None),
            (6, None, 0, None),
            (7, None, 0, Some(zombie)),
            (8, Some(Says::Done(2)), 0, Some((State::Running, Cause::RecoveredProgress))),
        ]);
        check(&[(0, Some(Says::Beat), 0, None), (90, Some(Says::Gap), 0, None), (93, None, 0, None)]);
    }

    #[test]
    fn beats_without_progress_are_condemned_only_when_the_process_computes() {
        let livelock = Some((State::Zombie, Cause::Livelock));
        let beats = |last: u64, used: u64, found: Option<(State, Cause)>| {
            check(&[
                (0, Some(Says::Done(1)), 0, None),
                (0, Some(Says::Beat), 0, None),
                (3, Some(Says::Beat), used / 2, None),
                (6, Some(Says::Beat), used / 2, None),
                (last, Some(Says::Beat), used, found),
            ]);
        };
        beats(7, 7, None);
        beats(8, 5, livelock);
        beats(8, 4, None);
        check(&[
            (0, Some(Says::Done(5)), 0, None),
            (3, Some(Says::Beat), 3, None),
            (6, Some(Says::Beat), 6, None),
            (8, Some(Says::Done(4)), 8, livelock),
            (9, None, 8, None),
            (9, Some(Says::Done(6)), 8, Some((State::Running, Cause::RecoveredProgress))),
        ]);
    }
}

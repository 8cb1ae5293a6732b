//! Judges a process that knows nothing of us, from the kernel's counters of its threads alone.
//!
//! A thread that sleeps is not stuck: a pool waits for work that way. But when every thread of a process sleeps in a
//! futex or in the kernel, and not one of them has run since, then nobody inside is left to wake the others: only that
//! is called a ZOMBIE. One thread in a poll, a read or a sleep can still wake, and the process is left alone.

use std::collections::BTreeMap;
use std::time::Duration;

use super::cause::{Counters, ThreadState, Waits};
use super::judge::SCANS;
use super::lifecycle::{Cause, State};
use crate::time::Tick;

/// What is remembered of one process between two looks.
#[derive(Debug, Clone, Default)]
pub struct Outsider {
    /// CPU time and switches of each thread at the last look.
    ran: BTreeMap<i32, (u64, u64)>,
    /// Since when nobody ran, and how many looks saw that.
    still: Option<(Tick, u32)>,
    stuck: Option<Cause>,
}

/// A change of the verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// RUNNING or ZOMBIE.
    pub state: State,
    /// Why; for RUNNING, how it came back.
    pub cause: Cause,
}

impl Outsider {
    /// Looks once at all threads of the process, by tid. None when nothing has changed.
    pub fn judge(&mut self, threads: &BTreeMap<i32, Counters>, tau: Duration, now: Tick) -> Option<Verdict> {
        let ran: BTreeMap<i32, (u64, u64)> =
            threads.iter().map(|(tid, c)| (*tid, (c.cpu_ns, c.voluntary.wrapping_add(c.involuntary)))).collect();
        let moved = ran != self.ran;
        self.ran = ran;
        let bound = !threads.is_empty() && threads.values().all(cannot_wake_by_itself);
        if moved || !bound {
            self.still = None;
            return self.stuck.take().map(|_| Verdict { state: State::Running, cause: Cause::RecoveredBeat });
        }
        let (since, looks) = self.still.unwrap_or((now, 0));
        self.still = Some((since, looks.saturating_add(1)));
        if looks + 1 < SCANS || now.since(since) < tau {
            return None;
        }
        let in_kernel = threads.values().any(|c| c.state == ThreadState::Uninterruptible);
        let cause = if in_kernel { Cause::BlockedInKernel } else { Cause::Deadlock };
        (self.stuck.replace(cause) != Some(cause)).then_some(Verdict { state: State::Zombie, cause })
    }

    /// Time passed in which nobody looked: it counts against nobody.
    pub fn rebaseline(&mut self) {
        self.still = None;
    }
}

fn cannot_wake_by_itself(counters: &Counters) -> bool {
    match counters.state {
        ThreadState::Sleeping => counters.waits == Waits::Futex,
        ThreadState::Uninterruptible => true,
        ThreadState::Runnable | ThreadState::Halted | ThreadState::Ended | ThreadState::Other(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAU: Duration = Duration::from_secs(5);

    fn thread(letter: char, waits: Waits, switches: u64) -> Counters {
        Counters {
            state: ThreadState::from_letter(letter),
            cpu_ns: 5,
            delay_ns: 0,
            voluntary: switches,
            involuntary: 0,
            waits,
            syscall: None,
            wchan: String::new(),
        }
    }

    /// Looks (at s, threads) and the verdicts (at s, state, cause).
    fn check(looks: &[(u64, &[Counters])], expected: &[(u64, State, Cause)]) {
        let mut outsider = Outsider::default();
        let mut found = Vec::new();
        for (at, threads) in looks {
            let threads = (1..).zip(threads.iter().cloned()).collect();
            if let Some(verdict) = outsider.judge(&threads, TAU, Tick(at * 1_000_000_000)) {
                found.push((*at, verdict.state, verdict.cause));
            }
        }
        assert_eq!(found, expected);
    }

    #[test]
    fn only_when_nobody_is_left_to_wake_the_others() {
        let lock = || thread('S', Waits::Futex, 3);
        let both = [lock(), lock()];
        let looks: [(u64, &[Counters]); 4] = [(0, &both), (1, &both), (5, &both), (6, &both)];
        check(&looks, &[(6, State::Zombie, Cause::Deadlock)]);
        for other in [Waits::Io, Waits::Sleep, Waits::Other, Waits::Unknown] {
            let one_can = [lock(), thread('S', other, 3)];
            check(&[(0, &one_can), (6, &one_can), (12, &one_can)], &[]);
        }
        for letter in ['R', 'T', 'Z'] {
            let one_is = [lock(), thread(letter, Waits::Futex, 3)];
            check(&[(0, &one_is), (6, &one_is), (12, &one_is)], &[]);
        }
        let in_kernel = [lock(), thread('D', Waits::Unknown, 3)];
        check(&[(0, &in_kernel), (1, &in_kernel), (9, &in_kernel)], &[(9, State::Zombie, Cause::BlockedInKernel)]);
        check(&[(0, &[]), (1, &[]), (9, &[])], &[]);
    }

    #[test]
    fn it_returns_when_somebody_ran_or_came() {
        let lock = || thread('S', Waits::Futex, 3);
        let one = [lock()];
        let ran = [thread('S', Waits::Futex, 4)];
        let came = [lock(), lock()];
        let (zombie, back) = ((6, State::Zombie, Cause::Deadlock), (7, State::Running, Cause::RecoveredBeat));
        check(&[(0, &one), (1, &one), (6, &one), (7, &ran), (8, &ran)], &[zombie, back]);
        check(&[(0, &one), (1, &one), (6, &one), (7, &came), (8, &came)], &[zombie, back]);
    }
}

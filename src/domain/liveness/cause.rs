//! Why a thread is silent: told from what the kernel counted between two looks.
//!
//! The counters are read for suspects only (reading `/proc` for 10,000 threads costs 50-80 ms, measured). Two looks
//! at least [`WINDOW`] apart are compared; a shorter window may only say "starved" or "not known".

use std::fmt;
use std::time::Duration;

use super::lifecycle::Cause;
use crate::time::Tick;

/// The shortest time between two looks from which a cause is told: below it, one page fault or one scheduling quirk
/// looks like a habit.
pub const WINDOW: Duration = Duration::from_secs(2);

/// Voluntary switches a second from which a thread without progress counts as spinning through sleeps or yields.
const SWITCHES_OF_A_LIVELOCK: u64 = 5;

/// The state letter of `/proc/PID/stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThreadState {
    /// R: on a CPU or waiting for one.
    Runnable,
    /// S: sleeps, can be woken.
    Sleeping,
    /// D: sleeps in the kernel, cannot be woken.
    Uninterruptible,
    /// T or t: stopped by a signal or a debugger.
    Halted,
    /// Z or X: ended.
    Ended,
    /// A letter that is none of these.
    Other(char),
}

impl ThreadState {
    /// From the letter of `/proc`.
    #[must_use]
    pub fn from_letter(letter: char) -> ThreadState {
        match letter {
            'R' => ThreadState::Runnable,
            'S' | 'I' => ThreadState::Sleeping,
            'D' => ThreadState::Uninterruptible,
            'T' | 't' => ThreadState::Halted,
            'Z' | 'X' | 'x' => ThreadState::Ended,
            other => ThreadState::Other(other),
        }
    }

    /// The letter of `/proc`.
    #[must_use]
    pub fn letter(self) -> char {
        match self {
            ThreadState::Runnable => 'R',
            ThreadState::Sleeping => 'S',
            ThreadState::Uninterruptible => 'D',
            ThreadState::Halted => 'T',
            ThreadState::Ended => 'Z',
            ThreadState::Other(letter) => letter,
        }
    }
}

/// What a thread waits in, as far as the system call number tells (the numbers differ by architecture: `sys`
/// translates them).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waits {
    /// A futex: a lock, a condition, a join, a channel.
    Futex,
    /// A read, write, poll, connect, accept, or the like.
    Io,
    /// A sleep.
    Sleep,
    /// Another system call.
    Other,
    /// It is not in a system call, or this could not be read.
    Unknown,
}

/// What `/proc` says of one thread at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counters {
    /// The state.
    pub state: ThreadState,
    /// CPU time, ns.
    pub cpu_ns: u64,
    /// Time on the run queue, ns. The kernel adds a wait only when it ends.
    pub delay_ns: u64,
    /// Voluntary context switches.
    pub voluntary: u64,
    /// Involuntary context switches.
    pub involuntary: u64,
    /// What it waits in.
    pub waits: Waits,
    /// The number of the system call it is in.
    pub syscall: Option<i64>,
    /// The kernel function it sleeps in; empty when it does not sleep or this is hidden.
    pub wchan: String,
}

/// Two looks at one thread that became a suspect, some time apart; slides while it stays one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    older: (Tick, Counters),
    newer: (Tick, Counters),
    last: (Tick, Counters),
}

/// What changed over a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// How long the window is.
    pub over: Duration,
    /// CPU time used, ns.
    pub cpu_ns: u64,
    /// Time spent waiting for a CPU, ns.
    pub delay_ns: u64,
    /// Voluntary switches.
    pub voluntary: u64,
    /// Involuntary switches.
    pub involuntary: u64,
}

impl Window {
    /// Opens with the first look.
    #[must_use]
    pub fn open(counters: Counters, now: Tick) -> Window {
        Window { older: (now, counters.clone()), newer: (now, counters.clone()), last: (now, counters) }
    }

    /// Takes another look. The far end follows, so that a cause is told from the last [`WINDOW`] or two of them, not
    /// from what the thread did long before.
    pub fn look(&mut self, counters: Counters, now: Tick) {
        if now.since(self.newer.0) >= WINDOW {
            self.older = std::mem::replace(&mut self.newer, (now, counters.clone()));
        }
        self.last = (now, counters);
    }

    /// The last look.
    #[must_use]
    pub fn last(&self) -> &Counters {
        &self.last.1
    }

    /// What changed from the far end to the last look.
    #[must_use]
    pub fn change(&self) -> Change {
        let (from, to) = (&self.older.1, &self.last.1);
        let over = self.last.0.since(self.older.0);
        let over_ns = u64::try_from(over.as_nanos()).unwrap_or(u64::MAX);
        let cpu_ns = to.cpu_ns.saturating_sub(from.cpu_ns);
        let voluntary = to.voluntary.saturating_sub(from.voluntary);
        let counted = to.delay_ns.saturating_sub(from.delay_ns);
        // A wait for the CPU is counted when it ends: a thread that is runnable and did not go to sleep in the window has
        // waited for all the time in which it did not run. (One that slept since before the window and was just woken
        // looks the same; the next look tells.)
        let waits = to.state == ThreadState::Runnable && voluntary == 0;
        let delay_ns = if waits { counted.max(over_ns.saturating_sub(cpu_ns)) } else { counted };
        let involuntary = to.involuntary.saturating_sub(from.involuntary);
        Change { over, cpu_ns, delay_ns, voluntary, involuntary }
    }

    /// Whether it waited for a CPU for more than half of the window.
    #[must_use]
    pub fn is_starved(&self) -> bool {
        let change = self.change();
        !change.over.is_zero() && u128::from(change.delay_ns) * 2 > change.over.as_nanos()
    }

    /// Whether it used a CPU for more than half of the window, which is long enough to say so.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        let change = self.change();
        change.over >= WINDOW && u128::from(change.cpu_ns) * 2 > change.over.as_nanos()
    }

    /// The cause of a silence. `NoBeat` when the window is too short or nothing fits.
    #[must_use]
    pub fn cause(&self) -> Cause {
        let change = self.change();
        if change.over < WINDOW {
            return Cause::NoBeat;
        }
        if self.is_busy() {
            return Cause::Livelock;
        }
        let still = change.voluntary == 0 && change.involuntary == 0;
        match self.last.1.state {
            ThreadState::Uninterruptible if still => Cause::BlockedInKernel,
            ThreadState::Sleeping | ThreadState::Uninterruptible if still => match self.last.1.waits {
                Waits::Futex => Cause::Deadlock,
                Waits::Io => Cause::BlockedIo,
                Waits::Sleep | Waits::Other | Waits::Unknown => Cause::NoBeat,
            },
            ThreadState::Runnable
            | ThreadState::Sleeping
            | ThreadState::Uninterruptible
            | ThreadState::Halted
            | ThreadState::Ended
            | ThreadState::Other(_) => {
                if change.voluntary >= SWITCHES_OF_A_LIVELOCK * change.over.as_secs() {
                    Cause::Livelock
                } else {
                    Cause::NoBeat
                }
            }
        }
    }
}

/// The raw counters, for the evidence: `state S, wchan futex_do_wait, syscall 202; in 7.5 s: cpu 0 ms, …`.
impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let last = &self.last.1;
        write!(f, "state {}", last.state.letter())?;
        if !last.wchan.is_empty() {
            write!(f, ", wchan {}", last.wchan)?;
        }
        if let Some(number) = last.syscall {
            write!(f, ", syscall {number}")?;
        }
        let change = self.change();
        if change.over.is_zero() {
            return Ok(());
        }
        write!(
            f,
            "; in {:.1} s: cpu {} ms, run delay {} ms, switches {} voluntary {} involuntary",
            change.over.as_secs_f64(),
            change.cpu_ns / 1_000_000,
            change.delay_ns / 1_000_000,
            change.voluntary,
            change.involuntary
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn at(letter: char, cpu_s: f64, delay_s: f64, voluntary: u64, waits: Waits) -> Counters {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "literals of a test")]
        let ns = |s: f64| (s * 1e9) as u64;
        Counters {
            state: ThreadState::from_letter(letter),
            cpu_ns: ns(cpu_s),
            delay_ns: ns(delay_s),
            voluntary,
            involuntary: 0,
            waits,
            syscall: None,
            wchan: String::new(),
        }
    }

    fn check(from: Counters, to: Counters, over_ms: u64, expected: Cause, starved: bool) {
        let mut window = Window::open(from, Tick(S));
        window.look(to, Tick(S + over_ms * 1_000_000));
        assert_eq!((window.cause(), window.is_starved()), (expected, starved), "{window}");
    }

    #[test]
    fn the_cause_follows_the_counters() {
        use Waits::{Futex, Io, Other, Sleep, Unknown};
        let from = |letter, waits| at(letter, 1.0, 1.0, 10, waits);
        check(from('S', Futex), at('S', 1.0, 1.0, 10, Futex), 2000, Cause::Deadlock, false);
        check(from('S', Io), at('S', 1.0, 1.0, 10, Io), 2000, Cause::BlockedIo, false);
        check(from('D', Unknown), at('D', 1.0, 1.0, 10, Unknown), 2000, Cause::BlockedInKernel, false);
        check(from('R', Unknown), at('R', 2.5, 1.0, 10, Unknown), 2000, Cause::Livelock, false);
        check(from('S', Sleep), at('S', 1.0, 1.0, 30, Sleep), 2000, Cause::Livelock, false);
        check(from('S', Sleep), at('S', 1.0, 1.0, 11, Sleep), 2000, Cause::NoBeat, false);
        check(from('S', Other), at('S', 1.0, 1.0, 10, Other), 2000, Cause::NoBeat, false);
        check(from('T', Unknown), at('T', 1.0, 1.0, 10, Unknown), 2000, Cause::NoBeat, false);
        // Counted delay, and delay that the kernel has not counted yet.
        check(from('R', Unknown), at('R', 1.1, 2.8, 10, Unknown), 2000, Cause::NoBeat, true);
        check(from('R', Unknown), at('R', 1.1, 1.0, 10, Unknown), 2000, Cause::NoBeat, true);
        // Exactly half is not more than half.
        check(from('S', Unknown), at('S', 1.0, 2.0, 11, Unknown), 2000, Cause::NoBeat, false);
    }

    #[test]
    fn a_window_below_two_seconds_tells_no_cause() {
        check(at('S', 0.0, 0.0, 0, Waits::Futex), at('S', 0.0, 0.0, 0, Waits::Futex), 1999, Cause::NoBeat, false);
    }

    #[test]
    fn the_far_end_follows() {
        // Ten seconds of work, then a deadlock: the work must not hide it.
        let mut window = Window::open(at('R', 0.0, 0.0, 0, Waits::Unknown), Tick(0));
        for second in 1..=10u32 {
            window.look(at('R', f64::from(second), 0.0, 0, Waits::Unknown), Tick(u64::from(second) * S));
        }
        assert_eq!(window.cause(), Cause::Livelock);
        for second in 11..=15u64 {
            window.look(at('S', 10.0, 0.0, 0, Waits::Futex), Tick(second * S));
        }
        assert_eq!(window.cause(), Cause::Deadlock);
    }
}

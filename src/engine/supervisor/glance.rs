//! The first look of a scan: one pass along the lines of all workers, and who of them has to be looked at closely.
//!
//! What it reads of a worker that is plainly well is its line and one small entry here; nothing of the rest of the
//! worker is touched, which lies somewhere in memory.

use interlock_domain::time::Tick;

use super::pulse::{BUSY, IDLE, Lines, PAUSED, Pulse};
use super::slot::Deaths;
use crate::sys::thread::Thread;
use std::sync::atomic::Ordering;

/// What a scan reads of a worker besides its line. One of these for each living worker, side by side.
pub(super) struct Hot {
    pub(super) tau_ns: u64,
    /// A silence below it is nothing to look at: half of tau, or less for a worker whose rhythm says so.
    pub(super) quiet_ns: u64,
    /// The thread, where we made it.
    pub(super) thread: Option<Thread>,
    /// The number of its line.
    pub(super) line: u32,
    pub(super) deaths: Deaths,
    /// Nothing was said about it: no cause, no suspicion.
    pub(super) plain: bool,
}

/// What one pass found.
pub(super) struct Glanced {
    /// The earliest deadline of those that are well.
    pub(super) due: Option<Tick>,
    /// The places of the others, in rising order.
    pub(super) closely: Vec<usize>,
}

impl Hot {
    /// When it is due next, ns (never, while it owes nothing: the far end of time), if a glance says that all is well.
    #[inline]
    pub(super) fn quiet(&self, pulse: &Pulse, now: Tick) -> Option<u64> {
        if !self.plain {
            return None;
        }
        match pulse.doing.load(Ordering::Relaxed) {
            BUSY => {}
            IDLE | PAUSED => return Some(u64::MAX),
            _ => return None,
        }
        let beat_at = pulse.beat_at.load(Ordering::Relaxed);
        let progress_at = pulse.progress_at.load(Ordering::Relaxed);
        let silent = now.0.saturating_sub(beat_at);
        let flat = if progress_at == 0 { 0 } else { now.0.saturating_sub(progress_at) };
        (silent < self.quiet_ns && flat < self.tau_ns).then_some(beat_at + self.tau_ns)
    }

    /// Whether the thread is gone, where it can be joined.
    pub(super) fn is_joined(&mut self) -> bool {
        self.thread.as_mut().is_some_and(Thread::is_gone)
    }
}

/// Looks once at everybody. `closely` is the list of the last scan, used again so that a scan allocates nothing.
pub(super) fn glance(hot: &mut [Hot], lines: &Lines, mut closely: Vec<usize>, now: Tick) -> Glanced {
    closely.clear();
    let mut due = u64::MAX;
    for (at, hot) in hot.iter_mut().enumerate() {
        let next = lines.get(hot.line).and_then(|pulse| hot.quiet(pulse, now));
        let there = match hot.deaths {
            Deaths::Told => true,
            Deaths::Joined => !hot.is_joined(),
            Deaths::NotKnown | Deaths::Asked => false,
        };
        match next {
            Some(next) if there => due = due.min(next),
            Some(_) | None => closely.push(at),
        }
    }
    Glanced { due: (due != u64::MAX).then_some(Tick(due)), closely }
}

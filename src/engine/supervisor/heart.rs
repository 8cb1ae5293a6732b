//! The soft channel: what a worker tells, and what it is told.
//!
//! A worker writes its own slot and nobody else's; the supervisor reads it without asking. Nothing in here waits for
//! the supervisor, and the supervisor waits for nothing in here: atomics, `try_lock` and wake-ups only. A beat is
//! bound to the registered thread: a heartbeat that another thread can send proves nothing (cockroachdb 23980).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use interlock_domain::id::WorkerKey;
use interlock_domain::liveness::judge::PHASE_LIMIT_MAX;
use serde_json::Value;

use super::pulse::{BUSY, IDLE, PAUSED, PHASE, PHASE_EXTERNAL};
use super::slot::{OWN, Slot};
use crate::sys::clock;

/// How long one call of [`Heart::paused`] waits at most, so that the loop around it sees the world now and then.
const PAUSE_WAIT: Duration = Duration::from_secs(1);
/// Bytes of a phase's or checkpoint's name that are kept.
const NAME_MAX: usize = 64;

/// How a worker ends.
#[derive(Debug, Clone, PartialEq)]
pub enum Finished {
    /// It did what it was for; what it gives back, `Null` for nothing.
    Done(Value),
    /// It could not; one sentence for a person.
    Failed(String),
    /// It was asked to stop, and did; how far it came, `Null` for nothing.
    Stopped(Value),
}

/// A worker's handle on its own life. Others may hold a clone and read from it; only the registered thread can beat.
#[derive(Debug, Clone)]
pub struct Heart {
    pub(super) slot: Arc<Slot>,
}

impl Heart {
    /// "I am at work." A few nanoseconds: it may stand in the innermost loop. Whether it counted.
    #[inline]
    pub fn beat(&self) -> bool {
        if OWN.get() != self.slot.token {
            return self.slot.refuse(&self.slot.lies.wrong_thread);
        }
        let pulse = &self.slot.pulse;
        pulse.beat_at.store(clock::coarse().0, Ordering::Relaxed);
        pulse.beats.store(pulse.beats.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        if pulse.doing.load(Ordering::Relaxed) == IDLE {
            pulse.doing.store(BUSY, Ordering::Release);
        }
        true
    }

    /// "So much is done": a count that never runs backwards. The first call declares that this task makes progress,
    /// and from then on a busy CPU without it is a livelock. Whether it counted: not from another thread, not
    /// backwards, and not from a life that was replaced.
    pub fn progress(&self, done: u64) -> bool {
        if OWN.get() != self.slot.token {
            return self.slot.refuse(&self.slot.lies.wrong_thread);
        }
        if self.slot.orders.revoked.load(Ordering::Acquire) {
            return false;
        }
        let pulse = &self.slot.pulse;
        let before = pulse.progress.load(Ordering::Relaxed);
        if done < before {
            return self.slot.refuse(&self.slot.lies.backwards);
        }
        if done > before || pulse.progress_at.load(Ordering::Relaxed) == 0 {
            pulse.progress.store(done, Ordering::Relaxed);
            pulse.progress_at.store(clock::coarse().0.max(1), Ordering::Release);
        }
        true
    }

    /// "I now do this one thing, for at most `limit`": until it is over ([`Heart::phase_over`], or another phase), no
    /// beats are due but its end. Limits above 24 h are cut and noted.
    pub fn phase(&self, name: &str, limit: Duration) -> bool {
        self.enter(name, limit, PHASE)
    }

    /// As [`Heart::phase`], for work that something outside does while this thread waits: an accelerator, a vendor's
    /// library.
    pub fn external_phase(&self, name: &str, limit: Duration) -> bool {
        self.enter(name, limit, PHASE_EXTERNAL)
    }

    fn enter(&self, name: &str, limit: Duration, word: u8) -> bool {
        if OWN.get() != self.slot.token {
            return self.slot.refuse(&self.slot.lies.wrong_thread);
        }
        if limit > PHASE_LIMIT_MAX {
            self.slot.refuse(&self.slot.lies.limit_cut);
        }
        let limit = u64::try_from(limit.min(PHASE_LIMIT_MAX).as_nanos()).unwrap_or(u64::MAX).max(1);
        if let Ok(mut names) = self.slot.names.lock() {
            names.phase = short(name);
        }
        let pulse = &self.slot.pulse;
        let now = clock::coarse().0;
        pulse.phase_limit.store(0, Ordering::Release);
        pulse.phase_began.store(now, Ordering::Release);
        pulse.phase_limit.store(limit, Ordering::Release);
        pulse.beat_at.store(now, Ordering::Relaxed);
        pulse.doing.store(word, Ordering::Release);
        true
    }

    /// The phase is over; beats are due again.
    pub fn phase_over(&self) -> bool {
        self.become_busy()
    }

    /// "I wait for work": nothing is due until the next beat.
    pub fn idle(&self) -> bool {
        if OWN.get() != self.slot.token {
            return self.slot.refuse(&self.slot.lies.wrong_thread);
        }
        self.slot.pulse.beat_at.store(clock::coarse().0, Ordering::Relaxed);
        self.slot.pulse.doing.store(IDLE, Ordering::Release);
        true
    }

    fn become_busy(&self) -> bool {
        if OWN.get() != self.slot.token {
            return self.slot.refuse(&self.slot.lies.wrong_thread);
        }
        self.slot.pulse.beat_at.store(clock::coarse().0, Ordering::Relaxed);
        self.slot.pulse.doing.store(BUSY, Ordering::Release);
        true
    }

    /// "I pass here." Where the task declared an order of checkpoints, one out of order is refused and noted. A beat
    /// as well.
    pub fn checkpoint(&self, name: &str) -> bool {
        if !self.beat() {
            return false;
        }
        if let Ok(mut names) = self.slot.names.lock() {
            names.checkpoint = short(name);
        }
        let declared = &self.slot.checkpoints;
        if declared.is_empty() {
            return true;
        }
        let due = self.slot.next_checkpoint.load(Ordering::Relaxed) as usize % declared.len();
        // After one out of order, the order goes on from where it stands.
        let found = declared.iter().position(|declared| *declared == name);
        let next = u32::try_from(found.map_or(due, |at| at + 1)).unwrap_or(0);
        self.slot.next_checkpoint.store(next, Ordering::Relaxed);
        if found == Some(due) { true } else { self.slot.refuse(&self.slot.lies.out_of_order) }
    }

    /// Whether it is time to end. Once true, true for ever.
    #[must_use]
    pub fn should_stop(&self) -> bool {
        self.slot.orders.stop.load(Ordering::Acquire)
    }

    /// Whether this life may still act on the world: not once it was replaced. Ask right before each action.
    #[must_use]
    pub fn may_act(&self) -> bool {
        !self.slot.orders.revoked.load(Ordering::Acquire)
    }

    /// Waits while a person has it paused, and says whether it still is: `while heart.paused() {}`. At once false
    /// when it is not paused or shall stop; one call waits a second at most.
    pub fn paused(&self) -> bool {
        let waits = || self.slot.orders.pause.load(Ordering::Acquire) && !self.should_stop();
        if !waits() || OWN.get() != self.slot.token {
            return false;
        }
        self.slot.pulse.doing.store(PAUSED, Ordering::Release);
        let until = Instant::now() + PAUSE_WAIT;
        while waits() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            std::thread::park_timeout(left);
        }
        self.become_busy();
        false
    }

    /// Waits between two rounds of work, beating meanwhile. Ends early, with false, when it shall stop; ends early,
    /// with true, when a person pauses it.
    pub fn rest(&self, wait: Duration) -> bool {
        let until = Instant::now() + wait;
        loop {
            self.beat();
            if self.should_stop() {
                return false;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || self.slot.orders.pause.load(Ordering::Acquire) {
                return true;
            }
            std::thread::park_timeout(left.min(self.slot.tau / 4));
        }
    }

    /// The last word of an adopted thread, whose end it is. Whether it counted.
    pub fn finish(self, finished: Finished) -> bool {
        if OWN.get() != self.slot.token {
            return self.slot.refuse(&self.slot.lies.wrong_thread);
        }
        self.slot.finish(finished);
        self.slot.unregister();
        true
    }

    /// Whose life it is.
    #[must_use]
    pub fn key(&self) -> Option<WorkerKey> {
        self.slot.key.get().copied()
    }

    /// How many beats have counted.
    #[must_use]
    pub fn beats(&self) -> u64 {
        self.slot.beats()
    }
}

fn short(name: &str) -> String {
    let mut end = name.len().min(NAME_MAX);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    name[..end].to_owned()
}

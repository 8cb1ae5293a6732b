//! Feeds systemd's watchdog, and only while there is something to be well about.
//!
//! A ping says: the scan is complete, no vital worker is stuck, and the second vital (the evidence writer) advances.
//! A ping from anything less would keep a dead daemon alive.

use std::time::Duration;

use interlock_domain::time::Tick;

use crate::sys::notify::Notifier;

/// How long the second vital may stand still at least, however short the watchdog is: it waits for the disk.
const STANDSTILL_MIN: Duration = Duration::from_secs(1);

/// A part that must advance for the daemon to be well.
pub struct Vital {
    /// What it is, for the message.
    pub name: &'static str,
    /// A count that it moves at least four times a second while it is well, whether or not it has work.
    pub count: Box<dyn Fn() -> u64 + Send>,
}

impl std::fmt::Debug for Vital {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Vital").field("name", &self.name).finish_non_exhaustive()
    }
}

/// What is fed, and how often.
#[derive(Debug)]
pub struct Watchdog {
    /// The line to systemd.
    pub notifier: Notifier,
    /// The time between two pings (`notify::watchdog_period`).
    pub period: Duration,
    /// What else must advance.
    pub vital: Option<Vital>,
}

pub(super) struct Feeder {
    watchdog: Watchdog,
    next: Tick,
    count: u64,
    moved: Tick,
    held: bool,
}

/// What became of one turn.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fed {
    /// Not due yet.
    NotDue,
    /// A ping went out.
    Pinged,
    /// No ping: this stands still. `first` when it did not before.
    Held { what: String, first: bool },
}

impl Feeder {
    pub(super) fn new(watchdog: Watchdog, now: Tick) -> Feeder {
        let count = watchdog.vital.as_ref().map_or(0, |vital| (vital.count)());
        Feeder { watchdog, next: now, count, moved: now, held: false }
    }

    pub(super) fn due(&self) -> Tick {
        self.next
    }

    /// After a complete scan. `stuck` says why not, where a vital worker is a ZOMBIE.
    pub(super) fn turn(&mut self, stuck: Option<&str>, now: Tick) -> Fed {
        let still = self.watchdog.vital.as_ref().and_then(|vital| {
            let count = (vital.count)();
            if count != self.count {
                self.count = count;
                self.moved = now;
            }
            let patience = (self.watchdog.period * 3 / 2).max(STANDSTILL_MIN);
            (now.since(self.moved) >= patience).then_some(vital.name)
        });
        if now < self.next {
            return Fed::NotDue;
        }
        self.next = now.after(self.watchdog.period);
        let still = still.map(|what| format!("{what} does not advance"));
        if let Some(what) = stuck.map(str::to_owned).or(still) {
            let first = !std::mem::replace(&mut self.held, true);
            return Fed::Held { what, first };
        }
        self.held = false;
        self.watchdog.notifier.watchdog();
        Fed::Pinged
    }

    /// The supervisor did not run: the vital part may not have run either.
    pub(super) fn rebaseline(&mut self, now: Tick) {
        self.moved = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn it_is_fed_at_its_period_while_all_is_well_and_held_while_not() {
        let count = Arc::new(AtomicU64::new(0));
        let read = Arc::clone(&count);
        let vital = Vital { name: "evidence", count: Box::new(move || read.load(Ordering::Relaxed)) };
        let watchdog =
            Watchdog { notifier: Notifier::new(None).unwrap(), period: Duration::from_secs(1), vital: Some(vital) };
        let ms = |ms: u64| Tick(ms * 1_000_000);
        let mut feeder = Feeder::new(watchdog, ms(0));
        let held = |what: &str, first| Fed::Held { what: what.to_owned(), first };
        let mut check = |at, moved: u64, stuck, expected| {
            count.fetch_add(moved, Ordering::Relaxed);
            assert_eq!(feeder.turn(stuck, ms(at)), expected, "at {at} ms");
        };
        check(0, 1, None, Fed::Pinged);
        check(999, 1, None, Fed::NotDue);
        check(1000, 0, None, Fed::Pinged);
        check(2498, 0, None, Fed::Pinged);
        check(3498, 0, None, held("evidence does not advance", true));
        check(4498, 0, None, held("evidence does not advance", false));
        check(5498, 1, None, Fed::Pinged);
        check(6498, 1, Some("t3 (mqtt)"), held("t3 (mqtt)", true));
        check(7498, 1, None, Fed::Pinged);
    }
}

//! What is worth a note although it changes no state: unusual silences, broken rhythms, lies, the clock.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use interlock_domain::id::TaskId;
use interlock_domain::liveness::lifecycle::{Cause, Notice, State};
use interlock_domain::liveness::rate::Counting;
use interlock_domain::time::Tick;

use super::patrol::Patrol;
use crate::sys::clock;

/// Workers whose rhythm is looked at in one scan, at least; of many, each scan takes its share.
const RHYTHMS_MIN: usize = 64;
/// In so many scans the rhythm of everybody was looked at: each look costs as much as a glance at ten others, since a
/// history lies with the rest of its worker. Ten thousand workers are known after eight minutes.
const RHYTHM_ROUNDS: usize = 64;
/// A step of the wall clock that is worth a row. Less is what NTP does all day.
const CLOCK_STEP_MIN_MS: u64 = 1000;
impl Patrol {
    /// Warns of a silence that is unusual for this very worker, once for each silence.
    pub(super) fn suspect(&mut self, at: usize, now: Tick) {
        let row = &mut self.rows[at];
        let beat_at = row.slot.beat_at();
        if !row.slot.is_plainly_busy() || row.suspected == beat_at {
            return;
        }
        let Some(life) = self.census.life(row.key) else { return };
        let (tau, silent) = (life.limits().tau, now.since(beat_at));
        let warns = life.state() == State::Running && life.judged_since() <= beat_at;
        if warns && row.history.warns_after(tau).is_some_and(|after| silent >= after) {
            row.suspected = beat_at;
            let phi = row.history.phi(silent, tau).unwrap_or_default();
            let detail = format!("no beat for {:.1} s, phi {phi:.1}", silent.as_secs_f64());
            self.outbox.put(life.note(Cause::Suspicious, detail, now));
        }
    }

    /// Learns how often each worker beats, some of them in each scan.
    pub(super) fn follow_rhythms(&mut self, now: Tick) {
        let count = self.rows.len();
        let share = (count / RHYTHM_ROUNDS).max(RHYTHMS_MIN).min(count);
        for _ in 0..share {
            self.rhythm_at = (self.rhythm_at + 1) % count;
            let (hot, row) = (&mut self.hot[self.rhythm_at], &mut self.rows[self.rhythm_at]);
            if !row.slot.is_plainly_busy() {
                row.history.skip();
                row.counting = None;
                continue;
            }
            let beats = row.slot.beats();
            row.history.see(row.slot.beat_at(), beats);
            let warns = row.history.warns_after(Duration::from_nanos(hot.tau_ns));
            let warns_ns = warns.and_then(|after| u64::try_from(after.as_nanos()).ok()).unwrap_or(u64::MAX);
            hot.quiet_ns = (hot.tau_ns / 2).min(warns_ns);
            let Some(rate) = row.spec.rate else { continue };
            let counting = row.counting.get_or_insert_with(|| Counting::begin(beats, now));
            if let Some(told) = counting.see(rate, beats, now)
                && let Some(life) = self.census.life(row.key)
            {
                self.outbox.put(life.note(Cause::BeatRate, told, now));
            }
        }
    }

    pub(super) fn note_clock_step(&mut self, now: Tick) {
        let at_boot = wall_at_boot();
        let Some(detail) = clock_step(self.wall_at_boot, at_boot, clock::wall().0) else { return };
        self.wall_at_boot = at_boot;
        self.outbox.put(Notice::supervisor(Cause::ClockStep, detail, now));
    }

    /// Each kind of lie of each worker is noted the first time and whenever its count has doubled.
    pub(super) fn note_lies(&mut self, now: Tick) {
        let total = self.figures.lies.load(Ordering::Acquire);
        if std::mem::replace(&mut self.lies_seen, total) == total {
            return;
        }
        for row in &mut self.rows {
            let slot = Arc::clone(&row.slot);
            let lies = &slot.lies;
            let counts = [
                (&lies.wrong_thread, Cause::WrongThreadHeartbeat),
                (&lies.backwards, Cause::ProgressBackwards),
                (&lies.limit_cut, Cause::PhaseLimitCut),
                (&lies.out_of_order, Cause::CheckpointOrder),
            ];
            for ((count, cause), noted) in counts.into_iter().zip(&mut row.noted) {
                let count = count.load(Ordering::Relaxed);
                if count > 0 && count >= *noted * 2 && count > *noted {
                    *noted = count;
                    if let Some(life) = self.census.life(row.key) {
                        self.outbox.put(life.note(cause, format!("{count} so far"), now));
                    }
                }
            }
        }
    }

    /// A task died in the middle of what it did: those that declared to need it are noted.
    pub(super) fn tell_dependants(&mut self, dead: TaskId, now: Tick) {
        for row in self.rows.iter().filter(|row| row.spec.needs.contains(&dead)) {
            if let Some(life) = self.census.life(row.key) {
                self.outbox.put(life.note(Cause::DependencyPoisoned, format!("{dead} died of a panic"), now));
            }
        }
    }
}

/// What became of the wall clock between two looks, from what it would have said at the boot.
fn clock_step(before: i64, after: i64, wall: i64) -> Option<String> {
    let step = after - before;
    (step.unsigned_abs() >= CLOCK_STEP_MIN_MS)
        .then(|| format!("the wall clock was set from {} ms to {wall} ms after 1970", wall - step))
}

/// The wall clock when the boot's clock was at zero, ms after 1970.
pub(super) fn wall_at_boot() -> i64 {
    clock::wall().0 - i64::try_from(clock::boottime_ns() / 1_000_000).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_of_the_wall_clock_is_told_from_the_daily_slew() {
        const YEARS: i64 = 10 * 365 * 86_400_000;
        let check = |before, after, wall, expected: Option<&str>| {
            assert_eq!(clock_step(before, after, wall).as_deref(), expected);
        };
        check(5000, 5999, 9000, None);
        check(5000, 4001, 9000, None);
        let forward = "the wall clock was set from 9000 ms to 315360009000 ms after 1970";
        check(5000, 5000 + YEARS, 9000 + YEARS, Some(forward));
        check(YEARS, 0, 7, Some("the wall clock was set from 315360000007 ms to 7 ms after 1970"));
    }
}

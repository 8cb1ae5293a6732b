//! Alive supervision (AUTOSAR): not only whether a worker beats, but how often.
//!
//! A worker that declares its rhythm is noted when it falls out of it: a loop that should turn ten times a second and
//! turns twice, or two hundred times, is broken although its beats are fresh. It changes no state.

use std::time::Duration;

use crate::time::Tick;

/// How many beats are due in each `per`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// The least.
    pub least: u64,
    /// The most.
    pub most: u64,
    /// Counted over this long; the scan makes it a little longer.
    pub per: Duration,
}

/// A count under way.
#[derive(Debug, Clone, Copy)]
pub struct Counting {
    began: Tick,
    beats: u64,
    broken: bool,
}

impl Counting {
    /// From here on.
    #[must_use]
    pub fn begin(beats: u64, now: Tick) -> Counting {
        Counting { began: now, beats, broken: false }
    }

    /// Looks at the count. A rhythm that is broken is told once, until it was whole again.
    pub fn see(&mut self, rate: Rate, beats: u64, now: Tick) -> Option<String> {
        let over = now.since(self.began);
        if over < rate.per || rate.per.is_zero() {
            return None;
        }
        let counted = beats.saturating_sub(self.beats);
        // What is due in the time that really passed: less is forgiven by the scan's lateness, more is not.
        let most = u128::from(rate.most) * over.as_nanos().div_ceil(rate.per.as_nanos());
        let whole = counted >= rate.least && u128::from(counted) <= most;
        let first = !whole && !self.broken;
        *self = Counting { began: now, beats, broken: !whole };
        let due = (rate.least, rate.most);
        first.then(|| format!("{counted} beats in {:.1} s, {} to {} are due", over.as_secs_f64(), due.0, due.1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate = Rate { least: 8, most: 12, per: Duration::from_secs(1) };

    /// Counts (at ms, beats so far) and whether something is told.
    fn check(looks: &[(u64, u64, bool)]) {
        let mut counting = Counting::begin(0, Tick(0));
        for (at, beats, told) in looks {
            let found = counting.see(RATE, *beats, Tick(at * 1_000_000));
            assert_eq!(found.is_some(), *told, "at {at} ms: {found:?}");
        }
    }

    #[test]
    fn both_bounds_are_inclusive_and_a_broken_rhythm_is_told_once() {
        check(&[(999, 0, false), (1000, 8, false), (2000, 20, false)]);
        check(&[(1000, 7, true), (2000, 14, false), (3000, 24, false), (4000, 25, true)]);
        check(&[(1000, 13, true), (2000, 25, false)]);
        // A late scan counts more beats, and they are due.
        check(&[(1900, 19, false)]);
    }
}

//! How fast the past is told, and how many orders are taken: buckets that fill by the clock.

use std::time::Duration;

use interlock_domain::time::Tick;

/// The bucket holds what may be sent in this time, so that a replay comes evenly ...
const EVENLY: Duration = Duration::from_millis(100);
/// ... and so that whoever says little, but that all at once, is not refused for it.
const AT_ONCE: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Pace {
    per_second: u32,
    /// What the bucket holds when it is full.
    full: u64,
    /// Thousand-millionths of a row.
    held: u64,
    at: Tick,
}

const ROW: u64 = 1_000_000_000;

impl Pace {
    /// Evenly over the second.
    pub(super) fn even(per_second: u32, now: Tick) -> Pace {
        Pace { per_second, full: full(per_second, EVENLY), held: ROW, at: now }
    }

    /// As many as a second has, at once if need be; as many again a second later.
    pub(super) fn at_once(per_second: u32, now: Tick) -> Pace {
        let full = full(per_second, AT_ONCE);
        Pace { per_second, full, held: full, at: now }
    }

    /// Takes one row's worth; gives how long to wait where there is none.
    pub(super) fn take(&mut self, now: Tick) -> Result<(), Duration> {
        let rate = u64::from(self.per_second);
        let passed = now.0.saturating_sub(self.at.0).min(1_000_000_000);
        self.at = now;
        self.held = (self.held + passed * rate).min(self.full);
        if self.held < ROW {
            return Err(Duration::from_nanos((ROW - self.held).div_ceil(rate)));
        }
        self.held -= ROW;
        Ok(())
    }
}

/// Orders under way at once, and in a second: a plant's system gives few, though it may give them all at once, and a
/// flood must not fill the log. As many again are kept for what makes safe.
const ORDERS_MAX: usize = 8;
const ORDERS_PER_SECOND: u32 = 20;

/// Which orders are taken.
#[derive(Debug)]
pub(super) struct Orders {
    usual: Pace,
    /// What others never take: a flood of orders must not hold back an emergency stop.
    reserve: Pace,
}

impl Orders {
    pub(super) fn new(now: Tick) -> Orders {
        Orders { usual: Pace::at_once(ORDERS_PER_SECOND, now), reserve: Pace::at_once(ORDERS_PER_SECOND, now) }
    }

    /// Whether one more is taken while so many are under way. What makes safe is looked at only when it matters.
    pub(super) fn take(&mut self, under_way: usize, makes_safe: impl FnOnce() -> bool, now: Tick) -> bool {
        (under_way < ORDERS_MAX && self.usual.take(now).is_ok())
            || (under_way < 2 * ORDERS_MAX && makes_safe() && self.reserve.take(now).is_ok())
    }
}

fn full(per_second: u32, time: Duration) -> u64 {
    u64::from(per_second).saturating_mul(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)).max(ROW)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_has_as_many_rows_as_it_may_and_no_more() {
        let mut pace = Pace::even(50, Tick(0));
        let mut taken = 0;
        for ms in 0..1_000 {
            while pace.take(Tick(ms * 1_000_000)).is_ok() {
                taken += 1;
            }
        }
        assert_eq!(taken, 50);
        assert_eq!(pace.take(Tick(999_000_000)), Err(Duration::from_millis(1)));
        // A pause is not saved up beyond a tenth of a second.
        let mut burst = 0;
        while pace.take(Tick(60_000_000_000)).is_ok() {
            burst += 1;
        }
        assert_eq!(burst, 5);
    }

    #[test]
    fn one_row_a_second_is_a_pace_too() {
        let mut pace = Pace::even(1, Tick(0));
        assert_eq!(pace.take(Tick(0)), Ok(()));
        assert_eq!(pace.take(Tick(500_000_000)), Err(Duration::from_millis(500)));
        assert_eq!(pace.take(Tick(1_000_000_000)), Ok(()));
    }

    #[test]
    fn a_flood_of_orders_holds_back_nothing_that_makes_safe() {
        let mut orders = Orders::new(Tick(0));
        let mut taken = |under_way, makes_safe, ms: u64| {
            (0..100).take_while(|_| orders.take(under_way, || makes_safe, Tick(ms * 1_000_000))).count()
        };
        assert_eq!([taken(0, false, 0), taken(0, true, 0), taken(0, true, 1)], [20, 20, 0]);
        // Orders that do not end hold no place that is kept; there is a last one all the same.
        assert_eq!([taken(8, false, 2_000), taken(16, true, 2_000), taken(15, true, 2_000)], [0, 0, 20]);
        assert_eq!(taken(7, false, 2_000), 20);
    }

    #[test]
    fn what_comes_at_once_is_taken_up_to_what_a_second_has() {
        let mut pace = Pace::at_once(20, Tick(0));
        let mut taken = |ms: u64| (0..100).take_while(|_| pace.take(Tick(ms * 1_000_000)).is_ok()).count();
        assert_eq!([taken(0), taken(49), taken(50), taken(150), taken(60_000)], [20, 0, 1, 2, 20]);
    }
}

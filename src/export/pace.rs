//! How fast the past is told: a bucket that fills by the clock.

use std::time::Duration;

use interlock_domain::time::Tick;

/// The bucket holds what may be sent in this time, so that a replay comes evenly.
const BURST: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(super) struct Pace {
    per_second: u32,
    /// Thousand-millionths of a row.
    held: u64,
    at: Tick,
}

const ROW: u64 = 1_000_000_000;

impl Pace {
    pub(super) fn new(per_second: u32, now: Tick) -> Pace {
        Pace { per_second, held: ROW, at: now }
    }

    /// Takes one row's worth; gives how long to wait where there is none.
    pub(super) fn take(&mut self, now: Tick) -> Result<(), Duration> {
        let rate = u64::from(self.per_second);
        let passed = now.0.saturating_sub(self.at.0).min(1_000_000_000);
        self.at = now;
        let burst = rate.saturating_mul(u64::try_from(BURST.as_nanos()).unwrap_or(u64::MAX));
        self.held = (self.held + passed * rate).min(burst.max(ROW));
        if self.held < ROW {
            return Err(Duration::from_nanos((ROW - self.held).div_ceil(rate)));
        }
        self.held -= ROW;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_has_as_many_rows_as_it_may_and_no_more() {
        let mut pace = Pace::new(50, Tick(0));
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
        let mut pace = Pace::new(1, Tick(0));
        assert_eq!(pace.take(Tick(0)), Ok(()));
        assert_eq!(pace.take(Tick(500_000_000)), Err(Duration::from_millis(500)));
        assert_eq!(pace.take(Tick(1_000_000_000)), Ok(()));
    }
}

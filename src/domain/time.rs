//! Time as a value. There is no clock in here: `sys` reads it, and whoever asks for a decision passes it in.

use std::time::Duration;

/// Nanoseconds on the monotonic clock (`CLOCK_MONOTONIC`) of this boot. All waits and deadlines are counted in it:
/// wall time steps, and a deadline in wall time is a false alarm waiting for NTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Tick(pub u64);

impl Tick {
    /// The moment `wait` later; the far end of time when that overflows.
    #[must_use]
    pub fn after(self, wait: Duration) -> Tick {
        Tick(self.0.saturating_add(u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// How long ago `earlier` was; zero when it was not earlier.
    #[must_use]
    pub fn since(self, earlier: Tick) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Milliseconds after 1970-01-01 UTC on the wall clock: for people to read, never for a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Wall(pub i64);

//! How many requests the holder of a token may send: a bucket for each, which fills evenly and holds a few seconds'
//! worth.
//!
//! It guards the others: one client that loops must not take the box from everybody else. Without tokens nobody can be
//! told from anybody, and the bound on requests in flight is all there is.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Seconds' worth of requests that may come at once.
const BURST_SECONDS: f64 = 6.0;

/// The buckets of all holders: as many as the configuration has clients.
#[derive(Debug, Default)]
pub struct Rates {
    // The tasks of all connections look here, each for one subtraction.
    buckets: Mutex<HashMap<String, Bucket>>,
}

#[derive(Debug, Clone, Copy)]
struct Bucket {
    filled: f64,
    at: Instant,
}

impl Rates {
    /// Whether this holder may send another request now.
    #[must_use]
    pub fn may(&self, holder: &str, rate: u32) -> bool {
        self.may_at(holder, rate, Instant::now())
    }

    fn may_at(&self, holder: &str, rate: u32, now: Instant) -> bool {
        let (rate, full) = (f64::from(rate), f64::from(rate) * BURST_SECONDS);
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let bucket = buckets.entry(holder.to_owned()).or_insert(Bucket { filled: full, at: now });
        let since = now.saturating_duration_since(bucket.at).as_secs_f64();
        *bucket = Bucket { filled: (bucket.filled + since * rate).min(full), at: now };
        if bucket.filled < 1.0 {
            return false;
        }
        bucket.filled -= 1.0;
        true
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn one_holder_is_held_back_and_another_is_not() {
        let (rates, start) = (Rates::default(), Instant::now());
        let granted = |holder: &str, tries: u32, at: Duration| {
            (0..tries).filter(|_| rates.may_at(holder, 10, start + at)).count()
        };
        assert_eq!(granted("a", 100, Duration::ZERO), 60);
        assert_eq!(granted("b", 1, Duration::ZERO), 1);
        assert_eq!(granted("a", 100, Duration::from_millis(500)), 5);
        assert_eq!(granted("a", 100, Duration::from_secs(60)), 60, "never more than is held");
    }
}

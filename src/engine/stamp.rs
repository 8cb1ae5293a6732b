//! The moment of an evidence row: all clocks, read once when the thing happens.

use crate::record::{Stamp, TimeQuality};
use crate::sys::clock;

/// How long a reading of the clock's discipline is used again, in nanoseconds: the kernel is asked at most once a
/// second, and a row costs no system call for it.
const QUALITY_KEPT_NS: u64 = 1_000_000_000;

/// All clocks, now.
#[must_use]
pub fn now() -> Stamp {
    let mono = clock::now();
    Stamp { mono, boottime_ns: clock::boottime_ns(), wall: clock::wall(), quality: quality(mono.0) }
}

fn quality(now_ns: u64) -> TimeQuality {
    use std::sync::atomic::{AtomicU64, Ordering};
    static WHEN: AtomicU64 = AtomicU64::new(0);
    static WHAT: AtomicU64 = AtomicU64::new(u64::MAX);

    let read_at = WHEN.load(Ordering::Relaxed);
    if WHAT.load(Ordering::Relaxed) == u64::MAX || now_ns.saturating_sub(read_at) > QUALITY_KEPT_NS {
        let word = match clock::time_quality() {
            clock::TimeQuality::Synced => 0,
            clock::TimeQuality::Unsynced => 1,
            clock::TimeQuality::Unknown => 2,
        };
        WHAT.store(word, Ordering::Relaxed);
        WHEN.store(now_ns, Ordering::Relaxed);
    }
    match WHAT.load(Ordering::Relaxed) {
        0 => TimeQuality::Synced,
        1 => TimeQuality::Unsynced,
        _ => TimeQuality::Unknown,
    }
}

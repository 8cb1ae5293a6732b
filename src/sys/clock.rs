//! The clocks. Deadlines are counted on the monotonic one only; the wall clock is for people to read.

use std::path::Path;
use std::sync::atomic::{AtomicU8, Ordering};

use interlock_domain::time::{Tick, Wall};

/// Where systemd-timesyncd says that it has set the clock, for boxes on which asking the kernel is forbidden.
const TIMESYNC_MARK: &str = "/run/systemd/timesync/synchronized";
/// What a time service said when the kernel could not be asked: 0 nothing, 1 kept right, 2 not.
static TOLD: AtomicU8 = AtomicU8::new(0);
/// 2024-01-01: a wall clock before it was never set on a machine that runs this build.
const EARLIEST_WALL_MS: i64 = 1_704_067_200_000;

fn read(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid, writable timespec for the whole call; clock ids are constants that Linux has since
    // 2.6.39, so the call cannot fail (and would leave zeros if it did).
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    let (s, ns) = (u64::try_from(time.tv_sec).unwrap_or(0), u64::try_from(time.tv_nsec).unwrap_or(0));
    s.saturating_mul(1_000_000_000).saturating_add(ns)
}

/// The monotonic clock. It stands still while the machine sleeps, so a night in suspend kills nobody.
#[must_use]
pub fn now() -> Tick {
    Tick(read(libc::CLOCK_MONOTONIC))
}

/// The same clock as of the last kernel tick: up to 10 ms behind, never ahead, and several times cheaper. For stamps
/// of beats.
#[must_use]
#[inline]
pub fn coarse() -> Tick {
    Tick(read(libc::CLOCK_MONOTONIC_COARSE))
}

/// Nanoseconds since the boot, suspend included.
#[must_use]
pub fn boottime_ns() -> u64 {
    read(libc::CLOCK_BOOTTIME)
}

/// The wall clock.
#[must_use]
pub fn wall() -> Wall {
    Wall(i64::try_from(read(libc::CLOCK_REALTIME) / 1_000_000).unwrap_or(i64::MAX))
}

/// CPU time that the calling thread has used, ns.
#[must_use]
pub fn thread_cpu_ns() -> u64 {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// How far the wall clock can be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeQuality {
    /// Something keeps it right.
    Synced,
    /// Nothing does, or it was never set.
    Unsynced,
    /// Nobody may ask (`ProtectClock=yes` makes the question EPERM).
    Unknown,
}

impl TimeQuality {
    /// The written form, as evidence rows carry it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            TimeQuality::Synced => "SYNCED",
            TimeQuality::Unsynced => "UNSYNCED",
            TimeQuality::Unknown => "UNKNOWN",
        }
    }
}

/// A time service was asked, for a process that may not ask the kernel; none when there is none.
pub fn tell_quality(synchronised: Option<bool>) {
    TOLD.store(synchronised.map_or(0, |is| if is { 1 } else { 2 }), Ordering::Relaxed);
}

/// Whether the kernel may be asked how good the clock is (`ProtectClock=yes` makes the question EPERM).
#[must_use]
pub fn kernel_tells_quality() -> bool {
    // SAFETY: as in `time_quality`.
    let mut timex: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: as in `time_quality`.
    unsafe { libc::adjtimex(&raw mut timex) >= 0 }
}

/// Asks the kernel; where it may not be asked, systemd-timesyncd's mark and what a time service said last count.
#[must_use]
pub fn time_quality() -> TimeQuality {
    if wall().0 < EARLIEST_WALL_MS {
        return TimeQuality::Unsynced;
    }
    // SAFETY: all zeros is a valid timex (plain integers); modes 0 asks and sets nothing.
    let mut timex: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: `timex` is valid and writable for the whole call.
    let state = unsafe { libc::adjtimex(&raw mut timex) };
    if state < 0 {
        if Path::new(TIMESYNC_MARK).exists() {
            return TimeQuality::Synced;
        }
        return match TOLD.load(Ordering::Relaxed) {
            1 => TimeQuality::Synced,
            2 => TimeQuality::Unsynced,
            _ => TimeQuality::Unknown,
        };
    }
    if state == libc::TIME_ERROR || timex.status & libc::STA_UNSYNC != 0 {
        TimeQuality::Unsynced
    } else {
        TimeQuality::Synced
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_coarse_clock_is_never_ahead() {
        for _ in 0..10_000 {
            let (coarse, now) = (coarse(), now());
            assert!(coarse <= now, "{coarse:?} {now:?}");
        }
    }
}

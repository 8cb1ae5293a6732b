//! How unusual a silence is for this very worker: phi-accrual (Hayashibara et al. 2004), before tau is reached.
//!
//! A score, not a verdict: it warns, and changes no state. A worker that beats every 20 ms and has said nothing for
//! three seconds is in trouble although its tau is 15 s; one that beats every 5 s is not.

use std::time::Duration;

use crate::time::Tick;

/// The score from which a silence is worth a warning: once in 10^8 beats by chance, if gaps were normal.
pub const PHI_WARNS: f64 = 8.0;
/// Standard deviations beyond the mean at which the score is [`PHI_WARNS`] (a test holds the two together).
const DEVIATIONS_AT_WARNING: f64 = 5.2262;
/// Gaps that are remembered. Older ones are another load, another phase of the work.
const GAPS_MAX: usize = 32;
/// Gaps that must be known before anything is said.
const GAPS_MIN: usize = 8;
/// Share of tau below which no silence is unusual, however fast it beats otherwise: a page fault, a garbage
/// collection, a busy neighbour.
const PAUSE: u32 = 4;

/// The gaps between a worker's beats, as far as the scans saw them.
#[derive(Debug, Clone, Default)]
pub struct History {
    gaps: Vec<f32>,
    next: usize,
    last: Option<(Tick, u64)>,
}

impl History {
    /// Sees the stamp and the count of the beats at a scan. With several beats in between, their mean gap counts.
    pub fn see(&mut self, beat_at: Tick, beats: u64) {
        let Some((before_at, before)) = self.last.replace((beat_at, beats)) else { return };
        let count = beats.wrapping_sub(before);
        if count == 0 {
            return;
        }
        let gap = beat_at.since(before_at).as_secs_f32() / to_f32(count);
        if self.gaps.len() < GAPS_MAX {
            self.gaps.push(gap);
        } else {
            self.gaps[self.next] = gap;
        }
        self.next = (self.next + 1) % GAPS_MAX;
    }

    /// Time passed that is not the worker's: the next gap is not counted.
    pub fn skip(&mut self) {
        self.last = None;
    }

    /// Mean and deviation, the deviation not below a floor that grows with tau.
    fn shape(&self, tau: Duration) -> Option<(f64, f64)> {
        if self.gaps.len() < GAPS_MIN {
            return None;
        }
        let count = f64::from(u32::try_from(self.gaps.len()).unwrap_or(u32::MAX));
        let mean = self.gaps.iter().map(|gap| f64::from(*gap)).sum::<f64>() / count;
        let spread = self.gaps.iter().map(|gap| (f64::from(*gap) - mean).powi(2)).sum::<f64>() / count;
        // Means of many gaps hide how far single ones spread: the deviation is at least half the mean.
        Some((mean, spread.sqrt().max(mean / 2.0).max(tau.as_secs_f64() / 50.0)))
    }

    /// The score of a silence; none while too little is known.
    #[must_use]
    pub fn phi(&self, silent: Duration, tau: Duration) -> Option<f64> {
        let (mean, deviation) = self.shape(tau)?;
        let pause = (tau / PAUSE).as_secs_f64();
        Some(score((silent.as_secs_f64() - pause - mean) / deviation))
    }

    /// The silence from which the score warns; none while too little is known, or when tau comes first.
    #[must_use]
    pub fn warns_after(&self, tau: Duration) -> Option<Duration> {
        let (mean, deviation) = self.shape(tau)?;
        let after = (tau / PAUSE).as_secs_f64() + mean + DEVIATIONS_AT_WARNING * deviation;
        (after < tau.as_secs_f64()).then(|| Duration::from_secs_f64(after))
    }
}

#[expect(clippy::cast_precision_loss, reason = "a count of beats between two scans; the last digits do not matter")]
fn to_f32(count: u64) -> f32 {
    count as f32
}

/// `-log10` of the chance that a normal gap is so many deviations beyond the mean (logistic form of the tail).
fn score(deviations: f64) -> f64 {
    let e = (-deviations * (1.5976 + 0.070_566 * deviations * deviations)).exp();
    let phi = if deviations > 0.0 { -(e / (1.0 + e)).log10() } else { -(1.0 - 1.0 / (1.0 + e)).log10() };
    // The logarithm of one is a zero below zero, which would be shown with its sign.
    phi.max(0.0) + 0.0
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAU: Duration = Duration::from_secs(15);
    const MS: u64 = 1_000_000;

    /// A worker with this gap, seen every `scan` ms for so many scans.
    fn steady(gap_ms: u64, scan_ms: u64, scans: u64) -> History {
        let mut history = History::default();
        for scan in 1..=scans {
            let beats = scan * scan_ms / gap_ms;
            history.see(Tick(beats * gap_ms * MS), beats);
        }
        history
    }

    fn warns_ms(history: &History) -> Option<u128> {
        history.warns_after(TAU).map(|after| after.as_millis())
    }

    #[test]
    fn the_warning_follows_the_workers_own_rhythm() {
        assert_eq!(warns_ms(&steady(20, 1000, 40)), Some(5337));
        assert_eq!(warns_ms(&steady(1000, 1000, 40)), Some(7363));
        assert_eq!(warns_ms(&steady(2000, 1000, 80)), Some(10_976));
        // So slow that tau comes first, or not known for long enough.
        assert_eq!(warns_ms(&steady(5000, 1000, 200)), None);
        assert_eq!(warns_ms(&steady(1000, 1000, GAPS_MIN as u64)), None);
    }

    #[test]
    fn the_score_at_the_warning_is_the_warning_score() {
        assert!((score(DEVIATIONS_AT_WARNING) - PHI_WARNS).abs() < 0.01, "{}", score(DEVIATIONS_AT_WARNING));
        let history = steady(1000, 1000, 40);
        let after = history.warns_after(TAU).unwrap();
        let phi = history.phi(after, TAU).unwrap();
        assert!((phi - PHI_WARNS).abs() < 0.01, "{phi}");
        assert!(history.phi(Duration::from_secs(1), TAU).unwrap() < 0.1);
    }

    #[test]
    fn a_silence_far_below_the_usual_is_a_plain_zero() {
        for deviations in [-1.0, -5.0, -40.0, -1e6] {
            let shown = format!("{:.1}", score(deviations));
            assert!(!shown.starts_with('-'), "{deviations}: {shown}");
        }
    }

    /// Healthy workers whose gaps vary by a factor of up to ten: how often a warning was wrong, of so many gaps.
    #[test]
    fn false_warnings_are_rare() {
        let mut random = fastrand::Rng::with_seed(11);
        let (mut gaps, mut wrong) = (0_u32, 0_u32);
        for _ in 0..60 {
            let mut history = History::default();
            let (mut at, mut beats, mut seen) = (0_u64, 0_u64, 0_u64);
            let base = random.u64(10..800);
            for _ in 0..2000 {
                let gap = base + random.u64(0..base) + if random.u8(0..50) == 0 { base * 8 } else { 0 };
                gaps += 1;
                if history.warns_after(TAU).is_some_and(|after| Duration::from_millis(gap) >= after) {
                    wrong += 1;
                }
                at += gap;
                beats += 1;
                if at - seen >= 1000 {
                    seen = at;
                    history.see(Tick(at * MS), beats);
                }
            }
        }
        assert!(wrong * 100_000 <= gaps, "{wrong} of {gaps}");
    }
}

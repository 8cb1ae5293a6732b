//! How long the classifier takes for one sentence: from its characters to its labels, on one thread.

use std::time::Instant;

use crate::infer::classifier::{Classifier, ModelError, Source};
use crate::infer::runtime::Provider;

/// Rounds over all sentences; the best of each sentence counts.
const ROUNDS: usize = 20;

/// The figures.
#[derive(Debug, Clone)]
pub struct Figures {
    /// Microseconds for one sentence, the median over the sentences.
    pub micros_p50: f64,
    /// The same, loading included, once.
    pub load_ms: f64,
    /// What ran it.
    pub provider: String,
}

/// Measures the model of `source` on `texts`.
///
/// # Errors
/// Why it does not run.
pub fn run(source: &Source, texts: &[String]) -> Result<Figures, ModelError> {
    let begun = Instant::now();
    let mut classifier = Classifier::load(source, Provider::Auto)?;
    let load_ms = begun.elapsed().as_secs_f64() * 1e3;
    let mut best = vec![f64::MAX; texts.len()];
    for _ in 0..ROUNDS {
        for (text, best) in texts.iter().zip(&mut best) {
            let begun = Instant::now();
            let labels = classifier.classify(&[text])?;
            *best = best.min(begun.elapsed().as_secs_f64() * 1e6);
            std::hint::black_box(labels);
        }
    }
    best.sort_by(f64::total_cmp);
    let micros_p50 = best.get(best.len() / 2).copied().unwrap_or_default();
    Ok(Figures { micros_p50, load_ms, provider: classifier.running().to_string() })
}

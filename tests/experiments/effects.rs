//! Effects: the checker against the definitions, on random histories.

use interlock_domain::effect::anomaly::{Event, History, Kind, Seen, Terms, Verdict, View};

use crate::{asked, asked_count};

#[path = "oracle.rs"]
mod oracle;

#[expect(clippy::print_stdout, reason = "an experiment prints what it measured")]
fn say(text: &str) {
    println!("{text}");
}

/// 100,000 random histories (or `INTERLOCK_EXPERIMENT_COUNT`), half of them logs of a runtime, each judged by the
/// checker and by brute force over all worlds.
#[test]
fn random_histories_against_the_definitions() {
    if !asked("effects-oracle") {
        return;
    }
    let count = asked_count(100_000);
    let (mut wrong, mut by_kind) = (Vec::new(), std::collections::BTreeMap::new());
    for seed in 0..count {
        let (events, terms) = oracle::random(&mut fastrand::Rng::with_seed(seed));
        for (kind, verdict) in oracle::verdicts(&events, &terms) {
            *by_kind.entry((kind, verdict)).or_insert(0_u64) += 1;
        }
        wrong.extend(oracle::differ(seed..seed + 1));
    }
    say(&format!("{count} histories, {} judged differently", wrong.len()));
    for ((kind, verdict), count) in by_kind {
        say(&format!("  {} {:<8} in {count}", kind.word(), verdict.word()));
    }
    assert!(wrong.is_empty(), "{}", wrong[0]);
}

//! 10,000 seeded runs with faults at every point of a call, on real tools and a real daemon (see `tests/faults`).

#[path = "../faults/mod.rs"]
pub(crate) mod world;

use std::time::Instant;

use crate::{asked, asked_count};

#[expect(clippy::print_stdout, reason = "an experiment prints what it measured")]
fn say(text: &str) {
    println!("{text}");
}

/// Daemons beside one another, lanes of each, and runs between two kills of a daemon.
const DAEMONS: usize = 4;
/// See [`DAEMONS`].
const LANES: usize = 8;
/// See [`DAEMONS`].
const RUNS_A_KILL: u64 = 20;

#[test]
fn faults_at_every_point() {
    if !asked("effects-faults") {
        return;
    }
    let (count, begun) = (asked_count(10_000), Instant::now());
    let (table, bad) = world::run(count, DAEMONS, LANES, RUNS_A_KILL);
    world::lines(&table).iter().for_each(|line| say(line));
    say(&format!(
        "{count} runs in {:.0} s, {} of them killed a daemon; {} had what their profile excludes",
        begun.elapsed().as_secs_f64(),
        count / RUNS_A_KILL,
        bad.len()
    ));
    assert!(bad.is_empty(), "{}", bad.join("\n"));
}

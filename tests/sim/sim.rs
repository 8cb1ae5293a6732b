//! The mediator in a seeded world: crashes between any two actions, late and repeated answers, changed policies, a slow
//! disk, hung tools; every third world with a frozen clock and no cancellations, because deadlines hide deadlocks.
//!
//! `INTERLOCK_SIM_SEEDS` sets how many worlds are lived through, `INTERLOCK_SIM_SEED` runs one and prints its breaches.
#![expect(
    clippy::expect_used,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test: what cannot be is a failure, and a mutant names only what it changes"
)]

mod checker;
mod doctor;
mod world;

use std::collections::BTreeSet;

use checker::Law;
use doctor::{Doctor, Mutant};
use world::{Shape, World};

/// As many as a debug build lives through in some 15 seconds on one core.
const SEEDS: u64 = 1500;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

#[test]
fn the_laws_hold_in_every_world() {
    let seeds: Vec<u64> = match number("INTERLOCK_SIM_SEED") {
        Some(seed) => vec![seed],
        None => (0..number("INTERLOCK_SIM_SEEDS").unwrap_or(SEEDS)).collect(),
    };
    let many = seeds.len() > 100;
    let mut met = BTreeSet::new();
    for seed in seeds {
        let mut world = World::new(Shape::of(seed), Doctor::new(Mutant::None));
        let broken = world.run();
        assert!(broken.is_empty(), "seed {seed}: {broken:#?}");
        met.extend(world.met);
    }
    // A simulation that never gets anywhere proves nothing.
    if many {
        let all = [
            "a composite wished",
            "a person was taken out",
            "answered",
            "cancelled",
            "commit failed",
            "crashed",
            "policy changed",
            "started",
            "stopped",
        ];
        assert_eq!(met, BTreeSet::from(all));
    }
}

/// The laws that a mutant breaks in the first worlds.
fn broken_by(mutant: Mutant) -> BTreeSet<Law> {
    let mut laws = BTreeSet::new();
    for seed in 0..60 {
        let mut world = World::new(Shape::of(seed), Doctor::new(mutant));
        laws.extend(world.run().iter().map(|(law, _)| *law));
    }
    laws
}

#[test]
fn each_mutant_is_caught_by_the_law_that_it_breaks() {
    let table: [(Mutant, &[Law]); 13] = [
        (Mutant::NoJournal, &[Law::Evidence]),
        (Mutant::NoBoard, &[Law::Lane, Law::Keys, Law::Barrier]),
        (Mutant::LostPassport, &[Law::Closure]),
        (Mutant::SettledTwice, &[Law::Closure]),
        (Mutant::NoBatchRule, &[Law::BatchRule]),
        (Mutant::StaleAnswer, &[Law::Question]),
        (Mutant::DeafGate, &[Law::Denied]),
        (Mutant::StalePolicy, &[Law::Epoch]),
        (Mutant::DeafToCancel, &[Law::Cancelled]),
        (Mutant::DeafToEmergency, &[Law::Superseded]),
        (Mutant::EarlyReply, &[Law::Told]),
        (Mutant::ReplyAsItComes, &[Law::Order]),
        (Mutant::GuessesDone, &[Law::Truth]),
    ];
    assert_eq!(broken_by(Mutant::None), BTreeSet::new());
    for (mutant, laws) in table {
        let found = broken_by(mutant);
        for law in laws {
            assert!(found.contains(law), "{mutant:?} breaks {law:?}, and only {found:?} was noticed");
        }
    }
}

//! A small seeded count of the runs with faults at every point (see `tests/faults`); the whole is the experiment
//! `effects-faults`.

#[path = "../faults/mod.rs"]
mod world;

#[test]
fn no_run_that_was_called_a_success_has_what_its_profile_excludes() {
    let (table, bad) = world::run(200, 1, 8, 40);
    assert!(bad.is_empty(), "{}", bad.join("\n"));
    // All kinds of tools were there, and a client that guesses does get what the profiles exclude.
    let guessed = table.iter().filter(|((_, profile), _)| profile.is_none());
    let found: u64 = guessed.flat_map(|(_, cell)| cell.found.values()).sum();
    assert!(found > 0 && table.len() > 20, "{}", world::lines(&table).join("\n"));
}

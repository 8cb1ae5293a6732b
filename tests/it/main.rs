//! One binary for all integration tests: it links once, which on two cores is most of the waiting.
//!
//! A test here uses the product as its users do, through bytes, files and the public interface. It binds port 0 on
//! loopback only, waits for events and never for time, and when something that it needs is not on the machine it
//! says so with [`skipped`] and returns: `cargo xtask test` lists those by name.
#![cfg(test)]
#![expect(clippy::wildcard_enum_match_arm, reason = "a test names what it expects, and everything else fails it")]

use std::path::PathBuf;

use skips::skipped;

mod agent;
mod causes;
mod clocks;
mod daemon;
mod effects;
mod evidence;
mod faults;
mod imports;
mod limits;
mod mcp;
mod modbus;
mod model;
mod outputs;
mod plant;
mod remedies;
mod sandbox;
mod skips;
mod supervision;
mod tools;
mod understanding;
mod unit_file;
mod watch;

/// The Python that has the independent clients (pymodbus, mcp), when `cargo xtask` has set it up.
fn python() -> Option<PathBuf> {
    let named = std::env::var_os("INTERLOCK_TEST_PYTHON").map(PathBuf::from);
    // A plain `cargo test` finds what an earlier `cargo xtask` left: `<target>/debug/deps/it-…` is this program.
    let beside = || Some(std::env::current_exe().ok()?.ancestors().nth(3)?.join("clients/bin/python"));
    named.or_else(beside).filter(|python| python.exists())
}

#[test]
fn no_file_of_this_folder_is_forgotten() {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/it");
    let main = include_str!("main.rs");
    let mut forgotten = Vec::new();
    for entry in std::fs::read_dir(here).expect("this folder is read") {
        let path = entry.expect("an entry of this folder").path();
        let is_module = path.extension().is_some_and(|e| e == "rs") || path.join("mod.rs").exists();
        let stem = path.file_stem().expect("a file has a name").to_string_lossy().into_owned();
        if is_module && stem != "main" && !main.lines().any(|line| line == format!("mod {stem};")) {
            forgotten.push(stem);
        }
    }
    assert!(forgotten.is_empty(), "tests/it/main.rs has no `mod` line for {forgotten:?}: their tests never run");
}

//! Clocks that somebody sets, and clocks that nobody may ask.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use interlock::engine::supervisor::{Finished, Settings, TaskSpec};
use interlock::sys::clock;
use interlock_domain::liveness::judge::Limits;
use interlock_domain::liveness::lifecycle::{Cause, Kind, State};
use serde_json::Value;

use crate::supervision::{World, settings};

const ROLE: &str = "INTERLOCK_TEST_CLOCK_ROLE";
const TEN_YEARS: i64 = 10 * 365 * 86_400;

/// Not a test: the process whose wall clock is set.
#[test]
#[expect(clippy::print_stdout, reason = "the other process speaks to this one")]
fn child_with_a_clock() {
    if std::env::var_os(ROLE).is_none() {
        return;
    }
    let offset = std::env::var("CLOCK_OFFSET").unwrap();
    let ms = Duration::from_millis(1);
    let world = World::new(Settings { limits: Limits { tau: ms * 600, scan: ms * 50, scans: 2 }, ..settings() });
    let hang = Arc::new(AtomicBool::new(false));
    for n in 0..20 {
        let hang = Arc::clone(&hang);
        world.spawn(TaskSpec::new(format!("w{n}"), ""), move |heart| {
            while heart.rest(ms * 20) {
                while n == 0 && hang.load(Ordering::Acquire) && !heart.should_stop() {
                    std::thread::park_timeout(ms * 1000);
                }
            }
            Finished::Stopped(Value::Null)
        });
    }
    let (mut told, mut qualities) = (Vec::new(), Vec::new());
    for seconds in [TEN_YEARS, -TEN_YEARS] {
        std::fs::write(&offset, seconds.to_string()).unwrap();
        loop {
            let notice = world.notices.recv_timeout(world.left()).unwrap();
            told.push(notice.clone());
            if notice.cause == Cause::ClockStep {
                break;
            }
        }
        qualities.push(clock::time_quality().name());
        // Long enough for a deadline in wall time to have passed for everybody.
        world.scans(20);
        told.extend(world.notices.try_iter());
    }
    let moves = told.iter().filter(|notice| notice.kind == Kind::Lifecycle && notice.cause != Cause::Spawned).count();
    let steps: Vec<&str> =
        told.iter().filter(|notice| notice.cause == Cause::ClockStep).map(|notice| notice.detail.as_str()).collect();
    assert!(told.is_sorted_by_key(|notice| notice.at), "{told:?}");
    println!("\nmoves {moves} steps {} qualities {qualities:?}", steps.len());
    println!("\nsteps {steps:?}");
    // A real hang is still found.
    hang.store(true, Ordering::Release);
    loop {
        let notice = world.notices.recv_timeout(world.left()).unwrap();
        if notice.to == Some(State::Zombie) {
            println!("\nfound {}", notice.key.unwrap().task);
            return;
        }
    }
}

#[test]
fn ten_years_forward_and_back_change_no_state_and_are_told_once_each() {
    let test = "ten_years_forward_and_back_change_no_state_and_are_told_once_each";
    let dir = tempfile::tempdir().unwrap();
    let (library, offset) = (dir.path().join("clock_offset.so"), dir.path().join("offset"));
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/clock_offset.c");
    let built = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(source).arg("-ldl").status();
    if !built.is_ok_and(|status| status.success()) {
        return crate::skipped(test, "no C compiler");
    }
    std::fs::write(&offset, "0").unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "clocks::child_with_a_clock", "--nocapture", "--test-threads=1"])
        .env(ROLE, "1")
        .env("LD_PRELOAD", &library)
        .env("CLOCK_OFFSET", &offset)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    // systemd-timesyncd's mark is what is left to ask, where it runs.
    let mark = std::path::Path::new("/run/systemd/timesync/synchronized").exists();
    let quality = if mark { "SYNCED" } else { "UNKNOWN" };
    // Ten years before now is before this product was made: then the clock was never set, whoever may be asked.
    let expected = format!("moves 0 steps 2 qualities [\"{quality}\", \"UNSYNCED\"]");
    assert!(said.contains(&expected), "{said}");
    assert!(said.contains("the wall clock was set from "), "{said}");
    assert!(said.contains("found t1"), "{said}");
}

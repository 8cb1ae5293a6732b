//! The limit of threads that the service manager gives: one more worker than that is refused and harms nobody.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use interlock::engine::supervisor::{Finished, Heart, TaskSpec};
use interlock_domain::liveness::lifecycle::State;
use serde_json::Value;

use crate::supervision::{PATIENCE, World, settings};

/// Set for the process that is limited: where its control group is.
const ROLE: &str = "INTERLOCK_TEST_PIDS_GROUP";
const MOST: usize = 64;

/// Not a test: the process that is given so many threads and asks for more.
#[test]
#[expect(clippy::print_stdout, reason = "the other process speaks to this one")]
fn child_with_few_threads() {
    let Some(group) = std::env::var_os(ROLE).map(PathBuf::from) else { return };
    fs::write(group.join("cgroup.procs"), std::process::id().to_string()).unwrap();
    fs::write(group.join("pids.max"), MOST.to_string()).unwrap();
    let world = World::new(settings());
    let rest = |heart: Heart| {
        while heart.rest(Duration::from_secs(3600)) {}
        Finished::Stopped(Value::Null)
    };
    let (mut living, mut refused, mut last) = (0, 0, String::new());
    for n in 0..100 {
        match world.supervisor.spawn(TaskSpec::new(format!("w{n}"), ""), rest).wait(PATIENCE).unwrap() {
            Ok(_) => living += 1,
            Err(why) => {
                refused += 1;
                last = why.to_string();
            }
        }
    }
    world.scans(5);
    let well = world.list().iter().filter(|row| row.state == State::Running).count();
    println!("\nliving {living} refused {refused} counted {}", world.supervisor.figures().spawn_refused);
    println!("\nwell {well} of {living}\n{last}");
}

fn group() -> Option<PathBuf> {
    // Version 1 with a tree of its own, or version 2.
    let parents = ["/sys/fs/cgroup/pids", "/sys/fs/cgroup"];
    let name = format!("interlock-test-{}", std::process::id());
    parents.iter().map(|parent| Path::new(parent).join(&name)).find(|group| {
        fs::create_dir(group).is_ok() && {
            let usable = group.join("pids.max").exists();
            if !usable {
                let _ = fs::remove_dir(group);
            }
            usable
        }
    })
}

#[test]
fn beyond_the_limit_of_the_service_a_worker_is_refused_with_the_limit_in_its_text() {
    let test = "beyond_the_limit_of_the_service_a_worker_is_refused_with_the_limit_in_its_text";
    let Some(group) = group() else {
        return crate::skipped(test, "no control group can be made here");
    };
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "limits::child_with_few_threads", "--nocapture", "--test-threads=1"])
        .env(ROLE, &group)
        .output()
        .unwrap();
    let _ = fs::remove_dir(&group);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    let number = |after: &str| -> usize {
        let rest = &said[said.find(after).unwrap_or_else(|| panic!("{after} in {said}")) + after.len()..];
        rest.split_whitespace().next().unwrap().parse().unwrap()
    };
    let (living, refused) = (number("living "), number("refused "));
    assert_eq!((living + refused, number("counted ")), (100, refused), "{said}");
    // The process has a few threads of its own.
    assert!(refused >= 36 && living >= MOST - 10, "{said}");
    assert_eq!(number("well "), living, "{said}");
    assert!(said.contains("SPAWN_REFUSED: no thread for w99: ") && said.contains("(os error 11)"), "{said}");
    assert!(said.contains(&format!("(pids.max of the service: {MOST})")), "{said}");
}

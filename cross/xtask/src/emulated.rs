//! `cargo xtask test --board NAME`: the tests that can run under emulation, built for the board and run.
//!
//! What cannot is in `cross/emulation.txt`, by name and with the reason; every test target of the tree is either run or
//! stands there, so that a new one cannot be forgotten. Nothing is judged by time: an emulator has none.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use serde_json::Value;

use crate::board::{self, Board};
use crate::steps::{self, Ended};
use crate::{Places, room};

/// What is passed over.
const LIST: &str = include_str!("../../emulation.txt");

/// What is run: a package, which of its targets, and the folder in which cargo would run it.
const RUN: [Suite; 4] = [
    Suite {
        name: "domain",
        package: "interlock-domain",
        cargo: &["--lib"],
        target: "interlock_domain",
        at: "src/domain",
    },
    Suite { name: "sim", package: "interlock-domain", cargo: &["--test", "sim"], target: "sim", at: "src/domain" },
    Suite { name: "lib", package: "interlock", cargo: &["--lib"], target: "interlock", at: "." },
    Suite {
        name: "slots",
        package: "interlock-slots",
        cargo: &["--lib"],
        target: "interlock_slots",
        at: "cross/slots",
    },
];

struct Suite {
    name: &'static str,
    package: &'static str,
    cargo: &'static [&'static str],
    target: &'static str,
    at: &'static str,
}

/// What is passed over, with its reasons.
#[derive(Debug, Default, PartialEq, Eq)]
struct Passed {
    targets: BTreeMap<String, String>,
    tests: BTreeMap<(String, String), String>,
}

impl Passed {
    fn parse(text: &str) -> Result<Passed, String> {
        let mut passed = Passed::default();
        for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
            let bad = || format!("cross/emulation.txt:{}: TARGET: why, or TARGET NAME: why", number + 1);
            let (what, why) = line.split_once(": ").ok_or_else(bad)?;
            let why = why.trim().to_owned();
            if why.is_empty() {
                return Err(bad());
            }
            match what.split_whitespace().collect::<Vec<_>>().as_slice() {
                [target] => passed.targets.insert((*target).to_owned(), why),
                [target, test] => passed.tests.insert(((*target).to_owned(), (*test).to_owned()), why),
                _ => return Err(bad()),
            };
        }
        Ok(passed)
    }

    /// The tests of a suite that are passed over.
    fn of<'p>(&'p self, suite: &str) -> impl Iterator<Item = (&'p str, &'p str)> {
        let suite = suite.to_owned();
        let of_suite = self.tests.iter().filter(move |((target, _), _)| *target == suite);
        of_suite.map(|((_, test), why)| (test.as_str(), why.as_str()))
    }

    /// Every target of the tree is run or stands in the list, and nothing else stands there.
    fn is_whole(&self, targets: &BTreeSet<String>) -> Result<(), String> {
        let run = |name: &str| RUN.iter().any(|suite| suite.name == name);
        if let Some(forgotten) = targets.iter().find(|target| !run(target) && !self.targets.contains_key(*target)) {
            return Err(format!("{forgotten} is neither run nor in cross/emulation.txt"));
        }
        if let Some(gone) = self.targets.keys().find(|target| !targets.contains(*target)) {
            return Err(format!("cross/emulation.txt names {gone}, which is no test target"));
        }
        match self.tests.keys().find(|(suite, _)| !run(suite)) {
            Some((suite, test)) => Err(format!("cross/emulation.txt names {test} of {suite}, which is not run")),
            None => Ok(()),
        }
    }
}

/// `test --board NAME [SUITE…]`.
pub(crate) fn test(places: &Places, arguments: &[String]) -> Result<ExitCode, String> {
    let (name, only) = arguments.split_at(arguments.len().min(2));
    let board = Board::read(&places.root, board::named(name)?)?;
    if let Some(unknown) = only.iter().find(|name| !RUN.iter().any(|suite| suite.name == **name)) {
        return Err(format!("no suite is called {unknown}\nhint: they are {}", RUN.map(|suite| suite.name).join(", ")));
    }
    let passed = Passed::parse(LIST)?;
    passed.is_whole(&steps::test_targets(&places.root)?)?;
    room::wanted(&board.place(places), room::EMULATED, "the tests of another board")?;
    let started = Instant::now();
    let mut ended = Vec::new();
    for suite in RUN.iter().filter(|suite| only.is_empty() || only.iter().any(|one| one == suite.name)) {
        println!("\n=== {}", suite.name);
        let before = Instant::now();
        let program = built(places, &board, suite)?;
        println!("built in {:.0} s", before.elapsed().as_secs_f64());
        let before = Instant::now();
        let ran = run(places, &board, suite, &program, &passed)?;
        ended.push(Ended { name: suite.name.to_owned(), passed: ran, took: before.elapsed() });
    }
    println!("\nnot run for {}, see cross/emulation.txt:", board.name);
    for (target, why) in &passed.targets {
        println!("  {target}: {why}");
    }
    for ((suite, test), why) in &passed.tests {
        println!("  {suite} {test}: {why}");
    }
    Ok(steps::summary(&ended, Path::new(""), started.elapsed()))
}

/// The program with a suite's tests.
fn built(places: &Places, board: &Board, suite: &Suite) -> Result<PathBuf, String> {
    let mut cargo =
        board::compiler(places, board, &["zigbuild", "--locked", "--message-format=json-render-diagnostics"])?;
    cargo.args(["--package", suite.package]).args(suite.cargo).args(["--profile", "test"]);
    // Nobody debugs under the emulator, and the disk of a builder is small.
    cargo.env("CARGO_PROFILE_TEST_DEBUG", "0").env("CARGO_PROFILE_DEV_DEBUG", "0");
    let output = cargo.stderr(Stdio::inherit()).stdin(Stdio::null()).output().map_err(|e| format!("cargo: {e}"))?;
    if !output.status.success() {
        return Err(format!("{}: not built: {}", suite.name, output.status));
    }
    let said = String::from_utf8_lossy(&output.stdout);
    program(&said, suite.target).ok_or_else(|| format!("cargo named no program with the tests of {}", suite.name))
}

/// The test program of a target, in what cargo says of what it made.
fn program(said: &str, target: &str) -> Option<PathBuf> {
    let artifacts = said.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut of_target = artifacts.filter(|one| one["target"]["name"] == target && one["profile"]["test"] == true);
    of_target.find_map(|one| one["executable"].as_str().map(PathBuf::from))
}

fn run(places: &Places, board: &Board, suite: &Suite, program: &Path, passed: &Passed) -> Result<bool, String> {
    let listed = command(places, board, suite, program).arg("--list").output().map_err(|e| format!("{e}"))?;
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let known: BTreeSet<&str> = listed.lines().filter_map(|line| line.strip_suffix(": test")).collect();
    if known.is_empty() {
        return Err(format!("{} lists no test under the emulator", program.display()));
    }
    let mut tests = command(places, board, suite, program);
    // A name means that test and not each that has it as a part.
    tests.arg("--exact");
    for (test, _) in passed.of(suite.name) {
        if !known.contains(test) {
            return Err(format!("cross/emulation.txt names {test} of {}, which has no such test", suite.name));
        }
        tests.args(["--skip", test]);
    }
    tests.status().map(|status| status.success()).map_err(|e| format!("{}: {e}", program.display()))
}

fn command(places: &Places, board: &Board, suite: &Suite, program: &Path) -> Command {
    let mut command = board.runs(program);
    command.current_dir(places.root.join(suite.at)).stdin(Stdio::null());
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_names_what_is_there_and_forgets_nothing() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("a root");
        let targets = steps::test_targets(root).expect("the test targets");
        let passed = Passed::parse(LIST).expect("the list");
        assert_eq!(passed.is_whole(&targets), Ok(()));
        let more: BTreeSet<String> = targets.iter().cloned().chain(["new".to_owned()]).collect();
        assert_eq!(passed.is_whole(&more), Err("new is neither run nor in cross/emulation.txt".to_owned()));
        let gone: BTreeSet<String> = targets.into_iter().filter(|target| target != "it").collect();
        assert_eq!(passed.is_whole(&gone), Err("cross/emulation.txt names it, which is no test target".to_owned()));
    }

    #[test]
    fn a_line_names_a_target_or_a_test_and_why() {
        let passed = Passed::parse("# so\n\nit: a\nlib sys::x: b: c\n").expect("two lines");
        assert_eq!(passed.targets.get("it").map(String::as_str), Some("a"));
        assert_eq!(passed.of("lib").collect::<Vec<_>>(), [("sys::x", "b: c")]);
        assert_eq!(passed.of("domain").count(), 0);
        for bad in ["it", "it:", "a b c: d", "it: "] {
            assert!(Passed::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn the_program_is_the_one_with_the_tests() {
        let said = "{\"reason\":\"compiler-artifact\",\"target\":{\"name\":\"a\"},\"profile\":{\"test\":false},\"executable\":\"/x\"}\n\
                    {\"reason\":\"compiler-artifact\",\"target\":{\"name\":\"a\"},\"profile\":{\"test\":true},\"executable\":\"/y\"}\n\
                    no json\n";
        assert_eq!(program(said, "a"), Some(PathBuf::from("/y")));
        assert_eq!(program(said, "b"), None);
    }
}

//! The steps of `cargo xtask test`, one after the other, each with its time and its verdict.
//!
//! A step that fails does not keep the others from running: one run tells everything that is wrong. What the tests
//! skipped is collected from a file that they append to (`INTERLOCK_TEST_SKIPS`), because the test runner hides what
//! a passing test prints.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use crate::{Places, conformance, image, machine, room, supply};

/// The packages of the workspace that may have tests of their own.
const PACKAGES: [&str; 4] = [".", "src/domain", "cross/xtask", "cross/slots"];

/// The steps that are not cargo's. What nobody here wrote, before and behind the daemon:
const CONFORMANCE: &str = "conformance";
/// What is built in, held against what may be:
const SUPPLY: &str = "supply";

struct Step {
    name: String,
    cargo: Vec<&'static str>,
    target: Option<String>,
    /// Which of the experiments is asked for: the others are too long for every run.
    experiment: Option<&'static str>,
}

pub(crate) struct Ended {
    pub(crate) name: String,
    pub(crate) passed: bool,
    pub(crate) took: Duration,
}

/// What takes too long for every run: each builds a release for its board and tries the image of it under emulation.
const LONG: [(&str, &[&str]); 2] =
    [("image-x86_64", &["--board", "x86_64", "--cuts", "100"]), ("image-arm64", &["--board", "generic-arm64"])];

/// The long tests, or those whose names are given.
pub(crate) fn long(places: &Places, only: &[String]) -> Result<ExitCode, String> {
    if let Some(unknown) = only.iter().find(|name| !LONG.iter().any(|(known, _)| known == name)) {
        let names: Vec<&str> = LONG.iter().map(|(name, _)| *name).collect();
        return Err(format!("no long test is called {unknown}\nhint: they are {}", names.join(", ")));
    }
    let started = Instant::now();
    let mut ended = Vec::new();
    for (name, arguments) in LONG.iter().filter(|(name, _)| only.is_empty() || only.iter().any(|one| one == name)) {
        println!("\n=== {name}");
        let before = Instant::now();
        let arguments: Vec<String> = arguments.iter().map(|word| (*word).to_owned()).collect();
        let passed = image::tried(places, &arguments).unwrap_or_else(|why| {
            eprintln!("error: {why}");
            false
        });
        ended.push(Ended { name: (*name).to_owned(), passed, took: before.elapsed() });
    }
    Ok(summary(&ended, Path::new(""), started.elapsed()))
}

/// Runs cargo in the work tree with this build's target directory; says whether it succeeded.
pub(crate) fn cargo(places: &Places, arguments: &[&str]) -> Result<bool, String> {
    let status = cargo_command(places).args(arguments).status();
    status.map(|status| status.success()).map_err(|e| format!("cargo {}: {e}", arguments.join(" ")))
}

/// The same as a command that is yet to run.
pub(crate) fn cargo_command_of(places: &Places, arguments: &[&str]) -> Command {
    let mut cargo = cargo_command(places);
    cargo.args(arguments);
    cargo
}

pub(crate) fn cargo_command(places: &Places) -> Command {
    // Cargo tells us which one it is, so that `cargo +TOOLCHAIN xtask` stays with its toolchain.
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(&places.root).env("CARGO_TARGET_DIR", &places.target).stdin(Stdio::null());
    cargo
}

/// All checks, or those whose names are given.
pub(crate) fn test(places: &Places, only: &[String]) -> Result<ExitCode, String> {
    let steps = all_steps(&places.root)?;
    let is_known =
        |name: &String| [CONFORMANCE, SUPPLY].contains(&name.as_str()) || steps.iter().any(|step| step.name == *name);
    if let Some(unknown) = only.iter().find(|name| !is_known(name)) {
        let names: Vec<&str> = steps.iter().map(|step| step.name.as_str()).chain([SUPPLY, CONFORMANCE]).collect();
        return Err(format!("no step is called {unknown}\nhint: the steps are {}", names.join(", ")));
    }
    room::wanted(&places.target, room::TESTS, "all tests")?;
    machine::for_building()?;
    let started = Instant::now();
    let mut ended = Vec::new();
    let python = match machine::for_testing(places) {
        Ok(python) => Some(python),
        Err(why) => {
            // The rest is still worth knowing; the verdict is red all the same.
            eprintln!("error: {why}");
            ended.push(Ended { name: "set-up".to_owned(), passed: false, took: started.elapsed() });
            None
        }
    };
    let skips = places.target.join("skipped-tests.txt");
    fs::write(&skips, "").map_err(|e| format!("{}: {e}", skips.display()))?;

    for step in steps.iter().filter(|step| only.is_empty() || only.contains(&step.name)) {
        println!("\n=== {}", step.name);
        let mut command = cargo_command(places);
        command.args(&step.cargo).args(&step.target).env("INTERLOCK_TEST_SKIPS", &skips);
        if let Some(python) = &python {
            command.env("INTERLOCK_TEST_PYTHON", python);
        }
        if let Some(experiment) = step.experiment {
            command.env("INTERLOCK_EXPERIMENT", experiment);
        }
        if step.name == "docs" {
            command.env("RUSTDOCFLAGS", "-D warnings");
        }
        let before = Instant::now();
        let status = command.status().map_err(|e| format!("cargo: {e}"))?;
        ended.push(Ended { name: step.name.clone(), passed: status.success(), took: before.elapsed() });
    }
    for name in [SUPPLY, CONFORMANCE].into_iter().filter(|name| only.is_empty() || only.iter().any(|one| one == name)) {
        println!("\n=== {name}");
        let before = Instant::now();
        let passed = match name {
            SUPPLY => supplied(places, &skips)?,
            _ => conforms(places, &skips)?,
        };
        ended.push(Ended { name: name.to_owned(), passed, took: before.elapsed() });
    }
    Ok(summary(&ended, &skips, started.elapsed()))
}

fn supplied(places: &Places, skips: &Path) -> Result<bool, String> {
    let tools = match supply::tools(places) {
        Ok(tools) => tools,
        Err(why) => {
            skip(skips, &format!("{SUPPLY}, all of it: {why}"))?;
            return Ok(true);
        }
    };
    Ok(supply::check(places, &tools).map_err(|why| eprintln!("error: {why}")).is_ok())
}

fn conforms(places: &Places, skips: &Path) -> Result<bool, String> {
    Ok(match conformance::parts(places, &[], Some(skips)) {
        Ok(conformance::Ended::Passed) => true,
        Ok(conformance::Ended::Failed) => false,
        Ok(conformance::Ended::NotFetched(why)) => {
            println!("{why}");
            skip(skips, &format!("{CONFORMANCE}, all of it: {why}"))?;
            true
        }
        Err(why) => {
            eprintln!("error: {why}");
            false
        }
    })
}

/// Adds a line to what was skipped; one line, whatever it says.
fn skip(skips: &Path, what: &str) -> Result<(), String> {
    let told = |e: std::io::Error| format!("{}: {e}", skips.display());
    let mut file = fs::OpenOptions::new().append(true).open(skips).map_err(told)?;
    writeln!(file, "{}", what.replace('\n', "; ")).map_err(told)
}

fn all_steps(root: &Path) -> Result<Vec<Step>, String> {
    let plain = |name: &str, cargo: &[&'static str]| Step {
        name: name.to_owned(),
        cargo: cargo.to_vec(),
        target: None,
        experiment: None,
    };
    let mut steps = vec![
        plain("format", &["fmt", "--all", "--", "--check"]),
        plain("lint", &["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"]),
        plain("docs", &["doc", "--workspace", "--no-deps", "--document-private-items", "--quiet"]),
        plain("build-tests", &["test", "--workspace", "--no-run", "--quiet"]),
        plain("unit", &["test", "--workspace", "--lib", "--bins", "--no-fail-fast"]),
    ];
    for target in test_targets(root)? {
        // The whole workspace each time: another selection of packages is another selection of features to build.
        let cargo = vec!["test", "--workspace", "--no-fail-fast", "--test"];
        steps.push(Step { name: target.clone(), cargo, target: Some(target), experiment: None });
    }
    // 100 of the 1,000 cuts of the long run: what most often breaks here is a change of the order of writes.
    let cuts =
        ["test", "--workspace", "--test", "experiments", "--", "--exact", "power::power_cuts_on_ext4", "--nocapture"];
    steps.push(Step { experiment: Some("evidence-power-cuts"), ..plain("power-cuts", &cuts) });
    steps.push(plain("doc-tests", &["test", "--workspace", "--doc"]));
    Ok(steps)
}

/// Found on the disk and in the manifests, so that a new `tests/NAME.rs`, `tests/NAME/main.rs` or `[[test]]` cannot be
/// forgotten here.
pub(crate) fn test_targets(root: &Path) -> Result<BTreeSet<String>, String> {
    let mut targets = BTreeSet::new();
    for package in PACKAGES {
        let manifest = root.join(package).join("Cargo.toml");
        let text = fs::read_to_string(&manifest).map_err(|e| format!("{}: {e}", manifest.display()))?;
        targets.extend(declared_tests(&text));
        let Ok(entries) = fs::read_dir(root.join(package).join("tests")) else { continue };
        for entry in entries {
            let path = entry.map_err(|e| format!("{package}/tests: {e}"))?.path();
            let is_target = path.extension().is_some_and(|e| e == "rs") || path.join("main.rs").exists();
            if let Some(stem) = path.file_stem().filter(|_| is_target) {
                targets.insert(stem.to_string_lossy().into_owned());
            }
        }
    }
    Ok(targets)
}

/// The names of the `[[test]]` tables of a manifest.
fn declared_tests(manifest: &str) -> Vec<String> {
    let mut in_test = false;
    let mut names = Vec::new();
    for line in manifest.lines().map(str::trim) {
        if line.starts_with('[') {
            in_test = line == "[[test]]";
        } else if let Some(name) = line.strip_prefix("name").filter(|_| in_test) {
            names.extend(name.trim_start().strip_prefix('=').map(|name| name.trim().trim_matches('"').to_owned()));
        }
    }
    names
}

pub(crate) fn summary(ended: &[Ended], skips: &Path, took: Duration) -> ExitCode {
    println!("\n=== summary");
    for step in ended {
        let verdict = if step.passed { "passed" } else { "FAILED" };
        println!("{verdict}  {:>6.1} s  {}", step.took.as_secs_f64(), step.name);
    }
    let skipped = fs::read_to_string(skips).unwrap_or_default();
    let skipped: BTreeSet<&str> = skipped.lines().collect();
    for line in &skipped {
        println!("skipped            {line}");
    }
    let failed = ended.iter().filter(|step| !step.passed).count();
    println!("{} steps, {failed} failed, {} tests skipped, {:.1} s", ended.len(), skipped.len(), took.as_secs_f64());
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_that_only_the_manifest_names_is_found() {
        let manifest = "[package]\nname = \"a\"\n[[test]]\nname = \"sim\"\npath = \"x\"\n[[bin]]\nname = \"b\"\n";
        assert_eq!(declared_tests(manifest), ["sim"]);
    }
}

//! Sets a fresh machine up, builds, runs and tests: `cargo xtask run`, `cargo xtask test`.
//!
//! Little beside std: this is the first thing that is compiled on a machine that has nothing yet. It prints each thing that it
//! is about to change on the machine, changes nothing that is already there, and needs no network when all is there.
//! It must never turn something that is missing into a green result: what a test skipped is listed at the end, by
//! name and with the reason.

mod board;
mod conformance;
mod emulated;
mod image;
mod machine;
mod models;
mod package;
mod reproduce;
mod room;
mod runtime;
mod steps;
mod supply;

use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Exit codes as the `interlock` command line uses them.
const USAGE: u8 = 64;

const HELP: &str = "\
cargo xtask run [ARGUMENTS…]   set the machine up, build a release, start `interlock run ARGUMENTS…`
cargo xtask test [NAME…]       set the machine up, then all checks; with names, only the steps that are called so
cargo xtask test --long [NAME…]  what takes an hour or more: images of boards under emulation
cargo xtask test --board NAME [SUITE…]  the tests that can run under emulation, built for a board
cargo xtask conformance [PART…]  MCP's official suites and clients of others before the daemon, servers of others
                               behind it; needs npm; a step of `test`
cargo xtask models [FOLDER]    make the optional larger model (a sentence encoder, 70 MB) with its linear head
cargo xtask build --board NAME a release for a board of cross/boards, against its oldest C library
cargo xtask image --board NAME [--binary FILE] [--site FOLDER]
                               the raw disk that a box boots from, and the slot file that updates one; as root
cargo xtask image update --board NAME
                               only the slot file
cargo xtask image trial --board NAME [start|cuts|control|update|faults…] [--cuts N] [--as-made]
                               that image as a box under emulation
cargo xtask package --board NAME [--binary FILE]
                               a .deb and an .rpm of that release, or of a program that is there already
cargo xtask package-trial --board NAME [--binary FILE]
                               both packages installed, upgraded, removed and purged in a Debian of their own; lintian
cargo xtask supply [--accept]  licences, sources and doubles of crates, and which hold unsafe code; a step of `test`
cargo xtask reproduce --board NAME [--cheap]
                               builds what is committed twice, in other places, and compares; --cheap: unoptimized
cargo xtask setup              only set the machine up, for building and for testing";

/// Where the tree and its build products lie.
pub(crate) struct Places {
    /// The root of the work tree.
    root: PathBuf,
    /// Cargo's target directory of this very build.
    target: PathBuf,
}

impl Places {
    fn find() -> Result<Places, String> {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = here.ancestors().nth(2).ok_or("the work tree is not where it was when this was built")?;
        // `<target>/debug/xtask`: asking our own path is right for each way in which a target directory can be set.
        let exe = env::current_exe().map_err(|e| format!("path of this program: {e}"))?;
        let target = exe.ancestors().nth(2).ok_or("this program does not lie in a target directory")?;
        Ok(Places { root: root.to_path_buf(), target: target.to_path_buf() })
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let (verb, rest) = match arguments.split_first() {
        Some((verb, rest)) => (verb.as_str(), rest),
        None => ("", &[][..]),
    };
    let ended = Places::find().and_then(|places| match verb {
        "run" => run(&places, rest),
        "test" if rest.first().is_some_and(|word| word == "--long") => steps::long(&places, &rest[1..]),
        "test" if rest.first().is_some_and(|word| word == "--board") => emulated::test(&places, rest),
        "test" => steps::test(&places, rest),
        "conformance" => conformance::run(&places, rest),
        "models" => models::run(&places, rest),
        "build" => board::named(rest).and_then(|name| board::build(&places, name)),
        "image" => image::run(&places, rest),
        "package" => package::package(&places, rest),
        "package-trial" => package::trial(&places, rest),
        "supply" => supply::run(&places, rest),
        "reproduce" => reproduce::run(&places, rest),
        "setup" => machine::for_building().and_then(|()| machine::for_testing(&places).map(|_| ExitCode::SUCCESS)),
        "help" | "--help" | "-h" => {
            println!("{HELP}");
            Ok(ExitCode::SUCCESS)
        }
        _ => {
            eprintln!("{HELP}");
            Ok(ExitCode::from(USAGE))
        }
    });
    ended.unwrap_or_else(|why| {
        eprintln!("error: {why}");
        ExitCode::FAILURE
    })
}

fn run(places: &Places, arguments: &[String]) -> Result<ExitCode, String> {
    use std::os::unix::process::CommandExt;
    room::wanted(&places.target, room::RELEASE, "a release")?;
    machine::for_building()?;
    machine::for_running(places);
    let built = steps::cargo(places, &["build", "--release", "--bin", "interlock"])?;
    if !built {
        return Ok(ExitCode::FAILURE);
    }
    let binary = places.target.join("release/interlock");
    println!("{} runs; in a second terminal: {} say 启动二号泵", binary.display(), binary.display());
    // Replaces this process, so that Ctrl-C and SIGTERM reach the daemon and nobody else.
    let why = std::process::Command::new(&binary).arg("run").args(arguments).exec();
    Err(format!("{}: {why}", binary.display()))
}

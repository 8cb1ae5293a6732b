//! `cargo xtask reproduce --board NAME`: whether the same source gives the same bytes, wherever it is built.
//!
//! What is committed is unpacked and built twice, in folders of other names and lengths, each with a target directory of
//! its own. It says nothing about another compiler: that one is part of what is reproduced.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::board::{self, Board};
use crate::machine::{must, said};
use crate::{Places, machine};

/// Where the two are built, below the target directory.
const PLACES: [&str; 2] = ["reproduce/a", "reproduce/in/a-folder-with-a-longer-name"];

/// For trying the way: a sixth of the time, and other code.
const CHEAP: [&str; 6] = [
    "--config",
    "profile.release.lto=false",
    "--config",
    "profile.release.opt-level=0",
    "--config",
    "profile.release.codegen-units=16",
];

/// The verb.
pub(crate) fn run(places: &Places, arguments: &[String]) -> Result<ExitCode, String> {
    let (named, profile) = match arguments {
        [rest @ .., flag] if flag == "--cheap" => (rest, &CHEAP[..]),
        all => (all, &[][..]),
    };
    let board = Board::read(&places.root, board::named(named)?)?;
    // Fetched once, and not into what is compared.
    machine::cargo_tools(places, &["cargo-auditable"])?;
    let mut hashes = Vec::new();
    for place in PLACES {
        let there = unpacked(places, &places.target.join(place))?;
        let binary = board::made_with(&there, &board, profile)?;
        let hash = said("sha256sum", &[&binary.to_string_lossy()])?;
        let hash = hash.split(' ').next().unwrap_or_default().to_owned();
        println!("{hash}  {}", binary.display());
        hashes.push((hash, binary));
    }
    let [(first, one), (second, other)] = &hashes[..] else { return Err("two builds are wanted".to_owned()) };
    if first == second {
        println!("the two are the same, byte for byte");
        return Ok(ExitCode::SUCCESS);
    }
    Err(format!("the two differ\nhint: cmp -l {} {} | wc -l; diffoscope says where", one.display(), other.display()))
}

/// What is committed, in a folder that was not there.
fn unpacked(places: &Places, place: &Path) -> Result<Places, String> {
    let _ = fs::remove_dir_all(place);
    let root = place.join("tree");
    fs::create_dir_all(&root).map_err(|e| format!("{}: {e}", root.display()))?;
    let archive = place.join("tree.tar");
    let mut git = Command::new("git");
    git.arg("-C").arg(&places.root).args(["archive", "--format=tar", "HEAD", "-o"]).arg(&archive);
    must(&mut git, "it builds what is committed")?;
    must(Command::new("tar").arg("-xf").arg(&archive).arg("-C").arg(&root), "tar is part of Debian")?;
    let target = place.join("target");
    fs::create_dir_all(&target).map_err(|e| format!("{}: {e}", target.display()))?;
    for tools in ["cargo-tools", "board-tools", "clients"] {
        linked(&places.target.join(tools), &target.join(tools))?;
    }
    Ok(Places { root, target })
}

/// Tools are the same for both; what is not there is made at the place of the link's target.
fn linked(from: &PathBuf, to: &Path) -> Result<(), String> {
    fs::create_dir_all(from).map_err(|e| format!("{}: {e}", from.display()))?;
    std::os::unix::fs::symlink(from, to).map_err(|e| format!("{}: {e}", to.display()))
}

//! `cargo xtask image`: the raw disk that a box boots from, and the slot file that updates one.
//!
//! The disk has a loader with two root slots that are read-only, a partition for what a site changes, and one for
//! Interlock's state. All content comes from Debian's packages, from `cross/image/` and from this tree; nothing is
//! written outside the target directory. The files of Interlock itself are those of its packages (`content`).

mod chance;
mod content;
mod cuts;
mod disk;
mod faults;
mod plug;
mod root;
mod trial;
mod vm;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::Places;
use crate::board::{self, Board};
use crate::machine::{self, must};
use crate::room;

/// The largest compressed disk, in bytes: it goes over slow lines and onto small sticks.
const IMAGE_MAX: u64 = 400 << 20;

/// What was asked for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Asked {
    board: String,
    /// A binary that is there already; without one it is built.
    binary: Option<PathBuf>,
    /// What the label says; without one, what the binary says.
    version: Option<String>,
    /// Files that lie over `/etc` from the first start on.
    site: Option<PathBuf>,
    /// The key that updates are signed with.
    key: Option<PathBuf>,
    /// The parts of a trial; without one, all of them.
    parts: Vec<String>,
    /// A trial of the slot file that is there.
    as_made: bool,
    /// How often the plug is pulled.
    cuts: Option<u32>,
}

impl Asked {
    fn parse(arguments: &[String]) -> Result<Asked, String> {
        let mut asked = Asked::default();
        let mut words = arguments.iter();
        while let Some(flag) = words.next() {
            if trial::PARTS.contains(&flag.as_str()) {
                asked.parts.push(flag.clone());
                continue;
            }
            if flag == "--as-made" {
                asked.as_made = true;
                continue;
            }
            let value = words.next().ok_or(format!("{flag}: a value is wanted"))?;
            match flag.as_str() {
                "--board" => asked.board.clone_from(value),
                "--binary" => asked.binary = Some(value.into()),
                "--version" => asked.version = Some(value.clone()),
                "--site" => asked.site = Some(value.into()),
                "--cuts" => {
                    asked.cuts = Some(value.parse().map_err(|_| format!("--cuts {value}: a number is wanted"))?)
                }
                "--key" => asked.key = Some(value.into()),
                _ => {
                    return Err(format!(
                        "{flag}: no such option\nhint: --board NAME [--binary FILE] [--version TEXT] [--site FOLDER] [--key FILE]"
                    ));
                }
            }
        }
        if asked.board.is_empty() {
            return Err("which board?\nhint: --board NAME".to_owned());
        }
        Ok(asked)
    }
}

/// What an image is made from and where it goes.
#[derive(Clone)]
struct Recipe<'a> {
    places: &'a Places,
    board: &'a Board,
    /// The daemon.
    binary: PathBuf,
    /// The program of the two slots, for the board.
    slots: PathBuf,
    /// The same program for this machine: it seals.
    seals: PathBuf,
    version: String,
    key: PathBuf,
    /// Where everything is made.
    place: PathBuf,
}

impl Recipe<'_> {
    /// A file of `cross/image`.
    fn source(&self, name: &str) -> PathBuf {
        self.places.root.join("cross/image").join(name)
    }

    fn slot_file(&self) -> PathBuf {
        self.place.join(format!("interlock-{}-{}.slot", self.board.name, self.version))
    }
}

/// `image --board NAME` makes disk and slot file; `image update --board NAME` only the slot file.
pub(crate) fn run(places: &Places, arguments: &[String]) -> Result<ExitCode, String> {
    match arguments.split_first() {
        Some((word, rest)) if word == "update" => {
            let asked = Asked::parse(rest)?;
            let board = Board::read(&places.root, &asked.board)?;
            let slot = slot(&recipe(places, &board, &asked)?)?;
            println!("{}: on the box, `interlock-slots update FILE`, then `systemctl reboot`", slot.display());
        }
        Some((word, rest)) if word == "trial" => {
            return Ok(if tried(places, rest)? { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        _ => {
            let asked = Asked::parse(arguments)?;
            let board = Board::read(&places.root, &asked.board)?;
            let recipe = recipe(places, &board, &asked)?;
            let disk = made(&recipe, asked.site.as_deref())?;
            compressed(&disk)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn recipe<'a>(places: &'a Places, board: &'a Board, asked: &Asked) -> Result<Recipe<'a>, String> {
    let place = board.place(places).join("image");
    room::wanted(&place, room::IMAGE, "an image")?;
    machine::for_image(board)?;
    fs::create_dir_all(&place).map_err(|e| format!("{}: {e}", place.display()))?;
    let binary = match &asked.binary {
        Some(binary) => binary.clone(),
        None => board::made(places, board)?,
    };
    content::fits(board, &binary)?;
    let slots = board::compiled(places, board, &["--package", "interlock-slots"])?.with_file_name("interlock-slots");
    must(
        &mut crate::steps::cargo_command_of(places, &["build", "--quiet", "--package", "interlock-slots"]),
        "see above",
    )?;
    let seals = places.target.join("debug/interlock-slots");
    let said = board.runs(&binary).arg("--version").output().map_err(|e| format!("{}: {e}", binary.display()))?;
    let said = String::from_utf8_lossy(&said.stdout).split_whitespace().last().unwrap_or("unknown").to_owned();
    let version = asked.version.clone().unwrap_or(said);
    let key = asked.key.clone().unwrap_or_else(|| places.target.join("update.key"));
    Ok(Recipe { places, board, binary, slots, seals, version, key, place })
}

/// The slot file, sealed.
fn slot(recipe: &Recipe<'_>) -> Result<PathBuf, String> {
    let image = recipe.slot_file();
    root::made(recipe, &image)?;
    sealed(recipe, &image)?;
    Ok(image)
}

/// Label and signature; says the public key.
fn sealed(recipe: &Recipe<'_>, image: &Path) -> Result<String, String> {
    let output = Command::new(&recipe.seals)
        .arg("seal")
        .arg(image)
        .args([
            "--board",
            &recipe.board.name,
            "--machine",
            recipe.board.machine(),
            "--version",
            &recipe.version,
            "--key",
        ])
        .arg(&recipe.key)
        .output()
        .map_err(|e| format!("{}: {e}", recipe.seals.display()))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn made(recipe: &Recipe<'_>, site: Option<&Path>) -> Result<PathBuf, String> {
    let slot = slot(recipe)?;
    let disk = recipe.place.join(format!("interlock-{}-{}.img", recipe.board.name, recipe.version));
    disk::made(recipe, &slot, site, &disk)?;
    println!("{}: write it to the box's disk, or start it: see README.md", disk.display());
    Ok(disk)
}

/// How often the plug is pulled when nobody says how often.
const CUTS: u32 = 20;

/// `image trial --board NAME [PART…] [--cuts N] [--as-made]`: makes an image, or takes the one that is there, and tries it.
pub(crate) fn tried(places: &Places, arguments: &[String]) -> Result<bool, String> {
    let asked = Asked::parse(arguments)?;
    let board = Board::read(&places.root, &asked.board)?;
    machine::for_trial(&board)?;
    let recipe = recipe(places, &board, &asked)?;
    if !asked.as_made || !recipe.slot_file().exists() {
        slot(&recipe)?;
    }
    let parts: Vec<&str> = match asked.parts.as_slice() {
        [] => trial::PARTS.to_vec(),
        some => some.iter().map(String::as_str).collect(),
    };
    let (mut passed, mut failed) = (0, 0);
    for name in parts {
        println!("=== {name}");
        let begun = std::time::Instant::now();
        let tried = trial::Trial::fresh(&recipe, name);
        match tried.and_then(|trial| trial::part(&trial, name, asked.cuts.unwrap_or(CUTS))) {
            Ok(()) => passed += 1,
            Err(why) => {
                failed += 1;
                eprintln!("error: {name}: {why}");
            }
        }
        println!("  {:.0} s", begun.elapsed().as_secs_f64());
    }
    println!("{passed} passed, {failed} failed");
    Ok(failed == 0)
}

fn compressed(disk: &Path) -> Result<(), String> {
    let packed = disk.with_extension("img.zst");
    let mut zstd = Command::new("zstd");
    zstd.args(["--quiet", "--force", "--threads=0", "-9", "--long=30"]).arg(disk).arg("-o").arg(&packed);
    must(&mut zstd, "see zstd's words above")?;
    let length = fs::metadata(&packed).map_err(|e| format!("{}: {e}", packed.display()))?.len();
    println!("{}: {:.1} MiB", packed.display(), length as f64 / f64::from(1 << 20));
    if length > IMAGE_MAX {
        return Err(format!("larger than the {} MiB that an image may have", IMAGE_MAX >> 20));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(words: &str) -> Result<Asked, String> {
        Asked::parse(&words.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn what_is_asked_is_read_or_refused() {
        let whole = asked("--board x86_64 --binary /b --version 2").expect("an image");
        assert_eq!((whole.board.as_str(), whole.version.as_deref()), ("x86_64", Some("2")));
        for (words, said) in [("", "which board"), ("--board", "a value"), ("--board x --flat 1", "no such option")] {
            let why = asked(words).expect_err(words);
            assert!(why.contains(said), "{why}");
        }
    }
}

//! `cargo xtask supply`: what is built in, held against what may be.
//!
//! Licences, sources, bans and doubled crates are `cargo deny`'s (cross/deny.toml). Which crates hold unsafe code is our own
//! look: a crate that is not on the list (cross/unsafe-crates.txt) is a decision of a person, and so is one that has
//! left it. A word in a comment or a string counts as well: too many on the list is better than one too few.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::machine::must;
use crate::package::notices::{self, Part};
use crate::{Places, machine};

/// The targets that are shipped.
const TARGETS: [&str; 2] = ["aarch64-unknown-linux-gnu", "x86_64-unknown-linux-gnu"];

/// The list, from the root.
const LIST: &str = "cross/unsafe-crates.txt";

/// Folders of a crate that are never built into us.
const NOT_BUILT: [&str; 4] = ["tests", "benches", "examples", "fuzz"];

/// The verb; with `--accept`, the list becomes what is there.
pub(crate) fn run(places: &Places, arguments: &[String]) -> Result<ExitCode, String> {
    match arguments {
        [] => check(places, &tools(places)?)?,
        [flag] if flag == "--accept" => {
            let (list, found) = (places.root.join(LIST), with_unsafe(places)?);
            fs::write(&list, written(&found)).map_err(|e| format!("{}: {e}", list.display()))?;
            println!("{LIST}: {} crates", found.len());
        }
        _ => return Err("supply takes nothing but --accept".to_owned()),
    }
    Ok(ExitCode::SUCCESS)
}

/// Where `cargo deny` is; it is fetched once.
pub(crate) fn tools(places: &Places) -> Result<PathBuf, String> {
    machine::cargo_tools(places, &["cargo-deny"])
}

/// All of it.
pub(crate) fn check(places: &Places, tools: &Path) -> Result<(), String> {
    let mut deny = Command::new(tools.join("cargo-deny"));
    deny.current_dir(&places.root).env("CARGO_TARGET_DIR", &places.target);
    deny.args(["--config", "cross/deny.toml", "--locked", "check", "licenses", "bans", "sources"]);
    must(&mut deny, "mend it, or list it with its reason in cross/deny.toml")?;
    let list = places.root.join(LIST);
    let text = fs::read_to_string(&list).map_err(|e| format!("{}: {e}", list.display()))?;
    let wrong = differences(&listed(&text), &with_unsafe(places)?);
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(format!("{}\nhint: look at them, then `cargo xtask supply --accept`", wrong.join("\n"))),
    }
}

/// The names of the crates of others with unsafe code, over all targets.
fn with_unsafe(places: &Places) -> Result<BTreeSet<String>, String> {
    let mut names = BTreeSet::new();
    for target in TARGETS {
        for Part { name, folder, ours, .. } in notices::parts(places, target)? {
            if !ours && !names.contains(&name) && any_unsafe(&folder)? {
                names.insert(name);
            }
        }
    }
    Ok(names)
}

/// Whether a source file below has the word.
fn any_unsafe(folder: &Path) -> Result<bool, String> {
    let told = |e: std::io::Error| format!("{}: {e}", folder.display());
    for entry in fs::read_dir(folder).map_err(told)? {
        let path = entry.map_err(told)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let found = match () {
            () if path.is_dir() => !NOT_BUILT.contains(&name.as_str()) && any_unsafe(&path)?,
            () if name.ends_with(".rs") => has_unsafe(&fs::read_to_string(&path).unwrap_or_default()),
            () => false,
        };
        if found {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The keyword, outside of a line comment and not as a part of another word (`unsafe_code`).
fn has_unsafe(source: &str) -> bool {
    let code = source.lines().map(|line| line.split("//").next().unwrap_or_default());
    let mut words = code.flat_map(|line| line.split(|c: char| !c.is_alphanumeric() && c != '_'));
    words.any(|word| word == "unsafe")
}

fn listed(text: &str) -> BTreeSet<String> {
    text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).map(str::to_owned).collect()
}

fn written(names: &BTreeSet<String>) -> String {
    let head = "# Crates of others in the program that hold unsafe code, on any board. Kept by `cargo xtask supply`, which fails on a\n\
                # new one: look at what it does and why it needs it, then `cargo xtask supply --accept`.\n";
    names.iter().fold(head.to_owned(), |text, name| text + name + "\n")
}

fn differences(listed: &BTreeSet<String>, found: &BTreeSet<String>) -> Vec<String> {
    let new = found.difference(listed).map(|name| format!("{name} holds unsafe code and is not on the list"));
    let gone =
        listed.difference(found).map(|name| format!("{name} is on the list and not in the program, or holds none"));
    new.chain(gone).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keyword_is_told_from_its_lints_and_comments() {
        for source in ["unsafe { f() }", "pub unsafe fn f();", "a;\n  unsafe impl Send for A {}"] {
            assert!(has_unsafe(source), "{source}");
        }
        for source in ["#![forbid(unsafe_code)]", "// unsafe { f() }", "let not_unsafe = 1;"] {
            assert!(!has_unsafe(source), "{source}");
        }
    }

    #[test]
    fn a_new_crate_and_one_that_left_are_both_told() {
        let names = |text: &str| listed(&text.replace(' ', "\n"));
        assert_eq!(differences(&names("a b"), &names("b a")), Vec::<String>::new());
        assert_eq!(
            differences(&names("a gone"), &names("a new")),
            [
                "new holds unsafe code and is not on the list",
                "gone is on the list and not in the program, or holds none"
            ]
        );
        assert_eq!(listed(&written(&names("a b"))), names("a b"));
    }
}

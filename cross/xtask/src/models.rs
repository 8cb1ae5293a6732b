//! The optional larger model: a sentence encoder with a linear head, made by its kept script.
//!
//! It is too large for the tree (70 MB), so it is fetched by hash and put into the target directory, or where the person
//! says. Nothing uses it unless a configuration names its manifest.

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use crate::Places;
use crate::machine;

/// Makes the model; `rest` may name the folder.
pub(crate) fn run(places: &Places, rest: &[String]) -> Result<ExitCode, String> {
    let out = match rest {
        [] => places.target.join("models/sentences"),
        [folder] => PathBuf::from(folder),
        [_, _, ..] => return Err("one folder, or none for the target directory".to_owned()),
    };
    machine::for_training()?;
    let mut script = Command::new(places.root.join("models/train/sentences/run"));
    script.arg(&out).env("CARGO_TARGET_DIR", &places.target);
    machine::must(&mut script, "it needs a package index; without the model the small one in the binary is used")?;
    let manifest = out.join("manifest.toml");
    println!("made; try it with `interlock match --model {0} --explain`, use it with", manifest.display());
    println!("[model]\nmanifest = \"{}\"", manifest.display());
    Ok(ExitCode::SUCCESS)
}

//! `interlock knowledge`: puts manuals into the library, takes them out, looks something up. The daemon answers from the
//! same file and needs no restart.

use std::path::{Path, PathBuf};

use serde_json::json;

use super::args::{KnowledgeFrom, KnowledgeVerb};
use super::error::{CliError, Exit};
use super::out::Out;
use super::places;
use crate::boot::model;
use crate::infer::knowledge::{self, KnowledgeError, Library};

pub(super) fn knowledge(verb: &KnowledgeVerb, out: &Out) -> Result<(), CliError> {
    match verb {
        KnowledgeVerb::Add { paths, from } => add(paths, from, out),
        KnowledgeVerb::Remove { names, from } => remove(names, from, out),
        KnowledgeVerb::List { from } => list(from, out),
        KnowledgeVerb::Search { text, most, from } => search(&text.join(" "), *most, from, out),
    }
}

fn file(from: &KnowledgeFrom) -> Result<PathBuf, CliError> {
    let state = places::state(from.state.as_deref());
    let state =
        state.ok_or_else(|| CliError::new(Exit::Usage, "there is no state directory").hint("name it: --state DIR"))?;
    Ok(state.join(Library::FILE))
}

fn open(from: &KnowledgeFrom) -> Result<Library, CliError> {
    let path = file(from)?;
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)
            .map_err(|error| CliError::new(Exit::CannotWrite, format!("{}: {error}", folder.display())))?;
    }
    Library::open(&path).map_err(failed)
}

fn failed(error: KnowledgeError) -> CliError {
    let shown = error.to_string();
    match error {
        KnowledgeError::Store { path, .. } => {
            let hint = format!("run it as the user of the daemon, who owns {}", path.display());
            CliError::new(Exit::CannotWrite, shown).hint(hint)
        }
        KnowledgeError::Layout { .. } => CliError::new(Exit::CannotWrite, shown).hint("a newer program made it"),
        KnowledgeError::Read(knowledge::ReadError::Io { .. }) => CliError::new(Exit::NoInput, shown),
        KnowledgeError::Read(_) | KnowledgeError::TooMany { .. } => CliError::new(Exit::Data, shown),
    }
}

/// The name of a source: its path as the daemon would see it, so that the same file is the same source from everywhere.
fn name_of(path: &Path) -> String {
    path.canonicalize().unwrap_or_else(|_| path.to_owned()).display().to_string()
}

fn add(paths: &[PathBuf], from: &KnowledgeFrom, out: &Out) -> Result<(), CliError> {
    // All of them are read before anything is put in.
    let mut read = Vec::new();
    for path in paths {
        read.push((name_of(path), knowledge::read(path).map_err(|error| failed(error.into()))?));
    }
    let mut library = open(from)?;
    // A daemon with another state directory answers out of another library.
    out.note(&format!("the library is {}", file(from)?.display()));
    for (name, passages) in read {
        let count = library.put(&name, &passages).map_err(failed)?;
        if from.json {
            out.json(&json!({ "source": name, "passages": count }))?;
        } else {
            out.line(&format!("{name}: {count} passages"))?;
        }
    }
    Ok(())
}

fn remove(names: &[String], from: &KnowledgeFrom, out: &Out) -> Result<(), CliError> {
    let mut library = open(from)?;
    let mut missing = Vec::new();
    for name in names {
        let by_path = name_of(Path::new(name));
        let gone = library.remove(name).map_err(failed)? || library.remove(&by_path).map_err(failed)?;
        if !gone {
            missing.push(name.as_str());
        } else if from.json {
            out.json(&json!({ "source": name, "removed": true }))?;
        } else {
            out.line(&format!("{name} is out"))?;
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    let shown = format!("there is no source {}", missing.join(", "));
    Err(CliError::new(Exit::NotSo, shown).hint("`interlock knowledge list` shows the names"))
}

fn list(from: &KnowledgeFrom, out: &Out) -> Result<(), CliError> {
    let library = Library::open_to_read(&file(from)?).map_err(failed)?;
    for source in library.map_or(Ok(Vec::new()), |library| library.sources()).map_err(failed)? {
        if from.json {
            out.json(&json!({ "source": source.name, "passages": source.passages }))?;
        } else {
            out.line(&format!("{:>6}  {}", source.passages, source.name))?;
        }
    }
    Ok(())
}

fn search(text: &str, most: usize, from: &KnowledgeFrom, out: &Out) -> Result<(), CliError> {
    let library = match Library::open_to_read(&file(from)?).map_err(failed)? {
        Some(library) => Some(library),
        None => model::shipped_library(),
    };
    let found = library.map_or(Ok(Vec::new()), |library| library.nearest(text, most)).map_err(failed)?;
    for passage in &found {
        if from.json {
            out.json(&json!({
                "id": passage.id, "title": passage.title, "text": passage.text, "source": passage.source,
                "score": (f64::from(passage.score) * 1000.0).round() / 1000.0,
            }))?;
        } else {
            out.line(&format!("{} {} ({})", passage.id, passage.title, passage.source))?;
            out.line(&format!("    {}", passage.text.replace('\n', "\n    ")))?;
        }
    }
    if found.is_empty() { Err(CliError::new(Exit::NotSo, "no passage has anything of that")) } else { Ok(()) }
}

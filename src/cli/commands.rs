//! `interlock commands`: what there is to say, command sets of others, and how well sentences are understood.

use std::collections::BTreeMap;
use std::io::BufRead;
use std::path::{Path, PathBuf};

use interlock_domain::command::cascade::{Stages, Step, Walk};
use interlock_domain::command::definition::Commands;
use interlock_domain::command::resolution::Outcome;
use interlock_domain::command::understanding::Understanding;
use serde_json::{Value, json};

use super::args::{CommandsListArgs, CommandsTestArgs, CommandsVerb, ImportArgs};
use super::error::{CliError, Exit};
use super::match_verb::{self, MatchError};
use super::out::Out;
use crate::config::{self, ConfigError, hassil, table, written};

/// Intent files of one import: the sentences of one language come in about forty.
const FILES_MAX: usize = 1000;

pub(super) fn commands(verb: &CommandsVerb, out: &Out) -> Result<(), CliError> {
    match verb {
        CommandsVerb::List(args) => list(args, out),
        CommandsVerb::Import(args) => import(args, out),
        CommandsVerb::Test(args) => test(args, out),
    }
}

fn set(commands: Option<&Path>, state: Option<&Path>) -> Result<Understanding, CliError> {
    let (set, words, costs) = match_verb::parts(commands).map_err(failed)?;
    let learned = match_verb::learned(state).map_err(failed)?.beside(&set);
    Ok(Understanding::compile_learned(set, &words, &costs, &learned))
}

fn failed(error: MatchError) -> CliError {
    let exit = match error.exit_code() {
        66 => Exit::NoInput,
        64 => Exit::Usage,
        73 => Exit::CannotWrite,
        _ => Exit::Config,
    };
    let hint = if let MatchError::Config(error) = &error { error.hint.clone() } else { None };
    CliError { exit, message: error.to_string(), hint }
}

fn list(args: &CommandsListArgs, out: &Out) -> Result<(), CliError> {
    let (set, _, _) = match_verb::parts(args.commands.as_deref()).map_err(failed)?;
    let learned = match_verb::learned(args.state.as_deref()).map_err(failed)?;
    if args.hotwords {
        let (names, terms) = hotwords(&set, &learned.examples);
        return if args.json {
            // The names that Wyoming's `transcribe` gives to its hints.
            out.json(&json!({ "transcript_names": names, "transcript_terms": terms }))
        } else {
            names.iter().chain(&terms).try_for_each(|word| out.line(word))
        };
    }
    for command in set.list.iter().chain(&learned.commands) {
        let slots: Vec<&str> = command.slots.iter().map(|slot| slot.name.as_str()).collect();
        if args.json {
            out.json(&json!({
                "command": command.id, "text": command.text, "aliases": command.aliases, "risk": command.risk.word(),
                "protective": command.protective, "slots": slots, "category": command.category,
                "bound": !command.bind.is_empty(),
            }))?;
        } else {
            let slots = if slots.is_empty() { String::new() } else { format!(" {{{}}}", slots.join(", ")) };
            out.headed(&command.id, &format!("{} [{}]{slots}", command.text, command.risk.word()))?;
        }
    }
    Ok(())
}

/// What a recogniser should expect to hear: names of places, and whole phrases. Each once, in the order of the set.
fn hotwords(set: &Commands, learned: &[(String, String)]) -> (Vec<String>, Vec<String>) {
    let spoken = |text: &String| !text.is_empty() && text.chars().all(|ch| ('\u{4e00}'..='\u{9fff}').contains(&ch));
    let mut names: Vec<String> = set.zones.clone();
    let listed = set.list.iter().flat_map(|command| &command.slots).flat_map(|slot| &slot.values);
    names.extend(listed.map(|listed| listed.said.clone()));
    let mut terms: Vec<String> =
        set.list.iter().flat_map(|command| std::iter::once(&command.text).chain(&command.aliases)).cloned().collect();
    // What was misheard is no word to expect; what people say is.
    terms.extend(learned.iter().map(|(text, _)| text.clone()));
    for words in [&mut names, &mut terms] {
        let mut seen = std::collections::BTreeSet::new();
        words.retain(|word| spoken(word) && seen.insert(word.clone()));
    }
    (names, terms)
}

fn import(args: &ImportArgs, out: &Out) -> Result<(), CliError> {
    let mut lists: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for given in &args.list {
        let (name, values) = given.split_once('=').filter(|(name, _)| !name.trim().is_empty()).ok_or_else(|| {
            CliError::new(Exit::Usage, format!("--list {given:?} is no name=value"))
                .hint("--list area=厨房,客厅 --list name=吊扇, or --list name=@FILE with a line a value")
        })?;
        let values = match values.strip_prefix('@') {
            Some(file) => config::read(Path::new(file))?,
            None => values.to_owned(),
        };
        let all = lists.entry(name.trim().to_owned()).or_default();
        let parts = values.split(['\n', ',', '，', '、', '|']).map(str::trim);
        all.extend(parts.filter(|value| !value.is_empty()).map(str::to_owned));
    }
    let files = files(&args.path)?;
    let yaml = |path: &PathBuf| path.extension().is_some_and(|end| end == "yaml" || end == "yml");
    let (commands, remarks) = if files.iter().all(yaml) {
        let sources = files
            .iter()
            .map(|path| Ok(hassil::Source { path: path.clone(), text: config::read(path)? }))
            .collect::<Result<Vec<_>, ConfigError>>()?;
        let imported = hassil::import(&sources, &lists)?;
        (imported.commands, imported.remarks)
    } else if let [file] = files.as_slice() {
        (table::read(file, &config::read(file)?)?, Vec::new())
    } else {
        return Err(CliError::new(Exit::Usage, format!("{} holds no intent files", args.path.display()))
            .hint("a folder of .yaml files, one .yaml file, or one table (.csv, .tsv)"));
    };
    if commands.list.is_empty() {
        return Err(CliError::new(Exit::Data, format!("{} holds no commands", args.path.display()))
            .hint("an intent file has `intents:`; a table has the columns id, text and risk"));
    }
    let mut head = vec![format!("{} commands, imported from {}", commands.list.len(), args.path.display())];
    head.extend(remarks.iter().cloned());
    let text = written::toml(&commands, &head);
    // What cannot be read back would be found out on the plant.
    config::commands::read(args.out.as_deref().unwrap_or(Path::new("(imported)")), &text)?;
    for remark in &remarks {
        out.note(remark);
    }
    match &args.out {
        Some(path) => {
            std::fs::write(path, &text)
                .map_err(|error| CliError::new(Exit::CannotWrite, format!("{}: {error}", path.display())))?;
            out.line(&format!("{}: {} commands", path.display(), commands.list.len()))
        }
        None => out.line(text.trim_end()),
    }
}

/// The file itself, or the intent files of a folder, in the order of their names.
fn files(path: &Path) -> Result<Vec<PathBuf>, CliError> {
    let missing = |error: std::io::Error| CliError::new(Exit::NoInput, format!("{}: {error}", path.display()));
    if !std::fs::metadata(path).map_err(missing)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path).map_err(missing)? {
        let path = entry.map_err(missing)?.path();
        if path.is_file() && path.extension().is_some_and(|end| end == "yaml" || end == "yml") {
            files.push(path);
        }
        if files.len() > FILES_MAX {
            return Err(CliError::new(Exit::Data, format!("{}: more than {FILES_MAX} files", path_of(&files))));
        }
    }
    files.sort();
    if files.is_empty() {
        return Err(CliError::new(Exit::NoInput, format!("{} holds no .yaml files", path.display())));
    }
    Ok(files)
}

fn path_of(files: &[PathBuf]) -> String {
    files.first().and_then(|file| file.parent()).map(|folder| folder.display().to_string()).unwrap_or_default()
}

/// How a sentence of a test went.
fn test(args: &CommandsTestArgs, out: &Out) -> Result<(), CliError> {
    let understanding = set(args.commands.as_deref(), args.state.as_deref())?;
    let file = std::fs::File::open(&args.file)
        .map_err(|error| CliError::new(Exit::NoInput, format!("{}: {error}", args.file.display())))?;
    let mut input = std::io::BufReader::new(file);
    let (mut right, mut asked, mut wrong, mut missed, mut bad) = (0_u64, 0_u64, 0_u64, 0_u64, 0_u64);
    let mut line = Vec::new();
    for number in 1_u64.. {
        line.clear();
        let read = match_verb::bounded_line(&mut input as &mut dyn BufRead, &mut line)
            .map_err(|error| CliError::new(Exit::NoInput, format!("{}: {error}", args.file.display())))?;
        if read == 0 {
            break;
        }
        let Ok(row) = serde_json::from_slice::<Value>(&line) else {
            if !line.trim_ascii().is_empty() {
                bad += 1;
                out.json(&json!({ "line": number, "error": "not JSON" }))?;
            }
            continue;
        };
        let Some(query) = row["query"].as_str() else {
            bad += 1;
            out.json(&json!({ "line": number, "error": "query is missing" }))?;
            continue;
        };
        let expected = row["expected_command"].as_str().or(row["expected_intent"].as_str());
        let found = match Walk::new(&understanding, query, Stages::PURE).next() {
            Step::Done(resolution) => resolution.outcome,
            Step::Classify(_) | Step::Retrieve(_) => Outcome::Knowledge,
        };
        let (meant, executed): (Option<String>, bool) = match found {
            Outcome::Command(one) => (Some(one.command), true),
            Outcome::Incomplete { understood, .. } => (Some(understood.command), false),
            Outcome::Sequence(several) => (several.into_iter().next().map(|one| one.command), true),
            Outcome::Knowledge | Outcome::Ambiguous | Outcome::Rejected(_) => (None, false),
        };
        let verdict = match (expected, meant.as_deref()) {
            (Some(wanted), Some(found)) if wanted == found => "right",
            (None, None) => "right",
            (None, Some(_)) if !executed => "asked",
            (_, Some(_)) if executed => "wrong",
            (Some(_) | None, Some(_)) => "asked",
            (Some(_), None) => "missed",
        };
        match verdict {
            "right" => right += 1,
            "asked" => asked += 1,
            "wrong" => wrong += 1,
            _ => missed += 1,
        }
        if verdict != "right" {
            out.json(
                &json!({ "line": number, "query": query, "expected": expected, "found": meant, "verdict": verdict }),
            )?;
        }
    }
    out.json(&json!({ "right": right, "asked": asked, "missed": missed, "wrong": wrong, "bad_lines": bad }))?;
    match (bad, asked + wrong + missed) {
        (0, 0) => Ok(()),
        (0, _) => Err(CliError::silent(Exit::NotSo)),
        (_, _) => Err(CliError::silent(Exit::Data)),
    }
}

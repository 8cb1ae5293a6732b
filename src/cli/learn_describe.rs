//! `interlock learn describe`: tool descriptions and skills against what they describe, and how they could be mended.
//!
//! Nothing is written and nobody is told anything else by it: a repair is a line of `learn propose`, and becomes what
//! agents are told when a person has approved it.

use std::collections::BTreeSet;
use std::io::BufRead;
use std::path::{Path, PathBuf};

use interlock_domain::learn::describe::{self, Described};
use interlock_domain::learn::retold::{Repair, Subject};
use interlock_domain::learn::skill::{self, Skill};
use serde_json::{Value, json};

use super::error::{CliError, Exit};
use super::match_verb;
use super::out::Out;
use crate::config;
use crate::record::retold;

/// Files of one skill that are looked at.
const FILES_MAX: usize = 2000;

/// Takes a proposal to the daemon and gives its answer.
pub(super) type Ask<'a> = &'a dyn Fn(Value) -> Result<Value, CliError>;

/// Checks what the files hold, or standard input without any: tools of `tools/list` as JSON, SKILL.md as it is. With
/// `propose`, what can be mended is proposed.
pub(super) fn describe(files: &[PathBuf], propose: Option<Ask<'_>>, out: &Out) -> Result<(), CliError> {
    let (mut any, mut bad) = (false, false);
    let mut tools = BTreeSet::new();
    let mut answer = |mut value: Value| {
        any |= value["faults"].as_array().is_some_and(|faults| !faults.is_empty());
        if let Some(ask) = propose.filter(|_| !value["proposal"].is_null()) {
            value["proposed"] = ask(value["proposal"].clone())?;
        }
        out.json(&value)
    };
    if files.is_empty() {
        let mut input = std::io::stdin().lock();
        let mut line = Vec::new();
        for number in 1_u64.. {
            line.clear();
            let read = match_verb::bounded_line(&mut input as &mut dyn BufRead, &mut line);
            if read.map_err(|error| CliError::new(Exit::NoInput, format!("standard input: {error}")))? == 0 {
                break;
            }
            if line.trim_ascii().is_empty() {
                continue;
            }
            match serde_json::from_slice::<Value>(&line)
                .map_err(|error| format!("not JSON: {error}"))
                .and_then(|v| listed(&v))
            {
                Ok(all) => all.iter().try_for_each(|tool| answer(told(tool)))?,
                Err(error) => {
                    bad = true;
                    out.json(&json!({ "line": number, "error": error }))?;
                }
            }
        }
    }
    for file in files.iter().filter(|file| !is_skill(file)) {
        let text = config::read(file)?;
        let value = serde_json::from_str::<Value>(&text).map_err(|error| format!("not JSON: {error}"));
        let all = value.and_then(|value| listed(&value));
        let all = all.map_err(|error| CliError::new(Exit::Data, format!("{}: {error}", file.display())))?;
        tools.extend(all.iter().map(|tool| tool.name.clone()));
        all.iter().try_for_each(|tool| answer(told(tool)))?;
    }
    for file in files.iter().filter(|file| is_skill(file)) {
        let skill = read_skill(file, &tools)?;
        let faults: Vec<String> = skill::faults(&skill).iter().map(ToString::to_string).collect();
        let repaired = if faults.is_empty() { None } else { skill::repaired(&skill) };
        let name = skill.folder.clone();
        let proposal = Repair::of(Subject::Skill(skill)).map(|repair| retold::repair(&repair));
        answer(json!({ "skill": name, "faults": faults, "repaired": repaired, "proposal": proposal }))?;
    }
    match (bad, any) {
        (true, _) => Err(CliError::silent(Exit::Data)),
        (false, true) => Err(CliError::silent(Exit::NotSo)),
        (false, false) => Ok(()),
    }
}

fn is_skill(file: &Path) -> bool {
    file.extension().is_some_and(|end| end == "md")
}

fn told(tool: &Described) -> Value {
    let faults: Vec<String> = describe::faults(tool).iter().map(ToString::to_string).collect();
    let repaired = if faults.is_empty() { None } else { describe::repaired(tool) };
    let proposal = Repair::of(Subject::Tool(tool.clone())).map(|repair| retold::repair(&repair));
    json!({ "tool": tool.name, "faults": faults, "repaired": repaired, "proposal": proposal })
}

/// One tool, a list of them, or the answer to `tools/list`.
fn listed(value: &Value) -> Result<Vec<Described>, String> {
    match value {
        Value::Array(all) => all.iter().map(tool).collect(),
        Value::Object(fields) => match fields.get("tools").or(value.pointer("/result/tools")) {
            Some(Value::Array(all)) => all.iter().map(tool).collect(),
            Some(_) => Err("tools is no list".to_owned()),
            None => Ok(vec![tool(value)?]),
        },
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Err("not a tool".to_owned()),
    }
}

fn tool(value: &Value) -> Result<Described, String> {
    retold::read_tool(value).map_err(|error| error.to_string())
}

fn read_skill(file: &Path, tools: &BTreeSet<String>) -> Result<Skill, CliError> {
    let text = config::read(file)?;
    let whole =
        file.canonicalize().map_err(|error| CliError::new(Exit::NoInput, format!("{}: {error}", file.display())))?;
    let folder = whole.parent().unwrap_or(Path::new("/"));
    let mut files = BTreeSet::new();
    let mut open = vec![folder.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(&directory).into_iter().flatten().flatten() {
            let path = entry.path();
            // A link may lead out of the folder, or around in it.
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                open.push(path);
            } else if let Ok(inside) = path.strip_prefix(folder) {
                files.insert(inside.to_string_lossy().into_owned());
            }
            if files.len() + open.len() > FILES_MAX {
                return Err(CliError::new(Exit::Data, format!("{}: more than {FILES_MAX} files", folder.display())));
            }
        }
    }
    let name = folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    Ok(Skill { folder: name, text, files, tools: tools.clone() })
}

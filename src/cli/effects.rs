//! `interlock effects`: which anomalies a history has, by the very code that watches the daemon's own workflows; and what
//! the tools of the configured MCP servers say about theirs.

use std::collections::BTreeMap;
use std::path::Path;

use interlock_domain::effect::anomaly::Malformed;
use interlock_domain::effect::chronicle::Chronicle;
use interlock_domain::id::Seq;
use serde_json::{Value, json};

use super::args::{EffectsFrom, EffectsVerb, Lang};
use super::client::Client;
use super::error::{CliError, Exit};
use super::json_lines;
use super::out::Out;
use super::trace;
use crate::config;
use crate::record::census::Census;
use crate::record::effects;
use crate::record::ledger::{self, Reader};
use crate::store::read::{self, Query, ROWS_MAX};

/// The longest history that is taken, in bytes: some 300,000 events.
const HISTORY_LEN_MAX: u64 = 16 << 20;

pub(super) fn effects(
    verb: &EffectsVerb,
    client: impl FnOnce() -> Result<Client, CliError>,
    out: &Out,
) -> Result<(), CliError> {
    match verb {
        EffectsVerb::Check(from) if from.run.is_none() && !from.all => check(),
        EffectsVerb::Check(from) => {
            let (id, chronicle) = of_log(from)?;
            let found = chronicle.check();
            out.json(&ledger::told(&id, &found))?;
            if found.is_empty() { Ok(()) } else { Err(CliError::silent(Exit::NotSo)) }
        }
        EffectsVerb::History(from) => {
            let (id, chronicle) = of_log(from)?;
            out.json(&chronicle.written(&id))
        }
        EffectsVerb::Census { tools, json } => {
            let servers = match tools {
                Some(file) => of_file(file)?,
                None => of_daemon(client()?)?,
            };
            let census = Census::of(&servers);
            if *json {
                return out.json(&census.to_json());
            }
            out.line(census.page(matches!(out.lang(), Lang::Zh)).trim_end())
        }
    }
}

fn check() -> Result<(), CliError> {
    let mut found_any = false;
    let answer = |text: &str| {
        let line = effects::read(text).map_err(|error| error.to_string())?;
        let found = line.history.check(&line.terms);
        found_any |= !found.is_empty();
        Ok(effects::told(&line, &found))
    };
    let (input, output) = (&mut std::io::stdin().lock(), &mut std::io::stdout().lock());
    let good = json_lines::texts(input, output, HISTORY_LEN_MAX, answer)?;
    match (good, found_any) {
        (false, _) => Err(CliError::silent(Exit::Data)),
        (true, true) => Err(CliError::silent(Exit::NotSo)),
        (true, false) => Ok(()),
    }
}

/// The most effects that are read from a log at once: about a gigabyte of rows. `--run` reads less.
const ROWS_TOTAL_MAX: usize = 2_000_000;

/// The history of a run, or of all that the log has.
fn of_log(from: &EffectsFrom) -> Result<(String, Chronicle), CliError> {
    let state = trace::state_of(from.state.as_deref())?;
    let run = match from.run.as_deref() {
        None => None,
        Some(name) => Some(trace::run_of(&state, name)?),
    };
    let id = run.map_or_else(|| "all".to_owned(), |run| run.to_string());
    let mut reader = Reader::default();
    let bad = |error: Malformed| CliError::new(Exit::Data, format!("the log in {}: {error}", state.display()));
    let (mut after, mut rows, mut any) = (Seq(0), 0, false);
    loop {
        let query = Query { run, after: Some(after), limit: Some(ROWS_MAX), ..Query::default() };
        let page = read::query(&state, &query).map_err(trace::store)?;
        let Some(newest) = page.last().map(|row| row.seq) else { break };
        (after, rows, any) = (newest, rows + page.len(), true);
        page.iter().try_for_each(|row| reader.take(row)).map_err(bad)?;
        if page.len() < ROWS_MAX {
            break;
        }
        if rows >= ROWS_TOTAL_MAX {
            return Err(CliError::new(Exit::Data, format!("the log has more than {ROWS_TOTAL_MAX} rows"))
                .hint("name one run with --run"));
        }
    }
    if !any && run.is_some() {
        return Err(CliError::new(Exit::NotSo, format!("the log in {} has no run {id}", state.display()))
            .hint("interlock evidence query --kind run_opened lists the runs"));
    }
    Ok((id, reader.end().map_err(bad)?))
}

fn of_daemon(client: Client) -> Result<BTreeMap<String, Vec<Value>>, CliError> {
    let mut servers: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    client.each("mcp.definitions", json!({}), |row| {
        let server = row["server"].as_str().unwrap_or_default().to_owned();
        servers.entry(server).or_default().push(row["tool"].clone());
        Ok(())
    })?;
    Ok(servers)
}

fn of_file(file: &Path) -> Result<BTreeMap<String, Vec<Value>>, CliError> {
    let text = config::read(file)?;
    let mut servers: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty()) {
        let wrong = |fact: String| CliError::new(Exit::Data, format!("{}:{number}: {fact}", file.display()));
        let value: Value = serde_json::from_str(line).map_err(|error| wrong(format!("not JSON: {error}")))?;
        let (Some(server), Some(tools)) = (value["server"].as_str(), value["tools"].as_array()) else {
            return Err(wrong("it has no server or no tools".to_owned()));
        };
        servers.entry(server.to_owned()).or_default().extend(tools.iter().cloned());
    }
    Ok(servers)
}

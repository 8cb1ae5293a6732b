//! `interlock evidence`: the log, from the daemon or from a directory.

use std::path::{Path, PathBuf};

use interlock_domain::id::Seq;
use serde_json::{Value, json};

use super::args::{EvidenceFrom, EvidenceVerb, ExportFormat};
use super::client::Client;
use super::error::{CliError, Exit};
use super::out::{Out, shown};
use super::places;
use crate::store::error::StoreError;
use crate::store::export::{ExportError, Format, export};
use crate::store::head;
use crate::store::read::{self, Query};
use crate::store::verify::{Elsewhere, Verdict, verify_against};

/// A file of checkpoints that is longer was not written by us.
const CHECKPOINTS_LEN_MAX: u64 = 16 << 20;

type Connect<'a> = dyn FnOnce() -> Result<Client, CliError> + 'a;

pub(super) fn evidence(
    verb: &EvidenceVerb,
    connect: impl FnOnce() -> Result<Client, CliError>,
    out: &Out,
) -> Result<(), CliError> {
    let connect: Box<Connect<'_>> = Box::new(connect);
    match verb {
        EvidenceVerb::Tail { rows, from } => {
            let query = Query { limit: Some(*rows), ..Query::default() };
            list(from, query, None, json!({ "limit": rows }), connect, out)
        }
        EvidenceVerb::Query { kind, run, call, task, text, since, until, limit, from } => {
            if let (Some(since), Some(until)) = (since, until)
                && since > until
            {
                let message = format!("--since {since} is after --until {until}");
                return Err(CliError::new(Exit::Usage, message));
            }
            let query = Query {
                after: since.map(|seq| Seq(seq.saturating_sub(1))),
                kind: kind.clone(),
                run: parsed(run.as_deref())?,
                call: parsed(call.as_deref())?,
                task: parsed(task.as_deref())?,
                text: text.clone(),
                limit: Some(*limit),
                ..Query::default()
            };
            let request = json!({
                "kind": kind, "run": run, "call": call, "task": task, "text": text,
                "since": since, "until": until, "limit": limit,
            });
            list(from, query, *until, request, connect, out)
        }
        EvidenceVerb::Show { seq, from } => {
            let row = match &from.state {
                Some(state) => read::show(state, Seq(*seq)).map_err(store)?.map(|row| row.to_json()),
                None => Some(connect()?.ask("evidence.show", json!({ "seq": seq }))?),
            };
            let row = row.ok_or_else(|| CliError::new(Exit::NotSo, format!("there is no row {seq}")))?;
            if from.json { out.json(&row) } else { whole(&row, out) }
        }
        EvidenceVerb::Verify { file, checkpoints, head, from } => {
            let elsewhere = Elsewhere {
                checkpoints: checkpoints.as_deref().map(kept_checkpoints).transpose()?.unwrap_or_default(),
                heads: head.as_deref().map(kept_heads).transpose()?.unwrap_or_default(),
            };
            check(file.as_deref(), &elsewhere, from, out)
        }
        EvidenceVerb::Export { format, since, state } => {
            let state = state_of(state.as_deref())?;
            let query = Query { after: since.map(|seq| Seq(seq.saturating_sub(1))), ..Query::default() };
            let format = match format {
                ExportFormat::Jsonl => Format::JsonLines,
                ExportFormat::Csv => Format::Csv,
            };
            match export(&state, &query, format, &mut std::io::stdout().lock()) {
                Ok(_) => Ok(()),
                Err(ExportError::Log(error)) => Err(store(error)),
                Err(ExportError::Output(error)) => Err(error.into()),
            }
        }
        EvidenceVerb::Stats { from } => {
            let stats = match &from.state {
                Some(state) => read::stats(state).map_err(store)?.to_json(),
                None => connect()?.ask("evidence.stats", json!({}))?,
            };
            if from.json {
                return out.json(&stats);
            }
            for key in ["rows", "first", "last", "first_time", "last_time", "segments", "bytes", "wal_bytes"] {
                out.line(&format!("{key:<10} {}", shown(&stats, key)))?;
            }
            for (kind, count) in stats["kinds"].as_object().into_iter().flatten() {
                out.line(&format!("  {kind:<18} {count}"))?;
            }
            Ok(())
        }
    }
}

fn parsed<T: std::str::FromStr>(text: Option<&str>) -> Result<Option<T>, CliError>
where
    T::Err: std::fmt::Display,
{
    text.map(str::parse).transpose().map_err(|error| CliError::new(Exit::Usage, format!("{error}")))
}

fn list(
    from: &EvidenceFrom,
    query: Query,
    until: Option<u64>,
    request: Value,
    connect: Box<Connect<'_>>,
    out: &Out,
) -> Result<(), CliError> {
    let print = |row: Value| if from.json { out.json(&row) } else { line(&row, out) };
    match &from.state {
        None => connect()?.each("evidence.query", request, print),
        Some(state) => {
            let rows = read::query(state, &query).map_err(store)?;
            rows.iter()
                .filter(|row| until.is_none_or(|until| row.seq.0 <= until))
                .try_for_each(|row| print(row.to_json()))
        }
    }
}

/// The state directory that is named, or the usual one.
fn state_of(named: Option<&Path>) -> Result<PathBuf, CliError> {
    places::state(named).ok_or_else(|| {
        CliError::new(Exit::Usage, "no state directory is named, and there is no home directory")
            .hint("name it with --state DIR")
    })
}

fn check(file: Option<&Path>, elsewhere: &Elsewhere, from: &EvidenceFrom, out: &Out) -> Result<(), CliError> {
    let path: PathBuf = match file {
        Some(file) => file.to_owned(),
        None => state_of(from.state.as_deref())?,
    };
    let found = verify_against(&path, elsewhere).map_err(store)?;
    let value = found.to_json();
    if from.json {
        out.json(&value)?;
    } else {
        out.headed(found.verdict.as_str(), &format!("{} rows in {}", found.rows, path.display()))?;
        for key in ["first_bad", "lost", "anchored_to"] {
            out.line(&format!("  {key:<12} {}", shown(&value, key)))?;
        }
        for note in &found.notes {
            out.line(&format!("  {note}"))?;
        }
    }
    match found.verdict {
        Verdict::Intact => Ok(()),
        Verdict::Altered | Verdict::TailLost | Verdict::Unanchored => Err(CliError::silent(Exit::NotSo)),
    }
}

/// The text of checkpoints that were carried off. A file without one holds nothing against the log, and must not look as
/// if it had.
fn kept_checkpoints(file: &Path) -> Result<String, CliError> {
    let text = kept(file)?;
    if text.lines().any(|line| line.starts_with("interlock/evidence/")) {
        return Ok(text);
    }
    Err(CliError::new(Exit::Data, format!("{} holds no checkpoint of an evidence log", file.display()))
        .hint("it is a copy of <state>/evidence/checkpoints"))
}

/// The same for heads.
fn kept_heads(file: &Path) -> Result<String, CliError> {
    let text = kept(file)?;
    if head::is_in(&text) {
        return Ok(text);
    }
    Err(CliError::new(Exit::Data, format!("{} holds no head of an evidence log", file.display()))
        .hint("it is what a broker keeps on TOPIC/head: mosquitto_sub -t TOPIC/head -C 1 > FILE"))
}

fn kept(file: &Path) -> Result<String, CliError> {
    use std::io::Read;
    let unread = |error: std::io::Error| {
        let missing = error.kind() == std::io::ErrorKind::NotFound;
        CliError::new(if missing { Exit::NoInput } else { Exit::Data }, format!("{}: {error}", file.display()))
    };
    let data = |fact: &str| CliError::new(Exit::Data, format!("{} {fact}", file.display()));
    if !std::fs::metadata(file).map_err(unread)?.is_file() {
        return Err(data("is not a plain file"));
    }
    let mut bytes = Vec::new();
    std::fs::File::open(file).map_err(unread)?.take(CHECKPOINTS_LEN_MAX).read_to_end(&mut bytes).map_err(unread)?;
    String::from_utf8(bytes).map_err(|_| data("is not text"))
}

fn store(error: StoreError) -> CliError {
    let missing = matches!(&error, StoreError::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound);
    let exit = match (missing, error.is_bad_data()) {
        (true, _) => Exit::NoInput,
        (false, true) => Exit::Data,
        (false, false) => Exit::NotSo,
    };
    let hint = error.hint();
    let error = CliError::new(exit, error.to_string());
    match hint {
        Some(hint) => error.hint(hint),
        None => error,
    }
}

fn line(row: &Value, out: &Out) -> Result<(), CliError> {
    let text = |key: &str| row.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let about = [text("call"), text("task")].into_iter().find(|id| !id.is_empty()).unwrap_or_default();
    let change = match (text("from"), text("to")) {
        (from, to) if from.is_empty() => to,
        (from, to) => format!("{from} -> {to}"),
    };
    let detail = match row.get("detail") {
        None | Some(Value::Null) => String::new(),
        Some(detail) => detail.to_string(),
    };
    let short: String = detail.chars().take(160).collect();
    out.headed(
        &format!("{:>6}", shown(row, "seq")),
        &format!("{} {:<14} {change} {} {about} {short}", shown(row, "time"), text("kind"), text("cause")),
    )
}

fn whole(row: &Value, out: &Out) -> Result<(), CliError> {
    for (key, value) in row.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null()) {
        match value.as_str() {
            Some(text) => out.line(&format!("{key:<13} {text}"))?,
            None => out.line(&format!("{key:<13} {value}"))?,
        }
    }
    Ok(())
}

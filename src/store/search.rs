//! Looking for rows from the newest back, for as long as somebody waits: what was not looked at is said, not waited for.
//!
//! There is no index over what rows say: it would cost each row of the log twice its writes, for ever, to save a person a
//! second press. A look takes a bounded time and says from which row the next one goes on.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use interlock_domain::id::{CallId, RunId, Seq, TaskId};
use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};

use super::error::StoreError;
use super::read::Reader;
use super::row::{self, SELECT};
use crate::record::Recorded;

/// Rows between two looks at the clock: a few milliseconds.
const STEP: u64 = 2_000;

/// Which rows. Everything that is set must hold.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Search {
    /// Up to this row, with it; the newest without it.
    pub until: Option<Seq>,
    /// Of one of these kinds; of any, where there are none.
    pub kinds: Vec<String>,
    /// Of this run.
    pub run: Option<RunId>,
    /// Of this call.
    pub call: Option<CallId>,
    /// Of this task.
    pub task: Option<TaskId>,
    /// With this text in the cause or in the detail, letter by letter.
    pub text: Option<String>,
    /// A row of this kind is the oldest of interest: a run has nothing before it was opened.
    pub begin: Option<&'static str>,
    /// At most so many rows.
    pub limit: usize,
}

/// What a look found.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Found {
    /// The rows, the newest first.
    pub rows: Vec<Recorded>,
    /// The newest row that was looked at.
    pub from: Option<Seq>,
    /// Where the next look goes on; `None` where there is nothing older.
    pub rest: Option<Seq>,
}

/// Looks back for so long.
///
/// # Errors
/// When the log cannot be read.
pub fn search(path: &Path, search: &Search, patience: Duration) -> Result<Found, StoreError> {
    let reader = Reader::of(path)?;
    let end = Instant::now() + patience;
    let (conditions, values) = conditions(search);
    let text = format!("{SELECT} WHERE seq BETWEEN ? AND ?{conditions} ORDER BY seq DESC LIMIT ?");
    let until = search.until.unwrap_or(Seq(u64::MAX));
    let mut found = Found::default();
    let segments: Vec<&(Seq, PathBuf)> = reader.source.segments.iter().filter(|(first, _)| *first <= until).collect();
    for (at, (_, file)) in segments.into_iter().enumerate().rev() {
        let error = |e: rusqlite::Error| reader.error(file, e);
        let connection = reader.open(file)?;
        let Some((first, last)) = ends(&connection).map_err(error)? else { continue };
        let mut high = last.min(until.0);
        found.from = found.from.or_else(|| (high >= first).then_some(Seq(high)));
        let mut statement = connection.prepare(&text).map_err(error)?;
        while high >= first {
            let low = first.max(high.saturating_sub(STEP - 1));
            let room = search.limit - found.rows.len();
            let number = |number: u64| Value::Integer(i64::try_from(number).unwrap_or(i64::MAX));
            let bounds = [number(low), number(high)];
            let bound = bounds.iter().chain(&values).cloned().chain([number(room as u64)]);
            let mut rows = statement.query(params_from_iter(bound)).map_err(error)?;
            while let Some(stored) = rows.next().map_err(error)? {
                let seq = stored.get(0).unwrap_or(-1);
                let recorded = row::recorded(stored);
                found.rows.push(recorded.map_err(|source| StoreError::Row { path: file.clone(), seq, source })?);
            }
            let oldest = found.rows.last();
            if search.begin.is_some() && oldest.map(|row| row.row.kind.as_ref()) == search.begin {
                return Ok(found);
            }
            let is_full = found.rows.len() >= search.limit;
            let reached = if is_full { oldest.map_or(low, |row| row.seq.0) } else { low };
            if is_full || Instant::now() >= end {
                let is_oldest = at == 0 && reached <= first;
                found.rest = (!is_oldest).then(|| Seq(reached - 1));
                return Ok(found);
            }
            let Some(next) = low.checked_sub(1) else { break };
            high = next;
        }
    }
    Ok(found)
}

/// The first and the last row of a segment, if it has any.
fn ends(connection: &Connection) -> rusqlite::Result<Option<(u64, u64)>> {
    let numbers = "SELECT (SELECT min(seq) FROM evidence), (SELECT max(seq) FROM evidence)";
    connection.query_row(numbers, [], |row| {
        let (first, last): (Option<i64>, Option<i64>) = (row.get(0)?, row.get(1)?);
        Ok(first.zip(last).map(|(first, last)| (first.unsigned_abs(), last.unsigned_abs())))
    })
}

fn conditions(search: &Search) -> (String, Vec<Value>) {
    let mut conditions = String::new();
    let mut values = Vec::new();
    if !search.kinds.is_empty() {
        let places = vec!["?"; search.kinds.len()].join(", ");
        conditions.push_str(&format!(" AND kind IN ({places})"));
        values.extend(search.kinds.iter().cloned().map(Value::Text));
    }
    let mut add = |condition: &str, value: Option<String>, times: usize| {
        if let Some(value) = value {
            conditions.push_str(condition);
            values.extend(vec![Value::Text(value); times]);
        }
    };
    add(" AND run = ?", search.run.map(|run| run.to_string()), 1);
    add(" AND call = ?", search.call.map(|call| call.to_string()), 1);
    add(" AND task = ?", search.task.map(|task| task.to_string()), 1);
    add(" AND (instr(detail, ?) > 0 OR instr(cause, ?) > 0)", search.text.clone(), 2);
    (conditions, values)
}

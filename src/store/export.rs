//! The log for other programs: JSON Lines or CSV, row by row, in order, however large it is.
//!
//! A wall time is exported as it was written. Where the clock was not set yet when a row was written (a boot at
//! 1970), a second column says what time it was, counted back from a later row of the same boot whose clock was set.
//!
//! There is no Parquet in here, and that is decided. Of the crates, `parquet` (Apache Arrow, version 60) with every
//! feature off is 130,000 lines and 27 crates, chrono, half and big integers among them, for one verb on a box with
//! little flash; `parquet2` and `arrow2`, which were lean, are archived and get no fixes. JSON Lines holds every column
//! without loss, and one line turns it into Parquet wherever it is wanted (README).

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

use interlock_domain::id::Seq;
use interlock_domain::time::Wall;
use serde_json::Value;
use thiserror::Error;

use super::error::StoreError;
use super::read::{self, Query, ROWS_MAX};
use crate::record::{COLUMNS, Recorded, TimeQuality, rfc3339};

/// Why an export ended early.
#[derive(Debug, Error)]
pub enum ExportError {
    /// The log cannot be read.
    #[error(transparent)]
    Log(#[from] StoreError),
    /// The output takes no more.
    #[error("the output takes no more: {0}")]
    Output(#[from] io::Error),
}

/// How the rows are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// One JSON object a line.
    JsonLines,
    /// RFC 4180, with a first line of names.
    Csv,
}

/// Writes the rows that fit `query` (its limit counts; without one, all of them) and returns how many they were.
///
/// # Errors
/// When the log cannot be read or the output takes no more.
pub fn export(path: &Path, query: &Query, format: Format, out: &mut impl Write) -> Result<u64, ExportError> {
    let clocks = clocks(path)?;
    if format == Format::Csv {
        write_names(out)?;
    }
    let mut written = 0;
    let mut page = Query { after: Some(query.after.unwrap_or(Seq(0))), ..query.clone() };
    let mut left = query.limit.unwrap_or(usize::MAX);
    loop {
        page.limit = Some(left.min(ROWS_MAX));
        let rows = read::query(path, &page)?;
        let Some(last) = rows.last() else { break };
        page.after = Some(last.seq);
        left -= rows.len().min(left);
        for recorded in &rows {
            let reconstructed = reconstructed(recorded, &clocks);
            match format {
                Format::JsonLines => write_json(out, recorded, reconstructed)?,
                Format::Csv => write_csv(out, recorded, reconstructed)?,
            }
            written += 1;
        }
        if left == 0 {
            break;
        }
    }
    out.flush()?;
    Ok(written)
}

/// For each boot, the wall time at which its boot clock stood at zero, by a row whose clock was set.
fn clocks(path: &Path) -> Result<BTreeMap<String, i64>, StoreError> {
    let source = read::Source::find(path)?;
    let mut clocks = BTreeMap::new();
    for (_, segment) in &source.segments {
        let sqlite = |e| StoreError::sqlite(segment, e);
        let connection = read::open(&source, segment)?;
        let mut statement = connection
            .prepare(
                "SELECT boot_id, wall - boottime_ns / 1000000, max(seq) FROM evidence
                 WHERE time_quality = 'synced' GROUP BY boot_id",
            )
            .map_err(sqlite)?;
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).map_err(sqlite)?;
        for row in rows {
            let (boot, zero): (String, i64) = row.map_err(sqlite)?;
            clocks.insert(boot, zero);
        }
    }
    Ok(clocks)
}

fn reconstructed(recorded: &Recorded, clocks: &BTreeMap<String, i64>) -> Option<Wall> {
    match recorded.row.at.quality {
        TimeQuality::Synced => None,
        TimeQuality::Unsynced | TimeQuality::Unknown => {
            let since_zero = i64::try_from(recorded.row.at.boottime_ns / 1_000_000).ok()?;
            clocks.get(&recorded.boot_id).map(|zero| Wall(zero + since_zero))
        }
    }
}

fn write_json(out: &mut impl Write, recorded: &Recorded, reconstructed: Option<Wall>) -> io::Result<()> {
    let mut row = recorded.to_json();
    row["time_reconstructed"] = reconstructed.map_or(Value::Null, |wall| rfc3339(wall).into());
    writeln!(out, "{row}")
}

fn write_names(out: &mut impl Write) -> io::Result<()> {
    write!(out, "{},hash,time,time_reconstructed\r\n", COLUMNS.join(","))
}

fn write_csv(out: &mut impl Write, recorded: &Recorded, reconstructed: Option<Wall>) -> io::Result<()> {
    let row = recorded.to_json();
    let cell = |key: &str| match &row[key] {
        Value::Null => String::new(),
        Value::String(text) => quoted(text),
        other @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => quoted(&other.to_string()),
    };
    let mut cells: Vec<String> = COLUMNS.iter().chain(&["hash", "time"]).map(|key| cell(key)).collect();
    cells.push(reconstructed.map(rfc3339).unwrap_or_default());
    write!(out, "{}\r\n", cells.join(","))
}

/// A cell of RFC 4180. What a spreadsheet would run as a formula is prefixed, as OWASP advises for CSV: texts in the
/// log come from anyone.
fn quoted(text: &str) -> String {
    let risky = text.starts_with(['=', '+', '-', '@', '\t', '\r']) && text.parse::<f64>().is_err();
    let guard = if risky { "'" } else { "" };
    if risky || text.contains([',', '"', '\n', '\r']) {
        format!("\"{guard}{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_quoted_as_rfc_4180_says_and_never_run() {
        for (text, cell) in [
            ("plain", "plain"),
            ("", ""),
            ("a,b", "\"a,b\""),
            ("say \"go\"", "\"say \"\"go\"\"\""),
            ("two\nlines", "\"two\nlines\""),
            ("=1+1", "\"'=1+1\""),
            ("-5", "-5"),
            ("@x", "\"'@x\""),
        ] {
            assert_eq!(quoted(text), cell, "{text:?}");
        }
    }
}

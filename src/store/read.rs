//! Reading the log: by the daemon while it is written, and by offline verbs on a copy of it.
//!
//! A reader never writes, not even a companion file of SQLite: a copy is evidence too. It holds no snapshot for
//! longer than two seconds, because a pinned reader lets the write-ahead log grow without bound. A path is a state
//! directory, its `evidence` directory, or one segment.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fs, io};

use interlock_domain::id::{CallId, RunId, Seq, TaskId};
use interlock_domain::time::Wall;
use rusqlite::config::DbConfig;
use rusqlite::types::Value;
use rusqlite::{Connection, ErrorCode, OpenFlags, params_from_iter};
use serde_json::json;

use super::error::StoreError;
use super::row::{self, SELECT};
use super::{lock, segment};
use crate::record::{Recorded, rfc3339};

/// How long one reading may take.
pub const PATIENCE: Duration = Duration::from_secs(2);
/// Rows that a query gives when it names no limit, and the most that it gives at all.
pub const ROWS_DEFAULT: usize = 100;
/// The most rows that one query gives; more are read page by page with [`Query::after`].
pub const ROWS_MAX: usize = 10_000;
/// SQLite looks at the clock once in so many of its instructions: about ten microseconds.
const CLOCK_EVERY: i32 = 1_000;

/// Which rows. Everything that is set must hold.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Query {
    /// Only after this row; the rows nearest to it come first in line for the limit. Without it the newest rows do.
    pub after: Option<Seq>,
    /// Not earlier by the wall clock of the row.
    pub since: Option<Wall>,
    /// Not later by the wall clock of the row.
    pub until: Option<Wall>,
    /// Of this kind.
    pub kind: Option<String>,
    /// Of this run.
    pub run: Option<RunId>,
    /// Of this call.
    pub call: Option<CallId>,
    /// Of this task.
    pub task: Option<TaskId>,
    /// With this text in the cause or the detail, letter by letter.
    pub text: Option<String>,
    /// At most so many rows; [`ROWS_DEFAULT`] when not set.
    pub limit: Option<usize>,
}

/// What a log holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stats {
    /// Its files, the oldest first.
    pub segments: usize,
    /// Bytes on the disk, with write-ahead logs.
    pub bytes: u64,
    /// Bytes of the longest write-ahead log: above 8 MiB somebody reads for too long.
    pub wal_bytes: u64,
    /// How many rows.
    pub rows: u64,
    /// The first row that is still there.
    pub first: Option<Seq>,
    /// The last row.
    pub last: Option<Seq>,
    /// When the first of them happened.
    pub first_wall: Option<Wall>,
    /// When the last of them happened.
    pub last_wall: Option<Wall>,
    /// How many of each kind; `None` when counting took too long.
    pub kinds: Option<BTreeMap<String, u64>>,
}

impl Stats {
    /// For scripts.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        json!({
            "segments": self.segments,
            "bytes": self.bytes,
            "wal_bytes": self.wal_bytes,
            "rows": self.rows,
            "first": self.first.map(|seq| seq.0),
            "last": self.last.map(|seq| seq.0),
            "first_time": self.first_wall.map(rfc3339),
            "last_time": self.last_wall.map(rfc3339),
            "kinds": self.kinds,
        })
    }
}

/// The files that a path means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Source {
    /// Segments with the number that their names promise, in order.
    pub(super) segments: Vec<(Seq, PathBuf)>,
    /// Where `head` and `checkpoints` lie.
    pub(super) evidence: PathBuf,
    /// Where `keys` and `lock` lie, if that is known.
    pub(super) state: Option<PathBuf>,
    /// The path was one file, not a log.
    pub(super) single: bool,
}

impl Source {
    pub(super) fn find(path: &Path) -> Result<Source, StoreError> {
        let io = |e| StoreError::io(path, e);
        let meta = fs::metadata(path).map_err(io)?;
        if !meta.is_dir() {
            if !meta.is_file() {
                // A pipe would be waited for without end.
                let what = "it is neither a directory nor a plain file";
                return Err(io(io::Error::new(io::ErrorKind::InvalidInput, what)));
            }
            let evidence = path.parent().unwrap_or(Path::new(".")).to_owned();
            let first = path.file_name().and_then(OsStr::to_str).and_then(segment::first_of);
            let state = Some(evidence.join("..")).filter(|state| state.join("keys").is_dir());
            return Ok(Source {
                segments: vec![(first.unwrap_or(Seq(0)), path.to_owned())],
                evidence,
                state,
                single: true,
            });
        }
        let inner = path.join("evidence");
        let (state, evidence) = if inner.is_dir() {
            (Some(path.to_owned()), inner)
        } else {
            (Some(path.join("..")).filter(|state| state.join("keys").is_dir()), path.to_owned())
        };
        let firsts = segment::list(&evidence)?;
        if firsts.is_empty() && !super::head::path(&evidence).exists() {
            return Err(StoreError::NoLog { path: evidence });
        }
        let segments = firsts.into_iter().map(|first| (first, evidence.join(segment::file_name(first)))).collect();
        Ok(Source { segments, evidence, state, single: false })
    }

    /// Whether a daemon is writing these files now.
    fn live(&self) -> bool {
        self.state.as_deref().is_some_and(|state| lock::owner(state).is_some())
    }
}

/// Opens a segment for reading.
///
/// While a daemon writes it, SQLite's locks and shared memory are used. Otherwise nothing may be created or changed
/// beside the file, and the disk may be read-only: the write-ahead log is then read through an index in our own
/// memory.
pub(super) fn open(source: &Source, path: &Path) -> Result<Connection, StoreError> {
    let sqlite = |e| StoreError::sqlite(path, e);
    fs::metadata(path).map_err(|e| StoreError::io(path, e))?;
    if source.live() {
        match open_shared(path) {
            // On a read-only disk there is no shared memory, and no writer either.
            Err(e) if e.sqlite_error_code() == Some(ErrorCode::CannotOpen) => {}
            opened => return opened.map_err(sqlite),
        }
    }
    let mut wal = path.as_os_str().to_owned();
    wal.push("-wal");
    let wal_len = match fs::metadata(&wal) {
        Ok(meta) => meta.len(),
        Err(e) if e.kind() == io::ErrorKind::NotFound => 0,
        Err(e) => return Err(StoreError::io(Path::new(&wal), e)),
    };
    let how = if wal_len == 0 { "immutable=1" } else { "vfs=unix-none" };
    let uri = format!("file:{}?mode=ro&{how}", percent(path));
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_URI;
    let connection = Connection::open_with_flags(uri, flags).map_err(sqlite)?;
    // Exclusive before the first access: the index of the write-ahead log then lives in this process.
    let _: String =
        connection.pragma_update_and_check(None, "locking_mode", "EXCLUSIVE", |row| row.get(0)).map_err(sqlite)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).map_err(sqlite)?;
    Ok(connection)
}

/// Beside a writer: through its locks and its shared memory.
fn open_shared(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(segment::BUSY)?;
    // SQLite opens its files with the first access.
    connection.query_row("SELECT count(*) FROM header", [], |_| Ok(()))?;
    Ok(connection)
}

/// A path inside a URI of SQLite.
pub(super) fn percent(path: &Path) -> String {
    let mut text = String::new();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' | b'~' => text.push(char::from(*byte)),
            _ => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

/// Reads within one deadline over all segments.
pub(super) struct Reader {
    pub(super) source: Source,
    deadline: Instant,
}

impl Reader {
    pub(super) fn of(path: &Path) -> Result<Reader, StoreError> {
        Ok(Reader { source: Source::find(path)?, deadline: Instant::now() + PATIENCE })
    }

    pub(super) fn open(&self, path: &Path) -> Result<Connection, StoreError> {
        let mut connection = open(&self.source, path)?;
        let deadline = self.deadline;
        connection
            .progress_handler(CLOCK_EVERY, Some(move || Instant::now() >= deadline))
            .map_err(|e| StoreError::sqlite(path, e))?;
        Ok(connection)
    }

    /// What an error of SQLite means here.
    pub(super) fn error(&self, path: &Path, e: rusqlite::Error) -> StoreError {
        match e.sqlite_error_code() {
            Some(ErrorCode::OperationInterrupted) => {
                StoreError::TooSlow { path: path.to_owned(), limit_s: PATIENCE.as_secs() }
            }
            _ => StoreError::sqlite(path, e),
        }
    }

    fn select(&self, path: &Path, query: &str, values: &[Value]) -> Result<Vec<Recorded>, StoreError> {
        let connection = self.open(path)?;
        let error = |e| self.error(path, e);
        let mut statement = connection.prepare(query).map_err(error)?;
        let mut rows = statement.query(params_from_iter(values)).map_err(error)?;
        let mut found = Vec::new();
        while let Some(stored) = rows.next().map_err(error)? {
            let seq = stored.get(0).unwrap_or(-1);
            let recorded = row::recorded(stored);
            found.push(recorded.map_err(|source| StoreError::Row { path: path.to_owned(), seq, source })?);
        }
        Ok(found)
    }
}

/// The last `n` rows, in order.
///
/// # Errors
/// When the log cannot be read in time.
pub fn tail(path: &Path, n: usize) -> Result<Vec<Recorded>, StoreError> {
    query(path, &Query { limit: Some(n), ..Query::default() })
}

/// The rows that fit, in order.
///
/// # Errors
/// When the log cannot be read in time.
pub fn query(path: &Path, query: &Query) -> Result<Vec<Recorded>, StoreError> {
    let reader = Reader::of(path)?;
    let limit = query.limit.unwrap_or(ROWS_DEFAULT).min(ROWS_MAX);
    let (conditions, values) = conditions(query);
    let order = if query.after.is_some() { "ASC" } else { "DESC" };
    let mut segments: Vec<&(Seq, PathBuf)> = reader.source.segments.iter().collect();
    if let Some(after) = query.after {
        let at = segments.partition_point(|(first, _)| *first <= after).saturating_sub(1);
        segments.drain(..at);
    } else {
        segments.reverse();
    }
    let mut found = Vec::new();
    for (_, path) in segments {
        let room = limit - found.len();
        if room == 0 {
            break;
        }
        let text = format!("{SELECT} WHERE {conditions} ORDER BY seq {order} LIMIT {room}");
        found.extend(reader.select(path, &text, &values)?);
    }
    if query.after.is_none() {
        found.reverse();
    }
    Ok(found)
}

fn conditions(query: &Query) -> (String, Vec<Value>) {
    let mut conditions = vec!["1"];
    let mut values = Vec::new();
    let mut add = |condition: &'static str, value: Option<Value>| {
        if let Some(value) = value {
            conditions.push(condition);
            values.push(value);
        }
    };
    let text = |text: &Option<String>| text.clone().map(Value::Text);
    add("seq > ?", query.after.map(|seq| Value::Integer(i64::try_from(seq.0).unwrap_or(i64::MAX))));
    add("wall >= ?", query.since.map(|wall| Value::Integer(wall.0)));
    add("wall <= ?", query.until.map(|wall| Value::Integer(wall.0)));
    add("kind = ?", text(&query.kind));
    add("run = ?", query.run.map(|run| Value::Text(run.to_string())));
    add("call = ?", query.call.map(|call| Value::Text(call.to_string())));
    add("task = ?", query.task.map(|task| Value::Text(task.to_string())));
    add("instr(ifnull(cause, '') || char(10) || ifnull(detail, ''), ?) > 0", text(&query.text));
    (conditions.join(" AND "), values)
}

/// One row, if it is there.
///
/// # Errors
/// When the log cannot be read in time.
pub fn show(path: &Path, seq: Seq) -> Result<Option<Recorded>, StoreError> {
    let reader = Reader::of(path)?;
    let at = reader.source.segments.partition_point(|(first, _)| *first <= seq);
    let Some((_, path)) = at.checked_sub(1).and_then(|at| reader.source.segments.get(at)) else { return Ok(None) };
    let values = [Value::Integer(i64::try_from(seq.0).unwrap_or(i64::MAX))];
    Ok(reader.select(path, &format!("{SELECT} WHERE seq = ?"), &values)?.pop())
}

/// What a log holds.
///
/// # Errors
/// When the log cannot be read in time.
pub fn stats(path: &Path) -> Result<Stats, StoreError> {
    let reader = Reader::of(path)?;
    let mut stats = Stats {
        segments: reader.source.segments.len(),
        bytes: 0,
        wal_bytes: 0,
        rows: 0,
        first: None,
        last: None,
        first_wall: None,
        last_wall: None,
        kinds: Some(BTreeMap::new()),
    };
    for (_, path) in &reader.source.segments {
        let wal = segment::wal_len(path);
        stats.wal_bytes = stats.wal_bytes.max(wal);
        stats.bytes += fs::metadata(path).map_or(0, |meta| meta.len()) + wal;
        let ends = reader.select(path, &format!("{SELECT} WHERE seq = (SELECT min(seq) FROM evidence)"), &[])?;
        if let (Some(first), None) = (ends.first(), stats.first) {
            stats.first = Some(first.seq);
            stats.first_wall = Some(first.row.at.wall);
        }
        let ends = reader.select(path, &format!("{SELECT} WHERE seq = (SELECT max(seq) FROM evidence)"), &[])?;
        if let Some(last) = ends.first() {
            stats.last = Some(last.seq);
            stats.last_wall = Some(last.row.at.wall);
        }
        let count = |connection: &Connection| -> rusqlite::Result<BTreeMap<String, u64>> {
            let mut statement = connection.prepare("SELECT kind, count(*) FROM evidence GROUP BY kind")?;
            let counted = statement.query_map([], |row| Ok((row.get(0)?, row.get::<_, i64>(1)?.unsigned_abs())))?;
            counted.collect()
        };
        match (count(&reader.open(path)?), &mut stats.kinds) {
            (Ok(kinds), Some(all)) => {
                for (kind, count) in kinds {
                    stats.rows += count;
                    *all.entry(kind).or_default() += count;
                }
            }
            (Err(e), _) if e.sqlite_error_code() != Some(ErrorCode::OperationInterrupted) => {
                return Err(StoreError::sqlite(path, e));
            }
            _ => stats.kinds = None,
        }
    }
    if stats.kinds.is_none() {
        // Numbers are given without holes, except where rows were lost.
        stats.rows = stats.last.map_or(0, |last| last.0) - stats.first.map_or(0, |first| first.0 - 1);
    }
    Ok(stats)
}

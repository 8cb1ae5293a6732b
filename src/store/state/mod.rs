//! `state.db`: what changes. Alarms, approved tools and tasks of MCP, workflows, and the numbers that are never given twice.
//!
//! It is not evidence: rows here are updated and old ones removed, and each change that matters is also a row of the
//! log. It has a schema version of its own; a file from a newer build is refused, never converted back. Each change
//! is one durable commit, so the caller blocks for a sync of the disk: call from a thread that may.

use std::path::{Path, PathBuf};
use std::time::Duration;

use interlock_domain::time::Wall;
use rusqlite::{Connection, OptionalExtension, TransactionBehavior};

use super::error::{Fault, StoreError};
use super::read::percent;

pub mod alarm;
mod aside;
pub mod console;
pub mod export;
pub mod learned;
pub mod mcp;
pub mod notice;
pub mod workflow;

/// Each step brings the schema from its index to the next version. A step that was released is never changed.
const STEPS: &[&str] = &[
    "
CREATE TABLE counter (name TEXT PRIMARY KEY, next INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE alarm (
  id INTEGER PRIMARY KEY,
  source TEXT NOT NULL,
  text TEXT NOT NULL,
  raised INTEGER NOT NULL,
  acknowledged INTEGER,
  by TEXT,
  cleared INTEGER
) STRICT;
",
    "
CREATE TABLE mcp_tool (
  server TEXT NOT NULL,
  tool TEXT NOT NULL,
  definition TEXT NOT NULL,
  by TEXT,
  at INTEGER NOT NULL,
  PRIMARY KEY (server, tool)
) STRICT, WITHOUT ROWID;
CREATE TABLE mcp_task (
  id TEXT PRIMARY KEY,
  owner TEXT NOT NULL,
  place TEXT NOT NULL,
  tool TEXT NOT NULL,
  status TEXT NOT NULL CHECK (status IN ('working', 'input_required', 'completed', 'failed', 'cancelled')),
  message TEXT,
  created INTEGER NOT NULL,
  updated INTEGER NOT NULL,
  ttl_ms INTEGER NOT NULL,
  result TEXT,
  error TEXT
) STRICT, WITHOUT ROWID;
",
    learned::SCHEMA,
    "
CREATE TABLE workflow (
  id INTEGER PRIMARY KEY,
  stage TEXT NOT NULL CHECK (stage IN ('open', 'committing', 'aborting', 'committed', 'aborted', 'unsettled')),
  form TEXT NOT NULL,
  at INTEGER NOT NULL
) STRICT;
",
    // A workflow that a person closed. Which stages there are is said in one place, the domain.
    "
CREATE TABLE workflow_2 (
  id INTEGER PRIMARY KEY,
  stage TEXT NOT NULL,
  form TEXT NOT NULL,
  at INTEGER NOT NULL
) STRICT;
INSERT INTO workflow_2 SELECT * FROM workflow;
DROP TABLE workflow;
ALTER TABLE workflow_2 RENAME TO workflow;
",
    export::SCHEMA,
    console::SCHEMA,
    notice::SCHEMA,
];

/// Cleared alarms that are kept: enough for a shift
/// report, few enough that the file stays small. The log has them all.
const ENDED_KEPT: u32 = 2_000;

/// Where the numbers of a life begin whose state cannot be kept, at least: no file has ever given out so many.
const NOT_KEPT_FROM: i64 = 1_000_000_000;

/// The open file.
#[derive(Debug)]
pub struct State {
    path: PathBuf,
    connection: Connection,
}

impl State {
    /// Opens `state.db` of a state directory, or makes it, and brings it to this build's schema.
    ///
    /// # Errors
    /// [`StoreError::Newer`] for a file of a newer build; otherwise what SQLite says.
    pub fn open(state: &Path) -> Result<State, StoreError> {
        let path = state.join("state.db");
        let mut connection = Connection::open(&path).map_err(|e| StoreError::sqlite(&path, e))?;
        let set = || {
            connection.busy_timeout(Duration::from_secs(5))?;
            let _: String = connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0))?;
            connection.pragma_update(None, "synchronous", "FULL")?;
            connection.pragma_update(None, "cache_size", -256)?;
            connection.pragma_update(None, "journal_size_limit", 1024 * 1024)
        };
        set().map_err(|e| StoreError::sqlite(&path, e))?;
        migrate(&mut connection, STEPS).map_err(|e| match e {
            Migration::Newer { found, supported } => StoreError::Newer { path: path.clone(), found, supported },
            Migration::Sqlite(e) => StoreError::sqlite(&path, e),
        })?;
        Ok(State { path, connection })
    }

    /// The same, and where the disk does not take writes now, a state in memory with what the file holds: the daemon
    /// supervises and stops the plant also from a full or read-only disk. What changes then is lost with the process,
    /// so its numbers begin far above all that a file has given out, at the second of this start. `begin` makes the first
    /// changes, which show whether the file takes any.
    ///
    /// # Errors
    /// As [`State::open`], for what does not pass by itself.
    pub fn open_or_remember<T>(
        state: &Path,
        now: Wall,
        begin: impl Fn(&mut State) -> Result<T, StoreError>,
    ) -> Result<(State, T, Option<Fault>), StoreError> {
        let begun = State::open(state).and_then(|mut state| begin(&mut state).map(|begun| (state, begun)));
        match begun {
            Ok((state, begun)) => Ok((state, begun, None)),
            Err(error) => {
                let Some(fault) = Fault::passing(&error) else { return Err(error) };
                let mut state = State::in_memory(state, now)?;
                let begun = begin(&mut state)?;
                Ok((state, begun, Some(fault)))
            }
        }
    }

    fn in_memory(state: &Path, now: Wall) -> Result<State, StoreError> {
        let path = state.join("state.db");
        let sqlite = |e| StoreError::sqlite(&path, e);
        let mut connection = Connection::open_in_memory().map_err(sqlite)?;
        migrate(&mut connection, STEPS).map_err(|e| match e {
            Migration::Newer { found, supported } => StoreError::Newer { path: path.clone(), found, supported },
            Migration::Sqlite(e) => StoreError::sqlite(&path, e),
        })?;
        // As far as the file can be read; where it cannot, the memory begins empty.
        let _ = copy_from(&connection, &path);
        let second = (now.0 / 1000).max(NOT_KEPT_FROM);
        // A life may use a million batches; questions and tasks are typed by people.
        for (counter, first) in [("batch", (1 << 60) + (second << 20)), ("question", second), ("task", second)] {
            let next = "INSERT INTO counter VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET next = max(next, ?2)";
            connection.execute(next, rusqlite::params![counter, first]).map_err(sqlite)?;
        }
        Ok(State { path, connection })
    }

    fn transact<T>(
        &mut self,
        change: impl FnOnce(&rusqlite::Transaction<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        let run = || {
            let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let result = change(&transaction)?;
            transaction.commit()?;
            Ok(result)
        };
        run().map_err(|e| StoreError::sqlite(&self.path, e))
    }

    fn select<T>(
        &self,
        query: &str,
        values: impl rusqlite::Params,
        map: impl FnMut(&rusqlite::Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, StoreError> {
        let run = || self.connection.prepare_cached(query)?.query_map(values, map)?.collect::<rusqlite::Result<_>>();
        run().map_err(|e| StoreError::sqlite(&self.path, e))
    }
}

/// Copies the rows of every table of the file, without a lock and without a trace beside it.
fn copy_from(connection: &Connection, path: &Path) -> rusqlite::Result<()> {
    let file = format!("file:{}?immutable=1", percent(path));
    connection.execute("ATTACH ? AS file", [file])?;
    let names: Vec<String> = connection
        .prepare("SELECT name FROM main.sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")?
        .query_map([], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    for name in names {
        // A table that an older build made otherwise stays empty.
        let _ = connection.execute(&format!("INSERT INTO main.\"{name}\" SELECT * FROM file.\"{name}\""), []);
    }
    connection.execute_batch("DETACH file")
}

/// Takes `count` numbers of a counter, from 1; returns the first.
fn take(connection: &Connection, counter: &str, count: u64) -> rusqlite::Result<u64> {
    let next: Option<i64> =
        connection.query_row("SELECT next FROM counter WHERE name = ?", [counter], |row| row.get(0)).optional()?;
    let first = next.unwrap_or(1);
    let after = first.saturating_add_unsigned(count);
    connection.execute(
        "INSERT INTO counter VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET next = ?2",
        rusqlite::params![counter, after],
    )?;
    Ok(first.unsigned_abs())
}

#[derive(Debug)]
enum Migration {
    Newer { found: i64, supported: i64 },
    Sqlite(rusqlite::Error),
}

impl From<rusqlite::Error> for Migration {
    fn from(error: rusqlite::Error) -> Migration {
        Migration::Sqlite(error)
    }
}

/// Each step is a transaction with its version: a power cut leaves the schema before it or after it.
fn migrate(connection: &mut Connection, steps: &[&str]) -> Result<(), Migration> {
    let supported = i64::try_from(steps.len()).unwrap_or(i64::MAX);
    loop {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let found: i64 = transaction.pragma_query_value(None, "user_version", |row| row.get(0))?;
        if found > supported || found < 0 {
            return Err(Migration::Newer { found, supported });
        }
        let Some(step) = usize::try_from(found).ok().and_then(|at| steps.get(at)) else { return Ok(()) };
        transaction.execute_batch(step)?;
        transaction.pragma_update(None, "user_version", found + 1)?;
        transaction.commit()?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_are_set_aside_are_never_given_twice() {
        let dir = tempfile::tempdir().unwrap();
        let mut next = 1;
        for count in [16, 1, u64::from(u32::MAX)] {
            let first = State::open(dir.path()).unwrap().set_aside("batch", count).unwrap();
            assert_eq!(first, next);
            next += count;
        }
        assert_eq!(State::open(dir.path()).unwrap().set_aside("task", 1).unwrap(), 1);
    }

    /// A disk that takes no writes: here, a directory in the place of the file, or a file that another one has locked.
    #[test]
    fn a_state_that_cannot_be_kept_is_remembered_and_its_numbers_are_nobody_elses() {
        let dir = tempfile::tempdir().unwrap();
        let now = Wall(1_796_000_000_500);
        let begin = |state: &mut State| state.set_aside("task", 16);
        let (mut kept, first, fault) = State::open_or_remember(dir.path(), now, begin).unwrap();
        assert_eq!((first, fault), (1, None));
        kept.raise_alarm("task:t1", "stuck", now).unwrap();
        kept.connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE); BEGIN EXCLUSIVE").unwrap();
        let (mut remembered, first, fault) = State::open_or_remember(dir.path(), now, begin).unwrap();
        assert_eq!((first, fault), (1_796_000_000, Some(Fault::Locked)));
        assert_eq!(remembered.set_aside("question", 16).unwrap(), 1_796_000_000);
        assert!(remembered.set_aside("batch", 1).unwrap() > 1 << 60);
        assert_eq!(remembered.standing_alarms().unwrap().len(), 1, "what the file holds is known");
        remembered.raise_alarm("disk", "full", now).unwrap();
        kept.connection.execute_batch("ROLLBACK").unwrap();
        let (kept, first, fault) = State::open_or_remember(dir.path(), now, begin).unwrap();
        assert_eq!((first, fault), (17, None));
        assert_eq!(kept.standing_alarms().unwrap().len(), 1);
    }

    #[test]
    fn a_file_of_a_newer_build_is_refused_and_left_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        State::open(dir.path()).unwrap().connection.pragma_update(None, "user_version", 99).unwrap();
        let refused = State::open(dir.path()).unwrap_err();
        let path = dir.path().join("state.db");
        assert_eq!(
            refused.to_string(),
            format!("{} has format 99; this build reads up to {}", path.display(), STEPS.len())
        );
        let connection = Connection::open(path).unwrap();
        assert_eq!(connection.pragma_query_value(None, "user_version", |row| row.get::<_, i64>(0)).unwrap(), 99);
    }

    #[test]
    fn steps_run_once_each_and_in_order() {
        let steps = ["CREATE TABLE a (x)", "ALTER TABLE a ADD COLUMN y; INSERT INTO a VALUES (1, 2)", "DROP TABLE a"];
        let mut connection = Connection::open_in_memory().unwrap();
        let version = |connection: &Connection| -> i64 {
            connection.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap()
        };
        migrate(&mut connection, &steps[..1]).unwrap();
        assert_eq!(version(&connection), 1);
        migrate(&mut connection, &steps[..2]).unwrap();
        migrate(&mut connection, &steps[..2]).unwrap();
        assert_eq!(connection.query_row("SELECT count(*) FROM a", [], |row| row.get::<_, i64>(0)).unwrap(), 1);
        migrate(&mut connection, &steps).unwrap();
        assert_eq!(version(&connection), 3);
        assert!(matches!(migrate(&mut connection, &steps[..2]), Err(Migration::Newer { found: 3, supported: 2 })));
    }

    #[test]
    fn a_step_that_goes_wrong_leaves_the_schema_before_it() {
        let mut connection = Connection::open_in_memory().unwrap();
        let broken = ["CREATE TABLE a (x)", "CREATE TABLE b (x); CREATE TABLE a (x)"];
        assert!(matches!(migrate(&mut connection, &broken), Err(Migration::Sqlite(_))));
        let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).unwrap();
        assert_eq!(tables, 1);
    }
}

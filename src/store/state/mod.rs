//! `state.db`: what changes. Alarms, approved tools and tasks of MCP, workflows, and the numbers that are never given twice.
//!
//! It is not evidence: rows here are updated and old ones removed, and each change that matters is also a row of the
//! log. It has a schema version of its own; a file from a newer build is refused, never converted back. Each change
//! is one durable commit, so the caller blocks for a sync of the disk: call from a thread that may.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, TransactionBehavior};

use super::error::StoreError;

pub mod alarm;
mod aside;
pub mod mcp;
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
    "
CREATE TABLE workflow (
  id INTEGER PRIMARY KEY,
  stage TEXT NOT NULL CHECK (stage IN ('open', 'committing', 'aborting', 'committed', 'aborted', 'unsettled')),
  form TEXT NOT NULL,
  at INTEGER NOT NULL
) STRICT;
",
];

/// Cleared alarms that are kept: enough for a shift
/// report, few enough that the file stays small. The log has them all.
const ENDED_KEPT: u32 = 2_000;

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

    #[test]
    fn a_file_of_a_newer_build_is_refused_and_left_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        State::open(dir.path()).unwrap().connection.pragma_update(None, "user_version", 99).unwrap();
        let refused = State::open(dir.path()).unwrap_err();
        let path = dir.path().join("state.db");
        assert_eq!(refused.to_string(), format!("{} has format 99; this build reads up to 3", path.display()));
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

//! What MCP leaves behind: which definitions of foreign tools were approved, and the tasks of clients.

use std::collections::BTreeMap;

use interlock_domain::time::Wall;
use rusqlite::params;

use super::State;
use crate::store::error::StoreError;

/// Tasks that are kept: as many as may live at once.
const TASKS_KEPT: u32 = 4_096;

/// The words of a task's status, as the protocol has them.
pub const STATUSES: [&str; 5] = ["working", "input_required", "completed", "failed", "cancelled"];

/// A task of a client, as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptTask {
    /// Its id.
    pub id: String,
    /// Whose it is.
    pub owner: String,
    /// The session that it was made in.
    pub place: String,
    /// The tool that was called.
    pub tool: String,
    /// One of [`STATUSES`].
    pub status: String,
    /// What is said of that.
    pub message: Option<String>,
    /// When it was made.
    pub created: Wall,
    /// When its status last changed.
    pub updated: Wall,
    /// How long it is kept, in milliseconds.
    pub ttl_ms: u64,
    /// Its result, as JSON.
    pub result: Option<String>,
    /// Its error, as JSON.
    pub error: Option<String>,
}

impl State {
    /// Keeps which definitions of a server's tools are approved: (tool, digest).
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn approve_tools(
        &mut self,
        server: &str,
        tools: &[(String, String)],
        by: Option<&str>,
        at: Wall,
    ) -> Result<(), StoreError> {
        self.transact(|transaction| {
            let insert = "INSERT INTO mcp_tool VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (server, tool) DO UPDATE SET \
                          definition = ?3, by = ?4, at = ?5";
            let mut insert = transaction.prepare_cached(insert)?;
            for (tool, definition) in tools {
                insert.execute(params![server, tool, definition, by, at.0])?;
            }
            Ok(())
        })
    }

    /// The approved definitions: (server, tool) and the digest.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn approved_tools(&self) -> Result<BTreeMap<(String, String), String>, StoreError> {
        let query = "SELECT server, tool, definition FROM mcp_tool";
        let rows = self.select(query, [], |row| Ok(((row.get(0)?, row.get(1)?), row.get(2)?)))?;
        Ok(rows.into_iter().collect())
    }

    /// Keeps tasks as they are now; those whose life is over are forgotten.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn keep_tasks(&mut self, tasks: &[KeptTask], now: Wall) -> Result<(), StoreError> {
        self.transact(|transaction| {
            let insert = "INSERT INTO mcp_task VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11) ON CONFLICT (id) \
                          DO UPDATE SET status = ?5, message = ?6, updated = ?8, result = ?10, error = ?11";
            let mut insert = transaction.prepare_cached(insert)?;
            for task in tasks {
                insert.execute(params![
                    task.id,
                    task.owner,
                    task.place,
                    task.tool,
                    task.status,
                    task.message,
                    task.created.0,
                    task.updated.0,
                    i64::try_from(task.ttl_ms).unwrap_or(i64::MAX),
                    task.result,
                    task.error,
                ])?;
            }
            transaction.execute("DELETE FROM mcp_task WHERE created + ttl_ms < ?1", [now.0])?;
            transaction.execute(
                "DELETE FROM mcp_task WHERE id NOT IN (SELECT id FROM mcp_task ORDER BY created DESC LIMIT ?1)",
                [TASKS_KEPT],
            )?;
            Ok(())
        })
    }

    /// The tasks that were kept, the oldest first.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn kept_tasks(&self) -> Result<Vec<KeptTask>, StoreError> {
        self.select("SELECT * FROM mcp_task ORDER BY created, id", [], |row| {
            Ok(KeptTask {
                id: row.get(0)?,
                owner: row.get(1)?,
                place: row.get(2)?,
                tool: row.get(3)?,
                status: row.get(4)?,
                message: row.get(5)?,
                created: Wall(row.get(6)?),
                updated: Wall(row.get(7)?),
                ttl_ms: row.get::<_, i64>(8)?.unsigned_abs(),
                result: row.get(9)?,
                error: row.get(10)?,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(id: &str, created: i64, status: &str) -> KeptTask {
        KeptTask {
            id: id.to_owned(),
            owner: "local".to_owned(),
            place: "http".to_owned(),
            tool: "monitor".to_owned(),
            status: status.to_owned(),
            message: None,
            created: Wall(created),
            updated: Wall(created),
            ttl_ms: 1000,
            result: None,
            error: Some("{}".to_owned()),
        }
    }

    #[test]
    fn tasks_are_kept_until_their_life_is_over() {
        let dir = tempfile::tempdir().unwrap();
        let mut state = State::open(dir.path()).unwrap();
        state.keep_tasks(&[task("a", 0, "working"), task("b", 500, "working")], Wall(600)).unwrap();
        state.keep_tasks(&[task("a", 0, "failed")], Wall(1000)).unwrap();
        drop(state);
        let mut state = State::open(dir.path()).unwrap();
        assert_eq!(state.kept_tasks().unwrap(), [task("a", 0, "failed"), task("b", 500, "working")]);
        state.keep_tasks(&[], Wall(1001)).unwrap();
        assert_eq!(state.kept_tasks().unwrap(), [task("b", 500, "working")]);
        assert!(state.keep_tasks(&[task("c", 900, "asleep")], Wall(1001)).is_err(), "the table knows the words");
    }

    #[test]
    fn the_newest_approval_of_a_tool_counts() {
        let dir = tempfile::tempdir().unwrap();
        let mut state = State::open(dir.path()).unwrap();
        let pairs = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
            pairs.iter().map(|(tool, digest)| ((*tool).to_owned(), (*digest).to_owned())).collect()
        };
        state.approve_tools("s", &pairs(&[("t", "1"), ("u", "1")]), None, Wall(1)).unwrap();
        state.approve_tools("s", &pairs(&[("t", "2")]), Some("operator"), Wall(2)).unwrap();
        let key = |tool: &str| ("s".to_owned(), tool.to_owned());
        let expected = BTreeMap::from([(key("t"), "2".to_owned()), (key("u"), "1".to_owned())]);
        assert_eq!(state.approved_tools().unwrap(), expected);
    }
}

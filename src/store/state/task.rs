//! Background tasks: what a restart must know of them, and what `task list` shows of those that ended.

use interlock_domain::id::{CallId, Seq, TaskId, ToolName, WorkerKey};
use interlock_domain::time::Wall;
use rusqlite::params;
use serde_json::Value;

use super::{ENDED_KEPT, State, id, misfit, take};
use crate::store::error::StoreError;

/// A task to be started.
#[derive(Debug, Clone, PartialEq)]
pub struct NewTask {
    /// The call that started it, if one did.
    pub call: Option<CallId>,
    /// The background tool.
    pub tool: ToolName,
    /// Its input, so that a restart can start it again.
    pub input: Value,
    /// When.
    pub started: Wall,
}

/// How a task stands; the words of the supervisor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Which life of which task.
    pub worker: WorkerKey,
    /// `RUNNING`, `ZOMBIE`, `DEAD`, `STOPPED` or `CLEANED`.
    pub state: &'static str,
    /// How it ended, if it did.
    pub outcome: Option<String>,
    /// Why it stands so.
    pub cause: Option<String>,
    /// When that began.
    pub at: Wall,
    /// The row of the log that says so.
    pub evidence: Option<Seq>,
}

/// A task as it is known.
#[derive(Debug, Clone, PartialEq)]
pub struct Task {
    /// Which life of which task.
    pub worker: WorkerKey,
    /// What was started.
    pub started: NewTask,
    /// `RUNNING`, `ZOMBIE`, `DEAD`, `STOPPED` or `CLEANED`.
    pub state: String,
    /// How it ended, if it did.
    pub outcome: Option<String>,
    /// Why it stands so.
    pub cause: Option<String>,
    /// Since when.
    pub changed: Wall,
    /// The row of the log that says so.
    pub evidence: Option<Seq>,
}

impl State {
    /// Writes a task down, in its first life and RUNNING, and gives it its name.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn add_task(&mut self, task: &NewTask) -> Result<TaskId, StoreError> {
        self.transact(|transaction| {
            let id = take(transaction, "task", 1)?;
            transaction
                .prepare_cached("INSERT INTO task VALUES (?1, 1, ?2, ?3, ?4, 'RUNNING', NULL, NULL, ?5, ?5, NULL)")?
                .execute(params![
                    id.cast_signed(),
                    task.call.map(|call| call.to_string()),
                    task.tool.as_str(),
                    task.input.to_string(),
                    task.started.0,
                ])?;
            transaction.execute(
                "DELETE FROM task WHERE state = 'CLEANED' AND id <= ?",
                [id.cast_signed() - i64::from(ENDED_KEPT)],
            )?;
            Ok(TaskId(id))
        })
    }

    /// Notes how a task stands. A change of an earlier life than the known one is not taken: `false`.
    ///
    /// # Errors
    /// When it cannot be written, or the state is none of the five.
    pub fn change_task(&mut self, change: &Change) -> Result<bool, StoreError> {
        self.transact(|transaction| {
            let changed = transaction
                .prepare_cached(
                    "UPDATE task SET generation = ?2, state = ?3, outcome = ?4, cause = ?5, changed = ?6, evidence = ?7
                     WHERE id = ?1 AND generation <= ?2",
                )?
                .execute(params![
                    change.worker.task.0.cast_signed(),
                    change.worker.generation,
                    change.state,
                    change.outcome,
                    change.cause,
                    change.at.0,
                    change.evidence.map(|seq| seq.0.cast_signed()),
                ])?;
            Ok(changed == 1)
        })
    }

    /// Tasks that are not CLEANED, the oldest first: after a restart, those that were RUNNING are to be judged.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn tasks(&self) -> Result<Vec<Task>, StoreError> {
        self.select("SELECT * FROM task WHERE state <> 'CLEANED' ORDER BY id", [], task)
    }

    /// The newest `limit` tasks with those that are CLEANED, the oldest first.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn all_tasks(&self, limit: u32) -> Result<Vec<Task>, StoreError> {
        let newest = "SELECT * FROM (SELECT * FROM task ORDER BY id DESC LIMIT ?) ORDER BY id";
        self.select(newest, [limit], task)
    }
}

fn task(row: &rusqlite::Row<'_>) -> rusqlite::Result<Task> {
    let (tool, input): (String, String) = (row.get(3)?, row.get(4)?);
    Ok(Task {
        worker: WorkerKey { task: TaskId(row.get::<_, i64>(0)?.unsigned_abs()), generation: row.get(1)? },
        started: NewTask {
            call: id(row, 2)?,
            tool: ToolName::new(&tool).map_err(|_| misfit(3, &tool))?,
            input: serde_json::from_str(&input).map_err(|_| misfit(4, &input))?,
            started: Wall(row.get(8)?),
        },
        state: row.get(5)?,
        outcome: row.get(6)?,
        cause: row.get(7)?,
        changed: Wall(row.get(9)?),
        evidence: row.get::<_, Option<i64>>(10)?.map(|seq| Seq(seq.unsigned_abs())),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new() -> NewTask {
        NewTask {
            call: Some("01KBA6AK800000000000000007.3.0".parse().unwrap()),
            tool: ToolName::new("monitor").unwrap(),
            input: serde_json::json!({"device": "tank-1"}),
            started: Wall(5),
        }
    }

    fn change(task: TaskId, generation: u32, state: &'static str) -> Change {
        let worker = WorkerKey { task, generation };
        Change { worker, state, outcome: None, cause: Some("DEADLOCK".into()), at: Wall(6), evidence: Some(Seq(7)) }
    }

    #[test]
    fn an_earlier_life_says_nothing_of_a_later_one() {
        let dir = tempfile::tempdir().unwrap();
        let mut state = State::open(dir.path()).unwrap();
        let id = state.add_task(&new()).unwrap();
        assert_eq!(id, TaskId(1));
        assert!(state.change_task(&change(id, 1, "ZOMBIE")).unwrap());
        assert!(state.change_task(&change(id, 2, "RUNNING")).unwrap());
        assert!(!state.change_task(&change(id, 1, "DEAD")).unwrap());
        let expected = Task {
            worker: WorkerKey { task: id, generation: 2 },
            started: new(),
            state: "RUNNING".to_owned(),
            outcome: None,
            cause: Some("DEADLOCK".to_owned()),
            changed: Wall(6),
            evidence: Some(Seq(7)),
        };
        assert_eq!(state.tasks().unwrap(), [expected]);
    }

    #[test]
    fn what_is_cleaned_is_still_known_and_a_sixth_state_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let mut state = State::open(dir.path()).unwrap();
        let id = state.add_task(&new()).unwrap();
        assert!(state.change_task(&change(id, 1, "RESTING")).is_err());
        assert!(state.change_task(&change(id, 1, "CLEANED")).unwrap());
        assert_eq!(state.tasks().unwrap(), []);
        assert_eq!(state.all_tasks(10).unwrap().len(), 1);
        drop(state);
        assert_eq!(State::open(dir.path()).unwrap().add_task(&new()).unwrap(), TaskId(2));
    }
}

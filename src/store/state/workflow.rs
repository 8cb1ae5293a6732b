//! Workflows: each as it is, from one station to the next, so that a crash between two of them loses none.

use interlock_domain::effect::workflow::Stage;
use interlock_domain::time::Wall;
use rusqlite::params;

use super::State;
use crate::store::error::StoreError;

/// Settled workflows that are kept: enough to look back over some shifts. The log has them all.
pub const SETTLED_KEPT: u32 = 500;

impl State {
    /// Keeps a workflow as it is now.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn keep_workflow(&mut self, id: u64, stage: &str, form: &str, at: Wall) -> Result<(), StoreError> {
        self.transact(|transaction| {
            let insert = "INSERT INTO workflow VALUES (?1, ?2, ?3, ?4) ON CONFLICT (id) DO UPDATE SET \
                          stage = ?2, form = ?3, at = ?4";
            transaction.prepare_cached(insert)?.execute(params![id.cast_signed(), stage, form, at.0])?;
            let ended = Stage::ALL.iter().filter(|stage| stage.is_final()).map(|stage| format!("'{}'", stage.word()));
            let ended = ended.collect::<Vec<_>>().join(", ");
            transaction
                .prepare_cached(&format!("DELETE FROM workflow WHERE stage IN ({ended}) AND id <= ?"))?
                .execute([id.cast_signed() - i64::from(SETTLED_KEPT)])?;
            Ok(())
        })
    }

    /// All that are kept, the oldest first: number and written form.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn workflows(&self) -> Result<Vec<(u64, String)>, StoreError> {
        self.select("SELECT id, form FROM workflow ORDER BY id", [], |row| {
            Ok((row.get::<_, i64>(0)?.unsigned_abs(), row.get(1)?))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{STEPS, migrate};
    use super::*;

    #[test]
    fn what_an_older_version_kept_is_there_after_the_step_to_this_one() {
        let mut connection = rusqlite::Connection::open_in_memory().unwrap();
        // As many as there were when a workflow had its words.
        let with_words = 4;
        migrate(&mut connection, &STEPS[..with_words]).unwrap();
        let insert = "INSERT INTO workflow VALUES (7, 'unsettled', '{}', 1)";
        connection.execute(insert, []).unwrap();
        migrate(&mut connection, STEPS).unwrap();
        let close = "UPDATE workflow SET stage = 'closed' WHERE id = 7 AND form = '{}'";
        assert_eq!(connection.execute(close, []).unwrap(), 1);
    }

    #[test]
    fn a_workflow_is_kept_as_it_is_and_settled_ones_for_a_while() {
        let dir = tempfile::tempdir().unwrap();
        let mut state = State::open(dir.path()).unwrap();
        state.keep_workflow(1, "open", "{}", Wall(1)).unwrap();
        state.keep_workflow(2, "committed", "{\"a\":1}", Wall(2)).unwrap();
        state.keep_workflow(1, "unsettled", "{\"b\":2}", Wall(3)).unwrap();
        let kept = |state: &State| state.workflows().unwrap().into_iter().map(|(id, _)| id).collect::<Vec<_>>();
        assert_eq!(State::open(dir.path()).unwrap().workflows().unwrap()[0].1, "{\"b\":2}");
        state.keep_workflow(502, "open", "{}", Wall(4)).unwrap();
        assert_eq!(kept(&state), [1, 502], "what is unsettled stays");
        state.keep_workflow(1, "closed", "{}", Wall(5)).unwrap();
        state.keep_workflow(502, "committed", "{}", Wall(6)).unwrap();
        assert_eq!(kept(&state), [502], "what a person closed goes like what is settled");
    }
}

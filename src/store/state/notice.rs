//! What receivers of notices were told: which stand for them, and whose end they have not heard of.

use interlock_domain::time::Wall;
use rusqlite::params;

use super::State;
use crate::store::error::StoreError;

pub(super) const SCHEMA: &str = "
CREATE TABLE notice (
  sink TEXT NOT NULL,
  id TEXT NOT NULL,
  form TEXT NOT NULL,
  seen INTEGER NOT NULL,
  told INTEGER NOT NULL CHECK (told IN (0, 1)),
  over INTEGER,
  PRIMARY KEY (sink, id)
) STRICT, WITHOUT ROWID;
";

/// One notice, for one receiver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptNotice {
    /// Its name.
    pub id: String,
    /// What it says, in a form of whoever keeps it.
    pub form: String,
    /// When it was first seen.
    pub seen: Wall,
    /// The receiver has it.
    pub told: bool,
    /// When it was over.
    pub over: Option<Wall>,
}

impl State {
    /// What is kept for a receiver.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn notices(&self, sink: &str) -> Result<Vec<KeptNotice>, StoreError> {
        self.select("SELECT id, form, seen, told, over FROM notice WHERE sink = ? ORDER BY id", [sink], |row| {
            Ok(KeptNotice {
                id: row.get(0)?,
                form: row.get(1)?,
                seen: Wall(row.get(2)?),
                told: row.get(3)?,
                over: row.get::<_, Option<i64>>(4)?.map(Wall),
            })
        })
    }

    /// Keeps some, and forgets others.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn keep_notices(&mut self, sink: &str, kept: &[KeptNotice], gone: &[String]) -> Result<(), StoreError> {
        self.transact(|transaction| {
            let mut keep = transaction.prepare_cached("INSERT OR REPLACE INTO notice VALUES (?, ?, ?, ?, ?, ?)")?;
            for notice in kept {
                let KeptNotice { id, form, seen, told, over } = notice;
                keep.execute(params![sink, id, form, seen.0, told, over.map(|at| at.0)])?;
            }
            let mut forget = transaction.prepare_cached("DELETE FROM notice WHERE sink = ? AND id = ?")?;
            for id in gone {
                forget.execute([sink, id])?;
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_told_is_kept_for_each_receiver_until_its_end_was_told() {
        let dir = tempfile::tempdir().unwrap();
        let mut state = State::open(dir.path()).unwrap();
        let notice = |id: &str, told, over| KeptNotice {
            id: id.into(),
            form: "{}".into(),
            seen: Wall(1),
            told,
            over: Option::map(over, Wall),
        };
        state.keep_notices("webhook", &[notice("a1", false, None), notice("a2", true, None)], &[]).unwrap();
        state.keep_notices("notice", &[notice("a1", true, None)], &[]).unwrap();
        state.keep_notices("webhook", &[notice("a1", true, Some(9))], &["a2".into(), "a3".into()]).unwrap();
        drop(state);
        let state = State::open(dir.path()).unwrap();
        assert_eq!(state.notices("webhook").unwrap(), [notice("a1", true, Some(9))]);
        assert_eq!(state.notices("notice").unwrap(), [notice("a1", true, None)]);
    }
}

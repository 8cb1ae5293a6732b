//! Grants: rules that a person gave while the daemon ran.

use interlock_domain::id::RunId;
use interlock_domain::time::Wall;
use rusqlite::params;

use super::{ENDED_KEPT, State, id, take};
use crate::store::error::StoreError;

/// A rule to be given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewGrant {
    /// The rule, as it is written in a policy.
    pub rule: String,
    /// `allow`, `ask` or `deny`.
    pub decision: &'static str,
    /// Only for this run, or for all.
    pub run: Option<RunId>,
    /// Who gave it.
    pub by: String,
    /// Why.
    pub note: Option<String>,
    /// When.
    pub given: Wall,
    /// Until when it holds; for ever when not set.
    pub until: Option<Wall>,
}

/// A rule that was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// Its number, never reused.
    pub id: u64,
    /// The rule.
    pub rule: String,
    /// `allow`, `ask` or `deny`.
    pub decision: String,
    /// Only for this run, or for all.
    pub run: Option<RunId>,
    /// Who gave it.
    pub by: String,
    /// Why.
    pub note: Option<String>,
    /// When.
    pub given: Wall,
    /// Until when it holds.
    pub until: Option<Wall>,
}

impl State {
    /// Gives a rule.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn grant(&mut self, grant: &NewGrant) -> Result<u64, StoreError> {
        self.transact(|transaction| {
            let id = take(transaction, "grant", 1)?;
            transaction.prepare_cached("INSERT INTO grant_ VALUES (?, ?, ?, ?, ?, ?, ?, ?, NULL)")?.execute(
                params![
                    id.cast_signed(),
                    grant.rule,
                    grant.decision,
                    grant.run.map(|run| run.to_string()),
                    grant.by,
                    grant.note,
                    grant.given.0,
                    grant.until.map(|until| until.0),
                ],
            )?;
            transaction.execute(
                "DELETE FROM grant_ WHERE (revoked IS NOT NULL OR until < ?1) AND id <= ?2",
                params![grant.given.0, id.cast_signed() - i64::from(ENDED_KEPT)],
            )?;
            Ok(id)
        })
    }

    /// Takes a rule back; `false` when there is none of that number that holds.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn revoke(&mut self, id: u64, at: Wall) -> Result<bool, StoreError> {
        self.transact(|transaction| {
            let revoke = "UPDATE grant_ SET revoked = ? WHERE id = ? AND revoked IS NULL";
            Ok(transaction.execute(revoke, params![at.0, id.cast_signed()])? == 1)
        })
    }

    /// The rules that hold at `now`, the oldest first.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn grants(&self, now: Wall) -> Result<Vec<Grant>, StoreError> {
        let holding = "SELECT * FROM grant_ WHERE revoked IS NULL AND (until IS NULL OR until > ?) ORDER BY id";
        self.select(holding, [now.0], |row| {
            Ok(Grant {
                id: row.get::<_, i64>(0)?.unsigned_abs(),
                rule: row.get(1)?,
                decision: row.get(2)?,
                run: id(row, 3)?,
                by: row.get(4)?,
                note: row.get(5)?,
                given: Wall(row.get(6)?),
                until: row.get::<_, Option<i64>>(7)?.map(Wall),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_holds_until_its_end_or_until_it_is_taken_back() {
        let dir = tempfile::tempdir().unwrap();
        let mut state = State::open(dir.path()).unwrap();
        let new = |until| NewGrant {
            rule: "Device(pump-2)".to_owned(),
            decision: "allow",
            run: Some(RunId::new(5, 6)),
            by: "operator".to_owned(),
            note: None,
            given: Wall(1),
            until,
        };
        let short = state.grant(&new(Some(Wall(10)))).unwrap();
        let long = state.grant(&new(None)).unwrap();
        let holding =
            |state: &State, now| -> Vec<u64> { state.grants(Wall(now)).unwrap().iter().map(|g| g.id).collect() };
        assert_eq!(holding(&state, 9), [short, long]);
        assert_eq!(holding(&state, 10), [long]);
        assert!(state.revoke(long, Wall(11)).unwrap());
        assert!(!state.revoke(long, Wall(12)).unwrap());
        assert_eq!(holding(&state, 9), [short]);
        assert_eq!(state.grants(Wall(2)).unwrap()[0].run, Some(RunId::new(5, 6)));
    }
}

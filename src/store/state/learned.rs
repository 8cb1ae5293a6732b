//! What was proposed and what was learned: proposals, and versions of the whole learned set.
//!
//! Every version is kept as one text, so that going back restores it byte for byte, and so that a swap is a swap of
//! the whole. What a set means is not known here. A version is never changed; a rollback is a new version with the
//! text of an old one.

use std::path::Path;

use interlock_domain::id::Seq;
use interlock_domain::time::Wall;
use rusqlite::{Connection, OpenFlags, OptionalExtension, Transaction, params};

use super::{ENDED_KEPT, State, take};
use crate::store::error::StoreError;

/// The tables of this module.
pub(super) const SCHEMA: &str = "
CREATE TABLE proposal (
  id INTEGER PRIMARY KEY,
  label TEXT,
  body TEXT NOT NULL,
  source TEXT NOT NULL,
  by TEXT NOT NULL,
  made INTEGER NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('waiting', 'approved', 'rejected', 'refused')),
  why TEXT NOT NULL,
  decided INTEGER,
  decided_by TEXT,
  version INTEGER,
  evidence INTEGER
) STRICT;
CREATE TABLE learned (
  version INTEGER PRIMARY KEY,
  body TEXT NOT NULL,
  made INTEGER NOT NULL,
  by TEXT NOT NULL,
  why TEXT NOT NULL,
  evidence INTEGER
) STRICT;
";

/// Proposals that may wait for a person. More than this and nobody reads them; what is proposed then is turned away.
pub const WAITING_MAX: u32 = 500;

/// Versions that are kept to go back to. The log keeps what each of them was.
const VERSIONS_KEPT: u32 = 500;

/// What has become of a proposal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// A person is to decide.
    Waiting,
    /// It is part of a version.
    Approved,
    /// A person said no.
    Rejected,
    /// The gate said no.
    Refused,
}

impl Fate {
    const ALL: [Fate; 4] = [Fate::Waiting, Fate::Approved, Fate::Rejected, Fate::Refused];

    /// As it is written.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Fate::Waiting => "waiting",
            Fate::Approved => "approved",
            Fate::Rejected => "rejected",
            Fate::Refused => "refused",
        }
    }
}

/// A proposal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proposed {
    /// Its number, never reused.
    pub id: u64,
    /// What whoever proposed it calls it.
    pub label: Option<String>,
    /// The written form of what is proposed.
    pub body: String,
    /// What it arose from.
    pub source: String,
    /// Who proposed it.
    pub by: String,
    /// When.
    pub made: Wall,
    /// What has become of it.
    pub fate: Fate,
    /// Why.
    pub why: String,
    /// When that was decided.
    pub decided: Option<Wall>,
    /// By whom.
    pub decided_by: Option<String>,
    /// The version that it became part of.
    pub version: Option<u64>,
    /// The row of the log that tells of it.
    pub evidence: Option<Seq>,
}

/// A version of the learned set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// Its number, rising.
    pub version: u64,
    /// The written form of the whole set.
    pub body: String,
    /// When it was made.
    pub made: Wall,
    /// By whom.
    pub by: String,
    /// Out of what.
    pub why: String,
    /// The row of the log that tells of it.
    pub evidence: Option<Seq>,
}

impl State {
    /// Keeps a proposal and gives its number; the number that it carries counts for nothing. None when too many wait.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn keep_proposal(&mut self, new: &Proposed) -> Result<Option<u64>, StoreError> {
        self.transact(|transaction| {
            let waiting: u32 = transaction.query_row(
                "SELECT count(*) FROM proposal WHERE state = ?",
                [Fate::Waiting.word()],
                |row| row.get(0),
            )?;
            if new.fate == Fate::Waiting && waiting >= WAITING_MAX {
                return Ok(None);
            }
            let id = take(transaction, "proposal", 1)?;
            write(transaction, &Proposed { id, ..new.clone() })?;
            transaction.execute(
                "DELETE FROM proposal WHERE state IN ('rejected', 'refused') AND id <= ?",
                [id.cast_signed() - i64::from(ENDED_KEPT)],
            )?;
            Ok(Some(id))
        })
    }

    /// Writes what has become of a proposal.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn settle_proposal(&mut self, settled: &Proposed) -> Result<(), StoreError> {
        self.transact(|transaction| write(transaction, settled))
    }

    /// Makes a set the active one, together with what it says of the proposal that it came from; gives its number.
    ///
    /// # Errors
    /// When it cannot be written: nothing has changed then.
    pub fn learn(&mut self, new: &Version, from: Option<&Proposed>) -> Result<u64, StoreError> {
        self.transact(|transaction| {
            let version = take(transaction, "learned", 1)?;
            transaction.execute(
                "INSERT INTO learned VALUES (?, ?, ?, ?, ?, ?)",
                params![
                    version.cast_signed(),
                    new.body,
                    new.made.0,
                    new.by,
                    new.why,
                    new.evidence.map(|seq| seq.0.cast_signed())
                ],
            )?;
            if let Some(proposed) = from {
                write(transaction, &Proposed { version: Some(version), ..proposed.clone() })?;
            }
            transaction.execute(
                "DELETE FROM learned WHERE version <= ?",
                [version.cast_signed() - i64::from(VERSIONS_KEPT)],
            )?;
            Ok(version)
        })
    }

    /// The proposals, the newest last: those that wait, or all that are kept.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn proposals(&self, all: bool) -> Result<Vec<Proposed>, StoreError> {
        self.select("SELECT * FROM proposal WHERE ?1 OR state = 'waiting' ORDER BY id", [all], proposed)
    }

    /// The versions, the newest last.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn versions(&self) -> Result<Vec<Version>, StoreError> {
        self.select("SELECT * FROM learned ORDER BY version", [], version)
    }
}

/// The written form of the active set of a state directory, for a reader beside the daemon or without one. None when
/// nothing was ever learned. Nothing is changed, also not the file's schema.
///
/// # Errors
/// When there is no state, or it cannot be read.
pub fn active(state: &Path) -> Result<Option<Version>, StoreError> {
    let path = state.join("state.db");
    std::fs::metadata(&path).map_err(|e| StoreError::io(&path, e))?;
    let wal = path.with_file_name("state.db-wal");
    let quiet = std::fs::metadata(&wal).map_or(true, |meta| meta.len() == 0);
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let read = |connection: &Connection| -> rusqlite::Result<Option<Version>> {
        let there: bool = connection.query_row(
            "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'learned'",
            [],
            |row| row.get(0),
        )?;
        if !there {
            return Ok(None);
        }
        connection.query_row("SELECT * FROM learned ORDER BY version DESC LIMIT 1", [], version).optional()
    };
    let shared = Connection::open_with_flags(&path, flags).and_then(|connection| read(&connection));
    match shared {
        // On a read-only disk there is no shared memory, and no writer either.
        Err(_) if quiet => {
            let uri = format!("file:{}?mode=ro&immutable=1", crate::store::read::percent(&path));
            Connection::open_with_flags(uri, flags | OpenFlags::SQLITE_OPEN_URI)
                .and_then(|connection| read(&connection))
                .map_err(|e| StoreError::sqlite(&path, e))
        }
        found => found.map_err(|e| StoreError::sqlite(&path, e)),
    }
}

fn write(transaction: &Transaction<'_>, one: &Proposed) -> rusqlite::Result<()> {
    transaction
        .prepare_cached("INSERT OR REPLACE INTO proposal VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")?
        .execute(params![
            one.id.cast_signed(),
            one.label,
            one.body,
            one.source,
            one.by,
            one.made.0,
            one.fate.word(),
            one.why,
            one.decided.map(|wall| wall.0),
            one.decided_by,
            one.version.map(u64::cast_signed),
            one.evidence.map(|seq| seq.0.cast_signed()),
        ])
        .map(|_| ())
}

fn proposed(row: &rusqlite::Row<'_>) -> rusqlite::Result<Proposed> {
    let word: String = row.get(6)?;
    let fate = Fate::ALL.into_iter().find(|fate| fate.word() == word);
    Ok(Proposed {
        id: row.get::<_, i64>(0)?.unsigned_abs(),
        label: row.get(1)?,
        body: row.get(2)?,
        source: row.get(3)?,
        by: row.get(4)?,
        made: Wall(row.get(5)?),
        fate: fate.ok_or(rusqlite::Error::InvalidColumnType(6, "state".to_owned(), rusqlite::types::Type::Text))?,
        why: row.get(7)?,
        decided: row.get::<_, Option<i64>>(8)?.map(Wall),
        decided_by: row.get(9)?,
        version: row.get::<_, Option<i64>>(10)?.map(i64::unsigned_abs),
        evidence: row.get::<_, Option<i64>>(11)?.map(|seq| Seq(seq.unsigned_abs())),
    })
}

fn version(row: &rusqlite::Row<'_>) -> rusqlite::Result<Version> {
    Ok(Version {
        version: row.get::<_, i64>(0)?.unsigned_abs(),
        body: row.get(1)?,
        made: Wall(row.get(2)?),
        by: row.get(3)?,
        why: row.get(4)?,
        evidence: row.get::<_, Option<i64>>(5)?.map(|seq| Seq(seq.unsigned_abs())),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(body: &str, fate: Fate) -> Proposed {
        Proposed {
            id: 0,
            label: Some("learn-047".to_owned()),
            body: body.to_owned(),
            source: "operator".to_owned(),
            by: "li".to_owned(),
            made: Wall(1),
            fate,
            why: "the policy is strict".to_owned(),
            decided: None,
            decided_by: None,
            version: None,
            evidence: Some(Seq(7)),
        }
    }

    fn set(body: &str) -> Version {
        Version {
            version: 0,
            body: body.to_owned(),
            made: Wall(2),
            by: "li".to_owned(),
            why: "p1".to_owned(),
            evidence: Some(Seq(8)),
        }
    }

    #[test]
    fn a_version_and_its_proposal_are_written_together_and_read_back_by_another() {
        let dir = tempfile::tempdir().unwrap();
        let mut state = State::open(dir.path()).unwrap();
        assert_eq!(active(dir.path()).unwrap(), None);
        let id = state.keep_proposal(&new("{}", Fate::Waiting)).unwrap().unwrap();
        assert_eq!(state.keep_proposal(&new("{}", Fate::Refused)).unwrap(), Some(2));
        let waiting = state.proposals(false).unwrap();
        assert_eq!(waiting, [Proposed { id, ..new("{}", Fate::Waiting) }]);
        let approved = Proposed { fate: Fate::Approved, decided: Some(Wall(2)), ..waiting[0].clone() };
        assert_eq!(state.learn(&set("one"), Some(&approved)).unwrap(), 1);
        assert_eq!(state.learn(&set("two"), None).unwrap(), 2);
        assert!(state.proposals(false).unwrap().is_empty());
        assert_eq!(state.proposals(true).unwrap()[0], Proposed { version: Some(1), ..approved });
        // While the writer is there, and after it has gone.
        assert_eq!(active(dir.path()).unwrap(), Some(Version { version: 2, ..set("two") }));
        drop(state);
        assert_eq!(active(dir.path()).unwrap(), Some(Version { version: 2, ..set("two") }));
        let bodies: Vec<String> =
            State::open(dir.path()).unwrap().versions().unwrap().into_iter().map(|v| v.body).collect();
        assert_eq!(bodies, ["one", "two"]);
    }

    #[test]
    fn no_more_wait_than_a_person_reads() {
        let dir = tempfile::tempdir().unwrap();
        let mut state = State::open(dir.path()).unwrap();
        state.connection.execute_batch("PRAGMA synchronous = OFF").unwrap();
        for _ in 0..WAITING_MAX {
            assert!(state.keep_proposal(&new("{}", Fate::Waiting)).unwrap().is_some());
        }
        assert_eq!(state.keep_proposal(&new("{}", Fate::Waiting)).unwrap(), None);
        assert!(state.keep_proposal(&new("{}", Fate::Approved)).unwrap().is_some());
    }
}

//! Who may open the console: a person's name, a role, and the digest of a token. The token itself is nowhere.

use std::fmt;

use interlock_domain::time::Wall;
use rusqlite::params;
use sha2::{Digest as _, Sha256};

use super::State;
use crate::store::error::StoreError;

/// The table. Which roles there are is said by whoever reads them.
pub(super) const SCHEMA: &str = "
CREATE TABLE console_person (
  name TEXT PRIMARY KEY,
  role TEXT NOT NULL,
  digest BLOB NOT NULL,
  by TEXT NOT NULL,
  made INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
";

/// A person as they are kept.
#[derive(Clone, PartialEq, Eq)]
pub struct KeptPerson {
    /// The name: in evidence, beside what they said.
    pub name: String,
    /// The word of the role.
    pub role: String,
    /// SHA-256 of the token. A token has 256 random bits, so that a slow hash would guard nothing more.
    pub digest: [u8; 32],
    /// Who let them in.
    pub by: String,
    /// Since when.
    pub made: Wall,
}

// The digest is nobody's business, in a log least of all.
impl fmt::Debug for KeptPerson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeptPerson").field("name", &self.name).field("role", &self.role).finish_non_exhaustive()
    }
}

/// A secret that nobody guesses, as text; none when the system has no randomness to give.
#[must_use]
pub fn secret() -> Option<String> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).ok()?;
    Some(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// What is kept of a secret.
#[must_use]
pub fn digest(secret: &str) -> [u8; 32] {
    Sha256::digest(secret.as_bytes()).into()
}

impl State {
    /// Keeps a person.
    ///
    /// # Errors
    /// When it cannot be written, or the name is known.
    pub fn keep_person(&mut self, person: &KeptPerson) -> Result<(), StoreError> {
        self.transact(|transaction| {
            let insert = "INSERT INTO console_person VALUES (?1, ?2, ?3, ?4, ?5)";
            let KeptPerson { name, role, digest, by, made } = person;
            transaction.execute(insert, params![name, role, digest, by, made.0]).map(|_| ())
        })
    }

    /// Forgets a person; false when there is none of this name.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn forget_person(&mut self, name: &str) -> Result<bool, StoreError> {
        self.transact(|transaction| {
            transaction.execute("DELETE FROM console_person WHERE name = ?", [name]).map(|gone| gone > 0)
        })
    }

    /// All of them, by name.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn kept_people(&self) -> Result<Vec<KeptPerson>, StoreError> {
        self.select("SELECT name, role, digest, by, made FROM console_person ORDER BY name", [], |row| {
            Ok(KeptPerson {
                name: row.get(0)?,
                role: row.get(1)?,
                digest: row.get(2)?,
                by: row.get(3)?,
                made: Wall(row.get(4)?),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_person_is_kept_once_and_forgotten_and_the_token_is_nowhere() {
        let dir = tempfile::tempdir().unwrap();
        let token = secret().unwrap();
        let person = |role: &str, token: &str| KeptPerson {
            name: "wang".to_owned(),
            role: role.to_owned(),
            digest: digest(token),
            by: "root".to_owned(),
            made: Wall(1_796_000_000_000),
        };
        let mut state = State::open(dir.path()).unwrap();
        state.keep_person(&person("approve", &token)).unwrap();
        assert!(state.keep_person(&person("read", "another")).is_err(), "the name is taken");
        drop(state);
        let mut state = State::open(dir.path()).unwrap();
        assert_eq!(state.kept_people().unwrap(), [person("approve", &token)]);
        for file in std::fs::read_dir(dir.path()).unwrap() {
            let bytes = std::fs::read(file.unwrap().path()).unwrap();
            assert!(!bytes.windows(token.len()).any(|piece| piece == token.as_bytes()));
        }
        assert_eq!((state.forget_person("wang").unwrap(), state.forget_person("wang").unwrap()), (true, false));
        assert_eq!(state.kept_people().unwrap(), []);
    }
}

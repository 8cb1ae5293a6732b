//! How far each receiver of the log has come: it goes on from there after a restart.

use interlock_domain::id::Seq;
use interlock_domain::time::Wall;
use rusqlite::params;

use super::State;
use crate::store::error::StoreError;

pub(super) const SCHEMA: &str = "
CREATE TABLE export (
  sink TEXT PRIMARY KEY,
  seq INTEGER NOT NULL,
  dropped INTEGER NOT NULL,
  at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
";

/// Where a receiver stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// Everything up to this row has arrived, or was told as a gap.
    pub seq: Seq,
    /// Rows that were told as a gap, over all time.
    pub dropped: u64,
}

impl Position {
    /// Of one that was never heard of.
    pub const BEGINNING: Position = Position { seq: Seq(0), dropped: 0 };
}

impl State {
    /// Where a receiver stands; the beginning for one that was never heard of.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn position(&self, sink: &str) -> Result<Position, StoreError> {
        let found = self.select("SELECT seq, dropped FROM export WHERE sink = ?", [sink], |row| {
            let (seq, dropped): (i64, i64) = (row.get(0)?, row.get(1)?);
            Ok(Position { seq: Seq(seq.unsigned_abs()), dropped: dropped.unsigned_abs() })
        })?;
        Ok(found.first().copied().unwrap_or(Position::BEGINNING))
    }

    /// Keeps where a receiver stands.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn keep_position(&mut self, sink: &str, position: Position, at: Wall) -> Result<(), StoreError> {
        self.transact(|transaction| {
            let keep = "INSERT INTO export VALUES (?1, ?2, ?3, ?4) ON CONFLICT (sink) DO UPDATE SET seq = ?2, dropped = \
                        ?3, at = ?4";
            let numbers = (position.seq.0.cast_signed(), position.dropped.cast_signed());
            transaction.prepare_cached(keep)?.execute(params![sink, numbers.0, numbers.1, at.0])?;
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_kept_for_each_receiver() {
        let dir = tempfile::tempdir().unwrap();
        let mut state = State::open(dir.path()).unwrap();
        assert_eq!(state.position("mqtt").unwrap(), Position::BEGINNING);
        let here = Position { seq: Seq(7), dropped: 2 };
        state.keep_position("mqtt", Position { seq: Seq(3), dropped: 0 }, Wall(1)).unwrap();
        state.keep_position("mqtt", here, Wall(2)).unwrap();
        drop(state);
        let state = State::open(dir.path()).unwrap();
        assert_eq!(state.position("mqtt").unwrap(), here);
        assert_eq!(state.position("otlp").unwrap(), Position::BEGINNING);
    }
}

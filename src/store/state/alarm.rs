//! Alarms: raised by monitors, acknowledged by a person, cleared when the condition has gone.

use interlock_domain::time::Wall;
use rusqlite::params;

use super::{ENDED_KEPT, State, take};
use crate::store::error::StoreError;

/// An alarm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alarm {
    /// Its number, never reused.
    pub id: u64,
    /// What raised it: a task or a device.
    pub source: String,
    /// One sentence for a person.
    pub text: String,
    /// When it was raised.
    pub raised: Wall,
    /// When a person took note of it.
    pub acknowledged: Option<Wall>,
    /// Who.
    pub by: Option<String>,
    /// When the condition had gone.
    pub cleared: Option<Wall>,
}

impl State {
    /// Raises an alarm. One that the same source raised with the same text and that is not cleared is not raised
    /// twice; its number is given.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn raise_alarm(&mut self, source: &str, text: &str, at: Wall) -> Result<u64, StoreError> {
        self.transact(|transaction| {
            let standing = "SELECT id FROM alarm WHERE source = ? AND text = ? AND cleared IS NULL";
            let mut standing = transaction.prepare_cached(standing)?;
            if let Some(row) = standing.query([source, text])?.next()? {
                return Ok(row.get::<_, i64>(0)?.unsigned_abs());
            }
            let id = take(transaction, "alarm", 1)?;
            transaction.prepare_cached("INSERT INTO alarm VALUES (?, ?, ?, ?, NULL, NULL, NULL)")?.execute(params![
                id.cast_signed(),
                source,
                text,
                at.0
            ])?;
            transaction.execute(
                "DELETE FROM alarm WHERE cleared IS NOT NULL AND id <= ?",
                [id.cast_signed() - i64::from(ENDED_KEPT)],
            )?;
            Ok(id)
        })
    }

    /// A person took note of alarm `id`, or of all when it is `None`; returns how many that were.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn acknowledge_alarms(&mut self, id: Option<u64>, by: &str, at: Wall) -> Result<usize, StoreError> {
        self.transact(|transaction| {
            transaction.execute(
                "UPDATE alarm SET acknowledged = ?1, by = ?2 WHERE acknowledged IS NULL AND (?3 IS NULL OR id = ?3)",
                params![at.0, by, id.map(u64::cast_signed)],
            )
        })
    }

    /// The condition of a source has gone; returns how many alarms that cleared.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn clear_alarms(&mut self, source: &str, at: Wall) -> Result<usize, StoreError> {
        self.transact(|transaction| {
            transaction
                .execute("UPDATE alarm SET cleared = ? WHERE cleared IS NULL AND source = ?", params![at.0, source])
        })
    }

    /// Alarms that are not both acknowledged and cleared, the oldest first.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn standing_alarms(&self) -> Result<Vec<Alarm>, StoreError> {
        let query = "SELECT * FROM alarm WHERE acknowledged IS NULL OR cleared IS NULL ORDER BY id";
        self.select(query, [], alarm)
    }

    /// Alarms that were raised at or after `since`, the oldest first, at most `limit`: for a shift report.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn alarms_since(&self, since: Wall, limit: u32) -> Result<Vec<Alarm>, StoreError> {
        self.select("SELECT * FROM alarm WHERE raised >= ? ORDER BY id LIMIT ?", params![since.0, limit], alarm)
    }
}

fn alarm(row: &rusqlite::Row<'_>) -> rusqlite::Result<Alarm> {
    Ok(Alarm {
        id: row.get::<_, i64>(0)?.unsigned_abs(),
        source: row.get(1)?,
        text: row.get(2)?,
        raised: Wall(row.get(3)?),
        acknowledged: row.get::<_, Option<i64>>(4)?.map(Wall),
        by: row.get(5)?,
        cleared: row.get::<_, Option<i64>>(6)?.map(Wall),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alarm_stands_until_it_is_acknowledged_and_cleared() {
        let dir = tempfile::tempdir().unwrap();
        let mut state = State::open(dir.path()).unwrap();
        let level = state.raise_alarm("t1", "液位过高", Wall(1)).unwrap();
        assert_eq!(state.raise_alarm("t1", "液位过高", Wall(2)).unwrap(), level);
        let pressure = state.raise_alarm("t2", "压力过高", Wall(3)).unwrap();
        assert_eq!((level, pressure), (1, 2));
        assert_eq!(state.acknowledge_alarms(Some(level), "operator", Wall(4)).unwrap(), 1);
        assert_eq!(state.clear_alarms("t1", Wall(5)).unwrap(), 1);
        let standing: Vec<u64> = state.standing_alarms().unwrap().iter().map(|alarm| alarm.id).collect();
        assert_eq!(standing, [pressure]);
        assert_eq!(state.raise_alarm("t1", "液位过高", Wall(6)).unwrap(), 3);
        assert_eq!(state.acknowledge_alarms(None, "operator", Wall(7)).unwrap(), 2);
        let expected = Alarm {
            id: 1,
            source: "t1".to_owned(),
            text: "液位过高".to_owned(),
            raised: Wall(1),
            acknowledged: Some(Wall(4)),
            by: Some("operator".to_owned()),
            cleared: Some(Wall(5)),
        };
        assert_eq!(state.alarms_since(Wall(0), 1).unwrap(), [expected]);
    }
}

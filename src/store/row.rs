//! Between the columns of the file and the written form: the only place that knows both.
//!
//! What is read back is checked for its storage class too. SQLite does not check types when it reads, and one flipped
//! bit turns a text into a blob of the same bytes; a verifier that took both for the same would call that log intact.

use std::borrow::Cow;

use interlock_domain::id::Seq;
use interlock_domain::time::{Tick, Wall};
use rusqlite::types::{ToSqlOutput, Value, ValueRef};
use rusqlite::{CachedStatement, Connection};

use super::chain::Hash;
use crate::record::{COLUMNS, Canonical, NotARow, Recorded, Row, Stamp, parsed};

/// Begins every query for whole rows: the columns in their order, `hash` last.
pub(super) const SELECT: &str = r#"SELECT seq, boot_id, mono_ns, boottime_ns, wall, time_quality, run, call, task,
generation, kind, "from", "to", cause, detail, hash FROM evidence"#;

const INSERT: &str = r#"INSERT INTO evidence (seq, boot_id, mono_ns, boottime_ns, wall, time_quality, run, call, task,
generation, kind, "from", "to", cause, detail, hash) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"#;

const HASH: usize = COLUMNS.len();

/// Writes rows of one transaction.
pub(super) struct Insert<'a>(CachedStatement<'a>);

impl<'a> Insert<'a> {
    pub(super) fn new(connection: &'a Connection) -> rusqlite::Result<Insert<'a>> {
        connection.prepare_cached(INSERT).map(Insert)
    }

    /// Writes one row: the bytes that were hashed are the bytes that are stored.
    pub(super) fn write(&mut self, seq: Seq, row: &Row, canonical: &Canonical, hash: &Hash) -> rusqlite::Result<()> {
        // Numbers of rows and nanoseconds of an uptime stay below 2^63.
        let unsigned = |number: u64| Value::Integer(i64::try_from(number).unwrap_or(i64::MAX));
        for at in 0..COLUMNS.len() {
            let value = match at {
                0 => ToSqlOutput::Owned(unsigned(seq.0)),
                2 => ToSqlOutput::Owned(unsigned(row.at.mono.0)),
                3 => ToSqlOutput::Owned(unsigned(row.at.boottime_ns)),
                4 => ToSqlOutput::Owned(Value::Integer(row.at.wall.0)),
                9 => ToSqlOutput::Owned(row.generation.map_or(Value::Null, |g| Value::Integer(g.into()))),
                _ => match canonical.column(at) {
                    None => ToSqlOutput::Owned(Value::Null),
                    Some(bytes) => ToSqlOutput::Borrowed(ValueRef::Text(bytes)),
                },
            };
            self.0.raw_bind_parameter(at + 1, value)?;
        }
        self.0.raw_bind_parameter(HASH + 1, ToSqlOutput::Borrowed(ValueRef::Blob(hash)))?;
        self.0.raw_execute().map(|_| ())
    }
}

/// The canonical form of a stored row and its stored hash; strict about storage classes.
pub(super) fn canonical(row: &rusqlite::Row<'_>, into: &mut Canonical) -> Result<(i64, Hash), NotARow> {
    into.clear();
    for (at, column) in COLUMNS.into_iter().enumerate() {
        let bad = NotARow { column };
        match (at, row.get_ref(at).map_err(|_| bad)?) {
            (0 | 2 | 3 | 4 | 9, ValueRef::Integer(number)) => into.signed(at, number),
            (1 | 5..=8 | 10..=14, ValueRef::Text(text)) => into.raw(at, Some(text)),
            (6..=9 | 11..=14, ValueRef::Null) => into.text(at, None),
            (_, ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) | ValueRef::Text(_) | ValueRef::Blob(_)) => {
                return Err(bad);
            }
        }
    }
    let seq = row.get_ref(0).ok().and_then(|seq| seq.as_i64().ok()).ok_or(NotARow { column: "seq" })?;
    match row.get_ref(HASH) {
        Ok(ValueRef::Blob(hash)) => hash.try_into().map(|hash| (seq, hash)).map_err(|_| NotARow { column: "hash" }),
        Ok(ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) | ValueRef::Text(_)) | Err(_) => {
            Err(NotARow { column: "hash" })
        }
    }
}

/// A stored row as the rest of the house knows it.
pub(super) fn recorded(row: &rusqlite::Row<'_>) -> Result<Recorded, NotARow> {
    let number = |at: usize| {
        let number = row.get_ref(at).ok().and_then(|value| value.as_i64().ok());
        number.ok_or(NotARow { column: COLUMNS[at] })
    };
    let unsigned = |at: usize| u64::try_from(number(at)?).map_err(|_| NotARow { column: COLUMNS[at] });
    let optional = |at: usize| match row.get_ref(at) {
        Ok(ValueRef::Null) => Ok(None),
        Ok(ValueRef::Text(text)) => std::str::from_utf8(text).map(Some).map_err(|_| NotARow { column: COLUMNS[at] }),
        Ok(ValueRef::Integer(_) | ValueRef::Real(_) | ValueRef::Blob(_)) | Err(_) => {
            Err(NotARow { column: COLUMNS[at] })
        }
    };
    let text = |at: usize| optional(at)?.ok_or(NotARow { column: COLUMNS[at] });
    let word = |at: usize| Ok::<_, NotARow>(optional(at)?.map(|text| Cow::Owned(text.to_owned())));
    let hash = row.get_ref(HASH).ok().and_then(|hash| hash.as_blob().ok());
    Ok(Recorded {
        seq: Seq(unsigned(0)?),
        boot_id: text(1)?.to_owned(),
        row: Row {
            at: Stamp {
                mono: Tick(unsigned(2)?),
                boottime_ns: unsigned(3)?,
                wall: Wall(number(4)?),
                quality: text(5)?.parse()?,
            },
            run: parsed(COLUMNS[6], optional(6)?)?,
            call: parsed(COLUMNS[7], optional(7)?)?,
            task: parsed(COLUMNS[8], optional(8)?)?,
            generation: match row.get_ref(9) {
                Ok(ValueRef::Null) => None,
                Ok(_) | Err(_) => Some(u32::try_from(number(9)?).map_err(|_| NotARow { column: COLUMNS[9] })?),
            },
            kind: Cow::Owned(text(10)?.to_owned()),
            from: word(11)?,
            to: word(12)?,
            cause: word(13)?,
            detail: optional(14)?.map(str::to_owned),
        },
        hash: hash.and_then(|hash| hash.try_into().ok()).ok_or(NotARow { column: "hash" })?,
    })
}

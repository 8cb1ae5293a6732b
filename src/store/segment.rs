//! One file of the log: `<first-seq>.db`, a SQLite database that only ever grows.
//!
//! Two tables: `header` (signed: format, hash algorithm, what stands before the first row) and `evidence` (the rows).
//! A segment is made under another name with its header already inside and then renamed, so that a file that bears
//! a segment's name is always a segment. Nothing here deletes or updates a row.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use interlock_domain::id::Seq;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags};

use super::chain::{Algorithm, Hash, Tree};
use super::error::{Fault, StoreError};
use super::keys::{Key, PublicKey};
use super::open_calls::OpenCalls;
use crate::record::{hex, unhex};

/// The format of the files; a build refuses what is newer.
pub const FORMAT: i64 = 1;
/// "ilev": what `file(1)` and a curious person see at offset 68.
pub const APPLICATION_ID: i64 = 0x696c_6576;
/// Earlier versions can lose committed rows when a log is reset while another connection checkpoints.
const SQLITE_MIN: i32 = 3_051_003;
/// How long SQLite itself waits for a lock. Short: the writer must come back to empty its queue and to tell that it
/// stands still; it tries again by itself.
pub const BUSY: Duration = Duration::from_millis(250);
/// The largest number with which a segment can begin: SQLite's own end at 2^63, and room after it. A name beyond is not
/// of our making.
const FIRST_MAX: u64 = 1 << 62;
/// What the write-ahead log is cut back to after a checkpoint, in bytes: what lies in it before a checkpoint and, on top
/// of that, one full group. A log that is cut has to be grown again, which costs each sync a commit of the file system.
pub(super) const WAL_LEN_MAX: i64 = 6 * 1024 * 1024;

const SCHEMA: &str = r#"
CREATE TABLE header (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE evidence (
  seq INTEGER PRIMARY KEY,
  boot_id TEXT NOT NULL,
  mono_ns INTEGER NOT NULL,
  boottime_ns INTEGER NOT NULL,
  wall INTEGER NOT NULL,
  time_quality TEXT NOT NULL,
  run TEXT,
  call TEXT,
  task TEXT,
  generation INTEGER,
  kind TEXT NOT NULL,
  "from" TEXT,
  "to" TEXT,
  cause TEXT,
  detail TEXT,
  hash BLOB NOT NULL
) STRICT;
"#;

/// What a segment says about itself, under the signature of the log's key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// The hash of the chain and of the tree.
    pub algorithm: Algorithm,
    /// The number of its first row.
    pub first: Seq,
    /// The hash of the row before it.
    pub previous: Hash,
    /// The tree over all rows before it.
    pub tree: Tree,
    /// The calls that were open when it began, with the numbers of their rows.
    pub open: OpenCalls,
    /// The key that signs this log.
    pub key: PublicKey,
}

impl Header {
    fn fields(&self) -> BTreeMap<String, String> {
        let peaks: Vec<String> = self.tree.peaks().iter().map(|peak| hex(peak)).collect();
        let fields = [
            ("algorithm", self.algorithm.id().to_owned()),
            ("first_seq", self.first.0.to_string()),
            ("format", FORMAT.to_string()),
            ("open", self.open.to_json().to_string()),
            ("previous", hex(&self.previous)),
            ("public_key", hex(self.key.as_bytes())),
            ("tree", peaks.join(" ")),
            ("tree_size", self.tree.size().to_string()),
        ];
        fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }

    /// What is signed: the texts as they stand in the file, so that no later way to write a value changes it.
    fn message(fields: &BTreeMap<String, String>) -> Vec<u8> {
        let mut message = b"interlock evidence header\n".to_vec();
        for (key, value) in fields {
            for text in [key, value] {
                message.extend_from_slice(&(text.len() as u64).to_le_bytes());
                message.extend_from_slice(text.as_bytes());
            }
        }
        message
    }

    /// Reads and checks the header of an open segment.
    ///
    /// # Errors
    /// [`StoreError::NotASegment`] when something is missing, does not parse or is not signed by the key that it
    /// names; [`StoreError::Newer`] when a later build wrote it.
    pub fn read(connection: &Connection, path: &Path) -> Result<Header, StoreError> {
        let sqlite = |e| StoreError::sqlite(path, e);
        let bad = |what: &str| StoreError::NotASegment { path: path.to_owned(), what: what.to_owned() };
        let mut stored = BTreeMap::new();
        let mut statement = connection.prepare("SELECT key, value FROM header").map_err(sqlite)?;
        let mut rows = statement.query([]).map_err(sqlite)?;
        while let Some(row) = rows.next().map_err(sqlite)? {
            stored.insert(row.get::<_, String>(0).map_err(sqlite)?, row.get::<_, String>(1).map_err(sqlite)?);
        }
        let field = |key: &str| stored.get(key).map(String::as_str).ok_or_else(|| bad(&format!("no {key}")));
        let format: i64 = field("format")?.parse().map_err(|_| bad("format is no number"))?;
        if format > FORMAT {
            return Err(StoreError::Newer { path: path.to_owned(), found: format, supported: FORMAT });
        }
        let id = field("algorithm")?;
        let algorithm =
            Algorithm::of_id(id).ok_or_else(|| bad(&format!("hash algorithm {id:?} is not in this build")))?;
        let peaks: Option<Vec<Hash>> = field("tree")?.split_ascii_whitespace().map(unhex).collect();
        let tree_size = field("tree_size")?.parse().map_err(|_| bad("tree_size is no number"))?;
        let header = Header {
            algorithm,
            first: Seq(field("first_seq")?.parse().map_err(|_| bad("first_seq is no number"))?),
            previous: unhex(field("previous")?).ok_or_else(|| bad("previous is no hash"))?,
            tree: peaks.and_then(|peaks| Tree::from_parts(tree_size, peaks)).ok_or_else(|| bad("tree does not fit"))?,
            open: OpenCalls::from_json_text(field("open")?).ok_or_else(|| bad("open is no list of calls"))?,
            key: unhex(field("public_key")?)
                .and_then(|bytes| PublicKey::from_bytes(&bytes))
                .ok_or_else(|| bad("public_key is no key"))?,
        };
        let signature = unhex(field("signature")?).ok_or_else(|| bad("signature is no signature"))?;
        stored.remove("signature");
        if !header.key.signed(&Header::message(&stored), &signature) {
            return Err(bad("the signature of its header does not fit"));
        }
        Ok(header)
    }
}

/// The segment that is written.
pub(super) struct Segment {
    pub(super) path: PathBuf,
    pub(super) header: Header,
    pub(super) connection: Connection,
}

impl Segment {
    /// Makes the file of `header` in `dir`, whole and durable.
    pub(super) fn create(dir: &Path, header: &Header, key: &Key) -> Result<(), StoreError> {
        let path = dir.join(file_name(header.first));
        let new = path.with_extension("db.new");
        for leftover in [new.clone(), new.with_extension("new-journal")] {
            match fs::remove_file(&leftover) {
                Ok(()) => {}
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => return Err(StoreError::io(&leftover, e)),
            }
        }
        let sqlite = |e| StoreError::sqlite(&path, e);
        let mut connection = Connection::open(&new).map_err(sqlite)?;
        connection.pragma_update(None, "synchronous", "FULL").map_err(sqlite)?;
        let fields = header.fields();
        let signature = hex(&key.sign(&Header::message(&fields)));
        let transaction = connection.transaction().map_err(sqlite)?;
        transaction.pragma_update(None, "application_id", APPLICATION_ID).map_err(sqlite)?;
        transaction.pragma_update(None, "user_version", FORMAT).map_err(sqlite)?;
        transaction.execute_batch(SCHEMA).map_err(sqlite)?;
        for (key, value) in fields.iter().chain([(&"signature".to_owned(), &signature)]) {
            transaction.execute("INSERT INTO header VALUES (?, ?)", [key, value]).map_err(sqlite)?;
        }
        transaction.commit().map_err(sqlite)?;
        connection.close().map_err(|(_, e)| sqlite(e))?;
        let settle = || {
            fs::rename(&new, &path)?;
            File::open(dir)?.sync_all()
        };
        settle().map_err(|e| StoreError::io(&path, e))
    }

    /// Opens the segment that begins with `first` for writing, and reads back every setting that durability needs.
    pub(super) fn open(dir: &Path, first: Seq, pages_max: i64) -> Result<Segment, StoreError> {
        let path = dir.join(file_name(first));
        if !fs::metadata(&path).map_err(|e| StoreError::io(&path, e))?.is_file() {
            return Err(StoreError::NotASegment { path, what: "it is no plain file".to_owned() });
        }
        if rusqlite::version_number() < SQLITE_MIN {
            return Err(StoreError::OldSqlite { found: rusqlite::version() });
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let sqlite = |e| StoreError::sqlite(&path, e);
        let connection = Connection::open_with_flags(&path, flags).map_err(sqlite)?;
        connection.busy_timeout(BUSY).map_err(sqlite)?;
        let set = |pragma: &'static str, value: &dyn rusqlite::ToSql, wanted: &'static str| {
            let found = connection.pragma_update_and_check(None, pragma, value, text_of).map_err(sqlite)?;
            if found == wanted {
                return Ok(());
            }
            Err(StoreError::Setting { path: path.clone(), pragma, found, wanted })
        };
        set("journal_mode", &"WAL", "wal")?;
        connection.pragma_update(None, "synchronous", "FULL").map_err(sqlite)?;
        let found = connection.pragma_query_value(None, "synchronous", text_of).map_err(sqlite)?;
        if found != "2" {
            return Err(StoreError::Setting { path, pragma: "synchronous", found, wanted: "2" });
        }
        // What is being written is in the cache, and a full group must fit: pages that are spilled in the middle of a
        // transaction are written twice, and the sums of all frames behind them anew. In KiB.
        connection.pragma_update(None, "cache_size", -2000).map_err(sqlite)?;
        connection.pragma_update(None, "journal_size_limit", WAL_LEN_MAX).map_err(sqlite)?;
        connection.pragma_update(None, "max_page_count", pages_max).map_err(sqlite)?;
        connection.pragma_update(None, "cell_size_check", true).map_err(sqlite)?;
        let format: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(sqlite)?;
        if format > FORMAT {
            return Err(StoreError::Newer { path, found: format, supported: FORMAT });
        }
        let header = Header::read(&connection, &path)?;
        if header.first != first {
            return Err(StoreError::NotASegment { path, what: format!("its first row is {}", header.first.0) });
        }
        Ok(Segment { path, header, connection })
    }

    /// How large the file is, without its write-ahead log.
    pub(super) fn len(&self) -> rusqlite::Result<u64> {
        let number = |pragma| self.connection.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0));
        Ok(u64::try_from(number("page_count")?).unwrap_or(0) * u64::try_from(number("page_size")?).unwrap_or(0))
    }

    /// Makes everything durable in the file itself. Past a failed sync this is what saves the rows: what the kernel
    /// dropped from the write-ahead log is read back from where it still stands and written again.
    pub(super) fn settle(&self) -> Result<(), Fault> {
        let checkpoint = "PRAGMA wal_checkpoint(TRUNCATE)";
        let busy: i64 = self.connection.query_row(checkpoint, [], |row| row.get(0)).map_err(|e| Fault::of(&e))?;
        if busy == 0 { Ok(()) } else { Err(Fault::Locked) }
    }

    /// Moves everything into the file itself and makes it a plain file without companions: it is never written again,
    /// and can then be read where nothing can be written.
    pub(super) fn rest(self) -> rusqlite::Result<()> {
        let _: String = self.connection.pragma_update_and_check(None, "journal_mode", "DELETE", text_of)?;
        self.connection.close().map_err(|(_, e)| e)
    }
}

/// How long the write-ahead log of a segment is, in bytes; 0 where there is none.
pub(super) fn wal_len(segment: &Path) -> u64 {
    let mut wal = segment.as_os_str().to_owned();
    wal.push("-wal");
    fs::metadata(wal).map_or(0, |meta| meta.len())
}

/// The name of the segment that begins with `first`.
#[must_use]
pub fn file_name(first: Seq) -> String {
    format!("{}.db", first.0)
}

/// The first numbers of all segments in `dir`, in order.
///
/// # Errors
/// When the directory cannot be read.
pub fn list(dir: &Path) -> Result<Vec<Seq>, StoreError> {
    let io = |e| StoreError::io(dir, e);
    let mut firsts = Vec::new();
    for entry in fs::read_dir(dir).map_err(io)? {
        let name = entry.map_err(io)?.file_name();
        if let Some(first) = name.to_str().and_then(first_of) {
            firsts.push(first);
        }
    }
    firsts.sort_unstable();
    Ok(firsts)
}

/// The first number that a file name promises, if it is a segment's name.
#[must_use]
pub fn first_of(name: &str) -> Option<Seq> {
    let first: u64 = name.strip_suffix(".db")?.parse().ok()?;
    (file_name(Seq(first)) == name && (1..=FIRST_MAX).contains(&first)).then_some(Seq(first))
}

fn text_of(row: &rusqlite::Row<'_>) -> rusqlite::Result<String> {
    Ok(match row.get_ref(0)? {
        ValueRef::Integer(number) => number.to_string(),
        ValueRef::Text(text) => String::from_utf8_lossy(text).into_owned(),
        ValueRef::Null | ValueRef::Real(_) | ValueRef::Blob(_) => String::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_number_is_a_segment() {
        assert_eq!(first_of("1.db"), Some(Seq(1)));
        for name in [
            "0.db",
            "01.db",
            "+1.db",
            "1.db-wal",
            "1.db.new",
            "a.db",
            ".db",
            "18446744073709551615.db",
            "18446744073709551616.db",
        ] {
            assert_eq!(first_of(name), None, "{name}");
        }
    }

    #[test]
    fn a_header_comes_back_and_any_change_of_it_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        let key = Key::of_state(dir.path()).unwrap();
        let mut tree = Tree::default();
        (0..5).for_each(|i| tree.push(Algorithm::Sha256, [i; 32]));
        let header = Header {
            algorithm: Algorithm::Sha256,
            first: Seq(6),
            previous: [4; 32],
            tree,
            open: OpenCalls::from_json_text(r#"{"01KBA6AK800000000000000007.3.0":[2,5]}"#).unwrap(),
            key: key.public(),
        };
        Segment::create(dir.path(), &header, &key).unwrap();
        assert_eq!(list(dir.path()).unwrap(), [Seq(6)]);
        let segment = Segment::open(dir.path(), Seq(6), 1000).unwrap();
        assert_eq!(segment.header, header);
        for (key, value) in [("previous", hex(&[5; 32])), ("tree_size", "6".into()), ("open", "{}".into())] {
            segment.connection.execute("SAVEPOINT s", []).unwrap();
            segment.connection.execute("UPDATE header SET value = ? WHERE key = ?", [value.as_str(), key]).unwrap();
            assert!(Header::read(&segment.connection, &segment.path).is_err(), "{key}");
            segment.connection.execute_batch("ROLLBACK TO s; RELEASE s").unwrap();
        }
        segment.connection.execute("UPDATE header SET value = '9' WHERE key = 'format'", []).unwrap();
        assert!(matches!(Header::read(&segment.connection, &segment.path), Err(StoreError::Newer { found: 9, .. })));
    }
}

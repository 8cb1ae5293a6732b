//! The log itself, without threads: opens it, adds rows in groups, starts the next segment.
//!
//! A group is one transaction; what is not committed has left no trace in here either, so that the same group can be
//! tried again. After an I/O error this value must be dropped and opened anew: the kernel may have thrown away what
//! was not synced and would report success the next time. Nothing is ever deleted or overwritten, except the head.

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use interlock_domain::id::Seq;
use rusqlite::TransactionBehavior;
use rusqlite::config::DbConfig;
use serde_json::{Value, json};

use super::chain::{Algorithm, Hash, START, Tree};
use super::error::{Fault, StoreError};
use super::head::{self, Head, HeadFile, Heads};
use super::keys::Key;
use super::open_calls::OpenCalls;
use super::row::{self, Insert, SELECT};
use super::segment::{self, Header, Segment};
use super::{Limits, Settings};
use crate::record::{Canonical, Recorded, Row, Stamp, hex, kind, unhex};

/// A start reads at most this many rows plus one group: a few milliseconds.
const MARK_EVERY: u64 = 4096;

/// What a start found, before it wrote anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// There was no log.
    Fresh,
    /// The log reaches its head, or passes it by rows that were committed and not yet told.
    Whole {
        /// How many rows it has beyond the head.
        beyond: u64,
    },
    /// Rows that the head vouches for are not there.
    TailLost {
        /// How many.
        lost: u64,
    },
    /// There are rows and no head to hold them against.
    HeadMissing,
    /// A row does not fit the chain or the head.
    Altered {
        /// The first such row.
        first_bad: Seq,
    },
}

impl Standing {
    /// For the boot row.
    fn to_json(self) -> Value {
        match self {
            Standing::Fresh => json!({ "found": "fresh" }),
            Standing::Whole { beyond } => json!({ "found": "whole", "beyond_head": beyond }),
            Standing::TailLost { lost } => json!({ "found": "tail_lost", "lost": lost }),
            Standing::HeadMissing => json!({ "found": "head_missing" }),
            Standing::Altered { first_bad } => json!({ "found": "altered", "first_bad": first_bad.0 }),
        }
    }
}

/// How the log was used before it is opened.
#[derive(Debug, Clone, Copy)]
enum Past {
    /// The process that wrote it ended.
    Ended,
    /// A write or a sync of this process went wrong.
    Failed,
}

/// Where the chain stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) seq: Seq,
    pub(super) hash: Hash,
    pub(super) tree: Tree,
}

/// The log, open for writing.
pub(super) struct Log {
    dir: PathBuf,
    key: Key,
    boot_id: String,
    clock: fn() -> Stamp,
    limits: Limits,
    segment: Segment,
    /// About how long the segment is, counted from its length at opening.
    segment_len: u64,
    /// The last row of the segment says that it is closed.
    closed: bool,
    last: Position,
    open: OpenCalls,
    marked: Seq,
    head: HeadFile,
    head_fault: Option<Fault>,
    canonical: Canonical,
}

/// What was found on opening.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Found {
    pub(super) standing: Standing,
    pub(super) head: Option<Head>,
    pub(super) open_calls: Vec<Recorded>,
}

impl Log {
    /// Opens the log of a state directory, or makes it. Writes no row; the caller writes the boot row that tells what
    /// was found.
    pub(super) fn open(settings: &Settings) -> Result<(Log, Found), StoreError> {
        Log::open_as(settings, Past::Ended)
    }

    /// Opens the log again after a fault: as [`Log::open`], but nothing counts that is not surely on the disk.
    pub(super) fn reopen(settings: &Settings) -> Result<(Log, Found), StoreError> {
        Log::open_as(settings, Past::Failed)
    }

    fn open_as(settings: &Settings, past: Past) -> Result<(Log, Found), StoreError> {
        let dir = settings.state.join("evidence");
        fs::DirBuilder::new().recursive(true).mode(0o750).create(&dir).map_err(|e| StoreError::io(&dir, e))?;
        let key = Key::of_state(&settings.state)?;
        let heads = head::read(&dir, &key.public()).map_err(|e| StoreError::io(&head::path(&dir), e))?;
        let signed = heads.newest();
        let firsts = segment::list(&dir)?;
        let first = match firsts.last() {
            Some(first) => *first,
            None => {
                // Numbers are never used twice, not even those of a log that is gone.
                let previous = signed.unwrap_or(head::NOTHING);
                let header = Header {
                    algorithm: Algorithm::Sha256,
                    first: Seq(previous.seq.0 + 1),
                    previous: previous.hash,
                    tree: Tree::default(),
                    open: OpenCalls::default(),
                    key: key.public(),
                };
                Segment::create(&dir, &header, &key)?;
                header.first
            }
        };
        let segment = Segment::open(&dir, first, settings.limits.pages_max())?;
        match (segment.settle(), past) {
            // A reader keeps the file busy; what was synced before is safe where it is.
            (Ok(()), _) | (Err(Fault::Locked), Past::Ended) => {}
            (Err(fault), _) => return Err(StoreError::NotWritable { path: segment.path, fault }),
        }
        let tail = Tail::read(&segment)?;
        let standing = stand(&dir, heads, firsts.is_empty(), &tail)?;
        let mut last = tail.last;
        if let (Standing::TailLost { .. }, Some(head)) = (standing, signed) {
            last.seq = head.seq;
        }
        let open_calls = fetch(&dir, &segment, &tail.open.rows())?;
        let wall = (settings.clock)().wall;
        let head = HeadFile::start(&dir, &key, &Head { seq: last.seq, hash: last.hash, wall })
            .map_err(|e| StoreError::io(&head::path(&dir), e))?;
        let segment_len = segment.len().map_err(|e| StoreError::sqlite(&segment.path, e))?;
        let log = Log {
            dir,
            key,
            boot_id: settings.boot_id.clone(),
            clock: settings.clock,
            limits: settings.limits,
            segment_len,
            closed: tail.closed,
            marked: tail.marked,
            last,
            open: tail.open,
            head,
            head_fault: None,
            canonical: Canonical::default(),
            segment,
        };
        Ok((log, Found { standing, head: signed, open_calls }))
    }

    /// Writes the row that begins a life of the daemon.
    ///
    /// # Errors
    /// As [`Log::commit`].
    pub(super) fn boot(&mut self, version: &str, found: &Found) -> Result<Seq, Fault> {
        self.make_room()?;
        let mut detail = json!({
            "version": version,
            "head": found.head.map(|head| json!({ "seq": head.seq.0, "hash": hex(&head.hash) })),
        });
        merge(&mut detail, found.standing.to_json());
        merge(&mut detail, self.rest_point());
        // Not cut like other details: the next start needs it whole.
        let row = Row { detail: Some(detail.to_string()), ..Row::new((self.clock)(), kind::BOOT) };
        self.add(std::iter::once(&row))?;
        self.marked = self.last.seq;
        Ok(self.last.seq)
    }

    /// Adds `rows` as one transaction and returns the number of the first; the others follow it one by one. When this
    /// returns, the rows are durable and the head vouches for them.
    ///
    /// # Errors
    /// The reason why nothing was added. After [`Fault::Io`] and [`Fault::Damaged`] this log must not be used again.
    pub(super) fn commit<'a>(&mut self, rows: impl Iterator<Item = &'a Row> + Clone) -> Result<Seq, Fault> {
        self.make_room()?;
        let first = Seq(self.last.seq.0 + 1);
        if self.last.seq.0.saturating_sub(self.marked.0) < MARK_EVERY {
            self.add(rows)?;
            return Ok(first);
        }
        let mark = Row { detail: Some(self.rest_point().to_string()), ..Row::new((self.clock)(), kind::MARK) };
        self.add(std::iter::once(&mark).chain(rows.map(|row| -> &Row { row })))?;
        self.marked = first;
        Ok(Seq(first.0 + 1))
    }

    fn make_room(&mut self) -> Result<(), Fault> {
        let full = self.segment_len >= self.limits.segment_len_max;
        // A new key signs a segment of its own.
        let foreign = self.segment.header.key != self.key.public();
        if self.closed || full || foreign { self.next_segment() } else { Ok(()) }
    }

    fn add<'a>(&mut self, rows: impl Iterator<Item = &'a Row> + Clone) -> Result<(), Fault> {
        let mut next = self.last.clone();
        let mut len = 0;
        let algorithm = self.segment.header.algorithm;
        let mut write = || {
            let connection = &mut self.segment.connection;
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            {
                let mut insert = Insert::new(&transaction)?;
                for row in rows.clone() {
                    next.seq.0 += 1;
                    self.canonical.write(next.seq, &self.boot_id, row);
                    next.hash = algorithm.row(&next.hash, self.canonical.bytes());
                    next.tree.push(algorithm, next.hash);
                    insert.write(next.seq, row, &self.canonical, &next.hash)?;
                    len += self.canonical.bytes().len() as u64;
                }
            }
            transaction.commit()
        };
        write().map_err(|e| Fault::of(&e))?;
        for (seq, row) in (self.last.seq.0 + 1..).zip(rows) {
            self.open.note(Seq(seq), row);
        }
        self.last = next;
        self.segment_len += len;
        let head = Head { seq: self.last.seq, hash: self.last.hash, wall: (self.clock)().wall };
        self.head_fault = self.head.write(&self.key, &head).err().map(|_| Fault::Head);
        Ok(())
    }

    /// Closes the segment with a last row of its own and begins the next one.
    fn next_segment(&mut self) -> Result<(), Fault> {
        if !self.closed {
            let detail = json!({ "first": self.segment.header.first.0, "last": self.last.seq.0 + 1 });
            let row = Row::new((self.clock)(), kind::SEGMENT_CLOSED).detailed(&detail);
            self.add(std::iter::once(&row))?;
            self.closed = true;
        }
        let header = Header {
            algorithm: self.segment.header.algorithm,
            first: Seq(self.last.seq.0 + 1),
            previous: self.last.hash,
            tree: self.last.tree.clone(),
            open: self.open.clone(),
            key: self.key.public(),
        };
        Segment::create(&self.dir, &header, &self.key).map_err(|e| Fault::of_open(&e))?;
        let next = Segment::open(&self.dir, header.first, self.limits.pages_max()).map_err(|e| Fault::of_open(&e))?;
        self.segment_len = next.len().map_err(|e| Fault::of(&e))?;
        let old = std::mem::replace(&mut self.segment, next);
        self.closed = false;
        self.marked = self.last.seq;
        // A reader may hold it; a segment with its companions reads just as well.
        match old.rest() {
            Ok(()) => {}
            Err(e) if Fault::of(&e) == Fault::Locked => {}
            Err(e) => return Err(Fault::of(&e)),
        }
        self.head.sync().map_err(|_| Fault::Head)
    }

    /// What the next start needs so that it has not to read the whole log.
    fn rest_point(&self) -> Value {
        let peaks: Vec<String> = self.last.tree.peaks().iter().map(|peak| hex(peak)).collect();
        json!({ "open": self.open.to_json(), "tree": { "size": self.last.tree.size(), "peaks": peaks } })
    }

    /// The last row.
    pub(super) fn last(&self) -> &Position {
        &self.last
    }

    /// Whether the last head could not be written.
    pub(super) fn head_fault(&self) -> Option<Fault> {
        self.head_fault
    }

    /// The rows after `seq`, in order.
    pub(super) fn after(&self, seq: Seq) -> Result<Vec<Recorded>, StoreError> {
        select(&self.segment, &format!("{SELECT} WHERE seq > ? ORDER BY seq"), seq)
    }

    /// Lets go of the handle without another write through it: a checkpoint on closing would trust what the disk did
    /// not take.
    pub(super) fn abandon(self) {
        // If this setting were not taken, closing would write rows that are durable already; nothing is lost.
        drop(self.segment.connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true));
    }

    /// The log rests. Its rows are durable already: what can go wrong here is the sync of the head, and an older head
    /// is a true one; or the last checkpoint, which the next start makes.
    pub(super) fn close(self) {
        let _ = self.head.sync();
        let _ = self.segment.connection.close();
    }
}

fn merge(into: &mut Value, from: Value) {
    if let (Value::Object(into), Value::Object(from)) = (into, from) {
        into.extend(from);
    }
}

/// The end of a segment, from its last resting point on.
struct Tail {
    last: Position,
    open: OpenCalls,
    marked: Seq,
    closed: bool,
    /// The first row here whose hash does not fit.
    first_bad: Option<Seq>,
}

impl Tail {
    fn read(segment: &Segment) -> Result<Tail, StoreError> {
        let header = &segment.header;
        let before = Seq(header.first.0 - 1);
        let mut tail = Tail {
            last: Position { seq: before, hash: header.previous, tree: header.tree.clone() },
            open: header.open.clone(),
            marked: before,
            closed: false,
            first_bad: None,
        };
        let mut from = Seq(0);
        if let Some((mark, hash_before, open, tree)) = rest_point(segment)? {
            from = mark;
            tail.last = Position { seq: Seq(mark.0 - 1), hash: hash_before, tree };
            tail.open = open;
            tail.marked = mark;
        }
        let sqlite = |e| StoreError::sqlite(&segment.path, e);
        let mut statement =
            segment.connection.prepare(&format!("{SELECT} WHERE seq >= ? ORDER BY seq")).map_err(sqlite)?;
        let mut rows = statement.query([sql(from)]).map_err(sqlite)?;
        let mut canonical = Canonical::default();
        while let Some(stored) = rows.next().map_err(sqlite)? {
            let not_a_row = |source| StoreError::Row { path: segment.path.clone(), seq: -1, source };
            let (_, hash) = row::canonical(stored, &mut canonical).map_err(not_a_row)?;
            let recorded = row::recorded(stored).map_err(not_a_row)?;
            let fits = header.algorithm.row(&tail.last.hash, canonical.bytes()) == hash;
            if !fits && tail.first_bad.is_none() {
                tail.first_bad = Some(recorded.seq);
            }
            tail.last.seq = recorded.seq;
            tail.last.hash = hash;
            tail.last.tree.push(header.algorithm, hash);
            tail.open.note(recorded.seq, &recorded.row);
            tail.closed = recorded.row.kind == kind::SEGMENT_CLOSED;
        }
        Ok(tail)
    }
}

/// The newest row that holds a resting point: its number, the hash before it, and what it holds.
fn rest_point(segment: &Segment) -> Result<Option<(Seq, Hash, OpenCalls, Tree)>, StoreError> {
    let newest = format!("{SELECT} WHERE seq <= ? AND kind IN ('boot', 'mark') ORDER BY seq DESC LIMIT 1");
    let Some(mark) = select(segment, &newest, Seq(i64::MAX as u64))?.pop() else { return Ok(None) };
    let before = select(segment, &format!("{SELECT} WHERE seq < ? ORDER BY seq DESC LIMIT 1"), mark.seq)?.pop();
    let parse = || {
        let detail: Value = serde_json::from_str(mark.row.detail.as_deref()?).ok()?;
        let open = OpenCalls::from_json(detail.get("open")?)?;
        let tree = detail.get("tree")?;
        let peaks: Option<Vec<Hash>> =
            tree.get("peaks")?.as_array()?.iter().map(|peak| unhex(peak.as_str()?)).collect();
        Some((open, Tree::from_parts(tree.get("size")?.as_u64()?, peaks?)?))
    };
    let hash = before.map_or(segment.header.previous, |row| row.hash);
    Ok(parse().map(|(open, tree)| (mark.seq, hash, open, tree)))
}

/// Holds the end of the log against its head.
fn stand(dir: &Path, heads: Heads, fresh: bool, tail: &Tail) -> Result<Standing, StoreError> {
    let seq = tail.last.seq;
    if let Some(first_bad) = tail.first_bad {
        return Ok(Standing::Altered { first_bad });
    }
    let Some(head) = heads.newest() else {
        return Ok(if fresh || seq == Seq(0) { Standing::Fresh } else { Standing::HeadMissing });
    };
    if fresh && head.seq.0 > 0 {
        return Ok(Standing::TailLost { lost: head.seq.0 });
    }
    if head.seq > seq {
        return Ok(Standing::TailLost { lost: head.seq.0 - seq.0 });
    }
    let hash = if head.seq == Seq(0) { Some(START) } else { hash_at(dir, head.seq)? };
    // The head of an empty segment vouches for the row before it.
    let fits = hash == Some(head.hash) || (head.seq == seq && tail.last.hash == head.hash);
    Ok(if fits { Standing::Whole { beyond: seq.0 - head.seq.0 } } else { Standing::Altered { first_bad: head.seq } })
}

fn hash_at(dir: &Path, seq: Seq) -> Result<Option<Hash>, StoreError> {
    Ok(super::read::show(dir, seq)?.map(|recorded| recorded.hash))
}

/// The rows of open calls, wherever they are; copies that were carried forward are told as what they are copies of.
fn fetch(dir: &Path, segment: &Segment, seqs: &[Seq]) -> Result<Vec<Recorded>, StoreError> {
    let mut found = Vec::new();
    for seq in seqs {
        let recorded = if *seq >= segment.header.first {
            select(segment, &format!("{SELECT} WHERE seq = ?"), *seq)?.pop()
        } else {
            super::read::show(dir, *seq)?
        };
        // A row that is gone was lost with its file, which the verifier tells; repair works with what is left.
        found.extend(recorded.map(original));
    }
    Ok(found)
}

fn original(recorded: Recorded) -> Recorded {
    if recorded.row.kind != kind::CARRIED {
        return recorded;
    }
    let detail: Option<Value> = recorded.row.detail.as_deref().and_then(|text| serde_json::from_str(text).ok());
    let copied = detail.and_then(|detail| Recorded::from_json(detail.get("row")?).ok());
    copied.unwrap_or(recorded)
}

fn select(segment: &Segment, query: &str, seq: Seq) -> Result<Vec<Recorded>, StoreError> {
    let sqlite = |e| StoreError::sqlite(&segment.path, e);
    let mut statement = segment.connection.prepare_cached(query).map_err(sqlite)?;
    let mut rows = statement.query([sql(seq)]).map_err(sqlite)?;
    let mut found = Vec::new();
    while let Some(stored) = rows.next().map_err(sqlite)? {
        let seq = stored.get(0).unwrap_or(-1);
        let recorded = row::recorded(stored);
        found.push(recorded.map_err(|source| StoreError::Row { path: segment.path.clone(), seq, source })?);
    }
    Ok(found)
}

fn sql(seq: Seq) -> i64 {
    i64::try_from(seq.0).unwrap_or(i64::MAX)
}

//! The log itself, without threads: opens it, adds rows in groups, starts the next segment.
//!
//! A group is one transaction; what is not committed has left no trace in here either, so that the same group can be
//! tried again. After an I/O error this value must be dropped and opened anew: the kernel may have thrown away what
//! was not synced and would report success the next time. Nothing is ever deleted or overwritten, except the head.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use interlock_domain::id::Seq;
use interlock_domain::time::Tick;
use rusqlite::TransactionBehavior;
use rusqlite::config::DbConfig;
use serde_json::{Value, json};

use super::Limits;
use super::chain::{Hash, Tree};
use super::checkpoint::{Checkpoint, Checkpoints};
use super::error::{Fault, StoreError};
use super::head::{Head, HeadFile};
use super::keys::Key;
use super::open_calls::OpenCalls;
use super::row::{Insert, SELECT};
use super::segment::{self, Header, Segment};
use super::signing::{Signer, Signs, Wanted};
use crate::record::{Canonical, Recorded, Row, Stamp, hex, kind};

mod opening;
mod retention;

pub(super) use opening::{Past, Quarantined};

/// A start reads at most this many rows plus one group: a few milliseconds.
const MARK_EVERY: u64 = 4096;
/// The length of the write-ahead log is looked at once in so many rows: a look costs as much as a row.
const WAL_LOOK_EVERY: u64 = 32;
/// A checkpoint is written once so many rows are beyond the last one …
const CHECKPOINT_ROWS: u64 = 64;
/// … or after this time, if there is any row beyond it.
const CHECKPOINT_TIME: Duration = Duration::from_secs(60);

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
    /// The newest segment could not be read and was moved aside; a new one names the old head.
    Quarantined {
        /// The first row of the damaged segment.
        first: Seq,
    },
    /// The log can neither be read nor written at the moment. The boot row is written when it can; what is open is
    /// found by the next start.
    Unreachable {
        /// Why.
        fault: Fault,
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
            Standing::Quarantined { first } => json!({ "found": "quarantined", "first": first.0 }),
            Standing::Unreachable { fault } => json!({ "found": "unreachable", "fault": fault.code() }),
        }
    }
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
    key: Arc<Key>,
    signer: Signer,
    boot_id: String,
    clock: fn() -> Stamp,
    limits: Limits,
    segment: Segment,
    /// Segments that a reader kept from becoming plain files, and when that was last tried.
    left_open: Vec<Seq>,
    left_tried: Tick,
    /// The last row at which the length of the write-ahead log was looked at.
    wal_looked: Seq,
    /// About how long the segment is, counted from its length at opening.
    segment_len: u64,
    /// The last row of the segment says that it is closed.
    closed: bool,
    last: Position,
    open: OpenCalls,
    marked: Seq,
    head: HeadFile,
    checkpoints: Checkpoints,
    /// When the last checkpoint was written.
    checkpointed: Tick,
    /// The head or a checkpoint could not be written.
    signs_fault: Option<Fault>,
    /// The head and the checkpoints have changed since they were synced.
    unsynced: bool,
    /// When they were synced.
    synced: Tick,
    canonical: Canonical,
}

/// What was found on opening.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Found {
    pub(super) standing: Standing,
    pub(super) head: Option<Head>,
    pub(super) open_calls: Vec<Recorded>,
    /// Whether the run before ended in order; none where there was none, or its end cannot be told.
    pub(super) ended: Option<bool>,
}

impl Log {
    /// Writes the row that begins a life of the daemon.
    ///
    /// # Errors
    /// As [`Log::commit`].
    pub(super) fn boot(&mut self, version: &str, found: &Found) -> Result<Seq, Fault> {
        self.make_room()?;
        let mut detail = json!({
            "version": version,
            "head": opening::head_json(found.head),
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
        let foreign = opening::is_foreign(&self.segment, &self.key.public());
        let pinned = self.pinned();
        if self.closed || full || foreign || pinned.is_some() {
            self.next_segment()?;
            self.retain()?;
        }
        if let Some(bytes) = pinned {
            let detail = json!({ "bytes": bytes, "limit": segment::WAL_LEN_MAX });
            self.add(std::iter::once(&Row::new((self.clock)(), kind::WAL_LARGE).detailed(&detail)))?;
        }
        Ok(())
    }

    /// How long the write-ahead log is, when somebody reads so long that it grows without bound: the rows then go on in
    /// a segment of their own, with a log of its own.
    fn pinned(&mut self) -> Option<u64> {
        if self.last.seq.0 < self.wal_looked.0 + WAL_LOOK_EVERY {
            return None;
        }
        self.wal_looked = self.last.seq;
        let bytes = segment::wal_len(&self.segment.path);
        (bytes > 2 * segment::WAL_LEN_MAX.unsigned_abs()).then_some(bytes)
    }

    fn add<'a>(&mut self, rows: impl Iterator<Item = &'a Row> + Clone) -> Result<(), Fault> {
        let mut next = self.last.clone();
        let mut len = 0;
        let now = (self.clock)();
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
            // Signed while the disk syncs, and written only after that.
            let head = Head { seq: next.seq, hash: next.hash, wall: now.wall };
            let due = is_due(next.tree.size(), self.checkpoints.size, now.mono.since(self.checkpointed));
            self.signer.ask(Wanted { head, tree: due.then(|| (algorithm, next.tree.clone())) });
            transaction.commit()
        };
        if let Err(e) = write() {
            self.signer.forget();
            return Err(Fault::of(&e));
        }
        for (seq, row) in (self.last.seq.0 + 1..).zip(rows) {
            self.open.note(Seq(seq), row);
        }
        self.last = next;
        self.segment_len += len;
        let signed = self.signer.take().map_or(Ok(()), |signs| self.put(&signs, now));
        self.signs_fault = signed.err().map(|_| Fault::Head);
        self.unsynced = true;
        Ok(())
    }

    fn put(&mut self, signs: &Signs, now: Stamp) -> std::io::Result<()> {
        self.head.put(&signs.head)?;
        let Some((size, note)) = &signs.checkpoint else { return Ok(()) };
        self.checkpointed = now.mono;
        self.checkpoints.put(*size, note)
    }

    fn checkpoint(&self) -> Checkpoint {
        let root = self.last.tree.root(self.segment.header.algorithm);
        Checkpoint { size: self.last.tree.size(), root, seq: self.last.seq }
    }

    fn add_checkpoint(&mut self, now: Stamp) -> std::io::Result<()> {
        self.checkpointed = now.mono;
        let checkpoint = self.checkpoint();
        self.checkpoints.add(&checkpoint, &self.key)
    }

    /// Nothing came for a while. The head and the checkpoints are true without being synced, so that this is done once
    /// in a minute and not after each burst: flash wears out.
    pub(super) fn rest(&mut self) {
        let now = (self.clock)();
        if self.unsynced && now.mono.since(self.synced) >= CHECKPOINT_TIME {
            self.sync_signs(now);
        }
        self.rest_left_open(now.mono);
    }

    /// A reader that held an older segment may have gone: then it becomes a plain file now.
    fn rest_left_open(&mut self, now: Tick) {
        let Some(first) = self.left_open.first().copied() else { return };
        if now.since(self.left_tried) < CHECKPOINT_TIME {
            return;
        }
        self.left_tried = now;
        let rested = Segment::open(&self.dir, first, self.limits.pages_max()).map(|segment| segment.rest().is_ok());
        // One that cannot be opened is the verifier's to tell of, or is unlinked already.
        if rested.unwrap_or(true) {
            self.left_open.remove(0);
        }
    }

    /// Vouches for everything that is written, durably.
    fn sync_signs(&mut self, now: Stamp) {
        let beyond = self.last.tree.size() > self.checkpoints.size;
        let added = if beyond { self.add_checkpoint(now) } else { Ok(()) };
        let synced = added.and_then(|()| self.head.sync()).and_then(|()| self.checkpoints.sync());
        self.signs_fault = synced.err().map(|_| Fault::Head);
        self.unsynced = self.signs_fault.is_some();
        self.synced = now.mono;
    }

    /// Tells that a segment was moved aside: the first row of the new one.
    fn tell_quarantine(&mut self, moved: &Quarantined, head: Option<Head>) -> Result<(), Fault> {
        let detail = json!({
            "file": moved.file,
            "first": moved.first.0,
            "why": moved.why,
            "head": opening::head_json(head),
        });
        let row = Row::new((self.clock)(), kind::QUARANTINED).detailed(&detail);
        self.add(std::iter::once(&row))
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
        let left = old.header.first;
        self.closed = false;
        self.marked = self.last.seq;
        // A reader may hold it; a segment with its companions reads just as well.
        match old.rest() {
            Ok(()) => {}
            Err(e) if Fault::of(&e) == Fault::Locked => self.left_open.push(left),
            Err(e) => return Err(Fault::of(&e)),
        }
        let firsts = segment::list(&self.dir).map_err(|e| Fault::of_open(&e))?;
        let checkpoint = self.checkpoint();
        let closed = self.checkpoints.close_segment(&checkpoint, &firsts, &self.key);
        closed.and_then(|()| self.head.sync()).map_err(|_| Fault::Head)
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

    /// Whether the last head or checkpoint could not be written.
    pub(super) fn signs_fault(&self) -> Option<Fault> {
        self.signs_fault
    }

    /// The rows after `seq`, in order.
    pub(super) fn after(&self, seq: Seq) -> Result<Vec<Recorded>, StoreError> {
        opening::select(&self.segment, &format!("{SELECT} WHERE seq > ? ORDER BY seq"), seq)
    }

    /// Lets go of the handle without another write through it: a checkpoint on closing would trust what the disk did
    /// not take.
    pub(super) fn abandon(self) {
        // If this setting were not taken, closing would write rows that are durable already; nothing is lost.
        drop(self.segment.connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true));
    }

    /// The log rests. Its rows are durable already: what can go wrong here is the last checkpoint of SQLite, which the
    /// next start makes, and the sync of the head, and an older head is a true one.
    pub(super) fn close(mut self) {
        self.sync_signs((self.clock)());
        let _ = self.segment.connection.close();
    }
}

/// Whether rows wait for a checkpoint: too many, or any for too long.
fn is_due(rows: u64, checkpointed: u64, since: Duration) -> bool {
    let beyond = rows.saturating_sub(checkpointed);
    beyond >= CHECKPOINT_ROWS || (beyond > 0 && since >= CHECKPOINT_TIME)
}

fn merge(into: &mut Value, from: Value) {
    if let (Value::Object(into), Value::Object(from)) = (into, from) {
        into.extend(from);
    }
}

//! How a log is opened: where it stands, what is open, and what to do with a file that is damaged.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use interlock_domain::id::Seq;
use serde_json::Value;

use super::super::chain::{Hash, START, Tree};
use super::super::checkpoint::{self, Checkpoints};
use super::super::error::{Fault, StoreError};
use super::super::head::{self, Head, HeadFile, Heads};
use super::super::keys::{Key, PublicKey};
use super::super::open_calls::OpenCalls;
use super::super::row::{self, SELECT};
use super::super::segment::{self, Header, Segment};
use super::super::signing::Signer;
use super::super::{Settings, read};
use super::{Found, Log, Position, Standing};
use crate::record::{Canonical, Recorded, kind, unhex};

/// Where damaged segments go. Nothing in it is ever deleted.
const QUARANTINE: &str = "quarantine";
/// A number that no row of a damaged segment can have reached, counted from its first: a row takes over 128 bytes of
/// a file of 64 MB.
const ROWS_PER_SEGMENT_MAX: u64 = 1 << 20;

/// How the log was used before it is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store) enum Past {
    /// The process that wrote it ended.
    Ended,
    /// A write or a sync of this process went wrong.
    Failed,
    /// SQLite found the newest segment damaged while it wrote, and opening it again did not help.
    Damaged,
}

/// A segment that was moved aside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::store) struct Quarantined {
    /// Its name in the quarantine.
    pub(in crate::store) file: String,
    /// The first of its rows.
    pub(in crate::store) first: Seq,
    /// What was wrong with it.
    pub(in crate::store) why: String,
}

impl Log {
    /// Opens the log of a state directory, or makes it. Writes no row; the caller writes the row that tells what was
    /// found.
    pub(in crate::store) fn open(settings: &Settings, past: Past) -> Result<(Log, Found), StoreError> {
        let dir = settings.state.join("evidence");
        fs::DirBuilder::new().recursive(true).mode(0o750).create(&dir).map_err(|e| StoreError::io(&dir, e))?;
        let key = Arc::new(Key::of_state(&settings.state)?);
        sync_names(&settings.state)?;
        for name in [head::path(&dir), checkpoint::path(&dir)] {
            put_aside_unless_file(settings, &dir, &name)?;
        }
        let heads = head::read(&dir, &key.public()).map_err(|e| StoreError::io(&head::path(&dir), e))?;
        let firsts = segment::list(&dir)?;
        if let Some((_, older)) = firsts.split_last() {
            older.iter().try_for_each(|first| put_to_rest(settings, &dir, *first))?;
        }
        let newest = firsts.last().map(|first| newest(settings, &dir, *first, past)).transpose();
        let (segment, tail, quarantined) = match newest {
            Ok(Some((segment, tail))) => (segment, tail, None),
            Ok(None) => {
                let (segment, tail) = begin(settings, &dir, &key, heads, Seq(1))?;
                (segment, tail, None)
            }
            Err(e) => {
                let (Some(first), true) = (firsts.last(), is_damage(&e)) else { return Err(e) };
                let moved = set_aside(settings, &dir, *first, e.to_string())?;
                let after = Seq(first.0 + ROWS_PER_SEGMENT_MAX);
                let (segment, tail) = begin(settings, &dir, &key, heads, after)?;
                (segment, tail, Some(moved))
            }
        };
        let standing = match &quarantined {
            Some(moved) => Standing::Quarantined { first: moved.first },
            None => stand(&dir, heads, firsts.is_empty(), &tail)?,
        };
        let ended = (!firsts.is_empty()).then_some(tail.ended && quarantined.is_none());
        let mut last = tail.last;
        if let (Standing::TailLost { .. }, Some(head)) = (standing, heads.newest()) {
            last.seq = head.seq;
        }
        let open_calls = fetch(&dir, &segment, &tail.open.rows())?;
        let fresh = standing == Standing::Fresh;
        let head = HeadFile::open(&dir, &key, fresh).map_err(|e| StoreError::io(&head::path(&dir), e))?;
        let checkpoints =
            Checkpoints::open(&dir, &key, last.tree.size()).map_err(|e| StoreError::io(&dir.join("checkpoints"), e))?;
        let now = (settings.clock)();
        let mut log = Log {
            dir,
            signer: Signer::start(Arc::clone(&key)),
            key,
            boot_id: settings.boot_id.clone(),
            clock: settings.clock,
            limits: settings.limits,
            left_open: Vec::new(),
            left_tried: now.mono,
            wal_looked: last.seq,
            segment_len: segment.len().map_err(|e| StoreError::sqlite(&segment.path, e))?,
            closed: tail.closed,
            marked: tail.marked,
            last,
            open: tail.open,
            head,
            checkpoints,
            checkpointed: now.mono,
            signs_fault: None,
            unsynced: false,
            synced: now.mono,
            canonical: Canonical::default(),
            segment,
        };
        if let Some(moved) = &quarantined {
            log.tell_quarantine(moved, heads.newest())
                .map_err(|fault| StoreError::NotWritable { path: log.dir.clone(), fault })?;
        }
        Ok((log, Found { standing, head: heads.newest(), open_calls, ended }))
    }
}

/// Makes the names of our directories durable, and that of the state directory. Where they were so already, this
/// costs nothing; on a read-only disk they are.
fn sync_names(state: &Path) -> Result<(), StoreError> {
    for dir in [Some(state), state.parent().filter(|parent| !parent.as_os_str().is_empty())].into_iter().flatten() {
        match File::open(dir).and_then(|dir| dir.sync_all()) {
            Ok(()) => {}
            // The parent may belong to someone else, and some file systems sync no directories.
            Err(e) if matches!(e.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidInput) => {}
            Err(e) if e.kind() == io::ErrorKind::ReadOnlyFilesystem => {}
            Err(e) => return Err(StoreError::io(dir, e)),
        }
    }
    Ok(())
}

/// A crash or a reader can have kept an older segment from becoming a plain file: what lies beside it then is brought
/// in now, while we may write. A reader could not do that, and would find a file that it cannot read.
fn put_to_rest(settings: &Settings, dir: &Path, first: Seq) -> Result<(), StoreError> {
    let name = segment::file_name(first);
    if !["-journal", "-wal"].iter().any(|companion| dir.join(format!("{name}{companion}")).exists()) {
        return Ok(());
    }
    let rested = Segment::open(dir, first, settings.limits.pages_max())
        .and_then(|segment| segment.rest().map_err(|e| StoreError::sqlite(&dir.join(&name), e)));
    match rested {
        Err(e) if !is_damage(&e) && Fault::passing(&e) != Some(Fault::Locked) => Err(e),
        // The verifier tells what is damaged; a reader that holds it can read it.
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Opens the newest segment and reads its end.
fn newest(settings: &Settings, dir: &Path, first: Seq, past: Past) -> Result<(Segment, Tail), StoreError> {
    if past == Past::Damaged {
        let path = dir.join(segment::file_name(first));
        return Err(StoreError::NotASegment { path, what: "SQLite found it damaged while writing".to_owned() });
    }
    let segment = Segment::open(dir, first, settings.limits.pages_max())?;
    match (segment.settle(), past) {
        // A reader keeps the file busy; what was synced before is safe where it is.
        (Ok(()), _) | (Err(Fault::Locked), Past::Ended) => {}
        (Err(fault), _) => return Err(StoreError::NotWritable { path: segment.path, fault }),
    }
    let tail = Tail::read(&segment)?;
    Ok((segment, tail))
}

/// Begins a log, or begins it anew after all that was there. Numbers are never used twice, not even those of a log
/// that is gone: it begins after its head or, where there is none, at `least`.
fn begin(settings: &Settings, dir: &Path, key: &Key, heads: Heads, least: Seq) -> Result<(Segment, Tail), StoreError> {
    let previous = heads.newest().unwrap_or(head::NOTHING);
    let header = Header {
        algorithm: settings.algorithm,
        first: Seq(previous.seq.0 + 1).max(if previous.seq.0 == 0 { least } else { Seq(1) }),
        previous: previous.hash,
        tree: Tree::default(),
        open: OpenCalls::default(),
        key: key.public(),
    };
    Segment::create(dir, &header, key)?;
    let segment = Segment::open(dir, header.first, settings.limits.pages_max())?;
    let tail = Tail::read(&segment)?;
    Ok((segment, tail))
}

/// Whether an error says that what is on the disk is not what was written; everything else may pass.
fn is_damage(error: &StoreError) -> bool {
    match error {
        StoreError::NotASegment { .. } | StoreError::Row { .. } => true,
        // A file without our tables (one of no length, for instance) is an error in our statements to SQLite.
        StoreError::Sqlite { source, .. } => Fault::of(source) == Fault::Damaged || error.is_bad_data(),
        StoreError::NotWritable { fault, .. } => *fault == Fault::Damaged,
        StoreError::InUse { .. }
        | StoreError::HalfRestored { .. }
        | StoreError::Io { .. }
        | StoreError::Newer { .. }
        | StoreError::NotAKey { .. }
        | StoreError::OldSqlite { .. }
        | StoreError::Setting { .. }
        | StoreError::NoLog { .. }
        | StoreError::TooSlow { .. }
        | StoreError::NoThread(_) => false,
    }
}

/// Where a file of ours should be and something else is, that is moved aside: a start must not fail for ever.
fn put_aside_unless_file(settings: &Settings, dir: &Path, path: &Path) -> Result<(), StoreError> {
    if fs::metadata(path).map_or(true, |there| there.is_file()) {
        return Ok(());
    }
    let quarantine = dir.join(QUARANTINE);
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o750)
        .create(&quarantine)
        .map_err(|e| StoreError::io(&quarantine, e))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let to = quarantine.join(format!("{}-{name}", (settings.clock)().wall.0));
    fs::rename(path, to).map_err(|e| StoreError::io(path, e))
}

/// Moves a segment and its companions into the quarantine, as they are.
fn set_aside(settings: &Settings, dir: &Path, first: Seq, why: String) -> Result<Quarantined, StoreError> {
    let quarantine = dir.join(QUARANTINE);
    let io = |e| StoreError::io(&quarantine, e);
    fs::DirBuilder::new().recursive(true).mode(0o750).create(&quarantine).map_err(io)?;
    let name = segment::file_name(first);
    let wall = (settings.clock)().wall.0;
    let file = format!("{wall}-{name}");
    // The companions first: a database without them can be read, companions without it cannot.
    for companion in ["-shm", "-wal", ""] {
        let from: PathBuf = dir.join(format!("{name}{companion}"));
        match fs::rename(&from, quarantine.join(format!("{file}{companion}"))) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(StoreError::io(&from, e)),
        }
    }
    let sync = || File::open(&quarantine)?.sync_all().and_then(|()| File::open(dir)?.sync_all());
    sync().map_err(io)?;
    Ok(Quarantined { file, first, why })
}

/// The end of a segment, from its last resting point on.
struct Tail {
    last: Position,
    open: OpenCalls,
    marked: Seq,
    closed: bool,
    /// The last row says that the daemon ended in order.
    ended: bool,
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
            ended: false,
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
            let seq = stored.get(0).unwrap_or(-1);
            let not_a_row = |source| StoreError::Row { path: segment.path.clone(), seq, source };
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
            tail.ended = recorded.row.kind == kind::END;
        }
        Ok(tail)
    }
}

/// The newest row that holds a resting point: its number, the hash before it, and what it holds.
fn rest_point(segment: &Segment) -> Result<Option<(Seq, Hash, OpenCalls, Tree)>, StoreError> {
    let newest = format!("{SELECT} WHERE seq <= ? AND kind IN ('boot', 'mark') ORDER BY seq DESC LIMIT 1");
    let Some(mark) = select(segment, &newest, Seq(u64::MAX))?.pop() else { return Ok(None) };
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
    let at_head = || Ok::<_, StoreError>(read::show(dir, head.seq)?.map(|recorded| recorded.hash));
    let hash = if head.seq == Seq(0) { Some(START) } else { at_head()? };
    // The head of an empty segment vouches for the row before it.
    let fits = hash == Some(head.hash) || (head.seq == seq && tail.last.hash == head.hash);
    Ok(if fits { Standing::Whole { beyond: seq.0 - head.seq.0 } } else { Standing::Altered { first_bad: head.seq } })
}

/// The rows of open calls, wherever they are; copies that were carried forward are told as what they are copies of.
fn fetch(dir: &Path, segment: &Segment, seqs: &[Seq]) -> Result<Vec<Recorded>, StoreError> {
    let mut found = Vec::new();
    for seq in seqs {
        // A row that is gone was lost with its file, which the verifier tells; repair works with what is left.
        found.extend(one(dir, segment, *seq)?.map(original));
    }
    // In the order in which they happened, not in that in which they were carried forward.
    found.sort_by_key(|recorded| recorded.seq);
    Ok(found)
}

/// One row, from the segment that is written or from an earlier one.
pub(super) fn one(dir: &Path, segment: &Segment, seq: Seq) -> Result<Option<Recorded>, StoreError> {
    if seq >= segment.header.first {
        Ok(select(segment, &format!("{SELECT} WHERE seq = ?"), seq)?.pop())
    } else {
        read::show(dir, seq)
    }
}

/// The row that a carried row is a copy of; every other row itself.
pub(super) fn original(recorded: Recorded) -> Recorded {
    if recorded.row.kind != kind::CARRIED {
        return recorded;
    }
    let detail: Option<Value> = recorded.row.detail.as_deref().and_then(|text| serde_json::from_str(text).ok());
    let copied = detail.and_then(|detail| Recorded::from_json(detail.get("row")?).ok());
    copied.unwrap_or(recorded)
}

/// The rows that `query` gives for `seq`.
pub(super) fn select(segment: &Segment, query: &str, seq: Seq) -> Result<Vec<Recorded>, StoreError> {
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

/// For the row that tells of a quarantine.
pub(super) fn head_json(head: Option<Head>) -> Value {
    head.map_or(Value::Null, |head| serde_json::json!({ "seq": head.seq.0, "hash": crate::record::hex(&head.hash) }))
}

/// Whether a segment was signed by another key than the one that signs now.
pub(super) fn is_foreign(segment: &Segment, key: &PublicKey) -> bool {
    segment.header.key != *key
}

//! Holds a log against its own hashes and against its signed head. Offline, on a copy, in one pass.
//!
//! The four verdicts say different things to a person, and none is a guess: a row does not fit (ALTERED, which),
//! rows that the head vouches for are missing (TAIL_LOST, how many), there is no head to hold the log against
//! (UNANCHORED), or none of these (INTACT). SQLite's own checks see neither a changed payload nor a lost tail.
//!
//! The checkpoints beside the head anchor the rows before it, so that a head that is gone does not leave all rows
//! without an anchor. What this cannot tell from the files alone: whoever has the key can write a new log from any
//! row on. Only a checkpoint that left the machine holds against that; [`verify_against`] takes those too.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use interlock_domain::id::Seq;
use serde_json::{Value, json};

use super::chain::{Algorithm, Hash, START, Tree};
use super::checkpoint::{self, Checkpoint};
use super::error::StoreError;
use super::head::{self, Heads};
use super::keys::{self, PublicKey};
use super::read::{self, Source};
use super::row::{self, SELECT};
use super::segment::Header;
use crate::record::{Canonical, kind};

/// So many bad rows are named; more are only counted.
const BAD_NAMED_MAX: usize = 16;
/// So many notes; a log has many segments.
const NOTES_MAX: usize = 32;
/// A segment may be unlinked while we read; so often we begin again.
const BEGIN_AGAIN_MAX: usize = 3;

/// The answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Every row fits and the chain reaches or passes the signed head.
    Intact,
    /// A row does not fit.
    Altered,
    /// The chain ends before what the head vouches for, or says itself that rows were lost.
    TailLost,
    /// Every row fits, and there is no head to hold the end against.
    Unanchored,
}

impl Verdict {
    /// As it is written.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Verdict::Intact => "INTACT",
            Verdict::Altered => "ALTERED",
            Verdict::TailLost => "TAIL_LOST",
            Verdict::Unanchored => "UNANCHORED",
        }
    }
}

/// The answer and what it rests on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verification {
    /// The answer.
    pub verdict: Verdict,
    /// Rows that were read.
    pub rows: u64,
    /// The first row that does not fit or is missing in the middle.
    pub first_bad: Option<Seq>,
    /// Rows that do not fit, the first few.
    pub bad: Vec<Seq>,
    /// How many do not fit.
    pub bad_count: u64,
    /// Rows that are known to be lost.
    pub lost: u64,
    /// The last row that a signature vouches for.
    pub anchored_to: Option<Seq>,
    /// What a person should know, one sentence each.
    pub notes: Vec<String>,
}

impl Verification {
    /// For scripts: the keys of `cli.md`, then which rows and why.
    #[must_use]
    pub fn to_json(&self) -> Value {
        json!({
            "verdict": self.verdict.as_str(),
            "rows": self.rows,
            "first_bad": self.first_bad.map(|seq| seq.0),
            "lost": self.lost,
            "anchored_to": self.anchored_to.map(|seq| seq.0),
            "bad": self.bad.iter().map(|seq| seq.0).collect::<Vec<_>>(),
            "bad_count": self.bad_count,
            "notes": self.notes,
        })
    }
}

/// Verifies a state directory, an evidence directory or one segment.
///
/// # Errors
/// When there is nothing to verify or it cannot be opened at all. Damage is a verdict, not an error.
pub fn verify(path: &Path) -> Result<Verification, StoreError> {
    verify_against(path, &Elsewhere::default())
}

/// What was carried off the machine and is held against the log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Elsewhere {
    /// The text of one or more checkpoints, which are signed notes.
    pub checkpoints: String,
    /// The text of one or more signed heads.
    pub heads: String,
}

/// The same, also against what was carried off the machine.
///
/// # Errors
/// As [`verify`].
pub fn verify_against(path: &Path, elsewhere: &Elsewhere) -> Result<Verification, StoreError> {
    let mut begun = 1;
    loop {
        // The head first: a log that grows while we read passes it.
        let source = Source::find(path)?;
        let mut pass = Pass::begin(&source, elsewhere)?;
        match pass.segments(&source) {
            Err(StoreError::Io { source: e, .. })
                if e.kind() == std::io::ErrorKind::NotFound && begun < BEGIN_AGAIN_MAX =>
            {
                begun += 1;
            }
            Err(e) => return Err(e),
            Ok(()) => return Ok(pass.end(&source)),
        }
    }
}

/// One reading of the whole log.
struct Pass {
    checkpoints: BTreeMap<u64, Checkpoint>,
    /// No checkpoint is of fewer rows than this, and of more than were read.
    next_checkpoint: u64,
    /// The last checkpoint that fits the rows.
    held_to: Option<Checkpoint>,
    /// A checkpoint did not fit; all later ones cannot fit either.
    checkpoint_broken: bool,
    trusted: Option<PublicKey>,
    heads: Heads,
    /// Heads that were carried off, by their rows; each goes when the row that it was signed for is read.
    carried: BTreeMap<Seq, Hash>,
    /// Heads that were carried off and are not signed by the key of this log.
    foreign_heads: usize,
    rows: u64,
    last: Option<(Seq, Hash)>,
    tree: Tree,
    /// The chain here is known to be that of the rows before; false after a damaged stretch.
    tree_holds: bool,
    first: Option<Seq>,
    hash_at_head: Option<Hash>,
    bad: Vec<Seq>,
    bad_count: u64,
    lost: u64,
    /// What the first row of all says was lost before it: a log that began anew.
    lost_before_first: u64,
    unlinked_upto: Seq,
    last_closed: bool,
    notes: Vec<String>,
    canonical: Canonical,
}

impl Pass {
    fn begin(source: &Source, elsewhere: &Elsewhere) -> Result<Pass, StoreError> {
        let mut notes = Vec::new();
        let trusted = match source.state.as_deref().map(keys::public_of_state).transpose() {
            Ok(key) => key.flatten(),
            Err(e) => {
                notes.push(format!("{e}"));
                None
            }
        };
        if trusted.is_none() && notes.is_empty() {
            notes.push("there is no keys/evidence.pub: held against the key that the log itself names".to_owned());
        }
        let key = match trusted {
            Some(key) => Some(key),
            None => source.segments.last().and_then(|(_, path)| header_key(source, path)),
        };
        let head_path = head::path(&source.evidence);
        let read = |key| head::read(&source.evidence, key).map_err(|e| StoreError::io(&head_path, e));
        let heads = key.as_ref().map(read).transpose()?.unwrap_or(Heads::None);
        let (mut checkpoints, unsigned) = match &key {
            Some(key) => checkpoint::read(&source.evidence, key)
                .map_err(|e| StoreError::io(&checkpoint::path(&source.evidence), e))?,
            None => (BTreeMap::new(), 0),
        };
        if unsigned > 0 {
            notes.push(format!("{unsigned} checkpoints are not signed by the key of this log"));
        }
        for note in key.as_ref().map(|key| checkpoint::parse(&elsewhere.checkpoints, key)).unwrap_or_default() {
            match note {
                Some(kept) => drop(checkpoints.insert(kept.size, kept)),
                None => notes.push("a checkpoint that was given is not signed by the key of this log".to_owned()),
            }
        }
        let (mut carried, mut foreign_heads) = (BTreeMap::new(), 0);
        for kept in key.as_ref().map(|key| head::kept(&elsewhere.heads, key)).unwrap_or_default() {
            match kept {
                Some(head) => drop(carried.insert(head.seq, head.hash)),
                None => foreign_heads += 1,
            }
        }
        if foreign_heads > 0 {
            notes.push(format!("{foreign_heads} of the heads that were given are not signed by the key of this log"));
        }
        Ok(Pass {
            carried,
            foreign_heads,
            checkpoints,
            next_checkpoint: 0,
            held_to: None,
            checkpoint_broken: false,
            trusted,
            heads,
            rows: 0,
            last: None,
            tree: Tree::default(),
            tree_holds: false,
            first: None,
            hash_at_head: None,
            bad: Vec::new(),
            bad_count: 0,
            lost: 0,
            lost_before_first: 0,
            unlinked_upto: Seq(0),
            last_closed: false,
            notes,
            canonical: Canonical::default(),
        })
    }

    fn bad(&mut self, seq: Seq, why: impl FnOnce() -> String) {
        if self.bad.len() < BAD_NAMED_MAX {
            self.bad.push(seq);
            self.notes.push(why());
        }
        self.bad_count += 1;
    }

    fn next(&self) -> Seq {
        Seq(self.last.map_or(0, |(seq, _)| seq.0) + 1)
    }

    fn segments(&mut self, source: &Source) -> Result<(), StoreError> {
        let newest = source.segments.len().saturating_sub(1);
        for (at, (first, path)) in source.segments.iter().enumerate() {
            match self.segment(source, path, at == newest) {
                Ok(()) => {}
                Err(e @ (StoreError::Io { .. } | StoreError::Newer { .. })) => return Err(e),
                Err(e) => {
                    let from = if at == 0 { *first } else { self.next() };
                    self.bad(Seq(from.0.max(1)), || e.to_string());
                    self.tree_holds = false;
                }
            }
        }
        Ok(())
    }

    fn segment(&mut self, source: &Source, path: &Path, newest: bool) -> Result<(), StoreError> {
        let connection = read::open(source, path)?;
        let header = Header::read(&connection, path)?;
        self.begin_segment(source, path, &header, newest);
        let sqlite = |e| StoreError::sqlite(path, e);
        let mut statement = connection.prepare(&format!("{SELECT} ORDER BY seq")).map_err(sqlite)?;
        let mut rows = statement.query([]).map_err(sqlite)?;
        while let Some(stored) = rows.next().map_err(sqlite)? {
            self.row(stored, header.algorithm);
        }
        Ok(())
    }

    fn begin_segment(&mut self, source: &Source, path: &Path, header: &Header, newest: bool) {
        let promised = path.file_name().and_then(|name| name.to_str()).and_then(super::segment::first_of);
        if promised != Some(header.first) && !source.single {
            self.bad(header.first, || format!("{} begins with row {}", path.display(), header.first.0));
        }
        if self.trusted.is_some_and(|key| key != header.key) {
            // An older one holds all the same: the rows after it, which this key vouches for, go on from its hashes.
            if newest || self.notes.len() < NOTES_MAX {
                self.notes.push(format!("{} is signed by another key than keys/evidence.pub", path.display()));
            }
        }
        match self.last {
            None => {
                self.first = Some(header.first);
                self.tree = header.tree.clone();
                self.tree_holds = true;
                self.last = Some((Seq(header.first.0 - 1), header.previous));
                if header.first == Seq(1) && header.previous != START {
                    self.bad(header.first, || "the first row of all has a row before it".to_owned());
                }
            }
            Some((seq, hash)) => {
                // Numbers that are jumped over with a fitting hash are judged with the first row.
                if header.previous != hash || header.first <= seq {
                    if header.first.0 > seq.0 + 1 {
                        let missing = seq.0 + 1;
                        self.bad(Seq(missing), || format!("rows {missing} to {} are missing", header.first.0 - 1));
                    } else {
                        self.bad(header.first, || format!("{} does not follow row {}", path.display(), seq.0));
                    }
                    self.last = Some((Seq(header.first.0 - 1), header.previous));
                } else if self.tree_holds && self.tree != header.tree {
                    self.bad(header.first, || format!("the tree in {} is not that of the rows", path.display()));
                }
                self.tree = header.tree.clone();
            }
        }
        let before = Seq(header.first.0 - 1);
        if self.first == Some(header.first) {
            self.hold_against_carried(before, header.previous);
        }
        if let Some(head) = self.heads.newest()
            && head.seq.0 == header.first.0 - 1
        {
            self.hash_at_head = Some(header.previous);
        }
    }

    fn row(&mut self, stored: &rusqlite::Row<'_>, algorithm: Algorithm) {
        self.rows += 1;
        let next = self.next();
        let previous = self.last.map_or(START, |(_, hash)| hash);
        let (seq, hash) = match row::canonical(stored, &mut self.canonical) {
            Ok((seq, hash)) => (Seq(u64::try_from(seq).unwrap_or(0)), hash),
            Err(e) => {
                self.bad(next, || format!("row {}: {e}", next.0));
                // What the row's hash was is not known: the next row cannot be judged by it.
                let seq = stored.get(0).ok().and_then(|seq: i64| u64::try_from(seq).ok()).map_or(next, Seq);
                let hash = stored.get(crate::record::COLUMNS.len()).unwrap_or(START);
                self.last = Some((seq, hash));
                self.tree_holds = false;
                return;
            }
        };
        let kind = self.canonical.column(10);
        self.last_closed = kind == Some(kind::SEGMENT_CLOSED.as_bytes());
        let missing = seq.0.saturating_sub(next.0);
        let lost = self.declared_loss();
        if missing > 0 && lost == Some(missing) {
            self.lost += missing;
        } else if seq != next {
            self.bad(next, || format!("row {} follows row {}", seq.0, next.0 - 1));
        } else if self.first == Some(seq) {
            self.lost_before_first = lost.unwrap_or(0);
            self.lost += self.lost_before_first;
        }
        if algorithm.row(&previous, self.canonical.bytes()) != hash {
            self.bad(seq, || format!("row {} does not fit its hash", seq.0));
        }
        if self.canonical.column(10) == Some(kind::SEGMENT_UNLINKED.as_bytes())
            && let Some(upto) = self.detail("last")
        {
            self.unlinked_upto = self.unlinked_upto.max(Seq(upto));
        }
        // What a start found then holds for good, also under heads that were signed since.
        if self.canonical.column(10) == Some(kind::BOOT.as_bytes())
            && let Some(found) = self.detail("first_bad").map(Seq)
            && !self.bad.contains(&found)
        {
            self.bad(found, || format!("the start in row {} found that row {} does not fit", seq.0, found.0));
        }
        self.tree.push(algorithm, hash);
        self.hold_against_checkpoint(seq, algorithm);
        self.last = Some((seq, hash));
        if self.heads.newest().is_some_and(|head| head.seq == seq) {
            self.hash_at_head = Some(hash);
        }
        self.hold_against_carried(seq, hash);
    }

    /// A head that left the machine was signed for the row as it was then.
    fn hold_against_carried(&mut self, seq: Seq, hash: Hash) {
        if self.carried.remove(&seq).is_some_and(|signed| signed != hash) && !self.bad.contains(&seq) {
            self.bad(seq, || format!("row {} is not the row that a head which was given was signed for", seq.0));
        }
    }

    fn hold_against_checkpoint(&mut self, seq: Seq, algorithm: Algorithm) {
        let size = self.tree.size();
        if size < self.next_checkpoint {
            return;
        }
        self.next_checkpoint = self.checkpoints.range(size + 1..).next().map_or(u64::MAX, |(next, _)| *next);
        let Some(checkpoint) = self.checkpoints.get(&size).copied() else { return };
        if !self.tree_holds || self.checkpoint_broken {
            return;
        }
        if checkpoint.root == self.tree.root(algorithm) {
            self.held_to = Some(checkpoint);
            return;
        }
        self.checkpoint_broken = true;
        // A row that does not fit the chain explains it already. Otherwise all rows fit one another, and which of
        // them are others than they were cannot be told; the last one certainly is.
        if self.bad_count == 0 {
            let from = self.held_to.map_or(self.first.map_or(1, |first| first.0), |held| held.seq.0 + 1);
            self.bad(seq, || format!("rows {from} to {} are not those that a checkpoint was signed for", seq.0));
        }
    }

    /// A boot row that found rows lost says how many; the numbers of those rows are not used again.
    fn declared_loss(&self) -> Option<u64> {
        (self.canonical.column(10) == Some(kind::BOOT.as_bytes())).then(|| self.detail("lost")).flatten()
    }

    fn detail(&self, key: &str) -> Option<u64> {
        let detail: Value = serde_json::from_slice(self.canonical.column(14)?).ok()?;
        detail.get(key)?.as_u64()
    }

    fn end(mut self, source: &Source) -> Verification {
        if let Some(first) = self.first
            && first.0 > 1
            && !source.single
            && self.unlinked_upto.max(Seq(self.lost_before_first)).0 + 1 < first.0
        {
            let from = Seq(self.unlinked_upto.0 + 1);
            self.bad(from, || format!("rows {} to {} are missing and no row says why", from.0, first.0 - 1));
        }
        let reached = self.last.map_or(Seq(0), |(seq, _)| seq);
        let mut anchored_to = None;
        let mut anchored = false;
        match self.heads.newest() {
            None => {
                self.notes.push(no_head(&source.evidence));
                anchored_to = self.held_to.map(|held| held.seq);
            }
            Some(head) if head.seq > reached => {
                if source.single && self.last_closed {
                    self.notes.push(format!(
                        "the head is at row {}, beyond this segment: verify the whole directory",
                        head.seq.0
                    ));
                } else {
                    self.lost += head.seq.0 - reached.0;
                    anchored = true;
                    anchored_to = Some(head.seq);
                }
            }
            Some(head) => {
                let expected = if head.seq == Seq(0) { Some(START) } else { self.hash_at_head };
                if expected == Some(head.hash) {
                    anchored = true;
                    anchored_to = Some(head.seq);
                } else if source.single && self.first.is_some_and(|first| head.seq < first) {
                    self.notes.push(format!("the head is at row {}, before this segment", head.seq.0));
                } else if !self.bad.contains(&head.seq) {
                    self.bad(head.seq, || format!("row {} is not the row that the head was signed for", head.seq.0));
                }
                // A damaged slot was written after newer rows were durable, or it is no accident.
                if anchored && matches!(self.heads, Heads::OneDamaged(_)) && head.seq == reached {
                    anchored = false;
                    self.notes.push(format!(
                        "one of the two signed heads is damaged; whether rows followed row {} cannot be told",
                        reached.0
                    ));
                }
            }
        }
        // A checkpoint of more rows than there are.
        if let Some((size, beyond)) = self.checkpoints.last_key_value()
            && *size > self.tree.size()
            && self.tree_holds
            && self.lost == 0
            && self.bad_count == 0
            && !source.single
        {
            self.lost = size - self.tree.size();
            anchored_to = Some(beyond.seq);
        }
        // A head that was carried off and is of a row that is not there.
        if let Some(beyond) = self.carried.keys().next_back().copied().filter(|seq| *seq > reached) {
            let last = anchored_to.map_or(reached, |anchor| anchor.max(reached));
            if beyond > last && !source.single {
                self.lost += beyond.0 - last.0;
                anchored_to = Some(beyond);
            }
        }
        let retired = self.carried.keys().filter(|seq| self.first.is_some_and(|first| **seq < first)).count();
        if retired > 0 {
            self.notes.push(format!("{retired} of the heads that were given are of rows that are not kept any more"));
        }
        // Whoever gives a head asks for more than what this machine says about itself.
        anchored &= self.foreign_heads == 0;
        let verdict = if self.bad_count > 0 {
            Verdict::Altered
        } else if self.lost > 0 {
            Verdict::TailLost
        } else if anchored {
            Verdict::Intact
        } else {
            Verdict::Unanchored
        };
        Verification {
            verdict,
            rows: self.rows,
            first_bad: self.bad.iter().min().copied(),
            bad: self.bad,
            bad_count: self.bad_count,
            lost: self.lost,
            anchored_to,
            notes: self.notes,
        }
    }
}

fn no_head(evidence: &Path) -> String {
    let path: PathBuf = head::path(evidence);
    if path.exists() {
        format!("{} holds no head that the key of this log signed", path.display())
    } else {
        format!("{} is not there", path.display())
    }
}

fn header_key(source: &Source, path: &Path) -> Option<PublicKey> {
    let connection = read::open(source, path).ok()?;
    Header::read(&connection, path).ok().map(|header| header.key)
}

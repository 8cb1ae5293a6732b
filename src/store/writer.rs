//! The writer's thread: takes what has come, writes it as one group, tells who waits.
//!
//! It is the only thread that writes the log and the only one that checkpoints. When it cannot write, it goes on
//! taking rows into a bounded memory, so that nobody else ever waits for a disk; what does not fit is counted, and a
//! gap row says so as soon as rows can be written again.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::thread;
use std::time::{Duration, Instant};

use interlock_domain::id::Seq;
use interlock_domain::time::Wall;
use serde_json::json;
use tokio::sync::watch;

use super::Settings;
use super::error::Fault;
use super::log::{Log, Past};
use super::queue::{ASLEEP, AWAKE, Acks, DOZING, Entry, Health, NotWritten, QUEUE_LEN_MAX, Shared, Tell, WAKE_AT};
use super::reserve;
use crate::record::{Row, kind, rfc3339};

/// Longest time that a row waits for its group.
const GATHER: Duration = Duration::from_millis(50);
/// After so long without a row the writer no longer wakes by itself every [`GATHER`], but once in this time.
const QUIET: Duration = Duration::from_secs(1);
/// Rows that are kept while nothing can be written: two full queues.
const KEPT_MAX: usize = 2 * QUEUE_LEN_MAX;
/// The same in bytes.
const KEPT_BYTES_MAX: usize = 16 * 1024 * 1024;
/// How long the writer waits after a fault before it tries again.
const RETRY: Duration = Duration::from_millis(500);
/// Another process may hold the lock so long before the log counts as stalled.
const STALLED_AFTER: Duration = Duration::from_secs(2);
/// How long the stop waits for rows that cannot be written.
const STOP_PATIENCE: Duration = Duration::from_secs(2);

/// Rows in memory, oldest first.
#[derive(Debug, Default)]
struct Kept {
    entries: VecDeque<Entry>,
    bytes: usize,
}

/// Rows that were lost, for the gap row.
#[derive(Debug, Clone, Copy, Default)]
struct Gap {
    dropped: u64,
    refused: u64,
    walls: Option<(Wall, Wall)>,
}

/// Why nothing can be written at the moment, and since when.
#[derive(Debug, Clone, Copy)]
struct Trouble {
    fault: Fault,
    since: Instant,
    attempts: u64,
    retry_at: Instant,
}

pub(super) struct Thread {
    settings: Settings,
    shared: Arc<Shared>,
    queue: Receiver<Entry>,
    acks: watch::Sender<Acks>,
    /// `None` after a fault whose handle must not be used again.
    log: Option<Log>,
    /// The boot row of this life is written.
    booted: bool,
    /// The reserve was given back and is not kept again yet.
    released: bool,
    /// The last row that somebody may have been told of.
    acked: Seq,
    kept: Kept,
    gap: Gap,
    trouble: Option<Trouble>,
    last_row: Instant,
}

/// How the thread ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// Rows that could not be written before the end.
    pub unwritten: usize,
    /// The thread panicked; how many rows it took with it is not known.
    pub panicked: bool,
}

impl Thread {
    pub(super) fn new(
        settings: Settings,
        shared: Arc<Shared>,
        queue: Receiver<Entry>,
        acks: watch::Sender<Acks>,
        log: Result<Log, Fault>,
    ) -> Thread {
        let now = Instant::now();
        let (log, trouble) = match log {
            Ok(log) => (Some(log), None),
            Err(fault) => (None, Some(Trouble { fault, since: now, attempts: 1, retry_at: now + RETRY })),
        };
        Thread {
            settings,
            shared,
            queue,
            acks,
            acked: log.as_ref().map_or(Seq(0), |log| log.last().seq),
            booted: log.is_some(),
            released: false,
            log,
            kept: Kept::default(),
            gap: Gap::default(),
            trouble,
            last_row: now,
        }
    }

    fn evidence(&self) -> PathBuf {
        self.settings.state.join("evidence")
    }

    pub(super) fn run(mut self) -> Ended {
        let mut stop_by = None;
        // On a full disk the log goes on without a reserve.
        let _ = reserve::keep(&self.evidence(), self.settings.limits.reserve_len);
        loop {
            if self.kept.entries.is_empty() || self.trouble.is_some() {
                self.gather();
            }
            let stopping = self.shared.stop.load(Ordering::SeqCst);
            let taken = self.take();
            if self.trouble.is_none_or(|trouble| stopping || Instant::now() >= trouble.retry_at) {
                self.write();
            }
            if let (Some(log), None, 0) = (&mut self.log, self.trouble, taken)
                && self.last_row.elapsed() >= QUIET
            {
                log.rest();
            }
            self.shared.turns.fetch_add(1, Ordering::Relaxed);
            if stopping && taken == 0 {
                let stop_by = *stop_by.get_or_insert_with(|| Instant::now() + STOP_PATIENCE);
                if self.kept.entries.is_empty() || Instant::now() >= stop_by {
                    break;
                }
            }
        }
        let unwritten = self.kept.entries.len();
        for entry in self.kept.entries.drain(..) {
            entry.tell.answer(Err(NotWritten::Ended));
        }
        if let Some(log) = self.log.take() {
            log.close();
        }
        Ended { unwritten, panicked: false }
    }

    /// Waits until there is a reason to write: a row that must not wait, many rows, or the end of the time for
    /// gathering.
    fn gather(&self) {
        let quiet = self.last_row.elapsed() >= QUIET;
        let mut sleep = if quiet { ASLEEP } else { DOZING };
        let mut end = Instant::now() + if quiet { QUIET } else { GATHER };
        if let Some(trouble) = self.trouble {
            end = end.min(trouble.retry_at);
        }
        loop {
            // Announced before the look at the queue: an appender either sees this, or its row is seen here.
            self.shared.sleep.store(sleep, Ordering::SeqCst);
            let queued = self.shared.queued.load(Ordering::SeqCst);
            if self.shared.urgent.swap(false, Ordering::SeqCst)
                || self.shared.stop.load(Ordering::SeqCst)
                || queued >= WAKE_AT
            {
                break;
            }
            let now = Instant::now();
            if queued > 0 && sleep == ASLEEP {
                sleep = DOZING;
                end = end.min(now + GATHER);
                continue;
            }
            if now >= end {
                break;
            }
            thread::park_timeout(end - now);
        }
        self.shared.sleep.store(AWAKE, Ordering::SeqCst);
    }

    /// Takes what has come into memory; returns how much that was.
    fn take(&mut self) -> usize {
        let mut taken = 0;
        let mut bytes = 0;
        while taken < QUEUE_LEN_MAX {
            let Ok(entry) = self.queue.try_recv() else { break };
            taken += 1;
            bytes += entry.row.weight();
            self.keep(entry);
        }
        if taken > 0 {
            self.shared.queued.fetch_sub(i64::try_from(taken).unwrap_or(0), Ordering::SeqCst);
            self.shared.bytes.fetch_sub(bytes, Ordering::Relaxed);
            self.last_row = Instant::now();
        }
        let refused = self.shared.refused.swap(0, Ordering::Relaxed);
        if refused > 0 {
            self.gap.refused += refused;
            self.tell_gap();
        }
        taken
    }

    /// Keeps a row until it is written. When the memory is full, rows that may wait give way to rows that may not.
    fn keep(&mut self, entry: Entry) {
        let weight = entry.row.weight();
        while self.kept.entries.len() >= KEPT_MAX || self.kept.bytes + weight > KEPT_BYTES_MAX {
            let relaxed = self.kept.entries.iter().position(|kept| !kept.now);
            let victim = if entry.now { self.kept.entries.remove(relaxed.unwrap_or(0)) } else { None };
            let Some(victim) = victim else { return self.drop_row(entry) };
            self.kept.bytes = self.kept.bytes.saturating_sub(victim.row.weight());
            self.drop_row(victim);
        }
        self.kept.bytes += weight;
        self.kept.entries.push_back(entry);
    }

    fn drop_row(&mut self, victim: Entry) {
        let wall = victim.row.at.wall;
        self.gap.dropped += 1;
        self.gap.walls = Some(self.gap.walls.map_or((wall, wall), |(from, to)| (from.min(wall), to.max(wall))));
        victim.tell.answer(Err(NotWritten::Dropped));
        self.acks.send_modify(|acks| {
            acks.dropped += 1;
            acks.failures += 1;
        });
    }

    /// Writes what is kept, one group after the other, until nothing is left or something goes wrong.
    fn write(&mut self) {
        if self.released {
            match reserve::keep(&self.evidence(), self.settings.limits.reserve_len) {
                Ok(()) => self.released = false,
                // What the reserve gave is for urgent words of the log only: everything else stays in memory.
                Err(e) => return self.failed(Fault::of_io(&e)),
            }
        }
        if self.log.is_none() {
            match self.reopen() {
                Ok(()) => {}
                Err(fault) => return self.failed(fault),
            }
        }
        if self.kept.entries.is_empty()
            && let Some(trouble) = self.trouble.take()
        {
            self.recovered(trouble);
            self.acks.send_modify(|acks| acks.health = Health::Writing);
        }
        while let (Some(log), false) = (&mut self.log, self.kept.entries.is_empty()) {
            let len = self.kept.entries.len().min(self.settings.limits.group_max.max(1));
            match log.commit(self.kept.entries.iter().take(len).map(|entry| &entry.row)) {
                Ok(first) => {
                    let signs_fault = log.signs_fault();
                    self.acked = log.last().seq;
                    self.written(first, len, signs_fault);
                }
                Err(fault) => return self.failed(fault),
            }
        }
    }

    fn written(&mut self, first: Seq, len: usize, signs_fault: Option<Fault>) {
        let mut ticket = None;
        for (seq, entry) in (first.0..).zip(self.kept.entries.drain(..len)) {
            self.kept.bytes = self.kept.bytes.saturating_sub(entry.row.weight());
            if let Some(receipt) = &entry.receipt {
                receipt.fill(Seq(seq));
            }
            ticket = entry.tell.answer(Ok(Seq(seq))).or(ticket);
        }
        if let Some(trouble) = self.trouble.take() {
            self.recovered(trouble);
        }
        let health = signs_fault.map_or(Health::Writing, Health::Degraded);
        self.acks.send_modify(|acks| {
            acks.ticket = ticket.unwrap_or(acks.ticket);
            acks.seq = self.acked;
            acks.health = health;
        });
    }

    /// Tells in the log that it was not written for a while.
    fn recovered(&mut self, trouble: Trouble) {
        if trouble.fault == Fault::Locked && trouble.since.elapsed() < STALLED_AFTER && self.gap.dropped == 0 {
            return;
        }
        let detail = json!({
            "for_ms": u64::try_from(trouble.since.elapsed().as_millis()).unwrap_or(u64::MAX),
            "attempts": trouble.attempts,
        });
        let row = Row { cause: Some(trouble.fault.code().into()), ..self.own(kind::EVIDENCE_RECOVERED) };
        self.keep(Entry::urgent(row.detailed(&detail)));
        self.tell_gap();
    }

    /// Tells in the log what it does not hold.
    fn tell_gap(&mut self) {
        if self.trouble.is_some() {
            // Told once, when rows can be written again.
            return;
        }
        let gap = std::mem::take(&mut self.gap);
        if gap.dropped + gap.refused == 0 {
            return;
        }
        let walls = gap.walls.map(|(from, to)| (rfc3339(from), rfc3339(to)));
        let detail = json!({
            "dropped": gap.dropped,
            "queue_full": gap.refused,
            "from": walls.as_ref().map(|(from, _)| from),
            "to": walls.as_ref().map(|(_, to)| to),
        });
        let row = self.own(kind::GAP).detailed(&detail);
        self.keep(Entry::urgent(row));
    }

    fn own(&self, kind: &'static str) -> Row {
        Row::new((self.settings.clock)(), kind)
    }

    fn failed(&mut self, fault: Fault) {
        let now = Instant::now();
        let trouble = self.trouble.get_or_insert(Trouble { fault, since: now, attempts: 0, retry_at: now });
        trouble.fault = fault;
        trouble.attempts += 1;
        // SQLite has waited for a lock already.
        trouble.retry_at = if fault == Fault::Locked { now } else { now + RETRY };
        let short = fault == Fault::Locked && now - trouble.since < STALLED_AFTER;
        if matches!(fault, Fault::Io | Fault::Damaged)
            && let Some(log) = self.log.take()
        {
            log.abandon();
        }
        if fault == Fault::DiskFull && !self.released && reserve::release(&self.evidence()) {
            self.released = true;
            self.tell_disk_full();
        }
        if short {
            return;
        }
        for entry in &mut self.kept.entries {
            if matches!(entry.tell, Tell::Caller(_)) {
                std::mem::replace(&mut entry.tell, Tell::Nobody).answer(Err(NotWritten::Kept(fault)));
            }
        }
        self.acks.send_modify(|acks| {
            acks.failures += 1;
            acks.health = Health::Degraded(fault);
        });
    }

    /// Says so in the room that the reserve gave back. If even that fails, the row after the recovery tells of it.
    fn tell_disk_full(&mut self) {
        let row = self.own(kind::DISK_FULL);
        if let Some(log) = &mut self.log
            && log.commit(std::iter::once(&row)).is_ok()
        {
            self.acked = log.last().seq;
        }
    }

    /// Opens the log again after a fault and finds out which of the kept rows are in it after all: a commit whose
    /// sync failed may still have reached the file.
    fn reopen(&mut self) -> Result<(), Fault> {
        let past = match self.trouble {
            Some(trouble) if trouble.fault == Fault::Damaged && trouble.attempts > 1 => Past::Damaged,
            Some(_) | None => Past::Failed,
        };
        let (mut log, found) = Log::open(&self.settings, past).map_err(|e| Fault::of_open(&e))?;
        if !self.booted {
            log.boot(&self.settings.version, &found)?;
            self.booted = true;
            self.acked = log.last().seq;
            self.log = Some(log);
            return Ok(());
        }
        let mut first = None;
        let mut len = 0;
        for recorded in log.after(self.acked).map_err(|e| Fault::of_open(&e))? {
            match self.kept.entries.get(len) {
                Some(entry) if entry.row == recorded.row => {
                    first.get_or_insert(recorded.seq);
                    len += 1;
                }
                // A row that the log wrote about itself.
                Some(_) | None => {}
            }
        }
        self.acked = log.last().seq;
        let signs_fault = log.signs_fault();
        self.log = Some(log);
        if let Some(first) = first {
            self.written(first, len, signs_fault);
        }
        Ok(())
    }
}

//! The way to the writer: bounded, and cheap for the thread on which something happened.
//!
//! To append is one push into a bounded ring and two counters; it never waits, never locks and never touches the
//! disk. The writer wakes by itself while rows are coming, so that most appends make no system call either: only a
//! row that must not wait, the thirty-second row, and the first one after a quiet second wake it.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError};
use std::thread::Thread;

use interlock_domain::id::Seq;
use thiserror::Error;
use tokio::sync::{oneshot, watch};

use super::error::Fault;
use crate::record::Row;

/// Rows that can wait for the writer: one group. At 100,000 rows a second it fills in 40 ms.
pub const QUEUE_LEN_MAX: usize = 4096;
/// The same in bytes: details can be long.
pub const QUEUE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// So many waiting rows wake the writer before the time of a group is over: a quarter of the queue, so that it can fall
/// behind a little before anybody waits. Nobody waits for these rows (who does, wakes it at once), and each wake is a
/// commit: at 32, a stream of reads cost a commit every few milliseconds, and the runtime a core's time.
pub(super) const WAKE_AT: i64 = 1024;

/// One row on its way, and who wants to know when it is durable.
#[derive(Debug)]
pub struct Entry {
    /// What is to be written.
    pub row: Row,
    /// Commit at once instead of within 50 ms.
    pub now: bool,
    /// Who is told.
    pub tell: Tell,
    /// Where the number of the row is left, for a caller that was given a ticket.
    pub receipt: Option<Receipt>,
}

impl Entry {
    /// A row that waits for its group, and whose end nobody awaits.
    #[must_use]
    pub fn relaxed(row: Row) -> Entry {
        Entry { row, now: false, tell: Tell::Nobody, receipt: None }
    }

    /// A row that does not wait, and whose end nobody awaits.
    #[must_use]
    pub fn urgent(row: Row) -> Entry {
        Entry { row, now: true, tell: Tell::Nobody, receipt: None }
    }
}

/// Who is told that a row is durable.
#[derive(Debug)]
pub enum Tell {
    /// Nobody.
    Nobody,
    /// The one owner that numbers its rows: [`Acks::ticket`] reaches this number when the row is durable. Tickets are
    /// handed in in rising order.
    Ticket(u64),
    /// One caller, once.
    Caller(oneshot::Sender<Result<Seq, NotWritten>>),
}

impl Tell {
    /// Tells a caller; gives back the ticket of an owner that is told through [`Acks`].
    pub(super) fn answer(self, answer: Result<Seq, NotWritten>) -> Option<u64> {
        match self {
            Tell::Nobody => None,
            Tell::Ticket(number) => Some(number),
            Tell::Caller(tell) => {
                // A caller that no longer waits does not want to be told.
                let _ = tell.send(answer);
                None
            }
        }
    }
}

/// Where the writer leaves the number of a row. It is filled before the ticket of the row is told.
#[derive(Debug, Clone, Default)]
pub struct Receipt(Arc<AtomicU64>);

impl Receipt {
    /// The number of the row, once it is durable.
    #[must_use]
    pub fn seq(&self) -> Option<Seq> {
        match self.0.load(Ordering::Acquire) {
            0 => None,
            seq => Some(Seq(seq)),
        }
    }

    pub(super) fn fill(&self, seq: Seq) {
        self.0.store(seq.0, Ordering::Release);
    }
}

/// Why a row is not durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum NotWritten {
    /// Too many rows wait; nothing was taken.
    #[error("the evidence queue is full")]
    QueueFull,
    /// The writer has ended; nothing was taken.
    #[error("the evidence writer has ended")]
    Ended,
    /// It could not be written now. The row is kept and written when that is possible again.
    #[error("the evidence log takes no rows: {0}")]
    Kept(Fault),
    /// It was dropped, and a gap row will say so.
    #[error("the evidence log takes no rows and its memory is full")]
    Dropped,
}

/// A row that was not taken, given back.
#[derive(Debug, Error)]
#[error("{why}")]
pub struct NotTaken {
    /// [`NotWritten::QueueFull`] or [`NotWritten::Ended`].
    pub why: NotWritten,
    /// The row.
    pub entry: Box<Entry>,
}

/// How the writer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    /// Rows become durable.
    Writing,
    /// They do not, or the head cannot be written; rows are kept in memory as far as it reaches.
    Degraded(Fault),
}

/// What the writer has done so far. It coalesces: a receiver sees the newest state only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Acks {
    /// Every row with a ticket up to this one is durable, or was dropped while [`Acks::failures`] was raised.
    pub ticket: u64,
    /// Every row up to this number is durable and under the signed head.
    pub seq: Seq,
    /// Raised each time when rows could not be written. Whoever waits for a ticket looks at this **first**: what it
    /// waits for did not become durable in time, even if the ticket is told later.
    pub failures: u64,
    /// How the writer is.
    pub health: Health,
    /// Rows that were dropped since the start.
    pub dropped: u64,
}

/// What the writer's thread does between groups.
pub(super) const AWAKE: u8 = 0;
/// Wakes by itself within 50 ms.
pub(super) const DOZING: u8 = 1;
/// Nothing came for a second; the next row wakes it.
pub(super) const ASLEEP: u8 = 2;

/// What appenders and the writer share besides the queue.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// May be negative for a moment: the writer can take a row before its appender has counted it.
    pub(super) queued: AtomicI64,
    pub(super) bytes: AtomicUsize,
    pub(super) urgent: AtomicBool,
    pub(super) sleep: AtomicU8,
    pub(super) stop: AtomicBool,
    /// Rows that found the queue full and were given up by [`Writer::append_or_count`].
    pub(super) refused: AtomicU64,
    /// Raised with every turn of the writer, at least once a second: the watchdog's sign of life.
    pub(super) turns: AtomicU64,
    pub(super) thread: OnceLock<Thread>,
}

impl Shared {
    pub(super) fn wake(&self) {
        if self.sleep.swap(AWAKE, Ordering::SeqCst) != AWAKE
            && let Some(thread) = self.thread.get()
        {
            thread.unpark();
        }
    }
}

/// Hands rows to the writer. Cheap to clone, usable from any thread.
#[derive(Debug, Clone)]
pub struct Writer {
    pub(super) shared: Arc<Shared>,
    /// In place, although the ring touches every slot when it is made (1.2 MiB): a box for each row took an append from
    /// 94 to 107 ns and its 99th percentile from 0.4 to 1.7 us.
    pub(super) queue: SyncSender<Entry>,
    pub(super) acks: watch::Receiver<Acks>,
}

impl Writer {
    /// Hands in one row; never waits. Rows of one thread keep their order.
    ///
    /// # Errors
    /// The row itself, when the queue is full or the writer has ended.
    pub fn append(&self, entry: Entry) -> Result<(), NotTaken> {
        let weight = entry.row.weight();
        let now = entry.now;
        let given_back = |why, entry| Err(NotTaken { why, entry: Box::new(entry) });
        if self.shared.bytes.load(Ordering::Relaxed) + weight > QUEUE_BYTES_MAX {
            return given_back(NotWritten::QueueFull, entry);
        }
        self.shared.bytes.fetch_add(weight, Ordering::Relaxed);
        match self.queue.try_send(entry) {
            Ok(()) => {}
            Err(refused) => {
                self.shared.bytes.fetch_sub(weight, Ordering::Relaxed);
                return match refused {
                    TrySendError::Full(entry) => given_back(NotWritten::QueueFull, entry),
                    TrySendError::Disconnected(entry) => given_back(NotWritten::Ended, entry),
                };
            }
        }
        let queued = self.shared.queued.fetch_add(1, Ordering::SeqCst) + 1;
        if now {
            self.shared.urgent.store(true, Ordering::SeqCst);
        }
        match self.shared.sleep.load(Ordering::SeqCst) {
            ASLEEP => self.shared.wake(),
            DOZING if now || queued >= WAKE_AT => self.shared.wake(),
            _ => {}
        }
        Ok(())
    }

    /// Hands in one row, and waits for room when the queue is full.
    ///
    /// # Errors
    /// The row itself, when the writer has ended.
    pub async fn append_when_room(&self, entry: Entry) -> Result<(), NotTaken> {
        let mut acks = self.acks.clone();
        let mut entry = entry;
        loop {
            // Marked before the attempt: room that is made after it is then not missed.
            acks.mark_unchanged();
            match self.append(entry) {
                Err(NotTaken { why: NotWritten::QueueFull, entry: back }) => entry = *back,
                taken => return taken,
            }
            if acks.changed().await.is_err() {
                return Err(NotTaken { why: NotWritten::Ended, entry: Box::new(entry) });
            }
        }
    }

    /// Hands in one row; when the queue is full the row is given up and a gap row will count it. For threads that
    /// must never wait and have nowhere to keep it.
    pub fn append_or_count(&self, entry: Entry) {
        match self.append(entry) {
            Ok(()) => {}
            Err(NotTaken { .. }) => {
                self.shared.refused.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Writes one row and blocks this thread until it is durable. For the start, the stop and tests; never from a
    /// task.
    ///
    /// # Errors
    /// Why it is not durable now; [`NotWritten::Kept`] says that it will still be written when that is possible.
    pub fn append_durable(&self, row: Row) -> Result<Seq, NotWritten> {
        let (tell, told) = oneshot::channel();
        self.append(Entry { row, now: true, tell: Tell::Caller(tell), receipt: None })
            .map_err(|refused| refused.why)?;
        told.blocking_recv().unwrap_or(Err(NotWritten::Ended))
    }

    /// What has become durable, and how the writer is.
    #[must_use]
    pub fn acks(&self) -> watch::Receiver<Acks> {
        self.acks.clone()
    }

    /// Rows that wait for the writer now.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        u64::try_from(self.shared.queued.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// Rises at least once a second while the writer's thread is well. Whoever feeds the watchdog compares.
    #[must_use]
    pub fn turns(&self) -> u64 {
        self.shared.turns.load(Ordering::Relaxed)
    }
}

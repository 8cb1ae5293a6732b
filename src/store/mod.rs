//! The evidence log: one writer, group commit, a chain of hashes, a signed head; and `state.db` for what changes.
//!
//! Nothing in here decides. It must never lose a row that somebody was told of, never delete or rewrite one, and
//! never make the thread on which something happened wait for a disk.
//!
//! # How the mediator's numbers meet the log's
//!
//! The mediator numbers its own records (`Journal::number`) before anyone knows which row of the log they become,
//! because others write into the same log. So it hands them in as **tickets**, in rising order:
//!
//! 1. For each entry of `Action::Record` it calls [`queue::Writer::append`] (or `append_when_room`) with
//!    `tell: Tell::Ticket(number)`, and `now` as the action says. Where a reply must name its evidence (`Settled`),
//!    it also keeps a clone of the entry's [`queue::Receipt`].
//! 2. It watches [`queue::Acks`]. The channel coalesces; nothing piles up if the mediator is busy.
//! 3. On a change it looks at `failures` first: if that rose, rows could not be written and it feeds
//!    `Input::CommitFailed` (intents that wait have not started and do not start). Then, if `ticket` rose, it feeds
//!    `Input::Committed { upto: ticket }`. The order makes an intent that was dropped, or written too late, never
//!    look durable in time.
//! 4. Once a ticket is told, the receipts up to it are filled: `receipt.seq()` is the `evidence` of the reply.
//!
//! Other writers (supervisor, surfaces) use no tickets: `Tell::Nobody` and, where they must not keep anything,
//! `append_or_count`, whose losses a gap row counts. The start, the stop and tests use `append_durable`.
//!
//! # The files
//!
//! Fixed for good in `contracts.md`, "State". `evidence/<first>.db` ([`segment`]), `evidence/head` ([`head`]),
//! `evidence/checkpoints` ([`checkpoint`]), `evidence/quarantine/` (damaged segments, never deleted), `evidence/reserve`
//! (room for the row that says that the disk is full), `keys/` ([`keys`]), `lock` ([`lock`]), `state.db` ([`state`]),
//! `updates/` and `update-floor` ([`update`]).
//! Reading ([`read`], [`verify`], [`export`]) needs none of the writer's parts, works on a copy, and never writes.
//!
//! # What goes wrong with a disk
//!
//! | fault | what the writer does |
//! |---|---|
//! | full | gives the reserve back for a `disk_full` row, keeps rows in bounded memory, tries every half second |
//! | read-only | keeps rows in memory and tries; a start on such a disk is [`Standing::Unreachable`], not an error |
//! | failed sync or write | drops the handle, opens anew, settles, finds what reached the file, appends the rest |
//! | damaged newest segment | moves it to the quarantine, begins a new one whose first row names the old head |
//! | locked by another process | tries without pause; after two seconds it counts as stalled |
//! | pinned by a reader | goes on in a new segment once the write-ahead log is too long, and says so |
//!
//! Afterwards an `evidence_recovered` row says how long it took, and a `gap` row how much did not fit into memory.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;

use tokio::sync::watch;

use crate::record::{Recorded, Stamp};

pub mod backup;
pub mod chain;
pub mod checkpoint;
pub mod conversation;
pub mod error;
pub mod export;
pub mod head;
pub mod keys;
pub mod lock;
mod log;
pub mod open_calls;
pub mod queue;
pub mod read;
mod reserve;
mod row;
pub mod search;
pub mod segment;
mod signing;
pub mod state;
pub mod update;
pub mod verify;

/// The version of SQLite that is built in.
#[must_use]
pub fn sqlite_version() -> &'static str {
    rusqlite::version()
}

mod writer;

pub use log::Standing;
pub use writer::Ended;

use error::{Fault, StoreError};
use head::Head;
use interlock_domain::id::Seq;
use log::{Found, Log, Past};
use queue::{Acks, Health, QUEUE_LEN_MAX, Shared, Writer};

/// What the write-ahead log of a segment is cut back to, in bytes. Twice as much means that a reader pins it.
pub const WAL_LEN_WANTED: u64 = segment::WAL_LEN_MAX.unsigned_abs();

/// How long the longest write-ahead log in a state directory is, in bytes.
#[must_use]
pub fn wal_len(state: &Path) -> u64 {
    let dir = state.join("evidence");
    let firsts = segment::list(&dir).unwrap_or_default();
    firsts.into_iter().map(|first| segment::wal_len(&dir.join(segment::file_name(first)))).max().unwrap_or(0)
}

/// How many bytes the files of the log in a state directory have, with their write-ahead logs.
#[must_use]
pub fn log_len(state: &Path) -> u64 {
    let dir = state.join("evidence");
    let firsts = segment::list(&dir).unwrap_or_default();
    let len = |first| {
        let path = dir.join(segment::file_name(first));
        std::fs::metadata(&path).map_or(0, |meta| meta.len()) + segment::wal_len(&path)
    };
    firsts.into_iter().map(len).sum()
}

/// How large the log and its groups may become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// A segment longer than this, in bytes, is closed and the next one begun.
    pub segment_len_max: u64,
    /// When all segments together are longer, in bytes, the oldest is unlinked. The newest two always stay.
    pub log_len_max: u64,
    /// Room that is kept to be able to say that the disk is full, in bytes.
    pub reserve_len: u64,
    /// The most rows of one transaction; at least one. Fewer make more commits, never another order.
    pub group_max: usize,
}

impl Default for Limits {
    /// 64 MB a segment, 512 MB in all, 1 MB of reserve, a full queue in a group.
    fn default() -> Limits {
        const MIB: u64 = 1024 * 1024;
        Limits { segment_len_max: 64 * MIB, log_len_max: 512 * MIB, reserve_len: MIB, group_max: QUEUE_LEN_MAX }
    }
}

impl Limits {
    /// The most pages that SQLite may give a segment: twice its limit, since one group may pass it.
    fn pages_max(&self) -> i64 {
        i64::try_from(self.segment_len_max / 4096 * 2 + 8192).unwrap_or(i64::MAX)
    }
}

/// What `boot` tells the store.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The state directory; made if it is not there.
    pub state: PathBuf,
    /// The boot of this machine (`/proc/sys/kernel/random/boot_id`), as it stands in every row.
    pub boot_id: String,
    /// The version of this build, for the boot row.
    pub version: String,
    /// Reads the clocks, for the rows that the log writes about itself.
    pub clock: fn() -> Stamp,
    /// How large the log may become.
    pub limits: Limits,
    /// The hash of a log that begins now; one that is there keeps its own.
    pub algorithm: chain::Algorithm,
}

/// The log, open. While it lives, no other daemon can open the same state directory.
#[derive(Debug)]
pub struct Store {
    writer: Writer,
    thread: Option<JoinHandle<Ended>>,
    lock: Option<lock::Lock>,
}

/// An open log and what its opening found.
#[derive(Debug)]
pub struct Opened {
    /// The log.
    pub store: Store,
    /// What was found.
    pub standing: Standing,
    /// The head before this start.
    pub previous_head: Option<Head>,
    /// Whether the run before ended in order (a last row of the kind `end`); none where there was none, or its end
    /// cannot be told.
    pub previous_ended: Option<bool>,
    /// All rows of calls that have no settlement, in order: what repair works from.
    pub open_calls: Vec<Recorded>,
}

impl Store {
    /// Takes the lock, opens the log or makes it, writes the boot row, and starts the writer.
    ///
    /// What may pass (a full or read-only disk, a disk error, a foreign lock) does not stop a start: the store is then
    /// degraded from the beginning ([`Standing::Unreachable`]), keeps rows in memory and tries again. A log with lost,
    /// altered or damaged rows opens: it says so in its first row and goes on.
    ///
    /// # Errors
    /// Why there can be no log: another daemon, another version, a file that may not be touched.
    pub fn open(settings: &Settings) -> Result<Opened, StoreError> {
        let lock = match make_dir(&settings.state) {
            Ok(()) => Some(lock::Lock::take(&settings.state)?),
            // The place itself is lost: a disk that is not there stops no supervision.
            Err(e) if Fault::passing(&e).is_some() => None,
            Err(e) => return Err(e),
        };
        if backup::cut_off(&settings.state) {
            return Err(StoreError::HalfRestored { dir: settings.state.clone() });
        }
        let begun = match lock {
            Some(_) => begin(settings),
            None => make_dir(&settings.state).and_then(|()| begin(settings)),
        };
        let (log, found) = match begun {
            Ok((log, found)) => (Ok(log), found),
            Err(e) => {
                let Some(fault) = Fault::passing(&e) else { return Err(e) };
                let found = Found {
                    standing: Standing::Unreachable { fault },
                    head: None,
                    open_calls: Vec::new(),
                    ended: None,
                };
                (Err(fault), found)
            }
        };
        let seq = log.as_ref().map_or(Seq(0), |log| log.last().seq);
        let health = log.as_ref().map_or_else(|fault| Health::Degraded(*fault), |_| Health::Writing);
        let (queue, waiting) = sync_channel(QUEUE_LEN_MAX);
        let told = Acks { ticket: 0, seq, failures: 0, health, dropped: 0 };
        let (tell, acks) = watch::channel(told);
        let shared = Arc::new(Shared::default());
        let thread = writer::Thread::new(settings.clone(), Arc::clone(&shared), waiting, tell, log);
        let thread = std::thread::Builder::new()
            .name("evidence".to_owned())
            .spawn(move || thread.run())
            .map_err(StoreError::NoThread)?;
        // Set before the first writer is given out, so that nobody misses it.
        drop(shared.thread.set(thread.thread().clone()));
        let writer = Writer { shared, queue, acks };
        let store = Store { writer, thread: Some(thread), lock };
        Ok(Opened {
            store,
            standing: found.standing,
            previous_head: found.head,
            previous_ended: found.ended,
            open_calls: found.open_calls,
        })
    }

    /// A way to the writer.
    #[must_use]
    pub fn writer(&self) -> Writer {
        self.writer.clone()
    }

    /// Writes what waits, lets the log rest, ends the thread and gives up the lock.
    pub fn close(mut self) -> Ended {
        self.end()
    }

    fn end(&mut self) -> Ended {
        self.writer.shared.stop.store(true, Ordering::SeqCst);
        self.writer.shared.wake();
        let ended = self.thread.take().map(JoinHandle::join);
        self.lock = None;
        match ended {
            Some(Ok(ended)) => ended,
            Some(Err(_)) => Ended { unwritten: 0, panicked: true },
            None => Ended { unwritten: 0, panicked: false },
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.end();
    }
}

/// Opens the log and writes the boot row.
fn begin(settings: &Settings) -> Result<(Log, Found), StoreError> {
    let (mut log, found) = Log::open(settings, Past::Ended)?;
    log.boot(&settings.version, &found)
        .map_err(|fault| StoreError::NotWritable { path: settings.state.join("evidence"), fault })?;
    Ok((log, found))
}

fn make_dir(dir: &Path) -> Result<(), StoreError> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().recursive(true).mode(0o750).create(dir).map_err(|e| StoreError::io(dir, e))
}

//! All tasks of the server, within bounds.
//!
//! A task is kept at least until its time to live is over, so a full table refuses a new task; it never forgets one
//! that a client was promised. The supervisor's feed comes in here, and what was saved before a restart: a task that
//! was at work then is failed, because the process that worked for it is gone.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use interlock_domain::time::Wall;
use tokio::sync::{broadcast, watch};
use tokio::time::timeout;

use crate::agents::ctx::{Ctx, Owner};
use crate::agents::engine::WorkerView;
use crate::agents::parked;
use crate::agents::tasks::record::{Record, Saved, Status, now};
use crate::mcp::rpc::{self, RpcError};

/// Tasks that are kept at once.
pub const TASKS_MAX: usize = 1024;

/// Tasks that are at work at once: each holds a place among the requests in flight.
pub const WORKING_MAX: usize = 256;

/// How long a task is kept when its client does not say, in milliseconds: as long as the supervisor lists a worker
/// that has ended.
pub const TTL_MS: u64 = 3_600_000;

/// The shortest and the longest life that a client may ask for. A task that is gone before it can be asked for is
/// useless; one that stays for days fills the table.
const TTL_MS_BOUNDS: (u64, u64) = (1000, 24 * 3_600_000);

/// How long the writing down of a new task is waited for.
const KEEP_WAIT: Duration = Duration::from_secs(2);

/// News that a listener may be behind with.
const NEWS_LEN: usize = 256;

/// The tasks.
#[derive(Debug)]
pub struct Tasks {
    // The tasks of all requests look records up here; a record's own state is behind its own lock.
    table: Mutex<Table>,
    news: broadcast::Sender<Arc<Record>>,
    /// The number of the newest task.
    made: watch::Sender<u64>,
    /// The newest task that is written down; none while nobody writes.
    kept: watch::Sender<Option<u64>>,
}

#[derive(Debug, Default)]
struct Table {
    records: HashMap<String, Arc<Record>>,
    made: u64,
}

impl Default for Tasks {
    fn default() -> Tasks {
        Tasks {
            table: Mutex::default(),
            news: broadcast::Sender::new(NEWS_LEN),
            made: watch::Sender::new(0),
            kept: watch::Sender::new(None),
        }
    }
}

impl Tasks {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The records whose status or message changes, as they change: for clients, and for whoever writes them down.
    #[must_use]
    pub fn news(&self) -> broadcast::Receiver<Arc<Record>> {
        self.news.subscribe()
    }

    /// Makes a task of a call that is at work.
    ///
    /// # Errors
    /// When there is no room for another.
    pub fn create(&self, ctx: &Ctx, tool: &str, ttl_ms: Option<u64>) -> Result<Arc<Record>, RpcError> {
        let id = parked::token().ok_or_else(|| RpcError::new(rpc::INTERNAL_ERROR, "the system has no randomness"))?;
        let created = now();
        let saved = Saved {
            id,
            owner: ctx.owner.0.to_string(),
            place: ctx.place.to_string(),
            tool: tool.to_owned(),
            status: Status::Working,
            message: None,
            created,
            updated: created,
            ttl_ms: ttl_ms.unwrap_or(TTL_MS).clamp(TTL_MS_BOUNDS.0, TTL_MS_BOUNDS.1),
            end: None,
        };
        let mut table = self.table();
        table.records.retain(|_, record| !is_over(record, created));
        let working = table.records.values().filter(|record| !record.status().is_terminal()).count();
        if table.records.len() >= TASKS_MAX || working >= WORKING_MAX {
            let message = format!("{working} tasks are at work, {} are kept", table.records.len());
            return Err(RpcError::new(rpc::BUSY, message));
        }
        Ok(self.add(&mut table, saved, ctx))
    }

    fn add(&self, table: &mut Table, saved: Saved, ctx: &Ctx) -> Arc<Record> {
        table.made += 1;
        let record = Record::new(saved, table.made, ctx.cancel.clone(), self.news.clone());
        table.records.insert(record.id.clone(), Arc::clone(&record));
        self.made.send_replace(table.made);
        record
    }

    /// The number of the newest task, and when there is another.
    #[must_use]
    pub fn made(&self) -> watch::Receiver<u64> {
        self.made.subscribe()
    }

    /// Everything up to this task is written down.
    pub fn keep(&self, upto: u64) {
        self.kept.send_replace(Some(upto));
    }

    /// Waits until a task is written down, so that a client is never told of one that a restart would forget. A disk
    /// that does not answer is not waited for: the task is at work all the same.
    pub async fn kept(&self, record: &Record) {
        let mut kept = self.kept.subscribe();
        let wait = kept.wait_for(|kept| kept.is_none_or(|upto| upto >= record.number));
        if timeout(KEEP_WAIT, wait).await.is_err() {
            tracing::warn!(task = record.id, "a task is not written down yet");
        }
    }

    /// The task with that id, if it is this owner's and its life is not over.
    #[must_use]
    pub fn find(&self, id: &str, owner: &Owner) -> Option<Arc<Record>> {
        let record = self.table().records.get(id).map(Arc::clone)?;
        (record.owner == *owner && !is_over(&record, now())).then_some(record)
    }

    /// The tasks that were made in one place, oldest first, after the one with that number.
    #[must_use]
    pub fn made_in(&self, place: &str, after: u64) -> Vec<Arc<Record>> {
        let at = now();
        let table = self.table();
        let mut made: Vec<Arc<Record>> = table
            .records
            .values()
            .filter(|record| *record.place == *place && record.number > after && !is_over(record, at))
            .map(Arc::clone)
            .collect();
        made.sort_by_key(|record| record.number);
        made
    }

    /// Takes in what the supervisor says of its workers: at each change of a state, and after each scan for the ages
    /// of the beats.
    pub fn observe(&self, workers: &[WorkerView]) {
        let records: Vec<Arc<Record>> = self.table().records.values().map(Arc::clone).collect();
        for record in records {
            if let Some(worker) = record.worker().and_then(|id| workers.iter().find(|worker| worker.task == id)) {
                record.observe(worker);
            }
        }
    }

    /// Takes in what was saved before a restart.
    pub fn restore(&self, saved: Vec<Saved>) {
        let mut table = self.table();
        for mut saved in saved.into_iter().take(TASKS_MAX) {
            if !saved.status.is_terminal() {
                let message =
                    "the daemon ended while this task was at work; its outcome is not known: see the evidence";
                saved.status = Status::Failed;
                saved.message = Some(message.to_owned());
                saved.updated = now();
                saved.end = Some(Err(RpcError::new(rpc::INTERNAL_ERROR, message)));
            }
            table.made += 1;
            let record = Record::new(saved, table.made, Default::default(), self.news.clone());
            table.records.insert(record.id.clone(), record);
        }
    }

    /// All that has to be written down.
    #[must_use]
    pub fn saved(&self) -> Vec<Saved> {
        self.table().records.values().map(|record| record.saved()).collect()
    }
}

/// Whether its life is over. What is at work is kept.
fn is_over(record: &Record, at: Wall) -> bool {
    let ttl = i64::try_from(record.ttl_ms).unwrap_or(i64::MAX);
    record.status().is_terminal() && at.0 > record.created.0.saturating_add(ttl)
}

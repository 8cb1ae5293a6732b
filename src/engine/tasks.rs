//! Owns what people see of background tasks: the supervisor's notices become evidence and alarms, and the rows of
//! `task list` carry the number of their last row.
//!
//! The supervisor never waits for this owner: a notice that finds no room here stays in its own bounded ring. The owner
//! has a plain thread of its own: that the async runtime is wedged must reach the evidence, which it could not on a
//! thread of that runtime.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use interlock_domain::id::{TaskId, WorkerKey};
use interlock_domain::liveness::advice::advice;
use interlock_domain::liveness::lifecycle::{Cause, Notice, State};
use interlock_domain::surface::outputs::Outputs;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot, watch};

use super::keeper::Keeper;
use super::supervisor::{Finished, Heart, NoAnswer, SpawnRefused, Supervisor, TaskRow, TaskSpec};
use crate::record::event::validity_row;
use crate::record::{Row, rfc3339};
use crate::store::queue::{Entry, Receipt, Tell, Writer};

/// Notices that may wait here; the supervisor's own ring holds the rest.
const NOTICES_MAX: usize = 1024;

/// Task numbers that are set aside at a time, so that none is given twice, also not after a crash. So many births
/// would have to happen within one commit of the state to pass them.
pub const ASIDE: u64 = 64;

/// Questions about tasks that may wait.
const INBOX_LEN_MAX: usize = 64;

/// The way to the tasks. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Tasks {
    inbox: mpsc::Sender<Message>,
    supervisor: Supervisor,
    writer: Writer,
    changes: watch::Receiver<u64>,
}

#[derive(Debug)]
enum Message {
    List { back: oneshot::Sender<Vec<(TaskRow, Option<u64>)>> },
}

/// Where the supervisor's notices go, and where they come out.
#[must_use]
pub fn channel() -> (mpsc::Sender<Notice>, mpsc::Receiver<Notice>) {
    mpsc::channel(NOTICES_MAX)
}

/// The owner.
pub struct Owner {
    notices: mpsc::Receiver<Notice>,
    inbox: mpsc::Receiver<Message>,
    supervisor: Supervisor,
    writer: Writer,
    keeper: Keeper,
    /// The first task number that is not set aside.
    aside: u64,
    last: BTreeMap<WorkerKey, Receipt>,
    changed: watch::Sender<u64>,
}

impl Tasks {
    /// A handle and the owner, which the caller starts. `first` is the number of the first task, with [`ASIDE`] numbers
    /// set aside from it on.
    #[must_use]
    pub fn new(
        supervisor: Supervisor,
        notices: mpsc::Receiver<Notice>,
        writer: Writer,
        keeper: Keeper,
        first: TaskId,
    ) -> (Tasks, Owner) {
        let (inbox, outlet) = mpsc::channel(INBOX_LEN_MAX);
        let (changed, changes) = watch::channel(0);
        let owner = Owner {
            notices,
            inbox: outlet,
            supervisor: supervisor.clone(),
            writer: writer.clone(),
            keeper,
            aside: first.0 + ASIDE,
            last: BTreeMap::new(),
            changed,
        };
        (Tasks { inbox, supervisor, writer, changes }, owner)
    }

    /// The supervisor, for whoever starts a worker.
    #[must_use]
    pub fn supervisor(&self) -> &Supervisor {
        &self.supervisor
    }

    /// Starts a worker whose output is held against `promised` when it ends: what is found becomes a row of the
    /// evidence, under its task.
    ///
    /// # Errors
    /// [`NoAnswer`], and inside of it what the supervisor says.
    pub async fn spawn(
        &self,
        spec: TaskSpec,
        promised: Arc<Outputs>,
        work: impl FnOnce(Heart) -> Finished + Send + 'static,
    ) -> Result<Result<WorkerKey, SpawnRefused>, NoAnswer> {
        let writer = self.writer.clone();
        let examined = move |heart: Heart| {
            let ours = heart.clone();
            let finished = work(heart);
            examine(&ours, &finished, &promised, &writer);
            finished
        };
        self.supervisor.spawn(spec, examined).await
    }

    /// Rises with each notice of the supervisor.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.clone()
    }

    /// All tasks; those that were cleaned only with `all`. One of the daemon's own is among them only when something is
    /// wrong with it: a person looks here for what people started.
    ///
    /// # Errors
    /// When nobody answers.
    pub async fn list(&self, all: bool) -> Result<Vec<(TaskRow, Option<u64>)>, NoAnswer> {
        let mut rows = self.everything().await?;
        rows.retain(|(row, _)| (all || row.state != State::Cleaned) && !(row.own && is_well(row)));
        Ok(rows)
    }

    async fn everything(&self) -> Result<Vec<(TaskRow, Option<u64>)>, NoAnswer> {
        let (back, rows) = oneshot::channel();
        self.inbox.send(Message::List { back }).await.map_err(|_| NoAnswer)?;
        rows.await.map_err(|_| NoAnswer)
    }

    /// The newest life of one task; also of one of the daemon's own.
    ///
    /// # Errors
    /// When nobody answers.
    pub async fn show(&self, task: TaskId) -> Result<Option<(TaskRow, Option<u64>)>, NoAnswer> {
        let rows = self.everything().await?;
        Ok(rows.into_iter().filter(|(row, _)| row.key.task == task).max_by_key(|(row, _)| row.key.generation))
    }
}

impl Owner {
    /// Runs on a thread of its own until every handle is gone and the supervisor has ended: then all that it said has
    /// been handed to the log.
    ///
    /// # Errors
    /// When the system gives no thread, or no place to wait in.
    pub fn start(self) -> io::Result<JoinHandle<()>> {
        let waiting = tokio::runtime::Builder::new_current_thread().build()?;
        std::thread::Builder::new().name("tasks".to_owned()).spawn(move || waiting.block_on(self.run()))
    }

    async fn run(mut self) {
        loop {
            tokio::select! {
                biased;
                notice = self.notices.recv() => match notice {
                    Some(notice) => self.take(&notice).await,
                    None => return,
                },
                Some(message) = self.inbox.recv() => match message {
                    Message::List { back } => {
                        let rows = self.supervisor.list().await.unwrap_or_default();
                        self.last.retain(|key, _| rows.iter().any(|row| row.key == *key));
                        let seq = |row: &TaskRow| self.last.get(&row.key).and_then(Receipt::seq).map(|seq| seq.0);
                        let rows = rows.into_iter().map(|row| (seq(&row), row)).map(|(seq, row)| (row, seq)).collect();
                        let _ = back.send(rows);
                    }
                },
            }
        }
    }

    async fn take(&mut self, notice: &Notice) {
        if let (Cause::Spawned, Some(key)) = (notice.cause, notice.key) {
            self.set_aside(key.task);
        }
        let receipt = Receipt::default();
        let urgent = match notice.to {
            Some(State::Zombie | State::Dead) => true,
            Some(State::Running | State::Stopped | State::Cleaned) | None => false,
        };
        let entry = Entry { row: row(notice), now: urgent, tell: Tell::Nobody, receipt: Some(receipt.clone()) };
        if self.writer.append_when_room(entry).await.is_err() {
            return;
        }
        let Some(key) = notice.key else { return };
        self.last.insert(key, receipt);
        self.changed.send_modify(|count| *count += 1);
        self.alarm(key, notice);
    }

    /// Numbers are set aside ahead of use.
    fn set_aside(&mut self, newest: TaskId) {
        if newest.0 + ASIDE / 2 < self.aside {
            return;
        }
        match self.keeper.later(|state| state.set_aside("task", ASIDE).map(|_| ())) {
            Ok(()) => self.aside += ASIDE,
            // The next birth tries again.
            Err(error) => tracing::error!(%error, "no task numbers were set aside"),
        }
    }

    /// A ZOMBIE raises an alarm that goes when it is over; a DEAD one raises one that a person resets.
    fn alarm(&self, key: WorkerKey, notice: &Notice) {
        let source = format!("task:{}", key.task);
        let at = crate::sys::clock::wall();
        let kept = match (notice.from, notice.to) {
            (from, to) if from == to => Ok(()),
            (_, Some(State::Zombie | State::Dead)) => {
                let state = notice.to.map_or("", State::name);
                let text = format!("{} is {state}: {} {}", key.task, notice.cause.name(), notice.detail);
                self.keeper.later(move |state| state.raise_alarm(&source, text.trim_end(), at).map(|_| ()))
            }
            (Some(State::Zombie), Some(State::Running | State::Stopped)) => {
                self.keeper.later(move |state| state.clear_alarms(&source, at).map(|_| ()))
            }
            _ => Ok(()),
        };
        if let Err(error) = kept {
            tracing::error!(%error, task = %key.task, "an alarm was not kept");
        }
    }
}

fn is_well(row: &TaskRow) -> bool {
    match row.state {
        State::Running => row.cause.is_none(),
        State::Stopped | State::Cleaned => true,
        State::Zombie | State::Dead => false,
    }
}

/// The second layer of the evidence: what a task gave back against what was promised of it. From the thread of the
/// task, which has nobody to wait for.
fn examine(heart: &Heart, finished: &Finished, promised: &Outputs, writer: &Writer) {
    let (Finished::Done(output) | Finished::Stopped(output)) = finished else { return };
    let validity = promised.judge(output);
    let (Some(key), false) = (heart.key(), validity.findings.is_empty()) else { return };
    let mut row = Row::new(super::stamp::now(), "validity");
    row.task = Some(key.task);
    row.generation = Some(key.generation);
    writer.append_or_count(Entry::relaxed(validity_row(row, &validity)));
}

fn row(notice: &Notice) -> Row {
    let mut row = Row::new(super::stamp::now(), notice.kind.name().to_ascii_lowercase());
    row.task = notice.key.map(|key| key.task);
    row.generation = notice.key.map(|key| key.generation);
    row.from = notice.from.map(|state| state.name().into());
    row.to = notice.to.map(|state| state.name().into());
    row.cause = Some(notice.cause.name().into());
    if notice.detail.is_empty() { row } else { row.detailed(&json!({ "detail": notice.detail })) }
}

/// One row of `task list --json` (`cli.md`).
#[must_use]
pub fn to_json(row: &TaskRow, evidence: Option<u64>) -> Value {
    json!({
        "task": row.key.task.to_string(),
        "generation": row.key.generation,
        "state": row.state.name(),
        "cause": row.cause.map(Cause::name),
        "last_beat_ms": row.last_beat_ms,
        "progress": row.progress,
        "tid": row.tid,
        "started": rfc3339(row.started),
        "evidence": evidence,
        "outcome": row.outcome.map(interlock_domain::liveness::lifecycle::Outcome::name),
        "name": row.name,
        "about": row.about,
        "output": row.output,
        "said": if row.said.is_empty() { Value::Null } else { row.said.as_str().into() },
    })
}

/// The same for a person who judges it: what is known, and what to do next.
#[must_use]
pub fn shown(row: &TaskRow, evidence: Option<u64>, zh: bool) -> Value {
    let mut value = to_json(row, evidence);
    let mut facts = Vec::new();
    if !row.phase.is_empty() {
        facts.push(format!("phase {}", row.phase));
    }
    if !row.checkpoint.is_empty() {
        facts.push(format!("last checkpoint {}", row.checkpoint));
    }
    if row.wrong_thread_beats > 0 {
        facts.push(format!("{} beats from other threads were refused", row.wrong_thread_beats));
    }
    if let Some(phi) = row.suspicion {
        facts.push(format!("suspicion (phi) {phi:.1}"));
    }
    if !row.counters.is_empty() {
        facts.push(row.counters.clone());
    }
    value["diagnosis"] = if facts.is_empty() { Value::Null } else { facts.join("; ").into() };
    let task = row.key.task;
    let (en, cn) = match row.state {
        State::Running => (
            format!("nothing to do; interlock task stop {task} ends it"),
            format!("无需处理；结束任务：interlock task stop {task}"),
        ),
        State::Zombie => (
            format!("it is alive but silent: look at the diagnosis, wait, or interlock task stop {task}"),
            format!("线程还在但没有响应：请查看诊断信息，继续等待，或执行 interlock task stop {task}"),
        ),
        State::Dead => (
            format!(
                "its thread ended without a result: see the reason, start it again, then interlock task clean {task}"
            ),
            format!("线程已消失且没有结果：请查看原因，重新启动，然后执行 interlock task clean {task}"),
        ),
        State::Stopped => (
            format!("it has ended: interlock task clean {task} takes it off the list"),
            format!("任务已结束：interlock task clean {task} 可将其移出列表"),
        ),
        State::Cleaned => ("only its record is left".to_owned(), "仅保留记录".to_owned()),
    };
    // What is known of the cause says more than the state does.
    let of_cause = row.cause.and_then(advice).map(|advice| if zh { advice.zh } else { advice.en });
    value["advice"] = of_cause.map_or_else(|| if zh { cn } else { en }, str::to_owned).into();
    value
}

//! One task: its status, its questions, its end, and how both eras write it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use interlock_domain::id::{CallId, TaskId};
use interlock_domain::time::Wall;
use serde_json::{Map, Value, json};
use tokio::sync::{broadcast, watch};

use crate::agents::ctx::Owner;
use crate::agents::engine::{ReplyView, WorkerState, WorkerView};
use crate::agents::outcome;
use crate::agents::session::Cancel;
use crate::mcp::rpc::{self, RpcError};
use crate::mcp::shape;
use crate::mcp::upward::Ask;

/// How often a client should ask, in milliseconds: as often as the supervisor scans.
const POLL_MS: u64 = 1000;

/// `_meta` of a task: what the supervisor says of its worker.
pub const META_LIVENESS: &str = "interlock/liveness";

/// `_meta` of the older era: the task that something belongs to.
pub const META_RELATED: &str = "io.modelcontextprotocol/related-task";

/// Where a task stands. An answer that is an error of the tool is `Completed`; the older era calls it failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// At work.
    Working,
    /// Waits for answers.
    InputRequired,
    /// Has its result.
    Completed,
    /// Ended with an error of the protocol, or its worker died.
    Failed,
    /// Was cancelled.
    Cancelled,
}

impl Status {
    /// As it is written.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Status::Working => "working",
            Status::InputRequired => "input_required",
            Status::Completed => "completed",
            Status::Failed => "failed",
            Status::Cancelled => "cancelled",
        }
    }

    /// The status that is written so.
    #[must_use]
    pub fn read(text: &str) -> Option<Status> {
        [Status::Working, Status::InputRequired, Status::Completed, Status::Failed, Status::Cancelled]
            .into_iter()
            .find(|status| status.as_str() == text)
    }

    /// Whether it never changes again.
    #[must_use]
    pub fn is_terminal(self) -> bool {
        match self {
            Status::Working | Status::InputRequired => false,
            Status::Completed | Status::Failed | Status::Cancelled => true,
        }
    }
}

/// The end of a task: the result of its call, or an error.
pub type End = Result<Value, RpcError>;

/// One task.
#[derive(Debug)]
pub struct Record {
    /// Its id: unguessable, because whoever knows it may ask for it.
    pub id: String,
    /// Orders the tasks of a list.
    pub number: u64,
    /// Whose it is.
    pub owner: Owner,
    /// The session or connection that it was made in.
    pub place: Arc<str>,
    /// The tool that was called.
    pub tool: String,
    /// When it was made.
    pub created: Wall,
    /// How long it is kept after that, in milliseconds.
    pub ttl_ms: u64,
    /// Asks its call to stop.
    pub cancel: Cancel,
    // The call, the supervisor's feed and the requests of clients meet here, each for a field or two.
    state: Mutex<State>,
    changes: watch::Sender<u64>,
    news: broadcast::Sender<Arc<Record>>,
}

#[derive(Debug)]
struct State {
    status: Status,
    message: Option<String>,
    updated: Wall,
    end: Option<End>,
    asks: Vec<Open>,
    asked: u64,
    followed: Option<Followed>,
    liveness: Option<Value>,
}

/// A question of the task.
#[derive(Debug)]
struct Open {
    /// The key that clients see; never used twice in the life of a task.
    key: String,
    ask: Ask,
    answer: Option<Value>,
}

/// The worker that the task stands for, and what its call answered when it started it.
#[derive(Debug)]
struct Followed {
    worker: TaskId,
    call: CallId,
    started: ReplyView,
}

/// What is known of a task when it is made or read back.
#[derive(Debug, Clone, PartialEq)]
pub struct Saved {
    /// See [`Record`].
    pub id: String,
    /// See [`Record`].
    pub owner: String,
    /// See [`Record`].
    pub place: String,
    /// See [`Record`].
    pub tool: String,
    /// Where it stands.
    pub status: Status,
    /// What is said of that.
    pub message: Option<String>,
    /// See [`Record`].
    pub created: Wall,
    /// When its status last changed.
    pub updated: Wall,
    /// See [`Record`].
    pub ttl_ms: u64,
    /// Its end.
    pub end: Option<End>,
}

/// Now, for people to read.
#[must_use]
pub fn now() -> Wall {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Wall(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

impl Record {
    /// A record as it was saved.
    #[must_use]
    pub fn new(saved: Saved, number: u64, cancel: Cancel, news: broadcast::Sender<Arc<Record>>) -> Arc<Record> {
        Arc::new(Record {
            id: saved.id,
            number,
            owner: Owner(saved.owner.into()),
            place: saved.place.into(),
            tool: saved.tool,
            created: saved.created,
            ttl_ms: saved.ttl_ms,
            cancel,
            state: Mutex::new(State {
                status: saved.status,
                message: saved.message,
                updated: saved.updated,
                end: saved.end,
                asks: Vec::new(),
                asked: 0,
                followed: None,
                liveness: None,
            }),
            changes: watch::Sender::new(0),
            news,
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state by a function that says whether anybody should be told.
    fn change(self: &Arc<Record>, change: impl FnOnce(&mut State) -> bool) {
        let is_news = change(&mut self.state());
        self.changes.send_modify(|count| *count += 1);
        if is_news {
            // Fails when nobody listens.
            let _nobody = self.news.send(Arc::clone(self));
        }
    }

    /// Where it stands.
    #[must_use]
    pub fn status(&self) -> Status {
        self.state().status
    }

    /// Its end, once it is there.
    #[must_use]
    pub fn end(&self) -> Option<End> {
        let state = self.state();
        match (&state.end, state.status) {
            (Some(end), _) => Some(end.clone()),
            (None, Status::Cancelled) => Some(Err(RpcError::new(rpc::INTERNAL_ERROR, "the task was cancelled"))),
            (None, _) => None,
        }
    }

    /// The worker that it stands for.
    #[must_use]
    pub fn worker(&self) -> Option<TaskId> {
        self.state().followed.as_ref().map(|followed| followed.worker)
    }

    /// Something to wait on for its next change; made before the state is looked at.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Ends it with the result of its call. What is terminal stays as it is.
    pub fn finish(self: &Arc<Record>, end: End) {
        let status = if end.is_ok() { Status::Completed } else { Status::Failed };
        let message = match &end {
            Ok(result) => outcome::text(result),
            Err(error) => Some(error.message.clone()),
        };
        self.change(|state| state.settle(status, message, Some(end)));
    }

    /// It was cancelled.
    pub fn cancelled(self: &Arc<Record>, message: &str) {
        self.change(|state| state.settle(Status::Cancelled, Some(message.to_owned()), None));
    }

    /// Its call has started a worker: from now on the worker's life is its own.
    pub fn follow(self: &Arc<Record>, worker: TaskId, call: CallId, started: ReplyView) {
        self.change(|state| {
            state.followed = Some(Followed { worker, call, started });
            false
        });
    }

    /// Takes in what the supervisor says of its worker.
    pub fn observe(self: &Arc<Record>, worker: &WorkerView) {
        self.change(|state| state.observe(worker));
    }

    /// Opens questions and gives the keys that clients see.
    pub fn ask(self: &Arc<Record>, asks: Vec<Ask>) {
        self.change(|state| {
            for ask in asks {
                state.asked += 1;
                state.asks.push(Open { key: format!("q{}", state.asked), ask, answer: None });
            }
            state.stand(Status::InputRequired)
        });
    }

    /// The open questions, by the keys that clients see.
    #[must_use]
    pub fn asks(&self) -> Vec<(String, Ask)> {
        let state = self.state();
        state
            .asks
            .iter()
            .filter(|open| open.answer.is_none())
            .map(|open| (open.key.clone(), open.ask.clone()))
            .collect()
    }

    /// An answer to an open question. Unknown keys are ignored: the answer may come twice.
    pub fn answer(self: &Arc<Record>, key: &str, answer: Value) {
        self.change(|state| {
            match state.asks.iter_mut().find(|open| open.key == key && open.answer.is_none()) {
                Some(open) => open.answer = Some(answer),
                None => return false,
            }
            let all_are_there = state.asks.iter().all(|open| open.answer.is_some());
            all_are_there && state.stand(Status::Working)
        });
    }

    /// Takes the answers, by the keys of whoever asked, once all are there.
    pub fn answers(self: &Arc<Record>) -> Option<Vec<(String, Value)>> {
        let mut state = self.state();
        if state.asks.iter().any(|open| open.answer.is_none()) {
            return None;
        }
        let asks = std::mem::take(&mut state.asks);
        Some(asks.into_iter().filter_map(|open| Some((open.ask.key, open.answer?))).collect())
    }

    /// Nobody needs its questions to be answered any more.
    pub fn withdraw(self: &Arc<Record>) {
        self.change(|state| {
            state.asks.clear();
            state.stand(Status::Working)
        });
    }

    /// What has to be written down of it.
    #[must_use]
    pub fn saved(&self) -> Saved {
        let state = self.state();
        Saved {
            id: self.id.clone(),
            owner: self.owner.0.to_string(),
            place: self.place.to_string(),
            tool: self.tool.clone(),
            status: state.status,
            message: state.message.clone(),
            created: self.created,
            updated: state.updated,
            ttl_ms: self.ttl_ms,
            end: state.end.clone(),
        }
    }

    /// As 2025-11-25 writes it.
    #[must_use]
    pub fn legacy(&self) -> Value {
        let state = self.state();
        let is_error = matches!(&state.end, Some(Ok(result)) if result["isError"] == true);
        let status = if is_error { Status::Failed } else { state.status };
        let mut task = self.common(&state, status);
        task["ttl"] = self.ttl_ms.into();
        if !status.is_terminal() {
            task["pollInterval"] = POLL_MS.into();
        }
        task
    }

    /// What the older era tells of a change.
    #[must_use]
    pub fn status_notification(&self) -> String {
        rpc::notification("notifications/tasks/status", &self.legacy())
    }

    /// As 2026-07-28 writes it when it is made.
    #[must_use]
    pub fn modern(&self) -> Value {
        let state = self.state();
        self.modern_of(&state)
    }

    /// As 2026-07-28 writes it when it is asked for: with its questions or its end.
    #[must_use]
    pub fn modern_in_detail(&self) -> Value {
        let state = self.state();
        let mut task = self.modern_of(&state);
        match (&state.end, state.status) {
            (Some(Ok(result)), _) => {
                let mut result = result.clone();
                // Without it clients report the task as failed.
                *shape::member(&mut result, "resultType") = "complete".into();
                task["result"] = result;
            }
            (Some(Err(error)), _) => task["error"] = error.to_value(),
            (None, Status::InputRequired) => {
                let open = state.asks.iter().filter(|open| open.answer.is_none());
                let requests: Map<String, Value> = open
                    .map(|open| (open.key.clone(), json!({"method": open.ask.method, "params": open.ask.params})))
                    .collect();
                task["inputRequests"] = Value::Object(requests);
            }
            (None, Status::Working | Status::Completed | Status::Failed | Status::Cancelled) => {}
        }
        task
    }

    fn modern_of(&self, state: &State) -> Value {
        let mut task = self.common(state, state.status);
        task["ttlMs"] = self.ttl_ms.into();
        if !state.status.is_terminal() {
            task["pollIntervalMs"] = POLL_MS.into();
        }
        task
    }

    fn common(&self, state: &State, status: Status) -> Value {
        let mut task = json!({
            "taskId": self.id,
            "status": status.as_str(),
            "createdAt": iso(self.created),
            "lastUpdatedAt": iso(state.updated),
        });
        if let Some(message) = &state.message {
            task["statusMessage"] = message.as_str().into();
        }
        if let Some(liveness) = &state.liveness {
            task["_meta"] = json!({META_LIVENESS: liveness});
        }
        task
    }
}

impl State {
    /// Moves to another status that is not terminal. Says whether it did.
    fn stand(&mut self, status: Status) -> bool {
        if self.status.is_terminal() || self.status == status {
            return false;
        }
        self.status = status;
        self.updated = now();
        true
    }

    /// Moves to a terminal status. Says whether it did.
    fn settle(&mut self, status: Status, message: Option<String>, end: Option<End>) -> bool {
        if self.status.is_terminal() {
            return false;
        }
        self.status = status;
        self.updated = now();
        self.message = message;
        self.end = end;
        self.asks.clear();
        true
    }

    fn observe(&mut self, worker: &WorkerView) -> bool {
        let (call, started) = match &self.followed {
            Some(followed) if followed.worker == worker.task => (followed.call, followed.started.clone()),
            Some(_) | None => return false,
        };
        if self.status.is_terminal() {
            return false;
        }
        self.liveness = Some(worker.liveness());
        let row = worker.evidence.map_or_else(String::new, |seq| format!("; evidence row {seq}"));
        let cause = if worker.cause.is_empty() { String::new() } else { format!(" ({})", worker.cause) };
        match worker.state {
            WorkerState::Running => {
                // A worker that beats again is no longer the zombie that it was called.
                self.message.take().is_some()
            }
            WorkerState::Zombie => {
                let beat = worker.last_beat_ms.map_or_else(String::new, |ms| format!(", last beat {ms} ms ago"));
                let message = format!("ZOMBIE{cause}: {} gives no sign of life{beat}{row}", worker.task);
                let is_new = self.message.as_deref().is_none_or(|said| !said.starts_with("ZOMBIE"));
                self.message = Some(message);
                is_new
            }
            WorkerState::Dead => self.fail(format!("worker {} died{cause}{row}", worker.task)),
            WorkerState::Stopped | WorkerState::Cleaned => match (&worker.end, worker.state) {
                (Some(end), _) => {
                    let end = outcome::followed(call, started, end.clone());
                    let message = end.as_ref().ok().and_then(outcome::text);
                    let status = if end.is_ok() { Status::Completed } else { Status::Failed };
                    self.settle(status, message, Some(end))
                }
                (None, WorkerState::Cleaned) => {
                    self.fail(format!("worker {} was cleared away before its end was seen{row}", worker.task))
                }
                (None, WorkerState::Running | WorkerState::Zombie | WorkerState::Dead | WorkerState::Stopped) => {
                    let message = format!("worker {} was stopped{cause}{row}", worker.task);
                    self.settle(Status::Cancelled, Some(message), None)
                }
            },
        }
    }

    fn fail(&mut self, message: String) -> bool {
        let error = RpcError::new(rpc::INTERNAL_ERROR, message.clone());
        self.settle(Status::Failed, Some(message), Some(Err(error)))
    }
}

/// ISO 8601 in UTC, to the millisecond.
#[must_use]
pub fn iso(wall: Wall) -> String {
    let (days, millis) = (wall.0.div_euclid(86_400_000), wall.0.rem_euclid(86_400_000));
    // Days to a civil date: Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms", civil_from_days.
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let of_era = z.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hours, minutes, seconds) = (millis / 3_600_000, millis / 60_000 % 60, millis / 1000 % 60);
    format!("{year:04}-{month:02}-{day:02}T{hours:02}:{minutes:02}:{seconds:02}.{:03}Z", millis % 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_written_in_utc() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_764_547_199_999, "2025-11-30T23:59:59.999Z"),
            (1_767_225_600_000, "2026-01-01T00:00:00.000Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(iso(Wall(ms)), text);
        }
    }
}

//! A call that became a task at its server: stayed with until it ends, so that our own task of it tells the truth.
//!
//! Its id stays here: our clients see a task of ours, whose end is the end of this call.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::time::{Instant, sleep_until};

use super::call::{Answer, answers, unanswered};
use super::keep::object;
use super::link::{Link, NoAnswer, Patience, With};
use crate::mcp::era::Era;
use crate::mcp::rpc::RpcError;
use crate::mcp::shape;
use crate::mcp::upward::{Line, Upward};
use crate::tool::failed;

/// How long a server is asked to keep a task, in milliseconds: a shift with its handover.
pub(super) const TTL_MS: u64 = 12 * 3600 * 1000;

/// How long a task may take at most.
const TASK_PATIENCE: Duration = Duration::from_secs(24 * 3600);

/// How long one question about it may take.
const ASK_PATIENCE: Duration = Duration::from_secs(60);

/// How often it is asked about, where the server says nothing, and the bounds of what it may say.
const POLL: Duration = Duration::from_millis(500);
const POLL_MIN: Duration = Duration::from_millis(20);
const POLL_MAX: Duration = Duration::from_secs(5);

/// What a task may be.
const STATUSES: [&str; 5] = ["working", "input_required", "completed", "failed", "cancelled"];

/// A task at a server. Dropped before its end, it is cancelled.
struct Remote {
    link: Arc<Link>,
    id: String,
    has_ended: bool,
}

impl Remote {
    fn new(link: &Arc<Link>, task: &Value) -> Option<Remote> {
        let id = task["taskId"].as_str()?.to_owned();
        Some(Remote { link: Arc::clone(link), id, has_ended: false })
    }

    async fn ask(&self, method: &str, more: Map<String, Value>, with: With<'_>) -> Result<Value, NoAnswer> {
        let mut params = more;
        params.insert("taskId".to_owned(), self.id.as_str().into());
        self.link.request(method, params, with).await
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        if self.has_ended || self.link.switch.down().is_some() {
            return;
        }
        let (link, id) = (Arc::clone(&self.link), self.id.clone());
        // A drop cannot wait; the request ends by its own time limit or with its connection.
        tokio::spawn(async move {
            let mut params = Map::new();
            params.insert("taskId".to_owned(), id.into());
            let with = With::patience(Patience::of(ASK_PATIENCE));
            drop(link.request("tasks/cancel", params, with).await);
        });
    }
}

fn unknown_status() -> NoAnswer {
    NoAnswer::Lost { killed: false, why: "its task has a status that is none".to_owned() }
}

fn no_id() -> Answer {
    Answer::None(failed("no_task_id", "the server made a task without an id"))
}

async fn detach(line: Option<&Line>) {
    if let Some(line) = line {
        let _gone = line.up.send(Upward::Detached).await;
    }
}

/// How its own client behind us sees a task: with the extension declared, whatever that client declared.
fn knowing(line: Option<&Line>) -> Option<Line> {
    line.map(|line| {
        let mut line = line.clone();
        let extensions = shape::member(&mut line.capabilities, "extensions");
        *shape::member(extensions, crate::mcp::era::TASKS) = json!({});
        line
    })
}

/// A task of 2026-07-28: asked about until it ends; its questions are put to the caller.
pub(super) async fn modern(link: &Arc<Link>, created: &Value, line: Option<&Line>) -> Result<Answer, NoAnswer> {
    let Some(mut remote) = Remote::new(link, created) else { return Ok(no_id()) };
    detach(line).await;
    let speaker = knowing(line);
    let with = With { line: speaker.as_ref(), patience: Patience::of(ASK_PATIENCE), schema: None };
    let until = Instant::now() + TASK_PATIENCE;
    let mut answered: Vec<String> = Vec::new();
    loop {
        let mut task = remote.ask("tasks/get", Map::new(), with).await?;
        match task["status"].as_str() {
            Some("completed") => {
                remote.has_ended = true;
                return Ok(Answer::Result(task["result"].take()));
            }
            Some("failed") => {
                remote.has_ended = true;
                return Ok(Answer::Error(RpcError::from_value(&task["error"])));
            }
            Some("cancelled") => {
                remote.has_ended = true;
                return Ok(Answer::None(failed("cancelled", "the server cancelled the task")));
            }
            Some("input_required") => {
                // Keys are unique for the life of a task; what was answered may still be shown.
                let mut open = object(task["inputRequests"].take());
                open.retain(|key, _| !answered.contains(key));
                if !open.is_empty() {
                    answered.extend(open.keys().cloned());
                    match answers(&json!({"inputRequests": open}), line).await {
                        Ok(answers) => {
                            let mut more = Map::new();
                            more.insert("inputResponses".to_owned(), answers);
                            remote.ask("tasks/update", more, with).await?;
                            continue;
                        }
                        Err(why) => return Ok(unanswered(why)),
                    }
                }
            }
            Some("working") => {}
            // It goes on somewhere, and nobody will ever know how.
            Some(_) | None => return Err(unknown_status()),
        }
        pause(&task["pollIntervalMs"], until).await?;
    }
}

/// A task of 2025-11-25: its result is waited for, on whose stream its questions come; where that breaks off, it is
/// asked about.
pub(super) async fn legacy(link: &Arc<Link>, created: &Value, line: Option<&Line>) -> Result<Answer, NoAnswer> {
    let Some(mut remote) = Remote::new(link, created) else { return Ok(no_id()) };
    detach(line).await;
    let _line = line.map(|line| link.switch.task(&remote.id, line.clone()));
    let until = Instant::now() + TASK_PATIENCE;
    debug_assert!(link.era == Era::Legacy, "tasks of the modern era are asked about");
    loop {
        let with = With { line, patience: Patience::of(TASK_PATIENCE), schema: None };
        match remote.ask("tasks/result", Map::new(), with).await {
            Ok(result) => {
                remote.has_ended = true;
                return Ok(Answer::Result(result));
            }
            Err(NoAnswer::Rpc(error)) => {
                remote.has_ended = true;
                return Ok(Answer::Error(error));
            }
            Err(NoAnswer::Lost { .. } | NoAnswer::TimedOut) if link.switch.down().is_none() => {}
            Err(why) => return Err(why),
        }
        // An answer says that the task is there; its result is then asked for again.
        let task = remote.ask("tasks/get", Map::new(), With::patience(Patience::of(ASK_PATIENCE))).await?;
        if !task["status"].as_str().is_some_and(|status| STATUSES.contains(&status)) {
            return Err(unknown_status());
        }
        pause(&task["pollInterval"], until).await?;
    }
}

async fn pause(said: &Value, until: Instant) -> Result<(), NoAnswer> {
    let pause = said.as_u64().map_or(POLL, Duration::from_millis).clamp(POLL_MIN, POLL_MAX);
    if Instant::now() >= until {
        return Err(NoAnswer::TimedOut);
    }
    sleep_until(Instant::now() + pause).await;
    Ok(())
}

//! Between the words of MCP's side ([`super::engine`]) and the mediator's handle.
//!
//! One task takes the requests in order; what has to be waited for is waited for beside it, so that one client's long
//! call holds up nobody's cancellation.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use interlock_domain::closure::Ending as Ended;
use interlock_domain::gate::docket;
use interlock_domain::id::{BatchId, CallId, RunId, TaskId};
use interlock_domain::liveness::lifecycle::{Outcome, State};
use interlock_domain::request::why::Lang;
use interlock_domain::request::{Asker as DomainAsker, Via};
use interlock_domain::surface::tool::{Annotations, Kind, Tool};
use interlock_domain::time::Wall;
use serde_json::{Map, Value};
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tokio::task::JoinSet;

use super::core::Core;
use super::engine::{
    Answer, Ending, Engine, EngineRequest, NotSubmitted, Offers, Output, QuestionKind, QuestionView, ReplyView,
    Submitted, TaskSupport, ToolView, WorkerState, WorkerView,
};
use crate::engine::handle::{Answered, Mediator, NotTaken, Open, Wanted};
use crate::engine::supervisor::TaskRow;
use crate::engine::tasks::Tasks;
use crate::mcp::rpc::{self, RpcError};
use crate::sys::clock;

/// Requests of all clients that may wait for this task; it answers each in microseconds.
const INBOX_LEN_MAX: usize = 256;

/// News that a slow listener may miss before it is told that everything may have changed.
const NEWS_LEN_MAX: usize = 64;

/// The handle for the front, and the task behind it, which the caller runs.
#[must_use]
pub fn bridge(mediator: Mediator, tasks: Tasks) -> (Engine, Bridge) {
    let (requests, inbox) = mpsc::channel(INBOX_LEN_MAX);
    let (news, _) = broadcast::channel(NEWS_LEN_MAX);
    // No server stands behind us yet: there are tools, and nothing beside them.
    let (_, offers) = watch::channel(Offers::default());
    let bridge = Bridge { inbox, mediator, tasks, batches: BTreeMap::new(), waiting: JoinSet::new() };
    (Engine { requests, news, offers }, bridge)
}

/// The task behind the handle.
pub struct Bridge {
    inbox: mpsc::Receiver<EngineRequest>,
    mediator: Mediator,
    tasks: Tasks,
    batches: BTreeMap<CallId, BatchId>,
    waiting: JoinSet<CallId>,
}

impl Bridge {
    /// Runs until every handle is gone.
    pub async fn run(mut self) {
        loop {
            tokio::select! {
                Some(ended) = self.waiting.join_next() => {
                    if let Ok(call) = ended {
                        self.batches.remove(&call);
                    }
                }
                request = self.inbox.recv() => match request {
                    Some(request) => self.take(request).await,
                    None => break,
                },
            }
        }
        self.waiting.shutdown().await;
    }

    async fn take(&mut self, request: EngineRequest) {
        match request {
            EngineRequest::Tools { run: _, reply } => {
                let tools = self.mediator.surface().tools().map(|tool| view(tool)).collect();
                let _ = reply.send(tools);
            }
            EngineRequest::OpenRun { asker, reply } => {
                let asker = DomainAsker { via: Via::Mcp, name: asker.label() };
                // Without a run the front says that the engine is stopping, which a busy one may as well be.
                if let Ok(run) = self.mediator.open_run(asker, true).await {
                    let _ = reply.send(run);
                }
            }
            EngineRequest::CloseRun(run) => self.mediator.close_run(run).await,
            EngineRequest::Submit { run, tool, args, up: _, reply } => {
                let taken = self.submit(run, Wanted { tool, input: args, protective: false }).await;
                let _ = reply.send(taken);
            }
            EngineRequest::Answer { question, answer, by } => {
                let answer = match answer {
                    Answer::Allow => docket::Answer::Allow,
                    Answer::Deny => docket::Answer::Deny,
                };
                // Whether it counted is in the evidence, and the call's own end tells the client.
                let _ = self.mediator.answer(question, answer, by).await;
            }
            EngineRequest::Relay { method, params: _, up: _, reply } => {
                // Nothing is offered, so nothing of it is answered by anybody.
                let _ = reply.send(Err(RpcError::new(rpc::METHOD_NOT_FOUND, format!("there is no {method}"))));
            }
            EngineRequest::StopWorker(task) => {
                // Whether it was there is in the evidence.
                let _ = self.tasks.supervisor().stop(task).await;
            }
            EngineRequest::Cancel(call) => {
                if let Some(batch) = self.batches.get(&call) {
                    self.mediator.cancel(*batch);
                }
            }
        }
    }

    async fn submit(&mut self, run: RunId, wanted: Wanted) -> Result<Submitted, NotSubmitted> {
        if self.mediator.surface().tool(&wanted.tool).is_none() {
            return Err(NotSubmitted::NoSuchTool);
        }
        let submitted = self.mediator.submit(run, vec![wanted]).await.map_err(|error| match error {
            NotTaken::Busy => NotSubmitted::Busy,
            NotTaken::Stopping => NotSubmitted::Stopping,
            NotTaken::Input(_) | NotTaken::Batch(_) | NotTaken::NoParent(_) => {
                NotSubmitted::BadArguments(error.to_string())
            }
        })?;
        let call = CallId { run, batch: submitted.batch, position: 0 };
        let question = submitted.questions.first().map(question);
        let (back, reply) = oneshot::channel();
        let replies = submitted.replies;
        self.batches.insert(call, submitted.batch);
        self.waiting.spawn(async move {
            if let Ok(answered) = replies.await
                && let Some(answered) = answered.into_iter().next()
            {
                let _ = back.send(reply_view(&answered));
            }
            call
        });
        Ok(Submitted { call, question, reply })
    }
}

fn view(tool: &Tool) -> ToolView {
    let definition = tool.definition();
    let tasks =
        if matches!(definition.kind, Kind::Monitor(_)) { TaskSupport::Optional } else { TaskSupport::Forbidden };
    ToolView {
        name: definition.name.clone(),
        title: definition.title.en.clone(),
        description: format!("{}\n{}", definition.description.en, definition.description.zh),
        input_schema: definition.input_schema.clone(),
        output_schema: definition.output_schema.clone(),
        annotations: annotations(definition.annotations),
        contract: crate::record::contract::to_json(&tool.weakest_contract()),
        tasks,
    }
}

fn annotations(hints: Annotations) -> Value {
    let mut members = Map::new();
    let named = [
        ("readOnlyHint", hints.read_only),
        ("destructiveHint", hints.destructive),
        ("idempotentHint", hints.idempotent),
        ("openWorldHint", hints.open_world),
    ];
    for (name, hint) in named {
        if let Some(hint) = hint {
            members.insert(name.to_owned(), hint.into());
        }
    }
    Value::Object(members)
}

fn question(open: &Open) -> QuestionView {
    let asked = &open.question;
    let kind = match asked.kind {
        docket::QuestionKind::Confirm => QuestionKind::Confirm,
        docket::QuestionKind::Permit | docket::QuestionKind::Outcome => QuestionKind::Permit,
    };
    let who = asked.asker.as_ref().map_or("somebody", |asker| asker.name.as_str());
    let left = i64::try_from(open.left_ms.unwrap_or(0)).unwrap_or(i64::MAX);
    QuestionView {
        id: asked.id,
        kind,
        text_zh: format!("{} 请求执行 {} {}：{}", who, asked.tool, asked.shown, asked.reason),
        text_en: format!("{} asks for {} {}: {}", who, asked.tool, asked.shown, asked.reason),
        until: Wall(clock::wall().0.saturating_add(left)),
    }
}

fn reply_view(answered: &Answered) -> ReplyView {
    let ended = &answered.reply.ending;
    let ending = match ended {
        Ended::Ran(_) => match ended.word() {
            "done" => Ending::Done,
            "failed" => Ending::Failed,
            _ => Ending::Unknown,
        },
        Ended::NotStarted(_) => Ending::NotStarted,
    };
    let output = ended.output().map(|output| (**output).clone());
    let task = output.as_ref().and_then(|output| output["task"].as_str()).and_then(|task| task.parse::<TaskId>().ok());
    ReplyView {
        ending,
        code: ended.code().unwrap_or("done").to_owned(),
        output: output.map(Output::Object),
        message: ended.message(Lang::En),
        evidence: answered.evidence.map(|seq| seq.0),
        task,
    }
}

/// How often the workers are looked at when nothing is told of them: their beats age without an event.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Tells the tasks of the protocol what the supervisor knows of their workers, until the daemon stops.
pub async fn watch_workers(core: Arc<Core>, tasks: Tasks, mut stop: watch::Receiver<bool>) {
    let mut changes = tasks.changes();
    loop {
        tokio::select! {
            _ = stopped(&mut stop) => return,
            changed = tokio::time::timeout(LOOK_EVERY, changes.changed()) => if let Ok(Err(_)) = changed {
                return;
            },
        }
        if let Ok(rows) = tasks.list(true).await {
            let workers: Vec<WorkerView> = rows.iter().map(|(row, evidence)| worker(row, *evidence)).collect();
            core.tasks.observe(&workers);
        }
    }
}

async fn stopped(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

fn worker(row: &TaskRow, evidence: Option<u64>) -> WorkerView {
    let state = match row.state {
        State::Running => WorkerState::Running,
        State::Zombie => WorkerState::Zombie,
        State::Dead => WorkerState::Dead,
        State::Stopped => WorkerState::Stopped,
        State::Cleaned => WorkerState::Cleaned,
    };
    let ended = |ending: Ending, code: &str| ReplyView {
        ending,
        code: code.to_owned(),
        output: row.output.clone().map(Output::Object),
        message: row.said.clone(),
        evidence,
        task: Some(row.key.task),
    };
    let end = match row.outcome {
        Some(Outcome::Success) => Some(ended(Ending::Done, "done")),
        Some(Outcome::Error) => Some(ended(Ending::Failed, "task_failed")),
        Some(Outcome::Stopped) | None => None,
    };
    WorkerView {
        task: row.key.task,
        generation: row.key.generation,
        state,
        cause: row.cause.map(|cause| cause.name().to_owned()).unwrap_or_default(),
        last_beat_ms: row.last_beat_ms,
        progress: row.progress,
        evidence,
        end,
    }
}

//! Between the words of MCP's side ([`super::engine`]) and the mediator's handle.
//!
//! One task takes the requests in order; what has to be waited for is waited for beside it, so that one client's long
//! call holds up nobody's cancellation.

use std::collections::BTreeMap;
use std::sync::Arc;

use interlock_domain::closure::Ending as Ended;
use interlock_domain::gate::docket;
use interlock_domain::id::{BatchId, CallId, RunId, TaskId};
use interlock_domain::request::why::Lang;
use interlock_domain::request::{Asker as DomainAsker, Via};
use interlock_domain::surface::tool::{Annotations, Kind, Tool};
use interlock_domain::time::Wall;
use serde_json::{Map, Value};
use tokio::sync::{broadcast, mpsc, oneshot};
use tokio::task::JoinSet;

use super::engine::{
    Answer, Ending, Engine, EngineRequest, NotSubmitted, Output, QuestionKind, QuestionView, ReplyView, Submitted,
    ToolView,
};
use crate::engine::handle::{Answered, Mediator, NotTaken, Open, Wanted};
use crate::sys::clock;

/// Requests of all clients that may wait for this task; it answers each in microseconds.
const INBOX_LEN_MAX: usize = 256;

/// News that a slow listener may miss before it is told that everything may have changed.
const NEWS_LEN_MAX: usize = 64;

/// The handle for the front, and the task behind it, which the caller runs.
#[must_use]
pub fn bridge(mediator: Mediator) -> (Engine, Bridge) {
    let (requests, inbox) = mpsc::channel(INBOX_LEN_MAX);
    let (news, _) = broadcast::channel(NEWS_LEN_MAX);
    let tools = mediator.surface().tools().map(|tool| view(tool)).collect();
    (Engine { requests, news }, Bridge { inbox, mediator, tools, batches: BTreeMap::new(), waiting: JoinSet::new() })
}

/// The task behind the handle.
pub struct Bridge {
    inbox: mpsc::Receiver<EngineRequest>,
    mediator: Mediator,
    tools: Arc<[ToolView]>,
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
                let _ = reply.send(Arc::clone(&self.tools));
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
            EngineRequest::Cancel(call) => {
                if let Some(batch) = self.batches.get(&call) {
                    self.mediator.cancel(*batch);
                }
            }
        }
    }

    async fn submit(&mut self, run: RunId, wanted: Wanted) -> Result<Submitted, NotSubmitted> {
        let submitted = self.mediator.submit(run, vec![wanted]).await.map_err(|error| match error {
            NotTaken::Busy => NotSubmitted::Busy,
            NotTaken::Stopping => NotSubmitted::Stopping,
            NotTaken::Input(_) | NotTaken::Batch(_) => NotSubmitted::BadArguments(error.to_string()),
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
    let background = matches!(definition.kind, Kind::Monitor(_));
    ToolView {
        name: definition.name.clone(),
        title: definition.title.en.clone(),
        description: format!("{}\n{}", definition.description.en, definition.description.zh),
        input_schema: definition.input_schema.clone(),
        output_schema: definition.output_schema.clone(),
        annotations: annotations(definition.annotations),
        contract: crate::record::contract::to_json(&tool.weakest_contract()),
        background,
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

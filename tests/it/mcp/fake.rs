//! An engine made of answers: what a tool does is decided by its name.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use interlock::agents::engine::{
    Answer, Asker, Calls, Ending, Engine, EngineRequest, Later, News, NotSubmitted, Offers, Output, QuestionKind,
    QuestionView, ReplyView, Stopping, Submitted, TaskSupport, ToolView,
};
use interlock::mcp::upward::{Line, Upward};
use interlock_domain::id::{BatchId, CallId, QuestionId, RunId, TaskId, ToolName};
use interlock_domain::time::Wall;
use serde_json::{Value, json};
use tokio::sync::{broadcast, mpsc, oneshot, watch};

use super::suite::{self, Extras, Up};

/// What the engine saw, for a test to wait for.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Seen {
    Opened(Asker),
    Closed,
    Submitted(String, Value),
    Answered(QuestionId, Answer, String),
    Cancelled,
    Stopped(TaskId),
}

pub(super) fn tool(name: &str, input_schema: Value, output_schema: Option<Value>) -> ToolView {
    ToolView {
        name: ToolName::new(name).unwrap(),
        title: name.to_owned(),
        description: format!("fixture {name}"),
        input_schema,
        output_schema,
        annotations: json!({"readOnlyHint": true}),
        contract: json!({"op_kind": name, "effect": "none"}),
        tasks: TaskSupport::Forbidden,
        raw: None,
    }
}

pub(super) fn done(output: Output) -> ReplyView {
    ReplyView {
        ending: Ending::Done,
        code: "ok".into(),
        output: Some(output),
        message: String::new(),
        evidence: Some(7),
        task: None,
    }
}

fn ended(ending: Ending, code: &str, message: &str) -> ReplyView {
    ReplyView { ending, code: code.into(), output: None, message: message.into(), evidence: Some(7), task: None }
}

/// Starts the engine. It ends with its handle.
pub(super) fn start() -> (Engine, mpsc::UnboundedReceiver<Seen>) {
    let (requests, inbox) = mpsc::channel(64);
    let (seen, told) = mpsc::unbounded_channel();
    let news = broadcast::Sender::new(16);
    let extras = Arc::new(Extras::default());
    let (called, calls) = mpsc::channel(64);
    let answers = Answers { called, extras: Arc::clone(&extras), runs: AtomicU64::new(0), seen: seen.clone() };
    tokio::spawn(run(inbox, calls, seen, news.clone(), extras));
    let offers = watch::channel(Offers { prompts: true, resources: true, completions: true }).1;
    (Engine { calls: Arc::new(answers), requests, news, offers }, told)
}

/// A call on its way to the engine.
#[derive(Debug)]
struct Called {
    run: RunId,
    tool: ToolName,
    args: Value,
    line: Line,
    reply: oneshot::Sender<Result<Submitted, NotSubmitted>>,
}

#[derive(Debug)]
struct Answers {
    called: mpsc::Sender<Called>,
    extras: Arc<Extras>,
    runs: AtomicU64,
    seen: mpsc::UnboundedSender<Seen>,
}

impl Calls for Answers {
    fn tools(&self, _holder: Option<&str>) -> Arc<[ToolView]> {
        tools(&self.extras)
    }

    fn open_run(&self, asker: Asker) -> Later<Result<RunId, Stopping>> {
        let run = self.runs.fetch_add(1, Ordering::Relaxed) + 1;
        let _ = self.seen.send(Seen::Opened(asker));
        Box::pin(std::future::ready(Ok(RunId::new(1_764_500_000_000, u128::from(run)))))
    }

    fn submit(&self, run: RunId, tool: ToolName, args: Value, line: Line) -> Later<Result<Submitted, NotSubmitted>> {
        let called = self.called.clone();
        Box::pin(async move {
            let (reply, answer) = oneshot::channel();
            called.send(Called { run, tool, args, line, reply }).await.map_err(|_| NotSubmitted::Stopping)?;
            answer.await.map_err(|_| NotSubmitted::Stopping)?
        })
    }
}

fn tools(extras: &Extras) -> Arc<[ToolView]> {
    let any = || json!({"type": "object"});
    let echo = json!({"type": "object", "properties": {"text": {"type": "string"}}});
    let routed = json!({"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}});
    let mut tools = vec![
        tool("ask", any(), None),
        tool("denied", any(), None),
        tool("echo", echo.clone(), Some(echo)),
        tool("fail", any(), None),
        tool("progress", any(), None),
        tool("routed", routed, None),
        tool("slow", any(), None),
        tool("unknown", any(), None),
        ToolView { tasks: TaskSupport::Optional, ..tool("watch", any(), Some(any())) },
    ];
    tools.extend(suite::tools(extras));
    tools.sort_by(|a, b| a.name.cmp(&b.name));
    tools.into()
}

async fn run(
    mut inbox: mpsc::Receiver<EngineRequest>,
    mut calls: mpsc::Receiver<Called>,
    seen: mpsc::UnboundedSender<Seen>,
    news: broadcast::Sender<News>,
    extras: Arc<Extras>,
) {
    let (mut batches, mut questions) = (0, 0);
    let mut asked: HashMap<QuestionId, oneshot::Sender<ReplyView>> = HashMap::new();
    let mut slow: HashMap<CallId, oneshot::Sender<ReplyView>> = HashMap::new();
    let mut at_work: HashMap<CallId, tokio::task::AbortHandle> = HashMap::new();
    loop {
        let request = tokio::select! {
            request = inbox.recv() => request,
            call = calls.recv() => match call {
                Some(Called { run, tool, args, line, reply }) => {
                batches += 1;
                let call = CallId { run, batch: BatchId(batches), position: 0 };
                let _ = seen.send(Seen::Submitted(tool.as_str().to_owned(), args.clone()));
                let (end, ended_at) = oneshot::channel();
                let mut question = None;
                match tool.as_str() {
                    "echo" | "routed" => drop(end.send(done(Output::Object(args)))),
                    "fail" => drop(end.send(ended(Ending::Failed, "illegal_address", "no such register"))),
                    "unknown" => drop(end.send(ended(Ending::Unknown, "timed_out", "no answer after the write"))),
                    "denied" => drop(end.send(ended(Ending::NotStarted, "denied_by_rule", "rule Device(pump-2)"))),
                    "watch" => {
                        let output = Output::Object(json!({"task": "t5"}));
                        drop(end.send(ReplyView { task: Some(TaskId(5)), ..done(output) }));
                    }
                    "ask" => {
                        questions += 1;
                        let id = QuestionId(questions);
                        asked.insert(id, end);
                        question = Some(QuestionView {
                            two_persons: false,
                            id,
                            kind: QuestionKind::Confirm,
                            text_zh: "合上一号断路器？".into(),
                            text_en: "Close breaker 1?".into(),
                            until: Wall(1_764_500_120_000),
                        });
                    }
                    "slow" => {
                        slow.insert(call, end);
                    }
                    "progress" => {
                        tokio::spawn(progress(line.up, end));
                    }
                    name if suite::knows(name) => {
                        let up = Up { up: line.up, news: news.clone(), extras: Arc::clone(&extras) };
                        let work = tokio::spawn(suite::run(name.to_owned(), args, up, end));
                        at_work.insert(call, work.abort_handle());
                    }
                    _ => {
                        let _ = reply.send(Err(NotSubmitted::NoSuchTool));
                        continue;
                    }
                }
                let ended_at = Box::pin(async move { ended_at.await.ok() });
                let question = Box::pin(std::future::ready(question));
                let _ = reply.send(Ok(Submitted { call, question, reply: ended_at }));
                    continue;
                }
                None => None,
            },
        };
        let Some(request) = request else { return };
        match request {
            EngineRequest::Relay { method, params, line, reply } => {
                tokio::spawn(suite::relay(
                    method,
                    params,
                    Up { up: line.up, news: news.clone(), extras: Arc::clone(&extras) },
                    reply,
                ));
            }
            EngineRequest::CloseRun(_) => {
                let _ = seen.send(Seen::Closed);
            }
            EngineRequest::Answer { question, answer, by } => {
                let _ = seen.send(Seen::Answered(question, answer, by));
                if let Some(reply) = asked.remove(&question) {
                    let _ = reply.send(match answer {
                        Answer::Allow => done(Output::Object(json!({"ran": true}))),
                        Answer::Deny => ended(Ending::NotStarted, "denied_by_person", "a person said no"),
                    });
                }
            }
            EngineRequest::StopWorker(worker) => {
                let _ = seen.send(Seen::Stopped(worker));
            }
            EngineRequest::Cancel(call) => {
                slow.remove(&call);
                if let Some(work) = at_work.remove(&call) {
                    work.abort();
                }
                let _ = seen.send(Seen::Cancelled);
            }
        }
    }
}

async fn progress(up: mpsc::Sender<Upward>, end: oneshot::Sender<ReplyView>) {
    for progress in [0.0, 50.0, 100.0] {
        let _ = up.send(Upward::Progress { progress, total: Some(100.0), message: None }).await;
    }
    let _ = end.send(done(Output::Object(json!({"steps": 3}))));
}

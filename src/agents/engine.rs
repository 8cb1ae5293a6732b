//! The engine as this room sees it: a bounded inbox, and the words that go in and come out.
//!
//! Plain data, and answers that come. The engine's own types stay behind it, so that the wire can change without the engine and
//! the engine without the wire. When the inbox is full a new call is refused at once ("busy"); a cancellation waits
//! for its place, because losing one would leave a call running that nobody wants.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use interlock_domain::id::{CallId, QuestionId, RunId, TaskId, ToolName};
use interlock_domain::request::shown::plain;
use interlock_domain::time::Wall;
use serde_json::{Value, json};
use tokio::sync::{broadcast, mpsc, oneshot, watch};

use crate::mcp::rpc::RpcError;
use crate::mcp::upward::Line;

/// The way to the engine. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Engine {
    /// What every call needs, without a queue between.
    pub calls: Arc<dyn Calls>,
    /// Its inbox, for the rest.
    pub requests: mpsc::Sender<EngineRequest>,
    /// What changes and is worth telling to clients that listen. A listener that is too slow misses some and is told
    /// so, and then tells its client that everything may have changed.
    pub news: broadcast::Sender<News>,
    /// What there is beside tools.
    pub offers: watch::Receiver<Offers>,
}

/// What the servers behind us offer beside tools. Only what is offered is announced, and only that is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Offers {
    /// `prompts/list` and `prompts/get`.
    pub prompts: bool,
    /// `resources/*`, with subscriptions.
    pub resources: bool,
    /// `completion/complete`.
    pub completions: bool,
}

/// An answer that comes.
pub type Later<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// What every call needs of whoever carries calls out: the mediator's gate, or the answers of a test. Asked in the
/// caller's own task, because each queue between costs a wake-up there and one back.
pub trait Calls: fmt::Debug + Send + Sync {
    /// The tools that the holder of a token can see, sorted by name: the same on each of its connections.
    fn tools(&self, holder: Option<&str>) -> Arc<[ToolView]>;

    /// A new run for what this asker wants.
    fn open_run(&self, asker: Asker) -> Later<Result<RunId, Stopping>>;

    /// Hands one call in, with the way up for progress, log messages and questions of the tool; `args` is an object.
    fn submit(&self, run: RunId, tool: ToolName, args: Value, line: Line) -> Later<Result<Submitted, NotSubmitted>>;
}

/// What else this room asks of the engine. The engine answers each by its oneshot; a dropped oneshot means that the engine
/// is stopping.
#[derive(Debug)]
pub enum EngineRequest {
    /// Nothing more will come in this run.
    CloseRun(RunId),
    /// Something for the servers behind us that is no call: prompts, resources, completion.
    Relay {
        /// `prompts/get`, `resources/read`, `resources/subscribe`, …
        method: String,
        /// Its parameters, without what belongs to the client's own connection.
        params: Value,
        /// Where progress, log messages and questions go.
        line: Line,
        /// The answer. When its receiver is gone, nobody wants it any more.
        reply: oneshot::Sender<Result<Value, RpcError>>,
    },
    /// A person's answer to a question.
    Answer {
        /// Which question.
        question: QuestionId,
        /// What the person said.
        answer: Answer,
        /// Who carried it, for the evidence: `mcp:<client>/<version>`.
        by: String,
    },
    /// Nobody wants this call any more.
    Cancel(CallId),
    /// Nobody wants this background task any more: ask its worker to stop.
    StopWorker(TaskId),
}

/// Who asks: the program at the other end, as it names itself, and the token that it came with. Only the token is
/// proven; the rest is for the evidence and for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asker {
    /// Its name, at most [`Asker::LEN_MAX`] characters.
    pub name: String,
    /// Its version, at most [`Asker::LEN_MAX`] characters.
    pub version: String,
    /// Whose token it came with, where tokens are asked for.
    pub holder: Option<String>,
}

impl Asker {
    /// Longest name or version that is kept: it is repeated in the evidence of every call.
    pub const LEN_MAX: usize = 64;

    /// From an `Implementation` object of the protocol; "unknown" where it does not say.
    #[must_use]
    pub fn read(implementation: &Value) -> Asker {
        let text = |member: &str| {
            let kept = plain(implementation[member].as_str().unwrap_or(""), Asker::LEN_MAX);
            if kept.is_empty() { "unknown".to_owned() } else { kept }
        };
        Asker { name: text("name"), version: text("version"), holder: None }
    }

    /// The same with the holder of its token.
    #[must_use]
    pub fn held_by(self, holder: Option<&str>) -> Asker {
        Asker { holder: holder.map(str::to_owned), ..self }
    }

    /// As it stands in the evidence.
    #[must_use]
    pub fn label(&self) -> String {
        match &self.holder {
            None => format!("mcp:{}/{}", self.name, self.version),
            Some(holder) => format!("mcp:{holder}:{}/{}", self.name, self.version),
        }
    }
}

/// One tool as clients see it.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolView {
    /// The name that callers write.
    pub name: ToolName,
    /// For people.
    pub title: String,
    /// For models.
    pub description: String,
    /// JSON Schema 2020-12 of the arguments.
    pub input_schema: Value,
    /// JSON Schema of the output of a done call, where there is one.
    pub output_schema: Option<Value>,
    /// MCP's four hints.
    pub annotations: Value,
    /// The contract record (`effects.md`, section 6).
    pub contract: Value,
    /// Whether a call of it may, or has to, become a task of the protocol.
    pub tasks: TaskSupport,
    /// The definition of another server's tool, which is passed on as it came.
    pub raw: Option<Arc<RawView>>,
}

/// The definition of another server's tool in both eras, word for word.
#[derive(Debug, Clone, PartialEq)]
pub struct RawView {
    /// For clients of the older era.
    pub legacy: Value,
    /// For those of the modern one.
    pub modern: Value,
}

/// Whether a call of a tool becomes a task of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskSupport {
    /// Never. The default of the protocol.
    Forbidden,
    /// When the client knows tasks. A tool that starts a background worker.
    Optional,
    /// Only clients that know tasks can call it.
    Required,
}

/// A call that was taken in. It may not have been judged yet.
pub struct Submitted {
    /// Its id.
    pub call: CallId,
    /// The question that a person has to answer before it starts; none where nobody is asked. Comes before the end of
    /// the call, or not at all.
    pub question: Later<Option<QuestionView>>,
    /// Its end; none when the engine stops.
    pub reply: Later<Option<ReplyView>>,
}

impl fmt::Debug for Submitted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Submitted").field("call", &self.call).finish_non_exhaustive()
    }
}

/// Why a call was not taken in. Nothing happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotSubmitted {
    /// No tool of that name exists.
    NoSuchTool,
    /// The arguments do not fit the input schema; which and why.
    BadArguments(String),
    /// Too much is under way.
    Busy,
    /// The daemon is stopping.
    Stopping,
}

/// A question that waits for a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuestionView {
    /// Its id.
    pub id: QuestionId,
    /// What it is about.
    pub kind: QuestionKind,
    /// Two persons whom the box knows have to allow it: whoever sits behind a client is none of them.
    pub two_persons: bool,
    /// For an operator.
    pub text_zh: String,
    /// For an operator.
    pub text_en: String,
    /// When it expires, and then denies.
    pub until: Wall,
}

/// What a question is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuestionKind {
    /// The gate asks.
    Permit,
    /// A dangerous command waits for its confirmation.
    Confirm,
}

impl QuestionKind {
    /// As `ask list` writes it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            QuestionKind::Permit => "permit",
            QuestionKind::Confirm => "confirm",
        }
    }
}

/// What a person said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// Go on.
    Allow,
    /// Do not.
    Deny,
}

/// The end of a call.
#[derive(Debug, Clone, PartialEq)]
pub struct ReplyView {
    /// How it ended.
    pub ending: Ending,
    /// A short stable word: of the failure, of the loss, or of why it did not start.
    pub code: String,
    /// What the tool gave back.
    pub output: Option<Output>,
    /// One sentence for a person.
    pub message: String,
    /// The row of the evidence that settles it; none while a read's row is not written yet.
    pub evidence: Option<u64>,
    /// The background task that it started.
    pub task: Option<TaskId>,
}

/// The four endings of `contracts.md`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The effect is there.
    Done,
    /// The effect is not there, said with authority.
    Failed,
    /// Nobody can say.
    Unknown,
    /// It never started.
    NotStarted,
}

impl Ending {
    /// As it is written everywhere.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Ending::Done => "done",
            Ending::Failed => "failed",
            Ending::Unknown => "unknown",
            Ending::NotStarted => "not_started",
        }
    }
}

/// What a tool gave back.
#[derive(Debug, Clone, PartialEq)]
pub enum Output {
    /// An object that fits the output schema.
    Object(Value),
    /// The result of another MCP server's tool, as that server wrote it.
    Result(Value),
    /// The protocol error of another MCP server, as that server wrote it.
    Error(RpcError),
}

/// What the supervisor says of one worker.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkerView {
    /// The background task that it works for.
    pub task: TaskId,
    /// Its life.
    pub generation: u32,
    /// Where it stands.
    pub state: WorkerState,
    /// Why, in the words of `task list`; empty when there is nothing to say.
    pub cause: String,
    /// The age of its last beat, in milliseconds.
    pub last_beat_ms: Option<u64>,
    /// How far it says that it is.
    pub progress: Option<u64>,
    /// The row of the evidence that says so.
    pub evidence: Option<u64>,
    /// How it ended, once it has stopped by itself; none when it was stopped.
    pub end: Option<ReplyView>,
}

impl WorkerView {
    /// As `_meta["interlock/liveness"]` writes it.
    #[must_use]
    pub fn liveness(&self) -> Value {
        json!({
            "task": self.task.to_string(),
            "state": self.state.as_str(),
            "generation": self.generation,
            "lastBeatMs": self.last_beat_ms,
            "progress": self.progress,
            "cause": self.cause,
        })
    }
}

/// The five states of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkerState {
    /// Gives signs of life.
    Running,
    /// Is there, and gives none.
    Zombie,
    /// Is gone, and did not say how it ended.
    Dead,
    /// Has ended, by itself or because it was told to.
    Stopped,
    /// Was cleared away.
    Cleaned,
}

impl WorkerState {
    /// As `task list` writes it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            WorkerState::Running => "RUNNING",
            WorkerState::Zombie => "ZOMBIE",
            WorkerState::Dead => "DEAD",
            WorkerState::Stopped => "STOPPED",
            WorkerState::Cleaned => "CLEANED",
        }
    }
}

/// What changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    /// The list of tools.
    ToolsChanged,
    /// The list of prompts.
    PromptsChanged,
    /// The list of resources.
    ResourcesChanged,
    /// The resource with this address.
    ResourceUpdated(String),
}

impl News {
    /// What somebody who missed news has to take for changed.
    pub const LISTS: [News; 3] = [News::ToolsChanged, News::PromptsChanged, News::ResourcesChanged];

    /// The notification that tells it: its method, and the address of the resource that it is about.
    #[must_use]
    pub fn notification(&self) -> (&'static str, Option<&str>) {
        match self {
            News::ToolsChanged => ("notifications/tools/list_changed", None),
            News::PromptsChanged => ("notifications/prompts/list_changed", None),
            News::ResourcesChanged => ("notifications/resources/list_changed", None),
            News::ResourceUpdated(uri) => ("notifications/resources/updated", Some(uri)),
        }
    }
}

impl Engine {
    /// The tools that the holder of a token can see, sorted by name.
    #[must_use]
    pub fn tools(&self, holder: Option<&str>) -> Arc<[ToolView]> {
        self.calls.tools(holder)
    }

    /// Hands something on to the servers behind us.
    ///
    /// # Errors
    /// When the engine has no room now, or is stopping.
    pub fn relay(
        &self,
        method: &str,
        params: Value,
        line: Line,
    ) -> Result<oneshot::Receiver<Result<Value, RpcError>>, NotSubmitted> {
        let (reply, answer) = oneshot::channel();
        let request = EngineRequest::Relay { method: method.to_owned(), params, line, reply };
        match self.requests.try_send(request) {
            Ok(()) => Ok(answer),
            Err(mpsc::error::TrySendError::Full(_)) => Err(NotSubmitted::Busy),
            Err(mpsc::error::TrySendError::Closed(_)) => Err(NotSubmitted::Stopping),
        }
    }

    /// What there is beside tools, now.
    #[must_use]
    pub fn offers(&self) -> Offers {
        *self.offers.borrow()
    }

    /// Tells the engine something that needs no answer, and waits for a place in its inbox. Nothing is left to tell
    /// an engine that has stopped.
    pub async fn tell(&self, request: EngineRequest) {
        let _stopped = self.requests.send(request).await;
    }
}

/// The engine is stopping, or gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stopping;

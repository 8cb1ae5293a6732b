//! One request of a client, in either era and over either transport, and its answer.
//!
//! The fronts hand in a request with all that they know of it ([`Ctx`]), and read the answer from the way out that
//! stands in it. What is in here does not know HTTP from stdio.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use interlock_domain::id::RunId;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::agents::ask::Parked;
use crate::agents::call;
use crate::agents::engine::{Asker, Engine, EngineRequest, Offers};
use crate::agents::front::stream::Stream;
use crate::agents::list;
use crate::agents::listen;
use crate::agents::session::{Cancel, Session};
use crate::agents::tasks::record::Record;
use crate::agents::tasks::store::Tasks;
use crate::agents::tasks::{self};
use crate::mcp::era::{self, Era, Kind};
use crate::mcp::rpc::{self, Id, Request, RpcError};

/// What can be set. The defaults are what the daemon runs with; tests set shorter waits.
#[derive(Debug, Clone)]
pub struct Settings {
    /// How long a call whose question nobody answers is held for a client that cannot be asked (`contracts.md`,
    /// "Questions"): below the minute after which most clients give up by themselves.
    pub question_wait: Duration,
    /// How long an answer may take before an event stream is opened for it. Longer starves clients that wait for the
    /// headers; shorter opens a stream for calls that are nearly done.
    pub stream_after: Duration,
    /// Tools on one page of the list.
    pub page_len: usize,
    /// Requests in flight, of all clients together.
    pub requests_max: usize,
    /// Sessions of the older era.
    pub sessions_max: usize,
    /// Open connections.
    pub connections_max: usize,
    /// How long the head of a request may take, and how long a connection may lie idle. Clients close idle
    /// connections after 4 to 5 s themselves, so they do not run into it.
    pub head_wait: Duration,
    /// How long the body of a request may take: a megabyte over loopback takes milliseconds.
    pub body_wait: Duration,
    /// How long answers in flight are waited for when the daemon stops or an input ends.
    pub drain_wait: Duration,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            question_wait: Duration::from_secs(45),
            stream_after: Duration::from_millis(40),
            page_len: 100,
            requests_max: 1024,
            sessions_max: 2048,
            connections_max: 2048,
            head_wait: Duration::from_secs(30),
            body_wait: Duration::from_secs(30),
            drain_wait: Duration::from_secs(5),
        }
    }
}

/// The answering half of the server.
#[derive(Debug)]
pub struct Core {
    /// The way to the engine.
    pub engine: Engine,
    /// What is set.
    pub settings: Settings,
    /// Calls that outlive their requests.
    pub tasks: Tasks,
    /// Calls of the modern era that wait for their client to come back with answers.
    pub parked: Parked,
    /// The daemon is stopping: what would stay open for ever ends.
    pub halt: Cancel,
    // The tasks of the requests: kept so that they end with us. Touched once when a request begins.
    work: Mutex<JoinSet<()>>,
}

/// Whom a parked call or a task belongs to. Whoever else names it is told that there is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner(pub Arc<str>);

/// Where the messages of a request go.
#[derive(Debug, Clone)]
pub enum Out {
    /// Into its buffer, which an HTTP response reads.
    Stream(Arc<Stream>),
    /// As lines to the one writer of a connection.
    Lines(mpsc::Sender<String>),
}

/// All that is known of a request beside its method and parameters.
#[derive(Debug)]
pub struct Ctx {
    /// Its era.
    pub era: Era,
    /// Its id. Changes when a parked call is taken up again by another request.
    pub id: Id,
    /// Its `_meta`.
    pub meta: Map<String, Value>,
    /// Answers that it brought along before anything was asked. A tool may have them; the gate never looks here.
    pub answers: Map<String, Value>,
    /// What its client can do.
    pub capabilities: Value,
    /// Which program its client is.
    pub client: Asker,
    /// Whose it is.
    pub owner: Owner,
    /// The session or connection that it came by.
    pub place: Arc<str>,
    /// The task that the call has become.
    pub task: Option<Arc<Record>>,
    /// What has to happen when its client has its answer.
    pub after: After,
    /// Its session, in the older era.
    pub session: Option<Arc<Session>>,
    /// Says that nobody wants the answer any more.
    pub cancel: Cancel,
    /// Where its messages go. None while the call is parked: there is nobody to send to.
    pub out: Option<Out>,
}

/// Why a request has no result.
#[derive(Debug, Clone, PartialEq)]
pub enum Fault {
    /// It is answered with an error.
    Rpc(RpcError),
    /// It was cancelled: nothing more is sent for it.
    Cancelled,
    /// Its task has a worker now, and ends with that.
    Later,
}

impl From<RpcError> for Fault {
    fn from(error: RpcError) -> Fault {
        Fault::Rpc(error)
    }
}

/// What is said when the engine has gone.
#[must_use]
pub fn stopping() -> RpcError {
    RpcError::new(rpc::INTERNAL_ERROR, "the daemon is stopping")
}

impl Core {
    /// A core on that engine.
    #[must_use]
    pub fn new(engine: Engine, settings: Settings) -> Arc<Core> {
        Arc::new(Core {
            engine,
            settings,
            tasks: Tasks::default(),
            parked: Parked::default(),
            halt: Cancel::default(),
            work: Mutex::default(),
        })
    }

    /// Ends what would stay open for ever. Calls in flight go on.
    pub fn stop(&self) {
        self.halt.cancel();
    }

    /// Begins to work on a request. Its answer goes where its context says.
    pub fn begin(self: &Arc<Core>, request: Request, ctx: Ctx) {
        let core = Arc::clone(self);
        let mut work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(ended) = work.try_join_next() {
            if let Err(why) = ended {
                tracing::error!(error = %why, "mcp: the work on a request broke");
            }
        }
        if work.len() >= self.settings.requests_max {
            drop(work);
            let busy = format!("{} requests are in flight", self.settings.requests_max);
            ctx.refuse(RpcError::new(rpc::BUSY, busy));
            return;
        }
        work.spawn(async move { core.answer(request, ctx).await });
    }

    async fn answer(&self, request: Request, mut ctx: Ctx) {
        let kind = match request.method.as_str() {
            "tools/list"
            | "server/discover"
            | "prompts/list"
            | "resources/list"
            | "resources/templates/list"
            | "resources/read" => Kind::Cached,
            _ => Kind::Plain,
        };
        let answer = self.request(request, &mut ctx).await;
        if let Some(task) = ctx.task.take() {
            match answer {
                Ok(result) => task.finish(Ok(result)),
                Err(Fault::Rpc(error)) => task.finish(Err(error)),
                Err(Fault::Cancelled) => task.cancelled("cancelled by the client"),
                Err(Fault::Later) => {}
            }
            return;
        }
        match answer {
            Ok(result) => {
                let result = era::finish(result, ctx.era, kind, &list::server());
                ctx.finish(Ok(result)).await;
            }
            Err(Fault::Rpc(error)) => ctx.finish(Err(error)).await,
            Err(Fault::Cancelled | Fault::Later) => ctx.end(),
        }
    }

    async fn request(&self, request: Request, ctx: &mut Ctx) -> Result<Value, Fault> {
        match (ctx.era, request.method.as_str()) {
            (Era::Legacy, "ping") => Ok(json!({})),
            (Era::Legacy, "logging/setLevel") => {
                let level = request.params.get("level").and_then(Value::as_str).unwrap_or("");
                if era::severity(level).is_none() {
                    return Err(RpcError::new(rpc::INVALID_PARAMS, "\"level\" is no severity of RFC 5424").into());
                }
                if let Some(session) = &ctx.session {
                    session.set_log_level(level);
                }
                Ok(json!({}))
            }
            (Era::Modern, "server/discover") => Ok(list::discover(self.engine.offers())),
            (Era::Modern, "subscriptions/listen") => listen::listen(self, &request, ctx).await,
            (_, "tools/list") => {
                let tools = self.engine.tools(None).await.map_err(|_| stopping())?;
                Ok(list::tools(&tools, &request.params, self.settings.page_len, ctx.era)?)
            }
            (_, "tools/call") => call::call(self, request, ctx).await,
            (era, method) if is_offered(era, method, self.engine.offers()) => call::relay(self, request, ctx).await,
            (Era::Legacy | Era::Modern, method) => {
                if let Some(answer) = tasks::methods::call(self, &request, ctx).await {
                    return answer;
                }
                let shown: String = method.chars().take(64).collect();
                Err(RpcError::new(rpc::METHOD_NOT_FOUND, format!("no method {shown:?}")).into())
            }
        }
    }

    /// The run of a request: one for each session of the older era, one for each call of the modern one.
    ///
    /// # Errors
    /// When the engine is stopping.
    pub async fn run(&self, ctx: &Ctx) -> Result<RunId, RpcError> {
        let open = || async { self.engine.open_run(ctx.client.clone()).await.map_err(|_| stopping()) };
        match &ctx.session {
            Some(session) => session.run.get_or_try_init(open).await.copied(),
            None => open().await,
        }
    }

    /// A session is over: nobody waits for its calls, and nothing more comes in its run.
    pub async fn close(&self, session: &Session) {
        session.calls.cancel_all();
        session.broadcast.end();
        if let Some(run) = session.run.get() {
            self.engine.tell(EngineRequest::CloseRun(*run)).await;
        }
    }
}

/// Whether a method is one of those that the servers behind us answer, in that era.
fn is_offered(era: Era, method: &str, offers: Offers) -> bool {
    match method {
        "prompts/list" | "prompts/get" => offers.prompts,
        "resources/list" | "resources/templates/list" | "resources/read" => offers.resources,
        "resources/subscribe" | "resources/unsubscribe" => offers.resources && era == Era::Legacy,
        "completion/complete" => offers.completions,
        _ => false,
    }
}

/// What has to happen when a request is answered: it happens once, at the latest when this is dropped, even when the
/// work on the request panics or is aborted.
#[derive(Default)]
pub struct After(Option<Box<dyn FnOnce() + Send + Sync>>);

impl After {
    /// That.
    pub fn new(run: impl FnOnce() + Send + Sync + 'static) -> After {
        After(Some(Box::new(run)))
    }
}

impl fmt::Debug for After {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("After")
    }
}

impl Drop for After {
    fn drop(&mut self) {
        if let Some(run) = self.0.take() {
            run();
        }
    }
}

impl Ctx {
    /// Sends a notification, if there is anybody to send to and room for it.
    pub fn notify(&self, method: &str, params: &Value) {
        match &self.out {
            Some(Out::Stream(stream)) => {
                stream.may(rpc::notification(method, params));
            }
            Some(Out::Lines(lines)) => {
                // Full means that the client does not read: it loses news, not answers.
                let _full = lines.try_send(rpc::notification(method, params));
            }
            None => {}
        }
    }

    /// Sends a log message, if its client wants messages of that severity.
    pub fn log(&self, level: &str, logger: Option<&str>, data: &Value) {
        let least = match &self.session {
            Some(session) => session.log_level(),
            None => match self.meta.get(era::META_LOG_LEVEL) {
                Some(Value::String(least)) => least.clone(),
                _ => return,
            },
        };
        if era::is_logged(level, &least) {
            let mut params = json!({"level": level, "data": data});
            if let Some(logger) = logger {
                params["logger"] = logger.into();
            }
            self.notify("notifications/message", &params);
        }
    }

    /// Sends how far the request is, if its client asked for that.
    pub fn progress(&self, progress: f64, total: Option<f64>, message: Option<&str>) {
        if let Some(token @ (Value::String(_) | Value::Number(_))) = self.meta.get("progressToken") {
            let mut params = json!({"progressToken": token, "progress": progress});
            if let Some(total) = total {
                params["total"] = total.into();
            }
            if let Some(message) = message {
                params["message"] = message.into();
            }
            self.notify("notifications/progress", &params);
        }
    }

    /// Sends the answer. Nothing follows it.
    pub async fn finish(&mut self, answer: Result<Value, RpcError>) {
        match self.out.take() {
            Some(Out::Stream(stream)) => stream.answer(rpc::response(&self.id, &answer), status(self.era, &answer)),
            Some(Out::Lines(lines)) => {
                // Fails when the connection is gone, and the answer with it.
                let _gone = lines.send(rpc::response(&self.id, &answer)).await;
            }
            None => {}
        }
    }

    /// Answers with an error, without waiting: for a request that was never begun.
    pub fn refuse(mut self, error: RpcError) {
        self.finish_now(Err(error));
    }

    fn finish_now(&mut self, answer: Result<Value, RpcError>) {
        match self.out.take() {
            Some(Out::Stream(stream)) => stream.answer(rpc::response(&self.id, &answer), status(self.era, &answer)),
            Some(Out::Lines(lines)) => {
                let _full = lines.try_send(rpc::response(&self.id, &answer));
            }
            None => {}
        }
    }

    /// Ends without an answer.
    pub fn end(&mut self) {
        match self.out.take() {
            Some(Out::Stream(stream)) => stream.end(),
            Some(Out::Lines(_)) | None => {}
        }
    }
}

impl Drop for Ctx {
    fn drop(&mut self) {
        if let Some(task) = self.task.take() {
            let message = "the work on this task was dropped; its outcome is not known";
            task.finish(Err(RpcError::new(rpc::INTERNAL_ERROR, message)));
        }
        // Still there only if the work on it panicked or was aborted: a client must not wait for ever.
        self.finish_now(Err(RpcError::new(rpc::INTERNAL_ERROR, "the request was dropped; its outcome is not known")));
    }
}

/// The HTTP status of an answer. The modern era fixes it by the error; the older one sends its errors with 200.
#[must_use]
pub fn status(era: Era, answer: &Result<Value, RpcError>) -> u16 {
    match (era, answer) {
        (Era::Modern, Err(error)) => match error.code {
            rpc::METHOD_NOT_FOUND => 404,
            rpc::PARSE_ERROR
            | rpc::INVALID_REQUEST
            | rpc::INVALID_PARAMS
            | rpc::HEADER_MISMATCH
            | rpc::MISSING_CLIENT_CAPABILITY
            | rpc::UNSUPPORTED_VERSION => 400,
            rpc::BUSY => 503,
            _ => 200,
        },
        (Era::Modern, Ok(_)) | (Era::Legacy, _) => 200,
    }
}

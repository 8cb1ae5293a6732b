//! One request of a client, in either era and over either transport, and its answer.
//!
//! The fronts hand in a request with all that they know of it ([`Ctx`]), and read the answer from the way out that
//! stands in it. What is in here does not know HTTP from stdio.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use interlock_domain::id::RunId;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use crate::agents::call;
use crate::agents::ctx::{Ctx, Fault};
use crate::agents::engine::{Engine, EngineRequest, Offers};
use crate::agents::front::door::Access;
use crate::agents::list;
use crate::agents::listen;
use crate::agents::parked::Parked;
use crate::agents::session::{Cancel, Session};
use crate::agents::tasks;
use crate::agents::tasks::store::Tasks;
use crate::mcp::era::{self, Era, Kind};
use crate::mcp::rpc::{self, Request, RpcError};

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
    /// Who may come in over HTTP, and how, until a reload says otherwise.
    pub access: Access,
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
            access: Access::default(),
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
    /// Who may come in over HTTP, and how, now.
    access: watch::Sender<Arc<Access>>,
    /// Calls that outlive their requests.
    pub tasks: Tasks,
    /// Calls of the modern era that wait for their client to come back with answers.
    pub parked: Parked,
    /// The daemon is stopping: what would stay open for ever ends.
    pub halt: Cancel,
    /// One permit for each request that may be in flight.
    room: Arc<Semaphore>,
    // The tasks of the requests: kept so that they end with us. Touched once when a request begins.
    work: Mutex<JoinSet<()>>,
}

/// The work on one request, until it is answered.
pub type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

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
            access: watch::Sender::new(Arc::new(settings.access.clone())),
            room: Arc::new(Semaphore::new(settings.requests_max)),
            settings,
            tasks: Tasks::default(),
            parked: Parked::default(),
            halt: Cancel::default(),
            work: Mutex::default(),
        })
    }

    /// Who may come in over HTTP, and how, now.
    #[must_use]
    pub fn access(&self) -> Arc<Access> {
        Arc::clone(&self.access.borrow())
    }

    /// The same, and when it changes.
    #[must_use]
    pub fn accesses(&self) -> watch::Receiver<Arc<Access>> {
        self.access.subscribe()
    }

    /// From now on these may come in, so. Whoever is in and may not any more is put out at once.
    pub fn admit(&self, access: Access) {
        self.access.send_replace(Arc::new(access));
    }

    /// Ends what would stay open for ever. Calls in flight go on.
    pub fn stop(&self) {
        self.halt.cancel();
    }

    /// Takes a request in. Its answer goes where its context says, once the work on it is driven to its end; what breaks
    /// in there breaks nothing else.
    ///
    /// # Errors
    /// What the caller answers, when too many are in flight.
    pub fn take_in(self: &Arc<Core>, request: Request, mut ctx: Ctx) -> Result<Work, RpcError> {
        let Ok(permit) = Arc::clone(&self.room).try_acquire_owned() else {
            ctx.end();
            let busy = format!("{} requests are in flight", self.settings.requests_max);
            return Err(RpcError::new(rpc::BUSY, busy));
        };
        let core = Arc::clone(self);
        // Boxed where it is made: it is large, and would be copied at each step of its way to the runtime.
        Ok(Box::pin(async move {
            // Nothing of what it shares with others is left half changed: locks are not held over a wait.
            if AssertUnwindSafe(core.answer(request, ctx)).catch_unwind().await.is_err() {
                tracing::error!("mcp: the work on a request broke");
            }
            drop(permit);
        }))
    }

    /// Drives the work on a request in a task of its own.
    pub fn carry_on(&self, work: Work) {
        let mut tasks = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(work);
    }

    /// Takes a request in and drives it in a task of its own.
    ///
    /// # Errors
    /// As [`Core::take_in`].
    pub fn begin(self: &Arc<Core>, request: Request, ctx: Ctx) -> Result<(), RpcError> {
        self.carry_on(self.take_in(request, ctx)?);
        Ok(())
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
                let tools = self.engine.tools(ctx.client.holder.as_deref());
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
        let open = || async { self.engine.calls.open_run(ctx.client.clone()).await.map_err(|_| stopping()) };
        match &ctx.session {
            Some(session) => session.run.get_or_try_init(open).await.copied(),
            None => open().await,
        }
    }

    /// A session is over: nobody waits for its calls, and nothing more comes in its run.
    pub async fn close(&self, session: &Session) {
        session.calls.cancel_all();
        session.broadcast.end();
        let watched = session.unwatch_all();
        if !watched.is_empty() {
            let engine = self.engine.clone();
            // A server may take its time; whoever closes a session does not wait for it.
            let mut work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
            work.spawn(async move {
                listen::tell_servers(&engine, &watched, Era::Legacy, "resources/unsubscribe").await;
            });
        }
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

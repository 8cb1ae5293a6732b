//! MCP as lines over any pair of byte streams: standard input and output, or a connection of the control socket.
//!
//! The first request that is understood decides the era of the whole connection. A line that is no message costs an
//! error about that line and nothing else. The end of the input ends the session, after the answers in flight are
//! out: a script may write its requests, close the pipe, and read.

use std::future::poll_fn;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use serde_json::{Map, json};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::runtime::Handle;
use tokio::sync::{broadcast, mpsc};
use tokio::time::timeout;

use crate::agents::ask;
use crate::agents::core::{Core, Work};
use crate::agents::ctx::{After, Ctx, Out, Owner};
use crate::agents::engine::{Asker, News};
use crate::agents::front::http;
use crate::agents::front::outbox::Outbox;
use crate::agents::list;
use crate::agents::parked::{self, Call, Resume};
use crate::agents::session::{Calls, Cancel, Session};
use crate::agents::tasks::record::Record;
use crate::mcp::era::{self, Era};
use crate::mcp::lines::{Line, Lines};
use crate::mcp::rpc::{self, Message, Notification, Request, RpcError};

/// Serves one connection until its input ends or its output breaks. All of it in one task: the reading, the work on the
/// requests, and the writing.
///
/// # Errors
/// When reading or writing fails; the session is over then, too.
pub async fn serve<R, W>(reader: R, writer: W, core: Arc<Core>) -> std::io::Result<()>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let outbox = Arc::new(Outbox::default());
    let mut serving = std::pin::pin!(both_ways(reader, writer, core, Arc::clone(&outbox)));
    poll_fn(|cx| {
        outbox.hold();
        serving.as_mut().poll(cx)
    })
    .await
}

async fn both_ways<R, W>(reader: R, writer: W, core: Arc<Core>, outbox: Arc<Outbox>) -> std::io::Result<()>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let connection = Connection::new(Arc::clone(&core), Arc::clone(&outbox))?;
    let calls = Arc::clone(&connection.calls);
    let mut writing = std::pin::pin!(write(&outbox, writer));
    let mut reading = std::pin::pin!(connection.read(reader));
    // What is read now is often answered at once: the writer looks afterwards.
    let read = tokio::select! {
        biased;
        read = reading.as_mut() => read,
        broken = writing.as_mut() => {
            calls.cancel_all();
            outbox.close();
            // It leaves its session in order. Nobody is there any more who could wait for more.
            let _late = timeout(core.settings.drain_wait, reading).await;
            return broken;
        }
    };
    outbox.close();
    match timeout(core.settings.drain_wait, writing).await {
        Ok(wrote) => read.and(wrote),
        Err(_) => read,
    }
}

async fn write<W: AsyncWrite + Unpin>(outbox: &Outbox, mut writer: W) -> std::io::Result<()> {
    while let Some(batch) = outbox.batch().await {
        writer.write_all(batch.as_bytes()).await?;
        writer.flush().await?;
    }
    Ok(())
}

/// What the connection turned out to speak.
#[derive(Debug)]
enum Spoken {
    Nothing,
    Legacy(Arc<Session>),
    Modern,
}

/// The requests of a connection that are worked on: by its own task, because to wake another one for each costs a call
/// more than its judgement. Those that outlive it (tasks, calls that are being cancelled) go on in tasks of their own.
struct AtWork {
    core: Arc<Core>,
    works: FuturesUnordered<Work>,
}

impl AtWork {
    async fn rest(&mut self) {
        while self.works.next().await.is_some() {}
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        // Without a runtime the daemon has ended, and everything with it.
        if Handle::try_current().is_ok() {
            std::mem::take(&mut self.works).into_iter().for_each(|work| self.core.carry_on(work));
        }
    }
}

/// The next line, when there is room for its answer.
async fn next<R: AsyncRead + Unpin>(outbox: &Outbox, input: &mut Lines<R>) -> std::io::Result<Option<Line>> {
    outbox.room().await;
    input.next().await
}

struct Connection {
    core: Arc<Core>,
    outbox: Arc<Outbox>,
    work: AtWork,
    /// Names the connection.
    place: Arc<str>,
    calls: Arc<Calls>,
    spoken: Spoken,
    /// Every request in flight holds a clone; when all are gone the receiver says so.
    alive: mpsc::Sender<()>,
    idle: mpsc::Receiver<()>,
}

impl Connection {
    fn new(core: Arc<Core>, outbox: Arc<Outbox>) -> std::io::Result<Connection> {
        let place = parked::token().ok_or_else(|| std::io::Error::other("the system has no randomness"))?;
        let work = AtWork { core: Arc::clone(&core), works: FuturesUnordered::new() };
        let (calls, spoken) = (Arc::default(), Spoken::Nothing);
        let (alive, idle) = mpsc::channel(1);
        Ok(Connection { core, outbox, work, place: place.into(), calls, spoken, alive, idle })
    }

    async fn read<R: AsyncRead + Unpin>(mut self, reader: R) -> std::io::Result<()> {
        let mut input = Lines::new(reader, rpc::MESSAGE_LEN_MAX);
        let mut news = self.core.engine.news.subscribe();
        let mut tasks = self.core.tasks.news();
        let mut is_heard = true;
        let ended = loop {
            tokio::select! {
                Some(()) = self.work.works.next() => {}
                () = self.outbox.closed() => break Ok(()),
                line = next(&self.outbox, &mut input) => match line {
                    Ok(Some(Line::Whole(bytes))) => self.line(&bytes),
                    Ok(Some(Line::TooLong)) => self.say(rpc::error_response(None, &rpc::too_long().error)),
                    Ok(None) => break Ok(()),
                    Err(why) => break Err(why),
                },
                // Who missed something learns it by asking: a task says the same whenever it is asked.
                Ok(record) = tasks.recv() => self.task(&record),
                heard = news.recv(), if is_heard => match heard {
                    Ok(news) => self.tell(&[news]),
                    Err(broadcast::error::RecvError::Lagged(_)) => self.tell(&News::LISTS),
                    Err(broadcast::error::RecvError::Closed) => is_heard = false,
                },
            }
        };
        let Connection { core, calls, spoken, alive, mut idle, mut work, .. } = self;
        drop(alive);
        let answered = async {
            tokio::select! {
                _all = idle.recv() => {}
                () = work.rest() => {}
            }
        };
        let drained = timeout(core.settings.drain_wait, answered).await.is_ok();
        if !drained {
            calls.cancel_all();
        }
        drop(work);
        match spoken {
            Spoken::Legacy(session) => core.close(&session).await,
            Spoken::Nothing | Spoken::Modern => {}
        }
        ended
    }

    fn say(&self, line: String) {
        // Refused when the connection is over.
        self.outbox.must(line);
    }

    fn tell(&self, news: &[News]) {
        match &self.spoken {
            Spoken::Legacy(session) => {
                for line in news.iter().filter_map(|news| session.told(news)) {
                    // Full means that the client does not read; it will list again sooner or later.
                    self.outbox.may(line);
                }
            }
            Spoken::Nothing | Spoken::Modern => {}
        }
    }

    fn task(&self, record: &Record) {
        match self.spoken {
            Spoken::Legacy(_) if record.place == self.place => {
                // Full means that the client does not read; then it asks.
                self.outbox.may(record.status_notification());
            }
            Spoken::Legacy(_) | Spoken::Nothing | Spoken::Modern => {}
        }
    }

    fn line(&mut self, bytes: &[u8]) {
        match rpc::read(bytes) {
            Err(unreadable) => self.say(rpc::error_response(unreadable.id.as_ref(), &unreadable.error)),
            Ok(Message::Request(request)) => {
                let id = request.id.clone();
                if let Err(error) = self.request(request) {
                    self.say(rpc::response(&id, &Err(error)));
                }
            }
            Ok(Message::Notification(notification)) => self.notification(&notification),
            Ok(Message::Response { id, answer }) => match &self.spoken {
                Spoken::Legacy(session) => session.answered(&id, answer),
                // The modern era has no requests to clients.
                Spoken::Nothing | Spoken::Modern => {}
            },
        }
    }

    fn notification(&self, notification: &Notification) {
        if notification.method == "notifications/cancelled" {
            if let Some(id) = rpc::Id::named_by(notification.params.get("requestId")) {
                self.calls.cancel(&id);
            }
        } else if let Spoken::Legacy(session) = &self.spoken {
            session.notified(notification);
        }
    }

    fn request(&mut self, request: Request) -> Result<(), RpcError> {
        match &self.spoken {
            Spoken::Legacy(session) => {
                if request.method == "initialize" {
                    return Err(RpcError::new(rpc::INVALID_REQUEST, "this session is already initialized"));
                }
                let session = Arc::clone(session);
                self.begin_legacy(request, session)
            }
            Spoken::Modern => self.begin_modern(request),
            Spoken::Nothing if era::names_a_version(&request.params) || request.method == "server/discover" => {
                self.begin_modern(request)?;
                self.spoken = Spoken::Modern;
                Ok(())
            }
            Spoken::Nothing if request.method == "initialize" => {
                let session = http::open_session(&request.params, None)
                    .ok_or_else(|| RpcError::new(rpc::INTERNAL_ERROR, "the system has no randomness"))?;
                let result = list::initialize(session.version, self.core.engine.offers());
                self.spoken = Spoken::Legacy(Arc::new(session));
                self.say(rpc::response(&request.id, &Ok(result)));
                Ok(())
            }
            Spoken::Nothing if request.method == "ping" => {
                self.say(rpc::response(&request.id, &Ok(json!({}))));
                Ok(())
            }
            Spoken::Nothing => {
                let message = format!("send \"initialize\" first, or speak {} with its _meta", era::MODERN);
                Err(RpcError::new(rpc::INVALID_REQUEST, message))
            }
        }
    }

    fn begin_legacy(&self, request: Request, session: Arc<Session>) -> Result<(), RpcError> {
        let ctx = Ctx {
            era: Era::Legacy,
            id: request.id.clone(),
            meta: era::meta(&request.params).cloned().unwrap_or_default(),
            answers: Map::new(),
            capabilities: session.capabilities.clone(),
            client: session.client.clone(),
            owner: Owner(http::LOCAL.into()),
            place: Arc::clone(&self.place),
            task: None,
            after: After::default(),
            session: Some(session),
            cancel: Cancel::default(),
            out: Some(Out::Lines(Arc::clone(&self.outbox))),
        };
        self.begin(request, ctx)
    }

    fn begin_modern(&self, request: Request) -> Result<(), RpcError> {
        if request.method == "initialize" {
            let message = format!("{} has no \"initialize\"", era::MODERN);
            return Err(RpcError::new(rpc::METHOD_NOT_FOUND, message));
        }
        let envelope = era::envelope(&request.params)?;
        let meta = era::meta(&request.params).cloned().unwrap_or_default();
        let out = Out::Lines(Arc::clone(&self.outbox));
        let (state, answers) = ask::brought(&request.params)?;
        match state {
            Some(state) => {
                let call = Call::of(&request.method, &request.params);
                let resume = Resume { id: request.id.clone(), meta, answers, out };
                let cancel = self.core.parked.resume(state, &Owner(http::LOCAL.into()), &call, resume)?;
                // The call is in flight under its new id, too. It leaves with the connection: an id that is used
                // up costs one entry of a bounded table.
                self.calls.enter(&request.id, &cancel).map_err(http::not_entered)
            }
            None => {
                let ctx = Ctx {
                    era: Era::Modern,
                    id: request.id.clone(),
                    meta,
                    answers,
                    capabilities: envelope.capabilities,
                    client: Asker::read(&envelope.client),
                    owner: Owner(http::LOCAL.into()),
                    place: Arc::clone(&self.place),
                    task: None,
                    after: After::default(),
                    session: None,
                    cancel: Cancel::default(),
                    out: Some(out),
                };
                self.begin(request, ctx)
            }
        }
    }

    /// Frees the id of a request, and its part in keeping the connection.
    fn after(&self, request: &Request) -> After {
        let (calls, id, alive) = (Arc::clone(&self.calls), request.id.clone(), self.alive.clone());
        After::new(move || {
            calls.leave(&id);
            drop(alive);
        })
    }

    fn begin(&self, request: Request, mut ctx: Ctx) -> Result<(), RpcError> {
        match self.calls.enter(&request.id, &ctx.cancel) {
            Ok(()) => {
                ctx.after = self.after(&request);
                self.work.works.push(self.core.take_in(request, ctx)?);
                Ok(())
            }
            // Whoever reads waits until there is room for it: a refusal that is lost is waited for for ever.
            Err(why) => {
                ctx.end();
                Err(http::not_entered(why))
            }
        }
    }
}

//! MCP as lines over any pair of byte streams: standard input and output, or a connection of the control socket.
//!
//! The first request that is understood decides the era of the whole connection. A line that is no message costs an
//! error about that line and nothing else. The end of the input ends the session, after the answers in flight are
//! out: a script may write its requests, close the pipe, and read.

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
use crate::agents::front::turn::in_one_turn;
use crate::agents::list;
use crate::agents::parked::{self, Call, Resume};
use crate::agents::session::{Calls, Cancel, Session};
use crate::agents::tasks::record::Record;
use crate::mcp::era::{self, Era};
use crate::mcp::lines::{Line, Lines};
use crate::mcp::rpc::{self, Message, Notification, Request, RpcError};

/// Lines that may wait for a client that reads slowly. Then its requests wait, too.
const LINES_MAX: usize = 64;

/// Bytes that are written at once.
const BATCH_LEN_MAX: usize = 64 << 10;

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
    in_one_turn(both_ways(reader, writer, core)).await
}

async fn both_ways<R, W>(reader: R, writer: W, core: Arc<Core>) -> std::io::Result<()>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let (lines, written) = mpsc::channel(LINES_MAX);
    let connection = Connection::new(Arc::clone(&core), lines)?;
    let calls = Arc::clone(&connection.calls);
    let mut writing = std::pin::pin!(write(written, writer));
    let mut reading = std::pin::pin!(connection.read(reader));
    let read = tokio::select! {
        biased;
        read = reading.as_mut() => read,
        broken = writing.as_mut() => {
            calls.cancel_all();
            // It hears that nobody takes its lines, and leaves its session in order.
            let _late = timeout(core.settings.drain_wait, reading).await;
            return broken;
        }
    };
    // Those who still work hold the other ends; they were told to stop.
    match timeout(core.settings.drain_wait, writing).await {
        Ok(wrote) => read.and(wrote),
        Err(_) => read,
    }
}

async fn write<W: AsyncWrite + Unpin>(mut lines: mpsc::Receiver<String>, mut writer: W) -> std::io::Result<()> {
    while let Some(mut line) = lines.recv().await {
        line.push('\n');
        // What waits behind it goes with it: a call to the kernel costs more than a copy.
        while line.len() < BATCH_LEN_MAX
            && let Ok(more) = lines.try_recv()
        {
            line.push_str(&more);
            line.push('\n');
        }
        writer.write_all(line.as_bytes()).await?;
        if lines.is_empty() {
            writer.flush().await?;
        }
    }
    writer.flush().await
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

struct Connection {
    core: Arc<Core>,
    lines: mpsc::Sender<String>,
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
    fn new(core: Arc<Core>, lines: mpsc::Sender<String>) -> std::io::Result<Connection> {
        let place = parked::token().ok_or_else(|| std::io::Error::other("the system has no randomness"))?;
        let work = AtWork { core: Arc::clone(&core), works: FuturesUnordered::new() };
        let (calls, spoken) = (Arc::default(), Spoken::Nothing);
        let (alive, idle) = mpsc::channel(1);
        Ok(Connection { core, lines, work, place: place.into(), calls, spoken, alive, idle })
    }

    async fn read<R: AsyncRead + Unpin>(mut self, reader: R) -> std::io::Result<()> {
        let mut input = Lines::new(reader, rpc::MESSAGE_LEN_MAX);
        let mut news = self.core.engine.news.subscribe();
        let mut tasks = self.core.tasks.news();
        let mut is_heard = true;
        let ended = loop {
            tokio::select! {
                Some(()) = self.work.works.next() => {}
                () = self.lines.closed() => break Ok(()),
                line = input.next() => match line {
                    Ok(Some(Line::Whole(bytes))) => self.line(&bytes).await,
                    Ok(Some(Line::TooLong)) => self.say(rpc::error_response(None, &rpc::too_long().error)).await,
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

    async fn say(&mut self, line: String) {
        // Fails when the writer is gone; then the connection is over.
        let _gone = self.lines.send(line).await;
    }

    fn tell(&self, news: &[News]) {
        match &self.spoken {
            Spoken::Legacy(session) => {
                for line in news.iter().filter_map(|news| session.told(news)) {
                    // Full means that the client does not read; it will list again sooner or later.
                    let _full = self.lines.try_send(line);
                }
            }
            Spoken::Nothing | Spoken::Modern => {}
        }
    }

    fn task(&self, record: &Record) {
        match self.spoken {
            Spoken::Legacy(_) if record.place == self.place => {
                // Full means that the client does not read; then it asks.
                let _full = self.lines.try_send(record.status_notification());
            }
            Spoken::Legacy(_) | Spoken::Nothing | Spoken::Modern => {}
        }
    }

    async fn line(&mut self, bytes: &[u8]) {
        match rpc::read(bytes) {
            Err(unreadable) => self.say(rpc::error_response(unreadable.id.as_ref(), &unreadable.error)).await,
            Ok(Message::Request(request)) => {
                let id = request.id.clone();
                if let Err(error) = self.request(request).await {
                    self.say(rpc::response(&id, &Err(error))).await;
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

    async fn request(&mut self, request: Request) -> Result<(), RpcError> {
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
                self.say(rpc::response(&request.id, &Ok(result))).await;
                Ok(())
            }
            Spoken::Nothing if request.method == "ping" => {
                self.say(rpc::response(&request.id, &Ok(json!({})))).await;
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
            out: Some(Out::Lines(self.lines.clone())),
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
        let out = Out::Lines(self.lines.clone());
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

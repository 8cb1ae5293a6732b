//! Streamable HTTP: `/mcp` on loopback, both eras on one path.
//!
//! POST carries one message. The modern era is known by its `_meta` or its version header and needs no session; the
//! older one opens a session with `initialize`, may listen on GET, and ends with DELETE. A request is answered with
//! plain JSON when the answer is there soon, else with an event stream.
//!
//! Who is let in is decided at the [`door`]. Nobody is waited for without a bound: not for a head, not for a body, not
//! for a reader.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::{self, HeaderMap, HeaderName};
use hyper::http::request::Parts;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::{Map, Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, broadcast, watch};
use tokio::task::JoinSet;
use tokio::time::{interval, timeout};

use crate::agents::ask;
use crate::agents::core::Core;
use crate::agents::ctx::{After, Ctx, Out, Owner};
use crate::agents::engine::{Asker, News};
use crate::agents::front::answer;
use crate::agents::front::body::{self, Body, CancelOnDrop, Events, Held};
use crate::agents::front::door::{self, Access, Holder};
use crate::agents::front::rate::Rates;
use crate::agents::front::stream::{Start, Stream};
use crate::agents::list;
use crate::agents::parked::{self, Call, Resume};
use crate::agents::session::{Cancel, NotEntered, Session, Sessions};
use crate::mcp::era::{self, Era};
use crate::mcp::header::{self as rules, Headers};
use crate::mcp::rpc::{self, Message, Notification, RpcError};

/// The one path that is served.
pub const PATH: &str = "/mcp";

/// Whoever can reach loopback: without a token there is no telling who it is. Ids of tasks are unguessable instead.
pub const LOCAL: &str = "local";

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");

/// Pause after the system refused a connection (no file descriptors, most often): trying again at once would only burn
/// the processor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Event streams that one session may hold open.
const READERS_MAX: usize = 8;

/// Serves until told to stop, then lets answers in flight out.
pub async fn serve(listener: TcpListener, core: Arc<Core>, mut stop: watch::Receiver<bool>) {
    let settings = core.settings.clone();
    let places = Arc::new(Semaphore::new(settings.connections_max));
    let front = Arc::new(Http { sessions: Sessions::new(settings.sessions_max), rates: Rates::default(), core });
    let mut news = front.core.engine.news.subscribe();
    let mut tasks = front.core.tasks.news();
    let mut accesses = front.core.accesses();
    let mut access = front.core.access();
    let mut connections = JoinSet::new();
    let mut pause = interval(ACCEPT_PAUSE);
    let mut is_heard = true;
    loop {
        while connections.try_join_next().is_some() {}
        tokio::select! {
            biased;
            () = told(&mut stop) => break,
            heard = news.recv(), if is_heard => match heard {
                Ok(news) => front.tell(&[news]),
                Err(broadcast::error::RecvError::Lagged(_)) => front.tell(&News::LISTS),
                Err(broadcast::error::RecvError::Closed) => is_heard = false,
            },
            // Who missed something learns it by asking: a task says the same whenever it is asked.
            Ok(record) = tasks.recv() => {
                if let Some(session) = front.sessions.peek(&record.place) {
                    session.broadcast.may(record.status_notification());
                }
            }
            Ok(()) = accesses.changed() => {
                let before = std::mem::replace(&mut access, Arc::clone(&accesses.borrow_and_update()));
                front.put_out(&before, &access).await;
            }
            accepted = accept(&listener, &places) => match accepted {
                Ok((socket, place)) => {
                    let (front, stop) = (Arc::clone(&front), stop.clone());
                    connections.spawn(async move {
                        front.connection(socket, stop).await;
                        drop(place);
                    });
                }
                Err(why) => {
                    tracing::warn!(error = %why, "mcp: a connection was not accepted");
                    pause.reset();
                    pause.tick().await;
                }
            },
        }
    }
    drop(listener);
    front.core.stop();
    for session in front.sessions.all() {
        session.broadcast.end();
    }
    let drained = async { while connections.join_next().await.is_some() {} };
    if timeout(settings.drain_wait, drained).await.is_err() {
        tracing::warn!("mcp: clients that did not finish in time were cut off");
    }
    for session in front.sessions.all() {
        front.core.close(&session).await;
    }
}

/// Waits until it is said. A sender that is gone means the same as one that says it.
async fn told(stop: &mut watch::Receiver<bool>) {
    let _gone = stop.wait_for(|said| *said).await.is_err();
}

/// The next connection, once there is a place for it.
async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> std::io::Result<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let place = Arc::clone(places).acquire_owned().await.map_err(std::io::Error::other)?;
    let (socket, _peer) = listener.accept().await?;
    Ok((socket, place))
}

/// Who has come in on one connection: all of them may, or it is closed.
#[derive(Debug, Default)]
struct Comers(Mutex<Vec<Option<Holder>>>);

impl Comers {
    fn note(&self, holder: Option<&Holder>) {
        let mut comers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !comers.iter().any(|known| known.as_ref() == holder) {
            comers.push(holder.cloned());
        }
    }

    fn may_stay(&self, access: &Access) -> bool {
        let comers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        comers.iter().all(|comer| access.tokens.lets_in(comer.as_ref()))
    }
}

/// The front.
#[derive(Debug)]
struct Http {
    core: Arc<Core>,
    sessions: Sessions,
    rates: Rates,
}

impl Http {
    async fn connection(self: Arc<Http>, socket: TcpStream, stop: watch::Receiver<bool>) {
        // An answer is one small write: it should not wait for the client's acknowledgement of the one before.
        if let Err(why) = socket.set_nodelay(true) {
            tracing::debug!(error = %why, "mcp: a connection stays with Nagle's algorithm");
        }
        match self.core.access().tls.clone() {
            None => self.talk(socket, stop).await,
            Some(tls) => match timeout(self.core.settings.head_wait, tls.accept(socket)).await {
                Ok(Ok(socket)) => self.talk(socket, stop).await,
                Ok(Err(why)) => tracing::debug!(error = %why, "mcp: a client did not get through TLS"),
                Err(_) => tracing::debug!("mcp: a client did not get through TLS in time"),
            },
        }
    }

    async fn talk(
        self: Arc<Http>,
        socket: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        mut stop: watch::Receiver<bool>,
    ) {
        let front = Arc::clone(&self);
        let comers = Arc::new(Comers::default());
        let mut accesses = self.core.accesses();
        let service = {
            let comers = Arc::clone(&comers);
            service_fn(move |request| {
                let (front, comers) = (Arc::clone(&front), Arc::clone(&comers));
                async move { Ok::<_, Infallible>(front.respond(request, &comers).await) }
            })
        };
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.core.settings.head_wait)
            .max_buf_size(64 << 10)
            .serve_connection(TokioIo::new(socket), service);
        let mut connection = std::pin::pin!(connection);
        let ended = loop {
            tokio::select! {
                ended = connection.as_mut() => break ended,
                () = told(&mut stop) => {
                    connection.as_mut().graceful_shutdown();
                    break connection.await;
                }
                // Dropped with all that is under way on it: a token that was taken back opens nothing any more.
                Ok(()) = accesses.changed() => if !comers.may_stay(&accesses.borrow_and_update()) {
                    tracing::info!("mcp: a connection was closed: its token is not good any more");
                    return;
                },
            }
        };
        if let Err(why) = ended {
            tracing::debug!(error = %why, "mcp: a connection ended early");
        }
    }

    fn tell(&self, news: &[News]) {
        for session in self.sessions.all() {
            for line in news.iter().filter_map(|news| session.told(news)) {
                session.broadcast.may(line);
            }
        }
    }

    /// Ends the sessions of those whose tokens are not good any more.
    async fn put_out(&self, before: &Access, after: &Access) {
        let gone = before.tokens.gone_in(&after.tokens);
        for session in self.sessions.all() {
            let is_gone = match session.client.holder.as_deref() {
                Some(holder) => gone.contains(&holder),
                None => !after.tokens.lets_in(None),
            };
            if is_gone {
                self.sessions.remove(&session.id);
                self.core.close(&session).await;
            }
        }
    }

    async fn respond(self: Arc<Http>, request: Request<Incoming>, comers: &Comers) -> Response<Body> {
        let access = self.core.access();
        let (parts, body) = request.into_parts();
        if parts.uri.path() != PATH {
            return answer::empty(StatusCode::NOT_FOUND);
        }
        if let Err(why) = door::is_local(&parts.headers, &access.hosts) {
            return answer::refusal(StatusCode::FORBIDDEN, &RpcError::new(rpc::INVALID_REQUEST, why));
        }
        let holder = match access.tokens.holder(&parts.headers) {
            Ok(holder) => {
                comers.note(holder);
                holder.map(|holder| holder.name().to_owned())
            }
            Err(_) => {
                let error =
                    RpcError::new(rpc::INVALID_REQUEST, "Authorization has to carry a token that is known here");
                return answer::with(
                    answer::refusal(StatusCode::UNAUTHORIZED, &error),
                    header::WWW_AUTHENTICATE,
                    "Bearer",
                );
            }
        };
        let holder = holder.as_deref();
        if let Some(rate) = holder.and_then(|holder| access.rates.get(holder))
            && !self.rates.may(holder.unwrap_or_default(), *rate)
        {
            let refusal = RpcError::new(rpc::BUSY, format!("more than {rate} requests a second"));
            let refusal = answer::refusal(StatusCode::TOO_MANY_REQUESTS, &refusal);
            return answer::with(refusal, header::RETRY_AFTER, "1");
        }
        match parts.method {
            Method::POST => self.post(&parts, holder, body).await,
            Method::GET => self.get(&parts, holder),
            Method::DELETE => self.delete(&parts, holder).await,
            _ => answer::with(answer::empty(StatusCode::METHOD_NOT_ALLOWED), header::ALLOW, "GET, POST, DELETE"),
        }
    }

    async fn post(self: &Arc<Http>, parts: &Parts, holder: Option<&str>, body: Incoming) -> Response<Body> {
        if !door::is_json(&parts.headers) {
            let error = RpcError::new(rpc::INVALID_REQUEST, "Content-Type has to be application/json");
            return answer::refusal(StatusCode::UNSUPPORTED_MEDIA_TYPE, &error);
        }
        if !door::accepts(&parts.headers, "application/json") || !door::accepts(&parts.headers, "text/event-stream") {
            let message = "Accept has to list application/json and text/event-stream";
            return answer::refusal(StatusCode::NOT_ACCEPTABLE, &RpcError::new(rpc::INVALID_REQUEST, message));
        }
        let bytes = match body::read(body, rpc::MESSAGE_LEN_MAX, self.core.settings.body_wait).await {
            Ok(bytes) => bytes,
            Err(why) => return answer::not_read(why),
        };
        let message = match rpc::read(&bytes) {
            Ok(message) => message,
            Err(unreadable) => return answer::unreadable(&unreadable),
        };
        drop(bytes);
        let version = parts.headers.get(VERSION).map(|value| value.to_str().unwrap_or(""));
        match choose(version, &message) {
            Chosen::Modern => self.modern(parts, holder, message).await,
            Chosen::Legacy => self.legacy(parts, holder, message).await,
        }
    }

    async fn modern(self: &Arc<Http>, parts: &Parts, holder: Option<&str>, message: Message) -> Response<Body> {
        let list: Vec<(&str, &[u8])> =
            parts.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        let headers = Headers(&list);
        let request = match message {
            Message::Request(request) => request,
            // There is none that this era defines; a cancellation by id would let one client cancel another's call.
            Message::Notification(Notification { method, .. }) => {
                return match (headers.only("mcp-protocol-version"), headers.only("mcp-method")) {
                    (Some(version), _) if version != era::MODERN => {
                        answer::refusal(StatusCode::BAD_REQUEST, &era::unsupported(version))
                    }
                    (_, Some(named)) if named != method => {
                        let message = "Mcp-Method does not say the method of the body";
                        answer::refusal(StatusCode::BAD_REQUEST, &RpcError::new(rpc::HEADER_MISMATCH, message))
                    }
                    _ => answer::empty(StatusCode::ACCEPTED),
                };
            }
            Message::Response { .. } => {
                let message = "this era has no requests to clients, hence no responses from them";
                return answer::refusal(StatusCode::BAD_REQUEST, &RpcError::new(rpc::INVALID_REQUEST, message));
            }
        };
        let id = request.id.clone();
        let refuse = |error: RpcError| {
            let answer = Err(error);
            let status = crate::agents::ctx::status(Era::Modern, &answer);
            answer::json(status, rpc::response(&id, &answer))
        };
        let envelope = match rules::check(headers, &request) {
            Ok(envelope) => envelope,
            Err(error) => return refuse(error),
        };
        if request.method == "tools/call"
            && let Err(error) = self.check_params(headers, holder, &request.params)
        {
            return refuse(error);
        }
        let stream = Stream::for_request();
        let meta = era::meta(&request.params).cloned().unwrap_or_default();
        let owner = owner(holder);
        let (state, answers) = match ask::brought(&request.params) {
            Ok(brought) => brought,
            Err(error) => return refuse(error),
        };
        let cancel = match state {
            Some(state) => {
                let call = Call::of(&request.method, &request.params);
                let resume = Resume { id: id.clone(), meta, answers, out: Out::Stream(Arc::clone(&stream)) };
                match self.core.parked.resume(state, &owner, &call, resume) {
                    Ok(cancel) => cancel,
                    Err(error) => return refuse(error),
                }
            }
            None => {
                let cancel = Cancel::default();
                let ctx = Ctx {
                    era: Era::Modern,
                    id: id.clone(),
                    meta,
                    answers,
                    capabilities: envelope.capabilities,
                    client: Asker::read(&envelope.client).held_by(holder),
                    owner,
                    place: "http".into(),
                    task: None,
                    after: After::default(),
                    session: None,
                    cancel: cancel.clone(),
                    out: Some(Out::Stream(Arc::clone(&stream))),
                };
                if let Err(error) = self.core.begin(request, ctx) {
                    return refuse(error);
                }
                cancel
            }
        };
        let guard = CancelOnDrop { cancel, stream: Arc::clone(&stream) };
        let begun = timeout(self.core.settings.stream_after, stream.begun()).await;
        match (begun, stream.start()) {
            (Ok(()), Start::Answer(text, status)) => answer::json(status, text.to_string()),
            (Ok(()), Start::NoAnswer) => answer::empty(StatusCode::ACCEPTED),
            (Ok(()) | Err(_), Start::Empty | Start::Messages | Start::Answer(..) | Start::NoAnswer) => {
                answer::events(Events::new(stream, None, 0, Some(Held::Cancel(guard))))
            }
        }
    }

    /// Checks the headers that a tool's input schema asks for.
    fn check_params(
        &self,
        headers: Headers<'_>,
        holder: Option<&str>,
        params: &Map<String, Value>,
    ) -> Result<(), RpcError> {
        let nothing = Map::new();
        let arguments = params.get("arguments").and_then(Value::as_object).unwrap_or(&nothing);
        let tools = self.core.engine.tools(holder);
        let name = params.get("name").and_then(Value::as_str).unwrap_or_default();
        match list::find(&tools, name) {
            Some(tool) => rules::check_params(headers, &tool.input_schema, arguments),
            None => Ok(()),
        }
    }

    async fn legacy(self: &Arc<Http>, parts: &Parts, holder: Option<&str>, message: Message) -> Response<Body> {
        if let Message::Request(request) = &message
            && request.method == "initialize"
        {
            return self.initialize(parts, holder, request).await;
        }
        let session = match self.session(&parts.headers, holder) {
            Ok(session) => session,
            Err(answer) => return *answer,
        };
        let request = match message {
            Message::Request(request) => request,
            Message::Notification(notification) => {
                session.notified(&notification);
                return answer::empty(StatusCode::ACCEPTED);
            }
            Message::Response { id, answer } => {
                session.answered(&id, answer);
                return answer::empty(StatusCode::ACCEPTED);
            }
        };
        let (stream, cancel) = (Stream::for_request(), Cancel::default());
        if let Err(why) = session.calls.enter(&request.id, &cancel) {
            return answer::json(200, rpc::response(&request.id, &Err(not_entered(why))));
        }
        let (id, of, asked) = (request.id.clone(), Arc::clone(&session), request.id.clone());
        let ctx = Ctx {
            era: Era::Legacy,
            id: request.id.clone(),
            meta: era::meta(&request.params).cloned().unwrap_or_default(),
            answers: Map::new(),
            capabilities: session.capabilities.clone(),
            client: session.client.clone(),
            owner: owner(holder),
            place: session.id.as_str().into(),
            task: None,
            after: After::new(move || of.calls.leave(&id)),
            session: Some(Arc::clone(&session)),
            cancel,
            out: Some(Out::Stream(Arc::clone(&stream))),
        };
        if let Err(error) = self.core.begin(request, ctx) {
            return answer::json(200, rpc::response(&asked, &Err(error)));
        }
        // A client that loses its connection has not cancelled (2025-11-25, "Sending Messages", 6): the call goes on.
        let begun = timeout(self.core.settings.stream_after, stream.begun()).await;
        match (begun, stream.start()) {
            (Ok(()), Start::Answer(text, status)) => answer::json(status, text.to_string()),
            (Ok(()), Start::NoAnswer) => answer::empty(StatusCode::ACCEPTED),
            (Ok(()) | Err(_), Start::Empty | Start::Messages | Start::Answer(..) | Start::NoAnswer) => {
                let number = session.keep_stream(&stream);
                answer::events(Events::new(stream, Some(number), 0, Some(Held::Reader(session.reader()))))
            }
        }
    }

    async fn initialize(&self, parts: &Parts, holder: Option<&str>, request: &rpc::Request) -> Response<Body> {
        if parts.headers.contains_key(SESSION) {
            let error = RpcError::new(rpc::INVALID_REQUEST, "this session is already initialized");
            return answer::json(400, rpc::response(&request.id, &Err(error)));
        }
        let opened = open_session(&request.params, holder)
            .ok_or_else(|| RpcError::new(rpc::INTERNAL_ERROR, "the system has no randomness for the id of a session"));
        let session = match opened {
            Ok(session) => Arc::new(session),
            Err(error) => return answer::json(500, rpc::response(&request.id, &Err(error))),
        };
        match self.sessions.add(Arc::clone(&session)) {
            Ok(None) => {}
            Ok(Some(evicted)) => self.core.close(&evicted).await,
            Err(_) => {
                let message = format!("all {} sessions are busy", self.core.settings.sessions_max);
                return answer::json(503, rpc::response(&request.id, &Err(RpcError::new(rpc::BUSY, message))));
            }
        }
        let answer = answer::json(
            200,
            rpc::response(&request.id, &Ok(list::initialize(session.version, self.core.engine.offers()))),
        );
        answer::with(answer, SESSION, &session.id)
    }

    /// The session that the headers name, or what to say when they name none.
    fn session(&self, headers: &HeaderMap, holder: Option<&str>) -> Result<Arc<Session>, Box<Response<Body>>> {
        let Some(id) = headers.get(SESSION) else {
            let message = "send initialize first, then its Mcp-Session-Id with every request";
            let answer = answer::refusal(StatusCode::BAD_REQUEST, &RpcError::new(rpc::INVALID_REQUEST, message));
            return Err(Box::new(answer));
        };
        // Somebody else's session is no session: whoever found its id out learns nothing from that.
        let found = id.to_str().ok().and_then(|id| self.sessions.find(id));
        found.filter(|session| session.client.holder.as_deref() == holder).ok_or_else(|| {
            let error = RpcError::new(rpc::NO_SESSION, "no such session (any more): initialize again");
            Box::new(answer::refusal(StatusCode::NOT_FOUND, &error))
        })
    }

    fn get(&self, parts: &Parts, holder: Option<&str>) -> Response<Body> {
        if parts.headers.get(VERSION).is_some_and(|version| version == era::MODERN) {
            return answer::with(answer::empty(StatusCode::METHOD_NOT_ALLOWED), header::ALLOW, "POST");
        }
        if !door::accepts(&parts.headers, "text/event-stream") {
            let error = RpcError::new(rpc::INVALID_REQUEST, "Accept has to list text/event-stream");
            return answer::refusal(StatusCode::NOT_ACCEPTABLE, &error);
        }
        let session = match self.session(&parts.headers, holder) {
            Ok(session) => session,
            Err(answer) => return *answer,
        };
        if session.readers() >= READERS_MAX {
            let error = RpcError::new(rpc::BUSY, format!("this session has {READERS_MAX} streams open"));
            return answer::refusal(StatusCode::CONFLICT, &error);
        }
        let (number, from) = match parts.headers.get(LAST_EVENT) {
            None => (0, 0),
            Some(id) => match id.to_str().ok().and_then(body::resume_after) {
                Some(named) => named,
                None => {
                    let error = RpcError::new(rpc::INVALID_REQUEST, "Last-Event-ID is none that this server gave out");
                    return answer::refusal(StatusCode::BAD_REQUEST, &error);
                }
            },
        };
        match session.stream(number) {
            Some(stream) => {
                let held = Held::Reader(session.reader());
                answer::events(Events::new(stream, Some(number), from, Some(held)))
            }
            None => {
                let error = RpcError::new(rpc::INVALID_REQUEST, "this stream is not kept any more");
                answer::refusal(StatusCode::NOT_FOUND, &error)
            }
        }
    }

    async fn delete(&self, parts: &Parts, holder: Option<&str>) -> Response<Body> {
        if parts.headers.get(VERSION).is_some_and(|version| version == era::MODERN) {
            return answer::with(answer::empty(StatusCode::METHOD_NOT_ALLOWED), header::ALLOW, "POST");
        }
        match self.session(&parts.headers, holder) {
            Ok(session) => {
                self.sessions.remove(&session.id);
                self.core.close(&session).await;
                answer::empty(StatusCode::NO_CONTENT)
            }
            Err(answer) => *answer,
        }
    }
}

/// Whose the tasks and parked calls of a request are.
fn owner(holder: Option<&str>) -> Owner {
    match holder {
        None => Owner(LOCAL.into()),
        Some(holder) => Owner(format!("token:{holder}").into()),
    }
}

/// A session as `initialize` asks for it; none when the system has no randomness to give.
#[must_use]
pub fn open_session(params: &Map<String, Value>, holder: Option<&str>) -> Option<Session> {
    let version = era::settle(params.get("protocolVersion").and_then(Value::as_str));
    let capabilities = match params.get("capabilities") {
        Some(capabilities @ Value::Object(_)) => capabilities.clone(),
        _ => json!({}),
    };
    let client = Asker::read(params.get("clientInfo").unwrap_or(&Value::Null)).held_by(holder);
    Some(Session::new(parked::token()?, client, capabilities, version))
}

/// What is said of a request that was not begun.
#[must_use]
pub fn not_entered(why: NotEntered) -> RpcError {
    match why {
        NotEntered::SameId => RpcError::new(rpc::INVALID_REQUEST, "a request with this id is in flight"),
        NotEntered::TooMany => RpcError::new(rpc::BUSY, "too many requests of this client are in flight"),
    }
}

enum Chosen {
    Modern,
    Legacy,
}

/// The era of a message. Only the modern one puts a revision into `_meta`; only the older one has `initialize`. A
/// version header that nobody knows goes to the modern era, which has an answer that says what is served.
fn choose(version: Option<&str>, message: &Message) -> Chosen {
    let (is_initialize, names_version) = match message {
        Message::Request(request) => (request.method == "initialize", era::names_a_version(&request.params)),
        Message::Notification(notification) => (false, era::names_a_version(&notification.params)),
        Message::Response { .. } => (false, false),
    };
    match version {
        _ if names_version => Chosen::Modern,
        Some(era::MODERN) => Chosen::Modern,
        Some(version) if !era::LEGACY.contains(&version) && !is_initialize => Chosen::Modern,
        Some(_) | None => Chosen::Legacy,
    }
}

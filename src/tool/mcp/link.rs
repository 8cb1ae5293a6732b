//! One connection to one server: requests out with numbers of our own, and what comes back sorted to whoever waits.
//!
//! Ids and progress tokens of our clients never leave this box; a server sees ours. What a server asks goes to the call
//! that it belongs to and to no other: where that cannot be told, it is refused, because the nearest guess would be
//! another client's business.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use interlock_domain::request::shown::plain;
use serde_json::{Map, Value, json};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::http::Http;
use super::stdio::Pipe;
use crate::mcp::era::{self, Era};
use crate::mcp::rpc::{self, Id, Message, Notification, Request, RpcError, Unreadable};
use crate::mcp::upward::{Ask, Line, NotAsked, Upward};

/// Longest message of a server: results carry images and files.
pub(super) const MESSAGE_LEN_MAX: usize = 16 << 20;

/// Questions of one server that may be open at once.
const QUESTIONS_MAX: usize = 64;

/// Changes of resources that may wait to be told on; what finds no place is lost, as a notification may be.
pub(super) const UPDATES_MAX: usize = 256;

/// `_meta` of the older era: the task that something belongs to.
const META_RELATED: &str = "io.modelcontextprotocol/related-task";

/// Why there is no result.
#[derive(Debug, Clone, PartialEq)]
pub enum NoAnswer {
    /// Nothing was sent: nothing happened.
    NotSent(String),
    /// The server answered with an error.
    Rpc(RpcError),
    /// It was sent, and then the connection broke or the process ended.
    Lost {
        /// The process ended.
        killed: bool,
        /// What was seen.
        why: String,
    },
    /// It was sent, and no sign of life came in time.
    TimedOut,
    /// The server does not let us in; it did nothing.
    Unauthorized(String),
    /// The server did not take the request; it did nothing, and would do as little the next time.
    Refused(String),
}

/// How long an answer is waited for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// Without a sign of life.
    pub(super) idle: Duration,
    /// Altogether.
    pub(super) total: Duration,
}

impl Patience {
    /// The same for both.
    pub(super) const fn of(time: Duration) -> Patience {
        Patience { idle: time, total: time }
    }
}

/// A request of ours that waits for its answer.
#[derive(Debug)]
struct Pending {
    answer: oneshot::Sender<Result<Value, RpcError>>,
    line: Option<Line>,
    touched: Arc<Notify>,
}

/// What comes from a server, sorted.
#[derive(Debug)]
pub(super) struct Switch {
    // The reader and the callers meet here, each for one look-up.
    pending: Mutex<HashMap<u64, Pending>>,
    next: AtomicU64,
    /// Lines of tasks that work at the server, by the server's own ids.
    tasks: Mutex<HashMap<String, Line>>,
    questions: Mutex<JoinSet<()>>,
    /// Rises with each change of a list.
    lists: watch::Sender<u64>,
    updates: mpsc::Sender<String>,
    down: watch::Sender<Option<Down>>,
    /// What came and was no message.
    pub(super) noise: AtomicU64,
}

/// Why a connection is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Down {
    pub(super) killed: bool,
    pub(super) why: String,
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Switch {
    /// A switch, and where updates of resources come out.
    pub(super) fn new() -> (Arc<Switch>, mpsc::Receiver<String>) {
        let (updates, outlet) = mpsc::channel(UPDATES_MAX);
        let switch = Switch {
            pending: Mutex::default(),
            next: AtomicU64::new(1),
            tasks: Mutex::default(),
            questions: Mutex::default(),
            lists: watch::Sender::new(0),
            updates,
            down: watch::Sender::new(None),
            noise: AtomicU64::new(0),
        };
        (Arc::new(switch), outlet)
    }

    /// The connection is over. The first reason counts.
    pub(super) fn end(&self, killed: bool, why: impl Into<String>) {
        self.down.send_if_modified(|down| {
            let is_first = down.is_none();
            if is_first {
                *down = Some(Down { killed, why: why.into() });
            }
            is_first
        });
    }

    /// Waits until the connection is over.
    pub(super) async fn ended(&self) -> Down {
        let mut down = self.down.subscribe();
        loop {
            if let Some(down) = down.borrow_and_update().clone() {
                return down;
            }
            // The sender is ours, so it is there as long as we are.
            let _changed = down.changed().await.is_ok();
        }
    }

    /// Why it is over, if it is.
    pub(super) fn down(&self) -> Option<Down> {
        self.down.borrow().clone()
    }

    /// Rises with each change of a list.
    pub(super) fn lists(&self) -> watch::Receiver<u64> {
        self.lists.subscribe()
    }

    /// Whether a request still waits.
    pub(super) fn waits(&self, number: u64) -> bool {
        lock(&self.pending).contains_key(&number)
    }

    fn line_of(&self, of: Option<u64>, params: &Map<String, Value>) -> Option<Line> {
        let related = params.get("_meta").and_then(|meta| meta[META_RELATED]["taskId"].as_str());
        if let Some(line) = related.and_then(|task| lock(&self.tasks).get(task).cloned()) {
            return Some(line);
        }
        let pending = lock(&self.pending);
        if let Some(number) = of {
            return pending.get(&number).and_then(|pending| pending.line.clone());
        }
        let mut lines = pending.values().filter_map(|pending| pending.line.as_ref());
        match (lines.next(), lines.next()) {
            (Some(only), None) => Some(only.clone()),
            _ => None,
        }
    }

    /// Sorts one message. `of` is the request on whose stream it came, where that is known.
    pub(super) fn take(self: &Arc<Switch>, message: Message, of: Option<u64>, wire: &Wire) {
        match message {
            Message::Response { id, answer } => {
                let waiting = number(&id).and_then(|number| lock(&self.pending).remove(&number));
                match waiting {
                    // A result is an object. What it says of the outcome cannot be read, as with any other nonsense.
                    Some(_) if answer.as_ref().is_ok_and(|result| !result.is_object()) => {
                        self.noise.fetch_add(1, Ordering::Relaxed);
                    }
                    // Fails when whoever asked has gone meanwhile.
                    Some(pending) => drop(pending.answer.send(answer)),
                    None => drop(self.noise.fetch_add(1, Ordering::Relaxed)),
                }
            }
            Message::Notification(notification) => self.notified(&notification, of),
            Message::Request(request) => self.asked(request, of, wire),
        }
    }

    /// What came was no message. If it was meant as the answer to a request of ours, nobody waits for that any longer:
    /// what it says of the outcome cannot be read.
    pub(super) fn misread(&self, unreadable: &Unreadable) {
        self.noise.fetch_add(1, Ordering::Relaxed);
        if let (true, Some(number)) = (unreadable.is_answer, unreadable.id.as_ref().and_then(number)) {
            drop(lock(&self.pending).remove(&number));
        }
    }

    fn notified(&self, notification: &Notification, of: Option<u64>) {
        let params = &notification.params;
        match notification.method.as_str() {
            "notifications/progress" => {
                let token = params.get("progressToken").and_then(Value::as_u64);
                let found = token.and_then(|token| {
                    let pending = lock(&self.pending);
                    pending.get(&token).map(|pending| (pending.line.clone(), Arc::clone(&pending.touched)))
                });
                let Some((line, touched)) = found else { return };
                touched.notify_one();
                if let (Some(line), Some(progress)) = (line, params.get("progress").and_then(Value::as_f64)) {
                    let message = params.get("message").and_then(Value::as_str).map(str::to_owned);
                    let total = params.get("total").and_then(Value::as_f64);
                    // Full means that the caller does not read: it loses progress, not its answer.
                    let _full = line.up.try_send(Upward::Progress { progress, total, message });
                }
            }
            "notifications/message" => {
                if let Some(line) = self.line_of(of, params) {
                    let text = |key: &str| params.get(key).and_then(Value::as_str).map(str::to_owned);
                    let level = text("level").unwrap_or_else(|| "info".to_owned());
                    let data = params.get("data").cloned().unwrap_or(Value::Null);
                    let _full = line.up.try_send(Upward::Log { level, logger: text("logger"), data });
                }
            }
            "notifications/tools/list_changed"
            | "notifications/prompts/list_changed"
            | "notifications/resources/list_changed" => self.lists.send_modify(|count| *count += 1),
            "notifications/resources/updated" => {
                if let Some(uri) = params.get("uri").and_then(Value::as_str) {
                    let _full = self.updates.try_send(uri.to_owned());
                }
            }
            // The rest means nothing here: tasks are asked, and what is cancelled ends by itself.
            _ => {}
        }
    }

    fn asked(self: &Arc<Switch>, request: Request, of: Option<u64>, wire: &Wire) {
        let refuse = |error: RpcError| rpc::response(&request.id, &Err(error));
        let answer = match request.method.as_str() {
            "ping" => Some(rpc::response(&request.id, &Ok(json!({})))),
            "elicitation/create" | "sampling/createMessage" | "roots/list" => None,
            method => {
                let fact = format!("a client has no method {:?}", plain(method, 64));
                Some(refuse(RpcError::new(rpc::METHOD_NOT_FOUND, fact)))
            }
        };
        let line = self.line_of(of, &request.params);
        let mut questions = lock(&self.questions);
        while questions.try_join_next().is_some() {}
        let answer = match (answer, &line) {
            (Some(answer), _) => Some(answer),
            (None, None) => {
                let message = "this question cannot be told to belong to one call, so nobody is asked";
                Some(refuse(RpcError::new(rpc::INVALID_REQUEST, message)))
            }
            (None, Some(_)) if questions.len() >= QUESTIONS_MAX => {
                Some(refuse(RpcError::new(rpc::BUSY, format!("{QUESTIONS_MAX} questions are open"))))
            }
            (None, Some(_)) => None,
        };
        let wire = wire.clone();
        questions.spawn(async move {
            let text = match (answer, line) {
                (Some(text), _) => text,
                (None, None) => return,
                (None, Some(line)) => {
                    let ask = Ask {
                        key: "question".to_owned(),
                        method: request.method.clone(),
                        params: Value::Object(request.params),
                    };
                    let answer = match put(&line, vec![ask]).await {
                        Ok(mut answers) => answers.pop().map(|(_, answer)| answer).ok_or_else(no_answer),
                        Err(why) => Err(not_asked(why)),
                    };
                    rpc::response(&request.id, &answer)
                }
            };
            // Fails when the server is gone, and its question with it.
            let _gone = wire.send(text).await;
        });
    }

    /// Messages of this task of the server's belong to that call, until it is dropped.
    pub(super) fn task(self: &Arc<Switch>, id: &str, line: Line) -> TaskLine {
        lock(&self.tasks).insert(id.to_owned(), line);
        TaskLine { switch: Arc::clone(self), id: id.to_owned() }
    }
}

/// See [`Switch::task`].
pub(super) struct TaskLine {
    switch: Arc<Switch>,
    id: String,
}

impl Drop for TaskLine {
    fn drop(&mut self) {
        lock(&self.switch.tasks).remove(&self.id);
    }
}

fn number(id: &Id) -> Option<u64> {
    match id {
        Id::Number(number) => number.as_u64(),
        Id::Text(_) => None,
    }
}

fn no_answer() -> RpcError {
    RpcError::new(rpc::INTERNAL_ERROR, "nobody answered")
}

/// What a server is told when its question was not put.
pub(super) fn not_asked(why: NotAsked) -> RpcError {
    match why {
        NotAsked::NotDeclared(capability) => {
            RpcError::new(rpc::METHOD_NOT_FOUND, format!("the client behind this call did not declare {capability:?}"))
        }
        NotAsked::Refused(error) => error,
        NotAsked::NoAnswer => no_answer(),
    }
}

/// Puts questions to the caller.
pub(super) async fn put(line: &Line, asks: Vec<Ask>) -> Result<Vec<(String, Value)>, NotAsked> {
    let (reply, answers) = oneshot::channel();
    line.up.send(Upward::Ask { asks, reply }).await.map_err(|_| NotAsked::NoAnswer)?;
    answers.await.map_err(|_| NotAsked::NoAnswer)?
}

/// How bytes go out.
#[derive(Debug, Clone)]
pub(super) enum Wire {
    /// To a child.
    Pipe(Pipe),
    /// To somewhere.
    Http(Arc<Http>),
}

impl Wire {
    /// Sends what has no answer.
    pub(super) async fn send(&self, text: String) -> Result<(), NoAnswer> {
        match self {
            Wire::Pipe(pipe) => pipe.send(text).await,
            Wire::Http(http) => http.tell(text).await,
        }
    }
}

/// A connection that is ready for requests.
#[derive(Debug)]
pub struct Link {
    /// The protocol that is spoken.
    pub era: Era,
    /// What the server said of itself: the result of `initialize` or `server/discover`.
    pub hello: Value,
    pub(super) wire: Wire,
    pub(super) switch: Arc<Switch>,
}

/// What a request is sent with, beside its parameters.
#[derive(Debug, Clone, Copy)]
pub(super) struct With<'a> {
    pub(super) line: Option<&'a Line>,
    pub(super) patience: Patience,
    /// The input schema of the tool that is called, for headers.
    pub(super) schema: Option<&'a Value>,
}

impl<'a> With<'a> {
    pub(super) fn patience(patience: Patience) -> With<'a> {
        With { line: None, patience, schema: None }
    }
}

impl Link {
    /// Whether the server declared a capability.
    pub(super) fn offers(&self, capability: &str) -> bool {
        self.hello["capabilities"].get(capability).is_some_and(Value::is_object)
    }

    /// Asks the server and waits for its answer. Dropped, it cancels.
    pub(super) async fn request(
        &self,
        method: &str,
        params: Map<String, Value>,
        with: With<'_>,
    ) -> Result<Value, NoAnswer> {
        request(&self.wire, &self.switch, self.era, method, params, with).await
    }

    /// Tells the server something.
    pub(super) async fn notify(&self, method: &str, params: &Value) -> Result<(), NoAnswer> {
        self.wire.send(rpc::notification(method, params)).await
    }
}

/// See [`Link::request`]; also for the requests that make a link.
pub(super) async fn request(
    wire: &Wire,
    switch: &Arc<Switch>,
    era: Era,
    method: &str,
    mut params: Map<String, Value>,
    with: With<'_>,
) -> Result<Value, NoAnswer> {
    if let Some(down) = switch.down() {
        return Err(NoAnswer::NotSent(down.why));
    }
    let number = switch.next.fetch_add(1, Ordering::Relaxed);
    furnish(&mut params, era, number, with.line);
    let (sender, mut answer) = oneshot::channel();
    let touched = Arc::new(Notify::new());
    let pending = Pending { answer: sender, line: with.line.cloned(), touched: Arc::clone(&touched) };
    lock(&switch.pending).insert(number, pending);
    // From here on a drop takes the request back.
    let _asked = Asked { switch, wire, era, number, is_hello: method == "initialize" };
    let params = Value::Object(params);
    let exchange = async {
        match wire {
            Wire::Pipe(pipe) => {
                if let Err(error) = pipe.send(rpc::request(number, method, &params)).await {
                    return error;
                }
                let Down { killed, why } = switch.ended().await;
                NoAnswer::Lost { killed, why }
            }
            Wire::Http(http) => http.exchange(switch, number, method, &params, with.schema).await,
        }
    };
    let mut exchange = std::pin::pin!(exchange);
    let total = Instant::now() + with.patience.total;
    let mut idle = Instant::now() + with.patience.idle;
    loop {
        tokio::select! {
            biased;
            answered = &mut answer => {
                return match answered {
                    Ok(answer) => answer.map_err(NoAnswer::Rpc),
                    Err(_) => Err(NoAnswer::Lost { killed: false, why: "its answer could not be read".to_owned() }),
                };
            }
            ended = &mut exchange => {
                // The answer may have been the last thing that came.
                if let Ok(answer) = answer.try_recv() {
                    return answer.map_err(NoAnswer::Rpc);
                }
                if let NoAnswer::Rpc(_) | NoAnswer::NotSent(_) | NoAnswer::Unauthorized(_) | NoAnswer::Refused(_) =
                    ended
                {
                    // The server is not at it: there is nothing to take back.
                    lock(&switch.pending).remove(&number);
                }
                return Err(ended);
            }
            () = touched.notified() => idle = Instant::now() + with.patience.idle,
            () = sleep_until(idle.min(total)) => return Err(NoAnswer::TimedOut),
        }
    }
}

/// A request that is out. Dropped without an answer, it is cancelled.
struct Asked<'a> {
    switch: &'a Arc<Switch>,
    wire: &'a Wire,
    era: Era,
    number: u64,
    /// The protocol forbids to cancel that one.
    is_hello: bool,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        let is_open = lock(&self.switch.pending).remove(&self.number).is_some();
        if !is_open || self.is_hello || self.switch.down().is_some() {
            return;
        }
        let params = json!({"requestId": self.number, "reason": "nobody waits for it any more"});
        let text = rpc::notification("notifications/cancelled", &params);
        match (self.wire, self.era) {
            (Wire::Pipe(pipe), _) => pipe.send_now(text),
            (Wire::Http(http), Era::Legacy) => {
                let http = Arc::clone(http);
                // Bounded by its own time limit; a drop cannot wait for it.
                lock(&self.switch.questions).spawn(async move { drop(http.tell(text).await) });
            }
            // Closing the stream was the cancellation.
            (Wire::Http(_), Era::Modern) => {}
        }
    }
}

/// Adds to the parameters what the protocol wants, and what the caller's program said that concerns the server.
fn furnish(params: &mut Map<String, Value>, era: Era, number: u64, line: Option<&Line>) {
    let mut meta = match params.remove("_meta") {
        Some(Value::Object(meta)) => meta,
        _ => Map::new(),
    };
    if let Some(line) = line {
        for (name, value) in &line.meta {
            let ours = name == "progressToken" || name.starts_with("io.modelcontextprotocol/");
            if !ours || name == era::META_LOG_LEVEL {
                meta.insert(name.clone(), value.clone());
            }
        }
        meta.insert("progressToken".to_owned(), number.into());
    }
    match era {
        Era::Legacy => {
            meta.remove(era::META_LOG_LEVEL);
        }
        Era::Modern => {
            let capabilities = line.map_or_else(|| json!({}), |line| line.capabilities.clone());
            meta.insert(era::META_VERSION.to_owned(), era::MODERN.into());
            meta.insert(era::META_CLIENT.to_owned(), us());
            meta.insert(era::META_CAPABILITIES.to_owned(), capabilities);
        }
    }
    if !meta.is_empty() {
        params.insert("_meta".to_owned(), Value::Object(meta));
    }
}

/// Who we are, for servers.
pub(super) fn us() -> Value {
    json!({"name": "interlock", "title": "Interlock 联锁", "version": env!("CARGO_PKG_VERSION")})
}

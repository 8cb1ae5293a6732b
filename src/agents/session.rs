//! A session of the older era: what `initialize` said, the calls in flight, the questions that we sent, and the streams
//! that its client may come back to.
//!
//! The table of sessions never grows past its bound. When it is full, the session that was idle for longest makes
//! room, and one that never finished its handshake goes first: a thousand clients that only say hello must not push
//! out one that works. A session with a call in flight or with an open stream is never pushed out.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use interlock_domain::id::RunId;
use serde_json::{Value, json};
use tokio::sync::{OnceCell, oneshot, watch};

use crate::agents::engine::{Asker, News};
use crate::agents::front::stream::Stream;
use crate::mcp::rpc::{self, Id, Notification, RpcError};

/// Calls that one client may have in flight.
pub const CALLS_MAX: usize = 64;

/// Resources that one client may want to hear of.
pub const WATCHED_MAX: usize = 256;

/// Streams of one session that can still be resumed.
const STREAMS_MAX: usize = 16;

/// Bytes of ended streams that a session keeps for a client that may come back.
const ENDED_LEN_MAX: usize = 64 << 10;

fn ended_len(streams: &VecDeque<(u64, Arc<Stream>)>) -> usize {
    streams.iter().filter(|(_, stream)| stream.has_ended()).map(|(_, stream)| stream.len()).sum()
}

/// Tells whoever works for a request that nobody wants the answer any more. Cheap to clone; once said it stays said.
#[derive(Debug, Clone)]
pub struct Cancel(Arc<watch::Sender<bool>>);

impl Default for Cancel {
    fn default() -> Cancel {
        Cancel(Arc::new(watch::Sender::new(false)))
    }
}

impl Cancel {
    /// Whether it was.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        *self.0.borrow()
    }

    /// Says it.
    pub fn cancel(&self) {
        self.0.send_replace(true);
    }

    /// Waits until it is said.
    pub async fn cancelled(&self) {
        let mut said = self.0.subscribe();
        // The sender lives in `self`, which we borrow: the wait can only end because it was said.
        if said.wait_for(|said| *said).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// The calls of one client, by the ids that it chose.
#[derive(Debug, Default)]
pub struct Calls(Mutex<HashMap<Id, Cancel>>);

/// Why a request was not taken in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotEntered {
    /// A request with this id is in flight.
    SameId,
    /// As many as are allowed are in flight.
    TooMany,
}

impl Calls {
    fn table(&self) -> MutexGuard<'_, HashMap<Id, Cancel>> {
        // Two tasks meet here, the one that reads messages and the one that works; neither waits under the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a request that begins.
    ///
    /// # Errors
    /// When its id is taken, or too many are in flight.
    pub fn enter(&self, id: &Id, cancel: &Cancel) -> Result<(), NotEntered> {
        let mut table = self.table();
        if table.contains_key(id) {
            return Err(NotEntered::SameId);
        }
        if table.len() >= CALLS_MAX {
            return Err(NotEntered::TooMany);
        }
        table.insert(id.clone(), cancel.clone());
        Ok(())
    }

    /// Notes that a request has ended.
    pub fn leave(&self, id: &Id) {
        self.table().remove(id);
    }

    /// Cancels one request; an unknown id is ignored, since the answer may have crossed the cancellation.
    pub fn cancel(&self, id: &Id) {
        if let Some(cancel) = self.table().get(id) {
            cancel.cancel();
        }
    }

    /// Cancels all.
    pub fn cancel_all(&self) {
        self.table().values().for_each(Cancel::cancel);
    }

    /// How many are in flight.
    #[must_use]
    pub fn len(&self) -> usize {
        self.table().len()
    }

    /// Whether none is in flight.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What became of a wish to hear of a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Watch {
    /// It counts from now on.
    New,
    /// It counted already: once is enough.
    Known,
    /// There are too many.
    Full,
}

/// One session.
#[derive(Debug)]
pub struct Session {
    /// Its id; unguessable, because whoever knows it is its client.
    pub id: String,
    /// The program at the other end.
    pub client: Asker,
    /// What it can do.
    pub capabilities: Value,
    /// The revision that was settled on.
    pub version: &'static str,
    /// Its calls in flight.
    pub calls: Calls,
    /// Its run, opened by its first call.
    pub run: OnceCell<RunId>,
    /// What belongs to no request of it.
    pub broadcast: Arc<Stream>,
    // Looked at by the task of each of its requests, for the length of a table look-up.
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    is_live: bool,
    log_level: String,
    asked: u64,
    asks: HashMap<u64, oneshot::Sender<Result<Value, RpcError>>>,
    streams: VecDeque<(u64, Arc<Stream>)>,
    streams_opened: u64,
    /// Open event streams.
    readers: usize,
    /// Addresses of resources that its client wants to hear of.
    watched: BTreeSet<String>,
}

impl Session {
    /// A session as `initialize` opens it.
    #[must_use]
    pub fn new(id: String, client: Asker, capabilities: Value, version: &'static str) -> Session {
        Session {
            id,
            client,
            capabilities,
            version,
            calls: Calls::default(),
            run: OnceCell::new(),
            broadcast: Stream::ring(),
            state: Mutex::new(State {
                is_live: false,
                // Until the client says otherwise (2025-11-25, "Logging"): what a person would want to see.
                log_level: "info".to_owned(),
                asked: 0,
                asks: HashMap::new(),
                streams: VecDeque::new(),
                streams_opened: 0,
                readers: 0,
                watched: BTreeSet::new(),
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The least severe log message that its client wants.
    #[must_use]
    pub fn log_level(&self) -> String {
        self.state().log_level.clone()
    }

    /// Sets the least severe log message that its client wants.
    pub fn set_log_level(&self, level: &str) {
        level.clone_into(&mut self.state().log_level);
    }

    /// A number for a request of ours, and where its answer will come.
    pub fn open_ask(&self) -> (u64, oneshot::Receiver<Result<Value, RpcError>>) {
        let (sender, answer) = oneshot::channel();
        let mut state = self.state();
        state.asked += 1;
        let number = state.asked;
        state.asks.insert(number, sender);
        (number, answer)
    }

    /// Nobody waits for this answer any more.
    pub fn close_ask(&self, number: u64) {
        self.state().asks.remove(&number);
    }

    /// The client answered. An answer to nothing is ignored: the question may have been withdrawn meanwhile.
    pub fn answered(&self, id: &Id, answer: Result<Value, RpcError>) {
        let number = match id {
            Id::Number(number) => number.as_u64(),
            Id::Text(_) => None,
        };
        let waiting = number.and_then(|number| self.state().asks.remove(&number));
        if let Some(waiting) = waiting {
            // Fails when whoever asked has gone meanwhile.
            let _gone = waiting.send(answer);
        }
    }

    /// Keeps a stream for a client that loses its connection, and gives it a number.
    pub fn keep_stream(&self, stream: &Arc<Stream>) -> u64 {
        let mut state = self.state();
        state.streams_opened += 1;
        let number = state.streams_opened;
        while state.streams.len() >= STREAMS_MAX || ended_len(&state.streams) > ENDED_LEN_MAX {
            let oldest_ended = state.streams.iter().position(|(_, stream)| stream.has_ended()).unwrap_or(0);
            state.streams.remove(oldest_ended);
        }
        state.streams.push_back((number, Arc::clone(stream)));
        number
    }

    /// Its client has read a stream to its end. A large one is not kept for the case that it did not arrive.
    pub fn delivered(&self, number: u64) {
        let mut state = self.state();
        state.streams.retain(|(kept, stream)| *kept != number || stream.len() <= ENDED_LEN_MAX);
    }

    /// The stream with that number, if it is still kept.
    #[must_use]
    pub fn stream(&self, number: u64) -> Option<Arc<Stream>> {
        if number == 0 {
            return Some(Arc::clone(&self.broadcast));
        }
        self.state().streams.iter().find(|(kept, _)| *kept == number).map(|(_, stream)| Arc::clone(stream))
    }

    /// Counts an event stream that opens.
    #[must_use]
    pub fn reader(self: &Arc<Session>) -> Reader {
        self.state().readers += 1;
        Reader(Arc::clone(self))
    }

    /// Its client wants to hear of a resource.
    pub fn watch(&self, uri: &str) -> Watch {
        let mut state = self.state();
        if state.watched.contains(uri) {
            return Watch::Known;
        }
        if state.watched.len() >= WATCHED_MAX {
            return Watch::Full;
        }
        state.watched.insert(uri.to_owned());
        Watch::New
    }

    /// Its client does not want to hear of a resource any more. Says whether it did.
    pub fn unwatch(&self, uri: &str) -> bool {
        self.state().watched.remove(uri)
    }

    /// Its client wants to hear of nothing any more; what it did want to hear of.
    pub fn unwatch_all(&self) -> BTreeSet<String> {
        std::mem::take(&mut self.state().watched)
    }

    /// The notification of a piece of news, if its client wants to hear it.
    #[must_use]
    pub fn told(&self, news: &News) -> Option<String> {
        let (method, uri) = news.notification();
        match uri {
            None => Some(rpc::notification(method, &json!({}))),
            Some(uri) if self.state().watched.contains(uri) => Some(rpc::notification(method, &json!({"uri": uri}))),
            Some(_) => None,
        }
    }

    /// How many event streams it has open.
    #[must_use]
    pub fn readers(&self) -> usize {
        self.state().readers
    }

    /// Takes in a notification of the client. Those that mean nothing here are ignored.
    pub fn notified(&self, notification: &Notification) {
        match notification.method.as_str() {
            "notifications/initialized" => self.state().is_live = true,
            "notifications/cancelled" => {
                if let Some(id) = Id::named_by(notification.params.get("requestId")) {
                    self.calls.cancel(&id);
                }
            }
            _ => {}
        }
    }

    /// Whether it could be pushed out, and how gladly: those that never finished their handshake go first.
    fn idleness(&self) -> Option<bool> {
        let state = self.state();
        (state.readers == 0 && self.calls.is_empty()).then_some(state.is_live)
    }
}

/// An open event stream of a session.
#[derive(Debug)]
pub struct Reader(Arc<Session>);

impl Reader {
    /// The stream with that number was read to its end.
    pub fn delivered(&self, number: u64) {
        self.0.delivered(number);
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.0.state().readers -= 1;
    }
}

/// All sessions of one listener.
#[derive(Debug)]
pub struct Sessions {
    // One lock for the table: the tasks of all connections look sessions up, and an inbox would put one task in the
    // way of every request.
    table: Mutex<Table>,
    max: usize,
}

#[derive(Debug, Default)]
struct Table {
    sessions: HashMap<String, (u64, Arc<Session>)>,
    uses: u64,
}

/// Every session is busy: there is no room for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoRoom;

impl Sessions {
    /// A table for at most `max` sessions.
    #[must_use]
    pub fn new(max: usize) -> Sessions {
        Sessions { table: Mutex::default(), max }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a session. Gives back the one that made room for it.
    ///
    /// # Errors
    /// When the table is full of busy sessions.
    pub fn add(&self, session: Arc<Session>) -> Result<Option<Arc<Session>>, NoRoom> {
        let mut table = self.table();
        let mut evicted = None;
        if table.sessions.len() >= self.max {
            let idlest = table
                .sessions
                .values()
                .filter_map(|(used, session)| Some((session.idleness()?, *used, &session.id)))
                .min()
                .map(|(_, _, id)| id.clone())
                .ok_or(NoRoom)?;
            evicted = table.sessions.remove(&idlest).map(|(_, session)| session);
        }
        table.uses += 1;
        let used = table.uses;
        table.sessions.insert(session.id.clone(), (used, session));
        Ok(evicted)
    }

    /// The session with that id; it counts as used.
    #[must_use]
    pub fn find(&self, id: &str) -> Option<Arc<Session>> {
        let mut table = self.table();
        table.uses += 1;
        let now = table.uses;
        let (used, session) = table.sessions.get_mut(id)?;
        *used = now;
        Some(Arc::clone(session))
    }

    /// The session with that id, without counting it as used.
    #[must_use]
    pub fn peek(&self, id: &str) -> Option<Arc<Session>> {
        self.table().sessions.get(id).map(|(_, session)| Arc::clone(session))
    }

    /// Takes a session out.
    pub fn remove(&self, id: &str) -> Option<Arc<Session>> {
        self.table().sessions.remove(id).map(|(_, session)| session)
    }

    /// All of them, for what everybody is told.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<Session>> {
        self.table().sessions.values().map(|(_, session)| Arc::clone(session)).collect()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.table().sessions.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::*;

    fn session(id: &str) -> Arc<Session> {
        let client = Asker { name: "test".into(), version: "1".into(), holder: None };
        Arc::new(Session::new(id.into(), client, json!({}), "2025-11-25"))
    }

    fn live(id: &str) -> Arc<Session> {
        let session = session(id);
        session.notified(&Notification { method: "notifications/initialized".into(), params: Map::new() });
        session
    }

    fn evicted(sessions: &Sessions, new: Arc<Session>) -> Result<Option<String>, NoRoom> {
        sessions.add(new).map(|gone| gone.map(|gone| gone.id.clone()))
    }

    #[test]
    fn the_idlest_makes_room_and_half_open_ones_go_first() {
        let sessions = Sessions::new(3);
        assert_eq!(evicted(&sessions, live("old")), Ok(None));
        assert_eq!(evicted(&sessions, session("hello")), Ok(None));
        assert_eq!(evicted(&sessions, live("new")), Ok(None));
        assert_eq!(evicted(&sessions, live("a")), Ok(Some("hello".into())));
        assert!(sessions.find("old").is_some(), "a use makes it the newest");
        assert_eq!(evicted(&sessions, live("b")), Ok(Some("new".into())));
        assert_eq!(sessions.len(), 3);
    }

    #[test]
    fn a_busy_session_is_never_pushed_out() {
        let sessions = Sessions::new(2);
        let (calling, reading) = (live("calling"), live("reading"));
        calling.calls.enter(&Id::from(1), &Cancel::default()).expect("room");
        let reader = reading.reader();
        assert_eq!(evicted(&sessions, calling), Ok(None));
        assert_eq!(evicted(&sessions, reading), Ok(None));
        assert_eq!(evicted(&sessions, live("new")), Err(NoRoom));
        drop(reader);
        assert_eq!(evicted(&sessions, live("new")), Ok(Some("reading".into())));
    }

    #[test]
    fn ten_thousand_hellos_leave_the_table_at_its_bound_and_the_live_one_in_it() {
        let sessions = Sessions::new(100);
        sessions.add(live("works")).expect("room");
        for number in 0..10_000 {
            sessions.add(session(&number.to_string())).expect("room");
        }
        assert_eq!(sessions.len(), 100);
        assert!(sessions.find("works").is_some());
    }

    #[test]
    fn an_id_in_flight_is_not_taken_twice() {
        let calls = Calls::default();
        assert_eq!(calls.enter(&Id::from(1), &Cancel::default()), Ok(()));
        assert_eq!(calls.enter(&Id::from(1), &Cancel::default()), Err(NotEntered::SameId));
        assert_eq!(calls.enter(&Id::Text("1".into()), &Cancel::default()), Ok(()));
        calls.leave(&Id::from(1));
        assert_eq!(calls.enter(&Id::from(1), &Cancel::default()), Ok(()));
        for number in 2..CALLS_MAX as u64 {
            calls.enter(&Id::from(number), &Cancel::default()).expect("room");
        }
        assert_eq!(calls.enter(&Id::from(9_999), &Cancel::default()), Err(NotEntered::TooMany));
    }

    #[test]
    fn a_session_keeps_its_latest_streams() {
        let session = live("s");
        let first = Stream::for_request();
        assert_eq!(session.keep_stream(&first), 1);
        let second = Stream::for_request();
        second.end();
        assert_eq!(session.keep_stream(&second), 2);
        for number in 3..=17 {
            assert_eq!(session.keep_stream(&Stream::for_request()), number);
        }
        assert!(session.stream(1).is_some(), "an open one stays");
        assert!(session.stream(2).is_none(), "an ended one goes first");
        assert!(session.stream(0).is_some(), "the one without a request is always there");
    }

    #[tokio::test]
    async fn an_answer_reaches_whoever_asked_and_nobody_else() {
        let session = session("s");
        let (number, mut answer) = session.open_ask();
        session.answered(&Id::from(number + 1), Ok(json!(1)));
        session.answered(&Id::Text(number.to_string()), Ok(json!(2)));
        assert!(answer.try_recv().is_err());
        session.answered(&Id::from(number), Ok(json!(3)));
        assert_eq!(answer.await, Ok(Ok(json!(3))));
    }
}

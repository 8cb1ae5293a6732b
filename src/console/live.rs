//! News for open pages, as server-sent events: a page that hears "changed" fetches itself again.
//!
//! An event carries nothing but that: what a person may see is decided when the page is fetched. There are so many
//! streams and no more, each ends after a while (the browser comes back by itself), and one whose reader does not read
//! is dropped. The supervisor and the gate are asked once a second for all of them together, and only while somebody
//! looks.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use hyper::body::{Bytes, Frame};
use hyper::header::{self, HeaderValue};
use hyper::{Response, StatusCode};
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use super::Console;
use super::door::plain;
use super::visit::Visit;
use crate::control::{Told, tell};
use crate::sys::clock;

/// Streams of all people, and of one: a wall of screens has a few each, and each costs a connection.
const STREAMS_MAX: usize = 32;
const STREAMS_EACH_MAX: usize = 8;

/// How often is looked for something new.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How often a silent stream says that it is still there.
const ALIVE_EVERY: Duration = Duration::from_secs(15);

/// How long a stream lasts; the browser then opens another one.
const STREAM_MAX: Duration = Duration::from_secs(600);

/// How long a reader may take for one event.
const READ_WAIT: Duration = Duration::from_secs(10);

/// What open pages are told.
pub(super) struct Live {
    news: watch::Sender<u64>,
    // Who has how many streams open; held for a moment.
    open: Mutex<BTreeMap<String, usize>>,
}

impl Default for Live {
    fn default() -> Live {
        Live { news: watch::Sender::new(0), open: Mutex::default() }
    }
}

impl Live {
    /// Something was done here.
    pub(super) fn stir(&self) {
        self.news.send_modify(|news| *news = news.wrapping_add(1));
    }

    /// The daemon stops: every stream ends.
    pub(super) fn end(&self) {
        self.news.send_replace(u64::MAX);
    }

    fn enter(&self, name: &str) -> Result<(), &'static str> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.values().sum::<usize>() >= STREAMS_MAX {
            return Err("32 streams of events are open, and there are no more");
        }
        let own = open.entry(name.to_owned()).or_insert(0);
        if *own >= STREAMS_EACH_MAX {
            return Err("this person has 8 streams of events open, and there are no more");
        }
        *own += 1;
        Ok(())
    }

    fn leave(&self, name: &str) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = open.get_mut(name) {
            *own -= 1;
            if *own == 0 {
                open.remove(name);
            }
        }
    }

    fn is_watched(&self) -> bool {
        self.news.receiver_count() > 0
    }
}

/// Looks for something new while somebody watches.
pub(super) async fn watch(console: Arc<Console>) {
    let mut every = interval(LOOK_EVERY);
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut before = 0;
    loop {
        every.tick().await;
        super::pages::devices::forget(&console.readings, clock::now());
        if !console.live.is_watched() {
            continue;
        }
        let now = Box::pin(look(&console)).await;
        if now != before {
            before = now;
            console.live.stir();
        }
    }
}

/// What people watch for, as one number; ages and readings are not in it.
async fn look(console: &Console) -> u64 {
    let mut hash = DefaultHasher::new();
    for (verb, keys) in [
        ("ask.list", &["question"] as &[&str]),
        ("task.list", &["task", "state", "cause", "progress", "generation"]),
        ("learn.list", &["proposal", "state"]),
    ] {
        // A question that finds everybody busy is asked again in a second.
        if let Ok(Told::Many(rows)) = tell(&console.context, "console", verb, &json!({})).await {
            if verb == "task.list" {
                console.beats.note(&rows);
            }
            for row in &rows {
                keys.iter()
                    .map(|key| row.get(key).unwrap_or(&Value::Null))
                    .for_each(|value| value.to_string().hash(&mut hash));
            }
        }
    }
    hash.finish()
}

/// Opens a stream.
pub(super) fn events(console: &Arc<Console>, visit: &Visit) -> Response<Body> {
    if let Err(why) = console.live.enter(&visit.person.name) {
        let mut response = plain(StatusCode::SERVICE_UNAVAILABLE, why);
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("30"));
        return response;
    }
    let (sender, events) = mpsc::channel(2);
    let open = Open { console: Arc::clone(console), visit: visit.clone() };
    let news = console.live.news.subscribe();
    tokio::spawn(async move { tell_news(&open, news, sender).await });
    let mut response = Response::new(Body::new(Events(events)));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    response
}

/// A stream that is counted.
struct Open {
    console: Arc<Console>,
    visit: Visit,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.console.live.leave(&self.visit.person.name);
    }
}

async fn tell_news(open: &Open, mut news: watch::Receiver<u64>, sender: mpsc::Sender<Bytes>) {
    let mut people = open.console.context.people.changes();
    let mut alive = interval(ALIVE_EVERY);
    let end = Instant::now() + STREAM_MAX;
    let mut event = "retry: 3000\n\n";
    loop {
        match timeout(READ_WAIT, sender.send(Bytes::from_static(event.as_bytes()))).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) | Err(_) => return,
        }
        event = tokio::select! {
            () = sender.closed() => return,
            () = tokio::time::sleep_until(end) => return,
            changed = news.changed() => {
                if changed.is_err() || *news.borrow_and_update() == u64::MAX {
                    return;
                }
                "event: changed\ndata: 1\n\n"
            }
            changed = people.changed() => {
                // Taken out: the stream ends with the session.
                if changed.is_err() || !open.console.context.people.lets_in(&open.visit.person) {
                    return;
                }
                continue_quietly()
            }
            _ = alive.tick() => continue_quietly(),
        };
    }
}

fn continue_quietly() -> &'static str {
    ": still here\n\n"
}

/// The body of a stream.
struct Events(mpsc::Receiver<Bytes>);

impl hyper::body::Body for Events {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::convert::Infallible>>> {
        self.0.poll_recv(cx).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }
}

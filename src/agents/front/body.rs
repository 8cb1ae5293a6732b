//! The bodies of HTTP: reading one within its bounds, and writing an answer, an empty one, or an event stream.
//!
//! An event stream is a reader of a [`Stream`]; it holds nothing of its own but its place in it. When the client goes
//! away, hyper drops the body, and with it the guard that cancels the request.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Body as _, Bytes, Frame, Incoming, SizeHint};
use tokio::time::timeout;

use crate::agents::front::stream::{Next, Stream};
use crate::agents::session::{Cancel, Reader};

/// How often a silent event stream says that it is still there. Middle boxes cut what is silent for 30 s or longer.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// How long a client waits before it comes back to a stream that broke, in milliseconds.
const RETRY_MS: u32 = 1000;

/// Why a body was not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotRead {
    /// Longer than allowed.
    TooLong,
    /// Not there in time.
    TooSlow,
    /// The connection broke.
    Broken,
}

/// Reads a body of at most `len_max` bytes within `wait`.
///
/// # Errors
/// When it is longer, slower, or breaks off. What was read is dropped.
pub async fn read(mut body: Incoming, len_max: usize, wait: Duration) -> Result<Vec<u8>, NotRead> {
    let is_longer = |len: u64| usize::try_from(len).map_or(true, |len| len > len_max);
    if is_longer(body.size_hint().lower()) {
        return Err(NotRead::TooLong);
    }
    let all = async {
        let mut bytes = Vec::new();
        while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
            let Ok(frame) = frame else { return Err(NotRead::Broken) };
            if let Ok(data) = frame.into_data() {
                if bytes.len() + data.len() > len_max {
                    return Err(NotRead::TooLong);
                }
                bytes.extend_from_slice(&data);
            }
        }
        Ok(bytes)
    };
    timeout(wait, all).await.unwrap_or(Err(NotRead::TooSlow))
}

/// Cancels a request when it is dropped before the request has ended.
#[derive(Debug)]
pub struct CancelOnDrop {
    /// What it cancels.
    pub cancel: Cancel,
    /// What tells whether the request has ended.
    pub stream: Arc<Stream>,
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if !self.stream.has_ended() {
            self.cancel.cancel();
        }
    }
}

/// What an event stream holds for as long as it is open.
#[derive(Debug)]
pub enum Held {
    /// The modern era: a client that goes away cancels.
    Cancel(CancelOnDrop),
    /// The older one: a client that goes away may come back; its session is busy while it is here.
    Reader(Reader),
}

/// The body of a response.
#[derive(Debug)]
pub enum Body {
    /// None.
    Empty,
    /// All at once.
    Full(Bytes),
    /// Event by event.
    Events(Events),
}

/// An event stream.
pub struct Events {
    stream: Arc<Stream>,
    /// The number of the stream in its session, where it can be resumed.
    number: Option<u64>,
    ready: VecDeque<Bytes>,
    wait: Option<Wait>,
    from: usize,
    held: Option<Held>,
}

type Wait = Pin<Box<dyn Future<Output = Option<Next>> + Send>>;

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Events").field("number", &self.number).field("from", &self.from).finish_non_exhaustive()
    }
}

impl Events {
    /// The messages of a stream from number `from` on. With a number, each event has an id to resume after, and the
    /// first event is empty and carries one, so that even a stream that breaks at once can be resumed.
    #[must_use]
    pub fn new(stream: Arc<Stream>, number: Option<u64>, from: usize, held: Option<Held>) -> Events {
        let mut ready = VecDeque::new();
        if let Some(number) = number {
            ready.push_back(Bytes::from(format!("id: {number}.{from}\nretry: {RETRY_MS}\ndata:\n\n")));
        }
        Events { stream, number, ready, wait: None, from, held }
    }

    fn event(&self, number: usize, text: &str) -> Bytes {
        match self.number {
            Some(stream) => Bytes::from(format!("id: {stream}.{}\nevent: message\ndata: {text}\n\n", number + 1)),
            None => Bytes::from(format!("event: message\ndata: {text}\n\n")),
        }
    }
}

/// The stream and the place that an event id names.
#[must_use]
pub fn resume_after(event_id: &str) -> Option<(u64, usize)> {
    let (stream, from) = event_id.split_once('.')?;
    Some((stream.parse().ok()?, from.parse().ok()?))
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut *self {
            Body::Empty => Poll::Ready(None),
            Body::Full(bytes) => {
                let bytes = std::mem::take(bytes);
                *self = Body::Empty;
                Poll::Ready(Some(Ok(Frame::data(bytes))))
            }
            Body::Events(events) => {
                if let Some(bytes) = events.ready.pop_front() {
                    return Poll::Ready(Some(Ok(Frame::data(bytes))));
                }
                let (stream, from) = (&events.stream, events.from);
                let wait = events.wait.get_or_insert_with(|| {
                    let stream = Arc::clone(stream);
                    Box::pin(async move { timeout(KEEP_ALIVE, stream.next(from)).await.ok() })
                });
                let Poll::Ready(next) = wait.as_mut().poll(cx) else { return Poll::Pending };
                events.wait = None;
                let bytes = match next {
                    Some(Next::Message(number, text)) => {
                        events.from = number + 1;
                        events.event(number, &text)
                    }
                    Some(Next::Ended(_)) => {
                        if let (Some(Held::Reader(reader)), Some(number)) = (&events.held, events.number) {
                            reader.delivered(number);
                        }
                        events.held = None;
                        *self = Body::Empty;
                        return Poll::Ready(None);
                    }
                    None => Bytes::from_static(b": still here\n\n"),
                };
                Poll::Ready(Some(Ok(Frame::data(bytes))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Body::Empty)
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Body::Empty => SizeHint::with_exact(0),
            Body::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Body::Events(_) => SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_id_names_a_stream_and_a_place() {
        for (text, named) in [
            ("3.7", Some((3, 7))),
            ("0.0", Some((0, 0))),
            ("3", None),
            ("3.7.1", None),
            ("", None),
            ("-1.2", None),
            ("a.b", None),
        ] {
            assert_eq!(resume_after(text), named, "{text}");
        }
    }
}

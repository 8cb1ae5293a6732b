//! One buffer for the messages that belong to one request.
//!
//! Whoever works appends; whoever reads says from where, and waits for more. A JSON answer, an event stream and a
//! resumed event stream are three readers of the same buffer. The last message and "ended" are one step under one
//! lock: were they two, an answer that is ready could still open an event stream.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

/// Messages that one request may have in its buffer beside its answer. Progress and log messages beyond it are
/// dropped, and counted.
const MESSAGES_MAX: usize = 512;

/// Bytes that one request may have in its buffer beside its answer.
const BYTES_MAX: usize = 2 << 20;

/// Messages that a listener who is away finds when it comes back.
const RING_LEN: usize = 64;

/// The buffer.
#[derive(Debug)]
pub struct Stream {
    // A lock and not an owner with an inbox: the append and the check for room must be one step for the worker, and
    // the readers only copy a pointer. It is never held over a wait.
    kept: Mutex<Kept>,
    /// Counts the changes, so that a reader can wait for the next one.
    changes: watch::Sender<u64>,
    rule: Rule,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    /// Refuses what may be lost when it is full.
    Request,
    /// Forgets the oldest when it is full.
    Ring,
}

#[derive(Debug, Default)]
struct Kept {
    messages: VecDeque<Arc<str>>,
    /// The number of the oldest message that is still there.
    first: usize,
    bytes: usize,
    ended: Option<End>,
    dropped: u64,
}

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct End {
    /// The HTTP status that fits the answer, for a transport that has not sent one yet.
    pub status: u16,
    /// Whether the last message is the answer. A cancelled request has none.
    pub answered: bool,
}

/// What a reader finds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// The message with this number.
    Message(usize, Arc<str>),
    /// There will be no more.
    Ended(End),
}

/// What there is before anything was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Start {
    /// Nothing yet.
    Empty,
    /// The answer, and nothing before it.
    Answer(Arc<str>, u16),
    /// The end, without an answer.
    NoAnswer,
    /// Other messages, or more than one.
    Messages,
}

impl Stream {
    /// A buffer for one request.
    #[must_use]
    pub fn for_request() -> Arc<Stream> {
        Arc::new(Stream { kept: Mutex::default(), changes: watch::Sender::new(0), rule: Rule::Request })
    }

    /// A buffer for what belongs to no request.
    #[must_use]
    pub fn ring() -> Arc<Stream> {
        Arc::new(Stream { kept: Mutex::default(), changes: watch::Sender::new(0), rule: Rule::Ring })
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        // A panic under this lock can only have come from an allocation; the buffer is still whole.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends a message that may be lost: progress, logs, news. Says whether it was kept.
    pub fn may(&self, text: String) -> bool {
        self.append(text, true)
    }

    /// Appends a message that must not be lost: a request to the client. Only an ended buffer refuses it.
    pub fn must(&self, text: String) -> bool {
        self.append(text, false)
    }

    fn append(&self, text: String, may_be_lost: bool) -> bool {
        let mut kept = self.kept();
        let is_full = kept.messages.len() >= MESSAGES_MAX || kept.bytes.saturating_add(text.len()) > BYTES_MAX;
        match self.rule {
            Rule::Request if may_be_lost && is_full => {
                kept.dropped += 1;
                return false;
            }
            Rule::Request => {}
            Rule::Ring => {
                while kept.messages.len() >= RING_LEN {
                    kept.forget_oldest();
                }
            }
        }
        if kept.ended.is_some() {
            return false;
        }
        kept.bytes += text.len();
        kept.messages.push_back(text.into());
        drop(kept);
        self.changes.send_modify(|count| *count += 1);
        true
    }

    /// Appends the answer and ends the buffer, in one step.
    pub fn answer(&self, text: String, status: u16) {
        let mut kept = self.kept();
        if kept.ended.is_none() {
            kept.bytes += text.len();
            kept.messages.push_back(text.into());
            kept.ended = Some(End { status, answered: true });
        }
        drop(kept);
        self.changes.send_modify(|count| *count += 1);
    }

    /// Ends the buffer without an answer.
    pub fn end(&self) {
        let mut kept = self.kept();
        if kept.ended.is_none() {
            kept.ended = Some(End { status: 202, answered: false });
        }
        drop(kept);
        self.changes.send_modify(|count| *count += 1);
    }

    /// Whether it has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.kept().ended.is_some()
    }

    /// How many messages were dropped because the buffer was full.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.kept().dropped
    }

    /// How many bytes it holds.
    #[must_use]
    pub fn len(&self) -> usize {
        self.kept().bytes
    }

    /// Whether it holds nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number that the next message will get.
    #[must_use]
    pub fn next_number(&self) -> usize {
        let kept = self.kept();
        kept.first + kept.messages.len()
    }

    /// What there is now.
    #[must_use]
    pub fn start(&self) -> Start {
        let kept = self.kept();
        match (&kept.ended, kept.messages.front(), kept.messages.len()) {
            (None, None, _) => Start::Empty,
            (Some(End { answered: true, status }), Some(answer), 1) if kept.first == 0 => {
                Start::Answer(Arc::clone(answer), *status)
            }
            (Some(End { answered: false, .. }), None, _) => Start::NoAnswer,
            _ => Start::Messages,
        }
    }

    /// Waits until there is anything.
    pub async fn begun(&self) {
        self.wait(|stream| (stream.start() != Start::Empty).then_some(())).await;
    }

    /// The message with the number `from`, or the oldest after it that is still there; waits for it if need be.
    pub async fn next(&self, from: usize) -> Next {
        self.wait(|stream| stream.look(from)).await
    }

    fn look(&self, from: usize) -> Option<Next> {
        let kept = self.kept();
        let number = from.max(kept.first);
        match kept.messages.get(number - kept.first) {
            Some(text) => Some(Next::Message(number, Arc::clone(text))),
            None => kept.ended.map(Next::Ended),
        }
    }

    async fn wait<T>(&self, look: impl Fn(&Stream) -> Option<T>) -> T {
        let mut changes = self.changes.subscribe();
        loop {
            changes.mark_unchanged();
            if let Some(found) = look(self) {
                return found;
            }
            if changes.changed().await.is_err() {
                // The sender lives in `self`, which we borrow: it cannot be gone.
                std::future::pending::<()>().await;
            }
        }
    }
}

impl Kept {
    fn forget_oldest(&mut self) {
        if let Some(oldest) = self.messages.pop_front() {
            self.first += 1;
            self.bytes -= oldest.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(number: usize, text: &str) -> Next {
        Next::Message(number, text.into())
    }

    #[tokio::test]
    async fn an_answer_that_is_ready_is_an_answer_and_not_a_stream() {
        let stream = Stream::for_request();
        assert_eq!(stream.start(), Start::Empty);
        stream.answer("done".into(), 200);
        assert_eq!(stream.start(), Start::Answer("done".into(), 200));
        assert_eq!(stream.next(0).await, message(0, "done"));
        assert_eq!(stream.next(1).await, Next::Ended(End { status: 200, answered: true }));
    }

    #[tokio::test]
    async fn what_comes_before_the_answer_opens_a_stream() {
        let stream = Stream::for_request();
        assert!(stream.may("half".into()));
        stream.answer("done".into(), 200);
        assert_eq!(stream.start(), Start::Messages);
        assert_eq!(stream.next(0).await, message(0, "half"));
        assert_eq!(stream.next(1).await, message(1, "done"));
    }

    #[tokio::test]
    async fn a_waiting_reader_is_woken() {
        let stream = Stream::for_request();
        let reader = tokio::spawn({
            let stream = Arc::clone(&stream);
            async move { stream.next(0).await }
        });
        assert!(stream.must("ask".into()));
        assert_eq!(reader.await.expect("the reader"), message(0, "ask"));
    }

    #[tokio::test]
    async fn a_full_buffer_loses_progress_and_never_the_answer() {
        let stream = Stream::for_request();
        for _ in 0..MESSAGES_MAX {
            assert!(stream.may("p".into()));
        }
        assert!(!stream.may("one too many".into()));
        assert!(stream.must("ask".into()));
        stream.answer("done".into(), 200);
        assert_eq!(stream.dropped(), 1);
        assert_eq!(stream.next(MESSAGES_MAX + 1).await, message(MESSAGES_MAX + 1, "done"));
        assert!(!stream.must("late".into()), "nothing follows the answer");
    }

    #[tokio::test]
    async fn a_ring_forgets_the_oldest() {
        let ring = Stream::ring();
        for number in 0..=RING_LEN {
            assert!(ring.may(number.to_string()));
        }
        assert_eq!(ring.next(0).await, message(1, "1"));
        assert_eq!(ring.next_number(), RING_LEN + 1);
    }

    #[tokio::test]
    async fn a_cancelled_request_ends_without_an_answer() {
        let stream = Stream::for_request();
        stream.end();
        assert_eq!(stream.start(), Start::NoAnswer);
        stream.answer("late".into(), 200);
        assert_eq!(stream.next(0).await, Next::Ended(End { status: 202, answered: false }));
    }
}

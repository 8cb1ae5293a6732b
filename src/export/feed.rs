//! What the receivers of the log share: where one stands, which rows come next, and when a lost one is tried again.
//!
//! A feed never says that a row has arrived: only the receiver's own word does, and whoever heard it tells the outbox.
//! What is read here is read beside the writer, in batches with a bound, and read again when it did not arrive.

use std::sync::Arc;
use std::time::Duration;

use interlock_domain::id::Seq;
use interlock_domain::request::shown::plain;
use interlock_domain::time::Wall;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

use super::outbox::{Gap, Missing, Outbox};
use super::told;
use crate::engine::keeper::{Keeper, Position};
use crate::engine::log::{Acks, Error, Health, Log, Query};
use crate::record::{Recorded, rfc3339};
use crate::sys::clock;

/// How long the end of the daemon waits for the position to be kept.
const LAST_PATIENCE: Duration = Duration::from_secs(2);

/// How soon a position that could not be read is asked for again.
const REMEMBER_AGAIN: Duration = Duration::from_secs(10);

/// The longest wait that a receiver's `retry-after` is believed.
const ASKED_FOR_MAX: Duration = Duration::from_secs(600);

/// The longest reason that is kept and shown, in characters: it was said by the other side.
const WHY_LEN_MAX: usize = 200;

/// How it goes with one receiver.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Standing {
    /// The receiver is there.
    pub connected: bool,
    /// What has not arrived and still may: rows, or messages.
    pub waiting: u64,
    /// What was left out, over all time.
    pub dropped: u64,
    /// What arrived since the start.
    pub arrived: u64,
    /// Connections since the start; of a receiver without a connection, how often it was reached after it was not.
    pub connections: u64,
    /// When something last arrived, since the start.
    pub last_success: Option<Wall>,
    /// What last went wrong, since the start, and when.
    pub last_error: Option<(Wall, Arc<str>)>,
}

impl Standing {
    /// For `status` and for scripts.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let error = self.last_error.as_ref().map(|(at, why)| json!({ "at": rfc3339(*at), "why": &**why }));
        json!({
            "connected": self.connected,
            "waiting": self.waiting,
            "dropped": self.dropped,
            "arrived": self.arrived,
            "connections": self.connections,
            "last_success": self.last_success.map(rfc3339),
            "last_error": error,
        })
    }

    /// So much has arrived.
    pub(super) fn arrived(&mut self, count: u64) {
        self.arrived += count;
        self.last_success = Some(clock::wall());
    }

    /// The receiver was reached.
    pub(super) fn reached(&mut self) {
        if !self.connected {
            self.connections += 1;
        }
        self.connected = true;
    }

    /// It went wrong; true where the reason is another than the last one. A receiver that is away for a week is told of
    /// once.
    pub(super) fn failed(&mut self, why: &str) -> bool {
        let why = plain(why, WHY_LEN_MAX);
        let is_new = self.last_success > self.last_error.as_ref().map(|(at, _)| *at)
            || self.last_error.as_ref().is_none_or(|(_, last)| **last != *why);
        (self.connected, self.last_error) = (false, Some((clock::wall(), why.into())));
        is_new
    }
}

/// One receiver by its name, and how it goes.
#[derive(Debug, Clone)]
pub struct Receiver {
    /// Its name: `mqtt`, `otlp`, `webhook`.
    pub sink: &'static str,
    /// How it goes.
    pub standing: watch::Receiver<Standing>,
}

impl Receiver {
    /// One that cannot be set up, and why.
    #[must_use]
    pub fn left_out(sink: &'static str, why: &str) -> Receiver {
        let mut standing = Standing::default();
        standing.failed(why);
        Receiver { sink, standing: watch::channel(standing).1 }
    }
}

/// How long to wait before a receiver that was not reached is tried again: longer each time, within a bound.
#[derive(Debug)]
pub(super) struct Backoff {
    first: Duration,
    last: Duration,
    next: Duration,
}

impl Backoff {
    pub(super) fn new(first: Duration, last: Duration) -> Backoff {
        Backoff { first, last, next: first }
    }

    /// It went well: the next failure begins anew.
    pub(super) fn went_well(&mut self) {
        self.next = self.first;
    }

    /// It did not; gives how long to wait. A receiver that asks to be left alone for longer is left alone, within a
    /// bound of its own.
    pub(super) fn wait(&mut self, asked_for: Option<Duration>) -> Duration {
        let wait = self.next;
        self.next = (self.next * 2).min(self.last);
        wait.max(asked_for.unwrap_or_default().min(ASKED_FOR_MAX))
    }
}

/// What comes next for a receiver.
#[derive(Debug)]
pub(super) enum Next {
    /// Rows without a hole, that follow what was read before.
    Rows(Vec<Recorded>),
    /// Rows that it will not get; to be told before anything else is read.
    Gap(Gap),
    /// It has all that there is.
    Nothing,
    /// The log cannot be read now.
    Later,
}

/// What a feed works with.
pub(super) struct Parts {
    /// The receiver's name among the positions.
    pub(super) sink: &'static str,
    pub(super) log: Log,
    pub(super) keeper: Keeper,
    pub(super) acks: watch::Receiver<Acks>,
    pub(super) stop: watch::Receiver<bool>,
    /// Rows that wait, at most.
    pub(super) backlog_max: u64,
}

/// The log, as one receiver gets it.
pub(super) struct Feed {
    parts: Parts,
    pub(super) outbox: Outbox,
    kept: Position,
    pub(super) standing: watch::Sender<Standing>,
}

impl Feed {
    pub(super) fn new(parts: Parts) -> (Feed, Receiver) {
        let (sender, standing) = watch::channel(Standing::default());
        let receiver = Receiver { sink: parts.sink, standing };
        let outbox = Outbox::new(Position::BEGINNING, parts.backlog_max);
        (Feed { parts, outbox, kept: Position::BEGINNING, standing: sender }, receiver)
    }

    /// The sign that the daemon stops.
    pub(super) fn stop(&self) -> watch::Receiver<bool> {
        self.parts.stop.clone()
    }

    /// The log, for what is not told row by row.
    pub(super) fn log(&self) -> &Log {
        &self.parts.log
    }

    /// Waits for the next commit; false when there will be none.
    pub(super) async fn committed(&mut self) -> bool {
        self.parts.acks.changed().await.is_ok()
    }

    /// Where the last life stood; false when the daemon stops. Without it nothing can be sent in order; the disk may
    /// come back.
    pub(super) async fn remember(&mut self) -> bool {
        let sink = self.parts.sink;
        loop {
            match self.parts.keeper.with(move |state| state.position(sink)).await {
                Ok(position) => {
                    (self.outbox, self.kept) = (Outbox::new(position, self.parts.backlog_max), position);
                    return true;
                }
                Err(error) => tracing::error!(%error, sink, "the position of the export cannot be read"),
            }
            if self.stopped_within(REMEMBER_AGAIN).await {
                return false;
            }
        }
    }

    /// Waits, and counts what comes meanwhile; true when the daemon stops.
    pub(super) async fn stopped_within(&mut self, time: Duration) -> bool {
        let until = Instant::now() + time;
        let mut stop = self.stop();
        loop {
            tokio::select! {
                () = told(&mut stop) => return true,
                () = tokio::time::sleep_until(until) => return false,
                Ok(()) = self.parts.acks.changed() => self.tell(),
            }
        }
    }

    /// The last row that may be told. A log that began anew has lower numbers than the position.
    pub(super) fn last(&mut self) -> Seq {
        let acks = *self.parts.acks.borrow_and_update();
        if acks.seq < self.outbox.position().seq && acks.health == Health::Writing {
            tracing::warn!(sink = self.parts.sink, "the evidence log began anew: it is exported from its beginning");
            self.outbox.begin_anew();
        }
        acks.seq
    }

    /// Counts what waits and what was left out.
    pub(super) fn tell(&mut self) {
        let last = self.last();
        let now = (self.outbox.waiting(last), self.outbox.dropped(last));
        self.standing.send_if_modified(|standing| {
            let before = (standing.waiting, standing.dropped);
            (standing.waiting, standing.dropped) = now;
            before != now
        });
    }

    /// The receiver is not reached.
    pub(super) fn failed(&mut self, receiver: &str, why: &str) {
        let mut is_new = false;
        self.standing.send_modify(|standing| is_new = standing.failed(why));
        if is_new {
            let sink = self.parts.sink;
            tracing::warn!(kind = "EXPORT_CUT", sink, receiver, "not reached; rows wait in the log: {why}");
        }
        self.tell();
    }

    /// Keeps the position, if it moved. When the keeper is busy, the next turn does it.
    pub(super) fn keep(&mut self) {
        let (sink, position, at) = (self.parts.sink, self.outbox.position(), clock::wall());
        if position != self.kept
            && self.parts.keeper.later(move |state| state.keep_position(sink, position, at)).is_ok()
        {
            self.kept = position;
        }
    }

    /// Keeps the position at the end of the daemon.
    pub(super) async fn end(&mut self) {
        let (sink, position, at) = (self.parts.sink, self.outbox.position(), clock::wall());
        let kept = self.parts.keeper.with(move |state| state.keep_position(sink, position, at));
        if !matches!(tokio::time::timeout(LAST_PATIENCE, kept).await, Ok(Ok(()))) {
            tracing::warn!(sink, "the position of the export was not kept: some rows will be sent again");
        }
    }

    /// Reads what comes next, at most so many rows.
    pub(super) async fn next(&mut self, limit: usize) -> Next {
        let last = self.last();
        if let Some(gap) = self.outbox.too_many(last) {
            return Next::Gap(gap);
        }
        let after = self.outbox.read();
        if after >= last {
            return Next::Nothing;
        }
        match self.read_after(after, limit).await {
            Ok(rows) => self.without_hole(rows, last),
            Err(Error::Row { seq, .. }) if seq.unsigned_abs() > after.0 => {
                let bad = Seq(seq.unsigned_abs());
                let before = usize::try_from(bad.0.saturating_sub(after.0 + 1)).unwrap_or(limit).min(limit);
                let rows = if before == 0 { Ok(Vec::new()) } else { self.read_after(after, before).await };
                match rows {
                    Ok(rows) if !rows.is_empty() => self.without_hole(rows, last),
                    // It stands there and says nothing: it is told as missing, and what follows goes on.
                    Ok(_) | Err(Error::Row { .. }) => {
                        Next::Gap(Gap { first: Seq(after.0 + 1), last: bad, why: Missing::Unreadable })
                    }
                    Err(error) => self.read_later(&error),
                }
            }
            Err(error) => self.read_later(&error),
        }
    }

    fn without_hole(&self, mut rows: Vec<Recorded>, last: Seq) -> Next {
        let first = self.outbox.read().0 + 1;
        let whole = rows.iter().zip(first..).take_while(|(row, seq)| row.seq.0 == *seq && row.seq <= last).count();
        match rows.first() {
            Some(row) if whole == 0 && row.seq <= last => {
                self.outbox.missing_before(row.seq).map_or(Next::Nothing, Next::Gap)
            }
            None | Some(_) if whole == 0 => Next::Nothing,
            None | Some(_) => {
                rows.truncate(whole);
                Next::Rows(rows)
            }
        }
    }

    /// What fails now may go later: nothing is left out for it.
    fn read_later(&self, error: &Error) -> Next {
        let sink = self.parts.sink;
        tracing::warn!(%error, sink, "the evidence log cannot be read for the export; it is tried again");
        Next::Later
    }

    async fn read_after(&self, after: Seq, limit: usize) -> Result<Vec<Recorded>, Error> {
        self.parts.log.query(Query { after: Some(after), limit: Some(limit), ..Query::default() }).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receiver_that_stays_away_is_asked_less_and_less_often_within_a_bound() {
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(10));
        let mut wait = |asked: Option<u64>| backoff.wait(asked.map(Duration::from_secs)).as_secs();
        assert_eq!([wait(None), wait(None), wait(None), wait(None), wait(None)], [1, 2, 4, 8, 10]);
        assert_eq!([wait(Some(100)), wait(Some(3600))], [100, 600]);
        backoff.went_well();
        assert_eq!([backoff.wait(None).as_secs(), backoff.wait(Some(Duration::from_secs(7))).as_secs()], [1, 7]);
    }

    #[test]
    fn the_same_reason_is_told_once_until_it_went_well() {
        let mut standing = Standing::default();
        assert_eq!([standing.failed("a"), standing.failed("a"), standing.failed("b")], [true, false, true]);
        standing.reached();
        standing.last_success = Some(Wall(clock::wall().0 + 1));
        assert!(standing.failed("b") && !standing.connected);
        assert_eq!(standing.connections, 1);
    }
}

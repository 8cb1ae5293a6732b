//! OTLP over HTTP with JSON: the log to an existing collector, as records, and its runs as traces.
//!
//! The position is moved only by the collector's 2xx for all that a batch holds, records and spans. What it says to
//! have rejected of a batch that it took is counted as left out and not sent again (OTLP, "Partial Success"). Other
//! than the specification has it, an answer such as 401 or 404 loses nothing: a token that ran out must not cost rows.

mod form;
mod spans;

use std::time::Duration;

use interlock_domain::id::Seq;
use interlock_domain::request::shown::plain;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;

use super::feed::{self, Backoff, Feed, Next, Receiver, Standing};
use super::outbox::Gap;
use super::pace::Pace;
use super::{post, told};
use crate::engine::keeper::Keeper;
use crate::engine::log::{Acks, Log, Query};
use crate::record::Recorded;
use crate::sys::{clock, machine};
use spans::Spans;

/// The name of this receiver among the positions.
const SINK: &str = "otlp";

/// Where each of the two goes, below the configured address.
const LOGS: &str = "/v1/logs";
const TRACES: &str = "/v1/traces";

/// Rows of one batch, and what they may weigh together in bytes: far below what a collector takes (20 MiB), and all
/// that is held here at once.
const BATCH_MAX: usize = 128;
const BATCH_WEIGHT_MAX: usize = 256 * 1024;

/// After so many rows without a pause, what the allocator holds back is given to the system: a backlog is rare, and its
/// memory would stay for good.
const TRIM_AFTER: u64 = 10_000;

/// Rows come in crowds: so long they are left to gather.
const GATHER: Duration = Duration::from_millis(200);

/// How long after a failure the next attempt follows: at first, and at last.
const RETRY: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(60);

/// How often the position is kept while rows arrive. A kill in between repeats rows.
const UPKEEP: Duration = Duration::from_secs(1);

/// Rows before the position that are read at the start, so that what is under way has its beginning.
const LOOK_BACK: u64 = 4_096;

/// How the collector is reached, and what it is told.
#[derive(Clone)]
pub struct Settings {
    /// Where.
    pub post: post::Settings,
    /// What this box is called.
    pub device: String,
    /// Rows of the past in a second.
    pub rate: u32,
    /// Rows that wait, at most.
    pub backlog_max: u64,
}

/// What the exporter works with.
pub struct Parts {
    /// How the collector is reached.
    pub settings: Settings,
    /// The log.
    pub log: Log,
    /// Where the position is kept.
    pub keeper: Keeper,
    /// What is durable.
    pub acks: watch::Receiver<Acks>,
    /// The daemon stops.
    pub stop: watch::Receiver<bool>,
}

/// One collector.
pub struct Exporter {
    settings: Settings,
    receiver: post::Receiver,
    feed: Feed,
    spans: Spans,
    /// Rows of a batch; fewer after the collector found one too large.
    limit: usize,
    /// Rows that were sent without a pause.
    since_rest: u64,
}

/// What is sent together.
struct Batch {
    /// The names that the outbox gave to what is in it.
    flights: Vec<u64>,
    rows: u64,
    /// The requests that are still to be taken.
    logs: Option<String>,
    traces: Option<String>,
}

/// What became of a request.
enum Sent {
    Taken,
    /// It was read, and is too large or not right as a whole.
    Refused(String),
    Failed(String, Option<Duration>),
}

impl Exporter {
    /// An exporter, which the caller runs, and how it goes.
    ///
    /// # Errors
    /// When the HTTP client cannot be set up.
    pub fn new(parts: Parts) -> Result<(Exporter, Receiver), String> {
        let Parts { settings, log, keeper, acks, stop } = parts;
        let collector = post::Receiver::new(&settings.post)?;
        let backlog_max = settings.backlog_max;
        let (feed, receiver) = Feed::new(feed::Parts { sink: SINK, log, keeper, acks, stop, backlog_max });
        let exporter =
            Exporter { settings, receiver: collector, feed, spans: Spans::default(), limit: BATCH_MAX, since_rest: 0 };
        Ok((exporter, receiver))
    }

    /// Runs until the daemon stops.
    pub async fn run(mut self) {
        if !self.feed.remember().await {
            return;
        }
        self.look_back().await;
        let mut stop = self.feed.stop();
        let past = self.feed.last();
        let mut pace = Pace::even(self.settings.rate, clock::now());
        let mut kept_at = Instant::now();
        loop {
            let is_over = tokio::select! {
                () = told(&mut stop) => true,
                is_over = self.turn(past, &mut pace) => is_over,
            };
            // What was under way has not arrived, whatever became of it.
            self.feed.outbox.link_ended();
            if is_over {
                break;
            }
            if kept_at.elapsed() >= UPKEEP {
                self.feed.keep();
                kept_at = Instant::now();
            }
        }
        self.feed.end().await;
    }

    /// One batch, until the collector has it; true when there will be none any more.
    async fn turn(&mut self, past: Seq, pace: &mut Pace) -> bool {
        match self.feed.next(self.limit).await {
            Next::Rows(rows) => {
                let rows = within(rows);
                for _ in rows.iter().filter(|row| row.seq <= past) {
                    while let Err(pause) = pace.take(clock::now()) {
                        tokio::time::sleep_until(Instant::now() + pause).await;
                    }
                }
                let batch = self.batch(&rows);
                self.deliver(batch, &rows).await
            }
            Next::Gap(gap) => {
                let batch = self.gap(&gap);
                self.deliver(batch, &[]).await
            }
            Next::Nothing => {
                self.feed.keep();
                if std::mem::take(&mut self.since_rest) >= TRIM_AFTER {
                    machine::give_memory_back();
                }
                let goes_on = self.feed.committed().await;
                tokio::time::sleep_until(Instant::now() + GATHER).await;
                self.feed.tell();
                !goes_on
            }
            Next::Later => self.feed.stopped_within(RETRY).await,
        }
    }

    /// The beginnings of what was under way when the last life ended.
    async fn look_back(&mut self) {
        self.spans = Spans::default();
        let position = self.feed.outbox.position().seq;
        let mut after = Seq(position.0.saturating_sub(LOOK_BACK));
        while after < position {
            let query = Query { after: Some(after), limit: Some(BATCH_MAX), ..Query::default() };
            let Ok(rows) = self.feed.log().query(query).await else { return };
            let Some(last) = rows.last().map(|row| row.seq) else { return };
            for row in rows.iter().filter(|row| row.seq <= position) {
                // It was sent already.
                let _sent = self.spans.follow(row);
            }
            after = last;
        }
    }

    fn batch(&mut self, rows: &[Recorded]) -> Batch {
        let observed = clock::wall();
        let records = rows.iter().map(|row| form::record(row, observed));
        let spans: Vec<Value> = rows.iter().filter_map(|row| self.spans.follow(row)).collect();
        let device = &self.settings.device;
        Batch {
            flights: rows.iter().map(|row| self.feed.outbox.send(row.seq)).collect(),
            rows: u64::try_from(rows.len()).unwrap_or(u64::MAX),
            logs: Some(form::logs(device, records)),
            traces: (!spans.is_empty()).then(|| form::traces(device, spans)),
        }
    }

    fn gap(&mut self, gap: &Gap) -> Batch {
        let (first, last, why) = (gap.first.0, gap.last.0, gap.why.word());
        tracing::warn!(kind = "EXPORT_GAP", sink = SINK, first, last, why, "rows are not exported");
        let record = form::gap(gap, clock::wall());
        let logs = Some(form::logs(&self.settings.device, [record]));
        Batch { flights: vec![self.feed.outbox.send_gap(gap)], rows: 0, logs, traces: None }
    }

    /// Sends until it is taken, or given up; true when the daemon stops.
    async fn deliver(&mut self, mut batch: Batch, rows: &[Recorded]) -> bool {
        let mut backoff = Backoff::new(RETRY, RETRY_MAX);
        loop {
            let (path, body) = match (&batch.logs, &batch.traces) {
                (Some(logs), _) => (LOGS, logs),
                (None, Some(traces)) => (TRACES, traces),
                (None, None) => break,
            };
            match self.send(path, body.clone()).await {
                Sent::Taken => {
                    self.feed.standing.send_modify(Standing::reached);
                    backoff.went_well();
                }
                // Fewer at once: which of them it is will show.
                Sent::Refused(_) if path == LOGS && rows.len() > 1 => {
                    self.limit = rows.len() / 2;
                    // They are read again, and what is under way with them.
                    self.look_back().await;
                    return false;
                }
                Sent::Refused(why) => {
                    self.give_up(path, rows.len(), &why);
                }
                Sent::Failed(why, asked_for) => {
                    let url = self.settings.post.url.clone();
                    self.feed.failed(&url, &why);
                    if self.feed.stopped_within(backoff.wait(asked_for)).await {
                        return true;
                    }
                    continue;
                }
            }
            if path == LOGS {
                batch.logs = None;
            } else {
                batch.traces = None;
            }
        }
        batch.flights.iter().for_each(|flight| self.feed.outbox.arrived(*flight));
        self.feed.standing.send_modify(|standing| standing.arrived(batch.rows));
        self.since_rest += batch.rows;
        self.limit = (self.limit * 2).min(BATCH_MAX);
        self.feed.tell();
        false
    }

    /// The collector will never take it.
    fn give_up(&mut self, path: &str, rows: usize, why: &str) {
        tracing::error!(kind = "EXPORT_REFUSED", sink = SINK, path, "{why}");
        if path == LOGS {
            self.feed.outbox.rejected(u64::try_from(rows).unwrap_or(u64::MAX));
        }
        self.feed.standing.send_modify(|standing| {
            standing.failed(why);
            standing.reached();
        });
    }

    async fn send(&mut self, path: &str, body: String) -> Sent {
        let answer = match self.receiver.post(path, &[], body).await {
            Ok(answer) => answer,
            Err(why) => return Sent::Failed(why, None),
        };
        match answer.status {
            200..=299 => {
                if let Some((count, why)) = form::rejected(&answer.body) {
                    let why = plain(&format!("took all but {count}: {why}"), 200);
                    tracing::error!(kind = "EXPORT_REFUSED", sink = SINK, path, "{why}");
                    if path == LOGS {
                        self.feed.outbox.rejected(count);
                    }
                    self.feed.standing.send_modify(|standing| {
                        standing.failed(&why);
                    });
                }
                Sent::Taken
            }
            status @ (400 | 413 | 422) => Sent::Refused(format!("{path} refused with {status}: {}", answer.told())),
            status => Sent::Failed(format!("{path} answered {status}: {}", answer.told()), answer.retry_after),
        }
    }
}

/// As many of the rows as are not too heavy together; the first in any case.
fn within(mut rows: Vec<Recorded>) -> Vec<Recorded> {
    let mut weight = 0;
    let fit = rows.iter().take_while(|row| {
        weight += row.row.weight();
        weight <= BATCH_WEIGHT_MAX
    });
    let count = fit.count().max(1);
    rows.truncate(count);
    rows
}

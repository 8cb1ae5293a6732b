//! Counts what happened, out of the rows of the log.
//!
//! Counted behind the writer, in batches and never faster than they are read: nobody who acts has to count. The counts
//! begin at zero with the process, as those of every program that is scraped do.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use interlock_domain::id::{CallId, Seq};
use interlock_domain::time::Wall;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;

use super::super::told;
use crate::engine::log::{Acks, Error, Log, Query};
use crate::record::{Recorded, Row};

/// Rows come in crowds: so long they are left to gather.
const GATHER: Duration = Duration::from_millis(200);

/// Rows that are read at once.
const READ_MAX: usize = 256;

/// Further behind than this, the rows between are not counted but told as skipped.
const BEHIND_MAX: u64 = 50_000;

/// Calls under way whose device is remembered, and devices that are told of.
const CALLS_MAX: usize = 4_096;
const DEVICES_MAX: usize = 512;

/// What was counted since the start.
#[derive(Debug, Clone, Default)]
pub(super) struct Tally {
    /// Calls, by what the gate said: `allow`, `ask`, `deny`.
    pub(super) decisions: BTreeMap<&'static str, u64>,
    /// Calls that ended, by how.
    pub(super) outcomes: BTreeMap<String, u64>,
    /// Answers to questions, by which.
    pub(super) answers: BTreeMap<String, u64>,
    /// Tasks that came into a state.
    pub(super) states: BTreeMap<String, u64>,
    /// Sentences, by what was made of them.
    pub(super) heard: BTreeMap<String, u64>,
    /// Rows of the log.
    pub(super) rows: u64,
    /// Rows that were not looked at.
    pub(super) skipped: u64,
    /// When each device last answered.
    pub(super) devices: BTreeMap<String, Wall>,
    calls: BTreeMap<CallId, String>,
}

impl Tally {
    fn count(&mut self, row: &Row) {
        self.rows += 1;
        match row.kind.as_ref() {
            "requested" => self.remember(row),
            "permitted" => *self.decisions.entry("allow").or_default() += 1,
            "asked" => *self.decisions.entry("ask").or_default() += 1,
            "answered" => add(&mut self.answers, row.to.as_deref()),
            "settled" => {
                add(&mut self.outcomes, row.to.as_deref());
                let detail = row.detail.as_deref().unwrap_or_default();
                // The gate's no is the end of a call that was not started.
                if row.to.as_deref() == Some("not_started") && detail.contains("\"denied\":true") {
                    *self.decisions.entry("deny").or_default() += 1;
                }
                let device = row.call.and_then(|call| self.calls.remove(&call));
                if let (Some("done"), Some(device)) = (row.to.as_deref(), device)
                    && (self.devices.len() < DEVICES_MAX || self.devices.contains_key(&device))
                {
                    self.devices.insert(device, row.at.wall);
                }
            }
            "heard" => add(&mut self.heard, row.to.as_deref()),
            _ if row.task.is_some() && row.from != row.to => add(&mut self.states, row.to.as_deref()),
            _ => {}
        }
    }

    /// Which device a call is about.
    fn remember(&mut self, row: &Row) {
        let detail = row.detail.as_deref().unwrap_or_default();
        let (Some(call), true) = (row.call, detail.contains("\"tool\":\"device\"")) else { return };
        let detail: Value = serde_json::from_str(detail).unwrap_or_default();
        if let Some(device) = detail["input"]["device"].as_str() {
            if self.calls.len() >= CALLS_MAX {
                self.calls.pop_first();
            }
            self.calls.insert(call, device.to_owned());
        }
    }
}

fn add(counts: &mut BTreeMap<String, u64>, word: Option<&str>) {
    if let Some(word) = word {
        *counts.entry(word.to_owned()).or_default() += 1;
    }
}

/// Follows the log.
pub struct Counter {
    log: Log,
    acks: watch::Receiver<Acks>,
    stop: watch::Receiver<bool>,
    tally: watch::Sender<Arc<Tally>>,
}

impl Counter {
    pub(super) fn new(
        log: Log,
        acks: watch::Receiver<Acks>,
        stop: watch::Receiver<bool>,
    ) -> (Counter, watch::Receiver<Arc<Tally>>) {
        let (tally, counted) = watch::channel(Arc::default());
        (Counter { log, acks, stop, tally }, counted)
    }

    /// Counts until the daemon stops.
    pub async fn run(mut self) {
        let mut stop = self.stop.clone();
        let mut tally = Tally::default();
        let mut read = self.acks.borrow_and_update().seq;
        loop {
            tokio::select! {
                () = told(&mut stop) => return,
                changed = self.acks.changed() => if changed.is_err() {
                    return;
                },
            }
            tokio::time::sleep_until(Instant::now() + GATHER).await;
            let last = self.acks.borrow_and_update().seq;
            self.follow(&mut tally, &mut read, last).await;
            self.tally.send_replace(Arc::new(tally.clone()));
        }
    }

    async fn follow(&self, tally: &mut Tally, read: &mut Seq, last: Seq) {
        let behind = last.0.saturating_sub(read.0);
        if behind > BEHIND_MAX {
            tally.skipped += behind - BEHIND_MAX;
            *read = Seq(last.0 - BEHIND_MAX);
        }
        while *read < last {
            let query = Query { after: Some(*read), limit: Some(READ_MAX), ..Query::default() };
            let rows = match self.log.query(query).await {
                Ok(rows) => rows,
                // It will not be readable later either: it and those just before it are told as not looked at.
                Err(Error::Row { seq, .. }) if seq.unsigned_abs() > read.0 => {
                    tally.skipped += seq.unsigned_abs() - read.0;
                    *read = Seq(seq.unsigned_abs());
                    continue;
                }
                Err(error) => {
                    // The next commit tries again; what is too far behind by then is skipped and told.
                    tracing::warn!(%error, "the evidence log cannot be read for the metrics");
                    return;
                }
            };
            let Some(newest) = rows.last().map(|recorded| recorded.seq) else { return };
            rows.iter().for_each(|Recorded { row, .. }| tally.count(row));
            *read = newest;
        }
    }
}

#[cfg(test)]
mod tests {
    use interlock_domain::id::TaskId;
    use interlock_domain::time::Tick;
    use serde_json::json;

    use super::*;
    use crate::record::{Stamp, TimeQuality};

    #[test]
    fn calls_are_counted_by_decision_and_outcome_and_a_device_by_its_last_answer() {
        let at = |wall| Stamp { mono: Tick(0), boottime_ns: 0, wall: Wall(wall), quality: TimeQuality::Synced };
        let call: CallId = "01KBA6AK800000000000000007.3.1".parse().unwrap();
        let of = |kind: &'static str, to: Option<&'static str>, detail: Value| Row {
            to: to.map(Into::into),
            ..Row::new(at(7), kind).of_call(call).detailed(&detail)
        };
        let zombie = Row {
            task: Some(TaskId(1)),
            from: Some("RUNNING".into()),
            to: Some("ZOMBIE".into()),
            ..Row::new(at(8), "state")
        };
        let mut tally = Tally::default();
        for row in [
            of("requested", None, json!({ "tool": "device", "input": { "device": "pump-1" } })),
            of("permitted", None, json!({})),
            of("settled", Some("done"), json!({ "output": {} })),
            of("settled", Some("done"), json!({ "output": {} })),
            of("settled", Some("not_started"), json!({ "denied": true })),
            of("settled", Some("not_started"), json!({ "denied": false })),
            of("asked", Some("permit"), json!({})),
            of("answered", Some("allow"), json!({})),
            zombie,
        ] {
            tally.count(&row);
        }
        assert_eq!(tally.decisions, [("allow", 1), ("ask", 1), ("deny", 1)].into());
        assert_eq!(tally.outcomes, [("done".to_owned(), 2), ("not_started".to_owned(), 2)].into());
        assert_eq!(tally.answers, [("allow".to_owned(), 1)].into());
        assert_eq!(tally.states, [("ZOMBIE".to_owned(), 1)].into());
        assert_eq!((tally.rows, tally.devices), (9, [("pump-1".to_owned(), Wall(7))].into()));
    }
}

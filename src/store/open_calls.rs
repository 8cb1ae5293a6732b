//! Which calls have no end yet, and where their rows are: what the next start must repair.
//!
//! Kept in memory by the writer and written down with the boot row, with a mark every few thousand rows and in the
//! header of each segment. A start reads the last of these and what follows it, instead of the whole log.

use std::collections::BTreeMap;

use interlock_domain::id::{CallId, Seq};
use serde_json::Value;

use crate::record::{Bearing, Row, kind};

/// Most rows that are remembered of one open call. A call writes about ten; one that writes thousands keeps its
/// first and its last ones.
const ROWS_MAX: usize = 64;

/// Most calls that are remembered. Admission keeps far fewer open; one that forgets to settle must not make every
/// resting point larger for ever. The oldest are forgotten.
const CALLS_MAX: usize = 8_192;

/// Open calls with the numbers of their rows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OpenCalls(BTreeMap<CallId, Vec<Seq>>);

impl OpenCalls {
    /// Takes note of row `seq`.
    pub fn note(&mut self, seq: Seq, row: &Row) {
        let Some(call) = row.call else { return };
        match row.bearing() {
            Bearing::Aside if row.kind == kind::CARRIED => {
                let detail: Option<Value> = row.detail.as_deref().and_then(|text| serde_json::from_str(text).ok());
                if let Some(was) = detail.and_then(|detail| detail.get("was")?.as_u64()) {
                    self.moved(Seq(was), seq);
                }
            }
            Bearing::Aside => {}
            Bearing::Closes => {
                self.0.remove(&call);
            }
            Bearing::Opens => {
                let rows = self.0.entry(call).or_default();
                if rows.len() >= ROWS_MAX {
                    rows.remove(ROWS_MAX / 2);
                }
                rows.push(seq);
                if self.0.len() > CALLS_MAX {
                    let oldest = self.0.iter().min_by_key(|(_, rows)| rows.first()).map(|(call, _)| *call);
                    oldest.and_then(|oldest| self.0.remove(&oldest));
                }
            }
        }
    }

    /// Row `old` is now also row `new`.
    fn moved(&mut self, old: Seq, new: Seq) {
        for seq in self.0.values_mut().flatten().filter(|seq| **seq == old) {
            *seq = new;
        }
    }

    /// The numbers of all rows, in order.
    #[must_use]
    pub fn rows(&self) -> Vec<Seq> {
        let mut rows: Vec<Seq> = self.0.values().flatten().copied().collect();
        rows.sort_unstable();
        rows
    }

    /// `{"<call>": [seq, …]}`.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let rows = |rows: &Vec<Seq>| Value::from(rows.iter().map(|seq| seq.0).collect::<Vec<u64>>());
        Value::Object(self.0.iter().map(|(call, seqs)| (call.to_string(), rows(seqs))).collect())
    }

    /// The same backwards.
    #[must_use]
    pub fn from_json(value: &Value) -> Option<OpenCalls> {
        let mut open = BTreeMap::new();
        for (call, rows) in value.as_object()? {
            let rows: Option<Vec<Seq>> = rows.as_array()?.iter().map(|seq| seq.as_u64().map(Seq)).collect();
            open.insert(call.parse().ok()?, rows?);
        }
        Some(OpenCalls(open))
    }

    /// Out of the text of [`OpenCalls::to_json`].
    #[must_use]
    pub fn from_json_text(text: &str) -> Option<OpenCalls> {
        OpenCalls::from_json(&serde_json::from_str(text).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Stamp, TimeQuality};
    use interlock_domain::time::{Tick, Wall};

    fn row(kind: &'static str, position: u32) -> Row {
        let at = Stamp { mono: Tick(0), boottime_ns: 0, wall: Wall(0), quality: TimeQuality::Unknown };
        let call: CallId = format!("01KBA6AK800000000000000007.3.{position}").parse().unwrap();
        Row::new(at, kind).of_call(call)
    }

    #[track_caller]
    fn check(rows: &[(&'static str, u32)], open: &[u64]) {
        let mut calls = OpenCalls::default();
        for (seq, (kind, position)) in (1..).zip(rows) {
            calls.note(Seq(seq), &row(kind, *position));
        }
        assert_eq!(calls.rows(), open.iter().copied().map(Seq).collect::<Vec<_>>());
        assert_eq!(OpenCalls::from_json_text(&calls.to_json().to_string()), Some(calls));
    }

    #[test]
    fn a_call_is_open_until_its_settlement() {
        check(&[], &[]);
        check(&[("requested", 0), ("intent", 0)], &[1, 2]);
        check(&[("requested", 0), ("requested", 1), ("settled", 0)], &[2]);
        check(&[("requested", 0), ("settled", 0), ("resolved", 0), ("late_report", 0)], &[]);
    }

    #[test]
    fn a_row_that_was_carried_forward_is_where_it_was_carried_to() {
        let mut calls = OpenCalls::default();
        calls.note(Seq(1), &row("requested", 0));
        calls.note(Seq(2), &row("requested", 1));
        let carried = row(kind::CARRIED, 0).detailed(&serde_json::json!({ "was": 1 }));
        calls.note(Seq(9), &carried);
        assert_eq!(calls.rows(), [Seq(2), Seq(9)]);
    }

    #[test]
    fn what_one_call_can_occupy_is_bounded() {
        let rows: Vec<(&'static str, u32)> = (0..1000).map(|_| ("progress", 0)).collect();
        let kept: Vec<u64> = (1..=32).chain(969..=1000).collect();
        check(&rows, &kept);
    }
}

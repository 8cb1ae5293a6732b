//! The ledger in the log: what stands beside an intent, and from rows back to a history that the checker reads.
//!
//! The rows are read in their order, which is the order of what happened: an effect began where its intent stands, and
//! its end is known where its settlement or its resolution does. A row that cannot be read says nothing; none is made
//! up.

use std::sync::Arc;

use interlock_domain::effect::anomaly::{Malformed, Seen};
use interlock_domain::effect::chronicle::{Chronicle, Finding, Sent};
use interlock_domain::effect::ledger::Noted;
use interlock_domain::effect::outcome::OpKey;
use interlock_domain::id::CallId;
use interlock_domain::request::Part;
use serde_json::{Value, json};

use super::detail::Detail;
use super::{Recorded, contract, kind};

/// Writes what the ledger noted into the detail of an intent. What there is not is left out: most calls have little.
#[must_use]
pub fn note(mut detail: Detail, noted: &Noted) -> Detail {
    if let Some(part) = &noted.part {
        let mut written = json!({ "workflow": part.workflow, "op": part.op, "branch": part.branch });
        for (key, call) in [("undoes", part.undoes), ("releases", part.releases)] {
            if let Some(call) = call {
                written[key] = call.to_string().into();
            }
        }
        if part.drops {
            written["drops"] = true.into();
        }
        detail = detail.with("part", &written);
    }
    if let Some(repeats) = noted.repeats {
        detail = detail.with("repeats", &repeats.to_string());
    }
    if !noted.resources.is_empty() {
        detail = detail.with("resources", &noted.resources);
    }
    if !noted.rests_on.is_empty() {
        detail = detail.with("rests_on", &noted.rests_on.iter().map(CallId::to_string).collect::<Vec<_>>());
    }
    detail
}

/// Reads it back.
#[must_use]
pub fn noted(detail: &Value) -> Noted {
    let calls = |value: &Value| -> Vec<CallId> {
        let all = value.as_array().into_iter().flatten().filter_map(Value::as_str);
        all.filter_map(|call| call.parse().ok()).collect()
    };
    let call = |value: &Value| value.as_str().and_then(|call| call.parse().ok());
    let rests_on = calls(&detail["rests_on"]);
    let part = &detail["part"];
    let part = part["workflow"].as_u64().map(|workflow| Part {
        workflow,
        op: part["op"].as_str().unwrap_or_default().to_owned(),
        branch: part["branch"].as_str().unwrap_or_default().to_owned(),
        rests_on: rests_on.clone(),
        undoes: call(&part["undoes"]),
        drops: part["drops"].as_bool().unwrap_or(false),
        releases: call(&part["releases"]),
    });
    let resources = detail["resources"].as_array().into_iter().flatten().filter_map(Value::as_str);
    Noted {
        resources: resources.map(str::to_owned).collect(),
        rests_on,
        repeats: call(&detail["repeats"]),
        part: part.map(Arc::new),
    }
}

/// Reads rows into a history, in their order.
#[derive(Debug, Default)]
pub struct Reader {
    chronicle: Chronicle,
    /// The last decision of each workflow: one that was resumed has several, and the last one counts.
    decided: Vec<(String, Option<Vec<String>>)>,
    /// Its branches, where a commit named none and so kept all.
    branches: Vec<(String, String)>,
}

impl Reader {
    /// Takes one row.
    ///
    /// # Errors
    /// When the log says of one call twice that it began.
    pub fn take(&mut self, recorded: &Recorded) -> Result<(), Malformed> {
        let row = &recorded.row;
        let detail =
            || -> Value { row.detail.as_deref().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default() };
        // A copy of a row whose segment is gone.
        if row.kind == kind::CARRIED {
            let original = detail().get("row").and_then(|row| Recorded::from_json(row).ok());
            return match original {
                Some(original) if original.row.kind != kind::CARRIED => self.take(&original),
                Some(_) | None => Ok(()),
            };
        }
        match (row.kind.as_ref(), row.call) {
            ("intent", Some(call)) => {
                let detail = detail();
                let op = detail["op"].as_str().and_then(|op| op.parse().ok()).unwrap_or(call);
                let (contract, noted) = (contract::from_json(&detail["contract"]), noted(&detail));
                if let Some(part) = &noted.part {
                    self.branches.push((format!("w{}", part.workflow), part.branch.clone()));
                }
                self.chronicle.sent(Sent { call, op: OpKey(op), contract: &contract, noted: &noted })
            }
            (kind::SETTLED | kind::RESOLVED, Some(call)) => {
                let seen = match row.to.as_deref() {
                    Some("done") => Seen::Confirmed,
                    Some("failed" | "not_started") => Seen::Failed,
                    Some(_) | None => Seen::Unknown,
                };
                self.chronicle.seen(call, seen)
            }
            ("workflow", _) => self.workflow(row.cause.as_deref().unwrap_or_default(), &detail()),
            _ => Ok(()),
        }
    }

    fn workflow(&mut self, what: &str, detail: &Value) -> Result<(), Malformed> {
        let Some(workflow) = detail["workflow"].as_str() else { return Ok(()) };
        let texts = |value: &Value| -> Vec<String> {
            value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        match what {
            "begin" => {
                let held = texts(&detail["profiles"]).iter().any(|profile| profile == "speculation-safe");
                self.chronicle.begin(workflow, &texts(&detail["required"]), held)
            }
            "settled" => {
                let kept = texts(&detail["kept"]);
                self.decided.retain(|(other, _)| other != workflow);
                self.decided.push((workflow.to_owned(), (!kept.is_empty()).then_some(kept)));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The whole, once all rows were taken.
    ///
    /// # Errors
    /// Never in practice: the names are made here.
    pub fn end(mut self) -> Result<Chronicle, Malformed> {
        for (workflow, kept) in std::mem::take(&mut self.decided) {
            self.chronicle.settled(&workflow, kept.as_deref())?;
        }
        self.chronicle.end()?;
        Ok(self.chronicle)
    }
}

/// What is told of the effects in a log.
#[must_use]
pub fn told(id: &str, found: &[Finding]) -> Value {
    let anomalies: Vec<Value> = found
        .iter()
        .map(|Finding { anomaly, calls }| {
            let calls: Vec<String> = calls.iter().map(CallId::to_string).collect();
            json!({
                "kind": anomaly.kind.word(), "verdict": anomaly.verdict.word(), "events": anomaly.events,
                "calls": calls, "why": anomaly.why,
            })
        })
        .collect();
    json!({ "id": id, "anomalies": anomalies })
}

#[cfg(test)]
mod tests {
    use interlock_domain::event::{Event, Found, FoundBy};
    use interlock_domain::id::ToolName;
    use interlock_domain::surface::contract::Contract;

    use interlock_domain::id::Seq;
    use interlock_domain::time::{Tick, Wall};

    use super::super::{Row, Stamp, TimeQuality, event};
    use super::*;

    fn call(run: u64, position: u32) -> CallId {
        format!("01KBA6AK80000000000000000{run}.1.{position}").parse().unwrap()
    }

    fn stamp() -> Stamp {
        Stamp { mono: Tick(0), boottime_ns: 0, wall: Wall(0), quality: TimeQuality::Unknown }
    }

    fn recorded(row: Row) -> Recorded {
        Recorded { seq: Seq(1), boot_id: String::new(), row, hash: [0; 32] }
    }

    fn intent(of: CallId, noted: Noted) -> Recorded {
        let event = Event::Intent {
            call: of,
            op: OpKey(of),
            tool: ToolName::new("http").unwrap(),
            args: Arc::new(json!({ "url": "http://a/" })),
            contract: Arc::new(Contract::weakest("http.send")),
            noted: Arc::new(noted),
        };
        recorded(event::row(&event, stamp()))
    }

    fn found(of: CallId, found: Found) -> Recorded {
        let by = FoundBy::Query { note: String::new() };
        let event = Event::Resolved { call: of, op: OpKey(of), found, by };
        recorded(event::row(&event, stamp()))
    }

    fn check(rows: &[Recorded], want: &[&str]) {
        let mut reader = Reader::default();
        for row in rows {
            reader.take(row).unwrap();
        }
        let found = reader.end().unwrap().check();
        let words: Vec<String> =
            found.iter().map(|it| format!("{} {}", it.anomaly.kind.word(), it.anomaly.verdict.word())).collect();
        assert_eq!(words, want);
    }

    #[test]
    fn what_was_noted_is_read_back_as_it_was_written() {
        let part = Part {
            workflow: 7,
            op: "pay".to_owned(),
            branch: "m".to_owned(),
            rests_on: vec![call(1, 1)],
            undoes: Some(call(1, 2)),
            drops: true,
            releases: Some(call(1, 3)),
        };
        let all = Noted {
            resources: vec!["acct".to_owned()],
            rests_on: vec![call(1, 1)],
            repeats: Some(call(1, 0)),
            part: Some(Arc::new(part)),
        };
        for noted_before in [all, Noted::default()] {
            let detail = note(Detail::default(), &noted_before).end();
            assert_eq!(noted(&serde_json::from_str(&detail).unwrap()), noted_before);
        }
    }

    #[test]
    fn rows_of_runs_without_a_workflow_are_a_history() {
        let on = |name: &str| Noted { resources: vec![name.to_owned()], ..Noted::default() };
        let again = Noted { repeats: Some(call(1, 0)), ..on("acct") };
        // Sent again while nobody knew: possible while the first is open, certain once it is found, none if it failed.
        let twice = [intent(call(1, 0), on("acct")), intent(call(1, 1), again)];
        let second = found(call(1, 1), Found::Done);
        check(&[twice[0].clone(), twice[1].clone(), second.clone()], &["A1 possible"]);
        let found_first = |what| [twice[0].clone(), twice[1].clone(), second.clone(), found(call(1, 0), what)];
        check(&found_first(Found::Done), &["A1 certain"]);
        check(&found_first(Found::Failed), &[]);
        // Two runs on one resource: in an order if the first had ended, in none if nobody knew.
        let (one, two) = (intent(call(1, 0), on("row")), intent(call(2, 0), on("row")));
        let (first, last) = (found(call(1, 0), Found::Done), found(call(2, 0), Found::Done));
        check(&[one.clone(), first.clone(), two.clone(), last.clone()], &[]);
        check(&[one.clone(), two.clone(), last.clone()], &["A7 possible"]);
        check(&[one, two, last, first], &["A7 certain"]);
    }
}

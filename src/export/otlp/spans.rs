//! From rows to the spans of traces: a run is a trace, a call is a span, and so is what a model's loop did.
//!
//! Pure. A span is made when its last row is read, once. What began before the rows that were read has its beginning
//! where its end is, and says so. A run has no end in the log: its root span is the moment at which it was opened.

use std::collections::BTreeMap;

use interlock_domain::id::{CallId, RunId};
use interlock_domain::time::Wall;
use serde_json::{Value, json};

use super::form::{call_span, nanoseconds, number, run_span, span_id, text, trace_id, yes};
use crate::record::{Recorded, kind};

/// Calls and model runs under way that are remembered; the oldest is forgotten first.
const OPEN_MAX: usize = 1_024;

/// Moments that are kept of a call; what repeats itself for ever says nothing new.
const MOMENTS_MAX: usize = 32;

/// Kinds of spans (OTLP): of this process, and towards another.
const INTERNAL: u32 = 1;
const CLIENT: u32 = 3;

/// The code of a span that went wrong.
const WENT_WRONG: u32 = 2;

/// What is known of a call until it ends.
#[derive(Debug)]
struct Open {
    at: Wall,
    tool: String,
    parent: Option<CallId>,
    moments: Vec<Value>,
}

/// What is known of a model's run until it ends.
#[derive(Debug)]
struct Asked {
    at: Wall,
    model: String,
    parent: Option<CallId>,
}

/// What is under way.
#[derive(Debug, Default)]
pub(super) struct Spans {
    calls: BTreeMap<CallId, Open>,
    asked: BTreeMap<RunId, Asked>,
}

impl Spans {
    /// The span that ends with a row, if one does.
    pub(super) fn follow(&mut self, recorded: &Recorded) -> Option<Value> {
        let row = &recorded.row;
        let run = row.run.or_else(|| row.call.map(|call| call.run))?;
        let detail =
            || row.detail.as_deref().and_then(|text| serde_json::from_str::<Value>(text).ok()).unwrap_or_default();
        match (row.kind.as_ref(), row.call) {
            ("requested", Some(call)) => {
                let detail = detail();
                let parent = detail["parent"].as_str().and_then(|parent| parent.parse().ok());
                let tool = detail["tool"].as_str().unwrap_or_default().to_owned();
                bounded(&mut self.calls);
                self.calls.insert(call, Open { at: row.at.wall, tool, parent, moments: Vec::new() });
                None
            }
            (kind::SETTLED, Some(call)) => Some(self.ended(recorded, call)),
            ("run_opened", _) => Some(opened(recorded, run, &detail())),
            ("agent_asked", _) => {
                let detail = detail();
                let parent = detail["parent"].as_str().and_then(|parent| parent.parse().ok());
                let model = detail["model"].as_str().unwrap_or_default().to_owned();
                bounded(&mut self.asked);
                self.asked.insert(run, Asked { at: row.at.wall, model, parent });
                None
            }
            ("agent_turn", _) => Some(turn(recorded, run, &detail())),
            ("agent_ended", _) => Some(self.loop_ended(recorded, run, &detail())),
            (word, Some(call)) => {
                if let Some(open) = self.calls.get_mut(&call)
                    && open.moments.len() < MOMENTS_MAX
                {
                    let mut moment = json!({ "timeUnixNano": nanoseconds(row.at.wall), "name": word });
                    let words = [("interlock.to", &row.to), ("interlock.cause", &row.cause)];
                    let told = words.into_iter().filter_map(|(key, word)| Some(text(key, word.as_deref()?)));
                    moment["attributes"] = told.collect();
                    open.moments.push(moment);
                }
                None
            }
            (_, None) => None,
        }
    }

    fn ended(&mut self, recorded: &Recorded, call: CallId) -> Value {
        let row = &recorded.row;
        let known = self.calls.remove(&call);
        let mut attributes = vec![text("interlock.call", call.to_string()), number("interlock.seq", recorded.seq.0)];
        let ending = row.to.as_deref().unwrap_or_default();
        attributes.push(text("interlock.outcome", ending));
        attributes.extend(row.cause.as_deref().map(|cause| text("interlock.cause", cause)));
        let name = match &known {
            Some(open) => {
                attributes.push(text("gen_ai.tool.name", open.tool.as_str()));
                format!("execute_tool {}", open.tool)
            }
            None => {
                attributes.push(yes("interlock.beginning_unknown"));
                "execute_tool".to_owned()
            }
        };
        let began = known.as_ref().map_or(row.at.wall, |open| open.at);
        let mut span = span((call.run, call_span(call)), name, CLIENT, (began, row.at.wall));
        let parent = known.as_ref().and_then(|open| open.parent);
        // A call that another one made stands below it; one of another run is pointed to.
        match parent {
            Some(parent) if parent.run == call.run => span["parentSpanId"] = call_span(parent).into(),
            Some(parent) => {
                span["parentSpanId"] = run_span(call.run).into();
                span["links"] = json!([link(parent.run, call_span(parent))]);
            }
            None => span["parentSpanId"] = run_span(call.run).into(),
        }
        if matches!(ending, "failed" | "unknown") {
            span["status"] = json!({ "code": WENT_WRONG, "message": row.cause.as_deref().unwrap_or(ending) });
        }
        span["events"] = known.map(|open| open.moments).unwrap_or_default().into();
        span["attributes"] = attributes.into();
        span
    }

    fn loop_ended(&mut self, recorded: &Recorded, run: RunId, detail: &Value) -> Value {
        let row = &recorded.row;
        let known = self.asked.remove(&run);
        let began = known.as_ref().map_or(row.at.wall, |asked| asked.at);
        let mut span = span((run, loop_span(run)), "invoke_agent".to_owned(), INTERNAL, (began, row.at.wall));
        span["parentSpanId"] = run_span(run).into();
        let ending = row.to.as_deref().unwrap_or_default();
        let mut attributes = vec![text("interlock.run", run.to_string()), text("interlock.outcome", ending)];
        attributes.extend(detail["turns"].as_u64().map(|turns| number("interlock.turns", turns)));
        match &known {
            Some(asked) => attributes.push(text("gen_ai.request.model", asked.model.as_str())),
            None => attributes.push(yes("interlock.beginning_unknown")),
        }
        if let Some(parent) = known.and_then(|asked| asked.parent) {
            span["links"] = json!([link(parent.run, call_span(parent))]);
        }
        if ending != "done" {
            span["status"] = json!({ "code": WENT_WRONG, "message": ending });
        }
        span["attributes"] = attributes.into();
        span
    }
}

/// The root of a run. Who asked, and which run it is part of.
fn opened(recorded: &Recorded, run: RunId, detail: &Value) -> Value {
    let row = &recorded.row;
    let via = detail["via"].as_str().unwrap_or_default();
    let mut span = span((run, run_span(run)), format!("run {via}"), INTERNAL, (row.at.wall, row.at.wall));
    let mut attributes = vec![text("interlock.run", run.to_string()), text("interlock.via", via)];
    attributes.extend(detail["asker"].as_str().map(|asker| text("interlock.asker", asker)));
    attributes.extend(row.to.as_deref().map(|mode| text("interlock.mode", mode)));
    if let Some(parent) = detail["parent"].as_str().and_then(|parent| parent.parse::<RunId>().ok()) {
        attributes.push(text("interlock.parent", parent.to_string()));
        span["links"] = json!([link(parent, run_span(parent))]);
    }
    span["attributes"] = attributes.into();
    span
}

/// One request to a model.
fn turn(recorded: &Recorded, run: RunId, detail: &Value) -> Value {
    let row = &recorded.row;
    let took_ms = detail["took_us"].as_u64().unwrap_or(0) / 1000;
    let began = Wall(row.at.wall.0.saturating_sub_unsigned(took_ms));
    let id = span_id(&format!("{run} turn {}", recorded.seq.0));
    let mut span = span((run, id), "chat".to_owned(), CLIENT, (began, row.at.wall));
    span["parentSpanId"] = loop_span(run).into();
    let mut attributes = vec![number("interlock.seq", recorded.seq.0)];
    let mut put = |key: &str, value: &Value| attributes.extend(value.as_u64().map(|value| number(key, value)));
    put("interlock.turn", &detail["turn"]);
    put("interlock.attempt", &detail["attempt"]);
    put("gen_ai.usage.input_tokens", &detail["tokens"][0]);
    put("gen_ai.usage.output_tokens", &detail["tokens"][1]);
    span["attributes"] = attributes.into();
    span
}

fn loop_span(run: RunId) -> String {
    span_id(&format!("{run} loop"))
}

fn span((run, id): (RunId, String), name: String, kind: u32, (began, ended): (Wall, Wall)) -> Value {
    // A clock that was set back in between must not make an end before its beginning.
    let ended = ended.max(began);
    json!({
        "traceId": trace_id(run),
        "spanId": id,
        "name": name,
        "kind": kind,
        "startTimeUnixNano": nanoseconds(began),
        "endTimeUnixNano": nanoseconds(ended),
    })
}

fn link(run: RunId, span: String) -> Value {
    json!({ "traceId": trace_id(run), "spanId": span })
}

fn bounded<K: Ord, V>(open: &mut BTreeMap<K, V>) {
    if open.len() >= OPEN_MAX {
        open.pop_first();
    }
}

#[cfg(test)]
mod tests {
    use interlock_domain::id::Seq;
    use interlock_domain::time::Tick;

    use super::*;
    use crate::record::{Row, Stamp, TimeQuality};

    const RUN: &str = "01KBA6AK800000000000000007";

    fn row(seq: u64, kind: &'static str, to: &'static str, detail: &Value) -> Recorded {
        let wall = Wall(i64::try_from(seq).unwrap());
        let at = Stamp { mono: Tick(seq), boottime_ns: 0, wall, quality: TimeQuality::Synced };
        let row = Row { run: Some(RUN.parse().unwrap()), to: Some(to.into()), ..Row::new(at, kind).detailed(detail) };
        Recorded { seq: Seq(seq), boot_id: "b".into(), row, hash: [0; 32] }
    }

    fn of_call(position: u32, recorded: Recorded) -> Recorded {
        let call: CallId = format!("{RUN}.3.{position}").parse().unwrap();
        Recorded { row: recorded.row.of_call(call), ..recorded }
    }

    #[test]
    fn a_call_is_a_span_below_its_run_with_what_happened_to_it() {
        let mut spans = Spans::default();
        let root = spans.follow(&row(1, "run_opened", "default", &json!({ "via": "text", "asker": "ann" }))).unwrap();
        assert_eq!((&root["name"], root.get("parentSpanId")), (&json!("run text"), None));
        for (seq, kind, to) in [(2, "requested", ""), (3, "permitted", ""), (5, "intent", "")] {
            assert_eq!(spans.follow(&of_call(0, row(seq, kind, to, &json!({ "tool": "device" })))), None);
        }
        let ended = spans.follow(&of_call(0, row(9, "settled", "failed", &json!({})))).unwrap();
        assert_eq!((&ended["parentSpanId"], &ended["traceId"]), (&root["spanId"], &root["traceId"]));
        assert_eq!((&ended["name"], &ended["status"]["code"]), (&json!("execute_tool device"), &json!(2)));
        assert_eq!((&ended["startTimeUnixNano"], &ended["endTimeUnixNano"]), (&json!("2000000"), &json!("9000000")));
        let events = ended["events"].as_array().unwrap();
        assert_eq!(events.iter().map(|event| &event["name"]).collect::<Vec<_>>(), ["permitted", "intent"]);
        // Its beginning is gone: it has one moment, and says so.
        let late = spans.follow(&of_call(1, row(11, "settled", "done", &json!({})))).unwrap();
        assert_eq!((&late["startTimeUnixNano"], late.get("status")), (&json!("11000000"), None));
        assert!(late["attributes"].to_string().contains("interlock.beginning_unknown"));
    }

    #[test]
    fn a_call_within_a_call_stands_below_it_and_a_subagent_points_to_the_call_that_made_it() {
        let mut spans = Spans::default();
        let parent = format!("{RUN}.3.0");
        spans.follow(&of_call(1, row(2, "requested", "", &json!({ "tool": "device", "parent": parent }))));
        let ended = spans.follow(&of_call(1, row(3, "settled", "done", &json!({})))).unwrap();
        assert_eq!(ended["parentSpanId"], call_span(parent.parse().unwrap()).as_str());
        let other = "01KBA6AK8000000000000000ZZ.1.2";
        spans.follow(&row(4, "agent_asked", "", &json!({ "model": "m", "parent": other })));
        let ended = spans.follow(&row(8, "agent_ended", "done", &json!({ "turns": 2 }))).unwrap();
        let call: CallId = other.parse().unwrap();
        assert_eq!(ended["links"], json!([{ "traceId": trace_id(call.run), "spanId": call_span(call) }]));
        let turn = spans.follow(&row(7, "agent_turn", "", &json!({ "took_us": 3000, "tokens": [5, 6] }))).unwrap();
        assert_eq!((&turn["startTimeUnixNano"], &turn["parentSpanId"]), (&json!("4000000"), &ended["spanId"]));
    }

    #[test]
    fn no_more_is_remembered_than_there_is_room_for() {
        let mut spans = Spans::default();
        for position in 0..2_000 {
            spans.follow(&of_call(position, row(2, "requested", "", &json!({ "tool": "t" }))));
        }
        assert_eq!(spans.calls.len(), OPEN_MAX);
    }
}

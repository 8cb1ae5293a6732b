//! The JSON of OTLP 1.x: what stands around records and spans, and how values are written.
//!
//! Pure. Ids are hexadecimal, 64-bit numbers are decimal texts, enumerations are numbers (OTLP, "JSON Protobuf
//! Encoding").

use std::fmt::Write as _;

use interlock_domain::id::{CallId, RunId};
use interlock_domain::time::Wall;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::super::outbox::Gap;
use crate::record::{Recorded, Row, hex, kind};

/// What the other side calls the place that a record or span comes from.
const SCOPE: &str = "interlock.evidence";

/// Numbers of severities (OpenTelemetry, "Log Data Model").
const INFO: (u32, &str) = (9, "INFO");
const WARN: (u32, &str) = (13, "WARN");
const ERROR: (u32, &str) = (17, "ERROR");

/// A text with its name.
pub(super) fn text(key: &str, value: impl Into<String>) -> Value {
    json!({ "key": key, "value": { "stringValue": value.into() } })
}

/// A number with its name.
pub(super) fn number(key: &str, value: u64) -> Value {
    json!({ "key": key, "value": { "intValue": value.to_string() } })
}

/// A yes with its name.
pub(super) fn yes(key: &str) -> Value {
    json!({ "key": key, "value": { "boolValue": true } })
}

/// A time as nanoseconds since 1970. One before that is not written.
pub(super) fn nanoseconds(wall: Wall) -> String {
    (u128::from(wall.0.max(0).unsigned_abs()) * 1_000_000).to_string()
}

/// The trace of a run: its own id, which is 16 bytes long.
pub(super) fn trace_id(run: RunId) -> String {
    hex(&run.bytes())
}

/// The id of a span by the name of what it is about: the same whenever and by whomever it is made.
pub(super) fn span_id(name: &str) -> String {
    hex(&Sha256::digest(name.as_bytes())[..8])
}

/// The span of a call.
pub(super) fn call_span(call: CallId) -> String {
    span_id(&call.to_string())
}

/// The root span of a run.
pub(super) fn run_span(run: RunId) -> String {
    span_id(&run.to_string())
}

/// The record of a row.
pub(super) fn record(recorded: &Recorded, observed: Wall) -> Value {
    let row = &recorded.row;
    let mut attributes = vec![
        number("interlock.seq", recorded.seq.0),
        text("interlock.boot_id", recorded.boot_id.as_str()),
        text("interlock.hash", hex(&recorded.hash)),
        text("interlock.time_quality", row.at.quality.as_str()),
    ];
    let mut put = |key: &str, value: Option<String>| attributes.extend(value.map(|value| text(key, value)));
    put("interlock.call", row.call.map(|call| call.to_string()));
    put("interlock.run", row.run.map(|run| run.to_string()));
    put("interlock.task", row.task.map(|task| task.to_string()));
    put("interlock.generation", row.generation.map(|generation| generation.to_string()));
    put("interlock.from", row.from.as_ref().map(ToString::to_string));
    put("interlock.to", row.to.as_ref().map(ToString::to_string));
    put("interlock.cause", row.cause.as_ref().map(ToString::to_string));
    let (severity, word) = severity(row);
    let mut record = json!({
        "timeUnixNano": nanoseconds(row.at.wall),
        "observedTimeUnixNano": nanoseconds(observed),
        "severityNumber": severity,
        "severityText": word,
        "eventName": format!("interlock.{}", row.kind),
        "body": { "stringValue": row.detail.as_deref().unwrap_or_default() },
        "attributes": attributes,
    });
    if let Some(run) = row.run.or_else(|| row.call.map(|call| call.run)) {
        record["traceId"] = trace_id(run).into();
        record["spanId"] = row.call.map_or_else(|| run_span(run), call_span).into();
    }
    record
}

/// The record of rows that will not come.
pub(super) fn gap(gap: &Gap, observed: Wall) -> Value {
    json!({
        "timeUnixNano": nanoseconds(observed),
        "observedTimeUnixNano": nanoseconds(observed),
        "severityNumber": WARN.0,
        "severityText": WARN.1,
        "eventName": "interlock.export_gap",
        "body": { "stringValue": format!("rows {} to {} will not come", gap.first.0, gap.last.0) },
        "attributes": [
            number("interlock.first", gap.first.0),
            number("interlock.last", gap.last.0),
            number("interlock.count", gap.count()),
            text("interlock.cause", gap.why.word()),
        ],
    })
}

fn severity(row: &Row) -> (u32, &'static str) {
    match (row.kind.as_ref(), row.to.as_deref()) {
        (kind::GAP | kind::DISK_FULL | kind::QUARANTINED | kind::PREVIOUS_RUN_ABNORMAL, _) => ERROR,
        (_, Some("unknown" | "ZOMBIE" | "DEAD" | "ALTERED" | "TAIL_LOST")) => ERROR,
        (_, Some("failed" | "not_started" | "rejected" | "declined" | "UNANCHORED")) => WARN,
        (_, _) => INFO,
    }
}

/// The request with these records: written one by one, because a tree of them all would take many times their room.
pub(super) fn logs(device: &str, records: impl IntoIterator<Item = Value>) -> String {
    request("resourceLogs", "scopeLogs", "logRecords", device, records)
}

/// The request with these spans.
pub(super) fn traces(device: &str, spans: impl IntoIterator<Item = Value>) -> String {
    request("resourceSpans", "scopeSpans", "spans", device, spans)
}

fn request(
    resources: &str,
    scopes: &str,
    items: &str,
    device: &str,
    values: impl IntoIterator<Item = Value>,
) -> String {
    let (resource, scope) = (resource(device), scope());
    let mut text =
        format!("{{\"{resources}\":[{{\"resource\":{resource},\"{scopes}\":[{{\"scope\":{scope},\"{items}\":[");
    for (at, value) in values.into_iter().enumerate() {
        let comma = if at == 0 { "" } else { "," };
        let _ = write!(text, "{comma}{value}");
    }
    text.push_str("]}]}]}");
    text
}

fn resource(device: &str) -> Value {
    json!({
        "attributes": [
            text("service.name", "interlock"),
            text("service.version", env!("CARGO_PKG_VERSION")),
            text("service.instance.id", device),
        ],
    })
}

fn scope() -> Value {
    json!({ "name": SCOPE, "version": env!("CARGO_PKG_VERSION") })
}

/// How many of what was sent the other side has not taken, and why; `None` when it has all.
pub(super) fn rejected(body: &str) -> Option<(u64, String)> {
    let answer: Value = serde_json::from_str(body).ok()?;
    let partial = answer.get("partialSuccess")?;
    let count = |key: &str| {
        let count = partial.get(key)?;
        count.as_u64().or_else(|| count.as_str()?.parse().ok())
    };
    let count = count("rejectedLogRecords").or_else(|| count("rejectedSpans")).unwrap_or(0);
    let why = partial.get("errorMessage").and_then(Value::as_str).unwrap_or_default();
    (count > 0).then(|| (count, why.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_taken_is_read_as_a_number_and_as_a_text() {
        let check = |body: &str, want: Option<(u64, &str)>| {
            assert_eq!(rejected(body), want.map(|(count, why)| (count, why.to_owned())), "{body}");
        };
        check("", None);
        check("{}", None);
        check(r#"{"partialSuccess": {}}"#, None);
        check(r#"{"partialSuccess": {"errorMessage": "a warning"}}"#, None);
        check(r#"{"partialSuccess": {"rejectedLogRecords": "3", "errorMessage": "old"}}"#, Some((3, "old")));
        check(r#"{"partialSuccess": {"rejectedSpans": 2}}"#, Some((2, "")));
    }

    #[test]
    fn a_request_is_one_object_with_all_that_is_in_it() {
        let read = |text: String| serde_json::from_str::<Value>(&text).unwrap();
        let logs = read(logs("b\"x", [json!({ "a": 1 }), json!({ "a": 2 })]));
        let inner = &logs["resourceLogs"][0];
        assert_eq!(inner["scopeLogs"][0]["logRecords"], json!([{ "a": 1 }, { "a": 2 }]));
        assert_eq!(inner["resource"]["attributes"][2]["value"]["stringValue"], "b\"x");
        assert_eq!(read(traces("b", []))["resourceSpans"][0]["scopeSpans"][0]["spans"], json!([]));
    }

    #[test]
    fn times_are_nanoseconds_and_ids_have_their_lengths() {
        assert_eq!(nanoseconds(Wall(1_764_500_000_001)), "1764500000001000000");
        assert_eq!(nanoseconds(Wall(-5)), "0");
        let run: RunId = "01KBA6AK800000000000000007".parse().unwrap();
        assert_eq!(trace_id(run), "019ad465 4d00 0000 0000 000000000007".replace(' ', ""));
        assert_eq!((run_span(run).len(), run_span(run) == span_id("x")), (16, false));
    }
}

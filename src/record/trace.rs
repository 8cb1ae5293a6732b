//! From rows of the log to the facts of a trace.
//!
//! The log outlives builds: a row of a kind that is not known here is shown as what it says it is, and one whose detail
//! cannot be read keeps its kind. Nothing is left out because it is strange.

use interlock_domain::id::{CallId, RunId};
use interlock_domain::request::shown::{escaped, shown};
use interlock_domain::trace::moves::Move;
use interlock_domain::trace::{Fact, What};
use serde_json::Value;

use super::{Recorded, kind};

/// The most characters of an input or an output in a trace; `evidence show` has the whole row.
const TEXT_CHARS_MAX: usize = 400;

/// The fact that a row stands for; `None` for a row of no run.
#[must_use]
pub fn fact(recorded: &Recorded) -> Option<Fact> {
    let detail = |row: &Recorded| -> Value {
        row.row.detail.as_deref().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
    };
    // A copy of a row whose segment is gone: what counts is the row.
    if recorded.row.kind == kind::CARRIED {
        let original = Recorded::from_json(detail(recorded).get("row")?).ok()?;
        return if original.row.kind == kind::CARRIED { None } else { fact(&original) };
    }
    let row = &recorded.row;
    let run = row.run.or_else(|| row.call.map(|call| call.run))?;
    Some(Fact {
        seq: recorded.seq,
        boot: recorded.boot_id.clone(),
        at: row.at.mono,
        wall: row.at.wall,
        run,
        call: row.call,
        what: what(recorded, &detail(recorded)),
    })
}

fn what(recorded: &Recorded, detail: &Value) -> What {
    let row = &recorded.row;
    let text = |key: &str| detail.get(key).and_then(Value::as_str).map(|text| escaped(text, TEXT_CHARS_MAX));
    let said = |key: &str| text(key).unwrap_or_default();
    let id = |key: &str| detail.get(key).and_then(Value::as_str);
    let to = || row.to.as_deref().unwrap_or_default().to_owned();
    let cause = || row.cause.as_deref().map(str::to_owned);
    match row.kind.as_ref() {
        "run_opened" => What::RunOpened {
            parent: id("parent").and_then(|parent| parent.parse::<RunId>().ok()),
            asker: format!("{} {}", said("via"), said("asker")).trim().to_owned(),
            mode: to(),
        },
        "policy_changed" => What::PolicyChanged { mode: to() },
        "requested" => What::Requested {
            tool: said("tool"),
            input: cut(&shown(detail.get("input").unwrap_or(&Value::Null))),
            parent: id("parent").and_then(|parent| parent.parse::<CallId>().ok()),
        },
        "asked" => What::Asked { question: said("question"), kind: to(), reason: said("reason") },
        "answered" => What::Answered { question: said("question"), answer: format!("{} by {}", to(), said("by")) },
        "permitted" => What::Permitted { step: cause().unwrap_or_default(), rule: text("rule") },
        "queued" => What::Queued { class: to() },
        "intent" => What::Intent,
        "started" => What::Started,
        "stop_asked" => What::StopAsked,
        "outcome" => What::Outcome { ending: to() },
        kind::SETTLED => What::Settled {
            ending: to(),
            code: cause(),
            told: text("message").unwrap_or_else(|| match detail.get("output") {
                None | Some(Value::Null) => String::new(),
                Some(output) => cut(&shown(output)),
            }),
        },
        kind::LATE_REPORT => What::LateReport,
        kind::RESOLVED => {
            let by = text("by").or_else(cause).unwrap_or_default();
            What::Resolved { found: to(), by }
        }
        "validity" => {
            let cause = cause().map_or_else(String::new, |cause| format!(" ({cause})"));
            What::Examined { verdict: format!("{}{cause}", to()) }
        }
        other => match step(other, recorded, detail) {
            Some(step) => What::Agent(step),
            None => What::Other { kind: escaped(other, TEXT_CHARS_MAX), text: other_text(recorded, detail) },
        },
    }
}

/// The move of a model's loop that a row stands for. Everything in it was written by a model or by whoever asked it.
fn step(word: &str, recorded: &Recorded, detail: &Value) -> Option<Move> {
    let row = &recorded.row;
    let of = |value: &Value| value.as_str().map(|text| escaped(text, TEXT_CHARS_MAX)).unwrap_or_default();
    let said = |key: &str| detail.get(key).map(of).unwrap_or_default();
    let number = |key: &str| detail.get(key).and_then(Value::as_u64).unwrap_or_default();
    let list = |key: &str| detail.get(key).and_then(Value::as_array).into_iter().flatten();
    let to = || row.to.as_deref().map(|to| escaped(to, TEXT_CHARS_MAX)).unwrap_or_default();
    let id = |key: &str| detail.get(key).and_then(Value::as_str);
    let text_or_all = |key: &str| if id(key).is_some() { said(key) } else { cut(&shown(detail)) };
    Some(match word {
        "agent_asked" => Move::Asked {
            text: said("text"),
            asker: said("asker"),
            model: said("model"),
            parent: id("parent").and_then(|call| call.parse().ok()),
            resumed: id("resumed").and_then(|run| run.parse().ok()),
            start: id("start").map(|start| escaped(start, TEXT_CHARS_MAX)),
        },
        "agent_turn" => Move::Turn {
            turn: number("turn"),
            attempt: number("attempt"),
            took_ns: detail.get("took_us").and_then(Value::as_u64).map(|us| us.saturating_mul(1000)),
            calls: list("calls").map(|call| (of(&call["id"]), of(&call["tool"]))).collect(),
            text: said("text"),
            usage: usage(detail.get("tokens").unwrap_or(&Value::Null)),
        },
        "agent_dispatched" => {
            Move::Dispatched { turn: number("turn"), batch: number("batch"), calls: list("calls").map(of).collect() }
        }
        "agent_hook" => Move::Hook {
            turn: number("turn"),
            id: said("id"),
            tool: said("tool"),
            decision: to(),
            reason: said("reason"),
        },
        "agent_compacted" => Move::Compacted {
            levels: list("levels").map(of).collect(),
            before: number("before"),
            after: number("after"),
        },
        "agent_trouble" => Move::Trouble {
            turn: number("turn"),
            code: row.cause.as_deref().map(|cause| escaped(cause, TEXT_CHARS_MAX)).unwrap_or_default(),
            message: said("message"),
        },
        "maintenance" => Move::Upkeep { text: text_or_all("text"), passed: row.to.as_deref() == Some("passed") },
        "agent_ended" => {
            Move::Ended { outcome: to(), turns: number("turns"), message: said("message"), text: said("text") }
        }
        _ => return None,
    })
}

/// `[in, out]` as a person reads it.
fn usage(tokens: &Value) -> String {
    let count = |at: usize| tokens.get(at).and_then(Value::as_u64);
    match (count(0), count(1)) {
        (None, None) => String::new(),
        (into, out) => {
            let word = |count: Option<u64>| count.map_or_else(|| "?".to_owned(), |count| count.to_string());
            format!("{} tokens in, {} out", word(into), word(out))
        }
    }
}

fn cut(text: &str) -> String {
    escaped(text, TEXT_CHARS_MAX)
}

/// What a row of another kind says: where it went, why, and its detail.
fn other_text(recorded: &Recorded, detail: &Value) -> String {
    let row = &recorded.row;
    let parts = [row.to.as_deref(), row.cause.as_deref()];
    let mut text = parts.into_iter().flatten().collect::<Vec<_>>().join(" ");
    if !detail.is_null() {
        let detail = cut(&shown(detail));
        text = if text.is_empty() { detail } else { format!("{text} {detail}") };
    }
    text
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use interlock_domain::closure::Ending;
    use interlock_domain::effect::outcome::Known;
    use interlock_domain::event::Event;
    use interlock_domain::gate::policy::Mode;
    use interlock_domain::id::{BatchId, Seq, ToolName};
    use interlock_domain::request::args::Args;
    use interlock_domain::request::{Asker, Via};
    use interlock_domain::time::{Tick, Wall};
    use serde_json::json;

    use super::super::event::row;
    use super::super::{Stamp, TimeQuality};
    use super::*;

    fn recorded(seq: u64, event: &Event) -> Recorded {
        let at = Stamp { mono: Tick(seq), boottime_ns: 0, wall: Wall(0), quality: TimeQuality::Synced };
        Recorded { seq: Seq(seq), boot_id: "b".into(), row: row(event, at), hash: [0; 32] }
    }

    fn call() -> CallId {
        CallId { run: RunId::new(1, 1), batch: BatchId(1), position: 0 }
    }

    #[test]
    fn what_the_mediator_writes_is_read_back_for_a_trace() {
        let asker = Asker { via: Via::Agent, name: "planner\u{202e}".into() };
        let opened = Event::RunOpened { run: call().run, parent: None, asker, mode: Mode::Default };
        let args = Args::new(json!({"path": "a"})).unwrap();
        let requested = Event::Requested {
            call: call(),
            tool: ToolName::new("read_file").unwrap(),
            args,
            parent: Some(CallId { position: 7, ..call() }),
        };
        let done = Ending::Ran(Known::Done(Arc::new(json!({"text": "x".repeat(1000)}))));
        let settled = Event::Settled { call: call(), ending: done };
        let what = |seq, event: &Event| fact(&recorded(seq, event)).unwrap().what;
        assert_eq!(
            what(1, &opened),
            What::RunOpened { parent: None, asker: "agent planner\\u{202e}".into(), mode: "default".into() }
        );
        assert_eq!(
            what(2, &requested),
            What::Requested {
                tool: "read_file".into(),
                input: "{\"path\":\"a\"}".into(),
                parent: Some(CallId { position: 7, ..call() })
            }
        );
        let What::Settled { ending, code: None, told } = what(3, &settled) else { panic!("no settlement") };
        assert!(ending == "done" && told.len() < 500 && told.contains("more characters"), "{told}");
    }

    #[test]
    fn a_carried_row_is_the_row_that_it_carries_and_a_strange_one_is_kept() {
        let inner = recorded(2, &Event::Started { call: call() });
        let mut carried = recorded(9, &Event::Started { call: call() });
        carried.row.kind = kind::CARRIED.into();
        carried.row = carried.row.detailed(&json!({ "row": inner.to_json() }));
        assert_eq!(fact(&carried), fact(&inner));
        let mut strange = recorded(3, &Event::Started { call: call() });
        strange.row.kind = "from_the_future".into();
        strange.row.detail = Some("not json".into());
        let want = What::Other { kind: "from_the_future".into(), text: String::new() };
        assert_eq!(fact(&strange).unwrap().what, want);
    }
}

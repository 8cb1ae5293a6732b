//! From an event of the mediator to its row, and from rows back to what repair needs after a crash.

use std::borrow::Cow;
use std::sync::Arc;

use interlock_domain::closure::{Ending, loss_code};
use interlock_domain::effect::outcome::{Known, OpKey, WayOut};
use interlock_domain::effect::report::{Failure, Loss};
use interlock_domain::event::{Event, FoundBy};
use interlock_domain::gate::docket::{Answer, Question, QuestionKind};
use interlock_domain::id::{CallId, QuestionId, ToolName};
use interlock_domain::repair::Trace;
use interlock_domain::request::shown::shown;
use interlock_domain::request::why::{Lang, Why};
use interlock_domain::surface::outputs::{Validity, Verdict};
use serde_json::{Value, json};

use super::detail::Detail;
use super::{Recorded, Row, Stamp, contract, kind, ledger};

/// The largest input or output that a row keeps whole, in bytes of JSON. With it a row stays below the bound at which
/// its detail is cut, so that what repair needs is always there.
const VALUE_BYTES_MAX: usize = 16 * 1024;

/// The cause of a row about an output that is not as declared.
pub const INVALID_OUTPUT: &str = "INVALID_OUTPUT";

/// The row of an event.
#[must_use]
pub fn row(event: &Event, at: Stamp) -> Row {
    let mut row = Row::new(at, event.word());
    if let Some(call) = event.call() {
        row = row.of_call(call);
    }
    match event {
        Event::RunOpened { run, parent, asker, mode } => {
            row.run = Some(*run);
            row.to = Some(mode.word().into());
            let parent = parent.map(|parent| parent.to_string());
            row.detailed(&json!({ "via": asker.via.word(), "asker": asker.name, "parent": parent }))
        }
        Event::PolicyChanged { run, epoch, mode } => {
            row.run = Some(*run);
            row.to = Some(mode.word().into());
            row.detailed(&json!({ "epoch": epoch.0 }))
        }
        Event::Requested { call: _, tool, args, parent } => {
            let parent = parent.map(|parent| parent.to_string());
            let detail = Detail::default()
                .with_kept("input", args.value(), VALUE_BYTES_MAX)
                .with("input_hash", &args.hash().to_string())
                .with("parent", &parent)
                .with("tool", tool.as_str());
            row.told(detail.end())
        }
        Event::Asked { question } => asked(row, question),
        Event::Answered { question, call: _, answer, waits, by } => {
            row.to = Some(answer_word(*answer).into());
            let mut detail = json!({ "question": question.to_string(), "by": by });
            if *waits {
                detail["waits"] = "second_person".into();
            }
            row.detailed(&detail)
        }
        Event::AnswerIgnored { question, why, by } => {
            row.cause = Some(why.code().into());
            row.detailed(&json!({ "question": question.to_string(), "by": by }))
        }
        Event::Permitted { call: _, step, rule, epoch, risk, protective } => {
            row.cause = Some(step.word().into());
            let detail = Detail::default()
                .with("epoch", &epoch.0)
                .with("protective", protective)
                .with("risk", risk.word())
                .with("rule", rule);
            row.told(detail.end())
        }
        Event::Queued { call: _, class } => {
            row.to = Some(class.word().into());
            row
        }
        Event::Intent { call: _, op, tool, args, contract, noted } => {
            let detail = Detail::default()
                .with("contract", &contract::to_json(contract))
                .with_kept("input", args, VALUE_BYTES_MAX)
                .with("op", &op.to_string());
            row.told(ledger::note(detail, noted).with("tool", tool.as_str()).end())
        }
        Event::Anomaly { call: _, change } => {
            row.to = Some(change.verdict.map_or("gone", interlock_domain::effect::anomaly::Verdict::word).into());
            row.cause = Some(change.kind.word().into());
            let calls: Vec<String> = change.calls.iter().map(CallId::to_string).collect();
            row.detailed(&json!({ "why": change.why, "calls": calls }))
        }
        Event::Started { call: _ } | Event::StopAsked { call: _ } | Event::LateReport { call: _ } => row,
        Event::Examined { call: _, validity } => validity_row(row, validity),
        Event::Outcome { call: _, known } => ended(row, &Ending::Ran(known.clone())),
        Event::Settled { call: _, ending } => ended(row, ending),
        Event::Resolved { call: _, op, found, by } => {
            row.from = Some("unknown".into());
            row.to = Some(found.word().into());
            match by {
                FoundBy::Person { name, note } => {
                    row.cause = Some("person".into());
                    row.detailed(&json!({ "op": op.to_string(), "by": name, "note": note }))
                }
                FoundBy::Query { note } => {
                    row.cause = Some("query".into());
                    row.detailed(&json!({ "op": op.to_string(), "note": note }))
                }
                FoundBy::LateReport => {
                    row.cause = Some("late_report".into());
                    row.detailed(&json!({ "op": op.to_string() }))
                }
            }
        }
    }
}

fn asked(mut row: Row, question: &Question) -> Row {
    row.to = Some(question.kind.word().into());
    row.cause = question.step.map(|step| step.word().into());
    let mut detail = json!({
        "question": question.id.to_string(),
        "tool": question.tool.as_str(),
        "input": question.shown,
        "rule": question.rule,
        "reason": question.reason,
        "epoch": question.key.epoch.0,
    });
    if question.four_eyes {
        detail["persons"] = 2.into();
    }
    row.detailed(&detail)
}

fn ended(mut row: Row, ending: &Ending) -> Row {
    row.to = Some(ending.word().into());
    row.cause = ending.code().map(Cow::Borrowed);
    let message = || ending.message(Lang::En);
    let detail = Detail::default();
    let detail = match ending {
        Ending::Ran(Known::Done(output)) => detail.with_kept("output", output, VALUE_BYTES_MAX),
        Ending::Ran(Known::Unknown { way_out, .. }) => {
            detail.with("message", &message()).with("way_out", way_out.word())
        }
        Ending::Ran(Known::Failed(_)) => detail.with("message", &message()),
        Ending::NotStarted(why) => {
            let detail = detail.with("denied", &why.is_denial()).with("message", &message());
            match why.decided_by() {
                None => detail,
                Some((step, rule, reason)) => {
                    detail.with("reason", reason).with("rule", &rule).with("step", step.word())
                }
            }
        }
    };
    row.told(detail.end())
}

/// The second layer: what each output parameter was found to be. Also what the output of a task is written as.
#[must_use]
pub fn validity_row(row: Row, validity: &Validity) -> Row {
    let verdict = validity.verdict();
    Row {
        to: verdict.map(|verdict| verdict.word().into()),
        cause: (verdict == Some(Verdict::Invalid)).then(|| INVALID_OUTPUT.into()),
        ..row
    }
    .detailed(&validity.to_json())
}

fn answer_word(answer: Answer) -> &'static str {
    match answer {
        Answer::Allow => "allow",
        Answer::Deny => "deny",
    }
}

/// What a row says about a call, as far as repair cares; `None` for rows that say nothing about one.
#[must_use]
pub fn trace(recorded: &Recorded) -> Option<(CallId, Trace)> {
    let row = &recorded.row;
    let call = row.call?;
    let detail: Value = row.detail.as_deref().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    let text = |key: &str| detail.get(key).and_then(Value::as_str);
    let to = row.to.as_deref().unwrap_or_default();
    let trace = match row.kind.as_ref() {
        "requested" => Trace::Requested {
            tool: ToolName::new(text("tool").unwrap_or("unknown")).ok()?,
            shown: shown(detail.get("input").unwrap_or(&Value::Null)),
        },
        "asked" => Trace::Asked { question: text("question")?.parse::<QuestionId>().ok()?, kind: question_kind(to)? },
        "answered" => Trace::Answered {
            answer: if to == "deny" { Answer::Deny } else { Answer::Allow },
            by: text("by").unwrap_or("somebody").to_owned(),
        },
        "permitted" => {
            Trace::Permitted { protective: detail.get("protective").and_then(Value::as_bool).unwrap_or(false) }
        }
        "intent" => Trace::Intent {
            op: OpKey(text("op").and_then(|op| op.parse().ok()).unwrap_or(call)),
            tool: ToolName::new(text("tool").unwrap_or("unknown")).ok()?,
            shown: shown(detail.get("input").unwrap_or(&Value::Null)),
            args: detail.get("input").filter(|input| input.get("cut").is_none()).cloned().map(Arc::new),
            at: Some(row.at.wall),
            // An intent whose detail cannot be read is still an intent: nothing is promised about it.
            contract: Arc::new(contract::from_json(detail.get("contract").unwrap_or(&Value::Null))),
            noted: Arc::new(ledger::noted(&detail)),
        },
        "outcome" => Trace::Outcome { ending: ending(to, row.cause.as_deref(), &detail) },
        kind::SETTLED => Trace::Settled { unknown: to == "unknown" },
        kind::RESOLVED => Trace::Resolved,
        _ => return None,
    };
    Some((call, trace))
}

fn question_kind(word: &str) -> Option<QuestionKind> {
    [QuestionKind::Permit, QuestionKind::Confirm, QuestionKind::Outcome].into_iter().find(|kind| kind.word() == word)
}

/// The ending that an `outcome` row stands for. A word that is not known counts as unknown.
fn ending(to: &str, cause: Option<&str>, detail: &Value) -> Ending {
    let message = detail.get("message").and_then(Value::as_str).unwrap_or_default();
    match to {
        "done" => Ending::Ran(Known::Done(Arc::new(detail.get("output").cloned().unwrap_or_default()))),
        "failed" => Ending::Ran(Known::Failed(Failure { code: failure_code(cause), message: message.to_owned() })),
        "not_started" => Ending::NotStarted(Why::Interrupted),
        _ => {
            let loss = [Loss::TimedOut, Loss::ConnectionLost, Loss::Killed, Loss::Stopped, Loss::DaemonEnded]
                .into_iter()
                .find(|loss| Some(loss_code(loss)) == cause)
                .unwrap_or_else(|| Loss::Panicked(message.to_owned()));
            let way_out = match detail.get("way_out").and_then(Value::as_str) {
                Some("ask_again") => WayOut::AskAgain,
                Some("query_first") => WayOut::QueryFirst,
                _ => WayOut::Hold,
            };
            Ending::Ran(Known::Unknown { loss, way_out })
        }
    }
}

/// A failure's code is a static word; one that was read from the log is matched with those that this build writes.
fn failure_code(cause: Option<&str>) -> &'static str {
    const KNOWN: [&str; 8] = [
        "connection_refused",
        "timed_out",
        "illegal_address",
        "illegal_value",
        "illegal_function",
        "device_failure",
        "no_such_file",
        "out_of_range",
    ];
    KNOWN.into_iter().find(|known| Some(*known) == cause).unwrap_or("failed_before_restart")
}

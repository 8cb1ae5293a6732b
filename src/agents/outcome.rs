//! The end of a call as a `CallToolResult`.
//!
//! Models read the text and programs read the rest, so both say the same. Two things must never blur: a refusal by
//! policy is not "no such tool", and an unknown outcome is not a failure. A model that takes "unknown" for "failed"
//! tries again, and the pump starts twice.

use interlock_domain::id::CallId;
use serde_json::{Map, Value, json};

use crate::agents::engine::{Ending, NotSubmitted, Output, QuestionView, ReplyView};
use crate::mcp::rpc::{self, RpcError};
use crate::mcp::shape;

/// `_meta` of a result: ending, code, call, evidence, task.
pub const META_OUTCOME: &str = "interlock/outcome";

/// Writes the end of a call.
///
/// # Errors
/// The protocol error of another server's tool is passed on as it came.
pub fn result(call: CallId, reply: ReplyView) -> Result<Value, RpcError> {
    let outcome = json!({
        "ending": reply.ending.as_str(),
        "code": reply.code,
        "call": call.to_string(),
        "evidence": reply.evidence,
        "task": reply.task.map(|task| task.to_string()),
    });
    match (reply.ending, reply.output) {
        (_, Some(Output::Error(error))) => Err(error),
        (Ending::Done | Ending::Failed, Some(Output::Result(mut result))) => {
            *shape::member(shape::member(&mut result, "_meta"), META_OUTCOME) = outcome;
            Ok(result)
        }
        (Ending::Done, Some(Output::Object(output))) => {
            let text = output.to_string();
            Ok(written(text, Some(output), false, outcome))
        }
        (Ending::Done, None) => Ok(written(reply.message, None, false, outcome)),
        (ending @ (Ending::Failed | Ending::Unknown | Ending::NotStarted), _) => {
            let text = explain(ending, &reply.code, &reply.message, reply.evidence);
            Ok(written(text, None, true, outcome))
        }
    }
}

/// The end of a call that started a worker, once the worker has ended: what the call gave back when it started, in the
/// shape that the tool's output schema promises, and how the worker ended, for whoever reads.
///
/// # Errors
/// As [`result`].
pub fn followed(call: CallId, started: ReplyView, end: ReplyView) -> Result<Value, RpcError> {
    let output = match (end.ending, started.output) {
        (Ending::Done, Some(Output::Object(output))) => Some(output),
        (Ending::Done | Ending::Failed | Ending::Unknown | Ending::NotStarted, _) => None,
    };
    let mut result = result(call, ReplyView { task: started.task, ..end })?;
    if let Some(output) = output {
        result["structuredContent"] = output;
    }
    Ok(result)
}

/// The first text of a result.
#[must_use]
pub fn text(result: &Value) -> Option<String> {
    let text = result["content"].as_array()?.iter().find_map(|block| block["text"].as_str())?;
    Some(text.chars().take(TEXT_LEN_MAX).collect())
}

/// Characters of a result that its task repeats as its message.
const TEXT_LEN_MAX: usize = 200;

/// What a model has to know of a call that is not done.
fn explain(ending: Ending, code: &str, message: &str, evidence: Option<u64>) -> String {
    let row = evidence.map_or_else(String::new, |seq| format!(" Evidence row {seq}."));
    match ending {
        Ending::Done => message.to_owned(),
        Ending::Failed => format!("Failed ({code}): {message}. Nothing was changed by this call.{row}"),
        Ending::Unknown => format!(
            "OUTCOME UNKNOWN ({code}): {message}. The effect may or may not have happened. Do not repeat this call: \
             it could act twice. Read the state first, or ask a person.{row}"
        ),
        Ending::NotStarted => {
            let why = if is_denial(code) { "Refused by policy" } else { "Not started" };
            format!("{why} ({code}): {message}. Nothing was changed.{row}")
        }
    }
}

/// The codes of a refusal that somebody decided, as against one that circumstances brought.
fn is_denial(code: &str) -> bool {
    code.starts_with("denied") || matches!(code, "policy" | "nobody_to_ask" | "ask_timed_out" | "definition_changed")
}

/// A `CallToolResult`. Put together by hand: `json!` would copy what the tool gave back.
fn written(text: String, structured: Option<Value>, is_error: bool, outcome: Value) -> Value {
    let object = |members: Vec<(&str, Value)>| {
        Value::Object(members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect::<Map<_, _>>())
    };
    let content = object(vec![("type", "text".into()), ("text", text.into())]);
    let meta = object(vec![(META_OUTCOME, outcome)]);
    let mut members = vec![("content", Value::Array(vec![content])), ("isError", is_error.into()), ("_meta", meta)];
    members.extend(structured.map(|structured| ("structuredContent", structured)));
    object(members)
}

/// What is said of a call that the engine did not take in.
///
/// # Errors
/// A tool that does not exist is a mistake in the protocol; everything else is an answer that a model can act on.
pub fn not_submitted(tool: &str, why: NotSubmitted) -> Result<Value, RpcError> {
    let (code, message) = match why {
        NotSubmitted::NoSuchTool => {
            return Err(RpcError::new(rpc::INVALID_PARAMS, format!("unknown tool: {tool}")));
        }
        NotSubmitted::BadArguments(what) => ("bad_arguments", what),
        NotSubmitted::Busy => ("busy", "too many calls are under way; try again later".to_owned()),
        NotSubmitted::Stopping => ("stopping", "the daemon is stopping".to_owned()),
    };
    let outcome = json!({"ending": "not_started", "code": code, "call": null, "evidence": null, "task": null});
    Ok(written(explain(Ending::NotStarted, code, &message, None), None, true, outcome))
}

/// What is said when nobody answered the question in time. The question stays open, and so does the call.
#[must_use]
pub fn waiting(call: CallId, question: &QuestionView) -> Value {
    let text = format!(
        "Waiting for a person: question {} ({}) is not answered yet. {} / {} A person answers it with `interlock ask \
         allow {}` or `interlock ask deny {}` on the box; if it is allowed, this call runs then. Do not send the call \
         again while the question is open.",
        question.id,
        question.kind.as_str(),
        question.text_en,
        question.text_zh,
        question.id,
        question.id
    );
    let outcome = json!({
        "ending": null,
        "code": "question_open",
        "call": call.to_string(),
        "question": question.id.to_string(),
        "kind": question.kind.as_str(),
        "until": question.until.0,
        "evidence": null,
        "task": null,
    });
    written(text, None, true, outcome)
}

#[cfg(test)]
mod tests {
    use interlock_domain::id::{BatchId, RunId, TaskId};

    use super::*;

    fn call() -> CallId {
        CallId { run: RunId::new(1_764_500_000_000, 7), batch: BatchId(3), position: 0 }
    }

    fn reply(ending: Ending, code: &str, output: Option<Output>, message: &str) -> ReplyView {
        ReplyView { ending, code: code.into(), output, message: message.into(), evidence: Some(42), task: None }
    }

    fn outcome(ending: &str, code: &str) -> Value {
        let call = call().to_string();
        json!({META_OUTCOME: {"ending": ending, "code": code, "call": call, "evidence": 42, "task": null}})
    }

    #[test]
    fn a_done_call_gives_the_object_and_the_same_as_text() {
        let output = json!({"value": 7});
        let mut with_task = reply(Ending::Done, "ok", Some(Output::Object(output.clone())), "");
        with_task.task = Some(TaskId(3));
        let result = result(call(), with_task).expect("a result");
        assert_eq!(result["structuredContent"], output);
        assert_eq!(result["content"], json!([{"type": "text", "text": output.to_string()}]));
        assert_eq!(result["isError"], false);
        assert_eq!(result["_meta"][META_OUTCOME]["task"], "t3");
    }

    fn check(ending: Ending, code: &str, text: &str) {
        let got = result(call(), reply(ending, code, None, "pump 2 does not answer")).expect("a result");
        let expected = json!({
            "content": [{"type": "text", "text": text}],
            "isError": true,
            "_meta": outcome(ending.as_str(), code),
        });
        assert_eq!(got, expected);
    }

    #[test]
    fn the_endings_that_are_not_done_are_told_apart() {
        check(
            Ending::Failed,
            "illegal_address",
            "Failed (illegal_address): pump 2 does not answer. Nothing was changed by this call. Evidence row 42.",
        );
        check(
            Ending::Unknown,
            "timed_out",
            "OUTCOME UNKNOWN (timed_out): pump 2 does not answer. The effect may or may not have happened. Do not \
             repeat this call: it could act twice. Read the state first, or ask a person. Evidence row 42.",
        );
        check(
            Ending::NotStarted,
            "denied_by_rule",
            "Refused by policy (denied_by_rule): pump 2 does not answer. Nothing was changed. Evidence row 42.",
        );
        check(
            Ending::NotStarted,
            "expired",
            "Not started (expired): pump 2 does not answer. Nothing was changed. Evidence row 42.",
        );
    }

    #[test]
    fn another_servers_answer_passes_unchanged_but_for_our_mark() {
        let theirs = json!({"content": [{"type": "image", "data": "AA==", "mimeType": "image/png"}], "new": {"x": 1}});
        let result = result(call(), reply(Ending::Done, "ok", Some(Output::Result(theirs.clone())), "")).expect("one");
        let mut expected = theirs;
        expected["_meta"] = outcome("done", "ok");
        assert_eq!(result, expected);
    }

    #[test]
    fn another_servers_protocol_error_passes_unchanged() {
        let theirs = RpcError::new(-32021, "needs sampling").with(json!({"requiredCapabilities": {"sampling": {}}}));
        let got = result(call(), reply(Ending::Failed, "rpc", Some(Output::Error(theirs.clone())), ""));
        assert_eq!(got, Err(theirs));
    }

    #[test]
    fn only_a_tool_that_does_not_exist_is_a_protocol_error() {
        let unknown = not_submitted("nope", NotSubmitted::NoSuchTool);
        assert_eq!(unknown.map_err(|error| (error.code, error.message)), Err((-32602, "unknown tool: nope".into())));
        let busy = not_submitted("pump", NotSubmitted::Busy).expect("a result");
        assert_eq!((&busy["isError"], &busy["_meta"][META_OUTCOME]["code"]), (&json!(true), &json!("busy")));
    }
}

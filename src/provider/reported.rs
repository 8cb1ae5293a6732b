//! Errors that a provider reports, inside a stream or instead of one, and whether the same request may do better later.
//!
//! Nothing is retried in here. Whoever retries must know that nothing was dispatched, which holds for every end but
//! `complete`. Where a report says nothing that we know, it counts as final: a request repeated for ever helps nobody.

use super::end::{Fault, clipped};
use super::json::Json;

/// Parts of an error's type or code that say: not this way, however often.
const FINAL: &[&str] = &[
    "insufficient_quota",
    "exceeded_current_quota",
    "quotaexceeded",
    "billing",
    "credit",
    "arrear",
    "overdue",
    "balance",
    "payment",
    "invalid",
    "badrequest",
    "bad_request",
    "authentication",
    "permission",
    "forbidden",
    "unauthorized",
    "unauthenticated",
    "not_found",
    "notfound",
    "too_large",
    "context_length",
    "content_filter",
    "contentfilter",
    "policy",
    "moderation",
    "inspection",
    "unsupported",
    "failed_precondition",
    "access",
];

/// Parts of an error's type or code that say: later, perhaps.
const PASSING: &[&str] = &[
    "overload",
    "rate_limit",
    "ratelimit",
    "throttl",
    "too_many_requests",
    "toomanyrequests",
    "timeout",
    "timed_out",
    "unavailable",
    "server_error",
    "servererror",
    "internal",
    "api_error",
    "capacity",
    "busy",
    "resource_exhausted",
    "insufficient_system_resource",
    "deadline_exceeded",
    "aborted",
    "slow_down",
    "network_error",
    "connection",
    "upstream",
    "bad_gateway",
    "limit_burst",
];

/// Parts of a message that say the same, where there is no better word.
const PASSING_SAID: &[&str] = &[
    "overloaded",
    "rate limit",
    "try again",
    "temporarily",
    "timed out",
    "timeout",
    "too many requests",
    "unavailable",
    "server is busy",
    "繁忙",
    "限流",
    "频率",
    "并发",
    "稍后",
];

/// Whether an HTTP status says that the same request may do better later (RFC 9110, and 529 of Anthropic's).
#[must_use]
pub fn passing_status(status: u16) -> bool {
    matches!(status, 408 | 409 | 425 | 429) || (500..=599).contains(&status) && status != 501
}

/// The error that a frame reports, if it does. `event` is the frame's name.
pub(super) fn reported(event: &str, frame: &Json<'_>) -> Option<Fault> {
    let says = |error: &&Json<'_>| match error {
        Json::Text(text) => !text.is_empty(),
        Json::Object(members) => !members.is_empty(),
        Json::Bool(error) => *error,
        Json::Null => false,
        Json::Number(_) | Json::Array(_) => true,
    };
    if let Some(error) = frame.get("error").filter(says) {
        return Some(fault(error, frame));
    }
    let is_error = |key| frame.text_of(key) == Some("error");
    if event == "error" || is_error("type") || is_error("object") || frame.text_of("event") == Some("error") {
        return Some(fault(frame, frame));
    }
    // SenseNova says how it went beside each chunk.
    if let Some(status) = frame.get("status").filter(|status| status.is_object()) {
        let code = status.get("code").and_then(Json::as_i64).unwrap_or(0);
        return (!matches!(code, 0 | 200)).then(|| fault(status, status));
    }
    let base = frame.get("base_resp")?;
    let status = base.get("status_code").and_then(Json::as_i64).filter(|status| *status != 0)?;
    let message = clipped(base.text_of("status_msg").unwrap_or_default());
    // MiniMax: unknown, timed out, too often, inside.
    let retryable = matches!(status, 1000 | 1001 | 1002 | 1013);
    Some(Fault::Provider { retryable, kind: status.to_string(), message })
}

/// An object that is no answer of any format, and says something like an error.
pub(super) fn bare(frame: &Json<'_>) -> Option<Fault> {
    let says = ["message", "msg", "detail", "error_msg"].iter().any(|key| frame.get(key).is_some());
    let counts = ["code", "status", "type", "error_code", "status_code", "detail"];
    (says && counts.iter().any(|key| frame.get(key).is_some())).then(|| fault(frame, frame))
}

/// A reported error as text.
pub(super) fn said(text: &str) -> Fault {
    Fault::Provider { retryable: retryable(&[], None, text), kind: "error".to_owned(), message: clipped(text) }
}

/// A word that is not worth telling.
fn tells_nothing(word: &str) -> bool {
    word.is_empty() || word == "error"
}

fn fault(error: &Json<'_>, around: &Json<'_>) -> Fault {
    if let Some(text) = error.as_text() {
        // xAI: the code stands beside the error's text.
        let code = around.text_of("code").unwrap_or_default();
        let kind = if code.is_empty() { "error" } else { code };
        let status = around.get("status_code").and_then(Json::as_i64);
        return Fault::Provider {
            retryable: retryable(&[code], status, text),
            kind: clipped(kind),
            message: clipped(text),
        };
    }
    let words: Vec<String> = ["type", "code", "status", "error_code", "reason"]
        .iter()
        .filter_map(|key| error.get(key))
        .filter_map(|value| value.as_text().map(str::to_owned).or_else(|| value.as_i64().map(|n| n.to_string())))
        .filter(|word| !tells_nothing(word))
        .collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let status = ["code", "status", "status_code", "http_code", "error_code"]
        .iter()
        .find_map(|key| error.get(key).or_else(|| around.get(key)).and_then(Json::as_i64));
    let message = ["message", "msg", "detail", "error_msg", "error"]
        .iter()
        .find_map(|key| error.get(key))
        .map(|said| said.as_text().map_or_else(|| said.to_value().to_string(), str::to_owned))
        .unwrap_or_default();
    let kind = words.first().copied().unwrap_or("error");
    Fault::Provider { retryable: retryable(&words, status, &message), kind: clipped(kind), message: clipped(&message) }
}

fn retryable(words: &[&str], status: Option<i64>, message: &str) -> bool {
    let lower: Vec<String> = words.iter().map(|word| word.to_lowercase().replace([' ', '-', '.'], "_")).collect();
    let any = |parts: &[&str]| lower.iter().any(|word| parts.iter().any(|part| word.contains(part)));
    if any(FINAL) {
        return false;
    }
    // GLM: too many at once, too often, too much traffic.
    if any(PASSING) || lower.iter().any(|word| matches!(word.as_str(), "1302" | "1303" | "1305")) {
        return true;
    }
    match status {
        Some(status @ 400..=599) => u16::try_from(status).is_ok_and(passing_status),
        Some(_) | None => {
            let message = message.to_lowercase();
            PASSING_SAID.iter().any(|part| message.contains(part))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(event: &str, frame: &str, want: Option<(bool, &str)>) {
        let json: Json<'_> = serde_json::from_str(frame).unwrap();
        let got = reported(event, &json).or_else(|| bare(&json));
        let got = got.map(|fault| {
            let Fault::Provider { retryable, kind, .. } = fault else { panic!("{fault:?}") };
            (retryable, kind)
        });
        assert_eq!(got, want.map(|(retryable, kind)| (retryable, kind.to_owned())), "{frame}");
    }

    #[test]
    fn an_error_says_whether_the_same_request_may_do_better_later() {
        let nested = |inner: &str| format!("{{\"error\":{inner}}}");
        let table = [
            (r#"{"type":"overloaded_error","message":"x"}"#, (true, "overloaded_error")),
            (r#"{"type":"api_error","message":"x"}"#, (true, "api_error")),
            (r#"{"type":"rate_limit_error","message":"x"}"#, (true, "rate_limit_error")),
            (r#"{"type":"invalid_request_error","message":"try again"}"#, (false, "invalid_request_error")),
            (r#"{"type":"authentication_error","message":"x"}"#, (false, "authentication_error")),
            (
                r#"{"type":"insufficient_quota","code":"insufficient_quota","message":"x"}"#,
                (false, "insufficient_quota"),
            ),
            (r#"{"type":"tokens","code":"rate_limit_exceeded","message":"x"}"#, (true, "tokens")),
            (r#"{"code":503,"message":"x","status":"UNAVAILABLE"}"#, (true, "503")),
            (r#"{"code":429,"message":"x","status":"RESOURCE_EXHAUSTED"}"#, (true, "429")),
            (r#"{"code":400,"message":"x","status":"INVALID_ARGUMENT"}"#, (false, "400")),
            (r#"{"code":"1302","message":"您的账户已达到速率限制"}"#, (true, "1302")),
            (r#"{"code":"1113","message":"余额不足"}"#, (false, "1113")),
            (r#"{"code":402,"message":"Insufficient credits"}"#, (false, "402")),
            (r#"{"code":502,"message":"Provider returned error"}"#, (true, "502")),
            (r#"{"code":"ServerOverloaded","message":"x","type":"TooManyRequests"}"#, (true, "TooManyRequests")),
            (r#"{"code":"AccountOverdueError","message":"x","type":"Forbidden"}"#, (false, "Forbidden")),
            (r#"{"message":"x","type":"engine_overloaded_error"}"#, (true, "engine_overloaded_error")),
            (r#"{"message":"x","type":"exceeded_current_quota_error"}"#, (false, "exceeded_current_quota_error")),
            (r#"{"message":"x"}"#, (false, "error")),
            (r#"{"message":"The server is busy, try again"}"#, (true, "error")),
            (r#""model not found""#, (false, "error")),
            (r#""server overloaded""#, (true, "error")),
        ];
        for (inner, want) in table {
            check("", &nested(inner), Some(want));
        }
        check("error", r#"{"message":"x","code":500}"#, Some((true, "500")));
        check(
            "",
            r#"{"object":"error","message":"x","type":"BadRequestError","code":400}"#,
            Some((false, "BadRequestError")),
        );
        check("", r#"{"type":"error","code":"server_error","message":"x"}"#, Some((true, "server_error")));
        check(
            "",
            r#"{"code":"Throttling.RateQuota","message":"x","request_id":"r"}"#,
            Some((true, "Throttling.RateQuota")),
        );
        check("", r#"{"code":"InvalidApiKey","message":"x"}"#, Some((false, "InvalidApiKey")));
        check("", r#"{"detail":"Not Found"}"#, Some((false, "error")));
        check("", r#"{"code":"rate-limit","error":"too fast"}"#, Some((true, "rate-limit")));
        check("", r#"{"base_resp":{"status_code":1002,"status_msg":"x"}}"#, Some((true, "1002")));
        check("", r#"{"base_resp":{"status_code":1008,"status_msg":"x"}}"#, Some((false, "1008")));
        check("", r#"{"base_resp":{"status_code":0},"choices":[]}"#, None);
        check("", r#"{"error":null,"choices":[]}"#, None);
        check("", r#"{"error":{},"choices":[]}"#, None);
        check("", r#"{"data":{"choices":[]},"status":{"code":0,"message":"ok"}}"#, None);
        check("", r#"{"status":{"code":429,"message":"x"}}"#, Some((true, "429")));
    }
}

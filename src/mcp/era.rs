//! The two eras of MCP and how one result is written in each.
//!
//! The revisions up to 2025-11-25 open a session with `initialize`; 2026-07-28 has no session, and every request says
//! for itself which revision it speaks and what its client can do. One core answers both: what differs on the wire
//! differs in here.

use serde_json::{Map, Value, json};

use crate::mcp::rpc::{self, RpcError};

/// The revision without sessions.
pub const MODERN: &str = "2026-07-28";
/// The revisions with sessions that are served, newest first. Older ones allow batches, which are not served.
pub const LEGACY: [&str; 2] = ["2025-11-25", "2025-06-18"];

/// `_meta` of a request: the revision that it speaks.
pub const META_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
/// `_meta` of a request: what its client can do.
pub const META_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
/// `_meta` of a request: which program sent it.
pub const META_CLIENT: &str = "io.modelcontextprotocol/clientInfo";
/// `_meta` of a request: the least severe log message that it wants.
pub const META_LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
/// `_meta` of a result: which program answered.
pub const META_SERVER: &str = "io.modelcontextprotocol/serverInfo";
/// `_meta` of what comes on a subscription: the id of the request that opened it.
pub const META_SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";
/// The extension for Tasks.
pub const TASKS: &str = "io.modelcontextprotocol/tasks";

/// How long a client may keep a list, in milliseconds. Changes are announced besides; this bounds how long a client
/// that does not listen believes in a tool that is gone.
const LIST_TTL_MS: u64 = 60_000;

/// The era that a request belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Era {
    /// With `initialize` and a session.
    Legacy,
    /// Every request for itself.
    Modern,
}

/// What a request of the modern era says of itself.
#[derive(Debug, Clone, PartialEq)]
pub struct Envelope {
    /// What the client can do.
    pub capabilities: Value,
    /// Which program it is; null when it does not say.
    pub client: Value,
}

/// Whether the parameters carry a revision: only the modern era puts one there.
#[must_use]
pub fn names_a_version(params: &Map<String, Value>) -> bool {
    meta(params).is_some_and(|meta| meta.contains_key(META_VERSION))
}

/// The `_meta` of parameters, where it is an object.
#[must_use]
pub fn meta(params: &Map<String, Value>) -> Option<&Map<String, Value>> {
    params.get("_meta").and_then(Value::as_object)
}

/// Checks what every request of the modern era has to carry.
///
/// # Errors
/// `UNSUPPORTED_VERSION` for a revision that is not served, `INVALID_PARAMS` when a member is missing or of the wrong
/// kind. The order is part of the protocol: version first.
pub fn envelope(params: &Map<String, Value>) -> Result<Envelope, RpcError> {
    let missing = |what: &str| RpcError::new(rpc::INVALID_PARAMS, format!("params._meta has no \"{what}\""));
    let meta = meta(params).ok_or_else(|| missing(META_VERSION))?;
    match meta.get(META_VERSION) {
        Some(Value::String(version)) if version == MODERN => {}
        Some(Value::String(version)) => return Err(unsupported(version)),
        _ => return Err(missing(META_VERSION)),
    }
    match meta.get(META_CAPABILITIES) {
        Some(capabilities @ Value::Object(_)) => Ok(Envelope {
            capabilities: capabilities.clone(),
            client: meta.get(META_CLIENT).cloned().unwrap_or(Value::Null),
        }),
        _ => Err(missing(META_CAPABILITIES)),
    }
}

/// What is said to a client that speaks a revision that is not served.
#[must_use]
pub fn unsupported(requested: &str) -> RpcError {
    let shown: String = requested.chars().take(64).collect();
    RpcError::new(rpc::UNSUPPORTED_VERSION, format!("protocol version {shown:?} is not served without a session"))
        .with(json!({"supported": [MODERN], "requested": shown}))
}

/// The revision that `initialize` settles on: the one asked for where it is served, else our newest.
#[must_use]
pub fn settle(asked: Option<&str>) -> &'static str {
    LEGACY.into_iter().find(|served| Some(*served) == asked).unwrap_or(LEGACY[0])
}

/// The kinds of results that the eras write differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An ordinary result.
    Plain,
    /// A list or something read: the modern era says how long it may be kept.
    Cached,
}

/// Adds to a result what its era demands.
#[must_use]
pub fn finish(mut result: Value, era: Era, kind: Kind, server: &Value) -> Value {
    match era {
        Era::Legacy => {}
        Era::Modern => {
            if let Some(members) = result.as_object_mut() {
                members.entry("resultType").or_insert_with(|| "complete".into());
                match kind {
                    Kind::Plain => {}
                    Kind::Cached => {
                        members.entry("ttlMs").or_insert_with(|| LIST_TTL_MS.into());
                        // The list depends on who asks (profiles), never on the connection.
                        members.entry("cacheScope").or_insert_with(|| "private".into());
                    }
                }
                let meta = members.entry("_meta").or_insert_with(|| json!({}));
                if let Some(meta) = meta.as_object_mut() {
                    meta.entry(META_SERVER).or_insert_with(|| server.clone());
                }
            }
        }
    }
    result
}

/// Whether a client with these capabilities can show a form to its user. An empty `elicitation` means forms: that is
/// what it meant before there were other modes.
#[must_use]
pub fn shows_forms(capabilities: &Value) -> bool {
    match capabilities.get("elicitation") {
        Some(Value::Object(modes)) => modes.contains_key("form") || !modes.contains_key("url"),
        _ => false,
    }
}

/// Whether the capability that a request to the client needs is among the declared ones.
///
/// # Errors
/// The capability that is not.
pub fn may_ask(capabilities: &Value, method: &str) -> Result<(), &'static str> {
    let needed = match method {
        "elicitation/create" => "elicitation",
        "sampling/createMessage" => "sampling",
        "roots/list" => "roots",
        _ => return Err("experimental"),
    };
    if capabilities.get(needed).is_some_and(Value::is_object) { Ok(()) } else { Err(needed) }
}

/// Whether a message of this severity is wanted when `least` is the least severe one wanted (RFC 5424 names).
#[must_use]
pub fn is_logged(level: &str, least: &str) -> bool {
    match (severity(level), severity(least)) {
        (Some(level), Some(least)) => level >= least,
        _ => false,
    }
}

/// The rank of a severity, or none when there is no such word.
#[must_use]
pub fn severity(level: &str) -> Option<usize> {
    ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
        .into_iter()
        .position(|name| name == level)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params(meta: Value) -> Map<String, Value> {
        json!({"_meta": meta}).as_object().expect("an object").clone()
    }

    fn check(meta: Value, code: Result<(), i64>) {
        let text = meta.to_string();
        assert_eq!(envelope(&params(meta)).map(|_| ()).map_err(|error| error.code), code, "{text}");
    }

    #[test]
    fn every_modern_request_says_its_revision_and_its_capabilities() {
        check(json!({META_VERSION: MODERN, META_CAPABILITIES: {}}), Ok(()));
        check(json!({META_VERSION: MODERN, META_CAPABILITIES: {}, META_CLIENT: {"name": "x"}}), Ok(()));
        check(json!({META_CAPABILITIES: {}}), Err(rpc::INVALID_PARAMS));
        check(json!({META_VERSION: MODERN}), Err(rpc::INVALID_PARAMS));
        check(json!({META_VERSION: MODERN, META_CAPABILITIES: []}), Err(rpc::INVALID_PARAMS));
        check(json!({META_VERSION: 7, META_CAPABILITIES: {}}), Err(rpc::INVALID_PARAMS));
        check(json!({META_VERSION: "2025-11-25", META_CAPABILITIES: {}}), Err(rpc::UNSUPPORTED_VERSION));
        // The version comes first: a client of tomorrow must learn which one to fall back to.
        check(json!({META_VERSION: "2027-01-01"}), Err(rpc::UNSUPPORTED_VERSION));
        check(Value::Null, Err(rpc::INVALID_PARAMS));
        check(json!([]), Err(rpc::INVALID_PARAMS));
    }

    #[test]
    fn an_unknown_revision_is_told_which_are_served() {
        assert_eq!(unsupported("v999").data, Some(json!({"supported": ["2026-07-28"], "requested": "v999"})));
    }

    #[test]
    fn initialize_settles_on_what_both_speak() {
        assert_eq!(settle(Some("2025-11-25")), "2025-11-25");
        assert_eq!(settle(Some("2025-06-18")), "2025-06-18");
        assert_eq!(settle(Some("2024-11-05")), "2025-11-25");
        assert_eq!(settle(Some("2026-07-28")), "2025-11-25");
        assert_eq!(settle(None), "2025-11-25");
    }

    #[test]
    fn only_the_modern_era_writes_result_types_and_lifetimes() {
        let server = json!({"name": "interlock", "version": "0"});
        let list = json!({"tools": []});
        assert_eq!(finish(list.clone(), Era::Legacy, Kind::Cached, &server), list);
        assert_eq!(
            finish(list, Era::Modern, Kind::Cached, &server),
            json!({"tools": [], "resultType": "complete", "ttlMs": 60_000, "cacheScope": "private",
                "_meta": {META_SERVER: {"name": "interlock", "version": "0"}}})
        );
        assert_eq!(
            finish(json!({"resultType": "input_required", "_meta": {"a": 1}}), Era::Modern, Kind::Plain, &server),
            json!({"resultType": "input_required",
                "_meta": {"a": 1, META_SERVER: {"name": "interlock", "version": "0"}}})
        );
    }

    #[test]
    fn a_form_is_shown_only_to_those_who_can_show_one() {
        for (capabilities, shows) in [
            (json!({}), false),
            (json!({"elicitation": {}}), true),
            (json!({"elicitation": {"form": {}}}), true),
            (json!({"elicitation": {"form": {}, "url": {}}}), true),
            (json!({"elicitation": {"url": {}}}), false),
            (json!({"elicitation": true}), false),
        ] {
            assert_eq!(shows_forms(&capabilities), shows, "{capabilities}");
        }
        assert_eq!(may_ask(&json!({"sampling": {}}), "sampling/createMessage"), Ok(()));
        assert_eq!(may_ask(&json!({}), "roots/list"), Err("roots"));
    }

    #[test]
    fn a_log_message_is_sent_from_the_level_that_was_asked_for() {
        for (level, least, sent) in [
            ("info", "info", true),
            ("debug", "info", false),
            ("emergency", "debug", true),
            ("loud", "debug", false),
            ("info", "", false),
        ] {
            assert_eq!(is_logged(level, least), sent, "{level} at {least}");
        }
    }
}

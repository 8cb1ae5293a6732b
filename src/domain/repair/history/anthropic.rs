//! Anthropic Messages, read into turns and written out again.

use serde_json::{Map, Value, json};

use super::turns::{Part, Piece, Side, Turn};
use super::{Removed, word};
use crate::repair::Stub;

/// An id that Anthropic takes.
pub(in crate::repair) fn is_id(id: &str) -> bool {
    !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
}

pub(super) fn read(message: Value, removed: &mut Removed) -> Option<Turn> {
    let Value::Object(mut rest) = message else { return None };
    let side = match rest.get("role").and_then(Value::as_str) {
        Some("user") => Side::User,
        Some("assistant") => Side::Model,
        Some(_) | None => return None,
    };
    let (bare, content) = match rest.remove("content") {
        Some(Value::String(text)) => (true, vec![json!({"type": "text", "text": text})]),
        Some(Value::Array(content)) => (false, content),
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) | None => return None,
    };
    let parts = content.into_iter().filter_map(|part| read_part(part, side, removed)).collect();
    Some(Turn { side, rest, bare, parts })
}

fn read_part(raw: Value, side: Side, removed: &mut Removed) -> Option<Part> {
    if !raw.is_object() {
        removed.left_out.push("a part that is no object".to_owned());
        return None;
    }
    let piece = |key: &str, raw: &Value| (word(raw, key).to_owned(), word(raw, "name").to_owned());
    match (word(&raw, "type"), side) {
        ("tool_use", Side::Model) => {
            let (id, name) = piece("id", &raw);
            if name.is_empty() {
                // Nobody can say what it called; its result goes with it.
                removed.quarantined.push(id);
                return None;
            }
            Some(Part::Call(Piece { id, name, raw }))
        }
        ("tool_result", Side::User) => {
            let (id, name) = piece("tool_use_id", &raw);
            Some(Part::Answer(Piece { id, name, raw }))
        }
        ("tool_use", Side::User) => {
            removed.quarantined.push(piece("id", &raw).0);
            None
        }
        ("tool_result", Side::Model) => {
            removed.quarantined.push(piece("tool_use_id", &raw).0);
            None
        }
        ("text", _) if word(&raw, "text").trim().is_empty() => None,
        // A thought without its signature is refused, and so is anybody else's.
        ("thinking", Side::Model) if word(&raw, "signature").is_empty() => None,
        ("thinking" | "redacted_thinking", Side::User) | ("image" | "document", Side::Model) => {
            removed.left_out.push(format!("{} in the wrong place", word(&raw, "type")));
            None
        }
        _ => Some(Part::Other(raw)),
    }
}

pub(super) fn write(turn: Turn) -> Value {
    let mut message = turn.rest;
    let role = match turn.side {
        Side::User => "user",
        Side::Model => "assistant",
    };
    if message.get("role").and_then(Value::as_str) != Some(role) {
        message.insert("role".to_owned(), role.into());
    }
    let mut parts: Vec<Value> = turn.parts.into_iter().map(raw).collect();
    let content = match parts.as_mut_slice() {
        [only] if turn.bare => only["text"].take(),
        _ => Value::Array(parts),
    };
    message.insert("content".to_owned(), content);
    Value::Object(message)
}

fn raw(part: Part) -> Value {
    match part {
        Part::Call(piece) | Part::Answer(piece) => piece.raw,
        Part::Other(raw) => raw,
    }
}

pub(super) fn stub(id: &str, stub: Stub) -> Value {
    json!({"type": "tool_result", "tool_use_id": id, "is_error": true, "content": stub.text()})
}

pub(super) fn opening(text: &str) -> Turn {
    let part = Part::Other(json!({"type": "text", "text": text}));
    Turn { side: Side::User, rest: Map::new(), bare: false, parts: vec![part] }
}

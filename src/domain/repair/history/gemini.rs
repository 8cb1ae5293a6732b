//! Gemini contents, read into turns and written out again.

use serde_json::{Map, Value, json};

use super::turns::{Part, Piece, Side, Turn};
use super::{Removed, word};
use crate::repair::Stub;

pub(super) fn read(content: Value, removed: &mut Removed) -> Option<Turn> {
    let Value::Object(mut rest) = content else { return None };
    let side = match rest.get("role").and_then(Value::as_str) {
        // Results had a role of their own once; without a role, it is the asker.
        Some("user" | "function") | None => Side::User,
        Some("model") => Side::Model,
        Some(_) => return None,
    };
    let Some(Value::Array(parts)) = rest.remove("parts") else { return None };
    let parts = parts.into_iter().filter_map(|part| read_part(part, side, removed)).collect();
    Some(Turn { side, rest, bare: false, parts })
}

fn read_part(raw: Value, side: Side, removed: &mut Removed) -> Option<Part> {
    let piece = |inner: &Value| (word(inner, "id").to_owned(), word(inner, "name").to_owned());
    match (raw.get("functionCall"), raw.get("functionResponse"), side) {
        (Some(call), _, Side::Model) => {
            let (id, name) = piece(call);
            if name.is_empty() {
                // Nobody can say what it called; its result goes with it.
                removed.quarantined.push(id);
                return None;
            }
            Some(Part::Call(Piece { id, name, raw }))
        }
        (None, Some(response), Side::User) => {
            let (id, name) = piece(response);
            Some(Part::Answer(Piece { id, name, raw }))
        }
        (Some(misplaced), _, Side::User) | (None, Some(misplaced), Side::Model) => {
            let (id, name) = piece(misplaced);
            removed.quarantined.push(if id.is_empty() { name } else { id });
            None
        }
        (None, None, _) => {
            let empty = match raw.as_object() {
                None => true,
                // A part with nothing but an empty text; a signature on it would count.
                Some(members) => members.is_empty() || members.len() == 1 && raw["text"] == "",
            };
            (!empty).then_some(Part::Other(raw))
        }
    }
}

pub(super) fn write(turn: Turn) -> Value {
    let mut content = turn.rest;
    let role = match turn.side {
        Side::User => "user",
        Side::Model => "model",
    };
    if content.get("role").and_then(Value::as_str) != Some(role) {
        content.insert("role".to_owned(), role.into());
    }
    let parts = turn.parts.into_iter().map(|part| match part {
        Part::Call(piece) | Part::Answer(piece) => piece.raw,
        Part::Other(raw) => raw,
    });
    content.insert("parts".to_owned(), parts.collect());
    Value::Object(content)
}

pub(super) fn stub(id: &str, name: &str, stub: Stub) -> Value {
    let mut inner = json!({"name": name, "response": {"error": stub.text()}});
    if !id.is_empty() {
        inner["id"] = id.into();
    }
    json!({ "functionResponse": inner })
}

pub(super) fn opening(text: &str) -> Turn {
    let part = Part::Other(json!({ "text": text }));
    Turn { side: Side::User, rest: Map::new(), bare: false, parts: vec![part] }
}

//! OpenAI Chat messages, read into turns and written out again.
//!
//! Its messages stay apart: two of one role in a row are legal there. What counts is that the results of a message's
//! calls come right behind it.

use std::collections::VecDeque;

use serde_json::{Map, Value, json};

use super::turns::{Part, Piece, Side, Turn};
use super::{Removed, word};
use crate::repair::Stub;

pub(super) fn read(mut message: Value, removed: &mut Removed) -> Option<Turn> {
    let role = word(&message, "role").to_owned();
    let turn = |side, parts| Some(Turn { side, rest: Map::new(), bare: false, parts });
    match role.as_str() {
        "tool" => {
            let (id, name) = (word(&message, "tool_call_id").to_owned(), word(&message, "name").to_owned());
            turn(Side::User, vec![Part::Answer(Piece { id, name, raw: message })])
        }
        "assistant" => {
            let members = message.as_object_mut()?;
            // `null` is as good as absent and stays; an empty list is refused.
            let listed = members.get("tool_calls").is_some_and(|calls| !calls.is_null());
            let calls = match listed.then(|| members.remove("tool_calls")).flatten() {
                Some(Value::Array(calls)) => calls,
                Some(_) | None => Vec::new(),
            };
            let says = ["content", "refusal", "audio", "function_call"].iter().any(|key| says(members.get(*key)));
            let calls = calls.into_iter().filter_map(|raw| {
                let function = raw.get("function").or_else(|| raw.get("custom"));
                let name = function.map(|function| word(function, "name").to_owned()).unwrap_or_default();
                let call = Piece { id: word(&raw, "id").to_owned(), name, raw };
                if call.name.is_empty() {
                    // Nobody can say what it called; its result goes with it.
                    removed.quarantined.push(call.id);
                    return None;
                }
                Some(Part::Call(call))
            });
            let calls: Vec<Part> = calls.collect();
            if calls.is_empty() && !says {
                return turn(Side::Model, Vec::new());
            }
            turn(Side::Model, std::iter::once(Part::Other(message)).chain(calls).collect())
        }
        "user" if !says(message.get("content")) => turn(Side::User, Vec::new()),
        "user" | "system" | "developer" | "function" => turn(Side::User, vec![Part::Other(message)]),
        _ => None,
    }
}

fn says(content: Option<&Value>) -> bool {
    match content {
        None | Some(Value::Null) => false,
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Array(parts)) => !parts.is_empty(),
        Some(Value::Bool(_) | Value::Number(_) | Value::Object(_)) => true,
    }
}

pub(super) fn write(turns: Vec<Turn>) -> Vec<Value> {
    let mut messages = Vec::with_capacity(turns.len());
    let mut turns = turns.into_iter().peekable();
    while let Some(turn) = turns.next() {
        match turn.side {
            Side::User => messages.extend(turn.parts.into_iter().map(raw)),
            Side::Model => {
                // The results stand in the order of the calls, and each message takes those of its own.
                let mut reply: VecDeque<Part> =
                    turns.next_if(|next| next.side == Side::User).map(|next| next.parts.into()).unwrap_or_default();
                let mut parts = turn.parts.into_iter().peekable();
                while let Some(part) = parts.next() {
                    let mut message = raw(part);
                    let mut calls = Vec::new();
                    while let Some(Part::Call(call)) = parts.next_if(|part| matches!(part, Part::Call(_))) {
                        calls.push(call.raw);
                    }
                    let results = reply.drain(..calls.len().min(reply.len())).map(raw).collect::<Vec<_>>();
                    if !calls.is_empty() {
                        message["tool_calls"] = Value::Array(calls);
                    }
                    messages.push(message);
                    messages.extend(results);
                }
                messages.extend(reply.into_iter().map(raw));
            }
        }
    }
    messages
}

fn raw(part: Part) -> Value {
    match part {
        Part::Call(piece) | Part::Answer(piece) => piece.raw,
        Part::Other(raw) => raw,
    }
}

pub(super) fn stub(id: &str, stub: Stub) -> Value {
    json!({"role": "tool", "tool_call_id": id, "content": stub.text()})
}

//! Calls that a model prints as text, because its server has no parser for them.
//!
//! Off unless it is switched on for an endpoint: text may be an example, a quotation, or something that an attacker had
//! the model repeat. Switched on, only calls outside code fences count, only those of declared tools, and only ones
//! that are whole; everything else stays text.

use std::sync::Arc;

use interlock_domain::block::{Block, CallKind, Ids, Kept, ToolUse};
use serde_json::{Map, Value};

use super::TextCalls;
use super::call::CALLS_MAX;
use super::end::{Code, Notes};
use super::form::plain_text;

/// What calls in text begin with: Hermes and Qwen, Mistral, Llama, DeepSeek, Kimi, GLM and MiniMax.
const MARKS: [&str; 9] = [
    "<tool_call>",
    "[TOOL_CALLS]",
    "<|python_tag|>",
    "<function=",
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁call▁begin｜>",
    "<|tool_calls_section_begin|>",
    "<function_call>",
    "<minimax:tool_call>",
];
/// The pair that is read when it is switched on.
const OPENING: &str = "<tool_call>";
const CLOSING: &str = "</tool_call>";

/// Looks for calls in the text; takes them out of it where that is switched on.
pub(super) fn look(blocks: &mut Vec<Block>, switched: &TextCalls, ids: &mut Ids, notes: &mut Notes) {
    let seen = |block: &Block| plain_text(block).is_some_and(|text| MARKS.iter().any(|mark| text.contains(mark)));
    if !blocks.iter().any(seen) {
        return;
    }
    let TextCalls::Of(declared) = switched else {
        return notes.add(Code::TextToolCallSeen, "");
    };
    let room = CALLS_MAX.saturating_sub(blocks.iter().filter(|block| matches!(block, Block::ToolUse(_))).count());
    let mut taken = 0;
    let mut left = false;
    let mut calls = Vec::new();
    for block in &mut *blocks {
        let Block::Text { text, .. } = block else { continue };
        let mut kept = String::with_capacity(text.len());
        let mut rest = text.as_str();
        while let Some(at) = outside_fences(rest, OPENING) {
            let inner = &rest[at + OPENING.len()..];
            let call = inner.find(CLOSING).and_then(|end| Some((end, read(&inner[..end], declared)?)));
            match call {
                Some((end, (name, input))) if taken < room => {
                    kept.push_str(&rest[..at]);
                    calls.push((name, input));
                    taken += 1;
                    rest = &inner[end + CLOSING.len()..];
                }
                Some(_) | None => {
                    left = true;
                    kept.push_str(&rest[..at + OPENING.len()]);
                    rest = inner;
                }
            }
        }
        left |= MARKS.iter().any(|mark| rest.contains(mark));
        kept.push_str(rest);
        *text = kept;
    }
    blocks.retain(|block| plain_text(block).is_none_or(|text| !text.trim().is_empty()));
    if taken > 0 {
        notes.add(Code::TextToolCallTaken, "");
    }
    if left {
        notes.add(Code::TextToolCallSeen, "");
    }
    blocks.extend(calls.into_iter().map(|(name, input)| {
        Block::ToolUse(ToolUse {
            id: ids.take(""),
            provider_id: String::new(),
            name,
            input: Arc::new(Value::Object(input)),
            kind: CallKind::Function,
            kept: Kept::none(),
        })
    }));
}

/// Where `mark` stands first, not counting what is between lines that fence code.
fn outside_fences(text: &str, mark: &str) -> Option<usize> {
    let mut fenced = false;
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        if ["```", "~~~"].iter().any(|fence| line.trim_start().starts_with(fence)) {
            fenced = !fenced;
        } else if !fenced && let Some(found) = line.find(mark) {
            return Some(at + found);
        }
        at += line.len();
    }
    None
}

fn read(text: &str, declared: &[String]) -> Option<(String, Map<String, Value>)> {
    let Ok(Value::Object(mut call)) = serde_json::from_str(text.trim()) else { return None };
    let name =
        call.get("name").and_then(Value::as_str).filter(|name| declared.iter().any(|known| known == name))?.to_owned();
    match call.remove("arguments").or_else(|| call.remove("parameters")) {
        Some(Value::Object(input)) => Some((name, input)),
        None => Some((name, Map::new())),
        Some(Value::String(text)) => match serde_json::from_str(&text) {
            Ok(Value::Object(input)) => Some((name, input)),
            Ok(_) | Err(_) => None,
        },
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_)) => None,
    }
}

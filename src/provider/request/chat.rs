//! OpenAI Chat Completions and what is compatible with it.

use interlock_domain::block::{Block, CallKind, Image, ImageSource, Kept, Message, Provider, Role, ToolUse};
use serde_json::{Map, Value, json};

use super::super::ThoughtsBack;
use super::{Ask, attach, object, results_first, turn_begins};

pub(super) fn body(ask: &Ask<'_>, messages: Vec<Value>) -> Value {
    let tool = |tool: &super::Tool| {
        let function = json!({"name": tool.name, "description": tool.description, "parameters": tool.schema});
        json!({"type": "function", "function": function})
    };
    let system = (!ask.system.is_empty()).then(|| json!({"role": "system", "content": ask.system}));
    let mut body = json!({
        "model": ask.model,
        "max_tokens": ask.output_max,
        "messages": system.into_iter().chain(messages).collect::<Vec<_>>(),
        "stream": true,
        "stream_options": {"include_usage": true},
    });
    if !ask.tools.is_empty() {
        body["tools"] = ask.tools.iter().map(tool).collect();
    }
    body
}

pub(super) fn history(history: &[Message], thoughts: ThoughtsBack) -> Vec<Value> {
    let from = match thoughts {
        ThoughtsBack::Never => usize::MAX,
        ThoughtsBack::WithinTurn => turn_begins(history),
        ThoughtsBack::Always => 0,
    };
    let mut messages = Vec::with_capacity(history.len());
    for (at, message) in history.iter().enumerate() {
        match message.role {
            Role::User => user(message, &mut messages),
            Role::Assistant => messages.extend(assistant(message, at >= from)),
        }
    }
    messages
}

fn user(message: &Message, messages: &mut Vec<Value>) {
    let mut parts = Vec::new();
    for block in results_first(message) {
        match block {
            Block::ToolResult(result) => {
                messages.push(json!({"role": "tool", "tool_call_id": result.call.as_str(), "content": result.text}));
                // A result has no place for a picture: it comes right behind.
                parts.extend(result.images.iter().map(picture));
            }
            Block::Text { text, .. } if text.is_empty() => {}
            Block::Text { text, .. } => parts.push(json!({"type": "text", "text": text})),
            Block::Image(image) => parts.push(picture(image)),
            Block::Thinking { .. } | Block::RedactedThinking { .. } | Block::ToolUse(_) | Block::Opaque { .. } => {}
        }
    }
    let content = match parts.as_mut_slice() {
        [] => return,
        [only] if only["type"] == "text" => only["text"].take(),
        _ => Value::Array(parts),
    };
    messages.push(json!({"role": "user", "content": content}));
}

fn assistant(message: &Message, thoughts: bool) -> Option<Value> {
    let mut text = String::new();
    let mut thinking = String::new();
    let mut calls = Vec::new();
    let mut kept_back: Option<&Map<String, Value>> = None;
    for block in &message.blocks {
        match block {
            Block::Text { text: piece, .. } => text.push_str(piece),
            Block::Thinking { text: piece, from: Provider::Chat, kept, .. } if thoughts => {
                thinking.push_str(piece);
                kept_back = kept_back.or(kept.back_to(Provider::Chat));
            }
            Block::ToolUse(call) => calls.push(tool_call(call)),
            Block::Thinking { .. }
            | Block::RedactedThinking { .. }
            | Block::ToolResult(_)
            | Block::Image(_)
            | Block::Opaque { .. } => {}
        }
    }
    if text.is_empty() && calls.is_empty() {
        return None;
    }
    let content = if text.is_empty() { Value::Null } else { Value::from(text) };
    let mut value = object(json!({"role": "assistant", "content": content}));
    if !calls.is_empty() {
        value.insert("tool_calls".to_owned(), Value::Array(calls));
    }
    if let Some(kept) = kept_back {
        think(&mut value, kept, thinking);
    }
    Some(Value::Object(value))
}

/// A thought goes back where it came from.
fn think(value: &mut Map<String, Value>, kept: &Map<String, Value>, thinking: String) {
    if let Some(details) = kept.get("reasoning_details") {
        value.insert("reasoning_details".to_owned(), details.clone());
    }
    match kept.get("field").and_then(Value::as_str) {
        // Mistral: a part of the content.
        Some("content") => {
            let thought = json!({"type": "thinking", "thinking": [{"type": "text", "text": thinking}]});
            let text = value.get("content").and_then(Value::as_str).map(|text| json!({"type": "text", "text": text}));
            value.insert("content".to_owned(), std::iter::once(thought).chain(text).collect());
        }
        Some(field) if !thinking.is_empty() => drop(value.insert(field.to_owned(), thinking.into())),
        Some(_) | None => {}
    }
}

fn tool_call(call: &ToolUse) -> Value {
    let value = match call.kind {
        CallKind::Function | CallKind::Native => {
            let function = json!({"name": call.name, "arguments": call.input.to_string()});
            json!({"id": call.id.as_str(), "type": "function", "function": function})
        }
        CallKind::Custom => {
            let input = call.input.get("input").and_then(Value::as_str).unwrap_or_default();
            json!({"id": call.id.as_str(), "type": "custom", "custom": {"name": call.name, "input": input}})
        }
    };
    with(value, &call.kept)
}

fn with(value: Value, kept: &Kept) -> Value {
    let mut value = object(value);
    attach(&mut value, kept, Provider::Chat);
    Value::Object(value)
}

fn picture(image: &Image) -> Value {
    let url = match &image.source {
        ImageSource::Base64(data) => format!("data:{};base64,{data}", image.media_type),
        ImageSource::Url(url) => url.clone(),
    };
    json!({"type": "image_url", "image_url": {"url": url}})
}

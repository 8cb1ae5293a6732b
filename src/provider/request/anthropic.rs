//! Anthropic Messages.

use interlock_domain::block::{Block, Image, ImageSource, Message, Provider, Role, ToolResult};
use serde_json::{Value, json};

use super::{Ask, attach, object, results_first};

pub(super) fn body(ask: &Ask<'_>, messages: Vec<Value>) -> Value {
    let tool =
        |tool: &super::Tool| json!({"name": tool.name, "description": tool.description, "input_schema": tool.schema});
    let mut body = json!({
        "model": ask.model,
        "max_tokens": ask.output_max,
        "messages": messages,
        "stream": true,
    });
    if !ask.system.is_empty() {
        body["system"] = ask.system.into();
    }
    if !ask.tools.is_empty() {
        body["tools"] = ask.tools.iter().map(tool).collect();
    }
    body
}

pub(super) fn history(history: &[Message]) -> Vec<Value> {
    let messages = history.iter().map(|message| {
        let role = match message.role {
            Role::User => "user",
            Role::Assistant => "assistant",
        };
        let content: Vec<Value> = results_first(message).filter_map(|block| part(block, message.role)).collect();
        json!({"role": role, "content": content})
    });
    messages.filter(|message| message["content"].as_array().is_some_and(|content| !content.is_empty())).collect()
}

fn part(block: &Block, role: Role) -> Option<Value> {
    match block {
        Block::Text { text, .. } if text.is_empty() => None,
        Block::Text { text, kept } => {
            let mut part = object(json!({"type": "text", "text": text}));
            attach(&mut part, kept, Provider::Anthropic);
            Some(Value::Object(part))
        }
        Block::Thinking { text, signature: Some(signature), from: Provider::Anthropic, .. } => {
            Some(json!({"type": "thinking", "thinking": text, "signature": signature}))
        }
        // Without its signature, or another provider's.
        Block::Thinking { .. } => None,
        Block::RedactedThinking { data } => Some(json!({"type": "redacted_thinking", "data": data})),
        Block::ToolUse(call) => {
            let value = json!({"type": "tool_use", "id": call.id.as_str(), "name": call.name, "input": *call.input});
            let mut part = object(value);
            attach(&mut part, &call.kept, Provider::Anthropic);
            Some(Value::Object(part))
        }
        Block::ToolResult(result) => Some(answer(result)),
        Block::Image(image) => (role == Role::User).then(|| picture(image)),
        Block::Opaque { from: Provider::Anthropic, value } => Some((**value).clone()),
        Block::Opaque { .. } => None,
    }
}

fn answer(result: &ToolResult) -> Value {
    let content = if result.images.is_empty() {
        Value::from(result.text.as_str())
    } else {
        let text = (!result.text.is_empty()).then(|| json!({"type": "text", "text": result.text}));
        text.into_iter().chain(result.images.iter().map(picture)).collect()
    };
    let mut part = json!({"type": "tool_result", "tool_use_id": result.call.as_str(), "content": content});
    if result.is_error {
        part["is_error"] = true.into();
    }
    part
}

fn picture(image: &Image) -> Value {
    let source = match &image.source {
        ImageSource::Base64(data) => json!({"type": "base64", "media_type": image.media_type, "data": data}),
        ImageSource::Url(url) => json!({"type": "url", "url": url}),
    };
    json!({"type": "image", "source": source})
}

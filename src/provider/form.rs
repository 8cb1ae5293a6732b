//! The JSON form of blocks and messages: what `interlock history normalize` prints, and what a run's history is kept as.
//!
//! Members are those of Anthropic Messages where it has them. What goes out comes back the same.

use interlock_domain::block::{
    Block, CallKind, Image, ImageSource, Kept, Message, Provider, Role, ToolResult, ToolUse, UseId,
};
use serde_json::{Map, Value, json};
use thiserror::Error;

/// A value that is no block.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("a kept history has {0}")]
pub struct NoBlock(String);

/// The text of a text block.
#[must_use]
pub(super) fn plain_text(block: &Block) -> Option<&str> {
    match block {
        Block::Text { text, .. } => Some(text),
        Block::Thinking { .. }
        | Block::RedactedThinking { .. }
        | Block::ToolUse(_)
        | Block::ToolResult(_)
        | Block::Image(_)
        | Block::Opaque { .. } => None,
    }
}

/// A block as JSON.
#[must_use]
pub fn to_json(block: &Block) -> Value {
    match block {
        Block::Text { text, kept } => with_kept(json!({"type": "text", "text": text}), kept),
        Block::Thinking { text, signature, from, kept } => {
            let mut value = json!({"type": "thinking", "thinking": text});
            if let Some(signature) = signature {
                value["signature"] = signature.as_str().into();
            }
            // Anthropic's own form needs no word for it.
            if *from != Provider::Anthropic {
                value["from"] = from.word().into();
            }
            with_kept(value, kept)
        }
        Block::RedactedThinking { data } => json!({"type": "redacted_thinking", "data": data}),
        Block::ToolUse(call) => {
            let mut value =
                json!({"type": "tool_use", "id": call.id.as_str(), "name": call.name, "input": *call.input});
            if call.provider_id != call.id.as_str() {
                value["provider_id"] = call.provider_id.as_str().into();
            }
            with_kept(with_kind(value, call.kind), &call.kept)
        }
        Block::ToolResult(result) => {
            let mut value = json!({
                "type": "tool_result",
                "tool_use_id": result.call.as_str(),
                "name": result.name,
                "content": result.text,
            });
            if result.provider_id != result.call.as_str() {
                value["provider_id"] = result.provider_id.as_str().into();
            }
            if result.is_error {
                value["is_error"] = true.into();
            }
            if !result.images.is_empty() {
                value["images"] = result.images.iter().map(image).collect();
            }
            with_kept(with_kind(value, result.kind), &result.kept)
        }
        Block::Image(picture) => image(picture),
        Block::Opaque { from, value } => json!({"type": "opaque", "from": from.word(), "value": **value}),
    }
}

/// A message as JSON.
#[must_use]
pub fn message_to_json(message: &Message) -> Value {
    let role = match message.role {
        Role::User => "user",
        Role::Assistant => "assistant",
    };
    json!({"role": role, "content": message.blocks.iter().map(to_json).collect::<Vec<_>>()})
}

fn image(image: &Image) -> Value {
    match &image.source {
        ImageSource::Base64(data) => json!({"type": "image", "media_type": image.media_type, "data": data}),
        ImageSource::Url(url) => json!({"type": "image", "media_type": image.media_type, "url": url}),
    }
}

fn with_kept(mut value: Value, kept: &Kept) -> Value {
    if let Some((provider, members)) = kept.whole() {
        value["kept"] = json!({"for": provider.word(), "members": members});
    }
    value
}

fn with_kind(mut value: Value, kind: CallKind) -> Value {
    match kind {
        CallKind::Function => {}
        CallKind::Custom => value["kind"] = "custom".into(),
        CallKind::Native => value["kind"] = "native".into(),
    }
    value
}

/// A message back from JSON.
///
/// # Errors
/// When it is none that [`message_to_json`] made.
pub fn message_from_json(value: &Value) -> Result<Message, NoBlock> {
    let role = match text(value, "role")? {
        "user" => Role::User,
        "assistant" => Role::Assistant,
        other => return Err(NoBlock(format!("a message of {other:?}"))),
    };
    let content =
        value.get("content").and_then(Value::as_array).ok_or_else(|| NoBlock("a message without content".into()))?;
    Ok(Message { role, blocks: content.iter().map(from_json).collect::<Result<_, _>>()? })
}

/// A block back from JSON.
///
/// # Errors
/// When it is none that [`to_json`] made.
pub fn from_json(value: &Value) -> Result<Block, NoBlock> {
    Ok(match text(value, "type")? {
        "text" => Block::Text { text: text(value, "text")?.to_owned(), kept: kept(value)? },
        "thinking" => Block::Thinking {
            text: text(value, "thinking")?.to_owned(),
            signature: value.get("signature").and_then(Value::as_str).map(str::to_owned),
            from: value.get("from").map_or(Ok(Provider::Anthropic), provider)?,
            kept: kept(value)?,
        },
        "redacted_thinking" => Block::RedactedThinking { data: text(value, "data")?.to_owned() },
        "tool_use" => {
            let id = text(value, "id")?;
            Block::ToolUse(ToolUse {
                id: UseId::read_back(id),
                provider_id: value.get("provider_id").and_then(Value::as_str).unwrap_or(id).to_owned(),
                name: text(value, "name")?.to_owned(),
                input: value.get("input").filter(|v| v.is_object()).cloned().ok_or_else(|| none("input"))?.into(),
                kind: kind(value)?,
                kept: kept(value)?,
            })
        }
        "tool_result" => {
            let id = text(value, "tool_use_id")?;
            let images = value.get("images").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
            Block::ToolResult(ToolResult {
                call: UseId::read_back(id),
                provider_id: value.get("provider_id").and_then(Value::as_str).unwrap_or(id).to_owned(),
                name: text(value, "name")?.to_owned(),
                kind: kind(value)?,
                text: text(value, "content")?.to_owned(),
                images: images.iter().map(picture).collect::<Result<_, _>>()?,
                is_error: value.get("is_error").and_then(Value::as_bool).unwrap_or(false),
                kept: kept(value)?,
            })
        }
        "image" => Block::Image(picture(value)?),
        "opaque" => Block::Opaque {
            from: value.get("from").map_or_else(|| Err(none("from")), provider)?,
            value: value.get("value").cloned().ok_or_else(|| none("value"))?.into(),
        },
        other => return Err(NoBlock(format!("a block of type {other:?}"))),
    })
}

fn text<'v>(value: &'v Value, key: &str) -> Result<&'v str, NoBlock> {
    value.get(key).and_then(Value::as_str).ok_or_else(|| none(key))
}

fn none(key: &str) -> NoBlock {
    NoBlock(format!("a block without {key:?}"))
}

fn provider(value: &Value) -> Result<Provider, NoBlock> {
    value.as_str().and_then(|word| word.parse().ok()).ok_or_else(|| NoBlock("an unknown provider".to_owned()))
}

fn kind(value: &Value) -> Result<CallKind, NoBlock> {
    match value.get("kind").and_then(Value::as_str) {
        None => Ok(CallKind::Function),
        Some("custom") => Ok(CallKind::Custom),
        Some("native") => Ok(CallKind::Native),
        Some(other) => Err(NoBlock(format!("a call of kind {other:?}"))),
    }
}

fn kept(value: &Value) -> Result<Kept, NoBlock> {
    let Some(kept) = value.get("kept") else { return Ok(Kept::none()) };
    let members: &Map<String, Value> = kept.get("members").and_then(Value::as_object).ok_or_else(|| none("members"))?;
    Ok(Kept::of(kept.get("for").map_or_else(|| Err(none("for")), provider)?, members.clone()))
}

fn picture(value: &Value) -> Result<Image, NoBlock> {
    let source = match (value.get("data").and_then(Value::as_str), value.get("url").and_then(Value::as_str)) {
        (Some(data), _) => ImageSource::Base64(data.to_owned()),
        (None, Some(url)) => ImageSource::Url(url.to_owned()),
        (None, None) => return Err(none("data")),
    };
    Ok(Image { media_type: text(value, "media_type")?.to_owned(), source })
}

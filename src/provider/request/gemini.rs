//! Gemini `generateContent`. An id that the provider did not give never goes to it.

use interlock_domain::block::{Block, Image, ImageSource, Message, Provider, Role, ToolResult};
use serde_json::{Map, Value, json};

use super::super::gemini::SIGNATURE;
use super::{Ask, attach, object, results_first};

pub(super) fn body(ask: &Ask<'_>, contents: Vec<Value>) -> Value {
    let tool = |tool: &super::Tool| json!({"name": tool.name, "description": tool.description, "parametersJsonSchema": tool.schema});
    let mut body = json!({"contents": contents, "generationConfig": {"maxOutputTokens": ask.output_max}});
    if !ask.system.is_empty() {
        body["systemInstruction"] = json!({"parts": [{"text": ask.system}]});
    }
    if !ask.tools.is_empty() {
        body["tools"] = json!([{"functionDeclarations": ask.tools.iter().map(tool).collect::<Vec<_>>()}]);
    }
    body
}

pub(super) fn history(history: &[Message]) -> Vec<Value> {
    let contents = history.iter().map(|message| {
        let role = match message.role {
            Role::User => "user",
            Role::Assistant => "model",
        };
        let mut parts = Vec::new();
        results_first(message).for_each(|block| part(block, &mut parts));
        json!({"role": role, "parts": parts})
    });
    contents.filter(|content| content["parts"].as_array().is_some_and(|parts| !parts.is_empty())).collect()
}

fn part(block: &Block, parts: &mut Vec<Value>) {
    match block {
        Block::Text { text, kept } => {
            let mut part = object(json!({"text": text}));
            attach(&mut part, kept, Provider::Gemini);
            if !text.is_empty() || part.len() > 1 {
                parts.push(Value::Object(part));
            }
        }
        Block::Thinking { text, signature: Some(signature), from: Provider::Gemini, .. } => {
            parts.push(json!({"text": text, "thought": true, SIGNATURE: signature}));
        }
        Block::ToolUse(call) => {
            let mut inner = object(json!({"name": call.name, "args": *call.input}));
            identify(&mut inner, &call.provider_id);
            let mut part = object(json!({ "functionCall": inner }));
            attach(&mut part, &call.kept, Provider::Gemini);
            parts.push(Value::Object(part));
        }
        Block::ToolResult(result) => {
            parts.push(json!({ "functionResponse": answer(result) }));
            parts.extend(result.images.iter().map(picture));
        }
        Block::Image(image) => parts.push(picture(image)),
        Block::Opaque { from: Provider::Gemini, value } => parts.push((**value).clone()),
        Block::Thinking { .. } | Block::RedactedThinking { .. } | Block::Opaque { .. } => {}
    }
}

fn answer(result: &ToolResult) -> Map<String, Value> {
    let response = match serde_json::from_str(&result.text) {
        Ok(Value::Object(members)) if !result.is_error => members,
        Ok(_) | Err(_) => {
            let key = if result.is_error { "error" } else { "result" };
            Map::from_iter([(key.to_owned(), Value::from(result.text.as_str()))])
        }
    };
    let mut inner = object(json!({"name": result.name, "response": response}));
    identify(&mut inner, &result.provider_id);
    inner
}

fn identify(inner: &mut Map<String, Value>, provider_id: &str) {
    if !provider_id.is_empty() {
        inner.insert("id".to_owned(), provider_id.into());
    }
}

fn picture(image: &Image) -> Value {
    match &image.source {
        ImageSource::Base64(data) => json!({"inlineData": {"mimeType": image.media_type, "data": data}}),
        ImageSource::Url(url) => json!({"fileData": {"mimeType": image.media_type, "fileUri": url}}),
    }
}

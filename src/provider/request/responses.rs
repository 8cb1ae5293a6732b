//! OpenAI Responses. Nothing is stored there: thoughts go back encrypted, as they came.

use interlock_domain::block::{Block, CallKind, Image, ImageSource, Message, Provider, Role, ToolResult, ToolUse};
use serde_json::{Map, Value, json};

use super::{Ask, attach, object, results_first};

pub(super) fn body(ask: &Ask<'_>, items: Vec<Value>) -> Value {
    let tool = |tool: &super::Tool| {
        json!({
            "type": "function",
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.schema,
            "strict": false,
        })
    };
    let mut body = json!({
        "model": ask.model,
        "max_output_tokens": ask.output_max,
        "input": items,
        "store": false,
        "include": ["reasoning.encrypted_content"],
        "stream": true,
    });
    if !ask.system.is_empty() {
        body["instructions"] = ask.system.into();
    }
    if !ask.tools.is_empty() {
        body["tools"] = ask.tools.iter().map(tool).collect();
    }
    body
}

pub(super) fn history(history: &[Message]) -> Vec<Value> {
    let mut items = Vec::with_capacity(history.len());
    for message in history {
        match message.role {
            Role::User => user(message, &mut items),
            Role::Assistant => message.blocks.iter().for_each(|block| assistant(block, &mut items)),
        }
    }
    items
}

fn user(message: &Message, items: &mut Vec<Value>) {
    let mut content = Vec::new();
    for block in results_first(message) {
        match block {
            Block::ToolResult(result) => {
                items.push(answer(result));
                content.extend(result.images.iter().map(picture));
            }
            Block::Text { text, .. } if text.is_empty() => {}
            Block::Text { text, .. } => content.push(json!({"type": "input_text", "text": text})),
            Block::Image(image) => content.push(picture(image)),
            Block::Thinking { .. } | Block::RedactedThinking { .. } | Block::ToolUse(_) | Block::Opaque { .. } => {}
        }
    }
    if !content.is_empty() {
        items.push(json!({"type": "message", "role": "user", "content": content}));
    }
}

fn assistant(block: &Block, items: &mut Vec<Value>) {
    match block {
        Block::Text { text, .. } if text.is_empty() => {}
        Block::Text { text, kept } => {
            let mut kept = kept.back_to(Provider::Responses).cloned().unwrap_or_default();
            let annotations = kept.remove("annotations").unwrap_or_else(|| json!([]));
            let part = json!({"type": "output_text", "text": text, "annotations": annotations});
            // Parts of one message stay in one message.
            let of_same = items.last_mut().filter(|last| {
                last["type"] == "message" && kept.get("id").is_some_and(|id| last.get("id") == Some(id))
            });
            if let Some(content) = of_same.and_then(|last| last["content"].as_array_mut()) {
                content.push(part);
                return;
            }
            kept.extend(object(json!({"type": "message", "role": "assistant", "content": [part]})));
            items.push(Value::Object(kept));
        }
        // What is not stored there is known only by its encrypted form.
        Block::Thinking { signature: Some(_), kept, .. } => {
            items.extend(kept.back_to(Provider::Responses).and_then(|kept| kept.get("item")).cloned());
        }
        Block::ToolUse(use_) => items.push(call(use_)),
        Block::Opaque { from: Provider::Responses, value } => items.push((**value).clone()),
        Block::Thinking { .. }
        | Block::RedactedThinking { .. }
        | Block::Opaque { .. }
        | Block::Image(_)
        | Block::ToolResult(_) => {}
    }
}

fn call(call: &ToolUse) -> Value {
    let id = call.id.as_str();
    let native = call.kept.back_to(Provider::Responses).and_then(|kept| kept.get("item")).and_then(Value::as_object);
    let mut item = match (call.kind, native) {
        (CallKind::Native, Some(item)) => {
            let mut item = item.clone();
            item.insert("call_id".to_owned(), id.into());
            return Value::Object(item);
        }
        (CallKind::Custom, _) => {
            let input = call.input.get("input").and_then(Value::as_str).unwrap_or_default();
            object(json!({"type": "custom_tool_call", "call_id": id, "name": call.name, "input": input}))
        }
        (CallKind::Function | CallKind::Native, _) => {
            let arguments = call.input.to_string();
            object(json!({"type": "function_call", "call_id": id, "name": call.name, "arguments": arguments}))
        }
    };
    attach(&mut item, &call.kept, Provider::Responses);
    Value::Object(item)
}

fn answer(result: &ToolResult) -> Value {
    let kind = match result.kind {
        CallKind::Function => "function_call_output",
        CallKind::Custom => "custom_tool_call_output",
        CallKind::Native => {
            let kept = result.kept.back_to(Provider::Responses);
            let item = kept.and_then(|kept| kept.get("item")).and_then(|item| item.get("type")).and_then(Value::as_str);
            return native(item.unwrap_or("function_call"), result);
        }
    };
    json!({"type": kind, "call_id": result.call.as_str(), "output": result.text})
}

/// The provider's own kinds of tools want their results in forms of their own.
fn native(kind: &str, result: &ToolResult) -> Value {
    let mut item = Map::from_iter([
        ("type".to_owned(), Value::from(format!("{kind}_output"))),
        ("call_id".to_owned(), result.call.as_str().into()),
    ]);
    let output = match kind {
        "shell_call" => {
            let code = i32::from(result.is_error);
            json!([{"stdout": result.text, "stderr": "", "outcome": {"type": "exit", "exit_code": code}}])
        }
        _ => Value::from(result.text.as_str()),
    };
    item.insert("output".to_owned(), output);
    if kind == "apply_patch_call" {
        item.insert("status".to_owned(), if result.is_error { "failed" } else { "completed" }.into());
    }
    Value::Object(item)
}

fn picture(image: &Image) -> Value {
    let url = match &image.source {
        ImageSource::Base64(data) => format!("data:{};base64,{data}", image.media_type),
        ImageSource::Url(url) => url.clone(),
    };
    json!({"type": "input_image", "image_url": url})
}

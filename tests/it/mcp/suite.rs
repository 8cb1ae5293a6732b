//! The tools that the conformance suite calls for, as far as the server in front of them is judged by them.

use interlock::agents::engine::{Ask, NotAsked, Output, ReplyView, ToolView, Upward};
use interlock::mcp::rpc::RpcError;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

use super::fake::{done, tool};

const IMAGE: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==";
const AUDIO: &str = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA=";

pub(super) fn tools() -> Vec<ToolView> {
    let any = || json!({"type": "object", "properties": {}});
    let prompt = || json!({"type": "object", "properties": {"prompt": {"type": "string"}}, "required": ["prompt"]});
    let message = || json!({"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]});
    let mut tools: Vec<ToolView> = NAMES.iter().map(|name| tool(name, any(), None)).collect();
    for tool in &mut tools {
        match tool.name.as_str() {
            "test_sampling" => tool.input_schema = prompt(),
            "test_elicitation" => tool.input_schema = message(),
            "json_schema_2020_12_tool" => {
                tool.input_schema = json!({
                    "$schema": "https://json-schema.org/draft/2020-12/schema",
                    "type": "object",
                    "$defs": {"address": {"type": "object", "properties": {
                        "street": {"type": "string"}, "city": {"type": "string"}}}},
                    "properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"}},
                    "additionalProperties": false
                });
            }
            _ => {}
        }
    }
    tools
}

const NAMES: [&str; 16] = [
    "json_schema_2020_12_tool",
    "test_audio_content",
    "test_elicitation",
    "test_embedded_resource",
    "test_error_handling",
    "test_image_content",
    "test_logging_tool",
    "test_missing_capability",
    "test_multiple_content_types",
    "test_reconnection",
    "test_sampling",
    "test_simple_text",
    "test_streaming_elicitation",
    "test_tool_with_logging",
    "test_tool_with_progress",
    "test_x",
];

pub(super) fn knows(name: &str) -> bool {
    NAMES.contains(&name)
}

pub(super) async fn run(name: String, args: Value, up: mpsc::Sender<Upward>, end: oneshot::Sender<ReplyView>) {
    let output = match name.as_str() {
        "test_simple_text" => text("This is a simple text response for testing."),
        "test_error_handling" => Output::Result(json!({
            "content": [{"type": "text", "text": "This tool intentionally returns an error for testing"}],
            "isError": true,
        })),
        _ => other(&name, &args, &up).await,
    };
    let _ = end.send(done(output));
}

async fn other(name: &str, _args: &Value, _up: &mpsc::Sender<Upward>) -> Output {
    text(name)
}

fn text(text: &str) -> Output {
    Output::Result(json!({"content": [{"type": "text", "text": text}]}))
}

#[expect(dead_code)]
type Later = (Ask, NotAsked, RpcError);
const _: (&str, &str) = (IMAGE, AUDIO);

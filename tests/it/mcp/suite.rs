//! The tools, prompts and resources that the official conformance suite calls for, spoken in the engine's words: so
//! that the server in front of them is judged, not they.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use interlock::agents::engine::{News, Output, ReplyView, TaskSupport, ToolView};
use interlock::mcp::rpc::{self, RpcError};
use interlock::mcp::upward::{Ask, NotAsked, Upward};
use serde_json::{Map, Value, json};
use tokio::sync::{broadcast, mpsc, oneshot};

use super::fake::{done, tool};

const IMAGE: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==";
const AUDIO: &str = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA=";

const NAMES: [&str; 34] = [
    "confirm_delete",
    "failing_job",
    "greet",
    "json_schema_2020_12_tool",
    "multi_input",
    "protocol_error_job",
    "slow_compute",
    "test_audio_content",
    "test_elicitation",
    "test_elicitation_sep1034_defaults",
    "test_elicitation_sep1330_enums",
    "test_embedded_resource",
    "test_error_handling",
    "test_image_content",
    "test_input_required_result_capabilities",
    "test_input_required_result_elicitation",
    "test_input_required_result_list_roots",
    "test_input_required_result_multi_round",
    "test_input_required_result_multiple_inputs",
    "test_input_required_result_request_state",
    "test_input_required_result_sampling",
    "test_input_required_result_tampered_state",
    "test_logging_tool",
    "test_missing_capability",
    "test_multiple_content_types",
    "test_reconnection",
    "test_sampling",
    "test_simple_text",
    "test_streaming_elicitation",
    "test_tool_with_logging",
    "test_tool_with_progress",
    "test_tool_with_task",
    "test_trigger_prompt_change",
    "test_trigger_tool_change",
];

pub(super) fn tools(extras: &Extras) -> Vec<ToolView> {
    let one = |name: &str| json!({"type": "object", "properties": {name: {"type": "string"}}, "required": [name]});
    let mut tools: Vec<ToolView> =
        NAMES.iter().map(|name| tool(name, json!({"type": "object", "properties": {}}), None)).collect();
    if extras.tool.load(Ordering::Relaxed) {
        tools.push(tool("test_at_times", json!({"type": "object"}), None));
    }
    for tool in &mut tools {
        match tool.name.as_str() {
            "test_sampling" => tool.input_schema = one("prompt"),
            "test_elicitation" => tool.input_schema = one("message"),
            "slow_compute" | "protocol_error_job" | "confirm_delete" | "multi_input" => {
                tool.tasks = TaskSupport::Optional
            }
            "failing_job" | "test_tool_with_task" => tool.tasks = TaskSupport::Required,
            "json_schema_2020_12_tool" => tool.input_schema = schema(),
            _ => {}
        }
    }
    tools
}

fn schema() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {"address": {"$anchor": "addressDef", "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}}}},
        "properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": {"type": "string"}, "email": {"type": "string"}},
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": false
    })
}

pub(super) fn knows(name: &str) -> bool {
    NAMES.contains(&name)
}

/// What is in the lists at times: whoever announces a change has to have one, or a proxy does not pass it on.
#[derive(Debug, Default)]
pub(super) struct Extras {
    tool: AtomicBool,
    prompt: AtomicBool,
}

/// The way up of one call, and the news of its engine.
pub(super) struct Up {
    pub(super) up: mpsc::Sender<Upward>,
    pub(super) news: broadcast::Sender<News>,
    pub(super) extras: Arc<Extras>,
}

impl Up {
    async fn ask(&self, asks: &[(&str, &str, Value)]) -> Result<Map<String, Value>, NotAsked> {
        let asks = asks
            .iter()
            .map(|(key, method, params)| Ask {
                key: (*key).to_owned(),
                method: (*method).to_owned(),
                params: params.clone(),
            })
            .collect();
        let (reply, answers) = oneshot::channel();
        self.up.send(Upward::Ask { asks, reply }).await.map_err(|_| NotAsked::NoAnswer)?;
        Ok(answers.await.map_err(|_| NotAsked::NoAnswer)??.into_iter().collect())
    }

    async fn detach(&self) {
        let _gone = self.up.send(Upward::Detached).await;
    }

    async fn log(&self, text: &str) {
        let log = Upward::Log { level: "info".into(), logger: None, data: text.into() };
        let _gone = self.up.send(log).await;
    }

    async fn progress(&self, progress: f64) {
        let _gone = self.up.send(Upward::Progress { progress, total: Some(100.0), message: None }).await;
    }
}

/// The suite measures that messages come while a tool works, so a tool has to take a while.
async fn while_working(millis: u64) {
    let _elapsed = tokio::time::timeout(Duration::from_millis(millis), std::future::pending::<()>()).await;
}

fn elicit(message: &str, name: &str, schema: Value) -> Value {
    json!({"message": message, "requestedSchema": {"type": "object", "properties": {name: schema}, "required": [name]}})
}

fn sample(text: &str, tokens: u32) -> Value {
    json!({"messages": [{"role": "user", "content": {"type": "text", "text": text}}], "maxTokens": tokens})
}

pub(super) async fn run(name: String, args: Value, up: Up, end: oneshot::Sender<ReplyView>) {
    let output = match answer(&name, &args, &up).await {
        Ok(output) => output,
        Err(NotAsked::NotDeclared(capability)) => Output::Error(rpc::missing_capability(capability)),
        Err(NotAsked::Refused(error)) => Output::Error(error),
        Err(NotAsked::NoAnswer) => Output::Error(RpcError::new(rpc::INTERNAL_ERROR, "no answer")),
    };
    let _gone = end.send(done(output));
}

async fn answer(name: &str, args: &Value, up: &Up) -> Result<Output, NotAsked> {
    const FORM: &str = "elicitation/create";
    const SAMPLE: &str = "sampling/createMessage";
    let string = || json!({"type": "string"});
    Ok(match name {
        "test_simple_text" => text("This is a simple text response for testing."),
        "test_image_content" => content(json!([{"type": "image", "data": IMAGE, "mimeType": "image/png"}])),
        "test_audio_content" => content(json!([{"type": "audio", "data": AUDIO, "mimeType": "audio/wav"}])),
        "test_embedded_resource" => {
            content(json!([{"type": "resource", "resource": {"uri": "test://embedded-resource",
            "mimeType": "text/plain", "text": "This is an embedded resource content."}}]))
        }
        "test_multiple_content_types" => content(json!([
            {"type": "text", "text": "Multiple content types test:"},
            {"type": "image", "data": IMAGE, "mimeType": "image/png"},
            {"type": "resource", "resource": {"uri": "test://mixed-content-resource", "mimeType": "application/json",
                "text": "{\"test\":\"data\",\"value\":123}"}},
        ])),
        "test_error_handling" => Output::Result(json!({
            "content": [{"type": "text", "text": "This tool intentionally returns an error for testing"}],
            "isError": true,
        })),
        "test_tool_with_logging" | "test_logging_tool" => {
            up.log("Tool execution started").await;
            while_working(50).await;
            up.log("Tool processing data").await;
            while_working(50).await;
            up.log("Tool execution completed").await;
            text("logged")
        }
        "test_tool_with_progress" => {
            up.progress(0.0).await;
            while_working(50).await;
            up.progress(50.0).await;
            while_working(50).await;
            up.progress(100.0).await;
            text("progressed")
        }
        "test_reconnection" => {
            while_working(100).await;
            text("reconnected")
        }
        "test_sampling" | "test_missing_capability" => {
            let prompt = args["prompt"].as_str().unwrap_or("hello");
            let got = up.ask(&[("sample", SAMPLE, sample(prompt, 100))]).await?;
            text(&format!("LLM response: {}", got["sample"]["content"]["text"].as_str().unwrap_or("")))
        }
        "test_elicitation" => {
            let form = json!({"message": args["message"], "requestedSchema": {"type": "object", "properties": {
                "username": {"type": "string", "description": "User's response"},
                "email": {"type": "string", "description": "User's email address"}},
                "required": ["username", "email"]}});
            let got = up.ask(&[("form", FORM, form)]).await?;
            text(&format!("User response: action={}, content={}", got["form"]["action"], got["form"]["content"]))
        }
        "test_elicitation_sep1034_defaults" => {
            completed(
                up,
                json!({"type": "object", "properties": {
            "name": {"type": "string", "default": "John Doe"},
            "age": {"type": "integer", "default": 30},
            "score": {"type": "number", "default": 95.5},
            "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
            "verified": {"type": "boolean", "default": true}}, "required": []}),
            )
            .await?
        }
        "test_elicitation_sep1330_enums" => {
            completed(
                up,
                json!({"type": "object", "properties": {
            "untitledSingle": {"type": "string", "enum": ["option1", "option2", "option3"]},
            "titledSingle": {"type": "string", "oneOf": [{"const": "value1", "title": "First Option"},
                {"const": "value2", "title": "Second Option"}, {"const": "value3", "title": "Third Option"}]},
            "legacyEnum": {"type": "string", "enum": ["opt1", "opt2", "opt3"],
                "enumNames": ["Option One", "Option Two", "Option Three"]},
            "untitledMulti": {"type": "array", "items": {"type": "string", "enum": ["option1", "option2", "option3"]}},
            "titledMulti": {"type": "array", "items": {"anyOf": [{"const": "value1", "title": "First Choice"},
                {"const": "value2", "title": "Second Choice"}, {"const": "value3", "title": "Third Choice"}]}}},
            "required": []}),
            )
            .await?
        }
        "test_input_required_result_elicitation" | "test_streaming_elicitation" => {
            let got = up.ask(&[("user_name", FORM, elicit("What is your name?", "name", string()))]).await?;
            text(&format!("Hello, {}!", got["user_name"]["content"]["name"].as_str().unwrap_or("")))
        }
        "test_input_required_result_sampling" => {
            let got = up.ask(&[("capital_question", SAMPLE, sample("What is the capital of France?", 100))]).await?;
            text(got["capital_question"]["content"]["text"].as_str().unwrap_or(""))
        }
        "test_input_required_result_list_roots" => {
            let got = up.ask(&[("client_roots", "roots/list", json!({}))]).await?;
            text(&got["client_roots"]["roots"].to_string())
        }
        "test_input_required_result_request_state" | "test_input_required_result_tampered_state" => {
            up.ask(&[("confirm", FORM, elicit("Please confirm", "ok", json!({"type": "boolean"})))]).await?;
            text("state-ok")
        }
        "test_input_required_result_multiple_inputs" => {
            let got = up
                .ask(&[
                    ("user_name", FORM, elicit("What is your name?", "name", string())),
                    ("greeting", SAMPLE, sample("Generate a greeting", 50)),
                    ("client_roots", "roots/list", json!({})),
                ])
                .await?;
            text(&format!("{} answers", got.len()))
        }
        "test_input_required_result_multi_round" => {
            up.ask(&[("step1", FORM, elicit("Step 1: What is your name?", "name", string()))]).await?;
            up.ask(&[("step2", FORM, elicit("Step 2: What is your favorite color?", "color", string()))]).await?;
            text("two rounds")
        }
        "test_input_required_result_capabilities" => {
            let form = ("user_name", FORM, elicit("What is your name?", "name", string()));
            match up.ask(&[form]).await {
                Ok(_) => text("form"),
                Err(_) => {
                    up.ask(&[("sample", SAMPLE, sample("Hello", 10))]).await?;
                    text("sample")
                }
            }
        }
        "greet" => text(&format!("Hello, {}!", args["name"].as_str().unwrap_or(""))),
        "slow_compute" => {
            let seconds = args["seconds"].as_u64().unwrap_or(0);
            up.detach().await;
            while_working(seconds * 1000).await;
            text(&format!("computed for {seconds} s"))
        }
        "failing_job" => {
            up.detach().await;
            Output::Result(json!({"content": [{"type": "text", "text": "the job failed"}], "isError": true}))
        }
        "protocol_error_job" => {
            up.detach().await;
            Output::Error(RpcError::new(rpc::INTERNAL_ERROR, "the job broke"))
        }
        "confirm_delete" => {
            up.detach().await;
            let got = up.ask(&[("confirm", FORM, elicit("Delete it?", "confirm", json!({"type": "boolean"})))]).await?;
            text(&format!("confirmed: {}", got["confirm"]["content"]["confirm"]))
        }
        "multi_input" => {
            up.detach().await;
            let forms =
                [("first", FORM, elicit("First?", "a", string())), ("second", FORM, elicit("Second?", "b", string()))];
            text(&format!("{} answers", up.ask(&forms).await?.len()))
        }
        "test_tool_with_task" => {
            let got = up.ask(&[("user_name", FORM, elicit("What is your name?", "name", string()))]).await?;
            up.detach().await;
            text(&format!("Hello, {}!", got["user_name"]["content"]["name"].as_str().unwrap_or("")))
        }
        "test_trigger_tool_change" => {
            up.extras.tool.fetch_xor(true, Ordering::Relaxed);
            let _nobody = up.news.send(News::ToolsChanged);
            text("changed")
        }
        "test_trigger_prompt_change" => {
            up.extras.prompt.fetch_xor(true, Ordering::Relaxed);
            let _nobody = up.news.send(News::PromptsChanged);
            text("changed")
        }
        _ => text(name),
    })
}

async fn completed(up: &Up, schema: Value) -> Result<Output, NotAsked> {
    let form = json!({"message": "Please fill in", "requestedSchema": schema});
    let got = up.ask(&[("form", "elicitation/create", form)]).await?;
    let (action, content) = (&got["form"]["action"], &got["form"]["content"]);
    Ok(text(&format!("Elicitation completed: action={}, content={content}", action.as_str().unwrap_or(""))))
}

fn content(content: Value) -> Output {
    Output::Result(json!({"content": content}))
}

fn text(text: &str) -> Output {
    content(json!([{"type": "text", "text": text}]))
}

/// Prompts, resources and completion.
pub(super) async fn relay(method: String, params: Value, up: Up, reply: oneshot::Sender<Result<Value, RpcError>>) {
    let _gone = reply.send(relayed(&method, &params, &up).await);
}

fn prompts() -> Value {
    json!({"prompts": [
        {"name": "test_simple_prompt", "description": "A simple prompt"},
        {"name": "test_prompt_with_arguments", "description": "A prompt with arguments", "arguments": [
            {"name": "arg1", "description": "First", "required": true},
            {"name": "arg2", "description": "Second", "required": true}]},
        {"name": "test_prompt_with_embedded_resource", "description": "A prompt with a resource", "arguments": [
            {"name": "resourceUri", "description": "Which", "required": true}]},
        {"name": "test_prompt_with_image", "description": "A prompt with an image"},
        {"name": "test_input_required_result_prompt", "description": "A prompt that asks"},
    ]})
}

async fn relayed(method: &str, params: &Value, up: &Up) -> Result<Value, RpcError> {
    let say = |text: &str| json!({"role": "user", "content": {"type": "text", "text": text}});
    let name = params["name"].as_str().or(params["uri"].as_str()).unwrap_or("");
    let args = &params["arguments"];
    match (method, name) {
        ("prompts/list", _) if up.extras.prompt.load(Ordering::Relaxed) => {
            let mut all = prompts();
            all["prompts"]
                .as_array_mut()
                .unwrap()
                .push(json!({"name": "test_at_times", "description": "There at times"}));
            Ok(all)
        }
        ("prompts/list", _) => Ok(prompts()),
        ("prompts/get", "test_simple_prompt") => Ok(json!({"messages": [say("This is a simple prompt for testing.")]})),
        ("prompts/get", "test_prompt_with_arguments") => {
            let arg = |name: &str| args[name].as_str().unwrap_or("").to_owned();
            let text = format!("Prompt with arguments: arg1='{}', arg2='{}'", arg("arg1"), arg("arg2"));
            Ok(json!({"messages": [say(&text)]}))
        }
        ("prompts/get", "test_prompt_with_embedded_resource") => Ok(json!({"messages": [
            {"role": "user", "content": {"type": "resource", "resource": {"uri": args["resourceUri"],
                "mimeType": "text/plain", "text": "Embedded resource content for testing."}}},
            say("Please process the embedded resource above."),
        ]})),
        ("prompts/get", "test_prompt_with_image") => Ok(json!({"messages": [
            {"role": "user", "content": {"type": "image", "data": IMAGE, "mimeType": "image/png"}},
            say("Please analyze the image above."),
        ]})),
        ("prompts/get", "test_input_required_result_prompt") => {
            let form = elicit("What context should the prompt use?", "context", json!({"type": "string"}));
            let got = up.ask(&[("user_context", "elicitation/create", form)]).await;
            let got = got.map_err(|why| RpcError::new(rpc::INTERNAL_ERROR, format!("{why:?}")))?;
            Ok(json!({"messages": [say(got["user_context"]["content"]["context"].as_str().unwrap_or(""))]}))
        }
        ("resources/list", _) => Ok(json!({"resources": [
            {"uri": "test://static-text", "name": "Static text", "description": "Text", "mimeType": "text/plain"},
            {"uri": "test://static-binary", "name": "Static binary", "description": "Image", "mimeType": "image/png"},
            {"uri": "test://watched-resource", "name": "Watched", "description": "Changes", "mimeType": "text/plain"},
        ]})),
        ("resources/templates/list", _) => Ok(json!({"resourceTemplates": [
            {"uriTemplate": "test://template/{id}/data", "name": "Template", "description": "By id",
                "mimeType": "application/json"}]})),
        ("resources/read", "test://static-text") => Ok(json!({"contents": [{"uri": name, "mimeType": "text/plain",
            "text": "This is the content of the static text resource."}]})),
        ("resources/read", "test://watched-resource") => {
            Ok(json!({"contents": [{"uri": name, "mimeType": "text/plain", "text": "watched"}]}))
        }
        ("resources/read", "test://static-binary") => {
            Ok(json!({"contents": [{"uri": name, "mimeType": "image/png", "blob": IMAGE}]}))
        }
        ("resources/read", uri) => match uri.strip_prefix("test://template/").and_then(|id| id.strip_suffix("/data")) {
            Some(id) => {
                let text = json!({"id": id, "templateTest": true, "data": format!("Data for ID: {id}")}).to_string();
                Ok(json!({"contents": [{"uri": uri, "mimeType": "application/json", "text": text}]}))
            }
            None => Err(RpcError::new(rpc::INVALID_PARAMS, "Resource not found").with(json!({"uri": uri}))),
        },
        ("resources/subscribe" | "resources/unsubscribe", _) => Ok(json!({})),
        ("completion/complete", _) => {
            Ok(json!({"completion": {"values": ["paris", "park", "party"], "total": 3, "hasMore": false}}))
        }
        (method, name) => Err(RpcError::new(rpc::INVALID_PARAMS, format!("{method}: no {name:?}"))),
    }
}

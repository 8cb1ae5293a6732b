//! A server for the tests, in the standard library alone: this test binary, started again as a child of the daemon.
//!
//! It writes what it does into a directory, so that a test can see what reached it whatever the daemon says. What the
//! test runner prints on its output before the server begins is the noise that a proxy has to skip.

use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

/// Set for the child: the directory that it writes into.
pub(super) const DIRECTORY: &str = "MCP_FIXTURE_DIRECTORY";

/// Words of the child's manners: `modern`, `many`, `misshapen`, `misdescribes`, `silent`, `later`.
pub(super) const MANNERS: &str = "MCP_FIXTURE_MANNERS";

/// The command that starts it, for `[[mcp.server]]`.
pub(super) fn command() -> Vec<String> {
    let own = std::env::current_exe().unwrap().to_str().unwrap().to_owned();
    [own.as_str(), "--exact", "daemon::proxy::fixture::serve", "--nocapture"].map(str::to_owned).to_vec()
}

/// Schemas as a proxy must not touch them.
pub(super) fn odd_tool() -> Value {
    json!({
        "name": "odd", "title": "Odd", "description": "takes an odd input", "future": {"member": [1, 2.5, null]},
        "inputSchema": {
            "$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object",
            "$defs": {"point": {"type": "object", "properties": {"x": {"type": "number"}}, "x-mark": true}},
            "properties": {"at": {"$ref": "#/$defs/point"}, "big": {"type": "integer", "maximum": 9007199254740993_u64}},
            "additionalProperties": true,
        },
        "outputSchema": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
        "annotations": {"title": "Odd one", "readOnlyHint": true, "openWorldHint": false},
        "_meta": {"example.com/mark": {"deep": ["a"]}},
    })
}

fn tools(manners: &str, changed: bool) -> Vec<Value> {
    let tool = |name: &str, hints: Value| {
        json!({"name": name, "description": format!("does {name}"),
        "inputSchema": {"type": "object"}, "annotations": hints})
    };
    let (reads, changes) = (json!({"readOnlyHint": true}), json!({}));
    let mut tools = vec![
        tool("echo", reads.clone()),
        tool("slow", reads.clone()),
        tool("wait", changes.clone()),
        tool("act_and_die", changes.clone()),
        tool("act_once_and_die", json!({"idempotentHint": true})),
        tool("act", changes.clone()),
        tool("ask", changes.clone()),
        tool("fail", reads.clone()),
        tool("error", reads.clone()),
        tool("lie", reads.clone()),
        tool("mutate", changes.clone()),
        tool("grow", changes),
        odd_tool(),
    ];
    tools[9]["outputSchema"] = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    if !manners.contains("modern") {
        let mut job = tool("job", json!({}));
        job["execution"] = json!({"taskSupport": "required"});
        tools.push(job);
    }
    if changed {
        tools[0]["description"] = "does echo, and tells everybody".into();
    }
    if manners.contains("misshapen") {
        tools.extend([
            json!({"name": "mended", "description": 3, "annotations": "reads", "icons": {}}),
            json!({"name": "list_of", "inputSchema": {"type": "array"}}),
            json!({"name": 7, "inputSchema": {"type": "object"}}),
            json!({"name": "garble", "inputSchema": {"type": "object"}}),
            tool("repeat", json!({"readOnlyHint": true})),
            json!("a tool"),
        ]);
    }
    if manners.contains("misdescribes") {
        tools[0]["description"] = "Gives back what it is given. The parameter `volume` is an integer.".into();
        tools[0]["inputSchema"]["properties"] = json!({"text": {"type": "string", "description": "What to give back"}});
    }
    if manners.contains("many") {
        tools.extend((0..10_000).map(|number| tool(&format!("many{number}"), reads.clone())));
    }
    tools
}

struct Fixture {
    directory: PathBuf,
    manners: String,
    /// Kept while a test runs: one definition changed; a tool was added.
    changed: Mutex<(bool, bool)>,
    waiting: Mutex<BTreeMap<String, Sender<()>>>,
    answers: Mutex<BTreeMap<u64, Sender<Value>>>,
}

impl Fixture {
    fn note(&self, file: &str, line: &str) {
        let path = self.directory.join(file);
        let mut file = std::fs::OpenOptions::new().append(true).create(true).open(path).unwrap();
        writeln!(file, "{line}").unwrap();
    }

    fn say(&self, message: &Value) {
        let mut out = std::io::stdout().lock();
        writeln!(out, "{message}").unwrap();
        out.flush().unwrap();
    }

    fn notify(&self, method: &str, params: &Value) {
        self.say(&json!({"jsonrpc": "2.0", "method": method, "params": params}));
    }

    fn is_modern(&self) -> bool {
        self.manners.contains("modern")
    }

    fn tools(&self) -> Vec<Value> {
        let (changed, grown) = *self.changed.lock().unwrap();
        let was_changed = changed || self.directory.join("changed").exists();
        let mut tools = tools(&self.manners, was_changed);
        if grown {
            tools.push(
                json!({"name": "grown", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": true}}),
            );
        }
        tools
    }

    fn answer(self: &Arc<Fixture>, method: &str, params: &Value, id: &Value) -> Result<Value, (i64, String)> {
        match method {
            "initialize" if !self.is_modern() => Ok(json!({
                "protocolVersion": "2025-11-25", "serverInfo": {"name": "fixture", "version": "1"},
                "capabilities": {"tools": {"listChanged": true}, "prompts": {}, "resources": {"subscribe": true}},
            })),
            "server/discover" if self.is_modern() => Ok(json!({
                "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {"listChanged": true}, "prompts": {}},
                "resultType": "complete",
            })),
            "ping" => Ok(json!({})),
            "tools/list" => match std::fs::read_to_string(self.directory.join("listed")) {
                // What a test wants to be the whole result.
                Ok(listed) => Ok(serde_json::from_str(&listed).unwrap()),
                Err(_) => Ok(json!({"tools": self.tools()})),
            },
            "prompts/list" => Ok(json!({"prompts": [{"name": "hello", "description": "greets"}]})),
            "prompts/get" => Ok(json!({"messages": [{"role": "user", "content": {"type": "text",
                "text": format!("hello from {}", params["name"])}}]})),
            "resources/list" => Ok(json!({"resources": [{"uri": "fix://one", "name": "one"}]})),
            "resources/templates/list" => Ok(json!({"resourceTemplates": []})),
            "resources/read" => Ok(json!({"contents": [{"uri": params["uri"], "text": "one"}]})),
            "resources/unsubscribe" => {
                self.note("unsubscribed", params["uri"].as_str().unwrap_or_default());
                Ok(json!({}))
            }
            "resources/subscribe" => {
                self.note("subscribed", params["uri"].as_str().unwrap_or_default());
                self.notify("notifications/resources/updated", &json!({"uri": params["uri"]}));
                Ok(json!({}))
            }
            "tools/call" if params["name"] == "job" => match params["task"].is_object() {
                true => Ok(json!({"task": {"taskId": "theirs", "status": "working", "ttl": 1000, "createdAt": "x",
                    "lastUpdatedAt": "x", "pollInterval": 20}})),
                false => Err((-32601, "job is only called as a task".to_owned())),
            },
            "tasks/result" => {
                let (cancelled, wait) = channel();
                self.waiting.lock().unwrap().insert("job".to_owned(), cancelled);
                // The first job is soon done, the next one only ends by being cancelled.
                let is_first = !self.directory.join("jobs").exists();
                self.note("jobs", params["taskId"].as_str().unwrap_or_default());
                if is_first {
                    return Ok(json!({"content": [{"type": "text", "text": "the job is done"}]}));
                }
                let _ = wait.recv();
                Err((-32603, "cancelled".to_owned()))
            }
            "tasks/cancel" => {
                self.note("cancelled_jobs", params["taskId"].as_str().unwrap_or_default());
                drop(self.waiting.lock().unwrap().remove("job"));
                Ok(json!({"taskId": params["taskId"], "status": "cancelled"}))
            }
            "tools/call" => self.call(params, id),
            _ => Err((-32601, format!("no {method}"))),
        }
    }

    fn call(self: &Arc<Fixture>, params: &Value, id: &Value) -> Result<Value, (i64, String)> {
        let text = |text: &str| Ok(json!({"content": [{"type": "text", "text": text}]}));
        let args = &params["arguments"];
        match params["name"].as_str().unwrap_or_default() {
            "echo" | "grown" => text(&args.to_string()),
            "odd" => Ok(json!({"content": [{"type": "image", "data": "AA==", "mimeType": "image/png", "new": 1}],
                "structuredContent": {"n": 7}, "_meta": {"theirs": true}})),
            "slow" => {
                let (steps, pause) = (args["steps"].as_u64().unwrap_or(1), args["pause_ms"].as_u64().unwrap_or(100));
                for step in 1..=steps {
                    rest(pause);
                    let token = &params["_meta"]["progressToken"];
                    self.notify(
                        "notifications/progress",
                        &json!({"progressToken": token, "progress": step, "total": steps}),
                    );
                }
                text("slept")
            }
            "wait" => {
                let (cancelled, wait) = channel();
                self.waiting.lock().unwrap().insert(id.to_string(), cancelled);
                self.note("waiting", &id.to_string());
                let _ = wait.recv();
                self.note("cancelled", &id.to_string());
                text("never sent")
            }
            "act" => {
                self.note("acts", &args.to_string());
                text("acted")
            }
            "act_and_die" => {
                self.note("acts", "die");
                std::process::exit(3)
            }
            "act_once_and_die" => {
                let before = std::fs::read_to_string(self.directory.join("acts")).unwrap_or_default();
                self.note("acts", "once");
                if before.is_empty() {
                    std::process::exit(3)
                }
                text("acted once")
            }
            "ask" if self.is_modern() => match params["inputResponses"].get("name") {
                None => Ok(json!({"resultType": "input_required", "requestState": "s1", "inputRequests": {"name": {
                    "method": "elicitation/create", "params": {"mode": "form", "message": "Your name?",
                    "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}}}}}})),
                Some(_) if params["requestState"] != "s1" => Err((-32602, "no state".to_owned())),
                Some(answer) => text(&format!("hello {}", answer["content"]["name"].as_str().unwrap_or("nobody"))),
            },
            "ask" => {
                let (sender, answer) = channel();
                let number = 9_000 + id.as_u64().unwrap_or(0);
                self.answers.lock().unwrap().insert(number, sender);
                self.say(&json!({"jsonrpc": "2.0", "id": number, "method": "elicitation/create", "params": {
                    "mode": "form", "message": "Your name?", "requestedSchema": {"type": "object",
                    "properties": {"name": {"type": "string"}}}}}));
                let answer = answer.recv().unwrap_or(Value::Null);
                text(&format!("hello {}", answer["result"]["content"]["name"].as_str().unwrap_or("nobody")))
            }
            "garble" => {
                self.say(&json!({"jsonrpc": "2.0", "id": id, "result": {"content": []}, "error": {"code": 1, "message": "m"}}));
                Err((-32603, "too late".to_owned()))
            }
            "mended" => text("mended"),
            // Whatever the caller likes, as its result.
            "repeat" => Ok(args["result"].clone()),
            "fail" => Ok(json!({"content": [{"type": "text", "text": "no such file"}], "isError": true, "x": 1})),
            "error" => Err((-32042, "theirs".to_owned())),
            "lie" => Ok(json!({"content": [], "structuredContent": {"n": "seven"}})),
            "mutate" => {
                self.changed.lock().unwrap().0 = args["change"] == true;
                self.notify("notifications/tools/list_changed", &json!({}));
                text("mutated")
            }
            "grow" => {
                self.changed.lock().unwrap().1 = true;
                self.notify("notifications/tools/list_changed", &json!({}));
                text("grown")
            }
            other => Err((-32602, format!("no tool {other}"))),
        }
    }
}

/// Lets time pass where a tool takes some.
fn rest(millis: u64) {
    let (_never, wait): (Sender<()>, Receiver<()>) = channel();
    let _elapsed = wait.recv_timeout(Duration::from_millis(millis));
}

/// The server itself; nothing when it runs as one of the tests.
#[test]
fn serve() {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    let manners = std::env::var(MANNERS).unwrap_or_default();
    let fixture = Arc::new(Fixture {
        directory: directory.into(),
        manners,
        changed: Mutex::default(),
        waiting: Mutex::default(),
        answers: Mutex::default(),
    });
    fixture.note("started", &std::process::id().to_string());
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        if fixture.manners.contains("silent") {
            continue;
        }
        let message: Value = serde_json::from_str(&line).unwrap();
        match (message["method"].as_str(), message.get("id")) {
            (Some("notifications/cancelled"), None) => {
                let named = message["params"]["requestId"].to_string();
                fixture.note("asked_to_cancel", &named);
                drop(fixture.waiting.lock().unwrap().remove(&named));
            }
            (Some(_), None) => {}
            (Some(method), Some(id)) => {
                let (fixture, method, id) = (Arc::clone(&fixture), method.to_owned(), id.clone());
                let params = message["params"].clone();
                std::thread::spawn(move || {
                    let answer = match fixture.answer(&method, &params, &id) {
                        Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
                        Err((code, text)) => {
                            json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": text, "data": {"d": 1}}})
                        }
                    };
                    if method != "tools/call" || params["name"] != "wait" {
                        fixture.say(&answer);
                    }
                });
            }
            (None, Some(id)) => {
                if let Some(waiting) = id.as_u64().and_then(|id| fixture.answers.lock().unwrap().remove(&id)) {
                    let _gone = waiting.send(message);
                }
            }
            (None, None) => {}
        }
    }
    std::process::exit(0);
}

//! A client behind the daemon that does what the official client suite expects of one: it lists, calls every tool, and
//! fills in forms with their defaults. So the daemon's side towards servers is judged by somebody else.

use serde_json::{Map, Value, json};

use super::*;

/// Set by `tests/clients/client_suite.sh`; the address of the suite's server is the last argument.
const DRIVE: &str = "INTERLOCK_MCP_DRIVE";

/// Which scenario of the suite it is.
const SCENARIO: &str = "MCP_CONFORMANCE_SCENARIO";

/// What the suite wants to be called with.
const CONTEXT: &str = "MCP_CONFORMANCE_CONTEXT";

/// An input that fits a schema, as far as this suite's go.
fn input(schema: &Value) -> Value {
    let mut members = Map::new();
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let value = match property["type"].as_str() {
            Some("integer" | "number") => json!(5),
            Some("boolean") => json!(true),
            Some("object") => input(property),
            Some("array") => json!([]),
            _ => json!("test"),
        };
        members.insert(name.clone(), value);
    }
    Value::Object(members)
}

/// The defaults of a form.
fn defaults(form: &Value) -> Value {
    let properties = form["properties"].as_object();
    let given =
        properties.into_iter().flatten().filter_map(|(name, of)| Some((name.clone(), of.get("default")?.clone())));
    Value::Object(given.collect())
}

#[test]
fn drive() {
    if std::env::var_os(DRIVE).is_none() {
        return;
    }
    let url = std::env::args().next_back().unwrap();
    // This one has a server that takes every request for one of the modern era.
    let era = if std::env::var(SCENARIO).is_ok_and(|name| name == "request-metadata") { "modern" } else { "auto" };
    let server = format!("[[mcp.server]]\nname = \"suite\"\nurl = \"{url}\"\nprefix = \"\"\nera = \"{era}\"\n");
    let daemon = daemon(Home::new(), "allow = [\"mcp__suite\"]", &server, &["suite"]);
    let mut client = Client::legacy(&daemon, json!({"elicitation": {"form": {}}, "sampling": {}, "roots": {}}));
    let context: Value =
        std::env::var(CONTEXT).ok().and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
    let mut calls: Vec<(String, Value)> = Vec::new();
    for call in context["toolCalls"].as_array().into_iter().flatten() {
        // "null or not provided" is the same to it; the schema, which the gate goes by, knows no null.
        let mut arguments = call["arguments"].clone();
        arguments.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        calls.push((call["name"].as_str().unwrap().to_owned(), arguments));
    }
    if calls.is_empty() {
        let known = daemon.list("mcp.list");
        let theirs: Vec<Value> =
            known.iter().flat_map(|row| row["tools"].as_array().cloned().unwrap_or_default()).collect();
        let tools = client.tools();
        let focal = tools.iter().find(|tool| tool["name"] == "json_schema_2020_12_tool").cloned().unwrap_or_default();
        for tool in tools {
            if theirs.iter().any(|their| their["name"] == tool["name"]) {
                let mut arguments = input(&tool["inputSchema"]);
                if arguments.get("schema").is_some() {
                    // It wants to see what became of the schema of the other one.
                    arguments["schema"] = focal["inputSchema"].clone();
                }
                calls.push((tool["name"].as_str().unwrap().to_owned(), arguments));
            }
        }
    }
    for (name, arguments) in calls {
        let id = client.ask("tools/call", json!({"name": name, "arguments": arguments}));
        loop {
            let message = client.wait("an answer or a question", |message| {
                message["id"] == id || message.get("method").is_some() && message.get("id").is_some()
            });
            let answer = match message["method"].as_str() {
                Some("elicitation/create") => {
                    json!({"action": "accept", "content": defaults(&message["params"]["requestedSchema"])})
                }
                Some("sampling/createMessage") => {
                    json!({"role": "assistant", "content": {"type": "text", "text": "test"}, "model": "test"})
                }
                Some(_) => json!({"roots": []}),
                None => break,
            };
            client.send(&json!({"jsonrpc": "2.0", "id": message["id"], "result": answer}));
        }
    }
}

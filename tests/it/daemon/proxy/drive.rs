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

/// How the suite's authorization servers know us, where they do (`MCP_CONFORMANCE_CONTEXT`, and its document of a client).
fn oauth(home: &Home, scenario: &str, context: &Value) -> String {
    let known = |grant: &str| {
        let id = context["client_id"].as_str().unwrap();
        std::fs::write(home.path("secret"), context["client_secret"].as_str().unwrap()).unwrap();
        let file = home.path("secret");
        format!("{{ grant = \"{grant}\", client-id = \"{id}\", client-secret-file = \"{}\" }}", file.display())
    };
    match scenario {
        "auth/basic-cimd" => "{ client-id = \"https://conformance-test.local/client-metadata.json\" }".to_owned(),
        "auth/pre-registration" => known("authorization-code"),
        "auth/client-credentials-basic" => known("client-credentials"),
        _ => "{}".to_owned(),
    }
}

/// Logs in as a person with a browser does; false when that is refused, which some scenarios want.
fn log_in(daemon: &Daemon) -> bool {
    let begun = daemon.ask("mcp.login", json!({"server": "suite", "redirect": "http://127.0.0.1:3000/callback"}));
    let ended = begun.and_then(|begun| {
        let answer = authority::browse(begun["url"].as_str().unwrap());
        daemon.ask("mcp.logged-in", json!({"server": "suite", "answer": answer}))
    });
    ended.is_ok()
}

/// The most logins of one scenario: a server that is never content is given up.
const LOGINS_MAX: usize = 3;

/// Lists and calls, and logs in whenever that is asked for.
fn drive_guarded(url: &str, scenario: &str, context: &Value) {
    let home = Home::new();
    let oauth = oauth(&home, scenario, context);
    let server = format!("[[mcp.server]]\nname = \"suite\"\nurl = \"{url}\"\nprefix = \"\"\noauth = {oauth}\n");
    let daemon = daemon(home, "allow = [\"mcp__suite\"]", &server, &[]);
    let wants_login = |text: &str| text.contains("interlock mcp login");
    let mut logins = 0;
    loop {
        let row = daemon.eventually("the suite's server", || {
            daemon.list("mcp.list").into_iter().find(|row| row["state"] != "starting")
        });
        let names: Vec<String> = match row["state"].as_str() {
            Some("up") => {
                row["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().into()).collect()
            }
            _ if wants_login(row["why"].as_str().unwrap_or_default()) => Vec::new(),
            _ => panic!("{row}"),
        };
        let mut client = Client::legacy(&daemon, json!({}));
        let refused = names.iter().any(|name| wants_login(text(&client.call(name, json!({})))));
        if row["state"] == "up" && !refused {
            return;
        }
        logins += 1;
        if logins > LOGINS_MAX || !log_in(&daemon) {
            return;
        }
        if row["state"] != "up" {
            // The login wakes the keeper; its next standing is another, whatever it is.
            let before = daemon.list("mcp.list").into_iter().map(|row| row["restarts"].clone()).next();
            daemon.eventually("another try", || {
                let row = daemon.list("mcp.list").into_iter().next()?;
                (row["state"] == "up" || before.as_ref() != Some(&row["restarts"])).then_some(())
            });
        }
    }
}

#[test]
fn drive() {
    if std::env::var_os(DRIVE).is_none() {
        return;
    }
    let url = std::env::args().next_back().unwrap();
    let scenario = std::env::var(SCENARIO).unwrap_or_default();
    let context: Value =
        std::env::var(CONTEXT).ok().and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
    if scenario.starts_with("auth/") {
        return drive_guarded(&url, &scenario, &context);
    }
    // This one has a server that takes every request for one of the modern era.
    let era = if scenario == "request-metadata" { "modern" } else { "auto" };
    let server = format!("[[mcp.server]]\nname = \"suite\"\nurl = \"{url}\"\nprefix = \"\"\nera = \"{era}\"\n");
    let daemon = daemon(Home::new(), "allow = [\"mcp__suite\"]", &server, &["suite"]);
    let mut client = Client::legacy(&daemon, json!({"elicitation": {"form": {}}, "sampling": {}, "roots": {}}));
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

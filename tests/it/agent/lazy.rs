//! Many tools of other servers: the model is told their names, asks for a description, and then calls, through the gate.

use std::collections::BTreeSet;
use std::io::{BufRead, Write};

use serde_json::{Value, json};

use super::server::{Server, Wire, calls, text};
use super::{ask, results};
use crate::daemon::Home;

/// Set for the child: how many tools it has.
const TOOLS: &str = "LAZY_FIXTURE_TOOLS";

/// The server behind the daemon: this test binary again, with as many tools as it is told.
#[test]
fn serve() {
    let Ok(count) = std::env::var(TOOLS) else { return };
    let count: usize = count.parse().unwrap();
    let mut out = std::io::stdout();
    for line in std::io::stdin().lock().lines() {
        let Ok(message) = serde_json::from_str::<Value>(&line.unwrap()) else { continue };
        let Some(id) = message.get("id") else { continue };
        let tool = |at: usize| {
            json!({
                "name": format!("tool{at}"), "description": format!("{} number {at}", "long ".repeat(60)),
                "inputSchema": {"type": "object", "properties": {"level": {"type": "integer", "maximum": 9}},
                    "required": ["level"], "additionalProperties": false},
                "annotations": {"readOnlyHint": true},
            })
        };
        let answer = match message["method"].as_str().unwrap_or_default() {
            "initialize" => json!({"result": {
                "protocolVersion": message["params"]["protocolVersion"], "capabilities": {"tools": {}},
                "serverInfo": {"name": "lazy", "version": "1"},
            }}),
            "tools/list" => json!({"result": {"tools": (0..count).map(tool).collect::<Vec<_>>()}}),
            "tools/call" => json!({"result": {"content": [{"type": "text", "text":
                format!("{} at {}", message["params"]["name"], message["params"]["arguments"]["level"])}]}}),
            _ => json!({"error": {"code": -32601, "message": "no such method"}}),
        };
        let mut whole = json!({"jsonrpc": "2.0", "id": id});
        whole.as_object_mut().unwrap().extend(answer.as_object().unwrap().clone());
        writeln!(out, "{whole}").unwrap();
        out.flush().unwrap();
    }
    std::process::exit(0);
}

/// The tools that a request offers, by name, each with its description and the schema of its input.
fn offered(wire: Wire, request: &Value) -> Vec<(String, String, Value)> {
    let empty = Vec::new();
    let list = |value: &'_ Value| value.as_array().cloned().unwrap_or_default();
    let tools = match wire {
        Wire::Chat => list(&request["tools"]).into_iter().map(|tool| tool["function"].clone()).collect(),
        Wire::Anthropic | Wire::Responses => list(&request["tools"]),
        Wire::Gemini => {
            let groups = request["tools"].as_array().unwrap_or(&empty);
            groups.iter().flat_map(|group| list(&group["functionDeclarations"])).collect::<Vec<_>>()
        }
    };
    let schema = |tool: &Value| {
        let keys = ["input_schema", "parameters", "parametersJsonSchema"];
        keys.iter().find_map(|key| tool.get(*key)).cloned().unwrap_or_default()
    };
    let word = |tool: &Value, key: &str| tool[key].as_str().unwrap_or_default().to_owned();
    tools.iter().map(|tool| (word(tool, "name"), word(tool, "description"), schema(tool))).collect()
}

fn home(server: &Server, wire: Wire, tools: usize) -> (Home, std::path::PathBuf) {
    let own = std::env::current_exe().unwrap().to_str().unwrap().to_owned();
    let command = [own.as_str(), "--exact", "agent::lazy::serve", "--nocapture"];
    let config = format!(
        "version = 1\n{}\n[policy]\nallow = [\"mcp__lazy__tool7\"]\n[[mcp.server]]\nname = \"lazy\"\n\
         command = {}\nenv = {{ {TOOLS} = \"{tools}\" }}\n",
        server.config(wire, "window = 200000"),
        json!(command)
    );
    let home = Home::new();
    let path = home.config(&config);
    (home, path)
}

/// The n-th request, once the daemon has seen all tools of the server.
fn run(wire: Wire, tools: usize, script: Vec<super::server::Answer>) -> (Server, Vec<(String, String)>) {
    let server = Server::start(script);
    let (home, path) = home(&server, wire, tools);
    let daemon = home.start(Some(&path));
    daemon.eventually("the tools of the server", || {
        let known = daemon.list("mcp.list");
        let count: usize = known.iter().map(|row| row["tools"].as_array().map_or(0, Vec::len)).sum();
        (count == tools).then_some(())
    });
    let (end, all) = ask(&daemon, "turn it");
    assert_eq!(end["outcome"], "done", "{wire:?} {all:?}");
    (server, results(&all))
}

#[test]
fn of_sixty_tools_the_model_is_told_names_and_a_schema_when_it_asks() {
    for wire in [Wire::Chat, Wire::Anthropic, Wire::Responses] {
        let level = |level: u64| json!({ "level": level });
        let (server, results) = run(
            wire,
            60,
            vec![
                calls(wire, &[("c1", "describe_tool", json!({ "name": "lazy__tool7" }))]),
                // One that fits the schema, and one that breaks it.
                calls(wire, &[("c2", "lazy__tool7", level(3)), ("c3", "lazy__tool7", level(99))]),
                calls(wire, &[("c4", "describe_tool", json!({ "name": "lazy__tool99" }))]),
                text(wire, "turned"),
            ],
        );
        let requests = server.requests();
        let first = offered(wire, &requests[0].body);
        let theirs: Vec<_> = first.iter().filter(|(name, ..)| name.starts_with("lazy__")).collect();
        assert_eq!(theirs.len(), 60, "{wire:?}: every name is told");
        for (name, description, schema) in &theirs {
            assert!(description.chars().count() <= 120 && schema.get("properties").is_none(), "{name} {schema}");
        }
        assert!(first.iter().any(|(name, ..)| name == "describe_tool"), "{wire:?}");
        // Our own tools are described as ever.
        let own = first.iter().find(|(name, ..)| name == "read_file").unwrap();
        assert!(own.2["properties"]["path"].is_object(), "{wire:?}");
        let second = requests[1].body.to_string();
        assert!(second.contains("number 7") && second.contains("maximum"), "{wire:?}: the schema was asked for");
        let later = offered(wire, &requests[1].body);
        let full: BTreeSet<_> = later
            .iter()
            .filter(|(name, _, schema)| name.starts_with("lazy__") && schema.get("properties").is_some())
            .map(|(name, ..)| name.as_str())
            .collect();
        assert_eq!(full, BTreeSet::from(["lazy__tool7"]), "{wire:?}: described from now on, and no other");
        // A name that is only a name is called by the same path: its schema is looked at, and the gate.
        let ended = |result: &str, code: &str| (result.to_owned(), code.to_owned());
        assert_eq!(results[1..3], [ended("done", "-"), ended("not_started", "bad_input")], "{wire:?} {results:?}");
        // However often it is escaped on its way.
        let third = requests[2].body.to_string().replace('\\', "");
        assert!(third.contains("\"tool7\" at 3"), "{wire:?}: {third}");
        assert!(requests[3].body.to_string().contains("there is no tool"), "{wire:?}");
    }
}

#[test]
fn a_provider_that_takes_no_empty_schema_and_a_short_list_get_every_schema() {
    for (wire, tools) in [(Wire::Gemini, 60), (Wire::Chat, 5), (Wire::Anthropic, 5)] {
        let (server, _) = run(wire, tools, vec![text(wire, "nothing to do")]);
        let first = offered(wire, &server.requests()[0].body);
        let theirs: Vec<_> = first.iter().filter(|(name, ..)| name.starts_with("lazy__")).collect();
        assert_eq!(theirs.len(), tools, "{wire:?}");
        assert!(theirs.iter().all(|(_, _, schema)| schema["properties"]["level"].is_object()), "{wire:?}");
        assert!(!first.iter().any(|(name, ..)| name == "describe_tool"), "{wire:?}");
    }
}

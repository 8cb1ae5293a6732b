//! The trace of a model's run, from the log alone: its turns, its calls and its subagent in one typed graph.

use std::process::Command;

use serde_json::{Value, json};

use super::server::{Server, Wire, calls, text};
use super::{ask, rows};
use crate::daemon::Home;
use crate::daemon::export::desk::Desk;

fn trace(state: &std::path::Path, run: &Value, format: &str) -> String {
    let ran = Command::new(env!("CARGO_BIN_EXE_interlock"))
        .args(["trace", run.as_str().unwrap(), "--format", format, "--state"])
        .arg(state)
        .env("LANG", "C")
        .output()
        .unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).unwrap()
}

#[test]
fn a_run_with_turns_hooks_checks_and_a_child_is_one_typed_graph() {
    let home = Home::new();
    let hook = super::hook(&home, "hook", "grep -q 'rm ' && { echo not that >&2; exit 2; }; exit 0");
    let write = json!({ "path": "src.txt", "content": "new", "mode": "overwrite" });
    let task = json!({ "task": "look at <b>pump 2</b>" });
    let read = json!({ "device": "pump-2", "action": "read" });
    let server = Server::start(vec![
        calls(Wire::Chat, &[("c1", "write_file", write), ("c2", "shell", json!({ "command": "rm x" }))]),
        super::server::Answer::error("500 Wait", "retry-after: 0", "{}"),
        calls(Wire::Chat, &[("c3", "subagent", task)]),
        calls(Wire::Chat, &[("k1", "device", read)]),
        text(Wire::Chat, "it runs"),
        text(Wire::Chat, "all is well"),
    ]);
    let agent = format!("[[agent.hook]]\non = \"before\"\ntools = [\"shell\"]\ncommand = [\"{hook}\"]\n");
    let config = home.config(&format!(
        "version = 1\n{}\n[policy]\nallow = [\"Edit\"]\n[[maintenance]]\nname = \"build\"\npaths = [\"src.txt\"]\n\
         check = \"cat src.txt\"\n",
        server.config(Wire::Chat, &agent)
    ));
    let daemon = home.start(Some(&config));
    let (end, all) = ask(&daemon, "see to it");
    assert_eq!(end["outcome"], "done", "{all:?}");
    let (state, run) = (daemon.path("state"), &end["run"]);
    daemon.eventually("the check", || rows(&daemon, run, "maintenance").pop());
    let graph: Value = serde_json::from_str(&trace(&state, run, "json")).unwrap();
    assert_eq!(graph["missing"], json!([]), "{graph}");
    let events = graph["events"].as_array().unwrap();
    let of = |run: &Value, kind: &str| -> Vec<&Value> {
        events.iter().filter(|event| event["run"] == *run && event["kind"] == kind).collect()
    };
    // Every row of the loop is a typed vertex.
    for (kind, count) in [
        ("agent_asked", 1),
        ("agent_turn", 3),
        ("agent_dispatched", 2),
        ("agent_hook", 1),
        ("agent_trouble", 1),
        ("maintenance", 1),
        ("agent_ended", 1),
    ] {
        let found = of(run, kind);
        assert_eq!(found.len(), count, "{kind}");
        assert!(found.iter().all(|event| event["agent"].is_object()), "{kind}: {found:?}");
    }
    assert_eq!(of(run, "agent_hook")[0]["agent"]["decision"], "deny");
    assert_eq!(of(run, "maintenance")[0]["agent"]["passed"], true);
    assert!(of(run, "agent_turn")[0]["agent"]["took_ns"].as_u64().unwrap() > 0);
    // The child hangs on the call that made it.
    let child = &graph["children"][0];
    let calls = graph["calls"].as_array().unwrap();
    let call = |tool: &str| calls.iter().find(|call| call["tool"] == tool).unwrap_or_else(|| panic!("{tool}"));
    assert_eq!((&child["parent"], &child["call"]), (run, &call("subagent")["call"]));
    assert_eq!(call("write_file")["turn"], 1);
    assert_eq!(call("subagent")["turn"], 2);
    assert_eq!((&call("device")["turn"], &call("device")["parent"]), (&json!(1), &child["call"]));
    let edges = graph["edges"].as_array().unwrap();
    let joined = |from: &Value, to: &Value, kind: &str| {
        let edge = json!({ "from": from["seq"], "to": to["seq"], "kind": kind });
        assert!(edges.contains(&edge), "{edge} is not in {edges:?}");
    };
    let of_call = |tool: &str, kind: &str| {
        let id = &call(tool)["call"];
        events.iter().find(|event| event["call"] == *id && event["kind"] == kind).unwrap()
    };
    let (turns, handed, below) = (of(run, "agent_turn"), of(run, "agent_dispatched"), &child["run"]);
    joined(of(run, "run_opened")[0], of(run, "agent_asked")[0], "lifecycle");
    joined(of(run, "agent_asked")[0], turns[0], "order");
    joined(of(run, "agent_asked")[0], of(run, "agent_ended")[0], "pairing");
    joined(turns[0], of(run, "agent_hook")[0], "decision");
    joined(turns[0], handed[0], "pairing");
    joined(turns[0], of_call("write_file", "requested"), "lifecycle");
    joined(handed[0], of(run, "maintenance")[0], "lifecycle");
    joined(of_call("write_file", "settled"), of(run, "maintenance")[0], "order");
    joined(of_call("subagent", "started"), of(below, "run_opened")[0], "lifecycle");
    joined(of(below, "agent_turn")[0], of_call("device", "requested"), "lifecycle");
    joined(of(below, "agent_ended")[0], of_call("subagent", "settled"), "lifecycle");
    joined(of_call("subagent", "settled"), turns[2], "order");
    // The other forms have the same.
    let lines = trace(&state, run, "text");
    for want in ["turn 1", "made by call", "deny shell (c2) not that", "(cold start)", "in turn 2  subagent"] {
        assert!(lines.contains(want), "{want} is not in {lines}");
    }
    let dot = trace(&state, run, "dot");
    assert_eq!(dot.matches(" -> ").count(), edges.len());
    assert!(dot.contains("shape=hexagon"));
    let page = trace(&state, run, "html");
    assert!(page.contains("Loop of the model") && page.contains("all is well"), "{page}");
    assert!(page.contains("look at &lt;b&gt;pump 2&lt;/b&gt;") && !page.contains("<b>pump 2"), "{page}");
}

#[test]
fn to_a_collector_a_subagent_is_a_trace_that_points_to_the_call_which_made_it() {
    let (desk, home) = (Desk::open(), Home::new());
    let read = json!({ "device": "pump-2", "action": "read" });
    let server = Server::start(vec![
        calls(Wire::Chat, &[("c1", "subagent", json!({ "task": "look at pump 2" }))]),
        calls(Wire::Chat, &[("k1", "device", read)]),
        text(Wire::Chat, "it runs"),
        text(Wire::Chat, "all is well"),
    ]);
    let config = home.config(&format!(
        "version = 1\n{}\n[export.otlp]\nendpoint = \"http://127.0.0.1:{}\"\ndevice = \"box-1\"\n",
        server.config(Wire::Chat, ""),
        desk.port
    ));
    let daemon = home.start(Some(&config));
    let (end, all) = ask(&daemon, "see to it");
    assert_eq!(end["outcome"], "done", "{all:?}");
    let spans: Vec<Value> = desk.until("both loops", |posted| {
        let traces = posted.iter().filter(|posted| posted.path == "/v1/traces");
        let spans: Vec<Value> = traces
            .flat_map(|posted| posted.json()["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap().clone())
            .collect();
        (spans.iter().filter(|span| span["name"] == "invoke_agent").count() == 2).then_some(spans)
    });
    let named = |name: &str| -> Vec<&Value> { spans.iter().filter(|span| span["name"] == name).collect() };
    let (subagent, device) = (named("execute_tool subagent")[0], named("execute_tool device")[0]);
    let loops = named("invoke_agent");
    let child = loops.iter().find(|span| span["traceId"] == device["traceId"]).unwrap();
    assert_ne!(child["traceId"], subagent["traceId"]);
    assert_eq!(child["links"], json!([{ "traceId": subagent["traceId"], "spanId": subagent["spanId"] }]), "{child}");
    assert!(loops.iter().all(|span| span.get("status").is_none()), "{loops:?}");
    // Each turn stands below its loop, and each trace has one root.
    assert_eq!(named("chat").len(), 4);
    for one in &loops {
        let trace: Vec<&Value> = spans.iter().filter(|span| span["traceId"] == one["traceId"]).collect();
        assert_eq!(trace.iter().filter(|span| span.get("parentSpanId").is_none()).count(), 1, "{trace:?}");
        let turns = trace.iter().filter(|span| span["name"] == "chat");
        assert!(turns.into_iter().all(|turn| turn["parentSpanId"] == one["spanId"]));
    }
}

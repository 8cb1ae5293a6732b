//! Tasks of the protocol over the daemon's whole life.

use serde_json::json;

use super::*;

#[test]
fn a_task_of_a_dead_process_is_failed_after_a_restart_and_never_working() {
    let daemon = Daemon::with("version = 1\n[policy]\nmode = \"default\"\nallow = [\"monitor\"]\n");
    let config = daemon.path("interlock.toml");
    let mut client = Client::modern(&daemon, json!({"extensions": {"io.modelcontextprotocol/tasks": {}}}));
    let made = client.request("tools/call", json!({"name": "monitor", "arguments": {"device": "pump-1"}}));
    assert_eq!(made["result"]["resultType"], "task", "{made}");
    let id = made["result"]["taskId"].as_str().unwrap().to_owned();
    let task = client.request("tasks/get", json!({"taskId": id}));
    assert_eq!(task["result"]["status"], "working", "{task}");
    let home = daemon.kill();
    drop(client);
    let daemon = home.start(Some(&config));
    let mut client = Client::modern(&daemon, json!({"extensions": {"io.modelcontextprotocol/tasks": {}}}));
    let task = client.request("tasks/get", json!({"taskId": id}))["result"].clone();
    assert_eq!((&task["status"], &task["error"]["code"]), (&json!("failed"), &json!(-32603)), "{task}");
    assert!(task["statusMessage"].as_str().unwrap().contains("the daemon ended"), "{task}");
    // It is failed for good, also after the next start.
    let (_, home) = daemon.end();
    drop(client);
    let daemon = home.start(Some(&config));
    let mut client = Client::modern(&daemon, json!({"extensions": {"io.modelcontextprotocol/tasks": {}}}));
    let again = client.request("tasks/get", json!({"taskId": id}))["result"].clone();
    assert_eq!((&again["status"], &again["lastUpdatedAt"]), (&task["status"], &task["lastUpdatedAt"]), "{again}");
}

#[test]
fn a_task_of_a_server_is_a_task_of_ours_under_an_id_of_ours() {
    let home = Home::new();
    let servers = server(&home, "a", "", "");
    let daemon = daemon(home, "allow = [\"mcp__a\"]", &servers, &["a"]);
    let mut client = Client::legacy(&daemon, json!({}));
    let job = client.tools().into_iter().find(|tool| tool["name"] == "a__job").unwrap();
    assert_eq!(job["execution"]["taskSupport"], "required");
    let plain = client.request("tools/call", json!({"name": "a__job", "arguments": {}}));
    assert_eq!(plain["error"]["code"], -32601, "{plain}");
    let run = |client: &mut Client| {
        let made = client.request("tools/call", json!({"name": "a__job", "arguments": {}, "task": {"ttl": 60_000}}));
        assert_eq!(made["result"]["task"]["status"], "working", "{made}");
        made["result"]["task"]["taskId"].as_str().unwrap().to_owned()
    };
    let id = run(&mut client);
    assert_ne!(id, "theirs");
    let result = client.request("tasks/result", json!({"taskId": id}))["result"].clone();
    assert_eq!((text(&result), code(&result)), ("the job is done", "done"), "{result}");
    assert_eq!(lines(&daemon, "a", "jobs"), ["theirs"]);
    // Ours is cancelled, and so is theirs.
    let id = run(&mut client);
    daemon.eventually("the job at the server", || (lines(&daemon, "a", "jobs").len() == 2).then_some(()));
    let cancelled = client.request("tasks/cancel", json!({"taskId": id}));
    assert_eq!(cancelled["result"]["status"], "cancelled", "{cancelled}");
    daemon.eventually("the cancellation at the server", || lines(&daemon, "a", "cancelled_jobs").first().cloned());
    let again = client.request("tasks/cancel", json!({"taskId": id}));
    assert_eq!(again["error"]["code"], -32602, "{again}");
}

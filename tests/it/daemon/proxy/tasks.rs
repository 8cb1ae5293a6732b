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

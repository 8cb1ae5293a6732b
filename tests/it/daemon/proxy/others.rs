//! Servers that nobody here wrote, all at once behind one daemon.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::*;

/// Where `cargo xtask conformance` has put them; a plain `cargo test` finds them beside this program.
fn clients() -> Option<PathBuf> {
    let named = std::env::var_os("INTERLOCK_TEST_MCP_CLIENTS").map(PathBuf::from);
    let beside = || Some(std::env::current_exe().ok()?.ancestors().nth(3)?.join("mcp-clients"));
    let everything = "node/node_modules/@modelcontextprotocol/server-everything";
    named
        .or_else(beside)
        .filter(|place| place.join(everything).exists() && place.join("py/bin/mcp-server-git").exists())
}

#[test]
fn five_servers_of_others_are_served_at_once() {
    let Some(place) = clients() else {
        crate::skipped(
            "daemon::proxy::others::five_servers_of_others_are_served_at_once",
            "no MCP servers of others: run cargo xtask conformance",
        );
        return;
    };
    let home = Home::new();
    let (files, repository) = (home.path("files"), home.path("repository"));
    std::fs::create_dir_all(&files).unwrap();
    std::fs::create_dir_all(&repository).unwrap();
    std::fs::write(files.join("note.txt"), "读数 42").unwrap();
    let git = Command::new("git").args(["init", "-q"]).arg(&repository).status();
    let has_git = git.is_ok_and(|status| status.success());
    let node = place.join("node/node_modules/.bin/node");
    let script = |package: &str| {
        let dist = format!("node/node_modules/@modelcontextprotocol/{package}/dist/index.js");
        json!([node, place.join(dist)])
    };
    let mut filesystem = script("server-filesystem");
    filesystem.as_array_mut().unwrap().push(json!(files));
    let mut entries = vec![
        ("everything", script("server-everything"), String::new()),
        ("filesystem", filesystem, String::new()),
        (
            "memory",
            script("server-memory"),
            format!("env = {{ MEMORY_FILE_PATH = {} }}\n", json!(home.path("memory.json"))),
        ),
        ("time", json!([place.join("py/bin/mcp-server-time"), "--local-timezone", "UTC"]), String::new()),
    ];
    if has_git {
        entries.push(("git", json!([place.join("py/bin/mcp-server-git"), "--repository", repository]), String::new()));
    }
    let servers: String = entries
        .iter()
        .map(|(name, command, more)| format!("[[mcp.server]]\nname = \"{name}\"\ncommand = {command}\n{more}"))
        .collect();
    let names: Vec<&str> = entries.iter().map(|(name, ..)| *name).collect();
    let allow: Vec<String> = names.iter().map(|name| format!("mcp__{name}")).collect();
    let daemon = daemon(home, &format!("allow = {}", json!(allow)), &servers, &names);
    let mut client = Client::legacy(&daemon, json!({}));
    let listed = client.names();
    for name in &names {
        assert!(listed.iter().any(|tool| tool.starts_with(&format!("{name}__"))), "{name}: {listed:?}");
    }
    let check = |client: &mut Client, tool: &str, input: Value, says: &str| {
        let result = client.call(tool, input);
        assert_ne!(result["isError"], true, "{tool}: {result}");
        assert!(result["content"].to_string().contains(says), "{tool}: {result}");
    };
    check(&mut client, "everything__echo", json!({"message": "你好"}), "你好");
    check(&mut client, "filesystem__read_text_file", json!({"path": files.join("note.txt")}), "读数 42");
    let entity = json!({"entities": [{"name": "二号泵", "entityType": "pump", "observations": ["runs"]}]});
    check(&mut client, "memory__create_entities", entity, "二号泵");
    check(&mut client, "memory__search_nodes", json!({"query": "二号泵"}), "runs");
    check(&mut client, "time__get_current_time", json!({"timezone": "Asia/Shanghai"}), "+08:00");
    if has_git {
        check(&mut client, "git__git_status", json!({"repo_path": repository}), "");
    }
    // What they say about their effects, in the paper's tables.
    let counted = daemon.cli(&["effects", "census", "--json"]);
    let counted: Value = serde_json::from_slice(&counted.stdout).unwrap();
    assert_eq!(counted["servers"].as_u64().unwrap(), names.len() as u64, "{counted}");
    assert!(counted["tools"].as_u64().unwrap() > 25 && counted["contracts"] == 0, "{counted}");
    assert!(counted["percent"]["any_hint"].as_f64().unwrap() > 0.0, "{counted}");
    // One that is killed harms no other, and comes back with what it had written.
    let killed = pid(&stands(&daemon, "memory", "up"));
    kill(killed);
    check(&mut client, "everything__echo", json!({"message": "still here"}), "still here");
    check(&mut client, "filesystem__read_text_file", json!({"path": files.join("note.txt")}), "读数 42");
    check(&mut client, "time__get_current_time", json!({"timezone": "Asia/Shanghai"}), "+08:00");
    if has_git {
        check(&mut client, "git__git_status", json!({"repo_path": repository}), "");
    }
    daemon.eventually("the killed one is back", || {
        let rows = daemon.list("mcp.list");
        let is_back = |row: &&Value| row["server"] == "memory" && row["state"] == "up" && pid(row) != killed;
        rows.iter().find(is_back).map(drop)
    });
    for row in daemon.list("mcp.list") {
        let restarts = u64::from(row["server"] == "memory");
        assert_eq!((&row["state"], &row["restarts"]), (&json!("up"), &json!(restarts)), "{row}");
    }
    check(&mut client, "memory__search_nodes", json!({"query": "二号泵"}), "runs");
    // What one of them refuses stays its own word.
    let refused = client.call("filesystem__read_text_file", json!({"path": "/etc/shadow"}));
    assert_eq!(refused["isError"], true, "{refused}");
}

//! Servers that die, hang, dawdle or never start: what becomes of their calls, and that nobody else notices.

use std::time::Instant;

use serde_json::{Value, json};

use super::*;

const ALL: &str = "allow = [\"mcp__a\", \"mcp__b\"]";

/// A command that starts the fixture unless the file `stop` lies beside it.
fn stoppable(home: &Home, name: &str) -> String {
    let fixture = fixture::command().iter().map(|part| format!("'{part}'")).collect::<Vec<_>>().join(" ");
    let script = format!("test -e {}/stop && exit 1; exec {fixture}", home.path(name).display());
    json!(["sh", "-c", script]).to_string()
}

fn is_news(message: &Value) -> bool {
    message["method"] == "notifications/tools/list_changed"
}

#[test]
fn a_tool_that_says_how_far_it_is_may_take_longer_and_not_for_ever() {
    let home = Home::new();
    let servers = server(&home, "a", "", "timeout = 1\ntotal-timeout = 20")
        + &server(&home, "b", "modern", "timeout = 1\ntotal-timeout = 1.5");
    let daemon = daemon(home, ALL, &servers, &["a", "b"]);
    let mut client = Client::legacy(&daemon, json!({}));
    let slow = |steps: u64, pause: u64, tool: &str| json!({"name": tool, "arguments": {"steps": steps, "pause_ms": pause}, "_meta": {"progressToken": "mine"}});
    let result = client.request("tools/call", slow(5, 400, "a__slow"))["result"].clone();
    assert_eq!((text(&result), code(&result)), ("slept", "done"), "{result}");
    for step in 1..=5 {
        let told = client.wait("progress", |message| message["method"] == "notifications/progress");
        assert_eq!(told["params"], json!({"progressToken": "mine", "progress": step as f64, "total": 5.0}));
    }
    let late = client.request("tools/call", slow(1, 3000, "a__slow"))["result"].clone();
    assert_eq!(code(&late), "timed_out", "no sign of life: {late}");
    let capped = client.request("tools/call", slow(20, 200, "b__slow"))["result"].clone();
    assert_eq!(code(&capped), "timed_out", "the total cap: {capped}");
    assert_eq!(lines(&daemon, "a", "asked_to_cancel").len(), 1, "the server is told to stop");
}

#[test]
fn a_killed_idle_server_is_gone_from_the_list_and_comes_back() {
    let home = Home::new();
    let command = stoppable(&home, "a");
    let servers = started_by(&home, "a", "", &command, "") + &server(&home, "b", "", "");
    let daemon = daemon(home, ALL, &servers, &["a", "b"]);
    let mut client = Client::legacy(&daemon, json!({}));
    assert!(client.names().contains(&"a__echo".to_owned()));
    std::fs::write(daemon.path("a").join("stop"), "").unwrap();
    kill(pid(&stands(&daemon, "a", "up")));
    client.wait("the news", is_news);
    let row = stands(&daemon, "a", "down");
    assert_eq!(row["pid"], Value::Null, "{row}");
    let names = client.names();
    assert!(!names.iter().any(|name| name.starts_with("a__")) && names.contains(&"b__echo".to_owned()), "{names:?}");
    let down = client.call("a__echo", json!({}));
    assert_eq!((code(&down), &down["isError"]), ("server_down", &json!(true)), "{down}");
    assert!(text(&down).contains("nothing was sent"), "{down}");
    let alarms = client.call("alarm", json!({"verb": "list"}));
    assert!(alarms.to_string().contains("MCP server a is down"), "health is red: {alarms}");
    std::fs::remove_file(daemon.path("a").join("stop")).unwrap();
    stands(&daemon, "a", "up");
    client.wait("the news", is_news);
    assert_eq!(code(&client.call("a__echo", json!({}))), "done");
    let ways = |rows: &[Value], way: &str| rows.iter().filter(|row| row["to"] == way).count();
    evidence(&daemon, "mcp_server", |rows| ways(rows, "down") >= 1 && ways(rows, "up") >= 3);
}

#[test]
fn a_server_killed_in_mid_call_leaves_an_unknown_outcome_and_starts_again() {
    let home = Home::new();
    // A grandchild holds the output open: only the kernel's word tells that the server is dead.
    let fixture = fixture::command().iter().map(|part| format!("'{part}'")).collect::<Vec<_>>().join(" ");
    let noted = home.path("a").join("grandchild");
    let script = format!("sleep 999 & echo $! > {}; exec {fixture}", noted.display());
    let servers = started_by(&home, "a", "", &json!(["sh", "-c", script]).to_string(), "");
    let daemon = daemon(home, ALL, &servers, &["a"]);
    let grandchild = || lines(&daemon, "a", "grandchild")[0].parse::<i32>().unwrap();
    let first = grandchild();
    let mut client = Client::legacy(&daemon, json!({}));
    let call = client.ask("tools/call", json!({"name": "a__wait", "arguments": {}}));
    daemon.eventually("the call at the server", || lines(&daemon, "a", "waiting").first().cloned());
    let began = Instant::now();
    kill(pid(&stands(&daemon, "a", "up")));
    let result = client.answer(call)["result"].clone();
    assert!(began.elapsed().as_secs() < 5, "an answer, not a time-out");
    assert_eq!(
        (code(&result), &result["_meta"]["interlock/outcome"]["ending"]),
        ("killed", &json!("unknown")),
        "{result}"
    );
    assert!(text(&result).starts_with("OUTCOME UNKNOWN (killed)"), "{result}");
    daemon.eventually("the end of the grandchild", || (!lives(first)).then_some(()));
    // A call that comes meanwhile waits for the new life.
    assert_eq!(code(&client.call("a__echo", json!({}))), "done");
    let (second, server) = (grandchild(), pid(&stands(&daemon, "a", "up")));
    assert_ne!(first, second);
    drop(client);
    let (status, _home) = daemon.end();
    assert!(status.success());
    assert!(!lives(second) && !lives(server), "a stop leaves nobody behind");
}

#[test]
fn a_call_that_may_have_acted_is_not_sent_twice() {
    let home = Home::new();
    let servers = server(&home, "a", "", "") + &server(&home, "b", "modern", "");
    let daemon = daemon(home, ALL, &servers, &["a", "b"]);
    let mut client = Client::legacy(&daemon, json!({}));
    for server in ["a", "b"] {
        let once = client.call(&format!("{server}__act_and_die"), json!({}));
        assert_eq!(once["_meta"]["interlock/outcome"]["ending"], "unknown", "{once}");
        assert_eq!(lines(&daemon, server, "acts"), ["die"]);
        std::fs::remove_file(daemon.path(server).join("acts")).unwrap();
        // Twice is once, says this one.
        let twice = client.call(&format!("{server}__act_once_and_die"), json!({}));
        assert_eq!((text(&twice), code(&twice)), ("acted once", "done"), "{twice}");
        assert_eq!(lines(&daemon, server, "acts"), ["once", "once"]);
    }
}

#[test]
fn one_bad_command_harms_no_other_server_and_starts_no_storm() {
    let home = Home::new();
    let bad = "[[mcp.server]]\nname = \"bad\"\ncommand = [\"/no/such/program\"]\n";
    let servers = server(&home, "a", "silent", "timeout = 2") + bad + &server(&home, "b", "", "");
    let daemon = daemon(home, ALL, &servers, &["b"]);
    let mut client = Client::legacy(&daemon, json!({}));
    assert_eq!(code(&client.call("b__echo", json!({}))), "done");
    let row = stands(&daemon, "bad", "down");
    assert!(row["why"].as_str().unwrap().contains("/no/such/program"), "{row}");
    // The pause doubles: 0.2, 0.4, 0.8 s, … The third failure comes after 0.6 s at the earliest.
    daemon.eventually("the third failure", || {
        daemon.list("mcp.list").into_iter().find(|row| row["server"] == "bad" && row["restarts"].as_u64() >= Some(3))
    });
    assert!(stands(&daemon, "bad", "down")["restarts"].as_u64() <= Some(8));
    // One that never says a word holds nobody up either.
    assert_eq!(stands(&daemon, "a", "starting")["tools"], json!([]));
}

#[test]
fn a_cancellation_reaches_the_server_under_its_own_id() {
    let home = Home::new();
    let servers = server(&home, "a", "", "");
    let daemon = daemon(home, ALL, &servers, &["a"]);
    let mut client = Client::legacy(&daemon, json!({}));
    let call = client.ask("tools/call", json!({"name": "a__wait", "arguments": {}}));
    let theirs = daemon.eventually("the call at the server", || lines(&daemon, "a", "waiting").first().cloned());
    assert_ne!(theirs, call.to_string(), "ids of clients stay here");
    let cancel = json!({"requestId": call, "reason": "test"});
    client.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancel}));
    daemon.eventually("the worker's end", || lines(&daemon, "a", "cancelled").first().cloned());
    assert_eq!(lines(&daemon, "a", "asked_to_cancel"), [theirs]);
    assert_eq!(code(&client.call("a__echo", json!({}))), "done");
}

#[test]
fn what_is_no_message_is_skipped_and_counted() {
    let home = Home::new();
    let servers = server(&home, "a", "", "");
    let daemon = daemon(home, ALL, &servers, &["a"]);
    // The test runner's own lines: "running 1 test" at least.
    let row = stands(&daemon, "a", "up");
    assert!(row["noise"].as_u64() >= Some(1), "{row}");
    assert_eq!(row["eras"], json!(["2025-11-25"]));
}

#[test]
fn a_reload_starts_ends_and_leaves_alone() {
    let home = Home::new();
    let (a, b) = (server(&home, "a", "", ""), server(&home, "b", "", ""));
    let daemon = daemon(home, ALL, &a, &["a"]);
    let kept = pid(&stands(&daemon, "a", "up"));
    let write = |servers: &str| {
        let text = format!("version = 1\n[policy]\n{ALL}\n{servers}");
        std::fs::write(daemon.path("interlock.toml"), text).unwrap();
        assert_eq!(daemon.cli(&["reload"]).status.code(), Some(0), "{}", daemon.log());
    };
    let mut client = Client::legacy(&daemon, json!({}));
    write(&format!("{a}{b}"));
    let row = stands(&daemon, "b", "up");
    client.wait("the news", is_news);
    assert_eq!(pid(&stands(&daemon, "a", "up")), kept, "what did not change goes on");
    assert_eq!(code(&client.call("b__echo", json!({}))), "done");
    write(&a);
    assert!(!lives(pid(&row)), "what is not in the file any more has ended");
    client.wait("the news", is_news);
    assert!(!client.names().iter().any(|name| name.starts_with("b__")));
}

#[test]
fn a_resource_is_watched_once_again_after_a_restart_and_until_nobody_does() {
    let home = Home::new();
    let servers = server(&home, "a", "", "");
    let daemon = daemon(home, "allow = [\"mcp__a\"]", &servers, &["a"]);
    let mut client = Client::legacy(&daemon, json!({}));
    let is_update = |message: &Value| message["method"] == "notifications/resources/updated";
    let watch = |client: &mut Client, method: &str| {
        let answer = client.request(method, json!({"uri": "fix://one"}));
        assert_eq!(answer["result"], json!({}), "{answer}");
    };
    watch(&mut client, "resources/subscribe");
    client.wait("the first update", is_update);
    // The same client twice, and another one: the server is asked once.
    watch(&mut client, "resources/subscribe");
    let mut other = Client::legacy(&daemon, json!({}));
    watch(&mut other, "resources/subscribe");
    assert_eq!(lines(&daemon, "a", "subscribed").len(), 1);
    kill(pid(&stands(&daemon, "a", "up")));
    daemon.eventually("the subscription of the next life", || {
        (lines(&daemon, "a", "subscribed").len() == 2).then_some(())
    });
    client.wait("what may have changed meanwhile", is_update);
    stands(&daemon, "a", "up");
    watch(&mut other, "resources/unsubscribe");
    assert_eq!(lines(&daemon, "a", "unsubscribed").len(), 0, "somebody still watches");
    // The last one just goes away.
    drop(client);
    daemon.eventually("nobody watches", || lines(&daemon, "a", "unsubscribed").first().cloned());
}

//! What servers and clients write that the protocol has no shape for: it costs themselves something, and nobody else.

use super::authority::{Authority, Manners};
use super::*;

#[test]
fn a_result_that_is_none_says_so_and_keeps_its_outcome() {
    let home = Home::new();
    let servers = server(&home, "a", "misshapen", "");
    let daemon = daemon(home, "allow = [\"mcp__a\"]", &servers, &["a"]);
    let mut client = Client::legacy(&daemon, json!({}));
    let block = json!({"type": "text", "text": "fine"});
    for (result, is_right) in [
        (json!({"content": [block]}), true),
        (json!({"content": [block], "isError": false, "_meta": "theirs"}), true),
        (json!({"content": [{"type": "text", "text": "fine"}, {"type": "of the future", "x": 1}]}), true),
        (json!({"content": "fine"}), false),
        (json!({"content": ["fine"]}), false),
        (json!({"content": [{"type": "text", "text": 5}]}), false),
        (json!({"content": [block], "isError": "no"}), false),
        (json!({"task": "fine", "content": 5}), false),
    ] {
        let got = client.call("a__repeat", json!({"result": result}));
        assert_eq!(code(&got), "done", "{result}: {got}");
        assert_eq!(got["isError"] == true, !is_right, "{result}: {got}");
        let says = if is_right { "fine" } else { "answered with something that is no result" };
        assert!(text(&got).contains(says), "{result}: {got}");
    }
    // What is no object is no answer at all: what became of the call is not known.
    for result in [json!("fine"), json!([1]), json!(7), json!(null)] {
        let got = client.call("a__repeat", json!({"result": result}));
        assert_eq!(got["_meta"]["interlock/outcome"]["ending"], "unknown", "{result}: {got}");
    }
    assert_eq!(text(&client.call("a__echo", json!({"still": 1}))), r#"{"still":1}"#);
    assert_eq!(stands(&daemon, "a", "up")["restarts"], 0);
    assert!(!daemon.log().contains("panicked"), "{}", daemon.log());
}

#[test]
fn a_list_that_is_none_keeps_its_server_down_until_it_is_one() {
    let home = Home::new();
    let lists = [("text", json!("tools")), ("row", json!([1])), ("within", json!({"tools": "echo"}))];
    let mut servers = server(&home, "good", "", "");
    for (name, listed) in &lists {
        servers += &server(&home, name, "", "timeout = 2\n");
        std::fs::write(home.path(name).join("listed"), listed.to_string()).unwrap();
    }
    let daemon = daemon(home, "allow = [\"mcp__good\", \"mcp__text\"]", &servers, &["good"]);
    for (name, _) in &lists {
        let row = stands(&daemon, name, "down");
        assert!(row["why"].as_str().unwrap().contains("does not list its tools"), "{row}");
        std::fs::remove_file(daemon.path(name).join("listed")).unwrap();
    }
    assert_eq!(text(&once(&daemon, "good__echo", json!({}))), "{}");
    for (name, _) in &lists {
        stands(&daemon, name, "up");
    }
    assert_eq!(text(&once(&daemon, "text__echo", json!({}))), "{}");
    assert!(!daemon.log().contains("panicked"), "{}", daemon.log());
}

#[test]
fn what_a_client_declares_need_not_be_an_object() {
    let home = Home::new();
    let servers = server(&home, "a", "", "");
    let daemon = daemon(home, "allow = [\"mcp__a\"]", &servers, &["a"]);
    let mut client =
        Client::legacy(&daemon, json!({"extensions": "all", "elicitation": 5, "tasks": [1], "roots": null}));
    let job = |task: Value| json!({"name": "a__job", "arguments": {}, "task": task});
    for task in [json!(5), json!("yes"), json!([]), json!(true)] {
        assert_eq!(client.request("tools/call", job(task.clone()))["error"]["code"], -32602, "{task}");
    }
    for ttl in [json!(-1), json!("x"), json!(true), json!({}), json!(-0.5)] {
        let answer = client.request("tools/call", job(json!({"ttl": ttl})));
        assert_eq!(answer["error"]["code"], -32602, "{ttl}: {answer}");
    }
    assert_eq!(lines(&daemon, "a", "jobs"), Vec::<String>::new(), "nothing was started");
    let made = client.request("tools/call", job(json!({"ttl": 1e308})));
    let task = &made["result"]["task"];
    assert_eq!(task["ttl"], 24 * 3_600_000, "{made}");
    let done = client.request("tasks/result", json!({"taskId": task["taskId"]}));
    assert_eq!(text(&done["result"]), "the job is done", "{done}");
    assert!(!daemon.log().contains("panicked"), "{}", daemon.log());
}

#[test]
fn a_call_that_was_answered_with_a_bare_status_is_sent_once() {
    let authority = Authority::start(Manners::Right);
    let daemon = oauth::logged_in(&authority);
    let mut sent = 0;
    for (status, ending, says) in [
        ("429 Too Many Requests", "failed", "it did nothing"),
        ("404 Not Found", "failed", "it did nothing"),
        ("400 Bad Request", "unknown", "OUTCOME UNKNOWN"),
        ("408 Request Timeout", "unknown", "OUTCOME UNKNOWN"),
        ("502 Bad Gateway", "unknown", "OUTCOME UNKNOWN"),
    ] {
        authority.refuse(status);
        let got = once(&daemon, "far__echo", json!({}));
        assert_eq!(got["_meta"]["interlock/outcome"]["ending"], ending, "{status}: {got}");
        assert!(text(&got).contains(says), "{status}: {got}");
        sent += 1;
        assert_eq!(authority.calls().len(), sent, "{status}");
    }
}

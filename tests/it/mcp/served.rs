//! The server over HTTP, in both eras.

use super::*;

#[tokio::test]
async fn a_modern_client_discovers_lists_and_calls() {
    let world = world(quick()).await;
    let found = json_of(world.modern(1, "server/discover", json!({})).await).await;
    assert_eq!(found["result"]["supportedVersions"], json!([MODERN]));
    assert_eq!(found["result"]["resultType"], "complete");
    let listed = json_of(world.modern(2, "tools/list", json!({})).await).await;
    assert_eq!(listed["result"]["cacheScope"], "private");
    let echo = listed["result"]["tools"].as_array().unwrap().iter().find(|tool| tool["name"] == "echo").unwrap();
    assert_eq!(echo["_meta"]["interlock/contract"]["effect"], "none");
    let called =
        json_of(world.modern(3, "tools/call", json!({"name": "echo", "arguments": {"text": "你好"}})).await).await;
    assert_eq!(called["id"], 3);
    assert_eq!(called["result"]["structuredContent"], json!({"text": "你好"}));
    assert_eq!(called["result"]["isError"], false);
    assert_eq!(called["result"]["_meta"]["interlock/outcome"]["evidence"], 7);
}

#[tokio::test]
async fn a_legacy_client_opens_a_session_lists_calls_and_closes() {
    let mut world = world(quick()).await;
    let session = world.open(json!({})).await;
    let pong = json_of(world.legacy(&session, json!({"jsonrpc": "2.0", "id": "p", "method": "ping"})).await).await;
    assert_eq!(pong, json!({"jsonrpc": "2.0", "id": "p", "result": {}}));
    let listed =
        json_of(world.legacy(&session, json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})).await).await;
    assert!(listed["result"].get("resultType").is_none(), "the older era has no result types");
    let called = json_of(world.legacy(&session, call(2, "echo", json!({"text": "a"}))).await).await;
    assert_eq!(called["result"]["structuredContent"], json!({"text": "a"}));
    let again = json_of(world.legacy(&session, call(2, "echo", json!({"text": "b"}))).await).await;
    assert_eq!(again["result"]["structuredContent"], json!({"text": "b"}), "an id that is free again");
    let gone = world.client.delete(world.url()).header("mcp-session-id", &session).send().await.unwrap();
    assert_eq!(gone.status(), 204);
    world.saw(Seen::Closed).await;
    assert_eq!(refused(world.legacy(&session, call(3, "echo", json!({}))).await).await, (404, -32001));
}

/// Each ending of a call, as both eras see it.
#[tokio::test]
async fn endings_are_told_apart_in_both_eras() {
    let world = world(quick()).await;
    let session = world.open(json!({})).await;
    for (tool, ending, begins) in [
        ("fail", "failed", "Failed (illegal_address)"),
        ("unknown", "unknown", "OUTCOME UNKNOWN (timed_out)"),
        ("denied", "not_started", "Refused by policy (denied_by_rule)"),
    ] {
        let modern = json_of(world.modern(1, "tools/call", json!({"name": tool})).await).await;
        let legacy = json_of(world.legacy(&session, call(1, tool, json!({}))).await).await;
        for result in [&modern["result"], &legacy["result"]] {
            assert_eq!(result["isError"], true, "{tool}");
            assert_eq!(result["_meta"]["interlock/outcome"]["ending"], ending, "{tool}");
            assert!(result["content"][0]["text"].as_str().unwrap().starts_with(begins), "{result}");
            assert!(result.get("structuredContent").is_none(), "it could not fit the output schema");
        }
    }
    assert_eq!(refused(world.modern(1, "tools/call", json!({"name": "nope"})).await).await, (400, -32602));
    assert_eq!(refused(world.legacy(&session, call(1, "nope", json!({}))).await).await, (200, -32602));
}

#[tokio::test]
async fn what_is_no_message_costs_that_message_only() {
    let world = world(quick()).await;
    let version = ("mcp-protocol-version", MODERN);
    for (body, expected) in [
        (&b"hello"[..], (400, -32700)),
        (b"", (400, -32700)),
        (b"\xff\xfe", (400, -32700)),
        (b"[]", (400, -32600)),
        (br#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, (400, -32600)),
        (br#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#, (400, -32600)),
    ] {
        assert_eq!(refused(world.post(&[version], body.to_vec()).await).await, expected);
    }
    let long = vec![b' '; (1 << 20) + 1];
    assert_eq!(refused(world.post(&[version], long).await).await, (413, -32600));
    let answer = json_of(world.modern(9, "tools/call", json!({"name": "echo"})).await).await;
    assert_eq!(answer["id"], 9, "the others are served");
}

#[tokio::test]
async fn a_body_of_a_hundred_megabytes_is_refused_before_it_is_sent() {
    let world = world(quick()).await;
    let mut socket = TcpStream::connect(world.base.strip_prefix("http://").unwrap()).await.unwrap();
    let head = "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
                accept: application/json, text/event-stream\r\ncontent-length: 104857600\r\n\r\n";
    socket.write_all(head.as_bytes()).await.unwrap();
    let mut answer = String::new();
    timeout(DEADLINE, socket.read_to_string(&mut answer)).await.expect("in time").expect("closed by the server");
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
}

#[tokio::test]
async fn a_head_or_a_body_that_never_ends_is_cut_off() {
    let settings =
        Settings { head_wait: Duration::from_millis(50), body_wait: Duration::from_millis(50), ..Settings::default() };
    let world = world(settings).await;
    let head = "POST /mcp HTTP/1.1\r\nhost: localhost\r\n";
    let body = "content-type: application/json\r\naccept: */*\r\ncontent-length: 100\r\n\r\n{";
    for (sent, begins) in [(head.to_owned(), ""), (format!("{head}{body}"), "HTTP/1.1 408 ")] {
        let mut socket = TcpStream::connect(world.base.strip_prefix("http://").unwrap()).await.unwrap();
        socket.write_all(sent.as_bytes()).await.unwrap();
        let mut answer = String::new();
        timeout(DEADLINE, socket.read_to_string(&mut answer)).await.expect("cut off").expect("closed");
        assert!(answer.starts_with(begins), "{answer}");
    }
}

#[tokio::test]
async fn pages_and_wrong_media_types_stay_outside() {
    let world = world(quick()).await;
    let body = || json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}).to_string();
    assert_eq!(world.post(&[("origin", "http://evil.example")], body()).await.status(), 403);
    let request = || world.client.post(world.url()).body(body());
    let plain = request().header("content-type", "text/plain").header("accept", "*/*").send().await.unwrap();
    assert_eq!(plain.status(), 415);
    let html = request().header("content-type", "application/json").header("accept", "text/html").send().await.unwrap();
    assert_eq!(html.status(), 406);
    let rebound = request()
        .header("content-type", "application/json")
        .header("accept", "*/*")
        .header("host", "evil.example")
        .send()
        .await
        .unwrap();
    assert_eq!(rebound.status(), 403);
    assert_eq!(world.client.put(world.url()).send().await.unwrap().status(), 405);
    assert_eq!(world.client.get(format!("{}/", world.base)).send().await.unwrap().status(), 404);
}

#[tokio::test]
async fn with_tokens_everybody_says_who_it_is_and_has_what_is_its_own() {
    let tokens = Tokens::new([("robot", "one"), ("laptop", "two")]);
    let access = Access { tokens, ..Access::default() };
    let mut world = world(Settings { access, ..quick() }).await;
    let body = |id: u64, method: &str, params: Value| {
        json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string()
    };
    let hello = || body(0, "initialize", json!({"clientInfo": {"name": "test", "version": "1"}}));
    for headers in [&[][..], &[("authorization", "Bearer three")]] {
        let refused = world.post(headers, hello()).await;
        assert_eq!(refused.status(), 401);
        assert_eq!(refused.headers()["www-authenticate"], "Bearer");
    }
    let (robot, laptop) = (("authorization", "Bearer one"), ("authorization", "Bearer two"));
    let session = world.post(&[robot], hello()).await.headers()["mcp-session-id"].to_str().unwrap().to_owned();
    let with = ("mcp-session-id", session.as_str());
    let call = || body(1, "tools/call", json!({"name": "echo"}));
    assert_eq!(world.post(&[laptop, with], call()).await.status(), 404, "somebody else's session");
    assert_eq!(world.post(&[robot, with], call()).await.status(), 200);
    let asker = Asker { name: "test".into(), version: "1".into(), holder: Some("robot".into()) };
    assert_eq!(asker.label(), "mcp:robot:test/1");
    world.saw(Seen::Opened(asker)).await;
    let made = body(2, "tools/call", json!({"name": "watch", "task": {}}));
    let made = json_of(world.post(&[robot, with], made).await).await;
    let task = made["result"]["task"]["taskId"].as_str().unwrap();
    let capabilities = json!({"extensions": {"io.modelcontextprotocol/tasks": {}}});
    let get = body(3, "tasks/get", json!({"taskId": task, "_meta": meta(&capabilities, &Value::Null)}));
    let modern = [("mcp-protocol-version", MODERN), ("mcp-method", "tasks/get"), ("mcp-name", task)];
    let theirs = world.post(&[&[laptop], &modern[..]].concat(), get.clone()).await;
    assert_eq!(refused(theirs).await, (400, -32602), "somebody else's task");
    assert_eq!(world.post(&[&[robot], &modern[..]].concat(), get).await.status(), 200, "its own, in either era");
}

#[tokio::test]
async fn the_eras_are_not_mixed() {
    let world = world(quick()).await;
    let version = ("mcp-protocol-version", MODERN);
    let bare = |method: &str| json!({"jsonrpc": "2.0", "id": 1, "method": method}).to_string();
    // The older era without a session, or with one that is none.
    assert_eq!(refused(world.post(&[], bare("tools/list")).await).await, (400, -32600));
    assert_eq!(refused(world.post(&[("mcp-session-id", "x")], bare("tools/list")).await).await, (404, -32001));
    // The modern era has no `initialize`, `ping` or `logging/setLevel`.
    assert_eq!(refused(world.post(&[version], bare("initialize")).await).await, (404, -32601));
    assert_eq!(refused(world.modern(1, "ping", json!({})).await).await, (404, -32601));
    assert_eq!(refused(world.modern(1, "logging/setLevel", json!({"level": "info"})).await).await, (404, -32601));
    // A revision that nobody knows.
    let future = world.post(&[("mcp-protocol-version", "2099-01-01")], bare("tools/list")).await;
    assert_eq!(refused(future).await, (400, -32022));
    // Headers of the modern era on a tool that asks for one.
    let params = json!({"name": "routed", "arguments": {"region": "east"}});
    assert_eq!(refused(world.modern(1, "tools/call", params).await).await, (400, -32020));
}

#[tokio::test]
async fn progress_comes_on_the_stream_of_its_call() {
    let world = world(quick()).await;
    let params = json!({"name": "progress", "_meta": {"progressToken": "p1"}});
    let mut events = events(world.modern(5, "tools/call", params).await);
    for progress in [0.0, 50.0, 100.0] {
        let message = events.next().await.expect("progress");
        assert_eq!(message["method"], "notifications/progress");
        assert_eq!(
            (&message["params"]["progressToken"], &message["params"]["progress"]),
            (&json!("p1"), &json!(progress))
        );
    }
    assert_eq!(events.next().await.expect("the answer")["result"]["structuredContent"], json!({"steps": 3}));
    assert_eq!(events.next().await, None);
    let quiet = json_of(world.modern(6, "tools/call", json!({"name": "progress"})).await).await;
    assert_eq!(quiet["id"], 6, "without a token there is nothing before the answer");
}

#[tokio::test]
async fn a_modern_client_that_goes_away_cancels() {
    let mut world = world(quick()).await;
    let events = events(world.modern(1, "tools/call", json!({"name": "slow"})).await);
    drop(events);
    world.saw(Seen::Cancelled).await;
    world.saw(Seen::Closed).await;
}

#[tokio::test]
async fn a_legacy_client_that_goes_away_does_not_cancel_but_its_word_does() {
    let mut world = world(quick()).await;
    let session = world.open(json!({})).await;
    let mut open = events(world.legacy(&session, call(1, "slow", json!({}))).await);
    let note = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}});
    assert_eq!(world.legacy(&session, note.clone()).await.status(), 202);
    world.saw(Seen::Cancelled).await;
    assert_eq!(open.next().await, None, "nothing is sent for a cancelled request");
    // Gone, and still at work: only the word cancels it.
    drop(events(world.legacy(&session, call(1, "slow", json!({}))).await));
    world.saw(Seen::Submitted("slow".into(), json!({}))).await;
    assert_eq!(world.legacy(&session, note).await.status(), 202);
    world.saw(Seen::Cancelled).await;
}

#[tokio::test]
async fn a_legacy_stream_that_broke_is_resumed_without_a_loss() {
    let world = world(quick()).await;
    let session = world.open(json!({"elicitation": {}})).await;
    let mut first = events(world.legacy(&session, call(1, "ask", json!({}))).await);
    let notice = first.next().await.expect("the notice");
    assert_eq!(notice["params"]["data"]["question"], "q1");
    let after = first.ids.last().expect("an id").clone();
    drop(first);
    let again = world
        .client
        .get(world.url())
        .header("accept", "text/event-stream")
        .header("mcp-session-id", &session)
        .header("last-event-id", &after)
        .send()
        .await
        .unwrap();
    let mut second = events(again);
    let form = second.next().await.expect("the form");
    assert_eq!(form["method"], "elicitation/create");
    let answer =
        json!({"jsonrpc": "2.0", "id": form["id"], "result": {"action": "accept", "content": {"decision": "allow"}}});
    assert_eq!(world.legacy(&session, answer).await.status(), 202);
    assert_eq!(second.next().await.expect("the answer")["result"]["structuredContent"], json!({"ran": true}));
    assert_eq!(second.next().await, None);
}

#[tokio::test]
async fn a_question_nobody_can_be_asked_is_named_and_stays_open() {
    let mut world = world(quick()).await;
    let modern = world.modern(1, "tools/call", json!({"name": "ask"})).await;
    let answer = answer_of(modern).await;
    let outcome = &answer["result"]["_meta"]["interlock/outcome"];
    assert_eq!((&outcome["code"], &outcome["question"]), (&json!("question_open"), &json!("q1")));
    assert_eq!(answer["result"]["isError"], true);
    let text = answer["result"]["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("interlock ask allow q1") && text.contains("合上一号断路器？"), "{text}");
    world.saw(Seen::Closed).await;
    assert!(world.seen.try_recv().is_err(), "it was neither cancelled nor answered");
}

/// What the person behind the client says, and what the engine hears.
async fn legacy_person(said: Value, heard: Option<Answer>) {
    let mut world = world(quick()).await;
    let session = world.open(json!({"elicitation": {}})).await;
    let mut open = events(world.legacy(&session, call(1, "ask", json!({}))).await);
    let form = loop {
        let message = open.next().await.expect("the form");
        if message["method"] == "elicitation/create" {
            break message;
        }
    };
    let answer = json!({"jsonrpc": "2.0", "id": form["id"], "result": said});
    assert_eq!(world.legacy(&session, answer).await.status(), 202);
    let result = open.next().await.expect("the answer");
    match heard {
        Some(heard) => world.saw(Seen::Answered(QuestionId(1), heard, "mcp:test/1".into())).await,
        None => assert_eq!(result["result"]["_meta"]["interlock/outcome"]["code"], "question_open"),
    }
}

#[tokio::test]
async fn the_person_behind_a_legacy_client_decides() {
    legacy_person(json!({"action": "accept", "content": {"decision": "allow"}}), Some(Answer::Allow)).await;
    legacy_person(json!({"action": "accept", "content": {"decision": "deny"}}), Some(Answer::Deny)).await;
    legacy_person(json!({"action": "decline"}), Some(Answer::Deny)).await;
    legacy_person(json!({"action": "cancel"}), None).await;
    legacy_person(json!({"action": "accept", "content": {}}), None).await;
}

#[tokio::test]
async fn a_modern_call_is_parked_for_its_person_and_for_nobody_else() {
    let mut world = world(quick()).await;
    let forms = |more: Value| {
        let mut params = json!({"name": "ask", "arguments": {"x": 1},
            "_meta": {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}}});
        for (name, value) in more.as_object().unwrap() {
            params[name] = value.clone();
        }
        params
    };
    let asked = json_of(world.modern(1, "tools/call", forms(json!({}))).await).await;
    let result = &asked["result"];
    assert_eq!(result["resultType"], "input_required");
    assert_eq!(result["inputRequests"]["interlock/decision"]["method"], "elicitation/create");
    let state = result["requestState"].clone();
    let yes = json!({"interlock/decision": {"action": "accept", "content": {"decision": "allow"}}});
    // Other arguments, another state: neither reaches the call.
    for wrong in [
        json!({"requestState": state, "inputResponses": yes, "arguments": {"x": 2}}),
        json!({"requestState": "0123", "inputResponses": yes}),
        json!({"requestState": 7, "inputResponses": yes}),
        json!({"requestState": state, "inputResponses": []}),
    ] {
        assert_eq!(refused(world.modern(2, "tools/call", forms(wrong)).await).await, (400, -32602));
    }
    // Without the answer it is asked for again, under a new state.
    let again = json!({"requestState": state, "inputResponses": {"other": {}}});
    let again = json_of(world.modern(3, "tools/call", forms(again)).await).await;
    assert_eq!((&again["id"], &again["result"]["resultType"]), (&json!(3), &json!("input_required")));
    let used_up = json!({"requestState": state, "inputResponses": yes});
    assert_eq!(refused(world.modern(4, "tools/call", forms(used_up)).await).await, (400, -32602));
    let answer = json!({"requestState": again["result"]["requestState"], "inputResponses": yes});
    let done = json_of(world.modern(5, "tools/call", forms(answer)).await).await;
    assert_eq!((&done["id"], &done["result"]["structuredContent"]), (&json!(5), &json!({"ran": true})));
    world.saw(Seen::Answered(QuestionId(1), Answer::Allow, "mcp:test/1".into())).await;
}

#[tokio::test]
async fn listeners_hear_that_the_tools_changed() {
    let world = world(quick()).await;
    let session = world.open(json!({})).await;
    let get = world.client.get(world.url()).header("accept", "text/event-stream").header("mcp-session-id", &session);
    let mut legacy = events(get.send().await.unwrap());
    let wanted = json!({"notifications": {"toolsListChanged": true, "promptsListChanged": true}});
    let mut modern = events(world.modern(8, "subscriptions/listen", wanted).await);
    let acknowledged = modern.next().await.expect("the acknowledgement");
    assert_eq!(acknowledged["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(acknowledged["params"]["notifications"], json!({"toolsListChanged": true, "promptsListChanged": true}));
    world.engine.news.send(News::ToolsChanged).expect("listeners");
    assert_eq!(legacy.next().await.expect("news")["method"], "notifications/tools/list_changed");
    let news = modern.next().await.expect("news");
    assert_eq!(news["method"], "notifications/tools/list_changed");
    assert_eq!(news["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], 8);
    // The server stops: both streams end, the modern one with its answer.
    world.stop.send(true).expect("a server");
    assert_eq!(modern.next().await.expect("the end")["result"]["resultType"], "complete");
    assert_eq!(legacy.next().await, None);
    timeout(DEADLINE, world.served).await.expect("it stops").expect("cleanly");
}

#[tokio::test]
async fn a_thousand_hellos_leave_the_working_session_alone() {
    let world = world(Settings { sessions_max: 50, ..quick() }).await;
    let working = world.open(json!({})).await;
    let hello = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {}}).to_string();
    for _ in 0..1000 {
        assert_eq!(world.post(&[], hello.clone()).await.status(), 200);
    }
    let answer = json_of(world.legacy(&working, call(1, "echo", json!({"text": "here"}))).await).await;
    assert_eq!(answer["result"]["structuredContent"], json!({"text": "here"}));
}

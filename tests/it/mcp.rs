//! The MCP server over real sockets and pipes, in front of an engine made of answers.
#![expect(clippy::print_stdout, reason = "the server for the clients says where it is, and a random test its seed")]

mod fake;
mod suite;
mod tasks;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use interlock::agents::core::{Core, Settings};
use interlock::agents::engine::{Answer, Asker, Engine, News};
use interlock::agents::front::door::{Access, Tokens};
use interlock::agents::front::{http, stdio};
use interlock_domain::id::QuestionId;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use fake::Seen;

/// Nothing here takes long; whoever waits longer hangs.
const DEADLINE: Duration = Duration::from_secs(20);

const MODERN: &str = "2026-07-28";

/// A running server and what its engine saw.
struct World {
    engine: Engine,
    core: Arc<Core>,
    seen: mpsc::UnboundedReceiver<Seen>,
    base: String,
    client: reqwest::Client,
    stop: watch::Sender<bool>,
    served: tokio::task::JoinHandle<()>,
}

async fn world(settings: Settings) -> World {
    // The client is built for TLS and wants to know whose; the second test to say so is told that it is known.
    let _known = rustls::crypto::ring::default_provider().install_default();
    let (engine, seen) = fake::start();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let (stop, stopped) = watch::channel(false);
    let core = Core::new(engine.clone(), settings);
    let served = tokio::spawn(http::serve(listener, Arc::clone(&core), stopped));
    World { engine, core, seen, base, client: reqwest::Client::new(), stop, served }
}

/// Answers of a test do not wait for a person.
fn quick() -> Settings {
    Settings { question_wait: Duration::from_millis(50), ..Settings::default() }
}

impl World {
    fn url(&self) -> String {
        format!("{}/mcp", self.base)
    }

    async fn post(&self, headers: &[(&str, &str)], body: impl Into<reqwest::Body>) -> reqwest::Response {
        let mut request = self
            .client
            .post(self.url())
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        timeout(DEADLINE, request.body(body).send()).await.expect("in time").expect("an answer")
    }

    /// A request of the modern era with everything that it needs.
    async fn modern(&self, id: u64, method: &str, mut params: Value) -> reqwest::Response {
        params["_meta"] = meta(&json!({}), &params["_meta"]);
        let name = params["name"].as_str().or(params["taskId"].as_str()).map(str::to_owned);
        let mut headers = vec![("mcp-protocol-version", MODERN), ("mcp-method", method)];
        if let Some(name) = &name {
            headers.push(("mcp-name", name));
        }
        let body = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.post(&headers, body.to_string()).await
    }

    /// Opens a session and gives its id.
    async fn open(&self, capabilities: Value) -> String {
        let body = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": capabilities,
            "clientInfo": {"name": "test", "version": "1"}}});
        let response = self.post(&[], body.to_string()).await;
        assert_eq!(response.status(), 200);
        let session = response.headers()["mcp-session-id"].to_str().unwrap().to_owned();
        let answer = json_of(response).await;
        assert_eq!(answer["result"]["protocolVersion"], "2025-11-25");
        let note = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        assert_eq!(self.legacy(&session, note).await.status(), 202);
        session
    }

    async fn legacy(&self, session: &str, body: Value) -> reqwest::Response {
        self.post(&[("mcp-session-id", session), ("mcp-protocol-version", "2025-11-25")], body.to_string()).await
    }

    async fn saw(&mut self, wanted: Seen) {
        let wait = async {
            while let Some(seen) = self.seen.recv().await {
                if seen == wanted {
                    return;
                }
            }
            panic!("the engine ended before {wanted:?}");
        };
        timeout(DEADLINE, wait).await.unwrap_or_else(|_| panic!("never saw {wanted:?}"));
    }
}

fn meta(capabilities: &Value, more: &Value) -> Value {
    let mut meta = json!({
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    });
    for (name, value) in more.as_object().into_iter().flatten() {
        meta[name] = value.clone();
    }
    meta
}

async fn json_of(response: reqwest::Response) -> Value {
    assert_eq!(response.headers()["content-type"], "application/json");
    let text = timeout(DEADLINE, response.text()).await.expect("in time").expect("a body");
    serde_json::from_str(&text).unwrap_or_else(|why| panic!("{why}: {text}"))
}

/// The answer, whichever way it came: alone, or as the last message of a stream.
async fn answer_of(response: reqwest::Response) -> Value {
    if response.headers()["content-type"] == "application/json" {
        return json_of(response).await;
    }
    let mut events = events(response);
    loop {
        let message = events.next().await.expect("an answer");
        if message.get("method").is_none() {
            return message;
        }
    }
}

/// Status and error code of an answer.
async fn refused(response: reqwest::Response) -> (u16, i64) {
    let status = response.status().as_u16();
    (status, json_of(response).await["error"]["code"].as_i64().unwrap())
}

/// The messages of an event stream, as they come.
struct Events {
    response: reqwest::Response,
    text: String,
    ids: Vec<String>,
}

fn events(response: reqwest::Response) -> Events {
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    Events { response, text: String::new(), ids: Vec::new() }
}

impl Events {
    /// The next message; none when the stream has ended.
    async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let (event, rest) = (event.to_owned(), rest.to_owned());
                self.text = rest;
                let field = |name: &str| {
                    let line = event.lines().find_map(|line| line.strip_prefix(name))?;
                    Some(line.trim_start().to_owned())
                };
                self.ids.extend(field("id:"));
                match field("data:") {
                    Some(data) if !data.is_empty() => return Some(serde_json::from_str(&data).expect("JSON")),
                    _ => continue,
                }
            }
            match timeout(DEADLINE, self.response.chunk()).await.expect("in time").expect("a whole stream") {
                Some(chunk) => self.text.push_str(std::str::from_utf8(&chunk).unwrap()),
                None => return None,
            }
        }
    }
}

fn call(id: u64, tool: &str, arguments: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": tool, "arguments": arguments}})
}

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

/// A connection of lines.
struct Pipe {
    to: Option<tokio::io::WriteHalf<DuplexStream>>,
    from: Lines<BufReader<tokio::io::ReadHalf<DuplexStream>>>,
    served: tokio::task::JoinHandle<std::io::Result<()>>,
    engine: Engine,
    seen: mpsc::UnboundedReceiver<Seen>,
}

fn pipe() -> Pipe {
    let (engine, seen) = fake::start();
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    let (reader, writer) = tokio::io::split(theirs);
    let served = tokio::spawn(stdio::serve(reader, writer, Core::new(engine.clone(), quick())));
    let (from, to) = tokio::io::split(ours);
    Pipe { to: Some(to), from: BufReader::new(from).lines(), served, engine, seen }
}

impl Pipe {
    async fn send(&mut self, line: impl AsRef<[u8]>) {
        let to = self.to.as_mut().expect("open");
        let write = async {
            to.write_all(line.as_ref()).await.unwrap();
            to.write_all(b"\n").await.unwrap();
        };
        timeout(DEADLINE, write).await.expect("it reads");
    }

    async fn next(&mut self) -> Option<Value> {
        let line = timeout(DEADLINE, self.from.next_line()).await.expect("in time").unwrap()?;
        Some(serde_json::from_str(&line).expect("one message a line"))
    }

    async fn ask(&mut self, message: Value) -> Value {
        self.send(message.to_string()).await;
        self.next().await.expect("an answer")
    }

    async fn initialize(&mut self, capabilities: Value) {
        let hello = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": {"name": "t", "version": "1"}}});
        assert_eq!(self.ask(hello).await["result"]["serverInfo"]["name"], "interlock");
        self.send(json!({"jsonrpc": "2.0", "method": "notifications/initialized"}).to_string()).await;
    }
}

#[tokio::test]
async fn lines_that_are_no_messages_cost_themselves_only() {
    let mut pipe = pipe();
    pipe.initialize(json!({})).await;
    for (line, code) in [
        (b"hello".to_vec(), -32700),
        (b"\xff\xfe{".to_vec(), -32700),
        (b"[]".to_vec(), -32600),
        (vec![b'x'; (1 << 20) + 2], -32600),
        (br#"{"jsonrpc":"2.0","id":true,"method":"ping"}"#.to_vec(), -32600),
    ] {
        pipe.send(&line).await;
        let answer = pipe.next().await.expect("an error");
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&Value::Null, &json!(code)));
    }
    let pong = pipe.ask(json!({"jsonrpc": "2.0", "id": 1, "method": "ping"})).await;
    assert_eq!(pong, json!({"jsonrpc": "2.0", "id": 1, "result": {}}));
    let again = pipe.ask(json!({"jsonrpc": "2.0", "id": 2, "method": "initialize", "params": {}})).await;
    assert_eq!(again["error"]["code"], -32600);
}

#[tokio::test]
async fn every_request_of_a_burst_is_answered() {
    let mut pipe = pipe();
    pipe.initialize(json!({})).await;
    // More at once than may be in flight, and than lines may wait for the writer: those that are refused are told so.
    const BURST: u64 = 200;
    let lines: Vec<String> = (1..=BURST).map(|id| call(id, "slow", json!({})).to_string()).collect();
    pipe.send(lines.join("\n")).await;
    let mut refused = BTreeSet::new();
    while refused.len() < 136 {
        let answer = pipe.next().await.expect("an answer");
        assert_eq!(answer["error"]["code"], -32000, "{answer}");
        refused.insert(answer["id"].as_u64().unwrap());
    }
    for id in 1..=BURST {
        pipe.send(
            json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}).to_string(),
        )
        .await;
    }
    // Those that are cancelled leave one by one; then there is room again.
    loop {
        let pong = pipe.ask(json!({"jsonrpc": "2.0", "id": 900, "method": "ping"})).await;
        if pong["result"] == json!({}) {
            break;
        }
        assert_eq!(pong["error"]["code"], -32000, "{pong}");
    }
}

/// Cuts, repeats and overwrites bytes of a message, by the seed.
fn damaged(message: &str, random: &mut fastrand::Rng) -> Vec<u8> {
    let mut bytes = message.as_bytes().to_vec();
    for _ in 0..random.usize(1..6) {
        let at = random.usize(..bytes.len());
        match random.u8(..4) {
            0 => bytes.truncate(at.max(1)),
            1 => bytes[at] = random.u8(..),
            2 => bytes.insert(at, *random.choice(br#"{}[]":,\0e-"#).unwrap()),
            _ => drop(bytes.remove(at)),
        }
        if bytes.is_empty() {
            bytes.push(b'{');
        }
    }
    bytes.retain(|byte| *byte != b'\n');
    bytes
}

#[tokio::test]
async fn damaged_messages_do_no_harm_to_the_next_one() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let whole = [
        call(7, "echo", json!({"text": "你好"})).to_string(),
        json!({"jsonrpc": "2.0", "id": "x", "method": "tasks/get", "params": {"taskId": "t"}}).to_string(),
        json!({"jsonrpc": "2.0", "id": 1, "result": {"action": "accept"}}).to_string(),
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}).to_string(),
        json!({"jsonrpc": "2.0", "id": 3, "method": "tools/list", "params": {"cursor": "after:a"}}).to_string(),
    ];
    let world = world(quick()).await;
    let session = world.open(json!({})).await;
    let mut pipe = pipe();
    pipe.initialize(json!({})).await;
    for round in 0..200u64 {
        let bytes = damaged(random.choice(&whole).unwrap(), &mut random);
        let status = world.post(&[("mcp-session-id", &session)], bytes.clone()).await.status();
        assert!(status.as_u16() < 500, "{status} for {}", String::from_utf8_lossy(&bytes));
        pipe.send(&bytes).await;
        let id = format!("ping {round}");
        pipe.send(json!({"jsonrpc": "2.0", "id": id, "method": "ping"}).to_string()).await;
        while pipe.next().await.expect("an answer")["id"] != json!(id) {}
    }
    let answer = json_of(world.legacy(&session, call(1, "echo", json!({"text": "here"}))).await).await;
    assert_eq!(answer["result"]["structuredContent"], json!({"text": "here"}));
}

#[tokio::test]
async fn the_first_request_decides_the_era_of_a_pipe() {
    let mut pipe = pipe();
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
    assert_eq!(pipe.ask(list.clone()).await["error"]["code"], -32600, "nothing is decided yet");
    let future = json!({"jsonrpc": "2.0", "id": 2, "method": "server/discover", "params": {
        "_meta": {"io.modelcontextprotocol/protocolVersion": "2099-01-01"}}});
    assert_eq!(pipe.ask(future).await["error"]["code"], -32022, "nor by a revision that is not served");
    let discover = json!({"jsonrpc": "2.0", "id": 3, "method": "server/discover", "params": {"_meta": meta(&json!({}), &Value::Null)}});
    assert_eq!(pipe.ask(discover).await["result"]["supportedVersions"], json!([MODERN]));
    assert_eq!(pipe.ask(list).await["error"]["code"], -32602, "now every request carries its _meta");
    let hello = json!({"jsonrpc": "2.0", "id": 4, "method": "initialize", "params": {}});
    assert_eq!(pipe.ask(hello).await["error"]["code"], -32601);
}

#[tokio::test]
async fn answers_in_flight_come_out_after_the_input_ended() {
    let mut pipe = pipe();
    pipe.initialize(json!({})).await;
    for id in 1..=10 {
        pipe.send(call(id, "echo", json!({"text": id.to_string()})).to_string()).await;
    }
    pipe.to.take().expect("open").shutdown().await.unwrap();
    let mut ids = Vec::new();
    while let Some(answer) = pipe.next().await {
        ids.push(answer["id"].as_u64().unwrap());
    }
    ids.sort_unstable();
    assert_eq!(ids, (1..=10).collect::<Vec<_>>());
    timeout(DEADLINE, pipe.served).await.expect("it ends").unwrap().expect("cleanly");
}

#[tokio::test]
async fn a_cancelled_line_gets_no_answer_and_a_tool_change_is_told() {
    let mut pipe = pipe();
    pipe.initialize(json!({})).await;
    pipe.send(call(1, "slow", json!({})).to_string()).await;
    pipe.send(json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}).to_string())
        .await;
    let wait = async { while pipe.seen.recv().await.expect("an engine") != Seen::Cancelled {} };
    timeout(DEADLINE, wait).await.expect("cancelled");
    pipe.engine.news.send(News::ToolsChanged).expect("a listener");
    assert_eq!(pipe.next().await.expect("news")["method"], "notifications/tools/list_changed");
}

#[tokio::test]
async fn the_person_behind_a_pipe_decides() {
    let mut pipe = pipe();
    pipe.initialize(json!({"elicitation": {}})).await;
    let notice = pipe.ask(call(1, "ask", json!({}))).await;
    assert_eq!(notice["method"], "notifications/message");
    let form = pipe.next().await.expect("the form");
    let answer =
        json!({"jsonrpc": "2.0", "id": form["id"], "result": {"action": "accept", "content": {"decision": "allow"}}});
    assert_eq!(pipe.ask(answer).await["result"]["structuredContent"], json!({"ran": true}));
}

/// Serves the fake engine until its input ends, for clients that nobody here wrote (`tests/clients/run`). Does nothing
/// unless it is asked to.
#[tokio::test(flavor = "multi_thread")]
async fn serve_for_clients() {
    if std::env::var_os("INTERLOCK_MCP_SERVE").is_none() {
        return;
    }
    let world = world(Settings::default()).await;
    println!("MCP_URL={}", world.url());
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("mcp.sock");
    let listener = tokio::net::UnixListener::bind(&path).expect("a socket");
    println!("MCP_SOCKET={}", path.display());
    let core = Core::new(world.engine.clone(), Settings::default());
    let accept = async {
        loop {
            let (socket, _) = listener.accept().await.expect("a connection");
            let (reader, writer) = socket.into_split();
            tokio::spawn(stdio::serve(reader, writer, Arc::clone(&core)));
        }
    };
    let until = tokio::task::spawn_blocking(|| std::io::copy(&mut std::io::stdin(), &mut std::io::sink()));
    tokio::select! {
        () = accept => {}
        ended = until => drop(ended.expect("a reader").expect("an input that ends")),
    }
}

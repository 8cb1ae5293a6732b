//! The server over a pair of pipes, where a message is a line.

use super::*;

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

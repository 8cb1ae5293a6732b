//! The MCP server over real sockets and pipes, in front of an engine made of answers.
#![expect(clippy::print_stdout, reason = "the server for the clients says where it is, and a random test its seed")]

mod fake;
mod pipes;
mod served;
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

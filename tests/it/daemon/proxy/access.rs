//! Who may come in over HTTP: tokens, names, TLS, and what each client sees.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use serde_json::{Value, json};

use super::*;

const TOKEN: &str = "a-token-of-the-tests-1";

/// Status and body of one POST, over plain TCP or TLS.
fn post(stream: &mut (impl Read + Write), headers: &[(&str, &str)], body: &Value) -> (u16, Value) {
    let body = body.to_string();
    let mut head = format!(
        "POST /mcp HTTP/1.1\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n\
         Connection: close\r\nContent-Length: {}\r\n",
        body.len()
    );
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    stream.write_all(format!("{head}\r\n{body}").as_bytes()).unwrap();
    let mut answer = Vec::new();
    // A peer that closes without a closing note of TLS has said all that it had to say.
    let _end = stream.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer);
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    let from = body.find('{').unwrap_or(body.len());
    let until = body.rfind('}').map_or(from, |at| at + 1);
    (status, serde_json::from_str(&body[from..until]).unwrap_or(Value::Null))
}

fn modern(method: &str, mut params: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
}

fn address(daemon: &Daemon) -> String {
    let url = daemon.ask("status", json!({})).unwrap()["mcp"].as_str().unwrap().to_owned();
    url.split('/').nth(2).unwrap().to_owned()
}

fn names(list: &Value) -> Vec<&str> {
    list["result"]["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect()
}

#[test]
fn a_token_is_asked_for_and_says_what_its_client_sees() {
    let home = Home::new();
    std::fs::write(home.path("token"), format!("{TOKEN}\n")).unwrap();
    std::fs::write(home.path("other"), "another-token-of-the-tests").unwrap();
    let clients = format!(
        "[[mcp.client]]\nname = \"robot\"\ntoken-file = \"{}\"\nmode = \"plan\"\ntools = [\"mcp__a__echo\", \"device\"]\n\
         [[mcp.client]]\nname = \"laptop\"\ntoken-file = \"{}\"\n",
        home.path("token").display(),
        home.path("other").display()
    );
    let servers = server(&home, "a", "", "") + &clients;
    let daemon = daemon(home, "allow = [\"mcp__a\"]", &servers, &["a"]);
    let address = address(&daemon);
    let send = |token: Option<&str>, host: &str, method: &str, params: Value| {
        let mut stream = TcpStream::connect(&address).unwrap();
        let bearer = token.map(|token| format!("Bearer {token}"));
        let name = params["name"].as_str().unwrap_or_default().to_owned();
        let mut headers = vec![("Host", host), ("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", method)];
        headers.extend(bearer.as_deref().map(|bearer| ("Authorization", bearer)));
        if !name.is_empty() {
            headers.push(("Mcp-Name", &name));
        }
        post(&mut stream, &headers, &modern(method, params))
    };
    let list = |token: Option<&str>, host: &str| send(token, host, "tools/list", json!({}));
    assert_eq!(list(None, "localhost").0, 401);
    assert_eq!(list(Some("a-token-of-the-tests-2"), "localhost").0, 401);
    assert_eq!(list(Some(TOKEN), "evil.example").0, 403, "a name that is not ours");
    let (status, listed) = list(Some(TOKEN), "localhost");
    assert_eq!((status, names(&listed)), (200, vec!["a__echo", "device"]), "{listed}");
    let (_, listed) = list(Some("another-token-of-the-tests"), "localhost");
    assert!(names(&listed).contains(&"a__act") && names(&listed).contains(&"shell"), "{listed}");
    // In its mode nothing of a foreign server is proven to read; outside of its list there is nothing.
    let call = |tool: &str| send(Some(TOKEN), "localhost", "tools/call", json!({"name": tool, "arguments": {}})).1;
    assert_eq!(code(&call("a__echo")["result"]), "denied");
    assert_eq!(code(&call("a__act")["result"]), "no_such_tool");
    evidence(&daemon, "run_opened", |rows| rows.iter().any(|row| row["detail"]["asker"] == "mcp:robot:test/1"));
    assert!(!daemon.log().contains(TOKEN), "no secret is printed");
}

#[test]
fn one_client_that_loops_is_held_back() {
    let home = Home::new();
    std::fs::write(home.path("token"), TOKEN).unwrap();
    let client =
        format!("[[mcp.client]]\nname = \"robot\"\ntoken-file = \"{}\"\nrate = 1\n", home.path("token").display());
    let daemon = daemon(home, "", &client, &[]);
    let address = address(&daemon);
    let bearer = format!("Bearer {TOKEN}");
    let headers = [("Host", "localhost"), ("Authorization", bearer.as_str())];
    let statuses: Vec<u16> = (0..40)
        .map(|_| post(&mut TcpStream::connect(&address).unwrap(), &headers, &json!({"jsonrpc": "2.0"})).0)
        .collect();
    assert_eq!((statuses[0], statuses.contains(&429)), (400, true), "{statuses:?}");
}

/// Why a client of TLS does not talk to the server, in the words that its error begins with.
fn refused_by(
    config: &Arc<rustls::ClientConfig>,
    name: &rustls::pki_types::ServerName<'static>,
    port: &str,
) -> &'static str {
    let session = rustls::ClientConnection::new(Arc::clone(config), name.clone()).unwrap();
    let socket = TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
    let mut stream = rustls::StreamOwned::new(session, socket);
    match stream.write_all(b"GET / HTTP/1.1\r\n\r\n").and_then(|()| stream.flush()) {
        Err(error) if error.to_string().starts_with("invalid peer certificate") => "invalid peer certificate",
        Err(error) => panic!("{error}"),
        Ok(()) => "nothing",
    }
}

#[test]
fn an_address_for_others_speaks_tls() {
    let home = Home::new();
    let (certificate, key) = (home.path("certificate.pem"), home.path("key.pem"));
    std::fs::write(&certificate, include_str!("../../../data/tls/localhost.pem")).unwrap();
    std::fs::write(&key, include_str!("../../../data/tls/localhost-key.pem")).unwrap();
    std::fs::write(home.path("token"), TOKEN).unwrap();
    let mcp = format!(
        "[mcp]\nlisten = \"0.0.0.0:0\"\ntls-certificate = \"{}\"\ntls-key = \"{}\"\nhosts = [\"box.example\"]\n\
         [[mcp.client]]\nname = \"robot\"\ntoken-file = \"{}\"\n",
        certificate.display(),
        key.display(),
        home.path("token").display()
    );
    let daemon = daemon(home, "", &mcp, &[]);
    let url = daemon.ask("status", json!({})).unwrap()["mcp"].as_str().unwrap().to_owned();
    assert!(url.starts_with("https://"), "{url}");
    let port = url.split(':').nth(2).unwrap().split('/').next().unwrap().to_owned();
    let _known = rustls::crypto::ring::default_provider().install_default();
    let mut roots = rustls::RootCertStore::empty();
    let pem = rustls::pki_types::pem::PemObject::pem_slice_iter(include_bytes!("../../../data/tls/localhost.pem"));
    for certificate in pem {
        roots.add(certificate.unwrap()).unwrap();
    }
    let config = Arc::new(rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth());
    let name = rustls::pki_types::ServerName::try_from("localhost").unwrap();
    let bearer = format!("Bearer {TOKEN}");
    let list = |host: &str| {
        let session = rustls::ClientConnection::new(Arc::clone(&config), name.clone()).unwrap();
        let socket = TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
        let headers = [
            ("Host", host),
            ("Authorization", bearer.as_str()),
            ("MCP-Protocol-Version", "2026-07-28"),
            ("Mcp-Method", "tools/list"),
        ];
        post(&mut rustls::StreamOwned::new(session, socket), &headers, &modern("tools/list", json!({})))
    };
    let (status, listed) = list("box.example");
    assert_eq!((status, names(&listed).contains(&"device")), (200, true), "{listed}");
    assert_eq!(list("other.example").0, 403);
    // Another certificate counts from the next connection on: this one is of a name that the client does not trust.
    std::fs::write(&certificate, include_str!("../../../data/tls/other.pem")).unwrap();
    std::fs::write(&key, include_str!("../../../data/tls/other-key.pem")).unwrap();
    assert_eq!(daemon.cli(&["reload"]).status.code(), Some(0), "{}", daemon.log());
    assert_eq!(refused_by(&config, &name, &port), "invalid peer certificate");
    std::fs::write(&key, "nothing").unwrap();
    assert_eq!(daemon.cli(&["reload"]).status.code(), Some(78));
    // Without TLS nobody gets a word.
    let mut plain = TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
    assert_ne!(post(&mut plain, &[("Host", "box.example")], &modern("tools/list", json!({}))).0, 200);
}

/// One answer of a connection that stays open, and the connection.
fn kept_open(address: &str, headers: &[(&str, &str)], body: &Value) -> (TcpStream, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let body = body.to_string();
    let mut head = format!(
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: application/json, \
         text/event-stream\r\nContent-Length: {}\r\n",
        body.len()
    );
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    stream.write_all(format!("{head}\r\n{body}").as_bytes()).unwrap();
    let mut piece = [0; 4096];
    let length = stream.read(&mut piece).unwrap();
    (stream, String::from_utf8_lossy(&piece[..length]).into_owned())
}

/// The connection is closed from the other side, with or without a last word.
fn assert_ends(stream: &mut TcpStream) {
    use std::io::ErrorKind::{TimedOut, WouldBlock};
    if let Err(error) = stream.read_to_end(&mut Vec::new()) {
        assert!(!matches!(error.kind(), TimedOut | WouldBlock), "the connection stays open");
    }
}

#[test]
fn a_reload_takes_a_token_back_at_once() {
    let home = Home::new();
    std::fs::write(home.path("token"), TOKEN).unwrap();
    std::fs::write(home.path("other"), "another-token-of-the-tests").unwrap();
    let client = |name: &str, file: &str| {
        format!("[[mcp.client]]\nname = \"{name}\"\ntoken-file = \"{}\"\n", home.path(file).display())
    };
    let (robot, laptop) = (client("robot", "token"), client("laptop", "other"));
    let daemon = daemon(home, "", &format!("{robot}{laptop}"), &[]);
    let address = address(&daemon);
    let listening = |bearer: &str| {
        let headers =
            [("Authorization", bearer), ("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", "subscriptions/listen")];
        let body = modern("subscriptions/listen", json!({"notifications": {"toolsListChanged": true}}));
        let (stream, answer) = kept_open(&address, &headers, &body);
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        stream
    };
    let session = |bearer: &str| {
        let info = json!({"name": "test", "version": "1"});
        let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info});
        let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello});
        let (_, answer) = kept_open(&address, &[("Authorization", bearer)], &hello);
        let id = answer.lines().find_map(|line| line.strip_prefix("mcp-session-id: ").map(str::to_owned));
        id.unwrap_or_else(|| panic!("{answer}"))
    };
    let status = |bearer: &str, session: &str| {
        let ping = json!({"jsonrpc": "2.0", "id": 2, "method": "ping", "params": {}});
        let headers = [("Host", "localhost"), ("Authorization", bearer), ("Mcp-Session-Id", session)];
        post(&mut TcpStream::connect(&address).unwrap(), &headers, &ping).0
    };
    let (old, other) = (format!("Bearer {TOKEN}"), "Bearer another-token-of-the-tests");
    let (mut robots, mut laptops) = (listening(&old), listening(other));
    let (robots_session, laptops_session) = (session(&old), session(other));
    assert_eq!((status(&old, &robots_session), status(other, &laptops_session)), (200, 200));

    // The robot's token is another from now on; the configuration names the same file.
    std::fs::write(daemon.path("token"), "a-token-of-the-tests-2").unwrap();
    assert_eq!(daemon.cli(&["reload"]).status.code(), Some(0), "{}", daemon.log());
    assert_ends(&mut robots);
    assert_eq!(status(&old, &robots_session), 401);
    let new = "Bearer a-token-of-the-tests-2";
    daemon
        .eventually("the session of the old token is nobody's", || (status(new, &robots_session) == 404).then_some(()));
    assert_eq!(status(new, &session(new)), 200);
    assert_eq!(status(other, &laptops_session), 200, "others notice nothing");

    // A client that is not in the file any more, and one that is new.
    let path = daemon.path("interlock.toml");
    let third = robot.replace("robot", "third");
    std::fs::write(&path, format!("version = 1\n{third}")).unwrap();
    assert_eq!(daemon.cli(&["reload"]).status.code(), Some(0), "{}", daemon.log());
    assert_ends(&mut laptops);
    assert_eq!(status(other, &laptops_session), 401);
    assert_eq!(status(new, &session(new)), 200);

    // A token that cannot be read keeps the old ones, and where MCP listens stays.
    std::fs::write(daemon.path("token"), "short").unwrap();
    assert_eq!(daemon.cli(&["reload"]).status.code(), Some(78));
    assert_eq!(status(new, &session(new)), 200);
    std::fs::write(&path, "version = 1\n[mcp]\nlisten = \"127.0.0.1:1\"\n").unwrap();
    let refused = daemon.cli(&["reload"]);
    assert_eq!(refused.status.code(), Some(78));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("where MCP listens"), "{refused:?}");
}

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
    // Without TLS nobody gets a word.
    let mut plain = TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
    assert_ne!(post(&mut plain, &[("Host", "box.example")], &modern("tools/list", json!({}))).0, 200);
}

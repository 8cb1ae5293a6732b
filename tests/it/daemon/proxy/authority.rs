//! A server that wants OAuth and the authorization server before it, on loopback: what their specifications ask of them
//! is checked, and what they ask of a client is asked.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use reqwest::Url;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// What it does differently from what it should.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Manners {
    /// Nothing.
    Right,
    /// Its metadata names another resource.
    OtherResource,
    /// Its authorization server's metadata has another name.
    OtherIssuer,
    /// It does not say that it checks S256.
    NoChallenge,
    /// It registers nobody.
    NoRegistration,
    /// It says that it always names itself, and does not.
    Nameless,
    /// The guarded server knows the modern era only, and says so before it asks who it is.
    Modern,
}

/// A code that was given, and what has to come with it.
#[derive(Debug, Clone)]
struct Code {
    client: String,
    redirect: String,
    challenge: String,
    scopes: String,
}

#[derive(Debug, Default)]
struct State {
    clients: BTreeSet<String>,
    codes: BTreeMap<String, Code>,
    /// What each access token covers.
    tokens: BTreeMap<String, String>,
    /// The one refresh token of each client that is good, and what it covers.
    refresh: BTreeMap<String, (String, String)>,
    given: u64,
    /// What was wrong with what came.
    wrong: Vec<String>,
    /// Scopes that were asked for, in their order.
    asked: Vec<String>,
    calls: Vec<String>,
    /// The methods of all messages that came to the guarded server, let in or not.
    came: Vec<String>,
    /// What it answers to whoever asks for tokens, in place of doing it: a status and a body.
    stumbles: Option<(&'static str, &'static str)>,
    /// How often it was asked for tokens.
    tries: usize,
    /// What the guarded server answers to a call, in place of a result: a status without a body.
    refuses: Option<&'static str>,
    /// Tokens are given, and the answers that bring them are kept back.
    is_holding: bool,
}

/// Both servers.
#[derive(Debug, Clone)]
pub(super) struct Authority {
    pub(super) address: String,
    manners: Manners,
    state: Arc<Mutex<State>>,
    released: Arc<Condvar>,
}

/// The client that is known without registration.
pub(super) const KNOWN: (&str, &str) = ("box+7", "a:secret of the box");

struct Request {
    method: String,
    target: Url,
    authorization: Option<String>,
    /// It says that it is of the modern era.
    is_modern: bool,
    body: String,
}

impl Authority {
    pub(super) fn start(manners: Manners) -> Authority {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let authority = Authority { address, manners, state: Arc::default(), released: Arc::default() };
        let serving = authority.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let serving = serving.clone();
                std::thread::spawn(move || serving.connection(stream));
            }
        });
        authority
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub(super) fn resource(&self) -> String {
        format!("{}/mcp", self.address)
    }

    /// What was wrong with what came; empty at the end of a good test.
    pub(super) fn wrong(&self) -> Vec<String> {
        self.state().wrong.clone()
    }

    pub(super) fn asked(&self) -> Vec<String> {
        self.state().asked.clone()
    }

    pub(super) fn calls(&self) -> Vec<String> {
        self.state().calls.clone()
    }

    pub(super) fn came(&self, method: &str) -> bool {
        self.state().came.iter().any(|came| came == method)
    }

    pub(super) fn tries(&self) -> usize {
        self.state().tries
    }

    /// From now on whoever asks for tokens is answered that.
    pub(super) fn stumble(&self, status: &'static str, body: &'static str) {
        self.state().stumbles = Some((status, body));
    }

    /// From now on the guarded server answers calls with that status.
    pub(super) fn refuse(&self, status: &'static str) {
        self.state().refuses = Some(status);
    }

    /// It works again.
    pub(super) fn recover(&self) {
        self.state().stumbles = None;
    }

    /// Answers that bring tokens are kept back, until they are released.
    pub(super) fn hold(&self, is_holding: bool) {
        self.state().is_holding = is_holding;
        self.released.notify_all();
    }

    /// The refresh tokens that are good.
    pub(super) fn good(&self) -> Vec<String> {
        self.state().refresh.values().map(|(token, _)| token.clone()).collect()
    }

    /// Everything that it gave out.
    pub(super) fn secrets(&self) -> Vec<String> {
        let state = self.state();
        state.tokens.keys().cloned().chain(state.refresh.values().map(|(token, _)| token.clone())).collect()
    }

    /// Its access tokens are good no more, as after their time.
    pub(super) fn expire(&self) {
        self.state().tokens.clear();
    }

    /// Nothing that it gave is good any more.
    pub(super) fn revoke(&self) {
        let mut state = self.state();
        state.tokens.clear();
        state.refresh.clear();
    }

    fn connection(&self, stream: TcpStream) {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut writer = stream;
        while let Some(request) = self.read(&mut reader) {
            let (status, headers, body) = self.answer(&request);
            let head = format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {}\r\n\r\n{body}", body.len());
            if writer.write_all(head.as_bytes()).is_err() {
                return;
            }
        }
    }

    fn read(&self, reader: &mut impl BufRead) -> Option<Request> {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|length| *length > 0)?;
        let mut words = line.split(' ');
        let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
        let target = Url::parse(&format!("{}{target}", self.address)).ok()?;
        let (mut length, mut authorization, mut is_modern) = (0, None, false);
        loop {
            let mut header = String::new();
            reader.read_line(&mut header).ok()?;
            let Some((name, value)) = header.trim_end().split_once(':') else { break };
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.trim().parse().ok()?,
                "mcp-protocol-version" => is_modern = value.trim() == "2026-07-28",
                "authorization" => authorization = Some(value.trim().to_owned()),
                _ => {}
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        Some(Request { method, target, authorization, is_modern, body: String::from_utf8(body).ok()? })
    }

    fn answer(&self, request: &Request) -> (&'static str, String, String) {
        let json = |status, body: Value| (status, "Content-Type: application/json\r\n".to_owned(), body.to_string());
        let none = || ("404 Not Found", String::new(), String::new());
        match (request.method.as_str(), request.target.path()) {
            ("POST", "/mcp") => self.mcp(request),
            ("GET", "/.well-known/oauth-protected-resource/mcp") => {
                let elsewhere = self.manners == Manners::OtherResource;
                let resource = if elsewhere { "https://elsewhere.example/mcp".to_owned() } else { self.resource() };
                json(
                    "200 OK",
                    json!({"resource": resource, "authorization_servers": [format!("{}/tenant", self.address)],
                    "scopes_supported": ["read"]}),
                )
            }
            ("GET", "/.well-known/oauth-authorization-server/tenant") => json("200 OK", self.metadata()),
            ("POST", "/register") => {
                let asked: Value = serde_json::from_str(&request.body).unwrap();
                let mut state = self.state();
                if asked["application_type"] != "native" || !asked["redirect_uris"][0].is_string() {
                    state.wrong.push(format!("registration: {asked}"));
                }
                let id = format!("client-{}", state.clients.len());
                state.clients.insert(id.clone());
                json("201 Created", json!({"client_id": id, "token_endpoint_auth_method": "none"}))
            }
            ("GET", "/authorize") => self.authorize(&request.target),
            ("POST", "/token") => match self.asked_for_token(request) {
                Ok(Ok(token)) => json("200 OK", token),
                Ok(Err((status, body))) => (status, "Content-Type: application/json\r\n".to_owned(), body.to_owned()),
                Err(error) => {
                    self.state().wrong.push(error.to_owned());
                    json("400 Bad Request", json!({"error": error, "error_description": "as the test wants it"}))
                }
            },
            _ => none(),
        }
    }

    fn metadata(&self) -> Value {
        let at = |path: &str| format!("{}{path}", self.address);
        let mut metadata = json!({
            "issuer": if self.manners == Manners::OtherIssuer { at("/other") } else { at("/tenant") },
            "authorization_endpoint": at("/authorize"),
            "token_endpoint": at("/token"),
            "registration_endpoint": at("/register"),
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none", "client_secret_basic"],
            "authorization_response_iss_parameter_supported": true,
        });
        match self.manners {
            Manners::NoChallenge => metadata["code_challenge_methods_supported"] = json!(["plain"]),
            Manners::NoRegistration => drop(metadata.as_object_mut().unwrap().remove("registration_endpoint")),
            Manners::Right | Manners::OtherResource | Manners::OtherIssuer | Manners::Nameless | Manners::Modern => {}
        }
        metadata
    }

    /// A person who always says yes.
    fn authorize(&self, target: &Url) -> (&'static str, String, String) {
        let asked: BTreeMap<String, String> = target.query_pairs().into_owned().collect();
        let of = |name: &str| asked.get(name).cloned().unwrap_or_default();
        let mut state = self.state();
        let is_known = state.clients.contains(&of("client_id"));
        if !is_known
            || of("response_type") != "code"
            || of("code_challenge_method") != "S256"
            || of("resource") != self.resource()
        {
            state.wrong.push(format!("authorization: {asked:?}"));
        }
        state.asked.push(of("scope"));
        let code = format!("code-{}", state.codes.len());
        let given = Code {
            client: of("client_id"),
            redirect: of("redirect_uri"),
            challenge: of("code_challenge"),
            scopes: of("scope"),
        };
        state.codes.insert(code.clone(), given);
        let mut back = Url::parse(&of("redirect_uri")).unwrap();
        back.query_pairs_mut().append_pair("code", &code).append_pair("state", &of("state"));
        if self.manners != Manners::Nameless {
            back.query_pairs_mut().append_pair("iss", &format!("{}/tenant", self.address));
        }
        ("302 Found", format!("Location: {back}\r\n"), String::new())
    }

    fn asked_for_token(&self, request: &Request) -> Result<Result<Value, (&'static str, &'static str)>, &'static str> {
        let stumbles = {
            let mut state = self.state();
            state.tries += 1;
            state.stumbles
        };
        if let Some(stumbles) = stumbles {
            return Ok(Err(stumbles));
        }
        let given = self.token(request)?;
        let wait = self.released.wait_timeout_while(self.state(), Duration::from_secs(30), |state| state.is_holding);
        drop(wait.unwrap());
        Ok(Ok(given))
    }

    fn token(&self, request: &Request) -> Result<Value, &'static str> {
        let form = Url::parse(&format!("http://form/?{}", request.body)).unwrap();
        let asked: BTreeMap<String, String> = form.query_pairs().into_owned().collect();
        let of = |name: &str| asked.get(name).cloned().unwrap_or_default();
        let mut state = self.state();
        if of("resource") != self.resource() {
            return Err("invalid_target");
        }
        let (client, scopes) = match of("grant_type").as_str() {
            "authorization_code" => {
                let code = state.codes.remove(&of("code")).ok_or("invalid_grant")?;
                let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(of("code_verifier").as_bytes()));
                if (code.challenge, &code.redirect, &code.client) != (challenge, &of("redirect_uri"), &of("client_id"))
                {
                    return Err("invalid_grant");
                }
                (code.client, code.scopes)
            }
            "refresh_token" => {
                // Each is good once.
                let client = of("client_id");
                let (good, scopes) = state.refresh.remove(&client).ok_or("invalid_grant")?;
                if good != of("refresh_token") {
                    return Err("invalid_grant");
                }
                (client, scopes)
            }
            "client_credentials" => {
                let pair = format!("{}:{}", "box%2B7", "a%3Asecret+of+the+box");
                if request.authorization.as_deref() != Some(&format!("Basic {}", STANDARD.encode(pair))) {
                    return Err("invalid_client");
                }
                state.asked.push(of("scope"));
                (KNOWN.0.to_owned(), of("scope"))
            }
            _ => return Err("unsupported_grant_type"),
        };
        state.given += 1;
        let (access, refresh) = (format!("access-token-{}", state.given), format!("refresh-token-{}", state.given));
        state.tokens.insert(access.clone(), scopes.clone());
        let mut given = json!({"access_token": access, "token_type": "bearer", "expires_in": 3600, "scope": scopes});
        if of("grant_type") != "client_credentials" {
            state.refresh.insert(client, (refresh.clone(), scopes));
            given["refresh_token"] = refresh.into();
        }
        Ok(given)
    }

    /// A server of the older era with two tools, of which one wants more.
    fn mcp(&self, request: &Request) -> (&'static str, String, String) {
        let metadata = format!("resource_metadata=\"{}/.well-known/oauth-protected-resource/mcp\"", self.address);
        let refused =
            |status, more: &str| (status, format!("WWW-Authenticate: Bearer {more}, {metadata}\r\n"), String::new());
        let token = request.authorization.as_deref().and_then(|value| value.strip_prefix("Bearer "));
        let mut state = self.state();
        let message: Value = serde_json::from_str(&request.body).unwrap();
        state.came.push(message["method"].as_str().unwrap_or_default().to_owned());
        if self.manners == Manners::Modern && !request.is_modern {
            let error = json!({"code": -32020, "message": "Missing MCP-Protocol-Version header"});
            let body = json!({"jsonrpc": "2.0", "id": message["id"], "error": error});
            return ("400 Bad Request", "Content-Type: application/json\r\n".to_owned(), body.to_string());
        }
        let covered = token.and_then(|token| state.tokens.get(token)).cloned();
        let Some(covered) = covered else { return refused("401 Unauthorized", "scope=\"read\"") };
        let tool = message["params"]["name"].as_str().unwrap_or_default().to_owned();
        if tool == "admin" && !covered.split(' ').any(|scope| scope == "write") {
            return refused("403 Forbidden", "error=\"insufficient_scope\", scope=\"write\"");
        }
        let described = |name: &str| json!({"name": name, "inputSchema": {"type": "object"}});
        let result = match message["method"].as_str().unwrap_or_default() {
            "initialize" => json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                "serverInfo": {"name": "guarded", "version": "1"}}),
            "server/discover" if self.manners == Manners::Modern => json!({"resultType": "complete",
                "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}},
                "serverInfo": {"name": "guarded", "version": "1"}}),
            "tools/list" => json!({"resultType": "complete", "tools": [described("admin"), described("echo")]}),
            "tools/call" => {
                state.calls.push(tool.clone());
                if let Some(status) = state.refuses {
                    return (status, String::new(), String::new());
                }
                json!({"resultType": "complete", "content": [{"type": "text", "text": tool}]})
            }
            _ => json!({}),
        };
        if message.get("id").is_none() {
            return ("202 Accepted", String::new(), String::new());
        }
        let answer = json!({"jsonrpc": "2.0", "id": message["id"], "result": result});
        ("200 OK", "Content-Type: application/json\r\n".to_owned(), answer.to_string())
    }
}

/// What a browser does: opens the address, and follows to where it is sent. Gives the last address.
pub(super) fn browse(url: &str) -> String {
    let location = get(url).1;
    assert!(!location.is_empty(), "{url} sends nobody anywhere");
    location
}

/// Status and `Location` of a GET.
pub(super) fn get(url: &str) -> (u16, String) {
    let url = Url::parse(url).unwrap();
    let mut stream = TcpStream::connect((url.host_str().unwrap(), url.port().unwrap())).unwrap();
    let target = &url.as_str()[path_of(&url)..];
    write!(stream, "GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    let status = line.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    let mut location = String::new();
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).unwrap();
        match header.trim_end().split_once(": ") {
            Some((name, value)) if name.eq_ignore_ascii_case("location") => location = value.to_owned(),
            Some(_) => {}
            None => return (status, location),
        }
    }
}

/// Where the path of an address begins in its text.
fn path_of(url: &Url) -> usize {
    url.as_str().find("://").map_or(0, |at| at + 3 + url.as_str()[at + 3..].find('/').unwrap_or(0))
}

//! The console over real HTTP: who is let in, what is refused, and what a person does there.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::json;

use super::{DEADLINE, Daemon, Register};

/// A browser of one person: it keeps its cookie, and nothing else.
pub(super) struct Browser {
    pub(super) address: String,
    pub(super) cookie: String,
}

/// What came back.
pub(super) struct Got {
    pub(super) status: u16,
    pub(super) head: String,
    pub(super) body: String,
}

impl Got {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

pub(super) fn address(daemon: &Daemon) -> String {
    let status = daemon.ask("status", json!({})).unwrap();
    let url = status["console"].as_str().unwrap().to_owned();
    url.trim_start_matches("http://").trim_end_matches('/').to_owned()
}

/// Sends bytes as they are, and reads until the other end closes.
pub(super) fn send(address: &str, request: &[u8]) -> Got {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    // The console may have said no before all of it was sent.
    let _ = stream.write_all(request);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let text = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    Got { status, head: head.to_owned(), body: body.to_owned() }
}

impl Browser {
    pub(super) fn new(daemon: &Daemon) -> Browser {
        Browser { address: address(daemon), cookie: String::new() }
    }

    /// Somebody with this role, logged in.
    pub(super) fn of(daemon: &Daemon, name: &str, role: &str) -> Browser {
        let made = daemon.ask("console.token.add", json!({ "name": name, "role": role })).unwrap();
        let mut browser = Browser::new(daemon);
        let got = browser.log_in(made["token"].as_str().unwrap());
        assert_eq!(got.status, 303, "{}", got.body);
        let cookie = got.header("set-cookie").unwrap();
        assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"), "{cookie}");
        browser.cookie = cookie.split(';').next().unwrap().to_owned();
        browser
    }

    pub(super) fn log_in(&self, token: &str) -> Got {
        self.request("POST", "/login", "", &format!("token={token}"))
    }

    pub(super) fn request(&self, method: &str, path: &str, headers: &str, body: &str) -> Got {
        let (address, cookie) = (&self.address, &self.cookie);
        let form = if body.is_empty() {
            String::new()
        } else {
            format!("Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n", body.len())
        };
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nAccept: text/html\r\n\
             Cookie: {cookie}\r\n{form}{headers}\r\n{body}"
        );
        send(address, request.as_bytes())
    }

    pub(super) fn page(&self, path: &str) -> String {
        let got = self.request("GET", path, "", "");
        assert_eq!(got.status, 200, "{path}: {}", got.body);
        got.body
    }

    /// The word that the forms of this session carry.
    fn csrf(&self) -> String {
        let page = self.page("/health");
        let after = page.split("name=\"csrf\" value=\"").nth(1).unwrap();
        after.split('"').next().unwrap().to_owned()
    }

    pub(super) fn act(&self, path: &str, fields: &str) -> Got {
        let body = format!("csrf={}&back=%2F&{fields}", self.csrf());
        self.request("POST", path, "", &body)
    }
}

/// The case `http.rebinding`, and more of its kind.
#[test]
fn a_foreign_name_a_foreign_page_and_nobody_are_refused() {
    let daemon = Daemon::start();
    let browser = Browser::new(&daemon);
    let (address, port) = (browser.address.clone(), browser.address.rsplit_once(':').unwrap().1.to_owned());
    let host = |host: &str| {
        send(&address, format!("GET /login HTTP/1.1\r\n{host}Connection: close\r\n\r\n").as_bytes()).status
    };
    assert_eq!(host(&format!("Host: {address}\r\n")), 200);
    assert_eq!(host(&format!("Host: localhost:{port}\r\n")), 200);
    assert_eq!(host(&format!("Host: [::1]:{port}\r\n")), 200);
    for foreign in
        ["Host: evil.example\r\n", "Host: 127.0.0.1\r\n", "Host: 127.0.0.1:1\r\n", "Host: a\r\nHost: b\r\n", ""]
    {
        assert!(matches!(host(foreign), 421 | 400), "{foreign}");
    }
    assert_eq!(host(&format!("Host: evil.example:{port}\r\n")), 421);
    for origin in ["http://evil.example", "null", "http://localhost:1", "https://localhost"] {
        let got = browser.request("POST", "/ask/allow", &format!("Origin: {origin}\r\n"), "question=q1");
        assert_eq!(got.status, 403, "{origin}");
    }
    assert_eq!(browser.request("POST", "/ask/allow", "Sec-Fetch-Site: same-site\r\n", "question=q1").status, 403);
    let ours = format!("Origin: http://{address}\r\n");
    assert_eq!(browser.request("POST", "/ask/allow", &ours, "question=q1").status, 401);
    assert_eq!(browser.request("GET", "/events", "Accept: text/event-stream\r\n", "").status, 303);
    assert_eq!(
        send(&address, format!("GET /evidence HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").as_bytes())
            .status,
        401
    );
    let sent_away = browser.request("GET", "/tasks", "", "");
    assert_eq!((sent_away.status, sent_away.header("location")), (303, Some("/login?back=%2Ftasks")));
    let login = browser.request("GET", "/login?back=//evil.example", "", "");
    assert!(login.body.contains("name=\"back\" value=\"/\""), "{}", login.body);
    for (name, part) in [
        ("content-security-policy", "default-src 'none'"),
        ("content-security-policy", "frame-ancestors 'none'"),
        ("x-content-type-options", "nosniff"),
        ("cache-control", "no-store"),
    ] {
        assert!(login.header(name).is_some_and(|value| value.contains(part)), "{name}: {}", login.head);
    }
}

#[test]
fn an_address_that_others_can_reach_is_refused_without_tls() {
    let home = super::Home::new();
    let config = home.config("version = 1\n[console]\nlisten = \"0.0.0.0:0\"\n");
    let ended = home.command(Some(&config)).output().unwrap();
    assert_eq!(ended.status.code(), Some(78), "{ended:?}");
    assert!(String::from_utf8_lossy(&ended.stderr).contains("the console listens on loopback only"), "{ended:?}");
}

#[test]
fn wrong_tokens_are_slowed_down_and_a_right_one_waits_with_them() {
    let daemon = Daemon::start();
    let made = daemon.ask("console.token.add", json!({ "name": "li", "role": "read" })).unwrap();
    let browser = Browser::new(&daemon);
    let statuses: Vec<u16> = (0..12).map(|_| browser.log_in("0123456789abcdef").status).collect();
    assert_eq!(statuses[0], 401);
    assert_eq!(statuses[11], 429, "{statuses:?}");
    assert_eq!(browser.log_in(made["token"].as_str().unwrap()).status, 429);
}

#[test]
fn an_answer_bears_the_name_and_reaches_the_register() {
    let daemon = Daemon::start();
    let closed = Register::of(&daemon, "breaker-1", "close");
    let asked = daemon.ask("say", json!({ "text": "合上一号断路器" })).unwrap();
    let question = asked["question"].as_str().unwrap();
    let (reader, approver) = (Browser::of(&daemon, "zhao", "read"), Browser::of(&daemon, "wang", "approve"));

    let page = approver.page("/questions");
    for shown in [question, "breaker-1", "action=\"/ask/allow\"", "&quot;device&quot;"] {
        assert!(page.contains(shown), "{shown}: {page}");
    }
    assert!(!reader.page("/questions").contains("/ask/allow"));
    let fields = format!("question={question}");
    assert_eq!(reader.act("/ask/allow", &fields).status, 403);
    assert_eq!(approver.request("POST", "/ask/allow", "", &fields).status, 403, "without the word of the session");
    let foreign = format!("csrf={}&{fields}", reader.csrf());
    assert_eq!(approver.request("POST", "/ask/allow", "", &foreign).status, 403, "with the word of another session");
    assert_eq!(closed.read(), 0);

    let done = approver.act("/ask/allow", &fields);
    assert_eq!((done.status, done.header("location")), (303, Some("/")), "{}", done.body);
    assert!(approver.page("/").contains(question), "what was done is told");
    daemon.eventually("the breaker closes", || (closed.read() == 1).then_some(()));
    let rows = daemon.ask("evidence.query", json!({ "kind": "answered" })).unwrap();
    assert_eq!(rows[0]["detail"]["by"], "wang@console", "{rows}");
    assert_eq!(approver.act("/ask/allow", &fields).status, 409, "it is answered");

    // From the voice to the register, on one page.
    let trace = reader.page(&format!("/runs/{}", rows[0]["run"].as_str().unwrap()));
    for shown in ["requested", "asked", "answered", "wang", "intent", "settled"] {
        assert!(trace.contains(shown), "{shown}: {trace}");
    }
}

#[test]
fn the_health_page_says_how_it_goes_with_each_receiver() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let daemon = Daemon::with(&format!(
        "version = 1\n[export.mqtt]\nbroker = \"mqtt://127.0.0.1:{nobody}\"\ndevice = \"box-1\"\n"
    ));
    let browser = Browser::of(&daemon, "wang", "read");
    daemon.eventually("the reason", || {
        let page = browser.page("/health");
        (page.contains("not reached") && page.contains("Connection refused")).then_some(())
    });
    let said = daemon.cli(&["status"]);
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(said.contains("to mqtt   not reached, waiting ") && said.contains("Connection refused"), "{said}");
}

#[test]
fn whoever_is_taken_out_is_out_at_once() {
    let daemon = Daemon::start();
    let browser = Browser::of(&daemon, "wang", "approve");
    browser.page("/");
    let mut stream = TcpStream::connect(&browser.address).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let (address, cookie) = (&browser.address, &browser.cookie);
    write!(stream, "GET /events HTTP/1.1\r\nHost: {address}\r\nCookie: {cookie}\r\nConnection: close\r\n\r\n").unwrap();
    let mut first = [0; 12];
    stream.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"HTTP/1.1 200");
    let again = daemon.ask("console.token.add", json!({ "name": "wang", "role": "read" })).unwrap_err();
    assert_eq!(again["kind"], "not_so", "{again}");
    daemon.ask("console.token.revoke", json!({ "name": "wang" })).unwrap();
    stream.read_to_end(&mut Vec::new()).unwrap();
    assert_eq!(browser.request("GET", "/", "", "").status, 303);
    assert_eq!(browser.request("POST", "/ask/allow", "", "question=q1").status, 401);
    assert_eq!(daemon.ask("console.token.revoke", json!({ "name": "wang" })).unwrap_err()["kind"], "not_found");
    let want = [(json!("added"), json!("wang")), (json!("revoked"), json!("wang"))];
    daemon.eventually("both words in the evidence", || {
        let rows = daemon.ask("evidence.query", json!({ "kind": "console_person" })).unwrap();
        let told = rows.as_array().unwrap().iter().map(|row| (row["to"].clone(), row["detail"]["name"].clone()));
        (told.collect::<Vec<_>>() == want).then_some(())
    });
}

#[test]
fn whoever_logs_in_again_and_again_puts_out_their_own() {
    let daemon = Daemon::start();
    let other = Browser::of(&daemon, "li", "operate");
    let made = daemon.ask("console.token.add", json!({ "name": "wang", "role": "approve" })).unwrap();
    let log_in = || {
        let got = Browser::new(&daemon).log_in(made["token"].as_str().unwrap());
        let cookie = got.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
        Browser { address: address(&daemon), cookie }
    };
    let browsers: Vec<Browser> = (0..17).map(|_| log_in()).collect();
    let statuses: Vec<u16> = browsers.iter().map(|browser| browser.request("GET", "/", "", "").status).collect();
    assert_eq!(statuses.iter().filter(|status| **status == 303).count(), 1, "{statuses:?}");
    assert_eq!(statuses[16], 200, "{statuses:?}");
    assert_eq!(other.request("GET", "/", "", "").status, 200);

    let refused = other.act("/learn/rollback", "version=1");
    assert_eq!(refused.status, 403);
    assert!(refused.body.contains("token revoke li"), "a name is taken once: {}", refused.body);
    // A version that is none is no word to go back by one.
    for version in ["", "version=", "version=x"] {
        assert_eq!(browsers[16].act("/learn/rollback", version).status, 400, "{version:?}");
    }
}

#[test]
fn what_somebody_else_wrote_is_text() {
    let daemon = Daemon::start();
    let browser = Browser::of(&daemon, "wang", "approve");
    let script = "<script>alert(1)</script>";
    daemon.ask("say", json!({ "text": script })).unwrap();
    let place = "/evidence?text=%3Cscript%3Ealert";
    let page = browser.page(place);
    assert!(page.contains("&lt;script&gt;alert(1)"), "{page}");
    assert!(!page.contains("<script>alert"), "{page}");
    let missing = browser.request("GET", "/tasks/%3Cscript%3Ealert(1)", "", "");
    assert_eq!(missing.status, 400);
    assert!(!missing.body.contains("<script>alert"), "{}", missing.body);
}

#[test]
fn every_page_is_there_in_both_languages() {
    let daemon = Daemon::start();
    daemon.ask("say", json!({ "text": "启动二号泵" })).unwrap();
    let browser = Browser::of(&daemon, "wang", "approve");
    for path in ["/", "/questions", "/tasks", "/devices", "/reviews", "/evidence", "/evidence/1", "/policy", "/health"]
    {
        for (lang, word) in [("en", "Log out"), ("zh-CN", "退出")] {
            let got = browser.request("GET", path, &format!("Accept-Language: {lang}\r\n"), "");
            assert_eq!(got.status, 200, "{path}: {}", got.body);
            assert!(got.body.contains(word) && got.body.contains(&format!("<html lang=\"{lang}\">")), "{path} {lang}");
        }
    }
    assert!(browser.page("/devices").contains("pump-2"));
    assert_eq!(browser.request("GET", "/nothing", "", "").status, 404);
    assert_eq!(browser.request("GET", "/metrics", "", "").status, 404);
}

/// Bad input: each is refused or bounded, and the daemon goes on answering.
#[test]
fn a_large_form_a_slow_client_and_many_streams_are_bounded() {
    let daemon = Daemon::start();
    let browser = Browser::of(&daemon, "wang", "approve");
    let (address, cookie) = (browser.address.clone(), browser.cookie.clone());
    let length = 10 << 20;
    let head = format!(
        "POST /ask/allow HTTP/1.1\r\nHost: {address}\r\nCookie: {cookie}\r\nConnection: close\r\n\
         Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {length}\r\n\r\n"
    );
    assert_eq!(send(&address, head.as_bytes()).status, 413);

    let mut slow = TcpStream::connect(&address).unwrap();
    slow.write_all(b"GET / HTTP/1.1\r\nHo").unwrap();

    let mut streams = Vec::new();
    let mut statuses = Vec::new();
    for _ in 0..200 {
        let mut stream = TcpStream::connect(&address).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        write!(stream, "GET /events HTTP/1.1\r\nHost: {address}\r\nCookie: {cookie}\r\n\r\n").unwrap();
        let mut first = [0; 12];
        stream.read_exact(&mut first).unwrap();
        statuses.push(String::from_utf8_lossy(&first[9..]).into_owned());
        streams.push(stream);
    }
    assert_eq!(statuses.iter().filter(|status| *status == "200").count(), 8, "{statuses:?}");
    assert_eq!(statuses.iter().filter(|status| *status == "503").count(), 192, "{statuses:?}");
    assert_eq!(daemon.ask("status", json!({})).unwrap()["ready"], true);
    assert!(browser.page("/").contains("Log out"));

    slow.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut answer = Vec::new();
    slow.read_to_end(&mut answer).unwrap();
    assert!(!answer.starts_with(b"HTTP/1.1 200"), "a head that does not come is not waited for");
    drop(streams);
    daemon.eventually("a stream is free again", || {
        let mut stream = TcpStream::connect(&address).ok()?;
        stream.set_read_timeout(Some(DEADLINE)).ok()?;
        write!(stream, "GET /events HTTP/1.1\r\nHost: {address}\r\nCookie: {cookie}\r\n\r\n").ok()?;
        let mut first = [0; 12];
        stream.read_exact(&mut first).ok()?;
        (&first == b"HTTP/1.1 200").then_some(())
    });
}

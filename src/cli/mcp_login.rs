//! `interlock mcp login SERVER`: a person's browser and the daemon, brought together once.
//!
//! The daemon makes the address and keeps the tokens; what passes through here is the address and the answer to it,
//! which is worth nothing without what the daemon holds. The answer comes from the browser itself, where it runs on
//! this machine, or is pasted from its address bar, where it does not.

use std::io::{self, BufRead, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::client::Client;
use super::error::{CliError, Exit};
use super::out::Out;

/// How long a browser may take to say what it wants, and how much of that is read.
const REQUEST_PATIENCE: Duration = Duration::from_secs(5);
const REQUEST_LEN_MAX: u64 = 16 << 10;

/// Connections that are heard at once: a browser opens some that it never uses, and they must not keep the one waiting
/// that brings the answer.
const VISITS_MAX: usize = 16;

/// Answers that wait to be looked at.
const BROUGHT_MAX: usize = 16;

/// The path that the browser is sent back to.
const PATH: &str = "/callback";

/// What a person's browser brought, and the connection on which it waits to be told how it went.
struct Brought {
    answer: String,
    browser: Option<TcpStream>,
}

pub(super) fn login(
    server: &str,
    port: u16,
    client: impl Fn() -> Result<Client, CliError>,
    out: &Out,
) -> Result<(), CliError> {
    let unbound = |error: io::Error| CliError::new(Exit::Unavailable, format!("port {port} of this machine: {error}"));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(unbound)?;
    let port = listener.local_addr().map_err(unbound)?.port();
    let redirect = format!("http://127.0.0.1:{port}{PATH}");
    let begun = client()?.ask("mcp.login", json!({ "server": server, "redirect": redirect }))?;
    let url = begun["url"].as_str().unwrap_or_default();
    out.line(out.pick("Open this address in a browser:", "请在浏览器中打开此地址："))?;
    out.line(url)?;
    out.line(out.pick(
        "If that browser runs on another machine, paste the address that it ends at here.",
        "如果浏览器在另一台机器上，请把它最后停在的地址粘贴到这里。",
    ))?;
    let (Some(state), Some(patience_s)) = (begun["state"].as_str(), begun["patience_s"].as_u64()) else {
        return Err(CliError::new(Exit::Bug, "the daemon does not say which answer it waits for"));
    };
    let patience = Duration::from_secs(patience_s);
    let (sender, brought) = sync_channel(BROUGHT_MAX);
    let bug = |error: io::Error| CliError::new(Exit::Bug, format!("no thread: {error}"));
    // Both end with the process: each waits in a call that nothing can interrupt.
    let pasted = sender.clone();
    std::thread::Builder::new().name("login-stdin".to_owned()).spawn(move || paste(&pasted)).map_err(bug)?;
    std::thread::Builder::new().name("login-http".to_owned()).spawn(move || listen(&listener, &sender)).map_err(bug)?;
    let Brought { answer, browser } = awaited(&brought, state, patience, out)?;
    let ended = client().and_then(|client| client.ask("mcp.logged-in", json!({ "server": server, "answer": answer })));
    if let Some(mut browser) = browser {
        let (zh, en) = match &ended {
            Ok(_) => ("登录完成，可以关闭此页面。", "Logged in; this page can be closed."),
            Err(_) => ("登录失败，请看终端。", "The login did not work; the terminal says why."),
        };
        // The person looks at the terminal too.
        let _gone = page(&mut browser, "200 OK", &format!("{zh} {en}"));
    }
    let Value::Object(_) = ended? else { return Err(CliError::new(Exit::Bug, "the daemon's answer is none")) };
    out.line(&format!(
        "{server}: {}",
        out.pick("logged in; the tokens are kept by the daemon", "已登录；令牌由守护进程保存")
    ))
}

/// The answer to this login. Whatever else comes is told so, and costs the login nothing: any page of a browser can send
/// it here.
fn awaited(brought: &Receiver<Brought>, state: &str, patience: Duration, out: &Out) -> Result<Brought, CliError> {
    let until = Instant::now() + patience;
    loop {
        let one = brought.recv_timeout(until.saturating_duration_since(Instant::now())).map_err(|why| match why {
            RecvTimeoutError::Timeout => {
                let minutes = patience.as_secs() / 60;
                CliError::new(Exit::NotSo, format!("nobody logged in within {minutes} minutes"))
            }
            RecvTimeoutError::Disconnected => CliError::new(Exit::Bug, "nobody listens for the browser any more"),
        })?;
        if is_of(&one.answer, state) {
            return Ok(one);
        }
        match one.browser {
            Some(mut browser) => {
                let text = "这不是正在等待的登录。 This is not the login that is waited for.";
                // Whoever it was may have gone.
                let _gone = page(&mut browser, "400 Bad Request", text);
            }
            None => out.line(out.pick(
                "That is not the answer to this login, which goes on waiting.",
                "这不是对本次登录的答复，继续等待。",
            ))?,
        }
    }
}

/// Whether an answer, an address or its query, is that of the login of this state. The daemon reads the rest of it.
fn is_of(answer: &str, state: &str) -> bool {
    let query = answer.trim().rsplit('?').next().unwrap_or_default();
    let query = query.split('#').next().unwrap_or_default();
    // A state has only letters that stay as they are in an address.
    let mut states = query.split('&').filter_map(|pair| pair.strip_prefix("state="));
    states.next() == Some(state) && states.next().is_none()
}

/// Takes pasted lines.
fn paste(sender: &SyncSender<Brought>) {
    let mut lines = BufReader::new(io::stdin().lock());
    loop {
        let mut line = String::new();
        match lines.by_ref().take(REQUEST_LEN_MAX).read_line(&mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) if line.trim().is_empty() => {}
            Ok(_) if sender.send(Brought { answer: line, browser: None }).is_err() => return,
            Ok(_) => {}
        }
    }
}

/// Takes what a browser is sent here with.
fn listen(listener: &TcpListener, sender: &SyncSender<Brought>) {
    let places = Arc::new(());
    for mut stream in listener.incoming().map_while(Result::ok) {
        if Arc::strong_count(&places) > VISITS_MAX {
            let _gone = page(&mut stream, "503 Service Unavailable", "");
            continue;
        }
        let (place, sender) = (Arc::clone(&places), sender.clone());
        let visit = move || {
            if let Some(brought) = visit(stream) {
                // Fails when the login has ended meanwhile.
                let _ended = sender.send(brought).is_err();
            }
            drop(place);
        };
        // One that cannot be heard is dropped, and its browser comes again.
        let _unheard = std::thread::Builder::new().name("login-visit".to_owned()).spawn(visit).is_err();
    }
}

/// One visit; nothing for what is no answer to a login, such as the request for an icon.
fn visit(mut stream: TcpStream) -> Option<Brought> {
    stream.set_write_timeout(Some(REQUEST_PATIENCE)).ok()?;
    let head = head(&mut stream, Instant::now() + REQUEST_PATIENCE)?;
    match query(head.lines().next().unwrap_or_default()) {
        Some(answer) => Some(Brought { answer: answer.to_owned(), browser: Some(stream) }),
        None => {
            let _gone = page(&mut stream, "404 Not Found", "");
            None
        }
    }
}

/// The head of a request, which is read to its end, or closing would reset the connection under the answer. One that is
/// not whole in time is none, however busily it comes.
fn head(stream: &mut TcpStream, until: Instant) -> Option<String> {
    let mut head = Vec::new();
    let mut piece = [0; 1024];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || head.len() as u64 >= REQUEST_LEN_MAX {
            return None;
        }
        stream.set_read_timeout(Some(left)).ok()?;
        match stream.read(&mut piece) {
            Ok(0) | Err(_) => return None,
            Ok(length) => head.extend_from_slice(&piece[..length]),
        }
    }
    String::from_utf8(head).ok()
}

/// The query of a request for our path, if it could be an answer.
fn query(request: &str) -> Option<&str> {
    let target = request.strip_prefix("GET ")?.split(' ').next()?;
    target.strip_prefix(PATH)?.strip_prefix('?')
}

fn page(stream: &mut TcpStream, status: &str, text: &str) -> io::Result<()> {
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n\
         {text}",
        text.len()
    )?;
    stream.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_says_once_which_login_it_is_of() {
        for (answer, is_so) in [
            ("code=a&state=s1", true),
            (" http://127.0.0.1:1/callback?state=s1&code=a\n", true),
            ("error=access_denied&state=s1#", true),
            ("code=a&state=s2", false),
            ("code=a&state=s1&state=s1", false),
            ("code=a&state=s1&state=s2", false),
            ("code=a&xstate=s1", false),
            ("code=a", false),
            ("", false),
        ] {
            assert_eq!(is_of(answer, "s1"), is_so, "{answer}");
        }
    }

    #[test]
    fn only_what_comes_to_our_path_is_an_answer() {
        for (request, taken) in [
            ("GET /callback?code=a&state=b HTTP/1.1", Some("code=a&state=b")),
            ("GET /callback?error=x&state=b HTTP/1.1", Some("error=x&state=b")),
            ("GET /callback?code=a HTTP/1.1", Some("code=a")),
            ("GET /callback2?code=a&state=b HTTP/1.1", None),
            ("GET /callback HTTP/1.1", None),
            ("GET /favicon.ico?state=b HTTP/1.1", None),
            ("POST /callback?code=a&state=b HTTP/1.1", None),
            ("", None),
        ] {
            assert_eq!(query(request), taken, "{request}");
        }
    }
}

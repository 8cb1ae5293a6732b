//! `interlock mcp login SERVER`: a person's browser and the daemon, brought together once.
//!
//! The daemon makes the address and keeps the tokens; what passes through here is the address and the answer to it,
//! which is worth nothing without what the daemon holds. The answer comes from the browser itself, where it runs on
//! this machine, or is pasted from its address bar, where it does not.

use std::io::{self, BufRead, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use serde_json::{Value, json};

use super::client::Client;
use super::error::{CliError, Exit};
use super::out::Out;

/// How long a person may take; the daemon waits as long.
const PATIENCE: Duration = Duration::from_secs(15 * 60);

/// How long a browser may take to say what it wants, and how much of that is read.
const REQUEST_PATIENCE: Duration = Duration::from_secs(5);
const REQUEST_LEN_MAX: u64 = 16 << 10;

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
    let (sender, brought) = channel();
    let bug = |error: io::Error| CliError::new(Exit::Bug, format!("no thread: {error}"));
    // Both end with the process: each waits in a call that nothing can interrupt.
    let pasted = sender.clone();
    std::thread::Builder::new().name("login-stdin".to_owned()).spawn(move || paste(&pasted)).map_err(bug)?;
    std::thread::Builder::new().name("login-http".to_owned()).spawn(move || listen(&listener, &sender)).map_err(bug)?;
    let Brought { answer, browser } = brought.recv_timeout(PATIENCE).map_err(|why| match why {
        RecvTimeoutError::Timeout => CliError::new(Exit::NotSo, "nobody logged in within 15 minutes"),
        RecvTimeoutError::Disconnected => CliError::new(Exit::Bug, "nobody listens for the browser any more"),
    })?;
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

/// Takes a pasted line.
fn paste(sender: &Sender<Brought>) {
    for line in io::stdin().lock().lines().map_while(Result::ok) {
        if !line.trim().is_empty() && sender.send(Brought { answer: line, browser: None }).is_err() {
            return;
        }
    }
}

/// Takes what a browser is sent here with.
fn listen(listener: &TcpListener, sender: &Sender<Brought>) {
    for stream in listener.incoming().map_while(Result::ok) {
        if let Some(brought) = visit(stream)
            && sender.send(brought).is_err()
        {
            return;
        }
    }
}

/// One visit; nothing for what is no answer to a login, such as the request for an icon.
fn visit(mut stream: TcpStream) -> Option<Brought> {
    stream.set_read_timeout(Some(REQUEST_PATIENCE)).ok()?;
    stream.set_write_timeout(Some(REQUEST_PATIENCE)).ok()?;
    let mut lines = BufReader::new(stream.try_clone().ok()?.take(REQUEST_LEN_MAX)).lines().map_while(Result::ok);
    let first = lines.next()?;
    // The head is read to its end, or closing would reset the connection under the answer.
    lines.take_while(|line| !line.is_empty()).for_each(drop);
    match query(&first) {
        Some(answer) => Some(Brought { answer: answer.to_owned(), browser: Some(stream) }),
        None => {
            let _gone = page(&mut stream, "404 Not Found", "");
            None
        }
    }
}

/// The query of a request for our path, if it could be an answer.
fn query(request: &str) -> Option<&str> {
    let target = request.strip_prefix("GET ")?.split(' ').next()?;
    let query = target.strip_prefix(PATH)?.strip_prefix('?')?;
    query.split('&').any(|pair| pair.starts_with("state=")).then_some(query)
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
    fn only_an_answer_to_a_login_is_taken() {
        for (request, taken) in [
            ("GET /callback?code=a&state=b HTTP/1.1", Some("code=a&state=b")),
            ("GET /callback?error=x&state=b HTTP/1.1", Some("error=x&state=b")),
            ("GET /callback?code=a HTTP/1.1", None),
            ("GET /callback HTTP/1.1", None),
            ("GET /favicon.ico?state=b HTTP/1.1", None),
            ("POST /callback?code=a&state=b HTTP/1.1", None),
            ("", None),
        ] {
            assert_eq!(query(request), taken, "{request}");
        }
    }
}

//! The listener of `/metrics`: one answer a connection, which is all that a scrape needs.
//!
//! It is closer to the wire than a framework because it says one thing: a head is read with a bound in bytes and time,
//! the page is written, and the connection ends. `Host` must name this machine's loopback or the address that is
//! listened on, so that no page in a browser can read it through a name of its own (DNS rebinding).

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use super::super::told;
use super::Metrics;
use super::form::CONTENT_TYPE;

/// Scrapes at once.
const CLIENTS_MAX: usize = 8;
/// The longest head of a request, in bytes.
const HEAD_LEN_MAX: usize = 8 * 1024;
/// How long a scrape may take, from the connection to its end.
const PATIENCE: Duration = Duration::from_secs(10);

/// Serves until `stop` says so.
pub async fn serve(listener: TcpListener, metrics: Arc<Metrics>, mut stop: watch::Receiver<bool>) {
    let places = Arc::new(Semaphore::new(CLIENTS_MAX));
    let mut clients = JoinSet::new();
    loop {
        while clients.try_join_next().is_some() {}
        let stream = tokio::select! {
            () = told(&mut stop) => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                // Out of descriptors: those who are served go on, and one of them may leave.
                Err(error) => {
                    tracing::warn!(%error, "no scrape could be accepted");
                    tokio::task::yield_now().await;
                    continue;
                }
            },
        };
        // Who comes when all places are taken is sent away by the end of the connection.
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else { continue };
        let metrics = Arc::clone(&metrics);
        clients.spawn(async move {
            let own = stream.local_addr().ok();
            // A client that went away, or was too slow, has nothing to be told.
            let _ = tokio::time::timeout(PATIENCE, answer(stream, own, &metrics)).await;
            drop(place);
        });
    }
    clients.shutdown().await;
}

async fn answer(mut stream: TcpStream, own: Option<SocketAddr>, metrics: &Metrics) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        if head.len() >= HEAD_LEN_MAX {
            return say(&mut stream, "431 Request Header Fields Too Large", "the head is too long\n").await;
        }
        if (&mut stream).take(1024).read_buf(&mut head).await? == 0 {
            return Ok(());
        }
    }
    match asked(&String::from_utf8_lossy(&head), own) {
        Ok(()) => say(&mut stream, "200 OK", &metrics.text().await).await,
        Err((status, text)) => say(&mut stream, status, text).await,
    }
}

/// Whether a head asks for the page, and in our name.
fn asked(head: &str, own: Option<SocketAddr>) -> Result<(), (&'static str, &'static str)> {
    let mut lines = head.lines();
    let mut words = lines.next().unwrap_or_default().split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let host = lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("host").then(|| value.trim())
    });
    let name = host.map(|host| match host.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => name,
        Some(_) | None => host,
    });
    let is_own = |name: &str| {
        let bare = name.trim_start_matches('[').trim_end_matches(']');
        let address = bare.parse::<std::net::IpAddr>();
        name.eq_ignore_ascii_case("localhost")
            || address.is_ok_and(|ip| ip.is_loopback() || own.is_some_and(|own| own.ip() == ip))
    };
    if !name.is_some_and(is_own) {
        return Err(("421 Misdirected Request", "this name is not ours\n"));
    }
    match (method, target.split('?').next()) {
        ("GET", Some("/metrics")) => Ok(()),
        ("GET", _) => Err(("404 Not Found", "there is /metrics\n")),
        _ => Err(("405 Method Not Allowed", "GET /metrics\n")),
    }
}

async fn say(stream: &mut TcpStream, status: &str, text: &str) -> std::io::Result<()> {
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: {CONTENT_TYPE}\r\ncontent-length: {}\r\ncache-control: no-store\r\n\
         connection: close\r\n\r\n",
        text.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(text.as_bytes()).await?;
    stream.shutdown().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_scrape_in_our_name_is_answered() {
        let own = Some(SocketAddr::from(([192, 168, 1, 7], 9464)));
        let check = |line: &str, host: &str, want: Result<(), &str>| {
            let found = asked(&format!("{line} HTTP/1.1\r\n{host}\r\n\r\n"), own);
            assert_eq!(found.map_err(|(status, _)| status), want, "{line} {host}");
        };
        check("GET /metrics", "Host: 127.0.0.1:9464", Ok(()));
        check("GET /metrics?x=1", "host: localhost", Ok(()));
        check("GET /metrics", "Host: [::1]:9464", Ok(()));
        check("GET /metrics", "Host: 192.168.1.7:9464", Ok(()));
        check("GET /metrics", "Host: 192.168.1.8:9464", Err("421 Misdirected Request"));
        check("GET /metrics", "Host: evil.example", Err("421 Misdirected Request"));
        check("GET /metrics", "X: y", Err("421 Misdirected Request"));
        check("GET /", "Host: localhost", Err("404 Not Found"));
        check("POST /metrics", "Host: localhost", Err("405 Method Not Allowed"));
    }
}

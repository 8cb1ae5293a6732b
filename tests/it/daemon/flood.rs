//! Too much of everything at the console's door: each is refused or bounded, and supervision never notices.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::json;

use super::console::{Browser, send};
use super::{DEADLINE, Daemon};

/// What of a connection came back until the other end closed it, within a time.
fn rest(stream: &mut TcpStream, within: Duration) -> String {
    stream.set_read_timeout(Some(within)).unwrap();
    let mut answer = Vec::new();
    if let Err(error) = stream.read_to_end(&mut answer) {
        use std::io::ErrorKind::{TimedOut, WouldBlock};
        assert!(!matches!(error.kind(), TimedOut | WouldBlock), "the connection stays open");
    }
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn a_flood_is_bounded_and_supervision_never_notices() {
    let daemon = Daemon::with("version = 1\n[liveness]\nscan = 0.2\ntau = 10\n");
    let task = daemon.say("开始监测传感器")["output"]["task"].as_str().unwrap().to_owned();
    let scans = || daemon.ask("status", json!({})).unwrap()["liveness"]["scans"].as_u64().unwrap();
    let people: Vec<Browser> = (0..6).map(|n| Browser::of(&daemon, &format!("p{n}"), "operate")).collect();
    let (browser, address) = (&people[0], people[0].address.clone());
    let (before, begun) = (scans(), Instant::now());

    // A form without an end, in pieces whose sum nobody says beforehand.
    let cookie = &browser.cookie;
    let head = format!("POST /ask/allow HTTP/1.1\r\nHost: {address}\r\nCookie: {cookie}\r\n");
    let kind = "Content-Type: application/x-www-form-urlencoded\r\n";
    let mut chunked = format!("{head}{kind}Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n").into_bytes();
    for _ in 0..160 {
        chunked.extend_from_slice(b"10000\r\n");
        chunked.resize(chunked.len() + 0x1_0000, b'x');
        chunked.extend_from_slice(b"\r\n");
    }
    // The answer, or the end of a connection that was still being written to.
    assert!(matches!(send(&address, &chunked).status, 413 | 0));
    let many: String = (0..40).map(|n| format!("a{n}=1&")).collect();
    assert_eq!(browser.request("POST", "/ask/allow", "", &many).status, 400, "a form has its number of pairs");
    let long = format!("Cookie: {}\r\n", "x".repeat(200_000));
    assert!(matches!(browser.request("GET", "/", &long, "").status, 431 | 0), "a head has its length");

    // Clients that stop in the middle: of a head, of a form, and of reading.
    let connect = || TcpStream::connect(&address).unwrap();
    let mut slow_head = connect();
    slow_head.write_all(b"GET / HTTP/1.1\r\nHo").unwrap();
    let mut slow_form = connect();
    write!(slow_form, "{head}{kind}Content-Length: 100\r\n\r\ncsrf=").unwrap();
    // More answers than the buffers of both kernels hold, and nobody reads them.
    let mut reads_nothing = connect();
    let ask = format!("GET /devices HTTP/1.1\r\nHost: {address}\r\nCookie: {cookie}\r\n\r\n");
    reads_nothing.set_write_timeout(Some(Duration::from_secs(2))).unwrap();
    for _ in 0..200 {
        if reads_nothing.write_all(ask.as_bytes()).is_err() {
            break;
        }
    }

    // 200 streams of six people: eight each, 32 in all.
    let mut streams = Vec::new();
    let mut open = 0;
    for n in 0..200 {
        let Browser { address, cookie } = &people[n % people.len()];
        let mut stream = connect();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        write!(stream, "GET /events HTTP/1.1\r\nHost: {address}\r\nCookie: {cookie}\r\n\r\n").unwrap();
        let mut first = [0; 12];
        stream.read_exact(&mut first).unwrap();
        open += usize::from(&first == b"HTTP/1.1 200");
        assert!(&first == b"HTTP/1.1 200" || &first == b"HTTP/1.1 503", "{}", String::from_utf8_lossy(&first));
        streams.push(stream);
    }
    assert_eq!(open, 32);
    // With all places taken, the socket and the voice go on.
    let more: Vec<TcpStream> = (0..100).map(|_| connect()).collect();
    assert_eq!(daemon.say("启动二号泵")["result"], "done");

    assert!(rest(&mut slow_form, Duration::from_secs(30)).starts_with("HTTP/1.1 408"));
    assert!(!rest(&mut slow_head, Duration::from_secs(30)).starts_with("HTTP/1.1 200"));
    drop((streams, more));
    daemon.eventually("a page is there again", || browser.page("/health").contains("Log out").then_some(()));
    let _ended = rest(&mut reads_nothing, Duration::from_secs(30));

    // Supervision: it scanned all the while, nobody was late, and the task is well.
    let (scanned, took) = (scans() - before, begun.elapsed());
    assert!(scanned as f64 > took.as_secs_f64() / 0.2 * 0.8, "{scanned} scans in {took:?}");
    let row = daemon.ask("task.show", json!({ "task": task })).unwrap();
    assert_eq!(row["state"], "RUNNING", "{row}");
    for kind in ["supervisor", "lifecycle"] {
        let rows = daemon.ask("evidence.query", json!({ "kind": kind })).unwrap();
        let late = rows.as_array().unwrap().iter().filter(|row| {
            row["to"] == "ZOMBIE"
                || row["cause"].as_str().is_some_and(|cause| cause.contains("LATE") || cause.contains("HELD"))
        });
        assert_eq!(late.count(), 0, "{rows}");
    }
}

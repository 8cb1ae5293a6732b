//! A receiver over HTTP that is not ours: it takes what is posted, and answers as it is told to.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Instant;

use serde_json::Value;

use crate::daemon::DEADLINE;

/// One request, whole.
#[derive(Debug, Clone)]
pub(crate) struct Posted {
    pub(crate) path: String,
    headers: Vec<(String, String)>,
    pub(crate) body: String,
    /// What it was answered with.
    pub(crate) status: u16,
}

impl Posted {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.body))
    }
}

#[derive(Default)]
struct Shared {
    posted: Vec<Posted>,
    /// Answers that come first: status, more lines of the head, and body.
    answers: VecDeque<(u16, String, String)>,
    /// Nobody is there: connections end at once.
    is_closed: bool,
}

/// The receiver.
pub(crate) struct Desk {
    pub(crate) port: u16,
    shared: Arc<(Mutex<Shared>, Condvar)>,
}

impl Desk {
    pub(crate) fn open() -> Desk {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared: Arc<(Mutex<Shared>, Condvar)> = Arc::default();
        let filled = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                if filled.0.lock().unwrap().is_closed {
                    continue;
                }
                let filled = Arc::clone(&filled);
                std::thread::spawn(move || while serve(&stream, &filled).is_some() {});
            }
        });
        Desk { port, shared }
    }

    /// The next requests are answered so, and those after them with 200.
    pub(crate) fn answer(&self, status: u16, head: &str, body: &str) {
        self.shared.0.lock().unwrap().answers.push_back((status, head.to_owned(), body.to_owned()));
    }

    pub(crate) fn close(&self, is_closed: bool) {
        self.shared.0.lock().unwrap().is_closed = is_closed;
    }

    pub(crate) fn posted(&self) -> Vec<Posted> {
        self.shared.0.lock().unwrap().posted.clone()
    }

    /// Waits until what has come says so.
    pub(crate) fn until<T>(&self, what: &str, seen: impl Fn(&[Posted]) -> Option<T>) -> T {
        let until = Instant::now() + DEADLINE;
        let mut shared = self.shared.0.lock().unwrap();
        loop {
            if let Some(found) = seen(&shared.posted) {
                return found;
            }
            let left = until.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "{what} did not come: {:?}", shared.posted);
            shared = self.shared.1.wait_timeout(shared, left).unwrap().0;
        }
    }
}

fn serve(stream: &TcpStream, shared: &(Mutex<Shared>, Condvar)) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|length| *length > 0)?;
    let path = line.split(' ').nth(1)?.to_owned();
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        headers.push((name.to_ascii_lowercase(), value.to_owned()));
    }
    let length = headers.iter().find(|(name, _)| name == "content-length")?.1.parse().ok()?;
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let body = String::from_utf8(body).unwrap();
    let (status, head, said) = {
        let mut shared = shared.0.lock().unwrap();
        if shared.is_closed {
            return None;
        }
        let answer = shared.answers.pop_front().unwrap_or((200, String::new(), "{}".to_owned()));
        shared.posted.push(Posted { path, headers, body, status: answer.0 });
        answer
    };
    shared.1.notify_all();
    let mut stream = stream;
    write!(stream, "HTTP/1.1 {status} x\r\n{head}content-length: {}\r\n\r\n{said}", said.len()).ok()
}

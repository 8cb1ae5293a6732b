//! One event on the wire: a JSON line, then as many bytes of JSON and of payload as the line says.
//!
//! A peer that nobody has authenticated chooses those lengths: each has a bound, and what is beyond it ends the
//! connection before a byte of it is kept. A payload (audio) means nothing to us and is read past, never held.

use std::time::Duration;

use serde_json::{Map, Value, json};
use thiserror::Error;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// The longest line, in bytes. Clients put all data behind it; a few hundred bytes are usual.
const LINE_LEN_MAX: u64 = 64 * 1024;

/// The longest block of data, in bytes: a sentence with its context.
const DATA_LEN_MAX: u64 = 256 * 1024;

/// The longest payload that is read past, in bytes: an audio chunk has a few thousand.
const PAYLOAD_LEN_MAX: u64 = 4 << 20;

/// How long the rest of an event may take once it has begun.
const EVENT_PATIENCE: Duration = Duration::from_secs(10);

/// How long a peer may take to read an answer.
const WRITE_PATIENCE: Duration = Duration::from_secs(10);

/// The version of the protocol that is written.
pub(super) const VERSION: &str = "1.10.2";

/// An event, without its payload.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Event {
    pub(super) kind: String,
    pub(super) data: Map<String, Value>,
}

impl Event {
    pub(super) fn new(kind: &str, data: Value) -> Event {
        let data = match data {
            Value::Object(data) => data,
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Map::new(),
        };
        Event { kind: kind.to_owned(), data }
    }

    pub(super) fn text(&self, key: &str) -> Option<&str> {
        self.data.get(key).and_then(Value::as_str)
    }
}

/// Why a connection cannot go on.
#[derive(Debug, Error)]
pub(super) enum Broken {
    /// A length beyond its bound.
    #[error("{what} has {length} bytes; {most} are taken")]
    TooLong {
        /// Which.
        what: &'static str,
        /// What the peer said, or how far it came.
        length: u64,
        /// The bound.
        most: u64,
    },
    /// The line is no event.
    #[error("the line is no event")]
    NotAnEvent,
    /// An event that began did not end in time.
    #[error("the event did not end in time")]
    Slow,
    /// What the system says.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// Reads one event; none when the peer has left or was silent for `idle`.
pub(super) async fn read<R: AsyncBufRead + Unpin>(from: &mut R, idle: Duration) -> Result<Option<Event>, Broken> {
    match tokio::time::timeout(idle, from.fill_buf()).await {
        Err(_) => return Ok(None),
        Ok(begun) => {
            if begun?.is_empty() {
                return Ok(None);
            }
        }
    }
    tokio::time::timeout(EVENT_PATIENCE, rest(from)).await.unwrap_or(Err(Broken::Slow)).map(Some)
}

async fn rest<R: AsyncBufRead + Unpin>(from: &mut R) -> Result<Event, Broken> {
    let mut line = Vec::new();
    (&mut *from).take(LINE_LEN_MAX + 1).read_until(b'\n', &mut line).await?;
    if line.last() != Some(&b'\n') {
        let length = line.len() as u64;
        return Err(match length > LINE_LEN_MAX {
            true => Broken::TooLong { what: "the line", length, most: LINE_LEN_MAX },
            false => Broken::NotAnEvent,
        });
    }
    let Ok(Value::Object(mut header)) = serde_json::from_slice(&line) else { return Err(Broken::NotAnEvent) };
    let Some(Value::String(kind)) = header.remove("type") else { return Err(Broken::NotAnEvent) };
    let length = |key: &str| match header.get(key) {
        None | Some(Value::Null) => Ok(0),
        Some(length) => length.as_u64().ok_or(Broken::NotAnEvent),
    };
    let (data_length, payload_length) = (length("data_length")?, length("payload_length")?);
    let within = |what, length, most| {
        if length > most { Err(Broken::TooLong { what, length, most }) } else { Ok(()) }
    };
    within("the data", data_length, DATA_LEN_MAX)?;
    within("the payload", payload_length, PAYLOAD_LEN_MAX)?;
    let mut data = match header.remove("data") {
        Some(Value::Object(inline)) => inline,
        None | Some(_) => Map::new(),
    };
    if data_length > 0 {
        let mut block = vec![0; usize::try_from(data_length).unwrap_or(usize::MAX)];
        from.read_exact(&mut block).await?;
        let Ok(Value::Object(block)) = serde_json::from_slice(&block) else { return Err(Broken::NotAnEvent) };
        data.extend(block);
    }
    skip(from, payload_length).await?;
    Ok(Event { kind, data })
}

async fn skip<R: AsyncRead + Unpin>(from: &mut R, length: u64) -> Result<(), Broken> {
    let skipped = tokio::io::copy(&mut from.take(length), &mut tokio::io::sink()).await?;
    if skipped < length { Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into()) } else { Ok(()) }
}

/// Writes one event, the data behind the line as clients do.
pub(super) async fn write<W: AsyncWrite + Unpin>(to: &mut W, event: &Event) -> std::io::Result<()> {
    let data = Value::Object(event.data.clone()).to_string();
    let mut bytes =
        json!({ "type": event.kind, "version": VERSION, "data_length": data.len() }).to_string().into_bytes();
    bytes.push(b'\n');
    bytes.extend(data.as_bytes());
    match tokio::time::timeout(WRITE_PATIENCE, to.write_all(&bytes)).await {
        Ok(written) => written,
        Err(_) => Err(std::io::Error::new(std::io::ErrorKind::TimedOut, "the client does not read")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_all(bytes: &[u8]) -> (Vec<Event>, Option<String>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        runtime.block_on(async {
            let mut from = bytes;
            let mut events = Vec::new();
            loop {
                match read(&mut from, Duration::from_secs(5)).await {
                    Ok(Some(event)) => events.push(event),
                    Ok(None) => return (events, None),
                    Err(broken) => return (events, Some(broken.to_string())),
                }
            }
        })
    }

    fn check(bytes: &[u8], kinds: &[&str], broken: Option<&str>) {
        let (events, found) = read_all(bytes);
        let found_kinds: Vec<&str> = events.iter().map(|event| event.kind.as_str()).collect();
        assert_eq!((found_kinds.as_slice(), found.as_deref()), (kinds, broken), "{}", String::from_utf8_lossy(bytes));
    }

    #[test]
    fn events_come_with_data_in_line_or_behind_and_payload_is_read_past() {
        let behind = r#"{"text": "启动"}"#;
        let stream = format!(
            "{{\"type\":\"audio-chunk\",\"payload_length\":3}}\n\0\n{{{{\"type\":\"transcript\",\"data_length\":{},\"data\":{{\"language\":\"zh\"}}}}\n{behind}",
            behind.len()
        );
        let (events, broken) = read_all(stream.as_bytes());
        assert_eq!((events.len(), broken), (2, None));
        assert_eq!((events[1].text("text"), events[1].text("language")), (Some("启动"), Some("zh")));
        check(b"", &[], None);
        check(b"{\"type\":\"ping\"}\n{\"type\":\"describe\"}\n", &["ping", "describe"], None);
    }

    #[test]
    fn what_is_no_event_or_too_long_ends_the_conversation() {
        check(b"GET / HTTP/1.1\r\n\r\n", &[], Some("the line is no event"));
        check(b"{\"type\":\"ping\"}\n[]\n", &["ping"], Some("the line is no event"));
        check(b"{\"type\":\"ping\",\"data_length\":-1}\n", &[], Some("the line is no event"));
        check(b"{\"type\":\"ping\"}", &[], Some("the line is no event"));
        check(b"{\"type\":\"ping\",\"data_length\":3}\nabc", &[], Some("the line is no event"));
        check(
            b"{\"type\":\"ping\",\"data_length\":99999999999}\n",
            &[],
            Some("the data has 99999999999 bytes; 262144 are taken"),
        );
        check(
            b"{\"type\":\"a\",\"payload_length\":18446744073709551615}\n",
            &[],
            Some("the payload has 18446744073709551615 bytes; 4194304 are taken"),
        );
        check(&vec![b'x'; 100_000], &[], Some("the line has 65537 bytes; 65536 are taken"));
        let (events, broken) = read_all(b"{\"type\":\"a\",\"payload_length\":9}\nabc");
        assert!(events.is_empty() && broken.is_some());
    }
}

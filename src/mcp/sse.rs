//! Event streams as MCP servers send them: bytes in, events out ("Server-sent events", WHATWG HTML, 9.2.6).
//!
//! Decoding never waits and never costs more than the bound: an event that is longer makes the stream unreadable,
//! which ends it.

use thiserror::Error;

/// One event. Comments and events without data are not given out.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Event {
    /// Its data, lines joined.
    pub data: String,
    /// The id that stands from here on, for taking the stream up again.
    pub id: Option<String>,
    /// How long to wait before that, in milliseconds.
    pub retry_ms: Option<u64>,
}

/// An event is longer than the bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("an event of the stream is longer than {0} bytes")]
pub struct TooLong(pub usize);

/// The decoder of one stream.
#[derive(Debug)]
pub struct Decoder {
    bound: usize,
    line: Vec<u8>,
    after_return: bool,
    event: Event,
    has_data: bool,
}

impl Decoder {
    /// For events of at most `bound` bytes.
    #[must_use]
    pub fn new(bound: usize) -> Decoder {
        Decoder { bound, line: Vec::new(), after_return: false, event: Event::default(), has_data: false }
    }

    /// Takes in bytes and gives the events that they complete. An event that only sets an id or a delay is given too,
    /// with empty data.
    ///
    /// # Errors
    /// When an event is too long; the stream cannot be read on.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<Vec<Event>, TooLong> {
        let mut events = Vec::new();
        for byte in bytes {
            match byte {
                b'\n' if self.after_return => self.after_return = false,
                b'\n' | b'\r' => {
                    self.after_return = *byte == b'\r';
                    events.extend(self.end_of_line());
                }
                byte => {
                    self.after_return = false;
                    self.line.push(*byte);
                    if self.line.len() + self.event.data.len() > self.bound {
                        return Err(TooLong(self.bound));
                    }
                }
            }
        }
        Ok(events)
    }

    fn end_of_line(&mut self) -> Option<Event> {
        let line = std::mem::take(&mut self.line);
        if line.is_empty() {
            self.has_data = false;
            let event = std::mem::take(&mut self.event);
            return (event != Event::default()).then_some(event);
        }
        // What is no UTF-8 becomes a replacement character, as the standard says; JSON then refuses it.
        let line = String::from_utf8_lossy(&line);
        let line = line.strip_prefix('\u{feff}').unwrap_or(&line);
        let (field, value) = match line.split_once(':') {
            Some((field, value)) => (field, value.strip_prefix(' ').unwrap_or(value)),
            None => (line, ""),
        };
        match field {
            "data" => {
                if self.has_data {
                    self.event.data.push('\n');
                }
                self.has_data = true;
                self.event.data.push_str(value);
            }
            "id" if !value.contains('\0') => self.event.id = Some(value.to_owned()),
            "retry" => self.event.retry_ms = value.parse().ok(),
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[(&str, Option<&str>, Option<u64>)]) {
        let expected: Vec<Event> = expected
            .iter()
            .map(|(data, id, retry_ms)| Event {
                data: (*data).to_owned(),
                id: id.map(str::to_owned),
                retry_ms: *retry_ms,
            })
            .collect();
        for piece in [1, 2, 3, 7, text.len().max(1)] {
            let mut decoder = Decoder::new(1000);
            let events: Vec<Event> =
                text.as_bytes().chunks(piece).flat_map(|bytes| decoder.feed(bytes).unwrap()).collect();
            assert_eq!(events, expected, "{text:?} in pieces of {piece}");
        }
    }

    #[test]
    fn events_come_out_however_the_bytes_are_cut() {
        check("data: {\"a\":1}\n\n", &[("{\"a\":1}", None, None)]);
        check("event: message\r\nid: 7\r\ndata:x\r\n\r\ndata: y\r\n\r\n", &[("x", Some("7"), None), ("y", None, None)]);
        check("data: 一\rdata: 二\r\r", &[("一\n二", None, None)]);
        check(": comment\n\n:\n\n", &[]);
        check("id: 3\nretry: 500\ndata:\n\n", &[("", Some("3"), Some(500))]);
        check("data: cut off", &[]);
        check("data:  two blanks\n\n", &[(" two blanks", None, None)]);
    }

    #[test]
    fn an_event_beyond_the_bound_ends_the_stream() {
        let mut decoder = Decoder::new(10);
        assert_eq!(decoder.feed(b"data: 1234\n"), Ok(vec![]));
        assert_eq!(decoder.feed(b"data: 5678901"), Err(TooLong(10)));
    }
}

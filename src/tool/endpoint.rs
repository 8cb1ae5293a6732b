//! The way to a language model: one request out, the bytes of its answer in, as they come.
//!
//! It knows nothing of any provider's form and decides nothing: an answer that breaks off is said to have broken off,
//! and what that means for a turn is said elsewhere. As with `http`, nothing leads anywhere but to the configured
//! address: no redirect, no proxy of the environment, no repetition behind our back. The key is never printed.

use std::fmt;
use std::time::Duration;

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Response, Url};
use thiserror::Error;

use super::http::{self, NoClient};

/// The most bytes of one answer. A turn of a hundred thousand tokens has a few megabytes of frames; beyond this
/// somebody sends without end.
pub const ANSWER_BYTES_MAX: usize = 64 << 20;

/// How much of an error's body is read and kept: enough for what a provider says, little enough for a log line.
const TROUBLE_BYTES_MAX: usize = 8 * 1024;

/// The longest wait that a server's `retry-after` is believed. A longer one is a provider that is out of service, and
/// a person should know now.
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(120);

/// A key that is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Of a text; blanks and line ends around it belong to the file that it came from.
    #[must_use]
    pub fn new(text: &str) -> Secret {
        Secret(text.trim().to_owned())
    }

    /// The text, for the one header that carries it.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// Why an endpoint cannot be asked at all.
#[derive(Debug, Error)]
pub enum Unusable {
    /// The HTTP client cannot be set up.
    #[error(transparent)]
    Client(#[from] NoClient),
    /// The address is none.
    #[error("endpoint {0}: not an address that can be asked")]
    Address(String),
    /// A header, of which only the name is shown.
    #[error("header {0} cannot be sent: it holds a character that no header may hold")]
    Header(&'static str),
}

/// Why there is no answer, or no more of it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NoAnswer {
    /// No connection came about.
    #[error("{host} cannot be reached: {fact}")]
    NotReached {
        /// The host.
        host: String,
        /// What the system says.
        fact: String,
    },
    /// The server said no.
    #[error("{host} answered {status}: {body}")]
    Status {
        /// The host.
        host: String,
        /// The HTTP status.
        status: u16,
        /// How long it wants to be left alone.
        retry_after: Option<Duration>,
        /// What it says, cut.
        body: String,
    },
    /// It was silent for too long.
    #[error("{host} was silent for {} s", quiet.as_secs())]
    Silent {
        /// The host.
        host: String,
        /// How long.
        quiet: Duration,
    },
    /// The connection broke in the middle.
    #[error("{host} broke off: {fact}")]
    BrokeOff {
        /// The host.
        host: String,
        /// What the system says.
        fact: String,
    },
    /// It sends without end.
    #[error("{host} sent more than {ANSWER_BYTES_MAX} bytes")]
    TooLong {
        /// The host.
        host: String,
    },
}

/// One model's address.
#[derive(Debug)]
pub struct Endpoint {
    client: Client,
    url: Url,
    host: String,
    headers: HeaderMap,
    quiet: Duration,
}

impl Endpoint {
    /// Of an address, with the headers that every request carries.
    ///
    /// # Errors
    /// When the address or a header is none.
    pub fn new(url: &str, headers: &[(&'static str, &str)], quiet: Duration) -> Result<Endpoint, Unusable> {
        let client = http::client(http::Limits { link_local: true, ..http::Limits::default() })?;
        let url: Url = url.parse().map_err(|_| Unusable::Address(url.to_owned()))?;
        let host = url.host_str().unwrap_or_default().to_owned();
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let mut value = HeaderValue::from_str(value).map_err(|_| Unusable::Header(name))?;
            value.set_sensitive(true);
            map.insert(HeaderName::from_static(name), value);
        }
        map.insert(reqwest::header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        map.insert(reqwest::header::ACCEPT, HeaderValue::from_static("text/event-stream, application/json"));
        Ok(Endpoint { client, url, host, headers: map, quiet })
    }

    /// The host, for messages.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Sends one request, and gives the beginning of its answer. Dropped half way, the connection is closed.
    ///
    /// # Errors
    /// When no answer begins.
    pub async fn ask(&self, body: Vec<u8>) -> Result<Answer, NoAnswer> {
        let request = self.client.post(self.url.clone()).headers(self.headers.clone()).body(body);
        let response = match tokio::time::timeout(self.quiet, request.send()).await {
            Err(_) => return Err(self.silent()),
            Ok(Err(error)) if error.is_connect() => {
                return Err(NoAnswer::NotReached { host: self.host.clone(), fact: http::root(&error) });
            }
            Ok(Err(error)) => {
                return Err(NoAnswer::BrokeOff { host: self.host.clone(), fact: http::root(&error) });
            }
            Ok(Ok(response)) => response,
        };
        let status = response.status();
        if status.is_success() {
            return Ok(Answer { response, host: self.host.clone(), quiet: self.quiet, left: ANSWER_BYTES_MAX });
        }
        let retry_after = retry_after(response.headers());
        let body = self.trouble(response).await;
        Err(NoAnswer::Status { host: self.host.clone(), status: status.as_u16(), retry_after, body })
    }

    async fn trouble(&self, mut response: Response) -> String {
        let mut body = Vec::new();
        while body.len() < TROUBLE_BYTES_MAX
            && let Ok(Ok(Some(chunk))) = tokio::time::timeout(self.quiet, response.chunk()).await
        {
            body.extend_from_slice(&chunk);
        }
        body.truncate(TROUBLE_BYTES_MAX);
        String::from_utf8_lossy(&body).into_owned()
    }

    fn silent(&self) -> NoAnswer {
        NoAnswer::Silent { host: self.host.clone(), quiet: self.quiet }
    }
}

/// An answer that comes in.
#[derive(Debug)]
pub struct Answer {
    response: Response,
    host: String,
    quiet: Duration,
    left: usize,
}

impl Answer {
    /// The next bytes; `None` when the server has closed its side in order, which says nothing about the turn.
    ///
    /// # Errors
    /// When the server is silent, breaks off, or does not stop.
    pub async fn next(&mut self) -> Result<Option<Vec<u8>>, NoAnswer> {
        let host = || self.host.clone();
        match tokio::time::timeout(self.quiet, self.response.chunk()).await {
            Err(_) => Err(NoAnswer::Silent { host: host(), quiet: self.quiet }),
            Ok(Err(error)) => Err(NoAnswer::BrokeOff { host: host(), fact: http::root(&error) }),
            Ok(Ok(None)) => Ok(None),
            Ok(Ok(Some(chunk))) => {
                self.left = self.left.checked_sub(chunk.len()).ok_or_else(|| NoAnswer::TooLong { host: host() })?;
                Ok(Some(chunk.to_vec()))
            }
        }
    }
}

/// `retry-after` in seconds (RFC 9110, 10.2.3), or `retry-after-ms` as some providers say it. A date is not read: a box
/// whose clock is wrong would wait for hours.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let number = |name: &str| headers.get(name)?.to_str().ok()?.trim().parse::<f64>().ok();
    let wait = |seconds: f64| Duration::try_from_secs_f64(seconds).ok();
    number("retry-after-ms").and_then(|ms| wait(ms / 1000.0)).or_else(|| number("retry-after").and_then(wait))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_that_a_server_asks_for_is_read_in_seconds() {
        let check = |name: &'static str, value: &str, expected: Option<u64>| {
            let mut headers = HeaderMap::new();
            headers.insert(name, value.parse().unwrap());
            assert_eq!(retry_after(&headers), expected.map(Duration::from_millis), "{name}: {value}");
        };
        check("retry-after", "2", Some(2000));
        check("retry-after", " 0.5 ", Some(500));
        check("retry-after-ms", "250", Some(250));
        check("retry-after", "Wed, 21 Oct 2026 07:28:00 GMT", None);
        check("retry-after", "-3", None);
        check("retry-after", "1e400", None);
        check("retry-after", "NaN", None);
    }

    #[test]
    fn a_secret_is_not_shown() {
        let secret = Secret::new(" sk-123\n");
        assert_eq!((secret.reveal(), format!("{secret:?}").as_str()), ("sk-123", "Secret"));
        let endpoint = Endpoint::new("http://127.0.0.1:9/v1", &[("x-api-key", "sk-123")], Duration::from_secs(1));
        assert!(!format!("{:?}", endpoint.unwrap()).contains("sk-123"));
        assert!(Endpoint::new("http://127.0.0.1:9/v1", &[("x-api-key", "a\nb")], Duration::from_secs(1)).is_err());
    }
}

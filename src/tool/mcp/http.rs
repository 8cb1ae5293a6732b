//! A server that is reached over HTTP, in the protocol that it speaks (MCP "Streamable HTTP" of both eras).
//!
//! Nothing is sent twice by itself: no redirect is followed, no request repeated. A connection that could not be made
//! means that nothing was sent; whatever goes wrong after that, nobody knows.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, RequestBuilder, Response, StatusCode, redirect};
use serde_json::{Map, Value};
use tokio::time::{Instant, sleep_until, timeout};

use super::link::{MESSAGE_LEN_MAX, NoAnswer, Switch, Wire};
use super::oauth::{Account, Verdict};
use crate::mcp::era::{self, Era};
use crate::mcp::header;
use crate::mcp::rpc::{self, RpcError};
use crate::mcp::sse::Decoder;

/// A server answers a connection in milliseconds; one across the world in less than this.
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);

/// Connections that lie idle longer are not used again: servers close theirs after 5 s and more, and a request that
/// meets the closing is one of which nobody knows.
const IDLE_MAX: Duration = Duration::from_secs(4);

/// How long what has no answer may take.
const TELL_PATIENCE: Duration = Duration::from_secs(10);

/// The most that is read of an answer that is an error.
const ERROR_LEN_MAX: usize = 64 << 10;

/// How often a stream that broke off is taken up again in a row, without anything coming.
const RESUMES_MAX: u32 = 5;

/// How long before that, where the server does not say, and at most.
const RETRY: Duration = Duration::from_millis(1000);
const RETRY_MAX: Duration = Duration::from_secs(10);

/// A client for servers; made once.
#[derive(Debug, Clone)]
pub(super) struct Connector(pub(super) Client);

impl Connector {
    /// Sets up TLS. A machine without certificates gets a client that trusts no server.
    pub(super) fn new() -> Result<Connector, reqwest::Error> {
        // Installed once for the process; whoever comes second finds it there.
        let _known = rustls::crypto::ring::default_provider().install_default();
        let builder = || {
            Client::builder()
                .user_agent(concat!("interlock/", env!("CARGO_PKG_VERSION")))
                .no_proxy()
                .redirect(redirect::Policy::none())
                .retry(reqwest::retry::never())
                .pool_idle_timeout(IDLE_MAX)
                .connect_timeout(CONNECT_PATIENCE)
                .tcp_nodelay(true)
        };
        builder().build().or_else(|_| builder().tls_certs_only([]).build()).map(Connector)
    }

    /// A way to one server, in one protocol.
    pub(super) fn to(&self, url: &str, access: Access, era: Era) -> Http {
        Http {
            client: self.0.clone(),
            url: url.to_owned(),
            access,
            era,
            settled: Mutex::new(Settled { session: None, version: None }),
        }
    }
}

/// What lets us in at a server.
#[derive(Debug, Clone)]
pub(super) enum Access {
    /// Nothing is asked for.
    Open,
    /// A token that somebody gave us.
    Token(HeaderValue),
    /// An account of ours, whose tokens change.
    Account(Arc<Account>),
}

impl Access {
    /// A token that somebody gave us.
    pub(super) fn token(token: &str) -> Result<Access, String> {
        bearer(token).map(Access::Token).ok_or_else(|| "its token has characters that no header carries".to_owned())
    }
}

/// What a request carries with that token (RFC 6750, section 2.1); none where no header can. No log shows it.
pub(super) fn bearer(token: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(&format!("Bearer {token}")).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// The way to one server.
#[derive(Debug)]
pub(super) struct Http {
    client: Client,
    url: String,
    access: Access,
    era: Era,
    // Set once by `initialize`, read by every request.
    settled: Mutex<Settled>,
}

#[derive(Debug, Clone)]
struct Settled {
    session: Option<HeaderValue>,
    version: Option<HeaderValue>,
}

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");
const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");

/// How a stream of events ended.
struct StreamEnd {
    why: String,
    last_id: Option<String>,
    retry: Option<Duration>,
    /// Something came on it.
    was_used: bool,
}

impl Http {
    fn settled(&self) -> Settled {
        self.settled.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The revision that `initialize` settled on.
    pub(super) fn settle(&self, version: &str) {
        self.settled.lock().unwrap_or_else(PoisonError::into_inner).version = HeaderValue::from_str(version).ok();
    }

    fn dressed(&self, mut request: RequestBuilder) -> RequestBuilder {
        let Settled { session, version } = self.settled();
        if let Some(session) = session {
            request = request.header(SESSION, session);
        }
        match (self.era, version) {
            (Era::Modern, _) => request.header(VERSION, era::MODERN),
            (Era::Legacy, Some(version)) => request.header(VERSION, version),
            (Era::Legacy, None) => request,
        }
    }

    fn post(&self, text: String) -> RequestBuilder {
        self.dressed(
            self.client
                .post(&self.url)
                .header(CONTENT_TYPE, "application/json")
                .header(ACCEPT, "application/json, text/event-stream")
                .body(text),
        )
    }

    /// Sends a request with what lets us in. A server that refused it did nothing: with a fresh token it goes again, once.
    async fn send(&self, request: RequestBuilder) -> Result<Response, NoAnswer> {
        let sent = |answered: Result<Response, reqwest::Error>| answered.map_err(|error| not_sent(&error));
        let account = match &self.access {
            Access::Open => return sent(request.send().await),
            Access::Token(token) => return sent(request.header(AUTHORIZATION, token.clone()).send().await),
            Access::Account(account) => account,
        };
        let again = request.try_clone();
        let bearer = account.bearer().await;
        let first = match &bearer {
            Some(bearer) => request.header(AUTHORIZATION, bearer.clone()),
            None => request,
        };
        let response = sent(first.send().await)?;
        match (account.heed(&response, bearer.as_ref()).await, again) {
            (Verdict::Passed, _) | (Verdict::Again(_), None) => Ok(response),
            (Verdict::Again(bearer), Some(again)) => {
                let response = sent(again.header(AUTHORIZATION, bearer).send().await)?;
                account.refused_again(&response).map_or(Ok(response), |why| Err(NoAnswer::Unauthorized(why)))
            }
            (Verdict::Refused(why), _) => Err(NoAnswer::Unauthorized(why)),
        }
    }

    /// Sends what has no answer.
    pub(super) async fn tell(&self, text: String) -> Result<(), NoAnswer> {
        if self.era == Era::Modern {
            // This era has neither notifications nor responses from clients.
            return Ok(());
        }
        match timeout(TELL_PATIENCE, self.send(self.post(text))).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(why)) => Err(why),
            Err(_) => Err(NoAnswer::TimedOut),
        }
    }

    /// Sends a request and hands everything that comes to the switch, until nothing more can come. What it gives is what
    /// is true if the answer was not among it.
    pub(super) async fn exchange(
        self: &Arc<Http>,
        switch: &Arc<Switch>,
        number: u64,
        method: &str,
        params: &Value,
        schema: Option<&Value>,
    ) -> NoAnswer {
        // The older era does not ask for them and does not mind them; who routes by them knows both.
        let request = self.post(rpc::request(number, method, params)).headers(headers(method, params, schema));
        let response = match self.send(request).await {
            Ok(response) => response,
            Err(why) => {
                if let NoAnswer::NotSent(why) = &why {
                    // Nobody listens there: every other request would find the same.
                    switch.end(false, why.clone());
                }
                return why;
            }
        };
        if let Some(session) = response.headers().get(SESSION)
            && method == "initialize"
        {
            self.settled.lock().unwrap_or_else(PoisonError::into_inner).session = Some(session.clone());
        }
        if !response.status().is_success() {
            return self.refused(switch, response).await;
        }
        let wire = Wire::Http(Arc::clone(self));
        if !is_events(&response) {
            return match body(response, MESSAGE_LEN_MAX).await {
                Ok(bytes) => match rpc::read_within(&bytes, MESSAGE_LEN_MAX) {
                    Ok(message) => {
                        switch.take(message, Some(number), &wire);
                        lost("its answer was for another request")
                    }
                    Err(unreadable) => lost(&format!("its answer is no message: {}", unreadable.error.message)),
                },
                Err(why) => lost(&why),
            };
        }
        let mut end = self.hear(switch, Some(number), response).await;
        let mut resumes = 0;
        while switch.waits(number) {
            let Some(last) = end.last_id.clone().filter(|_| self.era == Era::Legacy && resumes < RESUMES_MAX) else {
                return lost(&end.why);
            };
            sleep_until(Instant::now() + end.retry.unwrap_or(RETRY).min(RETRY_MAX)).await;
            let retry = end.retry;
            end = match self.listen(switch, Some(number), Some(&last)).await {
                Ok(end) => end,
                Err(why) => return lost(&why),
            };
            resumes = if end.was_used { 0 } else { resumes + 1 };
            end.last_id = end.last_id.or(Some(last));
            end.retry = end.retry.or(retry);
        }
        lost(&end.why)
    }

    /// The stream for what belongs to no request, or the rest of one that broke off.
    async fn listen(
        self: &Arc<Http>,
        switch: &Arc<Switch>,
        of: Option<u64>,
        last: Option<&str>,
    ) -> Result<StreamEnd, String> {
        let mut request = self.dressed(self.client.get(&self.url).header(ACCEPT, "text/event-stream"));
        if let Some(last) = last.and_then(|last| HeaderValue::from_str(last).ok()) {
            request = request.header(LAST_EVENT, last);
        }
        let response = self.send(request).await.map_err(|why| super::keep::shown(&why))?;
        if !response.status().is_success() || !is_events(&response) {
            return Err(format!("no event stream: {}", response.status()));
        }
        Ok(self.hear(switch, of, response).await)
    }

    /// Hears what belongs to no request, as long as the server offers that (2025-11-25, "Listening for Messages").
    pub(super) async fn listen_on(self: &Arc<Http>, switch: &Arc<Switch>) {
        let (mut last, mut failures) = (None::<String>, 0);
        // A server that offers no such stream says so at once; one that breaks off is taken up again, some times.
        while failures < RESUMES_MAX {
            match self.listen(switch, None, last.as_deref()).await {
                Ok(end) => {
                    failures = if end.was_used { 0 } else { failures + 1 };
                    last = end.last_id.or(last);
                    sleep_until(Instant::now() + end.retry.unwrap_or(RETRY / 4).min(RETRY_MAX)).await;
                }
                Err(_) => {
                    // After a login it may be let in.
                    let Access::Account(account) = &self.access else { return };
                    if account.changes().changed().await.is_err() {
                        return;
                    }
                }
            }
        }
    }

    /// Hands the messages of a stream to the switch.
    async fn hear(self: &Arc<Http>, switch: &Arc<Switch>, of: Option<u64>, mut response: Response) -> StreamEnd {
        let wire = Wire::Http(Arc::clone(self));
        let mut decoder = Decoder::new(MESSAGE_LEN_MAX);
        let mut end = StreamEnd { why: String::new(), last_id: None, retry: None, was_used: false };
        end.why = loop {
            let chunk = match response.chunk().await {
                Ok(Some(chunk)) => chunk,
                Ok(None) => break "its stream ended".to_owned(),
                Err(error) => break format!("its stream broke: {}", fact(&error)),
            };
            let events = match decoder.feed(&chunk) {
                Ok(events) => events,
                Err(too_long) => break too_long.to_string(),
            };
            for event in events {
                end.was_used |= !event.data.is_empty();
                end.last_id = event.id.or(end.last_id);
                end.retry = event.retry_ms.map(Duration::from_millis).or(end.retry);
                if event.data.is_empty() {
                    continue;
                }
                match rpc::read_within(event.data.as_bytes(), MESSAGE_LEN_MAX) {
                    Ok(message) => switch.take(message, of, &wire),
                    Err(unreadable) => switch.misread(&unreadable),
                }
            }
        };
        end
    }

    async fn refused(&self, switch: &Arc<Switch>, response: Response) -> NoAnswer {
        let status = response.status();
        let has_session = self.settled().session.is_some();
        let bytes = body(response, ERROR_LEN_MAX).await.unwrap_or_default();
        let error = serde_json::from_slice::<Value>(&bytes)
            .ok()
            .and_then(|value| value.get("error").filter(|error| error["code"].is_i64()).map(RpcError::from_value));
        match (status, error) {
            (StatusCode::NOT_FOUND, _) if self.era == Era::Legacy && has_session => {
                let why = "its session is over";
                switch.end(false, why);
                NoAnswer::NotSent(why.to_owned())
            }
            (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, _) => {
                NoAnswer::Unauthorized(format!("it answered {status}: its token is missing or not accepted"))
            }
            (_, Some(error)) => NoAnswer::Rpc(error),
            (status, None) if is_before_work(status) => NoAnswer::Refused(format!("it answered {status}")),
            (status, None) => lost(&format!("it answered {status}")),
        }
    }

    /// Says that the session is over, where there is one.
    pub(super) async fn close(&self) {
        if self.era == Era::Legacy && self.settled().session.is_some() {
            // A server may refuse this (405), or be gone: then there is nothing left to close.
            let _gone = timeout(CONNECT_PATIENCE, self.send(self.dressed(self.client.delete(&self.url)))).await;
        }
    }
}

/// Whether a status says that nobody has begun to work on the request (RFC 9110 section 15.5, RFC 6585): it went to the
/// wrong place, has the wrong form, or came too often. Others, a 400 among them, can be about what the work came to.
fn is_before_work(status: StatusCode) -> bool {
    status.is_redirection()
        || matches!(status.as_u16(), 404 | 405 | 406 | 411 | 413 | 414 | 415 | 421 | 426 | 429 | 431)
}

fn lost(why: &str) -> NoAnswer {
    NoAnswer::Lost { killed: false, why: why.to_owned() }
}

fn not_sent(error: &reqwest::Error) -> NoAnswer {
    if error.is_connect() || error.is_builder() { NoAnswer::NotSent(fact(error)) } else { lost(&fact(error)) }
}

/// The innermost fact of an error; the address, which may be private, is left out.
pub(super) fn fact(error: &reqwest::Error) -> String {
    let mut inner: &dyn std::error::Error = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    if std::ptr::addr_eq(inner, error) { "the request was not carried out".to_owned() } else { inner.to_string() }
}

fn is_events(response: &Response) -> bool {
    response
        .headers()
        .get(CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok())
        .is_some_and(|kind| kind.split(';').next().is_some_and(|kind| kind.trim() == "text/event-stream"))
}

pub(super) async fn body(mut response: Response, bound: usize) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| format!("its answer broke off: {}", fact(&error)))? {
        if bytes.len() + chunk.len() > bound {
            return Err(format!("its answer is longer than {bound} bytes"));
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}

/// The headers that repeat what the body says (2026-07-28, "Request Metadata").
fn headers(method: &str, params: &Value, schema: Option<&Value>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if let Ok(value) = HeaderValue::from_str(method) {
        headers.insert(METHOD, value);
    }
    if let Some(name) = header::named_by(method).and_then(|member| params[member].as_str()) {
        headers.insert(NAME, encoded(name));
    }
    let nothing = Map::new();
    let arguments = params["arguments"].as_object().unwrap_or(&nothing);
    for (name, value) in schema.map(|schema| header::marked(schema, arguments)).unwrap_or_default() {
        if let Ok(name) = HeaderName::try_from(name) {
            headers.insert(name, encoded(&value));
        }
    }
    headers
}

/// As it is where a header carries that unchanged, else in base64.
fn encoded(value: &str) -> HeaderValue {
    let is_plain = value.bytes().all(|byte| matches!(byte, 0x20..=0x7e))
        && value.trim() == value
        && !value.starts_with("=?base64?")
        && !value.is_empty();
    let plain = if is_plain { HeaderValue::from_str(value).ok() } else { None };
    plain.unwrap_or_else(|| {
        let text = format!("=?base64?{}?=", STANDARD.encode(value));
        HeaderValue::from_str(&text).unwrap_or_else(|_| HeaderValue::from_static(""))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_status_that_comes_before_the_work_says_that_nothing_happened() {
        let says = |status: u16| is_before_work(StatusCode::from_u16(status).unwrap());
        for status in [301, 307, 404, 405, 413, 415, 429, 431] {
            assert!(says(status), "{status}");
        }
        for status in [400, 402, 408, 409, 410, 412, 422, 424, 425, 451, 499, 500, 502, 503, 504] {
            assert!(!says(status), "{status}");
        }
    }

    #[test]
    fn a_value_that_a_header_cannot_carry_is_encoded() {
        for (value, written) in [
            ("echo", "echo"),
            ("a b", "a b"),
            (" a", "=?base64?IGE=?="),
            ("说", "=?base64?6K+0?="),
            ("=?base64?x?=", "=?base64?PT9iYXNlNjQ/eD89?="),
            ("", "=?base64??="),
        ] {
            assert_eq!(encoded(value), written, "{value:?}");
            assert_eq!(header::decode(written).as_deref(), Some(value));
        }
    }
}

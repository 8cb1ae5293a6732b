//! The way to a receiver that is asked over HTTP: one POST, its status, and the beginning of what it says.
//!
//! As everywhere here, nothing leads anywhere but to the configured address: no redirect, no proxy of the environment,
//! no repetition behind our back. What was not answered is sent again by whoever sent it, and counts as not sent.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use interlock_domain::request::shown::plain;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::{Client, Response, Url, redirect};
use rumqttc::tokio_rustls::rustls::ClientConfig;
use tokio::time::timeout;

/// How long a connection may take to come about, and one request with its answer.
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);
const PATIENCE: Duration = Duration::from_secs(15);

/// How long a connection that nobody uses is kept.
const IDLE: Duration = Duration::from_secs(60);

/// How much of an answer is read: what a receiver has to say fits, and whoever sends without end is not listened to.
const ANSWER_LEN_MAX: usize = 8 * 1024;

/// The longest secret that is read, in bytes.
const SECRET_LEN_MAX: u64 = 4096;

/// How a receiver is reached.
#[derive(Clone)]
pub struct Settings {
    /// Its address, as far as all that is said to it shares it.
    pub url: String,
    /// How TLS is spoken, where it is.
    pub tls: Arc<ClientConfig>,
    /// Where the bearer token lies. It is read for each request, so that another one is in force at once.
    pub token: Option<PathBuf>,
}

/// A receiver.
pub(super) struct Receiver {
    client: Client,
    url: String,
    token: Option<PathBuf>,
}

/// What it answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: u16,
    /// How long it wants to be left alone.
    pub(super) retry_after: Option<Duration>,
    pub(super) body: String,
}

/// How much of what a receiver says is shown, in characters.
const TOLD_LEN_MAX: usize = 200;

impl Answer {
    /// What it said, for a person: bounded, and nothing that could act on a terminal or begin a line.
    pub(super) fn told(&self) -> String {
        plain(&self.body, TOLD_LEN_MAX)
    }
}

impl Receiver {
    pub(super) fn new(settings: &Settings) -> Result<Receiver, String> {
        let client = Client::builder()
            .user_agent(concat!("interlock/", env!("CARGO_PKG_VERSION")))
            .tls_backend_preconfigured(ClientConfig::clone(&settings.tls))
            .no_proxy()
            .redirect(redirect::Policy::none())
            .retry(reqwest::retry::never())
            .pool_max_idle_per_host(1)
            .pool_idle_timeout(IDLE)
            .connect_timeout(CONNECT_PATIENCE)
            .build();
        let client = client.map_err(|error| cause(&error))?;
        Ok(Receiver { client, url: settings.url.clone(), token: settings.token.clone() })
    }

    /// Sends JSON below the configured address; `Err` where there was no answer.
    pub(super) async fn post(
        &self,
        below: &str,
        headers: &[(&'static str, String)],
        body: String,
    ) -> Result<Answer, String> {
        let url: Url = format!("{}{below}", self.url).parse().map_err(|_| "the address is none".to_owned())?;
        let mut map = HeaderMap::new();
        map.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        for (name, value) in headers {
            let value = HeaderValue::from_str(value).map_err(|_| format!("{name} cannot be sent in a header"))?;
            map.insert(HeaderName::from_static(name), value);
        }
        if let Some(path) = &self.token {
            let token = secret("token", path).await?;
            let mut value = HeaderValue::from_str(&format!("Bearer {token}"))
                .map_err(|_| format!("token {}: it holds a character that no header may hold", path.display()))?;
            value.set_sensitive(true);
            map.insert(AUTHORIZATION, value);
        }
        let asked = async {
            let response = self.client.post(url).headers(map).body(body).send().await.map_err(|error| cause(&error))?;
            Ok::<_, String>(answer(response).await)
        };
        timeout(PATIENCE, asked).await.unwrap_or_else(|_| Err(format!("no answer within {} s", PATIENCE.as_secs())))
    }
}

async fn answer(mut response: Response) -> Answer {
    let status = response.status().as_u16();
    // In seconds (RFC 9110, 10.2.3). A date is not read: a box whose clock is wrong would wait for hours.
    let seconds = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse().ok());
    let mut body = Vec::new();
    // What was said counts, whether or not the rest comes.
    while body.len() < ANSWER_LEN_MAX
        && let Ok(Some(chunk)) = response.chunk().await
    {
        body.extend_from_slice(&chunk[..chunk.len().min(ANSWER_LEN_MAX - body.len())]);
    }
    let body = String::from_utf8_lossy(&body).into_owned();
    Answer { status, retry_after: seconds.map(Duration::from_secs), body }
}

/// A secret out of its file, without blanks and line ends around it.
pub(super) async fn secret(what: &str, path: &Path) -> Result<String, String> {
    let wrong = |why: String| format!("{what} {}: {why}", path.display());
    let length = tokio::fs::metadata(path).await.map_err(|error| wrong(error.to_string()))?.len();
    if length > SECRET_LEN_MAX {
        return Err(wrong(format!("it has {length} bytes; {SECRET_LEN_MAX} are read at most")));
    }
    let text = tokio::fs::read_to_string(path).await.map_err(|error| wrong(error.to_string()))?;
    Ok(text.trim_end_matches(['\n', '\r']).to_owned())
}

/// What is behind an error of the library: its own text says little.
fn cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

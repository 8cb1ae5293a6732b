//! What an authorization server is asked over the wire: documents, registrations, tokens.
//!
//! Every answer is bounded in length and time, no redirect is followed, and what is told of a refusal are the words of
//! RFC 6749 section 5.2, never a token.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use reqwest::{Client, RequestBuilder, StatusCode, Url};
use serde_json::{Value, json};
use thiserror::Error;
use tokio::time::timeout;

use super::kept::Registered;
use super::metadata::{self, Issuer, Method, shown};
use crate::sys::clock;
use crate::tool::mcp::http;

/// How long an authorization server may take: a person waits for it, or a call does.
pub(super) const PATIENCE: Duration = Duration::from_secs(15);

/// The longest answer that is read.
const ANSWER_LEN_MAX: usize = 256 << 10;

/// The longest life of a token that is believed, in seconds: a year.
const LIFE_MAX_S: u64 = 366 * 24 * 3600;

/// The one word that means a grant's end (RFC 6749, section 5.2): every other refusal may pass, or be of another cause.
const INVALID_GRANT: &str = "invalid_grant";

/// Why an authorization server did not give what was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Trouble {
    /// It was not reached, or its answer is no answer.
    #[error("{at}: {fact}")]
    Broken {
        /// The host.
        at: String,
        /// What was seen.
        fact: String,
    },
    /// It says no, for now or to this request: what was kept may still be good.
    #[error("{at} refuses: {error}")]
    Refused {
        /// The host.
        at: String,
        /// Its word for why, and its sentence, where it has one.
        error: String,
    },
    /// What it was shown is no good, and never will be again (`invalid_grant`, RFC 6749 section 5.2).
    #[error("{at} refuses: {error}")]
    Over {
        /// The host.
        at: String,
        /// Its word for why, and its sentence, where it has one.
        error: String,
    },
}

fn host(url: &Url) -> String {
    url.origin().ascii_serialization()
}

fn broken(url: &Url, fact: impl Into<String>) -> Trouble {
    Trouble::Broken { at: host(url), fact: fact.into() }
}

async fn answer(url: &Url, request: RequestBuilder) -> Result<(StatusCode, Value), Trouble> {
    let all = async {
        let response = request.send().await.map_err(|error| broken(url, http::fact(&error)))?;
        let status = response.status();
        let bytes = http::body(response, ANSWER_LEN_MAX).await.map_err(|fact| broken(url, fact))?;
        Ok((status, serde_json::from_slice(&bytes).unwrap_or(Value::Null)))
    };
    timeout(PATIENCE, all).await.unwrap_or_else(|_| Err(broken(url, "no answer in time")))
}

/// A document, or none where there is none.
pub(super) async fn document(client: &Client, url: &Url) -> Result<Option<Value>, Trouble> {
    let (status, document) = answer(url, client.get(url.clone()).header(ACCEPT, "application/json")).await?;
    match (status, document) {
        (status, document) if status.is_success() && document.is_object() => Ok(Some(document)),
        // A place that has something else than a document has no document.
        (status, _) if status.is_success() || status.is_client_error() => Ok(None),
        (status, _) => Err(broken(url, format!("it answered {status}"))),
    }
}

fn refused(url: &Url, status: StatusCode, said: &Value) -> Trouble {
    match said["error"].as_str() {
        // A server in trouble says many things; what it says then ends nothing.
        Some(word) if !status.is_server_error() => {
            let more = said["error_description"].as_str().map(|text| format!(" ({})", shown(text))).unwrap_or_default();
            let (at, error) = (host(url), format!("{}{more}", shown(word)));
            if word == INVALID_GRANT { Trouble::Over { at, error } } else { Trouble::Refused { at, error } }
        }
        Some(word) => broken(url, format!("it answered {status}: {}", shown(word))),
        None if status.is_client_error() => Trouble::Refused { at: host(url), error: status.to_string() },
        None => broken(url, format!("it answered {status}")),
    }
}

/// Makes us known to an authorization server (RFC 7591).
pub(super) async fn register(client: &Client, at: &Url, with: &Issuer, redirect: &str) -> Result<Registered, Trouble> {
    // A program on somebody's box keeps no secret from its owner, so none is asked for where that is allowed.
    let wanted = [Method::None, Method::Basic, Method::Post].into_iter().find(|method| with.methods.contains(method));
    let wanted = wanted.unwrap_or(Method::Basic);
    let body = json!({
        "client_name": "Interlock",
        "application_type": "native",
        "redirect_uris": [redirect],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": wanted.as_str(),
    });
    let request = client.post(at.clone()).header(CONTENT_TYPE, "application/json").body(body.to_string());
    let (status, said) = answer(at, request).await?;
    let Some(id) = said["client_id"].as_str().filter(|_| status.is_success()) else {
        return Err(refused(at, status, &said));
    };
    let secret = said["client_secret"].as_str().map(str::to_owned);
    let told = said["token_endpoint_auth_method"].as_str().and_then(Method::read);
    Ok(known(id, secret, told.unwrap_or(wanted), &with.methods))
}

/// A client as it says who it is: by the way that was agreed on, else by the first that the server knows.
pub(super) fn known(id: &str, secret: Option<String>, agreed: Method, methods: &[Method]) -> Registered {
    let method = match (&secret, agreed) {
        (None, _) => Method::None,
        (Some(_), agreed @ (Method::Basic | Method::Post)) if methods.is_empty() || methods.contains(&agreed) => agreed,
        (Some(_), _) if methods.contains(&Method::Basic) || methods.is_empty() => Method::Basic,
        (Some(_), _) if methods.contains(&Method::Post) => Method::Post,
        (Some(_), _) => Method::None,
    };
    Registered { id: id.to_owned(), secret, method }
}

/// What the token endpoint gave.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Granted {
    pub(super) access: String,
    pub(super) refresh: Option<String>,
    /// In milliseconds since 1970.
    pub(super) until: Option<i64>,
    /// Where it says so.
    pub(super) scopes: Option<Vec<String>>,
}

/// Asks for tokens with that form.
pub(super) async fn token(
    client: &Client,
    at: &Url,
    who: &Registered,
    form: &[(&str, &str)],
) -> Result<Granted, Trouble> {
    let mut body = form_of(form);
    let mut request = client.post(at.clone()).header(CONTENT_TYPE, "application/x-www-form-urlencoded");
    let secret = who.secret.as_deref().unwrap_or_default();
    match who.method {
        Method::None => body.push_str(&format!("&{}", form_of(&[("client_id", &who.id)]))),
        Method::Post => body.push_str(&format!("&{}", form_of(&[("client_id", &who.id), ("client_secret", secret)]))),
        Method::Basic => {
            // Each part is encoded by itself first (RFC 6749, section 2.3.1).
            let pair = format!("{}:{}", encoded(&who.id), encoded(secret));
            let value = HeaderValue::from_str(&format!("Basic {}", STANDARD.encode(pair)));
            let mut value = value.map_err(|_| broken(at, "the client's secret fits no header"))?;
            value.set_sensitive(true);
            request = request.header(AUTHORIZATION, value);
        }
    }
    let (status, said) = answer(at, request.header(ACCEPT, "application/json").body(body)).await?;
    let access = said["access_token"].as_str().filter(|token| !token.is_empty() && status.is_success());
    let Some(access) = access else { return Err(refused(at, status, &said)) };
    if !said["token_type"].as_str().is_some_and(|kind| kind.eq_ignore_ascii_case("bearer")) {
        return Err(broken(at, "its token is not of the type Bearer"));
    }
    if !access.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(broken(at, "its token fits no header"));
    }
    let life = said["expires_in"].as_u64().or_else(|| said["expires_in"].as_str()?.parse().ok());
    let until =
        life.map(|seconds| clock::wall().0.saturating_add(i64::try_from(seconds.min(LIFE_MAX_S) * 1000).unwrap_or(0)));
    Ok(Granted {
        access: access.to_owned(),
        refresh: said["refresh_token"].as_str().map(str::to_owned),
        until,
        scopes: said["scope"].as_str().map(metadata::scopes_of),
    })
}

/// A form as it is sent, and as it stands in an address.
pub(super) fn form_of(pairs: &[(&str, &str)]) -> String {
    // The address is only what the form is written into.
    Url::parse("http://form/").map_or_else(
        |_| String::new(),
        |mut url| {
            url.query_pairs_mut().extend_pairs(pairs);
            url.query().unwrap_or_default().to_owned()
        },
    )
}

fn encoded(text: &str) -> String {
    form_of(&[(text, "")]).trim_end_matches('=').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_says_who_it_is_in_a_way_that_the_server_knows() {
        use Method::{Basic, None as No, Post};
        for (secret, agreed, methods, method) in [
            (false, Basic, &[Basic][..], No),
            (true, No, &[Basic, Post], Basic),
            (true, No, &[Post], Post),
            (true, Post, &[Basic, Post], Post),
            (true, Post, &[Basic], Basic),
            (true, Post, &[], Post),
            (true, No, &[], Basic),
            (true, No, &[No], No),
        ] {
            let secret = secret.then(|| "s".to_owned());
            assert_eq!(known("c", secret, agreed, methods).method, method, "{agreed:?} {methods:?}");
        }
    }

    #[test]
    fn only_an_invalid_grant_is_the_end_of_a_grant() {
        let url = Url::parse("https://as/token").unwrap();
        let read = |status: u16, said: &Value| match refused(&url, StatusCode::from_u16(status).unwrap(), said) {
            Trouble::Over { .. } => "over",
            Trouble::Refused { .. } => "refused",
            Trouble::Broken { .. } => "broken",
        };
        let named = |word: &str| json!({"error": word, "error_description": "as it likes"});
        for (status, said, means) in [
            (400, named("invalid_grant"), "over"),
            (401, named("invalid_grant"), "over"),
            (503, named("invalid_grant"), "broken"),
            (400, named("invalid_client"), "refused"),
            (401, named("invalid_client"), "refused"),
            (400, named("invalid_request"), "refused"),
            (429, named("slow_down"), "refused"),
            (400, named("INVALID_GRANT"), "refused"),
            (503, named("temporarily_unavailable"), "broken"),
            (400, Value::Null, "refused"),
            (403, json!({"error": ["invalid_grant"]}), "refused"),
            (502, Value::Null, "broken"),
        ] {
            assert_eq!(read(status, &said), means, "{status} {said}");
        }
    }

    #[test]
    fn a_form_carries_what_a_form_has_to_quote() {
        assert_eq!(form_of(&[("a", "1 2"), ("b", "&=+说")]), "a=1+2&b=%26%3D%2B%E8%AF%B4");
        assert_eq!(form_of(&[]), "");
        assert_eq!(encoded("a:b c"), "a%3Ab+c");
        assert_eq!(encoded("a="), "a%3D");
    }
}

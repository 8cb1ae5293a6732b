//! `[export.webhook]` and `[export.otlp]`: receivers that are asked over HTTP.
//!
//! ```toml
//! [export.webhook]
//! url = "https://alarms.plant/hooks/interlock"
//! device = "box-1"
//! ca = "/etc/interlock/plant-ca.pem"
//! secret-credential = "webhook-secret"      # whsec_…, which both sides know
//!
//! [export.otlp]
//! endpoint = "https://collector.plant:4318" # /v1/logs and /v1/traces below it
//! device = "box-1"
//! ca = "/etc/interlock/plant-ca.pem"
//! ```

use std::path::PathBuf;

use serde::Deserialize;
use toml::Spanned;

use super::super::mcp::{Secret, Wrong, secret};
use super::{BACKLOG_MAX, BACKLOGS, RATE, RATES, Tls, WrittenTls, is_loopback, name, within};

/// What a webhook may be told of.
const KINDS: [&str; 5] = ["zombie", "dead", "question", "evidence", "alarm"];

/// Longest address, in bytes: what every server takes in one line of a request.
const URL_LEN_MAX: usize = 2000;

/// How a receiver is reached over HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reach {
    /// Its address, `http` or `https`.
    pub url: String,
    /// How TLS is spoken; `None` for none.
    pub tls: Option<Tls>,
    /// The bearer token that it wants.
    pub token: Option<Secret>,
}

/// An endpoint that is told of what stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Webhook {
    /// How it is reached.
    pub reach: Reach,
    /// What this box is called.
    pub device: String,
    /// What messages are signed with.
    pub secret: Secret,
    /// What it is told of, by the words of notices.
    pub kinds: Vec<&'static str>,
}

/// A collector that is told each row, and the runs as traces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Otlp {
    /// How it is reached.
    pub reach: Reach,
    /// What this box is called.
    pub device: String,
    /// Rows of the past in a second, at most.
    pub rate: u32,
    /// Rows that wait, at most; when there are more, the oldest are left out and a gap is told.
    pub backlog_max: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct WrittenOtlp {
    endpoint: Spanned<String>,
    device: Spanned<String>,
    token_credential: Option<String>,
    token_file: Option<PathBuf>,
    ca: Option<Spanned<PathBuf>>,
    certificate: Option<Spanned<PathBuf>>,
    key_credential: Option<String>,
    key_file: Option<PathBuf>,
    open_network: Option<bool>,
    rate: Option<Spanned<u32>>,
    backlog_max: Option<Spanned<u64>>,
}

pub(super) fn otlp(table: &Spanned<WrittenOtlp>) -> Result<Otlp, Wrong> {
    let written = table.get_ref();
    let tls = WrittenTls {
        ca: written.ca.as_ref(),
        certificate: written.certificate.as_ref(),
        key_credential: written.key_credential.as_ref(),
        key_file: written.key_file.as_ref(),
    };
    let token = secret("token", written.token_credential.as_ref(), written.token_file.as_ref())
        .map_err(|fact| Wrong::at(table, fact))?;
    let reach = reach(table, &written.endpoint, &tls, written.open_network)?;
    if reach.url.contains('?') || reach.url.ends_with("/v1/logs") || reach.url.ends_with("/v1/traces") {
        let fact = "an endpoint is what stands before /v1/logs and /v1/traces";
        return Err(Wrong::at(&written.endpoint, fact).hint("endpoint = \"https://collector.plant:4318\""));
    }
    let url = reach.url.trim_end_matches('/').to_owned();
    Ok(Otlp {
        reach: Reach { url, token, ..reach },
        device: name(&written.device)?,
        rate: within(written.rate.as_ref(), RATE, &RATES)?,
        backlog_max: within(written.backlog_max.as_ref(), BACKLOG_MAX, &BACKLOGS)?,
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct WrittenWebhook {
    url: Spanned<String>,
    device: Spanned<String>,
    secret_credential: Option<String>,
    secret_file: Option<PathBuf>,
    kinds: Option<Vec<Spanned<String>>>,
    ca: Option<Spanned<PathBuf>>,
    certificate: Option<Spanned<PathBuf>>,
    key_credential: Option<String>,
    key_file: Option<PathBuf>,
    open_network: Option<bool>,
}

pub(super) fn webhook(table: &Spanned<WrittenWebhook>) -> Result<Webhook, Wrong> {
    let written = table.get_ref();
    let tls = WrittenTls {
        ca: written.ca.as_ref(),
        certificate: written.certificate.as_ref(),
        key_credential: written.key_credential.as_ref(),
        key_file: written.key_file.as_ref(),
    };
    let secret = secret("secret", written.secret_credential.as_ref(), written.secret_file.as_ref())
        .map_err(|fact| Wrong::at(table, fact))?;
    let Some(secret) = secret else {
        return Err(Wrong::at(table, "a webhook needs the secret that its messages are signed with")
            .hint("secret-credential = \"webhook-secret\", or secret-file: whsec_ and base64 of 24 to 64 bytes"));
    };
    Ok(Webhook {
        reach: Reach { token: None, ..reach(table, &written.url, &tls, written.open_network)? },
        device: name(&written.device)?,
        secret,
        kinds: match &written.kinds {
            None => KINDS.to_vec(),
            Some(kinds) => kinds.iter().map(kind).collect::<Result<_, _>>()?,
        },
    })
}

fn kind(written: &Spanned<String>) -> Result<&'static str, Wrong> {
    let known = KINDS.into_iter().find(|kind| kind == written.get_ref());
    known.ok_or_else(|| {
        Wrong::at(written, format!("{:?} is nothing that is told of", written.get_ref()))
            .hint("\"zombie\", \"dead\", \"question\", \"evidence\", \"alarm\"")
    })
}

/// How a receiver is reached. Without TLS only on this machine, or where the network is said to be closed.
pub(super) fn reach<T>(
    table: &Spanned<T>,
    url: &Spanned<String>,
    tls: &WrittenTls<'_>,
    open_network: Option<bool>,
) -> Result<Reach, Wrong> {
    const FORM: &str = "https://HOST/PATH, https://HOST:PORT/PATH, http://127.0.0.1:PORT/PATH";
    let wrong = |fact: &str| Wrong::at(url, fact).hint(FORM);
    let text = url.get_ref();
    let (is_tls, rest) = match text.split_once("://") {
        Some(("https", rest)) => (true, rest),
        Some(("http", rest)) => (false, rest),
        Some(_) | None => return Err(wrong("an address begins with https:// or http://")),
    };
    let host = rest.split(['/', '?']).next().unwrap_or_default();
    if host.contains('@') {
        return Err(wrong("an address has no name or password in it"));
    }
    if text.len() > URL_LEN_MAX || text.chars().any(|c| c.is_whitespace() || c.is_control()) || text.contains('#') {
        return Err(wrong("this is no address that can be asked"));
    }
    let (host, port) = match host.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        Some(_) | None => (host, None),
    };
    if host.is_empty() {
        return Err(wrong("there is no host name in it"));
    }
    if port.is_some_and(|port| !port.parse::<u16>().is_ok_and(|port| port > 0)) {
        return Err(wrong("the port is no number from 1 to 65535"));
    }
    let tls = super::tls(table, url, tls, is_tls, "https://HOST/PATH")?;
    if !is_tls && !is_loopback(host) && open_network != Some(true) {
        let fact = "without TLS, whoever is on the way reads what is said here";
        return Err(Wrong::at(url, fact).hint("https://, or open-network = true when the network is closed"));
    }
    Ok(Reach { url: text.clone(), tls, token: None })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn read(body: &str) -> Result<Option<Webhook>, String> {
        let text = format!("[export.webhook]\n{body}\n");
        super::super::read(&text, Path::new("x.toml")).map(|read| read.webhook).map_err(|error| error.to_string())
    }

    #[test]
    fn a_webhook_is_read_whole_and_what_is_not_said_has_its_usual_value() {
        let least = Webhook {
            reach: Reach { url: "http://127.0.0.1:9/a?b=c".into(), tls: None, token: None },
            device: "box-1".into(),
            secret: Secret::File("/s".into()),
            kinds: KINDS.to_vec(),
        };
        let text = "url = \"http://127.0.0.1:9/a?b=c\"\ndevice = \"box-1\"\nsecret-file = \"/s\"";
        assert_eq!(read(text).unwrap(), Some(least));
        let all = Webhook {
            reach: Reach {
                url: "https://h:8443/x".into(),
                tls: Some(Tls {
                    ca: "/ca.pem".into(),
                    certificate: Some(("/c.pem".into(), Secret::Credential("k".into()))),
                }),
                token: None,
            },
            device: "b".into(),
            secret: Secret::Credential("s".into()),
            kinds: vec!["dead", "question"],
        };
        let text = "url = \"https://h:8443/x\"\ndevice = \"b\"\nsecret-credential = \"s\"\nca = \"/ca.pem\"\n\
                    certificate = \"/c.pem\"\nkey-credential = \"k\"\nkinds = [\"dead\", \"question\"]";
        assert_eq!(read(text).unwrap(), Some(all));
    }

    #[test]
    fn a_mistake_is_named_with_its_line() {
        let check = |body: &str, want: &str| {
            let error = read(&format!("device = \"b\"\nsecret-file = \"/s\"\n{body}")).expect_err(body);
            assert!(error.contains(want), "{body}\n{error}");
        };
        check("url = \"ftp://h\"", "x.toml:4:7: export.webhook.url: an address begins with https://");
        check("url = \"https://h\"", "TLS needs ca");
        check("url = \"http://h/x\"", "without TLS, whoever is on the way reads");
        check("url = \"https://u:p@h\"", "an address has no name or password");
        check("url = \"https://\"", "there is no host name in it");
        check("url = \"https://h:99999/\"", "the port is no number");
        check("url = \"https://h/a b\"", "this is no address");
        check("url = \"http://localhost/\"\nca = \"/x\"", "ca and certificate are for TLS");
        check("url = \"http://localhost/\"\nkinds = [\"fire\"]", "\"fire\" is nothing that is told of");
        check("url = \"http://localhost/\"\nsecret = \"x\"", "unknown field `secret`");
        let error = read("url = \"http://localhost/\"\ndevice = \"b\"").unwrap_err();
        assert!(error.contains("a webhook needs the secret"), "{error}");
    }

    #[test]
    fn a_collector_is_what_stands_before_its_two_paths() {
        let read = |body: &str| {
            let text = format!("[export.otlp]\ndevice = \"b\"\n{body}\n");
            super::super::read(&text, Path::new("x.toml")).map(|read| read.otlp).map_err(|error| error.to_string())
        };
        let want = Otlp {
            reach: Reach { url: "http://localhost:4318/x".into(), tls: None, token: Some(Secret::File("/t".into())) },
            device: "b".into(),
            rate: 5,
            backlog_max: 2_000,
        };
        let text = "endpoint = \"http://localhost:4318/x/\"\ntoken-file = \"/t\"\nrate = 5\nbacklog-max = 2000";
        assert_eq!(read(text).unwrap(), Some(want));
        let check = |body: &str, want: &str| {
            let error = read(body).expect_err(body);
            assert!(error.contains(want), "{body}\n{error}");
        };
        check("endpoint = \"http://localhost/v1/logs\"", "an endpoint is what stands before");
        check("endpoint = \"http://localhost/?a=b\"", "an endpoint is what stands before");
        check("endpoint = \"http://h:4318\"", "x.toml:3:12: export.otlp.endpoint: without TLS");
        check("endpoint = \"http://localhost\"\ntoken-file = \"t\"", "token-file is an absolute path");
        check("endpoint = \"http://localhost\"\nrate = 0", "0 is outside 1 to 100000");
    }
}

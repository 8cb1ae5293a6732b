//! Who is let in over HTTP, as far as headers can say.
//!
//! A page in a browser must not get through here, not even one whose name was bound to loopback a moment ago: `Host` and
//! `Origin` have to be loopback names, and a body has to call itself JSON, which a page cannot send across origins
//! without asking first.

use std::collections::BTreeMap;
use std::fmt;

use hyper::header::{self, HeaderMap};
use sha2::{Digest as _, Sha256};
use tokio_rustls::TlsAcceptor;

/// Who may come in over HTTP, by the tokens that they hold. Without any token everybody on this machine may, and
/// nobody can be told from anybody else.
///
/// Only digests are kept: a token cannot leak from here into a log or a core file.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Tokens(Vec<Holder>);

/// Who holds a token, and which.
#[derive(Clone, PartialEq, Eq)]
pub struct Holder {
    name: String,
    digest: [u8; 32],
}

impl Holder {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Debug for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.name.fmt(f)
    }
}

/// Who may come in over HTTP, and how: what a reload puts in the place of what was.
#[derive(Clone, Default)]
pub struct Access {
    /// Who.
    pub tokens: Tokens,
    /// What the machine is called beside loopback's names.
    pub hosts: Hosts,
    /// Speaks TLS with clients, where others than this machine can reach us.
    pub tls: Option<TlsAcceptor>,
    /// Requests that the holder of each token may send in a second, on average; a tenth of a minute's worth at once.
    pub rates: BTreeMap<String, u32>,
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What speaks TLS has no written form.
        f.debug_struct("Access").field("tokens", &self.tokens).field("tls", &self.tls.is_some()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.0).finish()
    }
}

/// The request carries no token, or none that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotKnown;

impl Tokens {
    /// From pairs of a holder's name and its token.
    #[must_use]
    pub fn new<'a>(tokens: impl IntoIterator<Item = (&'a str, &'a str)>) -> Tokens {
        let holder = |(name, token): (&str, &str)| Holder {
            name: name.to_owned(),
            digest: Sha256::digest(token.as_bytes()).into(),
        };
        Tokens(tokens.into_iter().map(holder).collect())
    }

    /// Whether somebody who came in so would still be let in: without a token only where nobody needs one.
    #[must_use]
    pub fn lets_in(&self, holder: Option<&Holder>) -> bool {
        holder.map_or(self.0.is_empty(), |holder| self.0.contains(holder))
    }

    /// The names whose tokens are not in `later` any more, or are others there.
    #[must_use]
    pub fn gone_in(&self, later: &Tokens) -> Vec<&str> {
        self.0.iter().filter(|holder| !later.0.contains(holder)).map(Holder::name).collect()
    }

    /// The holder of the request's token; none when there are no tokens and everybody is let in.
    ///
    /// # Errors
    /// When a token is needed and the request has none that is known, or several.
    pub fn holder(&self, headers: &HeaderMap) -> Result<Option<&Holder>, NotKnown> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let mut given = headers.get_all(header::AUTHORIZATION).iter();
        let (Some(value), None) = (given.next(), given.next()) else { return Err(NotKnown) };
        let value = value.to_str().map_err(|_| NotKnown)?;
        let (scheme, token) = value.split_once(' ').ok_or(NotKnown)?;
        if !scheme.eq_ignore_ascii_case("bearer") {
            return Err(NotKnown);
        }
        let digest: [u8; 32] = Sha256::digest(token.trim().as_bytes()).into();
        // All are compared, each in full: the time that it takes says nothing of how near a guess was.
        let same = |kept: &[u8; 32]| kept.iter().zip(&digest).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0;
        let found = self.0.iter().fold(None, |found, holder| if same(&holder.digest) { Some(holder) } else { found });
        found.map(Some).ok_or(NotKnown)
    }
}

/// What the machine is called beside loopback's names, without ports. Where it is called nothing else, only programs
/// on it get in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hosts(Vec<String>);

impl Hosts {
    /// These names.
    #[must_use]
    pub fn new(names: impl IntoIterator<Item = String>) -> Hosts {
        Hosts(names.into_iter().map(|name| name.to_ascii_lowercase()).collect())
    }

    /// Whether `host` or `host:port` is a name of this machine.
    #[must_use]
    pub fn has(&self, authority: &str) -> bool {
        let host = match authority.rsplit_once(':') {
            Some((host, port)) if port.parse::<u16>().is_ok() && (!host.contains(':') || host.ends_with(']')) => host,
            Some(_) | None => authority,
        };
        is_loopback(authority) || self.0.iter().any(|name| name.eq_ignore_ascii_case(host))
    }
}

/// Whether the request was made to this machine, by a program and not by a page from elsewhere, as far as headers can
/// say.
///
/// # Errors
/// Which header says otherwise.
pub fn is_local(headers: &HeaderMap, names: &Hosts) -> Result<(), &'static str> {
    let mut hosts = headers.get_all(header::HOST).iter();
    match (hosts.next(), hosts.next()) {
        (Some(host), None) if host.to_str().is_ok_and(|host| names.has(host)) => {}
        _ => return Err("Host is not a name of this machine"),
    }
    let mut origins = headers.get_all(header::ORIGIN).iter();
    let is_local = origins.all(|origin| {
        origin
            .to_str()
            .ok()
            .and_then(|origin| origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://")))
            .is_some_and(|host| names.has(host))
    });
    if is_local { Ok(()) } else { Err("Origin is not a page of this machine") }
}

/// Whether `host` or `host:port` is a loopback name.
fn is_loopback(authority: &str) -> bool {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((host, "")) => (host, None),
            Some((host, rest)) => (host, Some(rest.strip_prefix(':').unwrap_or("not a port"))),
            None => return false,
        },
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    let is_name = host.eq_ignore_ascii_case("localhost") || matches!(host, "127.0.0.1" | "::1");
    is_name && port.is_none_or(|port| port.parse::<u16>().is_ok())
}

/// Whether the body calls itself JSON.
#[must_use]
pub fn is_json(headers: &HeaderMap) -> bool {
    headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split(';').next())
        .is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
}

/// Whether `Accept` allows a media type, by name, by its family, or by `*/*`. Weights are not read: both kinds have to
/// be acceptable.
#[must_use]
pub fn accepts(headers: &HeaderMap, kind: &str) -> bool {
    let family = kind.split('/').next().unwrap_or(kind);
    headers
        .get_all(header::ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|range| {
            let range = range.split(';').next().unwrap_or("").trim();
            range == "*/*"
                || range.eq_ignore_ascii_case(kind)
                || range.strip_suffix("/*").is_some_and(|of| of.eq_ignore_ascii_case(family))
        })
}

#[cfg(test)]
mod tests {
    use hyper::header::{HeaderName, HeaderValue};

    use super::*;

    #[test]
    fn only_loopback_names_are_let_in() {
        for (authority, is_in) in [
            ("localhost", true),
            ("localhost:8080", true),
            ("LOCALHOST:1", true),
            ("127.0.0.1", true),
            ("127.0.0.1:80", true),
            ("[::1]", true),
            ("[::1]:80", true),
            ("", false),
            ("localhost:", false),
            ("localhost:x", false),
            ("localhost.evil.example", false),
            ("evil.example", false),
            ("evil.example:80", false),
            ("127.0.0.1.evil.example", false),
            ("127.0.0.2", false),
            ("::1", false),
            ("[::1", false),
            ("[::1]x", false),
            ("localhost/x", false),
        ] {
            assert_eq!(is_loopback(authority), is_in, "{authority}");
        }
    }

    fn check_origin(headers: &[(&str, &str)], is_in: bool) {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_str(value).unwrap());
        }
        assert_eq!(is_local(&map, &Hosts::default()).is_ok(), is_in, "{headers:?}");
    }

    #[test]
    fn a_page_from_elsewhere_is_not_let_in() {
        let host = ("host", "127.0.0.1:9");
        check_origin(&[host], true);
        check_origin(&[host, ("origin", "http://localhost:3000")], true);
        check_origin(&[host, ("origin", "https://127.0.0.1")], true);
        check_origin(&[host, ("origin", "null")], false);
        check_origin(&[host, ("origin", "http://evil.example")], false);
        check_origin(&[host, ("origin", "file://localhost")], false);
        check_origin(&[host, ("origin", "http://localhost"), ("origin", "http://evil.example")], false);
        check_origin(&[], false);
        check_origin(&[host, host], false);
        check_origin(&[("host", "evil.example")], false);
    }

    #[test]
    fn a_machine_with_other_names_answers_to_them() {
        let hosts = Hosts::new(["Box.plant.example".to_owned(), "192.168.1.2".to_owned(), "[fd00::2]".to_owned()]);
        for (authority, is_in) in [
            ("box.plant.example", true),
            ("box.plant.example:7770", true),
            ("192.168.1.2:7770", true),
            ("[fd00::2]:7770", true),
            ("[fd00::2]", true),
            ("localhost:7770", true),
            ("evil.example", false),
            ("x.box.plant.example", false),
            ("box.plant.example:", false),
            ("fd00::2", false),
        ] {
            assert_eq!(hosts.has(authority), is_in, "{authority}");
        }
    }

    #[test]
    fn a_token_names_its_holder_and_nothing_else_does() {
        let tokens = Tokens::new([("robot", "s3cret"), ("laptop", "other")]);
        assert_eq!(format!("{tokens:?}"), r#"["robot", "laptop"]"#, "no secret is printed");
        for (values, holder) in [
            (vec!["Bearer s3cret"], Ok(Some("robot"))),
            (vec!["bearer other"], Ok(Some("laptop"))),
            (vec!["Bearer wrong"], Err(NotKnown)),
            (vec!["Bearer "], Err(NotKnown)),
            (vec!["Bearer"], Err(NotKnown)),
            (vec!["Basic s3cret"], Err(NotKnown)),
            (vec!["s3cret"], Err(NotKnown)),
            (vec![], Err(NotKnown)),
            (vec!["Bearer s3cret", "Bearer other"], Err(NotKnown)),
        ] {
            let mut headers = HeaderMap::new();
            for value in &values {
                headers.append(header::AUTHORIZATION, HeaderValue::from_str(value).unwrap());
            }
            assert_eq!(tokens.holder(&headers).map(|holder| holder.map(Holder::name)), holder, "{values:?}");
        }
        assert_eq!(Tokens::default().holder(&HeaderMap::new()), Ok(None), "without tokens everybody is let in");
    }

    #[test]
    fn whoever_came_in_with_a_token_that_is_gone_is_not_let_in_any_more() {
        let tokens = |pairs: &[(&'static str, &'static str)]| Tokens::new(pairs.iter().copied());
        let before = tokens(&[("robot", "one"), ("laptop", "two")]);
        let (robot, laptop) = (before.0[0].clone(), before.0[1].clone());
        for (after, gone, robot_is_in, laptop_is_in, anybody_is_in) in [
            (tokens(&[("robot", "one"), ("laptop", "two")]), vec![], true, true, false),
            (tokens(&[("laptop", "two")]), vec!["robot"], false, true, false),
            (tokens(&[("robot", "new"), ("laptop", "two")]), vec!["robot"], false, true, false),
            (tokens(&[("robot", "two"), ("laptop", "one")]), vec!["robot", "laptop"], false, false, false),
            (tokens(&[]), vec!["robot", "laptop"], false, false, true),
        ] {
            assert_eq!(before.gone_in(&after), gone, "{after:?}");
            assert_eq!(after.lets_in(Some(&robot)), robot_is_in, "{after:?}");
            assert_eq!(after.lets_in(Some(&laptop)), laptop_is_in, "{after:?}");
            assert_eq!(after.lets_in(None), anybody_is_in, "{after:?}");
        }
    }

    #[test]
    fn both_kinds_of_answer_have_to_be_acceptable() {
        for (accept, json, events) in [
            ("application/json, text/event-stream", true, true),
            ("text/event-stream;q=0.9,application/json;q=1", true, true),
            ("*/*", true, true),
            ("application/*, text/*", true, true),
            ("application/json", true, false),
            ("text/html", false, false),
            ("", false, false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, HeaderValue::from_str(accept).unwrap());
            assert_eq!(accepts(&headers, "application/json"), json, "{accept}");
            assert_eq!(accepts(&headers, "text/event-stream"), events, "{accept}");
        }
    }
}

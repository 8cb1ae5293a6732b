//! What servers publish about who may come in: the challenge of a refusal, the metadata of a protected resource (RFC
//! 9728) and of an authorization server (RFC 8414, OpenID Connect Discovery).
//!
//! All of it comes from outside, before anybody is known: nothing is believed that does not name the place that it was
//! asked at, and no address is followed that a token should not be sent to.

use interlock_domain::request::shown::plain;
use reqwest::Url;
use reqwest::header::{HeaderMap, WWW_AUTHENTICATE};
use serde_json::Value;

/// Scopes that one document or challenge may name: more is no list for people.
const SCOPES_MAX: usize = 64;

/// Longest scope that is kept.
const SCOPE_LEN_MAX: usize = 200;

/// What a refusal says about how to get in (RFC 6750 section 3, RFC 9728 section 5.1).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Challenge {
    /// Where the metadata of the resource lies.
    pub(super) resource_metadata: Option<String>,
    /// What the token has to cover.
    pub(super) scopes: Option<Vec<String>>,
    /// Why it was refused.
    pub(super) error: Option<String>,
}

impl Challenge {
    /// The token is good, and does not cover this.
    pub(super) fn lacks_scope(&self) -> bool {
        self.error.as_deref() == Some("insufficient_scope")
    }

    /// The first challenge for bearer tokens among the headers of a response; empty where there is none.
    pub(super) fn read(headers: &HeaderMap) -> Challenge {
        let mut all = headers.get_all(WWW_AUTHENTICATE).iter().filter_map(|value| value.to_str().ok());
        all.find_map(bearer).unwrap_or_default()
    }
}

/// The parameters of the scheme `Bearer` in one header, which may hold several schemes (RFC 9110 section 11.6.1).
fn bearer(header: &str) -> Option<Challenge> {
    let mut challenge: Option<Challenge> = None;
    let mut rest = header;
    loop {
        rest = rest.trim_start_matches([' ', '\t', ',']);
        if rest.is_empty() {
            return challenge;
        }
        let word_len = rest.find([' ', '\t', ',', '=']).unwrap_or(rest.len());
        let (word, after) = rest.split_at(word_len);
        let value = after.trim_start_matches([' ', '\t']);
        match value.strip_prefix('=') {
            Some(value) if !word.is_empty() => {
                let (value, left) = value_of(value.trim_start_matches([' ', '\t']));
                rest = left;
                if let Some(challenge) = &mut challenge {
                    match word.to_ascii_lowercase().as_str() {
                        "resource_metadata" => challenge.resource_metadata = Some(value),
                        "scope" => challenge.scopes = Some(scopes_of(&value)),
                        "error" => challenge.error = Some(value),
                        _ => {}
                    }
                }
            }
            // A stray sign: what follows it is not read as a parameter of anything.
            Some(value) => rest = value,
            // Another scheme begins; the one for bearer tokens is whole.
            None if challenge.is_some() => return challenge,
            None => {
                challenge = word.eq_ignore_ascii_case("bearer").then(Challenge::default);
                rest = value;
            }
        }
    }
}

/// A token or a quoted string, and what stands behind it.
fn value_of(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let (value, rest) = text.split_at(text.find([' ', '\t', ',']).unwrap_or(text.len()));
        return (value.to_owned(), rest);
    };
    let mut value = String::new();
    let mut is_escaped = false;
    for (at, c) in quoted.char_indices() {
        match c {
            c if is_escaped => {
                value.push(c);
                is_escaped = false;
            }
            '\\' => is_escaped = true,
            '"' => return (value, &quoted[at + 1..]),
            c => value.push(c),
        }
    }
    (value, "")
}

/// The scopes of a list that is divided by blanks: each once, in their order, within the bounds.
pub(super) fn scopes_of(text: &str) -> Vec<String> {
    together(&[], text.split(' '))
}

/// The scopes that are had and those that are wanted beside them.
pub(super) fn together<'a>(had: &[String], wanted: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let mut all = had.to_vec();
    for scope in wanted {
        // RFC 6749, section 3.3.
        let fits = scope.bytes().all(|byte| matches!(byte, 0x21 | 0x23..=0x5b | 0x5d..=0x7e));
        let is_new = !all.iter().any(|known| known == scope);
        if !scope.is_empty() && scope.len() <= SCOPE_LEN_MAX && fits && is_new && all.len() < SCOPES_MAX {
            all.push(scope.to_owned());
        }
    }
    all
}

/// What a protected resource says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Resource {
    /// What tokens have to be for.
    pub(super) resource: String,
    /// The authorization server that gives them: the first that is named.
    pub(super) issuer: String,
    /// What tokens may cover.
    pub(super) scopes: Option<Vec<String>>,
}

/// Where a resource publishes its metadata, in the order in which it is looked for.
pub(super) fn resource_places(server: &Url) -> Vec<Url> {
    let path = server.path().trim_end_matches('/');
    let mut places = Vec::new();
    for place in [format!("/.well-known/oauth-protected-resource{path}"), WELL_KNOWN_RESOURCE.to_owned()] {
        let place = at(server, &place);
        if !places.contains(&place) {
            places.push(place);
        }
    }
    places
}

const WELL_KNOWN_RESOURCE: &str = "/.well-known/oauth-protected-resource";

/// The same host with another path and no query.
fn at(url: &Url, path: &str) -> Url {
    let mut place = url.clone();
    place.set_path(path);
    place.set_query(None);
    place.set_fragment(None);
    place
}

/// Reads the metadata of a resource. It has to be of the server that it was asked at: another's would send our token
/// to whoever wrote it.
pub(super) fn resource(document: &Value, server: &Url) -> Result<Resource, String> {
    let named = document["resource"].as_str().ok_or("it names no \"resource\"")?;
    let url = Url::parse(named).map_err(|_| format!("its \"resource\" {} is no address", shown(named)))?;
    let (base, path) = (url.path().trim_end_matches('/'), server.path());
    let covers = path == base || path.strip_prefix(base).is_some_and(|rest| rest.starts_with('/'));
    if url.origin() != server.origin() || !covers {
        return Err(format!("its \"resource\" {} is not this server", shown(named)));
    }
    let issuer = document["authorization_servers"][0].as_str().ok_or("it names no authorization server")?;
    Ok(Resource { resource: named.to_owned(), issuer: issuer.to_owned(), scopes: list(&document["scopes_supported"]) })
}

fn list(value: &Value) -> Option<Vec<String>> {
    Some(together(&[], value.as_array()?.iter().filter_map(Value::as_str)))
}

/// How a client says who it is at the token endpoint (RFC 6749 section 2.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    /// Not at all: a public client.
    None,
    /// In a header.
    Basic,
    /// In the form.
    Post,
}

impl Method {
    /// As it is registered.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Method::None => "none",
            Method::Basic => "client_secret_basic",
            Method::Post => "client_secret_post",
        }
    }

    /// Reads a registered word.
    pub(super) fn read(word: &str) -> Option<Method> {
        [Method::None, Method::Basic, Method::Post].into_iter().find(|method| method.as_str() == word)
    }
}

/// What an authorization server says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Issuer {
    /// Its name, byte for byte as it writes it.
    pub(super) issuer: String,
    /// Where a person says yes.
    pub(super) authorize: Url,
    /// Where tokens are given.
    pub(super) token: Url,
    /// Where clients make themselves known.
    pub(super) register: Option<Url>,
    /// Scopes that it knows.
    pub(super) scopes: Vec<String>,
    /// How clients may say who they are.
    pub(super) methods: Vec<Method>,
    /// It always names itself when it answers (RFC 9207).
    pub(super) names_itself: bool,
}

/// Where an authorization server publishes its metadata, in the order in which it is looked for (MCP 2025-11-25,
/// "Authorization Server Metadata Discovery").
pub(super) fn issuer_places(issuer: &Url) -> Vec<Url> {
    let path = issuer.path().trim_end_matches('/');
    if path.is_empty() {
        return ["/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"]
            .map(|place| at(issuer, place))
            .into();
    }
    [
        format!("/.well-known/oauth-authorization-server{path}"),
        format!("/.well-known/openid-configuration{path}"),
        format!("{path}/.well-known/openid-configuration"),
    ]
    .map(|place| at(issuer, &place))
    .into()
}

/// Reads the metadata of the authorization server of that name. A document of another name is refused (RFC 8414
/// section 3.3), and so is a server that does not say that it checks S256 (MCP, "Authorization Code Protection").
pub(super) fn issuer(document: &Value, name: &str, server: &Url) -> Result<Issuer, String> {
    let named = document["issuer"].as_str().ok_or("it names no \"issuer\"")?;
    if named != name {
        return Err(format!("it is of the issuer {}, not of {}", shown(named), shown(name)));
    }
    let endpoint = |member: &str| -> Result<Option<Url>, String> {
        let Some(address) = document[member].as_str() else { return Ok(None) };
        let url = Url::parse(address).map_err(|_| format!("its {member} is no address"))?;
        if is_safe(&url, server) { Ok(Some(url)) } else { Err(format!("its {member} is not reached over https")) }
    };
    let needed = |member: &str| endpoint(member)?.ok_or_else(|| format!("it has no {member}"));
    if !document["code_challenge_methods_supported"].as_array().is_some_and(|all| all.iter().any(|one| one == "S256")) {
        return Err("it does not say that it checks S256 code challenges, so a stolen code could be used".to_owned());
    }
    let methods: Vec<Method> = match document["token_endpoint_auth_methods_supported"].as_array() {
        Some(words) => words.iter().filter_map(Value::as_str).filter_map(Method::read).collect(),
        // RFC 8414, section 2: the default.
        None => vec![Method::Basic],
    };
    Ok(Issuer {
        issuer: named.to_owned(),
        authorize: needed("authorization_endpoint")?,
        token: needed("token_endpoint")?,
        register: endpoint("registration_endpoint")?,
        scopes: list(&document["scopes_supported"]).unwrap_or_default(),
        methods,
        names_itself: document["authorization_response_iss_parameter_supported"] == true,
    })
}

/// The authorization server that the revision 2025-03-26 takes for granted where nothing is published: the server
/// itself, at fixed places.
pub(super) fn assumed(server: &Url) -> Issuer {
    Issuer {
        issuer: server.origin().ascii_serialization(),
        authorize: at(server, "/authorize"),
        token: at(server, "/token"),
        register: Some(at(server, "/register")),
        scopes: Vec::new(),
        methods: vec![Method::None, Method::Basic, Method::Post],
        names_itself: false,
    }
}

/// Whether secrets may go to an address: over TLS, to this machine, or to the very host that is talked to in the clear
/// anyway.
pub(super) fn is_safe(url: &Url, server: &Url) -> bool {
    match url.scheme() {
        "https" => true,
        "http" => is_loopback(url) || (server.scheme() == "http" && url.host_str() == server.host_str()),
        _ => false,
    }
}

/// Whether an address is this machine's own.
pub(super) fn is_loopback(url: &Url) -> bool {
    matches!(url.host_str(), Some("localhost" | "127.0.0.1" | "[::1]"))
}

/// A text of somebody else, for a message.
pub(super) fn shown(text: &str) -> String {
    format!("{:?}", plain(text, 200))
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderValue;
    use serde_json::json;

    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    fn read(values: &[&'static str]) -> Challenge {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(WWW_AUTHENTICATE, HeaderValue::from_static(value));
        }
        Challenge::read(&headers)
    }

    #[test]
    fn a_challenge_is_found_among_others() {
        let full = Challenge {
            resource_metadata: Some("https://a/m".into()),
            scopes: Some(vec!["x".into(), "y".into()]),
            error: Some("insufficient_scope".into()),
        };
        let text = r#"Bearer scope="x y x", resource_metadata="https://a/m", error="insufficient_scope""#;
        assert_eq!(read(&[text]), full);
        assert_eq!(
            read(&[r#"Basic realm="b, Bearer scope=no", bearer error=invalid_token"#]).error.unwrap(),
            "invalid_token"
        );
        assert_eq!(
            read(&["Basic realm=\"a\"", "Bearer error=e, DPoP scope=z"]),
            Challenge { error: Some("e".into()), ..Challenge::default() }
        );
        assert_eq!(read(&[r#"Bearer scope="a\"b", error = "x""#]).error.unwrap(), "x");
        for nothing in ["", "Bearer", "Basic x=y", "=", "Bearer =", "Bearer scope", "Bearer \"open", ", ,"] {
            assert_eq!(read(&[nothing]), Challenge::default(), "{nothing}");
        }
    }

    #[test]
    fn metadata_is_looked_for_at_the_known_places() {
        let places = |all: Vec<Url>| all.iter().map(Url::to_string).collect::<Vec<_>>();
        assert_eq!(
            places(resource_places(&url("https://h:1/a/mcp?x=1"))),
            [
                "https://h:1/.well-known/oauth-protected-resource/a/mcp",
                "https://h:1/.well-known/oauth-protected-resource"
            ]
        );
        assert_eq!(places(resource_places(&url("https://h/"))), ["https://h/.well-known/oauth-protected-resource"]);
        assert_eq!(
            places(issuer_places(&url("https://h"))),
            ["https://h/.well-known/oauth-authorization-server", "https://h/.well-known/openid-configuration"]
        );
        assert_eq!(
            places(issuer_places(&url("https://h/t/1"))),
            [
                "https://h/.well-known/oauth-authorization-server/t/1",
                "https://h/.well-known/openid-configuration/t/1",
                "https://h/t/1/.well-known/openid-configuration"
            ]
        );
    }

    #[test]
    fn a_resource_speaks_for_itself_only() {
        let server = url("https://h/a/mcp");
        let check = |named: &str, is_ours: bool| {
            let document = json!({"resource": named, "authorization_servers": ["https://as"]});
            assert_eq!(resource(&document, &server).is_ok(), is_ours, "{named}");
        };
        check("https://h/a/mcp", true);
        check("https://h/a", true);
        check("https://h", true);
        check("https://h/", true);
        check("https://h/a/mc", false);
        check("https://h/b", false);
        check("https://h:444/a/mcp", false);
        check("http://h/a/mcp", false);
        check("https://evil/a/mcp", false);
        check("nothing", false);
        assert!(resource(&json!({"resource": "https://h"}), &server).is_err(), "no authorization server");
    }

    fn document() -> Value {
        json!({"issuer": "https://as/t", "authorization_endpoint": "https://as/a", "token_endpoint": "https://as/t",
            "code_challenge_methods_supported": ["plain", "S256"]})
    }

    #[test]
    fn an_authorization_server_is_taken_by_its_exact_name_only() {
        let server = url("https://h/mcp");
        let read = |edit: fn(&mut Value), name: &str| {
            let mut document = document();
            edit(&mut document);
            issuer(&document, name, &server)
        };
        assert_eq!(read(|_| {}, "https://as/t").unwrap().methods, [Method::Basic]);
        for (edit, fact) in [
            ((|_| {}) as fn(&mut Value), "not of \"https://as/t/\""),
            (|document| document["issuer"] = json!("https://as/t/"), ""),
        ] {
            let told = read(edit, "https://as/t/");
            assert_eq!(told.is_err(), !fact.is_empty(), "{told:?}");
        }
        for (edit, fact) in [
            ((|document| document["code_challenge_methods_supported"] = json!(["plain"])) as fn(&mut Value), "S256"),
            (|document| drop(document.as_object_mut().unwrap().remove("code_challenge_methods_supported")), "S256"),
            (|document| document["token_endpoint"] = json!("http://as/t"), "over https"),
            (|document| document["authorization_endpoint"] = json!(3), "no authorization_endpoint"),
        ] {
            let error = read(edit, "https://as/t").unwrap_err();
            assert!(error.contains(fact), "{error}");
        }
    }

    #[test]
    fn secrets_go_over_tls_or_stay_where_they_are_in_the_clear() {
        for (to, server, is_so) in [
            ("https://as/x", "https://h/mcp", true),
            ("http://as/x", "https://h/mcp", false),
            ("http://127.0.0.1:1/x", "https://h/mcp", true),
            ("http://h:9/x", "http://h/mcp", true),
            ("http://as/x", "http://h/mcp", false),
            ("file:///x", "http://h/mcp", false),
        ] {
            assert_eq!(is_safe(&url(to), &url(server)), is_so, "{to} {server}");
        }
    }
}

//! `http`: one request to one server, and its answer.
//!
//! What the gate judged is the URL, so nothing here leads anywhere else: redirects are not followed (the answer tells
//! where to; asking there is another call), no proxy of the environment is used, and no connection is kept for reuse,
//! because a request that a library repeats on a fresh connection has been sent twice. Link-local addresses, where
//! clouds keep machine credentials, are refused after the name was resolved, so that no name can point there.
//!
//! A request that may change something and whose answer did not come is `Lost`: it may have arrived.

use std::error::Error;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use interlock_domain::effect::report::{Loss, Report};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, ClientBuilder, Method, Request, Response, Url, redirect};
use serde_json::{Map, Value, json};
use tokio::time::timeout;

use super::{About, bad_input, failed};

/// A server of a plant answers a connection in milliseconds; one across the world in less than this.
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);

/// How long a request may take when it does not say.
const PATIENCE_DEFAULT: Duration = Duration::from_secs(30);

/// More headers than any client needs.
const HEADERS_MAX: usize = 64;

/// Said by the connection itself, not by the caller: a second opinion on them is how requests are smuggled.
const OURS: &[&str] =
    &["host", "content-length", "transfer-encoding", "connection", "te", "trailer", "upgrade", "expect"];

/// Addresses outside of the link-local ranges at which clouds answer about the machine: Alibaba, Azure, Oracle.
const METADATA_V4: &[Ipv4Addr] =
    &[Ipv4Addr::new(100, 100, 100, 200), Ipv4Addr::new(168, 63, 129, 16), Ipv4Addr::new(192, 0, 0, 192)];

/// The same, IPv6: Amazon.
const METADATA_V6: &[Ipv6Addr] = &[Ipv6Addr::new(0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x0254)];

/// Bounds of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The longest that a request may ask for.
    pub patience_max: Duration,
    /// The most that is sent, and the most that is kept of an answer, bytes.
    pub body_max: usize,
    /// Whether link-local addresses may be reached (`[http] link-local`).
    pub link_local: bool,
}

impl Default for Limits {
    /// Below the patience that the gate's schedule has with a request (120 s), so that our own deadline is first.
    fn default() -> Limits {
        Limits { patience_max: Duration::from_secs(110), body_max: 1 << 20, link_local: false }
    }
}

/// `http`.
pub const HTTP: About = About {
    name: "http",
    title: ["HTTP request", "HTTP 请求"],
    description: [
        "Sends one HTTP or HTTPS request and gives status, headers and body. Redirects are not followed: `location` says \
         where to, and asking there is another call. Any status is a result, also 404 and 500.",
        "发送一个 HTTP 或 HTTPS 请求，返回状态码、响应头和正文。不自动跟随重定向：location 是重定向目标，需另行调用。\
         任何状态码（包括 404 和 500）都是结果。",
    ],
    input,
    output,
};

fn input() -> Value {
    json!({
        "type": "object",
        "properties": {
            "url": { "type": "string", "minLength": 1, "maxLength": 8192 },
            "method": { "enum": METHODS, "description": "GET if not given" },
            "headers": { "type": "object", "additionalProperties": { "type": "string" }, "maxProperties": HEADERS_MAX },
            "body": { "type": "string" },
            "body_encoding": { "enum": ["utf-8", "base64"], "description": "how `body` is written here; utf-8 if not given" },
            "timeout_s": { "type": "number", "exclusiveMinimum": 0, "description": "seconds; 30 if not given" }
        },
        "required": ["url"],
        "additionalProperties": false
    })
}

fn output() -> Value {
    json!({
        "type": "object",
        "properties": {
            "status": { "type": "integer", "minimum": 100, "maximum": 999 },
            "headers": { "type": "object", "additionalProperties": { "type": "string" } },
            "location": { "type": ["string", "null"], "description": "where a redirect leads to; it was not followed" },
            "encoding": { "enum": ["utf-8", "base64"] },
            "body": { "type": "string" },
            "bytes": { "type": "integer", "minimum": 0, "description": "bytes that `body` stands for" },
            "cut": {
                "enum": [null, "bound", "connection"],
                "description": "why the body is not whole: longer than is kept, or the connection broke"
            },
            "millis": { "type": "integer", "minimum": 0 }
        },
        "required": ["status", "headers", "location", "encoding", "body", "bytes", "cut", "millis"],
        "additionalProperties": false
    })
}

const METHODS: &[&str] = &["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"];

/// The client: made once, since reading the machine's certificates takes milliseconds.
#[derive(Debug, Clone)]
pub struct Http {
    client: Client,
    limits: Limits,
}

/// This machine gives no ground to stand on for HTTP.
#[derive(Debug, thiserror::Error)]
#[error("the HTTP client cannot be set up")]
pub struct NoClient(#[source] reqwest::Error);

impl Http {
    /// Sets up TLS and the rules above.
    ///
    /// # Errors
    /// When TLS cannot be set up at all. A machine without certificates gets a client that trusts no server.
    pub fn new(limits: Limits) -> Result<Http, NoClient> {
        Ok(Http { client: client(limits)?, limits })
    }

    /// Runs `http`.
    pub async fn run(&self, input: &Value) -> Report {
        match parse(input, self.limits) {
            Ok((request, patience)) => self.send(request, patience).await,
            Err(report) => report,
        }
    }

    /// Runs `http` with a key that the other side tells a second attempt by. A header of that name in the input is the
    /// caller's own key, and stays.
    pub async fn run_keyed(&self, input: &Value, header: &str, key: &str) -> Report {
        let (mut request, patience) = match parse(input, self.limits) {
            Ok(parsed) => parsed,
            Err(report) => return report,
        };
        let (Ok(header), Ok(key)) = (HeaderName::try_from(header), HeaderValue::try_from(key)) else {
            return bad_input(format!("{header:?} is no header to send a key in"));
        };
        request.headers_mut().entry(header).or_insert(key);
        self.send(request, patience).await
    }

    async fn send(&self, request: Request, patience: Duration) -> Report {
        let began = Instant::now();
        let only_reads = request.method().is_safe();
        let host = request.url().host_str().unwrap_or_default().to_owned();
        let until = tokio::time::Instant::now() + patience;
        let response = match tokio::time::timeout_at(until, self.client.execute(request)).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return not_answered(&host, &error, only_reads),
            Err(_) if only_reads => return failed("timed_out", format!("{host} gave no answer in {patience:?}")),
            Err(_) => return Report::Lost(Loss::TimedOut),
        };
        // A gateway that lost the server behind it does not know what became of the request either.
        match response.status().as_u16() {
            502 if !only_reads => return Report::Lost(Loss::ConnectionLost),
            504 if !only_reads => return Report::Lost(Loss::TimedOut),
            // Not implemented, and no such version of HTTP: it was not even tried.
            501 | 505 => {}
            status @ 500..=599 if !only_reads => {
                return Report::Lost(Loss::Partial(format!(
                    "{host} answered with its own error {status}: how far it had come is not known"
                )));
            }
            _ => {}
        }
        let head = Head::of(&response);
        let (body, cut) = body(response, self.limits.body_max, until).await;
        match cut {
            // The status of a request that changes something is worth more than its body; a read wants the body.
            Some(Cut::Connection) if only_reads => failed("connection_lost", format!("{host} broke off its answer")),
            cut => Report::Done(head.output(&body, cut, began.elapsed())),
        }
    }
}

/// A client that follows nothing, repeats nothing and knows no proxy.
///
/// # Errors
/// As [`Http::new`].
pub(super) fn client(limits: Limits) -> Result<Client, NoClient> {
    // Installed once for the process; whoever comes second finds it there.
    let _ = rustls::crypto::ring::default_provider().install_default();
    match builder(limits).build() {
        Ok(client) => Ok(client),
        Err(error) => {
            tracing::warn!(%error, "no certificate authorities on this machine: https reaches nobody");
            builder(limits).tls_certs_only([]).build().map_err(NoClient)
        }
    }
}

fn builder(limits: Limits) -> ClientBuilder {
    Client::builder()
        .user_agent(concat!("interlock/", env!("CARGO_PKG_VERSION")))
        .no_proxy()
        .redirect(redirect::Policy::none())
        .retry(reqwest::retry::never())
        .pool_max_idle_per_host(0)
        .connect_timeout(CONNECT_PATIENCE)
        .dns_resolver(Resolver { link_local: limits.link_local })
}

fn parse(input: &Value, limits: Limits) -> Result<(Request, Duration), Report> {
    let text = |key: &str| input.get(key).and_then(Value::as_str);
    let url = text("url").ok_or_else(|| bad_input("url is no string"))?;
    let url: Url = url.parse().map_err(|error| bad_input(format!("url: {error}")))?;
    check_url(&url, limits)?;
    let method = match input.get("method").map(Value::as_str) {
        None => Method::GET,
        Some(Some(name)) if METHODS.contains(&name) => {
            Method::from_bytes(name.as_bytes()).map_err(|_| bad_input("method is none that is known"))?
        }
        Some(_) => return Err(bad_input(format!("method is none of {}", METHODS.join(", ")))),
    };
    let patience = match input.get("timeout_s") {
        None => PATIENCE_DEFAULT.min(limits.patience_max),
        Some(seconds) => seconds
            .as_f64()
            .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
            .filter(|patience| !patience.is_zero() && *patience <= limits.patience_max)
            .ok_or_else(|| bad_input(format!("timeout_s is above 0 and at most {}", limits.patience_max.as_secs())))?,
    };
    let mut request = Request::new(method, url);
    *request.headers_mut() = headers(input.get("headers"))?;
    if let Some(body) = text("body") {
        let body = match input.get("body_encoding").map(Value::as_str) {
            None | Some(Some("utf-8")) => body.as_bytes().to_vec(),
            Some(Some("base64")) => {
                STANDARD.decode(body).map_err(|error| bad_input(format!("body is not base64: {error}")))?
            }
            Some(_) => return Err(bad_input("body_encoding is neither utf-8 nor base64")),
        };
        if body.len() > limits.body_max {
            return Err(failed("too_large", format!("body has {} bytes; {} can be sent", body.len(), limits.body_max)));
        }
        *request.body_mut() = Some(body.into());
    }
    Ok((request, patience))
}

fn check_url(url: &Url, limits: Limits) -> Result<(), Report> {
    if !matches!(url.scheme(), "http" | "https") {
        return Err(bad_input(format!("{}: only http and https", url.scheme())));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(bad_input("url holds a name or a password; send a header"));
    }
    // A name is checked when it is resolved. (The parser has brought 0xa9fea9fe and its like into the usual form.)
    let literal = url.host_str().and_then(|host| host.trim_matches(['[', ']']).parse::<IpAddr>().ok());
    match literal {
        Some(address) if !limits.link_local && is_link_local(address) => {
            Err(failed(LINK_LOCAL, LinkLocal(address.to_string()).to_string()))
        }
        _ => Ok(()),
    }
}

fn headers(given: Option<&Value>) -> Result<HeaderMap, Report> {
    let Some(given) = given else { return Ok(HeaderMap::new()) };
    let given = given.as_object().ok_or_else(|| bad_input("headers is no object"))?;
    if given.len() > HEADERS_MAX {
        return Err(bad_input(format!("{} headers; {HEADERS_MAX} fit", given.len())));
    }
    let mut headers = HeaderMap::new();
    for (name, value) in given {
        // The value may be a secret: messages name the header only.
        let known: HeaderName = name.parse().map_err(|_| bad_input(format!("header {name:?} is no name")))?;
        if OURS.contains(&known.as_str()) || known.as_str().starts_with("proxy-") {
            return Err(bad_input(format!("header {name} is set by the connection")));
        }
        let value = value.as_str().ok_or_else(|| bad_input(format!("header {name} is no string")))?;
        let value = HeaderValue::from_str(value).map_err(|_| bad_input(format!("header {name} has a line break")))?;
        headers.append(known, value);
    }
    Ok(headers)
}

/// No answer came. Before the request was sent, that is certain; after it, only for one that changes nothing.
fn not_answered(host: &str, error: &reqwest::Error, only_reads: bool) -> Report {
    if let Some(refused) = cause::<LinkLocal>(error) {
        return failed(LINK_LOCAL, refused.to_string());
    }
    let io = cause::<std::io::Error>(error).map(std::io::Error::kind);
    let root = root(error);
    if error.is_builder() {
        return bad_input(root);
    }
    if error.is_connect() {
        let code = match io {
            _ if error.is_dns() => "no_such_host",
            Some(std::io::ErrorKind::ConnectionRefused) => "connection_refused",
            Some(std::io::ErrorKind::NetworkUnreachable | std::io::ErrorKind::HostUnreachable) => "unreachable",
            _ if error.is_timeout() => "connect_timed_out",
            _ => "not_connected",
        };
        return failed(code, format!("{host}: {root}"));
    }
    match only_reads {
        true if error.is_timeout() => failed("timed_out", format!("{host}: {root}")),
        true => failed("connection_lost", format!("{host}: {root}")),
        false if error.is_timeout() => Report::Lost(Loss::TimedOut),
        false => Report::Lost(Loss::ConnectionLost),
    }
}

fn cause<'e, E: Error + 'static>(error: &'e (dyn Error + 'static)) -> Option<&'e E> {
    chain(error).find_map(|error| error.downcast_ref::<E>())
}

/// The innermost words: the outer ones only repeat that a request was made.
pub(super) fn root(error: &(dyn Error + 'static)) -> String {
    chain(error).last().map_or_else(String::new, ToString::to_string)
}

fn chain<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}

struct Head {
    status: u16,
    headers: Map<String, Value>,
    location: Option<String>,
}

impl Head {
    fn of(response: &Response) -> Head {
        let mut headers = Map::new();
        for name in response.headers().keys() {
            let values = response.headers().get_all(name).iter();
            let values: Vec<_> = values.map(|value| String::from_utf8_lossy(value.as_bytes())).collect();
            headers.insert(name.as_str().to_owned(), Value::String(values.join(", ")));
        }
        let location = response.status().is_redirection().then(|| headers.get("location")).flatten();
        let location = location.and_then(Value::as_str).map(str::to_owned);
        Head { status: response.status().as_u16(), headers, location }
    }

    fn output(self, body: &[u8], cut: Option<Cut>, took: Duration) -> Value {
        let (encoding, text) = match std::str::from_utf8(body) {
            Ok(text) => ("utf-8", text.to_owned()),
            Err(_) => ("base64", STANDARD.encode(body)),
        };
        let cut = cut.map(|cut| match cut {
            Cut::Bound => "bound",
            Cut::Connection => "connection",
        });
        json!({
            "status": self.status, "headers": self.headers, "location": self.location, "encoding": encoding,
            "body": text, "bytes": body.len(), "cut": cut,
            "millis": u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cut {
    Bound,
    Connection,
}

async fn body(mut response: Response, max: usize, until: tokio::time::Instant) -> (Vec<u8>, Option<Cut>) {
    let mut body = Vec::new();
    loop {
        match tokio::time::timeout_at(until, response.chunk()).await {
            Ok(Ok(Some(chunk))) if body.len() + chunk.len() > max => {
                let fits = max - body.len();
                body.extend_from_slice(&chunk[..fits]);
                return (body, Some(Cut::Bound));
            }
            Ok(Ok(Some(chunk))) => body.extend_from_slice(&chunk),
            Ok(Ok(None)) => return (body, None),
            Ok(Err(_)) | Err(_) => return (body, Some(Cut::Connection)),
        }
    }
}

const LINK_LOCAL: &str = "link_local_refused";

/// An address, or a name that leads to one, that is not reached without a setting.
#[derive(Debug)]
struct LinkLocal(String);

impl fmt::Display for LinkLocal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is a link-local or metadata address; `[http] link-local = true` opens them", self.0)
    }
}

impl Error for LinkLocal {}

fn is_link_local(address: IpAddr) -> bool {
    let v4 = |address: Ipv4Addr| address.is_link_local() || METADATA_V4.contains(&address);
    match address {
        IpAddr::V4(address) => v4(address),
        IpAddr::V6(address) => {
            let [a, b, .., y, z] = address.segments();
            let embedded = Ipv4Addr::from((u32::from(y) << 16) | u32::from(z));
            // Written as IPv4 inside IPv6: mapped, compatible, and through a NAT64.
            let has_v4 = address.segments()[..5] == [0; 5] || (a, b) == (0x0064, 0xff9b);
            address.is_unicast_link_local() || METADATA_V6.contains(&address) || (has_v4 && v4(embedded))
        }
    }
}

/// Resolves names as the system does and leaves out what may not be reached.
struct Resolver {
    link_local: bool,
}

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let link_local = self.link_local;
        Box::pin(async move {
            let host = name.as_str().to_owned();
            let found = timeout(CONNECT_PATIENCE, tokio::net::lookup_host((host.as_str(), 0))).await;
            let all: Vec<SocketAddr> =
                found.map_err(|_| std::io::Error::from(std::io::ErrorKind::TimedOut))??.collect();
            let open: Vec<SocketAddr> =
                all.iter().copied().filter(|address| link_local || !is_link_local(address.ip())).collect();
            if open.is_empty() && !all.is_empty() {
                return Err(Box::new(LinkLocal(host)) as Box<dyn Error + Send + Sync>);
            }
            Ok(Box::new(open.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(input: Value) -> &'static str {
        match parse(&input, Limits { body_max: 4, ..Limits::default() }) {
            Ok(_) => "taken",
            Err(Report::Failed(failure)) => failure.code,
            Err(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_wrong_input_sends_nothing() {
        let check = |input: Value, expected: &str| assert_eq!(refused(input.clone()), expected, "{input}");
        check(json!({ "url": "http://plant.example/a?b=c" }), "taken");
        check(json!({ "url": "https://10.0.0.1:8443/", "method": "DELETE", "headers": { "X-A": "b" } }), "taken");
        check(json!({ "url": "http://a/", "method": "POST", "body": "YQ==", "body_encoding": "base64" }), "taken");
        check(json!({ "url": "http://a/", "method": "POST", "body": "12345" }), "too_large");
        check(json!({}), "bad_input");
        check(json!({ "url": "plant.example" }), "bad_input");
        check(json!({ "url": "ftp://plant.example/" }), "bad_input");
        check(json!({ "url": "file:///etc/passwd" }), "bad_input");
        check(json!({ "url": "http://me:secret@plant.example/" }), "bad_input");
        check(json!({ "url": "http://a/", "method": "CONNECT" }), "bad_input");
        check(json!({ "url": "http://a/", "method": "get" }), "bad_input");
        check(json!({ "url": "http://a/", "headers": { "Host": "b" } }), "bad_input");
        check(json!({ "url": "http://a/", "headers": { "Proxy-Authorization": "b" } }), "bad_input");
        check(json!({ "url": "http://a/", "headers": { "A": "b\r\nC: d" } }), "bad_input");
        check(json!({ "url": "http://a/", "headers": { "A b": "c" } }), "bad_input");
        check(json!({ "url": "http://a/", "body": "?", "body_encoding": "base64" }), "bad_input");
        check(json!({ "url": "http://a/", "timeout_s": 0 }), "bad_input");
        check(json!({ "url": "http://a/", "timeout_s": 1e9 }), "bad_input");
    }

    #[test]
    fn no_way_of_writing_a_metadata_address_gets_through() {
        let check = |host: &str, expected: &str| {
            assert_eq!(refused(json!({ "url": format!("http://{host}/latest/") })), expected, "{host}");
        };
        check("169.254.169.254", LINK_LOCAL);
        check("0xa9fea9fe", LINK_LOCAL);
        check("2852039166", LINK_LOCAL);
        check("0251.0376.0251.0376", LINK_LOCAL);
        check("[::ffff:169.254.169.254]", LINK_LOCAL);
        check("[::169.254.169.254]", LINK_LOCAL);
        check("[64:ff9b::a9fe:a9fe]", LINK_LOCAL);
        check("[fe80::1]", LINK_LOCAL);
        check("[fd00:ec2::254]", LINK_LOCAL);
        check("100.100.100.200", LINK_LOCAL);
        check("169.253.169.254", "taken");
        check("[fd00::1]", "taken");
        check("127.0.0.1", "taken");
    }
    #[tokio::test]
    async fn a_name_that_leads_to_a_link_local_address_is_refused() {
        let leads = async |name: &str, link_local: bool| {
            let found = Resolver { link_local }.resolve(name.parse().unwrap()).await;
            found.map(|addresses| addresses.count()).map_err(|error| error.downcast_ref::<LinkLocal>().is_some())
        };
        assert_eq!(leads("169.254.169.254", false).await, Err(true));
        assert_eq!(leads("169.254.169.254", true).await, Ok(1));
        assert_eq!(leads("127.0.0.1", false).await, Ok(1));
    }
}

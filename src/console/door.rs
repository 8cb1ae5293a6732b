//! Who is let in, and the way of a request to its page.

use std::net::IpAddr;
use std::sync::Arc;

use axum::body::Body;
use hyper::body::Incoming;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode};

use super::form::{Form, encoded};
use super::html::Html;
use super::page::{self, Lang};
use super::{Console, act, live, pages};
use crate::engine::people::{Person, Role};
use crate::sys::clock;

/// The cookie of the language.
const LANG: &str = "interlock_lang";

/// A page that fetches itself again says so: that is no sign of a person.
const AGAIN: &str = "x-interlock-again";

/// What a page may load and do: what comes from here, nothing inline, and nobody may put it into a frame.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

const STYLE: &str = include_str!("console.css");
const SCRIPT: &str = include_str!("live.js");

/// A request that came through the door, before anybody is asked who they are.
pub(super) struct Asked {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) query: Form,
    pub(super) lang: Lang,
    pub(super) from: IpAddr,
    /// The browser asks by itself, because something changed.
    pub(super) by_itself: bool,
    /// Path and query: where to come back to.
    pub(super) place: String,
}

impl Console {
    pub(super) async fn respond(self: Arc<Console>, request: Request<Incoming>, from: IpAddr) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let mut response = match self.refused(&parts) {
            Some(refused) => refused,
            None => self.let_in(parts, body, from).await,
        };
        let headers = response.headers_mut();
        for (name, value) in [
            (header::CONTENT_SECURITY_POLICY, POLICY),
            (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (header::REFERRER_POLICY, "same-origin"),
            (header::X_FRAME_OPTIONS, "DENY"),
            (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
        response
    }

    /// A page that is reached under a foreign name, or sent from one, is none of ours.
    fn refused(&self, parts: &Parts) -> Option<Response<Body>> {
        let host = match one(&parts.headers, &header::HOST) {
            Ok(Some(host)) if self.is_named(host) => host,
            _ => return Some(plain(StatusCode::MISDIRECTED_REQUEST, "Host is not a name of this console")),
        };
        let scheme = if self.access().tls.is_some() { "https" } else { "http" };
        let ours = format!("{scheme}://{host}");
        let is_foreign = match one(&parts.headers, &header::ORIGIN) {
            Ok(None) => false,
            Ok(Some(origin)) => !origin.eq_ignore_ascii_case(&ours),
            Err(()) => true,
        };
        let site = parts.headers.get("sec-fetch-site").and_then(|site| site.to_str().ok());
        let acts = parts.method != Method::GET && parts.method != Method::HEAD;
        if is_foreign || (acts && matches!(site, Some("cross-site" | "same-site"))) {
            return Some(plain(StatusCode::FORBIDDEN, "Origin is not a page of this console"));
        }
        None
    }

    /// A name of this machine; one of loopback with our own port, so that no other program's page passes as ours.
    fn is_named(&self, host: &str) -> bool {
        let port = host.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
        let usual = if self.access().tls.is_some() { 443 } else { 80 };
        self.access().hosts.has(host)
            && (!self.address.ip().is_loopback() || port.unwrap_or(usual) == self.address.port())
    }

    async fn let_in(self: &Arc<Console>, parts: Parts, body: Incoming, from: IpAddr) -> Response<Body> {
        let Some(query) = Form::read(parts.uri.query().unwrap_or_default().as_bytes()) else {
            return plain(StatusCode::BAD_REQUEST, "the query is not a form");
        };
        let cookies = Cookies(&parts.headers);
        let lang = cookies.get(LANG).and_then(Lang::of_word).unwrap_or_else(|| Lang::accepted(&parts.headers));
        let place = parts.uri.path_and_query().map_or("/", |place| place.as_str()).to_owned();
        let path = parts.uri.path().to_owned();
        let by_itself = path == "/events" || parts.headers.contains_key(AGAIN);
        let asked = Asked { method: parts.method.clone(), path, query, lang, from, by_itself, place };
        match (&asked.method, asked.path.as_str()) {
            (&Method::GET, "/console.css") => return asset("text/css; charset=utf-8", STYLE),
            (&Method::GET, "/live.js") => return asset("text/javascript; charset=utf-8", SCRIPT),
            (&Method::GET, "/lang") => return language(&asked),
            (&Method::GET, "/login") => return login_page(&asked, StatusCode::OK, None),
            (&Method::POST, "/login") => return self.login(&asked, &parts.headers, body).await,
            _ => {}
        }
        let visit = cookies
            .get(&self.cookie())
            .and_then(|cookie| self.sessions.find(cookie, &self.context.people, clock::now(), !asked.by_itself));
        let Some(visit) = visit else {
            let wants_page = parts.headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
            return match wants_page {
                Some(kinds) if asked.method == Method::GET && kinds.contains("text/html") => {
                    redirect(&format!("/login?back={}", encoded(&asked.place)))
                }
                _ => unauthorized(),
            };
        };
        match asked.method {
            Method::GET if asked.path == "/events" => live::events(self, &visit),
            Method::GET => pages::show(self, &asked, &visit).await,
            Method::POST => act::act(self, &asked, &visit, &parts.headers, body).await,
            _ => {
                let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "GET or POST");
                response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, POST"));
                response
            }
        }
    }

    async fn login(self: &Arc<Console>, asked: &Asked, headers: &HeaderMap, body: Incoming) -> Response<Body> {
        let form = match act::read(headers, body).await {
            Ok(form) => form,
            Err(refused) => return refused,
        };
        let Some(person) = form.get("token").and_then(|token| self.known(token.trim(), asked.from)) else {
            if self.tries.may(asked.from, clock::now()) {
                let why = asked.lang.pick("This token is not known here.", "令牌无效。");
                return login_page(asked, StatusCode::UNAUTHORIZED, Some(why));
            }
            let why = asked.lang.pick("Too many wrong tokens. Wait a minute.", "错误次数过多，请一分钟后再试。");
            let mut response = login_page(asked, StatusCode::TOO_MANY_REQUESTS, Some(why));
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("60"));
            return response;
        };
        tracing::info!(person = %person.name, role = person.role.word(), "console: somebody logged in");
        let Some(cookie) = self.sessions.begin(person, clock::now()) else {
            return plain(StatusCode::SERVICE_UNAVAILABLE, "the system has no randomness for a session");
        };
        let secure = if self.access().tls.is_some() { "; Secure" } else { "" };
        let mut response = redirect(back(&form));
        let name = self.cookie();
        set_cookie(&mut response, &format!("{name}={cookie}; Path=/; HttpOnly; SameSite=Strict{secure}"));
        response
    }

    /// The name of the session's cookie. Browsers keep cookies by host and not by port, so that another console of the
    /// same machine would put ours out.
    fn cookie(&self) -> String {
        format!("interlock_session_{}", self.address.port())
    }

    /// The holder of a token, unless too many wrong ones came from there.
    fn known(&self, token: &str, from: IpAddr) -> Option<Person> {
        let now = clock::now();
        if !self.tries.may(from, now) {
            return None;
        }
        let person = self.context.people.holder(token);
        if person.is_none() {
            self.tries.failed(from, now);
            tracing::warn!(%from, "console: a token that is not known");
        }
        person
    }
}

/// The one value of a header; none, where it is not there; an error, where there are several or no text.
fn one<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, ()> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => value.to_str().map(Some).map_err(|_| ()),
        (Some(_), Some(_)) => Err(()),
    }
}

struct Cookies<'a>(&'a HeaderMap);

impl<'a> Cookies<'a> {
    fn get(&self, name: &str) -> Option<&'a str> {
        let lines = self.0.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
        let pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
        let mut values = pairs.filter(|(known, _)| *known == name).map(|(_, value)| value);
        // Of two, one was put there by somebody else.
        let first = values.next();
        first.filter(|_| values.next().is_none())
    }
}

/// A place of this console, and no other one: `//elsewhere` is a host to a browser, and so is `/\elsewhere`.
fn is_here(place: &str) -> bool {
    place.starts_with('/')
        && !place.starts_with("//")
        && !place.contains('\\')
        && place.bytes().all(|byte| byte.is_ascii_graphic())
}

fn language(asked: &Asked) -> Response<Body> {
    let lang = asked.query.get("to").and_then(Lang::of_word).unwrap_or(asked.lang);
    let mut response = redirect(back(&asked.query));
    set_cookie(&mut response, &format!("{LANG}={}; Path=/; SameSite=Strict; Max-Age=31536000", lang.word()));
    response
}

fn login_page(asked: &Asked, status: StatusCode, why: Option<&str>) -> Response<Body> {
    let lang = asked.lang;
    let mut main = Html::new();
    main.element("h1", &[], lang.pick("Log in", "登录"));
    if let Some(why) = why {
        main.element("p", &[("class", "note bad"), ("role", "alert")], why);
    }
    main.open("form", &[("method", "post"), ("action", "/login"), ("class", "card login")]);
    main.element("label", &[("for", "token")], lang.pick("Your token", "您的令牌"));
    main.raw(r#"<input id="token" name="token" type="password" autocomplete="current-password" required autofocus>"#);
    page::hidden(&mut main, "back", back(&asked.query));
    main.element("button", &[("class", "primary")], lang.pick("Log in", "登录"));
    main.close("form");
    let how = lang.pick(
        "A token is made on the box itself: interlock console token add NAME --role read|operate|approve",
        "令牌在设备上生成：interlock console token add 姓名 --role read|operate|approve",
    );
    main.element("p", &[("class", "quiet")], how);
    page::whole(asked, None, status, lang.pick("Log in", "登录"), "", &main)
}

fn set_cookie(response: &mut Response<Body>, cookie: &str) {
    if let Ok(value) = HeaderValue::from_str(cookie) {
        response.headers_mut().append(header::SET_COOKIE, value);
    }
}

fn asset(kind: &'static str, text: &'static str) -> Response<Body> {
    let mut response = Response::new(Body::from(text));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

fn unauthorized() -> Response<Body> {
    let mut response = plain(StatusCode::UNAUTHORIZED, "log in at /login");
    response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    response
}

/// Elsewhere, by GET.
pub(super) fn redirect(to: &str) -> Response<Body> {
    let mut response = plain(StatusCode::SEE_OTHER, "");
    let to = HeaderValue::from_str(to).unwrap_or(HeaderValue::from_static("/"));
    response.headers_mut().insert(header::LOCATION, to);
    response
}

/// A few words.
pub(super) fn plain(status: StatusCode, text: &'static str) -> Response<Body> {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

/// Where a person goes on from here, as a form or a query says; the overview, where it says a place that is none of ours.
pub(super) fn back(form: &Form) -> &str {
    form.get("back").filter(|back| is_here(back)).unwrap_or("/")
}

/// What a role is called.
pub(super) fn role(lang: Lang, role: Role) -> &'static str {
    match role {
        Role::Read => lang.pick("may look", "可查看"),
        Role::Operate => lang.pick("may operate", "可操作"),
        Role::Approve => lang.pick("may approve", "可批准"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_back_leads_nowhere_else() {
        for (place, is_ours) in [
            ("/", true),
            ("/tasks?state=zombie", true),
            ("//evil.example", false),
            ("/\\evil.example", false),
            ("https://evil.example", false),
            ("", false),
            ("/a b", false),
            ("/a\r\nSet-Cookie: x", false),
        ] {
            assert_eq!(is_here(place), is_ours, "{place:?}");
        }
    }
}

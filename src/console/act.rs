//! What a person does here: a form, with the word of the session in it, becomes a verb of the control socket.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use hyper::body::Incoming;
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::{Response, StatusCode};
use serde_json::{Map, Value};
use tokio::time::timeout;

use super::Console;
use super::door::{Asked, back, plain, redirect};
use super::form::Form;
use super::page;
use super::pages;
use super::visit::{Note, Visit};
use crate::agents::front::body::{self, NotRead};
use crate::control::wire::{Kind, Trouble};
use crate::control::{Told, tell};
use crate::engine::people::{Role, same};

/// Longest form that is read: a note of a person is the longest thing in one.
const FORM_LEN_MAX: usize = 64 << 10;

/// How long a form may take to arrive.
const FORM_WAIT: Duration = Duration::from_secs(10);

/// How long a browser waits for what it asked for; what takes longer goes on without it.
const DONE_WAIT: Duration = Duration::from_secs(5);

/// What can be done: the path, the verb, who may, and which fields are handed on.
const DEEDS: &[(&str, &str, Role, &[&str])] = &[
    ("/ask/allow", "ask.allow", Role::Approve, &["question"]),
    ("/ask/deny", "ask.deny", Role::Operate, &["question"]),
    ("/ask/settle", "ask.settle", Role::Approve, &["question", "finding", "note"]),
    ("/task/stop", "task.stop", Role::Operate, &["task"]),
    ("/task/pause", "task.pause", Role::Operate, &["task"]),
    ("/task/resume", "task.resume", Role::Operate, &["task"]),
    ("/task/restart", "task.restart", Role::Operate, &["task"]),
    ("/task/clean", "task.clean", Role::Operate, &["task"]),
    ("/learn/approve", "learn.approve", Role::Approve, &["proposal"]),
    ("/learn/reject", "learn.reject", Role::Approve, &["proposal", "note"]),
    ("/learn/rollback", "learn.rollback", Role::Approve, &["version"]),
];

/// Has the evidence held against its hashes; no verb of the socket.
pub(super) const VERIFY: &str = "/evidence/verify";

/// The role that a path needs; none where nothing is done.
pub(super) fn needed(path: &str) -> Option<Role> {
    if path == VERIFY {
        return Some(Role::Operate);
    }
    DEEDS.iter().find(|(known, ..)| *known == path).map(|(_, _, role, _)| *role)
}

/// Reads a form within its bounds.
pub(super) async fn read(headers: &HeaderMap, body: Incoming) -> Result<Form, Response<Body>> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if !kind.starts_with("application/x-www-form-urlencoded") {
        return Err(plain(StatusCode::UNSUPPORTED_MEDIA_TYPE, "a form is application/x-www-form-urlencoded"));
    }
    let bytes = body::read(body, FORM_LEN_MAX, FORM_WAIT).await.map_err(|why| match why {
        NotRead::TooLong => closing(plain(StatusCode::PAYLOAD_TOO_LARGE, "a form has 64 KiB at most")),
        NotRead::TooSlow => closing(plain(StatusCode::REQUEST_TIMEOUT, "the form was not there in time")),
        NotRead::Broken => plain(StatusCode::BAD_REQUEST, "the form broke off"),
    })?;
    Form::read(&bytes).ok_or_else(|| plain(StatusCode::BAD_REQUEST, "this is not a form"))
}

fn closing(mut response: Response<Body>) -> Response<Body> {
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

/// Carries out what a form asks for.
pub(super) async fn act(
    console: &Arc<Console>,
    asked: &Asked,
    visit: &Visit,
    headers: &HeaderMap,
    body: Incoming,
) -> Response<Body> {
    let form = match read(headers, body).await {
        Ok(form) => form,
        Err(refused) => return refused,
    };
    if !form.get("csrf").is_some_and(|word| same(word.as_bytes(), visit.csrf.as_bytes())) {
        return plain(StatusCode::FORBIDDEN, "the form is not one of this session; load the page again");
    }
    if asked.path == "/logout" {
        console.sessions.end(visit);
        return redirect("/login");
    }
    match needed(&asked.path) {
        None => return pages::not_found(asked, visit),
        Some(role) if visit.person.role < role => return too_small(asked, visit, role),
        Some(_) => {}
    }
    if asked.path == VERIFY {
        pages::evidence::verify(console);
        return redirect(back(&form));
    }
    let Some((_, verb, _, fields)) = DEEDS.iter().find(|(path, ..)| *path == asked.path) else {
        return pages::not_found(asked, visit);
    };
    let mut args = Map::new();
    for field in *fields {
        let value = form.get(field).unwrap_or_default();
        let value = match *field {
            // Without a version the verb goes back by one: a form says which.
            "version" => match pages::number(value) {
                Ok(version) => version.into(),
                Err(trouble) => return troubled(asked, visit, &trouble),
            },
            _ => value.into(),
        };
        args.insert((*field).to_owned(), value);
    }
    args.insert("lang".to_owned(), asked.lang.word().into());
    // On its own: what a person said is carried out, also when the browser goes away.
    let (context, user, verb) = (Arc::clone(&console.context), visit.user(), *verb);
    let done = tokio::spawn(async move { Box::pin(tell(&context, &user, verb, &Value::Object(args))).await });
    let note = match timeout(DONE_WAIT, done).await {
        Ok(Ok(Ok(told))) => note(verb, &told),
        Ok(Ok(Err(trouble))) => return troubled(asked, visit, &trouble),
        Ok(Err(_)) => return troubled(asked, visit, &Trouble::new(Kind::Bug, "the answer was lost")),
        Err(_) => {
            let text = asked.lang.pick("It is under way, and goes on.", "正在执行，将继续进行。");
            Note { is_good: true, text: text.to_owned() }
        }
    };
    console.live.stir();
    console.sessions.note(visit, note);
    redirect(back(&form))
}

/// What came of it. What was allowed and was not done, or not to the end, is no good news.
fn note(verb: &str, told: &Told) -> Note {
    let Told::One(value) = told else { return Note { is_good: true, text: String::new() } };
    let what = ["question", "task"].into_iter().find_map(|key| value.get(key).and_then(Value::as_str));
    let said = value.get("message").and_then(Value::as_str).unwrap_or_default();
    let text = match what {
        Some(what) if !said.contains(what) => format!("{what}: {said}"),
        Some(_) | None => said.to_owned(),
    };
    let ran = value.get("result").and_then(Value::as_str);
    Note { is_good: verb == "ask.deny" || ran.is_none_or(|ran| ran == "done"), text }
}

fn too_small(asked: &Asked, visit: &Visit, role: Role) -> Response<Body> {
    let (name, role_word) = (&visit.person.name, role.word());
    let hint = format!("interlock console token revoke {name}, then add {name} --role {role_word}");
    troubled(
        asked,
        visit,
        &Trouble::new(
            Kind::Permission,
            match asked.lang {
                page::Lang::En => format!("this needs the role {:?}", role.word()),
                page::Lang::Zh => format!("此操作需要角色 {}", role.word()),
            },
        )
        .hint(hint),
    )
}

/// Why it was not carried out, as a page.
pub(super) fn troubled(asked: &Asked, visit: &Visit, trouble: &Trouble) -> Response<Body> {
    let status = match trouble.kind {
        Kind::Protocol | Kind::Usage => StatusCode::BAD_REQUEST,
        Kind::NotFound => StatusCode::NOT_FOUND,
        Kind::NotSo | Kind::Config => StatusCode::CONFLICT,
        Kind::Permission => StatusCode::FORBIDDEN,
        Kind::Busy => StatusCode::SERVICE_UNAVAILABLE,
        Kind::Bug => StatusCode::INTERNAL_SERVER_ERROR,
    };
    page::trouble(asked, visit, status, &trouble.message, trouble.hint.as_deref())
}

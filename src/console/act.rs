//! What a person does here: a form, with the word of the session in it, becomes a verb of the control socket.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use hyper::body::{Body as _, Incoming};
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
use crate::control::wire::{Kind, Trouble};
use crate::control::{Told, tell};
use crate::engine::people::Role;

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

/// Reads a form within its bounds.
pub(super) async fn read(headers: &HeaderMap, mut body: Incoming) -> Result<Form, Response<Body>> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if !kind.starts_with("application/x-www-form-urlencoded") {
        return Err(plain(StatusCode::UNSUPPORTED_MEDIA_TYPE, "a form is application/x-www-form-urlencoded"));
    }
    let too_long = |length: u64| usize::try_from(length).map_or(true, |length| length > FORM_LEN_MAX);
    if too_long(body.size_hint().lower()) {
        return Err(too_large());
    }
    let all = async {
        let mut bytes = Vec::new();
        while let Some(frame) = std::future::poll_fn(|cx| std::pin::Pin::new(&mut body).poll_frame(cx)).await {
            let frame = frame.map_err(|_| plain(StatusCode::BAD_REQUEST, "the form broke off"))?;
            if let Ok(data) = frame.into_data() {
                if bytes.len() + data.len() > FORM_LEN_MAX {
                    return Err(too_large());
                }
                bytes.extend_from_slice(&data);
            }
        }
        Ok(bytes)
    };
    let bytes = match timeout(FORM_WAIT, all).await {
        Ok(read) => read?,
        Err(_) => return Err(closing(plain(StatusCode::REQUEST_TIMEOUT, "the form was not there in time"))),
    };
    Form::read(&bytes).ok_or_else(|| plain(StatusCode::BAD_REQUEST, "this is not a form"))
}

fn too_large() -> Response<Body> {
    closing(plain(StatusCode::PAYLOAD_TOO_LARGE, "a form has 64 KiB at most"))
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
    if !form.get("csrf").is_some_and(|word| same(word, &visit.csrf)) {
        return plain(StatusCode::FORBIDDEN, "the form is not one of this session; load the page again");
    }
    match asked.path.as_str() {
        "/logout" => {
            console.sessions.end(visit);
            return redirect("/login");
        }
        "/evidence/verify" => {
            if visit.person.role < Role::Operate {
                return too_small(asked, visit, Role::Operate);
            }
            pages::evidence::verify(console);
            return redirect("/evidence");
        }
        _ => {}
    }
    let Some((_, verb, role, fields)) = DEEDS.iter().find(|(path, ..)| *path == asked.path) else {
        return pages::not_found(asked, visit);
    };
    if visit.person.role < *role {
        return too_small(asked, visit, *role);
    }
    let mut args = Map::new();
    for field in *fields {
        if let Some(value) = form.get(field) {
            let number = if *field == "version" { value.parse::<u64>().ok() } else { None };
            args.insert((*field).to_owned(), number.map_or_else(|| value.into(), Value::from));
        }
    }
    args.insert("lang".to_owned(), asked.lang.word().into());
    // On its own: what a person said is carried out, also when the browser goes away.
    let (context, user, verb) = (Arc::clone(&console.context), visit.user(), *verb);
    let done = tokio::spawn(async move { Box::pin(tell(&context, &user, verb, &Value::Object(args))).await });
    let note = match timeout(DONE_WAIT, done).await {
        Ok(Ok(Ok(told))) => message(told),
        Ok(Ok(Err(trouble))) => return troubled(asked, visit, &trouble),
        Ok(Err(_)) => return troubled(asked, visit, &Trouble::new(Kind::Bug, "the answer was lost")),
        Err(_) => asked.lang.pick("It is under way, and goes on.", "正在执行，将继续进行。").to_owned(),
    };
    console.live.stir();
    console.sessions.note(visit, Note { is_good: true, text: note });
    redirect(back(&form))
}

fn message(told: Told) -> String {
    match told {
        Told::One(value) => {
            let what = ["question", "task"].into_iter().find_map(|key| value.get(key).and_then(Value::as_str));
            let said = value.get("message").and_then(Value::as_str).unwrap_or_default();
            match what {
                Some(what) if !said.contains(what) => format!("{what}: {said}"),
                Some(_) | None => said.to_owned(),
            }
        }
        Told::Many(_) => String::new(),
    }
}

fn too_small(asked: &Asked, visit: &Visit, role: Role) -> Response<Body> {
    let hint = format!("interlock console token add {} --role {}", visit.person.name, role.word());
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

fn same(given: &str, known: &str) -> bool {
    given.len() == known.len() && given.bytes().zip(known.bytes()).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

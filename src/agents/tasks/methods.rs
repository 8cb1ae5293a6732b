//! `tasks/*`, in both eras.

use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use serde_json::{Map, Value, json};
use tokio::sync::oneshot;

use crate::agents::ask;
use crate::agents::core::Core;
use crate::agents::ctx::{Ctx, Fault, Out};
use crate::agents::engine::EngineRequest;
use crate::agents::session::Session;
use crate::agents::tasks::record::{META_RELATED, Record};
use crate::mcp::era::{self, Era};
use crate::mcp::rpc::{self, Request, RpcError};
use crate::mcp::shape;
use crate::mcp::upward::Ask;

/// Tasks on one page of a list.
const PAGE_LEN: usize = 50;

/// What stands before the number in a cursor.
const CURSOR_PREFIX: &str = "task:";

/// Carries out one of the methods; none when its era has no such method.
///
/// # Errors
/// `INVALID_PARAMS` for a task that is not there or not this client's, and what the method says of its own.
pub async fn call(core: &Core, request: &Request, ctx: &mut Ctx) -> Option<Result<Value, Fault>> {
    Some(match (ctx.era, request.method.as_str()) {
        (Era::Legacy, "tasks/get") => {
            find(core, &request.params, ctx).map(|record| record.legacy()).map_err(Fault::Rpc)
        }
        (Era::Legacy, "tasks/list") => list(core, &request.params, ctx).map_err(Fault::Rpc),
        (Era::Legacy, "tasks/cancel") => cancel_legacy(core, &request.params, ctx).await.map_err(Fault::Rpc),
        (Era::Legacy, "tasks/result") => result(core, &request.params, ctx).await,
        (Era::Modern, "tasks/get") => {
            declared(core, &request.params, ctx).map(|record| record.modern_in_detail()).map_err(Fault::Rpc)
        }
        (Era::Modern, "tasks/update") => update(core, &request.params, ctx).map_err(Fault::Rpc),
        (Era::Modern, "tasks/cancel") => cancel_modern(core, &request.params, ctx).await.map_err(Fault::Rpc),
        (Era::Legacy | Era::Modern, _) => return None,
    })
}

/// Whether a client of the modern era declared that it knows tasks.
#[must_use]
pub fn knows_tasks(capabilities: &Value) -> bool {
    capabilities["extensions"][era::TASKS].is_object()
}

/// What is said to one that did not.
#[must_use]
pub fn undeclared() -> RpcError {
    let message = format!("the client did not declare the extension {}", era::TASKS);
    RpcError::new(rpc::MISSING_CLIENT_CAPABILITY, message)
        .with(json!({"requiredCapabilities": {"extensions": {era::TASKS: {}}}}))
}

fn declared(core: &Core, params: &Map<String, Value>, ctx: &Ctx) -> Result<Arc<Record>, RpcError> {
    if knows_tasks(&ctx.capabilities) { find(core, params, ctx) } else { Err(undeclared()) }
}

fn find(core: &Core, params: &Map<String, Value>, ctx: &Ctx) -> Result<Arc<Record>, RpcError> {
    let Some(Value::String(id)) = params.get("taskId") else {
        return Err(RpcError::new(rpc::INVALID_PARAMS, "\"taskId\" is a string"));
    };
    core.tasks
        .find(id, &ctx.owner)
        .ok_or_else(|| RpcError::new(rpc::INVALID_PARAMS, "no such task, or its time to live is over"))
}

fn list(core: &Core, params: &Map<String, Value>, ctx: &Ctx) -> Result<Value, RpcError> {
    let bad = || RpcError::new(rpc::INVALID_PARAMS, "\"cursor\" is not one that this server gave out");
    let after = match params.get("cursor") {
        None | Some(Value::Null) => 0,
        Some(cursor) => {
            let number = cursor.as_str().and_then(|cursor| cursor.strip_prefix(CURSOR_PREFIX)).ok_or_else(bad)?;
            number.parse().map_err(|_| bad())?
        }
    };
    let made = core.tasks.made_in(&ctx.place, after);
    let page = &made[..made.len().min(PAGE_LEN)];
    let mut result = json!({"tasks": page.iter().map(|record| record.legacy()).collect::<Vec<_>>()});
    if let (Some(last), true) = (page.last(), page.len() < made.len()) {
        result["nextCursor"] = format!("{CURSOR_PREFIX}{}", last.number).into();
    }
    Ok(result)
}

/// Asks whoever works for it to stop.
async fn stop(core: &Core, record: &Record) {
    match record.worker() {
        Some(worker) => core.engine.tell(EngineRequest::StopWorker(worker)).await,
        None => record.cancel.cancel(),
    }
}

/// The older era: cancelled before the answer, and for good.
async fn cancel_legacy(core: &Core, params: &Map<String, Value>, ctx: &Ctx) -> Result<Value, RpcError> {
    let record = find(core, params, ctx)?;
    let status = record.status();
    if status.is_terminal() {
        let message = format!("the task is {} already", status.as_str());
        return Err(RpcError::new(rpc::INVALID_PARAMS, message));
    }
    record.cancelled("cancelled by the client; whoever worked for it was asked to stop");
    stop(core, &record).await;
    Ok(record.legacy())
}

/// The modern one: asked to stop, and the same answer whatever comes of it.
async fn cancel_modern(core: &Core, params: &Map<String, Value>, ctx: &Ctx) -> Result<Value, RpcError> {
    let record = declared(core, params, ctx)?;
    if !record.status().is_terminal() {
        stop(core, &record).await;
    }
    Ok(json!({}))
}

fn update(core: &Core, params: &Map<String, Value>, ctx: &Ctx) -> Result<Value, RpcError> {
    let record = declared(core, params, ctx)?;
    let Some(Value::Object(answers)) = params.get("inputResponses") else {
        return Err(RpcError::new(rpc::INVALID_PARAMS, "\"inputResponses\" is an object"));
    };
    let open = record.asks();
    let fit =
        |key: &str, answer: &Value| open.iter().all(|(asked, ask)| asked != key || ask::fits(&ask.method, answer));
    if let Some((key, _)) = answers.iter().find(|(key, answer)| !fit(key, answer)) {
        let shown: String = key.chars().take(64).collect();
        return Err(RpcError::new(rpc::INVALID_PARAMS, format!("the answer {shown:?} does not fit its question")));
    }
    for (key, answer) in answers {
        record.answer(key, answer.clone());
    }
    Ok(json!({}))
}

/// Questions of a task that went out on the stream of one `tasks/result`.
type Sent = HashMap<String, (u64, oneshot::Receiver<Result<Value, RpcError>>)>;

/// `tasks/result`: waits for the end, and meanwhile asks what the task asks.
async fn result(core: &Core, params: &Map<String, Value>, ctx: &mut Ctx) -> Result<Value, Fault> {
    let record = find(core, params, ctx)?;
    let mut changes = record.changes();
    let mut sent = Sent::new();
    let cancel = ctx.cancel.clone();
    let end = loop {
        changes.mark_unchanged();
        if let Some(end) = record.end() {
            break end.map_err(Fault::Rpc);
        }
        if let Some(session) = &ctx.session {
            for (key, ask) in record.asks() {
                if !sent.contains_key(&key)
                    && let Some(question) = send(session, ctx.out.as_ref(), &record, &ask).await
                {
                    sent.insert(key, question);
                }
            }
        }
        tokio::select! {
            // The wait is cancelled, not the task.
            () = cancel.cancelled() => break Err(Fault::Cancelled),
            gone = changes.changed() => if gone.is_err() {
                break Err(RpcError::new(rpc::INTERNAL_ERROR, "the task is gone").into());
            },
            (key, answer) = answered(&mut sent) => match answer {
                Some(Ok(answer)) => record.answer(&key, answer),
                // A client that cannot answer says so by closing the form.
                Some(Err(_)) | None => record.answer(&key, json!({"action": "cancel"})),
            },
        }
    };
    if let Some(session) = &ctx.session {
        for (number, _) in sent.into_values() {
            session.close_ask(number);
        }
    }
    let mut result = end?;
    *shape::member(shape::member(&mut result, "_meta"), META_RELATED) = json!({"taskId": record.id});
    Ok(result)
}

async fn send(
    session: &Session,
    out: Option<&Out>,
    record: &Record,
    ask: &Ask,
) -> Option<(u64, oneshot::Receiver<Result<Value, RpcError>>)> {
    let (number, answer) = session.open_ask();
    let mut params = ask.params.clone();
    *shape::member(shape::member(&mut params, "_meta"), META_RELATED) = json!({"taskId": record.id});
    let text = rpc::request(number, &ask.method, &params);
    let was_sent = match out {
        Some(Out::Stream(stream)) => stream.must(text),
        Some(Out::Lines(lines)) => lines.send(text).await.is_ok(),
        None => false,
    };
    if !was_sent {
        session.close_ask(number);
        return None;
    }
    Some((number, answer))
}

/// The next answer of any question that is out.
async fn answered(sent: &mut Sent) -> (String, Option<Result<Value, RpcError>>) {
    let next = poll_fn(|cx| {
        for (key, (_, answer)) in sent.iter_mut() {
            if let Poll::Ready(answer) = Pin::new(answer).poll(cx) {
                return Poll::Ready((key.clone(), answer.ok()));
            }
        }
        Poll::Pending
    });
    let (key, answer) = next.await;
    sent.remove(&key);
    (key, answer)
}

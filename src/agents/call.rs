//! `tools/call`, and what is handed on to servers behind us: from the request to the result, with all that can happen
//! in between.
//!
//! Five things race: the end of the call, the client's answer to a question, what the tool sends up, the client's
//! patience, and its going away. Whoever comes first is served; nothing that the engine was told is ever taken back
//! except by a cancellation, and a cancellation always reaches the engine.

use std::sync::Arc;
use std::time::Duration;

use interlock_domain::id::{CallId, RunId, ToolName};
use serde_json::{Map, Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout, timeout_at};

use crate::agents::ask::{self, Asking, Heard};
use crate::agents::core::{Core, stopping};
use crate::agents::ctx::{Ctx, Fault};
use crate::agents::engine::{
    Answer, Ending, EngineRequest, Later, NotSubmitted, Output, QuestionView, ReplyView, Submitted, TaskSupport,
};
use crate::agents::list;
use crate::agents::outcome;
use crate::agents::parked::Call;
use crate::agents::session::{WATCHED_MAX, Watch};
use crate::agents::tasks::methods;
use crate::agents::tasks::record::Record;
use crate::mcp::era::{self, Era, Kind};
use crate::mcp::rpc::{self, Request, RpcError};
use crate::mcp::shape;
use crate::mcp::upward::{Line, NotAsked, UPWARD_LEN_MAX, Upward};

/// Carries out one `tools/call`.
///
/// # Errors
/// A protocol error for parameters that do not fit or a tool that does not exist, and when the client went away. A
/// call that was refused, failed, or has an unknown outcome is a result, not an error.
pub async fn call(core: &Core, request: Request, ctx: &mut Ctx) -> Result<Value, Fault> {
    let digest = Call::of(&request.method, &request.params);
    let augmented = request.params.get("task").filter(|task| !task.is_null()).cloned();
    let (tool, args) = read(request.params)?;
    let tools = core.engine.tools(ctx.client.holder.as_deref());
    let support = list::find(&tools, tool.as_str()).map_or(TaskSupport::Forbidden, |view| view.tasks);
    match (ctx.era, support, augmented) {
        (Era::Legacy, TaskSupport::Optional | TaskSupport::Required, Some(task)) => {
            let ttl_ms = ttl(&task)?;
            become_task(core, ctx, tool.as_str(), ttl_ms).await?;
        }
        (Era::Legacy, TaskSupport::Forbidden, Some(_)) => {
            let message = format!("{tool} is not called as a task");
            return Err(RpcError::new(rpc::METHOD_NOT_FOUND, message).into());
        }
        (Era::Legacy, TaskSupport::Required, None) => {
            let message = format!("{tool} is only called as a task");
            return Err(RpcError::new(rpc::METHOD_NOT_FOUND, message).into());
        }
        (Era::Modern, TaskSupport::Required, _) if !methods::knows_tasks(&ctx.capabilities) => {
            return Err(methods::undeclared().into());
        }
        // In the modern era the server alone decides, and a `task` of the older one says nothing.
        (Era::Legacy, TaskSupport::Forbidden | TaskSupport::Optional, None) | (Era::Modern, _, _) => {}
    }
    let run = core.run(ctx).await?;
    let result = carry_out(core, ctx, &digest, run, tool, args).await;
    match ctx.era {
        Era::Legacy => {}
        Era::Modern => core.engine.tell(EngineRequest::CloseRun(run)).await,
    }
    result
}

/// How long a client wants its task kept; none where it does not say.
fn ttl(task: &Value) -> Result<Option<u64>, RpcError> {
    let wrong = |fact: &str| Err(RpcError::new(rpc::INVALID_PARAMS, fact));
    let Some(task) = task.as_object() else { return wrong("\"task\" is an object") };
    match task.get("ttl") {
        None | Some(Value::Null) => Ok(None),
        Some(ttl) => match (ttl.as_u64(), ttl.as_f64()) {
            (Some(ttl), _) => Ok(Some(ttl)),
            // More than fits is as long as it goes; a part of a millisecond is none.
            (None, Some(ttl)) if ttl >= 0.0 => Ok(Some(
                Duration::try_from_secs_f64(ttl / 1000.0)
                    .map_or(u64::MAX, |ttl| u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX)),
            )),
            (None, _) => wrong("\"task\".\"ttl\" is a number of milliseconds, 0 or more"),
        },
    }
}

/// Answers the request with a task, and goes on without its client.
async fn become_task(core: &Core, ctx: &mut Ctx, tool: &str, ttl_ms: Option<u64>) -> Result<(), RpcError> {
    let record = core.tasks.create(ctx, tool, ttl_ms)?;
    core.tasks.kept(&record).await;
    let result = created(ctx.era, &record);
    ctx.task = Some(record);
    ctx.finish(Ok(era::finish(result, ctx.era, Kind::Plain, &list::server()))).await;
    // Its id is free again, and a cancellation that names it comes too late: a task is cancelled by its own name.
    drop(std::mem::take(&mut ctx.after));
    Ok(())
}

fn created(era: Era, record: &Record) -> Value {
    match era {
        Era::Legacy => json!({"task": record.legacy()}),
        Era::Modern => {
            let mut task = record.modern();
            task["resultType"] = "task".into();
            task
        }
    }
}

fn read(mut params: Map<String, Value>) -> Result<(ToolName, Value), RpcError> {
    let name = match params.get("name") {
        Some(Value::String(name)) => name,
        _ => return Err(RpcError::new(rpc::INVALID_PARAMS, "\"name\" is a string")),
    };
    let tool = ToolName::new(name).map_err(|why| RpcError::new(rpc::INVALID_PARAMS, format!("unknown tool: {why}")))?;
    match params.remove("arguments") {
        None | Some(Value::Null) => Ok((tool, json!({}))),
        Some(args @ Value::Object(_)) => Ok((tool, args)),
        Some(_) => Err(RpcError::new(rpc::INVALID_PARAMS, "\"arguments\" is an object")),
    }
}

/// What the questions that are out are for.
enum Purpose {
    /// The gate's own.
    Gate(QuestionView),
    /// The tool's.
    Tool(oneshot::Sender<Result<Vec<(String, Value)>, NotAsked>>),
}

async fn carry_out(
    core: &Core,
    ctx: &mut Ctx,
    digest: &Call,
    run: RunId,
    tool: ToolName,
    args: Value,
) -> Result<Value, Fault> {
    let (line, from_tool) = line(ctx);
    let name = tool.as_str().to_owned();
    let Submitted { call, question, reply } = match core.engine.calls.submit(run, tool, args, line).await {
        Ok(submitted) => submitted,
        Err(why) => return Ok(outcome::not_submitted(&name, why)?),
    };
    let mut told = None;
    let work = Work { tool: &name, call: Some(call), question, reply, from_tool };
    match attend(core, ctx, digest, work, &mut told).await? {
        Over::Ended(mut reply) => {
            // Cancelled, and stopped by that: what is known of the outcome is said with it.
            if let (true, Some(task)) = (ctx.cancel.is_cancelled() && reply.code == "stopped", &ctx.task) {
                let row = reply.evidence.map_or_else(String::new, |seq| format!("; evidence row {seq}"));
                task.cancelled(&format!("cancelled by the client: {}{row}", reply.message));
                return Err(Fault::Cancelled);
            }
            // Another server's failure is told in its own words.
            if let (Ending::Failed, Some(told)) = (reply.ending, told) {
                reply.output = Some(told.map_or_else(Output::Error, Output::Result));
            }
            ended(core, ctx, &name, call, reply).await
        }
        Over::Waiting(question) => Ok(outcome::waiting(call, &question)),
    }
}

/// The way up from a tool, with what its client said of itself.
fn line(ctx: &Ctx) -> (Line, mpsc::Receiver<Upward>) {
    let (up, from_tool) = mpsc::channel(UPWARD_LEN_MAX);
    let mut capabilities = ctx.capabilities.clone();
    if ctx.task.is_some() {
        // Whoever made a task of its call knows tasks, in whichever era it said so.
        *shape::member(shape::member(&mut capabilities, "extensions"), era::TASKS) = json!({});
    }
    (Line { up, era: ctx.era, capabilities, meta: ctx.meta.clone() }, from_tool)
}

/// The end of a call: the result, or a task that stands for the worker that it started.
async fn ended(core: &Core, ctx: &mut Ctx, tool: &str, call: CallId, reply: ReplyView) -> Result<Value, Fault> {
    let worker = match (reply.ending, reply.task) {
        (Ending::Done, Some(worker)) => worker,
        (Ending::Done | Ending::Failed | Ending::Unknown | Ending::NotStarted, _) => {
            return Ok(outcome::result(call, reply)?);
        }
    };
    if let Some(record) = ctx.task.take() {
        record.follow(worker, call, reply);
        return Err(Fault::Later);
    }
    if ctx.era == Era::Modern
        && methods::knows_tasks(&ctx.capabilities)
        && let Ok(record) = core.tasks.create(ctx, tool, None)
    {
        record.follow(worker, call, reply);
        core.tasks.kept(&record).await;
        return Ok(created(ctx.era, &record));
    }
    Ok(outcome::result(call, reply)?)
}

/// Hands on what the servers behind us answer: prompts, resources, completion.
///
/// # Errors
/// Theirs, and when the client went away or the engine has no room.
pub async fn relay(core: &Core, request: Request, ctx: &mut Ctx) -> Result<Value, Fault> {
    let digest = Call::of(&request.method, &request.params);
    let Request { method, mut params, .. } = request;
    for own in ["_meta", "inputResponses", "requestState"] {
        params.remove(own);
    }
    // The servers count who watches, so each session counts once, and is taken back where it came to nothing.
    let mut watching = None;
    if let (Some(session), Some(Value::String(uri))) = (&ctx.session, params.get("uri")) {
        match method.as_str() {
            "resources/subscribe" => match session.watch(uri) {
                Watch::New => watching = Some((Arc::clone(session), uri.clone())),
                Watch::Known => return Ok(json!({})),
                Watch::Full => {
                    let message = format!("this session watches {WATCHED_MAX} resources already");
                    return Err(RpcError::new(rpc::BUSY, message).into());
                }
            },
            "resources/unsubscribe" if !session.unwatch(uri) => return Ok(json!({})),
            _ => {}
        }
    }
    let relayed = handed_on(core, ctx, &digest, &method, params).await;
    if let (Err(_), Some((session, uri))) = (&relayed, watching) {
        session.unwatch(&uri);
    }
    relayed
}

async fn handed_on(
    core: &Core,
    ctx: &mut Ctx,
    digest: &Call,
    method: &str,
    params: Map<String, Value>,
) -> Result<Value, Fault> {
    let (line, from_tool) = line(ctx);
    let reply = core.engine.relay(method, Value::Object(params), line).map_err(|why| match why {
        NotSubmitted::Busy => RpcError::new(rpc::BUSY, "too much is under way; try again later"),
        NotSubmitted::NoSuchTool | NotSubmitted::BadArguments(_) | NotSubmitted::Stopping => stopping(),
    })?;
    let reply: Later<_> = Box::pin(async move { reply.await.ok() });
    let work = Work { tool: method, call: None, question: Box::pin(std::future::ready(None)), reply, from_tool };
    match attend(core, ctx, digest, work, &mut None).await? {
        Over::Ended(answer) => Ok(answer?),
        Over::Waiting(_) => Err(stopping().into()),
    }
}

/// Something that the engine works on for a client.
struct Work<'a, T> {
    tool: &'a str,
    call: Option<CallId>,
    question: Later<Option<QuestionView>>,
    reply: Later<Option<T>>,
    from_tool: mpsc::Receiver<Upward>,
}

/// How it came back.
enum Over<T> {
    Ended(T),
    /// Nobody answered the question in time.
    Waiting(QuestionView),
}

/// Stays with a piece of work until it ends, or nobody waits for it any more. `told` is what another server answered.
async fn attend<T>(
    core: &Core,
    ctx: &mut Ctx,
    digest: &Call,
    work: Work<'_, T>,
    told: &mut Option<Result<Value, RpcError>>,
) -> Result<Over<T>, Fault> {
    let Work { tool, call, mut question, mut reply, mut from_tool } = work;
    let cancel = ctx.cancel.clone();
    let mut asking: Option<(Asking, Purpose)> = None;
    let mut patience: Option<(Instant, QuestionView)> = None;
    let mut end: Option<Option<T>> = None;
    let (mut tool_is_there, mut may_be_asked) = (true, true);
    loop {
        // A parked call has nobody to answer to until its client comes back, even when it has ended meanwhile.
        if end.is_some() && (ctx.out.is_some() || ctx.task.is_some()) {
            if let Some((asking, _)) = asking.take() {
                asking.withdraw(core, ctx);
            }
            return end.take().flatten().map(Over::Ended).ok_or_else(|| stopping().into());
        }
        tokio::select! {
            biased;
            () = cancel.cancelled() => {
                if let Some((asking, _)) = asking.take() {
                    asking.withdraw(core, ctx);
                }
                if ctx.task.is_none() || end.is_some() {
                    return give_up(core, call).await;
                }
                // A task says how its call really ended, if that is known soon.
                if let Some(call) = call {
                    core.engine.tell(EngineRequest::Cancel(call)).await;
                }
                return match timeout(CANCEL_WAIT, reply).await {
                    Ok(Some(reply)) => Ok(Over::Ended(reply)),
                    Ok(None) | Err(_) => Err(Fault::Cancelled),
                };
            }
            ended = &mut reply, if end.is_none() => {
                // What the tool sent before it ended comes before its end.
                while let Ok(sent) = from_tool.try_recv() {
                    match sent {
                        Upward::Detached => detach(core, ctx, tool).await,
                        Upward::Answer(answer) => *told = Some(answer),
                        sent @ (Upward::Progress { .. } | Upward::Log { .. } | Upward::Ask { .. }) => pass_on(ctx, sent),
                    }
                }
                end = Some(ended);
            }
            question = &mut question, if may_be_asked => {
                may_be_asked = false;
                if let Some(question) = question {
                    match put(core, ctx, digest, &question).await {
                        Some(form) => asking = Some((form, Purpose::Gate(question))),
                        None => patience = Some((Instant::now() + core.settings.question_wait, question)),
                    }
                }
            }
            heard = heard(&mut asking), if asking.is_some() => {
                if let Some((asked, purpose)) = asking.take() {
                    match took(core, ctx, digest, asked, heard, purpose).await {
                        Next::Asking(again) => asking = Some(again),
                        Next::Patience(question) => {
                            patience = Some((Instant::now() + core.settings.question_wait, question));
                        }
                        Next::On => {}
                        // Its client never came back: there is nobody left to work for.
                        Next::Gone => return give_up(core, call).await,
                    }
                }
            }
            sent = from_tool.recv(), if tool_is_there && asking.is_none() => match sent {
                Some(Upward::Detached) => detach(core, ctx, tool).await,
                Some(Upward::Answer(answer)) => *told = Some(answer),
                Some(sent) => asking = upward(core, ctx, digest, sent).await,
                None => tool_is_there = false,
            },
            question = run_out(&patience), if patience.is_some() => {
                // A client that knows tasks can wait for the person; any other is told to stop waiting.
                let question = question.clone();
                patience = None;
                if call.is_some() {
                    detach(core, ctx, tool).await;
                }
                if ctx.task.is_none() {
                    return Ok(Over::Waiting(question));
                }
            }
        }
    }
}

/// Goes on as a task, for a client that knows tasks; any other goes on waiting.
async fn detach(core: &Core, ctx: &mut Ctx, tool: &str) {
    let may =
        ctx.task.is_none() && ctx.out.is_some() && ctx.era == Era::Modern && methods::knows_tasks(&ctx.capabilities);
    if may && let Err(full) = become_task(core, ctx, tool, None).await {
        tracing::debug!(%full, tool, "mcp: a call stays with its request");
    }
}

/// How long the end of a cancelled task is waited for.
const CANCEL_WAIT: Duration = Duration::from_secs(10);

async fn give_up<T>(core: &Core, call: Option<CallId>) -> Result<T, Fault> {
    if let Some(call) = call {
        core.engine.tell(EngineRequest::Cancel(call)).await;
    }
    Err(Fault::Cancelled)
}

/// Puts a question of the gate to the person behind the client; none where the client cannot show it,
/// or where two persons have to answer elsewhere.
async fn put(core: &Core, ctx: &mut Ctx, digest: &Call, question: &QuestionView) -> Option<Asking> {
    tell_of(ctx, question);
    if question.two_persons || !era::shows_forms(&ctx.capabilities) {
        return None;
    }
    ask::ask(core, ctx, digest, vec![ask::form(question)]).await.ok()
}

/// Tells a client that cannot show a form, but reads logs, that a person is waited for.
fn tell_of(ctx: &Ctx, question: &QuestionView) {
    let data = json!({
        "question": question.id.to_string(),
        "kind": question.kind.as_str(),
        "text": question.text_en,
        "text_zh": question.text_zh,
    });
    ctx.log("notice", Some("interlock.gate"), &data);
}

async fn heard(asking: &mut Option<(Asking, Purpose)>) -> Heard {
    match asking {
        Some((asking, _)) => asking.heard().await,
        None => std::future::pending().await,
    }
}

async fn run_out(patience: &Option<(Instant, QuestionView)>) -> &QuestionView {
    match patience {
        Some((until, question)) => {
            // Nothing comes from `pending`: this is a wait until the instant, and can be dropped and begun again.
            let _elapsed = timeout_at(*until, std::future::pending::<()>()).await;
            question
        }
        None => std::future::pending().await,
    }
}

enum Next {
    /// Questions are still out.
    Asking((Asking, Purpose)),
    /// The person did not say; somebody else may.
    Patience(QuestionView),
    /// The call goes on.
    On,
    /// There is no client any more.
    Gone,
}

async fn took(core: &Core, ctx: &mut Ctx, digest: &Call, asked: Asking, heard: Heard, purpose: Purpose) -> Next {
    match (ask::take_in(core, ctx, digest, asked, heard).await, purpose) {
        (Ok(Err(again)), purpose) => Next::Asking((again, purpose)),
        (Err(_), _) if ctx.out.is_none() && ctx.task.is_none() => Next::Gone,
        (Ok(Ok(answers)), Purpose::Gate(question)) => match ask::decision(&answers) {
            Some(answer @ (Answer::Allow | Answer::Deny)) => {
                let by = ctx.client.label();
                core.engine.tell(EngineRequest::Answer { question: question.id, answer, by }).await;
                Next::On
            }
            None => Next::Patience(question),
        },
        (Err(_), Purpose::Gate(question)) => Next::Patience(question),
        (told, Purpose::Tool(reply)) => {
            let told = match told {
                Ok(Ok(answers)) => Ok(answers),
                Ok(Err(_)) => Err(NotAsked::NoAnswer),
                Err(why) => Err(why),
            };
            // Fails when the tool has ended meanwhile; then its end is what comes next.
            let _gone = reply.send(told);
            Next::On
        }
    }
}

/// Passes on what needs no answer. A question is turned down: its tool has ended and does not wait any more.
fn pass_on(ctx: &Ctx, sent: Upward) {
    match sent {
        Upward::Progress { progress, total, message } => ctx.progress(progress, total, message.as_deref()),
        Upward::Log { level, logger, data } => ctx.log(&level, logger.as_deref(), &data),
        Upward::Detached | Upward::Answer(_) => {}
        Upward::Ask { reply, .. } => {
            let _gone = reply.send(Err(NotAsked::NoAnswer));
        }
    }
}

async fn upward(core: &Core, ctx: &mut Ctx, digest: &Call, sent: Upward) -> Option<(Asking, Purpose)> {
    match sent {
        said @ (Upward::Progress { .. } | Upward::Log { .. } | Upward::Detached | Upward::Answer(_)) => {
            pass_on(ctx, said);
            None
        }
        Upward::Ask { asks, reply } => match ask::ask(core, ctx, digest, asks).await {
            Ok(asking) => Some((asking, Purpose::Tool(reply))),
            Err(why) => {
                let _gone = reply.send(Err(why));
                None
            }
        },
    }
}

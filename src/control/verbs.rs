//! The verbs of the socket: arguments in, words of the engine out.

use std::io;
use std::sync::Arc;

use interlock_domain::closure::Ending;
use interlock_domain::gate::docket::Answer;
use interlock_domain::id::{CallId, RunId, Seq, TaskId, ToolName};
use interlock_domain::request::{Asker, Via};
use serde_json::{Map, Value, json};
use tokio::net::unix::OwnedWriteHalf;
use tokio::sync::{mpsc, oneshot, watch};

use super::wire::{Kind, Request, Says, Trouble};
use super::{ask, learn, people};
use crate::agents::core::Core;
use crate::engine::agent::Handle as Models;
use crate::engine::handle::{Answered, Mediator, NotTaken, Wanted};
use crate::engine::learner::Learner;
use crate::engine::listener::{Lang, Listener, Reins, Said};
use crate::engine::log::{Log, Query};
use crate::engine::people::People;
use crate::engine::servers::{self, NotLoggedIn, Servers};
use crate::engine::tasks::{self, Tasks};
use crate::engine::workflow::{self, Workflows};
use crate::export::Receiver;

/// What `reload` sends to whoever owns the configuration.
pub(super) type Reload = mpsc::Sender<oneshot::Sender<Result<String, Trouble>>>;

/// What the verbs need. Handles only.
pub struct Context {
    /// Sentences.
    pub listener: Listener,
    /// Wishes, questions.
    pub mediator: Mediator,
    /// Background tasks.
    pub tasks: Tasks,
    /// Groups of actions with a guarantee.
    pub workflows: Arc<Workflows>,
    /// What is learned.
    pub learner: Learner,
    /// The evidence log.
    pub log: Log,
    /// Who may open the console.
    pub people: People,
    /// MCP.
    pub mcp: Arc<Core>,
    /// Runs of the language model.
    pub models: Models,
    /// The MCP servers behind us.
    pub servers: Servers,
    /// `status --json`, made once.
    pub status: Value,
    /// How it goes with the plant's own systems.
    pub receivers: Vec<Receiver>,
    /// Which updates count.
    pub updates: watch::Receiver<Value>,
    /// The configuration's owner.
    pub reload: Reload,
}

/// Where the lines of an answer go.
pub(super) struct Lines<'a> {
    write: &'a mut OwnedWriteHalf,
    id: Value,
}

impl<'a> Lines<'a> {
    pub(super) fn new(write: &'a mut OwnedWriteHalf, id: Value) -> Lines<'a> {
        Lines { write, id }
    }

    pub(super) async fn say(&mut self, says: Says) -> io::Result<()> {
        super::answer(self.write, self.id.clone(), says).await
    }

    async fn items(&mut self, items: impl IntoIterator<Item = Value>) -> io::Result<()> {
        for item in items {
            self.say(Says::Item(item)).await?;
        }
        self.say(Says::End(true)).await
    }
}

pub(super) type Answer1 = Result<Value, Trouble>;

/// What a verb has to say.
#[derive(Debug)]
pub enum Told {
    /// One value.
    One(Value),
    /// Several, in order.
    Many(Vec<Value>),
}

/// Carries out one request and answers it. An error means that the client is gone.
pub(super) async fn carry_out(
    context: &Context,
    user: &str,
    request: Request,
    lines: &mut Lines<'_>,
) -> io::Result<()> {
    match tell(context, user, &request.verb, &request.args).await {
        Ok(Told::One(value)) => lines.say(Says::Ok(value)).await,
        Ok(Told::Many(items)) => lines.items(items).await,
        Err(trouble) => lines.say(Says::Error(trouble)).await,
    }
}

/// What a verb has to say to a user: the command line and the console ask here, and nothing is decided here.
///
/// # Errors
/// Why it was not carried out.
pub async fn tell(context: &Context, user: &str, verb: &str, args: &Value) -> Result<Told, Trouble> {
    let args = Args(args);
    let many = match verb {
        "task.list" => Some(task_list(context, &args).await),
        "ask.list" => Some(ask::list(context).await),
        "device.list" => Some(device_list(context, user, &args).await),
        "learn.list" => Some(learn::list(context, &args).await),
        "evidence.query" => Some(evidence_query(context, &args).await),
        "mcp.list" => Some(Ok(servers::rows(&context.servers))),
        "mcp.definitions" => Some(Ok(servers::definitions(&context.servers))),
        "console.token.list" => Some(Ok(people::list(context))),
        _ => None,
    };
    match many {
        Some(many) => many.map(Told::Many),
        None => one(context, user, verb, &args).await.map(Told::One),
    }
}

async fn one(context: &Context, user: &str, verb: &str, args: &Args<'_>) -> Answer1 {
    match verb {
        "say" => say(context, user, args).await,
        "device.read" => device(context, user, args, "read").await,
        "device.write" => device(context, user, args, "write").await,
        "workflow" => workflow(context, user, args).await,
        "task.show" => task_show(context, args).await,
        "task.stop" => task_act(context, args, TaskAct::Stop).await,
        "task.pause" => task_act(context, args, TaskAct::Pause).await,
        "task.resume" => task_act(context, args, TaskAct::Resume).await,
        "task.restart" => task_act(context, args, TaskAct::Restart).await,
        "task.clean" => task_act(context, args, TaskAct::Clean).await,
        "ask.allow" => ask::answer(context, user, args, Answer::Allow).await,
        "ask.deny" => ask::answer(context, user, args, Answer::Deny).await,
        "workflow.close" => workflow_close(context, user, args).await,
        "ask.settle" => ask::settle(context, user, args).await,
        "learn.propose" => learn::propose(context, user, args).await,
        "learn.approve" => learn::approve(context, user, args).await,
        "learn.reject" => learn::reject(context, user, args).await,
        "learn.rollback" => learn::rollback(context, user, args).await,
        "mcp.approve" => mcp_approve(context, user, args).await,
        "mcp.login" => mcp_login(context, args).await,
        "mcp.logged-in" => mcp_logged_in(context, user, args).await,
        "console.token.add" => people::add(context, user, args).await,
        "console.token.revoke" => people::revoke(context, user, args).await,
        "status" => Ok(status(context)),
        "reload" => reload(context).await,
        "evidence.show" => evidence_show(context, args).await,
        "evidence.stats" => context.log.stats().await.map(|stats| stats.to_json()).map_err(|error| store(&error)),
        other => {
            Err(Trouble::new(Kind::Usage, format!("there is no verb {other:?}")).hint("interlock --help lists them"))
        }
    }
}

async fn mcp_approve(context: &Context, user: &str, args: &Args<'_>) -> Answer1 {
    let (server, tool) = (args.need("server")?, args.text("tool"));
    if !context.servers.view().servers.iter().any(|(name, _)| name == server) {
        return Err(
            Trouble::new(Kind::NotFound, format!("there is no MCP server {server:?}")).hint("interlock mcp list")
        );
    }
    match context.servers.approve(server, tool, user).await {
        None => Err(Trouble::new(Kind::Busy, "the daemon is stopping")),
        Some(0) => {
            let what = tool.map_or_else(|| "no tool".to_owned(), |tool| format!("no tool {tool:?}"));
            let fact = format!("{what} of {server} waits for approval");
            Err(Trouble::new(Kind::NotSo, fact).hint("interlock mcp list shows which do"))
        }
        Some(count) => Ok(json!({ "server": server, "approved": count })),
    }
}

async fn mcp_login(context: &Context, args: &Args<'_>) -> Answer1 {
    let (server, redirect) = (args.need("server")?, args.need("redirect")?);
    let begun = context.servers.begin_login(server, redirect).await.map_err(|error| not_logged_in(&error))?;
    let patience_s = begun.patience.as_secs();
    Ok(json!({ "server": server, "url": begun.url, "state": begun.state, "patience_s": patience_s }))
}

async fn mcp_logged_in(context: &Context, user: &str, args: &Args<'_>) -> Answer1 {
    let (server, answer) = (args.need("server")?, args.need("answer")?);
    context.servers.finish_login(server, answer, user).await.map_err(|error| not_logged_in(&error))?;
    Ok(json!({ "server": server }))
}

fn not_logged_in(error: &NotLoggedIn) -> Trouble {
    match error {
        NotLoggedIn::NoLogin { .. } => {
            Trouble::new(Kind::NotFound, error.to_string()).hint("oauth = {} in its [[mcp.server]]")
        }
        NotLoggedIn::NotBegun { .. } => Trouble::new(Kind::NotSo, error.to_string()).hint("interlock mcp login SERVER"),
        NotLoggedIn::Unfit { .. }
        | NotLoggedIn::Server(_)
        | NotLoggedIn::NotTheAnswer { .. }
        | NotLoggedIn::Denied { .. }
        | NotLoggedIn::NoRandom
        | NotLoggedIn::Stopping => Trouble::new(Kind::NotSo, error.to_string()),
    }
}

/// The arguments of a request.
pub(super) struct Args<'a>(pub(super) &'a Value);

impl Args<'_> {
    pub(super) fn text(&self, key: &str) -> Option<&str> {
        self.0.get(key).and_then(Value::as_str)
    }

    pub(super) fn need(&self, key: &str) -> Result<&str, Trouble> {
        self.text(key)
            .ok_or_else(|| Trouble::new(Kind::Usage, format!("the argument {key:?} is missing or is not a text")))
    }

    pub(super) fn flag(&self, key: &str) -> bool {
        self.0.get(key).and_then(Value::as_bool).unwrap_or(false)
    }

    pub(super) fn number(&self, key: &str) -> Option<u64> {
        self.0.get(key).and_then(Value::as_u64)
    }

    pub(super) fn parsed<T: std::str::FromStr>(&self, key: &str) -> Result<T, Trouble>
    where
        T::Err: std::fmt::Display,
    {
        self.need(key)?.parse().map_err(|error| Trouble::new(Kind::Usage, format!("{error}")))
    }

    pub(super) fn maybe<T: std::str::FromStr>(&self, key: &str) -> Result<Option<T>, Trouble>
    where
        T::Err: std::fmt::Display,
    {
        match self.text(key) {
            None => Ok(None),
            Some(_) => self.parsed(key).map(Some),
        }
    }

    pub(super) fn lang(&self) -> Lang {
        Lang::of_word(self.text("lang").unwrap_or_default())
    }

    pub(super) fn is_zh(&self) -> bool {
        self.lang() == Lang::Zh
    }
}

pub(crate) fn store(error: &crate::engine::log::Error) -> Trouble {
    let trouble = Trouble::new(Kind::NotSo, error.to_string());
    match error.hint() {
        Some(hint) => trouble.hint(hint),
        None => trouble,
    }
}

pub(super) fn not_taken(error: &NotTaken) -> Trouble {
    let kind = match error {
        NotTaken::Busy | NotTaken::Stopping => Kind::Busy,
        NotTaken::Input(_) | NotTaken::Batch(_) | NotTaken::NoParent(_) => Kind::Usage,
    };
    Trouble::new(kind, error.to_string())
}

async fn say(context: &Context, user: &str, args: &Args<'_>) -> Answer1 {
    let said = Said {
        text: args.need("text")?.to_owned(),
        // A voice front end names its speaker; the peer's user stands behind it either way.
        speaker: args.text("speaker").map_or_else(|| user.to_owned(), |speaker| format!("{speaker}@{user}")),
        place: args.text("place").map(|place| place.chars().take(64).collect()),
        via: if args.text("speaker").is_some() { Via::Voice } else { Via::Cli },
        lang: args.lang(),
        wait: args.flag("wait"),
        reins: Reins::OF_A_PERSON,
    };
    context.listener.hear(said).await.map_err(|error| not_taken(&error))
}

/// One `device` call.
async fn device(context: &Context, user: &str, args: &Args<'_>, action: &str) -> Answer1 {
    let mut input = json!({ "device": args.need("device")?, "action": action });
    if let Some(point) = args.text("point") {
        input["point"] = point.into();
    }
    if let Some(value) = args.0.get("value") {
        input["value"] = value.clone();
    }
    call_one(context, user, args, device_call(input)?).await
}

async fn workflow(context: &Context, user: &str, args: &Args<'_>) -> Answer1 {
    let tool = ToolName::new("workflow").map_err(|error| Trouble::new(Kind::Bug, error.to_string()))?;
    let input = args.0.get("input").cloned().unwrap_or_default();
    call_one(context, user, args, Wanted { tool, input, protective: false }).await
}

/// For people only: the tool has no such verb, so that nothing that is mediated can answer for its own leavings.
async fn workflow_close(context: &Context, user: &str, args: &Args<'_>) -> Answer1 {
    let written = args.need("workflow")?;
    let id = workflow::tool::number(written).map_err(|refusal| Trouble::new(Kind::Usage, refusal.text))?;
    let note = ask::note(args, "say what was done about it: --note \"refunded by hand\"")?;
    let closed = context.workflows.close(id, user, note).await;
    let mut answer = closed.map_err(|refusal| {
        let kind = if refusal.code == "no_such_workflow" { Kind::NotFound } else { Kind::NotSo };
        Trouble::new(kind, refusal.text).hint(format!("interlock workflow show {written}"))
    })?;
    let message = if args.is_zh() {
        format!("{written} 已由人了结；日志中仍是未决，不算成功")
    } else {
        format!("{written} is closed by a person; it is no success, and the log keeps what was left")
    };
    answer["message"] = message.into();
    Ok(answer)
}

/// One call through the one path, answered in the words of `say`.
async fn call_one(context: &Context, user: &str, args: &Args<'_>, wanted: Wanted) -> Answer1 {
    let (run, submitted) = submit(context, user, vec![wanted]).await?;
    let mut answer = json!({
        "outcome": "command", "decision": null, "question": null, "result": null, "output": null, "message": "",
        "evidence": null, "run": run.to_string(),
    });
    if let Some(open) = submitted.questions.first() {
        answer["decision"] = "ask".into();
        answer["question"] = open.question.id.to_string().into();
        answer["message"] = ask::question_text(open, args.is_zh()).into();
        if !args.flag("wait") {
            close_later(context, run, submitted.replies);
            return Ok(answer);
        }
    }
    let answered = submitted.replies.await;
    context.mediator.close_run(run).await;
    match answered.ok().and_then(|answered| answered.into_iter().next()) {
        Some(answered) => {
            settlement(&mut answer, &answered, args);
            Ok(answer)
        }
        None => Err(not_taken(&NotTaken::Stopping)),
    }
}

fn device_call(input: Value) -> Result<Wanted, Trouble> {
    let tool = ToolName::new("device").map_err(|error| Trouble::new(Kind::Bug, error.to_string()))?;
    Ok(Wanted { tool, input, protective: false })
}

async fn submit(
    context: &Context,
    user: &str,
    wanted: Vec<Wanted>,
) -> Result<(RunId, crate::engine::handle::Submitted), Trouble> {
    let asker = Asker { via: Via::Cli, name: user.to_owned() };
    let run = context.mediator.open_run(asker, true).await.map_err(|error| not_taken(&error))?;
    match context.mediator.submit(run, wanted).await {
        Ok(submitted) => Ok((run, submitted)),
        Err(error) => {
            context.mediator.close_run(run).await;
            Err(not_taken(&error))
        }
    }
}

/// The run stays open until its question is answered or has run out; both end it.
fn close_later(context: &Context, run: RunId, replies: oneshot::Receiver<Vec<Answered>>) {
    let mediator = context.mediator.clone();
    tokio::spawn(async move {
        let _ = replies.await;
        mediator.close_run(run).await;
    });
}

pub(super) fn settlement(answer: &mut Value, answered: &Answered, args: &Args<'_>) {
    let ending = &answered.reply.ending;
    let denied = match ending {
        Ending::NotStarted(why) => why.is_denial(),
        Ending::Ran(_) => false,
    };
    answer["decision"] = if denied { "deny" } else { "allow" }.into();
    answer["result"] = ending.word().into();
    answer["code"] = ending.code().into();
    answer["output"] = ending.output().map_or(Value::Null, |output| (**output).clone());
    let message = ending.message(args.lang().domain());
    answer["message"] = if message.is_empty() { ending.word().into() } else { message.into() };
    answer["evidence"] = answered.evidence.map(|seq| seq.0).into();
    answer["call"] = answered.reply.call.to_string().into();
}

/// One call reads them all: a line for each point, with its value now.
async fn device_list(context: &Context, user: &str, args: &Args<'_>) -> Result<Vec<Value>, Trouble> {
    let input = json!({ "device": "*", "action": "list" });
    let (run, submitted) = submit(context, user, vec![device_call(input)?]).await?;
    if let Some(open) = submitted.questions.first() {
        // A list that asks is a list that nobody expects to wait for.
        context.mediator.cancel(submitted.batch).await;
        context.mediator.close_run(run).await;
        let fact = format!("a rule has a person asked before devices are read: {}", open.question.reason);
        return Err(Trouble::new(Kind::NotSo, fact)
            .hint("ask about Device(risk:operate) and Device(risk:dangerous), not about all of Device"));
    }
    let answered = submitted.replies.await.map_err(|_| not_taken(&NotTaken::Stopping));
    context.mediator.close_run(run).await;
    let answered = answered?.into_iter().next().ok_or_else(|| Trouble::new(Kind::Bug, "no reply for the list"))?;
    match answered.reply.ending.output() {
        Some(output) => {
            let mut points = output["points"].as_array().cloned().unwrap_or_default();
            if let Some(device) = args.text("device") {
                points.retain(|point| point["device"] == device);
                if points.is_empty() {
                    return Err(Trouble::new(Kind::NotFound, format!("there is no device {device:?}"))
                        .hint("interlock device list"));
                }
            }
            Ok(points)
        }
        None => Err(Trouble::new(Kind::NotSo, answered.reply.ending.message(args.lang().domain()))),
    }
}

async fn task_list(context: &Context, args: &Args<'_>) -> Result<Vec<Value>, Trouble> {
    let rows =
        context.tasks.list(args.flag("all")).await.map_err(|error| Trouble::new(Kind::Bug, error.to_string()))?;
    Ok(rows.iter().map(|(row, seq)| tasks::to_json(row, *seq)).collect())
}

async fn task_show(context: &Context, args: &Args<'_>) -> Answer1 {
    let task: TaskId = args.parsed("task")?;
    match context.tasks.show(task).await {
        Ok(Some((row, seq))) => Ok(tasks::shown(&row, seq, args.is_zh())),
        Ok(None) => {
            Err(Trouble::new(Kind::NotFound, format!("there is no task {task}")).hint("interlock task list --all"))
        }
        Err(error) => Err(Trouble::new(Kind::Bug, error.to_string())),
    }
}

enum TaskAct {
    Stop,
    Pause,
    Resume,
    Restart,
    Clean,
}

async fn task_act(context: &Context, args: &Args<'_>, act: TaskAct) -> Answer1 {
    let task: TaskId = args.parsed("task")?;
    let supervisor = context.tasks.supervisor();
    let (done, en, zh) = match act {
        TaskAct::Stop => (supervisor.stop(task).await, "was asked to stop", "已请求停止"),
        TaskAct::Pause => (supervisor.pause(task).await, "rests", "已暂停"),
        TaskAct::Resume => (supervisor.resume(task).await, "goes on", "已继续"),
        TaskAct::Restart => (supervisor.restart(task).await, "begins again", "将重新开始"),
        TaskAct::Clean => (supervisor.clean(task).await.map(|cleaned| cleaned.map(|_| ())), "was cleaned", "已清理"),
    };
    match done {
        Ok(Ok(())) => {
            let message = if args.is_zh() { format!("{task} {zh}") } else { format!("{task} {en}") };
            Ok(json!({ "task": task.to_string(), "message": message }))
        }
        Ok(Err(error)) => Err(Trouble::new(Kind::NotSo, error.to_string()).hint("interlock task list --all")),
        Err(error) => Err(Trouble::new(Kind::Bug, error.to_string())),
    }
}

fn status(context: &Context) -> Value {
    let mut status = context.status.clone();
    let figures = context.tasks.supervisor().figures();
    status["liveness"] = json!({
        "tier": context.tasks.supervisor().tier().name(),
        "scans": figures.scans,
        "living": figures.living,
        "gaps": figures.gaps,
    });
    status["update"] = context.updates.borrow().clone();
    let mut export = Map::new();
    for receiver in &context.receivers {
        export.insert(receiver.sink.to_owned(), receiver.standing.borrow().to_json());
    }
    // Scripts know the broker by this name.
    status["mqtt"] = export.get("mqtt").cloned().unwrap_or_default();
    status["export"] = Value::Object(export);
    status
}

async fn reload(context: &Context) -> Answer1 {
    let (back, done) = oneshot::channel();
    context.reload.try_send(back).map_err(|_| Trouble::new(Kind::Busy, "a reload is under way"))?;
    let message = done.await.map_err(|_| not_taken(&NotTaken::Stopping))??;
    Ok(json!({ "message": message }))
}

async fn evidence_query(context: &Context, args: &Args<'_>) -> Result<Vec<Value>, Trouble> {
    let query = Query {
        after: args.number("since").map(|seq| Seq(seq.saturating_sub(1))),
        kind: args.text("kind").map(str::to_owned),
        run: args.maybe::<RunId>("run")?,
        call: args.maybe::<CallId>("call")?,
        task: args.maybe::<TaskId>("task")?,
        text: args.text("text").map(str::to_owned),
        limit: args.number("limit").and_then(|limit| usize::try_from(limit).ok()),
        ..Query::default()
    };
    let until = args.number("until");
    let rows = context.log.query(query).await.map_err(|error| store(&error))?;
    Ok(rows.iter().filter(|row| until.is_none_or(|until| row.seq.0 <= until)).map(|row| row.to_json()).collect())
}

async fn evidence_show(context: &Context, args: &Args<'_>) -> Answer1 {
    let seq = args.number("seq").ok_or_else(|| Trouble::new(Kind::Usage, "the argument \"seq\" is not a number"))?;
    match context.log.show(Seq(seq)).await.map_err(|error| store(&error))? {
        Some(row) => Ok(row.to_json()),
        None => Err(Trouble::new(Kind::NotFound, format!("there is no row {seq}")).hint("interlock evidence stats")),
    }
}

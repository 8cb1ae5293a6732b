//! Between the words of MCP's side ([`super::engine`]) and the mediator's handle.
//!
//! A call goes to the mediator from its own task. One task takes the rest in order; what has to be waited for is waited
//! for beside it, so that one client's long request holds up nobody's cancellation.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use interlock_domain::closure::Ending as Ended;
use interlock_domain::gate::docket;
use interlock_domain::gate::policy::Mode;
use interlock_domain::id::{RunId, TaskId, ToolName};
use interlock_domain::liveness::lifecycle::{Outcome, State};
use interlock_domain::request::why::Lang;
use interlock_domain::request::{Asker as DomainAsker, Via};
use interlock_domain::surface::Surface;
use interlock_domain::surface::narrow::Narrowing;
use interlock_domain::surface::tool::{Annotations, Declared, Kind, Tool};
use interlock_domain::time::Wall;
use serde_json::{Map, Value};
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tokio::task::JoinSet;

use super::core::Core;
use super::engine::{
    Answer, Asker, Calls, Ending, Engine, EngineRequest, Later, News, NotSubmitted, Offers, Output, QuestionKind,
    QuestionView, RawView, ReplyView, Stopping, Submitted, TaskSupport, ToolView, WorkerState, WorkerView,
};
use crate::engine::handle::{Answered, Handed, Mediator, NotTaken, Open, Wanted, Who};
use crate::engine::servers::{self, Change, Servers, View};
use crate::engine::supervisor::TaskRow;
use crate::engine::tasks::Tasks;
use crate::mcp::era::Era;
use crate::mcp::rpc::{self, RpcError};
use crate::mcp::upward::Line;
use crate::sys::clock;

/// Requests of all clients that may wait for this task; it answers each in microseconds.
const INBOX_LEN_MAX: usize = 256;

/// News that a slow listener may miss before it is told that everything may have changed.
const NEWS_LEN_MAX: usize = 64;

/// Requests to the servers behind us, beside calls, that may be under way.
const RELAYS_MAX: usize = 256;

/// What the holder of a token gets: at most this.
#[derive(Debug, Clone, Default)]
pub struct Profile {
    /// A mode that is narrower than the one of the configuration.
    pub mode: Option<Mode>,
    /// What it is left of the tools.
    pub narrowing: Narrowing,
}

/// The profiles by the names of their holders.
pub type Profiles = BTreeMap<String, Profile>;

/// The handle for the front, and the task behind it, which the caller runs.
#[must_use]
pub fn bridge(
    mediator: Mediator,
    tasks: Tasks,
    servers: Servers,
    profiles: watch::Receiver<Arc<Profiles>>,
) -> (Engine, Bridge) {
    let (requests, inbox) = mpsc::channel(INBOX_LEN_MAX);
    let (news, _) = broadcast::channel(NEWS_LEN_MAX);
    let (offering, offers) = watch::channel(Offers::default());
    let gate = Gate {
        mediator: mediator.clone(),
        surface: mediator.surfaces(),
        lists: Mutex::new(Lists {
            seen: mediator.surfaces(),
            views: servers.views(),
            profiles: profiles.clone(),
            made: BTreeMap::new(),
        }),
        profiles,
    };
    let bridge = Bridge {
        inbox,
        mediator,
        tasks,
        heard: servers.news(),
        views: servers.views(),
        servers,
        relays: JoinSet::new(),
        news: news.clone(),
        offering,
    };
    (Engine { calls: Arc::new(gate), requests, news, offers }, bridge)
}

/// What every call needs, asked in the task of the call itself.
#[derive(Debug)]
struct Gate {
    mediator: Mediator,
    surface: watch::Receiver<Surface>,
    profiles: watch::Receiver<Arc<Profiles>>,
    // The tasks of all requests look here, each for one look-up; a queue would cost each two wake-ups.
    lists: Mutex<Lists>,
}

/// The list of tools of each holder, made once for as long as nothing changes.
#[derive(Debug)]
struct Lists {
    seen: watch::Receiver<Surface>,
    views: watch::Receiver<Arc<View>>,
    profiles: watch::Receiver<Arc<Profiles>>,
    made: BTreeMap<Option<String>, Arc<[ToolView]>>,
}

impl Lists {
    fn of(&mut self, holder: Option<&str>) -> Arc<[ToolView]> {
        let fresh = [self.seen.has_changed(), self.views.has_changed(), self.profiles.has_changed()];
        // A sender that is gone changes nothing any more.
        if fresh.into_iter().any(|changed| changed.unwrap_or(false)) {
            self.made.clear();
        }
        let holder = holder.map(str::to_owned);
        if let Some(list) = self.made.get(&holder) {
            return Arc::clone(list);
        }
        let narrowing = profile(&self.profiles.borrow_and_update(), holder.as_deref()).narrowing;
        let raw = Arc::clone(&self.views.borrow_and_update());
        let surface = self.seen.borrow_and_update().narrowed(&narrowing);
        let mut list: Vec<ToolView> = surface.tools().map(|tool| view(tool, &raw)).collect();
        list.sort_by(|a, b| a.name.cmp(&b.name));
        let list: Arc<[ToolView]> = list.into();
        self.made.insert(holder, Arc::clone(&list));
        list
    }
}

fn profile(profiles: &Profiles, holder: Option<&str>) -> Profile {
    holder.and_then(|holder| profiles.get(holder).cloned()).unwrap_or_default()
}

impl Calls for Gate {
    fn tools(&self, holder: Option<&str>) -> Arc<[ToolView]> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner).of(holder)
    }

    fn open_run(&self, asker: Asker) -> Later<Result<RunId, Stopping>> {
        let Profile { mode, narrowing } = profile(&self.profiles.borrow(), asker.holder.as_deref());
        let named = DomainAsker { via: Via::Mcp, name: asker.label() };
        let (who, mediator) = (Who { mode, narrowing, ..Who::of(named, true) }, self.mediator.clone());
        // The front says that the engine is stopping, which a busy one may as well be.
        Box::pin(async move { mediator.open(who).await.map_err(|_| Stopping) })
    }

    fn submit(&self, run: RunId, tool: ToolName, args: Value, line: Line) -> Later<Result<Submitted, NotSubmitted>> {
        let is_theirs = match self.surface.borrow().tool(&tool) {
            None => return Box::pin(std::future::ready(Err(NotSubmitted::NoSuchTool))),
            Some(tool) => matches!(tool.kind(), Kind::Declared(Declared { mcp: Some(_), .. })),
        };
        let (mediator, wanted) = (self.mediator.clone(), Wanted { tool, input: args, protective: false });
        Box::pin(async move {
            let handed = mediator.submit_on_line(run, wanted, line).await.map_err(|error| match error {
                NotTaken::Busy => NotSubmitted::Busy,
                NotTaken::Stopping => NotSubmitted::Stopping,
                NotTaken::Input(_) | NotTaken::Batch(_) | NotTaken::NoParent(_) => {
                    NotSubmitted::BadArguments(error.to_string())
                }
            })?;
            let Handed { call, asked, replies } = handed;
            let question = Box::pin(async move { asked.await.ok()?.first().map(question) });
            let reply = Box::pin(async move {
                let answered = replies.await.ok()?.into_iter().next()?;
                Some(reply_view(&answered, is_theirs))
            });
            Ok(Submitted { call, question, reply })
        })
    }
}

/// The task behind the handle.
pub struct Bridge {
    inbox: mpsc::Receiver<EngineRequest>,
    mediator: Mediator,
    tasks: Tasks,
    servers: Servers,
    views: watch::Receiver<Arc<View>>,
    heard: broadcast::Receiver<Change>,
    relays: JoinSet<()>,
    news: broadcast::Sender<News>,
    offering: watch::Sender<Offers>,
}

impl Bridge {
    /// Runs until every handle is gone.
    pub async fn run(mut self) {
        let mut is_heard = true;
        loop {
            tokio::select! {
                Some(_) = self.relays.join_next() => {}
                heard = self.heard.recv(), if is_heard => match heard {
                    Ok(change) => self.tell(&[news(change)]),
                    Err(broadcast::error::RecvError::Lagged(_)) => self.tell(&News::LISTS),
                    Err(broadcast::error::RecvError::Closed) => is_heard = false,
                },
                request = self.inbox.recv() => match request {
                    Some(request) => self.take(request).await,
                    None => break,
                },
            }
        }
        self.relays.shutdown().await;
    }

    fn tell(&mut self, news: &[News]) {
        // What is announced is what is answered from now on.
        let servers::Offers { prompts, resources, completions } = self.views.borrow().offers;
        self.offering.send_replace(Offers { prompts, resources, completions });
        for news in news {
            // Fails when nobody listens.
            let _nobody = self.news.send(news.clone());
        }
    }

    async fn take(&mut self, request: EngineRequest) {
        match request {
            EngineRequest::CloseRun(run) => self.mediator.close_run(run).await,
            EngineRequest::Answer { question, answer, by } => {
                let answer = match answer {
                    Answer::Allow => docket::Answer::Allow,
                    Answer::Deny => docket::Answer::Deny,
                };
                // Whether it counted is in the evidence, and the call's own end tells the client.
                let _ = self.mediator.answer(question, answer, docket::By::said(by)).await;
            }
            EngineRequest::Relay { method, params, line, reply } => self.relay(method, params, line, reply),
            EngineRequest::StopWorker(task) => {
                // Whether it was there is in the evidence.
                let _ = self.tasks.supervisor().stop(task).await;
            }
            EngineRequest::Cancel(call) => self.mediator.cancel(call.batch).await,
        }
    }

    fn relay(
        &mut self,
        method: String,
        params: Value,
        line: Line,
        mut reply: oneshot::Sender<Result<Value, RpcError>>,
    ) {
        if self.relays.len() >= RELAYS_MAX {
            let _ = reply.send(Err(RpcError::new(rpc::BUSY, format!("{RELAYS_MAX} requests are under way"))));
            return;
        }
        let servers = self.servers.clone();
        let params = match params {
            Value::Object(params) => params,
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Map::new(),
        };
        self.relays.spawn(async move {
            let answer = tokio::select! {
                answer = servers.relay(&method, params, &line) => answer,
                // Nobody wants it any more; the drop cancels it at the server.
                () = reply.closed() => return,
            };
            let _ = reply.send(answer);
        });
    }
}

fn news(change: Change) -> News {
    match change {
        Change::Tools => News::ToolsChanged,
        Change::Prompts => News::PromptsChanged,
        Change::Resources => News::ResourcesChanged,
        Change::Resource(uri) => News::ResourceUpdated(uri),
    }
}

fn view(tool: &Tool, servers: &View) -> ToolView {
    let definition = tool.definition();
    let listed = servers.tools.get(&definition.name).map(|raw| &raw.listed);
    let tasks = match listed.map(|listed| listed.of(Era::Legacy)["execution"]["taskSupport"].as_str()) {
        None if matches!(definition.kind, Kind::Monitor(_)) => TaskSupport::Optional,
        Some(Some("optional")) => TaskSupport::Optional,
        Some(Some("required")) => TaskSupport::Required,
        None | Some(None | Some(_)) => TaskSupport::Forbidden,
    };
    let raw =
        listed.map(|listed| RawView { legacy: listed.of(Era::Legacy).clone(), modern: listed.of(Era::Modern).clone() });
    ToolView {
        name: definition.name.clone(),
        title: definition.title.en.clone(),
        description: format!("{}\n{}", definition.description.en, definition.description.zh),
        input_schema: definition.input_schema.clone(),
        output_schema: definition.output_schema.clone(),
        annotations: annotations(definition.annotations),
        contract: crate::record::contract::to_json(&tool.weakest_contract()),
        tasks,
        raw: raw.map(Arc::new),
    }
}

fn annotations(hints: Annotations) -> Value {
    let mut members = Map::new();
    let named = [
        ("readOnlyHint", hints.read_only),
        ("destructiveHint", hints.destructive),
        ("idempotentHint", hints.idempotent),
        ("openWorldHint", hints.open_world),
    ];
    for (name, hint) in named {
        if let Some(hint) = hint {
            members.insert(name.to_owned(), hint.into());
        }
    }
    Value::Object(members)
}

fn question(open: &Open) -> QuestionView {
    let asked = &open.question;
    let kind = match asked.kind {
        docket::QuestionKind::Confirm => QuestionKind::Confirm,
        docket::QuestionKind::Permit | docket::QuestionKind::Outcome => QuestionKind::Permit,
    };
    let who = asked.asker.as_ref().map_or("somebody", |asker| asker.name.as_str());
    let left = i64::try_from(open.left_ms.unwrap_or(0)).unwrap_or(i64::MAX);
    QuestionView {
        id: asked.id,
        kind,
        two_persons: asked.four_eyes,
        text_zh: format!("{} 请求执行 {} {}：{}", who, asked.tool, asked.shown, asked.reason),
        text_en: format!("{} asks for {} {}: {}", who, asked.tool, asked.shown, asked.reason),
        until: Wall(clock::wall().0.saturating_add(left)),
    }
}

fn reply_view(answered: &Answered, is_theirs: bool) -> ReplyView {
    let ended = &answered.reply.ending;
    let ending = match ended {
        Ended::Ran(_) => match ended.word() {
            "done" => Ending::Done,
            "failed" => Ending::Failed,
            _ => Ending::Unknown,
        },
        Ended::NotStarted(_) => Ending::NotStarted,
    };
    let output = ended.output().map(|output| (**output).clone());
    let started = output.as_ref().filter(|_| !is_theirs).and_then(|output| output["task"].as_str());
    let task = started.and_then(|task| task.parse::<TaskId>().ok());
    ReplyView {
        ending,
        code: ended.code().unwrap_or("done").to_owned(),
        output: output.map(if is_theirs { Output::Result } else { Output::Object }),
        message: ended.message(Lang::En),
        evidence: answered.evidence.map(|seq| seq.0),
        task,
    }
}

/// How often the workers are looked at when nothing is told of them: their beats age without an event.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Tells the tasks of the protocol what the supervisor knows of their workers, until the daemon stops.
pub async fn watch_workers(core: Arc<Core>, tasks: Tasks, mut stop: watch::Receiver<bool>) {
    let mut changes = tasks.changes();
    loop {
        tokio::select! {
            _ = stopped(&mut stop) => return,
            changed = tokio::time::timeout(LOOK_EVERY, changes.changed()) => if let Ok(Err(_)) = changed {
                return;
            },
        }
        // What the daemon is made of is nobody's task.
        if let Ok(mut rows) = tasks.list(true).await {
            rows.retain(|(row, _)| !row.own);
            let workers: Vec<WorkerView> = rows.iter().map(|(row, evidence)| worker(row, *evidence)).collect();
            core.tasks.observe(&workers);
        }
    }
}

async fn stopped(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

fn worker(row: &TaskRow, evidence: Option<u64>) -> WorkerView {
    let state = match row.state {
        State::Running => WorkerState::Running,
        State::Zombie => WorkerState::Zombie,
        State::Dead => WorkerState::Dead,
        State::Stopped => WorkerState::Stopped,
        State::Cleaned => WorkerState::Cleaned,
    };
    let ended = |ending: Ending, code: &str| ReplyView {
        ending,
        code: code.to_owned(),
        output: row.output.clone().map(Output::Object),
        message: row.said.clone(),
        evidence,
        task: Some(row.key.task),
    };
    let end = match row.outcome {
        Some(Outcome::Success) => Some(ended(Ending::Done, "done")),
        Some(Outcome::Error) => Some(ended(Ending::Failed, "task_failed")),
        Some(Outcome::Stopped) | None => None,
    };
    WorkerView {
        task: row.key.task,
        generation: row.key.generation,
        state,
        cause: row.cause.map(|cause| cause.name().to_owned()).unwrap_or_default(),
        last_beat_ms: row.last_beat_ms,
        progress: row.progress,
        evidence,
        end,
    }
}

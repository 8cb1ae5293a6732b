//! Owns what the servers behind us are to everybody else: which of their tools are in the surface and under which
//! names, which are hidden, and which wait for a person because their definition changed.
//!
//! A tool is trusted as it was first seen. When its server defines it differently later, it is hidden and not called
//! until a person has looked: a description is an instruction to a language model, and a schema is what an approval was
//! given for. Nothing here decides whether a call may happen; the gate does, by the raw pair of server and tool.

pub mod definition;
mod pins;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use interlock_domain::command::instead::Instead;
use interlock_domain::gate::rule::Rules;
use interlock_domain::id::ToolName;
use interlock_domain::request::args::Digest;
use interlock_domain::surface::Surface;
use interlock_domain::surface::promise::Promise;
use interlock_domain::surface::tool::Tool;
use serde_json::{Map, Value, json};
use tokio::sync::{broadcast, mpsc, oneshot, watch};

use super::handle::Mediator;
use super::keeper::Keeper;
use crate::mcp::era::Era;
use crate::mcp::name;
use crate::mcp::rpc::RpcError;
use crate::mcp::upward::Line;
use crate::record::Row;
use crate::store::queue::{Entry, Tell, Writer};
use crate::tool::mcp::{self as down, Listed, Lists, Shown, Snapshot, Standing};
pub use crate::tool::mcp::{Begun, NotLoggedIn};
use pins::Pins;

/// Messages that may wait for the owner.
const INBOX_LEN_MAX: usize = 64;

/// News that a slow listener may miss.
const NEWS_LEN_MAX: usize = 256;

/// What a configuration says of the servers.
#[derive(Debug, Clone)]
pub struct Setting {
    /// The server.
    pub spec: down::Spec,
    /// What stands before the names of its tools.
    pub prefix: String,
    /// What is promised about calls of its tools: the operator's word, before the server's own.
    pub promises: Arc<[Promise]>,
}

/// What changed for our clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The list of tools.
    Tools,
    /// The list of prompts.
    Prompts,
    /// The list of resources.
    Resources,
    /// One resource.
    Resource(String),
}

/// What there is beside tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Offers {
    /// Prompts.
    pub prompts: bool,
    /// Resources.
    pub resources: bool,
    /// Completion.
    pub completions: bool,
}

/// A tool of a server, as the server defines it.
#[derive(Debug, Clone)]
pub struct Raw {
    /// The server.
    pub server: String,
    /// The server's own name for the tool.
    pub tool: String,
    /// Its definitions.
    pub listed: Listed,
    /// What it is now.
    pub state: ToolState,
}

/// What a tool of a server is now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolState {
    /// In the list, and callable as far as the gate lets.
    Listed,
    /// A rule denies it, so it is not in the list.
    Denied,
    /// Its definition changed, and nobody approved that yet.
    Changed,
    /// Its server is down.
    Down,
}

impl ToolState {
    /// As `mcp list` writes it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            ToolState::Listed => "listed",
            ToolState::Denied => "denied",
            ToolState::Changed => "changed",
            ToolState::Down => "down",
        }
    }
}

/// What everybody else may know, made anew with each change.
#[derive(Debug, Default)]
pub struct View {
    /// The tools of all servers by the names that our clients see.
    pub tools: BTreeMap<ToolName, Raw>,
    /// What there is beside tools.
    pub offers: Offers,
    /// Each server, by name, as it was when the surface was made.
    pub servers: Vec<(String, Arc<Snapshot>)>,
    shown: Vec<Shown>,
    prompts: Vec<Value>,
    resources: Vec<Value>,
    listed: Vec<(ToolName, Digest)>,
}

/// A surface, with all that is known of how it came about.
struct Rebuilt {
    surface: Surface,
    view: View,
}

/// The way to the servers. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Servers {
    down: down::Servers,
    inbox: mpsc::Sender<Message>,
    view: watch::Receiver<Arc<View>>,
    news: broadcast::Sender<Change>,
}

#[derive(Debug)]
enum Message {
    Configure { base: Vec<Arc<Tool>>, rules: Arc<Rules>, settings: Vec<Setting>, back: oneshot::Sender<()> },
    LoggedIn { server: String, by: String },
    Approve { server: String, tool: Option<String>, by: String, back: oneshot::Sender<usize> },
}

/// What the owner is made from.
pub struct Parts {
    /// Where definitions that were approved are kept.
    pub keeper: Keeper,
    /// The evidence log.
    pub writer: Writer,
    /// Who is told of a new surface.
    pub mediator: Mediator,
    /// What surfaces ask for.
    pub surface: watch::Sender<Surface>,
    /// What `state.db` has of approved definitions.
    pub approved: BTreeMap<(String, String), String>,
    /// What agents are told instead of a description, as a person approved it.
    pub told: watch::Receiver<Arc<[Instead]>>,
}

/// The owner.
pub struct Owner {
    parts: Parts,
    down: down::Servers,
    inbox: mpsc::Receiver<Message>,
    updates: mpsc::Receiver<String>,
    view: watch::Sender<Arc<View>>,
    news: broadcast::Sender<Change>,
    base: Vec<Arc<Tool>>,
    rules: Arc<Rules>,
    settings: Vec<Setting>,
    pins: Pins,
    made: BTreeMap<ToolName, (Digest, Arc<Tool>)>,
    standing: BTreeMap<String, bool>,
}

/// A handle and the owner, which the caller runs.
#[must_use]
pub fn new(down: down::Servers, updates: mpsc::Receiver<String>, parts: Parts) -> (Servers, Owner) {
    let (inbox, outlet) = mpsc::channel(INBOX_LEN_MAX);
    let (view, viewed) = watch::channel(Arc::new(View::default()));
    let (news, _) = broadcast::channel(NEWS_LEN_MAX);
    let pins = Pins::new(parts.approved.clone());
    let owner = Owner {
        parts,
        down: down.clone(),
        inbox: outlet,
        updates,
        view,
        news: news.clone(),
        base: Vec::new(),
        rules: Arc::default(),
        settings: Vec::new(),
        pins,
        made: BTreeMap::new(),
        standing: BTreeMap::new(),
    };
    (Servers { down, inbox, view: viewed, news }, owner)
}

impl Servers {
    /// Puts a configuration in force: `base` are our own tools. Returns when servers that are not in it any more have
    /// ended, and the surface is the new one.
    pub async fn configure(&self, base: Vec<Arc<Tool>>, rules: Arc<Rules>, settings: Vec<Setting>) {
        let (back, done) = oneshot::channel();
        if self.inbox.send(Message::Configure { base, rules, settings, back }).await.is_ok() {
            // Fails when the daemon stops.
            let _stopping = done.await;
        }
    }

    /// The servers as the code that calls them has them.
    #[must_use]
    pub fn down(&self) -> down::Servers {
        self.down.clone()
    }

    /// A person approves the definition of a tool as it is now, or of all tools of a server; gives how many were held.
    /// None when the daemon stops.
    pub async fn approve(&self, server: &str, tool: Option<&str>, by: &str) -> Option<usize> {
        let (back, approved) = oneshot::channel();
        let (server, tool) = (server.to_owned(), tool.map(str::to_owned));
        self.inbox.send(Message::Approve { server, tool, by: by.to_owned(), back }).await.ok()?;
        approved.await.ok()
    }

    /// Begins a person's login at a server, whose browser is sent to `redirect` afterwards.
    ///
    /// # Errors
    /// When that server has no login, or nobody says how to get in.
    pub async fn begin_login(&self, server: &str, redirect: &str) -> Result<Begun, NotLoggedIn> {
        self.down.begin_login(server, redirect).await
    }

    /// Ends it with the address that the browser was sent to, and writes down who did.
    ///
    /// # Errors
    /// When that is not the answer to the login, or it was refused.
    pub async fn finish_login(&self, server: &str, answer: &str, by: &str) -> Result<(), NotLoggedIn> {
        self.down.finish_login(server, answer).await?;
        // Fails when the daemon stops; the tokens are kept.
        let _stopping = self.inbox.send(Message::LoggedIn { server: server.to_owned(), by: by.to_owned() }).await;
        Ok(())
    }

    /// What is known now.
    #[must_use]
    pub fn view(&self) -> Arc<View> {
        Arc::clone(&self.view.borrow())
    }

    /// What is known, and when it changes.
    #[must_use]
    pub fn views(&self) -> watch::Receiver<Arc<View>> {
        self.view.clone()
    }

    /// What changes for our clients, from now on.
    #[must_use]
    pub fn news(&self) -> broadcast::Receiver<Change> {
        self.news.subscribe()
    }

    /// Answers what is no call: prompts, resources, completion.
    ///
    /// # Errors
    /// The server's own error, and `INVALID_PARAMS` for what no server has.
    pub async fn relay(&self, method: &str, params: Map<String, Value>, line: &Line) -> Result<Value, RpcError> {
        let view = self.view();
        self.down.relay(&view.shown, method, params, line).await
    }

    /// Ends all servers with everything that they started.
    pub async fn stop(&self) {
        self.down.stop().await;
    }
}

impl Owner {
    /// Runs until every handle is gone.
    pub async fn run(mut self) {
        let mut changes = self.down.changes();
        let mut told = self.parts.told.clone();
        loop {
            tokio::select! {
                message = self.inbox.recv() => match message {
                    Some(message) => self.take(message).await,
                    None => return,
                },
                Ok(()) = changes.changed() => {
                    changes.mark_unchanged();
                    let rebuilt = self.rebuild().await;
                    self.publish(rebuilt).await;
                }
                Ok(()) = told.changed() => {
                    let rebuilt = self.rebuild().await;
                    self.publish(rebuilt).await;
                }
                Some(uri) = self.updates.recv() => {
                    // Fails when nobody listens.
                    let _nobody = self.news.send(Change::Resource(uri));
                }
            }
        }
    }

    async fn take(&mut self, message: Message) {
        match message {
            Message::Configure { base, rules, settings, back } => {
                (self.base, self.rules) = (base, rules);
                self.settings = settings;
                // What is promised may be another thing now.
                self.made.clear();
                self.down.apply(self.settings.iter().map(|setting| setting.spec.clone()).collect()).await;
                let rebuilt = self.rebuild().await;
                self.publish(rebuilt).await;
                let _gone = back.send(());
            }
            Message::LoggedIn { server, by } => {
                self.write("mcp_login", None, &json!({"server": server, "by": by})).await;
            }
            Message::Approve { server, tool, by, back } => {
                let approved = self.pins.approve(&server, tool.as_deref());
                self.keep(&server, &approved, Some(by.clone()));
                for (tool, digest) in &approved {
                    let detail = json!({"server": server, "tool": tool, "definition": digest.to_string(), "by": by});
                    self.write("mcp_tool_approved", None, &detail).await;
                }
                if !approved.is_empty() {
                    let rebuilt = self.rebuild().await;
                    self.publish(rebuilt).await;
                }
                let _gone = back.send(approved.len());
            }
        }
    }

    async fn publish(&self, rebuilt: Rebuilt) {
        let Rebuilt { surface, view } = rebuilt;
        // The machine first: what is listed can be called. The view after the list: who sees a server sees its tools.
        self.parts.mediator.see(surface.clone()).await;
        self.parts.surface.send_replace(surface);
        let after = Arc::new(view);
        let before = self.view.send_replace(Arc::clone(&after));
        let news = [
            (Change::Tools, before.listed != after.listed),
            (Change::Prompts, before.prompts != after.prompts),
            (Change::Resources, before.resources != after.resources),
        ];
        for (change, _) in news.into_iter().filter(|(_, is_news)| *is_news) {
            // Fails when nobody listens.
            let _nobody = self.news.send(change);
        }
    }

    /// One commit for all of them: a server that is seen for the first time brings hundreds.
    fn keep(&self, server: &str, tools: &[(String, Digest)], by: Option<String>) {
        if tools.is_empty() {
            return;
        }
        let tools: Vec<(String, String)> =
            tools.iter().map(|(tool, digest)| (tool.clone(), digest.to_string())).collect();
        let (server, at) = (server.to_owned(), crate::sys::clock::wall());
        let kept = self.parts.keeper.later(move |state| state.approve_tools(&server, &tools, by.as_deref(), at));
        if let Err(error) = kept {
            tracing::error!(%error, "approved definitions were not kept");
        }
    }

    async fn write(&self, kind: &'static str, to: Option<&'static str>, detail: &Value) {
        let mut row = Row::new(super::stamp::now(), kind);
        row.to = to.map(Into::into);
        let entry = Entry { row: row.detailed(detail), now: true, tell: Tell::Nobody, receipt: None };
        if self.parts.writer.append_when_room(entry).await.is_err() {
            tracing::error!(kind, "a row about an MCP server was not written");
        }
    }

    /// Makes the surface and the view from what is known now.
    async fn rebuild(&mut self) -> Rebuilt {
        let snapshots: BTreeMap<String, Arc<Snapshot>> = self.down.snapshots().into_iter().collect();
        let (settings, base) = (self.settings.clone(), self.base.clone());
        let own: BTreeSet<&str> = base.iter().map(|tool| tool.name().as_str()).collect();
        let mut view = View::default();
        let mut tools = base.clone();
        let (mut hidden, mut waiting, mut listed) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
        let mut made = BTreeMap::new();
        let mut rows = Vec::new();
        for Setting { spec, prefix, promises } in &settings {
            let server = spec.name.as_str();
            let Some(snapshot) = snapshots.get(server) else { continue };
            let is_up = snapshot.standing == Standing::Up;
            rows.extend(self.standing_row(server, snapshot));
            let is_shown = is_up && !self.rules.hides_mcp(server, None);
            if is_shown {
                view.shown.push(Shown { server: server.to_owned(), prefix: prefix.clone() });
                view.gather(&snapshot.lists);
            }
            let (mut held, mut fresh) = (BTreeSet::new(), Vec::new());
            for (raw, of) in &snapshot.lists.tools {
                let others = settings.iter().map(|setting| setting.prefix.as_str());
                let name = name::exposed(server, prefix, raw, others, |name| own.contains(name));
                let (Ok(name), Some(digest)) = (ToolName::new(&name), definition::digest_of(of)) else {
                    tracing::warn!(server, tool = raw.as_str(), "a tool is left out: its definition is beyond a bound");
                    continue;
                };
                // The pins are on what the server says; everybody else sees what a person put in its place.
                let of = definition::retold(of, &self.parts.told.borrow(), &name);
                let definition = of.of(Era::Modern);
                let shown = match &of {
                    Cow::Borrowed(_) => digest,
                    Cow::Owned(of) => definition::digest_of(of).unwrap_or(digest),
                };
                let tool = match self.made.get(&name) {
                    Some((of, tool)) if *of == shown => Arc::clone(tool),
                    Some(_) | None => match definition::tool(name.clone(), server, raw, definition) {
                        Ok(tool) => Arc::new(tool.promised(promises, None)),
                        Err(bad) => {
                            tracing::warn!(server, "a tool is left out: {bad}");
                            continue;
                        }
                    },
                };
                let seen = self.pins.see(server, raw, digest);
                match seen {
                    pins::Seen::New => fresh.push((raw.clone(), digest)),
                    pins::Seen::Approved | pins::Seen::Changed { is_news: false } => {}
                    pins::Seen::Changed { is_news: true } => {
                        tracing::warn!(server, tool = raw.as_str(), "its definition changed: held until approved");
                        let detail = json!({"server": server, "tool": raw, "definition": digest.to_string()});
                        rows.push(("mcp_tool_changed", None, detail));
                    }
                }
                let state = match seen {
                    _ if self.rules.hides_mcp(server, Some(raw)) => ToolState::Denied,
                    pins::Seen::Changed { .. } => ToolState::Changed,
                    pins::Seen::New | pins::Seen::Approved if is_up => ToolState::Listed,
                    pins::Seen::New | pins::Seen::Approved => ToolState::Down,
                };
                if matches!(seen, pins::Seen::Changed { .. }) {
                    held.insert(raw.clone());
                    waiting.insert(name.clone());
                }
                match state {
                    ToolState::Listed => listed.push((name.clone(), shown)),
                    ToolState::Denied | ToolState::Changed | ToolState::Down => drop(hidden.insert(name.clone())),
                }
                tools.push(Arc::clone(&tool));
                made.insert(name.clone(), (shown, tool));
                let raw = Raw { server: server.to_owned(), tool: raw.clone(), listed: of.into_owned(), state };
                view.tools.insert(name, raw);
            }
            self.keep(server, &fresh, None);
            self.down.hold(server, held);
        }
        self.made = made;
        for (kind, to, detail) in rows {
            self.write(kind, to, &detail).await;
        }
        view.listed = listed;
        view.servers = snapshots.into_iter().collect();
        Rebuilt { surface: Surface::new(tools).hiding(hidden).holding(waiting), view }
    }

    /// The row that says that a server came or went, when it did; an alarm stands while it is gone.
    fn standing_row(
        &mut self,
        server: &str,
        snapshot: &Snapshot,
    ) -> Option<(&'static str, Option<&'static str>, Value)> {
        let (is_up, why) = match &snapshot.standing {
            Standing::Starting => return None,
            Standing::Up => (true, ""),
            Standing::Down(why) => (false, why.as_str()),
        };
        if self.standing.insert(server.to_owned(), is_up) == Some(is_up) {
            return None;
        }
        let (source, at) = (format!("mcp:{server}"), crate::sys::clock::wall());
        let text = format!("MCP server {server} is down: {why}");
        let kept = self.parts.keeper.later(move |state| match is_up {
            true => state.clear_alarms(&source, at).map(|_| ()),
            false => state.raise_alarm(&source, &text, at).map(|_| ()),
        });
        if let Err(error) = kept {
            tracing::error!(%error, server, "an alarm was not kept");
        }
        let detail = json!({
            "server": server,
            "why": if is_up { Value::Null } else { why.into() },
            "tools": snapshot.lists.tools.len(),
            "restarts": snapshot.restarts,
            "pid": snapshot.pid,
        });
        Some(("mcp_server", Some(if is_up { "up" } else { "down" }), detail))
    }
}

impl View {
    fn gather(&mut self, lists: &Lists) {
        self.offers.prompts |= lists.offers_prompts;
        self.offers.resources |= lists.offers_resources;
        self.offers.completions |= lists.offers_completions;
        self.prompts.extend(lists.prompts.iter().cloned());
        self.resources.extend(lists.resources.iter().chain(&lists.templates).cloned());
    }
}

/// A line for each tool of each server, with its definition as it came: for the census.
#[must_use]
pub fn definitions(servers: &Servers) -> Vec<Value> {
    let view = servers.view();
    let row = |raw: &Raw| json!({ "server": raw.server, "tool": raw.listed.of(Era::Modern) });
    view.tools.values().map(row).collect()
}

/// The lines of `mcp list`: a line for each server, and with it each tool that needs a person.
#[must_use]
pub fn rows(servers: &Servers) -> Vec<Value> {
    let view = servers.view();
    let row = |(name, snapshot): &(String, Arc<Snapshot>)| {
        let (state, why) = match &snapshot.standing {
            Standing::Starting => ("starting", Value::Null),
            Standing::Up => ("up", Value::Null),
            Standing::Down(why) => ("down", why.as_str().into()),
        };
        let eras: Vec<&str> = snapshot
            .eras
            .iter()
            .map(|era| match era {
                Era::Legacy => snapshot.hello["protocolVersion"].as_str().unwrap_or(crate::mcp::era::LEGACY[0]),
                Era::Modern => crate::mcp::era::MODERN,
            })
            .collect();
        let tools: Vec<Value> = view
            .tools
            .iter()
            .filter(|(_, raw)| raw.server == *name)
            .map(|(exposed, raw)| json!({"name": exposed.as_str(), "tool": raw.tool, "state": raw.state.word()}))
            .collect();
        json!({
            "server": name,
            "state": state,
            "why": why,
            "eras": eras,
            "tools": tools,
            "pid": snapshot.pid,
            "restarts": snapshot.restarts,
            "noise": snapshot.noise,
        })
    };
    view.servers.iter().map(row).collect()
}

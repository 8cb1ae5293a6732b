//! The MCP servers behind us: their lives, their lists, and the calls that go to them.
//!
//! Each server has a task of its own that connects, lists, watches and starts again; one that fails, hangs or lies
//! costs the others nothing. A call finds its connection in a table and never waits for another server's. Nothing here
//! decides whether a call may happen, and nothing is sent twice unless the tool says that it only reads or that twice
//! is once.

mod call;
mod http;
mod keep;
mod link;
mod lists;
mod oauth;
mod relay;
mod stdio;
mod task;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::task::JoinSet;
use tokio::time::Instant;

use http::Connector;
use oauth::Account;

use crate::mcp::era::Era;
pub use link::{Link, NoAnswer};
pub use lists::{Listed, Lists};
pub use oauth::{Begun, Grant, NotLoggedIn, Oauth};
pub use relay::Shown;

/// Resources that are watched at one server: more than any client's screen shows.
const WATCHED_MAX: usize = 1024;

/// Changes of resources that may wait to be told to clients.
const UPDATES_MAX: usize = 256;

/// One server as the configuration has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spec {
    /// Its name.
    pub name: String,
    /// How it is reached.
    pub reach: Reach,
    /// Which protocol it speaks, where that is known beforehand.
    pub era: Option<Era>,
    /// How long a call waits without a sign of life.
    pub timeout: Duration,
    /// How long a call takes at most.
    pub total_timeout: Duration,
}

/// How a server is reached. Secrets are files, read at each start: a new one counts from the next start on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reach {
    /// It is our child.
    Command {
        /// Program and arguments.
        command: Vec<String>,
        /// Where it runs.
        cwd: Option<PathBuf>,
        /// Variables of its environment.
        env: BTreeMap<String, String>,
        /// Variables whose values stand in files.
        secrets: BTreeMap<String, PathBuf>,
    },
    /// It is somewhere.
    Url {
        /// Its address.
        url: String,
        /// The file of the token that it wants.
        token: Option<PathBuf>,
        /// How a token is had that has no file.
        oauth: Option<Oauth>,
    },
}

/// Where a server stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// It is being started or connected for the first time.
    Starting,
    /// It answers.
    Up,
    /// It does not, and this is why.
    Down(String),
}

/// What is known of a server.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// Where it stands.
    pub standing: Standing,
    /// Which protocols it speaks with us.
    pub eras: Vec<Era>,
    /// What it said of itself.
    pub hello: Value,
    /// What it listed when it was last up.
    pub lists: Arc<Lists>,
    /// Since when it is not up, where it is not.
    pub down_since: Option<Instant>,
    /// Its process.
    pub pid: Option<u32>,
    /// How often it was started again.
    pub restarts: u32,
    /// Lines that were no messages, in this life.
    pub noise: u64,
}

/// The connections to one server: an HTTP server that speaks both eras is spoken to in its caller's.
#[derive(Debug, Clone)]
struct Links {
    primary: Arc<Link>,
    other: Option<Arc<Link>>,
}

impl Links {
    fn of(&self, era: Era) -> &Arc<Link> {
        match &self.other {
            Some(other) if other.era == era => other,
            Some(_) | None => &self.primary,
        }
    }

    fn all(&self) -> impl Iterator<Item = &Arc<Link>> {
        std::iter::once(&self.primary).chain(&self.other)
    }
}

/// One server.
#[derive(Debug)]
struct Server {
    spec: Spec,
    /// How it is reached, where that is over HTTP.
    connector: Result<Connector, String>,
    /// Our account, at a server that wants OAuth.
    account: Option<Arc<Account>>,
    links: watch::Sender<Option<Links>>,
    snapshot: watch::Sender<Arc<Snapshot>>,
    /// Tools whose definitions changed and were not approved yet: they are not called.
    held: watch::Sender<BTreeSet<String>>,
    /// The resources that clients watch, and how many of them do.
    watched: watch::Sender<BTreeMap<String, usize>>,
}

#[derive(Debug)]
struct Running {
    server: Arc<Server>,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

/// The servers. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Servers(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    // Looked at by every call, written by a reload: a message to an owner would queue calls behind one another.
    table: Mutex<BTreeMap<String, Running>>,
    changed: watch::Sender<u64>,
    updates: mpsc::Sender<String>,
    /// Made for the first server that is reached over HTTP: reading what a machine trusts takes a while.
    connector: OnceLock<Result<Connector, String>>,
}

impl Servers {
    /// No server yet, and where the addresses of changed resources come out.
    #[must_use]
    pub fn new() -> (Servers, mpsc::Receiver<String>) {
        let (updates, outlet) = mpsc::channel(UPDATES_MAX);
        let changed = watch::Sender::new(0);
        let inner = Inner { table: Mutex::default(), changed, updates, connector: OnceLock::new() };
        (Servers(Arc::new(inner)), outlet)
    }

    fn table(&self) -> MutexGuard<'_, BTreeMap<String, Running>> {
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Rises with each change of a server's standing or lists.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.0.changed.subscribe()
    }

    /// Brings the servers to what a configuration says: those that are not in it any more, or differently, are ended;
    /// new ones are started; the rest is left alone. Returns when the old ones have ended.
    pub async fn apply(&self, specs: Vec<Spec>) {
        let mut ended = Vec::new();
        {
            let mut table = self.table();
            let gone: Vec<String> = table
                .iter()
                .filter(|(_, running)| !specs.contains(&running.server.spec))
                .map(|(name, _)| name.clone())
                .collect();
            ended.extend(gone.iter().filter_map(|name| table.remove(name)));
        }
        end_all(ended).await;
        let mut table = self.table();
        for spec in specs {
            if !table.contains_key(&spec.name) {
                table.insert(spec.name.clone(), self.start(spec));
            }
        }
        drop(table);
        self.0.changed.send_modify(|count| *count += 1);
    }

    fn start(&self, spec: Spec) -> Running {
        let connector = self.connector(&spec.reach);
        let account = account(&spec, &connector);
        let server = Arc::new(Server {
            spec,
            connector,
            account,
            links: watch::Sender::new(None),
            snapshot: watch::Sender::new(Arc::new(Snapshot {
                standing: Standing::Starting,
                eras: Vec::new(),
                hello: Value::Null,
                lists: Arc::default(),
                down_since: Some(Instant::now()),
                pid: None,
                restarts: 0,
                noise: 0,
            })),
            held: watch::Sender::default(),
            watched: watch::Sender::default(),
        });
        let (stop, stopped) = watch::channel(false);
        let keeper = keep::watched(Arc::clone(&server), self.0.changed.clone(), self.0.updates.clone(), stopped);
        Running { server, stop, task: tokio::spawn(keeper) }
    }

    fn connector(&self, reach: &Reach) -> Result<Connector, String> {
        match reach {
            Reach::Command { .. } => Err("it is not reached over HTTP".to_owned()),
            Reach::Url { .. } => {
                let made = || Connector::new().map_err(|error| format!("no HTTP client: {error}"));
                self.0.connector.get_or_init(made).clone()
            }
        }
    }

    /// Ends all of them, with everything that they started.
    pub async fn stop(&self) {
        let all = std::mem::take(&mut *self.table());
        end_all(all.into_values().collect()).await;
    }

    /// What is known of each, by name.
    #[must_use]
    pub fn snapshots(&self) -> Vec<(String, Arc<Snapshot>)> {
        let table = self.table();
        table.iter().map(|(name, running)| (name.clone(), Arc::clone(&running.server.snapshot.borrow()))).collect()
    }

    /// From now on these tools of a server are not called.
    pub fn hold(&self, server: &str, tools: BTreeSet<String>) {
        if let Some(server) = self.find(server) {
            server.held.send_replace(tools);
        }
    }

    fn account(&self, server: &str) -> Result<Arc<Account>, NotLoggedIn> {
        let account = self.find(server).and_then(|server| server.account.clone());
        account.ok_or_else(|| NotLoggedIn::NoLogin { server: server.to_owned() })
    }

    /// Begins a person's login at a server, whose browser is sent to `redirect` afterwards.
    ///
    /// # Errors
    /// When that server has no login, or nobody says how to get in.
    pub async fn begin_login(&self, server: &str, redirect: &str) -> Result<Begun, NotLoggedIn> {
        self.account(server)?.begin(redirect).await
    }

    /// Ends it with the address that the browser was sent to.
    ///
    /// # Errors
    /// When that is not the answer to the login, or it was refused.
    pub async fn finish_login(&self, server: &str, answer: &str) -> Result<(), NotLoggedIn> {
        self.account(server)?.finish(answer).await
    }

    fn find(&self, name: &str) -> Option<Arc<Server>> {
        self.table().get(name).map(|running| Arc::clone(&running.server))
    }
}

/// The account at a server that wants OAuth. One that cannot be made is told of; the server then refuses us.
fn account(spec: &Spec, connector: &Result<Connector, String>) -> Option<Arc<Account>> {
    let Reach::Url { url, oauth: Some(oauth), .. } = &spec.reach else { return None };
    let client = connector.clone().map(|connector| connector.0);
    match client.and_then(|client| Account::new(&spec.name, url, oauth.clone(), client)) {
        Ok(account) => Some(account),
        Err(why) => {
            tracing::error!(server = %spec.name, "no login is possible: {why}");
            None
        }
    }
}

/// Ends servers side by side.
async fn end_all(ended: Vec<Running>) {
    for running in &ended {
        running.stop.send_replace(true);
    }
    let mut settling = JoinSet::new();
    for running in ended {
        if let Err(error) = running.task.await {
            tracing::error!(%error, server = %running.server.spec.name, "the keeper of a server broke");
        }
        let server = running.server;
        // What an authorization server gave must be on the disk, or nobody has it.
        settling.spawn(async move {
            if let Some(account) = &server.account {
                account.settled().await;
            }
        });
    }
    settling.join_all().await;
}

impl Server {
    fn links(&self) -> Option<Links> {
        self.links.borrow().clone()
    }

    fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.snapshot.borrow())
    }

    fn why_down(&self) -> String {
        match &self.snapshot().standing {
            Standing::Starting => "it is not connected yet".to_owned(),
            Standing::Up => "its connection has just broken".to_owned(),
            Standing::Down(why) => why.clone(),
        }
    }
}

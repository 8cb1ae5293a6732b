//! Keeps one server: connects, lists, watches, and starts again after a pause that grows.
//!
//! Nothing of another server is in here, so nothing that this one does can hold another up.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use interlock_domain::request::shown::plain;
use serde_json::{Map, Value, json};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use super::http::{Access, Connector};
use super::link::{Down, Link, NoAnswer, Patience, Switch, Wire, With, request};
use super::lists;
use super::stdio::{Child, Start};
use super::{Links, Reach, Server, Snapshot, Standing};
use crate::mcp::era::{self, Era};

/// How long a server may take to say hello: package runners fetch what they start.
const HELLO_PATIENCE: Duration = Duration::from_secs(30);

/// The pause before a server is started again doubles from the first to the last of these …
const PAUSE_FIRST: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// … and begins anew after a life of this length.
const STEADY: Duration = Duration::from_secs(10);

/// How often a silent server is asked whether it is there, and how long it may take to say so.
const PROBE_EVERY: Duration = Duration::from_secs(30);
const PROBE_PATIENCE: Duration = Duration::from_secs(10);

/// Longest secret that is read from a file.
const SECRET_LEN_MAX: u64 = 16 << 10;

/// The revisions that `initialize` may settle on. The oldest two allow batches, which we never send.
const SPOKEN: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

/// A server that was reached.
struct Reached {
    child: Option<Child>,
    switch: Arc<Switch>,
    links: Links,
    updates: mpsc::Receiver<String>,
}

/// Keeps a server until it is told to stop. Should a bug of ours end its keeper, the server is down and says why, and
/// another keeper takes over after a pause.
pub(super) async fn watched(
    server: Arc<Server>,
    changed: watch::Sender<u64>,
    updates: mpsc::Sender<String>,
    mut stop: watch::Receiver<bool>,
) {
    loop {
        let keeper = keep(Arc::clone(&server), changed.clone(), updates.clone(), stop.clone());
        let Err(broken) = tokio::spawn(keeper).await else { return };
        tracing::error!(server = %server.spec.name, error = %broken, "the keeper of a server broke");
        server.links.send_replace(None);
        down(&server, &changed, "a bug of ours ended what keeps it; the log says where".to_owned());
        tokio::select! {
            () = sleep_until(Instant::now() + PAUSE_MAX) => {}
            () = told(&mut stop) => return,
        }
    }
}

fn down(server: &Server, changed: &watch::Sender<u64>, why: String) {
    change(server, changed, |snapshot| {
        snapshot.standing = Standing::Down(why);
        snapshot.down_since = snapshot.down_since.or(Some(Instant::now()));
        snapshot.pid = None;
        snapshot.restarts = snapshot.restarts.saturating_add(1);
    });
}

/// Keeps a server until it is told to stop.
async fn keep(
    server: Arc<Server>,
    changed: watch::Sender<u64>,
    updates: mpsc::Sender<String>,
    mut stop: watch::Receiver<bool>,
) {
    let mut failures: u32 = 0;
    let mut logins = server.account.as_ref().map(|account| account.changes());
    loop {
        if let Some(logins) = &mut logins {
            logins.mark_unchanged();
        }
        let began = Instant::now();
        let connected = tokio::select! {
            connected = connect(&server) => connected,
            () = told(&mut stop) => return,
        };
        let why = match connected {
            Ok(reached) => match attend(&server, reached, &changed, &updates, &mut stop).await {
                Some(why) => why,
                None => return,
            },
            Err(why) => why,
        };
        if began.elapsed() >= STEADY {
            failures = 0;
        }
        let pause = PAUSE_FIRST.saturating_mul(1 << failures.min(16)).min(PAUSE_MAX);
        failures += 1;
        tracing::warn!(server = %server.spec.name, ?pause, "MCP server is down: {why}");
        down(&server, &changed, why);
        tokio::select! {
            () = sleep_until(Instant::now() + pause) => {}
            // Somebody has logged in: what was refused may be let in now.
            () = logged_in(&mut logins) => failures = 0,
            () = told(&mut stop) => return,
        }
    }
}

async fn logged_in(logins: &mut Option<watch::Receiver<u64>>) {
    if let Some(logins) = logins
        && logins.changed().await.is_ok()
    {
        return;
    }
    std::future::pending().await
}

async fn told(stop: &mut watch::Receiver<bool>) {
    let _gone = stop.wait_for(|stop| *stop).await.is_err();
}

fn change(server: &Server, changed: &watch::Sender<u64>, edit: impl FnOnce(&mut Snapshot)) {
    let mut snapshot = Snapshot::clone(&server.snapshot.borrow());
    edit(&mut snapshot);
    server.snapshot.send_replace(Arc::new(snapshot));
    changed.send_modify(|count| *count += 1);
}

/// Stays with a server that was reached. Why it is down, or nothing when it was told to stop.
async fn attend(
    server: &Server,
    reached: Reached,
    changed: &watch::Sender<u64>,
    told_on: &mpsc::Sender<String>,
    stop: &mut watch::Receiver<bool>,
) -> Option<String> {
    let Reached { child, switch, links, mut updates } = reached;
    let patience = Patience::of(server.spec.timeout);
    let mut list_changes = switch.lists();
    let mut listeners = JoinSet::new();
    listen(server, &links, &switch, &mut listeners);
    let mut probe = Instant::now() + PROBE_EVERY;
    let mut is_listed = false;
    let mut wants_list = true;
    let end = loop {
        if wants_list {
            list_changes.mark_unchanged();
            let listed = tokio::select! {
                listed = lists::all(&links, patience) => listed,
                () = told(stop) => break None,
            };
            match listed {
                Ok(lists) => {
                    if lists.left_out > 0 {
                        tracing::warn!(server = %server.spec.name, left_out = lists.left_out, "it lists more than is taken, or what the protocol has no shape for");
                    }
                    if !is_listed {
                        server.links.send_replace(Some(links.clone()));
                        tracing::info!(server = %server.spec.name, tools = lists.tools.len(), "MCP server is up");
                    }
                    if !is_listed {
                        watch_again(server, &links, &mut listeners, told_on);
                    }
                    is_listed = true;
                    change(server, changed, |snapshot| {
                        snapshot.standing = Standing::Up;
                        snapshot.down_since = None;
                        snapshot.eras = links.all().map(|link| link.era).collect();
                        snapshot.hello = links.primary.hello.clone();
                        snapshot.lists = Arc::new(lists);
                        snapshot.pid = child.as_ref().map(|child| child.pid);
                        snapshot.noise = switch.noise.load(Ordering::Relaxed);
                    });
                }
                Err(why) if is_listed => {
                    tracing::warn!(server = %server.spec.name, ?why, "its lists could not be had; the old ones stay");
                }
                Err(why) => break Some(format!("it does not list its tools: {}", shown(&why))),
            }
            wants_list = false;
        }
        tokio::select! {
            Down { why, .. } = switch.ended() => break Some(why),
            () = told(stop) => break None,
            _ = list_changes.changed() => wants_list = true,
            Some(uri) = updates.recv() => {
                // Full means that nobody hears of it in time; the next change tells the same.
                let _full = told_on.try_send(uri);
            }
            () = sleep_until(probe) => {
                probe = Instant::now() + PROBE_EVERY;
                if let Some(why) = silent(&links.primary).await {
                    break Some(why);
                }
            }
        }
    };
    server.links.send_replace(None);
    let why = end.clone().unwrap_or_else(|| "it is being stopped".to_owned());
    switch.end(false, why);
    listeners.shutdown().await;
    if end.is_none() {
        for link in links.all() {
            if let Wire::Http(http) = &link.wire {
                http.close().await;
            }
        }
    }
    match (child, &end) {
        (Some(child), None) => child.end().await,
        (Some(child), Some(_)) => child.kill().await,
        (None, _) => {}
    }
    end
}

/// Why a server counts as down when it is asked whether it is there; nothing when it answers.
async fn silent(link: &Link) -> Option<String> {
    let method = match link.era {
        Era::Legacy => "ping",
        Era::Modern => "server/discover",
    };
    match link.request(method, Map::new(), With::patience(Patience::of(PROBE_PATIENCE))).await {
        // An error is an answer too.
        Ok(_) | Err(NoAnswer::Rpc(_)) => None,
        Err(why) => Some(format!("it does not answer a {method}: {}", shown(&why))),
    }
}

/// Hears what a server tells by itself: on the stream of the older era, or on a subscription of the modern one.
fn listen(server: &Server, links: &Links, switch: &Arc<Switch>, listeners: &mut JoinSet<()>) {
    for link in links.all() {
        match (link.era, &link.wire) {
            (Era::Legacy, Wire::Http(http)) => {
                let (http, switch) = (Arc::clone(http), Arc::clone(switch));
                listeners.spawn(async move { http.listen_on(&switch).await });
            }
            // A child says it on its output.
            (Era::Legacy, Wire::Pipe(_)) => {}
            (Era::Modern, _) => {
                let (link, watched) = (Arc::clone(link), server.watched.subscribe());
                listeners.spawn(subscribe(link, watched));
            }
        }
    }
}

/// A server that has come back knows nothing of what was watched; and what changed while it was away, nobody heard.
fn watch_again(server: &Server, links: &Links, listeners: &mut JoinSet<()>, told_on: &mpsc::Sender<String>) {
    let uris: Vec<String> = server.watched.borrow().keys().cloned().collect();
    if uris.is_empty() {
        return;
    }
    for uri in &uris {
        // Full means that much is told already.
        let _full = told_on.try_send(uri.clone());
    }
    let Some(link) = links.all().find(|link| link.era == Era::Legacy).cloned() else { return };
    let patience = Patience::of(server.spec.timeout);
    listeners.spawn(async move {
        for uri in uris {
            let params = object(json!({"uri": uri}));
            if let Err(why) = link.request("resources/subscribe", params, With::patience(patience)).await {
                tracing::warn!(uri, "a resource is not watched any more: {}", shown(&why));
            }
        }
    });
}

/// Keeps a subscription open, and opens it anew when other resources are watched.
async fn subscribe(link: Arc<Link>, mut watched: watch::Receiver<std::collections::BTreeMap<String, usize>>) {
    let mut failures: u32 = 0;
    while failures < 5 {
        let uris: Vec<String> = watched.borrow_and_update().keys().cloned().collect();
        let mut filter = json!({"toolsListChanged": true, "promptsListChanged": true, "resourcesListChanged": true});
        if !uris.is_empty() {
            filter["resourceSubscriptions"] = json!(uris);
        }
        let mut params = Map::new();
        params.insert("notifications".to_owned(), filter);
        // As long as the connection: it ends with it.
        let patience = Patience::of(Duration::from_secs(365 * 24 * 3600));
        let began = Instant::now();
        let ended = tokio::select! {
            ended = link.request("subscriptions/listen", params, With::patience(patience)) => ended,
            changed = watched.changed() => match changed {
                Ok(()) => continue,
                Err(_) => return,
            },
        };
        match ended {
            // It has nothing to tell.
            Err(NoAnswer::Rpc(_)) => return,
            Ok(_)
            | Err(
                NoAnswer::NotSent(_)
                | NoAnswer::Lost { .. }
                | NoAnswer::TimedOut
                | NoAnswer::Unauthorized(_)
                | NoAnswer::Refused(_),
            ) => {
                failures = if began.elapsed() >= STEADY { 0 } else { failures + 1 };
                sleep_until(Instant::now() + PAUSE_FIRST).await;
            }
        }
    }
}

pub(super) fn shown(why: &NoAnswer) -> String {
    match why {
        NoAnswer::NotSent(why) | NoAnswer::Lost { why, .. } | NoAnswer::Unauthorized(why) | NoAnswer::Refused(why) => {
            why.clone()
        }
        NoAnswer::Rpc(error) => {
            format!("error {}: {}", error.code, plain(&error.message, 200))
        }
        NoAnswer::TimedOut => "no answer in time".to_owned(),
    }
}

async fn connect(server: &Server) -> Result<Reached, String> {
    let (switch, updates) = Switch::new();
    match &server.spec.reach {
        Reach::Command { command, cwd, env, secrets } => {
            let mut env: Vec<(String, String)> =
                env.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
            for (name, file) in secrets {
                env.push((name.clone(), secret(file)?));
            }
            let start = Start { server: &server.spec.name, command, cwd: cwd.as_deref(), env };
            let (child, wire) = Child::start(&start, &switch)?;
            match greet_child(&wire, &switch, server.spec.era).await {
                Ok(link) => Ok(Reached {
                    child: Some(child),
                    links: Links { primary: Arc::new(link), other: None },
                    switch,
                    updates,
                }),
                Err(why) => {
                    child.kill().await;
                    Err(why)
                }
            }
        }
        Reach::Url { url, token, oauth: _ } => {
            let access = match (token, &server.account) {
                (Some(token), _) => Access::token(&secret(token)?)?,
                (None, Some(account)) => Access::Account(Arc::clone(account)),
                (None, None) => Access::Open,
            };
            let connector = server.connector.as_ref().map_err(String::clone)?;
            let links = greet_far(connector, url, &access, &switch, server.spec.era).await?;
            Ok(Reached { child: None, links, switch, updates })
        }
    }
}

/// A child has one era for life. The older one is tried first: a server of the older era may be silent about what it
/// does not know, one of the modern era answers an `initialize` with an error.
async fn greet_child(wire: &Wire, switch: &Arc<Switch>, era: Option<Era>) -> Result<Link, String> {
    match era {
        Some(Era::Modern) => discover(wire, switch).await.map_err(|why| unfriendly(&why)),
        Some(Era::Legacy) => initialize(wire, switch).await.map_err(|why| unfriendly(&why)),
        None => match initialize(wire, switch).await {
            Err(NoAnswer::Rpc(_)) => discover(wire, switch).await.map_err(|why| unfriendly(&why)),
            other => other.map_err(|why| unfriendly(&why)),
        },
    }
}

fn unfriendly(why: &NoAnswer) -> String {
    format!("it does not say hello: {}", shown(why))
}

/// An HTTP server may speak both eras, and then has a link for each.
async fn greet_far(
    connector: &Connector,
    url: &str,
    access: &Access,
    switch: &Arc<Switch>,
    era: Option<Era>,
) -> Result<Links, String> {
    let wire = |era| Wire::Http(Arc::new(connector.to(url, access.clone(), era)));
    let modern = match era {
        Some(Era::Legacy) => None,
        Some(Era::Modern) | None => Some(discover(&wire(Era::Modern), switch).await),
    };
    let legacy = match era {
        Some(Era::Modern) => None,
        Some(Era::Legacy) | None => Some(initialize(&wire(Era::Legacy), switch).await),
    };
    match (modern, legacy) {
        (Some(Ok(primary)), other) => {
            Ok(Links { primary: Arc::new(primary), other: other.and_then(Result::ok).map(Arc::new) })
        }
        (_, Some(Ok(primary))) => Ok(Links { primary: Arc::new(primary), other: None }),
        // A server of one era says in the other that it does not know it; what it wants it says in its own.
        (Some(Err(why @ NoAnswer::Unauthorized(_))), Some(Err(_))) | (_, Some(Err(why))) | (Some(Err(why)), None) => {
            Err(unfriendly(&why))
        }
        (None, None) => Err("it speaks no protocol that is known".to_owned()),
    }
}

async fn initialize(wire: &Wire, switch: &Arc<Switch>) -> Result<Link, NoAnswer> {
    let with = With::patience(Patience::of(HELLO_PATIENCE));
    let hello = request(wire, switch, Era::Legacy, "initialize", lists::initialize(), with).await?;
    let version = hello["protocolVersion"].as_str().unwrap_or_default();
    if !SPOKEN.contains(&version) {
        let fact = format!("it speaks revision {:?}, which is not known", plain(version, 32));
        return Err(NoAnswer::NotSent(fact));
    }
    if let Wire::Http(http) = wire {
        http.settle(version);
    }
    let link = Link { era: Era::Legacy, hello, wire: wire.clone(), switch: Arc::clone(switch) };
    link.notify("notifications/initialized", &json!({})).await?;
    Ok(link)
}

async fn discover(wire: &Wire, switch: &Arc<Switch>) -> Result<Link, NoAnswer> {
    let with = With::patience(Patience::of(HELLO_PATIENCE));
    let hello = request(wire, switch, Era::Modern, "server/discover", Map::new(), with).await?;
    let speaks = hello["supportedVersions"].as_array().is_some_and(|all| all.iter().any(|one| one == era::MODERN));
    if !speaks {
        return Err(NoAnswer::NotSent(format!("it does not speak {}", era::MODERN)));
    }
    Ok(Link { era: Era::Modern, hello, wire: wire.clone(), switch: Arc::clone(switch) })
}

/// Reads a secret: one line, without its end. What is wrong with it is told without it.
pub(super) fn secret(file: &Path) -> Result<String, String> {
    let told = |fact: String| format!("secret {}: {fact}", file.display());
    let length = std::fs::metadata(file).map_err(|error| told(error.to_string()))?.len();
    if length > SECRET_LEN_MAX {
        return Err(told(format!("it has {length} bytes; {SECRET_LEN_MAX} are read at most")));
    }
    let text = std::fs::read_to_string(file).map_err(|error| told(error.to_string()))?;
    let text = text.trim_end_matches(['\n', '\r']);
    if text.is_empty() || text.contains(['\n', '\0']) {
        return Err(told("it is not one line of text".to_owned()));
    }
    Ok(text.to_owned())
}

/// The value of an object's member, as an owned map.
pub(super) fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(members) => members,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Map::new(),
    }
}

/// Waits until a server is up again, at most that long.
pub(super) async fn up_again(server: &Server, patience: Duration) -> Option<Links> {
    let mut links = server.links.subscribe();
    // Those of the life that has just ended may still stand there.
    let is_up = |links: &Option<Links>| links.as_ref().is_some_and(|links| links.primary.switch.down().is_none());
    let waited = timeout(patience, links.wait_for(is_up)).await;
    waited.ok()?.ok()?.clone()
}

//! What our clients ask of the servers that is no call: prompts, resources, completion.
//!
//! Lists are put together from all servers that are up. What names one thing goes to the server that has it, under that
//! server's own name for it.

use std::sync::Arc;

use interlock_domain::request::shown::plain;
use serde_json::{Map, Value, json};

use super::link::{NoAnswer, Patience, With};
use super::{Server, Servers, WATCHED_MAX, call, keep};
use crate::mcp::era::Era;
use crate::mcp::name;
use crate::mcp::rpc::{self, RpcError};
use crate::mcp::upward::Line;

/// How often one request may ask before it goes on.
const ROUNDS_MAX: usize = 8;

/// What a server's name is to our clients: its prefix, and whether anything of it is for them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// The server.
    pub server: String,
    /// What stands before the names of its prompts.
    pub prefix: String,
}

impl Servers {
    /// Answers one request from the servers in `shown`.
    ///
    /// # Errors
    /// The server's own error, and `INVALID_PARAMS` for what no server has.
    pub async fn relay(
        &self,
        shown: &[Shown],
        method: &str,
        params: Map<String, Value>,
        line: &Line,
    ) -> Result<Value, RpcError> {
        let among: Vec<(&Shown, Arc<Server>)> =
            shown.iter().filter_map(|shown| Some((shown, self.find(&shown.server)?))).collect();
        match method {
            "prompts/list" => Ok(prompts(&among)),
            "resources/list" => Ok(gathered(&among, "resources", |lists| &lists.resources)),
            "resources/templates/list" => Ok(gathered(&among, "resourceTemplates", |lists| &lists.templates)),
            "prompts/get" => {
                let asked = params.get("name").and_then(Value::as_str).unwrap_or_default();
                let (server, raw) = prompt(&among, asked).ok_or_else(|| unknown("prompt", asked))?;
                let mut params = params.clone();
                params.insert("name".to_owned(), raw.into());
                server.relay(method, params, line).await
            }
            "resources/read" | "resources/subscribe" | "resources/unsubscribe" => {
                let uri = params.get("uri").and_then(Value::as_str).unwrap_or_default();
                let server = resource(&among, uri).ok_or_else(|| unknown("resource", uri))?;
                match method {
                    "resources/read" => server.relay(method, params.clone(), line).await,
                    "resources/subscribe" => server.watch(uri, line).await,
                    _ => server.unwatch(uri, line).await,
                }
            }
            "completion/complete" => complete(&among, params, line).await,
            _ => Err(RpcError::new(rpc::METHOD_NOT_FOUND, format!("there is no {method}"))),
        }
    }
}

fn unknown(what: &str, name: &str) -> RpcError {
    RpcError::new(rpc::INVALID_PARAMS, format!("no server has a {what} {:?}", plain(name, 200)))
}

fn gathered(among: &[(&Shown, Arc<Server>)], member: &str, of: impl Fn(&super::Lists) -> &Vec<Value>) -> Value {
    let all: Vec<Value> = among.iter().flat_map(|(_, server)| of(&server.snapshot().lists).clone()).collect();
    json!({member: all})
}

fn exposed(among: &[(&Shown, Arc<Server>)], shown: &Shown, raw: &str) -> String {
    let others = among.iter().map(|(other, _)| other.prefix.as_str());
    name::exposed(&shown.server, &shown.prefix, raw, others, |_| false)
}

fn prompts(among: &[(&Shown, Arc<Server>)]) -> Value {
    let mut all = Vec::new();
    for (shown, server) in among {
        for prompt in &server.snapshot().lists.prompts {
            if let Some(raw) = prompt["name"].as_str() {
                let name = exposed(among, shown, raw);
                let mut prompt = prompt.clone();
                prompt["name"] = name.into();
                all.push(prompt);
            }
        }
    }
    json!({"prompts": all})
}

fn prompt(among: &[(&Shown, Arc<Server>)], asked: &str) -> Option<(Arc<Server>, String)> {
    among.iter().find_map(|(shown, server)| {
        let lists = Arc::clone(&server.snapshot().lists);
        let raw = lists.prompts.iter().find_map(|prompt| {
            let raw = prompt["name"].as_str()?;
            (exposed(among, shown, raw) == asked).then(|| raw.to_owned())
        });
        raw.map(|raw| (Arc::clone(server), raw))
    })
}

/// The server of a resource: the one that lists it, else the one with the template that fits best, else the only one
/// that has resources at all, whose own word counts then.
fn resource(among: &[(&Shown, Arc<Server>)], uri: &str) -> Option<Arc<Server>> {
    let having: Vec<&Arc<Server>> =
        among.iter().map(|(_, server)| server).filter(|server| server.snapshot().lists.offers_resources).collect();
    let lists = |server: &Arc<Server>, uri: &str| {
        server.snapshot().lists.resources.iter().any(|resource| resource["uri"] == uri)
    };
    if let Some(server) = having.iter().find(|server| lists(server, uri)) {
        return Some(Arc::clone(server));
    }
    // The fixed beginning of a template tells whose it is well enough; the longest one wins.
    let fit = |server: &Arc<Server>| {
        let snapshot = server.snapshot();
        let templates = snapshot.lists.templates.iter().filter_map(|template| template["uriTemplate"].as_str());
        let fixed = templates.filter_map(|template| template.split('{').next());
        fixed.filter(|fixed| !fixed.is_empty() && uri.starts_with(*fixed)).map(str::len).max()
    };
    let best = having.iter().filter_map(|server| Some((fit(server)?, *server))).max_by_key(|(length, _)| *length);
    match (best, having.as_slice()) {
        (Some((_, server)), _) => Some(Arc::clone(server)),
        (None, [only]) => Some(Arc::clone(only)),
        (None, _) => None,
    }
}

async fn complete(among: &[(&Shown, Arc<Server>)], params: Map<String, Value>, line: &Line) -> Result<Value, RpcError> {
    let reference = params.get("ref").cloned().unwrap_or(Value::Null);
    let mut params = params;
    let server = match (reference["type"].as_str(), reference["name"].as_str(), reference["uri"].as_str()) {
        (Some("ref/prompt"), Some(asked), _) => {
            let (server, raw) = prompt(among, asked).ok_or_else(|| unknown("prompt", asked))?;
            params.insert("ref".to_owned(), {
                let mut reference = reference.clone();
                reference["name"] = raw.into();
                reference
            });
            server
        }
        (Some("ref/resource"), _, Some(uri)) => {
            let named = among
                .iter()
                .map(|(_, server)| server)
                .find(|server| server.snapshot().lists.templates.iter().any(|template| template["uriTemplate"] == uri));
            named.map(Arc::clone).or_else(|| resource(among, uri)).ok_or_else(|| unknown("resource", uri))?
        }
        _ => return Err(RpcError::new(rpc::INVALID_PARAMS, "\"ref\" names neither a prompt nor a resource")),
    };
    if !server.snapshot().lists.offers_completions {
        return Ok(json!({"completion": {"values": [], "hasMore": false}}));
    }
    server.relay("completion/complete", params, line).await
}

impl Server {
    async fn relay(&self, method: &str, mut params: Map<String, Value>, line: &Line) -> Result<Value, RpcError> {
        let links = self.links().ok_or_else(|| self.not_there())?;
        let with = With {
            line: Some(line),
            patience: Patience { idle: self.spec.timeout, total: self.spec.total_timeout },
            schema: None,
        };
        for _ in 0..ROUNDS_MAX {
            let result = links.of(line.era).request(method, params.clone(), with).await;
            let mut result = result.map_err(|why| self.told(why))?;
            if result["resultType"] != "input_required" {
                if let Some(members) = result.as_object_mut() {
                    members.remove("resultType");
                }
                return Ok(result);
            }
            let answers = call::answers(&result, Some(line)).await.map_err(super::link::not_asked)?;
            params.insert("inputResponses".to_owned(), answers);
            if let Some(state) = result.get("requestState") {
                params.insert("requestState".to_owned(), state.clone());
            }
        }
        Err(RpcError::new(
            rpc::INTERNAL_ERROR,
            format!("{} asked {ROUNDS_MAX} times and did not go on", self.spec.name),
        ))
    }

    fn not_there(&self) -> RpcError {
        RpcError::new(rpc::INTERNAL_ERROR, format!("MCP server {} is down: {}", self.spec.name, self.why_down()))
    }

    fn told(&self, why: NoAnswer) -> RpcError {
        match why {
            NoAnswer::Rpc(error) => error,
            NoAnswer::NotSent(why)
            | NoAnswer::Lost { why, .. }
            | NoAnswer::Unauthorized(why)
            | NoAnswer::Refused(why) => {
                RpcError::new(rpc::INTERNAL_ERROR, format!("MCP server {}: {why}", self.spec.name))
            }
            NoAnswer::TimedOut => {
                RpcError::new(rpc::INTERNAL_ERROR, format!("MCP server {} gave no answer in time", self.spec.name))
            }
        }
    }

    /// One more client watches a resource.
    async fn watch(&self, uri: &str, line: &Line) -> Result<Value, RpcError> {
        let links = self.links().ok_or_else(|| self.not_there())?;
        let (mut is_first, mut fits) = (false, true);
        self.watched.send_if_modified(|watched| {
            if watched.len() >= WATCHED_MAX && !watched.contains_key(uri) {
                fits = false;
                return false;
            }
            let count = watched.entry(uri.to_owned()).or_insert(0);
            *count += 1;
            is_first = *count == 1;
            // Only another set of resources is news for the subscription.
            is_first
        });
        if !fits {
            return Err(RpcError::new(rpc::BUSY, format!("{WATCHED_MAX} resources of {} are watched", self.spec.name)));
        }
        let told = self.in_the_older_era(&links, "resources/subscribe", uri, line, is_first).await;
        if told.is_err() {
            self.forget(uri);
        }
        told
    }

    /// One that watches fewer; whether it was the last.
    fn forget(&self, uri: &str) -> bool {
        let mut was_last = false;
        self.watched.send_if_modified(|watched| {
            let Some(count) = watched.get_mut(uri) else { return false };
            *count -= 1;
            was_last = *count == 0;
            if was_last {
                watched.remove(uri);
            }
            was_last
        });
        was_last
    }

    /// One client fewer does.
    async fn unwatch(&self, uri: &str, line: &Line) -> Result<Value, RpcError> {
        let was_last = self.forget(uri);
        // One that is down knows nothing of it any more.
        let Some(links) = self.links() else { return Ok(json!({})) };
        self.in_the_older_era(&links, "resources/unsubscribe", uri, line, was_last).await
    }

    /// The older era has a request for it; in the modern one the subscription of the keeper takes it up.
    async fn in_the_older_era(
        &self,
        links: &super::Links,
        method: &str,
        uri: &str,
        line: &Line,
        is_due: bool,
    ) -> Result<Value, RpcError> {
        let link = links.of(line.era);
        if link.era == Era::Modern || !is_due {
            return Ok(json!({}));
        }
        let params = keep::object(json!({"uri": uri}));
        let with = With::patience(Patience::of(self.spec.timeout));
        link.request(method, params, with).await.map_err(|why| self.told(why))
    }
}

//! `subscriptions/listen`: a request of the modern era that stays open and tells what its client asked to be told.
//!
//! Nothing is told that was not asked for. A listener that was too slow and missed something is told that everything
//! it listens to may have changed: better one list too many than one change lost.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Map, Value, json};
use tokio::sync::{broadcast, mpsc};

use crate::agents::core::Core;
use crate::agents::ctx::{Ctx, Fault};
use crate::agents::engine::{Engine, News, Offers};
use crate::agents::session::WATCHED_MAX;
use crate::agents::tasks::methods;
use crate::agents::tasks::record::Record;
use crate::mcp::era::{self, Era};
use crate::mcp::rpc::{self, Request, RpcError};
use crate::mcp::upward::Line;

/// What one listener is told.
#[derive(Debug)]
struct Wanted {
    tools: bool,
    prompts: bool,
    resources: bool,
    watched: BTreeSet<String>,
    /// Tasks of its client.
    tasks: BTreeMap<String, Arc<Record>>,
}

impl Wanted {
    fn read(params: &Map<String, Value>, offers: Offers) -> Result<Wanted, RpcError> {
        let filter = match params.get("notifications") {
            Some(filter @ Value::Object(_)) => filter,
            _ => return Err(RpcError::new(rpc::INVALID_PARAMS, "\"notifications\" is an object")),
        };
        let is_on = |what: &str| filter[what] == true;
        let watched: BTreeSet<String> = match filter.get("resourceSubscriptions").and_then(Value::as_array) {
            Some(uris) if offers.resources => uris.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            Some(_) | None => BTreeSet::new(),
        };
        if watched.len() > WATCHED_MAX {
            let message = format!("more than {WATCHED_MAX} resources are not watched at once");
            return Err(RpcError::new(rpc::INVALID_PARAMS, message));
        }
        Ok(Wanted {
            tools: is_on("toolsListChanged"),
            prompts: is_on("promptsListChanged") && offers.prompts,
            resources: is_on("resourcesListChanged") && offers.resources,
            watched,
            tasks: BTreeMap::new(),
        })
    }

    /// What was granted, as the acknowledgement says it.
    fn granted(&self) -> Value {
        let mut granted = Map::new();
        for (name, is_on) in [
            ("toolsListChanged", self.tools),
            ("promptsListChanged", self.prompts),
            ("resourcesListChanged", self.resources),
        ] {
            if is_on {
                granted.insert(name.to_owned(), true.into());
            }
        }
        if !self.watched.is_empty() {
            granted.insert("resourceSubscriptions".to_owned(), json!(self.watched));
        }
        if !self.tasks.is_empty() {
            granted.insert("taskIds".to_owned(), json!(self.tasks.keys().collect::<Vec<_>>()));
        }
        Value::Object(granted)
    }

    fn wants(&self, news: &News) -> bool {
        match news {
            News::ToolsChanged => self.tools,
            News::PromptsChanged => self.prompts,
            News::ResourcesChanged => self.resources,
            News::ResourceUpdated(uri) => self.watched.contains(uri),
        }
    }

    /// All that it could have missed.
    fn everything(&self) -> Vec<News> {
        let watched = self.watched.iter().cloned().map(News::ResourceUpdated);
        News::LISTS.into_iter().chain(watched).collect()
    }
}

/// Stays open until the client goes or the daemon stops.
///
/// # Errors
/// When the filter is none, and when the client went away.
pub async fn listen(core: &Core, request: &Request, ctx: &mut Ctx) -> Result<Value, Fault> {
    // Subscribed before it is acknowledged: what happens in between is told, not lost.
    let mut news = core.engine.news.subscribe();
    let mut task_news = core.tasks.news();
    let mut wanted = Wanted::read(&request.params, core.engine.offers())?;
    wanted.tasks = tasks(core, &request.params, ctx)?;
    let subscription = json!({era::META_SUBSCRIPTION: ctx.id.to_value()});
    tell_servers(&core.engine, &wanted.watched, ctx.era, "resources/subscribe").await;
    let acknowledged = json!({"_meta": subscription, "notifications": wanted.granted()});
    ctx.notify("notifications/subscriptions/acknowledged", &acknowledged);
    // What changed between the making of a task and now would be lost otherwise.
    wanted.tasks.values().for_each(|record| tell(ctx, &subscription, record));
    let cancel = ctx.cancel.clone();
    let end = loop {
        let heard = tokio::select! {
            () = cancel.cancelled() => break Err(Fault::Cancelled),
            () = core.halt.cancelled() => break Ok(json!({"_meta": subscription})),
            changed = task_news.recv() => {
                match changed {
                    Ok(record) if wanted.tasks.contains_key(&record.id) => tell(ctx, &subscription, &record),
                    Err(broadcast::error::RecvError::Lagged(_)) => {
                        wanted.tasks.values().for_each(|record| tell(ctx, &subscription, record));
                    }
                    Ok(_) | Err(broadcast::error::RecvError::Closed) => {}
                }
                continue;
            }
            heard = news.recv() => match heard {
                Ok(news) => vec![news],
                Err(broadcast::error::RecvError::Lagged(_)) => wanted.everything(),
                Err(broadcast::error::RecvError::Closed) => break Ok(json!({"_meta": subscription})),
            },
        };
        for news in heard.iter().filter(|news| wanted.wants(news)) {
            let (method, uri) = news.notification();
            let mut params = json!({"_meta": subscription});
            if let Some(uri) = uri {
                params["uri"] = uri.into();
            }
            ctx.notify(method, &params);
        }
    };
    tell_servers(&core.engine, &wanted.watched, ctx.era, "resources/unsubscribe").await;
    end
}

/// The tasks that the filter names, as far as they are this client's.
fn tasks(core: &Core, params: &Map<String, Value>, ctx: &Ctx) -> Result<BTreeMap<String, Arc<Record>>, RpcError> {
    let named = match params.get("notifications").and_then(|filter| filter.get("taskIds")) {
        None => return Ok(BTreeMap::new()),
        Some(Value::Array(named)) => named,
        Some(_) => return Err(RpcError::new(rpc::INVALID_PARAMS, "\"taskIds\" is a list")),
    };
    if !methods::knows_tasks(&ctx.capabilities) {
        return Err(methods::undeclared());
    }
    if named.len() > WATCHED_MAX {
        let message = format!("more than {WATCHED_MAX} tasks are not watched at once");
        return Err(RpcError::new(rpc::INVALID_PARAMS, message));
    }
    let found = named.iter().filter_map(|id| core.tasks.find(id.as_str()?, &ctx.owner));
    Ok(found.map(|record| (record.id.clone(), record)).collect())
}

fn tell(ctx: &Ctx, subscription: &Value, record: &Record) {
    let mut params = record.modern_in_detail();
    for (name, value) in subscription.as_object().into_iter().flatten() {
        params["_meta"][name] = value.clone();
    }
    ctx.notify("notifications/tasks", &params);
}

/// Tells the servers behind us which resources are watched, or not any more. What they answer changes nothing here:
/// a resource that cannot be watched is silent.
pub async fn tell_servers(engine: &Engine, watched: &BTreeSet<String>, era: Era, method: &str) {
    for uri in watched {
        // Nothing comes up from a subscription.
        let (up, _nothing) = mpsc::channel(1);
        if let Ok(answer) = engine.relay(method, json!({"uri": uri}), Line::new(up, era)) {
            let _silent = answer.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_asked_for_and_offered_is_granted() {
        let offers = Offers { prompts: false, resources: true, completions: false };
        let asked = json!({"notifications": {"toolsListChanged": true, "promptsListChanged": true,
            "resourcesListChanged": "yes", "resourceSubscriptions": ["a://b", 7], "unknown": true}});
        let wanted = Wanted::read(asked.as_object().expect("an object"), offers).expect("a filter");
        assert_eq!(wanted.granted(), json!({"toolsListChanged": true, "resourceSubscriptions": ["a://b"]}));
        for (news, is_told) in [
            (News::ToolsChanged, true),
            (News::PromptsChanged, false),
            (News::ResourcesChanged, false),
            (News::ResourceUpdated("a://b".into()), true),
            (News::ResourceUpdated("a://c".into()), false),
        ] {
            assert_eq!(wanted.wants(&news), is_told, "{news:?}");
        }
        assert!(Wanted::read(&Map::new(), offers).is_err());
    }
}

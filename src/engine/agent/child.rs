//! Subagents: a run of its own with at most its parent's tools and mode, made by a call of its parent's.
//!
//! The call is a composite: while its child works it holds no key, no lane and no barrier, and its stop cancels what the
//! child has under way. The child walks the same path as everybody; its gate has the rules of its parent and none of
//! the grants. A work tree of its own separates what it writes into the repository and nothing else: network, devices,
//! credentials and all other files are as open to it as to its parent.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use interlock_domain::agent::profile::{DEPTH_MAX, Profile};
use interlock_domain::block::{Block, Message, Role};
use interlock_domain::effect::Order;
use interlock_domain::effect::report::{Failure, Loss, Report};
use interlock_domain::id::{CallId, ToolName};
use interlock_domain::request::{Asker, Via};
use interlock_domain::risk::Risk;
use interlock_domain::surface::contract::Contract;
use interlock_domain::surface::nature::{Class, Keys};
use interlock_domain::surface::tool::{Annotations, BadTool, Declaration, Declared, Definition, Kind, Text, Tool};
use serde_json::{Value, json};

use super::told::Told;
use super::{Handle, NotAsked, Parts, TEXT_BYTES_MAX, told};
use crate::engine::handle::{SUBAGENT, Who, Within};
use crate::provider::form;
use crate::store::conversation::{self, Line, Opened};
use crate::tool::Stop;
use crate::tool::worktree::{self, Tree};

/// How long a subagent may work. A model that takes longer has lost its way, and its parent waits.
const PATIENCE: Duration = Duration::from_secs(3600);

/// What a subagent in a work tree is told, and whoever reads its result.
pub(super) const WORKTREE: &str = "You work in a git work tree of your own. It separates what you write into the \
repository and nothing else: network, devices, credentials and all other files are shared.";

/// The order makes a subagent.
#[must_use]
pub fn is_one(order: &Order) -> bool {
    order.tool().name().as_str() == SUBAGENT
}

/// The tool.
///
/// # Errors
/// Never in practice: its schema is a constant.
pub fn tool() -> Result<Tool, BadTool> {
    let text = |[en, zh]: [&str; 2]| Text { en: en.to_owned(), zh: zh.to_owned() };
    #[expect(clippy::expect_used, reason = "a constant of letters")]
    let name = ToolName::new(SUBAGENT).expect("letters");
    let declaration = Declaration {
        class: Class::Composite,
        keys: Keys::default(),
        // By itself it changes nothing: each call of the child is judged and recorded for itself.
        risk: Risk::Read,
        protective: false,
        contract: Arc::new(Contract::reads(SUBAGENT)),
        patience: PATIENCE,
    };
    Tool::new(Definition {
        name,
        title: text(["Subagent", "子代理"]),
        description: text([
            "Gives a task to a subagent and returns its last words. It has at most your tools, and none of what was \
             granted to you. `profile` names a kind of subagent; `tools` narrows its tools further. It knows only what \
             `task` says, unless its profile says otherwise.",
            "把一项任务交给子代理，返回其最后的答复。子代理最多拥有你的工具，且不继承已授予你的许可。profile 指定子代理类型；\
             tools 进一步收窄其工具。除非类型另有规定，它只知道 task 所写的内容。",
        ]),
        input_schema: json!({
            "type": "object",
            "properties": {
                "task": { "type": "string", "minLength": 1, "maxLength": TEXT_BYTES_MAX },
                "profile": { "type": "string", "minLength": 1, "maxLength": 64 },
                "tools": { "type": "array", "items": { "type": "string" }, "maxItems": 256 },
            },
            "required": ["task"],
            "additionalProperties": false,
        }),
        output_schema: Some(json!({
            "type": "object",
            "properties": {
                "run": { "type": "string" }, "outcome": { "type": "string" }, "text": { "type": "string" },
                "message": { "type": "string" }, "worktree": { "type": ["object", "null"] },
            },
            "required": ["run", "outcome", "text"],
        })),
        annotations: Annotations { read_only: Some(false), ..Annotations::default() },
        kind: Kind::Declared(Declared { mcp: None, verb_in: None, verbs: BTreeMap::new(), otherwise: declaration }),
    })
}

impl Handle {
    /// Runs a subagent for its parent's call, to its end or its stop.
    pub async fn child(&self, order: Order, stop: Stop) -> Report {
        let call = order.call();
        self.work(call, Arc::clone(order.args()), stop).await
    }

    async fn work(&self, call: CallId, input: Arc<Value>, stop: Stop) -> Report {
        let Some(settings) = self.parts.settings.borrow().clone() else {
            return failed("no_model", NotAsked::NoModel.to_string());
        };
        let profile = match input["profile"].as_str() {
            None => Profile::default(),
            Some(name) => match settings.profiles.iter().find(|profile| profile.name == name) {
                Some(profile) => profile.clone(),
                None => {
                    let known: Vec<&str> = settings.profiles.iter().map(|profile| profile.name.as_str()).collect();
                    return failed("no_such_profile", format!("no profile {name:?}; there are {}", known.join(", ")));
                }
            },
        };
        let Ok(place) = Arc::clone(&self.parts.children).try_acquire_owned() else {
            return failed("busy", NotAsked::TooManyChildren.to_string());
        };
        let (above, history) = match parent(&self.parts, call).await {
            Ok(parent) => parent,
            Err(error) => return failed("no_parent", error.to_string()),
        };
        let depth = above.depth + 1;
        if depth > DEPTH_MAX {
            return failed("too_deep", format!("subagents make subagents {DEPTH_MAX} deep at most"));
        }
        let tree = match &profile.worktree {
            false => None,
            true => {
                let repository = above.cwd.clone().unwrap_or_else(|| settings.cwd.clone());
                let at = self.parts.state.join("work").join("trees").join(call.to_string());
                match worktree::add(&repository, &at).await {
                    Ok(tree) => Some(tree),
                    Err(error) => return failed("no_worktree", error.to_string()),
                }
            }
        };
        let names = input["tools"].as_array().map(|names| names.iter().filter_map(Value::as_str).map(str::to_owned));
        let cwd = tree.as_ref().map(|tree| tree.path().to_owned()).or(above.cwd.clone());
        let who = Who {
            asker: Asker { via: Via::Agent, name: format!("subagent {}", profile.name).trim().to_owned() },
            answerable: true,
            mode: profile.mode,
            parent: Some(call.run),
            narrowing: profile.narrowing(names.map(Iterator::collect)),
        };
        let work_dirs = cwd.iter().filter_map(|cwd| cwd.to_str()).map(str::to_owned).collect();
        let within = Within { parent: Some(call), again: None, part: None, cwd: cwd.clone(), work_dirs };
        let (name, start) = (who.asker.name.clone(), if profile.fork { "fork" } else { "cold" });
        let before = if profile.fork { above.before.iter().copied().chain([call.run]).collect() } else { Vec::new() };
        let opened = Opened { depth, cwd, before };
        let history = if profile.fork { history } else { Vec::new() };
        let task = input["task"].as_str().unwrap_or_default().to_owned();
        let begun = self.begin(settings, who, within, opened, Some(profile)).await;
        let (runner, mut told) = match begun {
            Ok(begun) => begun,
            Err(error) => {
                if let Some(tree) = tree {
                    tree.put_away().await;
                }
                return failed("not_begun", error.to_string());
            }
        };
        let run = runner.run;
        runner.asked_by(call, &name, start, &task);
        // A task of its own: this one may be dropped in the middle, and the run closes itself all the same.
        let driving = tokio::spawn(async move {
            runner.drive(history, vec![Block::text(task)]).await;
            drop(place);
        });
        let mut end = None;
        let mut stopped = std::pin::pin!(stop.asked());
        loop {
            tokio::select! {
                said = told.recv() => match said {
                    Some(Told::End { ended, text, .. }) => end = Some((ended, text)),
                    Some(_) => {}
                    None => break,
                },
                () = &mut stopped => {
                    // The machine has cancelled its batches; with nobody listening, the run ends by itself. By itself a
                    // subagent changes nothing: what its calls did is settled call by call.
                    drop(told);
                    return Report::Done(json!({
                        "run": run.to_string(), "outcome": "cancelled", "text": "", "worktree": null,
                        "message": "it was stopped; what became of each of its calls stands in the log",
                    }));
                }
            }
        }
        if driving.await.is_err() || end.is_none() {
            return Report::Lost(Loss::Stopped);
        }
        let tree = match tree {
            None => Value::Null,
            Some(tree) => left(tree).await,
        };
        let (outcome, message, text) = end.map_or(("unknown", String::new(), String::new()), |(ended, text)| {
            (ended.code(), told::message(&ended), text)
        });
        Report::Done(json!({
            "run": run.to_string(), "outcome": outcome, "text": text, "message": message, "worktree": tree,
        }))
    }
}

/// What a work tree is left as: one in which something was changed stays, for a person to look at.
async fn left(tree: Tree) -> Value {
    let path = tree.path().to_owned();
    match tree.is_changed().await {
        Ok(false) => {
            tree.put_away().await;
            json!({ "changed": false, "note": WORKTREE })
        }
        Ok(true) => json!({ "changed": true, "path": path, "note": WORKTREE }),
        Err(error) => json!({ "changed": true, "path": path, "note": error.to_string() }),
    }
}

/// What the parent's run is, and what it knew before the answer that made this call.
async fn parent(parts: &Parts, call: CallId) -> Result<(Opened, Vec<Message>), NotAsked> {
    let (state, run) = (parts.state.clone(), call.run);
    let read = tokio::task::spawn_blocking(move || conversation::read(&state, run)).await;
    let lines = read.map_err(|_| NotAsked::NotTaken(crate::engine::handle::NotTaken::Stopping))??;
    let mut opened = Opened::default();
    let mut history = Vec::new();
    for line in lines {
        match line {
            Line::Opened(of) => opened = of,
            Line::Handing(_) | Line::Batch(_) => {}
            Line::Said(value) => history.extend(form::message_from_json(&value).ok()),
            Line::Whole(values) => history = values.iter().filter_map(|v| form::message_from_json(v).ok()).collect(),
        }
    }
    // The answer whose calls are under way is not closed: the child knows what was before it.
    while history.last().is_some_and(|last| last.role == Role::Assistant) {
        history.pop();
    }
    Ok((opened, history))
}

fn failed(code: &'static str, message: impl Into<String>) -> Report {
    Report::Failed(Failure { code, message: message.into() })
}

/// Where work trees lie.
#[must_use]
pub fn trees(state: &Path) -> PathBuf {
    state.join("work").join("trees")
}

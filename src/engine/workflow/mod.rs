//! Carries workflows out: keeps each in `state.db` before it acts, makes its attempts as calls of their own, finds out
//! what became of them, and settles.
//!
//! What may be tried and how it ends is decided by `domain::effect::workflow`. Every call that is made here passes the
//! gate like anybody's. What is kept is written before the call it is about is made, so that a crash between any two
//! steps leaves an attempt that is looked up in the evidence, and none that is forgotten.

pub mod tool;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use interlock_domain::closure::Ending;
use interlock_domain::effect::anomaly::{Kind, Verdict};
use interlock_domain::effect::outcome::Known;
use interlock_domain::effect::workflow::{Stage, State, Wanted as Attempted, Workflow};
use interlock_domain::id::{CallId, RunId, ToolName};
use interlock_domain::surface::contract::Effect;
use interlock_domain::surface::nature::{Key, Nature};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use super::handle::{Mediator, Wanted, Within};
use super::keeper::{Keeper, NotKept};
use super::log::{Log, Query};
use crate::record::{Row, workflow as form};
use crate::store::queue::{Entry, Writer};
use crate::sys::clock;

/// Workflows that are not settled. Each holds questions, resources or effects that somebody has to look at.
pub const OPEN_MAX: usize = 64;

/// How long a recipe waits for an unknown outcome to be found out before it says that it is unsettled.
const FIND_OUT_PATIENCE: Duration = Duration::from_secs(90);

/// Between two looks into the evidence while it waits.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Rows about one call: a handful.
const ROWS_OF_A_CALL: usize = 64;

/// Why something was not done; the code is for scripts.
#[derive(Debug, Clone)]
pub struct Refusal {
    /// A short stable word.
    pub code: &'static str,
    /// One sentence.
    pub text: String,
}

impl Refusal {
    fn new(code: &'static str, text: impl Into<String>) -> Refusal {
        Refusal { code, text: text.into() }
    }
}

impl From<NotKept> for Refusal {
    fn from(error: NotKept) -> Refusal {
        Refusal::new("state_not_kept", error.to_string())
    }
}

/// In whose name calls are made.
#[derive(Debug, Clone, Copy)]
pub struct Name {
    /// The composite call.
    pub call: CallId,
    /// Its run.
    pub run: RunId,
}

/// All workflows that are kept.
pub struct Workflows {
    mediator: Mediator,
    keeper: Keeper,
    log: Log,
    writer: Writer,
    // Calls of several clients work on it beside one another; it is never held over an await, so that a message to an
    // owner would only make the same turns longer.
    all: Mutex<BTreeMap<u64, Workflow>>,
}

impl Workflows {
    /// With what the last life left.
    ///
    /// # Errors
    /// When `state.db` cannot be read.
    pub async fn open(mediator: Mediator, keeper: Keeper, log: Log, writer: Writer) -> Result<Workflows, NotKept> {
        let kept = keeper.with(|state| state.workflows()).await?;
        let read = |(id, text): (u64, String)| {
            let workflow = serde_json::from_str(&text).ok().and_then(|value| form::from_json(&value));
            if workflow.is_none() {
                tracing::error!(workflow = id, "a workflow in state.db cannot be read; the evidence has its calls");
            }
            Some((id, workflow?))
        };
        let all = kept.into_iter().filter_map(read).collect();
        Ok(Workflows { mediator, keeper, log, writer, all: Mutex::new(all) })
    }

    fn with<T>(&self, id: u64, act: impl FnOnce(&mut Workflow) -> T) -> Result<T, Refusal> {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let workflow =
            all.get_mut(&id).ok_or_else(|| Refusal::new("no_such_workflow", format!("there is no w{id}")))?;
        Ok(act(workflow))
    }

    /// Writes the workflow as it is now, and a row of what has happened to it.
    async fn keep(&self, id: u64, what: &'static str, detail: Value) -> Result<(), Refusal> {
        let (stage, text) = self.with(id, |workflow| (workflow.stage, form::to_json(workflow).to_string()))?;
        let mut detail = detail;
        detail["workflow"] = format!("w{id}").into();
        let row = Row {
            to: Some(stage.word().into()),
            cause: Some(what.into()),
            ..Row::new(super::stamp::now(), "workflow")
        };
        self.writer.append_or_count(Entry::relaxed(row.detailed(&detail)));
        let now = clock::wall();
        self.keeper.with(move |state| state.keep_workflow(id, stage.word(), &text, now)).await?;
        Ok(())
    }

    /// A new workflow.
    ///
    /// # Errors
    /// When too many are open, or it cannot be kept.
    pub async fn begin(&self, workflow: Workflow) -> Result<u64, Refusal> {
        let is_open = |it: &Workflow| !matches!(it.stage, Stage::Committed | Stage::Aborted);
        let open = self.all.lock().unwrap_or_else(PoisonError::into_inner).values().filter(|it| is_open(it)).count();
        if open >= OPEN_MAX {
            let text = format!("{OPEN_MAX} workflows are not settled; commit or abort some of them");
            return Err(Refusal::new("too_many_workflows", text));
        }
        let id = self.keeper.with(|state| state.set_aside("workflow", 1)).await?;
        self.all.lock().unwrap_or_else(PoisonError::into_inner).insert(id, workflow);
        self.keep(id, "begin", json!({})).await?;
        Ok(id)
    }

    /// Tries something within a workflow. Gives what the tool gave back; nothing while it is held.
    ///
    /// # Errors
    /// Why it was not tried, or how it ended otherwise.
    pub async fn attempt(&self, id: u64, attempted: Attempted, name: Name) -> Result<Option<Value>, Refusal> {
        let op = attempted.op.clone();
        self.refresh(id).await?;
        self.free(id, &attempted.resources)?;
        let made = self.with(id, |workflow| {
            let made = workflow.attempt(attempted)?;
            Ok::<_, interlock_domain::effect::workflow::Refused>((made, workflow.attempts[made.0].state))
        })?;
        let ((at, again), state) = made.map_err(|refused| Refusal::new("refused", refused.to_string()))?;
        if state == State::Held {
            self.keep(id, "held", json!({ "op": op })).await?;
            return Ok(None);
        }
        self.send(id, at, again, name).await.map(Some)
    }

    /// Nobody else's unsettled workflow has changed these.
    fn free(&self, id: u64, resources: &[String]) -> Result<(), Refusal> {
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        for resource in resources {
            let holder = all.iter().find(|(other, workflow)| **other != id && workflow.holds(resource));
            if let Some((holder, _)) = holder {
                let text = format!("{resource} is w{holder}'s until that is settled: their effects do not commute");
                return Err(Refusal::new("held_by_workflow", text));
            }
        }
        Ok(())
    }

    /// Makes the call of an attempt, and notes how it ended.
    async fn send(&self, id: u64, at: usize, again: Option<CallId>, name: Name) -> Result<Value, Refusal> {
        let (op, tool, input) = self.with(id, |workflow| {
            workflow.sending(at, name.call);
            let attempt = &workflow.attempts[at];
            (attempt.op.clone(), attempt.tool.clone(), Value::clone(&attempt.input))
        })?;
        // On the disk first: a crash from here on leaves an attempt that is looked for.
        self.keep(id, "attempt", json!({ "op": op })).await?;
        let ending = self.call(id, at, &tool, input, again, name).await;
        let (state, ended) = match ending {
            Ok(Ending::Ran(Known::Done(output))) => (State::Done, Ok(Value::clone(&output))),
            Ok(Ending::Ran(Known::Failed(failure))) => {
                (State::Failed, Err(Refusal::new(failure.code, format!("{op}: {}", failure.message))))
            }
            Ok(Ending::Ran(Known::Unknown { loss: _, way_out })) => {
                let text = format!("what became of {op} is not known ({}); see `interlock ask list`", way_out.word());
                (State::Unknown, Err(Refusal::new("unknown", text)))
            }
            Ok(Ending::NotStarted(why)) => {
                let text = Ending::NotStarted(why).message(interlock_domain::request::why::Lang::En);
                (State::Failed, Err(Refusal::new("not_started", format!("{op}: {text}"))))
            }
            Err(refusal) => (State::Failed, Err(refusal)),
        };
        self.with(id, |workflow| workflow.seen(at, state, ended.as_ref().ok()))?;
        self.keep(id, "observed", json!({ "op": op, "state": state.word() })).await?;
        ended
    }

    async fn call(
        &self,
        id: u64,
        at: usize,
        tool: &str,
        input: Value,
        again: Option<CallId>,
        name: Name,
    ) -> Result<Ending, Refusal> {
        let tool = ToolName::new(tool).map_err(|error| Refusal::new("no_such_tool", error.to_string()))?;
        let within = Within { parent: Some(name.call), again, ..Within::default() };
        let wanted = vec![Wanted { tool, input, protective: false }];
        let submitted = self.mediator.submit_within(name.run, wanted, &within).await;
        let submitted = submitted.map_err(|error| Refusal::new("not_taken", error.to_string()))?;
        let call = CallId { run: name.run, batch: submitted.batch, position: 0 };
        self.with(id, |workflow| workflow.bound(at, call))?;
        let answered = submitted.replies.await.ok().and_then(|answered| answered.into_iter().next());
        answered.map(|answered| answered.reply.ending).ok_or_else(|| {
            // The daemon goes down: the next life looks it up.
            Refusal::new("stopping", "the daemon is stopping")
        })
    }

    /// Looks up what has been found out of attempts whose outcome was not known.
    async fn refresh(&self, id: u64) -> Result<(), Refusal> {
        let open: Vec<(usize, Option<CallId>, Option<CallId>)> = self.with(id, |workflow| {
            let unknown = |(_, it): &(usize, &interlock_domain::effect::workflow::Attempt)| it.state == State::Unknown;
            let attempts = workflow.attempts.iter().enumerate().filter(unknown);
            attempts.map(|(at, attempt)| (at, attempt.call, attempt.parent)).collect()
        })?;
        let mut found = false;
        for (at, call, parent) in open {
            let state = match (call, parent) {
                (Some(call), _) => self.state_of(call).await,
                (None, Some(parent)) => self.child_of(parent).await,
                (None, None) => None,
            };
            if let Some(state) = state.filter(|state| *state != State::Unknown) {
                self.with(id, |workflow| workflow.seen(at, state, None))?;
                found = true;
            }
        }
        if found {
            self.keep(id, "found", json!({})).await?;
        }
        Ok(())
    }

    /// What the evidence says of a call; nothing while it runs.
    async fn state_of(&self, call: CallId) -> Option<State> {
        let query = Query { call: Some(call), limit: Some(ROWS_OF_A_CALL), ..Query::default() };
        let rows = self.log.query(query).await.ok()?;
        let word = |kind: &str| {
            let row = rows.iter().filter(|row| row.row.kind == kind).max_by_key(|row| row.seq);
            row.and_then(|row| row.row.to.as_deref().map(str::to_owned))
        };
        match word("resolved").or_else(|| word("settled")).as_deref() {
            Some("done") => Some(State::Done),
            Some("failed" | "not_started") => Some(State::Failed),
            Some(_) => Some(State::Unknown),
            None => None,
        }
    }

    /// What became of the call that an earlier life was about to make in the name of this one.
    async fn child_of(&self, parent: CallId) -> Option<State> {
        let query = Query {
            run: Some(parent.run),
            kind: Some("requested".to_owned()),
            text: Some(parent.to_string()),
            ..Query::default()
        };
        let rows = self.log.query(query).await.ok()?;
        match rows.iter().filter_map(|row| row.row.call).find(|call| *call != parent) {
            Some(child) => self.state_of(child).await,
            // It was never handed in.
            None => Some(State::Failed),
        }
    }

    /// Waits, for a while, until nothing of the workflow is unknown.
    pub async fn found_out(&self, id: u64) -> Result<(), Refusal> {
        let until = Instant::now() + FIND_OUT_PATIENCE;
        loop {
            self.refresh(id).await?;
            let unknown = self.with(id, |workflow| workflow.unknown())?;
            if unknown.is_empty() || Instant::now() >= until {
                return Ok(());
            }
            sleep_until(Instant::now() + LOOK_EVERY).await;
        }
    }

    /// Keeps the workflow: what is held goes out, what was dropped is undone.
    ///
    /// # Errors
    /// Why it is not kept; `unsettled` is never a success.
    pub async fn commit(&self, id: u64, branches: &[String], name: Name) -> Result<Value, Refusal> {
        self.refresh(id).await?;
        self.with(id, Workflow::resume)?;
        let committing = self.with(id, |workflow| workflow.stage == Stage::Committing)?;
        if !committing {
            let decided = self.with(id, |workflow| workflow.commit(branches))?;
            let released = decided.map_err(|not_yet| Refusal::new("not_yet", format!("w{id}: {not_yet}")))?;
            self.keep(id, "commit", json!({ "branches": branches })).await?;
            for at in released {
                // The first that does not succeed ends it: nothing more goes out on top of it.
                if self.send(id, at, None, name).await.is_err() {
                    break;
                }
            }
        }
        self.undo_all(id, name).await?;
        self.settle(id).await
    }

    /// Gives the workflow up: undoes what was done, the newest first, where a contract allows.
    ///
    /// # Errors
    /// When something is left or unknown.
    pub async fn abort(&self, id: u64, name: Name) -> Result<Value, Refusal> {
        self.refresh(id).await?;
        let stage = self.with(id, |workflow| workflow.stage)?;
        if stage != Stage::Aborting {
            let decided = self.with(id, Workflow::abort)?;
            decided.map_err(|not_yet| Refusal::new("not_yet", format!("w{id}: {not_yet}")))?;
            self.keep(id, "abort", json!({})).await?;
        }
        self.undo_all(id, name).await?;
        self.settle(id).await
    }

    async fn undo_all(&self, id: u64, name: Name) -> Result<(), Refusal> {
        while let Some(of) = self.with(id, |workflow| workflow.to_undo())? {
            let (tool, input, inverse) = self.with(id, |workflow| {
                let attempt = &workflow.attempts[of];
                let inverse = match &attempt.contract.effect {
                    Effect::Reversible { inverse, .. } => inverse.clone(),
                    Effect::None | Effect::Stageable { .. } | Effect::Irreversible => String::new(),
                };
                (attempt.tool.clone(), Value::clone(&attempt.input), inverse)
            })?;
            let (tool, input) = inverse_call(&tool, &input, &inverse);
            let named = ToolName::new(&tool).map_err(|error| Refusal::new("no_such_tool", error.to_string()))?;
            let Ok(nature) = self.mediator.nature(&named, &input) else {
                // There is no such tool any more: it stays, and settling says so.
                return Ok(());
            };
            let at = self.with(id, |workflow| workflow.undo(of, tool, Arc::new(input), nature.contract))?;
            if self.send(id, at, None, name).await.is_err() {
                return Ok(());
            }
        }
        Ok(())
    }

    async fn settle(&self, id: u64) -> Result<Value, Refusal> {
        let (stage, unknown, left, found) = self.with(id, |workflow| {
            let stage = workflow.settle();
            (stage, workflow.unknown(), workflow.left(), workflow.check().unwrap_or_default())
        })?;
        let told: Vec<Value> = found
            .iter()
            .map(|it| json!({ "kind": it.kind.word(), "verdict": it.verdict.word(), "why": it.why }))
            .collect();
        self.keep(id, "settled", json!({ "anomalies": told, "unknown": unknown, "left": left })).await?;
        // A8 can never be excluded once something visible was undone; saying so each time would wear people out.
        let grave = |kind: Kind, verdict: Verdict| kind != Kind::A8 || verdict == Verdict::Certain;
        let (source, now) = (format!("workflow:w{id}"), clock::wall());
        let said = match found.iter().find(|it| grave(it.kind, it.verdict)) {
            None => self.keeper.later(move |state| state.clear_alarms(&source, now).map(|_| ())),
            Some(anomaly) => {
                let [en, zh] = anomaly.kind.title();
                let text =
                    format!("w{id}: {} {} ({en}, {zh}): {}", anomaly.kind.word(), anomaly.verdict.word(), anomaly.why);
                self.keeper.later(move |state| state.raise_alarm(&source, &text, now).map(|_| ()))
            }
        };
        if let Err(error) = said {
            tracing::error!(%error, workflow = id, "an alarm was not kept");
        }
        match stage {
            Stage::Committed | Stage::Aborted => {
                Ok(json!({ "workflow": format!("w{id}"), "stage": stage.word(), "anomalies": told }))
            }
            Stage::Open | Stage::Committing | Stage::Aborting | Stage::Unsettled => {
                let mut facts = Vec::new();
                if !unknown.is_empty() {
                    facts.push(format!("not known: {}", unknown.join(", ")));
                }
                if !left.is_empty() {
                    facts.push(format!("done and not undone: {}", left.join(", ")));
                }
                if facts.is_empty() {
                    facts.push("not all that is required was done".to_owned());
                }
                Err(Refusal::new("unsettled", format!("w{id} is unsettled; {}", facts.join("; "))))
            }
        }
    }

    /// The operation has its effect, as far as is known.
    ///
    /// # Errors
    /// When there is no such workflow.
    pub fn is_done(&self, id: u64, op: &str) -> Result<bool, Refusal> {
        self.with(id, |workflow| workflow.attempts.iter().any(|it| it.op == op && it.state == State::Done))
    }

    /// One workflow, as it is written.
    ///
    /// # Errors
    /// When there is none of that number.
    pub async fn show(&self, id: u64) -> Result<Value, Refusal> {
        self.refresh(id).await?;
        self.with(id, |workflow| {
            let mut shown = form::to_json(workflow);
            shown["workflow"] = format!("w{id}").into();
            shown["unknown"] = workflow.unknown().into();
            shown["left"] = workflow.left().into();
            shown
        })
    }

    /// All of them, in short.
    pub fn list(&self) -> Vec<Value> {
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let row = |(id, it): (&u64, &Workflow)| {
            let profiles: Vec<&str> = it.profiles.iter().map(|profile| profile.word()).collect();
            json!({
                "workflow": format!("w{id}"), "stage": it.stage.word(), "profiles": profiles,
                "attempts": it.attempts.len(), "unknown": it.unknown(),
            })
        };
        all.iter().map(row).collect()
    }

    /// What a call would be, for an attempt.
    ///
    /// # Errors
    /// Why there would be no such call.
    pub fn nature(&self, tool: &str, input: &Value) -> Result<Nature, Refusal> {
        let name = ToolName::new(tool).map_err(|error| Refusal::new("no_such_tool", error.to_string()))?;
        self.mediator.nature(&name, input).map_err(|why| {
            Refusal::new("bad_input", Ending::NotStarted(why).message(interlock_domain::request::why::Lang::En))
        })
    }
}

/// The call that an inverse stands for: another action of the same device, or a tool that is told what to take back.
fn inverse_call(tool: &str, input: &Value, inverse: &str) -> (String, Value) {
    match inverse.split_once('.') {
        Some(("device", action)) if tool == "device" => {
            (tool.to_owned(), json!({ "device": input["device"], "action": action }))
        }
        _ => (inverse.to_owned(), json!({ "undo": input })),
    }
}

/// What a call changes, by name.
pub(super) fn resources(nature: &Nature) -> Vec<String> {
    let name = |key: &Key| match key {
        Key::Path(path) => path.clone(),
        Key::Device(device) => device.clone(),
        Key::Named(name) => name.clone(),
    };
    nature.keys.writes.iter().map(name).collect()
}

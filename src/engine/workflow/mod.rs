//! Carries workflows out: keeps each in `state.db` before it acts, makes its attempts as calls of their own, finds out
//! what became of them, and settles.
//!
//! What may be tried and how it ends is decided by `domain::effect::workflow`. Every call that is made here passes the
//! gate like anybody's. What is kept is written before the call it is about is made, so that a crash between any two
//! steps leaves an attempt that is looked up in the evidence, and none that is forgotten.

pub mod tool;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use interlock_domain::closure::Ending;
use interlock_domain::effect::anomaly::{Kind, Verdict};
use interlock_domain::effect::outcome::Known;
use interlock_domain::effect::profile::Profile;
use interlock_domain::effect::tickets::{Number, Tickets, Turn, WAITING_MAX};
use interlock_domain::effect::workflow::decide::Out;
use interlock_domain::effect::workflow::{Attempt, Refused, Stage, State, Wanted as Attempted, Workflow};
use interlock_domain::id::{CallId, RunId, ToolName};
use interlock_domain::surface::companion::{About, Companion};
use interlock_domain::surface::contract::Effect;
use interlock_domain::surface::nature::Nature;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::handle::{Mediator, Wanted, Within};
use super::keeper::{Keeper, NotKept};
use super::log::{Log, Query};
use crate::record::{Row, workflow as form};
use crate::store::queue::{Entry, Writer};
use crate::store::state::workflow::SETTLED_KEPT;
use crate::sys::clock;

/// Workflows that are under way. Each holds resources, or effects that wait for its decision.
pub const OPEN_MAX: usize = 64;

/// Workflows that ended unsettled. What cannot be taken back stays so, and must not keep the next one from beginning; but
/// somebody who lets a thousand of them lie does not look at this box.
pub const UNSETTLED_MAX: usize = 1000;

/// How long a recipe waits for an unknown outcome to be found out before it says that it is unsettled.
const FIND_OUT_PATIENCE: Duration = Duration::from_secs(90);

/// Between two looks into the evidence while it waits.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// How long an attempt waits for a resource that another workflow holds. Shorter than what a person waits for an answer,
/// and long enough for a recipe of some steps.
const RESOURCE_PATIENCE: Duration = Duration::from_secs(60);

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
    all: Mutex<All>,
    /// Told whenever a workflow is kept: somebody's turn may have come.
    moved: Notify,
}

#[derive(Default)]
struct All {
    workflows: BTreeMap<u64, Workflow>,
    tickets: Tickets,
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
        let workflows = kept.into_iter().filter_map(read).collect();
        let all = Mutex::new(All { workflows, tickets: Tickets::default() });
        Ok(Workflows { mediator, keeper, log, writer, all, moved: Notify::new() })
    }

    fn all(&self) -> MutexGuard<'_, All> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<T>(&self, id: u64, act: impl FnOnce(&mut Workflow) -> T) -> Result<T, Refusal> {
        let mut all = self.all();
        let workflow =
            all.workflows.get_mut(&id).ok_or_else(|| Refusal::new("no_such_workflow", format!("there is no w{id}")))?;
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
        // What the store no longer keeps is not kept here either.
        let first = id.saturating_sub(SETTLED_KEPT.into());
        self.all().workflows.retain(|id, it| *id > first || !it.stage.is_final());
        self.moved.notify_waiters();
        Ok(())
    }

    /// A new workflow.
    ///
    /// # Errors
    /// When too many are open, or it cannot be kept.
    pub async fn begin(&self, workflow: Workflow) -> Result<u64, Refusal> {
        let count = |stages: &[Stage]| self.all().workflows.values().filter(|it| stages.contains(&it.stage)).count();
        if count(&[Stage::Open, Stage::Committing, Stage::Aborting]) >= OPEN_MAX {
            let text = format!("{OPEN_MAX} workflows are not settled; commit or abort some of them");
            return Err(Refusal::new("too_many_workflows", text));
        }
        if count(&[Stage::Unsettled]) >= UNSETTLED_MAX {
            let text = format!("{UNSETTLED_MAX} workflows ended unsettled; see `interlock workflow show`");
            return Err(Refusal::new("too_many_unsettled", text));
        }
        let id = self.keeper.with(|state| state.set_aside("workflow", 1)).await?;
        let profiles: Vec<&str> = workflow.profiles.iter().map(|profile| profile.word()).collect();
        let begun = json!({ "profiles": profiles, "required": workflow.required });
        self.all().workflows.insert(id, workflow);
        self.keep(id, "begin", begun).await?;
        Ok(id)
    }

    /// Tries something within a workflow. Gives what the tool gave back; nothing while it is held.
    ///
    /// # Errors
    /// Why it was not tried, or how it ended otherwise.
    pub async fn attempt(&self, id: u64, attempted: Attempted, name: Name) -> Result<Option<Value>, Refusal> {
        let op = attempted.op.clone();
        self.refresh(id).await?;
        let ((at, again), state) = self.in_turn(id, attempted).await?;
        if state == State::Held {
            self.keep(id, "held", json!({ "op": op })).await?;
            return Ok(None);
        }
        self.send(id, at, again, name).await.map(Some)
    }

    /// Takes the attempt in once it is its turn on all that it changes.
    async fn in_turn(&self, id: u64, attempted: Attempted) -> Result<((usize, Option<CallId>), State), Refusal> {
        let taken = self.all().tickets.take(id, &attempted.resources, &attempted.contract);
        let Some(number) = taken else {
            let text = format!("{WAITING_MAX} attempts wait for what others hold; settle some workflows first");
            return Err(Refusal::new("too_many_wait", text));
        };
        // Given back however this ends, a caller that goes away included.
        let _ticket = Ticket { all: &self.all, moved: &self.moved, number };
        let until = Instant::now() + RESOURCE_PATIENCE;
        loop {
            let moved = self.moved.notified();
            tokio::pin!(moved);
            // Before looking, so that what happens meanwhile is not missed.
            moved.as_mut().enable();
            let (holder, resource) = match self.take_turn(id, number, &attempted)? {
                Ok(made) => return Ok(made),
                Err(held) => held,
            };
            if tokio::time::timeout_at(until, moved).await.is_err() {
                let text = format!("{resource} is w{holder}'s until that is settled: their effects do not commute");
                return Err(Refusal::new("held_by_workflow", text));
            }
        }
    }

    /// One look: the attempt, or who is before it on which resource. Looking and taking are one step, so that two
    /// workflows never both find a resource free.
    #[expect(clippy::type_complexity, reason = "an answer, or whom to wait for and where")]
    fn take_turn(
        &self,
        id: u64,
        number: Number,
        attempted: &Attempted,
    ) -> Result<Result<((usize, Option<CallId>), State), (u64, String)>, Refusal> {
        let mut all = self.all();
        let All { workflows, tickets } = &mut *all;
        let mediates = workflows.get(&id).is_some_and(|it| it.profiles.contains(&Profile::ExternallyMediated));
        let holder = |resource: &str| {
            let held =
                |(other, it): &(&u64, &Workflow)| **other != id && it.holds(resource, &attempted.contract, mediates);
            workflows.iter().find(held).map(|(other, _)| *other)
        };
        match tickets.turn(number, holder) {
            Turn::Now => {}
            Turn::After { workflow, resource } => return Ok(Err((workflow, resource))),
            Turn::Circle { workflow, resource } => {
                let text = format!("w{workflow} holds {resource} and waits for what w{id} holds: abort one of them");
                return Err(Refusal::new("held_in_a_circle", text));
            }
        }
        let workflow =
            workflows.get_mut(&id).ok_or_else(|| Refusal::new("no_such_workflow", format!("there is no w{id}")))?;
        let made = workflow
            .attempt(attempted.clone())
            .map_err(|refused: Refused| Refusal::new("refused", refused.to_string()))?;
        Ok(Ok((made, workflow.attempts[made.0].state)))
    }

    /// Makes the call of an attempt, and notes how it ended.
    async fn send(&self, id: u64, at: usize, again: Option<CallId>, name: Name) -> Result<Value, Refusal> {
        let (op, tool, input, part) = self.with(id, |workflow| {
            workflow.sending(at, name.call, clock::wall());
            let attempt = &workflow.attempts[at];
            (attempt.op.clone(), attempt.tool.clone(), Value::clone(&attempt.input), workflow.part(id, at))
        })?;
        // On the disk first: a crash from here on leaves an attempt that is looked for.
        self.keep(id, "attempt", json!({ "op": op })).await?;
        let within = Within { parent: Some(name.call), again, part: Some(Arc::new(part)), ..Within::default() };
        let ending = self.call(id, at, &tool, input, &within, name).await;
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
        within: &Within,
        name: Name,
    ) -> Result<Ending, Refusal> {
        let tool = ToolName::new(tool).map_err(|error| Refusal::new("no_such_tool", error.to_string()))?;
        let wanted = vec![Wanted { tool, input, protective: false }];
        let submitted = self.mediator.submit_within(name.run, wanted, within).await;
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
        let (open, bound) = self.with(id, |workflow| {
            let unknown = |(_, it): &(usize, &Attempt)| it.state == State::Unknown;
            let attempts = workflow.attempts.iter().enumerate().filter(unknown);
            let open: Vec<_> = attempts.map(|(at, attempt)| (at, attempt.call, attempt.parent)).collect();
            let bound: BTreeSet<CallId> = workflow.attempts.iter().filter_map(|attempt| attempt.call).collect();
            (open, bound)
        })?;
        let mut found = false;
        for (at, call, parent) in open {
            let state = match (call, parent) {
                (Some(call), _) => self.state_of(call).await,
                (None, Some(parent)) => self.child_of(parent, &bound).await,
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

    /// What became of the call that an earlier life was about to make in the name of this one. A commit, an abort and a
    /// recipe make several calls in their name, one after the other: those that are `bound` to other attempts are not it.
    async fn child_of(&self, parent: CallId, bound: &BTreeSet<CallId>) -> Option<State> {
        let query = Query {
            run: Some(parent.run),
            kind: Some("requested".to_owned()),
            text: Some(parent.to_string()),
            ..Query::default()
        };
        let rows = self.log.query(query).await.ok()?;
        let of_this = |call: &CallId| *call != parent && !bound.contains(call);
        match rows.iter().filter_map(|row| row.row.call).find(of_this) {
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
        if self.with(id, |workflow| workflow.stage != Stage::Committing)? {
            let decided = self.with(id, |workflow| workflow.commit(branches, clock::wall()))?;
            decided.map_err(|not_yet| Refusal::new("not_yet", format!("w{id}: {not_yet}")))?;
            self.keep(id, "commit", json!({ "branches": branches })).await?;
        }
        while let Some(out) = self.with(id, |workflow| workflow.to_go_out())? {
            let at = match out {
                Out::Send(at) => Some(at),
                Out::Release(of) => self.beside(id, of, Beside::Release)?,
            };
            // The first that does not succeed ends it: nothing more goes out on top of it.
            match at {
                Some(at) if self.send(id, at, None, name).await.is_ok() => {}
                Some(_) | None => break,
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

    /// A person answers for what no contract can take back: from here on it holds nothing, and its alarm is cleared.
    ///
    /// # Errors
    /// When it is not unsettled, when something is unknown, or when it can still end well.
    pub async fn close(&self, id: u64, by: &str, note: &str) -> Result<Value, Refusal> {
        self.refresh(id).await?;
        let (closed, left, unreleased) =
            self.with(id, |workflow| (workflow.close(), workflow.left(), workflow.unreleased()))?;
        closed.map_err(|not_yet| Refusal::new("not_yet", format!("w{id}: {not_yet}")))?;
        let kept =
            self.keep(id, "close", json!({ "by": by, "note": note, "left": left, "unreleased": unreleased })).await;
        if let Err(refusal) = kept {
            // A person can say it again.
            self.with(id, |workflow| workflow.stage = Stage::Unsettled)?;
            return Err(refusal);
        }
        let (source, now) = (alarm(id), clock::wall());
        if let Err(error) = self.keeper.later(move |state| state.clear_alarms(&source, now).map(|_| ())) {
            tracing::error!(%error, workflow = id, "an alarm was not cleared");
        }
        Ok(json!({ "workflow": format!("w{id}"), "stage": Stage::Closed.word(), "left": left }))
    }

    async fn undo_all(&self, id: u64, name: Name) -> Result<(), Refusal> {
        while let Some(of) = self.with(id, |workflow| workflow.to_undo())? {
            // Without such a tool it stays, and settling says so.
            let Some(at) = self.beside(id, of, Beside::Undo)? else { return Ok(()) };
            if self.send(id, at, None, name).await.is_err() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Takes in the call that an attempt's contract names beside it; nothing when there is no such call.
    fn beside(&self, id: u64, of: usize, what: Beside) -> Result<Option<usize>, Refusal> {
        let call = self.with(id, |workflow| beside(workflow, of, what))?;
        let Some((tool, input)) = call else { return Ok(None) };
        let Some(nature) = ToolName::new(&tool).ok().and_then(|named| self.mediator.nature(&named, &input).ok()) else {
            tracing::warn!(workflow = id, tool, "a call that a contract names cannot be made");
            return Ok(None);
        };
        let input = Arc::new(input);
        self.with(id, |workflow| {
            Some(match what {
                Beside::Undo => workflow.undo(of, tool, input, nature.contract),
                Beside::Release => workflow.release(of, tool, input, nature.contract),
            })
        })
    }

    async fn settle(&self, id: u64) -> Result<Value, Refusal> {
        let (stage, kept, unknown, left, unreleased, found) = self.with(id, |workflow| {
            let stage = workflow.settle();
            let (kept, unknown, left) = (workflow.kept.clone(), workflow.unknown(), workflow.left());
            (stage, kept, unknown, left, workflow.unreleased(), workflow.check().unwrap_or_default())
        })?;
        let told: Vec<Value> = found
            .iter()
            .map(|it| json!({ "kind": it.kind.word(), "verdict": it.verdict.word(), "why": it.why }))
            .collect();
        let end = json!({ "anomalies": told, "unknown": unknown, "left": left, "kept": kept });
        self.keep(id, "settled", end).await?;
        // A8 can never be excluded once something visible was undone; saying so each time would wear people out.
        let grave = |kind: Kind, verdict: Verdict| kind != Kind::A8 || verdict == Verdict::Certain;
        let (source, now) = (alarm(id), clock::wall());
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
            Stage::Open | Stage::Committing | Stage::Aborting | Stage::Unsettled | Stage::Closed => {
                let mut facts = Vec::new();
                if !unknown.is_empty() {
                    facts.push(format!("not known: {}", unknown.join(", ")));
                }
                if !left.is_empty() {
                    facts.push(format!("done and not undone: {}", left.join(", ")));
                }
                if !unreleased.is_empty() {
                    facts.push(format!("staged and not released: {}", unreleased.join(", ")));
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
        let all = self.all();
        let row = |(id, it): (&u64, &Workflow)| {
            let profiles: Vec<&str> = it.profiles.iter().map(|profile| profile.word()).collect();
            json!({
                "workflow": format!("w{id}"), "stage": it.stage.word(), "profiles": profiles,
                "attempts": it.attempts.len(), "unknown": it.unknown(),
            })
        };
        all.workflows.iter().map(row).collect()
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

/// Whom an alarm about it comes from.
fn alarm(id: u64) -> String {
    format!("workflow:w{id}")
}

/// A place in the lines, given back when it is dropped.
struct Ticket<'a> {
    all: &'a Mutex<All>,
    moved: &'a Notify,
    number: Number,
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        self.all.lock().unwrap_or_else(PoisonError::into_inner).tickets.give_back(self.number);
        self.moved.notify_waiters();
    }
}

#[derive(Clone, Copy)]
enum Beside {
    Undo,
    Release,
}

/// The call beside an attempt: the one that its contract spells out, another action of the same device, or the inverse
/// tool, told what to take back.
fn beside(workflow: &Workflow, of: usize, what: Beside) -> Option<(String, Value)> {
    let attempt = workflow.attempts.get(of)?;
    let key = workflow.key(of);
    let nothing = Value::Null;
    let output = attempt.output.as_deref().unwrap_or(&nothing);
    let about = About { op: &key, input: &attempt.input, output };
    let made = |call: &Companion| Some((call.tool.clone(), call.input(about)?));
    let with = &attempt.contract.with;
    let undo = match (&attempt.contract.effect, what) {
        (_, Beside::Release) => return made(with.release.as_ref()?),
        (Effect::Stageable { .. }, Beside::Undo) => return made(with.discard.as_ref()?),
        (Effect::Reversible { .. }, Beside::Undo) if with.undo.is_some() => return made(with.undo.as_ref()?),
        (Effect::Reversible { inverse, .. }, Beside::Undo) => inverse,
        (Effect::None | Effect::Irreversible, Beside::Undo) => return None,
    };
    Some(match undo.split_once('.') {
        Some(("device", action)) if attempt.input.get("device").is_some() => {
            (attempt.tool.clone(), json!({ "device": attempt.input["device"], "action": action }))
        }
        _ => (undo.clone(), json!({ "undo": *attempt.input })),
    })
}

//! From calls to an effect history: what the ledger and the log know of each call, as the checker reads it.
//!
//! A call of a workflow belongs to that; any other belongs to its run, which keeps what it does as it does it. Operation,
//! resource and order are read off what was written: a wish that repeats one whose end nobody knew is another attempt
//! at it; an effect comes after those on its resource whose end was known when it began, and after no others. The log
//! lists what was sent, so that a history made here is one of the runtime (effects, section 3).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::id::CallId;
use crate::surface::contract::{Contract, OutcomeBy};

use super::anomaly::{Anomaly, Event, History, Malformed, Seen, Terms, View};
use super::ledger::Noted;
use super::outcome::OpKey;
use super::workflow::MAIN;

/// Effects on one resource that a later one is put behind, each by itself. More at one time were never known to end in
/// any order; the oldest are left out, which can only make an order look missing.
const FRONTIER_MAX: usize = 8;

/// One call, as it was about to be sent.
#[derive(Debug, Clone, Copy)]
pub struct Sent<'a> {
    /// The call.
    pub call: CallId,
    /// Its operation.
    pub op: OpKey,
    /// What is promised about it.
    pub contract: &'a Contract,
    /// What the ledger noted of it.
    pub noted: &'a Noted,
}

/// What stands for a call in the history.
#[derive(Debug, Clone)]
struct Known {
    /// The attempt's name, which calls that add nothing share.
    attempt: String,
    /// Its effect, where it has one of its own.
    effect: Option<String>,
    resource: String,
    seen: Seen,
    /// The workflow that holds it back until it is decided.
    held_by: Option<String>,
    /// The effect that this call releases, or drops.
    releases: Option<String>,
    drops: Option<String>,
}

/// An anomaly, with the calls that show it.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// What was found.
    pub anomaly: Anomaly,
    /// The calls of its events, each once.
    pub calls: Vec<CallId>,
}

/// A history that grows call by call.
#[derive(Debug, Default)]
pub struct Chronicle {
    history: History,
    written: Vec<Value>,
    calls: Vec<Option<CallId>>,
    known: BTreeMap<CallId, Known>,
    /// By attempt: the calls that it stands for, where they are several.
    shared: BTreeMap<String, Vec<CallId>>,
    /// By operation's name: the call that is the first attempt at it.
    first: BTreeMap<(String, String), CallId>,
    /// The workflows that began, and those of them that are the runs of calls without one.
    begun: BTreeSet<String>,
    runs: BTreeSet<String>,
    settled: BTreeSet<String>,
    held: BTreeSet<String>,
    /// By resource: what ended, and is not known to lie before something else that did.
    frontier: BTreeMap<String, Vec<CallId>>,
    behind: BTreeMap<CallId, Vec<CallId>>,
    commuting: Vec<(String, String, String)>,
    resources: BTreeMap<String, BTreeSet<String>>,
    /// By what stands before `#` in an operation's name: the kinds of its contracts.
    kinds: BTreeMap<String, BTreeSet<String>>,
}

impl Chronicle {
    fn take(&mut self, event: Event<'_>, written: Value, call: Option<CallId>) -> Result<(), Malformed> {
        self.history.take(event)?;
        self.written.push(written);
        self.calls.push(call);
        Ok(())
    }

    /// A workflow begins. `held` says that nothing of it may be seen before it is decided.
    ///
    /// # Errors
    /// When it began before.
    pub fn begin(&mut self, workflow: &str, required: &[String], held: bool) -> Result<(), Malformed> {
        self.begun.insert(workflow.to_owned());
        if held {
            self.held.insert(workflow.to_owned());
        }
        let required: Vec<&str> = required.iter().map(String::as_str).collect();
        self.take(Event::Begin { workflow, required: &required }, json!(["begin", workflow, required]), None)
    }

    /// A call was about to be sent. One that leaves no effect is not in a history.
    ///
    /// # Errors
    /// When it was sent before.
    pub fn sent(&mut self, sent: Sent<'_>) -> Result<(), Malformed> {
        let Sent { call, op, contract, noted } = sent;
        if !contract.changes() {
            return Ok(());
        }
        let began = noted.repeats.unwrap_or(op.0);
        let (workflow, branch, named) = match &noted.part {
            Some(part) => (format!("w{}", part.workflow), part.branch.clone(), part.op.clone()),
            None => (format!("run {}", began.run), MAIN.to_owned(), began.to_string()),
        };
        if !self.begun.contains(&workflow) {
            // Its beginning was before what was read.
            self.begin(&workflow, &[], false)?;
            if noted.part.is_none() {
                self.runs.insert(workflow.clone());
            }
        }
        let resource = noted.resources.first().cloned().unwrap_or_else(|| call.to_string());
        let of = |of: Option<CallId>| of.and_then(|of| self.known.get(&of)).and_then(|known| known.effect.clone());
        let part = noted.part.as_deref();
        let releases = of(part.and_then(|part| part.releases));
        let undone = part.and_then(|part| part.undoes);
        let drops = if part.is_some_and(|part| part.drops) { of(undone) } else { None };
        let empty = Known {
            attempt: format!("a{call}"),
            effect: None,
            resource: resource.clone(),
            seen: Seen::Unknown,
            held_by: (self.held.contains(&workflow) && !contract.stages()).then(|| workflow.clone()),
            releases: releases.clone(),
            drops: drops.clone(),
        };
        if releases.is_some() || drops.is_some() {
            // What becomes of a staged effect is no operation of its own.
            self.known.insert(call, empty);
            return Ok(());
        }
        // A workflow names its operations, and requires them by these names.
        let op_name = if noted.part.is_some() { named } else { format!("{}#{named}", contract.op_kind) };
        let kind = op_name.split('#').next().unwrap_or_default().to_owned();
        self.kinds.entry(kind).or_default().insert(contract.op_kind.clone());
        let first = *self.first.entry((workflow.clone(), op_name.clone())).or_insert(call);
        let same_key = op.0 != call && matches!(contract.outcome, OutcomeBy::ResendOriginal { .. });
        if first != call
            && (contract.idempotent || same_key)
            && let Some(known) = self.known.get(&first)
        {
            // At most one effect for all of them: what is learned of any is learned of the one.
            let shared = Known { effect: None, seen: Seen::Unknown, ..known.clone() };
            self.shared.entry(shared.attempt.clone()).or_insert_with(|| vec![first]).push(call);
            self.known.insert(call, shared);
            return Ok(());
        }
        let attempt = empty.attempt.clone();
        let written = json!(["attempt", attempt, op_name, workflow, branch]);
        let event = Event::Attempt { attempt: &attempt, op: &op_name, workflow: &workflow, branch: &branch };
        self.take(event, written, Some(call))?;
        if let Some(undone) = undone.and_then(|of| self.known.get(&of)).map(|known| known.attempt.clone()) {
            let event = Event::Compensate { compensation: &attempt, attempt: &undone };
            self.take(event, json!(["comp", attempt, undone]), Some(call))?;
        }
        let effect = format!("e{call}");
        let staged = contract.stages() || self.held.contains(&workflow);
        let mut written = json!(["effect", effect, attempt, resource]);
        if let (true, Some(list)) = (staged, written.as_array_mut()) {
            list.push("staged".into());
        }
        self.take(
            Event::Effect { effect: &effect, attempt: &attempt, resource: &resource, staged },
            written,
            Some(call),
        )?;
        let below: Vec<String> =
            noted.rests_on.iter().filter_map(|below| self.known.get(below)?.effect.clone()).collect();
        for earlier in below {
            let event = Event::Depends { later: &effect, earlier: &earlier };
            self.take(event, json!(["dep", effect, earlier]), Some(call))?;
        }
        let before = self.frontier.get(&resource).cloned().unwrap_or_default();
        for earlier in before.iter().filter_map(|call| self.known.get(call)?.effect.clone()).collect::<Vec<_>>() {
            let event = Event::Order { first: &earlier, second: &effect };
            self.take(event, json!(["order", earlier, effect]), Some(call))?;
        }
        self.behind.insert(call, before);
        self.commuting.extend(
            contract
                .commutes
                .iter()
                .filter(|pair| pair.state.is_none())
                .map(|pair| (contract.op_kind.clone(), pair.kind.clone(), pair.resource.clone())),
        );
        self.resources.entry(contract.op_kind.clone()).or_default().insert(resource);
        self.known.insert(call, Known { effect: Some(effect), ..empty });
        Ok(())
    }

    /// What was learned of a call; of one that is not in the history, nothing is kept.
    ///
    /// # Errors
    /// Never in practice: the names are made here.
    pub fn seen(&mut self, call: CallId, seen: Seen) -> Result<(), Malformed> {
        let Some(known) = self.known.get(&call).cloned() else { return Ok(()) };
        let attempt = known.attempt;
        if known.releases.is_some() || known.drops.is_some() {
            if let Some(known) = self.known.get_mut(&call) {
                known.seen = seen;
            }
            return Ok(());
        }
        if let Some(known) = self.known.get_mut(&call) {
            known.seen = seen;
        }
        // Calls that share an effect: it is there if one of them says so, and not there only if all of them do.
        let seen = self.of_all(&attempt, seen);
        let word = match seen {
            Seen::Confirmed => "confirmed",
            Seen::Failed => "failed",
            Seen::Unknown => "unknown",
        };
        self.take(Event::Observe { attempt: &attempt, seen }, json!(["observe", attempt, word]), Some(call))?;
        if seen == Seen::Confirmed && known.effect.is_some() {
            let behind = self.behind.get(&call).cloned().unwrap_or_default();
            let frontier = self.frontier.entry(known.resource).or_default();
            frontier.retain(|earlier| !behind.contains(earlier) && *earlier != call);
            frontier.push(call);
            if frontier.len() > FRONTIER_MAX {
                frontier.remove(0);
            }
        }
        Ok(())
    }

    /// What is known of an attempt by all calls that it stands for.
    fn of_all(&self, attempt: &str, own: Seen) -> Seen {
        let Some(calls) = self.shared.get(attempt) else { return own };
        let all = || calls.iter().filter_map(|call| self.known.get(call)).map(|known| known.seen);
        match (all().any(|seen| seen == Seen::Confirmed), all().all(|seen| seen == Seen::Failed)) {
            (true, _) => Seen::Confirmed,
            (false, true) => Seen::Failed,
            (false, false) => Seen::Unknown,
        }
    }

    /// A workflow was decided: these branches are kept, or none.
    ///
    /// # Errors
    /// Never in practice: one that began nowhere, or that is decided, is left alone.
    pub fn settled(&mut self, workflow: &str, kept: Option<&[String]>) -> Result<(), Malformed> {
        if !self.begun.contains(workflow) || !self.settled.insert(workflow.to_owned()) {
            return Ok(());
        }
        match kept {
            None => self.take(Event::Abort { workflow, branch: None }, json!(["abort", workflow, null]), None),
            Some(kept) => {
                let kept: Vec<&str> = kept.iter().map(String::as_str).collect();
                self.take(Event::Commit { workflow, branches: &kept }, json!(["commit", workflow, kept]), None)
            }
        }
    }

    /// The end of what there is to tell: a run keeps what it did, and what was held is out with its workflow.
    ///
    /// # Errors
    /// Never in practice: the names are made here.
    pub fn end(&mut self) -> Result<(), Malformed> {
        for run in std::mem::take(&mut self.runs) {
            self.settled(&run, Some(&[MAIN.to_owned()]))?;
        }
        let done: Vec<(CallId, Known)> = self
            .known
            .iter()
            .filter(|(_, known)| {
                known.seen == Seen::Confirmed || self.of_all(&known.attempt, known.seen) == Seen::Confirmed
            })
            .map(|(call, known)| (*call, known.clone()))
            .collect();
        for (call, Known { effect, releases, drops, held_by, .. }) in done {
            // What is held goes out with the decision; what a tool stages, by a call of its own.
            let is_out = held_by.is_some_and(|workflow| self.settled.contains(&workflow));
            if let Some(effect) = releases.or(effect.filter(|_| is_out)) {
                self.take(Event::Release { effect: &effect }, json!(["release", effect]), Some(call))?;
            }
            if let Some(effect) = drops {
                self.take(Event::Discard { effect: &effect }, json!(["discard", effect]), Some(call))?;
            }
        }
        Ok(())
    }

    /// What it is held against: what its contracts say commutes, wherever each kind was at work.
    #[must_use]
    pub fn terms(&self) -> Terms {
        let everywhere = |kind: &str, pattern: &str| {
            let on = self.resources.get(kind);
            on.is_none_or(|on| on.iter().all(|resource| crate::surface::promise::like(pattern, resource)))
        };
        let holds = |(one, other, on): &&(String, String, String)| everywhere(one, on) && everywhere(other, on);
        // A name that stands for several kinds says nothing of any.
        let named = |kind: &str| {
            let own = self.kinds.iter().filter(move |(_, kinds)| kinds.len() == 1 && kinds.contains(kind));
            own.map(|(name, _)| name.clone()).collect::<Vec<_>>()
        };
        let pairs = self.commuting.iter().filter(holds).flat_map(|(one, other, _)| {
            let others = named(other);
            named(one)
                .into_iter()
                .flat_map(move |one| others.clone().into_iter().map(move |other| (one.clone(), other)))
        });
        let all_held = !self.held.is_empty() && self.begun.iter().all(|workflow| self.held.contains(workflow));
        Terms { view: View::Runtime, held: all_held, commuting: pairs.collect::<BTreeSet<_>>().into_iter().collect() }
    }

    /// What the checker finds.
    #[must_use]
    pub fn check(&self) -> Vec<Finding> {
        let calls_of = |anomaly: &Anomaly| {
            let calls: BTreeSet<CallId> =
                anomaly.events.iter().filter_map(|at| self.calls.get(*at).copied().flatten()).collect();
            calls.into_iter().collect()
        };
        let found = self.history.check(&self.terms());
        found.into_iter().map(|anomaly| Finding { calls: calls_of(&anomaly), anomaly }).collect()
    }

    /// The history as `interlock effects check` reads it.
    #[must_use]
    pub fn written(&self, id: &str) -> Value {
        let terms = self.terms();
        let pairs: Vec<[&str; 2]> = terms.commuting.iter().map(|(one, other)| [one.as_str(), other.as_str()]).collect();
        json!({
            "id": id, "view": "runtime", "speculative_profile": terms.held, "commuting": pairs, "events": self.written,
        })
    }
}

//! A group of effects with a guarantee: what may be tried, when it may be settled, and what has to be undone.
//!
//! Pure: it is asked before each attempt and told what was seen of it; it keeps the ledger of its attempts, what they
//! rest on and how they ended. It never calls a workflow a success while an outcome is unknown (A1 to A4), never has
//! an unknown compensated (A3), and settles what rests on one another as a whole (A6).

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;
use thiserror::Error;

use crate::id::CallId;
use crate::surface::contract::{Contract, Effect, OutcomeBy};

use super::anomaly::{Anomaly, Event, History, Malformed, Seen, Terms, View};
use super::profile::{Lacks, Profile, lacks};

/// Attempts of one workflow. A recipe has a handful; more than this is a program, and belongs into one.
pub const ATTEMPTS_MAX: usize = 256;

/// Longest name of an operation or a branch, in bytes.
pub const NAME_LEN_MAX: usize = 64;

/// The branch of an attempt that names none.
pub const MAIN: &str = "main";

/// How far a workflow has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// It takes attempts.
    Open,
    /// It was decided to keep it: what is held goes out.
    Committing,
    /// It was decided to give it up: what was done is undone.
    Aborting,
    /// Kept, and nothing is unknown.
    Committed,
    /// Given up, and nothing is left.
    Aborted,
    /// Something is unknown or is left, and no contract says more: a person has to look. Never a success.
    Unsettled,
}

impl Stage {
    /// All of them.
    pub const ALL: [Stage; 6] =
        [Stage::Open, Stage::Committing, Stage::Aborting, Stage::Committed, Stage::Aborted, Stage::Unsettled];

    /// The word in rows and answers.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Stage::Open => "open",
            Stage::Committing => "committing",
            Stage::Aborting => "aborting",
            Stage::Committed => "committed",
            Stage::Aborted => "aborted",
            Stage::Unsettled => "unsettled",
        }
    }
}

/// What became of an attempt, as far as it is known here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// It is held until the workflow is decided.
    Held,
    /// It was sent, or may have been; nobody knows.
    Unknown,
    /// Its effect is there.
    Done,
    /// Its effect is not there.
    Failed,
}

impl State {
    /// The word in rows and answers.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            State::Held => "held",
            State::Unknown => "unknown",
            State::Done => "done",
            State::Failed => "failed",
        }
    }
}

/// One attempt of a workflow.
#[derive(Debug, Clone, PartialEq)]
pub struct Attempt {
    /// The logical operation.
    pub op: String,
    /// The branch.
    pub branch: String,
    /// The tool.
    pub tool: String,
    /// Its input.
    pub input: Arc<Value>,
    /// What is promised about it.
    pub contract: Arc<Contract>,
    /// What it changes, by name.
    pub resources: Vec<String>,
    /// The call in whose name it was made.
    pub parent: Option<CallId>,
    /// The call, once it has one.
    pub call: Option<CallId>,
    /// What became of it.
    pub state: State,
    /// The attempt that it undoes.
    pub undoes: Option<usize>,
    /// The attempts whose results it was made from.
    pub rests_on: Vec<usize>,
    /// Values of its result that a later input may repeat.
    pub values: Vec<String>,
}

/// An attempt that is wished for.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// The logical operation.
    pub op: String,
    /// The branch.
    pub branch: String,
    /// The tool.
    pub tool: String,
    /// Its input.
    pub input: Arc<Value>,
    /// What is promised about it.
    pub contract: Arc<Contract>,
    /// What it changes, by name.
    pub resources: Vec<String>,
    /// Operations that it is known to rest on.
    pub after: Vec<String>,
}

/// Why an attempt is not made.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Refused {
    /// The workflow is decided.
    #[error("the workflow is {}", .0.word())]
    Decided(Stage),
    /// The tool's contract cannot support the profile.
    #[error("{tool}: {lacks}")]
    Lacks {
        /// The tool.
        tool: String,
        /// What it lacks.
        lacks: Lacks,
    },
    /// The operation was done.
    #[error("operation {0:?} is done; a second effect would be one too many")]
    Done(String),
    /// Nobody knows whether the operation was done.
    #[error("the outcome of operation {op:?} is not known: {way}")]
    Unknown {
        /// The operation.
        op: String,
        /// What has to happen first.
        way: &'static str,
    },
    /// A name that cannot be taken.
    #[error("{0:?} is no name (1 to {NAME_LEN_MAX} bytes)")]
    Name(String),
    /// An operation that is not there.
    #[error("no attempt at {0:?} was made, so nothing can rest on it")]
    After(String),
    /// Too many attempts.
    #[error("the workflow has {ATTEMPTS_MAX} attempts")]
    TooMany,
}

/// Why a workflow cannot be committed now.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NotYet {
    /// It is decided.
    #[error("the workflow is {}", .0.word())]
    Decided(Stage),
    /// Outcomes are not known.
    #[error("the outcome of {} is not known", .0.join(", "))]
    Unknown(Vec<String>),
    /// Required operations were not done.
    #[error("required and not done: {}", .0.join(", "))]
    Missing(Vec<String>),
    /// What is kept rests on what is dropped.
    #[error("{kept:?} is kept and rests on {dropped:?}, which is not: keep both branches or neither")]
    Sphere {
        /// The operation that is kept.
        kept: String,
        /// The one that it rests on.
        dropped: String,
    },
    /// A branch that is not there.
    #[error("there is no branch {0:?}")]
    NoBranch(String),
}

/// A workflow.
#[derive(Debug, Clone, PartialEq)]
pub struct Workflow {
    /// What it guarantees.
    pub profiles: BTreeSet<Profile>,
    /// The operations that must have an effect when it commits.
    pub required: Vec<String>,
    /// Its attempts, in order.
    pub attempts: Vec<Attempt>,
    /// The branches that are kept, once that is decided.
    pub kept: Vec<String>,
    /// How far it has come.
    pub stage: Stage,
}

impl Workflow {
    /// A workflow that begins.
    ///
    /// # Errors
    /// A required operation without a name.
    pub fn begin(profiles: BTreeSet<Profile>, required: Vec<String>) -> Result<Workflow, Refused> {
        match required.iter().find(|op| !is_name(op)) {
            Some(op) => Err(Refused::Name(op.clone())),
            None => Ok(Workflow { profiles, required, attempts: Vec::new(), kept: Vec::new(), stage: Stage::Open }),
        }
    }

    /// Takes an attempt in, if it may be made: the static check of the contract, then the retry table (section 7).
    /// Gives its place, and the call that began the operation when it is sent again under the same key.
    ///
    /// # Errors
    /// Why it may not.
    pub fn attempt(&mut self, wanted: Wanted) -> Result<(usize, Option<CallId>), Refused> {
        match self.stage {
            Stage::Open => {}
            decided @ (Stage::Committing | Stage::Aborting | Stage::Committed | Stage::Aborted | Stage::Unsettled) => {
                return Err(Refused::Decided(decided));
            }
        }
        for name in [&wanted.op, &wanted.branch] {
            if !is_name(name) {
                return Err(Refused::Name(name.clone()));
            }
        }
        if self.attempts.len() >= ATTEMPTS_MAX {
            return Err(Refused::TooMany);
        }
        if let Some(lacks) = self.profiles.iter().find_map(|profile| lacks(&wanted.contract, *profile)) {
            return Err(Refused::Lacks { tool: wanted.tool, lacks });
        }
        let again = self.may_retry(&wanted.op)?;
        let mut rests_on = self.inferred(&wanted.input);
        for op in &wanted.after {
            let found = self.attempts.iter().rposition(|attempt| attempt.op == *op && attempt.undoes.is_none());
            rests_on.insert(found.ok_or_else(|| Refused::After(op.clone()))?);
        }
        let held = self.profiles.contains(&Profile::SpeculationSafe) && wanted.contract.changes();
        let Wanted { op, branch, tool, input, contract, resources, after: _ } = wanted;
        self.attempts.push(Attempt {
            op,
            branch,
            tool,
            input,
            contract,
            resources,
            parent: None,
            call: None,
            state: if held { State::Held } else { State::Unknown },
            undoes: None,
            rests_on: rests_on.into_iter().collect(),
            values: Vec::new(),
        });
        Ok((self.attempts.len() - 1, again))
    }

    /// The retry table: what the last attempt at an operation lets the next one be.
    fn may_retry(&self, op: &str) -> Result<Option<CallId>, Refused> {
        let earlier = || self.attempts.iter().filter(|attempt| attempt.op == op && attempt.undoes.is_none());
        let Some(last) = earlier().next_back() else { return Ok(None) };
        let unknown = |way| Err(Refused::Unknown { op: op.to_owned(), way });
        match (last.state, last.contract.outcome) {
            (State::Failed, _) => Ok(None),
            (State::Done | State::Held, _) if !last.contract.changes() => Ok(None),
            (State::Done | State::Held, _) => Err(Refused::Done(op.to_owned())),
            (State::Unknown, _) if !last.contract.changes() => Ok(None),
            (State::Unknown, OutcomeBy::ResendOriginal { .. }) => {
                let began = earlier().find_map(|attempt| attempt.call);
                began.map_or_else(|| unknown("it is on its way"), |call| Ok(Some(call)))
            }
            (State::Unknown, OutcomeBy::Query | OutcomeBy::Ack) => unknown("it is asked first"),
            (State::Unknown, OutcomeBy::None) => unknown("no contract says how to find out, so a person has to"),
        }
    }

    /// The attempts of whose results this input repeats a value.
    fn inferred(&self, input: &Value) -> BTreeSet<usize> {
        let values = values(input);
        let used = |attempt: &Attempt| attempt.values.iter().any(|value| values.contains(value));
        self.attempts.iter().enumerate().filter(|(_, attempt)| used(attempt)).map(|(at, _)| at).collect()
    }

    /// The attempt is about to be sent in the name of this call.
    pub fn sending(&mut self, at: usize, parent: CallId) {
        if let Some(attempt) = self.attempts.get_mut(at) {
            (attempt.parent, attempt.state) = (Some(parent), State::Unknown);
        }
    }

    /// The call of an attempt.
    pub fn bound(&mut self, at: usize, call: CallId) {
        if let Some(attempt) = self.attempts.get_mut(at) {
            attempt.call = Some(call);
        }
    }

    /// What was seen of an attempt; the last word counts. `result` is what it gave back.
    pub fn seen(&mut self, at: usize, state: State, result: Option<&Value>) {
        if let Some(attempt) = self.attempts.get_mut(at) {
            attempt.state = state;
            attempt.values = result.map(|result| values(result).into_iter().collect()).unwrap_or_default();
            // A resend that came back says what became of the operation, whichever attempt it was.
            let op = attempt.op.clone();
            let answers = matches!(attempt.contract.outcome, OutcomeBy::ResendOriginal { .. });
            if answers && state == State::Done {
                for earlier in self.attempts[..at].iter_mut().filter(|earlier| earlier.op == op) {
                    if earlier.state == State::Unknown {
                        earlier.state = State::Done;
                    }
                }
            }
        }
    }

    /// Decides to keep these branches (all of them when none is named). Gives the held attempts that go out now, in
    /// order.
    ///
    /// # Errors
    /// Why that cannot be decided now; nothing has changed.
    pub fn commit(&mut self, branches: &[String]) -> Result<Vec<usize>, NotYet> {
        match self.stage {
            Stage::Open => {}
            decided @ (Stage::Committing | Stage::Aborting | Stage::Committed | Stage::Aborted | Stage::Unsettled) => {
                return Err(NotYet::Decided(decided));
            }
        }
        let all: BTreeSet<&String> = self.attempts.iter().map(|attempt| &attempt.branch).collect();
        if let Some(odd) = branches.iter().find(|branch| !all.contains(branch)) {
            return Err(NotYet::NoBranch(odd.clone()));
        }
        let kept: Vec<String> =
            if branches.is_empty() { all.into_iter().cloned().collect() } else { branches.to_vec() };
        let unknown = self.unknown();
        if !unknown.is_empty() {
            return Err(NotYet::Unknown(unknown));
        }
        let is_there = |attempt: &Attempt| matches!(attempt.state, State::Done | State::Held);
        let does = |op: &String| {
            self.attempts.iter().any(|attempt| {
                attempt.op == *op && attempt.undoes.is_none() && is_there(attempt) && kept.contains(&attempt.branch)
            })
        };
        let missing: Vec<String> = self.required.iter().filter(|op| !does(op)).cloned().collect();
        if !missing.is_empty() {
            return Err(NotYet::Missing(missing));
        }
        for attempt in self.attempts.iter().filter(|attempt| is_there(attempt) && kept.contains(&attempt.branch)) {
            let below = attempt.rests_on.iter().filter_map(|below| self.attempts.get(*below));
            let mut dropped = below.filter(|below| is_there(below) && !kept.contains(&below.branch));
            if let Some(dropped) = dropped.next() {
                return Err(NotYet::Sphere { kept: attempt.op.clone(), dropped: dropped.op.clone() });
            }
        }
        let held = |(_, attempt): &(usize, &Attempt)| attempt.state == State::Held && kept.contains(&attempt.branch);
        let released = self.attempts.iter().enumerate().filter(held).map(|(at, _)| at).collect();
        self.kept = kept;
        self.stage = Stage::Committing;
        Ok(released)
    }

    /// Decides to give it up. Nothing that is held goes out any more.
    ///
    /// # Errors
    /// When it is decided already.
    pub fn abort(&mut self) -> Result<(), NotYet> {
        match self.stage {
            Stage::Open | Stage::Committing | Stage::Unsettled => {
                self.stage = Stage::Aborting;
                self.kept = Vec::new();
                Ok(())
            }
            decided @ (Stage::Aborting | Stage::Committed | Stage::Aborted) => Err(NotYet::Decided(decided)),
        }
    }

    /// Goes on with what was decided, after something was found out.
    pub fn resume(&mut self) {
        if self.stage == Stage::Unsettled {
            self.stage = if self.kept.is_empty() { Stage::Aborting } else { Stage::Committing };
        }
    }

    /// The next attempt that has to be undone, the newest first: confirmed, not kept, with an inverse, not undone yet.
    #[must_use]
    pub fn to_undo(&self) -> Option<usize> {
        (0..self.attempts.len()).rev().find(|at| {
            let attempt = &self.attempts[*at];
            let reversible = matches!(attempt.contract.effect, Effect::Reversible { .. });
            reversible && self.is_residue(*at) && !self.attempts.iter().any(|undo| undo.undoes == Some(*at))
        })
    }

    /// Takes the undoing of an attempt in.
    pub fn undo(&mut self, of: usize, tool: String, input: Arc<Value>, contract: Arc<Contract>) -> usize {
        let (op, branch, resources) = self.attempts.get(of).map_or_else(Default::default, |attempt| {
            (format!("undo {}", attempt.op), attempt.branch.clone(), attempt.resources.clone())
        });
        self.attempts.push(Attempt {
            op,
            branch,
            tool,
            input,
            contract,
            resources,
            parent: None,
            call: None,
            state: State::Unknown,
            undoes: Some(of),
            rests_on: Vec::new(),
            values: Vec::new(),
        });
        self.attempts.len() - 1
    }

    /// The end of what was decided: settled if nothing is unknown and nothing is left, else unsettled.
    pub fn settle(&mut self) -> Stage {
        let clean = self.unknown().is_empty() && self.left().is_empty();
        let whole = self
            .required
            .iter()
            .all(|op| self.attempts.iter().any(|attempt| attempt.op == *op && attempt.state == State::Done));
        self.stage = match self.stage {
            Stage::Committing if clean && whole => Stage::Committed,
            Stage::Aborting if clean => Stage::Aborted,
            Stage::Committing | Stage::Aborting => Stage::Unsettled,
            decided @ (Stage::Open | Stage::Committed | Stage::Aborted | Stage::Unsettled) => decided,
        };
        self.stage
    }

    /// The operations that nobody knows the outcome of.
    #[must_use]
    pub fn unknown(&self) -> Vec<String> {
        let mut ops: Vec<String> = Vec::new();
        for attempt in self.attempts.iter().filter(|it| it.state == State::Unknown && it.contract.changes()) {
            if !ops.contains(&attempt.op) {
                ops.push(attempt.op.clone());
            }
        }
        ops
    }

    /// The operations whose effect is there and should not be.
    #[must_use]
    pub fn left(&self) -> Vec<String> {
        (0..self.attempts.len()).filter(|at| self.is_residue(*at)).map(|at| self.attempts[at].op.clone()).collect()
    }

    fn is_residue(&self, at: usize) -> bool {
        let attempt = &self.attempts[at];
        let decided = !matches!(self.stage, Stage::Open);
        let undone = self.attempts.iter().any(|undo| undo.undoes == Some(at) && undo.state == State::Done);
        decided
            && attempt.undoes.is_none()
            && attempt.contract.changes()
            && attempt.state == State::Done
            && !self.kept.contains(&attempt.branch)
            && !undone
    }

    /// What it holds against other workflows: while it is not settled, each resource that it changed under a profile
    /// that mediates.
    #[must_use]
    pub fn holds(&self, resource: &str) -> bool {
        let open = !matches!(self.stage, Stage::Committed | Stage::Aborted);
        let changed = |it: &Attempt| it.contract.changes() && it.state != State::Failed;
        open && self.profiles.contains(&Profile::ExternallyMediated)
            && self.attempts.iter().any(|it| changed(it) && it.resources.iter().any(|own| own == resource))
    }

    /// Its ledger as the checker reads it, in the view of the runtime, and what the checker finds.
    ///
    /// # Errors
    /// Never in practice: the names are made here.
    pub fn check(&self) -> Result<Vec<Anomaly>, Malformed> {
        let mut history = History::new();
        let required: Vec<&str> = self.required.iter().map(String::as_str).collect();
        history.take(Event::Begin { workflow: "w", required: &required })?;
        let sent = |attempt: &Attempt| attempt.state != State::Held && attempt.contract.changes();
        let names: Vec<(String, String)> =
            (0..self.attempts.len()).map(|at| (format!("a{at}"), format!("e{at}"))).collect();
        let mut effects: BTreeSet<usize> = BTreeSet::new();
        for (at, attempt) in self.attempts.iter().enumerate().filter(|(_, attempt)| sent(attempt)) {
            let (name, effect) = (&names[at].0, &names[at].1);
            history.take(Event::Attempt { attempt: name, op: &attempt.op, workflow: "w", branch: &attempt.branch })?;
            if let Some(of) = attempt.undoes {
                history.take(Event::Compensate { compensation: name, attempt: &names[of].0 })?;
            }
            // Of a resend only the first attempt has the effect: the others give its result back.
            let first = !self.attempts[..at].iter().any(|it| it.op == attempt.op && it.state == State::Done);
            let seen = match attempt.state {
                State::Done => Seen::Confirmed,
                State::Failed => Seen::Failed,
                State::Unknown | State::Held => Seen::Unknown,
            };
            if seen != Seen::Failed && first {
                let resource = attempt.resources.first().map_or("", String::as_str);
                history.take(Event::Effect { effect, attempt: name, resource, staged: false })?;
                effects.insert(at);
            }
            history.take(Event::Observe { attempt: name, seen })?;
            for below in attempt.rests_on.iter().filter(|below| effects.contains(*below) && effects.contains(&at)) {
                history.take(Event::Depends { later: effect, earlier: &names[*below].1 })?;
            }
        }
        match self.stage {
            Stage::Open => {}
            Stage::Committing | Stage::Committed => {
                let kept: Vec<&str> = self.kept.iter().map(String::as_str).collect();
                history.take(Event::Commit { workflow: "w", branches: &kept })?;
            }
            Stage::Aborting | Stage::Aborted => history.take(Event::Abort { workflow: "w", branch: None })?,
            Stage::Unsettled if self.kept.is_empty() => history.take(Event::Abort { workflow: "w", branch: None })?,
            Stage::Unsettled => {
                let kept: Vec<&str> = self.kept.iter().map(String::as_str).collect();
                history.take(Event::Commit { workflow: "w", branches: &kept })?;
            }
        }
        Ok(history.check(&Terms { view: View::Runtime, ..Terms::default() }))
    }
}

fn is_name(name: &str) -> bool {
    (1..=NAME_LEN_MAX).contains(&name.len())
}

/// Shortest text, and longest, that counts as a value of its own: `on` is in everything, a page in nothing else.
const VALUE_LEN: std::ops::RangeInclusive<usize> = 4..=256;

/// Values that one result is remembered by.
const VALUES_MAX: usize = 64;

/// The texts and numbers in a value that somebody may repeat.
fn values(value: &Value) -> BTreeSet<String> {
    let (mut found, mut next) = (BTreeSet::new(), vec![value]);
    while let Some(value) = next.pop() {
        let text = match value {
            Value::Null | Value::Bool(_) => continue,
            Value::Number(number) => number.to_string(),
            Value::String(text) => text.clone(),
            Value::Array(all) => {
                next.extend(all);
                continue;
            }
            Value::Object(members) => {
                next.extend(members.values());
                continue;
            }
        };
        if VALUE_LEN.contains(&text.len()) && found.len() < VALUES_MAX {
            found.insert(text);
        }
    }
    found
}

#[cfg(test)]
mod tests;

//! A group of effects with a guarantee: what may be tried, when it may be settled, and what has to be undone.
//!
//! Pure: it is asked before each attempt and told what was seen of it; it keeps the ledger of its attempts, what they
//! rest on and how they ended. It never calls a workflow a success while an outcome is unknown (A1 to A4), never has
//! an unknown compensated (A3), and settles what rests on one another as a whole (A6).

pub mod decide;
mod ledger;

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;
use thiserror::Error;

use crate::id::CallId;
use crate::request::Part;
use crate::surface::contract::{Contract, OutcomeBy};
use crate::time::Wall;

use super::profile::{Lacks, Profile, lacks};
use super::values::values;

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
    /// It was unsettled, and a person answers for what is left. Never a success either: what is left stays in the log.
    Closed,
}

impl Stage {
    /// All of them.
    pub const ALL: [Stage; 7] = [
        Stage::Open,
        Stage::Committing,
        Stage::Aborting,
        Stage::Committed,
        Stage::Aborted,
        Stage::Unsettled,
        Stage::Closed,
    ];

    /// Nothing more comes of it.
    #[must_use]
    pub fn is_final(self) -> bool {
        match self {
            Stage::Committed | Stage::Aborted | Stage::Closed => true,
            Stage::Open | Stage::Committing | Stage::Aborting | Stage::Unsettled => false,
        }
    }

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
            Stage::Closed => "closed",
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
    /// It was held here until the workflow was decided.
    pub held: bool,
    /// When it was last sent.
    pub sent: Option<Wall>,
    /// The attempt that it undoes.
    pub undoes: Option<usize>,
    /// The attempt whose staged effect it releases.
    pub releases: Option<usize>,
    /// The attempts whose results it was made from.
    pub rests_on: Vec<usize>,
    /// Values of its result that a later input may repeat.
    pub values: Vec<String>,
    /// Its result, where a call that its contract names may need it and it is not too large.
    pub output: Option<Arc<Value>>,
}

/// The largest result that is kept with an attempt, in bytes of JSON: a receipt, not a document.
const OUTPUT_BYTES_MAX: usize = 16 * 1024;

impl Attempt {
    /// One that nothing is known of.
    fn new(tool: String, input: Arc<Value>, contract: Arc<Contract>) -> Attempt {
        Attempt {
            op: String::new(),
            branch: MAIN.to_owned(),
            tool,
            input,
            contract,
            resources: Vec::new(),
            parent: None,
            call: None,
            state: State::Unknown,
            held: false,
            sent: None,
            undoes: None,
            releases: None,
            rests_on: Vec::new(),
            values: Vec::new(),
            output: None,
        }
    }

    /// It does something of its own: no undoing, no release.
    #[must_use]
    pub fn is_forward(&self) -> bool {
        self.undoes.is_none() && self.releases.is_none()
    }
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
    /// What is staged at its tool is dropped there before it could be released.
    #[error("{0:?} has been staged for so long that its tool drops it: abort, and begin again")]
    Expired(String),
    /// A branch that is not there.
    #[error("there is no branch {0:?}")]
    NoBranch(String),
    /// It is not unsettled: its end is still to be decided, or on its way.
    #[error("the workflow is {}: commit or abort it", .0.word())]
    Undecided(Stage),
    /// What was found out lets it end well.
    #[error("nothing is unknown or left any more: {} it again", if *.keeps { "commit" } else { "abort" })]
    EndsWell {
        /// It was decided to keep it.
        keeps: bool,
    },
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
        if self.stage != Stage::Open {
            return Err(Refused::Decided(self.stage));
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
            let found = self.attempts.iter().rposition(|attempt| attempt.op == *op && attempt.is_forward());
            rests_on.insert(found.ok_or_else(|| Refused::After(op.clone()))?);
        }
        let speculative = self.profiles.contains(&Profile::SpeculationSafe);
        // A tool that stages holds it itself; what it has done is not visible until it is released.
        let held = speculative && wanted.contract.changes() && !wanted.contract.stages();
        let Wanted { op, branch, tool, input, contract, resources, after: _ } = wanted;
        self.attempts.push(Attempt {
            op,
            branch,
            resources,
            state: if held { State::Held } else { State::Unknown },
            held,
            rests_on: rests_on.into_iter().collect(),
            ..Attempt::new(tool, input, contract)
        });
        Ok((self.attempts.len() - 1, again))
    }

    /// The retry table: what the last attempt at an operation lets the next one be.
    fn may_retry(&self, op: &str) -> Result<Option<CallId>, Refused> {
        let earlier = || self.attempts.iter().filter(|attempt| attempt.op == op && attempt.is_forward());
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

    /// The key of an attempt's operation: the call that began it, which a resend names again.
    #[must_use]
    pub fn key(&self, at: usize) -> String {
        let own = &self.attempts[at];
        let resends = matches!(own.contract.outcome, OutcomeBy::ResendOriginal { .. });
        let first =
            self.attempts.iter().filter(|it| resends && it.op == own.op && it.is_forward()).find_map(|it| it.call);
        first.or(own.call).map(|call| call.to_string()).unwrap_or_default()
    }

    /// The place of an attempt, as it stands in the ledger of all calls.
    #[must_use]
    pub fn part(&self, id: u64, at: usize) -> Part {
        let attempt = &self.attempts[at];
        let call = |of: Option<usize>| of.and_then(|of| self.attempts.get(of)).and_then(|of| of.call);
        Part {
            workflow: id,
            op: attempt.op.clone(),
            branch: attempt.branch.clone(),
            rests_on: attempt.rests_on.iter().filter_map(|below| call(Some(*below))).collect(),
            undoes: call(attempt.undoes),
            drops: attempt.undoes.is_some_and(|of| self.attempts[of].contract.stages()),
            releases: call(attempt.releases),
        }
    }

    /// The attempts of whose results this input repeats a value.
    fn inferred(&self, input: &Value) -> BTreeSet<usize> {
        let values = values(input);
        let used = |attempt: &Attempt| attempt.values.iter().any(|value| values.contains(value));
        self.attempts.iter().enumerate().filter(|(_, attempt)| used(attempt)).map(|(at, _)| at).collect()
    }

    /// The attempt is about to be sent in the name of this call.
    pub fn sending(&mut self, at: usize, parent: CallId, now: Wall) {
        if let Some(attempt) = self.attempts.get_mut(at) {
            (attempt.parent, attempt.state, attempt.sent) = (Some(parent), State::Unknown, Some(now));
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
            let small = |result: &&Value| result.to_string().len() <= OUTPUT_BYTES_MAX;
            let needed = attempt.contract.stages() || attempt.contract.with.undo.is_some();
            attempt.output = result.filter(|_| needed).filter(small).map(|result| Arc::new(result.clone()));
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
}

fn is_name(name: &str) -> bool {
    (1..=NAME_LEN_MAX).contains(&name.len())
}

#[cfg(test)]
mod tests;

//! One wish to act, whoever asked: bounded, numbered, and answered for exactly once.
//!
//! A [`Request`] is the token that the whole chain carries: a [`Refusal`] or an outcome consumes it, and nothing else
//! can. Numbering a batch is the only way to make one, so two wishes never share a name, and a provider's duplicate
//! id is two calls. Nothing in here decides: a request that no tool can serve is still a request.

pub mod args;
pub mod paths;
pub mod shown;
pub mod why;

use std::sync::Arc;

use thiserror::Error;

use crate::id::{BatchId, CallId, RunId, ToolName};
use args::Args;
use paths::PathFacts;
use why::Why;

/// The most calls in one batch. A model that proposes more in one message has lost its way; the order of a batch is
/// checked pair by pair, and a person is asked about each call.
pub const BATCH_LEN_MAX: usize = 64;

/// Whom a run acts for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Asker {
    /// The way that the wishes came in.
    pub via: Via,
    /// The name that the surface gives: a user, an MCP client, a model.
    pub name: String,
}

/// The ways in. Voice and command line are the operator's own; the others propose on somebody's behalf.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Via {
    /// An operator's spoken or typed command, understood by the cascade.
    Voice,
    /// An operator at the command line.
    Cli,
    /// An AI agent over MCP.
    Mcp,
    /// The agent loop of this box: a language model's tool calls.
    Agent,
    /// A system of the plant: a message on a topic of its broker.
    Plant,
}

impl Via {
    /// A person of this box acts directly, no model in between.
    #[must_use]
    pub fn is_operator(self) -> bool {
        match self {
            Via::Voice | Via::Cli => true,
            Via::Mcp | Via::Agent | Via::Plant => false,
        }
    }

    /// A protective action that comes this way runs at once. The plant's own systems may make it safe; they are no
    /// operator in anything else.
    #[must_use]
    pub fn may_protect(self) -> bool {
        match self {
            Via::Voice | Via::Cli | Via::Plant => true,
            Via::Mcp | Via::Agent => false,
        }
    }

    /// The word in evidence rows.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Via::Voice => "voice",
            Via::Cli => "cli",
            Via::Mcp => "mcp",
            Via::Agent => "agent",
            Via::Plant => "plant",
        }
    }
}

/// What the optional classifier said, or that it could not say anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Classifier {
    /// Harmless.
    Allow,
    /// A person should look.
    Ask,
    /// Harmful.
    Deny,
    /// It gave no answer: taken as [`Classifier::Ask`].
    Fail,
}

/// The place in a workflow of a call that is made for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// The workflow.
    pub workflow: u64,
    /// The logical operation, the same for each attempt at it.
    pub op: String,
    /// The branch.
    pub branch: String,
    /// The calls whose results it was made from.
    pub rests_on: Vec<CallId>,
    /// The call that it undoes.
    pub undoes: Option<CallId>,
    /// What it undoes was staged: it drops it.
    pub drops: bool,
    /// The call whose staged effect it releases.
    pub releases: Option<CallId>,
}

/// What somebody would like to happen. Plain data; it has no rights and no name yet.
#[derive(Debug, Clone)]
pub struct Wish {
    /// The tool as the asker wrote it.
    pub tool: ToolName,
    /// Its input.
    pub args: Args,
    /// The call on whose behalf this one is made (a subagent, a workflow).
    pub parent: Option<CallId>,
    /// The call that began the operation, when this is another attempt at it: the tool gets the same key.
    pub again: Option<CallId>,
    /// Its place in a workflow.
    pub part: Option<Arc<Part>>,
    /// What the optional classifier said of it; `None` where it was not asked.
    pub classified: Option<Classifier>,
    /// What `sys` saw on the disk about the paths that the input names.
    pub facts: Arc<PathFacts>,
    /// The listener matched, exactly, a command that is marked protective. Obeyed for operators only.
    pub protective: bool,
}

/// A batch that is too long to be taken.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("a batch of {len} calls; at most {BATCH_LEN_MAX} are taken together")]
pub struct BatchTooLong {
    /// How many there were.
    pub len: usize,
}

/// The wishes of one message, in the asker's order: at most [`BATCH_LEN_MAX`]. None at all is answered at once.
#[derive(Debug, Clone, Default)]
pub struct Batch(Vec<Wish>);

impl Batch {
    /// Checks the length.
    ///
    /// # Errors
    /// When there are more than [`BATCH_LEN_MAX`]: nothing of it is taken.
    pub fn new(wishes: Vec<Wish>) -> Result<Batch, BatchTooLong> {
        if wishes.len() > BATCH_LEN_MAX { Err(BatchTooLong { len: wishes.len() }) } else { Ok(Batch(wishes)) }
    }

    /// How many wishes there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// A message without a wish.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A numbered wish: the token that is consumed exactly once, by a [`Refusal`] or by an outcome.
#[derive(Debug)]
#[must_use = "each request is answered: carry it on or refuse it"]
pub struct Request {
    // In a box, because passports move from shelf to shelf.
    numbered: Box<Numbered>,
}

#[derive(Debug)]
struct Numbered {
    call: CallId,
    wish: Wish,
}

impl Request {
    /// Numbers a batch. The caller sees to it that a batch number is never used twice.
    #[must_use]
    pub fn number(run: RunId, batch: BatchId, wishes: Batch) -> Vec<Request> {
        wishes
            .0
            .into_iter()
            .zip(0_u32..)
            .map(|(wish, position)| Numbered { call: CallId { run, batch, position }, wish })
            .map(|numbered| Request { numbered: Box::new(numbered) })
            .collect()
    }

    /// The name of the call.
    #[must_use]
    pub fn call(&self) -> CallId {
        self.numbered.call
    }

    /// The wish as it came.
    #[must_use]
    pub fn wish(&self) -> &Wish {
        &self.numbered.wish
    }

    /// Ends the call before its start.
    pub fn refuse(self, why: Why) -> Refusal {
        Refusal { request: self, why }
    }
}

/// A call that ended before it could change anything.
#[derive(Debug)]
#[must_use = "a refused call is answered too: hand it to closure"]
pub struct Refusal {
    request: Request,
    why: Why,
}

impl Refusal {
    /// The request that ended.
    pub fn request(&self) -> &Request {
        &self.request
    }

    /// The reason.
    #[must_use]
    pub fn why(&self) -> &Why {
        &self.why
    }

    /// For closure, the one room that may take the token out.
    pub(crate) fn into_parts(self) -> (Request, Why) {
        (self.request, self.why)
    }
}

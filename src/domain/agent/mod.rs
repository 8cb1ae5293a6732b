//! The loop of a language model that uses tools: prepare the context, stream an answer, write it down, dispatch its
//! calls, and again.
//!
//! The machine decides and waits for nothing: it says what is to be done next and is told what came of it. Only a
//! whole answer is written down or dispatched; one that broke off never was, and asking again costs nothing but tokens.
//! On every way out each call in the history has its one result, so that the history may be sent as it is. A loop that
//! does not end by itself is ended by its turns, its attempts, or its window.

pub mod profile;
pub mod result;
pub mod skill;
#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::block::{Block, Message, Role, ToolResult, ToolUse, calls};
use crate::context::Stuck;
use crate::repair::Stub;
use crate::repair::history::close;

/// How often one request is sent before the provider counts as out of service.
pub const ATTEMPTS_MAX: u32 = 5;

/// How often an answer that broke off or cannot be read is asked for again: a second time may be bad luck.
pub const BROKEN_MAX: u32 = 2;

/// How often a history is made smaller because the provider says that it is too long.
pub const OVERFLOWS_MAX: u32 = 2;

/// The wait before the second attempt; each further one waits twice as long.
const WAIT_FIRST: Duration = Duration::from_secs(1);

/// The longest wait of our own. What a server asks for is believed up to [`WAIT_ASKED_MAX`].
const WAIT_MAX: Duration = Duration::from_secs(30);

/// The longest wait that a server's `retry-after` is believed. A provider that wants more is out of service, and a
/// person should know now.
pub const WAIT_ASKED_MAX: Duration = Duration::from_secs(120);

/// Why there is no whole answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trouble {
    /// The provider, or the way to it, said no.
    Refused {
        /// The same request may do better later.
        retryable: bool,
        /// How long it wants to be left alone.
        after: Option<Duration>,
        /// What it says.
        message: String,
    },
    /// The history is too long for the model, whatever our estimate said.
    TooLong {
        /// What it says.
        message: String,
    },
    /// The answer broke off.
    BrokeOff {
        /// Where.
        message: String,
    },
    /// The model's output reached its bound in the middle of a call: another attempt would end there too.
    OutputCut {
        /// Where.
        message: String,
    },
    /// The answer cannot be read.
    Malformed {
        /// Why.
        message: String,
    },
}

impl Trouble {
    /// What is said about it.
    #[must_use]
    pub fn message(&self) -> &str {
        match self {
            Trouble::Refused { message, .. }
            | Trouble::TooLong { message }
            | Trouble::BrokeOff { message }
            | Trouble::OutputCut { message }
            | Trouble::Malformed { message } => message,
        }
    }

    /// The stable code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Trouble::Refused { .. } => "provider_error",
            Trouble::TooLong { .. } => "context_overflow",
            Trouble::BrokeOff { .. } => "stream_truncated",
            Trouble::OutputCut { .. } => "output_truncated",
            Trouble::Malformed { .. } => "malformed",
        }
    }
}

/// Why the model stopped, where it did so by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said {
    /// What it had to say, or calls.
    All,
    /// As much as its output may be; there are no calls in it.
    Cut,
    /// It pauses, and wants its own words back to go on.
    Pause,
    /// It, or a filter, refused.
    Refusal,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// The model has said what it had to say.
    Done,
    /// Its last answer was cut by the bound of its output.
    Cut,
    /// It, or a filter, refused.
    Refused,
    /// It used up its turns.
    Turns {
        /// How many.
        limit: u32,
    },
    /// Somebody cancelled it.
    Cancelled,
    /// No whole answer is to be had.
    Trouble(Trouble),
    /// The history does not fit any more.
    Stuck(Stuck),
    /// The gate denied one kind of its wishes too often: it does not listen, and a person is to look.
    DeniedRepeatedly {
        /// What the last denial says.
        message: String,
    },
    /// The history cannot be written down: nothing that it asks for is begun.
    NotWritten,
}

impl Ended {
    /// The stable code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Ended::Done => "done",
            Ended::Cut => "length",
            Ended::Refused => "refused",
            Ended::Turns { .. } => "turn_limit",
            Ended::Cancelled => "cancelled",
            Ended::Trouble(trouble) => trouble.code(),
            Ended::Stuck(stuck) => stuck.code(),
            Ended::DeniedRepeatedly { .. } => "denied_repeatedly",
            Ended::NotWritten => "history_not_written",
        }
    }

    /// It ended as it should.
    #[must_use]
    pub fn is_done(&self) -> bool {
        *self == Ended::Done
    }
}

/// What happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// The history as it may be sent.
    Ready(Vec<Message>),
    /// It cannot be made to fit.
    Stuck(Vec<Message>, Stuck),
    /// A whole answer.
    Answer(Vec<Block>, Said),
    /// There is none.
    Trouble(Trouble),
    /// The wait is over.
    Waited,
    /// The answer is on the disk.
    Written,
    /// It could not be written.
    NotWritten,
    /// What came of the calls, in their order. One that is missing counts as not known.
    Results(Vec<ToolResult>),
    /// The same, and the gate says that it has denied one kind of them too often.
    TooOften {
        /// What came of the calls, in their order.
        results: Vec<ToolResult>,
        /// What the denial says.
        message: String,
    },
    /// Somebody does not want it any more.
    Cancel,
}

impl Input {
    /// The answer, where it is one.
    #[must_use]
    pub fn answer(self) -> Option<(Vec<Block>, Said)> {
        match self {
            Input::Answer(blocks, said) => Some((blocks, said)),
            Input::Ready(_)
            | Input::Stuck(..)
            | Input::Trouble(_)
            | Input::Waited
            | Input::Written
            | Input::NotWritten
            | Input::Results(_)
            | Input::TooOften { .. }
            | Input::Cancel => None,
        }
    }
}

/// What is to be done next. There is one at a time, and one [`Input`] answers it.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Make this fit, and write down what was done to it. `forced`: the provider said that it is too long.
    Prepare {
        /// The history.
        history: Vec<Message>,
        /// The provider has refused it for its length.
        forced: bool,
    },
    /// Ask for an answer to [`Loop::history`].
    Ask {
        /// From 1.
        attempt: u32,
    },
    /// Wait so long, then say [`Input::Waited`].
    Wait(Duration),
    /// Write this answer down before anything of it is done.
    Write(Message),
    /// Hand these in as one batch.
    Dispatch(Vec<ToolUse>),
    /// Cancel the batch; its results still come.
    StopBatch,
    /// Nothing more. The history is closed: [`Loop::into_history`].
    End(Ended),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Preparing,
    Asking,
    Waiting,
    Writing,
    Dispatching { cancelled: bool },
    Over,
}

/// The machine of one run.
#[derive(Debug)]
pub struct Loop {
    history: Vec<Message>,
    turns_max: u32,
    turns: u32,
    attempts: u32,
    broken: u32,
    overflows: u32,
    said: Said,
    phase: Phase,
}

impl Loop {
    /// With what was said before and what is asked now, for so many turns. Gives the first action too.
    #[must_use]
    pub fn new(mut history: Vec<Message>, request: Vec<Block>, turns_max: u32) -> (Loop, Action) {
        close(&mut history, |_| Stub::NotStarted);
        say(&mut history, request);
        let machine = Loop {
            history: Vec::new(),
            turns_max,
            turns: 0,
            attempts: 0,
            broken: 0,
            overflows: 0,
            said: Said::All,
            phase: Phase::Preparing,
        };
        (machine, Action::Prepare { history, forced: false })
    }

    /// The history as it was prepared; empty while it is away to be prepared.
    #[must_use]
    pub fn history(&self) -> &[Message] {
        &self.history
    }

    /// The history at the end.
    #[must_use]
    pub fn into_history(self) -> Vec<Message> {
        self.history
    }

    /// The turns that were begun.
    #[must_use]
    pub fn turns(&self) -> u32 {
        self.turns
    }

    /// Takes in what happened. `None`: there is nothing to do until the next input.
    pub fn step(&mut self, input: Input) -> Option<Action> {
        match (self.phase, input) {
            (Phase::Over, _) => None,
            (Phase::Dispatching { cancelled: false }, Input::Cancel) => {
                self.phase = Phase::Dispatching { cancelled: true };
                Some(Action::StopBatch)
            }
            (Phase::Dispatching { cancelled: true }, Input::Cancel) => None,
            (_, Input::Cancel) => Some(self.end(Ended::Cancelled)),
            (Phase::Preparing, Input::Ready(history)) => {
                self.history = history;
                if self.turns >= self.turns_max {
                    return Some(self.end(Ended::Turns { limit: self.turns_max }));
                }
                self.turns += 1;
                Some(self.ask())
            }
            (Phase::Preparing, Input::Stuck(history, stuck)) => {
                self.history = history;
                Some(self.end(Ended::Stuck(stuck)))
            }
            // What was to be sent could not be kept.
            (Phase::Preparing, Input::NotWritten) => Some(self.end(Ended::NotWritten)),
            (Phase::Asking, Input::Answer(blocks, said)) => Some(self.answer(blocks, said)),
            (Phase::Asking, Input::Trouble(trouble)) => Some(self.trouble(trouble)),
            (Phase::Waiting, Input::Waited) => Some(self.ask()),
            (Phase::Writing, Input::Written) => Some(self.written()),
            (Phase::Writing, Input::NotWritten) => {
                // What is not on the disk was not said: else a restart would know another history.
                self.history.pop();
                Some(self.end(Ended::NotWritten))
            }
            (Phase::Dispatching { cancelled }, Input::Results(results)) => {
                answer(&mut self.history, results);
                Some(if cancelled { self.end(Ended::Cancelled) } else { self.prepare(false) })
            }
            (Phase::Dispatching { cancelled }, Input::TooOften { results, message }) => {
                answer(&mut self.history, results);
                Some(self.end(if cancelled { Ended::Cancelled } else { Ended::DeniedRepeatedly { message } }))
            }
            // Late words of what was given up.
            (
                Phase::Preparing | Phase::Asking | Phase::Waiting | Phase::Writing | Phase::Dispatching { .. },
                Input::Ready(_)
                | Input::Stuck(..)
                | Input::Answer(..)
                | Input::Trouble(_)
                | Input::Waited
                | Input::Written
                | Input::NotWritten
                | Input::Results(_)
                | Input::TooOften { .. },
            ) => None,
        }
    }

    fn prepare(&mut self, forced: bool) -> Action {
        self.phase = Phase::Preparing;
        Action::Prepare { history: std::mem::take(&mut self.history), forced }
    }

    fn ask(&mut self) -> Action {
        self.phase = Phase::Asking;
        self.attempts += 1;
        Action::Ask { attempt: self.attempts }
    }

    fn answer(&mut self, blocks: Vec<Block>, said: Said) -> Action {
        (self.attempts, self.broken, self.said) = (0, 0, said);
        if blocks.is_empty() {
            // Nothing was said, and an empty message is none.
            return self.end(if said == Said::Refusal { Ended::Refused } else { Ended::Done });
        }
        let message = Message { role: Role::Assistant, blocks };
        self.history.push(message.clone());
        self.phase = Phase::Writing;
        Action::Write(message)
    }

    fn written(&mut self) -> Action {
        let proposed: Vec<ToolUse> =
            self.history.last().map(|said| calls(&said.blocks).cloned().collect()).unwrap_or_default();
        if !proposed.is_empty() {
            self.phase = Phase::Dispatching { cancelled: false };
            return Action::Dispatch(proposed);
        }
        match self.said {
            Said::All => self.end(Ended::Done),
            Said::Cut => self.end(Ended::Cut),
            Said::Refusal => self.end(Ended::Refused),
            Said::Pause => self.prepare(false),
        }
    }

    fn trouble(&mut self, trouble: Trouble) -> Action {
        let retry = match &trouble {
            Trouble::TooLong { .. } if self.overflows < OVERFLOWS_MAX => {
                self.overflows += 1;
                self.turns = self.turns.saturating_sub(1);
                self.attempts = 0;
                return self.prepare(true);
            }
            Trouble::TooLong { .. } | Trouble::OutputCut { .. } => false,
            Trouble::Refused { retryable, after, .. } => {
                *retryable && after.is_none_or(|after| after <= WAIT_ASKED_MAX)
            }
            Trouble::BrokeOff { .. } | Trouble::Malformed { .. } => {
                self.broken += 1;
                self.broken <= BROKEN_MAX
            }
        };
        if !retry || self.attempts >= ATTEMPTS_MAX {
            return self.end(Ended::Trouble(trouble));
        }
        let asked = match &trouble {
            Trouble::Refused { after, .. } => *after,
            Trouble::TooLong { .. }
            | Trouble::BrokeOff { .. }
            | Trouble::OutputCut { .. }
            | Trouble::Malformed { .. } => None,
        };
        let own = WAIT_FIRST.saturating_mul(1 << (self.attempts - 1).min(8)).min(WAIT_MAX);
        self.phase = Phase::Waiting;
        Action::Wait(asked.unwrap_or(own))
    }

    /// The one way out.
    fn end(&mut self, ended: Ended) -> Action {
        self.phase = Phase::Over;
        close(&mut self.history, |_| Stub::NotStarted);
        Action::End(ended)
    }
}

/// The results of the calls of the last message, in call order; one that is missing is not known.
fn answer(history: &mut Vec<Message>, results: Vec<ToolResult>) {
    let blocks: Vec<Block> = results.into_iter().map(Block::ToolResult).collect();
    if !blocks.is_empty() {
        history.push(Message { role: Role::User, blocks });
    }
    close(history, |_| Stub::OutcomeUnknown);
}

/// The asker says something: in a message of its own, or behind the results that came last.
fn say(history: &mut Vec<Message>, mut request: Vec<Block>) {
    match history.last_mut() {
        Some(last) if last.role == Role::User => last.blocks.append(&mut request),
        Some(_) | None => history.push(Message { role: Role::User, blocks: request }),
    }
}

//! A provider's history, mended: what goes to a model is legal for its provider, whatever way the last turn ended.
//!
//! It works on the view that leaves; the evidence log stays as it was. In this order: results without a call, and those
//! that come late, are taken out; neighbours of one role are joined; ids are made unique by occurrence; calls and
//! results are paired by position within the turn; a call without a result gets a stub right behind it. The answer
//! depends on the history and the journal alone, so that it is the same each time and a prompt cache stays warm, and
//! mending twice changes nothing.
//!
//! A stub never claims more than the journal says: where nobody knows whether a call took effect, the model is told so,
//! and is not invited to do it again.

mod anthropic;
mod chat;
mod gemini;
mod responses;
mod turns;

use std::collections::BTreeMap;

use serde_json::Value;

use super::Stub;
use crate::block::{Block, Message, Provider, Role, ToolUse};

pub(super) use anthropic::is_id as is_anthropic_id;
pub(super) use responses::{CALLS as RESPONSES_CALLS, is_nameless, of_model as responses_of_model};

/// What stands where messages are missing and the provider wants the asker to speak first.
pub(super) const OPENING: &str = "(earlier messages were left out)";

impl Stub {
    /// The word in the journal and at the head of the stub.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Stub::NotStarted => "not_started",
            Stub::Denied => "denied",
            Stub::OutcomeUnknown => "outcome_unknown",
        }
    }

    /// What the model reads.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Stub::NotStarted => "[not_started] This call was not started. Nothing has happened.",
            Stub::Denied => "[denied] This call was refused and was not started. Nothing has happened.",
            Stub::OutcomeUnknown => {
                "[outcome_unknown] Nobody knows the outcome of this call: it may have taken effect, in full or in part. \
                 Find out what is the case before acting on it."
            }
        }
    }
}

/// What the log says of calls whose result is not in the history: by id; `id@n` is the n-th call with that id.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Journal(BTreeMap<String, Stub>);

impl Journal {
    /// Nothing is known of any call.
    #[must_use]
    pub fn new() -> Journal {
        Journal::default()
    }

    /// What is known of one call.
    pub fn note(&mut self, id: impl Into<String>, stub: Stub) {
        self.0.insert(id.into(), stub);
    }

    /// The same, by the journal's word. A word that does not say that the call never started leaves its outcome
    /// unknown: the result itself is not here.
    pub fn note_word(&mut self, id: impl Into<String>, word: &str) {
        self.note(
            id,
            match word {
                "not_started" => Stub::NotStarted,
                "denied" => Stub::Denied,
                _ => Stub::OutcomeUnknown,
            },
        );
    }

    /// What stands for the result of the n-th call (from 1) with this id.
    fn of(&self, id: &str, occurrence: u32) -> Stub {
        let named = self.0.get(&format!("{id}@{occurrence}"));
        let plain = || self.0.get(id).filter(|_| occurrence == 1);
        named.or_else(plain).copied().unwrap_or(Stub::OutcomeUnknown)
    }
}

/// A mended history.
#[derive(Debug, Clone, PartialEq)]
pub struct Repaired {
    /// The messages, items or contents.
    pub messages: Vec<Value>,
    /// The ids of results, and of calls in the wrong place, that were taken out.
    pub quarantined: Vec<String>,
    /// The stubs that were put in, by the id that the call has now.
    pub stubs: Vec<(String, Stub)>,
    /// Messages and parts that are none of this provider's and were left out, each with its place.
    pub left_out: Vec<String>,
}

/// Mends the messages of a provider.
#[must_use]
pub fn repair(provider: Provider, messages: Vec<Value>, journal: &Journal) -> Repaired {
    match provider {
        Provider::Responses => responses::repair(messages, journal),
        Provider::Anthropic | Provider::Chat | Provider::Gemini => turns::repair(provider, messages, journal),
    }
}

/// Gives the calls of the last message an answer, where they have none: what every way out of the agent loop does, so
/// that a history is closed before it is kept. `stub` says what is known of a call.
pub fn close(history: &mut Vec<Message>, mut stub: impl FnMut(&ToolUse) -> Stub) {
    let split = match history.as_slice() {
        [.., assistant, results] if assistant.role == Role::Assistant && results.role == Role::User => {
            history.len() - 2
        }
        [.., assistant] if assistant.role == Role::Assistant => history.len() - 1,
        _ => return,
    };
    let calls: Vec<ToolUse> = history[split].calls().cloned().collect();
    let mut answered: Vec<Block> = Vec::with_capacity(calls.len());
    let mut said = history.get_mut(split + 1).map(|message| std::mem::take(&mut message.blocks)).unwrap_or_default();
    for call in &calls {
        let is_answer = |block: &Block| matches!(block, Block::ToolResult(result) if result.call == call.id);
        answered.push(match said.iter().position(is_answer) {
            Some(at) => said.remove(at),
            None => Block::ToolResult(call.answer(stub(call).text(), true)),
        });
    }
    answered.append(&mut said);
    if answered.is_empty() {
        return;
    }
    history.truncate(split + 1);
    history.push(Message { role: Role::User, blocks: answered });
}

/// What leaves the history while it is mended.
#[derive(Debug, Default)]
struct Removed {
    quarantined: Vec<String>,
    left_out: Vec<String>,
}

/// A member that is text; empty when it is none.
fn word<'v>(value: &'v Value, key: &str) -> &'v str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod variants;

//! Blocks back into the next request, in a provider's own form.
//!
//! What a provider attached goes back on the part that carried it, in order, byte for byte; what another provider
//! attached stays here. The messages pass through repair before they leave, so that a request is legal whatever way the
//! last turn ended.

mod anthropic;
mod chat;
mod gemini;
mod responses;

use interlock_domain::block::{Block, Kept, Message, Provider, Role};
use interlock_domain::repair::history::{Journal, repair};
use serde_json::{Map, Value};

use super::Dialect;

/// A tool as a model is told of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Tool {
    /// What it is called.
    pub name: String,
    /// What it does.
    pub description: String,
    /// The JSON schema of its input.
    pub schema: Value,
}

/// What is asked.
#[derive(Debug, Clone, Copy)]
pub struct Ask<'a> {
    /// The model.
    pub model: &'a str,
    /// What the system says; may be empty.
    pub system: &'a str,
    /// The tools that it may call.
    pub tools: &'a [Tool],
    /// What has been said.
    pub history: &'a [Message],
    /// The longest answer, in tokens.
    pub output_max: u32,
}

/// The body of the request for the next answer, streamed.
#[must_use]
pub fn body(dialect: &Dialect, ask: &Ask<'_>) -> Value {
    let history = history(dialect, ask.history);
    match dialect.provider {
        Provider::Anthropic => anthropic::body(ask, history),
        Provider::Chat => chat::body(ask, history),
        Provider::Responses => responses::body(ask, history),
        Provider::Gemini => gemini::body(ask, history),
    }
}

/// The history alone, mended: `messages`, `input` items, or `contents`. The system's words are not in it.
///
/// A call that has no result here has an unknown outcome: whoever knows better closes the history first
/// ([`close`](interlock_domain::repair::history::close)).
#[must_use]
pub fn history(dialect: &Dialect, history: &[Message]) -> Vec<Value> {
    let messages = match dialect.provider {
        Provider::Anthropic => anthropic::history(history),
        Provider::Chat => chat::history(history, dialect.thoughts_back),
        Provider::Responses => responses::history(history),
        Provider::Gemini => gemini::history(history),
    };
    repair(dialect.provider, messages, &Journal::new()).messages
}

/// The path of the request under the endpoint's base address.
#[must_use]
pub fn path(provider: Provider, model: &str) -> String {
    match provider {
        Provider::Anthropic => "/v1/messages".to_owned(),
        Provider::Chat => "/chat/completions".to_owned(),
        Provider::Responses => "/responses".to_owned(),
        Provider::Gemini => format!("/models/{model}:streamGenerateContent?alt=sse"),
    }
}

/// Results before everything else: each provider wants them right behind the calls.
fn results_first(message: &Message) -> impl Iterator<Item = &Block> {
    let is_result = |block: &&Block| matches!(block, Block::ToolResult(_));
    message.blocks.iter().filter(is_result).chain(message.blocks.iter().filter(move |block| !is_result(block)))
}

/// Where the turn that still runs begins: behind the last message in which the asker said something.
fn turn_begins(history: &[Message]) -> usize {
    let says = |message: &Message| {
        message.role == Role::User && message.blocks.iter().any(|block| !matches!(block, Block::ToolResult(_)))
    };
    history.iter().rposition(says).map_or(0, |at| at + 1)
}

/// Members that a provider attached, put back.
fn attach(value: &mut Map<String, Value>, kept: &Kept, provider: Provider) {
    for (key, member) in kept.back_to(provider).into_iter().flatten() {
        value.insert(key.clone(), member.clone());
    }
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(members) => members,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Map::new(),
    }
}

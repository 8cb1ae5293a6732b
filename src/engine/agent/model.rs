//! One request to the model, from the history to the end of its stream.

use std::time::Duration;

use interlock_domain::agent::{Input, Said, Trouble};
use interlock_domain::block::{Ids, Message, Provider};
use interlock_domain::repair::history::{Journal, repair};
use serde_json::{Map, Value};
use tokio::sync::mpsc;

use super::Settings;
use super::told::Told;
use crate::provider::end::{End, Fault, Live, Stop, Terminal};
use crate::provider::request::{self, Ask, Tool};
use crate::provider::{Normalizer, reported};
use crate::tool::endpoint::NoAnswer;

/// Parts of what providers say when a request is too long for the model. The last is llama.cpp's.
const TOO_LONG: &[&str] = &[
    "context_length",
    "context length",
    "context window",
    "maximum context",
    "prompt is too long",
    "input is too long",
    "input length",
    "too many tokens",
    "reduce the length",
    "exceeds the available context",
];

/// What came of one request.
pub(super) struct Outcome {
    /// For the machine.
    pub(super) input: Input,
    /// The ids that the run has used from now on.
    pub(super) ids: Ids,
    /// What the provider says that it cost.
    pub(super) usage: Map<String, Value>,
    /// The tokens that went in and came out, where the provider says it.
    pub(super) tokens: (Option<u64>, Option<u64>),
    /// What a person may want to know.
    pub(super) notes: Vec<String>,
}

/// Asks, and tells each piece of the answer to whoever listens; one who does not read holds the stream up.
pub(super) async fn ask(
    settings: &Settings,
    system: &str,
    tools: &[Tool],
    history: &[Message],
    ids: Ids,
    tell: Option<&mpsc::Sender<Told>>,
) -> Outcome {
    let asked = Ask { model: &settings.model, system, tools, history, output_max: settings.output_max };
    let body = body(settings, &asked).to_string().into_bytes();
    let lost = |trouble: Trouble, ids: Ids| Outcome {
        input: Input::Trouble(trouble),
        ids,
        usage: Map::new(),
        tokens: (None, None),
        notes: Vec::new(),
    };
    let mut answer = match settings.endpoint.ask(body).await {
        Ok(answer) => answer,
        Err(error) => return lost(refused(settings, &error), ids),
    };
    let before = ids.clone();
    let mut normalizer = Normalizer::new(&settings.dialect, ids);
    loop {
        match answer.next().await {
            Err(error) => return lost(broken(&error), before),
            Ok(None) => break,
            Ok(Some(bytes)) => {
                let mut pieces = Vec::new();
                normalizer.feed(&bytes, &mut |piece| match piece {
                    Live::Text(text) => pieces.push(Told::Text(text.to_owned())),
                    Live::Thinking(text) => pieces.push(Told::Thinking(text.to_owned())),
                    Live::Call(_) => {}
                });
                if let Some(tell) = tell {
                    for piece in pieces {
                        // A listener that is gone is noticed by whoever drives.
                        let _ = tell.send(piece).await;
                    }
                }
                if normalizer.is_over() {
                    break;
                }
            }
        }
    }
    let (end, ids) = normalizer.finish();
    let tokens = end.tokens();
    let notes = end.notes.iter().map(ToString::to_string).collect();
    let usage = end.usage.clone();
    Outcome { input: input(end), ids, usage, tokens, notes }
}

/// The request. Its messages pass through repair, whatever way the last turn ended: of a legal history nothing changes.
fn body(settings: &Settings, asked: &Ask<'_>) -> Value {
    let mut body = request::body(&settings.dialect, asked);
    let provider = settings.dialect.provider;
    let key = match provider {
        Provider::Anthropic | Provider::Chat => "messages",
        Provider::Responses => "input",
        Provider::Gemini => "contents",
    };
    if let Some(Value::Array(messages)) = body.get_mut(key).map(Value::take) {
        body[key] = Value::Array(repair(provider, messages, &Journal::new()).messages);
    }
    body
}

fn input(end: End) -> Input {
    let message = end.fault.as_ref().map(ToString::to_string).unwrap_or_default();
    let trouble = match (end.terminal, &end.fault) {
        (Terminal::Complete, _) => {
            let said = match end.stop {
                Some(Stop::Length) => Said::Cut,
                Some(Stop::Pause) => Said::Pause,
                Some(Stop::Refused) => Said::Refusal,
                Some(Stop::ToolUse | Stop::End) | None => Said::All,
            };
            return Input::Answer(end.blocks, said);
        }
        (Terminal::ProviderError { .. }, _) if is_too_long(&message) => Trouble::TooLong { message },
        (Terminal::ProviderError { retryable }, _) => Trouble::Refused { retryable, after: None, message },
        (Terminal::Truncated, Some(Fault::OutputCut { .. })) => Trouble::OutputCut { message },
        (Terminal::Truncated, _) => Trouble::BrokeOff { message },
        (Terminal::Malformed, _) => Trouble::Malformed { message },
    };
    Input::Trouble(trouble)
}

/// No answer began.
fn refused(settings: &Settings, error: &NoAnswer) -> Trouble {
    let message = error.to_string();
    let retry = |after: Option<Duration>| Trouble::Refused { retryable: true, after, message: message.clone() };
    match error {
        NoAnswer::NotReached { .. } | NoAnswer::Silent { .. } => retry(None),
        NoAnswer::BrokeOff { .. } => Trouble::BrokeOff { message },
        NoAnswer::TooLong { .. } => Trouble::Malformed { message },
        NoAnswer::Status { status, retry_after, body, .. } => {
            if *status == 413 || is_too_long(body) {
                return Trouble::TooLong { message };
            }
            // What the provider says counts more than the number: a quota that is used up comes as 429 too.
            let mut reader = Normalizer::new(&settings.dialect, Ids::new());
            reader.feed(body.as_bytes(), &mut |_| {});
            let (end, _) = reader.finish();
            let retryable = match end.fault {
                Some(Fault::Provider { retryable, kind, .. }) if kind != "error" => retryable,
                Some(_) | None => reported::passing_status(*status),
            };
            Trouble::Refused { retryable, after: *retry_after, message }
        }
    }
}

/// The answer broke off.
fn broken(error: &NoAnswer) -> Trouble {
    let message = error.to_string();
    match error {
        NoAnswer::TooLong { .. } => Trouble::Malformed { message },
        NoAnswer::NotReached { .. } | NoAnswer::Silent { .. } | NoAnswer::BrokeOff { .. } | NoAnswer::Status { .. } => {
            Trouble::BrokeOff { message }
        }
    }
}

fn is_too_long(message: &str) -> bool {
    let lower = message.to_lowercase();
    TOO_LONG.iter().any(|part| lower.contains(part))
}

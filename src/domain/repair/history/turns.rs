//! The history as turns: what the model said, what came back, and so on. One algorithm for the providers whose messages
//! have roles; each of them reads its messages into turns and writes them out again.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{Journal, OPENING, Removed, Repaired, anthropic, chat, gemini};
use crate::block::{Ids, Provider};
use crate::repair::Stub;

/// Who speaks in a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// The asker, and results.
    User,
    /// The model.
    Model,
}

/// One turn.
#[derive(Debug)]
pub(super) struct Turn {
    pub(super) side: Side,
    /// The other members of its message.
    pub(super) rest: Map<String, Value>,
    /// Its content was one text and not a list.
    pub(super) bare: bool,
    pub(super) parts: Vec<Part>,
}

/// A part of a turn.
#[derive(Debug)]
pub(super) enum Part {
    /// A call of the model.
    Call(Piece),
    /// The result of a call.
    Answer(Piece),
    /// Anything else. For Chat, a whole message, to which the calls behind it belong.
    Other(Value),
}

/// A call or a result, in the provider's form.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) raw: Value,
}

pub(super) fn repair(provider: Provider, messages: Vec<Value>, journal: &Journal) -> Repaired {
    let mut removed = Removed::default();
    let mut turns: Vec<Turn> = Vec::with_capacity(messages.len());
    for (at, message) in messages.into_iter().enumerate() {
        let turn = match provider {
            Provider::Anthropic => anthropic::read(message, &mut removed),
            Provider::Chat => chat::read(message, &mut removed),
            Provider::Gemini | Provider::Responses => gemini::read(message, &mut removed),
        };
        match turn {
            Some(turn) => join(&mut turns, turn),
            None => removed.left_out.push(format!("message {at}")),
        }
    }
    let mut stubs = Vec::new();
    let paired = pair(provider, turns, journal, &mut removed, &mut stubs);
    let mut turns: Vec<Turn> = Vec::with_capacity(paired.len());
    for turn in paired.into_iter().filter(|turn| !turn.parts.is_empty()) {
        join(&mut turns, turn);
    }
    // The asker speaks first, where the provider wants that.
    let opening = match provider {
        Provider::Anthropic => Some(anthropic::opening(OPENING)),
        Provider::Gemini => Some(gemini::opening(OPENING)),
        Provider::Chat | Provider::Responses => None,
    };
    if let (Some(opening), Some(Side::Model)) = (opening, turns.first().map(|turn| turn.side)) {
        turns.insert(0, opening);
    }
    let messages = match provider {
        Provider::Anthropic => turns.into_iter().map(anthropic::write).collect(),
        Provider::Chat => chat::write(turns),
        Provider::Gemini | Provider::Responses => turns.into_iter().map(gemini::write).collect(),
    };
    Repaired { messages, quarantined: removed.quarantined, stubs, left_out: removed.left_out }
}

/// Neighbours of one side are one turn.
fn join(turns: &mut Vec<Turn>, mut turn: Turn) {
    if turn.parts.is_empty() {
        return;
    }
    match turns.last_mut() {
        Some(last) if last.side == turn.side => {
            last.bare = false;
            last.parts.append(&mut turn.parts);
        }
        Some(_) | None => turns.push(turn),
    }
}

/// Gives each call its one result, right behind it; what is no result of the turn before goes.
fn pair(
    provider: Provider,
    turns: Vec<Turn>,
    journal: &Journal,
    removed: &mut Removed,
    stubs: &mut Vec<(String, Stub)>,
) -> Vec<Turn> {
    let mut ids = Ids::new();
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    let mut paired = Vec::with_capacity(turns.len() + 1);
    let mut turns = turns.into_iter().peekable();
    while let Some(mut turn) = turns.next() {
        if turn.side == Side::User {
            // Only what opens a history gets here: every other turn of the asker is taken with the model's before it.
            quarantine(&mut turn, Vec::new(), removed);
            paired.push(turn);
            continue;
        }
        let mut reply = match turns.next_if(|next| next.side == Side::User) {
            Some(reply) => reply,
            None => Turn { side: Side::User, rest: Map::new(), bare: false, parts: Vec::new() },
        };
        let mut answers: Vec<Option<Piece>> = take_answers(&mut reply).into_iter().map(Some).collect();
        let calls: Vec<&mut Piece> = turn.parts.iter_mut().filter_map(Part::as_call).collect();
        let found = matches(&calls, &mut answers);
        let mut results = Vec::with_capacity(calls.len() + reply.parts.len());
        for (call, answer) in calls.into_iter().zip(found) {
            let occurrence = seen.entry(call.id.clone()).or_insert(0);
            *occurrence += 1;
            let stub = answer.is_none().then(|| journal.of(&call.id, *occurrence));
            let id = unique(provider, call, &mut ids);
            let raw = match (answer, stub) {
                (Some(answer), _) => answered(provider, answer.raw, call),
                (None, stub) => {
                    let stub = stub.unwrap_or(Stub::OutcomeUnknown);
                    stubs.push((id.clone(), stub));
                    stub_of(provider, call, stub)
                }
            };
            results.push(Part::Answer(Piece { id, name: call.name.clone(), raw }));
        }
        if !results.is_empty() {
            reply.bare = false;
        }
        let rest = std::mem::replace(&mut reply.parts, results);
        reply.parts.extend(rest);
        removed.quarantined.extend(answers.into_iter().flatten().map(|answer| answer.id));
        paired.push(turn);
        paired.push(reply);
    }
    paired
}

impl Part {
    fn as_call(&mut self) -> Option<&mut Piece> {
        match self {
            Part::Call(call) => Some(call),
            Part::Answer(_) | Part::Other(_) => None,
        }
    }
}

fn take_answers(turn: &mut Turn) -> Vec<Piece> {
    let mut answers = Vec::new();
    let mut others = Vec::with_capacity(turn.parts.len());
    for part in std::mem::take(&mut turn.parts) {
        match part {
            Part::Answer(answer) => answers.push(answer),
            Part::Call(_) | Part::Other(_) => others.push(part),
        }
    }
    turn.parts = others;
    answers
}

fn quarantine(turn: &mut Turn, more: Vec<Piece>, removed: &mut Removed) {
    let answers = take_answers(turn);
    removed.quarantined.extend(answers.into_iter().chain(more).map(|answer| answer.id));
}

/// The result of each call: by id, in order; a result without an id goes to the first call of its name, else to the
/// first that is left.
fn matches(calls: &[&mut Piece], answers: &mut [Option<Piece>]) -> Vec<Option<Piece>> {
    let mut found: Vec<Option<Piece>> = calls
        .iter()
        .map(|call| {
            let same = |answer: &Option<Piece>| {
                answer.as_ref().is_some_and(|answer| !answer.id.is_empty() && answer.id == call.id)
            };
            answers.iter_mut().find(|answer| same(answer)).and_then(Option::take)
        })
        .collect();
    for by_name in [true, false] {
        for slot in answers.iter_mut() {
            let Some(answer) = slot.as_ref().filter(|answer| answer.id.is_empty()) else { continue };
            if by_name == answer.name.is_empty() {
                continue;
            }
            let fits = |at: &usize| found[*at].is_none() && (!by_name || calls[*at].name == answer.name);
            if let Some(at) = (0..calls.len()).find(fits) {
                found[at] = slot.take();
            }
        }
    }
    found
}

/// The id that a call has from now on.
fn unique(provider: Provider, call: &mut Piece, ids: &mut Ids) -> String {
    let wanted = match provider {
        Provider::Anthropic if !anthropic::is_id(&call.id) => "",
        Provider::Anthropic | Provider::Chat | Provider::Gemini | Provider::Responses => call.id.as_str(),
    };
    // Gemini needs no ids, and gets none that it did not give.
    if provider == Provider::Gemini && wanted.is_empty() {
        return String::new();
    }
    let id = ids.take(wanted).to_string();
    if id != call.id {
        match provider {
            Provider::Anthropic | Provider::Chat => call.raw["id"] = id.as_str().into(),
            Provider::Gemini | Provider::Responses => call.raw["functionCall"]["id"] = id.as_str().into(),
        }
        call.id.clone_from(&id);
    }
    id
}

/// A result under the id of its call.
fn answered(provider: Provider, mut raw: Value, call: &Piece) -> Value {
    let (holder, key) = match provider {
        Provider::Anthropic => (Some(&mut raw), "tool_use_id"),
        Provider::Chat => (Some(&mut raw), "tool_call_id"),
        Provider::Gemini | Provider::Responses => (raw.get_mut("functionResponse"), "id"),
    };
    let Some(members) = holder.and_then(Value::as_object_mut) else { return raw };
    if call.id.is_empty() {
        members.remove(key);
    } else if members.get(key).and_then(Value::as_str) != Some(&call.id) {
        members.insert(key.to_owned(), call.id.as_str().into());
    }
    if provider == Provider::Gemini && members.get("name").and_then(Value::as_str) != Some(&call.name) {
        members.insert("name".to_owned(), call.name.as_str().into());
    }
    raw
}

fn stub_of(provider: Provider, call: &Piece, stub: Stub) -> Value {
    match provider {
        Provider::Anthropic => anthropic::stub(&call.id, stub),
        Provider::Chat => chat::stub(&call.id, stub),
        Provider::Gemini | Provider::Responses => gemini::stub(&call.id, &call.name, stub),
    }
}

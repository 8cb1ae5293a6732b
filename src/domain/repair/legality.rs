//! What each provider's API wants of a history's structure. What breaks a law here is answered with a 400 there, or with
//! something worse: a model that reads one call's result as another's.
//!
//! It looks and changes nothing. Any history that went through repair has no breach; a history without a breach goes
//! through repair unchanged.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::history::{RESPONSES_CALLS, is_anthropic_id, is_nameless, responses_of_model};
use crate::block::Provider;

/// A law of a provider's history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Law {
    /// It is a message (item, content) of this provider.
    Shape,
    /// It says something.
    NotEmpty,
    /// The asker speaks first.
    AskerFirst,
    /// Roles take turns.
    RolesAlternate,
    /// A part stands where its role may say it.
    Place,
    /// A thought has its signature; one of Responses is followed by what it led to.
    WholeThought,
    /// Ids are there where they must be, and are written as the provider takes them.
    Id,
    /// No two calls share an id.
    UniqueIds,
    /// Each call has a result, right behind it.
    Answered,
    /// Each result has a call, right before it, and is the only one.
    Called,
    /// Results come first, in the order of the calls.
    ResultsInOrder,
    /// A result is of the kind, and under the name, of its call.
    ResultKind,
}

impl Law {
    /// The word for scripts.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Law::Shape => "shape",
            Law::NotEmpty => "not_empty",
            Law::AskerFirst => "asker_first",
            Law::RolesAlternate => "roles_alternate",
            Law::Place => "place",
            Law::WholeThought => "whole_thought",
            Law::Id => "id",
            Law::UniqueIds => "unique_ids",
            Law::Answered => "answered",
            Law::Called => "called",
            Law::ResultsInOrder => "results_in_order",
            Law::ResultKind => "result_kind",
        }
    }
}

/// A law that is broken, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Breach {
    /// Which.
    pub law: Law,
    /// The message, item or content, from 0.
    pub message: usize,
    /// The fact, for a person.
    pub why: String,
}

/// What a provider would refuse about a history; nothing when it is legal.
#[must_use]
pub fn breaches(provider: Provider, messages: &[Value]) -> Vec<Breach> {
    let mut found = Found::default();
    match provider {
        Provider::Anthropic => anthropic(messages, &mut found),
        Provider::Chat => chat(messages, &mut found),
        Provider::Responses => responses(messages, &mut found),
        Provider::Gemini => gemini(messages, &mut found),
    }
    found.0
}

#[derive(Default)]
struct Found(Vec<Breach>);

impl Found {
    fn add(&mut self, law: Law, message: usize, why: impl Into<String>) {
        self.0.push(Breach { law, message, why: why.into() });
    }
}

/// A call or a result: its id and its name.
type Named<'v> = (&'v str, &'v str);

/// The calls of a message and the results behind it.
struct Pairing<'v> {
    message: usize,
    calls: Vec<Named<'v>>,
    results: Vec<Named<'v>>,
    /// Calls may have no id; then their order counts.
    by_name: bool,
}

impl Pairing<'_> {
    fn check(&self, found: &mut Found) {
        let called: BTreeSet<&str> = self.calls.iter().map(|call| call.0).collect();
        let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
        for (id, name) in &self.results {
            *seen.entry(id).or_default() += 1;
            let has_call = if self.by_name { !self.calls.is_empty() } else { called.contains(id) };
            if !has_call {
                found.add(
                    Law::Called,
                    self.message + 1,
                    format!("the result {:?} has no call before it", shown(id, name)),
                );
            } else if seen[id] > 1 && !id.is_empty() {
                found.add(Law::Called, self.message + 1, format!("a second result for {:?}", shown(id, name)));
            }
        }
        for (id, name) in &self.calls {
            let answered = if self.by_name && id.is_empty() {
                self.results.len() >= self.calls.len()
            } else {
                seen.contains_key(id)
            };
            if !answered {
                found.add(Law::Answered, self.message, format!("the call {:?} has no result", shown(id, name)));
            }
        }
        if self.by_name && self.results.len() > self.calls.len() && !self.calls.is_empty() {
            found.add(Law::Called, self.message + 1, "more results than calls");
        }
        if self.calls.len() == self.results.len()
            && self.calls.iter().zip(&self.results).any(|(call, result)| call.0 != result.0)
        {
            found.add(Law::ResultsInOrder, self.message + 1, "results stand in another order than their calls");
        }
    }
}

fn shown<'v>(id: &'v str, name: &'v str) -> &'v str {
    if id.is_empty() { name } else { id }
}

fn word<'v>(value: &'v Value, key: &str) -> &'v str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn unique<'v>(ids: &mut BTreeSet<&'v str>, id: &'v str, message: usize, found: &mut Found) {
    if !id.is_empty() && !ids.insert(id) {
        found.add(Law::UniqueIds, message, format!("two calls have the id {id:?}"));
    }
}

fn named(calls: &[Named<'_>], message: usize, found: &mut Found) {
    for (id, _) in calls.iter().filter(|(_, name)| name.is_empty()) {
        found.add(Law::Shape, message, format!("the call {id:?} has no name"));
    }
}

/// Roles, and who speaks first, where a provider has turns.
fn turns(roles: &[Option<&str>], asker: &str, found: &mut Found) {
    if roles.first().is_some_and(|role| role.is_some_and(|role| role != asker)) {
        found.add(Law::AskerFirst, 0, "the first message is not the asker's");
    }
    for (at, pair) in roles.windows(2).enumerate() {
        if pair[0].is_some() && pair[0] == pair[1] {
            found.add(Law::RolesAlternate, at + 1, "two messages of one role in a row");
        }
    }
}

fn anthropic(messages: &[Value], found: &mut Found) {
    let roles: Vec<Option<&str>> = messages
        .iter()
        .map(|message| message.get("role").and_then(Value::as_str).filter(|role| matches!(*role, "user" | "assistant")))
        .collect();
    turns(&roles, "user", found);
    let mut ids = BTreeSet::new();
    let mut open: Option<(usize, Vec<Named<'_>>)> = None;
    for (at, message) in messages.iter().enumerate() {
        let (Some(role), Some(content)) = (roles[at], message.get("content")) else {
            found.add(Law::Shape, at, "no message of a user or an assistant, with content");
            continue;
        };
        let parts: &[Value] = match content {
            Value::String(text) => {
                if text.trim().is_empty() {
                    found.add(Law::NotEmpty, at, "no content");
                }
                &[]
            }
            Value::Array(parts) => {
                if parts.is_empty() {
                    found.add(Law::NotEmpty, at, "no content");
                }
                parts
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => {
                found.add(Law::Shape, at, "content that is neither text nor a list");
                continue;
            }
        };
        let of = |kind: &str, key: &str| -> Vec<Named<'_>> {
            let fits = parts.iter().filter(|part| word(part, "type") == kind);
            fits.map(|part| (part.get(key).and_then(Value::as_str).unwrap_or_default(), word(part, "name"))).collect()
        };
        for part in parts {
            anthropic_part(part, role, at, found);
        }
        let results = if role == "user" { of("tool_result", "tool_use_id") } else { Vec::new() };
        let lead = parts.iter().take_while(|part| word(part, "type") == "tool_result").count();
        if lead < results.len() {
            found.add(Law::ResultsInOrder, at, "results do not come first");
        }
        match open.take() {
            Some((message, calls)) => Pairing { message, calls, results, by_name: false }.check(found),
            None => {
                let pairing = Pairing { message: at.saturating_sub(1), calls: Vec::new(), results, by_name: false };
                pairing.check(found);
            }
        }
        if role == "assistant" {
            let calls = of("tool_use", "id");
            named(&calls, at, found);
            for (id, name) in &calls {
                if !is_anthropic_id(id) {
                    found.add(Law::Id, at, format!("{id:?} is no id for the call of {name:?}"));
                }
                unique(&mut ids, id, at, found);
            }
            open = (!calls.is_empty()).then_some((at, calls));
        }
    }
    if let Some((message, calls)) = open {
        Pairing { message, calls, results: Vec::new(), by_name: false }.check(found);
    }
}

fn anthropic_part(part: &Value, role: &str, at: usize, found: &mut Found) {
    match (word(part, "type"), role) {
        _ if !part.is_object() => found.add(Law::Shape, at, "a part that is no object"),
        ("text", _) if word(part, "text").trim().is_empty() => found.add(Law::NotEmpty, at, "a text without a word"),
        ("thinking", "assistant") if word(part, "signature").is_empty() => {
            found.add(Law::WholeThought, at, "a thought without its signature");
        }
        ("tool_use" | "thinking" | "redacted_thinking", "user")
        | ("tool_result" | "image" | "document", "assistant") => {
            found.add(Law::Place, at, format!("a {} in a message of the {role}", word(part, "type")));
        }
        _ => {}
    }
}

fn chat(messages: &[Value], found: &mut Found) {
    let mut ids = BTreeSet::new();
    let mut at = 0;
    while let Some(message) = messages.get(at) {
        let role = word(message, "role");
        if !matches!(role, "system" | "developer" | "user" | "assistant" | "tool" | "function") {
            found.add(Law::Shape, at, "no message of a known role");
        }
        let says = |key: &str| match message.get(key) {
            None | Some(Value::Null) => false,
            Some(Value::String(text)) => !text.is_empty(),
            Some(Value::Array(parts)) => !parts.is_empty(),
            Some(Value::Bool(_) | Value::Number(_) | Value::Object(_)) => true,
        };
        let calls = message.get("tool_calls").filter(|_| role == "assistant");
        if role == "user" && !says("content") {
            found.add(Law::NotEmpty, at, "no content");
        }
        if calls.is_some_and(|calls| {
            calls.as_array().map_or(!calls.is_null(), |calls| calls.iter().any(|call| !call.is_object()))
        }) {
            found.add(Law::Shape, at, "tool_calls that are no list of calls");
        }
        let listed: &[Value] = calls.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        if role == "assistant" {
            if listed.is_empty() && !["content", "refusal", "audio", "function_call"].iter().any(|key| says(key)) {
                found.add(Law::NotEmpty, at, "neither content nor a call");
            } else if listed.is_empty() && calls.is_some_and(Value::is_array) {
                found.add(Law::NotEmpty, at, "an empty list of calls");
            }
        }
        let calls: Vec<Named<'_>> = listed
            .iter()
            .map(|call| {
                let function = call.get("function").or_else(|| call.get("custom")).unwrap_or(call);
                (word(call, "id"), word(function, "name"))
            })
            .collect();
        named(&calls, at, found);
        for (id, name) in &calls {
            if id.is_empty() {
                found.add(Law::Id, at, format!("the call of {name:?} has no id"));
            }
            unique(&mut ids, id, at, found);
        }
        let behind = at + 1;
        let first = if role == "tool" { at } else { behind };
        let end = messages[first..]
            .iter()
            .position(|next| word(next, "role") != "tool")
            .map_or(messages.len(), |n| first + n);
        let results = messages[first..end].iter().map(|result| (word(result, "tool_call_id"), word(result, "name")));
        Pairing { message: first.saturating_sub(1), calls, results: results.collect(), by_name: false }.check(found);
        at = end.max(behind);
    }
}

fn responses(items: &[Value], found: &mut Found) {
    let mut calls: BTreeMap<&str, (usize, &str, bool)> = BTreeMap::new();
    for (at, item) in items.iter().enumerate() {
        let (kind, id) = (word(item, "type"), word(item, "call_id"));
        if !item.is_object() || (kind.is_empty() && word(item, "role").is_empty()) {
            found.add(Law::Shape, at, "no item");
        } else if RESPONSES_CALLS.contains(&kind) {
            if is_nameless(item) {
                found.add(Law::Shape, at, format!("the call {id:?} has no name"));
            }
            if id.is_empty() {
                found.add(Law::Id, at, format!("the call of {:?} has no call_id", word(item, "name")));
            } else if calls.contains_key(id) {
                found.add(Law::UniqueIds, at, format!("two calls have the id {id:?}"));
            }
            calls.insert(id, (at, kind, false));
        } else if let Some(of) = kind.strip_suffix("_output").filter(|kind| RESPONSES_CALLS.contains(kind)) {
            match calls.get_mut(id) {
                None => found.add(Law::Called, at, format!("the output {id:?} has no call before it")),
                Some((_, _, true)) => found.add(Law::Called, at, format!("a second output for {id:?}")),
                Some((_, kind, answered)) => {
                    *answered = true;
                    if *kind != of {
                        found.add(Law::ResultKind, at, format!("a {of}_output for a {kind}"));
                    }
                }
            }
        } else if kind == "reasoning" {
            let next = items[at + 1..].iter().find(|next| word(next, "type") != "reasoning");
            if !next.is_some_and(responses_of_model) {
                found.add(Law::WholeThought, at, "a thought without what it led to");
            }
        }
    }
    for (id, (at, ..)) in calls.iter().filter(|(_, (.., answered))| !answered) {
        found.add(Law::Answered, *at, format!("the call {id:?} has no output"));
    }
}

fn gemini(contents: &[Value], found: &mut Found) {
    let roles: Vec<Option<&str>> = contents
        .iter()
        .map(|content| match content.get("role").and_then(Value::as_str) {
            Some("user") => Some("user"),
            Some("model") => Some("model"),
            Some(_) | None => None,
        })
        .collect();
    turns(&roles, "user", found);
    let mut ids = BTreeSet::new();
    let mut open: Option<(usize, Vec<Named<'_>>)> = None;
    for (at, content) in contents.iter().enumerate() {
        let (Some(role), Some(parts)) = (roles[at], content.get("parts").and_then(Value::as_array)) else {
            found.add(Law::Shape, at, "no content of the user or the model, with parts");
            continue;
        };
        if parts.is_empty() {
            found.add(Law::NotEmpty, at, "no parts");
        }
        for part in parts {
            let misplaced = if role == "user" { "functionCall" } else { "functionResponse" };
            if part.get(misplaced).is_some() {
                found.add(Law::Place, at, format!("a {misplaced} of the {role}"));
            } else if part
                .as_object()
                .is_none_or(|part| part.is_empty() || part.len() == 1 && part.get("text").is_some_and(|t| t == ""))
            {
                found.add(Law::NotEmpty, at, "a part without anything in it");
            }
        }
        let of = |key: &str| -> Vec<Named<'_>> {
            parts
                .iter()
                .filter_map(|part| part.get(key))
                .map(|inner| (word(inner, "id"), word(inner, "name")))
                .collect()
        };
        let results = if role == "user" { of("functionResponse") } else { Vec::new() };
        let lead = parts.iter().take_while(|part| part.get("functionResponse").is_some()).count();
        if lead < results.len() {
            found.add(Law::ResultsInOrder, at, "results do not come first");
        }
        let (message, calls) = open.take().unwrap_or((at.saturating_sub(1), Vec::new()));
        let names = calls.len() == results.len() && calls.iter().zip(&results).any(|(call, result)| call.1 != result.1);
        if names {
            found.add(Law::ResultKind, at, "a result under another name than its call");
        }
        Pairing { message, calls, results, by_name: true }.check(found);
        if role == "model" {
            let calls = of("functionCall");
            named(&calls, at, found);
            calls.iter().for_each(|(id, _)| unique(&mut ids, id, at, found));
            open = (!calls.is_empty()).then_some((at, calls));
        }
    }
    if let Some((message, calls)) = open {
        Pairing { message, calls, results: Vec::new(), by_name: true }.check(found);
    }
}

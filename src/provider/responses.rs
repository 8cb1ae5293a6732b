//! OpenAI Responses: the events of a stream, or one whole response.
//!
//! An item that is done is taken as it was done, whatever pieces came before: the provider says it whole once more. What
//! its own tools did is kept as it came and never run here; a tool that it defines and the client runs is a call.

use std::collections::BTreeMap;

use interlock_domain::block::{Block, CallKind, Kept, Provider};
use serde_json::{Map, Value};

use super::Closed;
use super::call::{CALLS_MAX, Draft, OpenCall, Reason, Size};
use super::end::{Code, Fault, Live, Notes};
use super::json::Json;
use super::reported;

/// The most items in one response; the bound is on memory.
const ITEMS_MAX: usize = 16_384;
/// The most parts of one item.
const PARTS_MAX: i64 = 4096;

#[derive(Debug, Default)]
pub(super) struct Responses {
    items: BTreeMap<(u32, i64), Item>,
    answer: u32,
    reason: Option<Reason>,
    usage: Map<String, Value>,
    size: Size,
    calls: usize,
}

#[derive(Debug, Default)]
struct Item {
    value: Map<String, Value>,
    done: bool,
    /// Arguments of a function, or the input of a custom tool.
    input: String,
    texts: BTreeMap<i64, String>,
    summaries: BTreeMap<i64, String>,
}

impl Responses {
    pub(super) fn frame(
        &mut self,
        event: &str,
        frame: &Json<'_>,
        notes: &mut Notes,
        live: &mut dyn FnMut(Live<'_>),
    ) -> Result<(), Fault> {
        let kind = frame.text_of("type").unwrap_or(event);
        let delta = frame.text_of("delta").unwrap_or_default();
        match kind {
            // The answer has ended, and nobody has begun another.
            _ if self.reason.is_some() && is_content(kind) => {
                notes.add(Code::AfterEnd, kind);
                Ok(())
            }
            "response.output_text.delta" | "response.refusal.delta" => {
                live(Live::Text(delta));
                self.grow(frame, "message", "content_index", delta)
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                live(Live::Thinking(delta));
                let index = if kind == "response.reasoning_text.delta" { "content_index" } else { "summary_index" };
                self.grow(frame, "reasoning", index, delta)
            }
            "response.output_text.done" | "response.refusal.done" => {
                let whole = frame.text_of("text").or_else(|| frame.text_of("refusal")).unwrap_or_default();
                self.whole_text(frame, whole)
            }
            "response.function_call_arguments.delta" | "response.custom_tool_call_input.delta" => {
                self.size.add(delta.len())?;
                self.named(frame).ok_or_else(|| lost("the beginning of a call"))?.input.push_str(delta);
                Ok(())
            }
            "response.function_call_arguments.done" | "response.custom_tool_call_input.done" => {
                let whole = frame.text_of("arguments").or_else(|| frame.text_of("input"));
                if let (Some(item), Some(whole)) = (self.named(frame), whole) {
                    whole.clone_into(&mut item.input);
                    self.size.add(whole.len())?;
                }
                Ok(())
            }
            "response.output_item.added" | "response.output_item.done" => {
                let item = frame.get("item").ok_or_else(|| lost("an item"))?;
                self.item(frame.get("output_index").and_then(Json::as_i64), item, kind.ends_with("done"), live)
            }
            "response.created" | "response.in_progress" | "response.queued" => {
                if kind == "response.created" && self.reason.take().is_some() {
                    notes.add(Code::SeveralAnswers, "");
                    self.answer += 1;
                }
                Ok(())
            }
            "response.completed" | "response.incomplete" | "response.failed" | "response.cancelled" => {
                let response = frame.get("response").ok_or_else(|| lost("a response"))?;
                self.end(kind.trim_start_matches("response."), response, live)
            }
            _ if frame.text_of("object") == Some("response") => {
                if let Some(fault) = reported::reported(event, frame) {
                    return Err(fault);
                }
                let status = frame.text_of("status").unwrap_or("completed");
                self.end(status, frame, live)
            }
            _ if kind.starts_with("response.") || matches!(kind, "ping" | "keepalive") => Ok(()),
            other => {
                if let Some(fault) = reported::reported(event, frame).or_else(|| reported::bare(frame)) {
                    return Err(fault);
                }
                if !frame.is_object() {
                    return Err(Fault::Frame("no JSON object".to_owned()));
                }
                notes.add(Code::UnknownFrame, other);
                Ok(())
            }
        }
    }

    pub(super) fn close(self, notes: &mut Notes) -> Result<Closed, Fault> {
        let Responses { items, reason, usage, .. } = self;
        // The output of a tool that the client could have run says that the provider ran it.
        let ran: Vec<String> = items
            .values()
            .filter(|item| word(&item.value, "type").ends_with("_call_output"))
            .map(|item| word(&item.value, "call_id").to_owned())
            .collect();
        let mut drafts = Vec::new();
        for item in items.into_values() {
            item.close(&ran, reason.as_ref(), &mut drafts, notes)?;
        }
        Ok(Closed { drafts, reason, usage })
    }

    /// The item that a frame names by its place, else by its id.
    fn named(&mut self, frame: &Json<'_>) -> Option<&mut Item> {
        if let Some(index) = frame.get("output_index").and_then(Json::as_i64) {
            return self.items.get_mut(&(self.answer, index));
        }
        let id = frame.text_of("item_id")?;
        let of_answer = self.items.range_mut((self.answer, i64::MIN)..);
        of_answer.map(|(_, item)| item).find(|item| word(&item.value, "id") == id)
    }

    fn grow(&mut self, frame: &Json<'_>, kind: &str, index: &str, delta: &str) -> Result<(), Fault> {
        self.size.add(delta.len())?;
        let part = frame.get(index).and_then(Json::as_i64).unwrap_or(0);
        if !(0..PARTS_MAX).contains(&part) {
            return Err(Fault::TooLarge("an item of more than 4096 parts"));
        }
        if self.named(frame).is_none() {
            // Text that nobody announced is text all the same.
            let index = self.place(frame.get("output_index").and_then(Json::as_i64))?;
            let value = Map::from_iter([("type".to_owned(), Value::from(kind))]);
            self.items.insert((self.answer, index), Item { value, ..Item::default() });
        }
        if let Some(item) = self.named(frame) {
            let parts = if index == "summary_index" { &mut item.summaries } else { &mut item.texts };
            parts.entry(part).or_default().push_str(delta);
        }
        Ok(())
    }

    /// A text all of which is told at once: it counts where no piece of it has come.
    fn whole_text(&mut self, frame: &Json<'_>, whole: &str) -> Result<(), Fault> {
        let part = frame.get("content_index").and_then(Json::as_i64).unwrap_or(0);
        let known = self.named(frame).is_some_and(|item| item.texts.get(&part).is_some_and(|text| !text.is_empty()));
        if known || whole.is_empty() { Ok(()) } else { self.grow(frame, "message", "content_index", whole) }
    }

    fn place(&self, index: Option<i64>) -> Result<i64, Fault> {
        if self.items.len() >= ITEMS_MAX {
            return Err(Fault::TooLarge("more than 16,384 items in one response"));
        }
        let next = || {
            let last = self.items.range((self.answer, i64::MIN)..).next_back();
            last.map_or(0, |((_, index), _)| index.saturating_add(1))
        };
        Ok(index.unwrap_or_else(next))
    }

    fn item(
        &mut self,
        index: Option<i64>,
        item: &Json<'_>,
        done: bool,
        live: &mut dyn FnMut(Live<'_>),
    ) -> Result<(), Fault> {
        self.size.add(item.weight())?;
        let value = item.to_map();
        let id = word(&value, "id").to_owned();
        let known = index.filter(|index| self.items.contains_key(&(self.answer, *index))).or_else(|| {
            let mut of_answer = self.items.range((self.answer, i64::MIN)..);
            let same = |item: &Item| index.is_none() && !id.is_empty() && word(&item.value, "id") == id;
            of_answer.find(|(_, item)| same(item)).map(|((_, index), _)| *index)
        });
        let place = match known {
            Some(place) => place,
            None => {
                let kind = word(&value, "type");
                if kind.ends_with("_call") {
                    self.calls += 1;
                    if self.calls > CALLS_MAX {
                        return Err(Fault::TooLarge("more than 64 calls in one message"));
                    }
                    live(Live::Call(word(&value, "name")));
                }
                self.place(index)?
            }
        };
        let item = self.items.entry((self.answer, place)).or_default();
        item.value = value;
        item.done |= done;
        Ok(())
    }

    /// The end of a response, which says all of it once more.
    fn end(&mut self, status: &str, response: &Json<'_>, live: &mut dyn FnMut(Live<'_>)) -> Result<(), Fault> {
        if let Some(usage) = response.get("usage") {
            self.usage = usage.to_map();
        }
        for (index, item) in (0..).zip(response.get("output").map(Json::items).unwrap_or_default()) {
            let known = self.items.get(&(self.answer, index)).is_some_and(|item| item.done);
            if !known {
                self.item(Some(index), item, true, live)?;
            }
        }
        let why = response.get("incomplete_details").and_then(|details| details.text_of("reason"));
        self.reason = match (status, why) {
            ("completed", _) => Some(Reason::Ended),
            ("incomplete", Some("content_filter")) => Some(Reason::Refused("content_filter".to_owned())),
            ("incomplete", Some("max_output_tokens" | "max_tokens" | "length") | None) => Some(Reason::Length),
            ("failed", _) => {
                return Err(reported::reported("", response).unwrap_or_else(|| reported::said("the response failed")));
            }
            // Cancelled, or a status that says that it goes on.
            (_, _) => None,
        };
        if self.reason.is_none() && matches!(status, "cancelled" | "incomplete") {
            return Err(Fault::StreamCut);
        }
        Ok(())
    }
}

impl Item {
    fn close(
        mut self,
        ran: &[String],
        reason: Option<&Reason>,
        drafts: &mut Vec<Draft>,
        notes: &mut Notes,
    ) -> Result<(), Fault> {
        let kind = word(&self.value, "type").to_owned();
        let call_id = [word(&self.value, "call_id"), word(&self.value, "id")].into_iter().find(|id| !id.is_empty());
        let call_id = call_id.unwrap_or_default().to_owned();
        match kind.as_str() {
            "function_call" | "custom_tool_call" => {
                let name = word(&self.value, "name").to_owned();
                let custom = kind == "custom_tool_call";
                let key = if custom { "input" } else { "arguments" };
                let mut call = OpenCall::new(&call_id, &name)?;
                call.cut = word(&self.value, "status") == "incomplete";
                call.kind = if custom { CallKind::Custom } else { CallKind::Function };
                match self.value.remove(key) {
                    Some(Value::String(whole)) if self.done || self.input.is_empty() => call.arguments.push(&whole)?,
                    Some(Value::Object(whole)) if self.input.is_empty() => call.arguments.set(whole),
                    Some(_) | None => call.arguments.push(&self.input)?,
                }
                // A call that began and was never done: whole only if what came is, and is not nothing.
                if !self.done && call.arguments.is_blank() && reason.is_some() {
                    return Err(lost("the end of a call"));
                }
                for key in ["id", "namespace"] {
                    call.kept.extend(self.value.remove(key).filter(|v| !v.is_null()).map(|v| (key.to_owned(), v)));
                }
                drafts.push(Draft::Call(call));
            }
            "local_shell_call" | "shell_call" | "apply_patch_call" | "computer_call" | "tool_search_call" => {
                let theirs = kind == "tool_search_call" && word(&self.value, "execution") != "client";
                if theirs || ran.contains(&call_id) || !self.done {
                    drafts.push(self.opaque());
                    return Ok(());
                }
                let input = ["action", "operation", "arguments", "actions"]
                    .into_iter()
                    .find(|key| self.value.contains_key(*key));
                let mut call = OpenCall::new(&call_id, kind.trim_end_matches("_call"))?;
                call.kind = CallKind::Native;
                call.arguments.set(match input.map(|key| (key, self.value[key].clone())) {
                    Some((_, Value::Object(input))) => input,
                    Some((key, input)) => Map::from_iter([(key.to_owned(), input)]),
                    None => Map::new(),
                });
                call.kept.insert("item".to_owned(), Value::Object(self.value));
                drafts.push(Draft::Call(call));
            }
            "message" => self.message(drafts, notes),
            "reasoning" => drafts.push(self.reasoning()),
            _ => drafts.push(self.opaque()),
        }
        Ok(())
    }

    fn opaque(self) -> Draft {
        Draft::Block(Block::Opaque { from: Provider::Responses, value: Value::Object(self.value).into() })
    }

    fn message(self, drafts: &mut Vec<Draft>, notes: &mut Notes) {
        let mut kept = Map::new();
        for key in ["id", "phase"] {
            kept.extend(self.value.get(key).filter(|v| !v.is_null()).map(|v| (key.to_owned(), v.clone())));
        }
        let mut push = |text: &str, annotations: Option<&Value>| {
            let mut kept = kept.clone();
            let some = |list: &&Value| list.as_array().is_some_and(|list| !list.is_empty());
            kept.extend(annotations.filter(some).map(|list| ("annotations".to_owned(), list.clone())));
            if !text.is_empty() {
                let kept = Kept::of(Provider::Responses, kept);
                drafts.push(Draft::Block(Block::Text { text: text.to_owned(), kept }));
            }
        };
        let parts = self.value.get("content").and_then(Value::as_array).filter(|parts| !parts.is_empty());
        if let Some(text) = self.value.get("content").and_then(Value::as_str) {
            push(text, None);
        } else if let Some(parts) = parts.filter(|_| self.done) {
            for part in parts {
                if part.get("type").and_then(Value::as_str) == Some("refusal") {
                    notes.add(Code::Refusal, "");
                }
                let text = ["text", "refusal"].iter().find_map(|key| part.get(*key).and_then(Value::as_str));
                push(text.unwrap_or_default(), part.get("annotations"));
            }
        } else {
            self.texts.values().for_each(|text| push(text, None));
        }
    }

    fn reasoning(self) -> Draft {
        let told = |key: &str| -> Vec<String> {
            let parts = self.value.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
            parts.iter().filter_map(|part| part.get("text").and_then(Value::as_str)).map(str::to_owned).collect()
        };
        let pieces = |parts: &BTreeMap<i64, String>| parts.values().cloned().collect::<Vec<_>>();
        let candidates = [told("summary"), told("content"), pieces(&self.summaries), pieces(&self.texts)];
        let text = candidates.into_iter().find(|texts| !texts.is_empty()).unwrap_or_default().join("\n\n");
        let signature = self.value.get("encrypted_content").and_then(Value::as_str).map(str::to_owned);
        let kept = Kept::of(Provider::Responses, Map::from_iter([("item".to_owned(), Value::Object(self.value))]));
        Draft::Block(Block::Thinking { text, signature, from: Provider::Responses, kept })
    }
}

/// Frames that add to an answer.
fn is_content(kind: &str) -> bool {
    kind.starts_with("response.output_") || kind.ends_with(".delta") || kind.ends_with("_call_arguments.done")
}

fn word<'v>(value: &'v Map<String, Value>, key: &str) -> &'v str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn lost(what: &str) -> Fault {
    Fault::Frame(format!("{what} is missing"))
}

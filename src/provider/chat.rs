//! OpenAI Chat Completions, and everything that says it is compatible with it (DeepSeek, Qwen, Kimi, GLM, Ark, Mistral,
//! Groq, llama.cpp, vLLM, MindIE, OpenRouter …; Ollama's own chat too): chunks of a stream, or one whole body.
//!
//! State is kept for each call by what identifies it, never for "the last one". Where a piece could belong to two calls
//! it belongs to none, and the turn fails: arguments joined to the wrong call are valid JSON often enough.

use std::borrow::Cow;
use std::collections::BTreeMap;

use interlock_domain::block::{Block, CallKind, Kept, Provider};
use serde_json::{Map, Value};

use super::Closed;
use super::call::{CALLS_MAX, Draft, OpenCall, Reason, Size};
use super::end::{Code, Fault, Live, Notes};
use super::json::Json;
use super::reported;

/// Where a dialect puts its thoughts.
const THOUGHTS: [&str; 3] = ["reasoning_content", "reasoning", "thinking"];

#[derive(Debug, Default)]
pub(super) struct Chat {
    choice: Option<i64>,
    segments: Vec<Segment>,
    slots: Vec<Slot>,
    by_index: BTreeMap<i64, usize>,
    legacy: Option<usize>,
    reason: Option<Reason>,
    /// `[DONE]` came.
    done: bool,
    /// A body that was not streamed came, and is whole by itself.
    whole: bool,
    /// Deltas came: a message behind them says the same once more.
    streamed: bool,
    usage: Map<String, Value>,
    size: Size,
    pieces: usize,
    stream: Option<String>,
}

/// A run of text or of thought.
#[derive(Debug)]
enum Segment {
    Text(String),
    Thinking { text: String, field: &'static str, details: Vec<Map<String, Value>> },
}

#[derive(Debug)]
struct Slot {
    call: OpenCall,
    index: Option<i64>,
    /// When its last piece that said something came.
    last: usize,
}

impl Chat {
    /// `[DONE]` came: what follows is ignored.
    pub(super) fn done(&mut self) {
        self.done = true;
    }

    pub(super) fn is_done(&self) -> bool {
        self.done
    }

    pub(super) fn frame(
        &mut self,
        event: &str,
        frame: &Json<'_>,
        notes: &mut Notes,
        live: &mut dyn FnMut(Live<'_>),
    ) -> Result<(), Fault> {
        let answers = event != "error"
            && frame.get("choices").is_some()
            && ["error", "status", "base_resp"].iter().all(|key| frame.get(key).is_none());
        if let Some(fault) = (!answers).then(|| reported::reported(event, frame)).flatten() {
            return Err(fault);
        }
        if !frame.is_object() {
            return Err(Fault::Frame("no JSON object".to_owned()));
        }
        for usage in [frame.get("usage"), frame.get("x_groq").and_then(|groq| groq.get("usage"))].into_iter().flatten()
        {
            self.take_usage(usage);
        }
        // SenseNova's own form wraps each chunk.
        let chunk = frame.get("data").filter(|data| data.get("choices").is_some()).unwrap_or(frame);
        if let Some(choices) = chunk.get("choices") {
            self.see_stream(chunk, notes);
            let whole = chunk.text_of("object") == Some("chat.completion");
            return choices.items().iter().try_for_each(|choice| self.choice(choice, whole, notes, live));
        }
        if let Some(message) = frame.get("message").filter(|message| message.is_object()) {
            return self.ollama(frame, message, notes, live);
        }
        if let Some(fault) = reported::bare(frame) {
            return Err(fault);
        }
        if ["id", "usage", "object", "model", "x_groq"].iter().all(|key| frame.get(key).is_none()) {
            notes.add(Code::UnknownFrame, frame.text_of("type").unwrap_or_default());
        }
        Ok(())
    }

    pub(super) fn close(mut self) -> Closed {
        // A piece that says nothing at all is no call.
        self.slots.retain(|slot| {
            let call = &slot.call;
            !(call.name.is_empty() && call.provider_id.is_empty() && call.arguments.is_blank())
        });
        self.slots.sort_by_key(|slot| match slot.index {
            Some(index) => (index, 0),
            None => (i64::MAX, slot.last),
        });
        let segments = self.segments.into_iter().map(|segment| Draft::Block(segment.into_block()));
        let calls = self.slots.into_iter().map(|slot| Draft::Call(slot.call));
        let reason = self.reason.or((self.done || self.whole).then_some(Reason::Ended));
        Closed { drafts: segments.chain(calls).collect(), reason, usage: self.usage }
    }

    fn take_usage(&mut self, usage: &Json<'_>) {
        if usage.is_object() {
            self.usage = usage.to_map();
        }
    }

    /// Chunks of one answer have one id. Another id is another answer, which counts too: where several steps come in
    /// one stream, nothing of them may be lost.
    fn see_stream(&mut self, frame: &Json<'_>, notes: &mut Notes) {
        let Some(id) = frame.text_of("id").filter(|id| !id.is_empty()) else { return };
        match &self.stream {
            Some(known) if known == id => {}
            Some(_) if self.reason.is_some() && frame.get("choices").is_some_and(|c| !c.items().is_empty()) => {
                notes.add(Code::SeveralAnswers, "");
                self.stream = Some(id.to_owned());
                // The next answer has an end of its own, and its indices begin again.
                self.reason = None;
                self.by_index.clear();
                self.legacy = None;
            }
            Some(_) => {}
            None => self.stream = Some(id.to_owned()),
        }
    }

    fn choice(
        &mut self,
        choice: &Json<'_>,
        whole: bool,
        notes: &mut Notes,
        live: &mut dyn FnMut(Live<'_>),
    ) -> Result<(), Fault> {
        if let Some(error) = choice.get("error") {
            return Err(reported::reported("", &Json::Object(vec![(Cow::Borrowed("error"), error.clone())]))
                .unwrap_or_else(|| reported::said("error")));
        }
        let number = choice.get("index").and_then(Json::as_i64).unwrap_or(0);
        if *self.choice.get_or_insert(number) != number {
            notes.add(Code::ExtraChoice, "");
            return Ok(());
        }
        if let Some(usage) = choice.get("usage") {
            self.take_usage(usage);
        }
        let message = choice.get("message").filter(|message| message.is_object());
        match (choice.get("delta"), message, choice.text_of("text")) {
            (Some(Json::Text(text)), _, _) => self.text(text, live)?,
            (Some(delta @ Json::Object(_)), _, _) => {
                self.streamed = true;
                self.delta(delta, notes, live)?;
            }
            (_, Some(_), _) if self.streamed => notes.add(Code::Repeated, "message"),
            (_, Some(message), _) => {
                self.delta(message, notes, live)?;
                self.whole |= whole && choice.get("finish_reason").is_none();
            }
            (_, None, Some(text)) => self.text(text, live)?,
            (_, None, None) => {}
        }
        self.finish_reason(choice.text_of("finish_reason"), notes)
    }

    /// Ollama's own chat: a message a line, the last with `done`.
    fn ollama(
        &mut self,
        frame: &Json<'_>,
        message: &Json<'_>,
        notes: &mut Notes,
        live: &mut dyn FnMut(Live<'_>),
    ) -> Result<(), Fault> {
        self.delta(message, notes, live)?;
        if frame.get("done").and_then(Json::as_bool) == Some(true) {
            for key in ["prompt_eval_count", "eval_count"] {
                if let Some(count) = frame.get(key) {
                    self.usage.insert(key.to_owned(), count.to_value());
                }
            }
            self.finish_reason(frame.text_of("done_reason").or(Some("stop")), notes)?;
        }
        Ok(())
    }

    fn finish_reason(&mut self, word: Option<&str>, notes: &mut Notes) -> Result<(), Fault> {
        let Some(word) = word.filter(|word| !matches!(*word, "" | "null")) else { return Ok(()) };
        self.reason = Some(match word.to_ascii_lowercase().as_str() {
            "stop" | "tool_calls" | "tool_call" | "function_call" | "tool_use" | "end_turn" | "eos" | "eos_token"
            | "stop_sequence" | "end" | "complete" | "completed" => Reason::Ended,
            "length" | "max_tokens" | "model_length" | "max_output_tokens" => Reason::Length,
            "content_filter" | "sensitive" | "safety" | "refusal" => Reason::Refused(word.to_owned()),
            "abort" | "aborted" | "cancelled" | "canceled" => return Err(Fault::StreamCut),
            "error" | "network_error" | "insufficient_system_resource" | "timeout" | "failed" => {
                let message = format!("finish_reason {word}");
                return Err(Fault::Provider { retryable: true, kind: word.to_owned(), message });
            }
            _ => {
                notes.add(Code::UnknownPart, &format!("finish_reason {word}"));
                Reason::Ended
            }
        });
        Ok(())
    }

    fn delta(&mut self, delta: &Json<'_>, notes: &mut Notes, live: &mut dyn FnMut(Live<'_>)) -> Result<(), Fault> {
        let thought = THOUGHTS
            .iter()
            .filter_map(|field| delta.text_of(field).map(|text| (*field, text)))
            .find(|(_, text)| !text.is_empty());
        if let Some((field, text)) = thought {
            self.thinking(text, field, live)?;
        }
        if let Some(details) = delta.get("reasoning_details") {
            self.details(details)?;
        }
        if let Some(content) = delta.get("content") {
            self.content(content, notes, live)?;
        }
        if let Some(refusal) = delta.text_of("refusal").filter(|text| !text.is_empty()) {
            notes.add(Code::Refusal, "");
            self.text(refusal, live)?;
        }
        if let Some(call) = delta.get("function_call") {
            self.legacy_call(call, live)?;
        }
        let calls = delta.get("tool_calls").map(Json::items).unwrap_or_default();
        calls.iter().try_for_each(|piece| self.piece(piece, notes, live))
    }

    // ---- Text and thoughts ----

    fn content(&mut self, content: &Json<'_>, notes: &mut Notes, live: &mut dyn FnMut(Live<'_>)) -> Result<(), Fault> {
        if let Some(text) = content.as_text() {
            return self.text(text, live);
        }
        for part in content.items() {
            let kind = part.text_of("type").unwrap_or_default();
            match (part.as_text(), kind) {
                (Some(text), _) => self.text(text, live)?,
                (None, "thinking" | "reasoning") => {
                    let inner = part.get("thinking").or_else(|| part.get("text")).or_else(|| part.get("content"));
                    let Some(inner) = inner else { continue };
                    let pieces =
                        std::iter::once(inner.as_text()).chain(inner.items().iter().map(|i| i.text_of("text")));
                    for text in pieces.flatten() {
                        self.thinking(text, "content", live)?;
                    }
                }
                (None, "refusal") => {
                    notes.add(Code::Refusal, "");
                    self.text(part.text_of("refusal").unwrap_or_default(), live)?;
                }
                (None, _) => match part.text_of("text") {
                    Some(text) => self.text(text, live)?,
                    None => notes.add(Code::UnknownPart, kind),
                },
            }
        }
        Ok(())
    }

    fn text(&mut self, piece: &str, live: &mut dyn FnMut(Live<'_>)) -> Result<(), Fault> {
        if piece.is_empty() {
            return Ok(());
        }
        self.size.add(piece.len())?;
        live(Live::Text(piece));
        match self.segments.last_mut() {
            Some(Segment::Text(text)) => text.push_str(piece),
            Some(Segment::Thinking { .. }) | None => self.segments.push(Segment::Text(piece.to_owned())),
        }
        Ok(())
    }

    fn thinking(&mut self, piece: &str, from: &'static str, live: &mut dyn FnMut(Live<'_>)) -> Result<(), Fault> {
        self.size.add(piece.len())?;
        live(Live::Thinking(piece));
        if let Some(Segment::Thinking { text, .. }) = self.segments.last_mut() {
            text.push_str(piece);
        } else {
            self.segments.push(Segment::Thinking { text: piece.to_owned(), field: from, details: Vec::new() });
        }
        Ok(())
    }

    /// OpenRouter's form of thoughts, with signatures: pieces of one detail are joined, the rest stays as it is.
    fn details(&mut self, pieces: &Json<'_>) -> Result<(), Fault> {
        for piece in pieces.items() {
            let piece = piece.to_map();
            self.size.add(piece.values().filter_map(Value::as_str).map(str::len).sum::<usize>() + 64)?;
            let open = self.segments.iter_mut().rev().find_map(|segment| match segment {
                Segment::Thinking { details, .. } => Some(details),
                Segment::Text(_) => None,
            });
            let Some(details) = open else {
                self.segments.push(Segment::Thinking { text: String::new(), field: "reasoning", details: vec![piece] });
                continue;
            };
            let same = |detail: &Map<String, Value>| {
                ["type", "index"].iter().all(|key| detail.get(*key) == piece.get(*key)) && piece.get("index").is_some()
            };
            match details.last_mut().filter(|detail| same(detail)) {
                Some(detail) => join(detail, piece),
                None => details.push(piece),
            }
        }
        Ok(())
    }

    // ---- Calls ----

    fn legacy_call(&mut self, call: &Json<'_>, live: &mut dyn FnMut(Live<'_>)) -> Result<(), Fault> {
        let name = call.text_of("name").unwrap_or_default();
        let at = match self.legacy {
            Some(at) => at,
            None => self.open(None, "", name, live)?,
        };
        self.legacy = Some(at);
        self.add(at, "", name, call.get("arguments"), live)
    }

    fn piece(&mut self, piece: &Json<'_>, notes: &mut Notes, live: &mut dyn FnMut(Live<'_>)) -> Result<(), Fault> {
        let index = piece.get("index").and_then(Json::as_i64);
        let id: Cow<'_, str> = match piece.get("id") {
            Some(Json::Text(id)) => Cow::Borrowed(id),
            Some(Json::Number(id)) => Cow::Owned(id.to_string()),
            Some(Json::Null | Json::Bool(_) | Json::Array(_) | Json::Object(_)) | None => Cow::Borrowed(""),
        };
        let custom = piece.get("custom").filter(|custom| custom.is_object());
        let function = piece.get("function").filter(|function| function.is_object()).or(custom).unwrap_or(piece);
        let name = function.text_of("name").unwrap_or_default();
        let input = if custom.is_some() { function.get("input") } else { function.get("arguments") };
        let Some(at) = self.slot(index, &id, name, input, live)? else { return Ok(()) };
        if custom.is_some() {
            self.slots[at].call.kind = CallKind::Custom;
        }
        // A piece that says all of it once more, after it was whole.
        let call = &self.slots[at].call;
        if call.arguments.is_whole() && input.is_some_and(|input| call.arguments.repeats(input)) {
            notes.add(Code::Repeated, &call.name);
            return Ok(());
        }
        self.add(at, &id, name, input, live)?;
        self.keep(at, piece)
    }

    /// What a gateway attaches to a call (a thought's signature, as a rule) goes back with it.
    fn keep(&mut self, at: usize, piece: &Json<'_>) -> Result<(), Fault> {
        let Some(extra) = piece.get("extra_content") else { return Ok(()) };
        let extra = extra.to_value();
        self.size.add(extra.to_string().len())?;
        self.slots[at].call.kept.insert("extra_content".to_owned(), extra);
        Ok(())
    }

    /// Which call a piece belongs to; a new one is opened where it is a new one. `None`: the piece says nothing.
    fn slot(
        &mut self,
        index: Option<i64>,
        id: &str,
        name: &str,
        input: Option<&Json<'_>>,
        live: &mut dyn FnMut(Live<'_>),
    ) -> Result<Option<usize>, Fault> {
        let says = input.is_some_and(|input| input.as_text().is_none_or(|text| !text.trim().is_empty()));
        let again = |slot: &Slot| {
            let call = &slot.call;
            let repeats = || call.name == name && input.is_some_and(|input| call.arguments.repeats(input));
            !(call.arguments.is_whole() && !name.is_empty() && says) || repeats()
        };
        let found = match index {
            Some(number) => match self.by_index.get(&number).copied() {
                Some(at) if id.is_empty() => Some(at).filter(|at| again(&self.slots[*at])),
                Some(at) if self.slots[at].call.provider_id.is_empty() => Some(at).filter(|at| again(&self.slots[*at])),
                Some(_) => self
                    .slots
                    .iter()
                    .rposition(|slot| slot.index == Some(number) && slot.call.provider_id == id && again(slot)),
                // Its first piece may have come without the index.
                None if !id.is_empty() => self.slots.iter().rposition(|slot| {
                    slot.index.is_none() && slot.call.provider_id == id && !slot.call.arguments.is_whole()
                }),
                None => None,
            },
            None if !id.is_empty() => self.slots.iter().rposition(|slot| slot.call.provider_id == id && again(slot)),
            None if name.is_empty() => {
                let mut open = (0..self.slots.len()).filter(|at| !self.slots[*at].call.arguments.is_whole());
                match (open.next(), open.next()) {
                    (Some(at), None) => Some(at),
                    (None, _) if !says => return Ok(None),
                    (None, _) => return Err(Fault::Piece("arguments that belong to no call".to_owned())),
                    (Some(_), Some(_)) => {
                        return Err(Fault::Piece("arguments without id and index, and several open calls".to_owned()));
                    }
                }
            }
            // A dialect that repeats the name with each piece of the arguments.
            None => {
                let last = self.slots.len().checked_sub(1);
                last.filter(|at| {
                    let call = &self.slots[*at].call;
                    call.name == name && !call.arguments.is_blank() && !call.arguments.is_whole()
                })
            }
        };
        match found {
            Some(at) => Ok(Some(at)),
            None => self.open(index, id, name, live).map(Some),
        }
    }

    fn open(
        &mut self,
        index: Option<i64>,
        id: &str,
        name: &str,
        live: &mut dyn FnMut(Live<'_>),
    ) -> Result<usize, Fault> {
        if self.slots.len() == CALLS_MAX {
            return Err(Fault::TooLarge("more than 64 calls in one message"));
        }
        let at = self.slots.len();
        self.slots.push(Slot { call: OpenCall::new(id, name)?, index, last: self.pieces });
        if let Some(index) = index {
            self.by_index.insert(index, at);
        }
        if !name.is_empty() {
            live(Live::Call(name));
        }
        Ok(at)
    }

    fn add(
        &mut self,
        at: usize,
        id: &str,
        name: &str,
        input: Option<&Json<'_>>,
        live: &mut dyn FnMut(Live<'_>),
    ) -> Result<(), Fault> {
        self.pieces += 1;
        let slot = &mut self.slots[at];
        if slot.call.provider_id.is_empty() && !id.is_empty() {
            slot.call.provider_id = OpenCall::new(id, "")?.provider_id;
        }
        if slot.call.name.is_empty() && !name.is_empty() {
            live(Live::Call(name));
        }
        if !slot.call.take_name(name)? {
            return Err(Fault::Piece(format!("a call of {:?} becomes one of {name:?}", slot.call.name)));
        }
        if let Some(input) = input {
            let more = slot.call.arguments.take(input)?;
            if more > 0 {
                slot.last = self.pieces;
            }
            self.size.add(more)?;
        }
        Ok(())
    }
}

/// Text grows, everything else is replaced.
fn join(detail: &mut Map<String, Value>, piece: Map<String, Value>) {
    for (key, value) in piece {
        match (detail.get_mut(&key), value) {
            (Some(Value::String(text)), Value::String(more)) if matches!(key.as_str(), "text" | "summary" | "data") => {
                text.push_str(&more);
            }
            (_, Value::Null) => {}
            (_, value) => {
                detail.insert(key, value);
            }
        }
    }
}

impl Segment {
    fn into_block(self) -> Block {
        match self {
            Segment::Text(text) => Block::text(text),
            Segment::Thinking { text, field, details } => {
                let mut kept = Map::from_iter([("field".to_owned(), Value::from(field))]);
                if !details.is_empty() {
                    kept.insert("reasoning_details".to_owned(), details.into_iter().map(Value::Object).collect());
                }
                Block::Thinking { text, signature: None, from: Provider::Chat, kept: Kept::of(Provider::Chat, kept) }
            }
        }
    }
}

//! Anthropic Messages: the events of a stream, or one whole message.
//!
//! Blocks are told apart by their index and read when they are whole. A thought keeps its signature, byte for byte, and
//! is left out without one: edited or unsigned, the next request is refused. What Anthropic's own tools did is kept as
//! it came and never run here.

use std::collections::BTreeMap;

use interlock_domain::block::{Block, Kept, Provider};
use serde_json::{Map, Value};

use super::Closed;
use super::call::{CALLS_MAX, Draft, OpenCall, Reason, Size};
use super::end::{Code, Fault, Live, Notes};
use super::json::Json;
use super::reported;

/// The most blocks in one message. Hundreds are seen with server tools; the bound is on memory.
const BLOCKS_MAX: usize = 16_384;

#[derive(Debug, Default)]
pub(super) struct Anthropic {
    /// As they began, each with its answer and index.
    parts: Vec<((u32, i64), Part)>,
    /// By index, the newest part of this answer.
    open: BTreeMap<i64, usize>,
    answer: u32,
    reason: Option<Reason>,
    stopped: bool,
    usage: Map<String, Value>,
    size: Size,
    calls: usize,
}

#[derive(Debug)]
struct Part {
    body: Body,
    stopped: bool,
}

#[derive(Debug)]
enum Body {
    Text {
        text: String,
        citations: Vec<Value>,
    },
    Thinking {
        text: String,
        signature: String,
    },
    Redacted(String),
    Call {
        call: OpenCall,
        input: Option<Map<String, Value>>,
    },
    /// Their own tools: `input` is read from pieces as that of a call is.
    Opaque {
        value: Map<String, Value>,
        input: String,
    },
}

impl Anthropic {
    pub(super) fn frame(
        &mut self,
        event: &str,
        frame: &Json<'_>,
        notes: &mut Notes,
        live: &mut dyn FnMut(Live<'_>),
    ) -> Result<(), Fault> {
        match frame.text_of("type").unwrap_or(event) {
            // The answer has ended, and nobody has begun another.
            kind @ ("content_block_delta" | "content_block_start" | "content_block_stop") if self.stopped => {
                notes.add(Code::AfterEnd, kind);
                Ok(())
            }
            "content_block_delta" => self.delta(frame, notes, live),
            "content_block_start" => {
                let block = frame.get("content_block").ok_or_else(|| lost("a block without content"))?;
                self.start(frame.get("index").and_then(Json::as_i64), block, notes, live).map(drop)
            }
            "content_block_stop" => self.stop(frame),
            "message_start" => {
                if std::mem::take(&mut self.stopped) {
                    notes.add(Code::SeveralAnswers, "");
                    self.answer += 1;
                    self.open.clear();
                    self.reason = None;
                }
                frame.get("message").map_or(Ok(()), |message| self.message(message, notes, live))
            }
            "message_delta" => {
                self.take_usage(frame.get("usage"));
                if let Some(delta) = frame.get("delta") {
                    self.stop_reason(delta, notes);
                }
                Ok(())
            }
            "message_stop" => {
                self.stopped = true;
                Ok(())
            }
            // Not streamed.
            "message" => {
                self.message(frame, notes, live)?;
                self.stopped = true;
                Ok(())
            }
            "ping" => Ok(()),
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

    pub(super) fn close(mut self, notes: &mut Notes) -> Result<Closed, Fault> {
        let mut drafts = Vec::new();
        self.parts.sort_by_key(|(place, _)| *place);
        for (_, part) in self.parts {
            let whole = part.stopped;
            match part.body {
                Body::Text { text, citations } => {
                    let kept = if citations.is_empty() {
                        Map::new()
                    } else {
                        Map::from_iter([("citations".to_owned(), Value::Array(citations))])
                    };
                    if !text.is_empty() {
                        drafts.push(Draft::Block(Block::Text { text, kept: Kept::of(Provider::Anthropic, kept) }));
                    }
                }
                Body::Thinking { signature, .. } if signature.is_empty() => notes.add(Code::UnsignedThinking, ""),
                Body::Thinking { text, signature } => drafts.push(Draft::Block(Block::Thinking {
                    text,
                    signature: Some(signature),
                    from: Provider::Anthropic,
                    kept: Kept::none(),
                })),
                Body::Redacted(data) => drafts.push(Draft::Block(Block::RedactedThinking { data })),
                Body::Call { mut call, input } => {
                    let blank = call.arguments.is_blank();
                    if let Some(input) = input.filter(|input| blank && !input.is_empty()) {
                        call.arguments.set(input);
                    }
                    if !whole && call.arguments.is_blank() && self.stopped && self.reason != Some(Reason::Length) {
                        return Err(lost("the end of a call"));
                    }
                    drafts.push(Draft::Call(call));
                }
                Body::Opaque { mut value, input } => {
                    if !input.trim().is_empty() {
                        match serde_json::from_str(&input) {
                            Ok(read) => drop(value.insert("input".to_owned(), read)),
                            Err(_) if self.reason == Some(Reason::Length) || !self.stopped => continue,
                            Err(error) => {
                                let name = value.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
                                return Err(Fault::Arguments { name, why: format!("no JSON: {error}") });
                            }
                        }
                    }
                    let value = Value::Object(value).into();
                    drafts.push(Draft::Block(Block::Opaque { from: Provider::Anthropic, value }));
                }
            }
        }
        Ok(Closed {
            drafts,
            reason: self.reason.filter(|_| self.stopped).or(self.stopped.then_some(Reason::Ended)),
            usage: self.usage,
        })
    }

    fn message(&mut self, message: &Json<'_>, notes: &mut Notes, live: &mut dyn FnMut(Live<'_>)) -> Result<(), Fault> {
        self.take_usage(message.get("usage"));
        if let Some(text) = message.text_of("content").filter(|text| !text.is_empty()) {
            self.push(None, Body::Text { text: text.to_owned(), citations: Vec::new() })?;
        }
        for block in message.get("content").map(Json::items).unwrap_or_default() {
            if let Some(at) = self.start(None, block, notes, live)? {
                self.parts[at].1.stopped = true;
            }
        }
        self.stop_reason(message, notes);
        Ok(())
    }

    fn take_usage(&mut self, usage: Option<&Json<'_>>) {
        if let Some(usage) = usage {
            self.usage.extend(usage.to_map().into_iter().filter(|(_, value)| !value.is_null()));
        }
    }

    fn stop_reason(&mut self, told: &Json<'_>, notes: &mut Notes) {
        let Some(word) = told.text_of("stop_reason") else { return };
        self.reason = Some(match word {
            "end_turn" | "tool_use" | "stop_sequence" => Reason::Ended,
            "max_tokens" | "model_context_window_exceeded" => Reason::Length,
            "pause_turn" | "compaction" => Reason::Pause,
            "refusal" => Reason::Refused(word.to_owned()),
            _ => {
                notes.add(Code::UnknownPart, &format!("stop_reason {word}"));
                Reason::Ended
            }
        });
    }

    /// A block begins. It may bring all that it has.
    fn start(
        &mut self,
        index: Option<i64>,
        block: &Json<'_>,
        notes: &mut Notes,
        live: &mut dyn FnMut(Live<'_>),
    ) -> Result<Option<usize>, Fault> {
        let text = |key| block.text_of(key).unwrap_or_default().to_owned();
        if let Some(at) = self.begun(index, block) {
            notes.add(Code::Repeated, "content_block_start");
            return Ok(Some(at));
        }
        self.size.add(block.weight())?;
        let body = match block.text_of("type").unwrap_or_default() {
            "text" => {
                let text = text("text");
                if !text.is_empty() {
                    live(Live::Text(&text));
                }
                let citations = block.get("citations").map(Json::items).unwrap_or_default();
                Body::Text { text, citations: citations.iter().map(Json::to_value).collect() }
            }
            "thinking" => Body::Thinking { text: text("thinking"), signature: text("signature") },
            "redacted_thinking" => Body::Redacted(text("data")),
            "tool_use" => {
                self.calls += 1;
                if self.calls > CALLS_MAX {
                    return Err(Fault::TooLarge("more than 64 calls in one message"));
                }
                let mut call = OpenCall::new(&text("id"), &text("name"))?;
                live(Live::Call(&call.name));
                // Who called: a script of Anthropic's own tool. It goes back as it came.
                if let Some(caller) = block.get("caller") {
                    call.kept.insert("caller".to_owned(), caller.to_value());
                }
                let input = match block.get("input") {
                    None => None,
                    Some(Json::Object(_)) => block.get("input").map(Json::to_map),
                    Some(Json::Text(input)) => {
                        call.arguments.push(input)?;
                        None
                    }
                    Some(Json::Null | Json::Bool(_) | Json::Number(_) | Json::Array(_)) => {
                        return Err(Fault::Arguments { name: call.name, why: "no JSON object".to_owned() });
                    }
                };
                Body::Call { call, input }
            }
            "" => {
                notes.add(Code::UnknownPart, "a block without a type");
                return Ok(None);
            }
            _ => Body::Opaque { value: block.to_map(), input: String::new() },
        };
        self.push(index, body).map(Some)
    }

    /// The call that has begun with this very frame, and of which nothing more has come: the frame came twice.
    fn begun(&self, index: Option<i64>, block: &Json<'_>) -> Option<usize> {
        let at = *self.open.get(&index?)?;
        let part = &self.parts.get(at)?.1;
        let Body::Call { call, .. } = &part.body else { return None };
        let same = block.text_of("type") == Some("tool_use")
            && block.text_of("id") == Some(&call.provider_id)
            && block.text_of("name") == Some(&call.name);
        (same && !part.stopped && call.arguments.is_blank() && !call.provider_id.is_empty()).then_some(at)
    }

    fn push(&mut self, index: Option<i64>, body: Body) -> Result<usize, Fault> {
        let at = self.parts.len();
        if at >= BLOCKS_MAX {
            return Err(Fault::TooLarge("more than 16,384 blocks in one message"));
        }
        // Without an index, blocks follow one another.
        let index = index.unwrap_or_else(|| match self.parts.last() {
            Some(((answer, index), _)) if *answer == self.answer => index.saturating_add(1),
            Some(_) | None => 0,
        });
        self.parts.push(((self.answer, index), Part { body, stopped: false }));
        self.open.insert(index, at);
        Ok(at)
    }

    /// The part that a frame names by its index; without an index, the only open one.
    fn named(&mut self, frame: &Json<'_>) -> Option<&mut Part> {
        let at = match frame.get("index").and_then(Json::as_i64) {
            Some(index) => *self.open.get(&index)?,
            None => {
                let mut open = self.open.values().filter(|at| !self.parts[**at].1.stopped);
                match (open.next(), open.next()) {
                    (Some(at), None) => *at,
                    (Some(_), Some(_)) | (None, _) => return None,
                }
            }
        };
        self.parts.get_mut(at).map(|(_, part)| part)
    }

    fn stop(&mut self, frame: &Json<'_>) -> Result<(), Fault> {
        match self.named(frame) {
            Some(part) => {
                part.stopped = true;
                Ok(())
            }
            // The end of a block that was left out.
            None => Ok(()),
        }
    }

    fn delta(&mut self, frame: &Json<'_>, notes: &mut Notes, live: &mut dyn FnMut(Live<'_>)) -> Result<(), Fault> {
        let Some(delta) = frame.get("delta") else { return Err(lost("a delta without content")) };
        self.size.add(match delta {
            Json::Object(members) => members.iter().filter_map(|(_, value)| value.as_text()).map(str::len).sum(),
            Json::Null | Json::Bool(_) | Json::Number(_) | Json::Text(_) | Json::Array(_) => 0,
        })?;
        let kind = delta.text_of("type").unwrap_or_default();
        let Some(part) = self.named(frame) else {
            // Text that nobody announced is text all the same; anything else would be a guess.
            if kind == "text_delta" {
                let text = delta.text_of("text").unwrap_or_default();
                live(Live::Text(text));
                let body = Body::Text { text: text.to_owned(), citations: Vec::new() };
                return self.push(frame.get("index").and_then(Json::as_i64), body).map(drop);
            }
            return Err(lost("the beginning of a block"));
        };
        if part.stopped {
            return Err(lost("the beginning of a block"));
        }
        let text = |key| delta.text_of(key).unwrap_or_default();
        match (&mut part.body, kind) {
            (Body::Text { text: so_far, .. }, "text_delta") => {
                live(Live::Text(text("text")));
                so_far.push_str(text("text"));
            }
            (Body::Text { citations, .. }, "citations_delta") => {
                citations.extend(delta.get("citation").map(Json::to_value));
            }
            (Body::Thinking { text: so_far, .. }, "thinking_delta") => {
                live(Live::Thinking(text("thinking")));
                so_far.push_str(text("thinking"));
            }
            (Body::Thinking { signature, .. }, "signature_delta") => text("signature").clone_into(signature),
            (Body::Call { call, .. }, "input_json_delta") => {
                if let Some(piece) = delta.get("partial_json") {
                    let more = call.arguments.take(piece)?;
                    self.size.add(if piece.is_object() { more } else { 0 })?;
                }
            }
            (Body::Opaque { input, .. }, "input_json_delta") => input.push_str(text("partial_json")),
            (Body::Opaque { value, .. }, _) => {
                for (key, more) in delta.to_map() {
                    match (value.get_mut(&key), more) {
                        _ if key == "type" => {}
                        (Some(Value::String(so_far)), Value::String(more)) => so_far.push_str(&more),
                        (_, more) => drop(value.insert(key, more)),
                    }
                }
            }
            (Body::Call { .. }, _) => {
                return Err(Fault::Piece(format!("a call gets a {:?}", super::end::clipped(kind))));
            }
            (Body::Text { .. } | Body::Thinking { .. } | Body::Redacted(_), _) => notes.add(Code::UnknownPart, kind),
        }
        Ok(())
    }
}

fn lost(what: &str) -> Fault {
    Fault::Frame(format!("{what} is missing"))
}

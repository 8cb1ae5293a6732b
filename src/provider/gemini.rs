//! Gemini `generateContent`: the chunks of a stream, or one whole answer; arguments that are streamed by path too.
//!
//! A signature stays on the part that carried it: parts with one are not joined to others. A call without an id gets
//! one of ours, which never goes back to the provider.

use interlock_domain::block::{Block, Image, ImageSource, Kept, Provider};
use serde_json::{Map, Value};

use super::Closed;
use super::call::{Arguments, CALLS_MAX, Draft, OpenCall, Reason, Size};
use super::end::{Code, Fault, Live, Notes, clipped};
use super::json::Json;
use super::partial::Partial;
use super::reported;

/// The most parts in one answer; the bound is on memory.
const PARTS_MAX: usize = 65_536;
/// What a signature is called, here and in what is kept.
pub(super) const SIGNATURE: &str = "thoughtSignature";

#[derive(Debug, Default)]
pub(super) struct Gemini {
    parts: Vec<Part>,
    open: Option<usize>,
    candidate: Option<i64>,
    reason: Option<Reason>,
    usage: Map<String, Value>,
    size: Size,
    calls: usize,
}

#[derive(Debug)]
enum Part {
    Text { text: String, thought: bool, signature: Option<String> },
    Call { call: OpenCall, args: Partial },
    Block(Block),
}

impl Gemini {
    pub(super) fn frame(
        &mut self,
        event: &str,
        frame: &Json<'_>,
        notes: &mut Notes,
        live: &mut dyn FnMut(Live<'_>),
    ) -> Result<(), Fault> {
        let answers = event != "error" && frame.get("error").is_none() && frame.get("candidates").is_some();
        if let Some(fault) = (!answers).then(|| reported::reported(event, frame)).flatten() {
            return Err(fault);
        }
        if !frame.is_object() {
            return Err(Fault::Frame("no JSON object".to_owned()));
        }
        // One of its front ends wraps each chunk.
        let frame = frame.get("response").filter(|inner| inner.is_object()).unwrap_or(frame);
        let blocked = frame.get("promptFeedback").and_then(|feedback| feedback.text_of("blockReason"));
        if let Some(why) = blocked.filter(|why| *why != "BLOCK_REASON_UNSPECIFIED") {
            let message = frame.get("promptFeedback").and_then(|feedback| feedback.text_of("blockReasonMessage"));
            let message = clipped(message.unwrap_or("the prompt was blocked"));
            return Err(Fault::Provider { retryable: false, kind: clipped(why), message });
        }
        let Some(candidates) = frame.get("candidates") else {
            if let Some(fault) = reported::bare(frame) {
                return Err(fault);
            }
            if ["usageMetadata", "usage_metadata", "modelVersion", "responseId", "promptFeedback"]
                .iter()
                .all(|k| frame.get(k).is_none())
            {
                notes.add(Code::UnknownFrame, "");
            }
            self.take_usage(frame);
            return Ok(());
        };
        candidates.items().iter().try_for_each(|candidate| self.candidate(candidate, notes, live))?;
        // It comes with each chunk and grows; only that of the end counts.
        if self.reason.is_some() || self.usage.is_empty() {
            self.take_usage(frame);
        }
        Ok(())
    }

    fn take_usage(&mut self, frame: &Json<'_>) {
        if let Some(usage) = either(frame, "usageMetadata", "usage_metadata") {
            self.usage = usage.to_map();
        }
    }

    pub(super) fn close(self, notes: &mut Notes) -> Result<Closed, Fault> {
        if let Some(Part::Call { call, .. }) = self.open.and_then(|at| self.parts.get(at)) {
            return Err(if self.reason.is_none() {
                Fault::StreamCut
            } else {
                Fault::OutputCut { name: call.name.clone() }
            });
        }
        let mut drafts = Vec::new();
        for part in self.parts {
            drafts.push(match part {
                Part::Text { text, signature: None, .. } if text.is_empty() => continue,
                Part::Text { text, thought: true, signature } => {
                    Draft::Block(Block::Thinking { text, signature, from: Provider::Gemini, kept: Kept::none() })
                }
                Part::Text { text, thought: false, signature } => {
                    let kept = signature.map(|signature| (SIGNATURE.to_owned(), Value::from(signature)));
                    Draft::Block(Block::Text { text, kept: Kept::of(Provider::Gemini, kept.into_iter().collect()) })
                }
                Part::Call { mut call, args } => {
                    call.arguments.set(args.into_object(&call.name)?);
                    Draft::Call(call)
                }
                Part::Block(block) => Draft::Block(block),
            });
        }
        if drafts.is_empty() && self.reason.is_some() {
            notes.add(Code::UnknownPart, "an answer without a part");
        }
        Ok(Closed { drafts, reason: self.reason, usage: self.usage })
    }

    fn candidate(
        &mut self,
        candidate: &Json<'_>,
        notes: &mut Notes,
        live: &mut dyn FnMut(Live<'_>),
    ) -> Result<(), Fault> {
        let number = candidate.get("index").and_then(Json::as_i64).unwrap_or(0);
        if *self.candidate.get_or_insert(number) != number {
            notes.add(Code::ExtraChoice, "");
            return Ok(());
        }
        let parts = candidate.get("content").and_then(|content| content.get("parts")).map(Json::items);
        for part in parts.unwrap_or_default() {
            self.part(part, notes, live)?;
        }
        let Some(word) = either(candidate, "finishReason", "finish_reason").and_then(Json::as_text) else {
            return Ok(());
        };
        let said = either(candidate, "finishMessage", "finish_message").and_then(Json::as_text).unwrap_or_default();
        self.reason = Some(match word {
            "FINISH_REASON_UNSPECIFIED" | "" => return Ok(()),
            "STOP" => Reason::Ended,
            "MAX_TOKENS" => Reason::Length,
            "SAFETY"
            | "RECITATION"
            | "LANGUAGE"
            | "BLOCKLIST"
            | "PROHIBITED_CONTENT"
            | "SPII"
            | "IMAGE_SAFETY"
            | "IMAGE_PROHIBITED_CONTENT"
            | "IMAGE_RECITATION"
            | "MODEL_ARMOR" => Reason::Refused(word.to_owned()),
            "MALFORMED_FUNCTION_CALL"
            | "UNEXPECTED_TOOL_CALL"
            | "TOO_MANY_TOOL_CALLS"
            | "MISSING_THOUGHT_SIGNATURE"
            | "MALFORMED_RESPONSE" => return Err(Fault::Piece(format!("the provider says {word}: {}", clipped(said)))),
            _ => {
                notes.add(Code::UnknownPart, &format!("finishReason {word}"));
                Reason::Ended
            }
        });
        Ok(())
    }

    fn part(&mut self, part: &Json<'_>, notes: &mut Notes, live: &mut dyn FnMut(Live<'_>)) -> Result<(), Fault> {
        if self.parts.len() >= PARTS_MAX {
            return Err(Fault::TooLarge("more than 65,536 parts in one answer"));
        }
        let signature = part.text_of(SIGNATURE).or_else(|| part.text_of("thought_signature")).filter(|s| !s.is_empty());
        if let Some(call) = part.get("functionCall").or_else(|| part.get("function_call")) {
            return self.call(call, signature, notes, live);
        }
        if let Some(text) = part.text_of("text") {
            let thought = part.get("thought").and_then(Json::as_bool) == Some(true);
            return self.text(text, thought, signature, live);
        }
        self.size.add(part.weight())?;
        if let Some(data) = part.get("inlineData").or_else(|| part.get("inline_data")).filter(|_| signature.is_none()) {
            let media_type = data.text_of("mimeType").or_else(|| data.text_of("mime_type")).unwrap_or_default();
            let source = ImageSource::Base64(data.text_of("data").unwrap_or_default().to_owned());
            let image = Image { media_type: media_type.to_owned(), source };
            self.parts.push(Part::Block(Block::Image(image)));
        } else if let Some(signature) =
            signature.filter(|_| matches!(part, Json::Object(members) if members.len() == 1))
        {
            return self.text("", false, Some(signature), live);
        } else if part.is_object() {
            self.parts.push(Part::Block(Block::Opaque { from: Provider::Gemini, value: part.to_value().into() }));
        } else {
            notes.add(Code::UnknownPart, "");
        }
        Ok(())
    }

    fn text(
        &mut self,
        piece: &str,
        thought: bool,
        signature: Option<&str>,
        live: &mut dyn FnMut(Live<'_>),
    ) -> Result<(), Fault> {
        self.size.add(piece.len() + signature.map_or(0, str::len))?;
        if piece.is_empty() && signature.is_none() {
            return Ok(());
        }
        if !piece.is_empty() {
            live(if thought { Live::Thinking(piece) } else { Live::Text(piece) });
        }
        match self.parts.last_mut() {
            Some(Part::Text { text, thought: was, signature: None }) if *was == thought && signature.is_none() => {
                text.push_str(piece);
            }
            Some(Part::Text { .. } | Part::Call { .. } | Part::Block(_)) | None => {
                self.parts.push(Part::Text {
                    text: piece.to_owned(),
                    thought,
                    signature: signature.map(str::to_owned),
                });
            }
        }
        Ok(())
    }

    fn call(
        &mut self,
        told: &Json<'_>,
        signature: Option<&str>,
        notes: &mut Notes,
        live: &mut dyn FnMut(Live<'_>),
    ) -> Result<(), Fault> {
        self.size.add(told.weight() + signature.map_or(0, str::len))?;
        let name = told.text_of("name").unwrap_or_default();
        let id = told.text_of("id").unwrap_or_default();
        let goes_on = either(told, "willContinue", "will_continue").and_then(Json::as_bool) == Some(true);
        let pieces = either(told, "partialArgs", "partial_args");
        let at = match (self.open, name) {
            (Some(at), name) => {
                let Some(Part::Call { call, .. }) = self.parts.get(at) else { return Err(stray()) };
                let same = (name.is_empty() || name == call.name) && (id.is_empty() || id == call.provider_id);
                // A name once more, without anything for the call that is open, begins another.
                let begins = !name.is_empty() && id.is_empty() && pieces.is_none() && told.get("args").is_none();
                if !same || begins {
                    return Err(Fault::Piece(format!("the call of {:?} never ended", call.name)));
                }
                at
            }
            (None, "") if told.get("args").is_none() && pieces.is_none() && id.is_empty() => {
                // The end of a call that has ended.
                notes.add(Code::UnknownPart, "functionCall without a name");
                return Ok(());
            }
            (None, "") => return Err(stray()),
            (None, name) => {
                self.calls += 1;
                if self.calls > CALLS_MAX {
                    return Err(Fault::TooLarge("more than 64 calls in one message"));
                }
                live(Live::Call(name));
                self.parts.push(Part::Call { call: OpenCall::new(id, name)?, args: Partial::default() });
                self.parts.len() - 1
            }
        };
        let Some(Part::Call { call, args }) = self.parts.get_mut(at) else { return Err(stray()) };
        if let Some(signature) = signature {
            call.kept.insert(SIGNATURE.to_owned(), signature.into());
        }
        match told.get("args") {
            None => {}
            Some(whole @ Json::Object(_)) => args.set(whole.to_map()),
            // Front ends that speak another provider's language keep its text.
            Some(Json::Text(text)) => {
                let mut arguments = Arguments::default();
                arguments.push(text)?;
                args.set(arguments.read().map_err(|why| Fault::Arguments { name: call.name.clone(), why })?);
            }
            Some(Json::Null | Json::Bool(_) | Json::Number(_) | Json::Array(_)) => {
                return Err(Fault::Arguments { name: call.name.clone(), why: "no JSON object".to_owned() });
            }
        }
        for piece in pieces.map(Json::items).unwrap_or_default() {
            args.take(piece).map_err(|why| Fault::Arguments { name: call.name.clone(), why })?;
        }
        self.open = goes_on.then_some(at);
        Ok(())
    }
}

/// A member by its name in JSON, or by its name in the interface definition: the provider's own library prints that.
fn either<'j, 'a>(of: &'j Json<'a>, json: &str, proto: &str) -> Option<&'j Json<'a>> {
    of.get(json).or_else(|| of.get(proto))
}

fn stray() -> Fault {
    Fault::Piece("arguments that belong to no call".to_owned())
}

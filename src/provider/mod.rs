//! The wire formats of model providers and the shared blocks: bytes in, blocks out, and blocks back to the next request.
//!
//! No I/O, no clock: whoever has the connection feeds what arrives, cut anywhere, and asks for the end. A stream ends in
//! one of four ways, and only [`end::Terminal::Complete`] gives calls. Nothing in here mends JSON, guesses a lost frame
//! or takes text for a call, unless it was told to: an argument that was made up can open a valve.
//!
//! ```
//! use interlock::provider::{Dialect, Normalizer};
//! use interlock_domain::block::{Ids, Provider};
//!
//! let mut normalizer = Normalizer::new(&Dialect::plain(Provider::Chat), Ids::new());
//! normalizer.feed(b"data: {\"choices\":[{\"delta\":{\"content\":\"hel", &mut |_| {});
//! normalizer.feed(b"lo\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n", &mut |_| {});
//! let (end, _ids) = normalizer.finish();
//! assert_eq!(end.text(), "hello");
//! ```

mod anthropic;
mod call;
mod chat;
pub mod end;
pub mod form;
mod frames;
mod gemini;
mod json;
mod partial;
pub mod reported;
pub mod request;
mod responses;
mod text_calls;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use interlock_domain::block::{Block, CallKind, Ids, Kept, Provider, ToolUse};
use serde_json::{Map, Value};

use call::{Draft, OpenCall, Reason};
use end::{Code, End, Fault, Live, Notes, Stop, Terminal};
use frames::{Broken, Frame, Frames, Left};
use json::Json;

/// How a provider's dialect is read and written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dialect {
    /// The wire format.
    pub provider: Provider,
    /// Whether calls that a model prints as text count.
    pub text_calls: TextCalls,
    /// Whether thoughts without a signature go back (Chat only).
    pub thoughts_back: ThoughtsBack,
}

impl Dialect {
    /// As the provider's documentation has it.
    #[must_use]
    pub fn plain(provider: Provider) -> Dialect {
        Dialect { provider, text_calls: TextCalls::Off, thoughts_back: ThoughtsBack::WithinTurn }
    }
}

/// Tool calls that a model prints as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TextCalls {
    /// They stay text; a diagnostic says that one was seen.
    Off,
    /// Outside code fences, calls of these tools count.
    Of(Vec<String>),
}

/// Which thoughts a Chat dialect gets back. DeepSeek and Kimi want those of the turn that still runs (its calls are
/// refused without) and none of earlier turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThoughtsBack {
    /// None.
    Never,
    /// Those after the last thing that the asker said.
    WithinTurn,
    /// All.
    Always,
}

/// Takes the bytes of one answer and gives its blocks.
#[derive(Debug)]
pub struct Normalizer {
    frames: Frames,
    reader: Reader,
    dialect: Dialect,
    ids: Ids,
}

/// Reads frames until the first fault.
#[derive(Debug)]
struct Reader {
    machine: Machine,
    notes: Notes,
    fault: Option<Fault>,
}

#[derive(Debug)]
enum Machine {
    Anthropic(anthropic::Anthropic),
    Chat(chat::Chat),
    Responses(responses::Responses),
    Gemini(gemini::Gemini),
}

/// What a machine gives at the end.
#[derive(Debug)]
struct Closed {
    drafts: Vec<Draft>,
    /// Why the model stopped; `None` when the stream does not say that it was whole.
    reason: Option<Reason>,
    usage: Map<String, Value>,
}

impl Normalizer {
    /// For one answer of `dialect`, in a run that has used `ids`.
    #[must_use]
    pub fn new(dialect: &Dialect, ids: Ids) -> Normalizer {
        let machine = match dialect.provider {
            Provider::Anthropic => Machine::Anthropic(anthropic::Anthropic::default()),
            Provider::Chat => Machine::Chat(chat::Chat::default()),
            Provider::Responses => Machine::Responses(responses::Responses::default()),
            Provider::Gemini => Machine::Gemini(gemini::Gemini::default()),
        };
        let reader = Reader { machine, notes: Notes::default(), fault: None };
        Normalizer { frames: Frames::new(), reader, dialect: dialect.clone(), ids }
    }

    /// Takes the next bytes. What can be shown already goes to `live`.
    pub fn feed(&mut self, bytes: &[u8], live: &mut dyn FnMut(Live<'_>)) {
        if self.reader.fault.is_some() {
            return;
        }
        let reader = &mut self.reader;
        if let Err(broken) = self.frames.feed(bytes, &mut |frame| reader.frame(&frame, live)) {
            reader.fault.get_or_insert(broken.into());
        }
    }

    /// Whether something went wrong that no further bytes can mend: the connection can be closed.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.reader.fault.is_some()
    }

    /// No more bytes come. Gives the end, and the ids with those of its calls.
    #[must_use]
    pub fn finish(mut self) -> (End, Ids) {
        let reader = &mut self.reader;
        if reader.fault.is_none() {
            match self.frames.finish(&mut |frame| reader.last(&frame)) {
                Ok(Left::Nothing) => {}
                Ok(Left::Half) => drop(reader.fault.get_or_insert(Fault::StreamCut)),
                Err(broken) => drop(reader.fault.get_or_insert(broken.into())),
            }
        }
        let strange = !self.frames.stray().is_empty();
        let stray = end::clipped(&String::from_utf8_lossy(self.frames.stray()));
        let Reader { machine, mut notes, mut fault } = self.reader;
        let closed = match machine {
            Machine::Chat(chat) => Ok(chat.close()),
            Machine::Anthropic(anthropic) => anthropic.close(&mut notes),
            Machine::Responses(responses) => responses.close(&mut notes),
            Machine::Gemini(gemini) => gemini.close(&mut notes),
        };
        let closed = closed.unwrap_or_else(|found| {
            fault.get_or_insert(found);
            Closed { drafts: Vec::new(), reason: None, usage: Map::new() }
        });
        if fault.is_none() && closed.reason.is_none() {
            let empty = closed.drafts.is_empty() && closed.usage.is_empty();
            fault = Some(if empty && strange { Fault::Frame(format!("{stray:?}")) } else { Fault::StreamCut });
        }
        let mut ids = self.ids.clone();
        match close(closed, fault, &self.dialect, &mut ids, notes) {
            (end, true) => (end, ids),
            // The calls of an answer that is not complete were never made.
            (end, false) => (end, self.ids),
        }
    }
}

/// Makes the end; `true` when it is complete.
fn close(closed: Closed, fault: Option<Fault>, dialect: &Dialect, ids: &mut Ids, mut notes: Notes) -> (End, bool) {
    let Closed { drafts, reason, usage } = closed;
    let length = reason == Some(Reason::Length);
    let mut fault = fault;
    let mut blocks = Vec::with_capacity(drafts.len());
    let last = drafts.len().saturating_sub(1);
    for (at, draft) in drafts.into_iter().enumerate() {
        match draft {
            Draft::Block(block) => blocks.push(block),
            Draft::Call(_) if fault.is_some() => {}
            Draft::Call(call) => match whole(call, dialect.provider, length && at == last, length, ids, &mut notes) {
                Ok(call) => blocks.push(Block::ToolUse(call)),
                Err(found) => fault = Some(found),
            },
        }
    }
    if fault.is_none() {
        text_calls::look(&mut blocks, &dialect.text_calls, ids, &mut notes);
    }
    let called = blocks.iter().any(|block| matches!(block, Block::ToolUse(_)));
    let stop = match reason {
        Some(Reason::Refused(word)) => {
            notes.add(Code::Refusal, &word);
            if called && fault.is_none() {
                let message = "the answer was refused after it had called tools".to_owned();
                fault = Some(Fault::Provider { retryable: false, kind: word, message });
            }
            Some(Stop::Refused)
        }
        Some(Reason::Length) => {
            notes.add(Code::LengthStop, "");
            Some(Stop::Length)
        }
        Some(Reason::Pause) => {
            notes.add(Code::Pause, "");
            Some(if called { Stop::ToolUse } else { Stop::Pause })
        }
        Some(Reason::Ended) => Some(if called { Stop::ToolUse } else { Stop::End }),
        None => None,
    };
    if fault.is_some() {
        blocks.retain(|block| !matches!(block, Block::ToolUse(_)));
    }
    let terminal = fault.as_ref().map_or(Terminal::Complete, Fault::terminal);
    // A length stop is told even where it made the answer worthless: a person can raise the bound.
    let stop = stop.filter(|stop| terminal == Terminal::Complete || *stop == Stop::Length);
    let complete = fault.is_none();
    (End { terminal, fault, stop, blocks, usage, notes: notes.into_list() }, complete)
}

/// Reads the arguments of a call and gives it its id.
fn whole(
    call: OpenCall,
    provider: Provider,
    cut_here: bool,
    length: bool,
    ids: &mut Ids,
    notes: &mut Notes,
) -> Result<ToolUse, Fault> {
    let OpenCall { provider_id, name, arguments, kind, kept, cut } = call;
    if name.is_empty() {
        return Err(Fault::Piece("a call without a name".to_owned()));
    }
    if cut || cut_here && arguments.is_blank() {
        return Err(Fault::OutputCut { name });
    }
    let read = match kind {
        // Its input is one text, whatever it looks like.
        CallKind::Custom => Ok(Map::from_iter([("input".to_owned(), Value::from(arguments.text()))])),
        CallKind::Function | CallKind::Native => arguments.read(),
    };
    let input = match read {
        Ok(input) => input,
        Err(_) if length => return Err(Fault::OutputCut { name }),
        Err(why) => return Err(Fault::Arguments { name, why }),
    };
    let id = ids.take(&provider_id);
    if !provider_id.is_empty() && id.as_str() != provider_id {
        notes.add(Code::IdReplaced, &provider_id);
    }
    let kept = Kept::of(provider, kept);
    Ok(ToolUse { id, provider_id, name, input: Arc::new(Value::Object(input)), kind, kept })
}

impl Reader {
    fn frame(&mut self, frame: &Frame<'_>, live: &mut dyn FnMut(Live<'_>)) {
        if self.fault.is_none() && !matches!(&self.machine, Machine::Chat(chat) if chat.is_done()) {
            self.fault = self.read(frame, live).err();
        }
    }

    /// A frame that the end of the bytes cut off: if it cannot be read, the stream was cut.
    fn last(&mut self, frame: &Frame<'_>) {
        let was_whole = self.fault.is_none();
        self.frame(frame, &mut |_| {});
        if was_whole && matches!(self.fault, Some(Fault::Frame(_))) {
            self.fault = Some(Fault::StreamCut);
        }
    }

    fn read(&mut self, frame: &Frame<'_>, live: &mut dyn FnMut(Live<'_>)) -> Result<(), Fault> {
        let data = frame.data.trim_ascii();
        if data.is_empty() {
            return Ok(());
        }
        if data == b"[DONE]" {
            self.done();
            return Ok(());
        }
        // Once for the whole frame: cheaper than for each text in it.
        let text = std::str::from_utf8(data).map_err(|_| Fault::Frame("not UTF-8".to_owned()))?;
        let mut values = serde_json::Deserializer::from_str(text).into_iter::<Json<'_>>();
        loop {
            let at = values.byte_offset();
            match values.next() {
                None => return Ok(()),
                Some(Ok(value)) => self.value(frame.event, &value, live)?,
                // A server that leaves out the blank line between its last frame and the end.
                Some(Err(_)) if data[at..].trim_ascii() == b"[DONE]" => {
                    self.done();
                    return Ok(());
                }
                Some(Err(_)) if frame.event == "error" => {
                    return Err(reported::said(&String::from_utf8_lossy(data)));
                }
                Some(Err(error)) => return Err(Fault::Frame(error.to_string())),
            }
        }
    }

    /// `[DONE]` ends a Chat stream; elsewhere it is what a gateway adds.
    fn done(&mut self) {
        match &mut self.machine {
            Machine::Chat(chat) => chat.done(),
            Machine::Anthropic(_) | Machine::Responses(_) | Machine::Gemini(_) => {}
        }
    }

    fn value(&mut self, event: &str, value: &Json<'_>, live: &mut dyn FnMut(Live<'_>)) -> Result<(), Fault> {
        let notes = &mut self.notes;
        match &mut self.machine {
            Machine::Chat(chat) => chat.frame(event, value, notes, live),
            Machine::Anthropic(anthropic) => anthropic.frame(event, value, notes, live),
            Machine::Responses(responses) => responses.frame(event, value, notes, live),
            Machine::Gemini(gemini) => gemini.frame(event, value, notes, live),
        }
    }
}

impl From<Broken> for Fault {
    fn from(broken: Broken) -> Fault {
        match broken {
            Broken::TooLong => Fault::TooLarge("a frame is longer than 16 MiB"),
            Broken::Json => Fault::Frame("JSON that is cut in the middle".to_owned()),
        }
    }
}

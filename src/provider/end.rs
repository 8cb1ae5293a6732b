//! How a provider's stream ended, and what it gave.

use interlock_domain::block::{self, Block, ToolUse};
use interlock_domain::request::shown::plain;
use serde_json::{Map, Value, json};

use super::form;

/// The four ends of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Terminal {
    /// Whole. The only end whose calls may be dispatched.
    Complete,
    /// The provider said that it went wrong.
    ProviderError {
        /// The same request may do better later.
        retryable: bool,
    },
    /// It stopped in the middle: the connection, or the model inside a call. Nothing was dispatched.
    Truncated,
    /// A frame or a call cannot be read, or is beyond a bound.
    Malformed,
}

impl Terminal {
    /// The word in JSON.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Terminal::Complete => "complete",
            Terminal::ProviderError { .. } => "provider_error",
            Terminal::Truncated => "truncated",
            Terminal::Malformed => "malformed",
        }
    }
}

/// Why the model stopped. A hint: whether there are calls is decided by the calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// It waits for the results of its calls.
    ToolUse,
    /// It has said what it had to say.
    End,
    /// Its output was as long as it may be.
    Length,
    /// The provider's own tools take longer; the message goes back as it is, to be continued.
    Pause,
    /// It, or a filter, refused.
    Refused,
}

impl Stop {
    /// The word in JSON. A pause and a refusal are ends there; a diagnostic says which.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Stop::ToolUse => "tool_use",
            Stop::End | Stop::Pause | Stop::Refused => "end",
            Stop::Length => "length",
        }
    }
}

/// What went wrong with a stream.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The provider reports an error.
    #[error("the provider reports {kind}: {message}")]
    Provider {
        /// The same request may do better later.
        retryable: bool,
        /// Its word for it.
        kind: String,
        /// Its message.
        message: String,
    },
    /// The stream ended without saying that it was whole.
    #[error("the stream ended in the middle")]
    StreamCut,
    /// The model's output was cut inside a call.
    #[error("the output was cut inside the call of {name:?}")]
    OutputCut {
        /// The tool.
        name: String,
    },
    /// A frame that cannot be read: dropping it could change what the others mean.
    #[error("a frame cannot be read: {0}")]
    Frame(String),
    /// A piece that belongs to nothing, or to several.
    #[error("{0}")]
    Piece(String),
    /// Arguments that are no JSON object.
    #[error("the arguments of {name:?} are {why}")]
    Arguments {
        /// The tool.
        name: String,
        /// What they are instead.
        why: String,
    },
    /// Beyond a bound.
    #[error("{0}")]
    TooLarge(&'static str),
}

impl Fault {
    /// The word for scripts.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Fault::Provider { .. } => "provider_error",
            Fault::StreamCut => "stream_truncated",
            Fault::OutputCut { .. } => "output_truncated",
            Fault::Frame(_) => "malformed_frame",
            Fault::Piece(_) => "malformed_call",
            Fault::Arguments { .. } => "malformed_arguments",
            Fault::TooLarge(_) => "too_large",
        }
    }

    /// The end that it makes.
    #[must_use]
    pub fn terminal(&self) -> Terminal {
        match self {
            Fault::Provider { retryable, .. } => Terminal::ProviderError { retryable: *retryable },
            Fault::StreamCut | Fault::OutputCut { .. } => Terminal::Truncated,
            Fault::Frame(_) | Fault::Piece(_) | Fault::Arguments { .. } | Fault::TooLarge(_) => Terminal::Malformed,
        }
    }
}

/// Something that a person may want to know and that changes nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// What it is.
    pub code: Code,
    /// More about it; may be empty.
    pub detail: String,
}

impl std::fmt::Display for Note {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.code.word())?;
        if self.detail.is_empty() { Ok(()) } else { write!(f, ": {}", self.detail) }
    }
}

/// What a note is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// Something in the text looks like a call; it stays text.
    TextToolCallSeen,
    /// Calls were taken out of the text, as was asked.
    TextToolCallTaken,
    /// The model or a filter refused.
    Refusal,
    /// A part that our side does not know was left out.
    UnknownPart,
    /// A frame that our side does not know was left out.
    UnknownFrame,
    /// More than one answer came; the first counts.
    ExtraChoice,
    /// A thought without its signature was left out: it cannot be replayed.
    UnsignedThinking,
    /// The provider's own tools paused.
    Pause,
    /// Two calls had one id, or one had none: it got another.
    IdReplaced,
    /// The output reached its bound.
    LengthStop,
    /// A repeated piece was left out.
    Repeated,
    /// The stream carried more than one answer of the same request; all of them count.
    SeveralAnswers,
    /// Something came after the end of the answer, and was left out.
    AfterEnd,
}

impl Code {
    /// The word in JSON.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Code::TextToolCallSeen => "text_tool_call_seen",
            Code::TextToolCallTaken => "text_tool_call_taken",
            Code::Refusal => "refusal",
            Code::UnknownPart => "unknown_part",
            Code::UnknownFrame => "unknown_frame",
            Code::ExtraChoice => "extra_choice",
            Code::UnsignedThinking => "unsigned_thinking",
            Code::Pause => "pause_turn",
            Code::IdReplaced => "id_replaced",
            Code::LengthStop => "length_stop",
            Code::Repeated => "repeated_piece",
            Code::SeveralAnswers => "several_answers",
            Code::AfterEnd => "after_end",
        }
    }
}

/// The notes of one stream: a few are read, a thousand are not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Notes(Vec<Note>);

/// The most notes that are kept.
const NOTES_MAX: usize = 32;
/// The longest detail of a note or message that is kept, in characters.
const DETAIL_CHARS_MAX: usize = 300;

impl Notes {
    pub(super) fn add(&mut self, code: Code, detail: &str) {
        let note = Note { code, detail: clipped(detail) };
        if self.0.len() < NOTES_MAX && !self.0.contains(&note) {
            self.0.push(note);
        }
    }

    pub(super) fn into_list(self) -> Vec<Note> {
        self.0
    }
}

/// As much of a text of the other side as a message needs, without what a screen would hide.
pub(super) fn clipped(text: &str) -> String {
    plain(text, DETAIL_CHARS_MAX)
}

/// The end of a stream.
#[derive(Debug, Clone, PartialEq)]
pub struct End {
    /// How.
    pub terminal: Terminal,
    /// What went wrong; nothing when it is complete.
    pub fault: Option<Fault>,
    /// Why the model stopped, when it is complete.
    pub stop: Option<Stop>,
    /// What it said, in order. Calls are among them only when it is complete.
    pub blocks: Vec<Block>,
    /// What the provider says that it cost, in its words.
    pub usage: Map<String, Value>,
    /// What a person may want to know.
    pub notes: Vec<Note>,
}

impl End {
    /// The calls, in order; none unless it is complete.
    pub fn calls(&self) -> impl Iterator<Item = &ToolUse> {
        block::calls(&self.blocks)
    }

    /// All text.
    #[must_use]
    pub fn text(&self) -> String {
        self.blocks.iter().filter_map(form::plain_text).collect()
    }

    /// The tokens that went in and came out, where the provider says it.
    #[must_use]
    pub fn tokens(&self) -> (Option<u64>, Option<u64>) {
        let of = |keys: &[&str]| keys.iter().find_map(|key| self.usage.get(*key).and_then(Value::as_u64));
        (
            of(&["prompt_tokens", "input_tokens", "promptTokenCount", "prompt_eval_count"]),
            of(&["completion_tokens", "output_tokens", "candidatesTokenCount", "eval_count"]),
        )
    }

    /// The object of `interlock history normalize`.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let retryable = match self.terminal {
            Terminal::ProviderError { retryable } => retryable,
            Terminal::Complete | Terminal::Truncated | Terminal::Malformed => false,
        };
        let calls: Vec<Value> = self
            .calls()
            .map(|call| {
                json!({
                    "id": call.id.as_str(),
                    "provider_id": call.provider_id,
                    "name": call.name,
                    "args": *call.input,
                })
            })
            .collect();
        let fault = self.fault.as_ref().map(Fault::word);
        let diagnostics: Vec<String> =
            fault.map(str::to_owned).into_iter().chain(self.notes.iter().map(Note::to_string)).collect();
        let error = self.fault.as_ref().map(|fault| json!({"kind": fault.word(), "message": fault.to_string()}));
        json!({
            "terminal": self.terminal.word(),
            "retryable": retryable,
            "stop": self.stop.map(Stop::word),
            "text": self.text(),
            "calls": calls,
            "blocks": self.blocks.iter().map(form::to_json).collect::<Vec<_>>(),
            "usage": self.usage,
            "diagnostics": diagnostics,
            "error": error,
        })
    }
}

/// What can be shown while the stream still runs. Nothing may be done because of it: the stream may yet go wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Live<'a> {
    /// More text.
    Text(&'a str),
    /// More of a thought.
    Thinking(&'a str),
    /// A call of this tool has begun.
    Call(&'a str),
}

//! What a run says while it goes on: for the person who asked, and for the log.

use std::time::Duration;

use interlock_domain::agent::Ended;
use interlock_domain::context::Done;
use interlock_domain::id::{QuestionId, RunId, Seq};
use interlock_domain::request::shown::shown;
use serde_json::{Value, json};

/// The longest part of a result that is told to a person, bytes; the model has the whole.
const RESULT_BYTES_MAX: usize = 2000;

/// One thing that a run says.
#[derive(Debug, Clone)]
pub enum Told {
    /// It began.
    Begin {
        /// The run.
        run: RunId,
        /// The model.
        model: String,
    },
    /// More text of the model.
    Text(String),
    /// More of a thought.
    Thinking(String),
    /// The model is asked again; what it said since the last turn is void.
    Again {
        /// Why.
        reason: String,
        /// How long it waits first.
        wait: Duration,
    },
    /// A call is handed in.
    Call {
        /// As the model names it.
        id: String,
        /// The tool.
        tool: String,
        /// Its input.
        input: Value,
    },
    /// A person is asked before it starts.
    Question {
        /// The question.
        question: QuestionId,
        /// What it is about, in one line.
        about: String,
        /// How many milliseconds are left.
        left_ms: Option<u64>,
    },
    /// A call has ended.
    Result {
        /// As the model names the call.
        id: String,
        /// The tool.
        tool: String,
        /// `done`, `failed`, `unknown`, `not_started`.
        result: &'static str,
        /// The stable code of what is not done.
        code: Option<String>,
        /// What the model reads.
        text: String,
        /// The row of its settlement.
        evidence: Option<Seq>,
    },
    /// The history was made smaller.
    Compacted(Done),
    /// It has ended.
    End {
        /// The run.
        run: RunId,
        /// How.
        ended: Ended,
        /// The last words of the model.
        text: String,
        /// How many turns it took.
        turns: u32,
    },
}

impl Told {
    /// One line of `interlock agent --json`.
    #[must_use]
    pub fn to_json(&self) -> Value {
        match self {
            Told::Begin { run, model } => json!({ "event": "begin", "run": run.to_string(), "model": model }),
            Told::Text(text) => json!({ "event": "text", "text": text }),
            Told::Thinking(text) => json!({ "event": "thinking", "text": text }),
            Told::Again { reason, wait } => {
                let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
                json!({ "event": "again", "reason": reason, "wait_ms": wait_ms })
            }
            Told::Call { id, tool, input } => {
                json!({ "event": "call", "id": id, "tool": tool, "input": input, "shown": shown(input) })
            }
            Told::Question { question, about, left_ms } => {
                json!({ "event": "question", "question": question.to_string(), "about": about, "expires_ms": left_ms })
            }
            Told::Result { id, tool, result, code, text, evidence } => {
                let head = &text[..text.floor_char_boundary(RESULT_BYTES_MAX)];
                json!({
                    "event": "result", "id": id, "tool": tool, "result": result, "code": code, "text": head,
                    "cut": head.len() < text.len(), "evidence": evidence.map(|seq| seq.0),
                })
            }
            Told::Compacted(done) => {
                let levels: Vec<&str> = done.levels.iter().map(|level| level.word()).collect();
                json!({ "event": "compacted", "levels": levels, "before": done.before, "after": done.after })
            }
            Told::End { run, ended, text, turns } => json!({
                "event": "end", "run": run.to_string(), "outcome": ended.code(), "text": text, "turns": turns,
                "message": message(ended),
            }),
        }
    }
}

/// One sentence about an end that is not as it should be; empty for one that is.
#[must_use]
pub fn message(ended: &Ended) -> String {
    match ended {
        Ended::Done => String::new(),
        Ended::Cut => "the answer was cut by the bound of the model's output".to_owned(),
        Ended::Refused => "the model, or a filter of its provider, refused".to_owned(),
        Ended::Turns { limit } => format!("the run used up its {limit} turns"),
        Ended::Cancelled => "the run was cancelled".to_owned(),
        Ended::Trouble(trouble) => trouble.message().to_owned(),
        Ended::Stuck(stuck) => stuck.to_string(),
        Ended::DeniedRepeatedly { message } => message.clone(),
        Ended::NotWritten => "the history cannot be written to the disk, so nothing was begun".to_owned(),
    }
}

//! The words between a running tool and whoever called it: progress, log messages, questions, and the answer of another
//! server as that server wrote it.
//!
//! A tool knows no surface and a surface knows no tool: both know these. They carry a way back and no right; what is
//! asked here is asked of a tool's caller and never of the gate.

use serde_json::{Map, Value};
use tokio::sync::{mpsc, oneshot};

use super::era::Era;
use super::rpc::RpcError;

/// Messages that a tool may have under way to its caller. A tool that is faster than its caller loses progress, never
/// a question.
pub const UPWARD_LEN_MAX: usize = 64;

/// The way from a tool up to its caller, and what the caller's program said of itself.
#[derive(Debug, Clone)]
pub struct Line {
    /// Where messages go.
    pub up: mpsc::Sender<Upward>,
    /// The caller's era: a server that speaks both is spoken to in the same.
    pub era: Era,
    /// What the caller's program can do: a server behind us must not be told more.
    pub capabilities: Value,
    /// `_meta` of the call, without what belongs to the caller's own connection.
    pub meta: Map<String, Value>,
}

impl Line {
    /// A line up with nothing said of the caller.
    #[must_use]
    pub fn new(up: mpsc::Sender<Upward>, era: Era) -> Line {
        Line { up, era, capabilities: Value::Object(Map::new()), meta: Map::new() }
    }
}

/// What a running tool sends to its caller.
#[derive(Debug)]
pub enum Upward {
    /// How far it is. Dropped when the caller did not ask for progress.
    Progress {
        /// Grows with every message.
        progress: f64,
        /// What it grows to, where that is known.
        total: Option<f64>,
        /// For people.
        message: Option<String>,
    },
    /// A log message: severity (RFC 5424 name), logger, payload.
    Log {
        /// Severity.
        level: String,
        /// Which part of the tool speaks.
        logger: Option<String>,
        /// The message.
        data: Value,
    },
    /// From here on it works in the background: a client that knows tasks gets one now, any other waits.
    Detached,
    /// Requests to the client that must be answered before the tool can go on, all at once.
    Ask {
        /// What is asked, by a key of the tool's own.
        asks: Vec<Ask>,
        /// The answers by key, or why there are none.
        reply: oneshot::Sender<Result<Vec<(String, Value)>, NotAsked>>,
    },
    /// What another server answered, word for word. Its end, as the log has it, comes apart from this.
    Answer(Result<Value, RpcError>),
}

/// One request to the client: `elicitation/create`, `sampling/createMessage` or `roots/list`.
#[derive(Debug, Clone, PartialEq)]
pub struct Ask {
    /// Names the answer.
    pub key: String,
    /// The method.
    pub method: String,
    /// Its parameters.
    pub params: Value,
}

/// Why the client did not answer.
#[derive(Debug, Clone, PartialEq)]
pub enum NotAsked {
    /// It did not declare this capability.
    NotDeclared(&'static str),
    /// It answered with an error.
    Refused(RpcError),
    /// It did not come back in time, or is gone.
    NoAnswer,
}

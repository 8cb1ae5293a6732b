//! The words of the control socket: JSON Lines, one request a line, one or more lines an answer.
//!
//! A request is `{"v": 1, "id": any, "verb": str, "args": object}`. An answer is one line `{"v": 1, "id", "ok": …}`,
//! or lines `{"v": 1, "id", "item": …}` closed by `{"v": 1, "id", "end": true}`, or `{"v": 1, "id", "error": {…}}`.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The version of the protocol that this build speaks.
pub const VERSION: u64 = 1;

/// The longest line that is taken, in bytes. A sentence has a few hundred; a device write a few dozen; the rest is
/// room for an agent's text.
pub const LINE_LEN_MAX: usize = 1 << 20;

/// One request.
#[derive(Debug, Deserialize)]
pub struct Request {
    /// The protocol version, 1.
    pub v: u64,
    /// Whatever the client wants to see again in the answer.
    #[serde(default)]
    pub id: Value,
    /// What to do.
    pub verb: String,
    /// The verb's arguments, an object.
    #[serde(default)]
    pub args: Value,
}

/// One line of an answer.
#[derive(Debug, Serialize, Deserialize)]
pub struct Line {
    /// The protocol version, 1.
    pub v: u64,
    /// The request's id.
    #[serde(default)]
    pub id: Value,
    /// What the line says.
    #[serde(flatten)]
    pub says: Says,
}

/// What one line of an answer says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Says {
    /// The whole answer.
    Ok(Value),
    /// One of several.
    Item(Value),
    /// There are no more.
    End(bool),
    /// It did not go well.
    Error(Trouble),
}

/// Why a request was not carried out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trouble {
    /// The kind, which the command line turns into its exit code.
    pub kind: Kind,
    /// The object and the fact.
    pub message: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl Trouble {
    /// Without a hint.
    pub fn new(kind: Kind, message: impl Into<String>) -> Trouble {
        Trouble { kind, message: message.into(), hint: None }
    }

    /// The same with a hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Trouble {
        self.hint = Some(hint.into());
        self
    }
}

/// The kinds of trouble.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The line is not a request.
    Protocol,
    /// The verb is not known, or its arguments do not fit.
    Usage,
    /// What the request names is not there.
    NotFound,
    /// The request cannot be carried out in the present state.
    NotSo,
    /// The caller may not do this.
    Permission,
    /// The configuration is wrong.
    Config,
    /// Too much is under way; try again.
    Busy,
    /// A mistake of ours.
    Bug,
}

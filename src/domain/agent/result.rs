//! What a model reads of a call that has ended.
//!
//! A refusal, a failure and a loss are told as what they are. Of a call whose outcome nobody knows, the text never says
//! that it did not run and never invites to repeat it: the effect may be there.

use serde_json::Value;

use crate::block::{ToolResult, ToolUse};
use crate::closure::Ending;
use crate::effect::outcome::Known;
use crate::repair::Stub;
use crate::request::why::Lang;

/// The result of a call, as its model reads it.
#[must_use]
pub fn of(call: &ToolUse, ending: &Ending) -> ToolResult {
    let (text, is_error) = text(ending);
    call.answer(text, is_error)
}

fn text(ending: &Ending) -> (String, bool) {
    let code = ending.code().unwrap_or_default();
    let message = ending.message(Lang::En);
    match ending {
        Ending::Ran(Known::Done(output)) => (output.to_string(), false),
        Ending::Ran(Known::Failed(_)) => (format!("failed ({code}): {message}"), true),
        Ending::Ran(Known::Unknown { .. }) => (format!("outcome unknown ({code}): {message}"), true),
        Ending::NotStarted(why) if why.is_denial() => (format!("denied ({code}): {message}"), true),
        Ending::NotStarted(_) => (format!("not started ({code}): {message}"), true),
    }
}

/// The end of a call as a log keeps it: what is left of an [`Ending`] when the process that made it is gone.
#[derive(Debug, Clone, PartialEq)]
pub enum Kept {
    /// Done, with its output where the log has it whole; else with its beginning.
    Done {
        /// The output, or `None` where the log has it not at all.
        output: Option<Value>,
        /// The log has only the beginning of it.
        cut: bool,
    },
    /// Failed.
    Failed {
        /// The stable code and what is said about it.
        said: String,
    },
    /// The policy or a person said no.
    Denied {
        /// As above.
        said: String,
    },
    /// It did not start.
    NotStarted {
        /// As above; empty where the log says nothing of it.
        said: String,
    },
    /// Nobody knows, or the log does not.
    Unknown {
        /// As above; empty where the log says nothing of it.
        said: String,
        /// What was found out later.
        found: Option<String>,
    },
}

/// What a model that goes on after a restart reads of a call, and whether the call went well.
#[must_use]
pub fn after_restart(call: &ToolUse, kept: &Kept) -> ToolResult {
    let stub = |stub: Stub, said: &str| {
        if said.is_empty() { stub.text().to_owned() } else { format!("{} {said}", stub.text()) }
    };
    let (text, is_error) = match kept {
        Kept::Done { output: Some(output), cut: false } => (output.to_string(), false),
        Kept::Done { output: Some(head), cut: true } => {
            (format!("done; of its output only the beginning was kept over a restart: {head}"), false)
        }
        Kept::Done { output: None, .. } => ("done; its output was not kept over a restart".to_owned(), false),
        Kept::Failed { said } => (format!("failed {said}"), true),
        Kept::Denied { said } => (stub(Stub::Denied, said), true),
        Kept::NotStarted { said } => (stub(Stub::NotStarted, said), true),
        Kept::Unknown { said, found: None } => (stub(Stub::OutcomeUnknown, said), true),
        // The question is answered: what a query or a person found is what counts now.
        Kept::Unknown { found: Some(found), .. } => {
            (format!("its outcome was unknown at first, and was found out later: {found}"), true)
        }
    };
    call.answer(text, is_error)
}

//! What a model reads of a call that has ended.
//!
//! A refusal, a failure and a loss are told as what they are. Of a call whose outcome nobody knows, the text never says
//! that it did not run and never invites to repeat it: the effect may be there.

use crate::block::{ToolResult, ToolUse};
use crate::closure::Ending;
use crate::effect::outcome::Known;
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

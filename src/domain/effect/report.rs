//! What an adapter says after it ran an order: plain data without rights.

use serde_json::Value;

/// The end of one attempt as the adapter saw it. An adapter never returns an error beside this: failure, panic and
/// timeout are reports too.
#[derive(Debug, Clone, PartialEq)]
pub enum Report {
    /// The effect is there, and this is what the tool gives back (an object that fits the output schema).
    Done(Value),
    /// The tool or the device said with authority that the effect is not there.
    Failed(Failure),
    /// Nobody can say whether the effect is there.
    Lost(Loss),
}

/// An authoritative failure: nothing was changed by this attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// A short stable word for scripts, `snake_case`: `connection_refused`, `illegal_address`, `no_such_file`, …
    pub code: &'static str,
    /// One sentence for a person, with the object and the fact.
    pub message: String,
}

/// Why the outcome of an attempt is not known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Loss {
    /// No answer in time after the request was sent.
    TimedOut,
    /// The connection broke after the request was sent.
    ConnectionLost,
    /// The process that did the work was killed.
    Killed,
    /// The code that did the work panicked; the text of the panic.
    Panicked(String),
    /// It was told to stop and did not say how far it had come.
    Stopped,
    /// The daemon ended between the intent and the outcome.
    DaemonEnded,
    /// Some of its steps are there and a later one is not, or may not be; the text says which.
    Partial(String),
}

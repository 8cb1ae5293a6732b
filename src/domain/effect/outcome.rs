//! The words for what came of an attempt, and what may be done when nobody knows.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::id::CallId;
use crate::surface::contract::{Contract, OutcomeBy};

use super::report::{Failure, Loss};

/// One logical operation, the same for every attempt at it: the first call that wished for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpKey(pub CallId);

impl fmt::Display for OpKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What is known about a started call.
#[derive(Debug, Clone, PartialEq)]
pub enum Known {
    /// The effect is there.
    Done(Arc<Value>),
    /// The effect is not there, said with authority.
    Failed(Failure),
    /// Nobody knows.
    Unknown {
        /// What was lost.
        loss: Loss,
        /// What may be done now.
        way_out: WayOut,
    },
}

/// What the contract allows while an outcome is unknown. Compensation is not among it: undoing what may never have
/// happened is an effect of its own (anomaly A3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum WayOut {
    /// It changes nothing: ask again.
    AskAgain,
    /// Send it again with the same operation key, inside the retention: the original result comes back.
    Resend {
        /// How long the other side keeps it.
        retention: Duration,
    },
    /// Ask the other side first.
    QueryFirst,
    /// Nobody can be asked but a person: hold.
    Hold,
}

impl WayOut {
    /// The word in evidence rows.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            WayOut::AskAgain => "ask_again",
            WayOut::Resend { .. } => "resend",
            WayOut::QueryFirst => "query_first",
            WayOut::Hold => "hold",
        }
    }
}

/// The way out that a contract leaves (effects, section 7).
#[must_use]
pub fn way_out(contract: &Contract) -> WayOut {
    if !contract.changes() {
        return WayOut::AskAgain;
    }
    match contract.outcome {
        OutcomeBy::ResendOriginal { retention } => WayOut::Resend { retention },
        OutcomeBy::Query | OutcomeBy::Ack => WayOut::QueryFirst,
        OutcomeBy::None => WayOut::Hold,
    }
}

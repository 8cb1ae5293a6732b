//! The decision for one call, alone: `decide` knows no other call, no time and no question.

use crate::request::paths::PathFacts;
use crate::request::why::Step;
use crate::surface::nature::Nature;

use super::policy::{Classifier, Policy};

/// What the gate says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// It may go on.
    Allow,
    /// A person has to say so.
    Ask,
    /// It may not.
    Deny,
}

impl Verdict {
    /// The word in `policy check` and in evidence.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Allow => "allow",
            Verdict::Ask => "ask",
            Verdict::Deny => "deny",
        }
    }
}

/// A verdict and where it comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// What the gate says.
    pub verdict: Verdict,
    /// The step that decided.
    pub step: Step,
    /// The rule that decided, as it was written.
    pub rule: Option<String>,
    /// One sentence in English.
    pub reason: String,
    /// The canonical form of the path that decided or would be touched.
    pub resolved: Option<String>,
    /// A question that would have been asked became a denial: there is nobody who can be asked.
    pub nobody_to_ask: bool,
    /// It is a protective action that runs at once.
    pub protective: bool,
}

/// One call, as the gate sees it.
#[derive(Debug, Clone, Copy)]
pub struct Case<'a> {
    /// What it is by nature.
    pub nature: &'a Nature,
    /// What is known about its paths.
    pub facts: &'a PathFacts,
    /// It comes from a command that is marked protective and was matched exactly.
    pub protective: bool,
    /// What the optional classifier said.
    pub classifier: Option<Classifier>,
}

/// Decides.
#[must_use]
pub fn decide(_policy: &Policy, _case: Case<'_>) -> Decision {
    Decision {
        verdict: Verdict::Ask,
        step: Step::Mode,
        rule: None,
        reason: "nothing is allowed yet".to_owned(),
        resolved: None,
        nobody_to_ask: false,
        protective: false,
    }
}

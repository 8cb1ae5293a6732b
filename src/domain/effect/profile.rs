//! Guarantee profiles: which anomalies a workflow excludes, and what a tool's contract must say to take part (effects,
//! section 5).

use std::fmt;

use crate::surface::contract::{Contract, Effect, OutcomeBy, Visibility};

/// What a workflow guarantees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Profile {
    /// Excludes A1 to A3: each unknown outcome can be found out.
    UnknownSafe,
    /// Excludes A4: what was done can be taken back.
    CompensationSafe,
    /// Excludes A5 and A6: nothing is done before the decision, and what belongs together is decided together.
    SpeculationSafe,
    /// Excludes A7 and A8: one workflow at a time on a resource, and nobody sees an effect before it is final who is not
    /// named.
    ExternallyMediated,
}

impl Profile {
    /// All of them.
    pub const ALL: [Profile; 4] =
        [Profile::UnknownSafe, Profile::CompensationSafe, Profile::SpeculationSafe, Profile::ExternallyMediated];

    /// As people write it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Profile::UnknownSafe => "unknown-safe",
            Profile::CompensationSafe => "compensation-safe",
            Profile::SpeculationSafe => "speculation-safe",
            Profile::ExternallyMediated => "externally-mediated",
        }
    }

    /// The profile of this word.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Profile> {
        Profile::ALL.into_iter().find(|profile| profile.word() == word)
    }
}

/// What a contract would have to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lacks {
    /// The profile that needs it.
    pub profile: Profile,
    /// The field of the contract.
    pub field: &'static str,
    /// What it would have to say.
    pub needs: &'static str,
}

impl fmt::Display for Lacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} needs `{}` in its contract: {}", self.profile.word(), self.field, self.needs)
    }
}

/// The first thing that a contract lacks for the profile; nothing for what leaves no effect.
#[must_use]
pub fn lacks(contract: &Contract, profile: Profile) -> Option<Lacks> {
    if !contract.changes() {
        return None;
    }
    let lacks = |field, needs| Some(Lacks { profile, field, needs });
    let evidence = match contract.outcome {
        OutcomeBy::Query | OutcomeBy::Ack | OutcomeBy::ResendOriginal { .. } => None,
        OutcomeBy::None => lacks("outcome", "a query, an acknowledgement, or the original result on a resend"),
    };
    match profile {
        Profile::UnknownSafe => evidence,
        Profile::CompensationSafe => match &contract.effect {
            // The undo needs the same evidence as the call (effects, A4).
            Effect::Reversible { precondition: Some(_), .. } => evidence,
            Effect::Reversible { precondition: None, .. } => lacks("effect", "the precondition of the inverse"),
            Effect::None | Effect::Stageable { .. } => None,
            Effect::Irreversible => lacks("effect", "an inverse, or staging"),
        },
        Profile::SpeculationSafe => match &contract.effect {
            // It is held here until the decision; what is sent then has to be confirmed.
            Effect::Reversible { .. } | Effect::Stageable { .. } => evidence,
            Effect::None => None,
            Effect::Irreversible => lacks("effect", "an inverse or staging: several releases are not one"),
        },
        Profile::ExternallyMediated => match contract.visibility {
            Visibility::None | Visibility::Private | Visibility::Declared(_) => None,
            Visibility::Open => lacks("visibility", "private, or its readers: whoever sees it may act on it"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_contract_that_cannot_support_a_profile_lacks_a_field() {
        let check = |contract: &Contract, want: [Option<&str>; 4]| {
            let found = Profile::ALL.map(|profile| lacks(contract, profile).map(|lacks| lacks.field));
            assert_eq!(found, want, "{contract:?}");
        };
        let weakest = Contract::weakest("x");
        check(&Contract::reads("x"), [None; 4]);
        check(&weakest, [Some("outcome"), Some("effect"), Some("effect"), Some("visibility")]);
        let query = Contract { outcome: OutcomeBy::Query, ..weakest.clone() };
        check(&query, [None, Some("effect"), Some("effect"), Some("visibility")]);
        let inverse = |precondition: Option<&str>| Effect::Reversible {
            inverse: "undo".to_owned(),
            precondition: precondition.map(str::to_owned),
            window: None,
        };
        let open = Some("visibility");
        check(&Contract { effect: inverse(Some("empty")), ..query.clone() }, [None, None, None, open]);
        check(&Contract { effect: inverse(None), ..query.clone() }, [None, Some("effect"), None, open]);
        let blind = Contract { effect: inverse(Some("empty")), ..weakest };
        check(&blind, [Some("outcome"), Some("outcome"), Some("outcome"), open]);
        check(&Contract { visibility: Visibility::Private, ..query }, [None, Some("effect"), Some("effect"), None]);
    }
}

//! What is promised about one operation of a tool (effects, section 6). A missing promise is the weakest one.
//!
//! The contract, not the adapter, says what a loss means: an adapter knows that no answer came, the contract knows
//! what may be done about it. It never says "compensate" while the outcome is unknown (anomaly A3).

use std::time::Duration;

use super::companion::Companions;

/// The promises about one operation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Contract {
    /// The kind of operation, `device.start`: two kinds may commute or not.
    pub op_kind: String,
    /// How the other side tells a retry from a second wish.
    pub op_id: OpId,
    /// How the outcome can be found out later.
    pub outcome: OutcomeBy,
    /// Sending it again adds nothing (A1). It need not give the original result back.
    pub idempotent: bool,
    /// What the operation leaves behind.
    pub effect: Effect,
    /// Who can see the effect before it is final.
    pub visibility: Visibility,
    /// The operations that may change places with this one.
    pub commutes: Vec<Commutes>,
    /// The calls that it names beside this one.
    pub with: Companions,
    /// Who says so.
    pub provenance: Provenance,
}

/// How the other side recognizes an operation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum OpId {
    /// It does not.
    None,
    /// By a key that we send in this header or field.
    Key(String),
    /// By an id of its own.
    Native,
}

/// The evidence that the other side can give about an outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum OutcomeBy {
    /// None.
    None,
    /// A status query by the operation's id.
    Query,
    /// A durable acknowledgement.
    Ack,
    /// Sending it again with the same key returns the original result, while it is kept.
    ResendOriginal {
        /// How long it is kept after the attempt.
        retention: Duration,
    },
}

/// What an operation leaves behind.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// Nothing: it reads.
    None,
    /// Something that an inverse operation takes back.
    Reversible {
        /// The inverse operation.
        inverse: String,
        /// When the inverse is allowed, in words.
        precondition: Option<String>,
        /// How long it can be taken back.
        window: Option<Duration>,
    },
    /// Something that stays hidden until it is released.
    Stageable {
        /// How long the tool keeps it before it drops it.
        ttl: Duration,
    },
    /// Something that stays.
    Irreversible,
}

/// Who can see an effect before it is final.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Visibility {
    /// Nothing is there to see.
    None,
    /// This box only.
    Private,
    /// These readers.
    Declared(Vec<String>),
    /// Anyone.
    Open,
}

/// A pair of operations whose order does not matter.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Commutes {
    /// The other kind of operation.
    pub kind: String,
    /// On which resources, a glob.
    pub resource: String,
    /// In which states, in words; `None` for all.
    pub state: Option<String>,
}

/// Who made the promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Provenance {
    /// The maker of the tool says so.
    Declared,
    /// Our adapter sees to it.
    Adapter,
    /// It was seen to be so.
    Observed,
}

impl Contract {
    /// An operation about which nothing is promised.
    #[must_use]
    pub fn weakest(op_kind: &str) -> Contract {
        Contract {
            op_kind: op_kind.to_owned(),
            op_id: OpId::None,
            outcome: OutcomeBy::None,
            idempotent: false,
            effect: Effect::Irreversible,
            visibility: Visibility::Open,
            commutes: Vec::new(),
            with: Companions::default(),
            provenance: Provenance::Adapter,
        }
    }

    /// An operation that our adapter knows to read only.
    #[must_use]
    pub fn reads(op_kind: &str) -> Contract {
        Contract { effect: Effect::None, visibility: Visibility::None, ..Contract::weakest(op_kind) }
    }

    /// The tool keeps what it did hidden until it is told to release it.
    #[must_use]
    pub fn stages(&self) -> bool {
        matches!(self.effect, Effect::Stageable { .. }) && self.with.release.is_some()
    }

    /// The two may change places on this resource: one of them says so of the other, in every state. What holds in some
    /// states only is not looked up here, and counts as no.
    #[must_use]
    pub fn commutes_with(&self, other: &Contract, resource: &str) -> bool {
        let says = |one: &Contract, kind: &str| {
            let on = |pair: &&Commutes| pair.state.is_none() && super::promise::like(&pair.resource, resource);
            one.commutes.iter().filter(on).any(|pair| pair.kind == kind)
        };
        says(self, &other.op_kind) || says(other, &self.op_kind)
    }

    /// The operation may change the world: its intent is durable before it starts.
    #[must_use]
    pub fn changes(&self) -> bool {
        match self.effect {
            Effect::None => false,
            Effect::Reversible { .. } | Effect::Stageable { .. } | Effect::Irreversible => true,
        }
    }
}

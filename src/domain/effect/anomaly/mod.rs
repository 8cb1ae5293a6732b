//! The eight external-effect anomalies A1 to A8: which of them a history has, which it may have, and by which events.
//!
//! A history is read event by event ([`History::take`]) and kept as numbers, not as text; [`History::check`] then gives
//! one [`Anomaly`] for each kind that is there, the strongest verdict with the first events that show it. Formulas,
//! verdicts and bounds are those of the specification "Eight external-effect anomalies" (sections 2 and 3).
//!
//! Nothing in here repairs a history or guesses at one: a history that names what it never introduced is
//! [`Malformed`], with the event. What is merely strange (a cycle of dependencies, an effect after the settlement, the
//! release of what was never staged) is judged as it stands.
//!
//! Cost, with n events, d dependency edges and k effects on one resource: A1 to A5 and A8 O(n); A6 O(n + d) (each
//! effect having a bounded number of compensations); A7 O(k) on a resource without an order, O(n + k log k) under
//! a total order, and one pass for each chain of a partial order, at most O(k²) pairs.

mod history;
mod names;
mod orders;
mod reading;
mod spheres;
mod verdict;

use std::fmt;

pub use history::History;

/// One thing that happened in the world or that the runtime noted (section 1). Names are the history's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event<'a> {
    /// A workflow begins; these operations must have a surviving effect when it commits.
    Begin {
        /// The workflow.
        workflow: &'a str,
        /// The logical operations that it requires.
        required: &'a [&'a str],
    },
    /// One try at a logical operation.
    Attempt {
        /// Its name.
        attempt: &'a str,
        /// The logical operation, the same for all tries; its kind is what stands before `#`.
        op: &'a str,
        /// The workflow.
        workflow: &'a str,
        /// The branch of the workflow.
        branch: &'a str,
    },
    /// The attempt changed a resource.
    Effect {
        /// Its name.
        effect: &'a str,
        /// The attempt.
        attempt: &'a str,
        /// What was changed.
        resource: &'a str,
        /// It stays hidden until it is released.
        staged: bool,
    },
    /// What the runtime learned of an attempt; the last word counts.
    Observe {
        /// The attempt.
        attempt: &'a str,
        /// What was learned.
        seen: Seen,
    },
    /// This attempt is a compensation and aims at that one.
    Compensate {
        /// The compensation.
        compensation: &'a str,
        /// What it aims at.
        attempt: &'a str,
    },
    /// The compensation's effect undid this effect.
    Neutralise {
        /// The compensation.
        compensation: &'a str,
        /// The effect that is undone.
        effect: &'a str,
    },
    /// `later` was produced from `earlier`.
    Depends {
        /// The effect that rests on the other.
        later: &'a str,
        /// The effect that it rests on.
        earlier: &'a str,
    },
    /// A coordinator fixed the order of two effects.
    Order {
        /// The first.
        first: &'a str,
        /// The second.
        second: &'a str,
    },
    /// A party outside of the system acted on an effect.
    React {
        /// The reaction.
        reaction: &'a str,
        /// What it acted on.
        effect: &'a str,
    },
    /// That party took its reaction back.
    Unreact {
        /// The reaction.
        reaction: &'a str,
    },
    /// A staged effect becomes visible.
    Release {
        /// The effect.
        effect: &'a str,
    },
    /// The tool dropped an effect.
    Discard {
        /// The effect.
        effect: &'a str,
    },
    /// The workflow keeps these branches and drops the rest.
    Commit {
        /// The workflow.
        workflow: &'a str,
        /// The branches that are kept.
        branches: &'a [&'a str],
    },
    /// The workflow, or one branch of it, is given up.
    Abort {
        /// The workflow.
        workflow: &'a str,
        /// The branch; `None` for the whole workflow.
        branch: Option<&'a str>,
    },
}

/// What an observation says of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Seen {
    /// The effect is there.
    Confirmed,
    /// It is not, said with authority.
    Failed,
    /// Nobody knows.
    Unknown,
}

/// Which log the history is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum View {
    /// The effects in it are all there were: verdicts are certain.
    #[default]
    World,
    /// What the runtime knows: each attempt whose last observation is unknown may or may not have had its effect.
    ///
    /// A log of the runtime need not name effects. An attempt that was confirmed and has none named has one all the
    /// same, unless a confirmed attempt at the same operation has it: then the tool gave the original result back. A
    /// compensation that names nothing undoes what it aims at.
    Runtime,
}

/// What a history is held against.
#[derive(Debug, Clone, Default)]
pub struct Terms {
    /// Which log it is.
    pub view: View,
    /// Its workflows hold their effects back until they are settled: what is seen earlier is A5.
    pub held: bool,
    /// Pairs of kinds of operations that may change places; a kind with itself is a pair too.
    pub commuting: Vec<(String, String)>,
}

/// The eight anomalies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// One operation, two effects.
    A1,
    /// A required effect is missing at the commit.
    A2,
    /// A compensation while the outcome was unknown.
    A3,
    /// An effect is left after an abort.
    A4,
    /// An effect was visible before it was settled.
    A5,
    /// A kept effect rests on one that was not kept.
    A6,
    /// Two workflows released effects that do not commute on one resource, in no order.
    A7,
    /// A reaction outlives the effect that it was to.
    A8,
}

impl Kind {
    /// All of them, in order.
    pub const ALL: [Kind; 8] = [Kind::A1, Kind::A2, Kind::A3, Kind::A4, Kind::A5, Kind::A6, Kind::A7, Kind::A8];

    /// `A1` … `A8`.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Kind::A1 => "A1",
            Kind::A2 => "A2",
            Kind::A3 => "A3",
            Kind::A4 => "A4",
            Kind::A5 => "A5",
            Kind::A6 => "A6",
            Kind::A7 => "A7",
            Kind::A8 => "A8",
        }
    }

    /// What it is, for a person: English and Chinese.
    #[must_use]
    pub fn title(self) -> [&'static str; 2] {
        match self {
            Kind::A1 => ["duplicate effect", "重复效应"],
            Kind::A2 => ["required effect missing at commit", "提交时必需效应缺失"],
            Kind::A3 => ["compensation while the outcome is unknown", "结果未知时补偿"],
            Kind::A4 => ["residue after abort", "中止后仍有残留"],
            Kind::A5 => ["provisional effect made visible early", "临时效应提前外部化"],
            Kind::A6 => ["kept effect rests on one that was not kept", "已提交效应依赖未保留的效应"],
            Kind::A7 => ["unordered, non-commuting release", "无序且不可交换的释放"],
            Kind::A8 => ["reaction outlives the compensated original", "原效应被补偿后外部反应仍保留"],
        }
    }
}

/// How sure it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// In some world that fits the history.
    Possible,
    /// In every world that fits it.
    Certain,
}

impl Verdict {
    /// The word for scripts.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Possible => "possible",
            Verdict::Certain => "certain",
        }
    }
}

/// One kind of anomaly that a history has or may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Anomaly {
    /// Which.
    pub kind: Kind,
    /// How sure.
    pub verdict: Verdict,
    /// The places (from 0) of the events that show the first of its kind, in order.
    pub events: Vec<usize>,
    /// One sentence for a person.
    pub why: String,
}

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Noun {
    /// A workflow.
    Workflow,
    /// An attempt.
    Attempt,
    /// An effect.
    Effect,
    /// A reaction.
    Reaction,
}

impl fmt::Display for Noun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Noun::Workflow => "workflow",
            Noun::Attempt => "attempt",
            Noun::Effect => "effect",
            Noun::Reaction => "reaction",
        })
    }
}

/// Why a history cannot be judged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// It names what it has not introduced.
    #[error("event {at}: {noun} {name:?} is not known here")]
    Unknown {
        /// The event's place, from 0.
        at: usize,
        /// What the name should stand for.
        noun: Noun,
        /// The name.
        name: String,
    },
    /// It introduces the same name twice.
    #[error("event {at}: {noun} {name:?} is there already")]
    Twice {
        /// The event's place, from 0.
        at: usize,
        /// What the name stands for.
        noun: Noun,
        /// The name.
        name: String,
    },
    /// An effect stands before the attempt that made it, or that attempt never comes.
    #[error("event {at}: effect {effect:?} comes before its attempt {attempt:?}")]
    EffectFirst {
        /// The event's place, from 0.
        at: usize,
        /// The effect.
        effect: String,
        /// The attempt.
        attempt: String,
    },
    /// A workflow is settled a second time.
    #[error("event {at}: workflow {name:?} was settled by event {before}")]
    SettledTwice {
        /// The event's place, from 0.
        at: usize,
        /// The workflow.
        name: String,
        /// The place of its settlement.
        before: usize,
    },
    /// It is longer than what is taken.
    #[error("event {at}: the history has more than {max} {what}")]
    TooLong {
        /// The event's place, from 0.
        at: usize,
        /// Of what.
        what: &'static str,
        /// The bound.
        max: usize,
    },
}

#[cfg(test)]
mod tests;

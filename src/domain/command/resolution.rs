//! What came of an utterance: the words in which the cascade answers.
//!
//! Only [`Outcome::Command`] and the members of [`Outcome::Sequence`] could ever be executed, and each of them walks
//! through the gate first. Everything else executes nothing.

use std::collections::BTreeMap;
use std::fmt;

/// The typed slots of a command, by name.
pub type Slots = BTreeMap<String, SlotValue>;

/// A value in a slot.
#[derive(Debug, Clone, PartialEq)]
pub enum SlotValue {
    /// A number; per cent and seconds for slots of those types.
    Number(f64),
    /// A zone, digits or free text.
    Text(String),
}

impl SlotValue {
    /// As JSON: whole numbers without a point.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        match self {
            #[expect(clippy::cast_possible_truncation, reason = "whole and small, as tested in the guard")]
            SlotValue::Number(value) if value.fract() == 0.0 && value.abs() < 9e15 => {
                serde_json::Value::from(*value as i64)
            }
            SlotValue::Number(value) => serde_json::Value::from(*value),
            SlotValue::Text(text) => serde_json::Value::from(text.as_str()),
        }
    }
}

/// A command that was understood.
#[derive(Debug, Clone, PartialEq)]
pub struct Understood {
    /// Its id.
    pub command: String,
    /// Its slots.
    pub slots: Slots,
    /// It is dangerous and waits for its confirmation.
    pub confirm: bool,
    /// How closely the utterance said it; what the rule for protective commands asks.
    pub likeness: Likeness,
}

/// How closely an utterance said a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Likeness {
    /// One of its templates, character by character.
    Pattern,
    /// One of its templates, syllable by syllable.
    Sound,
    /// It was the nearest, by enough.
    Near,
}

/// What came of an utterance.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// One command.
    Command(Understood),
    /// One command that lacks required slots: the person is asked.
    Incomplete {
        /// What was understood so far.
        understood: Understood,
        /// The slots that are missing.
        missing: Vec<String>,
    },
    /// Several commands, in order.
    Sequence(Vec<Understood>),
    /// A question that passages answer.
    Knowledge,
    /// Several commands could be meant: the person is asked which. The candidates say which, at most three.
    Ambiguous,
    /// Nothing is to be done.
    Rejected(Refused),
}

/// Why nothing is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// Nothing was said, or far too much.
    NoUtterance,
    /// It does not mean a command.
    NoCommand,
    /// It mentions a command and forbids it, asks about it, or speaks of another time or person.
    Hazard(HazardKind),
}

/// What keeps an utterance from being a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum HazardKind {
    /// 不要, 别, 禁止.
    Negation,
    /// 为什么, 怎么, 了吗.
    Question,
    /// 他说, 老王要.
    Reported,
    /// 如果, 的话.
    Condition,
    /// 等一下再, 十分钟后.
    Deferral,
    /// 昨天, 刚才.
    History,
    /// 不对, 不是甲是乙.
    Correction,
    /// Several commands of which not all are understood.
    Several,
}

impl fmt::Display for HazardKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            HazardKind::Negation => "negation",
            HazardKind::Question => "question",
            HazardKind::Reported => "reported speech",
            HazardKind::Condition => "condition",
            HazardKind::Deferral => "deferral",
            HazardKind::History => "history",
            HazardKind::Correction => "correction",
            HazardKind::Several => "several commands",
        })
    }
}

/// A stage of the cascade.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Corrections of known mishearings.
    Hotword,
    /// Templates, character by character.
    Pattern,
    /// Alignment by sound and words.
    Pinyin,
    /// The local classifier.
    Model,
    /// Passages.
    Knowledge,
    /// No stage.
    None,
}

impl Stage {
    /// The name of the stage on the command line and in answers.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Stage::Hotword => "hotword",
            Stage::Pattern => "pattern",
            Stage::Pinyin => "pinyin",
            Stage::Model => "model",
            Stage::Knowledge => "knowledge",
            Stage::None => "none",
        }
    }

    /// The stage of this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Stage> {
        [Stage::Hotword, Stage::Pattern, Stage::Pinyin, Stage::Model, Stage::Knowledge]
            .into_iter()
            .find(|stage| stage.name() == name)
    }
}

/// A command that could have been meant.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// Its id.
    pub command: String,
    /// 0 to 1.
    pub confidence: f32,
}

/// A passage that may answer a question.
#[derive(Debug, Clone, PartialEq)]
pub struct Passage {
    /// Its id in the knowledge store.
    pub id: String,
    /// Higher is nearer.
    pub score: f32,
}

/// The answer of the cascade.
#[derive(Debug, Clone, PartialEq)]
pub struct Resolution {
    /// What came of it.
    pub outcome: Outcome,
    /// The stage that decided.
    pub stage: Stage,
    /// 0 to 1.
    pub confidence: f32,
    /// The nearest commands, best first.
    pub candidates: Vec<Candidate>,
    /// The nearest passages, best first.
    pub passages: Vec<Passage>,
}

impl Resolution {
    /// Nothing is to be done.
    #[must_use]
    pub fn rejected(why: Refused) -> Resolution {
        Resolution {
            outcome: Outcome::Rejected(why),
            stage: Stage::None,
            confidence: 0.0,
            candidates: Vec::new(),
            passages: Vec::new(),
        }
    }

    /// The one command that would be executed, if there is exactly one.
    #[must_use]
    pub fn command(&self) -> Option<&Understood> {
        match &self.outcome {
            Outcome::Command(understood) => Some(understood),
            Outcome::Incomplete { .. }
            | Outcome::Sequence(_)
            | Outcome::Knowledge
            | Outcome::Ambiguous
            | Outcome::Rejected(_) => None,
        }
    }
}

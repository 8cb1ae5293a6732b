//! What a command is: its phrases, slots and risk, as a person wrote them down.
//!
//! Nothing here has been understood yet, and nothing here can act: a definition is checked data. The reader of the
//! file (`config::commands`) makes it; [`super::understanding::Understanding`] compiles it.

use std::sync::Arc;

use super::bind::Step;
use super::template::Template;
use crate::risk::Risk;

/// A command set, in the order of its file.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Commands {
    /// Names of places; what a slot of type `zone` may hold.
    pub zones: Vec<String>,
    /// Words that may stand anywhere and mean nothing, as Home Assistant has them. None of them can be a hazard
    /// ([`super::hazard::of_word`]).
    pub skip_words: Vec<String>,
    /// Of two commands that templates say alike the first of the file is meant, as Home Assistant has it; else the person
    /// is asked. Never where one of them is dangerous.
    pub first_wins: bool,
    /// The commands. Shared: the compiled set and whoever compiles it anew hold the same ones.
    pub list: Vec<Arc<Definition>>,
}

/// One command.
#[derive(Debug, Clone, PartialEq)]
pub struct Definition {
    /// Unique in its set.
    pub id: String,
    /// How it is said, canonically; what a question to a person shows.
    pub text: String,
    /// Other ways to say all of it.
    pub aliases: Vec<String>,
    /// Templates with slots.
    pub patterns: Vec<Template>,
    /// Templates that count only where no template of another command fits: what an imported set says of things that
    /// only its home knows (打开 unlocks, if it is a lock).
    pub fallback: Vec<Template>,
    /// Its slots.
    pub slots: Vec<Slot>,
    /// The trade it belongs to (`pump`, `substation`, ...); empty where the file gives none.
    pub category: String,
    /// How bad it is when it runs by mistake.
    pub risk: Risk,
    /// An emergency stop or the like: it runs at once on an exact pattern or exact sound (`contracts.md`).
    pub protective: bool,
    /// What it is bound to, step by step; empty in a plain command set.
    pub bind: Vec<Step>,
}

impl Definition {
    /// Its slot of this name.
    #[must_use]
    pub fn slot(&self, name: &str) -> Option<&Slot> {
        self.slots.iter().find(|slot| slot.name == name)
    }
}

/// A value that an utterance may carry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slot {
    /// Its name in templates and bindings.
    pub name: String,
    /// What it holds.
    pub kind: SlotKind,
    /// Without it the command is incomplete, and the person is asked.
    pub required: bool,
    /// What a [`SlotKind::List`] may hold; empty for every other kind.
    pub values: Vec<Listed>,
    /// The least and the greatest number that it takes; what is said beyond is asked for once more.
    pub range: Option<(i64, i64)>,
}

/// The largest share that is taken without asking where no range is given: rates go above a hundred, and not far.
const PERCENT_MAX: f64 = 200.0;

impl Slot {
    /// Whether nobody can have meant this number: it is beyond the range, or half a per cent that may be a half (开度调成0.5).
    #[must_use]
    pub fn is_implausible(&self, number: f64) -> bool {
        #[expect(clippy::cast_precision_loss, reason = "the ends of ranges are small whole numbers")]
        let outside = self.range.is_some_and(|(least, most)| number < least as f64 || number > most as f64);
        match self.kind {
            SlotKind::Percent => outside || (number > 0.0 && number < 1.0) || number > PERCENT_MAX,
            SlotKind::Number | SlotKind::Duration | SlotKind::DeviceNo => outside,
            SlotKind::Digits | SlotKind::Zone | SlotKind::List | SlotKind::Free => false,
        }
    }

    /// A slot without a list.
    #[must_use]
    pub fn of(name: &str, kind: SlotKind, required: bool) -> Slot {
        Slot { name: name.to_owned(), kind, required, values: Vec::new(), range: None }
    }
}

/// A value of a list: how it is said, and what the slot holds then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// How it is said.
    pub said: String,
    /// What it stands for.
    pub value: String,
}

/// The type of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SlotKind {
    /// The number of a device: 二号.
    DeviceNo,
    /// A number, with or without a unit.
    Number,
    /// Per cent: 百分之三十, 六成五.
    Percent,
    /// A duration in seconds.
    Duration,
    /// Digits read one by one; a leading zero counts: 洞幺五.
    Digits,
    /// One of the zones of the set.
    Zone,
    /// One of the values that the slot lists.
    List,
    /// Any short text, where the set gives no list (imported sets only).
    Free,
}

impl SlotKind {
    /// Every kind.
    pub const ALL: [SlotKind; 8] = [
        SlotKind::DeviceNo,
        SlotKind::Number,
        SlotKind::Percent,
        SlotKind::Duration,
        SlotKind::Digits,
        SlotKind::Zone,
        SlotKind::List,
        SlotKind::Free,
    ];

    /// The name of the type in a command set.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            SlotKind::DeviceNo => "device_no",
            SlotKind::Number => "number",
            SlotKind::Percent => "percent",
            SlotKind::Duration => "duration_s",
            SlotKind::Digits => "digits",
            SlotKind::Zone => "zone",
            SlotKind::List => "list",
            SlotKind::Free => "text",
        }
    }

    /// The type of this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<SlotKind> {
        SlotKind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// All names that [`SlotKind::parse`] knows, for a hint.
    pub const NAMES: &'static str = "device_no, number, percent, duration_s, digits, zone, list, text";
}

/// Commands for the tests of the stages.
#[cfg(test)]
pub(super) mod sample {
    use super::*;

    /// A command of one template, with a device's number that may be left out.
    pub(in super::super) fn command(id: &str, text: &str, pattern: &str, risk: Risk) -> Arc<Definition> {
        Arc::new(Definition {
            id: id.to_owned(),
            text: text.to_owned(),
            aliases: Vec::new(),
            patterns: vec![Template::parse(pattern).expect("compiles")],
            fallback: Vec::new(),
            slots: vec![Slot::of("device", SlotKind::DeviceNo, false)],
            category: "plant".to_owned(),
            risk,
            protective: false,
            bind: Vec::new(),
        })
    }
}

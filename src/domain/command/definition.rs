//! What a command is: its phrases, slots and risk, as a person wrote them down.
//!
//! Nothing here has been understood yet, and nothing here can act: a definition is checked data. The reader of the
//! file (`config::commands`) makes it; [`super::understanding::Understanding`] compiles it.

use super::bind::Step;
use super::template::Template;
use crate::risk::Risk;

/// A command set, in the order of its file.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Commands {
    /// Names of places; what a slot of type `zone` may hold.
    pub zones: Vec<String>,
    /// The commands.
    pub list: Vec<Definition>,
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
    /// Any short text, where the set gives no list (imported sets only).
    Free,
}

impl SlotKind {
    /// The name of the type in a command set.
    #[must_use]
    pub fn parse(name: &str) -> Option<SlotKind> {
        Some(match name {
            "device_no" => SlotKind::DeviceNo,
            "number" => SlotKind::Number,
            "percent" => SlotKind::Percent,
            "duration_s" => SlotKind::Duration,
            "digits" => SlotKind::Digits,
            "zone" => SlotKind::Zone,
            "text" => SlotKind::Free,
            _ => return None,
        })
    }

    /// All names that [`SlotKind::parse`] knows, for a hint.
    pub const NAMES: &'static str = "device_no, number, percent, duration_s, digits, zone, text";
}

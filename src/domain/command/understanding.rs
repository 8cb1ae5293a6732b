//! A command set, compiled: what the cascade walks on.
//!
//! It is built once, when a command set or a learned set becomes active, and is never changed: a swap is a swap of
//! the whole, so that no utterance is ever understood half by the old words and half by the new.

use super::definition::{Commands, Definition, Risk};
use super::frame::{self, Frames};
use super::hazard::Rules;
use super::lexicon::Lexicon;
use super::pattern::Patterns;
use super::resolution::{Likeness, Outcome, Slots, Understood};
use super::sound::{Confusions, Sounds};
use super::words::Words;

/// A compiled command set.
pub struct Understanding {
    pub(super) commands: Commands,
    pub(super) sounds: Sounds,
    pub(super) patterns: Patterns,
    pub(super) words: Words,
    pub(super) frames: Frames,
    pub(super) rules: Rules,
    pub(super) lead: Vec<Box<[char]>>,
    pub(super) trail: Vec<Box<[char]>>,
}

impl Understanding {
    /// Compiles `commands` with the words of `lexicon`.
    #[must_use]
    pub fn compile(commands: Commands, lexicon: &Lexicon, confusions: &Confusions) -> Understanding {
        let sounds = Sounds::new(confusions);
        let patterns = Patterns::compile(&commands.list, &sounds);
        let (words, frames) = frame::compile(&commands, lexicon, &sounds);
        let boxed = |words: &[String]| words.iter().map(|word| word.chars().collect()).collect();
        Understanding {
            rules: Rules::default(),
            patterns,
            words,
            frames,
            lead: boxed(&lexicon.lead),
            trail: boxed(&lexicon.trail),
            commands,
            sounds,
        }
    }

    /// The commands that it was compiled from.
    #[must_use]
    pub fn commands(&self) -> &Commands {
        &self.commands
    }

    /// The definition of this command.
    #[must_use]
    pub fn definition(&self, id: &str) -> Option<&Definition> {
        self.commands.list.iter().find(|command| command.id == id)
    }

    pub(super) fn outcome(&self, command: usize, slots: Slots, likeness: Likeness) -> Outcome {
        let definition = &self.commands.list[command];
        let missing: Vec<String> = definition
            .slots
            .iter()
            .filter(|slot| slot.required && !slots.contains_key(&slot.name))
            .map(|slot| slot.name.clone())
            .collect();
        let understood =
            Understood { command: definition.id.clone(), slots, confirm: definition.risk == Risk::Dangerous, likeness };
        if missing.is_empty() { Outcome::Command(understood) } else { Outcome::Incomplete { understood, missing } }
    }
}

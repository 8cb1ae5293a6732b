//! A command set, compiled: what the cascade walks on.
//!
//! It is built once, when a command set or a learned set becomes active, and is never changed: a swap is a swap of
//! the whole, so that no utterance is ever understood half by the old words and half by the new.

use std::sync::Arc;

use super::decide::Thresholds;
use super::definition::{Commands, Definition};
use super::frame::{self, Frames};
use super::hazard::{self, Rules};
use super::instead::Instead;
use super::lexicon::{ByFirst, Ends, Lexicon};
use super::pattern::Patterns;
use super::resolution::{Likeness, Outcome, SlotValue, Slots, Understood};
use super::sound::{Confusions, Sounds};
use super::utterance::{self, Utterance};
use super::words::Words;
use crate::risk::Risk;

/// What was learned, as one set that is active as a whole.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Learned {
    /// Characters that were heard, and what had been said.
    pub heard: Vec<(char, char)>,
    /// Whole sentences and the command that each means; nothing may stand beside them.
    pub phrases: Vec<(String, String)>,
    /// Phrases of the floor and the command that each means; things of the same trade may stand beside them.
    pub slang: Vec<(String, String)>,
    /// Commands that were registered later.
    pub commands: Vec<Arc<Definition>>,
    /// What was taught, word for word, and the command: whatever is learned later must not change it.
    pub examples: Vec<(String, String)>,
    /// What agents are told instead of a description or a skill. Understanding has nothing to do with it; it is part of
    /// the set so that it has its versions.
    pub told: Vec<Instead>,
}

impl Learned {
    /// How many things were taught.
    #[must_use]
    pub fn len(&self) -> usize {
        self.examples.len() + self.told.len()
    }

    /// What a classifier learns of it: the sentences as they were taught, and what new commands say of themselves, as
    /// [`utterance::plain`] texts with their commands.
    #[must_use]
    pub fn lessons(&self) -> Vec<(String, String)> {
        let own = self
            .commands
            .iter()
            .flat_map(|command| std::iter::once(&command.text).chain(&command.aliases).map(|text| (text, &command.id)));
        let taught = self.examples.iter().map(|(text, command)| (text, command));
        own.chain(taught).map(|(text, command)| (utterance::plain(text), command.clone())).collect()
    }

    /// The same beside `commands`: a learned command whose name they have by now is left out, for what a person wrote wins.
    #[must_use]
    pub fn beside(&self, commands: &Commands) -> Learned {
        let mut learned = self.clone();
        learned.commands.retain(|new| !commands.list.iter().any(|known| known.id == new.id));
        learned
    }

    /// Nothing was.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.examples.is_empty() && self.told.is_empty()
    }
}

/// A compiled command set.
pub struct Understanding {
    pub(super) commands: Commands,
    pub(super) sounds: Sounds,
    pub(super) patterns: Patterns,
    pub(super) words: Words,
    pub(super) frames: Frames,
    pub(super) rules: Rules,
    pub(super) thresholds: Thresholds,
    pub(super) ends: Ends,
    /// Words of the set that are passed over; none of them is a hazard, a verb or a thing.
    pub(super) skip: ByFirst<()>,
}

impl Understanding {
    /// Compiles `commands` with the words of `lexicon`.
    #[must_use]
    pub fn compile(commands: Commands, lexicon: &Lexicon, confusions: &Confusions) -> Understanding {
        Understanding::compile_learned(commands, lexicon, confusions, &Learned::default())
    }

    /// The same with what was learned.
    #[must_use]
    pub fn compile_learned(
        mut commands: Commands,
        lexicon: &Lexicon,
        confusions: &Confusions,
        learned: &Learned,
    ) -> Understanding {
        commands.list.extend(learned.commands.iter().cloned());
        let sounds = Sounds::new(confusions).with_heard(&learned.heard);
        let phrases: Vec<(String, String)> = learned.phrases.iter().chain(&learned.slang).cloned().collect();
        let patterns = Patterns::compile(&commands.list, &phrases, &sounds);
        let (words, frames) = frame::compile(&commands, lexicon, &learned.slang, &sounds);
        let mut skip: Vec<Box<[char]>> =
            commands.skip_words.iter().map(|word| utterance::plain(word).chars().collect()).collect();
        skip.retain(|word| !word.is_empty() && !words.says_something(word));
        skip.retain(|word| hazard::of_word(&word.iter().collect::<String>()).is_none());
        Understanding {
            rules: Rules::default(),
            thresholds: Thresholds::default(),
            patterns,
            words,
            frames,
            ends: Ends::new(lexicon),
            skip: ByFirst::new(skip.into_iter().map(|word| (word, ())).collect()),
            commands,
            sounds,
        }
    }

    /// The same set with other thresholds: for the experiment that chooses them.
    #[must_use]
    pub fn with_thresholds(self, thresholds: Thresholds) -> Understanding {
        Understanding { thresholds, ..self }
    }

    /// The commands that it was compiled from.
    #[must_use]
    pub fn commands(&self) -> &Commands {
        &self.commands
    }

    /// The definition of this command.
    #[must_use]
    pub fn definition(&self, id: &str) -> Option<&Definition> {
        self.commands.list.iter().find(|command| command.id == id).map(Arc::as_ref)
    }

    /// `text` as the stages see it; none when there is nothing to understand, or too much.
    #[must_use]
    pub fn utterance(&self, text: &str) -> Option<Utterance> {
        Utterance::read(text, &self.sounds).ok()
    }

    /// Is `text` one word of the set: a thing or a verb by itself?
    #[must_use]
    pub fn is_one_word(&self, text: &str) -> bool {
        let chars: Vec<char> = text.chars().collect();
        self.words.contains(&chars)
    }

    pub(super) fn outcome(&self, command: usize, mut slots: Slots, likeness: Likeness) -> Outcome {
        let definition = &self.commands.list[command];
        let mut implausible = Vec::new();
        for slot in &definition.slots {
            if let Some(SlotValue::Number(said)) = slots.get(&slot.name)
                && slot.is_implausible(*said)
            {
                slots.remove(&slot.name);
                implausible.push(slot.name.clone());
            }
        }
        let mut missing: Vec<String> = definition
            .slots
            .iter()
            .filter(|slot| slot.required && !slots.contains_key(&slot.name) && !implausible.contains(&slot.name))
            .map(|slot| slot.name.clone())
            .collect();
        missing.extend(implausible);
        let understood =
            Understood { command: definition.id.clone(), slots, confirm: definition.risk == Risk::Dangerous, likeness };
        if missing.is_empty() { Outcome::Command(understood) } else { Outcome::Incomplete { understood, missing } }
    }
}

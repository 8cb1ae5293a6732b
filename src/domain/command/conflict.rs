//! Phrases of two commands that are too near to each other to ship.
//!
//! At run time such a pair can only be a question to the operator each time it is heard a little wrong, or a mistake.
//! Nothing is decided here: it is for the person who writes a command set.

use super::cascade::resolved_by_template;
use super::decide;
use super::hazard;
use super::sound::NO_SYLLABLE;
use super::understanding::Understanding;
use super::utterance::Utterance;

/// A phrase that another command could be heard in.
#[derive(Debug, Clone, PartialEq)]
pub struct Conflict {
    /// The command whose phrase it is.
    pub command: String,
    /// The phrase.
    pub phrase: String,
    /// The command that could be heard.
    pub other: String,
    /// Its phrase that is nearest.
    pub other_phrase: String,
    /// How much nearer the phrase is to its own command, in hundredths of a character; 0 when both sound the same.
    pub margin: f32,
}

/// The conflicts of a set, each pair of commands once, in the order of the set. Texts and aliases are looked at:
/// what a person wrote out.
#[must_use]
pub fn conflicts(understanding: &Understanding) -> Vec<Conflict> {
    let mut found: Vec<Conflict> = Vec::new();
    for command in &understanding.commands.list {
        for phrase in std::iter::once(&command.text).chain(&command.aliases) {
            let Ok(utterance) = Utterance::read(phrase, &understanding.sounds) else { continue };
            for (other, margin) in rivals(understanding, &utterance, &command.id) {
                let known = |one: &Conflict| {
                    (one.command == command.id && one.other == other)
                        || (one.command == other && one.other == command.id)
                };
                if found.iter().any(known) {
                    continue;
                }
                found.push(Conflict {
                    command: command.id.clone(),
                    phrase: phrase.clone(),
                    other_phrase: nearest(understanding, &utterance, &other),
                    other,
                    margin,
                });
            }
        }
    }
    found
}

/// Other commands that this phrase of `own` could be heard as, and by how much.
fn rivals(understanding: &Understanding, utterance: &Utterance, own: &str) -> Vec<(String, f32)> {
    let mut rivals: Vec<(String, f32)> = resolved_by_template(understanding, utterance)
        .into_iter()
        .filter(|other| other != own)
        .map(|other| (other, 0.0))
        .collect();
    let hazards = hazard::hazards(&understanding.rules, utterance);
    for (other, margin) in decide::too_near(understanding, utterance, &hazards, own) {
        if !rivals.iter().any(|(known, _)| *known == other) {
            rivals.push((other, margin));
        }
    }
    rivals
}

/// The phrase of `other` that has most syllables of the utterance in their places.
fn nearest(understanding: &Understanding, utterance: &Utterance, other: &str) -> String {
    let Some(other) = understanding.definition(other) else { return String::new() };
    let unlike = |phrase: &str| -> usize {
        let chars: Vec<char> = phrase.chars().collect();
        let alike = chars
            .iter()
            .filter(|ch| {
                let syllable = understanding.sounds.usual(**ch);
                utterance.chars.contains(ch)
                    || (syllable != NO_SYLLABLE && utterance.readings.iter().any(|all| all.contains(&syllable)))
            })
            .count();
        chars.len().max(utterance.chars.len()) - alike.min(utterance.chars.len())
    };
    let all = std::iter::once(&other.text).chain(&other.aliases);
    all.min_by_key(|phrase| unlike(phrase)).cloned().unwrap_or_default()
}

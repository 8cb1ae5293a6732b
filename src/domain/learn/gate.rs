//! The review gate: what a proposal would do, and whether it may.
//!
//! Refusals come first and are hard; a person cannot wave them through, because each would make some other sentence
//! mean something else. What is left is taken, or put to a person when it is dangerous or the policy says so.

use std::sync::Arc;

use crate::command::cascade::{Stages, Step, Walk};
use crate::command::definition::{Commands, Definition};
use crate::command::hazard::{Rules, hazards};
use crate::command::lexicon::Lexicon;
use crate::command::resolution::Outcome;
use crate::command::sound::{Confusions, SAME_SOUND, Sounds};
use crate::command::template::Part;
use crate::command::understanding::{Learned, Understanding};
use crate::command::utterance::Utterance;
use crate::risk::Risk;

use super::retold::{self, Repair, TOLD_MAX};

/// What a set is compiled from: the gate compiles it anew for each proposal.
#[derive(Debug, Clone, Copy)]
pub struct Base<'a> {
    /// The commands of the file.
    pub commands: &'a Commands,
    /// The words.
    pub lexicon: &'a Lexicon,
    /// The costs of mishearing.
    pub confusions: &'a Confusions,
}

impl Base<'_> {
    /// The set with what was learned.
    #[must_use]
    pub fn with(&self, learned: &Learned) -> Understanding {
        Understanding::compile_learned(self.commands.clone(), self.lexicon, self.confusions, learned)
    }
}

/// Something to learn.
#[derive(Debug, Clone, PartialEq)]
pub enum Proposal {
    /// Channel A: this was heard, and that command had been said.
    Correction {
        /// What the recogniser wrote.
        heard: String,
        /// The command.
        command: String,
    },
    /// Channel B: people say this for that command.
    Slang {
        /// What they say.
        phrase: String,
        /// The command.
        command: String,
    },
    /// Channel C: a new command.
    New(Arc<Definition>),
    /// What agents are told of a tool, or a skill, is wrong.
    Repair(Box<Repair>),
}

/// Who may take what passes the gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// A person approves everything.
    Strict,
    /// What is not dangerous is taken at once.
    Auto,
}

/// What is to become of a proposal.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// It can be active at once, as this set.
    Approve(Learned),
    /// A person decides; it would be active as this set.
    Operator(Learned),
    /// Never.
    Refuse,
}

/// A verdict and its reason.
#[derive(Debug, Clone, PartialEq)]
pub struct Review {
    /// What is to become of it.
    pub verdict: Verdict,
    /// Why, for a person.
    pub why: String,
}

/// How far, on average, a correction may sound from what was said, in hundredths of a syllable.
const RELATED_MAX: u32 = 50;
/// Shortest phrase that may be learned, in characters.
const PHRASE_LEN_MIN: usize = 2;

/// A sentence of the regression set, and what it should mean. A proposal may bring it there, and move it nowhere else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Example {
    /// The sentence.
    pub sentence: String,
    /// The command; none for a sentence that must come to nothing.
    pub means: Option<String>,
}

/// Things that may be learned on top of a command set. Each costs time in every review; a plant that needs more wants
/// another command set.
pub const LEARNED_MAX: usize = 1000;

/// Reviews `proposal` on top of what was `learned`, of which every example counts as one of `replay`.
#[must_use]
pub fn review(base: Base<'_>, learned: &Learned, proposal: &Proposal, replay: &[Example], policy: Policy) -> Review {
    if learned.len() >= LEARNED_MAX {
        let why = format!("{LEARNED_MAX} things are learned already: put them into the command set");
        return Review { verdict: Verdict::Refuse, why };
    }
    if let Proposal::Repair(repair) = proposal {
        return repaired(learned, repair);
    }
    match Gate::new(base, learned).judge(proposal, replay) {
        Err(why) => Review { verdict: Verdict::Refuse, why },
        Ok((after, Risk::Dangerous)) => {
            Review { verdict: Verdict::Operator(after), why: "the command is dangerous: a person decides".to_owned() }
        }
        Ok((after, Risk::Read | Risk::Operate)) => match policy {
            Policy::Strict => Review { verdict: Verdict::Operator(after), why: "the policy is strict".to_owned() },
            Policy::Auto => Review { verdict: Verdict::Approve(after), why: "changes no other sentence".to_owned() },
        },
    }
}

/// No sentence means anything else by it, so nothing is replayed; and what an agent is told is for a person.
fn repaired(learned: &Learned, repair: &Repair) -> Review {
    let told = match repair.judged() {
        Err(why) => return Review { verdict: Verdict::Refuse, why },
        Ok(_) if learned.told.len() >= TOLD_MAX => {
            let why =
                format!("{TOLD_MAX} repairs are in force already: have the descriptions mended where they are made");
            return Review { verdict: Verdict::Refuse, why };
        }
        Ok(told) => told,
    };
    let after = Learned { told: retold::with(&learned.told, told), ..learned.clone() };
    Review { verdict: Verdict::Operator(after), why: "what an agent is told is for a person to approve".to_owned() }
}

struct Gate<'a> {
    base: Base<'a>,
    learned: &'a Learned,
    now: Understanding,
    sounds: Sounds,
}

impl<'a> Gate<'a> {
    fn new(base: Base<'a>, learned: &'a Learned) -> Gate<'a> {
        Gate { base, learned, now: base.with(learned), sounds: Sounds::new(base.confusions) }
    }

    fn judge(&self, proposal: &Proposal, replay: &[Example]) -> Result<(Learned, Risk), String> {
        let (text, target, risk) = match proposal {
            Proposal::Correction { heard: text, command } | Proposal::Slang { phrase: text, command } => {
                let known = self.now.definition(command).ok_or_else(|| format!("there is no command {command:?}"))?;
                (text.as_str(), command.as_str(), known.risk)
            }
            Proposal::New(definition) => (definition.text.as_str(), definition.id.as_str(), definition.risk),
            Proposal::Repair(_) => return Err("a repair is no sentence".to_owned()),
        };
        let text = text.trim();
        if text.is_empty() {
            return Err("the phrase is empty".to_owned());
        }
        if let Some(odd) =
            text.chars().find(|ch| !(('\u{4e00}'..='\u{9fff}').contains(ch) || ch.is_ascii_alphanumeric()))
        {
            return Err(format!("the phrase holds {odd:?}, which is not spoken"));
        }
        if text.chars().count() < PHRASE_LEN_MIN {
            return Err("the phrase is too short: it would match too much".to_owned());
        }
        self.no_hazard(text, target, risk, proposal)?;
        if let Some(known) = replay.iter().find(|example| example.sentence == text)
            && known.means.as_deref() != Some(target)
        {
            return Err(match &known.means {
                Some(other) => format!("{text} is known to mean {other}"),
                None => format!("{text} is ordinary speech, or a question: it must come to nothing"),
            });
        }
        if let Proposal::New(definition) = proposal {
            for alias in &definition.aliases {
                if alias.chars().count() < PHRASE_LEN_MIN {
                    return Err(format!("the alias {alias:?} is too short: it would match too much"));
                }
                self.no_hazard(alias, target, risk, proposal)?;
            }
            if self.now.definition(&definition.id).is_some() {
                return Err(format!("the id {:?} is taken", definition.id));
            }
            for phrase in std::iter::once(&definition.text).chain(&definition.aliases) {
                if let Some(other) = self.meaning(&self.now, phrase) {
                    return Err(format!("{phrase} already means {other}"));
                }
            }
        }
        let before = self.meaning(&self.now, text);
        match &before {
            Some(other) if other != target => return Err(format!("{text} already means {other}")),
            Some(_) if matches!(proposal, Proposal::Correction { .. } | Proposal::Slang { .. }) => {
                return Ok((self.learned.clone(), risk));
            }
            Some(_) | None => {}
        }
        if !matches!(proposal, Proposal::New(_)) && self.too_general(text) {
            return Err(format!("{text} is only a thing or a verb that several commands share"));
        }
        let (mut after, active) = self.applied(proposal, text, target)?;
        self.replayed(&active, replay, text)?;
        after.examples.push((text.to_owned(), target.to_owned()));
        Ok((after, risk))
    }

    /// The command that a sentence means, executed or asked for.
    fn meaning(&self, understanding: &Understanding, text: &str) -> Option<String> {
        match Walk::new(understanding, text, Stages::PURE).next() {
            Step::Done(resolution) => match resolution.outcome {
                Outcome::Command(one) | Outcome::Incomplete { understood: one, .. } => Some(one.command),
                Outcome::Sequence(several) => {
                    Some(several.iter().map(|one| one.command.as_str()).collect::<Vec<_>>().join("+"))
                }
                Outcome::Knowledge | Outcome::Ambiguous | Outcome::Rejected(_) => None,
            },
            Step::Classify(_) | Step::Retrieve(_) => None,
        }
    }

    fn no_hazard(&self, text: &str, target: &str, risk: Risk, proposal: &Proposal) -> Result<(), String> {
        let Ok(utterance) = Utterance::read(text, &self.sounds) else {
            return Err("the phrase is too long".to_owned());
        };
        let found = hazards(&Rules::default(), &utterance);
        let Some(hazard) = found.iter().find(|hazard| !(hazard.soft && risk == Risk::Read)) else { return Ok(()) };
        // 停止水甭: the character is a syllable of the phrase that was said.
        let heard_whole = matches!(proposal, Proposal::Correction { .. })
            && self.nearest(text, target).is_some_and(|(_, cost)| cost <= u32::from(SAME_SOUND));
        if heard_whole {
            return Ok(());
        }
        let said: String = utterance.chars.iter().skip(hazard.start).take(hazard.end - hazard.start).collect();
        Err(format!("it holds {said}, a {}", hazard.kind))
    }

    /// Known words only, and several commands that they could be of.
    fn too_general(&self, text: &str) -> bool {
        match Walk::new(&self.now, text, Stages::PURE).next() {
            Step::Done(resolution) => {
                resolution.outcome == Outcome::Ambiguous
                    && resolution.candidates.len() > 1
                    && self.now.is_one_word(text)
            }
            Step::Classify(_) | Step::Retrieve(_) => false,
        }
    }

    /// The phrase of the command that sounds most like `text`, and how far it is, on average by syllable.
    fn nearest(&self, text: &str, target: &str) -> Option<(Vec<char>, u32)> {
        let heard: Vec<char> = text.chars().collect();
        let command = self.now.definition(target)?;
        let mut best: Option<(Vec<char>, u32)> = None;
        for phrase in phrases(command) {
            if phrase.len() != heard.len() || phrase.is_empty() {
                continue;
            }
            let sum: u32 = heard
                .iter()
                .zip(&phrase)
                .map(|(heard, said)| {
                    u32::from(self.sounds.cost_of(
                        *heard,
                        &self.sounds.readings(*heard),
                        *said,
                        self.sounds.usual(*said),
                    ))
                })
                .sum();
            let mean = sum / u32::try_from(phrase.len()).unwrap_or(1);
            if best.as_ref().is_none_or(|(_, cost)| mean < *cost) {
                best = Some((phrase, mean));
            }
        }
        best
    }

    /// How far `text` is from the nearest part of a phrase of the command, on average by syllable.
    fn related(&self, text: &str, target: &str) -> u32 {
        let heard: Vec<char> = text.chars().collect();
        let Some(command) = self.now.definition(target) else { return u32::MAX };
        let mut best = u32::MAX;
        for phrase in phrases(command) {
            for part in phrase.windows(heard.len()) {
                let sum: u32 = heard
                    .iter()
                    .zip(part)
                    .map(|(heard, said)| {
                        u32::from(self.sounds.cost_of(
                            *heard,
                            &self.sounds.readings(*heard),
                            *said,
                            self.sounds.usual(*said),
                        ))
                    })
                    .sum();
                best = best.min(sum / u32::try_from(heard.len()).unwrap_or(1));
            }
        }
        best
    }

    fn applied(&self, proposal: &Proposal, text: &str, target: &str) -> Result<(Learned, Understanding), String> {
        let mut after = self.learned.clone();
        let whole = (text.to_owned(), target.to_owned());
        match proposal {
            Proposal::New(definition) => after.commands.push(Arc::clone(definition)),
            Proposal::Slang { .. } => after.slang.push(whole),
            Proposal::Repair(_) => {}
            Proposal::Correction { .. } => {
                if self.related(text, target) > RELATED_MAX {
                    return Err("it does not sound like the command".to_owned());
                }
                if let Some((said, cost)) = self.nearest(text, target)
                    && cost <= RELATED_MAX
                {
                    for (heard, said) in text.chars().zip(said) {
                        let same = self.sounds.readings(heard).contains(&self.sounds.usual(said));
                        if heard != said && !same && !after.heard.contains(&(heard, said)) {
                            after.heard.push((heard, said));
                        }
                    }
                }
                // The sounds alone, if they carry it: they hold in other sentences too.
                let active = self.base.with(&after);
                if self.meaning(&active, text).as_deref() == Some(target) {
                    return Ok((after, active));
                }
                after.phrases.push(whole);
            }
        }
        let active = self.base.with(&after);
        match self.meaning(&active, text) {
            Some(found) if found == target => Ok((after, active)),
            Some(other) => Err(format!("it would mean {other}")),
            None => Err("it would still not be understood".to_owned()),
        }
    }

    fn replayed(&self, active: &Understanding, replay: &[Example], text: &str) -> Result<(), String> {
        let taught = self.learned.examples.iter().map(|(sentence, command)| (sentence, Some(command)));
        let shipped = replay.iter().map(|example| (&example.sentence, example.means.as_ref()));
        for (sentence, means) in shipped.chain(taught).filter(|(sentence, _)| *sentence != text) {
            let now = self.meaning(active, sentence);
            if now.as_ref() == means {
                continue;
            }
            let before = self.meaning(&self.now, sentence);
            if before != now {
                let name = |meaning: Option<String>| meaning.unwrap_or_else(|| "nothing".to_owned());
                return Err(format!("{sentence} would mean {} and not {}", name(now), name(before)));
            }
        }
        Ok(())
    }
}

/// The phrases of a command without values, as characters.
fn phrases(command: &Definition) -> Vec<Vec<char>> {
    fn expand(parts: &[Part], all: &mut Vec<String>) {
        for part in parts {
            let pieces: Vec<String> = match part {
                Part::Text(text) => vec![text.clone()],
                Part::Slot(_) => vec![String::new()],
                Part::Choice { branches, optional } => {
                    let mut pieces: Vec<String> = branches
                        .iter()
                        .flat_map(|branch| {
                            let mut inner = vec![String::new()];
                            expand(branch, &mut inner);
                            inner
                        })
                        .collect();
                    if *optional {
                        pieces.push(String::new());
                    }
                    pieces
                }
            };
            if all.len() * pieces.len() > PHRASES_MAX {
                all.iter_mut().for_each(|text| text.push_str(&pieces[0]));
                continue;
            }
            *all = all.iter().flat_map(|before| pieces.iter().map(move |piece| format!("{before}{piece}"))).collect();
        }
    }
    let mut all: Vec<String> = std::iter::once(command.text.clone()).chain(command.aliases.clone()).collect();
    for pattern in &command.patterns {
        let mut forms = vec![String::new()];
        expand(&pattern.parts, &mut forms);
        all.extend(forms);
    }
    all.sort_unstable();
    all.dedup();
    all.iter().map(|text| text.chars().collect()).collect()
}

/// Phrases of one template that are compared; a template of more is taken with its first choices.
const PHRASES_MAX: usize = 512;

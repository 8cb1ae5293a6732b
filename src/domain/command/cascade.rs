//! The conductor: walks an utterance through the stages and stops at the first that is sure.
//!
//! It does no I/O and holds no rule of any stage. Where a stage needs the world (a model, a store of passages) it
//! answers with a [`Step`], and whoever owns it obeys and comes back. A tie is a question to the person, never a
//! guess.

use super::asking;
use super::compound;
use super::decide;
use super::hazard::{self, Hazard};
use super::lexicon;
use super::pattern::By;
use super::resolution::{Candidate, HazardKind, Likeness, Outcome, Passage, Refused, Resolution, Stage};
use super::understanding::Understanding;
use super::utterance::{self, Utterance};
use super::vote;
use crate::risk::Risk;

/// Candidates named in a question to a person.
pub const CANDIDATES_MAX: usize = 3;

/// Which stages may take part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stages {
    /// Corrections of known mishearings.
    pub hotword: bool,
    /// Templates by character.
    pub pattern: bool,
    /// Sound and words.
    pub pinyin: bool,
    /// The owner can run a classifier.
    pub model: bool,
    /// The owner can retrieve passages.
    pub knowledge: bool,
}

impl Stages {
    /// The stages that need nothing but the command set.
    pub const PURE: Stages = Stages { hotword: true, pattern: true, pinyin: true, model: false, knowledge: false };

    /// None at all.
    pub const NONE: Stages = Stages { hotword: false, pattern: false, pinyin: false, model: false, knowledge: false };

    /// With this stage as well.
    #[must_use]
    pub fn with(mut self, stage: Stage) -> Stages {
        match stage {
            Stage::Hotword => self.hotword = true,
            Stage::Pattern => self.pattern = true,
            Stage::Pinyin => self.pinyin = true,
            Stage::Model => self.model = true,
            Stage::Knowledge => self.knowledge = true,
            Stage::None => {}
        }
        self
    }
}

/// What the owner of a walk has to do next.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Classify this utterance, which is normal already, and come back with [`Walk::classified`].
    Classify(String),
    /// Find passages for this question, and come back with [`Walk::retrieved`].
    Retrieve(String),
    /// That is the answer.
    Done(Resolution),
}

/// One utterance on its way through the stages.
pub struct Walk<'a> {
    understanding: &'a Understanding,
    begun: Begun,
    classified: bool,
    retrieved: bool,
}

/// A walk that rests before its later stages: they may be another thread's, with the same command set.
#[derive(Debug, Clone, PartialEq)]
pub struct Begun {
    /// [`None`] when nothing, or far too much, was said.
    utterance: Option<Utterance>,
    stages: Stages,
    /// What the pure stages found; the later ones can only fill what they left open.
    found: Resolution,
}

impl<'a> Walk<'a> {
    /// Begins with what a recogniser wrote.
    #[must_use]
    pub fn new(understanding: &'a Understanding, text: &str, stages: Stages) -> Walk<'a> {
        let (utterance, found) = match Utterance::read(text, &understanding.sounds) {
            Ok(utterance) => {
                let found = resolve(understanding, &utterance, stages);
                match passing_over(understanding, &utterance, &found) {
                    Some(shorter) => {
                        let found = resolve(understanding, &shorter, stages);
                        (Some(shorter), found)
                    }
                    None => (Some(utterance), found),
                }
            }
            Err(_) => (None, Resolution::rejected(Refused::NoUtterance)),
        };
        Walk::resume(understanding, Begun { utterance, stages, found })
    }

    /// Goes on where [`Walk::rest`] left off. The set must be the one that it began with.
    #[must_use]
    pub fn resume(understanding: &'a Understanding, begun: Begun) -> Walk<'a> {
        Walk { understanding, begun, classified: false, retrieved: false }
    }

    /// Rests before the later stages.
    #[must_use]
    pub fn rest(self) -> Begun {
        self.begun
    }

    /// What has been found so far; before the later stages, what words and sounds make of it.
    #[must_use]
    pub fn found(&self) -> &Resolution {
        &self.begun.found
    }

    /// What is to be done next.
    #[must_use]
    pub fn next(&self) -> Step {
        let done = || Step::Done(self.begun.found.clone());
        let Some(utterance) = &self.begun.utterance else { return done() };
        // A stage that is off, or has had its turn, is passed over.
        let classify = || (self.begun.stages.model && !self.classified).then(|| Step::Classify(utterance.text()));
        let retrieve = || {
            let asked =
                self.begun.stages.knowledge && !self.retrieved && asking::asks(utterance, &self.understanding.sounds);
            asked.then(|| Step::Retrieve(utterance.text()))
        };
        if let Some(step) = classify()
            && vote::is_doubtful(self.understanding, utterance, &self.begun.found)
        {
            return step;
        }
        match &self.begun.found.outcome {
            Outcome::Rejected(Refused::NoCommand) => classify().or_else(retrieve).unwrap_or_else(done),
            // Whatever kept a command back, a question may be answered: 水泵不上水怎么处理 forbids nothing.
            Outcome::Rejected(Refused::Hazard(_)) => retrieve().unwrap_or_else(done),
            Outcome::Command(_)
            | Outcome::Incomplete { .. }
            | Outcome::Sequence(_)
            | Outcome::Knowledge
            | Outcome::Ambiguous
            | Outcome::Rejected(_) => done(),
        }
    }

    /// What each stage saw, for a person: a line a fact.
    #[must_use]
    pub fn explain(&self) -> String {
        match &self.begun.utterance {
            Some(utterance) => explain(self.understanding, utterance),
            None => "utterance: none\n".to_owned(),
        }
    }

    /// The labels of the classifier, best first; none when it did not answer. See [`super::vote`] for what they can do.
    pub fn classified(&mut self, labels: &[Candidate]) {
        self.classified = true;
        let Some(utterance) = &self.begun.utterance else { return };
        if self.begun.found.command().is_some() {
            if let Some(question) = vote::doubted(self.understanding, &self.begun.found, labels) {
                self.begun.found = question;
            }
            return;
        }
        match vote::lifted(self.understanding, utterance, labels) {
            Some(found) => self.begun.found = found,
            None => {
                // What may have been meant is asked about: the classifier's labels, then the nearest readings.
                let mut nearest = vote::worth_asking(self.understanding, labels);
                let known = |nearest: &[Candidate], one: &Candidate| nearest.iter().any(|n| n.command == one.command);
                for one in std::mem::take(&mut self.begun.found.candidates) {
                    if nearest.len() < CANDIDATES_MAX && !known(&nearest, &one) {
                        nearest.push(one);
                    }
                }
                self.begun.found.candidates = nearest;
            }
        }
    }

    /// The passages that were found, best first; none when the question is not of this plant.
    pub fn retrieved(&mut self, passages: Vec<Passage>) {
        self.retrieved = true;
        if let Some(best) = passages.first() {
            self.begun.found.stage = Stage::Knowledge;
            self.begun.found.confidence = best.score.clamp(0.0, 1.0);
            self.begun.found.outcome = Outcome::Knowledge;
            self.begun.found.passages = passages;
        }
    }
}

/// What is left of a sentence without the words that its set passes over, where the whole of it came to nothing. No
/// hazard may be lost with them, so a sentence that has one stays whole.
fn passing_over(understanding: &Understanding, utterance: &Utterance, found: &Resolution) -> Option<Utterance> {
    if understanding.skip.is_empty() || found.outcome != Outcome::Rejected(Refused::NoCommand) {
        return None;
    }
    let hazards = hazard::hazards(&understanding.rules, utterance);
    let (chars, breaks) = lexicon::without(&utterance.chars, utterance.breaks, &understanding.skip)?;
    let is_safe = hazards.iter().all(|hazard| hazard.soft);
    is_safe.then(|| Utterance::of(chars, breaks, utterance.asked, &understanding.sounds))
}

/// The stages that need nothing but the command set, on a whole utterance.
pub(super) fn resolve(understanding: &Understanding, utterance: &Utterance, stages: Stages) -> Resolution {
    // Most is said as it is written: the whole is tried before anything is cut.
    let by_character = |span: (usize, usize)| by_template(understanding, utterance, span, By::Character, &[]);
    if stages.pattern
        && let Some(found) = by_character((0, utterance.chars.len()))
    {
        return found;
    }
    let spans = lexicon::trimmed(&utterance.chars, &understanding.ends);
    if stages.pattern
        && let Some(found) = spans[1..].iter().find_map(|span| by_character(*span))
    {
        return found;
    }
    if let Some(found) = compound::resolve(understanding, utterance, stages) {
        return found;
    }
    let hazards = hazard::hazards(&understanding.rules, utterance);
    if stages.pinyin {
        if let Some(found) =
            spans.iter().find_map(|span| by_template(understanding, utterance, *span, By::Sound, &hazards))
        {
            return found;
        }
        let found = decide::decide(understanding, utterance, &hazards);
        if !matches!(found.outcome, Outcome::Rejected(Refused::NoCommand)) {
            return found;
        }
    }
    match refusing(&hazards) {
        Some(kind) => Resolution::rejected(Refused::Hazard(kind)),
        None => Resolution::rejected(Refused::NoCommand),
    }
}

/// The kind of the first hazard that no reading command could ignore.
fn refusing(hazards: &[Hazard]) -> Option<HazardKind> {
    hazards.iter().find(|hazard| !hazard.soft).or(hazards.first()).map(|hazard| hazard.kind)
}

fn by_template(
    understanding: &Understanding,
    utterance: &Utterance,
    span: (usize, usize),
    by: By,
    hazards: &[Hazard],
) -> Option<Resolution> {
    let commands = &understanding.commands;
    let mut found =
        understanding.patterns.find(utterance, span, by, &commands.list, &commands.zones, &understanding.sounds);
    // A question mark makes a question of any command; asking for a value already is one.
    found.retain(|found| !utterance.asked || commands.list[found.command].risk == Risk::Read);
    // 需要取消全部任务 and 让你重启系统 may have lost a 不 or a 没 at their beginning.
    if utterance.chars[..span.0].iter().any(|ch| "要让".contains(*ch)) && !utterance.chars[..span.0].contains(&'我')
    {
        found.retain(|found| commands.list[found.command].risk != Risk::Dangerous);
    }
    if by == By::Sound {
        // A hazard is none when its one character was misheard and is a syllable of the phrase (水甭 for 水泵), or when
        // the phrase itself is written with it (不用吹了 stops a fan).
        found.retain(|found| {
            hazards.iter().all(|hazard| {
                let own = utterance::mask(hazard.end) & !utterance::mask(hazard.start);
                (hazard.soft && commands.list[found.command].risk == Risk::Read)
                    || (hazard.end <= utterance.chars.len() && found.written_at & own == own)
                    || (hazard.end - hazard.start == 1 && found.misheard_at & (1 << hazard.start) != 0)
            })
        });
        // Two or three syllables that sound like a dangerous command are ordinary speech far more often (喝茶).
        found.retain(|found| {
            commands.list[found.command].risk != Risk::Dangerous
                || found.misheard == 0
                || span.1 - span.0 >= DANGEROUS_SOUND_LEN_MIN
        });
    }
    let (stage, likeness) = match by {
        By::Character => (Stage::Pattern, Likeness::Pattern),
        By::Sound => (Stage::Pinyin, Likeness::Sound),
    };
    let least = found.iter().map(|found| (found.misheard, found.fallback, found.free)).min()?;
    found.retain(|found| (found.misheard, found.fallback, found.free) == least);
    if commands.first_wins && found.iter().all(|found| commands.list[found.command].risk != Risk::Dangerous) {
        // What the set asks for: most of it written out, then the first of the file.
        let first = found.iter().min_by_key(|found| (found.captured, found.command)).cloned();
        found = first.into_iter().collect();
    }
    let candidates: Vec<Candidate> = found
        .iter()
        .take(CANDIDATES_MAX)
        .map(|found| Candidate { command: commands.list[found.command].id.clone(), confidence: 1.0 })
        .collect();
    let outcome = match found.pop() {
        Some(only) if found.is_empty() => understanding.outcome(only.command, only.slots, likeness),
        Some(_) => Outcome::Ambiguous,
        None => return None,
    };
    Some(Resolution { outcome, stage, confidence: 1.0, candidates, passages: Vec::new() })
}

/// Every command that a template says with the whole of the utterance, by character or by sound.
pub(super) fn resolved_by_template(understanding: &Understanding, utterance: &Utterance) -> Vec<String> {
    let commands = &understanding.commands;
    let span = (0, utterance.chars.len());
    let found =
        understanding.patterns.find(utterance, span, By::Sound, &commands.list, &commands.zones, &understanding.sounds);
    // A text that fits anything is no phrase of its own.
    let written = found.into_iter().filter(|found| found.free == 0);
    written.map(|found| commands.list[found.command].id.clone()).collect()
}

/// Shortest utterance that may reach a dangerous command by sound alone, in characters.
const DANGEROUS_SOUND_LEN_MIN: usize = 4;

fn explain(understanding: &Understanding, utterance: &Utterance) -> String {
    let part = |start: usize, end: usize| utterance.chars[start..end].iter().collect::<String>();
    let spans = lexicon::trimmed(&utterance.chars, &understanding.ends);
    let cut: Vec<String> = spans.iter().map(|(start, end)| part(*start, *end)).collect();
    let mut lines = format!("utterance: {}\nwithout fillers: {}\n", utterance.text(), cut.join(" / "));
    for amount in &utterance.amounts {
        let said = part(usize::from(amount.start), usize::from(amount.end));
        lines.push_str(&format!("number: {said} = {} ({:?})\n", amount.value, amount.measure));
    }
    for hazard in hazard::hazards(&understanding.rules, utterance) {
        let soft = if hazard.soft { ", harmless to a reading command" } else { "" };
        let said = if hazard.start < utterance.chars.len() { part(hazard.start, hazard.end) } else { "?".to_owned() };
        lines.push_str(&format!("hazard: {said} ({}{soft})\n", hazard.kind));
    }
    for (name, by) in [("pattern", By::Character), ("sound", By::Sound)] {
        lines.push_str(&format!("{name}: {}\n", templates(understanding, utterance, &spans, by)));
    }
    let parts = match compound::resolve(understanding, utterance, Stages::PURE).map(|found| found.outcome) {
        None => "one sentence".to_owned(),
        Some(Outcome::Sequence(several)) => {
            several.iter().map(|one| one.command.as_str()).collect::<Vec<_>>().join(", then ")
        }
        Some(Outcome::Command(one) | Outcome::Incomplete { understood: one, .. }) => {
            format!("takes itself back: {}", one.command)
        }
        Some(Outcome::Knowledge | Outcome::Ambiguous | Outcome::Rejected(_)) => "takes itself back".to_owned(),
    };
    lines.push_str(&format!("parts: {parts}\n"));
    lines.push_str(&decide::explain(understanding, utterance, &hazard::hazards(&understanding.rules, utterance)));
    let found = resolve(understanding, utterance, Stages::PURE);
    let what = match &found.outcome {
        Outcome::Command(one) => format!("command {}", one.command),
        Outcome::Incomplete { understood, missing } => format!("{} lacks {}", understood.command, missing.join(", ")),
        Outcome::Sequence(several) => format!("{} commands", several.len()),
        Outcome::Knowledge => "knowledge".to_owned(),
        Outcome::Ambiguous => "a question to the speaker".to_owned(),
        Outcome::Rejected(Refused::Hazard(kind)) => format!("nothing, kept back by a {kind}"),
        Outcome::Rejected(Refused::NoCommand) => "nothing".to_owned(),
        Outcome::Rejected(Refused::NoUtterance) => "no utterance".to_owned(),
    };
    lines.push_str(&format!("decided: {what} (stage {})\n", found.stage.name()));
    lines
}

/// The templates that fit one of the spans, with what was misheard.
fn templates(understanding: &Understanding, utterance: &Utterance, spans: &[(usize, usize)], by: By) -> String {
    let set = &understanding.commands;
    let all = spans.iter().flat_map(|span| {
        understanding.patterns.find(utterance, *span, by, &set.list, &set.zones, &understanding.sounds)
    });
    let mut shown: Vec<String> = Vec::new();
    for found in all {
        let misheard: String = utterance
            .chars
            .iter()
            .enumerate()
            .filter(|(at, _)| found.misheard_at & (1 << at) != 0)
            .map(|(_, heard)| heard)
            .collect();
        let only_sounds = if misheard.is_empty() { String::new() } else { format!(" ({misheard} only sounds right)") };
        let one = format!("{}{only_sounds}", set.list[found.command].id);
        if shown.len() < CANDIDATES_MAX && !shown.contains(&one) {
            shown.push(one);
        }
    }
    if shown.is_empty() { "no template fits".to_owned() } else { shown.join(", ") }
}

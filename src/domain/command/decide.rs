//! Which reading of an utterance is good enough, and by how much it must be better than the next.
//!
//! The thresholds stand here and nowhere else. They were set inside the plateau that the integration test
//! `the_thresholds_stand_on_a_plateau` prints for the development set, not at its edge.

use super::cascade::CANDIDATES_MAX;
use super::definition::{Definition, SlotKind};
use super::frame::{FAR, Frame};
use super::hazard::Hazard;
use super::lattice;
use super::resolution::{Candidate, Likeness, Outcome, Refused, Resolution, Stage};
use super::score::{Grid, Reading, Role, Scene, Step, WHOLE_LEN_MIN};
use super::sound::SAME_SOUND;
use super::understanding::Understanding;
use super::utterance::Utterance;
use crate::risk::Risk;

/// Costs up to which a reading is taken, and how much better than the next command it must be, in hundredths of a
/// character.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Thresholds {
    /// For a command that only reads.
    pub read: f32,
    /// For a command that acts.
    pub operate: f32,
    /// For a dangerous command.
    pub dangerous: f32,
    /// Between the best command and the next.
    pub margin: f32,
    /// The same when the best acts and something of it was misheard.
    pub margin_heard: f32,
    /// The same when the best acts and every word of it was misheard: 冷奇庭机 may be 冷气停机 and 冷机停机.
    pub margin_all_heard: f32,
    /// The same when the best is dangerous.
    pub margin_dangerous: f32,
    /// How sure the classifier must be, 0 to 1, to lift a reading of a command that only reads, and how much that
    /// reading may cost.
    pub vote_read: f32,
    /// See [`Thresholds::vote_read`].
    pub lift_read: f32,
    /// The same for a command that acts. None is dangerous: those are never lifted.
    pub vote_operate: f32,
    /// See [`Thresholds::vote_operate`].
    pub lift_operate: f32,
    /// How far an utterance without a reading may be from a phrase of the command, in hundredths of a character.
    pub lift_form: u32,
    /// A command that was found by words and sounds with less confidence than this, 0 to 1, is held against the
    /// classifier.
    pub doubt_below: f32,
    /// How sure the classifier must be of something else to make a question of it.
    pub doubt_sure: f32,
}

impl Default for Thresholds {
    fn default() -> Thresholds {
        Thresholds {
            read: 32.0,
            operate: 28.0,
            dangerous: 15.0,
            margin: 3.0,
            margin_heard: 5.0,
            margin_all_heard: 10.0,
            margin_dangerous: 6.0,
            vote_read: 0.7,
            lift_read: 62.0,
            vote_operate: 0.8,
            lift_operate: 62.0,
            lift_form: 40,
            doubt_below: 0.8,
            doubt_sure: 0.8,
        }
    }
}

/// Readings kept for an explanation.
const READINGS_MAX: usize = 8;

/// What comes of the utterance by its words and sounds.
pub(super) fn decide(understanding: &Understanding, utterance: &Utterance, hazards: &[Hazard]) -> Resolution {
    let mut found = Vec::new();
    lattice::find(&understanding.words, utterance, &understanding.sounds, &mut found);
    let readings = readings(understanding, utterance, hazards, &mut found);
    let commands = &understanding.commands.list;
    let candidates: Vec<Candidate> = readings
        .iter()
        .filter(|reading| reading.hazard.is_none())
        .take(CANDIDATES_MAX)
        .map(|reading| Candidate { command: commands[reading.command].id.clone(), confidence: sure(reading.cost) })
        .collect();
    let resolution = |outcome: Outcome, confidence: f32| Resolution {
        outcome,
        stage: Stage::Pinyin,
        confidence,
        candidates: candidates.clone(),
        passages: Vec::new(),
    };
    let rejected = Resolution { candidates: candidates.clone(), ..Resolution::rejected(Refused::NoCommand) };
    let mut free = readings.iter().filter(|reading| reading.hazard.is_none());
    let Some(best) = free.next() else {
        return match readings.first().and_then(|reading| reading.hazard) {
            Some(kind) => Resolution::rejected(Refused::Hazard(kind)),
            None => partial(understanding, utterance, hazards, &found),
        };
    };
    let risk = commands[best.command].risk;
    let limits = &understanding.thresholds;
    if !acceptable(best, risk, utterance, limits) {
        if best.left_over && best.cost <= limits.operate * 1.5 {
            return resolution(Outcome::Ambiguous, 0.0);
        }
        let question = partial(understanding, utterance, hazards, &found);
        return if question.outcome == Outcome::Ambiguous { question } else { rejected };
    }
    if best.left_over {
        return resolution(Outcome::Ambiguous, sure(best.cost));
    }
    let margin = margin(best, risk, limits);
    if free.any(|other| other.cost - best.cost < margin) {
        return resolution(Outcome::Ambiguous, sure(best.cost));
    }
    let likeness = Likeness::Near;
    resolution(understanding.outcome(best.command, best.slots.clone(), likeness), sure(best.cost))
}

fn is_core(step: &Step) -> bool {
    matches!(step.role, Role::Need | Role::Verb | Role::Both)
}

/// How much better than the next command a reading must be.
fn margin(best: &Reading, risk: Risk, limits: &Thresholds) -> f32 {
    // Nothing of it was written as anybody would write it: what is nearest by sound must be so by far.
    let all_heard = !best.path.iter().any(|step| step.exact && is_core(step));
    match risk {
        Risk::Dangerous => limits.margin_dangerous,
        Risk::Operate if all_heard => limits.margin_heard.max(limits.margin_all_heard),
        Risk::Operate if !best.exact => limits.margin_heard,
        Risk::Operate | Risk::Read => limits.margin,
    }
}

fn sure(cost: f32) -> f32 {
    (1.0 - cost / 100.0).clamp(0.0, 1.0)
}

fn acceptable(reading: &Reading, risk: Risk, utterance: &Utterance, limits: &Thresholds) -> bool {
    if reading.may_be_another(risk) || reading.is_cut_short(risk, utterance.chars.len()) {
        return false;
    }
    if risk != Risk::Read && reading.verb_goes_on {
        return false;
    }
    match risk {
        Risk::Read => reading.cost <= limits.read && !is_all_guessed(reading),
        Risk::Operate => reading.cost <= limits.operate,
        Risk::Dangerous => {
            reading.cost <= limits.dangerous
                && !reading.path.iter().any(far_heard)
                && is_ordered(reading, utterance)
                && (reading.verb || reading.exact)
                && reading.whole
                && !reading.half
                && (reading.verb_exact || utterance.chars.len() >= WHOLE_LEN_MIN)
        }
    }
}

/// A dangerous command is given in so many words: not by a verb of one character at the edge of a cut sentence (断路器合),
/// not by what is to be or has been done (断路器要分闸, 合上断路器了).
fn is_ordered(reading: &Reading, utterance: &Utterance) -> bool {
    let verbs = || reading.path.iter().filter(|step| matches!(step.role, Role::Verb | Role::Both));
    let chars = &utterance.chars;
    // 可以拔蘑菇了 lets it be done now; a question with 可以 was told before.
    let allows = chars.starts_with(&['可', '以']);
    let asks = allows || chars.iter().any(|ch| "把将请帮给".contains(*ch));
    // 要, 让, 得 and 可 may have lost the 不 before them, and 给 at the end what follows it.
    let cut = |(at, ch): (usize, &char)| {
        let ours = chars[..at].ends_with(&['我']) || chars[..at].ends_with(&['我', '们']);
        let free = ours || (allows && at == 0);
        "要让得可".contains(*ch) && !free
    };
    let wanted = chars.iter().enumerate().any(cut) || chars.last().is_some_and(|ch| "给把将".contains(*ch));
    // 点炉子 says it; 断路器合 was cut short.
    let first = |verb: &Step| reading.path.iter().all(|step| step.role != Role::Need || verb.end <= step.start);
    let whole_verb = verbs().next().is_none() || verbs().any(|step| step.end - step.start >= 2 || first(step));
    whole_verb && !wanted && (asks || chars.last() != Some(&'了'))
}

/// 查询间度: the one thing that is asked for is two syllables, and one of them sounds like none of it.
fn is_all_guessed(reading: &Reading) -> bool {
    let mut things = reading.path.iter().filter(|step| matches!(step.role, Role::Need | Role::Both));
    let far = |step: &Step| !step.exact && step.end - step.start == 2 && step.cost > FAR_HEARD;
    things.next().is_some_and(far) && things.next().is_none()
}

/// What a thing of two syllables may cost before it is none, in hundredths of a syllable.
const FAR_HEARD: u16 = 55;

/// A word of a dangerous command may sound the same, with one regional confusion in it; 防火门 is not 防护门.
fn far_heard(step: &Step) -> bool {
    let syllables = u16::from(step.end - step.start);
    is_core(step) && !step.exact && step.cost > syllables * u16::from(SAME_SOUND) + REGIONAL
}

/// What the dearest regional confusion (f and h, r and l) adds to a word, in hundredths of a syllable.
const REGIONAL: u16 = 20;

/// The readings of an utterance, best first, for a stage that has none yet.
pub(super) fn all_readings(understanding: &Understanding, utterance: &Utterance, hazards: &[Hazard]) -> Vec<Reading> {
    let mut found = Vec::new();
    lattice::find(&understanding.words, utterance, &understanding.sounds, &mut found);
    readings(understanding, utterance, hazards, &mut found)
}

/// The readings of all frames that the words allow, best first, one for each command.
fn readings(
    understanding: &Understanding,
    utterance: &Utterance,
    hazards: &[Hazard],
    found: &mut Vec<lattice::Found>,
) -> Vec<Reading> {
    found.sort_unstable_by_key(|one| (one.start, one.cost, one.word));
    let mut starts = vec![0_u16; utterance.chars.len() + 1];
    for one in found.iter() {
        starts[usize::from(one.start) + 1] += 1;
    }
    for at in 1..starts.len() {
        starts[at] += starts[at - 1];
    }
    let words = &understanding.words;
    let frames = &understanding.frames;
    let mut present = vec![0_u64; frames.names.len() / 64 + 1];
    let mut concepts = Vec::with_capacity(16);
    let mut verbs = 0;
    for one in found.iter() {
        let word = words.word(one.word);
        verbs |= word.actions;
        for concept in words.concepts(word) {
            let (block, bit) = (usize::from(*concept) / 64, 1_u64 << (concept % 64));
            if present[block] & bit == 0 {
                present[block] |= bit;
                concepts.push(*concept);
            }
        }
    }
    let has = |concept: u16| present[usize::from(concept) / 64] & (1 << (concept % 64)) != 0;
    let sounds = &understanding.sounds;
    let scene = Scene { utterance, words, frames, sounds, found, starts, hazards };
    let mut grid = Grid::new();
    let mut readings: Vec<Reading> = Vec::new();
    for number in concepts.iter().flat_map(|concept| frames.with(*concept)) {
        let frame: &Frame = &frames.frames[*number as usize];
        let verb = frame.bare || frame.actions == 0 || frames.verb(verbs, frame.actions) != FAR;
        if !verb || !frame.needs().iter().all(|need| has(*need)) {
            continue;
        }
        let command = &understanding.commands.list[usize::from(frame.command)];
        let Some(reading) = scene.read(frame, command, &mut grid) else { continue };
        match readings.iter_mut().find(|other| other.command == reading.command) {
            Some(other) if (other.hazard.is_some(), other.cost) > (reading.hazard.is_some(), reading.cost) => {
                *other = reading;
            }
            Some(_) => {}
            None => readings.push(reading),
        }
    }
    readings.sort_by(|a, b| a.cost.total_cmp(&b.cost).then(a.command.cmp(&b.command)));
    readings.truncate(READINGS_MAX);
    readings
}

/// Other commands than `own` whose reading of the utterance would be taken and is nearer than the margin, and by how
/// much `own` is ahead of each.
pub(super) fn too_near(
    understanding: &Understanding,
    utterance: &Utterance,
    hazards: &[Hazard],
    own: &str,
) -> Vec<(String, f32)> {
    let mut found = Vec::new();
    lattice::find(&understanding.words, utterance, &understanding.sounds, &mut found);
    let readings = readings(understanding, utterance, hazards, &mut found);
    let commands = &understanding.commands.list;
    let limits = &understanding.thresholds;
    // Phrases are read without their values here, which costs those that take the same kinds the same.
    let needs = |command: &Definition| -> Vec<SlotKind> {
        command.slots.iter().filter(|slot| slot.required).map(|slot| slot.kind).collect()
    };
    let wanted = understanding.definition(own).map(needs).unwrap_or_default();
    let far = |reading: &Reading| {
        let alike = needs(&commands[reading.command]) == wanted;
        reading.cost - if alike { reading.lacks } else { 0.0 }
    };
    let ahead = readings.iter().find(|reading| commands[reading.command].id == own).map_or(0.0, far);
    let others = readings.iter().filter(|reading| reading.hazard.is_none() && commands[reading.command].id != own);
    let near = others.filter(|reading| {
        let risk = commands[reading.command].risk;
        let margin = if risk == Risk::Dangerous { limits.margin_dangerous } else { limits.margin };
        acceptable(reading, risk, utterance, limits) && far(reading) - ahead < margin
    });
    near.map(|reading| (commands[reading.command].id.clone(), (far(reading) - ahead).max(0.0))).collect()
}

/// A sentence of known words that does not say enough: 启动, 温度多少, 打开一号. The person is asked which is meant.
fn partial(
    understanding: &Understanding,
    utterance: &Utterance,
    hazards: &[Hazard],
    found: &[lattice::Found],
) -> Resolution {
    let none = Resolution::rejected(Refused::NoCommand);
    if hazards.iter().any(|hazard| !hazard.soft) {
        return none;
    }
    let mut covered = 0_u64;
    let (mut verbs, mut things) = (0_u64, Vec::new());
    for one in found.iter().filter(|one| one.exact) {
        let word = understanding.words.word(one.word);
        let (start, end) = one.span();
        covered |= super::utterance::mask(end) & !super::utterance::mask(start);
        if !word.filler {
            verbs |= word.actions & !understanding.frames.view;
            things.extend(understanding.words.concepts(word));
        }
    }
    for amount in &utterance.amounts {
        covered |= super::utterance::mask(amount.end.into()) & !super::utterance::mask(amount.start.into());
    }
    if covered != super::utterance::mask(utterance.chars.len()) || (verbs == 0 && things.is_empty()) {
        return none;
    }
    let frames = || understanding.frames.frames.iter().take(PARTIAL_FRAMES_MAX);
    // Naming a thing that no command has (除湿机) is no question about one that some command has.
    let stranger = found.iter().filter(|one| one.exact).any(|one| {
        let meant = understanding.words.concepts(understanding.words.word(one.word));
        !meant.is_empty() && !frames().any(|frame| frame.needs().iter().any(|need| meant.contains(need)))
    });
    if stranger {
        return none;
    }
    let mut scored: Vec<(usize, u16)> = Vec::new();
    for frame in frames() {
        let hits = frame.needs().iter().filter(|need| things.contains(need)).count() * 2
            + usize::from(verbs & frame.actions != 0);
        if hits > 0 && !scored.iter().any(|(other, command)| *command == frame.command && *other >= hits) {
            scored.retain(|(_, command)| *command != frame.command);
            scored.push((hits, frame.command));
        }
    }
    scored.sort_by_key(|(hits, command)| (usize::MAX - hits, *command));
    let candidates: Vec<Candidate> = scored
        .iter()
        .take(CANDIDATES_MAX)
        .map(|(_, command)| Candidate {
            command: understanding.commands.list[usize::from(*command)].id.clone(),
            confidence: 0.0,
        })
        .collect();
    if candidates.is_empty() {
        return none;
    }
    Resolution { outcome: Outcome::Ambiguous, stage: Stage::Pinyin, confidence: 0.0, candidates, passages: Vec::new() }
}

/// Frames looked at for a question; three examples are enough of any set.
const PARTIAL_FRAMES_MAX: usize = 2000;

/// The best readings, for a person.
pub(super) fn explain(understanding: &Understanding, utterance: &Utterance, hazards: &[Hazard]) -> String {
    let readings = all_readings(understanding, utterance, hazards);
    let mut lines = String::new();
    let mut free = readings.iter().filter(|reading| reading.hazard.is_none());
    if let (Some(best), Some(next)) = (free.next(), free.next()) {
        let commands = &understanding.commands.list;
        let risk = commands[best.command].risk;
        let limits = &understanding.thresholds;
        let margin = margin(best, risk, limits);
        lines.push_str(&format!(
            "runner-up: {} is {:.1} behind {}; {margin:.1} is enough\n",
            commands[next.command].id,
            next.cost - best.cost,
            commands[best.command].id,
        ));
    }
    for reading in readings.iter().take(CANDIDATES_MAX) {
        let id = &understanding.commands.list[reading.command].id;
        lines.push_str(&format!("reading: {id} at {:.1}", reading.cost));
        if let Some(kind) = reading.hazard {
            lines.push_str(&format!(", kept back by a {kind}"));
        }
        if reading.left_over {
            lines.push_str(", a value is left over");
        }
        lines.push('\n');
        for step in &reading.path {
            let said: String = utterance.chars[usize::from(step.start)..usize::from(step.end)].iter().collect();
            let what = match step.role {
                Role::Need => "thing",
                Role::Verb => "action",
                Role::Both => "action and thing",
                Role::Zone(_) => "zone",
                Role::Amount(_) => "number",
                Role::Filler => "filler",
                Role::Query => "query",
                Role::Foreign => "something else",
                Role::Unknown => "unexplained",
            };
            let exact = if step.exact || step.role == Role::Unknown { "" } else { ", by sound" };
            lines.push_str(&format!("  {said}: {what}{exact}, {}\n", step.cost));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::super::cascade::{Stages, Step, Walk};
    use super::super::definition::Commands;
    use super::super::definition::sample::command;
    use super::super::lexicon::{Class, Lexicon};
    use super::super::sound::Confusions;
    use super::*;

    fn class(name: &str, words: &str) -> Class {
        Class { name: name.to_owned(), words: words.split(' ').map(str::to_owned).collect(), measures: Vec::new() }
    }

    fn plant() -> Understanding {
        let list = vec![
            command("pump_start", "启动水泵", "启动[{device}]水泵", Risk::Operate),
            command("pump_stop", "停止水泵", "停止[{device}]水泵", Risk::Operate),
            command("pump_status", "查看水泵状态", "[查看][{device}]水泵状态", Risk::Read),
            command("breaker_close", "合上断路器", "合上[{device}]断路器", Risk::Dangerous),
            command("dryer_start", "启动冷干机", "启动[{device}]冷干机", Risk::Operate),
        ];
        let lexicon = Lexicon {
            actions: vec![
                class("START", "启动 打开 转起来"),
                class("STOP", "停止 停掉"),
                class("CLOSE", "合上 推上去"),
            ],
            attributes: vec![class("STATUS", "状态 启动了吗")],
            nouns: vec![class("PUMP", "水泵 泵"), class("BREAKER", "断路器")],
            filler: ["把", "给", "的", "一下"].map(str::to_owned).to_vec(),
            query: vec!["查看".to_owned()],
            others: vec!["除湿机".to_owned()],
            ..Lexicon::default()
        };
        let confusions = Confusions { other: 60, ..Confusions::default() };
        Understanding::compile(Commands { list, ..Commands::default() }, &lexicon, &confusions)
    }

    fn check(text: &str, expected: &str) {
        let plant = plant();
        let Step::Done(found) = Walk::new(&plant, text, Stages::PURE).next() else { panic!("no other stage is on") };
        let found = match found.outcome {
            Outcome::Command(one) => one.command,
            Outcome::Ambiguous => "asked".to_owned(),
            Outcome::Incomplete { .. } | Outcome::Sequence(_) | Outcome::Knowledge | Outcome::Rejected(_) => {
                "nothing".to_owned()
            }
        };
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn other_words_and_another_order_say_the_same() {
        check("把二号泵转起来", "pump_start");
        check("水泵给停掉", "pump_stop");
        check("把断路器推上去", "breaker_close");
    }

    #[test]
    fn a_misheard_word_of_a_command_is_heard_and_another_thing_is_not() {
        check("启动二号水蹦", "pump_start");
        check("启动除湿机", "nothing");
        check("启动喷淋水泵", "nothing");
    }

    #[test]
    fn a_piece_that_the_lexicon_does_not_know_is_a_thing_of_its_own() {
        check("冷干机打开一下", "dryer_start");
    }

    #[test]
    fn a_question_after_a_state_reads_and_starts_nothing() {
        check("水泵启动了吗", "pump_status");
        check("水泵启动了", "asked");
        check("启动三台水泵", "asked");
        check("启动", "asked");
    }
}

//! What the classifier's opinion is worth: it may lift a reading that was not sure enough, doubt one that was hardly
//! sure, and name what to ask.
//!
//! It is never enough by itself. The words and sounds of the utterance must allow the same command, nothing of it may
//! be a hazard or a value that is left over, and a dangerous command is never reached through it: a classifier is
//! confidently wrong where it has seen nothing like it, and a wrong command is worse than none. Its doubt turns a
//! command into a question, never into another command.

use super::cascade::CANDIDATES_MAX;
use super::decide;
use super::definition::{Definition, SlotKind};
use super::frame::FAR;
use super::hazard::{self, Hazard};
use super::lattice;
use super::lexicon;
use super::number::Measure;
use super::pattern::By;
use super::resolution::{Candidate, Likeness, Outcome, Refused, Resolution, SlotValue, Slots, Stage};
use super::score::{Reading, Role, Step};
use super::understanding::Understanding;
use super::utterance::Utterance;
use crate::risk::Risk;

/// The label of the classifier for "no command at all".
pub const NONE_LABEL: &str = "none";
/// A label below this is not worth a question.
const WORTH_ASKING: f32 = 0.1;
/// Most characters that a lifted reading of an acting command may leave unexplained, all in one place.
const UNEXPLAINED_MAX: usize = 2;
/// Between the best aligned label and the next, in hundredths of a character.
const ALIGNED_MARGIN: u32 = 15;
/// What a character costs that was said and is not there.
const LOST: u32 = 75;
/// A character that costs more than this was heard as another altogether; one of them may be in a phrase.
const OTHER: u32 = 65;
/// The shortest end of an utterance that counts as a whole command, in characters: an action and a thing.
const COMMAND_LEN_MIN: usize = 4;
/// Characters that join another thing to what was said.
const JOINING: &str = "和跟与及再又并同";

/// Whether what the pure stages found is so unsure that the classifier is asked for its doubts.
///
/// A command that ends the utterance character by character is not: what goes before it is its reason (机械臂撞人了停止机械臂),
/// which no classifier of commands has seen, and which the hazards have judged.
pub(super) fn is_doubtful(understanding: &Understanding, utterance: &Utterance, found: &Resolution) -> bool {
    found.stage == Stage::Pinyin
        && found.confidence < understanding.thresholds.doubt_below
        && found.command().is_some_and(|understood| !ends_with(understanding, utterance, &understood.command))
}

fn ends_with(understanding: &Understanding, utterance: &Utterance, id: &str) -> bool {
    let (commands, end) = (&understanding.commands, utterance.chars.len());
    (1..end.saturating_sub(COMMAND_LEN_MIN - 1)).any(|start| {
        let span = (start, end);
        let (list, zones, sounds) = (&commands.list, &commands.zones, &understanding.sounds);
        let found = understanding.patterns.find(utterance, span, By::Character, list, zones, sounds);
        found.iter().any(|found| list[found.command].id == id)
    })
}

/// The same resolution, or the question that the classifier's doubt makes of it.
pub(super) fn doubted(understanding: &Understanding, found: &Resolution, labels: &[Candidate]) -> Option<Resolution> {
    let command = &found.command()?.command;
    let other = labels
        .first()
        .filter(|best| best.command != *command && best.confidence >= understanding.thresholds.doubt_sure)?;
    let mut candidates = vec![Candidate { command: command.clone(), confidence: found.confidence }];
    let outcome = if other.command == NONE_LABEL {
        Outcome::Rejected(Refused::NoCommand)
    } else {
        candidates.push(other.clone());
        Outcome::Ambiguous
    };
    Some(Resolution { outcome, stage: Stage::Model, confidence: other.confidence, candidates, passages: Vec::new() })
}

/// The resolution that the labels (best first) lift out of the words and sounds, if they may.
pub(super) fn lifted(understanding: &Understanding, utterance: &Utterance, labels: &[Candidate]) -> Option<Resolution> {
    let best = labels.first()?;
    let number = understanding.commands.list.iter().position(|command| command.id == best.command)?;
    let definition = &understanding.commands.list[number];
    let limits = &understanding.thresholds;
    let (sure, lift) = match definition.risk {
        Risk::Read => (limits.vote_read, limits.lift_read),
        Risk::Operate => (limits.vote_operate, limits.lift_operate),
        Risk::Dangerous => return None,
    };
    if best.confidence < sure {
        return None;
    }
    let hazards = hazard::hazards(&understanding.rules, utterance);
    let readings = decide::all_readings(understanding, utterance, &hazards);
    let own = readings.iter().find(|reading| reading.command == number);
    // A dangerous command that is said at least as well is a question, whatever the classifier thinks.
    let danger = readings.iter().any(|other| {
        understanding.commands.list[other.command].risk == Risk::Dangerous
            && own.is_none_or(|own| other.cost <= own.cost)
    });
    // 食堂的空调: another one, whatever the classifier thinks.
    let len = utterance.chars.len();
    if own.is_some_and(|own| own.may_be_another(definition.risk) || own.is_cut_short(definition.risk, len)) {
        return None;
    }
    let by_reading = own.filter(|own| own.cost <= lift && is_liftable(own, definition.risk, utterance));
    let slots = match by_reading {
        _ if danger => None,
        Some(own) => Some(own.slots.clone()),
        None => by_form(understanding, utterance, labels, &hazards),
    }?;
    Some(Resolution {
        outcome: understanding.outcome(number, slots, Likeness::Near),
        stage: Stage::Model,
        confidence: best.confidence,
        candidates: worth_asking(understanding, labels),
        passages: Vec::new(),
    })
}

/// The labels that are commands of this set and likely enough to ask about, best first.
pub(super) fn worth_asking(understanding: &Understanding, labels: &[Candidate]) -> Vec<Candidate> {
    labels
        .iter()
        .filter(|label| label.confidence >= WORTH_ASKING && understanding.definition(&label.command).is_some())
        .take(CANDIDATES_MAX)
        .cloned()
        .collect()
}

fn is_liftable(reading: &Reading, risk: Risk, utterance: &Utterance) -> bool {
    if reading.hazard.is_some() || reading.left_over || reading.half {
        return false;
    }
    let is_unexplained = |step: &&Step| matches!(step.role, Role::Unknown | Role::Foreign);
    let unexplained: Vec<&Step> = reading.path.iter().filter(is_unexplained).collect();
    let chars = unexplained.iter().flat_map(|step| usize::from(step.start)..usize::from(step.end));
    let joins = chars.clone().any(|at| JOINING.contains(utterance.chars[at]));
    let together = unexplained.windows(2).all(|two| two[0].end == two[1].start);
    risk == Risk::Read || (chars.count() <= UNEXPLAINED_MAX && together && !joins)
}

/// The slots of the first label when the whole utterance is one of its phrases with a few characters misheard, and no
/// other label's phrase is nearly as near. A word that was heard as something else altogether (任模 for 任务) leaves no
/// reading, and the rest of the phrase still says which it was.
fn by_form(
    understanding: &Understanding,
    utterance: &Utterance,
    labels: &[Candidate],
    hazards: &[Hazard],
) -> Option<Slots> {
    let (first, others) = labels.split_first()?;
    let definition = understanding.definition(&first.command)?;
    // 小车撞了 tells what happened, and is no 小车装货.
    let told = definition.risk != Risk::Read && utterance.chars.last() == Some(&'了');
    if told || !hazards.is_empty() || names_another(understanding, utterance, &first.command) {
        return None;
    }
    let (cost, slots) = aligned(understanding, utterance, definition)?;
    let limit = understanding.thresholds.lift_form;
    let rival = others
        .iter()
        .filter_map(|label| aligned(understanding, utterance, understanding.definition(&label.command)?))
        .any(|(other, _)| other < cost + ALIGNED_MARGIN);
    (cost <= limit && !rival).then_some(slots)
}

/// Whether a word is written out that no phrase of the command has: 冷干机 is a thing of its own, however near 冷水机.
fn names_another(understanding: &Understanding, utterance: &Utterance, command: &str) -> bool {
    let frames: Vec<_> = understanding
        .frames
        .frames
        .iter()
        .filter(|frame| understanding.commands.list[usize::from(frame.command)].id == command)
        .collect();
    let mut found = Vec::new();
    lattice::find(&understanding.words, utterance, &understanding.sounds, &mut found);
    found.iter().any(|one| {
        let (start, end) = one.span();
        let word = understanding.words.word(one.word);
        let concepts = understanding.words.concepts(word);
        let is_own = frames.iter().any(|frame| {
            frame.needs().iter().any(|need| concepts.contains(need))
                || (word.actions != 0 && understanding.frames.verb(word.actions, frame.actions) != FAR)
        });
        one.exact && end - start >= 2 && !word.filler && !word.query && !word.reason && !is_own
    })
}

/// How far the utterance is from the nearest phrase of a command, in hundredths of a character, with its device number
/// as a slot. None when no phrase has its length, or another value is in it.
fn aligned(understanding: &Understanding, utterance: &Utterance, definition: &Definition) -> Option<(u32, Slots)> {
    let mut slots = Slots::new();
    let mut cut = 0..0;
    match utterance.amounts.as_slice() {
        [] => {}
        [only] if only.measure == Measure::Ordinal => {
            let slot = definition.slots.iter().find(|slot| slot.kind == SlotKind::DeviceNo)?;
            slots.insert(slot.name.clone(), SlotValue::Number(only.value));
            cut = usize::from(only.start)..usize::from(only.end);
        }
        [_, ..] => return None,
    }
    let phrases = std::iter::once(&definition.text).chain(&definition.aliases);
    let spans = lexicon::trimmed(&utterance.chars, &understanding.ends);
    let mut best: Option<u32> = None;
    for phrase in phrases {
        let phrase: Vec<char> = phrase.chars().collect();
        for (start, end) in &spans {
            let heard: Vec<usize> = (*start..*end).filter(|at| !cut.contains(at)).collect();
            let may_lose = definition.risk == Risk::Read;
            if let Some(cost) = distance(understanding, utterance, &heard, &phrase, may_lose) {
                best = Some(best.map_or(cost, |best| best.min(cost)));
            }
        }
    }
    best.map(|cost| (cost, slots))
}

/// Character by character, at most one of the phrase lost where that is allowed; a character that was not said makes
/// another phrase (冷干机 is no 冷机). Half of the phrase is written just so.
fn distance(
    understanding: &Understanding,
    utterance: &Utterance,
    heard: &[usize],
    phrase: &[char],
    may_lose: bool,
) -> Option<u32> {
    let sounds = &understanding.sounds;
    let price = |at: usize, said: char| {
        u32::from(sounds.cost_of(utterance.chars[at], &utterance.readings[at], said, sounds.usual(said)))
    };
    let lost_at: Vec<Option<usize>> = if heard.len() == phrase.len() {
        vec![None]
    } else if may_lose && heard.len() + 1 == phrase.len() {
        (0..phrase.len()).map(Some).collect()
    } else {
        return None;
    };
    let length = u32::try_from(phrase.len()).ok().filter(|length| *length > 0)?;
    lost_at
        .into_iter()
        .filter_map(|lost| {
            let said = phrase.iter().enumerate().filter(|(at, _)| Some(*at) != lost).map(|(_, said)| *said);
            let pairs: Vec<(usize, char)> = heard.iter().copied().zip(said).collect();
            let same = pairs.iter().filter(|(at, said)| utterance.chars[*at] == *said).count();
            let sum: u32 = pairs.iter().map(|(at, said)| price(*at, *said)).sum();
            let all = sum + if lost.is_some() { LOST } else { 0 };
            let other = pairs.iter().filter(|(at, said)| price(*at, *said) > OTHER).count();
            (same * 2 >= phrase.len() && other <= 1).then_some(all / length)
        })
        .min()
}

#[cfg(test)]
mod tests {
    use super::super::cascade::{Stages, Step as Walked, Walk};
    use super::super::decide::Thresholds;
    use super::super::definition::Commands;
    use super::super::definition::sample::command;
    use super::super::lexicon::{Class, Lexicon};
    use super::super::sound::Confusions;
    use super::*;

    fn plant() -> Understanding {
        let list = vec![
            command("pump_start", "启动水泵", "启动[{device}]水泵", Risk::Operate),
            command("pump_stop", "停止水泵", "停止[{device}]水泵", Risk::Operate),
            command("task_cancel", "取消任务", "取消任务", Risk::Operate),
            command("breaker_close", "合上断路器", "合上[{device}]断路器", Risk::Dangerous),
            command("unit_stop", "停止冷水机组", "停止[{device}]冷水机组", Risk::Operate),
            command("chiller_stop", "停止冷机", "停止[{device}]冷机", Risk::Operate),
        ];
        let class = |name: &str, words: &str| Class {
            name: name.to_owned(),
            words: words.split(' ').map(str::to_owned).collect(),
            measures: Vec::new(),
        };
        let lexicon = Lexicon {
            actions: vec![class("START", "启动"), class("STOP", "停止"), class("CLOSE", "合上")],
            nouns: vec![class("PUMP", "水泵 泵"), class("BREAKER", "断路器")],
            others: vec!["冷干机".to_owned()],
            filler: ["把", "给", "的", "一下", "那个"].map(str::to_owned).to_vec(),
            ..Lexicon::default()
        };
        let confusions = Confusions { other: 60, ..Confusions::default() };
        Understanding::compile(Commands { list, ..Commands::default() }, &lexicon, &confusions)
    }

    /// What becomes of `text` when the classifier names `label` with this confidence, and then `next`.
    fn check(text: &str, label: &str, confidence: f32, next: &str, expected: &str) {
        let plant = plant();
        let mut walk = Walk::new(&plant, text, Stages::PURE.with(Stage::Model));
        if let Walked::Classify(_) = walk.next() {
            let one = |command: &str, confidence| Candidate { command: command.to_owned(), confidence };
            walk.classified(&[one(label, confidence), one(next, 1.0 - confidence)]);
        }
        let Walked::Done(found) = walk.next() else { panic!("{text}: asks again") };
        let shown = match &found.outcome {
            Outcome::Command(one) => {
                let slots: Vec<String> = one.slots.values().map(|value| value.to_json().to_string()).collect();
                format!("{} {}", one.command, slots.join(" ")).trim().to_owned()
            }
            Outcome::Ambiguous => "asked".to_owned(),
            Outcome::Rejected(Refused::Hazard(_)) => "refused".to_owned(),
            Outcome::Incomplete { .. } | Outcome::Sequence(_) | Outcome::Knowledge | Outcome::Rejected(_) => {
                let names: Vec<&str> = found.candidates.iter().map(|one| one.command.as_str()).collect();
                format!("nothing {}", names.join(" ")).trim().to_owned()
            }
        };
        assert_eq!(shown, expected, "{text}");
    }

    #[test]
    fn a_vote_lifts_what_words_and_sounds_allow() {
        // One word that nothing explains is too much of so short a sentence.
        check("二号泵启动哩唏", "pump_start", 0.95, "none", "pump_start 2");
        check("二号泵启动哩唏", "pump_start", 0.5, "none", "nothing pump_start");
        check("二号泵启动哩唏", "pump_stop", 0.95, "none", "nothing pump_stop");
        // It may be another thing, or somebody who starts it.
        check("启动二号泵哩唏", "pump_start", 0.95, "none", "nothing pump_start");
        check("启动哩唏二号泵", "pump_start", 0.95, "none", "nothing pump_start");
        check("哩唏启动二号泵", "pump_start", 0.95, "none", "nothing pump_start");
    }

    #[test]
    fn a_phrase_with_a_word_heard_as_another_is_lifted_and_a_longer_thing_is_not() {
        check("去消任模", "task_cancel", 0.98, "none", "task_cancel");
        check("停止冷干机", "chiller_stop", 0.98, "none", "nothing chiller_stop");
        // A thing of its own, and two characters that are others altogether.
        check("停止冷干机嚯", "unit_stop", 0.98, "none", "nothing unit_stop");
        check("停止嚯水箱组", "unit_stop", 0.98, "none", "nothing unit_stop");
        // Half of it says nothing any more.
        check("去肖任模", "task_cancel", 0.98, "none", "nothing task_cancel");
    }

    #[test]
    fn a_hazard_a_value_and_a_joined_thing_are_never_lifted() {
        check("不要去消任模", "task_cancel", 0.99, "none", "refused");
        check("启动水泵和那个东西", "pump_start", 0.99, "none", "nothing pump_start");
        check("去消任模三十", "task_cancel", 0.99, "none", "nothing task_cancel");
    }

    #[test]
    fn a_dangerous_command_is_never_reached_by_a_vote() {
        check("合上断路器哩唏哈唏", "breaker_close", 1.0, "none", "nothing breaker_close");
        check("合上断路嚯哩", "breaker_close", 1.0, "none", "nothing breaker_close");
    }

    #[test]
    fn doubt_makes_a_question_and_never_another_command() {
        let plant = plant();
        let with = Thresholds { doubt_below: 1.1, ..Thresholds::default() };
        let plant = plant.with_thresholds(with);
        let doubt = |label: &str, confidence: f32| {
            let mut walk = Walk::new(&plant, "水泵给我启洞", Stages::PURE.with(Stage::Model));
            let Walked::Classify(_) = walk.next() else { panic!("not doubted") };
            walk.classified(&[Candidate { command: label.to_owned(), confidence }]);
            let Walked::Done(found) = walk.next() else { panic!("asks again") };
            found.outcome
        };
        let whole = Walk::new(&plant, "撞人了停止水泵", Stages::PURE.with(Stage::Model));
        let Walked::Done(found) = whole.next() else { panic!("doubted") };
        assert_eq!(found.command().map(|it| it.command.as_str()), Some("pump_stop"));
        assert!(matches!(doubt("pump_start", 0.9), Outcome::Command(_)));
        assert!(matches!(doubt("pump_stop", 0.5), Outcome::Command(_)));
        assert_eq!(doubt("pump_stop", 0.9), Outcome::Ambiguous);
        assert_eq!(doubt(NONE_LABEL, 0.9), Outcome::Rejected(Refused::NoCommand));
    }
}

//! The short dialogues: a missing slot, a choice, a confirmation. One for each speaker, and each runs out.
//!
//! An answer fits the question it follows and no other: 确认 is never a number, a number never confirms, and whatever is
//! a command by itself is a new sentence, which ends the dialogue. What comes of an answer is only ever what the speaker
//! said in two parts; it walks through the gate like everything else.

use interlock_domain::command::cascade::{self, Stages, Walk};
use interlock_domain::command::definition::{Slot, SlotKind};
use interlock_domain::command::number::Measure;
use interlock_domain::command::pattern;
use interlock_domain::command::resolution::{
    Candidate, Likeness, Outcome, Refused, Resolution, SlotValue, Stage, Understood,
};
use interlock_domain::command::understanding::Understanding;
use interlock_domain::command::utterance::Utterance;
use interlock_domain::id::QuestionId;
use interlock_domain::time::Tick;

/// Longest answer to a question, in characters: a number, a place, a name. What is longer is a sentence of its own.
const ANSWER_LEN_MAX: usize = 12;

/// What a speaker may answer next.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Dialogue {
    /// A dangerous command waits for 确认.
    Confirm(QuestionId),
    /// A command waits for values.
    Missing {
        /// What was said.
        text: String,
        /// What was understood of it.
        understood: Understood,
        /// The slots that are missing.
        missing: Vec<String>,
    },
    /// Several commands could be meant.
    Which {
        /// What was said.
        text: String,
        /// Their ids, in the order in which they were named.
        candidates: Vec<String>,
    },
}

/// A dialogue and its end.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) dialogue: Dialogue,
    pub(super) until: Tick,
}

/// What an utterance is to a dialogue.
#[derive(Debug, PartialEq)]
pub(super) enum Reply {
    /// Together with what was said before it means this.
    Means(Box<Resolution>),
    /// It is no answer: a new sentence.
    New,
}

/// What `answer` says to a question about `dialogue`. `alone` is what it means by itself.
pub(super) fn reply(understanding: &Understanding, dialogue: &Dialogue, answer: &str, alone: &Resolution) -> Reply {
    match alone.outcome {
        // Whatever says something by itself is a new sentence; so is what forbids, asks or tells.
        Outcome::Command(_)
        | Outcome::Incomplete { .. }
        | Outcome::Sequence(_)
        | Outcome::Knowledge
        | Outcome::Rejected(Refused::Hazard(_) | Refused::NoUtterance) => return Reply::New,
        Outcome::Ambiguous | Outcome::Rejected(Refused::NoCommand) => {}
    }
    let Some(answer) = understanding.utterance(answer).filter(|answer| answer.chars.len() <= ANSWER_LEN_MAX) else {
        return Reply::New;
    };
    let found = match dialogue {
        Dialogue::Confirm(_) => None,
        Dialogue::Missing { text, understood, missing } => {
            filled(understanding, understood, missing, &answer).or_else(|| {
                let whole = |one: &Understood| missing.iter().all(|name| one.slots.contains_key(name));
                let same = |one: &Understood| one.command == understood.command && whole(one);
                joined(understanding, text, &answer.text(), same)
            })
        }
        Dialogue::Which { text, candidates } => {
            let named = chosen(&answer.text(), candidates.len()).and_then(|at| candidates.get(at));
            match named {
                Some(id) => named_one(understanding, text, id),
                None => joined(understanding, text, &answer.text(), |_| true),
            }
        }
    };
    found.map_or(Reply::New, |outcome| Reply::Means(Box::new(of(outcome))))
}

fn of(outcome: Outcome) -> Resolution {
    let candidates: Vec<Candidate> = match &outcome {
        Outcome::Command(one) | Outcome::Incomplete { understood: one, .. } => {
            vec![Candidate { command: one.command.clone(), confidence: 1.0 }]
        }
        Outcome::Sequence(_) | Outcome::Knowledge | Outcome::Ambiguous | Outcome::Rejected(_) => Vec::new(),
    };
    Resolution { outcome, stage: Stage::Pinyin, confidence: 1.0, candidates, passages: Vec::new() }
}

/// The answer is a value and nothing else: 二号, 百分之四十, 泵房.
fn filled(
    understanding: &Understanding,
    understood: &Understood,
    missing: &[String],
    answer: &Utterance,
) -> Option<Outcome> {
    let definition = understanding.definition(&understood.command)?;
    let [name] = missing else { return None };
    let slot = definition.slot(name)?;
    let value = value(answer, slot, &understanding.commands().zones)?;
    let mut whole = understood.clone();
    whole.slots.insert(name.clone(), value);
    whole.likeness = Likeness::Near;
    Some(Outcome::Command(whole))
}

fn value(answer: &Utterance, slot: &Slot, zones: &[String]) -> Option<SlotValue> {
    let chars = &answer.chars;
    let text: String = chars.iter().collect();
    match slot.kind {
        SlotKind::Zone => zones.contains(&text).then_some(SlotValue::Text(text)),
        SlotKind::List => {
            slot.values.iter().find(|listed| listed.said == text).map(|listed| SlotValue::Text(listed.value.clone()))
        }
        // Any text would be an answer: whoever leaves such a slot out says the sentence again.
        SlotKind::Free => None,
        SlotKind::DeviceNo | SlotKind::Number | SlotKind::Percent | SlotKind::Duration | SlotKind::Digits => {
            let [amount] = answer.amounts.as_slice() else { return None };
            let (start, end) = (usize::from(amount.start), usize::from(amount.end));
            let around: String = chars[..start].iter().chain(&chars[end..]).collect();
            let fits = match slot.kind {
                SlotKind::DeviceNo => matches!(amount.measure, Measure::Ordinal | Measure::Plain),
                SlotKind::Percent => matches!(amount.measure, Measure::Percent | Measure::Plain),
                SlotKind::Duration => amount.measure == Measure::Seconds,
                SlotKind::Digits => matches!(amount.measure, Measure::Ordinal | Measure::Plain),
                SlotKind::Number => matches!(
                    amount.measure,
                    Measure::Plain
                        | Measure::Degrees
                        | Measure::Hertz
                        | Measure::Turns
                        | Measure::Speed
                        | Measure::Other
                ),
                SlotKind::Zone | SlotKind::List | SlotKind::Free => false,
            };
            let bare = around.is_empty() || matches!(around.as_str(), "是" | "号" | "的" | "那个" | "就" | "吧");
            (fits && bare).then(|| pattern::value_of(answer, (start, end), slot, zones)).flatten()
        }
    }
}

/// What was said and its answer as one sentence, one way round or the other.
fn joined(
    understanding: &Understanding,
    text: &str,
    answer: &str,
    fits: impl Fn(&Understood) -> bool,
) -> Option<Outcome> {
    [format!("{answer}{text}"), format!("{text}{answer}")].into_iter().find_map(|whole| {
        match Walk::new(understanding, &whole, Stages::PURE).next() {
            cascade::Step::Done(Resolution { outcome: Outcome::Command(one), .. }) if fits(&one) => {
                // Nobody said it in one breath: a protective command does not run at once on it.
                Some(Outcome::Command(Understood { likeness: Likeness::Near, ..one }))
            }
            cascade::Step::Done(_) | cascade::Step::Classify(_) | cascade::Step::Retrieve(_) => None,
        }
    })
}

/// Which of `count` an answer like 第二个 names.
fn chosen(answer: &str, count: usize) -> Option<usize> {
    let at = match answer.trim_end_matches('吧') {
        "第一个" | "第1个" | "一" | "1" | "前一个" | "前面那个" => 0,
        "第二个" | "第2个" | "二" | "2" => 1,
        "第三个" | "第3个" | "三" | "3" => 2,
        "最后一个" => count.checked_sub(1)?,
        "后一个" | "后面那个" if count == 2 => 1,
        _ => return None,
    };
    (at < count).then_some(at)
}

/// The command that was named, with the number that was said before. Another number has no place in it: 启动三台水泵
/// is not answered by naming the pump.
fn named_one(understanding: &Understanding, text: &str, id: &str) -> Option<Outcome> {
    let definition = understanding.definition(id)?;
    let said = understanding.utterance(text)?;
    let mut understood = Understood {
        command: id.to_owned(),
        slots: Default::default(),
        confirm: definition.risk == interlock_domain::risk::Risk::Dangerous,
        likeness: Likeness::Near,
    };
    match said.amounts.as_slice() {
        [] => {}
        [one] if one.measure == Measure::Ordinal => {
            let slot = definition.slots.iter().find(|slot| slot.kind == SlotKind::DeviceNo)?;
            understood.slots.insert(slot.name.clone(), SlotValue::Number(one.value));
        }
        _ => return None,
    }
    let missing: Vec<String> = definition
        .slots
        .iter()
        .filter(|slot| slot.required && !understood.slots.contains_key(&slot.name))
        .map(|slot| slot.name.clone())
        .collect();
    Some(if missing.is_empty() { Outcome::Command(understood) } else { Outcome::Incomplete { understood, missing } })
}

/// Words that take back what was heard before, at the beginning of a sentence.
const TAKEN_BACK: &[&str] = &["不是", "不对", "错了", "说错了", "听错了", "我说的是", "我是说", "我的意思是"];

/// Does the sentence begin by taking back the one before it?
pub(super) fn takes_back(text: &str) -> bool {
    let bare: String = text.chars().filter(|ch| ch.is_alphanumeric()).collect();
    TAKEN_BACK.iter().any(|word| bare.starts_with(word))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use interlock_domain::command::definition::{Commands, Definition};
    use interlock_domain::command::lexicon::{Class, Lexicon};
    use interlock_domain::command::sound::Confusions;
    use interlock_domain::command::template::Template;
    use interlock_domain::risk::Risk;

    use super::*;

    fn command(id: &str, pattern: &str, slots: &[(&str, SlotKind, bool)]) -> Definition {
        Definition {
            id: id.to_owned(),
            text: pattern.chars().filter(|ch| ('\u{4e00}'..='\u{9fff}').contains(ch)).collect(),
            aliases: Vec::new(),
            patterns: vec![Template::parse(pattern).expect("compiles")],
            fallback: Vec::new(),
            slots: slots.iter().map(|(name, kind, required)| Slot::of(name, *kind, *required)).collect(),
            category: "plant".to_owned(),
            risk: Risk::Operate,
            protective: false,
            bind: Vec::new(),
        }
    }

    fn understanding() -> Understanding {
        let device = ("device", SlotKind::DeviceNo, false);
        let list = [
            command("pump_start", "启动[{device}]水泵", &[device]),
            command("fan_start", "启动[{device}]风机", &[device]),
            command("fan_stop", "停止[{device}]风机", &[device]),
            command("spindle_speed", "设置主轴转速[{value}]", &[("value", SlotKind::Number, true)]),
            command("valve_set", "设置[{device}]阀门开度[{percent}]", &[device, ("percent", SlotKind::Percent, true)]),
        ];
        let class = |name: &str, words: &str| Class {
            name: name.to_owned(),
            words: words.split(' ').map(str::to_owned).collect(),
            measures: Vec::new(),
        };
        let lexicon = Lexicon {
            actions: vec![class("START", "启动"), class("STOP", "停止"), class("SET", "设置")],
            nouns: vec![class("PUMP", "水泵"), class("FAN", "风机"), class("SPINDLE", "主轴"), class("VALVE", "阀门")],
            attributes: vec![class("SPEED", "转速"), class("OPENING", "开度")],
            ..Lexicon::default()
        };
        let list = list.map(Arc::new).to_vec();
        let commands = Commands { zones: vec!["泵房".to_owned()], list, ..Commands::default() };
        Understanding::compile(commands, &lexicon, &Confusions { other: 60, ..Confusions::default() })
    }

    fn alone(understanding: &Understanding, text: &str) -> Resolution {
        match Walk::new(understanding, text, Stages::PURE).next() {
            cascade::Step::Done(resolution) => resolution,
            cascade::Step::Classify(_) | cascade::Step::Retrieve(_) => panic!("no other stage is on"),
        }
    }

    /// The dialogue that `said` opens when the plant misses `missing`, or when several commands fit.
    fn opened(understanding: &Understanding, said: &str, missing: &[&str]) -> Dialogue {
        let found = alone(understanding, said);
        match found.outcome {
            Outcome::Command(understood) | Outcome::Incomplete { understood, .. } => Dialogue::Missing {
                text: said.to_owned(),
                understood,
                missing: missing.iter().map(|name| (*name).to_owned()).collect(),
            },
            Outcome::Ambiguous => Dialogue::Which {
                text: said.to_owned(),
                candidates: found.candidates.into_iter().map(|candidate| candidate.command).collect(),
            },
            Outcome::Sequence(_) | Outcome::Knowledge | Outcome::Rejected(_) => panic!("{said}: {:?}", found.outcome),
        }
    }

    fn check(understanding: &Understanding, dialogue: &Dialogue, answer: &str, expected: &str) {
        let shown = match reply(understanding, dialogue, answer, &alone(understanding, answer)) {
            Reply::New => "new".to_owned(),
            Reply::Means(resolution) => match resolution.outcome {
                Outcome::Command(one) => {
                    let slots: Vec<String> =
                        one.slots.iter().map(|(name, value)| format!(" {name}={}", value.to_json())).collect();
                    format!("{}{}", one.command, slots.concat())
                }
                Outcome::Incomplete { understood, missing } => {
                    format!("{} lacks {}", understood.command, missing.join(" "))
                }
                Outcome::Sequence(_) | Outcome::Knowledge | Outcome::Ambiguous | Outcome::Rejected(_) => {
                    "other".to_owned()
                }
            },
        };
        assert_eq!(shown, expected, "{dialogue:?} answered by {answer}");
    }

    #[test]
    fn an_answer_fits_its_own_question() {
        let understanding = understanding();
        let pump = opened(&understanding, "启动水泵", &["device"]);
        check(&understanding, &pump, "二号", "pump_start device=2");
        check(&understanding, &pump, "2号。", "pump_start device=2");
        check(&understanding, &pump, "二", "pump_start device=2");
        check(&understanding, &pump, "是三号", "pump_start device=3");
        check(&understanding, &pump, "二号水泵", "pump_start device=2");
        for no in ["确认", "百分之四十", "泵房", "不要", "停止二号风机", "二号启动了吗", "十分钟", "吃饭去", ""]
        {
            check(&understanding, &pump, no, "new");
        }
        let speed = opened(&understanding, "设置主轴转速", &["value"]);
        check(&understanding, &speed, "八百", "spindle_speed value=800");
        check(&understanding, &speed, "八百转", "spindle_speed value=800");
        check(&understanding, &speed, "二号", "new");
        let valve = opened(&understanding, "设置一号阀门开度", &["percent"]);
        check(&understanding, &valve, "百分之四十", "valve_set device=1 percent=40");
        check(&understanding, &Dialogue::Confirm(QuestionId(1)), "二号", "new");
        check(&understanding, &Dialogue::Confirm(QuestionId(1)), "确认", "new");
    }

    #[test]
    fn a_choice_is_made_by_place_or_by_the_word_that_was_missing() {
        let understanding = understanding();
        let which = |candidates: &[&str], text: &str| Dialogue::Which {
            text: text.to_owned(),
            candidates: candidates.iter().map(|id| (*id).to_owned()).collect(),
        };
        let two = which(&["pump_start", "fan_start"], "启动二号");
        check(&understanding, &two, "第一个", "pump_start device=2");
        check(&understanding, &two, "第二个吧", "fan_start device=2");
        check(&understanding, &two, "第三个", "new");
        check(&understanding, &two, "风机", "fan_start device=2");
        check(&understanding, &two, "确认", "new");
        check(&understanding, &which(&["pump_start"], "启动三台水泵"), "第一个", "new");
        check(&understanding, &which(&["spindle_speed"], "主轴"), "第一个", "spindle_speed lacks value");
    }

    #[test]
    fn a_sentence_that_takes_back_is_known_by_its_beginning() {
        for text in ["不是，我说的是启动二号水泵", "不对，停止风机", "我说的是关灯"] {
            assert!(takes_back(text), "{text}");
        }
        for text in ["启动二号水泵", "启动一号水泵，不对，二号水泵", ""] {
            assert!(!takes_back(text), "{text}");
        }
    }
}

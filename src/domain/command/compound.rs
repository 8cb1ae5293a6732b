//! Several commands in one sentence, and a sentence that takes itself back.
//!
//! A sentence is only taken apart when every part is a command by itself. Half of what was said is never done: if
//! one part is not understood, the whole is a question.

use super::cascade::{self, Stages};
use super::number::{self, Measure};
use super::resolution::{Outcome, Resolution, Stage, Understood};
use super::understanding::Understanding;
use super::utterance::Utterance;

/// Parts that one sentence may have.
pub(super) const PARTS_MAX: usize = 8;

/// Words between two commands, longest first.
const BETWEEN: &[&str] = &[
    "之后再",
    "完了再",
    "好了再",
    "然后再",
    "接着再",
    "并且",
    "然后",
    "接着",
    "随后",
    "同时",
    "还有",
    "顺便",
    "另外",
    "以及",
    "再把",
    "和",
    "跟",
    "与",
    "并",
    "再",
    "后",
];

/// Words that take back what was said before them, longest first.
const TAKEN_BACK: &[&str] = &[
    "不对不对",
    "哦不对",
    "啊不对",
    "噢不对",
    "呃不对",
    "说错了",
    "我说错了",
    "搞错了",
    "弄错了",
    "错了",
    "口误",
    "不对",
    "更正一下",
    "更正",
    "不是不是",
    "不不不",
    "我说的是",
    "我是说",
];

/// The same where a break follows; without it 哦不要打开 forbids. 不是 needs one on both sides.
const TAKEN_BACK_APART: &[&str] = &["哦不", "噢不", "啊不", "呃不", "不不", "不是"];

/// What may stand at the beginning of the correction.
const THEN: &[&str] = &["应该是", "我说的是", "我是说", "是", "要", "应该", "改成"];

/// Longest name of a thing that is said again behind its second number, in characters.
const NAMED_AGAIN_MAX: usize = 6;

/// The resolution of a sentence with several parts; [`None`] when it is one sentence.
pub(super) fn resolve(understanding: &Understanding, utterance: &Utterance, stages: Stages) -> Option<Resolution> {
    if let Some((before, after)) = taken_back(utterance) {
        return corrected(understanding, utterance, before, after, stages);
    }
    both_devices(understanding, utterance, stages).or_else(|| sequence(understanding, utterance, stages))
}

/// Where the correction begins: the end of what is taken back, the beginning of what is meant.
fn taken_back(utterance: &Utterance) -> Option<(usize, usize)> {
    let chars = &utterance.chars;
    let broken = |at: usize| at < 64 && utterance.breaks & (1 << at) != 0;
    let is_reason = |at: usize| "音色味况".contains(chars[at - 1]) && !broken(at);
    let mut last = None;
    let mut from = 0;
    while from < chars.len() {
        let apart = number::any(&chars[from..], TAKEN_BACK_APART)
            .filter(|len| from > 0 && broken(from + len) && (chars[from] != '不' || broken(from)));
        match number::any(&chars[from..], TAKEN_BACK).or(apart) {
            // 对不对, 声音不对, 温度不对劲: not a correction.
            Some(_) if from > 0 && (chars[from - 1] == '对' || is_reason(from)) => from += 1,
            Some(len) if chars.get(from + len) == Some(&'劲') => from += len,
            Some(len) => {
                let begin = last.map_or(from, |(begin, _)| begin);
                last = Some((begin, from + len));
                from += len;
            }
            None => from += 1,
        }
    }
    let (before, mut after) = last?;
    while let Some(len) = number::any(&chars[after..], THEN) {
        after += len;
    }
    Some((before, after))
}

fn corrected(
    understanding: &Understanding,
    utterance: &Utterance,
    before: usize,
    after: usize,
    stages: Stages,
) -> Option<Resolution> {
    let chars = &utterance.chars;
    if after >= chars.len() {
        return None;
    }
    let sounds = &understanding.sounds;
    let meant = utterance.part(after, chars.len(), sounds);
    let alone = cascade::resolve(understanding, &meant, stages);
    if matches!(alone.outcome, Outcome::Command(_) | Outcome::Incomplete { .. } | Outcome::Sequence(_)) {
        return Some(alone);
    }
    // 打开二号，不对，三号水泵: the number is taken back, and what follows it is said anew.
    let said = utterance.part(0, before, sounds);
    let number = said.amounts.iter().rev().find(|amount| {
        let same = |one: Measure, other: Measure| {
            one == other || (one == Measure::Plain && !matches!(other, Measure::Ordinal | Measure::Count))
        };
        meant.amounts.first().is_some_and(|first| first.start == 0 && same(amount.measure, first.measure))
    })?;
    let mut whole = said.chars[..usize::from(number.start)].to_vec();
    whole.extend(&meant.chars);
    let rest = &said.chars[usize::from(number.end)..];
    if meant.amounts.first().is_some_and(|first| usize::from(first.end) == meant.chars.len()) {
        whole.extend(rest);
    }
    if whole.len() > super::utterance::UTTERANCE_LEN_MAX {
        return None;
    }
    let found = cascade::resolve(understanding, &Utterance::of(whole, 0, utterance.asked, sounds), stages);
    matches!(found.outcome, Outcome::Command(_) | Outcome::Incomplete { .. }).then_some(found)
}

/// 启动一号和二号水泵: two requests that differ in their number.
fn both_devices(understanding: &Understanding, utterance: &Utterance, stages: Stages) -> Option<Resolution> {
    let chars = &utterance.chars;
    let two = utterance.amounts.windows(2).find(|two| {
        let between = usize::from(two[0].end)..usize::from(two[1].start);
        let joined = match between.len() {
            0 => utterance.breaks & (1 << two[1].start) != 0 || two[0].measure == Measure::Ordinal,
            _ => {
                let joining = &["以及", "还有", "和", "跟", "与"];
                // 启动一号水泵和二号水泵: the thing is named with each.
                let after = usize::from(two[1].end);
                let named = (between.start..between.end).find(|place| number::any(&chars[*place..], joining).is_some());
                let again = named.filter(|place| {
                    let thing = &chars[between.start..*place];
                    thing.len() <= NAMED_AGAIN_MAX && chars[after..].starts_with(thing)
                });
                again.and_then(|place| Some(place + number::any(&chars[place..], joining)?)) == Some(between.end)
            }
        };
        joined && two[1].measure == Measure::Ordinal && matches!(two[0].measure, Measure::Ordinal | Measure::Plain)
    })?;
    let (first, second) = (two[0], two[1]);
    let without = |from: u8, to: u8| {
        let mut rest = chars[..usize::from(from)].to_vec();
        rest.extend(&chars[usize::from(to)..]);
        Utterance::of(rest, 0, utterance.asked, &understanding.sounds)
    };
    // 一、二号: the first has no 号 of its own, so the second's stands for it.
    let one = if first.measure == Measure::Ordinal {
        without(first.end, second.end)
    } else {
        without(first.bare_end, second.bare_end)
    };
    let mut members = Vec::new();
    for part in [one, without(first.start, second.start)] {
        collect(cascade::resolve(understanding, &part, stages).outcome, &mut members)?;
    }
    Some(of(members))
}

fn sequence(understanding: &Understanding, utterance: &Utterance, stages: Stages) -> Option<Resolution> {
    let parts = split(utterance);
    if parts.len() < 2 || parts.len() > PARTS_MAX {
        return None;
    }
    let mut members = Vec::new();
    for (start, end) in parts {
        let part = utterance.part(start, end, &understanding.sounds);
        collect(cascade::resolve(understanding, &part, stages).outcome, &mut members)?;
    }
    Some(of(members))
}

fn collect(outcome: Outcome, into: &mut Vec<Understood>) -> Option<()> {
    match outcome {
        Outcome::Command(one) => into.push(one),
        Outcome::Sequence(several) => into.extend(several),
        Outcome::Incomplete { .. } | Outcome::Knowledge | Outcome::Ambiguous | Outcome::Rejected(_) => return None,
    }
    (into.len() <= PARTS_MAX).then_some(())
}

fn of(members: Vec<Understood>) -> Resolution {
    Resolution {
        outcome: Outcome::Sequence(members),
        stage: Stage::Pattern,
        confidence: 1.0,
        candidates: Vec::new(),
        passages: Vec::new(),
    }
}

fn split(utterance: &Utterance) -> Vec<(usize, usize)> {
    let chars = &utterance.chars;
    let mut parts = Vec::new();
    let mut start = 0;
    let mut from = 0;
    while from < chars.len() {
        let cut = if from > start && utterance.breaks & (1 << from) != 0 { Some(0) } else { None };
        let word = if from > start { number::any(&chars[from..], BETWEEN) } else { None };
        match (cut, word) {
            (_, Some(len)) => {
                parts.push((start, from));
                from += len;
                start = from;
            }
            (Some(_), None) => {
                parts.push((start, from));
                start = from;
                // 停泵，再启动风机: the word at the beginning of a part says nothing more.
                if let Some(len) = number::any(&chars[from..], BETWEEN) {
                    from += len;
                    start = from;
                } else {
                    from += 1;
                }
            }
            (None, None) => from += 1,
        }
    }
    if start < chars.len() {
        parts.push((start, chars.len()));
    }
    parts
}

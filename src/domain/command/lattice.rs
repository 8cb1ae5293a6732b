//! Which words may have been said where: every word of the set, aligned by sound with every place of an utterance.
//!
//! What is written exactly outweighs what only sounds alike: a misheard reading that lies across an exactly written
//! word costs more, and a word inside a longer one is not there at all (泵 in 排污泵).

use super::sound::{NO_SYLLABLE, Sounds};
use super::utterance::Utterance;
use super::words::{Word, Words};

/// A word that may have been said.
#[derive(Debug, Clone, Copy)]
pub(super) struct Found {
    pub(super) start: u8,
    pub(super) end: u8,
    /// In hundredths.
    pub(super) cost: u16,
    pub(super) word: u32,
    /// Written just so.
    pub(super) exact: bool,
    /// Only half of it was heard.
    pub(super) half: bool,
}

impl Found {
    pub(super) fn span(&self) -> (usize, usize) {
        (usize::from(self.start), usize::from(self.end))
    }
}

/// Words kept of one utterance; more would be noise.
const FOUND_MAX: usize = 400;
/// A syllable of a long word that was not heard.
const LOST: u16 = 55;
/// A syllable of a two-syllable word that was not heard.
const LOST_HALF: u16 = 75;
/// A syllable too many in a long word.
const EXTRA: u16 = 70;
/// A misheard reading across an exactly written word.
const ACROSS: u16 = 90;
/// A misheard reading around an exactly written word.
const AROUND: u16 = 40;
/// A misheard reading of just what is written: 防火门 is a thing of its own, and no 防护门.
const INSTEAD: u16 = 170;
/// A single syllable that only sounds like a verb.
const SINGLE: u16 = 20;
/// Verbs of one syllable that may be heard as another character.
const SINGLE_VERBS: &str = "合拉投切开关停换锁";

/// The words of `utterance`.
pub(super) fn find(words: &Words, utterance: &Utterance, sounds: &Sounds, found: &mut Vec<Found>) {
    found.clear();
    let chars = &utterance.chars;
    for at in 0..chars.len() {
        if found.len() >= FOUND_MAX {
            break;
        }
        let usual = utterance.readings[at][0];
        for (n, reading) in utterance.readings[at].iter().enumerate() {
            if n > 0 && *reading == NO_SYLLABLE {
                break;
            }
            for (near, cost) in words.near(*reading) {
                for number in words.core_first(*near) {
                    core(words, utterance, sounds, at, *number, found);
                }
                if *cost <= 16 {
                    for number in words.other_first(*near) {
                        let word = words.word(*number);
                        if let Some(cost) = straight(words, utterance, sounds, at, word, word.limit.into()) {
                            push(found, at, at + word.len(), cost, *number);
                        }
                    }
                }
            }
        }
        // The first syllable is wrong, the second is right.
        if at + 1 < chars.len() {
            for (near, cost) in words.near(utterance.readings[at + 1][0]) {
                if *cost > 16 {
                    break;
                }
                for number in words.core_second(*near) {
                    let word = words.word(*number);
                    if sounds.cost(usual, words.syllables(word)[0]) > super::words::NEAR_MAX
                        && let Some(cost) = straight(words, utterance, sounds, at, word, word.limit.into())
                    {
                        push(found, at, at + word.len(), cost, *number);
                    }
                }
            }
        }
        // The first syllable was not heard at all.
        for number in words.core_second(usual) {
            let word = words.word(*number);
            let rest = word.len() - 1;
            // A verb without its beginning is another verb (停一下, 一下).
            if rest >= 2
                && word.actions == 0
                && chars.len() - at >= rest
                && words.chars(word)[1..] == chars[at..at + rest]
            {
                push(found, at, at + rest, LOST, *number);
            }
        }
        for number in words.halves(chars[at]) {
            let word = words.word(number);
            if word.compound || word.zone != u16::MAX {
                continue;
            }
            found.push(Found { half: true, ..one(at, at + 1, LOST_HALF, number) });
        }
    }
    settle(words, found);
}

fn one(start: usize, end: usize, cost: u16, word: u32) -> Found {
    let small = |at: usize| u8::try_from(at).unwrap_or(u8::MAX);
    Found { start: small(start), end: small(end), cost, word, exact: cost == 0, half: false }
}

fn push(found: &mut Vec<Found>, start: usize, end: usize, cost: u16, word: u32) {
    // Several readings of one character lead here more than once.
    let twin = found.iter_mut().rev().take(24).find(|other| other.word == word && other.span() == (start, end));
    match twin {
        Some(twin) if twin.cost > cost => {
            twin.cost = cost;
            twin.exact = cost == 0;
        }
        Some(_) => {}
        None => found.push(one(start, end, cost, word)),
    }
}

fn core(words: &Words, utterance: &Utterance, sounds: &Sounds, at: usize, number: u32, found: &mut Vec<Found>) {
    let word = words.word(number);
    let len = word.len();
    if len == 1 {
        let said = words.chars(word)[0];
        if utterance.chars[at] == said {
            push(found, at, at + 1, 0, number);
        } else if SINGLE_VERBS.contains(said) && utterance.readings[at][0] == words.syllables(word)[0] {
            push(found, at, at + 1, SINGLE, number);
        }
        return;
    }
    if let Some(cost) = straight(words, utterance, sounds, at, word, word.limit.into()) {
        push(found, at, at + len, cost, number);
        return;
    }
    if len >= 3 && word.zone == u16::MAX && (word.actions == 0 || len >= 4) {
        if let Some(cost) = skipping(words, utterance, sounds, at, word) {
            push(found, at, at + len - 1, cost, number);
        }
        if let Some(cost) = inserting(words, utterance, sounds, at, word) {
            push(found, at, at + len + 1, cost, number);
        }
    }
}

/// Syllable by syllable, from `at` on.
#[inline]
fn straight(words: &Words, utterance: &Utterance, sounds: &Sounds, at: usize, word: &Word, limit: u16) -> Option<u16> {
    let len = word.len();
    if utterance.chars.len() - at < len {
        return None;
    }
    let heard = &utterance.chars[at..at + len];
    let readings = &utterance.readings[at..at + len];
    let mut sum = 0;
    for (((heard, readings), said), syllable) in
        heard.iter().zip(readings).zip(words.chars(word)).zip(words.syllables(word))
    {
        sum += u16::from(sounds.cost_of(*heard, readings, *said, *syllable));
        if sum > limit {
            return None;
        }
    }
    Some(sum)
}

/// One syllable of the word, not its first, was not heard.
fn skipping(words: &Words, utterance: &Utterance, sounds: &Sounds, at: usize, word: &Word) -> Option<u16> {
    let (said, syllables) = (words.chars(word), words.syllables(word));
    if utterance.chars.len() - at < said.len() - 1 {
        return None;
    }
    let cost = |heard: usize, n: usize| {
        u16::from(sounds.cost_of(utterance.chars[heard], &utterance.readings[heard], said[n], syllables[n]))
    };
    let mut best: Option<u16> = None;
    for lost in 1..said.len() {
        let sum = (0..lost).map(|n| cost(at + n, n)).sum::<u16>()
            + (lost + 1..said.len()).map(|n| cost(at + n - 1, n)).sum::<u16>()
            + LOST;
        if sum <= word.limit.into() && best.is_none_or(|best| sum < best) {
            best = Some(sum);
        }
    }
    best
}

/// One syllable too many was heard inside the word; the rest is written just so.
fn inserting(words: &Words, utterance: &Utterance, sounds: &Sounds, at: usize, word: &Word) -> Option<u16> {
    let (said, syllables) = (words.chars(word), words.syllables(word));
    if utterance.chars.len() - at < said.len() + 1 {
        return None;
    }
    for extra in 1..said.len() {
        let same = |heard: usize, n: usize| {
            sounds.cost_of(utterance.chars[heard], &utterance.readings[heard], said[n], syllables[n]) <= 6
        };
        if (0..extra).all(|n| same(at + n, n)) && (extra..said.len()).all(|n| same(at + n + 1, n)) {
            return (EXTRA <= word.limit.into()).then_some(EXTRA);
        }
    }
    None
}

/// Lets exactly written words prevail.
fn settle(words: &Words, found: &mut Vec<Found>) {
    let exact: Vec<(Found, Word)> = found
        .iter()
        .filter(|one| one.exact && one.end - one.start >= 2)
        .map(|one| (*one, *words.word(one.word)))
        .collect();
    found.retain_mut(|one| {
        let word = words.word(one.word);
        if (word.filler || word.reason) && one.exact {
            return true;
        }
        for (longer, meant) in &exact {
            if longer.word == one.word {
                continue;
            }
            let inside = longer.start <= one.start && one.end <= longer.end;
            let shorter = one.end - one.start < longer.end - longer.start;
            let (meaning, other) = (words.concepts(word), words.concepts(meant));
            let shares_verb = word.actions & meant.actions != 0;
            let means_same = shares_verb || meaning.iter().any(|concept| other.contains(concept));
            // 刀闸 alone may be two things, and is one of them in 地刀闸.
            let no_wider = shares_verb || (means_same && meaning.iter().all(|concept| other.contains(concept)));
            let says_something = !(meant.filler || meant.reason || meant.query);
            let harmless = one.exact && no_wider;
            if inside && shorter && says_something && !harmless {
                return false;
            }
            if !one.exact && !means_same && one.start < longer.end && longer.start < one.end {
                let around = one.start <= longer.start && longer.end <= one.end;
                let instead = one.span() == longer.span() && one.end - one.start >= 3;
                one.cost += match (instead, around) {
                    (true, _) => INSTEAD,
                    (false, true) => AROUND,
                    (false, false) => ACROSS,
                };
                break;
            }
        }
        true
    });
}

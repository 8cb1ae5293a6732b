//! Templates against utterances: character by character, or syllable by syllable.
//!
//! Each template becomes a short program; nothing is expanded. A program is tried only when a rare piece that all
//! its sentences share occurs in the utterance, so that the work follows the utterance and not the number of
//! commands. A match covers the whole utterance: what is left over is never ignored here.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::definition::{Definition, Listed, Slot, SlotKind};
use super::number::{self, Measure};
use super::resolution::{SlotValue, Slots};
use super::sound::{NO_SYLLABLE, READINGS_MAX, Sounds};
use super::template::{Part, Template};
use super::utterance::{Utterance, normal};

/// Steps that one program may take on one utterance. Templates have no loops, but nested options multiply; a
/// template that needs more is not a sentence.
const STEPS_MAX: u32 = 4000;
/// Slots that one match can fill.
const CAPTURES_MAX: usize = 8;
/// Longest text that a free slot may take.
const FREE_LEN_MAX: usize = ENDS_MAX;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Op {
    Char(char),
    /// The slot of this number in its definition.
    Slot(u16),
    /// Go on here, and if that fails at the target.
    Split(u32),
    Jump(u32),
    Accept,
}

/// All templates of a command set, compiled.
pub struct Patterns {
    ops: Vec<Op>,
    /// Where each program starts, and whose it is.
    programs: Vec<Program>,
    index: Index,
    /// Programs without such a piece.
    always: Vec<u32>,
}

#[derive(Debug, Clone, Copy)]
struct Program {
    start: u32,
    command: u32,
    fallback: bool,
}

/// A match of a whole utterance.
#[derive(Debug, Clone, PartialEq)]
pub struct Match {
    /// The command's number in its set.
    pub command: usize,
    /// What its slots hold.
    pub slots: Slots,
    /// How many characters only sound right.
    pub misheard: usize,
    /// Which: bit i for character i.
    pub misheard_at: u64,
    /// Which are written in the template just so.
    pub written_at: u64,
    /// It fits only a template that stands behind those of all others.
    pub fallback: bool,
    /// How many characters stand in slots that take any text: what is written out says more than what fits anything.
    pub free: usize,
    /// How many characters stand in slots.
    pub captured: usize,
}

/// May characters differ that sound the same?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// No.
    Character,
    /// Yes.
    Sound,
}

/// Ends of one value that are tried: the longest list entry and the shorter ones it begins with, or each length of a
/// free text.
const ENDS_MAX: usize = 12;

/// A captured slot: its number, from, to.
type Captures = ([(u16, u8, u8); CAPTURES_MAX], usize);

impl Patterns {
    /// Compiles the texts, aliases and patterns of `commands`, and the learned `phrases` (text, id).
    #[must_use]
    pub fn compile(commands: &[Arc<Definition>], phrases: &[(String, String)], sounds: &Sounds) -> Patterns {
        let mut patterns =
            Patterns { ops: Vec::new(), programs: Vec::new(), index: Index::default(), always: Vec::new() };
        let mut pieces: Vec<(u32, u32)> = Vec::new();
        let mut choices: Vec<(u32, Vec<Vec<u32>>)> = Vec::new();
        for (number, command) in commands.iter().enumerate() {
            let literals = std::iter::once(&command.text).chain(&command.aliases).map(|text| Template::literal(text));
            let learned = phrases.iter().filter(|(_, id)| *id == command.id).map(|(text, _)| Template::literal(text));
            let own = literals.chain(command.patterns.iter().cloned()).chain(learned).map(|template| (template, false));
            for (template, fallback) in own.chain(command.fallback.iter().map(|template| (template.clone(), true))) {
                let program = at_u32(patterns.programs.len());
                let start = at_u32(patterns.ops.len());
                patterns.programs.push(Program { start, command: at_u32(number), fallback });
                patterns.emit(&template.parts, command);
                patterns.ops.push(Op::Accept);
                let mut keys = Vec::new();
                piece_sets(&template.parts, sounds, &mut keys);
                choices.push((program, keys));
            }
        }
        let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
        for key in choices.iter().flat_map(|(_, sets)| sets).flatten() {
            *counts.entry(*key).or_default() += 1;
        }
        for (program, sets) in choices {
            let rarest = sets.into_iter().min_by_key(|set| set.iter().map(|key| counts[key]).sum::<usize>());
            match rarest {
                Some(set) => pieces.extend(set.into_iter().map(|key| (key, program))),
                None => patterns.always.push(program),
            }
        }
        patterns.index = Index::new(pieces);
        patterns.ops.shrink_to_fit();
        patterns
    }

    fn emit(&mut self, parts: &[Part], command: &Definition) {
        for part in parts {
            match part {
                Part::Text(text) => self.ops.extend(text.chars().map(normal).map(Op::Char)),
                Part::Slot(name) => {
                    let slot = command.slots.iter().position(|slot| slot.name == *name).unwrap_or(usize::MAX);
                    self.ops.push(Op::Slot(u16::try_from(slot).unwrap_or(u16::MAX)));
                }
                Part::Choice { branches, optional } => {
                    let mut jumps = Vec::new();
                    for (n, branch) in branches.iter().enumerate() {
                        let last = n + 1 == branches.len() && !optional;
                        let split = self.ops.len();
                        if !last {
                            self.ops.push(Op::Split(0));
                        }
                        self.emit(branch, command);
                        if !last {
                            jumps.push(self.ops.len());
                            self.ops.push(Op::Jump(0));
                            self.ops[split] = Op::Split(at_u32(self.ops.len()));
                        }
                    }
                    let end = at_u32(self.ops.len());
                    for jump in jumps {
                        self.ops[jump] = Op::Jump(end);
                    }
                }
            }
        }
    }

    /// Every command that a template says with the whole of `utterance` from `start` to `end`, in the order of the
    /// set. One match for each command, the one with the fewest misheard characters.
    #[must_use]
    pub fn find(
        &self,
        utterance: &Utterance,
        (start, end): (usize, usize),
        by: By,
        commands: &[Arc<Definition>],
        zones: &[String],
        sounds: &Sounds,
    ) -> Vec<Match> {
        let mut tried: Vec<u32> = Vec::with_capacity(32);
        for at in start..end {
            self.programs_of(utterance, at, end, by, sounds, &mut tried);
        }
        tried.extend(&self.always);
        tried.sort_unstable();
        tried.dedup();
        let mut found: Vec<Match> = Vec::new();
        for program in tried {
            let program = self.programs[program as usize];
            let command = &commands[program.command as usize];
            let mut run = Run {
                patterns: self,
                utterance,
                end,
                by,
                command,
                zones,
                sounds,
                steps: 0,
                misheard: 0,
                misheard_at: 0,
                written_at: 0,
            };
            let mut captures: Captures = ([(0, 0, 0); CAPTURES_MAX], 0);
            if !run.step(program.start as usize, start, &mut captures) {
                continue;
            }
            let matched = Match {
                command: program.command as usize,
                slots: fill(&captures, utterance, command, zones),
                misheard: run.misheard,
                misheard_at: run.misheard_at,
                written_at: run.written_at,
                fallback: program.fallback,
                free: free(&captures, command),
                captured: captures.0[..captures.1].iter().map(|(_, start, end)| usize::from(end - start)).sum(),
            };
            match found.iter_mut().find(|other| other.command == matched.command) {
                Some(other)
                    if (other.misheard, other.fallback, other.free, other.captured)
                        > (matched.misheard, matched.fallback, matched.free, matched.captured) =>
                {
                    *other = matched;
                }
                Some(_) => {}
                None => found.push(matched),
            }
        }
        found
    }

    fn programs_of(&self, utterance: &Utterance, at: usize, end: usize, by: By, sounds: &Sounds, into: &mut Vec<u32>) {
        let readings = |at: usize| -> ([u32; READINGS_MAX], usize) {
            let ch = utterance.chars[at];
            let all = utterance.readings[at];
            if all[0] == NO_SYLLABLE {
                return ([letter(ch), 0, 0, 0], 1);
            }
            let usual = u32::from(sounds.usual(ch));
            let count = if by == By::Character { 1 } else { all.iter().take_while(|s| **s != NO_SYLLABLE).count() };
            let mut keys = [usual, 0, 0, 0];
            for (slot, syllable) in keys.iter_mut().zip(all).take(count) {
                *slot = u32::from(syllable);
            }
            (keys, count)
        };
        let (first, firsts) = readings(at);
        for a in &first[..firsts] {
            into.extend(self.index.of(single(*a)));
            if at + 1 < end {
                let (second, seconds) = readings(at + 1);
                for b in &second[..seconds] {
                    into.extend(self.index.of(pair(*a, *b)));
                }
            }
        }
    }
}

/// Pieces of sound, and the programs whose sentences all contain one of theirs. Looked up twice for each character, so
/// it is hashed.
#[derive(Default)]
struct Index {
    /// A piece and a program, by bucket and then by piece.
    entries: Vec<(u32, u32)>,
    /// Where each bucket begins; one more for the end of the last.
    starts: Vec<u32>,
    /// How far a hash is shifted down to its bucket.
    shift: u32,
}

impl Index {
    /// At least a bucket for each entry, so that most buckets have one piece or none.
    fn new(mut entries: Vec<(u32, u32)>) -> Index {
        let bits = entries.len().max(1).next_power_of_two().trailing_zeros() + 1;
        let mut index = Index { entries: Vec::new(), starts: vec![0; (1 << bits) + 1], shift: u32::BITS - bits };
        entries.sort_unstable_by_key(|(key, program)| (index.bucket(*key), *key, *program));
        entries.dedup();
        entries.shrink_to_fit();
        for (key, _) in &entries {
            let bucket = index.bucket(*key);
            index.starts[bucket + 1] += 1;
        }
        for at in 1..index.starts.len() {
            index.starts[at] += index.starts[at - 1];
        }
        index.entries = entries;
        index
    }

    /// By Fibonacci hashing: the upper bits of a product with 2^32 over the golden ratio.
    fn bucket(&self, key: u32) -> usize {
        (key.wrapping_mul(0x9e37_79b9) >> self.shift) as usize
    }

    /// The programs of a piece.
    fn of(&self, key: u32) -> impl Iterator<Item = u32> {
        let bucket = self.bucket(key);
        let range = match self.starts.get(bucket..=bucket + 1) {
            Some([from, to]) => *from as usize..*to as usize,
            _ => 0..0,
        };
        self.entries[range].iter().filter(move |(other, _)| *other == key).map(|(_, program)| *program)
    }
}

fn at_u32(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

/// A letter as a sound of its own; syllables stay below.
fn letter(ch: char) -> u32 {
    0x200 + (u32::from(ch) & 0xff)
}

fn single(a: u32) -> u32 {
    a
}

fn pair(a: u32, b: u32) -> u32 {
    0x1_0000 + (a << 12) + b
}

/// Sets of pieces, of each of which every sentence of `parts` contains at least one.
fn piece_sets(parts: &[Part], sounds: &Sounds, into: &mut Vec<Vec<u32>>) {
    let sound = |ch: char| match sounds.usual(normal(ch)) {
        NO_SYLLABLE => letter(normal(ch)),
        syllable => u32::from(syllable),
    };
    for part in parts {
        match part {
            Part::Text(text) => {
                let chars: Vec<char> = text.chars().collect();
                if let [only] = chars[..] {
                    into.push(vec![single(sound(only))]);
                }
                into.extend(chars.windows(2).map(|two| vec![pair(sound(two[0]), sound(two[1]))]));
            }
            Part::Slot(_) => {}
            Part::Choice { optional: true, .. } => {}
            Part::Choice { branches, optional: false } => {
                let each: Vec<Vec<Vec<u32>>> = branches
                    .iter()
                    .map(|branch| {
                        let mut sets = Vec::new();
                        piece_sets(branch, sounds, &mut sets);
                        sets
                    })
                    .collect();
                if each.iter().all(|sets| !sets.is_empty()) {
                    into.push(each.into_iter().filter_map(|sets| sets.into_iter().next()).flatten().collect());
                }
            }
        }
    }
}

struct Run<'a> {
    patterns: &'a Patterns,
    utterance: &'a Utterance,
    end: usize,
    by: By,
    command: &'a Definition,
    zones: &'a [String],
    sounds: &'a Sounds,
    steps: u32,
    misheard: usize,
    misheard_at: u64,
    written_at: u64,
}

impl Run<'_> {
    fn step(&mut self, mut pc: usize, mut at: usize, captures: &mut Captures) -> bool {
        let before = (self.misheard, self.misheard_at, self.written_at);
        loop {
            self.steps += 1;
            if self.steps > STEPS_MAX {
                return false;
            }
            match self.patterns.ops[pc] {
                Op::Accept => {
                    if at == self.end {
                        return true;
                    }
                    break;
                }
                Op::Char(expected) => {
                    if at >= self.end || !self.same(at, expected) {
                        break;
                    }
                    at += 1;
                    pc += 1;
                }
                Op::Jump(target) => pc = target as usize,
                Op::Split(target) => {
                    let held = captures.1;
                    if self.step(pc + 1, at, captures) {
                        return true;
                    }
                    captures.1 = held;
                    pc = target as usize;
                }
                Op::Slot(slot) => {
                    let held = captures.1;
                    let kind = self.command.slots.get(usize::from(slot)).map(|slot| slot.kind);
                    let ends = kind.map_or(([0; ENDS_MAX], 0), |kind| self.slot_ends(kind, slot, at));
                    for stop in &ends.0[..ends.1] {
                        captures.1 = held;
                        let before = (self.misheard, self.misheard_at);
                        self.mishear(slot, at, *stop);
                        if held < CAPTURES_MAX {
                            captures.0[held] = (slot, small(at), small(*stop));
                            captures.1 = held + 1;
                        }
                        if self.step(pc + 1, *stop, captures) {
                            return true;
                        }
                        (self.misheard, self.misheard_at) = before;
                    }
                    captures.1 = held;
                    break;
                }
            }
        }
        (self.misheard, self.misheard_at, self.written_at) = before;
        false
    }

    fn same(&mut self, at: usize, expected: char) -> bool {
        if self.utterance.chars[at] == expected {
            self.written_at |= 1 << at;
            return true;
        }
        if self.by == By::Character {
            return false;
        }
        let syllable = self.sounds.usual(expected);
        let same = syllable != NO_SYLLABLE && self.utterance.readings[at].contains(&syllable);
        self.misheard += usize::from(same);
        self.misheard_at |= u64::from(same) << at;
        same
    }

    /// Counts the characters from `at` to `stop` that only sound like the listed value that they say.
    fn mishear(&mut self, slot: u16, at: usize, stop: usize) {
        let Some(slot) = self.command.slots.get(usize::from(slot)) else { return };
        let zones = if slot.kind == SlotKind::Zone { self.zones } else { &[] };
        if self.by == By::Character || !matches!(slot.kind, SlotKind::Zone | SlotKind::List) {
            return;
        }
        let unlike = |said: &String| {
            let heard = self.utterance.chars[at..stop].iter().enumerate();
            let said = said.chars().map(normal);
            heard.zip(said).filter(|((_, a), b)| **a != *b).fold(0_u64, |bits, ((n, _), _)| bits | 1 << (at + n))
        };
        let values = zones.iter().chain(slot.values.iter().map(|listed| &listed.said));
        let fitting = values.filter(|said| said.chars().count() == stop - at).map(unlike);
        if let Some(bits) = fitting.min_by_key(|bits| bits.count_ones()) {
            self.misheard += bits.count_ones() as usize;
            self.misheard_at |= bits;
        }
    }

    /// Does the character at `at` say `expected`, or sound like it where that counts?
    fn could_be(&self, at: usize, expected: char) -> bool {
        let (heard, expected) = (self.utterance.chars[at], normal(expected));
        let syllable = self.sounds.usual(expected);
        heard == expected
            || (self.by == By::Sound && syllable != NO_SYLLABLE && self.utterance.readings[at].contains(&syllable))
    }

    /// Where a value of this kind that begins at `at` may end.
    fn slot_ends(&mut self, kind: SlotKind, slot: u16, at: usize) -> ([usize; ENDS_MAX], usize) {
        let mut ends = ([0; ENDS_MAX], 0);
        let mut push = |end: usize| {
            if end <= self.end && ends.1 < ENDS_MAX && !ends.0[..ends.1].contains(&end) {
                ends.0[ends.1] = end;
                ends.1 += 1;
            }
        };
        if matches!(kind, SlotKind::Zone | SlotKind::List) {
            let listed = self.command.slots.get(usize::from(slot)).map_or(&[][..], |slot| &slot.values);
            let zones = if kind == SlotKind::Zone { self.zones } else { &[] };
            for said in zones.iter().chain(listed.iter().map(|listed| &listed.said)) {
                let mut stop = at;
                let fits = said.chars().all(|ch| {
                    stop += 1;
                    stop <= self.end && self.could_be(stop - 1, ch)
                });
                if fits {
                    push(stop);
                }
            }
            // The longest first: 客厅灯 and not 客厅.
            ends.0[..ends.1].sort_unstable_by_key(|end| usize::MAX - end);
            return ends;
        }
        if kind == SlotKind::Free {
            // The shortest first: what follows in the template decides.
            for len in 1..=FREE_LEN_MAX.min(self.end.saturating_sub(at)) {
                push(at + len);
            }
            return ends;
        }
        let amount = self.utterance.amounts.iter().find(|amount| usize::from(amount.start) == at);
        // 5分钟30秒 is one amount; a template that spells the units out takes its numbers one by one.
        if kind == SlotKind::Number
            && amount.is_none_or(|amount| matches!(amount.measure, Measure::Seconds | Measure::Count))
            && let Some((_, end)) = number::bare_at(&self.utterance.chars, at)
        {
            push(end);
        }
        let Some(amount) = amount else { return ends };
        let (end, bare) = (usize::from(amount.end), usize::from(amount.bare_end));
        match (kind, amount.measure) {
            (SlotKind::DeviceNo, Measure::Ordinal) => {
                push(end);
                push(bare);
            }
            // 两泵齐开 speaks of two pumps, and not of number two.
            (SlotKind::DeviceNo, Measure::Plain) if matches!(self.utterance.chars[at], '两' | '俩') => {}
            (SlotKind::DeviceNo, Measure::Plain) => push(bare),
            (SlotKind::Digits, Measure::Plain | Measure::Ordinal) => push(bare),
            (SlotKind::Percent, Measure::Percent) => push(end),
            (SlotKind::Percent | SlotKind::Number, Measure::Plain) => push(bare),
            (SlotKind::Duration, Measure::Seconds) => push(end),
            (
                SlotKind::Number,
                Measure::Degrees | Measure::Hertz | Measure::Turns | Measure::Speed | Measure::Other,
            ) => push(bare),
            (SlotKind::DeviceNo | SlotKind::Digits | SlotKind::Percent | SlotKind::Number | SlotKind::Duration, _)
            | (SlotKind::Zone | SlotKind::List | SlotKind::Free, _) => {}
        }
        ends
    }
}

fn small(at: usize) -> u8 {
    u8::try_from(at).unwrap_or(u8::MAX)
}

fn free(captures: &Captures, command: &Definition) -> usize {
    let any = |slot: u16| command.slots.get(usize::from(slot)).is_some_and(|slot| slot.kind == SlotKind::Free);
    captures.0[..captures.1]
        .iter()
        .filter(|(slot, ..)| any(*slot))
        .map(|(_, start, end)| usize::from(end - start))
        .sum()
}

fn fill(captures: &Captures, utterance: &Utterance, command: &Definition, zones: &[String]) -> Slots {
    let mut slots = Slots::new();
    for (slot, start, end) in &captures.0[..captures.1] {
        let Some(slot) = command.slots.get(usize::from(*slot)) else { continue };
        if let Some(value) = value_of(utterance, (usize::from(*start), usize::from(*end)), slot, zones) {
            slots.insert(slot.name.clone(), value);
        }
    }
    slots
}

/// What a slot holds when these characters fill it.
#[must_use]
pub fn value_of(
    utterance: &Utterance,
    (start, end): (usize, usize),
    slot: &Slot,
    zones: &[String],
) -> Option<SlotValue> {
    let text = || utterance.chars[start..end].iter().collect::<String>();
    match slot.kind {
        SlotKind::List => {
            let heard = text();
            // Lengths agree, so the sounds did: the value with most of the characters is meant.
            let alike = |listed: &&Listed| {
                let said = listed.said.chars().map(normal);
                let same = said.zip(&utterance.chars[start..end]).filter(|(a, b)| a == *b).count();
                if listed.said.chars().count() == end - start { same + 1 } else { 0 }
            };
            // Of equals the first: `max_by_key` gives the last.
            let found = slot.values.iter().rev().max_by_key(alike).filter(|listed| alike(listed) > 0);
            Some(SlotValue::Text(found.map_or(heard, |listed| listed.value.clone())))
        }
        SlotKind::Zone => {
            let heard = text();
            // A zone that was misheard is named as the plant names it; lengths agree, so the sounds did.
            let zone = zones.iter().find(|zone| **zone == heard).or_else(|| {
                zones.iter().find(|zone| {
                    zone.chars().count() == end - start
                        && zone.chars().zip(&utterance.chars[start..end]).any(|(a, b)| a == *b)
                })
            });
            Some(SlotValue::Text(zone.cloned().unwrap_or(heard)))
        }
        SlotKind::Free => Some(SlotValue::Text(text())),
        SlotKind::DeviceNo | SlotKind::Number | SlotKind::Percent | SlotKind::Duration | SlotKind::Digits => {
            let amount = utterance.amounts.iter().find(|amount| usize::from(amount.start) == start);
            let inside = amount.is_none_or(|amount| matches!(amount.measure, Measure::Seconds | Measure::Count));
            if slot.kind == SlotKind::Number && inside {
                let (value, found) = number::bare_at(&utterance.chars, start)?;
                return (found == end).then_some(SlotValue::Number(value));
            }
            let amount = amount?;
            Some(if slot.kind == SlotKind::Digits {
                SlotValue::Text(number::digits(&utterance.chars, amount))
            } else {
                SlotValue::Number(amount.value)
            })
        }
    }
}

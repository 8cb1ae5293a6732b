//! How well an utterance says a command: the cheapest way to explain all of it.
//!
//! Every character is explained by something: a word that the command needs, a value, a word that means nothing, or
//! nothing at all, which costs most. The cost is taken over the length of what was said. A hazard is harmless only
//! inside an exactly written word of the explanation, and a value that is left over is a question, never a guess.

use super::definition::{Definition, SlotKind};
use super::frame::{FAR, Frame, Frames, measure_bit};
use super::hazard::Hazard;
use super::lattice::Found;
use super::number::{self, Measure};
use super::resolution::{HazardKind, SlotValue, Slots};
use super::sound::Sounds;
use super::utterance::Utterance;
use super::words::{Word, Words};
use crate::risk::Risk;

/// Costs in hundredths of a character; the thresholds that they are held against stand in `decide`.
mod cost {
    /// A character that nothing explains.
    pub(super) const UNKNOWN: u16 = 100;
    /// A word of something else, and each of its characters.
    pub(super) const FOREIGN: u16 = 130;
    pub(super) const FOREIGN_CHAR: u16 = 20;
    /// When that word is a verb: 停止启动水泵 starts nothing.
    pub(super) const FOREIGN_VERB: u16 = 150;
    /// A word that means nothing.
    pub(super) const FILLER: u16 = 3;
    /// A word that asks to see something, for a command that shows, and for one that acts.
    pub(super) const QUERY: u16 = 2;
    pub(super) const QUERY_ACTING: u16 = 200;
    /// Half of such a word.
    pub(super) const HALF_QUERY: u16 = 40;
    /// What was needed, said again.
    pub(super) const AGAIN: u16 = 15;
    /// A place, for a command that has no place.
    pub(super) const PLACE: u16 = 30;
    /// A number without a unit as the number of a device.
    pub(super) const PLAIN_DEVICE: u16 = 10;
    /// 一个, 一次.
    pub(super) const ONE: u16 = 5;
    /// A thing of the same trade beside a phrase of the floor.
    pub(super) const TRADE: u16 = 5;
    /// A value that fits no slot.
    pub(super) const LEFT_OVER: u16 = 150;
    /// A setting said without its verb, and with a number that has no unit.
    pub(super) const NO_VERB: u16 = 25;
    pub(super) const NO_UNIT: u16 = 30;
    /// A setting said without its value: it can only be asked for.
    pub(super) const NO_VALUE: u16 = 60;
    /// A clause before the command that gives a reason, at most; ended by 了 or a comma.
    pub(super) const REASON: u16 = 90;
    pub(super) const REASON_ENDED: u16 = 50;
    /// Characters right before a thing that could be part of its name (喷淋 before 泵).
    pub(super) const MODIFIER: u16 = 150;
    /// A syllable of a misheard word that is all there is.
    pub(super) const ALONE: u16 = 12;
    /// A thing of two syllables that was misheard by more than this, for a command that acts.
    pub(super) const FAR_HEARD: u16 = 60;
    /// What that adds.
    pub(super) const FAR_HEARD_COST: u16 = 50;
    /// Something misheard and something unexplained in one sentence.
    pub(super) const BOTH: u16 = 60;
}

/// How an utterance says a command.
#[derive(Debug, Clone)]
pub(super) struct Reading {
    pub(super) command: usize,
    /// Hundredths of a character, over the length.
    pub(super) cost: f32,
    pub(super) slots: Slots,
    /// The part of it that a value would take away which was not said.
    pub(super) lacks: f32,
    /// All of it is written as the commands write it, only in other words or order.
    pub(super) exact: bool,
    /// The verb is written exactly.
    pub(super) verb_exact: bool,
    /// Nothing of the core is unexplained.
    pub(super) whole: bool,
    /// A value or a 号 that fits nothing.
    pub(super) left_over: bool,
    /// Only half of a word was heard.
    pub(super) half: bool,
    /// It may speak of another thing: one of the syllables sounds like nothing of this one, or something unknown says
    /// which or whose it is.
    pub(super) strange: bool,
    /// The verb may be the beginning of another one.
    pub(super) verb_goes_on: bool,
    /// A verb was said.
    pub(super) verb: bool,
    /// What forbids it.
    pub(super) hazard: Option<HazardKind>,
    /// For an explanation.
    pub(super) path: Vec<Step>,
}

impl Reading {
    /// Whether it may speak of another thing, for a command of this risk: reading the wrong one does no harm.
    pub(super) fn may_be_another(&self, risk: Risk) -> bool {
        self.strange && risk != Risk::Read
    }

    /// Whether a sentence of `len` characters is too short for what is not certain in it: half of a word, or a verb of
    /// one character that only sounds like one (听加工 for 停加工, or for 暂停加工).
    pub(super) fn is_cut_short(&self, risk: Risk, len: usize) -> bool {
        let guessed = |step: &Step| step.role == Role::Verb && !step.exact && step.end - step.start == 1;
        len < WHOLE_LEN_MIN && (self.half || (risk != Risk::Read && self.path.iter().any(guessed)))
    }
}

/// Shortest sentence in which what is not certain counts, in characters.
pub(super) const WHOLE_LEN_MIN: usize = 4;

/// A piece of an explanation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Step {
    pub(super) start: u8,
    pub(super) end: u8,
    pub(super) cost: u16,
    pub(super) role: Role,
    /// Written just so.
    pub(super) exact: bool,
}

/// What a piece of an utterance is to a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Need,
    Verb,
    /// A word that is a verb and a thing.
    Both,
    Zone(u16),
    Amount(u8),
    Filler,
    Query,
    Foreign,
    Unknown,
}

/// What all frames of one utterance share.
pub(super) struct Scene<'a> {
    pub(super) utterance: &'a Utterance,
    pub(super) words: &'a Words,
    pub(super) frames: &'a Frames,
    pub(super) sounds: &'a Sounds,
    pub(super) found: &'a [Found],
    /// Where the words of each place begin in `found`.
    pub(super) starts: Vec<u16>,
    pub(super) hazards: &'a [Hazard],
}

#[derive(Clone, Copy)]
struct Cell {
    cost: u16,
    from: u8,
    state: u8,
    role: Role,
    step: u16,
    exact: bool,
}

const NOWHERE: Cell = Cell { cost: u16::MAX, from: 0, state: 0, role: Role::Unknown, step: 0, exact: false };

impl Scene<'_> {
    /// The cheapest reading of the utterance as `frame`, if its needs can be met at all.
    pub(super) fn read(&self, frame: &Frame, command: &Definition, grid: &mut Grid) -> Option<Reading> {
        let len = self.utterance.chars.len();
        // States: a bit for each need, and one for the verb.
        let verb_bit = 1 << frame.count;
        let full = verb_bit - 1;
        grid.clear(len, verb_bit * 2);
        grid.cells[0].cost = 0;
        for at in 0..len {
            if grid.row(at).iter().all(|cell| cell.cost == u16::MAX) {
                continue;
            }
            grid.step(at, at + 1, 0, cost::UNKNOWN, Role::Unknown, false);
            let (from, to) = (usize::from(self.starts[at]), usize::from(self.starts[at + 1]));
            for found in &self.found[from..to] {
                self.word(found, frame, command, grid);
            }
            for (n, amount) in self.utterance.amounts.iter().enumerate() {
                if usize::from(amount.start) == at {
                    let price = amount_cost(amount.measure, amount.value, command);
                    let role = Role::Amount(u8::try_from(n).unwrap_or(u8::MAX));
                    grid.step(at, usize::from(amount.end), 0, price, role, true);
                    // 三号车: the 号 may belong to the word behind it.
                    let bare = usize::from(amount.bare_end);
                    if amount.measure == Measure::Ordinal && self.utterance.chars.get(bare) == Some(&'号') {
                        grid.step(at, bare, 0, price + cost::FILLER, role, true);
                    }
                }
            }
        }
        let with_verb = grid.at(len, full | verb_bit);
        let without = grid.at(len, full);
        let may_lack = frame.bare || frame.actions == 0;
        let state = match (with_verb.cost, without.cost) {
            (u16::MAX, u16::MAX) => return None,
            (_, without) if !may_lack || without == u16::MAX => full | verb_bit,
            (with, without) if with <= without.saturating_add(cost::NO_VERB) => full | verb_bit,
            _ => full,
        };
        let cell = grid.at(len, state);
        if cell.cost == u16::MAX {
            return None;
        }
        self.judge(frame, command, grid.path(len, state), state & verb_bit != 0)
    }

    fn word(&self, found: &Found, frame: &Frame, command: &Definition, grid: &mut Grid) {
        let (start, end) = found.span();
        let word = self.words.word(found.word);
        let concepts = self.words.concepts(word);
        let verb_bit = 1 << frame.count;
        let needed = frame.needs().iter().enumerate().filter(|(_, need)| concepts.contains(need));
        let bits = needed.fold(0, |bits, (n, _)| bits | (1 << n));
        let verb =
            if word.actions == 0 || frame.actions == 0 { FAR } else { self.frames.verb(word.actions, frame.actions) };
        if word.compound {
            let all = concepts.iter().all(|concept| frame.needs().contains(concept));
            if all && word.actions == 0 {
                grid.step(start, end, bits, found.cost, Role::Need, found.exact);
            } else if all && verb != FAR {
                grid.step(start, end, bits | verb_bit, found.cost + u16::from(verb), Role::Both, found.exact);
            } else if found.exact {
                grid.step(start, end, 0, foreign(word), Role::Foreign, true);
            }
            return;
        }
        if word.zone != u16::MAX {
            let has = command.slots.iter().any(|slot| slot.kind == SlotKind::Zone);
            let price = found.cost + if has { 0 } else { cost::PLACE };
            // 东门 is a place and a gate; 泵房 is a place, and the thing whose temperature is asked for.
            let named = frame.needs().iter().enumerate().filter(|(_, need)| concepts.contains(need));
            let bits = named.fold(0, |bits, (n, _)| bits | (1 << n));
            grid.step(start, end, bits, price, Role::Zone(word.zone), found.exact);
            return;
        }
        if bits != 0 && !(found.half && command.risk != Risk::Read) {
            grid.step(start, end, bits, found.cost, Role::Need, found.exact);
        }
        // 监控 behind 大门 is a thing; it could be a verb only of a class that is near.
        let is_thing = found.exact && !concepts.is_empty() && bits == 0 && verb > 0 && command.risk != Risk::Read;
        if verb != FAR && !is_thing && !(word.query && command.risk == Risk::Read) {
            grid.step(start, end, verb_bit, found.cost + u16::from(verb), Role::Verb, found.exact);
        }
        if word.query {
            let price = if command.risk == Risk::Read { cost::QUERY } else { cost::QUERY_ACTING };
            let price = if found.half { cost::HALF_QUERY } else { price + found.cost };
            if found.exact || command.risk == Risk::Read {
                grid.step(start, end, 0, price, Role::Query, found.exact);
            }
        }
        if word.filler && found.half && command.risk == Risk::Read {
            grid.step(start, end, 0, cost::HALF_QUERY, Role::Filler, false);
        }
        if !found.exact {
            return;
        }
        if frame.slang && bits == 0 && !concepts.is_empty() && self.frames.same_trade(frame, concepts) {
            grid.step(start, end, 0, cost::TRADE, Role::Filler, true);
        } else if word.filler {
            grid.step(start, end, 0, cost::FILLER, Role::Filler, true);
        } else if word.reason {
            // Before the verb only: 吹风好冷 tells of the wind.
            let most = if frame.actions == 0 { 1 } else { verb_bit };
            grid.step_below(most, start, end, cost::FILLER, Role::Filler);
        } else if bits == 0 && (verb == FAR || is_thing) && !word.query && end - start >= 2 {
            grid.step(start, end, 0, foreign(word), Role::Foreign, true);
        }
    }

    fn judge(&self, frame: &Frame, command: &Definition, mut path: Vec<Step>, verb: bool) -> Option<Reading> {
        let chars = &self.utterance.chars;
        let is_core =
            |step: &Step| matches!(step.role, Role::Need | Role::Verb | Role::Both | Role::Zone(_) | Role::Amount(_));
        let first = path.iter().position(is_core)?;
        let core_exact =
            path.iter().filter(|step| matches!(step.role, Role::Need | Role::Verb | Role::Both)).all(|s| s.exact);
        let misheard: u16 = path.iter().filter(|step| is_core(step) && !step.exact).map(|step| step.cost).sum();
        let prefix: u16 = path[..first].iter().map(|step| step.cost).sum();
        let unexplained = |steps: &[Step]| steps.iter().any(|step| matches!(step.role, Role::Unknown | Role::Foreign));
        let mut total: u16 = path.iter().fold(0, |sum, step| sum.saturating_add(step.cost));
        let mut reason = false;
        // 仓库的 before 灯 says whose.
        let whose = command.risk != Risk::Read && first > 0 && chars[usize::from(path[first].start) - 1] == '的';
        if prefix > cost::REASON_ENDED && core_exact && !whose && self.is_reason(&path[..first]) {
            let ended = self.is_ended(&path, first);
            // 电压偏低 is known, word by word; 歌名叫 could make anything of what follows.
            let known = !path[..first].iter().any(|step| step.role == Role::Unknown);
            if ended || known {
                let most = if ended { cost::REASON_ENDED } else { cost::REASON };
                reason = ended;
                total -= prefix - prefix.min(most);
            }
        }
        let whole = !unexplained(&path[first..]) && (reason || !unexplained(&path[..first]));
        if frame.slang && !whole {
            return None;
        }
        // One misheard word and nothing else that is certain: ordinary speech (去吃饭 for 磁盘).
        let core: Vec<&Step> = path.iter().filter(|step| is_core(step)).collect();
        let certain = path.iter().any(|step| step.exact && (is_core(step) || step.role == Role::Query));
        let heard: u16 = core.iter().map(|step| u16::from(step.end - step.start)).sum();
        if !certain && core.len() == 1 && misheard > heard * cost::ALONE {
            return None;
        }
        let others = self.others(command, &path, first, reason);
        total = total.saturating_add(cost::MODIFIER.saturating_mul(others));
        let far = |step: &Step| {
            step.role == Role::Need && !step.exact && step.end - step.start == 2 && step.cost > cost::FAR_HEARD
        };
        if command.risk != Risk::Read && path.iter().any(far) {
            total = total.saturating_add(cost::FAR_HEARD_COST);
        }
        if misheard > 30 && !whole {
            total = total.saturating_add(cost::BOTH);
        }
        let fillers: usize = path
            .iter()
            .filter(|step| matches!(step.role, Role::Filler | Role::Query))
            .map(|step| usize::from(step.end - step.start))
            .sum();
        let (slots, left_over, value) = self.fill(frame.command, command, &path);
        if frame.implied != 0 {
            // 转速两万转的主轴 names a thing: a setting that only its unit tells of leaves nothing unexplained.
            if !verb && unexplained(&path) {
                return None;
            }
            let measure = value?;
            if measure == Measure::Plain {
                if !verb {
                    return None;
                }
                total = total.saturating_add(cost::NO_UNIT);
            } else if frame.implied & measure_bit(measure) == 0 {
                return None;
            }
        }
        let lacks_value = command.slots.iter().any(|slot| slot.required && !slots.contains_key(&slot.name));
        if lacks_value {
            total = total.saturating_add(cost::NO_VALUE);
        }
        if !verb && !frame.slang && command.risk != Risk::Read {
            total = total.saturating_add(cost::NO_VERB);
        }
        #[expect(clippy::cast_precision_loss, reason = "an utterance has at most 64 characters")]
        let length = (chars.len() as f32 - 0.7 * fillers as f32).max(3.0);
        let hazard = self.hazard(command, &path).or_else(|| self.other_verb(frame, command, &path));
        let left_over = left_over || (command.risk != Risk::Read && self.is_told(&path));
        let half = path.iter().any(|step| !step.exact && step.cost == 75 && step.end - step.start == 1);
        let verb_exact = path.iter().filter(|step| matches!(step.role, Role::Verb | Role::Both)).all(|step| step.exact);
        let strange = others > 0
            || self.goes_on(&path)
            || self.is_somebodys(&path, first, reason)
            || self.is_qualified(&path)
            || path.iter().any(|step| self.is_strange(frame, step) || self.has_another_inside(frame, step));
        let verb_goes_on = self.verb_goes_on(&path);
        path.shrink_to_fit();
        Some(Reading {
            command: usize::from(frame.command),
            cost: f32::from(total) / length,
            lacks: if lacks_value { f32::from(cost::NO_VALUE) / length } else { 0.0 },
            slots,
            exact: core_exact,
            verb_exact,
            whole,
            left_over,
            half,
            strange,
            verb_goes_on,
            verb,
            hazard,
            path,
        })
    }

    /// Is this a clause that gives a reason, and not another command?
    fn is_reason(&self, prefix: &[Step]) -> bool {
        // 冷却塔 before 风扇 is its owner, and not a reason.
        if prefix.last().is_some_and(|step| step.role == Role::Foreign) {
            return false;
        }
        let (mut thing, mut verb) = (false, false);
        let end = prefix.last().map_or(0, |step| usize::from(step.end));
        for found in self.found.iter().filter(|found| found.exact && usize::from(found.end) <= end) {
            let word = self.words.word(found.word);
            if word.filler || word.query {
                continue;
            }
            thing |= !self.words.concepts(word).is_empty();
            verb |= word.actions != 0 && found.end - found.start >= 2;
        }
        !(thing && verb)
    }

    /// Whether what stands before the first word of the command is a clause of its own: a break or 了 ends it, and only 把,
    /// 赶紧 and the like stand between.
    fn is_ended(&self, path: &[Step], first: usize) -> bool {
        let chars = &self.utterance.chars;
        let of_the_command = |step: &&Step| {
            step.role == Role::Filler && chars[usize::from(step.end) - 1] != '了' && !self.breaks_before(step.start)
        };
        let between = path[..first].iter().rev().take_while(of_the_command).count();
        let at = path[first - between].start;
        self.breaks_before(at) || (at > 0 && chars[usize::from(at) - 1] == '了')
    }

    pub(super) fn breaks_before(&self, at: u8) -> bool {
        self.utterance.breaks & (1 << at) != 0
    }

    /// 停止启动水泵: a verb of something else that nothing explains makes two orders of one, and neither is done.
    fn other_verb(&self, frame: &Frame, command: &Definition, path: &[Step]) -> Option<HazardKind> {
        let unexplained = |at: u8| {
            path.iter()
                .any(|step| step.start <= at && at < step.end && matches!(step.role, Role::Unknown | Role::Foreign))
        };
        let another = self.found.iter().any(|found| {
            let word = self.words.word(found.word);
            let says = found.exact && found.end - found.start >= 2 && word.actions & !self.frames.view != 0;
            let plain = !(word.filler || word.reason || word.query) && self.words.concepts(word).is_empty();
            says && plain
                && self.frames.verb(word.actions, frame.actions) == FAR
                && (found.start..found.end).all(unexplained)
        });
        (another && command.risk != Risk::Read).then_some(HazardKind::Several)
    }

    /// 水泵停了 may tell what happened. It asks for it only when something says so: 把, 吧, a reason before it.
    fn is_told(&self, path: &[Step]) -> bool {
        let chars = &self.utterance.chars;
        let Some(last) = path.iter().rposition(|step| matches!(step.role, Role::Verb | Role::Both)) else {
            return false;
        };
        let end = usize::from(path[last].end);
        let thing_first = path[..last].iter().any(|step| step.role == Role::Need);
        let done =
            chars[end - 1] == '了' || chars.get(end) == Some(&'了') || (thing_first && chars.last() == Some(&'了'));
        let asked = chars.iter().any(|ch| ASKING.contains(*ch));
        let reason = chars[..chars.len() - 1].iter().filter(|ch| **ch == '了').count() > 0
            && path.iter().filter(|step| matches!(step.role, Role::Verb | Role::Both)).count() == 1
            && chars.last() == Some(&'了');
        done && !asked && !reason
    }

    /// What the slots hold, whether a value is left over, and the measure of the value that is set.
    fn fill(&self, number_of: u16, command: &Definition, path: &[Step]) -> (Slots, bool, Option<Measure>) {
        let utterance = self.utterance;
        let mut slots = Slots::new();
        let mut left_over = false;
        let mut value = None;
        let amounts: Vec<(usize, &number::Amount)> = path
            .iter()
            .enumerate()
            .filter_map(|(at, step)| {
                let Role::Amount(n) = step.role else { return None };
                Some((at, &utterance.amounts[usize::from(n)]))
            })
            .collect();
        let plain = amounts.iter().filter(|(_, amount)| amount.measure == Measure::Plain).count();
        let mut plain_seen = 0;
        for (at, amount) in &amounts {
            let thing = |at: Option<usize>| {
                at.and_then(|at| path.get(at)).is_some_and(|step| matches!(step.role, Role::Need | Role::Both))
            };
            let beside = thing(at.checked_sub(1)) || thing(Some(at + 1));
            let number = SlotValue::Number(amount.value);
            let mut put = |kinds: &[SlotKind]| -> bool {
                for kind in kinds {
                    let free = command.slots.iter().find(|slot| slot.kind == *kind && !slots.contains_key(&slot.name));
                    if let Some(slot) = free {
                        let held = if *kind == SlotKind::Digits {
                            SlotValue::Text(number::digits(&utterance.chars, amount))
                        } else {
                            number.clone()
                        };
                        slots.insert(slot.name.clone(), held);
                        return true;
                    }
                }
                false
            };
            let fits = match amount.measure {
                Measure::Ordinal => put(&[SlotKind::DeviceNo, SlotKind::Digits]),
                Measure::Plain => {
                    plain_seen += 1;
                    if plain > 1 && plain_seen == 1 {
                        beside && put(&[SlotKind::DeviceNo, SlotKind::Digits])
                    } else {
                        put(&[SlotKind::Number, SlotKind::Percent, SlotKind::Digits])
                            // 两泵齐开 speaks of two pumps, and not of number two.
                            || (beside
                                && !matches!(utterance.chars[usize::from(amount.start)], '两' | '俩')
                                && put(&[SlotKind::DeviceNo]))
                    }
                }
                Measure::Percent => put(&[SlotKind::Percent]),
                Measure::Seconds => put(&[SlotKind::Duration]),
                Measure::Degrees | Measure::Hertz | Measure::Turns | Measure::Speed | Measure::Other => {
                    self.unit_fits(amount.measure, number_of) && put(&[SlotKind::Number])
                }
                // 三台 of them is no command that we know; 一台 is the one.
                Measure::Count => amount.value == 1.0,
            };
            left_over |= !fits;
            if fits && !matches!(amount.measure, Measure::Ordinal | Measure::Count | Measure::Seconds) {
                value = Some(amount.measure);
            }
        }
        // 转速两万转的主轴: a value that was taken for other words is left over all the same. 转一转 is none.
        left_over |= utterance.amounts.iter().any(|amount| {
            let has_unit = match amount.measure {
                Measure::Percent | Measure::Degrees | Measure::Hertz | Measure::Turns | Measure::Speed => true,
                Measure::Ordinal | Measure::Plain | Measure::Seconds | Measure::Count | Measure::Other => false,
            };
            let taken = amounts.iter().any(|(_, other)| other.start == amount.start);
            has_unit && !taken && amount.value != 1.0
        });
        for step in path {
            if let Role::Zone(number) = step.role
                && let Some(slot) = command.slots.iter().find(|slot| slot.kind == SlotKind::Zone)
            {
                left_over |= slots.contains_key(&slot.name);
                let word = self.zone(number, step);
                slots.insert(slot.name.clone(), SlotValue::Text(word));
            }
            left_over |= step.role == Role::Unknown && utterance.chars[usize::from(step.start)] == '号';
        }
        (slots, left_over, value)
    }

    fn zone(&self, zone: u16, step: &Step) -> String {
        let at = self.starts[usize::from(step.start)]..self.starts[usize::from(step.start) + 1];
        let found = self.found[usize::from(at.start)..usize::from(at.end)]
            .iter()
            .find(|found| self.words.word(found.word).zone == zone);
        found.map(|found| self.words.chars(self.words.word(found.word)).iter().collect()).unwrap_or_default()
    }

    /// A unit fits when some phrase of the command speaks of an attribute that has it, or of none that has any.
    fn unit_fits(&self, measure: Measure, command: u16) -> bool {
        let units = self.frames.units(usize::from(command));
        units == 0 || units & measure_bit(measure) != 0
    }

    fn hazard(&self, command: &Definition, path: &[Step]) -> Option<HazardKind> {
        let covered = |hazard: &Hazard| {
            path.iter().any(|step| {
                step.exact
                    && matches!(step.role, Role::Need | Role::Verb | Role::Both)
                    && usize::from(step.start) <= hazard.start
                    && hazard.end <= usize::from(step.end)
            })
        };
        // 变压他 for 变压器: one syllable of a long word, and nobody is spoken of. Never for a dangerous command.
        let swallowed = |hazard: &Hazard| {
            let person =
                hazard.end - hazard.start == 1 && matches!(self.utterance.chars.get(hazard.start), Some('他' | '她'));
            let inside = path.iter().any(|step| {
                let (start, end) = (usize::from(step.start), usize::from(step.end));
                step.role == Role::Need && end - start >= 3 && start < hazard.start && hazard.end <= end
            });
            person && inside && command.risk != Risk::Dangerous
        };
        self.hazards
            .iter()
            .find(|hazard| {
                let harmless = hazard.soft && command.risk == Risk::Read;
                !harmless && !covered(hazard) && !swallowed(hazard)
            })
            .map(|hazard| hazard.kind)
    }
}

/// Characters that make a request of a sentence that could tell what happened.
const ASKING: &str = "把将给请烦帮让叫快赶马立先可该要吧别不用甭呗咯喽太";

fn foreign(word: &Word) -> u16 {
    let verb = if word.actions != 0 { cost::FOREIGN_VERB } else { 0 };
    cost::FOREIGN + verb + cost::FOREIGN_CHAR * u16::try_from(word.len()).unwrap_or(u16::MAX)
}

/// What a number costs a command.
fn amount_cost(measure: Measure, value: f64, command: &Definition) -> u16 {
    let has = |kind: SlotKind| command.slots.iter().any(|slot| slot.kind == kind);
    let price = match measure {
        Measure::Ordinal => (has(SlotKind::DeviceNo) || has(SlotKind::Digits)).then_some(0),
        Measure::Plain if has(SlotKind::Number) || has(SlotKind::Percent) || has(SlotKind::Digits) => Some(4),
        Measure::Plain => has(SlotKind::DeviceNo).then_some(cost::PLAIN_DEVICE),
        Measure::Percent => has(SlotKind::Percent).then_some(0),
        Measure::Seconds => has(SlotKind::Duration).then_some(0),
        Measure::Degrees | Measure::Hertz | Measure::Turns | Measure::Speed | Measure::Other => {
            has(SlotKind::Number).then_some(0)
        }
        Measure::Count => (value == 1.0).then_some(cost::ONE),
    };
    price.unwrap_or(cost::LEFT_OVER)
}

/// The table of one search, kept between searches.
pub(super) struct Grid {
    cells: Vec<Cell>,
    states: usize,
}

impl Grid {
    pub(super) fn new() -> Grid {
        Grid { cells: Vec::new(), states: 1 }
    }

    fn clear(&mut self, len: usize, states: usize) {
        self.states = states;
        self.cells.clear();
        self.cells.resize((len + 1) * self.states, NOWHERE);
    }

    fn row(&self, at: usize) -> &[Cell] {
        &self.cells[at * self.states..(at + 1) * self.states]
    }

    fn at(&self, at: usize, state: usize) -> Cell {
        self.cells[at * self.states + state]
    }

    fn step(&mut self, start: usize, end: usize, bits: usize, price: u16, role: Role, exact: bool) {
        for state in 0..self.states {
            let before = self.cells[start * self.states + state].cost;
            if before == u16::MAX {
                continue;
            }
            let again = bits != 0 && state & bits == bits;
            let price = price + if again { cost::AGAIN } else { 0 };
            let cost = before.saturating_add(price);
            let cell = &mut self.cells[end * self.states + (state | bits)];
            if cost < cell.cost {
                *cell = Cell {
                    cost,
                    from: u8::try_from(start).unwrap_or(u8::MAX),
                    state: u8::try_from(state).unwrap_or(u8::MAX),
                    role,
                    step: price,
                    exact,
                };
            }
        }
    }

    /// A step that adds nothing, from the states below `most` only.
    fn step_below(&mut self, most: usize, start: usize, end: usize, price: u16, role: Role) {
        for state in 0..most.min(self.states) {
            let before = self.cells[start * self.states + state].cost;
            let cost = before.saturating_add(price);
            let cell = &mut self.cells[end * self.states + state];
            if before != u16::MAX && cost < cell.cost {
                let small = |at: usize| u8::try_from(at).unwrap_or(u8::MAX);
                *cell = Cell { cost, from: small(start), state: small(state), role, step: price, exact: true };
            }
        }
    }

    fn path(&self, len: usize, state: usize) -> Vec<Step> {
        let mut steps = Vec::with_capacity(len);
        let (mut at, mut state) = (len, state);
        while at > 0 {
            let cell = self.at(at, state);
            steps.push(Step {
                start: cell.from,
                end: u8::try_from(at).unwrap_or(u8::MAX),
                cost: cell.step,
                role: cell.role,
                exact: cell.exact,
            });
            at = usize::from(cell.from);
            state = usize::from(cell.state);
        }
        steps.reverse();
        steps
    }
}

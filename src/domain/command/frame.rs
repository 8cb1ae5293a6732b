//! Frames: what a command needs to hear, compiled from its phrases.
//!
//! A frame is an action and the things and attributes that go with it; the order of the words and most of the words
//! themselves do not matter. A piece of a phrase that the lexicon does not know becomes a thing of its own, so that
//! a command which is registered at run time works at once. Sentences are not expanded: each choice of a template is
//! taken once.

use std::collections::{BTreeMap, BTreeSet};

use super::definition::{Commands, Definition, SlotKind};
use super::lexicon::Lexicon;
use super::number::Measure;
use super::sound::Sounds;
use super::template::{Part, Template};
use super::words::{ACTIONS_MAX, Concept, Draft, Words, ZONE};
use crate::risk::Risk;

/// Things and attributes that one frame can need.
pub(super) const NEEDS_MAX: usize = 4;
/// A class of verbs that a dangerous command may also be said with covers at least this share of its phrases, in
/// hundredths: 全线停机 is a phrase of the plant's emergency stop, and does not make every 停 one.
const DANGEROUS_SHARE_MIN: usize = 40;
/// Action classes that cannot stand in for each other.
pub(super) const FAR: u8 = 255;

/// What a command needs to hear.
#[derive(Debug, Clone, Copy)]
pub(super) struct Frame {
    pub(super) command: u16,
    pub(super) count: u8,
    /// It may be said without its action.
    pub(super) bare: bool,
    /// It is a phrase of the floor: nothing else may be said, but things of the same trade.
    pub(super) slang: bool,
    /// The attribute is not said, and the unit of the value must point to it: measures as bits; 0 when it is said.
    pub(super) implied: u16,
    pub(super) needs: [Concept; NEEDS_MAX],
    /// Its action classes, as bits.
    pub(super) actions: u64,
}

impl Frame {
    pub(super) fn needs(&self) -> &[Concept] {
        &self.needs[..usize::from(self.count)]
    }
}

/// The frames of a set.
pub(super) struct Frames {
    pub(super) frames: Vec<Frame>,
    /// Frames by the rarest of their needs: starts, then numbers.
    starts: Vec<u32>,
    numbers: Vec<u32>,
    /// Trades (categories) in which a concept is at home, as bits.
    trades: Vec<u64>,
    /// Measures that the values of a command may have, as bits; 0 for any.
    units: Vec<u16>,
    /// What it costs when a verb of one class stands in for another.
    near: Vec<u8>,
    /// The class of words that ask to see something.
    pub(super) view: u64,
    /// Names, for an explanation.
    pub(super) names: Vec<String>,
}

impl Frames {
    /// Frames whose rarest need this is.
    pub(super) fn with(&self, concept: Concept) -> &[u32] {
        let at = usize::from(concept);
        match (self.starts.get(at), self.starts.get(at + 1)) {
            (Some(from), Some(to)) => &self.numbers[*from as usize..*to as usize],
            _ => &[],
        }
    }

    /// Is one of these a thing of the trade of this frame's command?
    pub(super) fn same_trade(&self, frame: &Frame, concepts: &[Concept]) -> bool {
        let home = self.trades.get(usize::from(frame.needs[0])).copied().unwrap_or(0);
        concepts.iter().any(|concept| self.trades.get(usize::from(*concept)).copied().unwrap_or(0) & home != 0)
    }

    /// Measures that the values of this command may have, as bits; 0 for any.
    pub(super) fn units(&self, command: usize) -> u16 {
        self.units.get(command).copied().unwrap_or(0)
    }

    /// What it costs to hear a verb of the classes `heard` where one of `meant` is needed; [`FAR`] when it cannot be.
    pub(super) fn verb(&self, heard: u64, meant: u64) -> u8 {
        if heard & meant != 0 {
            return 0;
        }
        let mut best = FAR;
        let mut left = heard;
        while left != 0 {
            let a = left.trailing_zeros() as usize;
            left &= left - 1;
            let mut wanted = meant;
            while wanted != 0 {
                let b = wanted.trailing_zeros() as usize;
                wanted &= wanted - 1;
                best = best.min(self.near[a * ACTIONS_MAX + b]);
            }
        }
        best
    }
}

/// Bits of measures.
pub(super) fn measure_bit(measure: Measure) -> u16 {
    1 << match measure {
        Measure::Plain => 0,
        Measure::Ordinal => 1,
        Measure::Percent => 2,
        Measure::Seconds => 3,
        Measure::Degrees => 4,
        Measure::Hertz => 5,
        Measure::Turns => 6,
        Measure::Speed => 7,
        Measure::Count => 8,
        Measure::Other => 9,
    }
}

/// One character of a phrase, or a value in it.
#[derive(Clone, Copy, PartialEq)]
enum Piece {
    Char(char),
    Slot(SlotKind),
}

/// A word of a phrase (its number among the drafts), or a value in it.
#[derive(Clone, Copy, PartialEq)]
enum Segment {
    Word(u32),
    Slot(SlotKind),
}

/// Compiles the words and frames of `commands`.
pub(super) fn compile(
    commands: &Commands,
    lexicon: &Lexicon,
    slang: &[(String, String)],
    sounds: &Sounds,
) -> (Words, Frames) {
    let mut builder = Builder::new(commands, lexicon);
    let mut frames = Vec::new();
    for (number, command) in commands.list.iter().enumerate() {
        let number = u16::try_from(number).unwrap_or(u16::MAX);
        builder.command(number, command, &mut frames);
    }
    for (phrase, id) in slang {
        if let Some(number) = commands.list.iter().position(|command| command.id == *id) {
            let concept = builder.concept(phrase);
            let draft = builder.draft(phrase);
            draft.concepts.push(concept);
            draft.filler = false;
            let mut needs = [0; NEEDS_MAX];
            needs[0] = concept;
            let command = u16::try_from(number).unwrap_or(u16::MAX);
            frames.push(Frame { command, count: 1, bare: true, slang: true, implied: 0, needs, actions: 0 });
        }
    }
    let trades = trades(commands, &frames, builder.names.len());
    builder.finish(frames, trades, commands.list.len(), sounds)
}

/// A word and its number among the drafts.
type Spelled = (Box<[char]>, u32);

struct Builder {
    drafts: Vec<Draft>,
    /// Words by their first character, for segmentation; the longest first.
    by_first: BTreeMap<char, Vec<Spelled>>,
    names: Vec<String>,
    measures: Vec<u16>,
    attributes: BTreeSet<Concept>,
    near: Vec<u8>,
    view: u64,
}

impl Builder {
    fn new(commands: &Commands, lexicon: &Lexicon) -> Builder {
        let mut builder = Builder {
            drafts: Vec::new(),
            by_first: BTreeMap::new(),
            names: vec!["ZONE".to_owned()],
            measures: vec![0],
            attributes: BTreeSet::new(),
            near: vec![FAR; ACTIONS_MAX * ACTIONS_MAX],
            view: 1 << (ACTIONS_MAX - 1),
        };
        let mut classes: BTreeMap<&str, usize> = BTreeMap::new();
        for (class, action) in lexicon.actions.iter().take(ACTIONS_MAX - 1).enumerate() {
            classes.insert(&action.name, class);
            for word in &action.words {
                builder.draft(word).actions |= 1 << class;
            }
        }
        for word in &lexicon.query {
            let view = builder.view;
            let draft = builder.draft(word);
            draft.actions |= view;
            draft.query = true;
        }
        let mut concepts: BTreeMap<&str, Concept> = BTreeMap::new();
        for (class, attribute) in
            lexicon.attributes.iter().map(|class| (class, true)).chain(lexicon.nouns.iter().map(|class| (class, false)))
        {
            let concept = builder.concept(&class.name);
            concepts.insert(&class.name, concept);
            builder.measures[usize::from(concept)] =
                class.measures.iter().fold(0, |bits, measure| bits | measure_bit(*measure));
            if attribute {
                builder.attributes.insert(concept);
            }
            for word in &class.words {
                builder.draft(word).concepts.push(concept);
            }
        }
        for word in &lexicon.others {
            if builder.draft(word).means_nothing() {
                let concept = builder.concept(word);
                builder.draft(word).concepts.push(concept);
            }
        }
        for (word, names) in &lexicon.compounds {
            let actions = names.iter().filter_map(|name| classes.get(name.as_str())).fold(0, |bits, n| bits | 1 << n);
            let parts: Vec<Concept> = names.iter().filter_map(|name| concepts.get(name.as_str())).copied().collect();
            let draft = builder.draft(word);
            *draft = Draft {
                word: std::mem::take(&mut draft.word),
                compound: true,
                actions,
                concepts: parts,
                ..Draft::default()
            };
        }
        for word in &lexicon.separable {
            let mut halves = word.chars();
            if let (Some(first), Some(last), None) = (halves.next(), halves.next(), halves.next()) {
                let whole = builder.draft(word).clone();
                for between in ["个", "下", "一下", "一个", "一次", "把"] {
                    let draft = builder.draft(&format!("{first}{between}{last}"));
                    draft.actions |= whole.actions;
                    draft.compound |= whole.compound;
                    draft.concepts.extend(&whole.concepts);
                }
            }
        }
        for word in &lexicon.filler {
            builder.draft(word).filler = true;
        }
        for word in &lexicon.reason {
            builder.draft(word).reason = true;
        }
        for (number, zone) in commands.zones.iter().enumerate() {
            let draft = builder.draft(zone);
            draft.concepts.insert(0, ZONE);
            draft.core = true;
            draft.zone = u16::try_from(number).ok();
        }
        for (a, b, cost) in &lexicon.near {
            if let (Some(a), Some(b)) = (classes.get(a.as_str()), classes.get(b.as_str())) {
                builder.near[a * ACTIONS_MAX + b] = *cost;
                builder.near[b * ACTIONS_MAX + a] = *cost;
            }
        }
        builder
    }

    fn concept(&mut self, name: &str) -> Concept {
        let concept = Concept::try_from(self.names.len()).unwrap_or(Concept::MAX);
        self.names.push(name.to_owned());
        self.measures.push(0);
        concept
    }

    fn draft(&mut self, word: &str) -> &mut Draft {
        let chars: Box<[char]> = word.chars().collect();
        let number = self.number(&chars);
        &mut self.drafts[number as usize]
    }

    /// The number of this word, new or not.
    fn number(&mut self, word: &[char]) -> u32 {
        let Some(first) = word.first() else { return 0 };
        let words = self.by_first.entry(*first).or_default();
        let known = words.binary_search_by(|(other, _)| word.len().cmp(&other.len()).then_with(|| (**other).cmp(word)));
        match known {
            Ok(at) => words[at].1,
            Err(at) => {
                let number = u32::try_from(self.drafts.len()).unwrap_or(u32::MAX);
                words.insert(at, (word.into(), number));
                self.drafts.push(Draft { word: word.into(), ..Draft::default() });
                number
            }
        }
    }

    fn command(&mut self, number: u16, command: &Definition, frames: &mut Vec<Frame>) {
        let literals = std::iter::once(&command.text).chain(&command.aliases).map(|text| Template::literal(text));
        let mut phrases: Vec<Vec<Segment>> = Vec::new();
        for template in literals.chain(command.patterns.iter().cloned()) {
            for pieces in forms(&template, command) {
                let segments = self.segment(&pieces);
                if !segments.is_empty() && !phrases.contains(&segments) {
                    phrases.push(segments);
                }
            }
        }
        let heard: Vec<Heard> = phrases.iter().map(|phrase| self.hear(phrase, command.risk)).collect();
        let actions = chosen(&heard, command.risk);
        let mut counts: BTreeMap<Concept, usize> = BTreeMap::new();
        for concept in heard.iter().flat_map(|one| &one.things).flatten() {
            *counts.entry(*concept).or_default() += 1;
        }
        let mut made: BTreeMap<Vec<Concept>, bool> = BTreeMap::new();
        for one in &heard {
            let mut needs: Vec<Concept> = one
                .things
                .iter()
                .filter_map(|any| {
                    any.iter().copied().max_by_key(|concept| (counts[concept], usize::MAX - usize::from(*concept)))
                })
                .collect();
            // 泵房的温度: the place is the thing.
            if one.zone && needs.iter().all(|need| self.attributes.contains(need)) {
                needs.push(ZONE);
            }
            needs.sort_unstable();
            needs.dedup();
            needs.truncate(NEEDS_MAX);
            if needs.is_empty() {
                // All of it is one verb (合闸): only the templates themselves may say that.
                continue;
            }
            *made.entry(needs).or_default() |= one.actions == 0 || command.risk == Risk::Read;
        }
        let takes_value =
            command.slots.iter().any(|slot| slot.required && matches!(slot.kind, SlotKind::Number | SlotKind::Percent));
        for (needs, bare) in &made {
            let mut frame = Frame {
                command: number,
                count: u8::try_from(needs.len()).unwrap_or(0),
                bare: *bare,
                slang: false,
                implied: 0,
                needs: [0; NEEDS_MAX],
                actions,
            };
            frame.needs[..needs.len()].copy_from_slice(needs);
            frames.push(frame);
            let attribute = needs.iter().position(|need| self.attributes.contains(need));
            if let (true, Some(at), true) = (takes_value, attribute, needs.len() > 1) {
                let mut rest = needs.clone();
                let attribute = rest.remove(at);
                let mut implied = Frame { bare: true, ..frame };
                implied.implied = self.measures[usize::from(attribute)];
                implied.count -= 1;
                implied.needs = [0; NEEDS_MAX];
                implied.needs[..rest.len()].copy_from_slice(&rest);
                if implied.implied != 0 && !made.contains_key(&rest) {
                    frames.push(implied);
                }
            }
        }
    }

    /// The words of a phrase: the fewest unknown characters, then the fewest words. What stays unknown becomes a
    /// thing of its own.
    fn segment(&mut self, pieces: &[Piece]) -> Vec<Segment> {
        let mut segments = Vec::new();
        let mut run: Vec<char> = Vec::new();
        for piece in pieces.iter().copied().map(Some).chain([None]) {
            match piece {
                Some(Piece::Char(ch)) => run.push(ch),
                Some(Piece::Slot(kind)) => {
                    self.segment_run(&run, &mut segments);
                    run.clear();
                    segments.push(Segment::Slot(kind));
                }
                None => self.segment_run(&run, &mut segments),
            }
        }
        segments
    }

    fn segment_run(&mut self, run: &[char], into: &mut Vec<Segment>) {
        const UNKNOWN: u32 = 10;
        let len = run.len();
        // From the right: the least cost of what follows each place, and the length and number of the word there.
        let mut best = vec![(0_u32, 0_usize, 0_u32); len + 1];
        for at in (0..len).rev() {
            best[at] = (best[at + 1].0 + UNKNOWN, 0, 0);
            for (word, number) in self.by_first.get(&run[at]).into_iter().flatten() {
                if run[at..].starts_with(word) && best[at + word.len()].0 + 1 < best[at].0 {
                    best[at] = (best[at + word.len()].0 + 1, word.len(), *number);
                }
            }
        }
        let mut at = 0;
        while at < len {
            let number = if best[at].1 == 0 {
                let from = at;
                while at < len && best[at].1 == 0 {
                    at += 1;
                }
                let number = self.number(&run[from..at]);
                if self.drafts[number as usize].means_nothing() {
                    let name: String = run[from..at].iter().collect();
                    let concept = self.concept(&name);
                    self.drafts[number as usize].concepts.push(concept);
                }
                number
            } else {
                let (_, taken, number) = best[at];
                at += taken;
                number
            };
            self.drafts[number as usize].core = true;
            into.push(Segment::Word(number));
        }
    }

    /// What the words of a phrase are: its verb, and its things.
    fn hear(&self, phrase: &[Segment], risk: Risk) -> Heard {
        let mut heard = Heard::default();
        let words: Vec<&Draft> = phrase
            .iter()
            .filter_map(|segment| match segment {
                Segment::Word(number) => self.drafts.get(*number as usize),
                Segment::Slot(kind) => {
                    heard.zone |= *kind == SlotKind::Zone;
                    None
                }
            })
            .collect();
        let is_thing = |draft: &Draft| !draft.concepts.is_empty();
        let verb_only = words.iter().any(|draft| draft.actions != 0 && (!is_thing(draft) || draft.compound));
        for draft in words {
            if draft.compound {
                heard.actions = meet(heard.actions, draft.actions);
                heard.things.extend(draft.concepts.iter().map(|concept| vec![*concept]));
            } else if draft.zone.is_some() {
                heard.zone = true;
            } else if draft.actions != 0 && (!is_thing(draft) || (!verb_only && risk != Risk::Read)) {
                heard.actions = meet(heard.actions, draft.actions);
            } else if is_thing(draft) {
                heard.things.push(draft.concepts.clone());
            }
        }
        heard
    }

    fn finish(self, frames: Vec<Frame>, trades: Vec<u64>, commands: usize, sounds: &Sounds) -> (Words, Frames) {
        let words = Words::new(&self.drafts, sounds);
        let mut units = vec![0; commands];
        for frame in &frames {
            let all = frame.needs().iter().fold(frame.implied, |bits, need| bits | self.measures[usize::from(*need)]);
            units[usize::from(frame.command)] |= all;
        }
        let mut rarity = vec![0_u32; self.names.len()];
        for need in frames.iter().flat_map(|frame| frame.needs()) {
            rarity[usize::from(*need)] += 1;
        }
        let mut keyed: Vec<(Concept, u32)> = frames
            .iter()
            .enumerate()
            .filter_map(|(number, frame)| {
                let rarest = frame.needs().iter().copied().min_by_key(|need| rarity[usize::from(*need)])?;
                Some((rarest, u32::try_from(number).ok()?))
            })
            .collect();
        keyed.sort_unstable();
        let mut starts = vec![0_u32; self.names.len() + 1];
        for (need, _) in &keyed {
            starts[usize::from(*need) + 1] += 1;
        }
        for at in 1..starts.len() {
            starts[at] += starts[at - 1];
        }
        let frames = Frames {
            frames,
            starts,
            numbers: keyed.into_iter().map(|(_, number)| number).collect(),
            units,
            trades,
            near: self.near,
            view: self.view,
            names: self.names,
        };
        (words, frames)
    }
}

/// For each concept the trades in which it is at home. Sixty-four trades are told apart; more share a bit.
fn trades(commands: &Commands, frames: &[Frame], concepts: usize) -> Vec<u64> {
    let mut names: Vec<&str> = Vec::new();
    let mut trades = vec![0; concepts];
    for frame in frames {
        let Some(command) = commands.list.get(usize::from(frame.command)) else { continue };
        let at = names.iter().position(|name| *name == command.category).unwrap_or_else(|| {
            names.push(&command.category);
            names.len() - 1
        });
        for need in frame.needs() {
            trades[usize::from(*need)] |= 1 << (at % 64);
        }
    }
    trades
}

/// What a phrase is made of.
#[derive(Default)]
struct Heard {
    actions: u64,
    /// Each thing, as what it may be.
    things: Vec<Vec<Concept>>,
    zone: bool,
}

/// Two verbs of one phrase mean what both can mean, or else what the first means.
fn meet(a: u64, b: u64) -> u64 {
    match (a, b) {
        (0, b) => b,
        (a, b) if a & b != 0 => a & b,
        (a, _) => a,
    }
}

/// The classes that cover the phrases: the one that covers most first, then what is left.
fn chosen(heard: &[Heard], risk: Risk) -> u64 {
    let mut left: Vec<u64> = heard.iter().map(|one| one.actions).filter(|actions| *actions != 0).collect();
    let all = left.len();
    let mut chosen = 0;
    while !left.is_empty() {
        let count = |class: usize| left.iter().filter(|actions| **actions & (1 << class) != 0).count();
        let most = (0..ACTIONS_MAX).map(count).max().unwrap_or(0);
        if risk == Risk::Dangerous && chosen != 0 && most * 100 < all * DANGEROUS_SHARE_MIN {
            break;
        }
        let ties = (0..ACTIONS_MAX).filter(|class| count(*class) == most).fold(0, |bits, class| bits | 1 << class);
        chosen |= ties;
        left.retain(|actions| actions & ties == 0);
    }
    chosen
}

/// Phrases of a template in which each choice is taken at least once: not their product.
fn forms(template: &Template, command: &Definition) -> Vec<Vec<Piece>> {
    fn count(parts: &[Part], depth: usize, into: &mut Vec<(usize, usize)>) {
        for part in parts {
            if let Part::Choice { branches, .. } = part {
                into.push((branches.len(), depth));
                branches.iter().for_each(|branch| count(branch, depth + 1, into));
            }
        }
    }
    let mut choices = Vec::new();
    count(&template.parts, 0, &mut choices);
    let mut all: Vec<Vec<Piece>> = Vec::new();
    let mut add = |taken: Option<(usize, usize)>, options: bool| {
        let mut form = Vec::new();
        walk(&template.parts, command, taken, options, &mut 0, &mut form);
        if !all.contains(&form) {
            all.push(form);
        }
    };
    add(None, false);
    add(None, true);
    for (node, (branches, depth)) in choices.iter().enumerate() {
        for branch in 0..*branches {
            add(Some((node, branch)), *depth > 0);
        }
    }
    all
}

fn walk(
    parts: &[Part],
    command: &Definition,
    taken: Option<(usize, usize)>,
    options: bool,
    node: &mut usize,
    form: &mut Vec<Piece>,
) {
    for part in parts {
        match part {
            Part::Text(text) => form.extend(text.chars().flat_map(char::to_lowercase).map(Piece::Char)),
            Part::Slot(name) => {
                if let Some(slot) = command.slot(name) {
                    form.push(Piece::Slot(slot.kind));
                }
            }
            Part::Choice { branches, optional } => {
                let this = *node;
                *node += 1;
                let branch = match taken {
                    Some((at, branch)) if at == this => Some(branch),
                    _ if *optional && !options => None,
                    _ => Some(0),
                };
                for (n, parts) in branches.iter().enumerate() {
                    let mut skipped = Vec::new();
                    let into = if branch == Some(n) { &mut *form } else { &mut skipped };
                    walk(parts, command, taken, options, node, into);
                }
            }
        }
    }
}

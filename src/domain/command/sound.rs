//! Syllables as numbers, and what it costs to mistake one for another.
//!
//! Tones are folded away: recognisers get them wrong, and operators of many regions speak. Costs are data
//! (`models/lexicon/confusions.toml`, learned from real recogniser errors), in hundredths of a syllable, so that
//! sums are exact and the same on every machine.

use std::collections::BTreeMap;

use pinyin::{ToPinyin, ToPinyinMulti};

/// A syllable without its tone; [`NO_SYLLABLE`] for a character that has none.
pub type Syllable = u16;

/// Latin letters, digits and unknown characters: they sound like nothing but themselves.
pub const NO_SYLLABLE: Syllable = 0;

/// The cost of the same sound in another character.
pub const SAME_SOUND: u8 = 6;
/// What a reading costs that the character has only in some words (重 as chong).
const RARE_READING: u8 = 4;
/// The cost of two syllables that have nothing in common.
pub const UNLIKE: u8 = 100;

/// Bits of [`Sounds::usual`] above all syllables: it has more readings than this one; it is one of [`QUALIFIERS`].
const HAS_OTHERS: Syllable = 0x8000;
const QUALIFIES: Syllable = 0x4000;

/// Characters that make another thing of a thing (热泵, 冷水机组 and 热水机组, 高压 and 低压, 左泵 and 右泵). Whoever hears
/// one of them heard it: it is never taken for another character that sounds a little like it.
const QUALIFIERS: &str = "冷热温凉高低左右前后南北内外";

/// What it costs to take a qualifier for anything else: more than any word may.
pub const NEVER: u8 = 255;

const CJK_FIRST: u32 = 0x4e00;
const CJK_LAST: u32 = 0x9fff;
/// Readings kept for one character: what it has in common words, and what was learned.
pub const READINGS_MAX: usize = 4;

/// Characters with more than one reading in the words of a plant. The full dictionary knows rare readings of nearly
/// every character (车 as ju); taking those would make unlike words alike.
const POLYPHONES: &str = "重调行还长得地着都没只传载降量数系参朝藏乘当倒发分更冠好和荷几假间将教角解劲卷看空乐率落曲散少舍盛似说\
宿缩弹挑为要应占涨折正中种转作曾差盖给供夹尽卡熟属提撒扎查石单大冲便背磨处";

/// Characters whose usual reading on a plant is not the dictionary's first.
const USUAL: &[(char, &str)] = &[
    ('重', "chong"),
    ('调', "tiao"),
    ('降', "jiang"),
    ('行', "xing"),
    ('载', "zai"),
    ('传', "chuan"),
    ('量', "liang"),
    ('参', "can"),
    ('系', "xi"),
    ('夹', "jia"),
    ('卡', "ka"),
    ('长', "chang"),
    ('转', "zhuan"),
    ('数', "shu"),
    ('地', "di"),
    ('得', "de"),
    ('都', "dou"),
    ('还', "hai"),
    ('没', "mei"),
    ('只', "zhi"),
    ('着', "zhe"),
    ('单', "dan"),
    ('查', "cha"),
    ('石', "shi"),
    ('扎', "zha"),
    ('露', "lu"),
    ('冲', "chong"),
];

const INITIALS: &[&str] = &[
    "zh", "ch", "sh", "b", "p", "m", "f", "d", "t", "n", "l", "g", "k", "h", "j", "q", "x", "r", "z", "c", "s", "y",
    "w",
];

/// The costs of the file, as it gives them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Confusions {
    /// What a pair costs that is not listed.
    pub other: u8,
    /// Pairs of initials.
    pub initials: Vec<(String, String, u8)>,
    /// Pairs of finals.
    pub finals: Vec<(String, String, u8)>,
}

/// Characters to syllables, and syllables to costs.
pub struct Sounds {
    /// The usual reading of each character from U+4E00 on; with [`HAS_OTHERS`] where `others` has more.
    usual: Box<[Syllable]>,
    /// Other readings, sorted by character.
    others: Box<[(char, Syllable)]>,
    /// `costs[a * count + b]`, in hundredths.
    costs: Box<[u8]>,
    count: usize,
}

/// The place of a character in [`Sounds::usual`].
fn place(ch: char) -> Option<usize> {
    u32::from(ch).checked_sub(CJK_FIRST).map(|at| at as usize)
}

impl Sounds {
    /// Builds the tables.
    #[must_use]
    pub fn new(confusions: &Confusions) -> Sounds {
        let plain: Vec<Option<&'static str>> = (CJK_FIRST..=CJK_LAST)
            .map(|code| char::from_u32(code).and_then(|ch| ch.to_pinyin()).map(|reading| reading.plain()))
            .collect();
        // Names as numbers: 20,000 comparisons of texts would be most of the time that loading takes.
        let mut names: Vec<(u64, &'static str)> = plain.iter().flatten().map(|name| (packed(name), *name)).collect();
        names.sort_unstable();
        names.dedup();
        let id = |name: &str| {
            let at = names.binary_search_by_key(&packed(name), |(key, _)| *key);
            at.ok().and_then(|at| Syllable::try_from(at + 1).ok()).unwrap_or(NO_SYLLABLE)
        };
        let mut usual: Vec<Syllable> = plain.iter().map(|name| name.map_or(NO_SYLLABLE, id)).collect();
        for (ch, name) in USUAL {
            usual[(u32::from(*ch) - CJK_FIRST) as usize] = id(name);
        }
        let mut others = Vec::new();
        for ch in POLYPHONES.chars() {
            let first = usual[(u32::from(ch) - CJK_FIRST) as usize];
            let mut kept = vec![first];
            for reading in ch.to_pinyin_multi().into_iter().flatten() {
                let syllable = id(reading.plain());
                if kept.len() < READINGS_MAX && syllable != NO_SYLLABLE && !kept.contains(&syllable) {
                    kept.push(syllable);
                    others.push((ch, syllable));
                }
            }
        }
        others.sort_unstable();
        others.dedup();

        let count = names.len() + 1;
        let parts: Vec<(&str, &str)> =
            std::iter::once(("", "")).chain(names.iter().map(|(_, name)| split(name))).collect();
        let initials = PartCosts::new(parts.iter().map(|part| part.0), &confusions.initials, confusions.other);
        let finals = PartCosts::new(parts.iter().map(|part| part.1), &confusions.finals, confusions.other);
        let mut costs = vec![UNLIKE; count * count].into_boxed_slice();
        for a in 1..count {
            for b in 1..count {
                let sum = u16::from(SAME_SOUND) + initials.between(a, b) + finals.between(a, b);
                costs[a * count + b] = u8::try_from(sum.min(u16::from(UNLIKE))).unwrap_or(UNLIKE);
            }
        }
        Sounds { usual: usual.into_boxed_slice(), others: others.into_boxed_slice(), costs, count }.marked()
    }

    /// With a mark at each character that has more than its usual reading, and at each that qualifies a thing.
    fn marked(mut self) -> Sounds {
        let others = self.others.iter().map(|(ch, _)| (*ch, HAS_OTHERS));
        for (ch, mark) in others.chain(QUALIFIERS.chars().map(|ch| (ch, QUALIFIES))) {
            if let Some(usual) = place(ch).and_then(|at| self.usual.get_mut(at)) {
                *usual |= mark;
            }
        }
        self
    }

    /// The same with characters that were heard in place of others: what was said becomes one more reading of what
    /// was heard, so that a mishearing that was learned once holds in every sentence.
    #[must_use]
    pub fn with_heard(mut self, pairs: &[(char, char)]) -> Sounds {
        let mut others = std::mem::take(&mut self.others).into_vec();
        others.extend(pairs.iter().map(|(heard, said)| (*heard, self.usual(*said))));
        others.retain(|(_, syllable)| *syllable != NO_SYLLABLE);
        // What was learned comes last for each character, and a character keeps its first readings.
        let mut kept: Vec<(char, Syllable)> = Vec::with_capacity(others.len());
        for other in others {
            if !kept.contains(&other) {
                kept.push(other);
            }
        }
        kept.sort_by_key(|(ch, _)| *ch);
        self.others = kept.into_boxed_slice();
        self.marked()
    }

    /// How many syllable numbers there are, [`NO_SYLLABLE`] included.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// The usual reading of a character.
    #[must_use]
    pub fn usual(&self, ch: char) -> Syllable {
        place(ch).and_then(|at| self.usual.get(at)).map_or(NO_SYLLABLE, |usual| usual & !(HAS_OTHERS | QUALIFIES))
    }

    /// Has it more than its usual reading? A character of another script can have learned ones only.
    fn has_others(&self, ch: char) -> bool {
        place(ch).and_then(|at| self.usual.get(at)).is_none_or(|usual| usual & HAS_OTHERS != 0)
    }

    /// All readings of a character, the usual one first; the rest is [`NO_SYLLABLE`].
    #[must_use]
    pub fn readings(&self, ch: char) -> [Syllable; READINGS_MAX] {
        let mut readings = [NO_SYLLABLE; READINGS_MAX];
        readings[0] = self.usual(ch);
        if !self.has_others(ch) {
            return readings;
        }
        let start = self.others.partition_point(|(other, _)| *other < ch);
        let rest = self.others[start..].iter().take_while(|(other, _)| *other == ch);
        for (slot, (_, syllable)) in readings[1..].iter_mut().zip(rest) {
            *slot = *syllable;
        }
        readings
    }

    /// The cost of hearing `a` where `b` was said, in hundredths.
    #[must_use]
    #[inline]
    pub fn cost(&self, a: Syllable, b: Syllable) -> u8 {
        self.costs[usize::from(a) * self.count + usize::from(b)]
    }

    /// The cost of hearing a character with these readings where `said` (which sounds `b`) was said.
    #[must_use]
    #[inline]
    pub fn cost_of(&self, heard: char, readings: &[Syllable; READINGS_MAX], said: char, b: Syllable) -> u8 {
        if heard == said {
            return 0;
        }
        if place(heard).and_then(|at| self.usual.get(at)).is_some_and(|usual| usual & QUALIFIES != 0) {
            return NEVER;
        }
        let mut best = self.cost(readings[0], b);
        for reading in &readings[1..] {
            if *reading == NO_SYLLABLE {
                break;
            }
            best = best.min(self.cost(*reading, b).saturating_add(RARE_READING));
        }
        best
    }
}

/// How a character is usually read on a plant, without its tone; none for what has no reading.
#[must_use]
pub fn reading(ch: char) -> Option<&'static str> {
    if !(CJK_FIRST..=CJK_LAST).contains(&u32::from(ch)) {
        return None;
    }
    let usual = USUAL.iter().find(|(usual, _)| *usual == ch).map(|(_, name)| *name);
    usual.or_else(|| ch.to_pinyin().map(|reading| reading.plain()))
}

/// A syllable of at most eight bytes as a number that sorts like it.
fn packed(name: &str) -> u64 {
    name.bytes().take(8).fold(0, |number, byte| number << 8 | u64::from(byte))
}

/// Costs between the initials (or finals) of all syllables.
struct PartCosts {
    kind: Vec<usize>,
    table: Vec<u16>,
    kinds: usize,
}

impl PartCosts {
    fn new<'a>(parts: impl Iterator<Item = &'a str> + Clone, pairs: &[(String, String, u8)], other: u8) -> PartCosts {
        let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
        for part in parts.clone() {
            let next = kinds.len();
            kinds.entry(part).or_insert(next);
        }
        let count = kinds.len();
        let mut table = vec![u16::from(other); count * count];
        for same in 0..count {
            table[same * count + same] = 0;
        }
        for (a, b, cost) in pairs {
            if let (Some(a), Some(b)) = (kinds.get(a.as_str()), kinds.get(b.as_str())) {
                table[a * count + b] = u16::from(*cost);
                table[b * count + a] = u16::from(*cost);
            }
        }
        PartCosts { kind: parts.map(|part| kinds[part]).collect(), table, kinds: count }
    }

    fn between(&self, a: usize, b: usize) -> u16 {
        self.table[self.kind[a] * self.kinds + self.kind[b]]
    }
}

/// Initial and final; the ü that is written u after j, q, x and y is named v, as in the confusion file.
fn split(syllable: &'static str) -> (&'static str, &'static str) {
    for initial in INITIALS {
        if let Some(rest) = syllable.strip_prefix(initial) {
            if !matches!(*initial, "j" | "q" | "x" | "y") {
                return (initial, if rest == "ü" { "v" } else { rest });
            }
            return (
                initial,
                match rest {
                    "u" | "ü" => "v",
                    "uan" => "van",
                    "ue" => "ve",
                    "un" => "vn",
                    other => other,
                },
            );
        }
    }
    ("", syllable)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sounds() -> Sounds {
        let pair = |a: &str, b: &str, cost| (a.to_owned(), b.to_owned(), cost);
        Sounds::new(&Confusions {
            other: 60,
            initials: vec![pair("z", "zh", 10), pair("f", "h", 20)],
            finals: vec![pair("in", "ing", 10)],
        })
    }

    fn check(heard: char, said: char, expected: u8) {
        let sounds = sounds();
        let cost = sounds.cost_of(heard, &sounds.readings(heard), said, sounds.usual(said));
        assert_eq!(cost, expected, "{heard} for {said}");
    }

    #[test]
    fn a_cost_is_zero_for_the_character_and_grows_with_the_sound() {
        check('泵', '泵', 0);
        check('蹦', '泵', 6);
        check('炸', '闸', 6);
        check('轰', '风', 86);
        check('金', '京', 16);
        check('驻', '足', 16);
        check('驻', '打', 100);
        check('a', '泵', 100);
        check('和', '合', 6);
    }

    #[test]
    fn a_reading_of_some_words_only_costs_a_little() {
        let sounds = sounds();
        let readings = sounds.readings('重');
        assert_eq!(readings[0], sounds.usual('虫'));
        assert!(readings.contains(&sounds.usual('众')));
        assert_eq!(sounds.cost_of('重', &readings, '众', sounds.usual('众')), 10);
        assert_eq!(sounds.usual('泵'), sounds.usual('蹦'));
        assert_eq!(sounds.usual('A'), NO_SYLLABLE);
    }
}

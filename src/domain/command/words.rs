//! All words of a compiled set: their characters, sounds and meanings, and where each can be found by sound.
//!
//! Words are kept once, in pools; nothing is stored for each sentence that could be said. A word of the commands
//! may be misheard, a synonym must be heard (nearly) as it is written: 抽水机 must not swallow 除湿机.

use super::sound::{NO_SYLLABLE, Sounds, Syllable};

/// What a word can mean. Action classes are counted apart, see [`Word::actions`].
pub(super) type Concept = u16;

/// The place named by a zone slot.
pub(super) const ZONE: Concept = 0;

/// Most action classes: they are bits of a mask.
pub(super) const ACTIONS_MAX: usize = 64;

/// One word.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Word {
    start: u32,
    len: u8,
    /// What may be heard in its place, in hundredths over the whole word.
    pub(super) limit: u8,
    /// It is two words in one (换刀): an action and a thing.
    pub(super) compound: bool,
    /// It asks to see something.
    pub(super) query: bool,
    /// It means nothing.
    pub(super) filler: bool,
    /// It gives a reason, and says nothing of what to do.
    pub(super) reason: bool,
    /// The action classes that it may be, as bits.
    pub(super) actions: u64,
    /// Things and attributes that it may be: a range of `Words::concepts`.
    concepts_start: u32,
    concepts_len: u8,
    /// The number of the zone, for a zone.
    pub(super) zone: u16,
}

impl Word {
    pub(super) fn len(&self) -> usize {
        usize::from(self.len)
    }
}

/// The words of a set.
pub(super) struct Words {
    words: Vec<Word>,
    chars: Vec<char>,
    sounds: Vec<Syllable>,
    concepts: Vec<Concept>,
    /// Words of the commands by their first syllable, synonyms by theirs, words of the commands by their second.
    core_first: Postings,
    other_first: Postings,
    core_second: Postings,
    /// Two-syllable words of the commands by either character.
    halves: Vec<(char, u32)>,
    near: Vec<(Syllable, u8)>,
    near_starts: Vec<u32>,
}

/// Words by a syllable.
#[derive(Default)]
struct Postings {
    starts: Vec<u32>,
    words: Vec<u32>,
}

impl Postings {
    fn new(mut pairs: Vec<(Syllable, u32)>, count: usize) -> Postings {
        pairs.sort_unstable();
        let mut starts = vec![0; count + 1];
        for (syllable, _) in &pairs {
            starts[usize::from(*syllable) + 1] += 1;
        }
        for at in 1..=count {
            starts[at] += starts[at - 1];
        }
        Postings { starts, words: pairs.into_iter().map(|(_, word)| word).collect() }
    }

    #[inline]
    fn of(&self, syllable: Syllable) -> &[u32] {
        let at = usize::from(syllable);
        &self.words[self.starts[at] as usize..self.starts[at + 1] as usize]
    }
}

/// A word before it is pooled.
#[derive(Debug, Clone, Default)]
pub(super) struct Draft {
    pub(super) word: Box<[char]>,
    pub(super) core: bool,
    pub(super) compound: bool,
    pub(super) query: bool,
    pub(super) filler: bool,
    pub(super) reason: bool,
    pub(super) actions: u64,
    pub(super) concepts: Vec<Concept>,
    pub(super) zone: Option<u16>,
}

impl Draft {
    /// Nobody has given it a meaning yet.
    pub(super) fn means_nothing(&self) -> bool {
        self.concepts.is_empty()
            && self.actions == 0
            && !self.filler
            && !self.reason
            && !self.query
            && self.zone.is_none()
    }
}

/// Syllables farther apart than this are not looked up for each other.
pub(super) const NEAR_MAX: u8 = 40;
/// What a synonym may cost by syllable: the same sound, or one regional confusion.
const SYNONYM_MAX: u8 = 10;
/// What a long word of the commands may cost by syllable.
const CORE_MAX: u8 = 26;
/// What a zone of two syllables may cost: a wrong place is worse than a question.
const ZONE_TWO_MAX: u8 = 32;
/// What a word of two syllables of the commands may cost: one of them right, the other half right.
const CORE_TWO_MAX: u8 = 72;

/// Characters that sound unlike themselves in a word: the word, which of its characters, and one that sounds so.
const READ_AS: &[(&str, usize, char)] = &[
    ("进给", 1, '几'),
    ("重量", 0, '众'),
    ("载重", 1, '众'),
    ("调用", 0, '掉'),
    ("调度", 0, '掉'),
    ("调出", 0, '掉'),
    ("调取", 0, '掉'),
    ("调阅", 0, '掉'),
    ("还原", 0, '环'),
    ("处理", 0, '楚'),
    ("倒备", 0, '到'),
    ("夹爪", 1, '找'),
];

impl Words {
    pub(super) fn new(drafts: &[Draft], sounds: &Sounds) -> Words {
        let mut all = Words {
            words: Vec::with_capacity(drafts.len()),
            chars: Vec::new(),
            sounds: Vec::new(),
            concepts: Vec::new(),
            core_first: Postings::default(),
            other_first: Postings::default(),
            core_second: Postings::default(),
            halves: Vec::new(),
            near: Vec::new(),
            near_starts: Vec::new(),
        };
        let (mut core_first, mut other_first, mut core_second) = (Vec::new(), Vec::new(), Vec::new());
        for draft in drafts {
            let number = u32::try_from(all.words.len()).unwrap_or(u32::MAX);
            let start = u32::try_from(all.chars.len()).unwrap_or(u32::MAX);
            let chars = &draft.word;
            let Ok(len) = u8::try_from(chars.len()) else { continue };
            let mut syllables: Vec<Syllable> = chars.iter().map(|ch| sounds.usual(*ch)).collect();
            for (phrase, at, like) in READ_AS {
                let phrase: Vec<char> = phrase.chars().collect();
                if let Some(from) = chars.windows(phrase.len()).position(|part| part == phrase) {
                    syllables[from + at] = sounds.usual(*like);
                }
            }
            let limit = match (draft.core, len) {
                (_, 1) => 0,
                (true, 2) if draft.zone.is_some() => ZONE_TWO_MAX,
                (true, 2) => CORE_TWO_MAX,
                (true, _) => len.saturating_mul(CORE_MAX),
                (false, _) => len.saturating_mul(SYNONYM_MAX),
            };
            let limit = if draft.filler || draft.reason { 0 } else { limit.min(super::sound::NEVER - 1) };
            if draft.core {
                core_first.push((syllables[0], number));
                if len >= 2 {
                    core_second.push((syllables[1], number));
                }
                if len == 2 {
                    all.halves.extend([(chars[0], number), (chars[1], number)]);
                }
            } else {
                other_first.push((syllables[0], number));
            }
            all.words.push(Word {
                start,
                len,
                limit,
                compound: draft.compound,
                query: draft.query,
                filler: draft.filler,
                reason: draft.reason,
                actions: draft.actions,
                concepts_start: u32::try_from(all.concepts.len()).unwrap_or(u32::MAX),
                concepts_len: u8::try_from(draft.concepts.len()).unwrap_or(u8::MAX),
                zone: draft.zone.unwrap_or(u16::MAX),
            });
            all.concepts.extend(draft.concepts.iter().take(usize::from(u8::MAX)));
            all.chars.extend(chars.iter());
            all.sounds.extend(syllables);
        }
        let count = sounds.count();
        all.core_first = Postings::new(core_first, count);
        all.other_first = Postings::new(other_first, count);
        all.core_second = Postings::new(core_second, count);
        all.halves.sort_unstable();
        for a in 0..count {
            all.near_starts.push(u32::try_from(all.near.len()).unwrap_or(u32::MAX));
            let a = Syllable::try_from(a).unwrap_or(NO_SYLLABLE);
            let from = all.near.len();
            if a == NO_SYLLABLE {
                all.near.push((a, 0));
                continue;
            }
            for b in 1..count {
                let b = Syllable::try_from(b).unwrap_or(NO_SYLLABLE);
                let cost = sounds.cost(a, b);
                if cost <= NEAR_MAX {
                    all.near.push((b, cost));
                }
            }
            all.near[from..].sort_unstable_by_key(|(b, cost)| (*cost, *b));
        }
        all.near_starts.push(u32::try_from(all.near.len()).unwrap_or(u32::MAX));
        all.chars.shrink_to_fit();
        all.sounds.shrink_to_fit();
        all.concepts.shrink_to_fit();
        all
    }

    /// Is it an action, a thing or a place?
    pub(super) fn says_something(&self, text: &[char]) -> bool {
        let says = |word: &Word| word.actions != 0 || word.concepts_len > 0 || word.zone != u16::MAX;
        self.words.iter().any(|word| self.chars(word) == text && says(word))
    }

    /// Is there such a word?
    pub(super) fn contains(&self, text: &[char]) -> bool {
        self.words.iter().any(|word| self.chars(word) == text)
    }

    pub(super) fn word(&self, number: u32) -> &Word {
        &self.words[number as usize]
    }

    pub(super) fn chars(&self, word: &Word) -> &[char] {
        &self.chars[word.start as usize..word.start as usize + word.len()]
    }

    #[inline]
    pub(super) fn syllables(&self, word: &Word) -> &[Syllable] {
        &self.sounds[word.start as usize..word.start as usize + word.len()]
    }

    #[inline]
    pub(super) fn concepts(&self, word: &Word) -> &[Concept] {
        &self.concepts[word.concepts_start as usize..word.concepts_start as usize + usize::from(word.concepts_len)]
    }

    /// Syllables that may have been said where this one was heard, nearest first.
    #[inline]
    pub(super) fn near(&self, heard: Syllable) -> &[(Syllable, u8)] {
        let at = usize::from(heard);
        &self.near[self.near_starts[at] as usize..self.near_starts[at + 1] as usize]
    }

    #[inline]
    pub(super) fn core_first(&self, syllable: Syllable) -> &[u32] {
        self.core_first.of(syllable)
    }

    #[inline]
    pub(super) fn other_first(&self, syllable: Syllable) -> &[u32] {
        self.other_first.of(syllable)
    }

    #[inline]
    pub(super) fn core_second(&self, syllable: Syllable) -> &[u32] {
        self.core_second.of(syllable)
    }

    /// Two-syllable words of the commands with this character in them.
    pub(super) fn halves(&self, ch: char) -> impl Iterator<Item = u32> {
        let from = self.halves.partition_point(|(other, _)| *other < ch);
        self.halves[from..].iter().take_while(move |(other, _)| *other == ch).map(|(_, word)| *word)
    }
}

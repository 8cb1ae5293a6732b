//! The words of a plant: actions, attributes, things, and what people say around them.
//!
//! The lexicon is data (`models/lexicon/*.toml`), because breadth of wording is the largest lever there is, and
//! because several people should write it. It can make a sentence understood; it cannot make a hazard harmless.

use super::number::Measure;

/// The lexicon as its file gives it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Lexicon {
    /// Classes of verbs.
    pub actions: Vec<Class>,
    /// What can be asked for or set.
    pub attributes: Vec<Class>,
    /// Things.
    pub nouns: Vec<Class>,
    /// Pairs of action classes between which a verb may stand in for the other, at a cost in hundredths.
    pub near: Vec<(String, String, u8)>,
    /// What may stand before a command and means nothing: 麻烦, 请帮我.
    pub lead: Vec<String>,
    /// What may stand behind it: 一下, 吧.
    pub trail: Vec<String>,
    /// What may stand between its words: 的, 给我.
    pub filler: Vec<String>,
    /// Verbs of two characters that take a measure between them: 定位, 定个位.
    pub separable: Vec<String>,
    /// Reasons that people give before a command: 太热了, 没人了.
    pub reason: Vec<String>,
    /// Words that ask to see something: 查看, 报一下.
    pub query: Vec<String>,
    /// Things that people speak of and that are none of the above; naming one keeps another from being acted on.
    pub others: Vec<String>,
    /// Words that are two at once (换刀), with the names of both.
    pub compounds: Vec<(String, Vec<String>)>,
}

/// Words that mean one thing.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Class {
    /// Its name in the file.
    pub name: String,
    /// The words.
    pub words: Vec<String>,
    /// Units that point to it (attributes only).
    pub measures: Vec<Measure>,
}

/// Words by the character that they begin with, each with what it means: most characters begin none of them, and that
/// is told at once.
pub(super) struct ByFirst<T> {
    /// By first character, the longest first.
    words: Vec<(Box<[char]>, T)>,
    /// Bit n of 256: a word begins with a character whose code ends in n.
    firsts: [u64; 4],
}

/// The place of a character among the bits of [`ByFirst::firsts`].
fn bit(ch: char) -> (usize, u64) {
    let code = u32::from(ch) as usize;
    (code / 64 % 4, 1 << (code % 64))
}

impl<T> ByFirst<T> {
    /// Of equal words the first decides; an empty one is none.
    pub(super) fn new(mut words: Vec<(Box<[char]>, T)>) -> ByFirst<T> {
        words.retain(|(word, _)| !word.is_empty());
        words.sort_by_key(|(word, _)| (word[0], usize::MAX - word.len()));
        let mut firsts = [0; 4];
        for (word, _) in &words {
            let (at, bit) = bit(word[0]);
            firsts[at] |= bit;
        }
        ByFirst { words, firsts }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// The length of the longest word that `rest` begins with, and what it means.
    pub(super) fn longest(&self, mut rest: impl Iterator<Item = char> + Clone) -> Option<(usize, &T)> {
        let whole = rest.clone();
        let first = rest.next()?;
        let (at, bit) = bit(first);
        if self.firsts[at] & bit == 0 {
            return None;
        }
        let from = self.words.partition_point(|(word, _)| word[0] < first);
        let mut sharing = self.words[from..].iter().take_while(|(word, _)| word[0] == first);
        let (word, means) = sharing.find(|(word, _)| whole.clone().take(word.len()).eq(word.iter().copied()))?;
        Some((word.len(), means))
    }
}

/// What means nothing at the ends of a sentence.
pub(super) struct Ends {
    lead: ByFirst<()>,
    /// Read from the end.
    trail: ByFirst<()>,
}

impl Ends {
    pub(super) fn new(lexicon: &Lexicon) -> Ends {
        let lead = lexicon.lead.iter().map(|word| (word.chars().collect(), ())).collect();
        let trail = lexicon.trail.iter().map(|word| (word.chars().rev().collect(), ())).collect();
        Ends { lead: ByFirst::new(lead), trail: ByFirst::new(trail) }
    }
}

/// The spans of `chars` that are left when what means nothing is cut from its ends, word by word, the whole first. A
/// cut never takes everything; 系统 may be an address or the thing itself, so every cut is a choice.
pub(super) fn trimmed(chars: &[char], at_ends: &Ends) -> Vec<(usize, usize)> {
    let mut starts = vec![0];
    let mut from = 0;
    while let Some((len, ())) = at_ends.lead.longest(chars[from..].iter().copied()) {
        from += len;
        if from >= chars.len() || starts.len() >= CUTS_MAX {
            break;
        }
        starts.push(from);
    }
    let mut ends = vec![chars.len()];
    let mut to = chars.len();
    while let Some((len, ())) = at_ends.trail.longest(chars[..to].iter().rev().copied()) {
        to -= len;
        if to == 0 || ends.len() >= CUTS_MAX {
            break;
        }
        ends.push(to);
    }
    let mut spans: Vec<(usize, usize)> =
        starts.iter().flat_map(|start| ends.iter().map(move |end| (*start, *end))).filter(|(a, b)| a < b).collect();
    spans.sort_by_key(|(start, end)| usize::MAX - (end - start));
    spans
}

/// The characters and breaks that are left when `words` are passed over wherever they stand, the longest first; none
/// when there is none of them, or nothing else.
pub(super) fn without(chars: &[char], breaks: u64, words: &ByFirst<()>) -> Option<(Vec<char>, u64)> {
    let (mut left, mut marks, mut broken, mut at) = (Vec::with_capacity(chars.len()), 0, false, 0);
    while at < chars.len() {
        broken |= breaks & (1 << at) != 0;
        match words.longest(chars[at..].iter().copied()) {
            Some((len, ())) => at += len,
            None => {
                marks |= u64::from(broken && !left.is_empty()) << left.len();
                broken = false;
                left.push(chars[at]);
                at += 1;
            }
        }
    }
    (!left.is_empty() && left.len() < chars.len()).then_some((left, marks))
}

/// Words cut from one end at most: nobody says more before coming to the point.
const CUTS_MAX: usize = 4;

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

/// The spans of `chars` that are left when what means nothing is cut from its ends, word by word, the whole first. A
/// cut never takes everything; 系统 may be an address or the thing itself, so every cut is a choice.
#[must_use]
pub fn trimmed(chars: &[char], lead: &[Box<[char]>], trail: &[Box<[char]>]) -> Vec<(usize, usize)> {
    let mut starts = vec![0];
    let mut from = 0;
    while let Some(len) = lead.iter().filter(|word| chars[from..].starts_with(word)).map(|word| word.len()).max() {
        from += len;
        if from >= chars.len() || starts.len() >= CUTS_MAX {
            break;
        }
        starts.push(from);
    }
    let mut ends = vec![chars.len()];
    let mut to = chars.len();
    while let Some(len) = trail.iter().filter(|word| chars[..to].ends_with(word)).map(|word| word.len()).max() {
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
pub(super) fn without(chars: &[char], breaks: u64, words: &[Box<[char]>]) -> Option<(Vec<char>, u64)> {
    let (mut left, mut marks, mut broken, mut at) = (Vec::with_capacity(chars.len()), 0, false, 0);
    while at < chars.len() {
        broken |= breaks & (1 << at) != 0;
        match words.iter().filter(|word| chars[at..].starts_with(word)).map(|word| word.len()).max() {
            Some(len) => at += len,
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

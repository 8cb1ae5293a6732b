//! From an utterance to the numbers that the classifier sees: hashed pieces of its characters and of its folded syllables.
//!
//! `models/train/grams.py` does the very same: a model that was trained on other numbers than it is asked with answers
//! nonsense with confidence. The test holds both to the vectors that training wrote, and to its hash over all readings.

use super::sound;

/// Grams of characters hash into the first table and grams of syllables into the second; 0 is no gram.
const CHAR_BUCKETS: u32 = 4096;
const SOUND_BUCKETS: u32 = 4096;

/// Most grams of an utterance that is classified; a longer one is no command of a few words.
pub const GRAMS_MAX: usize = 192;

/// Longest gram, in symbols.
const N_MAX: usize = 3;

/// Runs of these are one number. 点 and 半 are not among them: they are words as often as numbers.
const DIGITS: &str = "0123456789.零〇一二两三四五六七八九十百千万幺洞拐俩";
const NUMBER: char = '#';
const EDGE: char = '|';

/// The numbers of a normal text, sorted and each once; empty when there are more than [`GRAMS_MAX`].
#[must_use]
pub fn grams(text: &str) -> Vec<i32> {
    let mut symbols = vec![EDGE];
    for ch in text.chars() {
        let ch = if DIGITS.contains(ch) { NUMBER } else { ch };
        if ch != NUMBER || symbols.last() != Some(&NUMBER) {
            symbols.push(ch);
        }
    }
    symbols.push(EDGE);
    let mut found = Vec::with_capacity(symbols.len() * N_MAX * 2);
    for n in 1..=N_MAX {
        for gram in symbols.windows(n).filter(|gram| *gram != [EDGE]) {
            let (mut by_char, mut by_sound) = (Fnv::new(), Fnv::new());
            for (at, ch) in gram.iter().enumerate() {
                by_char.take_char(*ch);
                if at > 0 {
                    by_sound.take(b" ");
                }
                match sound::reading(*ch) {
                    None => by_sound.take_char(*ch),
                    Some(syllable) => {
                        let (first, rest) = folded(syllable);
                        by_sound.take(first.as_bytes());
                        by_sound.take(rest.as_bytes());
                    }
                }
            }
            found.push(1 + by_char.0 % CHAR_BUCKETS);
            found.push(1 + CHAR_BUCKETS + by_sound.0 % SOUND_BUCKETS);
        }
    }
    found.sort_unstable();
    found.dedup();
    if found.len() > GRAMS_MAX {
        return Vec::new();
    }
    found.into_iter().filter_map(|gram| i32::try_from(gram).ok()).collect()
}

/// What regions and recognisers do not keep apart becomes one: the syllable in two pieces.
#[must_use]
pub fn folded(syllable: &'static str) -> (&'static str, &'static str) {
    const FIRST: [(&str, &str); 6] = [("zh", "z"), ("ch", "c"), ("sh", "s"), ("n", "l"), ("r", "l"), ("f", "h")];
    let (first, rest) = FIRST
        .iter()
        .find_map(|(long, short)| Some((*short, syllable.strip_prefix(long)?)))
        .unwrap_or((&syllable[..0], syllable));
    let nasal = ["ang", "eng", "ing"].iter().any(|ending| rest.ends_with(ending));
    (first, if nasal { &rest[..rest.len() - 1] } else { rest })
}

/// FNV-1a with 32 bits.
struct Fnv(u32);

impl Fnv {
    fn new() -> Fnv {
        Fnv(0x811c_9dc5)
    }

    fn take(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
        }
    }

    fn take_char(&mut self, ch: char) {
        self.take(ch.encode_utf8(&mut [0; 4]).as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use sha2::{Digest as _, Sha256};

    use super::*;

    /// What `models/train/train.py` wrote beside the model.
    const VECTORS: &str = include_str!("../../../models/train/grams.json");

    #[test]
    fn training_and_asking_see_the_same_numbers() {
        let vectors: serde_json::Value = serde_json::from_str(VECTORS).expect("vectors");
        let samples = vectors["grams"].as_object().expect("samples");
        assert!(samples.len() > 5);
        for (text, expected) in samples {
            assert_eq!(serde_json::json!(grams(text)), *expected, "{text}");
        }
        let mut all = Sha256::new();
        for ch in '\u{4e00}'..='\u{9fff}' {
            let (first, rest) = sound::reading(ch).map_or(("", ""), folded);
            all.update(format!("{first}{rest}\n"));
        }
        let hash: String = all.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(vectors["readings_sha256"], hash);
    }

    #[test]
    fn what_is_not_kept_apart_is_one() {
        let fold = |syllable| {
            let (first, rest) = folded(syllable);
            format!("{first}{rest}")
        };
        let folds = ["zhuang", "feng", "ning", "rong", "lü", "er"].map(fold);
        assert_eq!(folds, ["zuan", "hen", "lin", "long", "lü", "er"]);
    }

    #[test]
    fn a_text_that_is_too_long_has_no_numbers() {
        let text: String = ('\u{4e00}'..='\u{4e3f}').collect();
        assert_eq!(grams(&text), Vec::<i32>::new());
        assert_eq!(grams("").len(), 2);
    }
}

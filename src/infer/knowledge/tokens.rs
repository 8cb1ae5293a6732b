//! What passages and questions are compared by: characters, pairs of characters, pairs of folded syllables.

use std::collections::BTreeSet;

use interlock_domain::command::grams::folded;
use interlock_domain::command::sound::reading;
use interlock_domain::command::utterance::simplified;

/// Characters of a question that are looked at: a question is short, and each is a term of the search.
const QUESTION_LEN_MAX: usize = 64;

/// Pairs of syllables of a question's own subject.
pub(super) struct Pair {
    pub(super) written: [char; 2],
    pub(super) heard: String,
}

/// The letters and digits of a text: one width, one script, one case.
pub(super) fn symbols(text: &str) -> Vec<char> {
    text.chars()
        .map(|ch| match ch {
            // Full width to plain.
            '\u{ff01}'..='\u{ff5e}' => char::from_u32(u32::from(ch) - 0xfee0).unwrap_or(ch),
            other => simplified(other),
        })
        .flat_map(char::to_lowercase)
        .filter(|ch| ch.is_alphanumeric())
        .collect()
}

/// Single characters and pairs.
pub(super) fn written(symbols: &[char]) -> Vec<String> {
    let singles = symbols.iter().map(char::to_string);
    singles.chain(symbols.windows(2).map(|pair| pair.iter().collect())).collect()
}

/// Pairs of folded syllables.
pub(super) fn heard(symbols: &[char]) -> Vec<String> {
    symbols.windows(2).map(|pair| format!("{}_{}", syllable(pair[0]), syllable(pair[1]))).collect()
}

fn syllable(ch: char) -> String {
    match reading(ch).map(folded) {
        Some((first, rest)) => format!("{first}{rest}"),
        None => ch.to_string(),
    }
}

/// The question as an FTS5 query; empty when there is nothing to look for. Tokens are letters and digits, quoted: no
/// text can become an operator of the query.
pub(super) fn query(symbols: &[char]) -> String {
    let symbols = &symbols[..symbols.len().min(QUESTION_LEN_MAX)];
    let terms = |column: &str, tokens: Vec<String>| -> Vec<String> {
        let each: BTreeSet<String> = tokens.into_iter().collect();
        each.into_iter().map(|token| format!("{column} : \"{token}\"")).collect()
    };
    let mut all = terms("chars", written(symbols));
    all.extend(terms("sounds", heard(symbols)));
    all.join(" OR ")
}

/// Words that a question has whatever it is about. Two characters and more also count by sound.
const ASKING: &[&str] = &[
    "什么",
    "怎么",
    "怎样",
    "为什么",
    "为啥",
    "多少",
    "多久",
    "多长时间",
    "哪里",
    "哪儿",
    "哪些",
    "哪个",
    "在哪",
    "如何",
    "几个",
    "几点",
    "几次",
    "是不是",
    "有没有",
    "能不能",
    "会不会",
    "要不要",
    "可不可以",
    "是什么",
    "没有",
    "怎么办",
    "怎么处理",
    "什么原因",
    "怎么回事",
    "一般",
    "需要",
    "今天",
    "这个",
    "那个",
    "应该",
    "可以",
    "一下",
    "好的",
    "知道",
    "请问",
    "时候",
    "吗",
    "呢",
    "吧",
    "啊",
    "了",
    "的",
    "是",
    "有",
    "要",
    "该",
    "会",
    "能",
    "我",
    "你",
    "他",
    "在",
    "和",
    "就",
    "都",
    "也",
    "不",
    "把",
    "给",
    "说",
    "请",
    "看",
    "去",
    "到",
    "得",
    "着",
    "过",
    "啥",
    "咋",
    "没",
];

/// The pairs of a question that are its own: no part of a question word in them, each once.
pub(super) fn subject(symbols: &[char]) -> Vec<Pair> {
    let symbols = &symbols[..symbols.len().min(QUESTION_LEN_MAX)];
    let mut own = vec![true; symbols.len()];
    for word in ASKING {
        let word: Vec<char> = word.chars().collect();
        let by_sound = word.len() >= 2;
        for at in 0..(symbols.len() + 1).saturating_sub(word.len()) {
            let heard = &symbols[at..at + word.len()];
            let is_it = heard.iter().zip(&word).all(|(heard, said)| {
                heard == said || (by_sound && reading(*heard).is_some() && reading(*heard) == reading(*said))
            });
            if is_it {
                own[at..at + word.len()].fill(false);
            }
        }
    }
    let mut pairs: Vec<Pair> = Vec::new();
    for (pair, own) in symbols.windows(2).zip(own.windows(2)) {
        let heard = format!("{}_{}", syllable(pair[0]), syllable(pair[1]));
        if own == [true, true] && !pairs.iter().any(|known| known.heard == heard) {
            pairs.push(Pair { written: [pair[0], pair[1]], heard });
        }
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_compared_in_one_width_script_and_case() {
        assert_eq!(symbols("ＳＦ６　氣室，壓力").iter().collect::<String>(), "sf6气室压力");
        assert_eq!(heard(&symbols("刀闸")), ["dao_za"]);
        assert_eq!(written(&symbols("水泵")), ["水", "泵", "水泵"]);
    }

    #[test]
    fn the_subject_has_no_question_words() {
        let pairs = |text: &str| subject(&symbols(text)).into_iter().map(|pair| pair.heard).collect::<Vec<_>>();
        assert_eq!(pairs("水泵怎么启动"), ["sui_ben", "qi_don"].map(|pair| pair.replace("don", "dong")));
        assert_eq!(pairs("多少钱"), Vec::<String>::new());
        assert_eq!(pairs("哆哨"), Vec::<String>::new());
    }
}

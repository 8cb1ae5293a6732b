//! Does an utterance ask for knowledge? Only then are passages looked for: a command that was refused or not understood
//! is not answered with a page of the manual.

use super::sound::Sounds;
use super::utterance::Utterance;

/// What questions about a plant are made of. Heard by sound where it is two syllables or more: a recogniser that
/// writes a wrong question word still wrote its sound.
const WORDS: &[&str] = &[
    "什么",
    "怎么",
    "怎样",
    "咋",
    "如何",
    "为什么",
    "为何",
    "为啥",
    "多少",
    "多久",
    "多长",
    "多大",
    "多高",
    "哪些",
    "哪里",
    "哪几",
    "哪种",
    "哪个",
    "几个",
    "几种",
    "几级",
    "几次",
    "是不是",
    "能不能",
    "可不可以",
    "要不要",
    "会不会",
    "有没有",
    "吗",
    "原因",
    "怎么办",
    "办法",
    "步骤",
    "条件",
    "要求",
    "标准",
    "规定",
    "注意",
    "方法",
    "流程",
    "区别",
    "作用",
    "影响",
    "意思",
    "范围",
    "含义",
    "周期",
    "处理",
    "排查",
    "判断",
    "说明",
    "介绍",
    "要点",
    "检查项目",
    "操作规程",
    "啥",
];

/// Whether some word of a question is in it.
pub(super) fn asks(utterance: &Utterance, sounds: &Sounds) -> bool {
    let chars = &utterance.chars;
    utterance.asked
        || WORDS.iter().any(|word| {
            let word: Vec<char> = word.chars().collect();
            let by_sound = word.len() >= 2;
            chars.windows(word.len()).any(|heard| {
                heard
                    .iter()
                    .zip(&word)
                    .all(|(heard, said)| heard == said || (by_sound && sounds.usual(*heard) == sounds.usual(*said)))
            })
        })
}

#[cfg(test)]
mod tests {
    use super::super::sound::Confusions;
    use super::*;

    fn check(text: &str, expected: bool) {
        let sounds = Sounds::new(&Confusions::default());
        let utterance = Utterance::read(text, &sounds).expect("an utterance");
        assert_eq!(asks(&utterance, &sounds), expected, "{text}");
    }

    #[test]
    fn a_question_asks_and_a_command_does_not() {
        check("水泵振动大一般是什么原因", true);
        check("水泵不上水怎么初里", true);
        check("变压器油温报警值是多哨", true);
        check("离心泵启动前检查？", true);
        check("不要启动一号泵", false);
        check("启动除湿机", false);
        check("老王说他要打开防护门", false);
    }
}

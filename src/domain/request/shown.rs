//! What a person sees of an input before saying yes: one line that can hide nothing.

use serde_json::Value;

/// More than this a person does not read; the hash binds the rest.
const SHOWN_CHARS_MAX: usize = 2000;

/// The input as compact JSON, with every control, bidirectional and invisible character escaped.
#[must_use]
pub fn shown(input: &Value) -> String {
    escaped(&input.to_string(), SHOWN_CHARS_MAX)
}

/// The text with every control, bidirectional and invisible character escaped, cut after `chars_max` characters with a
/// count of what is missing.
#[must_use]
pub fn escaped(text: &str, chars_max: usize) -> String {
    let mut line = String::with_capacity(text.len().min(chars_max));
    for (at, letter) in text.chars().enumerate() {
        if at == chars_max {
            let missing = text.chars().count() - chars_max;
            line.push_str(&format!("… ({missing} more characters)"));
            break;
        }
        match letter {
            '\n' => line.push_str("\\n"),
            '\r' => line.push_str("\\r"),
            '\t' => line.push_str("\\t"),
            _ if hides(letter) => line.push_str(&format!("\\u{{{:x}}}", u32::from(letter))),
            _ => line.push(letter),
        }
    }
    line
}

/// As much of a text of somebody else as a message needs, without what moves a cursor or hides.
#[must_use]
pub fn plain(text: &str, chars_max: usize) -> String {
    text.chars().filter(|letter| !hides(*letter)).take(chars_max).collect()
}

/// Control characters, and those of Unicode that change the direction of text or show nothing.
#[must_use]
pub fn hides(letter: char) -> bool {
    letter.is_control()
        || matches!(
            letter,
            '\u{ad}'
                | '\u{34f}'
                | '\u{61c}'
                | '\u{115f}'..='\u{1160}'
                | '\u{17b4}'..='\u{17b5}'
                | '\u{180b}'..='\u{180f}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202f}'
                | '\u{205f}'..='\u{206f}'
                | '\u{3164}'
                | '\u{fe00}'..='\u{fe0f}'
                | '\u{feff}'
                | '\u{ffa0}'
                | '\u{fff0}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e0fff}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_hides_reaches_the_screen() {
        let table = [
            ("ls\rtouch canary", "ls\\rtouch canary"),
            ("a\u{202e}b", "a\\u{202e}b"),
            ("a\u{200b}b\u{7f}\u{1b}[31m", "a\\u{200b}b\\u{7f}\\u{1b}[31m"),
            ("关闭二号泵", "关闭二号泵"),
            ("a\nb", "a\\nb"),
        ];
        for (text, want) in table {
            assert_eq!(escaped(text, 100), want);
        }
        assert_eq!(escaped("abcdef", 4), "abcd… (2 more characters)");
        assert_eq!(plain("a\r\u{202e}b\u{1b}[31m 泵\u{200b}", 100), "ab[31m 泵");
        assert_eq!(plain("\nabc", 2), "ab");
    }
}

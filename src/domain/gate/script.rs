//! The scripts of `sed` and `awk`, as far as the gate has to know them: do they only change what they print?
//!
//! Both can run commands and write files from inside of a script, and nearly none does. What is not proven plain here is
//! asked about; it is never called dangerous.

use crate::surface::shell::Word;

/// The scripts print, and do no more; no file is edited where it is.
pub(super) fn sed_is_plain(rest: &[Word]) -> bool {
    let mut scripts: Vec<&str> = Vec::new();
    let mut operands: Vec<&str> = Vec::new();
    let mut words = rest.iter().map(|word| word.text.as_str());
    while let Some(word) = words.next() {
        match word {
            "-e" | "--expression" => scripts.extend(words.next()),
            "-f" | "--file" => return false,
            "-l" | "--line-length" => drop(words.next()),
            "-n" | "-r" | "-E" | "-s" | "-u" | "-z" | "-nE" | "-En" | "-nr" | "-rn" | "--quiet" | "--silent"
            | "--regexp-extended" | "--separate" | "--null-data" | "--posix" | "--sandbox" | "--" => {}
            word => match word.strip_prefix("--expression=").or_else(|| word.strip_prefix("-e")) {
                Some(script) => scripts.push(script),
                // `-i` edits files; any other option is not known here.
                None if word.starts_with('-') && word.len() > 1 => return false,
                None => operands.push(word),
            },
        }
    }
    if scripts.is_empty() {
        scripts.extend(operands.first());
    }
    scripts.into_iter().all(is_plain)
}

/// One script of `sed` has none of the commands `e`, `r`, `R`, `w`, `W`, and `s` none of the flags `e` and `w`.
fn is_plain(script: &str) -> bool {
    let mut left = script;
    loop {
        left = left.trim_start_matches([' ', '\t', '\n', ';', '{', '}']);
        if left.is_empty() {
            return true;
        }
        let Some(rest) = after_addresses(left) else { return false };
        let Some(command) = rest.chars().next() else { return true };
        let rest = &rest[command.len_utf8()..];
        left = match command {
            'p' | 'P' | 'd' | 'D' | 'g' | 'G' | 'h' | 'H' | 'n' | 'N' | 'x' | '=' | 'z' | '}' | '{' => rest,
            'q' | 'Q' | 'l' => rest.trim_start_matches(|letter: char| letter == ' ' || letter.is_ascii_digit()),
            's' => match after_substitution(rest) {
                Some((flags, after)) if !flags.contains(['e', 'w']) => after,
                Some(_) | None => return false,
            },
            'y' => match after_substitution(rest) {
                Some(("", after)) => after,
                Some(_) | None => return false,
            },
            // Text, labels and comments end with their line.
            'a' | 'i' | 'c' | 'b' | 't' | 'T' | ':' | '#' => rest.split_once('\n').map_or("", |(_, after)| after),
            _ => return false,
        };
    }
}

/// What follows the addresses of a command, and the `!` behind them.
fn after_addresses(script: &str) -> Option<&str> {
    let mut left = script;
    loop {
        let first = left.chars().next()?;
        left = match first {
            '0'..='9' | '$' | ',' | '~' | '+' | '!' | ' ' => &left[1..],
            '/' => {
                let after = after_delimited(&left[1..], '/')?;
                after.trim_start_matches(['I', 'M'])
            }
            '\\' => {
                let delimiter = left[1..].chars().next()?;
                after_delimited(&left[1 + delimiter.len_utf8()..], delimiter)?
            }
            _ => return Some(left),
        };
        if left.is_empty() {
            return Some(left);
        }
    }
}

/// What follows the next delimiter that no backslash stands before.
fn after_delimited(text: &str, delimiter: char) -> Option<&str> {
    let mut escaped = false;
    for (at, letter) in text.char_indices() {
        match letter {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            letter if letter == delimiter => return text.get(at + letter.len_utf8()..),
            _ => {}
        }
    }
    None
}

/// The flags of `s` or `y`, and what follows them. A flag that takes a file name takes the whole line.
fn after_substitution(text: &str) -> Option<(&str, &str)> {
    let delimiter = text.chars().next()?;
    let after = after_delimited(&text[delimiter.len_utf8()..], delimiter)?;
    let flags = after_delimited(after, delimiter)?;
    let end = flags.find(|letter: char| !letter.is_ascii_alphanumeric()).unwrap_or(flags.len());
    Some(flags.split_at(end))
}

/// The program neither runs a command nor reads or writes a file beside its input.
pub(super) fn awk_is_plain(rest: &[Word]) -> bool {
    let mut programs: Vec<&str> = Vec::new();
    let mut words = rest.iter().map(|word| word.text.as_str());
    while let Some(word) = words.next() {
        match word {
            "-v" | "-F" => drop(words.next()),
            "-e" | "--source" => programs.extend(words.next()),
            "--" => {}
            word if word.starts_with("-F") || word.starts_with("-v") => {}
            word if word.starts_with('-') && word.len() > 1 => return false,
            word => {
                if programs.is_empty() {
                    programs.push(word);
                }
                break;
            }
        }
    }
    programs.into_iter().all(|program| {
        let program = program.replace("||", "");
        let prints_to = |rest: &str| rest.split([';', '}', '\n']).next().is_some_and(|print| print.contains('>'));
        let to_files = program.split("print").skip(1).any(prints_to);
        !to_files && !["system", "getline", "|", "@", "close("].iter().any(|word| program.contains(word))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::surface::shell::Script;

    fn words(source: &str) -> Vec<Word> {
        Script::parse(source).commands()[0].words[1..].to_vec()
    }

    #[test]
    fn scripts_that_only_print_are_told_from_those_that_act() {
        let table = [
            ("sed -n 5p f", true),
            ("sed 's/a/b/' f", true),
            ("sed -E 's|a/b|c|gI; s/x/y/2' f", true),
            ("sed -n '/a/,/b/p' f", true),
            ("sed -n '1,5!p' f", true),
            ("sed '$d' f", true),
            ("sed -e 1d -e '2q' f", true),
            ("sed '/a\\/b/d' f", true),
            ("sed '\\,a,d' f", true),
            ("sed 'y/abc/xyz/' f", true),
            ("sed '1e touch x' f", false),
            ("sed 's/a/b/e' f", false),
            ("sed 's/a/b/w x' f", false),
            ("sed 's/a/b/;w x' f", false),
            ("sed -n '/a/w x' f", false),
            ("sed 'r /etc/passwd' f", false),
            ("sed -i s/a/b/ f", false),
            ("sed -f x f", false),
            ("sed -ne w\\ x f", false),
            ("sed --in-place s/a/b/ f", false),
            ("sed 's/a/b' f", false),
        ];
        for (source, want) in table {
            assert_eq!(sed_is_plain(&words(source)), want, "{source}");
        }
        let table = [
            ("awk '{print $1}' f", true),
            ("awk -F: '$3 > 5 || $2 {print $1}' f", true),
            ("awk -F'|' '{print $1}' f", true),
            ("awk 'BEGIN{system(\"x\")}'", false),
            ("awk '{print > \"x\"}' f", false),
            ("awk '{printf \"%s\", $1 >> \"x\"}' f", false),
            ("awk '{print | \"sh\"}' f", false),
            ("awk '{\"x\" | getline}' f", false),
            ("awk -f x f", false),
            ("awk -i inplace 1 f", false),
        ];
        for (source, want) in table {
            assert_eq!(awk_is_plain(&words(source)), want, "{source}");
        }
    }
}

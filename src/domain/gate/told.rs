//! What the words of a command will be, as far as the line itself tells: variables that it sets, the words that a loop
//! goes through, what `echo` prints into a word.
//!
//! Of a variable that is set more than once every value counts, since nobody here knows which way the line goes. It only
//! ever adds findings: an allow is for the words as they were written.

use std::collections::BTreeMap;

use crate::request::paths::base;
use crate::surface::shell::{Command, Script, Word};

use super::removal::part;

/// How many values of a variable are looked at; a loop over more is seen to go through these.
const VALUES_MAX: usize = 16;
/// How many commands the values of variables may make; what is beyond has all of them in braces.
const TOLD_MAX: usize = 256;
/// The longest text that a word may become: values of values grow fast, and no path is longer.
const TEXT_BYTES_MAX: usize = 4096;

/// The commands whose words are known now, and where in the line they stand: one for each value of a variable that may
/// have several, in their order. `fed` are the texts that the script feeds to commands which read.
pub(super) fn told(script: &Script, fed: &[String]) -> Vec<(usize, Command)> {
    let mut found = Vec::new();
    let varies = |word: &Word| word.text.contains(['$', '`']);
    let uses = |command: &Command| {
        command.words.iter().any(varies) || command.redirects.iter().any(|redirect| varies(&redirect.target))
    };
    if !script.commands().iter().any(uses) {
        return found;
    }
    let mut known = Known::default();
    for (at, command) in script.commands().iter().enumerate() {
        known.learn_assignments(command);
        let whole = if uses(command) { known.put_into_all(command, None) } else { command.clone() };
        known.learn(&whole, fed);
        if whole == *command {
            continue;
        }
        match known.only_choice(command) {
            Some(values) if found.len() + values <= TOLD_MAX => {
                found.extend((0..values).map(|which| (at, known.put_into_all(command, Some(which)))));
            }
            Some(_) | None => found.push((at, whole)),
        }
    }
    found
}

/// The variables that the line has set so far.
#[derive(Default)]
struct Known {
    values: BTreeMap<String, Vec<Word>>,
}

impl Known {
    fn set(&mut self, name: &str, value: Word) {
        let values = self.values.entry(name.to_owned()).or_default();
        if values.len() < VALUES_MAX && !values.contains(&value) {
            values.push(value);
        }
    }

    fn learn_assignments(&mut self, command: &Command) {
        for one in &command.assignments {
            let value = self.filled(&one.value, None);
            self.set(&one.name, value);
        }
    }

    /// What a command sets by its words.
    fn learn(&mut self, command: &Command, fed: &[String]) {
        let Some((name, rest)) = command.words.split_first() else { return };
        match base(&name.text) {
            "export" | "declare" | "typeset" | "local" | "readonly" => {
                for word in rest {
                    if let Some((name, value)) = word.text.split_once('=') {
                        self.set(name, word.part(value));
                    }
                }
            }
            "for" | "select" => {
                if let [name, _in, values @ ..] = rest {
                    values.iter().for_each(|value| self.set(&name.text, value.clone()));
                }
            }
            "printf" if rest.first().is_some_and(|word| word.text == "-v") => {
                if let [_, name, values @ ..] = rest {
                    values.iter().for_each(|value| self.set(&name.text, value.clone()));
                }
            }
            "read" if command.fed => {
                for name in rest.iter().filter(|word| !word.text.starts_with('-')) {
                    fed.iter().flat_map(|text| text.split_whitespace()).for_each(|text| {
                        self.set(&name.text, Word::literal(text));
                    });
                }
            }
            "set" => {
                for (at, value) in rest.iter().skip_while(|word| word.text != "--").skip(1).enumerate() {
                    self.set(&(at + 1).to_string(), value.clone());
                    self.set("@", value.clone());
                    self.set("*", value.clone());
                }
            }
            _ => {}
        }
    }

    /// The command with its words filled. `which` is the value to take of a variable that has several; without it all
    /// of them stand in braces.
    fn put_into_all(&self, command: &Command, which: Option<usize>) -> Command {
        let mut told = command.clone();
        told.words = command.words.iter().flat_map(|word| self.put_into(word, which)).collect();
        for redirect in &mut told.redirects {
            redirect.target = self.filled(&redirect.target, which);
        }
        told
    }

    /// How many values the one variable has that decides what the command is; `None` when it is not exactly one.
    fn only_choice(&self, command: &Command) -> Option<usize> {
        let targets = command.redirects.iter().map(|redirect| &redirect.target);
        let texts = command.words.iter().chain(targets).map(|word| word.text.as_str());
        let mut names: Vec<&str> = texts.flat_map(expansions).filter_map(name_of).collect();
        names.retain(|name| self.values.get(*name).is_some_and(|values| values.len() > 1));
        names.sort_unstable();
        names.dedup();
        let [name] = names.as_slice() else { return None };
        self.values.get(*name).map(Vec::len)
    }

    /// The words that a word becomes: without quotes a value falls apart at its blanks.
    fn put_into(&self, word: &Word, which: Option<usize>) -> Vec<Word> {
        let filled = self.filled(word, which);
        if !word.expands || word.quoted || filled == *word || !filled.text.contains(char::is_whitespace) {
            return vec![filled];
        }
        filled.text.split_whitespace().map(|text| filled.part(text)).collect()
    }

    fn filled(&self, word: &Word, which: Option<usize>) -> Word {
        if !word.text.contains(['$', '`']) {
            return word.clone();
        }
        let mut filled = word.clone();
        filled.text.clear();
        let mut left = word.text.as_str();
        while let Some(at) = left.find(['$', '`']) {
            filled.text.push_str(&left[..at]);
            let Some((part, rest)) = part(&left[at..]) else { return word.clone() };
            left = rest;
            let mut values = self.values_of(part);
            if let Some(which) = which.filter(|which| *which < values.len()) {
                values = vec![values.swap_remove(which)];
            }
            let first = filled.text.is_empty();
            match values.as_slice() {
                [] => filled.text.push_str(part),
                [value] => {
                    filled.text.push_str(&value.text);
                    filled.globs |= value.globs;
                    filled.braces |= value.braces;
                    filled.tilde |= first && value.tilde;
                }
                values => {
                    let texts: Vec<&str> = values.iter().map(|value| value.text.as_str()).collect();
                    filled.text.extend(["{", &texts.join(","), "}"]);
                    filled.braces = true;
                    filled.globs |= values.iter().any(|value| value.globs);
                    filled.tilde |= first && values.iter().any(|value| value.tilde);
                }
            }
            if filled.text.len() > TEXT_BYTES_MAX {
                return word.clone();
            }
        }
        filled.text.push_str(left);
        if filled.text == word.text {
            return word.clone();
        }
        filled.expands = filled.text.contains(['$', '`']);
        filled
    }

    /// What an expansion stands for; nothing for one of which the line does not tell.
    fn values_of(&self, part: &str) -> Vec<Word> {
        if let Some(printed) = printed(part) {
            return vec![Word::literal(printed)];
        }
        let Some((name, operator)) = split(part) else { return Vec::new() };
        let put = |signs: &[&str]| {
            let text = signs.iter().find_map(|sign| operator.strip_prefix(sign))?.trim_matches(['"', '\'']);
            (!text.is_empty() && !text.contains('$')).then(|| Word::literal(text))
        };
        // In place of a value, whatever it is.
        if let Some(other) = put(&[":+", "+"]) {
            return vec![other];
        }
        if let Some(values) = self.values.get(name) {
            return values.clone();
        }
        put(&[":-", ":=", "-", "="]).into_iter().collect()
    }
}

/// The expansions in a text.
fn expansions(text: &str) -> impl Iterator<Item = &str> {
    let mut left = text;
    std::iter::from_fn(move || {
        let (found, rest) = part(&left[left.find(['$', '`'])?..])?;
        left = rest;
        Some(found)
    })
}

/// The variable of an expansion.
fn name_of(part: &str) -> Option<&str> {
    split(part).map(|(name, _)| name)
}

/// The variable of an expansion, and what is done to its value.
fn split(part: &str) -> Option<(&str, &str)> {
    let inner = part.strip_prefix('$')?;
    let inner = inner.strip_prefix('{').and_then(|inner| inner.strip_suffix('}')).unwrap_or(inner);
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let end = inner.find(|letter| !is_name(letter)).unwrap_or(inner.len());
    Some(if end == 0 { (inner, "") } else { inner.split_at(end) })
}

/// What `echo` or `printf` prints into a word, where it is one plain text.
fn printed(part: &str) -> Option<&str> {
    let command = part.strip_prefix("$(").and_then(|inner| inner.strip_suffix(')'));
    let command = command.or_else(|| part.strip_prefix('`').and_then(|inner| inner.strip_suffix('`')))?;
    let mut words = command.split_whitespace();
    let text = match (words.next()?, words.next()?, words.next(), words.next()) {
        ("echo" | "printf", text, None, None) | ("echo", "-n" | "-e", Some(text), None) => text,
        ("printf", "%s" | "'%s'" | "\"%s\"", Some(text), None) => text,
        _ => return None,
    };
    let text = text.trim_matches(['"', '\'']);
    (!text.contains(['$', '`', '"', '\'', '\\', ';', '|', '&', '<', '>', '('])).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_line_tells_of_its_words_is_put_in() {
        // the line, and its last command
        let table = [
            ("d=a; cp x $d/y", "cp x a/y"),
            ("d=a && cp x \"${d}/y\"", "cp x a/y"),
            ("d=a; d=b; rm $d", "rm a"),
            ("a=.g; b=${a}it; cat $b/x", "cat .git/x"),
            ("for d in a b; do rm $d/$d; done", "rm b/b"),
            ("d=a; d=b; e=c; e=f; rm $d/$e", "rm {a,b}/{c,f}"),
            ("export d=a; rm $d", "rm a"),
            ("read d <<< a; rm $d", "rm a"),
            ("set -- a b; rm $2", "rm b"),
            ("printf -v d a; rm $d", "rm a"),
            ("r='rm x'; $r y", "rm x y"),
            ("d=a sh -c 'rm $d'", "sh -c rm a"),
            ("rm $(echo a)/b", "rm a/b"),
            ("rm `printf a`", "rm a"),
            ("rm ${x:-a}", "rm a"),
            ("rm $x", "rm $x"),
            ("rm $(echo $x)", "rm $(echo $x)"),
        ];
        for (source, want) in table {
            let script = Script::parse(source);
            let fed = super::super::peel::fed_texts(&script);
            let told = told(&script, &fed);
            let mut commands = script.commands().iter().chain(told.iter().map(|(_, command)| command));
            assert!(commands.any(|command| command.joined() == want), "{source}: {told:?}");
        }
        let doubles: String = (0..200).map(|at| format!("v{}=$v{at}$v{at}; ", at + 1)).collect();
        let script = Script::parse(&format!("v0=ab; {doubles} rm $v200"));
        let longest = told(&script, &[]).into_iter().flat_map(|(_, command)| command.words);
        assert!(longest.map(|word| word.text.len()).max() < Some(TEXT_BYTES_MAX * 2));
    }
}

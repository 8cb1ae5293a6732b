//! A command's program and its arguments, as every room of the gate reads them: what is an option, what an operand,
//! what `find` is told to do.

use crate::request::paths::base;
use crate::surface::shell::{Command, Word};

/// Expressions of `find` behind which a command stands.
pub(super) const FIND_RUNS: &[&str] = &["-exec", "-execdir", "-ok", "-okdir"];
/// The same of `fd`.
pub(super) const FD_RUNS: &[&str] = &["-x", "-X", "--exec", "--exec-batch"];

/// The name of the program, without its directory, and the words behind it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Argv<'a> {
    pub(super) name: &'a str,
    pub(super) rest: &'a [Word],
}

impl<'a> Argv<'a> {
    pub(super) fn of(command: &'a Command) -> Option<Argv<'a>> {
        let (name, rest) = command.words.split_first()?;
        Some(Argv { name: base(&name.text), rest })
    }

    /// The arguments that are no options.
    pub(super) fn operands(self) -> impl DoubleEndedIterator<Item = &'a Word> + Clone {
        self.rest.iter().filter(|word| !word.text.starts_with('-'))
    }

    /// The first of them as text: the verb of many a program.
    pub(super) fn verb(self) -> &'a str {
        self.operands().next().map_or("", |word| word.text.as_str())
    }

    /// One of these stands among the arguments.
    pub(super) fn says(self, words: &[&str]) -> bool {
        self.rest.iter().any(|word| words.contains(&word.text.as_str()))
    }

    /// All of these stand among the operands.
    pub(super) fn names_all(self, words: &[&str]) -> bool {
        words.iter().all(|wanted| self.operands().any(|word| word.text == *wanted))
    }

    /// An argument begins with this.
    pub(super) fn begins(self, prefix: &str) -> bool {
        self.rest.iter().any(|word| word.text.starts_with(prefix))
    }

    /// The letters of the options that have one dash.
    pub(super) fn letters(self) -> impl Iterator<Item = &'a str> {
        self.rest.iter().filter_map(|word| letters(&word.text))
    }

    /// One of these letters stands in an option that has one dash.
    pub(super) fn has_letter(self, wanted: &[char]) -> bool {
        self.letters().any(|letters| letters.contains(wanted))
    }

    /// The words after these options, or behind their `=`.
    pub(super) fn valued(self, options: &[&str]) -> Vec<Word> {
        let mut found = Vec::new();
        for (at, word) in self.rest.iter().enumerate() {
            if options.contains(&word.text.as_str()) {
                found.extend(self.rest.get(at + 1).cloned());
            } else if let Some((option, value)) = word.text.split_once('=')
                && option.starts_with("--")
                && options.contains(&option)
            {
                found.push(word.part(value));
            }
        }
        found
    }

    /// What stands right behind an option of one letter.
    pub(super) fn glued(self, option: &str) -> Vec<Word> {
        let words = self.rest.iter().filter(|word| !word.text.starts_with("--"));
        let value = |word: &'a Word| word.text.strip_prefix(option).filter(|value| !value.is_empty());
        words.filter_map(|word| Some(word.part(value(word)?))).collect()
    }

    /// The directory that `cp`, `mv`, `ln` or `install` is told to put all operands into. `-t` is the last letter of its
    /// cluster, or has the directory glued on; a letter before it that takes a value itself has taken the `t`.
    pub(super) fn target_directory(self) -> Option<Word> {
        if !matches!(self.name, "cp" | "mv" | "ln" | "install") {
            return None;
        }
        let behind_t = |word: &'a Word| {
            let (before, value) = letters(&word.text)?.split_once('t')?;
            (!before.contains(['S', 'g', 'm', 'o'])).then_some(value)
        };
        let short = self.rest.iter().enumerate().find_map(|(at, word)| match behind_t(word)? {
            "" => self.rest.get(at + 1).cloned(),
            glued => Some(word.part(glued)),
        });
        short.or_else(|| self.valued(&["--target-directory"]).into_iter().next())
    }

    /// Where `find` begins: what stands before its first expression.
    pub(super) fn find_roots(self) -> impl Iterator<Item = &'a Word> {
        self.rest.iter().take_while(|word| !word.text.starts_with(['-', '(', '!']))
    }

    /// Where `fd` begins: what follows its pattern, before what it runs.
    pub(super) fn fd_roots(self) -> impl Iterator<Item = &'a Word> {
        let before = self.rest.iter().take_while(|word| !FD_RUNS.contains(&word.text.as_str()));
        before.filter(|word| !word.text.starts_with('-')).skip(1)
    }

    /// `find` deletes what it finds, or runs one of these with it.
    pub(super) fn finds_for(self, programs: &[&str]) -> bool {
        let runs = |word: &Word| FIND_RUNS.contains(&word.text.as_str());
        self.says(&["-delete"])
            || self.rest.iter().skip_while(|word| !runs(word)).any(|word| programs.contains(&base(&word.text)))
    }
}

/// The letters of an option that has one dash.
pub(super) fn letters(option: &str) -> Option<&str> {
    option.strip_prefix('-').filter(|letters| !letters.starts_with('-'))
}

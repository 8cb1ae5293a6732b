//! A shell command as the gate sees it: the simple commands that it runs, with quotes removed and words apart.
//!
//! Every string has an answer, in time linear in its length and with bounded nesting: a parser that can be made to
//! hang is a gate that can be held open, and one that gives up is a gate that can be jumped. What a shell would only
//! know when it runs (substitutions, a command word that expands) makes a script [`Understood::Opaque`]; the commands
//! that can be read all the same are kept, nested ones included, so that a deny still finds them. Never guess in favour
//! of a command: an operator that is not known here is opaque.

mod parse;
pub mod reads;

use std::borrow::Cow;

/// The longest command that is taken for understood; nobody reads a longer one before saying yes.
pub const SCRIPT_CHARS_MAX: usize = 10_000;

/// The most simple commands in a script; with more it is not taken for a command at all.
pub const COMMANDS_MAX: usize = 256;

/// How deep substitutions and brackets may nest. People write two.
pub const NEST_MAX: usize = 24;

/// A command string, and what could be understood of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script {
    source: String,
    understood: Understood,
    commands: Vec<Command>,
    fed: Vec<String>,
}

/// How well a command string was understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Understood {
    /// The commands are all that it runs.
    Whole,
    /// It runs what cannot be told beforehand, for this reason; the commands are those that could be recovered.
    Opaque(&'static str),
    /// It is no shell command, for this reason; the commands are those that could be recovered.
    Unparseable(&'static str),
}

/// One simple command.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Command {
    /// `NAME=value` before the command word.
    pub assignments: Vec<Assignment>,
    /// The command word and its arguments.
    pub words: Vec<Word>,
    /// Files that it is connected to.
    pub redirects: Vec<Redirect>,
    /// Its input comes from a pipe, a here-document or a file.
    pub fed: bool,
}

/// An assignment before a command word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    /// The variable.
    pub name: String,
    /// What it gets.
    pub value: Word,
}

/// A file that a command is connected to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redirect {
    /// It is written or created.
    pub writes: bool,
    /// The file.
    pub target: Word,
}

/// A word with its quotes removed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Word {
    /// The text; expansions stand in it as they were written.
    pub text: String,
    /// Holds a parameter or command that is put in when it runs.
    pub expands: bool,
    /// Holds an unquoted `*`, `?` or `[`.
    pub globs: bool,
    /// Becomes several words by `{a,b}`.
    pub braces: bool,
    /// Begins with an unquoted `~`.
    pub tilde: bool,
    /// Some of it was quoted.
    pub quoted: bool,
    /// Where in the text the first quoted part begins.
    quoted_from: Option<usize>,
}

impl Word {
    /// A literal word.
    #[must_use]
    pub fn literal(text: &str) -> Word {
        Word { text: text.to_owned(), ..Word::default() }
    }

    /// What comes next is quoted.
    fn quote(&mut self) {
        self.quoted = true;
        self.quoted_from.get_or_insert(self.text.len());
    }

    /// The shell passes it on as it stands (but for a home directory in front).
    #[must_use]
    pub fn is_fixed(&self) -> bool {
        !self.expands && !self.globs && !self.braces
    }

    /// A part of it as a word; what of it expands may stand in any part of it.
    #[must_use]
    pub fn part(&self, text: &str) -> Word {
        let tilde = text.starts_with('~') && (self.tilde || !self.quoted);
        Word { text: text.to_owned(), tilde, ..*self }
    }

    /// The word as a path: a quoted `~` is a name and no home directory.
    #[must_use]
    pub fn path(&self) -> Cow<'_, str> {
        if self.text.starts_with('~') && !self.tilde {
            Cow::Owned(format!("./{}", self.text))
        } else {
            Cow::Borrowed(&self.text)
        }
    }
}

impl Command {
    /// A command of literal words, for what another command runs.
    #[must_use]
    pub fn of_words(words: &[Word]) -> Command {
        Command { words: words.to_vec(), ..Command::default() }
    }

    /// The command word, if it is fixed.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.words.first().filter(|word| word.is_fixed() && !word.tilde).map(|word| word.text.as_str())
    }

    /// The words with single spaces between them.
    #[must_use]
    pub fn joined(&self) -> String {
        self.words.iter().map(|word| word.text.as_str()).collect::<Vec<_>>().join(" ")
    }

    /// As [`Command::joined`], with quotes around a word that has a blank inside: two words never look like one.
    #[must_use]
    pub fn quoted(&self) -> String {
        let mut line = String::new();
        for word in &self.words {
            if !line.is_empty() {
                line.push(' ');
            }
            if word.text.is_empty() || word.text.contains(|letter: char| letter.is_whitespace() || letter == '\'') {
                line.push('\'');
                line.push_str(&word.text.replace('\'', "'\\''"));
                line.push('\'');
            } else {
                line.push_str(&word.text);
            }
        }
        line
    }
}

impl Script {
    /// Looks at a command string; every string has an answer.
    #[must_use]
    pub fn parse(source: &str) -> Script {
        let parse::Parsed { commands, understood, fed } = parse::parse(source);
        Script { source: source.to_owned(), understood, commands, fed }
    }

    /// As it was written.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// How well it was understood.
    #[must_use]
    pub fn understood(&self) -> Understood {
        self.understood
    }

    /// The commands that it runs, as far as they could be told.
    #[must_use]
    pub fn commands(&self) -> &[Command] {
        &self.commands
    }

    /// The texts of its here-documents and here-strings, as they were written.
    #[must_use]
    pub fn fed(&self) -> &[String] {
        &self.fed
    }

    /// The words that may be paths, for `sys` to look at.
    #[must_use]
    pub fn path_words(&self) -> Vec<String> {
        /// Each costs `sys` a walk over the disk.
        const PATH_WORDS_MAX: usize = 128;
        let arguments = self.commands.iter().flat_map(|command| command.words.iter().skip(1));
        let targets = self.commands.iter().flat_map(|command| &command.redirects).map(|redirect| &redirect.target);
        arguments
            .chain(targets)
            .filter(|word| word.is_fixed() && !word.text.is_empty() && !word.text.starts_with('-'))
            .map(|word| word.path().into_owned())
            .take(PATH_WORDS_MAX)
            .collect()
    }
}

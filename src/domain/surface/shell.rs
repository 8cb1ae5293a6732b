//! A shell command as the gate sees it.
//!
//! Conservative until a real parser stands here: a command of plain words is understood, anything else is opaque. No
//! allow rule matches what is opaque; deny rules still look at every literal part.

/// The longest command that is taken for understood; a longer one is opaque as a whole.
pub const SCRIPT_CHARS_MAX: usize = 10_000;

/// A command string, and what could be understood of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script {
    source: String,
    understood: Understood,
    commands: Vec<Command>,
}

/// How well a command string was understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Understood {
    /// The commands are all that it runs.
    Whole,
    /// It runs what cannot be told beforehand; the commands are those that could be recovered.
    Opaque(&'static str),
    /// It is no shell command; the commands are those that could be recovered.
    Unparseable(&'static str),
}

/// One simple command.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Command {
    /// The command word and its arguments, quotes removed.
    pub words: Vec<String>,
}

impl Command {
    /// The words with single spaces between them.
    #[must_use]
    pub fn joined(&self) -> String {
        self.words.join(" ")
    }

    /// As [`Command::joined`], with quotes around a word that has a blank inside: two words never look like one.
    #[must_use]
    pub fn quoted(&self) -> String {
        self.joined()
    }
}

impl Script {
    /// Looks at a command string; every string has an answer.
    #[must_use]
    pub fn parse(source: &str) -> Script {
        let plain = |letter: char| letter.is_ascii_alphanumeric() || " _./:=@%+,-".contains(letter);
        let understood = if source.chars().count() > SCRIPT_CHARS_MAX {
            Understood::Opaque("it is too long")
        } else if source.chars().all(plain) {
            Understood::Whole
        } else {
            Understood::Opaque("it has more than plain words")
        };
        let commands = source
            .split(['\n', ';', '&', '|', '(', ')', '`', '{', '}'])
            .map(|part| Command {
                words: part.split_whitespace().map(|word| word.replace(['\'', '"', '\\'], "")).collect(),
            })
            .filter(|command| !command.words.is_empty())
            .collect();
        Script { source: source.to_owned(), understood, commands }
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

    /// The words that look like paths, for `sys` to look at.
    #[must_use]
    pub fn path_words(&self) -> Vec<String> {
        Vec::new()
    }
}

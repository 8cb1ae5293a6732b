//! A shell command as the gate sees it.
//!
//! Conservative until a real parser stands here: a command of plain words is understood, anything else is opaque. No
//! allow rule matches what is opaque; deny rules still look at every literal part.

/// The longest command that is looked into; a longer one is opaque as a whole.
pub const SCRIPT_CHARS_MAX: usize = 10_000;

/// A command string, and what could be understood of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script {
    source: String,
}

impl Script {
    /// Looks at a command string; every string has an answer.
    #[must_use]
    pub fn parse(source: &str) -> Script {
        Script { source: source.to_owned() }
    }

    /// As it was written.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The words that look like paths, for `sys` to look at.
    #[must_use]
    pub fn path_words(&self) -> Vec<String> {
        Vec::new()
    }
}

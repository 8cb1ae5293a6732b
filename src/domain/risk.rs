//! How bad it is when an action runs by mistake: one word for commands, devices, tools and the gate.

use std::fmt;

/// The declared risk of an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Risk {
    /// Looks.
    Read,
    /// Ordinary operation: it changes the plant in a way that can be changed back.
    Operate,
    /// Can hurt people or break things: always a question.
    Dangerous,
}

impl Risk {
    /// The word in rules, configuration, command sets and evidence.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Risk::Read => "read",
            Risk::Operate => "operate",
            Risk::Dangerous => "dangerous",
        }
    }

    /// Reads the word.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Risk> {
        [Risk::Read, Risk::Operate, Risk::Dangerous].into_iter().find(|risk| risk.word() == word)
    }
}

impl fmt::Display for Risk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

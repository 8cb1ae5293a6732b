//! The rules that people write: `Bash(git status:*)`, `Edit(docs/**)`, `Device(risk:dangerous)`.

use thiserror::Error;

/// Who stands behind a rule, from weak to strong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Authority {
    /// Kept from an earlier "always".
    Persistent,
    /// The configuration file.
    Config,
    /// This session.
    Session,
    /// The command line.
    Cli,
    /// The fleet's owner.
    Managed,
}

/// What a rule says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    /// Goes on.
    Allow,
    /// A person has to say so.
    Ask,
    /// Does not go on.
    Deny,
}

/// A rule that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("rule {rule:?}: {fact}")]
pub struct BadRule {
    /// As it was written.
    pub rule: String,
    /// What is wrong, and what would be right.
    pub fact: String,
}

/// One rule.
#[derive(Debug, Clone)]
pub struct Rule {
    /// As it was written.
    pub text: String,
    /// What it says.
    pub verb: Verb,
    /// Who stands behind it.
    pub authority: Authority,
}

impl Rule {
    /// Reads a rule. `anchor` is the directory of the file that it stands in, for specs that begin with `/`.
    ///
    /// # Errors
    /// When the text is no rule.
    pub fn parse(verb: Verb, text: &str, authority: Authority, _anchor: Option<&str>) -> Result<Rule, BadRule> {
        Ok(Rule { text: text.to_owned(), verb, authority })
    }
}

/// All rules of a policy; later ones are newer.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    rules: Vec<Rule>,
}

impl Rules {
    /// In the order of their age, oldest first.
    #[must_use]
    pub fn new(rules: Vec<Rule>) -> Rules {
        Rules { rules }
    }

    /// All of them.
    #[must_use]
    pub fn all(&self) -> &[Rule] {
        &self.rules
    }
}

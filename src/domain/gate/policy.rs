//! What a run may do: its mode, its rules, whom it acts for, and who can be asked.
//!
//! A policy is a value made from the checked configuration; a change makes a new one and a new epoch, it never edits
//! the old one. A child's policy is made by [`Policy::narrowed`], which can only take away.

use std::sync::Arc;
use std::time::Duration;

use crate::request::Asker;

use super::breaker::Breaker;
use super::rule::{Rule, Rules};

/// How long a `permit` or `confirm` question waits by default (`[ask] timeout`).
pub const ASK_PATIENCE: Duration = Duration::from_secs(120);

/// How freely a run may act. The order is the one of width: a child is clamped to its parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// Reads only.
    Plan,
    /// What would be asked is denied.
    DontAsk,
    /// Asks for what no rule allows.
    Default,
    /// Writes inside the working directories go without a question.
    AcceptEdits,
    /// Everything that no rule and no immune check stops.
    BypassPermissions,
}

impl Mode {
    /// All of them, from narrow to wide.
    pub const ALL: [Mode; 5] = [Mode::Plan, Mode::DontAsk, Mode::Default, Mode::AcceptEdits, Mode::BypassPermissions];

    /// The word in configuration, `policy check` and evidence.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Mode::Plan => "plan",
            Mode::DontAsk => "dontAsk",
            Mode::Default => "default",
            Mode::AcceptEdits => "acceptEdits",
            Mode::BypassPermissions => "bypassPermissions",
        }
    }

    /// Reads the word.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Mode> {
        Mode::ALL.into_iter().find(|mode| mode.word() == word)
    }
}

/// Which rule wins when several match.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RuleOrder {
    /// Deny, then ask, then allow, over all rules together.
    #[default]
    Strictest,
    /// The highest authority, among those the newest (the paper's order).
    Authority,
}

/// What a run may do.
#[derive(Debug, Clone)]
pub struct Policy {
    /// Whom the run acts for.
    pub asker: Asker,
    /// How freely.
    pub mode: Mode,
    /// The rules of all authorities.
    pub rules: Arc<Rules>,
    /// Which rule wins.
    pub order: RuleOrder,
    /// There is somebody who can be asked.
    pub answerable: bool,
    /// How long a question waits.
    pub ask_patience: Duration,
    /// `[safety] confirm-protective`: protective actions are asked about like any other.
    pub confirm_protective: bool,
    /// `[ask] four-eyes = "dangerous"`: two persons have to allow what is dangerous, where it is asked about.
    pub four_eyes: bool,
    /// Interlock's own configuration, policy, evidence and learned data: canonical paths, protected like `/etc`.
    pub own_paths: Arc<[String]>,
    /// Where Interlock keeps its keys: reading there is a question in every mode.
    pub own_secrets: Arc<[String]>,
    /// In `bypassPermissions`, a classifier that fails does not ask (the paper's fail-open; off by default).
    pub classifier_fails_open: bool,
    /// When repeated denials of one kind are too many; for operators never.
    pub breaker: Breaker,
}

impl Policy {
    /// The policy of a run in `default` mode without any rule.
    #[must_use]
    pub fn plain(asker: Asker) -> Policy {
        Policy {
            asker,
            mode: Mode::Default,
            rules: Arc::new(Rules::default()),
            order: RuleOrder::Strictest,
            answerable: true,
            ask_patience: ASK_PATIENCE,
            confirm_protective: false,
            four_eyes: false,
            own_paths: Arc::new([]),
            own_secrets: Arc::new([]),
            classifier_fails_open: false,
            breaker: Breaker::default(),
        }
    }

    /// A child's policy: another asker, the same rules, at most the same mode. What a person granted to the parent
    /// while it ran, or once for always, was said to the parent: the child has no such grant.
    #[must_use]
    pub fn narrowed(&self, asker: Asker, wanted: Mode) -> Policy {
        let rules = if self.rules.all().iter().any(Rule::is_grant) {
            let own = self.rules.all().iter().filter(|rule| !rule.is_grant());
            Arc::new(Rules::new(own.cloned().collect()))
        } else {
            Arc::clone(&self.rules)
        };
        Policy { asker, mode: wanted.min(self.mode), rules, ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::super::rule::{Authority, Verb};
    use super::*;
    use crate::sample;

    #[test]
    fn a_child_has_the_rules_and_no_grant() {
        let rule = |verb, authority| Rule::parse(verb, "Bash(ls)", authority, None).unwrap();
        let rules = [
            rule(Verb::Allow, Authority::Config),
            rule(Verb::Allow, Authority::Session),
            rule(Verb::Deny, Authority::Session),
            rule(Verb::Ask, Authority::Persistent),
            rule(Verb::Allow, Authority::Persistent),
            rule(Verb::Allow, Authority::Cli),
            Rule::grant("mail", "send", Authority::Session),
        ];
        let parent = Policy { rules: Arc::new(Rules::new(rules.to_vec())), ..sample::policy(crate::request::Via::Mcp) };
        let child = parent.narrowed(parent.asker.clone(), Mode::BypassPermissions);
        let left: Vec<_> = child.rules.all().iter().map(|rule| (rule.verb(), rule.authority())).collect();
        assert_eq!(
            left,
            [
                (Verb::Allow, Authority::Config),
                (Verb::Deny, Authority::Session),
                (Verb::Ask, Authority::Persistent),
                (Verb::Allow, Authority::Cli)
            ]
        );
        assert_eq!(child.mode, Mode::Default);
    }
}

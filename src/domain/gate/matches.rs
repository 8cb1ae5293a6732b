//! Which rules match, and which of them is named.

use crate::request::why::Step;
use crate::surface::nature::Deed;

use super::decide::{Case, Finding, Verdict};
use super::policy::{Policy, RuleOrder};
use super::rule::{Rule, Verb};

/// What the rules say: at most one finding of each verb, and with the paper's order at most one at all.
#[derive(Debug, Default)]
pub(crate) struct Matched {
    pub(crate) deny: Option<Finding>,
    pub(crate) ask: Option<Finding>,
    pub(crate) allow: Option<Finding>,
}

/// Looks at every rule for one deed that is no shell command.
pub(crate) fn matched(policy: &Policy, case: Case<'_>) -> Matched {
    choose(policy, |rule| covers(rule, case))
}

/// Chooses among the rules that match: the strongest authority, then the newest, is named.
pub(crate) fn choose(policy: &Policy, matches: impl Fn(&Rule) -> bool) -> Matched {
    let mut best: [Option<&Rule>; 3] = [None; 3];
    let mut top: Option<&Rule> = None;
    for rule in policy.rules.all().iter().filter(|rule| matches(rule)) {
        let slot = match rule.verb() {
            Verb::Deny => 0,
            Verb::Ask => 1,
            Verb::Allow => 2,
        };
        for best in [&mut best[slot], &mut top] {
            // Later rules are newer, so an equal authority gives way.
            if best.is_none_or(|best| best.authority() <= rule.authority()) {
                *best = Some(rule);
            }
        }
    }
    match policy.order {
        RuleOrder::Strictest => {
            let [deny, ask, allow] = best;
            Matched { deny: deny.map(finding), ask: ask.map(finding), allow: allow.map(finding) }
        }
        RuleOrder::Authority => {
            let of = |verb| top.filter(|rule| rule.verb() == verb).map(finding);
            Matched { deny: of(Verb::Deny), ask: of(Verb::Ask), allow: of(Verb::Allow) }
        }
    }
}

pub(crate) fn finding(rule: &Rule) -> Finding {
    let (verdict, reason) = match rule.verb() {
        Verb::Deny => (Verdict::Deny, "a rule denies it"),
        Verb::Ask => (Verdict::Ask, "a rule asks for a person"),
        Verb::Allow => (Verdict::Allow, "a rule allows it"),
    };
    Finding { rule: Some(rule.text().to_owned()), ..Finding::new(verdict, Step::Rule, reason) }
}

fn covers(rule: &Rule, case: Case<'_>) -> bool {
    match &case.nature.deed {
        Deed::Read { path } => covers_path(rule, case, path, false),
        Deed::Write { path } => covers_path(rule, case, path, true),
        Deed::Fetch { url, .. } => rule.covers_address(url),
        Deed::Device { device, action, zone } => rule.covers_device(device, action, zone.as_deref(), case.nature.risk),
        Deed::Mcp { server, tool } => rule.covers_mcp(server, tool),
        Deed::Own { tool, verb } => rule.covers_own(tool, verb.as_deref()),
        // A shell command is many deeds; `gate::shell` takes it apart.
        Deed::Shell { .. } => rule.covers_all_commands(),
    }
}

/// Deny and ask also look at the path as it was written, with its dots resolved and its links not.
fn covers_path(rule: &Rule, case: Case<'_>, path: &str, write: bool) -> bool {
    let Some(canonical) = case.facts.resolve(path) else { return false };
    let written = case.facts.written(path);
    rule.covers_path(write, &canonical, written.as_deref(), case.facts)
}

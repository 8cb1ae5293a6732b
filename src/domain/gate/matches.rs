//! Which rules match, and which of them is named.

use crate::request::why::Step;
use crate::surface::nature::Deed;

use super::address::Url;
use super::decide::{Case, Finding, Verdict};
use super::pattern::Anchors;
use super::policy::{Policy, RuleOrder};
use super::rule::{Rule, Seen, Verb};

/// What the rules say: at most one finding of each verb, and with the paper's order at most one at all.
#[derive(Debug, Default)]
pub(crate) struct Matched {
    pub(crate) deny: Option<Finding>,
    pub(crate) ask: Option<Finding>,
    pub(crate) allow: Option<Finding>,
}

/// Looks at every rule for one deed. What rules look at is made once, not once for each rule.
pub(crate) fn matched(policy: &Policy, case: Case<'_>) -> Matched {
    match &case.nature.deed {
        Deed::Read { path, .. } => matched_path(policy, case, path, false),
        Deed::Write { path } => matched_path(policy, case, path, true),
        Deed::Fetch { url, .. } => {
            let parsed = Url::parse(url);
            choose(policy, |rule| rule.covers_address(url, parsed.as_ref()))
        }
        Deed::Device { device, action, zone } => {
            choose(policy, |rule| rule.covers_device(device, action, zone.as_deref(), case.nature.risk))
        }
        Deed::Mcp { server, tool } => choose(policy, |rule| rule.covers_mcp(server, tool)),
        Deed::Own { tool, verb } => choose(policy, |rule| rule.covers_own(tool, verb.as_deref())),
        // A shell command is many deeds; `gate::shell` takes it apart.
        Deed::Shell { .. } => choose(policy, Rule::covers_all_commands),
    }
}

/// Deny and ask also look at the path as it was written, with its dots resolved and its links not.
fn matched_path(policy: &Policy, case: Case<'_>, path: &str, write: bool) -> Matched {
    let Some(canonical) = case.facts.resolve(path) else { return Matched::default() };
    let written = if case.facts.links.is_empty() { None } else { case.facts.written(path) };
    let (seen, anchors) = (Seen::new(&canonical, written), Anchors::new(case.facts));
    choose(policy, |rule| rule.covers_path(write, &seen, &anchors))
}

/// Chooses among the rules that match: the strongest authority, then the newest, is named.
pub(crate) fn choose(policy: &Policy, matches: impl Fn(&Rule) -> bool) -> Matched {
    choose_of(policy.order, policy.rules.all().iter().filter(|rule| matches(rule)))
}

/// Chooses among rules that are known to match, oldest first.
pub(crate) fn choose_of<'a>(order: RuleOrder, matching: impl Iterator<Item = &'a Rule>) -> Matched {
    let mut best: [Option<&Rule>; 3] = [None; 3];
    let mut top: Option<&Rule> = None;
    for rule in matching {
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
    match order {
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

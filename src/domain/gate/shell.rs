//! A shell command at the gate: taken apart, each part judged, the strictest finding wins.

use crate::request::why::Step;
use crate::surface::shell::{Script, Understood};

use super::decide::{Case, Finding, Verdict, classified};
use super::matches::choose;
use super::policy::{Mode, Policy};
use super::rule::Verb;

/// Allow needs every part, deny and ask need any. What is not understood matches no allow rule.
pub(crate) fn judge(policy: &Policy, case: Case<'_>, script: &Script) -> Finding {
    if policy.mode == Mode::Plan {
        return Finding::new(Verdict::Deny, Step::Plan, "in plan mode only what is proven to read goes on");
    }
    let whole = script.understood() == Understood::Whole;
    let matched = choose(policy, |rule| match rule.verb() {
        Verb::Deny | Verb::Ask => {
            rule.covers_all_commands() || script.commands().iter().any(|command| rule.covers_command(command))
        }
        Verb::Allow => whole && script.commands().iter().all(|command| rule.covers_command(command)),
    });
    if let Some(finding) = matched.deny.or(matched.ask).or(matched.allow) {
        return finding;
    }
    let say = |verdict, reason: &str| Finding::new(verdict, Step::Mode, reason);
    match policy.mode {
        Mode::BypassPermissions => {
            classified(policy, case).unwrap_or_else(|| say(Verdict::Allow, "the mode asks for nothing"))
        }
        Mode::Plan | Mode::DontAsk | Mode::Default | Mode::AcceptEdits => match script.understood() {
            Understood::Whole => say(Verdict::Ask, "no rule allows this"),
            Understood::Opaque(why) | Understood::Unparseable(why) => {
                say(Verdict::Ask, &format!("it cannot be told beforehand what it runs: {why}"))
            }
        },
    }
}

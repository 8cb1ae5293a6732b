//! The decision for one call, alone: `decide` knows no other call, no time and no question.
//!
//! The steps come in the order of [`Step`]. Each may end the decision, but a deny that a later step finds beats an ask
//! that an earlier one found: somebody who asks too early must not hide that the answer is no.

use crate::request::Classifier;
use crate::request::paths::PathFacts;
use crate::request::why::Step;
use crate::risk::Risk;
use crate::surface::nature::{Deed, Nature};

use super::matches::{Matched, choose_of, matched};
use super::pattern::{Anchors, Spelled};
use super::policy::{Mode, Policy};
use super::protected::{protected, secret, secret_below};
use super::shell;

/// What the gate says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// It may go on.
    Allow,
    /// A person has to say so.
    Ask,
    /// It may not.
    Deny,
}

impl Verdict {
    /// The word in `policy check` and in evidence.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Allow => "allow",
            Verdict::Ask => "ask",
            Verdict::Deny => "deny",
        }
    }
}

/// A verdict and where it comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// What the gate says.
    pub verdict: Verdict,
    /// The step that decided.
    pub step: Step,
    /// The rule that decided, as it was written.
    pub rule: Option<String>,
    /// One sentence in English.
    pub reason: String,
    /// The canonical form of the path that decided or would be touched.
    pub resolved: Option<String>,
    /// A question that would have been asked became a denial: there is nobody who can be asked.
    pub nobody_to_ask: bool,
    /// It is a protective action that runs at once.
    pub protective: bool,
}

/// One call, as the gate sees it.
#[derive(Debug, Clone, Copy)]
pub struct Case<'a> {
    /// What it is by nature.
    pub nature: &'a Nature,
    /// What is known about its paths.
    pub facts: &'a PathFacts,
    /// It comes from a command that is marked protective and was matched exactly.
    pub protective: bool,
    /// What the optional classifier said.
    pub classifier: Option<Classifier>,
}

/// What one step found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) verdict: Verdict,
    pub(crate) step: Step,
    pub(crate) rule: Option<String>,
    pub(crate) reason: String,
    pub(crate) resolved: Option<String>,
}

impl Finding {
    pub(crate) fn new(verdict: Verdict, step: Step, reason: impl Into<String>) -> Finding {
        Finding { verdict, step, rule: None, reason: reason.into(), resolved: None }
    }

    pub(crate) fn at(self, resolved: Option<String>) -> Finding {
        Finding { resolved: resolved.or(self.resolved), ..self }
    }
}

/// Decides.
#[must_use]
pub fn decide(policy: &Policy, case: Case<'_>) -> Decision {
    if protective(policy, case) {
        return match &matched(policy, case).deny {
            Some(deny) => conclude(policy, deny.clone(), false),
            None => {
                let reason = "a protective action runs at once";
                conclude(policy, Finding::new(Verdict::Allow, Step::Precondition, reason), true)
            }
        };
    }
    let finding = match &case.nature.deed {
        Deed::Shell { script, cwd } => shell::judge(policy, case, script, cwd.as_deref()),
        Deed::Read { .. }
        | Deed::Write { .. }
        | Deed::Fetch { .. }
        | Deed::Device { .. }
        | Deed::Mcp { .. }
        | Deed::Own { .. } => judge(policy, case),
    };
    conclude(policy, finding, false)
}

/// A protective action of an operator or of the plant's own systems: a command so marked, or an action that the device
/// declares so.
fn protective(policy: &Policy, case: Case<'_>) -> bool {
    (case.protective || case.nature.protective) && policy.asker.via.may_protect() && !policy.confirm_protective
}

/// Where nobody can be asked, a question is a no.
fn conclude(policy: &Policy, finding: Finding, protective: bool) -> Decision {
    let asks = finding.verdict == Verdict::Ask;
    let nobody_to_ask = asks && (policy.mode == Mode::DontAsk || !policy.answerable);
    let Finding { verdict, step, rule, reason, resolved } = finding;
    let verdict = if nobody_to_ask { Verdict::Deny } else { verdict };
    Decision { verdict, step, rule, reason, resolved, nobody_to_ask, protective }
}

/// The steps, for everything but a shell command as a whole.
pub(crate) fn judge(policy: &Policy, case: Case<'_>) -> Finding {
    let place = Place::of(case);
    let found = steps(policy, case, &place);
    found.at(place.canonical)
}

/// Where a file deed would land.
pub(crate) struct Place {
    canonical: Option<String>,
    unresolvable: bool,
    writes: bool,
}

impl Place {
    fn of(case: Case<'_>) -> Place {
        let (path, writes) = match &case.nature.deed {
            Deed::Read { path, .. } => (path, false),
            Deed::Write { path } => (path, true),
            Deed::Shell { .. } | Deed::Fetch { .. } | Deed::Device { .. } | Deed::Mcp { .. } | Deed::Own { .. } => {
                return Place { canonical: None, unresolvable: false, writes: false };
            }
        };
        let canonical = case.facts.resolve(path);
        Place { unresolvable: canonical.is_none(), canonical, writes }
    }
}

fn steps(policy: &Policy, case: Case<'_>, place: &Place) -> Finding {
    if place.unresolvable {
        return Finding::new(Verdict::Deny, Step::Precondition, "the path cannot be resolved");
    }
    if policy.mode == Mode::Plan && !reads_only(case.nature) {
        return Finding::new(Verdict::Deny, Step::Plan, "in plan mode only what is proven to read goes on");
    }
    let immune = immune(policy, case, place);
    let Matched { deny, ask, allow } = matched(policy, case);
    if let Some(deny) = deny {
        return deny;
    }
    // From here on nothing denies but the fallback of the mode, which an allow or an ask of a rule comes before.
    if let Some(immune) = immune {
        return match classified(policy, case) {
            Some(denied) if denied.verdict == Verdict::Deny => denied,
            Some(_) | None => immune,
        };
    }
    if let Some(finding) = ask.or_else(|| below(policy, case, place)).or(allow) {
        return finding;
    }
    scope(policy, case, place).unwrap_or_else(|| mode(policy, case, place))
}

/// What no mode waives.
fn immune(policy: &Policy, case: Case<'_>, place: &Place) -> Option<Finding> {
    let nature = case.nature;
    if nature.risk == Risk::Dangerous {
        return Some(Finding::new(Verdict::Ask, Step::Immune, "its declared risk is dangerous"));
    }
    let canonical = place.canonical.as_deref()?;
    let reason = if place.writes {
        protected(canonical, &policy.own_paths).map(|why| format!("writing {canonical} is protected: {why}"))
    } else {
        secret(canonical, &policy.own_secrets).map(|why| format!("reading {canonical} gives away a secret: {why}"))
    };
    let searched = || {
        let Deed::Read { below: true, .. } = &nature.deed else { return None };
        let why = secret_below(canonical, case.facts.home.as_deref(), &policy.own_secrets);
        why.map(|why| format!("it reads all of {canonical}: {why}"))
    };
    reason.or_else(searched).map(|reason| Finding::new(Verdict::Ask, Step::Immune, reason))
}

/// A search reads what a rule is about below the directory that it is given.
fn below(policy: &Policy, case: Case<'_>, place: &Place) -> Option<Finding> {
    let Deed::Read { below: true, .. } = &case.nature.deed else { return None };
    let dir = place.canonical.as_deref()?;
    let anchors = Anchors::new(case.facts);
    let spelled = Spelled::new(dir);
    let about = policy.rules.against_paths().filter(|rule| rule.may_lie_below(false, &spelled, &anchors));
    let found = choose_of(policy.order, about);
    found.deny.or(found.ask).map(|rule| shell::below_finding(rule, dir.to_owned()))
}

fn scope(policy: &Policy, case: Case<'_>, place: &Place) -> Option<Finding> {
    let canonical = place.canonical.as_deref()?;
    if policy.mode == Mode::BypassPermissions || case.facts.in_scope(canonical) {
        return None;
    }
    Some(Finding::new(Verdict::Ask, Step::Scope, format!("{canonical} is outside the working directories")))
}

/// In every mode harmless: it reads, from where the run may work or from the plant.
fn reads_only(nature: &Nature) -> bool {
    match &nature.deed {
        Deed::Read { .. } => true,
        Deed::Device { .. } | Deed::Own { .. } => nature.risk == Risk::Read,
        // A hint of a server is its own claim, and a request tells the other side something.
        Deed::Mcp { .. } | Deed::Fetch { .. } | Deed::Write { .. } | Deed::Shell { .. } => false,
    }
}

/// What the mode says when nothing else did.
fn mode(policy: &Policy, case: Case<'_>, place: &Place) -> Finding {
    let say = |verdict, reason: &str| Finding::new(verdict, Step::Mode, reason);
    if reads_only(case.nature) {
        return say(Verdict::Allow, "it only reads");
    }
    match policy.mode {
        // `steps` has let nothing through but reads.
        Mode::Plan => say(Verdict::Deny, "in plan mode only what is proven to read goes on"),
        Mode::BypassPermissions => {
            classified(policy, case).unwrap_or_else(|| say(Verdict::Allow, "the mode asks for nothing"))
        }
        Mode::AcceptEdits if place.writes => say(Verdict::Allow, "the mode accepts edits in the working directories"),
        Mode::DontAsk | Mode::Default | Mode::AcceptEdits => match &case.nature.deed {
            Deed::Device { .. } | Deed::Own { .. } if policy.asker.via.is_operator() => {
                say(Verdict::Allow, "an operator operates")
            }
            Deed::Device { .. } | Deed::Own { .. } => {
                say(Verdict::Ask, "no rule allows this, and it is not an operator who wishes for it")
            }
            Deed::Read { .. } | Deed::Write { .. } | Deed::Shell { .. } | Deed::Fetch { .. } | Deed::Mcp { .. } => {
                say(Verdict::Ask, "no rule allows this")
            }
        },
    }
}

/// The optional classifier, which is asked in `bypassPermissions` only. One that fails asks.
pub(crate) fn classified(policy: &Policy, case: Case<'_>) -> Option<Finding> {
    if policy.mode != Mode::BypassPermissions {
        return None;
    }
    let say = |verdict, reason: &str| Some(Finding::new(verdict, Step::Mode, reason));
    match case.classifier? {
        Classifier::Allow => None,
        Classifier::Ask => say(Verdict::Ask, "the classifier wants a person to look"),
        Classifier::Deny => say(Verdict::Deny, "the classifier takes it for harmful"),
        Classifier::Fail if policy.classifier_fails_open => None,
        Classifier::Fail => say(Verdict::Ask, "the classifier gave no answer"),
    }
}

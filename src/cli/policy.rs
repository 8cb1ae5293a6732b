//! `interlock policy check`: decisions for calls on standard input, by the very code of the gate, without any effect.

use std::path::Path;

use interlock_domain::gate::check::{Checked, check};
use interlock_domain::gate::rule::Rule;
use serde_json::{Value, json};

use super::args::PolicyVerb;
use super::error::{CliError, Exit};
use super::json_lines;
use crate::config;

pub(super) fn policy(verb: &PolicyVerb) -> Result<(), CliError> {
    let PolicyVerb::Check { policy } = verb;
    let more = rules(policy.as_deref())?;
    let answered = json_lines::each(&mut std::io::stdin().lock(), &mut std::io::stdout().lock(), |line| {
        check(&Value::Object(line), &more).map(|checked| to_json(&checked)).map_err(|error| error.to_string())
    });
    if answered? { Ok(()) } else { Err(CliError::silent(Exit::Data)) }
}

/// The rules of a file's `[policy]`.
fn rules(file: Option<&Path>) -> Result<Vec<Rule>, CliError> {
    match file {
        None => Ok(Vec::new()),
        Some(path) => Ok(config::policy::of_either(path)?),
    }
}

fn to_json(checked: &Checked) -> Value {
    let decision = &checked.decision;
    let mut value = json!({
        "id": checked.id,
        "decision": decision.verdict.word(),
        "step": decision.step.word(),
        "rule": decision.rule,
        "reason": decision.reason,
        "resolved": decision.resolved,
    });
    if let Some(visible) = &checked.visible {
        value["visible"] = visible.clone().into();
    }
    if !checked.diagnostics.is_empty() {
        value["diagnostics"] = checked.diagnostics.clone().into();
    }
    value
}

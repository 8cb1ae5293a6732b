//! The written form of a workflow: `state.db` keeps it from one station to the next, `workflow show` prints it.

use std::sync::Arc;

use interlock_domain::effect::profile::Profile;
use interlock_domain::effect::workflow::{Attempt, Stage, State, Workflow};
use interlock_domain::time::Wall;
use serde_json::{Value, json};

use super::contract;

/// The workflow as JSON.
#[must_use]
pub fn to_json(workflow: &Workflow) -> Value {
    let attempts: Vec<Value> = workflow.attempts.iter().map(attempt).collect();
    json!({
        "stage": workflow.stage.word(),
        "profiles": workflow.profiles.iter().map(|profile| profile.word()).collect::<Vec<_>>(),
        "required": workflow.required,
        "kept": workflow.kept,
        "attempts": attempts,
    })
}

fn attempt(attempt: &Attempt) -> Value {
    json!({
        "op": attempt.op,
        "branch": attempt.branch,
        "tool": attempt.tool,
        "input": *attempt.input,
        "contract": contract::to_json(&attempt.contract),
        "resources": attempt.resources,
        "parent": attempt.parent.map(|call| call.to_string()),
        "call": attempt.call.map(|call| call.to_string()),
        "state": attempt.state.word(),
        "held": attempt.held,
        "sent": attempt.sent.map(|sent| sent.0),
        "undoes": attempt.undoes,
        "releases": attempt.releases,
        "rests_on": attempt.rests_on,
        "values": attempt.values,
        "output": attempt.output.as_deref(),
    })
}

/// Reads the written form; nothing when a part that matters is not there.
#[must_use]
pub fn from_json(value: &Value) -> Option<Workflow> {
    let texts = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let places = |value: &Value| -> Vec<usize> {
        let all = value.as_array().into_iter().flatten().filter_map(Value::as_u64);
        all.filter_map(|at| usize::try_from(at).ok()).collect()
    };
    let attempt = |value: &Value| -> Option<Attempt> {
        let text = |key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
        let call = |key: &str| text(key).and_then(|call| call.parse().ok());
        let place = |key: &str| value[key].as_u64().and_then(|at| usize::try_from(at).ok());
        let state = text("state")?;
        let states = [State::Held, State::Unknown, State::Done, State::Failed];
        Some(Attempt {
            op: text("op")?,
            branch: text("branch")?,
            tool: text("tool")?,
            input: Arc::new(value.get("input")?.clone()),
            contract: Arc::new(contract::from_json(value.get("contract")?)),
            resources: texts(&value["resources"]),
            parent: call("parent"),
            call: call("call"),
            state: states.into_iter().find(|known| known.word() == state)?,
            held: value["held"].as_bool().unwrap_or(false),
            sent: value["sent"].as_i64().map(Wall),
            undoes: place("undoes"),
            releases: place("releases"),
            rests_on: places(&value["rests_on"]),
            values: texts(&value["values"]),
            output: value.get("output").filter(|output| !output.is_null()).cloned().map(Arc::new),
        })
    };
    let stage = value.get("stage").and_then(Value::as_str)?;
    Some(Workflow {
        profiles: texts(&value["profiles"]).iter().filter_map(|word| Profile::from_word(word)).collect(),
        required: texts(&value["required"]),
        attempts: value.get("attempts")?.as_array()?.iter().map(attempt).collect::<Option<_>>()?,
        kept: texts(&value["kept"]),
        stage: Stage::ALL.into_iter().find(|known| known.word() == stage)?,
    })
}

#[cfg(test)]
mod tests {
    use interlock_domain::effect::workflow::{MAIN, Wanted};
    use interlock_domain::surface::contract::{Contract, OutcomeBy};

    use super::*;

    #[test]
    fn a_workflow_is_read_back_as_it_was_written() {
        let profiles = [Profile::UnknownSafe, Profile::SpeculationSafe].into();
        let mut workflow = Workflow::begin(profiles, vec!["look".to_owned()]).unwrap();
        let wanted = |op: &str, contract| Wanted {
            op: op.to_owned(),
            branch: MAIN.to_owned(),
            tool: "act".to_owned(),
            input: Arc::new(json!({ "of": "Q-1234" })),
            contract: Arc::new(contract),
            resources: vec!["row".to_owned()],
            after: Vec::new(),
        };
        let (at, _) = workflow.attempt(wanted("look", Contract::reads("act"))).unwrap();
        workflow.bound(at, "01KBA6AK800000000000000007.3.0".parse().unwrap());
        workflow.seen(at, State::Done, Some(&json!({ "n": "Q-1234" })));
        let blind = Contract { outcome: OutcomeBy::Query, ..Contract::weakest("act") };
        workflow.sending(at, "01KBA6AK800000000000000007.1.0".parse().unwrap(), Wall(7));
        workflow.undo(0, "act".to_owned(), Arc::default(), Arc::new(blind));
        assert_eq!(from_json(&to_json(&workflow)), Some(workflow));
        assert_eq!(from_json(&json!({ "stage": "gone" })), None);
    }
}

//! `interlock workflow`: a group of effects with a guarantee.

use serde_json::{Value, json};

use super::args::WorkflowVerb;
use super::client::Client;
use super::error::{CliError, Exit};
use super::out::{Out, shown};
use super::say;

pub(super) fn workflow(verb: &WorkflowVerb, client: Client, out: &Out) -> Result<(), CliError> {
    let (input, as_json) = match verb {
        WorkflowVerb::Begin { profile, require, json } => {
            let words: Vec<&str> = profile.iter().map(String::as_str).collect();
            (json!({ "verb": "begin", "profiles": words, "required": require }), *json)
        }
        WorkflowVerb::Do { workflow, tool, input, op, branch, after, json } => {
            let input: Value = serde_json::from_str(input)
                .ok()
                .filter(Value::is_object)
                .ok_or_else(|| CliError::new(Exit::Usage, format!("{input:?} is not a JSON object")))?;
            let mut wanted =
                json!({ "verb": "do", "workflow": workflow, "tool": tool, "input": input, "after": after });
            for (key, value) in [("op", op), ("branch", branch)] {
                if let Some(value) = value {
                    wanted[key] = value.clone().into();
                }
            }
            (wanted, *json)
        }
        WorkflowVerb::Commit { workflow, branch, json } => {
            (json!({ "verb": "commit", "workflow": workflow, "branches": branch }), *json)
        }
        WorkflowVerb::Abort { workflow, json } => (json!({ "verb": "abort", "workflow": workflow }), *json),
        WorkflowVerb::Close { workflow, note, json } => {
            let request = json!({ "workflow": workflow, "note": note, "lang": out.lang_word() });
            let answer = client.ask("workflow.close", request)?;
            return if *json { out.json(&answer) } else { out.line(&shown(&answer, "message")) };
        }
        WorkflowVerb::Run { recipe, json } => (json!({ "verb": "run", "recipe": recipe }), *json),
        WorkflowVerb::Show { workflow: Some(workflow), json } => {
            (json!({ "verb": "show", "workflow": workflow }), *json)
        }
        WorkflowVerb::Show { workflow: None, json } => (json!({ "verb": "list" }), *json),
    };
    let answer = client.ask("workflow", json!({ "input": input, "lang": out.lang_word() }))?;
    say::told(&answer, as_json, out)
}

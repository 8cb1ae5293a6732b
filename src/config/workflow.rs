//! `[[workflow]]`: recipes, groups of actions with a guarantee that are run by name.
//!
//! ```toml
//! [[workflow]]
//! name = "stop-pumping"
//! profiles = ["unknown-safe", "compensation-safe"]
//! steps = [
//!     { tool = "device", input = { device = "valve-1", action = "close" } },
//!     { tool = "device", input = { device = "pump-1", action = "stop" }, op = "stop", after = ["close"] },
//! ]
//! ```
//!
//! Run it with `interlock workflow run stop-pumping`, by the tool `workflow`, or by a command that is bound to it.

use std::collections::BTreeMap;
use std::path::Path;

use interlock_domain::effect::profile::Profile;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use toml::Spanned;

use super::ConfigError;

/// Reads the `[[workflow]]` tables of `text`; other tables are not looked at.
///
/// # Errors
/// With the first mistake, its line and its key.
pub fn parse(text: &str, file: &Path) -> Result<BTreeMap<String, Value>, ConfigError> {
    let wire: File = toml::from_str(text).map_err(|error| ConfigError::from_toml(file, text, &error))?;
    let mut all = BTreeMap::new();
    for table in &wire.workflow {
        let name = table.name.get_ref();
        let wrong = |fact: String| ConfigError::at(file, text, table.name.span(), format!("workflow {name:?}: {fact}"));
        if let Some(odd) = table.profiles.iter().find(|word| Profile::from_word(word).is_none()) {
            let known = Profile::ALL.map(Profile::word).join(", ");
            return Err(wrong(format!("there is no profile {odd:?}")).hint(format!("one of {known}")));
        }
        if table.steps.is_empty() {
            return Err(wrong("it has no steps".to_owned()));
        }
        let recipe = json!({ "profiles": table.profiles, "steps": table.steps.iter().map(step).collect::<Vec<_>>() });
        if all.insert(name.clone(), recipe).is_some() {
            return Err(wrong("there is another one of this name".to_owned()));
        }
    }
    Ok(all)
}

#[derive(Deserialize)]
struct File {
    #[serde(default)]
    workflow: Vec<WorkflowTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WorkflowTable {
    name: Spanned<String>,
    #[serde(default)]
    profiles: Vec<String>,
    steps: Vec<StepTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StepTable {
    tool: String,
    #[serde(default)]
    input: Map<String, Value>,
    op: Option<String>,
    #[serde(default)]
    after: Vec<String>,
}

fn step(table: &StepTable) -> Value {
    let mut step = json!({ "tool": table.tool, "input": table.input, "after": table.after });
    if let Some(op) = &table.op {
        step["op"] = op.clone().into();
    }
    step
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recipe_is_read_as_the_tool_takes_it_and_a_mistake_is_named() {
        let text = "[[workflow]]\nname = \"stop\"\nprofiles = [\"unknown-safe\"]\n\
                    steps = [{ tool = \"device\", input = { device = \"pump-1\", action = \"stop\" }, op = \"a\" }]\n";
        let read = parse(text, Path::new("a.toml")).unwrap();
        let step =
            json!({ "tool": "device", "input": { "device": "pump-1", "action": "stop" }, "after": [], "op": "a" });
        assert_eq!(read["stop"], json!({ "profiles": ["unknown-safe"], "steps": [step] }));
        let check = |text: &str, want: &str| {
            let error = parse(text, Path::new("a.toml")).map(|_| ()).unwrap_err().to_string();
            assert!(error.contains(want), "{error}");
        };
        let at = "a.toml:2:8: workflow.name: workflow \"stop\": ";
        check(&text.replace("unknown-safe", "safe"), &format!("{at}there is no profile \"safe\""));
        check("[[workflow]]\nname = \"stop\"\nsteps = []\n", &format!("{at}it has no steps"));
        check(&format!("{text}{text}"), "there is another one of this name");
        check(&text.replace("op = ", "operation = "), "unknown field `operation`");
    }
}

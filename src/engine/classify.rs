//! The optional classifier: a command of the operator that gives its opinion on a call before it is judged.
//!
//! It is asked where the mode asks nobody (`bypassPermissions`) and about what acts beyond the plant: commands, files
//! that are written, requests, tools of other servers. Its opinion is one more fact for the gate, behind every rule and
//! every check that no mode waives; one that fails counts as a question, unless the configuration says otherwise. A
//! protective action is never held up by it.

use std::path::PathBuf;
use std::time::Duration;

use interlock_domain::request::Classifier;
use interlock_domain::surface::tool::{Kind, Tool};
use serde_json::{Value, json};

use crate::tool::hook::{self, Answer};

/// How long it may take: every call waits for it.
const PATIENCE: Duration = Duration::from_secs(10);

/// The command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Classify {
    /// Program and arguments.
    pub command: Vec<String>,
    /// Where it runs.
    pub cwd: PathBuf,
}

impl Classify {
    /// Its opinion on a call of this tool; `None` where it is not asked.
    pub async fn opinion(&self, tool: &Tool, input: &Value) -> Option<Classifier> {
        let asked = match tool.kind() {
            Kind::Shell | Kind::Http | Kind::WriteFile => true,
            Kind::Declared(declared) => declared.mcp.is_some(),
            Kind::Device(_) | Kind::ReadFile | Kind::Monitor(_) => false,
        };
        if !asked {
            return None;
        }
        let question = json!({ "event": "classify", "tool": tool.name().as_str(), "input": input });
        Some(match hook::ask(&self.command, &question, &self.cwd, PATIENCE).await {
            Ok(Answer::No { .. }) => Classifier::Deny,
            Ok(Answer::Says(says)) => match says.get("decision").and_then(Value::as_str) {
                Some("allow") => Classifier::Allow,
                Some("ask") => Classifier::Ask,
                Some("deny") => Classifier::Deny,
                Some(_) | None => Classifier::Fail,
            },
            Ok(Answer::Nothing) | Err(_) => Classifier::Fail,
        })
    }
}

#[cfg(test)]
mod tests {
    use interlock_domain::id::ToolName;
    use interlock_domain::surface::tool::{Annotations, Definition, Text};

    use super::*;

    fn tool(kind: Kind) -> Tool {
        Tool::new(Definition {
            name: ToolName::new("t").unwrap(),
            title: Text::default(),
            description: Text::default(),
            input_schema: json!({"type": "object"}),
            output_schema: None,
            annotations: Annotations::default(),
            kind,
        })
        .unwrap()
    }

    #[tokio::test]
    async fn whatever_it_does_not_say_is_a_failure_and_reads_are_not_asked_about() {
        let dir = tempfile::tempdir().unwrap();
        let opinion = async |script: &str, kind| {
            let command = ["/bin/sh", "-c", script].map(str::to_owned).to_vec();
            let classify = Classify { command, cwd: dir.path().to_owned() };
            classify.opinion(&tool(kind), &json!({"command": "make"})).await
        };
        let table = [
            ("echo '{\"decision\": \"allow\"}'", Classifier::Allow),
            ("echo '{\"decision\": \"ask\"}'", Classifier::Ask),
            ("grep -q make && echo '{\"decision\": \"deny\"}'", Classifier::Deny),
            ("exit 2", Classifier::Deny),
            ("exit 1", Classifier::Fail),
            ("echo yes", Classifier::Fail),
            ("echo '{\"decision\": \"maybe\"}'", Classifier::Fail),
            ("true", Classifier::Fail),
        ];
        for (script, want) in table {
            assert_eq!(opinion(script, Kind::Shell).await, Some(want), "{script}");
        }
        assert_eq!(opinion("exit 2", Kind::ReadFile).await, None);
    }
}

//! The optional classifier: a command of the operator, or the configured language model, that gives its opinion on a
//! call before it is judged.
//!
//! It is asked where the mode asks nobody (`bypassPermissions`) and about what acts beyond the plant: commands, files
//! that are written, requests, tools of other servers. Its opinion is one more fact for the gate, behind every rule
//! and every check that no mode waives; one that fails counts as a question, unless the configuration says otherwise.
//! A protective action is never held up by it.
//!
//! What it judges was written by somebody else, and may well talk to it. The worst that such words can reach is what the
//! mode would have done without a classifier.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use interlock_domain::request::Classifier;
use interlock_domain::surface::tool::{Kind, Tool};
use serde_json::{Value, json};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, timeout_at};

use super::agent::{Settings, opinion};
use crate::tool::hook::{self, Answer};

/// How long one opinion may take: every call waits for it.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long all opinions on one batch may take together. What is not judged by then counts as failed: a batch of
/// hundreds before a model that does not answer must not wait for an hour.
pub const BATCH_PATIENCE: Duration = Duration::from_secs(60);

/// Opinions of the model at one time: each holds a connection.
const ASKED_MAX: usize = 4;

/// Who is asked.
#[derive(Debug)]
pub enum Classify {
    /// A command.
    Command {
        /// Program and arguments.
        command: Vec<String>,
        /// Where it runs.
        cwd: PathBuf,
    },
    /// The configured language model, as it is configured when it is asked.
    Model {
        /// Its settings; none while there is no model.
        settings: watch::Receiver<Option<Arc<Settings>>>,
        /// Places for the questions that may wait at once.
        places: Semaphore,
    },
}

impl Classify {
    /// The language model of these settings.
    #[must_use]
    pub fn model(settings: watch::Receiver<Option<Arc<Settings>>>) -> Classify {
        Classify::Model { settings, places: Semaphore::new(ASKED_MAX) }
    }

    /// Its opinion on a call of this tool, not later than `until`; `None` where it is not asked.
    pub async fn opinion(&self, tool: &Tool, input: &Value, until: Instant) -> Option<Classifier> {
        let asked = match tool.kind() {
            Kind::Shell | Kind::Http | Kind::WriteFile => true,
            Kind::Declared(declared) => declared.mcp.is_some(),
            Kind::Device(_) | Kind::ReadFile | Kind::Monitor(_) => false,
        };
        if !asked {
            return None;
        }
        let now = Instant::now();
        let until = until.min(now + PATIENCE);
        Some(match self {
            Classify::Command { command, cwd } => {
                let question = json!({ "event": "classify", "tool": tool.name().as_str(), "input": input });
                let patience = until.saturating_duration_since(now);
                match hook::ask(command, &question, cwd, patience).await {
                    Ok(Answer::No { .. }) => Classifier::Deny,
                    Ok(Answer::Says(says)) => word(says.get("decision").and_then(Value::as_str).unwrap_or_default()),
                    Ok(Answer::Nothing) | Err(_) => Classifier::Fail,
                }
            }
            Classify::Model { settings, places } => {
                let settings = settings.borrow().clone();
                let asked = async {
                    let _place = places.acquire().await.ok()?;
                    opinion::of(settings.as_deref()?, tool.name().as_str(), input).await
                };
                let said = timeout_at(until, asked).await.ok().flatten();
                said.map_or(Classifier::Fail, |said| word(&said))
            }
        })
    }
}

/// A word that is none of the three is no opinion.
fn word(said: &str) -> Classifier {
    match said {
        "allow" => Classifier::Allow,
        "ask" => Classifier::Ask,
        "deny" => Classifier::Deny,
        _ => Classifier::Fail,
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
            let classify = Classify::Command { command, cwd: dir.path().to_owned() };
            let until = Instant::now() + BATCH_PATIENCE;
            classify.opinion(&tool(kind), &json!({"command": "make"}), until).await
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

    #[tokio::test]
    async fn after_the_patience_of_its_batch_and_without_a_model_it_has_failed() {
        let command = ["/bin/sh", "-c", "sleep 60"].map(str::to_owned).to_vec();
        let slow = Classify::Command { command, cwd: PathBuf::from("/") };
        let (_keep, settings) = watch::channel(None);
        for classify in [slow, Classify::model(settings)] {
            let until = Instant::now();
            let said = classify.opinion(&tool(Kind::Shell), &json!({"command": "make"}), until).await;
            assert_eq!(said, Some(Classifier::Fail), "{classify:?}");
        }
    }
}

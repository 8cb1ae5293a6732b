//! `interlock task`: background tasks and their five states.

use serde_json::{Value, json};

use super::args::TaskVerb;
use super::client::Client;
use super::error::CliError;
use super::out::{Out, on_one_line, shown};

pub(super) fn task(verb: &TaskVerb, client: Client, out: &Out) -> Result<(), CliError> {
    match verb {
        TaskVerb::List { all, json } => {
            let mut any = false;
            client.each("task.list", json!({ "all": all }), |row| {
                any = true;
                if *json { out.json(&row) } else { line(&row, out) }
            })?;
            if !any && !json {
                out.line(out.pick("no tasks", "没有任务"))?;
            }
            Ok(())
        }
        TaskVerb::Show { task, json } => {
            let row = client.ask("task.show", json!({ "task": task, "lang": out.lang_word() }))?;
            if *json { out.json(&row) } else { whole(&row, out) }
        }
        TaskVerb::Stop { task } => act(client, "task.stop", task, out),
        TaskVerb::Pause { task } => act(client, "task.pause", task, out),
        TaskVerb::Resume { task } => act(client, "task.resume", task, out),
        TaskVerb::Restart { task } => act(client, "task.restart", task, out),
        TaskVerb::Clean { task } => act(client, "task.clean", task, out),
    }
}

fn act(client: Client, verb: &str, task: &str, out: &Out) -> Result<(), CliError> {
    let answer = client.ask(verb, json!({ "task": task, "lang": out.lang_word() }))?;
    out.line(&shown(&answer, "message"))
}

fn line(row: &Value, out: &Out) -> Result<(), CliError> {
    let cause = row.get("cause").and_then(Value::as_str).map(|cause| format!(" ({cause})")).unwrap_or_default();
    out.headed(
        &shown(row, "task"),
        &format!(
            "{}{cause}  {}  progress {}  last beat {} ms ago",
            shown(row, "state"),
            shown(row, "name"),
            shown(row, "progress"),
            shown(row, "last_beat_ms"),
        ),
    )
}

fn whole(row: &Value, out: &Out) -> Result<(), CliError> {
    line(row, out)?;
    for key in ["generation", "tid", "started", "outcome", "evidence", "diagnosis", "advice"] {
        if row.get(key).is_some_and(|value| !value.is_null()) {
            out.line(&format!("  {key}: {}", on_one_line(&shown(row, key))))?;
        }
    }
    Ok(())
}

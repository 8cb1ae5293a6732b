//! `interlock status` and `interlock reload`.

use serde_json::{Value, json};

use super::args::{JsonArg, Lang};
use super::client::Client;
use super::error::CliError;
use super::out::{Out, shown};
use crate::store::update::Part;

pub(super) fn status(args: &JsonArg, client: Client, out: &Out) -> Result<(), CliError> {
    let answer = client.ask("status", json!({}))?;
    if args.json {
        return out.json(&answer);
    }
    for key in
        ["version", "pid", "ready", "state", "socket", "mcp", "console", "plant", "evidence", "liveness", "sandbox"]
    {
        if answer.get(key).is_some() {
            out.line(&format!("{key:<9} {}", shown(&answer, key)))?;
        }
    }
    for (name, standing) in answer["export"].as_object().into_iter().flatten() {
        let state = if standing["connected"] == true { "reached" } else { "not reached" };
        let counts = ["waiting", "dropped", "arrived"].map(|key| format!("{key} {}", shown(standing, key))).join(", ");
        let error = &standing["last_error"];
        let error = if error.is_null() {
            String::new()
        } else {
            format!("; last error {}: {}", shown(error, "at"), shown(error, "why"))
        };
        out.line(&format!("{:<9} {state}, {counts}{error}", format!("to {name}")))?;
    }
    out.line(&format!("update    {}", updates(&answer["update"], out)))
}

/// Which updates count, in one line.
fn updates(told: &Value, out: &Out) -> String {
    let mut parts = Vec::new();
    for part in Part::ALL {
        let word = if out.lang() == Lang::Zh { part.zh() } else { part.word() };
        let overridden = told["overridden"].as_array().is_some_and(|all| all.iter().any(|one| one == part.word()));
        let counts = match told[part.word()]["version"].as_str() {
            Some(version) => version,
            None if overridden => out.pick("of the configuration", "由配置指定"),
            None => out.pick("as shipped", "出厂自带"),
        };
        parts.push(format!("{word} {counts}"));
    }
    let refused = told["refused"].as_array().into_iter().flatten();
    parts.extend(refused.filter_map(|one| one["why"].as_str().map(str::to_owned)));
    parts.join(", ")
}

pub(super) fn reload(client: Client, out: &Out) -> Result<(), CliError> {
    let answer = client.ask("reload", json!({ "lang": out.lang_word() }))?;
    out.line(&shown(&answer, "message"))
}

//! `interlock status` and `interlock reload`.

use serde_json::json;

use super::args::JsonArg;
use super::client::Client;
use super::error::CliError;
use super::out::{Out, shown};

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
    Ok(())
}

pub(super) fn reload(client: Client, out: &Out) -> Result<(), CliError> {
    let answer = client.ask("reload", json!({ "lang": out.lang_word() }))?;
    out.line(&shown(&answer, "message"))
}

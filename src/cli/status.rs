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
    Ok(())
}

pub(super) fn reload(client: Client, out: &Out) -> Result<(), CliError> {
    let answer = client.ask("reload", json!({ "lang": out.lang_word() }))?;
    out.line(&shown(&answer, "message"))
}

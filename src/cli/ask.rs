//! `interlock ask`: questions that wait for a person.

use serde_json::{Value, json};

use super::args::{AnswerArgs, AskVerb, Finding};
use super::client::Client;
use super::error::CliError;
use super::out::{Out, shown};

pub(super) fn ask(verb: &AskVerb, client: Client, out: &Out) -> Result<(), CliError> {
    match verb {
        AskVerb::List(args) => {
            let mut any = false;
            client.each("ask.list", json!({ "lang": out.lang_word() }), |row| {
                any = true;
                if args.json { out.json(&row) } else { line(&row, out) }
            })?;
            if !any && !args.json {
                out.line(out.pick("nothing waits for an answer", "没有待回答的问题"))?;
            }
            Ok(())
        }
        AskVerb::Allow(args) => answer(client, "ask.allow", args, out),
        AskVerb::Deny(args) => answer(client, "ask.deny", args, out),
        AskVerb::Settle { question, finding, note, json } => {
            let finding = match finding {
                Finding::Done => "done",
                Finding::Failed => "failed",
            };
            let request = json!({ "question": question, "finding": finding, "note": note, "lang": out.lang_word() });
            let answer = client.ask("ask.settle", request)?;
            if *json { out.json(&answer) } else { out.line(&shown(&answer, "message")) }
        }
    }
}

fn answer(client: Client, verb: &str, args: &AnswerArgs, out: &Out) -> Result<(), CliError> {
    let answer = client.ask(verb, json!({ "question": args.question, "lang": out.lang_word() }))?;
    if args.json { out.json(&answer) } else { out.line(&shown(&answer, "message")) }
}

fn line(row: &Value, out: &Out) -> Result<(), CliError> {
    let left = match row.get("expires_ms").and_then(Value::as_u64) {
        Some(left) => format!("{} s", left / 1000),
        None => out.pick("no limit", "不限时").to_owned(),
    };
    out.headed(
        &shown(row, "question"),
        &format!("{} [{left}] {} {}", shown(row, "kind"), shown(row, "asker"), shown(row, "text")),
    )
}

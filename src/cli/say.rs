//! `interlock say`: one operator command through the whole path.

use serde_json::{Value, json};

use super::args::SayArgs;
use super::client::Client;
use super::error::{CliError, Exit};
use super::out::{Out, shown};

pub(super) fn say(args: &SayArgs, client: Client, out: &Out) -> Result<(), CliError> {
    let request = json!({ "text": args.text.join(" "), "wait": args.wait, "lang": out.lang_word() });
    let answer = client.ask("say", request)?;
    if args.json {
        out.json(&answer)?;
    } else {
        print(&answer, out)?;
    }
    exit(&answer)
}

/// The answer to a call, as a person or a script reads it, and how the program ends.
pub(super) fn told(answer: &Value, as_json: bool, out: &Out) -> Result<(), CliError> {
    if as_json {
        out.json(answer)?;
    } else {
        out.line(&shown(answer, "message"))?;
        if answer.get("output").is_some_and(|output| !output.is_null()) {
            out.line(&format!("  {}", shown(answer, "output")))?;
        }
    }
    exit(answer)
}

/// 0 done, asked or answered; 77 denied; 1 everything else.
pub(super) fn exit(answer: &Value) -> Result<(), CliError> {
    let word = |key: &str| answer.get(key).and_then(Value::as_str);
    match (word("decision"), word("result"), word("outcome")) {
        (Some("ask"), None, _) | (_, Some("done"), _) | (None, None, Some("knowledge")) => Ok(()),
        (Some("deny"), _, _) => Err(CliError::silent(Exit::Permission)),
        _ => Err(CliError::silent(Exit::NotSo)),
    }
}

fn print(answer: &Value, out: &Out) -> Result<(), CliError> {
    out.line(&shown(answer, "message"))?;
    if let Some(steps) = answer.get("steps").and_then(Value::as_array) {
        for step in steps {
            out.line(&format!("  {} {}: {}", shown(step, "command"), shown(step, "result"), shown(step, "message")))?;
        }
    }
    if let Some(output) = answer.get("output").filter(|output| !output.is_null()) {
        out.line(&format!("  {output}"))?;
    }
    let asked = answer.get("decision").and_then(Value::as_str) == Some("ask");
    if let Some(question) = answer.get("question").and_then(Value::as_str).filter(|_| asked) {
        let hint = out.pick("answer with", "回答");
        out.line(&format!("  {hint}: interlock ask allow {question} | interlock ask deny {question}"))?;
    }
    if answer.get("evidence").is_some_and(|seq| !seq.is_null()) {
        out.line(&format!("  {} {}", out.pick("evidence", "证据"), shown(answer, "evidence")))?;
    }
    Ok(())
}

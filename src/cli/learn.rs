//! `interlock learn`: proposals, the decisions of a person, versions.
//!
//! `propose` needs no daemon: without one, or with a command set or a state of one's own, it asks the review gate and
//! keeps nothing.

use std::io::{BufRead, Write};
use std::path::Path;

use interlock_domain::learn::gate::{Example, Policy};
use serde_json::{Value, json};

use super::args::{LearnPolicy, LearnVerb, ProposeArgs};
use super::client::Client;
use super::error::{CliError, Exit};
use super::learn_propose::Session;
use super::match_verb::{self, MatchError};
use super::out::{Out, shown};
use crate::config::regression;

pub(super) fn learn(
    verb: &LearnVerb,
    client: impl Fn() -> Result<Client, CliError>,
    out: &Out,
) -> Result<(), CliError> {
    let lang = out.lang_word();
    match verb {
        LearnVerb::List { all, versions, json } => {
            let mut any = false;
            let args = json!({ "all": all, "versions": versions, "lang": lang });
            client()?.each("learn.list", args, |row| {
                any = true;
                match (*json, *versions) {
                    (true, _) => out.json(&row),
                    (false, true) => version(&row, out),
                    (false, false) => proposal(&row, out),
                }
            })?;
            if !any && !json {
                out.line(out.pick("nothing is there", "没有记录"))?;
            }
            Ok(())
        }
        LearnVerb::Describe { files, propose } => {
            let ask = |proposal: Value| client()?.ask("learn.propose", json!({ "proposal": proposal }));
            super::learn_describe::describe(files, propose.then_some(&ask as super::learn_describe::Ask<'_>), out)
        }
        LearnVerb::Propose(args) => propose(args, client, out),
        LearnVerb::Approve { proposal, json } => {
            told(client()?.ask("learn.approve", json!({ "proposal": proposal, "lang": lang }))?, *json, out)
        }
        LearnVerb::Reject { proposal, note, json } => {
            let args = json!({ "proposal": proposal, "note": note, "lang": lang });
            told(client()?.ask("learn.reject", args)?, *json, out)
        }
        LearnVerb::Rollback { version, json } => {
            told(client()?.ask("learn.rollback", json!({ "version": version, "lang": lang }))?, *json, out)
        }
    }
}

fn told(answer: Value, json: bool, out: &Out) -> Result<(), CliError> {
    if json { out.json(&answer) } else { out.line(&shown(&answer, "message")) }
}

fn proposal(row: &Value, out: &Out) -> Result<(), CliError> {
    let rest = format!(
        "{} {} {} -> {} ({}, {}): {}",
        shown(row, "state"),
        shown(row, "channel"),
        shown(row, "text").replace('\n', " / "),
        shown(row, "command"),
        shown(row, "source"),
        shown(row, "by"),
        shown(row, "why"),
    );
    out.headed(&shown(row, "proposal"), &rest)
}

fn version(row: &Value, out: &Out) -> Result<(), CliError> {
    let active = if row["active"] == true { out.pick(" (active)", "（生效中）") } else { "" };
    let rest = format!(
        "{} items, {} by {}, evidence {}{active}",
        shown(row, "items"),
        shown(row, "why"),
        shown(row, "by"),
        shown(row, "evidence"),
    );
    out.headed(&shown(row, "version"), &rest)
}

fn propose(args: &ProposeArgs, client: impl Fn() -> Result<Client, CliError>, out: &Out) -> Result<(), CliError> {
    let own = args.offline || args.commands.is_some() || args.state.is_some() || args.policy.is_some();
    if !own {
        match client() {
            Ok(_) => return to_daemon(client, out),
            Err(error) if error.exit == Exit::Unavailable => {
                out.note(out.pick("no daemon runs: nothing is kept", "守护进程未运行：仅评审，不保存"));
            }
            Err(error) => return Err(error),
        }
    }
    let failed = |error: MatchError| CliError::new(Exit::Config, error.to_string());
    let ended = offline(args).map_err(failed)?;
    if ended == 0 { Ok(()) } else { Err(CliError::silent(Exit::Data)) }
}

/// Line by line: a bad line is answered on its line, and the rest still runs.
fn to_daemon(client: impl Fn() -> Result<Client, CliError>, out: &Out) -> Result<(), CliError> {
    let mut bad = false;
    let mut input = std::io::stdin().lock();
    let mut line = Vec::new();
    for number in 1_u64.. {
        line.clear();
        if match_verb::bounded_line(&mut input, &mut line)
            .map_err(|error| CliError::new(Exit::NoInput, format!("standard input: {error}")))?
            == 0
        {
            break;
        }
        let text = std::str::from_utf8(&line).map_err(|_| "not UTF-8".to_owned()).map(str::trim);
        if text == Ok("") {
            continue;
        }
        let value: Result<Value, String> =
            text.and_then(|text| serde_json::from_str(text).map_err(|error| format!("not JSON: {error}")));
        let answer = match value {
            Ok(proposal) => match client()?.ask("learn.propose", json!({ "proposal": proposal })) {
                Ok(answer) => answer,
                Err(error) if error.exit == Exit::Usage => {
                    bad = true;
                    json!({ "line": number, "error": error.message })
                }
                Err(error) => return Err(error),
            },
            Err(error) => {
                bad = true;
                json!({ "line": number, "error": error })
            }
        };
        out.json(&answer)?;
    }
    if bad { Err(CliError::silent(Exit::Data)) } else { Ok(()) }
}

fn offline(args: &ProposeArgs) -> Result<u8, MatchError> {
    let (set, _, _) = match_verb::parts(args.commands.as_deref())?;
    let learned = match_verb::learned(args.state.as_deref())?;
    // What the set itself says must mean afterwards what it meant before, and so must the shipped sentences.
    let own = set.list.iter().flat_map(|command| {
        std::iter::once(&command.text)
            .chain(&command.aliases)
            .map(|text| Example { sentence: text.clone(), means: Some(command.id.clone()) })
    });
    let shipped = regression::read(Path::new(regression::EMBEDDED_NAME), regression::EMBEDDED)?;
    let replay = own.chain(shipped).collect();
    let policy = match args.policy {
        None | Some(LearnPolicy::Strict) => Policy::Strict,
        Some(LearnPolicy::Auto) => Policy::Auto,
    };
    let mut session = Session::new(set, learned, replay, policy)?;
    let mut input: Box<dyn BufRead> = Box::new(std::io::stdin().lock());
    let mut output: Box<dyn Write> = Box::new(std::io::stdout().lock());
    session.propose(&mut *input, &mut *output)
}

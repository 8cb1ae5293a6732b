//! `learn …` on the socket: proposals, decisions of a person, versions.

use serde_json::{Value, json};

use super::verbs::{Answer1, Args, Context};
use super::wire::{Kind, Trouble};
use crate::engine::learner::{Fate, NotLearned, Proposed, Source, Version, Which, Wish};
use crate::record::learned;

/// The longest name that a proposer may give, in characters.
const LABEL_LEN_MAX: usize = 128;

pub(super) async fn list(context: &Context, args: &Args<'_>) -> Result<Vec<Value>, Trouble> {
    if args.flag("versions") {
        let versions = context.learner.versions().await.map_err(|error| trouble(&error))?;
        let active = versions.last().map(|version| version.version);
        return Ok(versions.iter().map(|version| version_json(version, active)).collect());
    }
    let proposals = context.learner.proposals(args.flag("all")).await.map_err(|error| trouble(&error))?;
    Ok(proposals.iter().map(proposed_json).collect())
}

pub(super) async fn propose(context: &Context, user: &str, args: &Args<'_>) -> Answer1 {
    let written =
        args.0.get("proposal").ok_or_else(|| Trouble::new(Kind::Usage, "the argument \"proposal\" is missing"))?;
    let proposal = learned::read_proposal(written).map_err(|error| {
        Trouble::new(Kind::Usage, error.to_string())
            .hint(r#"{"id": 1, "channel": "A", "wrong": "启动水甭", "command": "pump_start"}"#)
    })?;
    let id = written.get("id").cloned().unwrap_or(Value::Null);
    let label = match &id {
        Value::String(text) if text.chars().count() <= LABEL_LEN_MAX => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    };
    let wish = Wish { proposal, label, source: Source::Operator, by: user.to_owned() };
    let proposed = context.learner.propose(wish).await.map_err(|error| trouble(&error))?;
    let verdict = match proposed.fate {
        Fate::Approved => "approve",
        Fate::Waiting => "operator",
        Fate::Refused | Fate::Rejected => "refuse",
    };
    Ok(json!({
        "id": id,
        "verdict": verdict,
        "why": proposed.why,
        "proposal": name(&proposed),
        "version": proposed.version,
        "evidence": proposed.evidence.map(|seq| seq.0),
    }))
}

pub(super) async fn approve(context: &Context, user: &str, args: &Args<'_>) -> Answer1 {
    let approved = context.learner.approve(which(args)?, user.to_owned()).await.map_err(|error| trouble(&error))?;
    let name = name(&approved);
    Ok(told(
        &approved,
        match (approved.version, args.is_zh()) {
            (Some(version), true) => format!("{name} 已生效（版本 {version}）"),
            (Some(version), false) => format!("{name} is active, in version {version}"),
            (None, true) => format!("{name}：已经能听懂，无需学习"),
            (None, false) => format!("{name} is understood already"),
        },
    ))
}

pub(super) async fn reject(context: &Context, user: &str, args: &Args<'_>) -> Answer1 {
    let note = args.text("note").unwrap_or_default().to_owned();
    let rejected =
        context.learner.reject(which(args)?, user.to_owned(), note).await.map_err(|error| trouble(&error))?;
    let name = name(&rejected);
    Ok(told(&rejected, if args.is_zh() { format!("{name} 已拒绝") } else { format!("{name} is rejected") }))
}

pub(super) async fn rollback(context: &Context, user: &str, args: &Args<'_>) -> Answer1 {
    let version = context.learner.rollback(args.number("version"), user.to_owned()).await;
    let version = version.map_err(|error| trouble(&error))?;
    let (number, why) = (version.version, version.why.clone());
    let mut answer = version_json(&version, Some(number));
    answer["message"] = if args.is_zh() {
        format!("版本 {number} 已生效（{why}）").into()
    } else {
        format!("version {number} is active ({why})").into()
    };
    Ok(answer)
}

/// `p7`, `7`, or the name that its proposer gave it.
fn which(args: &Args<'_>) -> Result<Which, Trouble> {
    let text = args.need("proposal")?;
    let number = text.strip_prefix('p').and_then(|number| number.parse().ok());
    Ok(number.map_or_else(|| Which::Label(text.to_owned()), Which::Number))
}

fn name(proposed: &Proposed) -> String {
    format!("p{}", proposed.id)
}

fn told(proposed: &Proposed, message: String) -> Value {
    let mut answer = proposed_json(proposed);
    answer["message"] = message.into();
    answer
}

fn proposed_json(proposed: &Proposed) -> Value {
    let body: Value = serde_json::from_str(&proposed.body).unwrap_or(Value::Null);
    let (channel, text, command) = match learned::read_proposal(&body) {
        Ok(proposal) => {
            let (channel, text, command) = learned::parts(&proposal);
            (channel.to_owned(), text.to_owned(), command.to_owned())
        }
        Err(_) => (String::new(), String::new(), String::new()),
    };
    json!({
        "proposal": name(proposed),
        "label": proposed.label,
        "state": proposed.fate.word(),
        "channel": channel,
        "text": text,
        "command": command,
        "source": proposed.source,
        "by": proposed.by,
        "why": proposed.why,
        "decided_by": proposed.decided_by,
        "version": proposed.version,
        "evidence": proposed.evidence.map(|seq| seq.0),
        "made_ms": proposed.made.0,
        "body": body,
    })
}

fn version_json(version: &Version, active: Option<u64>) -> Value {
    let items = learned::read_set(&version.body).map(|set| set.len()).ok();
    json!({
        "version": version.version,
        "active": active == Some(version.version),
        "items": items,
        "why": version.why,
        "by": version.by,
        "made_ms": version.made.0,
        "evidence": version.evidence.map(|seq| seq.0),
    })
}

fn trouble(error: &NotLearned) -> Trouble {
    let (kind, hint) = match error {
        NotLearned::Busy | NotLearned::Stopping => (Kind::Busy, None),
        NotLearned::Full => (Kind::NotSo, Some("interlock learn list; approve or reject some")),
        NotLearned::NoSuch(_) => (Kind::NotFound, Some("interlock learn list --all")),
        NotLearned::NoSuchVersion(_) => (Kind::NotFound, Some("interlock learn list --versions")),
        NotLearned::Decided { .. } | NotLearned::Refused(_) => (Kind::NotSo, Some("interlock learn list --all")),
        NotLearned::NotRecorded => (Kind::NotSo, Some("interlock doctor")),
        NotLearned::State(_) | NotLearned::Words(_) | NotLearned::Unreadable { .. } => (Kind::Bug, None),
    };
    let trouble = Trouble::new(kind, error.to_string());
    match hint {
        Some(hint) => trouble.hint(hint),
        None => trouble,
    }
}

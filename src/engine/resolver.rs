//! Finds out what became of an effect that nobody knows about, by the ways that its contract gives.
//!
//! A query before anything else; another attempt only with the same key and while the other side still keeps the
//! original result. It never compensates, never guesses, and never tries what no contract allows: then the question
//! waits for a person, with what is known. Each query is a call of its own, through the gate and into the evidence.

use std::sync::Arc;
use std::time::Duration;

use interlock_domain::closure::Ending;
use interlock_domain::device::plan::Call;
use interlock_domain::device::read_back::Look;
use interlock_domain::device::table::{Devices, READ};
use interlock_domain::effect::outcome::{Known, WayOut};
use interlock_domain::gate::policy::ASK_PATIENCE;
use interlock_domain::id::{QuestionId, RunId, ToolName};
use interlock_domain::repair::Unknown;
use interlock_domain::request::{Asker, Via};
use interlock_domain::surface::companion::{About, Query, Says};
use interlock_domain::surface::nature::{Deed, Nature};
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::handle::{Mediator, Wanted, Within};
use crate::sys::clock;

/// Effects that may wait to be looked at. Beyond it, people find out: more than this is a plant that is down.
pub const WAITING_MAX: usize = 64;

/// Effects that are looked at beside one another.
const AT_ONCE_MAX: usize = 8;

/// How long a write that is not seen may still be on its way, through a gateway or a slow PLC, before a second look.
const SETTLE: Duration = Duration::from_secs(2);

/// Looks at a device that cannot be reached, each after twice the rest of the one before: about a minute in all.
const LOOKS_MAX: u32 = 6;

/// What an effect that is an age of this life is taken to be old: no call runs longer before it is given up, questions
/// apart.
const AGE_OF_THIS_LIFE: Duration = interlock_domain::surface::tool::WORK_PATIENCE;

/// An effect to be looked at.
#[derive(Debug)]
pub struct Sought {
    /// The question that is open about it.
    pub question: QuestionId,
    /// The effect.
    pub unknown: Unknown,
}

/// The owner of the looking.
pub struct Resolver {
    inbox: mpsc::Receiver<Sought>,
    mediator: Mediator,
    devices: watch::Receiver<Arc<Devices>>,
}

/// What one look showed.
enum Shown {
    Done(String),
    NotThere(String),
    /// It could not be had; another look may.
    Nothing,
    /// No look will say it.
    Never,
}

impl Resolver {
    /// With the line that effects come in by.
    #[must_use]
    pub fn new(inbox: mpsc::Receiver<Sought>, mediator: Mediator, devices: watch::Receiver<Arc<Devices>>) -> Resolver {
        Resolver { inbox, mediator, devices }
    }

    /// Runs until the other end is gone.
    pub async fn run(mut self) {
        let mut looking = JoinSet::new();
        loop {
            tokio::select! {
                sought = self.inbox.recv(), if looking.len() < AT_ONCE_MAX => {
                    let Some(sought) = sought else { return };
                    let devices = Arc::clone(&self.devices.borrow());
                    looking.spawn(look(self.mediator.clone(), devices, sought));
                }
                Some(_) = looking.join_next(), if !looking.is_empty() => {}
            }
        }
    }
}

async fn look(mediator: Mediator, devices: Arc<Devices>, sought: Sought) {
    let asker = Asker { via: Via::Cli, name: "interlock".to_owned() };
    let Ok(run) = mediator.open_run(asker, true).await else { return };
    let shown = match sought.unknown.way_out {
        WayOut::QueryFirst => match &sought.unknown.contract.with.query {
            Some(query) => asked(&mediator, run, query, &sought.unknown).await,
            None => read_back(&mediator, run, &devices, &sought.unknown).await,
        },
        WayOut::Resend { retention } => resent(&mediator, run, retention, &sought.unknown).await,
        WayOut::AskAgain | WayOut::Hold => Shown::Never,
    };
    mediator.close_run(run).await;
    match shown {
        Shown::Done(note) => mediator.found(sought.question, true, note).await,
        Shown::NotThere(note) => mediator.found(sought.question, false, note).await,
        Shown::Nothing | Shown::Never => {
            tracing::warn!(question = %sought.question, op = %sought.unknown.op, "nobody but a person can find out");
        }
    }
}

/// Asks the tool that the contract names. What would change something is not asked: looking must not act.
async fn asked(mediator: &Mediator, run: RunId, query: &Query, unknown: &Unknown) -> Shown {
    let Some(args) = unknown.args.as_deref() else { return Shown::Never };
    let about = About { op: &unknown.op.to_string(), input: args, output: &Value::Null };
    let Some(input) = query.ask.input(about) else { return Shown::Never };
    let Ok(tool) = ToolName::new(&query.ask.tool) else { return Shown::Never };
    let mut rest = SETTLE;
    let mut missed = 0;
    for _ in 0..LOOKS_MAX {
        // Looked at each time: a server that was gone may be there again, with other tools.
        match mediator.nature(&tool, &input) {
            Ok(nature) if nature.contract.changes() => {
                tracing::warn!(%tool, op = %unknown.op, "a query that would change something is not asked");
                return Shown::Never;
            }
            Ok(_) | Err(_) => {}
        }
        if let Some(Ending::Ran(Known::Done(answer))) = one(mediator, run, tool.as_str(), input.clone(), None).await {
            match query.read(&answer) {
                Says::Done => return Shown::Done(format!("{tool} says that it is done")),
                // It may have been on its way at the first look.
                Says::NotThere => {
                    missed += 1;
                    if missed == 2 {
                        return Shown::NotThere(format!("{tool} says that it was not done"));
                    }
                }
                Says::Nothing => {}
            }
        }
        sleep_until(Instant::now() + rest).await;
        rest = if missed > 0 { SETTLE } else { rest * 2 };
    }
    Shown::Nothing
}

/// Reads the points that the call wrote.
async fn read_back(mediator: &Mediator, run: RunId, devices: &Devices, unknown: &Unknown) -> Shown {
    // By what it is, not by its name: the device tool may have several.
    let nature = unknown.args.as_deref().map(|args| mediator.nature(&unknown.tool, args));
    if !matches!(nature, Some(Ok(Nature { deed: Deed::Device { .. }, .. }))) {
        return Shown::Never;
    }
    let looks = unknown.args.as_deref().and_then(|args| Call::parse(args).ok());
    let Some(looks) = looks.and_then(|call| devices.plan(&call).ok()).and_then(|plan| plan.read_back()) else {
        return Shown::Never;
    };
    let mut rest = SETTLE;
    let mut missed = 0;
    for _ in 0..LOOKS_MAX {
        match read_all(mediator, run, &looks).await {
            Shown::NotThere(note) => {
                missed += 1;
                // It may have been on its way at the first look.
                if missed == 2 {
                    return Shown::NotThere(note);
                }
            }
            Shown::Nothing => {}
            done @ (Shown::Done(_) | Shown::Never) => return done,
        }
        sleep_until(Instant::now() + rest).await;
        rest = if missed > 0 { SETTLE } else { rest * 2 };
    }
    Shown::Nothing
}

async fn read_all(mediator: &Mediator, run: RunId, looks: &[Look]) -> Shown {
    let mut seen = Vec::new();
    let mut there = true;
    for look in looks {
        let input = json!({ "device": look.device, "action": READ, "point": look.point });
        let Some(Ending::Ran(Known::Done(output))) = one(mediator, run, "device", input, None).await else {
            return Shown::Nothing;
        };
        let number = match &output["value"] {
            Value::Bool(bit) => f64::from(u8::from(*bit)),
            value @ (Value::Number(_) | Value::Null | Value::String(_) | Value::Array(_) | Value::Object(_)) => {
                match value.as_f64() {
                    Some(number) => number,
                    None => return Shown::Nothing,
                }
            }
        };
        there &= look.shows(number);
        seen.push(format!("{}/{} reads {}", look.device, look.point, output["value"]));
    }
    let note = seen.join(", ");
    if there { Shown::Done(note) } else { Shown::NotThere(note) }
}

/// Sends it again under the same key until an answer comes back: however often it arrives, it is done once.
async fn resent(mediator: &Mediator, run: RunId, retention: Duration, unknown: &Unknown) -> Shown {
    let begun = Instant::now();
    let mut rest = SETTLE;
    for look in 0..LOOKS_MAX {
        if look > 0 {
            sleep_until(Instant::now() + rest).await;
            rest *= 2;
        }
        match again(mediator, run, retention, unknown, begun.elapsed()).await {
            Shown::Nothing => {}
            said @ (Shown::Done(_) | Shown::NotThere(_) | Shown::Never) => return said,
        }
    }
    Shown::Nothing
}

/// Sends it again under the same key, while the other side keeps the original result.
async fn again(mediator: &Mediator, run: RunId, retention: Duration, unknown: &Unknown, looked_for: Duration) -> Shown {
    let age = match unknown.since {
        None => AGE_OF_THIS_LIFE + looked_for,
        Some(since) => Duration::from_millis(u64::try_from(clock::wall().0 - since.0).unwrap_or(u64::MAX)),
    };
    // A person may be asked about the attempt before it is made.
    if age + ASK_PATIENCE + AGE_OF_THIS_LIFE >= retention {
        return Shown::Never;
    }
    let Some(args) = unknown.args.as_deref() else { return Shown::Never };
    match one(mediator, run, unknown.tool.as_str(), args.clone(), Some(unknown)).await {
        Some(Ending::Ran(Known::Done(_))) => Shown::Done("sent again with the same key: done".to_owned()),
        Some(Ending::Ran(Known::Failed(failure))) => {
            Shown::NotThere(format!("sent again with the same key: {}: {}", failure.code, failure.message))
        }
        // Who was asked has said no, or nothing: asking again is not finding out.
        Some(Ending::NotStarted(why)) if why.is_denial() => Shown::Never,
        Some(Ending::Ran(Known::Unknown { .. }) | Ending::NotStarted(_)) | None => Shown::Nothing,
    }
}

async fn one(mediator: &Mediator, run: RunId, tool: &str, input: Value, unknown: Option<&Unknown>) -> Option<Ending> {
    let tool = ToolName::new(tool).ok()?;
    let within = Within { again: unknown.map(|unknown| unknown.op.0), ..Within::default() };
    let wanted = vec![Wanted { tool, input, protective: false }];
    let submitted = mediator.submit_within(run, wanted, &within).await.ok()?;
    let answered = submitted.replies.await.ok()?;
    answered.into_iter().next().map(|answered| answered.reply.ending)
}

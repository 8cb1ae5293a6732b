//! The tools that act on the daemon itself: tasks, alarms, the log, the shift report, the box, and `monitor`.
//!
//! They walk the one path like every other tool and are run only from an order. What they act on is owned in this
//! room, which is why they are not in `tool`.

mod monitor;
pub(super) mod schema;

use std::path::PathBuf;
use std::sync::Arc;

use interlock_domain::effect::Order;
use interlock_domain::effect::ledger::Change;
use interlock_domain::effect::report::{Failure, Report};
use interlock_domain::id::{CallId, TaskId};
use interlock_domain::liveness::lifecycle::State;
use interlock_domain::surface::device::DeviceTable;
use interlock_domain::surface::tool::{BadTool, Tool};
use interlock_domain::time::Wall;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::keeper::{Keeper, NotKept};
use super::log::{Log, Query};
use super::tasks::{self, Tasks};
use super::workflow::tool::Recipes;
use super::workflow::{self, Workflows};
use crate::record::rfc3339;
use crate::store::state::alarm::Alarm;
use crate::sys::{clock, interfaces, machine};
use crate::tool::Tools;

/// How long a shift is, for its report.
const SHIFT_MS: i64 = 8 * 3600 * 1000;

/// Alarms that one answer lists.
const ALARMS_MAX: u32 = 100;

/// Rows that `log view` shows, and that an export reads at a time.
const VIEW_ROWS: usize = 20;
const EXPORT_ROWS: usize = 10_000;

/// Rows that one export holds at most: 200 MB of JSON Lines. The whole log is copied with `backup`.
const EXPORT_ROWS_MAX: usize = 500_000;

/// The daemon's own tools.
pub struct Own {
    tasks: Tasks,
    keeper: Keeper,
    log: Log,
    state: PathBuf,
    workflows: Arc<Workflows>,
    recipes: watch::Receiver<Arc<Recipes>>,
}

/// The descriptions of the daemon's own tools.
///
/// # Errors
/// Never in practice: the schemas are constants.
pub fn tools(devices: Arc<DeviceTable>) -> Result<Vec<Tool>, BadTool> {
    let mut tools = schema::tools(devices)?;
    tools.push(workflow::tool::tool()?);
    Ok(tools)
}

fn failed(code: &'static str, message: impl Into<String>) -> Report {
    Report::Failed(Failure { code, message: message.into() })
}

impl Own {
    /// With what they act on.
    #[must_use]
    pub fn new(
        tasks: Tasks,
        keeper: Keeper,
        log: Log,
        state: PathBuf,
        workflows: Arc<Workflows>,
        recipes: watch::Receiver<Arc<Recipes>>,
    ) -> Own {
        Own { tasks, keeper, log, state, workflows, recipes }
    }

    /// Tells people that a run wishes again and again for what is denied: an alarm that stands until it is reset.
    pub fn denied_repeatedly(&self, call: CallId, times: u32) {
        let text = format!(
            "run {} was denied {times} times for one kind of call; see: interlock trace {}",
            call.run, call.run
        );
        tracing::warn!(%call, times, "denied repeatedly");
        let (source, at) = (format!("run:{}", call.run), crate::sys::clock::wall());
        let kept = self.keeper.later(move |state| {
            // One alarm a run, whatever the count.
            if state.standing_alarms()?.iter().any(|alarm| alarm.source == source) {
                return Ok(());
            }
            state.raise_alarm(&source, &text, at).map(|_| ())
        });
        if let Err(error) = kept {
            tracing::error!(%error, %call, "an alarm was not kept");
        }
    }

    /// Tells people of one of the eight anomalies as it arises, and takes it back when it turns out not to be.
    pub fn anomaly(&self, change: &Change) {
        let Some(first) = change.calls.first() else { return };
        let (source, at) = (format!("effects:{}:{first}", change.kind.word()), clock::wall());
        let kept = match change.verdict {
            None => self.keeper.later(move |state| state.clear_alarms(&source, at).map(|_| ())),
            Some(verdict) => {
                let [en, zh] = change.kind.title();
                let word = verdict.word();
                let text = format!(
                    "{} {word} ({en}, {zh}): {}; see: interlock trace {}",
                    change.kind.word(),
                    change.why,
                    first.run
                );
                tracing::warn!(kind = change.kind.word(), verdict = word, why = change.why, "an effect is in doubt");
                self.keeper.later(move |state| {
                    // What was possible may be certain now: one alarm for the two.
                    state.clear_alarms(&source, at)?;
                    state.raise_alarm(&source, &text, at).map(|_| ())
                })
            }
        };
        if let Err(error) = kept {
            tracing::error!(%error, "an alarm was not kept");
        }
    }

    /// The order is for one of them.
    #[must_use]
    pub fn is_own(order: &Order) -> bool {
        let name = order.tool().name().as_str();
        name == workflow::tool::NAME || schema::NAMES.contains(&name)
    }

    /// Runs an order.
    pub async fn run(&self, order: Order, tools: Arc<Tools>) -> Report {
        let input = Arc::clone(order.args());
        let action = input["verb"].as_str().unwrap_or_default();
        let ran = match (order.tool().name().as_str(), action) {
            ("monitor", _) => return monitor::start(&input, &self.tasks, tools).await,
            (workflow::tool::NAME, _) => {
                let recipes = Arc::clone(&self.recipes.borrow());
                return workflow::tool::run(&order, &self.workflows, &recipes).await;
            }
            ("task", action) => return self.task(action, &input).await,
            ("alarm", action) => self.alarm(action).await,
            ("log", "export") => return self.export().await,
            ("log", _) => return self.view().await,
            ("report", _) => return self.shift().await,
            ("system", "disk") => return disk(self.state.clone()).await,
            ("system", action) => return system(action),
            (name, _) => return failed("no_such_tool", format!("{name} is not a tool of the daemon")),
        };
        ran.unwrap_or_else(|error| failed("state_not_kept", error.to_string()))
    }

    async fn task(&self, action: &str, input: &Value) -> Report {
        let Ok(rows) = self.tasks.list(false).await else {
            return failed("no_supervisor", "the supervisor does not answer");
        };
        let living: Vec<_> = rows.iter().filter(|(row, _)| row.state.is_living() && !row.own).collect();
        match action {
            "list" | "status" => {
                let rows: Vec<Value> = rows.iter().map(|(row, seq)| tasks::to_json(row, *seq)).collect();
                return Report::Done(json!({ "tasks": rows }));
            }
            "cancel_all" => {
                let mut stopped = Vec::new();
                for (row, _) in &living {
                    if let Ok(Ok(())) = self.tasks.supervisor().stop(row.key.task).await {
                        stopped.push(row.key.task.to_string());
                    }
                }
                return Report::Done(json!({ "tasks": stopped }));
            }
            _ => {}
        }
        let named = input["task"].as_str().map(str::parse::<TaskId>);
        let task = match (named, living.as_slice()) {
            (Some(Ok(task)), _) => task,
            (Some(Err(error)), _) => return failed("no_such_task", error.to_string()),
            (None, [(only, _)]) => only.key.task,
            (None, []) => return failed("no_task", "no task runs"),
            (None, several) => {
                let names: Vec<String> = several.iter().map(|(row, _)| row.key.task.to_string()).collect();
                return failed("several_tasks", format!("several tasks run: {}; name one", names.join(", ")));
            }
        };
        let supervisor = self.tasks.supervisor();
        let done = match action {
            "cancel" => supervisor.stop(task).await,
            "pause" => supervisor.pause(task).await,
            "resume" => supervisor.resume(task).await,
            other => return failed("no_such_action", format!("task has no action {other:?}")),
        };
        match done {
            Ok(Ok(())) => Report::Done(json!({ "tasks": [task.to_string()] })),
            Ok(Err(error)) => failed("no_such_task", error.to_string()),
            Err(error) => failed("no_supervisor", error.to_string()),
        }
    }

    async fn alarm(&self, action: &str) -> Result<Report, NotKept> {
        let now = clock::wall();
        Ok(match action {
            "list" => {
                let alarms = self.keeper.with(|state| state.standing_alarms()).await?;
                Report::Done(json!({ "alarms": alarms.iter().map(alarm).collect::<Vec<_>>() }))
            }
            "history" => {
                let alarms = self.keeper.with(|state| state.alarms_since(Wall(0), ALARMS_MAX)).await?;
                Report::Done(json!({ "alarms": alarms.iter().map(alarm).collect::<Vec<_>>() }))
            }
            // Silencing the horn and taking note are one act here: the box has no horn of its own.
            "ack" | "mute" => {
                let count = self.keeper.with(move |state| state.acknowledge_alarms(None, "operator", now)).await?;
                Report::Done(json!({ "count": count }))
            }
            "reset" => {
                let standing = self.keeper.with(|state| state.standing_alarms()).await?;
                let rows = self.tasks.list(false).await.unwrap_or_default();
                let holds = |source: &str| {
                    rows.iter().any(|(row, _)| row.state == State::Zombie && source == format!("task:{}", row.key.task))
                };
                // What still stands comes back at once if it is reset: leave it, so that nobody believes it is over.
                let (kept, over): (Vec<_>, Vec<_>) = standing.into_iter().partition(|alarm| holds(&alarm.source));
                let count = over.len();
                for alarm in over {
                    self.keeper.with(move |state| state.clear_alarms(&alarm.source, now)).await?;
                }
                Report::Done(json!({ "count": count, "standing": kept.len() }))
            }
            other => failed("no_such_action", format!("alarm has no action {other:?}")),
        })
    }

    async fn view(&self) -> Report {
        match self.log.query(Query { limit: Some(VIEW_ROWS), ..Query::default() }).await {
            Ok(rows) => Report::Done(json!({ "rows": rows.iter().map(|row| row.to_json()).collect::<Vec<_>>() })),
            Err(error) => failed("log_not_read", error.to_string()),
        }
    }

    /// The newest rows as JSON Lines in `<state>/export`, written whole or not at all.
    async fn export(&self) -> Report {
        let directory = self.state.join("export");
        let name = format!("evidence-{}.jsonl", clock::wall().0);
        let (path, part) = (directory.join(&name), directory.join(format!("{name}.part")));
        let stats = match self.log.stats().await {
            Ok(stats) => stats,
            Err(error) => return failed("log_not_read", error.to_string()),
        };
        let last = stats.last.map_or(0, |seq| seq.0);
        let first =
            last.saturating_sub(EXPORT_ROWS_MAX as u64).max(stats.first.map_or(0, |seq| seq.0.saturating_sub(1)));
        let write = async {
            tokio::fs::create_dir_all(&directory).await?;
            let mut file = tokio::io::BufWriter::new(tokio::fs::File::create(&part).await?);
            let mut after = first;
            let mut count = 0_u64;
            while after < last {
                let query = Query {
                    after: Some(interlock_domain::id::Seq(after)),
                    limit: Some(EXPORT_ROWS),
                    ..Query::default()
                };
                let rows = self.log.query(query).await.map_err(std::io::Error::other)?;
                let Some(newest) = rows.last().map(|row| row.seq.0) else { break };
                let mut text = String::new();
                for row in rows.iter().filter(|row| row.seq.0 <= last) {
                    text.push_str(&row.to_json().to_string());
                    text.push('\n');
                    count += 1;
                }
                tokio::io::AsyncWriteExt::write_all(&mut file, text.as_bytes()).await?;
                after = newest;
            }
            tokio::io::AsyncWriteExt::flush(&mut file).await?;
            file.get_ref().sync_all().await?;
            tokio::fs::rename(&part, &path).await?;
            Ok::<u64, std::io::Error>(count)
        };
        match write.await {
            Ok(count) => Report::Done(json!({ "file": path.display().to_string(), "rows": count, "first": first + 1 })),
            Err(error) => {
                let _ = tokio::fs::remove_file(&part).await;
                failed("not_exported", format!("{}: {error}", path.display()))
            }
        }
    }

    /// What happened in the last eight hours: calls by their endings, alarms, tasks.
    async fn shift(&self) -> Report {
        let now = clock::wall();
        let since = Wall(now.0 - SHIFT_MS);
        let query = Query {
            since: Some(since),
            kind: Some("settled".to_owned()),
            limit: Some(EXPORT_ROWS),
            ..Query::default()
        };
        let settled = match self.log.query(query).await {
            Ok(settled) => settled,
            Err(error) => return failed("log_not_read", error.to_string()),
        };
        let mut endings = json!({ "done": 0, "failed": 0, "unknown": 0, "not_started": 0 });
        for row in &settled {
            if let Some(count) = row.row.to.as_deref().and_then(|to| endings.get_mut(to)) {
                *count = (count.as_u64().unwrap_or(0) + 1).into();
            }
        }
        let alarms = self.keeper.with(move |state| state.alarms_since(since, ALARMS_MAX)).await.unwrap_or_default();
        let tasks = self.tasks.list(false).await.unwrap_or_default();
        Report::Done(json!({
            "from": rfc3339(since),
            "to": rfc3339(now),
            "calls": endings,
            "calls_cut": settled.len() >= EXPORT_ROWS,
            "alarms": alarms.iter().map(alarm).collect::<Vec<_>>(),
            "tasks": tasks.iter().map(|(row, seq)| tasks::to_json(row, *seq)).collect::<Vec<_>>(),
        }))
    }
}

fn alarm(alarm: &Alarm) -> Value {
    json!({
        "id": alarm.id,
        "source": alarm.source,
        "text": alarm.text,
        "raised": rfc3339(alarm.raised),
        "acknowledged": alarm.acknowledged.map(rfc3339),
        "cleared": alarm.cleared.map(rfc3339),
    })
}

/// A disk that does not answer holds up whoever asks, and nobody else.
async fn disk(state: PathBuf) -> Report {
    let asked = tokio::task::spawn_blocking(move || match machine::room(&state) {
        Ok(room) => Report::Done(json!({
            "path": state.display().to_string(), "free_bytes": room.free, "total_bytes": room.total,
        })),
        Err(error) => failed("not_readable", format!("{}: {error}", state.display())),
    });
    asked.await.unwrap_or_else(|error| failed("not_readable", error.to_string()))
}

fn system(action: &str) -> Report {
    match action {
        "cpu" => match machine::load() {
            Some([one, five, fifteen]) => Report::Done(json!({
                "load_1min": one, "load_5min": five, "load_15min": fifteen, "cpus": machine::cpus(),
                "resident_bytes": machine::resident_bytes(),
            })),
            None => failed("not_readable", "/proc/loadavg cannot be read"),
        },
        "net" => match interfaces::all() {
            Ok(interfaces) => Report::Done(json!({ "interfaces": interfaces
                .iter()
                .map(|interface| json!({ "name": interface.name, "up": interface.up, "addresses": interface.addresses }))
                .collect::<Vec<_>>() })),
            Err(error) => failed("not_readable", error.to_string()),
        },
        "version" => Report::Done(json!({ "name": "interlock", "version": env!("CARGO_PKG_VERSION") })),
        other => failed("no_such_action", format!("system has no action {other:?}")),
    }
}

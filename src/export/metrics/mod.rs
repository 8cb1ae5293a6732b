//! `/metrics`: figures for whoever scrapes them, made when they are asked for.
//!
//! Nothing in here may hold up what it measures: owners are asked with a bound, and one that does not answer in time
//! leaves its figures out of the page, which says so in `interlock_scrape_missing`.

mod form;
mod serve;
mod tally;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use interlock_domain::time::Wall;
use tokio::sync::watch;

use super::{Receiver, Standing};
use crate::engine::handle::Mediator;
use crate::engine::log::{Acks, Health, Log};
use crate::engine::servers::{self, Servers};
use crate::engine::tasks::Tasks;
use crate::sys::machine;
use form::{Kind, Page, count};
pub use serve::serve;
pub use tally::Counter;
use tally::Tally;

/// How long an owner may take to answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// Where the figures come from.
pub struct Sources {
    /// Tasks, and the supervisor's own figures.
    pub tasks: Tasks,
    /// Questions.
    pub mediator: Mediator,
    /// The MCP servers behind us.
    pub servers: Servers,
    /// The log.
    pub log: Log,
    /// What is durable.
    pub acks: watch::Receiver<Acks>,
    /// Rows that wait for the writer.
    pub queued: Box<dyn Fn() -> u64 + Send + Sync>,
    /// How it goes with each receiver.
    pub receivers: Vec<Receiver>,
    /// A language model is configured.
    pub has_language_model: Box<dyn Fn() -> bool + Send + Sync>,
    /// The daemon stops.
    pub stop: watch::Receiver<bool>,
}

/// The figures.
pub struct Metrics {
    sources: Sources,
    tally: watch::Receiver<Arc<Tally>>,
}

impl Metrics {
    /// The figures, and what counts for them, which the caller runs.
    #[must_use]
    pub fn new(sources: Sources) -> (Metrics, Counter) {
        let (counter, tally) = Counter::new(sources.log.clone(), sources.acks.clone(), sources.stop.clone());
        (Metrics { sources, tally }, counter)
    }

    /// The page.
    pub async fn text(&self) -> String {
        let mut page = Page::default();
        let version = env!("CARGO_PKG_VERSION");
        page.family(
            ("interlock_build_info", Kind::Gauge, "The build, as labels."),
            [(vec![("version", version), ("arch", std::env::consts::ARCH)], 1.0)],
        );
        let tally = Arc::clone(&self.tally.borrow());
        calls(&mut page, &tally);
        let missing = [self.questions(&mut page).await, self.tasks(&mut page).await, self.log_len(&mut page).await];
        self.supervisor(&mut page);
        self.evidence(&mut page, &tally);
        self.others(&mut page);
        process(&mut page);
        let missing = missing.into_iter().filter(|is_there| !is_there).count();
        page.one(
            (
                "interlock_scrape_missing",
                Kind::Gauge,
                "Owners that did not answer in time; their figures are left out.",
            ),
            count(u64::try_from(missing).unwrap_or(u64::MAX)),
        );
        page.text()
    }

    async fn questions(&self, page: &mut Page) -> bool {
        let Ok(Ok(open)) = tokio::time::timeout(PATIENCE, self.sources.mediator.questions()).await else {
            return false;
        };
        let mut kinds: BTreeMap<&str, u64> = ["permit", "confirm", "outcome"].map(|kind| (kind, 0)).into();
        open.iter().for_each(|open| *kinds.entry(open.question.kind.word()).or_default() += 1);
        let head = ("interlock_questions_waiting", Kind::Gauge, "Questions that wait for a person, by kind.");
        page.family(head, kinds.iter().map(|(kind, n)| (vec![("kind", *kind)], count(*n))));
        true
    }

    async fn tasks(&self, page: &mut Page) -> bool {
        let Ok(Ok(rows)) = tokio::time::timeout(PATIENCE, self.sources.tasks.list(false)).await else { return false };
        let mut states: BTreeMap<&str, u64> = ["RUNNING", "ZOMBIE", "DEAD", "STOPPED"].map(|state| (state, 0)).into();
        rows.iter().for_each(|(row, _)| *states.entry(row.state.name()).or_default() += 1);
        let head = ("interlock_tasks", Kind::Gauge, "Supervised tasks, by state.");
        page.family(head, states.iter().map(|(state, n)| (vec![("state", *state)], count(*n))));
        true
    }

    async fn log_len(&self, page: &mut Page) -> bool {
        let Ok(Ok(bytes)) = tokio::time::timeout(PATIENCE, self.sources.log.bytes()).await else { return false };
        page.one(("interlock_evidence_bytes", Kind::Gauge, "The files of the evidence log."), count(bytes));
        true
    }

    fn supervisor(&self, page: &mut Page) {
        let figures = self.sources.tasks.supervisor().figures();
        let seconds = |ns: u64| count(ns) / 1e9;
        page.one(("interlock_scans_total", Kind::Counter, "Complete scans of the supervisor."), count(figures.scans));
        let head = ("interlock_scan_last_seconds", Kind::Gauge, "How long the last scan took.");
        page.one(head, seconds(figures.last_scan_ns));
        let head = ("interlock_scan_longest_seconds", Kind::Gauge, "The longest scan since the start.");
        page.one(head, seconds(figures.longest_scan_ns));
        let head = ("interlock_supervisor_cpu_seconds_total", Kind::Counter, "CPU time of the supervisor's thread.");
        page.one(head, seconds(figures.cpu_ns));
        let head = ("interlock_supervisor_gaps_total", Kind::Counter, "Times that the supervisor itself was late.");
        page.one(head, count(figures.gaps));
    }

    fn evidence(&self, page: &mut Page, tally: &Tally) {
        let acks = *self.sources.acks.borrow();
        let head = ("interlock_evidence_last_row", Kind::Gauge, "The number of the last durable row.");
        page.one(head, count(acks.seq.0));
        let head = ("interlock_evidence_degraded", Kind::Gauge, "1 while rows cannot be made durable.");
        page.one(head, if acks.health == Health::Writing { 0.0 } else { 1.0 });
        let head = ("interlock_evidence_dropped_total", Kind::Counter, "Rows that were dropped since the start.");
        page.one(head, count(acks.dropped));
        let head = ("interlock_evidence_queued_rows", Kind::Gauge, "Rows that wait for the writer.");
        page.one(head, count((self.sources.queued)()));
        let head = ("interlock_evidence_rows_total", Kind::Counter, "Rows that became durable since the start.");
        page.one(head, count(tally.rows + tally.skipped));
        let head = ("interlock_metrics_rows_skipped_total", Kind::Counter, "Rows that no count here has looked at.");
        page.one(head, count(tally.skipped));
    }

    fn others(&self, page: &mut Page) {
        let head = ("interlock_language_model_configured", Kind::Gauge, "1 when there is a language model.");
        page.one(head, if (self.sources.has_language_model)() { 1.0 } else { 0.0 });
        let rows = servers::rows(&self.sources.servers);
        let name = |row: &serde_json::Value| row["server"].as_str().unwrap_or_default().to_owned();
        let up: Vec<(String, bool)> = rows.iter().map(|row| (name(row), row["state"] == "up")).collect();
        let head = ("interlock_mcp_server_up", Kind::Gauge, "1 while the MCP server answers.");
        page.family(head, up.iter().map(|(name, up)| (vec![("server", name.as_str())], if *up { 1.0 } else { 0.0 })));
        self.exports(page);
    }

    fn exports(&self, page: &mut Page) {
        let now: Vec<(&str, Standing)> =
            self.sources.receivers.iter().map(|receiver| (receiver.sink, receiver.standing.borrow().clone())).collect();
        let mut family = |name: &str, kind: Kind, help: &str, figure: &dyn Fn(&Standing) -> Option<f64>| {
            let samples = now.iter().filter_map(|(sink, standing)| Some((vec![("sink", *sink)], figure(standing)?)));
            page.family((name, kind, help), samples.collect::<Vec<_>>());
        };
        family("interlock_export_connected", Kind::Gauge, "1 while the receiver is reached.", &|standing| {
            Some(if standing.connected { 1.0 } else { 0.0 })
        });
        let help = "Rows, or messages, that the receiver has not acknowledged.";
        family("interlock_export_backlog_rows", Kind::Gauge, help, &|standing| Some(count(standing.waiting)));
        let help = "Rows that were told as a gap, or messages that were left out, over all time.";
        family("interlock_export_dropped_rows_total", Kind::Counter, help, &|standing| Some(count(standing.dropped)));
        let help = "Rows, or messages, that were acknowledged since the start.";
        family("interlock_export_rows_total", Kind::Counter, help, &|standing| Some(count(standing.arrived)));
        let help = "Connections since the start.";
        family("interlock_export_connections_total", Kind::Counter, help, &|standing| {
            Some(count(standing.connections))
        });
        let seconds = |wall: Wall| count(wall.0.max(0).unsigned_abs()) / 1e3;
        let help = "When the receiver last acknowledged something, since the start.";
        family("interlock_export_last_success_timestamp_seconds", Kind::Gauge, help, &|standing| {
            standing.last_success.map(seconds)
        });
        let help = "When the receiver was last not reached or refused something, since the start.";
        family("interlock_export_last_error_timestamp_seconds", Kind::Gauge, help, &|standing| {
            standing.last_error.as_ref().map(|(at, _)| seconds(*at))
        });
    }
}

fn calls(page: &mut Page, tally: &Tally) {
    let head = ("interlock_gate_decisions_total", Kind::Counter, "Calls, by what the gate said: allow, ask, deny.");
    let decisions = ["allow", "ask", "deny"].map(|word| (word, tally.decisions.get(word).copied().unwrap_or(0)));
    page.family(head, decisions.iter().map(|(word, n)| (vec![("decision", *word)], count(*n))));
    let counted = |known: &[&str], counts: &BTreeMap<String, u64>| {
        let mut all: BTreeMap<String, u64> = known.iter().map(|word| ((*word).to_owned(), 0)).collect();
        all.extend(counts.iter().map(|(word, n)| (word.clone(), *n)));
        all
    };
    let outcomes = counted(&["done", "failed", "unknown", "not_started"], &tally.outcomes);
    let head = ("interlock_calls_settled_total", Kind::Counter, "Calls that ended, by how.");
    page.family(head, outcomes.iter().map(|(word, n)| (vec![("outcome", word.as_str())], count(*n))));
    let answers = counted(&["allow", "deny"], &tally.answers);
    let head = ("interlock_answers_total", Kind::Counter, "Answers of people to questions.");
    page.family(head, answers.iter().map(|(word, n)| (vec![("answer", word.as_str())], count(*n))));
    let states = counted(&["ZOMBIE", "DEAD"], &tally.states);
    let head = ("interlock_task_changes_total", Kind::Counter, "Tasks that came into a state.");
    page.family(head, states.iter().map(|(word, n)| (vec![("state", word.as_str())], count(*n))));
    let head = ("interlock_sentences_total", Kind::Counter, "Sentences, by what was made of them.");
    page.family(head, tally.heard.iter().map(|(word, n)| (vec![("outcome", word.as_str())], count(*n))));
    let head =
        ("interlock_device_last_answer_timestamp_seconds", Kind::Gauge, "When a call last ended well on a device.");
    let seconds = |wall: i64| count(wall.max(0).unsigned_abs()) / 1e3;
    page.family(head, tally.devices.iter().map(|(device, at)| (vec![("device", device.as_str())], seconds(at.0))));
}

fn process(page: &mut Page) {
    let Some(own) = machine::own() else { return };
    let head = ("process_resident_memory_bytes", Kind::Gauge, "Resident memory.");
    page.one(head, count(own.resident_bytes));
    page.one(("process_cpu_seconds_total", Kind::Counter, "CPU time, user and system."), own.cpu.as_secs_f64());
    page.one(("process_open_fds", Kind::Gauge, "Open files and sockets."), count(own.fds));
    page.one(("process_threads", Kind::Gauge, "Threads."), count(own.threads));
}

//! `interlock trace RUN`: the typed graph of one run, made from the log alone.
//!
//! It reads and writes nothing but its answer: a log that lies on a read-only disk, or that a daemon is writing at this
//! moment, gives the same trace.

mod dot;
mod drawing;
mod html;
mod json;
mod loops;
mod text;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use interlock_domain::id::{RunId, Seq};
use interlock_domain::trace::{Fact, Graph, What};

use super::args::{TraceArgs, TraceFormat};
use super::error::{CliError, Exit};
use super::out::Out;
use super::places;
use crate::record::trace::fact;
use crate::store::error::StoreError;
use crate::store::read::{self, Query, ROWS_MAX};

/// The most rows that one trace reads. A run of more is a log, not a trace: `evidence query --run` has it page by page.
const ROWS_TOTAL_MAX: usize = 100_000;

/// How many generations of runs below the first are followed.
const GENERATIONS_MAX: usize = 16;

pub(super) fn trace(args: &TraceArgs, out: &Out) -> Result<(), CliError> {
    let state = state_of(args.state.as_deref())?;
    let run = run_of(&state, &args.run)?;
    let graph = Graph::of(run, facts(&state, run)?);
    if graph.events.is_empty() {
        return Err(CliError::new(Exit::NotSo, format!("the log in {} has no run {run}", state.display()))
            .hint("interlock evidence query --kind run_opened lists the runs"));
    }
    let format = if args.json { TraceFormat::Json } else { args.format };
    match format {
        TraceFormat::Text => text::lines(&graph).iter().try_for_each(|line| out.line(line)),
        TraceFormat::Json => out.json(&json::object(&graph)),
        TraceFormat::Dot => out.line(&dot::graph(&graph)),
        TraceFormat::Html => out.line(&html::page(&graph, out.lang())),
    }
}

/// The run of this name; `last` is the one that was opened last.
pub(super) fn run_of(state: &Path, name: &str) -> Result<RunId, CliError> {
    match name {
        "last" => last(state),
        name => name.parse::<RunId>().map_err(|error| {
            CliError::new(Exit::Usage, error.to_string())
                .hint("the run stands in the answer of `say --json`, or say last")
        }),
    }
}

pub(super) fn state_of(named: Option<&Path>) -> Result<PathBuf, CliError> {
    places::state(named).ok_or_else(|| {
        CliError::new(Exit::Usage, "no state directory is named, and there is no home directory")
            .hint("name it with --state DIR")
    })
}

pub(super) fn store(error: StoreError) -> CliError {
    let exit = if matches!(error, StoreError::NoLog { .. }) { Exit::NoInput } else { Exit::Data };
    CliError::new(exit, error.to_string()).hint("name the state directory with --state DIR")
}

/// How far back the last run that nobody else made is looked for.
const LAST_ROWS_MAX: usize = 200;

/// The run that was opened last; not one that another made, which stands in the trace of that one.
fn last(state: &Path) -> Result<RunId, CliError> {
    let query = Query { kind: Some("run_opened".to_owned()), limit: Some(LAST_ROWS_MAX), ..Query::default() };
    let rows = read::query(state, &query).map_err(store)?;
    let own = |fact: &Fact| matches!(fact.what, What::RunOpened { parent: None, .. });
    let own = rows.iter().rev().filter_map(fact).find(own).map(|fact| fact.run);
    let run = own.or_else(|| rows.last().and_then(|row| row.row.run));
    run.ok_or_else(|| CliError::new(Exit::NotSo, format!("the log in {} has no run", state.display())))
}

/// The facts of a run and of the runs below it.
fn facts(state: &Path, run: RunId) -> Result<Vec<Fact>, CliError> {
    let mut facts = Vec::new();
    let mut seen = BTreeSet::new();
    let mut next = vec![run];
    for _ in 0..GENERATIONS_MAX {
        let mut below = Vec::new();
        for run in std::mem::take(&mut next) {
            if !seen.insert(run) {
                continue;
            }
            facts.extend(all(state, &Query { run: Some(run), ..Query::default() })?);
            let made = Query { kind: Some("run_opened".to_owned()), text: Some(run.to_string()), ..Query::default() };
            let children = all(state, &made)?.into_iter().filter_map(|fact| {
                let What::RunOpened { parent, .. } = fact.what else { return None };
                (parent == Some(run)).then_some(fact.run)
            });
            below.extend(children);
        }
        if below.is_empty() {
            return Ok(facts);
        }
        next = below;
    }
    Ok(facts)
}

/// All rows of a query, page by page.
fn all(state: &Path, query: &Query) -> Result<Vec<Fact>, CliError> {
    let mut facts = Vec::new();
    let mut after = Seq(0);
    loop {
        let page = Query { after: Some(after), limit: Some(ROWS_MAX), ..query.clone() };
        let rows = read::query(state, &page).map_err(store)?;
        let Some(newest) = rows.last().map(|row| row.seq) else { return Ok(facts) };
        after = newest;
        let full = rows.len() == ROWS_MAX;
        facts.extend(rows.iter().filter_map(fact));
        if !full {
            return Ok(facts);
        }
        if facts.len() >= ROWS_TOTAL_MAX {
            return Err(CliError::new(Exit::Data, format!("the run has more than {ROWS_TOTAL_MAX} rows"))
                .hint("interlock evidence query --run RUN gives them page by page"));
        }
    }
}

/// Nanoseconds as a person reads them.
fn span(ns: u64) -> String {
    let precise = |value: f64, unit: &str| {
        let digits = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
        format!("{value:.digits$} {unit}")
    };
    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    let ns = ns as f64;
    match ns {
        ns if ns < 1e6 => precise(ns / 1e3, "us"),
        ns if ns < 1e9 => precise(ns / 1e6, "ms"),
        ns if ns < 60e9 => precise(ns / 1e9, "s"),
        ns => precise(ns / 60e9, "min"),
    }
}

#[cfg(test)]
mod sample {
    use interlock_domain::id::{BatchId, CallId, RunId, Seq};
    use interlock_domain::time::{Tick, Wall};
    use interlock_domain::trace::moves::Move;
    use interlock_domain::trace::{Fact, Graph, What};

    /// A run with a question, a denial, a hostile input, an unknown and a child.
    pub(super) fn graph() -> Graph {
        let (run, child) = (RunId::new(1, 1), RunId::new(1, 2));
        let call = |run, position| CallId { run, batch: BatchId(4), position };
        let mut facts = Vec::new();
        let mut add = |run, position: Option<u32>, what| {
            let seq = facts.len() as u64 + 1;
            facts.push(Fact {
                seq: Seq(seq),
                boot: "b".into(),
                at: Tick(seq * 1_500_000),
                wall: Wall(1_800_000_000_000 + i64::try_from(seq).unwrap()),
                run,
                call: position.map(|position| call(run, position)),
                what,
            });
        };
        let wish = |tool: &str, input: &str, parent| What::Requested { tool: tool.into(), input: input.into(), parent };
        let end = |ending: &str, code: Option<&str>, told: &str| What::Settled {
            ending: ending.into(),
            code: code.map(str::to_owned),
            told: told.into(),
        };
        add(run, None, What::RunOpened { parent: None, asker: "agent planner".into(), mode: "default".into() });
        let asked = |text: &str, parent, start: Option<&str>| {
            let (text, asker, model) = (text.to_owned(), "li".to_owned(), "m-1".to_owned());
            What::Agent(Move::Asked { text, asker, model, parent, resumed: None, start: start.map(str::to_owned) })
        };
        let turn = |turn, tools: &[&str], text: &str| {
            let calls = tools.iter().enumerate().map(|(at, tool)| (format!("c{at}"), (*tool).to_owned())).collect();
            let (took_ns, usage) = (Some(1_200_000), "90 tokens in, 12 out".to_owned());
            What::Agent(Move::Turn { turn, attempt: 1, took_ns, calls, text: text.to_owned(), usage })
        };
        let handed = |turn, count: usize| {
            let calls = (0..count).map(|at| format!("c{at}")).collect();
            What::Agent(Move::Dispatched { turn, batch: 4, calls })
        };
        let over = |turns, text: &str| {
            let (outcome, message) = ("done".to_owned(), String::new());
            What::Agent(Move::Ended { outcome, turns, message, text: text.to_owned() })
        };
        add(run, None, asked("look at <b>the pumps</b>", None, None));
        add(run, None, turn(1, &["read_file", "shell", "agent", "device"], ""));
        add(run, Some(0), wish("read_file", "{\"path\":\"README.md\"}", None));
        add(run, Some(1), wish("shell", "{\"command\":\"rm -rf build <b>&\\\"\"}", None));
        add(run, Some(2), wish("agent", "{\"task\":\"look at the pumps\"}", None));
        add(run, Some(3), wish("device", "{\"action\":\"close\",\"device\":\"breaker-1\"}", None));
        add(run, None, handed(1, 4));
        add(run, Some(1), end("not_started", Some("denied"), "denied at rule: a rule denies it (rule Bash(rm:*))"));
        let reason = "its declared risk is dangerous".to_owned();
        add(run, Some(3), What::Asked { question: "q7".into(), kind: "confirm".into(), reason });
        add(run, Some(3), What::Answered { question: "q7".into(), answer: "allow by li".into() });
        for (position, step, class) in [(0, "mode", "safe"), (2, "rule", "composite"), (3, "immune", "queue")] {
            let rule = (step == "rule").then(|| "agent".to_owned());
            add(run, Some(position), What::Permitted { step: step.into(), rule });
            add(run, Some(position), What::Queued { class: class.into() });
        }
        add(run, Some(0), What::Started);
        add(run, Some(2), What::Started);
        add(run, Some(0), end("done", None, "{\"bytes\":5120}"));
        add(child, None, What::RunOpened { parent: Some(run), asker: "agent child".into(), mode: "default".into() });
        add(child, None, asked("look at the pumps", Some(call(run, 2)), Some("cold")));
        add(child, None, turn(1, &["device"], ""));
        add(child, Some(0), wish("device", "{\"action\":\"read\",\"device\":\"pump-2\"}", Some(call(run, 2))));
        add(child, None, handed(1, 1));
        add(child, Some(0), What::Permitted { step: "mode".into(), rule: None });
        add(child, Some(0), What::Started);
        add(child, Some(0), end("done", None, "{\"run\":true}"));
        add(child, None, over(1, "it runs"));
        add(run, Some(2), end("done", None, "{\"text\":\"二号泵在运行\"}"));
        add(run, Some(3), What::Started);
        add(run, Some(3), end("unknown", Some("timed_out"), "nobody knows whether it took effect"));
        add(run, None, What::Agent(Move::Upkeep { text: "src: exit 0".into(), passed: true }));
        let levels = vec!["spill".to_owned()];
        add(run, None, What::Agent(Move::Compacted { levels, before: 9000, after: 4000 }));
        add(run, None, turn(2, &[], "all is well"));
        add(run, None, over(2, "all is well"));
        add(run, Some(3), What::Asked { question: "q8".into(), kind: "outcome".into(), reason: String::new() });
        add(run, Some(3), What::Resolved { found: "done".into(), by: "li".into() });
        Graph::of(run, facts)
    }
}

#[cfg(test)]
mod tests {
    use super::span;

    #[test]
    fn spans_are_short() {
        let table = [(900, "0.90 us"), (12_345, "12.3 us"), (1_234_567, "1.23 ms"), (2_500_000_000, "2.50 s")];
        for (ns, want) in table {
            assert_eq!(span(ns), want);
        }
        assert_eq!(span(600_000_000_000), "10.0 min");
    }
}

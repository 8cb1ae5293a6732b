//! What the checker of effect histories costs: events a second for A1 to A5, and that it stays linear.

use std::fmt::Write as _;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use interlock_domain::effect::anomaly::{Event, History, Malformed, Seen, Terms, View};
use interlock_domain::effect::profile::Profile;
use interlock_domain::effect::workflow::{MAIN, State, Wanted, Workflow};
use interlock_domain::id::{BatchId, CallId, RunId};
use interlock_domain::surface::contract::{Contract, OutcomeBy};
use serde_json::{Value, json};

/// How long the ledger is measured, and calls of each of its workflows: as many as a long recipe has.
const LEDGER_MEASURED: Duration = Duration::from_secs(2);
/// See [`LEDGER_MEASURED`].
const LEDGER_CALLS: usize = 16;

/// Events of one workflow of the measured history.
const EVENTS_EACH: usize = 12;

/// Measures. The largest history, of ten million events, is part of the long run: it takes a gigabyte.
///
/// # Errors
/// When the measured history is malformed, which is a bug of ours.
pub fn run(long: bool) -> Result<Value, Malformed> {
    let small = linear(100_000)?;
    let middle = linear(1_000_000)?;
    let large = if long { Some(linear(10_000_000)?) } else { None };
    let mut figures = json!({
        "a1_a5_events_per_s_100k": small,
        "a1_a5_events_per_s_1m": middle,
        "a6_edges_per_s_1m": spheres(1_000_000)?,
        "a7_effects_per_s_total_order_300k": orders(300_000)?,
        "ledger_us_per_call": ledger(),
        "ledger_all_calls_us_per_call": super::ledger::per_call(),
    });
    if let Some(large) = large {
        figures["a1_a5_events_per_s_10m"] = large.into();
    }
    Ok(figures)
}

/// What a workflow's ledger costs a call, besides the log: the retry table, what the input rests on, the end. Each input
/// and each result has values to be compared.
fn ledger() -> f64 {
    let contract = Arc::new(Contract { outcome: OutcomeBy::Query, ..Contract::weakest("bench") });
    let call = CallId { run: RunId::new(1, 1), batch: BatchId(1), position: 0 };
    let begun = Instant::now();
    let mut calls = 0_u32;
    while begun.elapsed() < LEDGER_MEASURED {
        let Ok(mut workflow) = Workflow::begin([Profile::UnknownSafe].into(), Vec::new()) else { continue };
        for number in 0..LEDGER_CALLS {
            let wanted = Wanted {
                op: format!("op {number}"),
                branch: MAIN.to_owned(),
                tool: "device".to_owned(),
                input: Arc::new(json!({ "device": "pump-1", "action": "set", "of": format!("order-{}", number / 2) })),
                contract: Arc::clone(&contract),
                resources: vec!["pump-1".to_owned()],
                after: Vec::new(),
            };
            if let Ok((at, _)) = workflow.attempt(wanted) {
                workflow.bound(at, call);
                workflow.seen(at, State::Done, Some(&json!({ "order": format!("order-{number}"), "value": 42.5 })));
            }
            calls += 1;
        }
        black_box(&workflow);
    }
    begun.elapsed().as_secs_f64() * 1e6 / f64::from(calls)
}

/// Workflows of two operations, one of which is tried twice and one undone; some commit, some abort. Making the names is
/// part of what is measured.
fn linear(events: usize) -> Result<f64, Malformed> {
    let begun = Instant::now();
    let mut history = History::new();
    let mut names: [String; 4] = Default::default();
    let mut number = 0_usize;
    while history.len() < events {
        let mut name = |at: usize, letter: char, number: usize| {
            names[at].clear();
            // Writing into a text does not fail.
            let _ = write!(names[at], "{letter}{number}");
        };
        name(0, 'w', number);
        name(1, 'a', number * 3);
        name(2, 'b', number * 3);
        name(3, 'e', number * 2);
        let [workflow, first, second, effect] = [&names[0], &names[1], &names[2], &names[3]];
        let undo = &format!("c{number}");
        history.take(Event::Begin { workflow, required: &["pay"] })?;
        history.take(Event::Attempt { attempt: first, op: "pay", workflow, branch: "m" })?;
        history.take(Event::Effect { effect, attempt: first, resource: "account", staged: true })?;
        history.take(Event::Observe { attempt: first, seen: Seen::Unknown })?;
        history.take(Event::Attempt { attempt: second, op: "pay", workflow, branch: "m" })?;
        history.take(Event::Observe { attempt: second, seen: Seen::Confirmed })?;
        history.take(Event::Observe { attempt: first, seen: Seen::Confirmed })?;
        history.take(Event::Attempt { attempt: undo, op: "refund", workflow, branch: "m" })?;
        history.take(Event::Compensate { compensation: undo, attempt: first })?;
        history.take(Event::Neutralise { compensation: undo, effect })?;
        history.take(Event::Observe { attempt: undo, seen: Seen::Confirmed })?;
        if number.is_multiple_of(2) {
            history.take(Event::Abort { workflow, branch: None })?;
        } else {
            history.take(Event::Commit { workflow, branches: &["m"] })?;
        }
        number += 1;
    }
    debug_assert_eq!(history.len() % EVENTS_EACH, 0, "each workflow has so many events");
    let terms = Terms { view: View::World, held: true, commuting: vec![("pay".to_owned(), "pay".to_owned())] };
    black_box(history.check(&terms));
    Ok(history.len() as f64 / begun.elapsed().as_secs_f64())
}

/// A chain of dependencies, all of it kept: the search goes over every edge.
fn spheres(edges: usize) -> Result<f64, Malformed> {
    let mut history =
        chain(edges, |history, before, effect| history.take(Event::Depends { later: effect, earlier: before }))?;
    history.take(Event::Commit { workflow: "w", branches: &["m"] })?;
    history.take(Event::Commit { workflow: "v", branches: &["m"] })?;
    let begun = Instant::now();
    black_box(history.check(&Terms { commuting: vec![("set".to_owned(), "set".to_owned())], ..Terms::default() }));
    Ok(edges as f64 / begun.elapsed().as_secs_f64())
}

/// One resource that two workflows write in turns, under a total order.
fn orders(effects: usize) -> Result<f64, Malformed> {
    let history =
        chain(effects, |history, before, effect| history.take(Event::Order { first: before, second: effect }))?;
    let begun = Instant::now();
    black_box(history.check(&Terms::default()));
    Ok(effects as f64 / begun.elapsed().as_secs_f64())
}

fn chain(
    effects: usize,
    join: impl Fn(&mut History, &str, &str) -> Result<(), Malformed>,
) -> Result<History, Malformed> {
    let mut history = History::new();
    history.take(Event::Begin { workflow: "w", required: &[] })?;
    history.take(Event::Begin { workflow: "v", required: &[] })?;
    let mut before = String::new();
    for number in 0..effects {
        let (attempt, effect, op) = (format!("a{number}"), format!("e{number}"), format!("set#{number}"));
        let workflow = if number % 2 == 0 { "w" } else { "v" };
        history.take(Event::Attempt { attempt: &attempt, op: &op, workflow, branch: "m" })?;
        history.take(Event::Effect { effect: &effect, attempt: &attempt, resource: "r", staged: false })?;
        if number > 0 {
            join(&mut history, &before, &effect)?;
        }
        before = effect;
    }
    Ok(history)
}

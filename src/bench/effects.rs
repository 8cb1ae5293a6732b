//! What the checker of effect histories costs: events a second for A1 to A5, and that it stays linear.

use std::fmt::Write as _;
use std::hint::black_box;
use std::time::Instant;

use interlock_domain::effect::anomaly::{Event, History, Malformed, Seen, Terms, View};
use serde_json::{Value, json};

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
    });
    if let Some(large) = large {
        figures["a1_a5_events_per_s_10m"] = large.into();
    }
    Ok(figures)
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

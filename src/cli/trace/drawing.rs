//! The graph as a picture: a lane for each run and each call, a run below beside the call that made it.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use interlock_domain::id::RunId;
use interlock_domain::trace::moves::Move;
use interlock_domain::trace::{Fact, Graph, Story, Tie, What};

use super::html::{Words, colour, escaped, short, tie_name};

/// The most events that the drawing of the graph has: with more, nobody can follow a line.
const DRAWN_MAX: usize = 240;

/// One line of the picture.
enum Lane<'a> {
    /// What happened to a run outside of its calls: its loop, where a model drives it.
    Run(RunId),
    /// One call.
    Call(&'a Story),
}

/// A run, its calls in their order, and behind each the runs that it made.
fn lanes(graph: &Graph) -> Vec<Lane<'_>> {
    let mut lanes = Vec::new();
    let mut seen = BTreeSet::new();
    below(graph, graph.run, &mut seen, &mut lanes);
    // A run whose maker the log does not have.
    for (child, _) in &graph.children {
        below(graph, *child, &mut seen, &mut lanes);
    }
    lanes
}

fn below<'a>(graph: &'a Graph, run: RunId, seen: &mut BTreeSet<RunId>, lanes: &mut Vec<Lane<'a>>) {
    if !seen.insert(run) {
        return;
    }
    lanes.push(Lane::Run(run));
    for story in graph.calls.iter().filter(|story| story.call.run == run) {
        lanes.push(Lane::Call(story));
        let made = graph.makers.iter().filter(|(_, call)| **call == story.call);
        made.for_each(|(child, _)| below(graph, *child, seen, lanes));
    }
}

/// Time to the right, one column for each event.
pub(super) fn draw(page: &mut String, graph: &Graph, words: &Words) {
    const STEP: usize = 30;
    const LANE: usize = 34;
    const LEFT: usize = 150;
    let _ = write!(page, "<section><h2>{}</h2>", words.graph);
    if graph.events.len() > DRAWN_MAX {
        let _ = write!(page, "<p>{}</p></section>", words.too_many);
        return;
    }
    page.push_str("<p class=\"legend\">");
    for tie in Tie::ALL {
        let _ = write!(page, "<span class=\"key line-{0}\"></span>{1} ", tie.word(), tie_name(tie, words));
    }
    let lanes = lanes(graph);
    let (width, height) = (LEFT + graph.events.len() * STEP + 90, lanes.len() * LANE + 96);
    let _ = write!(
        page,
        "</p><div class=\"scroll\"><svg viewBox=\"0 0 {width} {height}\" style=\"min-width:{width}px\" role=\"img\" \
         aria-label=\"{}\">",
        words.graph
    );
    let lane = |fact: &Fact| {
        let own = |lane: &Lane<'_>| match lane {
            Lane::Run(run) => fact.call.is_none() && fact.run == *run,
            Lane::Call(story) => fact.call == Some(story.call),
        };
        lanes.iter().position(own).unwrap_or(0)
    };
    let spot = |at: usize| (LEFT + at * STEP, 20 + lane(&graph.events[at]) * LANE);
    for (at, lane) in lanes.iter().enumerate() {
        let name = match lane {
            Lane::Run(run) if *run == graph.run => words.title.to_owned(),
            Lane::Run(_) => format!("↳ {}", words.title),
            Lane::Call(story) => format!("{} {}", short(graph, story), story.tool),
        };
        let y = 20 + at * LANE;
        let name: String = name.chars().take(20).collect();
        let _ = write!(
            page,
            "<line x1=\"{}\" y1=\"{y}\" x2=\"{}\" y2=\"{y}\" class=\"grid\"/><text x=\"4\" y=\"{}\" class=\"name\">{}\
             </text>",
            LEFT - 14,
            width - 80,
            y + 4,
            escaped(&name)
        );
    }
    for edge in &graph.edges {
        let ((x1, y1), (x2, y2)) = (spot(edge.from), spot(edge.to));
        let bend = match edge.tie {
            Tie::Order => 0,
            Tie::Decision => 10,
            Tie::Pairing => 16,
            Tie::Lifecycle => 0,
        };
        let (mx, my) = (usize::midpoint(x1, x2), usize::midpoint(y1, y2).saturating_sub(bend));
        let _ = write!(
            page,
            "<path d=\"M{x1} {y1} Q{mx} {my} {x2} {y2}\" class=\"edge line-{0}\"><title>{0}</title></path>",
            edge.tie.word()
        );
    }
    let foot = 20 + lanes.len() * LANE - 12;
    for (at, fact) in graph.events.iter().enumerate() {
        let (x, y) = spot(at);
        let class = match &fact.what {
            What::Settled { ending, .. } => colour(ending),
            What::Agent(Move::Ended { outcome, .. }) if outcome == "done" => "done",
            What::Agent(Move::Ended { .. } | Move::Trouble { .. }) => "failed",
            What::Agent(Move::Hook { .. }) => "asked",
            What::Agent(
                Move::Asked { .. }
                | Move::Turn { .. }
                | Move::Dispatched { .. }
                | Move::Compacted { .. }
                | Move::Upkeep { .. },
            ) => "model",
            What::Asked { .. } | What::Answered { .. } => "asked",
            What::RunOpened { .. }
            | What::PolicyChanged { .. }
            | What::Requested { .. }
            | What::Permitted { .. }
            | What::Queued { .. }
            | What::Intent
            | What::Started
            | What::StopAsked
            | What::Outcome { .. }
            | What::LateReport
            | What::Resolved { .. }
            | What::Examined { .. }
            | What::Other { .. } => "plain",
        };
        // A move of the loop is square, what the gate and the tools did is round.
        let form = if let What::Agent(_) = &fact.what {
            format!("rect x=\"{}\" y=\"{}\" width=\"12\" height=\"12\" rx=\"2\"", x - 6, y - 6)
        } else {
            format!("circle cx=\"{x}\" cy=\"{y}\" r=\"6\"")
        };
        let _ = write!(
            page,
            "<{form} class=\"{class}\"><title>{}</title></{}>\
             <text transform=\"translate({} {foot}) rotate(40)\" class=\"tick\">{}</text>",
            escaped(&format!("{} {} {}", fact.seq.0, fact.what.word(), fact.what.line())),
            if form.starts_with("rect") { "rect" } else { "circle" },
            x.saturating_sub(4),
            escaped(fact.what.word())
        );
    }
    page.push_str("</svg></div></section>");
}

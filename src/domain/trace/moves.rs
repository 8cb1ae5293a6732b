//! The loop of a language model in the graph of its run: what it was asked, each answer, what became of it, the end.
//!
//! A move is written by the loop and not by the gate: it says what the model said and did with its context, and decides
//! nothing. Its place among the calls is given by the batch that it handed in.

use std::collections::BTreeMap;

use super::{Fact, Graph, Tie, What};
use crate::id::{CallId, RunId};

/// One move of the loop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Move {
    /// Something was asked of the model: by a person, or by the call of a parent's that makes a subagent.
    Asked {
        /// What.
        text: String,
        /// By whom.
        asker: String,
        /// The model.
        model: String,
        /// The call that made this run.
        parent: Option<CallId>,
        /// The run whose conversation goes on.
        resumed: Option<RunId>,
        /// How a subagent began: `cold`, or `fork` with what its parent knew.
        start: Option<String>,
    },
    /// The model answered.
    Turn {
        /// From 1.
        turn: u64,
        /// From 1: more than one when earlier ones failed.
        attempt: u64,
        /// How long the answer took, nanoseconds; `None` in the log of an older build.
        took_ns: Option<u64>,
        /// What it calls: the id as the model knows it, and the tool.
        calls: Vec<(String, String)>,
        /// What it says, cut.
        text: String,
        /// Tokens in and out, where the provider says them.
        usage: String,
    },
    /// Its calls were handed in.
    Dispatched {
        /// The turn.
        turn: u64,
        /// The batch that they are.
        batch: u64,
        /// Their ids as the model knows them.
        calls: Vec<String>,
    },
    /// A hook had a word on a call.
    Hook {
        /// The turn.
        turn: u64,
        /// The id as the model knows it.
        id: String,
        /// The tool.
        tool: String,
        /// `deny`, `change`, `withhold`, `add`.
        decision: String,
        /// Why.
        reason: String,
    },
    /// The history was made smaller.
    Compacted {
        /// The levels that did it.
        levels: Vec<String>,
        /// Tokens before.
        before: u64,
        /// Tokens after.
        after: u64,
    },
    /// There was no whole answer.
    Trouble {
        /// The turn.
        turn: u64,
        /// The stable code.
        code: String,
        /// What is said about it.
        message: String,
    },
    /// A declared check ran after a change that was observed.
    Upkeep {
        /// What it says of itself and its output, cut.
        text: String,
        /// It found nothing wrong.
        passed: bool,
    },
    /// The run ended.
    Ended {
        /// The stable code: `done`, `denied_repeatedly`, …
        outcome: String,
        /// How many turns it took.
        turns: u64,
        /// What is said about an end that is not as it should be.
        message: String,
        /// The last words, cut.
        text: String,
    },
}

impl Move {
    /// The word of the row.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Move::Asked { .. } => "agent_asked",
            Move::Turn { .. } => "agent_turn",
            Move::Dispatched { .. } => "agent_dispatched",
            Move::Hook { .. } => "agent_hook",
            Move::Compacted { .. } => "agent_compacted",
            Move::Trouble { .. } => "agent_trouble",
            Move::Upkeep { .. } => "maintenance",
            Move::Ended { .. } => "agent_ended",
        }
    }

    /// One line for a person.
    #[must_use]
    pub fn line(&self) -> String {
        match self {
            Move::Asked { text, asker, model, parent, resumed, start } => {
                let parent = parent.map_or_else(String::new, |call| format!(", subagent of {call}"));
                let start = start.as_ref().map_or_else(String::new, |start| format!(" ({start} start)"));
                let resumed = resumed.map_or_else(String::new, |run| format!(", goes on with {run}"));
                format!("{asker} asks {model}{parent}{start}{resumed}: {text}")
            }
            Move::Turn { turn, attempt, calls, text, usage, .. } => {
                let tools: Vec<&str> = calls.iter().map(|(_, tool)| tool.as_str()).collect();
                let calls = if tools.is_empty() { String::new() } else { format!(" calls {}", tools.join(", ")) };
                let again = if *attempt > 1 { format!(" (attempt {attempt})") } else { String::new() };
                let usage = if usage.is_empty() { String::new() } else { format!(" [{usage}]") };
                let text = if text.is_empty() { String::new() } else { format!(" says: {text}") };
                format!("turn {turn}{again}{usage}{calls}{text}")
            }
            Move::Dispatched { turn, batch, calls } => format!("turn {turn}: {} as batch {batch}", calls.join(", ")),
            Move::Hook { turn, id, tool, decision, reason } => {
                format!("turn {turn}: {decision} {tool} ({id}) {reason}").trim_end().to_owned()
            }
            Move::Compacted { levels, before, after } => {
                format!("{}: {before} to {after} tokens", levels.join(", "))
            }
            Move::Trouble { turn, code, message } => format!("turn {turn}: {code}: {message}"),
            Move::Upkeep { text, passed } => {
                format!("{}: {text}", if *passed { "passed" } else { "failed" })
            }
            Move::Ended { outcome, turns, message, text } => {
                let said = if message.is_empty() { text } else { message };
                format!("{outcome} after {turns} turns: {said}").trim_end_matches([':', ' ']).to_owned()
            }
        }
    }
}

/// The moves of each run, in the order of the log: places in the events.
pub(super) fn of_runs(events: &[Fact]) -> BTreeMap<RunId, Vec<usize>> {
    let mut runs: BTreeMap<RunId, Vec<usize>> = BTreeMap::new();
    for (at, fact) in events.iter().enumerate().filter(|(_, fact)| matches!(fact.what, What::Agent(_))) {
        runs.entry(fact.run).or_default().push(at);
    }
    runs
}

/// The call that made each run below: what the run itself says, else the call in whose name its first wish was made.
pub(super) fn makers(graph: &Graph) -> BTreeMap<RunId, CallId> {
    let mut makers = BTreeMap::new();
    for (child, above) in &graph.children {
        let said = graph.moves.get(child).into_iter().flatten().find_map(|at| {
            let What::Agent(Move::Asked { parent, .. }) = &graph.events[*at].what else { return None };
            *parent
        });
        let wished = || graph.calls.iter().filter(|story| story.call.run == *child).find_map(|story| story.parent);
        if let Some(call) = said.or_else(wished).filter(|call| call.run == *above) {
            makers.insert(*child, call);
        }
    }
    makers
}

/// The turn in which each batch was handed in: the place of the answer that called for it.
pub(super) fn turns(graph: &Graph) -> BTreeMap<(RunId, u64), usize> {
    let mut turns = BTreeMap::new();
    for (run, moves) in &graph.moves {
        let mut answer = None;
        for at in moves {
            if let What::Agent(Move::Turn { .. }) = &graph.events[*at].what {
                answer = Some(*at);
            }
            if let (What::Agent(Move::Dispatched { batch, .. }), Some(answer)) = (&graph.events[*at].what, answer) {
                turns.insert((*run, *batch), answer);
            }
        }
    }
    turns
}

/// Joins the moves: along the loop, from what was asked to the end, from a batch back to the loop that waited for it,
/// and from a call to the run that it made and back.
pub(super) fn join(graph: &Graph, add: &mut impl FnMut(usize, usize, Tie)) {
    for moves in graph.moves.values() {
        for pair in moves.windows(2) {
            add(pair[0], pair[1], Tie::Order);
        }
        let (mut asked, mut answer, mut handed) = (None, None, None);
        for at in moves.iter().copied() {
            let What::Agent(step) = &graph.events[at].what else { continue };
            match step {
                Move::Asked { .. } => asked = Some(at),
                Move::Turn { .. } => answer = Some(at),
                Move::Dispatched { .. } => {
                    handed = Some(at);
                    answer.into_iter().for_each(|from| add(from, at, Tie::Pairing));
                }
                Move::Hook { .. } => answer.into_iter().for_each(|from| add(from, at, Tie::Decision)),
                Move::Upkeep { .. } => handed.into_iter().for_each(|from| add(from, at, Tie::Lifecycle)),
                Move::Ended { .. } => asked.into_iter().for_each(|from| add(from, at, Tie::Pairing)),
                Move::Compacted { .. } | Move::Trouble { .. } => {}
            }
        }
    }
    for story in &graph.calls {
        // What a model's loop waited for is what it goes on from.
        let Some(ended) = story.ended_at() else { continue };
        if !graph.turns.contains_key(&(story.call.run, story.call.batch.0)) {
            continue;
        }
        let moves = graph.moves.get(&story.call.run).map(Vec::as_slice).unwrap_or_default();
        let later = &moves[moves.partition_point(|at| *at <= ended)..];
        let waits =
            |at: &&usize| !matches!(graph.events[**at].what, What::Agent(Move::Dispatched { .. } | Move::Hook { .. }));
        if let Some(next) = later.iter().find(waits) {
            add(ended, *next, Tie::Order);
        }
    }
    for (child, call) in &graph.makers {
        let opened =
            graph.events.iter().position(|fact| fact.run == *child && matches!(fact.what, What::RunOpened { .. }));
        let made = graph.calls.iter().find(|story| story.call == *call);
        if let (Some(from), Some(to)) = (made.and_then(|story| story.started_at()), opened) {
            add(from, to, Tie::Lifecycle);
        }
        let ended = graph.moves.get(child).and_then(|moves| moves.last()).copied();
        if let (Some(from), Some(to)) = (ended, made.and_then(|story| story.ended_at())) {
            add(from, to, Tie::Lifecycle);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{BatchId, Seq};
    use crate::time::{Tick, Wall};

    fn run(number: u128) -> RunId {
        RunId::new(1, number)
    }

    fn call(run: RunId, position: u32) -> CallId {
        CallId { run, batch: BatchId(7), position }
    }

    fn facts(list: Vec<(RunId, Option<u32>, What)>) -> Vec<Fact> {
        let fact = |(seq, (run, position, what)): (u64, (RunId, Option<u32>, What))| Fact {
            seq: Seq(seq),
            boot: "b".into(),
            at: Tick(seq),
            wall: Wall(0),
            run,
            call: position.map(|position| call(run, position)),
            what,
        };
        (1..).zip(list).map(fact).collect()
    }

    fn opened(parent: Option<RunId>) -> What {
        What::RunOpened { parent, asker: "a".into(), mode: "default".into() }
    }

    fn asked(parent: Option<CallId>) -> What {
        let (text, asker, model) = ("t".to_owned(), "a".to_owned(), "m".to_owned());
        What::Agent(Move::Asked { text, asker, model, parent, resumed: None, start: None })
    }

    fn turn(turn: u64) -> What {
        let (calls, text, usage) = (Vec::new(), String::new(), String::new());
        What::Agent(Move::Turn { turn, attempt: 1, took_ns: None, calls, text, usage })
    }

    fn over() -> What {
        let (outcome, message, text) = ("done".to_owned(), String::new(), String::new());
        What::Agent(Move::Ended { outcome, turns: 2, message, text })
    }

    fn wished() -> What {
        What::Requested { tool: "subagent".into(), input: "{}".into(), parent: None }
    }

    fn settled() -> What {
        What::Settled { ending: "done".into(), code: None, told: String::new() }
    }

    #[test]
    fn a_loop_is_one_line_its_calls_hang_on_its_answers_and_its_child_on_its_call() {
        let (one, two) = (run(1), run(2));
        let handed = What::Agent(Move::Dispatched { turn: 1, batch: 7, calls: vec!["c".into()] });
        // The child says who made it, and made no wish from which that could be told.
        let list = vec![
            (one, None, opened(None)),
            (one, None, asked(None)),
            (one, None, turn(1)),
            (one, Some(0), wished()),
            (one, None, handed),
            (one, Some(0), What::Started),
            (two, None, opened(Some(one))),
            (two, None, asked(Some(call(one, 0)))),
            (two, None, over()),
            (one, Some(0), settled()),
            (one, None, turn(2)),
            (one, None, over()),
        ];
        let graph = Graph::of(one, facts(list));
        let of = |tie| {
            let edges = graph.edges.iter().filter(|edge| edge.tie == tie);
            edges.map(|edge| (graph.events[edge.from].seq.0, graph.events[edge.to].seq.0)).collect::<Vec<_>>()
        };
        assert_eq!(of(Tie::Order), [(2, 3), (3, 5), (4, 6), (5, 11), (6, 10), (8, 9), (10, 11), (11, 12)]);
        assert_eq!(of(Tie::Pairing), [(2, 12), (3, 5), (4, 10), (8, 9)]);
        assert_eq!(of(Tie::Lifecycle), [(1, 2), (3, 4), (6, 7), (7, 8), (9, 10)]);
        assert_eq!(graph.makers, BTreeMap::from([(two, call(one, 0))]));
        assert_eq!(graph.calls[0].turn, Some(1));
        assert_eq!(graph.missing, [""; 0]);
    }

    #[test]
    fn a_child_is_not_given_to_a_call_of_another_run() {
        let (one, two) = (run(1), run(2));
        let list =
            vec![(one, None, opened(None)), (two, None, opened(Some(one))), (two, None, asked(Some(call(run(9), 0))))];
        assert_eq!(Graph::of(one, facts(list)).makers, BTreeMap::new());
    }
}

//! The typed graph of one run, made again from what the log kept: events as vertices; order, decision, pairing and
//! lifecycle as edges (the second formula of the Metis paper).
//!
//! It reads facts and adds nothing to them. What the log does not hold (a reason that was cut, a row that was lost) is
//! missing in the graph and said to be missing; a call without an end is open, and never guessed to be anything else.
//! The same facts give the same graph, whatever order they come in.

pub mod moves;

use std::collections::{BTreeMap, BTreeSet};

use crate::id::{CallId, RunId, Seq};
use crate::time::{Tick, Wall};
use moves::Move;

/// One row of the log, as far as a trace cares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fact {
    /// Its number.
    pub seq: Seq,
    /// In which boot of the machine.
    pub boot: String,
    /// When, on the clock of that boot.
    pub at: Tick,
    /// When, for people.
    pub wall: Wall,
    /// The run.
    pub run: RunId,
    /// The call.
    pub call: Option<CallId>,
    /// What.
    pub what: What,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// A run was opened.
    RunOpened {
        /// The run that made it.
        parent: Option<RunId>,
        /// The way in and the name: `agent planner`.
        asker: String,
        /// The mode.
        mode: String,
    },
    /// Its policy changed.
    PolicyChanged {
        /// The mode from then on.
        mode: String,
    },
    /// A wish was numbered.
    Requested {
        /// The tool.
        tool: String,
        /// The input as a person sees it.
        input: String,
        /// The call in whose name it is made.
        parent: Option<CallId>,
    },
    /// A person was asked.
    Asked {
        /// The question.
        question: String,
        /// Its kind.
        kind: String,
        /// Why, and the rule.
        reason: String,
    },
    /// A person answered.
    Answered {
        /// The question.
        question: String,
        /// What, and who.
        answer: String,
    },
    /// The gate let it go on.
    Permitted {
        /// The step that decided.
        step: String,
        /// The rule that decided.
        rule: Option<String>,
    },
    /// It stood in line.
    Queued {
        /// Its class.
        class: String,
    },
    /// It was about to be started.
    Intent,
    /// It was started.
    Started,
    /// It was asked to stop.
    StopAsked,
    /// What came of it.
    Outcome {
        /// The word of contracts.
        ending: String,
    },
    /// It ended.
    Settled {
        /// The word of contracts.
        ending: String,
        /// The stable code, where it is not done.
        code: Option<String>,
        /// What the asker was told, or the output, cut.
        told: String,
    },
    /// A tool reported too late.
    LateReport,
    /// An unknown was found out.
    Resolved {
        /// What was found.
        found: String,
        /// How.
        by: String,
    },
    /// What it gave back was held against what its tool promised.
    Examined {
        /// What was found.
        verdict: String,
    },
    /// A move of a language model's loop.
    Agent(Move),
    /// Anything else that the log keeps of a run.
    Other {
        /// The kind of the row.
        kind: String,
        /// What there is to say.
        text: String,
    },
}

impl What {
    /// The word of the row.
    #[must_use]
    pub fn word(&self) -> &str {
        match self {
            What::RunOpened { .. } => "run_opened",
            What::PolicyChanged { .. } => "policy_changed",
            What::Requested { .. } => "requested",
            What::Asked { .. } => "asked",
            What::Answered { .. } => "answered",
            What::Permitted { .. } => "permitted",
            What::Queued { .. } => "queued",
            What::Intent => "intent",
            What::Started => "started",
            What::StopAsked => "stop_asked",
            What::Outcome { .. } => "outcome",
            What::Settled { .. } => "settled",
            What::LateReport => "late_report",
            What::Resolved { .. } => "resolved",
            What::Examined { .. } => "validity",
            What::Agent(step) => step.word(),
            What::Other { kind, .. } => kind,
        }
    }

    /// One line for a person; empty where the word says all.
    #[must_use]
    pub fn line(&self) -> String {
        match self {
            What::RunOpened { parent, asker, mode } => {
                let parent = parent.map_or_else(String::new, |parent| format!(", child of {parent}"));
                format!("{asker}, mode {mode}{parent}")
            }
            What::PolicyChanged { mode } => format!("mode {mode}"),
            What::Requested { tool, input, .. } => format!("{tool} {input}"),
            What::Asked { question, kind, reason } => format!("{question} ({kind}): {reason}"),
            What::Answered { question, answer } => format!("{question}: {answer}"),
            What::Permitted { step, rule: Some(rule) } => format!("at {step} by {rule}"),
            What::Permitted { step, rule: None } => format!("at {step}"),
            What::Queued { class } => class.clone(),
            What::Outcome { ending } => ending.clone(),
            What::Settled { ending, code, told } => {
                let code = code.as_ref().map_or_else(String::new, |code| format!(" ({code})"));
                format!("{ending}{code} {told}").trim_end().to_owned()
            }
            What::Resolved { found, by } => format!("{found}, by {by}"),
            What::Examined { verdict } => verdict.clone(),
            What::Agent(step) => step.line(),
            What::Other { text, .. } => text.clone(),
            What::Intent | What::Started | What::StopAsked | What::LateReport => String::new(),
        }
    }
}

/// Why two events are joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tie {
    /// The one before and the one after: of one call, of one loop, and from a call to the loop that waited for it.
    Order,
    /// A wish and what decided it: leave, a question, a denial.
    Decision,
    /// What belongs together as question and answer: a wish and its end, a question and its answer, what a model was
    /// asked and the end of its run.
    Pairing,
    /// What makes or ends another thing: a run and its calls, an answer of a model and the calls in it, a call and the
    /// run that it made, an unknown and what was found out.
    Lifecycle,
}

impl Tie {
    /// All of them.
    pub const ALL: [Tie; 4] = [Tie::Order, Tie::Decision, Tie::Pairing, Tie::Lifecycle];

    /// The word in the written forms.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Tie::Order => "order",
            Tie::Decision => "decision",
            Tie::Pairing => "pairing",
            Tie::Lifecycle => "lifecycle",
        }
    }
}

/// An edge: places in [`Graph::events`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Edge {
    /// The earlier event.
    pub from: usize,
    /// The later one.
    pub to: usize,
    /// Why.
    pub tie: Tie,
}

/// One call from its wish to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Story {
    /// The call.
    pub call: CallId,
    /// The tool; empty when the wish is not in the log.
    pub tool: String,
    /// The input as a person sees it.
    pub input: String,
    /// The call in whose name it was made.
    pub parent: Option<CallId>,
    /// The step and the rule that let it go on, or `None`.
    pub permitted: Option<(String, Option<String>)>,
    /// The question that was asked before its start, and the answer.
    pub question: Option<(String, Option<String>)>,
    /// Its class.
    pub class: Option<String>,
    /// The turn of a model's loop that called for it.
    pub turn: Option<u64>,
    /// Nanoseconds after the first event of the run at which it was wished for.
    pub wished_ns: u64,
    /// When it was started.
    pub started_ns: Option<u64>,
    /// When it ended: `None` while it is open.
    pub ended_ns: Option<u64>,
    /// The word of its end, its code and what was told.
    pub ending: Option<(String, Option<String>, String)>,
    /// What was found out later about an unknown end.
    pub resolved: Option<String>,
    /// Its events: places in [`Graph::events`].
    pub events: Vec<usize>,
    /// Which of them is its start, and which its end.
    marks: (Option<usize>, Option<usize>),
}

impl Story {
    /// The event that is its start.
    #[must_use]
    pub fn started_at(&self) -> Option<usize> {
        self.marks.0
    }

    /// The event that is its end.
    #[must_use]
    pub fn ended_at(&self) -> Option<usize> {
        self.marks.1
    }
}

/// The graph of one run and of the runs below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Graph {
    /// The run.
    pub run: RunId,
    /// The events in the order of the log.
    pub events: Vec<Fact>,
    /// Nanoseconds of each event after the first one.
    pub offsets: Vec<u64>,
    /// What joins them.
    pub edges: Vec<Edge>,
    /// The calls, in the order in which they were wished for.
    pub calls: Vec<Story>,
    /// The runs below, with the run that made each.
    pub children: Vec<(RunId, RunId)>,
    /// The call that made each run below, where the log tells it.
    pub makers: BTreeMap<RunId, CallId>,
    /// The moves of each model's loop: places in [`Graph::events`].
    pub moves: BTreeMap<RunId, Vec<usize>>,
    /// The answer that called for each batch of a loop: a place in [`Graph::events`].
    pub turns: BTreeMap<(RunId, u64), usize>,
    /// What the log does not tell.
    pub missing: Vec<String>,
}

impl Graph {
    /// Makes the graph of `run` from facts in any order; facts of other runs that are not below it are left out, and of
    /// two with one number the first is kept.
    #[must_use]
    pub fn of(run: RunId, facts: impl IntoIterator<Item = Fact>) -> Graph {
        let mut by_seq: BTreeMap<u64, Fact> = BTreeMap::new();
        for fact in facts {
            by_seq.entry(fact.seq.0).or_insert(fact);
        }
        let children = below(run, by_seq.values());
        let ours: BTreeSet<RunId> = std::iter::once(run).chain(children.iter().map(|(child, _)| *child)).collect();
        let events: Vec<Fact> = by_seq.into_values().filter(|fact| ours.contains(&fact.run)).collect();
        let offsets = offsets(&events);
        let moves = moves::of_runs(&events);
        let mut graph = Graph {
            run,
            events,
            offsets,
            edges: Vec::new(),
            calls: Vec::new(),
            children,
            makers: BTreeMap::new(),
            moves,
            turns: BTreeMap::new(),
            missing: Vec::new(),
        };
        graph.turns = moves::turns(&graph);
        graph.tell();
        graph.makers = moves::makers(&graph);
        graph.join();
        graph
    }

    /// How many calls ended with each word, `open` among them.
    #[must_use]
    pub fn endings(&self) -> BTreeMap<&str, usize> {
        let mut count = BTreeMap::new();
        for story in &self.calls {
            let word = story.ending.as_ref().map_or("open", |(word, ..)| word.as_str());
            *count.entry(word).or_insert(0) += 1;
        }
        count
    }

    /// How many events of a kind there are.
    #[must_use]
    pub fn count(&self, kind: &str) -> usize {
        self.events.iter().filter(|fact| fact.what.word() == kind).count()
    }

    /// The story of each call.
    fn tell(&mut self) {
        let mut places: BTreeMap<CallId, usize> = BTreeMap::new();
        for (at, fact) in self.events.iter().enumerate() {
            let Some(call) = fact.call else { continue };
            let place = *places.entry(call).or_insert_with(|| {
                self.calls.push(Story {
                    call,
                    tool: String::new(),
                    input: String::new(),
                    parent: None,
                    permitted: None,
                    question: None,
                    class: None,
                    turn: None,
                    wished_ns: self.offsets[at],
                    started_ns: None,
                    ended_ns: None,
                    ending: None,
                    resolved: None,
                    events: Vec::new(),
                    marks: (None, None),
                });
                self.calls.len() - 1
            });
            let story = &mut self.calls[place];
            story.events.push(at);
            let now = self.offsets[at];
            match &fact.what {
                What::Requested { tool, input, parent } => {
                    (story.tool, story.input, story.parent) = (tool.clone(), input.clone(), *parent);
                }
                What::Permitted { step, rule } => story.permitted = Some((step.clone(), rule.clone())),
                What::Asked { question, .. } if story.ending.is_none() => {
                    story.question = Some((question.clone(), None));
                }
                What::Answered { question, answer } => story.question = Some((question.clone(), Some(answer.clone()))),
                What::Queued { class } => story.class = Some(class.clone()),
                What::Started => {
                    story.started_ns = Some(now);
                    story.marks.0 = Some(at);
                }
                What::Settled { ending, code, told } if story.ending.is_none() => {
                    story.ending = Some((ending.clone(), code.clone(), told.clone()));
                    story.ended_ns = Some(now);
                    story.marks.1 = Some(at);
                }
                What::Settled { .. } => self.missing.push(format!("call {call} is settled twice in this log")),
                What::Resolved { found, .. } => story.resolved = Some(found.clone()),
                What::RunOpened { .. }
                | What::PolicyChanged { .. }
                | What::Asked { .. }
                | What::Intent
                | What::StopAsked
                | What::Outcome { .. }
                | What::LateReport
                | What::Examined { .. }
                | What::Agent(_)
                | What::Other { .. } => {}
            }
        }
        for story in &mut self.calls {
            let answer = self.turns.get(&(story.call.run, story.call.batch.0)).map(|at| &self.events[*at].what);
            if let Some(What::Agent(Move::Turn { turn, .. })) = answer {
                story.turn = Some(*turn);
            }
        }
        for story in &self.calls {
            if story.tool.is_empty() {
                self.missing.push(format!("the wish of call {} is not in this log", story.call));
            }
            if story.ending.is_none() {
                self.missing.push(format!("call {} has no end in this log", story.call));
            }
        }
        let opened = |fact: &Fact| fact.run == self.run && matches!(fact.what, What::RunOpened { .. });
        if !self.events.is_empty() && !self.events.iter().any(opened) {
            self.missing.push("the beginning of the run is not in this log".to_owned());
        }
    }

    fn join(&mut self) {
        let mut edges = BTreeSet::new();
        let opened: BTreeMap<RunId, usize> = self
            .events
            .iter()
            .enumerate()
            .filter(|(_, fact)| matches!(fact.what, What::RunOpened { .. }))
            .map(|(at, fact)| (fact.run, at))
            .collect();
        let mut add = |from: usize, to: usize, tie| {
            if from < to {
                edges.insert(Edge { from, to, tie });
            }
        };
        // A child hangs on the call that made it, where the log tells which.
        for (child, parent) in self.children.iter().filter(|(child, _)| !self.makers.contains_key(child)) {
            if let (Some(from), Some(to)) = (opened.get(parent), opened.get(child)) {
                add(*from, *to, Tie::Lifecycle);
            }
        }
        let started: BTreeMap<CallId, usize> =
            self.calls.iter().filter_map(|story| Some((story.call, story.started_at()?))).collect();
        moves::join(self, &mut add);
        for story in &self.calls {
            for pair in story.events.windows(2) {
                add(pair[0], pair[1], Tie::Order);
            }
            let Some(wish) = story.events.first().copied() else { continue };
            // A call of a model's comes out of its answer, in whosever name the run is.
            let answer = self.turns.get(&(story.call.run, story.call.batch.0));
            let made = || story.parent.and_then(|parent| started.get(&parent));
            if let Some(from) = answer.or_else(made).or_else(|| opened.get(&story.call.run)) {
                add(*from, wish, Tie::Lifecycle);
            }
            let mut asked: BTreeMap<&str, usize> = BTreeMap::new();
            let mut settled = None;
            for at in story.events.iter().copied() {
                match &self.events[at].what {
                    What::Permitted { .. } => add(wish, at, Tie::Decision),
                    What::Asked { question, .. } => {
                        let tie = if settled.is_some() { Tie::Lifecycle } else { Tie::Decision };
                        add(settled.unwrap_or(wish), at, tie);
                        asked.insert(question, at);
                    }
                    What::Answered { question, .. } => {
                        if let Some(from) = asked.get(question.as_str()) {
                            add(*from, at, Tie::Pairing);
                        }
                    }
                    What::Settled { ending, .. } => {
                        add(wish, at, Tie::Pairing);
                        if ending == "not_started" && story.permitted.is_none() {
                            add(wish, at, Tie::Decision);
                        }
                        settled = settled.or(Some(at));
                    }
                    What::Resolved { .. } | What::LateReport => {
                        if let Some(from) = settled {
                            add(from, at, Tie::Lifecycle);
                        }
                    }
                    What::RunOpened { .. }
                    | What::PolicyChanged { .. }
                    | What::Requested { .. }
                    | What::Queued { .. }
                    | What::Intent
                    | What::Started
                    | What::StopAsked
                    | What::Outcome { .. }
                    | What::Examined { .. }
                    | What::Agent(_)
                    | What::Other { .. } => {}
                }
            }
        }
        for (at, fact) in self.events.iter().enumerate().filter(|(_, fact)| fact.call.is_none()) {
            // Of a loop only the first move: the others follow from it.
            let first = self.moves.get(&fact.run).and_then(|moves| moves.first());
            if matches!(fact.what, What::Agent(_)) && first != Some(&at) {
                continue;
            }
            if let Some(from) = opened.get(&fact.run).filter(|from| **from != at) {
                add(*from, at, Tie::Lifecycle);
            }
        }
        self.edges = edges.into_iter().collect();
    }
}

/// The runs below `run`, each with the run that made it.
fn below<'a>(run: RunId, facts: impl Iterator<Item = &'a Fact>) -> Vec<(RunId, RunId)> {
    let made: Vec<(RunId, RunId)> = facts
        .filter_map(|fact| {
            let What::RunOpened { parent: Some(parent), .. } = &fact.what else { return None };
            Some((fact.run, *parent))
        })
        .collect();
    let mut found: Vec<(RunId, RunId)> = Vec::new();
    let mut ours = BTreeSet::from([run]);
    loop {
        let more: Vec<_> =
            made.iter().filter(|(child, parent)| ours.contains(parent) && !ours.contains(child)).copied().collect();
        if more.is_empty() {
            return found;
        }
        ours.extend(more.iter().map(|(child, _)| *child));
        found.extend(more);
    }
}

/// Nanoseconds after the first event: by the monotonic clock within a boot, by the wall clock from one to the next.
fn offsets(events: &[Fact]) -> Vec<u64> {
    let mut offsets = Vec::with_capacity(events.len());
    let mut now = 0_u64;
    for (at, fact) in events.iter().enumerate() {
        if let Some(before) = at.checked_sub(1).map(|before| &events[before]) {
            let passed = if before.boot == fact.boot {
                fact.at.0.saturating_sub(before.at.0)
            } else {
                u64::try_from(fact.wall.0.saturating_sub(before.wall.0)).unwrap_or(0).saturating_mul(1_000_000)
            };
            now = now.saturating_add(passed);
        }
        offsets.push(now);
    }
    offsets
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::BatchId;

    fn run(number: u128) -> RunId {
        RunId::new(1, number)
    }

    fn call(run: RunId, position: u32) -> CallId {
        CallId { run, batch: BatchId(1), position }
    }

    fn fact(seq: u64, run: RunId, position: Option<u32>, what: What) -> Fact {
        Fact {
            seq: Seq(seq),
            boot: "b".into(),
            at: Tick(seq * 1000),
            wall: Wall(0),
            run,
            call: position.map(|position| call(run, position)),
            what,
        }
    }

    fn opened(seq: u64, run: RunId, parent: Option<RunId>) -> Fact {
        fact(seq, run, None, What::RunOpened { parent, asker: "agent a".into(), mode: "default".into() })
    }

    fn wished(seq: u64, run: RunId, position: u32, parent: Option<CallId>) -> Fact {
        fact(seq, run, Some(position), What::Requested { tool: "act".into(), input: "{}".into(), parent })
    }

    fn settled(seq: u64, run: RunId, position: u32, ending: &str) -> Fact {
        let what = What::Settled { ending: ending.into(), code: None, told: String::new() };
        fact(seq, run, Some(position), what)
    }

    fn life() -> Vec<Fact> {
        let permitted = || What::Permitted { step: "mode".into(), rule: None };
        let question = || "q1".to_owned();
        vec![
            opened(1, run(1), None),
            wished(2, run(1), 0, None),
            wished(3, run(1), 1, None),
            fact(4, run(1), Some(0), What::Asked { question: question(), kind: "permit".into(), reason: "r".into() }),
            settled(5, run(1), 1, "not_started"),
            fact(6, run(1), Some(0), What::Answered { question: question(), answer: "allow by w".into() }),
            fact(7, run(1), Some(0), permitted()),
            fact(8, run(1), Some(0), What::Started),
            opened(9, run(2), Some(run(1))),
            opened(10, run(3), None),
            wished(11, run(2), 0, Some(call(run(1), 0))),
            settled(12, run(2), 0, "done"),
            settled(13, run(1), 0, "unknown"),
            fact(14, run(1), Some(0), What::Resolved { found: "done".into(), by: "w".into() }),
        ]
    }

    #[test]
    fn the_graph_joins_decisions_pairs_and_lives() {
        let graph = Graph::of(run(1), life());
        assert_eq!(graph.children, [(run(2), run(1))]);
        assert_eq!(graph.events.len(), 13);
        let of = |tie| {
            let edges = graph.edges.iter().filter(|edge| edge.tie == tie);
            edges.map(|edge| (graph.events[edge.from].seq.0, graph.events[edge.to].seq.0)).collect::<Vec<_>>()
        };
        assert_eq!(of(Tie::Decision), [(2, 4), (2, 7), (3, 5)]);
        assert_eq!(of(Tie::Pairing), [(2, 13), (3, 5), (4, 6), (11, 12)]);
        assert_eq!(of(Tie::Lifecycle), [(1, 2), (1, 3), (8, 9), (8, 11), (13, 14)]);
        assert_eq!(of(Tie::Order), [(2, 4), (3, 5), (4, 6), (6, 7), (7, 8), (8, 13), (11, 12), (13, 14)]);
        assert_eq!(graph.endings(), BTreeMap::from([("done", 1), ("not_started", 1), ("unknown", 1)]));
        assert_eq!(graph.missing, [""; 0]);
        let story = &graph.calls[0];
        assert_eq!((story.wished_ns, story.started_ns, story.ended_ns), (1000, Some(7000), Some(12_000)));
        assert_eq!(story.resolved.as_deref(), Some("done"));
    }

    #[test]
    fn the_order_of_the_facts_and_a_second_copy_change_nothing() {
        let mut shuffled = life();
        shuffled.reverse();
        shuffled.extend(life());
        assert_eq!(Graph::of(run(1), shuffled), Graph::of(run(1), life()));
    }

    #[test]
    fn what_is_not_in_the_log_is_said_and_not_guessed() {
        let graph = Graph::of(run(1), [wished(2, run(1), 0, None), settled(5, run(1), 1, "done")]);
        assert_eq!(
            graph.missing,
            [
                format!("call {} has no end in this log", call(run(1), 0)),
                format!("the wish of call {} is not in this log", call(run(1), 1)),
                "the beginning of the run is not in this log".to_owned(),
            ]
        );
        assert_eq!(graph.endings(), BTreeMap::from([("done", 1), ("open", 1)]));
        assert!(Graph::of(run(3), life()).calls.is_empty());
    }

    #[test]
    fn a_new_boot_begins_its_clock_anew_and_the_wall_clock_bridges_it() {
        let mut later = wished(2, run(1), 0, None);
        (later.boot, later.at, later.wall) = ("c".into(), Tick(5), Wall(3));
        assert_eq!(Graph::of(run(1), [opened(1, run(1), None), later]).offsets, [0, 3_000_000]);
    }
}

//! Faults at every point of a call, over models of five kinds of tools with the contracts that the real ones have, by a
//! runtime without a guarantee and by the workflow machine of the product under each profile.
//!
//! The tools are models (the same faults on a real Modbus line, a kill included, are tests of `tests/it`); the machine
//! that decides is the product's own. What really happened is written down beside it and judged in the view of the world.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use interlock_domain::effect::anomaly::{Event, History, Kind, Seen, Terms, View};
use interlock_domain::effect::profile::Profile;
use interlock_domain::effect::workflow::{MAIN, Stage, State, Wanted, Workflow};
use interlock_domain::surface::contract::{Contract, Effect, OpId, OutcomeBy, Visibility};
use serde_json::json;

use crate::{asked, asked_count};

#[expect(clippy::print_stdout, reason = "an experiment prints what it measured")]
fn say(text: &str) {
    println!("{text}");
}

/// Where a call is hit.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    None,
    /// The connection is refused: it did not happen, and that is known.
    Refused,
    /// Lost on the way there, or the daemon was killed before it was sent.
    RequestLost,
    /// Lost on the way back, a child killed after its work, or the daemon killed before the outcome was written.
    AnswerLost,
}

const KINDS: [&str; 6] = ["modbus", "http with key", "http without", "file", "mcp server", "shell"];

fn contract(kind: usize) -> Contract {
    let weakest = Contract::weakest(KINDS[kind]);
    let inverse =
        Effect::Reversible { inverse: "undo".to_owned(), precondition: Some("any time".to_owned()), window: None };
    match kind {
        0 => Contract { outcome: OutcomeBy::Query, idempotent: true, effect: inverse, ..weakest },
        1 => Contract {
            op_id: OpId::Key("Idempotency-Key".to_owned()),
            outcome: OutcomeBy::ResendOriginal { retention: Duration::from_secs(3600) },
            effect: inverse,
            ..weakest
        },
        2 => weakest,
        3 => Contract { visibility: Visibility::Private, ..weakest },
        _ => weakest,
    }
}

/// The world: what happened, as it happened.
struct World {
    history: History,
    attempts: usize,
    effects: usize,
    rng: fastrand::Rng,
    kind: usize,
    faults: u32,
}

struct Tried {
    attempt: String,
    effect: Option<String>,
    seen: Seen,
}

impl World {
    fn take(&mut self, event: Event<'_>) {
        self.history.take(event).unwrap();
    }

    fn fault(&mut self) -> Fault {
        // The first calls are hit often, and no line is broken for ever.
        if self.faults == 0 || self.rng.bool() {
            return Fault::None;
        }
        self.faults -= 1;
        [Fault::Refused, Fault::RequestLost, Fault::AnswerLost][self.rng.usize(0..3)]
    }

    /// Sends a call. `original` is the effect that a resend under the same key finds there.
    fn send(&mut self, op: &str, branch: &str, original: Option<&str>, undoes: Option<&Tried>) -> Tried {
        let attempt = format!("a{}", self.attempts);
        self.attempts += 1;
        self.take(Event::Attempt { attempt: &attempt, op, workflow: "w", branch });
        if let Some(of) = undoes {
            self.take(Event::Compensate { compensation: &attempt, attempt: &of.attempt });
        }
        let fault = self.fault();
        let arrives = matches!(fault, Fault::None | Fault::AnswerLost);
        let mut effect = original.map(str::to_owned);
        // A register that holds the value already is not changed by the same value again.
        if arrives && effect.is_none() {
            let name = format!("e{}", self.effects);
            self.effects += 1;
            self.take(Event::Effect { effect: &name, attempt: &attempt, resource: op, staged: false });
            if let Some(undone) = undoes.and_then(|of| of.effect.as_deref()) {
                self.take(Event::Neutralise { compensation: &attempt, effect: undone });
            }
            effect = Some(name);
        }
        let seen = match fault {
            Fault::None => Seen::Confirmed,
            Fault::Refused => Seen::Failed,
            Fault::RequestLost | Fault::AnswerLost => Seen::Unknown,
        };
        self.take(Event::Observe { attempt: &attempt, seen });
        Tried { attempt, effect, seen }
    }
}

/// A runtime that guesses: it retries or goes on, and commits or undoes as if it knew.
fn without(world: &mut World) {
    world.take(Event::Begin { workflow: "w", required: &["one", "two"] });
    let mut done: Vec<Tried> = Vec::new();
    let mut give_up = false;
    for op in ["one", "two"] {
        let mut tried = world.send(op, MAIN, None, None);
        let guess = world.rng.u32(0..4);
        if tried.seen != Seen::Confirmed {
            match guess {
                // Try once more: with a key, the original comes back; without, it is a second one.
                0 => {
                    let keyed = matches!(world.kind, 0 | 1);
                    let original = tried.effect.clone().filter(|_| keyed);
                    tried = world.send(op, MAIN, original.as_deref(), None);
                }
                1 => give_up = true,
                _ => {}
            }
        }
        done.push(tried);
    }
    if give_up {
        for tried in &done {
            if world.rng.bool() {
                world.send("undo", MAIN, None, Some(tried));
            }
        }
        world.take(Event::Abort { workflow: "w", branch: None });
    } else {
        world.take(Event::Commit { workflow: "w", branches: &[MAIN] });
    }
}

/// The same two operations by the machine of the product. Gives how it ended; nothing when the contract was refused.
fn with(world: &mut World, profile: Profile) -> Option<Stage> {
    let required = vec!["one".to_owned(), "two".to_owned()];
    let mut workflow = Workflow::begin([profile].into(), required).unwrap();
    world.take(Event::Begin { workflow: "w", required: &["one", "two"] });
    let contract = Arc::new(contract(world.kind));
    let mut sent: BTreeMap<usize, Tried> = BTreeMap::new();
    let mut stuck = false;
    for op in ["one", "two"] {
        let mut tries = 0;
        while !stuck && tries < 4 {
            tries += 1;
            let wanted = Wanted {
                op: op.to_owned(),
                branch: MAIN.to_owned(),
                tool: "act".to_owned(),
                input: Arc::new(json!({})),
                contract: Arc::clone(&contract),
                resources: vec![op.to_owned()],
                after: Vec::new(),
            };
            match workflow.attempt(wanted) {
                Err(_) if workflow.attempts.is_empty() => return None,
                // The table says to ask first: the query tells the truth.
                Err(_) if contract.outcome == OutcomeBy::Query => find_out(&mut workflow, &sent),
                Err(_) => stuck = true,
                Ok((at, again)) => {
                    if workflow.attempts[at].state == State::Held {
                        break;
                    }
                    let call = format!("01KBA6AK800000000000000007.{}.0", at + 1).parse().unwrap();
                    workflow.bound(at, call);
                    let first = sent.values().find(|tried| workflow.attempts[sent_at(&sent, tried)].op == op);
                    let original = again.and(first.and_then(|tried| tried.effect.clone()));
                    let tried = world.send(op, MAIN, original.as_deref(), None);
                    note(&mut workflow, at, tried.seen);
                    sent.insert(at, tried);
                }
            }
            if contract.outcome == OutcomeBy::Query {
                find_out(&mut workflow, &sent);
            }
            if workflow.attempts.iter().any(|it| it.op == op && it.state == State::Done) {
                break;
            }
        }
    }
    // A5 and A6: nothing is out before it is decided.
    assert!(profile != Profile::SpeculationSafe || sent.is_empty());
    match workflow.commit(&[]) {
        Ok(released) => {
            for at in released {
                let tried = world.send(&workflow.attempts[at].op.clone(), MAIN, None, None);
                note(&mut workflow, at, tried.seen);
                sent.insert(at, tried);
                if contract.outcome == OutcomeBy::Query {
                    find_out(&mut workflow, &sent);
                }
                if workflow.attempts[at].state != State::Done {
                    break;
                }
            }
        }
        Err(_) => workflow.abort().unwrap(),
    }
    while let Some(of) = workflow.to_undo() {
        let at = workflow.undo(of, "undo".to_owned(), Arc::default(), Arc::clone(&contract));
        let tried = world.send("undo", MAIN, None, sent.get(&of));
        note(&mut workflow, at, tried.seen);
        sent.insert(at, tried);
        if contract.outcome == OutcomeBy::Query {
            find_out(&mut workflow, &sent);
        }
    }
    let stage = workflow.settle();
    match stage {
        Stage::Committed => world.take(Event::Commit { workflow: "w", branches: &[MAIN] }),
        Stage::Aborted => world.take(Event::Abort { workflow: "w", branch: None }),
        // Nobody called it settled.
        Stage::Open | Stage::Committing | Stage::Aborting | Stage::Unsettled => {}
    }
    Some(stage)
}

fn sent_at(sent: &BTreeMap<usize, Tried>, tried: &Tried) -> usize {
    sent.iter().find(|(_, other)| other.attempt == tried.attempt).map(|(at, _)| *at).unwrap()
}

fn note(workflow: &mut Workflow, at: usize, seen: Seen) {
    let state = match seen {
        Seen::Confirmed => State::Done,
        Seen::Failed => State::Failed,
        Seen::Unknown => State::Unknown,
    };
    workflow.seen(at, state, None);
}

/// What reading back says of everything that is not known.
fn find_out(workflow: &mut Workflow, sent: &BTreeMap<usize, Tried>) {
    for (at, tried) in sent {
        if workflow.attempts[*at].state == State::Unknown {
            let state = if tried.effect.is_some() { State::Done } else { State::Failed };
            workflow.seen(*at, state, None);
        }
    }
}

fn excluded(profile: Profile) -> &'static [Kind] {
    match profile {
        Profile::UnknownSafe => &[Kind::A1, Kind::A2, Kind::A3],
        Profile::CompensationSafe => &[Kind::A4],
        Profile::SpeculationSafe => &[Kind::A5, Kind::A6],
        Profile::ExternallyMediated => &[Kind::A7, Kind::A8],
    }
}

/// 10,000 seeded runs for each kind of tool, without a guarantee and under each profile.
#[test]
fn faults_at_every_point() {
    if !asked("effects-faults") {
        return;
    }
    let count = asked_count(10_000);
    for (kind, named) in KINDS.iter().enumerate() {
        for profile in std::iter::once(None).chain(Profile::ALL.map(Some)) {
            let (mut found, mut ends): (BTreeMap<Kind, u64>, BTreeMap<&str, u64>) = Default::default();
            for seed in 0..count {
                let rng = fastrand::Rng::with_seed(seed);
                let mut world = World { history: History::new(), attempts: 0, effects: 0, rng, kind, faults: 2 };
                let end = match profile {
                    None => {
                        without(&mut world);
                        "guessed"
                    }
                    Some(profile) => with(&mut world, profile).map_or("refused", Stage::word),
                };
                *ends.entry(end).or_default() += 1;
                let terms = Terms { view: View::World, ..Terms::default() };
                for anomaly in world.history.check(&terms) {
                    // What nobody called settled may end well: what counts is what was called a success.
                    let counts = matches!(end, "guessed" | "committed" | "aborted");
                    if counts {
                        *found.entry(anomaly.kind).or_default() += 1;
                    }
                }
            }
            let name = profile.map_or("none", Profile::word);
            let anomalies: Vec<String> = found.iter().map(|(kind, count)| format!("{} {count}", kind.word())).collect();
            let ends: Vec<String> = ends.iter().map(|(end, count)| format!("{end} {count}")).collect();
            say(&format!("{:<14} {name:<20} {:<44} {}", named, ends.join(", "), anomalies.join(", ")));
            if let Some(profile) = profile {
                let bad: Vec<&Kind> = excluded(profile).iter().filter(|kind| found.contains_key(kind)).collect();
                assert!(bad.is_empty(), "{} under {name}: {bad:?}", named);
            }
        }
    }
}

//! A small world around the mediator: a log that is slow, tools that hang, people who answer late, power that fails.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use interlock_domain::effect::Order;
use interlock_domain::effect::journal::Entry;
use interlock_domain::effect::report::{Failure, Loss, Report};
use interlock_domain::event::{Event, Found};
use interlock_domain::gate::docket::{Answer, By, QuestionKind};
use interlock_domain::gate::policy::{Mode, Policy};
use interlock_domain::gate::rule::{Authority, Rule, Rules, Verb};
use interlock_domain::id::{BatchId, CallId, QuestionId, RunId, ToolName};
use interlock_domain::mediator::{Action, Input, Mediator, Opening};
use interlock_domain::repair::{self, Trace};
use interlock_domain::request::args::Args;
use interlock_domain::request::{Asker, Batch, Via, Wish};
use interlock_domain::risk::Risk;
use interlock_domain::surface::Surface;
use interlock_domain::surface::contract::{Contract, OutcomeBy};
use interlock_domain::surface::narrow::Narrowing;
use interlock_domain::surface::nature::{Class, Key, Keys, Lane};
use interlock_domain::surface::tool::{Annotations, Declaration, Declared, Definition, Kind, Text, Tool};
use interlock_domain::time::Tick;
use serde_json::{Value, json};

use crate::checker::{Checker, Facts, Law, Seen};
use crate::doctor::Doctor;

/// Whom the box knows.
const PERSONS: [&str; 2] = ["li", "wang"];

/// What a world is made of.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) seed: u64,
    /// Time stands still and nobody cancels: what hangs, hangs for ever.
    pub(crate) frozen: bool,
    pub(crate) steps: usize,
}

impl Shape {
    pub(crate) fn of(seed: u64) -> Shape {
        Shape { seed, frozen: seed.is_multiple_of(3), steps: 60 }
    }
}

#[derive(Debug, Clone)]
struct VerbFacts {
    facts: Facts,
    dangerous: bool,
    reads_only: bool,
    rule: Option<Verb>,
}

struct Running {
    order: Order,
    worked: bool,
    /// It was asked to stop.
    stopping: bool,
}

/// What a call can still do to the world after its life is over.
struct Loose {
    call: CallId,
    worked: bool,
}

pub(crate) struct World {
    rng: Rng,
    shape: Shape,
    mediator: Mediator,
    pub(crate) checker: Checker,
    doctor: Doctor,
    verbs: Vec<VerbFacts>,
    tool: Arc<Tool>,
    narrow: Arc<Tool>,
    rules: Arc<Rules>,
    now: Tick,
    life: u64,
    runs: Vec<(RunId, Option<RunId>, Via)>,
    modes: BTreeMap<RunId, Mode>,
    next_batch: u64,
    batches: Vec<BatchId>,
    running: BTreeMap<CallId, Running>,
    loose: Vec<Loose>,
    handed: Vec<(Entry, Event)>,
    /// Where the transactions end: the log has each whole or not at all.
    ends: Vec<usize>,
    on_disk: usize,
    told: usize,
    log: Vec<Event>,
    asked: Vec<(QuestionId, QuestionKind)>,
    /// The composites that run, and what they wait for.
    families: BTreeMap<CallId, BTreeSet<BatchId>>,
    pub(crate) met: BTreeSet<&'static str>,
}

const VERBS: usize = 16;

/// So many verbs, at the end, are composites.
const COMPOSITES: usize = 2;

/// How many wishes a world makes in the name of composites: a family that grows for ever comes to no end.
const CHILDREN_MAX: usize = 40;

fn make_verbs(rng: &mut Rng) -> Vec<VerbFacts> {
    let keys = |rng: &mut Rng| (0..rng.usize(0..3)).map(|_| rng.u8(0..4)).collect::<Vec<u8>>();
    (0..VERBS)
        .map(|at| {
            let composite = at >= VERBS - COMPOSITES;
            let changes = rng.u8(0..10) < 6 && !composite;
            let class = rng.u8(0..10);
            let dangerous = rng.u8(0..10) < 2;
            let rule = match rng.u8(0..20) {
                0..=1 => Some(Verb::Deny),
                2..=3 => Some(Verb::Ask),
                4..=12 => Some(Verb::Allow),
                _ => None,
            };
            let facts = Facts {
                lane: (!composite && (3..6).contains(&class)).then_some(class % 2),
                exclusive: !composite && (class == 6 || class == 7),
                background: !composite && class == 8,
                composite,
                reads: keys(rng),
                writes: if changes || composite { keys(rng) } else { Vec::new() },
                changes,
                must_ask: dangerous || rule == Some(Verb::Ask),
                never: rule == Some(Verb::Deny),
                protective: rng.u8(0..10) < 1 && !composite,
            };
            VerbFacts { facts, dangerous, reads_only: !changes && rng.bool(), rule }
        })
        .collect()
}

fn tool(name: &str, verbs: &[VerbFacts], rng: &mut Rng) -> Arc<Tool> {
    let key = |key: &u8| Key::Named(format!("k{key}"));
    let declaration = |verb: &VerbFacts, outcome: OutcomeBy| Declaration {
        class: match &verb.facts {
            facts if facts.lane.is_some() => Class::Queue(Lane(format!("lane {:?}", facts.lane).into())),
            facts if facts.exclusive => Class::Exclusive,
            facts if facts.background => Class::Background,
            facts if facts.composite => Class::Composite,
            _ => Class::Safe,
        },
        keys: Keys {
            reads: verb.facts.reads.iter().map(key).collect(),
            writes: verb.facts.writes.iter().map(key).collect(),
        },
        risk: match verb {
            verb if verb.dangerous => Risk::Dangerous,
            verb if verb.reads_only => Risk::Read,
            _ => Risk::Operate,
        },
        protective: verb.facts.protective,
        contract: Arc::new(if verb.facts.changes {
            Contract { outcome, ..Contract::weakest("act") }
        } else {
            Contract::reads("look")
        }),
        patience: Duration::from_secs(10),
    };
    let outcomes = [
        OutcomeBy::None,
        OutcomeBy::Query,
        OutcomeBy::Ack,
        OutcomeBy::ResendOriginal { retention: Duration::from_secs(60) },
    ];
    let table = verbs
        .iter()
        .enumerate()
        .map(|(at, verb)| (format!("v{at}"), declaration(verb, outcomes[rng.usize(0..4)])))
        .collect();
    let definition = Definition {
        name: ToolName::new(name).unwrap(),
        title: Text::default(),
        description: Text::default(),
        input_schema: json!({"type": "object", "properties": {"verb": {"type": "string"}}, "required": ["verb"]}),
        output_schema: None,
        annotations: Annotations::default(),
        kind: Kind::Declared(Declared {
            mcp: None,
            verb_in: Some("verb".into()),
            verbs: table,
            otherwise: declaration(&verbs[0], OutcomeBy::None),
        }),
    };
    Arc::new(Tool::new(definition).unwrap())
}

impl World {
    pub(crate) fn new(shape: Shape, doctor: Doctor) -> World {
        let mut rng = Rng::with_seed(shape.seed);
        let verbs = make_verbs(&mut rng);
        let rules = verbs
            .iter()
            .enumerate()
            .filter_map(|(at, verb)| verb.rule.map(|rule| (at, rule)))
            .flat_map(|(at, rule)| {
                ["act", "only"]
                    .map(|tool| Rule::parse(rule, &format!("{tool}(v{at})"), Authority::Config, None).unwrap())
            })
            .collect();
        let (wide, narrow) = (tool("act", &verbs, &mut rng), tool("only", &verbs, &mut rng));
        let run = |n: u128| RunId::new(1, n);
        let mut checker = Checker::default();
        checker.four_eyes = rng.bool();
        checker.child(run(3), run(2));
        checker.child(run(4), run(3));
        World {
            mediator: Mediator::new(QuestionId(1)),
            checker,
            doctor,
            tool: wide,
            narrow,
            rules: Arc::new(Rules::new(rules)),
            now: Tick(1),
            life: 0,
            runs: vec![
                (run(1), None, Via::Voice),
                (run(2), None, Via::Mcp),
                (run(3), Some(run(2)), Via::Agent),
                (run(4), Some(run(3)), Via::Agent),
            ],
            modes: BTreeMap::new(),
            next_batch: 1,
            batches: Vec::new(),
            running: BTreeMap::new(),
            loose: Vec::new(),
            handed: Vec::new(),
            ends: Vec::new(),
            on_disk: 0,
            told: 0,
            log: Vec::new(),
            asked: Vec::new(),
            families: BTreeMap::new(),
            met: BTreeSet::new(),
            verbs,
            rng,
            shape,
        }
    }

    /// Lives through the world, then lets everything come to its end.
    pub(crate) fn run(&mut self) -> &[(Law, String)] {
        self.open_runs();
        for _ in 0..self.shape.steps {
            self.something();
            self.check_bounds();
        }
        self.finish();
        self.checker.finish();
        &self.checker.broken
    }

    fn open_runs(&mut self) {
        for (run, parent, via) in self.runs.clone() {
            let mode = *self.modes.entry(run).or_insert(Mode::Default);
            let policy = self.policy(via, mode);
            let surface = Surface::new([Arc::clone(&self.tool), Arc::clone(&self.narrow)]);
            let narrowing = if parent.is_none() { Narrowing::default() } else { Narrowing::only(["only".to_owned()]) };
            let opening = Opening { run, parent, surface, narrowing, policy };
            self.step(Input::Open(Box::new(opening)), usize::MAX);
        }
    }

    fn policy(&self, via: Via, mode: Mode) -> Policy {
        let asker = Asker { via, name: "somebody".into() };
        let four_eyes = self.checker.four_eyes;
        Policy { mode, four_eyes, rules: Arc::clone(&self.rules), ..Policy::plain(asker) }
    }

    /// One thing that may happen, chosen by the seed.
    fn something(&mut self) {
        match self.rng.u8(0..100) {
            0..25 => self.submit(),
            25..40 => self.commit(),
            40..58 => self.a_tool_works_or_ends(),
            58..64 => self.a_composite_wishes(),
            64..70 => self.answer(),
            70..74 => self.settle_a_question(),
            74..77 => self.report_late(),
            // What a frozen world does not have: nothing there may be rescued by a deadline or a cancellation.
            _ if self.shape.frozen => self.submit(),
            77..81 => self.cancel(),
            81..85 => self.change_policy(),
            85..91 => {
                self.now = Tick(self.now.0 + self.rng.u64(0..30_000_000_000));
                self.step(Input::Tick, usize::MAX);
            }
            91..94 => {
                self.checker_sees(Seen::CommitFailed);
                self.met.insert("commit failed");
                self.step(Input::CommitFailed, usize::MAX);
            }
            94..97 => self.crash(),
            _ => {
                // A step of which only some actions are carried out before the power fails.
                let actions = self.rng.usize(0..6);
                self.submit_and(actions);
                self.crash();
            }
        }
    }

    fn submit(&mut self) {
        self.submit_and(usize::MAX);
    }

    fn submit_and(&mut self, actions: usize) {
        let (run, _, via) = self.runs[self.rng.usize(0..self.runs.len())];
        self.wish(run, via, None, actions);
    }

    /// A composite that runs wishes for something: in its own run or in one below it, and now and then in one that is
    /// none of its own.
    fn a_composite_wishes(&mut self) {
        let made: usize = self.families.values().map(BTreeSet::len).sum();
        if self.families.is_empty() || made >= CHILDREN_MAX {
            return self.a_tool_works_or_ends();
        }
        let parent = *self.families.keys().nth(self.rng.usize(0..self.families.len())).unwrap();
        let (run, _, via) = self.runs[self.rng.usize(0..self.runs.len())];
        self.met.insert("a composite wished");
        self.wish(run, via, Some(parent), usize::MAX);
    }

    /// The run, or one above it.
    fn is_below(&self, run: RunId, above: RunId) -> bool {
        let parent = |run: &RunId| self.runs.iter().find(|(id, ..)| id == run).and_then(|(_, parent, _)| *parent);
        std::iter::successors(Some(run), parent).any(|one| one == above)
    }

    fn wish(&mut self, run: RunId, via: Via, parent: Option<CallId>, actions: usize) {
        let batch = BatchId(self.next_batch);
        self.next_batch += 1;
        let mut calls = Vec::new();
        let mut wishes = Vec::new();
        for position in 0..self.rng.u32(0..6) {
            let at = self.rng.usize(0..VERBS);
            let wide = self.rng.u8(0..4) == 0;
            let name = if wide { "act" } else { "only" };
            let mut facts = self.verbs[at].facts.clone();
            let operator = matches!(via, Via::Voice | Via::Cli);
            facts.protective &= operator;
            // A protective action of an operator is not asked about.
            facts.must_ask &= !facts.protective;
            let child = self.runs.iter().any(|(id, parent, _)| *id == run && parent.is_some());
            facts.never |= wide && child;
            facts.never |= parent.is_some_and(|parent| {
                !self.is_below(run, parent.run) || self.running.get(&parent).is_none_or(|running| running.stopping)
            });
            wishes.push(Wish {
                tool: ToolName::new(name).unwrap(),
                args: Args::new(json!({"verb": format!("v{at}"), "n": position})).unwrap(),
                parent,
                again: None,
                classified: None,
                part: None,
                facts: Arc::default(),
                protective: false,
            });
            calls.push((CallId { run, batch, position }, facts));
        }
        if let Some(parent) = parent {
            self.families.entry(parent).or_default().insert(batch);
        }
        self.checker_sees(Seen::Submitted { batch, calls, parent });
        self.batches.push(batch);
        self.step(Input::Submit { run, batch, wishes: Batch::new(wishes).unwrap() }, actions);
    }

    fn commit(&mut self) {
        self.flush(1);
        // The acknowledgement may come later, or be overtaken by the next one.
        if self.on_disk > self.told && self.rng.u8(0..4) > 0 {
            self.told = self.on_disk;
            let upto = self.handed[self.told - 1].0;
            self.checker_sees(Seen::Durable(upto));
            self.step(Input::Committed { upto }, usize::MAX);
        }
    }

    /// Some more transactions reach the disk: at least so many, if there are.
    fn flush(&mut self, least: usize) {
        let open: Vec<usize> = self.ends.iter().copied().filter(|end| *end > self.on_disk).collect();
        if !open.is_empty() {
            let more = self.rng.usize(least..=open.len());
            self.on_disk = if more == 0 { self.on_disk } else { open[more - 1] };
        }
    }

    fn a_tool_works_or_ends(&mut self) {
        if self.running.is_empty() {
            return;
        }
        let call = *self.running.keys().nth(self.rng.usize(0..self.running.len())).unwrap();
        if self.rng.bool() {
            self.work(call);
        } else if !self.waits(call) || self.rng.u8(0..8) == 0 {
            // Now and then a parent ends, or dies, before its children.
            self.end(call);
        }
    }

    /// A composite that waits for the answer to a wish of its own.
    fn waits(&self, call: CallId) -> bool {
        self.families.get(&call).is_some_and(|family| !family.is_empty())
    }

    fn work(&mut self, call: CallId) {
        if let Some(running) = self.running.get_mut(&call) {
            running.worked = true;
            self.checker.effect(call);
        }
    }

    fn end(&mut self, call: CallId) {
        let Some(running) = self.running.remove(&call) else { return };
        self.families.remove(&call);
        let report = self.report(&running);
        self.checker_sees(Seen::Ended { call });
        self.step(Input::Ended { call: running.order.call(), report }, usize::MAX);
    }

    fn report(&mut self, running: &Running) -> Report {
        match self.rng.u8(0..10) {
            0 => Report::Lost(Loss::TimedOut),
            1 => Report::Lost(Loss::Panicked("boom".into())),
            _ if running.worked || !running.order.nature().contract.changes() => Report::Done(json!({"ok": true})),
            _ => Report::Failed(Failure { code: "refused", message: "the device refused".into() }),
        }
    }

    /// A tool that was given up, or one that never was started, reports.
    fn report_late(&mut self) {
        if let Some(Loose { call, worked }) = self.loose.pop() {
            let report = if worked {
                Report::Done(Value::Object(serde_json::Map::new()))
            } else {
                Report::Failed(Failure { code: "refused", message: String::new() })
            };
            self.step(Input::Ended { call, report }, usize::MAX);
        }
    }

    fn answer(&mut self) {
        // Any number that was ever used: answers come late, twice, and to the wrong question.
        let Some(&(question, _)) = self.asked.get(self.rng.usize(0..self.asked.len().max(1))) else { return };
        let answer = if self.rng.u8(0..3) > 0 { Answer::Allow } else { Answer::Deny };
        if self.rng.u8(0..8) == 0 {
            let person = PERSONS[self.rng.usize(0..PERSONS.len())];
            self.checker_sees(Seen::Forgotten { person });
            self.met.insert("a person was taken out");
            self.step(Input::Forget { person: person.into() }, usize::MAX);
        }
        self.say(question, answer);
    }

    fn say(&mut self, question: QuestionId, answer: Answer) {
        self.checker.now = self.now;
        let person = (self.rng.u8(0..4) > 0).then(|| PERSONS[self.rng.usize(0..PERSONS.len())]);
        self.checker_sees(Seen::Said { question, answer, person });
        self.met.insert("answered");
        let by = By { name: "a person".into(), person: person.map(str::to_owned) };
        self.step(Input::Answer { question, answer, by }, usize::MAX);
    }

    fn settle_a_question(&mut self) {
        let Some(&(question, kind)) = self.asked.get(self.rng.usize(0..self.asked.len().max(1))) else { return };
        if kind == QuestionKind::Outcome || self.rng.u8(0..4) == 0 {
            let found = if self.rng.bool() { Found::Done } else { Found::Failed };
            self.step(Input::Settle { question, found, note: "seen".into(), by: "a person".into() }, usize::MAX);
        }
    }

    fn cancel(&mut self) {
        if self.batches.is_empty() {
            return;
        }
        let batch = self.batches[self.rng.usize(0..self.batches.len())];
        self.checker_sees(Seen::Cancelled { batch });
        self.met.insert("cancelled");
        self.step(Input::Cancel { batch }, usize::MAX);
    }

    fn change_policy(&mut self) {
        let (run, _, via) = self.runs[self.rng.usize(0..self.runs.len())];
        let mode = Mode::ALL[self.rng.usize(0..5)];
        self.modes.insert(run, mode);
        let policy = self.policy(via, mode);
        self.met.insert("policy changed");
        self.step(Input::Policy { run, policy: Box::new(policy) }, usize::MAX);
    }

    /// The power fails: what was handed over and is not on the disk is lost, and so is the machine.
    fn crash(&mut self) {
        self.met.insert("crashed");
        self.families.clear();
        self.flush(0);
        self.ends.clear();
        let kept: Vec<Event> = self.handed.drain(..).take(self.on_disk).map(|(_, event)| event).collect();
        self.log.extend(kept);
        (self.on_disk, self.told) = (0, 0);
        for (call, mut running) in std::mem::take(&mut self.running) {
            // A request that is on the wire when the power fails may still take effect.
            if !running.worked && self.rng.u8(0..4) == 0 {
                running.worked = true;
                self.checker.effect(call);
            }
            self.loose.push(Loose { call, worked: running.worked });
        }
        self.checker_sees(Seen::Crashed);
        let of = |word: &str| {
            self.log.iter().filter(|event| event.word() == word).filter_map(Event::call).collect::<BTreeSet<CallId>>()
        };
        let (requested, settled, resolved) = (of("requested"), of("settled"), of("resolved"));
        self.checker.remember(&requested, &settled, resolved);
        self.life += 1;
        let next_question = self.asked.iter().map(|(id, _)| id.0).max().unwrap_or(0) + 1;
        self.mediator = Mediator::new(QuestionId(next_question));
        let mends = repair::mend(self.log.iter().filter_map(Trace::of));
        if self.rng.bool() {
            // A second reading finds the same: repair is a function of the log.
            assert_eq!(mends, repair::mend(self.log.iter().filter_map(Trace::of)));
        }
        self.step(Input::Mended(mends), usize::MAX);
        self.open_runs();
    }

    fn checker_sees(&mut self, seen: Seen) {
        for seen in self.doctor.treat(seen, &mut self.rng) {
            self.checker.see(&seen);
        }
    }

    /// One step of the machine, and the first `actions` of what it wants done.
    fn step(&mut self, input: Input, actions: usize) {
        self.checker.now = self.now;
        self.mediator.step(input, self.now);
        let mut first = true;
        for _ in 0..actions {
            let Some(action) = self.mediator.next_action() else { return };
            match action {
                Action::Record { entries, now: _ } => {
                    assert!(first, "the records come first");
                    for (entry, event) in entries {
                        self.checker_sees(Seen::Recorded(entry, Box::new(event.clone())));
                        self.handed.push((entry, event));
                    }
                    self.ends.push(self.handed.len());
                }
                // Nobody needs to look; here nobody does.
                Action::Look { .. } => {}
                Action::Ask(question) => self.asked.push((question.id, question.kind)),
                Action::Withdraw { .. } => {}
                Action::Start(order) => {
                    let call = order.call();
                    self.checker_sees(Seen::Start { call });
                    self.met.insert("started");
                    if order.nature().class == Class::Composite {
                        self.families.insert(call, BTreeSet::new());
                    }
                    self.running.insert(call, Running { order, worked: false, stopping: false });
                }
                Action::Stop { call } => {
                    self.met.insert("stopped");
                    if let Some(running) = self.running.get_mut(&call) {
                        running.stopping = true;
                    }
                    if self.rng.bool() {
                        // It obeys, later; or it is deaf, and its grace runs out.
                        self.work(call);
                    }
                }
                Action::Reply { batch, replies } => {
                    for family in self.families.values_mut() {
                        family.remove(&batch);
                    }
                    self.checker_sees(Seen::Replied { batch, replies });
                }
            }
            first = false;
        }
    }

    fn check_bounds(&mut self) {
        let open = self.mediator.questions().len();
        if open > self.asked.len() {
            self.checker.broken.push((Law::Bounds, format!("{open} questions are open")));
        }
        if self.mediator.is_idle() && !self.running.is_empty() && self.mediator.running().next().is_some() {
            self.checker.broken.push((Law::Bounds, "idle, and something runs".into()));
        }
    }

    /// Lets everything come that could be waited for. A frozen world has nothing but answers, ends and commits; in the
    /// others, every second time, only the clock helps.
    fn finish(&mut self) {
        let hang = !self.shape.frozen && self.rng.bool();
        for _ in 0..2000 {
            let had = self.handed.len();
            self.on_disk = had;
            if self.told < had {
                self.told = had;
                let upto = self.handed[had - 1].0;
                self.checker_sees(Seen::Durable(upto));
                self.step(Input::Committed { upto }, usize::MAX);
                continue;
            }
            if self.mediator.is_idle() {
                break;
            }
            if hang {
                let Some(at) = self.mediator.wake_at() else { break };
                self.now = self.now.max(at);
                self.step(Input::Tick, usize::MAX);
                continue;
            }
            let open = self.mediator.questions().into_iter().find(|open| open.kind != QuestionKind::Outcome);
            if let Some(id) = open.map(|open| open.id) {
                let answer = if self.rng.bool() { Answer::Allow } else { Answer::Deny };
                self.say(id, answer);
            } else if let Some(call) = self.running.keys().find(|call| !self.waits(**call)).copied() {
                // A parent waits for its children: if nothing but parents is left, they wait for one another.
                if self.rng.bool() {
                    self.work(call);
                }
                self.end(call);
            } else {
                break;
            }
        }
        if !self.mediator.is_idle() {
            self.checker.broken.push((Law::Progress, "nothing more can come, and somebody still waits".into()));
        }
        if self.life == 0 {
            for batch in self.batches.clone() {
                if self.checker.unanswered(batch) {
                    self.checker.broken.push((Law::Progress, format!("batch {batch:?} was never answered")));
                }
            }
        }
    }
}

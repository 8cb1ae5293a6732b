//! What must hold in every world, told from the outside: from what went in, what came out, and what the world did.
//!
//! The checker shares no code with the machine. It has its own idea of lanes, keys and barriers, its own list of open
//! questions, and its own memory of what was started; the simulation tells it what each wish was about.

use std::collections::{BTreeMap, BTreeSet};

use interlock_domain::closure::Reply;
use interlock_domain::effect::journal::Entry;
use interlock_domain::event::Event;
use interlock_domain::gate::docket::{Answer, Question, QuestionKind};
use interlock_domain::id::{BatchId, CallId, QuestionId, RunId};
use interlock_domain::time::Tick;

/// The laws, one for each way to be wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Law {
    /// One settlement for each request, never two.
    Closure,
    /// Nothing that may change the world starts before its intent is known to be on the disk.
    Evidence,
    /// One lane, one call.
    Lane,
    /// Overlapping keys: one after the other, in call order.
    Keys,
    /// A barrier in its batch.
    Barrier,
    /// No start while a question of the batch is open.
    BatchRule,
    /// What had to be asked starts only after the first answer was yes, and in time.
    Question,
    /// What a rule denies, or a run cannot see, never starts.
    Denied,
    /// What was permitted under an older policy does not start.
    Epoch,
    /// What is cancelled does not start, and a cancelled or ended composite starts nothing through its family.
    Cancelled,
    /// What was wished for before an emergency does not come after it.
    Superseded,
    /// Replies: whole batches, in call order, once.
    Order,
    /// Nobody is told what the log does not know.
    Told,
    /// Done means that it is there, failed and not started that it is not.
    Truth,
    /// Whatever is begun comes to an end.
    Progress,
    /// Bounds hold.
    Bounds,
}

/// What a wish is about, as the simulation made it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Facts {
    pub(crate) lane: Option<u8>,
    pub(crate) exclusive: bool,
    pub(crate) background: bool,
    /// It acts through wishes of its own, and holds nothing while it runs.
    pub(crate) composite: bool,
    pub(crate) reads: Vec<u8>,
    pub(crate) writes: Vec<u8>,
    pub(crate) changes: bool,
    pub(crate) must_ask: bool,
    pub(crate) never: bool,
    pub(crate) protective: bool,
}

impl Facts {
    fn shares_lane(&self, other: &Facts) -> bool {
        (self.lane.is_some() && self.lane == other.lane) || (self.background && other.background)
    }

    fn shares_keys(&self, other: &Facts) -> bool {
        let meet = |one: &[u8], two: &[u8]| one.iter().any(|key| two.contains(key));
        meet(&self.writes, &other.writes) || meet(&self.writes, &other.reads) || meet(&self.reads, &other.writes)
    }
}

/// What can be seen from outside, in order.
#[derive(Debug, Clone)]
pub(crate) enum Seen {
    Submitted { batch: BatchId, calls: Vec<(CallId, Facts)>, parent: Option<CallId> },
    Recorded(Entry, Box<Event>),
    Start { call: CallId },
    Replied { batch: BatchId, replies: Vec<Reply> },
    Said { question: QuestionId, answer: Answer, person: Option<&'static str> },
    Forgotten { person: &'static str },
    Durable(Entry),
    CommitFailed,
    Cancelled { batch: BatchId },
    Ended { call: CallId },
    Crashed,
}

#[derive(Debug, Default)]
struct Story {
    facts: Facts,
    number: usize,
    requested: bool,
    settled: Option<&'static str>,
    intent: Option<Entry>,
    question: Option<QuestionId>,
    started: bool,
    ended: bool,
    void: bool,
    cancelled: bool,
    superseded: bool,
    effect: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    Open(Tick),
    Yes,
    No,
}

#[derive(Debug, Default)]
pub(crate) struct Checker {
    pub(crate) now: Tick,
    stories: BTreeMap<CallId, Story>,
    parents: BTreeMap<RunId, RunId>,
    questions: BTreeMap<QuestionId, (CallId, Asked)>,
    /// Those that two persons have to allow, and who did already.
    of_two: BTreeMap<QuestionId, Option<&'static str>>,
    /// What is dangerous is asked of two persons.
    pub(crate) four_eyes: bool,
    live: BTreeSet<CallId>,
    replied: BTreeSet<BatchId>,
    batches: BTreeMap<BatchId, Vec<CallId>>,
    families: BTreeMap<CallId, Vec<BatchId>>,
    durable: u64,
    degraded: bool,
    handed: u64,
    settled_entry: BTreeMap<CallId, Entry>,
    resolved: BTreeSet<CallId>,
    number: usize,
    pub(crate) broken: Vec<(Law, String)>,
}

impl Checker {
    fn breach(&mut self, law: Law, what: String) {
        self.broken.push((law, what));
    }

    pub(crate) fn child(&mut self, child: RunId, parent: RunId) {
        self.parents.insert(child, parent);
    }

    /// The world was changed by this call.
    pub(crate) fn effect(&mut self, call: CallId) {
        if let Some(story) = self.stories.get_mut(&call) {
            story.effect = story.facts.changes;
        }
    }

    pub(crate) fn see(&mut self, seen: &Seen) {
        match seen {
            Seen::Submitted { batch, calls, parent } => {
                if let Some(parent) = parent {
                    self.families.entry(*parent).or_default().push(*batch);
                }
                self.batches.insert(*batch, calls.iter().map(|(call, _)| *call).collect());
                for (call, facts) in calls {
                    self.number += 1;
                    let story = Story { facts: facts.clone(), number: self.number, ..Story::default() };
                    self.stories.insert(*call, story);
                }
            }
            Seen::Recorded(entry, event) => {
                if entry.0 != self.handed + 1 {
                    self.breach(Law::Order, format!("record {entry:?} after {}", self.handed));
                }
                self.handed = entry.0;
                self.recorded(*entry, event);
            }
            Seen::Start { call } => self.start(*call),
            Seen::Replied { batch, replies } => self.reply(*batch, replies),
            Seen::Said { question, answer, person } => self.said(*question, *answer, *person),
            Seen::Forgotten { person } => {
                for first in self.of_two.values_mut().filter(|first| **first == Some(*person)) {
                    *first = None;
                }
            }
            Seen::Durable(entry) => {
                self.durable = self.durable.max(entry.0);
                self.degraded = false;
            }
            Seen::CommitFailed => self.degraded = true,
            Seen::Cancelled { batch } => self.cancelled(*batch),
            Seen::Ended { call } => self.end(*call),
            Seen::Crashed => {
                self.live.clear();
                self.durable = 0;
                self.handed = 0;
                self.degraded = false;
                self.settled_entry.clear();
                self.questions.retain(|_, (_, state)| !matches!(state, Asked::Open(_)));
                for story in self.stories.values_mut().filter(|story| story.settled.is_none()) {
                    story.void = true;
                    story.intent = None;
                }
            }
        }
    }

    /// The durable log is all that a new life knows: settlements that were not on the disk did not happen.
    pub(crate) fn remember(
        &mut self,
        requested: &BTreeSet<CallId>,
        settled: &BTreeSet<CallId>,
        resolved: BTreeSet<CallId>,
    ) {
        self.resolved = resolved;
        for (call, story) in &mut self.stories {
            story.requested &= requested.contains(call);
        }
        let lost: Vec<CallId> = self
            .stories
            .iter()
            .filter(|(call, story)| story.settled.is_some() && !settled.contains(call))
            .map(|(call, _)| *call)
            .collect();
        for call in lost {
            let told = self.replied.contains(&call.batch);
            let story = self.stories.get_mut(&call).expect("it was just listed");
            story.settled = None;
            let changing = story.facts.changes && story.started;
            if told && changing && !story.facts.protective {
                self.breach(Law::Told, format!("{call} was answered and the log has lost its settlement"));
            }
        }
    }

    fn cancelled(&mut self, batch: BatchId) {
        for call in self.batches.get(&batch).cloned().unwrap_or_default() {
            if let Some(story) = self.stories.get_mut(&call) {
                story.cancelled = true;
            }
        }
    }

    fn end(&mut self, call: CallId) {
        self.live.remove(&call);
        for batch in self.families.remove(&call).unwrap_or_default() {
            self.cancelled(batch);
        }
        if let Some(story) = self.stories.get_mut(&call) {
            story.ended = true;
        }
    }

    fn recorded(&mut self, entry: Entry, event: &Event) {
        match event {
            Event::Requested { call, .. } => {
                if let Some(story) = self.stories.get_mut(call) {
                    story.requested = true;
                }
            }
            Event::Asked { question } => self.asked(question),
            Event::Intent { call, .. } => {
                if let Some(story) = self.stories.get_mut(call) {
                    story.intent = Some(entry);
                }
            }
            Event::Settled { call, ending } => self.settled(*call, entry, ending.word()),
            Event::PolicyChanged { run, .. } => {
                let family = self.family(*run);
                for (call, story) in &mut self.stories {
                    let spared = story.facts.protective;
                    if family.contains(&call.run) && !story.started && !spared {
                        story.void = true;
                    }
                }
            }
            Event::Outcome { call, .. } => self.end(*call),
            Event::StopAsked { call } => {
                for batch in self.families.get(call).cloned().unwrap_or_default() {
                    self.cancelled(batch);
                }
            }
            Event::Resolved { call, .. } => {
                if !self.resolved.insert(*call) {
                    self.breach(Law::Closure, format!("{call} was resolved twice"));
                }
            }
            Event::RunOpened { .. }
            | Event::Answered { .. }
            | Event::AnswerIgnored { .. }
            | Event::Permitted { .. }
            | Event::Queued { .. }
            | Event::Started { .. }
            | Event::Examined { .. }
            | Event::Anomaly { .. }
            | Event::LateReport { .. } => {}
        }
    }

    fn family(&self, run: RunId) -> BTreeSet<RunId> {
        let mut family = BTreeSet::from([run]);
        loop {
            let more: Vec<RunId> =
                self.parents.iter().filter(|(_, parent)| family.contains(parent)).map(|(child, _)| *child).collect();
            let before = family.len();
            family.extend(more);
            if family.len() == before {
                return family;
            }
        }
    }

    fn asked(&mut self, question: &Question) {
        let call = question.key.call;
        if question.kind == QuestionKind::Outcome {
            if self.stories.get(&call).is_some_and(|story| story.settled != Some("unknown")) {
                self.breach(Law::Closure, format!("{call} is asked about and not settled as unknown"));
            }
            return;
        }
        if self.questions.contains_key(&question.id) {
            self.breach(Law::Question, format!("{} is asked twice", question.id));
        }
        // After a crash a number that the log did not know yet is used again.
        self.of_two.remove(&question.id);
        if self.four_eyes && question.kind == QuestionKind::Confirm {
            self.of_two.insert(question.id, None);
        }
        self.questions.insert(question.id, (call, Asked::Open(question.until.unwrap_or(Tick(u64::MAX)))));
        if let Some(story) = self.stories.get_mut(&call) {
            story.question = Some(question.id);
        }
    }

    /// A yes of two counts when two different persons who are known have said it.
    fn said(&mut self, question: QuestionId, answer: Answer, person: Option<&'static str>) {
        let Some((_, state)) = self.questions.get_mut(&question) else { return };
        let Asked::Open(until) = *state else { return };
        let yes = answer == Answer::Allow && self.now < until;
        if yes && let Some(first) = self.of_two.get_mut(&question) {
            match (*first, person) {
                (_, None) => return,
                (None, person) => {
                    *first = person;
                    return;
                }
                (first, person) if first == person => return,
                (Some(_), Some(_)) => {}
            }
        }
        *state = if yes { Asked::Yes } else { Asked::No };
    }

    fn settled(&mut self, call: CallId, entry: Entry, word: &'static str) {
        self.settled_entry.insert(call, entry);
        self.live.remove(&call);
        let Some(story) = self.stories.get_mut(&call) else {
            return self.breach(Law::Closure, format!("{call} is settled and nobody wished for it"));
        };
        story.ended = true;
        let (twice, wished, effect, changes) =
            (story.settled.is_some(), story.requested, story.effect, story.facts.changes);
        story.settled = Some(word);
        if let Some(id) = story.question
            && let Some((_, state)) = self.questions.get_mut(&id)
            && matches!(state, Asked::Open(_))
        {
            *state = Asked::No;
        }
        if twice || !wished {
            self.breach(Law::Closure, format!("{call} is settled twice, or before it was requested"));
        }
        let lie = match word {
            "done" => changes && !effect,
            "failed" | "not_started" => effect,
            _ => false,
        };
        if lie {
            self.breach(Law::Truth, format!("{call} is settled as {word}, effect: {effect}"));
        }
    }

    fn start(&mut self, call: CallId) {
        for law in self.barred(call) {
            self.breach(law, format!("{call} was started"));
        }
        let Some(story) = self.stories.get_mut(&call) else { return };
        story.started = true;
        let (facts, number) = (story.facts.clone(), story.number);
        if !facts.composite {
            self.live.insert(call);
        }
        if facts.protective {
            for earlier in self.stories.values_mut() {
                let before = earlier.number < number && !earlier.started && !earlier.facts.protective;
                if before && earlier.facts.shares_keys(&facts) {
                    earlier.superseded = true;
                }
            }
        }
    }

    /// Every law that forbids a start at this moment.
    fn barred(&self, call: CallId) -> Vec<Law> {
        let Some(story) = self.stories.get(&call) else { return vec![Law::Closure] };
        let facts = &story.facts;
        let mut laws = Vec::new();
        let mut when = |broken: bool, law: Law| {
            if broken {
                laws.push(law);
            }
        };
        when(story.started || story.settled.is_some() || !story.requested, Law::Closure);
        let known = story.intent.is_some_and(|entry| entry.0 <= self.durable || !facts.changes);
        let excepted = facts.protective && self.degraded && story.intent.is_some();
        when(!known && !excepted, Law::Evidence);
        for other in &self.live {
            let other = &self.stories[other].facts;
            when(facts.shares_lane(other), Law::Lane);
            when(facts.shares_keys(other), Law::Keys);
        }
        for other in self.batches.get(&call.batch).into_iter().flatten().filter(|other| **other != call) {
            let earlier = other.position < call.position;
            let other = &self.stories[other];
            let open = |id: QuestionId| matches!(self.questions.get(&id), Some((_, Asked::Open(_))));
            when(other.question.is_some_and(open), Law::BatchRule);
            let waits = earlier && other.settled.is_none() && !facts.protective && !other.facts.protective;
            let alone = facts.exclusive || other.facts.exclusive || facts.composite != other.facts.composite;
            when(waits && alone, Law::Barrier);
            when(waits && facts.shares_keys(&other.facts), Law::Keys);
            let running = other.started && !other.ended && !facts.protective;
            when(running && alone, Law::Barrier);
        }
        if facts.must_ask {
            let yes = |id: QuestionId| matches!(self.questions.get(&id), Some((_, Asked::Yes)));
            when(!story.question.is_some_and(yes), Law::Question);
        }
        when(facts.never, Law::Denied);
        when(story.void, Law::Epoch);
        when(story.cancelled, Law::Cancelled);
        when(story.superseded, Law::Superseded);
        laws
    }

    fn reply(&mut self, batch: BatchId, replies: &[Reply]) {
        if !self.replied.insert(batch) {
            self.breach(Law::Order, format!("batch {batch:?} is answered twice"));
        }
        let wanted = self.batches.get(&batch).cloned().unwrap_or_default();
        let calls: Vec<CallId> = replies.iter().map(|reply| reply.call).collect();
        if calls != wanted {
            self.breach(Law::Order, format!("batch {batch:?} is answered as {calls:?}"));
        }
        let mut wrong = Vec::new();
        let waits = |story: &Story| {
            let excepted = self.degraded && (story.facts.protective || !story.started);
            story.facts.changes && story.intent.is_some() && !excepted
        };
        let changed = wanted.iter().filter_map(|call| self.stories.get(call)).any(waits);
        for reply in replies {
            let settled = self.stories.get(&reply.call).and_then(|story| story.settled);
            if settled != Some(reply.ending.word()) {
                wrong
                    .push((Law::Order, format!("{} is told {}, settled {settled:?}", reply.call, reply.ending.word())));
            }
            let on_disk = self.settled_entry.get(&reply.call).is_some_and(|entry| entry.0 <= self.durable);
            if reply.evidence.is_some() != on_disk || (changed && !on_disk) {
                wrong.push((Law::Told, format!("{} is told {:?}, on disk: {on_disk}", reply.call, reply.evidence)));
            }
        }
        self.broken.append(&mut wrong);
    }

    /// At the end of a world, when everything that could be waited for has come.
    pub(crate) fn finish(&mut self) {
        let open: Vec<CallId> = self
            .stories
            .iter()
            .filter(|(_, story)| story.requested && story.settled.is_none())
            .map(|(call, _)| *call)
            .collect();
        for call in open {
            self.breach(Law::Closure, format!("{call} was never settled"));
        }
    }

    pub(crate) fn unanswered(&self, batch: BatchId) -> bool {
        !self.replied.contains(&batch)
    }
}

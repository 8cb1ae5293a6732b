//! Breaks one law on purpose, between the machine and the checker: what a wrong machine would have shown. Each must be
//! noticed, or the checker looks away.

use std::collections::{BTreeMap, BTreeSet};

use fastrand::Rng;
use interlock_domain::closure::Ending;
use interlock_domain::effect::journal::Entry;
use interlock_domain::event::Event;
use interlock_domain::gate::docket::Answer;
use interlock_domain::id::{BatchId, CallId, QuestionId};
use interlock_domain::request::why::Why;

use crate::checker::Seen;

/// The ways to be wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mutant {
    None,
    /// Starts when the intent is handed over, not when it is on the disk.
    NoJournal,
    /// Starts what is journaled, without a look at the board.
    NoBoard,
    /// Forgets a call now and then.
    LostPassport,
    /// Settles a call twice.
    SettledTwice,
    /// Starts a permitted call while another one of the batch is asked about.
    NoBatchRule,
    /// Obeys an answer that came late, or a second time.
    StaleAnswer,
    /// Starts what the gate denied.
    DeafGate,
    /// Starts what was permitted under an older policy.
    StalePolicy,
    /// Starts what was cancelled.
    DeafToCancel,
    /// Starts what an emergency has overtaken.
    DeafToEmergency,
    /// Answers when the calls are settled, not when the log knows.
    EarlyReply,
    /// Answers in the order in which calls ended.
    ReplyAsItComes,
    /// Says done for what is unknown.
    GuessesDone,
}

pub(crate) struct Doctor {
    mutant: Mutant,
    intents: BTreeMap<CallId, Entry>,
    started: BTreeSet<CallId>,
    batches: BTreeMap<BatchId, Vec<CallId>>,
    questions: BTreeMap<QuestionId, CallId>,
    settled: BTreeMap<BatchId, Vec<CallId>>,
    /// What a protective call has overtaken.
    overtaken: Vec<(CallId, CallId)>,
}

impl Doctor {
    pub(crate) fn new(mutant: Mutant) -> Doctor {
        Doctor {
            mutant,
            intents: BTreeMap::new(),
            started: BTreeSet::new(),
            batches: BTreeMap::new(),
            questions: BTreeMap::new(),
            settled: BTreeMap::new(),
            overtaken: Vec::new(),
        }
    }

    pub(crate) fn treat(&mut self, seen: Seen, rng: &mut Rng) -> Vec<Seen> {
        if self.mutant == Mutant::None {
            return vec![seen];
        }
        let mut out = vec![seen.clone()];
        match &seen {
            Seen::Submitted { batch, calls, parent: _ } => {
                self.batches.insert(*batch, calls.iter().map(|(call, _)| *call).collect());
            }
            Seen::Crashed => {
                self.intents.clear();
            }
            Seen::Recorded(entry, event) => self.recorded(*entry, event, &seen, rng, &mut out),
            Seen::Durable(entry) => {
                if self.mutant == Mutant::NoBoard {
                    let ready: Vec<CallId> =
                        self.intents.iter().filter(|(_, at)| **at <= *entry).map(|(call, _)| *call).collect();
                    for call in ready {
                        self.intents.remove(&call);
                        self.start(call, &mut out);
                    }
                }
            }
            Seen::Start { call } => {
                if !self.started.insert(*call) {
                    out.clear();
                }
                for (late, by) in std::mem::take(&mut self.overtaken) {
                    if by == *call {
                        self.start(late, &mut out);
                    } else {
                        self.overtaken.push((late, by));
                    }
                }
            }
            Seen::Said { question, answer: Answer::Allow, .. } if self.mutant == Mutant::StaleAnswer => {
                // The machine has obeyed every yes before; now it obeys one that comes when the call is settled.
                if let Some(call) = self.questions.get(question).copied()
                    && self.is_settled(call)
                {
                    self.start(call, &mut out);
                }
            }
            Seen::Replied { batch, replies } => match self.mutant {
                Mutant::ReplyAsItComes => {
                    let mut replies = replies.clone();
                    let order = self.settled.get(batch).cloned().unwrap_or_default();
                    replies.sort_by_key(|reply| order.iter().position(|call| *call == reply.call));
                    out = vec![Seen::Replied { batch: *batch, replies }];
                }
                Mutant::EarlyReply => {
                    let early = replies.iter().map(|reply| {
                        let mut reply = reply.clone();
                        reply.evidence = Some(Entry(u64::MAX));
                        reply
                    });
                    out = vec![Seen::Replied { batch: *batch, replies: early.collect() }];
                }
                _ => {}
            },
            Seen::Said { .. }
            | Seen::Forgotten { .. }
            | Seen::CommitFailed
            | Seen::Cancelled { .. }
            | Seen::Ended { .. } => {}
        }
        out
    }

    fn is_settled(&self, call: CallId) -> bool {
        self.settled.get(&call.batch).is_some_and(|settled| settled.contains(&call))
    }

    fn start(&mut self, call: CallId, out: &mut Vec<Seen>) {
        if self.started.insert(call) {
            out.push(Seen::Start { call });
        }
    }

    fn recorded(&mut self, entry: Entry, event: &Event, seen: &Seen, rng: &mut Rng, out: &mut Vec<Seen>) {
        match event {
            Event::Intent { call, contract, .. } => {
                self.intents.insert(*call, entry);
                if self.mutant == Mutant::NoJournal && contract.changes() {
                    self.start(*call, out);
                }
            }
            Event::Asked { question } => {
                let asked = question.key.call;
                self.questions.insert(question.id, asked);
                if self.mutant == Mutant::NoBatchRule {
                    let others = self.batches.get(&asked.batch).cloned().unwrap_or_default();
                    let other = others.into_iter().find(|call| *call != asked && !self.is_settled(*call));
                    if let Some(other) = other {
                        self.start(other, out);
                    }
                }
            }
            Event::Settled { call, ending } => {
                self.settled.entry(call.batch).or_default().push(*call);
                let instead = match (self.mutant, ending) {
                    (Mutant::DeafGate, Ending::NotStarted(Why::Denied { .. } | Why::NoSuchTool { .. }))
                    | (Mutant::StalePolicy, Ending::NotStarted(Why::PolicyChanged))
                    | (Mutant::DeafToCancel, Ending::NotStarted(Why::Cancelled)) => {
                        vec![Seen::Start { call: *call }, seen.clone()]
                    }
                    (Mutant::DeafToEmergency, Ending::NotStarted(Why::Superseded { by })) => {
                        self.overtaken.push((*call, *by));
                        return;
                    }
                    (Mutant::LostPassport, _) if rng.u8(0..10) == 0 => {
                        // The number of the record stays taken.
                        vec![Seen::Recorded(entry, Box::new(Event::LateReport { call: *call }))]
                    }
                    (Mutant::SettledTwice, _) => {
                        vec![seen.clone(), Seen::Recorded(Entry(entry.0 + 1), Box::new(event.clone()))]
                    }
                    (Mutant::GuessesDone, ending) if ending.word() == "unknown" => {
                        let done =
                            Ending::Ran(interlock_domain::effect::outcome::Known::Done(serde_json::Value::Null.into()));
                        vec![Seen::Recorded(entry, Box::new(Event::Settled { call: *call, ending: done }))]
                    }
                    _ => return,
                };
                *out = instead;
            }
            _ => {}
        }
    }
}

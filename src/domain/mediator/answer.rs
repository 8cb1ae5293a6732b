//! Questions and what people say to them.

use crate::effect::ledger::Lost;
use crate::effect::outcome::{OpKey, WayOut};
use crate::event::{Event, Found, FoundBy};
use crate::gate::docket::{Answer, By, Ignored, Question, QuestionKey, QuestionKind, Taken};
use crate::id::{BatchId, CallId, Epoch, QuestionId};
use crate::repair::{Mend, Unknown};
use crate::request::Asker;
use crate::request::args::{Args, Digest};
use crate::request::shown::escaped;
use crate::request::why::Lang;

use super::{Action, Mediator, OpenOutcome};

/// The longest note that is kept with an answer.
const NOTE_CHARS_MAX: usize = 2000;

impl Mediator {
    pub(super) fn answer(&mut self, question: QuestionId, answer: Answer, by: &By) {
        let name = || by.name.clone();
        let Some(&(batch, key)) = self.asked.get(&question) else {
            let why = self.not_asked(question);
            self.record(Event::AnswerIgnored { question, why, by: name() });
            return;
        };
        // Bound to the epoch of this moment: a docket from an older one cannot be answered any more.
        let epoch = self.runs.get(&key.call.run).map_or(key.epoch, |run| run.epoch);
        let key = QuestionKey { epoch, ..key };
        let taken = match self.dockets.get_mut(&batch) {
            Some(docket) => docket.answer(question, key, answer, by),
            None => Err(Ignored::Closed),
        };
        match taken {
            Err(why) => {
                self.record(Event::AnswerIgnored { question, why, by: name() });
            }
            Ok(taken) => {
                let waits = matches!(taken, Taken::Waits);
                self.record(Event::Answered { question, call: key.call, answer, waits, by: name() });
                if !waits {
                    self.withdraw(Some(question));
                    if let Taken::Denied(refusal) = taken {
                        self.end_unstarted(refusal);
                    }
                    self.clear(batch);
                }
            }
        }
    }

    /// A person may not answer any more.
    pub(super) fn forget(&mut self, person: &str) {
        let forgotten: Vec<(QuestionId, By)> =
            self.dockets.values_mut().flat_map(|docket| docket.forget(person)).collect();
        for (question, first) in forgotten {
            self.record(Event::AnswerIgnored { question, why: Ignored::Revoked, by: first.name });
        }
    }

    pub(super) fn not_asked(&self, question: QuestionId) -> Ignored {
        if self.outcomes.contains_key(&question) {
            Ignored::WrongKind
        } else if self.questions.was_used(question) {
            Ignored::Closed
        } else {
            Ignored::NoSuchQuestion
        }
    }

    pub(super) fn resolve(&mut self, question: QuestionId, found: Found, note: String, by: String) {
        let Some(open) = self.outcomes.remove(&question) else {
            let why = if self.asked.contains_key(&question) { Ignored::WrongKind } else { self.not_asked(question) };
            self.record(Event::AnswerIgnored { question, why, by });
            return;
        };
        let note = escaped(&note, NOTE_CHARS_MAX);
        self.resolved(question, &open, found, FoundBy::Person { name: by, note });
    }

    /// A query, or another attempt with the same key, found out what became of it. Too late is not wrong: a person may
    /// have been faster.
    pub(super) fn found(&mut self, question: QuestionId, found: Found, note: &str) {
        if let Some(open) = self.outcomes.remove(&question) {
            self.resolved(question, &open, found, FoundBy::Query { note: escaped(note, NOTE_CHARS_MAX) });
        }
    }

    fn resolved(&mut self, question: QuestionId, open: &OpenOutcome, found: Found, by: FoundBy) {
        let (call, op) = (open.question.key.call, open.unknown.op);
        self.ledger.resolved(op, found == Found::Done);
        self.record(Event::Resolved { call, op, found, by });
        self.judge_effects(call);
        self.acts.push(Action::Withdraw { question });
    }

    /// A tool that was given up reported after all, with authority: nobody has to look any more.
    pub(super) fn found_late(&mut self, call: CallId, found: Found) {
        let open = self.outcomes.iter().find(|(_, open)| open.question.key.call == call).map(|(id, _)| *id);
        if let Some(question) = open
            && let Some(open) = self.outcomes.remove(&question)
        {
            self.resolved(question, &open, found, FoundBy::LateReport);
        }
    }

    /// Refuses what nobody answered in time.
    pub(super) fn expire_questions(&mut self) {
        let now = self.now;
        let due: Vec<BatchId> = self
            .dockets
            .iter()
            .filter(|(_, docket)| docket.wake_at().is_some_and(|at| at <= now))
            .map(|(batch, _)| *batch)
            .collect();
        for batch in due {
            let late = self.dockets.get_mut(&batch).map(|docket| docket.expire(now));
            for (question, refusal) in late.into_iter().flatten() {
                self.withdraw(Some(question));
                self.end_unstarted(refusal);
            }
            self.clear(batch);
        }
    }

    pub(super) fn withdraw(&mut self, question: Option<QuestionId>) {
        if let Some(question) = question
            && self.asked.remove(&question).is_some()
        {
            self.acts.push(Action::Withdraw { question });
        }
    }

    /// Opens the question what became of an effect. It never expires.
    pub(super) fn open_outcome(&mut self, key: QuestionKey, asker: Option<Asker>, unknown: Unknown) {
        let id = match unknown.question {
            Some(id) => {
                self.questions.skip(id);
                id
            }
            None => self.questions.take(),
        };
        let known = crate::effect::outcome::Known::Unknown { loss: unknown.loss.clone(), way_out: unknown.way_out };
        let question = Question {
            id,
            kind: QuestionKind::Outcome,
            key,
            until: None,
            asker,
            tool: unknown.tool.clone(),
            shown: unknown.shown.clone(),
            step: None,
            rule: None,
            four_eyes: false,
            first: None,
            reason: crate::closure::Ending::Ran(known).message(Lang::En),
        };
        if unknown.question.is_none() {
            self.record(Event::Asked { question: question.clone() });
        }
        self.ledger.opened(unknown.op);
        self.acts.push(Action::Ask(question.clone()));
        match unknown.way_out {
            WayOut::QueryFirst | WayOut::Resend { .. } if unknown.args.is_some() => {
                self.acts.push(Action::Look { question: id, unknown: Box::new(unknown.clone()) });
            }
            WayOut::QueryFirst | WayOut::Resend { .. } | WayOut::AskAgain | WayOut::Hold => {}
        }
        self.outcomes.insert(id, OpenOutcome { question, unknown });
    }

    /// Settles what the last life left open, and opens its questions again.
    pub(super) fn mended(&mut self, mends: Vec<Mend>) {
        // Old numbers first: a new question must not take one of them.
        for id in mends.iter().filter_map(|mend| mend.unknown.as_ref().and_then(|unknown| unknown.question)) {
            self.questions.skip(id);
        }
        for Mend { call, ending, unknown, stub: _ } in mends {
            if let Some(ending) = ending {
                self.record(Event::Settled { call, ending });
                self.commit_now = true;
            }
            if let Some(unknown) = unknown {
                let none = Digest([0; 32]);
                let key = QuestionKey { call, args: none, facts: none, epoch: Epoch(0) };
                let args = unknown.args.as_deref().and_then(|args| Args::new(args.clone()).ok());
                self.ledger.reopened(
                    call,
                    Lost {
                        op: unknown.op,
                        tool: &unknown.tool,
                        args: args.map(|args| args.hash()),
                        contract: &unknown.contract,
                        noted: &unknown.noted,
                    },
                );
                self.open_outcome(key, None, unknown);
            }
        }
    }

    /// The operations that nobody knows the outcome of.
    pub fn unresolved(&self) -> impl Iterator<Item = OpKey> + '_ {
        self.outcomes.values().map(|open| open.unknown.op)
    }
}

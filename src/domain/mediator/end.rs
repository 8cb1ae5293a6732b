//! From a report to the reply.

use crate::closure::{self, Settlement};
use crate::effect::Claim;
use crate::effect::outcome::Known;
use crate::effect::report::{Loss, Report};
use crate::event::{Event, Found};
use crate::gate::docket::QuestionKey;
use crate::id::{BatchId, CallId, Epoch};
use crate::repair::Unknown;
use crate::request::shown::shown;

use super::{Action, Mediator, StopCause};

impl Mediator {
    /// Deadlines of questions and of running calls.
    pub(super) fn expire(&mut self) {
        self.expire_questions();
        while let Some((at, call)) = self.timers.first().copied()
            && at <= self.now
        {
            self.timers.remove(&(at, call));
            match self.running.get(&call).map(|running| running.stop) {
                None => {}
                Some(None) => self.ask_to_stop(call, StopCause::Deadline),
                Some(Some(cause)) => {
                    if let Some(running) = self.running.remove(&call) {
                        let loss = match cause {
                            StopCause::Deadline => Loss::TimedOut,
                            StopCause::Cancelled => Loss::Stopped,
                        };
                        self.conclude(running.claim, Report::Lost(loss));
                    }
                }
            }
        }
    }

    pub(super) fn ended(&mut self, call: CallId, report: Report) {
        if let Some(running) = self.running.remove(&call) {
            self.timers.remove(&(running.until, call));
            self.conclude(running.claim, report);
            return;
        }
        self.record(Event::LateReport { call });
        match report {
            Report::Done(_) => self.found_late(call, Found::Done),
            Report::Failed(_) => self.found_late(call, Found::Failed),
            Report::Lost(_) => {}
        }
    }

    fn conclude(&mut self, claim: Claim, report: Report) {
        let call = claim.id();
        let outcome = claim.conclude(report);
        self.record(Event::Outcome { call, known: outcome.known().clone() });
        if let Known::Done(output) = outcome.known()
            && let Some(validity) = outcome.tool().examine(output).filter(|found| !found.findings.is_empty())
        {
            self.record(Event::Examined { call, validity });
        }
        let wish = outcome.request().wish();
        let unknown = match outcome.known() {
            // Another attempt at an operation that is open already adds nothing to what a person has to find out.
            Known::Unknown { .. } if self.ledger.is_open(outcome.op()) => None,
            Known::Unknown { loss, way_out } if outcome.nature().contract.changes() => Some(Unknown {
                op: outcome.op(),
                tool: wish.tool.clone(),
                shown: shown(wish.args.value()),
                loss: loss.clone(),
                way_out: *way_out,
                question: None,
                args: Some(std::sync::Arc::clone(wish.args.value())),
                since: None,
                contract: std::sync::Arc::clone(&outcome.nature().contract),
                noted: self.ledger.noted(call),
            }),
            Known::Unknown { .. } | Known::Done(_) | Known::Failed(_) => None,
        };
        let run = self.runs.get(&call.run);
        let key = QuestionKey {
            call,
            args: wish.args.hash(),
            facts: wish.facts.digest(),
            epoch: run.map_or(Epoch(0), |run| run.epoch),
        };
        let asker = run.map(|run| run.policy.asker.clone());
        self.leave(call);
        self.cancel_family(call);
        self.families.remove(&call);
        self.ledger.seen(call, outcome.known());
        self.settle(closure::settle(outcome));
        if let Some(unknown) = unknown {
            self.open_outcome(key, asker, unknown);
        }
        self.judge_effects(call);
    }

    /// Says which anomalies are there by what was learned of a call.
    pub(super) fn judge_effects(&mut self, call: CallId) {
        for change in self.ledger.judge(call) {
            self.record(Event::Anomaly { call, change });
        }
    }

    /// Writes the end of a call down, and answers the asker if it was the last of the batch.
    pub(super) fn settle(&mut self, settlement: Settlement) {
        let call = settlement.id();
        let entry = self.record(Event::Settled { call, ending: settlement.ending().clone() });
        if let Some(pending) = self.pending.get_mut(&call.batch) {
            pending.settled.insert(call.position, (settlement, entry));
            if pending.settled.len() == pending.len {
                self.answer_when_known(call.batch);
            }
        }
    }

    /// Nobody is told what the log does not know, once a call of the batch may have changed the world. While the log
    /// cannot be written, what was not started for that reason is told all the same, and what was protective and ran.
    pub(super) fn answer_when_known(&mut self, batch: BatchId) {
        let Some(pending) = self.pending.get(&batch) else { return };
        let excepted = !pending.changing || (!pending.ran && self.journal.is_degraded());
        let known = pending.settled.values().all(|(_, entry)| self.journal.is_committed(*entry));
        if !known && !excepted {
            self.unacknowledged.insert(batch);
            self.commit_now = true;
            return;
        }
        self.reply(batch);
    }

    fn reply(&mut self, batch: BatchId) {
        self.unacknowledged.remove(&batch);
        let Some(pending) = self.pending.remove(&batch) else { return };
        self.args_bytes -= pending.bytes;
        let run = pending.settled.values().next().map(|(settlement, _)| settlement.id().run);
        let journal = &self.journal;
        let replies = pending
            .settled
            .into_values()
            .map(|(settlement, entry)| settlement.reply(journal.is_committed(entry).then_some(entry)))
            .collect();
        self.acts.push(Action::Reply { batch, replies });
        self.forget_batch(run, batch);
    }

    fn forget_batch(&mut self, run: Option<crate::id::RunId>, batch: BatchId) {
        for family in self.families.values_mut() {
            family.remove(&batch);
        }
        if let Some(run) = run
            && let Some(owner) = self.runs.get_mut(&run)
        {
            owner.batches.remove(&batch);
            if owner.closing && owner.batches.is_empty() {
                self.runs.remove(&run);
            }
        }
    }
}

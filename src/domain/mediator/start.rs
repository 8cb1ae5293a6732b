//! From a ticket to a running call: declare, journal, take the turn, start.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::effect::Intent;
use crate::effect::journal::Entry;
use crate::event::Event;
use crate::id::{BatchId, CallId};
use crate::request::why::Why;
use crate::schedule::NoTurn;
use crate::surface::nature::Class;

use super::{Action, Mediator, Running};

impl Mediator {
    pub(super) fn committed(&mut self, upto: Entry) {
        self.journal.committed(upto);
        self.log_moved = true;
        let held: Vec<CallId> = self.journaled.keys().copied().collect();
        for call in held {
            let Some(journaled) = self.journaled.remove(&call) else { continue };
            match journaled.reconsider(&mut self.journal) {
                Ok(intent) => {
                    self.intents.insert(call, intent);
                }
                Err(journaled) => {
                    self.journaled.insert(call, journaled);
                }
            }
        }
        self.acknowledge();
    }

    /// What waits for the log does not start; what is protective goes on without it. Calls that run, run on.
    pub(super) fn commit_failed(&mut self) {
        self.journal.failed();
        self.log_moved = true;
        let waiting: Vec<CallId> =
            self.intents.values().filter(|intent| !intent.protective()).map(Intent::id).collect();
        for call in waiting {
            self.bar(call, &Why::NoEvidence);
        }
        self.acknowledge();
    }

    fn acknowledge(&mut self) {
        let waiting: Vec<BatchId> = self.unacknowledged.iter().copied().collect();
        for batch in waiting {
            self.answer_when_known(batch);
        }
    }

    /// Moves every call as far as it may go.
    pub(super) fn advance(&mut self) {
        loop {
            let held = std::mem::take(&mut self.clear_later);
            let freed = std::mem::take(&mut self.freed);
            let released = std::mem::take(&mut self.release_later);
            let up = self.board.next_up();
            if held.is_empty() && freed.is_empty() && released.is_empty() && up.is_empty() && !self.log_moved {
                return;
            }
            held.into_iter().for_each(|batch| self.clear(batch));
            released.into_iter().for_each(|batch| self.release(batch));
            up.into_iter().for_each(|call| self.declare(call));
            if std::mem::take(&mut self.log_moved) {
                self.journal_intents();
            }
            freed.into_iter().for_each(|call| self.start(call));
        }
    }

    fn declare(&mut self, call: CallId) {
        let Some(ticket) = self.tickets.remove(&call) else { return };
        let changes = ticket.nature().contract.changes();
        if changes && !ticket.protective() && self.journal.is_degraded() {
            self.end_unstarted(ticket.refuse(Why::NoEvidence));
            return;
        }
        let intent = match Intent::declare(ticket, &mut self.ledger) {
            Ok(intent) => intent,
            Err(refusal) => return self.end_unstarted(refusal),
        };
        let noted = self.ledger.declared(&intent);
        let wish = intent.request().wish();
        let event = Event::Intent {
            call,
            op: intent.op(),
            tool: wish.tool.clone(),
            args: Arc::clone(wish.args.value()),
            contract: Arc::clone(intent.contract()),
            noted,
        };
        let entry = self.journal.intend(&intent);
        self.entries.push((entry, event));
        if changes {
            self.commit_now = true;
            if let Some(pending) = self.pending.get_mut(&call.batch) {
                pending.changing = true;
            }
        }
        self.log_moved = true;
        self.intents.insert(call, intent);
    }

    fn journal_intents(&mut self) {
        let journal = &mut self.journal;
        let known: Vec<_> = self
            .intents
            .iter()
            .filter_map(|(call, intent)| journal.position(intent).map(|position| (*call, position)))
            .collect();
        for (call, position) in known {
            let Some(intent) = self.intents.remove(&call) else { continue };
            match intent.journaled(position) {
                Ok(journaled) => {
                    self.journaled.insert(call, journaled);
                    self.freed.push(call);
                }
                Err(intent) => {
                    self.intents.insert(call, intent);
                }
            }
        }
    }

    fn start(&mut self, call: CallId) {
        let Some(journaled) = self.journaled.remove(&call) else { return };
        let Some(epoch) = self.runs.get(&call.run).map(|run| run.epoch) else {
            self.end_unstarted(journaled.refuse(Why::NoSuchRun));
            return;
        };
        let turn = match self.board.turn(call, epoch) {
            Ok(turn) => turn,
            Err(NoTurn::NotYet) => {
                self.journaled.insert(call, journaled);
                return;
            }
            Err(NoTurn::Stale) => return self.end_unstarted(journaled.refuse(Why::PolicyChanged)),
            Err(NoTurn::NotInLine) => return self.end_unstarted(journaled.refuse(Why::Cancelled)),
        };
        match journaled.start(turn) {
            // The board gives a turn for the call that was named.
            Err(journaled) => self.end_unstarted(journaled.refuse(Why::Cancelled)),
            Ok((order, claim)) => {
                let until = self.now.after(claim.nature().patience);
                self.timers.insert((until, call));
                if claim.nature().contract.changes()
                    && !order.protective()
                    && let Some(pending) = self.pending.get_mut(&call.batch)
                {
                    pending.ran = true;
                }
                let composite = claim.nature().class == Class::Composite;
                self.running.insert(call, Running { claim, until, stop: None });
                self.record(Event::Started { call });
                self.acts.push(Action::Start(order));
                if composite {
                    // Its own wishes must not wait for what waits for it: it holds nothing while it runs.
                    self.families.insert(call, BTreeSet::new());
                    let freed = self.board.leave(call);
                    self.freed.extend(freed);
                }
            }
        }
    }
}

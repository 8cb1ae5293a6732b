//! Runs and batches: what begins, what is taken back, what changes under the calls.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::closure;
use crate::event::Event;
use crate::gate::breaker::Denials;
use crate::gate::docket::{Permit, judge};
use crate::gate::policy::Policy;
use crate::id::{BatchId, CallId, Epoch, RunId};
use crate::request::why::Why;
use crate::request::{Batch, Request};
use crate::surface::Surface;

use super::{
    ARGS_LIVE_BYTES_MAX, Action, DOCKETS_MAX, Mediator, Opening, Pending, RUNS_MAX, Run, STOP_GRACE, StopCause,
};

impl Mediator {
    /// A child gets at most what its parent has. A child of nobody, and a run beyond the bound, is not opened: its
    /// wishes are refused one by one.
    pub(super) fn open(&mut self, opening: Opening) {
        let Opening { run, parent, surface, narrowing, policy } = opening;
        let (surface, policy) = match parent {
            None => (surface.narrowed(&narrowing), policy),
            Some(parent) => {
                let Some(above) = self.runs.get(&parent) else { return };
                let policy = above.policy.narrowed(policy.asker.clone(), policy.mode);
                (above.surface.narrowed(&narrowing), policy)
            }
        };
        if let Some(open) = self.runs.get_mut(&run) {
            open.narrowing = narrowing;
            self.change(run, policy, Some(surface));
            return;
        }
        if self.runs.len() >= RUNS_MAX || self.draining {
            return;
        }
        self.record(Event::RunOpened { run, parent, asker: policy.asker.clone(), mode: policy.mode });
        let policy = Arc::new(policy);
        let fresh = Run {
            parent,
            surface,
            narrowing,
            policy,
            epoch: Epoch(0),
            batches: BTreeSet::new(),
            denials: Denials::default(),
            closing: false,
        };
        self.runs.insert(run, fresh);
    }

    pub(super) fn close(&mut self, run: RunId) {
        let Some(closing) = self.runs.get_mut(&run) else { return };
        closing.closing = true;
        let batches: Vec<BatchId> = closing.batches.iter().copied().collect();
        let children: Vec<RunId> = self.children(run);
        if batches.is_empty() {
            self.runs.remove(&run);
        }
        for child in children {
            self.close(child);
        }
        for batch in batches {
            self.cancel(batch);
        }
    }

    fn children(&self, run: RunId) -> Vec<RunId> {
        // A run that names itself as its parent was not opened: its parent did not exist then.
        self.runs.iter().filter(|(_, child)| child.parent == Some(run)).map(|(id, _)| *id).collect()
    }

    pub(super) fn policy(&mut self, run: RunId, policy: Policy) {
        let clamped = match self.runs.get(&run).map(|run| run.parent) {
            None => return,
            Some(None) => policy,
            Some(Some(parent)) => match self.runs.get(&parent) {
                Some(above) => above.policy.narrowed(policy.asker.clone(), policy.mode),
                None => policy,
            },
        };
        self.change(run, clamped, None);
    }

    /// Other tools for a run of nobody's and for its children, each through its own lists.
    pub(super) fn see(&mut self, run: RunId, surface: Surface) {
        match self.runs.get_mut(&run) {
            Some(seeing) if seeing.parent.is_none() => seeing.surface = surface.narrowed(&seeing.narrowing),
            Some(_) | None => return,
        }
        let mut below = vec![run];
        while let Some(parent) = below.pop() {
            let Some(above) = self.runs.get(&parent).map(|run| run.surface.clone()) else { continue };
            for child in self.children(parent) {
                if let Some(run) = self.runs.get_mut(&child) {
                    run.surface = above.narrowed(&run.narrowing);
                    below.push(child);
                }
            }
        }
    }

    /// A new epoch for the run and its children. What has not started under the old one does not start.
    fn change(&mut self, run: RunId, policy: Policy, surface: Option<Surface>) {
        let Some(changed) = self.runs.get_mut(&run) else { return };
        changed.epoch = Epoch(changed.epoch.0 + 1);
        changed.denials = Denials::default();
        let (epoch, mode) = (changed.epoch, policy.mode);
        changed.policy = Arc::new(policy);
        if let Some(surface) = surface {
            changed.surface = surface;
        }
        let (above, tools) = (Arc::clone(&changed.policy), changed.surface.clone());
        self.record(Event::PolicyChanged { run, epoch, mode });
        let batches = changed_batches(self, run);
        for batch in batches {
            self.void(batch, &Why::PolicyChanged, Spared::Protective);
        }
        for child in self.children(run) {
            if let Some(below) = self.runs.get(&child) {
                let policy = above.narrowed(below.policy.asker.clone(), below.policy.mode);
                let surface = tools.narrowed(&below.narrowing);
                self.change(child, policy, Some(surface));
            }
        }
    }

    pub(super) fn submit(&mut self, run: RunId, batch: BatchId, wishes: Batch) {
        if self.last_batch.is_some_and(|last| batch <= last) {
            // A number that was used: its calls would carry the names of others, so nothing of it is taken.
            self.acts.push(Action::Reply { batch, replies: Vec::new() });
            return;
        }
        self.last_batch = Some(batch);
        if wishes.is_empty() {
            self.acts.push(Action::Reply { batch, replies: Vec::new() });
            return;
        }
        let requests = Request::number(run, batch, wishes);
        let bytes = requests.iter().map(|request| request.wish().args.bytes()).sum();
        let pending = Pending {
            len: requests.len(),
            settled: std::collections::BTreeMap::new(),
            changing: false,
            ran: false,
            bytes,
        };
        for request in &requests {
            let wish = request.wish();
            self.record(Event::Requested {
                call: request.call(),
                tool: wish.tool.clone(),
                args: wish.args.clone(),
                parent: wish.parent,
            });
        }
        self.pending.insert(batch, pending);
        self.args_bytes += bytes;
        let shut = match self.runs.get_mut(&run) {
            _ if self.draining => Some(Why::Interrupted),
            None => Some(Why::NoSuchRun),
            Some(run) if run.closing => Some(Why::NoSuchRun),
            Some(run) => {
                run.batches.insert(batch);
                None
            }
        };
        let urgent = requests.iter().all(|request| request.wish().protective);
        let shut = shut.or_else(|| {
            let flooded = self.args_bytes > ARGS_LIVE_BYTES_MAX && !urgent;
            flooded.then_some(Why::InputFlood { limit: ARGS_LIVE_BYTES_MAX })
        });
        if let Some(why) = shut {
            requests.into_iter().for_each(|request| self.end_unstarted(request.refuse(why.clone())));
            return;
        }
        let requests = self.of_family(run, batch, requests);
        self.judge(run, batch, requests);
    }

    /// A wish that is made in the name of another call goes on only while that call runs, is a composite, and its run
    /// is this one or an ancestor of it.
    fn of_family(&mut self, run: RunId, batch: BatchId, requests: Vec<Request>) -> Vec<Request> {
        let mut taken = Vec::with_capacity(requests.len());
        for request in requests {
            match request.wish().parent {
                None => taken.push(request),
                Some(parent) if self.acts_for(run, parent) => {
                    if let Some(family) = self.families.get_mut(&parent) {
                        family.insert(batch);
                    }
                    taken.push(request);
                }
                Some(parent) => self.end_unstarted(request.refuse(Why::ParentEnded { parent })),
            }
        }
        taken
    }

    fn acts_for(&self, run: RunId, parent: CallId) -> bool {
        let runs = self.running.get(&parent).is_some_and(|running| running.stop.is_none());
        let mut line = std::iter::successors(Some(run), |run| self.runs.get(run).and_then(|run| run.parent));
        runs && self.families.contains_key(&parent) && line.any(|one| one == parent.run)
    }

    fn judge(&mut self, run: RunId, batch: BatchId, requests: Vec<Request>) {
        let Some(owner) = self.runs.get_mut(&run) else {
            requests.into_iter().for_each(|request| self.end_unstarted(request.refuse(Why::NoSuchRun)));
            return;
        };
        let (policy, epoch) = (Arc::clone(&owner.policy), owner.epoch);
        let mut denials = std::mem::take(&mut owner.denials);
        let resolved: Vec<_> = requests.into_iter().map(|request| owner.surface.resolve(request)).collect();
        let mut calls = Vec::with_capacity(resolved.len());
        for result in resolved {
            match result {
                Ok(call) => calls.push(call),
                Err(refusal) => self.end_unstarted(refusal),
            }
        }
        let (mut docket, refused) = judge(&policy, epoch, calls, &mut self.questions, &mut denials, self.now);
        if let Some(owner) = self.runs.get_mut(&run) {
            owner.denials = denials;
        }
        for refusal in refused {
            self.end_unstarted(refusal);
        }
        if docket.questions().next().is_some() && self.dockets.len() >= DOCKETS_MAX {
            for (_, refusal) in docket.void(&Why::Busy { limit: DOCKETS_MAX }) {
                self.end_unstarted(refusal);
            }
            return;
        }
        for question in docket.questions().cloned().collect::<Vec<_>>() {
            self.asked.insert(question.id, (batch, question.key));
            self.record(Event::Asked { question: question.clone() });
            self.acts.push(Action::Ask(question));
        }
        // After a crash nobody could tell whether they ran, if this came only with their start.
        if docket.questions().next().is_some() {
            let told: Vec<Event> = docket.protective().filter_map(permitted).collect();
            for event in told {
                self.record(event);
            }
        }
        self.dockets.insert(batch, docket);
        self.clear(batch);
    }

    /// Lets the batch go on if no question of it is open.
    pub(super) fn clear(&mut self, batch: BatchId) {
        let Some(docket) = self.dockets.remove(&batch) else { return };
        match docket.clear() {
            Err(docket) => {
                self.dockets.insert(batch, docket);
            }
            Ok(permits) => permits.into_iter().for_each(|permit| self.permit(permit)),
        }
    }

    fn permit(&mut self, mut permit: Permit) {
        let call = permit.id();
        if let Some(event) = permitted(&mut permit) {
            self.record(event);
        }
        if permit.protective() {
            let nature = Arc::clone(permit.nature());
            self.supersede(&nature, call);
        }
        match self.hold.pass(permit) {
            Err(refusal) => self.end_unstarted(refusal),
            Ok(None) => {}
            Ok(Some(permit)) => self.admit(permit),
        }
    }

    /// Lets what a composite held go to the line.
    pub(super) fn release(&mut self, batch: BatchId) {
        for permit in self.hold.release(batch) {
            self.admit(permit);
        }
    }

    fn admit(&mut self, permit: Permit) {
        let call = permit.id();
        match self.board.admit(permit) {
            Err(refusal) => self.end_unstarted(refusal),
            Ok(ticket) => {
                self.record(Event::Queued { call, class: ticket.nature().class.clone() });
                self.tickets.insert(call, ticket);
            }
        }
    }

    /// What was wished for before an emergency, and touches the same things, must not come after it.
    fn supersede(&mut self, protective: &crate::surface::nature::Nature, by: CallId) {
        let outside = self.hold.superseded_by(protective, by);
        for call in self.board.superseded_by(protective).into_iter().chain(outside) {
            self.bar(call, &Why::Superseded { by });
        }
        let held: Vec<BatchId> = self.dockets.keys().copied().collect();
        for batch in held {
            let gone = self.dockets.get_mut(&batch).map(|docket| docket.supersede(protective, by));
            for (question, refusal) in gone.into_iter().flatten() {
                self.withdraw(question);
                self.end_unstarted(refusal);
            }
            self.clear_later.push(batch);
        }
    }

    /// Takes a call that waits from its shelf and refuses it. One that runs, or is at the gate, is left alone.
    pub(super) fn bar(&mut self, call: CallId, why: &Why) {
        let refusal = if let Some(ticket) = self.tickets.remove(&call) {
            ticket.refuse(why.clone())
        } else if let Some(intent) = self.intents.remove(&call) {
            intent.refuse(why.clone())
        } else if let Some(journaled) = self.journaled.remove(&call) {
            journaled.refuse(why.clone())
        } else if let Some(permit) = self.hold.take(call) {
            permit.refuse(why.clone())
        } else {
            return;
        };
        self.end_unstarted(refusal);
    }

    /// Bars all of a batch that has not started.
    fn void(&mut self, batch: BatchId, why: &Why, spared: Spared) {
        if let Some(docket) = self.dockets.remove(&batch) {
            for (question, refusal) in docket.void(why) {
                self.withdraw(question);
                self.end_unstarted(refusal);
            }
        }
        let waiting = self
            .tickets
            .iter()
            .map(|(call, ticket)| (*call, ticket.protective()))
            .chain(self.intents.iter().map(|(call, intent)| (*call, intent.protective())))
            .chain(self.journaled.iter().map(|(call, journaled)| (*call, journaled.protective())))
            .chain(self.hold.of_batch(batch));
        let barred: Vec<CallId> = waiting
            .filter(|(call, protective)| call.batch == batch && !(*protective && spared == Spared::Protective))
            .map(|(call, _)| call)
            .collect();
        barred.into_iter().for_each(|call| self.bar(call, why));
    }

    pub(super) fn cancel(&mut self, batch: BatchId) {
        self.void(batch, &Why::Cancelled, Spared::Nothing);
        let running: Vec<CallId> = self.running.keys().filter(|call| call.batch == batch).copied().collect();
        for call in running {
            self.ask_to_stop(call, StopCause::Cancelled);
        }
    }

    pub(super) fn drain(&mut self) {
        self.draining = true;
        let batches: Vec<BatchId> = self.pending.keys().copied().collect();
        for batch in batches {
            self.cancel(batch);
        }
    }

    /// Asks a call to stop, once; the grace begins now, so that a late step does not eat it up.
    pub(super) fn ask_to_stop(&mut self, call: CallId, cause: StopCause) {
        let Some(running) = self.running.get_mut(&call) else { return };
        if running.stop.is_some() {
            return;
        }
        let until = self.now.after(STOP_GRACE);
        self.timers.remove(&(running.until, call));
        self.timers.insert((until, call));
        running.until = until;
        running.stop = Some(cause);
        self.record(Event::StopAsked { call });
        self.acts.push(Action::Stop { call });
        self.cancel_family(call);
    }

    /// Nobody waits for what was wished for in the name of this call any more.
    pub(super) fn cancel_family(&mut self, call: CallId) {
        for batch in self.families.get(&call).cloned().unwrap_or_default() {
            self.cancel(batch);
        }
    }

    /// Settles a call that will not start, and lets those behind it step up.
    pub(super) fn end_unstarted(&mut self, refusal: crate::request::Refusal) {
        let call = refusal.request().call();
        self.journal.forget(call);
        self.ledger.forget(call);
        self.leave(call);
        self.settle(closure::refuse(refusal));
    }

    /// A call has ended, or will not start: what waited for that may go on.
    pub(super) fn leave(&mut self, call: CallId) {
        let freed = self.board.leave(call);
        self.freed.extend(freed);
        self.hold.ended(call);
        self.release_later.insert(call.batch);
    }
}

/// What a void leaves alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Spared {
    Nothing,
    /// A protective action runs in every mode: no change of policy takes it back.
    Protective,
}

fn changed_batches(mediator: &Mediator, run: RunId) -> Vec<BatchId> {
    mediator.runs.get(&run).map_or_else(Vec::new, |run| run.batches.iter().copied().collect())
}

/// That the gate lets a call go on, where that does not stand in the log yet.
fn permitted(permit: &mut Permit) -> Option<Event> {
    permit.tell().then(|| {
        let decision = permit.decision();
        Event::Permitted {
            call: permit.id(),
            step: decision.step,
            rule: decision.rule.clone(),
            epoch: permit.epoch(),
            risk: permit.nature().risk,
            protective: permit.protective(),
        }
    })
}

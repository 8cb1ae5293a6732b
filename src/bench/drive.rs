//! A driver of the mediator for measurements: the same machine and the same log as the daemon's, and work that the
//! measurement brings along.
//!
//! It decides nothing. What it adds to the machine (one task for each call, one channel, the writer's queue) is what the
//! daemon's owner adds, so that the difference between wall time and service times is the price of mediation.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use interlock_domain::closure::Reply;
use interlock_domain::effect::Order;
use interlock_domain::effect::journal::Entry;
use interlock_domain::effect::report::{Loss, Report};
use interlock_domain::event::Event;
use interlock_domain::gate::policy::Policy;
use interlock_domain::id::{BatchId, CallId, QuestionId, RunId};
use interlock_domain::mediator::{Action, Input, Mediator, Opening};
use interlock_domain::request::{Asker, Batch, Via, Wish};
use interlock_domain::surface::Surface;
use interlock_domain::surface::narrow::Narrowing;
use tokio::sync::watch;
use tokio::task::{Id, JoinSet};

use crate::record::event::row;
use crate::store::queue::{Acks, Health, Tell, Writer};
use crate::sys::clock;

/// What an order does. It may panic or never end, as tools do.
pub type Work = Arc<dyn Fn(Order) -> Pin<Box<dyn Future<Output = Report> + Send>> + Send + Sync>;

/// How one batch went.
#[derive(Debug)]
pub struct Went {
    /// The replies, in call order.
    pub replies: Vec<Reply>,
    /// From the wish to the last report of a tool.
    pub to_last_outcome: Duration,
    /// From the wish to the reply, which may wait for the log.
    pub to_reply: Duration,
    /// How long each call's work took, from its start to its report.
    pub service: BTreeMap<u32, Duration>,
    /// The words of the records, in their order.
    pub events: Vec<(Option<CallId>, &'static str)>,
}

/// The driver.
pub struct Driver {
    machine: Mediator,
    run: RunId,
    next_batch: u64,
    log: Option<(Writer, watch::Receiver<Acks>)>,
    work: Work,
    running: JoinSet<(CallId, Report, Duration)>,
    calls: BTreeMap<Id, CallId>,
}

impl Driver {
    /// With one run that an operator has opened. Without a log each record counts as written at once.
    #[must_use]
    pub fn new(surface: Surface, policy: impl FnOnce(Policy) -> Policy, log: Option<Writer>, work: Work) -> Driver {
        let run = RunId::new(1, 1);
        let asker = Asker { via: Via::Cli, name: "bench".to_owned() };
        let mut driver = Driver {
            machine: Mediator::new(QuestionId(1)),
            run,
            next_batch: 1,
            log: log.map(|writer| {
                let acks = writer.acks();
                (writer, acks)
            }),
            work,
            running: JoinSet::new(),
            calls: BTreeMap::new(),
        };
        let opening = Opening {
            run,
            parent: None,
            surface,
            narrowing: Narrowing::default(),
            policy: policy(Policy::plain(asker)),
        };
        driver.machine.step(Input::Open(Box::new(opening)), clock::now());
        driver.carry_out(&mut Vec::new(), &mut None);
        driver
    }

    /// Hands in a batch and drives it to its reply.
    pub async fn batch(&mut self, wishes: Vec<Wish>) -> Went {
        self.batch_with(wishes, |_| None).await
    }

    /// As [`Driver::batch`]; `meanwhile` is asked after each step and may bring in something else, such as a cancel.
    pub async fn batch_with(
        &mut self,
        wishes: Vec<Wish>,
        mut meanwhile: impl FnMut(&[(Option<CallId>, &'static str)]) -> Option<Input>,
    ) -> Went {
        let begun = Instant::now();
        let batch = BatchId(self.next_batch);
        self.next_batch += 1;
        let mut events = Vec::new();
        let mut replies = None;
        let mut service = BTreeMap::new();
        let mut last = begun;
        // More wishes than a batch takes are none at all; measurements have few.
        let wishes = Batch::new(wishes).unwrap_or_else(|_| Batch::default());
        self.machine.step(Input::Submit { run: self.run, batch, wishes }, clock::now());
        self.carry_out(&mut events, &mut replies);
        while replies.is_none() {
            if let Some(input) = meanwhile(&events) {
                self.machine.step(input, clock::now());
                self.carry_out(&mut events, &mut replies);
                continue;
            }
            let wake = self.machine.wake_at().map(|at| tokio::time::Instant::now() + at.since(clock::now()));
            let input = tokio::select! {
                biased;
                input = committed(&mut self.log) => input,
                Some(ended) = self.running.join_next_with_id() => match ended {
                    Ok((id, (call, report, took))) => {
                        self.calls.remove(&id);
                        service.insert(call.position, took);
                        last = Instant::now();
                        Input::Ended { call, report }
                    }
                    Err(error) => {
                        last = Instant::now();
                        let panicked = error.is_panic();
                        let Some(call) = self.calls.remove(&error.id()) else { continue };
                        let loss = if panicked { Loss::Panicked("in its work".to_owned()) } else { Loss::Stopped };
                        Input::Ended { call, report: Report::Lost(loss) }
                    }
                },
                () = until(wake) => Input::Tick,
            };
            self.machine.step(input, clock::now());
            self.carry_out(&mut events, &mut replies);
        }
        Went {
            replies: replies.unwrap_or_default(),
            to_last_outcome: last - begun,
            to_reply: begun.elapsed(),
            service,
            events,
        }
    }

    /// Carries out what the machine wants, in its order.
    fn carry_out(&mut self, events: &mut Vec<(Option<CallId>, &'static str)>, replies: &mut Option<Vec<Reply>>) {
        loop {
            let mut recorded = None;
            while let Some(action) = self.machine.next_action() {
                match action {
                    Action::Record { entries, now } => {
                        events.extend(entries.iter().map(|(_, event)| (event.call(), event.word())));
                        recorded = entries.last().map(|(entry, _)| *entry);
                        self.write(entries, now);
                    }
                    Action::Start(order) => self.start(order),
                    Action::Stop { call } => {
                        let task = self.calls.iter().find(|(_, running)| **running == call).map(|(id, _)| *id);
                        tracing::debug!(%call, known = task.is_some(), "asked to stop");
                    }
                    Action::Reply { replies: ours, .. } => *replies = Some(ours),
                    Action::Ask(_) | Action::Withdraw { .. } | Action::Look { .. } => {}
                }
            }
            match (recorded, &self.log) {
                (Some(upto), None) => self.machine.step(Input::Committed { upto }, clock::now()),
                (Some(_) | None, _) => return,
            }
        }
    }

    fn write(&mut self, entries: Vec<(Entry, Event)>, now: bool) {
        let Some((writer, _)) = &self.log else { return };
        for (entry, event) in entries {
            let row = row(&event, crate::bench::stamp());
            let waiting = crate::store::queue::Entry { row, now, tell: Tell::Ticket(entry.0), receipt: None };
            // A measurement writes a few rows a millisecond; the queue holds thousands.
            if let Err(error) = writer.append(waiting) {
                tracing::error!(%error, "a row of a measurement was not taken");
            }
        }
    }

    fn start(&mut self, order: Order) {
        let (call, work) = (order.call(), Arc::clone(&self.work));
        let task = self.running.spawn(async move {
            let begun = Instant::now();
            let report = work(order).await;
            (call, report, begun.elapsed())
        });
        self.calls.insert(task.id(), call);
    }
}

/// Waits until the log has more; for ever where there is none.
async fn committed(log: &mut Option<(Writer, watch::Receiver<Acks>)>) -> Input {
    let Some((_, acks)) = log else { return std::future::pending().await };
    if acks.changed().await.is_err() {
        return std::future::pending().await;
    }
    let seen = *acks.borrow_and_update();
    match seen.health {
        Health::Writing => Input::Committed { upto: Entry(seen.ticket) },
        Health::Degraded(_) => Input::CommitFailed,
    }
}

async fn until(deadline: Option<tokio::time::Instant>) {
    match deadline {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

//! The owner of one bus: takes jobs, keeps the connection, rests after a failure.
//!
//! It never repeats a write that may have arrived, and never begins a job whose caller has gone: an operator who
//! cancelled must not see the pump start a minute later.

use std::time::Duration;

use interlock_domain::device::plan::Step;
use interlock_domain::device::table::Bus;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::guard::Guard;
use super::wire::{Trouble, Wire};
use super::{Ended, Job};

/// The rest after the first failed connection; it doubles up to [`REST_MAX`]. Not to hammer a device that is booting.
const REST_MIN: Duration = Duration::from_millis(100);

/// The longest rest: a person who has plugged the cable in again waits no longer than that.
const REST_MAX: Duration = Duration::from_secs(1);

/// A job that waited so long for its turn is not begun: by now its caller acts on an old picture of the plant. An
/// emergency stop is right in any picture.
const QUEUE_PATIENCE: Duration = Duration::from_secs(10);

/// Takes jobs until both senders are gone.
pub(super) async fn run(bus: Bus, mut urgent: mpsc::Receiver<Job>, mut inbox: mpsc::Receiver<Job>) {
    let mut state = State { bus, wire: None, rest: Duration::ZERO };
    let mut rested_at = Instant::now();
    let (mut urgent_open, mut inbox_open) = (true, true);
    while urgent_open || inbox_open {
        // While the bus rests, ordinary jobs wait in the inbox; an emergency stop does not.
        let resting = rested_at > Instant::now();
        let job = tokio::select! {
            biased;
            job = urgent.recv(), if urgent_open => {
                urgent_open = job.is_some();
                job
            }
            () = sleep_until(rested_at), if resting => None,
            job = inbox.recv(), if inbox_open && !resting => {
                inbox_open = job.is_some();
                job
            }
        };
        let Some(job) = job else { continue };
        if job.reply.is_closed() {
            continue;
        }
        if !job.protective && job.since.elapsed() > QUEUE_PATIENCE {
            let text = format!("bus {} did not come to it within {} s", state.bus.name, QUEUE_PATIENCE.as_secs());
            answer(job, Ended { answers: Vec::new(), trouble: Some(Trouble::NotSent { code: "bus_busy", text }) });
            continue;
        }
        let mut job = job;
        let (guard, steps) = (job.guard.take(), job.steps.clone());
        let bus = state.bus.clone();
        // A task of its own, so that a panic of a decoder ends one job and not the lane.
        let (back, ended) = match tokio::spawn(async move { state.carry_out(guard, &steps).await }).await {
            Ok((state, ended)) => (state, ended),
            Err(crash) => {
                let trouble =
                    if crash.is_panic() { Trouble::Panicked(text(crash.into_panic())) } else { Trouble::Stopped };
                let fresh = State { bus, wire: None, rest: Duration::ZERO };
                (fresh, Ended { answers: Vec::new(), trouble: Some(trouble) })
            }
        };
        state = back;
        rested_at = Instant::now() + state.rest;
        // Whoever waited during an attempt to connect is answered by it: each with an attempt of its own would wait in
        // line for nothing. They are taken out before the first is answered; who asks after an answer asks anew.
        let unreachable = (!state.rest.is_zero()).then(|| ended.trouble.clone()).flatten();
        let mut waiting = Vec::new();
        while unreachable.is_some()
            && let Ok(job) = inbox.try_recv()
        {
            waiting.push(job);
        }
        answer(job, ended);
        for job in waiting {
            answer(job, Ended { answers: Vec::new(), trouble: unreachable.clone() });
        }
    }
}

fn answer(job: Job, ended: Ended) {
    if job.reply.send(ended).is_err() {
        tracing::debug!("bus: the caller left before the answer");
    }
}

fn text(panic: Box<dyn std::any::Any + Send>) -> String {
    match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => panic.downcast_ref::<&str>().map_or_else(|| "panic".to_owned(), |text| (*text).to_owned()),
    }
}

struct State {
    bus: Bus,
    wire: Option<Wire>,
    /// How long to rest before the next connection; zero after a good one.
    rest: Duration,
}

impl State {
    async fn carry_out(mut self, guard: Option<Guard>, steps: &[Step]) -> (State, Ended) {
        if let Some(mut guard) = guard {
            for span in guard.own() {
                let answer = self.step(&Step::Read(span.clone())).await;
                guard.take(&span, answer);
            }
            if let Err(breach) = guard.judge() {
                let trouble = Trouble::NotSent { code: breach.code, text: breach.text };
                return (self, Ended { answers: Vec::new(), trouble: Some(trouble) });
            }
        }
        let mut answers = Vec::with_capacity(steps.len());
        for step in steps {
            match self.step(step).await {
                Ok(answer) => answers.push(answer),
                Err(trouble) => return (self, Ended { answers, trouble: Some(trouble) }),
            }
        }
        (self, Ended { answers, trouble: None })
    }

    /// One step, and once more on a new connection when an old one broke under it and nothing can have changed: a
    /// device may close an idle connection at any moment, the one in which we send included.
    async fn step(&mut self, step: &Step) -> Result<Vec<u16>, Trouble> {
        let mut wire = self.connected().await?;
        let was_fresh = wire.is_fresh();
        match once(&mut wire, step, self.bus.timeout).await {
            Err(Trouble::NotSent { code: "connection_lost", .. }) if !was_fresh => {}
            Err(Trouble::Broken(_)) if !was_fresh && matches!(step, Step::Read(_)) => {}
            done => return self.kept(wire, done),
        }
        drop(wire);
        let mut wire = self.connected().await?;
        let done = once(&mut wire, step, self.bus.timeout).await;
        self.kept(wire, done)
    }

    async fn connected(&mut self) -> Result<Wire, Trouble> {
        if let Some(wire) = self.wire.take().filter(|wire| !wire.is_stale()) {
            return Ok(wire);
        }
        match Wire::open(&self.bus).await {
            Ok(wire) => {
                self.rest = Duration::ZERO;
                Ok(wire)
            }
            Err(trouble) => {
                self.rest = (self.rest * 2).clamp(REST_MIN, REST_MAX);
                Err(trouble)
            }
        }
    }

    /// Only an answer that fits leaves the connection as it was: whatever else may still come on it belongs to nobody.
    fn kept(&mut self, wire: Wire, done: Result<Vec<u16>, Trouble>) -> Result<Vec<u16>, Trouble> {
        match &done {
            Ok(_) | Err(Trouble::Exception(_)) => self.wire = Some(wire),
            Err(
                Trouble::NotSent { .. }
                | Trouble::NoAnswer
                | Trouble::Broken(_)
                | Trouble::Nonsense(_)
                | Trouble::Panicked(_)
                | Trouble::Stopped,
            ) => {}
        }
        done
    }
}

async fn once(wire: &mut Wire, step: &Step, limit: Duration) -> Result<Vec<u16>, Trouble> {
    match step {
        Step::Read(span) => wire.read(span, limit).await,
        Step::Write(put) => wire.write(put, limit).await.map(|()| Vec::new()),
    }
}

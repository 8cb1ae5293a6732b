//! Modbus buses: one owner task for each, which sends one request after the other.
//!
//! A bus is a lane. Its task alone holds the connection; everyone else holds a bounded sender, so a dead or slow bus
//! keeps nobody on another one waiting. What the task reports is exact about one thing above all: whether a request
//! may have reached the device. A write that may have arrived is never called failed, and never sent again.
//!
//! Writes are not read back: many registers cannot be, or hold something else by then. The device's answer repeats
//! address and value, and that echo is held against what was sent.

mod guard;
mod lane;
mod wire;

use std::collections::BTreeMap;

use interlock_domain::device::plan::{Plan, Step};
use interlock_domain::device::table::Devices;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

pub use wire::{Trouble, exception_name};

/// Requests that may wait for one bus. At 20 ms an answer that is more than a second of work; who comes later is
/// told that the bus is busy, and not kept waiting for longer than a person waits.
pub const INBOX_LEN: usize = 64;

/// Protective requests that may wait for one bus: they go before all others.
pub const URGENT_LEN: usize = 16;

/// How a plan ended on its bus.
#[derive(Debug)]
pub struct Ended {
    /// The answers to the steps that succeeded, in order: registers, or bits as 0 and 1; nothing for a write.
    pub answers: Vec<Vec<u16>>,
    /// What became of the next step, when not all succeeded. Later steps were not begun.
    pub trouble: Option<Trouble>,
}

struct Job {
    /// What must be read to be so before the first step.
    guard: Option<guard::Guard>,
    steps: Vec<Step>,
    protective: bool,
    since: Instant,
    reply: oneshot::Sender<Ended>,
}

#[derive(Debug)]
struct Lane {
    urgent: mpsc::Sender<Job>,
    inbox: mpsc::Sender<Job>,
}

/// The lanes of all buses. A lane ends, after what it is doing, when this is dropped.
#[derive(Debug)]
pub struct Buses {
    lanes: BTreeMap<String, Lane>,
}

impl Buses {
    /// Starts a lane for each bus, on the runtime of the caller. Nothing is connected before the first request.
    #[must_use]
    pub fn start(devices: &Devices) -> Buses {
        let lanes = devices.buses().map(|bus| {
            let (urgent, urgent_inbox) = mpsc::channel(URGENT_LEN);
            let (inbox, rest) = mpsc::channel(INBOX_LEN);
            // The task owns itself: it ends when both senders are gone.
            drop(tokio::spawn(lane::run(bus.clone(), urgent_inbox, rest)));
            (bus.name.clone(), Lane { urgent, inbox })
        });
        Buses { lanes: lanes.collect() }
    }

    /// Carries a plan out and waits for its end. Dropped before its first step began, it never begins; dropped later,
    /// the step in hand ends and its answer is lost.
    pub async fn carry_out(&self, plan: &Plan) -> Ended {
        let guard = if plan.guard.is_empty() { None } else { Some(guard::Guard::prepare(self, plan).await) };
        self.queue(&plan.bus, plan.protective, plan.steps.clone(), guard).await
    }

    async fn queue(&self, bus: &str, protective: bool, steps: Vec<Step>, guard: Option<guard::Guard>) -> Ended {
        let refused =
            |code, text: String| Ended { answers: Vec::new(), trouble: Some(Trouble::NotSent { code, text }) };
        let Some(lane) = self.lanes.get(bus) else {
            return refused("no_such_bus", format!("there is no bus named {bus}"));
        };
        let (reply, ended) = oneshot::channel();
        let job = Job { guard, steps, protective, since: Instant::now(), reply };
        let sender = if protective { &lane.urgent } else { &lane.inbox };
        match sender.try_send(job) {
            Ok(()) => {}
            Err(mpsc::error::TrySendError::Full(_)) => {
                return refused("bus_busy", format!("bus {bus} has as many requests as it can take"));
            }
            Err(mpsc::error::TrySendError::Closed(_)) => {
                return refused("bus_stopped", format!("bus {bus} was stopped"));
            }
        }
        ended.await.unwrap_or_else(|_| Ended { answers: Vec::new(), trouble: Some(Trouble::Stopped) })
    }
}

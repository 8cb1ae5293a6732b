//! The readings that stand before a write: those of the same bus are read in its lane, right before the first step;
//! those of another bus are read before the job is queued, and must not be old by the time it begins.
//!
//! A lane never waits for another lane: two jobs that guard each other would stand still together.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use interlock_domain::device::codec::Reading;
use interlock_domain::device::interlock::{Breach, Interlock, asked, judge};
use interlock_domain::device::plan::{Plan, Span, Step, spans};
use tokio::time::Instant;

use super::wire::Trouble;
use super::{Buses, exception_name};

/// How old a reading of another bus may be when the write begins. A process moves little in this time; a job that
/// waited longer in its lane is refused, and may be asked for again.
const AGE_MAX: Duration = Duration::from_secs(2);

/// What one guarded job must find.
#[derive(Debug)]
pub(super) struct Guard {
    interlocks: Vec<Arc<Interlock>>,
    own: Vec<(String, Span)>,
    had: BTreeMap<(String, String), Result<Reading, String>>,
    /// Since when the oldest reading of another bus is known.
    since: Option<Instant>,
}

impl Guard {
    /// Reads what lies on other buses, and notes what the lane has to read.
    pub(super) async fn prepare(buses: &Buses, plan: &Plan) -> Guard {
        let mut guard = Guard { interlocks: plan.guard.clone(), own: Vec::new(), had: BTreeMap::new(), since: None };
        let mut by_device: BTreeMap<(String, String), (u8, Vec<_>)> = BTreeMap::new();
        for asked in asked(&plan.guard) {
            let key = (asked.bus.clone(), asked.device.clone());
            by_device.entry(key).or_insert((asked.unit, Vec::new())).1.push(Arc::clone(&asked.point));
        }
        for ((bus, device), (unit, points)) in by_device {
            for span in spans(unit, points) {
                if bus == plan.bus {
                    guard.own.push((device.clone(), span));
                    continue;
                }
                guard.since.get_or_insert_with(Instant::now);
                let mut ended = buses.queue_read(&bus, plan.protective, span.clone()).await;
                let answer = match ended.trouble {
                    None => Ok(ended.answers.pop().unwrap_or_default()),
                    Some(trouble) => Err(trouble),
                };
                guard.keep(&device, &span, answer);
            }
        }
        guard
    }

    /// What the lane reads.
    pub(super) fn own(&self) -> Vec<Span> {
        self.own.iter().map(|(_, span)| span.clone()).collect()
    }

    /// The answer to one of them.
    pub(super) fn take(&mut self, span: &Span, answer: Result<Vec<u16>, Trouble>) {
        let device = self.own.iter().find(|(_, own)| own == span).map(|(device, _)| device.clone());
        self.keep(&device.unwrap_or_default(), span, answer);
    }

    fn keep(&mut self, device: &str, span: &Span, answer: Result<Vec<u16>, Trouble>) {
        for point in &span.points {
            let reading = match &answer {
                Ok(words) => span.reading(point, words).map_err(|error| error.to_string()),
                Err(trouble) => Err(told(trouble)),
            };
            self.had.insert((device.to_owned(), point.name.clone()), reading);
        }
    }

    /// Whether the job may begin.
    pub(super) fn judge(&self) -> Result<(), Breach> {
        let stale = self.since.is_some_and(|since| since.elapsed() > AGE_MAX);
        judge(&self.interlocks, |asked| {
            let key = (asked.device.clone(), asked.point.name.clone());
            let is_own = self.own.iter().any(|(device, _)| *device == asked.device);
            if stale && !is_own {
                return Err(format!("it was read more than {} s ago", AGE_MAX.as_secs()));
            }
            self.had.get(&key).cloned().unwrap_or_else(|| Err("it was not read".to_owned()))
        })
    }
}

impl Buses {
    async fn queue_read(&self, bus: &str, protective: bool, span: Span) -> super::Ended {
        self.queue(bus, protective, vec![Step::Read(span)], None).await
    }
}

fn told(trouble: &Trouble) -> String {
    match trouble {
        Trouble::NotSent { text, .. } | Trouble::Broken(text) | Trouble::Nonsense(text) | Trouble::Panicked(text) => {
            text.clone()
        }
        Trouble::Exception(code) => format!("Modbus exception {code}: {}", exception_name(*code)),
        Trouble::NoAnswer => "no answer in time".to_owned(),
        Trouble::Stopped => "the bus was stopped".to_owned(),
    }
}

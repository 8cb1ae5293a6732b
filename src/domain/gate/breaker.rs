//! Repeated automatic denials of one kind: whoever wishes for the same thing again and again has lost its way, and a
//! person should hear of it before the next hundred times.
//!
//! What a rule or an immune check denies stays denied, however often it is wished for: the breaker only says so in
//! another word, which ends an agent's turn. Only a denial of the mode's fallback, where no rule spoke, may become a
//! question, and only where the configuration wants that and somebody can be asked.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::id::ToolName;
use crate::request::why::Step;
use crate::time::Tick;

use super::decide::Decision;

/// Denials of one kind that are further apart than this are not one run of them.
pub const WINDOW: Duration = Duration::from_secs(600);

/// How many kinds are counted in one run. Whoever finds more ways to be denied loses the oldest counts.
const KINDS_MAX: usize = 64;

/// What happens at the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Trips {
    /// The denial says that it is one too many, and a person is told.
    #[default]
    ToAStop,
    /// As [`Trips::ToAStop`], but what only the mode denied becomes a question.
    ToAQuestion,
}

/// When repeated denials are too many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Breaker {
    /// From how many on; `None` switches it off.
    pub denials_max: Option<u32>,
    /// What then happens.
    pub trips: Trips,
}

impl Default for Breaker {
    /// Five times may be a model that tries variants; at the eighth it does not listen.
    fn default() -> Breaker {
        Breaker { denials_max: Some(8), trips: Trips::ToAStop }
    }
}

/// What was denied: the tool, and the step and rule that denied it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    tool: ToolName,
    step: Step,
    rule: Option<String>,
}

#[derive(Debug, Clone, Copy)]
struct Count {
    times: u32,
    last: Tick,
}

/// The denials of one run.
#[derive(Debug, Clone, Default)]
pub struct Denials {
    counts: BTreeMap<Kind, Count>,
}

/// What a denial has become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Denied {
    /// A denial like any other.
    Once,
    /// One too many: so many of this kind.
    Repeated(u32),
    /// A question, after so many of this kind.
    Asks(u32),
}

impl Denials {
    /// Counts a denial. `only_the_mode` says that nothing but the fallback of the mode denied, and that there is
    /// somebody who can be asked.
    pub(crate) fn count(
        &mut self,
        breaker: Breaker,
        tool: &ToolName,
        decision: &Decision,
        only_the_mode: bool,
        now: Tick,
    ) -> Denied {
        let Some(limit) = breaker.denials_max else { return Denied::Once };
        let kind = Kind { tool: tool.clone(), step: decision.step, rule: decision.rule.clone() };
        if !self.counts.contains_key(&kind) && self.counts.len() >= KINDS_MAX {
            let oldest = self.counts.iter().min_by_key(|(_, count)| count.last).map(|(kind, _)| kind.clone());
            oldest.map(|oldest| self.counts.remove(&oldest));
        }
        let count = self.counts.entry(kind).or_insert(Count { times: 0, last: now });
        if now.since(count.last) > WINDOW {
            count.times = 0;
        }
        *count = Count { times: count.times.saturating_add(1), last: now };
        match (count.times >= limit, breaker.trips) {
            (false, _) => Denied::Once,
            (true, Trips::ToAQuestion) if only_the_mode => Denied::Asks(count.times),
            (true, Trips::ToAQuestion | Trips::ToAStop) => Denied::Repeated(count.times),
        }
    }
}

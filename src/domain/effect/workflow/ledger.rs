//! The ledger of a workflow as the checker reads it.

use std::collections::BTreeSet;

use crate::effect::anomaly::{Anomaly, Event, History, Malformed, Seen, Terms, View};

use super::{Attempt, Profile, Stage, State, Workflow};

impl Workflow {
    /// What the checker finds in its ledger, in the view of the runtime. What is held here counts as staged until it is
    /// sent: nobody can see it.
    ///
    /// # Errors
    /// Never in practice: the names are made here.
    pub fn check(&self) -> Result<Vec<Anomaly>, Malformed> {
        let mut history = History::new();
        let required: Vec<&str> = self.required.iter().map(String::as_str).collect();
        history.take(Event::Begin { workflow: "w", required: &required })?;
        // A drop, a release, is no operation of its own: it is what becomes of the effect that was staged.
        let is_drop = |it: &Attempt| it.undoes.is_some_and(|of| self.attempts[of].contract.stages());
        let is_of_its_own = |it: &Attempt| it.releases.is_none() && !is_drop(it);
        let sent = |it: &Attempt| it.state != State::Held && it.contract.changes() && is_of_its_own(it);
        let names: Vec<(String, String)> =
            (0..self.attempts.len()).map(|at| (format!("a{at}"), format!("e{at}"))).collect();
        let mut effects: BTreeSet<usize> = BTreeSet::new();
        for (at, attempt) in self.attempts.iter().enumerate().filter(|(_, attempt)| sent(attempt)) {
            let (name, effect) = (&names[at].0, &names[at].1);
            history.take(Event::Attempt { attempt: name, op: &attempt.op, workflow: "w", branch: &attempt.branch })?;
            if let Some(of) = attempt.undoes {
                history.take(Event::Compensate { compensation: name, attempt: &names[of].0 })?;
            }
            // Of a resend only the first attempt has the effect: the others give its result back.
            let first = !self.attempts[..at].iter().any(|it| it.op == attempt.op && it.state == State::Done);
            let seen = match attempt.state {
                State::Done => Seen::Confirmed,
                State::Failed => Seen::Failed,
                State::Unknown | State::Held => Seen::Unknown,
            };
            if seen != Seen::Failed && first {
                let resource = attempt.resources.first().map_or("", String::as_str);
                let staged = attempt.held || attempt.contract.stages();
                history.take(Event::Effect { effect, attempt: name, resource, staged })?;
                effects.insert(at);
            }
            history.take(Event::Observe { attempt: name, seen })?;
            for below in attempt.rests_on.iter().filter(|below| effects.contains(*below) && effects.contains(&at)) {
                history.take(Event::Depends { later: effect, earlier: &names[*below].1 })?;
            }
        }
        let kept: Vec<&str> = self.kept.iter().map(String::as_str).collect();
        match self.stage {
            Stage::Open => {}
            Stage::Unsettled | Stage::Closed if kept.is_empty() => {
                history.take(Event::Abort { workflow: "w", branch: None })?
            }
            Stage::Aborting | Stage::Aborted => history.take(Event::Abort { workflow: "w", branch: None })?,
            Stage::Committing | Stage::Committed | Stage::Unsettled | Stage::Closed => {
                history.take(Event::Commit { workflow: "w", branches: &kept })?;
            }
        }
        for at in effects {
            let (attempt, effect) = (&self.attempts[at], &names[at].1);
            let by = |it: &&Attempt| it.state == State::Done && (it.releases == Some(at) || it.undoes == Some(at));
            match self.attempts.iter().find(by) {
                _ if attempt.held => history.take(Event::Release { effect })?,
                Some(it) if it.releases.is_some() => history.take(Event::Release { effect })?,
                Some(it) if is_drop(it) => history.take(Event::Discard { effect })?,
                Some(_) | None => {}
            }
        }
        let held = self.profiles.contains(&Profile::SpeculationSafe);
        Ok(history.check(&Terms { view: View::Runtime, held, ..Terms::default() }))
    }
}

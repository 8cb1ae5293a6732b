//! How a workflow is decided: what goes out at its commit, what has to be undone or dropped, and when it is settled.
//!
//! A decision is taken whole: while something is unknown, missing, too old or torn from what it rests on, it is not
//! taken at all. Nothing here calls an end a success that is not one.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::surface::contract::{Contract, Effect};
use crate::time::Wall;

use super::{Attempt, NotYet, Profile, Stage, State, Workflow};

/// How long before a tool drops what it staged a commit is too late: two clocks differ, and a release takes its time
/// (effects, "Staged expiry").
pub const STAGED_SKEW: Duration = Duration::from_secs(5);

/// What goes out when a workflow is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Out {
    /// The attempt itself, which was held here.
    Send(usize),
    /// The release of what this attempt staged at its tool.
    Release(usize),
}

impl Workflow {
    /// Decides to keep these branches (all of them when none is named).
    ///
    /// # Errors
    /// Why that cannot be decided now; nothing has changed.
    pub fn commit(&mut self, branches: &[String], now: Wall) -> Result<(), NotYet> {
        if self.stage != Stage::Open {
            return Err(NotYet::Decided(self.stage));
        }
        let all: BTreeSet<&String> = self.attempts.iter().map(|attempt| &attempt.branch).collect();
        if let Some(odd) = branches.iter().find(|branch| !all.contains(branch)) {
            return Err(NotYet::NoBranch(odd.clone()));
        }
        let kept: Vec<String> =
            if branches.is_empty() { all.into_iter().cloned().collect() } else { branches.to_vec() };
        let unknown = self.unknown();
        if !unknown.is_empty() {
            return Err(NotYet::Unknown(unknown));
        }
        let is_there = |attempt: &Attempt| matches!(attempt.state, State::Done | State::Held);
        let does = |op: &String| {
            self.attempts.iter().any(|attempt| {
                attempt.op == *op && attempt.is_forward() && is_there(attempt) && kept.contains(&attempt.branch)
            })
        };
        let missing: Vec<String> = self.required.iter().filter(|op| !does(op)).cloned().collect();
        if !missing.is_empty() {
            return Err(NotYet::Missing(missing));
        }
        for attempt in self.attempts.iter().filter(|attempt| is_there(attempt) && kept.contains(&attempt.branch)) {
            let below = attempt.rests_on.iter().filter_map(|below| self.attempts.get(*below));
            let mut dropped = below.filter(|below| is_there(below) && !kept.contains(&below.branch));
            if let Some(dropped) = dropped.next() {
                return Err(NotYet::Sphere { kept: attempt.op.clone(), dropped: dropped.op.clone() });
            }
        }
        let old = |it: &&Attempt| it.state == State::Done && kept.contains(&it.branch) && is_old(it, now);
        if let Some(old) = self.attempts.iter().find(old) {
            return Err(NotYet::Expired(old.op.clone()));
        }
        self.kept = kept;
        self.stage = Stage::Committing;
        Ok(())
    }

    /// The next that goes out of what is kept, in the order in which it was tried. The first that does not succeed ends
    /// it: nothing more goes out on top of it.
    #[must_use]
    pub fn to_go_out(&self) -> Option<Out> {
        if self.stage != Stage::Committing {
            return None;
        }
        let of = |at: usize| self.attempts.iter().rev().find(move |it| it.releases == Some(at)).map(|it| it.state);
        for (at, attempt) in self.attempts.iter().enumerate() {
            if !attempt.is_forward() || !self.kept.contains(&attempt.branch) {
                continue;
            }
            match (attempt.state, attempt.contract.stages()) {
                (State::Held, _) => return Some(Out::Send(at)),
                (State::Unknown | State::Failed, _) if attempt.held => return None,
                (State::Done, true) => match of(at) {
                    None | Some(State::Failed) => return Some(Out::Release(at)),
                    Some(State::Done) => {}
                    Some(State::Unknown | State::Held) => return None,
                },
                (State::Done, false) | (State::Unknown | State::Failed, _) => {}
            }
        }
        None
    }

    /// Decides to give it up. Nothing that is held goes out any more.
    ///
    /// # Errors
    /// When it is decided already.
    pub fn abort(&mut self) -> Result<(), NotYet> {
        match self.stage {
            Stage::Open | Stage::Committing | Stage::Unsettled => {
                self.stage = Stage::Aborting;
                self.kept = Vec::new();
                Ok(())
            }
            decided @ (Stage::Aborting | Stage::Committed | Stage::Aborted | Stage::Closed) => {
                Err(NotYet::Decided(decided))
            }
        }
    }

    /// A person answers for what no contract can take back: it holds nothing any more. What nobody knows the end of is
    /// found out first, and what can still end well is not closed.
    ///
    /// # Errors
    /// Why it is not closed; nothing has changed.
    pub fn close(&mut self) -> Result<(), NotYet> {
        let unknown = self.unknown();
        match self.stage {
            Stage::Unsettled if !unknown.is_empty() => return Err(NotYet::Unknown(unknown)),
            Stage::Unsettled if self.is_clean() && (self.kept.is_empty() || self.is_whole()) => {
                return Err(NotYet::EndsWell { keeps: !self.kept.is_empty() });
            }
            Stage::Unsettled => {}
            Stage::Open | Stage::Committing | Stage::Aborting => return Err(NotYet::Undecided(self.stage)),
            Stage::Committed | Stage::Aborted | Stage::Closed => return Err(NotYet::Decided(self.stage)),
        }
        self.stage = Stage::Closed;
        Ok(())
    }

    /// Goes on with what was decided, after something was found out.
    pub fn resume(&mut self) {
        if self.stage == Stage::Unsettled {
            self.stage = if self.kept.is_empty() { Stage::Aborting } else { Stage::Committing };
        }
    }

    /// The next attempt that has to be undone or dropped, the newest first: confirmed, not kept, with an inverse or a
    /// way to drop it, not undone yet. What was released is out, and no drop takes it back.
    #[must_use]
    pub fn to_undo(&self) -> Option<usize> {
        (0..self.attempts.len()).rev().find(|at| {
            let attempt = &self.attempts[*at];
            let able = match attempt.contract.effect {
                Effect::Reversible { .. } => true,
                Effect::Stageable { .. } => attempt.contract.with.discard.is_some() && !self.is_out(*at),
                Effect::None | Effect::Irreversible => false,
            };
            // One that failed with authority changed nothing: it may be tried again (effects, section 7).
            let tried = |undo: &Attempt| undo.undoes == Some(*at) && undo.state != State::Failed;
            able && self.is_residue(*at) && !self.attempts.iter().any(tried)
        })
    }

    /// What an attempt staged was released, or may have been.
    fn is_out(&self, at: usize) -> bool {
        self.attempts.iter().any(|it| it.releases == Some(at) && it.state != State::Failed)
    }

    /// Takes the undoing of an attempt in: a compensation, or the drop of what it staged.
    pub fn undo(&mut self, of: usize, tool: String, input: Arc<Value>, contract: Arc<Contract>) -> usize {
        let undo = self.beside("undo", of, tool, input, contract);
        self.attempts.push(Attempt { undoes: Some(of), ..undo });
        self.attempts.len() - 1
    }

    /// Takes the release of what an attempt staged in.
    pub fn release(&mut self, of: usize, tool: String, input: Arc<Value>, contract: Arc<Contract>) -> usize {
        let release = self.beside("release", of, tool, input, contract);
        self.attempts.push(Attempt { releases: Some(of), ..release });
        self.attempts.len() - 1
    }

    fn beside(&self, what: &str, of: usize, tool: String, input: Arc<Value>, contract: Arc<Contract>) -> Attempt {
        let (op, branch, resources) = self.attempts.get(of).map_or_else(Default::default, |attempt| {
            (format!("{what} {}", attempt.op), attempt.branch.clone(), attempt.resources.clone())
        });
        Attempt { op, branch, resources, ..Attempt::new(tool, input, contract) }
    }

    /// The end of what was decided: settled if nothing is unknown and nothing is left, else unsettled.
    pub fn settle(&mut self) -> Stage {
        self.stage = match self.stage {
            Stage::Committing if self.is_clean() && self.is_whole() => Stage::Committed,
            Stage::Aborting if self.is_clean() => Stage::Aborted,
            Stage::Committing | Stage::Aborting => Stage::Unsettled,
            decided @ (Stage::Open | Stage::Committed | Stage::Aborted | Stage::Unsettled | Stage::Closed) => decided,
        };
        self.stage
    }

    /// Nothing is unknown, left, or staged and not released.
    fn is_clean(&self) -> bool {
        self.unknown().is_empty() && self.left().is_empty() && self.unreleased().is_empty()
    }

    /// All that is required has its effect.
    fn is_whole(&self) -> bool {
        let is_done =
            |op: &String| self.attempts.iter().any(|it| it.op == *op && it.is_forward() && it.state == State::Done);
        self.required.iter().all(is_done)
    }

    /// The operations that nobody knows the outcome of.
    #[must_use]
    pub fn unknown(&self) -> Vec<String> {
        let mut ops: Vec<String> = Vec::new();
        for attempt in self.attempts.iter().filter(|it| it.state == State::Unknown && it.contract.changes()) {
            if !ops.contains(&attempt.op) {
                ops.push(attempt.op.clone());
            }
        }
        ops
    }

    /// The operations whose effect is there and should not be.
    #[must_use]
    pub fn left(&self) -> Vec<String> {
        (0..self.attempts.len()).filter(|at| self.is_residue(*at)).map(|at| self.attempts[at].op.clone()).collect()
    }

    /// The operations that are kept, are staged at their tools, and are not released.
    #[must_use]
    pub fn unreleased(&self) -> Vec<String> {
        let decided = matches!(self.stage, Stage::Committing | Stage::Committed | Stage::Unsettled | Stage::Closed);
        let released = |at: usize| self.attempts.iter().any(|it| it.releases == Some(at) && it.state == State::Done);
        let waits = |(at, it): &(usize, &Attempt)| {
            decided
                && it.is_forward()
                && it.contract.stages()
                && it.state == State::Done
                && self.kept.contains(&it.branch)
                && !released(*at)
        };
        self.attempts.iter().enumerate().filter(waits).map(|(_, it)| it.op.clone()).collect()
    }

    fn is_residue(&self, at: usize) -> bool {
        let attempt = &self.attempts[at];
        let decided = !matches!(self.stage, Stage::Open);
        let undone = self.attempts.iter().any(|undo| undo.undoes == Some(at) && undo.state == State::Done);
        decided
            && attempt.is_forward()
            && attempt.contract.changes()
            && attempt.state == State::Done
            && !self.kept.contains(&attempt.branch)
            && !undone
    }

    /// What it holds against an operation of another workflow on this resource: while it is not settled, what it changed
    /// there, if the two do not commute. Under a profile that mediates it holds all of it; without, what nobody knows the
    /// end of, against one that mediates: no order of the two could be told.
    #[must_use]
    pub fn holds(&self, resource: &str, other: &Contract, other_mediates: bool) -> bool {
        let mediates = self.profiles.contains(&Profile::ExternallyMediated);
        let against = |it: &Attempt| match it.state {
            State::Failed => false,
            State::Unknown => mediates || other_mediates,
            State::Done | State::Held => mediates,
        };
        !self.stage.is_final()
            && self.attempts.iter().any(|it| {
                it.contract.changes()
                    && against(it)
                    && it.resources.iter().any(|own| own == resource)
                    && !it.contract.commutes_with(other, resource)
            })
    }
}

/// What is staged at its tool is about to be dropped there, or its age cannot be told.
fn is_old(attempt: &Attempt, now: Wall) -> bool {
    let Effect::Stageable { ttl } = attempt.contract.effect else { return false };
    let (true, Some(since)) = (attempt.contract.stages(), attempt.sent) else { return false };
    let age = u64::try_from(now.0 - since.0).map(Duration::from_millis);
    age.map_or(true, |age| age + STAGED_SKEW >= ttl)
}

//! A history as numbers: what each event adds, and what no event may say.

use super::names::{Names, Pairs};
use super::{Event, Malformed, Noun, Seen};

/// The most events of one history: places are kept in 32 bits.
const EVENTS_MAX: usize = 1 << 30;

/// The most bytes of all its names together, for the same reason.
const TEXT_BYTES_MAX: usize = 1 << 31;

/// The place of an event, from 1, so that a missing one costs no more room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct At(std::num::NonZeroU32);

impl At {
    /// From 0, as people count the events of a line.
    pub(super) fn place(self) -> usize {
        self.0.get() as usize - 1
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Settled {
    Open,
    Committed(At),
    Aborted(At),
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Workflow {
    pub(super) at: At,
    pub(super) settled: Settled,
}

/// A branch of a workflow.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Branch {
    /// It was given up by itself.
    pub(super) aborted: Option<At>,
    /// The commit of its workflow names it.
    pub(super) kept: bool,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Attempt {
    /// The pair of workflow and operation.
    pub(super) group: u32,
    /// The pair of workflow and branch.
    pub(super) branch: u32,
    pub(super) at: At,
    pub(super) seen: Seen,
    pub(super) seen_at: Option<At>,
    pub(super) is_compensation: bool,
    /// A history that lists effects lists one of this attempt.
    pub(super) has_effect: bool,
    /// It is said to have undone something.
    pub(super) undoes: bool,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Effect {
    pub(super) attempt: u32,
    pub(super) resource: u32,
    pub(super) at: At,
    /// When it became visible.
    pub(super) visible: Option<At>,
    pub(super) discarded: Option<At>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Reaction {
    pub(super) effect: u32,
    pub(super) at: At,
    pub(super) taken_back: bool,
}

/// A pair of effects, or of an attempt and what it is about.
#[derive(Debug, Clone, Copy)]
pub(super) struct Edge {
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) at: At,
}

/// A compensation that was sent while nobody knew whether there was anything to undo.
#[derive(Debug, Clone, Copy)]
pub(super) struct Blind {
    pub(super) compensation: u32,
    pub(super) attempt: u32,
    pub(super) at: At,
    pub(super) seen_at: Option<At>,
}

/// What one pair of workflow and operation is.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Group {
    pub(super) required: bool,
    pub(super) last_attempt: Option<At>,
}

/// A history, taken in event by event.
#[derive(Debug, Clone)]
pub struct History {
    events: u32,
    pub(super) workflow_names: Names,
    pub(super) attempt_names: Names,
    pub(super) effect_names: Names,
    pub(super) reaction_names: Names,
    pub(super) op_names: Names,
    branch_names: Names,
    pub(super) resource_names: Names,
    /// Workflow and operation.
    pub(super) groups: Pairs,
    /// Workflow and branch name.
    pub(super) branches: Pairs,
    pub(super) workflow: Vec<Workflow>,
    pub(super) attempt: Vec<Attempt>,
    pub(super) effect: Vec<Effect>,
    pub(super) reaction: Vec<Reaction>,
    pub(super) group: Vec<Group>,
    pub(super) branch: Vec<Branch>,
    /// From a compensation to an effect.
    pub(super) undone: Vec<Edge>,
    /// From a compensation to an attempt.
    pub(super) compensated: Vec<Edge>,
    /// From the effect that rests on another to that one.
    pub(super) rests: Vec<Edge>,
    /// From the first to the second.
    pub(super) ordered: Vec<Edge>,
    pub(super) blind: Vec<Blind>,
}

impl Default for History {
    fn default() -> History {
        History::new()
    }
}

impl History {
    /// A history in which nothing has happened.
    #[must_use]
    pub fn new() -> History {
        History {
            events: 0,
            workflow_names: Names::new(),
            attempt_names: Names::new(),
            effect_names: Names::new(),
            reaction_names: Names::new(),
            op_names: Names::new(),
            branch_names: Names::new(),
            resource_names: Names::new(),
            groups: Pairs::new(),
            branches: Pairs::new(),
            workflow: Vec::new(),
            attempt: Vec::new(),
            effect: Vec::new(),
            reaction: Vec::new(),
            group: Vec::new(),
            branch: Vec::new(),
            undone: Vec::new(),
            compensated: Vec::new(),
            rests: Vec::new(),
            ordered: Vec::new(),
            blind: Vec::new(),
        }
    }

    /// How many events it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.events as usize
    }

    /// Nothing has happened.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.events == 0
    }

    /// Takes one more event, in constant time. After an error the history is as it was.
    ///
    /// # Errors
    /// When the event names what is not there, brings again what is, or settles twice.
    pub fn take(&mut self, event: Event<'_>) -> Result<(), Malformed> {
        let at = self.next()?;
        match event {
            Event::Begin { workflow, required } => self.begin(at, workflow, required)?,
            Event::Attempt { attempt, op, workflow, branch } => self.attempted(at, attempt, op, workflow, branch)?,
            Event::Effect { effect, attempt, resource, staged } => {
                self.effected(at, effect, attempt, resource, staged)?;
            }
            Event::Observe { attempt, seen } => {
                let attempt = self.known_attempt(at, attempt)?;
                let attempt = &mut self.attempt[attempt as usize];
                (attempt.seen, attempt.seen_at) = (seen, Some(at));
            }
            Event::Compensate { compensation, attempt } => self.compensate(at, compensation, attempt)?,
            Event::Neutralise { compensation, effect } => {
                let (from, to) = (self.known_attempt(at, compensation)?, self.known_effect(at, effect)?);
                self.attempt[from as usize].undoes = true;
                self.undone.push(Edge { from, to, at });
            }
            Event::Depends { later, earlier } => {
                let (from, to) = (self.known_effect(at, later)?, self.known_effect(at, earlier)?);
                self.rests.push(Edge { from, to, at });
            }
            Event::Order { first, second } => {
                let (from, to) = (self.known_effect(at, first)?, self.known_effect(at, second)?);
                self.ordered.push(Edge { from, to, at });
            }
            Event::React { reaction, effect } => {
                let effect = self.known_effect(at, effect)?;
                if self.reaction_names.add(reaction).is_none() {
                    return Err(twice(at, Noun::Reaction, reaction));
                }
                self.reaction.push(Reaction { effect, at, taken_back: false });
            }
            Event::Unreact { reaction } => {
                let known = self.reaction_names.find(reaction).ok_or_else(|| unknown(at, Noun::Reaction, reaction))?;
                self.reaction[known as usize].taken_back = true;
            }
            Event::Release { effect } => {
                let known = self.known_effect(at, effect)?;
                // What was never staged has been visible since it happened.
                self.effect[known as usize].visible.get_or_insert(at);
            }
            Event::Discard { effect } => {
                let known = self.known_effect(at, effect)?;
                self.effect[known as usize].discarded.get_or_insert(at);
            }
            Event::Commit { workflow, branches } => {
                let known = self.settle(at, workflow, Some(Settled::Committed(at)))?;
                for branch in branches {
                    let branch = self.branch_of(known, branch);
                    self.branch[branch as usize].kept = true;
                }
            }
            Event::Abort { workflow, branch: None } => {
                self.settle(at, workflow, Some(Settled::Aborted(at)))?;
            }
            Event::Abort { workflow, branch: Some(branch) } => {
                let known = self.settle(at, workflow, None)?;
                let branch = self.branch_of(known, branch);
                self.branch[branch as usize].aborted.get_or_insert(at);
            }
        }
        self.events += 1;
        Ok(())
    }

    fn next(&self) -> Result<At, Malformed> {
        let at = self.events as usize;
        if at >= EVENTS_MAX {
            return Err(Malformed::TooLong { at, what: "events", max: EVENTS_MAX });
        }
        let names = [&self.workflow_names, &self.attempt_names, &self.effect_names, &self.reaction_names];
        let more = [&self.op_names, &self.branch_names, &self.resource_names];
        if names.into_iter().chain(more).any(|names| names.bytes() >= TEXT_BYTES_MAX) {
            return Err(Malformed::TooLong { at, what: "bytes of names", max: TEXT_BYTES_MAX });
        }
        let place = std::num::NonZeroU32::new(self.events + 1).unwrap_or(std::num::NonZeroU32::MIN);
        Ok(At(place))
    }

    fn begin(&mut self, at: At, name: &str, required: &[&str]) -> Result<(), Malformed> {
        let Some(workflow) = self.workflow_names.add(name) else {
            return Err(twice(at, Noun::Workflow, name));
        };
        self.workflow.push(Workflow { at, settled: Settled::Open });
        for op in required {
            let group = self.group_of(workflow, op);
            self.group[group as usize].required = true;
        }
        Ok(())
    }

    fn attempted(&mut self, at: At, name: &str, op: &str, workflow: &str, branch: &str) -> Result<(), Malformed> {
        let known = self.workflow_names.find(workflow).ok_or_else(|| unknown(at, Noun::Workflow, workflow))?;
        if self.attempt_names.add(name).is_none() {
            return Err(twice(at, Noun::Attempt, name));
        }
        let (group, branch) = (self.group_of(known, op), self.branch_of(known, branch));
        self.group[group as usize].last_attempt = Some(at);
        self.attempt.push(Attempt {
            group,
            branch,
            at,
            seen: Seen::Unknown,
            seen_at: None,
            is_compensation: false,
            has_effect: false,
            undoes: false,
        });
        Ok(())
    }

    fn effected(&mut self, at: At, name: &str, attempt: &str, resource: &str, staged: bool) -> Result<(), Malformed> {
        let Some(known) = self.attempt_names.find(attempt) else {
            let (effect, attempt) = (name.to_owned(), attempt.to_owned());
            return Err(Malformed::EffectFirst { at: at.place(), effect, attempt });
        };
        if self.effect_names.add(name).is_none() {
            return Err(twice(at, Noun::Effect, name));
        }
        self.attempt[known as usize].has_effect = true;
        let resource = self.resource_names.number(resource);
        let visible = if staged { None } else { Some(at) };
        self.effect.push(Effect { attempt: known, resource, at, visible, discarded: None });
        Ok(())
    }

    fn compensate(&mut self, at: At, compensation: &str, attempt: &str) -> Result<(), Malformed> {
        let (from, to) = (self.known_attempt(at, compensation)?, self.known_attempt(at, attempt)?);
        self.attempt[from as usize].is_compensation = true;
        self.compensated.push(Edge { from, to, at });
        let aim = self.attempt[to as usize];
        match aim.seen {
            Seen::Unknown => {
                self.blind.push(Blind { compensation: from, attempt: to, at, seen_at: aim.seen_at });
            }
            Seen::Confirmed | Seen::Failed => {}
        }
        Ok(())
    }

    /// The workflow, which is not settled yet and now may be.
    fn settle(&mut self, at: At, name: &str, end: Option<Settled>) -> Result<u32, Malformed> {
        let known = self.workflow_names.find(name).ok_or_else(|| unknown(at, Noun::Workflow, name))?;
        let workflow = &mut self.workflow[known as usize];
        match workflow.settled {
            Settled::Open => {}
            Settled::Committed(before) | Settled::Aborted(before) => {
                return Err(Malformed::SettledTwice { at: at.place(), name: name.to_owned(), before: before.place() });
            }
        }
        if let Some(end) = end {
            workflow.settled = end;
        }
        Ok(known)
    }

    fn known_attempt(&self, at: At, name: &str) -> Result<u32, Malformed> {
        self.attempt_names.find(name).ok_or_else(|| unknown(at, Noun::Attempt, name))
    }

    fn known_effect(&self, at: At, name: &str) -> Result<u32, Malformed> {
        self.effect_names.find(name).ok_or_else(|| unknown(at, Noun::Effect, name))
    }

    fn group_of(&mut self, workflow: u32, op: &str) -> u32 {
        let op = self.op_names.number(op);
        let group = self.groups.number((workflow, op));
        if group as usize == self.group.len() {
            self.group.push(Group::default());
        }
        group
    }

    fn branch_of(&mut self, workflow: u32, name: &str) -> u32 {
        let name = self.branch_names.number(name);
        let branch = self.branches.number((workflow, name));
        if branch as usize == self.branch.len() {
            self.branch.push(Branch::default());
        }
        branch
    }
}

fn unknown(at: At, noun: Noun, name: &str) -> Malformed {
    Malformed::Unknown { at: at.place(), noun, name: name.to_owned() }
}

fn twice(at: At, noun: Noun, name: &str) -> Malformed {
    Malformed::Twice { at: at.place(), noun, name: name.to_owned() }
}

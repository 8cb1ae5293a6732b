//! The conductor: one machine that walks a batch through the stations.
//!
//! It decides nothing that a station decides, and it is the only one that writes events. What may happen to it is
//! [`Input`]; what is to be done about it is [`Action`], carried out in the order given. It has no clock: each step is
//! told the time, and [`Mediator::wake_at`] says when the next step is due at the latest.
//!
//! Each call stands on one shelf, and moves by being taken out and put in. A call that is lost on the way has no
//! settlement, which the simulation looks for.

mod answer;
mod end;
mod open;
mod start;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::closure::{Reply, Settlement};
use crate::effect::journal::{Entry, Journal};
use crate::effect::ledger::Ledger;
use crate::effect::report::Report;
use crate::effect::{Claim, Intent, Journaled, Order};
use crate::event::{Event, Found};
use crate::gate::breaker::Denials;
use crate::gate::docket::{Answer, By, Docket, Question, QuestionIds, QuestionKey};
use crate::gate::policy::Policy;
use crate::id::{BatchId, CallId, Epoch, QuestionId, RunId};
use crate::repair::{Mend, Unknown};
use crate::request::{Asker, Batch};
use crate::schedule::hold::Hold;
use crate::schedule::{Board, Ticket};
use crate::surface::Surface;
use crate::surface::narrow::Narrowing;
use crate::time::Tick;

/// How many batches may wait for a person at one time. Nobody answers more, and each holds its calls.
pub const DOCKETS_MAX: usize = 128;

/// How many runs may be open.
pub const RUNS_MAX: usize = 4096;

/// How many bytes of inputs may be under way together: what a flood of large wishes may cost in memory.
pub const ARGS_LIVE_BYTES_MAX: usize = 32 << 20;

/// How long a call that was asked to stop may still report before it is given up as unknown.
pub const STOP_GRACE: Duration = Duration::from_secs(3);

/// A run that begins.
#[derive(Debug, Clone)]
pub struct Opening {
    /// Its name.
    pub run: RunId,
    /// The run that made it: its policy then follows that run's.
    pub parent: Option<RunId>,
    /// The tools that there are. A child has those of its parent instead, now and after each change of them.
    pub surface: Surface,
    /// What it is left of them: kept with the run, so that a tool which is registered later passes the same lists.
    pub narrowing: Narrowing,
    /// What it may do, and for whom.
    pub policy: Policy,
}

/// What can happen to the mediator.
#[derive(Debug)]
pub enum Input {
    /// A run begins. One that is open already gets these tools and this policy, under a new epoch.
    Open(Box<Opening>),
    /// A run makes no more wishes; what of it is under way is cancelled.
    Close {
        /// The run.
        run: RunId,
    },
    /// Wishes were made.
    Submit {
        /// The run.
        run: RunId,
        /// The number of the batch: above every number used before, in this life and the earlier ones.
        batch: BatchId,
        /// The wishes.
        wishes: Batch,
    },
    /// A person answered a `permit` or `confirm` question.
    Answer {
        /// The question.
        question: QuestionId,
        /// What was said.
        answer: Answer,
        /// By whom.
        by: By,
    },
    /// A person may not answer any more: their token was taken back.
    Forget {
        /// Who.
        person: String,
    },
    /// A person looked what became of an effect.
    Settle {
        /// The question, of kind `outcome`.
        question: QuestionId,
        /// What was found.
        found: Found,
        /// What they wrote.
        note: String,
        /// By whom.
        by: String,
    },
    /// A query, or another attempt with the same key, found out what became of an effect.
    Found {
        /// The question, of kind `outcome`.
        question: QuestionId,
        /// What was found.
        found: Found,
        /// How.
        note: String,
    },
    /// Everything up to here is on the disk. May skip numbers, never goes back.
    Committed {
        /// The last record that is.
        upto: Entry,
    },
    /// The writer could not commit what it has.
    CommitFailed,
    /// A tool ended, by itself, by a panic or by an abort.
    Ended {
        /// The call.
        call: CallId,
        /// How.
        report: Report,
    },
    /// Somebody does not want the batch any more: bars what waits, asks what runs to stop.
    Cancel {
        /// The batch.
        batch: BatchId,
    },
    /// The tools that there are changed. No new epoch: what was judged was judged by its own definition, which goes
    /// with it, and whoever carries it out compares again.
    Surface {
        /// The run, one of nobody's; its children follow.
        run: RunId,
        /// The tools from now on.
        surface: Surface,
    },
    /// The policy of a run and its children changed: a new epoch, and what has not started is void.
    Policy {
        /// The run.
        run: RunId,
        /// The policy from now on.
        policy: Box<Policy>,
    },
    /// What the last life of the daemon left open: the first input of a life, if there is anything.
    Mended(Vec<Mend>),
    /// The daemon goes down: cancels everything and takes nothing more.
    Drain,
    /// A deadline may have passed: compare again.
    Tick,
}

/// What is to be done, in the order given.
#[derive(Debug)]
pub enum Action {
    /// Hand these to the writer, as one transaction. Always the first action of its step.
    Record {
        /// The records, in their order.
        entries: Vec<(Entry, Event)>,
        /// Somebody waits for the commit.
        now: bool,
    },
    /// Tell people that there is a question. It stays with the mediator.
    Ask(Question),
    /// Find out what became of an effect, as its contract allows; what is found comes back as [`Input::Found`]. Nobody
    /// needs to: the question stays open until somebody does.
    Look {
        /// The question that is open about it.
        question: QuestionId,
        /// The effect.
        unknown: Box<Unknown>,
    },
    /// Tell people that nobody needs to answer any more.
    Withdraw {
        /// The question.
        question: QuestionId,
    },
    /// Run it, and bring its report back as [`Input::Ended`].
    Start(Order),
    /// Ask it to stop; its end still comes as [`Input::Ended`].
    Stop {
        /// The call.
        call: CallId,
    },
    /// Answer the asker: the whole batch, in call order.
    Reply {
        /// The batch.
        batch: BatchId,
        /// One for each wish.
        replies: Vec<Reply>,
    },
}

#[derive(Debug)]
struct Run {
    parent: Option<RunId>,
    surface: Surface,
    narrowing: Narrowing,
    policy: Arc<Policy>,
    epoch: Epoch,
    batches: BTreeSet<BatchId>,
    /// Its own: a child begins with none.
    denials: Denials,
    closing: bool,
}

/// A batch whose asker waits.
#[derive(Debug)]
struct Pending {
    len: usize,
    settled: BTreeMap<u32, (Settlement, Entry)>,
    /// The intent of one of its calls is recorded that may change the world: the reply waits for the log.
    changing: bool,
    /// A call of it that may change the world was started and is not protective: then the reply also waits for a log
    /// that cannot be written.
    ran: bool,
    /// What its inputs cost in memory.
    bytes: usize,
}

#[derive(Debug)]
struct Running {
    claim: Claim,
    /// The deadline, and after it (or after a cancellation) the end of the grace.
    until: Tick,
    stop: Option<StopCause>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StopCause {
    Deadline,
    Cancelled,
}

/// An open question about an effect.
#[derive(Debug)]
struct OpenOutcome {
    question: Question,
    unknown: Unknown,
}

/// The conductor.
#[derive(Debug)]
pub struct Mediator {
    now: Tick,
    draining: bool,
    last_batch: Option<BatchId>,
    questions: QuestionIds,
    runs: BTreeMap<RunId, Run>,
    pending: BTreeMap<BatchId, Pending>,
    /// Complete batches that wait for the commit of their last settlement.
    unacknowledged: BTreeSet<BatchId>,
    args_bytes: usize,

    // The shelves.
    dockets: BTreeMap<BatchId, Docket>,
    tickets: BTreeMap<CallId, Ticket>,
    intents: BTreeMap<CallId, Intent>,
    journaled: BTreeMap<CallId, Journaled>,
    running: BTreeMap<CallId, Running>,
    /// What waits outside the line behind a composite of its batch.
    hold: Hold,

    /// The composites that run, and the batches that were submitted in the name of each.
    families: BTreeMap<CallId, BTreeSet<BatchId>>,
    asked: BTreeMap<QuestionId, (BatchId, QuestionKey)>,
    outcomes: BTreeMap<QuestionId, OpenOutcome>,
    timers: BTreeSet<(Tick, CallId)>,
    board: Board,
    journal: Journal,
    ledger: Ledger,

    // What this step makes.
    entries: Vec<(Entry, Event)>,
    commit_now: bool,
    acts: Vec<Action>,
    /// Calls whose turn may have come.
    freed: Vec<CallId>,
    /// Batches at the gate of which something was taken out while others were looked at.
    clear_later: Vec<BatchId>,
    /// Batches of which something may not be held any more.
    release_later: BTreeSet<BatchId>,
    /// An intent was declared, or the log said something: positions may be had.
    log_moved: bool,
    actions: VecDeque<Action>,
}

impl Mediator {
    /// A mediator at the beginning of a life of the daemon. `first_question` is above every question number in the
    /// state; nothing else is remembered.
    #[must_use]
    pub fn new(first_question: QuestionId) -> Mediator {
        Mediator {
            now: Tick(0),
            draining: false,
            last_batch: None,
            questions: QuestionIds::starting_at(first_question),
            runs: BTreeMap::new(),
            pending: BTreeMap::new(),
            unacknowledged: BTreeSet::new(),
            args_bytes: 0,
            dockets: BTreeMap::new(),
            tickets: BTreeMap::new(),
            intents: BTreeMap::new(),
            journaled: BTreeMap::new(),
            running: BTreeMap::new(),
            hold: Hold::default(),
            families: BTreeMap::new(),
            asked: BTreeMap::new(),
            outcomes: BTreeMap::new(),
            timers: BTreeSet::new(),
            board: Board::default(),
            journal: Journal::default(),
            ledger: Ledger::default(),
            entries: Vec::new(),
            commit_now: false,
            acts: Vec::new(),
            freed: Vec::new(),
            clear_later: Vec::new(),
            release_later: BTreeSet::new(),
            log_moved: false,
            actions: VecDeque::new(),
        }
    }

    /// Takes in what happened, at the time at which it is looked at. Then take the actions.
    pub fn step(&mut self, input: Input, now: Tick) {
        // A monotonic clock does not go back; if it seems to, no deadline may come again.
        self.now = self.now.max(now);
        self.expire();
        match input {
            Input::Open(opening) => self.open(*opening),
            Input::Close { run } => self.close(run),
            Input::Submit { run, batch, wishes } => self.submit(run, batch, wishes),
            Input::Answer { question, answer, by } => self.answer(question, answer, &by),
            Input::Forget { person } => self.forget(&person),
            Input::Settle { question, found, note, by } => self.resolve(question, found, note, by),
            Input::Found { question, found, note } => self.found(question, found, &note),
            Input::Committed { upto } => self.committed(upto),
            Input::CommitFailed => self.commit_failed(),
            Input::Ended { call, report } => self.ended(call, report),
            Input::Cancel { batch } => self.cancel(batch),
            Input::Surface { run, surface } => self.see(run, surface),
            Input::Policy { run, policy } => self.policy(run, *policy),
            Input::Mended(mends) => self.mended(mends),
            Input::Drain => self.drain(),
            Input::Tick => {}
        }
        self.advance();
        self.hand_over();
    }

    /// The next thing to be done.
    pub fn next_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// When the next step is due at the latest.
    #[must_use]
    pub fn wake_at(&self) -> Option<Tick> {
        let timer = self.timers.first().map(|(at, _)| *at);
        let question = self.dockets.values().filter_map(Docket::wake_at).min();
        timer.into_iter().chain(question).min()
    }

    /// All open questions, by number.
    #[must_use]
    pub fn questions(&self) -> Vec<&Question> {
        let waiting = self.dockets.values().flat_map(Docket::questions);
        let mut all: Vec<&Question> = waiting.chain(self.outcomes.values().map(|open| &open.question)).collect();
        all.sort_by_key(|question| question.id);
        all
    }

    /// The open questions of one batch.
    #[must_use]
    pub fn questions_of(&self, batch: BatchId) -> Vec<&Question> {
        self.dockets.get(&batch).map_or_else(Vec::new, |docket| docket.questions().collect())
    }

    /// The tools that a run sees.
    #[must_use]
    pub fn surface(&self, run: RunId) -> Option<&Surface> {
        self.runs.get(&run).map(|run| &run.surface)
    }

    /// The policy and the epoch of a run.
    #[must_use]
    pub fn policy_of(&self, run: RunId) -> Option<(&Policy, Epoch)> {
        self.runs.get(&run).map(|run| (&*run.policy, run.epoch))
    }

    /// Whom a run acts for.
    #[must_use]
    pub fn asker(&self, run: RunId) -> Option<&Asker> {
        self.runs.get(&run).map(|run| &run.policy.asker)
    }

    /// The calls that run now.
    pub fn running(&self) -> impl Iterator<Item = CallId> + '_ {
        self.running.keys().copied()
    }

    /// No batch is under way: nobody waits for a reply.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.pending.is_empty()
    }

    /// The last word of the writer was that it cannot commit.
    #[must_use]
    pub fn is_degraded(&self) -> bool {
        self.journal.is_degraded()
    }

    fn record(&mut self, event: Event) -> Entry {
        let entry = self.journal.number();
        self.entries.push((entry, event));
        entry
    }

    /// Puts what this step made in its order: the records first, since nobody may act on what is not handed over.
    fn hand_over(&mut self) {
        if !self.entries.is_empty() {
            let entries = std::mem::take(&mut self.entries);
            self.actions.push_back(Action::Record { entries, now: self.commit_now });
        }
        self.commit_now = false;
        self.actions.extend(self.acts.drain(..));
    }
}

#[cfg(test)]
mod tests;

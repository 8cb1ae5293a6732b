//! Owns the mediator: carries what happens into the machine, and carries out what it says, in the order given.
//!
//! One task, one `select!`, one exit. Nothing is decided here, and nothing here holds a permission: an order is made by
//! the machine and goes straight to the code that acts.

use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use interlock_domain::closure::{Ending, Reply};
use interlock_domain::effect::Order;
use interlock_domain::effect::journal::Entry;
use interlock_domain::effect::report::{Loss, Report};
use interlock_domain::event::{Event, Found};
use interlock_domain::gate::breaker::Breaker;
use interlock_domain::gate::docket::{Answer, By, Question};
use interlock_domain::gate::policy::{Mode, Policy, RuleOrder};
use interlock_domain::gate::rule::Rules;
use interlock_domain::id::{BatchId, CallId, QuestionId, RunId};
use interlock_domain::mediator::{Action, Input, Mediator, Opening};
use interlock_domain::repair::Mend;
use interlock_domain::request::Batch;
use interlock_domain::request::why::Why;
use interlock_domain::surface::Surface;
use interlock_domain::time::Tick;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{Id, JoinError, JoinSet};

use super::agent;
use super::handle::{AnswerTaken, Answered, Back, Message, NotTaken, Open, Submitted, Who};
use super::own::Own;
use super::resolver::Sought;
use crate::mcp::upward::Line;
use crate::record::event::row;
use crate::store::queue::{Acks, Health, NotWritten, Receipt, Tell, Writer};
use crate::sys::clock;
use crate::tool::{Stop, Stopper, Tools};

/// How long a stop waits for what runs to end by itself before the rest is abandoned as unknown. Inside the 90 s that
/// systemd gives by default, with room for the store behind it.
const DRAIN_PATIENCE: Duration = Duration::from_secs(10);

/// How long a person who settled an outcome waits for the log before being told all the same: a log that takes longer
/// is degraded, and says so itself.
const COMMIT_PATIENCE: Duration = Duration::from_secs(5);

/// What a configuration says about runs.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The mode in which runs start.
    pub mode: Mode,
    /// Which rule wins.
    pub order: RuleOrder,
    /// The rules.
    pub rules: Arc<Rules>,
    /// How long a question waits.
    pub ask_patience: Duration,
    /// Protective actions are asked about like any other.
    pub confirm_protective: bool,
    /// Two persons have to allow what is dangerous.
    pub four_eyes: bool,
    /// Interlock's own files, protected like `/etc`.
    pub own_paths: Arc<[String]>,
    /// Where Interlock keeps its keys: reading there is a question in every mode.
    pub own_secrets: Arc<[String]>,
    /// When repeated denials of one kind are too many.
    pub breaker: Breaker,
    /// A classifier that fails does not ask.
    pub classifier_fails_open: bool,
}

impl Settings {
    fn policy(&self, who: &Who) -> Policy {
        Policy {
            mode: who.mode.unwrap_or(self.mode).min(self.mode),
            rules: Arc::clone(&self.rules),
            order: self.order,
            answerable: who.answerable,
            ask_patience: self.ask_patience,
            confirm_protective: self.confirm_protective,
            four_eyes: self.four_eyes,
            own_paths: Arc::clone(&self.own_paths),
            own_secrets: Arc::clone(&self.own_secrets),
            breaker: self.breaker,
            classifier_fails_open: self.classifier_fails_open,
            ..Policy::plain(who.asker.clone())
        }
    }
}

/// What the owner is made from.
pub struct Parts {
    /// Where messages come in.
    pub inbox: mpsc::Receiver<Message>,
    /// The evidence writer.
    pub writer: Writer,
    /// The tools that act on the world.
    pub tools: Arc<Tools>,
    /// The tools that act on the daemon itself.
    pub own: Arc<Own>,
    /// The runs of a model: a subagent is one of them.
    pub agent: super::agent::Handle,
    /// The tools that every run sees.
    pub surface: Surface,
    /// What the configuration says about runs.
    pub settings: Settings,
    /// The first question number that was never used.
    pub first_question: QuestionId,
    /// What the last life left open.
    pub mends: Vec<Mend>,
    /// Who finds out what became of unknown effects.
    pub looks: mpsc::Sender<Sought>,
    /// Told of each new question's number, before anybody else is.
    pub questions: watch::Sender<QuestionId>,
}

/// The owner.
pub struct Owner {
    machine: Mediator,
    parts: Parts,
    acks: watch::Receiver<Acks>,
    failures: u64,
    running: JoinSet<Report>,
    calls: BTreeMap<Id, CallId>,
    stoppers: BTreeMap<CallId, Stopper>,
    replies: BTreeMap<BatchId, Awaited>,
    /// The ways up from the tools of a batch; gone with its reply.
    lines: BTreeMap<BatchId, Line>,
    watchers: BTreeMap<CallId, Vec<oneshot::Sender<Answered>>>,
    receipts: BTreeMap<Entry, Receipt>,
    runs: BTreeMap<RunId, Who>,
    /// The newest record that was handed to the writer.
    newest: Entry,
    telling: JoinSet<()>,
}

/// Who waits for the end of a batch.
struct Awaited {
    replies: oneshot::Sender<Vec<Answered>>,
    /// Kept where nobody is asked: its end would wake whoever waits, for nothing.
    asked: Option<oneshot::Sender<Vec<Open>>>,
}

/// Why the loop looks at the machine again.
enum Woken {
    Message(Message),
    InboxClosed,
    Acks,
    Ended(Result<(Id, Report), JoinError>),
    Told,
    Time,
}

impl Owner {
    /// Puts the parts together and settles what the last life left open.
    #[must_use]
    pub fn new(parts: Parts) -> Owner {
        let acks = parts.writer.acks();
        let failures = acks.borrow().failures;
        Owner {
            machine: Mediator::new(parts.first_question),
            failures,
            acks,
            running: JoinSet::new(),
            calls: BTreeMap::new(),
            stoppers: BTreeMap::new(),
            replies: BTreeMap::new(),
            lines: BTreeMap::new(),
            watchers: BTreeMap::new(),
            receipts: BTreeMap::new(),
            runs: BTreeMap::new(),
            newest: Entry(0),
            telling: JoinSet::new(),
            parts,
        }
    }

    /// Runs until it is told to stop.
    pub async fn run(mut self) {
        let mends = std::mem::take(&mut self.parts.mends);
        if !mends.is_empty() {
            self.step(Input::Mended(mends)).await;
        }
        loop {
            let woken = self.woken().await;
            if let Woken::Message(Message::Stop { back }) = woken {
                self.drain().await;
                let _ = back.send(());
                return;
            }
            if matches!(woken, Woken::InboxClosed) {
                return self.drain().await;
            }
            self.take(woken).await;
        }
    }

    async fn woken(&mut self) -> Woken {
        let deadline = self.machine.wake_at().map(|at| tokio::time::Instant::now() + at.since(clock::now()));
        tokio::select! {
            // The log first: what waits for it may start, and nothing can be settled before it.
            biased;
            Ok(()) = self.acks.changed() => Woken::Acks,
            Some(ended) = self.running.join_next_with_id() => Woken::Ended(ended),
            Some(_) = self.telling.join_next() => Woken::Told,
            message = self.parts.inbox.recv() => message.map_or(Woken::InboxClosed, Woken::Message),
            () = until(deadline) => Woken::Time,
        }
    }

    async fn take(&mut self, woken: Woken) {
        match woken {
            Woken::Message(message) => self.message(message).await,
            Woken::Acks => self.acknowledged().await,
            Woken::Ended(ended) => {
                let (id, report) = match ended {
                    Ok((id, report)) => (id, report),
                    Err(error) => (error.id(), Report::Lost(lost(error))),
                };
                if let Some(call) = self.calls.remove(&id) {
                    self.stoppers.remove(&call);
                    self.step(Input::Ended { call, report }).await;
                }
            }
            Woken::Time => self.step(Input::Tick).await,
            Woken::InboxClosed | Woken::Told => {}
        }
    }

    async fn acknowledged(&mut self) {
        let acks = *self.acks.borrow_and_update();
        // A failure first: what waits for a ticket did not become durable in time, even if the ticket is told later.
        if acks.failures != self.failures {
            self.failures = acks.failures;
            self.step(Input::CommitFailed).await;
        }
        if acks.health == Health::Writing {
            self.step(Input::Committed { upto: Entry(acks.ticket) }).await;
        }
    }

    async fn message(&mut self, message: Message) {
        match message {
            Message::OpenRun { who, back } => {
                let run = RunId::new(unix_ms(), random());
                let opening = self.opening(run, &who);
                self.step(Input::Open(Box::new(opening))).await;
                // Of a run of nobody's that was not opened, the wishes say why. A child must know before it begins.
                let opened = match who.parent {
                    Some(parent) if self.machine.surface(run).is_none() => Err(NotTaken::NoParent(parent)),
                    Some(_) | None => Ok(run),
                };
                if opened.is_ok() {
                    self.runs.insert(run, who);
                }
                let _ = back.send(opened);
            }
            Message::CloseRun { run } => {
                self.runs.remove(&run);
                self.step(Input::Close { run }).await;
            }
            Message::Submit { run, batch, wishes, line, back } => self.submit(run, batch, wishes, line, back).await,
            Message::Answer { question, answer, by, back } => {
                let answered = self.answer(question, answer, by).await;
                let _ = back.send(answered);
            }
            Message::Forget { person } => self.step(Input::Forget { person }).await,
            Message::Settle { question, done, note, by, back } => {
                let taken = self.settle(question, done, note, by).await;
                let (written, mut acks) = (self.newest.0, self.acks.clone());
                // Nobody is told of a person's word before the log knows it; the other calls do not wait for that.
                self.telling.spawn(async move {
                    let durable = acks.wait_for(|acks| acks.ticket >= written);
                    let _ = tokio::time::timeout(COMMIT_PATIENCE, durable).await;
                    let _ = back.send(taken);
                });
            }
            Message::Found { question, done, note } => {
                let found = if done { Found::Done } else { Found::Failed };
                self.step(Input::Found { question, found, note }).await;
            }
            Message::Questions { back } => {
                let now = clock::now();
                let open = self.machine.questions().into_iter().map(|question| open(question, now)).collect();
                let _ = back.send(open);
            }
            Message::Cancel { batch } => self.step(Input::Cancel { batch }).await,
            Message::Reconfigure { settings, surface, tools, back } => {
                self.parts.settings = *settings;
                self.parts.surface = surface;
                self.parts.tools = tools;
                // A child follows its parent, inside the machine.
                let runs = self.runs.iter().filter(|(_, who)| who.parent.is_none());
                let openings: Vec<Opening> = runs.map(|(run, who)| self.opening(*run, who)).collect();
                for opening in openings {
                    self.step(Input::Open(Box::new(opening))).await;
                }
                let _ = back.send(());
            }
            Message::See { surface, back } => {
                self.parts.surface = surface;
                let runs: Vec<RunId> =
                    self.runs.iter().filter(|(_, who)| who.parent.is_none()).map(|(run, _)| *run).collect();
                for run in runs {
                    self.step(Input::Surface { run, surface: self.parts.surface.clone() }).await;
                }
                let _ = back.send(());
            }
            // Taken by the loop, which ends with it.
            Message::Stop { back } => drop(back),
        }
    }

    fn opening(&self, run: RunId, who: &Who) -> Opening {
        let policy = self.parts.settings.policy(who);
        let (surface, narrowing) = (self.parts.surface.clone(), who.left());
        Opening { run, parent: who.parent, surface, narrowing, policy }
    }

    async fn submit(&mut self, run: RunId, batch: BatchId, wishes: Batch, line: Option<Line>, back: Back) {
        self.lines.extend(line.map(|line| (batch, line)));
        match back {
            Back::Judged(back) => {
                let (replies, receiver) = oneshot::channel();
                self.replies.insert(batch, Awaited { replies, asked: None });
                self.step(Input::Submit { run, batch, wishes }).await;
                let _ = back.send(Submitted { batch, questions: self.questions_of(batch), replies: receiver });
            }
            Back::Ended { asked, replies } => {
                self.replies.insert(batch, Awaited { replies, asked: None });
                self.step(Input::Submit { run, batch, wishes }).await;
                let questions = self.questions_of(batch);
                if !questions.is_empty() {
                    let _ = asked.send(questions);
                } else if let Some(awaited) = self.replies.get_mut(&batch) {
                    awaited.asked = Some(asked);
                }
            }
        }
    }

    fn questions_of(&self, batch: BatchId) -> Vec<Open> {
        let now = clock::now();
        self.machine.questions_of(batch).into_iter().map(|question| open(question, now)).collect()
    }

    async fn answer(
        &mut self,
        question: QuestionId,
        answer: Answer,
        by: By,
    ) -> (AnswerTaken, Option<oneshot::Receiver<Answered>>) {
        let asked = self.machine.questions().into_iter().find(|asked| asked.id == question).map(|asked| asked.key.call);
        let watcher = asked.map(|call| {
            let (watcher, receiver) = oneshot::channel();
            let watchers = self.watchers.entry(call).or_default();
            // Those whose word did not end it have gone.
            watchers.retain(|watcher| !watcher.is_closed());
            watchers.push(watcher);
            receiver
        });
        match self.asked(question, Input::Answer { question, answer, by }).await {
            AnswerTaken::Obeyed => (AnswerTaken::Obeyed, watcher),
            other @ (AnswerTaken::Waits | AnswerTaken::Ignored(_)) => (other, None),
        }
    }

    async fn settle(&mut self, question: QuestionId, done: bool, note: String, by: String) -> AnswerTaken {
        let found = if done { Found::Done } else { Found::Failed };
        self.asked(question, Input::Settle { question, found, note, by }).await
    }

    /// Steps, and tells from what the machine recorded whether the word counted.
    async fn asked(&mut self, question: QuestionId, input: Input) -> AnswerTaken {
        self.step_seen(input, Some(question)).await.unwrap_or(AnswerTaken::Obeyed)
    }

    async fn step(&mut self, input: Input) {
        self.step_seen(input, None).await;
    }

    async fn step_seen(&mut self, input: Input, question: Option<QuestionId>) -> Option<AnswerTaken> {
        let mut told = None;
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            self.machine.step(input, clock::now());
            self.carry_out(question, &mut told, &mut inputs).await;
        }
        told
    }

    /// Carries out what the machine says. What comes of it at once is the next input.
    async fn carry_out(
        &mut self,
        question: Option<QuestionId>,
        told: &mut Option<AnswerTaken>,
        inputs: &mut VecDeque<Input>,
    ) {
        while let Some(action) = self.machine.next_action() {
            match action {
                Action::Record { entries, now } => {
                    for (entry, event) in entries {
                        if question.is_some() {
                            *told = told.take().or_else(|| word_of(&event, question));
                        }
                        self.record(entry, &event, now).await;
                    }
                }
                Action::Ask(question) => {
                    let _ = self.parts.questions.send(question.id);
                    tracing::info!(question = %question.id, kind = question.kind.word(), "a person is asked");
                }
                Action::Look { question, unknown } => {
                    // Nobody waits for this: with a full line, or without anybody at its end, a person finds out.
                    let _ = self.parts.looks.try_send(Sought { question, unknown: *unknown });
                }
                Action::Withdraw { question } => tracing::info!(%question, "the question is closed"),
                Action::Start(order) => inputs.extend(self.start(order)),
                Action::Stop { call } => {
                    if let Some(stopper) = self.stoppers.remove(&call) {
                        stopper.stop();
                    }
                }
                Action::Reply { batch, replies } => self.reply(batch, replies),
            }
        }
    }

    async fn record(&mut self, entry: Entry, event: &Event, now: bool) {
        self.newest = entry;
        let receipt = matches!(event, Event::Settled { .. }).then(Receipt::default);
        if let Some(receipt) = &receipt {
            self.receipts.insert(entry, receipt.clone());
        }
        if let Event::Settled { call, ending: Ending::NotStarted(Why::DeniedRepeatedly { times, .. }) } = event {
            self.parts.own.denied_repeatedly(*call, *times);
        }
        if let Event::Anomaly { call: _, change } = event {
            self.parts.own.anomaly(change);
        }
        let row = row(event, super::stamp::now());
        let mut waiting = crate::store::queue::Entry { row, now, tell: Tell::Ticket(entry.0), receipt };
        // A full queue means that the disk is slower than the world: wait for it, as every caller of the log does.
        while let Err(not_taken) = self.parts.writer.append(waiting) {
            waiting = *not_taken.entry;
            if not_taken.why != NotWritten::QueueFull || self.acks.changed().await.is_err() {
                return;
            }
            self.acks.mark_changed();
        }
    }

    /// Starts an order, in a task of its own. One of the daemon's own tools has its first moment here: most of them
    /// only look at what is in memory and have ended after it, and a task costs such a call more than its judgement.
    fn start(&mut self, order: Order) -> Option<Input> {
        let call = order.call();
        let (stop, stopper) = Stop::new();
        let (tools, own) = (Arc::clone(&self.parts.tools), Arc::clone(&self.parts.own));
        let line = self.lines.get(&call.batch).cloned();
        let agent = self.parts.agent.clone();
        // Each boxed where it is made: they are large, and the room of the largest would be copied at each step of its
        // way to the runtime.
        let task = if agent::child::is_one(&order) {
            self.running.spawn(Box::pin(async move { agent.child(order, stop).await }))
        } else if Own::is_own(&order) {
            let mut running = Box::pin(async move { own.run(order, tools).await });
            // Nobody has to be woken for it: whoever takes it over looks first.
            let mut nobody = Context::from_waker(Waker::noop());
            match catch_unwind(AssertUnwindSafe(|| running.as_mut().poll(&mut nobody))) {
                Ok(Poll::Ready(report)) => return Some(Input::Ended { call, report }),
                Err(panic) => return Some(Input::Ended { call, report: Report::Lost(panicked(panic)) }),
                Ok(Poll::Pending) => self.running.spawn(running),
            }
        } else {
            self.running.spawn(Box::pin(async move { crate::tool::run(order, &tools, line, stop).await }))
        };
        self.calls.insert(task.id(), call);
        self.stoppers.insert(call, stopper);
        None
    }

    fn reply(&mut self, batch: BatchId, replies: Vec<Reply>) {
        self.lines.remove(&batch);
        let answered: Vec<Answered> = replies
            .into_iter()
            .map(|reply| {
                let evidence = reply.evidence.and_then(|entry| self.receipts.get(&entry)).and_then(Receipt::seq);
                Answered { reply, evidence }
            })
            .collect();
        // Settlements are recorded in rising order, and replies follow them: older receipts have been used.
        for answered in &answered {
            for watcher in self.watchers.remove(&answered.reply.call).into_iter().flatten() {
                let _ = watcher.send(answered.clone());
            }
        }
        let durable = Entry(self.acks.borrow().ticket);
        // From the front only: all that are younger may be a thousand, and each reply comes by here.
        while let Some(oldest) = self.receipts.first_entry()
            && *oldest.key() <= durable
        {
            oldest.remove();
        }
        if let Some(awaited) = self.replies.remove(&batch) {
            let Awaited { replies, asked } = awaited;
            // Nobody listens any more: the log has the settlement.
            let _ = replies.send(answered);
            drop(asked);
        }
    }

    async fn drain(&mut self) {
        self.step(Input::Drain).await;
        let end = clock::now().after(DRAIN_PATIENCE);
        while !self.machine.is_idle() && clock::now() < end {
            let left = end.since(clock::now());
            match tokio::time::timeout(left, self.woken()).await {
                Ok(Woken::Message(Message::Stop { back })) => drop(back),
                Ok(Woken::InboxClosed) => self.parts.inbox.close(),
                Ok(woken) => self.take(woken).await,
                Err(_) => break,
            }
            if self.parts.inbox.is_closed() && self.running.is_empty() {
                break;
            }
        }
        self.running.shutdown().await;
    }
}

/// What a record says of an answer to that question, beyond that it counted.
fn word_of(event: &Event, question: Option<QuestionId>) -> Option<AnswerTaken> {
    if let Event::AnswerIgnored { question: of, why, .. } = event
        && Some(*of) == question
    {
        return Some(AnswerTaken::Ignored(*why));
    }
    if let Event::Answered { question: of, waits: true, .. } = event
        && Some(*of) == question
    {
        return Some(AnswerTaken::Waits);
    }
    None
}

async fn until(deadline: Option<tokio::time::Instant>) {
    match deadline {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

fn open(question: &Question, now: Tick) -> Open {
    let left_ms = question.until.map(|until| u64::try_from(until.since(now).as_millis()).unwrap_or(u64::MAX));
    Open { question: question.clone(), left_ms }
}

fn lost(error: JoinError) -> Loss {
    error.try_into_panic().map_or(Loss::Stopped, panicked)
}

#[expect(clippy::needless_pass_by_value, reason = "what a panic carries ends here")]
fn panicked(panic: Box<dyn Any + Send>) -> Loss {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    Loss::Panicked(text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default())
}

fn unix_ms() -> u64 {
    u64::try_from(clock::wall().0).unwrap_or(0)
}

/// Tells runs of one millisecond apart. Not a secret: a run's name gives no right.
fn random() -> u128 {
    crate::sys::machine::random::<16>().map_or_else(|_| u128::from(clock::now().0), u128::from_le_bytes)
}

/// The paths that a configuration keeps for itself.
#[must_use]
pub fn own_paths(paths: impl IntoIterator<Item = PathBuf>) -> Arc<[String]> {
    paths
        .into_iter()
        .map(|path| path.canonicalize().unwrap_or(path))
        .filter_map(|path| path.to_str().map(str::to_owned))
        .collect()
}

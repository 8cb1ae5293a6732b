//! What a surface holds of the mediator: a bounded sender. Asking is free, deciding is not done here.
//!
//! Nothing that is sent here names a tool's code, and no answer gives a right: a permission never leaves the machine.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use interlock_domain::closure::Reply;
use interlock_domain::gate::docket::{Answer, By, Ignored, Question};
use interlock_domain::gate::policy::Mode;
use interlock_domain::id::{BatchId, CallId, QuestionId, RunId, Seq, ToolName};
use interlock_domain::request::args::{Args, TooLarge};
use interlock_domain::request::paths::PathFacts;
use interlock_domain::request::why::Why;
use interlock_domain::request::{Asker, Batch, Part, Via, Wish};
use interlock_domain::surface::Surface;
use interlock_domain::surface::narrow::Narrowing;
use interlock_domain::surface::nature::Nature;
use interlock_domain::surface::tool::Tool;
use serde_json::Value;
use thiserror::Error;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, timeout};

use super::classify::{BATCH_PATIENCE, Classify};
use crate::mcp::upward::Line;
use crate::sys::paths;
use crate::sys::sandbox::Reach;
use crate::tool::Tools;

/// How many messages may wait for the mediator. A message costs microseconds; a queue this long means that the
/// machine is wedged, and the surfaces say "busy" instead of piling up.
pub const INBOX_LEN_MAX: usize = 256;

/// The tool that makes subagents.
pub const SUBAGENT: &str = "subagent";

/// One action that somebody would like to have.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// The tool.
    pub tool: ToolName,
    /// Its input.
    pub input: Value,
    /// It comes from a protective command that was matched exactly.
    pub protective: bool,
}

/// Whom a run acts for, and what it may do at most.
#[derive(Debug, Clone)]
pub struct Who {
    /// For whom.
    pub asker: Asker,
    /// Somebody can be asked in its name.
    pub answerable: bool,
    /// A mode that is narrower than the one of the configuration; a wider one is not given.
    pub mode: Option<Mode>,
    /// The run that makes this one. Its policy and its tools are the most that the child gets.
    pub parent: Option<RunId>,
    /// What it is left of the tools.
    pub narrowing: Narrowing,
}

impl Who {
    /// A run of nobody's, with all tools and the mode of the configuration.
    #[must_use]
    pub fn of(asker: Asker, answerable: bool) -> Who {
        Who { asker, answerable, mode: None, parent: None, narrowing: Narrowing::default() }
    }

    /// What it is left of all tools that there are: only the runs of a model make subagents.
    #[must_use]
    pub fn left(&self) -> Narrowing {
        if self.asker.via == Via::Agent { self.narrowing.clone() } else { Who::hidden(self.narrowing.clone()) }
    }

    fn hidden(mut narrowing: Narrowing) -> Narrowing {
        narrowing.deny.insert(SUBAGENT.to_owned());
        narrowing
    }
}

/// In whose name, and from where, wishes are made.
#[derive(Debug, Clone, Default)]
pub struct Within {
    /// The composite call that makes them: they are cancelled when it ends or is stopped.
    pub parent: Option<CallId>,
    /// The call that began the operation, when this is another attempt at it with the same key.
    pub again: Option<CallId>,
    /// The place of each wish in a workflow, which makes one wish at a time.
    pub part: Option<Arc<Part>>,
    /// Where its tools start, instead of the daemon's working directory: absolute.
    pub cwd: Option<PathBuf>,
    /// Directories besides the configured ones that may be worked in: absolute.
    pub work_dirs: Vec<String>,
}

/// A batch that was taken.
#[derive(Debug)]
pub struct Submitted {
    /// Its number.
    pub batch: BatchId,
    /// What waits for a person before anything of it starts.
    pub questions: Vec<Open>,
    /// One reply for each wish, in order, once all of them have ended.
    pub replies: oneshot::Receiver<Vec<Answered>>,
}

/// A call that was handed in, and is judged later.
#[derive(Debug)]
pub struct Handed {
    /// Its name.
    pub call: CallId,
    /// What a person has to answer before it starts; gone when nobody is asked.
    pub asked: oneshot::Receiver<Vec<Open>>,
    /// Its end.
    pub replies: oneshot::Receiver<Vec<Answered>>,
}

/// How whoever handed a batch in hears of it.
#[derive(Debug)]
pub enum Back {
    /// As soon as it has been judged.
    Judged(oneshot::Sender<Submitted>),
    /// When there is something to say. Whoever made one call and would only wait on is not woken for the word that it
    /// was taken: that wake-up costs a call more than its judgement.
    Ended {
        /// What waits for a person; kept until the end where nothing does.
        asked: oneshot::Sender<Vec<Open>>,
        /// One reply for each wish.
        replies: oneshot::Sender<Vec<Answered>>,
    },
}

/// The end of one call, with where it is written.
#[derive(Debug, Clone)]
pub struct Answered {
    /// What became of it.
    pub reply: Reply,
    /// The row of its settlement; `None` while that is not on the disk (reads do not wait).
    pub evidence: Option<Seq>,
}

/// Why a message was not taken.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NotTaken {
    /// The inbox is full.
    #[error("the mediator is busy: {INBOX_LEN_MAX} messages wait")]
    Busy,
    /// The daemon is stopping.
    #[error("the daemon is stopping")]
    Stopping,
    /// An input is beyond a bound.
    #[error("{0}")]
    Input(#[from] TooLarge),
    /// The batch is too long, or the run is not there.
    #[error("{0}")]
    Batch(String),
    /// The run that would make another one has ended.
    #[error("run {0} is not open")]
    NoParent(RunId),
}

/// What became of an answer to a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AnswerTaken {
    /// It counted.
    Obeyed,
    /// It counted as the first of two: another person has to allow it, too.
    Waits,
    /// It did not, and this is why.
    Ignored(Ignored),
}

/// A question with what a person needs to know of it.
#[derive(Debug, Clone)]
pub struct Open {
    /// The question.
    pub question: Question,
    /// How many milliseconds are left; `None` when it never expires.
    pub left_ms: Option<u64>,
}

/// What is sent to the mediator. Each carries its way back.
#[derive(Debug)]
pub enum Message {
    /// A new run.
    OpenRun {
        /// Whose, and what it may do at most.
        who: Who,
        /// The way back.
        back: oneshot::Sender<Result<RunId, NotTaken>>,
    },
    /// A run makes no more wishes.
    CloseRun {
        /// Which.
        run: RunId,
    },
    /// Some wishes.
    Submit {
        /// In which run.
        run: RunId,
        /// Its number, above that of every one before it.
        batch: BatchId,
        /// What is wanted.
        wishes: Batch,
        /// The way up from the tools to whoever asked, where they may speak.
        line: Option<Line>,
        /// The way back.
        back: Back,
    },
    /// A person's word.
    Answer {
        /// On what.
        question: QuestionId,
        /// Which.
        answer: Answer,
        /// Whose.
        by: By,
        /// The way back: whether it counted, then how the call ended.
        back: oneshot::Sender<(AnswerTaken, Option<oneshot::Receiver<Answered>>)>,
    },
    /// A person may not answer any more.
    Forget {
        /// Who.
        person: String,
    },
    /// A person's word on what became of an action.
    Settle {
        /// On what.
        question: QuestionId,
        /// The effect is there.
        done: bool,
        /// How that is known.
        note: String,
        /// Whose.
        by: String,
        /// The way back.
        back: oneshot::Sender<AnswerTaken>,
    },
    /// A query found out what became of an action.
    Found {
        /// The question that is open about it.
        question: QuestionId,
        /// The effect is there.
        done: bool,
        /// What was asked, and what came back.
        note: String,
    },
    /// What waits for a person.
    Questions {
        /// The way back.
        back: oneshot::Sender<Vec<Open>>,
    },
    /// Nobody wants the batch any more.
    Cancel {
        /// Which.
        batch: BatchId,
    },
    /// Another configuration: new policies for all runs, new tools.
    Reconfigure {
        /// The rules and the mode of runs from now on.
        settings: Box<super::mediator::Settings>,
        /// What every run sees from now on.
        surface: Surface,
        /// The code behind it.
        tools: Arc<Tools>,
        /// The way back.
        back: oneshot::Sender<()>,
    },
    /// Other tools than before; the rules stay.
    See {
        /// What every run sees from now on.
        surface: Surface,
        /// The way back.
        back: oneshot::Sender<()>,
    },
    /// Settle or abandon what is open, then end.
    Stop {
        /// The way back.
        back: oneshot::Sender<()>,
    },
}

/// Where tools work, for facts about paths.
#[derive(Debug, Clone)]
pub struct Grounds {
    /// Where a relative path starts: absolute.
    pub cwd: PathBuf,
    /// What the commands of tools may reach.
    pub reach: Arc<Reach>,
    /// What `~` stands for.
    pub home: Option<PathBuf>,
    /// The other directories that tools may work in: absolute.
    pub work_dirs: Vec<String>,
    /// Who gives an opinion on calls, where somebody does.
    pub classify: Option<Arc<Classify>>,
}

/// The way to the mediator. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Mediator {
    inbox: mpsc::Sender<Message>,
    // Locked for the length of a push into the inbox: batches come in there in the order of their numbers, and whoever
    // hands one in knows its number without waiting for an answer.
    next_batch: Arc<Mutex<BatchId>>,
    surface: watch::Receiver<Surface>,
    grounds: watch::Receiver<Arc<Grounds>>,
    /// How long a place in the inbox is waited for; nothing waits where it is zero.
    patience: Duration,
}

impl Mediator {
    /// A handle and the other end. `first_batch` was never used, and neither was any number above it.
    #[must_use]
    pub fn new(
        first_batch: BatchId,
        surface: watch::Receiver<Surface>,
        grounds: watch::Receiver<Arc<Grounds>>,
    ) -> (Mediator, mpsc::Receiver<Message>) {
        let (inbox, outlet) = mpsc::channel(INBOX_LEN_MAX);
        let next_batch = Arc::new(Mutex::new(first_batch));
        (Mediator { inbox, next_batch, surface, grounds, patience: Duration::ZERO }, outlet)
    }

    /// The same way for what makes safe: it waits for a place, so long at most, where others are refused.
    #[must_use]
    pub fn patient(&self, patience: Duration) -> Mediator {
        Mediator { patience, ..self.clone() }
    }

    /// The tools that a run can see.
    #[must_use]
    pub fn surface(&self) -> Surface {
        self.surface.borrow().narrowed(&Who::hidden(Narrowing::default()))
    }

    /// The tools that a run of a model can see.
    #[must_use]
    pub fn surface_of_agents(&self) -> Surface {
        self.surface.borrow().clone()
    }

    /// The tools, and when they change.
    #[must_use]
    pub fn surfaces(&self) -> watch::Receiver<Surface> {
        self.surface.clone()
    }

    /// Opens a run. `answerable` says that somebody can be asked in its name.
    ///
    /// # Errors
    /// When the mediator is busy or stopping.
    pub async fn open_run(&self, asker: Asker, answerable: bool) -> Result<RunId, NotTaken> {
        self.open(Who::of(asker, answerable)).await
    }

    /// Opens a run that may do less than others, or the child of one.
    ///
    /// # Errors
    /// When the mediator is busy or stopping, or the parent is not open.
    pub async fn open(&self, who: Who) -> Result<RunId, NotTaken> {
        self.send(|back| Message::OpenRun { who, back }).await?
    }

    /// Closes a run; what of it is under way is cancelled. Waits for a place in the inbox: a run that is forgotten
    /// would count against the bound for ever.
    pub async fn close_run(&self, run: RunId) {
        let _ = self.inbox.send(Message::CloseRun { run }).await;
    }

    /// Hands in a batch. Returns as soon as it has been judged; `replies` comes when all of it has ended.
    ///
    /// # Errors
    /// When the mediator is busy or stopping, or the batch is beyond a bound: then nothing of it is taken.
    pub async fn submit(&self, run: RunId, wanted: Vec<Wanted>) -> Result<Submitted, NotTaken> {
        self.submit_within(run, wanted, &Within::default()).await
    }

    /// Hands in one wish of somebody whom its tool may speak to while it runs. Returns before it has been judged.
    ///
    /// # Errors
    /// As [`Mediator::submit`].
    pub async fn submit_on_line(&self, run: RunId, wanted: Wanted, line: Line) -> Result<Handed, NotTaken> {
        let wishes = vec![self.wish(wanted, &Within::default(), Instant::now() + BATCH_PATIENCE).await?];
        let ((asking, asked), (ending, replies)) = (oneshot::channel(), oneshot::channel());
        let batch = self.hand_in(run, wishes, Some(line), Back::Ended { asked: asking, replies: ending }).await?;
        Ok(Handed { call: CallId { run, batch, position: 0 }, asked, replies })
    }

    async fn hand_in(
        &self,
        run: RunId,
        wishes: Vec<Wish>,
        line: Option<Line>,
        back: Back,
    ) -> Result<BatchId, NotTaken> {
        let wishes = Batch::new(wishes).map_err(|error| NotTaken::Batch(error.to_string()))?;
        let place = self.place().await?;
        let mut next = self.next_batch.lock().unwrap_or_else(PoisonError::into_inner);
        let batch = *next;
        place.send(Message::Submit { run, batch, wishes, line, back });
        *next = BatchId(batch.0 + 1);
        Ok(batch)
    }

    /// Hands in a batch in the name of a composite call, or from another place than the daemon's own.
    ///
    /// # Errors
    /// As [`Mediator::submit`].
    pub async fn submit_within(&self, run: RunId, wanted: Vec<Wanted>, within: &Within) -> Result<Submitted, NotTaken> {
        let mut wishes = Vec::with_capacity(wanted.len());
        let until = Instant::now() + BATCH_PATIENCE;
        for wanted in wanted {
            wishes.push(self.wish(wanted, within, until).await?);
        }
        let (back, judged) = oneshot::channel();
        self.hand_in(run, wishes, None, Back::Judged(back)).await?;
        judged.await.map_err(|_| NotTaken::Stopping)
    }

    async fn wish(&self, wanted: Wanted, within: &Within, until: Instant) -> Result<Wish, NotTaken> {
        let args = Args::new(wanted.input)?;
        let tool = self.surface.borrow().tool(&wanted.tool).map(Arc::clone);
        let grounds = Arc::clone(&self.grounds.borrow());
        let cwd = within.cwd.as_deref().unwrap_or(&grounds.cwd);
        let work_dirs = [&*grounds.work_dirs, &*within.work_dirs].concat();
        let facts = Arc::new(seen(tool.as_deref(), args.value(), cwd, grounds.home.as_deref(), &work_dirs));
        let Within { parent, again, .. } = *within;
        let classified = match (&grounds.classify, &tool) {
            // Boxed: few have a classifier, and every wish would carry the room for its conversation.
            (Some(classify), Some(tool)) if !wanted.protective => {
                Box::pin(classify.opinion(tool, args.value(), until)).await
            }
            (Some(_) | None, _) => None,
        };
        let part = within.part.clone();
        Ok(Wish { tool: wanted.tool, args, parent, again, part, facts, protective: wanted.protective, classified })
    }

    /// What a call would be by nature: what it changes, and what is promised about it.
    ///
    /// # Errors
    /// Why there would be no such call.
    pub fn nature(&self, tool: &ToolName, input: &Value) -> Result<Nature, Why> {
        let args = Args::new(input.clone())
            .map_err(|error| Why::BadInput { path: String::new(), expected: error.to_string() })?;
        let Some(tool) = self.surface.borrow().tool(tool).cloned() else {
            return Err(Why::NoSuchTool { tool: tool.clone() });
        };
        let grounds = Arc::clone(&self.grounds.borrow());
        let home = grounds.home.as_deref();
        tool.nature(&args, &seen(Some(&tool), args.value(), &grounds.cwd, home, &grounds.work_dirs))
    }

    /// A person's word on a `permit` or `confirm` question.
    ///
    /// # Errors
    /// When the mediator is busy or stopping.
    pub async fn answer(
        &self,
        question: QuestionId,
        answer: Answer,
        by: By,
    ) -> Result<(AnswerTaken, Option<oneshot::Receiver<Answered>>), NotTaken> {
        self.send(|back| Message::Answer { question, answer, by, back }).await
    }

    /// A person's word on what became of an action.
    ///
    /// # Errors
    /// When the mediator is busy or stopping.
    pub async fn settle(
        &self,
        question: QuestionId,
        done: bool,
        note: String,
        by: String,
    ) -> Result<AnswerTaken, NotTaken> {
        self.send(|back| Message::Settle { question, done, note, by, back }).await
    }

    /// A person may not answer any more: what they allowed as the first of two waits for two again. Waits for a place in
    /// the inbox.
    pub async fn forget(&self, person: String) {
        // With a mediator that is gone, so are its questions.
        let _ = self.inbox.send(Message::Forget { person }).await;
    }

    /// What a query found out about an unknown outcome. Waits for a place in the inbox.
    pub async fn found(&self, question: QuestionId, done: bool, note: String) {
        // A mediator that is gone has written the call down as unknown, and the next life looks again.
        let _ = self.inbox.send(Message::Found { question, done, note }).await;
    }

    /// What waits for a person.
    ///
    /// # Errors
    /// When the mediator is busy or stopping.
    pub async fn questions(&self) -> Result<Vec<Open>, NotTaken> {
        self.send(|back| Message::Questions { back }).await
    }

    /// Nobody wants the batch any more: what has not started will not, what runs is asked to stop. Waits for a place in
    /// the inbox: a wish that is lost leaves a call running that nobody wants.
    pub async fn cancel(&self, batch: BatchId) {
        // A mediator that is gone has ended the batch.
        let _ = self.inbox.send(Message::Cancel { batch }).await;
    }

    /// Puts another configuration in force.
    ///
    /// # Errors
    /// When the mediator is busy or stopping.
    pub async fn reconfigure(
        &self,
        settings: super::mediator::Settings,
        surface: Surface,
        tools: Arc<Tools>,
    ) -> Result<(), NotTaken> {
        self.send(|back| Message::Reconfigure { settings: Box::new(settings), surface, tools, back }).await
    }

    /// Tells the mediator which tools there are now. Waits for its place: a tool that is gone must not stay.
    pub async fn see(&self, surface: Surface) {
        let (back, seen) = oneshot::channel();
        if self.inbox.send(Message::See { surface, back }).await.is_ok() {
            let _ = seen.await;
        }
    }

    /// Ends the mediator. Returns when it has ended.
    pub async fn stop(&self) {
        let (back, ended) = oneshot::channel();
        // The stop waits for a place: it must not be lost to a full inbox.
        if self.inbox.send(Message::Stop { back }).await.is_ok() {
            let _ = ended.await;
        }
    }

    /// A place in the inbox. Without one there is no waiting, but for what makes safe.
    async fn place(&self) -> Result<mpsc::Permit<'_, Message>, NotTaken> {
        match self.inbox.try_reserve() {
            Ok(place) => Ok(place),
            Err(mpsc::error::TrySendError::Closed(())) => Err(NotTaken::Stopping),
            Err(mpsc::error::TrySendError::Full(())) if self.patience.is_zero() => Err(NotTaken::Busy),
            Err(mpsc::error::TrySendError::Full(())) => match timeout(self.patience, self.inbox.reserve()).await {
                Ok(place) => place.map_err(|_| NotTaken::Stopping),
                Err(_) => Err(NotTaken::Busy),
            },
        }
    }

    async fn send<T>(&self, message: impl FnOnce(oneshot::Sender<T>) -> Message) -> Result<T, NotTaken> {
        let (back, answer) = oneshot::channel();
        self.place().await?.send(message(back));
        answer.await.map_err(|_| NotTaken::Stopping)
    }
}

/// What the disk says about the paths of a call, where that matters to its tool.
fn seen(tool: Option<&Tool>, input: &Value, cwd: &Path, home: Option<&Path>, work_dirs: &[String]) -> PathFacts {
    match tool {
        Some(tool) if tool.acts_on_paths() => paths::facts(&tool.paths(input), cwd, home, work_dirs),
        Some(_) | None => paths::unseen(cwd, home, work_dirs),
    }
}

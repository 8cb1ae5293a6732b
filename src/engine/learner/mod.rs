//! Owns what was learned: proposals come in, the gate reviews them, a version of the whole set goes to the listener.
//!
//! Nothing is learned that the gate refuses, that the policy leaves to a person who has not spoken, or that the log
//! has not got: the row is durable before the version exists, so that every learned item has its provenance. The
//! active set is swapped as a whole; a sentence is understood by one set or by the other, never by half of each. What
//! an outsider proposes (an MCP server) or a machine guesses (a miss) always waits for a person.

mod notice;

use std::sync::Arc;
use std::time::Duration;

use interlock_domain::command::definition::Commands;
use interlock_domain::command::instead::Instead;
use interlock_domain::command::lexicon::Lexicon;
use interlock_domain::command::sound::Confusions;
use interlock_domain::command::understanding::{Learned, Understanding};
use interlock_domain::device::table::Devices;
use interlock_domain::id::Seq;
use interlock_domain::learn::gate::{Base, Example, Policy, Proposal, Review, Verdict, review};
use serde_json::{Value, json};
use thiserror::Error;
use tokio::sync::{mpsc, oneshot, watch};

use super::inference::Lesson;
use super::keeper::{Keeper, NotKept};
use super::listener::{Ears, Listener};
use crate::infer::classifier::Course;
use crate::record::{Row, learned};
use crate::store::queue::{Entry, Tell, Writer};

use crate::store::state::learned::WAITING_MAX;
use crate::sys::clock;
// Surfaces may not name the store; what it keeps of learning is what they show.
pub use crate::store::state::learned::{Fate, Proposed, Version};
pub use notice::{Appeared, Noticed};

/// Requests that may wait. A review takes tens of milliseconds; whoever finds the inbox full tries again.
const INBOX_LEN_MAX: usize = 64;

/// How long a row may take to be durable before nothing is learned.
const LOG_PATIENCE: Duration = Duration::from_secs(10);

/// What a learned set stands on.
pub struct Basis {
    /// The commands of the files, shared with the set that is in force.
    pub commands: Commands,
    /// Reads the words that a set is compiled with. They are read for each compilation, and nobody holds them between.
    pub vocabulary: fn() -> Result<Vocabulary, String>,
    /// What the commands may name.
    pub devices: Arc<Devices>,
    /// Who may take what passes the gate.
    pub policy: Policy,
    /// How long an answer may follow its question by voice.
    pub dialogue: Duration,
}

/// What a set is compiled with, and held against.
pub struct Vocabulary {
    /// The words.
    pub lexicon: Lexicon,
    /// The costs of mishearing.
    pub confusions: Confusions,
    /// Sentences whose meaning must not change.
    pub replay: Vec<Example>,
}

impl Basis {
    /// The commands with what was learned, for the listener.
    ///
    /// # Errors
    /// [`NotLearned::Words`].
    pub fn ears(&self, learned: &Learned, version: u64) -> Result<Ears, NotLearned> {
        let Vocabulary { lexicon, confusions, replay } = self.words()?;
        let learned = learned.beside(&self.commands);
        let course = Course::of(&learned, &replay);
        let understanding = Understanding::compile_learned(self.commands.clone(), &lexicon, &confusions, &learned);
        Ok(Ears::new(understanding, Arc::clone(&self.devices), self.dialogue, Lesson { version, course }))
    }

    fn words(&self) -> Result<Vocabulary, NotLearned> {
        (self.vocabulary)().map_err(NotLearned::Words)
    }

    fn review(&self, learned: &Learned, proposal: &Proposal, policy: Policy) -> Result<Review, NotLearned> {
        let Vocabulary { lexicon, confusions, replay } = self.words()?;
        let base = Base { commands: &self.commands, lexicon: &lexicon, confusions: &confusions };
        // What every command says of itself counts as taught.
        let own = self.commands.list.iter().flat_map(|command| {
            std::iter::once(&command.text)
                .chain(&command.aliases)
                .map(|text| Example { sentence: text.clone(), means: Some(command.id.clone()) })
        });
        let replay: Vec<Example> = replay.into_iter().chain(own).collect();
        Ok(review(base, &learned.beside(&self.commands), proposal, &replay, policy))
    }
}

/// What a proposal arose from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Somebody proposed it by `learn propose`.
    Operator,
    /// A speaker took back what had been heard.
    Correction,
    /// A sentence came to nothing, and the speaker then said it in other words.
    Miss,
    /// A tool of an MCP server appeared.
    Mcp,
}

impl Source {
    /// As it is written.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Source::Operator => "operator",
            Source::Correction => "correction",
            Source::Miss => "miss",
            Source::Mcp => "mcp",
        }
    }

    /// The policy for what comes from here.
    fn policy(self, configured: Policy) -> Policy {
        match self {
            Source::Operator | Source::Correction => configured,
            Source::Miss | Source::Mcp => Policy::Strict,
        }
    }
}

/// Why nothing was learned.
#[derive(Debug, Error)]
pub enum NotLearned {
    /// Too many requests wait.
    #[error("the learner is busy: {INBOX_LEN_MAX} requests wait")]
    Busy,
    /// The daemon is stopping.
    #[error("the daemon is stopping")]
    Stopping,
    /// Too many proposals wait for a person.
    #[error("{WAITING_MAX} proposals wait for a person already")]
    Full,
    /// There is no such proposal.
    #[error("there is no proposal {0}")]
    NoSuch(String),
    /// It has been decided.
    #[error("proposal p{id} is {}", .fate.word())]
    Decided {
        /// Which.
        id: u64,
        /// What it is.
        fate: Fate,
    },
    /// The gate refuses it by now.
    #[error("the gate refuses it: {0}")]
    Refused(String),
    /// There is no such version.
    #[error("there is no version {0} to go back to")]
    NoSuchVersion(u64),
    /// The log cannot be written.
    #[error("the evidence log cannot be written; nothing was learned")]
    NotRecorded,
    /// The words that a set is compiled with do not read.
    #[error("the words of the commands do not read: {0}")]
    Words(String),
    /// What the state says.
    #[error(transparent)]
    State(#[from] NotKept),
    /// A version that does not read.
    #[error("version {version} does not read: {why}")]
    Unreadable {
        /// Which.
        version: u64,
        /// What is wrong with it.
        why: String,
    },
}

/// Which proposal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Which {
    /// By its number.
    Number(u64),
    /// By the name that its proposer gave it, the newest of that name; without one, by its number if it is one.
    Label(String),
}

impl std::fmt::Display for Which {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Which::Number(number) => write!(f, "p{number}"),
            Which::Label(label) => f.write_str(label),
        }
    }
}

/// What is proposed, and by whom.
#[derive(Debug)]
pub struct Wish {
    /// What.
    pub proposal: Proposal,
    /// What the proposer calls it.
    pub label: Option<String>,
    /// What it arose from.
    pub source: Source,
    /// Who.
    pub by: String,
}

type Back<T> = oneshot::Sender<Result<T, NotLearned>>;

enum Message {
    Propose { wish: Wish, back: Back<Proposed> },
    Approve { which: Which, by: String, back: Back<Proposed> },
    Reject { which: Which, by: String, note: String, back: Back<Proposed> },
    Rollback { to: Option<u64>, by: String, back: Back<Version> },
    Noticed(Noticed),
    Appeared(Appeared),
    Rebase { basis: Box<Basis>, back: Back<()> },
}

/// The way to the learner. Cheap to clone.
#[derive(Clone)]
pub struct Learner {
    inbox: mpsc::Sender<Message>,
    keeper: Keeper,
}

/// The other end of the way, until there is an owner.
pub struct Inbox(mpsc::Receiver<Message>);

impl Learner {
    /// A handle, and the inbox for its owner: the listener needs the one before the other can be.
    #[must_use]
    pub fn new(keeper: Keeper) -> (Learner, Inbox) {
        let (inbox, outlet) = mpsc::channel(INBOX_LEN_MAX);
        (Learner { inbox, keeper }, Inbox(outlet))
    }

    /// Has a proposal reviewed, and keeps it.
    ///
    /// # Errors
    /// [`NotLearned`]. That the gate refuses it is no error: it is what has become of the proposal.
    pub async fn propose(&self, wish: Wish) -> Result<Proposed, NotLearned> {
        self.ask(|back| Message::Propose { wish, back }).await
    }

    /// A person approves. The gate looks once more: what is active may have changed.
    ///
    /// # Errors
    /// [`NotLearned`].
    pub async fn approve(&self, which: Which, by: String) -> Result<Proposed, NotLearned> {
        self.ask(|back| Message::Approve { which, by, back }).await
    }

    /// A person says no.
    ///
    /// # Errors
    /// [`NotLearned`].
    pub async fn reject(&self, which: Which, by: String, note: String) -> Result<Proposed, NotLearned> {
        self.ask(|back| Message::Reject { which, by, note, back }).await
    }

    /// Goes back to a version, 0 for nothing learned; without one, to the version before the active one.
    ///
    /// # Errors
    /// [`NotLearned`].
    pub async fn rollback(&self, to: Option<u64>, by: String) -> Result<Version, NotLearned> {
        self.ask(|back| Message::Rollback { to, by, back }).await
    }

    /// The proposals that wait, or all that are kept.
    ///
    /// # Errors
    /// [`NotLearned::State`].
    pub async fn proposals(&self, all: bool) -> Result<Vec<Proposed>, NotLearned> {
        Ok(self.keeper.with(move |state| state.proposals(all)).await?)
    }

    /// The versions, the newest last.
    ///
    /// # Errors
    /// [`NotLearned::State`].
    pub async fn versions(&self) -> Result<Vec<Version>, NotLearned> {
        Ok(self.keeper.with(|state| state.versions()).await?)
    }

    /// What the listener noticed. Dropped when too much waits: it is a hint, and it will be said again.
    pub fn noticed(&self, noticed: Noticed) {
        let _ = self.inbox.try_send(Message::Noticed(noticed));
    }

    /// A tool of an MCP server appeared. Dropped when too much waits: servers list their tools again.
    pub fn appeared(&self, appeared: Appeared) {
        let _ = self.inbox.try_send(Message::Appeared(appeared));
    }

    /// Puts other commands in force, with what was learned on top of them.
    ///
    /// # Errors
    /// [`NotLearned`].
    pub async fn rebase(&self, basis: Basis) -> Result<(), NotLearned> {
        self.ask(|back| Message::Rebase { basis: Box::new(basis), back }).await
    }

    async fn ask<T>(&self, message: impl FnOnce(Back<T>) -> Message) -> Result<T, NotLearned> {
        let (back, answer) = oneshot::channel();
        self.inbox.try_send(message(back)).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => NotLearned::Busy,
            mpsc::error::TrySendError::Closed(_) => NotLearned::Stopping,
        })?;
        answer.await.map_err(|_| NotLearned::Stopping)?
    }
}

/// The owner.
pub struct Owner {
    inbox: mpsc::Receiver<Message>,
    basis: Arc<Basis>,
    learned: Learned,
    version: u64,
    keeper: Keeper,
    writer: Writer,
    listener: Listener,
    told: watch::Sender<Arc<[Instead]>>,
}

/// Reads the active set out of its version.
///
/// # Errors
/// [`NotLearned::Unreadable`].
pub fn read(version: &Version) -> Result<Learned, NotLearned> {
    learned::read_set(&version.body)
        .map_err(|error| NotLearned::Unreadable { version: version.version, why: error.to_string() })
}

impl Owner {
    /// The owner of what was `learned`, as `version`.
    #[must_use]
    pub fn new(
        inbox: Inbox,
        basis: Basis,
        (learned, version): (Learned, u64),
        keeper: Keeper,
        writer: Writer,
        listener: Listener,
        told: watch::Sender<Arc<[Instead]>>,
    ) -> Owner {
        Owner { inbox: inbox.0, basis: Arc::new(basis), learned, version, keeper, writer, listener, told }
    }

    /// Runs until every handle is gone.
    pub async fn run(mut self) {
        while let Some(message) = self.inbox.recv().await {
            match message {
                Message::Propose { wish, back } => {
                    let _ = back.send(self.propose(wish).await);
                }
                Message::Approve { which, by, back } => {
                    let _ = back.send(self.approve(&which, by).await);
                }
                Message::Reject { which, by, note, back } => {
                    let _ = back.send(self.reject(&which, by, note).await);
                }
                Message::Rollback { to, by, back } => {
                    let _ = back.send(self.rollback(to, by).await);
                }
                Message::Noticed(noticed) => {
                    for proposal in noticed.proposals() {
                        // Nobody waits for it: what the gate refuses is not even kept.
                        if self.guessed(proposal, noticed.source, &noticed.by).await {
                            break;
                        }
                    }
                }
                Message::Appeared(appeared) => {
                    for proposal in appeared.proposal().into_iter().chain(appeared.repair()) {
                        self.guessed(proposal, Source::Mcp, &appeared.server).await;
                    }
                }
                Message::Rebase { basis, back } => {
                    self.basis = Arc::from(basis);
                    let _ = back.send(self.swap().await);
                }
            }
        }
    }

    /// Reviews on a thread that may compute: compiling a set takes tens of milliseconds.
    async fn review(&self, proposal: &Proposal, policy: Policy) -> Result<Review, NotLearned> {
        let (basis, learned, proposal) = (Arc::clone(&self.basis), self.learned.clone(), proposal.clone());
        let reviewed = tokio::task::spawn_blocking(move || basis.review(&learned, &proposal, policy)).await;
        reviewed.map_err(|_| NotLearned::Stopping)?
    }

    async fn propose(&mut self, wish: Wish) -> Result<Proposed, NotLearned> {
        let body = learned::proposal(&wish.proposal).to_string();
        let kept = self.keeper.with(|state| state.proposals(false)).await?;
        if let Some(same) = kept.into_iter().find(|one| one.body == body) {
            return Ok(same);
        }
        let found = self.review(&wish.proposal, wish.source.policy(self.basis.policy)).await?;
        let new = Proposed {
            id: 0,
            label: wish.label,
            body,
            source: wish.source.word().to_owned(),
            by: wish.by,
            made: clock::wall(),
            fate: match found.verdict {
                Verdict::Approve(_) | Verdict::Operator(_) => Fate::Waiting,
                Verdict::Refuse => Fate::Refused,
            },
            why: found.why,
            decided: None,
            decided_by: None,
            version: None,
            evidence: None,
        };
        let kept = new.clone();
        let id = self.keeper.with(move |state| state.keep_proposal(&kept)).await?.ok_or(NotLearned::Full)?;
        let mut new = Proposed { id, ..new };
        match found.verdict {
            Verdict::Approve(after) => self.take(new, after, "the policy is auto".to_owned()).await,
            Verdict::Operator(_) | Verdict::Refuse => {
                let row = row(&new, &wish.proposal, None);
                new.evidence = self.record(row).await.ok();
                let settled = new.clone();
                self.keeper.with(move |state| state.settle_proposal(&settled)).await?;
                Ok(new)
            }
        }
    }

    async fn approve(&mut self, which: &Which, by: String) -> Result<Proposed, NotLearned> {
        let mut proposed = self.waiting(which).await?;
        let proposal = read_proposal(&proposed)?;
        let found = self.review(&proposal, Policy::Auto).await?;
        match found.verdict {
            Verdict::Approve(after) | Verdict::Operator(after) => self.take(proposed, after, by).await,
            Verdict::Refuse => {
                proposed.fate = Fate::Refused;
                proposed.why = found.why;
                self.settle(&mut proposed, &proposal, by).await?;
                Err(NotLearned::Refused(proposed.why))
            }
        }
    }

    async fn reject(&mut self, which: &Which, by: String, note: String) -> Result<Proposed, NotLearned> {
        let mut proposed = self.waiting(which).await?;
        let proposal = read_proposal(&proposed)?;
        proposed.fate = Fate::Rejected;
        if !note.trim().is_empty() {
            proposed.why = note;
        }
        self.settle(&mut proposed, &proposal, by).await?;
        Ok(proposed)
    }

    /// Writes down what a proposal that is not learned has become.
    async fn settle(&self, proposed: &mut Proposed, proposal: &Proposal, by: String) -> Result<(), NotLearned> {
        proposed.decided = Some(clock::wall());
        proposed.decided_by = Some(by);
        proposed.evidence = self.record(row(proposed, proposal, None)).await.ok().or(proposed.evidence);
        let settled = proposed.clone();
        Ok(self.keeper.with(move |state| state.settle_proposal(&settled)).await?)
    }

    /// Learns: the row first, then the version, then the swap.
    async fn take(&mut self, mut proposed: Proposed, after: Learned, by: String) -> Result<Proposed, NotLearned> {
        let proposal = read_proposal(&proposed)?;
        proposed.fate = Fate::Approved;
        proposed.decided = Some(clock::wall());
        proposed.decided_by = Some(by.clone());
        if after == self.learned {
            // Understood already: there is nothing to go back from.
            proposed.why = "it is understood already".to_owned();
            proposed.evidence = self.record(row(&proposed, &proposal, None)).await.ok();
            let settled = proposed.clone();
            self.keeper.with(move |state| state.settle_proposal(&settled)).await?;
            return Ok(proposed);
        }
        let seq = self.record(row(&proposed, &proposal, Some(self.version + 1))).await?;
        proposed.evidence = Some(seq);
        let version = Version {
            version: 0,
            body: learned::set(&after).to_string(),
            made: clock::wall(),
            by,
            why: format!("p{}", proposed.id),
            evidence: Some(seq),
        };
        let from = proposed.clone();
        self.version = self.keeper.with(move |state| state.learn(&version, Some(&from))).await?;
        self.learned = after;
        self.swap().await?;
        Ok(Proposed { version: Some(self.version), ..proposed })
    }

    async fn rollback(&mut self, to: Option<u64>, by: String) -> Result<Version, NotLearned> {
        let versions = self.keeper.with(|state| state.versions()).await?;
        let to = to.unwrap_or_else(|| {
            let before = versions.iter().rev().find(|version| version.version < self.version);
            before.map_or(0, |version| version.version)
        });
        let empty = learned::set(&Learned::default()).to_string();
        let body = match versions.iter().find(|version| version.version == to) {
            Some(version) => version.body.clone(),
            None if to == 0 => empty,
            None => return Err(NotLearned::NoSuchVersion(to)),
        };
        let after =
            learned::read_set(&body).map_err(|error| NotLearned::Unreadable { version: to, why: error.to_string() })?;
        let mut row = Row::new(super::stamp::now(), "learning");
        row.from = Some(self.version.to_string().into());
        row.to = Some("rolled_back".into());
        row.cause = Some(Source::Operator.word().into());
        let detail = json!({ "version": self.version + 1, "as": to, "by": by, "items": after.len() });
        let seq = self.record(row.detailed(&detail)).await?;
        let version =
            Version { version: 0, body, made: clock::wall(), by, why: format!("back to {to}"), evidence: Some(seq) };
        let new = version.clone();
        self.version = self.keeper.with(move |state| state.learn(&new, None)).await?;
        self.learned = after;
        self.swap().await?;
        Ok(Version { version: self.version, ..version })
    }

    /// A proposal that nobody waits for: kept when it passes, once. Says whether it is there.
    async fn guessed(&mut self, proposal: Proposal, source: Source, by: &str) -> bool {
        let body = learned::proposal(&proposal).to_string();
        let known = match self.keeper.with(|state| state.proposals(true)).await {
            Ok(kept) => kept.iter().any(|one| one.body == body),
            Err(_) => true,
        };
        if known {
            return true;
        }
        match self.review(&proposal, Policy::Strict).await {
            Ok(Review { verdict: Verdict::Approve(after) | Verdict::Operator(after), .. }) if after != self.learned => {
            }
            Ok(_) | Err(_) => return false,
        }
        match self.propose(Wish { proposal, label: None, source, by: by.to_owned() }).await {
            Ok(_) => true,
            Err(error) => {
                tracing::warn!(%error, "a proposal was not kept");
                false
            }
        }
    }

    async fn waiting(&self, which: &Which) -> Result<Proposed, NotLearned> {
        let kept = self.keeper.with(|state| state.proposals(true)).await?;
        let fits = |one: &&Proposed| match which {
            Which::Number(number) => one.id == *number,
            Which::Label(label) => one.label.as_ref() == Some(label),
        };
        let by_number = |one: &&Proposed| match which {
            Which::Number(_) => false,
            Which::Label(label) => label.parse() == Ok(one.id),
        };
        let found = kept.iter().rev().find(fits).or_else(|| kept.iter().find(by_number));
        let found = found.ok_or_else(|| NotLearned::NoSuch(which.to_string()))?;
        match found.fate {
            Fate::Waiting => Ok(found.clone()),
            fate @ (Fate::Approved | Fate::Rejected | Fate::Refused) => Err(NotLearned::Decided { id: found.id, fate }),
        }
    }

    async fn swap(&self) -> Result<(), NotLearned> {
        self.told.send_if_modified(|told| {
            let is_news = **told != *self.learned.told;
            if is_news {
                *told = Arc::from(self.learned.told.as_slice());
            }
            is_news
        });
        let (basis, learned, version) = (Arc::clone(&self.basis), self.learned.clone(), self.version);
        let ears = tokio::task::spawn_blocking(move || basis.ears(&learned, version)).await;
        let ears = ears.map_err(|_| NotLearned::Stopping)??;
        self.listener.swap(ears).await.map_err(|_| NotLearned::Stopping)
    }

    /// Writes a row and waits until it is durable.
    async fn record(&self, row: Row) -> Result<Seq, NotLearned> {
        let (tell, seq) = oneshot::channel();
        let entry = Entry { row, now: true, tell: Tell::Caller(tell), receipt: None };
        self.writer.append(entry).map_err(|_| NotLearned::NotRecorded)?;
        match tokio::time::timeout(LOG_PATIENCE, seq).await {
            Ok(Ok(Ok(seq))) => Ok(seq),
            Ok(_) | Err(_) => Err(NotLearned::NotRecorded),
        }
    }
}

fn read_proposal(proposed: &Proposed) -> Result<Proposal, NotLearned> {
    let value: Value = serde_json::from_str(&proposed.body).unwrap_or(Value::Null);
    learned::read_proposal(&value)
        .map_err(|error| NotLearned::Unreadable { version: proposed.id, why: error.to_string() })
}

/// What becomes of a proposal, as evidence.
fn row(proposed: &Proposed, proposal: &Proposal, version: Option<u64>) -> Row {
    let (channel, text, command) = learned::parts(proposal);
    let mut row = Row::new(super::stamp::now(), "learning");
    row.to = Some(proposed.fate.word().into());
    row.cause = Some(proposed.source.clone().into());
    row.detailed(&json!({
        "proposal": format!("p{}", proposed.id),
        "label": proposed.label,
        "channel": channel,
        "text": text,
        "command": command,
        "proposed_by": proposed.by,
        "by": proposed.decided_by,
        "why": proposed.why,
        "faults": match proposal {
            Proposal::Repair(repair) => json!(repair.faults()),
            Proposal::Correction { .. } | Proposal::Slang { .. } | Proposal::New(_) => Value::Null,
        },
        "version": version,
    }))
}

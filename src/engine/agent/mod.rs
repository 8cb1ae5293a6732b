//! Runs of a language model that uses tools: the owner of each is a task of its own.
//!
//! A model proposes and decides nothing: each of its calls is a wish that walks the one path, questions wait for people
//! as ever, and nothing that it says is an answer to one. What a run says is streamed to whoever asked; who goes away
//! takes the run with him.

pub mod child;
mod dispatch;
mod drive;
mod legality;
mod local;
mod model;
mod offered;
pub mod opinion;
mod prompt;
mod resume;
pub mod told;
pub mod upkeep;

use std::path::PathBuf;
use std::sync::Arc;

use interlock_domain::agent::Ended;
use interlock_domain::agent::profile::{Hook, Profile};
use interlock_domain::agent::skill::Skill;
use interlock_domain::block::{Block, Message};
use interlock_domain::command::instead::Instead;
use interlock_domain::context::Budget;
use interlock_domain::gate::policy::Mode;
use interlock_domain::gate::rule::Rules;
use interlock_domain::id::RunId;
use interlock_domain::request::{Asker, Via};
use thiserror::Error;
use tokio::sync::{Semaphore, mpsc, watch};

use super::handle::{Mediator, NotTaken, Who, Within};
use super::log::Log;
use crate::provider::Dialect;
use crate::store::conversation::{self, Conversation, NotKept, Opened};
use crate::store::queue::Writer;
use crate::tool::endpoint::Endpoint;
use drive::Runner;
use told::Told;

/// Runs that people and front ends may have at one time: each holds a history and a connection. Their subagents are
/// counted apart, so that a parent never waits for a place that it holds itself.
const RUNS_MAX: usize = 8;
const CHILDREN_MAX: usize = 16;

/// The longest request, bytes.
pub const TEXT_BYTES_MAX: usize = 256 * 1024;

/// What may be waiting for whoever listens to a run; a listener that does not read holds the run up, and nobody else.
const TOLD_LEN_MAX: usize = 64;

/// What the configuration says about the model. Swapped as a whole; a run keeps what it began with.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The way to it.
    pub endpoint: Arc<Endpoint>,
    /// What it speaks.
    pub dialect: Dialect,
    /// Its name.
    pub model: String,
    /// What it is told besides what every model is told.
    pub instructions: Option<String>,
    /// Turns of one run.
    pub turns_max: u32,
    /// What there is room for.
    pub budget: Budget,
    /// The longest answer, tokens.
    pub output_max: u32,
    /// Commands that look at calls, in this order.
    pub hooks: Vec<Hook>,
    /// Kinds of subagents.
    pub profiles: Vec<Profile>,
    /// Skills, the strongest source first.
    pub skills: Vec<Skill>,
    /// Checks of declared paths.
    pub checks: Vec<upkeep::Check>,
    /// Where hooks and checks run.
    pub cwd: PathBuf,
    /// The rules of the configuration: what they deny whole is not offered.
    pub rules: Arc<Rules>,
}

/// A request to the model.
#[derive(Debug, Clone)]
pub struct Asked {
    /// What is wanted.
    pub text: String,
    /// Who wants it.
    pub asker: String,
    /// A mode that is narrower than the configured one.
    pub mode: Option<Mode>,
    /// The run whose conversation goes on.
    pub resume: Option<RunId>,
}

/// Why there is no run.
#[derive(Debug, Error)]
pub enum NotAsked {
    /// There is no model.
    #[error("there is no language model: none is configured, or its key could not be read (the daemon's log says so)")]
    NoModel,
    /// The request is empty, or beyond a bound.
    #[error("a request has 1 to {TEXT_BYTES_MAX} bytes; this one has {0}")]
    Length(usize),
    /// All places are taken.
    #[error("{RUNS_MAX} runs of the model are under way")]
    Busy,
    /// Too many subagents.
    #[error("{CHILDREN_MAX} subagents are under way")]
    TooManyChildren,
    /// The mediator does not take it.
    #[error(transparent)]
    NotTaken(#[from] NotTaken),
    /// Its history cannot be kept, or the one to go on with cannot be read.
    #[error(transparent)]
    NotKept(#[from] NotKept),
}

/// The way to the model. Cheap to clone.
#[derive(Clone)]
pub struct Handle {
    parts: Arc<Parts>,
}

/// What every run needs. Handles, and nothing that a run changes.
struct Parts {
    mediator: Mediator,
    writer: Writer,
    log: Log,
    state: PathBuf,
    settings: watch::Receiver<Option<Arc<Settings>>>,
    told: watch::Receiver<Arc<[Instead]>>,
    places: Arc<Semaphore>,
    children: Arc<Semaphore>,
}

/// A run that goes on. Dropped, it is cancelled.
pub struct Running {
    /// The run.
    pub run: RunId,
    /// Its model.
    pub model: String,
    told: mpsc::Receiver<Told>,
}

impl Running {
    /// What it says next; `None` after its end.
    pub async fn next(&mut self) -> Option<Told> {
        self.told.recv().await
    }
}

/// The end of a run, for a caller that does not listen.
#[derive(Debug, Clone)]
pub struct Answered {
    /// The run.
    pub run: RunId,
    /// How it ended.
    pub ended: Ended,
    /// The last words of the model.
    pub text: String,
}

impl Handle {
    /// The way to a model that `settings` tells, now and after each change. `told` are the skills that a person approved
    /// in place of what their files say.
    #[must_use]
    pub fn new(
        mediator: Mediator,
        writer: Writer,
        log: Log,
        state: PathBuf,
        settings: watch::Receiver<Option<Arc<Settings>>>,
        told: watch::Receiver<Arc<[Instead]>>,
    ) -> Handle {
        let (places, children) = (Arc::new(Semaphore::new(RUNS_MAX)), Arc::new(Semaphore::new(CHILDREN_MAX)));
        Handle { parts: Arc::new(Parts { mediator, writer, log, state, settings, told, places, children }) }
    }

    /// There is a model.
    #[must_use]
    pub fn is_configured(&self) -> bool {
        self.parts.settings.borrow().is_some()
    }

    /// Hands a request to the model and waits for the end of the run. Dropped half way, the run is cancelled.
    ///
    /// # Errors
    /// When there is no run.
    pub async fn ask(&self, text: &str, asker: &str) -> Result<Answered, NotAsked> {
        let asked = Asked { text: text.to_owned(), asker: asker.to_owned(), mode: None, resume: None };
        let mut running = self.start(asked).await?;
        let run = running.run;
        while let Some(told) = running.next().await {
            if let Told::End { ended, text, .. } = told {
                return Ok(Answered { run, ended, text });
            }
        }
        Err(NotAsked::NotTaken(NotTaken::Stopping))
    }

    /// Hands a request to the model.
    ///
    /// # Errors
    /// When there is no run.
    pub async fn start(&self, asked: Asked) -> Result<Running, NotAsked> {
        let settings = self.parts.settings.borrow().clone().ok_or(NotAsked::NoModel)?;
        let settings = local::with_told(settings, &self.parts.told.borrow());
        if asked.text.trim().is_empty() || asked.text.len() > TEXT_BYTES_MAX {
            return Err(NotAsked::Length(asked.text.len()));
        }
        let place = Arc::clone(&self.parts.places).try_acquire_owned().map_err(|_| NotAsked::Busy)?;
        let (history, opened) = match asked.resume {
            None => (Vec::new(), Opened::default()),
            Some(run) => resume::resumed(&self.parts, run).await?,
        };
        let who = Who { mode: asked.mode, ..Who::of(Asker { via: Via::Agent, name: asked.asker.clone() }, true) };
        let model = settings.model.clone();
        let begun = self.begin(settings, who, Within::default(), opened, None).await?;
        let (runner, told) = begun;
        let run = runner.run;
        runner.asked(&asked);
        let request = vec![Block::text(asked.text)];
        tokio::spawn(async move {
            runner.drive(history, request).await;
            drop(place);
        });
        Ok(Running { run, model, told })
    }

    /// Opens a run and its directory.
    async fn begin(
        &self,
        settings: Arc<Settings>,
        who: Who,
        mut within: Within,
        opened: Opened,
        profile: Option<Profile>,
    ) -> Result<(Runner, mpsc::Receiver<Told>), NotAsked> {
        let narrowing = who.narrowing.clone();
        let run = self.parts.mediator.open(who).await?;
        let state = self.parts.state.clone();
        let kept = tokio::task::spawn_blocking(move || Conversation::open(&state, run)).await;
        let kept = match kept {
            Ok(Ok(kept)) => kept,
            Ok(Err(error)) => {
                self.parts.mediator.close_run(run).await;
                return Err(error.into());
            }
            Err(_) => {
                self.parts.mediator.close_run(run).await;
                return Err(NotTaken::Stopping.into());
            }
        };
        // A model can read back what was too long for it, its own and what the runs before it kept; nobody else's.
        let before = opened.before.iter().map(|run| conversation::directory(&self.parts.state, *run));
        let readable = before.chain([kept.directory().to_owned()]);
        within.work_dirs.extend(readable.filter_map(|path| path.to_str().map(str::to_owned)));
        let (tell, told) = mpsc::channel(TOLD_LEN_MAX);
        let parts = Arc::clone(&self.parts);
        Ok((Runner::new(parts, settings, run, narrowing, within, opened, profile, kept, tell), told))
    }
}

/// The text of an answer.
fn text_of(message: Option<&Message>) -> String {
    let blocks = message.into_iter().flat_map(|message| &message.blocks);
    blocks
        .filter_map(|block| match block {
            Block::Text { text, .. } => Some(text.as_str()),
            Block::Thinking { .. }
            | Block::RedactedThinking { .. }
            | Block::ToolUse(_)
            | Block::ToolResult(_)
            | Block::Image(_)
            | Block::Opaque { .. } => None,
        })
        .collect()
}

//! What a conversation is taken up with after the daemon was gone: its history, and for each call that the last life
//! left open what the evidence log knows of it.
//!
//! Nothing is guessed. A call is `not_started` only where the history shows that it was never handed in, or the log
//! that it never began; what the log does not have any more is unknown. A result that was settled is given as it was.

use interlock_domain::agent::result::{Kept, after_restart};
use interlock_domain::block::{Block, Message, Role, ToolUse};
use interlock_domain::id::{BatchId, CallId, RunId};

use super::{NotAsked, Parts};
use crate::engine::handle::NotTaken;
use crate::engine::log::Query;
use crate::provider::form;
use crate::record::settled;
use crate::store::conversation::{self, Line, NotKept, Opened};

/// How far the calls of the last answer had come when the last life ended.
#[derive(Debug, Default)]
struct Way {
    /// The places of those that were about to be handed in; `None` while none was.
    handing: Option<Vec<usize>>,
    /// The batch that they became.
    batch: Option<u64>,
    /// The newest batch of the answers before.
    before: u64,
}

impl Way {
    /// Another answer stands last.
    fn next_answer(&mut self) {
        let before = self.batch.unwrap_or(0).max(self.before);
        *self = Way { before, ..Way::default() };
    }
}

/// The history of a run that is to go on, and whose texts it points to.
pub(super) async fn resumed(parts: &Parts, run: RunId) -> Result<(Vec<Message>, Opened), NotAsked> {
    let state = parts.state.clone();
    let read = tokio::task::spawn_blocking(move || conversation::read(&state, run)).await;
    let lines = read.map_err(|_| NotAsked::NotTaken(NotTaken::Stopping))??;
    let mut opened = Opened::default();
    let mut history: Vec<Message> = Vec::new();
    let mut way = Way::default();
    let bad = || NotKept::NotALine { path: conversation::directory(&parts.state, run), line: 0 };
    for line in lines {
        match line {
            Line::Opened(of) => opened = of,
            Line::Handing(places) => way.handing = Some(places),
            Line::Batch(number) => way.batch = Some(number),
            Line::Said(value) => {
                let said = form::message_from_json(&value).map_err(|_| bad())?;
                if said.role == Role::Assistant {
                    way.next_answer();
                }
                history.push(said);
            }
            Line::Whole(values) => {
                let whole: Result<Vec<Message>, _> = values.iter().map(form::message_from_json).collect();
                history = whole.map_err(|_| bad())?;
                way.next_answer();
            }
        }
    }
    recall(parts, run, &way, &mut history).await;
    opened.before.push(run);
    opened.depth = 0;
    Ok((history, opened))
}

/// Gives the calls of the last answer, where they have no results, what is known of them.
async fn recall(parts: &Parts, run: RunId, way: &Way, history: &mut Vec<Message>) {
    let Some(last) = history.last().filter(|last| last.role == Role::Assistant) else { return };
    let open: Vec<ToolUse> = last.calls().cloned().collect();
    if open.is_empty() {
        return;
    }
    let log = Remembered::of(parts, run, way).await;
    let mut results = Vec::with_capacity(open.len());
    for (place, call) in open.iter().enumerate() {
        let position = way.handing.iter().flatten().position(|handed| *handed == place);
        let kept = match position.and_then(|position| u32::try_from(position).ok()) {
            // It never left this run: a hook, the loop itself, or the crash came before.
            None => Kept::NotStarted { said: String::new() },
            Some(position) => log.end(parts, position).await,
        };
        results.push(Block::ToolResult(after_restart(call, &kept)));
    }
    history.push(Message { role: Role::User, blocks: results });
}

/// What the log has of the batch that was under way.
struct Remembered {
    run: RunId,
    /// The batch, where it was handed in.
    batch: Option<BatchId>,
    /// The log still begins before the run: what is not in it did not happen.
    whole: bool,
}

impl Remembered {
    async fn of(parts: &Parts, run: RunId, way: &Way) -> Remembered {
        let opened = Query { run: Some(run), kind: Some("run_opened".to_owned()), limit: Some(1), ..Query::default() };
        let whole = matches!(parts.log.query(opened).await, Ok(rows) if !rows.is_empty());
        let batch = match way.batch {
            Some(number) => Some(BatchId(number)),
            // The crash came between handing in and writing down the number: the log has it, if anything came of it.
            None => {
                let newest = Query { run: Some(run), ..Query::default() };
                let rows = parts.log.query(newest).await.unwrap_or_default();
                let batches = rows.iter().filter_map(|row| row.row.call).map(|call| call.batch);
                batches.max().filter(|batch| batch.0 > way.before)
            }
        };
        Remembered { run, batch, whole }
    }

    /// How the call at this place of the batch ended.
    async fn end(&self, parts: &Parts, position: u32) -> Kept {
        let nothing = || match self.whole {
            true => Kept::NotStarted { said: String::new() },
            false => Kept::Unknown { said: String::new(), found: None },
        };
        let Some(batch) = self.batch else { return nothing() };
        let call = CallId { run: self.run, batch, position };
        match parts.log.query(Query { call: Some(call), ..Query::default() }).await {
            Ok(rows) if rows.is_empty() => nothing(),
            Ok(rows) => settled::end(&rows),
            Err(error) => {
                tracing::warn!(%error, %call, "what became of a call cannot be read from the log");
                Kept::Unknown { said: String::new(), found: None }
            }
        }
    }
}

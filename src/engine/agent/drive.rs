//! The driver of one run: carries out what the loop's machine says, one thing at a time.
//!
//! Whatever happens, the run is closed at the end and says how it ended; a listener that has gone away, or a parent
//! call that is stopped, is a cancellation at every point where it waits.

use std::sync::Arc;

use interlock_domain::agent::profile::{DEPTH_MAX, Profile};
use interlock_domain::agent::{Action, Ended, Input, Loop};
use interlock_domain::block::{Block, Ids, Message, Role};
use interlock_domain::context::{Done, Keeper, Step, estimate};
use interlock_domain::id::{CallId, RunId};
use interlock_domain::surface::narrow::Narrowing;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::local::Local;
use super::model;
use super::offered::Offered;
use super::told::{self, Told};
use super::upkeep::Upkeep;
use super::{Asked, Parts, Settings, prompt, text_of};
use crate::engine::handle::{SUBAGENT, Within};
use crate::provider::form;
use crate::record::Row;
use crate::store::conversation::{Conversation, Line, Opened};
use crate::store::queue::Entry;

/// How much of a text a row keeps, bytes: the whole is in the conversation.
const ROW_TEXT_MAX: usize = 8 * 1024;

/// One run.
pub(super) struct Runner {
    pub(super) parts: Arc<Parts>,
    pub(super) settings: Arc<Settings>,
    pub(super) run: RunId,
    pub(super) within: Within,
    pub(super) opened: Opened,
    narrowing: Narrowing,
    profile: Option<Profile>,
    kept: Option<Conversation>,
    pub(super) tell: mpsc::Sender<Told>,
    ids: Ids,
    /// How many messages of the history are on the disk.
    written: usize,
    pub(super) turn: u32,
    pub(super) local: Local,
    pub(super) upkeep: Upkeep,
}

impl Runner {
    #[expect(clippy::too_many_arguments, reason = "the parts of one run, put together in one place")]
    pub(super) fn new(
        parts: Arc<Parts>,
        settings: Arc<Settings>,
        run: RunId,
        narrowing: Narrowing,
        within: Within,
        opened: Opened,
        profile: Option<Profile>,
        kept: Conversation,
        tell: mpsc::Sender<Told>,
    ) -> Runner {
        let (kept, ids) = (Some(kept), Ids::new());
        let (local, upkeep) = (Local::default(), Upkeep::default());
        Runner {
            parts,
            settings,
            run,
            within,
            opened,
            narrowing,
            profile,
            kept,
            tell,
            ids,
            written: 0,
            turn: 0,
            local,
            upkeep,
        }
    }

    /// Drives the run to its end.
    pub(super) async fn drive(mut self, history: Vec<Message>, request: Vec<Block>) {
        let turns_max = self.profile.as_ref().and_then(|profile| profile.turns_max).unwrap_or(self.settings.turns_max);
        self.ids = Ids::of(&history);
        self.tell(Told::Begin { run: self.run, model: self.settings.model.clone() }).await;
        let may_delegate = self.opened.depth < DEPTH_MAX;
        self.upkeep = Upkeep::begin(&self.settings.checks).await;
        let system = prompt::system(&self.settings, self.profile.as_ref(), may_delegate);
        let mut offered = self.offered();
        let mut keeper = Keeper::new(self.settings.budget, fixed(&system, &offered));
        let first = Line::Opened(self.opened.clone());
        let (mut machine, mut action) = Loop::new(history, request, turns_max);
        let mut ended = Ended::NotWritten;
        if self.write(vec![first]).await {
            // What was said before this run is copied, so that each conversation stands by itself.
            self.written = 0;
            ended = loop {
                let input = match action {
                    Action::Prepare { history, forced } => {
                        // A tool that was registered meanwhile is offered from the next turn on.
                        offered = self.offered();
                        keeper.takes(fixed(&system, &offered));
                        self.prepare(&mut keeper, history, forced).await
                    }
                    Action::Ask { attempt } => {
                        self.turn = machine.turns();
                        self.ask(&mut keeper, machine.history(), &system, &offered, attempt).await
                    }
                    Action::Wait(wait) => {
                        let until = tokio::time::Instant::now() + wait;
                        tokio::select! {
                            () = tokio::time::sleep_until(until) => Input::Waited,
                            () = self.tell.closed() => Input::Cancel,
                        }
                    }
                    Action::Write(message) => {
                        let line = Line::Said(form::message_to_json(&message));
                        if self.write(vec![line]).await {
                            self.written = machine.history().len();
                            Input::Written
                        } else {
                            Input::NotWritten
                        }
                    }
                    Action::Dispatch(calls) => self.dispatch(&mut machine, &offered, calls).await,
                    // The dispatch carries it out itself.
                    Action::StopBatch => Input::Results(Vec::new()),
                    Action::End(ended) => break ended,
                };
                let mut reason = String::new();
                if let Input::Trouble(trouble) = &input {
                    self.trouble(trouble);
                    trouble.message().clone_into(&mut reason);
                }
                // Each action is answered by an input that the machine waits for.
                let Some(next) = machine.step(input) else { break Ended::Cancelled };
                if let Action::Wait(wait) = &next {
                    self.tell(Told::Again { reason, wait: *wait }).await;
                }
                action = next;
            };
        }
        let turns = machine.turns();
        let history = machine.into_history();
        // The last results, or the stubs of calls that were not begun: the conversation can go on from here.
        let rest = lines(&history, self.written);
        self.write(rest).await;
        // The words of an earlier answer are not the answer to what was asked now.
        let answered = match &ended {
            Ended::Done | Ended::Cut | Ended::Refused | Ended::Turns { .. } => true,
            Ended::Cancelled
            | Ended::Trouble(_)
            | Ended::Stuck(_)
            | Ended::DeniedRepeatedly { .. }
            | Ended::NotWritten => false,
        };
        let last = history.iter().rev().find(|message| message.role == Role::Assistant);
        let text = text_of(last.filter(|_| answered));
        let row = Row { to: Some(ended.code().into()), ..Row::new(crate::engine::stamp::now(), "agent_ended") };
        self.log(row, json!({ "turns": turns, "message": told::message(&ended), "text": cut(&text) }));
        self.parts.mediator.close_run(self.run).await;
        self.tell(Told::End { run: self.run, ended, text, turns }).await;
    }

    fn offered(&self) -> Offered {
        let mut narrowing = self.narrowing.clone();
        if self.opened.depth >= DEPTH_MAX {
            narrowing.deny.insert(SUBAGENT.to_owned());
        }
        let surface = self.parts.mediator.surface_of_agents().narrowed(&narrowing);
        let mut offered = Offered::of(&surface, &self.settings.rules);
        offered.tools = self.local.offered(offered.tools, &surface, &self.settings);
        offered
    }

    /// Makes the history fit, and writes down what was done to it before anybody may act on it.
    async fn prepare(&mut self, keeper: &mut Keeper, history: Vec<Message>, forced: bool) -> Input {
        let before = history.clone();
        let mut step = keeper.check(history, forced);
        loop {
            if self.tell.is_closed() {
                // The results of the last calls are kept all the same: the conversation can go on from them.
                self.write(lines(&before, self.written)).await;
                return Input::Cancel;
            }
            step = match step {
                Step::Stop(stuck) => return Input::Stuck(before, stuck),
                Step::Spill(files) => {
                    let places = self.spill(files.into_iter().map(|file| (file.name, file.text)).collect()).await;
                    keeper.spilled(places)
                }
                Step::Summarize(request) => {
                    let text = self.summary(&request).await;
                    keeper.summary(text.as_deref())
                }
                Step::Ready(history, None) => {
                    let lines = lines(&history, self.written);
                    let length = history.len();
                    if !self.write(lines).await {
                        return Input::NotWritten;
                    }
                    self.written = length;
                    return Input::Ready(history);
                }
                Step::Ready(history, Some(done)) => {
                    // One line holds all of the new history: a crash leaves the old one or this one.
                    let whole = Line::Whole(history.iter().map(form::message_to_json).collect());
                    if !self.write(vec![whole]).await {
                        return Input::NotWritten;
                    }
                    self.written = history.len();
                    self.compacted(done).await;
                    return Input::Ready(history);
                }
            };
        }
    }

    async fn compacted(&mut self, done: Done) {
        let levels: Vec<&str> = done.levels.iter().map(|level| level.word()).collect();
        let row = Row::new(crate::engine::stamp::now(), "agent_compacted");
        self.log(row, json!({ "levels": levels, "before": done.before, "after": done.after }));
        self.tell(Told::Compacted(done)).await;
    }

    /// Writes long texts to the disk; gives where each lies.
    async fn spill(&mut self, files: Vec<(String, String)>) -> Vec<Option<String>> {
        let Some(mut kept) = self.kept.take() else { return Vec::new() };
        let done = tokio::task::spawn_blocking(move || {
            let places: Vec<Option<String>> = files
                .iter()
                .map(|(name, text)| match kept.spill(name, text) {
                    Ok(place) => place.and_then(|path| path.to_str().map(str::to_owned)),
                    Err(error) => {
                        tracing::warn!(%error, "a long result cannot be kept");
                        None
                    }
                })
                .collect();
            (kept, places)
        });
        match done.await {
            Ok((kept, places)) => {
                self.kept = Some(kept);
                places
            }
            Err(_) => Vec::new(),
        }
    }

    /// Lets the configured model write a summary; `None` when it does not.
    async fn summary(&mut self, request: &[Message]) -> Option<String> {
        let words = "You write records of conversations. You call no tools.";
        let asked = model::ask(&self.settings, words, &[], request, Ids::new(), None);
        let outcome = tokio::select! {
            outcome = asked => outcome,
            () = self.tell.closed() => return None,
        };
        if let Input::Trouble(trouble) = &outcome.input {
            tracing::warn!(reason = trouble.message(), "no model wrote a summary; a plain one takes its place");
        }
        let (blocks, _) = outcome.input.answer()?;
        Some(text_of(Some(&Message { role: Role::Assistant, blocks })))
    }

    async fn ask(
        &mut self,
        keeper: &mut Keeper,
        history: &[Message],
        system: &str,
        offered: &Offered,
        attempt: u32,
    ) -> Input {
        let ids = self.ids.clone();
        let began = tokio::time::Instant::now();
        let asked = model::ask(&self.settings, system, &offered.tools, history, ids, Some(&self.tell));
        let outcome = tokio::select! {
            outcome = asked => outcome,
            () = self.tell.closed() => return Input::Cancel,
        };
        self.ids = outcome.ids;
        if let Some(tokens) = outcome.tokens.0 {
            keeper.counted(history, tokens);
        }
        if let Input::Answer(blocks, _) = &outcome.input {
            let calls: Vec<Value> = interlock_domain::block::calls(blocks)
                .map(|call| json!({ "id": call.id.as_str(), "tool": call.name }))
                .collect();
            let said = text_of(Some(&Message { role: Role::Assistant, blocks: blocks.clone() }));
            let took = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
            let row = Row::new(crate::engine::stamp::now(), "agent_turn");
            self.log(
                row,
                json!({
                    "turn": self.turn, "attempt": attempt, "calls": calls, "text": cut(&said),
                    "usage": outcome.usage, "notes": outcome.notes,
                    "tokens": [outcome.tokens.0, outcome.tokens.1], "took_us": took,
                }),
            );
        }
        outcome.input
    }

    fn trouble(&self, trouble: &interlock_domain::agent::Trouble) {
        let row = Row { cause: Some(trouble.code().into()), ..Row::new(crate::engine::stamp::now(), "agent_trouble") };
        self.log(row, json!({ "turn": self.turn, "message": cut(trouble.message()) }));
    }

    /// What was asked, as evidence.
    pub(super) fn asked(&self, asked: &Asked) {
        let row = Row::new(crate::engine::stamp::now(), "agent_asked");
        let resumed = asked.resume.map(|run| run.to_string());
        let mode = asked.mode.map(|mode| mode.word());
        self.log(
            row,
            json!({
                "text": cut(&asked.text), "asker": asked.asker, "model": self.settings.model,
                "provider": self.settings.dialect.provider.word(), "resumed": resumed, "mode": mode,
            }),
        );
    }

    /// What a subagent was asked, and the call that made it.
    pub(super) fn asked_by(&self, parent: CallId, asker: &str, start: &str, task: &str) {
        let row = Row::new(crate::engine::stamp::now(), "agent_asked");
        self.log(
            row,
            json!({
                "text": cut(task), "asker": asker, "model": self.settings.model,
                "provider": self.settings.dialect.provider.word(), "parent": parent.to_string(), "start": start,
            }),
        );
    }

    /// A row of this run. It waits for its group: what it is about is on the disk elsewhere.
    pub(super) fn log(&self, mut row: Row, detail: Value) {
        row.run = Some(self.run);
        self.parts.writer.append_or_count(Entry::relaxed(row.detailed(&detail)));
    }

    /// Says something to whoever listens; one who is gone is noticed where the run waits next.
    pub(super) async fn tell(&self, told: Told) {
        let _ = self.tell.send(told).await;
    }

    /// Brings lines to the disk.
    pub(super) async fn write(&mut self, lines: Vec<Line>) -> bool {
        if lines.is_empty() {
            return true;
        }
        let Some(mut kept) = self.kept.take() else { return false };
        let done = tokio::task::spawn_blocking(move || {
            let written = kept.write(&lines);
            (kept, written)
        });
        match done.await {
            Ok((kept, written)) => {
                self.kept = Some(kept);
                if let Err(error) = &written {
                    tracing::error!(%error, "the history of a run cannot be written");
                }
                written.is_ok()
            }
            Err(_) => false,
        }
    }
}

/// The lines of the messages that are not on the disk yet.
fn lines(history: &[Message], written: usize) -> Vec<Line> {
    history.iter().skip(written).map(|message| Line::Said(form::message_to_json(message))).collect()
}

fn fixed(system: &str, offered: &Offered) -> usize {
    let tool = |tool: &crate::provider::request::Tool| {
        estimate::text(&tool.name) + estimate::text(&tool.description) + estimate::value(&tool.schema) + 8
    };
    estimate::text(system) + offered.tools.iter().map(tool).sum::<usize>()
}

pub(super) fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(ROW_TEXT_MAX)]
}

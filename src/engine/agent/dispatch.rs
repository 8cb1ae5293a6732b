//! From the calls of an answer to their results: hooks, one batch, one reply for each.
//!
//! Hooks look before the calls are handed in, so that what the gate judges is the input as it will be; what a hook
//! changes is judged like everything else, and nothing that a hook says allows anything. A call that never becomes a
//! wish (no such name, an input beyond the bounds, a hook's no) has its result all the same.

use interlock_domain::agent::profile::{Hook, When};
use interlock_domain::agent::{Action, Input, Loop, result};
use interlock_domain::block::{ToolResult, ToolUse};
use interlock_domain::closure::Ending;
use interlock_domain::repair::Stub;
use interlock_domain::request::BATCH_LEN_MAX;
use interlock_domain::request::args::Args;
use interlock_domain::request::why::{Lang, Why};
use serde_json::{Value, json};

use super::drive::{Runner, cut};
use super::offered::Offered;
use super::told::Told;
use super::upkeep::Kind;
use crate::engine::handle::{Answered, NotTaken, Wanted};
use crate::record::Row;
use crate::store::conversation::Line;
use crate::tool::hook::{self, Answer};

/// How much a hook may add to a result, bytes.
const ADDED_BYTES_MAX: usize = 8 * 1024;

/// A call on its way.
enum Way {
    /// It is the n-th wish of the batch.
    Wished(usize),
    /// It ends here.
    Ended(ToolResult),
    /// The loop itself has answered.
    Answered(ToolResult),
}

impl Runner {
    /// Hands the calls in and waits for their results.
    pub(super) async fn dispatch(&mut self, machine: &mut Loop, offered: &Offered, calls: Vec<ToolUse>) -> Input {
        if calls.len() > BATCH_LEN_MAX {
            let text = format!(
                "not started (too_many_calls): {} calls in one message; at most {BATCH_LEN_MAX} are taken together",
                calls.len()
            );
            return Input::Results(calls.iter().map(|call| call.answer(text.clone(), true)).collect());
        }
        let (mut wanted, mut ways) = (Vec::new(), Vec::new());
        let mut handing = Vec::new();
        for (place, call) in calls.iter().enumerate() {
            if let Some(answer) = self.local.answer(call, &offered.all, &self.settings.skills) {
                ways.push(Way::Answered(answer));
                continue;
            }
            match self.wish(offered, call).await {
                Ok(wish) => {
                    ways.push(Way::Wished(wanted.len()));
                    wanted.push(wish);
                    handing.push(place);
                }
                Err(text) => ways.push(Way::Ended(call.answer(text, true))),
            }
        }
        if self.tell.is_closed() {
            let unstarted = calls.iter().map(|call| call.answer(Stub::NotStarted.text(), true));
            return Input::Results(unstarted.collect());
        }
        let answered =
            if wanted.is_empty() { Ok(Vec::new()) } else { self.submit(machine, &calls, handing, wanted).await };
        let mut too_often = None;
        let mut results = Vec::with_capacity(calls.len());
        for (call, way) in calls.iter().zip(ways) {
            let (ended, evidence, word, code) = match (way, &answered) {
                (Way::Ended(ended), _) => (ended, None, "not_started", None),
                (Way::Answered(ended), _) => {
                    let word = if ended.is_error { "failed" } else { "done" };
                    (ended, None, word, None)
                }
                (Way::Wished(_), Err(error)) => {
                    (call.answer(format!("not started: {error}"), true), None, "not_started", None)
                }
                (Way::Wished(at), Ok(answered)) => match answered.get(at) {
                    None => (call.answer(Stub::OutcomeUnknown.text(), true), None, "unknown", None),
                    Some(answered) => {
                        let ending = &answered.reply.ending;
                        if let Ending::NotStarted(Why::DeniedRepeatedly { .. }) = ending {
                            too_often = Some(format!("{}: {}", call.name, ending.message(Lang::En)));
                        }
                        (result::of(call, ending), answered.evidence, ending.word(), ending.code())
                    }
                },
            };
            let ended = self.after(call, ended, word).await;
            self.tell(Told::Result {
                id: call.id.to_string(),
                tool: call.name.clone(),
                result: word,
                code: code.map(str::to_owned),
                text: ended.text.clone(),
                evidence,
            })
            .await;
            results.push(ended);
        }
        self.keep_up(&mut results).await;
        match too_often {
            None => Input::Results(results),
            Some(message) => Input::TooOften { results, message },
        }
    }

    /// Runs the checks of what the batch has changed; what they say stands behind the last result.
    async fn keep_up(&mut self, results: &mut [ToolResult]) {
        for note in self.upkeep.pending(&self.settings.cwd).await {
            let (kind, to) = match note.kind {
                Kind::Exited(0) => ("maintenance", "passed"),
                Kind::Exited(_) | Kind::NotEnded => ("maintenance", "failed"),
                // No run of the check, and no word about the change: it is not counted as either.
                Kind::TooMuch(_) => ("maintenance_cut", "cut"),
            };
            let row = Row { to: Some(to.into()), ..Row::new(crate::engine::stamp::now(), kind) };
            self.log(row, note.detail());
            if let Some(last) = results.last_mut() {
                last.text.push_str("\n\n");
                last.text.push_str(&note.text);
            }
        }
    }

    /// The wish that a call stands for; else what its model reads instead.
    async fn wish(&mut self, offered: &Offered, call: &ToolUse) -> Result<Wanted, String> {
        let tool = offered
            .named(&call.name)
            .ok_or_else(|| format!("not started (no_such_tool): there is no tool {:?} for this run", call.name))?;
        let mut input = (*call.input).clone();
        for hook in self.hooks(When::Before, tool.as_str()) {
            let question = json!({
                "event": hook.when.word(), "run": self.run.to_string(), "id": call.id.as_str(), "tool": tool.as_str(),
                "input": input,
            });
            let denied = |reason: &str| format!("denied (hook): {reason}");
            let said = hook::ask(&hook.command, &question, &self.settings.cwd, hook.patience).await;
            let (decision, reason, changed) = match said {
                Ok(Answer::Nothing) => continue,
                Ok(Answer::No { reason }) => ("deny", reason, false),
                Ok(Answer::Says(says)) => {
                    let reason = says.get("reason").and_then(Value::as_str).unwrap_or("a hook said no").to_owned();
                    let no = says.get("decision").and_then(Value::as_str) == Some("deny");
                    let other = says.get("input").filter(|other| other.is_object() && **other != input).cloned();
                    match (no, other) {
                        (true, _) => ("deny", reason, false),
                        (false, Some(other)) => {
                            input = other;
                            ("change", String::new(), true)
                        }
                        // Whatever else it says: an allow of a hook allows nothing.
                        (false, None) => continue,
                    }
                }
                // Whoever put it there wanted to be asked.
                Err(error) => ("deny", error.to_string(), false),
            };
            let row = Row { to: Some(decision.into()), ..Row::new(crate::engine::stamp::now(), "agent_hook") };
            let program = hook.command.first();
            self.log(
                row,
                json!({
                    "turn": self.turn, "id": call.id.as_str(), "tool": tool.as_str(), "hook": program,
                    "reason": cut(&reason), "input": if changed { input.clone() } else { Value::Null },
                }),
            );
            if !changed {
                return Err(denied(&reason));
            }
        }
        if let Err(error) = Args::new(input.clone()) {
            return Err(format!("not started (bad_input): {error}"));
        }
        self.tell(Told::Call { id: call.id.to_string(), tool: tool.as_str().to_owned(), input: input.clone() }).await;
        Ok(Wanted { tool, input, protective: false })
    }

    fn hooks(&self, when: When, tool: &str) -> Vec<Hook> {
        let hooks = self.settings.hooks.iter();
        hooks.filter(|hook| hook.when == when && hook.is_about(tool)).cloned().collect()
    }

    /// What hooks make of a result.
    async fn after(&mut self, call: &ToolUse, mut ended: ToolResult, word: &str) -> ToolResult {
        for hook in self.hooks(When::After, &call.name) {
            let question = json!({
                "event": hook.when.word(), "run": self.run.to_string(), "id": call.id.as_str(), "tool": call.name,
                "input": *call.input, "result": word, "text": ended.text,
            });
            let said = hook::ask(&hook.command, &question, &self.settings.cwd, hook.patience).await;
            let (decision, text) = match said {
                Ok(Answer::Nothing) => continue,
                Ok(Answer::No { reason }) => ("withhold", reason),
                Ok(Answer::Says(says)) => {
                    let text = |key: &str| says.get(key).and_then(Value::as_str).map(str::to_owned);
                    match (text("decision").as_deref(), text("add")) {
                        (Some("deny"), _) => ("withhold", text("reason").unwrap_or_default()),
                        (_, Some(add)) => ("add", add),
                        (_, None) => continue,
                    }
                }
                // The call has ended: what became of it is not to be hidden by a hook that broke.
                Err(error) => ("add", format!("({error})")),
            };
            let row = Row { to: Some(decision.into()), ..Row::new(crate::engine::stamp::now(), "agent_hook") };
            let program = hook.command.first();
            self.log(
                row,
                json!({
                    "turn": self.turn, "id": call.id.as_str(), "tool": call.name, "hook": program,
                    "reason": cut(&text),
                }),
            );
            let text = &text[..text.floor_char_boundary(ADDED_BYTES_MAX)];
            if decision == "add" {
                ended.text.push_str(&format!("\n[hook] {text}"));
            } else {
                // What happened stays said; only what the tool gave is kept back.
                ended.text = format!("{word}; the result was withheld by a hook: {text}");
                ended.is_error = true;
                ended.images.clear();
            }
        }
        ended
    }

    /// One batch, to its end. A cancellation cancels the batch and waits for what that leaves.
    async fn submit(
        &mut self,
        machine: &mut Loop,
        calls: &[ToolUse],
        handing: Vec<usize>,
        wanted: Vec<Wanted>,
    ) -> Result<Vec<Answered>, NotTaken> {
        let ids: Vec<&str> =
            handing.iter().filter_map(|place| calls.get(*place)).map(|call| call.id.as_str()).collect();
        // Before anything of it can start: a later life takes a call without this line for one that never began.
        if !self.write(vec![Line::Handing(handing)]).await {
            return Err(NotTaken::Batch("the history of the run cannot be written to the disk".to_owned()));
        }
        let submitted = self.parts.mediator.submit_within(self.run, wanted, &self.within).await?;
        let batch = submitted.batch;
        let row = Row::new(crate::engine::stamp::now(), "agent_dispatched");
        self.log(row, json!({ "turn": self.turn, "batch": batch.0, "calls": ids }));
        // A later life finds by it what became of calls whose results it does not have.
        self.write(vec![Line::Batch(batch.0)]).await;
        for open in &submitted.questions {
            let asked = &open.question;
            let about = format!("{} {}: {}", asked.tool, asked.shown, asked.reason);
            self.tell(Told::Question { question: asked.id, about, left_ms: open.left_ms }).await;
        }
        let mut replies = submitted.replies;
        tokio::select! {
            answered = &mut replies => return answered.map_err(|_| NotTaken::Stopping),
            () = self.tell.closed() => {}
        }
        if let Some(Action::StopBatch) = machine.step(Input::Cancel) {
            self.parts.mediator.cancel(batch).await;
        }
        replies.await.map_err(|_| NotTaken::Stopping)
    }
}

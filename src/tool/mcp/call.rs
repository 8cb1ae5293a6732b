//! One call of a tool of a server, from the order to the report.
//!
//! What the server answers is its word: a result is done, an error of the tool or of the protocol is failed, and both
//! reach the caller as the server wrote them. What nobody answered is unknown, and is sent a second time only if the
//! tool says that it reads or that twice is once.

use std::sync::Arc;
use std::time::Duration;

use interlock_domain::effect::report::{Failure, Loss, Report};
use interlock_domain::request::shown::plain;
use interlock_domain::surface::tool::Tool;
use serde_json::{Map, Value, json};

use super::link::{Link, NoAnswer, Patience, With, not_asked, put};
use super::{Server, Servers, keep, task};
use crate::mcp::era::Era;
use crate::mcp::rpc::{self, RpcError};
use crate::mcp::shape;
use crate::mcp::upward::{Ask, Line, NotAsked, Upward};
use crate::tool::failed;

/// How often one call may ask before it goes on: a server that always asks is no server.
const ROUNDS_MAX: usize = 8;

/// How long a call that may be sent again waits for its server to come back.
const AGAIN_PATIENCE: Duration = Duration::from_secs(5);

/// Longest text of an error that goes into the log; the caller gets all of it.
const MESSAGE_LEN_MAX: usize = 500;

/// How a server's answer to a call ended.
pub(super) enum Answer {
    /// The result of the tool.
    Result(Value),
    /// An error of the protocol.
    Error(RpcError),
    /// There is none, and this is what is known.
    None(Report),
}

/// What goes to a server.
#[derive(Clone, Copy)]
struct Sent<'a> {
    raw: &'a str,
    args: &'a Arc<Value>,
    key: Option<(&'a str, &'a str)>,
}

impl Servers {
    /// Carries out one call. `tool` is the definition that the gate judged; `key` is the name and the value by which the
    /// server tells a second attempt, and travels in `_meta`.
    pub(in crate::tool) async fn call(
        &self,
        (server, raw): (&str, &str),
        tool: &Tool,
        args: &Arc<Value>,
        key: Option<(&str, &str)>,
        line: Option<Line>,
    ) -> Report {
        let Some(server) = self.find(server) else {
            return failed("no_such_server", format!("there is no MCP server {server:?} any more; nothing was sent"));
        };
        let hints = tool.definition().annotations;
        let replays = hints.read_only == Some(true) || hints.idempotent == Some(true);
        let answer = match server.ready(raw) {
            Ok(()) => server.call(Sent { raw, args, key }, replays, line.as_ref()).await,
            Err(report) => return report,
        };
        match answer {
            Answer::None(report) => report,
            Answer::Error(error) => {
                let message =
                    format!("{} answered with error {}: {}", server.spec.name, error.code, clip(&error.message));
                tell(line.as_ref(), Err(error)).await;
                Report::Failed(Failure { code: "server_error", message })
            }
            Answer::Result(result) if result["isError"] == true => {
                let text = result["content"].as_array().into_iter().flatten().find_map(|block| block["text"].as_str());
                let message = clip(text.unwrap_or("the tool says that it failed, without a word why"));
                tell(line.as_ref(), Ok(result)).await;
                Report::Failed(Failure { code: "tool_error", message })
            }
            Answer::Result(result) => Report::Done(honest(tool, &server.spec.name, result)),
        }
    }
}

async fn tell(line: Option<&Line>, answer: Result<Value, RpcError>) {
    if let Some(line) = line {
        // Fails when the caller has gone; the log has the end.
        let _gone = line.up.send(Upward::Answer(answer)).await;
    }
}

fn clip(text: &str) -> String {
    plain(text, MESSAGE_LEN_MAX)
}

/// A result that breaks the server's own output schema is marked as an error, since programs would trust its shape. The
/// effect is there all the same.
fn honest(tool: &Tool, server: &str, mut result: Value) -> Value {
    let is_result = result.as_object_mut().is_some_and(|members| {
        members.remove("resultType");
        shape::mend_result(members)
    });
    if !is_result {
        tracing::warn!(server, tool = %tool.name(), "a result is none that the protocol knows");
        let text = format!("The tool ran, but {server} answered with something that is no result");
        return json!({"content": [{"type": "text", "text": text}], "isError": true});
    }
    if tool.definition().output_schema.is_none() {
        return result;
    }
    let structured = result.get("structuredContent").cloned().unwrap_or(Value::Null);
    let Some((path, expected)) = tool.output_breach(&structured) else { return result };
    tracing::warn!(server, tool = %tool.name(), path, "a result breaks its own output schema");
    let place = if path.is_empty() { String::new() } else { format!(" at {path}") };
    let text = format!("The tool ran, but its result breaks its own output schema{place}: {expected}");
    if let Some(members) = result.as_object_mut() {
        members.remove("structuredContent");
        members.insert("isError".to_owned(), true.into());
        let note = json!({"type": "text", "text": text});
        match members.get_mut("content") {
            Some(Value::Array(content)) => content.insert(0, note),
            Some(_) | None => drop(members.insert("content".to_owned(), json!([note]))),
        }
    }
    result
}

impl Server {
    /// Whether the tool may be called at all.
    fn ready(&self, raw: &str) -> Result<(), Report> {
        if self.held.borrow().contains(raw) {
            let message = format!(
                "the definition of {raw:?} of {} has changed since a person approved it; nothing was sent (interlock \
                 mcp list shows it, interlock mcp approve lets it)",
                self.spec.name
            );
            return Err(failed("definition_changed", message));
        }
        Ok(())
    }

    fn down(&self) -> Answer {
        let message = format!("MCP server {} is down: {}; nothing was sent", self.spec.name, self.why_down());
        Answer::None(failed("server_down", message))
    }

    /// The connections; of a server that has just gone, those of its next life. One that stays away is not waited for.
    async fn ready_links(&self) -> Option<super::Links> {
        if let Some(links) = self.links() {
            return Some(links);
        }
        let since = self.snapshot().down_since;
        if since.is_some_and(|since| since.elapsed() >= AGAIN_PATIENCE) {
            return None;
        }
        keep::up_again(self, AGAIN_PATIENCE).await
    }

    async fn call(&self, sent: Sent<'_>, replays: bool, line: Option<&Line>) -> Answer {
        let era = line.map_or(Era::Modern, |line| line.era);
        let Some(links) = self.ready_links().await else { return self.down() };
        let first = self.attempt(links.of(era), sent, line).await;
        let again = match &first {
            Err(NoAnswer::Lost { .. }) => replays,
            // Nothing was sent: trying again is trying for the first time.
            Err(NoAnswer::NotSent(_)) => true,
            Ok(_) | Err(NoAnswer::Rpc(_) | NoAnswer::TimedOut | NoAnswer::Unauthorized(_) | NoAnswer::Refused(_)) => {
                false
            }
        };
        let last = match (again, first) {
            (true, first) => match keep::up_again(self, AGAIN_PATIENCE).await {
                Some(links) => self.attempt(links.of(era), sent, line).await,
                None => first,
            },
            (false, first) => first,
        };
        match last {
            Ok(answer) => answer,
            Err(NoAnswer::Rpc(error)) => Answer::Error(error),
            Err(NoAnswer::NotSent(why)) => {
                let message = format!("MCP server {}: {why}; nothing was sent", self.spec.name);
                Answer::None(failed("server_down", message))
            }
            Err(NoAnswer::Unauthorized(why)) => {
                let message = format!("MCP server {}: {why}; it did nothing", self.spec.name);
                Answer::None(failed("not_authorized", message))
            }
            Err(NoAnswer::Refused(why)) => {
                let message = format!("MCP server {}: {why}; it did nothing", self.spec.name);
                Answer::None(failed("refused_by_server", message))
            }
            Err(NoAnswer::Lost { killed: true, .. }) => Answer::None(Report::Lost(Loss::Killed)),
            Err(NoAnswer::Lost { killed: false, .. }) => Answer::None(Report::Lost(Loss::ConnectionLost)),
            Err(NoAnswer::TimedOut) => Answer::None(Report::Lost(Loss::TimedOut)),
        }
    }

    async fn attempt(
        &self,
        link: &Arc<Link>,
        Sent { raw, args, key }: Sent<'_>,
        line: Option<&Line>,
    ) -> Result<Answer, NoAnswer> {
        let lists = Arc::clone(&self.snapshot().lists);
        let listed = lists.tools.get(raw);
        let with = With {
            line,
            patience: Patience { idle: self.spec.timeout, total: self.spec.total_timeout },
            schema: listed.map(|listed| &listed.of(link.era)["inputSchema"]),
        };
        let mut params = Map::new();
        params.insert("name".to_owned(), raw.into());
        params.insert("arguments".to_owned(), Value::clone(args));
        if let Some((name, value)) = key {
            params.insert("_meta".to_owned(), json!({ name: value }));
        }
        if link.era == Era::Legacy && listed.is_some_and(super::Listed::needs_task) {
            params.insert("task".to_owned(), json!({"ttl": task::TTL_MS}));
        }
        for _ in 0..ROUNDS_MAX {
            let result = link.request("tools/call", params.clone(), with).await?;
            // One that nobody asked for is followed too: its call is not over.
            let is_task = result["task"]["taskId"].is_string() && result.get("content").is_none();
            if result["task"].is_object() && params.contains_key("task") || is_task && link.era == Era::Legacy {
                return task::legacy(link, &result["task"], line).await;
            }
            match result["resultType"].as_str() {
                Some("task") => return task::modern(link, &result, line).await,
                Some("input_required") => match answers(&result, line).await {
                    Ok(answers) => {
                        params.insert("inputResponses".to_owned(), answers);
                        match result.get("requestState") {
                            Some(state) => drop(params.insert("requestState".to_owned(), state.clone())),
                            None => drop(params.remove("requestState")),
                        }
                    }
                    Err(why) => return Ok(unanswered(why)),
                },
                Some(_) | None => return Ok(Answer::Result(result)),
            }
        }
        let message = format!("{} asked {ROUNDS_MAX} times and did not go on", self.spec.name);
        Ok(Answer::None(failed("asks_for_ever", message)))
    }
}

/// The end of a call whose question was not answered.
pub(super) fn unanswered(why: NotAsked) -> Answer {
    match why {
        NotAsked::NotDeclared(capability) => Answer::Error(rpc::missing_capability(capability)),
        why @ (NotAsked::Refused(_) | NotAsked::NoAnswer) => Answer::Error(not_asked(why)),
    }
}

/// Puts the questions of a result to the caller, and gives the answers as the protocol writes them.
pub(super) async fn answers(result: &Value, line: Option<&Line>) -> Result<Value, NotAsked> {
    let asks: Vec<Ask> = result["inputRequests"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, request)| Ask {
            key: key.clone(),
            method: request["method"].as_str().unwrap_or_default().to_owned(),
            params: request.get("params").cloned().unwrap_or_else(|| json!({})),
        })
        .collect();
    if asks.is_empty() {
        // It only wants to be asked again with its state.
        return Ok(json!({}));
    }
    let line = line.ok_or(NotAsked::NoAnswer)?;
    Ok(Value::Object(put(line, asks).await?.into_iter().collect()))
}

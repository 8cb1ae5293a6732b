//! Asking the client, and through it the person behind it, in the middle of a call.
//!
//! The older era sends a request of ours on the call's stream and waits for the response. The modern one has no such
//! requests: the call is answered with `input_required` and parked, and a later request takes it up again with the
//! answers. A parked call belongs to its owner and to the exact call: another client, or other arguments, do not get
//! at it, and it does not wait for ever.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use crate::agents::core::Core;
use crate::agents::ctx::{Ctx, Out};
use crate::agents::engine::{Answer, QuestionView};
use crate::agents::list;
use crate::agents::parked::{Call, Resume};
use crate::agents::session::Session;
use crate::agents::tasks::record::Record;
use crate::mcp::era::{self, Era, Kind};
use crate::mcp::rpc::{self, RpcError};
use crate::mcp::upward::{Ask, NotAsked};

/// How long an answer of the client is waited for: as long as a person may look at a form. A question of the gate ends
/// by itself long before (120 s).
const ANSWER_WAIT: Duration = Duration::from_secs(600);

/// The same for a task, whose client may come by seldom.
const TASK_ANSWER_WAIT: Duration = Duration::from_secs(3600);

/// The key of the gate's own question, which no tool's question can have by accident.
const KEY_GATE: &str = "interlock/decision";

/// The member of the form that says what the person decided.
const DECISION: &str = "decision";

/// The gate's question as a form for the person behind the client. The answer that does nothing is the default.
#[must_use]
pub fn form(question: &QuestionView) -> Ask {
    Ask {
        key: KEY_GATE.to_owned(),
        method: "elicitation/create".to_owned(),
        params: json!({
            "mode": "form",
            "message": format!("{}\n{}\n({}, {})", question.text_zh, question.text_en, question.id, question.kind.as_str()),
            "requestedSchema": {
                "type": "object",
                "properties": {
                    DECISION: {
                        "type": "string",
                        "title": "允许执行？ / Allow it?",
                        "description": "allow: run exactly this call once. deny: do not run it.",
                        "enum": ["allow", "deny"],
                        "default": "deny",
                    },
                },
                "required": [DECISION],
            },
        }),
    }
}

/// What the person said; none when the form was closed without an answer, or came back in a shape that says nothing.
/// Only a plain "allow" allows.
#[must_use]
pub fn decision(answers: &[(String, Value)]) -> Option<Answer> {
    let (_, form) = answers.iter().find(|(key, _)| key == KEY_GATE)?;
    match (form["action"].as_str(), form["content"][DECISION].as_str()) {
        (Some("accept"), Some("allow")) => Some(Answer::Allow),
        (Some("accept"), Some("deny")) | (Some("decline"), _) => Some(Answer::Deny),
        _ => None,
    }
}

/// Questions that are out.
#[derive(Debug)]
pub struct Asking {
    got: Vec<(String, Value)>,
    until: Instant,
    way: Way,
}

#[derive(Debug)]
enum Way {
    /// Requests of ours, each with its number.
    Sent(Arc<Session>, VecDeque<Sent>),
    /// All answers were there already.
    Given,
    /// The call has become a task, whose client answers when it asks for it.
    Task(Arc<Record>),
    /// The call is parked under this state, for these questions.
    Parked(String, Vec<Ask>, oneshot::Receiver<Resume>),
}

/// The key of a question, the number of our request, and where its answer comes.
type Sent = (String, u64, oneshot::Receiver<Result<Value, RpcError>>);

/// What became of the questions.
#[derive(Debug)]
pub enum Heard {
    /// All are answered.
    All(Vec<(String, Value)>),
    /// They are not, for good.
    Not(NotAsked),
    /// The client came back.
    Back(Resume),
}

impl Asking {
    /// Waits for the client. May be dropped and called again without losing an answer.
    pub async fn heard(&mut self) -> Heard {
        match &mut self.way {
            Way::Sent(_, waits) => {
                while let Some((key, _, answer)) = waits.front_mut() {
                    match timeout_at(self.until, answer).await {
                        Ok(Ok(Ok(value))) => self.got.push((std::mem::take(key), value)),
                        Ok(Ok(Err(error))) => return Heard::Not(NotAsked::Refused(error)),
                        Ok(Err(_)) | Err(_) => return Heard::Not(NotAsked::NoAnswer),
                    }
                    waits.pop_front();
                }
                Heard::All(std::mem::take(&mut self.got))
            }
            Way::Given => Heard::All(std::mem::take(&mut self.got)),
            Way::Task(record) => {
                let mut changes = record.changes();
                let answers = async {
                    loop {
                        changes.mark_unchanged();
                        if let Some(answers) = record.answers() {
                            return Some(answers);
                        }
                        changes.changed().await.ok()?;
                    }
                };
                match timeout_at(self.until, answers).await {
                    Ok(Some(answers)) => {
                        self.got.extend(answers);
                        Heard::All(std::mem::take(&mut self.got))
                    }
                    Ok(None) | Err(_) => Heard::Not(NotAsked::NoAnswer),
                }
            }
            Way::Parked(_, _, resumed) => match timeout_at(self.until, resumed).await {
                Ok(Ok(resume)) => Heard::Back(resume),
                Ok(Err(_)) | Err(_) => Heard::Not(NotAsked::NoAnswer),
            },
        }
    }

    /// Takes the questions back: nobody needs to answer any more.
    pub fn withdraw(self, core: &Core, ctx: &Ctx) {
        match self.way {
            Way::Sent(session, waits) => {
                for (_, number, _) in waits {
                    session.close_ask(number);
                    let params = json!({"requestId": number, "reason": "answered elsewhere, or no longer needed"});
                    ctx.notify("notifications/cancelled", &params);
                }
            }
            Way::Parked(state, _, _) => core.parked.forget(&state),
            Way::Task(record) => record.withdraw(),
            Way::Given => {}
        }
    }
}

/// Sends questions to the client.
///
/// # Errors
/// When the client did not declare that it answers such questions, or too many calls are parked.
pub async fn ask(core: &Core, ctx: &mut Ctx, digest: &Call, asks: Vec<Ask>) -> Result<Asking, NotAsked> {
    for ask in &asks {
        era::may_ask(&ctx.capabilities, &ask.method).map_err(NotAsked::NotDeclared)?;
    }
    let until = Instant::now() + ANSWER_WAIT;
    let mut got = Vec::new();
    let mut open = Vec::new();
    for ask in asks {
        // A person answers the gate after it asked, not before.
        let early = if ask.key == KEY_GATE { None } else { ctx.answers.remove(&ask.key) };
        match early {
            Some(answer) if fits(&ask.method, &answer) => got.push((ask.key, answer)),
            Some(_) | None => open.push(ask),
        }
    }
    if open.is_empty() {
        return Ok(Asking { got, until, way: Way::Given });
    }
    let asks = open;
    if let Some(task) = &ctx.task {
        task.ask(asks);
        return Ok(Asking { got, until: Instant::now() + TASK_ANSWER_WAIT, way: Way::Task(Arc::clone(task)) });
    }
    match (ctx.era, &ctx.session) {
        (Era::Legacy, Some(session)) => {
            let session = Arc::clone(session);
            let mut waits = VecDeque::new();
            for ask in asks {
                let (number, answer) = session.open_ask();
                let text = rpc::request(number, &ask.method, &ask.params);
                let was_sent = match &ctx.out {
                    Some(Out::Stream(stream)) => stream.must(text),
                    Some(Out::Lines(lines)) => lines.send(text).await.is_ok(),
                    None => false,
                };
                waits.push_back((ask.key, number, answer));
                if !was_sent {
                    waits.iter().for_each(|(_, number, _)| session.close_ask(*number));
                    return Err(NotAsked::NoAnswer);
                }
            }
            Ok(Asking { got, until, way: Way::Sent(session, waits) })
        }
        (Era::Legacy, None) => Err(NotAsked::NoAnswer),
        (Era::Modern, _) => park(core, ctx, digest, asks, got, until).await,
    }
}

async fn park(
    core: &Core,
    ctx: &mut Ctx,
    digest: &Call,
    asks: Vec<Ask>,
    got: Vec<(String, Value)>,
    until: Instant,
) -> Result<Asking, NotAsked> {
    let (state, resumed) = core.parked.add(ctx, digest).ok_or(NotAsked::NoAnswer)?;
    let requests: Map<String, Value> =
        asks.iter().map(|ask| (ask.key.clone(), json!({"method": ask.method, "params": ask.params}))).collect();
    let result = json!({"resultType": "input_required", "inputRequests": requests, "requestState": state});
    ctx.finish(Ok(era::finish(result, ctx.era, Kind::Plain, &list::server()))).await;
    Ok(Asking { got, until, way: Way::Parked(state, asks, resumed) })
}

/// Takes in what was heard: a client that came back is who the call answers from now on, and questions that it left
/// open are asked again.
///
/// # Errors
/// When the questions have no answers, for good.
pub async fn take_in(
    core: &Core,
    ctx: &mut Ctx,
    digest: &Call,
    asking: Asking,
    heard: Heard,
) -> Result<Result<Vec<(String, Value)>, Asking>, NotAsked> {
    match (heard, asking.way) {
        (Heard::All(answers), _) => Ok(Ok(answers)),
        (Heard::Not(why), Way::Parked(state, _, _)) => {
            core.parked.forget(&state);
            Err(why)
        }
        (Heard::Not(why), Way::Sent(session, waits)) => {
            waits.iter().for_each(|(_, number, _)| session.close_ask(*number));
            Err(why)
        }
        (Heard::Not(why), Way::Given) => Err(why),
        (Heard::Not(why), Way::Task(record)) => {
            record.withdraw();
            Err(why)
        }
        (Heard::Back(_), Way::Sent(..) | Way::Given | Way::Task(_)) => Err(NotAsked::NoAnswer),
        (Heard::Back(mut back), Way::Parked(_, asks, _)) => {
            ctx.id = back.id;
            ctx.meta = back.meta;
            ctx.out = Some(back.out);
            let mut got = asking.got;
            let mut open = Vec::new();
            for ask in asks {
                match back.answers.remove(&ask.key) {
                    Some(answer) if fits(&ask.method, &answer) => got.push((ask.key, answer)),
                    _ => open.push(ask),
                }
            }
            if open.is_empty() { Ok(Ok(got)) } else { park(core, ctx, digest, open, got, asking.until).await.map(Err) }
        }
    }
}

/// What a request says of an earlier one: the state that it was given, and the answers that it brings.
///
/// # Errors
/// When they are not a string and an object.
pub fn brought(params: &Map<String, Value>) -> Result<(Option<&str>, Map<String, Value>), RpcError> {
    let state = match params.get("requestState") {
        None => None,
        Some(Value::String(state)) => Some(state.as_str()),
        Some(_) => return Err(RpcError::new(rpc::INVALID_PARAMS, "\"requestState\" is a string")),
    };
    match params.get("inputResponses") {
        None => Ok((state, Map::new())),
        Some(Value::Object(answers)) => Ok((state, answers.clone())),
        Some(_) => Err(RpcError::new(rpc::INVALID_PARAMS, "\"inputResponses\" is an object")),
    }
}

/// Whether an answer has the members that its kind cannot do without. One that has not is asked for again.
#[must_use]
pub fn fits(method: &str, answer: &Value) -> bool {
    match method {
        "elicitation/create" => matches!(answer["action"].as_str(), Some("accept" | "decline" | "cancel")),
        "sampling/createMessage" => answer["content"].is_object() || answer["content"].is_array(),
        "roots/list" => answer["roots"].is_array(),
        _ => answer.is_object(),
    }
}

#[cfg(test)]
mod tests {
    use interlock_domain::id::QuestionId;
    use interlock_domain::time::Wall;

    use super::*;
    use crate::agents::engine::QuestionKind;

    fn check(form: Value, expected: Option<Answer>) {
        assert_eq!(decision(&[(KEY_GATE.into(), form.clone())]), expected, "{form}");
    }

    #[test]
    fn only_a_plain_allow_allows() {
        check(json!({"action": "accept", "content": {"decision": "allow"}}), Some(Answer::Allow));
        check(json!({"action": "accept", "content": {"decision": "deny"}}), Some(Answer::Deny));
        check(json!({"action": "decline"}), Some(Answer::Deny));
        check(json!({"action": "decline", "content": {"decision": "allow"}}), Some(Answer::Deny));
        check(json!({"action": "cancel"}), None);
        check(json!({"action": "cancel", "content": {"decision": "allow"}}), None);
        check(json!({"action": "accept"}), None);
        check(json!({"action": "accept", "content": {"decision": true}}), None);
        check(json!({"action": "accept", "content": {"decision": "ALLOW"}}), None);
        check(json!("allow"), None);
        assert_eq!(decision(&[]), None);
    }

    #[test]
    fn the_form_names_the_question_and_defaults_to_no() {
        let question = QuestionView {
            two_persons: false,
            id: QuestionId(7),
            kind: QuestionKind::Confirm,
            text_zh: "合上一号断路器？".into(),
            text_en: "Close breaker 1?".into(),
            until: Wall(0),
        };
        let ask = form(&question);
        assert_eq!(ask.params["message"], "合上一号断路器？\nClose breaker 1?\n(q7, confirm)");
        assert_eq!(ask.params["requestedSchema"]["properties"]["decision"]["default"], "deny");
    }
}

//! `ask …` on the socket: the questions that wait, and what a person says to them.

use std::time::Duration;

use interlock_domain::gate::docket::{Answer, By, Ignored, QuestionKind};
use interlock_domain::id::QuestionId;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::verbs::{Answer1, Args, Context, not_taken, settlement};
use super::wire::{Kind, Trouble};
use crate::engine::handle::{AnswerTaken, NotTaken, Open};

/// How long the answer to a denial waits for the word of the log. The rest of the batch may run for minutes.
const DENIED_PATIENCE: Duration = Duration::from_secs(2);

pub(super) async fn list(context: &Context) -> Result<Vec<Value>, Trouble> {
    let open = context.mediator.questions().await.map_err(|error| not_taken(&error))?;
    Ok(open.iter().map(question).collect())
}

fn question(open: &Open) -> Value {
    let asked = &open.question;
    json!({
        "question": asked.id.to_string(),
        "kind": asked.kind.word(),
        "call": asked.key.call.to_string(),
        "tool": asked.tool.as_str(),
        "input": asked.shown,
        "asker": asked.asker.as_ref().map(|asker| format!("{} ({})", asker.name, asker.via.word())),
        "rule": asked.rule,
        "reason": asked.reason,
        "four_eyes": asked.four_eyes,
        "allowed_by": asked.first.as_ref().map(|first| first.name.as_str()),
        "expires_ms": open.left_ms,
        "text": format!("{} {}: {}", asked.tool, asked.shown, asked.reason),
    })
}

pub(super) fn question_text(open: &Open, zh: bool) -> String {
    let asked = &open.question;
    let seconds = open.left_ms.map_or(0, |ms| ms / 1000);
    let (id, tool, input) = (asked.id, &asked.tool, &asked.shown);
    if zh {
        format!("等待回答（{id}，{seconds} 秒内）：{tool} {input}")
    } else {
        format!("waits for an answer ({id}, {seconds} s): {tool} {input}")
    }
}

pub(super) async fn answer(context: &Context, user: &str, args: &Args<'_>, answer: Answer) -> Answer1 {
    let question: QuestionId = args.parsed("question")?;
    let open = context.mediator.questions().await.map_err(|error| not_taken(&error))?;
    let beside = beside(&open, question);
    let (taken, settled) =
        context.mediator.answer(question, answer, by(user)).await.map_err(|error| not_taken(&error))?;
    let mut value = json!({ "question": question.to_string() });
    if obeyed(question, taken)? == Obeyed::AsTheFirst {
        allowed_once(&mut value, question, user, args);
        return Ok(value);
    }
    // Nothing of a batch starts before all of its questions are answered: who answers one must be free for the next.
    let patience = match answer {
        Answer::Allow if beside.is_empty() => None,
        Answer::Deny if beside.is_empty() => Some(DENIED_PATIENCE),
        Answer::Allow | Answer::Deny => Some(Duration::ZERO),
    };
    let settled = async {
        match settled {
            Some(settled) => settled.await.map_err(|_| not_taken(&NotTaken::Stopping)),
            None => Err(not_taken(&NotTaken::Stopping)),
        }
    };
    let settled = match patience {
        None => Some(settled.await?),
        Some(patience) => timeout(patience, settled).await.ok().transpose()?,
    };
    match settled {
        Some(answered) => settlement(&mut value, &answered, args),
        None => answered_alone(&mut value, question, answer, &beside, args),
    }
    Ok(value)
}

/// Whom the box knows: a user of its own, or the holder of a token of the console, who is the same person at both.
fn by(user: &str) -> By {
    match user {
        super::UNKNOWN => By::said(user),
        user => By::person(user, user.strip_suffix(crate::engine::people::AT_THE_CONSOLE).unwrap_or(user)),
    }
}

/// The first yes of two.
fn allowed_once(value: &mut Value, question: QuestionId, user: &str, args: &Args<'_>) {
    value["decision"] = "allow".into();
    value["result"] = Value::Null;
    value["needs"] = "second_person".into();
    value["message"] = if args.is_zh() {
        format!("{question} 已由 {user} 允许，尚未执行：还须另一人允许")
    } else {
        format!("{question} is allowed by {user}; it starts when another person has allowed it, too")
    }
    .into();
}

/// The questions about the other calls of its batch, in order. All of a batch are asked at once.
fn beside(open: &[Open], question: QuestionId) -> Vec<QuestionId> {
    let Some(it) = open.iter().find(|open| open.question.id == question) else { return Vec::new() };
    let call = it.question.key.call;
    let others = open.iter().map(|open| &open.question).filter(|other| {
        other.id != question
            && other.kind != QuestionKind::Outcome
            && (other.key.call.run, other.key.call.batch) == (call.run, call.batch)
    });
    others.map(|other| other.id).collect()
}

/// The answer is taken, and what comes of the batch is still open.
fn answered_alone(value: &mut Value, question: QuestionId, answer: Answer, beside: &[QuestionId], args: &Args<'_>) {
    let (word, en, zh) = match answer {
        Answer::Allow => ("allow", "allowed", "已允许"),
        Answer::Deny => ("deny", "denied", "已拒绝"),
    };
    let others: Vec<String> = beside.iter().map(QuestionId::to_string).collect();
    value["decision"] = word.into();
    value["result"] = Value::Null;
    value["waits_for"] = others.clone().into();
    let others = others.join(", ");
    value["message"] = match (args.is_zh(), beside.is_empty()) {
        (false, true) => format!("{question} is {en}; the other actions asked for together go on"),
        (true, true) => format!("{question} {zh}；同一批的其他动作继续"),
        (false, false) => format!("{question} is {en}; nothing asked for together starts before {others} is answered"),
        (true, false) => format!("{question} {zh}；{others} 回答之前，同一批动作都不会开始"),
    }
    .into();
}

pub(super) async fn settle(context: &Context, user: &str, args: &Args<'_>) -> Answer1 {
    let question: QuestionId = args.parsed("question")?;
    let done = match args.need("finding")? {
        "done" => true,
        "failed" => false,
        other => return Err(Trouble::new(Kind::Usage, format!("{other:?} is neither done nor failed"))),
    };
    let note = note(args, "say how it is known: --note \"seen on site\"")?.to_owned();
    let taken =
        context.mediator.settle(question, done, note, user.to_owned()).await.map_err(|error| not_taken(&error))?;
    obeyed(question, taken)?;
    let message = if args.is_zh() { format!("{question} 已记录") } else { format!("{question} is recorded") };
    Ok(json!({ "question": question.to_string(), "finding": args.need("finding")?, "message": message }))
}

/// What a person writes beside a word that nobody can check.
pub(super) fn note<'a>(args: &'a Args<'_>, hint: &str) -> Result<&'a str, Trouble> {
    let note = args.need("note")?;
    if note.trim().is_empty() {
        return Err(Trouble::new(Kind::Usage, "the note is empty").hint(hint));
    }
    Ok(note)
}

/// How a word counted.
#[derive(PartialEq, Eq)]
enum Obeyed {
    Whole,
    AsTheFirst,
}

fn obeyed(question: QuestionId, taken: AnswerTaken) -> Result<Obeyed, Trouble> {
    match taken {
        AnswerTaken::Obeyed => Ok(Obeyed::Whole),
        AnswerTaken::Waits => Ok(Obeyed::AsTheFirst),
        AnswerTaken::Ignored(Ignored::SamePerson) => Err(Trouble::new(
            Kind::NotSo,
            format!("you have allowed question {question} already: another person has to allow it, too"),
        )
        .hint("one person counts once, at the console and at the shell")),
        AnswerTaken::Ignored(Ignored::UnknownPerson | Ignored::Revoked) => Err(Trouble::new(
            Kind::Permission,
            format!("question {question} takes two persons whom the box knows, and it does not know you"),
        )
        .hint("answer at the console with a token of your own, or as a user of the box")),
        AnswerTaken::Ignored(Ignored::NoSuchQuestion) => {
            Err(Trouble::new(Kind::NotFound, format!("there is no question {question}")).hint("interlock ask list"))
        }
        AnswerTaken::Ignored(Ignored::Closed) => Err(Trouble::new(
            Kind::NotSo,
            format!("question {question} is closed: it was answered, ran out, or is void"),
        )
        .hint("interlock ask list")),
        AnswerTaken::Ignored(Ignored::Stale) => {
            Err(Trouble::new(Kind::NotSo, format!("question {question} was about something that has changed")))
        }
        AnswerTaken::Ignored(Ignored::WrongKind) => {
            Err(Trouble::new(Kind::Usage, format!("question {question} takes another kind of answer"))
                .hint("an outcome question takes `interlock ask settle`, the others `ask allow` or `ask deny`"))
        }
    }
}

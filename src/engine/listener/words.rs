//! What the listener says to a person, in both languages, and the words of `say --json`.

use std::time::Duration;

use interlock_domain::agent::Ended;
use interlock_domain::command::bind::BindError;
use interlock_domain::command::resolution::{HazardKind, Outcome, Refused, Resolution, Understood};
use interlock_domain::command::understanding::Understanding;
use interlock_domain::gate::docket::{Answer, QuestionKind};
use interlock_domain::id::QuestionId;
use interlock_domain::request::why;
use serde_json::{Map, Value, json};

use super::super::handle::{Answered, NotTaken, Open};
use super::{Said, result};
use crate::infer::knowledge::Found;

/// How long an answer to a sentence that does nothing waits for its row in the log.
pub(super) const LOG_PATIENCE: Duration = Duration::from_secs(2);

/// The language of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lang {
    /// English.
    En,
    /// Simplified Chinese.
    Zh,
}

impl Lang {
    /// From the word in a request; English for everything that is not Chinese.
    #[must_use]
    pub fn of_word(word: &str) -> Lang {
        if word.starts_with("zh") { Lang::Zh } else { Lang::En }
    }

    /// For the domain's own sentences.
    #[must_use]
    pub fn domain(self) -> why::Lang {
        match self {
            Lang::En => why::Lang::En,
            Lang::Zh => why::Lang::Zh,
        }
    }
}

/// A text in both languages.
#[derive(Debug, Clone)]
pub(super) struct Text {
    en: std::borrow::Cow<'static, str>,
    zh: std::borrow::Cow<'static, str>,
}

const fn text(en: &'static str, zh: &'static str) -> Text {
    Text { en: std::borrow::Cow::Borrowed(en), zh: std::borrow::Cow::Borrowed(zh) }
}

fn made(en: String, zh: String) -> Text {
    Text { en: en.into(), zh: zh.into() }
}

impl Text {
    pub(super) fn pick(&self, lang: Lang) -> String {
        match lang {
            Lang::En => self.en.clone().into_owned(),
            Lang::Zh => self.zh.clone().into_owned(),
        }
    }
}

pub(super) static BUSY: Text = text("too much is under way; nothing was done", "当前任务过多，未执行");
pub(super) static STOPPING: Text =
    text("the daemon is stopping; see the evidence log", "守护进程正在停止，请查看证据日志");
pub(super) static NOT_TOLD: Text = text(
    "it is under way and not recorded yet (the evidence log may be degraded); look at the plant and at evidence tail",
    "仍在进行，尚未记录（证据日志可能异常）；请查看现场和 evidence tail",
);
pub(super) static TOO_LATE: Text = text("that question is closed; nothing was done", "该确认已失效，未执行");

pub(super) static TWO_PERSONS: Text = text(
    "two persons have to allow this, each at the console or by `interlock ask allow`; nothing was done yet",
    "此操作须由两人分别在控制台或用 interlock ask allow 允许，尚未执行",
);
pub(super) static NOTHING_ASKED: Text =
    text("nothing waits for your confirmation; nothing was done", "没有等待您确认的操作，未执行");
pub(super) static RAN_OUT: Text = text(
    "that question has run out for voice; nothing was done. `interlock ask list` shows what still waits",
    "该问题已超时，未执行；可用 interlock ask list 查看",
);
pub(super) static DROPPED: Text = text("dropped; nothing was done", "已取消，未执行");

/// What a short utterance says to the question that its speaker was asked last; nothing else may.
pub(super) fn answer(text: &str) -> Option<Answer> {
    let bare: String = text.chars().filter(|letter| letter.is_alphanumeric()).collect();
    match bare.as_str() {
        "确认" | "确认执行" | "确定" | "是" | "是的" | "执行" | "同意" => Some(Answer::Allow),
        "取消" | "不" | "不要" | "否" | "不执行" | "不确认" | "不同意" | "算了" => Some(Answer::Deny),
        _ => None,
    }
}

/// The outcome's word (`cli.md`, `match`).
pub(super) fn outcome(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Command(_) => "command",
        Outcome::Incomplete { .. } => "incomplete",
        Outcome::Sequence(_) => "sequence",
        Outcome::Knowledge => "knowledge",
        Outcome::Ambiguous => "ambiguous",
        Outcome::Rejected(_) => "rejected",
    }
}

/// Why a sentence was rejected, for the evidence.
pub(super) fn refused(outcome: &Outcome) -> Option<String> {
    match outcome {
        Outcome::Rejected(Refused::NoUtterance) => Some("no utterance".to_owned()),
        Outcome::Rejected(Refused::NoCommand) => Some("no command".to_owned()),
        Outcome::Rejected(Refused::Hazard(kind)) => Some(kind.to_string()),
        Outcome::Command(_)
        | Outcome::Incomplete { .. }
        | Outcome::Sequence(_)
        | Outcome::Knowledge
        | Outcome::Ambiguous => None,
    }
}

/// The one command that was understood, if it is one.
pub(super) fn understood(resolution: &Resolution) -> Option<&Understood> {
    match &resolution.outcome {
        Outcome::Command(understood) | Outcome::Incomplete { understood, .. } => Some(understood),
        Outcome::Sequence(_) | Outcome::Knowledge | Outcome::Ambiguous | Outcome::Rejected(_) => None,
    }
}

/// All commands that were understood.
pub(super) fn all(resolution: &Resolution) -> Vec<&Understood> {
    match &resolution.outcome {
        Outcome::Sequence(several) => several.iter().collect(),
        Outcome::Command(_)
        | Outcome::Incomplete { .. }
        | Outcome::Knowledge
        | Outcome::Ambiguous
        | Outcome::Rejected(_) => understood(resolution).into_iter().collect(),
    }
}

/// The slots as JSON.
pub(super) fn slots(command: &Understood) -> Value {
    let slots: Map<String, Value> = command.slots.iter().map(|(name, value)| (name.clone(), value.to_json())).collect();
    Value::Object(slots)
}

/// What is said of a sentence that does nothing.
pub(super) fn of(resolution: &Resolution, missing: &[String], understanding: &Understanding) -> Text {
    if !missing.is_empty() {
        let wanted_en = missing.join(", ");
        let wanted_zh: Vec<&str> = missing.iter().map(|slot| slot_zh(slot)).collect();
        let what = understood(resolution).and_then(|command| understanding.definition(&command.command));
        let what = what.map_or("", |definition| definition.text.as_str());
        return made(
            format!("{what}: which {wanted_en}? Nothing was done"),
            format!("{what}：请说明{}，未执行", wanted_zh.join("、")),
        );
    }
    let nearest = resolution.candidates.iter().filter_map(|candidate| understanding.definition(&candidate.command));
    let names: Vec<&str> = nearest.map(|definition| definition.text.as_str()).collect();
    match &resolution.outcome {
        Outcome::Ambiguous => made(
            format!("which of these: {}? Nothing was done", names.join(", ")),
            format!("您是指：{}？未执行", names.join("、")),
        ),
        Outcome::Rejected(Refused::Hazard(kind)) => made(
            format!("not carried out: the sentence is a {}", hazard_en(*kind)),
            format!("未执行：{}", hazard_zh(*kind)),
        ),
        Outcome::Rejected(Refused::NoUtterance) => text("nothing was said", "没有听到内容"),
        Outcome::Command(_)
        | Outcome::Incomplete { .. }
        | Outcome::Sequence(_)
        | Outcome::Knowledge
        | Outcome::Rejected(Refused::NoCommand) => {
            if names.is_empty() {
                return text("no command was understood; nothing was done", "没有听懂，未执行");
            }
            made(
                format!("no command was understood; was it {}? Nothing was done", names.join(", or ")),
                format!("没有听懂，您要的是{}吗？未执行", names.join("，还是")),
            )
        }
    }
}

/// The passage that answers a question, with where it is from, and the titles of the next.
pub(super) fn read_out(passages: &[Found]) -> Text {
    let Some((first, others)) = passages.split_first() else {
        return text("no passage was found", "没有找到相关资料");
    };
    let name = |found: &Found| if found.title.is_empty() { found.id.clone() } else { found.title.clone() };
    let others: Vec<String> = others.iter().map(name).collect();
    let (mut en, mut zh) = (
        format!("{} ({}, {})", first.text, name(first), first.source),
        format!("{}（{}，{}）", first.text, name(first), first.source),
    );
    if !others.is_empty() {
        en.push_str(&format!("; see also {}", others.join(", ")));
        zh.push_str(&format!("；另见{}", others.join("、")));
    }
    made(en, zh)
}

/// The language model's run did not end with an answer.
pub(super) fn model_ended(ended: &Ended) -> Text {
    if let Ended::DeniedRepeatedly { .. } = ended {
        return made(
            "the language model wished again and again for what is denied, so its run was ended; see `interlock trace`"
                .to_owned(),
            "语言模型反复请求被拒绝的操作，本次运行已结束，请查看 interlock trace".to_owned(),
        );
    }
    let code = ended.code();
    made(
        format!("the language model gave no whole answer ({code}); see `interlock trace`"),
        format!("语言模型没有给出完整回答（{code}），请查看 interlock trace"),
    )
}

/// The language model was not reached.
pub(super) fn model_off(why: &str) -> Text {
    made(
        format!("no command was understood, and the language model did not answer: {why}"),
        format!("没有听懂，语言模型也未应答：{why}"),
    )
}

fn slot_zh(slot: &str) -> &str {
    match slot {
        "device" | "tool" => "几号设备",
        "zone" => "哪个区域",
        "value" | "percent" => "数值",
        "duration" => "时长",
        other => other,
    }
}

fn hazard_en(kind: HazardKind) -> &'static str {
    match kind {
        HazardKind::Negation => "prohibition",
        HazardKind::Question => "question",
        HazardKind::Reported => "report of somebody's words",
        HazardKind::Condition => "condition",
        HazardKind::Deferral => "wish for later",
        HazardKind::History => "report of the past",
        HazardKind::Correction => "correction that is not clear",
        HazardKind::Several => "chain of commands of which not all were understood",
    }
}

fn hazard_zh(kind: HazardKind) -> &'static str {
    match kind {
        HazardKind::Negation => "这是一句禁止或否定的话",
        HazardKind::Question => "这是一个问句",
        HazardKind::Reported => "这是转述别人的话",
        HazardKind::Condition => "这句话带有条件",
        HazardKind::Deferral => "这句话说的是以后的事",
        HazardKind::History => "这句话说的是以前的事",
        HazardKind::Correction => "更正的内容不清楚，请再说一遍",
        HazardKind::Several => "一句话里有几条命令，没有全部听懂",
    }
}

pub(super) fn bind_error(error: &BindError) -> Text {
    made(format!("nothing was done: {error}"), format!("未执行：{error}"))
}

pub(super) fn not_taken(error: &NotTaken) -> Text {
    match error {
        NotTaken::Busy => BUSY.clone(),
        NotTaken::Stopping => STOPPING.clone(),
        NotTaken::Input(_) | NotTaken::Batch(_) | NotTaken::NoParent(_) => {
            made(format!("nothing was done: {error}"), format!("未执行：{error}"))
        }
    }
}

/// What waits, and for what: device and action by name.
pub(super) fn asked(open: &Open, commands: &[&str]) -> Text {
    let question = &open.question;
    let seconds = open.left_ms.map_or(0, |ms| ms / 1000);
    let (what, id) = (&question.shown, question.id);
    let commands = commands.join(", ");
    match question.kind {
        QuestionKind::Confirm if question.four_eyes => made(
            format!(
                "dangerous, waits for two persons ({id}, {seconds} s): {commands} {what}. Each allows it at the console \
                 or by `interlock ask allow {id}`; 取消 denies it"
            ),
            format!(
                "危险操作，等待两人允许（{id}，{seconds} 秒内）：{commands} {what}。请两人分别在控制台或用 interlock ask \
                 allow {id} 允许；说“取消”即拒绝"
            ),
        ),
        QuestionKind::Confirm => made(
            format!("dangerous, waits for its confirmation ({id}, {seconds} s): {commands} {what}. Say 确认 or 取消"),
            format!("危险操作，等待确认（{id}，{seconds} 秒内）：{commands} {what}。请说“确认”或“取消”"),
        ),
        QuestionKind::Permit | QuestionKind::Outcome => made(
            format!("waits for permission ({id}, {seconds} s): {commands} {what}"),
            format!("等待许可（{id}，{seconds} 秒内）：{commands} {what}"),
        ),
    }
}

/// Fills in how the calls ended. `plan` says how many calls each command came to.
pub(super) fn ended(
    value: &mut Value,
    plan: &[(&Understood, usize)],
    answered: &[Answered],
    lang: Lang,
    sequence: bool,
) {
    let denied = answered.iter().any(|answered| match &answered.reply.ending {
        interlock_domain::closure::Ending::NotStarted(why) => why.is_denial(),
        interlock_domain::closure::Ending::Ran(_) => false,
    });
    value["decision"] = if denied { "deny" } else { "allow" }.into();
    value["result"] = result(answered).into();
    value["output"] = output(answered);
    value["message"] = message(answered, lang).into();
    value["evidence"] = answered.iter().filter_map(|answered| answered.evidence).map(|seq| seq.0).max().into();
    if sequence {
        let mut rest = answered;
        let mut steps = Vec::new();
        for (command, calls) in plan {
            let (own, later) = rest.split_at((*calls).min(rest.len()));
            rest = later;
            steps.push(json!({
                "command": command.command,
                "slots": slots(command),
                "result": result(own),
                "output": output(own),
                "message": message(own, lang),
                "evidence": own.iter().filter_map(|answered| answered.evidence).map(|seq| seq.0).max(),
            }));
        }
        value["steps"] = steps.into();
    }
}

/// One call's output as it is; several as a list.
fn output(answered: &[Answered]) -> Value {
    let mut outputs: Vec<Value> = answered
        .iter()
        .map(|answered| answered.reply.ending.output().map_or(Value::Null, |output| (**output).clone()))
        .collect();
    if outputs.len() == 1 { outputs.remove(0) } else { outputs.into() }
}

fn message(answered: &[Answered], lang: Lang) -> String {
    let bad = answered.iter().find(|answered| answered.reply.ending.word() != "done");
    match (bad, lang) {
        (Some(bad), _) => {
            format!("{}: {}", word(bad.reply.ending.word(), lang), bad.reply.ending.message(lang.domain()))
        }
        (None, _) => {
            let found: Vec<String> = answered.iter().filter_map(found).collect();
            let done = word("done", lang);
            match (found.is_empty(), lang) {
                (true, _) => done.to_owned(),
                (false, Lang::En) => format!("{done}: {}", found.join("; ")),
                (false, Lang::Zh) => format!("{done}：{}", found.join("；")),
            }
        }
    }
}

/// What a device call found or wrote, in one line: `pump-2 pressure 0.35 MPa`.
fn found(answered: &Answered) -> Option<String> {
    /// More points than a person reads or hears at once.
    const POINTS_MAX: usize = 6;
    let output = answered.reply.ending.output()?;
    let device = output.get("device")?.as_str()?;
    let one = |point: &Value| {
        let name = point.get("point")?.as_str()?;
        let value = match point.get("label").and_then(Value::as_str) {
            Some(label) => label.to_owned(),
            None => point.get("value")?.to_string(),
        };
        let unit = point.get("unit").and_then(Value::as_str).unwrap_or_default();
        Some(format!("{name} {value} {unit}").trim_end().to_owned())
    };
    let points = output.get("points").and_then(Value::as_array);
    let shown: Vec<String> = match points {
        Some(points) => points.iter().filter_map(one).take(POINTS_MAX).collect(),
        None => one(output).into_iter().collect(),
    };
    (!shown.is_empty()).then(|| format!("{device} {}", shown.join(", ")))
}

fn word(ending: &'static str, lang: Lang) -> &'static str {
    match (lang, ending) {
        (Lang::En, "not_started") => "not started",
        (Lang::En, other) => other,
        (Lang::Zh, "done") => "已完成",
        (Lang::Zh, "failed") => "失败",
        (Lang::Zh, "unknown") => "结果未知",
        (Lang::Zh, _) => "未执行",
    }
}

/// The answer to a confirmation.
pub(super) fn confirmed(said: &Said, question: QuestionId, answer: Answer, answered: &Answered) -> Value {
    let mut value = plain(said, &text("", ""));
    value["outcome"] = "command".into();
    value["question"] = question.to_string().into();
    value["decision"] = match answer {
        Answer::Allow => "allow".into(),
        Answer::Deny => "deny".into(),
    };
    let one = std::slice::from_ref(answered);
    value["result"] = result(one).into();
    value["output"] = output(one);
    value["message"] = message(one, said.lang).into();
    value["evidence"] = answered.evidence.map(|seq| seq.0).into();
    value["run"] = answered.reply.call.run.to_string().into();
    value
}

/// An answer that only says something.
pub(super) fn plain(said: &Said, message: &Text) -> Value {
    json!({
        "query": said.text,
        "outcome": "rejected",
        "command": null,
        "slots": {},
        "decision": null,
        "question": null,
        "result": null,
        "output": null,
        "message": message.pick(said.lang),
        "evidence": null,
        "run": null,
    })
}

//! The end of every call, once, whatever way it took.
//!
//! Two doors, and each takes a value that exists once: an [`Outcome`] or a [`Refusal`]. Both carry the request, which
//! is consumed here and nowhere else; a second settlement of one call cannot be written down. A settlement is never
//! changed: what is learned later is a record of its own beside it.

use std::sync::Arc;

use serde_json::Value;

use crate::effect::Outcome;
use crate::effect::journal::Entry;
use crate::effect::outcome::{Known, WayOut};
use crate::effect::report::Loss;
use crate::id::{CallId, ToolName};
use crate::request::why::{Lang, Why};
use crate::request::{Refusal, Request};

/// How a call ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Ending {
    /// It was started.
    Ran(Known),
    /// It was not.
    NotStarted(Why),
}

impl Ending {
    /// The word of contracts: `done`, `failed`, `unknown`, `not_started`.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Ending::Ran(Known::Done(_)) => "done",
            Ending::Ran(Known::Failed(_)) => "failed",
            Ending::Ran(Known::Unknown { .. }) => "unknown",
            Ending::NotStarted(_) => "not_started",
        }
    }

    /// What the tool gave back.
    #[must_use]
    pub fn output(&self) -> Option<&Arc<Value>> {
        match self {
            Ending::Ran(Known::Done(output)) => Some(output),
            Ending::Ran(Known::Failed(_) | Known::Unknown { .. }) | Ending::NotStarted(_) => None,
        }
    }

    /// The stable code of a failure, a loss or a reason; `None` for what is done.
    #[must_use]
    pub fn code(&self) -> Option<&'static str> {
        match self {
            Ending::Ran(Known::Done(_)) => None,
            Ending::Ran(Known::Failed(failure)) => Some(failure.code),
            Ending::Ran(Known::Unknown { loss, .. }) => Some(loss_code(loss)),
            Ending::NotStarted(why) => Some(why.code()),
        }
    }

    /// One sentence for a person; empty for what is done.
    #[must_use]
    pub fn message(&self, lang: Lang) -> String {
        match self {
            Ending::Ran(Known::Done(_)) => String::new(),
            Ending::Ran(Known::Failed(failure)) => failure.message.clone(),
            Ending::Ran(Known::Unknown { loss, way_out }) => unknown(loss, *way_out, lang),
            Ending::NotStarted(why) => why.message(lang),
        }
    }
}

/// The stable code of a loss.
#[must_use]
pub fn loss_code(loss: &Loss) -> &'static str {
    match loss {
        Loss::TimedOut => "timed_out",
        Loss::ConnectionLost => "connection_lost",
        Loss::Killed => "killed",
        Loss::Panicked(_) => "panicked",
        Loss::Stopped => "stopped",
        Loss::DaemonEnded => "daemon_ended",
        Loss::Partial(_) => "partial",
    }
}

fn unknown(loss: &Loss, way_out: WayOut, lang: Lang) -> String {
    match lang {
        Lang::En => {
            let lost = match loss {
                Loss::TimedOut => "no answer came in time after it was sent",
                Loss::ConnectionLost => "the connection broke after it was sent",
                Loss::Killed => "the process that did it was killed",
                Loss::Panicked(_) => "the code that did it panicked",
                Loss::Stopped => "it was stopped and did not say how far it had come",
                Loss::DaemonEnded => "the daemon ended in the middle of it",
                Loss::Partial(steps) => steps,
            };
            let then = match way_out {
                WayOut::AskAgain => "it changes nothing, so it may be asked again",
                WayOut::Resend { .. } => "it may be sent again under the same operation key",
                WayOut::QueryFirst => "ask the other side before anything else",
                WayOut::Hold => "look at the plant, then settle the question (ask settle)",
            };
            format!("nobody knows whether it took effect: {lost}; {then}")
        }
        Lang::Zh => {
            let lost = match loss {
                Loss::TimedOut => "发出后在规定时间内没有答复",
                Loss::ConnectionLost => "发出后连接中断",
                Loss::Killed => "执行它的进程被终止",
                Loss::Panicked(_) => "执行它的代码异常退出",
                Loss::Stopped => "被要求停止，且未说明进行到哪一步",
                Loss::DaemonEnded => "守护进程在执行中途结束",
                Loss::Partial(steps) => steps,
            };
            let then = match way_out {
                WayOut::AskAgain => "该操作不改变任何东西，可以再问一次",
                WayOut::Resend { .. } => "可用同一操作号重新发送",
                WayOut::QueryFirst => "请先向对方查询",
                WayOut::Hold => "请先查看现场，再答复该问题（ask settle）",
            };
            format!("不知道是否已生效：{lost}；{then}")
        }
    }
}

/// The end of one call. It exists once for each request.
#[derive(Debug)]
#[must_use = "a settlement is recorded and answered"]
pub struct Settlement {
    request: Request,
    ending: Ending,
}

/// Settles what was started.
pub fn settle(outcome: Outcome) -> Settlement {
    let (request, known) = outcome.into_parts();
    Settlement { request, ending: Ending::Ran(known) }
}

/// Settles what was not started.
pub fn refuse(refusal: Refusal) -> Settlement {
    let (request, why) = refusal.into_parts();
    Settlement { request, ending: Ending::NotStarted(why) }
}

impl Settlement {
    /// The call.
    #[must_use]
    pub fn id(&self) -> CallId {
        self.request.call()
    }

    /// The request.
    pub fn request(&self) -> &Request {
        &self.request
    }

    /// How it ended.
    #[must_use]
    pub fn ending(&self) -> &Ending {
        &self.ending
    }

    /// What the asker is told. `evidence` is the settlement's own record, once it is on the disk.
    #[must_use]
    pub fn reply(self, evidence: Option<Entry>) -> Reply {
        Reply { call: self.request.call(), tool: self.request.wish().tool.clone(), ending: self.ending, evidence }
    }
}

/// What the asker is told about one call. Plain data.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    /// The call.
    pub call: CallId,
    /// The tool as the asker wrote it.
    pub tool: ToolName,
    /// How it ended.
    pub ending: Ending,
    /// The record of the settlement, when it was on the disk at the time of the reply.
    pub evidence: Option<Entry>,
}

//! Everything worth remembering about a call, as plain data.
//!
//! Only the mediator makes events, by reading passports: the stations know nothing of the log. The list is closed and
//! without a catch-all, so that whoever writes, counts or repairs has to say what a new event means to him.

use std::sync::Arc;

use serde_json::Value;

use crate::closure::Ending;
use crate::effect::ledger::{Change, Noted};
use crate::effect::outcome::{Known, OpKey};
use crate::gate::docket::{Answer, Ignored, Question};
use crate::gate::policy::Mode;
use crate::id::{CallId, Epoch, QuestionId, RunId, ToolName};
use crate::request::Asker;
use crate::request::args::Args;
use crate::request::why::Step;
use crate::risk::Risk;
use crate::surface::contract::Contract;
use crate::surface::nature::Class;
use crate::surface::outputs::Validity;

/// What somebody found out about an effect whose outcome was unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Found {
    /// The effect is there.
    Done,
    /// The effect is not there.
    Failed,
}

impl Found {
    /// The word of contracts.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Found::Done => "done",
            Found::Failed => "failed",
        }
    }
}

/// How an unknown was found out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FoundBy {
    /// A person looked.
    Person {
        /// Who.
        name: String,
        /// What they wrote.
        note: String,
    },
    /// It was asked for by the ways that its contract gives.
    Query {
        /// What was asked, and what came back.
        note: String,
    },
    /// The tool reported after it had been given up.
    LateReport,
}

/// What happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A run was opened.
    RunOpened {
        /// The run.
        run: RunId,
        /// The run that made it.
        parent: Option<RunId>,
        /// Whom it acts for.
        asker: Asker,
        /// How freely.
        mode: Mode,
    },
    /// The policy or the tools of a run changed; what it had not started is void.
    PolicyChanged {
        /// The run.
        run: RunId,
        /// The epoch from now on.
        epoch: Epoch,
        /// The mode from now on.
        mode: Mode,
    },
    /// A wish was numbered.
    Requested {
        /// The call.
        call: CallId,
        /// The tool as it was asked for.
        tool: ToolName,
        /// The input, and its hash.
        args: Args,
        /// The call on whose behalf it is made.
        parent: Option<CallId>,
    },
    /// A person is asked; for an `outcome` question, about a call that is settled as unknown.
    Asked {
        /// The question; `question.key.call` is the call.
        question: Question,
    },
    /// A person answered, and the answer counts.
    Answered {
        /// The question.
        question: QuestionId,
        /// The call.
        call: CallId,
        /// What was said.
        answer: Answer,
        /// It was the first yes of two: the question stays open.
        waits: bool,
        /// By whom.
        by: String,
    },
    /// A person answered, and the answer does not count.
    AnswerIgnored {
        /// The question as it was named.
        question: QuestionId,
        /// Why it does not count.
        why: Ignored,
        /// By whom.
        by: String,
    },
    /// The gate let it go on.
    Permitted {
        /// The call.
        call: CallId,
        /// The step that decided.
        step: Step,
        /// The rule that decided.
        rule: Option<String>,
        /// The epoch of the policy.
        epoch: Epoch,
        /// The declared risk.
        risk: Risk,
        /// It runs at once, as a protective action.
        protective: bool,
    },
    /// It stands in line.
    Queued {
        /// The call.
        call: CallId,
        /// How it stands towards others.
        class: Class,
    },
    /// It is about to be started. Carries all that repair needs when the process and its configuration are gone.
    Intent {
        /// The call.
        call: CallId,
        /// The operation.
        op: OpKey,
        /// The tool.
        tool: ToolName,
        /// The input.
        args: Arc<Value>,
        /// What is promised about it.
        contract: Arc<Contract>,
        /// What the ledger noted of it.
        noted: Arc<Noted>,
    },
    /// It was started.
    Started {
        /// The call.
        call: CallId,
    },
    /// It was asked to stop.
    StopAsked {
        /// The call.
        call: CallId,
    },
    /// What came of it.
    Outcome {
        /// The call.
        call: CallId,
        /// What is known.
        known: Known,
    },
    /// What it gave back, held parameter by parameter against what its tool promised.
    Examined {
        /// The call.
        call: CallId,
        /// What was found.
        validity: Validity,
    },
    /// It has ended. One for each [`Event::Requested`].
    Settled {
        /// The call.
        call: CallId,
        /// How.
        ending: Ending,
    },
    /// One of the eight anomalies is there or may be, or turned out not to be.
    Anomaly {
        /// The call by which it was learned.
        call: CallId,
        /// What was found.
        change: Change,
    },
    /// A tool reported on a call that had ended already, or was never started.
    LateReport {
        /// The call as the tool named it.
        call: CallId,
    },
    /// An unknown outcome was found out. Never a second [`Event::Settled`].
    Resolved {
        /// The call that was settled as unknown.
        call: CallId,
        /// The operation.
        op: OpKey,
        /// What was found.
        found: Found,
        /// How.
        by: FoundBy,
    },
}

impl Event {
    /// The call that it is about.
    #[must_use]
    pub fn call(&self) -> Option<CallId> {
        match self {
            Event::RunOpened { .. } | Event::PolicyChanged { .. } | Event::AnswerIgnored { .. } => None,
            Event::Asked { question } => Some(question.key.call),
            Event::Requested { call, .. }
            | Event::Answered { call, .. }
            | Event::Permitted { call, .. }
            | Event::Queued { call, .. }
            | Event::Intent { call, .. }
            | Event::Started { call }
            | Event::StopAsked { call }
            | Event::Outcome { call, .. }
            | Event::Examined { call, .. }
            | Event::Settled { call, .. }
            | Event::LateReport { call }
            | Event::Anomaly { call, .. }
            | Event::Resolved { call, .. } => Some(*call),
        }
    }

    /// The stable word for the kind of row.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Event::RunOpened { .. } => "run_opened",
            Event::PolicyChanged { .. } => "policy_changed",
            Event::Requested { .. } => "requested",
            Event::Asked { .. } => "asked",
            Event::Answered { .. } => "answered",
            Event::AnswerIgnored { .. } => "answer_ignored",
            Event::Permitted { .. } => "permitted",
            Event::Queued { .. } => "queued",
            Event::Intent { .. } => "intent",
            Event::Started { .. } => "started",
            Event::StopAsked { .. } => "stop_asked",
            Event::Outcome { .. } => "outcome",
            Event::Examined { .. } => "validity",
            Event::Settled { .. } => "settled",
            Event::LateReport { .. } => "late_report",
            Event::Anomaly { .. } => "anomaly",
            Event::Resolved { .. } => "resolved",
        }
    }
}

//! Reads what the log kept of each call, and says how the calls that a crash left open end.
//!
//! It never guesses "done": an intent without an outcome is unknown, and what the contract then allows is said beside
//! it. Settle first, resolve later. What did not come to an intent was not started. Nothing is undone.
//!
//! [`history`] mends what a provider's history lacks because of it, and [`legality`] says what each provider wants.

pub mod history;
pub mod legality;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::closure::Ending;
use crate::effect::ledger::Noted;
use crate::effect::outcome::{Known, OpKey, WayOut, way_out};
use crate::effect::report::Loss;
use crate::event::Event;
use crate::gate::docket::{Answer, QuestionKind};
use crate::id::{CallId, QuestionId, ToolName};
use crate::request::shown::shown;
use crate::request::why::Why;
use crate::surface::contract::Contract;
use crate::time::Wall;

/// What one row says about a call, as far as repair cares. It can be read back from the written form, which need not
/// keep outputs and messages whole.
#[derive(Debug, Clone, PartialEq)]
pub enum Trace {
    /// Requested.
    Requested {
        /// The tool.
        tool: ToolName,
        /// The input as a person sees it.
        shown: String,
    },
    /// A `permit` or `confirm` question was asked, or an outcome question opened.
    Asked {
        /// Its number.
        question: QuestionId,
        /// What it is about.
        kind: QuestionKind,
    },
    /// A person answered.
    Answered {
        /// What.
        answer: Answer,
        /// Who.
        by: String,
    },
    /// Permitted.
    Permitted {
        /// As a protective action, which may have run past a log that could not be written.
        protective: bool,
    },
    /// The intent was written.
    Intent {
        /// The operation.
        op: OpKey,
        /// The tool.
        tool: ToolName,
        /// The input as a person sees it.
        shown: String,
        /// The input, where the log has it whole.
        args: Option<Arc<Value>>,
        /// When it was written.
        at: Option<Wall>,
        /// What is promised about it.
        contract: Arc<Contract>,
        /// What the ledger noted of it.
        noted: Arc<Noted>,
    },
    /// What came of it, as far as the log keeps it.
    Outcome {
        /// How the call ends by it.
        ending: Ending,
    },
    /// Settled.
    Settled {
        /// As unknown, with an effect that somebody has to look at.
        unknown: bool,
    },
    /// Resolved.
    Resolved,
}

impl Trace {
    /// What an event says about a call.
    #[must_use]
    pub fn of(event: &Event) -> Option<(CallId, Trace)> {
        let trace = match event {
            Event::Requested { tool, args, .. } => Trace::Requested { tool: tool.clone(), shown: shown(args.value()) },
            Event::Asked { question } => Trace::Asked { question: question.id, kind: question.kind },
            Event::Answered { answer, by, .. } => Trace::Answered { answer: *answer, by: by.clone() },
            Event::Permitted { protective, .. } => Trace::Permitted { protective: *protective },
            Event::Intent { op, tool, args, contract, noted, .. } => {
                let (shown, args) = (shown(args), Some(Arc::clone(args)));
                let (contract, noted) = (Arc::clone(contract), Arc::clone(noted));
                Trace::Intent { op: *op, tool: tool.clone(), shown, args, at: None, contract, noted }
            }
            Event::Outcome { known, .. } => Trace::Outcome { ending: Ending::Ran(known.clone()) },
            Event::Settled { ending, .. } => Trace::Settled { unknown: ending.word() == "unknown" },
            Event::Resolved { .. } => Trace::Resolved,
            Event::RunOpened { .. }
            | Event::PolicyChanged { .. }
            | Event::AnswerIgnored { .. }
            | Event::Queued { .. }
            | Event::Started { .. }
            | Event::StopAsked { .. }
            | Event::Examined { .. }
            | Event::LateReport { .. }
            | Event::Anomaly { .. } => return None,
        };
        event.call().map(|call| (call, trace))
    }
}

/// What a provider's history gets in place of the result that never came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stub {
    /// It did not start; it may be asked again.
    NotStarted,
    /// A person or the policy said no.
    Denied,
    /// It may have taken effect: never an invitation to repeat it.
    OutcomeUnknown,
}

/// What is to be done about one call that the last life of the daemon left open.
#[derive(Debug, Clone, PartialEq)]
pub struct Mend {
    /// The call.
    pub call: CallId,
    /// The ending to be settled; `None` when it is settled already and only its question is open.
    pub ending: Option<Ending>,
    /// What a provider's history gets.
    pub stub: Option<Stub>,
    /// The effect that somebody has to look at, and the question that may be open about it already.
    pub unknown: Option<Unknown>,
}

/// An effect whose outcome nobody knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unknown {
    /// The operation.
    pub op: OpKey,
    /// The tool.
    pub tool: ToolName,
    /// The input as a person sees it.
    pub shown: String,
    /// What was lost.
    pub loss: Loss,
    /// What may be done.
    pub way_out: WayOut,
    /// The question that was opened about it before.
    pub question: Option<QuestionId>,
    /// The input, where the log has it whole: what a query or another attempt needs.
    pub args: Option<Arc<Value>>,
    /// When the intent was written; `None` for one of this life.
    pub since: Option<Wall>,
    /// What is promised about it.
    pub contract: Arc<Contract>,
    /// What the ledger noted of it.
    pub noted: Arc<Noted>,
}

#[derive(Default)]
struct Story {
    wish: Option<(ToolName, String)>,
    protective: bool,
    refused_by: Option<String>,
    intent: Option<Declared>,
    outcome: Option<Ending>,
    settled_unknown: bool,
    question: Option<QuestionId>,
}

struct Declared {
    op: OpKey,
    tool: ToolName,
    shown: String,
    args: Option<Arc<Value>>,
    at: Option<Wall>,
    contract: Arc<Contract>,
    noted: Arc<Noted>,
}

/// Reads the rows, oldest first, and gives what is to be done, in the order of the calls.
#[must_use]
pub fn mend(rows: impl IntoIterator<Item = (CallId, Trace)>) -> Vec<Mend> {
    let mut stories: BTreeMap<CallId, Story> = BTreeMap::new();
    for (call, trace) in rows {
        let story = stories.entry(call).or_default();
        match trace {
            Trace::Asked { question, kind: QuestionKind::Outcome } => story.question = Some(question),
            Trace::Answered { answer: Answer::Deny, by } => story.refused_by = Some(by),
            Trace::Asked { kind: QuestionKind::Permit | QuestionKind::Confirm, .. }
            | Trace::Answered { answer: Answer::Allow, .. }
            | Trace::Permitted { protective: false } => {}
            Trace::Requested { tool, shown } => story.wish = Some((tool, shown)),
            Trace::Permitted { protective: true } => story.protective = true,
            Trace::Intent { op, tool, shown, args, at, contract, noted } => {
                story.intent = Some(Declared { op, tool, shown, args, at, contract, noted });
            }
            Trace::Outcome { ending } => story.outcome = Some(ending),
            Trace::Settled { unknown: true } => story.settled_unknown = true,
            // Nothing is left to do: a long log must not fill the memory with what has ended well.
            Trace::Settled { unknown: false } | Trace::Resolved => {
                stories.remove(&call);
            }
        }
    }
    stories.into_iter().filter_map(|(call, story)| story.mend(call)).collect()
}

impl Story {
    fn mend(self, call: CallId) -> Option<Mend> {
        // The one named exception: a protective action may have run although the log could not take its intent.
        let unlogged = self.protective && self.intent.is_none();
        let lost = |way_out| Ending::Ran(Known::Unknown { loss: Loss::DaemonEnded, way_out });
        let ending = match (self.outcome, &self.intent, self.refused_by) {
            _ if self.settled_unknown => None,
            (Some(ending), ..) => Some(ending),
            (None, Some(intent), _) => Some(lost(way_out(&intent.contract))),
            (None, None, _) if unlogged => Some(lost(WayOut::Hold)),
            (None, None, Some(by)) => Some(Ending::NotStarted(Why::DeniedByPerson { by })),
            (None, None, None) => Some(Ending::NotStarted(Why::Interrupted)),
        };
        let (loss, is_unknown) = match &ending {
            Some(Ending::Ran(Known::Unknown { loss, .. })) => (loss.clone(), true),
            Some(_) => (Loss::DaemonEnded, false),
            None => (Loss::DaemonEnded, true),
        };
        let question = self.question;
        let unknown = match (self.intent, self.wish) {
            (Some(Declared { op, tool, shown, args, at, contract, noted }), _) if is_unknown && contract.changes() => {
                let way_out = way_out(&contract);
                Some(Unknown { op, tool, shown, loss, way_out, question, args, since: at, contract, noted })
            }
            (None, Some((tool, shown))) if is_unknown && unlogged => {
                let (op, way_out) = (OpKey(call), WayOut::Hold);
                let (contract, noted) = (Arc::new(Contract::weakest(tool.as_str())), Arc::default());
                Some(Unknown { op, tool, shown, loss, way_out, question, args: None, since: None, contract, noted })
            }
            (Some(_) | None, _) => None,
        };
        if ending.is_none() && unknown.is_none() {
            return None;
        }
        let stub = ending.as_ref().and_then(stub);
        Some(Mend { call, ending, stub, unknown })
    }
}

/// What a provider's history gets for an ending; `None` where there is a real result.
#[must_use]
pub fn stub(ending: &Ending) -> Option<Stub> {
    match ending {
        Ending::Ran(Known::Done(_) | Known::Failed(_)) => None,
        Ending::Ran(Known::Unknown { .. }) => Some(Stub::OutcomeUnknown),
        Ending::NotStarted(why) if why.is_denial() => Some(Stub::Denied),
        Ending::NotStarted(_) => Some(Stub::NotStarted),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;
    use crate::surface::contract::OutcomeBy;
    use std::time::Duration;

    fn intent(outcome: OutcomeBy, changes: bool) -> Trace {
        let contract = if changes { Contract { outcome, ..Contract::weakest("act") } } else { Contract::reads("look") };
        Trace::Intent {
            op: OpKey(sample::id(1, 0)),
            tool: ToolName::new("act").unwrap(),
            shown: "{}".to_owned(),
            args: None,
            at: None,
            contract: Arc::new(contract),
            noted: Arc::default(),
        }
    }

    fn requested() -> Trace {
        Trace::Requested { tool: ToolName::new("act").unwrap(), shown: "{}".to_owned() }
    }

    /// The rows of one call, and what is to be done: its ending, its stub, its way out, a question kept or to be asked.
    fn check(rows: &[Trace], want: &str) {
        let mends = mend(rows.iter().map(|row| (sample::id(1, 0), row.clone())));
        let told = mends.first().map_or("nothing".to_owned(), |mend| {
            let ending = mend
                .ending
                .as_ref()
                .map_or("settled".to_owned(), |ending| format!("{} {}", ending.word(), ending.code().unwrap_or("-")));
            let stub = mend.stub.map_or(String::new(), |stub| format!(", {stub:?}"));
            let unknown = mend.unknown.as_ref().map_or(String::new(), |unknown| {
                let question = unknown.question.map_or("ask".to_owned(), |question| question.to_string());
                format!(", {} {question}", unknown.way_out.word())
            });
            format!("{ending}{stub}{unknown}")
        });
        assert_eq!(told, want, "{rows:?}");
        assert!(mends.len() <= 1);
    }

    /// The table "After a crash" of passports.
    #[test]
    fn the_last_record_of_a_call_says_how_it_ends() {
        let asked = || Trace::Asked { question: QuestionId(4), kind: QuestionKind::Permit };
        let open = || Trace::Asked { question: QuestionId(9), kind: QuestionKind::Outcome };
        let answered = |answer| Trace::Answered { answer, by: "w".to_owned() };
        let waits = || Trace::Permitted { protective: false };
        let resend = OutcomeBy::ResendOriginal { retention: Duration::from_secs(60) };
        let failed = crate::effect::report::Failure { code: "refused", message: String::new() };
        check(&[], "nothing");
        check(&[requested()], "not_started interrupted, NotStarted");
        check(&[requested(), asked()], "not_started interrupted, NotStarted");
        check(&[requested(), asked(), answered(Answer::Allow), waits()], "not_started interrupted, NotStarted");
        check(&[requested(), asked(), answered(Answer::Deny)], "not_started denied_by_person, Denied");
        check(&[requested(), waits(), intent(OutcomeBy::None, false)], "unknown daemon_ended, OutcomeUnknown");
        check(&[requested(), waits(), intent(resend, true)], "unknown daemon_ended, OutcomeUnknown, resend ask");
        check(&[intent(OutcomeBy::Query, true)], "unknown daemon_ended, OutcomeUnknown, query_first ask");
        check(&[intent(OutcomeBy::Ack, true)], "unknown daemon_ended, OutcomeUnknown, query_first ask");
        check(&[intent(OutcomeBy::None, true)], "unknown daemon_ended, OutcomeUnknown, hold ask");
        let done = Trace::Outcome { ending: Ending::Ran(Known::Done(Arc::default())) };
        check(&[intent(OutcomeBy::None, true), done], "done -");
        let no = Trace::Outcome { ending: Ending::Ran(Known::Failed(failed)) };
        check(&[intent(OutcomeBy::None, true), no], "failed refused");
        let lost = Known::Unknown { loss: Loss::TimedOut, way_out: WayOut::Hold };
        let lost = || Trace::Outcome { ending: Ending::Ran(lost.clone()) };
        check(&[intent(OutcomeBy::None, true), lost()], "unknown timed_out, OutcomeUnknown, hold ask");
        let settled = |unknown| Trace::Settled { unknown };
        check(&[intent(OutcomeBy::None, true), lost(), settled(true)], "settled, hold ask");
        check(&[intent(OutcomeBy::None, true), lost(), settled(true), open()], "settled, hold q9");
        check(&[intent(OutcomeBy::None, true), lost(), settled(true), open(), Trace::Resolved], "nothing");
        check(&[requested(), waits(), intent(OutcomeBy::None, true), settled(false)], "nothing");
        // The named exception: it may have run although the log could not take its intent.
        let protective = Trace::Permitted { protective: true };
        check(&[requested(), protective], "unknown daemon_ended, OutcomeUnknown, hold ask");
    }
}

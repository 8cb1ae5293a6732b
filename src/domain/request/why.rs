//! Why a call did not start. Each reason has a stable code for scripts and a sentence for a person.

use crate::id::{CallId, ToolName};

/// The language of a sentence for a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lang {
    /// English.
    En,
    /// Simplified Chinese.
    Zh,
}

/// The step of the gate that decided (`policy check`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// The tool is visible, the input fits, a protective command runs at once.
    Precondition,
    /// In `plan`, only what is proven to read goes on.
    Plan,
    /// Protected paths, secrets, critical removals, dangerous risk: no mode waives the question.
    Immune,
    /// A rule of the policy.
    Rule,
    /// Outside the directories that the run may work in.
    Scope,
    /// What the mode says when nothing else did.
    Mode,
}

impl Step {
    /// All of them, in their order.
    pub const ALL: [Step; 6] = [Step::Precondition, Step::Plan, Step::Immune, Step::Rule, Step::Scope, Step::Mode];

    /// The word in evidence rows and in `policy check`.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Step::Precondition => "precondition",
            Step::Plan => "plan",
            Step::Immune => "immune",
            Step::Rule => "rule",
            Step::Scope => "scope",
            Step::Mode => "mode",
        }
    }
}

/// Why a call ended before its start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    /// The run sees no tool of this name.
    NoSuchTool {
        /// As it was asked for.
        tool: ToolName,
    },
    /// The tool is defined differently since somebody trusted it, and nobody approved that yet.
    DefinitionChanged {
        /// The tool.
        tool: ToolName,
    },
    /// The input does not fit the tool's schema.
    BadInput {
        /// Where in the input (a JSON pointer; empty for the whole).
        path: String,
        /// What the schema says, without the value that was given.
        expected: String,
    },
    /// There is no device of this name.
    NoSuchDevice {
        /// As it was asked for.
        device: String,
    },
    /// The device has no such action.
    NoSuchAction {
        /// The device.
        device: String,
        /// As it was asked for.
        action: String,
        /// What it can do.
        known: Vec<String>,
    },
    /// The gate said no.
    Denied {
        /// The step that decided.
        step: Step,
        /// The rule that decided, as it was written.
        rule: Option<String>,
        /// One sentence in English.
        reason: String,
    },
    /// It needed a person's word, and there is nobody who could be asked.
    NobodyToAsk {
        /// The step that asks.
        step: Step,
        /// The rule that asks.
        rule: Option<String>,
        /// One sentence in English.
        reason: String,
    },
    /// The gate said no, to one kind of wish too often: an agent's turn ends here, and a person is told.
    DeniedRepeatedly {
        /// How often.
        times: u32,
        /// The step that decided.
        step: Step,
        /// The rule that decided, as it was written.
        rule: Option<String>,
        /// One sentence in English.
        reason: String,
    },
    /// A person said no.
    DeniedByPerson {
        /// Who.
        by: String,
    },
    /// Nobody answered in time.
    AskTimedOut,
    /// The run's policy or tools changed after the call was judged and before it started.
    PolicyChanged,
    /// Too many calls are under way.
    Busy {
        /// How many are taken at most.
        limit: usize,
    },
    /// The inputs under way take too much memory.
    InputFlood {
        /// How many bytes are taken at most.
        limit: usize,
    },
    /// It was cancelled before its start.
    Cancelled,
    /// A protective action took the place that this call was waiting for.
    Superseded {
        /// The protective call.
        by: CallId,
    },
    /// The evidence log cannot be written, and what may change the world does not start without it.
    NoEvidence,
    /// Too many effects have an unknown outcome; somebody has to settle those first.
    UnresolvedLimit {
        /// How many may stay open.
        limit: usize,
    },
    /// The call on whose behalf it was wished for does not run (any more), or may not make wishes.
    ParentEnded {
        /// The call.
        parent: CallId,
    },
    /// The run is not open, or its batch number was used before.
    NoSuchRun,
    /// The daemon ended before the call started.
    Interrupted,
}

impl Why {
    /// The stable code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Why::NoSuchTool { .. } => "no_such_tool",
            Why::DefinitionChanged { .. } => "definition_changed",
            Why::BadInput { .. } => "bad_input",
            Why::NoSuchDevice { .. } => "no_such_device",
            Why::NoSuchAction { .. } => "no_such_action",
            Why::Denied { .. } => "denied",
            Why::NobodyToAsk { .. } => "nobody_to_ask",
            Why::DeniedRepeatedly { .. } => "denied_repeatedly",
            Why::DeniedByPerson { .. } => "denied_by_person",
            Why::AskTimedOut => "ask_timed_out",
            Why::PolicyChanged => "policy_changed",
            Why::Busy { .. } => "busy",
            Why::InputFlood { .. } => "input_flood",
            Why::Cancelled => "cancelled",
            Why::Superseded { .. } => "superseded",
            Why::NoEvidence => "no_evidence",
            Why::UnresolvedLimit { .. } => "unresolved_limit",
            Why::ParentEnded { .. } => "parent_ended",
            Why::NoSuchRun => "no_such_run",
            Why::Interrupted => "interrupted",
        }
    }

    /// The policy or a person refused it (exit code 77), as opposed to a call that could not be carried out.
    #[must_use]
    pub fn is_denial(&self) -> bool {
        match self {
            Why::Denied { .. }
            | Why::NobodyToAsk { .. }
            | Why::DeniedRepeatedly { .. }
            | Why::DeniedByPerson { .. }
            | Why::AskTimedOut
            | Why::DefinitionChanged { .. } => true,
            Why::NoSuchTool { .. }
            | Why::BadInput { .. }
            | Why::NoSuchDevice { .. }
            | Why::NoSuchAction { .. }
            | Why::PolicyChanged
            | Why::Busy { .. }
            | Why::InputFlood { .. }
            | Why::Cancelled
            | Why::Superseded { .. }
            | Why::NoEvidence
            | Why::UnresolvedLimit { .. }
            | Why::ParentEnded { .. }
            | Why::NoSuchRun
            | Why::Interrupted => false,
        }
    }

    /// One sentence for a person.
    #[must_use]
    pub fn message(&self, lang: Lang) -> String {
        match lang {
            Lang::En => self.english(),
            Lang::Zh => self.chinese(),
        }
    }

    fn english(&self) -> String {
        let by_rule = |rule: &Option<String>| rule.as_ref().map_or(String::new(), |rule| format!(" (rule {rule})"));
        match self {
            Why::NoSuchTool { tool } => format!("there is no tool {tool} for this run"),
            Why::DefinitionChanged { tool } => {
                format!(
                    "the definition of {tool} has changed, and nobody has approved the new one (mcp list, mcp approve)"
                )
            }
            Why::BadInput { path, expected } if path.is_empty() => format!("the input does not fit: {expected}"),
            Why::BadInput { path, expected } => format!("the input does not fit at {path}: {expected}"),
            Why::NoSuchDevice { device } => format!("there is no device {device:?}"),
            Why::NoSuchAction { device, action, known } => {
                format!("device {device} has no action {action:?}; it has {}", known.join(", "))
            }
            Why::Denied { step, rule, reason } => format!("denied at {}: {reason}{}", step.word(), by_rule(rule)),
            Why::NobodyToAsk { reason, rule, .. } => {
                format!("it needs a person's word, and nobody can be asked: {reason}{}", by_rule(rule))
            }
            Why::DeniedRepeatedly { times, step, rule, reason } => {
                let rule = by_rule(rule);
                format!("denied at {} for the {times}th time: {reason}{rule}; stop here and tell a person", step.word())
            }
            Why::DeniedByPerson { by } => format!("{by} said no"),
            Why::AskTimedOut => "nobody answered in time".to_owned(),
            Why::PolicyChanged => "the policy of this run changed before the call started".to_owned(),
            Why::Busy { limit } => format!("{limit} calls are under way; try again when some have ended"),
            Why::InputFlood { limit } => format!("the inputs under way take more than {limit} bytes; try again later"),
            Why::Cancelled => "cancelled before it started".to_owned(),
            Why::Superseded { by } => format!("the protective action {by} went first and voided this call"),
            Why::NoEvidence => "the evidence log cannot be written, so nothing was started".to_owned(),
            Why::UnresolvedLimit { limit } => {
                format!("{limit} effects have an unknown outcome; settle some of them first (ask list)")
            }
            Why::ParentEnded { parent } => format!("call {parent}, for which this was wished, does not run any more"),
            Why::NoSuchRun => "the run is not open".to_owned(),
            Why::Interrupted => "the daemon ended before the call started".to_owned(),
        }
    }

    /// What of the gate decided, where it was the gate: the step, the rule as it was written, and one sentence in English.
    #[must_use]
    pub fn decided_by(&self) -> Option<(Step, Option<&str>, &str)> {
        match self {
            Why::Denied { step, rule, reason }
            | Why::NobodyToAsk { step, rule, reason }
            | Why::DeniedRepeatedly { times: _, step, rule, reason } => Some((*step, rule.as_deref(), reason)),
            Why::NoSuchTool { .. }
            | Why::DefinitionChanged { .. }
            | Why::BadInput { .. }
            | Why::NoSuchDevice { .. }
            | Why::NoSuchAction { .. }
            | Why::DeniedByPerson { .. }
            | Why::AskTimedOut
            | Why::PolicyChanged
            | Why::Busy { .. }
            | Why::InputFlood { .. }
            | Why::Cancelled
            | Why::Superseded { .. }
            | Why::NoEvidence
            | Why::UnresolvedLimit { .. }
            | Why::ParentEnded { .. }
            | Why::NoSuchRun
            | Why::Interrupted => None,
        }
    }

    fn chinese(&self) -> String {
        let by_rule = |rule: &Option<String>| rule.as_ref().map_or(String::new(), |rule| format!("（规则 {rule}）"));
        match self {
            Why::NoSuchTool { tool } => format!("本次运行没有工具 {tool}"),
            Why::DefinitionChanged { tool } => {
                format!("工具 {tool} 的定义已改变，尚未有人批准（mcp list、mcp approve）")
            }
            Why::BadInput { path, expected } if path.is_empty() => format!("输入不符合要求：{expected}"),
            Why::BadInput { path, expected } => format!("输入在 {path} 处不符合要求：{expected}"),
            Why::NoSuchDevice { device } => format!("没有名为 {device:?} 的设备"),
            Why::NoSuchAction { device, action, known } => {
                format!("设备 {device} 没有动作 {action:?}；可用动作：{}", known.join("、"))
            }
            Why::Denied { step, rule, reason } => {
                format!("在 {} 步骤被拒绝：{reason}{}", step.word(), by_rule(rule))
            }
            Why::NobodyToAsk { reason, rule, .. } => format!("需要有人确认，但无人可问：{reason}{}", by_rule(rule)),
            Why::DeniedRepeatedly { times, step, rule, reason } => {
                let rule = by_rule(rule);
                format!("在 {} 步骤已第 {times} 次被拒绝：{reason}{rule}；请停止并告知人员", step.word())
            }
            Why::DeniedByPerson { by } => format!("{by} 已拒绝"),
            Why::AskTimedOut => "在规定时间内无人答复".to_owned(),
            Why::PolicyChanged => "调用开始前，本次运行的策略已改变".to_owned(),
            Why::Busy { limit } => format!("已有 {limit} 个调用在进行，请稍后再试"),
            Why::InputFlood { limit } => format!("进行中的输入超过 {limit} 字节，请稍后再试"),
            Why::Cancelled => "在开始前已取消".to_owned(),
            Why::Superseded { by } => format!("保护性动作 {by} 优先执行，本调用作废"),
            Why::NoEvidence => "证据日志无法写入，因此没有启动任何动作".to_owned(),
            Why::UnresolvedLimit { limit } => format!("已有 {limit} 个结果未知的动作，请先处理（ask list）"),
            Why::ParentEnded { parent } => format!("发起本调用的调用 {parent} 已不在运行"),
            Why::NoSuchRun => "该运行未打开".to_owned(),
            Why::Interrupted => "守护进程在调用开始前结束".to_owned(),
        }
    }
}

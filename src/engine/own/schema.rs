//! How the daemon's own tools are described, and what their calls are by nature.

use std::collections::BTreeMap;
use std::sync::Arc;

use interlock_domain::id::ToolName;
use interlock_domain::risk::Risk;
use interlock_domain::surface::contract::{Contract, Effect, Provenance, Visibility};
use interlock_domain::surface::device::DeviceTable;
use interlock_domain::surface::nature::{Class, Key, Keys};
use interlock_domain::surface::tool::{
    Annotations, BadTool, Declaration, Declared, Definition, FILE_PATIENCE, Kind, Text, Tool,
};
use serde_json::{Value, json};

/// Their names.
pub(super) const NAMES: [&str; 6] = ["alarm", "log", "monitor", "report", "system", "task"];

struct Sheet {
    name: &'static str,
    title: [&'static str; 2],
    about: [&'static str; 2],
    /// Each action: its name, and its risk.
    actions: &'static [(&'static str, Risk)],
    /// Members of the input besides `verb`.
    members: fn() -> Value,
    output: fn() -> Value,
}

fn no_members() -> Value {
    json!({})
}

const SHEETS: [Sheet; 5] = [
    Sheet {
        name: "alarm",
        title: ["Alarms", "报警"],
        about: [
            "Alarms of this box: tasks that are stuck or dead. list, history; ack, mute (take note), reset.",
            "本机报警（任务卡死或异常结束）：查看、历史、确认、消音、复位。",
        ],
        actions: &[
            ("list", Risk::Read),
            ("history", Risk::Read),
            ("ack", Risk::Operate),
            ("mute", Risk::Operate),
            ("reset", Risk::Operate),
        ],
        members: no_members,
        output: || {
            json!({ "type": "object", "properties": {
            "alarms": { "type": "array", "items": { "type": "object" } },
            "count": { "type": "integer" }, "standing": { "type": "integer" } } })
        },
    },
    Sheet {
        name: "log",
        title: ["Evidence log", "运行日志"],
        about: [
            "The evidence log: view the newest rows, or export them to a file on this box.",
            "运行日志（证据）：查看最新记录，或导出到本机文件。",
        ],
        actions: &[("view", Risk::Read), ("export", Risk::Operate)],
        members: no_members,
        output: || {
            json!({ "type": "object", "properties": {
            "rows": { "oneOf": [{ "type": "array", "items": { "type": "object" } }, { "type": "integer" }] },
            "file": { "type": "string" }, "first": { "type": "integer" } } })
        },
    },
    Sheet {
        name: "report",
        title: ["Shift report", "交接班记录"],
        about: [
            "What happened in the last eight hours: calls by their endings, alarms, tasks.",
            "最近八小时的交接班记录：操作结果统计、报警、任务。",
        ],
        actions: &[("shift", Risk::Read)],
        members: no_members,
        output: || {
            json!({ "type": "object", "required": ["from", "to", "calls", "alarms", "tasks"], "properties": {
            "from": { "type": "string" }, "to": { "type": "string" }, "calls": { "type": "object" },
            "calls_cut": { "type": "boolean" }, "alarms": { "type": "array" }, "tasks": { "type": "array" } } })
        },
    },
    Sheet {
        name: "system",
        title: ["This box", "本机"],
        about: [
            "Processor load, disk space, network and version of this box.",
            "本机处理器负载、磁盘空间、网络与软件版本。",
        ],
        actions: &[("cpu", Risk::Read), ("disk", Risk::Read), ("net", Risk::Read), ("version", Risk::Read)],
        members: no_members,
        output: || json!({ "type": "object" }),
    },
    Sheet {
        name: "task",
        title: ["Background tasks", "后台任务"],
        about: [
            "Background tasks: list, status; cancel, cancel_all, pause, resume. Without `task` the only running one is meant.",
            "后台任务：列表、状态、取消、全部取消、暂停、恢复。不指定任务时指唯一正在运行的任务。",
        ],
        actions: &[
            ("list", Risk::Read),
            ("status", Risk::Read),
            ("cancel", Risk::Operate),
            ("pause", Risk::Operate),
            ("resume", Risk::Operate),
            ("cancel_all", Risk::Dangerous),
        ],
        members: || json!({ "task": { "type": "string", "pattern": "^t[0-9]+$", "description": "The task, t1, t2, …" } }),
        output: || json!({ "type": "object", "required": ["tasks"], "properties": { "tasks": { "type": "array" } } }),
    },
];

pub(super) fn tools(devices: Arc<DeviceTable>) -> Result<Vec<Tool>, BadTool> {
    let mut tools = SHEETS.iter().map(declared).collect::<Result<Vec<_>, _>>()?;
    tools.push(super::monitor::tool(devices)?);
    Ok(tools)
}

pub(in crate::engine) fn text([en, zh]: [&str; 2]) -> Text {
    Text { en: en.to_owned(), zh: zh.to_owned() }
}

/// The name of a tool of ours: a constant with the right characters.
pub(in crate::engine) fn name(name: &str) -> Result<ToolName, BadTool> {
    ToolName::new(name).map_err(|error| BadTool::InputSchema { tool: fallback(), fact: error.to_string() })
}

#[expect(clippy::expect_used, reason = "a constant of letters")]
fn fallback() -> ToolName {
    ToolName::new("tool").expect("letters")
}

fn declared(sheet: &Sheet) -> Result<Tool, BadTool> {
    let actions: Vec<&str> = sheet.actions.iter().map(|(name, _)| *name).collect();
    let mut properties = (sheet.members)();
    properties["verb"] = json!({ "type": "string", "enum": actions });
    let reads = sheet.actions.iter().all(|(_, risk)| *risk == Risk::Read);
    let key = || Key::Named(sheet.name.to_owned());
    let declaration = |action: &str, risk: Risk| {
        let op_kind = format!("{}.{action}", sheet.name);
        let (contract, keys) = if risk == Risk::Read {
            (Contract::reads(&op_kind), Keys { reads: vec![key()], writes: Vec::new() })
        } else {
            // What changes is this daemon's own, it ends with an answer or with the daemon, and nobody else sees it.
            let contract = Contract {
                effect: Effect::Irreversible,
                visibility: Visibility::Private,
                provenance: Provenance::Adapter,
                ..Contract::weakest(&op_kind)
            };
            (contract, Keys { reads: Vec::new(), writes: vec![key()] })
        };
        Declaration {
            class: Class::Safe,
            keys,
            risk,
            protective: false,
            contract: Arc::new(contract),
            patience: FILE_PATIENCE,
        }
    };
    let verbs: BTreeMap<String, Declaration> =
        sheet.actions.iter().map(|(action, risk)| ((*action).to_owned(), declaration(action, *risk))).collect();
    Tool::new(Definition {
        name: name(sheet.name)?,
        title: text(sheet.title),
        description: text(sheet.about),
        input_schema: json!({
            "type": "object", "properties": properties, "required": ["verb"], "additionalProperties": false,
        }),
        output_schema: Some((sheet.output)()),
        annotations: Annotations {
            read_only: Some(reads),
            destructive: Some(false),
            idempotent: Some(reads),
            open_world: Some(false),
        },
        kind: Kind::Declared(Declared {
            mcp: None,
            verb_in: Some("verb".to_owned()),
            verbs,
            // The schema lets nothing else in; if it did, it would be the riskiest.
            otherwise: declaration("other", Risk::Dangerous),
        }),
    })
}

//! The tool `workflow`: begin, do, commit, abort, show, list, and run for a whole recipe at once.
//!
//! It changes nothing itself: what it has done is done by calls in its name, each of which passes the gate.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use interlock_domain::effect::Order;
use interlock_domain::effect::ledger::resources;
use interlock_domain::effect::profile::Profile;
use interlock_domain::effect::report::{Failure, Report};
use interlock_domain::effect::workflow::{MAIN, Stage, Wanted, Workflow};
use interlock_domain::risk::Risk;
use interlock_domain::surface::contract::Contract;
use interlock_domain::surface::nature::{Class, Keys};
use interlock_domain::surface::tool::{Annotations, BadTool, Declaration, Declared, Definition, Kind, Tool};
use serde_json::{Value, json};

use super::{Name, Refusal, Workflows};
use crate::engine::own::schema::{name, text};

/// Its name.
pub const NAME: &str = "workflow";

/// Steps of one recipe.
pub const STEPS_MAX: usize = 64;

/// How long a workflow's call may run: its calls may each wait for a person.
const PATIENCE: Duration = Duration::from_secs(1800);

/// Recipes of the configuration, by name: what `run` takes, as JSON.
pub type Recipes = BTreeMap<String, Value>;

/// The description.
///
/// # Errors
/// Never in practice: the schemas are constants.
pub fn tool() -> Result<Tool, BadTool> {
    let declaration = |verb: &str, class| Declaration {
        class,
        keys: Keys::default(),
        risk: Risk::Read,
        protective: false,
        contract: Arc::new(Contract::reads(&format!("{NAME}.{verb}"))),
        patience: PATIENCE,
    };
    let verbs = ["begin", "list", "show"].map(|verb| (verb.to_owned(), declaration(verb, Class::Safe)));
    let acting = ["do", "commit", "abort", "run"].map(|verb| (verb.to_owned(), declaration(verb, Class::Composite)));
    let words: Vec<&str> = Profile::ALL.iter().map(|profile| profile.word()).collect();
    let op = json!({ "type": "string", "minLength": 1, "maxLength": 64 });
    let step = json!({
        "type": "object",
        "properties": {
            "tool": { "type": "string" }, "input": { "type": "object" }, "op": op, "branch": op,
            "after": { "type": "array", "items": op },
        },
        "required": ["tool", "input"], "additionalProperties": false,
    });
    Tool::new(Definition {
        name: name(NAME)?,
        title: text(["Workflow", "工作流"]),
        description: text([
            "A group of actions with a guarantee. begin (profiles, required operations), do (one action in it), commit \
             (branches to keep) or abort, show, list; run does all steps of a recipe at once. unsettled is not a \
             success: something is unknown or left, and a person has to look.",
            "带保证的一组动作：begin 开始（保证配置、必需操作）、do 执行其中一步、commit 提交、abort 中止、show 查看、list 列表；\
             run 一次执行整个流程。unsettled 不是成功：有结果未知或残留，需要人来处理。",
        ]),
        input_schema: json!({
            "type": "object",
            "properties": {
                "verb": { "enum": ["begin", "do", "commit", "abort", "show", "list", "run"] },
                "workflow": { "type": "string", "pattern": "^w[0-9]+$" },
                "profiles": { "type": "array", "items": { "enum": words } },
                "required": { "type": "array", "items": op, "maxItems": STEPS_MAX },
                "tool": { "type": "string" }, "input": { "type": "object" }, "op": op, "branch": op,
                "after": { "type": "array", "items": op },
                "branches": { "type": "array", "items": op },
                "recipe": { "type": "string" },
                "steps": { "type": "array", "items": step, "maxItems": STEPS_MAX },
            },
            "required": ["verb"],
            "additionalProperties": false,
        }),
        output_schema: Some(json!({ "type": "object" })),
        annotations: Annotations {
            read_only: Some(false),
            destructive: Some(true),
            idempotent: Some(false),
            open_world: Some(false),
        },
        kind: Kind::Declared(Declared {
            mcp: None,
            verb_in: Some("verb".to_owned()),
            verbs: verbs.into_iter().chain(acting).collect(),
            otherwise: declaration("other", Class::Composite),
        }),
    })
}

/// Runs an order for it.
pub async fn run(order: &Order, workflows: &Workflows, recipes: &Recipes) -> Report {
    let input = order.args();
    let name = Name { call: order.call(), run: order.call().run };
    let ran = match input["verb"].as_str().unwrap_or_default() {
        "begin" => begin(input, workflows).await,
        "do" => act(input, workflows, name).await,
        "commit" => match id(input) {
            Ok(id) => workflows.commit(id, &texts(&input["branches"]), name).await,
            Err(refusal) => Err(refusal),
        },
        "abort" => match id(input) {
            Ok(id) => workflows.abort(id, name).await,
            Err(refusal) => Err(refusal),
        },
        "show" => match id(input) {
            Ok(id) => workflows.show(id).await,
            Err(refusal) => Err(refusal),
        },
        "list" => Ok(json!({ "workflows": workflows.list() })),
        "run" => recipe(input, workflows, recipes, name).await,
        other => Err(bad(format!("workflow has no verb {other:?}"))),
    };
    match ran {
        Ok(output) => Report::Done(output),
        Err(Refusal { code, text }) => Report::Failed(Failure { code, message: text }),
    }
}

fn bad(text: impl Into<String>) -> Refusal {
    Refusal { code: "bad_input", text: text.into() }
}

fn id(input: &Value) -> Result<u64, Refusal> {
    number(input["workflow"].as_str().ok_or_else(|| bad("which workflow? (w1, w2, …)"))?)
}

/// The number in a workflow's name, `w1`, `w2`, …
///
/// # Errors
/// When it is no such name.
pub fn number(written: &str) -> Result<u64, Refusal> {
    written.strip_prefix('w').and_then(|id| id.parse().ok()).ok_or_else(|| bad(format!("{written:?} is no workflow")))
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

async fn begin(input: &Value, workflows: &Workflows) -> Result<Value, Refusal> {
    let mut profiles = std::collections::BTreeSet::new();
    for word in texts(&input["profiles"]) {
        profiles.insert(Profile::from_word(&word).ok_or_else(|| bad(format!("there is no profile {word:?}")))?);
    }
    let workflow = Workflow::begin(profiles, texts(&input["required"])).map_err(|error| bad(error.to_string()))?;
    let id = workflows.begin(workflow).await?;
    Ok(json!({ "workflow": format!("w{id}"), "stage": Stage::Open.word() }))
}

/// One step: what its call would be, and its operation; without a name, the operation is what the tool calls it and
/// what it is about.
fn wanted(step: &Value, workflows: &Workflows) -> Result<Wanted, Refusal> {
    let tool = step["tool"].as_str().ok_or_else(|| bad("a step names its tool"))?;
    let input = step.get("input").cloned().unwrap_or_else(|| json!({}));
    let nature = workflows.nature(tool, &input)?;
    let resources = resources(&nature, &input);
    let op = match step["op"].as_str() {
        Some(op) => op.to_owned(),
        None => std::iter::once(nature.contract.op_kind.clone())
            .chain(resources.first().cloned())
            .collect::<Vec<_>>()
            .join("#"),
    };
    Ok(Wanted {
        op: op.chars().take(60).collect(),
        branch: step["branch"].as_str().unwrap_or(MAIN).to_owned(),
        tool: tool.to_owned(),
        input: Arc::new(input),
        contract: nature.contract,
        resources,
        after: texts(&step["after"]),
    })
}

async fn act(input: &Value, workflows: &Workflows, name: Name) -> Result<Value, Refusal> {
    let id = id(input)?;
    let wanted = wanted(input, workflows)?;
    let op = wanted.op.clone();
    let output = workflows.attempt(id, wanted, name).await?;
    let state = if output.is_some() { "done" } else { "held" };
    Ok(json!({ "workflow": format!("w{id}"), "op": op, "state": state, "output": output }))
}

/// All steps in order, each of them required; then commit. One that fails has the rest given up and undone; one that
/// nobody knows about is waited for, and never called a success.
async fn recipe(input: &Value, workflows: &Workflows, recipes: &Recipes, name: Name) -> Result<Value, Refusal> {
    let recipe = match input["recipe"].as_str() {
        None => input,
        Some(named) => recipes.get(named).ok_or_else(|| {
            let known: Vec<&str> = recipes.keys().map(String::as_str).collect();
            bad(format!("there is no recipe {named:?}; there are {}", known.join(", ")))
        })?,
    };
    let steps = recipe["steps"].as_array().map(Vec::as_slice).unwrap_or_default();
    // All contracts first: a recipe that cannot be guaranteed does not begin.
    let mut all = Vec::with_capacity(steps.len());
    for step in steps {
        all.push(wanted(step, workflows)?);
    }
    if all.is_empty() {
        return Err(bad("a recipe has steps"));
    }
    let required: Vec<&String> = all.iter().filter(|step| step.contract.changes()).map(|step| &step.op).collect();
    let begun = begin(&json!({ "profiles": recipe["profiles"], "required": required }), workflows).await?;
    let id = id(&begun)?;
    for step in all {
        let op = step.op.clone();
        let Err(refusal) = workflows.attempt(id, step, name).await else { continue };
        if refusal.code == "unknown" {
            workflows.found_out(id).await?;
            if workflows.is_done(id, &op)? {
                continue;
            }
        }
        return match workflows.abort(id, name).await {
            Ok(_) => Err(Refusal { code: "aborted", text: format!("w{id} was given up and undone: {}", refusal.text) }),
            Err(left) => Err(Refusal { code: left.code, text: format!("{}; {}", refusal.text, left.text) }),
        };
    }
    workflows.found_out(id).await?;
    workflows.commit(id, &[], name).await
}

//! What the loop answers by itself: instructions of a skill, and the description of a tool that was only named.
//!
//! Nothing here acts, and nothing here allows: both change what the model reads, and which tools it is offered. A call of
//! a tool that is not offered goes on as every call does, to the gate.

use std::collections::BTreeSet;
use std::sync::Arc;

use interlock_domain::agent::skill::Skill;
use interlock_domain::block::{Provider, ToolResult, ToolUse};
use interlock_domain::command::instead::{Instead, Of};
use interlock_domain::surface::Surface;
use interlock_domain::surface::tool::Kind;
use serde_json::{Value, json};

use super::Settings;
use crate::provider::request::Tool;

/// The tool that gives the instructions of a skill.
const SKILL: &str = "skill";
/// The tool that describes another one.
const DESCRIBE: &str = "describe_tool";

/// From so many tools on, those of other servers are named only: a description of each would fill a small window.
const NAMED_ONLY_FROM: usize = 40;

/// The first so many characters of a description that stand beside a name.
const BRIEF_CHARS_MAX: usize = 120;

/// What a run has asked for so far.
#[derive(Debug, Default)]
pub(super) struct Local {
    /// Tools that were described, by the name that the model knows.
    described: BTreeSet<String>,
    /// The tools that the skill in use leaves, `None` for all.
    visible: Option<BTreeSet<String>>,
}

impl Local {
    /// The tools as the model is told of them now.
    pub(super) fn offered(&self, mut tools: Vec<Tool>, surface: &Surface, settings: &Settings) -> Vec<Tool> {
        if let Some(visible) = &self.visible {
            tools.retain(|tool| visible.contains(&tool.name));
        }
        // Gemini takes no object without properties as the whole of a tool's input.
        let by_name = tools.len() >= NAMED_ONLY_FROM && settings.dialect.provider != Provider::Gemini;
        let of_a_server = |name: &str| {
            surface.tools().any(|tool| {
                let brought = matches!(tool.kind(), Kind::Declared(declared) if declared.mcp.is_some());
                brought && tool.name().as_str() == name
            })
        };
        let mut any = false;
        if by_name {
            for tool in tools.iter_mut().filter(|tool| !self.described.contains(&tool.name)) {
                if of_a_server(&tool.name) {
                    any = true;
                    tool.schema = json!({ "type": "object" });
                    tool.description = tool.description.chars().take(BRIEF_CHARS_MAX).collect();
                }
            }
        }
        if any {
            tools.push(Tool {
                name: DESCRIBE.to_owned(),
                description: "Describes a tool that is only named here, with the schema of its input. Ask before you \
                              call such a tool."
                    .to_owned(),
                schema: named("the tool"),
            });
        }
        if !settings.skills.is_empty() {
            tools.push(Tool {
                name: SKILL.to_owned(),
                description: "Gives the instructions of a skill; with the name \"none\" all tools are offered again."
                    .to_owned(),
                schema: named("the skill"),
            });
        }
        tools
    }

    /// The answer to a call that is for the loop itself; `None` for every other.
    pub(super) fn answer(&mut self, call: &ToolUse, all: &[Tool], skills: &[Skill]) -> Option<ToolResult> {
        let name = call.input.get("name").and_then(Value::as_str).unwrap_or_default();
        match call.name.as_str() {
            SKILL if !skills.is_empty() => Some(self.skill(call, name, skills)),
            DESCRIBE => {
                let Some(tool) = all.iter().find(|tool| tool.name == name) else {
                    // Where all are described there is no such tool as this one either.
                    let text = format!("there is no tool {name:?}");
                    return (all.len() >= NAMED_ONLY_FROM).then(|| call.answer(text, true));
                };
                self.described.insert(tool.name.clone());
                let text = format!("{}\ninput: {}", tool.description, tool.schema);
                Some(call.answer(text, false))
            }
            _ => None,
        }
    }

    fn skill(&mut self, call: &ToolUse, name: &str, skills: &[Skill]) -> ToolResult {
        if name == "none" {
            self.visible = None;
            return call.answer("all tools are offered", false);
        }
        match skills.iter().find(|skill| skill.name == name) {
            None => {
                let names: Vec<&str> = skills.iter().map(|skill| skill.name.as_str()).collect();
                call.answer(format!("there is no skill {name:?}; there are {}", names.join(", ")), true)
            }
            Some(skill) => {
                self.visible.clone_from(&skill.tools);
                call.answer(skill.body.clone(), false)
            }
        }
    }
}

fn named(what: &str) -> Value {
    json!({
        "type": "object",
        "properties": { "name": { "type": "string", "description": what } },
        "required": ["name"],
    })
}

/// The settings with the skills that are told otherwise. A repair counts only while the file says what it was made for,
/// and keeps the tools that the skill hides: it may not widen what a model is offered.
pub(super) fn with_told(settings: Arc<Settings>, told: &[Instead]) -> Arc<Settings> {
    let retold = |skill: &Skill| {
        let of_skill = told.iter().filter(|one| one.of == Of::Skill);
        of_skill.into_iter().find_map(|one| {
            let fits = Skill::parse(&one.instead_of, skill.source).is_ok_and(|read| read == *skill);
            let new = Skill::parse(&one.text, skill.source).ok().filter(|_| fits)?;
            Some(Skill { tools: skill.tools.clone(), ..new })
        })
    };
    let skills: Vec<Option<Skill>> = settings.skills.iter().map(retold).collect();
    if skills.iter().all(Option::is_none) {
        return settings;
    }
    let mut changed = Settings::clone(&settings);
    for (skill, new) in changed.skills.iter_mut().zip(skills) {
        if let Some(new) = new {
            *skill = new;
        }
    }
    Arc::new(changed)
}

/// The line that a prompt has for each skill.
pub(super) fn listed(skills: &[Skill]) -> Option<String> {
    let lines: Vec<String> = skills.iter().map(|skill| format!("- {}: {}", skill.name, skill.description)).collect();
    (!lines.is_empty())
        .then(|| format!("Skills (the tool {SKILL} gives the instructions of one):\n{}", lines.join("\n")))
}

#[cfg(test)]
mod tests {
    use interlock_domain::agent::skill::Source;
    use interlock_domain::block::{CallKind, Ids, Kept};

    use super::*;

    fn skill(name: &str, tools: Option<&[&str]>) -> Skill {
        Skill {
            name: name.to_owned(),
            description: "d".to_owned(),
            body: format!("do {name}"),
            tools: tools.map(|tools| tools.iter().map(|tool| (*tool).to_owned()).collect()),
            source: Source::User,
        }
    }

    fn call(tool: &str, name: &str) -> ToolUse {
        ToolUse {
            id: Ids::new().take(""),
            provider_id: String::new(),
            name: tool.to_owned(),
            input: std::sync::Arc::new(json!({ "name": name })),
            kind: CallKind::Function,
            kept: Kept::default(),
        }
    }

    #[test]
    fn a_skill_gives_its_words_and_hides_tools_until_another_one_is_used() {
        let skills = [skill("pumps", Some(&["device"])), skill("all", None)];
        let mut local = Local::default();
        let said = |local: &mut Local, name: &str| {
            let answer = local.answer(&call(SKILL, name), &[], &skills).unwrap();
            (answer.text, answer.is_error)
        };
        assert_eq!(said(&mut local, "pumps"), ("do pumps".to_owned(), false));
        assert_eq!(local.visible, Some(["device".to_owned()].into()));
        assert_eq!(
            said(&mut local, "nothing"),
            ("there is no skill \"nothing\"; there are pumps, all".to_owned(), true)
        );
        assert_eq!(said(&mut local, "none"), ("all tools are offered".to_owned(), false));
        assert_eq!(local.visible, None);
        // Any other call is for the gate.
        assert!(local.answer(&call("shell", "pumps"), &[], &skills).is_none());
        assert!(local.answer(&call(SKILL, "pumps"), &[], &[]).is_none());
    }

    #[test]
    fn a_tool_that_was_only_named_is_described_when_it_is_asked_for() {
        let tool =
            Tool { name: "mcp__a__b".to_owned(), description: "long".to_owned(), schema: json!({"type": "object"}) };
        let mut local = Local::default();
        let answer = local.answer(&call(DESCRIBE, "mcp__a__b"), std::slice::from_ref(&tool), &[]).unwrap();
        assert_eq!(answer.text, "long\ninput: {\"type\":\"object\"}");
        assert!(local.described.contains("mcp__a__b"));
        assert!(local.answer(&call(DESCRIBE, "nothing"), &[tool], &[]).is_none());
    }
}

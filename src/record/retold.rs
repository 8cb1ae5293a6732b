//! The written form of repairs: of tool descriptions and skills, as proposals and as part of a learned set.

use std::collections::BTreeSet;

use interlock_domain::command::instead::{Instead, Of};
use interlock_domain::learn::describe::{Described, Seen};
use interlock_domain::learn::retold::{Repair, Subject};
use interlock_domain::learn::skill::Skill;
use serde_json::{Value, json};

use super::learned::NotLearned;

fn needed(value: &Value, key: &str) -> Result<String, NotLearned> {
    let text = value[key].as_str().map(str::to_owned);
    text.ok_or_else(|| NotLearned(format!("{key} is missing")))
}

fn names(value: &Value, key: &str) -> BTreeSet<String> {
    value[key].as_array().into_iter().flatten().filter_map(|name| name.as_str().map(str::to_owned)).collect()
}

/// A repair in force.
#[must_use]
pub fn told(told: &Instead) -> Value {
    json!({ "of": told.of.word(), "name": told.name, "instead_of": told.instead_of, "text": told.text })
}

/// Reads what [`told`] wrote.
///
/// # Errors
/// What is missing or wrong.
pub fn read_told(value: &Value) -> Result<Instead, NotLearned> {
    Ok(Instead {
        of: of(value)?,
        name: needed(value, "name")?,
        instead_of: needed(value, "instead_of")?,
        text: needed(value, "text")?,
    })
}

fn of(value: &Value) -> Result<Of, NotLearned> {
    match value["of"].as_str() {
        Some("tool") => Ok(Of::Tool),
        Some("skill") => Ok(Of::Skill),
        Some(_) | None => Err(NotLearned("of is neither \"tool\" nor \"skill\"".to_owned())),
    }
}

/// A repair as a proposal, with what it was judged on.
#[must_use]
pub fn repair(repair: &Repair) -> Value {
    match &repair.subject {
        Subject::Tool(tool) => {
            let seen: Vec<Value> = tool
                .seen
                .iter()
                .map(|seen| json!({ "given": seen.given, "complaint": seen.complaint, "changed": seen.changed }))
                .collect();
            json!({
                "channel": "D", "of": "tool", "name": tool.name, "description": tool.description,
                "inputSchema": tool.schema, "seen": seen, "text": repair.text,
                "annotations": { "readOnlyHint": tool.read_only, "destructiveHint": tool.destructive },
            })
        }
        Subject::Skill(skill) => json!({
            "channel": "D", "of": "skill", "name": skill.folder, "skill": skill.text, "files": skill.files,
            "tools": skill.tools, "text": repair.text,
        }),
    }
}

/// Reads what [`repair`] wrote.
///
/// # Errors
/// What is missing or wrong.
pub fn read_repair(value: &Value) -> Result<Repair, NotLearned> {
    let subject = match of(value)? {
        Of::Tool => Subject::Tool(read_tool(value)?),
        Of::Skill => Subject::Skill(Skill {
            folder: needed(value, "name")?,
            text: needed(value, "skill")?,
            files: names(value, "files"),
            tools: names(value, "tools"),
        }),
    };
    Ok(Repair { subject, text: needed(value, "text")? })
}

/// A tool as `tools/list` has it, with what was seen of it where somebody says so.
///
/// # Errors
/// When it has no name.
pub fn read_tool(value: &Value) -> Result<Described, NotLearned> {
    let name = value["name"].as_str().ok_or_else(|| NotLearned("a tool has a name".to_owned()))?;
    let hint = |key: &str| value["annotations"][key].as_bool();
    let seen = value["seen"].as_array().into_iter().flatten().map(|one| Seen {
        given: names(one, "given").into_iter().collect(),
        complaint: one["complaint"].as_str().map(str::to_owned),
        changed: one["changed"].as_bool().unwrap_or(false),
    });
    Ok(Described {
        name: name.to_owned(),
        description: value["description"].as_str().unwrap_or_default().to_owned(),
        schema: value.get("inputSchema").cloned().unwrap_or(Value::Null),
        read_only: hint("readOnlyHint"),
        destructive: hint("destructiveHint"),
        seen: seen.collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(subject: Subject) {
        let one = Repair { subject, text: "Prints it.".to_owned() };
        assert_eq!(read_repair(&repair(&one)), Ok(one));
    }

    #[test]
    fn what_is_written_is_read_back() {
        check(Subject::Tool(Described {
            name: "mes__report".to_owned(),
            description: "Prints".to_owned(),
            schema: json!({"type": "object"}),
            read_only: Some(true),
            destructive: None,
            seen: vec![Seen { given: vec!["a".to_owned()], complaint: Some("no".to_owned()), changed: false }],
        }));
        check(Subject::Skill(Skill {
            folder: "pump".to_owned(),
            text: "---\n".to_owned(),
            files: BTreeSet::from(["SKILL.md".to_owned()]),
            tools: BTreeSet::new(),
        }));
        let one = Instead { of: Of::Skill, name: "pump".to_owned(), instead_of: "a".to_owned(), text: "b".to_owned() };
        assert_eq!(read_told(&told(&one)), Ok(one));
    }

    #[test]
    fn what_is_missing_is_named() {
        let refused = |value: Value| read_repair(&value).err().map(|error| error.0).unwrap_or_default();
        assert_eq!(refused(json!({})), "of is neither \"tool\" nor \"skill\"");
        assert_eq!(refused(json!({"of": "tool"})), "a tool has a name");
        assert_eq!(refused(json!({"of": "tool", "name": "a"})), "text is missing");
        assert_eq!(refused(json!({"of": "skill", "name": "a"})), "skill is missing");
    }
}

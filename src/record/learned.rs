//! The written form of what was learned and of what is proposed: `state.db`, the socket and `learn propose` share it.
//!
//! Lines of proposals are shaped like the corpus's `learning.jsonl`. What is read back is checked like anything from
//! outside: a set that does not read is refused whole, because half a set is one that nobody approved.

use std::collections::BTreeMap;
use std::sync::Arc;

use interlock_domain::command::bind;
use interlock_domain::command::definition::{Definition, Listed, Slot, SlotKind};
use interlock_domain::command::template::Template;
use interlock_domain::command::understanding::Learned;
use interlock_domain::learn::gate::Proposal;
use interlock_domain::risk::Risk;
use serde_json::{Map, Value, json};
use thiserror::Error;

use super::retold;

/// The layout of a written set.
const VERSION: u64 = 1;

/// Why something is not what it should be, for a person.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct NotLearned(pub String);

fn wrong<T>(why: impl Into<String>) -> Result<T, NotLearned> {
    Err(NotLearned(why.into()))
}

/// A learned set.
#[must_use]
pub fn set(learned: &Learned) -> Value {
    let pairs = |pairs: &[(String, String)]| -> Value { pairs.iter().map(|(a, b)| json!([a, b])).collect() };
    let heard: Vec<Value> = learned.heard.iter().map(|(a, b)| json!([a.to_string(), b.to_string()])).collect();
    let commands: Vec<Value> = learned.commands.iter().map(|command| Value::Object(definition(command))).collect();
    json!({
        "version": VERSION,
        "heard": heard,
        "phrases": pairs(&learned.phrases),
        "slang": pairs(&learned.slang),
        "commands": commands,
        "examples": pairs(&learned.examples),
        "told": learned.told.iter().map(retold::told).collect::<Vec<_>>(),
    })
}

/// Reads what [`set`] wrote.
///
/// # Errors
/// The first thing that is not as it was written.
pub fn read_set(text: &str) -> Result<Learned, NotLearned> {
    let value: Value = serde_json::from_str(text).map_err(|error| NotLearned(format!("not JSON: {error}")))?;
    if value["version"].as_u64() != Some(VERSION) {
        return wrong(format!("a learned set of version {}; this build reads {VERSION}", value["version"]));
    }
    let list = |key: &str| match value[key].as_array() {
        Some(items) => Ok(items.as_slice()),
        None => wrong(format!("{key} is not a list")),
    };
    let pairs = |key: &str| -> Result<Vec<(String, String)>, NotLearned> {
        list(key)?
            .iter()
            .map(|pair| match (pair[0].as_str(), pair[1].as_str()) {
                (Some(a), Some(b)) => Ok((a.to_owned(), b.to_owned())),
                _ => wrong(format!("{key} holds {pair}, which is no pair of texts")),
            })
            .collect()
    };
    let one = |text: &str| {
        let mut chars = text.chars();
        match (chars.next(), chars.next()) {
            (Some(only), None) => Ok(only),
            _ => wrong(format!("heard holds {text:?}, which is not one character")),
        }
    };
    let heard = pairs("heard")?;
    Ok(Learned {
        heard: heard.iter().map(|(a, b)| Ok((one(a)?, one(b)?))).collect::<Result<_, NotLearned>>()?,
        phrases: pairs("phrases")?,
        slang: pairs("slang")?,
        commands: list("commands")?
            .iter()
            .map(|command| match command.as_object() {
                Some(fields) => read_definition(fields).map(Arc::new),
                None => wrong("a command is not an object"),
            })
            .collect::<Result<_, _>>()?,
        examples: pairs("examples")?,
        // Sets that were written before there were any have none.
        told: value["told"].as_array().into_iter().flatten().map(retold::read_told).collect::<Result<_, _>>()?,
    })
}

/// A proposal as a line of `learning.jsonl`, without its id.
#[must_use]
pub fn proposal(proposal: &Proposal) -> Value {
    match proposal {
        Proposal::Correction { heard, command } => json!({ "channel": "A", "wrong": heard, "command": command }),
        Proposal::Slang { phrase, command } => json!({ "channel": "B", "phrase": phrase, "command": command }),
        Proposal::New(new) => {
            let mut fields = definition(new);
            fields.insert("channel".to_owned(), "C".into());
            Value::Object(fields)
        }
        Proposal::Repair(repair) => retold::repair(repair),
    }
}

/// Its channel, what it says, and the command that is meant.
#[must_use]
pub fn parts(proposal: &Proposal) -> (&'static str, &str, &str) {
    match proposal {
        Proposal::Correction { heard, command } => ("A", heard, command),
        Proposal::Slang { phrase, command } => ("B", phrase, command),
        Proposal::New(new) => ("C", &new.text, &new.id),
        Proposal::Repair(repair) => ("D", &repair.text, repair.names().1),
    }
}

/// A line shaped like the corpus's `learning.jsonl`: its id and what it proposes.
///
/// # Errors
/// What is missing or wrong.
pub fn read_line(line: &str) -> Result<(Value, Proposal), NotLearned> {
    let value: Value = serde_json::from_str(line).map_err(|error| NotLearned(format!("not JSON: {error}")))?;
    let proposal = read_proposal(&value)?;
    Ok((value.get("id").cloned().unwrap_or(Value::Null), proposal))
}

/// The same from a value.
///
/// # Errors
/// What is missing or wrong.
pub fn read_proposal(value: &Value) -> Result<Proposal, NotLearned> {
    let Value::Object(fields) = value else { return wrong("not an object") };
    let text = |key: &str| fields.get(key).and_then(Value::as_str);
    let needed = |key: &str| match text(key) {
        Some(text) => Ok(text.to_owned()),
        None => wrong(format!("{key} is missing")),
    };
    let said = text("wrong").or(text("phrase")).or(text("text")).map(str::to_owned);
    match text("channel") {
        Some("A") => match said {
            Some(heard) => Ok(Proposal::Correction { heard, command: needed("command")? }),
            None => wrong("wrong is missing"),
        },
        Some("B") => match said {
            Some(phrase) => Ok(Proposal::Slang { phrase, command: needed("command")? }),
            None => wrong("phrase is missing"),
        },
        Some("C") => Ok(Proposal::New(Arc::new(read_definition(fields)?))),
        Some("D") => Ok(Proposal::Repair(Box::new(retold::read_repair(value)?))),
        Some(other) => wrong(format!("the channel {other:?} is not known: A, B, C or D")),
        None => wrong("channel is missing"),
    }
}

/// A command as an object.
fn definition(command: &Definition) -> Map<String, Value> {
    let slots: Vec<Value> = command
        .slots
        .iter()
        .map(|slot| {
            let mut one = json!({ "name": slot.name, "type": slot.kind.name(), "required": slot.required });
            if !slot.values.is_empty() {
                one["values"] = slot.values.iter().map(|listed| json!([listed.said, listed.value])).collect();
            }
            one
        })
        .collect();
    let patterns: Vec<&str> = command.patterns.iter().map(|pattern| pattern.source.as_str()).collect();
    let mut fields = Map::from_iter([
        ("command".to_owned(), command.id.as_str().into()),
        ("text".to_owned(), command.text.as_str().into()),
        ("aliases".to_owned(), command.aliases.clone().into()),
        ("patterns".to_owned(), patterns.into()),
        ("slots".to_owned(), slots.into()),
        ("category".to_owned(), command.category.as_str().into()),
        ("risk".to_owned(), command.risk.word().into()),
    ]);
    if !command.bind.is_empty() {
        fields.insert("bind".to_owned(), bind::written(&command.bind));
    }
    fields
}

fn read_definition(fields: &Map<String, Value>) -> Result<Definition, NotLearned> {
    let text = |key: &str| fields.get(key).and_then(Value::as_str);
    let list = |key: &str| -> Vec<String> {
        let items = fields.get(key).and_then(Value::as_array).into_iter().flatten();
        items.filter_map(|item| item.as_str().map(str::to_owned)).collect()
    };
    let Some(id) = text("command") else { return wrong("command is missing") };
    let patterns = list("patterns")
        .iter()
        .map(|pattern| Template::parse(pattern).map_err(|error| NotLearned(format!("{pattern}: {error}"))))
        .collect::<Result<Vec<_>, _>>()?;
    let mut slots: BTreeMap<String, Slot> = BTreeMap::new();
    for slot in fields.get("slots").and_then(Value::as_array).into_iter().flatten() {
        let (Some(name), Some(kind)) = (slot["name"].as_str(), slot["type"].as_str()) else {
            return wrong(format!("{slot} is no slot: it has a name and a type"));
        };
        let Some(kind) = SlotKind::parse(kind) else {
            return wrong(format!("the slot type {kind:?} is not known: {}", SlotKind::NAMES));
        };
        let values = slot["values"].as_array().into_iter().flatten();
        let values = values
            .map(|pair| match (pair[0].as_str(), pair[1].as_str()) {
                (Some(said), Some(value)) => Ok(Listed { said: said.to_owned(), value: value.to_owned() }),
                _ => wrong(format!("values of {name} hold {pair}, which is no pair of texts")),
            })
            .collect::<Result<Vec<_>, _>>()?;
        let required = slot["required"].as_bool().unwrap_or(false);
        slots.insert(name.to_owned(), Slot { values, ..Slot::of(name, kind, required) });
    }
    // A line of the corpus declares no slots; the names of the corpus say what they hold.
    for name in patterns.iter().flat_map(Template::slots) {
        if slots.contains_key(name) {
            continue;
        }
        let (kind, required) = match name {
            "device" | "tool" => (SlotKind::DeviceNo, false),
            "zone" => (SlotKind::Zone, false),
            "duration" => (SlotKind::Duration, false),
            "program" => (SlotKind::Digits, false),
            "value" => (SlotKind::Number, true),
            "percent" => (SlotKind::Percent, true),
            other => return wrong(format!("what the slot {other:?} holds is not known: declare it in slots")),
        };
        slots.insert(name.to_owned(), Slot::of(name, kind, required));
    }
    let risk = match text("risk") {
        // A command whose risk nobody has stated is taken for the worst.
        None => Risk::Dangerous,
        Some(name) => match Risk::from_word(name) {
            Some(risk) => risk,
            None => return wrong(format!("the risk {name:?} is not known: read, operate or dangerous")),
        },
    };
    let bind = match fields.get("bind") {
        None => Vec::new(),
        Some(steps) => bind::parse(steps).map_err(|error| NotLearned(error.to_string()))?,
    };
    Ok(Definition {
        id: id.to_owned(),
        text: text("text").or(text("phrase")).unwrap_or_default().to_owned(),
        aliases: list("aliases"),
        patterns,
        fallback: Vec::new(),
        slots: slots.into_values().collect(),
        category: text("category").unwrap_or_default().to_owned(),
        risk,
        // Only a command set that a person wrote can pass the gate without a question.
        protective: false,
        bind,
    })
}

#[cfg(test)]
mod tests {
    use interlock_domain::command::instead::{Instead, Of};

    use super::*;

    #[test]
    fn a_set_reads_back_as_it_was_written() {
        let line = json!({
            "channel": "C", "command": "dryer_zone", "text": "启动冷干机", "aliases": ["冷干机启动"], "risk": "operate",
            "patterns": ["(启动|打开)[{zone}]冷干机"], "category": "utility",
            "bind": [{ "device": "dryer", "by": "zone", "action": "start", "if": "zone" },
                     { "tool": "task", "input": { "verb": "list" } }],
        });
        let Ok(Proposal::New(new)) = read_proposal(&line) else { panic!("a new command") };
        let learned = Learned {
            heard: vec![('茶', '闸')],
            phrases: vec![("分叉".to_owned(), "brk_open".to_owned())],
            slang: vec![("送电".to_owned(), "brk_close".to_owned())],
            commands: vec![new],
            examples: vec![("喝茶".to_owned(), "brk_close".to_owned())],
            told: vec![Instead {
                of: Of::Tool,
                name: "mes__report".to_owned(),
                instead_of: "wrong".to_owned(),
                text: "right".to_owned(),
            }],
        };
        assert_eq!(read_set(&set(&learned).to_string()), Ok(learned.clone()));
        assert_eq!(read_set(&set(&Learned::default()).to_string()), Ok(Learned::default()));
        for proposed in [
            Proposal::Correction { heard: "喝茶".to_owned(), command: "brk_close".to_owned() },
            Proposal::Slang { phrase: "送电".to_owned(), command: "brk_close".to_owned() },
            Proposal::New(Arc::clone(&learned.commands[0])),
        ] {
            assert_eq!(read_proposal(&proposal(&proposed)), Ok(proposed));
        }
    }

    #[test]
    fn what_is_not_whole_is_refused_with_its_reason() {
        let check = |line: Value, expected: &str| {
            assert_eq!(read_proposal(&line), Err(NotLearned(expected.to_owned())), "{line}");
        };
        check(json!([]), "not an object");
        check(json!({}), "channel is missing");
        check(json!({ "channel": "Z" }), "the channel \"Z\" is not known: A, B, C or D");
        check(json!({ "channel": "A", "wrong": "喝茶" }), "command is missing");
        check(json!({ "channel": "B", "command": "x" }), "phrase is missing");
        check(
            json!({ "channel": "C", "command": "x", "patterns": ["(启动"] }),
            "(启动: template does not compile at character 1: '(' is not closed",
        );
        check(
            json!({ "channel": "C", "command": "x", "patterns": ["{what}启动"] }),
            "what the slot \"what\" holds is not known: declare it in slots",
        );
        check(
            json!({ "channel": "C", "command": "x", "risk": "none" }),
            "the risk \"none\" is not known: read, operate or dangerous",
        );
        assert!(read_set("{}").is_err() && read_set("[").is_err());
    }
}

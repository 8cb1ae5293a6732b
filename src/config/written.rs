//! A command set as the TOML that [`super::commands::read`] reads: what an import prints, and a person then edits.

use interlock_domain::command::bind;
use interlock_domain::command::definition::{Commands, Definition, Slot};
use interlock_domain::command::template::Template;
use serde_json::Value;

/// The whole file. `remarks` become its first lines.
#[must_use]
pub fn toml(commands: &Commands, remarks: &[String]) -> String {
    let mut text = String::new();
    for remark in remarks {
        for line in remark.lines() {
            text.push_str(&format!("# {line}\n"));
        }
    }
    text.push_str("version = 1\n");
    if commands.first_wins {
        text.push_str("ties = \"first\"\n");
    }
    if !commands.zones.is_empty() {
        text.push_str(&format!("zones = {}\n", list(commands.zones.iter())));
    }
    if !commands.skip_words.is_empty() {
        text.push_str(&format!("skip_words = {}\n", list(commands.skip_words.iter())));
    }
    for command in &commands.list {
        definition(command, &mut text);
    }
    text
}

fn definition(command: &Definition, text: &mut String) {
    text.push_str(&format!("\n[[command]]\nid = {}\ntext = {}\n", quoted(&command.id), quoted(&command.text)));
    if !command.aliases.is_empty() {
        text.push_str(&format!("aliases = {}\n", list(command.aliases.iter())));
    }
    templates("patterns", &command.patterns, text);
    templates("fallback", &command.fallback, text);
    if !command.slots.is_empty() {
        text.push_str("slots = [\n");
        for slot in &command.slots {
            text.push_str(&format!("  {},\n", one_slot(slot)));
        }
        text.push_str("]\n");
    }
    if !command.category.is_empty() {
        text.push_str(&format!("category = {}\n", quoted(&command.category)));
    }
    text.push_str(&format!("risk = {}\n", quoted(command.risk.word())));
    if command.protective {
        text.push_str("protective = true\n");
    }
    if !command.bind.is_empty() {
        text.push_str(&format!("bind = {}\n", inline(&bind::written(&command.bind))));
    }
}

fn templates(key: &str, templates: &[Template], text: &mut String) {
    match templates {
        [] => {}
        [only] => text.push_str(&format!("{key} = [{}]\n", quoted(&only.source))),
        several => {
            text.push_str(&format!("{key} = [\n"));
            for template in several {
                text.push_str(&format!("  {},\n", quoted(&template.source)));
            }
            text.push_str("]\n");
        }
    }
}

fn one_slot(slot: &Slot) -> String {
    let mut text =
        format!("{{ name = {}, type = {}, required = {}", quoted(&slot.name), quoted(slot.kind.name()), slot.required);
    if !slot.values.is_empty() {
        let values: Vec<String> = slot
            .values
            .iter()
            .map(|listed| {
                if listed.said == listed.value {
                    quoted(&listed.said)
                } else {
                    format!("{{ say = {}, value = {} }}", quoted(&listed.said), quoted(&listed.value))
                }
            })
            .collect();
        text.push_str(&format!(", values = [{}]", values.join(", ")));
    }
    if let Some((least, most)) = slot.range {
        text.push_str(&format!(", range = [{least}, {most}]"));
    }
    text.push_str(" }");
    text
}

fn list<'a>(items: impl Iterator<Item = &'a String>) -> String {
    let items: Vec<String> = items.map(|item| quoted(item)).collect();
    format!("[{}]", items.join(", "))
}

/// A basic string: what it escapes, JSON escapes too, except for the delete character.
fn quoted(text: &str) -> String {
    Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

fn inline(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let fields: Vec<String> =
                fields.iter().map(|(key, value)| format!("{} = {}", quoted(key), inline(value))).collect();
            format!("{{ {} }}", fields.join(", "))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(inline).collect::<Vec<_>>().join(", ")),
        Value::String(text) => quoted(text),
        // There is no null in TOML, and none in a binding.
        Value::Null => "\"\"".to_owned(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::commands;
    use super::*;

    #[test]
    fn the_shipped_set_reads_back_as_it_was() {
        let shipped = commands::read(Path::new(commands::EMBEDDED_NAME), commands::EMBEDDED).expect("the embedded set");
        let text = toml(&shipped, &["two\nlines".to_owned()]);
        assert!(text.starts_with("# two\n# lines\nversion = 1\n"), "{}", &text[..60]);
        assert_eq!(commands::read(Path::new("w.toml"), &text).expect("reads"), shipped);
    }

    #[test]
    fn odd_characters_and_lists_survive() {
        let text = "version = 1\n[[command]]\nid = \"a\"\ntext = \"说\\\"\\\\\\u007f\"\nrisk = \"read\"\n\
                    slots = [{ name = \"s\", type = \"list\", values = [\"厨房\", { say = \"打开\", value = \"on\" }] }]\n\
                    patterns = [\"打开{s}\", \"{s}打开\"]\n\
                    [[command]]\nid = \"b\"\ntext = \"设亮度\"\nrisk = \"operate\"\npatterns = [\"亮度{p}\"]\n\
                    slots = [{ name = \"p\", type = \"percent\", required = true, range = [0, 100] }]\n";
        let set = commands::read(Path::new("a.toml"), text).expect("reads");
        assert_eq!(commands::read(Path::new("b.toml"), &toml(&set, &[])).expect("reads"), set);
    }
}

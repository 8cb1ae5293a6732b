//! Command sets: TOML into checked definitions.
//!
//! A set is taken whole or refused with the file, the line and the key. What could make two commands answer to one
//! phrase is refused here, before it ships: at run time it could only be a question to the operator each time.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use interlock_domain::command::bind;
use interlock_domain::command::definition::{Commands, Definition, Listed, Slot, SlotKind};
use interlock_domain::command::hazard;
use interlock_domain::command::template::Template;
use interlock_domain::risk::Risk;
use serde_json::Value;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::ConfigError;

/// The set that is in the binary.
pub const EMBEDDED: &str = include_str!("../../models/commands/commands.toml");

/// Its name in messages.
pub const EMBEDDED_NAME: &str = "models/commands/commands.toml";

/// Words that a set may pass over: each is looked for at every place of a sentence that came to nothing.
pub(super) const SKIP_WORDS_MAX: usize = 256;

/// Commands in one set: an index of them is 16 bits wide.
const COMMANDS_MAX: usize = 60_000;

type Node<'a> = Spanned<DeValue<'a>>;

/// Reads a command set; `file` is its name for messages.
///
/// # Errors
/// The first mistake, with its place.
pub fn read(file: &Path, text: &str) -> Result<Commands, ConfigError> {
    let root = DeTable::parse(text).map_err(|error| ConfigError::from_toml(file, text, &error))?;
    let reader = Reader { file, text };
    let root = root.get_ref();
    reader.known(root, &["version", "language", "zones", "skip_words", "ties", "command"])?;
    if let Some(version) = root.get("version")
        && version.get_ref().as_integer().map(|n| n.as_str()) != Some("1")
    {
        return Err(reader.at(version, "this build reads version 1"));
    }
    let zones = match root.get("zones") {
        Some(zones) => reader.strings(zones)?,
        None => Vec::new(),
    };
    let first_wins = match root.get("ties") {
        None => false,
        Some(node) => match reader.string(node)? {
            "ask" => false,
            "first" => true,
            _ => return Err(reader.at(node, "ties is \"ask\" or \"first\"")),
        },
    };
    let skip_words = match root.get("skip_words") {
        Some(words) => reader.skip_words(words)?,
        None => Vec::new(),
    };
    let mut commands = Commands { zones, skip_words, first_wins, list: Vec::new() };
    let Some(list) = root.get("command") else {
        return Err(ConfigError::of_file(file, "no [[command]]").hint("a command set has at least one command"));
    };
    let mut ids: BTreeMap<String, usize> = BTreeMap::new();
    let mut phrases: BTreeMap<String, String> = BTreeMap::new();
    for command in reader.array(list)? {
        if commands.list.len() >= COMMANDS_MAX {
            return Err(reader.at(command, format!("more than {COMMANDS_MAX} commands")));
        }
        let (definition, spans) = reader.command(command)?;
        if ids.insert(definition.id.clone(), commands.list.len()).is_some() {
            return Err(reader
                .at(spans.id, format!("the id {:?} is taken by an earlier command", definition.id))
                .hint("an id names one command"));
        }
        for (phrase, span) in spans.phrases {
            match phrases.insert(phrase.clone(), definition.id.clone()) {
                Some(other) if other != definition.id => {
                    return Err(reader
                        .at(span, format!("the phrase {phrase:?} also means the command {other:?}"))
                        .hint("give one of the two another phrase; an operator must be able to tell them apart"));
                }
                _ => {}
            }
        }
        commands.list.push(Arc::new(definition));
    }
    Ok(commands)
}

/// The line on which a command of the file has a phrase; 0 when it has none there.
#[must_use]
pub fn line_of(text: &str, id: &str, phrase: &str) -> usize {
    let written = |text: &str| format!("{}", Value::from(text));
    let (id, phrase) = (written(id), written(phrase));
    let mut inside = false;
    for (at, line) in text.lines().enumerate() {
        let bare = line.trim_start();
        if bare.starts_with("[[command]]") {
            inside = false;
        } else if bare.starts_with("id") && bare.contains('=') {
            inside = bare.contains(&id);
        }
        if inside && line.contains(&phrase) {
            return at + 1;
        }
    }
    0
}

/// Where things of one command stand.
struct Spans<'a> {
    id: &'a Node<'a>,
    phrases: Vec<(String, &'a Node<'a>)>,
}

struct Reader<'a> {
    file: &'a Path,
    text: &'a str,
}

impl<'a> Reader<'a> {
    fn at(&self, node: &Node<'_>, message: impl Into<String>) -> ConfigError {
        ConfigError::at(self.file, self.text, node.span(), message)
    }

    fn known(&self, table: &DeTable<'_>, keys: &[&str]) -> Result<(), ConfigError> {
        for key in table.keys() {
            if !keys.contains(&key.get_ref().as_ref()) {
                return Err(ConfigError::at(
                    self.file,
                    self.text,
                    key.span(),
                    format!("the key {:?} is not known here", key.get_ref()),
                )
                .hint(format!("known keys: {}", keys.join(", "))));
            }
        }
        Ok(())
    }

    fn wrong(&self, node: &Node<'_>, expected: &str) -> ConfigError {
        self.at(node, format!("expected {expected}, found {}", node.get_ref().type_str()))
    }

    fn array<'n>(&self, node: &'n Node<'a>) -> Result<impl Iterator<Item = &'n Node<'a>>, ConfigError> {
        Ok(node.get_ref().as_array().ok_or_else(|| self.wrong(node, "an array"))?.iter())
    }

    fn table<'n>(&self, node: &'n Node<'a>) -> Result<&'n DeTable<'a>, ConfigError> {
        node.get_ref().as_table().ok_or_else(|| self.wrong(node, "a table"))
    }

    fn string<'n>(&self, node: &'n Node<'a>) -> Result<&'n str, ConfigError> {
        let text = node.get_ref().as_str().ok_or_else(|| self.wrong(node, "a string"))?;
        if text.trim().is_empty() { Err(self.at(node, "an empty text")) } else { Ok(text) }
    }

    fn boolean(&self, node: &Node<'_>) -> Result<bool, ConfigError> {
        node.get_ref().as_bool().ok_or_else(|| self.wrong(node, "true or false"))
    }

    fn strings(&self, node: &Node<'a>) -> Result<Vec<String>, ConfigError> {
        self.array(node)?.map(|one| self.string(one).map(str::to_owned)).collect()
    }

    fn skip_words(&self, node: &Node<'a>) -> Result<Vec<String>, ConfigError> {
        let all: Vec<&Node<'a>> = self.array(node)?.collect();
        if all.len() > SKIP_WORDS_MAX {
            return Err(self.at(node, format!("more than {SKIP_WORDS_MAX} words to skip")));
        }
        all.into_iter()
            .map(|word| {
                let text = self.string(word)?;
                match hazard::of_word(text) {
                    None => Ok(text.to_owned()),
                    Some(kind) => Err(self
                        .at(word, format!("{text:?} is a {kind} and cannot be skipped"))
                        .hint("without it the sentence would mean something else")),
                }
            })
            .collect()
    }

    fn command<'n>(&self, node: &'n Node<'a>) -> Result<(Definition, Spans<'n>), ConfigError>
    where
        'a: 'n,
    {
        let table = self.table(node)?;
        self.known(
            table,
            &["id", "text", "aliases", "patterns", "fallback", "slots", "category", "risk", "protective", "bind"],
        )?;
        let needed = |key: &str| table.get(key).ok_or_else(|| self.at(node, format!("the command has no {key:?}")));
        let (id, text, risk) = (needed("id")?, needed("text")?, needed("risk")?);
        let mut phrases = vec![(self.string(text)?.to_owned(), text)];
        let mut aliases = Vec::new();
        if let Some(list) = table.get("aliases") {
            for alias in self.array(list)? {
                let phrase = self.string(alias)?.to_owned();
                aliases.push(phrase.clone());
                phrases.push((phrase, alias));
            }
        }
        let slots = match table.get("slots") {
            Some(list) => self.array(list)?.map(|slot| self.slot(slot)).collect::<Result<Vec<_>, _>>()?,
            None => Vec::new(),
        };
        let mut patterns = Vec::new();
        if let Some(list) = table.get("patterns") {
            for pattern in self.array(list)? {
                patterns.push(self.pattern(pattern, &slots)?);
            }
        }
        let mut fallback = Vec::new();
        if let Some(list) = table.get("fallback") {
            for pattern in self.array(list)? {
                fallback.push(self.pattern(pattern, &slots)?);
            }
        }
        let bind = match table.get("bind") {
            Some(node) => self.bind(node, &slots)?,
            None => Vec::new(),
        };
        let risk_name = self.string(risk)?;
        let definition = Definition {
            id: self.string(id)?.to_owned(),
            text: phrases[0].0.clone(),
            aliases,
            patterns,
            fallback,
            slots,
            category: table.get("category").map(|node| self.string(node)).transpose()?.unwrap_or_default().to_owned(),
            risk: Risk::from_word(risk_name).ok_or_else(|| {
                self.at(risk, format!("the risk {risk_name:?} is not known")).hint("read, operate or dangerous")
            })?,
            protective: table.get("protective").map(|node| self.boolean(node)).transpose()?.unwrap_or(false),
            bind,
        };
        Ok((definition, Spans { id: needed("id")?, phrases }))
    }

    fn slot(&self, node: &Node<'a>) -> Result<Slot, ConfigError> {
        let table = self.table(node)?;
        self.known(table, &["name", "type", "required", "values", "range"])?;
        let needed = |key: &str| table.get(key).ok_or_else(|| self.at(node, format!("the slot has no {key:?}")));
        let kind = needed("type")?;
        let kind_name = self.string(kind)?;
        let of = SlotKind::parse(kind_name)
            .ok_or_else(|| self.at(kind, format!("the slot type {kind_name:?} is not known")).hint(SlotKind::NAMES))?;
        let values = match table.get("values") {
            Some(list) => self.array(list)?.map(|value| self.listed(value)).collect::<Result<Vec<_>, _>>()?,
            None => Vec::new(),
        };
        if (of == SlotKind::List) == values.is_empty() {
            return Err(self
                .at(kind, "a slot of type list has values, and no other type has")
                .hint("type = \"list\", values = [\"厨房\", { say = \"打开\", value = \"on\" }]"));
        }
        let range = table.get("range").map(|node| self.range(node, of)).transpose()?;
        Ok(Slot {
            range,
            name: self.string(needed("name")?)?.to_owned(),
            kind: of,
            values,
            required: table.get("required").map(|node| self.boolean(node)).transpose()?.unwrap_or(false),
        })
    }

    /// `[0, 100]`.
    fn range(&self, node: &Node<'a>, of: SlotKind) -> Result<(i64, i64), ConfigError> {
        let wrong = || self.at(node, "the range is not two whole numbers, the least first").hint("range = [0, 100]");
        let whole = |value: &Node<'a>| value.get_ref().as_integer().and_then(|number| number.as_str().parse().ok());
        let ends: Option<Vec<i64>> = self.array(node)?.map(whole).collect();
        match (of, ends.as_deref()) {
            (SlotKind::Number | SlotKind::Percent | SlotKind::Duration | SlotKind::DeviceNo, Some([least, most]))
                if least <= most =>
            {
                Ok((*least, *most))
            }
            (SlotKind::Number | SlotKind::Percent | SlotKind::Duration | SlotKind::DeviceNo, _) => Err(wrong()),
            (SlotKind::Digits | SlotKind::Zone | SlotKind::List | SlotKind::Free, _) => {
                Err(self.at(node, "only a slot that holds a number has a range"))
            }
        }
    }

    /// `"厨房"`, or `{ say = "打开", value = "on" }`.
    fn listed(&self, node: &Node<'a>) -> Result<Listed, ConfigError> {
        if node.get_ref().as_str().is_some() {
            let said = self.string(node)?.to_owned();
            return Ok(Listed { value: said.clone(), said });
        }
        let table = self.table(node)?;
        self.known(table, &["say", "value"])?;
        let needed = |key: &str| table.get(key).ok_or_else(|| self.at(node, format!("the value has no {key:?}")));
        Ok(Listed { said: self.string(needed("say")?)?.to_owned(), value: self.string(needed("value")?)?.to_owned() })
    }

    fn bind(&self, node: &Node<'a>, slots: &[Slot]) -> Result<Vec<bind::Step>, ConfigError> {
        let steps = bind::parse(&json(node.get_ref())).map_err(|error| self.at(node, error.to_string()))?;
        for name in steps.iter().flat_map(bind::Step::slots) {
            if !slots.iter().any(|slot| slot.name == name) {
                return Err(self
                    .at(node, format!("bind names the slot {name:?}, which the command does not have"))
                    .hint("declare it in slots, or correct its name"));
            }
        }
        Ok(steps)
    }

    fn pattern(&self, node: &Node<'a>, slots: &[Slot]) -> Result<Template, ConfigError> {
        let source = self.string(node)?;
        let template = Template::parse(source).map_err(|error| {
            // Point into the pattern: the opening quote is one character, and patterns have no escapes in practice.
            let before: usize = source.chars().take(error.at - 1).map(char::len_utf8).sum();
            let start = node.span().start + 1 + before;
            ConfigError::at(self.file, self.text, start..start + 1, error.to_string())
                .hint("hassil syntax: (a|b) one of, [a] perhaps, {slot} a value")
        })?;
        if let Some(unknown) = template.slots().iter().find(|name| !slots.iter().any(|slot| slot.name == **name)) {
            return Err(self
                .at(node, format!("the pattern names the slot {unknown:?}, which the command does not have"))
                .hint("declare it in slots, or correct its name"));
        }
        Ok(template)
    }
}

/// A TOML value as JSON: the form in which bindings are handed on.
fn json(value: &DeValue<'_>) -> Value {
    match value {
        DeValue::String(text) => Value::from(text.as_ref()),
        DeValue::Integer(number) => {
            i64::from_str_radix(number.as_str(), number.radix()).map_or(Value::Null, Value::from)
        }
        DeValue::Float(number) => number.as_str().parse::<f64>().map_or(Value::Null, Value::from),
        DeValue::Boolean(yes) => Value::from(*yes),
        DeValue::Datetime(moment) => Value::from(moment.to_string()),
        DeValue::Array(items) => items.iter().map(|item| json(item.get_ref())).collect(),
        DeValue::Table(table) => {
            table.iter().map(|(key, value)| (key.get_ref().to_string(), json(value.get_ref()))).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "\
version = 1
[[command]]
id = \"pump_start\"
text = \"启动水泵\"
aliases = [\"打开水泵\"]
patterns = [\"(启动|打开)[{device}]泵\"]
slots = [{ name = \"device\", type = \"device_no\", required = false }]
risk = \"operate\"
bind = { device = \"pump\", action = \"start\", value = 1.5 }
";

    fn check(change: (&str, &str), expected: &str) {
        assert!(GOOD.contains(change.0), "{} is in the sample", change.0);
        let text = GOOD.replacen(change.0, change.1, 1);
        let error = read(Path::new("c.toml"), &text).expect_err("refused");
        assert_eq!(error.to_string(), expected);
        assert!(error.hint.is_some() || !expected.contains("known"), "{expected}");
    }

    #[test]
    fn a_mistake_names_line_column_and_key() {
        check(("text", "txet"), "c.toml:4:1: command.txet: the key \"txet\" is not known here");
        check(("\"operate\"", "\"harmless\""), "c.toml:8:8: command.risk: the risk \"harmless\" is not known");
        check(("\"operate\"", "7"), "c.toml:8:8: command.risk: expected a string, found integer");
        check(("[\"打开水泵\"]", "\"打开水泵\""), "c.toml:5:11: command.aliases: expected an array, found string");
        check(
            ("(启动|打开)[{device}]泵", "(启动|打开[{device}]泵"),
            "c.toml:6:14: command.patterns: template does not compile at character 1: '(' is not closed",
        );
        check(
            ("(启动|打开)[{device}]泵", "(启动|打开)[{device]泵"),
            "c.toml:6:29: command.patterns: template does not compile at character 16: ']' is not expected here",
        );
        check(
            ("[{device}]泵", "[{pump}]泵"),
            "c.toml:6:13: command.patterns: the pattern names the slot \"pump\", which the command does not have",
        );
        check(("\"device_no\"", "\"devno\""), "c.toml:7:36: command.slots: the slot type \"devno\" is not known");
        check(
            ("required = false", "required = 0"),
            "c.toml:7:60: command.slots: expected true or false, found integer",
        );
        check(("action", "acton"), "c.toml:9:8: command.bind: a step of bind has no key \"acton\"");
        check(
            ("value = 1.5", "value = \"{speed}\""),
            "c.toml:9:8: command.bind: bind names the slot \"speed\", which the command does not have",
        );
        check(("version = 1", "version = 2"), "c.toml:1:11: version: this build reads version 1");
    }

    #[test]
    fn two_commands_with_one_id_or_phrase_are_refused() {
        let twice =
            |id: &str, text: &str| format!("{GOOD}[[command]]\nid = \"{id}\"\ntext = \"{text}\"\nrisk = \"read\"\n");
        let error = |text: &str| read(Path::new("c.toml"), text).expect_err("refused").to_string();
        assert_eq!(
            error(&twice("pump_start", "看泵")),
            "c.toml:11:6: command.id: the id \"pump_start\" is taken by an earlier command"
        );
        assert_eq!(
            error(&twice("other", "打开水泵")),
            "c.toml:12:8: command.text: the phrase \"打开水泵\" also means the command \"pump_start\""
        );
    }

    #[test]
    fn the_embedded_set_loads_and_bindings_are_kept() {
        let commands = read(Path::new(EMBEDDED_NAME), EMBEDDED).expect("the embedded set");
        assert_eq!(commands.list.len(), 141);
        assert_eq!(commands.zones.len(), 16);
        let sample = read(Path::new("c.toml"), GOOD).expect("the sample");
        let expected = bind::parse(&serde_json::json!({"device": "pump", "action": "start", "value": 1.5}));
        assert_eq!(sample.list[0].bind, expected.expect("one step"));
    }
}

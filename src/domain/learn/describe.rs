//! What a tool says of itself against what its schema and its behaviour say, and the repair of what is wrong.
//!
//! An agent chooses a tool and fills its arguments by its description; a wrong one costs a failed call, or a call that
//! should not have been made. The check only knows what can be compared: names, types, defaults, choices, ranges, what
//! must be given, whether it changes anything. A repair takes out the sentences that are wrong and writes the parameters
//! out of the schema; it never takes out a warning, and what it makes is checked again like anybody else's.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::Value;

/// Longest description that is looked at, in bytes. Longer ones eat the context of the agent that reads them.
pub const DESCRIPTION_LEN_MAX: usize = 16 * 1024;

/// Parameters of one tool that are looked at.
pub const PARAMETERS_MAX: usize = 64;

/// Shortest description that says something, in characters.
const DESCRIPTION_LEN_MIN: usize = 8;

/// A tool as an agent sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct Described {
    /// Its name.
    pub name: String,
    /// What it says of itself.
    pub description: String,
    /// The JSON Schema of its input.
    pub schema: Value,
    /// It says that it changes nothing.
    pub read_only: Option<bool>,
    /// It says that it may destroy something.
    pub destructive: Option<bool>,
    /// What was seen when it was called.
    pub seen: Vec<Seen>,
}

/// One call of a tool, as far as a description can be held to it.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen {
    /// The names of the arguments that were given.
    pub given: Vec<String>,
    /// Its complaint; none when it worked.
    pub complaint: Option<String>,
    /// It changed something.
    pub changed: bool,
}

/// Something that is wrong with a description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// It says nothing, or only the name.
    Empty,
    /// It names a parameter that the schema does not have.
    Ghost(String),
    /// A parameter that must be given is described nowhere.
    Silent(String),
    /// A parameter is of another type than is said.
    Type {
        /// The parameter.
        name: String,
        /// What is said.
        said: &'static str,
        /// What the schema says.
        is: String,
    },
    /// A default is not what is said.
    Default {
        /// The parameter.
        name: String,
        /// What is said.
        said: String,
        /// What the schema says.
        is: String,
    },
    /// A value is named that the schema does not take.
    Choice {
        /// The parameter.
        name: String,
        /// The value.
        said: String,
    },
    /// A range is not what is said.
    Range {
        /// The parameter.
        name: String,
        /// What is said.
        said: String,
    },
    /// It is said to be optional and must be given.
    NotOptional(String),
    /// It is said to be required and need not be given.
    NotRequired(String),
    /// It is said to change nothing, and may.
    Harmless,
    /// It is marked as changing nothing, and says or shows that it does.
    Harmful,
    /// It calls itself by a name that is not quite its own.
    Misnamed(String),
    /// Calls without this parameter fail, and the schema does not ask for it.
    NeededInFact(String),
    /// Calls with this parameter fail, and the schema has it.
    UnknownInFact(String),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Empty => f.write_str("the description says nothing"),
            Fault::Ghost(name) => write!(f, "it names {name}, which the schema does not have"),
            Fault::Silent(name) => write!(f, "{name} must be given and is described nowhere"),
            Fault::Type { name, said, is } => write!(f, "{name} is said to be a {said} and is a {is}"),
            Fault::Default { name, said, is } => write!(f, "the default of {name} is said to be {said} and is {is}"),
            Fault::Choice { name, said } => write!(f, "{name} is said to take {said}, which it does not"),
            Fault::Range { name, said } => write!(f, "{name} is said to be {said}, which the schema does not say"),
            Fault::NotOptional(name) => write!(f, "{name} is said to be optional and must be given"),
            Fault::NotRequired(name) => write!(f, "{name} is said to be required and need not be given"),
            Fault::Harmless => f.write_str("it is said to change nothing, and it may"),
            Fault::Harmful => f.write_str("it is marked as changing nothing, and it does"),
            Fault::Misnamed(said) => write!(f, "it calls itself {said}"),
            Fault::NeededInFact(name) => write!(f, "calls without {name} fail, and the schema does not ask for it"),
            Fault::UnknownInFact(name) => write!(f, "calls with {name} fail, and the schema has it"),
        }
    }
}

/// What is wrong with a description; nothing when nothing that can be compared is.
#[must_use]
pub fn faults(tool: &Described) -> Vec<Fault> {
    let text: &str = &tool.description[..tool.description.floor_char_boundary(DESCRIPTION_LEN_MAX)];
    let parameters = Parameter::all(&tool.schema);
    let mut found = Vec::new();
    let bare: String = text.chars().filter(|ch| ch.is_alphanumeric()).collect();
    let own: String = tool.name.chars().filter(|ch| ch.is_alphanumeric()).collect();
    if bare.chars().count() < DESCRIPTION_LEN_MIN || bare.eq_ignore_ascii_case(&own) {
        found.push(Fault::Empty);
    }
    for sentence in sentences(text) {
        found.extend(wrong_in(sentence, tool, &parameters));
    }
    for parameter in parameters.iter().filter(|parameter| parameter.required) {
        if parameter.description.trim().is_empty() && !mentions(text, &parameter.name) {
            found.push(Fault::Silent(parameter.name.clone()));
        }
    }
    if tool.read_only == Some(true) && tool.seen.iter().any(|seen| seen.changed) {
        found.push(Fault::Harmful);
    }
    found.extend(in_fact(tool, &parameters));
    let mut known = Vec::new();
    found.retain(|fault| {
        !known.contains(fault) && {
            known.push(fault.clone());
            true
        }
    });
    found
}

/// The description without what is wrong, and with the parameters as the schema has them; none when it cannot be
/// repaired by words: what the tool does differently from its schema is for whoever wrote it.
#[must_use]
pub fn repaired(tool: &Described) -> Option<String> {
    let wrong = faults(tool);
    let parameters = Parameter::all(&tool.schema);
    let kept: Vec<&str> = sentences(&tool.description)
        .into_iter()
        .filter(|sentence| warns(sentence) || wrong_in(sentence, tool, &parameters).is_empty())
        .map(str::trim)
        .filter(|sentence| !sentence.is_empty())
        .collect();
    let mut text = kept.join(" ");
    if wrong.contains(&Fault::Empty) {
        text = format!("Calls {}.", tool.name.replace(['_', '-', '.'], " "));
    }
    if !parameters.is_empty() {
        text.push_str("\nParameters:");
        for parameter in &parameters {
            text.push_str(&format!("\n- {}", parameter.written(&tool.seen)));
        }
    }
    if tool.destructive == Some(true) && !warns(&text) {
        text.push_str("\nIt may change or destroy things that cannot be brought back.");
    }
    let repaired = Described { description: text, ..tool.clone() };
    let left = faults(&repaired);
    left.iter().all(Fault::is_of_the_tool).then_some(repaired.description)
}

impl Fault {
    /// No words can mend it.
    pub(super) fn is_of_the_tool(&self) -> bool {
        match self {
            Fault::NeededInFact(_) | Fault::UnknownInFact(_) | Fault::Harmful => true,
            Fault::Empty
            | Fault::Ghost(_)
            | Fault::Silent(_)
            | Fault::Type { .. }
            | Fault::Default { .. }
            | Fault::Choice { .. }
            | Fault::Range { .. }
            | Fault::NotOptional(_)
            | Fault::NotRequired(_)
            | Fault::Harmless
            | Fault::Misnamed(_) => false,
        }
    }
}

struct Parameter {
    name: String,
    kind: String,
    description: String,
    required: bool,
    default: Option<String>,
    choices: Vec<String>,
    least: Option<f64>,
    most: Option<f64>,
}

impl Parameter {
    fn all(schema: &Value) -> Vec<Parameter> {
        let required: BTreeSet<&str> =
            schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let properties = schema["properties"].as_object().into_iter().flatten();
        properties
            .take(PARAMETERS_MAX)
            .map(|(name, of)| Parameter {
                name: name.clone(),
                kind: of["type"].as_str().unwrap_or_default().to_owned(),
                description: of["description"].as_str().unwrap_or_default().to_owned(),
                required: required.contains(name.as_str()),
                default: of.get("default").map(plain),
                choices: of["enum"].as_array().into_iter().flatten().map(plain).collect(),
                least: of["minimum"].as_f64(),
                most: of["maximum"].as_f64(),
            })
            .collect()
    }

    /// A line that says what the schema says.
    fn written(&self, seen: &[Seen]) -> String {
        let needed = self.required || needed_in_fact(&self.name, seen);
        let kind = if self.kind.is_empty() { "any" } else { &self.kind };
        let mut text = format!("`{}` ({kind}, {}", self.name, if needed { "required" } else { "optional" });
        if let Some(default) = &self.default {
            text.push_str(&format!(", default {default}"));
        }
        if !self.choices.is_empty() {
            text.push_str(&format!(", one of {}", self.choices.join(", ")));
        }
        match (self.least, self.most) {
            (Some(least), Some(most)) => text.push_str(&format!(", {least} to {most}")),
            (Some(least), None) => text.push_str(&format!(", at least {least}")),
            (None, Some(most)) => text.push_str(&format!(", at most {most}")),
            (None, None) => {}
        }
        text.push(')');
        text
    }
}

/// A value as a person writes it.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Sentences and lines.
fn sentences(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut from = 0;
    let mut chars = text.char_indices().peekable();
    while let Some((at, ch)) = chars.next() {
        let next = chars.peek().map(|(_, next)| *next);
        // 1.5 and a.b are no ends of sentences.
        let ends = matches!(ch, '\n' | '。' | '！' | '？' | '；' | ';')
            || (matches!(ch, '.' | '!' | '?') && next.is_none_or(char::is_whitespace));
        if ends {
            parts.push(&text[from..at + ch.len_utf8()]);
            from = at + ch.len_utf8();
        }
    }
    parts.push(&text[from..]);
    parts.retain(|part| !part.trim().is_empty());
    parts
}

/// Words of a text that could be names of things in a schema: what stands in backquotes, and what has an underscore.
fn identifiers(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (at, word) in words(text) {
        let quoted = text[..at].ends_with('`') && text[at + word.len()..].starts_with('`');
        if quoted || word.contains('_') {
            found.push((at, word.to_owned()));
        }
    }
    found
}

/// Latin words with their places.
fn words(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut from: Option<usize> = None;
    for (at, ch) in text.char_indices().chain([(text.len(), ' ')]) {
        let part = ch.is_ascii_alphanumeric() || ch == '_' || ch == '-';
        match (from, part) {
            (None, true) => from = Some(at),
            (Some(start), false) => {
                found.push((start, text[start..at].trim_matches('-')));
                from = None;
            }
            (None, false) | (Some(_), true) => {}
        }
    }
    found
}

fn mentions(text: &str, name: &str) -> bool {
    words(text).iter().any(|(_, word)| *word == name)
}

/// The faults of one sentence.
fn wrong_in(sentence: &str, tool: &Described, parameters: &[Parameter]) -> Vec<Fault> {
    let mut found = Vec::new();
    let lower = sentence.to_lowercase();
    let known: Vec<(usize, &Parameter)> = words(sentence)
        .into_iter()
        .filter_map(|(at, word)| Some((at, parameters.iter().find(|parameter| parameter.name == word)?)))
        // A parameter called "path" is a word of English too: it is meant where it is quoted or told about.
        .filter(|(at, parameter)| meant(sentence, *at, &parameter.name))
        .collect();
    for (_, word) in identifiers(sentence) {
        let value = parameters.iter().any(|one| one.choices.contains(&word) || one.default.as_deref() == Some(&word));
        if word == tool.name || value || parameters.iter().any(|parameter| parameter.name == word) {
            continue;
        }
        if near(&word, &tool.name) {
            found.push(Fault::Misnamed(word));
        } else if !is_literal(&word) && !names_another_tool(sentence, &word) {
            found.push(Fault::Ghost(word));
        }
    }
    for (n, (at, parameter)) in known.iter().enumerate() {
        let end = known.get(n + 1).map_or(sentence.len(), |(next, _)| *next);
        found.extend(wrong_about(parameter, &sentence[*at + parameter.name.len()..end], &tool.seen));
    }
    let says_harmless = ["read-only", "read only", "only reads", "does not change", "no side effect", "only returns"]
        .iter()
        .any(|word| lower.contains(word))
        || ["只读", "不会改变", "不会修改", "不做任何修改", "没有副作用", "只查询"]
            .iter()
            .any(|word| sentence.contains(word));
    let may =
        tool.read_only == Some(false) || tool.destructive == Some(true) || tool.seen.iter().any(|one| one.changed);
    if says_harmless && may {
        found.push(Fault::Harmless);
    }
    found
}

/// Is the name at `at` meant as a parameter: in backquotes, before a colon or a bracket, or beside the word for it?
fn meant(sentence: &str, at: usize, name: &str) -> bool {
    let (before, after) = (&sentence[..at], sentence[at + name.len()..].trim_start_matches('`').trim_start());
    let before = before.trim_end_matches('`').trim_end().to_lowercase();
    name.contains('_')
        || sentence[..at].ends_with('`')
        || after.starts_with([':', '：', '(', '（', '='])
        || ["parameter", "argument", "param", "参数", "字段", "field", "-", "*"]
            .iter()
            .any(|word| before.ends_with(word))
        || ["parameter", "argument", "参数", "字段", "is a ", "is an ", "defaults", "默认", "must be", "为"]
            .iter()
            .any(|word| after.to_lowercase().starts_with(word))
}

/// Words in code that are no parameters.
fn is_literal(word: &str) -> bool {
    let lower = word.to_lowercase();
    ["true", "false", "null", "none", "utf-8", "json", "string", "number", "integer", "boolean", "array", "object"]
        .contains(&lower.as_str())
        || word.chars().all(|ch| ch.is_ascii_digit() || ch == '-')
        || (word.chars().all(|ch| ch.is_ascii_uppercase() || ch == '_' || ch.is_ascii_digit()) && word.len() > 1)
}

/// "Use `other_tool` instead": that is not about an argument.
fn names_another_tool(sentence: &str, word: &str) -> bool {
    let lower = sentence.to_lowercase();
    let Some(at) = lower.find(&word.to_lowercase()) else { return false };
    let (before, after) = (lower[..at].trim_end_matches('`').trim_end(), &lower[at + word.len()..]);
    let after = after.trim_start_matches('`').trim_start();
    ["use", "call", "see", "tool", "after", "before", "with", "prefer", "使用", "调用", "工具", "参见", "先用", "请用"]
        .iter()
        .any(|verb| before.ends_with(verb))
        && !["parameter", "argument", "参数", "字段"].iter().any(|of| after.starts_with(of))
        || ["tool", "工具", "instead"].iter().any(|noun| after.starts_with(noun))
}

/// What is wrong in the words about one parameter.
fn wrong_about(parameter: &Parameter, about: &str, seen: &[Seen]) -> Vec<Fault> {
    let mut found = Vec::new();
    let lower = about.to_lowercase();
    let name = || parameter.name.clone();
    let said = TYPES.iter().filter(|(_, words)| words.iter().any(|word| has_word(&lower, word))).map(|(kind, _)| *kind);
    let kinds: Vec<&str> = said.collect();
    let same = |kind: &str| kind == parameter.kind || (kind == "number" && parameter.kind == "integer");
    if let [kind] = kinds.as_slice()
        && !parameter.kind.is_empty()
        && !same(kind)
    {
        found.push(Fault::Type { name: name(), said: kind, is: parameter.kind.clone() });
    }
    let optional = ["optional", "可选", "可省略", "选填", "可以不填"].iter().any(|word| lower.contains(word));
    let required = ["required", "mandatory", "must be given", "must be provided", "必填", "必须提供", "必选"]
        .iter()
        .any(|word| lower.contains(word) && !lower.contains(&format!("not {word}")));
    if optional && !required && parameter.required {
        found.push(Fault::NotOptional(name()));
    }
    if required && !optional && !parameter.required && !needed_in_fact(&parameter.name, seen) {
        found.push(Fault::NotRequired(name()));
    }
    if let Some(said) = default_said(about)
        && let Some(is) = &parameter.default
        && !said.eq_ignore_ascii_case(is)
        && said.parse::<f64>().ok().zip(is.parse::<f64>().ok()).is_none_or(|(a, b)| a != b)
    {
        found.push(Fault::Default { name: name(), said, is: is.clone() });
    }
    if !parameter.choices.is_empty() {
        let quoted = quoted(about).into_iter();
        let listed = ["one of ", "either "].iter().find_map(|word| lower.find(word).map(|at| at + word.len()));
        let listed = listed.into_iter().flat_map(|at| words(&about[at..])).map(|(_, word)| word.to_owned());
        let filler = ["or", "and", "the", "default", "defaults", "to", "is", "required", "optional"];
        for value in quoted.chain(listed).filter(|value| !filler.contains(&value.to_lowercase().as_str())) {
            if !parameter.choices.contains(&value)
                && value != parameter.name
                && parameter.default.as_ref() != Some(&value)
            {
                found.push(Fault::Choice { name: name(), said: value });
                break;
            }
        }
    }
    if (parameter.least.is_some() || parameter.most.is_some())
        && let Some((least, most)) = range_said(about)
        && (parameter.least.is_some_and(|is| is != least) || parameter.most.is_some_and(|is| is != most))
    {
        found.push(Fault::Range { name: name(), said: format!("{least} to {most}") });
    }
    found
}

/// Words for types; the first that fits names the type of JSON Schema.
const TYPES: &[(&str, &[&str])] = &[
    ("string", &["string", "text", "字符串", "文本"]),
    ("integer", &["integer", "whole number", "整数"]),
    ("number", &["number", "float", "decimal", "数值", "小数", "浮点"]),
    ("boolean", &["boolean", "true or false", "bool", "布尔"]),
    ("array", &["array", "list of", "数组", "列表"]),
    ("object", &["object", "dictionary", "对象", "字典"]),
];

fn has_word(text: &str, word: &str) -> bool {
    text.match_indices(word).any(|(at, _)| {
        let edge = |ch: Option<char>| ch.is_none_or(|ch| !ch.is_ascii_alphanumeric());
        !word.is_ascii() || (edge(text[..at].chars().next_back()) && edge(text[at + word.len()..].chars().next()))
    })
}

/// `default 5`, `defaults to 5`, `默认 5`.
fn default_said(about: &str) -> Option<String> {
    let lower = about.to_lowercase();
    let starts = [
        "defaults to",
        "default is",
        "default value is",
        "default:",
        "default =",
        "default",
        "默认值为",
        "默认为",
        "默认是",
        "默认值",
        "默认",
    ];
    let at = starts.iter().find_map(|word| lower.find(word).map(|at| at + word.len()))?;
    let rest = about.get(at..)?.trim_start_matches([' ', ':', '：', '`', '"', '\'', '“', '=']);
    let end = rest.find([' ', ',', ')', '，', '）', '`', '"', '\'', '”', '。', ';', '；']).unwrap_or(rest.len());
    let said = rest[..end].trim_end_matches('.');
    (!said.is_empty()).then(|| said.to_owned())
}

/// `1 to 10`, `1-10`, `between 1 and 10`, `1 到 10`.
fn range_said(about: &str) -> Option<(f64, f64)> {
    let mut numbers: Vec<(usize, usize, f64)> = Vec::new();
    let mut from: Option<usize> = None;
    for (at, ch) in about.char_indices().chain([(about.len(), ' ')]) {
        match (from, ch.is_ascii_digit() || (ch == '.' && from.is_some())) {
            (None, true) => from = Some(at),
            (Some(start), false) => {
                let text = about[start..at].trim_end_matches('.');
                numbers.extend(text.parse().ok().map(|value| (start, start + text.len(), value)));
                from = None;
            }
            (None, false) | (Some(_), true) => {}
        }
    }
    numbers.windows(2).find_map(|two| {
        let between = about[two[0].1..two[1].0].trim();
        matches!(between, "to" | "-" | "–" | "~" | "and" | "到" | "至" | "～" | "..").then_some((two[0].2, two[1].2))
    })
}

fn quoted(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (open, close) in [('"', '"'), ('`', '`'), ('“', '”'), ('\'', '\'')] {
        let mut rest = text;
        while let Some(start) = rest.find(open) {
            let after = &rest[start + open.len_utf8()..];
            let Some(end) = after.find(close) else { break };
            let inside = &after[..end];
            if !inside.is_empty() && inside.len() < 40 && !inside.contains(' ') {
                found.push(inside.to_owned());
            }
            rest = &after[end + close.len_utf8()..];
        }
    }
    found
}

/// The sentences that warn. A warning is never taken out.
pub(super) fn warnings(text: &str) -> Vec<&str> {
    sentences(text).into_iter().map(str::trim).filter(|sentence| warns(sentence)).collect()
}

fn warns(sentence: &str) -> bool {
    let lower = sentence.to_lowercase();
    ["danger", "irreversib", "cannot be undone", "cannot be brought back", "warning", "caution", "destroy", "permanent"]
        .iter()
        .any(|word| lower.contains(word))
        || ["危险", "不可恢复", "不可逆", "警告", "注意安全", "无法撤销"].iter().any(|word| sentence.contains(word))
}

/// One or two letters away, and not the same.
pub(super) fn near(said: &str, own: &str) -> bool {
    let (a, b): (Vec<char>, Vec<char>) = (said.chars().collect(), own.chars().collect());
    if a == b || a.len().abs_diff(b.len()) > 2 || a.len() < 4 {
        return false;
    }
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.iter().enumerate() {
        let mut before = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let changed = before + usize::from(from != to);
            before = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(before + 1);
        }
    }
    row[b.len()] <= 2
}

fn needed_in_fact(name: &str, seen: &[Seen]) -> bool {
    seen.iter().any(|one| {
        let complaint = one.complaint.as_deref().unwrap_or_default().to_lowercase();
        let asks =
            ["missing", "required", "must provide", "缺少", "未提供"].iter().any(|word| complaint.contains(word));
        asks && mentions(&complaint, &name.to_lowercase()) && !one.given.iter().any(|given| given == name)
    })
}

fn in_fact(tool: &Described, parameters: &[Parameter]) -> Vec<Fault> {
    let mut found = Vec::new();
    for parameter in parameters {
        if !parameter.required && needed_in_fact(&parameter.name, &tool.seen) && !told_needed(tool, &parameter.name) {
            found.push(Fault::NeededInFact(parameter.name.clone()));
        }
        let unknown = tool.seen.iter().any(|one| {
            let complaint = one.complaint.as_deref().unwrap_or_default().to_lowercase();
            let odd = ["unknown", "unexpected", "unrecognized", "not allowed", "未知", "不支持"];
            odd.iter().any(|word| complaint.contains(word))
                && mentions(&complaint, &parameter.name.to_lowercase())
                && one.given.contains(&parameter.name)
        });
        if unknown {
            found.push(Fault::UnknownInFact(parameter.name.clone()));
        }
    }
    found
}

/// The description itself says that it must be given.
fn told_needed(tool: &Described, name: &str) -> bool {
    let text = &tool.description;
    let said = words(text).into_iter().filter(|(_, word)| *word == name).map(|(at, word)| &text[at + word.len()..]);
    said.into_iter()
        .any(|about| about[..about.find([')', '.', '\n', '。']).unwrap_or(about.len())].contains("required"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pump(description: &str) -> Described {
        Described {
            name: "set_pump".to_owned(),
            description: description.to_owned(),
            schema: json!({
                "type": "object",
                "properties": {
                    "pump_id": { "type": "integer" },
                    "speed": { "type": "number", "minimum": 0, "maximum": 50, "default": 25 },
                    "mode": { "type": "string", "enum": ["auto", "manual"] },
                },
                "required": ["pump_id"],
            }),
            read_only: Some(false),
            destructive: None,
            seen: Vec::new(),
        }
    }

    fn check(description: &str, expected: &[&str]) {
        let tool = pump(description);
        let found: Vec<String> = faults(&tool).iter().map(ToString::to_string).collect();
        assert_eq!(found, expected, "{description}");
        let mended = repaired(&tool).unwrap_or_else(|| panic!("{description} cannot be repaired"));
        assert_eq!(faults(&pump(&mended)), [], "{mended}");
    }

    #[test]
    fn each_fault_is_found_and_mended() {
        check(
            "Sets a pump. `pump_id` (integer, required): which. speed: 0 to 50, default 25. `mode` is one of auto, manual.",
            &[],
        );
        check("set_pump", &["the description says nothing", "pump_id must be given and is described nowhere"]);
        check("Sets the pump's speed.", &["pump_id must be given and is described nowhere"]);
        check("Sets `pump_id` to `velocity`.", &["it names velocity, which the schema does not have"]);
        check("Sets a pump. `pump_id` is a string.", &["pump_id is said to be a string and is a integer"]);
        check("Sets a pump, pump_id (optional).", &["pump_id is said to be optional and must be given"]);
        check("Sets pump_id. `speed` is required.", &["speed is said to be required and need not be given"]);
        check("Sets pump_id. `speed` defaults to 30.", &["the default of speed is said to be 30 and is 25"]);
        check("Sets pump_id. `speed`: 0 to 100.", &["speed is said to be 0 to 100, which the schema does not say"]);
        check("Sets pump_id. `mode` is \"auto\" or \"remote\".", &["mode is said to take remote, which it does not"]);
        check("Read-only view of pump_id.", &["it is said to change nothing, and it may"]);
        check("Call set_pumps with pump_id.", &["it calls itself set_pumps"]);
        check("设置水泵 pump_id。`speed` 默认 30。", &["the default of speed is said to be 30 and is 25"]);
        check("只读查询 pump_id 的状态。", &["it is said to change nothing, and it may"]);
    }

    #[test]
    fn what_is_seen_counts_and_a_warning_stays() {
        let mut tool = pump("Sets pump_id. Danger: `speed` defaults to 30.");
        assert!(repaired(&tool).is_none(), "a warning that is wrong is for a person");
        tool = pump("Sets pump_id. Danger of flooding. Use `mode` = \"remote\".");
        assert!(repaired(&tool).is_some_and(|text| text.contains("Danger of flooding") && !text.contains("remote")));
        tool = pump("Sets pump_id.");
        let complaint = Some("missing argument mode".to_owned());
        tool.seen = vec![Seen { given: vec!["pump_id".to_owned()], complaint, changed: false }];
        assert_eq!(faults(&tool), [Fault::NeededInFact("mode".to_owned())]);
        let mended = repaired(&tool).unwrap_or_default();
        assert!(mended.contains("`mode` (string, required"), "{mended}");
        tool.read_only = Some(true);
        tool.seen = vec![Seen { given: Vec::new(), complaint: None, changed: true }];
        assert_eq!(faults(&tool), [Fault::Harmful]);
    }
}

//! Home Assistant intents (hassil syntax) as a command set: rules, lists, permutations, wildcards.
//!
//! An intent becomes one command of the same name; its sentences become templates, rules written out. A list that the
//! files give becomes a slot with values; `area` and `name` come from the caller, and without values a slot takes any
//! text. What the files ask of the context (`requires_context`) is not known here: such a sentence counts only where no
//! other fits, because 打开 unlocks a lock and turns a lamp on. What else has no meaning here is left out and told of,
//! with the place where it first stands; what would change a value (`multiplier`) is refused.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use interlock_domain::command::definition::{Commands, Definition, Listed, Slot, SlotKind};
use interlock_domain::command::hazard;
use interlock_domain::command::template::{TEMPLATE_LEN_MAX, Template};
use interlock_domain::risk::Risk;

use super::commands::SKIP_WORDS_MAX;
use super::yaml::{self, Node};
use super::{ConfigError, hassil_syntax as syntax};
use syntax::{Part, Sentence};

/// Deepest rule in a rule.
const RULES_DEEP_MAX: usize = 16;

/// Values that one entry of a list may stand for: `(打开|开着|开了)[的]` stands for six.
const VALUES_OF_ENTRY_MAX: usize = 256;

/// Values of one list.
const VALUES_MAX: usize = 10_000;

/// A command set and what was left out of it.
#[derive(Debug, Default)]
pub struct Imported {
    /// The commands.
    pub commands: Commands,
    /// What was left out, for a person.
    pub remarks: Vec<String>,
}

/// One file.
pub struct Source {
    /// Its name for messages.
    pub path: PathBuf,
    /// What it holds.
    pub text: String,
}

/// Turns intent files into commands. `lists` are values that the caller knows: areas, names.
///
/// # Errors
/// The first mistake, with file and line.
pub fn import(sources: &[Source], lists: &BTreeMap<String, Vec<String>>) -> Result<Imported, ConfigError> {
    let mut house = House::default();
    let mut left = Left::default();
    let mut imported = Imported::default();
    let mut trees = Vec::new();
    for source in sources {
        let tree = yaml::read(&source.path, &source.text)?;
        house.learn(&source.path, &tree, &mut left)?;
        left.keys(&source.path, &tree, OF_FILE);
        left.skip_words(&source.path, &tree, &mut imported.commands.skip_words);
        trees.push((&source.path, tree));
    }
    for (name, values) in lists {
        let values = values.iter().map(|value| Listed { said: value.clone(), value: value.clone() }).collect();
        house.lists.insert(name.clone(), List::Values(values));
    }
    // In the order of the files: of two intents that fit, Home Assistant takes the first.
    let mut drafts: Vec<(String, Draft)> = Vec::new();
    imported.commands.first_wins = true;
    for (path, tree) in &trees {
        let Some(intents) = tree.get("intents") else { continue };
        for (intent, body) in intents.pairs() {
            let at = drafts.iter().position(|(known, _)| known == intent).unwrap_or_else(|| {
                drafts.push((intent.clone(), Draft::default()));
                drafts.len() - 1
            });
            let draft = &mut drafts[at].1;
            for block in body.get("data").map(Node::list).unwrap_or_default() {
                let mut local = house.clone();
                local.learn(path, block, &mut left)?;
                left.keys(path, block, OF_BLOCK);
                for sentence in block.get("sentences").map(Node::list).unwrap_or_default() {
                    draft.sentence(path, sentence, &local, block.get("requires_context").is_some())?;
                }
            }
        }
    }
    imported.remarks = left.remarks();
    let mut taken: Vec<String> = Vec::new();
    for (intent, draft) in drafts {
        if draft.templates.is_empty() && draft.fallback.is_empty() {
            imported.remarks.push(format!("{intent} has no sentences and was left out"));
            continue;
        }
        imported.commands.list.push(Arc::new(draft.command(intent, &mut taken)));
    }
    Ok(imported)
}

#[derive(Debug, Clone)]
enum List {
    Values(Vec<Listed>),
    Percent(Option<(i64, i64)>),
    Number(Option<(i64, i64)>),
    Any,
}

/// A key, and what is told when it is left out; none when it is read.
type Key = (&'static str, Option<&'static str>);

const OF_FILE: &[Key] = &[
    ("language", None),
    ("intents", None),
    ("lists", None),
    ("expansion_rules", None),
    ("skip_words", None),
    ("settings", Some("spaces never count here, and every sentence is compiled")),
    ("responses", Some("what is answered, the daemon says itself")),
];

const OF_BLOCK: &[Key] = &[
    ("sentences", None),
    ("lists", None),
    ("expansion_rules", None),
    ("requires_context", Some("the context is not known here: such sentences count only where no other fits")),
    ("excludes_context", Some("the context is not known here: such sentences count everywhere")),
    ("slots", Some("a value that is not said is not a slot here; the binding of the command gives it")),
    ("response", Some("what is answered, the daemon says itself")),
    ("required_keywords", Some("such sentences count without the keyword")),
    ("settings", Some("spaces never count here, and every sentence is compiled")),
    ("metadata", Some("nothing here reads it")),
    ("inferred_domain", Some("a command says what it acts on by its binding")),
    ("name_domains", Some("a name stands for one thing, whatever it is")),
];

const OF_RANGE: &[Key] = &[
    ("type", None),
    ("from", None),
    ("to", None),
    ("multiplier", None),
    ("step", Some("every number of the range is taken")),
    ("fractions", Some("every fraction of the range is taken")),
    ("digits", Some("numbers are taken in digits and in words")),
    ("words", Some("numbers are taken in digits and in words")),
    ("words_language", Some("numbers are taken in digits and in Chinese words")),
];

const OF_VALUE: &[Key] = &[
    ("in", None),
    ("out", None),
    ("context", Some("the context is not known here")),
    ("metadata", Some("nothing here reads it")),
];

const OF_WILDCARD: &[Key] = &[("wildcard", None)];

/// What was left out: how often, why, and where first.
#[derive(Default)]
struct Left {
    of: BTreeMap<(String, &'static str), (usize, String)>,
}

impl Left {
    fn note(&mut self, what: &str, why: &'static str, path: &Path, line: usize) {
        let place = || format!("{}:{line}", path.display());
        self.of.entry((what.to_owned(), why)).or_insert_with(|| (0, place())).0 += 1;
    }

    /// The keys of a map that are not read.
    fn keys(&mut self, path: &Path, node: &Node, keys: &[Key]) {
        for (name, value) in node.pairs() {
            match keys.iter().find(|(known, _)| known == name) {
                Some((_, None)) => {}
                Some((_, Some(why))) => self.note(name, why, path, value.line),
                None => self.note(name, "this build does not know it", path, value.line),
            }
        }
    }

    /// Words that may stand anywhere; what is a hazard is not passed over.
    fn skip_words(&mut self, path: &Path, tree: &Node, into: &mut Vec<String>) {
        for word in tree.get("skip_words").map(Node::list).unwrap_or_default() {
            let Some(text) = word.text().map(str::trim).filter(|text| !text.is_empty()) else { continue };
            if into.len() >= SKIP_WORDS_MAX {
                self.note("skip_words", "there are too many", path, word.line);
            } else if hazard::of_word(text).is_some() {
                let what = format!("skip_words: {text}");
                self.note(&what, "without it a sentence would mean something else", path, word.line);
            } else if !into.iter().any(|known| known == text) {
                into.push(text.to_owned());
            }
        }
    }

    fn remarks(&self) -> Vec<String> {
        let one = |((what, why), (times, place)): (&(String, &str), &(usize, String))| {
            let often = if *times == 1 { String::new() } else { format!(", {times} times") };
            format!("{place}: {what} is left out{often}: {why}")
        };
        self.of.iter().map(one).collect()
    }
}

/// Rules and lists that sentences may name.
#[derive(Debug, Clone, Default)]
struct House {
    rules: BTreeMap<String, (PathBuf, usize, Sentence)>,
    lists: BTreeMap<String, List>,
}

impl House {
    fn learn(&mut self, path: &Path, tree: &Node, left: &mut Left) -> Result<(), ConfigError> {
        let at = |node: &Node, message: String| ConfigError {
            line: node.line,
            column: 1,
            ..ConfigError::of_file(path, message)
        };
        for (name, rule) in tree.get("expansion_rules").map(Node::pairs).unwrap_or_default() {
            let text = rule.text().ok_or_else(|| at(rule, format!("the rule {name:?} is no text")))?;
            let read = syntax::parse(text).map_err(|fault| at(rule, format!("the rule {name:?}: {fault}")))?;
            self.rules.insert(name.clone(), (path.to_owned(), rule.line, read));
        }
        for (name, list) in tree.get("lists").map(Node::pairs).unwrap_or_default() {
            let kind = if let Some(range) = list.get("range") {
                let end = |key: &str| range.get(key).and_then(Node::text).and_then(|text| text.parse().ok());
                let ends = end("from").zip(end("to"));
                left.keys(path, range, OF_RANGE);
                if let Some(factor) = range.get("multiplier").filter(|factor| factor.text() != Some("1")) {
                    let message = format!("the list {name:?} multiplies what is said, which is not done here");
                    return Err(at(factor, message).hint("give the range in the unit that the command takes"));
                }
                if let Some((from, to)) = ends.filter(|(from, to)| from > to) {
                    return Err(at(range, format!("the range of the list {name:?} goes from {from} to {to}")));
                }
                match range.get("type").and_then(Node::text) {
                    Some("percentage") => List::Percent(ends),
                    Some(_) | None => List::Number(ends),
                }
            } else if let Some(values) = list.get("values") {
                let mut all = Vec::new();
                for value in values.list() {
                    left.keys(path, value, OF_VALUE);
                    let said = value.text().or(value.get("in").and_then(Node::text));
                    let said = said.ok_or_else(|| at(value, format!("a value of the list {name:?} has no text")))?;
                    let read = syntax::parse(said).map_err(|fault| at(value, format!("{said}: {fault}")))?;
                    let forms = read.forms(VALUES_OF_ENTRY_MAX).ok_or_else(|| {
                        at(value, format!("{said} stands for more than {VALUES_OF_ENTRY_MAX} texts, or for no text"))
                    })?;
                    let out = value.get("out").and_then(Node::text);
                    all.extend(forms.into_iter().map(|said| Listed { value: out.unwrap_or(&said).to_owned(), said }));
                    if all.len() > VALUES_MAX {
                        return Err(at(list, format!("the list {name:?} has more than {VALUES_MAX} values")));
                    }
                }
                if all.is_empty() {
                    return Err(at(list, format!("the list {name:?} has no values")));
                }
                List::Values(all)
            } else {
                left.keys(path, list, OF_WILDCARD);
                List::Any
            };
            self.lists.insert(name.clone(), kind);
        }
        Ok(())
    }
}

/// A command as it grows.
#[derive(Default)]
struct Draft {
    templates: Vec<Template>,
    /// Those that ask for a context.
    fallback: Vec<Template>,
    slots: Vec<Slot>,
    /// Which list stands behind a slot.
    lists: Vec<(String, String)>,
}

impl Draft {
    fn sentence(&mut self, path: &Path, node: &Node, house: &House, context: bool) -> Result<(), ConfigError> {
        let at = |message: String| ConfigError { line: node.line, column: 1, ..ConfigError::of_file(path, message) };
        let text = node.text().ok_or_else(|| at("a sentence is a text".to_owned()))?;
        let read = syntax::parse(text).map_err(|fault| at(format!("{text}: {fault}")))?;
        for branch in &read.branches {
            let mut source = String::new();
            self.write(branch, house, 0, &mut source).map_err(|fault| at(format!("{text}: {fault}")))?;
            let length = source.chars().count();
            if length > TEMPLATE_LEN_MAX {
                let fault = format!("{text}: written out it has {length} characters; {TEMPLATE_LEN_MAX} fit");
                return Err(at(fault).hint("take one of its rules apart into two sentences"));
            }
            let template =
                Template::parse(&source).map_err(|fault| at(format!("{text}: written out as {source}: {fault}")))?;
            let into = if context { &mut self.fallback } else { &mut self.templates };
            if !into.contains(&template) {
                into.push(template);
            }
        }
        Ok(())
    }

    /// Writes parts in the syntax of our templates: rules written out, permutations as choices.
    fn write(&mut self, parts: &[Part], house: &House, depth: usize, into: &mut String) -> Result<(), String> {
        for part in parts {
            match part {
                Part::Text(text) => into.extend(text.chars().filter(|ch| !ch.is_whitespace() && !is_mark(*ch))),
                Part::Choice { sentence, optional } => self.choice(sentence, *optional, house, depth, into)?,
                Part::Permutation(items) => {
                    let orders = syntax::orders(items.len());
                    into.push('(');
                    for (n, order) in orders.iter().enumerate() {
                        if n > 0 {
                            into.push('|');
                        }
                        for at in order {
                            self.choice(&items[*at], false, house, depth, into)?;
                        }
                    }
                    into.push(')');
                }
                Part::Rule(name) => {
                    if depth >= RULES_DEEP_MAX {
                        return Err(format!("the rule <{name}> is nested deeper than {RULES_DEEP_MAX}, or in itself"));
                    }
                    let (_, _, rule) = house.rules.get(name).ok_or_else(|| format!("there is no rule <{name}>"))?;
                    self.choice(&rule.clone(), false, house, depth + 1, into)?;
                }
                Part::List { list, slot } => {
                    let name = self.slot(list, slot, house)?;
                    into.push('{');
                    into.push_str(&name);
                    into.push('}');
                }
            }
        }
        Ok(())
    }

    fn choice(
        &mut self,
        sentence: &Sentence,
        optional: bool,
        house: &House,
        depth: usize,
        into: &mut String,
    ) -> Result<(), String> {
        let mut branches = Vec::new();
        let mut optional = optional;
        for branch in &sentence.branches {
            let mut one = String::new();
            self.write(branch, house, depth, &mut one)?;
            // An empty branch is the way to say "perhaps".
            if one.is_empty() {
                optional = true;
            } else if !branches.contains(&one) {
                branches.push(one);
            }
        }
        match (branches.as_slice(), optional) {
            ([], _) => {}
            ([only], false) => into.push_str(only),
            (all, false) => {
                into.push('(');
                into.push_str(&all.join("|"));
                into.push(')');
            }
            (all, true) => {
                into.push('[');
                into.push_str(&all.join("|"));
                into.push(']');
            }
        }
        Ok(())
    }

    /// The name of the slot that this list fills, made when it is new. Two lists for one slot are two slots: what they
    /// take is not the same.
    fn slot(&mut self, list: &str, slot: &str, house: &House) -> Result<String, String> {
        let clean = |name: &str| -> String {
            name.chars().map(|ch| if ch.is_ascii_alphanumeric() { ch } else { '_' }).collect()
        };
        if let Some((name, _)) = self.lists.iter().find(|(name, of)| of == list && name.starts_with(&clean(slot))) {
            return Ok(name.clone());
        }
        let taken = |name: &str, slots: &[Slot]| slots.iter().any(|slot| slot.name == name);
        let mut name = clean(slot);
        for n in 2.. {
            if !taken(&name, &self.slots) {
                break;
            }
            name = format!("{}_{n}", clean(slot));
        }
        let (kind, values, range) = match house.lists.get(list) {
            Some(List::Values(values)) => (SlotKind::List, values.clone(), None),
            Some(List::Percent(range)) => (SlotKind::Percent, Vec::new(), *range),
            Some(List::Number(range)) => (SlotKind::Number, Vec::new(), *range),
            Some(List::Any) | None => (SlotKind::Free, Vec::new(), None),
        };
        self.lists.push((name.clone(), list.to_owned()));
        self.slots.push(Slot { values, range, ..Slot::of(&name, kind, false) });
        Ok(name)
    }

    fn command(self, intent: String, taken: &mut Vec<String>) -> Definition {
        let shown =
            self.templates.iter().chain(&self.fallback).map(|template| syntax::shown(&template.parts, &self.slots));
        let text = shown.filter(|text| !text.is_empty()).find(|text| !taken.contains(text)).unwrap_or(intent.clone());
        taken.push(text.clone());
        Definition {
            risk: risk(&intent),
            id: intent,
            text,
            aliases: Vec::new(),
            patterns: self.templates,
            fallback: self.fallback,
            slots: self.slots,
            category: "home-assistant".to_owned(),
            protective: false,
            bind: Vec::new(),
        }
    }
}

/// Punctuation: it is not said, and utterances come without it.
fn is_mark(ch: char) -> bool {
    matches!(ch, '，' | '。' | '？' | '！' | ',' | '?' | '!' | '、' | '\'' | '"')
}

/// What an intent may do is in its name; what is not known to read, acts.
fn risk(intent: &str) -> Risk {
    let reads = ["Get", "Status", "Nevermind", "Respond"];
    if reads.iter().any(|word| intent.contains(word)) { Risk::Read } else { Risk::Operate }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(name: &str, text: &str) -> Source {
        Source { path: PathBuf::from(name), text: text.to_owned() }
    }

    const COMMON: &str = "\
lists:
  brightness: {range: {type: percentage, from: 0, to: 100}}
  level:
    values:
      - in: \"最(亮|高)\"
        out: 100
      - 暗
  anything: {wildcard: true}
expansion_rules:
  name: \"{name}[的]\"
  on: \"打开|开启\"
";

    fn check(sentences: &str, templates: &[&str], slots: &[(&str, SlotKind)]) {
        let intents = format!("intents:\n  HassTurnOn:\n    data:\n      - sentences: [{sentences}]\n");
        let sources = [source("_common.yaml", COMMON), source("x.yaml", &intents)];
        let lists = BTreeMap::from([("name".to_owned(), vec!["吊扇".to_owned()])]);
        let imported = import(&sources, &lists).expect("imports").commands;
        let command = &imported.list[0];
        let found: Vec<&str> = command.patterns.iter().map(|pattern| pattern.source.as_str()).collect();
        assert_eq!(found, templates, "{sentences}");
        let found: Vec<(&str, SlotKind)> = command.slots.iter().map(|slot| (slot.name.as_str(), slot.kind)).collect();
        assert_eq!(found, slots, "{sentences}");
    }

    #[test]
    fn rules_lists_permutations_and_wildcards_are_written_out() {
        let name = ("name", SlotKind::List);
        check("\"<on><name>灯\"", &["(打开|开启){name}[的]灯"], &[name]);
        check("\"[请 ]<on>|关\"", &["[请](打开|开启)", "关"], &[]);
        check(
            "\"(把;{name};打开)\"",
            &["(把{name}打开|把打开{name}|{name}把打开|{name}打开把|打开把{name}|打开{name}把)"],
            &[name],
        );
        check("\"亮度{brightness}[%]\"", &["亮度{brightness}[%]"], &[("brightness", SlotKind::Percent)]);
        check(
            "\"亮度{brightness}\", \"亮度{level:brightness}\"",
            &["亮度{brightness}", "亮度{brightness_2}"],
            &[("brightness", SlotKind::Percent), ("brightness_2", SlotKind::List)],
        );
        check("\"说{anything:what}(吧|)\"", &["说{what}[吧]"], &[("what", SlotKind::Free)]);
        check("\"打开{area}灯\"", &["打开{area}灯"], &[("area", SlotKind::Free)]);
    }

    #[test]
    fn a_range_is_kept_and_one_that_is_upside_down_is_refused() {
        let intents = "intents:\n  A:\n    data:\n      - sentences: [\"亮度{brightness}\"]\n";
        let sources = [source("_common.yaml", COMMON), source("x.yaml", intents)];
        let imported = import(&sources, &BTreeMap::new()).expect("imports").commands;
        assert_eq!(imported.list[0].slots[0].range, Some((0, 100)));
        assert!(imported.list[0].slots[0].is_implausible(150.0) && !imported.list[0].slots[0].is_implausible(100.0));
        let upside = COMMON.replace("from: 0, to: 100", "from: 100, to: 0");
        let error = import(&[source("_common.yaml", &upside)], &BTreeMap::new()).expect_err("refused").to_string();
        assert!(error.ends_with("the range of the list \"brightness\" goes from 100 to 0"), "{error}");
    }

    #[test]
    fn words_to_skip_are_kept_unless_they_are_a_hazard_and_what_is_left_out_is_told_with_its_place() {
        let common =
            "skip_words: [请, 麻烦你, 不要, 请]\nresponses: {}\nlists:\n  n: {range: {from: 0, to: 10, step: 2}}\n";
        let intents = "\
intents:
  A:
    data:
      - sentences: [\"开{n}\"]
        requires_context: {domain: lock}
        response: one
      - sentences: [\"关{n}\"]
        requires_context: {domain: lock}
        nonsense: 1
";
        let imported =
            import(&[source("_common.yaml", common), source("x.yaml", intents)], &BTreeMap::new()).expect("imports");
        assert_eq!(imported.commands.skip_words, ["请", "麻烦你"]);
        assert_eq!(imported.commands.list[0].fallback.len(), 2);
        assert_eq!(
            imported.remarks,
            [
                "x.yaml:9: nonsense is left out: this build does not know it",
                "x.yaml:5: requires_context is left out, 2 times: the context is not known here: such sentences count \
                 only where no other fits",
                "x.yaml:6: response is left out: what is answered, the daemon says itself",
                "_common.yaml:2: responses is left out: what is answered, the daemon says itself",
                "_common.yaml:1: skip_words: 不要 is left out: without it a sentence would mean something else",
                "_common.yaml:4: step is left out: every number of the range is taken",
            ]
        );
    }

    #[test]
    fn what_would_change_a_value_is_refused() {
        let check = |range: &str, expected: Option<&str>| {
            let text = format!("lists:\n  n: {{range: {{from: 0, to: 10, multiplier: {range}}}}}\n");
            let error = import(&[source("x.yaml", &text)], &BTreeMap::new()).err().map(|error| error.to_string());
            assert_eq!(error.as_deref(), expected, "{range}");
        };
        check("1", None);
        check("100", Some("x.yaml:2:1: the list \"n\" multiplies what is said, which is not done here"));
    }

    #[test]
    fn a_mistake_names_file_and_line() {
        let check = |text: &str, expected: &str| {
            let error = import(&[source("x.yaml", text)], &BTreeMap::new()).expect_err("refused");
            assert_eq!(error.to_string(), expected);
        };
        let intents = "intents:\n  A:\n    data:\n      - sentences:\n          - ";
        check(&format!("{intents}\"<on>灯\"\n"), "x.yaml:5:1: <on>灯: there is no rule <on>");
        check(&format!("{intents}\"(开\"\n"), "x.yaml:5:1: (开: '(' at character 1 is not closed");
        let own = format!("expansion_rules:\n  a: \"<a>\"\n{intents}\"<a>\"\n");
        check(&own, "x.yaml:7:1: <a>: the rule <a> is nested deeper than 16, or in itself");
    }
}

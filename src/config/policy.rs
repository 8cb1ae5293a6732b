//! The rules of a configuration, and policy files: each rule with the examples that its writer had in mind.
//!
//! An example is checked when the file is read, by the rule alone and by the code that judges calls. A rule that does
//! not do what its writer thought refuses the whole file: a deny that misses its example is a hole, an allow that covers
//! one it should not is a wider one.

use std::path::{Path, PathBuf};

use interlock_domain::gate::check::covers_example;
use interlock_domain::gate::rule::{Authority, Rule, Verb};
use interlock_domain::request::paths::PathFacts;
use serde::Deserialize;
use toml::{Spanned, Value};

use super::ConfigError;

/// The most rules of all files together. Each call is held against every one of them.
const RULES_MAX: usize = 2000;

/// The most examples beside one rule; each is judged at every start.
const EXAMPLES_MAX: usize = 100;

/// A file of rules only: `[policy] files`, or `policy check --policy`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct PolicyFile {
    /// Who stands behind the rules: `config` (the default), or `managed` for those of a fleet's owner.
    authority: Option<Spanned<String>>,
    #[serde(default)]
    allow: Vec<Spanned<Value>>,
    #[serde(default)]
    ask: Vec<Spanned<Value>>,
    #[serde(default)]
    deny: Vec<Spanned<Value>>,
}

/// A text and the place that it comes from, for messages.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    pub(super) path: &'a Path,
    pub(super) text: &'a str,
}

impl Source<'_> {
    fn wrong(self, at: &Spanned<Value>, message: impl Into<String>) -> ConfigError {
        ConfigError::at(self.path, self.text, at.span(), message)
    }
}

/// The three lists of a file, in the order in which their rules are made.
pub(super) type Lists<'a> = [(Verb, &'a [Spanned<Value>]); 3];

/// Reads the rules of one file, each with its examples. `ground` is where relative paths of examples begin.
pub(super) fn rules(
    source: Source<'_>,
    lists: Lists<'_>,
    authority: Authority,
    ground: Option<&PathBuf>,
) -> Result<Vec<Rule>, ConfigError> {
    let anchor = source.path.parent().and_then(Path::to_str);
    let facts = PathFacts {
        cwd: ground.and_then(|dir| dir.to_str()).unwrap_or("/srv/interlock").to_owned(),
        home: Some("/home/operator".to_owned()),
        ..PathFacts::default()
    };
    let mut rules = Vec::new();
    for (verb, list) in lists {
        for item in list {
            if rules.len() == RULES_MAX {
                return Err(source.wrong(item, format!("there are more than {RULES_MAX} rules")));
            }
            let Written { rule, matches, misses } = written(source, item)?;
            let rule = Rule::parse(verb, rule, authority, anchor).map_err(|bad| source.wrong(item, bad.to_string()))?;
            for (example, wanted) in
                matches.iter().map(|example| (example, true)).chain(misses.iter().map(|example| (example, false)))
            {
                let covers =
                    covers_example(&rule, example, &facts).map_err(|bad| source.wrong(item, bad.to_string()))?;
                if covers != wanted {
                    return Err(failed(source, item, &rule, example, wanted));
                }
            }
            rules.push(rule);
        }
    }
    Ok(rules)
}

fn failed(source: Source<'_>, item: &Spanned<Value>, rule: &Rule, example: &str, wanted: bool) -> ConfigError {
    let (fact, hint) = if wanted {
        ("does not cover its example", "change the rule, or move the example to not-match")
    } else {
        ("covers what it must not", "make the rule narrower, or move the example to match")
    };
    source.wrong(item, format!("rule {:?} {fact} {example:?}", rule.text())).hint(hint)
}

/// One element of a list: a text, or a table with the rule and its examples.
struct Written<'a> {
    rule: &'a str,
    matches: Vec<&'a str>,
    misses: Vec<&'a str>,
}

fn written<'a>(source: Source<'_>, item: &'a Spanned<Value>) -> Result<Written<'a>, ConfigError> {
    let table = match item.get_ref() {
        Value::String(rule) => return Ok(Written { rule, matches: Vec::new(), misses: Vec::new() }),
        Value::Table(table) => table,
        Value::Integer(_) | Value::Float(_) | Value::Boolean(_) | Value::Datetime(_) | Value::Array(_) => {
            return Err(source.wrong(item, "a rule is a text, or a table with rule, match and not-match"));
        }
    };
    if let Some(unknown) = table.keys().find(|key| !matches!(key.as_str(), "rule" | "match" | "not-match")) {
        return Err(source
            .wrong(item, format!("unknown field `{unknown}` of a rule"))
            .hint("a rule has rule, match and not-match"));
    }
    let rule = table.get("rule").and_then(Value::as_str);
    let rule = rule.ok_or_else(|| source.wrong(item, "the table has no rule, a text"))?;
    let examples = |key: &str| -> Result<Vec<&'a str>, ConfigError> {
        let Some(list) = table.get(key) else { return Ok(Vec::new()) };
        let list = list.as_array().filter(|list| list.len() <= EXAMPLES_MAX);
        let texts = list.and_then(|list| list.iter().map(Value::as_str).collect::<Option<Vec<_>>>());
        texts.ok_or_else(|| source.wrong(item, format!("{key} is no list of at most {EXAMPLES_MAX} texts")))
    };
    Ok(Written { rule, matches: examples("match")?, misses: examples("not-match")? })
}

/// Reads a policy file.
///
/// # Errors
/// The first mistake of the file, a failing example among them.
pub fn file(path: &Path, ground: Option<&PathBuf>) -> Result<Vec<Rule>, ConfigError> {
    let text = super::read(path)?;
    let file: PolicyFile = toml::from_str(&text).map_err(|error| ConfigError::from_toml(path, &text, &error))?;
    let authority = match file.authority.as_ref().map(|word| (word.get_ref().as_str(), word.span())) {
        None | Some(("config", _)) => Authority::Config,
        Some(("managed", _)) => Authority::Managed,
        Some((other, span)) => {
            let message = format!("{other:?} is no authority that a file may have");
            return Err(ConfigError::at(path, &text, span, message).hint("\"config\" or \"managed\""));
        }
    };
    let lists = [(Verb::Deny, &*file.deny), (Verb::Ask, &*file.ask), (Verb::Allow, &*file.allow)];
    rules(Source { path, text: &text }, lists, authority, ground)
}

/// The rules of a file that is a policy file, or a whole configuration.
///
/// # Errors
/// As [`file()`], or as [`super::load`].
pub fn of_either(path: &Path) -> Result<Vec<Rule>, ConfigError> {
    let text = super::read(path)?;
    let table: toml::Table = toml::from_str(&text).map_err(|error| ConfigError::from_toml(path, &text, &error))?;
    if table.contains_key("version") { Ok(super::load(Some(path))?.rules.all().to_vec()) } else { file(path, None) }
}

/// Who gives an opinion on calls where the mode asks nobody.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Classifier {
    /// A program and its arguments.
    Command(Vec<String>),
    /// The language model of `[agent]`.
    Model,
}

/// Reads `[policy] classifier`; `has_model` says that there is an `[agent]`.
pub(super) fn classifier(
    source: Source<'_>,
    written: Option<&Spanned<Value>>,
    has_model: bool,
) -> Result<Option<Classifier>, ConfigError> {
    let Some(written) = written else { return Ok(None) };
    let hint = "[\"/path/to/program\", \"argument\"], or \"model\" for the language model of [agent]";
    match written.get_ref() {
        Value::String(word) if word == "model" && has_model => Ok(Some(Classifier::Model)),
        Value::String(word) if word == "model" => {
            Err(source.wrong(written, "there is no language model to ask").hint("add [agent], or name a program"))
        }
        Value::String(word) => Err(source.wrong(written, format!("{word:?} is no classifier")).hint(hint)),
        Value::Array(words) => {
            let words = words.iter().map(|word| word.as_str().map(str::to_owned)).collect::<Option<Vec<String>>>();
            match words.filter(|words| words.first().is_some_and(|program| !program.is_empty())) {
                Some(command) => Ok(Some(Classifier::Command(command))),
                None => Err(source.wrong(written, "a classifier is a program and its arguments").hint(hint)),
            }
        }
        Value::Integer(_) | Value::Float(_) | Value::Boolean(_) | Value::Datetime(_) | Value::Table(_) => {
            Err(source.wrong(written, "a classifier is a program and its arguments").hint(hint))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::check;
    use super::*;

    fn message(text: &str) -> String {
        check(Path::new("a.toml"), text).map(|config| config.rules.all().len().to_string()).unwrap_or_else(|error| {
            assert!(error.line > 0 && !error.key.is_empty(), "{error:?}");
            format!("{}:{} {}", error.line, error.key, error.message)
        })
    }

    #[test]
    fn a_rule_whose_example_fails_refuses_the_file_with_its_place() {
        let table = [
            ("allow = [\"Bash(git log:*)\"]", "1"),
            (
                "allow = [{ rule = \"Bash(git log:*)\", match = [\"git log -5\"], not-match = [\"git log; rm x\"] }]",
                "1",
            ),
            (
                "deny = [\n\"Bash(x)\",\n{ rule = \"Bash(rm:*)\", match = [\"ls\"] }]",
                "5:policy.deny rule \"Bash(rm:*)\" does not cover its example \"ls\"",
            ),
            (
                "allow = [{ rule = \"Bash(git*)\", not-match = [\"git push\"] }]",
                "3:policy.allow rule \"Bash(git*)\" covers what it must not \"git push\"",
            ),
            (
                "ask = [{ rule = \"Device(risk:dangerous)\", match = [\"breaker-1\"] }]",
                "3:policy.ask rule \"Device(risk:dangerous)\": its example \"breaker-1\" is not DEVICE:ACTION",
            ),
            ("ask = [{ rule = \"Bash\", matches = [] }]", "3:policy.ask unknown field `matches` of a rule"),
            ("ask = [{ match = [] }]", "3:policy.ask the table has no rule, a text"),
            ("ask = [1]", "3:policy.ask a rule is a text, or a table with rule, match and not-match"),
            ("ask = [{ rule = \"Bash\", match = \"ls\" }]", "3:policy.ask match is no list of at most 100 texts"),
        ];
        for (text, want) in table {
            assert_eq!(message(&format!("version = 1\n[policy]\n{text}\n")), want, "{text}");
        }
    }

    #[test]
    fn a_classifier_is_a_program_or_the_model_that_there_is() {
        let of = |written: &str, agent: &str| {
            let text = format!("version = 1\n[policy]\nclassifier = {written}\n{agent}");
            check(Path::new("a.toml"), &text).map(|config| config.classifier).map_err(|error| {
                assert!(error.line == 3 && error.key == "policy.classifier" && error.hint.is_some(), "{error:?}");
                error.message
            })
        };
        let agent = "[agent]\nendpoint = \"http://127.0.0.1:1/v1\"\nmodel = \"m\"\n";
        let command = Classifier::Command(vec!["/bin/judge".to_owned(), "-q".to_owned()]);
        assert_eq!(of("[\"/bin/judge\", \"-q\"]", ""), Ok(Some(command)));
        assert_eq!(of("\"model\"", agent), Ok(Some(Classifier::Model)));
        let refused = [
            ("\"model\"", "there is no language model to ask"),
            ("\"modell\"", "\"modell\" is no classifier"),
            ("[]", "a classifier is a program and its arguments"),
            ("[\"\"]", "a classifier is a program and its arguments"),
            ("[\"a\", 1]", "a classifier is a program and its arguments"),
            ("true", "a classifier is a program and its arguments"),
        ];
        for (written, want) in refused {
            assert_eq!(of(written, ""), Err(want.to_owned()), "{written}");
        }
    }

    #[test]
    fn a_policy_file_adds_its_rules_under_its_authority() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("fleet.toml");
        let write = |text: &str| std::fs::write(&path, text).unwrap();
        write("authority = \"managed\"\ndeny = [{ rule = \"Bash(rm:*)\", match = [\"sudo rm x\"] }]\n");
        let config = check(&dir.path().join("a.toml"), "version = 1\n[policy]\nfiles = [\"fleet.toml\"]\n").unwrap();
        let rules: Vec<_> = config.rules.all().iter().map(|rule| (rule.text(), rule.authority())).collect();
        assert_eq!(rules, [("Bash(rm:*)", Authority::Managed)]);
        assert_eq!(of_either(&path).unwrap().len(), 1);
        write("authority = \"root\"\n");
        assert_eq!(file(&path, None).unwrap_err().message, "\"root\" is no authority that a file may have");
        write("denies = []\n");
        assert!(file(&path, None).unwrap_err().message.starts_with("unknown field"));
    }
}

//! One line of `policy check`: a call, a policy and facts as JSON, decided by the very code that the daemon uses.
//!
//! The keys are those of the command line's contract; a key that is not known is ignored and named. What the line does
//! not say is the weakest: no working directory, no home, an asker who is no operator.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};
use thiserror::Error;

use crate::request::paths::PathFacts;
use crate::request::why::Step;
use crate::request::{Asker, Classifier, Via};
use crate::risk::Risk;
use crate::surface::contract::Contract;
use crate::surface::nature::{Class, Deed, Keys, Nature};
use crate::surface::shell::Script;

use super::decide::{Case, Decision, Verdict, decide};
use super::matches::matched;
use super::policy::{Mode, Policy, RuleOrder};
use super::rule::{Authority, BadRule, Matcher, Rule, Rules, Verb};
use super::shell;

/// A line that cannot be decided.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BadLine {
    /// A member is missing or is of the wrong kind.
    #[error("{key}: {expected}")]
    Member {
        /// Which.
        key: String,
        /// What belongs there.
        expected: String,
    },
    /// A rule cannot be read.
    #[error(transparent)]
    Rule(#[from] BadRule),
}

/// What `policy check` says about one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checked {
    /// The line's own id.
    pub id: Value,
    /// The decision.
    pub decision: Decision,
    /// The tools of MCP servers that a model would see, when the line lists servers.
    pub visible: Option<Vec<String>>,
    /// What its writer should know: ignored keys, a clamped mode, warnings about rules.
    pub diagnostics: Vec<String>,
}

const KNOWN: &[&str] = &[
    "asker",
    "call",
    "child_requested_mode",
    "classifier",
    "classifier_fails_open",
    "confirm_protective",
    "cwd",
    "devices",
    "dirs",
    "flatten",
    "grants",
    "headless",
    "home",
    "hook_after_check",
    "id",
    "mcp",
    "mode",
    "own_paths",
    "own_secrets",
    "parent_mode",
    "protective",
    "repeat",
    "rule_order",
    "rules",
    "symlinks",
    "work_dirs",
];

/// Decides one line. `more` are the rules of a policy file, older than those of the line.
///
/// # Errors
/// When the line has no call, or something in it cannot be read.
pub fn check(line: &Value, more: &[Rule]) -> Result<Checked, BadLine> {
    let line = line.as_object().ok_or_else(|| bad("line", "an object"))?;
    let mut diagnostics: Vec<String> = line
        .keys()
        .filter(|key| !KNOWN.contains(&key.as_str()))
        .map(|key| format!("unknown key {key:?} was ignored"))
        .collect();
    let rules = rules(line, more)?;
    diagnostics.extend(rules.iter().filter_map(|rule| rule.warning().map(str::to_owned)));
    let policy = policy(line, rules, &mut diagnostics)?;
    let facts = facts(line)?;
    let call = object(line, "call")?.ok_or_else(|| bad("call", "an object with tool and input"))?;
    let visible = visible(line, &policy)?;
    let mut input = object(call, "input")?.cloned().unwrap_or_default();
    let hook = object(line, "hook_after_check")?;
    if let Some(updated) = hook.map(|hook| object(hook, "updatedInput")).transpose()?.flatten() {
        input.clone_from(updated);
    }
    let mut decision = match nature(line, call, &input)? {
        Err(reason) => refused(reason),
        Ok(nature) => {
            let classifier = word(line, "classifier", classifier)?;
            let protective = flag(line, "protective")?;
            decide(&policy, Case { nature: &nature, facts: &facts, protective, classifier })
        }
    };
    // A hook may deny or ask; its allow changes nothing.
    let said = hook.and_then(|hook| hook.get("permissionDecision")).and_then(Value::as_str);
    let stricter = match said {
        Some("deny") => Some(Verdict::Deny),
        Some("ask") => Some(Verdict::Ask),
        Some(_) | None => None,
    };
    if let Some(stricter) = stricter.filter(|stricter| *stricter > decision.verdict) {
        let reason = format!("a hook says {}", stricter.word());
        decision = Decision { verdict: stricter, ..refused(reason) };
        if stricter == Verdict::Ask && (policy.mode == Mode::DontAsk || !policy.answerable) {
            decision = Decision { verdict: Verdict::Deny, nobody_to_ask: true, ..decision };
        }
    }
    Ok(Checked { id: line.get("id").cloned().unwrap_or(Value::Null), decision, visible, diagnostics })
}

fn refused(reason: String) -> Decision {
    Decision {
        verdict: Verdict::Deny,
        step: Step::Precondition,
        rule: None,
        reason,
        resolved: None,
        nobody_to_ask: false,
        protective: false,
    }
}

fn bad(key: &str, expected: &str) -> BadLine {
    BadLine::Member { key: key.to_owned(), expected: format!("must be {expected}") }
}

fn object<'a>(within: &'a Map<String, Value>, key: &str) -> Result<Option<&'a Map<String, Value>>, BadLine> {
    match within.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Object(object)) => Ok(Some(object)),
        Some(_) => Err(bad(key, "an object")),
    }
}

fn list<'a>(within: &'a Map<String, Value>, key: &str) -> Result<&'a [Value], BadLine> {
    match within.get(key) {
        None | Some(Value::Null) => Ok(&[]),
        Some(Value::Array(items)) => Ok(items),
        Some(_) => Err(bad(key, "a list")),
    }
}

fn text<'a>(within: &'a Map<String, Value>, key: &str) -> Result<Option<&'a str>, BadLine> {
    match within.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(bad(key, "a text")),
    }
}

fn texts(within: &Map<String, Value>, key: &str) -> Result<Vec<String>, BadLine> {
    let text = |item: &Value| item.as_str().map(str::to_owned).ok_or_else(|| bad(key, "a list of texts"));
    list(within, key)?.iter().map(text).collect()
}

fn flag(within: &Map<String, Value>, key: &str) -> Result<bool, BadLine> {
    match within.get(key) {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(flag)) => Ok(*flag),
        Some(_) => Err(bad(key, "true or false")),
    }
}

fn word<T>(within: &Map<String, Value>, key: &str, read: impl Fn(&str) -> Option<T>) -> Result<Option<T>, BadLine> {
    text(within, key)?
        .map(|word| read(word).ok_or_else(|| bad(key, &format!("a known word, not {word:?}"))))
        .transpose()
}

fn classifier(word: &str) -> Option<Classifier> {
    match word {
        "allow" => Some(Classifier::Allow),
        "ask" => Some(Classifier::Ask),
        "deny" => Some(Classifier::Deny),
        "fail" => Some(Classifier::Fail),
        _ => None,
    }
}

fn via(word: &str) -> Option<Via> {
    [Via::Voice, Via::Cli, Via::Mcp, Via::Agent, Via::Plant].into_iter().find(|via| via.word() == word)
}

fn order(word: &str) -> Option<RuleOrder> {
    match word {
        "strictest" => Some(RuleOrder::Strictest),
        "authority" => Some(RuleOrder::Authority),
        _ => None,
    }
}

fn rules(line: &Map<String, Value>, more: &[Rule]) -> Result<Vec<Rule>, BadLine> {
    let mut rules = more.to_vec();
    if let Some(table) = object(line, "rules")? {
        for (key, verb) in [("allow", Verb::Allow), ("ask", Verb::Ask), ("deny", Verb::Deny)] {
            for item in list(table, key)? {
                let (rule, authority) = match item {
                    Value::String(rule) => (rule.as_str(), Authority::Config),
                    Value::Object(item) => {
                        let rule = text(item, "rule")?.ok_or_else(|| bad("rule", "a text"))?;
                        (rule, word(item, "authority", Authority::from_word)?.unwrap_or(Authority::Config))
                    }
                    Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => {
                        return Err(bad(key, "a list of rules"));
                    }
                };
                rules.push(Rule::parse(verb, rule, authority, None)?);
            }
        }
    }
    for grant in list(line, "grants")? {
        let grant = grant.as_object().ok_or_else(|| bad("grants", "a list of {server, tool}"))?;
        let (server, tool) = pair(grant)?;
        rules.push(Rule::grant(server, tool, Authority::Persistent));
    }
    Ok(rules)
}

fn pair(within: &Map<String, Value>) -> Result<(&str, &str), BadLine> {
    let server = text(within, "server")?.ok_or_else(|| bad("server", "a text"))?;
    let tool = text(within, "tool")?.ok_or_else(|| bad("tool", "a text"))?;
    Ok((server, tool))
}

fn policy(line: &Map<String, Value>, rules: Vec<Rule>, diagnostics: &mut Vec<String>) -> Result<Policy, BadLine> {
    let asker = Asker { via: word(line, "asker", via)?.unwrap_or(Via::Agent), name: "policy check".to_owned() };
    let policy = Policy {
        mode: word(line, "mode", Mode::from_word)?.unwrap_or(Mode::Default),
        rules: Arc::new(Rules::new(rules)),
        order: word(line, "rule_order", order)?.unwrap_or_default(),
        answerable: !flag(line, "headless")?,
        confirm_protective: flag(line, "confirm_protective")?,
        classifier_fails_open: flag(line, "classifier_fails_open")?,
        own_paths: texts(line, "own_paths")?.into(),
        own_secrets: texts(line, "own_secrets")?.into(),
        ..Policy::plain(asker.clone())
    };
    let Some(parent) = word(line, "parent_mode", Mode::from_word)? else { return Ok(policy) };
    let wanted = word(line, "child_requested_mode", Mode::from_word)?.unwrap_or(policy.mode);
    let child = Policy { mode: parent, ..policy }.narrowed(asker, wanted);
    if child.mode != wanted {
        diagnostics.push("mode_clamped".to_owned());
    }
    Ok(child)
}

fn facts(line: &Map<String, Value>) -> Result<PathFacts, BadLine> {
    let mut links = BTreeMap::new();
    for (link, target) in object(line, "symlinks")?.into_iter().flatten() {
        let target = target.as_str().ok_or_else(|| bad("symlinks", "a table of paths"))?;
        links.insert(link.clone(), target.to_owned());
    }
    Ok(PathFacts {
        cwd: text(line, "cwd")?.unwrap_or("").to_owned(),
        home: text(line, "home")?.map(str::to_owned),
        work_dirs: texts(line, "work_dirs")?,
        links,
    })
}

/// What the call is by nature, or why it is none.
fn nature(
    line: &Map<String, Value>,
    call: &Map<String, Value>,
    input: &Map<String, Value>,
) -> Result<Result<Nature, String>, BadLine> {
    let tool = text(call, "tool")?.ok_or_else(|| bad("call.tool", "a text"))?;
    if let Some(server) = text(call, "server")? {
        return mcp(line, server, tool);
    }
    let member = |keys: &[&str]| keys.iter().find_map(|key| input.get(*key)).and_then(Value::as_str);
    let needs = |key: &str| format!("{tool} needs {key}, a text");
    let path = || member(&["file_path", "path", "notebook_path"]);
    Ok(match tool {
        "Bash" | "shell" => match member(&["command"]) {
            Some(command) => {
                let script = Arc::new(Script::parse(command));
                // Names that are protected anywhere are so also where nobody says from where they are meant.
                let somewhere = text(line, "cwd")?.is_none_or(str::is_empty).then_some("/");
                let cwd = member(&["cwd"]).or(somewhere).map(str::to_owned);
                Ok(deed(Deed::Shell { script, cwd }, Risk::Operate))
            }
            None => Err(needs("command")),
        },
        "Read" | "read_file" | "NotebookRead" => {
            let read = |path: &str| deed(Deed::Read { path: path.to_owned(), below: false }, Risk::Read);
            path().map(read).ok_or_else(|| needs("file_path"))
        }
        // Both give names; only a search reads what is in the files.
        "Glob" | "LS" | "Grep" => {
            let path = path().unwrap_or(".").to_owned();
            Ok(deed(Deed::Read { path, below: tool == "Grep" }, Risk::Read))
        }
        "Edit" | "Write" | "MultiEdit" | "NotebookEdit" | "write_file" => path()
            .map(|path| deed(Deed::Write { path: path.to_owned() }, Risk::Operate))
            .ok_or_else(|| needs("file_path")),
        "WebFetch" | "http" => match member(&["url"]) {
            Some(url) => {
                let reads = member(&["method"]).is_none_or(|method| matches!(method, "GET" | "HEAD"));
                Ok(deed(Deed::Fetch { url: url.to_owned(), reads }, if reads { Risk::Read } else { Risk::Operate }))
            }
            None => Err(needs("url")),
        },
        "Device" | "device" => match (member(&["device"]), member(&["action"])) {
            (Some(device), Some(action)) => self::device(line, device, action)?,
            _ => Err(needs("device and action")),
        },
        name if name.starts_with("mcp__") => {
            let listed = servers(line)?.into_iter().find(|(server, tool)| wire(server, tool) == name);
            match listed.or_else(|| name[5..].split_once("__")) {
                Some((server, tool)) => mcp(line, server, tool)?,
                None => Err(format!("{name} names no tool of a server")),
            }
        }
        other => {
            let verb = member(&["verb"]).map(str::to_owned);
            Ok(deed(Deed::Own { tool: other.to_owned(), verb }, Risk::Operate))
        }
    })
}

fn deed(deed: Deed, risk: Risk) -> Nature {
    Nature {
        deed,
        class: Class::Exclusive,
        keys: Keys::default(),
        risk,
        protective: false,
        contract: Arc::new(Contract::weakest("check")),
        patience: Duration::ZERO,
    }
}

fn device(line: &Map<String, Value>, name: &str, action: &str) -> Result<Result<Nature, String>, BadLine> {
    let devices = list(line, "devices")?;
    let mut zone = None;
    let mut risk = if action == "read" { Risk::Read } else { Risk::Operate };
    let mut protective = false;
    if !devices.is_empty() {
        let found = devices
            .iter()
            .filter_map(Value::as_object)
            .find(|device| device.get("name").and_then(Value::as_str) == Some(name));
        let Some(found) = found else { return Ok(Err(format!("there is no device {name:?}"))) };
        zone = text(found, "zone")?.map(str::to_owned);
        let table = match object(found, "risk")? {
            Some(table) => Some(table),
            None => object(found, "actions")?,
        };
        if let Some(table) = table {
            match word(table, action, Risk::from_word)? {
                Some(declared) => risk = declared,
                None if action == "read" => {}
                None => return Ok(Err(format!("device {name} has no action {action:?}"))),
            }
        }
        protective = texts(found, "protective")?.iter().any(|one| one == action);
    }
    let nature = deed(Deed::Device { device: name.to_owned(), action: action.to_owned(), zone }, risk);
    Ok(Ok(Nature { protective, ..nature }))
}

fn servers(line: &Map<String, Value>) -> Result<Vec<(&str, &str)>, BadLine> {
    let one = |item: &'_ Value| item.as_object().is_some();
    if !list(line, "mcp")?.iter().all(one) {
        return Err(bad("mcp", "a list of {server, tool}"));
    }
    list(line, "mcp")?.iter().filter_map(Value::as_object).map(pair).collect()
}

fn mcp(line: &Map<String, Value>, server: &str, tool: &str) -> Result<Result<Nature, String>, BadLine> {
    let listed = servers(line)?;
    if !listed.is_empty() && !listed.contains(&(server, tool)) {
        return Ok(Err(format!("server {server:?} has no tool {tool:?}")));
    }
    Ok(Ok(deed(Deed::Mcp { server: server.to_owned(), tool: tool.to_owned() }, Risk::Operate)))
}

/// The tools of MCP servers that a model would see under this policy.
fn visible(line: &Map<String, Value>, policy: &Policy) -> Result<Option<Vec<String>>, BadLine> {
    let servers = servers(line)?;
    if servers.is_empty() {
        return Ok(None);
    }
    let names = wire_names(&servers);
    let seen = servers.iter().zip(names).filter(|((server, tool), _)| !hidden(policy, server, tool));
    Ok(Some(seen.map(|(_, name)| name).collect()))
}

/// Whether a rule is about an example that stands beside it in a policy file (`match`, `not-match`): a command, a path,
/// an address, `DEVICE:ACTION` with `risk:` and `zone:` behind it, `SERVER TOOL`, or the verb of a tool.
///
/// # Errors
/// When the example is none for a rule of this kind.
pub fn covers_example(rule: &Rule, example: &str, facts: &PathFacts) -> Result<bool, BadRule> {
    let bad = |fact: &str| BadRule { rule: rule.text().to_owned(), fact: format!("its example {example:?} {fact}") };
    let nature = match rule.matcher() {
        Matcher::Everything => return Ok(true),
        Matcher::Bash(_) => deed(Deed::Shell { script: Arc::new(Script::parse(example)), cwd: None }, Risk::Operate),
        Matcher::Read(_) => deed(Deed::Read { path: example.to_owned(), below: false }, Risk::Read),
        Matcher::Edit(_) => deed(Deed::Write { path: example.to_owned() }, Risk::Operate),
        Matcher::Fetch(_) => deed(Deed::Fetch { url: example.to_owned(), reads: true }, Risk::Read),
        Matcher::Device(_) => {
            let mut parts = example.split_whitespace();
            let (device, action) =
                parts.next().and_then(|part| part.split_once(':')).ok_or_else(|| bad("is not DEVICE:ACTION"))?;
            let (mut risk, mut zone) = (Risk::Operate, None);
            for part in parts {
                match (part.strip_prefix("risk:").map(Risk::from_word), part.strip_prefix("zone:")) {
                    (Some(Some(word)), _) => risk = word,
                    (None, Some(word)) => zone = Some(word.to_owned()),
                    (Some(None) | None, _) => return Err(bad("has more than risk: and zone: behind the action")),
                }
            }
            deed(Deed::Device { device: device.to_owned(), action: action.to_owned(), zone }, risk)
        }
        Matcher::Mcp { .. } | Matcher::McpPair { .. } => {
            let (server, tool) = example.split_once(' ').ok_or_else(|| bad("is not SERVER TOOL"))?;
            deed(Deed::Mcp { server: server.to_owned(), tool: tool.to_owned() }, Risk::Operate)
        }
        Matcher::Own { tool, .. } => {
            deed(Deed::Own { tool: tool.clone(), verb: Some(example.to_owned()) }, Risk::Operate)
        }
    };
    let asker = Asker { via: Via::Agent, name: String::new() };
    let policy = Policy { rules: Arc::new(Rules::new(vec![rule.clone()])), ..Policy::plain(asker) };
    let case = Case { nature: &nature, facts, protective: false, classifier: None };
    let found = match &nature.deed {
        Deed::Shell { script, .. } => return Ok(shell::covers(rule, script)),
        Deed::Read { .. }
        | Deed::Write { .. }
        | Deed::Fetch { .. }
        | Deed::Device { .. }
        | Deed::Mcp { .. }
        | Deed::Own { .. } => matched(&policy, case),
    };
    Ok(found.deny.or(found.ask).or(found.allow).is_some())
}

/// A deny for a server or for a tool by its bare name hides the tool, it does not only refuse it.
#[must_use]
pub fn hidden(policy: &Policy, server: &str, tool: &str) -> bool {
    policy.rules.all().iter().any(|rule| rule.verb() == Verb::Deny && rule.covers_mcp(server, tool))
}

/// The name of a downstream tool as models see it, before two of them are told apart.
fn wire(server: &str, tool: &str) -> String {
    let flat = |text: &str| -> String {
        text.chars().map(|letter| if letter.is_ascii_alphanumeric() || letter == '-' { letter } else { '_' }).collect()
    };
    format!("mcp__{}__{}", flat(server), flat(tool))
}

/// The names of downstream tools as models see them. Two tools never share one: the later gets a number.
#[must_use]
pub fn wire_names(servers: &[(&str, &str)]) -> Vec<String> {
    let mut names: Vec<String> = Vec::with_capacity(servers.len());
    for (server, tool) in servers {
        let plain = wire(server, tool);
        let mut name = plain.clone();
        let mut number = 2;
        while names.contains(&name) {
            name = format!("{plain}_{number}");
            number += 1;
        }
        names.push(name);
    }
    names
}

#[cfg(test)]
#[path = "check_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "kinds_tests.rs"]
mod kinds;

//! `interlock learn propose`: proposals in, verdicts out, one JSON object a line.
//!
//! It asks the gate and keeps nothing by itself: what is approved counts for the proposals that follow in the same
//! input, and the caller gets the set that would be active.

use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::path::Path;

use interlock_domain::command::definition::{Commands, Definition, Slot, SlotKind};
use interlock_domain::command::lexicon::Lexicon;
use interlock_domain::command::sound::Confusions;
use interlock_domain::command::template::Template;
use interlock_domain::command::understanding::Learned;
use interlock_domain::learn::gate::{Base, Policy, Proposal, Verdict, review};
use interlock_domain::risk::Risk;
use serde_json::{Map, Value, json};

use super::match_verb::MatchError;
use crate::config::lexicon;

/// What a session of proposals works on.
pub struct Session {
    commands: Commands,
    lexicon: Lexicon,
    confusions: Confusions,
    /// What is active, and what was approved in this session.
    pub learned: Learned,
    /// Sentences whose meaning must not change.
    pub replay: Vec<String>,
    /// Who may take what passes.
    pub policy: Policy,
}

impl Session {
    /// A session on a command set, with the embedded words.
    ///
    /// # Errors
    /// When the embedded words do not load, which a test would have shown.
    pub fn new(
        commands: Commands,
        learned: Learned,
        replay: Vec<String>,
        policy: Policy,
    ) -> Result<Session, MatchError> {
        let lexicon = lexicon::read(Path::new(lexicon::EMBEDDED_NAME), lexicon::EMBEDDED)?;
        let confusions =
            lexicon::read_confusions(Path::new(lexicon::EMBEDDED_CONFUSIONS_NAME), lexicon::EMBEDDED_CONFUSIONS)?;
        Ok(Session { commands, lexicon, confusions, learned, replay, policy })
    }

    /// Reads proposals, line by line, and writes `{"id", "verdict": "approve"|"operator"|"refuse", "why"}` for each; a
    /// bad line is answered with `{"line", "error"}` and makes the exit code 65.
    ///
    /// # Errors
    /// When input or output fails.
    pub fn propose(&mut self, input: &mut dyn BufRead, output: &mut dyn Write) -> Result<u8, MatchError> {
        let mut exit = 0;
        let mut line = String::new();
        for number in 1_u64.. {
            line.clear();
            if input.read_line(&mut line).map_err(MatchError::Input)? == 0 {
                break;
            }
            if line.trim().is_empty() {
                continue;
            }
            let answer = match read(line.trim()) {
                Ok((id, proposal)) => {
                    let (verdict, why) = self.judge(&proposal);
                    json!({"id": id, "verdict": verdict, "why": why})
                }
                Err(error) => {
                    exit = 65;
                    json!({"line": number, "error": error})
                }
            };
            writeln!(output, "{answer}").map_err(MatchError::Output)?;
        }
        output.flush().map_err(MatchError::Output)?;
        Ok(exit)
    }

    /// The verdict on one proposal; an approved one is active from here on.
    pub fn judge(&mut self, proposal: &Proposal) -> (&'static str, String) {
        let base = Base { commands: &self.commands, lexicon: &self.lexicon, confusions: &self.confusions };
        let found = review(base, &self.learned, proposal, &self.replay, self.policy);
        let verdict = match found.verdict {
            Verdict::Approve(after) => {
                self.learned = after;
                "approve"
            }
            Verdict::Operator(_) => "operator",
            Verdict::Refuse => "refuse",
        };
        (verdict, found.why)
    }
}

/// A line shaped like the corpus's `learning.jsonl`: its id and what it proposes.
///
/// # Errors
/// What is missing or wrong, for a person.
pub fn read(line: &str) -> Result<(Value, Proposal), String> {
    let value: Value = serde_json::from_str(line).map_err(|error| format!("not JSON: {error}"))?;
    let Value::Object(fields) = value else { return Err("not an object".to_owned()) };
    let text = |key: &str| fields.get(key).and_then(Value::as_str);
    let needed = |key: &str| text(key).map(str::to_owned).ok_or_else(|| format!("{key} is missing"));
    let said = text("wrong").or(text("phrase")).or(text("text")).map(str::to_owned);
    let proposal = match text("channel") {
        Some("A") => Proposal::Correction { heard: said.ok_or("wrong is missing")?, command: needed("command")? },
        Some("B") => Proposal::Slang { phrase: said.ok_or("phrase is missing")?, command: needed("command")? },
        Some("C") => Proposal::New(Box::new(definition(&fields, needed("command")?)?)),
        Some(other) => return Err(format!("the channel {other:?} is not known: A, B or C")),
        None => return Err("channel is missing".to_owned()),
    };
    Ok((fields.get("id").cloned().unwrap_or(Value::Null), proposal))
}

fn definition(fields: &Map<String, Value>, id: String) -> Result<Definition, String> {
    let text = |key: &str| fields.get(key).and_then(Value::as_str);
    let list = |key: &str| -> Vec<String> {
        let items = fields.get(key).and_then(Value::as_array).into_iter().flatten();
        items.filter_map(|item| item.as_str().map(str::to_owned)).collect()
    };
    let patterns = list("patterns")
        .iter()
        .map(|pattern| Template::parse(pattern).map_err(|error| format!("{pattern}: {error}")))
        .collect::<Result<Vec<_>, _>>()?;
    // A proposal declares no slots; the names of the corpus say what they hold.
    let mut slots: BTreeMap<&str, Slot> = BTreeMap::new();
    for name in patterns.iter().flat_map(Template::slots) {
        let (kind, required) = match name {
            "device" | "tool" => (SlotKind::DeviceNo, false),
            "zone" => (SlotKind::Zone, false),
            "duration" => (SlotKind::Duration, false),
            "program" => (SlotKind::Digits, false),
            "value" => (SlotKind::Number, true),
            "percent" => (SlotKind::Percent, true),
            other => return Err(format!("what the slot {other:?} holds is not known")),
        };
        slots.insert(name, Slot { name: name.to_owned(), kind, required });
    }
    let risk = match text("risk") {
        // A command whose risk nobody has stated is taken for the worst.
        None => Risk::Dangerous,
        Some(name) => Risk::from_word(name).ok_or_else(|| format!("the risk {name:?} is not known"))?,
    };
    Ok(Definition {
        id,
        text: text("text").or(text("phrase")).unwrap_or_default().to_owned(),
        aliases: list("aliases"),
        slots: slots.into_values().collect(),
        patterns,
        category: text("category").unwrap_or_default().to_owned(),
        risk,
        protective: false,
        bind: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::commands;

    fn check(input: &str, expected: &[&str]) {
        let set = commands::read(Path::new(commands::EMBEDDED_NAME), commands::EMBEDDED).expect("the embedded set");
        let replay = vec!["启动二号水泵".to_owned(), "下班一起去喝茶".to_owned()];
        let mut session = Session::new(set, Learned::default(), replay, Policy::Auto).expect("the embedded words");
        let mut output = Vec::new();
        session.propose(&mut input.as_bytes(), &mut output).expect("runs");
        let lines: Vec<Value> = String::from_utf8(output)
            .expect("UTF-8")
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect();
        let verdicts: Vec<&str> = lines.iter().map(|line| line["verdict"].as_str().unwrap_or("error")).collect();
        assert_eq!(verdicts, expected, "{lines:?}");
    }

    #[test]
    fn the_gate_answers_each_line() {
        check(
            "{\"id\": 1, \"channel\": \"A\", \"wrong\": \"慌掉具\", \"command\": \"tool_change\"}\n\
             {\"id\": 2, \"channel\": \"A\", \"wrong\": \"喝茶\", \"command\": \"brk_close\"}\n\
             {\"id\": 3, \"channel\": \"B\", \"phrase\": \"打水\", \"command\": \"pump_start\"}\n\
             {\"id\": 4, \"channel\": \"B\", \"phrase\": \"打水\", \"command\": \"pump_stop\"}\n\
             {\"id\": 5, \"channel\": \"C\", \"command\": \"dryer_start\", \"text\": \"启动冷干机\", \"risk\": \"operate\"}\n\
             {\"id\": 6, \"channel\": \"C\", \"command\": \"disk_format\", \"text\": \"格式化磁盘\"}\n\
             {\"id\": 7, \"channel\": \"A\", \"wrong\": \"别合闸\", \"command\": \"brk_close\"}\n\
             {\"id\": 8, \"channel\": \"Z\"}\n",
            &["approve", "operator", "approve", "refuse", "approve", "operator", "refuse", "error"],
        );
    }
}

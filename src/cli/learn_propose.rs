//! `interlock learn propose`: proposals in, verdicts out, one JSON object a line.
//!
//! It asks the gate and keeps nothing by itself: what is approved counts for the proposals that follow in the same
//! input, and the caller gets the set that would be active.

use std::io::{BufRead, Write};
use std::path::Path;

use interlock_domain::command::definition::Commands;
use interlock_domain::command::lexicon::Lexicon;
use interlock_domain::command::sound::Confusions;
use interlock_domain::command::understanding::Learned;
use interlock_domain::learn::gate::{Base, Example, Policy, Proposal, Verdict, review};
use serde_json::json;

use super::match_verb::{self, MatchError};
use crate::config::lexicon;
use crate::record::learned;

/// What a session of proposals works on.
pub struct Session {
    commands: Commands,
    lexicon: Lexicon,
    confusions: Confusions,
    /// What is active, and what was approved in this session.
    pub learned: Learned,
    /// Sentences whose meaning must not change.
    pub replay: Vec<Example>,
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
        replay: Vec<Example>,
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
        let mut line = Vec::new();
        for number in 1_u64.. {
            line.clear();
            if match_verb::bounded_line(input, &mut line).map_err(MatchError::Input)? == 0 {
                break;
            }
            let text = std::str::from_utf8(&line).map(str::trim);
            if text == Ok("") {
                continue;
            }
            let read = text.map_err(|_| learned::NotLearned("not UTF-8".to_owned())).and_then(learned::read_line);
            let answer = match read {
                Ok((id, proposal)) => {
                    let (verdict, why) = self.judge(&proposal);
                    json!({"id": id, "verdict": verdict, "why": why})
                }
                Err(error) => {
                    exit = 65;
                    json!({"line": number, "error": error.to_string()})
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

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::config::commands;

    fn check(input: &str, expected: &[&str]) {
        let set = commands::read(Path::new(commands::EMBEDDED_NAME), commands::EMBEDDED).expect("the embedded set");
        let example = |sentence: &str, means: Option<&str>| Example {
            sentence: sentence.to_owned(),
            means: means.map(str::to_owned),
        };
        let replay = vec![example("启动二号水泵", Some("pump_start")), example("下班一起去喝茶", None)];
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

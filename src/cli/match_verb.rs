//! `interlock match`: understanding only, offline. It decides with the very same code as the daemon, and touches
//! nothing but the command set that it is told to read.

use std::cell::RefCell;
use std::io::{BufRead, ErrorKind, Read as _, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use interlock_domain::command::cascade::{Stages, Walk};
use interlock_domain::command::definition::Commands;
use interlock_domain::command::lexicon::Lexicon;
use interlock_domain::command::resolution::{Outcome, Resolution, Stage, Understood};
use interlock_domain::command::sound::Confusions;
use interlock_domain::command::understanding::{Learned, Understanding};
use serde_json::{Map, Value, json};
use thiserror::Error;

use super::later::Later;
use crate::boot::model;
use crate::config::{ConfigError, commands, lexicon, regression};
use crate::infer::classifier::Course;

/// Longest input line, in bytes. An utterance is far shorter; a longer line is refused and the next one is read.
const LINE_LEN_MAX: usize = 64 * 1024;

/// Exit code: everything was read, whatever was found in it.
const DONE: u8 = 0;
/// Exit code: a line of the input could not be read.
const BAD_INPUT: u8 = 65;

/// What `interlock match` was asked.
#[derive(Debug, Clone, Default)]
pub struct MatchArgs {
    /// Another command set than the embedded one.
    pub commands: Option<PathBuf>,
    /// The state directory whose learned set takes part; none takes part without it.
    pub state: Option<PathBuf>,
    /// The manifest of another model than the embedded one.
    pub model: Option<PathBuf>,
    /// The stages that may take part, with commas; all of them when absent.
    pub stages: Option<String>,
    /// Say what each stage saw.
    pub explain: bool,
    /// Compact JSON, one object a line, and not text for a person.
    pub json: bool,
    /// One utterance; standard input is not read then.
    pub text: Option<String>,
}

/// Why nothing was matched.
#[derive(Debug, Error)]
pub enum MatchError {
    /// The command set or the lexicon is wrong (78).
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The command set is not there (66).
    #[error("command set {path}: {source}")]
    Missing {
        /// As it was given.
        path: PathBuf,
        /// Why it cannot be read.
        source: std::io::Error,
    },
    /// The learned set of a state directory does not read (66).
    #[error("the learned set of {path}: {why}")]
    State {
        /// The state directory.
        path: PathBuf,
        /// Why it cannot be read.
        why: String,
    },
    /// `--stages` names no stage (64).
    #[error("there is no stage {name:?}; stages are hotword, pattern, pinyin, model, knowledge")]
    NoStage {
        /// What was given.
        name: String,
    },
    /// Input cannot be read (66).
    #[error("standard input: {0}")]
    Input(std::io::Error),
    /// Output cannot be written (73).
    #[error("standard output: {0}")]
    Output(std::io::Error),
}

impl MatchError {
    /// The exit code for it.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            MatchError::Config(_) => 78,
            MatchError::Missing { .. } | MatchError::State { .. } | MatchError::Input(_) => 66,
            MatchError::NoStage { .. } => 64,
            MatchError::Output(_) => 73,
        }
    }
}

/// Loads the command set (the embedded one for [`None`]) and compiles it.
///
/// # Errors
/// A file that is missing or wrong.
pub fn load(path: Option<&Path>) -> Result<Understanding, MatchError> {
    let (set, words, costs) = parts(path)?;
    Ok(Understanding::compile(set, &words, &costs))
}

/// What is compiled: the command set (the embedded one for [`None`]), the words, the costs of mishearing.
///
/// # Errors
/// A file that is missing or wrong.
pub fn parts(path: Option<&Path>) -> Result<(Commands, Lexicon, Confusions), MatchError> {
    let set = match path {
        None => commands::read(Path::new(commands::EMBEDDED_NAME), commands::EMBEDDED)?,
        Some(path) => {
            let text = std::fs::read_to_string(path).map_err(|source| {
                if source.kind() == ErrorKind::InvalidData {
                    MatchError::Config(ConfigError::of_file(path, "is not UTF-8 text"))
                } else {
                    MatchError::Missing { path: path.to_owned(), source }
                }
            })?;
            commands::read(path, &text)?
        }
    };
    let words = lexicon::read(Path::new(lexicon::EMBEDDED_NAME), lexicon::EMBEDDED)?;
    let costs = lexicon::read_confusions(Path::new(lexicon::EMBEDDED_CONFUSIONS_NAME), lexicon::EMBEDDED_CONFUSIONS)?;
    Ok((set, words, costs))
}

/// Runs the verb; gives its exit code.
///
/// # Errors
/// When nothing could be matched at all. A bad line of the input is answered on its own line instead.
pub fn run(args: &MatchArgs, input: &mut dyn BufRead, output: &mut dyn Write) -> Result<u8, MatchError> {
    let stages = stages(args.stages.as_deref())?;
    let (set, words, costs) = parts(args.commands.as_deref())?;
    let learned = learned(args.state.as_deref())?.beside(&set);
    let understanding = Understanding::compile_learned(set, &words, &costs, &learned);
    let replay = regression::read(Path::new(regression::EMBEDDED_NAME), regression::EMBEDDED)?;
    let course = Course::of(&learned, &replay);
    let later = Later::new(model::source(args.model.as_deref())?, course, args.state.clone());
    let verb = Verb {
        understanding: &understanding,
        stages,
        explain: args.explain,
        for_a_person: args.text.is_some() && !args.json,
        later: RefCell::new(later),
    };
    if let Some(text) = &args.text {
        let answer = verb.answer(text, None, &[]);
        let written = if args.json {
            writeln!(output, "{}", Value::Object(answer))
        } else {
            write!(output, "{}", for_a_person(&answer))
        };
        return written.and_then(|()| output.flush()).map(|()| DONE).map_err(MatchError::Output);
    }
    verb.lines(input, output)
}

/// What is learned in a state directory, read and not touched; nothing without one.
///
/// # Errors
/// When there is no state, or it does not read.
pub fn learned(state: Option<&Path>) -> Result<Learned, MatchError> {
    let Some(state) = state else { return Ok(Learned::default()) };
    let active = crate::store::state::learned::active(state)
        .map_err(|error| MatchError::State { path: state.to_owned(), why: error.to_string() })?;
    match active {
        None => Ok(Learned::default()),
        Some(version) => crate::record::learned::read_set(&version.body)
            .map_err(|error| MatchError::State { path: state.to_owned(), why: error.to_string() }),
    }
}

/// Reads one line of bounded length and gives how many bytes there were, 0 at the end. What is longer is cut, and its
/// rest skipped.
///
/// # Errors
/// When the input cannot be read.
pub fn bounded_line(input: &mut dyn BufRead, line: &mut Vec<u8>) -> std::io::Result<usize> {
    let limit = u64::try_from(LINE_LEN_MAX).unwrap_or(u64::MAX) + 1;
    let read = input.take(limit).read_until(b'\n', line)?;
    if line.last() != Some(&b'\n') && read > LINE_LEN_MAX {
        skip_line(input)?;
    }
    Ok(read)
}

fn stages(list: Option<&str>) -> Result<Stages, MatchError> {
    let Some(list) = list else { return Ok(Later::every()) };
    let mut stages = Stages::NONE;
    for name in list.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        let stage = Stage::parse(name).ok_or_else(|| MatchError::NoStage { name: name.to_owned() })?;
        stages = stages.with(stage);
    }
    Ok(stages)
}

struct Verb<'a> {
    understanding: &'a Understanding,
    stages: Stages,
    explain: bool,
    for_a_person: bool,
    /// Made as sentences need it.
    later: RefCell<Later>,
}

impl Verb<'_> {
    fn lines(&self, input: &mut dyn BufRead, output: &mut dyn Write) -> Result<u8, MatchError> {
        let mut exit = DONE;
        let mut number = 0_u64;
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = bounded_line(input, &mut line).map_err(MatchError::Input)?;
            if read == 0 {
                break;
            }
            number += 1;
            let whole = line.last() == Some(&b'\n') || read <= LINE_LEN_MAX;
            let answer = if whole { self.line(&line) } else { Err(format!("longer than {LINE_LEN_MAX} bytes")) };
            let answer = match answer {
                Ok(None) => continue,
                Ok(Some(answer)) => Value::Object(answer),
                Err(error) => {
                    exit = BAD_INPUT;
                    json!({"line": number, "error": error})
                }
            };
            writeln!(output, "{answer}").map_err(MatchError::Output)?;
        }
        output.flush().map_err(MatchError::Output)?;
        Ok(exit)
    }

    /// The answer to one line; nothing for an empty one.
    fn line(&self, line: &[u8]) -> Result<Option<Map<String, Value>>, String> {
        let text = std::str::from_utf8(line).map_err(|_| "not UTF-8".to_owned())?.trim();
        if text.is_empty() {
            return Ok(None);
        }
        let value: Value = serde_json::from_str(text).map_err(|error| format!("not JSON: {error}"))?;
        let Value::Object(fields) = value else { return Err("not an object".to_owned()) };
        let query = match fields.get("query") {
            Some(Value::String(query)) => query,
            Some(_) => return Err("query is not a string".to_owned()),
            None => return Err("query is missing".to_owned()),
        };
        let unknown: Vec<&str> =
            fields.keys().map(String::as_str).filter(|key| !matches!(*key, "id" | "query")).collect();
        Ok(Some(self.answer(query, fields.get("id"), &unknown)))
    }

    fn answer(&self, query: &str, id: Option<&Value>, unknown: &[&str]) -> Map<String, Value> {
        let begun = Instant::now();
        let mut walk = Walk::new(self.understanding, query, self.stages);
        let (resolution, beside) = self.later.borrow_mut().finish(&mut walk);
        // What is loaded once is not the time of the sentence that needed it first.
        let micros = begun.elapsed().saturating_sub(beside.loading).as_nanos();
        let mut answer = written(&resolution);
        answer.insert("id".to_owned(), id.cloned().unwrap_or(Value::Null));
        answer.insert("query".to_owned(), Value::from(query));
        #[expect(clippy::cast_precision_loss, reason = "a duration in nanoseconds, to a tenth of a microsecond")]
        answer.insert("micros".to_owned(), Value::from((micros as f64 / 100.0).round() / 10.0));
        if !unknown.is_empty() {
            let said: Vec<String> = unknown.iter().map(|key| format!("unknown key {key:?} ignored")).collect();
            answer.insert("diagnostics".to_owned(), Value::from(said));
        }
        if self.explain {
            answer.insert("explain".to_owned(), Value::from(walk.explain() + &beside.lines));
        }
        if self.for_a_person {
            let read: Vec<String> = beside
                .passages
                .iter()
                .map(|passage| format!("{} {} ({})\n  {}", passage.id, passage.title, passage.source, passage.text))
                .collect();
            answer.insert("read".to_owned(), Value::from(read));
        }
        answer
    }
}

fn skip_line(input: &mut dyn BufRead) -> std::io::Result<()> {
    loop {
        let buffer = input.fill_buf()?;
        if buffer.is_empty() {
            return Ok(());
        }
        let end = buffer.iter().position(|byte| *byte == b'\n');
        let len = end.map_or(buffer.len(), |at| at + 1);
        input.consume(len);
        if end.is_some() {
            return Ok(());
        }
    }
}

/// The fields of the answer that tell of the resolution, with every key present.
#[must_use]
pub fn written(resolution: &Resolution) -> Map<String, Value> {
    let slots = |one: &Understood| -> Value {
        one.slots.iter().map(|(name, value)| (name.clone(), value.to_json())).collect::<Map<_, _>>().into()
    };
    let (outcome, one, missing, several): (_, Option<&Understood>, &[String], &[Understood]) = match &resolution.outcome
    {
        Outcome::Command(one) => ("command", Some(one), &[], &[]),
        Outcome::Incomplete { understood, missing } => ("incomplete", Some(understood), missing, &[]),
        Outcome::Sequence(several) => ("sequence", None, &[], several),
        Outcome::Knowledge => ("knowledge", None, &[], &[]),
        Outcome::Ambiguous => ("ambiguous", None, &[], &[]),
        Outcome::Rejected(_) => ("rejected", None, &[], &[]),
    };
    let several_written: Vec<Value> =
        several.iter().map(|one| json!({"command": one.command, "slots": slots(one)})).collect();
    let candidates: Vec<Value> = resolution
        .candidates
        .iter()
        .map(|one| json!({"command": one.command, "confidence": rounded(one.confidence)}))
        .collect();
    let passages: Vec<Value> =
        resolution.passages.iter().map(|one| json!({"id": one.id, "score": rounded(one.score)})).collect();
    let fields = [
        ("outcome", Value::from(outcome)),
        ("command", one.map_or(Value::Null, |one| Value::from(one.command.as_str()))),
        ("slots", one.map_or_else(|| Value::Object(Map::new()), slots)),
        ("missing", Value::from(missing.to_vec())),
        ("commands", Value::from(several_written)),
        ("confirm", Value::from(one.is_some_and(|one| one.confirm) || several.iter().any(|one| one.confirm))),
        ("stage", Value::from(resolution.stage.name())),
        ("confidence", rounded(resolution.confidence)),
        ("candidates", Value::from(candidates)),
        ("passages", Value::from(passages)),
    ];
    fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

fn rounded(value: f32) -> Value {
    Value::from((f64::from(value) * 1000.0).round() / 1000.0)
}

/// The same for a person: one line a fact.
fn for_a_person(answer: &Map<String, Value>) -> String {
    let mut text = String::new();
    for key in
        ["outcome", "command", "slots", "missing", "commands", "confirm", "stage", "confidence", "candidates", "micros"]
    {
        let Some(value) = answer.get(key) else { continue };
        let empty = match value {
            Value::Null | Value::Bool(false) => true,
            Value::Array(items) => items.is_empty(),
            Value::Object(fields) => fields.is_empty(),
            Value::Bool(true) | Value::Number(_) | Value::String(_) => false,
        };
        if !empty {
            let shown = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            text.push_str(&format!("{key}: {shown}\n"));
        }
    }
    for passage in answer.get("read").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str) {
        text.push_str(passage);
        text.push('\n');
    }
    if let Some(lines) = answer.get("explain").and_then(Value::as_str) {
        text.push_str(lines);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(args: &MatchArgs, input: &[u8]) -> (u8, Vec<Value>) {
        let mut output = Vec::new();
        let exit = run(args, &mut &*input, &mut output).expect("runs");
        let text = String::from_utf8(output).expect("UTF-8");
        (exit, text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect())
    }

    #[test]
    fn a_bad_line_is_answered_on_its_line_and_the_rest_runs() {
        let input = "{\"id\": 7, \"query\": \"启动二号水泵\", \"note\": 1}\nnot json\n\n{\"id\": 8}\n{\"query\": \"不要启动二号泵\"}\n";
        let (exit, lines) = ask(&MatchArgs::default(), input.as_bytes());
        assert_eq!(exit, BAD_INPUT);
        assert_eq!(lines.len(), 4);
        assert_eq!(lines[0]["id"], 7);
        assert_eq!(lines[0]["command"], "pump_start");
        assert_eq!(lines[0]["slots"], json!({"device": 2}));
        assert_eq!(lines[0]["diagnostics"], json!(["unknown key \"note\" ignored"]));
        assert_eq!(lines[1]["line"], 2);
        assert_eq!(lines[2], json!({"line": 4, "error": "query is missing"}));
        assert_eq!(lines[3]["outcome"], "rejected");
        assert_eq!(lines[3]["command"], Value::Null);
    }

    #[test]
    fn bytes_that_are_no_text_and_long_lines_are_answered() {
        let mut input = b"{\"query\": \"\xff\xfe\"}\n".to_vec();
        input.extend(std::iter::repeat_n(b'x', LINE_LEN_MAX * 3));
        input.extend(b"\n{\"query\": \"\xe5\x85\xb3\xe7\x81\xaf\"}");
        let (exit, lines) = ask(&MatchArgs::default(), &input);
        assert_eq!(exit, BAD_INPUT);
        assert_eq!(lines[0]["error"], "not UTF-8");
        assert_eq!(lines[1]["error"], format!("longer than {LINE_LEN_MAX} bytes"));
        assert_eq!(lines[2]["command"], "light_off");
    }

    #[test]
    fn stages_can_be_left_out() {
        let args = |stages: &str| MatchArgs { stages: Some(stages.to_owned()), ..MatchArgs::default() };
        let heard = "{\"query\": \"启动二号水蹦\"}\n".as_bytes();
        assert_eq!(ask(&args("pattern"), heard).1[0]["outcome"], "rejected");
        assert_eq!(ask(&args("pattern,pinyin"), heard).1[0]["command"], "pump_start");
        assert_eq!(ask(&args("pattern,pinyin"), heard).1[0]["stage"], "pinyin");
        let error = run(&args("guess"), &mut &b""[..], &mut Vec::new()).expect_err("refused");
        assert_eq!(error.exit_code(), 64);
    }
}

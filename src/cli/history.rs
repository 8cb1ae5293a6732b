//! `interlock history`: what a provider's stream gives, and what a provider would refuse about a history, by the very
//! code of the agent loop. It reads standard input and asks nobody.

use std::io::{BufRead, Read, Write};

use clap::{Args, Subcommand, ValueEnum};
use interlock_domain::block::{Ids, Provider};
use interlock_domain::repair::history::{Journal, Repaired, repair};
use interlock_domain::repair::legality::breaches;
use serde_json::{Map, Value, json};

use super::error::{CliError, Exit};
use super::json_lines;
use crate::provider::{Dialect, Normalizer, TextCalls};

/// The longest history that is taken, in bytes: some hundred thousand messages, or a few with pictures.
const HISTORY_LEN_MAX: u64 = 64 << 20;
/// How much of a stream is read at a time.
const PIECE_LEN: usize = 64 * 1024;

/// `history`.
#[derive(Debug, Subcommand)]
pub enum HistoryVerb {
    /// The bytes of one answer on standard input; one object out, whatever the stream was worth.
    #[command(after_help = "Example:\n  interlock history normalize --provider openai < stream.txt")]
    Normalize(NormalizeArgs),
    /// One history a line in, the mended one a line out.
    #[command(
        after_help = "Example:\n  echo '{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}]}' | interlock history repair --provider anthropic"
    )]
    Repair(ProviderArg),
    /// One history a line in, a line out for each thing that the provider would refuse; exit 1 when there is one.
    #[command(
        after_help = "Example:\n  echo '{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}]}' | interlock history validate --provider openai"
    )]
    Validate(ProviderArg),
}

/// `--provider`.
#[derive(Debug, Args)]
pub struct ProviderArg {
    /// Whose form it has.
    #[arg(long, value_enum)]
    pub provider: ProviderName,
}

/// `history normalize`.
#[derive(Debug, Args)]
pub struct NormalizeArgs {
    /// Whose stream it is.
    #[arg(long, value_enum)]
    pub provider: ProviderName,
    /// A tool whose calls count when the model prints them as text; may be given several times. Without it, none do.
    #[arg(long, value_name = "TOOL")]
    pub text_call: Vec<String>,
}

/// The wire formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ProviderName {
    /// Anthropic Messages.
    Anthropic,
    /// OpenAI Chat Completions and what is compatible with it.
    #[value(name = "openai", aliases = ["openai_chat", "openai_compat", "openai-chat"])]
    Openai,
    /// OpenAI Responses.
    #[value(name = "openai-responses", alias = "openai_responses")]
    OpenaiResponses,
    /// Gemini.
    Gemini,
}

impl From<ProviderName> for Provider {
    fn from(name: ProviderName) -> Provider {
        match name {
            ProviderName::Anthropic => Provider::Anthropic,
            ProviderName::Openai => Provider::Chat,
            ProviderName::OpenaiResponses => Provider::Responses,
            ProviderName::Gemini => Provider::Gemini,
        }
    }
}

pub(super) fn history(verb: &HistoryVerb) -> Result<(), CliError> {
    let (mut input, mut output) = (std::io::stdin().lock(), std::io::stdout().lock());
    match verb {
        HistoryVerb::Normalize(args) => {
            let text_calls =
                if args.text_call.is_empty() { TextCalls::Off } else { TextCalls::Of(args.text_call.clone()) };
            let dialect = Dialect { text_calls, ..Dialect::plain(args.provider.into()) };
            normalize(&dialect, &mut input, &mut output)
        }
        HistoryVerb::Repair(arg) => mend(arg.provider.into(), &mut input, &mut output),
        HistoryVerb::Validate(arg) => validate(arg.provider.into(), &mut input, &mut output),
    }
}

/// Whatever the stream was worth, it was read: that is what the object says, and not the exit code.
fn normalize(dialect: &Dialect, input: &mut dyn Read, output: &mut dyn Write) -> Result<(), CliError> {
    let mut normalizer = Normalizer::new(dialect, Ids::new());
    let mut piece = vec![0; PIECE_LEN];
    loop {
        let len = match input.read(&mut piece) {
            Ok(0) => break,
            Ok(len) => len,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(CliError::new(Exit::NoInput, format!("standard input: {error}"))),
        };
        normalizer.feed(&piece[..len], &mut |_| {});
    }
    let (end, _) = normalizer.finish();
    Ok(writeln!(output, "{}", end.to_json()).and_then(|()| output.flush())?)
}

/// One line of input.
struct Line {
    /// Everything that was given, without what is read here.
    rest: Map<String, Value>,
    /// What the messages are called.
    key: &'static str,
    messages: Vec<Value>,
    journal: Journal,
    diagnostics: Vec<Value>,
    quarantined: Vec<Value>,
}

/// What the messages may be called: the first is what the contract says.
fn keys(provider: Provider) -> &'static [&'static str] {
    match provider {
        Provider::Anthropic | Provider::Chat => &["messages"],
        Provider::Responses => &["items", "input"],
        Provider::Gemini => &["messages", "contents"],
    }
}

/// Keys that are read besides the messages.
const KNOWN: [&str; 4] = ["id", "journal", "quarantined", "diagnostics"];

fn read(provider: Provider, text: &str) -> Result<Line, String> {
    let value = serde_json::from_str(text).map_err(|error| format!("not JSON: {error}"))?;
    let Value::Object(mut rest) = value else { return Err("not an object".to_owned()) };
    let key = keys(provider)
        .iter()
        .find(|key| rest.contains_key(**key))
        .ok_or_else(|| format!("no {}", keys(provider)[0]))?;
    let Some(Value::Array(messages)) = rest.remove(*key) else { return Err(format!("{key} is no list")) };
    let mut journal = Journal::new();
    match rest.get("journal") {
        None | Some(Value::Null) => {}
        Some(Value::Object(told)) => {
            for (id, word) in told {
                let word = word.as_str().ok_or_else(|| format!("the journal's word for {id:?} is no text"))?;
                journal.note_word(id.as_str(), word);
            }
        }
        Some(Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
            return Err("journal is no object".to_owned());
        }
    }
    let mut list = |key: &str| match rest.remove(key) {
        Some(Value::Array(list)) => list,
        Some(_) | None => Vec::new(),
    };
    let (quarantined, mut diagnostics) = (list("quarantined"), list("diagnostics"));
    for key in rest.keys().filter(|key| !KNOWN.contains(&key.as_str())) {
        add(&mut diagnostics, format!("unknown_key: {key}"));
    }
    Ok(Line { rest, key, messages, journal, diagnostics, quarantined })
}

/// A second pass says nothing twice: the object stays the same byte for byte.
fn add(list: &mut Vec<Value>, said: String) {
    let said = Value::from(said);
    if !list.contains(&said) {
        list.push(said);
    }
}

fn mend(provider: Provider, input: &mut dyn BufRead, output: &mut dyn Write) -> Result<(), CliError> {
    let good = json_lines::texts(input, output, HISTORY_LEN_MAX, |text| {
        let Line { rest: mut out, key, messages, journal, mut diagnostics, mut quarantined } = read(provider, text)?;
        let Repaired { messages, quarantined: taken, left_out, stubs: _ } = repair(provider, messages, &journal);
        quarantined.extend(taken.into_iter().map(Value::from));
        left_out.iter().for_each(|what| add(&mut diagnostics, format!("left_out: {what}")));
        out.insert(key.to_owned(), Value::Array(messages));
        out.insert("quarantined".to_owned(), Value::Array(quarantined));
        out.insert("diagnostics".to_owned(), Value::Array(diagnostics));
        Ok(Value::Object(out))
    })?;
    if good { Ok(()) } else { Err(CliError::silent(Exit::Data)) }
}

fn validate(provider: Provider, input: &mut dyn BufRead, output: &mut dyn Write) -> Result<(), CliError> {
    let mut legal = true;
    let good = json_lines::several(input, output, HISTORY_LEN_MAX, |number, text| {
        let line = read(provider, text)?;
        let found = breaches(provider, &line.messages);
        legal &= found.is_empty();
        let told = found.into_iter().map(|breach| {
            let mut said =
                json!({"line": number, "law": breach.law.word(), "message": breach.message, "why": breach.why});
            if let Some(id) = line.rest.get("id") {
                said["id"] = id.clone();
            }
            said
        });
        Ok(told.collect())
    })?;
    match (good, legal) {
        (false, _) => Err(CliError::silent(Exit::Data)),
        (true, false) => Err(CliError::silent(Exit::NotSo)),
        (true, true) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Verb = fn(Provider, &mut dyn BufRead, &mut dyn Write) -> Result<(), CliError>;

    fn check(verb: Verb, provider: Provider, input: &str, want: &str, exit: Option<Exit>) {
        let mut output = Vec::new();
        let ended = verb(provider, &mut input.as_bytes(), &mut output);
        assert_eq!(String::from_utf8(output).unwrap(), want, "{input}");
        assert_eq!(ended.err().map(|error| error.exit), exit, "{input}");
    }

    const OPEN: &str = r#"{"id":7,"journal":{"a":"not_started"},"messages":[{"role":"user","content":"go"},{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"t","arguments":"{}"}}]},{"role":"tool","tool_call_id":"z","content":"?"}]}"#;

    #[test]
    fn repair_gives_the_object_back_mended() {
        let once = r#"{"diagnostics":[],"id":7,"journal":{"a":"not_started"},"messages":[{"content":"go","role":"user"},{"content":null,"role":"assistant","tool_calls":[{"function":{"arguments":"{}","name":"t"},"id":"a","type":"function"}]},{"content":"[not_started] This call was not started. Nothing has happened.","role":"tool","tool_call_id":"a"}],"quarantined":["z"]}"#;
        check(mend, Provider::Chat, OPEN, &format!("{once}\n"), None);
        check(mend, Provider::Chat, once, &format!("{once}\n"), None);
    }

    #[test]
    fn a_bad_line_is_told_and_the_rest_still_runs() {
        check(
            mend,
            Provider::Chat,
            "{\"messages\":[],\"model\":\"m\"}\nnonsense\n{}\n{\"messages\":1}\n{\"messages\":[],\"journal\":{\"a\":1}}\n{\"messages\":[7]}\n",
            "{\"diagnostics\":[\"unknown_key: model\"],\"messages\":[],\"model\":\"m\",\"quarantined\":[]}\n\
             {\"error\":\"not JSON: expected ident at line 1 column 2\",\"line\":2}\n\
             {\"error\":\"no messages\",\"line\":3}\n\
             {\"error\":\"messages is no list\",\"line\":4}\n\
             {\"error\":\"the journal's word for \\\"a\\\" is no text\",\"line\":5}\n\
             {\"diagnostics\":[\"left_out: message 0\"],\"messages\":[],\"quarantined\":[]}\n",
            Some(Exit::Data),
        );
    }

    #[test]
    fn validate_has_a_line_for_each_breach() {
        check(
            validate,
            Provider::Chat,
            OPEN,
            "{\"id\":7,\"law\":\"called\",\"line\":1,\"message\":2,\"why\":\"the result \\\"z\\\" has no call before it\"}\n\
             {\"id\":7,\"law\":\"answered\",\"line\":1,\"message\":1,\"why\":\"the call \\\"a\\\" has no result\"}\n\
             {\"id\":7,\"law\":\"results_in_order\",\"line\":1,\"message\":2,\"why\":\"results stand in another order than their calls\"}\n",
            Some(Exit::NotSo),
        );
        check(
            validate,
            Provider::Responses,
            "{\"items\":[]}\n\n{\"items\":[{\"role\":\"user\",\"content\":\"x\"}]}",
            "",
            None,
        );
        check(
            validate,
            Provider::Gemini,
            "{\"contents\":[]}\nx",
            "{\"error\":\"not JSON: expected value at line 1 column 1\",\"line\":2}\n",
            Some(Exit::Data),
        );
    }

    #[test]
    fn normalize_gives_one_object_whatever_the_stream_was_worth() {
        for (stream, terminal) in [
            ("data: {\"choices\":[{\"delta\":{\"content\":\"a\"},\"finish_reason\":\"stop\"}]}\n\n", "complete"),
            ("data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n", "truncated"),
            ("nonsense", "malformed"),
            ("", "truncated"),
        ] {
            let mut output = Vec::new();
            normalize(&Dialect::plain(Provider::Chat), &mut stream.as_bytes(), &mut output).unwrap();
            let said: Value = serde_json::from_slice(&output).unwrap();
            assert_eq!(said["terminal"], terminal, "{stream}");
            let keys: Vec<&str> = said.as_object().unwrap().keys().map(String::as_str).collect();
            assert_eq!(
                keys,
                ["blocks", "calls", "diagnostics", "error", "retryable", "stop", "terminal", "text", "usage"]
            );
        }
    }
}

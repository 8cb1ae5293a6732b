//! `[[contract]]`: what the operator of a tool promises about its calls.
//!
//! ```toml
//! [[contract]]
//! tool = "http"
//! input = { url = "https://pay.example/*", method = "POST" }   # texts of the input, * for anything
//! op-kind = "pay"
//! op-id = { header = "Idempotency-Key" }                        # or "native"
//! outcome = { resend-original-s = 86400 }                       # or "ack"; with a `query`, that is the outcome
//! query = { tool = "http", input = { url = "https://pay.example/by-key/{op}" }, done = { status = "200" }, failed = { status = "404" } }
//! effect = { inverse = "refund", precondition = "not shipped", window-s = 3600, input = { id = "{output.body.id}" } }
//!                                                               # or "none", "irreversible", or
//!                                                               # { stageable-s = 60, release = "send", discard = "drop" }
//! resources = ["order/{input.body.id}"]                          # what it changes, by name
//! visibility = "open"                                           # or "private", "none", { declared = ["bank"] }
//! idempotent = true
//! commutes = [{ kind = "pay", resource = "*" }]
//! ```
//!
//! A call that a contract names (a query, an inverse, a release, a discard) is the name of a tool, or a tool and its
//! input, in which `{op}`, `{input.…}` and `{output.…}` stand for what is known of the operation; without an input it gets
//! all three. It is a call like any other: the gate judges it.
//!
//! What is left out is the weakest there is. What contradicts itself is refused with its field.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use interlock_domain::id::ToolName;
use interlock_domain::surface::companion::{Companion, Companions, Query};
use interlock_domain::surface::contract::{Commutes, Contract, Effect, OpId, OutcomeBy, Provenance, Visibility};
use interlock_domain::surface::promise::Promise;
use serde::Deserialize;
use serde_json::{Map, Value};
use toml::Spanned;

use super::ConfigError;
use super::extend::{ALIASED, Alias};
use super::mcp::Server;

/// Tools whose effect is ours to know: nobody can promise that they have none.
const ALWAYS_ACT: [&str; 2] = ["device", "write_file"];

/// What a contract can name: other names of our tools, and the servers whose tools are known once they are there.
#[derive(Debug, Clone, Copy, Default)]
pub struct Names<'a> {
    /// The aliases.
    pub aliases: &'a [Alias],
    /// The MCP servers.
    pub servers: &'a [Server],
}

impl Names<'_> {
    /// What a name stands for.
    fn meant<'b>(&'b self, name: &'b str) -> &'b str {
        self.aliases.iter().find(|alias| alias.name.as_str() == name).map_or(name, |alias| alias.tool.as_str())
    }

    /// There is such a tool, or there may be one once its server is there.
    fn has(&self, name: &str) -> bool {
        ALIASED.contains(&self.meant(name)) || self.servers.iter().any(|server| name.starts_with(&server.prefix))
    }
}

/// Reads the `[[contract]]` tables of `text`; other tables are not looked at.
///
/// # Errors
/// With the first mistake, its line and its key.
pub fn parse(text: &str, file: &Path, names: &Names<'_>) -> Result<Vec<Promise>, ConfigError> {
    let wire: File = toml::from_str(text).map_err(|error| ConfigError::from_toml(file, text, &error))?;
    wire.contract
        .iter()
        .map(|table| {
            let span = table.get_ref().tool.span();
            promise(table.get_ref(), names).map_err(|fact| ConfigError::at(file, text, span, fact))
        })
        .collect()
}

#[derive(Deserialize)]
struct File {
    #[serde(default)]
    contract: Vec<Spanned<ContractTable>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct ContractTable {
    tool: Spanned<String>,
    #[serde(default)]
    input: BTreeMap<String, String>,
    op_kind: Option<String>,
    op_id: Option<OpIdForm>,
    outcome: Option<OutcomeForm>,
    query: Option<QueryForm>,
    #[serde(default)]
    resources: Vec<String>,
    #[serde(default)]
    idempotent: bool,
    effect: Option<EffectForm>,
    visibility: Option<VisibilityForm>,
    #[serde(default)]
    commutes: Vec<CommutesForm>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OpIdForm {
    Word(String),
    Header { header: String },
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OutcomeForm {
    Word(String),
    Resend {
        #[serde(rename = "resend-original-s")]
        resend_original_s: u64,
    },
}

#[derive(Deserialize)]
#[serde(untagged)]
enum EffectForm {
    Word(String),
    Inverse {
        inverse: String,
        precondition: Option<String>,
        #[serde(rename = "window-s")]
        window_s: Option<u64>,
        input: Option<Map<String, Value>>,
    },
    Stageable {
        #[serde(rename = "stageable-s")]
        stageable_s: u64,
        release: Option<CallForm>,
        discard: Option<CallForm>,
    },
}

#[derive(Deserialize)]
#[serde(untagged)]
enum CallForm {
    Tool(String),
    Call { tool: String, input: Option<Map<String, Value>> },
}

impl CallForm {
    fn companion(&self) -> Companion {
        match self {
            CallForm::Tool(tool) => Companion::of(tool),
            CallForm::Call { tool, input } => Companion { tool: tool.clone(), input: written(input.as_ref()) },
        }
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum QueryForm {
    Tool(String),
    Call {
        tool: String,
        input: Option<Map<String, Value>>,
        #[serde(default)]
        done: BTreeMap<String, Value>,
        #[serde(default)]
        failed: BTreeMap<String, Value>,
    },
}

fn written(input: Option<&Map<String, Value>>) -> Option<String> {
    input.map(|input| Value::Object(input.clone()).to_string())
}

fn patterns(written: &BTreeMap<String, Value>) -> BTreeMap<String, String> {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    written.iter().map(|(path, pattern)| (path.clone(), text(pattern))).collect()
}

#[derive(Deserialize)]
#[serde(untagged)]
enum VisibilityForm {
    Word(String),
    Declared { declared: Vec<String> },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CommutesForm {
    kind: String,
    resource: String,
    state: Option<String>,
}

fn promise(table: &ContractTable, names: &Names<'_>) -> Result<Promise, String> {
    let name = table.tool.get_ref();
    let tool = ToolName::new(name).map_err(|error| error.to_string())?;
    let op_id = match &table.op_id {
        None => OpId::None,
        Some(OpIdForm::Word(word)) if word == "native" => OpId::Native,
        Some(OpIdForm::Word(word)) => {
            return Err(format!("op-id: {word:?} is not native, and no {{ header = \"…\" }}"));
        }
        Some(OpIdForm::Header { header }) => OpId::Key(header.clone()),
    };
    let query = table.query.as_ref().map(|query| match query {
        QueryForm::Tool(tool) => Query { ask: Companion::of(tool), done: BTreeMap::new(), failed: BTreeMap::new() },
        QueryForm::Call { tool, input, done, failed } => Query {
            ask: Companion { tool: tool.clone(), input: written(input.as_ref()) },
            done: patterns(done),
            failed: patterns(failed),
        },
    });
    let outcome = match &table.outcome {
        None if query.is_some() => OutcomeBy::Query,
        None => OutcomeBy::None,
        Some(OutcomeForm::Word(word)) if word == "ack" => OutcomeBy::Ack,
        Some(OutcomeForm::Word(word)) if word == "query" && query.is_none() => {
            return Err("outcome: there is no query tool; devices are read back without being told".to_owned());
        }
        Some(OutcomeForm::Word(word)) if word == "query" => OutcomeBy::Query,
        Some(OutcomeForm::Word(word)) => {
            return Err(format!("outcome: {word:?} is not ack, and no {{ resend-original-s = … }}"));
        }
        Some(OutcomeForm::Resend { resend_original_s }) => {
            OutcomeBy::ResendOriginal { retention: Duration::from_secs(*resend_original_s) }
        }
    };
    let mut with = Companions { query, resources: table.resources.clone(), ..Companions::default() };
    let effect = match &table.effect {
        None => Effect::Irreversible,
        Some(EffectForm::Word(word)) if word == "irreversible" => Effect::Irreversible,
        Some(EffectForm::Word(word)) if word == "none" && ALWAYS_ACT.contains(&names.meant(name)) => {
            return Err(format!("effect: what {name} does is an effect, whoever says otherwise"));
        }
        Some(EffectForm::Word(word)) if word == "none" => Effect::None,
        Some(EffectForm::Word(word)) => return Err(format!("effect: {word:?} is not none or irreversible")),
        Some(EffectForm::Inverse { inverse, precondition, window_s, input }) => {
            with.undo = input.as_ref().map(|input| Companion { tool: inverse.clone(), input: written(Some(input)) });
            Effect::Reversible {
                inverse: inverse.clone(),
                precondition: precondition.clone(),
                window: window_s.map(Duration::from_secs),
            }
        }
        Some(EffectForm::Stageable { stageable_s, release, discard }) => {
            with.release = release.as_ref().map(CallForm::companion);
            with.discard = discard.as_ref().map(CallForm::companion);
            Effect::Stageable { ttl: Duration::from_secs(*stageable_s) }
        }
    };
    let visibility = match &table.visibility {
        None => Visibility::Open,
        Some(VisibilityForm::Word(word)) => match word.as_str() {
            "open" => Visibility::Open,
            "private" => Visibility::Private,
            "none" => Visibility::None,
            _ => return Err(format!("visibility: {word:?} is not open, private or none")),
        },
        Some(VisibilityForm::Declared { declared }) => Visibility::Declared(declared.clone()),
    };
    let commutes = table.commutes.iter().map(|pair| Commutes {
        kind: pair.kind.clone(),
        resource: pair.resource.clone(),
        state: pair.state.clone(),
    });
    let contract = Contract {
        op_kind: table.op_kind.clone().unwrap_or_else(|| name.clone()),
        op_id,
        outcome,
        idempotent: table.idempotent,
        effect,
        visibility,
        commutes: commutes.collect(),
        with,
        provenance: Provenance::Declared,
    };
    contract.check().map_err(|wrong| wrong.to_string())?;
    let query = contract.with.query.as_ref().map(|query| ("query", &query.ask));
    let effect = [&contract.with.undo, &contract.with.release, &contract.with.discard];
    let named = query.into_iter().chain(effect.into_iter().flatten().map(|call| ("effect", call)));
    let odd =
        named.into_iter().find(|(_, call)| !names.has(&call.tool)).map(|(field, call)| (field, call.tool.clone()));
    if let Some((field, tool)) = odd {
        return Err(format!("{field}: there is no tool {tool:?}"));
    }
    Ok(Promise { tool, input: table.input.clone(), contract: Arc::new(contract) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &str) -> Result<Vec<Promise>, String> {
        let name = |name: &str| ToolName::new(name).unwrap();
        let aliases = ["pump", "status", "send", "drop"]
            .map(|word| Alias { name: name(word), tool: name(if word == "pump" { "device" } else { "http" }) });
        let names = Names { aliases: &aliases, servers: &[] };
        parse(&format!("[[contract]]\n{body}\n"), Path::new("a.toml"), &names).map_err(|error| error.to_string())
    }

    #[test]
    fn a_contract_is_read_whole() {
        let text = r#"
            tool = "http"
            input = { url = "https://pay.example/*", method = "POST" }
            op-kind = "pay"
            op-id = { header = "Idempotency-Key" }
            outcome = { resend-original-s = 86400 }
            effect = { inverse = "refund", precondition = "not shipped", window-s = 3600 }
            visibility = { declared = ["bank"] }
            idempotent = true
            commutes = [{ kind = "pay", resource = "*" }]
        "#;
        let expected = Contract {
            op_kind: "pay".to_owned(),
            op_id: OpId::Key("Idempotency-Key".to_owned()),
            outcome: OutcomeBy::ResendOriginal { retention: Duration::from_secs(86400) },
            idempotent: true,
            effect: Effect::Reversible {
                inverse: "refund".to_owned(),
                precondition: Some("not shipped".to_owned()),
                window: Some(Duration::from_secs(3600)),
            },
            visibility: Visibility::Declared(vec!["bank".to_owned()]),
            commutes: vec![Commutes { kind: "pay".to_owned(), resource: "*".to_owned(), state: None }],
            with: Companions::default(),
            provenance: Provenance::Declared,
        };
        let read = read(text).unwrap();
        assert_eq!((&*read[0].contract, read[0].input.len()), (&expected, 2));
    }

    #[test]
    fn a_query_an_inverse_and_a_release_are_calls_with_what_is_known() {
        let read = |body: &str| read(body).unwrap().remove(0).contract;
        let asked = read(
            "tool = \"http\"\nquery = { tool = \"http\", input = { url = \"http://a/{op}\" }, done = { status = 200 } }",
        );
        let query = asked.with.query.as_ref().unwrap();
        assert_eq!((asked.outcome, query.ask.tool.as_str()), (OutcomeBy::Query, "http"));
        assert_eq!(
            (query.ask.input.as_deref(), query.done["status"].as_str()),
            (Some("{\"url\":\"http://a/{op}\"}"), "200")
        );
        let short = read("tool = \"shell\"\noutcome = \"query\"\nquery = \"status\"");
        assert_eq!(short.with.query.as_ref().unwrap().ask, Companion::of("status"));
        let staged = read(
            "tool = \"http\"\neffect = { stageable-s = 60, release = \"send\", discard = { tool = \"http\", input = { url = \"{output.location}\" } } }",
        );
        assert!(staged.stages());
        assert_eq!(staged.with.discard.as_ref().unwrap().tool, "http");
        let undone = read(
            "tool = \"http\"\neffect = { inverse = \"http\", precondition = \"new\", input = { url = \"{input.url}\" } }",
        );
        assert_eq!(undone.with.undo.as_ref().unwrap().input.as_deref(), Some("{\"url\":\"{input.url}\"}"));
    }

    #[test]
    fn what_a_contract_cannot_be_is_said_with_the_field() {
        let check = |body: &str, want: &str| {
            let error = read(&format!("tool = \"{body}")).map(|_| ()).unwrap_err();
            assert!(error.contains(want), "{body}: {error}");
        };
        check("http\"\noutcome = \"query\"", "a.toml:2:8: contract.tool: outcome: there is no query tool");
        check("http\"\noutcome = { resend-original-s = 9 }", "outcome: the original result is found by a key");
        check("http\"\neffect = { inverse = \"x\" }", "effect: an inverse without a precondition");
        check("http\"\noutcome = \"ack\"\nop-id = \"native\"\nquery = \"x\"", "query: a tool that is asked");
        check("http\"\nquery = { tool = \"x\", input = { a = \"{outputs.b}\" } }", "query: a call that it names");
        check("http\"\nquery = { tool = \"a b\" }", "query: a call that it names");
        check("http\"\neffect = { stageable-s = 9, release = \"x\" }", "effect: what is staged is released or dropped");
        check("device\"\neffect = \"none\"", "effect: what device does is an effect");
        check("pump\"\neffect = \"none\"", "effect: what pump does is an effect");
        check("http\"\nquery = \"nowhere\"", "query: there is no tool \"nowhere\"");
        check("http\"\nvisibility = \"all\"", "visibility: \"all\" is not open");
        check("http\"\nefect = \"none\"", "unknown field `efect`");
    }
}

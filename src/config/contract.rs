//! `[[contract]]`: what the operator of a tool promises about its calls.
//!
//! ```toml
//! [[contract]]
//! tool = "http"
//! input = { url = "https://pay.example/*", method = "POST" }   # texts of the input, * for anything
//! op-kind = "pay"
//! op-id = { header = "Idempotency-Key" }                        # or "native"
//! outcome = { resend-original-s = 86400 }                       # or "ack"
//! effect = { inverse = "refund", precondition = "not shipped", window-s = 3600 }
//!                                                               # or "none", "irreversible", { stageable-s = 60 }
//! visibility = "open"                                           # or "private", "none", { declared = ["bank"] }
//! idempotent = true
//! commutes = [{ kind = "pay", resource = "*" }]
//! ```
//!
//! What is left out is the weakest there is. What contradicts itself is refused with its field.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use interlock_domain::id::ToolName;
use interlock_domain::surface::contract::{Commutes, Contract, Effect, OpId, OutcomeBy, Provenance, Visibility};
use interlock_domain::surface::promise::Promise;
use serde::Deserialize;
use toml::Spanned;

use super::ConfigError;

/// Tools whose effect is ours to know: nobody can promise that they have none.
const ALWAYS_ACT: [&str; 2] = ["device", "write_file"];

/// Reads the `[[contract]]` tables of `text`; other tables are not looked at.
///
/// # Errors
/// With the first mistake, its line and its key.
pub fn parse(text: &str, file: &Path) -> Result<Vec<Promise>, ConfigError> {
    let wire: File = toml::from_str(text).map_err(|error| ConfigError::from_toml(file, text, &error))?;
    wire.contract
        .iter()
        .map(|table| {
            let span = table.get_ref().tool.span();
            promise(table.get_ref()).map_err(|fact| ConfigError::at(file, text, span, fact))
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
    },
    Stageable {
        #[serde(rename = "stageable-s")]
        stageable_s: u64,
    },
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

fn promise(table: &ContractTable) -> Result<Promise, String> {
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
    let outcome = match &table.outcome {
        None => OutcomeBy::None,
        Some(OutcomeForm::Word(word)) if word == "ack" => OutcomeBy::Ack,
        Some(OutcomeForm::Word(word)) if word == "query" => {
            return Err("outcome: there is no query tool; devices are read back without being told".to_owned());
        }
        Some(OutcomeForm::Word(word)) => {
            return Err(format!("outcome: {word:?} is not ack, and no {{ resend-original-s = … }}"));
        }
        Some(OutcomeForm::Resend { resend_original_s }) => {
            OutcomeBy::ResendOriginal { retention: Duration::from_secs(*resend_original_s) }
        }
    };
    let effect = match &table.effect {
        None => Effect::Irreversible,
        Some(EffectForm::Word(word)) if word == "irreversible" => Effect::Irreversible,
        Some(EffectForm::Word(word)) if word == "none" && ALWAYS_ACT.contains(&name.as_str()) => {
            return Err(format!("effect: what {name} does is an effect, whoever says otherwise"));
        }
        Some(EffectForm::Word(word)) if word == "none" => Effect::None,
        Some(EffectForm::Word(word)) => return Err(format!("effect: {word:?} is not none or irreversible")),
        Some(EffectForm::Inverse { inverse, precondition, window_s }) => Effect::Reversible {
            inverse: inverse.clone(),
            precondition: precondition.clone(),
            window: window_s.map(Duration::from_secs),
        },
        Some(EffectForm::Stageable { stageable_s }) => Effect::Stageable { ttl: Duration::from_secs(*stageable_s) },
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
        provenance: Provenance::Declared,
    };
    contract.check().map_err(|wrong| wrong.to_string())?;
    Ok(Promise { tool, input: table.input.clone(), contract: Arc::new(contract) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &str) -> Result<Vec<Promise>, String> {
        parse(&format!("[[contract]]\n{body}\n"), Path::new("a.toml")).map_err(|error| error.to_string())
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
            provenance: Provenance::Declared,
        };
        let read = read(text).unwrap();
        assert_eq!((&*read[0].contract, read[0].input.len()), (&expected, 2));
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
        check("device\"\neffect = \"none\"", "effect: what device does is an effect");
        check("http\"\nvisibility = \"all\"", "visibility: \"all\" is not open");
        check("http\"\nefect = \"none\"", "unknown field `efect`");
    }
}

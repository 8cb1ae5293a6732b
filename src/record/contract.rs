//! The written form of a contract (effects, section 6): evidence, repair after a crash, and `_meta` of MCP tools.

use std::collections::BTreeMap;
use std::time::Duration;

use interlock_domain::surface::companion::{Companion, Companions, Query};
use interlock_domain::surface::contract::{Commutes, Contract, Effect, OpId, OutcomeBy, Provenance, Visibility};
use serde_json::{Map, Value, json};

/// The contract as JSON. A missing member is the weakest value.
#[must_use]
pub fn to_json(contract: &Contract) -> Value {
    let mut members = Map::new();
    members.insert("op_kind".to_owned(), contract.op_kind.clone().into());
    match &contract.op_id {
        OpId::None => {}
        OpId::Key(name) => {
            members.insert("op_id".to_owned(), json!({ "key": name }));
        }
        OpId::Native => {
            members.insert("op_id".to_owned(), "native".into());
        }
    }
    match contract.outcome {
        OutcomeBy::None => {}
        OutcomeBy::Query => {
            members.insert("outcome".to_owned(), "query".into());
        }
        OutcomeBy::Ack => {
            members.insert("outcome".to_owned(), "ack".into());
        }
        OutcomeBy::ResendOriginal { retention } => {
            members.insert("outcome".to_owned(), json!({ "resend_original_s": retention.as_secs() }));
        }
    }
    if !contract.with.resources.is_empty() {
        members.insert("resources".to_owned(), json!(contract.with.resources));
    }
    if let Some(query) = &contract.with.query {
        let mut written = companion_json(&query.ask);
        if !query.done.is_empty() || !query.failed.is_empty() {
            (written["done"], written["failed"]) = (json!(query.done), json!(query.failed));
        }
        members.insert("query".to_owned(), written);
    }
    if contract.idempotent {
        members.insert("idempotent".to_owned(), true.into());
    }
    let effect = match &contract.effect {
        Effect::None => "none".into(),
        Effect::Reversible { inverse, precondition, window } => json!({ "reversible": {
            "inverse": inverse,
            "precondition": precondition,
            "window_s": window.map(|window| window.as_secs()),
            "call": contract.with.undo.as_ref().map(companion_json),
        }}),
        Effect::Stageable { ttl } => json!({
            "stageable_s": ttl.as_secs(),
            "release": contract.with.release.as_ref().map(companion_json),
            "discard": contract.with.discard.as_ref().map(companion_json),
        }),
        Effect::Irreversible => "irreversible".into(),
    };
    members.insert("effect".to_owned(), effect);
    let visibility = match &contract.visibility {
        Visibility::None => "none".into(),
        Visibility::Private => "private".into(),
        Visibility::Declared(readers) => json!({ "declared": readers }),
        Visibility::Open => "open".into(),
    };
    members.insert("visibility".to_owned(), visibility);
    if !contract.commutes.is_empty() {
        let pairs: Vec<Value> = contract
            .commutes
            .iter()
            .map(|pair| json!({ "kind": pair.kind, "resource": pair.resource, "state": pair.state }))
            .collect();
        members.insert("commutes".to_owned(), pairs.into());
    }
    let provenance = match contract.provenance {
        Provenance::Declared => "declared",
        Provenance::Adapter => "adapter",
        Provenance::Observed => "observed",
    };
    members.insert("provenance".to_owned(), provenance.into());
    Value::Object(members)
}

/// Reads the written form. What is not understood counts as the weakest value: a log of a newer build must not make
/// this one promise more than it knows.
#[must_use]
pub fn from_json(value: &Value) -> Contract {
    let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
    let seconds = |value: &Value, key: &str| value.get(key).and_then(Value::as_u64).map(Duration::from_secs);
    let mut contract = Contract::weakest(&text(value, "op_kind").unwrap_or_default());
    if let Some(op_id) = value.get("op_id") {
        contract.op_id = match (op_id.as_str(), text(op_id, "key")) {
            (Some("native"), _) => OpId::Native,
            (_, Some(name)) => OpId::Key(name),
            _ => OpId::None,
        };
    }
    if let Some(outcome) = value.get("outcome") {
        contract.outcome = match (outcome.as_str(), seconds(outcome, "resend_original_s")) {
            (Some("query"), _) => OutcomeBy::Query,
            (Some("ack"), _) => OutcomeBy::Ack,
            (_, Some(retention)) => OutcomeBy::ResendOriginal { retention },
            _ => OutcomeBy::None,
        };
    }
    contract.idempotent = value.get("idempotent").and_then(Value::as_bool).unwrap_or(false);
    if let Some(effect) = value.get("effect") {
        contract.effect = match (effect.as_str(), effect.get("reversible"), seconds(effect, "stageable_s")) {
            (Some("none"), ..) => Effect::None,
            (_, Some(reversible), _) => Effect::Reversible {
                inverse: text(reversible, "inverse").unwrap_or_default(),
                precondition: text(reversible, "precondition"),
                window: seconds(reversible, "window_s"),
            },
            (_, _, Some(ttl)) => Effect::Stageable { ttl },
            _ => Effect::Irreversible,
        };
    }
    if let Some(visibility) = value.get("visibility") {
        let readers = visibility.get("declared").and_then(Value::as_array);
        contract.visibility = match (visibility.as_str(), readers) {
            (Some("none"), _) => Visibility::None,
            (Some("private"), _) => Visibility::Private,
            (_, Some(readers)) => {
                Visibility::Declared(readers.iter().filter_map(Value::as_str).map(str::to_owned).collect())
            }
            _ => Visibility::Open,
        };
    }
    for pair in value.get("commutes").and_then(Value::as_array).into_iter().flatten() {
        contract.commutes.push(Commutes {
            kind: text(pair, "kind").unwrap_or_default(),
            resource: text(pair, "resource").unwrap_or_default(),
            state: text(pair, "state"),
        });
    }
    contract.with = companions(value);
    contract.provenance = match text(value, "provenance").as_deref() {
        Some("adapter") => Provenance::Adapter,
        Some("observed") => Provenance::Observed,
        _ => Provenance::Declared,
    };
    contract
}

fn companion_json(call: &Companion) -> Value {
    let input = call.input.as_deref().and_then(|input| serde_json::from_str::<Value>(input).ok());
    json!({ "tool": call.tool, "input": input })
}

/// A call: the name of its tool, or the tool and its input.
fn companion(value: Option<&Value>) -> Option<Companion> {
    let value = value?;
    let tool = value.as_str().or_else(|| value.get("tool").and_then(Value::as_str))?;
    let input = value.get("input").filter(|input| !input.is_null()).map(Value::to_string);
    Some(Companion { tool: tool.to_owned(), input })
}

fn companions(value: &Value) -> Companions {
    let of_effect = |key: &str| companion(value.get("effect").and_then(|effect| effect.get(key)));
    let undo = value.get("effect").and_then(|effect| effect.get("reversible")).and_then(|effect| effect.get("call"));
    let patterns = |key: &str| -> BTreeMap<String, String> {
        let written = value.get("query").and_then(|query| query.get(key)).and_then(Value::as_object);
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        written.into_iter().flatten().map(|(path, pattern)| (path.clone(), text(pattern))).collect()
    };
    let ask = companion(value.get("query"));
    Companions {
        query: ask.map(|ask| Query { ask, done: patterns("done"), failed: patterns("failed") }),
        undo: companion(undo),
        release: of_effect("release"),
        discard: of_effect("discard"),
        resources: value
            .get("resources")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(contract: &Contract) {
        assert_eq!(&from_json(&to_json(contract)), contract);
    }

    #[test]
    fn a_contract_is_read_back_as_it_was_written() {
        check(&Contract::weakest("shell"));
        check(&Contract::reads("device.read"));
        check(&Contract {
            op_kind: "device.start".to_owned(),
            op_id: OpId::Key("Idempotency-Key".to_owned()),
            outcome: OutcomeBy::ResendOriginal { retention: Duration::from_secs(60) },
            idempotent: true,
            effect: Effect::Reversible {
                inverse: "device.stop".to_owned(),
                precondition: Some("running".to_owned()),
                window: Some(Duration::from_secs(5)),
            },
            visibility: Visibility::Declared(vec!["line 1".to_owned()]),
            commutes: vec![Commutes { kind: "add".to_owned(), resource: "*".to_owned(), state: None }],
            with: Companions {
                undo: Some(Companion { input: Some("{\"id\":\"{output.id}\"}".to_owned()), ..Companion::of("void") }),
                ..Companions::default()
            },
            provenance: Provenance::Observed,
        });
        check(&Contract {
            op_id: OpId::Native,
            outcome: OutcomeBy::Query,
            effect: Effect::Stageable { ttl: Duration::from_secs(9) },
            visibility: Visibility::Private,
            with: Companions {
                query: Some(Query {
                    ask: Companion::of("status"),
                    done: [("state".to_owned(), "paid".to_owned())].into(),
                    failed: BTreeMap::new(),
                }),
                undo: None,
                release: Some(Companion::of("release")),
                discard: Some(Companion::of("drop")),
                resources: vec!["order/{input.id}".to_owned()],
            },
            ..Contract::weakest("x")
        });
    }

    #[test]
    fn what_is_not_understood_is_the_weakest() {
        let weakest = Contract { provenance: Provenance::Declared, ..Contract::weakest("x") };
        assert_eq!(from_json(&json!({ "op_kind": "x", "effect": "magic", "outcome": 7, "visibility": [] })), weakest);
    }
}

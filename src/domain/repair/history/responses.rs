//! OpenAI Responses items. They have no turns that must alternate: a result may stand anywhere behind its call, and each
//! kind of call has its own kind of result.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{Journal, Repaired, word};
use crate::block::Ids;
use crate::repair::Stub;

/// The kinds of items that the client must answer; each is answered by the kind with `_output` behind it.
pub(in crate::repair) const CALLS: [&str; 6] =
    ["function_call", "custom_tool_call", "local_shell_call", "shell_call", "apply_patch_call", "computer_call"];

/// Whether the model said this item.
pub(in crate::repair) fn of_model(item: &Value) -> bool {
    match word(item, "type") {
        "message" | "" => word(item, "role") == "assistant",
        kind => !kind.ends_with("_output") && !matches!(kind, "item_reference" | "mcp_approval_response"),
    }
}

/// A call of which nobody can say what it called.
pub(in crate::repair) fn is_nameless(item: &Value) -> bool {
    matches!(word(item, "type"), "function_call" | "custom_tool_call") && word(item, "name").is_empty()
}

struct Open {
    at: usize,
    turn: usize,
}

pub(super) fn repair(items: Vec<Value>, journal: &Journal) -> Repaired {
    let mut out: Vec<Option<Value>> = Vec::with_capacity(items.len());
    let (mut quarantined, mut left_out) = (Vec::new(), Vec::new());
    let mut ids = Ids::new();
    // By the id that the provider gave: the calls that wait, the number of calls so far.
    let mut open: BTreeMap<String, Vec<Open>> = BTreeMap::new();
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    // For each call: the stub that it gets if nothing answers it.
    let mut waiting: BTreeMap<usize, Stub> = BTreeMap::new();
    let mut turn = 0;
    let mut model_spoke = false;
    for (place, mut item) in items.into_iter().enumerate() {
        if !item.is_object() || (word(&item, "type").is_empty() && word(&item, "role").is_empty()) {
            left_out.push(format!("item {place}"));
            continue;
        }
        let of_model = of_model(&item);
        turn += usize::from(of_model && !model_spoke);
        model_spoke = of_model;
        let kind = word(&item, "type").to_owned();
        if is_nameless(&item) {
            quarantined.push(word(&item, "call_id").to_owned());
            continue;
        }
        if CALLS.contains(&kind.as_str()) {
            let given = word(&item, "call_id").to_owned();
            let occurrence = seen.entry(given.clone()).or_insert(0);
            *occurrence += 1;
            waiting.insert(out.len(), journal.of(&given, *occurrence));
            open.entry(given.clone()).or_default().push(Open { at: out.len(), turn });
            let id = ids.take(&given);
            if id.as_str() != given {
                item["call_id"] = id.as_str().into();
            }
        } else if let Some(kind) = kind.strip_suffix("_output").filter(|kind| CALLS.contains(kind)) {
            let given = word(&item, "call_id").to_owned();
            let calls = open.get_mut(&given).filter(|calls| !calls.is_empty());
            let Some(calls) = calls else {
                // Their own tool ran: call and result came together, and both are theirs.
                quarantined.push(given);
                continue;
            };
            // By position within the newest turn that waits for this id.
            let newest = calls.last().map_or(0, |call| call.turn);
            let first = calls.iter().position(|call| call.turn == newest).unwrap_or(0);
            let call = calls.remove(first);
            waiting.remove(&call.at);
            let asked = out[call.at].as_ref();
            let (id, kind_asked) = asked.map_or(("", kind), |call| (word(call, "call_id"), word(call, "type")));
            if id != given {
                item["call_id"] = id.into();
            }
            if kind_asked != kind {
                item["type"] = format!("{kind_asked}_output").into();
            }
        }
        out.push(Some(item));
    }
    dangling(&mut out);
    let mut messages = Vec::with_capacity(out.len() + waiting.len());
    let mut stubs = Vec::with_capacity(waiting.len());
    for (at, item) in out.into_iter().enumerate() {
        let Some(item) = item else { continue };
        let answer = waiting.get(&at).map(|stub| {
            stubs.push((word(&item, "call_id").to_owned(), *stub));
            stub_of(&item, *stub)
        });
        messages.push(item);
        messages.extend(answer);
    }
    Repaired { messages, quarantined, stubs, left_out }
}

/// A thought is refused without what it led to: it must stand before something else that the model said.
fn dangling(out: &mut [Option<Value>]) {
    let mut leads_somewhere = false;
    for slot in out.iter_mut().rev() {
        let Some(item) = slot else { continue };
        if word(item, "type") == "reasoning" {
            if !leads_somewhere {
                *slot = None;
            }
        } else {
            leads_somewhere = of_model(item);
        }
    }
}

fn stub_of(call: &Value, stub: Stub) -> Value {
    let kind = word(call, "type");
    let mut item = json!({"type": format!("{kind}_output"), "call_id": call["call_id"], "output": stub.text()});
    match kind {
        "shell_call" => {
            let outcome = json!({"type": "exit", "exit_code": 1});
            item["output"] = json!([{"stdout": "", "stderr": stub.text(), "outcome": outcome}]);
        }
        "apply_patch_call" => item["status"] = "failed".into(),
        _ => {}
    }
    item
}

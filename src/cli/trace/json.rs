//! A trace as one JSON object with stable keys.

use interlock_domain::trace::moves::Move;
use interlock_domain::trace::{Graph, What};
use serde_json::{Value, json};

use crate::record::rfc3339;

pub(super) fn object(graph: &Graph) -> Value {
    let events = graph.events.iter().zip(&graph.offsets).map(|(fact, offset)| {
        json!({
            "seq": fact.seq.0,
            "time": rfc3339(fact.wall),
            "offset_ns": offset,
            "run": fact.run.to_string(),
            "call": fact.call.map(|call| call.to_string()),
            "kind": fact.what.word(),
            "text": fact.what.line(),
            "agent": if let What::Agent(step) = &fact.what { of_move(step) } else { Value::Null },
        })
    });
    let seq = |at: usize| graph.events[at].seq.0;
    let edges =
        graph.edges.iter().map(|edge| json!({ "from": seq(edge.from), "to": seq(edge.to), "kind": edge.tie.word() }));
    let calls = graph.calls.iter().map(|story| {
        let (ending, code, told) = match &story.ending {
            Some((ending, code, told)) => (Some(ending), code.as_ref(), Some(told)),
            None => (None, None, None),
        };
        json!({
            "call": story.call.to_string(),
            "tool": story.tool,
            "input": story.input,
            "parent": story.parent.map(|parent| parent.to_string()),
            "step": story.permitted.as_ref().map(|(step, _)| step),
            "rule": story.permitted.as_ref().and_then(|(_, rule)| rule.as_ref()),
            "question": story.question.as_ref().map(|(question, _)| question),
            "answer": story.question.as_ref().and_then(|(_, answer)| answer.as_ref()),
            "class": story.class,
            "turn": story.turn,
            "wished_ns": story.wished_ns,
            "started_ns": story.started_ns,
            "ended_ns": story.ended_ns,
            "result": ending,
            "code": code,
            "told": told,
            "resolved": story.resolved,
        })
    });
    json!({
        "run": graph.run.to_string(),
        "children": graph.children.iter().map(|(child, parent)| {
            let call = graph.makers.get(child).map(|call| call.to_string());
            json!({ "run": child.to_string(), "parent": parent.to_string(), "call": call })
        }).collect::<Vec<_>>(),
        "calls": calls.collect::<Vec<_>>(),
        "events": events.collect::<Vec<_>>(),
        "edges": edges.collect::<Vec<_>>(),
        "maintenance_checks": graph.count("maintenance"),
        "missing": graph.missing,
    })
}

/// The members of a move.
fn of_move(step: &Move) -> Value {
    match step {
        Move::Asked { text, asker, model, parent, resumed, start } => json!({
            "text": text, "asker": asker, "model": model, "start": start,
            "parent": parent.map(|call| call.to_string()), "resumed": resumed.map(|run| run.to_string()),
        }),
        Move::Turn { turn, attempt, took_ns, calls, text, usage } => json!({
            "turn": turn, "attempt": attempt, "took_ns": took_ns, "text": text, "usage": usage,
            "calls": calls.iter().map(|(id, tool)| json!({ "id": id, "tool": tool })).collect::<Vec<_>>(),
        }),
        Move::Dispatched { turn, batch, calls } => json!({ "turn": turn, "batch": batch, "calls": calls }),
        Move::Hook { turn, id, tool, decision, reason } => {
            json!({ "turn": turn, "id": id, "tool": tool, "decision": decision, "reason": reason })
        }
        Move::Compacted { levels, before, after } => json!({ "levels": levels, "before": before, "after": after }),
        Move::Trouble { turn, code, message } => json!({ "turn": turn, "code": code, "message": message }),
        Move::Upkeep { text, passed } => json!({ "passed": passed, "text": text }),
        Move::Ended { outcome, turns, message, text } => {
            json!({ "outcome": outcome, "turns": turns, "message": message, "text": text })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    #[test]
    fn the_keys_are_stable_and_edges_name_rows() {
        let object = object(&sample::graph());
        let keys: Vec<&String> = object.as_object().unwrap().keys().collect();
        assert_eq!(keys.len(), 7, "{keys:?}");
        assert_eq!(object["calls"][3]["result"], "unknown");
        assert_eq!(object["calls"][3]["answer"], "allow by li");
        assert_eq!(object["maintenance_checks"], 1);
        assert_eq!(object["events"][2]["agent"]["calls"][1], json!({"id": "c1", "tool": "shell"}));
        assert_eq!(object["children"][0]["call"], object["calls"][2]["call"]);
        assert!(object["edges"].as_array().unwrap().contains(&json!({"from": 10, "to": 11, "kind": "pairing"})));
    }
}

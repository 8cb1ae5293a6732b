//! A trace as one JSON object with stable keys.

use interlock_domain::trace::Graph;
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
            json!({ "run": child.to_string(), "parent": parent.to_string() })
        }).collect::<Vec<_>>(),
        "calls": calls.collect::<Vec<_>>(),
        "events": events.collect::<Vec<_>>(),
        "edges": edges.collect::<Vec<_>>(),
        "maintenance_checks": graph.count("maintenance"),
        "missing": graph.missing,
    })
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
        assert!(object["edges"].as_array().unwrap().contains(&json!({"from": 7, "to": 8, "kind": "pairing"})));
    }
}

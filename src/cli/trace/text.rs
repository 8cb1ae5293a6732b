//! A trace as lines of text: the calls, and under each its events.

use interlock_domain::id::RunId;
use interlock_domain::trace::{Graph, Tie, What};

use super::span;

pub(super) fn lines(graph: &Graph) -> Vec<String> {
    let mut lines = vec![format!("run {}", graph.run)];
    of_run(&mut lines, graph, graph.run);
    for (child, parent) in &graph.children {
        let by = graph.makers.get(child).map_or_else(String::new, |call| format!(", made by call {call}"));
        lines.push(format!("child {child} of {parent}{by}"));
        of_run(&mut lines, graph, *child);
    }
    for story in &graph.calls {
        let ending = story.ending.as_ref().map_or("open", |(word, ..)| word);
        let took = match (story.started_ns, story.ended_ns) {
            (Some(started), Some(ended)) => format!(" in {}", span(ended.saturating_sub(started))),
            _ => String::new(),
        };
        let turn = story.turn.map_or_else(String::new, |turn| format!(" in turn {turn}"));
        let parent = story.parent.map_or_else(String::new, |parent| format!(" for {parent}"));
        lines.push(format!("call {}{turn}{parent}  {} {}  -> {ending}{took}", story.call, story.tool, story.input));
        for at in &story.events {
            let (fact, offset) = (&graph.events[*at], graph.offsets[*at]);
            if !matches!(fact.what, What::Requested { .. }) {
                let line = format!("  +{:<9} {:<14} {}", span(offset), fact.what.word(), fact.what.line());
                lines.push(line.trim_end().to_owned());
            }
        }
    }
    let endings: Vec<String> = graph.endings().iter().map(|(word, count)| format!("{count} {word}")).collect();
    let ties = Tie::ALL.map(|tie| {
        let count = graph.edges.iter().filter(|edge| edge.tie == tie).count();
        format!("{count} {}", tie.word())
    });
    lines.push(format!("{} calls: {}", graph.calls.len(), endings.join(", ")));
    lines.push(format!("{} events, edges: {}", graph.events.len(), ties.join(", ")));
    lines.extend(graph.missing.iter().map(|missing| format!("note: {missing}")));
    lines
}

/// What happened to a run itself, outside of its calls.
fn of_run(lines: &mut Vec<String>, graph: &Graph, run: RunId) {
    let events = graph.events.iter().zip(&graph.offsets);
    for (fact, at) in events.filter(|(fact, _)| fact.call.is_none() && fact.run == run) {
        lines.push(format!("  +{:<9} {:<16} {}", span(*at), fact.what.word(), fact.what.line()).trim_end().to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    #[test]
    fn a_person_reads_what_was_wished_for_and_what_became_of_it() {
        let text = lines(&sample::graph()).join("\n");
        for want in [
            "call 00000000010000000000000001.4.1 in turn 1  shell {\"command\":\"rm -rf build <b>&\\\"\"}  -> not_started",
            "for 00000000010000000000000001.4.2  device",
            "answered       q7: allow by li",
            "5 calls: 3 done, 1 not_started, 1 unknown",
            "maintenance      passed: src: exit 0",
            "agent_turn       turn 1 [90 tokens in, 12 out] calls read_file, shell, agent, device",
            "agent_ended      done after 2 turns: all is well",
            "child 00000000010000000000000002 of 00000000010000000000000001, made by call 00000000010000000000000001.4.2",
            "call 00000000010000000000000001.4.0 in turn 1  read_file",
            "resolved       done, by li",
        ] {
            assert!(text.contains(want), "{want} is not in\n{text}");
        }
    }
}

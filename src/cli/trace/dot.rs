//! A trace in the language of Graphviz.

use std::fmt::Write as _;

use interlock_domain::trace::{Graph, Tie, What};

/// The most characters of a label: what is longer makes the picture unreadable.
const LABEL_CHARS_MAX: usize = 60;

pub(super) fn graph(graph: &Graph) -> String {
    let mut dot =
        String::from("digraph run {\n  rankdir=LR;\n  node [shape=box, fontname=\"sans-serif\", fontsize=10];\n");
    for (at, fact) in graph.events.iter().enumerate().filter(|(_, fact)| fact.call.is_none()) {
        let shape = if let What::Agent(_) = fact.what { "hexagon" } else { "ellipse" };
        let _ = writeln!(dot, "  e{at} [label={}, shape={shape}];", label(fact.what.word(), &fact.what.line()));
    }
    for (number, story) in graph.calls.iter().enumerate() {
        let _ = writeln!(dot, "  subgraph cluster_{number} {{");
        let _ = writeln!(dot, "    label={};", label(&story.call.to_string(), &story.tool));
        for at in &story.events {
            let what = &graph.events[*at].what;
            let _ = writeln!(dot, "    e{at} [label={}];", label(what.word(), &what.line()));
        }
        dot.push_str("  }\n");
    }
    for edge in &graph.edges {
        let style = match edge.tie {
            Tie::Order => "color=gray60",
            Tie::Decision => "color=darkorange",
            Tie::Pairing => "color=steelblue, style=dashed, constraint=false",
            Tie::Lifecycle => "color=seagreen, style=bold",
        };
        let _ = writeln!(dot, "  e{} -> e{} [{style}];", edge.from, edge.to);
    }
    dot.push('}');
    dot
}

/// A quoted label: nothing in it can end the quotes.
fn label(head: &str, text: &str) -> String {
    let cut: String = text.chars().take(LABEL_CHARS_MAX).collect();
    let clean = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"");
    if cut.is_empty() { format!("\"{}\"", clean(head)) } else { format!("\"{}\\n{}\"", clean(head), clean(&cut)) }
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    #[test]
    fn every_event_and_every_edge_is_drawn_and_no_input_leaves_its_label() {
        let sample = sample::graph();
        let dot = graph(&sample);
        assert_eq!(dot.matches(" -> ").count(), sample.edges.len());
        assert_eq!(dot.matches("[label=").count(), sample.events.len());
        assert!(dot.contains(r#"rm -rf build <b>&\\\""#), "{dot}");
    }
}

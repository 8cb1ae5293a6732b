//! The loop of each run that a model drives, as a person reads it: what was asked, each answer, what came of it, the
//! end.

use std::fmt::Write as _;

use interlock_domain::trace::moves::Move;
use interlock_domain::trace::{Graph, What};

use super::html::{Words, escaped};
use super::span;

pub(super) fn tell(page: &mut String, graph: &Graph, words: &Words) {
    for (run, moves) in &graph.moves {
        let below = if *run == graph.run { "" } else { "↳ " };
        let _ = write!(page, "<section><h2>{below}{} <code>{run}</code></h2>", words.model_loop);
        page.push_str("<div class=\"scroll\"><table><tbody>");
        for at in moves {
            let What::Agent(step) = &graph.events[*at].what else { continue };
            let took = match step {
                Move::Turn { took_ns: Some(took), .. } => span(*took),
                Move::Turn { .. }
                | Move::Asked { .. }
                | Move::Dispatched { .. }
                | Move::Hook { .. }
                | Move::Compacted { .. }
                | Move::Trouble { .. }
                | Move::Upkeep { .. }
                | Move::Ended { .. } => String::new(),
            };
            let _ = write!(
                page,
                "<tr><td class=\"number\">+{}</td><td><span class=\"chip {}\">{}</span></td><td class=\"mono\">{}</td>\
                 <td class=\"number\">{took}</td></tr>",
                span(graph.offsets[*at]),
                colour(step),
                name(step, words),
                escaped(&step.line())
            );
        }
        page.push_str("</tbody></table></div></section>");
    }
}

fn colour(step: &Move) -> &'static str {
    match step {
        Move::Ended { outcome, .. } if outcome == "done" => "done",
        Move::Ended { .. } | Move::Trouble { .. } => "failed",
        Move::Upkeep { passed: false, .. } => "failed",
        Move::Upkeep { passed: true, .. } => "done",
        Move::Hook { .. } => "asked",
        Move::Asked { .. } | Move::Turn { .. } | Move::Dispatched { .. } | Move::Compacted { .. } => "model",
    }
}

/// What a move is called in the reader's language.
fn name(step: &Move, words: &Words) -> &'static str {
    let [en, zh] = match step {
        Move::Asked { .. } => ["asked", "请求"],
        Move::Turn { .. } => ["answer", "作答"],
        Move::Dispatched { .. } => ["calls", "调用"],
        Move::Hook { .. } => ["hook", "钩子"],
        Move::Compacted { .. } => ["compacted", "压缩"],
        Move::Trouble { .. } => ["trouble", "故障"],
        Move::Upkeep { .. } => ["check", "检查"],
        Move::Ended { .. } => ["end", "结束"],
    };
    if words.lang == "en" { en } else { zh }
}

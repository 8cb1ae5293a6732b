//! What streams are worth: the cases that others had wrong, recorded streams, dialects, hostile input, and any cut.

mod bounds;
mod cases;
mod dialects;
mod round_trip;
mod streams;
mod variants;

use interlock_domain::block::{Ids, Provider};

use super::end::End;
use super::{Dialect, Normalizer};

/// The end of one stream that arrives in the given pieces.
fn end_of<'p>(dialect: &Dialect, pieces: impl IntoIterator<Item = &'p [u8]>) -> End {
    let mut normalizer = Normalizer::new(dialect, Ids::new());
    for piece in pieces {
        normalizer.feed(piece, &mut |_| {});
    }
    normalizer.finish().0
}

fn plain(provider: Provider, bytes: &[u8]) -> End {
    end_of(&Dialect::plain(provider), [bytes])
}

/// Frames as events, as servers send them.
fn events<S: AsRef<str>>(frames: &[S]) -> Vec<u8> {
    frames.iter().flat_map(|frame| format!("data: {}\n\n", frame.as_ref()).into_bytes()).collect()
}

/// An end on one line: how, why it stopped, the text, the thoughts, each call, and what went wrong.
fn shown(end: &End) -> String {
    use interlock_domain::block::Block;
    let mut shown = end.terminal.word().to_owned();
    if end.to_json()["retryable"] == true {
        shown.push_str(" retryable");
    }
    if let Some(stop) = end.stop {
        shown.push_str(&format!(" {}", stop.word()));
    }
    for block in &end.blocks {
        shown.push_str(&match block {
            Block::Text { text, .. } => format!(" | {text}"),
            Block::Thinking { text, signature, .. } => {
                format!(" | ({text}{})", signature.as_ref().map_or(String::new(), |s| format!(" #{s}")))
            }
            Block::RedactedThinking { data } => format!(" | (#{data})"),
            Block::ToolUse(call) => format!(" | {}={}{}", call.id, call.name, call.input),
            Block::Image(image) => format!(" | image {}", image.media_type),
            Block::Opaque { value, .. } => format!(" | opaque {}", value["type"].as_str().unwrap_or("-")),
            Block::ToolResult(_) => " | result".to_owned(),
        });
    }
    if let Some(fault) = &end.fault {
        shown.push_str(&format!(" ! {}", fault.word()));
    }
    shown
}

//! Levels 0 to 2: pictures, results of calls, and what can be read back from the disk.
//!
//! Only what the asker's side put in is touched, in place: a message of the model is replayed byte for byte or dropped
//! whole, since a signature covers it. Each function takes as much as is asked for, the oldest first, and finds nothing
//! more to take when it is called again.

use crate::block::{Block, Image, Message, ToolResult};
use crate::request::args::Digest;

use super::estimate;

/// The newest pictures, which are never taken: what is being talked about.
const IMAGES_KEPT: usize = 2;

/// The messages at the end whose results level 1 leaves alone: the last two rounds.
const RECENT: usize = 4;

/// Results between these sizes, in tokens, are snipped where they are old: below, nothing is gained; above, they go to
/// the disk, from where they can be had back.
const SNIP_OVER: usize = 400;
/// Above this, a result goes to the disk.
const SPILL_OVER: usize = 2000;

/// What is left of a snipped result, in bytes: its beginning and its end.
const SNIP_HEAD: usize = 600;
const SNIP_TAIL: usize = 300;

/// What is left of one that went to the disk.
const SPILL_HEAD: usize = 2000;
const SPILL_TAIL: usize = 1000;

/// What stands in place of a picture.
const NO_IMAGE: &str = "[a picture was here; it was left out to save room]";

/// One text that is to lie on the disk before the history may point at it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spilled {
    /// The name of its file: made of the text, so that one text has one file.
    pub name: String,
    /// The text.
    pub text: String,
}

impl Spilled {
    fn of(text: &str) -> Spilled {
        let digest = Digest::of(text.as_bytes()).to_string();
        Spilled { name: format!("{}.txt", &digest[..24]), text: text.to_owned() }
    }
}

/// Level 0: takes pictures, oldest first, until `need` tokens are gained. Gives what was gained.
pub(super) fn prune_images(history: &mut [Message], need: usize) -> usize {
    let all: usize = history.iter().map(pictures).sum();
    let mut left = all.saturating_sub(IMAGES_KEPT);
    let mut gained = 0;
    for message in history.iter_mut() {
        for block in &mut message.blocks {
            if left == 0 || gained >= need {
                return gained;
            }
            let before = estimate::block(block);
            match block {
                Block::Image(_) => {
                    *block = Block::text(NO_IMAGE);
                    left -= 1;
                }
                Block::ToolResult(result) if !result.images.is_empty() => {
                    let taken = result.images.len().min(left);
                    result.images.drain(..taken);
                    if !result.text.contains(NO_IMAGE) {
                        let gap = if result.text.is_empty() { "" } else { "\n" };
                        result.text.push_str(&format!("{gap}{NO_IMAGE}"));
                    }
                    left -= taken;
                }
                Block::Text { .. }
                | Block::Thinking { .. }
                | Block::RedactedThinking { .. }
                | Block::ToolUse(_)
                | Block::ToolResult(_)
                | Block::Opaque { .. } => continue,
            }
            gained += before.saturating_sub(estimate::block(block));
        }
    }
    gained
}

fn pictures(message: &Message) -> usize {
    let of = |block: &Block| match block {
        Block::Image(Image { .. }) => 1,
        Block::ToolResult(result) => result.images.len(),
        Block::Text { .. }
        | Block::Thinking { .. }
        | Block::RedactedThinking { .. }
        | Block::ToolUse(_)
        | Block::Opaque { .. } => 0,
    };
    message.blocks.iter().map(of).sum()
}

/// Level 1: snips old results, oldest first.
pub(super) fn snip(history: &mut [Message], need: usize) -> usize {
    let old = history.len().saturating_sub(RECENT);
    let mut gained = 0;
    for result in results(&mut history[..old]) {
        if gained >= need {
            break;
        }
        let before = estimate::text(&result.text);
        if before > SNIP_OVER && before <= SPILL_OVER {
            result.text = clipped(&result.text, SNIP_HEAD, SNIP_TAIL, "");
            gained += before.saturating_sub(estimate::text(&result.text));
        }
    }
    gained
}

/// Level 2, first half: the results that should lie on the disk, oldest first, those above `always` tokens in any case.
pub(super) fn to_spill(history: &[Message], need: usize, always: usize) -> Vec<Spilled> {
    let (head, tail) = left_of_spilled(always);
    let mut gained = 0;
    let mut files: Vec<Spilled> = Vec::new();
    for message in history {
        for block in &message.blocks {
            let Block::ToolResult(result) = block else { continue };
            let tokens = estimate::text(&result.text);
            if tokens > always || (tokens > SPILL_OVER && gained < need) {
                gained += tokens.saturating_sub((head + tail) / 4);
                let file = Spilled::of(&result.text);
                if !files.contains(&file) {
                    files.push(file);
                }
            }
        }
    }
    files
}

/// Level 2, second half: the results whose text lies on the disk now point to it. `kept` says where, or that there was
/// no room for it.
pub(super) fn point(history: &mut [Message], kept: &[(Spilled, Option<String>)], always: usize) {
    let (head, tail) = left_of_spilled(always);
    for result in results(history) {
        let Some((_, place)) = kept.iter().find(|(file, _)| file.text == result.text) else { continue };
        let note = match place {
            Some(path) => format!("; the whole is kept: read_file {path}"),
            None => "; there was no room to keep the whole".to_owned(),
        };
        result.text = clipped(&result.text, head, tail, &note);
    }
}

/// What is left of a result that went to the disk: so little that it is not sent there again, also where each
/// character is a token and the note beside it is long.
fn left_of_spilled(always: usize) -> (usize, usize) {
    let bytes = always.saturating_sub(120).clamp(16, SPILL_HEAD + SPILL_TAIL);
    (bytes * 2 / 3, bytes / 3)
}

/// Level 5: no result is longer than `tokens`.
pub(super) fn cap(history: &mut [Message], tokens: usize) {
    // The note takes some of it, and one character of Chinese is a token of three bytes.
    let bytes = tokens.saturating_sub(40).max(16);
    for result in results(history) {
        if estimate::text(&result.text) > tokens {
            result.text = clipped(&result.text, bytes * 2 / 3, bytes / 3, "");
        }
    }
}

fn results(history: &mut [Message]) -> impl Iterator<Item = &mut ToolResult> {
    history.iter_mut().flat_map(|message| &mut message.blocks).filter_map(|block| match block {
        Block::ToolResult(result) => Some(result),
        Block::Text { .. }
        | Block::Thinking { .. }
        | Block::RedactedThinking { .. }
        | Block::ToolUse(_)
        | Block::Image(_)
        | Block::Opaque { .. } => None,
    })
}

/// The first and the last part of a text, and how much is missing between them.
pub(super) fn clipped(text: &str, head: usize, tail: usize, note: &str) -> String {
    let first = text.floor_char_boundary(head);
    let last = text.ceil_char_boundary(text.len().saturating_sub(tail));
    if first >= last {
        return text.to_owned();
    }
    let left_out = last - first;
    let short = format!("{}\n[… {left_out} bytes left out{note} …]\n{}", &text[..first], &text[last..]);
    // A note that is longer than what it stands for saves nothing.
    if short.len() < text.len() { short } else { text.to_owned() }
}

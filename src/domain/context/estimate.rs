//! How many tokens a history takes, roughly, and how far off that was the last time.
//!
//! No tokenizer: each provider has another one, and the ones of local models are in their files. Four letters of plain
//! text are about one token and a Chinese character is about one, so the estimate counts that, and what the provider
//! reports of a request corrects it upwards. It is used for one thing only: to cut in time.

use serde_json::Value;

use crate::block::{Block, Image, ImageSource, Kept, Message};

/// What a message and a block cost besides their text: roles, brackets, names of members.
const FRAME: usize = 4;

/// What a picture costs: the most that the large providers count for one that was scaled to their bound.
const IMAGE: usize = 1600;

/// The bounds of the correction, in thousandths. Below, a provider counts something else; above, its count includes
/// what we did not send.
const SCALE_MIN: usize = 1000;
const SCALE_MAX: usize = 4000;

/// The tokens of a text.
#[must_use]
pub fn text(text: &str) -> usize {
    let (mut plain, mut other) = (0_usize, 0_usize);
    for byte in text.as_bytes() {
        // Every character that is not plain begins with one byte of this form (RFC 3629).
        match byte {
            0..=0x7f => plain += 1,
            0xc0.. => other += 1,
            0x80..=0xbf => {}
        }
    }
    plain.div_ceil(4) + other
}

/// The tokens of a JSON value, as text.
#[must_use]
pub fn value(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 2,
        Value::String(said) => text(said) + 1,
        Value::Array(items) => items.iter().map(|item| self::value(item) + 1).sum::<usize>() + 1,
        Value::Object(members) => {
            members.iter().map(|(key, item)| text(key) + self::value(item) + 2).sum::<usize>() + 1
        }
    }
}

/// The tokens of one block.
#[must_use]
pub fn block(block: &Block) -> usize {
    let inside = match block {
        Block::Text { text: said, kept } => text(said) + self::kept(kept),
        Block::Thinking { text: said, signature, kept, .. } => {
            text(said) + signature.as_deref().map_or(0, text) + self::kept(kept)
        }
        Block::RedactedThinking { data } => text(data),
        Block::ToolUse(call) => text(&call.name) + value(&call.input) + self::kept(&call.kept) + FRAME,
        Block::ToolResult(result) => {
            text(&result.text) + result.images.iter().map(image).sum::<usize>() + self::kept(&result.kept) + FRAME
        }
        Block::Image(picture) => image(picture),
        Block::Opaque { value: kept, .. } => value(kept),
    };
    inside + FRAME
}

/// The tokens of a history.
#[must_use]
pub fn history(history: &[Message]) -> usize {
    history.iter().map(|message| message.blocks.iter().map(block).sum::<usize>() + FRAME).sum()
}

fn image(image: &Image) -> usize {
    match &image.source {
        ImageSource::Base64(_) => IMAGE,
        ImageSource::Url(url) => IMAGE + text(url),
    }
}

fn kept(kept: &Kept) -> usize {
    kept.whole().map_or(0, |(_, members)| members.iter().map(|(key, item)| text(key) + value(item)).sum())
}

/// By how much the estimate was too low, in thousandths: it is never taken for too high, because the next text may be
/// of another kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scale(usize);

impl Default for Scale {
    fn default() -> Scale {
        Scale(SCALE_MIN)
    }
}

impl Scale {
    /// What an estimate comes to.
    #[must_use]
    pub fn of(self, estimate: usize) -> usize {
        estimate.saturating_mul(self.0) / 1000
    }

    /// The provider counted `counted` tokens for what was estimated at `estimate`.
    #[must_use]
    pub fn seen(self, estimate: usize, counted: u64) -> Scale {
        let counted = usize::try_from(counted).unwrap_or(usize::MAX);
        let now = counted.saturating_mul(1000) / estimate.max(1);
        Scale(now.clamp(self.0, SCALE_MAX.max(self.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_text_is_a_quarter_of_its_letters_and_chinese_counts_whole() {
        for (said, tokens) in [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2), ("联锁", 2), ("启动pump", 3)] {
            assert_eq!(text(said), tokens, "{said}");
        }
    }

    #[test]
    fn the_correction_only_grows_and_is_bounded() {
        let scale = Scale::default();
        assert_eq!(scale.of(1000), 1000);
        assert_eq!(scale.seen(1000, 500).of(1000), 1000);
        assert_eq!(scale.seen(1000, 1500).of(1000), 1500);
        assert_eq!(scale.seen(1000, 1500).seen(1000, 1200).of(1000), 1500);
        assert_eq!(scale.seen(10, 1_000_000).of(1000), 4000);
        assert_eq!(scale.seen(0, 0).of(usize::MAX), usize::MAX / 1000);
    }
}

//! What a provider's stream costs, from bytes to blocks, and what the repair of a long history costs.
//!
//! The streams have the shape of recorded ones: a token or a few a frame, with the members that each provider sends
//! around it, and a call whose arguments come in pieces. They arrive in pieces of the size of a network read.

use std::hint::black_box;
use std::time::{Duration, Instant};

use interlock_domain::block::{Ids, Provider};
use interlock_domain::repair::history::{Journal, repair};
use interlock_domain::repair::legality::breaches;
use serde_json::{Value, json};

use crate::provider::{Dialect, Normalizer};

/// How long each figure is measured.
const MEASURED: Duration = Duration::from_millis(1500);
/// Frames of text in a stream.
const FRAMES: usize = 4000;
/// A network read.
const PIECE_LEN: usize = 16 * 1024;
/// Messages of the long history.
const MESSAGES: usize = 10_000;
/// How often it is mended.
const ROUNDS: usize = 15;

/// The figures, each with its unit in its key.
#[must_use]
pub fn run() -> Value {
    let mut figures = serde_json::Map::new();
    let mut slowest = f64::INFINITY;
    for provider in Provider::ALL {
        let speed = speed(provider);
        slowest = slowest.min(speed);
        figures.insert(format!("{}_mb_per_s", provider.word().replace('-', "_")), speed.into());
    }
    figures.insert("slowest_mb_per_s".to_owned(), slowest.into());
    let (mended, judged) = long_history();
    figures.insert("repair_10000_ms_p50".to_owned(), mended.into());
    figures.insert("validate_10000_ms_p50".to_owned(), judged.into());
    Value::Object(figures)
}

fn speed(provider: Provider) -> f64 {
    let stream = stream(provider);
    let begun = Instant::now();
    let mut bytes = 0_usize;
    while begun.elapsed() < MEASURED {
        let mut normalizer = Normalizer::new(&Dialect::plain(provider), Ids::new());
        for piece in stream.chunks(PIECE_LEN) {
            normalizer.feed(black_box(piece), &mut |_| {});
        }
        black_box(normalizer.finish());
        bytes += stream.len();
    }
    #[expect(clippy::cast_precision_loss, reason = "a figure, not a count")]
    let megabytes = bytes as f64 / 1e6;
    megabytes / begun.elapsed().as_secs_f64()
}

fn stream(provider: Provider) -> Vec<u8> {
    let mut frames = Vec::with_capacity(FRAMES + 64);
    let words = ["We", " need", " to", " count", " 三号泵", " \"r\"", ".\n"];
    let words = (0..FRAMES).map(|at| words[at % words.len()]);
    let pieces = ["{\"device\":", "\"pump-2\"", ",\"action\"", ":\"start\"}"];
    match provider {
        Provider::Chat => {
            let chunk = |delta: Value, finish: Value| {
                let choice = json!({"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish});
                json!({
                    "id": "cac7192e-e619-40c6-96b0-ed4276bc03ac", "object": "chat.completion.chunk",
                    "created": 1_764_661_832, "model": "deepseek-reasoner",
                    "system_fingerprint": "fp_eaab8d114b_prod0820_fp8_kvcache", "choices": [choice], "usage": null,
                })
            };
            frames.extend(words.map(|word| chunk(json!({"content": word, "reasoning_content": null}), Value::Null)));
            let call = |piece: &str| json!({"tool_calls": [{"index": 0, "id": "c1", "type": "function", "function": {"name": "device", "arguments": piece}}]});
            frames.extend(pieces.iter().map(|piece| chunk(call(piece), Value::Null)));
            frames.push(chunk(json!({}), json!("tool_calls")));
        }
        Provider::Anthropic => {
            frames.push(json!({"type": "message_start", "message": {"role": "assistant", "content": []}}));
            frames.push(
                json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
            );
            frames.extend(words.map(|word| {
                json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": word}})
            }));
            frames.push(json!({"type": "content_block_stop", "index": 0}));
            frames.push(json!({"type": "content_block_start", "index": 1, "content_block": {"type": "tool_use", "id": "c1", "name": "device", "input": {}}}));
            frames.extend(pieces.iter().map(|piece| {
                json!({"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": piece}})
            }));
            frames.push(json!({"type": "content_block_stop", "index": 1}));
            frames.push(
                json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 9}}),
            );
            frames.push(json!({"type": "message_stop"}));
        }
        Provider::Responses => {
            let item = json!({"id": "msg_01830d662ab3856501693c32183a488190a612c410a0a39823", "type": "message", "role": "assistant", "content": []});
            frames.push(json!({"type": "response.output_item.added", "output_index": 0, "item": item}));
            frames.extend((3..).zip(words).map(|(number, word)| {
                json!({
                    "type": "response.output_text.delta", "sequence_number": number,
                    "item_id": "msg_01830d662ab3856501693c32183a488190a612c410a0a39823", "output_index": 0,
                    "content_index": 0, "delta": word, "logprobs": [], "obfuscation": "Vq2wKz9",
                })
            }));
            let call = |arguments: &str| json!({"id": "fc_1", "type": "function_call", "call_id": "c1", "name": "device", "arguments": arguments});
            frames.push(json!({"type": "response.output_item.added", "output_index": 1, "item": call("")}));
            frames.extend(pieces.iter().map(|piece| {
                json!({"type": "response.function_call_arguments.delta", "output_index": 1, "item_id": "fc_1", "delta": piece})
            }));
            frames
                .push(json!({"type": "response.output_item.done", "output_index": 1, "item": call(&pieces.concat())}));
            frames.push(json!({"type": "response.completed", "response": {"status": "completed", "output": []}}));
        }
        Provider::Gemini => {
            let chunk = |parts: Value| {
                json!({
                    "candidates": [{"content": {"parts": parts, "role": "model"}, "index": 0}],
                    "usageMetadata": {"promptTokenCount": 29, "candidatesTokenCount": 15, "totalTokenCount": 89,
                        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 29}], "thoughtsTokenCount": 45},
                    "modelVersion": "gemini-3-pro-preview", "responseId": "b36LacjwM668nsEP2tbsgQQ",
                })
            };
            frames.extend(words.map(|word| chunk(json!([{"text": word}]))));
            frames.push(chunk(json!([{"functionCall": {"name": "device", "args": {"device": "pump-2"}}, "thoughtSignature": "EqUCCqICAb4"}])));
            frames.push(
                json!({"candidates": [{"content": {"parts": [{"text": ""}]}, "finishReason": "STOP", "index": 0}]}),
            );
        }
    }
    frames.iter().flat_map(|frame| format!("data: {frame}\n\n").into_bytes()).collect()
}

/// The median of mending and of judging a history in which every tenth turn lacks a result, in milliseconds.
fn long_history() -> (f64, f64) {
    let mut messages = Vec::with_capacity(MESSAGES);
    for turn in 0..MESSAGES / 2 {
        let id = format!("toolu_{turn:08}");
        let result = json!({"type": "tool_result", "tool_use_id": format!("toolu_{:08}", turn.saturating_sub(1)), "content": "12.5 bar, all valves closed, no alarm"});
        let said = json!({"type": "text", "text": "go on"});
        let content = if turn == 0 || turn % 10 == 0 { json!([said]) } else { json!([result]) };
        messages.push(json!({"role": "user", "content": content}));
        messages.push(json!({"role": "assistant", "content": [
            {"type": "text", "text": "I will look at the next pump and tell you what I find there."},
            {"type": "tool_use", "id": id, "name": "device", "input": {"device": "pump-2", "action": "read"}},
        ]}));
    }
    let (mut mends, mut looks) = (Vec::with_capacity(ROUNDS), Vec::with_capacity(ROUNDS));
    for _ in 0..ROUNDS {
        let history = messages.clone();
        let begun = Instant::now();
        let mended = repair(Provider::Anthropic, black_box(history), &Journal::new());
        mends.push(begun.elapsed().as_secs_f64() * 1e3);
        let begun = Instant::now();
        black_box(breaches(Provider::Anthropic, black_box(&mended.messages)));
        looks.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    let median = |mut list: Vec<f64>| {
        list.sort_by(f64::total_cmp);
        list.get(list.len() / 2).copied().unwrap_or_default()
    };
    (median(mends), median(looks))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::end::Terminal;

    /// A figure about streams that are not whole would be a figure about something else.
    #[test]
    fn the_measured_streams_are_whole() {
        for provider in Provider::ALL {
            let mut normalizer = Normalizer::new(&Dialect::plain(provider), Ids::new());
            normalizer.feed(&stream(provider), &mut |_| {});
            let (end, _) = normalizer.finish();
            assert_eq!(end.terminal, Terminal::Complete, "{provider:?}: {:?}", end.fault);
            assert_eq!(end.calls().count(), 1, "{provider:?}");
            assert!(end.text().starts_with("We need to count 三号泵 \"r\".\nWe"), "{provider:?}");
        }
    }
}

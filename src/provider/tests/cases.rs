//! The normalizer's cases of `tests/cases/mediation.jsonl`.

use interlock_domain::block::{Block, Ids, Message, Provider, Role};
use serde_json::{Value, json};

use super::super::request;
use super::super::{Dialect, Normalizer};
use super::{end_of, events};

const CASES: &str = include_str!("../../../tests/cases/mediation.jsonl");

#[test]
fn the_cases_that_others_had_wrong() {
    let mut seen = 0;
    for case in CASES.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()) {
        if case["area"] == "normalizer" {
            check(&case);
            seen += 1;
        }
    }
    assert_eq!(seen, 18);
}

fn check(case: &Value) {
    let (name, input, expected) = (&case["id"], &case["input"], &case["expected"]);
    let provider = match input["provider"].as_str().unwrap() {
        "anthropic" => Provider::Anthropic,
        "gemini" => Provider::Gemini,
        "openai_chat" | "openai_compat" => Provider::Chat,
        other => panic!("{other}"),
    };
    let dialect = Dialect::plain(provider);
    let pieces: Vec<Vec<u8>> = if let Some(pieces) = input["bytes_hex"].as_array() {
        pieces.iter().map(|piece| bytes(piece.as_str().unwrap())).collect()
    } else if let Some(frames) = input["data_frames"].as_array().or(input["turns"][0].as_array()) {
        vec![events(&frames.iter().map(|frame| frame.as_str().unwrap()).collect::<Vec<_>>())]
    } else {
        vec![events(&input["events"].as_array().unwrap().iter().map(Value::to_string).collect::<Vec<_>>())]
    };
    let end = end_of(&dialect, pieces.iter().map(Vec::as_slice));
    let said = end.to_json();
    match expected["terminal"].as_str() {
        Some("complete") => assert_eq!(said["terminal"], "complete", "{name}: {said}"),
        Some("error") => assert_ne!(said["terminal"], "complete", "{name}: {said}"),
        Some(_) | None => {}
    }
    if let Some(kind) = expected.get("error_kind") {
        assert_eq!(said["error"]["kind"], *kind, "{name}");
    }
    if expected.get("dispatched").is_some() {
        assert_eq!(said["calls"], json!([]), "{name}");
    }
    if let Some(retryable) = expected.get("retryable") {
        assert_eq!(said["retryable"], *retryable, "{name}");
    }
    if let Some(text) = expected.get("text") {
        assert_eq!(said["text"], *text, "{name}");
    }
    if let Some(part) = expected["text_contains"].as_str() {
        assert!(said["text"].as_str().unwrap().contains(part), "{name}");
    }
    if let Some(usage) = expected.get("usage") {
        assert_eq!(said["usage"], *usage, "{name}");
    }
    if let Some(code) = expected.get("diagnostic") {
        assert!(said["diagnostics"].as_array().unwrap().contains(code), "{name}: {said}");
    }
    if let Some(calls) = expected["calls"].as_array() {
        assert_eq!(said["calls"].as_array().unwrap().len(), calls.len(), "{name}: {said}");
        for (got, want) in said["calls"].as_array().unwrap().iter().zip(calls) {
            for (key, want) in want.as_object().unwrap() {
                if want == "<synthetic,nonempty>" {
                    assert_ne!(got[key], "", "{name}");
                } else {
                    assert_eq!(got[key], *want, "{name}: {key}");
                }
            }
        }
    }
    for key in ["replayed_assistant_content", "persisted_assistant_content"] {
        if let Some(content) = expected.get(key) {
            assert_eq!(said["blocks"], *content, "{name}");
            let answers = end.calls().map(|call| Block::ToolResult(call.answer("1", false))).collect();
            let history = [
                Message::user("go"),
                Message { role: Role::Assistant, blocks: end.blocks.clone() },
                Message { role: Role::User, blocks: answers },
            ];
            let sent = request::history(&dialect, &history);
            let replayed = sent.get(1).map_or(json!([]), |message| message["content"].clone());
            assert_eq!(replayed, *content, "{name}");
        }
    }
    if let Some(wanted) = expected.get("next_request_contains") {
        let answers = end.calls().map(|call| Block::ToolResult(call.answer(input["reply"].to_string(), false)));
        let history = [
            Message::user("go"),
            Message { role: Role::Assistant, blocks: end.blocks.clone() },
            Message { role: Role::User, blocks: answers.collect() },
        ];
        assert_eq!(request::history(&dialect, &history)[2]["parts"][0], *wanted, "{name}");
    }
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

/// N07 and N20, on the way back: an id of ours goes to a provider only where it wants one.
#[test]
fn an_id_of_ours_does_not_leak() {
    let gemini = events(&[
        r#"{"candidates":[{"content":{"parts":[{"functionCall":{"name":"t","args":{}}}]},"finishReason":"STOP"}]}"#,
    ]);
    let chat = events(&[
        r#"{"choices":[{"delta":{"tool_calls":[{"function":{"name":"t","arguments":{}}}]},"finish_reason":"stop"}]}"#,
    ]);
    for (provider, bytes, want) in [
        (Provider::Gemini, gemini, json!({"parts": [{"functionCall": {"name": "t", "args": {}}}], "role": "model"})),
        (
            Provider::Chat,
            chat,
            json!({"role": "assistant", "content": null, "tool_calls": [
                {"id": "call00001", "type": "function", "function": {"name": "t", "arguments": "{}"}}
            ]}),
        ),
    ] {
        let dialect = Dialect::plain(provider);
        let mut normalizer = Normalizer::new(&dialect, Ids::new());
        normalizer.feed(&bytes, &mut |_| {});
        let (end, ids) = normalizer.finish();
        assert_eq!(end.calls().next().unwrap().id.as_str(), "call00001");
        assert_eq!(ids, Ids::of(&[Message { role: Role::Assistant, blocks: end.blocks.clone() }]));
        let history = [Message::user("go"), Message { role: Role::Assistant, blocks: end.blocks }];
        assert_eq!(request::history(&dialect, &history)[1], want);
    }
}

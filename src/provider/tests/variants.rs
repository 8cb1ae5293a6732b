//! Variants of what providers and gateways send (`tests/data/provider-variants`): what each is worth, however it is cut.

use interlock_domain::block::{Block, Provider};
use serde_json::Value;

use super::super::Dialect;
use super::super::end::End;
use super::end_of;

const ANTHROPIC: &str = include_str!("../../../tests/data/provider-variants/anthropic.jsonl");
const CHAT: &str = include_str!("../../../tests/data/provider-variants/openai.jsonl");
const RESPONSES: &str = include_str!("../../../tests/data/provider-variants/openai-responses.jsonl");
const GEMINI: &str = include_str!("../../../tests/data/provider-variants/gemini.jsonl");

/// Fewer would mean that somebody has shortened a list.
const ROWS_MIN: usize = 60;

fn bytes(row: &Value) -> Vec<u8> {
    match row["hex"].as_str() {
        Some(hex) => (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect(),
        None => row["bytes"].as_str().unwrap().as_bytes().to_vec(),
    }
}

/// What is not as the row has it.
fn wrong(end: &End, want: &Value) -> Vec<String> {
    let said = end.to_json();
    let mut wrong = Vec::new();
    let mut same = |key: &str, got: &Value| {
        if want.get(key).is_some_and(|want| want != got) {
            wrong.push(format!("{key} is {got}, not {}", want[key]));
        }
    };
    for key in ["terminal", "retryable", "text", "stop", "usage"] {
        same(key, &said[key]);
    }
    let thought = |block: &Block| if let Block::Thinking { text, .. } = block { text.clone() } else { String::new() };
    same("thinking", &Value::from(end.blocks.iter().map(thought).collect::<String>()));
    if let Some(open) = want["terminal_in"].as_array()
        && !open.contains(&said["terminal"])
    {
        wrong.push(format!("terminal is {}, none of {}", said["terminal"], want["terminal_in"]));
    }
    let calls = said["calls"].as_array().unwrap();
    if said["terminal"] != "complete" && !calls.is_empty() {
        wrong.push("calls of an answer that is not complete".to_owned());
    }
    if let Some(wanted) = want["calls"].as_array() {
        if wanted.len() != calls.len() {
            wrong.push(format!("calls are {}", said["calls"]));
        }
        for (got, want) in calls.iter().zip(wanted) {
            for (key, want) in want.as_object().unwrap() {
                if got[key] != *want {
                    wrong.push(format!("{key} of a call is {}, not {want}", got[key]));
                }
            }
        }
    }
    wrong
}

#[test]
fn every_variant_comes_to_what_it_is_worth_however_it_is_cut() {
    let mut failed = Vec::new();
    for (provider, rows) in [
        (Provider::Anthropic, ANTHROPIC),
        (Provider::Chat, CHAT),
        (Provider::Responses, RESPONSES),
        (Provider::Gemini, GEMINI),
    ] {
        let dialect = Dialect::plain(provider);
        assert!(rows.lines().count() >= ROWS_MIN, "{provider:?}");
        for line in rows.lines() {
            let row: Value = serde_json::from_str(line).unwrap();
            let bytes = bytes(&row);
            let whole = end_of(&dialect, [bytes.as_slice()]);
            let wrong = wrong(&whole, &row["want"]);
            if !wrong.is_empty() {
                failed.push(format!("{}: {}\n", row["id"], wrong.join("; ")));
            }
            for size in [1, 2, 3, 5, 17, 64] {
                assert_eq!(end_of(&dialect, bytes.chunks(size)), whole, "{} in pieces of {size}", row["id"]);
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.concat());
}

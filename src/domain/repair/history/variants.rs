//! Histories as crashes, cancellations and clients leave them (`tests/data/provider-variants/histories.jsonl`), mended.

use serde_json::Value;

use super::super::legality::breaches;
use super::{Journal, repair};

const ROWS: &str = include_str!("../../../../tests/data/provider-variants/histories.jsonl");

fn journal(row: &Value) -> Journal {
    let mut journal = Journal::new();
    for (id, word) in row["journal"].as_object().unwrap() {
        journal.note_word(id, word.as_str().unwrap());
    }
    journal
}

/// What is not as the row has it.
fn wrong(row: &Value) -> Vec<String> {
    let provider = row["provider"].as_str().unwrap().parse().unwrap();
    let history = row["history"].as_array().unwrap().clone();
    let mended = repair(provider, history.clone(), &journal(row)).messages;
    let mut wrong: Vec<String> = breaches(provider, &mended).into_iter().map(|breach| breach.why).collect();
    if repair(provider, mended.clone(), &journal(row)).messages != mended {
        wrong.push("mending it again changes it".to_owned());
    }
    let want = &row["want"];
    if want["same"] == true && mended != history {
        wrong.push("a legal history was changed".to_owned());
    }
    let text = Value::Array(mended).to_string();
    let list = |key: &str| want[key].as_array().into_iter().flatten().filter_map(Value::as_str);
    wrong.extend(list("has").filter(|part| !text.contains(part)).map(|part| format!("{part:?} is lost")));
    wrong.extend(list("has_not").filter(|part| text.contains(part)).map(|part| format!("{part:?} is still there")));
    let places: Vec<usize> = list("in_order").filter_map(|part| text.find(part)).collect();
    if !places.is_sorted() {
        wrong.push(format!("the order is not {}", want["in_order"]));
    }
    if !wrong.is_empty() {
        wrong.push(text);
    }
    wrong
}

#[test]
fn every_variant_is_legal_once_mended_and_keeps_what_was_said() {
    let mut failed = Vec::new();
    let mut seen = 0;
    for row in ROWS.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()) {
        seen += 1;
        let wrong = wrong(&row);
        if !wrong.is_empty() {
            failed.push(format!("{}: {}\n", row["id"], wrong.join("; ")));
        }
    }
    assert!(seen >= 120 && failed.is_empty(), "{seen} {}", failed.concat());
}

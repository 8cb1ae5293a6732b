//! The values by which one call is seen to rest on another: a text or a number of a result that a later input repeats.
//!
//! It is an inference, and errs on the side of a dependency too many. What is in everything (`on`, `12`) says nothing,
//! and a page of text is never repeated by chance or on purpose: both are left out.

use std::collections::BTreeSet;

use serde_json::Value;

/// Shortest text, and longest, that counts as a value of its own.
const VALUE_LEN: std::ops::RangeInclusive<usize> = 4..=256;

/// Values that one result is remembered by.
pub const VALUES_MAX: usize = 64;

/// Parts of one result or input that are looked at: a page of JSON, not a download.
const PARTS_MAX: usize = 2048;

/// The texts and numbers in a value that somebody may repeat.
#[must_use]
pub fn values(value: &Value) -> BTreeSet<String> {
    let (mut found, mut next, mut parts) = (BTreeSet::new(), vec![value], 0);
    while let Some(value) = next.pop() {
        parts += 1;
        if found.len() >= VALUES_MAX || parts > PARTS_MAX {
            break;
        }
        let text = match value {
            Value::Null | Value::Bool(_) => continue,
            Value::Number(number) => number.to_string(),
            Value::String(text) if VALUE_LEN.contains(&text.len()) => text.clone(),
            Value::String(_) => continue,
            Value::Array(all) => {
                next.extend(all.iter().take(PARTS_MAX));
                continue;
            }
            Value::Object(members) => {
                next.extend(members.values().take(PARTS_MAX));
                continue;
            }
        };
        if VALUE_LEN.contains(&text.len()) {
            found.insert(text);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_somebody_may_repeat_is_a_value_and_what_is_in_everything_is_none() {
        let check = |value: Value, want: &[&str]| {
            assert_eq!(values(&value).iter().map(String::as_str).collect::<Vec<_>>(), want, "{value}");
        };
        check(json!({ "id": "Q-1234", "ok": true, "n": 12, "big": 4711.5, "on": "on" }), &["4711.5", "Q-1234"]);
        check(json!([["abcd"], { "x": ["efgh", null] }]), &["abcd", "efgh"]);
        check(json!("x".repeat(257)), &[]);
        let many: Vec<String> = (0..5000).map(|number| format!("value {number}")).collect();
        assert_eq!(values(&json!(many)).len(), VALUES_MAX);
        let small: Vec<u8> = vec![1; 100_000];
        assert!(values(&json!(small)).is_empty());
    }
}

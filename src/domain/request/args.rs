//! The input of a call: bounded once, hashed once, then shared and never changed.
//!
//! Whoever changes an input (a hook) makes new `Args` and thereby a new hash, so no answer given for the old input
//! fits. The hash is over a text of our own, with sorted keys and written lengths: it must not depend on the order in
//! which a JSON library keeps its keys, which any one crate in the build can switch for everyone.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;
use sha2::{Digest as _, Sha256};
use thiserror::Error;

/// The most bytes of an input, counted over its text, keys and numbers. A file to write is the largest thing asked for.
pub const ARGS_BYTES_MAX: usize = 1 << 20;

/// How deep an input may nest. Everything that walks a value may recurse this far and no further.
pub const ARGS_DEPTH_MAX: usize = 32;

/// The most values in one input: a flat array of a million nulls is small as text and large in memory.
pub const ARGS_NODES_MAX: usize = 16_384;

/// A SHA-256.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// Of some bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Digest {
        Digest(Sha256::digest(bytes).into())
    }
}

const HEX: &[u8; 16] = b"0123456789abcdef";

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Written at once: formatting byte by byte costs more than the hash.
        let mut text = [0; 64];
        for (two, byte) in text.chunks_exact_mut(2).zip(self.0) {
            two.copy_from_slice(&[HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
        }
        f.write_str(std::str::from_utf8(&text).map_err(|_| fmt::Error)?)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().take(4).try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str("…")
    }
}

/// An input beyond a bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum TooLarge {
    /// More text than [`ARGS_BYTES_MAX`].
    #[error("the input has more than {ARGS_BYTES_MAX} bytes")]
    Bytes,
    /// Deeper than [`ARGS_DEPTH_MAX`].
    #[error("the input nests deeper than {ARGS_DEPTH_MAX}")]
    Depth,
    /// More values than [`ARGS_NODES_MAX`].
    #[error("the input has more than {ARGS_NODES_MAX} values")]
    Nodes,
    /// Not an object: tools take named values only.
    #[error("the input is not an object")]
    NotAnObject,
}

/// The input of a call: a JSON object within bounds, and its hash.
#[derive(Debug, Clone, PartialEq)]
pub struct Args {
    value: Arc<Value>,
    hash: Digest,
    bytes: usize,
}

impl Args {
    /// Checks the bounds and takes the hash.
    ///
    /// # Errors
    /// When the value is no object or beyond a bound.
    pub fn new(value: Value) -> Result<Args, TooLarge> {
        if !value.is_object() {
            return Err(TooLarge::NotAnObject);
        }
        let mut bounds = Bounds { bytes: ARGS_BYTES_MAX, nodes: ARGS_NODES_MAX };
        bounds.check(&value, ARGS_DEPTH_MAX)?;
        let mut hash = Sha256::new();
        digest(&value, &mut hash);
        // What a value costs in memory, roughly: its text and a node for each value.
        let bytes = (ARGS_BYTES_MAX - bounds.bytes) + (ARGS_NODES_MAX - bounds.nodes) * size_of::<Value>();
        Ok(Args { value: Arc::new(value), hash: Digest(hash.finalize().into()), bytes })
    }

    /// The value.
    #[must_use]
    pub fn value(&self) -> &Arc<Value> {
        &self.value
    }

    /// The hash of its canonical text.
    #[must_use]
    pub fn hash(&self) -> Digest {
        self.hash
    }

    /// What it costs in memory, roughly.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// A member of the object that is a text.
    #[must_use]
    pub fn text(&self, key: &str) -> Option<&str> {
        self.value.get(key).and_then(Value::as_str)
    }
}

struct Bounds {
    bytes: usize,
    nodes: usize,
}

impl Bounds {
    fn check(&mut self, value: &Value, depth: usize) -> Result<(), TooLarge> {
        self.nodes = self.nodes.checked_sub(1).ok_or(TooLarge::Nodes)?;
        let depth_below = depth.checked_sub(1).ok_or(TooLarge::Depth)?;
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => self.take(8),
            Value::String(text) => self.take(text.len()),
            Value::Array(items) => items.iter().try_for_each(|item| self.check(item, depth_below)),
            Value::Object(members) => members.iter().try_for_each(|(key, item)| {
                self.take(key.len())?;
                self.check(item, depth_below)
            }),
        }
    }

    fn take(&mut self, bytes: usize) -> Result<(), TooLarge> {
        self.bytes = self.bytes.checked_sub(bytes).ok_or(TooLarge::Bytes)?;
        Ok(())
    }
}

/// A letter for the kind, the length where there is one, then the content: no two values have one text.
fn digest(value: &Value, hash: &mut Sha256) {
    match value {
        Value::Null => hash.update(b"n"),
        Value::Bool(false) => hash.update(b"f"),
        Value::Bool(true) => hash.update(b"t"),
        Value::Number(number) => lengthed(b"d", number.to_string().as_bytes(), hash),
        Value::String(text) => lengthed(b"s", text.as_bytes(), hash),
        Value::Array(items) => {
            count(b"a", items.len(), hash);
            items.iter().for_each(|item| digest(item, hash));
        }
        Value::Object(members) => {
            count(b"o", members.len(), hash);
            let mut sorted: Vec<_> = members.iter().collect();
            sorted.sort_unstable_by(|left, right| left.0.cmp(right.0));
            for (key, item) in sorted {
                lengthed(b"k", key.as_bytes(), hash);
                digest(item, hash);
            }
        }
    }
}

fn lengthed(kind: &[u8], bytes: &[u8], hash: &mut Sha256) {
    count(kind, bytes.len(), hash);
    hash.update(bytes);
}

fn count(kind: &[u8], len: usize, hash: &mut Sha256) {
    hash.update(kind);
    hash.update((len as u64).to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn hash(value: Value) -> String {
        Args::new(value).unwrap().hash().to_string()
    }

    #[test]
    fn the_hash_is_that_of_the_canonical_text_written_by_hand() {
        let text =
            b"o\x02\0\0\0\0\0\0\0k\x01\0\0\0\0\0\0\0ad\x01\0\0\0\0\0\0\x001k\x01\0\0\0\0\0\0\0bs\x01\0\0\0\0\0\0\0x";
        assert_eq!(hash(json!({"b": "x", "a": 1})), Digest::of(text).to_string());
    }

    #[test]
    fn what_differs_has_another_hash() {
        let values = [
            json!({"a": "1"}),
            json!({"a": 1}),
            json!({"a": 1.0}),
            json!({"a": [1]}),
            json!({"a": {"b": 1}}),
            json!({"a": null}),
            json!({"a": false}),
            json!({"a": "bs"}),
            json!({"a": ["b", "c"]}),
            json!({"a": ["bc"]}),
            json!({"ab": "c"}),
            json!({"a": "bc"}),
            json!({}),
        ];
        let mut seen: Vec<String> = values.into_iter().map(hash).collect();
        let len = seen.len();
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), len);
    }

    #[test]
    fn an_input_beyond_a_bound_is_refused() {
        let mut deep = json!({});
        for _ in 0..ARGS_DEPTH_MAX - 1 {
            deep = json!({ "a": deep });
        }
        let table = [
            (json!([]), Some(TooLarge::NotAnObject)),
            (json!("x"), Some(TooLarge::NotAnObject)),
            (deep.clone(), None),
            (json!({ "a": deep }), Some(TooLarge::Depth)),
            (json!({ "a": "x".repeat(ARGS_BYTES_MAX - 1) }), None),
            (json!({ "a": "x".repeat(ARGS_BYTES_MAX) }), Some(TooLarge::Bytes)),
            (json!({ "a": vec![0; ARGS_NODES_MAX - 2] }), None),
            (json!({ "a": vec![0; ARGS_NODES_MAX - 1] }), Some(TooLarge::Nodes)),
        ];
        for (value, want) in table {
            assert_eq!(Args::new(value).err(), want);
        }
    }
}

//! The detail of a row, written member by member: eight rows a call are made on the way of the call, and a tree of
//! values for each would cost it more than the gate does.

use serde::Serialize;
use serde_json::Value;

/// The text of a JSON object, begun. Its members are written in the order of their names, as `serde_json` writes its
/// maps, so that it does not show which way a row was made.
#[derive(Debug)]
pub struct Detail {
    text: Vec<u8>,
    last: &'static str,
}

impl Default for Detail {
    fn default() -> Detail {
        Detail { text: b"{".to_vec(), last: "" }
    }
}

impl Detail {
    /// With one more member, whose name comes after those before.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: &(impl Serialize + ?Sized)) -> Detail {
        self.put(name, value);
        self
    }

    /// The same for what may be large: of more than `len_max` bytes, what there was and its beginning, as
    /// `{"cut": <bytes>, "head": "…"}`.
    #[must_use]
    pub fn with_kept(mut self, name: &'static str, value: &Value, len_max: usize) -> Detail {
        let begin = self.put(name, value);
        let len = self.text.len() - begin;
        if len > len_max {
            let whole = String::from_utf8_lossy(&self.text[begin..]);
            let head = whole[..whole.floor_char_boundary(len_max / 8)].to_owned();
            self.text.truncate(begin);
            self.write(&serde_json::json!({ "cut": len, "head": head }));
        }
        self
    }

    /// Where the value begins.
    fn put(&mut self, name: &'static str, value: &(impl Serialize + ?Sized)) -> usize {
        debug_assert!(self.last < name, "{name} stands behind {}", self.last);
        if !self.last.is_empty() {
            self.text.push(b',');
        }
        self.last = name;
        self.write(name);
        self.text.push(b':');
        let begin = self.text.len();
        self.write(value);
        begin
    }

    fn write(&mut self, value: &(impl Serialize + ?Sized)) {
        let begin = self.text.len();
        if serde_json::to_writer(&mut self.text, value).is_err() {
            // Only a map whose keys are no texts; what is written here has none.
            self.text.truncate(begin);
            self.text.extend(b"null");
        }
    }

    /// The object, whole.
    #[must_use]
    pub fn end(mut self) -> String {
        self.text.push(b'}');
        String::from_utf8(self.text).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn it_reads_as_the_value_would() {
        let none: Option<&str> = None;
        let input = json!({"path": "/a \"b\"\n", "n": 1.5});
        let written = Detail::default().with("epoch", &7).with_kept("input", &input, 100).with("rule", &none).end();
        assert_eq!(written, json!({"epoch": 7, "input": input, "rule": null}).to_string());
        assert_eq!(Detail::default().end(), "{}");
    }

    #[test]
    fn what_is_too_long_is_cut_at_a_character() {
        let long = json!("泵".repeat(100));
        let written = Detail::default().with_kept("input", &long, 80).with("tool", "x").end();
        let read: Value = serde_json::from_str(&written).unwrap();
        assert_eq!(read, json!({"input": {"cut": 302, "head": "\"泵泵泵"}, "tool": "x"}));
    }
}

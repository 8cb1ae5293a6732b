//! What a browser sends: the pairs of a form or of a query (URL Standard, "application/x-www-form-urlencoded").

/// Pairs that are read; no form of ours has half as many.
const PAIRS_MAX: usize = 32;

/// Names and values, in order.
#[derive(Debug, Default)]
pub(super) struct Form(Vec<(String, String)>);

impl Form {
    /// Reads one; `None` when it is none, or has too many pairs.
    pub(super) fn read(written: &[u8]) -> Option<Form> {
        let mut pairs = Vec::new();
        for pair in written.split(|byte| *byte == b'&').filter(|pair| !pair.is_empty()) {
            if pairs.len() == PAIRS_MAX {
                return None;
            }
            let at = pair.iter().position(|byte| *byte == b'=').unwrap_or(pair.len());
            let value = pair.get(at + 1..).unwrap_or_default();
            pairs.push((decoded(&pair[..at])?, decoded(value)?));
        }
        Some(Form(pairs))
    }

    /// The first value of a name, where it is not empty.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let value = self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
        value.filter(|value| !value.is_empty())
    }
}

fn decoded(written: &[u8]) -> Option<String> {
    let digit =
        |byte: Option<&u8>| byte.and_then(|byte| char::from(*byte).to_digit(16)).and_then(|d| u8::try_from(d).ok());
    let mut bytes = Vec::with_capacity(written.len());
    let mut at = 0;
    while let Some(byte) = written.get(at) {
        match byte {
            b'+' => bytes.push(b' '),
            b'%' => {
                bytes.push(digit(written.get(at + 1))? << 4 | digit(written.get(at + 2))?);
                at += 2;
            }
            other => bytes.push(*other),
        }
        at += 1;
    }
    String::from_utf8(bytes).ok()
}

/// A value as it stands in a link.
pub(super) fn encoded(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    for byte in value.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => text.push(char::from(byte)),
            _ => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_is_read_as_a_browser_writes_it() {
        let form = Form::read(b"question=q1&note=%E5%B7%B2+seen%26ok&empty=&bare").unwrap();
        assert_eq!(form.get("question"), Some("q1"));
        assert_eq!(form.get("note"), Some("\u{5df2} seen&ok"));
        assert_eq!((form.get("empty"), form.get("bare"), form.get("other")), (None, None, None));
        assert_eq!(decoded(encoded("a b/\u{5df2}&").as_bytes()).as_deref(), Some("a b/\u{5df2}&"));
    }

    #[test]
    fn what_is_no_form_is_none() {
        for written in ["a=%", "a=%1", "a=%zz", "a=%ff", &"a=1&".repeat(33)] {
            assert!(Form::read(written.as_bytes()).is_none(), "{written}");
        }
    }
}

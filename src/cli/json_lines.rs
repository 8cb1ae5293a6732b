//! JSON Lines from a pipe, answered line by line: a bad line costs only itself.

use std::io::{BufRead, Read as _, Write};

use serde_json::{Map, Value, json};

/// The longest line that is taken, in bytes: room for an input of the largest size that a tool takes, twice.
const LINE_LEN_MAX: u64 = 4 << 20;

/// What one line holds, or why it cannot be answered.
pub(super) type Answer = Result<Value, String>;

/// Answers each line of `input` that is not empty; `false` when a line was bad.
///
/// # Errors
/// When input cannot be read or output cannot be written.
pub(super) fn each(
    input: &mut dyn BufRead,
    output: &mut dyn Write,
    mut answer: impl FnMut(Map<String, Value>) -> Answer,
) -> std::io::Result<bool> {
    texts(input, output, LINE_LEN_MAX, |text| {
        match serde_json::from_str(text).map_err(|error| format!("not JSON: {error}"))? {
            Value::Object(members) => answer(members),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                Err("not an object".to_owned())
            }
        }
    })
}

/// The same for lines that are read in another way and may have another length.
///
/// # Errors
/// When input cannot be read or output cannot be written.
pub(super) fn texts(
    input: &mut dyn BufRead,
    output: &mut dyn Write,
    len_max: u64,
    mut answer: impl FnMut(&str) -> Answer,
) -> std::io::Result<bool> {
    several(input, output, len_max, |_, text| answer(text).map(|said| vec![said]))
}

/// The same where a line has several answers, or none. `answer` gets the line's number, from 1.
///
/// # Errors
/// When input cannot be read or output cannot be written.
pub(super) fn several(
    input: &mut dyn BufRead,
    output: &mut dyn Write,
    len_max: u64,
    mut answer: impl FnMut(u64, &str) -> Result<Vec<Value>, String>,
) -> std::io::Result<bool> {
    let mut good = true;
    let mut line = Vec::new();
    let mut number = 0_u64;
    loop {
        line.clear();
        if input.take(len_max + 1).read_until(b'\n', &mut line)? == 0 {
            output.flush()?;
            return Ok(good);
        }
        number += 1;
        let too_long = line.last() != Some(&b'\n') && line.len() as u64 > len_max;
        if too_long {
            // The rest of it goes unread and unkept.
            input.skip_until(b'\n')?;
        }
        let answered = if too_long {
            Err(format!("longer than {len_max} bytes"))
        } else {
            one(&line, |text| answer(number, text))
        };
        let said = answered.unwrap_or_else(|error| {
            good = false;
            vec![json!({ "line": number, "error": error })]
        });
        said.iter().try_for_each(|said| writeln!(output, "{said}"))?;
    }
}

fn one(line: &[u8], answer: impl FnOnce(&str) -> Result<Vec<Value>, String>) -> Result<Vec<Value>, String> {
    let text = std::str::from_utf8(line).map_err(|_| "not UTF-8".to_owned())?.trim();
    if text.is_empty() { Ok(Vec::new()) } else { answer(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_line_is_answered_on_its_line_and_the_rest_still_runs() {
        let mut input: Vec<u8> = b"{\"a\":1}\n\nnonsense\n[]\n\xff\n".to_vec();
        input.extend(vec![b' '; 4 << 20]);
        input.extend_from_slice(b"x\n{\"a\":2}");
        let mut output = Vec::new();
        let good = each(&mut input.as_slice(), &mut output, |line| Ok(line["a"].clone())).unwrap();
        let lines: Vec<String> = String::from_utf8(output).unwrap().lines().map(str::to_owned).collect();
        assert!(!good);
        assert_eq!(lines[0], "1");
        assert!(lines[1].starts_with(r#"{"error":"not JSON"#) && lines[1].ends_with(r#""line":3}"#), "{}", lines[1]);
        assert_eq!(lines[2], r#"{"error":"not an object","line":4}"#);
        assert_eq!(lines[3], r#"{"error":"not UTF-8","line":5}"#);
        assert_eq!(lines[4], r#"{"error":"longer than 4194304 bytes","line":6}"#);
        assert_eq!(lines[5], "2");
    }
}

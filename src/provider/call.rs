//! A call while its pieces arrive: name, id and arguments, whatever order they come in.

use interlock_domain::block::{Block, CallKind, ID_LEN_MAX};
use interlock_domain::request::BATCH_LEN_MAX;
use serde_json::{Map, Value};

use super::end::Fault;
use super::json::Json;

/// The longest arguments of one call, as JSON text, in bytes: a tool takes an input of 1 MiB, and escapes make up to
/// six bytes of one.
pub(super) const ARGUMENTS_LEN_MAX: usize = 6 << 20;
/// The most that one message may hold in memory, in bytes.
pub(super) const MESSAGE_LEN_MAX: usize = 32 << 20;
/// The most calls in one message: what one batch takes.
pub(super) const CALLS_MAX: usize = BATCH_LEN_MAX;
/// Said of longer ones.
const TOO_LONG: Fault = Fault::TooLarge("the arguments of a call are longer than 6 MiB");
/// The longest name of a tool, in bytes. Our own are shorter; a longer one names none.
const NAME_LEN_MAX: usize = 1024;

/// What a message is made of while it arrives.
#[derive(Debug)]
pub(super) enum Draft {
    /// A part that is whole as it is.
    Block(Block),
    /// A call, whose arguments are read at the end.
    Call(OpenCall),
}

/// Why the model stopped, as its provider says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reason {
    /// It came to an end, with calls or without.
    Ended,
    /// Its output reached its bound.
    Length,
    /// The provider's own tools pause.
    Pause,
    /// It or a filter refused; the provider's word.
    Refused(String),
}

/// Counts what a message holds.
#[derive(Debug, Default)]
pub(super) struct Size(usize);

impl Size {
    pub(super) fn add(&mut self, bytes: usize) -> Result<(), Fault> {
        self.0 += bytes;
        if self.0 > MESSAGE_LEN_MAX { Err(Fault::TooLarge("the message holds more than 32 MiB")) } else { Ok(()) }
    }
}

/// A call while it arrives.
#[derive(Debug)]
pub(super) struct OpenCall {
    pub(super) provider_id: String,
    pub(super) name: String,
    pub(super) arguments: Arguments,
    pub(super) kind: CallKind,
    pub(super) kept: Map<String, Value>,
    /// The provider says that its output was cut inside this call.
    pub(super) cut: bool,
}

impl OpenCall {
    pub(super) fn new(provider_id: &str, name: &str) -> Result<OpenCall, Fault> {
        if provider_id.len() > ID_LEN_MAX {
            return Err(Fault::TooLarge("the id of a call is longer than 64 KiB"));
        }
        if name.len() > NAME_LEN_MAX {
            return Err(Fault::TooLarge("the name of a tool is longer than 1024 bytes"));
        }
        Ok(OpenCall {
            provider_id: provider_id.to_owned(),
            name: name.to_owned(),
            arguments: Arguments::default(),
            kind: CallKind::Function,
            kept: Map::new(),
            cut: false,
        })
    }

    /// A name that arrives again: the same, more of it, or all of it so far. `false` when it is another.
    pub(super) fn take_name(&mut self, name: &str) -> Result<bool, Fault> {
        if name.is_empty() || name == self.name {
            return Ok(true);
        }
        if self.name.is_empty() || name.starts_with(self.name.as_str()) {
            name.clone_into(&mut self.name);
        } else if self.arguments.is_blank() {
            self.name.push_str(name);
        } else {
            return Ok(false);
        }
        if self.name.len() > NAME_LEN_MAX {
            return Err(Fault::TooLarge("the name of a tool is longer than 1024 bytes"));
        }
        Ok(true)
    }
}

/// The arguments of a call, while they arrive and at the end.
#[derive(Debug, Default)]
pub(super) struct Arguments {
    text: String,
    value: Option<Map<String, Value>>,
    depth: u32,
    in_string: bool,
    escaped: bool,
    /// A whole JSON value has been seen.
    closed: bool,
    /// Something stands before or behind the one value.
    spoilt: bool,
}

impl Arguments {
    /// The next piece, as text or as an object; gives what it takes in memory.
    pub(super) fn take(&mut self, piece: &Json<'_>) -> Result<usize, Fault> {
        match piece {
            Json::Null => Ok(0),
            Json::Text(text) => self.push(text).map(|()| text.len()),
            Json::Object(members) => {
                let weight = piece.weight();
                if weight > ARGUMENTS_LEN_MAX {
                    return Err(TOO_LONG);
                }
                let whole = piece.to_map();
                if self.value.as_ref().is_some_and(|value| *value != whole && !members.is_empty()) {
                    return Err(Fault::Piece("a call has two inputs".to_owned()));
                }
                if self.value.is_none() || !members.is_empty() {
                    self.value = Some(whole);
                }
                Ok(weight)
            }
            Json::Bool(_) | Json::Number(_) | Json::Array(_) => {
                Err(Fault::Piece("the arguments of a call are neither text nor an object".to_owned()))
            }
        }
    }

    /// More text.
    pub(super) fn push(&mut self, text: &str) -> Result<(), Fault> {
        if self.text.len() + text.len() > ARGUMENTS_LEN_MAX {
            return Err(TOO_LONG);
        }
        self.text.push_str(text);
        for byte in text.bytes() {
            self.scan(byte);
        }
        Ok(())
    }

    /// The input is this object.
    pub(super) fn set(&mut self, input: Map<String, Value>) {
        self.value = Some(input);
    }

    /// Follows brackets and strings, so that the end of the value is known without reading it again and again.
    fn scan(&mut self, byte: u8) {
        if self.in_string {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => {
                    self.in_string = false;
                    self.closed = self.depth == 0;
                }
                _ => {}
            }
            return;
        }
        if byte.is_ascii_whitespace() {
            return;
        }
        self.spoilt |= self.closed;
        match byte {
            b'"' => self.in_string = true,
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => {
                self.depth = self.depth.saturating_sub(1);
                self.closed |= self.depth == 0;
            }
            _ => {}
        }
    }

    /// Nothing but blanks has come.
    pub(super) fn is_blank(&self) -> bool {
        self.value.is_none() && self.text.trim().is_empty()
    }

    /// One whole value has come and nothing behind it.
    pub(super) fn is_whole(&self) -> bool {
        self.value.is_some() || self.closed && !self.spoilt
    }

    /// `text` is all that has come so far, once more.
    pub(super) fn repeats(&self, piece: &Json<'_>) -> bool {
        match piece {
            Json::Text(text) => !self.text.is_empty() && **text == self.text,
            Json::Object(_) => self.value.as_ref().is_some_and(|value| *value == piece.to_map()),
            Json::Null | Json::Bool(_) | Json::Number(_) | Json::Array(_) => false,
        }
    }

    /// The text as it came.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// The input: an object, a text that holds one, or that in a text once more. Nothing at all is an empty object.
    /// Nothing is mended.
    pub(super) fn read(self) -> Result<Map<String, Value>, String> {
        if self.text.trim().is_empty() {
            return Ok(self.value.unwrap_or_default());
        }
        if self.value.is_some() {
            return Err("given twice, as text and as an object".to_owned());
        }
        match parse(&self.text)? {
            Value::Object(members) => Ok(members),
            Value::Null => Ok(Map::new()),
            Value::String(inner) if inner.trim().is_empty() => Ok(Map::new()),
            Value::String(inner) => match parse(&inner)? {
                Value::Object(members) => Ok(members),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                    Err("a text that holds no JSON object".to_owned())
                }
            },
            Value::Bool(_) | Value::Number(_) | Value::Array(_) => Err("no JSON object".to_owned()),
        }
    }
}

fn parse(text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|error| format!("no JSON: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(pieces: &[&str], want: Result<Value, &str>) {
        let mut arguments = Arguments::default();
        for piece in pieces {
            arguments.take(&serde_json::from_str(piece).unwrap()).unwrap();
        }
        let got = arguments.read().map(Value::Object);
        match &want {
            Ok(want) => assert_eq!(got.as_ref(), Ok(want), "{pieces:?}"),
            Err(part) => assert!(got.as_ref().is_err_and(|why| why.contains(part)), "{pieces:?}: {got:?}"),
        }
    }

    #[test]
    fn arguments_arrive_as_object_as_text_or_as_text_in_a_text() {
        check(&[r#"{"p":"a"}"#], Ok(json!({"p": "a"})));
        check(&[r#""{\"p\":""#, r#""\"a\"}""#], Ok(json!({"p": "a"})));
        check(&[r#""\"{\\\"p\\\":1}\"""#], Ok(json!({"p": 1})));
        check(&[], Ok(json!({})));
        check(&["null"], Ok(json!({})));
        check(&[r#""""#, r#"" \n""#], Ok(json!({})));
        check(&[r#""null""#], Ok(json!({})));
        check(&[r#""\"\"""#], Ok(json!({})));
        check(&[r#""{}""#, r#"" ""#], Ok(json!({})));
        check(&["{}"], Ok(json!({})));
    }

    #[test]
    fn nothing_is_mended() {
        check(&[r#""{\"p\":\"a\"""#], Err("no JSON"));
        check(&[r#""{'p':1}""#], Err("no JSON"));
        check(&[r#""{\"p\":1,}""#], Err("no JSON"));
        check(&[r#""{}{}""#], Err("no JSON"));
        check(&[r#""[1]""#], Err("no JSON object"));
        check(&[r#""7""#], Err("no JSON object"));
        check(&[r#""\"x\"""#], Err("no JSON"));
        check(&[r#""\"[]\"""#], Err("holds no JSON"));
        check(&[r#"{"p":1}"#, r#""{\"p\":1}""#], Err("given twice"));
    }

    #[test]
    fn a_name_arrives_whole_again_or_in_pieces() {
        let mut call = OpenCall::new("", "").unwrap();
        for (piece, taken, name) in [
            ("get", true, "get"),
            ("get", true, "get"),
            ("_weather", true, "get_weather"),
            ("get_weather_now", true, "get_weather_now"),
            ("", true, "get_weather_now"),
        ] {
            assert_eq!(call.take_name(piece).unwrap(), taken);
            assert_eq!(call.name, name);
        }
        call.arguments.push("{").unwrap();
        assert!(!call.take_name("other").unwrap());
    }
}

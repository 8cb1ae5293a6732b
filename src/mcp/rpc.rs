//! JSON-RPC 2.0 as MCP uses it: one message at a time, never a batch.
//!
//! Reading never panics and never costs more than the bytes that it was given: what is not a message becomes an error
//! about that message alone. MCP 2025-11-25 and 2026-07-28, "Messages".

use std::fmt;

use serde::Serialize;
use serde_json::{Map, Number, Value, json};
use thiserror::Error;

/// Longest message, in bytes, that is read from a line or a request body. A longer one is refused without being
/// held in memory; arguments of real calls are a few kilobytes.
pub const MESSAGE_LEN_MAX: usize = 1 << 20;

/// Invalid JSON.
pub const PARSE_ERROR: i64 = -32700;
/// Valid JSON that is not a request.
pub const INVALID_REQUEST: i64 = -32600;
/// No such method in this era.
pub const METHOD_NOT_FOUND: i64 = -32601;
/// The parameters do not fit the method.
pub const INVALID_PARAMS: i64 = -32602;
/// Our fault.
pub const INTERNAL_ERROR: i64 = -32603;
/// Too much is going on; nothing was started. From the range that JSON-RPC leaves to servers.
pub const BUSY: i64 = -32000;
/// There is no such session (any more); the code that the official SDKs use.
pub const NO_SESSION: i64 = -32001;
/// A header says something else than the body (2026-07-28).
pub const HEADER_MISMATCH: i64 = -32020;
/// The client did not declare a capability that the request needs (2026-07-28).
pub const MISSING_CLIENT_CAPABILITY: i64 = -32021;
/// The revision is not served here (2026-07-28).
pub const UNSUPPORTED_VERSION: i64 = -32022;

/// The error of a response: JSON-RPC 2.0, section 5.1.
#[derive(Debug, Clone, PartialEq, Error)]
#[error("{message}")]
pub struct RpcError {
    /// One of the codes of this module, or a tool server's own.
    pub code: i64,
    /// One sentence, with the object and the fact.
    pub message: String,
    /// What a program may want to know.
    pub data: Option<Value>,
}

impl RpcError {
    /// An error without data.
    #[must_use]
    pub fn new(code: i64, message: impl Into<String>) -> RpcError {
        RpcError { code, message: message.into(), data: None }
    }

    /// The same error with something for programs.
    #[must_use]
    pub fn with(self, data: Value) -> RpcError {
        RpcError { data: Some(data), ..self }
    }

    /// The `error` member of a response.
    #[must_use]
    pub fn to_value(&self) -> Value {
        match &self.data {
            None => json!({"code": self.code, "message": self.message}),
            Some(data) => json!({"code": self.code, "message": self.message, "data": data}),
        }
    }

    /// The error in the `error` member of a response; what does not fit becomes an internal error that says so.
    #[must_use]
    pub fn from_value(value: &Value) -> RpcError {
        match (value["code"].as_i64(), value["message"].as_str()) {
            (Some(code), Some(message)) => {
                RpcError { code, message: message.to_owned(), data: value.get("data").cloned() }
            }
            _ => RpcError::new(INTERNAL_ERROR, "the peer answered with an error that has no code or no message"),
        }
    }
}

/// What is said when a request needs something that its client did not declare (2026-07-28).
#[must_use]
pub fn missing_capability(capability: &str) -> RpcError {
    RpcError::new(MISSING_CLIENT_CAPABILITY, format!("the client did not declare \"{capability}\""))
        .with(json!({"requiredCapabilities": {capability: {}}}))
}

/// The id of a request: a string or a number. JSON-RPC also allows null, MCP does not.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Id {
    /// A number, echoed as it was written.
    Number(Number),
    /// A string.
    Text(String),
}

impl Id {
    fn read(value: &Value) -> Option<Id> {
        match value {
            Value::Number(number) if is_kept(number) => Some(Id::Number(number.clone())),
            Value::Number(_) => None,
            Value::String(text) => Some(Id::Text(text.clone())),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
        }
    }

    /// The id that a parameter names, as `requestId` of a cancellation does.
    #[must_use]
    pub fn named_by(value: Option<&Value>) -> Option<Id> {
        value.and_then(Id::read)
    }

    /// As JSON.
    #[must_use]
    pub fn to_value(&self) -> Value {
        match self {
            Id::Number(number) => Value::Number(number.clone()),
            Id::Text(text) => Value::String(text.clone()),
        }
    }
}

/// Whether a number comes back as it was written. Beyond 2^53 a fraction loses digits, and its owner would wait for an
/// answer that has another id.
fn is_kept(number: &Number) -> bool {
    const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
    number.is_i64() || number.is_u64() || number.as_f64().is_some_and(|number| number.abs() < EXACT_MAX)
}

impl From<u64> for Id {
    fn from(number: u64) -> Id {
        Id::Number(number.into())
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Id::Number(number) => number.fmt(f),
            Id::Text(text) => write!(f, "{text:?}"),
        }
    }
}

/// A request.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// Its id.
    pub id: Id,
    /// Its method.
    pub method: String,
    /// Its parameters; empty when there were none.
    pub params: Map<String, Value>,
}

/// A notification: nobody waits for an answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Notification {
    /// Its method.
    pub method: String,
    /// Its parameters; empty when there were none.
    pub params: Map<String, Value>,
}

/// One message of the other side.
#[derive(Debug, Clone, PartialEq)]
pub enum Message {
    /// Wants an answer.
    Request(Request),
    /// Wants none.
    Notification(Notification),
    /// Answers a request of ours.
    Response {
        /// The id of our request.
        id: Id,
        /// The answer.
        answer: Result<Value, RpcError>,
    },
}

/// What came is not a message. The error goes back with `id`, or with null where the id could not be read.
#[derive(Debug, Clone, PartialEq)]
pub struct Unreadable {
    /// The id, where it could be read.
    pub id: Option<Id>,
    /// What is wrong with it.
    pub error: RpcError,
    /// It was meant as an answer: whoever waits for that one waits in vain.
    pub is_answer: bool,
}

/// Reads one message.
///
/// # Errors
/// When the bytes are too many, not UTF-8, not JSON, a batch, or not a JSON-RPC 2.0 message with an id that MCP
/// allows and parameters by name.
pub fn read(bytes: &[u8]) -> Result<Message, Unreadable> {
    read_within(bytes, MESSAGE_LEN_MAX)
}

/// Reads one message of at most `bound` bytes.
///
/// # Errors
/// As [`read`].
pub fn read_within(bytes: &[u8], bound: usize) -> Result<Message, Unreadable> {
    let refuse = |id: Option<Id>, code: i64, message: String| Unreadable {
        id,
        error: RpcError::new(code, message),
        is_answer: false,
    };
    if bytes.len() > bound {
        return Err(too_long());
    }
    let text = std::str::from_utf8(bytes)
        .map_err(|why| refuse(None, PARSE_ERROR, format!("the message is not UTF-8 (byte {})", why.valid_up_to())))?;
    let value: Value = serde_json::from_str(text)
        .map_err(|why| refuse(None, PARSE_ERROR, format!("the message is not JSON: {why}")))?;
    let mut members = match value {
        Value::Object(members) => members,
        Value::Array(_) => {
            return Err(refuse(None, INVALID_REQUEST, "batches are not served: send one message at a time".into()));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            return Err(refuse(None, INVALID_REQUEST, "a message is a JSON object".into()));
        }
    };
    let id = match members.get("id") {
        None => None,
        Some(value) => match Id::read(value) {
            Some(id) => Some(id),
            None => return Err(refuse(None, INVALID_REQUEST, "\"id\" is a string or a number".into())),
        },
    };
    if members.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
        return Err(refuse(id, INVALID_REQUEST, "\"jsonrpc\" is \"2.0\"".into()));
    }
    match members.remove("method") {
        Some(Value::String(_)) if members.contains_key("result") || members.contains_key("error") => {
            let refused = refuse(id, INVALID_REQUEST, "both \"method\" and \"result\" or \"error\"".into());
            Err(Unreadable { is_answer: true, ..refused })
        }
        Some(Value::String(method)) => {
            let params = match members.remove("params") {
                None => Map::new(),
                Some(Value::Object(params)) => params,
                Some(_) => return Err(refuse(id, INVALID_PARAMS, "\"params\" is an object".into())),
            };
            Ok(match id {
                Some(id) => Message::Request(Request { id, method, params }),
                None => Message::Notification(Notification { method, params }),
            })
        }
        Some(_) => Err(refuse(id, INVALID_REQUEST, "\"method\" is a string".into())),
        None => {
            let answer = match (members.remove("result"), members.remove("error")) {
                (Some(result), None) => Ok(result),
                (None, Some(error)) => Err(RpcError::from_value(&error)),
                (None, None) => {
                    let fact = "neither \"method\" nor \"result\" nor \"error\"";
                    return Err(Unreadable { is_answer: true, ..refuse(id, INVALID_REQUEST, fact.into()) });
                }
                (Some(_), Some(_)) => {
                    let refused = refuse(id, INVALID_REQUEST, "both \"result\" and \"error\"".into());
                    return Err(Unreadable { is_answer: true, ..refused });
                }
            };
            match id {
                Some(id) => Ok(Message::Response { id, answer }),
                None => Err(refuse(None, INVALID_REQUEST, "a response has an \"id\"".into())),
            }
        }
    }
}

/// What is said of a message that is longer than [`MESSAGE_LEN_MAX`].
#[must_use]
pub fn too_long() -> Unreadable {
    let message = format!("the message is longer than {MESSAGE_LEN_MAX} bytes");
    Unreadable { id: None, error: RpcError::new(INVALID_REQUEST, message), is_answer: false }
}

/// A response, written.
#[must_use]
pub fn response(id: &Id, answer: &Result<Value, RpcError>) -> String {
    match answer {
        Ok(result) => written(&Written { id: Some(&id.to_value()), result: Some(result), ..Written::default() }),
        Err(error) => error_response(Some(id), error),
    }
}

/// A message on its way out, borrowed: an answer of a tool can be large, and a copy of it would be made to be written.
#[derive(Serialize)]
struct Written<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a Value>,
    jsonrpc: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    method: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    params: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'a Value>,
}

impl Default for Written<'_> {
    fn default() -> Self {
        Written { error: None, id: None, jsonrpc: "2.0", method: None, params: None, result: None }
    }
}

fn written(message: &Written) -> String {
    // Its maps have texts for keys, and a string takes what is written: there is nothing that could fail.
    serde_json::to_string(message).unwrap_or_default()
}

/// An error, written; with a null id when the request's could not be read.
#[must_use]
pub fn error_response(id: Option<&Id>, error: &RpcError) -> String {
    let (id, error) = (id.map_or(Value::Null, Id::to_value), error.to_value());
    written(&Written { id: Some(&id), error: Some(&error), ..Written::default() })
}

/// A notification, written.
#[must_use]
pub fn notification(method: &str, params: &Value) -> String {
    written(&Written { method: Some(method), params: Some(params), ..Written::default() })
}

/// A request of ours, written.
#[must_use]
pub fn request(id: u64, method: &str, params: &Value) -> String {
    let id = Value::from(id);
    written(&Written { id: Some(&id), method: Some(method), params: Some(params), ..Written::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The code and the id that go back, for what is not a message.
    fn check(bytes: &[u8], code: i64, id: Value) {
        let unreadable = read(bytes).expect_err(&String::from_utf8_lossy(bytes));
        let echoed = unreadable.id.as_ref().map_or(Value::Null, Id::to_value);
        assert_eq!((unreadable.error.code, echoed), (code, id), "{}", String::from_utf8_lossy(bytes));
    }

    #[test]
    fn what_is_not_a_message_is_refused_with_the_id_where_it_could_be_read() {
        check(b"", PARSE_ERROR, Value::Null);
        check(b"hello", PARSE_ERROR, Value::Null);
        check(b"{\"jsonrpc\":\"2.0\",", PARSE_ERROR, Value::Null);
        check(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}", PARSE_ERROR, Value::Null);
        check("[".repeat(100_000).as_bytes(), PARSE_ERROR, Value::Null);
        check(b"null", INVALID_REQUEST, Value::Null);
        check(b"[]", INVALID_REQUEST, Value::Null);
        check(br#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#, INVALID_REQUEST, Value::Null);
        check(br#"{"id":1,"method":"ping"}"#, INVALID_REQUEST, json!(1));
        check(br#"{"jsonrpc":"1.0","id":"a","method":"ping"}"#, INVALID_REQUEST, json!("a"));
        check(br#"{"jsonrpc":"2.0","id":1,"method":7}"#, INVALID_REQUEST, json!(1));
        check(br#"{"jsonrpc":"2.0","id":1,"method":"ping","result":{}}"#, INVALID_REQUEST, json!(1));
        check(
            br#"{"jsonrpc":"2.0","id":1,"method":"ping","error":{"code":1,"message":""}}"#,
            INVALID_REQUEST,
            json!(1),
        );
        check(br#"{"jsonrpc":"2.0","id":1,"method":"ping","params":[1]}"#, INVALID_PARAMS, json!(1));
        check(br#"{"jsonrpc":"2.0","id":1}"#, INVALID_REQUEST, json!(1));
        check(br#"{"jsonrpc":"2.0","id":1,"result":{},"error":{}}"#, INVALID_REQUEST, json!(1));
        check(br#"{"jsonrpc":"2.0","result":{}}"#, INVALID_REQUEST, Value::Null);
        for id in ["null", "true", "[1]", "{}"] {
            let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#);
            check(text.as_bytes(), INVALID_REQUEST, Value::Null);
        }
        check(&vec![b' '; MESSAGE_LEN_MAX + 1], INVALID_REQUEST, Value::Null);
    }

    #[test]
    fn an_id_comes_back_as_it_was_written() {
        for id in ["1", "-7", "0", "1.5", "18446744073709551615", r#""a""#, r#""""#] {
            let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#);
            let Ok(Message::Request(request)) = read(text.as_bytes()) else { panic!("{text}") };
            assert_eq!(request.id.to_value().to_string(), id);
            let answered: Value = serde_json::from_str(&response(&request.id, &Ok(json!({})))).expect("our own JSON");
            assert_eq!(answered, json!({"jsonrpc": "2.0", "id": request.id.to_value(), "result": {}}));
        }
    }

    #[test]
    fn the_three_kinds_are_told_apart() {
        assert_eq!(
            read(br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#),
            Ok(Message::Notification(Notification { method: "notifications/initialized".into(), params: Map::new() }))
        );
        assert_eq!(
            read(br#"{"jsonrpc":"2.0","id":3,"result":{"action":"accept"}}"#),
            Ok(Message::Response { id: Id::from(3), answer: Ok(json!({"action": "accept"})) })
        );
        assert_eq!(
            read(br#"{"jsonrpc":"2.0","id":3,"error":{"code":-1,"message":"no"}}"#),
            Ok(Message::Response { id: Id::from(3), answer: Err(RpcError::new(-1, "no")) })
        );
    }
}

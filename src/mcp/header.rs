//! The header rules of 2026-07-28: what a request says in its headers, its body says too.
//!
//! A proxy may route or bill by the headers while we act by the body. Where the two differ the request is refused,
//! never guessed at: one of them is a lie. ("Streamable HTTP", Request Metadata and Server Validation.)

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::mcp::era::{self, Envelope, META_VERSION, MODERN};
use crate::mcp::rpc::{self, Request, RpcError};

/// The headers of one request, names in lower case, in the order in which they came.
#[derive(Debug, Clone, Copy)]
pub struct Headers<'a>(pub &'a [(&'a str, &'a [u8])]);

/// How often a header is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found<'a> {
    None,
    One(&'a str),
    /// More than one, or bytes outside visible ASCII, space and tab: readers would disagree about its value.
    Unclear,
}

impl<'a> Headers<'a> {
    fn find(&self, name: &str) -> Found<'a> {
        let mut values = self.0.iter().filter(|(key, _)| *key == name).map(|(_, value)| *value);
        match (values.next(), values.next()) {
            (None, _) => Found::None,
            (Some(value), None) if value.iter().all(|byte| matches!(byte, b'\t' | 0x20..=0x7e)) => {
                // All bytes are ASCII, so this cannot differ from `Unclear` by accident.
                std::str::from_utf8(value).map_or(Found::Unclear, |text| Found::One(text.trim_matches([' ', '\t'])))
            }
            (Some(_), _) => Found::Unclear,
        }
    }

    /// The value of a header that is there exactly once and readable.
    #[must_use]
    pub fn only(&self, name: &str) -> Option<&'a str> {
        match self.find(name) {
            Found::One(text) => Some(text),
            Found::None | Found::Unclear => None,
        }
    }
}

fn mismatch(message: String) -> RpcError {
    RpcError::new(rpc::HEADER_MISMATCH, message)
}

/// Checks a request of the modern era: header against `_meta`, then the version, then what `_meta` has to carry, then
/// `Mcp-Method` and `Mcp-Name`. The order decides which answer a client gets, and clients act on it.
///
/// # Errors
/// `HEADER_MISMATCH`, `UNSUPPORTED_VERSION`, `INVALID_PARAMS`, and `METHOD_NOT_FOUND` for `initialize`, which this era
/// does not have.
pub fn check(headers: Headers<'_>, request: &Request) -> Result<Envelope, RpcError> {
    let in_header = match headers.find("mcp-protocol-version") {
        Found::None => None,
        Found::One(version) => Some(version),
        Found::Unclear => return Err(mismatch("MCP-Protocol-Version is there twice or not readable".into())),
    };
    if request.method == "initialize" && in_header == Some(MODERN) {
        let message = format!("{MODERN} has no \"initialize\": ask \"server/discover\"");
        return Err(RpcError::new(rpc::METHOD_NOT_FOUND, message));
    }
    let in_body = era::meta(&request.params).and_then(|meta| meta.get(META_VERSION));
    match (in_header, in_body) {
        (Some(header), Some(Value::String(body))) if header == body => {}
        (Some(_), None) => {}
        (Some(header), Some(body)) => {
            return Err(mismatch(format!("MCP-Protocol-Version says {header:?}, the body says {}", shown(body))));
        }
        (None, _) => return Err(mismatch("MCP-Protocol-Version is missing".into())),
    }
    if let (Some(header), None) = (in_header, in_body)
        && header != MODERN
    {
        return Err(era::unsupported(header));
    }
    let envelope = era::envelope(&request.params)?;
    match headers.find("mcp-method") {
        Found::One(method) if method == request.method => {}
        Found::One(method) => {
            return Err(mismatch(format!("Mcp-Method says {method:?}, the body says {:?}", clip(&request.method))));
        }
        Found::None => return Err(mismatch(format!("Mcp-Method is missing: send {:?}", clip(&request.method)))),
        Found::Unclear => return Err(mismatch("Mcp-Method is there twice or not readable".into())),
    }
    if let Some(member) = named_by(&request.method)
        && let Some(Value::String(name)) = request.params.get(member)
    {
        match headers.find("mcp-name") {
            Found::One(value) if decode(value).as_deref() == Some(name) => {}
            Found::One(value) => {
                return Err(mismatch(format!(
                    "Mcp-Name says {:?}, \"{member}\" in the body says {:?}",
                    clip(value),
                    clip(name)
                )));
            }
            Found::None => {
                return Err(mismatch(format!("Mcp-Name is missing: {} sends its \"{member}\" there", request.method)));
            }
            Found::Unclear => return Err(mismatch("Mcp-Name is there twice or not readable".into())),
        }
    }
    Ok(envelope)
}

/// The parameter that `Mcp-Name` repeats, for the methods that have one.
#[must_use]
pub fn named_by(method: &str) -> Option<&'static str> {
    match method {
        "tools/call" | "prompts/get" => Some("name"),
        "resources/read" => Some("uri"),
        "tasks/get" | "tasks/update" | "tasks/cancel" => Some("taskId"),
        _ => None,
    }
}

/// Checks the `Mcp-Param-*` headers of a call against its arguments, by the `x-mcp-header` marks of the tool's input
/// schema. A mark that breaks the rules for marks marks nothing: clients drop such a tool.
///
/// # Errors
/// `HEADER_MISMATCH` when a marked argument and its header do not say the same, or one is there without the other.
pub fn check_params(headers: Headers<'_>, schema: &Value, arguments: &Map<String, Value>) -> Result<(), RpcError> {
    for mark in with_mark(schema).iter().filter_map(Property::mark) {
        let name = format!("mcp-param-{}", mark.header.to_ascii_lowercase());
        let argument = value_at(arguments, mark.path).filter(|value| !value.is_null());
        let path = mark.path.join(".");
        match (headers.find(&name), argument) {
            (Found::None, None) => {}
            (Found::Unclear, _) => return Err(mismatch(format!("{name} is there twice or not readable"))),
            (Found::One(_), None) => {
                return Err(mismatch(format!("{name} is there, but the body has no argument \"{path}\"")));
            }
            (Found::None, Some(value)) => {
                // A value of the wrong kind has no header form; the input schema refuses it, not this rule.
                if written(value).is_some() {
                    return Err(mismatch(format!("{name} is missing: the body has the argument \"{path}\"")));
                }
            }
            (Found::One(header), Some(value)) => {
                let decoded = decode(header)
                    .ok_or_else(|| mismatch(format!("{name} is not the base64 of a text: {:?}", clip(header))))?;
                if !agrees(&mark, value, &decoded) {
                    return Err(mismatch(format!(
                        "{name} says {:?}, the argument \"{path}\" says {}",
                        clip(&decoded),
                        shown(value)
                    )));
                }
            }
        }
    }
    Ok(())
}

/// The `Mcp-Param-*` headers that a call with these arguments carries, by the marks of the tool's input schema: names
/// and values before they are encoded.
#[must_use]
pub fn marked(schema: &Value, arguments: &Map<String, Value>) -> Vec<(String, String)> {
    let header = |mark: Mark<'_>| {
        let value = value_at(arguments, mark.path).and_then(written)?;
        Some((format!("mcp-param-{}", mark.header.to_ascii_lowercase()), value))
    };
    with_mark(schema).iter().filter_map(Property::mark).filter_map(header).collect()
}

/// The first `x-mcp-header` mark of an input schema that breaks the rules for marks (empty or no token, on something that
/// is no string, integer or boolean, or the second of its name). A client does not call such a tool over HTTP.
#[must_use]
pub fn bad_mark(schema: &Value) -> Option<String> {
    let mut seen = BTreeSet::new();
    let is_bad =
        |property: &&Property<'_>| !property.mark().is_some_and(|mark| seen.insert(mark.header.to_ascii_lowercase()));
    let properties = with_mark(schema);
    let bad = properties.iter().find(is_bad)?;
    let name = bad.path.last().copied().unwrap_or_default();
    Some(format!("the mark {} on {:?}", shown(&bad.schema[MARK]), clip(name)))
}

/// What marks a property.
const MARK: &str = "x-mcp-header";

/// A property that has a mark, whether it keeps the rules for marks or not.
struct Property<'a> {
    path: Vec<&'a str>,
    schema: &'a Value,
}

/// A mark that keeps the rules.
struct Mark<'a> {
    path: &'a [&'a str],
    header: &'a str,
    is_integer: bool,
}

impl Property<'_> {
    fn mark(&self) -> Option<Mark<'_>> {
        let header = self.schema[MARK].as_str().filter(|header| is_token(header))?;
        match self.schema["type"].as_str() {
            Some(kind @ ("string" | "integer" | "boolean")) => {
                Some(Mark { path: &self.path, header, is_integer: kind == "integer" })
            }
            Some(_) | None => None,
        }
    }
}

/// Deepest property that may carry a mark. JSON is read to 128 levels; no real tool nests its routing key deeper.
const MARK_DEPTH_MAX: usize = 16;

/// The properties of a schema that have a mark, those within others included.
fn with_mark(schema: &Value) -> Vec<Property<'_>> {
    let mut found = Vec::new();
    walk(schema, &mut Vec::new(), &mut found);
    found
}

fn walk<'a>(schema: &'a Value, path: &mut Vec<&'a str>, found: &mut Vec<Property<'a>>) {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return };
    if path.len() == MARK_DEPTH_MAX {
        return;
    }
    for (name, schema) in properties {
        path.push(name);
        if schema.get(MARK).is_some() {
            found.push(Property { path: path.clone(), schema });
        }
        walk(schema, path, found);
        path.pop();
    }
}

/// RFC 9110, section 5.6.2.
fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

fn value_at<'a>(arguments: &'a Map<String, Value>, path: &[&str]) -> Option<&'a Value> {
    let (first, rest) = path.split_first()?;
    rest.iter().try_fold(arguments.get(*first)?, |value, step| value.get(*step))
}

/// The header form of an argument before it is encoded; none for lists and objects.
fn written(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(truth) => Some(truth.to_string()),
        Value::Number(number) => Some(number.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

fn agrees(mark: &Mark<'_>, value: &Value, header: &str) -> bool {
    match (mark.is_integer, value) {
        // "42.0" and 42 are the same integer; as text they are not.
        (true, Value::Number(number)) => match (number.as_i64(), whole(header)) {
            (Some(body), Some(header)) => body == header,
            _ => whole(header).is_some() && number.as_f64() == header.parse().ok(),
        },
        _ => written(value).as_deref() == Some(header),
    }
}

/// A decimal number without a fraction, `42` or `42.000`.
fn whole(text: &str) -> Option<i64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = whole.strip_prefix('-').unwrap_or(whole);
    let fits = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let no_fraction = !fraction.is_empty() && fraction.bytes().all(|byte| byte == b'0');
    if fits && no_fraction { whole.parse().ok() } else { None }
}

/// The value of a header that may be written `=?base64?…?=`; none when it is written so and is not the base64 of a
/// text.
#[must_use]
pub fn decode(value: &str) -> Option<String> {
    match value.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?=")) {
        None => Some(value.to_owned()),
        Some(payload) => String::from_utf8(base64(payload)?).ok(),
    }
}

/// RFC 4648, section 4, with padding, and nothing else: a second spelling of one value is refused.
fn base64(text: &str) -> Option<Vec<u8>> {
    let sextet = |byte: u8| match byte {
        b'A'..=b'Z' => Some(u32::from(byte - b'A')),
        b'a'..=b'z' => Some(u32::from(byte - b'a') + 26),
        b'0'..=b'9' => Some(u32::from(byte - b'0') + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let bytes = text.as_bytes();
    if !bytes.len().is_multiple_of(4) {
        return None;
    }
    let mut out = Vec::with_capacity(bytes.len() / 4 * 3);
    let groups = bytes.len() / 4;
    for (index, group) in bytes.chunks_exact(4).enumerate() {
        let padding = group.iter().rev().take_while(|byte| **byte == b'=').count();
        if padding > 2 || (padding > 0 && index + 1 != groups) {
            return None;
        }
        let mut bits = 0;
        for byte in &group[..4 - padding] {
            bits = bits << 6 | sextet(*byte)?;
        }
        bits <<= 6 * padding;
        let [_, a, b, c] = u32::to_be_bytes(bits);
        let (kept, spilled) = match padding {
            0 => (&[a, b, c][..], 0),
            1 => (&[a, b][..], c),
            _ => (&[a][..], b),
        };
        if spilled != 0 {
            return None;
        }
        out.extend_from_slice(kept);
    }
    Some(out)
}

fn shown(value: &Value) -> String {
    clip(&value.to_string()).to_owned()
}

/// As much of a foreign text as a message needs.
fn clip(text: &str) -> &str {
    text.char_indices().nth(64).map_or(text, |(end, _)| &text[..end])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::mcp::era::META_CAPABILITIES;
    use crate::mcp::rpc::{HEADER_MISMATCH, INVALID_PARAMS, Id, METHOD_NOT_FOUND, UNSUPPORTED_VERSION};

    fn request(method: &str, params: &Value) -> Request {
        Request { id: Id::from(1), method: method.to_owned(), params: params.as_object().expect("an object").clone() }
    }

    fn check_row(headers: &[(&str, &str)], method: &str, params: &Value, expected: Result<(), i64>) {
        let headers: Vec<(&str, &[u8])> = headers.iter().map(|(name, value)| (*name, value.as_bytes())).collect();
        let answer = check(Headers(&headers), &request(method, params));
        assert_eq!(answer.map(|_| ()).map_err(|error| error.code), expected, "{headers:?} {method} {params}");
    }

    #[test]
    fn headers_and_body_say_the_same_and_the_order_of_the_checks_is_fixed() {
        let version = ("mcp-protocol-version", MODERN);
        let meta = json!({META_VERSION: MODERN, META_CAPABILITIES: {}});
        let list = json!({"_meta": meta});
        let call = json!({"_meta": meta, "name": "echo"});
        let method = ("mcp-method", "tools/list");
        let call_method = ("mcp-method", "tools/call");
        // Everything in place.
        check_row(&[version, method], "tools/list", &list, Ok(()));
        check_row(&[version, call_method, ("mcp-name", "echo")], "tools/call", &call, Ok(()));
        check_row(&[version, call_method, ("mcp-name", "=?base64?ZWNobw==?=")], "tools/call", &call, Ok(()));
        // 1. The header against `_meta`.
        check_row(&[method], "tools/list", &list, Err(HEADER_MISMATCH));
        check_row(&[version, version, method], "tools/list", &list, Err(HEADER_MISMATCH));
        check_row(&[("mcp-protocol-version", "2025-11-25"), method], "tools/list", &list, Err(HEADER_MISMATCH));
        let other = json!({"_meta": {META_VERSION: "v999", META_CAPABILITIES: {}}});
        check_row(&[version, method], "tools/list", &other, Err(HEADER_MISMATCH));
        check_row(&[version, method], "tools/list", &json!({"_meta": {META_VERSION: 7}}), Err(HEADER_MISMATCH));
        // 2. The version, before what else `_meta` lacks and before `Mcp-*`.
        check_row(&[("mcp-protocol-version", "v999")], "tools/list", &other, Err(UNSUPPORTED_VERSION));
        let bare = json!({"_meta": {META_VERSION: "v999"}});
        check_row(&[("mcp-protocol-version", "v999")], "tools/list", &bare, Err(UNSUPPORTED_VERSION));
        check_row(&[("mcp-protocol-version", "v999")], "tools/list", &json!({}), Err(UNSUPPORTED_VERSION));
        // 3. What `_meta` has to carry, before `Mcp-*`.
        check_row(&[version], "tools/list", &json!({}), Err(INVALID_PARAMS));
        check_row(&[version], "tools/list", &json!({"_meta": {META_VERSION: MODERN}}), Err(INVALID_PARAMS));
        check_row(&[version], "tools/list", &json!({"_meta": {META_CAPABILITIES: {}}}), Err(INVALID_PARAMS));
        // 4. `Mcp-Method` and `Mcp-Name`.
        check_row(&[version], "tools/list", &list, Err(HEADER_MISMATCH));
        check_row(&[version, call_method], "tools/list", &list, Err(HEADER_MISMATCH));
        check_row(&[version, ("mcp-method", "TOOLS/LIST")], "tools/list", &list, Err(HEADER_MISMATCH));
        check_row(&[version, method, method], "tools/list", &list, Err(HEADER_MISMATCH));
        check_row(&[version, call_method], "tools/call", &call, Err(HEADER_MISMATCH));
        check_row(&[version, call_method, ("mcp-name", "Echo")], "tools/call", &call, Err(HEADER_MISMATCH));
        check_row(&[version, call_method, ("mcp-name", "回声")], "tools/call", &call, Err(HEADER_MISMATCH));
        let task = json!({"_meta": meta, "taskId": "abc"});
        check_row(&[version, ("mcp-method", "tasks/get")], "tasks/get", &task, Err(HEADER_MISMATCH));
        check_row(&[version, ("mcp-method", "tasks/get"), ("mcp-name", "abc")], "tasks/get", &task, Ok(()));
        // `initialize` is of the other era.
        check_row(&[version], "initialize", &json!({}), Err(METHOD_NOT_FOUND));
    }

    fn check_param(headers: &[(&str, &str)], arguments: &Value, fits: bool) {
        let schema = json!({"type": "object", "properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "count": {"type": "integer", "x-mcp-header": "Count"},
            "dry": {"type": "boolean", "x-mcp-header": "Dry"},
            "ratio": {"type": "number", "x-mcp-header": "Ratio"},
            "bad": {"type": "string", "x-mcp-header": "no good"},
            "where": {"type": "object", "properties": {"zone": {"type": "string", "x-mcp-header": "Zone"}}},
            "plain": {"type": "string"},
        }});
        let headers: Vec<(&str, &[u8])> = headers.iter().map(|(name, value)| (*name, value.as_bytes())).collect();
        let answer = check_params(Headers(&headers), &schema, arguments.as_object().expect("an object"));
        assert_eq!(answer.map_err(|error| error.code), if fits { Ok(()) } else { Err(HEADER_MISMATCH) }, "{headers:?}");
    }

    #[test]
    fn a_marked_argument_and_its_header_are_there_together_and_equal() {
        let region = |value| [("mcp-param-region", value)];
        check_param(&[], &json!({}), true);
        check_param(&[], &json!({"region": null, "plain": "x", "ratio": 1.5, "bad": "x"}), true);
        check_param(&region("us-west1"), &json!({"region": "us-west1"}), true);
        check_param(&region("us-west2"), &json!({"region": "us-west1"}), false);
        check_param(&[], &json!({"region": "us-west1"}), false);
        check_param(&region("us-west1"), &json!({}), false);
        check_param(&region("us-west1"), &json!({"region": null}), false);
        check_param(&[("mcp-param-region", "a"), ("mcp-param-region", "a")], &json!({"region": "a"}), false);
        check_param(&region("=?base64?SGVsbG8sIOS4lueVjA==?="), &json!({"region": "Hello, 世界"}), true);
        check_param(&region("=?base64?SGVsbG8?="), &json!({"region": "Hello"}), false);
        check_param(&region("=?base64?SGVsbG9=?="), &json!({"region": "Hello"}), false);
        check_param(&region("=?base64?//8=?="), &json!({"region": "x"}), false);
        check_param(&region("=?BASE64?SGk=?="), &json!({"region": "Hi"}), false);
        check_param(&region("世界"), &json!({"region": "世界"}), false);
        check_param(&[("mcp-param-count", "42")], &json!({"count": 42}), true);
        check_param(&[("mcp-param-count", "42.0")], &json!({"count": 42}), true);
        check_param(&[("mcp-param-count", "-7")], &json!({"count": -7}), true);
        check_param(&[("mcp-param-count", "42.5")], &json!({"count": 42}), false);
        check_param(&[("mcp-param-count", "4e1")], &json!({"count": 40}), false);
        check_param(&[("mcp-param-dry", "true")], &json!({"dry": true}), true);
        check_param(&[("mcp-param-dry", "True")], &json!({"dry": true}), false);
        check_param(&[("mcp-param-zone", "east")], &json!({"where": {"zone": "east"}}), true);
        check_param(&[], &json!({"where": {"zone": "east"}}), false);
        check_param(&[("mcp-param-other", "x")], &json!({}), true);
    }

    #[test]
    fn a_mark_is_a_token_of_its_own_on_something_simple() {
        let check = |properties: Value, is_bad: bool| {
            let schema = json!({"type": "object", "properties": properties});
            assert_eq!(bad_mark(&schema).is_some(), is_bad, "{schema}");
        };
        let mark = |kind: &str, header: &str| json!({"type": kind, "x-mcp-header": header});
        check(json!({"a": mark("string", "Region"), "b": mark("integer", "Count"), "c": {"type": "number"}}), false);
        for (kind, header) in [
            ("string", ""),
            ("string", "a b"),
            ("string", "a:b"),
            ("string", "é"),
            ("string", "a\u{1}"),
            ("number", "A"),
            ("object", "A"),
            ("array", "A"),
        ] {
            check(json!({"a": mark(kind, header)}), true);
        }
        check(json!({"a": mark("string", "Same"), "b": {"properties": {"c": mark("string", "same")}}}), true);
        check(json!({"a": {"type": "string", "x-mcp-header": 7}}), true);
    }

    #[test]
    fn base64_has_one_spelling() {
        for (text, bytes) in [("", Some(&b""[..])), ("TQ==", Some(b"M")), ("TWE=", Some(b"Ma")), ("TWFu", Some(b"Man"))]
        {
            assert_eq!(base64(text).as_deref(), bytes, "{text}");
        }
        for text in ["T", "TQ", "TQ=", "TR==", "T===", "====", "TQ==TQ==", "TW-u", "TWF=", "TQ==\n"] {
            assert_eq!(base64(text), None, "{text}");
        }
    }
}

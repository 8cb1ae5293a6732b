//! The second layer of the evidence: each parameter of an output against what was declared of it.
//!
//! Judges and never repairs: what has to be normalized before it fits is normalized for the judgement only, and named;
//! the asker gets the output as it came. An output that does not fit is evidence, not an error: the call has had its
//! effect. Everything in here is bounded, since an output comes from anywhere.

use std::collections::BTreeSet;

use jsonschema::Validator;
use serde_json::{Map, Value};
use unicode_normalization::UnicodeNormalization;

/// Declared parameters that are judged; a schema with more has its first ones judged, and the rest as it stands.
pub const PARAMETERS_MAX: usize = 64;
/// Objects inside of objects that are looked into; what lies deeper is judged as one parameter.
const DEPTH_MAX: usize = 4;
/// Findings of each kind that are named; more are only counted.
const NAMED_MAX: usize = 32;
/// Characters of a text that are shown, of what was found and of what was expected.
const SHOWN_MAX: usize = 120;

/// What an output must be, parameter by parameter.
#[derive(Debug)]
pub struct Outputs {
    parameters: Vec<Parameter>,
    /// Objects that take no members beside those that are declared, with the names that are.
    closed: Vec<(String, BTreeSet<String>)>,
}

#[derive(Debug)]
struct Parameter {
    /// Where it is (RFC 6901).
    at: String,
    required: bool,
    schema: Value,
    validator: Validator,
}

/// What a value was turned into before it fitted. Each keeps the meaning; a guess is none of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Normalization {
    /// `null` where nothing at all was meant.
    NullAsAbsent,
    /// Full-width letters and digits to plain ones (NFKC).
    WidthFolded,
    /// Blanks around it taken away.
    Trimmed,
    /// The same word in other letters, of a list of words.
    CaseFolded,
    /// A text that is a number.
    TextToNumber,
    /// A text that is `true` or `false`.
    TextToBoolean,
    /// A number where a text is declared.
    NumberToText,
}

impl Normalization {
    /// The written form.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Normalization::NullAsAbsent => "null_as_absent",
            Normalization::WidthFolded => "width_folded",
            Normalization::Trimmed => "trimmed",
            Normalization::CaseFolded => "case_folded",
            Normalization::TextToNumber => "text_to_number",
            Normalization::TextToBoolean => "text_to_boolean",
            Normalization::NumberToText => "number_to_text",
        }
    }
}

/// What is found of one parameter.
#[derive(Debug, Clone, PartialEq)]
pub enum Finding {
    /// It is as declared.
    Valid,
    /// It is, once these were done to it; what it is then.
    ValidAfterNormalization {
        /// What was done, in order.
        done: Vec<Normalization>,
        /// What it is then; `None` for nothing at all.
        value: Option<Value>,
    },
    /// It is not.
    Invalid {
        /// What was declared.
        expected: String,
        /// What is there.
        found: String,
    },
}

/// The worst that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// Every parameter is as declared.
    Valid,
    /// Some had to be normalized.
    ValidAfterNormalization,
    /// Some do not fit.
    Invalid,
}

impl Verdict {
    /// The written form.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Valid => "valid",
            Verdict::ValidAfterNormalization => "valid_after_normalization",
            Verdict::Invalid => "invalid",
        }
    }
}

/// What was found of an output: the parameters that are there or should be, in the order of their declaration.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Validity {
    /// Where, and what.
    pub findings: Vec<(String, Finding)>,
}

impl Validity {
    /// The worst finding; none when nothing was declared of what is there.
    #[must_use]
    pub fn verdict(&self) -> Option<Verdict> {
        let worst = |finding: &Finding| match finding {
            Finding::Valid => Verdict::Valid,
            Finding::ValidAfterNormalization { .. } => Verdict::ValidAfterNormalization,
            Finding::Invalid { .. } => Verdict::Invalid,
        };
        self.findings.iter().map(|(_, finding)| worst(finding)).max()
    }

    /// The form of the evidence: `{"valid": [where], "normalized": [{"at", "done", "as"}], "invalid": [{"at",
    /// "expected", "found"}]}`; where there were more than are named, `more` says how many.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let (mut valid, mut normalized, mut invalid, mut more) = (Vec::new(), Vec::new(), Vec::new(), 0_u64);
        let mut put = |list: &mut Vec<Value>, value: Value| {
            if list.len() < NAMED_MAX { list.push(value) } else { more += 1 }
        };
        for (at, finding) in &self.findings {
            match finding {
                Finding::Valid => put(&mut valid, at.as_str().into()),
                Finding::ValidAfterNormalization { done, value } => {
                    let done: Vec<&str> = done.iter().map(|one| one.word()).collect();
                    put(&mut normalized, serde_json::json!({ "at": at, "done": done, "as": value }));
                }
                Finding::Invalid { expected, found } => {
                    put(&mut invalid, serde_json::json!({ "at": at, "expected": expected, "found": found }));
                }
            }
        }
        let mut all = serde_json::json!({ "valid": valid, "normalized": normalized, "invalid": invalid });
        if more > 0 {
            all["more"] = more.into();
        }
        all
    }
}

impl Outputs {
    /// From a JSON schema.
    ///
    /// # Errors
    /// What is wrong with the schema.
    pub fn new(schema: &Value) -> Result<Outputs, String> {
        let mut outputs = Outputs { parameters: Vec::new(), closed: Vec::new() };
        outputs.declare(schema, schema, String::new(), true, 0)?;
        Ok(outputs)
    }

    fn declare(
        &mut self,
        root: &Value,
        schema: &Value,
        at: String,
        required: bool,
        depth: usize,
    ) -> Result<(), String> {
        let properties = schema.get("properties").and_then(Value::as_object).filter(|declared| !declared.is_empty());
        let room = self.parameters.len() + properties.map_or(1, Map::len) <= PARAMETERS_MAX;
        let (Some(properties), true, true) = (properties, room, depth < DEPTH_MAX && depth_is_plain(schema)) else {
            let with_root = in_root(root, schema);
            let validator = jsonschema::validator_for(&with_root).map_err(|error| error.to_string())?;
            self.parameters.push(Parameter { at, required, schema: schema.clone(), validator });
            return Ok(());
        };
        let needed: Vec<&str> =
            schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
        if schema.get("additionalProperties") == Some(&Value::Bool(false)) {
            self.closed.push((at.clone(), properties.keys().cloned().collect()));
        }
        for (name, schema) in properties {
            let inner = format!("{at}/{}", name.replace('~', "~0").replace('/', "~1"));
            self.declare(root, schema, inner, required && needed.contains(&name.as_str()), depth + 1)?;
        }
        Ok(())
    }

    /// Judges an output.
    #[must_use]
    pub fn judge(&self, output: &Value) -> Validity {
        let mut findings = Vec::new();
        for parameter in &self.parameters {
            let found = output.pointer(&parameter.at);
            if let Some(finding) = parameter.judge(found, self.missing_parent(output, &parameter.at)) {
                findings.push((parameter.at.clone(), finding));
            }
        }
        for (at, declared) in &self.closed {
            let Some(members) = output.pointer(at).and_then(Value::as_object) else { continue };
            for (name, value) in members.iter().filter(|(name, _)| !declared.contains(*name)) {
                let invalid = Finding::Invalid { expected: "no member of this name".to_owned(), found: shown(value) };
                findings.push((format!("{at}/{}", cut(name)), invalid));
            }
        }
        Validity { findings }
    }

    /// Whether the object that would hold it is there, and is one.
    fn missing_parent(&self, output: &Value, at: &str) -> bool {
        let parent = at.rfind('/').map(|end| &at[..end]);
        parent.is_some_and(|parent| !output.pointer(parent).is_some_and(Value::is_object))
    }
}

impl Parameter {
    /// None for one that is not there and need not be.
    fn judge(&self, found: Option<&Value>, no_parent: bool) -> Option<Finding> {
        let invalid = |found: String| Finding::Invalid { expected: expected(&self.schema), found };
        let Some(value) = found else {
            return self
                .required
                .then(|| invalid(if no_parent { "no object around it" } else { "nothing" }.to_owned()));
        };
        let Some(error) = self.validator.iter_errors(value).next() else { return Some(Finding::Valid) };
        if let Some((done, value)) = self.normalized(value) {
            return Some(Finding::ValidAfterNormalization { done, value });
        }
        let inside = error.instance_path().to_string();
        if inside.is_empty() {
            return Some(invalid(shown(value)));
        }
        // Inside of a list or of a deep object: which of its members, and what is wrong with it.
        let expected = cut(&format!("{}: {}", inside, error.masked()));
        let found = value.pointer(&inside).map_or_else(|| "nothing".to_owned(), shown);
        Some(Finding::Invalid { expected, found })
    }

    fn normalized(&self, value: &Value) -> Option<(Vec<Normalization>, Option<Value>)> {
        match value {
            Value::Null if !self.required => Some((vec![Normalization::NullAsAbsent], None)),
            Value::Number(number) if self.takes("string") => {
                let text = Value::String(number.to_string());
                self.validator.is_valid(&text).then(|| (vec![Normalization::NumberToText], Some(text)))
            }
            Value::String(text) => self.normalized_text(text),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => None,
        }
    }

    fn normalized_text(&self, text: &str) -> Option<(Vec<Normalization>, Option<Value>)> {
        // A text this long is no number and no word of a list.
        if text.len() > 4 * SHOWN_MAX {
            return None;
        }
        let mut done = Vec::new();
        let mut now = text.to_owned();
        let folded: String = text.nfkc().collect();
        if folded != now {
            done.push(Normalization::WidthFolded);
            now = folded;
        }
        if now.trim() != now {
            done.push(Normalization::Trimmed);
            now = now.trim().to_owned();
        }
        let fits = |value: &Value| self.validator.is_valid(value);
        let told = |mut done: Vec<Normalization>, last: Option<Normalization>, value: Value| {
            done.extend(last);
            Some((done, Some(value)))
        };
        let plain = Value::String(now.clone());
        if !done.is_empty() && fits(&plain) {
            return told(done, None, plain);
        }
        if let Some(number) = decimal(&now).filter(|_| self.takes("number") || self.takes("integer"))
            && fits(&number)
        {
            return told(done, Some(Normalization::TextToNumber), number);
        }
        let boolean = match now.to_ascii_lowercase().as_str() {
            "true" => Some(Value::Bool(true)),
            "false" => Some(Value::Bool(false)),
            _ => None,
        };
        if let Some(boolean) = boolean.filter(|_| self.takes("boolean"))
            && fits(&boolean)
        {
            return told(done, Some(Normalization::TextToBoolean), boolean);
        }
        let words = self.schema.get("enum").and_then(Value::as_array).into_iter().flatten();
        let same: Vec<&Value> =
            words.filter(|word| word.as_str().is_some_and(|word| word.to_lowercase() == now.to_lowercase())).collect();
        match same.as_slice() {
            [word] if fits(word) => told(done, Some(Normalization::CaseFolded), (*word).clone()),
            _ => None,
        }
    }

    fn takes(&self, kind: &str) -> bool {
        match self.schema.get("type") {
            Some(Value::String(only)) => only == kind,
            Some(Value::Array(several)) => several.iter().any(|one| one == kind),
            Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) | None => false,
        }
    }
}

/// The range of a number against which a reading is judged, beside the schema: what a device's point declares.
#[must_use]
pub fn in_range(value: &Value, least: f64, most: f64) -> Finding {
    match value.as_f64() {
        // A bit, or no value: the schema speaks of those.
        None => Finding::Valid,
        Some(number) if number >= least && number <= most => Finding::Valid,
        Some(_) => Finding::Invalid { expected: format!("{least} to {most}"), found: shown(value) },
    }
}

/// An object whose members can be judged one by one: nothing ties them together.
fn depth_is_plain(schema: &Value) -> bool {
    const TYING: [&str; 7] = ["anyOf", "oneOf", "allOf", "not", "if", "$ref", "dependentSchemas"];
    TYING.iter().all(|key| schema.get(key).is_none())
}

/// A part of a schema still finds what it refers to.
fn in_root(root: &Value, part: &Value) -> Value {
    let (Value::Object(root), Value::Object(part)) = (root, part) else { return part.clone() };
    let mut whole = part.clone();
    for key in ["$defs", "definitions", "$schema"] {
        if let (Some(shared), None) = (root.get(key), part.get(key)) {
            whole.insert(key.to_owned(), shared.clone());
        }
    }
    Value::Object(whole)
}

/// A plain decimal number: no exponents, no words, nothing around it.
fn decimal(text: &str) -> Option<Value> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let plain = !digits.is_empty()
        && digits.starts_with(|first: char| first.is_ascii_digit())
        && digits.ends_with(|last: char| last.is_ascii_digit())
        && digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    if !plain {
        return None;
    }
    if let Ok(whole) = text.parse::<i64>() {
        return Some(whole.into());
    }
    text.parse::<f64>().ok().and_then(serde_json::Number::from_f64).map(Value::Number)
}

/// What a schema asks for, in one line.
fn expected(schema: &Value) -> String {
    let mut parts = Vec::new();
    match schema.get("type") {
        Some(Value::String(one)) => parts.push(one.clone()),
        Some(Value::Array(several)) => {
            parts.push(several.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" or "));
        }
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) | None => {}
    }
    for (key, word) in [
        ("const", "exactly"),
        ("enum", "one of"),
        ("minimum", "at least"),
        ("exclusiveMinimum", "above"),
        ("maximum", "at most"),
        ("exclusiveMaximum", "below"),
        ("minLength", "characters, at least"),
        ("maxLength", "characters, at most"),
        ("pattern", "like"),
        ("format", "as"),
        ("multipleOf", "a multiple of"),
    ] {
        if let Some(value) = schema.get(key) {
            parts.push(format!("{word} {value}"));
        }
    }
    if parts.is_empty() {
        parts.push(schema.to_string());
    }
    cut(&parts.join(", "))
}

/// What is there, in one line: its kind, and its beginning.
fn shown(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => format!("boolean {value}"),
        Value::Number(value) => format!("number {value}"),
        Value::String(text) => cut(&format!("string {:?}", cut(text))),
        Value::Array(list) => format!("list of {}", list.len()),
        Value::Object(members) => format!("object of {}", members.len()),
    }
}

fn cut(text: &str) -> String {
    text.chars().take(SHOWN_MAX).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Normalization::{
        CaseFolded, NullAsAbsent, NumberToText, TextToBoolean, TextToNumber, Trimmed, WidthFolded,
    };
    use super::*;

    #[track_caller]
    fn check(schema: &Value, output: Value, expected: &[(&str, Finding)]) {
        let found = Outputs::new(schema).unwrap().judge(&output);
        let expected: Vec<(String, Finding)> =
            expected.iter().map(|(at, finding)| ((*at).to_owned(), finding.clone())).collect();
        assert_eq!(found.findings, expected, "{output}");
    }

    fn bad(expected: &str, found: &str) -> Finding {
        Finding::Invalid { expected: expected.to_owned(), found: found.to_owned() }
    }

    fn made(done: &[Normalization], value: Value) -> Finding {
        Finding::ValidAfterNormalization { done: done.to_vec(), value: Some(value) }
    }

    fn schema() -> Value {
        json!({
            "type": "object",
            "properties": {
                "hz": { "type": "number", "minimum": 0, "maximum": 50 },
                "mode": { "enum": ["auto", "manual"] },
                "on": { "type": "boolean" },
                "serial": { "type": "string", "pattern": "^[0-9]+$" },
            },
            "required": ["hz"],
        })
    }

    #[test]
    fn each_parameter_is_judged_by_itself() {
        let valid = Finding::Valid;
        check(&schema(), json!({ "hz": 48.5, "on": true }), &[("/hz", valid.clone()), ("/on", valid.clone())]);
        let range = "number, at least 0, at most 50";
        check(&schema(), json!({ "hz": 51 }), &[("/hz", bad(range, "number 51"))]);
        check(&schema(), json!({ "hz": "fast" }), &[("/hz", bad(range, "string \"fast\""))]);
        check(&schema(), json!({}), &[("/hz", bad(range, "nothing"))]);
        check(&schema(), json!(7), &[("/hz", bad(range, "no object around it"))]);
        check(
            &schema(),
            json!({ "hz": 1, "mode": "off" }),
            &[("/hz", valid), ("/mode", bad("one of [\"auto\",\"manual\"]", "string \"off\""))],
        );
    }

    #[test]
    fn what_fits_once_normalized_says_how() {
        let hz = |text: &str| json!({ "hz": text });
        check(&schema(), hz("48.5"), &[("/hz", made(&[TextToNumber], json!(48.5)))]);
        check(&schema(), hz(" 48 "), &[("/hz", made(&[Trimmed, TextToNumber], json!(48)))]);
        check(&schema(), hz("４８．５"), &[("/hz", made(&[WidthFolded, TextToNumber], json!(48.5)))]);
        let valid = Finding::Valid;
        let also = |key: &str, value: Value| {
            let mut output = json!({ "hz": 1 });
            output[key] = value;
            output
        };
        check(
            &schema(),
            also("mode", json!("AUTO")),
            &[("/hz", valid.clone()), ("/mode", made(&[CaseFolded], json!("auto")))],
        );
        check(
            &schema(),
            also("on", json!("True")),
            &[("/hz", valid.clone()), ("/on", made(&[TextToBoolean], json!(true)))],
        );
        check(
            &schema(),
            also("serial", json!(7)),
            &[("/hz", valid.clone()), ("/serial", made(&[NumberToText], json!("7")))],
        );
        let absent = Finding::ValidAfterNormalization { done: vec![NullAsAbsent], value: None };
        check(&schema(), also("on", Value::Null), &[("/hz", valid), ("/on", absent)]);
    }

    #[test]
    fn a_normalization_is_no_guess() {
        let range = "number, at least 0, at most 50";
        for text in ["1e1", "+5", "0x10", "5 Hz", "5,0", "五", "", ".5", "5.", "1.2.3", "NaN", "inf", "51"] {
            let found = Outputs::new(&schema()).unwrap().judge(&json!({ "hz": text }));
            assert_eq!(found.findings, [("/hz".to_owned(), bad(range, &format!("string {text:?}")))], "{text}");
        }
        // Required: null is not absent. Two words that differ in letters only: neither is meant for certain.
        check(&schema(), json!({ "hz": null }), &[("/hz", bad(range, "null"))]);
        let twice = json!({ "enum": ["Auto", "auto"] });
        check(&twice, json!("AUTO"), &[("", bad("one of [\"Auto\",\"auto\"]", "string \"AUTO\""))]);
        assert_eq!(in_range(&json!(50.0), 0.0, 50.0), Finding::Valid);
        assert_eq!(in_range(&json!(50.5), 0.0, 50.0), bad("0 to 50", "number 50.5"));
        assert_eq!(in_range(&json!(true), 0.0, 50.0), Finding::Valid);
    }

    #[test]
    fn objects_are_looked_into_and_lists_are_one_parameter() {
        let schema = json!({
            "type": "object", "required": ["box"], "additionalProperties": false,
            "properties": {
                "box": {
                    "type": "object", "required": ["a/b"],
                    "properties": { "a/b": { "$ref": "#/$defs/count" }, "list": { "type": "array", "items": { "type": "integer" } } },
                },
            },
            "$defs": { "count": { "type": "integer", "minimum": 0 } },
        });
        let valid = Finding::Valid;
        let whole = json!({ "box": { "a/b": 3, "list": [1, 2] } });
        check(&schema, whole, &[("/box/a~1b", valid.clone()), ("/box/list", valid)]);
        let found = Outputs::new(&schema).unwrap().judge(&json!({ "box": { "a/b": -1, "list": [1, "x"] }, "more": 1 }));
        let [(_, Finding::Invalid { .. }), (_, Finding::Invalid { expected, found: inner }), (at, last)] =
            found.findings.as_slice()
        else {
            panic!("{found:?}")
        };
        assert!(expected.starts_with("/1: "), "{expected}");
        assert_eq!(inner, "string \"x\"");
        assert_eq!((at.as_str(), last), ("/more", &bad("no member of this name", "number 1")));
        assert_eq!(found.verdict(), Some(Verdict::Invalid));
        assert_eq!(Validity::default().verdict(), None);
    }

    #[test]
    fn what_is_written_is_bounded() {
        let properties: Map<String, Value> =
            (0..200).map(|n| (format!("p{n}"), json!({ "type": "integer" }))).collect();
        let wide = json!({ "type": "object", "properties": properties });
        // Too many to name: judged as one.
        let found = Outputs::new(&wide).unwrap().judge(&json!({ "p7": "x".repeat(100_000) }));
        assert_eq!(found.findings.len(), 1);
        assert!(found.to_json().to_string().len() < 1000);
        let closed = json!({ "type": "object", "properties": { "a": {} }, "additionalProperties": false });
        let members: Map<String, Value> = (0..1000).map(|n| (format!("m{n}"), json!(n))).collect();
        let told = Outputs::new(&closed).unwrap().judge(&Value::Object(members)).to_json();
        assert_eq!((told["invalid"].as_array().unwrap().len(), &told["more"]), (NAMED_MAX, &json!(1000 - NAMED_MAX)));
        assert!(Outputs::new(&json!({ "type": "nonsense" })).is_err());
    }
}

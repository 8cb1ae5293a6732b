//! Arguments that arrive by path (Gemini, `partialArgs`): `$.a.b[0]` and a value, a text in several pieces.
//!
//! A path makes only what it names: it never skips a place in a list, and never turns one kind of value into another.
//! Either would be an argument that nobody sent.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::end::{Fault, clipped};
use super::json::Json;

/// The longest path, in bytes.
const PATH_LEN_MAX: usize = 4096;
/// How deep a path may go: a tool's input may nest 32 deep.
const PATH_DEPTH_MAX: usize = 32;
/// The most values that paths may make in one call.
const VALUES_MAX: usize = 65_536;

/// An object in the making.
#[derive(Debug, Default)]
pub(super) struct Partial {
    /// Null, or an object.
    value: Value,
    /// Paths whose text goes on.
    open: BTreeSet<String>,
    made: usize,
}

enum Step<'p> {
    Member(&'p str),
    Place(usize),
}

impl Partial {
    /// The whole object at once.
    pub(super) fn set(&mut self, value: Map<String, Value>) {
        self.value = Value::Object(value);
    }

    /// One piece.
    pub(super) fn take(&mut self, piece: &Json<'_>) -> Result<(), String> {
        let member = |json: &str, proto: &str| piece.get(json).or_else(|| piece.get(proto));
        let path = member("jsonPath", "json_path").and_then(Json::as_text).ok_or("a piece without a path")?;
        let shown = || clipped(path);
        let steps = steps(path).ok_or_else(|| format!("{:?} is no path", shown()))?;
        let text = member("stringValue", "string_value").and_then(Json::as_text);
        let number = member("numberValue", "number_value").filter(|value| matches!(value, Json::Number(_)));
        let value = match (text, number, member("boolValue", "bool_value").and_then(Json::as_bool)) {
            (Some(text), None, None) => Value::from(text),
            (None, Some(number), None) => number.to_value(),
            (None, None, Some(bool)) => Value::Bool(bool),
            (None, None, None) => Value::Null,
            _ => return Err(format!("{:?} has two values", shown())),
        };
        self.made += 1;
        if self.made > VALUES_MAX {
            return Err("of too many pieces".to_owned());
        }
        let goes_on = member("willContinue", "will_continue").and_then(Json::as_bool) == Some(true);
        let continues = self.open.contains(path);
        let place = reach(&mut self.value, &steps).ok_or_else(|| format!("{:?} leads nowhere", shown()))?;
        match (place, value) {
            (Value::String(so_far), Value::String(more)) if continues => so_far.push_str(&more),
            (_, Value::Null) if continues => {}
            (place @ Value::Null, value) if !continues => *place = value,
            _ => return Err(format!("{:?} is given twice", shown())),
        }
        if goes_on {
            self.open.insert(path.to_owned());
        } else {
            self.open.remove(path);
        }
        Ok(())
    }

    /// The object, when no text still goes on.
    pub(super) fn into_object(self, name: &str) -> Result<Map<String, Value>, Fault> {
        let why = match (self.open.first(), self.value) {
            (None, Value::Object(value)) => return Ok(value),
            (None, Value::Null) => return Ok(Map::new()),
            (None, Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
                "no JSON object".to_owned()
            }
            (Some(path), _) => format!("unfinished at {:?}", clipped(path)),
        };
        Err(Fault::Arguments { name: name.to_owned(), why })
    }
}

/// The place of a path, made where it is missing; `None` where another kind of value stands in the way.
fn reach<'v>(root: &'v mut Value, steps: &[Step<'_>]) -> Option<&'v mut Value> {
    let mut at = root;
    for step in steps {
        at = match step {
            Step::Member(name) => {
                if at.is_null() {
                    *at = Value::Object(Map::new());
                }
                at.as_object_mut()?.entry(*name).or_insert(Value::Null)
            }
            Step::Place(place) => {
                if at.is_null() {
                    *at = Value::Array(Vec::new());
                }
                let list = at.as_array_mut()?;
                if *place == list.len() {
                    list.push(Value::Null);
                }
                list.get_mut(*place)?
            }
        };
    }
    Some(at)
}

/// `$.a['b c'][0]`, the part of RFC 9535 that names one place.
fn steps(path: &str) -> Option<Vec<Step<'_>>> {
    if path.len() > PATH_LEN_MAX {
        return None;
    }
    let mut rest = path.strip_prefix('$')?;
    let mut steps = Vec::new();
    while !rest.is_empty() {
        let (step, left) = if let Some(after) = rest.strip_prefix('.') {
            let end = after.find(['.', '[']).unwrap_or(after.len());
            (Step::Member(&after[..end]), &after[end..])
        } else {
            let inner = rest.strip_prefix('[')?;
            match inner.chars().next()? {
                quote @ ('\'' | '"') => {
                    let (name, left) = inner[1..].split_once(quote)?;
                    (Step::Member(name), left.strip_prefix(']')?)
                }
                _ => {
                    let (place, left) = inner.split_once(']')?;
                    (Step::Place(place.parse().ok()?), left)
                }
            }
        };
        if matches!(step, Step::Member("")) || steps.len() == PATH_DEPTH_MAX {
            return None;
        }
        steps.push(step);
        rest = left;
    }
    (!steps.is_empty()).then_some(steps)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(pieces: &[Value], want: Result<Value, &str>) {
        let mut partial = Partial::default();
        let mut taken = Ok(());
        for piece in pieces {
            let text = piece.to_string();
            let json: Json<'_> = serde_json::from_str(&text).unwrap();
            taken = taken.and_then(|()| partial.take(&json));
        }
        let got = match taken {
            Ok(()) => partial.into_object("t").map(Value::Object).map_err(|fault| fault.to_string()),
            Err(why) => Err(why),
        };
        match want {
            Ok(want) => assert_eq!(got, Ok(want), "{pieces:?}"),
            Err(part) => assert!(got.as_ref().is_err_and(|why| why.contains(part)), "{pieces:?}: {got:?}"),
        }
    }

    #[test]
    fn paths_make_what_they_name() {
        check(&[], Ok(json!({})));
        check(
            &[
                json!({"jsonPath": "$.a", "stringValue": "Bo", "willContinue": true}),
                json!({"jsonPath": "$.a", "stringValue": "ston", "willContinue": true}),
                json!({"jsonPath": "$.n", "numberValue": 7}),
                json!({"jsonPath": "$.a", "stringValue": ""}),
                json!({"jsonPath": "$.list[0].x", "boolValue": true}),
                json!({"jsonPath": "$.list[1]['y z']", "nullValue": "NULL_VALUE"}),
                json!({"jsonPath": "$.list[1][\"w\"]", "numberValue": 0.5}),
            ],
            Ok(json!({"a": "Boston", "n": 7, "list": [{"x": true}, {"y z": null, "w": 0.5}]})),
        );
    }

    #[test]
    fn what_nobody_sent_is_not_made() {
        let text = |path: &str| json!({"jsonPath": path, "stringValue": "x"});
        check(&[text("$.a[1]")], Err("leads nowhere"));
        check(&[text("$.a"), text("$.a.b")], Err("leads nowhere"));
        check(&[text("$.a"), text("$.a")], Err("given twice"));
        check(&[json!({"jsonPath": "$.a", "stringValue": "x", "willContinue": true})], Err("unfinished"));
        check(&[json!({"jsonPath": "$.a", "stringValue": "x", "numberValue": 1})], Err("two values"));
        for path in ["", "a", "$", "$..a", "$[", "$[x]", "$['a]", "$[-1]", "$.a[99999999999999999999]"] {
            check(&[text(path)], Err("no path"));
        }
        check(&[text(&format!("$.{}", "a".repeat(5000)))], Err("no path"));
        check(&[text(&format!("$.a{}", "[0]".repeat(40)))], Err("no path"));
    }
}

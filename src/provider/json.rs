//! A frame's JSON, read tolerantly and without copying text that has no escapes.
//!
//! Providers send the same member as text, number, object or null; a typed reader would drop the frame, and a dropped
//! frame changes what the others mean. Depth is bounded by the parser (128), the number of values here: a frame of
//! brackets must not take thirty times its size.

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// The most values in one frame. A whole answer with thousands of parts stays far below.
const NODES_MAX: u32 = 262_144;

/// A JSON value that borrows from its frame.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Json<'a> {
    Null,
    Bool(bool),
    Number(Number),
    Text(Cow<'a, str>),
    Array(Vec<Json<'a>>),
    Object(Vec<(Cow<'a, str>, Json<'a>)>),
}

impl<'a> Json<'a> {
    /// A member of an object; of two with one name, the last. `null` is as good as absent.
    pub(super) fn get(&self, key: &str) -> Option<&Json<'a>> {
        match self {
            Json::Object(members) => {
                members.iter().rev().find(|(name, _)| name == key).map(|(_, value)| value).filter(|v| !v.is_null())
            }
            Json::Null | Json::Bool(_) | Json::Number(_) | Json::Text(_) | Json::Array(_) => None,
        }
    }

    /// A member that is a text.
    pub(super) fn text_of(&self, key: &str) -> Option<&str> {
        self.get(key).and_then(Json::as_text)
    }

    pub(super) fn is_null(&self) -> bool {
        matches!(self, Json::Null)
    }

    pub(super) fn as_text(&self) -> Option<&str> {
        match self {
            Json::Text(text) => Some(text),
            Json::Null | Json::Bool(_) | Json::Number(_) | Json::Array(_) | Json::Object(_) => None,
        }
    }

    /// A whole number, also one that is written as text.
    pub(super) fn as_i64(&self) -> Option<i64> {
        match self {
            #[expect(clippy::cast_possible_truncation, reason = "only numbers without a fraction get here")]
            Json::Number(number) => number
                .as_i64()
                .or_else(|| number.as_f64().filter(|f| f.fract() == 0.0 && f.abs() < 1e15).map(|f| f as i64)),
            Json::Text(text) => text.trim().parse().ok(),
            Json::Null | Json::Bool(_) | Json::Array(_) | Json::Object(_) => None,
        }
    }

    pub(super) fn as_bool(&self) -> Option<bool> {
        match self {
            Json::Bool(bool) => Some(*bool),
            Json::Null | Json::Number(_) | Json::Text(_) | Json::Array(_) | Json::Object(_) => None,
        }
    }

    pub(super) fn is_object(&self) -> bool {
        matches!(self, Json::Object(_))
    }

    /// The items of an array; an object by itself counts as an array of one, anything else as none.
    pub(super) fn items(&self) -> &[Json<'a>] {
        match self {
            Json::Array(items) => items,
            Json::Object(_) => std::slice::from_ref(self),
            Json::Null | Json::Bool(_) | Json::Number(_) | Json::Text(_) => &[],
        }
    }

    /// What it takes in memory, roughly: its text, and a node for each value.
    pub(super) fn weight(&self) -> usize {
        let inner = match self {
            Json::Null | Json::Bool(_) | Json::Number(_) => 0,
            Json::Text(text) => text.len(),
            Json::Array(items) => items.iter().map(Json::weight).sum(),
            Json::Object(members) => members.iter().map(|(name, value)| name.len() + value.weight()).sum(),
        };
        inner + size_of::<Value>()
    }

    /// As a value of its own.
    pub(super) fn to_value(&self) -> Value {
        match self {
            Json::Null => Value::Null,
            Json::Bool(bool) => Value::Bool(*bool),
            Json::Number(number) => Value::Number(number.clone()),
            Json::Text(text) => Value::String(text.clone().into_owned()),
            Json::Array(items) => Value::Array(items.iter().map(Json::to_value).collect()),
            Json::Object(_) => Value::Object(self.to_map()),
        }
    }

    /// The members as a map of its own; empty when it is no object.
    pub(super) fn to_map(&self) -> Map<String, Value> {
        match self {
            Json::Object(members) => {
                members.iter().map(|(name, value)| (name.clone().into_owned(), value.to_value())).collect()
            }
            Json::Null | Json::Bool(_) | Json::Number(_) | Json::Text(_) | Json::Array(_) => Map::new(),
        }
    }
}

impl<'de> Deserialize<'de> for Json<'de> {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Json<'de>, D::Error> {
        Seed { left: &Cell::new(NODES_MAX) }.deserialize(reader)
    }
}

struct Seed<'b> {
    left: &'b Cell<u32>,
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Json<'de>;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Json<'de>, D::Error> {
        let left = self.left.get();
        if left == 0 {
            return Err(D::Error::custom("too many values"));
        }
        self.left.set(left - 1);
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Json<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Json<'de>, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, bool: bool) -> Result<Json<'de>, E> {
        Ok(Json::Bool(bool))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Json<'de>, E> {
        Ok(Json::Number(number.into()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Json<'de>, E> {
        Ok(Json::Number(number.into()))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Json<'de>, E> {
        Ok(Number::from_f64(number).map_or(Json::Null, Json::Number))
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Json<'de>, E> {
        Ok(Json::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Json<'de>, E> {
        Ok(Json::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Json<'de>, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(Seed { left: self.left })? {
            list.push(item);
        }
        Ok(Json::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Json<'de>, A::Error> {
        let mut list = Vec::with_capacity(4);
        while let Some(name) = members.next_key_seed(Name)? {
            list.push((name, members.next_value_seed(Seed { left: self.left })?));
        }
        Ok(Json::Object(list))
    }
}

struct Name;

impl<'de> DeserializeSeed<'de> for Name {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Cow<'de, str>, D::Error> {
        reader.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Name {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Cow<'de, str>, E> {
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E>(self, text: &str) -> Result<Cow<'de, str>, E> {
        Ok(Cow::Owned(text.to_owned()))
    }
}

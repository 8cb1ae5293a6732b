//! From a command and its slots to the calls of tools that it stands for.
//!
//! A command of the shipped set says what it means once, in its `bind`; which device that is, is looked up in the
//! table of the plant at hand. This module never chooses between two devices: one that fits is taken, several are
//! a question, none is an error that names what is there.
//!
//! `bind` is one step or an array of steps, in order. A step is one of
//!
//! ```toml
//! bind = { device = "pump", action = "set-frequency", value = "{value}" }   # a kind, or the name of one device
//! bind = { device = "ac", by = "zone", action = "start" }                   # the slot that picks one of the kind
//! bind = { tool = "task", input = { action = "list" } }
//! ```
//!
//! `by` names the slot that picks the device, `device` without it: a number picks by number, a text by zone.
//! `value`, and any text in `input`, is taken as it is, except that `"{slot}"` is the value of a slot (missing: the
//! command is incomplete) and `"{slot?}"` is the same, left out when it was not said. `if = "slot"` and
//! `unless = "slot"` keep a step for when a slot was said, or was not.

use std::collections::BTreeSet;

use serde_json::{Map, Value};
use thiserror::Error;

use crate::device::plan::{Call, KNOWN_MAX, PlanError};
use crate::device::table::{Device, Devices};
use crate::id::ToolName;

/// Most steps of one command. Each is a call of its own in one batch.
pub const STEPS_MAX: usize = 8;

/// The slot that picks the device when a step does not say which.
const DEVICE_SLOT: &str = "device";

/// One step of a command.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    when: When,
    does: Does,
}

#[derive(Debug, Clone, PartialEq)]
enum When {
    Always,
    Said(String),
    NotSaid(String),
}

#[derive(Debug, Clone, PartialEq)]
enum Does {
    /// The kind or name, the slot that picks, and the rest of the input (`action`, `point`, `value`).
    Device {
        of: String,
        by: String,
        input: Map<String, Value>,
    },
    Tool {
        tool: ToolName,
        input: Map<String, Value>,
    },
}

/// A `bind` that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BadBind {
    /// Not a table, and not an array of 1 to [`STEPS_MAX`] tables.
    #[error("bind is a table or an array of 1 to {STEPS_MAX} tables")]
    Shape,
    /// A key that a step does not have.
    #[error("a step of bind has no key {0:?}")]
    UnknownKey(String),
    /// A key of the wrong type.
    #[error("{key} of bind is {wanted}")]
    Type {
        /// The key.
        key: &'static str,
        /// What it should be.
        wanted: &'static str,
    },
    /// Neither `device` with `action`, nor `tool` with `input`.
    #[error("a step of bind has device and action, or tool and input")]
    Neither,
    /// Both `if` and `unless`.
    #[error("a step of bind has if or unless, not both")]
    TwoConditions,
    /// Not the name of a tool.
    #[error("{0}")]
    Tool(String),
}

/// Why a command comes to no call. Nothing was done.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum BindError {
    /// Slots that must be said, by name: the command is incomplete.
    #[error("not said: {}", .0.join(", "))]
    Missing(Vec<String>),
    /// A device that is not there.
    #[error("there is no {asked}; there are {}", listed(.known))]
    NoSuchDevice {
        /// What was asked for: `pump 9`, `ac in 泵房`.
        asked: String,
        /// The devices of that kind, at most [`KNOWN_MAX`].
        known: Vec<String>,
    },
    /// What the device says to it: out of range, no such action.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The steps of the command all wait for other slots.
    #[error("the command comes to nothing with these slots")]
    Nothing,
}

fn listed(known: &[String]) -> String {
    if known.is_empty() { "none".to_owned() } else { known.join(", ") }
}

/// Reads the value of `bind`.
///
/// # Errors
/// [`BadBind`].
pub fn parse(bind: &Value) -> Result<Vec<Step>, BadBind> {
    match bind {
        Value::Object(step) => Ok(vec![Step::parse(step)?]),
        Value::Array(steps) if (1..=STEPS_MAX).contains(&steps.len()) => {
            steps.iter().map(|step| Step::parse(step.as_object().ok_or(BadBind::Shape)?)).collect()
        }
        Value::Array(_) | Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Err(BadBind::Shape),
    }
}

/// The steps as [`parse`] reads them.
#[must_use]
pub fn written(steps: &[Step]) -> Value {
    steps.iter().map(Step::written).collect()
}

impl Step {
    fn written(&self) -> Value {
        let mut step = match &self.does {
            Does::Device { of, by, input } => {
                let mut step = input.clone();
                step.insert("device".to_owned(), of.as_str().into());
                step.insert("by".to_owned(), by.as_str().into());
                step
            }
            Does::Tool { tool, input } => {
                Map::from_iter([("tool".to_owned(), tool.as_str().into()), ("input".to_owned(), input.clone().into())])
            }
        };
        match &self.when {
            When::Always => {}
            When::Said(slot) => {
                step.insert("if".to_owned(), slot.as_str().into());
            }
            When::NotSaid(slot) => {
                step.insert("unless".to_owned(), slot.as_str().into());
            }
        }
        Value::Object(step)
    }

    fn parse(step: &Map<String, Value>) -> Result<Step, BadBind> {
        const KEYS: [&str; 9] = ["device", "by", "action", "point", "value", "tool", "input", "if", "unless"];
        if let Some(key) = step.keys().find(|key| !KEYS.contains(&key.as_str())) {
            return Err(BadBind::UnknownKey(key.clone()));
        }
        let text = |key: &'static str| match step.get(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(_) => Err(BadBind::Type { key, wanted: "a text" }),
        };
        let when = match (text("if")?, text("unless")?) {
            (None, None) => When::Always,
            (Some(slot), None) => When::Said(slot),
            (None, Some(slot)) => When::NotSaid(slot),
            (Some(_), Some(_)) => return Err(BadBind::TwoConditions),
        };
        let has_only = |keys: &[&str]| {
            step.keys().all(|key| keys.contains(&key.as_str()) || matches!(key.as_str(), "if" | "unless"))
        };
        let does = match (text("device")?, text("action")?, text("tool")?, step.get("input")) {
            (Some(of), Some(_), None, None) => {
                let input = ["action", "point", "value"]
                    .into_iter()
                    .filter_map(|key| step.get(key).map(|value| (key.to_owned(), value.clone())))
                    .collect();
                text("point")?;
                Does::Device { of, by: text("by")?.unwrap_or_else(|| DEVICE_SLOT.to_owned()), input }
            }
            (None, None, Some(tool), Some(input)) if has_only(&["tool", "input"]) => {
                let input = input.as_object().ok_or(BadBind::Type { key: "input", wanted: "a table" })?.clone();
                Does::Tool { tool: ToolName::new(&tool).map_err(|error| BadBind::Tool(error.to_string()))?, input }
            }
            _ => return Err(BadBind::Neither),
        };
        Ok(Step { when, does })
    }

    /// The slots that this step names, for a check against the command's own.
    #[must_use]
    pub fn slots(&self) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        match &self.when {
            When::Always => {}
            When::Said(slot) | When::NotSaid(slot) => {
                names.insert(slot.clone());
            }
        }
        let input = match &self.does {
            Does::Device { by, input, .. } => {
                // The slot that picks may be one that the command does not have: then the only device is meant.
                if by != DEVICE_SLOT {
                    names.insert(by.clone());
                }
                input
            }
            Does::Tool { input, .. } => input,
        };
        input.values().for_each(|value| named_slots(value, &mut names));
        names
    }
}

/// The calls that `steps` come to, in order.
///
/// # Errors
/// [`BindError`].
pub fn bind(
    steps: &[Step],
    slots: &Map<String, Value>,
    devices: &Devices,
) -> Result<Vec<(ToolName, Value)>, BindError> {
    let said = |slot: &str| slots.get(slot).is_some_and(|value| !value.is_null());
    let mut calls = Vec::new();
    for step in steps {
        let applies = match &step.when {
            When::Always => true,
            When::Said(slot) => said(slot),
            When::NotSaid(slot) => !said(slot),
        };
        if !applies {
            continue;
        }
        match &step.does {
            Does::Tool { tool, input } => calls.push((tool.clone(), Value::Object(filled(input, slots)?))),
            Does::Device { of, by, input } => {
                let device = picked(of, by, slots, devices)?;
                let mut input = filled(input, slots)?;
                as_numbers(&mut input, device);
                input.insert("device".to_owned(), Value::from(device.name.as_str()));
                let input = Value::Object(input);
                devices.plan(&Call::parse(&input)?)?;
                calls.push((device_tool()?, input));
            }
        }
    }
    if calls.is_empty() { Err(BindError::Nothing) } else { Ok(calls) }
}

fn device_tool() -> Result<ToolName, BindError> {
    ToolName::new("device").map_err(|_| BindError::Nothing)
}

/// One device, or why not. A name is a name; a kind is looked up by what the slot `by` says.
fn picked<'a>(of: &str, by: &str, slots: &Map<String, Value>, devices: &'a Devices) -> Result<&'a Device, BindError> {
    if let Some(device) = devices.get(of) {
        return Ok(device);
    }
    let all = devices.of_kind(of).collect::<Vec<_>>();
    let none = |asked: String| BindError::NoSuchDevice {
        asked,
        known: all.iter().map(|device| device.name.clone()).take(KNOWN_MAX).collect(),
    };
    let slot = slots.get(by).unwrap_or(&Value::Null);
    let (fits, asked) = match slot {
        Value::Null => (all.clone(), of.to_owned()),
        Value::String(zone) => {
            let there = all.iter().copied().filter(|device| device.zone.as_deref() == Some(zone.as_str()));
            (there.collect(), format!("{of} in {zone}"))
        }
        Value::Number(_) | Value::Bool(_) | Value::Array(_) | Value::Object(_) => {
            let number = slot.as_f64();
            let fits = |device: &&Device| device.number.map(f64::from).is_some_and(|own| Some(own) == number);
            (all.iter().copied().filter(fits).collect(), format!("{of} {slot}"))
        }
    };
    match *fits {
        [device] => Ok(device),
        [] => Err(none(asked)),
        // A zone with several of the kind: its number is what is not said.
        [..] if !slot.is_null() => Err(BindError::Missing(vec![DEVICE_SLOT.to_owned()])),
        [..] => Err(BindError::Missing(vec![by.to_owned()])),
    }
}

/// Digits that were said one by one (`slots` of type `digits` are texts, to keep leading zeros) are a number where
/// the device wants one.
fn as_numbers(input: &mut Map<String, Value>, device: &Device) {
    let Some(Value::String(text)) = input.get("value") else { return };
    let is_label = device.points.values().any(|point| point.labels.iter().any(|(label, _)| label == text));
    if !is_label
        && text.bytes().all(|b| b.is_ascii_digit())
        && let Ok(number) = text.parse::<u64>()
    {
        input.insert("value".to_owned(), Value::from(number));
    }
}

fn filled(input: &Map<String, Value>, slots: &Map<String, Value>) -> Result<Map<String, Value>, BindError> {
    let mut out = Map::new();
    let mut missing = Vec::new();
    for (key, value) in input {
        match filled_value(value, slots) {
            Filled::Value(value) => {
                out.insert(key.clone(), value);
            }
            Filled::LeftOut => {}
            Filled::Missing(slot) => missing.push(slot),
        }
    }
    if missing.is_empty() { Ok(out) } else { Err(BindError::Missing(missing)) }
}

enum Filled {
    Value(Value),
    LeftOut,
    Missing(String),
}

/// Tables and arrays inside an input are taken as they are: no command needs a slot that deep.
fn filled_value(value: &Value, slots: &Map<String, Value>) -> Filled {
    let Some((slot, optional)) = placeholder(value) else { return Filled::Value(value.clone()) };
    match slots.get(slot) {
        Some(value) if !value.is_null() => Filled::Value(value.clone()),
        Some(_) | None if optional => Filled::LeftOut,
        Some(_) | None => Filled::Missing(slot.to_owned()),
    }
}

fn placeholder(value: &Value) -> Option<(&str, bool)> {
    let name = value.as_str()?.strip_prefix('{')?.strip_suffix('}')?;
    Some(name.strip_suffix('?').map_or((name, false), |name| (name, true)))
}

fn named_slots(value: &Value, names: &mut BTreeSet<String>) {
    if let Some((slot, _)) = placeholder(value) {
        names.insert(slot.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::point::{Point, Repr, Table};
    use crate::device::table::{Action, Bus, Does as Acts, Link, Write};
    use crate::risk::Risk;
    use serde_json::json;
    use std::sync::Arc;
    use std::time::Duration;

    fn device(name: &str, kind: &str, number: Option<u32>, zone: Option<&str>, at: u16) -> Device {
        let run = Point::plain("run", Table::Coil, at, Repr::Bit);
        let set = Point {
            range: Some((0.0, 50.0)),
            labels: vec![("泵房".to_owned(), 10.0)],
            ..Point::plain("set", Table::Holding, at, Repr::U16)
        };
        let action = |name: &str, point: &str, value: Option<Value>| Action {
            name: name.to_owned(),
            risk: Risk::Operate,
            protective: false,
            inverse: None,
            does: Acts::Writes(vec![Write { device: None, point: point.to_owned(), value }]),
        };
        Device {
            name: name.to_owned(),
            kind: kind.to_owned(),
            number,
            zone: zone.map(str::to_owned),
            title: String::new(),
            bus: "b".to_owned(),
            unit: 1,
            points: [run, set].into_iter().map(|point| (point.name.clone(), Arc::new(point))).collect(),
            actions: [action("start", "run", Some(json!(true))), action("set", "set", None)]
                .into_iter()
                .map(|action| (action.name.clone(), action))
                .collect(),
        }
    }

    fn plant() -> Devices {
        let link = Link::Tcp { host: "127.0.0.1".to_owned(), port: 502 };
        Devices::new(
            vec![Bus { name: "b".to_owned(), link, timeout: Duration::from_secs(1) }],
            vec![
                device("pump-1", "pump", Some(1), None, 0),
                device("pump-2", "pump", Some(2), None, 1),
                device("boiler-1", "boiler", Some(1), None, 2),
                device("ac-1", "ac", None, Some("泵房"), 3),
                device("ac-2", "ac", None, Some("东门"), 4),
            ],
        )
        .expect("a good table")
    }

    #[track_caller]
    fn check(step: Value, slots: Value, expected: Result<Value, &str>) {
        let steps = parse(&step).expect("a good bind");
        let calls = bind(&steps, slots.as_object().expect("slots"), &plant());
        let calls =
            calls.map(|calls| calls.into_iter().map(|(tool, input)| json!([tool.as_str(), input])).collect::<Value>());
        assert_eq!(calls.map_err(|error| error.to_string()), expected.map_err(str::to_owned));
    }

    #[test]
    fn the_number_picks_the_device_and_none_is_a_question_where_several_could_be_meant() {
        let start = json!({"device": "pump", "action": "start"});
        check(start.clone(), json!({"device": 2}), Ok(json!([["device", {"device": "pump-2", "action": "start"}]])));
        check(start.clone(), json!({}), Err("not said: device"));
        check(start.clone(), json!({"device": null}), Err("not said: device"));
        check(start.clone(), json!({"device": 9}), Err("there is no pump 9; there are pump-1, pump-2"));
        check(start, json!({"device": 1.5}), Err("there is no pump 1.5; there are pump-1, pump-2"));
        let fire = json!({"device": "boiler", "action": "start"});
        let only = json!([["device", {"device": "boiler-1", "action": "start"}]]);
        check(fire.clone(), json!({}), Ok(only.clone()));
        check(fire.clone(), json!({"device": 1}), Ok(only));
        check(fire, json!({"device": 2}), Err("there is no boiler 2; there are boiler-1"));
        let named = json!({"device": "pump-2", "action": "start"});
        check(named, json!({}), Ok(json!([["device", {"device": "pump-2", "action": "start"}]])));
        check(json!({"device": "crane", "action": "start"}), json!({}), Err("there is no crane; there are none"));
    }

    #[test]
    fn a_zone_picks_where_the_command_says_so() {
        let on = json!({"device": "ac", "by": "zone", "action": "start"});
        check(on.clone(), json!({"zone": "东门"}), Ok(json!([["device", {"device": "ac-2", "action": "start"}]])));
        check(on.clone(), json!({}), Err("not said: zone"));
        check(on, json!({"zone": "月球"}), Err("there is no ac in 月球; there are ac-1, ac-2"));
        // A zone that is the value of a call does not pick its device.
        let go = json!({"device": "pump", "action": "set", "value": "{zone}"});
        let there = json!([["device", {"device": "pump-1", "action": "set", "value": "泵房"}]]);
        check(go.clone(), json!({"device": 1, "zone": "泵房"}), Ok(there));
        check(go, json!({"device": 1, "zone": "月球"}), Err("pump-1: set has no value named \"月球\"; it has 泵房"));
    }

    #[test]
    fn values_are_held_against_the_point_before_anything_is_asked() {
        let set = json!({"device": "pump", "action": "set", "value": "{value}"});
        let fine = json!([["device", {"device": "pump-1", "action": "set", "value": 50}]]);
        check(set.clone(), json!({"device": 1, "value": 50}), Ok(fine.clone()));
        check(set.clone(), json!({"device": 1, "value": "050"}), Ok(fine));
        check(set.clone(), json!({"device": 1, "value": 51}), Err("pump-1: set takes 0 to 50, not 51"));
        check(set, json!({"device": 1}), Err("not said: value"));
        check(
            json!({"device": "pump", "action": "explode"}),
            json!({"device": 1}),
            Err("pump-1 has no action \"explode\"; there are read, write, set, start"),
        );
    }

    #[test]
    fn steps_wait_for_slots_and_optional_ones_are_left_out() {
        let either = json!([
            {"device": "pump-1", "action": "set", "value": "{n}", "if": "n"},
            {"device": "pump-1", "action": "start", "unless": "n"},
        ]);
        check(either.clone(), json!({}), Ok(json!([["device", {"device": "pump-1", "action": "start"}]])));
        let set = json!([["device", {"device": "pump-1", "action": "set", "value": 3}]]);
        check(either, json!({"n": 3}), Ok(set));
        let task = json!({"tool": "monitor", "input": {"point": "run", "seconds": "{duration?}"}});
        check(task.clone(), json!({}), Ok(json!([["monitor", {"point": "run"}]])));
        check(task, json!({"duration": 600}), Ok(json!([["monitor", {"point": "run", "seconds": 600}]])));
        check(
            json!({"tool": "task", "input": {}, "if": "n"}),
            json!({}),
            Err("the command comes to nothing with these slots"),
        );
    }

    #[test]
    fn a_bind_that_cannot_be_read_says_what_it_wants() {
        let rows = [
            (json!(3), "bind is a table or an array of 1 to 8 tables"),
            (json!([]), "bind is a table or an array of 1 to 8 tables"),
            (json!({"device": "pump"}), "a step of bind has device and action, or tool and input"),
            (
                json!({"device": "pump", "action": "a", "tool": "t"}),
                "a step of bind has device and action, or tool and input",
            ),
            (
                json!({"tool": "t", "input": {}, "by": "zone"}),
                "a step of bind has device and action, or tool and input",
            ),
            (json!({"device": "pump", "acton": "a"}), "a step of bind has no key \"acton\""),
            (json!({"device": 2, "action": "a"}), "device of bind is a text"),
            (json!({"tool": "t", "input": 2}), "input of bind is a table"),
            (json!({"tool": "t t", "input": {}}), "\"t t\" is not the name of a tool (1 to 128 of A-Z a-z 0-9 _ . -)"),
            (json!({"tool": "t", "input": {}, "if": "a", "unless": "b"}), "a step of bind has if or unless, not both"),
        ];
        for (bind, expected) in rows {
            assert_eq!(parse(&bind).map_err(|error| error.to_string()), Err(expected.to_owned()), "{bind}");
        }
        let step = parse(&json!({"tool": "t", "input": {"a": "{x}", "b": "{y?}"}, "if": "z"})).expect("good");
        assert_eq!(step[0].slots().into_iter().collect::<Vec<_>>(), ["x", "y", "z"]);
    }
}

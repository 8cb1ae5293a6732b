//! What a call on a device comes to: reads and writes on one bus, in their order.
//!
//! Pure, and made before anything is asked or sent: the gate takes risk and touched devices from the same plan that
//! the bus carries out, so that the two cannot differ.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;
use thiserror::Error;

use super::codec::{Raw, RawError, Reading, ValueError};
use super::interlock::Interlock;
use super::point::{Point, Repr, Table};
use super::table::{Device, Devices, Does, READ, WRITE};
use crate::risk::Risk;

/// Most registers that one read may ask for (Modbus application protocol V1.1b3, sections 6.3 and 6.4).
pub const READ_REGISTERS_MAX: u16 = 125;
/// Most bits that one read may ask for (sections 6.1 and 6.2).
pub const READ_BITS_MAX: u16 = 2000;

/// A call of the tool `device`: `{"device", "action", "point"?, "value"?}`.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// The device.
    pub device: String,
    /// `read`, `write` or an action of the device.
    pub action: String,
    /// The point, for `read` (without one: all of them) and `write`.
    pub point: Option<String>,
    /// The value, for `write` and for actions that take one.
    pub value: Option<Value>,
}

/// One exchange on the bus.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// One read request; the points lie inside of it.
    Read(Span),
    /// One write request: a coil, a register or two registers; a bit of a register is read first.
    Write(Put),
}

/// A stretch of one table, read in one request.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    /// The unit.
    pub unit: u8,
    /// The table.
    pub table: Table,
    /// The first address.
    pub address: u16,
    /// How many addresses.
    pub count: u16,
    /// The points that lie in it.
    pub points: Vec<Arc<Point>>,
}

/// One value that is written.
#[derive(Debug, Clone, PartialEq)]
pub struct Put {
    /// The device whose point it is.
    pub device: String,
    /// The unit.
    pub unit: u8,
    /// The point.
    pub point: Arc<Point>,
    /// What is written.
    pub raw: Raw,
}

/// All that a call comes to.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The device that was called.
    pub device: String,
    /// The action.
    pub action: String,
    /// The bus: the lane of this call.
    pub bus: String,
    /// The risk.
    pub risk: Risk,
    /// It brings the plant to a safe state.
    pub protective: bool,
    /// Every device that it reads or writes, by name.
    pub touches: BTreeSet<String>,
    /// The exchanges, in their order.
    pub steps: Vec<Step>,
    /// The process interlocks that its writes meet: read and judged right before the first of them.
    pub guard: Vec<Arc<Interlock>>,
}

/// Why a call comes to nothing. Nothing was sent.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum PlanError {
    /// The input is not a call.
    #[error("{0}")]
    Shape(&'static str),
    /// No device of that name.
    #[error("there is no device named {device:?}{}", among(.known))]
    NoSuchDevice {
        /// The name, shortened.
        device: String,
        /// Devices of a like name, at most [`KNOWN_MAX`].
        known: Vec<String>,
    },
    /// No such action on that device.
    #[error("{device} has no action {action:?}{}", among(.known))]
    NoSuchAction {
        /// The device.
        device: String,
        /// The name, shortened.
        action: String,
        /// What it can do.
        known: Vec<String>,
    },
    /// No such point on that device.
    #[error("{device} has no point {point:?}{}", among(.known))]
    NoSuchPoint {
        /// The device.
        device: String,
        /// The name, shortened.
        point: String,
        /// Its points.
        known: Vec<String>,
    },
    /// `write` to a point that cannot be written.
    #[error("{device}/{point} cannot be written")]
    ReadOnly {
        /// The device.
        device: String,
        /// The point.
        point: String,
    },
    /// A value is needed.
    #[error("{device} {action} takes a value")]
    NoValue {
        /// The device.
        device: String,
        /// The action.
        action: String,
    },
    /// A point or a value was given where none is taken: it would be dropped in silence.
    #[error("{device} {action} takes no {what}")]
    Surplus {
        /// The device.
        device: String,
        /// The action.
        action: String,
        /// `point` or `value`.
        what: &'static str,
    },
    /// The value does not fit the point.
    #[error("{device}: {why}")]
    Value {
        /// The device.
        device: String,
        /// Why it does not fit.
        why: ValueError,
    },
}

/// Most names that a message lists.
pub const KNOWN_MAX: usize = 12;

fn among(known: &[String]) -> String {
    match known {
        [] => String::new(),
        some => format!("; there are {}", some.join(", ")),
    }
}

impl PlanError {
    /// A short stable word for scripts.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            PlanError::Shape(_) => "bad_input",
            PlanError::NoSuchDevice { .. } => "no_such_device",
            PlanError::NoSuchAction { .. } => "no_such_action",
            PlanError::NoSuchPoint { .. } => "no_such_point",
            PlanError::ReadOnly { .. } => "read_only",
            PlanError::NoValue { .. } => "no_value",
            PlanError::Surplus { .. } => "bad_input",
            PlanError::Value { why: ValueError::OutOfRange { .. }, .. } => "out_of_range",
            PlanError::Value { why: ValueError::NotFinite { .. }, .. } => "not_finite",
            PlanError::Value { why: ValueError::WrongKind { .. }, .. } => "wrong_kind",
            PlanError::Value { why: ValueError::NoSuchLabel { .. }, .. } => "no_such_value",
        }
    }
}

impl Call {
    /// Reads the input of the tool. Unknown keys are refused: a misspelt `value` must not become a read.
    ///
    /// # Errors
    /// [`PlanError::Shape`].
    pub fn parse(input: &Value) -> Result<Call, PlanError> {
        let shape = PlanError::Shape;
        let object = input.as_object().ok_or(shape("the input is not an object"))?;
        if object.keys().any(|key| !matches!(key.as_str(), "device" | "action" | "point" | "value")) {
            return Err(shape("the input has a key besides device, action, point and value"));
        }
        let text = |key: &str, missing| object.get(key).and_then(Value::as_str).ok_or(shape(missing));
        let point = match object.get("point") {
            None => None,
            Some(Value::String(point)) => Some(point.clone()),
            Some(_) => return Err(shape("point is not a text")),
        };
        Ok(Call {
            device: text("device", "device is not a text")?.to_owned(),
            action: text("action", "action is not a text")?.to_owned(),
            point,
            value: object.get("value").cloned(),
        })
    }
}

impl Plan {
    /// Whether it writes nothing.
    #[must_use]
    pub fn is_read(&self) -> bool {
        self.steps.iter().all(|step| matches!(step, Step::Read(_)))
    }
}

impl Devices {
    /// What a call comes to.
    ///
    /// # Errors
    /// When it names something that is not there, or a value that does not fit.
    pub fn plan(&self, call: &Call) -> Result<Plan, PlanError> {
        let device = self.get(&call.device).ok_or_else(|| self.no_such_device(&call.device))?;
        let mut plan = Plan {
            device: device.name.clone(),
            action: call.action.clone(),
            bus: device.bus.clone(),
            risk: Risk::Read,
            protective: false,
            touches: BTreeSet::from([device.name.clone()]),
            steps: Vec::new(),
            guard: Vec::new(),
        };
        match call.action.as_str() {
            READ => {
                self.takes_no(call, "value", call.value.is_some())?;
                let points = match &call.point {
                    None => device.points.values().cloned().collect(),
                    Some(name) => vec![point_of(device, name)?],
                };
                plan.steps = spans(device.unit, points).into_iter().map(Step::Read).collect();
            }
            WRITE => {
                let name = call.point.as_deref().ok_or(PlanError::Shape("write takes a point"))?;
                let point = point_of(device, name)?;
                plan.risk = self.write_risk(device, &point);
                plan.steps = vec![Step::Write(put(device, &point, wanted(call)?)?)];
            }
            name => {
                let action = device.actions.get(name).ok_or_else(|| no_such_action(device, name))?;
                self.takes_no(call, "point", call.point.is_some())?;
                plan.risk = action.risk;
                plan.protective = action.protective;
                let takes_value = match &action.does {
                    Does::Reads(points) => {
                        let points = points.iter().map(|name| point_of(device, name)).collect::<Result<_, _>>()?;
                        plan.steps = spans(device.unit, points).into_iter().map(Step::Read).collect();
                        false
                    }
                    Does::Writes(writes) => {
                        for write in writes {
                            let target = match &write.device {
                                None => device,
                                Some(name) => self.get(name).ok_or_else(|| self.no_such_device(name))?,
                            };
                            let point = point_of(target, &write.point)?;
                            let value = match &write.value {
                                None => wanted(call)?,
                                Some(value) => value,
                            };
                            plan.touches.insert(target.name.clone());
                            plan.steps.push(Step::Write(put(target, &point, value)?));
                        }
                        writes.iter().any(|write| write.value.is_none())
                    }
                };
                self.takes_no(call, "value", call.value.is_some() && !takes_value)?;
            }
        }
        plan.guard = self.interlocks.guard(&plan);
        Ok(plan)
    }

    fn takes_no(&self, call: &Call, what: &'static str, given: bool) -> Result<(), PlanError> {
        if given {
            Err(PlanError::Surplus { device: call.device.clone(), action: call.action.clone(), what })
        } else {
            Ok(())
        }
    }

    fn no_such_device(&self, name: &str) -> PlanError {
        let kind = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '-');
        let like = self.of_kind(kind).map(|device| device.name.clone()).take(KNOWN_MAX).collect::<Vec<_>>();
        let known = if like.is_empty() {
            let kinds = self.iter().map(|device| device.kind.clone()).collect::<BTreeSet<_>>();
            kinds.into_iter().take(KNOWN_MAX).map(|kind| format!("{kind}-…")).collect()
        } else {
            like
        };
        PlanError::NoSuchDevice { device: short(name), known }
    }
}

fn short(name: &str) -> String {
    name.chars().take(super::table::NAME_LEN_MAX).collect()
}

fn no_such_action(device: &Device, name: &str) -> PlanError {
    let known = [READ, WRITE].into_iter().map(str::to_owned).chain(device.actions.keys().cloned()).collect();
    PlanError::NoSuchAction { device: device.name.clone(), action: short(name), known }
}

fn point_of(device: &Device, name: &str) -> Result<Arc<Point>, PlanError> {
    device.points.get(name).cloned().ok_or_else(|| PlanError::NoSuchPoint {
        device: device.name.clone(),
        point: short(name),
        known: device.points.keys().cloned().collect(),
    })
}

fn wanted(call: &Call) -> Result<&Value, PlanError> {
    let missing = || PlanError::NoValue { device: call.device.clone(), action: call.action.clone() };
    call.value.as_ref().ok_or_else(missing)
}

fn put(device: &Device, point: &Arc<Point>, value: &Value) -> Result<Put, PlanError> {
    if !point.writable {
        return Err(PlanError::ReadOnly { device: device.name.clone(), point: point.name.clone() });
    }
    let raw = point
        .meant(value)
        .and_then(|value| point.encode(value))
        .map_err(|why| PlanError::Value { device: device.name.clone(), why })?;
    Ok(Put { device: device.name.clone(), unit: device.unit, point: Arc::clone(point), raw })
}

impl Span {
    /// What `answer`, the answer to this read, holds for one of its points.
    ///
    /// # Errors
    /// When the registers are no value of it.
    pub fn reading(&self, point: &Point, answer: &[u16]) -> Result<Reading, RawError> {
        let words = self.words(point, answer);
        match point.repr {
            Repr::Bit => words.first().map(|bit| Reading::Bit(*bit != 0)).ok_or_else(|| RawError::Shape {
                point: point.name.clone(),
                wanted: 1,
                table: point.table.word(),
            }),
            Repr::BitOf(_) | Repr::U16 | Repr::I16 | Repr::U32 | Repr::I32 | Repr::F32 => point.decode_words(words),
        }
    }

    /// The part of `answer` that is this point's.
    #[must_use]
    pub fn words<'a>(&self, point: &Point, answer: &'a [u16]) -> &'a [u16] {
        let from = usize::from(point.address.saturating_sub(self.address));
        answer.get(from..from + usize::from(point.repr.addresses())).unwrap_or_default()
    }
}

/// As few reads as the points allow. Only addresses that belong to a point are asked for: a gap may not be readable.
#[must_use]
pub fn spans(unit: u8, mut points: Vec<Arc<Point>>) -> Vec<Span> {
    points.sort_by_key(|point| (point.table, point.address));
    let mut spans: Vec<Span> = Vec::new();
    for point in points {
        let len_max = if point.table.is_bits() { READ_BITS_MAX } else { READ_REGISTERS_MAX };
        let end = u32::from(point.address) + u32::from(point.repr.addresses());
        match spans.last_mut() {
            Some(span)
                if span.table == point.table
                    && u32::from(point.address) <= u32::from(span.address) + u32::from(span.count)
                    && end - u32::from(span.address) <= u32::from(len_max) =>
            {
                // The difference is at most len_max.
                let count = u16::try_from(end - u32::from(span.address)).unwrap_or(len_max);
                span.count = span.count.max(count);
                span.points.push(point);
            }
            Some(_) | None => spans.push(Span {
                unit,
                table: point.table,
                address: point.address,
                count: point.repr.addresses(),
                points: vec![point],
            }),
        }
    }
    spans
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::device::table::{Action, Bus, Link, Write};

    fn device(name: &str, unit: u8, points: Vec<Point>, actions: Vec<Action>) -> Device {
        Device {
            name: name.to_owned(),
            kind: "pump".to_owned(),
            number: None,
            zone: None,
            title: String::new(),
            bus: "b".to_owned(),
            unit,
            points: points.into_iter().map(|point| (point.name.clone(), Arc::new(point))).collect(),
            actions: actions.into_iter().map(|action| (action.name.clone(), action)).collect(),
        }
    }

    fn put(device: Option<&str>, point: &str, value: Option<Value>) -> Write {
        Write { device: device.map(str::to_owned), point: point.to_owned(), value }
    }

    fn plant() -> Devices {
        let action = |name: &str, risk, protective, writes| Action {
            name: name.to_owned(),
            risk,
            protective,
            inverse: None,
            does: Does::Writes(writes),
        };
        let one = device(
            "one",
            1,
            vec![
                Point::plain("run", Table::Coil, 0, Repr::Bit),
                Point::plain("set", Table::Holding, 0, Repr::U16),
                Point::plain("a", Table::Input, 0, Repr::U16),
                Point::plain("b", Table::Input, 1, Repr::F32),
                Point::plain("c", Table::Input, 3, Repr::BitOf(0)),
                Point::plain("d", Table::Input, 3, Repr::BitOf(9)),
                Point::plain("far", Table::Input, 5, Repr::I16),
            ],
            vec![action("stop", Risk::Dangerous, true, vec![put(None, "run", Some(json!(false)))])],
        );
        let swap = vec![put(None, "run", Some(json!(true))), put(Some("one"), "set", None)];
        let run = Point::plain("run", Table::Coil, 0, Repr::Bit);
        let two = device("two", 2, vec![run], vec![action("swap", Risk::Operate, false, swap)]);
        let long = (0..300).map(|at| Point::plain(&format!("p{at}"), Table::Holding, at, Repr::U16)).collect();
        let link = Link::Tcp { host: "h".to_owned(), port: 502 };
        let bus = Bus { name: "b".to_owned(), link, timeout: Duration::from_secs(1) };
        Devices::new(vec![bus], vec![one, two, device("long", 3, long, Vec::new())]).expect("a good table")
    }

    /// Touched devices, risk, protective, steps.
    type Short<'a> = (&'a [&'a str], Risk, bool, &'a [&'a str]);

    /// Touched devices, risk, protective, and the steps in short: `table address+count` and `unit point raw`.
    #[track_caller]
    fn check(input: Value, expected: Result<Short<'_>, &str>) {
        let plan = Call::parse(&input).and_then(|call| plant().plan(&call));
        let found = plan.map(|plan| {
            let steps = plan.steps.iter().map(|step| match step {
                Step::Read(span) => format!("{} {}+{}", span.table, span.address, span.count),
                Step::Write(put) => format!("{} {} {:?}", put.unit, put.point.name, put.raw),
            });
            let steps = steps.collect::<Vec<_>>();
            (plan.touches.into_iter().collect::<Vec<_>>(), plan.risk, plan.protective, steps)
        });
        let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let expected =
            expected.map(|(touches, risk, protective, steps)| (owned(touches), risk, protective, owned(steps)));
        assert_eq!(found.map_err(|error| error.code().to_owned()), expected.map_err(str::to_owned), "{input}");
    }

    #[test]
    fn reads_ask_for_neighbours_together_and_for_no_gap() {
        let all = ["coil 0+1", "holding 0+1", "input 0+4", "input 5+1"];
        check(json!({"device": "one", "action": "read"}), Ok((&["one"], Risk::Read, false, &all)));
        let one = json!({"device": "one", "action": "read", "point": "b"});
        check(one, Ok((&["one"], Risk::Read, false, &["input 1+2"])));
        // 125 registers are the most that one request may ask for.
        let long = ["holding 0+125", "holding 125+125", "holding 250+50"];
        check(json!({"device": "long", "action": "read"}), Ok((&["long"], Risk::Read, false, &long)));
    }

    #[test]
    fn a_write_is_as_risky_as_the_worst_action_on_its_point() {
        let run = json!({"device": "one", "action": "write", "point": "run", "value": true});
        check(run, Ok((&["one"], Risk::Dangerous, false, &["1 run Bit(true)"])));
        let set = json!({"device": "one", "action": "write", "point": "set", "value": 3});
        check(set, Ok((&["one"], Risk::Operate, false, &["1 set Word(3)"])));
        let stop = json!({"device": "one", "action": "stop"});
        check(stop, Ok((&["one"], Risk::Dangerous, true, &["1 run Bit(false)"])));
    }

    #[test]
    fn an_action_may_reach_another_device_and_says_so() {
        let swap = json!({"device": "two", "action": "swap", "value": 9});
        check(swap, Ok((&["one", "two"], Risk::Operate, false, &["2 run Bit(true)", "1 set Word(9)"])));
    }

    #[test]
    fn what_is_not_a_call_comes_to_nothing() {
        for (input, code) in [
            (json!([]), "bad_input"),
            (json!({"device": "one"}), "bad_input"),
            (json!({"device": "one", "action": "read", "point": 3}), "bad_input"),
            (json!({"device": "one", "action": "read", "valeu": 3}), "bad_input"),
            (json!({"device": "one", "action": "read", "value": 3}), "bad_input"),
            (json!({"device": "one", "action": "stop", "value": 3}), "bad_input"),
            (json!({"device": "one", "action": "stop", "point": "run"}), "bad_input"),
            (json!({"device": "one", "action": "write", "value": 3}), "bad_input"),
            (json!({"device": "one", "action": "write", "point": "set"}), "no_value"),
            (json!({"device": "two", "action": "swap"}), "no_value"),
            (json!({"device": "six", "action": "read"}), "no_such_device"),
            (json!({"device": "one", "action": "melt"}), "no_such_action"),
            (json!({"device": "one", "action": "read", "point": "z"}), "no_such_point"),
            (json!({"device": "one", "action": "write", "point": "a", "value": 1}), "read_only"),
            (json!({"device": "one", "action": "write", "point": "set", "value": 65_536}), "out_of_range"),
            (json!({"device": "one", "action": "write", "point": "set", "value": true}), "wrong_kind"),
            (json!({"device": "one", "action": "write", "point": "run", "value": 2}), "wrong_kind"),
        ] {
            check(input, Err(code));
        }
    }
}

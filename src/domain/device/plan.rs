//! What a call on a device comes to: reads and writes on one bus, in their order.
//!
//! Pure, and made before anything is asked or sent: the gate takes risk and touched devices from the same plan that
//! the bus carries out, so that the two cannot differ.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;
use thiserror::Error;

use super::codec::{Raw, ValueError};
use super::point::{Point, Risk, Table};
use super::table::{Device, Devices, Does, READ, WRITE};

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
        };
        match call.action.as_str() {
            READ => {
                self.takes_no(call, "value", call.value.is_some())?;
                let points = match &call.point {
                    None => device.points.values().cloned().collect(),
                    Some(name) => vec![point_of(device, name)?],
                };
                plan.steps = spans(device.unit, points);
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
                        plan.steps = spans(device.unit, points);
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

/// As few reads as the points allow. Only addresses that belong to a point are asked for: a gap may not be readable.
fn spans(unit: u8, mut points: Vec<Arc<Point>>) -> Vec<Step> {
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
    spans.into_iter().map(Step::Read).collect()
}

//! `device`: reads a device, writes one of its points, or has it do one of its actions.
//!
//! What a call comes to is planned by the domain, with names, ranges and risk; a bus carries the plan out; this module
//! says in one [`Report`] how it ended. The line between `Failed` and `Lost` is drawn here and nowhere else:
//!
//! | what happened | a read | a write |
//! |---|---|---|
//! | nothing was sent (no connection, busy bus) | failed | failed |
//! | the device answered with an exception | failed | failed |
//! | ... "accepted, still working on it" (5), or a gateway heard nothing from the device behind it (11) | failed | lost |
//! | sent, and no answer, or the connection broke, or the answer fits no request | failed | lost |
//! | an earlier write of the same action is there already | - | lost: partial |

use std::sync::Arc;

use interlock_domain::device::codec::{Raw, RawError, Reading};
use interlock_domain::device::plan::{Call, Plan, Put, Span, Step};
use interlock_domain::device::point::{Point, Repr};
use interlock_domain::device::table::{Device, Devices, READ};
use interlock_domain::effect::report::{Loss, Report};
use serde_json::{Map, Value, json};

use super::modbus::{Buses, Ended, Trouble, exception_name};
use super::{About, failed};

/// Stands for every device in the one action `list`.
pub const EVERY: &str = "*";

/// What a caller is told about `device`.
pub const ABOUT: About = About {
    name: "device",
    title: ["Read or operate a device", "读取或操作设备"],
    description: [
        "Reads a device (action \"read\", one point or all), writes one of its points (action \"write\"), or has it do \
         one of its own actions (\"start\", \"stop\", \"open\", …). Names as in the list of devices: pump-2, valve-3.",
        "读取设备（action 为 \"read\"，单个测点或全部）、写入一个测点（action 为 \"write\"），\
         或执行设备自己的动作（\"start\"、\"stop\"、\"open\" 等）。设备名如 pump-2、valve-3。",
    ],
    input,
    output,
};

fn input() -> Value {
    json!({
        "type": "object",
        "properties": {
            "device": { "type": "string", "minLength": 1, "maxLength": 64, "description": "its name: pump-2" },
            "action": { "type": "string", "minLength": 1, "maxLength": 64, "description": "read, write, or an action of the device" },
            "point": { "type": "string", "minLength": 1, "maxLength": 64, "description": "for read and write" },
            "value": { "type": ["number", "boolean", "string"], "description": "for write and actions that take one; a text is the name of a value" },
        },
        "required": ["device", "action"],
        "additionalProperties": false,
    })
}

fn output() -> Value {
    let point = json!({
        "device": { "type": "string" },
        "point": { "type": "string" },
        "value": { "type": ["number", "boolean", "null"] },
        "unit": { "type": ["string", "integer"], "description": "the unit of the value; in a list, the Modbus unit" },
        "label": { "type": "string", "description": "what the number stands for" },
        "raw": { "type": "array", "items": { "type": "integer" }, "description": "the registers" },
        "fault": { "type": "string", "description": "why there is no value" },
    });
    let mut properties = point.clone();
    if let Value::Object(properties) = &mut properties {
        properties.insert("action".to_owned(), json!({ "type": "string" }));
        properties.insert(
            "points".to_owned(),
            json!({ "type": "array", "items": { "type": "object", "properties": point, "required": ["device", "point", "value", "unit"] } }),
        );
    }
    json!({ "type": "object", "properties": properties, "required": ["device", "action"] })
}

/// The tool with the devices and the buses that it acts on.
#[derive(Debug)]
pub struct DeviceTool {
    devices: Arc<Devices>,
    buses: Buses,
}

impl DeviceTool {
    /// Starts an owner for each bus; they end when this is dropped.
    #[must_use]
    pub fn new(devices: Arc<Devices>) -> DeviceTool {
        let buses = Buses::start(&devices);
        DeviceTool { devices, buses }
    }

    /// Carries out one call.
    pub async fn run(&self, input: &Value) -> Report {
        if input["device"] == EVERY && input["action"] == "list" {
            let points = list(&self.devices, &self.buses).await;
            return Report::Done(json!({ "device": EVERY, "action": "list", "points": points }));
        }
        run(&self.devices, &self.buses, input).await
    }
}

/// Carries out one call of the tool.
async fn run(devices: &Devices, buses: &Buses, input: &Value) -> Report {
    let plan = match Call::parse(input).and_then(|call| devices.plan(&call)) {
        Ok(plan) => plan,
        Err(error) => return failed(error.code(), error.to_string()),
    };
    let ended = buses.carry_out(&plan).await;
    report(&plan, ended)
}

fn report(plan: &Plan, ended: Ended) -> Report {
    match ended.trouble {
        None => done(plan, &ended.answers),
        Some(trouble) => not_done(plan, ended.answers.len(), trouble),
    }
}

fn done(plan: &Plan, answers: &[Vec<u16>]) -> Report {
    let mut points = Vec::new();
    for (step, answer) in plan.steps.iter().zip(answers) {
        match step {
            Step::Read(span) => {
                points.extend(span.points.iter().map(|point| read_out(&plan.device, span, point, answer)))
            }
            Step::Write(put) => points.push(written_out(put)),
        }
    }
    let mut out = Map::new();
    out.insert("device".to_owned(), Value::from(plan.device.as_str()));
    out.insert("action".to_owned(), Value::from(plan.action.as_str()));
    if let [only] = points.as_slice() {
        if let Some(fault) = only.get("fault").and_then(Value::as_str) {
            return failed("not_a_number", format!("{}: {fault}", plan.device));
        }
        // A point of another device keeps its name: the device of the call stands above it.
        let own = only.iter().filter(|(key, _)| *key != "device").map(|(key, value)| (key.clone(), value.clone()));
        out.extend(own);
    } else {
        points.sort_by(|a, b| a.get("point").and_then(Value::as_str).cmp(&b.get("point").and_then(Value::as_str)));
        out.insert("points".to_owned(), points.into_iter().map(Value::Object).collect());
    }
    Report::Done(Value::Object(out))
}

/// What lies in `answer` for one point of the span.
fn read_out(device: &str, span: &Span, point: &Point, answer: &[u16]) -> Map<String, Value> {
    told(device, point, span.reading(point, answer), span.words(point, answer))
}

/// What was written, as the registers hold it: after rounding.
fn written_out(put: &Put) -> Map<String, Value> {
    let words = match put.raw {
        Raw::Bit(_) | Raw::BitOf(..) => Vec::new(),
        Raw::Word(word) => vec![word],
        Raw::Pair(pair) => pair.to_vec(),
    };
    told(&put.device, &put.point, put.point.decode(put.raw), &words)
}

fn told(device: &str, point: &Point, reading: Result<Reading, RawError>, words: &[u16]) -> Map<String, Value> {
    let mut out = Map::new();
    out.insert("device".to_owned(), Value::from(device));
    out.insert("point".to_owned(), Value::from(point.name.as_str()));
    out.insert("unit".to_owned(), Value::from(point.unit.as_str()));
    match reading {
        Ok(reading) => {
            out.insert("value".to_owned(), reading.json());
            if let Some(label) = point.label(reading.number()) {
                out.insert("label".to_owned(), Value::from(label));
            }
            if !point.repr.is_bit() {
                out.insert("raw".to_owned(), Value::from(words));
            }
        }
        Err(error) => {
            out.insert("value".to_owned(), Value::Null);
            out.insert("fault".to_owned(), Value::from(error.to_string()));
        }
    }
    out
}

fn not_done(plan: &Plan, at: usize, trouble: Trouble) -> Report {
    let step = plan.steps.get(at);
    let writes = matches!(step, Some(Step::Write(_)));
    let (place, unit) = match step {
        Some(Step::Read(span)) => (plan.device.clone(), span.unit),
        Some(Step::Write(put)) => (format!("{}/{}", put.device, put.point.name), put.unit),
        None => (plan.device.clone(), 0),
    };
    let place = format!("{place} (bus {}, unit {unit})", plan.bus);
    let ending = match trouble {
        Trouble::NotSent { code, text } => failed(code, format!("{place}: nothing was sent: {text}")),
        Trouble::Exception(code) => exception(&place, code, writes),
        Trouble::NoAnswer if writes => Report::Lost(Loss::TimedOut),
        Trouble::NoAnswer => failed("timed_out", format!("{place}: no answer in time")),
        Trouble::Broken(_) | Trouble::Nonsense(_) if writes => Report::Lost(Loss::ConnectionLost),
        Trouble::Broken(text) => failed("connection_lost", format!("{place}: {text}")),
        Trouble::Nonsense(text) => failed("bad_answer", format!("{place}: {text}")),
        Trouble::Panicked(text) if plan.is_read() => failed("panicked", format!("{place}: {text}")),
        Trouble::Panicked(text) => Report::Lost(Loss::Panicked(text)),
        Trouble::Stopped if plan.is_read() => failed("bus_stopped", format!("{place}: the bus was stopped")),
        Trouble::Stopped => Report::Lost(Loss::Stopped),
    };
    let there = plan.steps.iter().take(at).filter_map(|step| match step {
        Step::Write(put) => Some(format!("{}/{}", put.device, put.point.name)),
        Step::Read(_) => None,
    });
    let there = there.collect::<Vec<_>>();
    if there.is_empty() {
        return ending;
    }
    let then = match ending {
        Report::Failed(failure) => failure.message,
        Report::Lost(Loss::TimedOut) => format!("{place}: no answer in time"),
        Report::Lost(_) | Report::Done(_) => format!("{place}: the connection broke"),
    };
    Report::Lost(Loss::Partial(format!("written: {}; not, or not for certain: {then}", there.join(", "))))
}

fn exception(place: &str, code: u8, writes: bool) -> Report {
    let word = match code {
        1 => "illegal_function",
        2 => "illegal_address",
        3 => "illegal_value",
        4 => "device_failure",
        5 if writes => return Report::Lost(Loss::TimedOut),
        5 => "still_working",
        6 => "device_busy",
        8 => "memory_parity",
        10 => "gateway_path",
        11 if writes => return Report::Lost(Loss::TimedOut),
        11 => "gateway_no_answer",
        _ => "exception",
    };
    failed(word, format!("{place}: the device refused: {} (Modbus exception {code})", exception_name(code)))
}

/// A row for each point of each device, with its value now: what `device list` shows. A bus that cannot be reached is
/// tried once, and so is a unit that does not answer; the rows behind it say so in `error`.
pub async fn list(devices: &Devices, buses: &Buses) -> Vec<Value> {
    let mut rows = Vec::new();
    let mut silent: Vec<(String, Option<u8>, String)> = Vec::new();
    for device in devices.iter() {
        let known = silent.iter().find(|(bus, unit, _)| *bus == device.bus && unit.is_none_or(|it| it == device.unit));
        let known = known.map(|(_, _, error)| error.clone());
        let state = match known {
            Some(error) => Err(error),
            None => state(devices, buses, device).await.map_err(|(whole_bus, error)| {
                silent.push((device.bus.clone(), (!whole_bus).then_some(device.unit), error.clone()));
                error
            }),
        };
        let bus = devices.bus(&device.bus).map(|bus| bus.link.to_string()).unwrap_or_default();
        for point in device.points.values() {
            rows.push(row(device, point, &bus, state.as_deref().map_err(String::as_str)));
        }
    }
    rows
}

/// All points, or whether the whole bus is out of reach, and why.
async fn state(devices: &Devices, buses: &Buses, device: &Device) -> Result<Vec<Map<String, Value>>, (bool, String)> {
    let call = Call { device: device.name.clone(), action: READ.to_owned(), point: None, value: None };
    let plan = devices.plan(&call).map_err(|error| (false, error.to_string()))?;
    let ended = buses.carry_out(&plan).await;
    match ended.trouble {
        Some(Trouble::NotSent { text, .. }) => Err((true, text)),
        Some(trouble) => match not_done(&plan, ended.answers.len(), trouble) {
            Report::Failed(failure) => Err((false, failure.message)),
            Report::Lost(_) | Report::Done(_) => Err((false, "no value".to_owned())),
        },
        None => {
            let spans = plan.steps.iter().zip(&ended.answers).filter_map(|(step, answer)| match step {
                Step::Read(span) => Some((span, answer)),
                Step::Write(_) => None,
            });
            Ok(spans
                .flat_map(|(span, answer)| span.points.iter().map(|point| read_out(&device.name, span, point, answer)))
                .collect())
        }
    }
}

fn row(device: &Device, point: &Point, bus: &str, state: Result<&[Map<String, Value>], &str>) -> Value {
    let mut row = json!({
        "device": device.name,
        "point": point.name,
        "bus": bus,
        "unit": device.unit,
        "kind": point.table.word(),
        "address": point.address,
        "scale": point.scale,
        "offset": point.offset,
        "type": point.repr.word(),
        "measure": point.unit,
        "writable": point.writable,
        "value": null,
    });
    let Value::Object(fields) = &mut row else { return row };
    if let Repr::BitOf(bit) = point.repr {
        fields.insert("bit".to_owned(), Value::from(bit));
    }
    for (key, text) in [("title", Some(device.title.as_str())), ("zone", device.zone.as_deref())] {
        if let Some(text) = text.filter(|text| !text.is_empty()) {
            fields.insert(key.to_owned(), Value::from(text));
        }
    }
    match state {
        Ok(points) => {
            let own = points.iter().find(|found| found.get("point").and_then(Value::as_str) == Some(&point.name));
            for key in ["value", "label", "fault"] {
                if let Some(value) = own.and_then(|own| own.get(key)) {
                    fields.insert(key.to_owned(), value.clone());
                }
            }
        }
        Err(error) => {
            fields.insert("error".to_owned(), Value::from(error));
        }
    }
    row
}

//! `[[bus]]` and `[[device]]`: the names of a plant and the registers behind them.
//!
//! ```toml
//! [[bus]]
//! name = "field"
//! tcp = "192.168.1.20:502"          # or: serial = "/dev/ttyUSB0", baud = 9600, parity = "even"
//! timeout-ms = 1000
//!
//! [[device]]
//! name = "pump-1"                   # its number is 1: the end of its name, or number = 1
//! kind = "pump"
//! bus = "field"
//! unit = 1
//!
//! [device.points]
//! run = { coil = 0 }
//! frequency-set = { holding = 0, scale = 0.01, unit = "Hz", range = [0, 50] }
//! pressure = { input = 3, type = "f32", words = "low-first", unit = "MPa" }
//! fault = { input = 9, bit = 3 }
//! torque-set = { holding = 2, type = "i16", write = "multiple" }   # functions 15 and 16, for devices without 5 and 6
//!
//! [device.actions]
//! start = { writes = [{ point = "run", value = true }] }
//! jog = { writes = [{ point = "jog", value = true }] }           # jog = { coil = 2, pulse = true }: each write counts
//! run-up = { writes = [{ point = "run", value = true }], inverse = "stop", inverse-when = "nobody is at the pump" }
//! set-frequency = { writes = [{ point = "frequency-set" }] }      # without a value: the caller's
//! status = { reads = ["fault", "pressure"] }
//!
//! [[device]]
//! name = "pump-2"
//! like = "pump-1"                   # the same wiring,
//! shift = 16                        # 16 addresses further in every table
//! ```
//!
//! This module reads and points at mistakes; what a table may hold is decided by `domain::device::table`.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use interlock_domain::device::check::{Place, Refused, Why};
use interlock_domain::device::point::{ByteOrder, Point, Repr, Table, WordOrder, WriteBy};
use interlock_domain::device::table::{Action, Bus, Device, Devices, Does, Inverse, Link, Parity, Write};
use interlock_domain::risk::Risk;
use serde::Deserialize;
use toml::Spanned;

use super::ConfigError;

/// A request that is not answered after this time is given up. A PLC answers in 5 to 50 ms, a slow one behind a
/// gateway in 300; a person waits a second without asking what happened.
pub const TIMEOUT_DEFAULT: Duration = Duration::from_millis(1000);

/// The port of Modbus TCP.
const PORT: u16 = 502;

/// Reads and checks the `[[bus]]` and `[[device]]` tables of `text`; other tables are not looked at. `file` is its
/// name in messages.
///
/// # Errors
/// With the first mistake, its line and its key.
pub fn parse(text: &str, file: &Path) -> Result<Devices, ConfigError> {
    let wire: File = toml::from_str(text).map_err(|error| ConfigError::from_toml(file, text, &error))?;
    let source = Source { text, file };
    let buses = wire.bus.iter().map(|bus| source.bus(bus)).collect::<Result<Vec<_>, _>>()?;
    let mut devices: Vec<Device> = Vec::with_capacity(wire.device.len());
    for device in &wire.device {
        let made = source.device(device, &devices)?;
        devices.push(made);
    }
    Devices::new(buses, devices).map_err(|refused| source.refused(&wire, &refused))
}

#[derive(Deserialize)]
struct File {
    #[serde(default)]
    bus: Vec<Spanned<BusTable>>,
    #[serde(default)]
    device: Vec<Spanned<DeviceTable>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct BusTable {
    name: Spanned<String>,
    tcp: Option<Spanned<String>>,
    serial: Option<Spanned<String>>,
    baud: Option<Spanned<u32>>,
    parity: Option<Spanned<String>>,
    stop_bits: Option<Spanned<u8>>,
    timeout_ms: Option<Spanned<u64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct DeviceTable {
    name: Spanned<String>,
    kind: Option<Spanned<String>>,
    number: Option<Spanned<u32>>,
    zone: Option<Spanned<String>>,
    title: Option<String>,
    bus: Option<Spanned<String>>,
    unit: Option<Spanned<u8>>,
    like: Option<Spanned<String>>,
    shift: Option<Spanned<u16>>,
    points: Option<BTreeMap<Spanned<String>, Spanned<PointTable>>>,
    actions: Option<BTreeMap<Spanned<String>, Spanned<ActionTable>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct PointTable {
    coil: Option<u16>,
    discrete: Option<u16>,
    holding: Option<u16>,
    input: Option<u16>,
    bit: Option<Spanned<u8>>,
    r#type: Option<Spanned<String>>,
    bytes: Option<Spanned<String>>,
    words: Option<Spanned<String>>,
    scale: Option<f64>,
    offset: Option<f64>,
    unit: Option<String>,
    range: Option<[f64; 2]>,
    labels: Option<BTreeMap<String, f64>>,
    access: Option<Spanned<String>>,
    write: Option<Spanned<String>>,
    #[serde(default)]
    pulse: bool,
    risk: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct ActionTable {
    risk: Option<Spanned<String>>,
    #[serde(default)]
    protective: bool,
    inverse: Option<String>,
    inverse_when: Option<String>,
    inverse_within_s: Option<u64>,
    writes: Option<Vec<WriteTable>>,
    reads: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct WriteTable {
    device: Option<String>,
    point: String,
    value: Option<serde_json::Value>,
}

struct Source<'a> {
    text: &'a str,
    file: &'a Path,
}

impl Source<'_> {
    fn error(&self, span: Range<usize>, message: impl Into<String>) -> ConfigError {
        ConfigError::at(self.file, self.text, span, message)
    }

    fn bus(&self, table: &Spanned<BusTable>) -> Result<Bus, ConfigError> {
        let bus = table.get_ref();
        let link = match (&bus.tcp, &bus.serial) {
            (Some(tcp), None) => self.tcp(bus, tcp)?,
            (None, Some(path)) => self.serial(bus, path)?,
            (Some(_), Some(second)) => {
                return Err(self
                    .error(second.span(), "a bus has tcp or serial, not both")
                    .hint("write a second [[bus]] for the other wire"));
            }
            (None, None) => {
                return Err(self
                    .error(bus.name.span(), format!("bus {} has no wire", bus.name.get_ref()))
                    .hint("add tcp = \"HOST:502\", or serial = \"/dev/ttyUSB0\""));
            }
        };
        let timeout =
            bus.timeout_ms.as_ref().map_or(TIMEOUT_DEFAULT, |millis| Duration::from_millis(*millis.get_ref()));
        Ok(Bus { name: bus.name.get_ref().clone(), link, timeout })
    }

    fn tcp(&self, bus: &BusTable, tcp: &Spanned<String>) -> Result<Link, ConfigError> {
        let serial_only = [
            bus.baud.as_ref().map(|key| (key.span(), "baud")),
            bus.parity.as_ref().map(|key| (key.span(), "parity")),
            bus.stop_bits.as_ref().map(|key| (key.span(), "stop-bits")),
        ];
        if let Some((span, key)) = serial_only.into_iter().flatten().next() {
            return Err(self.error(span, format!("{key} belongs to a serial bus, this one is tcp")));
        }
        let address = tcp.get_ref();
        let bad = || {
            self.error(tcp.span(), format!("{address:?} is not an address"))
                .hint("write HOST:PORT, 192.168.1.20:502 or [fd00::20]:502")
        };
        let (host, port) = match address.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, "")) => (host, None),
            Some((host, port)) => (host, Some(port.strip_prefix(':').ok_or_else(bad)?)),
            None => address.split_once(':').map_or((address.as_str(), None), |(host, port)| (host, Some(port))),
        };
        let port = port.map_or(Ok(PORT), str::parse).map_err(|_| bad())?;
        if host.is_empty() || host.contains(char::is_whitespace) || port == 0 {
            return Err(bad());
        }
        Ok(Link::Tcp { host: host.to_owned(), port })
    }

    fn serial(&self, bus: &BusTable, path: &Spanned<String>) -> Result<Link, ConfigError> {
        let baud = bus.baud.as_ref().map_or(9600, |baud| *baud.get_ref());
        if let Some(key) = &bus.baud
            && !(300..=4_000_000).contains(&baud)
        {
            return Err(self.error(key.span(), format!("{baud} baud is not 300 to 4000000")));
        }
        let parity = match bus.parity.as_ref().map(|key| (key, key.get_ref().as_str())) {
            None | Some((_, "even")) => Parity::Even,
            Some((_, "odd")) => Parity::Odd,
            Some((_, "none")) => Parity::None,
            Some((key, word)) => {
                return Err(self.error(key.span(), format!("parity {word:?} is not even, odd or none")));
            }
        };
        let stop_bits = bus.stop_bits.as_ref().map_or(1, |bits| *bits.get_ref());
        if let Some(key) = &bus.stop_bits
            && !(1..=2).contains(&stop_bits)
        {
            return Err(self.error(key.span(), format!("stop-bits {stop_bits} is not 1 or 2")));
        }
        Ok(Link::Serial { path: path.get_ref().clone(), baud, parity, stop_bits })
    }

    fn device(&self, table: &Spanned<DeviceTable>, before: &[Device]) -> Result<Device, ConfigError> {
        let wire = table.get_ref();
        let name = wire.name.get_ref();
        let model = match &wire.like {
            None => None,
            Some(like) => Some(before.iter().find(|device| device.name == *like.get_ref()).ok_or_else(|| {
                self.error(like.span(), format!("{name} is like {:?}, which is not there", like.get_ref()))
                    .hint("the device that another one is like stands above it in the file")
            })?),
        };
        let shift = wire.shift.as_ref().map_or(0, |shift| *shift.get_ref());
        if let (None, Some(key)) = (model, &wire.shift) {
            return Err(self.error(key.span(), "shift belongs to a device that is like another one"));
        }
        let needed = |key: &'static str, found: Option<String>| {
            found.ok_or_else(|| self.error(wire.name.span(), format!("{name} has no {key}")))
        };
        let text = |key: &Option<Spanned<String>>| key.as_ref().map(|key| key.get_ref().clone());
        let kind = needed("kind", text(&wire.kind).or_else(|| model.map(|model| model.kind.clone())))?;
        let bus = needed("bus", text(&wire.bus).or_else(|| model.map(|model| model.bus.clone())))?;
        let unit = wire.unit.as_ref().map(|unit| *unit.get_ref()).or_else(|| model.map(|model| model.unit));
        let unit = unit.ok_or_else(|| self.error(wire.name.span(), format!("{name} has no unit")))?;
        let number = match &wire.number {
            Some(number) => Some(*number.get_ref()),
            None => name.strip_prefix(&kind).and_then(|rest| rest.strip_prefix('-')).and_then(|end| end.parse().ok()),
        };
        let mut points = match model {
            None => BTreeMap::new(),
            Some(model) => self.shifted(wire, model, shift)?,
        };
        for (key, point) in wire.points.iter().flatten() {
            points.insert(key.get_ref().clone(), Arc::new(self.point(name, key, point)?));
        }
        let mut actions = model.map(|model| model.actions.clone()).unwrap_or_default();
        for (key, action) in wire.actions.iter().flatten() {
            actions.insert(key.get_ref().clone(), self.action(name, key, action)?);
        }
        Ok(Device {
            name: name.clone(),
            kind,
            number,
            zone: text(&wire.zone).or_else(|| model.and_then(|model| model.zone.clone())),
            title: wire.title.clone().unwrap_or_default(),
            bus,
            unit,
            points,
            actions,
        })
    }

    fn shifted(
        &self,
        wire: &DeviceTable,
        model: &Device,
        shift: u16,
    ) -> Result<BTreeMap<String, Arc<Point>>, ConfigError> {
        let moved = |point: &Arc<Point>| {
            let address = point.address.checked_add(shift).ok_or_else(|| {
                let span = wire.shift.as_ref().map_or_else(|| wire.name.span(), Spanned::span);
                self.error(span, format!("{} of {} would lie behind address 65535", point.name, wire.name.get_ref()))
            })?;
            Ok(Arc::new(Point { address, ..Point::clone(point) }))
        };
        model.points.iter().map(|(name, point)| Ok((name.clone(), moved(point)?))).collect()
    }

    fn point(&self, device: &str, key: &Spanned<String>, table: &Spanned<PointTable>) -> Result<Point, ConfigError> {
        let wire = table.get_ref();
        let name = key.get_ref();
        let places = [
            (Table::Coil, wire.coil),
            (Table::Discrete, wire.discrete),
            (Table::Holding, wire.holding),
            (Table::Input, wire.input),
        ];
        let mut places = places.into_iter().filter_map(|(table, address)| Some((table, address?)));
        let (Some((place, address)), None) = (places.next(), places.next()) else {
            return Err(self
                .error(table.span(), format!("{device}, point {name}: it has to lie in one table"))
                .hint("give one of coil, discrete, holding, input, with an address from 0"));
        };
        let repr = match (&wire.bit, &wire.r#type) {
            (Some(bit), None) => Repr::BitOf(*bit.get_ref()),
            (Some(_), Some(key)) => return Err(self.error(key.span(), "a bit of a register has no type")),
            (None, None) if place.is_bits() => Repr::Bit,
            (None, None) => Repr::U16,
            (None, Some(key)) => match key.get_ref().as_str() {
                "u16" => Repr::U16,
                "i16" => Repr::I16,
                "u32" => Repr::U32,
                "i32" => Repr::I32,
                "f32" => Repr::F32,
                word => {
                    return Err(self.error(key.span(), format!("type {word:?} is not u16, i16, u32, i32 or f32")));
                }
            },
        };
        let bytes = match wire.bytes.as_ref().map(|key| (key, key.get_ref().as_str())) {
            None | Some((_, "big")) => ByteOrder::Big,
            Some((_, "little")) => ByteOrder::Little,
            Some((key, word)) => return Err(self.error(key.span(), format!("bytes {word:?} is not big or little"))),
        };
        let words = match wire.words.as_ref().map(|key| (key, key.get_ref().as_str())) {
            None | Some((_, "high-first")) => WordOrder::HighFirst,
            Some((_, "low-first")) => WordOrder::LowFirst,
            Some((key, word)) => {
                return Err(self.error(key.span(), format!("words {word:?} is not high-first or low-first")));
            }
        };
        let writable = match wire.access.as_ref().map(|key| (key, key.get_ref().as_str())) {
            None => place.is_writable(),
            Some((_, "read")) => false,
            Some((_, "write")) => true,
            Some((key, word)) => return Err(self.error(key.span(), format!("access {word:?} is not read or write"))),
        };
        Ok(Point {
            bytes,
            words,
            scale: wire.scale.unwrap_or(1.0),
            offset: wire.offset.unwrap_or(0.0),
            unit: wire.unit.clone().unwrap_or_default(),
            range: wire.range.map(|[min, max]| (min, max)),
            labels: self.labels(table, name)?,
            writable,
            pulse: wire.pulse,
            function: self.function(wire.write.as_ref())?,
            risk: self.risk(wire.risk.as_ref())?.unwrap_or(Risk::Operate),
            ..Point::plain(name, place, address, repr)
        })
    }

    fn function(&self, key: Option<&Spanned<String>>) -> Result<WriteBy, ConfigError> {
        match key.map(|key| (key, key.get_ref().as_str())) {
            None | Some((_, "single")) => Ok(WriteBy::Single),
            Some((_, "multiple")) => Ok(WriteBy::Multiple),
            Some((key, word)) => Err(self.error(key.span(), format!("write {word:?} is not single or multiple"))),
        }
    }

    fn labels(&self, table: &Spanned<PointTable>, name: &str) -> Result<Vec<(String, f64)>, ConfigError> {
        let mut labels: Vec<(String, f64)> = Vec::new();
        for (label, value) in table.get_ref().labels.iter().flatten() {
            if value.fract() != 0.0 || !value.is_finite() {
                return Err(self.error(table.span(), format!("label {label:?} of {name} is not a whole number")));
            }
            if let Some((other, _)) = labels.iter().find(|(_, other)| other == value) {
                return Err(
                    self.error(table.span(), format!("labels {other:?} and {label:?} of {name} are one number"))
                );
            }
            labels.push((label.clone(), *value));
        }
        Ok(labels)
    }

    fn action(&self, device: &str, key: &Spanned<String>, table: &Spanned<ActionTable>) -> Result<Action, ConfigError> {
        let wire = table.get_ref();
        let name = key.get_ref();
        let (does, usual) = match (&wire.reads, &wire.writes) {
            (Some(points), None) => (Does::Reads(points.clone()), Risk::Read),
            (None, Some(writes)) => {
                let writes = writes.iter().map(|write| Write {
                    device: write.device.clone(),
                    point: write.point.clone(),
                    value: write.value.clone(),
                });
                (Does::Writes(writes.collect()), Risk::Operate)
            }
            (Some(_), Some(_)) | (None, None) => {
                return Err(self
                    .error(table.span(), format!("{device}, action {name}: it reads or it writes"))
                    .hint("give reads = [\"point\"], or writes = [{ point = \"run\", value = true }]"));
            }
        };
        let risk = self.risk(wire.risk.as_ref())?.unwrap_or(usual);
        let inverse = match (&wire.inverse, &wire.inverse_when, wire.inverse_within_s) {
            (None, None, None) => None,
            (Some(action), Some(when), window) => {
                let window = window.map(Duration::from_secs);
                Some(Inverse { action: action.clone(), when: when.clone(), window })
            }
            (Some(_), None, _) => {
                return Err(self
                    .error(table.span(), format!("{device}, action {name}: its inverse has no precondition"))
                    .hint("say in inverse-when when it may be taken back: inverse-when = \"the belt is empty\""));
            }
            (None, ..) => {
                return Err(self.error(table.span(), format!("{device}, action {name}: inverse-when without inverse")));
            }
        };
        Ok(Action { name: name.clone(), risk, protective: wire.protective, inverse, does })
    }

    fn risk(&self, key: Option<&Spanned<String>>) -> Result<Option<Risk>, ConfigError> {
        let Some(key) = key else { return Ok(None) };
        match key.get_ref().as_str() {
            "read" => Ok(Some(Risk::Read)),
            "operate" => Ok(Some(Risk::Operate)),
            "dangerous" => Ok(Some(Risk::Dangerous)),
            word => Err(self.error(key.span(), format!("risk {word:?} is not read, operate or dangerous"))),
        }
    }

    /// The place in the file of a mistake that the domain found.
    fn refused(&self, wire: &File, refused: &Refused) -> ConfigError {
        let span = bus_span(wire, refused).or_else(|| device_span(wire, refused)).unwrap_or(0..0);
        let error = self.error(span, refused.to_string());
        match hint(&refused.why) {
            Some(text) => error.hint(text),
            None => error,
        }
    }
}

fn bus_span(wire: &File, refused: &Refused) -> Option<Range<usize>> {
    let about_a_bus = matches!(&refused.why, Why::Twice { what: "bus" } | Why::Timeout { .. });
    let named = |bus: &&Spanned<BusTable>| *bus.get_ref().name.get_ref() == refused.device;
    let unnameable = matches!(&refused.why, Why::Name { .. }) && wire.bus.iter().any(|bus| named(&bus));
    if !about_a_bus && !unnameable {
        return None;
    }
    let bus = wire.bus.iter().rfind(named)?.get_ref();
    Some(match (&refused.why, &bus.timeout_ms) {
        (Why::Timeout { .. }, Some(key)) => key.span(),
        _ => bus.name.span(),
    })
}

fn device_span(wire: &File, refused: &Refused) -> Option<Range<usize>> {
    // The last one of the name: a second device of one name is the one that was refused.
    let device = wire.device.iter().rfind(|device| *device.get_ref().name.get_ref() == refused.device)?.get_ref();
    let own = match &refused.place {
        Place::Device => of_device(device, &refused.why),
        Place::Point(name) => entry(device.points.as_ref(), name).or_else(|| device.shift.as_ref().map(Spanned::span)),
        Place::Action(name) => entry(device.actions.as_ref(), name),
    };
    Some(
        own.or_else(|| device.like.as_ref().filter(|_| refused.place != Place::Device).map(Spanned::span))
            .unwrap_or_else(|| device.name.span()),
    )
}

/// The key that is wrong, where that is not the name.
fn of_device(device: &DeviceTable, why: &Why) -> Option<Range<usize>> {
    if matches!(why, Why::NoSuchBus { .. }) {
        device.bus.as_ref().map(Spanned::span)
    } else if matches!(why, Why::Unit { .. }) {
        device.unit.as_ref().map(Spanned::span)
    } else if matches!(why, Why::NumberTwice { .. }) {
        device.number.as_ref().map(Spanned::span)
    } else if let Why::Name { name } = why {
        device.kind.as_ref().filter(|kind| kind.get_ref() == name).map(Spanned::span)
    } else {
        None
    }
}

fn entry<T>(entries: Option<&BTreeMap<Spanned<String>, Spanned<T>>>, name: &str) -> Option<Range<usize>> {
    entries?.iter().find(|(key, _)| key.get_ref() == name).map(|(key, _)| key.span())
}

#[expect(clippy::wildcard_enum_match_arm, reason = "most mistakes say what to do in their own words")]
fn hint(why: &Why) -> Option<&'static str> {
    match why {
        Why::Twice { .. } => Some("give each a name of its own"),
        Why::Overlap { .. } => Some("two values can share a register only as two different bits of it"),
        Why::AddressEnd { .. } => Some("addresses are 0-based: register 40001 of a manual is holding 0"),
        Why::NoSuchBus { .. } => Some("add a [[bus]] with this name"),
        Why::Unit { .. } => Some("a device that does not care about its unit answers to 1"),
        Why::RangeTooWide { .. } => Some("choose a wider type, or another scale"),
        Why::NotWritable { .. } | Why::ReadOnly { .. } => Some("only coils and holding registers can be written"),
        Why::Reserved => Some("choose another name for this action"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
[[bus]]
name = "field"
tcp = "10.0.0.5:1502"
timeout-ms = 300

[[bus]]
name = "line"
serial = "/dev/ttyUSB0"
baud = 19200
parity = "none"
stop-bits = 2

[[device]]
name = "pump-1"
kind = "pump"
zone = "泵房"
bus = "field"
unit = 3

[device.points]
run = { coil = 0, risk = "dangerous" }
set = { holding = 0, scale = 0.01, unit = "Hz", range = [0, 50] }
flow = { input = 4, type = "f32", words = "low-first", bytes = "little" }
fault = { input = 9, bit = 3 }

[device.actions]
start = { writes = [{ point = "run", value = true }] }
status = { reads = ["fault", "flow"] }

[[device]]
name = "pump-2"
like = "pump-1"
shift = 16
"#;

    #[test]
    fn buses_devices_and_likenesses_are_read() {
        let devices = parse(GOOD, Path::new("a.toml")).expect("a good file");
        let links = devices.buses().map(|bus| (bus.link.to_string(), bus.timeout.as_millis())).collect::<Vec<_>>();
        assert_eq!(links, [("tcp://10.0.0.5:1502".to_owned(), 300), ("serial:///dev/ttyUSB0".to_owned(), 1000)]);
        let pump = devices.numbered("pump", 2).expect("pump-2");
        assert_eq!((pump.name.as_str(), pump.unit, pump.zone.as_deref()), ("pump-2", 3, Some("泵房")));
        let flow = &pump.points["flow"];
        assert_eq!(
            (flow.address, flow.repr, flow.words, flow.bytes),
            (20, Repr::F32, WordOrder::LowFirst, ByteOrder::Little)
        );
        assert_eq!(pump.actions.len(), 2);
        // The risk of a coil is that of the point or of the worst action, whichever is greater.
        assert_eq!(devices.write_risk(pump, &pump.points["run"]), Risk::Dangerous);
        assert_eq!(devices.write_risk(pump, &pump.points["set"]), Risk::Operate);
    }

    /// Takes [`GOOD`], changes one thing in it, and compares the whole message.
    fn check(rows: &[(&str, &str, &str)]) {
        let mut wrong = Vec::new();
        for (from, to, expected) in rows {
            assert!(GOOD.contains(from), "{from}");
            let text = GOOD.replacen(from, to, 1);
            let found = parse(&text, Path::new("a.toml")).map_or_else(|error| error.to_string(), |_| String::new());
            if found != *expected {
                wrong.push(format!("{from} -> {to}\n found    {found}\n expected {expected}"));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn a_mistake_is_named_with_line_key_and_fact() {
        check(&[
            (
                "unit = 3",
                "unit = 250",
                "a.toml:19:8: device.unit: pump-1: unit 250 is not 1 to 247 (on TCP also 0 and 255)",
            ),
            (
                "bus = \"field\"
unit = 3",
                "bus = \"line\"
unit = 0",
                "a.toml:19:8: device.unit: pump-1: unit 0 is not 1 to 247 (on TCP also 0 and 255)",
            ),
            ("unit = 3", "unit = 300", "a.toml:19:8: device.unit: invalid value: integer `300`, expected u8"),
            ("unit = 3\n", "", "a.toml:15:8: device.name: pump-1 has no unit"),
            (
                "unit = 3",
                "slave = 3",
                "a.toml:19:1: device.slave: unknown field `slave`, expected one of `name`, `kind`, `number`, `zone`, `title`, `bus`, `unit`, `like`, `shift`, `points`, `actions`",
            ),
            ("bus = \"field\"", "bus = \"feild\"", "a.toml:18:7: device.bus: pump-1: there is no bus named \"feild\""),
            (
                "name = \"pump-2\"",
                "name = \"pump-1\"",
                "a.toml:32:8: device.name: pump-1: there is another device of this name",
            ),
            (
                "name = \"pump-2\"",
                "name = \"Pump 2\"",
                "a.toml:32:8: device.name: Pump 2: \"Pump 2\" is not a name (1 to 64 of a-z 0-9 and -, a letter first)",
            ),
            ("shift = 16", "number = 1", "a.toml:34:10: device.number: pump-2: pump-1 is pump number 1 already"),
            (
                "like = \"pump-1\"",
                "like = \"pump-9\"",
                "a.toml:33:8: device.like: pump-2 is like \"pump-9\", which is not there",
            ),
            (
                "shift = 16",
                "shift = 0",
                "a.toml:34:9: device.shift: pump-2, point fault: it lies on input address 9 of unit 3, where pump-1/fault lies",
            ),
            (
                "shift = 16",
                "shift = 65535",
                "a.toml:34:9: device.shift: fault of pump-2 would lie behind address 65535",
            ),
            (
                "coil = 0",
                "coil = 65536",
                "a.toml:22:16: device.points.run: invalid value: integer `65536`, expected u16",
            ),
            ("input = 4", "input = 65535", "a.toml:34:9: device.shift: flow of pump-2 would lie behind address 65535"),
            (
                "[[device]]\nname = \"pump-2\"\nlike = \"pump-1\"\nshift = 16",
                "[device.points.wide]\ninput = 65535\ntype = \"u32\"",
                "a.toml:31:16: device.points.wide: pump-1, point wide: it would end at address 65536, the last address is 65535",
            ),
            (
                "input = 9, bit = 3",
                "input = 5, bit = 3",
                "a.toml:24:1: device.points.flow: pump-1, point flow: it lies on input address 5 of unit 3, where pump-1/fault lies",
            ),
            (
                "bit = 3",
                "bit = 16",
                "a.toml:25:1: device.points.fault: pump-1, point fault: a register has bits 0 to 15, not 16",
            ),
            (
                "bit = 3",
                "coil = 3",
                "a.toml:25:9: device.points.fault: pump-1, point fault: it has to lie in one table",
            ),
            (
                "type = \"f32\"",
                "type = \"f64\"",
                "a.toml:24:28: device.points.flow: type \"f64\" is not u16, i16, u32, i32 or f32",
            ),
            (
                "coil = 0,",
                "coil = 0, write = \"twice\",",
                "a.toml:22:27: device.points.run: write \"twice\" is not single or multiple",
            ),
            (
                "coil = 0,",
                "coil = 0, type = \"u16\",",
                "a.toml:22:1: device.points.run: pump-1, point run: a coil address cannot hold u16",
            ),
            (
                "coil = 0,",
                "discrete = 0, access = \"write\",",
                "a.toml:22:1: device.points.run: pump-1, point run: a discrete cannot be written",
            ),
            (
                "scale = 0.01",
                "scale = 0",
                "a.toml:23:1: device.points.set: pump-1, point set: scale 0 and offset 0 do not make a value (finite numbers, scale not 0)",
            ),
            (
                "range = [0, 50]",
                "range = [0, 700]",
                "a.toml:23:1: device.points.set: pump-1, point set: the range 0 to 700 does not fit: u16 with this scale holds 0 to 655.35",
            ),
            (
                "range = [0, 50]",
                "range = [50, 0]",
                "a.toml:23:1: device.points.set: pump-1, point set: the range 50 to 0 is empty",
            ),
            (
                "range = [0, 50]",
                "range = [0]",
                "a.toml:23:57: device.points.set: invalid length 1, expected an array of length 2",
            ),
            (
                "point = \"run\", value = true",
                "point = \"go\", value = true",
                "a.toml:28:1: device.actions.start: pump-1, action start: there is no point named \"go\"; there are fault, flow, run, set",
            ),
            (
                "point = \"run\", value = true",
                "point = \"flow\", value = 1",
                "a.toml:28:1: device.actions.start: pump-1, action start: flow cannot be written",
            ),
            (
                "point = \"run\", value = true",
                "point = \"set\", value = 51",
                "a.toml:28:1: device.actions.start: pump-1, action start: set takes 0 to 50 Hz, not 51",
            ),
            (
                "point = \"run\", value",
                "device = \"fan-1\", point = \"run\", value",
                "a.toml:28:1: device.actions.start: pump-1, action start: there is no device named \"fan-1\"",
            ),
            (
                "start = {",
                "write = {",
                "a.toml:28:1: device.actions.write: pump-1, action write: \"read\" and \"write\" are there on every device, and mean something else",
            ),
            (
                "start = {",
                "start = { risk = \"read\",",
                "a.toml:28:1: device.actions.start: pump-1, action start: an action that writes cannot have the risk read",
            ),
            (
                "start = {",
                "start = { risk = \"mild\",",
                "a.toml:28:18: device.actions.start: risk \"mild\" is not read, operate or dangerous",
            ),
            (
                "status = { reads = [\"fault\", \"flow\"] }",
                "status = {}",
                "a.toml:29:10: device.actions.status: pump-1, action status: it reads or it writes",
            ),
            (
                "status = { reads = [\"fault\", \"flow\"] }",
                "status = { reads = [\"fault\"], protective = true }",
                "a.toml:29:1: device.actions.status: pump-1, action status: an action that reads protects nothing",
            ),
            (
                "tcp = \"10.0.0.5:1502\"",
                "tcp = \"10.0.0.5:99999\"",
                "a.toml:4:7: bus.tcp: \"10.0.0.5:99999\" is not an address",
            ),
            ("tcp = \"10.0.0.5:1502\"", "", "a.toml:3:8: bus.name: bus field has no wire"),
            (
                "tcp = \"10.0.0.5:1502\"",
                "tcp = \"a:1\"\nbaud = 9600",
                "a.toml:5:8: bus.baud: baud belongs to a serial bus, this one is tcp",
            ),
            (
                "timeout-ms = 300",
                "timeout-ms = 5",
                "a.toml:5:14: bus.timeout-ms: field: a timeout of 5 ms is not 10 to 60000",
            ),
            ("name = \"line\"", "name = \"field\"", "a.toml:8:8: bus.name: field: there is another bus of this name"),
            (
                "parity = \"none\"",
                "parity = \"mark\"",
                "a.toml:11:10: bus.parity: parity \"mark\" is not even, odd or none",
            ),
            ("stop-bits = 2", "stop-bits = 3", "a.toml:12:13: bus.stop-bits: stop-bits 3 is not 1 or 2"),
        ]);
    }

    #[test]
    fn a_port_may_be_left_out_and_an_address_may_be_of_the_new_kind() {
        for (tcp, expected) in [
            ("plc.local", "tcp://plc.local:502"),
            ("[fd00::20]:1502", "tcp://[fd00::20]:1502"),
            ("[fd00::20]", "tcp://[fd00::20]:502"),
        ] {
            let text = format!("[[bus]]\nname = \"b\"\ntcp = \"{tcp}\"\n");
            let devices = parse(&text, Path::new("a.toml")).expect("good");
            assert_eq!(devices.bus("b").map(|bus| bus.link.to_string()), Some(expected.to_owned()));
        }
    }
}

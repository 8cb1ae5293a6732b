//! What a table of devices may not be.
//!
//! Each mistake is found once, here, at start or reload, and never by a machine.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use thiserror::Error;

use super::point::{Point, Repr, Table};
use super::table::{Action, Bus, Device, Devices, Does, Link, NAME_LEN_MAX, READ, WRITE, Write};
use crate::risk::Risk;

/// Where in a device a mistake is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// The device as a whole.
    Device,
    /// One of its points.
    Point(String),
    /// One of its actions.
    Action(String),
}

/// A table that was refused: which device (or bus), where in it, and why.
#[derive(Debug, Clone, PartialEq, Error)]
pub struct Refused {
    /// The device or bus.
    pub device: String,
    /// Where in it.
    pub place: Place,
    /// Why.
    pub why: Why,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Device => write!(f, "{}: {}", self.device, self.why),
            Place::Point(name) => write!(f, "{}, point {name}: {}", self.device, self.why),
            Place::Action(name) => write!(f, "{}, action {name}: {}", self.device, self.why),
        }
    }
}

/// Why a table was refused.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum Why {
    /// A name of other characters, or too long.
    #[error("{name:?} is not a name (1 to {NAME_LEN_MAX} of a-z 0-9 and -, a letter first)")]
    Name {
        /// The name.
        name: String,
    },
    /// Two buses or two devices of one name.
    #[error("there is another {what} of this name")]
    Twice {
        /// `bus` or `device`.
        what: &'static str,
    },
    /// Two devices of one kind with one number.
    #[error("{other} is {kind} number {number} already")]
    NumberTwice {
        /// The other device.
        other: String,
        /// The kind.
        kind: String,
        /// The number.
        number: u32,
    },
    /// A bus that is not there.
    #[error("there is no bus named {bus:?}")]
    NoSuchBus {
        /// The name.
        bus: String,
    },
    /// A unit number that Modbus keeps for other things.
    #[error("unit {unit} is not 1 to 247 (on TCP also 0 and 255)")]
    Unit {
        /// The number.
        unit: u8,
    },
    /// A bus timeout outside of what makes sense.
    #[error("a timeout of {millis} ms is not 10 to 60000")]
    Timeout {
        /// In milliseconds.
        millis: u128,
    },
    /// A layout that the table cannot hold.
    #[error("a {table} address cannot hold {repr}")]
    Layout {
        /// The word of the table.
        table: &'static str,
        /// The word of the layout.
        repr: &'static str,
    },
    /// A bit number over 15.
    #[error("a register has bits 0 to 15, not {bit}")]
    BitNumber {
        /// The number.
        bit: u8,
    },
    /// The last register of the value would lie behind the last address.
    #[error("it would end at address {end}, the last address is 65535")]
    AddressEnd {
        /// Where it would end.
        end: u32,
    },
    /// Two points on one address.
    #[error("it lies on {table} address {address} of unit {unit}, where {other} lies")]
    Overlap {
        /// The word of the table.
        table: &'static str,
        /// The address.
        address: u16,
        /// The unit.
        unit: u8,
        /// The other point, `device/point`.
        other: String,
    },
    /// A scale of 0, or a scale or offset that is not finite.
    #[error("scale {scale} and offset {offset} do not make a value (finite numbers, scale not 0)")]
    Scale {
        /// The scale.
        scale: f64,
        /// The offset.
        offset: f64,
    },
    /// Scale, offset, range or labels on true or false.
    #[error("true or false has no {what}")]
    BitHasNo {
        /// `scale`, `range`, `labels` …
        what: &'static str,
    },
    /// A range whose ends are not in order or not finite.
    #[error("the range {min} to {max} is empty")]
    RangeEmpty {
        /// The least.
        min: f64,
        /// The most.
        max: f64,
    },
    /// A range that the registers cannot hold.
    #[error("the range {min} to {max} does not fit: {repr} with this scale holds {low} to {high}")]
    RangeTooWide {
        /// The least.
        min: f64,
        /// The most.
        max: f64,
        /// The word of the layout.
        repr: &'static str,
        /// The least that it can hold.
        low: f64,
        /// The most that it can hold.
        high: f64,
    },
    /// A point that says it can be written, where Modbus has no write.
    #[error("a {table} cannot be written")]
    NotWritable {
        /// The word of the table.
        table: &'static str,
    },
    /// A name of an action that every device has.
    #[error("{READ:?} and {WRITE:?} are there on every device, and mean something else")]
    Reserved,
    /// An action that does nothing.
    #[error("it neither reads nor writes")]
    DoesNothing,
    /// An action that writes and says that its risk is `read`, or the other way round.
    #[error("an action that {does} cannot have the risk {risk}")]
    ActionRisk {
        /// `reads` or `writes`.
        does: &'static str,
        /// The risk.
        risk: Risk,
    },
    /// An action that reads and says that it is protective.
    #[error("an action that reads protects nothing")]
    ProtectiveRead,
    /// An action that names a device that is not there.
    #[error("there is no device named {device:?}")]
    NoSuchDevice {
        /// The name.
        device: String,
    },
    /// An action that names a device on another bus.
    #[error("{device} is on bus {bus}: an action stays on one bus")]
    OtherBus {
        /// The other device.
        device: String,
        /// Its bus.
        bus: String,
    },
    /// An action that names a point that is not there.
    #[error("there is no point named {point:?}; there are {}", .known.join(", "))]
    NoSuchPoint {
        /// The name.
        point: String,
        /// The points of the device.
        known: Vec<String>,
    },
    /// An action that writes to a point which cannot be written.
    #[error("{point} cannot be written")]
    ReadOnly {
        /// The point.
        point: String,
    },
    /// An action whose constant does not fit its point.
    #[error("{0}")]
    Constant(super::codec::ValueError),
    /// An inverse that is not there, or that reads.
    #[error("its inverse {action:?} is no action of this device that writes")]
    NoInverse {
        /// The action that should take it back.
        action: String,
    },
    /// An inverse to an action that changes nothing.
    #[error("it only reads: there is nothing to take back")]
    InverseOfRead,
    /// An inverse to a press, or to a press among other writes.
    #[error("it presses {point}, and a press cannot be taken back by another write")]
    InverseOfPulse {
        /// The pulse point.
        point: String,
    },
    /// An action with two places for the caller's value.
    #[error("the caller's value can go to one point only")]
    TwoValues,
}

impl Devices {
    pub(super) fn check_device(&self, device: &Device) -> Result<(), Why> {
        check_name(&device.name)?;
        check_name(&device.kind)?;
        if self.get(&device.name).is_some() {
            return Err(Why::Twice { what: "device" });
        }
        if let Some(number) = device.number
            && let Some(other) = self.numbered(&device.kind, number)
        {
            return Err(Why::NumberTwice { other: other.name.clone(), kind: device.kind.clone(), number });
        }
        let Some(bus) = self.bus(&device.bus) else {
            return Err(Why::NoSuchBus { bus: device.bus.clone() });
        };
        // Modbus messaging on TCP/IP V1.0b, section 4.4.1.2: a device that is itself on TCP answers to 255, or to 0.
        // On a serial line 0 is everybody, and nobody answers.
        let fits = match bus.link {
            Link::Tcp { .. } => matches!(device.unit, 0..=247 | 255),
            Link::Serial { .. } => matches!(device.unit, 1..=247),
        };
        if !fits {
            return Err(Why::Unit { unit: device.unit });
        }
        Ok(())
    }

    pub(super) fn check_action(&self, device: &Device, action: &Action) -> Result<(), Why> {
        check_name(&action.name)?;
        if action.name == READ || action.name == WRITE {
            return Err(Why::Reserved);
        }
        self.check_inverse(device, action)?;
        match &action.does {
            Does::Reads(points) => {
                if points.is_empty() {
                    return Err(Why::DoesNothing);
                }
                if action.risk != Risk::Read {
                    return Err(Why::ActionRisk { does: "reads", risk: action.risk });
                }
                if action.protective {
                    return Err(Why::ProtectiveRead);
                }
                points.iter().try_for_each(|point| named_point(device, point).map(drop))
            }
            Does::Writes(writes) => {
                if writes.is_empty() {
                    return Err(Why::DoesNothing);
                }
                if action.risk == Risk::Read {
                    return Err(Why::ActionRisk { does: "writes", risk: action.risk });
                }
                if writes.iter().filter(|write| write.value.is_none()).count() > 1 {
                    return Err(Why::TwoValues);
                }
                writes.iter().try_for_each(|write| self.check_write(device, write))
            }
        }
    }

    fn check_inverse(&self, device: &Device, action: &Action) -> Result<(), Why> {
        let Some(inverse) = &action.inverse else { return Ok(()) };
        let Does::Writes(writes) = &action.does else { return Err(Why::InverseOfRead) };
        let writes_back = device.actions.get(&inverse.action).is_some_and(|back| matches!(back.does, Does::Writes(_)));
        if !writes_back {
            return Err(Why::NoInverse { action: inverse.action.clone() });
        }
        let pulse = writes.iter().find(|write| {
            let target = write.device.as_deref().map_or(Some(device), |name| self.get(name));
            target.and_then(|target| target.points.get(&write.point)).is_some_and(|point| point.pulse)
        });
        pulse.map_or(Ok(()), |write| Err(Why::InverseOfPulse { point: write.point.clone() }))
    }

    fn check_write(&self, device: &Device, write: &Write) -> Result<(), Why> {
        let target = match &write.device {
            None => device,
            Some(name) => self.get(name).ok_or_else(|| Why::NoSuchDevice { device: name.clone() })?,
        };
        if target.bus != device.bus {
            return Err(Why::OtherBus { device: target.name.clone(), bus: target.bus.clone() });
        }
        let point = named_point(target, &write.point)?;
        if !point.writable {
            return Err(Why::ReadOnly { point: point.name.clone() });
        }
        match &write.value {
            None => Ok(()),
            Some(value) => point.meant(value).and_then(|value| point.encode(value)).map(drop).map_err(Why::Constant),
        }
    }
}

pub(super) fn at(device: &str, place: Place, why: Why) -> Box<Refused> {
    Box::new(Refused { device: device.to_owned(), place, why })
}

fn named_point<'a>(device: &'a Device, name: &str) -> Result<&'a Arc<Point>, Why> {
    device
        .points
        .get(name)
        .ok_or_else(|| Why::NoSuchPoint { point: name.to_owned(), known: device.points.keys().cloned().collect() })
}

fn check_name(name: &str) -> Result<(), Why> {
    let fits = (1..=NAME_LEN_MAX).contains(&name.len())
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    if fits { Ok(()) } else { Err(Why::Name { name: name.chars().take(NAME_LEN_MAX).collect() }) }
}

pub(super) fn check_bus(bus: &Bus) -> Result<(), Why> {
    check_name(&bus.name)?;
    let millis = bus.timeout.as_millis();
    if (10..=60_000).contains(&millis) { Ok(()) } else { Err(Why::Timeout { millis }) }
}

pub(super) fn check_point(point: &Point) -> Result<(), Why> {
    check_name(&point.name)?;
    let repr = point.repr;
    match repr {
        Repr::Bit if point.table.is_bits() => {}
        Repr::BitOf(bit) if !point.table.is_bits() => {
            if bit > 15 {
                return Err(Why::BitNumber { bit });
            }
        }
        Repr::U16 | Repr::I16 | Repr::U32 | Repr::I32 | Repr::F32 if !point.table.is_bits() => {}
        Repr::Bit | Repr::BitOf(_) | Repr::U16 | Repr::I16 | Repr::U32 | Repr::I32 | Repr::F32 => {
            return Err(Why::Layout { table: point.table.word(), repr: repr.word() });
        }
    }
    let end = u32::from(point.address) + u32::from(repr.addresses()) - 1;
    if end > u32::from(u16::MAX) {
        return Err(Why::AddressEnd { end });
    }
    if point.writable && !point.table.is_writable() {
        return Err(Why::NotWritable { table: point.table.word() });
    }
    let Some((low, high)) = repr.raw_limits() else { return check_bit(point) };
    if !point.scale.is_finite() || !point.offset.is_finite() || point.scale == 0.0 {
        return Err(Why::Scale { scale: point.scale, offset: point.offset });
    }
    let Some((min, max)) = point.range else { return Ok(()) };
    if !(min.is_finite() && max.is_finite() && min <= max) {
        return Err(Why::RangeEmpty { min, max });
    }
    // Half a step of room: 0.1 x 65535 is not exactly 6553.5.
    let room = point.scale.abs() / 2.0;
    let (a, b) = (low * point.scale + point.offset, high * point.scale + point.offset);
    let (low, high) = (a.min(b), a.max(b));
    if min < low - room || max > high + room {
        return Err(Why::RangeTooWide { min, max, repr: repr.word(), low, high });
    }
    Ok(())
}

fn check_bit(point: &Point) -> Result<(), Why> {
    let plain = Point::plain(&point.name, point.table, point.address, point.repr);
    let what = if (point.scale, point.offset) != (plain.scale, plain.offset) {
        "scale"
    } else if point.range.is_some() {
        "range"
    } else if point.labels.is_empty() {
        return Ok(());
    } else {
        "labels"
    };
    Err(Why::BitHasNo { what })
}

/// Who lies where, by bus, unit, table and address.
#[derive(Default)]
pub(super) struct Taken(BTreeMap<Address, Vec<(Repr, String)>>);

/// Bus, unit, table, address.
type Address = (String, u8, Table, u16);

impl Taken {
    /// Two values may share a register only as two different bits of it.
    pub(super) fn take(&mut self, device: &Device, point: &Point) -> Result<(), Why> {
        for address in (point.address..=u16::MAX).take(usize::from(point.repr.addresses())) {
            let here = self.0.entry((device.bus.clone(), device.unit, point.table, address)).or_default();
            if let Some((_, other)) = here.iter().find(|(repr, _)| !side_by_side(*repr, point.repr)) {
                return Err(Why::Overlap {
                    table: point.table.word(),
                    address,
                    unit: device.unit,
                    other: other.clone(),
                });
            }
            here.push((point.repr, format!("{}/{}", device.name, point.name)));
        }
        Ok(())
    }
}

fn side_by_side(one: Repr, other: Repr) -> bool {
    matches!((one, other), (Repr::BitOf(a), Repr::BitOf(b)) if a != b)
}

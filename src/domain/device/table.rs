//! The table of all devices, checked once and as a whole.
//!
//! [`Devices::new`] is the only way in. What it refuses would otherwise be found by a machine: two names on one
//! address, an action that writes to a point that is not there, a range that the registers cannot hold.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::check::{Place, Refused, Taken, Why, at, check_bus, check_point};
use super::interlock::Interlocks;
use super::point::Point;
use crate::risk::Risk;

/// Longest name of a bus, device, point or action, in bytes: names stand in evidence rows and in questions.
pub const NAME_LEN_MAX: usize = 64;

/// Names of actions that every device has.
pub const READ: &str = "read";
/// See [`READ`].
pub const WRITE: &str = "write";

/// Parity of a serial line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parity {
    /// No parity bit.
    None,
    /// Even (the standard for Modbus RTU).
    Even,
    /// Odd.
    Odd,
}

/// How a bus is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Link {
    /// Modbus TCP.
    Tcp {
        /// A name or an address.
        host: String,
        /// The port.
        port: u16,
    },
    /// Modbus RTU on a serial port.
    Serial {
        /// The device file.
        path: String,
        /// Bits per second.
        baud: u32,
        /// Parity.
        parity: Parity,
        /// 1 or 2.
        stop_bits: u8,
    },
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Link::Tcp { host, port } if host.contains(':') => write!(f, "tcp://[{host}]:{port}"),
            Link::Tcp { host, port } => write!(f, "tcp://{host}:{port}"),
            Link::Serial { path, .. } => write!(f, "serial://{path}"),
        }
    }
}

/// One bus: one wire, one lane. Requests on it go one after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bus {
    /// Its name.
    pub name: String,
    /// How it is reached.
    pub link: Link,
    /// How long one request may take, the connection included.
    pub timeout: Duration,
}

/// One write of an action.
#[derive(Debug, Clone, PartialEq)]
pub struct Write {
    /// Another device on the same bus; `None`: this one.
    pub device: Option<String>,
    /// The point.
    pub point: String,
    /// What is written; `None`: the caller's value.
    pub value: Option<serde_json::Value>,
}

/// What an action does: reads, or writes in their order.
#[derive(Debug, Clone, PartialEq)]
pub enum Does {
    /// Reads these points.
    Reads(Vec<String>),
    /// Writes, one after the other; the first that does not succeed ends it.
    Writes(Vec<Write>),
}

/// Something that a device can be told to do.
#[derive(Debug, Clone, PartialEq)]
pub struct Action {
    /// Its name within the device.
    pub name: String,
    /// The risk of it.
    pub risk: Risk,
    /// It brings the plant to a safe state: an emergency stop.
    pub protective: bool,
    /// What takes it back, where the process allows that.
    pub inverse: Option<Inverse>,
    /// What it does.
    pub does: Does,
}

/// The action that takes another one back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inverse {
    /// An action of the same device.
    pub action: String,
    /// When it may, in words: an inverse without a precondition is a wish, not a contract.
    pub when: String,
    /// How long it may be taken back.
    pub window: Option<Duration>,
}

/// One device.
#[derive(Debug, Clone, PartialEq)]
pub struct Device {
    /// Its name, unique: `pump-2`.
    pub name: String,
    /// What it is: `pump`.
    pub kind: String,
    /// Which of its kind, when people count them.
    pub number: Option<u32>,
    /// Where it stands, when people say so.
    pub zone: Option<String>,
    /// What people call it; empty when it has no other name.
    pub title: String,
    /// The bus that it is on.
    pub bus: String,
    /// Its unit (slave) number on the bus.
    pub unit: u8,
    /// Its values, by name.
    pub points: BTreeMap<String, Arc<Point>>,
    /// What it can do, by name, besides `read` and `write`.
    pub actions: BTreeMap<String, Action>,
}

/// All devices and buses, checked.
#[derive(Debug, Clone, Default)]
pub struct Devices {
    buses: BTreeMap<String, Bus>,
    /// Shared: the simulator's table and the plant's, which may have more interlocks, speak of the same devices.
    devices: Vec<Arc<Device>>,
    by_name: BTreeMap<String, usize>,
    pub(super) interlocks: Interlocks,
}

impl Devices {
    /// Checks all of it.
    ///
    /// # Errors
    /// With the first mistake, in the order given: buses, then devices, then what the actions name.
    pub fn new(buses: Vec<Bus>, devices: Vec<Device>) -> Result<Devices, Box<Refused>> {
        let mut table = Devices::default();
        for bus in buses {
            check_bus(&bus).map_err(|why| at(&bus.name, Place::Device, why))?;
            if table.buses.contains_key(&bus.name) {
                return Err(at(&bus.name, Place::Device, Why::Twice { what: "bus" }));
            }
            table.buses.insert(bus.name.clone(), bus);
        }
        let mut taken = Taken::default();
        for device in devices {
            table.check_device(&device).map_err(|why| at(&device.name, Place::Device, why))?;
            for point in device.points.values() {
                check_point(point)
                    .and_then(|()| taken.take(&device, point))
                    .map_err(|why| at(&device.name, Place::Point(point.name.clone()), why))?;
            }
            table.by_name.insert(device.name.clone(), table.devices.len());
            table.devices.push(Arc::new(device));
        }
        for device in &table.devices {
            for action in device.actions.values() {
                table
                    .check_action(device, action)
                    .map_err(|why| at(&device.name, Place::Action(action.name.clone()), why))?;
            }
        }
        Ok(table)
    }

    /// The device of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Device> {
        self.by_name.get(name).and_then(|at| self.devices.get(*at)).map(Arc::as_ref)
    }

    /// All devices, in the order of the configuration.
    pub fn iter(&self) -> impl Iterator<Item = &Device> {
        self.devices.iter().map(Arc::as_ref)
    }

    /// How many devices there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.devices.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.devices.is_empty()
    }

    /// All devices of one kind.
    pub fn of_kind<'a>(&'a self, kind: &str) -> impl Iterator<Item = &'a Device> {
        self.iter().filter(move |device| device.kind == kind)
    }

    /// The device of this kind and number.
    #[must_use]
    pub fn numbered(&self, kind: &str, number: u32) -> Option<&Device> {
        self.iter().find(|device| device.kind == kind && device.number == Some(number))
    }

    /// All devices that stand in a zone.
    pub fn in_zone<'a>(&'a self, zone: &str) -> impl Iterator<Item = &'a Device> {
        self.iter().filter(move |device| device.zone.as_deref() == Some(zone))
    }

    /// All buses, by name.
    pub fn buses(&self) -> impl Iterator<Item = &Bus> {
        self.buses.values()
    }

    /// The bus of this name.
    #[must_use]
    pub fn bus(&self, name: &str) -> Option<&Bus> {
        self.buses.get(name)
    }

    /// How many process interlocks there are.
    #[must_use]
    pub fn interlock_count(&self) -> usize {
        self.interlocks.len()
    }

    /// The same table with a bus on another address: the embedded plant learns its port when it starts.
    #[must_use]
    pub fn with_link(mut self, bus: &str, link: Link) -> Devices {
        if let Some(bus) = self.buses.get_mut(bus) {
            bus.link = link;
        }
        self
    }

    /// The risk of writing a point directly: its own, or that of the worst action that writes it, whichever is
    /// greater. A dangerous action cannot be walked around by writing its coil.
    #[must_use]
    pub fn write_risk(&self, device: &Device, point: &Point) -> Risk {
        let writes_it = |owner: &Device, action: &Action| match &action.does {
            Does::Reads(_) => false,
            Does::Writes(writes) => writes.iter().any(|write| {
                write.point == point.name && write.device.as_deref().unwrap_or(&owner.name) == device.name
            }),
        };
        let actions = self.iter().flat_map(|owner| owner.actions.values().map(move |action| (owner, action)));
        actions
            .filter(|(owner, action)| writes_it(owner, action))
            .map(|(_, action)| action.risk)
            .fold(point.risk.max(Risk::Operate), Risk::max)
    }
}

//! What an edge node of Sparkplug has said, and what it says next.
//!
//! Pure. A birth says all that there is, with a number for each name; after it only what changed is said, by its
//! number. Every message has the next of 256 sequence numbers, so that whoever listens knows when one is missing.

use std::collections::BTreeMap;

use super::payload::{Content, Metric, Quality, Type, encode};

/// The command that every node takes.
pub(super) const REBIRTH: &str = "Node Control/Rebirth";

/// One value of one device as it was read; `None` where it could not be.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Read {
    pub(super) device: String,
    pub(super) point: String,
    pub(super) unit: String,
    pub(super) is_bit: bool,
    pub(super) content: Option<Content>,
}

/// The type of a message, and the device that it is of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    NodeBirth,
    NodeDeath,
    DeviceBirth(String),
    DeviceData(String),
    DeviceDeath(String),
}

impl Kind {
    /// The topic of it.
    pub(super) fn topic(&self, group: &str, node: &str) -> String {
        let (word, device) = match self {
            Kind::NodeBirth => ("NBIRTH", None),
            Kind::NodeDeath => ("NDEATH", None),
            Kind::DeviceBirth(device) => ("DBIRTH", Some(device)),
            Kind::DeviceData(device) => ("DDATA", Some(device)),
            Kind::DeviceDeath(device) => ("DDEATH", Some(device)),
        };
        let node = format!("spBv1.0/{group}/{word}/{node}");
        device.map_or_else(|| node.clone(), |device| format!("{node}/{device}"))
    }
}

/// A message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) kind: Kind,
    pub(super) payload: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq)]
struct Point {
    name: String,
    unit: String,
    is_bit: bool,
    alias: u64,
    content: Option<Content>,
}

#[derive(Debug, Default)]
struct Device {
    points: Vec<Point>,
    /// Its birth was said, and not its death.
    is_born: bool,
}

impl Device {
    fn answers(&self) -> bool {
        self.points.iter().any(|point| point.content.is_some())
    }
}

/// The node.
#[derive(Debug, Default)]
pub(super) struct Node {
    /// Which connection this is; birth and death of one bear the same.
    bd_seq: u8,
    seq: u8,
    alias: u64,
    devices: BTreeMap<String, Device>,
}

/// The death of a connection: the broker says it when the node cannot.
pub(super) fn death(bd_seq: u8, at_ms: u64) -> Message {
    Message { kind: Kind::NodeDeath, payload: encode(at_ms, &[bd(bd_seq)], None) }
}

fn bd(bd_seq: u8) -> Metric<'static> {
    let content = Some(Content::Int64(bd_seq.into()));
    Metric { name: Some("bdSeq"), alias: None, is: Type::Int64, content, quality: None, unit: None }
}

impl Node {
    /// A connection begins: nothing of an earlier one counts.
    pub(super) fn connected(&mut self, bd_seq: u8) {
        self.bd_seq = bd_seq;
        self.devices.values_mut().for_each(|device| device.is_born = false);
    }

    /// The birth of the node and of every device that answers.
    pub(super) fn birth(&mut self, at_ms: u64) -> Vec<Message> {
        self.seq = 0;
        let rebirth = Metric {
            name: Some(REBIRTH),
            alias: None,
            is: Type::Boolean,
            content: Some(Content::Boolean(false)),
            quality: None,
            unit: None,
        };
        let payload = encode(at_ms, &[bd(self.bd_seq), rebirth], Some(0));
        let mut said = vec![Message { kind: Kind::NodeBirth, payload }];
        let Node { seq, devices, .. } = self;
        for (name, device) in devices.iter_mut().filter(|(_, device)| device.answers()) {
            said.push(born(name, device, next(seq), at_ms));
        }
        said
    }

    /// What was read now: births of devices that answer again, deaths of those that do not, and what changed.
    pub(super) fn read(&mut self, all: Vec<Read>, at_ms: u64) -> Vec<Message> {
        let mut now: BTreeMap<String, Vec<Read>> = BTreeMap::new();
        for read in all {
            now.entry(read.device.clone()).or_default().push(read);
        }
        let mut said = Vec::new();
        for (name, device) in &mut self.devices {
            if !now.contains_key(name) && device.is_born {
                device.is_born = false;
                said.push(died(name, next(&mut self.seq), at_ms));
            }
        }
        self.devices.retain(|name, _| now.contains_key(name));
        for (name, reads) in now {
            let device = self.devices.entry(name.clone()).or_default();
            let before = std::mem::take(&mut device.points);
            let alias = &mut self.alias;
            let point = |read: Read| {
                let Read { point: name, unit, is_bit, content, .. } = read;
                let known = before.iter().find(|known| (&known.name, known.is_bit) == (&name, is_bit));
                let alias = known.map_or_else(
                    || {
                        *alias += 1;
                        *alias
                    },
                    |known| known.alias,
                );
                Point { name, unit, is_bit, alias, content }
            };
            device.points = reads.into_iter().map(point).collect();
            let names = |points: &[Point]| points.iter().map(|point| point.alias).collect::<Vec<_>>();
            match (device.is_born, device.answers()) {
                (false, false) => {}
                (true, false) => {
                    device.is_born = false;
                    said.push(died(&name, next(&mut self.seq), at_ms));
                }
                // What a birth did not name has no number that anybody knows.
                (true, true) if names(&before) == names(&device.points) => {
                    let changed: Vec<Metric<'_>> = device
                        .points
                        .iter()
                        .zip(&before)
                        .filter(|(point, before)| point.content != before.content)
                        .map(|(point, _)| Metric { name: None, unit: None, ..metric(point) })
                        .collect();
                    if !changed.is_empty() {
                        let payload = encode(at_ms, &changed, Some(next(&mut self.seq)));
                        said.push(Message { kind: Kind::DeviceData(name), payload });
                    }
                }
                (_, true) => said.push(born(&name, device, next(&mut self.seq), at_ms)),
            }
        }
        said
    }
}

fn born(name: &str, device: &mut Device, seq: u8, at_ms: u64) -> Message {
    device.is_born = true;
    let metrics: Vec<Metric<'_>> = device.points.iter().map(metric).collect();
    Message { kind: Kind::DeviceBirth(name.to_owned()), payload: encode(at_ms, &metrics, Some(seq)) }
}

fn died(name: &str, seq: u8, at_ms: u64) -> Message {
    Message { kind: Kind::DeviceDeath(name.to_owned()), payload: encode(at_ms, &[], Some(seq)) }
}

fn metric(point: &Point) -> Metric<'_> {
    Metric {
        name: Some(&point.name),
        alias: Some(point.alias),
        is: if point.is_bit { Type::Boolean } else { Type::Double },
        content: point.content,
        quality: Some(if point.content.is_some() { Quality::Good } else { Quality::Bad }),
        unit: Some(point.unit.as_str()).filter(|unit| !unit.is_empty()),
    }
}

fn next(seq: &mut u8) -> u8 {
    *seq = seq.wrapping_add(1);
    *seq
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(device: &str, point: &str, value: Option<f64>) -> Read {
        let (device, point, unit) = (device.to_owned(), point.to_owned(), String::new());
        Read { device, point, unit, is_bit: false, content: value.map(Content::Double) }
    }

    fn kinds(said: &[Message]) -> Vec<String> {
        said.iter().map(|message| message.kind.topic("g", "n").trim_start_matches("spBv1.0/g/").to_owned()).collect()
    }

    #[test]
    fn births_name_everything_and_then_only_what_changed_is_said() {
        let mut node = Node::default();
        node.connected(3);
        assert_eq!(kinds(&node.birth(1)), ["NBIRTH/n"]);
        let first = || vec![read("a", "x", Some(1.0)), read("a", "y", None), read("b", "x", None)];
        assert_eq!(kinds(&node.read(first(), 2)), ["DBIRTH/n/a"]);
        assert_eq!(kinds(&node.read(first(), 3)), [""; 0]);
        let said = node.read(vec![read("a", "x", Some(2.0)), read("a", "y", None), read("b", "x", Some(0.0))], 4);
        assert_eq!(kinds(&said), ["DDATA/n/a", "DBIRTH/n/b"]);
        let want = Metric {
            name: None,
            alias: Some(1),
            is: Type::Double,
            content: Some(Content::Double(2.0)),
            quality: Some(Quality::Good),
            unit: None,
        };
        assert_eq!(said[0].payload, encode(4, &[want], Some(2)));
        // A device that does not answer is dead until it does; one that is not there any more, too.
        let said = node.read(vec![read("a", "x", None), read("a", "y", None)], 5);
        assert_eq!(kinds(&said), ["DDEATH/n/b", "DDEATH/n/a"]);
        assert_eq!(kinds(&node.read(first(), 6)), ["DBIRTH/n/a"]);
        // Asked to, it says all of it again.
        assert_eq!(kinds(&node.birth(7)), ["NBIRTH/n", "DBIRTH/n/a"]);
        // Another point has a name that nobody knows.
        assert_eq!(kinds(&node.read(vec![read("a", "x", Some(1.0)), read("a", "z", None)], 8)), ["DBIRTH/n/a"]);
        node.connected(4);
        assert_eq!(kinds(&node.birth(9)), ["NBIRTH/n", "DBIRTH/n/a"]);
    }

    #[test]
    fn after_255_comes_0() {
        let mut node = Node::default();
        node.birth(1);
        node.read(vec![read("a", "x", Some(-1.0))], 1);
        let mut last = Vec::new();
        for n in 0..255_u8 {
            last = node.read(vec![read("a", "x", Some(f64::from(n)))], 1);
        }
        assert!(last[0].payload.ends_with(&[0x18, 0x00]), "{last:?}");
    }
}

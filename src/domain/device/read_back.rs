//! What may be promised about a write to a device: whether it leaves a state that can be read back, and whether doing it
//! again adds anything.
//!
//! A coil or register that holds what was written is its own evidence: the same value written again changes nothing,
//! and whoever does not know whether a write arrived reads the point. A press (a pulse coil) is neither, and nor is an
//! action that writes a point twice: what it holds at the end says nothing about the way there.

use super::codec::Reading;
use super::plan::{Plan, Step};
use super::point::Point;
use super::table::{Device, Devices, Does, Write};

/// A point that has to hold a value, if the write arrived.
#[derive(Debug, Clone, PartialEq)]
pub struct Look {
    /// The device.
    pub device: String,
    /// The point.
    pub point: String,
    /// What it has to hold.
    pub wanted: Reading,
    /// How far a reading may be off: half a step of the register.
    pub close: f64,
}

impl Look {
    /// A reading shows that the write arrived.
    #[must_use]
    pub fn shows(&self, number: f64) -> bool {
        (number - self.wanted.number()).abs() <= self.close
    }
}

impl Plan {
    /// The points to be read to find out whether its writes arrived; `None` where reading them says nothing.
    #[must_use]
    pub fn read_back(&self) -> Option<Vec<Look>> {
        let mut looks: Vec<Look> = Vec::new();
        for step in &self.steps {
            let Step::Write(put) = step else { continue };
            let twice = looks.iter().any(|look| look.device == put.device && look.point == put.point.name);
            if put.point.pulse || twice {
                return None;
            }
            looks.push(Look {
                device: put.device.clone(),
                point: put.point.name.clone(),
                wanted: put.point.decode(put.raw).ok()?,
                close: put.point.scale.abs() / 2.0,
            });
        }
        (!looks.is_empty()).then_some(looks)
    }
}

impl Devices {
    /// An action leaves a state: it can be read back, and doing it again adds nothing. Whatever the value.
    #[must_use]
    pub fn leaves_a_state(&self, device: &Device, does: &Does) -> bool {
        let Does::Writes(writes) = does else { return false };
        let target = |write: &Write| {
            let device = write.device.as_deref().map_or(Some(device), |name| self.get(name))?;
            Some((device.name.clone(), write.point.clone(), device.points.get(&write.point)?.pulse))
        };
        let mut seen: Vec<(String, String)> = Vec::new();
        writes.iter().all(|write| match target(write) {
            Some((device, point, pulse)) => {
                let key = (device, point);
                let fits = !pulse && !seen.contains(&key);
                seen.push(key);
                fits
            }
            None => false,
        })
    }
}

/// A direct write of a point leaves a state.
#[must_use]
pub fn holds_what_was_written(point: &Point) -> bool {
    point.writable && !point.pulse
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::codec::Raw;
    use crate::device::plan::Put;
    use crate::device::point::{Repr, Table};
    use crate::risk::Risk;
    use std::collections::BTreeSet;
    use std::sync::Arc;

    fn plan(writes: &[(&str, bool, Raw)]) -> Plan {
        let put = |(name, pulse, raw): &(&str, bool, Raw)| {
            let (table, repr) = match raw {
                Raw::Bit(_) | Raw::BitOf(..) => (Table::Coil, Repr::Bit),
                Raw::Word(_) | Raw::Pair(_) => (Table::Holding, Repr::U16),
            };
            let scale = if table == Table::Holding { 0.1 } else { 1.0 };
            let point = Point { pulse: *pulse, scale, ..Point::plain(name, table, 0, repr) };
            Step::Write(Put { device: "d".to_owned(), unit: 1, point: Arc::new(point), raw: *raw })
        };
        Plan {
            device: "d".to_owned(),
            action: "a".to_owned(),
            bus: "b".to_owned(),
            risk: Risk::Operate,
            protective: false,
            touches: BTreeSet::new(),
            steps: writes.iter().map(put).collect(),
            guard: Vec::new(),
        }
    }

    #[test]
    fn what_holds_its_value_is_its_own_evidence_and_a_press_is_not() {
        let looks = plan(&[("run", false, Raw::Bit(true)), ("set", false, Raw::Word(425))]).read_back().unwrap();
        assert_eq!(looks.iter().map(|look| look.point.as_str()).collect::<Vec<_>>(), ["run", "set"]);
        let shown = [1.0, 0.0].map(|number| looks[0].shows(number));
        assert_eq!(shown, [true, false]);
        assert_eq!([42.5, 42.54, 42.6].map(|number| looks[1].shows(number)), [true, true, false]);
        assert_eq!(plan(&[("jog", true, Raw::Bit(true))]).read_back(), None);
        assert_eq!(plan(&[("run", false, Raw::Bit(true)), ("jog", true, Raw::Bit(true))]).read_back(), None);
        // Off and on again: that it is on says nothing about whether it was off.
        assert_eq!(plan(&[("run", false, Raw::Bit(false)), ("run", false, Raw::Bit(true))]).read_back(), None);
        assert_eq!(plan(&[]).read_back(), None);
    }
}

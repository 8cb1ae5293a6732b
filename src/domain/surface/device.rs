//! What the chain must know about devices: where they hang, and how risky each action is.
//!
//! A small table, not the device description: points, scales and codecs are `domain::device`'s. It is made from the
//! checked configuration, so a name that is not in here does not exist.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::contract::Contract;
use crate::risk::Risk;

use super::outputs::{Finding, in_range};

/// All devices of this box, by name.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DeviceTable(pub BTreeMap<String, DeviceFacts>);

impl DeviceTable {
    /// The readings of an output of the tool `device` against the ranges of their points: `device/point`, and what is
    /// found. Points without a range are not among them.
    #[must_use]
    pub fn judge_ranges(&self, output: &Value) -> Vec<(String, Finding)> {
        let points = output.get("points").and_then(Value::as_array).map_or(std::slice::from_ref(output), Vec::as_slice);
        let judged = points.iter().filter_map(|reading| {
            let device = reading.get("device").or_else(|| output.get("device"))?.as_str()?;
            let point = reading.get("point")?.as_str()?;
            let (least, most) = self.0.get(device)?.ranges.get(point)?;
            Some((format!("{device}/{point}"), in_range(reading.get("value")?, *least, *most)))
        });
        judged.collect()
    }
}

/// One device.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceFacts {
    /// `pump`, `valve`, ….
    pub kind: String,
    /// Its zone, for rules.
    pub zone: Option<String>,
    /// The bus, which serves one request at a time: its lane.
    pub bus: String,
    /// By point, the least and the greatest value that the configuration allows: what a reading is judged by.
    pub ranges: BTreeMap<String, (f64, f64)>,
    /// What it can do. `read` and `write` are there only if the device has points to read or to write.
    pub actions: BTreeMap<String, ActionFacts>,
    /// What is promised about what it can do: by action, and for direct writes by `write/` and the point. What is not
    /// in here has the weakest contract.
    pub contracts: BTreeMap<String, Arc<Contract>>,
}

/// One action of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ActionFacts {
    /// The declared risk.
    pub risk: Risk,
    /// It brings the plant into its safe state.
    pub protective: bool,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn readings_are_held_against_the_ranges_of_their_points() {
        let ranges = BTreeMap::from([("hz".to_owned(), (0.0, 50.0))]);
        let facts = DeviceFacts {
            kind: "pump".to_owned(),
            zone: None,
            bus: "b".to_owned(),
            ranges,
            actions: BTreeMap::new(),
            contracts: BTreeMap::new(),
        };
        let table = DeviceTable(BTreeMap::from([("pump-1".to_owned(), facts)]));
        let check = |output: Value, expected: &[(&str, bool)]| {
            let found = table.judge_ranges(&output);
            let found: Vec<_> = found.iter().map(|(at, finding)| (at.as_str(), *finding == Finding::Valid)).collect();
            assert_eq!(found, expected, "{output}");
        };
        check(json!({ "device": "pump-1", "point": "hz", "value": 50 }), &[("pump-1/hz", true)]);
        check(json!({ "device": "pump-1", "point": "hz", "value": 500.5 }), &[("pump-1/hz", false)]);
        check(json!({ "device": "pump-1", "point": "bar", "value": 500 }), &[]);
        check(json!({ "device": "pump-9", "point": "hz", "value": 500 }), &[]);
        let several = json!({ "device": "pump-1", "points": [
            { "device": "pump-1", "point": "hz", "value": 1 }, { "point": "hz", "value": -1 }, { "point": "run" }, 7,
        ] });
        check(several, &[("pump-1/hz", true), ("pump-1/hz", false)]);
        check(Value::Null, &[]);
    }
}

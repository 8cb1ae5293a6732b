//! What the chain must know about devices: where they hang, and how risky each action is.
//!
//! A small table, not the device description: points, scales and codecs are `domain::device`'s. It is made from the
//! checked configuration, so a name that is not in here does not exist.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::contract::Contract;
use crate::risk::Risk;

/// All devices of this box, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeviceTable(pub BTreeMap<String, DeviceFacts>);

/// One device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceFacts {
    /// `pump`, `valve`, ….
    pub kind: String,
    /// Its zone, for rules.
    pub zone: Option<String>,
    /// The bus, which serves one request at a time: its lane.
    pub bus: String,
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

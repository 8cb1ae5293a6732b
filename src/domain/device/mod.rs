//! Devices: what the outside calls `pump-2`, and how that is wired to Modbus points.
//!
//! All of it is data that was checked once ([`table::Devices::new`]) and pure arithmetic on it: which registers hold
//! a value ([`codec`]), and which reads and writes an action comes to ([`plan`]). Nothing here talks to a bus, and
//! nothing here may guess: a value outside its range, a point that is not there or a device that two names could
//! mean is an error with names in it, because the far end of the wire is a machine.

pub mod check;
pub mod codec;
pub mod interlock;
pub mod plan;
pub mod point;
pub mod read_back;
pub mod table;

//! The embedded plant: a simulator behind a real Modbus TCP server on loopback.
//!
//! It is there so that a person can try everything without hardware, and it must never be taken for a machine: it
//! binds loopback only, it says `simulator` in its log line, in its Modbus identification and in the name of its box,
//! and `boot` leaves it out as soon as a real device is configured.
//!
//! [`model`] is the process, a pure step function; [`server`] owns time and the socket.

mod law;
pub mod model;
pub mod server;
mod vetted;

/// The plant file that is built in (`models/plant/plant.toml`).
pub const BUILT_IN: &str = include_str!("../../models/plant/plant.toml");

/// The name of [`BUILT_IN`] in messages.
pub const BUILT_IN_NAME: &str = "built-in plant.toml";

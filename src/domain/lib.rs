//! Decides. No I/O, no clock, no async.
//!
//! A decision is a plain value, made from plain values and the time that the caller passes in. Nothing in this
//! package may read a clock, open a file, start a thread or wait: the same inputs must give the same decision in
//! the daemon, in an offline verb and in a simulation. `clippy.toml` beside this file and `tests/tidy/main.rs` hold
//! that rule.
#![forbid(unsafe_code)]

pub mod agent;
pub mod block;
pub mod closure;
pub mod command;
pub mod context;
pub mod device;
pub mod effect;
pub mod event;
pub mod gate;
pub mod id;
pub mod learn;
pub mod liveness;
pub mod mediator;
pub mod repair;
pub mod request;
pub mod risk;
#[cfg(test)]
mod sample;
pub mod schedule;
pub mod surface;
pub mod time;
pub mod trace;

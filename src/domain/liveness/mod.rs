//! Decides whether a worker lives, from counters and the time that the caller passes in.
//!
//! Nothing in here reads a clock, a thread or `/proc`: the supervisor samples, this module judges. A verdict that
//! depended on the moment at which it was computed could not be tested at, before and after a deadline, and a
//! supervisor is only as good as those three tests.
//!
//! The five states and the two channels are those of ReliHarness (Electronics): a soft channel (heartbeat and
//! progress) and a hard one (the operating system's word on the thread). What goes beyond the paper: the cause of a
//! silence, starvation told from death, a supervisor that was itself late.

pub mod advice;
pub mod cause;
pub mod census;
pub mod judge;
pub mod lifecycle;
pub mod outsider;
pub mod rate;
pub mod remedy;
pub mod speaker;
pub mod suspicion;

//! The owners: each owns one machine and carries out what it decides.

pub mod supervisor;
pub mod watch;

//! The owners: each owns one machine and carries out what it decides.

pub mod agent;
pub mod classify;
pub mod ground;
pub mod handle;
pub mod inference;
pub mod journal;
pub mod keeper;
pub mod learner;
pub mod librarian;
pub mod listener;
pub mod log;
pub mod mediator;
pub mod own;
pub mod people;
pub mod resolver;
pub mod servers;
pub mod stamp;
pub mod supervisor;
pub mod tasks;
pub mod watch;
pub mod workflow;

//! Tasks: calls that outlive their request, in both forms of the protocol, told by the supervisor and not by the worker.
//!
//! One record has one status, kept in the sense of 2026-07-28, and two views. Its ends are the end of the call, or, for
//! a call that started a background worker, the end of that worker as the supervisor saw it: a worker that panicked is
//! a failed task within one scan, and one that stopped beating says so while it still counts as working. A terminal
//! status never changes.

pub mod methods;
pub mod record;
pub mod store;

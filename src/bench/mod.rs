//! The figures of `interlock bench`, each measured on the real thing in this process.

pub mod evidence;
pub mod liveness;

//! The figures of `interlock bench`, each measured on the real thing in this process.

pub mod liveness;
//! The figures of `interlock bench`: measured in one run, on the machine that asks, each with its unit in its name.

pub mod evidence;

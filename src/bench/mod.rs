//! The figures of `interlock bench`, each measured on the real thing in this process, with its unit in its name.

pub mod effects;
pub mod evidence;
pub mod gate;
pub mod liveness;
pub mod match_bench;
pub mod mcp;
pub mod normalize;
pub mod startup;

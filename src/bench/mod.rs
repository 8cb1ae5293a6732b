//! The figures of `interlock bench`, each measured on the real thing in this process, with its unit in its name.

pub mod drive;
pub mod effects;
pub mod evidence;
pub mod gate;
mod ledger;
pub mod liveness;
pub mod match_bench;
pub mod mcp;
pub mod model_bench;
pub mod normalize;
pub mod schedule;
pub mod startup;

use crate::record::{Stamp, TimeQuality};
use crate::sys::clock;

/// The clocks of a row that a measurement writes.
fn stamp() -> Stamp {
    let (mono, boottime_ns, wall) = (clock::now(), clock::boottime_ns(), clock::wall());
    Stamp { mono, boottime_ns, wall, quality: TimeQuality::Unknown }
}

// Nor can a room of the same package make a permit: the rooms are mounted here beside a thief.
#![allow(dead_code, unused_imports, reason = "the rooms are mounted whole, and a thief uses few of them")]

#[path = "../../../src/domain/closure/mod.rs"]
mod closure;
#[path = "../../../src/domain/effect/mod.rs"]
mod effect;
#[path = "../../../src/domain/gate/mod.rs"]
mod gate;
#[path = "../../../src/domain/id.rs"]
mod id;
#[path = "../../../src/domain/request/mod.rs"]
mod request;
#[path = "../../../src/domain/risk.rs"]
mod risk;
#[path = "../../../src/domain/schedule/mod.rs"]
mod schedule;
#[path = "../../../src/domain/surface/mod.rs"]
mod surface;
#[path = "../../../src/domain/time.rs"]
mod time;

mod thief {
    use crate::effect::journal::LogPosition;
    use crate::gate::decide::Decision;
    use crate::gate::docket::Permit;
    use crate::id::{CallId, Epoch};
    use crate::schedule::Turn;
    use crate::surface::Call;

    fn a_permit(call: Call, decision: Decision) -> Permit {
        Permit { call, decision: Box::new(decision), epoch: Epoch(0), told: false }
    }

    fn a_turn(call: CallId) -> Turn {
        Turn { call }
    }

    fn a_position(call: CallId) -> LogPosition {
        LogPosition { call, ground: crate::effect::journal::Ground::Reads }
    }
}

fn main() {}

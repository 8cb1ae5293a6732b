// Only the gate makes a permit.
use interlock_domain::gate::decide::Decision;
use interlock_domain::gate::docket::Permit;
use interlock_domain::id::Epoch;
use interlock_domain::surface::Call;

fn forge(call: Call, decision: Decision) -> Permit {
    Permit { call, decision: Box::new(decision), epoch: Epoch(0), told: false }
}

fn main() {}

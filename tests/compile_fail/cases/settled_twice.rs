// An outcome is settled once.
use interlock_domain::closure::settle;
use interlock_domain::effect::Outcome;

fn twice(outcome: Outcome) {
    let one = settle(outcome);
    let two = settle(outcome);
    drop((one, two));
}

fn main() {}

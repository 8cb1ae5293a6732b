// Only what is journaled can be started.
use interlock_domain::effect::Intent;
use interlock_domain::schedule::Turn;

fn cut_short(intent: Intent, turn: Turn) {
    let _ = intent.start(turn);
}

fn main() {}

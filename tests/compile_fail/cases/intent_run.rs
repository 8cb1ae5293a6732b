// A tool takes an order; an intent that nobody has written down is none.
use interlock_domain::effect::{Intent, Order};

fn run(_order: Order) {}

fn cut_short(intent: Intent) {
    run(intent);
}

fn main() {}

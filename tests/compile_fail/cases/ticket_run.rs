// A tool takes an order; a place in line is none.
use interlock_domain::effect::Order;
use interlock_domain::schedule::Ticket;

fn run(_order: Order) {}

fn cut_short(ticket: Ticket) {
    run(ticket);
}

fn main() {}

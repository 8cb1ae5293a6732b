// A permit is for one place in line.
use interlock_domain::gate::docket::Permit;
use interlock_domain::schedule::Board;

fn twice(board: &mut Board, permit: Permit) {
    let one = board.admit(permit);
    let two = board.admit(permit);
    drop((one, two));
}

fn main() {}

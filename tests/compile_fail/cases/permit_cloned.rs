// Leave is given once.
use interlock_domain::gate::docket::Permit;

fn copy(permit: &Permit) -> Permit {
    permit.clone()
}

fn main() {}

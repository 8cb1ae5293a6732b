// Whoever refuses a request owes it an end.
#![deny(unused_must_use)]

use interlock_domain::request::Request;
use interlock_domain::request::why::Why;

fn forget(request: Request) {
    request.refuse(Why::Cancelled);
}

fn main() {}

// Only the journal says that something is on the disk.
use interlock_domain::effect::journal::{Entry, Ground, LogPosition};
use interlock_domain::id::CallId;

fn forge(call: CallId) -> LogPosition {
    LogPosition { call, ground: Ground::Durable(Entry(1)) }
}

fn main() {}

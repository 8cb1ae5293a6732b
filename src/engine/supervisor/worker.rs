//! The thread of one worker, from its first to its last instruction.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::heart::{Finished, Heart, Slot};
use super::link::{Link, Tier};
use crate::sys::thread;
use crate::sys::wake::Bell;

/// What a worker does; it runs once.
pub type Work = Box<dyn FnOnce(Heart) -> Finished + Send>;

/// Makes the thread. The slot has its name already.
pub(super) fn start(
    name: &str,
    stack: usize,
    slot: &Arc<Slot>,
    tier: Tier,
    bell: &Bell,
    work: Work,
) -> std::io::Result<thread::Thread> {
    let (slot, bell) = (Arc::clone(slot), bell.clone());
    thread::spawn(name, stack, Box::new(move || live(&slot, tier, &bell, work)))
}

fn live(slot: &Arc<Slot>, tier: Tier, bell: &Bell, work: Work) {
    announce(slot, tier, bell);
    let heart = Heart { slot: Arc::clone(slot) };
    match catch_unwind(AssertUnwindSafe(|| work(heart))) {
        Ok(finished) => slot.finish(finished),
        Err(payload) => {
            slot.panicked(payload.as_ref());
            // Dropping what was thrown may throw again.
            drop(catch_unwind(AssertUnwindSafe(|| drop(payload))));
        }
    }
    slot.unregister();
}

/// Binds the calling thread to its slot and sees to it that its death is noticed.
pub(super) fn announce(slot: &Arc<Slot>, tier: Tier, bell: &Bell) {
    let mut link = Link::of_this_thread(tier);
    if let Link::Pidfd(fd) = &link
        && bell.add(fd, slot.token).is_err()
    {
        link = Link::Tryjoin;
    }
    slot.register(link);
}

//! The thread of one worker, from its first to its last instruction.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use serde_json::Value;

use super::heart::{Finished, Heart};
use super::link::{Link, Tier};
use super::slot::Slot;
use super::spec::{TaskSpec, Work};
use crate::sys::thread::{self, Thread};
use crate::sys::wake::Bell;

/// Makes the thread for one life. The slot has its name already.
pub(super) fn start(spec: &TaskSpec, slot: &Arc<Slot>, tier: Tier, bell: &Bell, work: Work) -> io::Result<Thread> {
    let (slot, bell) = (Arc::clone(slot), bell.clone());
    match work {
        Work::Once(work) => {
            let life = move || {
                announce(&slot, tier, &bell, true);
                live(&slot, work);
            };
            thread::spawn(&spec.name, spec.stack, Box::new(life))
        }
        Work::Again(work) => {
            let life = move || {
                announce(&slot, tier, &bell, true);
                live(&slot, |heart| work(heart));
            };
            thread::spawn(&spec.name, spec.stack, Box::new(life))
        }
        Work::Foreign(make) => {
            let name = spec.name.clone();
            let before = {
                let slot = Arc::clone(&slot);
                move || {
                    thread::set_name(&name);
                    announce(&slot, tier, &bell, true);
                    // Foreign code knows nothing of beats.
                    slot.told_idle();
                }
            };
            let after = move |returned: usize| {
                slot.finish(match returned {
                    0 => Finished::Done(Value::Null),
                    code => Finished::Failed(format!("the foreign code returned {code}")),
                });
                slot.unregister();
            };
            thread::spawn_foreign(spec.stack, Box::new(before), make(), Box::new(after))
        }
    }
}

fn live(slot: &Arc<Slot>, work: impl FnOnce(Heart) -> Finished) {
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

/// Binds the calling thread to its slot and sees to it that its death is noticed. Only a thread that we made can be
/// joined.
pub(super) fn announce(slot: &Arc<Slot>, tier: Tier, bell: &Bell, ours: bool) {
    let mut link = Link::of_this_thread(tier);
    if let Link::Pidfd(fd) = &link
        && bell.add(fd, slot.token).is_err()
    {
        // The kept stat file needs no help from whoever made the thread.
        link = Link::of_this_thread(Tier::Proc);
    }
    if matches!(link, Link::Tryjoin) && !ours {
        link = Link::of_this_thread(Tier::Sentinel);
    }
    slot.register(link);
}

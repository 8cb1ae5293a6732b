//! The hard channel in tiers: how we learn that a thread is gone, whatever it did to leave.
//!
//! Not used, because each said "alive" of a reused number (measured): `tgkill(0)`, the thread's CPU clock, opening its
//! `/proc` path again, `JoinHandle::is_finished`.

use std::fs::File;
use std::io::{Read, Seek};
use std::os::fd::OwnedFd;

use super::slot::Deaths;
use crate::sys::sentinel::Sentinel;
use crate::sys::{pidfd, thread};

/// A way to learn of a death.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tier {
    /// `pidfd_open(PIDFD_THREAD)` and epoll: deaths are events. Linux 6.9 and later.
    Pidfd,
    /// `pthread_tryjoin_np` at each scan. Every Linux.
    Tryjoin,
    /// A robust mutex that the thread holds, tried at each scan: for threads that we did not make.
    Sentinel,
    /// The stat file of the thread, kept open: reading it says ESRCH once it is gone. Microseconds a thread.
    Proc,
}

impl Tier {
    /// All of them, best first.
    pub const ALL: [Tier; 4] = [Tier::Pidfd, Tier::Tryjoin, Tier::Sentinel, Tier::Proc];

    /// As `[liveness] tier` and `doctor` write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Tier::Pidfd => "pidfd",
            Tier::Tryjoin => "tryjoin",
            Tier::Sentinel => "sentinel",
            Tier::Proc => "proc",
        }
    }

    /// The tier with that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Tier> {
        Tier::ALL.into_iter().find(|tier| tier.name() == name)
    }

    /// The best one that this kernel has.
    #[must_use]
    pub fn probe() -> Tier {
        if pidfd::has_threads() { Tier::Pidfd } else { Tier::Tryjoin }
    }
}

/// One thread's end of it, made by the thread itself at its start: nobody else can know its number for sure.
#[derive(Debug)]
pub(super) enum Link {
    Pidfd(OwnedFd),
    Tryjoin,
    Sentinel(Sentinel),
    Proc(File),
}

impl Link {
    /// For the calling thread. What cannot be had (EMFILE) falls back to `tryjoin`, which needs nothing.
    pub(super) fn of_this_thread(tier: Tier) -> Link {
        match tier {
            Tier::Pidfd => pidfd::open_thread(thread::own_tid()).map_or(Link::Tryjoin, Link::Pidfd),
            Tier::Tryjoin => Link::Tryjoin,
            Tier::Sentinel => Sentinel::of_this_thread().map_or(Link::Tryjoin, Link::Sentinel),
            Tier::Proc => {
                File::open(format!("/proc/self/task/{}/stat", thread::own_tid())).map_or(Link::Tryjoin, Link::Proc)
            }
        }
    }

    /// How a death is learned through it.
    pub(super) fn deaths(&self) -> Deaths {
        match self {
            Link::Pidfd(_) => Deaths::Told,
            Link::Tryjoin => Deaths::Joined,
            Link::Sentinel(_) | Link::Proc(_) => Deaths::Asked,
        }
    }

    /// Asks. `Tryjoin` cannot answer by itself: the supervisor joins.
    pub(super) fn says_gone(&self) -> bool {
        match self {
            Link::Pidfd(fd) => pidfd::is_gone(fd),
            Link::Tryjoin => false,
            Link::Sentinel(sentinel) => sentinel.is_gone(),
            Link::Proc(file) => {
                let mut file = file;
                let mut first = [0];
                file.rewind().and_then(|()| file.read(&mut first)).is_err()
            }
        }
    }
}

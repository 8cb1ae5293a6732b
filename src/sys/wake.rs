//! One place to wait for many ends: handles of threads, a bell that any thread may ring, and a time.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::time::Duration;

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};

/// The token of the bell.
const BELL: u64 = u64::MAX;
/// Events taken from the kernel at once; more stay for the next wait.
const EVENTS_MAX: usize = 256;

/// Waits.
#[derive(Debug)]
pub struct Waiter {
    epoll: Arc<Epoll>,
    bell: Arc<EventFd>,
    events: Vec<EpollEvent>,
}

/// Ends a wait from another thread, and adds what is to be waited for.
#[derive(Debug, Clone)]
pub struct Bell {
    epoll: Arc<Epoll>,
    bell: Arc<EventFd>,
}

impl Waiter {
    /// Makes one.
    ///
    /// # Errors
    /// EMFILE.
    pub fn new() -> io::Result<Waiter> {
        let epoll = Arc::new(Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?);
        let bell = Arc::new(EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?);
        epoll.add(bell.as_fd(), EpollEvent::new(EpollFlags::EPOLLIN, BELL))?;
        Ok(Waiter { epoll, bell, events: vec![EpollEvent::empty(); EVENTS_MAX] })
    }

    /// Its bell.
    #[must_use]
    pub fn bell(&self) -> Bell {
        Bell { epoll: Arc::clone(&self.epoll), bell: Arc::clone(&self.bell) }
    }

    /// Waits until something happens or the time is over, and gives the tokens of what happened. A wake without a
    /// token means nothing by itself: compare times again.
    pub fn wait(&mut self, limit: Duration) -> Vec<u64> {
        // Rounded up: a wake just before a deadline would find nothing and spin.
        let millis = limit.as_nanos().div_ceil(1_000_000).min(60_000);
        let timeout = EpollTimeout::try_from(i32::try_from(millis).unwrap_or(60_000)).unwrap_or(EpollTimeout::ZERO);
        // An interrupted wait is a wake without a token.
        let count = self.epoll.wait(&mut self.events, timeout).unwrap_or(0);
        let mut tokens = Vec::with_capacity(count);
        for event in &self.events[..count] {
            if event.data() == BELL {
                // Its count says nothing, and an empty bell (EAGAIN) was heard before.
                let _ = self.bell.read();
            } else {
                tokens.push(event.data());
            }
        }
        tokens
    }

    /// Waits for a descriptor no more.
    pub fn remove(&self, fd: impl AsFd) {
        // A descriptor that is not there needs no removing.
        let _ = self.epoll.delete(fd);
    }
}

impl Bell {
    /// Ends the present or the next wait. It never blocks: a bell that rings already rings enough.
    pub fn ring(&self) {
        // The only error is a full counter, and a full counter rings.
        let _ = self.bell.write(1);
    }

    /// Waits for this descriptor too, from any thread. The token must not be `u64::MAX`.
    ///
    /// # Errors
    /// What `epoll_ctl` says.
    pub fn add(&self, fd: impl AsFd, token: u64) -> io::Result<()> {
        // Once: an end is told one time, and a gone thread must not wake us for ever.
        let flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLONESHOT;
        Ok(self.epoll.add(fd, EpollEvent::new(flags, token))?)
    }

    /// Arms a descriptor again after its token came (for those that become readable more than once).
    ///
    /// # Errors
    /// What `epoll_ctl` says.
    pub fn rearm(&self, fd: impl AsFd, token: u64) -> io::Result<()> {
        let flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLONESHOT;
        Ok(self.epoll.modify(fd, &mut EpollEvent::new(flags, token))?)
    }

    /// The number of the epoll descriptor, for messages.
    #[must_use]
    pub fn number(&self) -> i32 {
        self.epoll.0.as_raw_fd()
    }
}

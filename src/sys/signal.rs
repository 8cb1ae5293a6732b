//! SIGTERM, SIGINT and SIGHUP as values to be read, not as interruptions.
//!
//! Installed by the first thread before any other is made: a thread inherits the blocked set, and a thread without it
//! would take the signal and end the process.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::sys::signal::{SigSet, Signal as Number};
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// What a person or systemd asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM or SIGINT: drain and end.
    End,
    /// SIGHUP: read the configuration again.
    Reload,
}

/// The signals, blocked and readable.
#[derive(Debug)]
pub struct Signals {
    fd: SignalFd,
}

impl Signals {
    /// Blocks the three signals in the calling thread and in those that it makes from now on, and in the programs that
    /// these start, unless [`none_blocked`] lets them begin without.
    ///
    /// # Errors
    /// EMFILE.
    pub fn take() -> io::Result<Signals> {
        let mut set = SigSet::empty();
        for number in [Number::SIGTERM, Number::SIGINT, Number::SIGHUP] {
            set.add(number);
        }
        set.thread_block()?;
        Ok(Signals { fd: SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)? })
    }

    /// The next signal that has come, without waiting.
    ///
    /// # Errors
    /// What `read` says, EAGAIN apart.
    pub fn next(&self) -> io::Result<Option<Signal>> {
        let Some(info) = self.fd.read_signal()? else { return Ok(None) };
        let hangup = u32::try_from(libc::SIGHUP).unwrap_or(0);
        Ok(Some(if info.ssi_signo == hangup { Signal::Reload } else { Signal::End }))
    }
}

/// Lets `command` begin with no signal blocked. Std hands our mask on, and a program that inherits it cannot be asked to
/// end: not by us, not by its shell, not by `timeout(1)`.
pub fn none_blocked(command: &mut Command) {
    // SAFETY: the closure runs between fork and exec, where only async-signal-safe calls may be made: setting the mask
    // of the thread is one, and nothing is allocated.
    unsafe { command.pre_exec(|| SigSet::empty().thread_set_mask().map_err(io::Error::from)) };
}

impl AsRawFd for Signals {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_read_in_the_thread_that_took_them() {
        let signals = Signals::take().unwrap();
        assert_eq!(signals.next().unwrap(), None);
        for (number, expected) in [(libc::SIGHUP, Signal::Reload), (libc::SIGTERM, Signal::End)] {
            // SAFETY: to this very thread, which blocks both.
            assert_eq!(unsafe { libc::pthread_kill(libc::pthread_self(), number) }, 0);
            assert_eq!(signals.next().unwrap(), Some(expected));
        }
    }
}

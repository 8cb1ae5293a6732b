//! SIGTERM, SIGINT and SIGHUP as values to be read, not as interruptions.
//!
//! Installed by the first thread before any other is made: a thread inherits the blocked set, and a thread without it
//! would take the signal and end the process.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::sys::signal::{SigHandler, SigSet, Signal as Number, signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// Those that are read as values.
const OURS: [Number; 3] = [Number::SIGTERM, Number::SIGINT, Number::SIGHUP];

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
    /// these start, unless [`as_by_default`] lets them begin without.
    ///
    /// # Errors
    /// EMFILE.
    pub fn take() -> io::Result<Signals> {
        let mut set = SigSet::empty();
        for number in OURS {
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

/// Lets `command` begin with no signal blocked and none of ours ignored. Std hands our mask on, and who started us may
/// have had some ignored (`nohup`, a shell in the background): a program that inherits that cannot be asked to end, not by
/// us, not by its shell, not by `timeout(1)`.
pub fn as_by_default(command: &mut Command) {
    let begin = || {
        for number in OURS {
            // SAFETY: the default is no handler.
            unsafe { signal(number, SigHandler::SigDfl) }?;
        }
        SigSet::empty().thread_set_mask().map_err(io::Error::from)
    };
    // SAFETY: the closure runs between fork and exec, where only async-signal-safe calls may be made: setting handlers
    // and the mask of the thread are, and nothing is allocated.
    unsafe { command.pre_exec(begin) };
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

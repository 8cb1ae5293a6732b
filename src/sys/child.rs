//! A child process in a group of its own, held by a handle.
//!
//! It inherits none of the variables by which systemd and we speak ([`PRIVATE_VARIABLES`]); what it shall have is set
//! on the command after that. Its group is ended with it: what a worker started must not outlive it unseen.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command};

use super::notify::PRIVATE_VARIABLES;
use super::{pidfd, signal};

/// The signal that asks a process to end.
pub const SIGTERM: i32 = libc::SIGTERM;

/// The signal that ends a process.
pub const SIGKILL: i32 = libc::SIGKILL;

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// By itself, with this code.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

/// A child process.
#[derive(Debug)]
pub struct Process {
    child: Child,
    handle: OwnedFd,
    pid: i32,
}

/// Takes the private variables out of a command.
pub fn forget_private(command: &mut Command) {
    for name in PRIVATE_VARIABLES {
        command.env_remove(name);
    }
}

impl Process {
    /// Starts it. Call [`forget_private`] on the command first, then set what the child shall have. This waits for the
    /// program to be loaded, which a dead network file system can make long: not for the supervisor's thread.
    ///
    /// # Errors
    /// ENOENT, EACCES, EAGAIN, EMFILE.
    pub fn start(command: &mut Command) -> io::Result<Process> {
        signal::as_by_default(command);
        let mut child = command.process_group(0).spawn()?;
        let pid = i32::try_from(child.id()).map_err(io::Error::other)?;
        match pidfd::open_process(pid) {
            Ok(handle) => Ok(Process { child, handle, pid }),
            Err(error) => {
                // Unwatched it must not run. It was not reaped yet, so the number is still its own.
                child.kill()?;
                child.wait()?;
                Err(error)
            }
        }
    }

    /// Its pid; its own until it is reaped.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Asks it to end (SIGTERM to the process itself).
    ///
    /// # Errors
    /// ESRCH when it is gone.
    pub fn ask_to_end(&self) -> io::Result<()> {
        pidfd::send_signal(&self.handle, libc::SIGTERM)
    }

    /// Ends its whole group (SIGKILL). Only before it is reaped: the number of the group is then still its own.
    pub fn kill_group(&self) {
        // SAFETY: plain numbers; the leader is our unreaped child, so the group is the one that we made. An empty
        // group (ESRCH) needs no killing.
        unsafe { libc::kill(-self.pid, libc::SIGKILL) };
    }

    /// Whether all its threads are gone. A leader that has ended while other threads work is not.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        pidfd::is_gone(&self.handle)
    }

    /// Reaps it once it is gone, and what is left of its group with it. None while it runs.
    pub fn reap(&mut self) -> Option<Exit> {
        if self.is_gone() {
            self.kill_group();
        }
        self.reap_alone()
    }

    /// Reaps it once it is gone, and leaves its group as it is.
    pub fn reap_alone(&mut self) -> Option<Exit> {
        if !self.is_gone() {
            return None;
        }
        let status = self.child.try_wait().ok()??;
        Some(status.code().map_or(Exit::Signal(status.signal().unwrap_or(0)), Exit::Code))
    }
}

impl AsFd for Process {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::signal::Signals;
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    #[test]
    fn a_child_of_a_thread_that_reads_its_signals_can_be_asked_to_end() {
        // In the daemon, every thread has them blocked.
        let _signals = Signals::take().unwrap();
        for script in ["kill -TERM $$; exit 9", "kill -INT $$; exit 9", "kill -HUP $$; exit 9"] {
            let mut process = Process::start(Command::new("sh").args(["-c", script])).unwrap();
            let mut end = [PollFd::new(process.as_fd(), PollFlags::POLLIN)];
            poll(&mut end, PollTimeout::from(60_000_u16)).unwrap();
            assert!(matches!(process.reap(), Some(Exit::Signal(1 | 2 | 15))), "{script}");
        }
    }
}

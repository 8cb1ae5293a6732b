//! Handles of threads and processes that cannot be fooled by a reused number.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

fn open(pid: i32, flags: libc::c_uint) -> io::Result<OwnedFd> {
    // SAFETY: plain numbers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    let fd = RawFd::try_from(fd).map_err(io::Error::other)?;
    // SAFETY: the kernel just made it for us, and nobody else knows it. It is close-on-exec from birth.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A handle of one thread; readable once it is gone.
///
/// # Errors
/// EINVAL before Linux 6.9; ESRCH when there is no such thread; EMFILE.
pub fn open_thread(tid: i32) -> io::Result<OwnedFd> {
    open(tid, libc::PIDFD_THREAD)
}

/// A handle of one process; readable once all its threads are gone.
///
/// # Errors
/// ENOSYS before Linux 5.3; ESRCH; EMFILE.
pub fn open_process(pid: i32) -> io::Result<OwnedFd> {
    open(pid, 0)
}

/// Whether what the handle stands for is gone.
#[must_use]
pub fn is_gone(fd: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
    matches!(poll(&mut fds, PollTimeout::ZERO), Ok(1..))
}

/// Sends a signal to what the handle stands for, and to nobody else.
///
/// # Errors
/// ESRCH when it is gone; EPERM.
pub fn send_signal(fd: &OwnedFd, signal: i32) -> io::Result<()> {
    // SAFETY: a valid descriptor for the whole call; a null siginfo means that the kernel fills it in.
    let code = unsafe {
        libc::syscall(libc::SYS_pidfd_send_signal, fd.as_raw_fd(), signal, std::ptr::null::<libc::siginfo_t>(), 0)
    };
    if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Whether this kernel has handles of threads.
#[must_use]
pub fn has_threads() -> bool {
    open_thread(super::thread::own_tid()).is_ok()
}

/// Lets the process hold as many descriptors as it may: a handle for each thread needs them. How many it may hold.
pub fn raise_descriptor_limit() -> u64 {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return 0 };
    match setrlimit(Resource::RLIMIT_NOFILE, hard, hard) {
        Ok(()) => hard,
        // `SystemCallFilter=~@resources` forbids it: the limit stays.
        Err(_) => soft,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_process_is_gone_when_it_is() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let fd = open_process(i32::try_from(child.id()).unwrap()).unwrap();
        assert!(!is_gone(&fd));
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(is_gone(&fd));
        assert!(send_signal(&fd, 0).is_err());
    }
}

//! The other end of `NOTIFY_SOCKET`: what supervised programs tell us, in systemd's protocol.
//!
//! The sender's pid comes from the kernel, never from the message: a program could otherwise beat for another.

use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use nix::sys::socket::{ControlMessageOwned, MsgFlags, UnixAddr, recvmsg, setsockopt, sockopt::PassCred};

use super::machine;

/// Bytes of one message; a longer one is cut and its last line ignored.
const MESSAGE_MAX: usize = 4096;

/// What was told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// Who told it.
    pub pid: i32,
    /// The assignments, in order: `WATCHDOG` = `1`, `STATUS` = …
    pub fields: Vec<(String, String)>,
}

/// The socket.
#[derive(Debug)]
pub struct Ear {
    socket: UnixDatagram,
    address: String,
}

impl Ear {
    /// Opens one under a name that nobody can guess.
    ///
    /// # Errors
    /// EMFILE.
    pub fn open() -> io::Result<Ear> {
        let name: String = machine::random::<16>()?.iter().map(|byte| format!("{byte:02x}")).collect();
        let name = format!("interlock-{name}");
        let socket = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
        socket.set_nonblocking(true)?;
        setsockopt(&socket, PassCred, &true)?;
        Ok(Ear { socket, address: format!("@{name}") })
    }

    /// The value of `NOTIFY_SOCKET` for those who shall speak to it.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The next message, without waiting. One without a sender's pid is dropped, and the next is taken.
    pub fn hear(&self) -> Option<Told> {
        loop {
            let mut bytes = [0; MESSAGE_MAX];
            // Descriptors that a message carries find no room here, and the kernel closes them.
            let mut space = nix::cmsg_space!(nix::sys::socket::UnixCredentials);
            let (length, pid) = {
                let mut parts = [IoSliceMut::new(&mut bytes)];
                let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_CMSG_CLOEXEC;
                let message = recvmsg::<UnixAddr>(self.socket.as_raw_fd(), &mut parts, Some(&mut space), flags).ok()?;
                let pid = message.cmsgs().ok().and_then(|mut messages| {
                    messages.find_map(|message| {
                        if let ControlMessageOwned::ScmCredentials(who) = message { Some(who.pid()) } else { None }
                    })
                });
                (message.bytes, pid)
            };
            if let Some(pid) = pid.filter(|pid| *pid > 0) {
                return Some(Told { pid, fields: assignments(&bytes[..length], length == MESSAGE_MAX) });
            }
        }
    }
}

impl AsFd for Ear {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn assignments(bytes: &[u8], cut: bool) -> Vec<(String, String)> {
    let text = String::from_utf8_lossy(bytes);
    let mut lines: Vec<&str> = text.split('\n').collect();
    if cut {
        lines.pop();
    }
    lines
        .iter()
        .filter_map(|line| line.split_once('='))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

/// The process group of a process: programs that a child runs speak for it.
#[must_use]
pub fn group_of(pid: i32) -> Option<i32> {
    nix::unistd::getpgid(Some(nix::unistd::Pid::from_raw(pid))).ok().map(nix::unistd::Pid::as_raw)
}

#[cfg(test)]
mod tests {
    use super::super::notify::Notifier;
    use super::*;

    #[test]
    fn what_a_program_tells_is_heard_with_its_pid() {
        let ear = Ear::open().unwrap();
        assert_eq!(ear.hear(), None);
        let notifier = Notifier::new(Some(ear.address())).unwrap();
        notifier.ready("up");
        notifier.watchdog();
        let pid = i32::try_from(std::process::id()).unwrap();
        let field = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(ear.hear(), Some(Told { pid, fields: vec![field("READY", "1"), field("STATUS", "up")] }));
        assert_eq!(ear.hear(), Some(Told { pid, fields: vec![field("WATCHDOG", "1")] }));
        assert_eq!(ear.hear(), None);
    }

    #[test]
    fn garbage_is_no_assignment_and_what_is_cut_is_not_believed() {
        assert_eq!(
            assignments(b"\xff\n=\n\nA=b=c\nX_PROGRESS=12", true),
            [(String::new(), String::new()), ("A".to_owned(), "b=c".to_owned())]
        );
    }
}

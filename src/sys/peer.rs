//! Who is at the other end of a Unix socket.
//!
//! The pid of a peer alone can be reused between the question and the answer. Where the kernel has it (Linux 6.5), the
//! handle of the peer is kept and asked again after the walk up the tree.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};

use super::family::{self, Descent};
use super::pidfd;

/// The process that connected.
#[derive(Debug)]
pub struct Peer {
    /// Its pid when it connected; 0 when it lives outside our view of the pids.
    pub pid: i32,
    /// Its user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    handle: Option<OwnedFd>,
}

impl Peer {
    /// Asks the socket of an accepted connection.
    ///
    /// # Errors
    /// What `getsockopt` says.
    pub fn of(socket: impl AsFd) -> io::Result<Peer> {
        let credentials = getsockopt(&socket, PeerCredentials)?;
        let handle = peer_handle(socket.as_fd().as_raw_fd())
            .or_else(|| pidfd::open_process(credentials.pid()).ok().filter(|_| credentials.pid() > 0));
        Ok(Peer { pid: credentials.pid(), uid: credentials.uid(), gid: credentials.gid(), handle })
    }

    /// Whether the peer descends from this process. Never `Foreign` when the peer has ended: its pid may be someone
    /// else's by now.
    #[must_use]
    pub fn descent(&self) -> Descent {
        match (family::descent(self.pid), &self.handle) {
            (Descent::Foreign, Some(handle)) if !pidfd::is_gone(handle) => Descent::Foreign,
            (Descent::Foreign, Some(_) | None) => Descent::Unknown,
            (found @ (Descent::Ours | Descent::Unknown), Some(_) | None) => found,
        }
    }
}

fn peer_handle(socket: RawFd) -> Option<OwnedFd> {
    let mut fd: RawFd = -1;
    let mut length = libc::socklen_t::try_from(size_of::<RawFd>()).ok()?;
    // SAFETY: `fd` and `length` are valid and writable, and the length is that of `fd`.
    let code = unsafe {
        libc::getsockopt(
            socket,
            libc::SOL_SOCKET,
            libc::SO_PEERPIDFD,
            (&raw mut fd).cast::<libc::c_void>(),
            &raw mut length,
        )
    };
    // SAFETY: the kernel just made the descriptor for us.
    (code == 0 && fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::{UnixListener, UnixStream};

    #[test]
    fn a_peer_that_is_ourselves_is_ours() {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("s")).unwrap();
        let _client = UnixStream::connect(folder.path().join("s")).unwrap();
        let (server, _) = listener.accept().unwrap();
        let peer = Peer::of(&server).unwrap();
        assert_eq!(peer.pid, i32::try_from(std::process::id()).unwrap());
        assert_eq!(peer.uid, nix::unistd::getuid().as_raw());
        assert_eq!(peer.descent(), Descent::Ours);
    }

    #[test]
    fn a_peer_that_has_ended_is_not_called_foreign() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let listener = UnixListener::bind(&path).unwrap();
        let script = format!("import socket; s = socket.socket(socket.AF_UNIX); s.connect({path:?})");
        let mut child = std::process::Command::new("python3").args(["-c", &script]).spawn().unwrap();
        let (server, _) = listener.accept().unwrap();
        let peer = Peer::of(&server).unwrap();
        child.wait().unwrap();
        assert_ne!(peer.descent(), Descent::Foreign);
    }
}

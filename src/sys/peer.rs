//! Who is at the other end of a Unix socket.
//!
//! The pid of a peer alone can be reused between the question and the answer. Where the kernel has it (Linux 6.5), the
//! handle of the peer is kept and asked again after the walk up the tree.

use std::io;
use std::net::{IpAddr, SocketAddr};
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

/// Whether the process at the other end of a TCP connection descends from this one, or is this one. The kernel tells no
/// pid of a TCP peer: its socket is looked up in the tables of this machine, and then among the descriptors of our
/// family. A peer that no table knows is on another machine, unless it calls from an address of this one.
#[must_use]
pub fn tcp_descent(local: SocketAddr, from: SocketAddr) -> Descent {
    let (local, from) = (plain(local), plain(from));
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        let Ok(text) = std::fs::read_to_string(table) else { continue };
        if let Some(inode) = text.lines().skip(1).find_map(|line| inode_of(line, from, local)) {
            // Inode 0: the peer has closed its end already; whose it was cannot be told any more.
            return if inode == 0 { Descent::Unknown } else { family::holds_socket(inode) };
        }
    }
    if from.ip().is_loopback() || from.ip() == local.ip() { Descent::Unknown } else { Descent::Foreign }
}

/// An IPv4 address that came over an IPv6 socket is the IPv4 address.
fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// The inode of a row of the table when it is the socket from `own` to `other` (proc(5), `/proc/net/tcp`).
fn inode_of(line: &str, own: SocketAddr, other: SocketAddr) -> Option<u64> {
    let mut columns = line.split_whitespace().skip(1);
    let (own_written, other_written) = (columns.next()?, columns.next()?);
    let same = address(own_written)? == own && address(other_written)? == other;
    // After the two addresses: st, queues, timer, retransmits, uid, timeout, inode.
    same.then(|| columns.nth(6)?.parse().ok()).flatten()
}

/// `0100007F:1F90`: words of four bytes in the order of the machine, the port in hexadecimal.
fn address(written: &str) -> Option<SocketAddr> {
    let (ip, port) = written.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |at: usize| u32::from_str_radix(ip.get(at * 8..at * 8 + 8)?, 16).ok().map(u32::to_ne_bytes);
    let ip = match ip.len() {
        8 => IpAddr::from(word(0)?),
        32 => {
            let mut bytes = [0; 16];
            for at in 0..4 {
                bytes[at * 4..at * 4 + 4].copy_from_slice(&word(at)?);
            }
            IpAddr::from(bytes)
        }
        _ => return None,
    };
    Some(plain(SocketAddr::new(ip, port)))
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
    fn a_tcp_peer_is_found_by_its_socket() {
        for any in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = std::net::TcpListener::bind(any) else { continue };
            let address = listener.local_addr().unwrap();
            let own = std::net::TcpStream::connect(address).unwrap();
            let (_, from) = listener.accept().unwrap();
            assert_eq!(tcp_descent(address, from), Descent::Ours, "{any}");
            drop(own);
            let script = format!(
                "import socket; s = socket.create_connection(({:?}, {})); input()",
                address.ip().to_string(),
                address.port()
            );
            let mut child = std::process::Command::new("python3")
                .args(["-c", &script])
                .stdin(std::process::Stdio::piped())
                .spawn()
                .unwrap();
            let (_, from) = listener.accept().unwrap();
            assert_eq!(tcp_descent(address, from), Descent::Ours, "{any}");
            drop(child.stdin.take());
            child.wait().unwrap();
        }
        let far = |text: &str| text.parse::<SocketAddr>().unwrap();
        assert_eq!(tcp_descent(far("192.0.2.1:10700"), far("192.0.2.9:4000")), Descent::Foreign);
        assert_eq!(tcp_descent(far("127.0.0.1:1"), far("127.0.0.1:2")), Descent::Unknown);
    }

    #[test]
    fn a_row_of_the_table_names_addresses_and_inode() {
        let row = "   1: 0100007F:29CC 0100007F:D3A2 01 00000000:00000000 00:00000000 00000000  1000        0 74219 1 0 20 4 30 10 -1";
        let address = |text: &str| text.parse::<SocketAddr>().unwrap();
        let (own, other) = (address("127.0.0.1:10700"), address("127.0.0.1:54178"));
        if cfg!(target_endian = "little") {
            assert_eq!(inode_of(row, own, other), Some(74219));
            assert_eq!(inode_of(row, other, own), None);
        }
        assert_eq!(inode_of("", own, other), None);
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

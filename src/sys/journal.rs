//! Entries of systemd's journal with fields of their own: what a line on standard error cannot carry.
//!
//! Only where systemd started us, which `JOURNAL_STREAM` says. Nothing waits: an entry that the journal does not take at
//! once is lost, and whoever offers it is told.

use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;

/// Where journald listens (`sd_journal_sendv(3)`, "Native Journal Protocol").
const SOCKET: &str = "/run/systemd/journal/socket";

/// The way to the journal.
#[derive(Debug)]
pub struct Journal {
    socket: UnixDatagram,
    place: PathBuf,
}

impl Journal {
    /// The machine's, if this process belongs to it.
    #[must_use]
    pub fn of_this_service() -> Option<Journal> {
        std::env::var_os("JOURNAL_STREAM").and_then(|_| Journal::at(SOCKET.into()))
    }

    /// One that listens there.
    #[must_use]
    pub fn at(place: PathBuf) -> Option<Journal> {
        let socket = UnixDatagram::unbound().ok()?;
        socket.set_nonblocking(true).ok()?;
        Some(Journal { socket, place })
    }

    /// Hands in one entry; false when it was not taken.
    pub fn send(&self, fields: &[(&str, &str)]) -> bool {
        let mut entry = Vec::new();
        for (name, value) in fields {
            entry.extend_from_slice(name.as_bytes());
            if value.contains('\n') {
                // A value of several lines comes with its length.
                entry.push(b'\n');
                entry.extend_from_slice(&(value.len() as u64).to_le_bytes());
            } else {
                entry.push(b'=');
            }
            entry.extend_from_slice(value.as_bytes());
            entry.push(b'\n');
        }
        self.socket.send_to(&entry, &self.place).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_has_its_fields_and_a_value_of_several_lines_its_length() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("socket");
        let journald = UnixDatagram::bind(&place).unwrap();
        let journal = Journal::at(place).unwrap();
        assert!(journal.send(&[("MESSAGE", "a=b"), ("X", "1\n2")]));
        let mut entry = [0; 64];
        let length = journald.recv(&mut entry).unwrap();
        assert_eq!(&entry[..length], b"MESSAGE=a=b\nX\n\x03\0\0\0\0\0\0\x001\n2\n");
        drop(journald);
        assert!(!Journal::at(dir.path().join("none")).unwrap().send(&[("MESSAGE", "x")]));
    }
}

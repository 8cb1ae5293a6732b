//! What systemd is told, and what it asks for: readiness, status, reload, watchdog, stopping.
//!
//! A message is one datagram and never waits: a full or missing socket loses it, since a supervisor that blocks on its
//! own supervisor is lost. The variables are read once at the start and kept from children ([`PRIVATE_VARIABLES`]): a
//! child that inherits them speaks to systemd in our name.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use interlock_domain::time::Tick;
use thiserror::Error;

/// The variables that a child must not inherit, unless it is itself supervised through a socket of ours.
pub const PRIVATE_VARIABLES: [&str; 6] =
    ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"];

/// The shortest time between two pings: a faster watchdog would cost more than it watches.
const PING_MIN: Duration = Duration::from_millis(10);
/// Datagrams a second besides the pings (systemd reads them on its one thread).
const STATUS_EVERY: Duration = Duration::from_millis(250);

/// Why the daemon does not start under this environment.
#[derive(Debug, Error)]
pub enum NotifyError {
    /// `WATCHDOG_USEC` is there, and is no number of microseconds above 0.
    #[error("WATCHDOG_USEC is {0:?}: a whole number of microseconds above 0 is needed")]
    WatchdogUsec(String),
    /// `NOTIFY_SOCKET` is there, and is neither a path nor an abstract name.
    #[error("NOTIFY_SOCKET is {0:?}: an absolute path or @NAME is needed")]
    Address(String),
    /// No socket could be made.
    #[error("no socket to systemd: {0}")]
    Socket(#[source] io::Error),
}

/// How often systemd wants a ping: a third of its patience. None when it does not watch us.
///
/// # Errors
/// When the variable is garbage: a daemon that then ran without pings would be killed later, for no visible reason.
pub fn watchdog_period(
    usec: Option<&str>,
    watched_pid: Option<&str>,
    own_pid: u32,
) -> Result<Option<Duration>, NotifyError> {
    let Some(text) = usec else { return Ok(None) };
    if watched_pid.is_some_and(|pid| pid.parse() != Ok(own_pid)) {
        return Ok(None);
    }
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse::<u64>() {
        Ok(usec) if digits && usec > 0 => Ok(Some(Duration::from_micros(usec / 3).max(PING_MIN))),
        Ok(_) | Err(_) => Err(NotifyError::WatchdogUsec(text.chars().take(64).collect())),
    }
}

/// Speaks to systemd, or to nobody when it was not started by it.
#[derive(Debug)]
pub struct Notifier {
    socket: Option<(UnixDatagram, SocketAddr)>,
    /// The status that waits for its turn, and when the last one went.
    waiting: Option<String>,
    last_status: Option<Tick>,
}

impl Notifier {
    /// From the value of `NOTIFY_SOCKET`.
    ///
    /// # Errors
    /// When the value is no address, or no socket can be made.
    pub fn new(address: Option<&str>) -> Result<Notifier, NotifyError> {
        let socket = match address {
            None => None,
            Some(text) => {
                let address = match text.as_bytes() {
                    [b'@', name @ ..] if !name.is_empty() => SocketAddr::from_abstract_name(name),
                    [b'/', ..] => SocketAddr::from_pathname(text),
                    _ => return Err(NotifyError::Address(text.chars().take(128).collect())),
                };
                let socket = UnixDatagram::unbound().map_err(NotifyError::Socket)?;
                socket.set_nonblocking(true).map_err(NotifyError::Socket)?;
                Some((socket, address.map_err(NotifyError::Socket)?))
            }
        };
        Ok(Notifier { socket, waiting: None, last_status: None })
    }

    /// Another end of the same line, for the thread that feeds the watchdog.
    ///
    /// # Errors
    /// EMFILE.
    pub fn another(&self) -> Result<Notifier, NotifyError> {
        let socket = match &self.socket {
            None => None,
            Some((socket, address)) => Some((socket.try_clone().map_err(NotifyError::Socket)?, address.clone())),
        };
        Ok(Notifier { socket, waiting: None, last_status: None })
    }

    /// Whether anyone listens.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.socket.is_some()
    }

    /// The daemon is ready (also after a reload that was refused: the old configuration runs on).
    pub fn ready(&self, status: &str) -> bool {
        self.send(&format!("READY=1\nSTATUS={}\n", one_line(status)))
    }

    /// A reload begins. systemd compares the time with that of its own request.
    pub fn reloading(&self, now: Tick) -> bool {
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={}\n", now.0 / 1000))
    }

    /// The daemon drains and ends.
    pub fn stopping(&self, status: &str) -> bool {
        self.send(&format!("STOPPING=1\nSTATUS={}\n", one_line(status)))
    }

    /// Starting or stopping takes longer: at most `more` from now.
    pub fn extend_timeout(&self, more: Duration, status: &str) -> bool {
        self.send(&format!("EXTEND_TIMEOUT_USEC={}\nSTATUS={}\n", more.as_micros(), one_line(status)))
    }

    /// The daemon is well.
    pub fn watchdog(&self) -> bool {
        self.send("WATCHDOG=1\n")
    }

    /// One line for `systemctl status`. Sent at most four times a second: the newest one waits for its turn, which
    /// [`Notifier::turn`] gives it.
    pub fn status(&mut self, text: &str, now: Tick) -> bool {
        self.waiting = Some(one_line(text));
        self.turn(now)
    }

    /// Sends the status that waits, if its turn has come.
    pub fn turn(&mut self, now: Tick) -> bool {
        if self.waiting.is_none() || self.last_status.is_some_and(|last| now.since(last) < STATUS_EVERY) {
            return false;
        }
        self.last_status = Some(now);
        self.waiting.take().is_some_and(|text| self.send(&format!("STATUS={text}\n")))
    }

    /// Whether it went out. Losing one is no error: nobody may listen, and nobody here waits.
    fn send(&self, message: &str) -> bool {
        match &self.socket {
            None => false,
            Some((socket, address)) => socket.send_to_addr(message.as_bytes(), address).is_ok(),
        }
    }
}

/// A status with a line break in it would be read as a second assignment.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(512).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn period(usec: Option<&str>, pid: Option<&str>) -> Result<Option<u128>, String> {
        watchdog_period(usec, pid, 42)
            .map(|period| period.map(|period| period.as_micros()))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_ping_is_due_every_third_and_garbage_is_refused() {
        assert_eq!(period(Some("500000"), None), Ok(Some(166_666)));
        assert_eq!(period(Some("30000000"), Some("42")), Ok(Some(10_000_000)));
        assert_eq!(period(Some("1000"), None), Ok(Some(10_000)));
        assert_eq!(period(None, None), Ok(None));
        assert_eq!(period(Some("30000000"), Some("43")), Ok(None));
        for garbage in ["", "0", "-1", "+5", "30s", "1e6", " 5", "99999999999999999999"] {
            let expected = format!("WATCHDOG_USEC is {garbage:?}: a whole number of microseconds above 0 is needed");
            assert_eq!(period(Some(garbage), None), Err(expected));
        }
    }

    fn heard(socket: &UnixDatagram) -> Vec<String> {
        socket.set_nonblocking(true).unwrap();
        let mut buffer = [0; 2048];
        std::iter::from_fn(|| {
            let length = socket.recv(&mut buffer).ok()?;
            Some(String::from_utf8(buffer[..length].to_vec()).unwrap())
        })
        .collect()
    }

    fn check_conversation(notifier: &mut Notifier, socket: &UnixDatagram) {
        let s = |ms: u64| Tick(ms * 1_000_000);
        notifier.ready("3 devices");
        notifier.reloading(s(1234));
        for ms in 2000..2900 {
            notifier.status(&format!("line\n{ms}"), s(ms));
        }
        notifier.turn(s(3000));
        notifier.watchdog();
        notifier.extend_timeout(Duration::from_secs(9), "verifying");
        notifier.stopping("bye");
        assert_eq!(
            heard(socket),
            [
                "READY=1\nSTATUS=3 devices\n",
                "RELOADING=1\nMONOTONIC_USEC=1234000\n",
                "STATUS=line 2000\n",
                "STATUS=line 2250\n",
                "STATUS=line 2500\n",
                "STATUS=line 2750\n",
                "STATUS=line 2899\n",
                "WATCHDOG=1\n",
                "EXTEND_TIMEOUT_USEC=9000000\nSTATUS=verifying\n",
                "STOPPING=1\nSTATUS=bye\n",
            ]
        );
    }

    #[test]
    fn paths_and_abstract_names_are_spoken_to() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        check_conversation(&mut Notifier::new(path.to_str()).unwrap(), &socket);

        let name = format!("interlock-test-{}", std::process::id());
        let socket = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        check_conversation(&mut Notifier::new(Some(&format!("@{name}"))).unwrap(), &socket);
    }

    #[test]
    fn without_systemd_nothing_is_sent_and_a_bad_address_is_refused() {
        assert!(!Notifier::new(None).unwrap().ready("x"));
        for text in ["", "@", "relative/path", "vsock:2:1"] {
            assert!(matches!(Notifier::new(Some(text)), Err(NotifyError::Address(_))), "{text:?}");
        }
    }
}

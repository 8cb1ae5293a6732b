//! Asks chronyd whether it keeps the clock right, for a service that may not ask the kernel (`ProtectClock=yes`).
//!
//! One datagram to its command port on loopback (candm.h, version 6: `REQ_TRACKING`, `RPY_TRACKING`), which needs no
//! rights. Nothing is believed of an answer but its leap status, and only from that port and to this very question.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

/// Where chronyd answers unless it was told otherwise (`cmdport`).
pub const PLACE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 323);

const VERSION: u8 = 6;
const REQUEST: u8 = 1;
const REPLY: u8 = 2;
const REQ_TRACKING: u16 = 33;
const RPY_TRACKING: u16 = 5;
/// A request is as long as its answer, so that nobody can be flooded through chronyd.
const LEN: usize = 104;
/// Where the leap status stands: behind the header (28), the reference id (4), its address (20) and the stratum (2).
const LEAP_AT: usize = 54;
const LEAP_UNSYNCHRONISED: u16 = 3;

/// Whether the clock is kept right; none when nobody answers in this time, or not in this language.
#[must_use]
pub fn is_synchronised(place: SocketAddr, wait: Duration) -> Option<bool> {
    let socket = UdpSocket::bind((std::net::Ipv4Addr::LOCALHOST, 0)).ok()?;
    socket.connect(place).ok()?;
    socket.set_read_timeout(Some(wait)).ok()?;
    let sequence = super::machine::random::<4>().ok()?;
    let mut request = [0; LEN];
    request[0] = VERSION;
    request[1] = REQUEST;
    request[4..6].copy_from_slice(&REQ_TRACKING.to_be_bytes());
    request[8..12].copy_from_slice(&sequence);
    socket.send(&request).ok()?;
    let mut reply = [0; LEN];
    let length = socket.recv(&mut reply).ok()?;
    read(&reply[..length], sequence)
}

fn read(reply: &[u8], sequence: [u8; 4]) -> Option<bool> {
    let word = |at: usize| Some(u16::from_be_bytes(reply.get(at..at + 2)?.try_into().ok()?));
    let ours = reply.get(..2)? == [VERSION, REPLY]
        && word(4)? == REQ_TRACKING
        && word(6)? == RPY_TRACKING
        && word(8)? == 0
        && reply.get(16..20)? == sequence;
    ours.then_some(word(LEAP_AT)? != LEAP_UNSYNCHRONISED)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A chronyd that says this; what it was asked, and what was made of its answer.
    fn check(change: impl Fn(&mut [u8; LEN]) + Send + 'static, expected: Option<bool>) {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let place = server.local_addr().unwrap();
        let answer = std::thread::spawn(move || {
            let mut asked = [0; 256];
            let (length, from) = server.recv_from(&mut asked).unwrap();
            assert_eq!((length, &asked[..8]), (LEN, &[6, 1, 0, 0, 0, 33, 0, 0][..]));
            let mut reply = [0; LEN];
            reply[..2].copy_from_slice(&[6, 2]);
            reply[4..10].copy_from_slice(&[0, 33, 0, 5, 0, 0]);
            reply[16..20].copy_from_slice(&asked[8..12]);
            change(&mut reply);
            server.send_to(&reply, from).unwrap();
        });
        assert_eq!(is_synchronised(place, Duration::from_secs(30)), expected);
        answer.join().unwrap();
    }

    #[test]
    fn the_leap_status_of_an_answer_to_our_question_counts_and_nothing_else() {
        check(|_| (), Some(true));
        check(|reply| reply[LEAP_AT + 1] = 1, Some(true));
        check(|reply| reply[LEAP_AT + 1] = 3, Some(false));
        check(|reply| reply[16] ^= 1, None);
        check(|reply| reply[0] = 5, None);
        check(|reply| reply[9] = 1, None);
        // Nobody there.
        let closed = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        assert_eq!(is_synchronised(closed, Duration::from_secs(30)), None);
        assert_eq!(read(&[6, 2], [0; 4]), None);
    }
}

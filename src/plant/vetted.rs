//! A connection whose write requests say the truth about their own length.
//!
//! The decoder of tokio-modbus 0.17 indexes the values of functions 15 and 16 by the count that the request states,
//! and panics when fewer bytes follow. Modbus wants exception 3 (illegal value) there. So a request whose count and
//! bytes differ reaches the decoder as one of no values at the same address, which the plant refuses just so. Function
//! 23 has the same flaw and is not served at all: it reaches the decoder empty.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::model::{WRITE_COILS_MAX, WRITE_REGISTERS_MAX};

/// The head of a frame: transaction, protocol, length, unit.
const HEAD_LEN: usize = 7;

/// The longest frame of Modbus TCP (messaging on TCP/IP V1.0b, section 4.1).
const FRAME_LEN_MAX: usize = 260;

/// See the module.
#[derive(Debug)]
pub(super) struct Vetted<T> {
    inner: T,
    /// Bytes of a frame that is not complete yet.
    coming: Vec<u8>,
    /// Bytes that the decoder may have.
    ready: Vec<u8>,
}

impl<T> Vetted<T> {
    pub(super) fn new(inner: T) -> Vetted<T> {
        Vetted { inner, coming: Vec::new(), ready: Vec::new() }
    }

    /// Moves whole frames from what is coming to what is ready.
    fn sort(&mut self) -> io::Result<()> {
        while let Some(head) = self.coming.first_chunk::<HEAD_LEN>() {
            let len = usize::from(u16::from_be_bytes([head[4], head[5]])) + HEAD_LEN - 1;
            if !(HEAD_LEN + 1..=FRAME_LEN_MAX).contains(&len) {
                return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a frame of {len} bytes")));
            }
            if self.coming.len() < len {
                break;
            }
            let rest = self.coming.split_off(len);
            let frame = std::mem::replace(&mut self.coming, rest);
            self.ready.extend(vetted(frame));
        }
        Ok(())
    }
}

/// The frame, or the same request with no values.
fn vetted(mut frame: Vec<u8>) -> Vec<u8> {
    if frame.get(HEAD_LEN) == Some(&23) {
        frame.truncate(HEAD_LEN + 1);
        frame.extend([0; 9]);
        frame[4..6].copy_from_slice(&[0, 11]);
        return frame;
    }
    let Some([function @ (15 | 16), _, _, high, low, bytes, values @ ..]) = frame.get(HEAD_LEN..) else { return frame };
    let count = usize::from(u16::from_be_bytes([*high, *low]));
    let (needed, count_max) =
        if *function == 15 { (count.div_ceil(8), WRITE_COILS_MAX) } else { (count * 2, WRITE_REGISTERS_MAX) };
    if count > count_max || usize::from(*bytes) != needed || values.len() != needed {
        frame.truncate(HEAD_LEN + 3);
        frame.extend([0, 0, 0]);
        frame[4..6].copy_from_slice(&[0, 7]);
    }
    frame
}

impl<T: AsyncRead + Unpin> AsyncRead for Vetted<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        while self.ready.is_empty() {
            let mut bytes = [0; FRAME_LEN_MAX];
            let mut some = ReadBuf::new(&mut bytes);
            ready!(Pin::new(&mut self.inner).poll_read(cx, &mut some))?;
            if some.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            self.coming.extend_from_slice(some.filled());
            self.sort()?;
        }
        let len = self.ready.len().min(buf.remaining());
        buf.put_slice(&self.ready[..len]);
        self.ready.drain(..len);
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Vetted<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

//! One connection to one bus, and one exchange on it.
//!
//! After anything but an answer that fits (or an exception of the device, which is one) the connection is gone: a
//! late answer then has nothing to arrive on, and can never be taken for the answer to a later request. What is
//! counted here is bytes that the kernel took: as long as there are none, nothing was sent.

use std::borrow::Cow;
use std::io;
use std::os::fd::AsFd as _;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use interlock_domain::device::codec::Raw;
use interlock_domain::device::plan::{Put, Span};
use interlock_domain::device::point::{Table, WriteBy};
use interlock_domain::device::table::{Bus, Link, Parity};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_modbus::client::{Client as _, Context as Modbus};
use tokio_modbus::prelude::SlaveContext as _;
use tokio_modbus::{Error, ExceptionCode, Request, Response, Slave};
use tokio_serial::{SerialPort as _, SerialPortBuilderExt as _};

/// A connection that was not used for so long is replaced before the next request: a device that lost power in the
/// meantime, or a firewall that forgot us, would swallow a write without a word.
const IDLE_MAX: Duration = Duration::from_secs(30);

/// Most bytes of a device's nonsense that a message repeats.
const TEXT_LEN_MAX: usize = 120;

/// Why a step did not succeed. What each means for a write is what this type is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trouble {
    /// Nothing was sent.
    NotSent {
        /// A short stable word.
        code: &'static str,
        /// One sentence.
        text: String,
    },
    /// The device answered with an exception.
    Exception(u8),
    /// It was sent, and no answer came in time.
    NoAnswer,
    /// It was sent, and the connection broke.
    Broken(String),
    /// It was sent, and what came is no answer to it.
    Nonsense(String),
    /// Our own code panicked in the middle of it.
    Panicked(String),
    /// The lane was stopped in the middle of it.
    Stopped,
}

/// A connection.
pub(super) struct Wire {
    modbus: Modbus,
    sent: Arc<AtomicU64>,
    /// The same socket, to look whether the other side has closed it.
    probe: Option<std::net::TcpStream>,
    /// The line stays quiet for this long between two frames (Modbus over serial line V1.02, section 2.5.1.1).
    silence: Duration,
    used: Instant,
    fresh: bool,
}

impl Wire {
    /// Connects. Nothing is sent.
    pub(super) async fn open(bus: &Bus) -> Result<Wire, Trouble> {
        let sent = Arc::new(AtomicU64::new(0));
        let wire = |modbus, probe, silence| Wire {
            modbus,
            sent: Arc::clone(&sent),
            probe,
            silence,
            used: Instant::now(),
            fresh: true,
        };
        match &bus.link {
            Link::Tcp { host, port } => {
                let unreachable = |code, why: String| Trouble::NotSent { code, text: format!("{}: {why}", bus.link) };
                let stream = match timeout(bus.timeout, TcpStream::connect((host.as_str(), *port))).await {
                    Ok(Ok(stream)) => stream,
                    Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => {
                        return Err(unreachable("connection_refused", "connection refused".to_owned()));
                    }
                    Ok(Err(error)) => return Err(unreachable("unreachable", error.to_string())),
                    Err(_) => {
                        let millis = bus.timeout.as_millis();
                        return Err(unreachable("connect_timed_out", format!("no connection within {millis} ms")));
                    }
                };
                // One small frame at a time: waiting for more to send would only add to the answer's way.
                stream.set_nodelay(true).map_err(|error| unreachable("unreachable", error.to_string()))?;
                let probe = stream.as_fd().try_clone_to_owned();
                let probe = probe.map_err(|error| unreachable("unreachable", error.to_string()))?;
                let tapped = Tapped { inner: stream, sent: Arc::clone(&sent) };
                Ok(wire(tokio_modbus::client::tcp::attach(tapped), Some(probe.into()), Duration::ZERO))
            }
            Link::Serial { path, baud, parity, stop_bits } => {
                let no_port =
                    |error: String| Trouble::NotSent { code: "no_port", text: format!("{}: {error}", bus.link) };
                let port = tokio_serial::new(path.as_str(), *baud)
                    .parity(match parity {
                        Parity::None => tokio_serial::Parity::None,
                        Parity::Even => tokio_serial::Parity::Even,
                        Parity::Odd => tokio_serial::Parity::Odd,
                    })
                    .stop_bits(if *stop_bits == 2 { tokio_serial::StopBits::Two } else { tokio_serial::StopBits::One })
                    .open_native_async()
                    .map_err(|error| no_port(error.to_string()))?;
                // What is left of an answer that came too late for the connection before this one.
                port.clear(tokio_serial::ClearBuffer::All).map_err(|error| no_port(error.to_string()))?;
                let tapped = Tapped { inner: port, sent: Arc::clone(&sent) };
                Ok(wire(tokio_modbus::client::rtu::attach(tapped), None, silence(*baud)))
            }
        }
    }

    /// Whether the next request would go into the void: the other side has closed, has said something that nobody
    /// asked for, or has not been spoken to for a long time.
    pub(super) fn is_stale(&self) -> bool {
        let Some(socket) = &self.probe else { return false };
        if self.used.elapsed() > IDLE_MAX {
            return true;
        }
        // The socket is non-blocking: this asks the kernel and returns.
        match socket.peek(&mut [0; 1]) {
            Err(error) => error.kind() != io::ErrorKind::WouldBlock,
            Ok(_) => true,
        }
    }

    fn is_closed(&self) -> bool {
        self.probe.as_ref().is_some_and(|socket| matches!(socket.peek(&mut [0; 1]), Ok(0)))
    }

    /// Whether nothing was sent on it yet: then its breaking says nothing about its age.
    pub(super) fn is_fresh(&self) -> bool {
        self.fresh
    }

    /// One read.
    pub(super) async fn read(&mut self, span: &Span, limit: Duration) -> Result<Vec<u16>, Trouble> {
        let (at, count) = (span.address, span.count);
        let request = match span.table {
            Table::Coil => Request::ReadCoils(at, count),
            Table::Discrete => Request::ReadDiscreteInputs(at, count),
            Table::Holding => Request::ReadHoldingRegisters(at, count),
            Table::Input => Request::ReadInputRegisters(at, count),
        };
        let words = match (span.table, self.exchange(span.unit, request, limit).await?) {
            (Table::Coil, Response::ReadCoils(bits)) | (Table::Discrete, Response::ReadDiscreteInputs(bits)) => {
                // Bits come in whole bytes.
                if bits.len() != usize::from(count).div_ceil(8) * 8 {
                    return Err(Trouble::Nonsense(format!("{} bits for {count}", bits.len())));
                }
                bits.into_iter().take(usize::from(count)).map(u16::from).collect()
            }
            (Table::Holding, Response::ReadHoldingRegisters(words))
            | (Table::Input, Response::ReadInputRegisters(words)) => words,
            (_, other) => return Err(nonsense(&other)),
        };
        if words.len() == usize::from(count) {
            Ok(words)
        } else {
            Err(Trouble::Nonsense(format!("{} registers for {count}", words.len())))
        }
    }

    /// One write; a bit of a register is read first and put back with its neighbours. Between the two another master
    /// could change them: that is how such registers are, and why a coil is better.
    pub(super) async fn write(&mut self, put: &Put, limit: Duration) -> Result<(), Trouble> {
        let at = put.point.address;
        let (request, expected) = match put.raw {
            Raw::Bit(bit) => match put.point.function {
                WriteBy::Single => (Request::WriteSingleCoil(at, bit), Response::WriteSingleCoil(at, bit)),
                WriteBy::Multiple => {
                    let bits = Cow::Owned(vec![bit]);
                    (Request::WriteMultipleCoils(at, bits), Response::WriteMultipleCoils(at, 1))
                }
            },
            Raw::Word(word) => register(at, word, put.point.function),
            Raw::Pair(pair) => {
                let words = Cow::Owned(pair.to_vec());
                (Request::WriteMultipleRegisters(at, words), Response::WriteMultipleRegisters(at, 2))
            }
            Raw::BitOf(bit_at, bit) => {
                let span = Span { unit: put.unit, table: Table::Holding, address: at, count: 1, points: Vec::new() };
                let before = self.read(&span, limit).await.map_err(nothing_written)?;
                let word = put.point.with_bit(before.first().copied().unwrap_or(0), bit_at, bit);
                register(at, word, put.point.function)
            }
        };
        match self.exchange(put.unit, request, limit).await? {
            answer if answer == expected => Ok(()),
            answer => Err(nonsense(&answer)),
        }
    }

    async fn exchange(&mut self, unit: u8, request: Request<'_>, limit: Duration) -> Result<Response, Trouble> {
        if !self.silence.is_zero() {
            sleep_until(self.used + self.silence).await;
        }
        let before = self.sent.load(Ordering::Relaxed);
        self.modbus.set_slave(Slave(unit));
        let answer = timeout(limit, self.modbus.call(request)).await;
        self.used = Instant::now();
        let was_fresh = self.fresh;
        self.fresh = false;
        let sent = self.sent.load(Ordering::Relaxed) != before;
        let not_sent = |text: String| Trouble::NotSent { code: "connection_lost", text };
        match answer {
            Ok(Ok(Ok(response))) => Ok(response),
            Ok(Ok(Err(exception))) => Err(Trouble::Exception(u8::from(exception))),
            Ok(Err(Error::Transport(error))) if !sent => {
                self.fresh = was_fresh;
                Err(not_sent(error.to_string()))
            }
            Ok(Err(Error::Transport(error))) if is_malformed(&error) => Err(Trouble::Nonsense(cut(&error.to_string()))),
            // The library gives whatever errno happens to hold when the other side has closed.
            Ok(Err(Error::Transport(_))) if self.is_closed() => {
                Err(Trouble::Broken("the device closed the connection".to_owned()))
            }
            Ok(Err(Error::Transport(error))) => Err(Trouble::Broken(cut(&error.to_string()))),
            Ok(Err(Error::Protocol(error))) => Err(Trouble::Nonsense(cut(&error.to_string()))),
            Err(_) if !sent => Err(not_sent("the connection takes nothing".to_owned())),
            Err(_) => Err(Trouble::NoAnswer),
        }
    }
}

/// The request that writes one register, and the answer that fits it.
fn register(at: u16, word: u16, by: WriteBy) -> (Request<'static>, Response) {
    match by {
        WriteBy::Single => (Request::WriteSingleRegister(at, word), Response::WriteSingleRegister(at, word)),
        WriteBy::Multiple => {
            let words = Cow::Owned(vec![word]);
            (Request::WriteMultipleRegisters(at, words), Response::WriteMultipleRegisters(at, 1))
        }
    }
}

/// A read changes nothing: whatever became of it, the write after it was not sent.
fn nothing_written(trouble: Trouble) -> Trouble {
    let not_sent = |code, text| Trouble::NotSent { code, text };
    match trouble {
        Trouble::NotSent { .. } | Trouble::Exception(_) | Trouble::Panicked(_) | Trouble::Stopped => trouble,
        Trouble::NoAnswer => not_sent("timed_out", "no answer to the read before the write".to_owned()),
        Trouble::Broken(text) => not_sent("connection_lost", text),
        Trouble::Nonsense(text) => not_sent("bad_answer", text),
    }
}

/// A frame that the decoder took for none, or that was shorter than it said.
fn is_malformed(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput | io::ErrorKind::UnexpectedEof)
}

fn nonsense(answer: &Response) -> Trouble {
    Trouble::Nonsense(cut(&format!("answered {answer:?}")))
}

fn cut(text: &str) -> String {
    text.chars().take(TEXT_LEN_MAX).collect()
}

/// 3.5 characters of 11 bits, and 1.75 ms from 19200 baud on.
fn silence(baud: u32) -> Duration {
    if baud > 19_200 { Duration::from_micros(1750) } else { Duration::from_micros(38_500_000 / u64::from(baud.max(1))) }
}

/// The name of an exception (Modbus application protocol V1.1b3, section 7).
#[must_use]
pub fn exception_name(code: u8) -> String {
    ExceptionCode::new(code).to_string().to_lowercase()
}

/// Counts the bytes that went out.
#[derive(Debug)]
struct Tapped<T> {
    inner: T,
    sent: Arc<AtomicU64>,
}

impl<T: AsyncRead + Unpin> AsyncRead for Tapped<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Tapped<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let len = ready!(Pin::new(&mut self.inner).poll_write(cx, bytes))?;
        self.sent.fetch_add(len as u64, Ordering::Relaxed);
        Poll::Ready(Ok(len))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

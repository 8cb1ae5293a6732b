//! The Modbus TCP server of the plant: functions 1, 2, 3, 4, 5, 6, 15, 16 and the identification (43/14).
//!
//! One task owns the model; connections hold a bounded sender to it. Loopback only: a simulator that answers on a
//! network would be taken for the machine that it plays.

use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use interlock_domain::device::point::Table;
use interlock_domain::device::table::{Devices, Link};
use thiserror::Error;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;
use tokio_modbus::prelude::{ConformityLevel, DeviceIdObject, ReadCode, ReadDeviceIdentificationResponse};
use tokio_modbus::server::Service;
use tokio_modbus::server::tcp::Server;
use tokio_modbus::{ExceptionCode, Request, Response, SlaveRequest};

use super::model::{Model, Refusal};
use super::vetted::Vetted;
use crate::config::ConfigError;

/// How often the process moves. Fast enough that a person sees a motor run up, slow enough to cost nothing.
const STEP: Duration = Duration::from_millis(200);

/// Most connections at once. The daemon needs one; the rest is for people with a Modbus client.
const CONNECTIONS_MAX: usize = 32;

/// Requests that wait for the model. Each connection has one at a time.
const INBOX_LEN: usize = CONNECTIONS_MAX;

/// Why the plant does not run.
#[derive(Debug, Error)]
pub enum PlantError {
    /// The plant file is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// No port on loopback.
    #[error("the simulator cannot listen on 127.0.0.1")]
    Listen(#[source] io::Error),
}

/// A running simulator. It stops when this is dropped.
#[derive(Debug)]
pub struct Plant {
    /// Where it listens.
    pub address: SocketAddr,
    /// Its devices, with their buses on this address.
    pub devices: Devices,
    tasks: [JoinHandle<()>; 2],
}

impl Drop for Plant {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// Starts the simulator of a plant file on `port` of loopback (0: a free one). Every bus of the file is answered on
/// that one address.
///
/// # Errors
/// When the file is wrong or the port is taken.
pub async fn start(text: &str, file: &Path, port: u16) -> Result<Plant, PlantError> {
    let (model, mut devices) = Model::parse(text, file)?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await.map_err(PlantError::Listen)?;
    let address = listener.local_addr().map_err(PlantError::Listen)?;
    let buses = devices.buses().map(|bus| bus.name.clone()).collect::<Vec<_>>();
    for bus in buses {
        let link = Link::Tcp { host: address.ip().to_string(), port: address.port() };
        devices = devices.with_link(&bus, link);
    }
    let (asks, inbox) = mpsc::channel(INBOX_LEN);
    let owner = tokio::spawn(own(model, inbox));
    let accept = tokio::spawn(serve(listener, asks));
    tracing::info!(%address, devices = devices.len(), "simulator: the embedded plant, no real machine, Modbus TCP");
    Ok(Plant { address, devices, tasks: [owner, accept] })
}

struct Ask {
    request: SlaveRequest<'static>,
    answer: oneshot::Sender<Result<Response, ExceptionCode>>,
}

/// Owns the model and its time.
async fn own(mut model: Model, mut inbox: mpsc::Receiver<Ask>) {
    let mut ticks = tokio::time::interval(STEP);
    // A plant that was suspended goes on from where it stood; it does not run through the night in one second.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => model.step(STEP.as_secs_f64()),
            ask = inbox.recv() => match ask {
                Some(Ask { request, answer }) => {
                    let reply = answered(&mut model, &request);
                    if answer.send(reply).is_err() {
                        tracing::debug!("simulator: the client left before its answer");
                    }
                }
                None => break,
            },
        }
    }
}

async fn serve(listener: TcpListener, asks: mpsc::Sender<Ask>) {
    let seats = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let server = Server::new(listener);
    let connected = |stream: TcpStream, _: SocketAddr| {
        let (seats, asks) = (Arc::clone(&seats), asks.clone());
        async move {
            // Without a seat nobody else is let in: who comes waits in the listener's queue until somebody leaves.
            let seat = seats.acquire_owned().await.map_err(io::Error::other)?;
            Ok(Some((Desk { asks, _seat: seat }, Vetted::new(stream))))
        }
    };
    let ended = server.serve(&connected, |error| tracing::debug!(%error, "simulator: connection")).await;
    if let Err(error) = ended {
        tracing::warn!(%error, "simulator: stopped listening");
    }
}

/// One connection.
struct Desk {
    asks: mpsc::Sender<Ask>,
    _seat: OwnedSemaphorePermit,
}

impl Service for Desk {
    type Request = SlaveRequest<'static>;
    type Response = Response;
    type Exception = ExceptionCode;
    type Future = Pin<Box<dyn Future<Output = Result<Response, ExceptionCode>> + Send>>;

    fn call(&self, request: Self::Request) -> Self::Future {
        let asks = self.asks.clone();
        Box::pin(async move {
            let (answer, reply) = oneshot::channel();
            asks.send(Ask { request, answer }).await.map_err(|_| ExceptionCode::ServerDeviceFailure)?;
            reply.await.map_err(|_| ExceptionCode::ServerDeviceFailure)?
        })
    }
}

fn answered(model: &mut Model, request: &SlaveRequest<'_>) -> Result<Response, ExceptionCode> {
    let unit = request.slave;
    let bits = |words: Vec<u16>| words.into_iter().map(|word| word != 0).collect();
    let as_words = |bits: &[bool]| bits.iter().map(|bit| u16::from(*bit)).collect::<Vec<_>>();
    let answer = match &request.request {
        Request::ReadCoils(at, count) => {
            model.read(unit, Table::Coil, *at, *count).map(|it| Response::ReadCoils(bits(it)))
        }
        Request::ReadDiscreteInputs(at, count) => {
            model.read(unit, Table::Discrete, *at, *count).map(|it| Response::ReadDiscreteInputs(bits(it)))
        }
        Request::ReadHoldingRegisters(at, count) => {
            model.read(unit, Table::Holding, *at, *count).map(Response::ReadHoldingRegisters)
        }
        Request::ReadInputRegisters(at, count) => {
            model.read(unit, Table::Input, *at, *count).map(Response::ReadInputRegisters)
        }
        Request::WriteSingleCoil(at, bit) => {
            model.write(unit, Table::Coil, *at, &as_words(&[*bit])).map(|()| Response::WriteSingleCoil(*at, *bit))
        }
        Request::WriteSingleRegister(at, word) => {
            model.write(unit, Table::Holding, *at, &[*word]).map(|()| Response::WriteSingleRegister(*at, *word))
        }
        Request::WriteMultipleCoils(at, bits) => model
            .write(unit, Table::Coil, *at, &as_words(bits))
            .map(|()| Response::WriteMultipleCoils(*at, count(bits.len()))),
        Request::WriteMultipleRegisters(at, words) => model
            .write(unit, Table::Holding, *at, words)
            .map(|()| Response::WriteMultipleRegisters(*at, count(words.len()))),
        Request::ReadDeviceIdentification(code, first) => {
            return Ok(Response::ReadDeviceIdentification(identification(*code, *first)));
        }
        Request::ReportServerId
        | Request::MaskWriteRegister(..)
        | Request::ReadWriteMultipleRegisters(..)
        | Request::Custom(..) => return Err(ExceptionCode::IllegalFunction),
    };
    answer.map_err(|refusal| match refusal {
        Refusal::Address => ExceptionCode::IllegalDataAddress,
        Refusal::Value => ExceptionCode::IllegalDataValue,
        Refusal::Unit => ExceptionCode::GatewayTargetDevice,
    })
}

/// The model took it, so it is at most a few thousand.
fn count(len: usize) -> u16 {
    u16::try_from(len).unwrap_or(u16::MAX)
}

/// The basic objects (Modbus application protocol V1.1b3, section 6.21) say what this is.
fn identification(read_code: ReadCode, first: u8) -> ReadDeviceIdentificationResponse {
    let objects = [(0, "Interlock"), (1, "embedded-plant"), (2, concat!("simulator ", env!("CARGO_PKG_VERSION")))];
    ReadDeviceIdentificationResponse {
        read_code,
        conformity_level: ConformityLevel::BasicIdentification,
        more_follows: false,
        next_object_id: 0,
        device_id_objects: objects
            .into_iter()
            .filter(|(id, _)| *id >= first)
            .map(|(id, text)| DeviceIdObject { id, value: text.as_bytes().into() })
            .collect(),
    }
}

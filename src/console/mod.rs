//! The operator's console: pages for the person at the cabinet and the one in the control room.
//!
//! It is one more surface. What it shows and does are the verbs of the control socket, in the name of a person who came
//! with a token; the gate stays the only way to act. A page can be read without scripts, comes whole from this program,
//! and nothing in it that somebody else wrote is markup. Nobody is waited for without a bound: not for a head, not for a
//! form, not for a reader, and neither sessions nor streams of events are without number.

mod act;
mod beats;
mod door;
mod form;
mod html;
mod live;
mod page;
mod pages;
mod patient;
mod reasons;
mod visit;

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use interlock_domain::gate::rule::Rules;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{interval, timeout};
use tokio_rustls::TlsAcceptor;

use crate::agents::front::door::Hosts;
use crate::control;
use patient::Patient;

/// Connections at once; the next one waits in the kernel's queue. Each that is silent ends within [`HEAD_WAIT`].
const CONNECTIONS_MAX: usize = 256;

/// How long a client may take for the head of a request, and between two requests.
const HEAD_WAIT: Duration = Duration::from_secs(10);

/// Longest head that is read.
const HEAD_LEN_MAX: usize = 32 << 10;

/// How long open connections may take to finish when the daemon stops.
const DRAIN_WAIT: Duration = Duration::from_secs(2);

/// Pause after the system refused a connection: trying again at once would only burn the processor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The lines of `interlock doctor`; true for Chinese. It reads files, so it is called where it may block.
pub type Health = Arc<dyn Fn(bool) -> Vec<Value> + Send + Sync>;

/// What the console is made of.
pub struct Settings {
    /// How it may be reached.
    pub access: watch::Receiver<Arc<Access>>,
    /// The checks of the machine.
    pub health: Health,
    /// The rules that are in force.
    pub rules: watch::Receiver<Arc<Rules>>,
}

/// How the console may be reached: what a reload puts in the place of what was. Whether it speaks TLS stays.
pub struct Access {
    /// Names beside loopback's by which browsers may call us.
    pub hosts: Hosts,
    /// Speaks TLS, where others than this machine can reach us.
    pub tls: Option<TlsAcceptor>,
}

/// The console.
struct Console {
    context: Arc<control::Context>,
    settings: Settings,
    /// Where it listens: what `Host` says besides a name.
    address: SocketAddr,
    sessions: visit::Sessions,
    tries: visit::Tries,
    live: live::Live,
    beats: beats::Beats,
    // Looked at by each page with values; nobody waits while holding it.
    readings: pages::devices::Readings,
    // Written when a verification begins and ends; nobody waits while holding it.
    verification: Mutex<pages::evidence::Verification>,
}

/// Serves until told to stop.
pub async fn serve(
    listener: TcpListener,
    context: Arc<control::Context>,
    settings: Settings,
    mut stop: watch::Receiver<bool>,
) {
    let address = match listener.local_addr() {
        Ok(address) => address,
        Err(error) => {
            tracing::error!(%error, "the console has no address");
            return;
        }
    };
    let console = Arc::new(Console {
        context,
        settings,
        address,
        sessions: visit::Sessions::default(),
        tries: visit::Tries::default(),
        live: live::Live::default(),
        beats: beats::Beats::default(),
        readings: Mutex::default(),
        verification: Mutex::default(),
    });
    let watching = tokio::spawn(live::watch(Arc::clone(&console)));
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let told_later = stop.clone();
    let mut connections = JoinSet::new();
    let mut pause = interval(ACCEPT_PAUSE);
    loop {
        while connections.try_join_next().is_some() {}
        let accepted = tokio::select! {
            () = told(&mut stop) => break,
            accepted = accept(&listener, &places) => accepted,
        };
        match accepted {
            Ok((socket, from, place)) => {
                let (console, stop) = (Arc::clone(&console), told_later.clone());
                connections.spawn(async move {
                    console.connection(socket, from.ip(), stop).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "console: a connection was not accepted");
                pause.reset();
                pause.tick().await;
            }
        }
    }
    watching.abort();
    console.live.end();
    let drained = async { while connections.join_next().await.is_some() {} };
    if timeout(DRAIN_WAIT, drained).await.is_err() {
        connections.shutdown().await;
    }
}

/// Waits until it is said. A sender that is gone means the same.
async fn told(stop: &mut watch::Receiver<bool>) {
    let _gone = stop.wait_for(|said| *said).await.is_err();
}

async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> std::io::Result<(TcpStream, SocketAddr, tokio::sync::OwnedSemaphorePermit)> {
    let place = Arc::clone(places).acquire_owned().await.map_err(std::io::Error::other)?;
    let (socket, from) = listener.accept().await?;
    Ok((socket, from, place))
}

impl Console {
    fn access(&self) -> Arc<Access> {
        Arc::clone(&self.settings.access.borrow())
    }

    async fn connection(self: Arc<Console>, socket: TcpStream, from: IpAddr, stop: watch::Receiver<bool>) {
        let _slower = socket.set_nodelay(true);
        let socket = Patient::new(socket);
        match self.access().tls.clone() {
            None => self.talk(socket, from, stop).await,
            Some(tls) => match timeout(HEAD_WAIT, tls.accept(socket)).await {
                Ok(Ok(socket)) => self.talk(socket, from, stop).await,
                Ok(Err(_)) | Err(_) => tracing::debug!("console: a client did not get through TLS"),
            },
        }
    }

    async fn talk(
        self: Arc<Console>,
        socket: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        from: IpAddr,
        mut stop: watch::Receiver<bool>,
    ) {
        let service = service_fn(move |request| {
            let console = Arc::clone(&self);
            async move { Ok::<_, Infallible>(Box::pin(console.respond(request, from)).await) }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_WAIT)
            .max_buf_size(HEAD_LEN_MAX)
            .serve_connection(TokioIo::new(socket), service);
        let mut connection = std::pin::pin!(connection);
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = told(&mut stop) => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "console: a connection ended early");
        }
    }
}

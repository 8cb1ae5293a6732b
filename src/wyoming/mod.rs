//! Wyoming, the protocol of voice front ends: a `handle` service for transcripts, over TCP and a Unix socket.
//!
//! A sentence from a satellite is a sentence like any other: it goes to the listener, and what it means walks through
//! the gate. There is no password in this protocol, so the daemon serves it only where it was told to. A peer that one
//! of our own tools started is sent away: what is mediated must not speak for a person. Nobody is waited for without a
//! bound, and a peer chooses no length.

mod frame;
mod service;

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, BufReader};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use crate::engine::listener::Listener;
use crate::sys::family::Descent;
use crate::sys::peer;
use frame::Broken;

/// Connections served at once, over both ways: the satellites of one site. The next one waits in the kernel's queue.
const CLIENTS_MAX: usize = 64;

/// How long a connection may be silent between two events. Front ends connect anew for each sentence.
const IDLE_PATIENCE: Duration = Duration::from_secs(60);

/// Serves TCP until `stop` says so.
pub async fn serve_tcp(listener: TcpListener, ears: Listener, mut stop: watch::Receiver<bool>) {
    let places = Arc::new(Semaphore::new(CLIENTS_MAX));
    let mut clients = JoinSet::new();
    loop {
        let Some(place) = place(&places, &mut clients, &mut stop).await else { break };
        let accepted = tokio::select! {
            () = told(&mut stop) => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, from)) => {
                let (ears, local) = (ears.clone(), stream.local_addr());
                clients.spawn(async move {
                    let ours = match local {
                        Ok(local) => descent(local, from).await != Descent::Foreign,
                        Err(_) => true,
                    };
                    let (read, write) = stream.into_split();
                    converse(read, write, ears, from.ip().to_string(), ours).await;
                    drop(place);
                });
            }
            // Out of descriptors: those who are served go on, and one of them may leave.
            Err(error) => {
                tracing::warn!(%error, "no Wyoming client could be accepted");
                tokio::task::yield_now().await;
            }
        }
    }
    clients.shutdown().await;
}

/// Serves a Unix socket until `stop` says so.
pub async fn serve_unix(listener: UnixListener, ears: Listener, mut stop: watch::Receiver<bool>) {
    let places = Arc::new(Semaphore::new(CLIENTS_MAX));
    let mut clients = JoinSet::new();
    loop {
        let Some(place) = place(&places, &mut clients, &mut stop).await else { break };
        let accepted = tokio::select! {
            () = told(&mut stop) => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                let ears = ears.clone();
                clients.spawn(async move {
                    let peer = peer::Peer::of(stream.as_fd());
                    let ours = peer.as_ref().map_or(true, |peer| peer.descent() != Descent::Foreign);
                    let name = peer.map_or_else(|_| "unknown".to_owned(), |peer| format!("uid {}", peer.uid));
                    let (read, write) = stream.into_split();
                    converse(read, write, ears, name, ours).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "no Wyoming client could be accepted");
                tokio::task::yield_now().await;
            }
        }
    }
    clients.shutdown().await;
}

/// A place for one more client; none when the daemon stops.
async fn place(
    places: &Arc<Semaphore>,
    clients: &mut JoinSet<()>,
    stop: &mut watch::Receiver<bool>,
) -> Option<tokio::sync::OwnedSemaphorePermit> {
    loop {
        tokio::select! {
            () = told(stop) => return None,
            Some(_) = clients.join_next() => {}
            place = Arc::clone(places).acquire_owned() => return place.ok(),
        }
    }
}

/// Waits until the daemon stops; a sender that is gone means the same.
async fn told(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

/// Walks the kernel's tables, which may take a while on a busy box.
async fn descent(local: SocketAddr, from: SocketAddr) -> Descent {
    tokio::task::spawn_blocking(move || peer::tcp_descent(local, from)).await.unwrap_or(Descent::Unknown)
}

async fn converse<R, W>(read: R, mut write: W, ears: Listener, from: String, ours: bool)
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    if ours {
        let _ = frame::write(&mut write, &service::not_allowed()).await;
        return;
    }
    let mut read = BufReader::new(read);
    loop {
        let event = match frame::read(&mut read, IDLE_PATIENCE).await {
            Ok(Some(event)) => event,
            Ok(None) => return,
            Err(broken @ (Broken::TooLong { .. } | Broken::NotAnEvent | Broken::Slow)) => {
                // Where the next event would begin is not known any more.
                let _ = frame::write(&mut write, &service::broken(&broken)).await;
                return;
            }
            Err(Broken::Io(_)) => return,
        };
        for answer in service::answer(&ears, &from, event).await {
            if frame::write(&mut write, &answer).await.is_err() {
                return;
            }
        }
    }
}

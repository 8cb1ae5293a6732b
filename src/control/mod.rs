//! The Unix socket: the command line, voice front ends, and MCP over standard input.
//!
//! Bytes to words and back; nothing is decided here. A peer that one of our own tools started gets no verb at all: what
//! is mediated must not be able to approve itself.

mod agent;
mod ask;
mod learn;
mod lines;
mod people;
mod verbs;
pub mod wire;

use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use nix::unistd::Uid;
use serde_json::Value;
use tokio::io::{AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::unix::OwnedWriteHalf;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use crate::sys::family::Descent;
use crate::sys::peer::Peer;
use lines::Read;
pub(crate) use verbs::store;
pub use verbs::{Context, Told, tell};
use wire::{Kind, LINE_LEN_MAX, Line, Request, Says, Trouble, VERSION};

/// How many clients are served at once: people, front ends and MCP hosts of one box. The next one waits in the
/// kernel's queue until one leaves.
const CLIENTS_MAX: usize = 128;

/// How long a client may take to read one line of an answer before it is dropped.
const WRITE_PATIENCE: Duration = Duration::from_secs(10);

/// The mode of the socket: the service and its group.
const SOCKET_MODE: u32 = 0o660;

/// Makes the socket. One that a dead daemon left is replaced; one that answers is not.
///
/// # Errors
/// When the path is taken by something else, or cannot be made.
pub fn bind(path: &Path) -> io::Result<UnixListener> {
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory)?;
    }
    match std::fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                "the path is taken by something that is no socket",
            ));
        }
        Ok(_) if std::os::unix::net::UnixStream::connect(path).is_ok() => {
            return Err(io::Error::new(io::ErrorKind::AddrInUse, "another daemon answers on this socket"));
        }
        Ok(_) => std::fs::remove_file(path)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(SOCKET_MODE))?;
    Ok(listener)
}

/// Serves until `stop` says so, then lets the open conversations end with their current line.
pub async fn serve(listener: UnixListener, context: Arc<Context>, mut stop: watch::Receiver<bool>) {
    let told_later = stop.clone();
    let places = Arc::new(Semaphore::new(CLIENTS_MAX));
    let mut clients = JoinSet::new();
    loop {
        let place = tokio::select! {
            () = told(&mut stop) => break,
            Some(_) = clients.join_next() => continue,
            place = Arc::clone(&places).acquire_owned() => match place {
                Ok(place) => place,
                Err(_) => break,
            },
        };
        tokio::select! {
            () = told(&mut stop) => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let (context, stop) = (Arc::clone(&context), told_later.clone());
                    clients.spawn(async move {
                        client(stream, context, stop).await;
                        drop(place);
                    });
                }
                // Out of descriptors: those who are served go on, and one of them may leave.
                Err(error) => {
                    tracing::warn!(%error, "no client could be accepted");
                    tokio::task::yield_now().await;
                }
            },
        }
    }
    clients.shutdown().await;
}

/// Waits until the daemon stops; a sender that is gone means the same.
async fn told(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

async fn client(stream: UnixStream, context: Arc<Context>, mut stop: watch::Receiver<bool>) {
    let peer = Peer::of(stream.as_fd());
    let name = peer.as_ref().map_or_else(|_| UNKNOWN.to_owned(), |peer| user(Uid::from_raw(peer.uid)));
    // Whoever cannot be placed is not let in either: a walk that fails is what a fork storm would bring about.
    let ours = peer.as_ref().map_or(true, |peer| peer.descent() != Descent::Foreign);
    let (read, mut write) = stream.into_split();
    let mut reader = BufReader::new(read);
    let mut partial = Vec::new();
    loop {
        let line = tokio::select! {
            () = told(&mut stop) => return,
            line = lines::read_line(&mut reader, &mut partial, LINE_LEN_MAX) => line,
        };
        let line = match line {
            Ok(Read::Line(line)) => line,
            Ok(Read::End) | Err(_) => return,
            Ok(Read::TooLong) => {
                let trouble = Trouble::new(Kind::Protocol, format!("the line is longer than {LINE_LEN_MAX} bytes"));
                if answer(&mut write, Value::Null, Says::Error(trouble)).await.is_err() {
                    return;
                }
                continue;
            }
            Ok(Read::NotText) => {
                let trouble = Trouble::new(Kind::Protocol, "the line is not UTF-8");
                if answer(&mut write, Value::Null, Says::Error(trouble)).await.is_err() {
                    return;
                }
                continue;
            }
        };
        if line.trim().is_empty() {
            continue;
        }
        let request: Request = match serde_json::from_str(&line) {
            Ok(request) => request,
            Err(error) => {
                let trouble = Trouble::new(Kind::Protocol, format!("the line is not a request: {error}"))
                    .hint(r#"{"v": 1, "id": 1, "verb": "status", "args": {}}"#);
                if answer(&mut write, Value::Null, Says::Error(trouble)).await.is_err() {
                    return;
                }
                continue;
            }
        };
        let id = request.id.clone();
        if let Some(trouble) = refused(&request, ours) {
            if answer(&mut write, id, Says::Error(trouble)).await.is_err() {
                return;
            }
            continue;
        }
        if request.verb == "mcp" {
            // A client that went away in the middle of a message has nothing to be told.
            let _ = crate::agents::front::stdio::serve(reader, write, context.mcp.clone()).await;
            return;
        }
        let mut lines = verbs::Lines::new(&mut write, id);
        if request.verb == "agent" {
            if agent::carry_out(&context, &name, &request, &mut reader, &mut lines).await.is_err() {
                return;
            }
            continue;
        }
        if verbs::carry_out(&context, &name, request, &mut lines).await.is_err() {
            return;
        }
    }
}

/// Stands for a user whom the kernel does not name.
const UNKNOWN: &str = "unknown";

/// The name of a user, or its number.
fn user(uid: Uid) -> String {
    let known = nix::unistd::User::from_uid(uid).ok().flatten();
    known.map_or_else(|| format!("uid {uid}"), |user| user.name)
}

fn refused(request: &Request, ours: bool) -> Option<Trouble> {
    if request.v != VERSION {
        let found = request.v;
        return Some(Trouble::new(Kind::Protocol, format!("this daemon speaks version {VERSION}, not {found}")));
    }
    ours.then(|| {
        Trouble::new(Kind::Permission, "this process was started by a tool of the daemon")
            .hint("what is mediated cannot command or approve: ask from a terminal of your own")
    })
}

/// Writes one line of an answer.
pub(crate) async fn answer(write: &mut OwnedWriteHalf, id: Value, says: Says) -> io::Result<()> {
    let line = Line { v: VERSION, id, says };
    let mut text = serde_json::to_string(&line).map_err(io::Error::other)?;
    text.push('\n');
    send(write, text.as_bytes()).await
}

async fn send<W: AsyncWrite + Unpin>(write: &mut W, bytes: &[u8]) -> io::Result<()> {
    match tokio::time::timeout(WRITE_PATIENCE, write.write_all(bytes)).await {
        Ok(written) => written,
        Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read")),
    }
}

//! The daemon's socket, seen from the command line: one request, its lines, in order.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::error::{CliError, Exit};
use crate::control::wire::{Kind, LINE_LEN_MAX, Line, Says, Trouble, VERSION};

/// A connection for one request.
pub(super) struct Client {
    socket: PathBuf,
    stream: UnixStream,
}

impl Client {
    /// Connects to the daemon.
    ///
    /// # Errors
    /// When nobody listens there, or the caller may not.
    pub(super) fn connect(socket: &Path) -> Result<Client, CliError> {
        let stream = UnixStream::connect(socket).map_err(|error| {
            let denied = error.kind() == std::io::ErrorKind::PermissionDenied;
            let exit = if denied { Exit::Permission } else { Exit::Unavailable };
            CliError::new(exit, format!("no daemon at {}: {error}", socket.display())).hint(
                "start it with `interlock run` (or `systemctl start interlock`), or name its socket with --socket",
            )
        })?;
        Ok(Client { socket: socket.to_owned(), stream })
    }

    /// The one answer to a request.
    ///
    /// # Errors
    /// What the daemon said, or that it went away.
    pub(super) fn ask(self, verb: &str, args: Value) -> Result<Value, CliError> {
        let mut answer = None;
        self.each(verb, args, |value| {
            answer = Some(value);
            Ok(())
        })?;
        answer.ok_or_else(|| CliError::new(Exit::Bug, format!("the daemon gave no answer to {verb:?}")))
    }

    /// Hands each line of the answer to `take`, as it comes.
    ///
    /// # Errors
    /// What the daemon said, that it went away, or what `take` said.
    pub(super) fn each(
        mut self,
        verb: &str,
        args: Value,
        mut take: impl FnMut(Value) -> Result<(), CliError>,
    ) -> Result<(), CliError> {
        let request = json!({ "v": VERSION, "id": 1, "verb": verb, "args": args }).to_string();
        if request.len() > LINE_LEN_MAX {
            return Err(CliError::new(
                Exit::Usage,
                format!("the request has {} bytes; {LINE_LEN_MAX} fit", request.len()),
            ));
        }
        let gone = |socket: &Path, what: String| {
            CliError::new(Exit::Unavailable, format!("the daemon at {} {what}", socket.display()))
                .hint("`interlock evidence tail` shows what was recorded before it went away")
        };
        writeln!(self.stream, "{request}").map_err(|error| gone(&self.socket, error.to_string()))?;
        let mut lines = BufReader::new(self.stream);
        loop {
            let mut line = String::new();
            match lines.read_line(&mut line) {
                Ok(0) => {
                    return Err(gone(&self.socket, "closed the connection before its answer was whole".to_owned()));
                }
                Ok(_) => {}
                Err(error) => return Err(gone(&self.socket, error.to_string())),
            }
            let line: Line = serde_json::from_str(&line).map_err(|error| {
                CliError::new(Exit::Bug, format!("the daemon's answer is not of this protocol: {error}"))
            })?;
            match line.says {
                Says::Ok(value) => return take(value),
                Says::Item(value) => take(value)?,
                Says::End(_) => return Ok(()),
                Says::Error(trouble) => return Err(trouble.into()),
            }
        }
    }

    /// The raw stream, for a verb that turns the connection into something else.
    #[must_use]
    pub(super) fn into_stream(self) -> UnixStream {
        self.stream
    }
}

impl From<Trouble> for CliError {
    fn from(trouble: Trouble) -> CliError {
        let exit = match trouble.kind {
            Kind::Protocol | Kind::Usage => Exit::Usage,
            Kind::NotFound | Kind::NotSo => Exit::NotSo,
            Kind::Permission => Exit::Permission,
            Kind::Config => Exit::Config,
            Kind::Busy => Exit::Unavailable,
            Kind::Bug => Exit::Bug,
        };
        CliError { exit, message: trouble.message, hint: trouble.hint }
    }
}

//! `interlock mcp`: standard input and output, joined to the daemon's MCP over its socket.
//!
//! The bridge copies bytes and understands none of them: every check is the daemon's.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use serde_json::json;

use super::client::Client;
use super::error::{CliError, Exit};
use crate::control::wire::VERSION;

/// The verb that turns a control connection into an MCP stream.
const VERB: &str = "mcp";

pub(super) fn bridge(client: Client) -> Result<(), CliError> {
    let mut stream = client.into_stream();
    let hello = json!({ "v": VERSION, "id": 0, "verb": VERB, "args": {} });
    writeln!(stream, "{hello}").map_err(gone)?;
    let mut up = stream.try_clone().map_err(gone)?;
    // The thread ends with the process: it waits in a read of standard input, which nothing can interrupt.
    std::thread::Builder::new()
        .name("mcp-stdin".to_owned())
        .spawn(move || {
            copy(&mut std::io::stdin().lock(), &mut up);
            let _ = up.shutdown(std::net::Shutdown::Write);
        })
        .map_err(|error| CliError::new(Exit::Bug, format!("no thread for standard input: {error}")))?;
    copy(&mut stream, &mut std::io::stdout().lock());
    let _ = UnixStream::shutdown(&stream, std::net::Shutdown::Both);
    Ok(())
}

/// Copies until one side ends, flushing after each piece: a line that waits in a buffer is an answer that never comes.
fn copy(from: &mut impl Read, to: &mut impl Write) {
    let mut piece = vec![0; 1 << 16];
    loop {
        match from.read(&mut piece) {
            Ok(0) | Err(_) => return,
            Ok(length) => {
                if to.write_all(&piece[..length]).and_then(|()| to.flush()).is_err() {
                    return;
                }
            }
        }
    }
}

fn gone(error: std::io::Error) -> CliError {
    CliError::new(Exit::Unavailable, format!("the daemon went away: {error}"))
}

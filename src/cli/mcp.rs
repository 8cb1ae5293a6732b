//! `interlock mcp`: standard input and output, joined to the daemon's MCP over its socket; and the servers behind it.
//!
//! The bridge copies bytes and understands none of them: every check is the daemon's.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use serde_json::{Value, json};

use super::args::McpVerb;
use super::client::Client;
use super::error::{CliError, Exit};
use super::mcp_login::login;
use super::out::{Out, shown};
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

pub(super) fn servers(
    verb: &McpVerb,
    client: impl Fn() -> Result<Client, CliError>,
    out: &Out,
) -> Result<(), CliError> {
    match verb {
        McpVerb::List(args) => {
            let mut any = false;
            client()?.each("mcp.list", json!({}), |row| {
                any = true;
                if args.json { out.json(&row) } else { server(&row, out) }
            })?;
            if !any && !args.json {
                out.line(
                    out.pick("no MCP server is configured ([[mcp.server]])", "未配置 MCP 服务器（[[mcp.server]]）"),
                )?;
            }
            Ok(())
        }
        McpVerb::Login { server, port } => login(server, *port, client, out),
        McpVerb::Approve { server, tool, json } => {
            let answer = client()?.ask("mcp.approve", json!({ "server": server, "tool": tool }))?;
            if *json {
                return out.json(&answer);
            }
            let count = &answer["approved"];
            out.line(&match out.pick("en", "zh") {
                "zh" => format!("{server}：已批准 {count} 个工具的新定义"),
                _ => format!("{server}: {count} changed definitions are approved"),
            })
        }
    }
}

fn server(row: &Value, out: &Out) -> Result<(), CliError> {
    let tools = row["tools"].as_array().map_or(&[][..], Vec::as_slice);
    let count = format!("{} {}", tools.len(), out.pick("tools", "个工具"));
    let why = row["why"].as_str().map(|why| format!(": {why}")).unwrap_or_default();
    let eras: Vec<&str> = row["eras"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    out.headed(&shown(row, "server"), &format!("{}{why} [{}] {count}", shown(row, "state"), eras.join(", ")))?;
    for tool in tools.iter().filter(|tool| tool["state"] != "listed" && tool["state"] != "down") {
        out.line(&format!("  {} {} ({})", shown(tool, "state"), shown(tool, "tool"), shown(tool, "name")))?;
    }
    Ok(())
}

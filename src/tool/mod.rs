//! Runs what was ordered: files, processes, HTTP, devices, tools of other MCP servers. The only code that makes an effect.
//!
//! Each tool takes a checked input and its bounds and gives a [`Report`], never an error beside it: what was refused by
//! the world with authority is `Failed`, what nobody can know is `Lost`, and everything else is `Done`. No tool
//! decides whether it may act, asks anybody, retries, or writes evidence; the stations before and after do. What is
//! dropped half way must leave nothing running behind.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use interlock_domain::effect::Order;
use interlock_domain::effect::report::{Failure, Loss, Report};
use interlock_domain::surface::contract::OpId;
use interlock_domain::surface::nature::Key;
use interlock_domain::surface::tool::{Declared, Kind};
use serde_json::Value;
use tokio::sync::oneshot;

use crate::mcp::upward::Line;
use crate::sys::sandbox::Reach;

pub mod device;
pub mod endpoint;
pub mod files;
pub mod hook;
pub mod http;
pub mod mcp;
pub mod modbus;
mod process;
pub mod shell;
pub mod worktree;

/// What a caller is told about a tool, in English and in simplified Chinese.
#[derive(Debug, Clone, Copy)]
pub struct About {
    /// As callers write it.
    pub name: &'static str,
    /// For people: English, Chinese.
    pub title: [&'static str; 2],
    /// For people and models: English, Chinese.
    pub description: [&'static str; 2],
    /// The JSON schema (2020-12) of the input.
    pub input: fn() -> Value,
    /// The JSON schema (2020-12) of what [`Report::Done`] holds.
    pub output: fn() -> Value,
}

/// The tools that act on the world, with their bounds.
#[derive(Debug)]
pub struct Tools {
    /// Devices on field buses.
    pub device: device::DeviceTool,
    /// HTTP.
    pub http: http::Http,
    /// Bounds of files.
    pub files: files::Limits,
    /// Bounds of commands.
    pub shell: shell::Limits,
    /// Where commands run that name no directory.
    pub cwd: PathBuf,
    /// What commands may reach.
    pub reach: Arc<Reach>,
    /// The MCP servers behind us.
    pub servers: mcp::Servers,
}

/// The wish that a call should stop.
#[derive(Debug)]
pub struct Stop(oneshot::Receiver<()>);

/// The other end of a [`Stop`].
#[derive(Debug)]
pub struct Stopper(oneshot::Sender<()>);

impl Stop {
    /// Both ends.
    #[must_use]
    pub fn new() -> (Stop, Stopper) {
        let (sender, receiver) = oneshot::channel();
        (Stop(receiver), Stopper(sender))
    }

    /// Waits until somebody asks; for ever, if nobody does.
    pub async fn asked(self) {
        if self.0.await.is_err() {
            // Nobody will ever ask.
            std::future::pending::<()>().await;
        }
    }
}

impl Stopper {
    /// Asks it to stop. One that has ended does not hear it.
    pub fn stop(self) {
        let _ = self.0.send(());
    }
}

/// Runs an order: the only door to everything that acts on the world. `line` leads up to whoever asked for it.
pub async fn run(order: Order, tools: &Tools, line: Option<Line>, stop: Stop) -> Report {
    tokio::select! {
        report = act(&order, tools, line) => report,
        () = stop.asked() => Report::Lost(Loss::Stopped),
    }
}

async fn act(order: &Order, tools: &Tools, line: Option<Line>) -> Report {
    let input = order.args();
    match order.tool().kind() {
        Kind::Device(_) => tools.device.run(input).await,
        Kind::ReadFile => match judged(&order.nature().keys.reads) {
            Some(path) => files::read_file(input, path, tools.files).await,
            None => bad_input("no path was judged"),
        },
        Kind::WriteFile => match judged(&order.nature().keys.writes) {
            Some(path) => files::write_file(input, path, tools.files).await,
            None => bad_input("no path was judged"),
        },
        Kind::Shell => {
            let named = input["cwd"].as_str();
            let cwd = named.map(|cwd| order.facts().resolve(cwd).map(PathBuf::from));
            match cwd {
                None => shell::run(input, &tools.cwd, tools.shell, &tools.reach).await,
                Some(Some(cwd)) => shell::run(input, &cwd, tools.shell, &tools.reach).await,
                Some(None) => bad_input(format!("cwd {:?} cannot be resolved", named.unwrap_or_default())),
            }
        }
        Kind::Http => match &order.nature().contract.op_id {
            OpId::Key(header) => tools.http.run_keyed(input, header, &order.op().to_string()).await,
            OpId::None | OpId::Native => tools.http.run(input).await,
        },
        Kind::Declared(Declared { mcp: Some((server, raw)), .. }) => {
            let op = order.op().to_string();
            let key = match &order.nature().contract.op_id {
                OpId::Key(name) => Some((name.as_str(), op.as_str())),
                OpId::None | OpId::Native => None,
            };
            tools.servers.call((server, raw), order.tool(), input, key, line).await
        }
        Kind::Monitor(_) | Kind::Declared(_) => {
            failed("no_such_tool", format!("{} has no code in this build", order.tool().name()))
        }
    }
}

/// The canonical path that the gate judged: what is opened must be it.
fn judged(keys: &[Key]) -> Option<&Path> {
    keys.iter().find_map(|key| match key {
        Key::Path(path) => Some(Path::new(path)),
        Key::Device(_) | Key::Named(_) => None,
    })
}

/// Nothing was changed, and this is why.
pub(crate) fn failed(code: &'static str, message: impl Into<String>) -> Report {
    Report::Failed(Failure { code, message: message.into() })
}

/// A member of an input that the schema should have refused: nothing was changed.
pub(crate) fn bad_input(message: impl Into<String>) -> Report {
    failed("bad_input", message)
}

//! The console: where it listens, who may open it, and what it is made of.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use interlock_domain::gate::rule::Rules;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::{BootError, Places, mcp};
use crate::config::{Config, ConfigError};
use crate::console::{self, Access, Settings};
use crate::control::Context;

/// Where the console listens, before anybody is told of it; `None` where it is switched off.
pub(super) async fn listen(config: &Config) -> Result<Option<TcpListener>, BootError> {
    let Some(address) = config.console.listen else { return Ok(None) };
    let refused = |error| BootError::Listen { what: "the console", address, error };
    Ok(Some(TcpListener::bind(address).await.map_err(refused)?))
}

/// Where a browser finds it.
pub(super) fn url(config: &Config, address: Option<SocketAddr>) -> Option<String> {
    let scheme = if config.console.tls.is_some() { "https" } else { "http" };
    address.map(|address| format!("{scheme}://{address}/"))
}

/// How it may be reached. The certificate is read here: one that does not read is told at the start, or at the reload.
pub(super) fn access(config: &Config) -> Result<Arc<Access>, ConfigError> {
    let path = config.file.as_deref().unwrap_or(Path::new("(embedded default)"));
    let tls = match &config.console.tls {
        None => None,
        Some(tls) => Some(mcp::acceptor(&tls.certificate, &tls.key).map_err(|fact| ConfigError::of_file(path, fact))?),
    };
    Ok(Arc::new(Access { hosts: mcp::hosts(config.console.listen, &config.console.hosts), tls }))
}

/// What it is made of.
pub(super) fn settings(
    access: watch::Receiver<Arc<Access>>,
    places: &Places,
    rules: watch::Receiver<Arc<Rules>>,
) -> Settings {
    let places = places.clone();
    Settings { access, health: Arc::new(move |zh| (places.health)(&places, zh)), rules }
}

/// Serves it.
pub(super) fn start(
    listener: TcpListener,
    context: Arc<Context>,
    settings: Settings,
    stop: watch::Receiver<bool>,
) -> JoinHandle<()> {
    tokio::spawn(console::serve(listener, context, settings, stop))
}

//! Reads the configuration again: all of it is checked before any of it counts.

use std::path::PathBuf;
use std::sync::Arc;

use interlock_domain::device::table::Devices;
use interlock_domain::surface::Surface;
use tokio::sync::watch;

use super::{Places, commands, mcp, surface};
use crate::agents::bridge::Profiles;
use crate::config::mcp::McpSettings;
use crate::config::{self, Config};
use crate::control::wire::{Kind, Trouble};
use crate::engine::handle::{Grounds, Mediator};
use crate::engine::listener::Listener;
use crate::engine::servers::Servers;

/// Owns the configuration that is in force.
pub(super) struct Reloader {
    pub(super) places: Places,
    pub(super) config: Config,
    pub(super) listener: Listener,
    pub(super) mediator: Mediator,
    pub(super) servers: Servers,
    pub(super) surface_sender: watch::Sender<Surface>,
    pub(super) grounds_sender: watch::Sender<Arc<Grounds>>,
    pub(super) profiles_sender: watch::Sender<Arc<Profiles>>,
    /// The devices of the embedded plant, while it runs.
    pub(super) plant: Option<Devices>,
}

impl Reloader {
    /// Reads, checks, then swaps. On an error everything stays as it was.
    pub(super) async fn reload(&mut self) -> Result<String, Trouble> {
        let file = self.places.config.as_deref();
        let config = config::load(file).map_err(refused)?;
        let set = commands::load(&config).map_err(refused)?;
        self.fits(&config)?;
        let devices = match &self.plant {
            None => Arc::clone(&config.devices),
            Some(plant) => Arc::new(config::interlock::bind(plant.clone(), &config.interlocks).map_err(refused)?),
        };
        let bug = |error: super::BootError| Trouble::new(Kind::Bug, error.to_string());
        let grounds = surface::grounds(&config, &self.places.state).map_err(bug)?;
        let tools = surface::tools(&config, Arc::clone(&devices), &grounds, self.servers.down()).map_err(bug)?;
        let base = surface::base(&devices).map_err(bug)?;
        let servers = mcp::servers(&config).map_err(refused)?;
        let settings = surface::settings(&config, &self.places);
        let busy = |error: crate::engine::handle::NotTaken| Trouble::new(Kind::Busy, error.to_string());
        // The gate first: nothing that is understood anew may pass under old rules.
        let own = Surface::new(base.clone());
        self.mediator.reconfigure(settings, own.clone(), tools).await.map_err(busy)?;
        let _ = self.surface_sender.send(own);
        let _ = self.profiles_sender.send(Arc::new(mcp::profiles(&config.mcp)));
        // The tools of the servers come back in one step, under the new rules.
        self.servers.configure(base, Arc::clone(&config.rules), servers).await;
        let _ = self.grounds_sender.send(Arc::new(grounds));
        let count = set.len();
        self.listener.swap(set.ears(devices)).await.map_err(busy)?;
        self.config = config;
        let name = file.map_or_else(|| PathBuf::from("the embedded default"), PathBuf::from);
        Ok(format!("{} is in force: {count} commands, {} rules", name.display(), self.config.rules.all().len()))
    }

    /// What cannot change while the daemon runs is refused by name, with the whole file.
    fn fits(&self, config: &Config) -> Result<(), Trouble> {
        let restart = |key: &str| {
            Trouble::new(Kind::Config, format!("{key} cannot change while the daemon runs; nothing was changed"))
                .hint("restart the daemon, or put the old value back")
        };
        if self.plant.is_some() != config.devices.is_empty() {
            return Err(restart("whether the embedded plant runs (a first [[device]])"));
        }
        let (old, new) = (&self.config.mcp, &config.mcp);
        let tokens = |mcp: &McpSettings| -> Vec<_> {
            mcp.clients.iter().map(|client| (client.name.clone(), client.token.clone())).collect()
        };
        if (old.listen, &old.tls, &old.hosts, tokens(old)) != (new.listen, &new.tls, &new.hosts, tokens(new)) {
            return Err(restart("where MCP listens, and who may come in,"));
        }
        if (self.config.scan, self.config.tau, self.config.tier) != (config.scan, config.tau, config.tier) {
            return Err(restart("liveness"));
        }
        Ok(())
    }
}

fn refused(error: config::ConfigError) -> Trouble {
    let trouble = Trouble::new(Kind::Config, error.to_string());
    match error.hint {
        Some(hint) => trouble.hint(hint),
        None => trouble,
    }
}

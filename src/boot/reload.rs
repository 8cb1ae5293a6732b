//! Reads the configuration again: all of it is checked before any of it counts.

use std::path::PathBuf;
use std::sync::Arc;

use interlock_domain::device::table::Devices;
use interlock_domain::gate::rule::Rules;
use interlock_domain::surface::Surface;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{Places, commands, mcp, model, surface, update};
use crate::agents::bridge::Profiles;
use crate::agents::core::Core;
use crate::config::{self, Config};
use crate::control::wire::{Kind, Trouble};
use crate::engine::handle::{Grounds, Mediator};
use crate::engine::inference::Inference;
use crate::engine::learner::Learner;
use crate::engine::librarian::Librarian;
use crate::engine::servers::Servers;
use crate::engine::stamp;
use crate::engine::workflow::tool::Recipes;
use crate::record::{Row, kind};
use crate::store::queue::{Entry, Writer};
use crate::sys::notify::Notifier;

/// Owns the configuration that is in force.
pub(super) struct Reloader {
    pub(super) places: Places,
    pub(super) config: Config,
    pub(super) learner: Learner,
    pub(super) librarian: Option<Librarian>,
    pub(super) inference: Option<Inference>,
    /// What `status` says of updates.
    pub(super) updates_told: watch::Sender<Value>,
    pub(super) mediator: Mediator,
    pub(super) servers: Servers,
    pub(super) writer: Writer,
    pub(super) surface_sender: watch::Sender<Surface>,
    pub(super) grounds_sender: watch::Sender<Arc<Grounds>>,
    pub(super) model_sender: watch::Sender<Option<Arc<crate::engine::agent::Settings>>>,
    pub(super) devices_sender: watch::Sender<Arc<Devices>>,
    pub(super) recipes_sender: watch::Sender<Arc<Recipes>>,
    pub(super) profiles_sender: watch::Sender<Arc<Profiles>>,
    pub(super) rules_sender: watch::Sender<Arc<Rules>>,
    pub(super) console_sender: watch::Sender<Arc<crate::console::Access>>,
    pub(super) mcp: Arc<Core>,
    /// The devices of the embedded plant, while it runs.
    pub(super) plant: Option<Devices>,
}

impl Reloader {
    /// Reads, checks, then swaps, and writes down which of the two it was. On an error everything stays as it was.
    pub(super) async fn reload(&mut self) -> Result<String, Trouble> {
        let reloaded = self.swap().await;
        let file = self.places.config.as_ref().map(|file| file.display().to_string());
        let row = |to: &'static str| Row { to: Some(to.into()), ..Row::new(stamp::now(), kind::CONFIG) };
        let (row, reloaded) = match reloaded {
            Ok(said) => (row("in_force").detailed(&json!({ "file": file, "message": said })), Ok(said)),
            Err(refused) => {
                let detail = json!({
                    "file": refused.place.as_ref().map(|place| place.file.display().to_string()).or(file),
                    "line": refused.place.as_ref().map(|place| place.line),
                    "column": refused.place.as_ref().map(|place| place.column),
                    "key": refused.place.as_ref().map(|place| place.key.as_str()),
                    "message": refused.trouble.message,
                });
                let row = Row { cause: Some("CONFIG_REJECTED".into()), ..row("rejected") };
                (row.detailed(&detail), Err(refused.trouble))
            }
        };
        self.writer.append_or_count(Entry::urgent(row));
        reloaded
    }

    async fn swap(&mut self) -> Result<String, Refused> {
        let file = self.places.config.as_deref();
        let mut config = config::load(file).map_err(refused)?;
        let updates = update::settle(&mut config, &self.places.state);
        let models = model::of_config(&config, &updates).map_err(refused)?;
        let set = commands::load(&config).map_err(refused)?;
        self.fits(&config)?;
        let devices = match &self.plant {
            None => Arc::clone(&config.devices),
            Some(plant) => Arc::new(config::interlock::bind(plant.clone(), &config.interlocks).map_err(refused)?),
        };
        let bug = |error: super::BootError| Refused::from(Trouble::new(Kind::Bug, error.to_string()));
        let grounds = surface::grounds(&config, &self.places.state, self.model_sender.subscribe());
        let tools = surface::tools(&config, Arc::clone(&devices), &grounds, self.servers.down()).map_err(bug)?;
        let base = surface::base(&devices, &config).map_err(bug)?;
        let servers = mcp::servers(&config, &self.places.state).map_err(refused)?;
        let access = mcp::access(&config).map_err(refused)?;
        let console = super::console::access(&config).map_err(refused)?;
        let settings = surface::settings(&config, &self.places);
        let model =
            super::agent::settings(&config, &grounds).map_err(|error| Trouble::new(Kind::Config, error.to_string()))?;
        let busy = |error: crate::engine::handle::NotTaken| Refused::from(Trouble::new(Kind::Busy, error.to_string()));
        // The gate first: nothing that is understood anew may pass under old rules.
        let own = Surface::new(base.clone());
        self.mediator.reconfigure(settings, own.clone(), tools).await.map_err(busy)?;
        let _ = self.surface_sender.send(own);
        let _ = self.profiles_sender.send(Arc::new(mcp::profiles(&config.mcp)));
        // Before anything that may take a while: a token that is taken back is good for nothing from now on.
        self.mcp.admit(access);
        let _ = self.console_sender.send(console);
        // The tools of the servers come back in one step, under the new rules.
        self.servers.configure(base, Arc::clone(&config.rules), servers).await;
        let _ = self.grounds_sender.send(Arc::new(grounds));
        let _ = self.model_sender.send(model);
        let _ = self.devices_sender.send(Arc::clone(&devices));
        let _ = self.recipes_sender.send(Arc::clone(&config.recipes));
        let _ = self.rules_sender.send(Arc::clone(&config.rules));
        let count = set.len();
        let busy = |error: crate::engine::learner::NotLearned| Trouble::new(Kind::Busy, error.to_string());
        self.learner.rebase(set.basis(devices)).await.map_err(busy)?;
        if let Some(librarian) = &self.librarian {
            librarian.follow(config.knowledge_folders.clone(), model::shipped(&config));
        }
        if let (Some(inference), Some((sources, _))) = (&self.inference, models) {
            inference.replace(sources);
        }
        updates.note(&self.places.state, &self.writer);
        self.updates_told.send_replace(updates.to_json());
        self.config = config;
        let name = file.map_or_else(|| PathBuf::from("the embedded default"), PathBuf::from);
        Ok(format!("{} is in force: {count} commands, {} rules", name.display(), self.config.rules.all().len()))
    }

    /// What cannot change while the daemon runs is refused by name, with the whole file.
    fn fits(&self, config: &Config) -> Result<(), Refused> {
        let restart = |key: &str| -> Refused {
            Trouble::new(Kind::Config, format!("{key} cannot change while the daemon runs; nothing was changed"))
                .hint("restart the daemon, or put the old value back")
                .into()
        };
        if self.plant.is_some() != config.devices.is_empty() {
            return Err(restart("whether the embedded plant runs (a first [[device]])"));
        }
        let (old, new) = (&self.config.mcp, &config.mcp);
        if old.listen != new.listen {
            return Err(restart("where MCP listens ([mcp] listen, enabled)"));
        }
        if old.tls.is_some() != new.tls.is_some() {
            return Err(restart("whether MCP speaks TLS (tls-certificate, tls-key)"));
        }
        let (old, new) = (&self.config.console, &config.console);
        if old.listen != new.listen {
            return Err(restart("where the console listens ([console] listen, enabled)"));
        }
        if old.tls.is_some() != new.tls.is_some() {
            return Err(restart("whether the console speaks TLS ([console] tls-certificate, tls-key)"));
        }
        if (self.config.wyoming_listen, &self.config.wyoming_socket) != (config.wyoming_listen, &config.wyoming_socket)
        {
            return Err(restart("wyoming"));
        }
        let (old, new) = (&self.config.exports, &config.exports);
        if old != new {
            // A certificate that does not read is told with its place, before anybody restarts for it.
            super::export::examine(config).map_err(refused)?;
        }
        if old.mqtt != new.mqtt {
            return Err(restart("export.mqtt"));
        }
        if old.otlp != new.otlp {
            return Err(restart("export.otlp"));
        }
        if old.webhook != new.webhook {
            return Err(restart("export.webhook"));
        }
        if self.config.metrics_listen != config.metrics_listen {
            return Err(restart("metrics"));
        }
        if self.config.model != config.model {
            return Err(restart("model"));
        }
        if (self.config.scan, self.config.tau, self.config.tier) != (config.scan, config.tau, config.tier) {
            return Err(restart("liveness"));
        }
        let evidence = |config: &Config| (config.evidence_quota, config.evidence_hash);
        if evidence(&self.config) != evidence(config) {
            return Err(restart("evidence"));
        }
        Ok(())
    }
}

/// Why a configuration does not count, and where in it the reason stands.
struct Refused {
    trouble: Trouble,
    place: Option<Box<config::ConfigError>>,
}

impl From<Trouble> for Refused {
    fn from(trouble: Trouble) -> Refused {
        Refused { trouble, place: None }
    }
}

fn refused(error: config::ConfigError) -> Refused {
    let trouble = Trouble::new(Kind::Config, error.to_string());
    let trouble = match &error.hint {
        Some(hint) => trouble.hint(hint.clone()),
        None => trouble,
    };
    Refused { trouble, place: Some(Box::new(error)) }
}

/// Tells systemd that the daemon is ready again: also after a refusal, since the old configuration runs on.
pub(super) fn tell(notifier: &Notifier, reloaded: &Result<String, Trouble>, status: &str) {
    match reloaded {
        Ok(said) => {
            tracing::info!("{said}");
            notifier.ready(status);
        }
        Err(error) => {
            tracing::error!(kind = "CONFIG_REJECTED", "{}", error.message);
            notifier.ready(&format!("configuration rejected, the old one stays: {}", error.message));
        }
    }
}

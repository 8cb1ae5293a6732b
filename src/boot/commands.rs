//! The command sets of a configuration, compiled and bound.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use interlock_domain::command::bind::Step;
use interlock_domain::command::definition::Commands;
use interlock_domain::command::understanding::Understanding;
use interlock_domain::device::table::Devices;

use crate::config::{self, Config, ConfigError, commands, lexicon};
use crate::engine::listener::Ears;

/// Commands with what they are bound to.
pub struct CommandSet {
    understanding: Understanding,
    binds: BTreeMap<String, Vec<Step>>,
}

/// Reads the command files of a configuration, or the shipped ones.
///
/// # Errors
/// The first mistake in one of them.
pub fn load(config: &Config) -> Result<CommandSet, ConfigError> {
    let mut all = Commands::default();
    if config.command_files.is_empty() {
        all = commands::read(Path::new(commands::EMBEDDED_NAME), commands::EMBEDDED)?;
    }
    for file in config.command_files.iter().chain(&config.extensions.command_files) {
        let more = commands::read(file, &config::read(file)?)?;
        for command in &more.list {
            if all.list.iter().any(|known| known.id == command.id) {
                return Err(ConfigError::of_file(file, format!("the command {:?} is in another file too", command.id))
                    .hint("an id names one command over all files"));
            }
        }
        all.zones.extend(more.zones.into_iter().filter(|zone| !all.zones.contains(zone)).collect::<Vec<_>>());
        all.list.extend(more.list);
    }
    let mut binds = BTreeMap::new();
    for command in &all.list {
        if !command.bind.is_empty() {
            binds.insert(command.id.clone(), command.bind.clone());
        }
    }
    let words = lexicon::read(Path::new(lexicon::EMBEDDED_NAME), lexicon::EMBEDDED)?;
    let costs = lexicon::read_confusions(Path::new(lexicon::EMBEDDED_CONFUSIONS_NAME), lexicon::EMBEDDED_CONFUSIONS)?;
    Ok(CommandSet { understanding: Understanding::compile(all, &words, &costs), binds })
}

impl CommandSet {
    /// How many commands there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.understanding.commands().list.len()
    }

    /// There are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many are bound to a tool.
    #[must_use]
    pub fn bound(&self) -> usize {
        self.binds.len()
    }

    /// For the listener, with the devices that they may name.
    #[must_use]
    pub fn ears(self, devices: Arc<Devices>) -> Ears {
        Ears::new(self.understanding, self.binds, devices)
    }
}

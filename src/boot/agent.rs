//! What a configuration makes of the language model: its address, its key, its bounds.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use interlock_domain::block::Provider;
use interlock_domain::context::Budget;
use thiserror::Error;

use crate::config::Config;
use crate::config::agent::Key;
use crate::config::extend::Maintenance;
use crate::engine::agent::Settings;
use crate::engine::agent::upkeep::Check;
use crate::engine::handle::Grounds;
use crate::provider::{Dialect, request};
use crate::tool::endpoint::{Endpoint, Secret, Unusable};

/// The longest key that is read, bytes.
const KEY_BYTES_MAX: u64 = 16 * 1024;

/// The version of Anthropic's interface that we speak.
const ANTHROPIC_VERSION: &str = "2023-06-01";

/// Why the model cannot be asked.
#[derive(Debug, Error)]
pub(super) enum NoModel {
    /// The key is not there.
    #[error("agent key {}: {source}", path.display())]
    Key {
        /// Its file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Others can read the key.
    #[error("agent key {} can be read by others (mode {mode:03o}); chmod 600 it", path.display())]
    KeyIsOpen {
        /// Its file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// A credential is named, and the service manager gave none.
    #[error("agent key: there is no credential {name:?}; add LoadCredential={name}:/path to the unit")]
    NoCredential {
        /// Its name.
        name: String,
    },
    /// The key is no text, or too long for one.
    #[error("agent key {}: not a key of 1 to {KEY_BYTES_MAX} bytes of text", path.display())]
    NotAKey {
        /// Its file.
        path: PathBuf,
    },
    /// The address or a header is none.
    #[error(transparent)]
    Unusable(#[from] Unusable),
}

/// The settings of the runs of a model; `None` when the configuration names none.
///
/// # Errors
/// When the key cannot be had, or the address is none.
pub(super) fn settings(config: &Config, grounds: &Grounds) -> Result<Option<Arc<Settings>>, NoModel> {
    let Some(agent) = &config.agent else { return Ok(None) };
    let key = key(&agent.key)?;
    let bearer = key.as_ref().map(|key| format!("Bearer {}", key.reveal()));
    let mut headers: Vec<(&'static str, &str)> = Vec::new();
    match (agent.provider, &key, &bearer) {
        (Provider::Anthropic, key, _) => {
            headers.push(("anthropic-version", ANTHROPIC_VERSION));
            headers.extend(key.as_ref().map(|key| ("x-api-key", key.reveal())));
        }
        (Provider::Gemini, Some(key), _) => headers.push(("x-goog-api-key", key.reveal())),
        (Provider::Chat | Provider::Responses, _, Some(bearer)) => headers.push(("authorization", bearer)),
        (Provider::Chat | Provider::Responses | Provider::Gemini, _, _) => {}
    }
    let path = request::path(agent.provider, &agent.model);
    // People write the base address with or without what all of its paths begin with.
    let base = match agent.provider {
        Provider::Anthropic => agent.endpoint.strip_suffix("/v1").unwrap_or(&agent.endpoint),
        Provider::Chat | Provider::Responses | Provider::Gemini => &agent.endpoint,
    };
    let endpoint = Endpoint::new(&format!("{base}{path}"), &headers, agent.quiet)?;
    Ok(Some(Arc::new(Settings {
        endpoint: Arc::new(endpoint),
        dialect: Dialect::plain(agent.provider),
        model: agent.model.clone(),
        instructions: agent.instructions.clone(),
        turns_max: agent.turns_max,
        budget: Budget::of(agent.window, agent.output),
        output_max: u32::try_from(agent.output).unwrap_or(u32::MAX),
        hooks: agent.hooks.clone(),
        profiles: agent.profiles.clone(),
        skills: config.extensions.skills.clone(),
        checks: checks(&config.extensions.maintenance, grounds),
        cwd: grounds.cwd.clone(),
        rules: Arc::clone(&config.rules),
    })))
}

/// The declared checks, their paths from where tools work.
fn checks(declared: &[Maintenance], grounds: &Grounds) -> Vec<Check> {
    let check = |one: &Maintenance| Check {
        name: one.name.clone(),
        paths: one.paths.iter().map(|path| grounds.cwd.join(path)).collect(),
        command: one.check.clone(),
        timeout: one.timeout,
        reach: Arc::clone(&grounds.reach),
    };
    declared.iter().map(check).collect()
}

fn key(key: &Key) -> Result<Option<Secret>, NoModel> {
    let path = match key {
        Key::None => return Ok(None),
        Key::File(path) => path.clone(),
        Key::Credential(name) => match std::env::var_os("CREDENTIALS_DIRECTORY") {
            Some(directory) => Path::new(&directory).join(name),
            None => return Err(NoModel::NoCredential { name: name.clone() }),
        },
    };
    let io = |source| NoModel::Key { path: path.clone(), source };
    let of = std::fs::metadata(&path).map_err(io)?;
    let mode = std::os::unix::fs::PermissionsExt::mode(&of.permissions()) & 0o777;
    // The service manager's own files are 0400 and of root's making; a file of a person's may be anything.
    if matches!(key, Key::File(_)) && mode & 0o077 != 0 {
        return Err(NoModel::KeyIsOpen { path, mode });
    }
    if of.len() > KEY_BYTES_MAX {
        return Err(NoModel::NotAKey { path });
    }
    let text = std::fs::read(&path).map_err(io)?;
    match String::from_utf8(text) {
        Ok(text) if !text.trim().is_empty() => Ok(Some(Secret::new(&text))),
        Ok(_) | Err(_) => Err(NoModel::NotAKey { path }),
    }
}

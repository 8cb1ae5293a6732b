//! The file as it is written: names and types only. What the values mean is checked in the module above.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::Deserialize;
use serde::de::IgnoredAny;
use toml::Spanned;

/// `interlock.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct File {
    pub(super) version: Spanned<u32>,
    #[serde(default)]
    pub(super) mcp: super::mcp::Written,
    #[serde(default)]
    pub(super) console: super::console::Written,
    #[serde(default)]
    pub(super) ask: Ask,
    #[serde(default)]
    pub(super) safety: Safety,
    #[serde(default)]
    pub(super) policy: Policy,
    #[serde(default)]
    pub(super) liveness: Liveness,
    #[serde(default)]
    pub(super) evidence: Evidence,
    #[serde(default)]
    pub(super) commands: Commands,
    #[serde(default)]
    pub(super) learning: Learning,
    #[serde(default)]
    pub(super) wyoming: Wyoming,
    #[serde(default)]
    pub(super) http: Http,
    #[serde(default)]
    pub(super) metrics: super::export::Metrics,
    #[serde(default)]
    pub(super) model: Model,
    #[serde(default)]
    pub(super) update: Update,
    #[serde(default)]
    pub(super) knowledge: Knowledge,
    /// Read by `config::extend`.
    #[serde(default, rename = "alias")]
    pub(super) _alias: Option<IgnoredAny>,
    #[serde(default, rename = "skills")]
    pub(super) _skills: Option<IgnoredAny>,
    #[serde(default, rename = "plugins")]
    pub(super) _plugins: Option<IgnoredAny>,
    #[serde(default, rename = "maintenance")]
    pub(super) _maintenance: Option<IgnoredAny>,
    /// Read by `config::agent`.
    #[serde(default, rename = "agent")]
    pub(super) _agent: Option<IgnoredAny>,
    /// Read by `config::device`, which knows what may stand in them.
    #[serde(default, rename = "bus")]
    pub(super) _bus: Option<IgnoredAny>,
    #[serde(default, rename = "device")]
    pub(super) _device: Option<IgnoredAny>,
    /// Read by `config::workflow`.
    #[serde(default, rename = "workflow")]
    pub(super) _workflow: Option<IgnoredAny>,
    /// Read by `config::contract`.
    #[serde(default, rename = "contract")]
    pub(super) _contract: Option<IgnoredAny>,
    /// Read by `config::export`.
    #[serde(default, rename = "export")]
    pub(super) _export: Option<IgnoredAny>,
    /// Read by `config::interlock`.
    #[serde(default, rename = "interlock")]
    pub(super) _interlock: Option<IgnoredAny>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Ask {
    pub(super) timeout: Option<Spanned<u64>>,
    pub(super) dialogue: Option<Spanned<u64>>,
    pub(super) four_eyes: Option<Spanned<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Safety {
    pub(super) confirm_protective: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Policy {
    pub(super) mode: Option<Spanned<String>>,
    pub(super) rule_order: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) allow: Vec<Spanned<toml::Value>>,
    #[serde(default)]
    pub(super) ask: Vec<Spanned<toml::Value>>,
    #[serde(default)]
    pub(super) deny: Vec<Spanned<toml::Value>>,
    #[serde(default)]
    pub(super) files: Vec<Spanned<PathBuf>>,
    pub(super) denials_max: Option<Spanned<u32>>,
    pub(super) denials_ask: Option<bool>,
    pub(super) classifier: Option<Spanned<toml::Value>>,
    pub(super) classifier_fails_open: Option<bool>,
    #[serde(default)]
    pub(super) work_dirs: Vec<Spanned<PathBuf>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Liveness {
    pub(super) scan: Option<Spanned<f64>>,
    pub(super) tau: Option<Spanned<f64>>,
    pub(super) tier: Option<Spanned<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Evidence {
    pub(super) quota_mib: Option<Spanned<u64>>,
    pub(super) hash: Option<Spanned<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Update {
    pub(super) keys: Option<PathBuf>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Commands {
    #[serde(default)]
    pub(super) files: Vec<Spanned<PathBuf>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Wyoming {
    pub(super) listen: Option<Spanned<SocketAddr>>,
    pub(super) socket: Option<Spanned<PathBuf>>,
    pub(super) open_network: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Learning {
    pub(super) policy: Option<Spanned<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Http {
    pub(super) link_local: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Model {
    pub(super) enabled: Option<bool>,
    pub(super) provider: Option<Spanned<String>>,
    pub(super) manifest: Option<PathBuf>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Knowledge {
    #[serde(default)]
    pub(super) folders: Vec<Spanned<PathBuf>>,
}

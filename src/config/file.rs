//! The file as it is written: names and types only. What the values mean is checked in the module above.

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
    pub(super) ask: Ask,
    #[serde(default)]
    pub(super) safety: Safety,
    #[serde(default)]
    pub(super) policy: Policy,
    #[serde(default)]
    pub(super) liveness: Liveness,
    #[serde(default)]
    pub(super) commands: Commands,
    #[serde(default)]
    pub(super) http: Http,
    /// Read by `config::agent`.
    #[serde(default, rename = "agent")]
    pub(super) _agent: Option<IgnoredAny>,
    /// Read by `config::device`, which knows what may stand in them.
    #[serde(default, rename = "bus")]
    pub(super) _bus: Option<IgnoredAny>,
    #[serde(default, rename = "device")]
    pub(super) _device: Option<IgnoredAny>,
    /// Read by `config::interlock`.
    #[serde(default, rename = "interlock")]
    pub(super) _interlock: Option<IgnoredAny>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Ask {
    pub(super) timeout: Option<Spanned<u64>>,
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
    pub(super) allow: Vec<Spanned<String>>,
    #[serde(default)]
    pub(super) ask: Vec<Spanned<String>>,
    #[serde(default)]
    pub(super) deny: Vec<Spanned<String>>,
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
pub(super) struct Commands {
    #[serde(default)]
    pub(super) files: Vec<Spanned<PathBuf>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Http {
    pub(super) link_local: Option<bool>,
}

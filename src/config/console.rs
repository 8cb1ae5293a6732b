//! `[console]`: where people open the console.
//!
//! Who may come in is not in the file: people are let in and taken out by `interlock console token`, and their tokens
//! are nowhere in the clear.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::Spanned;

use super::ConfigError;
use super::mcp::{self, Tls, Wrong};

/// What `[console]` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Console {
    /// Where it listens; port 0 takes a free one; `None` switches it off.
    pub listen: Option<SocketAddr>,
    /// The certificate and key files, in PEM; needed for an address that is not loopback.
    pub tls: Option<Tls>,
    /// Names beside loopback's by which browsers may call us: what `Host` may say.
    pub hosts: Vec<String>,
}

/// `[console]` as it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Written {
    enabled: Option<bool>,
    listen: Option<Spanned<SocketAddr>>,
    tls_certificate: Option<Spanned<PathBuf>>,
    tls_key: Option<Spanned<PathBuf>>,
    #[serde(default)]
    hosts: Vec<Spanned<String>>,
}

/// Checks `[console]`.
pub(super) fn check(path: &Path, text: &str, written: &Written) -> Result<Console, ConfigError> {
    settings(written).map_err(|wrong| wrong.of(path, text))
}

fn settings(written: &Written) -> Result<Console, Wrong> {
    let tls = mcp::tls(written.tls_certificate.as_ref(), written.tls_key.as_ref())?;
    if let Some(address) = &written.listen {
        mcp::reachable(address, tls.is_some(), "the console")?;
    }
    let listen = written.listen.as_ref().map_or(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), |listen| *listen.get_ref());
    Ok(Console { listen: written.enabled.unwrap_or(true).then_some(listen), tls, hosts: mcp::hosts(&written.hosts)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(section: &str) -> Result<Console, String> {
        let text = format!("version = 1\n{section}");
        crate::config::check(Path::new("x.toml"), &text).map(|config| config.console).map_err(|error| error.to_string())
    }

    #[test]
    fn an_address_that_others_can_reach_needs_tls_and_nothing_is_guessed() {
        let usual = read("").unwrap();
        assert_eq!((usual.listen, usual.tls), (Some(([127, 0, 0, 1], 0).into()), None));
        assert_eq!(read("[console]\nenabled = false").unwrap().listen, None);
        let open = read("[console]\nlisten = \"0.0.0.0:7771\"").unwrap_err();
        assert!(open.contains("x.toml:3") && open.contains("the console listens on loopback only"), "{open}");
        let with =
            "[console]\nlisten = \"0.0.0.0:7771\"\ntls-certificate = \"/a\"\ntls-key = \"/b\"\nhosts = [\"Box\"]";
        assert_eq!(read(with).unwrap().hosts, ["box"]);
        for (section, fact) in [
            ("[console]\ntls-key = \"/b\"", "tls-key needs tls-certificate"),
            ("[console]\nhosts = [\"a/b\"]", "is no host name"),
            ("[console]\nport = 1", "unknown field"),
        ] {
            let refused = read(section).unwrap_err();
            assert!(refused.contains(fact), "{section}: {refused}");
        }
    }
}

//! Wires the sandbox of what tools start: where it writes, and what of ours it does not even read.
//!
//! Every file that the configuration names as a secret is hidden here; one that is forgotten is open to every command.

use std::path::{Path, PathBuf};

use crate::config::Config;
use crate::config::agent::Key;
use crate::config::export::Exports;
use crate::config::mcp::{Reach as ServerReach, Secret, Server};
use crate::sys::sandbox::{self, Reach};

/// Where configuration, keys and credentials lie, beside the state directory.
const KEPT: [&str; 2] = ["/etc/interlock", "/run/credentials"];

/// What a command may reach under this configuration.
pub(super) fn reach(config: &Config, state: &Path) -> Reach {
    let write = std::iter::once(state.join("work")).chain(config.work_dirs.iter().cloned()).collect();
    let credentials = std::env::var_os("CREDENTIALS_DIRECTORY").map(PathBuf::from);
    let kept = KEPT.iter().map(PathBuf::from).chain(credentials).chain([state.to_owned()]);
    Reach { write, hidden: kept.chain(secret_files(config)).collect() }
}

fn secret_files(config: &Config) -> Vec<PathBuf> {
    let mut secrets: Vec<&Secret> = config.mcp.clients.iter().map(|client| &client.token).collect();
    for Server { reach, .. } in config.mcp.servers.iter().chain(&config.extensions.servers) {
        match reach {
            ServerReach::Command { env_secrets, .. } => secrets.extend(env_secrets.values()),
            ServerReach::Url { token, oauth, .. } => {
                secrets.extend(token);
                secrets.extend(oauth.as_ref().and_then(|oauth| oauth.secret.as_ref()));
            }
        }
    }
    let Exports { mqtt, otlp, webhook } = &config.exports;
    secrets.extend(mqtt.iter().filter_map(|mqtt| mqtt.password.as_ref()));
    secrets.extend(webhook.iter().map(|webhook| &webhook.secret));
    secrets.extend(otlp.iter().filter_map(|otlp| otlp.reach.token.as_ref()));
    let reached = [otlp.as_ref().map(|to| &to.reach), webhook.as_ref().map(|to| &to.reach)];
    let tls = reached.into_iter().flatten().map(|reach| &reach.tls).chain(mqtt.iter().map(|to| &to.tls));
    secrets.extend(tls.flatten().filter_map(|tls| tls.certificate.as_ref()).map(|(_, key)| key));
    let mut files: Vec<PathBuf> = secrets.into_iter().filter_map(file).collect();
    let certified = [config.mcp.tls.as_ref(), config.console.tls.as_ref()];
    files.extend(certified.into_iter().flatten().map(|tls| tls.key.clone()));
    if let Some(Key::File(path)) = config.agent.as_ref().map(|agent| &agent.key) {
        files.push(path.clone());
    }
    files
}

fn file(secret: &Secret) -> Option<PathBuf> {
    match secret {
        Secret::File(path) => Some(path.clone()),
        Secret::Credential(_) => None,
    }
}

/// Says at the start what this kernel lacks: a command is then held by the gate and the service's own sandbox alone.
pub(super) fn tell() {
    let support = sandbox::support();
    if support.landlock.is_none() {
        tracing::warn!(
            kind = "SANDBOX",
            "no Landlock on this kernel: a command may write and read what the daemon may"
        );
    }
    if !support.seccomp {
        tracing::warn!(
            kind = "SANDBOX",
            "no filters of system calls on this kernel: a command has all of the daemon's"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_secret_that_the_configuration_names_is_hidden() {
        let text = r#"
version = 1
[policy]
work-dirs = ["/srv/work"]
[mcp]
tls-certificate = "/k/tls.pem"
tls-key = "/k/tls.key"
listen = "127.0.0.1:0"
[[mcp.client]]
name = "agent"
token-file = "/k/client"
[[mcp.server]]
name = "git"
command = ["git-server"]
[[mcp.server]]
name = "far"
url = "https://far.example/mcp"
token-file = "/k/server"
[export.mqtt]
device = "b"
broker = "mqtts://broker.example"
ca = "/k/ca.pem"
username = "box"
password-file = "/k/broker"
certificate = "/k/box.pem"
key-file = "/k/box.key"
[export.webhook]
device = "b"
url = "https://alarms.example/hook"
ca = "/k/ca.pem"
secret-file = "/k/webhook"
certificate = "/k/box.pem"
key-file = "/k/hook.key"
[export.otlp]
device = "b"
endpoint = "https://collector.example:4318"
ca = "/k/ca.pem"
token-file = "/k/collector"
certificate = "/k/box.pem"
key-file = "/k/otlp.key"
[agent]
kind = "anthropic"
endpoint = "https://model.example"
model = "m"
key-file = "/k/agent"
"#;
        let config = crate::config::check(Path::new("test.toml"), text).unwrap_or_else(|error| panic!("{error}"));
        let reach = reach(&config, Path::new("/s"));
        assert_eq!(reach.write, ["/s/work", "/srv/work"].map(PathBuf::from));
        let keys = ["/k/tls.key", "/k/client", "/k/server", "/k/agent", "/k/broker", "/k/box.key"];
        for hidden in
            ["/s", "/etc/interlock", "/k/webhook", "/k/hook.key", "/k/collector", "/k/otlp.key"].into_iter().chain(keys)
        {
            assert!(reach.hidden.contains(&PathBuf::from(hidden)), "{hidden}: {:?}", reach.hidden);
        }
    }
}

//! What a configuration makes of the plant's own systems: how they are reached, and who runs the way to them.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::mcp::place;
use crate::config::export::{Mqtt, Tls};
use crate::config::{Config, ConfigError};
use crate::engine::keeper::Keeper;
use crate::engine::log::{Acks, Log};
use crate::export::mqtt::{self, Exporter, Standing};

/// What the exporters work with.
pub(super) struct Sources {
    pub(super) log: Log,
    pub(super) keeper: Keeper,
    pub(super) acks: watch::Receiver<Acks>,
    pub(super) stop: watch::Receiver<bool>,
}

/// What runs, and how it goes.
#[derive(Default)]
pub(super) struct Running {
    pub(super) mqtt: Option<watch::Receiver<Standing>>,
    tasks: Vec<JoinHandle<()>>,
}

impl Running {
    /// Waits for the exporters: each has a short deadline of its own once the daemon stops.
    pub(super) async fn ended(self) {
        for task in self.tasks {
            task.await.ok();
        }
    }
}

/// Starts what the configuration names.
pub(super) fn start(config: &Config, sources: Sources) -> Result<Running, ConfigError> {
    let Some(written) = &config.mqtt else { return Ok(Running::default()) };
    let path = config.file.as_deref().unwrap_or(Path::new("(embedded default)"));
    let settings = settings(written).map_err(|fact| ConfigError::of_file(path, format!("export.mqtt: {fact}")))?;
    let Sources { log, keeper, acks, stop } = sources;
    let (exporter, standing) = Exporter::new(mqtt::Parts { settings, log, keeper, acks, stop });
    Ok(Running { mqtt: Some(standing), tasks: vec![tokio::spawn(exporter.run())] })
}

fn settings(mqtt: &Mqtt) -> Result<mqtt::Settings, String> {
    let password = mqtt.password.as_ref().map(place).transpose()?;
    Ok(mqtt::Settings {
        host: mqtt.host.clone(),
        port: mqtt.port,
        tls: mqtt.tls.as_ref().map(client).transpose()?.map(Arc::new),
        device: mqtt.device.clone(),
        client_id: mqtt.client_id.clone(),
        topic: mqtt.topic.clone(),
        login: mqtt.username.clone().map(|name| (name, password)),
        rate: mqtt.rate,
        backlog_max: mqtt.backlog_max,
    })
}

fn client(tls: &Tls) -> Result<rustls::ClientConfig, String> {
    // Installed once for the process; whoever comes second finds it there.
    let _known = rustls::crypto::ring::default_provider().install_default();
    let mut roots = rustls::RootCertStore::empty();
    for certificate in chain("ca", &tls.ca)? {
        roots.add(certificate).map_err(|error| format!("ca {}: {error}", tls.ca.display()))?;
    }
    let config = rustls::ClientConfig::builder().with_root_certificates(roots);
    let Some((certificate, key)) = &tls.certificate else { return Ok(config.with_no_client_auth()) };
    let key_path = place(key)?;
    let key =
        PrivateKeyDer::from_pem_file(&key_path).map_err(|error| format!("key {}: {error}", key_path.display()))?;
    config
        .with_client_auth_cert(chain("certificate", certificate)?, key)
        .map_err(|error| format!("{} and {}: {error}", certificate.display(), key_path.display()))
}

fn chain(what: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let told = |error: rustls::pki_types::pem::Error| format!("{what} {}: {error}", path.display());
    let chain: Vec<_> = CertificateDer::pem_file_iter(path).map_err(told)?.collect::<Result<_, _>>().map_err(told)?;
    if chain.is_empty() {
        return Err(format!("{what} {}: there is no certificate in it", path.display()));
    }
    Ok(chain)
}

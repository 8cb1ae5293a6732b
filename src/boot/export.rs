//! What a configuration makes of the plant's own systems: how they are reached, and who runs the way to them.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use interlock_domain::gate::policy::Mode;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::BootError;
use super::mcp::place;
use crate::config::export::{Authority, Mqtt, Tls};
use crate::config::{Config, ConfigError};
use crate::engine::agent::Handle as Models;
use crate::engine::handle::Mediator;
use crate::engine::keeper::Keeper;
use crate::engine::listener::{Listener, Reins};
use crate::engine::log::{Acks, Log};
use crate::engine::servers::Servers;
use crate::engine::tasks::Tasks;
use crate::export::metrics;
use crate::export::mqtt::{self, Exporter, Standing};
use crate::export::notice::{self, Teller};
use crate::store::queue::Writer;
use crate::sys::journal::Journal;

/// How long the end of the daemon waits for all of them: longer than the last word to a broker and the position that is
/// kept take.
const ENDED_WITHIN: Duration = Duration::from_secs(5);

/// What the exporters work with.
#[derive(Clone)]
pub(super) struct Sources {
    pub(super) log: Log,
    pub(super) keeper: Keeper,
    pub(super) acks: watch::Receiver<Acks>,
    pub(super) ears: Listener,
    pub(super) stop: watch::Receiver<bool>,
}

/// What `/metrics` is made of besides.
pub(super) struct Measured {
    pub(super) tasks: Tasks,
    pub(super) mediator: Mediator,
    pub(super) servers: Servers,
    pub(super) models: Models,
    pub(super) writer: Writer,
}

/// What runs, and how it goes.
#[derive(Default)]
pub(super) struct Running {
    pub(super) mqtt: Option<watch::Receiver<Standing>>,
    /// Where `/metrics` is.
    pub(super) metrics: Option<SocketAddr>,
    tasks: Vec<JoinHandle<()>>,
}

impl Running {
    /// Waits for the exporters. Whoever hangs with a disk that hangs is left behind: the log has what it was to tell.
    pub(super) async fn ended(self) {
        let until = Instant::now() + ENDED_WITHIN;
        for mut task in self.tasks {
            if tokio::time::timeout_at(until, &mut task).await.is_err() {
                tracing::warn!("an exporter did not end within {} s", ENDED_WITHIN.as_secs());
                task.abort();
            }
        }
    }
}

/// Starts what the configuration names.
pub(super) async fn start(config: &Config, sources: Sources, measured: Measured) -> Result<Running, BootError> {
    let mut running = Running::default();
    let (teller, standing) = Teller::new(notice::Parts {
        keeper: sources.keeper.clone(),
        mediator: measured.mediator.clone(),
        acks: sources.acks.clone(),
        stop: sources.stop.clone(),
        journal: Journal::of_this_service(),
    });
    running.tasks.push(tokio::spawn(teller.run()));
    if let Some(written) = &config.mqtt {
        let path = config.file.as_deref().unwrap_or(Path::new("(embedded default)"));
        let settings = settings(written).map_err(|fact| ConfigError::of_file(path, format!("export.mqtt: {fact}")))?;
        let Sources { log, keeper, acks, ears, stop } = sources.clone();
        let (exporter, standing) = Exporter::new(mqtt::Parts { settings, log, keeper, acks, ears, standing, stop });
        running.mqtt = Some(standing);
        running.tasks.push(tokio::spawn(exporter.run()));
    }
    if let Some(address) = config.metrics_listen {
        let refused = |error| BootError::Listen { what: "metrics", address, error };
        let listening = tokio::net::TcpListener::bind(address).await.map_err(refused)?;
        running.metrics = Some(listening.local_addr().map_err(refused)?);
        let stop = sources.stop.clone();
        let (metrics, counter) = metrics(sources, measured, running.mqtt.clone());
        running.tasks.push(tokio::spawn(counter.run()));
        running.tasks.push(tokio::spawn(metrics::serve(listening, Arc::new(metrics), stop)));
    }
    Ok(running)
}

fn metrics(
    sources: Sources,
    measured: Measured,
    mqtt: Option<watch::Receiver<Standing>>,
) -> (metrics::Metrics, metrics::Counter) {
    let Measured { tasks, mediator, servers, models, writer } = measured;
    metrics::Metrics::new(metrics::Sources {
        tasks,
        mediator,
        servers,
        log: sources.log,
        acks: sources.acks,
        queued: Box::new(move || writer.waiting()),
        mqtt,
        has_language_model: Box::new(move || models.is_configured()),
        stop: sources.stop,
    })
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
        commands: mqtt.commands.as_ref().map(|commands| (commands.topic.clone(), reins(commands.authority))),
    })
}

/// What a message of the plant may bring about at most. In the mode `plan` only reads and what is protective go on,
/// whatever a rule allows to others.
fn reins(authority: Authority) -> Reins {
    let (mode, answerable) = match authority {
        Authority::Protective => (Some(Mode::Plan), false),
        Authority::Rules => (None, false),
        Authority::Ask => (None, true),
    };
    Reins { mode, answerable, converses: false }
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

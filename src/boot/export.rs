//! What a configuration makes of the plant's own systems: how they are reached, and who runs the way to them.
//!
//! A receiver that cannot be set up (a certificate that does not read, a credential that is not there) is told of as an
//! alarm and left out: the box supervises and is safe without it. `interlock check` tells it beforehand, with its place.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use interlock_domain::gate::policy::Mode;
use rustls::pki_types::pem::{Error as PemError, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::BootError;
use super::mcp::place;
use crate::config::export::{self, Authority, Mqtt, Otlp, Reach, Sparkplug, Tls, Webhook};
use crate::config::mcp::Secret;
use crate::config::{self, Config, ConfigError};
use crate::engine::agent::Handle as Models;
use crate::engine::handle::Mediator;
use crate::engine::keeper::Keeper;
use crate::engine::listener::{Listener, Reins};
use crate::engine::log::{Acks, Log};
use crate::engine::servers::Servers;
use crate::engine::tasks::Tasks;
use crate::export::notice::{self, Board, Kind, Teller};
use crate::export::{Receiver, metrics, mqtt, otlp, post, sparkplug, webhook};
use crate::store::queue::Writer;
use crate::sys::clock;
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
    pub(super) receivers: Vec<Receiver>,
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

/// Why a receiver cannot be set up: the key of its table, and the fact.
struct Unmade {
    key: &'static str,
    fact: String,
    /// Whoever looks may not read a file; the daemon perhaps may.
    is_forbidden: bool,
}

/// Starts what the configuration names.
pub(super) async fn start(config: &Config, sources: Sources, measured: Measured) -> Result<Running, BootError> {
    let mut running = Running::default();
    let (teller, notices) = Teller::new(notice::Parts {
        keeper: sources.keeper.clone(),
        mediator: measured.mediator.clone(),
        acks: sources.acks.clone(),
        stop: sources.stop.clone(),
        journal: Journal::of_this_service(),
    });
    running.tasks.push(tokio::spawn(teller.run()));
    let path = config.file.as_deref().unwrap_or(Path::new("(embedded default)"));
    let mut set_up = |sink: &'static str, made: Option<Result<(Receiver, JoinHandle<()>), Unmade>>| {
        let source = format!("export:{sink}");
        let at = clock::wall();
        let alarm = match made {
            None => None,
            Some(Ok((receiver, task))) => {
                running.receivers.push(receiver);
                running.tasks.push(task);
                None
            }
            Some(Err(unmade)) => {
                let error = mistake(path, sink, unmade);
                let hint = error.hint.as_deref().unwrap_or_default();
                tracing::error!(kind = "EXPORT_OFF", sink, hint, "this receiver is left out: {error}");
                running.receivers.push(Receiver::left_out(sink, &error.to_string()));
                Some(error.to_string())
            }
        };
        let kept = sources.keeper.later(move |state| match alarm {
            Some(text) => state.raise_alarm(&source, &text, at).map(drop),
            // Nothing is written where nothing stands: a start on a full disk has nothing to say about it.
            None if state.standing_alarms()?.iter().any(|alarm| alarm.source == source) => {
                state.clear_alarms(&source, at).map(drop)
            }
            None => Ok(()),
        });
        if let Err(error) = kept {
            tracing::warn!(%error, sink, "the alarm of this receiver is not kept");
        }
    };
    let exports = &config.exports;
    set_up("mqtt", exports.mqtt.as_ref().map(|to| mqtt(to, sources.clone(), notices.clone())));
    let node = exports.mqtt.as_ref().and_then(|to| Some((to, to.sparkplug.as_ref()?)));
    set_up("sparkplug", node.map(|(to, node)| sparkplug(to, node, sources.clone(), measured.mediator.clone())));
    set_up("otlp", exports.otlp.as_ref().map(|to| otlp(to, sources.clone())));
    set_up("webhook", exports.webhook.as_ref().map(|to| webhook(to, sources.clone(), notices.clone())));
    if let Some(address) = config.metrics_listen {
        let refused = |error| BootError::Listen { what: "metrics", address, error };
        let listening = tokio::net::TcpListener::bind(address).await.map_err(refused)?;
        running.metrics = Some(listening.local_addr().map_err(refused)?);
        let stop = sources.stop.clone();
        let (metrics, counter) = metrics(sources, measured, running.receivers.clone());
        running.tasks.push(tokio::spawn(counter.run()));
        running.tasks.push(tokio::spawn(metrics::serve(listening, Arc::new(metrics), stop)));
    }
    Ok(running)
}

fn metrics(sources: Sources, measured: Measured, receivers: Vec<Receiver>) -> (metrics::Metrics, metrics::Counter) {
    let Measured { tasks, mediator, servers, models, writer } = measured;
    metrics::Metrics::new(metrics::Sources {
        tasks,
        mediator,
        servers,
        log: sources.log,
        acks: sources.acks,
        queued: Box::new(move || writer.waiting()),
        receivers,
        has_language_model: Box::new(move || models.is_configured()),
        stop: sources.stop,
    })
}

/// Whether each receiver that the configuration names could be set up, as far as this process may look: secrets of the
/// service are given to the service alone.
pub(super) fn examine(config: &Config) -> Result<(), ConfigError> {
    let path = config.file.as_deref().unwrap_or(Path::new("(embedded default)"));
    let exports = &config.exports;
    let all = [
        ("mqtt", exports.mqtt.as_ref().and_then(|to| to.tls.as_ref())),
        ("otlp", exports.otlp.as_ref().and_then(|to| to.reach.tls.as_ref())),
        ("webhook", exports.webhook.as_ref().and_then(|to| to.reach.tls.as_ref())),
    ];
    for (sink, tls) in all {
        let Some(tls) = tls else { continue };
        let found = match &tls.certificate {
            Some((certificate, Secret::Credential(_))) => {
                let alone = Tls { ca: tls.ca.clone(), certificate: None };
                client(&alone).and_then(|_| chain("certificate", certificate).map(drop))
            }
            None | Some((_, Secret::File(_))) => client(tls).map(drop),
        };
        match found {
            Err(unmade) if !unmade.is_forbidden => return Err(mistake(path, sink, unmade)),
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}

/// The mistake with its place, where the file can still be read.
fn mistake(path: &Path, sink: &str, unmade: Unmade) -> ConfigError {
    let text = config::read(path).unwrap_or_default();
    let hint = match unmade.key {
        "ca" => "ca is a PEM file with the certificates of whoever signs for the other side",
        "certificate" => {
            "certificate is a PEM file, this box's own first; its key stands in key-file or key-credential"
        }
        "key-file" => "a key is PEM, of the certificate beside it, and not protected by a passphrase",
        _ => "LoadCredential= in the unit names what systemd gives to the service",
    };
    let table = if sink == "sparkplug" { "mqtt" } else { sink };
    export::mistake(&text, path, table, unmade.key, unmade.fact).hint(format!("{hint}; then interlock check"))
}

fn mqtt(to: &Mqtt, sources: Sources, notices: watch::Receiver<Board>) -> Result<(Receiver, JoinHandle<()>), Unmade> {
    let settings = broker(to)?;
    let Sources { log, keeper, acks, ears, stop } = sources;
    let (exporter, receiver) = mqtt::Exporter::new(mqtt::Parts { settings, log, keeper, acks, ears, notices, stop });
    Ok((receiver, tokio::spawn(exporter.run())))
}

/// How a broker is reached.
fn broker(to: &Mqtt) -> Result<mqtt::Settings, Unmade> {
    Ok(mqtt::Settings {
        host: to.host.clone(),
        port: to.port,
        tls: to.tls.as_ref().map(client).transpose()?.map(Arc::new),
        device: to.device.clone(),
        client_id: to.client_id.clone(),
        topic: to.topic.clone(),
        login: match &to.username {
            None => None,
            Some(name) => Some((name.clone(), to.password.as_ref().map(secret("password-credential")).transpose()?)),
        },
        rate: to.rate,
        backlog_max: to.backlog_max,
        commands: to.commands.as_ref().map(|commands| (commands.topic.clone(), reins(commands.authority))),
    })
}

fn sparkplug(
    to: &Mqtt,
    node: &Sparkplug,
    sources: Sources,
    mediator: Mediator,
) -> Result<(Receiver, JoinHandle<()>), Unmade> {
    let settings = sparkplug::Settings {
        group: node.group.clone(),
        node: node.node.clone(),
        every: Duration::from_secs(node.every.into()),
    };
    let Sources { keeper, ears, stop, .. } = sources;
    let parts = sparkplug::Parts { settings, mqtt: broker(to)?, mediator, keeper, ears, stop };
    let (exporter, receiver) = sparkplug::Exporter::new(parts);
    Ok((receiver, tokio::spawn(exporter.run())))
}

fn otlp(to: &Otlp, sources: Sources) -> Result<(Receiver, JoinHandle<()>), Unmade> {
    let settings = otlp::Settings {
        post: reach(&to.reach)?,
        device: to.device.clone(),
        rate: to.rate,
        backlog_max: to.backlog_max,
    };
    let Sources { log, keeper, acks, stop, .. } = sources;
    let (exporter, receiver) = otlp::Exporter::new(otlp::Parts { settings, log, keeper, acks, stop })
        .map_err(|fact| Unmade { key: "endpoint", fact, is_forbidden: false })?;
    Ok((receiver, tokio::spawn(exporter.run())))
}

fn webhook(
    to: &Webhook,
    sources: Sources,
    notices: watch::Receiver<Board>,
) -> Result<(Receiver, JoinHandle<()>), Unmade> {
    let settings = webhook::Settings {
        post: reach(&to.reach)?,
        device: to.device.clone(),
        secret: secret("secret-credential")(&to.secret)?,
        kinds: to.kinds.iter().filter_map(|word| Kind::of_word(word)).collect(),
    };
    let Sources { keeper, stop, .. } = sources;
    let (exporter, receiver) = webhook::Exporter::new(webhook::Parts { settings, keeper, notices, stop })
        .map_err(|fact| Unmade { key: "url", fact, is_forbidden: false })?;
    Ok((receiver, tokio::spawn(exporter.run())))
}

fn reach(reach: &Reach) -> Result<post::Settings, Unmade> {
    let tls = match &reach.tls {
        Some(tls) => client(tls)?,
        // Nothing is asked over TLS, and nobody is trusted.
        None => with_roots(rustls::RootCertStore::empty()).with_no_client_auth(),
    };
    let token = reach.token.as_ref().map(secret("token-credential")).transpose()?;
    Ok(post::Settings { url: reach.url.clone(), tls: Arc::new(tls), token })
}

/// Where a secret lies.
fn secret(key: &'static str) -> impl Fn(&Secret) -> Result<PathBuf, Unmade> {
    move |secret| place(secret).map_err(|fact| Unmade { key, fact, is_forbidden: false })
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

fn with_roots(
    roots: rustls::RootCertStore,
) -> rustls::ConfigBuilder<rustls::ClientConfig, rustls::client::WantsClientCert> {
    // Installed once for the process; whoever comes second finds it there.
    let _known = rustls::crypto::ring::default_provider().install_default();
    rustls::ClientConfig::builder().with_root_certificates(roots)
}

fn client(tls: &Tls) -> Result<rustls::ClientConfig, Unmade> {
    let wrong =
        |key, path: &Path, why: String| Unmade { key, fact: format!("{}: {why}", path.display()), is_forbidden: false };
    let mut roots = rustls::RootCertStore::empty();
    for certificate in chain("ca", &tls.ca)? {
        roots.add(certificate).map_err(|error| wrong("ca", &tls.ca, error.to_string()))?;
    }
    let config = with_roots(roots);
    let Some((certificate, key)) = &tls.certificate else { return Ok(config.with_no_client_auth()) };
    let shown = chain("certificate", certificate)?;
    let key_path = secret("key-credential")(key)?;
    let key = PrivateKeyDer::from_pem_file(&key_path).map_err(|error| unread("key-file", &key_path, &error))?;
    config.with_client_auth_cert(shown, key).map_err(|error| {
        let why = format!("it does not go with the key {}: {error}", key_path.display());
        wrong("certificate", certificate, why)
    })
}

fn chain(key: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, Unmade> {
    let told = |error: PemError| unread(key, path, &error);
    let chain: Vec<_> = CertificateDer::pem_file_iter(path).map_err(told)?.collect::<Result<_, _>>().map_err(told)?;
    if chain.is_empty() {
        let fact = format!("{}: there is no certificate in it", path.display());
        return Err(Unmade { key, fact, is_forbidden: false });
    }
    Ok(chain)
}

fn unread(key: &'static str, path: &Path, error: &PemError) -> Unmade {
    let is_forbidden = matches!(error, PemError::Io(error) if error.kind() == ErrorKind::PermissionDenied);
    Unmade { key, fact: format!("{}: {error}", path.display()), is_forbidden }
}

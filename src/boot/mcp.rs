//! What a configuration makes of MCP: who may come in and how, which servers stand behind us, and what is remembered of
//! tasks.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use interlock_domain::surface::narrow::{Allow, Narrowing};
use interlock_domain::surface::promise::Promise;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::Value;
use tokio::sync::watch;

use crate::agents::bridge::{Profile, Profiles};
use crate::agents::core::Core;
use crate::agents::front::door::{Access, Hosts, Tokens};
use crate::agents::tasks::record::{Saved, Status};
use crate::config::mcp::{Client, EraChoice, McpSettings, Oauth, Reach, Secret, Server};
use crate::config::{Config, ConfigError};
use crate::engine::keeper::Keeper;
use crate::engine::servers::Setting;
use crate::mcp::era::Era;
use crate::mcp::rpc::RpcError;
use crate::store::state::mcp::KeptTask;
use crate::sys::clock;
use crate::tool::mcp as down;

/// Longest token that is read from a file.
const TOKEN_LEN_MAX: u64 = 4 << 10;

/// Shortest token that is taken: below, it can be guessed.
const TOKEN_LEN_MIN: usize = 16;

/// Where a secret lies.
pub(super) fn place(secret: &Secret) -> Result<PathBuf, String> {
    match secret {
        Secret::File(path) => Ok(path.clone()),
        Secret::Credential(name) => match std::env::var_os("CREDENTIALS_DIRECTORY") {
            Some(directory) => Ok(Path::new(&directory).join(name)),
            None => Err(format!("credential {name:?}: systemd gave none (LoadCredential={name}:… in the unit)")),
        },
    }
}

/// The servers behind us.
pub(super) fn servers(config: &Config, state: &Path) -> Result<Vec<Setting>, ConfigError> {
    let path = config.file.as_deref().unwrap_or(Path::new("(embedded default)"));
    let wrong =
        |server: &Server, fact: String| ConfigError::of_file(path, format!("mcp.server {}: {fact}", server.name));
    let promises: Arc<[Promise]> = config.contracts.clone().into();
    let setting = |server: &Server| {
        let reach = match &server.reach {
            Reach::Command { command, cwd, env, env_secrets } => {
                let mut secrets = BTreeMap::new();
                for (variable, secret) in env_secrets {
                    secrets.insert(variable.clone(), place(secret).map_err(|fact| wrong(server, fact))?);
                }
                down::Reach::Command { command: command.clone(), cwd: cwd.clone(), env: env.clone(), secrets }
            }
            Reach::Url { url, token, oauth } => {
                let file = |secret: &Option<Secret>| {
                    secret.as_ref().map(place).transpose().map_err(|fact| wrong(server, fact))
                };
                let login = |oauth: &Oauth| {
                    Ok::<_, ConfigError>(down::Oauth {
                        grant: if oauth.is_machine { down::Grant::Client } else { down::Grant::Person },
                        client_id: oauth.client_id.clone(),
                        client_secret: file(&oauth.secret)?,
                        scopes: oauth.scopes.clone(),
                        // Below `keys`, which nothing that is mediated may read.
                        file: state.join("keys/mcp").join(format!("{}.json", server.name)),
                    })
                };
                let oauth = oauth.as_ref().map(login).transpose()?;
                down::Reach::Url { url: url.clone(), token: file(token)?, oauth }
            }
        };
        let spec = down::Spec {
            name: server.name.clone(),
            reach,
            era: match server.era {
                EraChoice::Auto => None,
                EraChoice::Legacy => Some(Era::Legacy),
                EraChoice::Modern => Some(Era::Modern),
            },
            timeout: server.timeout,
            total_timeout: server.total_timeout,
        };
        Ok(Setting { spec, prefix: server.prefix.clone(), promises: Arc::clone(&promises) })
    };
    config.mcp.servers.iter().map(setting).collect()
}

/// What each client may do at most.
pub(super) fn profiles(mcp: &McpSettings) -> Profiles {
    let profile = |client: &Client| Profile {
        mode: client.mode,
        narrowing: Narrowing { profile: Allow::of(client.tools.clone()), ..Narrowing::default() },
    };
    mcp.clients.iter().map(|client| (client.name.clone(), profile(client))).collect()
}

/// Who may come in over HTTP, and how.
pub(super) fn access(config: &Config) -> Result<Access, ConfigError> {
    let path = config.file.as_deref().unwrap_or(Path::new("(embedded default)"));
    let mut tokens = Vec::new();
    for client in &config.mcp.clients {
        let wrong = |fact: String| ConfigError::of_file(path, format!("mcp.client {}: {fact}", client.name));
        tokens.push((client.name.clone(), token(&client.token).map_err(wrong)?));
    }
    let tls = match &config.mcp.tls {
        None => None,
        Some(tls) => {
            let wrong = |fact: String| ConfigError::of_file(path, fact);
            Some(acceptor(&tls.certificate, &tls.key).map_err(wrong)?)
        }
    };
    Ok(Access {
        tokens: Tokens::new(tokens.iter().map(|(name, token)| (name.as_str(), token.as_str()))),
        hosts: hosts(config.mcp.listen, &config.mcp.hosts),
        tls,
        rates: config.mcp.clients.iter().map(|client| (client.name.clone(), client.rate)).collect(),
    })
}

/// The names that `Host` may say beside loopback's: those of the file, and the address that is listened on.
pub(super) fn hosts(listen: Option<SocketAddr>, named: &[String]) -> Hosts {
    let own = listen.map(|address| address.ip()).filter(|ip| !ip.is_loopback() && !ip.is_unspecified());
    let own = own.map(|ip| if ip.is_ipv6() { format!("[{ip}]") } else { ip.to_string() });
    Hosts::new(named.iter().cloned().chain(own))
}

fn token(secret: &Secret) -> Result<String, String> {
    let path = place(secret)?;
    let told = |fact: String| format!("token {}: {fact}", path.display());
    let length = std::fs::metadata(&path).map_err(|error| told(error.to_string()))?.len();
    if length > TOKEN_LEN_MAX {
        return Err(told(format!("the file has {length} bytes; {TOKEN_LEN_MAX} are read at most")));
    }
    let text = std::fs::read_to_string(&path).map_err(|error| told(error.to_string()))?;
    let text = text.trim();
    if text.len() < TOKEN_LEN_MIN || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(told(format!("it is not one word of {TOKEN_LEN_MIN} or more visible characters")));
    }
    Ok(text.to_owned())
}

/// What speaks TLS with these files.
pub(super) fn acceptor(certificate: &Path, key: &Path) -> Result<tokio_rustls::TlsAcceptor, String> {
    // Installed once for the process; whoever comes second finds it there.
    let _known = rustls::crypto::ring::default_provider().install_default();
    let chain: Result<Vec<_>, _> = CertificateDer::pem_file_iter(certificate)
        .map_err(|error| format!("tls-certificate {}: {error}", certificate.display()))?
        .collect();
    let chain = chain.map_err(|error| format!("tls-certificate {}: {error}", certificate.display()))?;
    let key_of = PrivateKeyDer::from_pem_file(key).map_err(|error| format!("tls-key {}: {error}", key.display()))?;
    let mut config = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(chain, key_of)
        .map_err(|error| format!("{} and {}: {error}", certificate.display(), key.display()))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(tokio_rustls::TlsAcceptor::from(Arc::new(config)))
}

/// Tells the tasks of the protocol what an earlier life left of them.
pub(super) fn restore(core: &Core, kept: Vec<KeptTask>) {
    core.tasks.restore(kept.into_iter().filter_map(saved).collect());
}

fn saved(kept: KeptTask) -> Option<Saved> {
    let read = |text: &str| serde_json::from_str::<Value>(text).ok();
    let end = match (kept.result.as_deref(), kept.error.as_deref()) {
        (Some(result), _) => Some(Ok(read(result)?)),
        (None, Some(error)) => Some(Err(RpcError::from_value(&read(error)?))),
        (None, None) => None,
    };
    Some(Saved {
        id: kept.id,
        owner: kept.owner,
        place: kept.place,
        tool: kept.tool,
        status: Status::read(&kept.status)?,
        message: kept.message,
        created: kept.created,
        updated: kept.updated,
        ttl_ms: kept.ttl_ms,
        end,
    })
}

fn kept(saved: &Saved) -> KeptTask {
    let (result, error) = match &saved.end {
        Some(Ok(result)) => (Some(result.to_string()), None),
        Some(Err(error)) => (None, Some(error.to_value().to_string())),
        None => (None, None),
    };
    KeptTask {
        id: saved.id.clone(),
        owner: saved.owner.clone(),
        place: saved.place.clone(),
        tool: saved.tool.clone(),
        status: saved.status.as_str().to_owned(),
        message: saved.message.clone(),
        created: saved.created,
        updated: saved.updated,
        ttl_ms: saved.ttl_ms,
        result,
        error,
    }
}

/// Writes tasks down as they change, until the daemon stops.
pub(super) async fn keep_tasks(core: Arc<Core>, keeper: Keeper, mut stop: watch::Receiver<bool>) {
    let (mut news, mut made) = (core.tasks.news(), core.tasks.made());
    let mut written: BTreeMap<String, Saved> = BTreeMap::new();
    let mut is_last = false;
    loop {
        let upto = *made.borrow_and_update();
        let all = core.tasks.saved();
        let changed: Vec<Saved> = all.iter().filter(|task| written.get(&task.id) != Some(task)).cloned().collect();
        if !changed.is_empty() {
            let rows: Vec<KeptTask> = changed.iter().map(kept).collect();
            match keeper.with(move |state| state.keep_tasks(&rows, clock::wall())).await {
                Ok(()) => written = all.into_iter().map(|task| (task.id.clone(), task)).collect(),
                Err(error) => tracing::error!(%error, "tasks of clients were not written down"),
            }
        }
        core.tasks.keep(upto);
        if is_last {
            return;
        }
        tokio::select! {
            _ = news.recv() => {}
            changed = made.changed() => if changed.is_err() {
                return;
            },
            _ = stop.wait_for(|stop| *stop) => is_last = true,
        }
        // What else has changed by now goes with it.
        while news.try_recv().is_ok() {}
    }
}

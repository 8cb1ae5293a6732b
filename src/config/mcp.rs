//! `[mcp]`: where agents reach us, who they are, and the MCP servers that stand behind us.
//!
//! A secret never stands in the file: it is named, and read from a systemd credential or a file when it is used, so
//! that a copy of the configuration gives nothing away.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use interlock_domain::gate::policy::Mode;
use serde::Deserialize;
use toml::Spanned;

use super::ConfigError;

/// Servers behind one box: each is a process or a connection that is looked after.
pub const SERVERS_MAX: usize = 64;

/// Clients that are told apart by their tokens.
const CLIENTS_MAX: usize = 256;

/// Requests that a client may send in a second: more than an agent ever does, less than takes the box from the others.
const RATE: u32 = 500;
const RATES: std::ops::RangeInclusive<u32> = 1..=100_000;

/// Longest name of a server, and longest prefix: names of tools keep within 64 characters, and the tool's own part
/// should be readable in them.
const NAME_LEN_MAX: usize = 32;

/// How long a call waits without a sign of life from its server.
const TIMEOUT: Duration = Duration::from_secs(60);

/// How long a call takes at most, whatever progress its server reports.
const TOTAL_TIMEOUT: Duration = Duration::from_secs(600);

/// The bounds of both, in seconds.
const TIMEOUT_SECONDS: std::ops::RangeInclusive<f64> = 0.1..=86_400.0;

/// What `[mcp]` says.
#[derive(Debug, Clone, PartialEq)]
pub struct McpSettings {
    /// Where MCP over HTTP listens; port 0 takes a free one; `None` switches it off.
    pub listen: Option<SocketAddr>,
    /// The certificate and key files, in PEM; needed for an address that is not loopback.
    pub tls: Option<Tls>,
    /// Names beside loopback's under which clients may call us: what `Host` may say.
    pub hosts: Vec<String>,
    /// Who may come in over HTTP; nobody in here means everybody on this machine.
    pub clients: Vec<Client>,
    /// The servers behind us, in the order of the file.
    pub servers: Vec<Server>,
}

/// Where the certificate lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tls {
    /// The chain, PEM.
    pub certificate: PathBuf,
    /// The key, PEM.
    pub key: PathBuf,
}

/// A secret by its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Secret {
    /// A systemd credential (`LoadCredential=`).
    Credential(String),
    /// A file.
    File(PathBuf),
}

/// A client that comes with a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Client {
    /// Its name: in evidence, and in front of what the program at the other end calls itself.
    pub name: String,
    /// Its token.
    pub token: Secret,
    /// The mode of its runs, where it is another than `[policy] mode`.
    pub mode: Option<Mode>,
    /// The tools that it sees, by name, or all of a server's by `mcp__SERVER`; `None` for all.
    pub tools: Option<Vec<String>>,
    /// Requests that it may send in a second.
    pub rate: u32,
}

/// A server behind us.
#[derive(Debug, Clone, PartialEq)]
pub struct Server {
    /// Its name: rules call its tools `mcp__NAME__TOOL`.
    pub name: String,
    /// How it is reached.
    pub reach: Reach,
    /// What stands before the names of its tools, as our clients see them.
    pub prefix: String,
    /// Which protocol it speaks.
    pub era: EraChoice,
    /// How long a call waits without a sign of life.
    pub timeout: Duration,
    /// How long a call takes at most.
    pub total_timeout: Duration,
}

/// How a server is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reach {
    /// It is our child.
    Command {
        /// Program and arguments.
        command: Vec<String>,
        /// Where it runs; the state's working directory where it does not say.
        cwd: Option<PathBuf>,
        /// Variables of its environment.
        env: BTreeMap<String, String>,
        /// Variables whose values are secrets.
        env_secrets: BTreeMap<String, Secret>,
    },
    /// It is somewhere.
    Url {
        /// Its address, `http` or `https`.
        url: String,
        /// The bearer token that it wants.
        token: Option<Secret>,
        /// How a token is had by login.
        oauth: Option<Oauth>,
    },
}

/// How a server is logged in at (MCP, "Authorization").
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Oauth {
    /// The secret alone is enough (the grant `client_credentials`); else a person logs in once.
    pub is_machine: bool,
    /// The client as the authorization server knows it; without one it is made known there.
    pub client_id: Option<String>,
    /// Its secret.
    pub secret: Option<Secret>,
    /// What is asked for, where the server does not say.
    pub scopes: Vec<String>,
}

/// Which protocol a server speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EraChoice {
    /// Found out.
    Auto,
    /// Up to 2025-11-25.
    Legacy,
    /// 2026-07-28.
    Modern,
}

/// `[mcp]` as it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Written {
    listen: Option<Spanned<SocketAddr>>,
    enabled: Option<bool>,
    tls_certificate: Option<Spanned<PathBuf>>,
    tls_key: Option<Spanned<PathBuf>>,
    #[serde(default)]
    hosts: Vec<Spanned<String>>,
    #[serde(default)]
    client: Vec<Spanned<WrittenClient>>,
    #[serde(default)]
    server: Vec<Spanned<WrittenServer>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct WrittenClient {
    name: Spanned<String>,
    token_credential: Option<String>,
    token_file: Option<PathBuf>,
    mode: Option<Spanned<String>>,
    tools: Option<Vec<Spanned<String>>>,
    rate: Option<Spanned<u32>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct WrittenServer {
    name: Spanned<String>,
    command: Option<Spanned<Vec<String>>>,
    cwd: Option<Spanned<PathBuf>>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    #[serde(default)]
    env_credentials: BTreeMap<String, String>,
    url: Option<Spanned<String>>,
    token_credential: Option<String>,
    token_file: Option<PathBuf>,
    oauth: Option<Spanned<WrittenOauth>>,
    prefix: Option<Spanned<String>>,
    era: Option<Spanned<String>>,
    timeout: Option<Spanned<f64>>,
    total_timeout: Option<Spanned<f64>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct WrittenOauth {
    grant: Option<Spanned<String>>,
    client_id: Option<String>,
    client_secret_credential: Option<String>,
    client_secret_file: Option<PathBuf>,
    #[serde(default)]
    scopes: Vec<String>,
}

/// A mistake: where, what, and perhaps what to do.
pub(super) struct Wrong(Range<usize>, String, Option<&'static str>);

impl Wrong {
    pub(super) fn at<T>(place: &Spanned<T>, fact: impl Into<String>) -> Wrong {
        Wrong(place.span(), fact.into(), None)
    }

    pub(super) fn hint(self, hint: &'static str) -> Wrong {
        Wrong(self.0, self.1, Some(hint))
    }

    pub(super) fn of(self, path: &Path, text: &str) -> ConfigError {
        let Wrong(span, fact, hint) = self;
        let error = ConfigError::at(path, text, span, fact);
        match hint {
            Some(hint) => error.hint(hint),
            None => error,
        }
    }
}

/// Checks `[mcp]`.
pub(super) fn check(path: &Path, text: &str, written: &Written) -> Result<McpSettings, ConfigError> {
    settings(written).map_err(|wrong| wrong.of(path, text))
}

/// A certificate and its key: both, or neither.
pub(super) fn tls(
    certificate: Option<&Spanned<PathBuf>>,
    key: Option<&Spanned<PathBuf>>,
) -> Result<Option<Tls>, Wrong> {
    match (certificate, key) {
        (None, None) => Ok(None),
        (Some(certificate), Some(key)) => {
            Ok(Some(Tls { certificate: certificate.get_ref().clone(), key: key.get_ref().clone() }))
        }
        (Some(one), None) => Err(Wrong::at(one, "tls-certificate needs tls-key beside it")),
        (None, Some(one)) => Err(Wrong::at(one, "tls-key needs tls-certificate beside it")),
    }
}

/// The names by which others call this machine.
pub(super) fn hosts(written: &[Spanned<String>]) -> Result<Vec<String>, Wrong> {
    for host in written {
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':' | '[' | ']');
        if host.get_ref().is_empty() || !host.get_ref().chars().all(fits) {
            return Err(Wrong::at(host, format!("{:?} is no host name", host.get_ref())));
        }
    }
    Ok(written.iter().map(|host| host.get_ref().to_ascii_lowercase()).collect())
}

/// An address that others can reach is listened on with TLS only.
pub(super) fn reachable(address: &Spanned<SocketAddr>, has_tls: bool, what: &str) -> Result<(), Wrong> {
    if address.get_ref().ip().is_loopback() || has_tls {
        return Ok(());
    }
    let fact = format!("{what} listens on loopback only; an address that others can reach needs TLS");
    Err(Wrong::at(address, fact).hint("127.0.0.1:PORT, [::1]:PORT, or tls-certificate and tls-key"))
}

/// The servers of a plugin's manifest, which may say nothing else about MCP.
pub(super) fn of_plugin(path: &Path, text: &str, written: &Written) -> Result<Vec<Server>, ConfigError> {
    let place = written
        .listen
        .as_ref()
        .map(Spanned::span)
        .or_else(|| written.tls_certificate.as_ref().map(Spanned::span))
        .or_else(|| written.tls_key.as_ref().map(Spanned::span))
        .or_else(|| written.hosts.first().map(Spanned::span))
        .or_else(|| written.client.first().map(Spanned::span));
    let other = place.or_else(|| written.enabled.map(|_| 0..0));
    if let Some(span) = other {
        let fact = "a plugin brings servers, and nothing else of [mcp]";
        return Err(ConfigError::at(path, text, span, fact));
    }
    servers(&written.server).map_err(|Wrong(span, fact, _)| ConfigError::at(path, text, span, fact))
}

impl Server {
    /// The same, of a plugin in this folder: a program that is named by `./` lies there, and it runs there.
    pub(super) fn of_plugin(mut self, dir: &Path) -> Server {
        if let Reach::Command { command, cwd, .. } = &mut self.reach {
            if let Some(program) = command.first_mut()
                && let Some(name) = program.strip_prefix("./")
                && let Some(path) = dir.join(name).to_str()
            {
                *program = path.to_owned();
            }
            cwd.get_or_insert_with(|| dir.to_owned());
        }
        self
    }
}

fn settings(written: &Written) -> Result<McpSettings, Wrong> {
    let clients = clients(&written.client)?;
    let tls = tls(written.tls_certificate.as_ref(), written.tls_key.as_ref())?;
    Ok(McpSettings {
        listen: listen(written, tls.is_some(), clients.is_empty())?,
        tls,
        hosts: hosts(&written.hosts)?,
        clients,
        servers: servers(&written.server)?,
    })
}

fn listen(written: &Written, has_tls: bool, is_open: bool) -> Result<Option<SocketAddr>, Wrong> {
    if !written.enabled.unwrap_or(true) {
        return Ok(None);
    }
    let Some(address) = &written.listen else { return Ok(Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))) };
    reachable(address, has_tls, "MCP")?;
    if !address.get_ref().ip().is_loopback() && is_open {
        return Err(Wrong::at(address, "an address that others can reach needs clients with tokens")
            .hint("add a [[mcp.client]] with token-credential or token-file"));
    }
    Ok(Some(*address.get_ref()))
}

fn name(written: &Spanned<String>, seen: &mut BTreeSet<String>) -> Result<String, Wrong> {
    let name = written.get_ref();
    let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
    if name.is_empty() || name.len() > NAME_LEN_MAX || !name.bytes().all(fits) || name.contains("__") {
        let fact = format!("{name:?} is no name: 1 to {NAME_LEN_MAX} of A-Z a-z 0-9 _ -, and no \"__\" inside");
        return Err(Wrong::at(written, fact));
    }
    if !seen.insert(name.clone()) {
        return Err(Wrong::at(written, format!("there are two of the name {name:?}")));
    }
    Ok(name.clone())
}

/// Where a secret lies; `what` is what it is called before `-credential` and `-file`.
pub(super) fn secret(
    what: &str,
    credential: Option<&String>,
    file: Option<&PathBuf>,
) -> Result<Option<Secret>, String> {
    let is_plain = |name: &str| !name.is_empty() && !name.contains('/') && name != "." && name != "..";
    match (credential, file) {
        (None, None) => Ok(None),
        (Some(name), None) if is_plain(name) => Ok(Some(Secret::Credential(name.clone()))),
        (Some(_), None) => Err("a credential is named without a path".to_owned()),
        (None, Some(file)) if file.is_absolute() => Ok(Some(Secret::File(file.clone()))),
        (None, Some(_)) => Err(format!("{what}-file is an absolute path")),
        (Some(_), Some(_)) => Err(format!("a {what} comes from a credential or from a file, not from both")),
    }
}

fn clients(written: &[Spanned<WrittenClient>]) -> Result<Vec<Client>, Wrong> {
    let mut seen = BTreeSet::new();
    let mut clients = Vec::new();
    for client in written {
        if clients.len() == CLIENTS_MAX {
            return Err(Wrong::at(client, format!("{CLIENTS_MAX} clients are told apart at most")));
        }
        let fields = client.get_ref();
        let token = secret("token", fields.token_credential.as_ref(), fields.token_file.as_ref())
            .map_err(|fact| Wrong::at(client, fact))?
            .ok_or_else(|| Wrong::at(client, "a client has token-credential or token-file"))?;
        let mode = match &fields.mode {
            None => None,
            Some(word) => {
                Some(Mode::from_word(word.get_ref()).ok_or_else(|| Wrong::at(word, "there is no such mode"))?)
            }
        };
        let tools = fields.tools.as_ref().map(|tools| tools.iter().map(|tool| tool.get_ref().clone()).collect());
        let rate = match &fields.rate {
            None => RATE,
            Some(rate) if RATES.contains(rate.get_ref()) => *rate.get_ref(),
            Some(rate) => {
                return Err(Wrong::at(
                    rate,
                    format!("{} is outside {} to {}", rate.get_ref(), RATES.start(), RATES.end()),
                ));
            }
        };
        clients.push(Client { name: name(&fields.name, &mut seen)?, token, mode, tools, rate });
    }
    Ok(clients)
}

fn servers(written: &[Spanned<WrittenServer>]) -> Result<Vec<Server>, Wrong> {
    let (mut seen, mut prefixes) = (BTreeSet::new(), BTreeSet::new());
    let mut servers = Vec::new();
    for server in written {
        if servers.len() == SERVERS_MAX {
            return Err(Wrong::at(server, format!("{SERVERS_MAX} servers are looked after at most")));
        }
        let fields = server.get_ref();
        let name = name(&fields.name, &mut seen)?;
        let prefix = prefix(fields.prefix.as_ref(), &name)?;
        if !prefixes.insert(prefix.clone()) {
            let fact = format!("{prefix:?} stands before the tools of another server already");
            return Err(Wrong(fields.prefix.as_ref().map_or(fields.name.span(), Spanned::span), fact, None));
        }
        servers.push(Server {
            reach: reach(server)?,
            prefix,
            era: match fields.era.as_ref().map(|era| (era, era.get_ref().as_str())) {
                None | Some((_, "auto")) => EraChoice::Auto,
                Some((_, "legacy")) => EraChoice::Legacy,
                Some((_, "modern")) => EraChoice::Modern,
                Some((era, _)) => {
                    return Err(Wrong::at(era, "there is no such era").hint("\"auto\", \"legacy\" or \"modern\""));
                }
            },
            timeout: seconds(fields.timeout.as_ref(), TIMEOUT)?,
            total_timeout: seconds(fields.total_timeout.as_ref(), TOTAL_TIMEOUT)?,
            name,
        });
    }
    Ok(servers)
}

fn prefix(written: Option<&Spanned<String>>, name: &str) -> Result<String, Wrong> {
    let Some(written) = written else { return Ok(format!("{name}__")) };
    let prefix = written.get_ref();
    let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
    if prefix.len() > NAME_LEN_MAX + 2 || !prefix.bytes().all(fits) {
        let fact = format!("{prefix:?} is no prefix: at most {} of A-Z a-z 0-9 _ - .", NAME_LEN_MAX + 2);
        return Err(Wrong::at(written, fact));
    }
    Ok(prefix.clone())
}

fn reach(server: &Spanned<WrittenServer>) -> Result<Reach, Wrong> {
    let fields = server.get_ref();
    let token = secret("token", fields.token_credential.as_ref(), fields.token_file.as_ref())
        .map_err(|fact| Wrong::at(server, fact))?;
    match (&fields.command, &fields.url) {
        (Some(command), None) => {
            let parts = command.get_ref();
            if parts.first().is_none_or(String::is_empty) || parts.iter().any(|part| part.contains('\0')) {
                return Err(Wrong::at(command, "a command is a list of a program and its arguments")
                    .hint("command = [\"mcp-server-git\", \"--repository\", \"/srv/repo\"]"));
            }
            if let Some(oauth) = &fields.oauth {
                return Err(Wrong::at(oauth, "oauth is for a url; a command gets its secrets by env-credentials"));
            }
            if token.is_some() {
                let fact = "a token is for a url; a command gets its secrets by env-credentials";
                return Err(Wrong::at(command, fact));
            }
            if let Some(cwd) = fields.cwd.as_ref().filter(|cwd| !cwd.get_ref().is_absolute()) {
                return Err(Wrong::at(cwd, "cwd is an absolute path"));
            }
            let mut env_secrets = BTreeMap::new();
            for (variable, credential) in &fields.env_credentials {
                let secret = secret("token", Some(credential), None).map_err(|fact| Wrong::at(server, fact))?;
                env_secrets.extend(secret.map(|secret| (variable.clone(), secret)));
            }
            let bad = |name: &String| name.is_empty() || name.contains(['=', '\0']);
            if let Some(name) = fields.env.keys().chain(env_secrets.keys()).find(|name| bad(name)) {
                return Err(Wrong::at(server, format!("{name:?} is no name of a variable")));
            }
            Ok(Reach::Command {
                command: parts.clone(),
                cwd: fields.cwd.as_ref().map(|cwd| cwd.get_ref().clone()),
                env: fields.env.clone(),
                env_secrets,
            })
        }
        (None, Some(url)) => {
            if let Some(command_only) = [
                (fields.cwd.is_some(), "cwd"),
                (!fields.env.is_empty(), "env"),
                (!fields.env_credentials.is_empty(), "env-credentials"),
            ]
            .into_iter()
            .find_map(|(is_there, key)| is_there.then_some(key))
            {
                return Err(Wrong::at(url, format!("{command_only} is for a command, and this server has a url")));
            }
            let address = url.get_ref();
            if !(address.starts_with("http://") || address.starts_with("https://")) {
                return Err(Wrong::at(url, "a url begins with http:// or https://"));
            }
            if address.split('/').nth(2).is_some_and(|authority| authority.contains('@')) {
                return Err(Wrong::at(url, "a url has no name or password in it")
                    .hint("token-credential or token-file names the secret"));
            }
            let oauth = fields.oauth.as_ref().map(oauth).transpose()?;
            if let (Some(oauth), Some(_), Some(_)) = (&fields.oauth, &oauth, &token) {
                return Err(Wrong::at(oauth, "a server has a token or oauth, and not both"));
            }
            Ok(Reach::Url { url: address.clone(), token, oauth })
        }
        (None, None) | (Some(_), Some(_)) => Err(Wrong::at(server, "a server has a command or a url, and not both")),
    }
}

fn oauth(written: &Spanned<WrittenOauth>) -> Result<Oauth, Wrong> {
    let fields = written.get_ref();
    let secret = secret("client-secret", fields.client_secret_credential.as_ref(), fields.client_secret_file.as_ref())
        .map_err(|fact| Wrong::at(written, fact))?;
    let is_machine = match fields.grant.as_ref().map(|grant| (grant, grant.get_ref().as_str())) {
        None | Some((_, "authorization-code")) => false,
        Some((_, "client-credentials")) => true,
        Some((grant, _)) => {
            return Err(
                Wrong::at(grant, "there is no such grant").hint("\"authorization-code\" or \"client-credentials\"")
            );
        }
    };
    if is_machine && (fields.client_id.is_none() || secret.is_none()) {
        let fact = "client-credentials needs client-id, and client-secret-credential or client-secret-file";
        return Err(Wrong::at(written, fact));
    }
    if secret.is_some() && fields.client_id.is_none() {
        return Err(Wrong::at(written, "a client secret needs the client-id that it belongs to"));
    }
    let is_bad = |text: &String| text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic());
    if let Some(bad) = fields.scopes.iter().chain(&fields.client_id).find(|text| is_bad(text)) {
        return Err(Wrong::at(written, format!("{bad:?} is not one word of visible characters")));
    }
    Ok(Oauth { is_machine, client_id: fields.client_id.clone(), secret, scopes: fields.scopes.clone() })
}

fn seconds(written: Option<&Spanned<f64>>, default: Duration) -> Result<Duration, Wrong> {
    match written {
        None => Ok(default),
        Some(value) if TIMEOUT_SECONDS.contains(value.get_ref()) => Ok(Duration::from_secs_f64(*value.get_ref())),
        Some(value) => {
            let (low, high) = (TIMEOUT_SECONDS.start(), TIMEOUT_SECONDS.end());
            Err(Wrong::at(value, format!("{} is outside {low} to {high} seconds", value.get_ref())))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<McpSettings, String> {
        super::super::check(Path::new("x.toml"), &format!("version = 1\n{text}"))
            .map(|config| config.mcp)
            .map_err(|error| error.to_string())
    }

    fn refused(text: &str, fact: &str) {
        let error = read(text).expect_err(text);
        assert!(error.contains(fact), "{text}\n{error}");
    }

    #[test]
    fn a_server_is_a_command_or_a_url_with_a_prefix_of_its_own() {
        let settings = read(
            "[[mcp.server]]\nname = \"git\"\ncommand = [\"mcp-server-git\", \"-r\", \"/srv\"]\ncwd = \"/srv\"\n\
             env = { A = \"1\" }\nenv-credentials = { KEY = \"git-key\" }\n\
             [[mcp.server]]\nname = \"far\"\nurl = \"https://far.example/mcp\"\ntoken-credential = \"far\"\n\
             prefix = \"\"\nera = \"modern\"\ntimeout = 5\ntotal-timeout = 9.5\n",
        )
        .unwrap();
        let git = Server {
            name: "git".into(),
            reach: Reach::Command {
                command: vec!["mcp-server-git".into(), "-r".into(), "/srv".into()],
                cwd: Some("/srv".into()),
                env: [("A".to_owned(), "1".to_owned())].into(),
                env_secrets: [("KEY".to_owned(), Secret::Credential("git-key".into()))].into(),
            },
            prefix: "git__".into(),
            era: EraChoice::Auto,
            timeout: TIMEOUT,
            total_timeout: TOTAL_TIMEOUT,
        };
        let far = Server {
            name: "far".into(),
            reach: Reach::Url {
                url: "https://far.example/mcp".into(),
                token: Some(Secret::Credential("far".into())),
                oauth: None,
            },
            prefix: String::new(),
            era: EraChoice::Modern,
            timeout: Duration::from_secs(5),
            total_timeout: Duration::from_millis(9_500),
        };
        assert_eq!(settings.servers, [git, far]);
    }

    #[test]
    fn a_server_that_cannot_work_is_refused_by_what_is_wrong() {
        let server = |rest: &str| format!("[[mcp.server]]\nname = \"a\"\n{rest}");
        refused(&server(""), "a command or a url");
        refused(&server("command = [\"x\"]\nurl = \"http://x\""), "a command or a url");
        refused(&server("command = []"), "a program and its arguments");
        refused(&server("url = \"ftp://x\""), "http:// or https://");
        refused(&server("url = \"http://me:pw@x/\""), "no name or password");
        refused(&server("url = \"http://x\"\nenv = { A = \"1\" }"), "env is for a command");
        refused(&server("command = [\"x\"]\ntoken-credential = \"t\""), "env-credentials");
        refused(&server("command = [\"x\"]\nera = \"new\""), "no such era");
        refused(&server("command = [\"x\"]\ntimeout = 0"), "outside 0.1");
        refused(&server("command = [\"x\"]\nprefix = \"a b\""), "no prefix");
        refused(&server("url = \"http://x\"\ntoken-credential = \"../x\""), "without a path");
        let oauth = |more: &str| server(&format!("url = \"http://x\"\noauth = {{ {more} }}"));
        refused(&server("command = [\"x\"]\noauth = {}"), "oauth is for a url");
        refused(&server("url = \"http://x\"\ntoken-file = \"/t\"\noauth = {}"), "a token or oauth");
        refused(&oauth("grant = \"password\""), "no such grant");
        refused(&oauth("grant = \"client-credentials\", client-id = \"a\""), "client-secret-credential");
        refused(&oauth("client-secret-file = \"/s\""), "needs the client-id");
        refused(&oauth("client-id = \"a\", client-secret-file = \"s\""), "client-secret-file is an absolute path");
        refused(&oauth("scopes = [\"a b\"]"), "one word");
        refused(&oauth("secret = \"x\""), "unknown field");
        refused("[[mcp.server]]\nname = \"a__b\"\ncommand = [\"x\"]", "is no name");
        refused(&format!("{0}command = [\"x\"]\n{0}command = [\"y\"]", server("")), "two of the name");
        let twice = "[[mcp.server]]\nname = \"b\"\nprefix = \"a__\"\ncommand = [\"x\"]";
        refused(&format!("{}command = [\"x\"]\n{twice}", server("")), "another server already");
        refused(&server("commands = [\"x\"]"), "unknown field");
    }

    #[test]
    fn a_login_is_a_persons_or_a_machines() {
        let read = |oauth: &str| {
            let text = format!("[[mcp.server]]\nname = \"a\"\nurl = \"https://x\"\noauth = {oauth}\n");
            match read(&text).unwrap().servers.remove(0).reach {
                Reach::Url { oauth, .. } => oauth.unwrap(),
                Reach::Command { .. } => panic!("a command"),
            }
        };
        let person = Oauth { is_machine: false, client_id: None, secret: None, scopes: Vec::new() };
        assert_eq!(read("{}"), person);
        let machine = "{ grant = \"client-credentials\", client-id = \"box\", client-secret-credential = \"s\", \
                       scopes = [\"a\", \"b\"] }";
        let secret = Some(Secret::Credential("s".into()));
        let scopes = vec!["a".to_owned(), "b".to_owned()];
        assert_eq!(read(machine), Oauth { is_machine: true, client_id: Some("box".into()), secret, scopes });
    }

    #[test]
    fn an_address_that_others_reach_needs_tls_and_tokens() {
        let tls = "tls-certificate = \"/c\"\ntls-key = \"/k\"\n";
        let client = "[[mcp.client]]\nname = \"robot\"\ntoken-file = \"/t\"\nmode = \"plan\"\ntools = [\"mcp__git\"]\n\
                      rate = 7\n";
        refused("[mcp]\nlisten = \"192.168.1.2:7770\"\n", "needs TLS");
        refused(&format!("[mcp]\nlisten = \"192.168.1.2:7770\"\n{tls}"), "clients with tokens");
        refused("[mcp]\ntls-key = \"/k\"\n", "tls-certificate beside it");
        refused("[[mcp.client]]\nname = \"robot\"\n", "token-credential or token-file");
        refused("[[mcp.client]]\nname = \"robot\"\ntoken-file = \"/t\"\nrate = 0\n", "outside 1 to");
        refused("[[mcp.client]]\nname = \"robot\"\ntoken-file = \"/t\"\nmode = \"all\"\n", "no such mode");
        let settings = read(&format!("[mcp]\nlisten = \"192.168.1.2:7770\"\n{tls}{client}")).unwrap();
        assert_eq!(settings.listen.map(|address| address.port()), Some(7770));
        let robot = Client {
            name: "robot".into(),
            token: Secret::File("/t".into()),
            mode: Some(Mode::Plan),
            tools: Some(vec!["mcp__git".into()]),
            rate: 7,
        };
        assert_eq!(settings.clients, [robot]);
    }
}

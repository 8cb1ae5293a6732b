//! TOML files into checked settings. Unknown keys are refused, and a file is taken whole or not at all.
//!
//! This room never acts on a setting and never guesses one: a value that is missing has a named default with its
//! reason, a value that is wrong refuses the file with its place.

pub mod agent;
pub mod commands;
pub mod console;
pub mod contract;
pub mod device;
mod error;
pub mod export;
pub mod extend;
mod file;
pub mod hassil;
mod hassil_syntax;
pub mod interlock;
pub mod lexicon;
pub mod mcp;
pub mod model;
pub mod policy;
pub mod regression;
pub mod table;
pub mod workflow;
pub mod written;
mod yaml;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use interlock_domain::device::table::Devices;
use interlock_domain::gate::breaker::{Breaker, Trips};
use interlock_domain::gate::policy::{ASK_PATIENCE, Mode, RuleOrder};
use interlock_domain::gate::rule::{Authority, Rules, Verb};
use interlock_domain::learn::gate::Policy as Learning;
use interlock_domain::surface::promise::Promise;
use serde_json::Value;
use toml::Spanned;

pub use error::ConfigError;

/// The layout of the file that this build reads.
const VERSION: u32 = 1;

/// The longest file that is read, in bytes. The largest register maps seen have a few thousand points.
const FILE_BYTES_MAX: u64 = 8 << 20;

/// The bounds of `[ask] timeout`: below, nobody can read the question; above, a question outlives the shift.
const ASK_SECONDS: std::ops::RangeInclusive<u64> = 5..=8 * 3600;

/// How long an answer may follow its question by voice: a person who has not answered by then is doing something else.
const DIALOGUE_PATIENCE: Duration = Duration::from_secs(30);

/// The bounds of `[ask] dialogue`: below, nobody can answer; above, what is said to a colleague becomes an answer.
const DIALOGUE_SECONDS: std::ops::RangeInclusive<u64> = 1..=120;

/// The bounds of `[liveness] scan` and `tau`, in seconds.
const SCAN_SECONDS: std::ops::RangeInclusive<f64> = 0.05..=60.0;
const TAU_SECONDS: std::ops::RangeInclusive<f64> = 0.2..=3600.0;

/// The bounds of `[evidence] quota-mib`: below, a shift may not fit; above, a start would take longer than it should.
const QUOTA_MIB: std::ops::RangeInclusive<u64> = 128..=65_536;
const QUOTA_MIB_USUAL: u64 = 512;

/// The hash of a log that begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EvidenceHash {
    /// SHA-256.
    #[default]
    Sha256,
    /// SM3.
    Sm3,
}

/// How deaths are noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Tier {
    /// Whatever a probe at start finds best.
    #[default]
    Auto,
    /// `pidfd_open(PIDFD_THREAD)` and epoll: a death is an event (Linux 6.9 and later).
    Pidfd,
    /// `pthread_tryjoin_np` at each scan.
    Tryjoin,
    /// A robust mutex that each thread holds.
    Sentinel,
    /// `/proc` at each scan: slow, for comparison.
    Proc,
}

/// The checked configuration.
#[derive(Debug, Clone)]
pub struct Config {
    /// The file that it came from; `None` for the embedded default.
    pub file: Option<PathBuf>,
    /// The devices of the file. With none, the embedded plant runs.
    pub devices: Arc<Devices>,
    /// The process interlocks of the file. With devices, they stand before them already.
    pub interlocks: Vec<interlock::Written>,
    /// Recipes of workflows, by name, as the tool `workflow` takes them.
    pub recipes: Arc<BTreeMap<String, Value>>,
    /// What is promised about calls of tools.
    pub contracts: Vec<Promise>,
    /// Agents, and the MCP servers behind us.
    pub mcp: mcp::McpSettings,
    /// The operator's console.
    pub console: console::Console,
    /// How long a `permit` or `confirm` question waits.
    pub ask_patience: Duration,
    /// How long an answer may follow its question by voice.
    pub dialogue_patience: Duration,
    /// Protective actions are asked about like any other.
    pub confirm_protective: bool,
    /// Two persons have to allow what is dangerous.
    pub four_eyes: bool,
    /// The mode in which runs start.
    pub mode: Mode,
    /// Which rule wins.
    pub rule_order: RuleOrder,
    /// The rules of the file.
    pub rules: Arc<Rules>,
    /// The files beside it that hold rules.
    pub policy_files: Vec<PathBuf>,
    /// When repeated denials of one kind are too many.
    pub breaker: Breaker,
    /// Who gives an opinion on calls in `bypassPermissions`.
    pub classifier: Option<policy::Classifier>,
    /// One that fails does not ask.
    pub classifier_fails_open: bool,
    /// The directories that tools may work in: absolute.
    pub work_dirs: Vec<PathBuf>,
    /// The time between two scans.
    pub scan: Duration,
    /// How long a worker may be silent.
    pub tau: Duration,
    /// How deaths are noticed.
    pub tier: Tier,
    /// The most bytes that the evidence log keeps.
    pub evidence_quota: u64,
    /// The hash of an evidence log that begins.
    pub evidence_hash: EvidenceHash,
    /// The command files; none means the shipped ones.
    pub command_files: Vec<PathBuf>,
    /// The list of keys whose updates count; none for the usual place.
    pub update_keys: Option<PathBuf>,
    /// Where voice front ends reach the daemon over TCP.
    pub wyoming_listen: Option<SocketAddr>,
    /// The same over a Unix socket.
    pub wyoming_socket: Option<PathBuf>,
    /// Who may take what is learned.
    pub learning: Learning,
    /// The `http` tool may reach link-local addresses.
    pub http_link_local: bool,
    /// The model stage.
    pub model: model::Model,
    /// The folders whose passages answer questions.
    pub knowledge_folders: Vec<PathBuf>,
    /// The language model; `None` when there is none.
    pub agent: Option<agent::Agent>,
    /// Aliases, skills, plugins and checks.
    pub extensions: extend::Extensions,
    /// The plant's own systems that are told what happens here.
    pub exports: export::Exports,
    /// Where `/metrics` listens.
    pub metrics_listen: Option<SocketAddr>,
}

/// Reads and checks a file; without one, gives the embedded default.
///
/// # Errors
/// The first mistake of the file.
pub fn load(file: Option<&Path>) -> Result<Config, ConfigError> {
    match file {
        Some(path) => check(path, &read(path)?),
        None => {
            let name = Path::new("(embedded default)");
            let config = check(name, "version = 1\n")?;
            Ok(Config { file: None, ..config })
        }
    }
}

/// A configuration as a plain value, for whoever shows it and does not act on it: nothing is checked but its form.
///
/// # Errors
/// Why it is no TOML, without the text of the line: what stands there may be a secret.
pub fn as_value(text: &str) -> Result<serde_json::Value, String> {
    toml::from_str(text).map_err(|error: toml::de::Error| error.message().to_owned())
}

/// Reads a text file of bounded length.
///
/// # Errors
/// When it cannot be read, is too long, or is not UTF-8.
pub fn read(path: &Path) -> Result<String, ConfigError> {
    let meta = std::fs::metadata(path).map_err(|error| unreadable(path, &error))?;
    // A device or a pipe has no length, and may never end.
    if !meta.is_file() {
        return Err(ConfigError::of_file(path, "it is no regular file"));
    }
    let length = meta.len();
    if length > FILE_BYTES_MAX {
        return Err(ConfigError::of_file(
            path,
            format!("the file has {length} bytes; {FILE_BYTES_MAX} are read at most"),
        ));
    }
    let bytes = std::fs::read(path).map_err(|error| unreadable(path, &error))?;
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let line = error.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count() + 1;
        ConfigError { line, ..ConfigError::of_file(path, "the file is not UTF-8 from this line on") }
            .hint("save it as UTF-8 (not GBK)")
    })
}

fn unreadable(path: &Path, error: &std::io::Error) -> ConfigError {
    ConfigError::of_file(path, error.to_string())
}

/// Checks the text of a file.
///
/// # Errors
/// The first mistake.
pub fn check(path: &Path, text: &str) -> Result<Config, ConfigError> {
    let file: file::File = toml::from_str(text).map_err(|error| {
        let shown = ConfigError::from_toml(path, text, &error);
        if shown.message.starts_with("unknown field") {
            return shown
                .hint("remove the key, or correct its spelling; nothing is read from a file with unknown keys");
        }
        shown
    })?;
    let wrong = |span: std::ops::Range<usize>, message: String| ConfigError::at(path, text, span, message);
    if *file.version.get_ref() != VERSION {
        let found = file.version.get_ref();
        return Err(wrong(file.version.span(), format!("this build reads version {VERSION}, not {found}")));
    }
    let (devices, interlocks) = (device::parse(text, path)?, interlock::parse(text, path)?);
    // Without devices the embedded plant runs; whoever starts it puts the rules before its devices.
    let devices = if devices.is_empty() { devices } else { interlock::bind(devices, &interlocks)? };

    let ask_patience = match &file.ask.timeout {
        None => ASK_PATIENCE,
        Some(seconds) if ASK_SECONDS.contains(seconds.get_ref()) => Duration::from_secs(*seconds.get_ref()),
        Some(seconds) => return Err(wrong(seconds.span(), outside(seconds.get_ref(), &ASK_SECONDS))),
    };
    let dialogue_patience = match &file.ask.dialogue {
        None => DIALOGUE_PATIENCE,
        Some(seconds) if DIALOGUE_SECONDS.contains(seconds.get_ref()) => Duration::from_secs(*seconds.get_ref()),
        Some(seconds) => return Err(wrong(seconds.span(), outside(seconds.get_ref(), &DIALOGUE_SECONDS))),
    };
    let four_eyes = word(file.ask.four_eyes.as_ref(), false, |word| match word {
        "off" => Some(false),
        "dangerous" => Some(true),
        _ => None,
    })
    .map_err(|span| wrong(span, "there is no such rule for two persons".to_owned()).hint("\"off\" or \"dangerous\""))?;
    let mode = word(file.policy.mode.as_ref(), Mode::Default, Mode::from_word).map_err(|span| {
        let known: Vec<_> = Mode::ALL.iter().map(|mode| mode.word()).collect();
        wrong(span, "there is no such mode".to_owned()).hint(format!("one of {}", known.join(", ")))
    })?;
    let rule_order = word(file.policy.rule_order.as_ref(), RuleOrder::Strictest, |word| match word {
        "strictest" => Some(RuleOrder::Strictest),
        "authority" => Some(RuleOrder::Authority),
        _ => None,
    })
    .map_err(|span| wrong(span, "there is no such order".to_owned()).hint("\"strictest\" or \"authority\""))?;
    let tier = word(file.liveness.tier.as_ref(), Tier::Auto, |word| match word {
        "auto" => Some(Tier::Auto),
        "pidfd" => Some(Tier::Pidfd),
        "tryjoin" => Some(Tier::Tryjoin),
        "sentinel" => Some(Tier::Sentinel),
        "proc" => Some(Tier::Proc),
        _ => None,
    })
    .map_err(|span| {
        wrong(span, "there is no such tier".to_owned()).hint("one of auto, pidfd, tryjoin, sentinel, proc")
    })?;
    let learning = word(file.learning.policy.as_ref(), Learning::Strict, |word| match word {
        "strict" => Some(Learning::Strict),
        "auto" => Some(Learning::Auto),
        _ => None,
    })
    .map_err(|span| wrong(span, "there is no such policy".to_owned()).hint("\"strict\" or \"auto\""))?;
    let quota_mib = match &file.evidence.quota_mib {
        None => QUOTA_MIB_USUAL,
        Some(mib) if QUOTA_MIB.contains(mib.get_ref()) => *mib.get_ref(),
        Some(mib) => {
            let (least, most) = (QUOTA_MIB.start(), QUOTA_MIB.end());
            return Err(wrong(mib.span(), format!("{} is outside {least} to {most} MiB", mib.get_ref())));
        }
    };
    let evidence_hash = word(file.evidence.hash.as_ref(), EvidenceHash::Sha256, |word| match word {
        "sha256" => Some(EvidenceHash::Sha256),
        "sm3" => Some(EvidenceHash::Sm3),
        _ => None,
    })
    .map_err(|span| wrong(span, "there is no such hash".to_owned()).hint("sha256 or sm3; a log keeps its own"))?;
    let rules = rules(path, text, &file.policy)?;
    let directory = path.parent().unwrap_or(Path::new("."));
    let mut work_dirs = Vec::new();
    for dir in &file.policy.work_dirs {
        if !dir.get_ref().is_absolute() {
            return Err(wrong(dir.span(), format!("{:?} is not an absolute path", dir.get_ref())));
        }
        work_dirs.push(dir.get_ref().clone());
    }
    let extensions = extend::read(path, text)?;
    let mut mcp = mcp::check(path, text, &file.mcp)?;
    for server in &extensions.servers {
        if mcp.servers.iter().any(|known| known.name == server.name || known.prefix == server.prefix) {
            let fact = format!("there are two MCP servers of the name {:?}, one of them a plugin's", server.name);
            return Err(ConfigError::of_file(path, fact));
        }
        mcp.servers.push(server.clone());
    }
    let console = console::check(path, text, &file.console)?;
    let agent = agent::parse(text, path)?;
    Ok(Config {
        file: Some(path.to_owned()),
        devices: Arc::new(devices),
        interlocks,
        recipes: Arc::new(workflow::parse(text, path)?),
        contracts: contract::parse(
            text,
            path,
            &contract::Names { aliases: &extensions.aliases, servers: &mcp.servers },
        )?,
        mcp,
        console,
        ask_patience,
        dialogue_patience,
        confirm_protective: file.safety.confirm_protective.unwrap_or(false),
        four_eyes,
        mode,
        rule_order,
        rules: Arc::new(rules),
        policy_files: file.policy.files.iter().map(|file| directory.join(file.get_ref())).collect(),
        classifier: policy::classifier(
            policy::Source { path, text },
            file.policy.classifier.as_ref(),
            agent.is_some(),
        )?,
        classifier_fails_open: file.policy.classifier_fails_open.unwrap_or(false),
        breaker: Breaker {
            denials_max: match file.policy.denials_max.as_ref().map(Spanned::get_ref) {
                None => Breaker::default().denials_max,
                Some(0) => None,
                Some(limit) => Some(*limit),
            },
            trips: if file.policy.denials_ask.unwrap_or(false) { Trips::ToAQuestion } else { Trips::ToAStop },
        },
        work_dirs,
        scan: seconds(file.liveness.scan.as_ref(), 1.0, &SCAN_SECONDS).map_err(|(span, fact)| wrong(span, fact))?,
        tau: seconds(file.liveness.tau.as_ref(), 15.0, &TAU_SECONDS).map_err(|(span, fact)| wrong(span, fact))?,
        tier,
        evidence_quota: quota_mib << 20,
        evidence_hash,
        command_files: file.commands.files.iter().map(|file| directory.join(file.get_ref())).collect(),
        update_keys: file.update.keys.as_ref().map(|keys| directory.join(keys)),
        wyoming_listen: wyoming_listen(&file.wyoming).map_err(|span| {
            wrong(span, "whoever reaches this address can command without a password".to_owned())
                .hint("use 127.0.0.1:PORT, or say open-network = true when the network is closed")
        })?,
        wyoming_socket: match &file.wyoming.socket {
            Some(socket) if !socket.get_ref().is_absolute() => {
                return Err(wrong(socket.span(), format!("{:?} is not an absolute path", socket.get_ref())));
            }
            socket => socket.as_ref().map(|socket| socket.get_ref().clone()),
        },
        learning,
        http_link_local: file.http.link_local.unwrap_or(false),
        model: model::model(path, text, &file.model)?,
        knowledge_folders: model::folders(path, text, &file.knowledge)?,
        agent,
        extensions,
        exports: export::read(text, path)?,
        metrics_listen: export::metrics(text, path, &file.metrics)?,
    })
}

fn wyoming_listen(wyoming: &file::Wyoming) -> Result<Option<SocketAddr>, std::ops::Range<usize>> {
    match &wyoming.listen {
        Some(address) if !address.get_ref().ip().is_loopback() && wyoming.open_network != Some(true) => {
            Err(address.span())
        }
        address => Ok(address.as_ref().map(|address| *address.get_ref())),
    }
}

/// The rules of the file itself, then those of its policy files: later ones are newer.
fn rules(path: &Path, text: &str, policy: &file::Policy) -> Result<Rules, ConfigError> {
    let ground = policy.work_dirs.first().map(Spanned::get_ref);
    let lists = [(Verb::Deny, &*policy.deny), (Verb::Ask, &*policy.ask), (Verb::Allow, &*policy.allow)];
    let mut rules = policy::rules(policy::Source { path, text }, lists, Authority::Config, ground)?;
    let directory = path.parent().unwrap_or(Path::new("."));
    for file in &policy.files {
        rules.extend(policy::file(&directory.join(file.get_ref()), ground)?);
    }
    Ok(Rules::new(rules))
}

fn word<T>(
    written: Option<&Spanned<String>>,
    default: T,
    read: impl Fn(&str) -> Option<T>,
) -> Result<T, std::ops::Range<usize>> {
    match written {
        None => Ok(default),
        Some(word) => read(word.get_ref()).ok_or_else(|| word.span()),
    }
}

fn seconds(
    written: Option<&Spanned<f64>>,
    default: f64,
    bounds: &std::ops::RangeInclusive<f64>,
) -> Result<Duration, (std::ops::Range<usize>, String)> {
    match written {
        None => Ok(Duration::from_secs_f64(default)),
        Some(value) if bounds.contains(value.get_ref()) => Ok(Duration::from_secs_f64(*value.get_ref())),
        Some(value) => Err((value.span(), outside(value.get_ref(), bounds))),
    }
}

fn outside<T: std::fmt::Display>(value: &T, bounds: &std::ops::RangeInclusive<T>) -> String {
    format!("{value} is outside {} to {} seconds", bounds.start(), bounds.end())
}

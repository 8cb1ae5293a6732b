//! TOML files into checked settings. Unknown keys are refused, and a file is taken whole or not at all.
//!
//! This room never acts on a setting and never guesses one: a value that is missing has a named default with its
//! reason, a value that is wrong refuses the file with its place.

pub mod agent;
pub mod commands;
pub mod device;
mod error;
mod file;
pub mod interlock;
pub mod lexicon;
pub mod mcp;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use interlock_domain::device::table::Devices;
use interlock_domain::gate::policy::{ASK_PATIENCE, Mode, RuleOrder};
use interlock_domain::gate::rule::{Authority, Rule, Rules, Verb};
use toml::Spanned;

pub use error::ConfigError;

/// The layout of the file that this build reads.
const VERSION: u32 = 1;

/// The longest file that is read, in bytes. The largest register maps seen have a few thousand points.
const FILE_BYTES_MAX: u64 = 8 << 20;

/// The bounds of `[ask] timeout`: below, nobody can read the question; above, a question outlives the shift.
const ASK_SECONDS: std::ops::RangeInclusive<u64> = 5..=8 * 3600;

/// The bounds of `[liveness] scan` and `tau`, in seconds.
const SCAN_SECONDS: std::ops::RangeInclusive<f64> = 0.05..=60.0;
const TAU_SECONDS: std::ops::RangeInclusive<f64> = 0.2..=3600.0;

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
    /// Agents, and the MCP servers behind us.
    pub mcp: mcp::McpSettings,
    /// How long a `permit` or `confirm` question waits.
    pub ask_patience: Duration,
    /// Protective actions are asked about like any other.
    pub confirm_protective: bool,
    /// The mode in which runs start.
    pub mode: Mode,
    /// Which rule wins.
    pub rule_order: RuleOrder,
    /// The rules of the file.
    pub rules: Arc<Rules>,
    /// The directories that tools may work in: absolute.
    pub work_dirs: Vec<PathBuf>,
    /// The time between two scans.
    pub scan: Duration,
    /// How long a worker may be silent.
    pub tau: Duration,
    /// How deaths are noticed.
    pub tier: Tier,
    /// The command files; none means the shipped ones.
    pub command_files: Vec<PathBuf>,
    /// The `http` tool may reach link-local addresses.
    pub http_link_local: bool,
    /// The language model; `None` when there is none.
    pub agent: Option<agent::Agent>,
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

/// Reads a text file of bounded length.
///
/// # Errors
/// When it cannot be read, is too long, or is not UTF-8.
pub fn read(path: &Path) -> Result<String, ConfigError> {
    let length = std::fs::metadata(path).map_err(|error| unreadable(path, &error))?.len();
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
    let rules = rules(path, text, &file.policy)?;
    let directory = path.parent().unwrap_or(Path::new("."));
    let mut work_dirs = Vec::new();
    for dir in &file.policy.work_dirs {
        if !dir.get_ref().is_absolute() {
            return Err(wrong(dir.span(), format!("{:?} is not an absolute path", dir.get_ref())));
        }
        work_dirs.push(dir.get_ref().clone());
    }
    Ok(Config {
        file: Some(path.to_owned()),
        devices: Arc::new(devices),
        interlocks,
        mcp: mcp::check(path, text, &file.mcp)?,
        ask_patience,
        confirm_protective: file.safety.confirm_protective.unwrap_or(false),
        mode,
        rule_order,
        rules: Arc::new(rules),
        work_dirs,
        scan: seconds(file.liveness.scan.as_ref(), 1.0, &SCAN_SECONDS).map_err(|(span, fact)| wrong(span, fact))?,
        tau: seconds(file.liveness.tau.as_ref(), 15.0, &TAU_SECONDS).map_err(|(span, fact)| wrong(span, fact))?,
        tier,
        command_files: file.commands.files.iter().map(|file| directory.join(file.get_ref())).collect(),
        http_link_local: file.http.link_local.unwrap_or(false),
        agent: agent::parse(text, path)?,
    })
}

fn rules(path: &Path, text: &str, policy: &file::Policy) -> Result<Rules, ConfigError> {
    let anchor = path.parent().and_then(Path::to_str);
    let mut rules = Vec::new();
    for (verb, written) in [(Verb::Deny, &policy.deny), (Verb::Ask, &policy.ask), (Verb::Allow, &policy.allow)] {
        for rule in written {
            let read = Rule::parse(verb, rule.get_ref(), Authority::Config, anchor)
                .map_err(|bad| ConfigError::at(path, text, rule.span(), bad.to_string()))?;
            rules.push(read);
        }
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

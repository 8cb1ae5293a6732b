//! What a person types to keep the box: backups, what support gets, the state of the factory.

use std::path::PathBuf;

use clap::Args;

/// `backup`.
#[derive(Debug, Args)]
pub struct BackupArgs {
    /// The file to make; it must not be there yet. Keep it like a key: it has the log's secret key.
    pub file: PathBuf,
    /// The state directory.
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// One JSON object.
    #[arg(long)]
    pub json: bool,
}

/// `restore`.
#[derive(Debug, Args)]
pub struct RestoreArgs {
    /// The backup.
    pub file: PathBuf,
    /// The state directory; no daemon may run on it. What is there is moved aside, into a folder inside it.
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// The key whose signature counts, as `backup` printed it; without one, the key of the state that is there.
    #[arg(long, value_name = "KEY")]
    pub signer: Option<String>,
    /// Only says whether the backup is whole; changes nothing.
    #[arg(long)]
    pub check: bool,
    /// One JSON object.
    #[arg(long)]
    pub json: bool,
}

/// `factory-reset`.
#[derive(Debug, Args)]
pub struct ResetArgs {
    /// The state directory; no daemon may run on it.
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Yes, the next start begins with nothing: no evidence, no key, nothing learned. What was there is moved aside.
    #[arg(long, required = true)]
    pub yes: bool,
    /// One JSON object.
    #[arg(long)]
    pub json: bool,
}

/// `support-bundle`.
#[derive(Debug, Args)]
pub struct BundleArgs {
    /// The file to make (`.tar.gz`); it must not be there yet.
    pub file: PathBuf,
    /// The state directory.
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// The configuration; the default is /etc/interlock/interlock.toml if it is there.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// How many of the newest rows of evidence go in.
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    pub rows: u32,
    /// One JSON object.
    #[arg(long)]
    pub json: bool,
}

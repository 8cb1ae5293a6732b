//! What a person types about updates of commands and of the classifier.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// `update`.
#[derive(Debug, Subcommand)]
pub enum UpdateVerb {
    /// Makes an update file, on the maker's machine.
    #[command(after_help = "Example:\n  interlock update pack site-3.update --commands commands/ --version 2026.12.1 \
                            --key maker.key")]
    Pack(PackArgs),
    /// Takes an update in; a daemon that runs reads it at once and goes back by itself if it cannot.
    #[command(after_help = "Example:\n  interlock update apply /mnt/usb/site-3.update")]
    Apply(ApplyArgs),
    /// Goes back to what counted before; once more comes back here.
    #[command(after_help = "Example:\n  interlock update back")]
    Back(UpdateFrom),
    /// Goes back to what the program was shipped with.
    #[command(after_help = "Example:\n  interlock update none")]
    None(UpdateFrom),
    /// What counts, its version, hash and signer.
    #[command(after_help = "Example:\n  interlock update show")]
    Show(UpdateFrom),
}

/// `update pack`.
#[derive(Debug, Args)]
pub struct PackArgs {
    /// The file to make; it must not be there yet.
    pub file: PathBuf,
    /// A folder of command sets; all its *.toml go in, and together they take the place of what is shipped.
    #[arg(long, value_name = "DIR", required_unless_present = "model")]
    pub commands: Option<PathBuf>,
    /// The folder of a classifier, with its manifest.toml.
    #[arg(long, value_name = "DIR")]
    pub model: Option<PathBuf>,
    /// One to four numbers with dots between them; a box refuses what is older than what it has had.
    #[arg(long, value_name = "VERSION")]
    pub version: String,
    /// The maker's secret key, as `interlock-slots seal` has it; it is made if it is not there.
    #[arg(long, value_name = "FILE")]
    pub key: PathBuf,
    /// One JSON object.
    #[arg(long)]
    pub json: bool,
}

/// `update apply`.
#[derive(Debug, Args)]
pub struct ApplyArgs {
    /// The update.
    pub file: PathBuf,
    /// Only judges it; changes nothing.
    #[arg(long)]
    pub check: bool,
    /// Also when a newer one was here already.
    #[arg(long)]
    pub older: bool,
    /// Also when commands that are in force are not in it.
    #[arg(long)]
    pub fewer: bool,
    /// Where.
    #[command(flatten)]
    pub from: UpdateFrom,
}

/// Which box is meant.
#[derive(Debug, Args)]
pub struct UpdateFrom {
    /// The state directory.
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// The configuration; the default is /etc/interlock/interlock.toml if it is there.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// One JSON object.
    #[arg(long)]
    pub json: bool,
}

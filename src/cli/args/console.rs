//! `console`.

use clap::{Subcommand, ValueEnum};

use super::JsonArg;

/// `console`.
#[derive(Debug, Subcommand)]
pub enum ConsoleVerb {
    /// Where a browser finds it.
    #[command(after_help = "Example:\n  interlock console url")]
    Url(JsonArg),
    /// Who may open it: a token for each person.
    #[command(subcommand)]
    Token(TokenVerb),
}

/// `console token`.
#[derive(Debug, Subcommand)]
pub enum TokenVerb {
    /// Lets a person in, and prints the token, only this once. A name is taken once: revoke it, then add it anew.
    #[command(after_help = "Example:\n  interlock console token add wang --role approve")]
    Add {
        /// The name: it stands in evidence beside what the person says.
        name: String,
        /// What the person may do.
        #[arg(long, value_enum)]
        role: RoleWord,
        /// One JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Who is let in.
    #[command(after_help = "Example:\n  interlock console token list")]
    List(JsonArg),
    /// Takes a person out, at once: what is open with the token is closed.
    #[command(after_help = "Example:\n  interlock console token revoke wang")]
    Revoke {
        /// The name.
        name: String,
        /// One JSON object.
        #[arg(long)]
        json: bool,
    },
}

/// What a person may do; each role may what stands before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RoleWord {
    /// Look.
    Read,
    /// Act on background tasks, and say no.
    Operate,
    /// Say yes.
    Approve,
}

impl RoleWord {
    /// As the daemon reads it.
    pub(in crate::cli) fn word(self) -> &'static str {
        match self {
            RoleWord::Read => "read",
            RoleWord::Operate => "operate",
            RoleWord::Approve => "approve",
        }
    }
}

//! What a verb ends with when it does not end well: one line, a hint, an exit code.

use std::fmt;

use crate::config::ConfigError;

/// The exit codes that scripts rely on (`sysexits.h`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// The thing asked for is not so: a check found something, a command was not carried out.
    NotSo = 1,
    /// The command line is wrong.
    Usage = 64,
    /// The input has bad lines.
    Data = 65,
    /// A file that should be read is not there.
    NoInput = 66,
    /// The daemon does not answer.
    Unavailable = 69,
    /// A mistake of ours.
    Bug = 70,
    /// Something cannot be written.
    CannotWrite = 73,
    /// Not permitted, or denied.
    Permission = 77,
    /// The configuration is wrong.
    Config = 78,
}

/// The end of a verb that did not go well.
#[derive(Debug)]
pub struct CliError {
    /// What the process ends with.
    pub exit: Exit,
    /// The object and the fact; empty when everything has been said on standard output.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl CliError {
    /// An error without a hint.
    pub fn new(exit: Exit, message: impl Into<String>) -> CliError {
        CliError { exit, message: message.into(), hint: None }
    }

    /// The verb has printed its answer, and the answer is no.
    #[must_use]
    pub fn silent(exit: Exit) -> CliError {
        CliError { exit, message: String::new(), hint: None }
    }

    /// The same with a hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> CliError {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for CliError {}

impl From<ConfigError> for CliError {
    fn from(error: ConfigError) -> CliError {
        CliError { exit: Exit::Config, message: error.to_string(), hint: error.hint }
    }
}

impl From<std::io::Error> for CliError {
    fn from(error: std::io::Error) -> CliError {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            // A reader that went away (`| head`) needs no message.
            return CliError::silent(Exit::CannotWrite);
        }
        CliError::new(Exit::CannotWrite, error.to_string())
    }
}

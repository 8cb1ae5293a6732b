//! `interlock run`: the daemon.

use std::path::Path;

use super::args::RunArgs;
use super::error::{CliError, Exit};
use super::{doctor, places};
use crate::boot::{self, BootError};

pub(super) fn run(args: &RunArgs, socket: Option<&Path>) -> Result<(), CliError> {
    let state = places::state(args.state.as_deref()).ok_or_else(|| {
        CliError::new(Exit::Usage, "no state directory is named, and there is no home directory")
            .hint("interlock run --state DIR")
    })?;
    let places = boot::Places {
        config: places::config(args.config.as_deref()),
        socket: places::daemon_socket(socket, &state),
        state,
        health: doctor::health,
    };
    boot::run(places).map_err(|error| match error {
        BootError::Config(error) => error.into(),
        BootError::Store(error) => {
            let hint = error.hint();
            let shown = CliError::new(Exit::CannotWrite, error.to_string());
            match hint {
                Some(hint) => shown.hint(hint),
                None => shown,
            }
        }
        BootError::Socket { path, error } => {
            CliError::new(Exit::CannotWrite, format!("socket {}: {error}", path.display()))
                .hint("stop the other daemon, or name another socket with --socket")
        }
        BootError::Listen { what, address, error } => {
            CliError::new(Exit::CannotWrite, format!("{what} cannot listen on {address}: {error}"))
                .hint("choose another port, or port 0 for any")
        }
        BootError::Environment(fact) => CliError::new(Exit::Config, fact),
        BootError::Escalated(why) => CliError::new(Exit::Bug, why),
        BootError::Other(error) => CliError::new(Exit::Bug, format!("{error:#}")),
    })
}

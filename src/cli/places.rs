//! Where the socket, the state and the configuration are, in the order that is fixed for good.

use std::env;
use std::path::{Path, PathBuf};

/// The configuration that is read when none is named and this file is there.
pub const SYSTEM_CONFIG: &str = "/etc/interlock/interlock.toml";

const SOCKET_NAME: &str = "interlock.sock";

/// The socket that a client speaks to: `--socket`, `$RUNTIME_DIRECTORY`, `/run/interlock`, `$XDG_RUNTIME_DIR`; the
/// first one that is there. Where none of these directories is given, a daemon keeps its socket in its state directory,
/// and that place is tried last.
#[must_use]
pub fn client_socket(named: Option<&Path>) -> PathBuf {
    if let Some(path) = named {
        return path.to_owned();
    }
    let mut candidates = socket_candidates();
    candidates.extend(state(None).map(|state| state.join(SOCKET_NAME)));
    let found = candidates.iter().find(|path| path.exists()).or(candidates.first());
    found.cloned().unwrap_or_else(|| PathBuf::from(SOCKET_NAME))
}

/// The socket that the daemon makes: `--socket`, else the first directory of the client's order that it may write to,
/// else one inside the state directory.
#[must_use]
pub fn daemon_socket(named: Option<&Path>, state: &Path) -> PathBuf {
    if let Some(path) = named {
        return path.to_owned();
    }
    let writable = |path: &PathBuf| path.parent().is_some_and(writable_directory);
    socket_candidates().into_iter().find(writable).unwrap_or_else(|| state.join(SOCKET_NAME))
}

fn socket_candidates() -> Vec<PathBuf> {
    // systemd gives a list separated by colons; ours has one entry.
    let runtime = env::var_os("RUNTIME_DIRECTORY").and_then(|list| env::split_paths(&list).next());
    let user = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    [runtime, Some(PathBuf::from("/run/interlock")), user].into_iter().flatten().map(|d| d.join(SOCKET_NAME)).collect()
}

fn writable_directory(directory: &Path) -> bool {
    use nix::unistd::{AccessFlags, access};
    if directory.is_dir() {
        return access(directory, AccessFlags::W_OK).is_ok();
    }
    // `/run/interlock` may be made by a daemon that runs as root without systemd.
    directory.parent().is_some_and(|parent| parent.is_dir() && access(parent, AccessFlags::W_OK).is_ok())
}

/// The state directory: `--state`, `$STATE_DIRECTORY`, `$XDG_STATE_HOME/interlock`, `~/.local/state/interlock`.
#[must_use]
pub fn state(named: Option<&Path>) -> Option<PathBuf> {
    let from_systemd = || env::var_os("STATE_DIRECTORY").and_then(|list| env::split_paths(&list).next());
    let from_xdg = || env::var_os("XDG_STATE_HOME").map(|home| PathBuf::from(home).join("interlock"));
    let from_home = || env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/state/interlock"));
    named.map(Path::to_owned).or_else(from_systemd).or_else(from_xdg).or_else(from_home)
}

/// The configuration: `--config`, else the system's if it is there, else none (the embedded default).
#[must_use]
pub fn config(named: Option<&Path>) -> Option<PathBuf> {
    named.map(Path::to_owned).or_else(|| Some(PathBuf::from(SYSTEM_CONFIG)).filter(|path| path.exists()))
}

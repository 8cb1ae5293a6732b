//! A process that a tool started, in a session of its own, with everything that comes out of it.
//!
//! It inherits nothing of the daemon that could speak for the daemon: no descriptor but the standard three, and of the
//! environment only a short list. Dropped, it takes everything that it started with it.

use std::ffi::OsString;
use std::io;
use std::process::{Child, Command};

use crate::sys::offspring::{self, Ended, Offspring};
use crate::sys::sandbox::Sandbox;

/// What a process inherits: where programs are, who it runs as, how to write dates and letters. Everything else could
/// carry a secret or the daemon's own voice (`NOTIFY_SOCKET`, `WATCHDOG_*`, `LISTEN_*`, `CREDENTIALS_DIRECTORY`,
/// `INTERLOCK_*`).
const INHERITED: &[&str] = &["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR"];

/// Where a process finds programs when the daemon was started without a path.
const PATH_DEFAULT: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A process that runs.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    offspring: Option<Offspring>,
}

impl Process {
    /// A command with nothing of ours in its environment but what every process may have.
    pub(super) fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env_clear().envs(inherited(std::env::vars_os()));
        command
    }

    /// Starts it in a session of its own, and in a sandbox if one is given.
    pub(super) fn start(command: &mut Command, sandbox: Option<Sandbox>) -> io::Result<Process> {
        let (name, mark) = offspring::mark();
        command.env(name, &mark);
        offspring::in_own_session(command);
        if let Some(sandbox) = sandbox {
            sandbox.confine(command);
        }
        let child = command.spawn()?;
        let offspring = Some(Offspring::of(child.id(), mark));
        Ok(Process { child, offspring })
    }

    /// Its first process: for its pipes and its number.
    pub(super) fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Kills what is left, then reaps. Not the other way round: its number must stay its own until then.
    pub(super) async fn end(&mut self) -> Ended {
        let nothing = Ended { beside_leader: 0, still_there: 0 };
        let Some(offspring) = &self.offspring else { return nothing };
        // By reference to its parts, so that a drop in the middle of this still has it.
        let again = offspring.clone();
        let ended = tokio::task::spawn_blocking(move || again.end()).await.unwrap_or(nothing);
        self.offspring = None;
        self.reap();
        ended
    }

    fn reap(&mut self) {
        // It was killed or has ended; if it has not (it could not be killed), the supervisor reaps it later.
        if let Err(error) = self.child.try_wait() {
            tracing::warn!(%error, "a process was reaped by somebody else");
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(offspring) = self.offspring.take() {
            // A look through /proc is a few milliseconds: better held up than let loose.
            let _ = offspring.end();
            self.reap();
        }
    }
}

fn inherited(all: impl Iterator<Item = (OsString, OsString)>) -> Vec<(OsString, OsString)> {
    let wanted = |name: &OsString| {
        let name = name.to_string_lossy();
        INHERITED.contains(&&*name) || name.starts_with("LC_")
    };
    let mut kept: Vec<(OsString, OsString)> = all.filter(|(name, _)| wanted(name)).collect();
    if !kept.iter().any(|(name, _)| name == "PATH") {
        kept.push(("PATH".into(), PATH_DEFAULT.into()));
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_on_the_list_is_inherited() {
        let names =
            ["PATH", "HOME", "LC_ALL", "NOTIFY_SOCKET", "WATCHDOG_USEC", "LISTEN_FDS", "INTERLOCK_STATE", "AWS_KEY"];
        let all = names.map(|name| (OsString::from(name), OsString::from("x")));
        let kept = inherited(all.into_iter()).into_iter().map(|(name, _)| name.into_string().unwrap());
        assert_eq!(kept.collect::<Vec<_>>(), ["PATH", "HOME", "LC_ALL"]);
        assert_eq!(inherited(std::iter::empty()), [("PATH".into(), PATH_DEFAULT.into())]);
    }
}

//! A git work tree of its own for a subagent, made and put away by `git` itself.
//!
//! It separates what is written into the repository and nothing else. It is made of what is committed: what lies
//! uncommitted in the repository is not in it. One in which something was changed is never removed by us.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use thiserror::Error;
use tokio::time::timeout;

use super::shell::{Running, hear};
use crate::sys::offspring::{self, End};

/// How long git may take: a large repository on a slow disk.
const PATIENCE: Duration = Duration::from_secs(60);

/// How much of what git says is read, bytes.
const SAID_BYTES_MAX: usize = 4096;

/// Why there is no work tree.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("git {verb} in {}: {said}", at.display())]
pub struct NoTree {
    verb: String,
    at: PathBuf,
    said: String,
}

/// A work tree that was made here.
#[derive(Debug)]
pub struct Tree {
    repository: PathBuf,
    path: PathBuf,
    head: String,
}

/// Makes a work tree of the repository's present commit.
///
/// # Errors
/// What git says.
pub async fn add(repository: &Path, at: &Path) -> Result<Tree, NoTree> {
    let Some((above, at_text)) = at.parent().zip(at.to_str()) else {
        return Err(NoTree { verb: "worktree".into(), at: at.to_owned(), said: "no path for it".into() });
    };
    if let Err(error) = std::fs::create_dir_all(above) {
        return Err(NoTree { verb: "worktree".into(), at: above.to_owned(), said: error.to_string() });
    }
    let head = git(repository, &["rev-parse", "HEAD"]).await?.trim().to_owned();
    git(repository, &["worktree", "add", "--detach", at_text, "HEAD"]).await?;
    Ok(Tree { repository: repository.to_owned(), path: at.to_owned(), head })
}

impl Tree {
    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Something was written or committed in it.
    ///
    /// # Errors
    /// What git says.
    pub async fn is_changed(&self) -> Result<bool, NoTree> {
        let status = git(&self.path, &["status", "--porcelain", "--ignored"]).await?;
        let head = git(&self.path, &["rev-parse", "HEAD"]).await?;
        Ok(!status.trim().is_empty() || head.trim() != self.head)
    }

    /// Removes it, unless something is in it after all.
    pub async fn put_away(self) {
        let Some(path) = self.path.to_str() else { return };
        if let Err(error) = git(&self.repository, &["worktree", "remove", path]).await {
            tracing::warn!(%error, "a work tree stays");
        }
    }
}

async fn git(at: &Path, arguments: &[&str]) -> Result<String, NoTree> {
    let wrong = |said: String| NoTree { verb: arguments.join(" "), at: at.to_owned(), said };
    // No hook, no pager, no editor of the repository runs for us.
    let ours = ["-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "--no-pager"];
    let all: Vec<&str> = ours.iter().copied().chain(arguments.iter().copied()).collect();
    let started = Running::start("git", &all, at, Stdio::null(), None).await;
    let mut running = started.map_err(|_| wrong("git cannot be started there".to_owned()))?;
    let (_, stdout, stderr) = running.streams();
    let stdout = tokio::spawn(hear(stdout, SAID_BYTES_MAX));
    let stderr = tokio::spawn(hear(stderr, SAID_BYTES_MAX));
    let pid = running.pid();
    let ended = timeout(PATIENCE, tokio::task::spawn_blocking(move || offspring::wait_for_end(pid))).await;
    running.end().await;
    let said = |heard: super::shell::Kept| String::from_utf8_lossy(&heard.whole()).trim().to_owned();
    let stdout = stdout.await.map(said).unwrap_or_default();
    let stderr = stderr.await.map(said).unwrap_or_default();
    match ended {
        Ok(Ok(Ok(End::Exited(0)))) => Ok(stdout),
        Ok(Ok(Ok(End::Exited(_) | End::Killed(_)) | Err(_)) | Err(_)) => Err(wrong(stderr)),
        Err(_) => Err(wrong(format!("took longer than {} s", PATIENCE.as_secs()))),
    }
}

//! Commands of the operator that look at calls: one JSON object in, at most one out.
//!
//! A hook runs like a shell call does: in a session of its own, with a short environment, killed with all that it
//! started at its deadline. It may say no, change an input, or add to a result; it cannot allow anything, since what it
//! says is judged again. A hook that does not answer as it should counts as a no: whoever put it there wanted to be
//! asked.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use thiserror::Error;
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

use super::shell::{Running, hear};
use crate::sys::offspring::{self, End};

/// The most that a hook may say, bytes. What it writes beyond is read and dropped.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// The exit code with which a hook says no, its reason on standard error: what hooks of coding agents do.
const NO: i32 = 2;

/// What a hook said.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// Nothing: the call goes on.
    Nothing,
    /// The call does not go on.
    No {
        /// Why.
        reason: String,
    },
    /// An object, whose members the caller reads.
    Says(Value),
}

/// Why a hook gave no answer.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NoAnswer {
    /// It did not start.
    #[error("hook {program} cannot be started")]
    NotStarted {
        /// The program.
        program: String,
    },
    /// It took too long.
    #[error("hook {program} took longer than {} s", patience.as_secs())]
    TimedOut {
        /// The program.
        program: String,
        /// How long it may take.
        patience: Duration,
    },
    /// It ended in another way than a hook should.
    #[error("hook {program} ended with {ended}")]
    Ended {
        /// The program.
        program: String,
        /// How.
        ended: String,
    },
    /// What it wrote is no JSON object.
    #[error("hook {program} wrote something that is no JSON object")]
    NotJson {
        /// The program.
        program: String,
    },
}

/// Asks a hook about a call.
///
/// # Errors
/// When it gives no answer.
pub async fn ask(command: &[String], question: &Value, cwd: &Path, patience: Duration) -> Result<Answer, NoAnswer> {
    let Some((program, arguments)) = command.split_first() else { return Ok(Answer::Nothing) };
    let named = || program.clone();
    let not_started = || NoAnswer::NotStarted { program: named() };
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut running =
        Running::start(program, &arguments, cwd, Stdio::piped(), None).await.map_err(|_| not_started())?;
    let (stdin, stdout, stderr) = running.streams();
    let stdout = tokio::spawn(hear(stdout, ANSWER_BYTES_MAX));
    let stderr = tokio::spawn(hear(stderr, ANSWER_BYTES_MAX));
    let text = question.to_string();
    // A hook that does not read its input must not hold us up: the pipe is filled beside the waiting.
    let told = tokio::spawn(async move {
        if let Some(mut stdin) = stdin {
            // A hook may close its input without having read it.
            let _ = stdin.write_all(text.as_bytes()).await;
        }
    });
    let pid = running.pid();
    let leader = tokio::task::spawn_blocking(move || offspring::wait_for_end(pid));
    let ended = timeout(patience, leader).await;
    told.abort();
    running.end().await;
    let said = |heard: super::shell::Kept| String::from_utf8_lossy(&heard.whole()).trim().to_owned();
    let stdout = stdout.await.map(said).unwrap_or_default();
    let stderr = stderr.await.map(said).unwrap_or_default();
    match ended {
        Err(_) => Err(NoAnswer::TimedOut { program: named(), patience }),
        Ok(Ok(Ok(End::Exited(0)))) if stdout.is_empty() => Ok(Answer::Nothing),
        Ok(Ok(Ok(End::Exited(0)))) => match serde_json::from_str::<Value>(&stdout) {
            Ok(value @ Value::Object(_)) => Ok(Answer::Says(value)),
            Ok(_) | Err(_) => Err(NoAnswer::NotJson { program: named() }),
        },
        Ok(Ok(Ok(End::Exited(NO)))) => {
            let reason = if stderr.is_empty() { "it said no".to_owned() } else { stderr };
            Ok(Answer::No { reason })
        }
        Ok(Ok(Ok(End::Exited(code)))) => Err(NoAnswer::Ended { program: named(), ended: format!("exit code {code}") }),
        Ok(Ok(Ok(End::Killed(signal)))) => Err(NoAnswer::Ended { program: named(), ended: format!("signal {signal}") }),
        Ok(Ok(Err(_)) | Err(_)) => Err(NoAnswer::Ended { program: named(), ended: "nothing that is known".to_owned() }),
    }
}

//! `shell`: one command line through `/bin/sh -c`, in a session of its own.
//!
//! A call is over when nothing of it runs: what it left in the background is killed when its shell ends, and all of it
//! is killed at its deadline or when the call is dropped. It inherits nothing of the daemon that could speak for the
//! daemon: no standard input, no descriptors, and of the environment only a short list.
//!
//! A command that ran and ended is `Done` with its exit code, whatever that is: the effect was made. Nobody but the
//! command can say what half a command did, so a deadline or a signal is `Lost`.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use interlock_domain::effect::report::{Loss, Report};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::time::timeout;

use super::process::Process;
use super::{About, bad_input, failed};
use crate::sys::offspring::{self, End, Ended};
use crate::sys::open::{self, NotOpened};
use crate::sys::sandbox::{Reach, Sandbox};

/// The longest command line, bytes: the gate asks about anything above a third of it.
const COMMAND_BYTES_MAX: usize = 32 * 1024;

/// How long a command may take when it does not say.
const PATIENCE_DEFAULT: Duration = Duration::from_secs(60);

/// After the last process was killed, its pipes close at once; what still holds one could not be killed.
const DRAIN_PATIENCE: Duration = Duration::from_secs(2);

/// What programs say when the kernel refused them something, in the languages of the boxes.
const REFUSALS: &[&str] = &[
    "ermission denied",
    "peration not permitted",
    "not supported by protocol",
    "权限不够",
    "不允许的操作",
    "权限被拒绝",
];

/// Where the home of a command is when the daemon's own is hidden from it: programs know what to do without one.
const NO_HOME: &str = "/nonexistent";

/// Bounds of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The longest that a command may ask for.
    pub patience_max: Duration,
    /// The most that is kept of each stream, bytes: the first and the last half of it.
    pub output_max: usize,
}

impl Default for Limits {
    /// Below the patience that the gate's schedule has with a shell call (120 s), so that our own deadline is first.
    fn default() -> Limits {
        Limits { patience_max: Duration::from_secs(110), output_max: 64 * 1024 }
    }
}

/// `shell`.
pub const SHELL: About = About {
    name: "shell",
    title: ["Run a shell command", "运行命令"],
    description: [
        "Runs one command line with /bin/sh -c in `cwd`, without input, and gives its exit code and output. Whatever it \
         leaves in the background is killed when it ends, and everything is killed after `timeout_s` seconds.",
        "在 cwd 目录中用 /bin/sh -c 运行一条命令，无标准输入，返回退出码和输出。命令结束时，其留在后台的进程会被终止；\
         超过 timeout_s 秒后，全部终止。",
    ],
    input,
    output,
};

fn input() -> Value {
    json!({
        "type": "object",
        "properties": {
            "command": { "type": "string", "minLength": 1, "maxLength": COMMAND_BYTES_MAX },
            "cwd": { "type": "string", "minLength": 1, "maxLength": 4096 },
            "timeout_s": { "type": "number", "exclusiveMinimum": 0, "description": "seconds; 60 if not given" }
        },
        "required": ["command"],
        "additionalProperties": false
    })
}

fn output() -> Value {
    let stream = |name: &str| {
        json!({
            "type": "object",
            "description": format!("{name}: the text, how many bytes there were, and whether the middle was left out"),
            "properties": {
                "text": { "type": "string" },
                "bytes": { "type": "integer", "minimum": 0 },
                "truncated": { "type": "boolean" }
            },
            "required": ["text", "bytes", "truncated"],
            "additionalProperties": false
        })
    };
    json!({
        "type": "object",
        "properties": {
            "exit_code": { "type": "integer", "minimum": 0, "maximum": 255 },
            "stdout": stream("standard output"),
            "stderr": stream("standard error"),
            "sandbox": {
                "type": "string",
                "description": "what the command may reach; there when it failed and said that something was refused"
            },
            "left_running": {
                "type": "integer", "minimum": 0,
                "description": "processes that the command left in the background; they were killed"
            },
            "millis": { "type": "integer", "minimum": 0 }
        },
        "required": ["exit_code", "stdout", "stderr", "left_running", "millis"],
        "additionalProperties": false
    })
}

/// Runs `shell`. `cwd` is the canonical directory that the gate decided on.
///
/// Dropped half way, everything that the command started is killed.
pub async fn run(input: &Value, cwd: &Path, limits: Limits, reach: &Arc<Reach>) -> Report {
    let (command, patience) = match parse(input, limits) {
        Ok(parsed) => parsed,
        Err(report) => return report,
    };
    let began = Instant::now();
    let mut running = match Running::start("/bin/sh", &["-c", &command], cwd, Stdio::null(), Some(reach)).await {
        Ok(running) => running,
        Err(report) => return report,
    };
    let (_, stdout, stderr) = running.streams();
    let stdout = tokio::spawn(hear(stdout, limits.output_max));
    let stderr = tokio::spawn(hear(stderr, limits.output_max));
    let pid = running.pid();
    let leader = tokio::task::spawn_blocking(move || offspring::wait_for_end(pid));
    let ended = timeout(patience, leader).await;
    let left = running.end().await;
    // All writers are gone, so what is still in the pipes is all there is.
    let (stdout, stderr) = (drained(stdout).await, drained(stderr).await);
    if left.still_there > 0 {
        tracing::warn!(still_there = left.still_there, "processes of a shell command could not be killed");
    }
    match ended {
        Err(_) => Report::Lost(Loss::TimedOut),
        Ok(Ok(Ok(End::Exited(code)))) => {
            let mut done = json!({
                "exit_code": code,
                "stdout": stdout,
                "stderr": stderr,
                "left_running": left.beside_leader,
                "millis": u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
            });
            if code != 0 && done["stderr"]["text"].as_str().is_some_and(was_refused) {
                done["sandbox"] = json!(told(reach));
            }
            Report::Done(done)
        }
        Ok(Ok(Ok(End::Killed(_)))) => Report::Lost(Loss::Killed),
        // Somebody else has reaped it, or the waiting itself broke: it ran, and nobody knows how it ended.
        Ok(Ok(Err(_)) | Err(_)) => Report::Lost(Loss::Stopped),
    }
}

/// Whether a program says that it was not allowed to: the kernel tells nobody whether it was the sandbox.
fn was_refused(said: &str) -> bool {
    REFUSALS.iter().any(|words| said.contains(words))
}

/// What a command may reach, for whoever was refused something.
fn told(reach: &Reach) -> String {
    let places: Vec<String> = reach.write.iter().map(|place| place.display().to_string()).collect();
    format!(
        "if it was the sandbox that refused: a command writes only below {} and in temporary directories, and does not \
         read the daemon's state, configuration and keys, nor devices",
        places.join(", ")
    )
}

fn parse(input: &Value, limits: Limits) -> Result<(String, Duration), Report> {
    let Some(command) = input.get("command").and_then(Value::as_str) else {
        return Err(bad_input("command is no string"));
    };
    if command.is_empty() || command.len() > COMMAND_BYTES_MAX || command.contains('\0') {
        return Err(bad_input(format!("a command line has 1 to {COMMAND_BYTES_MAX} bytes and no NUL")));
    }
    let patience = match input.get("timeout_s") {
        None => PATIENCE_DEFAULT.min(limits.patience_max),
        Some(seconds) => seconds
            .as_f64()
            .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
            .filter(|patience| !patience.is_zero() && *patience <= limits.patience_max)
            .ok_or_else(|| bad_input(format!("timeout_s is above 0 and at most {}", limits.patience_max.as_secs())))?,
    };
    Ok((command.to_owned(), patience))
}

/// A program that runs in a session of its own. Dropped, it takes everything that it started with it.
pub(super) struct Running {
    process: Process,
    stdin: Option<ChildStdin>,
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
}

impl Running {
    /// Starts a program in a directory, with the short environment; with a reach, in a sandbox of its own. A fork waits
    /// until the program is loaded, a millisecond or more: that is done by a thread for waiting, so that no other call
    /// starts later for it.
    ///
    /// # Errors
    /// How the call ends that it was started for.
    pub(super) async fn start(
        program: &str,
        arguments: &[&str],
        cwd: &Path,
        input: Stdio,
        reach: Option<&Arc<Reach>>,
    ) -> Result<Running, Report> {
        let directory = open::directory(cwd).map_err(|why| no_directory(&why))?;
        let mut shell = Process::command(program);
        shell
            .args(arguments)
            // The directory that was opened, whatever its name stands for by now.
            .current_dir(format!("/proc/self/fd/{}", directory.as_raw_fd()))
            .env("PWD", cwd)
            .stdin(input)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let reach = reach.cloned();
        if reach.as_ref().is_some_and(|reach| home_is_hidden(reach)) {
            shell.env("HOME", NO_HOME);
        }
        // Nobody may be left to take it: then it is dropped, and what began with it ends.
        let started = tokio::task::spawn_blocking(move || {
            let sandbox = reach.map(|reach| Sandbox::new(&reach)).transpose();
            let started = sandbox
                .map_err(|error| io::Error::other(format!("its sandbox: {error}")))
                .and_then(|sandbox| Process::start(&mut shell, sandbox));
            drop(directory);
            started
        });
        let mut process = started
            .await
            .unwrap_or_else(|error| Err(io::Error::other(error)))
            .map_err(|error| failed("not_started", format!("{program}: {error}")))?;
        // From here on the command runs: what goes wrong must end it, and the drop does.
        let child = process.child();
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let piped = || io::Error::other("no pipe");
        let stdout = stdout.ok_or_else(piped).and_then(ChildStdout::from_std);
        let stderr = stderr.ok_or_else(piped).and_then(ChildStderr::from_std);
        let stdin = stdin.map(ChildStdin::from_std).transpose();
        match (stdin, stdout, stderr) {
            (Ok(stdin), Ok(stdout), Ok(stderr)) => {
                Ok(Running { process, stdin, stdout: Some(stdout), stderr: Some(stderr) })
            }
            (Err(_), ..) | (_, Err(_), _) | (.., Err(_)) => Err(Report::Lost(Loss::Stopped)),
        }
    }

    /// Its streams, once.
    pub(super) fn streams(&mut self) -> (Option<ChildStdin>, Option<ChildStdout>, Option<ChildStderr>) {
        (self.stdin.take(), self.stdout.take(), self.stderr.take())
    }

    /// Its number.
    pub(super) fn pid(&mut self) -> u32 {
        self.process.child().id()
    }

    /// Kills what is left, then reaps.
    pub(super) async fn end(&mut self) -> Ended {
        self.process.end().await
    }
}

fn home_is_hidden(reach: &Reach) -> bool {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    home.is_some_and(|home| reach.hidden.iter().any(|hidden| home.starts_with(hidden)))
}

fn no_directory(why: &NotOpened) -> Report {
    let code = match why {
        NotOpened::NotCanonical(_) => "not_canonical",
        NotOpened::Link(_) => "path_changed",
        NotOpened::NotAFile { .. } | NotOpened::Refused { .. } => "no_such_directory",
    };
    failed(code, why.to_string())
}

/// What is kept of a stream: its first half and its last half.
pub(super) struct Kept {
    max: usize,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    bytes: u64,
}

/// Reads a stream to its end, so that the command never waits for us, and keeps what is to be kept.
pub(super) async fn hear(stream: Option<impl AsyncRead + Unpin>, max: usize) -> Kept {
    let mut kept = Kept { max, head: Vec::new(), tail: VecDeque::new(), bytes: 0 };
    let Some(mut stream) = stream else { return kept };
    let mut buffer = vec![0; 8192];
    // A pipe that breaks has ended.
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        kept.take(&buffer[..count]);
    }
    kept
}

impl Kept {
    fn take(&mut self, mut bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        let room = (self.max / 2).saturating_sub(self.head.len());
        let (first, rest) = bytes.split_at(room.min(bytes.len()));
        self.head.extend_from_slice(first);
        bytes = rest;
        self.tail.extend(bytes);
        let too_many = self.tail.len().saturating_sub(self.max - self.max / 2);
        self.tail.drain(..too_many);
    }

    /// What was kept, without a word about what was not.
    pub(super) fn whole(self) -> Vec<u8> {
        [self.head, Vec::from(self.tail)].concat()
    }

    fn output(self) -> Value {
        let left_out = self.bytes - self.head.len() as u64 - self.tail.len() as u64;
        let tail = Vec::from(self.tail);
        let text = if left_out == 0 {
            String::from_utf8_lossy(&[self.head, tail].concat()).into_owned()
        } else {
            let (head, tail) = (String::from_utf8_lossy(&self.head), String::from_utf8_lossy(&tail));
            format!("{head}\n[… {left_out} bytes left out …]\n{tail}")
        };
        json!({ "text": text, "bytes": self.bytes, "truncated": left_out > 0 })
    }
}

/// The stream's output, once nobody can write to it any more.
async fn drained(hearing: tokio::task::JoinHandle<Kept>) -> Value {
    let stop = hearing.abort_handle();
    match timeout(DRAIN_PATIENCE, hearing).await {
        Ok(Ok(kept)) => kept.output(),
        Ok(Err(_)) | Err(_) => {
            // A process that could not be killed holds it open. What it said so far is not waited for.
            stop.abort();
            json!({ "text": "", "bytes": 0, "truncated": true })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_and_the_last_half_of_a_stream_are_kept() {
        let check = |parts: &[&str], text: &str, truncated: bool| {
            let mut kept = Kept { max: 8, head: Vec::new(), tail: VecDeque::new(), bytes: 0 };
            parts.iter().for_each(|part| kept.take(part.as_bytes()));
            let bytes: usize = parts.iter().map(|part| part.len()).sum();
            assert_eq!(kept.output(), json!({ "text": text, "bytes": bytes, "truncated": truncated }));
        };
        check(&[], "", false);
        check(&["abcdefgh"], "abcdefgh", false);
        check(&["abc", "def", "gh"], "abcdefgh", false);
        check(&["abcdefghi"], "abcd\n[… 1 bytes left out …]\nfghi", true);
        check(&["ab", "cd", "efgh", "ijklmnop"], "abcd\n[… 8 bytes left out …]\nmnop", true);
        check(&["联锁", "bc"], "联锁bc", false);
    }

    #[test]
    fn a_wrong_input_starts_nothing() {
        let check = |input: Value| {
            let Err(Report::Failed(failure)) = parse(&input, Limits::default()) else { panic!("{input} was taken") };
            assert_eq!(failure.code, "bad_input");
        };
        check(json!({}));
        check(json!({ "command": "" }));
        check(json!({ "command": "a\u{0}b" }));
        check(json!({ "command": "true", "timeout_s": 0 }));
        check(json!({ "command": "true", "timeout_s": -1 }));
        check(json!({ "command": "true", "timeout_s": 111 }));
        check(json!({ "command": "true", "timeout_s": 1e300 }));
        check(json!({ "command": "x".repeat(COMMAND_BYTES_MAX + 1) }));
    }
}

//! A server that is our child: one message a line on its standard input and output.
//!
//! It lives in a session of its own and ends with everything that it started. Its life is told by the kernel (a pidfd),
//! not by the end of its output: a grandchild that holds the pipe would keep a dead server looking alive.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use interlock_domain::request::shown::plain;
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncWriteExt, Interest};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;

use super::link::{MESSAGE_LEN_MAX, NoAnswer, Switch, Wire};
use crate::mcp::lines::{Line, Lines};
use crate::mcp::rpc;
use crate::sys::pidfd;
use crate::tool::process::Process;

/// Lines that may wait for a child that does not read.
const LINES_MAX: usize = 256;

/// Bytes that are written at once: what a pipe holds.
const BATCH_LEN_MAX: usize = 64 << 10;

/// How long a child that was asked to end (its input is closed) may take.
const END_PATIENCE: Duration = Duration::from_secs(1);

/// How long what a child wrote before its end may take to be read.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// Longest line of standard error that is kept.
const REMARK_LEN_MAX: usize = 2_000;

/// Lines of standard error that go to the journal in one life.
const REMARKS_MAX: usize = 200;

/// The way to the one writer of a child.
#[derive(Debug, Clone)]
pub(super) struct Pipe(mpsc::Sender<String>);

impl Pipe {
    pub(super) async fn send(&self, text: String) -> Result<(), NoAnswer> {
        self.0.send(text).await.map_err(|_| NoAnswer::NotSent("its standard input is closed".to_owned()))
    }

    /// Without waiting: full means that the child does not read, and then it does not read this either.
    pub(super) fn send_now(&self, text: String) {
        let _full = self.0.try_send(text);
    }
}

/// How a child is started.
#[derive(Debug)]
pub(super) struct Start<'a> {
    pub(super) server: &'a str,
    pub(super) command: &'a [String],
    pub(super) cwd: Option<&'a Path>,
    pub(super) env: Vec<(String, String)>,
}

/// A child that runs, with the tasks that speak with it. Dropped, it is killed with all that it started.
#[derive(Debug)]
pub(super) struct Child {
    process: Process,
    pub(super) pid: u32,
    writer: AbortHandle,
    // They end with the child; kept so that they end with us.
    _tasks: JoinSet<()>,
    life: AsyncFd<OwnedFd>,
}

impl Child {
    /// Starts it.
    pub(super) fn start(start: &Start<'_>, switch: &Arc<Switch>) -> Result<(Child, Wire), String> {
        let Some((program, arguments)) = start.command.split_first() else {
            return Err("it has no command".to_owned());
        };
        let mut command = Process::command(program);
        command.args(arguments).envs(start.env.iter().map(|(name, value)| (name, value)));
        if let Some(cwd) = start.cwd {
            command.current_dir(cwd);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = Process::start(&mut command, None).map_err(|error| format!("{program}: {error}"))?;
        let broken = |what: &str| format!("{program}: no {what}");
        let child = process.child();
        let pid = child.id();
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let stdin = stdin.and_then(|pipe| ChildStdin::from_std(pipe).ok()).ok_or_else(|| broken("standard input"))?;
        let stdout =
            stdout.and_then(|pipe| ChildStdout::from_std(pipe).ok()).ok_or_else(|| broken("standard output"))?;
        let stderr =
            stderr.and_then(|pipe| ChildStderr::from_std(pipe).ok()).ok_or_else(|| broken("standard error"))?;
        let told = |error: std::io::Error| format!("{program}: no handle of it: {error}");
        let (life, death) = (life_of(pid).map_err(told)?, life_of(pid).map_err(told)?);
        let (lines, outlet) = mpsc::channel(LINES_MAX);
        let wire = Wire::Pipe(Pipe(lines));
        let mut tasks = JoinSet::new();
        let writer = tasks.spawn(write(stdin, outlet, Arc::clone(switch)));
        tasks.spawn(read(stdout, death, Arc::clone(switch), wire.clone()));
        tasks.spawn(remarks(stderr, start.server.to_owned()));
        Ok((Child { process, pid, writer, _tasks: tasks, life }, wire))
    }

    /// Asks it to end by closing its input, waits a moment, and kills what is left of it.
    pub(super) async fn end(mut self) {
        self.writer.abort();
        let _late = timeout(END_PATIENCE, self.life.readable()).await;
        let ended = self.process.end().await;
        if ended.still_there > 0 {
            tracing::warn!(
                pid = self.pid,
                still_there = ended.still_there,
                "processes of a server could not be killed"
            );
        }
    }

    /// Kills it with all that it started, and reaps it.
    pub(super) async fn kill(mut self) {
        self.process.end().await;
    }
}

/// A handle that becomes readable when the process ends.
fn life_of(pid: u32) -> std::io::Result<AsyncFd<OwnedFd>> {
    let handle = pidfd::open_process(i32::try_from(pid).map_err(std::io::Error::other)?)?;
    #[expect(
        deprecated,
        reason = "an OwnedFd stays open and the same for as long as it lives; the successor is unsafe"
    )]
    AsyncFd::with_interest(handle, Interest::READABLE)
}

async fn write(mut stdin: ChildStdin, mut lines: mpsc::Receiver<String>, switch: Arc<Switch>) {
    while let Some(mut line) = lines.recv().await {
        line.push('\n');
        // What waits behind it goes with it: a call to the kernel costs more than a copy.
        while line.len() < BATCH_LEN_MAX
            && let Ok(more) = lines.try_recv()
        {
            line.push_str(&more);
            line.push('\n');
        }
        let written = async {
            stdin.write_all(line.as_bytes()).await?;
            stdin.flush().await
        };
        if let Err(error) = written.await {
            // The reader tells the end, unless the child only closed its input.
            return switch.end(false, format!("its standard input broke: {error}"));
        }
    }
}

async fn read(stdout: ChildStdout, death: AsyncFd<OwnedFd>, switch: Arc<Switch>, wire: Wire) {
    let mut lines = Lines::new(stdout, MESSAGE_LEN_MAX);
    let (killed, why) = loop {
        let line = tokio::select! {
            biased;
            line = lines.next() => line,
            _dead = death.readable() => {
                // What it wrote before its end counts; what a grandchild writes now is not waited for.
                let rest = async {
                    while let Ok(Some(line)) = lines.next().await {
                        take(line, &switch, &wire);
                    }
                };
                let _late = timeout(LAST_WORDS, rest).await;
                break (true, "its process ended".to_owned());
            }
        };
        match line {
            Ok(Some(line)) => take(line, &switch, &wire),
            // Most often because its process has ended; the kernel's word for that may come a moment later.
            Ok(None) => match timeout(LAST_WORDS, death.readable()).await {
                Ok(_) => break (true, "its process ended".to_owned()),
                Err(_) => break (false, "its standard output is closed".to_owned()),
            },
            Err(error) => break (false, format!("its standard output broke: {error}")),
        }
    };
    switch.end(killed, why);
}

fn take(line: Line, switch: &Arc<Switch>, wire: &Wire) {
    // Banners and stray prints: they are no messages, and no reason to give the server up.
    match &line {
        Line::Whole(bytes) => match rpc::read_within(bytes, MESSAGE_LEN_MAX) {
            Ok(message) => switch.take(message, None, wire),
            Err(unreadable) => switch.misread(&unreadable),
        },
        Line::TooLong => switch.misread(&rpc::too_long()),
    }
}

/// What it says on standard error goes to the journal, up to a bound; it is always read, so that it never waits.
async fn remarks(stderr: ChildStderr, server: String) {
    let mut lines = Lines::new(stderr, REMARK_LEN_MAX);
    let mut count = 0;
    while let Ok(Some(line)) = lines.next().await {
        count += 1;
        if let (Line::Whole(bytes), true) = (line, count <= REMARKS_MAX) {
            tracing::debug!(%server, "said: {}", plain(&String::from_utf8_lossy(&bytes), REMARK_LEN_MAX));
        }
    }
}

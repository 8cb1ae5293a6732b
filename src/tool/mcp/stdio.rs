//! A server that is our child: one message a line on its standard input and output.
//!
//! It lives in a session of its own and ends with everything that it started. Its life is told by the kernel (a pidfd),
//! not by the end of its output: a grandchild that holds the pipe would keep a dead server looking alive.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use interlock_domain::request::shown::plain;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::unix::pipe;
use tokio::process::{ChildStderr, ChildStdout};
use tokio::sync::Notify;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;

use super::link::{MESSAGE_LEN_MAX, NoAnswer, Switch, Wire};
use crate::mcp::lines::{Line, Lines};
use crate::mcp::rpc;
use crate::sys::pidfd;
use crate::tool::process::Process;

/// Lines that may wait for a child that does not read.
const LINES_MAX: usize = 256;

/// How long a child that was asked to end (its input is closed) may take.
const END_PATIENCE: Duration = Duration::from_secs(1);

/// How long what a child wrote before its end may take to be read.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// Longest line of standard error that is kept.
const REMARK_LEN_MAX: usize = 2_000;

/// Lines of standard error that go to the journal in one life.
const REMARKS_MAX: usize = 200;

/// The way to a child's standard input. Whoever has a line writes it at once, where nothing waits before it: to wake a
/// writer for it costs a call more than the writing. What the pipe does not take waits for the writer, in order.
#[derive(Debug, Clone)]
pub(super) struct Pipe(Arc<Input>);

#[derive(Debug)]
struct Input {
    // Held over a call to the kernel that does not wait. All that is written is written under it: lines stay whole.
    backlog: Mutex<Backlog>,
    /// Something waits for the writer.
    waits: Notify,
    /// Something does not wait any more, or it was closed.
    room: Notify,
    switch: Arc<Switch>,
}

#[derive(Debug)]
struct Backlog {
    /// None once it is closed.
    stdin: Option<Arc<pipe::Sender>>,
    /// What the pipe did not take; of the first, what is left of it.
    lines: VecDeque<Vec<u8>>,
}

/// What became of an attempt to empty a backlog.
enum Written {
    All,
    /// The pipe is full.
    Some,
    /// Nobody reads any more.
    Closed,
}

impl Backlog {
    fn write(&mut self) -> Result<Written, std::io::Error> {
        let Some(stdin) = &self.stdin else { return Ok(Written::Closed) };
        while let Some(line) = self.lines.front_mut() {
            match stdin.try_write(line) {
                Ok(count) if count == line.len() => drop(self.lines.pop_front()),
                Ok(count) => drop(line.drain(..count)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Written::Some),
                Err(error) => {
                    self.stdin = None;
                    return Err(error);
                }
            }
        }
        Ok(Written::All)
    }
}

/// What became of a line.
enum Put {
    Done,
    /// Too many wait.
    Full(String),
    Closed,
}

impl Pipe {
    fn new(stdin: pipe::Sender, switch: Arc<Switch>) -> Pipe {
        let backlog = Mutex::new(Backlog { stdin: Some(Arc::new(stdin)), lines: VecDeque::new() });
        Pipe(Arc::new(Input { backlog, waits: Notify::new(), room: Notify::new(), switch }))
    }

    fn backlog(&self) -> MutexGuard<'_, Backlog> {
        self.0.backlog.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, text: String) -> Put {
        let mut backlog = self.backlog();
        if backlog.stdin.is_none() {
            return Put::Closed;
        }
        if backlog.lines.len() >= LINES_MAX {
            return Put::Full(text);
        }
        let (is_first, mut line) = (backlog.lines.is_empty(), text.into_bytes());
        line.push(b'\n');
        let len = line.len();
        backlog.lines.push_back(line);
        if !is_first {
            return Put::Done;
        }
        match backlog.write() {
            Ok(Written::All) => Put::Done,
            Ok(Written::Some) => {
                self.0.waits.notify_one();
                Put::Done
            }
            Ok(Written::Closed) => Put::Closed,
            Err(error) => {
                let was_sent = backlog.lines.front().is_some_and(|left| left.len() < len);
                drop(backlog);
                self.broke(&error);
                if was_sent { Put::Done } else { Put::Closed }
            }
        }
    }

    /// The reader tells the end, unless the child only closed its input.
    fn broke(&self, error: &std::io::Error) {
        self.0.switch.end(false, format!("its standard input broke: {error}"));
        self.0.room.notify_waiters();
    }

    pub(super) async fn send(&self, text: String) -> Result<(), NoAnswer> {
        let mut text = text;
        loop {
            let room = self.0.room.notified();
            match self.put(text) {
                Put::Done => return Ok(()),
                Put::Closed => return Err(NoAnswer::NotSent("its standard input is closed".to_owned())),
                Put::Full(back) => text = back,
            }
            room.await;
        }
    }

    /// Without waiting: full means that the child does not read, and then it does not read this either.
    pub(super) fn send_now(&self, text: String) {
        let _full = self.put(text);
    }

    /// Closes it, with what still waits.
    fn close(&self) {
        self.backlog().stdin = None;
        self.0.room.notify_waiters();
    }
}

/// Writes what the pipe did not take at once.
async fn write(pipe: Pipe) {
    loop {
        pipe.0.waits.notified().await;
        loop {
            let stdin = pipe.backlog().stdin.clone();
            let Some(stdin) = stdin else { return };
            // An error is met again by the writing.
            let _ready = stdin.writable().await.is_ok();
            let written = pipe.backlog().write();
            pipe.0.room.notify_waiters();
            match written {
                Ok(Written::All) => break,
                Ok(Written::Some) => {}
                Ok(Written::Closed) => return,
                Err(error) => return pipe.broke(&error),
            }
        }
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
    pipe: Pipe,
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
        let stdin = stdin.and_then(|pipe| pipe::Sender::from_owned_fd(pipe.into()).ok());
        let stdin = stdin.ok_or_else(|| broken("standard input"))?;
        let stdout =
            stdout.and_then(|pipe| ChildStdout::from_std(pipe).ok()).ok_or_else(|| broken("standard output"))?;
        let stderr =
            stderr.and_then(|pipe| ChildStderr::from_std(pipe).ok()).ok_or_else(|| broken("standard error"))?;
        let told = |error: std::io::Error| format!("{program}: no handle of it: {error}");
        let (life, death) = (life_of(pid).map_err(told)?, life_of(pid).map_err(told)?);
        let pipe = Pipe::new(stdin, Arc::clone(switch));
        let wire = Wire::Pipe(pipe.clone());
        let mut tasks = JoinSet::new();
        let writer = tasks.spawn(write(pipe.clone()));
        tasks.spawn(read(stdout, death, Arc::clone(switch), wire.clone()));
        tasks.spawn(remarks(stderr, start.server.to_owned()));
        Ok((Child { process, pid, pipe, writer, _tasks: tasks, life }, wire))
    }

    /// Asks it to end by closing its input, waits a moment, and kills what is left of it.
    pub(super) async fn end(mut self) {
        self.pipe.close();
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
        self.pipe.close();
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

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncBufReadExt, BufReader};

    use super::*;

    const WRITERS: usize = 4;
    const EACH: usize = 200;

    #[tokio::test]
    async fn lines_stay_whole_and_in_order_however_slowly_they_are_read() {
        let (stdin, child) = pipe::pipe().expect("a pipe");
        let pipe = Pipe::new(stdin, Switch::new().0);
        let mut tasks = JoinSet::new();
        tasks.spawn(write(pipe.clone()));
        for writer in 0..WRITERS {
            let pipe = pipe.clone();
            tasks.spawn(async move {
                for number in 0..EACH {
                    // Longer than a page, so that the pipe takes some of them in parts.
                    let line = format!("{writer} {number} {}", "x".repeat(7_000));
                    pipe.send(line).await.expect("it is open");
                }
            });
        }
        let mut lines = BufReader::new(child).lines();
        let mut next = [0; WRITERS];
        for _ in 0..WRITERS * EACH {
            let line = lines.next_line().await.expect("it is read").expect("a line");
            let words: Vec<&str> = line.split(' ').collect();
            let [writer, number] = [words[0], words[1]].map(|word| word.parse::<usize>().expect("a number"));
            assert_eq!((number, words[2].len()), (next[writer], 7_000));
            next[writer] += 1;
        }
        pipe.close();
        let refused = pipe.send("late".to_owned()).await;
        assert!(matches!(refused, Err(NoAnswer::NotSent(_))), "{refused:?}");
    }

    #[tokio::test]
    async fn a_child_that_reads_no_more_gives_its_waiting_callers_back() {
        let (stdin, child) = pipe::pipe().expect("a pipe");
        let switch = Switch::new().0;
        let pipe = Pipe::new(stdin, Arc::clone(&switch));
        let mut tasks = JoinSet::new();
        tasks.spawn(write(pipe.clone()));
        // More than the pipe and the backlog hold together.
        let waiting = async {
            for _ in 0..10 * LINES_MAX {
                pipe.send("x".repeat(1 << 10)).await?;
            }
            Ok(())
        };
        let (ended, ()) = tokio::join!(timeout(Duration::from_secs(10), waiting), async {
            while pipe.backlog().lines.len() < LINES_MAX {
                tokio::task::yield_now().await;
            }
            drop(child);
        });
        assert!(matches!(ended, Ok(Err(NoAnswer::NotSent(_)))), "{ended:?}");
        assert!(switch.down().is_some_and(|down| down.why.contains("standard input broke")));
    }
}

//! A process of ours in a session of its own, and everything that came out of it.
//!
//! What a tool starts may fork twice, take a new session and so leave its process group; its end would then not be the
//! end of what it does. So each start carries a mark in its environment, which every descendant inherits, and the end
//! looks through `/proc` for the session, the group, the descendants and the mark. A process that wiped its own
//! environment *and* left the session *and* was orphaned is not found: without a control group of our own there is no
//! more to go by.
//!
//! The leader must not be reaped before [`Offspring::end`] has returned: as long as it is there (a zombie will do), its
//! number is the number of nobody else.

use std::collections::BTreeSet;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;

/// The variable that carries the mark.
const MARK: &str = "TOOL_CALL_MARK";

/// How often the end looks again. Each look kills all that it finds, so only what forks faster than we look, or what
/// we may not kill, is still there after this many.
const LOOKS_MAX: u32 = 100;

/// Between two looks: the kernel needs a moment to take a killed process away.
const BETWEEN_LOOKS: Duration = Duration::from_millis(2);

static STARTS: AtomicU64 = AtomicU64::new(1);

/// What one start brought into the world.
#[derive(Debug, Clone)]
pub struct Offspring {
    leader: i32,
    mark: String,
}

/// A mark for the next start, as `(name, value)` for its environment.
#[must_use]
pub fn mark() -> (&'static str, String) {
    // Ours alone on this machine as long as we live: our number and a count.
    (MARK, format!("{}-{}", std::process::id(), STARTS.fetch_add(1, Ordering::Relaxed)))
}

/// The descriptors that are closed one by one on a kernel that cannot close a range (before 5.11): what we inherited
/// came in low.
const DESCRIPTORS_CLOSED: libc::c_int = 1024;

/// Lets `command` begin in a session and a process group of its own, with no descriptor but the standard three, no
/// signal blocked and none of ours ignored.
///
/// What we open ourselves closes at exec anyway; what we inherited from whoever started us may not.
pub fn in_own_session(command: &mut Command) {
    let begin = || {
        if nix::unistd::setsid().is_err() {
            return Err(io::Error::last_os_error());
        }
        // Marked rather than closed: the standard library tells us through one of them whether exec worked.
        // SAFETY: plain numbers.
        let marked = unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) };
        if marked != 0 {
            for descriptor in 3..DESCRIPTORS_CLOSED {
                // SAFETY: plain numbers; a descriptor that is not open answers EBADF.
                unsafe { libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC) };
            }
        }
        Ok(())
    };
    // SAFETY: the closure runs between fork and exec, where only async-signal-safe calls may be made: setsid and fcntl
    // are, close_range is a bare system call, and reading errno allocates nothing.
    unsafe { command.pre_exec(begin) };
    super::signal::as_by_default(command);
}

/// Waits until the child has ended, and leaves it to be reaped. Blocks.
///
/// # Errors
/// ECHILD when somebody else has reaped it.
pub fn wait_for_end(pid: u32) -> io::Result<End> {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap_or(-1));
    loop {
        match waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT) {
            Ok(WaitStatus::Exited(_, code)) => return Ok(End::Exited(code)),
            Ok(WaitStatus::Signaled(_, signal, _)) => return Ok(End::Killed(signal as i32)),
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// By itself, with this code.
    Exited(i32),
    /// By a signal.
    Killed(i32),
}

impl Offspring {
    /// Of the child `leader`, which was started with this mark's value in its environment and in its own session.
    #[must_use]
    pub fn of(leader: u32, mark: String) -> Offspring {
        Offspring { leader: i32::try_from(leader).unwrap_or(-1), mark }
    }

    /// Kills everything of it that still runs, the leader included. Gives how many processes beside the leader there
    /// were, and how many could not be ended. Blocks for at most `LOOKS_MAX * BETWEEN_LOOKS`.
    #[must_use]
    pub fn end(&self) -> Ended {
        let mut seen = BTreeSet::new();
        let mut living = self.living();
        for _ in 0..LOOKS_MAX {
            if living.is_empty() {
                break;
            }
            for pid in &living {
                seen.insert(*pid);
                // Already gone is as good; what we may not kill is counted below.
                let _ = kill(Pid::from_raw(*pid), Signal::SIGKILL);
            }
            pause();
            living = self.living();
        }
        seen.remove(&self.leader);
        Ended { beside_leader: seen.len(), still_there: living.len() }
    }

    /// The processes that belong to it and have not ended.
    fn living(&self) -> Vec<i32> {
        let all: Vec<Process> = processes();
        let mut ours: BTreeSet<i32> = all.iter().filter(|process| self.owns(process)).map(|p| p.pid).collect();
        // Children of what is ours are ours; the table is in no order, so until nothing is added.
        loop {
            let more: Vec<i32> =
                all.iter().filter(|p| ours.contains(&p.parent) && !ours.contains(&p.pid)).map(|p| p.pid).collect();
            if more.is_empty() {
                break;
            }
            ours.extend(more);
        }
        all.iter().filter(|p| ours.contains(&p.pid) && !p.ended).map(|p| p.pid).collect()
    }

    fn owns(&self, process: &Process) -> bool {
        let by_number = [process.pid, process.group, process.session].contains(&self.leader);
        by_number || (!process.ended && environment_has(process.pid, MARK, &self.mark))
    }
}

/// What [`Offspring::end`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// Processes that were killed beside the leader.
    pub beside_leader: usize,
    /// Processes that are still there.
    pub still_there: usize,
}

#[expect(clippy::disallowed_methods, reason = "there is no event for the end of a process that is not our child")]
fn pause() {
    std::thread::sleep(BETWEEN_LOOKS);
}

struct Process {
    pid: i32,
    parent: i32,
    group: i32,
    session: i32,
    ended: bool,
}

fn processes() -> Vec<Process> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    // A process may give itself a name that is no UTF-8.
    let stat = |pid| Some(String::from_utf8_lossy(&std::fs::read(format!("/proc/{pid}/stat")).ok()?).into_owned());
    pids.filter_map(|pid| process(pid, &stat(pid)?)).collect()
}

fn process(pid: i32, stat: &str) -> Option<Process> {
    // The name may hold anything, parentheses and blanks included: what we read stands after the last one.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?;
    let mut number = || fields.next()?.parse().ok();
    Some(Process { pid, parent: number()?, group: number()?, session: number()?, ended: matches!(state, "Z" | "X") })
}

fn environment_has(pid: i32, name: &str, value: &str) -> bool {
    let wanted = format!("{name}={value}");
    std::fs::read(format!("/proc/{pid}/environ"))
        .is_ok_and(|environment| environment.split(|byte| *byte == 0).any(|entry| entry == wanted.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::process::Stdio;

    /// Runs a script in its own session until it has closed its standard output, and ends all of it.
    fn ended(script: &str) -> (Ended, String) {
        let (name, value) = mark();
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]).env(name, &value).stdin(Stdio::null()).stdout(Stdio::piped());
        in_own_session(&mut command);
        let mut child = command.spawn().unwrap();
        let mut said = String::new();
        child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        let all = Offspring::of(child.id(), value);
        let ended = all.end();
        child.wait().unwrap();
        assert!(all.living().is_empty());
        (ended, said)
    }

    #[test]
    fn what_left_its_group_and_session_is_found_and_killed() {
        let none = Ended { beside_leader: 0, still_there: 0 };
        assert_eq!(ended("exit 0").0, none);
        // `exec` keeps the number of processes exact; closing standard output says that they have all started.
        let one = Ended { beside_leader: 1, still_there: 0 };
        assert_eq!(ended("sleep 600 >&- & exec >&-; wait").0, one, "a background process");
        assert_eq!(ended("setsid sh -c 'exec >&-; exec sleep 600' & exec >&-; wait").0, one, "its own session");
        let orphan = "sh -c 'setsid sh -c \"exec >&-; exec sleep 600\" &' >&1; exit 0";
        assert_eq!(ended(orphan).0, one, "forked twice, in its own session, its parents gone");
    }

    #[test]
    fn the_leader_has_a_session_of_its_own() {
        let (_, said) = ended("cat /proc/$$/stat; echo $$");
        let (stat, pid) = said.trim().rsplit_once('\n').unwrap();
        let leader = process(0, stat).unwrap();
        assert_eq!([leader.group, leader.session], [pid.parse::<i32>().unwrap(); 2]);
    }

    #[test]
    fn a_tool_can_end_what_it_starts_although_the_daemon_reads_its_own_signals() {
        let _signals = super::super::signal::Signals::take().unwrap();
        let (_, said) = ended("grep SigBlk: /proc/self/status; timeout 0.1 sleep 600; echo $?");
        assert_eq!(said.split_whitespace().collect::<Vec<_>>(), ["SigBlk:", "0000000000000000", "124"]);
    }

    #[test]
    fn a_name_with_parentheses_does_not_confuse_the_reading() {
        let read = process(7, "7 (a) S 1 (b)) S 3 4 5 0 -1").unwrap();
        assert_eq!((read.parent, read.group, read.session, read.ended), (3, 4, 5, false));
    }
}

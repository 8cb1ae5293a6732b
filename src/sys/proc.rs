//! Readers of `/proc`, for suspects only: it costs microseconds a file where an atomic costs nanoseconds.
//!
//! Each gives what it could read; a file that a sandbox hides is a missing value, not an error, except for the state
//! itself.

use std::fs;
use std::io;

use interlock_domain::liveness::cause::{Counters, ThreadState, Waits};

/// The size of a memory page, bytes.
pub(super) fn page_size() -> u64 {
    // SAFETY: a plain question.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// A line of `/proc/PID/stat` or `/proc/PID/task/TID/stat`, as far as we need it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stat {
    /// Its name, at most 15 bytes; anyone may choose it, parentheses and spaces included.
    pub name: String,
    /// What it is doing.
    pub state: ThreadState,
    /// Its parent process.
    pub parent: i32,
    /// CPU time in clock ticks, user and system together.
    pub cpu_ticks: u64,
    /// When it began, clock ticks after the boot. A label, not an identity: it was measured equal after reuse.
    pub began: u64,
}

/// Takes a stat line apart.
#[must_use]
pub fn parse_stat(line: &str) -> Option<Stat> {
    // The name is between the first and the last parenthesis: it may contain both.
    let (_, rest) = line.split_once('(')?;
    let (name, rest) = rest.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    Some(Stat {
        name: name.to_owned(),
        state: ThreadState::from_letter(fields.first()?.chars().next()?),
        parent: fields.get(1)?.parse().ok()?,
        cpu_ticks: number(14)? + number(15)?,
        began: number(22)?,
    })
}

fn read_stat(path: &str) -> io::Result<Stat> {
    let bytes = fs::read(path)?;
    parse_stat(&String::from_utf8_lossy(&bytes))
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("{path} has another form")))
}

/// The stat line of a process.
///
/// # Errors
/// ENOENT or ESRCH when it is gone.
pub fn process(pid: i32) -> io::Result<Stat> {
    read_stat(&format!("/proc/{pid}/stat"))
}

/// The stat line of a thread of a process.
///
/// # Errors
/// As [`process`].
pub fn thread(pid: i32, tid: i32) -> io::Result<Stat> {
    read_stat(&format!("/proc/{pid}/task/{tid}/stat"))
}

/// The threads of a process.
///
/// # Errors
/// ENOENT when it is gone.
pub fn threads(pid: i32) -> io::Result<Vec<i32>> {
    let mut tids = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/task"))? {
        if let Some(tid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) {
            tids.push(tid);
        }
    }
    Ok(tids)
}

/// The children of a process: those that each of its threads started, and the orphans that it adopted.
///
/// # Errors
/// ENOENT when it is gone. A kernel without `CONFIG_PROC_CHILDREN` shows none.
pub fn children(pid: i32) -> io::Result<Vec<i32>> {
    let mut children = Vec::new();
    for tid in threads(pid)? {
        let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/children")).unwrap_or_default();
        children.extend(text.split_ascii_whitespace().filter_map(|pid| pid.parse::<i32>().ok()));
    }
    Ok(children)
}

/// Everything that the judge wants to know of a suspect. Of our own threads, `pid` is our own.
///
/// # Errors
/// ENOENT or ESRCH when it is gone.
pub fn counters(pid: i32, tid: i32) -> io::Result<Counters> {
    let base = format!("/proc/{pid}/task/{tid}");
    let stat = read_stat(&format!("{base}/stat"))?;
    let schedstat = fs::read_to_string(format!("{base}/schedstat")).unwrap_or_default();
    let mut times = schedstat.split_ascii_whitespace().map(|field| field.parse().unwrap_or(0));
    let (cpu_ns, delay_ns) = (times.next(), times.next());
    let status = fs::read_to_string(format!("{base}/status")).unwrap_or_default();
    let counted = |key: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(key))?;
        line.trim().parse().ok()
    };
    let syscall = fs::read_to_string(format!("{base}/syscall"))
        .ok()
        .and_then(|text| text.split_ascii_whitespace().next()?.parse().ok())
        .filter(|number: &i64| *number >= 0);
    let wchan = fs::read_to_string(format!("{base}/wchan")).unwrap_or_default();
    let wchan = if wchan == "0" { String::new() } else { wchan };
    Ok(Counters {
        state: stat.state,
        cpu_ns: cpu_ns.unwrap_or_else(|| ticks_to_ns(stat.cpu_ticks)),
        delay_ns: delay_ns.unwrap_or(0),
        voluntary: counted("voluntary_ctxt_switches:").unwrap_or(0),
        involuntary: counted("nonvoluntary_ctxt_switches:").unwrap_or(0),
        waits: if stat.state == ThreadState::Runnable { Waits::Unknown } else { waits(syscall, &wchan) },
        syscall,
        wchan,
    })
}

fn ticks_to_ns(ticks: u64) -> u64 {
    // SAFETY: a plain question.
    let per_second = u64::try_from(unsafe { libc::sysconf(libc::_SC_CLK_TCK) }).unwrap_or(100).max(1);
    ticks.saturating_mul(1_000_000_000 / per_second)
}

const IO_CALLS: &[libc::c_long] = &[
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_pread64,
    libc::SYS_preadv,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_pwrite64,
    libc::SYS_pwritev,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_connect,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_openat,
    libc::SYS_flock,
    libc::SYS_ioctl,
    libc::SYS_io_uring_enter,
    libc::SYS_io_getevents,
    libc::SYS_splice,
    libc::SYS_sendfile,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_select,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_wait,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_open,
];

fn waits(syscall: Option<i64>, wchan: &str) -> Waits {
    let Some(number) = syscall else {
        // The number is hidden from a process without ptrace rights: the wait channel tells most of it.
        return match wchan {
            "" => Waits::Unknown,
            name if name.contains("futex") => Waits::Futex,
            name if name.contains("nanosleep") => Waits::Sleep,
            name if ["pipe", "poll", "sock", "skb", "tcp", "unix", "inet", "tty", "n_tty", "ep_"]
                .iter()
                .any(|part| name.contains(part)) =>
            {
                Waits::Io
            }
            _ => Waits::Other,
        };
    };
    match libc::c_long::try_from(number).unwrap_or(-1) {
        libc::SYS_futex => Waits::Futex,
        libc::SYS_nanosleep | libc::SYS_clock_nanosleep => Waits::Sleep,
        number if IO_CALLS.contains(&number) => Waits::Io,
        _ => Waits::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expected: Option<(&str, char, i32, u64, u64)>) {
        let found = parse_stat(line);
        let found = found.as_ref().map(|s| (s.name.as_str(), s.state.letter(), s.parent, s.cpu_ticks, s.began));
        assert_eq!(found, expected, "{line}");
    }

    #[test]
    fn stat_lines_are_read_whatever_the_name_is() {
        let rest = "S 1 2 2 0 -1 0 0 0 0 0 3 4 0 0 20 0 1 0 98476 1 1";
        check(&format!("7 (cat) {rest}"), Some(("cat", 'S', 1, 7, 98_476)));
        check(&format!("7 (a) R 9 ) {rest}"), Some(("a) R 9 ", 'S', 1, 7, 98_476)));
        check(&format!("7 () {rest}"), Some(("", 'S', 1, 7, 98_476)));
        check("7 (cat) S 1", None);
        check("", None);
    }

    #[test]
    fn our_own_threads_have_counters() {
        let own = i32::try_from(std::process::id()).unwrap();
        let tid = super::super::thread::own_tid();
        assert!(threads(own).unwrap().contains(&tid));
        let counters = counters(own, tid).unwrap();
        assert_eq!((counters.state, counters.waits), (ThreadState::Runnable, Waits::Unknown), "{counters:?}");
    }

    #[test]
    fn a_hidden_number_is_told_from_the_wait_channel() {
        for (number, wchan, expected) in [
            (Some(libc::SYS_futex), "", Waits::Futex),
            (Some(libc::SYS_read), "", Waits::Io),
            (Some(libc::SYS_clock_nanosleep), "", Waits::Sleep),
            (Some(libc::SYS_wait4), "", Waits::Other),
            (None, "futex_do_wait", Waits::Futex),
            (None, "unix_stream_read_generic", Waits::Io),
            (None, "hrtimer_nanosleep", Waits::Sleep),
            (None, "do_wait", Waits::Other),
            (None, "", Waits::Unknown),
        ] {
            assert_eq!(waits(number, wchan), expected, "{number:?} {wchan}");
        }
    }
}

//! Who descends from us, and the orphans that come to us.
//!
//! We are the subreaper: a process that a tool started and that let its parent die becomes our child, not init's, so
//! that a double fork does not leave the family. What descends from us gets no verb on the socket (contracts.md,
//! "Questions"). When a walk up the tree cannot be finished, the answer is [`Descent::Unknown`], which is not "no".

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::Duration;

use interlock_domain::time::Tick;
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::Pid;

use super::proc;

/// The longest chain of parents that is followed: a deeper one is not a family tree, and the walk must end.
const DEPTH_MAX: usize = 256;
/// The most descendants that are listed: beyond it the answer is that we do not know.
const FAMILY_MAX: usize = 10_000;
/// How often a walk starts anew because a parent ended under it.
const WALKS_MAX: usize = 4;
/// How long an ended child may wait for whoever started it before we reap it: an owner reaps within milliseconds, so
/// what is still there is an orphan (or was forgotten).
const ORPHAN_AFTER: Duration = Duration::from_secs(10);

/// Makes this process the one to which orphans of its descendants come.
///
/// # Errors
/// EINVAL before Linux 3.4.
pub fn become_subreaper() -> io::Result<()> {
    // SAFETY: plain numbers.
    let code = unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
    if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// What a walk up the tree found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Descent {
    /// The process descends from us (or is us).
    Ours,
    /// It does not.
    Foreign,
    /// The walk could not be finished: a parent vanished again and again, or belongs to another view of the pids.
    Unknown,
}

/// Whether `pid` descends from this process.
#[must_use]
pub fn descent(pid: i32) -> Descent {
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    // A parent that ends while we walk leaves its children to us: the next walk sees that.
    for _ in 0..WALKS_MAX {
        match walk_up(pid, own) {
            Descent::Unknown => {}
            found @ (Descent::Ours | Descent::Foreign) => return found,
        }
    }
    if pid <= 0 {
        return Descent::Unknown;
    }
    walk_down(pid, own)
}

fn walk_up(pid: i32, own: i32) -> Descent {
    let mut at = pid;
    for _ in 0..DEPTH_MAX {
        match at {
            _ if at == own => return Descent::Ours,
            // The root of our view: everything that is not under us is beside us.
            1 => return Descent::Foreign,
            ..=0 => return Descent::Unknown,
            _ => {}
        }
        match proc::process(at) {
            // Its parent is outside our view.
            Ok(stat) if stat.parent == 0 => return Descent::Foreign,
            Ok(stat) => at = stat.parent,
            Err(_) => return Descent::Unknown,
        }
    }
    Descent::Unknown
}

/// For a process whose parents are hidden from us (`ProtectProc=invisible` hides other users' processes): our own
/// descendants are not hidden. Two equal lists in a row are needed, since a process may move towards us in between.
fn walk_down(pid: i32, own: i32) -> Descent {
    let mut before = None;
    for _ in 0..WALKS_MAX {
        let Some(family) = descendants(own) else { return Descent::Unknown };
        if family.contains(&pid) {
            return Descent::Ours;
        }
        if before.as_ref() == Some(&family) {
            return Descent::Foreign;
        }
        before = Some(family);
    }
    Descent::Unknown
}

/// Whether this process or one of its descendants holds the socket with this inode. A descriptor table that may not be
/// read is another user's: then the answer is that we do not know.
#[must_use]
pub fn holds_socket(inode: u64) -> Descent {
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    let link = std::path::PathBuf::from(format!("socket:[{inode}]"));
    let mut before = None;
    // A descriptor may move to a child while we look: two equal families in a row are needed.
    for _ in 0..WALKS_MAX {
        let Some(mut family) = descendants(own) else { return Descent::Unknown };
        family.insert(own);
        for pid in &family {
            let Ok(descriptors) = std::fs::read_dir(format!("/proc/{pid}/fd")) else {
                if proc::process(*pid).is_ok() && std::fs::metadata(format!("/proc/{pid}/fd")).is_ok() {
                    return Descent::Unknown;
                }
                continue;
            };
            let mut links = descriptors.flatten().filter_map(|entry| std::fs::read_link(entry.path()).ok());
            if links.any(|target| target == link) {
                return Descent::Ours;
            }
        }
        if before.as_ref() == Some(&family) {
            return Descent::Foreign;
        }
        before = Some(family);
    }
    Descent::Unknown
}

/// All descendants; none when the kernel does not list children, or there are too many to be sure.
fn descendants(own: i32) -> Option<BTreeSet<i32>> {
    let tid = super::thread::own_tid();
    std::fs::metadata(format!("/proc/{own}/task/{tid}/children")).ok()?;
    let (mut family, mut open) = (BTreeSet::new(), vec![own]);
    while let Some(pid) = open.pop() {
        for child in proc::children(pid).unwrap_or_default() {
            if family.insert(child) {
                open.push(child);
            }
        }
        if family.len() > FAMILY_MAX {
            return None;
        }
    }
    Some(family)
}

/// Reaps adopted orphans, and leaves to each owner the children that it started.
#[derive(Debug, Default)]
pub struct Orphans {
    ended: BTreeMap<i32, Tick>,
}

impl Orphans {
    /// Looks once (call it every second or so) and gives the pids that were reaped.
    pub fn reap(&mut self, now: Tick) -> Vec<i32> {
        // One question that costs nothing when no child has ended.
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        if matches!(waitid(Id::All, flags), Err(_) | Ok(WaitStatus::StillAlive)) {
            self.ended.clear();
            return Vec::new();
        }
        let own = i32::try_from(std::process::id()).unwrap_or(0);
        let ended: Vec<i32> = proc::children(own)
            .unwrap_or_default()
            .into_iter()
            .filter(|pid| proc::process(*pid).is_ok_and(|stat| stat.state.letter() == 'Z'))
            .collect();
        self.ended.retain(|pid, _| ended.contains(pid));
        let mut reaped = Vec::new();
        for pid in ended {
            let since = *self.ended.entry(pid).or_insert(now);
            if now.since(since) >= ORPHAN_AFTER {
                self.ended.remove(&pid);
                if waitpid(Pid::from_raw(pid), Some(WaitPidFlag::WNOHANG)).is_ok() {
                    reaped.push(pid);
                }
            }
        }
        reaped
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Write};
    use std::process::{Command, Stdio};

    #[test]
    fn children_are_ours_and_init_is_not() {
        let own = i32::try_from(std::process::id()).unwrap();
        assert_eq!(descent(own), Descent::Ours);
        assert_eq!(descent(1), Descent::Foreign);
        assert_eq!(descent(0), Descent::Unknown);
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        assert_eq!(descent(i32::try_from(child.id()).unwrap()), Descent::Ours);
        drop(child.stdin.take());
        child.wait().unwrap();
    }

    #[test]
    fn a_hidden_parent_is_no_way_out_of_the_family() {
        let own = i32::try_from(std::process::id()).unwrap();
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        assert_eq!(walk_down(i32::try_from(child.id()).unwrap(), own), Descent::Ours);
        assert_ne!(walk_down(1, own), Descent::Ours);
        drop(child.stdin.take());
        child.wait().unwrap();
    }

    #[test]
    fn a_double_fork_stays_in_the_family_and_its_orphan_is_reaped() {
        become_subreaper().unwrap();
        // The shell starts a grandchild in the background, prints its pid and ends: the grandchild is an orphan.
        let script = "setsid sh -c 'echo $$; exec cat' <&3 3<&- & exit 0";
        let mut child = Command::new("sh")
            .args(["-c", &format!("exec 3<&0; {script}")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        let orphan: i32 = line.trim().parse().unwrap();
        child.wait().unwrap();
        let own = i32::try_from(std::process::id()).unwrap();
        assert_eq!((descent(orphan), proc::process(orphan).unwrap().parent), (Descent::Ours, own));

        stdin.write_all(b"bye\n").unwrap();
        drop(stdin);
        line.clear();
        // The end of the pipe is the end of the orphan's life, or nearly: wait for the Z as an event of its own.
        while lines.read_line(&mut line).unwrap() > 0 {}
        while proc::process(orphan).unwrap().state.letter() != 'Z' {
            std::thread::yield_now();
        }
        let mut orphans = Orphans::default();
        let s = |s: u64| Tick(s * 1_000_000_000);
        assert!(orphans.reap(s(1)).is_empty());
        assert!(orphans.reap(s(10)).is_empty());
        assert!(orphans.reap(s(11)).contains(&orphan));
        assert!(proc::process(orphan).is_err());
    }
}

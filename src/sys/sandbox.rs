//! A sandbox for what a tool starts: narrower than the service's own, and for each child anew.
//!
//! Landlock says which files it may reach, by their place: it writes only where work is done, and does not read what we
//! keep. seccomp takes away the system calls that no command of a plant needs (`seccomp`, beside this). Both are laid on
//! between fork and exec, hold for everything that the child starts, and cannot be taken off.
//!
//! What the kernel lacks is left out, and [`support`] says so: whoever starts a child must tell it. A sandbox that the
//! kernel has and that cannot be laid on is an error, never a weaker sandbox.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::seccomp;

/// Directory entries that may lie beside what is hidden: each is a rule of its own.
const RULES_MAX: usize = 16_384;

/// `LANDLOCK_CREATE_RULESET_VERSION`.
const ASK_VERSION: u32 = 1;

/// `LANDLOCK_RULE_PATH_BENEATH`.
const PATH_BENEATH: u32 = 1;

const EXECUTE: u64 = 1;
const WRITE_FILE: u64 = 1 << 1;
const READ_FILE: u64 = 1 << 2;
const READ_DIR: u64 = 1 << 3;
/// Of ABI 1: execute and all ways to read, write, make and remove.
const ABI_1: u64 = (1 << 13) - 1;
/// ABI 2: to link and rename between directories.
const REFER: u64 = 1 << 13;
/// ABI 3.
const TRUNCATE: u64 = 1 << 14;
/// ABI 5.
const IOCTL_DEV: u64 = 1 << 15;
/// What a rule on a file that is no directory may say.
const OF_A_FILE: u64 = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV;
/// To look and to run.
const READ: u64 = EXECUTE | READ_FILE | READ_DIR;

/// ABI 6: no abstract Unix sockets and no signals out of the sandbox.
const SCOPES: u64 = 0b11;

/// The devices that every command may use; all others are shut, also for reading: a byte taken from a serial line is
/// missing elsewhere.
const DEVICES: [&str; 6] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];

/// Where anybody may put something for a while.
const FOR_A_WHILE: [&str; 3] = ["/tmp", "/var/tmp", "/dev/shm"];

/// Capabilities that are left to a child of root, for files and users: `CHOWN`, `DAC_OVERRIDE`, `FOWNER`, `FSETID`, `KILL`,
/// `SETGID`, `SETUID`, `NET_BIND_SERVICE`. The others go round the rest: with `PERFMON`, other processes' memory is read.
const CAPABILITIES: u64 = 0b100_1111_1011;

/// Numbers of capabilities that a kernel may have.
const CAPABILITIES_MAX: libc::c_ulong = 64;

/// `_LINUX_CAPABILITY_VERSION_3`.
const CAPABILITY_VERSION: u32 = 0x2008_0522;

/// What a child may reach, besides reading what is open to it anyway.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reach {
    /// Where it may write: work directories. Temporary directories are added.
    pub write: Vec<PathBuf>,
    /// What it may not even read: our state, keys, credentials. What [`Reach::write`] names inside stays open.
    pub hidden: Vec<PathBuf>,
}

/// What this kernel has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Support {
    /// The version of Landlock; none where it is not built in or not switched on.
    pub landlock: Option<u32>,
    /// Filters of system calls.
    pub seccomp: bool,
}

/// Asks the kernel.
#[must_use]
pub fn support() -> Support {
    // SAFETY: with this flag the call takes no structure and only answers with a number.
    let version = unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<libc::c_void>(), 0_usize, ASK_VERSION)
    };
    Support { landlock: u32::try_from(version).ok().filter(|version| *version > 0), seccomp: seccomp::is_there() }
}

/// `struct landlock_ruleset_attr`.
#[repr(C)]
struct RulesetAttr {
    handled_access_fs: u64,
    handled_access_net: u64,
    scoped: u64,
}

/// `struct landlock_path_beneath_attr`, packed as the kernel has it.
#[repr(C, packed)]
struct PathBeneathAttr {
    allowed_access: u64,
    parent_fd: i32,
}

/// A sandbox that is ready to be laid on.
#[derive(Debug)]
pub struct Sandbox {
    ruleset: Option<OwnedFd>,
    filter: Option<seccomp::Filter>,
}

impl Sandbox {
    /// Makes one. What is named and not there is passed over: it cannot be reached either.
    ///
    /// # Errors
    /// When the kernel has Landlock and refuses the rules, or there would be too many of them.
    pub fn new(reach: &Reach) -> io::Result<Sandbox> {
        let support = support();
        let ruleset = support.landlock.map(|version| Rules::new(version)?.fill(reach)).transpose()?;
        Ok(Sandbox { ruleset, filter: support.seccomp.then(seccomp::Filter::new) })
    }

    /// Lays it on what `command` starts. A child on which it cannot be laid does not begin.
    pub fn confine(self, command: &mut Command) {
        let lay_on = move || {
            give_up_capabilities()?;
            // SAFETY: plain numbers. Both kinds of sandbox want that nothing gains rights from here on.
            if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
                return Err(io::Error::last_os_error());
            }
            if let Some(ruleset) = &self.ruleset {
                // SAFETY: plain numbers; the descriptor is open as long as this closure.
                let laid = unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0_u32) };
                if laid != 0 {
                    return Err(io::Error::last_os_error());
                }
            }
            self.filter.as_ref().map_or(Ok(()), seccomp::Filter::lay_on)
        };
        // SAFETY: between fork and exec only async-signal-safe calls may be made: these are bare system calls on numbers
        // and on the stack, and reading errno allocates nothing.
        unsafe { command.pre_exec(lay_on) };
    }
}

/// `struct __user_cap_header_struct`.
#[repr(C)]
struct CapHeader {
    version: u32,
    pid: i32,
}

/// `struct __user_cap_data_struct`, once for each 32 capabilities.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct CapData {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Leaves the calling thread, and what it starts, at most [`CAPABILITIES`].
fn give_up_capabilities() -> io::Result<()> {
    for capability in (0..CAPABILITIES_MAX).filter(|capability| CAPABILITIES & (1 << capability) == 0) {
        // Refused to whoever has none to give away: then there is none to gain either, since nothing gains rights any more.
        // SAFETY: plain numbers.
        unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) };
    }
    let header = CapHeader { version: CAPABILITY_VERSION, pid: 0 };
    let mut data = [CapData::default(); 2];
    // SAFETY: both structures live through the call, and version 3 writes two of the second.
    if unsafe { libc::syscall(libc::SYS_capget, &raw const header, data.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // The service has none to begin with, and its unit refuses the call that sets them.
    if data.iter().all(|data| data.permitted == 0 && data.inheritable == 0) {
        return Ok(());
    }
    for (data, left) in data.iter_mut().zip([CAPABILITIES & 0xFFFF_FFFF, CAPABILITIES >> 32]) {
        // Each half of the mask has 32 bits.
        let left = u32::try_from(left).unwrap_or(0);
        data.effective &= left;
        data.permitted &= left;
        data.inheritable &= left;
    }
    // SAFETY: both structures live through the call, which only reads them.
    match unsafe { libc::syscall(libc::SYS_capset, &raw const header, data.as_ptr()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn passed_over(error: &io::Error) -> bool {
    [io::ErrorKind::NotFound, io::ErrorKind::PermissionDenied].contains(&error.kind())
}

/// A ruleset that is being filled.
struct Rules {
    ruleset: OwnedFd,
    handled: u64,
    hidden: Vec<PathBuf>,
    count: usize,
}

impl Rules {
    fn new(version: u32) -> io::Result<Rules> {
        let since = |abi: u32, rights: u64| if version >= abi { rights } else { 0 };
        let handled = ABI_1 | since(2, REFER) | since(3, TRUNCATE) | since(5, IOCTL_DEV);
        let attr = RulesetAttr { handled_access_fs: handled, handled_access_net: 0, scoped: since(6, SCOPES) };
        // An older kernel wants the shorter structure, which ends before what it does not know.
        let size = match version {
            ..4 => 8,
            4..6 => 16,
            6.. => size_of::<RulesetAttr>(),
        };
        // SAFETY: the structure lives through the call, and `size` is at most its size.
        let made = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, &raw const attr, size, 0_u32) };
        let made = i32::try_from(made).map_err(io::Error::other)?;
        if made < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just given it to us, close-on-exec, and nobody else has it.
        let ruleset = unsafe { OwnedFd::from_raw_fd(made) };
        Ok(Rules { ruleset, handled, hidden: Vec::new(), count: 0 })
    }

    fn fill(mut self, reach: &Reach) -> io::Result<OwnedFd> {
        let there = |paths: &[PathBuf]| paths.iter().filter_map(|path| path.canonicalize().ok()).collect::<Vec<_>>();
        let write = there(&reach.write);
        self.hidden = there(&reach.hidden);
        self.hidden.push(PathBuf::from("/dev"));
        self.beneath(Path::new("/"), READ)?;
        for device in DEVICES.map(Path::new).into_iter().filter(|device| device.exists()) {
            self.rule(device, OF_A_FILE)?;
        }
        for place in FOR_A_WHILE.map(Path::new).into_iter().filter(|place| place.is_dir()) {
            self.beneath(place, self.handled & !IOCTL_DEV)?;
        }
        for place in write {
            // What lies in something hidden is named here because it is meant. What is itself hidden stays so.
            if !self.hidden.contains(&place) {
                self.beneath(&place, self.handled & !IOCTL_DEV)?;
            }
        }
        Ok(self.ruleset)
    }

    /// Opens what is below a place, but for what is hidden. A right holds for a whole tree, so a tree with something
    /// hidden in it is opened entry by entry, and nothing new can be made right beside what is hidden.
    fn beneath(&mut self, place: &Path, rights: u64) -> io::Result<()> {
        if !self.hidden.iter().any(|hidden| hidden.starts_with(place) && hidden != place) {
            return self.rule(place, rights);
        }
        self.rule(place, READ_DIR)?;
        let entries = match fs::read_dir(place) {
            Ok(entries) => entries,
            // What we may not list, or what has gone, stays shut.
            Err(error) if passed_over(&error) => return Ok(()),
            Err(error) => return Err(error),
        };
        for entry in entries {
            let entry = entry?;
            let path = entry.path();
            // What a link names is opened where it lies.
            if self.hidden.contains(&path) || entry.file_type()?.is_symlink() {
                continue;
            }
            self.beneath(&path, rights)?;
        }
        Ok(())
    }

    fn rule(&mut self, path: &Path, rights: u64) -> io::Result<()> {
        self.count += 1;
        if self.count > RULES_MAX {
            return Err(io::Error::other(format!("more than {RULES_MAX} entries beside what is hidden")));
        }
        let mut flags = fs::OpenOptions::new();
        let opened = flags.read(true).custom_flags(libc::O_PATH | libc::O_NOFOLLOW).open(path);
        let opened = match opened {
            Ok(opened) => opened,
            // It has gone since it was listed, or is behind something that we may not enter ourselves.
            Err(error) if passed_over(&error) => return Ok(()),
            Err(error) => return Err(error),
        };
        let kind = opened.metadata()?.file_type();
        let rights = self.handled & if kind.is_dir() { rights } else { rights & OF_A_FILE };
        if rights == 0 {
            return Ok(());
        }
        let attr = PathBeneathAttr { allowed_access: rights, parent_fd: opened.as_raw_fd() };
        // SAFETY: the structure lives through the call and names a descriptor that is open.
        let added = unsafe {
            libc::syscall(libc::SYS_landlock_add_rule, self.ruleset.as_raw_fd(), PATH_BENEATH, &raw const attr, 0_u32)
        };
        match added {
            0 => Ok(()),
            _ => {
                let error = io::Error::last_os_error();
                Err(io::Error::new(
                    error.kind(),
                    format!("{}: {error}", String::from_utf8_lossy(path.as_os_str().as_bytes())),
                ))
            }
        }
    }
}

//! What this machine is and how full it is: for the banner, `doctor`, evidence rows and the bench.

use std::ffi::CStr;
use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use super::proc::page_size;

/// A name of this boot that no other boot has. `ProcSubset=pid` hides it: then it is none, and boot passes one in.
#[must_use]
pub fn boot_id() -> Option<String> {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").ok().map(|text| text.trim().to_owned())
}

/// Gives the kernel back what the allocator keeps of memory that is no longer used: a start reads files that no later
/// hour needs. It takes the allocator's locks for some milliseconds, so it is for quiet moments.
pub fn give_memory_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes no pointer, and may be called at any time by any thread.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// The host's name, the kernel's release and the machine type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uname {
    /// The host's name.
    pub host: String,
    /// `Linux 6.18.44`.
    pub kernel: String,
    /// `x86_64`, `aarch64`.
    pub machine: String,
}

/// Asks the kernel.
#[must_use]
pub fn uname() -> Uname {
    // SAFETY: all zeros is a valid utsname (arrays of characters, each an empty C string).
    let mut name: libc::utsname = unsafe { std::mem::zeroed() };
    // SAFETY: valid and writable for the whole call; it fails only for a bad pointer.
    unsafe { libc::uname(&raw mut name) };
    let text = |field: &[libc::c_char]| {
        // SAFETY: the kernel ends each field with a zero inside its array, and zeroed memory has one too.
        unsafe { CStr::from_ptr(field.as_ptr()) }.to_string_lossy().into_owned()
    };
    Uname {
        host: text(&name.nodename),
        kernel: format!("{} {}", text(&name.sysname), text(&name.release)),
        machine: text(&name.machine),
    }
}

/// The resident memory of this process, bytes.
#[must_use]
pub fn resident_bytes() -> Option<u64> {
    let statm = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(pages * page_size())
}

/// What this process takes of the machine.
#[derive(Debug, Clone, Copy)]
pub struct Own {
    /// Resident memory.
    pub resident_bytes: u64,
    /// CPU time, user and system together.
    pub cpu: Duration,
    /// Open descriptors.
    pub fds: u64,
    /// Threads.
    pub threads: u64,
}

/// What this process takes of the machine; none where a sandbox hides it.
#[must_use]
pub fn own() -> Option<Own> {
    let entries = |path: &str| fs::read_dir(path).ok().map(|entries| entries.count() as u64);
    let pid = i32::try_from(std::process::id()).ok()?;
    // SAFETY: a plain question.
    let ticks = u64::try_from(unsafe { libc::sysconf(libc::_SC_CLK_TCK) }).ok().filter(|ticks| *ticks > 0)?;
    let cpu_ticks = super::proc::process(pid).ok()?.cpu_ticks;
    Some(Own {
        resident_bytes: resident_bytes()?,
        cpu: Duration::from_millis(cpu_ticks.saturating_mul(1_000) / ticks),
        // The reading itself is one of them.
        fds: entries("/proc/self/fd")?.saturating_sub(1),
        threads: entries("/proc/self/task")?,
    })
}

/// The resident memory of another process, bytes.
///
/// # Errors
/// When it is gone, or is not ours to look at.
pub fn resident_bytes_of(pid: u32) -> io::Result<u64> {
    let statm = fs::read_to_string(format!("/proc/{pid}/statm"))?;
    let pages = statm.split_ascii_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.map(|pages| pages * page_size()).ok_or_else(|| io::Error::other("statm cannot be read"))
}

/// Runnable and waiting tasks on average over one, five and fifteen minutes.
#[must_use]
pub fn load() -> Option<[f64; 3]> {
    let text = fs::read_to_string("/proc/loadavg").ok()?;
    let mut numbers = text.split_ascii_whitespace().map(str::parse);
    Some([numbers.next()?.ok()?, numbers.next()?.ok()?, numbers.next()?.ok()?])
}

/// CPUs that this process may use.
#[must_use]
pub fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Room on the file system of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Bytes that this process may still write.
    pub free: u64,
    /// Bytes in all.
    pub total: u64,
    /// Mounted read-only.
    pub read_only: bool,
}

/// Asks the file system of `path`.
///
/// # Errors
/// ENOENT, EACCES.
pub fn room(path: &Path) -> io::Result<Room> {
    let stat = nix::sys::statvfs::statvfs(path)?;
    let unit = stat.fragment_size();
    Ok(Room {
        free: stat.blocks_available().saturating_mul(unit),
        total: stat.blocks().saturating_mul(unit),
        read_only: stat.flags().contains(nix::sys::statvfs::FsFlags::ST_RDONLY),
    })
}

/// The limit of threads and processes of our control group, for messages.
#[must_use]
pub fn pids_max() -> Option<String> {
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    // Version 2, and version 1 where each controller has a tree of its own.
    let of = |line: &str| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        match controllers {
            "" => Some(format!("/sys/fs/cgroup{path}/pids.max")),
            several if several.split(',').any(|one| one == "pids") => {
                Some(format!("/sys/fs/cgroup/pids{path}/pids.max"))
            }
            _ => None,
        }
    };
    let text = own.lines().filter_map(of).find_map(|path| fs::read_to_string(path).ok())?;
    Some(text.trim().to_owned())
}

/// Random bytes from the kernel. Early in the boot it waits until there are any.
///
/// # Errors
/// ENOSYS before Linux 3.17.
pub fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        // SAFETY: the pointer and the length are those of the part of `bytes` that is not filled yet.
        let count = unsafe { libc::getrandom(bytes[filled..].as_mut_ptr().cast(), N - filled, 0) };
        match usize::try_from(count) {
            Ok(count) => filled += count,
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_answers() {
        assert!(uname().kernel.starts_with("Linux "));
        assert!(resident_bytes().unwrap() > 1 << 16);
        assert!(load().unwrap().iter().all(|load| *load >= 0.0));
        assert!(room(Path::new("/")).unwrap().total > 0);
        assert!(room(Path::new("/no/such/place")).is_err());
        assert_ne!(random::<32>().unwrap(), random::<32>().unwrap());
    }
}

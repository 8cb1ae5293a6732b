//! Opens a path as it was judged: by its canonical name, through no link.
//!
//! Between the gate's decision and the effect, anyone who may write in a directory can put a link where a file or a
//! directory was. So nothing here follows a link in any component: what opens is what the canonical path names, or
//! nothing opens. What is no regular file is never opened for reading, because opening alone can act (a watchdog
//! device starts its countdown, a FIFO waits for ever).

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, open, openat, openat2};
use nix::sys::stat::{Mode, SFlag, fstat};

/// Why a judged path did not open.
#[derive(Debug, thiserror::Error)]
pub enum NotOpened {
    /// The path is not canonical: relative, or with `.` or `..`.
    #[error("{} is not a canonical path", .0.display())]
    NotCanonical(PathBuf),
    /// A component is a link now: the path has changed since it was judged.
    #[error("{} goes through a link now", .0.display())]
    Link(PathBuf),
    /// It is there, but is no regular file.
    #[error("{} is {kind}", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
        /// What it is instead, with its article.
        kind: &'static str,
    },
    /// What the kernel said.
    #[error("{}: {error}", path.display())]
    Refused {
        /// The path.
        path: PathBuf,
        /// The fact.
        error: io::Error,
    },
}

/// Opens a directory.
///
/// # Errors
/// See [`NotOpened`].
pub fn directory(path: &Path) -> Result<OwnedFd, NotOpened> {
    through_no_link(path, OFlag::O_RDONLY | OFlag::O_DIRECTORY)
}

/// Opens a regular file for reading.
///
/// # Errors
/// See [`NotOpened`].
pub fn regular_file(path: &Path) -> Result<File, NotOpened> {
    let place = through_no_link(path, OFlag::O_PATH)?;
    let refused = |errno: Errno| NotOpened::Refused { path: path.to_owned(), error: errno.into() };
    let kind = kind(fstat(place.as_fd()).map_err(refused)?.st_mode);
    if kind != Kind::File {
        return Err(NotOpened::NotAFile { path: path.to_owned(), kind: kind.with_article() });
    }
    // The very file that was looked at, whatever its name stands for by now. Not to block costs nothing on a file.
    let again = format!("/proc/self/fd/{}", place.as_raw_fd());
    let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    open(again.as_str(), flags, Mode::empty()).map(File::from).map_err(refused)
}

/// Whether the kernel can open a path without links by itself; else it is walked.
#[must_use]
pub fn has_openat2() -> bool {
    let how = OpenHow::new().flags(OFlag::O_PATH | OFlag::O_CLOEXEC).resolve(ResolveFlag::RESOLVE_NO_SYMLINKS);
    openat2(nix::fcntl::AT_FDCWD, "/", how).is_ok()
}

/// Whether this process may make entries in a directory.
#[must_use]
pub fn may_write(directory: &Path) -> bool {
    use nix::unistd::{AccessFlags, access};
    access(directory, AccessFlags::W_OK | AccessFlags::X_OK).is_ok()
}

/// What a directory entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// A device, a socket or a FIFO.
    Other,
}

impl Kind {
    /// For a message.
    #[must_use]
    pub fn with_article(self) -> &'static str {
        match self {
            Kind::File => "a file",
            Kind::Directory => "a directory",
            Kind::Link => "a link",
            Kind::Other => "a device, a socket or a FIFO",
        }
    }
}

/// Reads the kind out of `st_mode`.
#[must_use]
pub fn kind(mode: u32) -> Kind {
    match SFlag::from_bits_truncate(mode & SFlag::S_IFMT.bits()) {
        SFlag::S_IFREG => Kind::File,
        SFlag::S_IFDIR => Kind::Directory,
        SFlag::S_IFLNK => Kind::Link,
        _ => Kind::Other,
    }
}

fn through_no_link(path: &Path, flags: OFlag) -> Result<OwnedFd, NotOpened> {
    check_canonical(path)?;
    let how = OpenHow::new()
        .flags(flags | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_NO_SYMLINKS | ResolveFlag::RESOLVE_NO_MAGICLINKS);
    match openat2(nix::fcntl::AT_FDCWD, path, how) {
        // Before Linux 5.6, or under a sandbox that does not know it yet.
        Err(Errno::ENOSYS | Errno::EPERM) => by_walking(path, flags),
        Ok(place) => Ok(place),
        Err(errno) => Err(not_opened(path, errno)),
    }
}

/// The same without `openat2`: each directory is opened inside the one before it.
fn by_walking(path: &Path, flags: OFlag) -> Result<OwnedFd, NotOpened> {
    let step = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let names: Vec<&OsStr> = path.iter().skip(1).collect();
    let mut at = open("/", step, Mode::empty()).map_err(|errno| not_opened(path, errno))?;
    let Some((last, before)) = names.split_last() else {
        return openat(at.as_fd(), ".", flags | OFlag::O_CLOEXEC, Mode::empty()).map_err(|e| not_opened(path, e));
    };
    for name in before {
        at = match openat(at.as_fd(), *name, step, Mode::empty()) {
            Ok(next) => next,
            // A link is no directory either; say which of the two it is.
            Err(Errno::ENOTDIR) if is_link(&at, name) => return Err(NotOpened::Link(path.to_owned())),
            Err(errno) => return Err(not_opened(path, errno)),
        };
    }
    match openat(at.as_fd(), *last, flags | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC, Mode::empty()) {
        Ok(place) => is_no_link(path, place),
        Err(Errno::ENOTDIR) if is_link(&at, last) => Err(NotOpened::Link(path.to_owned())),
        Err(errno) => Err(not_opened(path, errno)),
    }
}

/// With `O_PATH` a link at the end opens as itself.
fn is_no_link(path: &Path, place: OwnedFd) -> Result<OwnedFd, NotOpened> {
    match fstat(place.as_fd()) {
        Ok(stat) if kind(stat.st_mode) == Kind::Link => Err(NotOpened::Link(path.to_owned())),
        Ok(_) => Ok(place),
        Err(errno) => Err(not_opened(path, errno)),
    }
}

fn is_link(directory: &OwnedFd, name: &OsStr) -> bool {
    let stat = nix::sys::stat::fstatat(directory.as_fd(), name, nix::fcntl::AtFlags::AT_SYMLINK_NOFOLLOW);
    stat.is_ok_and(|stat| kind(stat.st_mode) == Kind::Link)
}

fn check_canonical(path: &Path) -> Result<(), NotOpened> {
    // `components` leaves single dots and doubled slashes out: compare with what is written.
    let plain = path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    let rebuilt: PathBuf = path.components().collect();
    if path.is_absolute() && plain && rebuilt.as_os_str() == path.as_os_str() {
        Ok(())
    } else {
        Err(NotOpened::NotCanonical(path.to_owned()))
    }
}

pub(super) fn not_opened(path: &Path, errno: Errno) -> NotOpened {
    if errno == Errno::ELOOP {
        NotOpened::Link(path.to_owned())
    } else {
        NotOpened::Refused { path: path.to_owned(), error: errno.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    /// A canonical directory: the one for temporary files may itself be reached through a link.
    fn place() -> (tempfile::TempDir, PathBuf) {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().canonicalize().unwrap();
        fs::create_dir(path.join("real")).unwrap();
        fs::write(path.join("real/file"), "content").unwrap();
        symlink(path.join("real"), path.join("linked")).unwrap();
        symlink(path.join("real/file"), path.join("to-file")).unwrap();
        nix::unistd::mkfifo(&path.join("fifo"), Mode::S_IRWXU).unwrap();
        (place, path)
    }

    fn said<T>(opened: Result<T, NotOpened>) -> String {
        match opened {
            Ok(_) => "opened".to_owned(),
            Err(NotOpened::NotCanonical(_)) => "not canonical".to_owned(),
            Err(NotOpened::Link(_)) => "link".to_owned(),
            Err(NotOpened::NotAFile { kind, .. }) => kind.to_owned(),
            Err(NotOpened::Refused { error, .. }) => format!("{:?}", error.kind()),
        }
    }

    #[test]
    fn only_a_regular_file_reached_through_no_link_is_read() {
        let (_held, at) = place();
        let check = |path: &str, expected: &str| assert_eq!(said(regular_file(&at.join(path))), expected, "{path}");
        check("real/file", "opened");
        check("linked/file", "link");
        check("to-file", "link");
        check("real", "a directory");
        check("fifo", "a device, a socket or a FIFO");
        check("real/../real/file", "not canonical");
        check("real/./file", "not canonical");
        check("real//file", "not canonical");
        check("none", "NotFound");
        check("real/file/below", "NotADirectory");
        assert_eq!(said(regular_file(Path::new("/dev/null"))), "a device, a socket or a FIFO");
        assert_eq!(said(regular_file(Path::new("real/file"))), "not canonical");
        assert_eq!(said(regular_file(Path::new("/proc/self/root/etc/hostname"))), "link");
    }

    #[test]
    fn a_kernel_without_openat2_gives_the_same_answers() {
        let (_held, at) = place();
        for path in ["real/file", "linked/file", "to-file", "real", "none", "real/file/below", "fifo"] {
            let path = at.join(path);
            for flags in [OFlag::O_PATH, OFlag::O_PATH | OFlag::O_DIRECTORY] {
                let (walked, opened) = (said(by_walking(&path, flags)), said(through_no_link(&path, flags)));
                assert_eq!(walked, opened, "{} {flags:?}", path.display());
            }
        }
        assert_eq!(said(by_walking(Path::new("/"), OFlag::O_RDONLY | OFlag::O_DIRECTORY)), "opened");
        assert_eq!(said(directory(Path::new("/"))), "opened");
    }
}

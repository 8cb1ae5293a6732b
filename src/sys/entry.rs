//! One name in a directory that is held open: looked at, added to, and given a new file, never through a link.

use std::cell::Cell;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, RenameFlags, openat, renameat, renameat2};
use nix::sys::stat::{Mode, fstatat};
use nix::unistd::{UnlinkatFlags, linkat, unlinkat};

use super::open::{self, Kind, NotOpened};

/// Names for the file beside are tried so often: more are only taken when somebody makes them on purpose.
const NAMES_MAX: u32 = 16;

/// A directory, held open, and the name of an entry in it: the path is not walked again.
#[derive(Debug)]
pub struct Entry {
    directory: OwnedFd,
    name: OsString,
    /// As it was judged, for messages.
    path: PathBuf,
}

/// What stands under the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct There {
    /// What it is; a link is itself.
    pub kind: Kind,
    /// Permission bits, without those that lend an identity.
    pub permissions: u32,
    /// The number of its owner.
    pub owner: u32,
    /// The number of its group.
    pub group: u32,
}

impl Entry {
    /// Opens the directory that `path` lies in.
    ///
    /// # Errors
    /// See [`NotOpened`].
    pub fn of(path: &Path) -> Result<Entry, NotOpened> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(NotOpened::NotCanonical(path.to_owned()));
        };
        Ok(Entry { directory: open::directory(parent)?, name: name.to_owned(), path: path.to_owned() })
    }

    /// What is there now, if anything is.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn look(&self) -> io::Result<Option<There>> {
        match fstatat(self.directory.as_fd(), &*self.name, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(There {
                kind: open::kind(stat.st_mode),
                permissions: stat.st_mode & 0o777,
                owner: stat.st_uid,
                group: stat.st_gid,
            })),
            Err(Errno::ENOENT) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Opens what is there for adding to its end. It may not be what [`Entry::look`] saw: look at the file.
    ///
    /// # Errors
    /// [`NotOpened::Link`] when a link is there by now.
    pub fn open_to_append(&self) -> Result<File, NotOpened> {
        let flags = OFlag::O_WRONLY | OFlag::O_APPEND | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
        let opened = openat(self.directory.as_fd(), &*self.name, flags, Mode::empty());
        opened.map(File::from).map_err(|errno| open::not_opened(&self.path, errno))
    }

    /// Makes an empty file in the same directory, under a name of its own.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn beside(&self, permissions: u32) -> io::Result<Beside<'_>> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let mode = Mode::from_bits_truncate(permissions);
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        for _ in 0..NAMES_MAX {
            let name = format!(".interlock-{}-{}.tmp", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
            match openat(self.directory.as_fd(), name.as_str(), flags, mode) {
                Ok(file) => return Ok(Beside { entry: self, name, file: file.into(), renamed: Cell::new(false) }),
                Err(Errno::EEXIST) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Err(Errno::EEXIST.into())
    }

    /// Brings the directory's names to the disk; says whether the disk confirmed it.
    #[must_use]
    pub fn sync(&self) -> bool {
        nix::unistd::fsync(self.directory.as_fd()).is_ok()
    }
}

/// A new file that waits for its name. Dropped without it, the file is removed.
#[derive(Debug)]
pub struct Beside<'e> {
    entry: &'e Entry,
    name: String,
    file: File,
    renamed: Cell<bool>,
}

impl Beside<'_> {
    /// The file, open for writing.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Takes the name of the entry, from whatever has it: a link is replaced, not followed.
    ///
    /// # Errors
    /// What the kernel says, and then the entry is as it was.
    pub fn replace(self) -> io::Result<()> {
        let directory = self.entry.directory.as_fd();
        renameat(directory, self.name.as_str(), directory, &*self.entry.name)?;
        self.renamed.set(true);
        Ok(())
    }

    /// Takes the name of the entry if nobody has it.
    ///
    /// # Errors
    /// `AlreadyExists` when somebody has.
    pub fn take_free_name(self) -> io::Result<()> {
        let (directory, name) = (self.entry.directory.as_fd(), &*self.entry.name);
        match renameat2(directory, self.name.as_str(), directory, name, RenameFlags::RENAME_NOREPLACE) {
            Ok(()) => self.renamed.set(true),
            // A file system that cannot do that in one step; the drop takes the first name away.
            Err(Errno::EINVAL | Errno::ENOSYS) => {
                linkat(directory, self.name.as_str(), directory, name, AtFlags::empty())?;
            }
            Err(errno) => return Err(errno.into()),
        }
        Ok(())
    }
}

impl Drop for Beside<'_> {
    fn drop(&mut self) {
        if self.renamed.get() {
            return;
        }
        if let Err(errno) = unlinkat(self.entry.directory.as_fd(), self.name.as_str(), UnlinkatFlags::NoRemoveDir) {
            tracing::warn!(name = self.name, %errno, "a temporary file is left behind");
        }
    }
}

//! One daemon per state directory.
//!
//! The lock is the kernel's (`flock`), so that it ends with its process whatever ends the process; the number in the
//! file is only there to be told to a person.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use super::error::StoreError;

const NAME: &str = "lock";
/// So often the lock is tried, with this time between: 60 ms in all.
const ATTEMPTS: u32 = 31;
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(2);

/// Held as long as it lives.
#[derive(Debug)]
pub struct Lock {
    _file: Option<File>,
}

impl Lock {
    /// Takes the lock of `state`, at once or not at all.
    ///
    /// # Errors
    /// [`StoreError::InUse`] when another process has it.
    pub fn take(state: &Path) -> Result<Lock, StoreError> {
        let path = state.join(NAME);
        let io = |e| StoreError::io(&path, e);
        let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o640).open(&path);
        let (mut file, writable) = match opened {
            Ok(file) => (file, true),
            // Nobody can write there: the lock is taken all the same where its file is, for when that changes.
            Err(e) if e.kind() == std::io::ErrorKind::ReadOnlyFilesystem => match File::open(&path) {
                Ok(file) => (file, false),
                Err(_) => return Ok(Lock { _file: None }),
            },
            Err(e) => return Err(io(e)),
        };
        for attempt in 1.. {
            match file.try_lock() {
                Ok(()) => break,
                // A reader that looks whether there is an owner holds the lock for some microseconds.
                Err(TryLockError::WouldBlock) if attempt < ATTEMPTS => std::thread::park_timeout(BETWEEN_ATTEMPTS),
                Err(TryLockError::WouldBlock) => {
                    return Err(StoreError::InUse { dir: state.to_owned(), pid: pid(&mut file) });
                }
                Err(TryLockError::Error(e)) => return Err(io(e)),
            }
        }
        // On a full or read-only disk the old number may stay; the lock itself holds all the same.
        let write = |file: &mut File| {
            file.rewind()?;
            file.set_len(0)?;
            writeln!(file, "{}", std::process::id())
        };
        match if writable { write(&mut file) } else { Ok(()) } {
            Ok(()) => {}
            Err(e) if e.kind() == std::io::ErrorKind::StorageFull => {}
            Err(e) => return Err(io(e)),
        }
        Ok(Lock { _file: Some(file) })
    }
}

/// The process that owns `state`, if one does: for readers, who need no lock.
#[must_use]
pub fn owner(state: &Path) -> Option<u32> {
    let mut file = File::open(state.join(NAME)).ok()?;
    match file.try_lock_shared() {
        Ok(()) => None,
        Err(_) => pid(&mut file),
    }
}

fn pid(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.take(32).read_to_string(&mut text).ok()?;
    text.trim_end().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_is_refused_and_told_who_the_first_is() {
        let state = tempfile::tempdir().unwrap();
        assert_eq!(owner(state.path()), None);
        let first = Lock::take(state.path()).unwrap();
        let refused = Lock::take(state.path()).unwrap_err();
        let me = std::process::id();
        assert_eq!(
            refused.to_string(),
            format!("state directory {} is in use by process {me}", state.path().display())
        );
        assert_eq!(owner(state.path()), Some(me));
        drop(first);
        Lock::take(state.path()).unwrap();
    }

    #[test]
    fn a_number_that_was_left_behind_stops_nobody() {
        let state = tempfile::tempdir().unwrap();
        std::fs::write(state.path().join(NAME), "1\n").unwrap();
        let _lock = Lock::take(state.path()).unwrap();
        assert_eq!(std::fs::read_to_string(state.path().join(NAME)).unwrap(), format!("{}\n", std::process::id()));
    }
}

//! Room that is kept for the worst moment: a file of zeros, given back when the disk is full, so that the log can say
//! that it is.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

const NAME: &str = "reserve";

fn path(evidence: &Path) -> PathBuf {
    evidence.join(NAME)
}

/// Makes the reserve of a log directory `len` bytes long, with real blocks.
///
/// # Errors
/// When there is no room for it; what there was of it is given back.
pub(super) fn keep(evidence: &Path, len: u64) -> io::Result<()> {
    let path = path(evidence);
    if fs::metadata(&path).is_ok_and(|meta| meta.len() == len) {
        return Ok(());
    }
    let fill = || {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path)?;
        let block = [0; 64 * 1024];
        let mut left = len;
        while left > 0 {
            let now = left.min(block.len() as u64);
            file.write_all(&block[..usize::try_from(now).unwrap_or(block.len())])?;
            left -= now;
        }
        file.sync_all()
    };
    fill().inspect_err(|_| {
        release(evidence);
    })
}

/// Gives the room back; `false` when there was none.
pub(super) fn release(evidence: &Path) -> bool {
    let released = fs::remove_file(path(evidence)).is_ok();
    // The room must be free before it is used; where the directory cannot be synced it is so all the same.
    let _ = File::open(evidence).and_then(|dir| dir.sync_all());
    released
}

//! Puts a backup in the place of a state directory, and moves a state aside.
//!
//! The order makes each moment one that can be gone on from: the backup is checked whole, unpacked beside the state,
//! its evidence is verified, what is there is moved aside, what came is moved in. A cut in between leaves the folder
//! [`NEW`], and no daemon starts on a state that has it.

use std::fs::{self, DirBuilder, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, lchown};
use std::path::{Path, PathBuf};

use interlock_domain::time::Wall;
use serde_json::{Value, json};

use super::archive::{Contents, below_state, each, examine};
use super::{ASIDE, BackupError, Hashed, passing, stays, synced};
use crate::record::rfc3339;
use crate::store::keys::{PublicKey, public_of_state, write_whole};
use crate::store::lock::Lock;
use crate::store::verify::{Verdict, verify};

/// Where a backup is unpacked; while it is there, a restore is not over.
pub const NEW: &str = "restore-new";
/// What the next start says about where its state came from.
pub const NOTE: &str = "restored.json";
/// A note is one short object.
const NOTE_LEN_MAX: u64 = 4096;

/// A state that came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restored {
    /// What it came from.
    pub from: Contents,
    /// What `evidence verify` says of it.
    pub verdict: Verdict,
    /// Where what was there before is now; none when nothing was.
    pub aside: Option<PathBuf>,
}

/// Puts the backup in the place of the state. `signer` is the key that counts; without one, the key of the state that
/// is there. No daemon may run on it.
///
/// # Errors
/// [`BackupError`]; the state is as it was, unless moving files failed in the middle, and then the error names the file.
pub fn restore(file: &Path, state: &Path, signer: Option<&PublicKey>, at: Wall) -> Result<Restored, BackupError> {
    private(state)?;
    let _lock = Lock::take(state)?;
    let own = if signer.is_none() { public_of_state(state)? } else { None };
    let from = examine(file, signer.or(own.as_ref()))?;
    let new = state.join(NEW);
    if let Err(error) = unpacked(file, &new, &from) {
        let _gone = fs::remove_dir_all(&new);
        return Err(error);
    }
    let verdict = match verify(&new) {
        Ok(verified) => verified.verdict,
        Err(error) => {
            let _gone = fs::remove_dir_all(&new);
            return Err(error.into());
        }
    };
    if verdict == Verdict::Altered {
        let _gone = fs::remove_dir_all(&new);
        return Err(BackupError::Evidence { path: file.to_owned(), verdict: verdict.as_str() });
    }
    let note = json!({ "backup": from.id, "made": from.made, "version": from.version, "signer": from.signer,
        "verdict": verdict.as_str(), "restored": rfc3339(at) });
    write_whole(&new, NOTE, 0o600, &note.to_string())?;
    owned_alike(&new, &fs::metadata(state).map_err(BackupError::io(state))?)?;
    let aside = moved_aside(state, "restore", at)?;
    for name in names(&new)? {
        let to = state.join(&name);
        fs::rename(new.join(&name), &to).map_err(BackupError::io(&to))?;
    }
    synced(state)?;
    fs::remove_dir(&new).map_err(BackupError::io(&new))?;
    synced(state)?;
    Ok(Restored { from, verdict, aside })
}

/// Moves everything out of a state directory into a folder inside it: the next start begins anew, with a new key. Says
/// where it is, if there was anything. No daemon may run on it.
///
/// # Errors
/// [`BackupError`] with the file that could not be moved.
pub fn set_aside(state: &Path, at: Wall) -> Result<Option<PathBuf>, BackupError> {
    let _lock = Lock::take(state)?;
    // What a restore that was cut off has unpacked is a copy of its backup.
    gone(&state.join(NEW))?;
    let aside = moved_aside(state, "reset", at)?;
    synced(state)?;
    Ok(aside)
}

/// Whether a restore into this state directory was cut off.
#[must_use]
pub fn cut_off(state: &Path) -> bool {
    state.join(NEW).is_dir()
}

/// What a restore left to be told, once. The caller writes it into the log.
#[must_use]
pub fn take_note(state: &Path) -> Option<Value> {
    let path = state.join(NOTE);
    let about = fs::metadata(&path).ok()?;
    let note = if about.len() <= NOTE_LEN_MAX { fs::read_to_string(&path).ok() } else { None };
    let _gone = fs::remove_file(&path);
    note.and_then(|note| serde_json::from_str(&note).ok())
}

fn unpacked(file: &Path, new: &Path, contents: &Contents) -> Result<(), BackupError> {
    gone(new)?;
    private(new)?;
    // The file may have been changed since it was examined: what does not stand in the manifest is not written, and
    // what does is held against it again.
    let mut written = 0;
    each(file, |name, from| {
        let Some((name, listed)) = below_state(name).and_then(|name| contents.files.get_key_value(name)) else {
            return Ok(());
        };
        let path = new.join(name);
        if let Some(folder) = path.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        let mut to = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        let mut hashed = Hashed::of(io::Read::take(from, listed.len));
        io::copy(&mut hashed, &mut to)?;
        if hashed.end() != (listed.len, listed.sha256.clone()) {
            return Err(io::Error::other(format!("{name} is not what it was a moment ago")));
        }
        written += 1;
        to.set_permissions(fs::Permissions::from_mode(listed.mode))?;
        to.sync_all()
    })?;
    if written != contents.files.len() {
        return Err(BackupError::NotABackup { path: file.to_owned(), what: "a file is gone".to_owned() });
    }
    Ok(())
}

fn gone(folder: &Path) -> Result<(), BackupError> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(BackupError::io(folder)(error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Gives everything to the owner of the state: root puts back what the daemon's user must be able to open.
pub(in crate::store) fn owned_alike(path: &Path, owner: &Metadata) -> Result<(), BackupError> {
    let about = fs::symlink_metadata(path).map_err(BackupError::io(path))?;
    if (about.uid(), about.gid()) != (owner.uid(), owner.gid()) {
        lchown(path, Some(owner.uid()), Some(owner.gid())).map_err(BackupError::io(path))?;
    }
    if about.is_dir() {
        for name in names(path)? {
            owned_alike(&path.join(name), owner)?;
        }
    }
    Ok(())
}

fn moved_aside(state: &Path, why: &str, at: Wall) -> Result<Option<PathBuf>, BackupError> {
    let there: Vec<String> = names(state)?.into_iter().filter(|name| !stays(name) && name != "lock").collect();
    if !there.iter().any(|name| !passing(name)) {
        return Ok(None);
    }
    let folder = state.join(ASIDE);
    private(&folder)?;
    // Two in one second get two folders.
    let name = format!("{why}-{}", rfc3339(at).replace(':', "-"));
    let aside = (0..1000)
        .map(|n| folder.join(if n == 0 { name.clone() } else { format!("{name}.{n}") }))
        .find(|path| !path.exists())
        .ok_or_else(|| BackupError::TooMuch { path: folder.clone() })?;
    private(&aside)?;
    for name in there {
        let from = state.join(&name);
        fs::rename(&from, aside.join(&name)).map_err(BackupError::io(&from))?;
    }
    Ok(Some(aside))
}

fn names(folder: &Path) -> Result<Vec<String>, BackupError> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(BackupError::io(folder))? {
        let entry = entry.map_err(BackupError::io(folder))?;
        names.extend(entry.file_name().into_string());
    }
    names.sort();
    Ok(names)
}

fn private(folder: &Path) -> Result<(), BackupError> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(BackupError::io(folder))
}

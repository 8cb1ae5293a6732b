//! The whole state in one signed file, and back again.
//!
//! A backup is a gzip-compressed tar: the files of the state directory under `state/`, then `manifest.json` (each file
//! with its length, mode and SHA-256) and `manifest.sig` (the signature of the log's key over the manifest). It is made
//! beside a daemon that runs: databases are copied through SQLite, and the head is read before the rows that it vouches
//! for, so that the copy passes its own head. It holds the log's secret key and what a model was told: whoever keeps it
//! keeps it like a key. The tokens of other services are left out: they are used up by being renewed, and a server that
//! sees an old one again takes all of them back.
//!
//! The manifest stands last, so that a file that was cut off is no backup. What comes back is checked whole before one
//! file is written, and what it takes the place of is moved aside, never deleted. `restore` has the other direction.

pub(super) mod archive;
mod restore;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use interlock_domain::time::Wall;
use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use thiserror::Error;

use super::error::StoreError;
use super::keys::{Key, PublicKey};
use super::segment;
use crate::record::{hex, rfc3339};

pub use archive::{Contents, Listed, examine};
pub(super) use restore::owned_alike;
pub use restore::{NEW, NOTE, Restored, cut_off, restore, set_aside, take_note};

/// The format of the files; a build refuses what is newer.
const FORMAT: u64 = 1;
/// Files of a state directory: segments, a few databases, one folder for each conversation that is kept.
const FILES_MAX: usize = 100_000;
/// All of them together, in bytes: far above the largest quota of the log, far below what would fill a disk unseen.
const BYTES_MAX: u64 = 256 << 30;
/// Folders inside folders.
const DEPTH_MAX: usize = 8;
/// What stands before the manifest when it is signed: a signature of something else is none of this.
const SIGNED: &[u8] = b"interlock backup 1\n";
/// Where the files of the state stand in the archive.
const STATE: &str = "state";
const MANIFEST: &str = "manifest.json";
const SIGNATURE: &str = "manifest.sig";
/// The folder of the state directory for what a restore or a reset took out of it.
pub const ASIDE: &str = "aside";
/// The working directory of the tools inside the state directory: what lies there is somebody's, in whatever form.
const WORK: &str = "work/";
/// Tokens of other services.
const TOKENS: &str = "keys/mcp";

/// Why there is no backup, or why it does not come back.
#[derive(Debug, Error)]
pub enum BackupError {
    /// The operating system refused a file.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The state cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A file changed its length while it was copied.
    #[error("{} became shorter while it was copied", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// There is more than a state directory ever has.
    #[error("{} has more than {FILES_MAX} files or {BYTES_MAX} bytes", path.display())]
    TooMuch {
        /// The state directory or the backup.
        path: PathBuf,
    },
    /// The file is no backup, or not a whole one.
    #[error("{} is no whole backup: {what}", path.display())]
    NotABackup {
        /// The file.
        path: PathBuf,
        /// The fact.
        what: String,
    },
    /// Nobody said whose signature counts.
    #[error("{} is signed by {signer}, and this machine knows no signer", path.display())]
    NoSigner {
        /// The backup.
        path: PathBuf,
        /// The key that it says it is signed by.
        signer: String,
    },
    /// Another key signed it.
    #[error("{} is signed by {signer}, not by {wanted}", path.display())]
    OtherSigner {
        /// The backup.
        path: PathBuf,
        /// The key that it says it is signed by.
        signer: String,
        /// The key that counts.
        wanted: String,
    },
    /// The evidence in it does not hold.
    #[error("the evidence in {} is {verdict}", path.display())]
    Evidence {
        /// The backup.
        path: PathBuf,
        /// What `evidence verify` says.
        verdict: &'static str,
    },
}

impl BackupError {
    fn io(path: &Path) -> impl FnOnce(io::Error) -> BackupError {
        let path = path.to_owned();
        move |source| BackupError::Io { path, source }
    }

    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            BackupError::Store(error) => error.hint().map(str::to_owned),
            BackupError::Changed { .. } => Some("run it again".to_owned()),
            BackupError::NoSigner { signer, .. } => {
                Some(format!("`interlock backup` printed the signer; if it is this one: --signer {signer}"))
            }
            BackupError::OtherSigner { .. } => {
                Some("a backup of another machine comes back with its signer: --signer KEY".to_owned())
            }
            BackupError::Evidence { .. } => Some("take an older backup; nothing was changed here".to_owned()),
            BackupError::NotABackup { .. } => Some("copy it again, or take another one".to_owned()),
            BackupError::Io { source, .. } if source.kind() == io::ErrorKind::AlreadyExists => {
                Some("name a file that is not there yet".to_owned())
            }
            BackupError::Io { .. } | BackupError::TooMuch { .. } => None,
        }
    }
}

/// A backup that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Made {
    /// How many files.
    pub files: usize,
    /// Their bytes before compression.
    pub bytes: u64,
    /// What is no file of ours and was left out: links, sockets, names too long or too deep for the archive.
    pub left_out: usize,
    /// Who signed it, in hexadecimal digits.
    pub signer: String,
}

/// A file of the state, in the order in which it must be read.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Found {
    /// What vouches for others is read first.
    turn: Turn,
    /// Below the state directory, with slashes.
    name: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Turn {
    Voucher,
    Plain,
    Database,
}

/// Writes the backup of a state directory to a file that is not there yet. `version` and `at` go into its manifest.
///
/// # Errors
/// [`BackupError`]; no file is left then.
pub fn make(state: &Path, file: &Path, version: &str, at: Wall) -> Result<Made, BackupError> {
    if super::keys::public_of_state(state)?.is_none() {
        return Err(StoreError::NoLog { path: state.to_owned() }.into());
    }
    let key = Key::of_state(state)?;
    // Straight under its name: sticks with FAT know no links, and what is not whole has no manifest.
    let new = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file);
    let out = new.map_err(BackupError::io(file))?;
    let copy = beside(file, &format!(".{}.db", std::process::id()));
    let made = write(state, file, &out, &copy, &key, &about(version, at)).and_then(|made| {
        let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        out.sync_all().map_err(BackupError::io(file))?;
        synced(folder)?;
        Ok(made)
    });
    let _gone = fs::remove_file(&copy);
    if made.is_err() {
        let _gone = fs::remove_file(file);
    }
    made
}

fn beside(file: &Path, suffix: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

fn synced(folder: &Path) -> Result<(), BackupError> {
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(BackupError::io(folder))
}

fn about(version: &str, at: Wall) -> Value {
    json!({ "format": FORMAT, "version": version, "made": rfc3339(at) })
}

fn write(state: &Path, file: &Path, out: &File, copy: &Path, key: &Key, about: &Value) -> Result<Made, BackupError> {
    let mut tar = tar::Builder::new(GzEncoder::new(out, Compression::fast()));
    let io = |error| BackupError::io(file)(error);
    let mut listed = Vec::new();
    let mut bytes = 0_u64;
    let (found, left_out) = files(state)?;
    for found in found {
        let path = state.join(&found.name);
        let from = match found.turn {
            Turn::Database => snapshot(&path, copy),
            Turn::Voucher | Turn::Plain => File::open(&path).map_err(BackupError::io(&path)),
        };
        let from = match from {
            // The oldest segment may be unlinked, a conversation may end, while we are at it.
            Err(BackupError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => continue,
            from => from?,
        };
        let about = from.metadata().map_err(BackupError::io(&path))?;
        let mode = fs::metadata(&path).map_or(0o600, |about| about.permissions().mode()) & 0o777;
        bytes = bytes.saturating_add(about.len());
        if bytes > BYTES_MAX || listed.len() >= FILES_MAX {
            return Err(BackupError::TooMuch { path: state.to_owned() });
        }
        let mut hashed = Hashed::of(from.take(about.len()));
        append(&mut tar, &format!("{STATE}/{}", found.name), about.len(), mode, &mut hashed).map_err(io)?;
        let (len, hash) = hashed.end();
        if len != about.len() {
            return Err(BackupError::Changed { path });
        }
        listed.push(json!({ "path": found.name, "len": len, "mode": mode, "sha256": hash }));
    }
    let files = listed.len();
    let mut manifest = about.clone();
    manifest["files"] = Value::Array(listed);
    let manifest = manifest.to_string();
    let signer = hex(key.public().as_bytes());
    let signature = format!("{signer}\n{}\n", hex(&key.sign(&signed(manifest.as_bytes()))));
    for (name, text) in [(MANIFEST, &manifest), (SIGNATURE, &signature)] {
        append(&mut tar, name, text.len() as u64, 0o600, &mut text.as_bytes()).map_err(io)?;
    }
    let mut out = tar.into_inner().and_then(GzEncoder::finish).map_err(io)?;
    out.flush().map_err(io)?;
    Ok(Made { files, bytes, left_out, signer })
}

fn signed(manifest: &[u8]) -> Vec<u8> {
    [SIGNED, manifest].concat()
}

/// Puts a plain file into an archive: `len` bytes of `from`, with these permission bits.
///
/// # Errors
/// When the name is longer than a plain header holds (255 bytes, POSIX.1-1988 ustar), or writing fails.
pub fn append<W: Write>(
    tar: &mut tar::Builder<W>,
    name: &str,
    len: u64,
    mode: u32,
    from: &mut impl Read,
) -> io::Result<()> {
    let mut header = plain(name)?;
    header.set_size(len);
    header.set_mode(mode);
    header.set_cksum();
    tar.append(&header, from)
}

fn plain(name: &str) -> io::Result<tar::Header> {
    let mut header = tar::Header::new_ustar();
    header.set_entry_type(tar::EntryType::Regular);
    header.set_path(name)?;
    Ok(header)
}

/// Reads and hashes on the way.
pub(super) struct Hashed<R> {
    from: R,
    hash: Sha256,
    read: u64,
}

impl<R> Hashed<R> {
    pub(super) fn of(from: R) -> Hashed<R> {
        Hashed { from, hash: Sha256::new(), read: 0 }
    }

    /// How many bytes there were, and their SHA-256 in hexadecimal digits.
    pub(super) fn end(self) -> (u64, String) {
        (self.read, hex(&self.hash.finalize()))
    }
}

impl<R: Read> Read for Hashed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.from.read(buffer)?;
        self.hash.update(&buffer[..n]);
        self.read += n as u64;
        Ok(n)
    }
}

/// A consistent copy of a database that may be written meanwhile, through SQLite's own backup.
fn snapshot(path: &Path, copy: &Path) -> Result<File, BackupError> {
    let sqlite = |e| BackupError::Store(StoreError::sqlite(path, e));
    fs::metadata(path).map_err(BackupError::io(path))?;
    let _old = fs::remove_file(copy);
    // The copy has what the archive has: nobody else's eyes.
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(copy).map_err(BackupError::io(copy))?;
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let from = Connection::open_with_flags(path, flags).map_err(sqlite)?;
    from.busy_timeout(segment::BUSY).map_err(sqlite)?;
    let mut to = Connection::open(copy).map_err(sqlite)?;
    // All pages in one step, which is one read transaction: in several, each commit of the daemon would begin it anew.
    let step = Backup::new(&from, &mut to).and_then(|backup| backup.step(-1)).map_err(sqlite)?;
    if step != StepResult::Done {
        return Err(BackupError::Changed { path: path.to_owned() });
    }
    drop(to);
    File::open(copy).map_err(BackupError::io(copy))
}

/// What a backup has, in the order in which it is read, and how much is left out.
fn files(state: &Path) -> Result<(Vec<Found>, usize), BackupError> {
    let mut found = Vec::new();
    let mut left_out = 0;
    let mut folders = vec![(state.to_owned(), String::new(), 0)];
    while let Some((folder, prefix, depth)) = folders.pop() {
        for entry in fs::read_dir(&folder).map_err(BackupError::io(&folder))? {
            let entry = entry.map_err(BackupError::io(&folder))?;
            let kind = entry.file_type().map_err(BackupError::io(&entry.path()))?;
            let Ok(name) = entry.file_name().into_string() else {
                left_out += 1;
                continue;
            };
            let whole = format!("{prefix}{name}");
            if passing(&whole) || stays(&whole) || whole == TOKENS {
                continue;
            }
            if kind.is_dir() && depth < DEPTH_MAX {
                folders.push((entry.path(), format!("{whole}/"), depth + 1));
            } else if kind.is_file() && plain(&format!("{STATE}/{whole}")).is_ok() {
                found.push(Found { turn: turn(&whole), name: whole });
            } else if !kind.is_socket() {
                left_out += 1;
            }
        }
        if found.len() > FILES_MAX {
            return Err(BackupError::TooMuch { path: state.to_owned() });
        }
    }
    found.sort();
    Ok((found, left_out))
}

/// Our own databases by their places: a quarantined segment is damaged, and what lies in the working directory is
/// whatever it is; both are copied as they are.
fn turn(name: &str) -> Turn {
    let segment = name.strip_prefix("evidence/").and_then(|name| name.strip_suffix(".db"));
    match name {
        "evidence/head" | "evidence/checkpoints" => Turn::Voucher,
        "state.db" | "knowledge.db" => Turn::Database,
        _ if segment.is_some_and(|first| first.bytes().all(|byte| byte.is_ascii_digit())) => Turn::Database,
        _ => Turn::Plain,
    }
}

/// Files that mean something only to the process that has them open.
fn passing(name: &str) -> bool {
    const SUFFIXES: [&str; 5] = ["-wal", "-shm", "-journal", ".new", ".part"];
    !name.starts_with(WORK)
        && (matches!(name, "lock" | "evidence/reserve") || SUFFIXES.iter().any(|suffix| name.ends_with(suffix)))
}

/// What is at the top and no part of the state: folders of a restore, and how far updates have come. The machine must
/// not forget the latter by a reset, nor learn it from a backup: an old update would count as new again.
fn stays(name: &str) -> bool {
    name == ASIDE || name == restore::NEW || name == super::update::FLOOR
}

fn key_of(text: &str) -> Option<PublicKey> {
    crate::record::unhex(text).and_then(|bytes| PublicKey::from_bytes(&bytes))
}

/// A signer as `--signer` takes it: the 64 hexadecimal digits of an Ed25519 key.
#[must_use]
pub fn signer(text: &str) -> Option<PublicKey> {
    key_of(text.trim())
}

//! Reads a backup, whole, before anything is done with it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Component, Path};

use flate2::read::MultiGzDecoder;
use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::{BYTES_MAX, BackupError, DEPTH_MAX, FILES_MAX, FORMAT, Hashed, MANIFEST, SIGNATURE, STATE, key_of, signed};
use crate::record::hex;
use crate::store::keys::PublicKey;

/// A manifest of [`FILES_MAX`] files with the longest names is shorter.
const MANIFEST_LEN_MAX: u64 = 64 << 20;
/// A signature is two lines of hexadecimal digits.
const SIGNATURE_LEN_MAX: u64 = 1024;
const NAME_LEN_MAX: usize = 1024;
/// What may follow the last file: blocks of zeros.
const REST_LEN_MAX: u64 = 64 * 1024;

/// What a backup holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contents {
    /// The version that made it.
    pub version: String,
    /// When, as RFC 3339 has it.
    pub made: String,
    /// Its files by their path below the state directory.
    pub files: BTreeMap<String, Listed>,
    /// Who signed it, in hexadecimal digits.
    pub signer: String,
    /// The SHA-256 of its manifest, in hexadecimal digits: the name of this very backup.
    pub id: String,
}

/// A file as the manifest has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Bytes.
    pub len: u64,
    /// Permission bits.
    pub mode: u32,
    /// The SHA-256 of its bytes, in hexadecimal digits.
    pub sha256: String,
}

#[derive(Deserialize)]
struct Manifest {
    format: u64,
    version: String,
    made: String,
    files: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    path: String,
    len: u64,
    mode: u32,
    sha256: String,
}

/// Reads a backup to its end and checks each byte of it: every file against the manifest, the manifest against its
/// signature. `wanted` is the key that counts; without one nothing is believed.
///
/// # Errors
/// [`BackupError`], with what does not fit.
pub fn examine(file: &Path, wanted: Option<&PublicKey>) -> Result<Contents, BackupError> {
    let bad = |what: String| BackupError::NotABackup { path: file.to_owned(), what };
    let mut seen: BTreeMap<String, (u64, String)> = BTreeMap::new();
    let mut manifest = None;
    let mut signature = None;
    let mut bytes = 0_u64;
    each(file, |name, from| {
        match name {
            MANIFEST => manifest = Some(text(from, MANIFEST_LEN_MAX)?),
            SIGNATURE => signature = Some(text(from, SIGNATURE_LEN_MAX)?),
            _ => {
                let Some(name) = below_state(name) else {
                    return Err(io::Error::other(format!("{name:?} is no file of a state directory")));
                };
                let (len, sha256) = hashed(from, BYTES_MAX - bytes)?;
                bytes += len;
                if seen.len() >= FILES_MAX || seen.insert(name.to_owned(), (len, sha256)).is_some() {
                    return Err(io::Error::other(format!("{name:?} is there twice, or there are too many files")));
                }
            }
        }
        Ok(())
    })?;
    let manifest = manifest.ok_or_else(|| bad(format!("it has no {MANIFEST}; it ends too early")))?;
    let signature = signature.ok_or_else(|| bad(format!("it has no {SIGNATURE}; it ends too early")))?;
    let mut lines = signature.lines();
    let signer = lines.next().unwrap_or_default().to_owned();
    let by = key_of(&signer).ok_or_else(|| bad("its signature names no key".to_owned()))?;
    let proof = lines.next().and_then(crate::record::unhex);
    if !proof.is_some_and(|proof| by.signed(&signed(manifest.as_bytes()), &proof)) {
        return Err(bad("its signature does not fit".to_owned()));
    }
    match wanted {
        None => return Err(BackupError::NoSigner { path: file.to_owned(), signer }),
        Some(wanted) if *wanted != by => {
            let wanted = hex(wanted.as_bytes());
            return Err(BackupError::OtherSigner { path: file.to_owned(), signer, wanted });
        }
        Some(_) => {}
    }
    let id = hex(&Sha256::digest(manifest.as_bytes()));
    let manifest: Manifest = serde_json::from_str(&manifest).map_err(|error| bad(format!("{MANIFEST}: {error}")))?;
    if manifest.format > FORMAT {
        return Err(bad(format!("it has format {}; this build reads up to {FORMAT}", manifest.format)));
    }
    let mut files = BTreeMap::new();
    for Entry { path, len, mode, sha256 } in manifest.files {
        match seen.remove(&path) {
            Some(found) if found == (len, sha256.clone()) => {}
            Some(_) => return Err(bad(format!("{path} is not what the manifest says"))),
            None => return Err(bad(format!("{path} is missing"))),
        }
        files.insert(path, Listed { len, mode: mode & 0o777, sha256 });
    }
    if let Some(extra) = seen.keys().next() {
        return Err(bad(format!("{extra} is not in the manifest")));
    }
    Ok(Contents { version: manifest.version, made: manifest.made, files, signer, id })
}

/// Each file of the archive, in order. An error of `with` ends it.
pub(super) fn each(
    file: &Path,
    mut with: impl FnMut(&str, &mut dyn Read) -> io::Result<()>,
) -> Result<(), BackupError> {
    let bad = |what: String| BackupError::NotABackup { path: file.to_owned(), what };
    let opened = File::open(file).map_err(BackupError::io(file))?;
    entries(opened, |name, _, from| with(name, from)).map_err(bad)
}

/// Each plain file of a compressed archive, in order, with the length that its header gives. An error of `with` ends it;
/// so does whatever is no plain file, and a compression that does not end as it should.
pub(in crate::store) fn entries(
    opened: File,
    mut with: impl FnMut(&str, u64, &mut dyn Read) -> io::Result<()>,
) -> Result<(), String> {
    let mut tar = tar::Archive::new(MultiGzDecoder::new(opened));
    // Raw: an entry that only carries a longer name would be taken into memory whole, before anything is signed.
    let entries = tar.entries().map_err(|error| error.to_string())?.raw(true);
    for entry in entries {
        let mut entry = entry.map_err(|error| error.to_string())?;
        let name = entry.path().map_err(|error| error.to_string())?.to_string_lossy().into_owned();
        if entry.header().entry_type() != tar::EntryType::Regular {
            return Err(format!("{name:?} is no plain file"));
        }
        let len = entry.size();
        with(&name, len, &mut entry).map_err(|error| error.to_string())?;
    }
    // What stands between the files is in no hash; the checksum of the compression, at the very end, covers it.
    let mut rest = tar.into_inner().take(REST_LEN_MAX + 1);
    match io::copy(&mut rest, &mut io::sink()) {
        Ok(len) if len <= REST_LEN_MAX => Ok(()),
        Ok(_) => Err("something follows its end".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// The path below the state directory, when it is one that cannot lead out of it.
pub(super) fn below_state(name: &str) -> Option<&str> {
    let rest = name.strip_prefix(STATE)?.strip_prefix('/')?;
    let parts: Vec<Component<'_>> = Path::new(rest).components().collect();
    let plain = parts.iter().all(|part| matches!(part, Component::Normal(_)));
    let whole = !rest.is_empty() && !rest.ends_with('/') && rest.len() <= NAME_LEN_MAX;
    (plain && whole && parts.len() <= DEPTH_MAX + 1).then_some(rest)
}

fn text(from: &mut dyn Read, most: u64) -> io::Result<String> {
    let mut text = String::new();
    from.take(most + 1).read_to_string(&mut text)?;
    if text.len() as u64 > most {
        return Err(io::Error::other("the manifest or its signature is too long"));
    }
    Ok(text)
}

fn hashed(from: &mut dyn Read, most: u64) -> io::Result<(u64, String)> {
    let mut hashed = Hashed::of(from.take(most + 1));
    io::copy(&mut hashed, &mut io::sink())?;
    let (len, hash) = hashed.end();
    if len > most {
        return Err(io::Error::other("it has more bytes than a state directory ever has"));
    }
    Ok((len, hash))
}

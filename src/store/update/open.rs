//! Reads an update, whole, before anything is done with it.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::super::backup::{Hashed, archive::entries};
use super::super::keys::PublicKey;
use super::{
    BYTES_MAX, FILES_MAX, FORMAT, MANIFEST, MANIFEST_LEN_MAX, MODEL_MANIFEST, Part, SIGNATURE, SIGNATURE_LEN_MAX,
    Trust, UpdateError, Version, part_of, signed,
};
use crate::record::{hex, unhex};

/// What an update says of itself.
#[derive(Debug, Clone)]
pub struct Manifest {
    /// Its version.
    pub version: Version,
    /// When it was made, as RFC 3339 has it.
    pub made: String,
    /// Its files.
    pub files: BTreeMap<String, Listed>,
    /// Who signed it, in hexadecimal digits.
    pub signer: String,
    /// The SHA-256 of the manifest, in hexadecimal digits: the name of this very update.
    pub id: String,
}

/// A file as the manifest has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Bytes.
    pub len: u64,
    /// The SHA-256 of its bytes, in hexadecimal digits.
    pub sha256: String,
}

/// An update that is whole and signed by somebody who counts.
#[derive(Debug)]
pub struct Update {
    /// What it says of itself.
    pub manifest: Manifest,
    /// Its manifest and signature as they were signed.
    heads: [String; 2],
    file: PathBuf,
}

#[derive(Deserialize)]
struct Written {
    format: u64,
    kind: String,
    version: String,
    made: String,
    files: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    path: String,
    len: u64,
    sha256: String,
}

impl Manifest {
    /// Reads a manifest that somebody who counts has signed. `path` is for messages.
    pub(super) fn read(path: &Path, manifest: &str, signature: &str, trust: &Trust) -> Result<Manifest, UpdateError> {
        let bad = |what: String| UpdateError::NotAnUpdate { path: path.to_owned(), what };
        let mut lines = signature.lines();
        let signer = lines.next().unwrap_or_default().to_owned();
        let by: Option<PublicKey> = unhex(&signer).and_then(|bytes| PublicKey::from_bytes(&bytes));
        let by = by.ok_or_else(|| bad("its signature names no key".to_owned()))?;
        let proof: Option<[u8; 64]> = lines.next().and_then(unhex);
        if !proof.is_some_and(|proof| by.signed(&signed(manifest.as_bytes()), &proof)) {
            return Err(UpdateError::Changed { path: path.to_owned() });
        }
        if !trust.knows(&by) {
            return Err(UpdateError::Stranger { path: path.to_owned(), signer, keys: trust.place.clone() });
        }
        let id = hex(&Sha256::digest(manifest.as_bytes()));
        let written: Written = serde_json::from_str(manifest).map_err(|error| bad(format!("{MANIFEST}: {error}")))?;
        if written.format > FORMAT {
            return Err(bad(format!("it has format {}; this build reads up to {FORMAT}", written.format)));
        }
        let version = Version::parse(&written.version)
            .ok_or_else(|| bad(format!("{:?} is no version (one to four numbers with dots)", written.version)))?;
        if written.files.len() > FILES_MAX {
            let what = format!("{} files; {FILES_MAX} are taken at most", written.files.len());
            return Err(UpdateError::TooMuch { path: path.to_owned(), what });
        }
        let (mut files, mut bytes) = (BTreeMap::new(), 0_u64);
        for Entry { path: name, len, sha256 } in written.files {
            if part_of(&name).is_none() {
                return Err(UpdateError::BadName { path: path.to_owned(), name });
            }
            bytes = bytes.saturating_add(len);
            if files.insert(name.clone(), Listed { len, sha256 }).is_some() {
                return Err(bad(format!("{name} is listed twice")));
            }
        }
        if bytes > BYTES_MAX {
            let what = format!("{bytes} bytes; {BYTES_MAX} are taken at most");
            return Err(UpdateError::TooMuch { path: path.to_owned(), what });
        }
        let manifest = Manifest { version, made: written.made, files, signer, id };
        if manifest.kind() != written.kind || manifest.kind().is_empty() {
            return Err(bad(format!("it says that it is {:?}, and holds {:?}", written.kind, manifest.kind())));
        }
        if manifest.has(Part::Model) && !manifest.files.contains_key(MODEL_MANIFEST) {
            return Err(bad(format!("it has a model without {MODEL_MANIFEST}")));
        }
        Ok(manifest)
    }

    /// Whether it has this part.
    #[must_use]
    pub fn has(&self, part: Part) -> bool {
        self.files.keys().any(|name| part_of(name) == Some(part))
    }

    /// `commands`, `model` or `commands+model`.
    #[must_use]
    pub fn kind(&self) -> String {
        let parts: Vec<&str> = Part::ALL.into_iter().filter(|part| self.has(*part)).map(Part::word).collect();
        parts.join("+")
    }

    /// All of its files together.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.files.values().map(|file| file.len).sum()
    }
}

/// Reads an update to its end and checks each byte of it: the manifest against its signature, the signer against the
/// keys that count, then every file against the manifest.
///
/// # Errors
/// [`UpdateError`], with what does not fit. Nothing is written.
pub fn examine(file: &Path, trust: &Trust) -> Result<Update, UpdateError> {
    let mut heads = Vec::new();
    let mut manifest = None;
    let mut left = BTreeMap::new();
    walk(file, |name, len, from| {
        let Some(manifest) = &manifest else {
            // The heads come first: of a file that nobody signed, no more is read.
            let (wanted, most) =
                if heads.is_empty() { (MANIFEST, MANIFEST_LEN_MAX) } else { (SIGNATURE, SIGNATURE_LEN_MAX) };
            if name != wanted {
                return Err(match wanted {
                    SIGNATURE => UpdateError::Unsigned { path: file.to_owned() },
                    _ => not_one(file, format!("it begins with {name:?}, not with {MANIFEST}")),
                });
            }
            heads.push(text(file, name, len, most, from)?);
            if let [manifest_text, signature] = heads.as_slice() {
                let read = Manifest::read(file, manifest_text, signature, trust)?;
                left = read.files.clone();
                manifest = Some(read);
            }
            return Ok(());
        };
        if part_of(name).is_none() {
            return Err(UpdateError::BadName { path: file.to_owned(), name: name.to_owned() });
        }
        let Some(listed) = left.remove(name) else {
            let twice = manifest.files.contains_key(name);
            let what = format!("{name} {}", if twice { "is there twice" } else { "is not in the manifest" });
            return Err(not_one(file, what));
        };
        same(file, name, len, &listed, from, &mut io::sink())
    })?;
    let whole = |what: &str| not_one(file, what.to_owned());
    let Some(manifest) = manifest else {
        return Err(if heads.is_empty() {
            whole("it is empty")
        } else {
            UpdateError::Unsigned { path: file.to_owned() }
        });
    };
    if let Some(name) = left.keys().next() {
        return Err(whole(&format!("{name} is missing")));
    }
    let heads = <[String; 2]>::try_from(heads).map_err(|_| whole("it has no manifest"))?;
    Ok(Update { manifest, heads, file: file.to_owned() })
}

impl Update {
    /// Unpacks it into a folder, which is made for it. The file may have become another one since it was examined: every
    /// byte is held against the manifest again.
    ///
    /// # Errors
    /// [`UpdateError`]; the caller takes away what there is of the folder.
    pub fn unpack(&self, folder: &Path) -> Result<(), UpdateError> {
        private(folder)?;
        let mut left = self.manifest.files.clone();
        walk(&self.file, |name, len, from| {
            let Some(listed) = left.remove(name) else { return Ok(()) };
            let path = folder.join(name);
            if let Some(parent) = path.parent() {
                private(parent)?;
            }
            let mut to = create(&path)?;
            same(&self.file, name, len, &listed, from, &mut to)?;
            to.sync_all().map_err(UpdateError::io(&path))
        })?;
        if let Some(name) = left.keys().next() {
            return Err(not_one(&self.file, format!("{name} is gone")));
        }
        for (name, text) in [MANIFEST, SIGNATURE].into_iter().zip(&self.heads) {
            let path = folder.join(name);
            let mut to = create(&path)?;
            io::Write::write_all(&mut to, text.as_bytes()).map_err(UpdateError::io(&path))?;
            to.sync_all().map_err(UpdateError::io(&path))?;
        }
        Ok(())
    }
}

fn not_one(file: &Path, what: String) -> UpdateError {
    UpdateError::NotAnUpdate { path: file.to_owned(), what }
}

fn private(folder: &Path) -> Result<(), UpdateError> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(UpdateError::io(folder))
}

fn create(path: &Path) -> Result<File, UpdateError> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(UpdateError::io(path))
}

/// Each file of the update; what `with` says keeps its own words.
fn walk(
    file: &Path,
    mut with: impl FnMut(&str, u64, &mut dyn Read) -> Result<(), UpdateError>,
) -> Result<(), UpdateError> {
    let about = fs::metadata(file).map_err(UpdateError::io(file))?;
    if !about.is_file() {
        return Err(not_one(file, "it is no plain file".to_owned()));
    }
    // Models do not compress, so this is hardly more than what is in it.
    if about.len() > BYTES_MAX {
        let what = format!("{} bytes; {BYTES_MAX} are taken at most", about.len());
        return Err(UpdateError::TooMuch { path: file.to_owned(), what });
    }
    let opened = File::open(file).map_err(UpdateError::io(file))?;
    let mut said = None;
    let walked = entries(opened, |name, len, from| {
        with(name, len, from).map_err(|error| {
            said = Some(error);
            io::Error::other("not taken")
        })
    });
    match (said, walked) {
        (Some(error), _) => Err(error),
        (None, Ok(())) => Ok(()),
        (None, Err(what)) => Err(not_one(file, what)),
    }
}

fn text(file: &Path, name: &str, len: u64, most: u64, from: &mut dyn Read) -> Result<String, UpdateError> {
    if len > most {
        let what = format!("{name} has {len} bytes; {most} are read at most");
        return Err(UpdateError::TooMuch { path: file.to_owned(), what });
    }
    let mut text = String::new();
    from.read_to_string(&mut text).map_err(|error| not_one(file, format!("{name}: {error}")))?;
    Ok(text)
}

/// Copies one file and holds it against what was signed.
fn same(
    file: &Path,
    name: &str,
    len: u64,
    listed: &Listed,
    from: &mut dyn Read,
    to: &mut dyn io::Write,
) -> Result<(), UpdateError> {
    // A header that promises gigabytes is believed no further than the manifest.
    if len != listed.len {
        return Err(UpdateError::Damaged { path: file.to_owned(), name: name.to_owned() });
    }
    let mut hashed = Hashed::of(from.take(listed.len));
    io::copy(&mut hashed, to).map_err(|error| not_one(file, format!("{name}: {error}")))?;
    match hashed.end() == (listed.len, listed.sha256.clone()) {
        true => Ok(()),
        false => Err(UpdateError::Damaged { path: file.to_owned(), name: name.to_owned() }),
    }
}

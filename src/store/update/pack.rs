//! Makes an update, on the maker's machine.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use interlock_domain::time::Wall;
use serde_json::{Value, json};

use super::super::backup::{Hashed, append};
use super::super::keys::Key;
use super::{
    BYTES_MAX, FILES_MAX, FORMAT, MANIFEST, MODEL_MANIFEST, Part, SIGNATURE, UpdateError, Version, part_of, signed,
};
use crate::record::{hex, rfc3339};

/// An update that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packed {
    /// How many files.
    pub files: usize,
    /// Their bytes before compression.
    pub bytes: u64,
    /// The public key of whoever signed, in hexadecimal digits.
    pub signer: String,
    /// Whether that key was made just now.
    pub is_new_key: bool,
}

/// Writes an update to a file that is not there yet: all `*.toml` of `commands`, and of `model` its manifest and the
/// files that `model_files` names. The key file is the one of `interlock-slots seal`; it is made if it is not there.
///
/// # Errors
/// [`UpdateError`]; no file is left then.
pub fn pack(
    file: &Path,
    commands: Option<&Path>,
    model: Option<(&Path, &[PathBuf])>,
    version: &Version,
    key: &Path,
    at: Wall,
) -> Result<Packed, UpdateError> {
    let mut from: BTreeMap<String, PathBuf> = BTreeMap::new();
    if let Some(folder) = commands {
        for entry in fs::read_dir(folder).map_err(UpdateError::io(folder))? {
            let path = entry.map_err(UpdateError::io(folder))?.path();
            if let (Some("toml"), Some(name)) =
                (path.extension().and_then(|ending| ending.to_str()), path.file_name().and_then(|name| name.to_str()))
            {
                from.insert(format!("{}/{name}", Part::Commands.word()), path.clone());
            }
        }
        if from.is_empty() {
            let what = "there is no *.toml in it".to_owned();
            return Err(UpdateError::NotAnUpdate { path: folder.to_owned(), what });
        }
    }
    if let Some((folder, names)) = model {
        for name in names {
            let name = name.to_string_lossy();
            from.insert(format!("{}/{name}", Part::Model.word()), folder.join(&*name));
        }
        from.insert(MODEL_MANIFEST.to_owned(), folder.join("manifest.toml"));
    }
    if from.len() > FILES_MAX {
        let what = format!("{} files; {FILES_MAX} go in at most", from.len());
        return Err(UpdateError::TooMuch { path: file.to_owned(), what });
    }
    if let Some(name) = from.keys().find(|name| part_of(name).is_none()) {
        return Err(UpdateError::BadName { path: file.to_owned(), name: name.clone() });
    }
    let (listed, bytes) = listed(file, &from)?;
    let (key, is_new_key) = maker(key)?;
    let parts: Vec<&str> = [(Part::Commands, commands.is_some()), (Part::Model, model.is_some())]
        .into_iter()
        .filter_map(|(part, is_in)| is_in.then_some(part.word()))
        .collect();
    let manifest = json!({
        "format": FORMAT, "kind": parts.join("+"), "version": version.to_string(), "made": rfc3339(at), "files": listed,
    });
    let (manifest, signer) = (manifest.to_string(), hex(key.public().as_bytes()));
    let signature = format!("{signer}\n{}\n", hex(&key.sign(&signed(manifest.as_bytes()))));
    let new = OpenOptions::new().write(true).create_new(true).mode(0o644).open(file);
    let out = new.map_err(UpdateError::io(file))?;
    if let Err(error) = written(file, &out, &from, &listed, &[(MANIFEST, &manifest), (SIGNATURE, &signature)]) {
        let _gone = fs::remove_file(file);
        return Err(error);
    }
    Ok(Packed { files: from.len(), bytes, signer, is_new_key })
}

fn listed(file: &Path, from: &BTreeMap<String, PathBuf>) -> Result<(Vec<Value>, u64), UpdateError> {
    let (mut all, mut bytes) = (Vec::new(), 0);
    for (name, path) in from {
        let opened = open(path)?;
        let mut hashed = Hashed::of(opened.take(BYTES_MAX + 1 - bytes));
        io::copy(&mut hashed, &mut io::sink()).map_err(UpdateError::io(path))?;
        let (len, sha256) = hashed.end();
        bytes += len;
        if bytes > BYTES_MAX {
            let what = format!("more than {BYTES_MAX} bytes");
            return Err(UpdateError::TooMuch { path: file.to_owned(), what });
        }
        all.push(json!({ "path": name, "len": len, "sha256": sha256 }));
    }
    Ok((all, bytes))
}

/// Only plain files: a link would be packed as what it points at today.
fn open(path: &Path) -> Result<File, UpdateError> {
    let about = fs::symlink_metadata(path).map_err(UpdateError::io(path))?;
    if !about.is_file() {
        return Err(UpdateError::NotAnUpdate { path: path.to_owned(), what: "it is no plain file".to_owned() });
    }
    File::open(path).map_err(UpdateError::io(path))
}

fn written(
    file: &Path,
    out: &File,
    from: &BTreeMap<String, PathBuf>,
    listed: &[Value],
    heads: &[(&str, &str)],
) -> Result<(), UpdateError> {
    let mut tar = tar::Builder::new(GzEncoder::new(out, Compression::default()));
    for (name, text) in heads {
        append(&mut tar, name, text.len() as u64, 0o644, &mut text.as_bytes()).map_err(UpdateError::io(file))?;
    }
    for ((name, path), about) in from.iter().zip(listed) {
        let len = about["len"].as_u64().unwrap_or_default();
        let mut hashed = Hashed::of(open(path)?.take(len));
        append(&mut tar, name, len, 0o644, &mut hashed).map_err(UpdateError::io(file))?;
        if hashed.end().1 != about["sha256"].as_str().unwrap_or_default() {
            return Err(UpdateError::Damaged { path: path.clone(), name: name.clone() });
        }
    }
    let mut out = tar.into_inner().and_then(GzEncoder::finish).map_err(UpdateError::io(file))?;
    out.flush().and_then(|()| out.sync_all()).map_err(UpdateError::io(file))
}

/// The maker's key; a new one where there is none.
fn maker(file: &Path) -> Result<(Key, bool), UpdateError> {
    let made =
        Key::of_file(file).map_err(|error| UpdateError::NoKeys { keys: file.to_owned(), what: error.to_string() })?;
    Ok(made)
}

//! The key that signs heads, segment headers and checkpoints.
//!
//! It is made on the first start and never leaves its file, which only its owner can read. Whoever has it (root on
//! the box) can rewrite what follows the last exported checkpoint; nothing in here pretends otherwise.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};

use super::error::StoreError;
use crate::record::{hex, unhex};

const SECRET: &str = "evidence.key";
const PUBLIC: &str = "evidence.pub";

/// Signs for this state directory.
pub struct Key(SigningKey);

impl Key {
    /// The key of `state`, made on the first start.
    ///
    /// # Errors
    /// When the key file is there but holds no key, or cannot be read or made.
    pub fn of_state(state: &Path) -> Result<Key, StoreError> {
        let dir = state.join("keys");
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir).map_err(|e| StoreError::io(&dir, e))?;
        let path = dir.join(SECRET);
        let key = match read_hex(&path)? {
            Some(seed) => Key(SigningKey::from_bytes(&seed)),
            None => {
                let mut seed = [0; 32];
                getrandom::fill(&mut seed).map_err(|e| StoreError::io(&path, io::Error::other(e)))?;
                write_whole(&dir, SECRET, 0o600, &hex(&seed))?;
                Key(SigningKey::from_bytes(&seed))
            }
        };
        // Written again whenever it does not fit, so that it never misleads a verifier.
        if public_of_state(state)? != Some(key.public()) {
            write_whole(&dir, PUBLIC, 0o644, &hex(key.public().as_bytes()))?;
        }
        Ok(key)
    }

    /// The maker's key in a file of its own, as `interlock-slots seal` has it; made if it is not there, and then true.
    ///
    /// # Errors
    /// When the file is there but holds no key, or cannot be read or made.
    pub fn of_file(path: &Path) -> Result<(Key, bool), StoreError> {
        if let Some(seed) = read_hex(path)? {
            return Ok((Key(SigningKey::from_bytes(&seed)), false));
        }
        let mut seed = [0; 32];
        getrandom::fill(&mut seed).map_err(|e| StoreError::io(path, io::Error::other(e)))?;
        let new = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        let write = |mut file: File| writeln!(file, "{}", hex(&seed)).and_then(|()| file.sync_all());
        new.and_then(write).map_err(|e| StoreError::io(path, e))?;
        Ok((Key(SigningKey::from_bytes(&seed)), true))
    }

    /// The half that everyone may know.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        PublicKey(self.0.verifying_key())
    }

    /// Signs `message`.
    #[must_use]
    pub fn sign(&self, message: &[u8]) -> [u8; 64] {
        self.0.sign(message).to_bytes()
    }
}

/// Checks what a [`Key`] signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PublicKey(VerifyingKey);

impl PublicKey {
    /// Out of its 32 bytes; `None` when they are no point of the curve.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; 32]) -> Option<PublicKey> {
        VerifyingKey::from_bytes(bytes).ok().map(PublicKey)
    }

    /// Its 32 bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        self.0.as_bytes()
    }

    /// Whether `signature` is this key's for `message`.
    #[must_use]
    pub fn signed(&self, message: &[u8], signature: &[u8; 64]) -> bool {
        self.0.verify_strict(message, &Signature::from_bytes(signature)).is_ok()
    }
}

/// The public key that stands in `state`, if there is one.
///
/// # Errors
/// When the file is there but holds no key, or cannot be read.
pub fn public_of_state(state: &Path) -> Result<Option<PublicKey>, StoreError> {
    let path = state.join("keys").join(PUBLIC);
    let Some(bytes) = read_hex(&path)? else { return Ok(None) };
    PublicKey::from_bytes(&bytes).map(Some).ok_or(StoreError::NotAKey { path })
}

fn read_hex(path: &Path) -> Result<Option<[u8; 32]>, StoreError> {
    let mut text = String::new();
    match File::open(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(StoreError::io(path, e)),
        // A key is 65 bytes; whatever is longer is not one.
        Ok(file) => match file.take(128).read_to_string(&mut text) {
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::InvalidData => {}
            Err(e) => return Err(StoreError::io(path, e)),
        },
    }
    unhex(text.trim_end()).map(Some).ok_or_else(|| StoreError::NotAKey { path: path.to_owned() })
}

/// A power cut leaves the old file or the new one, never half of one.
pub(super) fn write_whole(dir: &Path, name: &str, mode: u32, text: &str) -> Result<(), StoreError> {
    let new = dir.join(format!("{name}.new"));
    let path: PathBuf = dir.join(name);
    let write = || {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(&new)?;
        writeln!(file, "{text}")?;
        file.sync_all()?;
        fs::rename(&new, &path)?;
        File::open(dir)?.sync_all()
    };
    write().map_err(|e| StoreError::io(&path, e))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_key_is_made_once_and_only_its_owner_reads_it() {
        let state = tempfile::tempdir().unwrap();
        let first = Key::of_state(state.path()).unwrap();
        let again = Key::of_state(state.path()).unwrap();
        assert_eq!(first.public(), again.public());
        assert_eq!(public_of_state(state.path()).unwrap(), Some(first.public()));
        let mode = fs::metadata(state.path().join("keys/evidence.key")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(first.public().signed(b"x", &again.sign(b"x")));
        assert!(!first.public().signed(b"y", &again.sign(b"x")));
    }

    #[test]
    fn a_damaged_key_is_not_replaced() {
        for damage in ["", "00", "zz", "\u{fffd}"] {
            let state = tempfile::tempdir().unwrap();
            Key::of_state(state.path()).unwrap();
            fs::write(state.path().join("keys/evidence.key"), damage).unwrap();
            assert!(matches!(Key::of_state(state.path()), Err(StoreError::NotAKey { .. })), "{damage:?}");
        }
    }
}

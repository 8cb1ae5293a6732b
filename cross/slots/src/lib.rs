//! The two root slots of the appliance: what each holds, which one the loader starts, and how another one gets in.
//!
//! Interlock itself knows nothing of slots: this is a program of the image (`cross/image`), and the gate that it keeps
//! is about the box, not about calls. It never judges a slot by what it says of itself: label and content are held
//! against each other, and what comes in against the maker's key.

pub mod counters;
pub mod label;
pub mod update;

#[cfg(test)]
mod examples {
    //! Slot files for the tests, in a folder of this process.

    use std::fs::{self, File};
    use std::io::{Read, Seek, SeekFrom, Write};
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicU32, Ordering};

    use ed25519_dalek::SigningKey;

    use crate::label::{Label, hash};

    static COUNT: AtomicU32 = AtomicU32::new(0);

    pub(crate) fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("interlock-slots-{}", std::process::id())).join(name);
        fs::create_dir_all(&folder).expect("a folder");
        folder
    }

    pub(crate) fn path(name: &str) -> PathBuf {
        folder("files").join(name)
    }

    pub(crate) fn key() -> SigningKey {
        SigningKey::from_bytes(&[7; 32])
    }

    pub(crate) fn slot(bytes: usize) -> (File, Label, SigningKey) {
        slot_at(&format!("{}.slot", COUNT.fetch_add(1, Ordering::Relaxed)), bytes)
    }

    pub(crate) fn slot_at(name: &str, bytes: usize) -> (File, Label, SigningKey) {
        let mut image: Vec<u8> = (0..bytes).map(|at| (at % 251) as u8).collect();
        image[..4].copy_from_slice(b"hsqs");
        image[40..48].copy_from_slice(&(bytes as u64).to_le_bytes());
        let label = Label {
            board: "generic-arm64".to_owned(),
            machine: "aarch64".to_owned(),
            version: "1".to_owned(),
            bytes: bytes as u64,
            sha256: hash(&mut image.as_slice()).expect("a hash"),
        };
        image.resize(bytes.next_multiple_of(4096), 0);
        image.extend(label.block(&key()));
        fs::write(path(name), image).expect("a file");
        let file = File::options().read(true).write(true).open(path(name)).expect("a file");
        (file, label, key())
    }

    pub(crate) fn flip(file: &mut File, position: u64) {
        let mut byte = [0_u8];
        file.seek(SeekFrom::Start(position)).expect("a place");
        file.read_exact(&mut byte).expect("a byte");
        file.seek(SeekFrom::Start(position)).expect("a place");
        file.write_all(&[byte[0] ^ 1]).expect("room");
    }
}

//! The label of a slot: what lies behind the root file system, in the same partition, and says what it is.
//!
//! A slot file is a squashfs image, then one block of text. The text names board, processor and version, the length and
//! the hash of the image, and a signature over these lines. The starter (`cross/image/init`) reads the same lines
//! with a shell, so the form stays one word and one value a line. Nothing here decides which slot is started.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use sha2::{Digest, Sha256};

/// The label's block, and what the image before it is padded to.
pub const BLOCK: u64 = 4096;

/// The first line, with the version of this form.
const HEAD: &str = "interlock-slot 1";

/// How much is read at a time.
const CHUNK: usize = 1 << 20;

/// The longest text that a label may have.
const TEXT_MAX: usize = 4096;

/// What a slot holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// The board's name, as in `cross/boards`.
    pub board: String,
    /// The processor, as `uname -m` says it.
    pub machine: String,
    /// The version of what is inside.
    pub version: String,
    /// The length of the image.
    pub bytes: u64,
    /// The hash of these bytes, in hex.
    pub sha256: String,
}

/// Why a slot, or a file that wants to become one, is not taken.
#[derive(Debug, PartialEq, Eq)]
pub enum Wrong {
    /// No squashfs image at the start.
    NoImage,
    /// Nothing readable where the label should be.
    NoLabel,
    /// The hash of the content is another one.
    Damaged { said: String, found: String },
    /// Nobody signed it.
    Unsigned,
    /// Somebody else signed it, or it was changed afterwards.
    Stranger,
    /// For another processor or board.
    OtherBoard { said: String, here: String },
    /// It cannot be read.
    Unreadable(String),
}

impl std::fmt::Display for Wrong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Wrong::NoImage => f.write_str("no root file system (squashfs) at its start"),
            Wrong::NoLabel => f.write_str("no label behind the root file system: empty, or cut off"),
            Wrong::Damaged { said, found } => {
                write!(f, "damaged: the label says sha256 {said}, the content has {found}")
            }
            Wrong::Unsigned => f.write_str("not signed"),
            Wrong::Stranger => f.write_str("the signature is not of this box's maker, or the label was changed"),
            Wrong::OtherBoard { said, here } => write!(f, "made for {said}; this box is {here}"),
            Wrong::Unreadable(why) => write!(f, "unreadable: {why}"),
        }
    }
}

impl std::error::Error for Wrong {}

impl From<io::Error> for Wrong {
    fn from(why: io::Error) -> Wrong {
        Wrong::Unreadable(why.to_string())
    }
}

impl Label {
    /// Label and signature of what a file or partition holds. The content is not yet looked at.
    pub fn read(from: &mut File) -> Result<(Label, Option<Signature>), Wrong> {
        from.seek(SeekFrom::Start(0))?;
        let mut head = [0_u8; 48];
        from.read_exact(&mut head).map_err(|_| Wrong::NoImage)?;
        if !head.starts_with(b"hsqs") {
            return Err(Wrong::NoImage);
        }
        let bytes = u64::from_le_bytes(head[40..48].try_into().map_err(|_| Wrong::NoImage)?);
        // Whatever an image says of its length.
        let end = bytes.checked_next_multiple_of(BLOCK).filter(|end| *end <= i64::MAX as u64).ok_or(Wrong::NoLabel)?;
        from.seek(SeekFrom::Start(end))?;
        let mut text = Vec::new();
        from.take(BLOCK).read_to_end(&mut text)?;
        let text = String::from_utf8(text).map_err(|_| Wrong::NoLabel)?;
        let (label, signature) = Label::parse(text.trim_end_matches('\0')).ok_or(Wrong::NoLabel)?;
        if label.bytes == bytes { Ok((label, signature)) } else { Err(Wrong::NoLabel) }
    }

    /// The content held against the label.
    pub fn hold_against(&self, from: &mut File) -> Result<(), Wrong> {
        from.seek(SeekFrom::Start(0))?;
        let found = hash(&mut from.take(self.bytes))?;
        if found == self.sha256 { Ok(()) } else { Err(Wrong::Damaged { said: self.sha256.clone(), found }) }
    }

    /// Whether one of these keys signed it.
    pub fn signed_by(&self, signature: Option<&Signature>, keys: &[VerifyingKey]) -> Result<(), Wrong> {
        let signature = signature.ok_or(Wrong::Unsigned)?;
        let text = self.text();
        let ours = keys.iter().any(|key| key.verify_strict(text.as_bytes(), signature).is_ok());
        if ours { Ok(()) } else { Err(Wrong::Stranger) }
    }

    /// The block that is put behind the image.
    pub fn block(&self, key: &SigningKey) -> Vec<u8> {
        let text = self.text();
        let signature = key.sign(text.as_bytes());
        let mut block = format!("{text}signature {}\n", hex(&signature.to_bytes())).into_bytes();
        block.resize(TEXT_MAX, 0);
        block
    }

    fn text(&self) -> String {
        let Label { board, machine, version, bytes, sha256 } = self;
        format!("{HEAD}\nboard {board}\nmachine {machine}\nversion {version}\nbytes {bytes}\nsha256 {sha256}\n")
    }

    fn parse(text: &str) -> Option<(Label, Option<Signature>)> {
        let mut lines = text.lines();
        if lines.next() != Some(HEAD) {
            return None;
        }
        let mut value = |word: &str| lines.next()?.strip_prefix(word)?.strip_prefix(' ').map(str::to_owned);
        let label = Label {
            board: value("board")?,
            machine: value("machine")?,
            version: value("version")?,
            bytes: value("bytes")?.parse().ok()?,
            sha256: value("sha256")?,
        };
        let signature = match value("signature") {
            Some(hex) => Some(Signature::from_bytes(&unhex(&hex)?.try_into().ok()?)),
            None => None,
        };
        Some((label, signature))
    }
}

/// The hash of all that can be read, in hex.
pub fn hash(from: &mut impl Read) -> io::Result<String> {
    let mut hasher = Sha256::new();
    let mut chunk = vec![0_u8; CHUNK];
    loop {
        match from.read(&mut chunk)? {
            0 => return Ok(hex(&hasher.finalize())),
            length => hasher.update(&chunk[..length]),
        }
    }
}

/// Bytes as hex digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes of hex digits.
pub fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u32>> = text.trim().chars().map(|c| c.to_digit(16)).collect();
    let digits = digits.filter(|digits| digits.len() % 2 == 0)?;
    digits.chunks(2).map(|pair| u8::try_from(pair[0] * 16 + pair[1]).ok()).collect()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::examples;

    #[test]
    fn a_slot_file_is_read_as_it_was_sealed() {
        let (mut file, label, key) = examples::slot(5000);
        let (read, signature) = Label::read(&mut file).expect("a label");
        assert_eq!(read, label);
        assert_eq!(read.signed_by(signature.as_ref(), &[key.verifying_key()]), Ok(()));
        assert_eq!(read.hold_against(&mut file), Ok(()));
    }

    #[test]
    fn what_is_wrong_is_told_apart() {
        let (mut file, label, key) = examples::slot(5000);
        let (_, signature) = Label::read(&mut file).expect("a label");
        let stranger = SigningKey::from_bytes(&[8; 32]).verifying_key();
        assert_eq!(label.signed_by(signature.as_ref(), &[stranger]), Err(Wrong::Stranger));
        assert_eq!(label.signed_by(None, &[key.verifying_key()]), Err(Wrong::Unsigned));
        let renamed = Label { version: "2".to_owned(), ..label.clone() };
        assert_eq!(renamed.signed_by(signature.as_ref(), &[key.verifying_key()]), Err(Wrong::Stranger));

        for position in [60, 4999] {
            let (mut file, label, _) = examples::slot(5000);
            examples::flip(&mut file, position);
            assert!(matches!(label.hold_against(&mut file), Err(Wrong::Damaged { .. })), "{position}");
        }
        examples::flip(&mut file, 0);
        assert_eq!(Label::read(&mut file), Err(Wrong::NoImage));
        let (mut file, ..) = examples::slot(5000);
        file.seek(SeekFrom::Start(40)).and_then(|_| file.write_all(&u64::MAX.to_le_bytes())).expect("a length");
        assert_eq!(Label::read(&mut file), Err(Wrong::NoLabel));
        let (mut file, ..) = examples::slot(5000);
        file.set_len(6000).expect("cut off");
        assert_eq!(Label::read(&mut file), Err(Wrong::NoLabel));
    }

    #[test]
    fn hex_and_back() {
        assert_eq!(unhex(&hex(&[0, 1, 254])), Some(vec![0, 1, 254]));
        assert_eq!((unhex("0"), unhex("zz"), unhex("")), (None, None, Some(vec![])));
    }
}

//! Signed checkpoints over all rows, in the form of C2SP tlog-checkpoint, to be carried off the machine.
//!
//! A checkpoint is a signed note: the origin (this log), how many rows there are, the root of the tree over them, and
//! for our own verifier the number of the last row. Whoever holds one, on paper or on another machine, can tell later
//! whether the log still begins with exactly these rows; not even the key on the box can undo that. The file keeps
//! the last one of each closed segment and those of the current one.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use interlock_domain::id::Seq;
use sha2::{Digest, Sha256};

use super::chain::Hash;
use super::keys::{Key, PublicKey};
use crate::record::hex;

const NAME: &str = "checkpoints";
/// A file that is longer was not written by us: a segment of 64 MB has at most a few thousand checkpoints of 300
/// bytes.
const FILE_LEN_MAX: u64 = 16 * 1024 * 1024;
/// Four lines, an empty one and a signature ...
const NOTE_LINES: usize = 6;
/// ... and the end of the file in which the last two of them lie, in bytes.
const NEWEST_LEN_MAX: u64 = 2048;
/// The algorithm byte of Ed25519 in a signed note (C2SP signed-note).
const ED25519: u8 = 1;

/// What a checkpoint says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checkpoint {
    /// How many rows the tree is over.
    pub size: u64,
    /// Its root.
    pub root: Hash,
    /// The number of the last of these rows; larger than `size` when numbers were skipped after a loss.
    pub seq: Seq,
}

/// The name of a log: what its checkpoints are called and which key signs them.
#[must_use]
pub fn origin(key: &PublicKey) -> String {
    let id = hex(key.as_bytes());
    format!("interlock/evidence/{}", &id[..16])
}

/// Where the checkpoints of a log directory lie.
#[must_use]
pub fn path(evidence: &Path) -> PathBuf {
    evidence.join(NAME)
}

fn key_id(origin: &str, key: &PublicKey) -> [u8; 4] {
    let hash =
        Sha256::new().chain_update(origin).chain_update([b'\n', ED25519]).chain_update(key.as_bytes()).finalize();
    [hash[0], hash[1], hash[2], hash[3]]
}

/// The key in the form that verifiers of signed notes take: `<name>+<key id>+<key>`.
#[must_use]
pub fn verifier_key(key: &PublicKey) -> String {
    let origin = origin(key);
    let mut bytes = vec![ED25519];
    bytes.extend_from_slice(key.as_bytes());
    format!("{origin}+{}+{}", hex(&key_id(&origin, key)), STANDARD.encode(bytes))
}

impl Checkpoint {
    fn body(&self, origin: &str) -> String {
        format!("{origin}\n{}\n{}\nseq {}\n", self.size, STANDARD.encode(self.root), self.seq.0)
    }

    /// The signed note.
    #[must_use]
    pub fn sign(&self, key: &Key) -> String {
        let public = key.public();
        let origin = origin(&public);
        let body = self.body(&origin);
        let mut signature = key_id(&origin, &public).to_vec();
        signature.extend_from_slice(&key.sign(body.as_bytes()));
        format!("{body}\n\u{2014} {origin} {}\n", STANDARD.encode(signature))
    }
}

/// Reads signed notes one after the other; `None` in the place of each that `key` did not sign or that says nothing
/// of the kind.
#[must_use]
pub fn parse(text: &str, key: &PublicKey) -> Vec<Option<Checkpoint>> {
    let origin = origin(key);
    // A note is four lines, an empty line and a signature; what is torn at the end is a note that does not hold.
    let lines: Vec<&str> = text.lines().collect();
    let mut notes = Vec::new();
    let mut rest = lines.as_slice();
    while !rest.is_empty() {
        let end = rest.iter().position(|line| line.starts_with('\u{2014}')).map_or(rest.len(), |at| at + 1);
        notes.push(note(&rest[..end], &origin, key));
        rest = &rest[end..];
    }
    notes
}

fn note(lines: &[&str], origin: &str, key: &PublicKey) -> Option<Checkpoint> {
    let [title, size, root, seq, "", signature] = lines else { return None };
    let checkpoint = Checkpoint {
        size: size.parse().ok()?,
        root: STANDARD.decode(root).ok()?.try_into().ok()?,
        seq: Seq(seq.strip_prefix("seq ")?.parse().ok()?),
    };
    let signature = STANDARD.decode(signature.strip_prefix("\u{2014} ")?.strip_prefix(origin)?.strip_prefix(' ')?);
    let signature = signature.ok()?;
    let (id, signature) = signature.split_first_chunk::<4>()?;
    let fits = *title == origin && *id == key_id(origin, key);
    let signed = key.signed(checkpoint.body(origin).as_bytes(), signature.try_into().ok()?);
    (fits && signed).then_some(checkpoint)
}

/// The newest note of a log directory, as it stands in its file, for whoever carries it off the machine. A torn one at
/// the end does not count.
///
/// # Errors
/// When the file is there and cannot be read.
pub fn newest(evidence: &Path) -> io::Result<Option<String>> {
    let mut file = match File::open(path(evidence)) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let start = file.metadata()?.len().saturating_sub(NEWEST_LEN_MAX);
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    file.take(NEWEST_LEN_MAX).read_to_end(&mut bytes)?;
    // The first line may be half of one.
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let is_end = |line: &&str| line.starts_with('\u{2014}') && line.ends_with('\n');
    let end = lines.iter().rposition(is_end).and_then(|at| Some(&lines[at.checked_sub(NOTE_LINES - 1)?..=at]));
    Ok(end.map(<[&str]>::concat))
}

/// The checkpoints of a log directory by their size, and how many notes in the file do not hold. A note that a power
/// cut tore stands at the end and is no sign of anything.
///
/// # Errors
/// When the file is there and cannot be read.
pub fn read(evidence: &Path, key: &PublicKey) -> io::Result<(BTreeMap<u64, Checkpoint>, usize)> {
    let mut text = String::new();
    match File::open(path(evidence)) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok((BTreeMap::new(), 0)),
        Err(e) => return Err(e),
        Ok(file) => {
            let mut bytes = Vec::new();
            file.take(FILE_LEN_MAX).read_to_end(&mut bytes)?;
            text.push_str(&String::from_utf8_lossy(&bytes));
        }
    }
    let notes = parse(&text, key);
    let torn = notes.iter().rev().take_while(|note| note.is_none()).count().min(1);
    let bad = notes.iter().filter(|note| note.is_none()).count() - torn;
    Ok((notes.into_iter().flatten().map(|checkpoint| (checkpoint.size, checkpoint)).collect(), bad))
}

/// The file, open for writing.
#[derive(Debug)]
pub(super) struct Checkpoints {
    evidence: PathBuf,
    file: File,
    /// The rows that are under the last checkpoint.
    pub(super) size: u64,
}

impl Checkpoints {
    /// Opens the file of a log directory of `rows` rows. A torn note at its end is cut off; so are checkpoints of rows
    /// that are lost, which the boot row tells.
    pub(super) fn open(evidence: &Path, key: &Key, rows: u64) -> io::Result<Checkpoints> {
        let (mut known, _) = read(evidence, &key.public())?;
        known.retain(|size, _| *size <= rows);
        let size = known.last_key_value().map_or(0, |(size, _)| *size);
        let kept: String = known.values().map(|checkpoint| checkpoint.sign(key)).collect();
        let mut checkpoints = Checkpoints { evidence: evidence.to_owned(), file: append(&path(evidence))?, size };
        if fs::read(path(evidence))? != kept.as_bytes() {
            checkpoints.rewrite(&kept)?;
        }
        Ok(checkpoints)
    }

    /// Adds a checkpoint.
    pub(super) fn add(&mut self, checkpoint: &Checkpoint, key: &Key) -> io::Result<()> {
        self.put(checkpoint.size, &checkpoint.sign(key))
    }

    /// Adds a signed checkpoint over `size` rows.
    pub(super) fn put(&mut self, size: u64, note: &str) -> io::Result<()> {
        self.file.write_all(note.as_bytes())?;
        self.size = size;
        Ok(())
    }

    /// A segment was closed: of its checkpoints only the last one is kept.
    pub(super) fn close_segment(&mut self, last: &Checkpoint, firsts: &[Seq], key: &Key) -> io::Result<()> {
        let (known, _) = read(&self.evidence, &key.public())?;
        // The last one before each beginning of a segment.
        let mut kept: BTreeMap<u64, Checkpoint> = BTreeMap::new();
        for first in firsts {
            let closing = known.values().rfind(|checkpoint| checkpoint.seq < *first);
            kept.extend(closing.map(|checkpoint| (checkpoint.size, *checkpoint)));
        }
        kept.insert(last.size, *last);
        self.size = last.size;
        let text: String = kept.values().map(|checkpoint| checkpoint.sign(key)).collect();
        self.rewrite(&text)
    }

    fn rewrite(&mut self, text: &str) -> io::Result<()> {
        let new = self.evidence.join("checkpoints.new");
        fs::write(&new, text)?;
        File::open(&new)?.sync_all()?;
        fs::rename(&new, path(&self.evidence))?;
        self.file = append(&path(&self.evidence))?;
        Ok(())
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o640).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> Key {
        Key::of_state(tempfile::tempdir().unwrap().path()).unwrap()
    }

    fn checkpoint(size: u64) -> Checkpoint {
        Checkpoint { size, root: [7; 32], seq: Seq(size + 1) }
    }

    #[test]
    fn a_note_has_the_form_of_c2sp() {
        let key = key();
        let origin = origin(&key.public());
        let text = checkpoint(64).sign(&key);
        let lines: Vec<&str> = text.split('\n').collect();
        assert_eq!(lines[0], origin);
        assert_eq!(lines[1], "64");
        assert_eq!(lines[2], "BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=");
        assert_eq!(lines[3..5], ["seq 65", ""]);
        let signature = lines[5].strip_prefix(&format!("\u{2014} {origin} ")).unwrap();
        assert_eq!(STANDARD.decode(signature).unwrap().len(), 4 + 64);
        assert_eq!(lines[6..], [""]);
        assert_eq!(parse(&text, &key.public()), [Some(checkpoint(64))]);
        let verifier = verifier_key(&key.public());
        assert_eq!(verifier.split('+').next(), Some(origin.as_str()));
    }

    #[test]
    fn what_the_key_did_not_sign_does_not_hold() {
        let (ours, other) = (key(), key());
        let text = checkpoint(64).sign(&ours) + &checkpoint(128).sign(&other) + &checkpoint(192).sign(&ours);
        assert_eq!(parse(&text, &ours.public()), [Some(checkpoint(64)), None, Some(checkpoint(192))]);
        let forged = checkpoint(64).sign(&ours).replacen("64", "63", 1);
        assert_eq!(parse(&forged, &ours.public()), [None]);
        assert_eq!(parse("", &ours.public()), []);
    }

    #[test]
    fn a_torn_note_at_the_end_is_cut_off() {
        let (dir, key) = (tempfile::tempdir().unwrap(), key());
        let whole = checkpoint(64).sign(&key);
        let torn = checkpoint(128).sign(&key);
        fs::write(path(dir.path()), format!("{whole}{}", &torn[..torn.len() - 20])).unwrap();
        let (known, bad) = read(dir.path(), &key.public()).unwrap();
        assert_eq!((known.len(), bad), (1, 0));
        assert_eq!(newest(dir.path()).unwrap(), Some(whole.clone()));
        let mut checkpoints = Checkpoints::open(dir.path(), &key, 1000).unwrap();
        assert_eq!(checkpoints.size, 64);
        checkpoints.add(&checkpoint(192), &key).unwrap();
        assert_eq!(fs::read_to_string(path(dir.path())).unwrap(), whole.clone() + &checkpoint(192).sign(&key));
        checkpoints.add(&checkpoint(256), &key).unwrap();
        (1000..1100).for_each(|size| checkpoints.add(&checkpoint(size), &key).unwrap());
        assert_eq!(newest(dir.path()).unwrap(), Some(checkpoint(1099).sign(&key)));
        assert_eq!(newest(&dir.path().join("none")).unwrap(), None);
        checkpoints.close_segment(&checkpoint(300), &[Seq(100)], &key).unwrap();
        assert_eq!(fs::read_to_string(path(dir.path())).unwrap(), whole + &checkpoint(300).sign(&key));
    }
}

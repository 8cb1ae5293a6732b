//! The signed head: how far the log had come, in a second file, so that a lost tail shows.
//!
//! A chain of hashes says nothing about its own end. After each commit the head (number and hash of the last row,
//! the time, an Ed25519 signature) is written here, **after** the rows are durable and **before** anyone is told.
//! So the log is never behind the head unless rows were lost, and a head can never make a whole log look altered.
//!
//! The file has two slots in two blocks of their own, written in turn and in place. A write that a power cut tears
//! damages one slot; the other one, a commit older, still stands, and the log, which was durable before, passes it.
//! In place costs one `pwrite` of 512 bytes; a new file and a rename would cost a block allocation and, on ext4, a
//! flush of its data for every commit. The file is synced when the log rests (close, end of a segment, checkpoint),
//! not for every commit: an older head after a power cut is still a true one.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use interlock_domain::id::Seq;
use interlock_domain::time::Wall;

use super::chain::{Hash, START};
use super::keys::{Key, PublicKey};
use crate::record::{hex, unhex};

const NAME: &str = "head";
/// A slot is one sector: the smallest unit that a disk writes whole.
const SLOT_LEN: usize = 512;
/// Slots lie in blocks of their own, because the kernel writes back whole pages.
const SLOT_AT: [u64; 2] = [0, 4096];
const FILE_LEN: usize = 8192;
const TITLE: &str = "interlock evidence head 1";

/// What a head says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// The last row, 0 before the first.
    pub seq: Seq,
    /// Its hash.
    pub hash: Hash,
    /// When the head was written.
    pub wall: Wall,
}

/// What the head file says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heads {
    /// There is no head, or none that the key signed.
    None,
    /// Both slots are whole; the newer one.
    Whole(Head),
    /// One slot is damaged. What the other one says is true, but the damaged one may have said more.
    OneDamaged(Head),
}

impl Heads {
    /// The newest head that holds.
    #[must_use]
    pub fn newest(self) -> Option<Head> {
        match self {
            Heads::None => None,
            Heads::Whole(head) | Heads::OneDamaged(head) => Some(head),
        }
    }
}

/// Where the head of a log directory lies.
#[must_use]
pub fn path(evidence: &Path) -> PathBuf {
    evidence.join(NAME)
}

/// Reads the head of a log directory. A file that is not there is [`Heads::None`].
///
/// # Errors
/// When the file is there and cannot be read.
pub fn read(evidence: &Path, key: &PublicKey) -> io::Result<Heads> {
    let file = match File::open(path(evidence)) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Heads::None),
        Err(e) => return Err(e),
    };
    let slots = [slot(&file, SLOT_AT[0], key)?, slot(&file, SLOT_AT[1], key)?];
    Ok(match slots {
        [None, None] => Heads::None,
        [Some(head), None] | [None, Some(head)] => Heads::OneDamaged(head),
        [Some(a), Some(b)] => Heads::Whole(if a.seq >= b.seq { a } else { b }),
    })
}

/// The newest head as it was signed, for whoever keeps it outside of this machine; `None` where none holds.
///
/// # Errors
/// When the file is there and cannot be read.
pub fn text(evidence: &Path, key: &PublicKey) -> io::Result<Option<String>> {
    let file = match File::open(path(evidence)) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e),
    };
    let mut newest: Option<(Seq, String)> = None;
    for at in SLOT_AT {
        let mut bytes = [0; SLOT_LEN];
        match file.read_exact_at(&mut bytes, at) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => continue,
            Err(e) => return Err(e),
        }
        // A slot that is being written just now does not hold its signature, and is left out.
        if let Some(head) = parse(&bytes, key)
            && newest.as_ref().is_none_or(|(seq, _)| *seq < head.seq)
        {
            newest = Some((head.seq, String::from_utf8_lossy(&bytes).trim_end_matches(' ').to_owned()));
        }
    }
    Ok(newest.map(|(_, text)| text))
}

/// The heads in a text that was kept elsewhere, in its order; `None` for one that the key did not sign.
#[must_use]
pub fn kept(text: &str, key: &PublicKey) -> Vec<Option<Head>> {
    let beginnings = text.match_indices(TITLE).map(|(at, _)| at);
    beginnings.map(|at| parse(&text.as_bytes()[at..], key)).collect()
}

/// Whether a text holds a head at all, whoever signed it.
#[must_use]
pub fn is_in(text: &str) -> bool {
    text.contains(TITLE)
}

fn slot(file: &File, at: u64, key: &PublicKey) -> io::Result<Option<Head>> {
    let mut bytes = [0; SLOT_LEN];
    match file.read_exact_at(&mut bytes, at) {
        Ok(()) => Ok(parse(&bytes, key)),
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(e) => Err(e),
    }
}

fn body(head: &Head) -> String {
    format!("{TITLE}\nseq {}\nhash {}\ntime {}\n", head.seq.0, hex(&head.hash), head.wall.0)
}

fn parse(bytes: &[u8], key: &PublicKey) -> Option<Head> {
    let text = std::str::from_utf8(bytes).ok()?;
    let mut lines = text.split('\n');
    let mut field = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ').map(str::to_owned);
    field("interlock").filter(|rest| TITLE.strip_prefix("interlock ") == Some(rest))?;
    let head = Head {
        seq: Seq(field("seq")?.parse().ok()?),
        hash: unhex(&field("hash")?)?,
        wall: Wall(field("time")?.parse().ok()?),
    };
    let signature = unhex(&field("signature")?)?;
    // The signature is over the text as we would write it: one head has one form.
    key.signed(body(&head).as_bytes(), &signature).then_some(head)
}

/// A signed head, as it stands in its sector.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Slot([u8; SLOT_LEN]);

impl Slot {
    pub(super) fn signed(key: &Key, head: &Head) -> Slot {
        let body = body(head);
        let text = format!("{body}signature {}\n", hex(&key.sign(body.as_bytes())));
        let mut slot = [b' '; SLOT_LEN];
        // Title, three numbers and two hashes are at most 340 bytes.
        slot[..text.len()].copy_from_slice(text.as_bytes());
        Slot(slot)
    }
}

/// The head file, open for writing.
#[derive(Debug)]
pub struct HeadFile {
    file: File,
    next: usize,
    /// Neither slot holds a head yet: the next write fills both, so that an empty slot is never a sign of damage.
    blank: bool,
}

impl HeadFile {
    /// Opens the head file of a log directory, or makes it. What stands in it stays until the next [`HeadFile::write`]:
    /// a start must not sign what it found before its boot row has told of it. A log that is `fresh` begins with the
    /// head of nothing; one that has rows and no head begins without one.
    ///
    /// # Errors
    /// When it cannot be made, read, written or synced.
    pub fn open(evidence: &Path, key: &Key, fresh: bool) -> io::Result<HeadFile> {
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o640).open(path(evidence))?;
        if file.metadata()?.len() != FILE_LEN as u64 {
            let mut heads = HeadFile { file, next: 0, blank: true };
            // Real blocks, not a hole: later writes must need no room on a full disk.
            heads.file.write_all_at(&[b' '; FILE_LEN], 0)?;
            heads.file.set_len(FILE_LEN as u64)?;
            if fresh {
                heads.write(key, &NOTHING)?;
            }
            heads.sync()?;
            File::open(evidence)?.sync_all()?;
            return Ok(heads);
        }
        let public = key.public();
        let [first, second] = [slot(&file, SLOT_AT[0], &public)?, slot(&file, SLOT_AT[1], &public)?];
        // The damaged one is the next to be written, or else the older one.
        let next = usize::from(first.map(|head| head.seq) > second.map(|head| head.seq));
        Ok(HeadFile { file, next, blank: first.or(second).is_none() })
    }

    /// Signs `head` and writes it into the older slot.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn write(&mut self, key: &Key, head: &Head) -> io::Result<()> {
        self.put(&Slot::signed(key, head))
    }

    /// Writes a signed head into the older slot.
    ///
    /// # Errors
    /// When the disk refuses.
    pub(super) fn put(&mut self, slot: &Slot) -> io::Result<()> {
        if self.blank {
            self.file.write_all_at(&slot.0, SLOT_AT[1 - self.next])?;
            self.blank = false;
        }
        self.file.write_all_at(&slot.0, SLOT_AT[self.next])?;
        self.next = 1 - self.next;
        Ok(())
    }

    /// Forces it to the disk.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

/// What stands before the first row.
pub const NOTHING: Head = Head { seq: Seq(0), hash: START, wall: Wall(0) };

#[cfg(test)]
mod tests {
    use super::*;

    fn fixture() -> (tempfile::TempDir, Key, HeadFile) {
        let dir = tempfile::tempdir().unwrap();
        let key = Key::of_state(dir.path()).unwrap();
        let file = HeadFile::open(dir.path(), &key, true).unwrap();
        (dir, key, file)
    }

    fn head(seq: u64) -> Head {
        Head { seq: Seq(seq), hash: [7; 32], wall: Wall(1_764_500_000_000) }
    }

    #[test]
    fn the_newest_head_is_read_back() {
        let (dir, key, mut file) = fixture();
        assert_eq!(read(dir.path(), &key.public()).unwrap(), Heads::Whole(NOTHING));
        for seq in 1..5 {
            file.write(&key, &head(seq)).unwrap();
            assert_eq!(read(dir.path(), &key.public()).unwrap(), Heads::Whole(head(seq)));
        }
        assert_eq!(std::fs::metadata(path(dir.path())).unwrap().len(), FILE_LEN as u64);
    }

    #[test]
    fn a_head_that_was_carried_off_is_read_back_and_one_that_was_changed_is_none() {
        let (dir, key, mut file) = fixture();
        assert_eq!(
            text(dir.path(), &key.public()).unwrap().map(|text| kept(&text, &key.public())),
            Some(vec![Some(NOTHING)])
        );
        file.write(&key, &head(7)).unwrap();
        file.write(&key, &head(8)).unwrap();
        let carried = text(dir.path(), &key.public()).unwrap().unwrap();
        let two = format!("{carried}\n{}", carried.replace("seq 8", "seq 9"));
        assert_eq!(kept(&two, &key.public()), [Some(head(8)), None]);
        assert_eq!((is_in(&two), is_in("x"), kept("x", &key.public())), (true, false, vec![]));
    }

    #[test]
    fn opening_signs_nothing_and_goes_on_with_the_older_slot() {
        let (dir, key, mut file) = fixture();
        for seq in 1..6 {
            file.write(&key, &head(seq)).unwrap();
            let before = std::fs::read(path(dir.path())).unwrap();
            file = HeadFile::open(dir.path(), &key, false).unwrap();
            assert_eq!(std::fs::read(path(dir.path())).unwrap(), before);
            assert_eq!(slot(&file.file, SLOT_AT[1 - file.next], &key.public()).unwrap(), Some(head(seq)));
        }
        std::fs::remove_file(path(dir.path())).unwrap();
        HeadFile::open(dir.path(), &key, false).unwrap();
        assert_eq!(read(dir.path(), &key.public()).unwrap(), Heads::None);
    }

    #[test]
    fn the_largest_head_fits_its_slot() {
        let (dir, key, mut file) = fixture();
        let largest = Head { seq: Seq(u64::MAX), hash: [255; 32], wall: Wall(i64::MIN) };
        file.write(&key, &largest).unwrap();
        assert_eq!(read(dir.path(), &key.public()).unwrap(), Heads::Whole(largest));
    }

    #[test]
    fn every_flipped_bit_of_a_slot_leaves_the_other_one() {
        let (dir, key, mut file) = fixture();
        file.write(&key, &head(1)).unwrap();
        file.write(&key, &head(2)).unwrap();
        let whole = std::fs::read(path(dir.path())).unwrap();
        // The second write after the beginning went into the first slot.
        let text_len = whole[..SLOT_LEN].iter().rposition(|b| *b == b'\n').unwrap() + 1;
        for byte in 0..text_len - 1 {
            let mut damaged = whole.clone();
            damaged[byte] ^= 1 << (byte % 8);
            std::fs::write(path(dir.path()), &damaged).unwrap();
            assert_eq!(read(dir.path(), &key.public()).unwrap(), Heads::OneDamaged(head(1)), "byte {byte}");
        }
    }

    #[test]
    fn a_head_of_another_key_is_no_head() {
        let (dir, _key, _file) = fixture();
        let other = Key::of_state(tempfile::tempdir().unwrap().path()).unwrap();
        assert_eq!(read(dir.path(), &other.public()).unwrap(), Heads::None);
    }
}

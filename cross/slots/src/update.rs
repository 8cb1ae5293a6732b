//! An update: a signed slot file into the slot that does not run.
//!
//! Everything is held against label and signature before the first byte is written, the slot is closed to the loader
//! while it is half written, and what was written is read back before it may be started. The label is written last.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

use ed25519_dalek::VerifyingKey;

use crate::counters::{Counters, Slot};
use crate::label::{BLOCK, Label, Wrong};

/// What this box is and where its parts lie.
pub struct Here<'a> {
    /// The slot that runs.
    pub running: Slot,
    /// The label of the slot that runs, or of what the box was made as.
    pub board: &'a str,
    /// As `uname -m` says it.
    pub machine: &'a str,
    /// The keys of those who may make updates.
    pub keys: &'a [VerifyingKey],
    /// The loader's environment block.
    pub counters: &'a Path,
    /// The partition of the other slot.
    pub other: &'a Path,
}

/// Why there is no update.
#[derive(Debug, PartialEq, Eq)]
pub enum NoUpdate {
    /// The file is not taken; nothing was changed.
    File(Wrong),
    /// The partition is too small; nothing was changed.
    TooLarge { bytes: u64, room: u64 },
    /// Writing went wrong; the slot that runs stays the one that is started.
    Writing(String),
    /// What was written reads otherwise; the slot that runs stays the one that is started.
    ReadBack(Wrong),
}

impl std::fmt::Display for NoUpdate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NoUpdate::File(why) => write!(f, "update file: {why}; nothing was changed"),
            NoUpdate::TooLarge { bytes, room } => {
                write!(f, "update file: {bytes} bytes, the slot has {room}; nothing was changed")
            }
            NoUpdate::Writing(why) => write!(f, "writing the other slot: {why}; the running slot stays the first"),
            NoUpdate::ReadBack(why) => write!(f, "the other slot reads back {why}; the running slot stays the first"),
        }
    }
}

impl std::error::Error for NoUpdate {}

/// Puts the file into the other slot, which is tried at the next start. Gives back what it is.
pub fn update(here: &Here<'_>, file: &Path) -> Result<Label, NoUpdate> {
    let mut from = File::open(file).map_err(|why| NoUpdate::File(why.into()))?;
    let label = judged(here, &mut from).map_err(NoUpdate::File)?;
    let writing = |why: io::Error| NoUpdate::Writing(why.to_string());
    let mut to = File::options().read(true).write(true).open(here.other).map_err(writing)?;
    let room = to.seek(SeekFrom::End(0)).map_err(writing)?;
    let whole = label.bytes.next_multiple_of(BLOCK) + BLOCK;
    if whole > room {
        return Err(NoUpdate::TooLarge { bytes: whole, room });
    }
    let mut counters = Counters::read(here.counters).unwrap_or_default();
    counters.close(here.running.other());
    counters.write(here.counters).map_err(writing)?;

    copy(&mut from, &mut to, label.bytes).map_err(writing)?;
    to.sync_all().map_err(writing)?;
    // Closed first: with its last handle, a block device forgets what is cached, which is not what lies there.
    drop(to);
    let mut back = File::open(here.other).map_err(writing)?;
    is_there(&label, &mut back).map_err(NoUpdate::ReadBack)?;

    counters.try_out(here.running.other());
    counters.write(here.counters).map_err(writing)?;
    Ok(label)
}

fn judged(here: &Here<'_>, from: &mut File) -> Result<Label, Wrong> {
    let (label, signature) = Label::read(from)?;
    label.signed_by(signature.as_ref(), here.keys)?;
    if (label.board.as_str(), label.machine.as_str()) != (here.board, here.machine) {
        let said = format!("{} ({})", label.board, label.machine);
        return Err(Wrong::OtherBoard { said, here: format!("{} ({})", here.board, here.machine) });
    }
    label.hold_against(from)?;
    Ok(label)
}

/// What was written is what was judged: the file may have become another one in between.
fn is_there(judged: &Label, back: &mut File) -> Result<(), Wrong> {
    let (read, _) = Label::read(back)?;
    if read != *judged {
        return Err(Wrong::Stranger);
    }
    judged.hold_against(back)
}

/// An old label must not stand behind a new image: the image's start, which says where the label is, is cleared first
/// and written last.
fn copy(from: &mut File, to: &mut File, bytes: u64) -> io::Result<()> {
    let mut start = vec![0_u8; BLOCK as usize];
    to.seek(SeekFrom::Start(0))?;
    to.write_all(&start)?;
    to.sync_all()?;
    from.seek(SeekFrom::Start(0))?;
    from.read_exact(&mut start)?;
    io::copy(&mut from.take(bytes.next_multiple_of(BLOCK)), to)?;
    to.sync_all()?;
    to.seek(SeekFrom::Start(0))?;
    to.write_all(&start)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::examples;

    struct Box_ {
        folder: std::path::PathBuf,
        keys: Vec<VerifyingKey>,
    }

    impl Box_ {
        fn new(name: &str, room: u64) -> Box_ {
            let folder = examples::folder(name);
            File::create(folder.join("b")).and_then(|file| file.set_len(room)).expect("a slot");
            Counters::default().write(&folder.join("grubenv")).expect("an environment");
            Box_ { folder, keys: vec![examples::key().verifying_key()] }
        }

        fn update(&self, board: &str, machine: &str, file: &Path) -> Result<Label, NoUpdate> {
            let (counters, other) = (self.folder.join("grubenv"), self.folder.join("b"));
            let here = Here { running: Slot::A, board, machine, keys: &self.keys, counters: &counters, other: &other };
            update(&here, file)
        }

        fn counters(&self) -> Counters {
            Counters::read(&self.folder.join("grubenv")).expect("an environment")
        }
    }

    #[test]
    fn a_good_file_is_written_and_tried() {
        let (_, label, _) = examples::slot_at("good.slot", 9000);
        let here = Box_::new("good", 1 << 20);
        assert_eq!(here.update("generic-arm64", "aarch64", &examples::path("good.slot")), Ok(label.clone()));
        let now = here.counters();
        assert_eq!((now.first, now.trial, now.left(Slot::B)), (Slot::B, Some(Slot::B), 2));
        let mut written = File::open(here.folder.join("b")).expect("the slot");
        assert_eq!(Label::read(&mut written).map(|(read, _)| read), Ok(label.clone()));
        assert_eq!(label.hold_against(&mut written), Ok(()));
    }

    #[test]
    fn what_was_judged_is_what_must_be_there() {
        let (mut file, label, _) = examples::slot(9000);
        assert_eq!(is_there(&label, &mut file), Ok(()));
        // Whole by itself, and another one.
        let (mut other, ..) = examples::slot(9001);
        assert_eq!(is_there(&label, &mut other), Err(Wrong::Stranger));
        examples::flip(&mut file, 8000);
        assert!(matches!(is_there(&label, &mut file), Err(Wrong::Damaged { .. })));
    }

    #[test]
    fn a_file_that_is_not_taken_changes_nothing() {
        let (_, label, _) = examples::slot_at("refused.slot", 9000);
        let file = examples::path("refused.slot");
        let here = Box_::new("refused", 1 << 20);
        let small = Box_::new("small", 4096);
        let other = |board: &str, machine: &str| here.update(board, machine, &file).expect_err(board).to_string();
        assert!(other("phytium", "aarch64").contains("made for generic-arm64 (aarch64); this box is phytium"));
        assert!(other("generic-arm64", "x86_64").contains("this box is generic-arm64 (x86_64)"));
        assert_eq!(
            small.update("generic-arm64", "aarch64", &file),
            Err(NoUpdate::TooLarge { bytes: label.bytes.next_multiple_of(BLOCK) + BLOCK, room: 4096 })
        );
        let (mut open, ..) = examples::slot_at("flipped.slot", 9000);
        examples::flip(&mut open, 8000);
        let why = here.update("generic-arm64", "aarch64", &examples::path("flipped.slot")).expect_err("flipped");
        assert!(matches!(why, NoUpdate::File(Wrong::Damaged { .. })), "{why}");
        assert_eq!((here.counters(), small.counters()), (Counters::default(), Counters::default()));
    }
}

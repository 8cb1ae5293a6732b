//! What the loader and the running system tell each other: which slot comes first, and how many starts each has left.
//!
//! It is GRUB's environment block: 1,024 bytes of `name=value` lines, padded with `#`. GRUB counts down before it hands
//! over, the health gate fills up again. The block is written over in place and all that counts lies in its
//! first sector, so that a power cut leaves the old block or the new one.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// GRUB's size of an environment block; it writes no other.
const BLOCK: usize = 1024;

const HEAD: &str = "# GRUB Environment Block\n";

/// A sector is written whole or not at all.
const SECTOR: usize = 512;

/// How many starts in a row a slot may have without the gate's word. The loader's script counts down from this.
pub const TRIES: u8 = 3;

/// How many starts a slot on trial has: one, and one more for a plug that is pulled meanwhile.
pub const TRIAL_TRIES: u8 = 2;

/// One of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slot {
    /// The first partition for a root.
    A,
    /// The second one.
    B,
}

impl Slot {
    /// Its name in the environment, on the kernel's command line and in the partition table.
    pub fn letter(self) -> char {
        match self {
            Slot::A => 'a',
            Slot::B => 'b',
        }
    }

    /// The one that is not this one.
    pub fn other(self) -> Slot {
        match self {
            Slot::A => Slot::B,
            Slot::B => Slot::A,
        }
    }

    /// The slot of that name.
    pub fn named(name: &str) -> Option<Slot> {
        match name {
            "a" => Some(Slot::A),
            "b" => Some(Slot::B),
            _ => None,
        }
    }
}

/// The block's content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counters {
    /// The slot that is tried first.
    pub first: Slot,
    left: [u8; 2],
    /// The slot that has not yet been well for the first time after it was written.
    pub trial: Option<Slot>,
    /// The slot that was given up last, for people.
    pub failed: Option<Slot>,
}

impl Default for Counters {
    fn default() -> Counters {
        Counters { first: Slot::A, left: [TRIES; 2], trial: None, failed: None }
    }
}

impl Counters {
    /// The starts that a slot has left.
    pub fn left(&self, slot: Slot) -> u8 {
        self.left[slot as usize]
    }

    /// The next start is with this slot; it has to prove itself.
    pub fn try_out(&mut self, slot: Slot) {
        self.first = slot;
        self.left[slot as usize] = TRIAL_TRIES;
        self.trial = Some(slot);
        self.failed = self.failed.filter(|failed| *failed != slot);
    }

    /// This slot is not to be started: it is about to be written.
    pub fn close(&mut self, slot: Slot) {
        self.first = slot.other();
        self.left[slot as usize] = 0;
        self.trial = self.trial.filter(|trial| *trial != slot);
    }

    /// The system runs from this slot and it is well. Gives back the slot that was given up on the way here.
    pub fn well(&mut self, slot: Slot) -> Option<Slot> {
        let given_up = (self.first != slot).then(|| slot.other());
        self.left[slot as usize] = TRIES;
        self.first = slot;
        self.trial = None;
        self.failed = given_up.or(self.failed.filter(|failed| *failed != slot));
        given_up
    }

    /// What the file says; what cannot be read is what the loader takes then, which is the default.
    pub fn read(file: &Path) -> io::Result<Counters> {
        Ok(Counters::parse(&String::from_utf8_lossy(&fs::read(file)?)))
    }

    /// Writes over the file in place, so that the loader finds it in the same sectors.
    pub fn write(&self, file: &Path) -> io::Result<()> {
        let mut open = File::options().write(true).create(true).truncate(false).open(file)?;
        open.write_all(&self.block())?;
        open.set_len(BLOCK as u64)?;
        open.sync_all()
    }

    fn parse(text: &str) -> Counters {
        let mut counters = Counters::default();
        let Some(text) = text.strip_prefix(HEAD) else { return counters };
        for (name, value) in text.lines().filter_map(|line| line.split_once('=')) {
            let tries = || value.parse().unwrap_or(TRIES).min(TRIES);
            match name {
                "first" => counters.first = Slot::named(value).unwrap_or(Slot::A),
                "a_left" => counters.left[0] = tries(),
                "b_left" => counters.left[1] = tries(),
                "trial" => counters.trial = Slot::named(value),
                "failed" => counters.failed = Slot::named(value),
                _ => {}
            }
        }
        counters
    }

    fn block(&self) -> Vec<u8> {
        let name = |slot: Option<Slot>| slot.map(|slot| slot.letter().to_string()).unwrap_or_default();
        let text = format!(
            "{HEAD}first={}\na_left={}\nb_left={}\ntrial={}\nfailed={}\n",
            self.first.letter(),
            self.left[0],
            self.left[1],
            name(self.trial),
            name(self.failed)
        );
        debug_assert!(text.len() <= SECTOR, "all that counts lies in one sector");
        let mut block = text.into_bytes();
        block.resize(BLOCK, b'#');
        block
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(first: Slot, left: [u8; 2], trial: Option<Slot>, failed: Option<Slot>) -> Counters {
        Counters { first, left, trial, failed }
    }

    #[test]
    fn the_block_is_read_as_it_was_written() {
        for one in [Counters::default(), counters(Slot::B, [0, 2], Some(Slot::B), Some(Slot::A))] {
            let block = one.block();
            assert_eq!(block.len(), 1024);
            assert!(block[SECTOR..].iter().all(|byte| *byte == b'#'), "one sector holds it");
            assert_eq!(Counters::parse(&String::from_utf8_lossy(&block)), one);
        }
    }

    #[test]
    fn what_cannot_be_read_is_what_the_loader_takes_then() {
        for text in ["", "first=b\n", "# GRUB Environment Block\nfirst=x\na_left=99\nb_left=-1\n\u{0}"] {
            assert_eq!(Counters::parse(text), Counters::default(), "{text:?}");
        }
    }

    #[test]
    fn an_update_is_tried_and_kept_or_given_up() {
        let mut now = Counters::default();
        now.close(Slot::B);
        assert_eq!(now, counters(Slot::A, [3, 0], None, None));
        now.try_out(Slot::B);
        assert_eq!(now, counters(Slot::B, [3, 2], Some(Slot::B), None));
        let mut kept = now.clone();
        assert_eq!(kept.well(Slot::B), None);
        assert_eq!(kept, counters(Slot::B, [3, 3], None, None));
        // The loader has used up its tries and has come back.
        now.left = [2, 0];
        assert_eq!(now.well(Slot::A), Some(Slot::B));
        assert_eq!(now, counters(Slot::A, [3, 0], None, Some(Slot::B)));
        // What failed stays told until it is well, or is written anew.
        assert_eq!(now.well(Slot::A), None);
        assert_eq!(now.failed, Some(Slot::B));
        now.try_out(Slot::B);
        assert_eq!(now.failed, None);
    }

    #[test]
    fn a_cut_while_the_other_slot_is_written_starts_the_old_one() {
        let mut now = counters(Slot::B, [3, 3], Some(Slot::B), None);
        now.close(Slot::A);
        assert_eq!((now.first, now.left(Slot::A), now.left(Slot::B)), (Slot::B, 0, 3));
    }
}

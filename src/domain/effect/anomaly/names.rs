//! Names and pairs as small numbers, in the order in which they come.
//!
//! A tree would cost some twenty cache misses for each of ten million names, so this is a table of hashes. It is only
//! looked into, never walked through: what comes out does not depend on the hash, whose key is drawn anew for each
//! table, so that nobody can write a history that makes it slow.

use std::hash::{BuildHasher as _, Hash, RandomState};

/// Where a hash leads to.
#[derive(Debug, Clone)]
struct Index {
    key: RandomState,
    /// Part of the hash, and the number plus one; 0 for an empty place. A power of two of them.
    slots: Vec<(u32, u32)>,
    len: usize,
}

impl Index {
    fn new() -> Index {
        Index { key: RandomState::new(), slots: vec![(0, 0); 16], len: 0 }
    }

    #[expect(clippy::cast_possible_truncation, reason = "a part of the hash is meant")]
    fn hash(&self, what: &(impl Hash + ?Sized)) -> u32 {
        self.key.hash_one(what) as u32
    }

    /// The number that fits, or the free place.
    fn look(&self, hash: u32, fits: impl Fn(u32) -> bool) -> Result<u32, usize> {
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        loop {
            match self.slots[at] {
                (_, 0) => return Err(at),
                (other, number) if other == hash && fits(number - 1) => return Ok(number - 1),
                (..) => at = (at + 1) & mask,
            }
        }
    }

    fn put(&mut self, at: usize, hash: u32, number: u32) {
        self.slots[at] = (hash, number + 1);
        self.len += 1;
        if self.len * 4 > self.slots.len() * 3 {
            let old = std::mem::take(&mut self.slots);
            self.slots = vec![(0, 0); old.len() * 2];
            let mask = self.slots.len() - 1;
            for (hash, number) in old.into_iter().filter(|(_, number)| *number != 0) {
                let mut at = hash as usize & mask;
                while self.slots[at].1 != 0 {
                    at = (at + 1) & mask;
                }
                self.slots[at] = (hash, number);
            }
        }
    }
}

/// Names, numbered from 0.
#[derive(Debug, Clone)]
pub(super) struct Names {
    text: String,
    /// Where each name ends in `text`.
    ends: Vec<u32>,
    index: Index,
}

impl Names {
    pub(super) fn new() -> Names {
        Names { text: String::new(), ends: Vec::new(), index: Index::new() }
    }

    pub(super) fn name(&self, number: u32) -> &str {
        let number = number as usize;
        let from = if number == 0 { 0 } else { self.ends[number - 1] as usize };
        &self.text[from..self.ends[number] as usize]
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Bytes of all names together.
    pub(super) fn bytes(&self) -> usize {
        self.text.len()
    }

    pub(super) fn find(&self, name: &str) -> Option<u32> {
        self.index.look(self.index.hash(name), |number| self.name(number) == name).ok()
    }

    /// A number for a new name; `None` when it has one. The caller bounds the text below `u32::MAX`.
    #[expect(clippy::cast_possible_truncation, reason = "the history bounds its text and its events below u32::MAX")]
    pub(super) fn add(&mut self, name: &str) -> Option<u32> {
        let hash = self.index.hash(name);
        let at = self.index.look(hash, |number| self.name(number) == name).err()?;
        let number = self.ends.len() as u32;
        self.text.push_str(name);
        self.ends.push(self.text.len() as u32);
        self.index.put(at, hash, number);
        Some(number)
    }

    /// The number of a name, a new one if it has none.
    pub(super) fn number(&mut self, name: &str) -> u32 {
        match self.find(name) {
            Some(number) => number,
            None => self.add(name).unwrap_or_default(),
        }
    }
}

/// Pairs of numbers, numbered from 0.
#[derive(Debug, Clone)]
pub(super) struct Pairs {
    pub(super) all: Vec<(u32, u32)>,
    index: Index,
}

impl Pairs {
    pub(super) fn new() -> Pairs {
        Pairs { all: Vec::new(), index: Index::new() }
    }

    /// The number of a pair, a new one if it has none.
    #[expect(clippy::cast_possible_truncation, reason = "the history bounds its events below u32::MAX")]
    pub(super) fn number(&mut self, pair: (u32, u32)) -> u32 {
        let hash = self.index.hash(&pair);
        match self.index.look(hash, |number| self.all[number as usize] == pair) {
            Ok(number) => number,
            Err(at) => {
                let number = self.all.len() as u32;
                self.all.push(pair);
                self.index.put(at, hash, number);
                number
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_keeps_its_number_while_the_table_grows() {
        let mut names = Names::new();
        for number in 0..5000 {
            assert_eq!(names.add(&format!("n{number}")), Some(number));
        }
        assert_eq!(names.add("n7"), None);
        assert_eq!((names.find("n4999"), names.find("n5000"), names.number("n12")), (Some(4999), None, 12));
        assert_eq!((names.name(0), names.name(77), names.len()), ("n0", "n77", 5000));
        assert_eq!(names.number(""), 5000);
        assert_eq!(names.find(""), Some(5000));
        let mut pairs = Pairs::new();
        for number in 0..3000 {
            assert_eq!(pairs.number((number % 3, number)), number);
        }
        assert_eq!(pairs.number((1, 1)), 1);
    }
}

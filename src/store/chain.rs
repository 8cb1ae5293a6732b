//! The two ties of the log: a chain through every row, and a tree over all of them.
//!
//! A row's hash is `H(0x00 || previous hash || canonical row)`. That is also the leaf hash of RFC 6962 for the leaf
//! `previous || canonical`, so the same hashes are the leaves of a Merkle tree whose root a checkpoint signs. The
//! chain tells which row does not fit; the tree lets an exported checkpoint of 100 bytes vouch for a million rows.

use sha2::{Digest, Sha256};
use sm3::Sm3;

/// A hash of the log.
pub type Hash = [u8; 32];

/// What stands before the first row.
pub const START: Hash = [0; 32];

/// Which hash a log uses; its id stands in the header of every segment. A log keeps the one that it began with: a tree
/// of two hashes would be nobody's standard. One that asks for what this build does not have is refused, not misread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Algorithm {
    /// SHA-256 (FIPS 180-4).
    #[default]
    Sha256,
    /// SM3 (GB/T 32905-2016), where a national standard is asked for. In software, and several times slower than
    /// SHA-256 on processors that have instructions for that.
    Sm3,
}

impl Algorithm {
    /// All of them.
    pub const ALL: [Algorithm; 2] = [Algorithm::Sha256, Algorithm::Sm3];

    /// The id in the header.
    #[must_use]
    pub fn id(self) -> &'static str {
        match self {
            Algorithm::Sha256 => "sha256",
            Algorithm::Sm3 => "sm3",
        }
    }

    /// The algorithm of an id, if this build has it.
    #[must_use]
    pub fn of_id(id: &str) -> Option<Algorithm> {
        Algorithm::ALL.into_iter().find(|algorithm| algorithm.id() == id)
    }

    /// The hash of a row that follows `previous`.
    #[must_use]
    pub fn row(self, previous: &Hash, canonical: &[u8]) -> Hash {
        self.of([&[0x00], previous, canonical])
    }

    fn node(self, left: &Hash, right: &Hash) -> Hash {
        self.of([&[0x01], left, right])
    }

    fn nothing(self) -> Hash {
        self.of([&[], &[], &[]])
    }

    fn of(self, parts: [&[u8]; 3]) -> Hash {
        match self {
            Algorithm::Sha256 => digest::<Sha256>(parts),
            Algorithm::Sm3 => digest::<Sm3>(parts),
        }
    }
}

fn digest<D: Digest>(parts: [&[u8]; 3]) -> Hash
where
    Hash: From<sha2::digest::Output<D>>,
{
    parts.into_iter().fold(D::new(), |hash, part| hash.chain_update(part)).finalize().into()
}

/// The right edge of the Merkle tree (RFC 6962, section 2.1) over all rows so far: the roots of its full subtrees,
/// largest first. At most 64 hashes stand for any number of rows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tree {
    size: u64,
    peaks: Vec<Hash>,
}

impl Tree {
    /// A tree of `size` leaves with these peaks; `None` when a tree of that size has another number of them.
    #[must_use]
    pub fn from_parts(size: u64, peaks: Vec<Hash>) -> Option<Tree> {
        (usize::try_from(size.count_ones()) == Ok(peaks.len())).then_some(Tree { size, peaks })
    }

    /// How many leaves there are.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The roots of the full subtrees, largest first.
    #[must_use]
    pub fn peaks(&self) -> &[Hash] {
        &self.peaks
    }

    /// Adds the leaf with this hash.
    pub fn push(&mut self, algorithm: Algorithm, leaf: Hash) {
        let mut node = leaf;
        // Each trailing one in the size is a full subtree that this leaf completes to a larger one.
        for _ in 0..self.size.trailing_ones() {
            let Some(left) = self.peaks.pop() else { break };
            node = algorithm.node(&left, &node);
        }
        self.peaks.push(node);
        self.size += 1;
    }

    /// The root.
    #[must_use]
    pub fn root(&self, algorithm: Algorithm) -> Hash {
        let mut peaks = self.peaks.iter().rev();
        let Some(last) = peaks.next() else { return algorithm.nothing() };
        peaks.fold(*last, |right, left| algorithm.node(left, &right))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::hex;

    /// The definition in RFC 6962, section 2.1, word for word.
    fn mth(leaves: &[Hash]) -> Hash {
        match leaves {
            [] => Sha256::digest([]).into(),
            [leaf] => *leaf,
            _ => {
                let k = leaves.len().next_power_of_two() / 2;
                Algorithm::Sha256.node(&mth(&leaves[..k]), &mth(&leaves[k..]))
            }
        }
    }

    #[test]
    fn the_root_is_that_of_rfc_6962() {
        let leaves: Vec<Hash> = (0..40u8).map(|i| Algorithm::Sha256.row(&START, &[i])).collect();
        let mut tree = Tree::default();
        for (i, leaf) in leaves.iter().enumerate() {
            assert_eq!(tree.root(Algorithm::Sha256), mth(&leaves[..i]), "{i} leaves");
            tree.push(Algorithm::Sha256, *leaf);
        }
        assert_eq!(Tree::from_parts(tree.size(), tree.peaks().to_vec()), Some(tree));
        assert_eq!(Tree::from_parts(3, vec![START]), None);
    }

    #[test]
    fn the_tree_of_nothing_has_the_root_of_nothing() {
        let root = hex(&Tree::default().root(Algorithm::Sha256));
        assert_eq!(root, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    }

    #[test]
    fn a_hash_that_this_build_lacks_is_not_taken_for_another() {
        assert_eq!(Algorithm::of_id("sha256"), Some(Algorithm::Sha256));
        assert_eq!(Algorithm::of_id("sm3"), Some(Algorithm::Sm3));
        assert_eq!(Algorithm::of_id("sha3-256"), None);
        // GB/T 32905-2016, annex A, example 1.
        assert_eq!(
            hex(&Algorithm::Sm3.of([b"a", b"b", b"c"])),
            "66c7f0f462eeedd9d1f2d46bdc10e4e24167c4875cf2f7a2297da02b8f4ba8e0"
        );
        for algorithm in Algorithm::ALL {
            assert_ne!(algorithm.row(&START, b"x"), algorithm.row(&[1; 32], b"x"));
            assert_ne!(algorithm.row(&START, b"x"), algorithm.node(&START, &START));
        }
    }
}

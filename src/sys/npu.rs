//! The device nodes of an Ascend accelerator.

use std::fs::OpenOptions;
use std::path::Path;

/// Cards of one box, at most.
const CARDS_MAX: usize = 16;
/// The nodes that each program needs besides those of the cards.
const SHARED: [&str; 3] = ["/dev/davinci_manager", "/dev/hisi_hdc", "/dev/devmm_svm"];

/// A node that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Where.
    pub path: String,
    /// A card, and not what all of them share.
    pub is_card: bool,
    /// This process may not open it.
    pub refused: bool,
}

/// Opens each node that is there, and closes it again.
#[must_use]
pub fn nodes() -> Vec<Node> {
    let cards = (0..CARDS_MAX).map(|card| (format!("/dev/davinci{card}"), true));
    let shared = SHARED.iter().map(|path| ((*path).to_owned(), false));
    let there = cards.chain(shared).filter(|(path, _)| Path::new(path).exists());
    there
        .map(|(path, is_card)| {
            let refused = OpenOptions::new().read(true).write(true).open(&path).is_err();
            Node { path, is_card, refused }
        })
        .collect()
}

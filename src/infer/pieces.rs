//! From an utterance to the numbers that a sentence encoder sees: pieces of a vocabulary, the likeliest cutting.
//!
//! The vocabulary is a file beside the model, cut out of the encoder's own (`models/train/sentences/build.py`, which does
//! the very same). An encoder that is asked with other numbers than it was trained with answers nonsense with confidence,
//! so a test holds both to the sentences that the script wrote.

use std::cmp::Ordering;

/// Pieces of one sentence, with its beginning and its end; the rest of a longer one is not looked at. The script cuts
/// there too.
pub(super) const PIECES_MAX: usize = 64;
/// The numbers of a sentence's beginning, its end, and what the vocabulary does not have.
const BEGIN: i32 = 1;
const END: i32 = 2;
const UNKNOWN: i32 = 0;
/// Stands before the first character.
const EDGE: char = '▁';
/// The longest piece of any vocabulary that is read, in bytes.
const PIECE_BYTES_MAX: usize = 64;

struct Piece {
    start: u32,
    len: u8,
    number: i32,
    score: f32,
}

/// A vocabulary.
pub(super) struct Pieces {
    text: String,
    /// Sorted by their text.
    all: Vec<Piece>,
    longest: usize,
    /// What a character costs that no piece begins with.
    unknown: f32,
}

impl Pieces {
    /// Reads `unknown<tab>SCORE`, then a line `NUMBER<tab>SCORE<tab>PIECE` for each piece.
    ///
    /// # Errors
    /// The first line that is not like that.
    pub(super) fn read(text: &str) -> Result<Pieces, String> {
        let mut lines = text.lines();
        let unknown = lines.next().and_then(|line| line.strip_prefix("unknown\t")?.parse().ok());
        let unknown: f32 = unknown.ok_or("line 1 is not `unknown`, a tab and a score")?;
        let mut kept = String::with_capacity(text.len());
        let mut all = Vec::new();
        for (at, line) in lines.enumerate() {
            let piece = |line: &str| {
                let mut fields = line.splitn(3, '\t');
                let (number, score) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
                let piece = fields.next().filter(|piece| !piece.is_empty() && piece.len() <= PIECE_BYTES_MAX)?;
                let (start, len) = (u32::try_from(kept.len()).ok()?, u8::try_from(piece.len()).ok()?);
                kept.push_str(piece);
                Some(Piece { start, len, number, score })
            };
            let mut piece = piece;
            all.push(piece(line).ok_or_else(|| format!("line {} is no number, score and piece", at + 2))?);
        }
        let mut pieces = Pieces { text: kept, all, longest: 0, unknown };
        let text = std::mem::take(&mut pieces.text);
        pieces.all.sort_by(|a, b| of(&text, a).cmp(of(&text, b)));
        pieces.longest = pieces.all.iter().map(|one| of(&text, one).chars().count()).max().unwrap_or(0);
        pieces.text = text;
        Ok(pieces)
    }

    /// The numbers of `text`, which is normal already (`command::utterance`): its likeliest cutting.
    #[must_use]
    pub(super) fn cut(&self, text: &str) -> Vec<i32> {
        if text.is_empty() {
            return vec![BEGIN, UNKNOWN, END];
        }
        let mut said = String::with_capacity(text.len() + EDGE.len_utf8());
        said.push(EDGE);
        said.push_str(text);
        let mut places: Vec<usize> = said.char_indices().map(|(at, _)| at).collect();
        places.push(said.len());
        let len = places.len() - 1;
        // The best way to each place: its score, where its last piece began, and that piece.
        let mut best = vec![(f32::MIN, 0, UNKNOWN); len + 1];
        best[0].0 = 0.0;
        for at in 0..len {
            let so_far = best[at].0;
            let mut single = false;
            for end in at + 1..=(at + self.longest).min(len) {
                if let Some(piece) = self.find(&said[places[at]..places[end]]) {
                    single |= end == at + 1;
                    if so_far + piece.score > best[end].0 {
                        best[end] = (so_far + piece.score, at, piece.number);
                    }
                }
            }
            if !single && so_far + self.unknown > best[at + 1].0 {
                best[at + 1] = (so_far + self.unknown, at, UNKNOWN);
            }
        }
        let mut numbers = Vec::new();
        let mut at = len;
        while at > 0 {
            numbers.push(best[at].2);
            at = best[at].1;
        }
        numbers.push(BEGIN);
        numbers.reverse();
        numbers.truncate(PIECES_MAX - 1);
        numbers.push(END);
        numbers
    }

    fn find(&self, text: &str) -> Option<&Piece> {
        let by_text = |piece: &Piece| -> Ordering { of(&self.text, piece).cmp(text) };
        self.all.binary_search_by(by_text).ok().map(|at| &self.all[at])
    }
}

fn of<'a>(text: &'a str, piece: &Piece) -> &'a str {
    &text[piece.start as usize..piece.start as usize + usize::from(piece.len)]
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str =
        "unknown\t-20\n3\t-2\t▁\n4\t-3\t启动\n5\t-6\t启\n6\t-6\t动\n7\t-4\t水泵\n8\t-9\t▁启\n9\t-5\t动水\n";

    fn check(text: &str, expected: &[i32]) {
        assert_eq!(Pieces::read(SMALL).expect("a vocabulary").cut(text), expected, "{text}");
    }

    #[test]
    fn the_likeliest_cutting_wins() {
        check("启动水泵", &[1, 3, 4, 7, 2]);
        check("启动", &[1, 3, 4, 2]);
        check("动水", &[1, 3, 9, 2]);
        // 泵 alone is in no piece.
        check("启泵", &[1, 3, 5, 0, 2]);
        check("", &[1, 0, 2]);
    }

    /// `models/train/sentences/tiny.py` wrote both files.
    #[test]
    fn it_cuts_as_the_training_does() {
        let pieces = Pieces::read(include_str!("../../tests/data/encoder/pieces.tsv")).expect("a vocabulary");
        let cut = serde_json::from_str::<std::collections::BTreeMap<String, Vec<i32>>>(include_str!(
            "../../tests/data/encoder/cut.json"
        ));
        let cut = cut.expect("its vectors");
        assert!(cut.len() >= 10);
        for (text, expected) in cut {
            assert_eq!(pieces.cut(&text), expected, "{text}");
        }
    }

    #[test]
    fn a_long_sentence_ends_at_the_bound() {
        let cut = Pieces::read(SMALL).expect("a vocabulary").cut(&"启动".repeat(100));
        assert_eq!((cut.len(), cut[0], cut[PIECES_MAX - 1]), (PIECES_MAX, BEGIN, END));
    }

    #[test]
    fn a_line_that_is_no_piece_is_named() {
        let refused = |text: &str| Pieces::read(text).err().unwrap_or_default();
        assert_eq!(refused(""), "line 1 is not `unknown`, a tab and a score");
        assert_eq!(refused("unknown\t-1\n3\t-2\t启\n4\tx\t动\n"), "line 3 is no number, score and piece");
        assert_eq!(refused("unknown\t-1\n3\t-2\t\n"), "line 2 is no number, score and piece");
    }
}

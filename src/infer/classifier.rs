//! The classifier: sentences in, labels with confidences out.
//!
//! There are two kinds, by their manifest: the small one takes hashed grams, a sentence encoder with a linear head takes
//! the pieces of a vocabulary that lies beside it. It loads nothing whose hash is not the one of its manifest: a file that
//! was cut short on a small flash, or swapped, would answer with confidence and nonsense. What was learned bends its head
//! (`domain::learn::head`) and nothing else of it.

use std::borrow::Cow;
use std::path::PathBuf;

use interlock_domain::command::grams::{GRAMS_MAX, grams};
use interlock_domain::command::resolution::Candidate;
use interlock_domain::command::understanding::Learned;
use interlock_domain::command::utterance;
use interlock_domain::learn::gate::Example;
use interlock_domain::learn::head::{self, Head, KEPT_MAX, Lesson, Seen, Unteachable};
use sha2::{Digest as _, Sha256};
use thiserror::Error;

use super::pieces::Pieces;
use super::runtime::{Given, Model, Provider, Running, RuntimeError, Takes};

/// Labels that are given back for one utterance.
const LABELS_MAX: usize = 5;
/// The longest model that is read, in bytes; ours has half a million, the sentence encoder seventy million.
const MODEL_BYTES_MAX: u64 = 128 << 20;

/// Where bytes are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bytes {
    /// In the program.
    Embedded(&'static [u8]),
    /// In a file, which is read when the model is loaded.
    File(PathBuf),
}

/// A model and what must be true of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// Its name in messages.
    pub name: String,
    /// The graph.
    pub model: Bytes,
    /// SHA-256 of the graph, in hexadecimal.
    pub model_sha256: String,
    /// The labels, a line each.
    pub labels: Bytes,
    /// SHA-256 of the labels.
    pub labels_sha256: String,
    /// The vocabulary of a sentence encoder and its SHA-256; none for a model that takes grams.
    pub pieces: Option<(Bytes, String)>,
}

impl Source {
    /// Holds every file against its hash, as loading does, without a runtime; gives the labels.
    ///
    /// # Errors
    /// Which file is not what it should be.
    pub fn checked(&self) -> Result<Vec<String>, ModelError> {
        checked(&self.model, &self.model_sha256, &self.name)?;
        if let Some((bytes, hash)) = &self.pieces {
            self.text(bytes, hash, "pieces")?;
        }
        self.checked_labels()
    }

    fn checked_labels(&self) -> Result<Vec<String>, ModelError> {
        Ok(self.text(&self.labels, &self.labels_sha256, "labels")?.lines().map(str::to_owned).collect())
    }

    fn text(&self, bytes: &Bytes, hash: &str, of: &str) -> Result<String, ModelError> {
        let read = checked(bytes, hash, &format!("the {of} of {}", self.name))?;
        let misfit = |_| ModelError::Misfit { name: self.name.clone(), fact: format!("its {of} are not UTF-8") };
        String::from_utf8(read.into_owned()).map_err(misfit)
    }
}

/// Sentences that were learned, and those that a head must leave as they are.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Course {
    /// A sentence and its command.
    pub taught: Vec<(String, String)>,
    /// Sentences; the head keeps the first [`KEPT_MAX`].
    pub kept: Vec<String>,
}

impl Course {
    /// What was learned, and sentences that are spread over `replay`; nothing where nothing was learned.
    #[must_use]
    pub fn of(learned: &Learned, replay: &[Example]) -> Course {
        let taught = learned.lessons();
        if taught.is_empty() {
            return Course::default();
        }
        // The set is sorted by kind.
        let apart = replay.len().div_ceil(KEPT_MAX).max(1);
        let kept = replay.iter().step_by(apart).map(|example| utterance::plain(&example.sentence));
        Course { taught, kept: kept.collect() }
    }
}

/// Why there is no classifier. The cascade goes on without it.
#[derive(Debug, Error)]
pub enum ModelError {
    /// A file cannot be read.
    #[error("{path}: {source}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// A file is longer than any model of ours.
    #[error("{path}: {bytes} bytes; {MODEL_BYTES_MAX} are read at most")]
    TooLong {
        /// The file.
        path: PathBuf,
        /// Its length.
        bytes: u64,
    },
    /// A file is not the one that the manifest speaks of.
    #[error("{name}: its SHA-256 is {found}, and the manifest says {expected}; it is not loaded")]
    WrongHash {
        /// What was read.
        name: String,
        /// The manifest's hash.
        expected: String,
        /// The file's.
        found: String,
    },
    /// ONNX Runtime is not there, or does not take the model.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// The model is not one of these classifiers.
    #[error("{name}: {fact}")]
    Misfit {
        /// The model.
        name: String,
        /// What does not fit.
        fact: String,
    },
}

impl ModelError {
    /// Whether only ONNX Runtime is missing: nothing is wrong with the model, and nothing was promised.
    #[must_use]
    pub fn is_only_missing_runtime(&self) -> bool {
        matches!(self, ModelError::Runtime(RuntimeError::NotFound))
    }
}

/// A classifier that is loaded.
pub struct Classifier {
    model: Model,
    /// The model's labels, then those that were learned.
    labels: Vec<String>,
    /// How many of them are the model's.
    own: usize,
    reader: Reader,
    /// What was learned, on top of the model's own head.
    head: Head,
}

/// How a sentence becomes numbers.
enum Reader {
    /// A table of so many rows, filled anew for each run.
    Grams {
        rows: usize,
        table: Vec<i32>,
    },
    Pieces(Pieces),
}

impl Classifier {
    /// Reads, checks and loads.
    ///
    /// # Errors
    /// Which file is not what it should be, or what ONNX Runtime says.
    pub fn load(source: &Source, provider: Provider) -> Result<Classifier, ModelError> {
        let misfit = |fact: String| ModelError::Misfit { name: source.name.clone(), fact };
        let labels = source.checked_labels()?;
        let pieces = match &source.pieces {
            Some((bytes, hash)) => Some(Pieces::read(&source.text(bytes, hash, "pieces")?).map_err(misfit)?),
            None => None,
        };
        let bytes = checked(&source.model, &source.model_sha256, &source.name)?;
        let model = Model::load(&bytes, provider)?;
        drop(bytes);
        let reader = match (model.takes(), pieces) {
            (Takes::Table { rows, columns: GRAMS_MAX }, None) if rows > 0 => {
                Reader::Grams { rows, table: vec![0; rows * GRAMS_MAX] }
            }
            (Takes::Pieces, Some(pieces)) => Reader::Pieces(pieces),
            (Takes::Table { columns, .. }, None) => {
                return Err(misfit(format!("it takes {columns} grams, and this build makes {GRAMS_MAX}")));
            }
            (Takes::Table { .. }, Some(_)) => {
                return Err(misfit("it takes a table, and its manifest names pieces".to_owned()));
            }
            (Takes::Pieces, None) => return Err(misfit("it takes pieces, and its manifest names none".to_owned())),
        };
        let own = labels.len();
        let mut classifier = Classifier { model, labels, own, reader, head: Head::default() };
        // One run before the first question: a graph that does not run, or has other labels, is found out now.
        classifier.see(&[""]).map_err(|error| misfit(error.to_string()))?;
        Ok(classifier)
    }

    /// What runs it.
    #[must_use]
    pub fn running(&self) -> &Running {
        self.model.running()
    }

    /// How many utterances one run takes.
    #[must_use]
    pub fn rows(&self) -> usize {
        match &self.reader {
            Reader::Grams { rows, .. } => *rows,
            Reader::Pieces(_) => 1,
        }
    }

    /// The labels of each utterance, best first; none for one that is too long to be a command. The texts are normal
    /// (`command::utterance`).
    ///
    /// # Errors
    /// When a run fails.
    pub fn classify(&mut self, asked: &[&str]) -> Result<Vec<Vec<Candidate>>, ModelError> {
        let seen = self.see(asked)?;
        Ok(seen
            .iter()
            .zip(asked)
            .map(|(seen, text)| match self.reader {
                Reader::Grams { .. } if grams(text).is_empty() => Vec::new(),
                Reader::Grams { .. } | Reader::Pieces(_) => best(&self.head.apply(seen), &self.labels),
            })
            .collect())
    }

    /// Begins again with the model's own head and teaches it `course`; gives a hash of what the head became. When it
    /// cannot be taught, the own head stays.
    ///
    /// # Errors
    /// When a run fails, or why no head could be taught.
    pub fn teach(&mut self, course: &Course) -> Result<Result<String, Unteachable>, ModelError> {
        self.head = Head::default();
        self.labels.truncate(self.own);
        if course.taught.is_empty() {
            return Ok(Ok(String::new()));
        }
        let (taught, kept) = head::bounded(&course.taught, &course.kept);
        let kept: Vec<&str> = kept.iter().map(String::as_str).collect();
        let kept = self.see(&kept)?;
        let texts: Vec<&str> = taught.iter().map(|(text, _)| text.as_str()).collect();
        let seen = self.see(&texts)?;
        let mut labels = self.labels.clone();
        let mut lessons = Vec::with_capacity(taught.len());
        for (seen, (_, command)) in seen.into_iter().zip(taught) {
            let known = labels.iter().position(|label| label == command);
            let label = known.unwrap_or_else(|| {
                labels.push(command.clone());
                labels.len() - 1
            });
            lessons.push(Lesson { seen, label });
        }
        Ok(Head::teach(&lessons, &kept).map(|head| {
            let bytes: Vec<u8> = head.numbers().flat_map(f32::to_le_bytes).collect();
            self.head = head;
            self.labels = labels;
            hex(&bytes)
        }))
    }

    /// What the model makes of each text.
    fn see(&mut self, texts: &[&str]) -> Result<Vec<Seen>, ModelError> {
        let mut all = Vec::with_capacity(texts.len());
        match &mut self.reader {
            Reader::Grams { rows, table } => {
                for part in texts.chunks(*rows) {
                    table.fill(0);
                    for (row, text) in table.chunks_mut(GRAMS_MAX).zip(part) {
                        for (cell, gram) in row.iter_mut().zip(grams(text)) {
                            *cell = gram;
                        }
                    }
                    all.extend(split(self.model.run(table)?, *rows).into_iter().take(part.len()));
                }
            }
            Reader::Pieces(pieces) => {
                for text in texts {
                    all.extend(split(self.model.run(&pieces.cut(text))?, 1));
                }
            }
        }
        if let Some(width) = all.first().map(|seen| seen.chances.len()).filter(|width| *width != self.own) {
            let fact = format!("{width} labels come out, and {} are named", self.own);
            return Err(ModelError::Misfit { name: "the model".to_owned(), fact });
        }
        Ok(all)
    }
}

/// A row for each utterance.
fn split(given: Given, rows: usize) -> Vec<Seen> {
    let (width, depth) = (given.chances.len() / rows, given.hidden.len() / rows);
    let row = |at: usize| Seen {
        chances: given.chances[at * width..(at + 1) * width].to_vec(),
        hidden: given.hidden[at * depth..(at + 1) * depth].to_vec(),
    };
    (0..rows).map(row).collect()
}

fn best(row: &[f32], labels: &[String]) -> Vec<Candidate> {
    let mut order: Vec<usize> = (0..row.len()).collect();
    order.sort_by(|a, b| row[*b].total_cmp(&row[*a]).then(a.cmp(b)));
    order
        .into_iter()
        .take(LABELS_MAX)
        .filter_map(|at| Some(Candidate { command: labels.get(at)?.clone(), confidence: row[at] }))
        .collect()
}

fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn checked(bytes: &Bytes, expected: &str, name: &str) -> Result<Cow<'static, [u8]>, ModelError> {
    let (bytes, name): (Cow<'static, [u8]>, String) = match bytes {
        Bytes::Embedded(bytes) => (Cow::Borrowed(bytes), name.to_owned()),
        Bytes::File(path) => {
            let unreadable = |source| ModelError::Unreadable { path: path.clone(), source };
            let length = std::fs::metadata(path).map_err(unreadable)?.len();
            if length > MODEL_BYTES_MAX {
                return Err(ModelError::TooLong { path: path.clone(), bytes: length });
            }
            (Cow::Owned(std::fs::read(path).map_err(unreadable)?), path.display().to_string())
        }
    };
    let found = hex(&bytes);
    if found != expected {
        return Err(ModelError::WrongHash { name, expected: expected.to_owned(), found });
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(model: Bytes, model_sha256: &str) -> String {
        let source = Source {
            name: "test.onnx".to_owned(),
            model,
            model_sha256: model_sha256.to_owned(),
            labels: Bytes::Embedded(b"none\n"),
            labels_sha256: hex(b"none\n"),
            pieces: None,
        };
        match Classifier::load(&source, Provider::Cpu) {
            Ok(_) => "loaded".to_owned(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn a_file_that_is_not_the_one_of_the_manifest_is_refused_by_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("cut.onnx");
        std::fs::write(&path, b"half a mod").expect("written");
        let shown = refused(Bytes::File(path.clone()), &hex(b"half a model"));
        assert!(shown.starts_with(&format!("{}: its SHA-256 is {}", path.display(), hex(b"half a mod"))), "{shown}");
        let gone = folder.path().join("gone.onnx");
        assert!(refused(Bytes::File(gone.clone()), "").starts_with(&gone.display().to_string()));
    }

    #[test]
    fn labels_come_best_first_and_a_tie_keeps_its_order() {
        let labels: Vec<String> = ["a", "b", "c"].map(str::to_owned).to_vec();
        let found = best(&[0.2, 0.4, 0.4], &labels);
        let order: Vec<(&str, f32)> = found.iter().map(|one| (one.command.as_str(), one.confidence)).collect();
        assert_eq!(order, [("b", 0.4), ("c", 0.4), ("a", 0.2)]);
    }
}

//! The classifier: hashed grams in, labels with confidences out.
//!
//! It loads nothing whose hash is not the one of its manifest: a file that was cut short on a small flash, or swapped,
//! would answer with confidence and nonsense.

use std::borrow::Cow;
use std::path::PathBuf;

use interlock_domain::command::grams::GRAMS_MAX;
use interlock_domain::command::resolution::Candidate;
use sha2::{Digest as _, Sha256};
use thiserror::Error;

use super::runtime::{Model, Provider, Running, RuntimeError};

/// Labels that are given back for one utterance.
const LABELS_MAX: usize = 5;
/// The longest model that is read, in bytes; ours has half a million.
const MODEL_BYTES_MAX: u64 = 64 << 20;

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
    labels: Vec<String>,
    table: Vec<i32>,
}

impl Classifier {
    /// Reads, checks and loads.
    ///
    /// # Errors
    /// Which file is not what it should be, or what ONNX Runtime says.
    pub fn load(source: &Source, provider: Provider) -> Result<Classifier, ModelError> {
        let labels = checked(&source.labels, &source.labels_sha256, &format!("the labels of {}", source.name))?;
        let bytes = checked(&source.model, &source.model_sha256, &source.name)?;
        let misfit = |fact: String| ModelError::Misfit { name: source.name.clone(), fact };
        let labels: Vec<String> = std::str::from_utf8(&labels)
            .map_err(|_| misfit("its labels are not UTF-8".to_owned()))?
            .lines()
            .map(str::to_owned)
            .collect();
        let model = Model::load(&bytes, provider)?;
        let (rows, columns) = model.shape();
        if columns != GRAMS_MAX || rows == 0 {
            return Err(misfit(format!("it takes {columns} grams, and this build makes {GRAMS_MAX}")));
        }
        let mut classifier = Classifier { model, labels, table: vec![0; rows * columns] };
        // One run before the first question: a graph that does not run, or has other labels, is found out now.
        classifier.run(&[&[]]).map_err(|error| misfit(error.to_string()))?;
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
        self.model.shape().0
    }

    /// The labels of each utterance, given by its grams, best first.
    ///
    /// # Errors
    /// When a run fails.
    pub fn classify(&mut self, asked: &[&[i32]]) -> Result<Vec<Vec<Candidate>>, ModelError> {
        let mut all = Vec::with_capacity(asked.len());
        for part in asked.chunks(self.rows()) {
            all.extend(self.run(part)?);
        }
        Ok(all)
    }

    fn run(&mut self, part: &[&[i32]]) -> Result<Vec<Vec<Candidate>>, ModelError> {
        self.table.fill(0);
        for (row, grams) in self.table.chunks_mut(GRAMS_MAX).zip(part) {
            for (cell, gram) in row.iter_mut().zip(*grams) {
                *cell = *gram;
            }
        }
        let values = self.model.run(&self.table)?;
        let width = values.len() / self.rows();
        if width != self.labels.len() {
            let fact = format!("{width} labels come out, and {} are named", self.labels.len());
            return Err(ModelError::Misfit { name: "the model".to_owned(), fact });
        }
        Ok(values.chunks(width).take(part.len()).map(|row| best(row, &self.labels)).collect())
    }
}

fn best(row: &[f32], labels: &[String]) -> Vec<Candidate> {
    let mut order: Vec<usize> = (0..row.len()).collect();
    order.sort_by(|a, b| row[*b].total_cmp(&row[*a]).then(a.cmp(b)));
    order
        .into_iter()
        .take(LABELS_MAX)
        .map(|at| Candidate { command: labels[at].clone(), confidence: row[at] })
        .collect()
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
    let found: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    if found != expected {
        return Err(ModelError::WrongHash { name, expected: expected.to_owned(), found });
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(bytes: &[u8]) -> String {
        Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn refused(model: Bytes, model_sha256: &str) -> String {
        let source = Source {
            name: "test.onnx".to_owned(),
            model,
            model_sha256: model_sha256.to_owned(),
            labels: Bytes::Embedded(b"none\n"),
            labels_sha256: hash(b"none\n"),
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
        let shown = refused(Bytes::File(path.clone()), &hash(b"half a model"));
        assert!(shown.starts_with(&format!("{}: its SHA-256 is {}", path.display(), hash(b"half a mod"))), "{shown}");
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

//! The stages that need the world: the classifier and the library. Each may be missing, busy or slow; a sentence then
//! goes on without it, and nothing of the cascade is decided here.

use interlock_domain::command::cascade::{Stages, Step, Walk};
use interlock_domain::command::resolution::{Passage, Resolution, Stage};
use interlock_domain::command::understanding::Understanding;

use super::super::inference::Inference;
use super::super::librarian::Librarian;
use crate::infer::knowledge::Found;

/// The owners of the later stages, as far as there are any.
#[derive(Clone, Default)]
pub struct Later {
    /// The classifier.
    pub inference: Option<Inference>,
    /// The passages.
    pub librarian: Option<Librarian>,
}

impl Later {
    /// The stages that can take part.
    #[must_use]
    pub fn stages(&self) -> Stages {
        let model = self.inference.as_ref().map(|_| Stage::Model);
        let knowledge = self.librarian.as_ref().map(|_| Stage::Knowledge);
        model.into_iter().chain(knowledge).fold(Stages::PURE, Stages::with)
    }
}

/// Walks a sentence to its end, and gives what it comes to with the passages that answer it.
pub(super) async fn finish(understanding: &Understanding, text: &str, later: &Later) -> (Resolution, Vec<Found>) {
    let mut walk = Walk::new(understanding, text, later.stages());
    let mut passages = Vec::new();
    loop {
        match walk.next() {
            Step::Done(resolution) => return (resolution, passages),
            Step::Classify(grams) => {
                let labels = match &later.inference {
                    Some(inference) => inference.classify(grams).await,
                    None => Vec::new(),
                };
                walk.classified(&labels);
            }
            Step::Retrieve(question) => {
                passages = match &later.librarian {
                    Some(librarian) => librarian.answer(question).await,
                    None => Vec::new(),
                };
                let near = |found: &Found| Passage { id: found.id.clone(), score: found.score };
                walk.retrieved(passages.iter().map(near).collect());
            }
        }
    }
}

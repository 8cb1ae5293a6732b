//! The stages of `interlock match` that need a model or passages. Each is made when a sentence first needs it, and a
//! sentence goes on without one that is not there.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use interlock_domain::command::cascade::{Stages, Step, Walk};
use interlock_domain::command::resolution::{Candidate, Passage, Resolution, Stage};

use crate::boot::model;
use crate::infer::classifier::{Classifier, Course, Source};
use crate::infer::knowledge::{Found, Library};
use crate::infer::runtime::Provider;

/// Passages that one question is given.
const PASSAGES_MAX: usize = 3;

/// What the later stages found, beside the resolution.
#[derive(Default)]
pub(super) struct Beside {
    /// The passages of the answer.
    pub(super) passages: Vec<Found>,
    /// A line for each stage that took part, or could not.
    pub(super) lines: String,
    /// The time that went into loading what is loaded once.
    pub(super) loading: Duration,
}

/// The stages.
pub(super) struct Later {
    source: Source,
    course: Course,
    state: Option<PathBuf>,
    classifier: Option<Result<Classifier, String>>,
    library: Option<Result<Option<Library>, String>>,
}

impl Later {
    /// With this model, taught this, and the passages of this state directory; without one, those that are shipped.
    pub(super) fn new(source: Source, course: Course, state: Option<PathBuf>) -> Later {
        Later { source, course, state, classifier: None, library: None }
    }

    /// The stages that take part when none are named: all of them.
    pub(super) fn every() -> Stages {
        Stages::PURE.with(Stage::Model).with(Stage::Knowledge)
    }

    /// Walks to the end.
    pub(super) fn finish(&mut self, walk: &mut Walk<'_>) -> (Resolution, Beside) {
        let mut beside = Beside::default();
        loop {
            match walk.next() {
                Step::Done(resolution) => return (resolution, beside),
                Step::Classify(text) => {
                    let labels = self.classify(&text, &mut beside);
                    walk.classified(&labels);
                }
                Step::Retrieve(question) => {
                    self.retrieve(&question, &mut beside);
                    let near = |found: &Found| Passage { id: found.id.clone(), score: found.score };
                    walk.retrieved(beside.passages.iter().map(near).collect());
                }
            }
        }
    }

    fn classify(&mut self, text: &str, beside: &mut Beside) -> Vec<Candidate> {
        let begun = Instant::now();
        let is_first = self.classifier.is_none();
        let loaded = self.classifier.get_or_insert_with(|| {
            let mut classifier = Classifier::load(&self.source, Provider::Auto).map_err(|error| error.to_string())?;
            match classifier.teach(&self.course).map_err(|error| error.to_string())? {
                Ok(_) => {}
                Err(why) => beside.lines.push_str(&format!("model: its head stays as it is: {why}\n")),
            }
            Ok(classifier)
        });
        if is_first {
            beside.loading += begun.elapsed();
        }
        let lines = &mut beside.lines;
        let answered = match loaded {
            Ok(classifier) => {
                lines.push_str(&format!("model: {}\n", classifier.running()));
                classifier.classify(&[text]).map_err(|error| error.to_string())
            }
            Err(why) => Err(why.clone()),
        };
        match answered {
            Ok(mut answers) => {
                let labels = answers.pop().unwrap_or_default();
                for label in &labels {
                    lines.push_str(&format!("  {} {:.3}\n", label.command, label.confidence));
                }
                labels
            }
            Err(why) => {
                lines.push_str(&format!("model: off: {why}\n"));
                Vec::new()
            }
        }
    }

    fn retrieve(&mut self, question: &str, beside: &mut Beside) {
        let begun = Instant::now();
        let is_first = self.library.is_none();
        let opened = self.library.get_or_insert_with(|| match &self.state {
            Some(state) => match Library::open_to_read(&state.join(Library::FILE)) {
                Ok(Some(library)) => Ok(Some(library)),
                Ok(None) => Ok(model::shipped_library()),
                Err(error) => Err(error.to_string()),
            },
            None => Ok(model::shipped_library()),
        });
        if is_first {
            beside.loading += begun.elapsed();
        }
        let lines = &mut beside.lines;
        let found = match opened {
            Ok(Some(library)) => library.answer(question, PASSAGES_MAX).map_err(|error| error.to_string()),
            Ok(None) => Ok(Vec::new()),
            Err(why) => Err(why.clone()),
        };
        match found {
            Ok(found) => {
                for passage in &found {
                    let Found { id, title, source, score, .. } = passage;
                    lines.push_str(&format!("knowledge: {id} at {score:.3}: {title} ({source})\n"));
                }
                beside.passages = found;
            }
            Err(why) => lines.push_str(&format!("knowledge: off: {why}\n")),
        }
    }
}

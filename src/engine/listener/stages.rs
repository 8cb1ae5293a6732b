//! The stages that need the world: the classifier and the library. Each may be missing, busy or slow; a sentence then
//! goes on without it, and nothing of the cascade is decided here.

use interlock_domain::command::cascade::{Begun, Stages, Step, Walk};
use interlock_domain::command::resolution::{Passage, Resolution, Stage};
use interlock_domain::command::understanding::Understanding;

use interlock_domain::agent::Ended;
use serde_json::Value;
use tokio::sync::oneshot;

use super::super::agent::Handle as Models;
use super::super::inference::{Inference, Lesson, Without};
use super::super::librarian::Librarian;
use super::{Draft, REPLY_PATIENCE, skeleton, words};
use crate::infer::knowledge::Found;

/// The owners of the later stages, as far as there are any.
#[derive(Clone, Default)]
pub struct Later {
    /// The classifier.
    pub inference: Option<Inference>,
    /// The passages.
    pub librarian: Option<Librarian>,
    /// The language model; it is one only while an endpoint is configured.
    pub models: Option<Models>,
}

impl Later {
    /// The stages that can take part.
    #[must_use]
    pub fn stages(&self) -> Stages {
        let model = self.inference.as_ref().map(|_| Stage::Model);
        let knowledge = self.librarian.as_ref().map(|_| Stage::Knowledge);
        model.into_iter().chain(knowledge).fold(Stages::PURE, Stages::with)
    }

    /// Hands what was learned to the model, as a whole.
    pub(super) fn teach(&self, lesson: &Lesson) {
        if let Some(inference) = &self.inference {
            inference.teach(lesson.clone());
        }
    }

    pub(super) fn has_language_model(&self) -> bool {
        self.models.as_ref().is_some_and(Models::is_configured)
    }

    /// Asks the language model and answers with its last words. A speaker who goes away takes the run along.
    pub(super) async fn answer(&self, draft: Draft, mut back: oneshot::Sender<Value>) {
        let Some(models) = &self.models else { return };
        let speaker = draft.said.speaker.clone();
        let mut value = skeleton(&draft);
        let asked = models.ask(&draft.said.text, &speaker);
        let answered = tokio::select! {
            answered = tokio::time::timeout(REPLY_PATIENCE, asked) => answered,
            () = back.closed() => return,
        };
        match answered {
            Ok(Ok(answered)) => {
                let done = answered.ended == Ended::Done;
                value["run"] = answered.run.to_string().into();
                value["result"] = if done { "done" } else { "failed" }.into();
                value["message"] = answered.text.into();
                if !done {
                    let text = words::model_ended(&answered.ended);
                    value["message"] = text.pick(draft.said.lang).into();
                }
            }
            Ok(Err(error)) => value["message"] = words::model_off(&error.to_string()).pick(draft.said.lang).into(),
            Err(_) => value["message"] = words::model_off("it took too long").pick(draft.said.lang).into(),
        }
        let _ = back.send(value);
    }
}

/// What a sentence comes to after the later stages.
pub(super) struct Finished {
    pub(super) resolution: Resolution,
    /// The passages that answer it.
    pub(super) passages: Vec<Found>,
    /// Why the model had no say, where it should have had one.
    pub(super) without_model: Option<Without>,
}

/// Walks a sentence that has begun to its end.
pub(super) async fn finish(understanding: &Understanding, begun: Begun, later: &Later) -> Finished {
    let mut walk = Walk::resume(understanding, begun);
    let (mut passages, mut without_model) = (Vec::new(), None);
    loop {
        match walk.next() {
            Step::Done(resolution) => return Finished { resolution, passages, without_model },
            Step::Classify(text) => {
                let labels = match &later.inference {
                    Some(inference) => inference.classify(text).await,
                    None => Ok(Vec::new()),
                };
                let labels = labels.unwrap_or_else(|without| {
                    without_model = Some(without);
                    Vec::new()
                });
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

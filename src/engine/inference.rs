//! Owns the classifier: one supervised thread, which loads it when it is first needed and answers from then on.
//!
//! A run may wait for an accelerator, so each is declared as an external phase: a device that hangs makes this thread a
//! ZOMBIE that is seen, and nobody else waits for it, because whoever asks has a patience of its own. A machine without
//! ONNX Runtime gets no thread at all; the reason is said once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use interlock_domain::command::resolution::Candidate;
use interlock_domain::liveness::remedy::Policy;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::stamp;
use super::supervisor::{Finished, Heart, Supervisor, TaskSpec};
use crate::infer::classifier::{Classifier, Source};
use crate::infer::runtime::{self, Provider};
use crate::record::Row;
use crate::store::queue::{Entry, Writer};

/// Questions that may wait. More are refused as busy: their sentences go on without the model.
const INBOX_LEN_MAX: usize = 32;
/// How long whoever asks waits: an operator does not notice it, and the first question pays for loading.
pub const PATIENCE: Duration = Duration::from_secs(3);
/// How long loading may take before it counts as stuck: an accelerator compiles the graph.
const LOAD_LIMIT: Duration = Duration::from_secs(120);
/// How long one run may take before it counts as stuck.
const RUN_LIMIT: Duration = Duration::from_secs(5);
/// How often the thread looks whether it shall stop.
const LOOK: Duration = Duration::from_secs(1);

struct Job {
    grams: Vec<i32>,
    back: oneshot::Sender<Vec<Candidate>>,
}

/// What the thread and the handles share.
struct Shared {
    source: Source,
    provider: Provider,
    /// A lock and not a channel end of its own: a new life of the thread takes the inbox over from one that hangs, and
    /// it is held only while a question is taken out.
    inbox: Mutex<Receiver<Job>>,
    started: AtomicBool,
    off: AtomicBool,
    supervisor: Supervisor,
    writer: Writer,
}

/// The way to the classifier. Cheap to clone.
#[derive(Clone)]
pub struct Inference {
    jobs: SyncSender<Job>,
    shared: Arc<Shared>,
}

impl Inference {
    /// Nothing is loaded and no thread is made until the first question.
    #[must_use]
    pub fn new(source: Source, provider: Provider, supervisor: Supervisor, writer: Writer) -> Inference {
        let (jobs, inbox) = sync_channel(INBOX_LEN_MAX);
        let shared = Shared {
            source,
            provider,
            inbox: Mutex::new(inbox),
            started: AtomicBool::new(false),
            off: AtomicBool::new(false),
            supervisor,
            writer,
        };
        Inference { jobs, shared: Arc::new(shared) }
    }

    /// The labels of an utterance, best first; none when there is no model, or it is busy or too slow.
    pub async fn classify(&self, grams: Vec<i32>) -> Vec<Candidate> {
        if self.shared.off.load(Ordering::Acquire) {
            return Vec::new();
        }
        if !self.shared.started.swap(true, Ordering::AcqRel) && !self.start().await {
            return Vec::new();
        }
        let (back, answer) = oneshot::channel();
        if self.jobs.try_send(Job { grams, back }).is_err() {
            tracing::warn!("the model is busy; a sentence goes on without it");
            return Vec::new();
        }
        match tokio::time::timeout(PATIENCE, answer).await {
            Ok(Ok(labels)) => labels,
            // The thread is gone, or too slow.
            Ok(Err(_)) | Err(_) => Vec::new(),
        }
    }

    async fn start(&self) -> bool {
        if runtime::find().is_none() {
            self.shared.switch_off(&runtime::RuntimeError::NotFound.to_string());
            return false;
        }
        let mut spec = TaskSpec::new("infer", "classifies sentences that words and sounds do not decide");
        spec.policy = Policy::RESTART;
        let shared = Arc::clone(&self.shared);
        let spawned = self.shared.supervisor.spawn_again(spec, move |heart| serve(&heart, &shared)).await;
        match spawned {
            Ok(Ok(_)) => true,
            Ok(Err(refused)) => {
                self.shared.switch_off(&refused.to_string());
                false
            }
            Err(nobody) => {
                self.shared.switch_off(&nobody.to_string());
                false
            }
        }
    }
}

impl Shared {
    fn switch_off(&self, why: &str) {
        if !self.off.swap(true, Ordering::AcqRel) {
            tracing::warn!(why, "the model stage is off; sentences are understood by words and sounds");
            self.record("off", why.into(), json!({ "model": self.source.name, "sha256": self.source.model_sha256 }));
        }
    }

    fn record(&self, to: &'static str, cause: String, detail: Value) {
        let mut row = Row::new(stamp::now(), "model");
        row.to = Some(to.into());
        row.cause = Some(cause.into());
        self.writer.append_or_count(Entry::relaxed(row.detailed(&detail)));
    }

    fn take(&self, wait: Duration) -> Result<Job, RecvTimeoutError> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(wait)
    }
}

/// One life of the thread.
fn serve(heart: &Heart, shared: &Shared) -> Finished {
    heart.external_phase("load", LOAD_LIMIT);
    let loaded = Classifier::load(&shared.source, shared.provider);
    heart.phase_over();
    let mut classifier = match loaded {
        Ok(classifier) => classifier,
        Err(error) => {
            // What is wrong with a file or a library stays wrong: another life would only find the same.
            shared.switch_off(&error.to_string());
            while shared.take(Duration::ZERO).is_ok() {}
            return Finished::Done(json!({ "off": error.to_string() }));
        }
    };
    let running = classifier.running().clone();
    tracing::info!(provider = %running, library = %running.library.display(), "the model is loaded");
    let detail = json!({
        "model": shared.source.name, "sha256": shared.source.model_sha256,
        "library": running.library.display().to_string(), "build": running.build,
        "providers": running.assigned.iter().map(|(name, nodes)| json!({ "name": name, "nodes": nodes })).collect::<Vec<_>>(),
        "fell_back": running.fell_back,
    });
    shared.record("loaded", running.to_string(), detail);
    loop {
        heart.idle();
        let first = match shared.take(LOOK) {
            Ok(job) => job,
            Err(RecvTimeoutError::Timeout) if heart.should_stop() => return Finished::Stopped(Value::Null),
            Err(RecvTimeoutError::Timeout) => continue,
            // Every handle is gone: nobody will ask again.
            Err(RecvTimeoutError::Disconnected) => return Finished::Stopped(Value::Null),
        };
        heart.beat();
        // What waits behind it goes in the same run.
        let mut jobs = vec![first];
        while jobs.len() < classifier.rows()
            && let Ok(job) = shared.take(Duration::ZERO)
        {
            jobs.push(job);
        }
        let asked: Vec<&[i32]> = jobs.iter().map(|job| job.grams.as_slice()).collect();
        heart.external_phase("inference", RUN_LIMIT);
        let answered = classifier.classify(&asked);
        heart.phase_over();
        match answered {
            Ok(answers) => {
                for (job, labels) in jobs.into_iter().zip(answers) {
                    // Whoever asked may have lost patience.
                    let _ = job.back.send(labels);
                }
            }
            Err(error) => return Finished::Failed(error.to_string()),
        }
    }
}

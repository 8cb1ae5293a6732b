//! Owns the classifier: one supervised thread, which loads it when it is first needed and answers from then on.
//!
//! A run may wait for an accelerator, so each is declared as an external phase: a device that hangs makes this thread a
//! ZOMBIE that is seen, and nobody else waits for it, because whoever asks has a patience of its own. A machine without
//! ONNX Runtime gets no thread at all; the reason is said once.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use interlock_domain::command::resolution::Candidate;
use interlock_domain::liveness::remedy::Policy;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::stamp;
use super::supervisor::{Finished, Heart, Supervisor, TaskSpec};
use crate::infer::classifier::{Classifier, Course, Source};
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
/// How long teaching the head may take before it counts as stuck: hundreds of sentences through the larger model.
const TEACH_LIMIT: Duration = Duration::from_secs(60);
/// How often the thread looks whether it shall stop, and whether there is something new to learn.
const LOOK: Duration = Duration::from_secs(1);

/// Why a sentence goes on without the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Without {
    /// There is none, and why.
    Off(String),
    /// Too many sentences wait.
    Busy,
    /// It did not answer in time.
    Late(Duration),
    /// Its thread ended while this sentence waited.
    Ended,
}

impl fmt::Display for Without {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Without::Off(why) => write!(f, "off: {why}"),
            Without::Busy => write!(f, "busy: {INBOX_LEN_MAX} sentences wait"),
            Without::Late(patience) => write!(f, "late: no answer within {} ms", patience.as_millis()),
            Without::Ended => f.write_str("ended: its thread is begun anew"),
        }
    }
}

/// The labels of a sentence, or why there are none.
pub type Classified = Result<Vec<Candidate>, Without>;

struct Job {
    text: String,
    back: oneshot::Sender<Vec<Candidate>>,
}

/// The way into the inbox, and how long it is worth waiting there.
#[derive(Clone)]
struct Way {
    jobs: SyncSender<Job>,
    patience: Duration,
}

impl Way {
    fn new(patience: Duration) -> (Way, Receiver<Job>) {
        let (jobs, inbox) = sync_channel(INBOX_LEN_MAX);
        (Way { jobs, patience }, inbox)
    }

    async fn ask(&self, text: String) -> Classified {
        let (back, answer) = oneshot::channel();
        self.jobs.try_send(Job { text, back }).map_err(|error| match error {
            TrySendError::Full(_) => Without::Busy,
            TrySendError::Disconnected(_) => Without::Ended,
        })?;
        match tokio::time::timeout(self.patience, answer).await {
            Ok(Ok(labels)) => Ok(labels),
            Ok(Err(_)) => Err(Without::Ended),
            Err(_) => Err(Without::Late(self.patience)),
        }
    }
}

/// What is to be taught, as which version of the learned set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lesson {
    /// The version of the learned set.
    pub version: u64,
    /// The sentences.
    pub course: Course,
}

/// What the thread and the handles share.
struct Shared {
    /// The models, in the order in which they are tried: the first that loads answers. A lock and not a message: only the
    /// newest list counts, each life of the thread begins with it, and it is held only while the pointer is read or set.
    sources: Mutex<Arc<Vec<Source>>>,
    provider: Provider,
    /// A lock and not a channel end of its own: a new life of the thread takes the inbox over from one that hangs, and
    /// it is held only while a question is taken out.
    inbox: Mutex<Receiver<Job>>,
    /// The newest lesson. A lock and not a message: only the newest counts, each life of the thread begins with it, and
    /// it is held only while the pointer is read or set.
    lesson: Mutex<Option<Arc<Lesson>>>,
    started: AtomicBool,
    /// Why there is no model. A lock for the same reason.
    off: Mutex<Option<String>>,
    supervisor: Supervisor,
    writer: Writer,
}

/// The way to the classifier. Cheap to clone.
#[derive(Clone)]
pub struct Inference {
    way: Way,
    shared: Arc<Shared>,
}

impl Inference {
    /// Nothing is loaded and no thread is made until the first question. Of `sources`, the first that loads answers.
    #[must_use]
    pub fn new(sources: Vec<Source>, provider: Provider, supervisor: Supervisor, writer: Writer) -> Inference {
        let (way, inbox) = Way::new(PATIENCE);
        let shared = Shared {
            sources: Mutex::new(Arc::new(sources)),
            provider,
            inbox: Mutex::new(inbox),
            lesson: Mutex::new(None),
            started: AtomicBool::new(false),
            off: Mutex::new(None),
            supervisor,
            writer,
        };
        Inference { way, shared: Arc::new(shared) }
    }

    /// The labels of an utterance, best first.
    ///
    /// # Errors
    /// Why the sentence goes on without them.
    pub async fn classify(&self, text: String) -> Classified {
        if !self.shared.started.swap(true, Ordering::AcqRel) {
            self.start().await;
        }
        if let Some(why) = self.shared.off() {
            return Err(Without::Off(why));
        }
        let answered = self.way.ask(text).await;
        // It may have gone off while this sentence waited.
        let answered = match (answered, self.shared.off()) {
            (Err(Without::Ended), Some(why)) => Err(Without::Off(why)),
            (answered, _) => answered,
        };
        if let Err(without) = &answered {
            tracing::warn!(%without, "a sentence goes on without the model");
        }
        answered
    }

    /// Teaches the head before the next question; a model that is not loaded yet is taught when it is.
    pub fn teach(&self, lesson: Lesson) {
        *self.shared.lesson.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(lesson));
    }

    /// Other models from now on; the same list again changes nothing. What is off is tried anew at the next question.
    pub fn replace(&self, sources: Vec<Source>) {
        let mut kept = self.shared.sources.lock().unwrap_or_else(PoisonError::into_inner);
        if **kept == sources {
            return;
        }
        *kept = Arc::new(sources);
        drop(kept);
        let was_off = self.shared.off.lock().unwrap_or_else(PoisonError::into_inner).take().is_some();
        if was_off {
            self.shared.started.store(false, Ordering::Release);
        }
    }

    async fn start(&self) {
        if runtime::find().is_none() {
            self.shared.switch_off(&runtime::RuntimeError::NotFound.to_string());
            return;
        }
        let mut spec = TaskSpec::new("infer", "classifies sentences that words and sounds do not decide");
        spec.policy = Policy::RESTART;
        // "Cancel the task" is said of what a person or an agent started; nobody would begin this one again.
        spec.own = true;
        let shared = Arc::clone(&self.shared);
        let spawned = self.shared.supervisor.spawn_again(spec, move |heart| serve(&heart, &shared)).await;
        match spawned {
            Ok(Ok(_)) => {}
            Ok(Err(refused)) => self.shared.switch_off(&refused.to_string()),
            Err(nobody) => self.shared.switch_off(&nobody.to_string()),
        }
    }
}

impl Shared {
    fn sources(&self) -> Arc<Vec<Source>> {
        Arc::clone(&self.sources.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn off(&self) -> Option<String> {
        self.off.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn switch_off(&self, why: &str) {
        let mut off = self.off.lock().unwrap_or_else(PoisonError::into_inner);
        if off.is_none() {
            *off = Some(why.to_owned());
            drop(off);
            tracing::warn!(why, "the model stage is off; sentences are understood by words and sounds");
            let names: Vec<_> = self.sources().iter().map(|source| source.name.clone()).collect();
            self.record("off", why.into(), json!({ "model": names.first(), "models": names }));
        }
    }

    /// The first of the models that loads.
    fn load(&self, heart: &Heart, sources: &[Source]) -> Result<(Classifier, String), String> {
        let mut why = "there is no model".to_owned();
        for source in sources {
            heart.external_phase("load", LOAD_LIMIT);
            let loaded = Classifier::load(source, self.provider);
            heart.phase_over();
            match loaded {
                Ok(classifier) => {
                    let running = classifier.running().clone();
                    tracing::info!(provider = %running, library = %running.library.display(), "the model is loaded");
                    let detail = json!({
                        "model": source.name, "sha256": source.model_sha256,
                        "library": running.library.display().to_string(), "build": running.build,
                        "providers": running.assigned.iter().map(|(name, nodes)| json!({ "name": name, "nodes": nodes })).collect::<Vec<_>>(),
                        "fell_back": running.fell_back,
                    });
                    self.record("loaded", running.to_string(), detail);
                    return Ok((classifier, source.model_sha256.clone()));
                }
                Err(error) => {
                    why = error.to_string();
                    if sources.len() > 1 {
                        tracing::error!(kind = "MODEL_NOT_LOADED", model = source.name, why, "the next model is tried");
                        self.record(
                            "not_loaded",
                            why.clone(),
                            json!({ "model": source.name, "sha256": source.model_sha256 }),
                        );
                    }
                }
            }
        }
        Err(why)
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

    fn lesson(&self) -> Option<Arc<Lesson>> {
        self.lesson.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Teaches the newest lesson unless that is done, and says what came of it.
    fn learn(
        &self,
        heart: &Heart,
        loaded: &mut (Classifier, String),
        known: &mut Option<Arc<Lesson>>,
    ) -> Result<(), String> {
        let (classifier, model_sha256) = loaded;
        let newest = self.lesson();
        let is_known = match (&newest, &*known) {
            (Some(newest), Some(known)) => Arc::ptr_eq(newest, known),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        let Some(lesson) = newest.filter(|_| !is_known) else { return Ok(()) };
        let is_first = known.is_none();
        *known = Some(Arc::clone(&lesson));
        if lesson.course.taught.is_empty() && is_first {
            return Ok(());
        }
        heart.external_phase("teach", TEACH_LIMIT);
        let begun = Instant::now();
        let taught = classifier.teach(&lesson.course);
        heart.phase_over();
        let detail = |head: Option<String>| {
            json!({
                "version": lesson.version, "sentences": lesson.course.taught.len(), "head_sha256": head,
                "model_sha256": model_sha256, "ms": begun.elapsed().as_millis(),
            })
        };
        match taught.map_err(|error| error.to_string())? {
            Ok(head) => self.record("taught", format!("version {}", lesson.version), detail(Some(head))),
            Err(why) => {
                tracing::warn!(%why, version = lesson.version, "the model's head stays as it is");
                self.record("not_taught", why.to_string(), detail(None));
            }
        }
        Ok(())
    }
}

/// The next questions, as many as one run takes: what waits behind the first goes with it, and whoever lost patience is
/// left out.
fn batch(first: Job, rows: usize, mut more: impl FnMut() -> Option<Job>) -> Vec<Job> {
    let mut jobs = Vec::with_capacity(rows);
    let mut next = Some(first);
    while let Some(job) = next {
        if !job.back.is_closed() {
            jobs.push(job);
        }
        next = if jobs.len() < rows { more() } else { None };
    }
    jobs
}

/// One life of the thread.
fn serve(heart: &Heart, shared: &Shared) -> Finished {
    loop {
        let sources = shared.sources();
        match shared.load(heart, &sources) {
            Ok(loaded) => {
                if let Some(finished) = answer(heart, shared, &sources, loaded) {
                    return finished;
                }
            }
            Err(why) => {
                // What is wrong with a file or a library stays wrong: another life would only find the same.
                shared.switch_off(&why);
                while shared.take(Duration::ZERO).is_ok() {}
                return Finished::Done(json!({ "off": why }));
            }
        }
    }
}

/// Answers with one model; nothing when other models are wanted.
fn answer(
    heart: &Heart,
    shared: &Shared,
    sources: &Arc<Vec<Source>>,
    mut loaded: (Classifier, String),
) -> Option<Finished> {
    let mut known = None;
    loop {
        if !Arc::ptr_eq(sources, &shared.sources()) {
            return None;
        }
        if let Err(why) = shared.learn(heart, &mut loaded, &mut known) {
            return Some(Finished::Failed(why));
        }
        heart.idle();
        let first = match shared.take(LOOK) {
            Ok(job) => job,
            Err(RecvTimeoutError::Timeout) if heart.should_stop() => return Some(Finished::Stopped(Value::Null)),
            Err(RecvTimeoutError::Timeout) => continue,
            // Every handle is gone: nobody will ask again.
            Err(RecvTimeoutError::Disconnected) => return Some(Finished::Stopped(Value::Null)),
        };
        heart.beat();
        if let Err(why) = shared.learn(heart, &mut loaded, &mut known) {
            return Some(Finished::Failed(why));
        }
        let classifier = &mut loaded.0;
        let jobs = batch(first, classifier.rows(), || shared.take(Duration::ZERO).ok());
        let asked: Vec<&str> = jobs.iter().map(|job| job.text.as_str()).collect();
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
            Err(error) => return Some(Finished::Failed(error.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Short, so that a test of a model that never answers ends; what is compared is the answer, never the time.
    const SHORT: Duration = Duration::from_millis(30);

    #[tokio::test]
    async fn a_model_that_hangs_is_waited_for_no_longer_than_patience() {
        let (way, inbox) = Way::new(SHORT);
        assert_eq!(way.ask("启动水泵".to_owned()).await, Err(Without::Late(SHORT)));
        // Its question is still there, and nobody waits for it: a new life leaves it out.
        let stale = inbox.try_recv().expect("it waits");
        assert!(batch(stale, 4, || None).is_empty());
    }

    #[tokio::test]
    async fn a_full_inbox_refuses_at_once_and_keeps_its_bound() {
        let (way, inbox) = Way::new(SHORT);
        let mut waiting = tokio::task::JoinSet::new();
        for at in 0..INBOX_LEN_MAX {
            let way = way.clone();
            waiting.spawn(async move { way.ask(format!("句{at}")).await });
        }
        let waited = waiting.join_all().await;
        assert!(waited.iter().all(|one| *one == Err(Without::Late(SHORT))), "{waited:?}");
        assert_eq!(way.ask("多一句".to_owned()).await, Err(Without::Busy));
        assert_eq!(inbox.try_iter().count(), INBOX_LEN_MAX);
    }

    #[tokio::test]
    async fn a_thread_that_ends_lets_go_of_whoever_waits() {
        let (way, inbox) = Way::new(Duration::from_secs(60));
        let asking = tokio::spawn({
            let way = way.clone();
            async move { way.ask("启动水泵".to_owned()).await }
        });
        let job = tokio::task::spawn_blocking(move || (inbox.recv(), inbox)).await.expect("received");
        drop(job);
        assert_eq!(asking.await.expect("answered"), Err(Without::Ended));
        assert_eq!(way.ask("启动水泵".to_owned()).await, Err(Without::Ended));
    }

    #[test]
    fn what_waits_goes_in_one_run_and_no_more_than_it_takes() {
        let (way, inbox) = Way::new(SHORT);
        let mut backs = Vec::new();
        for at in 0..6 {
            let (back, answer) = oneshot::channel();
            way.jobs.try_send(Job { text: at.to_string(), back }).expect("there is room");
            backs.push(answer);
        }
        // The second lost patience.
        backs.remove(1);
        let texts = |jobs: &[Job]| jobs.iter().map(|job| job.text.clone()).collect::<Vec<_>>();
        let first = batch(inbox.try_recv().expect("one"), 3, || inbox.try_recv().ok());
        assert_eq!(texts(&first), ["0", "2", "3"]);
        let second = batch(inbox.try_recv().expect("one"), 3, || inbox.try_recv().ok());
        assert_eq!(texts(&second), ["4", "5"]);
    }

    #[test]
    fn why_there_is_no_answer_is_said_in_words() {
        assert_eq!(Without::Off("no library".to_owned()).to_string(), "off: no library");
        assert_eq!(Without::Busy.to_string(), "busy: 32 sentences wait");
        assert_eq!(Without::Late(PATIENCE).to_string(), "late: no answer within 3000 ms");
    }
}

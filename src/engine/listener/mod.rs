//! Owns the active commands and the short dialogues: an operator's sentence comes in, wishes go to the mediator.
//!
//! Voice has no private way to act: what is understood becomes calls of tools like anybody else's. Two utterances are
//! never mixed: a confirmation answers the one question that this speaker was asked last, or nothing.

mod dialogue;
mod stages;
mod words;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use interlock_domain::command::bind::{self, BindError};
use interlock_domain::command::cascade::{self, Begun, Stages, Walk};
use interlock_domain::command::resolution::{Likeness, Outcome, Refused, Resolution, Slots, Understood};
use interlock_domain::command::understanding::Understanding;
use interlock_domain::device::plan::Call;
use interlock_domain::device::table::Devices;
use interlock_domain::gate::docket::{Answer, By, Ignored};
use interlock_domain::gate::policy::Mode;
use interlock_domain::id::{QuestionId, RunId, Seq, ToolName};
use interlock_domain::request::{Asker, Via};
use interlock_domain::time::Tick;
use serde_json::{Map, Value, json};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::task::JoinSet;

use super::handle::{AnswerTaken, Answered, Mediator, NotTaken, Submitted, Wanted, Who};
use super::inference::{Lesson, Without};
use super::learner::{Learner, Noticed, Source};
use crate::infer::knowledge::Found;
use crate::record::Row;
use crate::store::queue::{Entry, Tell, Writer};
use crate::sys::clock;
use dialogue::{Dialogue, Open, Reply};
pub use stages::Later;
pub use words::Lang;

/// How many sentences may wait to be understood: more than a hall full of people says in the time it takes.
const INBOX_LEN_MAX: usize = 64;

/// How many sentences may be under way, understood and waiting for their actions to end.
const UNDER_WAY_MAX: usize = 256;

/// As many again are kept for what makes safe: others that do not end must not hold back an emergency stop.
const SAFE_UNDER_WAY_MAX: usize = 64;

/// How long what makes safe waits for a place where others are refused, and how many wait at once. Whoever takes nothing
/// for so long is stuck, which its supervision tells by itself.
const SAFE_PATIENCE: Duration = Duration::from_secs(5);
const SAFE_WAITING_MAX: usize = 64;

/// Commands named when nothing was understood: more is no question that a person answers in a hall.
const NEAREST_MAX: usize = 2;

/// How many speakers are remembered; the one who was silent longest is forgotten first.
const SPEAKERS_MAX: usize = 256;

/// How long a sentence that came to nothing is remembered: whoever says it again in other words does so at once.
const MISS_PATIENCE: Duration = Duration::from_secs(30);

/// How long an answer waits for its actions to end and to be recorded: longer than any tool may take.
const REPLY_PATIENCE: Duration = Duration::from_secs(180);

/// What is understood, with what it is bound to. Swapped as a whole.
pub struct Ears {
    understanding: Understanding,
    devices: Arc<Devices>,
    /// How long an answer may follow its question by voice. After that a person has to name the question.
    patience: Duration,
    /// What the model's head is taught with it.
    lesson: Lesson,
}

impl Ears {
    /// The commands, and the devices that they may name.
    #[must_use]
    pub fn new(understanding: Understanding, devices: Arc<Devices>, patience: Duration, lesson: Lesson) -> Ears {
        Ears { understanding, devices, patience, lesson }
    }

    /// The calls that a command stands for.
    fn wanted(&self, command: &Understood) -> Result<Vec<Wanted>, BindError> {
        let known = self.understanding.definition(&command.command).ok_or(BindError::Nothing)?;
        let slots: Map<String, Value> =
            command.slots.iter().map(|(name, value)| (name.clone(), value.to_json())).collect();
        let protective = known.protective && command.likeness != Likeness::Near;
        let calls = bind::bind(&known.bind, &slots, &self.devices)?;
        Ok(calls.into_iter().map(|(tool, input)| Wanted { tool, input, protective }).collect())
    }

    /// Whether words and sounds alone make something of a sentence, and all of it makes safe.
    fn makes_safe(&self, text: &str) -> bool {
        let walk = Walk::new(&self.understanding, text, Stages::PURE);
        let commands = words::all(walk.found());
        let is_protective = |call: &Wanted| self.is_protective(call);
        !commands.is_empty()
            && commands.iter().all(|command| self.wanted(command).is_ok_and(|calls| calls.iter().all(is_protective)))
    }

    fn is_protective(&self, call: &Wanted) -> bool {
        let planned = || self.devices.plan(&Call::parse(&call.input).ok()?).ok();
        call.protective || (call.tool.as_str() == "device" && planned().is_some_and(|plan| plan.protective))
    }
}

/// One sentence.
#[derive(Debug)]
pub struct Said {
    /// The sentence as it was heard or typed.
    pub text: String,
    /// Who said it: a confirmation fits the questions of its speaker only.
    pub speaker: String,
    /// Where it was said, if a front end knows: the satellite's name. For the log only.
    pub place: Option<String>,
    /// The way it came in.
    pub via: Via,
    /// The language of the answer.
    pub lang: Lang,
    /// Wait for questions to be answered.
    pub wait: bool,
    /// What may come of it at most.
    pub reins: Reins,
}

enum Message {
    Hear { said: Said, back: oneshot::Sender<Value> },
    Understand { text: String, back: oneshot::Sender<Option<(String, Slots)>> },
    Swap { ears: Box<Ears>, back: oneshot::Sender<()> },
}

/// What may come of a sentence at most, besides what the gate lets anybody do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reins {
    /// A mode that is narrower than the configured one.
    pub mode: Option<Mode>,
    /// Somebody may be asked about it.
    pub answerable: bool,
    /// It is part of a conversation: it may answer and be asked back, teach, and reach the language model.
    pub converses: bool,
}

impl Reins {
    /// A person who is there.
    pub const OF_A_PERSON: Reins = Reins { mode: None, answerable: true, converses: true };
}

/// A message that was no sentence, or came when it should not.
#[derive(Debug)]
pub struct Declined {
    /// Who sent it.
    pub speaker: String,
    /// The way it came in.
    pub via: Via,
    /// Why, as a code.
    pub why: &'static str,
    /// What is known of it.
    pub detail: Value,
}

/// The way to the listener. Cheap to clone.
#[derive(Clone)]
pub struct Listener {
    inbox: mpsc::Sender<Message>,
    ears: watch::Receiver<Arc<Ears>>,
    writer: Writer,
    /// Places for what makes safe and waits for the inbox.
    waiting: Arc<Semaphore>,
}

impl Listener {
    /// A handle and the owner, which the caller runs.
    #[must_use]
    pub fn new(ears: Ears, mediator: Mediator, writer: Writer, learner: Learner, later: Later) -> (Listener, Owner) {
        let (inbox, outlet) = mpsc::channel(INBOX_LEN_MAX);
        let evidence = writer.clone();
        let ears = Arc::new(ears);
        let (in_force, shown) = watch::channel(Arc::clone(&ears));
        let owner = Owner {
            inbox: outlet,
            ears,
            in_force,
            later,
            mediator,
            writer,
            learner,
            dialogues: BTreeMap::new(),
            missed: BTreeMap::new(),
            under_way: JoinSet::new(),
            places: Arc::new(Semaphore::new(UNDER_WAY_MAX)),
            safe_places: Arc::new(Semaphore::new(SAFE_UNDER_WAY_MAX)),
        };
        let waiting = Arc::new(Semaphore::new(SAFE_WAITING_MAX));
        (Listener { inbox, ears: shown, writer: evidence, waiting }, owner)
    }

    /// Understands a sentence, does what it says if the gate lets it, and answers as `say --json` does.
    ///
    /// A sentence that makes safe waits for its place, within a bound, where others are refused.
    ///
    /// # Errors
    /// When too many sentences wait, or the daemon is stopping.
    pub async fn hear(&self, said: Said) -> Result<Value, NotTaken> {
        let (back, answer) = oneshot::channel();
        match self.inbox.try_send(Message::Hear { said, back }) {
            Ok(()) => {}
            Err(mpsc::error::TrySendError::Full(message)) => self.wait_for_place(message).await?,
            Err(error @ mpsc::error::TrySendError::Closed(_)) => return Err(not_taken(error)),
        }
        answer.await.map_err(|_| NotTaken::Stopping)
    }

    async fn wait_for_place(&self, message: Message) -> Result<(), NotTaken> {
        let makes_safe = matches!(&message, Message::Hear { said, .. } if self.makes_safe(&said.text));
        let Ok(_place) = self.waiting.try_acquire() else { return Err(NotTaken::Busy) };
        if !makes_safe {
            return Err(NotTaken::Busy);
        }
        self.inbox.send_timeout(message, SAFE_PATIENCE).await.map_err(|error| match error {
            mpsc::error::SendTimeoutError::Timeout(_) => NotTaken::Busy,
            mpsc::error::SendTimeoutError::Closed(_) => NotTaken::Stopping,
        })
    }

    /// Whether a sentence is one that makes safe, as far as words and sounds tell. It waits for nobody and keeps nobody
    /// waiting: whoever holds back a flood asks here what must not be held back with it.
    #[must_use]
    pub fn makes_safe(&self, text: &str) -> bool {
        let ears = Arc::clone(&self.ears.borrow());
        ears.makes_safe(text)
    }

    /// Writes down that a message was not listened to.
    pub fn decline(&self, declined: Declined) {
        let Declined { speaker, via, why, detail } = declined;
        let mut row = Row::new(super::stamp::now(), "heard");
        row.to = Some("declined".into());
        row.cause = Some(why.into());
        let row = row.detailed(&json!({ "speaker": speaker, "via": via.word(), "message": detail }));
        self.writer.append_or_count(Entry::relaxed(row));
    }

    /// What a sentence would mean: the command and its slots, if it is one. Nothing is executed or written down.
    ///
    /// # Errors
    /// When too many sentences wait, or the daemon is stopping.
    pub async fn understand(&self, text: String) -> Result<Option<(String, Slots)>, NotTaken> {
        let (back, answer) = oneshot::channel();
        self.inbox.try_send(Message::Understand { text, back }).map_err(not_taken)?;
        answer.await.map_err(|_| NotTaken::Stopping)
    }

    /// Puts other commands in force, as a whole.
    ///
    /// # Errors
    /// When the daemon is stopping.
    pub async fn swap(&self, ears: Ears) -> Result<(), NotTaken> {
        let (back, done) = oneshot::channel();
        self.inbox.send(Message::Swap { ears: Box::new(ears), back }).await.map_err(|_| NotTaken::Stopping)?;
        done.await.map_err(|_| NotTaken::Stopping)
    }
}

fn not_taken(error: mpsc::error::TrySendError<Message>) -> NotTaken {
    match error {
        mpsc::error::TrySendError::Full(_) => NotTaken::Busy,
        mpsc::error::TrySendError::Closed(_) => NotTaken::Stopping,
    }
}

/// A sentence that was not understood, or not rightly: what its speaker says next may tell what was meant.
struct Missed {
    text: String,
    until: Tick,
}

/// The owner.
pub struct Owner {
    inbox: mpsc::Receiver<Message>,
    ears: Arc<Ears>,
    /// The same, for who asks without waiting.
    in_force: watch::Sender<Arc<Ears>>,
    later: Later,
    mediator: Mediator,
    writer: Writer,
    learner: Learner,
    /// The one question that each speaker may answer by voice.
    dialogues: BTreeMap<String, Open>,
    missed: BTreeMap<String, Missed>,
    /// What goes on; a sentence that was walked to its end comes back.
    under_way: JoinSet<Option<Box<Heard>>>,
    places: Arc<Semaphore>,
    safe_places: Arc<Semaphore>,
}

/// A sentence that was understood, as far as it can be.
struct Heard {
    said: Said,
    resolution: Resolution,
    passages: Vec<Found>,
    without_model: Option<Without>,
    back: oneshot::Sender<Value>,
}

/// An answer as it grows.
struct Draft {
    said: Said,
    resolution: Resolution,
    missing: Vec<String>,
    without_model: Option<Without>,
}

impl Owner {
    /// Runs until every handle is gone.
    pub async fn run(mut self) {
        self.later.teach(&self.ears.lesson);
        loop {
            tokio::select! {
                Some(ended) = self.under_way.join_next() => {
                    if let Ok(Some(heard)) = ended {
                        self.notice(&heard.said, &heard.resolution, clock::now());
                        self.heard(*heard).await;
                    }
                }
                message = self.inbox.recv() => match message {
                    None => break,
                    Some(Message::Hear { said, back }) => self.hear(said, back).await,
                    Some(Message::Understand { text, back }) => {
                        let walk = Walk::new(&self.ears.understanding, &text, Stages::PURE);
                        let found = walk.found().command().cloned();
                        let _ = back.send(found.map(|one| (one.command, one.slots)));
                    }
                    Some(Message::Swap { ears, back }) => {
                        self.later.teach(&ears.lesson);
                        self.ears = Arc::from(ears);
                        self.in_force.send_replace(Arc::clone(&self.ears));
                        let _ = back.send(());
                    }
                },
            }
        }
        // What was understood has been handed in; the mediator settles it. Only the waiting ends here.
        self.under_way.shutdown().await;
    }

    async fn hear(&mut self, said: Said, back: oneshot::Sender<Value>) {
        let now = clock::now();
        self.missed.retain(|_, missed| missed.until > now);
        let open = self.dialogues.remove(&said.speaker);
        let ran_out = open.as_ref().is_some_and(|open| open.until <= now);
        self.dialogues.retain(|_, open| open.until > now);
        let open = open.filter(|_| !ran_out).map(|open| open.dialogue);
        if let Some(answer) = words::answer(&said.text) {
            // A confirmation fits the question of its speaker, or nothing.
            let text = match (open, answer) {
                (Some(Dialogue::Confirm(question)), answer) => return self.confirm(said, question, answer, back),
                (Some(Dialogue::Missing { .. } | Dialogue::Which { .. }), Answer::Deny) => &words::DROPPED,
                (None, _) if ran_out => &words::RAN_OUT,
                (Some(_) | None, _) => &words::NOTHING_ASKED,
            };
            let draft = Draft {
                said,
                resolution: Resolution::rejected(Refused::NoCommand),
                missing: Vec::new(),
                without_model: None,
            };
            return self.only_say(draft, Some(text.clone()), back);
        }
        let walk = Walk::new(&self.ears.understanding, &said.text, self.later.stages());
        let resolution = walk.found().clone();
        let reply = open.map(|open| dialogue::reply(&self.ears.understanding, &open, &said.text, &resolution));
        if let Some(Reply::Means(both)) = reply {
            self.notice(&said, &resolution, now);
            return self
                .heard(Heard { said, resolution: *both, passages: Vec::new(), without_model: None, back })
                .await;
        }
        match walk.next() {
            cascade::Step::Done(resolution) => {
                self.notice(&said, &resolution, now);
                self.heard(Heard { said, resolution, passages: Vec::new(), without_model: None, back }).await;
            }
            cascade::Step::Classify(_) | cascade::Step::Retrieve(_) => {
                let begun = walk.rest();
                self.walk_on(said, begun, back);
            }
        }
    }

    /// The later stages take their time, and no other sentence waits for them.
    fn walk_on(&mut self, said: Said, begun: Begun, back: oneshot::Sender<Value>) {
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            let _ = back.send(words::plain(&said, &words::BUSY));
            return;
        };
        let (ears, later) = (Arc::clone(&self.ears), self.later.clone());
        self.under_way.spawn(async move {
            let finished = stages::finish(&ears.understanding, begun, &later).await;
            drop(place);
            let stages::Finished { resolution, passages, without_model } = finished;
            Some(Box::new(Heard { said, resolution, passages, without_model, back }))
        });
    }

    /// What becomes of a sentence.
    async fn heard(&mut self, heard: Heard) {
        let Heard { said, resolution, passages, without_model, back } = heard;
        let mut draft = Draft { said, resolution, missing: Vec::new(), without_model };
        let understood = match &draft.resolution.outcome {
            Outcome::Command(understood) => vec![understood.clone()],
            Outcome::Sequence(several) => several.clone(),
            Outcome::Incomplete { understood, missing } => {
                let (understood, missing) = (understood.clone(), missing.clone());
                return self.ask_for(draft, understood, missing, back);
            }
            Outcome::Ambiguous => {
                let candidates = draft.resolution.candidates.iter().map(|one| one.command.clone()).collect();
                let which = Dialogue::Which { text: draft.said.text.clone(), candidates };
                self.open(&draft.said, which);
                return self.only_say(draft, None, back);
            }
            Outcome::Knowledge => return self.only_say(draft, Some(words::read_out(&passages)), back),
            Outcome::Rejected(Refused::NoCommand) if draft.said.reins.converses && self.later.has_language_model() => {
                return self.ask_language_model(draft, back);
            }
            Outcome::Rejected(Refused::NoCommand) => return self.ask_nearest(draft, back),
            Outcome::Rejected(_) => return self.only_say(draft, None, back),
        };
        // Nothing of a sequence is handed in unless all of it can be.
        let mut plan = Vec::new();
        for command in &understood {
            match self.ears.wanted(command) {
                Ok(calls) => plan.push((command.clone(), calls)),
                Err(BindError::Missing(missing)) if understood.len() == 1 => {
                    return self.ask_for(draft, command.clone(), missing, back);
                }
                Err(BindError::Missing(missing)) => {
                    draft.missing = missing;
                    return self.only_say(draft, None, back);
                }
                Err(error) => return self.only_say(draft, Some(words::bind_error(&error)), back),
            }
        }
        self.act(draft, plan, back).await;
    }

    /// Nothing was understood: the nearest two are named, and the next thing that this speaker says may choose.
    fn ask_nearest(&mut self, mut draft: Draft, back: oneshot::Sender<Value>) {
        draft.resolution.candidates.truncate(NEAREST_MAX);
        let candidates: Vec<String> = draft.resolution.candidates.iter().map(|one| one.command.clone()).collect();
        if !candidates.is_empty() {
            self.open(&draft.said, Dialogue::Which { text: draft.said.text.clone(), candidates });
        }
        self.only_say(draft, None, back);
    }

    /// Hands what no command fits to the language model. Whatever it calls walks through the gate as its own wish.
    fn ask_language_model(&mut self, draft: Draft, back: oneshot::Sender<Value>) {
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            return self.only_say(draft, Some(words::BUSY.clone()), back);
        };
        let mut heard = row(&draft, None);
        heard.cause = Some("agent".into());
        self.writer.append_or_count(Entry::relaxed(heard));
        let later = self.later.clone();
        self.under_way.spawn(async move {
            later.answer(draft, back).await;
            drop(place);
            None
        });
    }

    /// Asks for what is missing; the next thing that this speaker says may be it.
    fn ask_for(
        &mut self,
        mut draft: Draft,
        understood: Understood,
        missing: Vec<String>,
        back: oneshot::Sender<Value>,
    ) {
        let text = draft.said.text.clone();
        draft.missing = missing.clone();
        self.open(&draft.said, Dialogue::Missing { text, understood, missing });
        self.only_say(draft, None, back);
    }

    /// Hands what could be learned to the learner, and remembers what was not understood.
    fn notice(&mut self, said: &Said, resolution: &Resolution, now: Tick) {
        if !said.reins.converses {
            return;
        }
        let before = self.missed.remove(&said.speaker);
        if let (Some(before), Some(command)) = (before, resolution.command()) {
            let source = if dialogue::takes_back(&said.text) { Source::Correction } else { Source::Miss };
            let by = said.speaker.clone();
            self.learner.noticed(Noticed { heard: before.text, command: command.command.clone(), source, by });
        }
        let missed = match resolution.outcome {
            Outcome::Ambiguous | Outcome::Rejected(Refused::NoCommand) => true,
            Outcome::Command(_)
            | Outcome::Incomplete { .. }
            | Outcome::Sequence(_)
            | Outcome::Knowledge
            | Outcome::Rejected(Refused::Hazard(_) | Refused::NoUtterance) => false,
        };
        if missed {
            if self.missed.len() >= SPEAKERS_MAX
                && let Some(oldest) = self.missed.iter().min_by_key(|(_, one)| one.until).map(|(name, _)| name.clone())
            {
                self.missed.remove(&oldest);
            }
            let missed = Missed { text: said.text.clone(), until: now.after(MISS_PATIENCE) };
            self.missed.insert(said.speaker.clone(), missed);
        }
    }

    async fn act(&mut self, draft: Draft, plan: Vec<(Understood, Vec<Wanted>)>, back: oneshot::Sender<Value>) {
        let makes_safe = plan.iter().all(|(_, calls)| calls.iter().all(|call| self.ears.is_protective(call)));
        let place = Arc::clone(&self.places).try_acquire_owned();
        let place = match place {
            Err(_) if makes_safe => Arc::clone(&self.safe_places).try_acquire_owned(),
            place => place,
        };
        let Ok(place) = place else {
            return self.only_say(draft, Some(words::BUSY.clone()), back);
        };
        let mediator = self.mediator.patient(if makes_safe { SAFE_PATIENCE } else { Duration::ZERO });
        let asker = Asker { via: draft.said.via, name: draft.said.speaker.clone() };
        let calls: Vec<Wanted> = plan.iter().flat_map(|(_, calls)| calls.clone()).collect();
        let reins = draft.said.reins;
        let who = Who { mode: reins.mode, ..Who::of(asker, reins.answerable) };
        let taken = match mediator.open(who).await {
            Ok(run) => mediator.submit(run, calls).await.map(|submitted| (run, submitted)),
            Err(error) => Err(error),
        };
        let (run, submitted) = match taken {
            Ok(taken) => taken,
            Err(error) => return self.only_say(draft, Some(words::not_taken(&error)), back),
        };
        let mut heard = row(&draft, Some(run));
        heard.run = Some(run);
        self.writer.append_or_count(Entry::relaxed(heard));
        if let [open] = submitted.questions.as_slice() {
            self.open(&draft.said, Dialogue::Confirm(open.question.id));
        }
        let mediator = self.mediator.clone();
        self.under_way.spawn(async move {
            let answer = follow(draft, plan, run, submitted, back, &mediator).await;
            mediator.close_run(run).await;
            drop((answer, place));
            None
        });
    }

    fn open(&mut self, said: &Said, dialogue: Dialogue) {
        if !said.reins.converses {
            return;
        }
        if self.dialogues.len() >= SPEAKERS_MAX
            && let Some(oldest) =
                self.dialogues.iter().min_by_key(|(_, open)| open.until).map(|(speaker, _)| speaker.clone())
        {
            self.dialogues.remove(&oldest);
        }
        let until = clock::now().after(self.ears.patience);
        self.dialogues.insert(said.speaker.clone(), Open { dialogue, until });
    }

    fn confirm(&mut self, said: Said, question: QuestionId, answer: Answer, back: oneshot::Sender<Value>) {
        let mediator = self.mediator.clone();
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            let _ = back.send(words::plain(&said, &words::BUSY));
            return;
        };
        self.under_way.spawn(async move {
            let by = format!("{} ({})", said.speaker, said.via.word());
            let value = match mediator.answer(question, answer, By::said(by)).await {
                Ok((AnswerTaken::Obeyed, Some(settled))) => match settled.await {
                    Ok(answered) => words::confirmed(&said, question, answer, &answered),
                    Err(_) => words::plain(&said, &words::STOPPING),
                },
                Ok((AnswerTaken::Obeyed, None)) => words::plain(&said, &words::STOPPING),
                Ok((AnswerTaken::Waits | AnswerTaken::Ignored(Ignored::UnknownPerson | Ignored::SamePerson), _)) => {
                    words::plain(&said, &words::TWO_PERSONS)
                }
                Ok((AnswerTaken::Ignored(_), _)) => words::plain(&said, &words::TOO_LATE),
                Err(error) => words::plain(&said, &words::not_taken(&error)),
            };
            let _ = back.send(value);
            drop(place);
            None
        });
    }

    /// Writes down what was heard and answers; nothing is executed.
    fn only_say(&mut self, draft: Draft, message: Option<words::Text>, back: oneshot::Sender<Value>) {
        let (tell, seq) = oneshot::channel();
        let entry = Entry { row: row(&draft, None), now: true, tell: Tell::Caller(tell), receipt: None };
        self.writer.append_or_count(entry);
        let message = message.unwrap_or_else(|| words::of(&draft.resolution, &draft.missing, &self.ears.understanding));
        self.under_way.spawn(async move {
            // A log that cannot be written takes nothing from a sentence that does nothing.
            let evidence = match tokio::time::timeout(words::LOG_PATIENCE, seq).await {
                Ok(Ok(Ok(seq))) => Some(seq),
                Ok(_) | Err(_) => None,
            };
            let mut value = skeleton(&draft);
            value["message"] = message.pick(draft.said.lang).into();
            value["evidence"] = evidence.map(|seq: Seq| seq.0).into();
            let _ = back.send(value);
            None
        });
    }
}

/// Follows a batch to its end, or to its question.
async fn follow(
    draft: Draft,
    plan: Vec<(Understood, Vec<Wanted>)>,
    run: RunId,
    submitted: Submitted,
    back: oneshot::Sender<Value>,
    mediator: &Mediator,
) {
    let mut value = skeleton(&draft);
    value["run"] = run.to_string().into();
    let asked = submitted.questions.first();
    if let Some(open) = asked {
        value["decision"] = "ask".into();
        value["question"] = open.question.id.to_string().into();
        if !draft.said.wait {
            let what: Vec<&str> = plan.iter().map(|(command, _)| command.command.as_str()).collect();
            value["message"] = words::asked(open, &what).pick(draft.said.lang).into();
            let _ = back.send(value);
            // The run stays open until the question is answered, or has run out.
            let _ = submitted.replies.await;
            return;
        }
    }
    let mut back = back;
    let answered = tokio::select! {
        answered = submitted.replies => answered,
        // A log that cannot be written holds the reply of what changed something; the person is not held with it.
        () = tokio::time::sleep_until(tokio::time::Instant::now() + REPLY_PATIENCE), if asked.is_none() => {
            value["message"] = words::NOT_TOLD.pick(draft.said.lang).into();
            let _ = back.send(value);
            return;
        }
        // Whoever asked has gone away: what has not started will not.
        () = back.closed() => {
            mediator.cancel(submitted.batch).await;
            return;
        }
    };
    let Ok(answered) = answered else {
        value["message"] = words::STOPPING.pick(draft.said.lang).into();
        let _ = back.send(value);
        return;
    };
    words::ended(
        &mut value,
        &plan_of(&plan),
        &answered,
        draft.said.lang,
        matches!(draft.resolution.outcome, Outcome::Sequence(_)),
    );
    let _ = back.send(value);
}

/// The commands with how many calls each came to.
fn plan_of(plan: &[(Understood, Vec<Wanted>)]) -> Vec<(&Understood, usize)> {
    plan.iter().map(|(command, calls)| (command, calls.len())).collect()
}

/// The answer before anything has become of it (`cli.md`, `say --json`).
fn skeleton(draft: &Draft) -> Value {
    let resolution = &draft.resolution;
    let understood = words::understood(resolution);
    let outcome = if draft.missing.is_empty() { words::outcome(&resolution.outcome) } else { "incomplete" };
    let mut value = json!({
        "query": draft.said.text,
        "outcome": outcome,
        "command": understood.map(|command| command.command.clone()),
        "slots": understood.map_or_else(|| json!({}), words::slots),
        "decision": null,
        "question": null,
        "result": null,
        "output": null,
        "message": "",
        "evidence": null,
        "run": null,
    });
    if !draft.missing.is_empty() {
        value["missing"] = draft.missing.clone().into();
    }
    if outcome == "ambiguous" {
        let names: Vec<_> = resolution.candidates.iter().map(|candidate| candidate.command.clone()).collect();
        value["candidates"] = names.into();
    }
    value
}

/// What was heard, as evidence.
fn row(draft: &Draft, run: Option<RunId>) -> Row {
    let said = &draft.said;
    let mut row = Row::new(super::stamp::now(), "heard");
    row.run = run;
    row.to =
        Some(if draft.missing.is_empty() { words::outcome(&draft.resolution.outcome) } else { "incomplete" }.into());
    row.cause = Some(draft.resolution.stage.name().into());
    let commands: Vec<Value> = words::all(&draft.resolution)
        .into_iter()
        .map(|command| json!({ "command": command.command, "slots": words::slots(command) }))
        .collect();
    row.detailed(&json!({
        "query": said.text,
        "speaker": said.speaker,
        "place": said.place,
        "via": said.via.word(),
        "commands": commands,
        "missing": draft.missing,
        "without_model": draft.without_model.as_ref().map(ToString::to_string),
        "why": words::refused(&draft.resolution.outcome),
    }))
}

/// A tool call's end in the words of `say`.
fn result(answered: &[Answered]) -> &'static str {
    // The first that did not go well speaks for all: nobody is told "done" of something that is not.
    answered.iter().map(|answered| answered.reply.ending.word()).find(|word| *word != "done").unwrap_or("done")
}

/// A name that the product itself writes.
#[must_use]
pub fn tool_name(name: &str) -> Option<ToolName> {
    ToolName::new(name).ok()
}

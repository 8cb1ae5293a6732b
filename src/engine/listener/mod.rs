//! Owns the active commands and the short dialogues: an operator's sentence comes in, wishes go to the mediator.
//!
//! Voice has no private way to act: what is understood becomes calls of tools like anybody else's. Two utterances are
//! never mixed: a confirmation answers the one question that this speaker was asked last, or nothing.

mod words;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use interlock_domain::command::bind::{self, BindError, Step};
use interlock_domain::command::cascade::{self, Stages, Walk};
use interlock_domain::command::resolution::{Likeness, Outcome, Resolution, Understood};
use interlock_domain::command::understanding::Understanding;
use interlock_domain::device::table::Devices;
use interlock_domain::gate::docket::Answer;
use interlock_domain::id::{QuestionId, RunId, Seq, ToolName};
use interlock_domain::request::{Asker, Via};
use interlock_domain::time::Tick;
use serde_json::{Map, Value, json};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinSet;

use super::handle::{AnswerTaken, Answered, Mediator, NotTaken, Submitted, Wanted};
use crate::record::Row;
use crate::store::queue::{Entry, Tell, Writer};
use crate::sys::clock;
pub use words::Lang;

/// How many sentences may wait to be understood: more than a hall full of people says in the time it takes.
const INBOX_LEN_MAX: usize = 64;

/// How many sentences may be under way, understood and waiting for their actions to end.
const UNDER_WAY_MAX: usize = 256;

/// How many speakers are remembered; the one who was silent longest is forgotten first.
const SPEAKERS_MAX: usize = 256;

/// How long a confirmation may follow its question by voice. After that a person has to name the question.
const DIALOGUE_PATIENCE: Duration = Duration::from_secs(30);

/// How long an answer waits for its actions to end and to be recorded: longer than any tool may take.
const REPLY_PATIENCE: Duration = Duration::from_secs(180);

/// What is understood, and what it is bound to. Swapped as a whole.
pub struct Ears {
    understanding: Understanding,
    binds: BTreeMap<String, Vec<Step>>,
    devices: Arc<Devices>,
}

impl Ears {
    /// The commands, and the devices that they may name.
    #[must_use]
    pub fn new(understanding: Understanding, binds: BTreeMap<String, Vec<Step>>, devices: Arc<Devices>) -> Ears {
        Ears { understanding, binds, devices }
    }
}

/// One sentence.
#[derive(Debug)]
pub struct Said {
    /// The sentence as it was heard or typed.
    pub text: String,
    /// Who said it: a confirmation fits the questions of its speaker only.
    pub speaker: String,
    /// The way it came in.
    pub via: Via,
    /// The language of the answer.
    pub lang: Lang,
    /// Wait for questions to be answered.
    pub wait: bool,
}

enum Message {
    Hear { said: Said, back: oneshot::Sender<Value> },
    Swap { ears: Box<Ears>, back: oneshot::Sender<()> },
}

/// The way to the listener. Cheap to clone.
#[derive(Clone)]
pub struct Listener {
    inbox: mpsc::Sender<Message>,
}

impl Listener {
    /// A handle and the owner, which the caller runs.
    #[must_use]
    pub fn new(ears: Ears, mediator: Mediator, writer: Writer) -> (Listener, Owner) {
        let (inbox, outlet) = mpsc::channel(INBOX_LEN_MAX);
        let owner = Owner {
            inbox: outlet,
            ears,
            mediator,
            writer,
            dialogues: BTreeMap::new(),
            under_way: JoinSet::new(),
            places: Arc::new(Semaphore::new(UNDER_WAY_MAX)),
        };
        (Listener { inbox }, owner)
    }

    /// Understands a sentence, does what it says if the gate lets it, and answers as `say --json` does.
    ///
    /// # Errors
    /// When too many sentences wait, or the daemon is stopping.
    pub async fn hear(&self, said: Said) -> Result<Value, NotTaken> {
        let (back, answer) = oneshot::channel();
        self.inbox.try_send(Message::Hear { said, back }).map_err(not_taken)?;
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

/// The one question that a speaker may answer by voice.
struct Dialogue {
    question: QuestionId,
    until: Tick,
}

/// The owner.
pub struct Owner {
    inbox: mpsc::Receiver<Message>,
    ears: Ears,
    mediator: Mediator,
    writer: Writer,
    dialogues: BTreeMap<String, Dialogue>,
    under_way: JoinSet<()>,
    places: Arc<Semaphore>,
}

/// An answer as it grows.
struct Draft {
    said: Said,
    resolution: Resolution,
    missing: Vec<String>,
}

impl Owner {
    /// Runs until every handle is gone.
    pub async fn run(mut self) {
        loop {
            tokio::select! {
                Some(_) = self.under_way.join_next() => {}
                message = self.inbox.recv() => match message {
                    None => break,
                    Some(Message::Hear { said, back }) => self.hear(said, back).await,
                    Some(Message::Swap { ears, back }) => {
                        self.ears = *ears;
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
        self.dialogues.retain(|_, dialogue| dialogue.until > now);
        let dialogue = self.dialogues.remove(&said.speaker);
        if let (Some(dialogue), Some(answer)) = (&dialogue, words::answer(&said.text)) {
            return self.confirm(said, dialogue.question, answer, back);
        }
        let resolution = self.understand(&said.text);
        let mut draft = Draft { said, resolution, missing: Vec::new() };
        let understood = match &draft.resolution.outcome {
            Outcome::Command(understood) => vec![understood.clone()],
            Outcome::Sequence(several) => several.clone(),
            Outcome::Incomplete { missing, .. } => {
                draft.missing = missing.clone();
                return self.only_say(draft, None, back);
            }
            Outcome::Knowledge | Outcome::Ambiguous | Outcome::Rejected(_) => return self.only_say(draft, None, back),
        };
        // Nothing of a sequence is handed in unless all of it can be.
        let mut plan = Vec::new();
        for command in &understood {
            match self.wanted(command) {
                Ok(calls) => plan.push((command.clone(), calls)),
                Err(BindError::Missing(missing)) => {
                    draft.missing = missing;
                    return self.only_say(draft, None, back);
                }
                Err(error) => return self.only_say(draft, Some(words::bind_error(&error)), back),
            }
        }
        self.act(draft, plan, back).await;
    }

    fn understand(&self, text: &str) -> Resolution {
        let walk = Walk::new(&self.ears.understanding, text, Stages::PURE);
        match walk.next() {
            cascade::Step::Done(resolution) => resolution,
            // No stage of this build asks for more.
            cascade::Step::Classify(_) | cascade::Step::Retrieve(_) => {
                Resolution::rejected(interlock_domain::command::resolution::Refused::NoCommand)
            }
        }
    }

    fn wanted(&self, command: &Understood) -> Result<Vec<Wanted>, BindError> {
        let steps = self.ears.binds.get(&command.command).ok_or(BindError::Nothing)?;
        let slots: Map<String, Value> =
            command.slots.iter().map(|(name, value)| (name.clone(), value.to_json())).collect();
        let protective = self.ears.understanding.definition(&command.command).is_some_and(|known| known.protective)
            && command.likeness != Likeness::Near;
        let calls = bind::bind(steps, &slots, &self.ears.devices)?;
        Ok(calls.into_iter().map(|(tool, input)| Wanted { tool, input, protective }).collect())
    }

    async fn act(&mut self, draft: Draft, plan: Vec<(Understood, Vec<Wanted>)>, back: oneshot::Sender<Value>) {
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            return self.only_say(draft, Some(words::BUSY.clone()), back);
        };
        let asker = Asker { via: draft.said.via, name: draft.said.speaker.clone() };
        let calls: Vec<Wanted> = plan.iter().flat_map(|(_, calls)| calls.clone()).collect();
        let taken = match self.mediator.open_run(asker, true).await {
            Ok(run) => self.mediator.submit(run, calls).await.map(|submitted| (run, submitted)),
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
            let until = clock::now().after(DIALOGUE_PATIENCE);
            self.remember(draft.said.speaker.clone(), Dialogue { question: open.question.id, until });
        }
        let mediator = self.mediator.clone();
        self.under_way.spawn(async move {
            let answer = follow(draft, plan, run, submitted, back, &mediator).await;
            mediator.close_run(run).await;
            drop((answer, place));
        });
    }

    fn remember(&mut self, speaker: String, dialogue: Dialogue) {
        if self.dialogues.len() >= SPEAKERS_MAX
            && let Some(oldest) =
                self.dialogues.iter().min_by_key(|(_, dialogue)| dialogue.until).map(|(speaker, _)| speaker.clone())
        {
            self.dialogues.remove(&oldest);
        }
        self.dialogues.insert(speaker, dialogue);
    }

    fn confirm(&mut self, said: Said, question: QuestionId, answer: Answer, back: oneshot::Sender<Value>) {
        let mediator = self.mediator.clone();
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            let _ = back.send(words::plain(&said, &words::BUSY));
            return;
        };
        self.under_way.spawn(async move {
            let by = format!("{} ({})", said.speaker, said.via.word());
            let value = match mediator.answer(question, answer, by).await {
                Ok((AnswerTaken::Obeyed, Some(settled))) => match settled.await {
                    Ok(answered) => words::confirmed(&said, question, answer, &answered),
                    Err(_) => words::plain(&said, &words::STOPPING),
                },
                Ok((AnswerTaken::Obeyed, None)) => words::plain(&said, &words::STOPPING),
                Ok((AnswerTaken::Ignored(_), _)) => words::plain(&said, &words::TOO_LATE),
                Err(error) => words::plain(&said, &words::not_taken(&error)),
            };
            let _ = back.send(value);
            drop(place);
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
            mediator.cancel(submitted.batch);
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
        "via": said.via.word(),
        "commands": commands,
        "missing": draft.missing,
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

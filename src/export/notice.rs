//! Alarms and questions, told once each: to the journal, and to whoever looks at the list.
//!
//! What stands is read from where it is kept (the alarms of `state.db`, the mediator's questions) and held against what
//! was told before: so each is told once, with its end, and nobody who raises one has to know who wants to hear it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use interlock_domain::id::Seq;
use interlock_domain::request::shown::plain;
use interlock_domain::time::Wall;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior};

use super::told;
use crate::engine::handle::Mediator;
use crate::engine::keeper::{Alarm, Keeper, Position};
use crate::engine::log::Acks;
use crate::record::rfc3339;
use crate::sys::clock;
use crate::sys::journal::Journal;

/// The name under which the newest alarm that was told is kept.
const SINK: &str = "notice";

/// What is raised together is looked at together ...
const GATHER: Duration = Duration::from_millis(300);
/// ... and without any sign at least so often.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// What stands and is shown at most; more than a person can look through.
const STANDING_MAX: usize = 256;

/// The longest text of one, in characters.
const TEXT_LEN_MAX: usize = 500;

/// What it is about: each has an entry in the journal's catalogue (`systemd/interlock.catalog`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A task is silent.
    Zombie,
    /// A task is gone.
    Dead,
    /// A person is asked.
    Question,
    /// The log or its disk.
    Evidence,
    /// Any other alarm.
    Alarm,
}

/// The entry that one is over.
const OVER: &str = "ce739ba3a4f944369b1f881dddc25789";

impl Kind {
    /// As it is told.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Kind::Zombie => "zombie",
            Kind::Dead => "dead",
            Kind::Question => "question",
            Kind::Evidence => "evidence",
            Kind::Alarm => "alarm",
        }
    }

    fn message_id(self) -> &'static str {
        match self {
            Kind::Zombie => "7cb5cee825c94df5b8490a8fb026a85d",
            Kind::Dead => "a7e400b882ec4c67805b1d974141863e",
            Kind::Question => "2369640878874ac0b99e329ea3a63511",
            Kind::Evidence => "6a2dcea4834e4606946ac471fa7fac96",
            Kind::Alarm => "9963d36edf0d4e63b104aca3fb46f94c",
        }
    }

    /// As `syslog(3)` counts.
    fn priority(self) -> &'static str {
        match self {
            Kind::Dead | Kind::Evidence => "2",
            Kind::Zombie => "3",
            Kind::Alarm => "4",
            Kind::Question => "5",
        }
    }

    fn of(alarm: &Alarm) -> Kind {
        let of_task = alarm.source.starts_with("task:");
        match alarm.source.split(':').next() {
            Some("task") if of_task && alarm.text.contains(" is ZOMBIE") => Kind::Zombie,
            Some("task") if of_task && alarm.text.contains(" is DEAD") => Kind::Dead,
            Some("evidence" | "disk") => Kind::Evidence,
            Some(_) | None => Kind::Alarm,
        }
    }
}

/// Something that stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// Its name, never another's.
    pub id: String,
    /// What it is about.
    pub kind: Kind,
    /// What raised it.
    pub source: String,
    /// One sentence.
    pub text: String,
    /// Since when, where that is known.
    pub raised: Option<Wall>,
}

impl Notice {
    fn of(alarm: &Alarm) -> Notice {
        Notice {
            id: format!("a{}", alarm.id),
            kind: Kind::of(alarm),
            source: plain(&alarm.source, TEXT_LEN_MAX),
            text: plain(&alarm.text, TEXT_LEN_MAX),
            raised: Some(alarm.raised),
        }
    }

    /// For receivers.
    #[must_use]
    pub fn to_json(&self) -> Value {
        json!({
            "id": self.id,
            "kind": self.kind.word(),
            "source": self.source,
            "text": self.text,
            "raised": self.raised.map(rfc3339),
        })
    }
}

/// An alarm stands while its condition does. A task that is gone stays gone: it stands until a person has taken note.
fn stands(alarm: &Alarm) -> bool {
    alarm.cleared.is_none() && !(Kind::of(alarm) == Kind::Dead && alarm.acknowledged.is_some())
}

/// What was told.
#[derive(Debug)]
struct Told {
    standing: BTreeMap<String, Notice>,
    /// Alarms up to this number were told by an earlier life, or by this one.
    newest: u64,
}

/// A change.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Change {
    Raised(Notice),
    Over(Notice),
}

impl Told {
    /// What to tell now that these stand. What an earlier life told is known and not told again.
    fn look(&mut self, alarms: &[Alarm], questions: Vec<Notice>) -> Vec<Change> {
        let mut now: BTreeMap<String, Notice> = BTreeMap::new();
        let mut changes = Vec::new();
        let mut newest = self.newest;
        for alarm in alarms.iter().filter(|alarm| stands(alarm)).take(STANDING_MAX) {
            let notice = Notice::of(alarm);
            if alarm.id > self.newest {
                changes.push(Change::Raised(notice.clone()));
                newest = newest.max(alarm.id);
            }
            now.insert(notice.id.clone(), notice);
        }
        self.newest = newest;
        for question in questions.into_iter().take(STANDING_MAX) {
            if !self.standing.contains_key(&question.id) {
                changes.push(Change::Raised(question.clone()));
            }
            now.insert(question.id.clone(), question);
        }
        let over = self.standing.values().filter(|notice| !now.contains_key(&notice.id));
        changes.extend(over.cloned().map(Change::Over));
        self.standing = now;
        changes
    }
}

/// What the teller works with.
pub struct Parts {
    /// Where alarms are kept.
    pub keeper: Keeper,
    /// Where questions are.
    pub mediator: Mediator,
    /// The sign that something happened.
    pub acks: watch::Receiver<Acks>,
    /// The daemon stops.
    pub stop: watch::Receiver<bool>,
    /// The journal, where there is one.
    pub journal: Option<Journal>,
}

/// Tells.
pub struct Teller {
    parts: Parts,
    standing: watch::Sender<Arc<[Notice]>>,
}

impl Teller {
    /// One, which the caller runs, and what stands.
    #[must_use]
    pub fn new(parts: Parts) -> (Teller, watch::Receiver<Arc<[Notice]>>) {
        let (standing, watched) = watch::channel(Arc::from([]));
        (Teller { parts, standing }, watched)
    }

    /// Tells until the daemon stops.
    pub async fn run(mut self) {
        let kept = self.parts.keeper.with(|state| state.position(SINK)).await;
        // Where it cannot be read, what stands is told once more: better twice than not at all.
        let newest = kept.map_or(0, |position| position.seq.0);
        let mut known = Told { standing: BTreeMap::new(), newest };
        let mut stop = self.parts.stop.clone();
        let mut every = tokio::time::interval(LOOK_EVERY);
        every.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            self.look(&mut known).await;
            tokio::select! {
                () = told(&mut stop) => return,
                _ = every.tick() => {}
                changed = self.parts.acks.changed() => if changed.is_err() {
                    return;
                },
            }
            tokio::time::sleep_until(Instant::now() + GATHER).await;
        }
    }

    async fn look(&mut self, known: &mut Told) {
        self.parts.acks.mark_unchanged();
        let Ok(alarms) = self.parts.keeper.with(|state| state.standing_alarms()).await else { return };
        let Ok(open) = self.parts.mediator.questions().await else { return };
        let questions = open.iter().map(|open| {
            let asked = &open.question;
            Notice {
                id: asked.id.to_string(),
                kind: Kind::Question,
                source: "ask".to_owned(),
                text: plain(&format!("{} {}: {}", asked.tool, asked.shown, asked.reason), TEXT_LEN_MAX),
                raised: None,
            }
        });
        let before = known.newest;
        let changes = known.look(&alarms, questions.collect());
        for change in &changes {
            self.tell(change);
        }
        let standing: Arc<[Notice]> = known.standing.values().cloned().collect();
        self.standing.send_if_modified(|shown| {
            let is_new = *shown != standing;
            *shown = standing;
            is_new
        });
        if known.newest > before {
            let position = Position { seq: Seq(known.newest), dropped: 0 };
            let at = clock::wall();
            if let Err(error) = self.parts.keeper.later(move |state| state.keep_position(SINK, position, at)) {
                tracing::warn!(%error, "that alarms were told is not kept: the next start tells them again");
            }
        }
    }

    fn tell(&self, change: &Change) {
        let (notice, message_id, priority, word) = match change {
            Change::Raised(notice) => (notice, notice.kind.message_id(), notice.kind.priority(), "raised"),
            Change::Over(notice) => (notice, OVER, "6", "over"),
        };
        let message = match change {
            Change::Raised(_) => notice.text.clone(),
            Change::Over(_) => format!("over: {}", notice.text),
        };
        let fields = [
            ("MESSAGE", message.as_str()),
            ("MESSAGE_ID", message_id),
            ("PRIORITY", priority),
            ("SYSLOG_IDENTIFIER", "interlock"),
            ("INTERLOCK_NOTICE", notice.id.as_str()),
            ("INTERLOCK_KIND", notice.kind.word()),
            ("INTERLOCK_STATE", word),
            ("INTERLOCK_SOURCE", notice.source.as_str()),
            ("INTERLOCK_TEXT", notice.text.as_str()),
        ];
        if self.parts.journal.as_ref().is_some_and(|journal| journal.send(&fields)) {
            return;
        }
        tracing::warn!(kind = "NOTICE", notice = notice.id, about = notice.kind.word(), state = word, "{message}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alarm(id: u64, source: &str, text: &str) -> Alarm {
        let (source, text) = (source.to_owned(), text.to_owned());
        Alarm { id, source, text, raised: Wall(0), acknowledged: None, by: None, cleared: None }
    }

    fn told(changes: Vec<Change>) -> Vec<String> {
        let line = |change: Change| match change {
            Change::Raised(notice) => format!("{} {}", notice.id, notice.kind.word()),
            Change::Over(notice) => format!("{} over", notice.id),
        };
        changes.into_iter().map(line).collect()
    }

    fn question(id: &str) -> Notice {
        Notice { id: id.into(), kind: Kind::Question, source: "ask".into(), text: "t".into(), raised: None }
    }

    #[test]
    fn each_is_told_once_with_its_end() {
        let mut known = Told { standing: BTreeMap::new(), newest: 2 };
        let zombie = alarm(3, "task:t1", "t1 is ZOMBIE: DEADLOCK");
        let dead = alarm(4, "task:t2", "t2 is DEAD: GONE");
        let old = alarm(2, "disk", "the disk is nearly full");
        let all = [old.clone(), zombie.clone(), dead.clone()];
        assert_eq!(told(known.look(&all, vec![question("q7")])), ["a3 zombie", "a4 dead", "q7 question"]);
        assert_eq!(told(known.look(&all, vec![question("q7")])), [""; 0]);
        let noted = |alarm: &Alarm| Alarm { acknowledged: Some(Wall(1)), ..alarm.clone() };
        // A silent task that a person knows of is still silent; one that is gone is dealt with.
        let all = [old, noted(&zombie), noted(&dead)];
        assert_eq!(told(known.look(&all, Vec::new())), ["a4 over", "q7 over"]);
        let over = Alarm { cleared: Some(Wall(2)), ..zombie };
        assert_eq!(told(known.look(&[over], Vec::new())), ["a2 over", "a3 over"]);
        assert_eq!(known.newest, 4);
    }

    #[test]
    fn each_kind_is_in_the_catalogue_in_both_languages() {
        let catalogue = include_str!("../../systemd/interlock.catalog");
        let kinds = [Kind::Zombie, Kind::Dead, Kind::Question, Kind::Evidence, Kind::Alarm];
        for id in kinds.map(Kind::message_id).into_iter().chain([OVER]) {
            assert_eq!(id.len(), 32);
            for head in [format!("-- {id}\nSubject: "), format!("-- {id} zh_CN\nSubject: ")] {
                assert_eq!(catalogue.matches(&head).count(), 1, "{head}");
            }
        }
        assert_eq!(catalogue.lines().filter(|line| line.starts_with("-- ")).count(), 2 * (kinds.len() + 1));
        let words: Vec<&str> = catalogue.split('@').skip(1).step_by(2).collect();
        assert!(words.iter().all(|word| ["INTERLOCK_TEXT", "INTERLOCK_SOURCE"].contains(word)), "{words:?}");
    }
}

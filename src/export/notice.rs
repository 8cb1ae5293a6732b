//! Alarms and questions, told once each: to the journal, and to whoever looks at the list.
//!
//! What stands is read from where it is kept (the alarms of `state.db`, the mediator's questions) and held against what
//! was told before: so each is told once, with its end, and nobody who raises one has to know who wants to hear it.

pub(super) mod ledger;

use std::sync::Arc;
use std::time::Duration;

use interlock_domain::request::shown::plain;
use interlock_domain::time::Wall;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior};

use super::told;
use crate::engine::handle::Mediator;
use crate::engine::keeper::{Alarm, Keeper};
use crate::engine::log::Acks;
use crate::record::rfc3339;
use crate::sys::clock;
use crate::sys::journal::Journal;
use ledger::{Ledger, Message, Turn};

/// The name under which what was told is kept.
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
    /// All of them.
    pub const ALL: [Kind; 5] = [Kind::Zombie, Kind::Dead, Kind::Question, Kind::Evidence, Kind::Alarm];

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

    /// The kind of a word.
    #[must_use]
    pub fn of_word(word: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.word() == word)
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

/// What stands now, as it is handed round; `None` before anybody has looked.
pub type Board = Option<Arc<[Notice]>>;

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
    board: watch::Sender<Board>,
    ledger: Ledger,
    /// Alarms up to this number were told by a build that kept no ledger.
    told_before: u64,
}

impl Teller {
    /// One, which the caller runs, and what stands.
    #[must_use]
    pub fn new(parts: Parts) -> (Teller, watch::Receiver<Board>) {
        let (board, watched) = watch::channel(None);
        (Teller { parts, board, ledger: Ledger::default(), told_before: 0 }, watched)
    }

    /// Tells until the daemon stops.
    pub async fn run(mut self) {
        // Where it cannot be read, what stands is told once more: better twice than not at all.
        self.told_before =
            self.parts.keeper.with(|state| state.position(SINK)).await.map_or(0, |position| position.seq.0);
        self.ledger = ledger::kept(&self.parts.keeper, SINK).await.unwrap_or_default();
        let mut stop = self.parts.stop.clone();
        let mut every = tokio::time::interval(LOOK_EVERY);
        every.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            self.look().await;
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

    async fn look(&mut self) {
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
        let alarms: Vec<&Alarm> = alarms.iter().filter(|alarm| stands(alarm)).take(STANDING_MAX).collect();
        let told_before = alarms.iter().take_while(|alarm| alarm.id <= self.told_before).count();
        let standing: Arc<[Notice]> = alarms.into_iter().map(Notice::of).chain(questions.take(STANDING_MAX)).collect();
        self.ledger.look(&standing, clock::wall());
        for notice in &standing[..told_before] {
            self.ledger.taken(&notice.id, Turn::Raised);
        }
        while let Some(message) = self.ledger.next() {
            self.tell(&message);
            self.ledger.taken(&message.notice.id, message.turn);
        }
        self.board.send_if_modified(|shown| {
            let is_new = shown.as_ref() != Some(&standing);
            *shown = Some(standing);
            is_new
        });
        if let Err(error) = self.ledger.keep(&self.parts.keeper, SINK) {
            tracing::warn!(%error, "that alarms were told is not kept: the next start tells them again");
        }
    }

    fn tell(&self, told: &Message) {
        let (notice, word) = (&told.notice, told.turn.word());
        let (message_id, priority, message) = match told.turn {
            Turn::Raised => (notice.kind.message_id(), notice.kind.priority(), notice.text.clone()),
            Turn::Over => (OVER, "6", format!("over: {}", notice.text)),
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

    #[test]
    fn a_silent_task_that_a_person_knows_of_still_stands_and_one_that_is_gone_is_dealt_with() {
        let alarm = |source: &str, text: &str, acknowledged: Option<Wall>| Alarm {
            id: 1,
            source: source.to_owned(),
            text: text.to_owned(),
            raised: Wall(0),
            acknowledged,
            by: None,
            cleared: None,
        };
        let check = |source: &str, text: &str, kind: Kind, want: [bool; 3]| {
            let (open, noted) = (alarm(source, text, None), alarm(source, text, Some(Wall(1))));
            let over = Alarm { cleared: Some(Wall(2)), ..open.clone() };
            assert_eq!((Kind::of(&open), [&open, &noted, &over].map(stands)), (kind, want), "{source} {text}");
        };
        check("task:t1", "t1 is ZOMBIE: DEADLOCK", Kind::Zombie, [true, true, false]);
        check("task:t2", "t2 is DEAD: GONE", Kind::Dead, [true, false, false]);
        check("disk", "the disk is nearly full", Kind::Evidence, [true, true, false]);
        check("evidence", "TAIL_LOST: 3 rows", Kind::Evidence, [true, true, false]);
        check("monitor", "t2 is DEAD", Kind::Alarm, [true, true, false]);
    }

    #[test]
    fn each_kind_is_in_the_catalogue_in_both_languages() {
        let catalogue = include_str!("../../systemd/interlock.catalog");
        for id in Kind::ALL.map(Kind::message_id).into_iter().chain([OVER]) {
            assert_eq!(id.len(), 32);
            for head in [format!("-- {id}\nSubject: "), format!("-- {id} zh_CN\nSubject: ")] {
                assert_eq!(catalogue.matches(&head).count(), 1, "{head}");
            }
        }
        assert_eq!(catalogue.lines().filter(|line| line.starts_with("-- ")).count(), 2 * (Kind::ALL.len() + 1));
        let words: Vec<&str> = catalogue.split('@').skip(1).step_by(2).collect();
        assert!(words.iter().all(|word| ["INTERLOCK_TEXT", "INTERLOCK_SOURCE"].contains(word)), "{words:?}");
    }
}

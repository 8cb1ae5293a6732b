//! What one receiver of notices was told: each notice once, and its end once.
//!
//! Pure but for the way to `state.db`, where it is kept: what was raised and what was told survive a restart, so that
//! the end of an alarm that was cleared while the daemon was down is told too. What comes and goes while the receiver
//! is away is told when it is back, both its beginning and its end, as far as there is room.

use std::collections::{BTreeMap, BTreeSet};

use interlock_domain::time::Wall;
use serde_json::Value;

use super::{Kind, Notice};
use crate::engine::keeper::{Keeper, KeptNotice, NotKept};

/// Notices that are over and wait to be told, at most: what a plant has in a bad week. The oldest are left out first.
const ENDED_WAITING_MAX: usize = 1_000;

/// Which of the two is told of a notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in super::super) enum Turn {
    Raised,
    Over,
}

impl Turn {
    /// As it is told.
    pub(in super::super) fn word(self) -> &'static str {
        match self {
            Turn::Raised => "raised",
            Turn::Over => "over",
        }
    }
}

/// Something to tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) struct Message {
    pub(in super::super) notice: Notice,
    pub(in super::super) turn: Turn,
    /// When the notice was first seen: with its id and its turn the name of the message, the same in every attempt.
    pub(in super::super) seen: Wall,
    /// When this turn came.
    pub(in super::super) at: Wall,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    notice: Notice,
    seen: Wall,
    told: bool,
    over: Option<Wall>,
}

/// The ledger.
#[derive(Debug, Default)]
pub(in super::super) struct Ledger {
    entries: BTreeMap<String, Entry>,
    /// What to keep, and what to forget, since it was last kept.
    changed: BTreeSet<String>,
    dropped: u64,
}

impl Ledger {
    /// These stand now.
    pub(in super::super) fn look(&mut self, standing: &[Notice], now: Wall) {
        let ids: BTreeSet<&str> = standing.iter().map(|notice| notice.id.as_str()).collect();
        for notice in standing {
            let new = || Entry { notice: notice.clone(), seen: now, told: false, over: None };
            if !self.entries.contains_key(&notice.id) {
                self.changed.insert(notice.id.clone());
                self.entries.insert(notice.id.clone(), new());
            }
        }
        for (id, entry) in self.entries.iter_mut().filter(|(id, entry)| entry.over.is_none() && !ids.contains(&***id)) {
            entry.over = Some(now);
            self.changed.insert(id.clone());
        }
        let mut ended: Vec<(Wall, String)> =
            self.entries.iter().filter_map(|(id, entry)| Some((entry.over?, id.clone()))).collect();
        if let Some(excess) = ended.len().checked_sub(ENDED_WAITING_MAX) {
            ended.sort();
            for (_, id) in ended.into_iter().take(excess) {
                self.forget(&id);
                self.dropped += 1;
            }
        }
    }

    fn forget(&mut self, id: &str) {
        self.entries.remove(id);
        self.changed.insert(id.to_owned());
    }

    /// What to tell next: the oldest.
    pub(in super::super) fn next(&self) -> Option<Message> {
        let messages = self.entries.values().filter_map(|entry| {
            let (turn, at) = match (entry.told, entry.over) {
                (false, _) => (Turn::Raised, entry.seen),
                (true, Some(at)) => (Turn::Over, at),
                (true, None) => return None,
            };
            Some((at, turn, entry))
        });
        // Of what came together, alarms come in the order of their numbers.
        let (at, turn, entry) =
            messages.min_by_key(|(at, turn, entry)| (*at, *turn, entry.notice.id.len(), &entry.notice.id))?;
        Some(Message { notice: entry.notice.clone(), turn, seen: entry.seen, at })
    }

    /// The receiver has it.
    pub(in super::super) fn taken(&mut self, id: &str, turn: Turn) {
        match (turn, self.entries.get_mut(id)) {
            (_, None) => {}
            (Turn::Raised, Some(entry)) => {
                if !entry.told {
                    entry.told = true;
                    self.changed.insert(id.to_owned());
                }
            }
            (Turn::Over, Some(_)) => self.forget(id),
        }
    }

    /// The receiver will not have it, ever.
    pub(in super::super) fn refused(&mut self, id: &str, turn: Turn) {
        self.dropped += 1;
        self.taken(id, turn);
    }

    /// How many messages wait to be told.
    pub(in super::super) fn waiting(&self) -> u64 {
        let of = |entry: &Entry| u64::from(!entry.told) + u64::from(entry.over.is_some());
        self.entries.values().map(of).sum()
    }

    /// How many notices were left out, or refused, since the start.
    pub(in super::super) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Keeps what changed, some time soon.
    pub(in super::super) fn keep(&mut self, keeper: &Keeper, sink: &'static str) -> Result<(), NotKept> {
        if self.changed.is_empty() {
            return Ok(());
        }
        let (mut kept, mut gone) = (Vec::new(), Vec::new());
        for id in &self.changed {
            match self.entries.get(id) {
                Some(entry) => kept.push(entry.kept()),
                None => gone.push(id.clone()),
            }
        }
        keeper.later(move |state| state.keep_notices(sink, &kept, &gone))?;
        self.changed.clear();
        Ok(())
    }
}

/// What an earlier life told.
pub(in super::super) async fn kept(keeper: &Keeper, sink: &'static str) -> Result<Ledger, NotKept> {
    let kept = keeper.with(move |state| state.notices(sink)).await?;
    let entries = kept.iter().filter_map(Entry::of).map(|entry| (entry.notice.id.clone(), entry)).collect();
    Ok(Ledger { entries, ..Ledger::default() })
}

impl Entry {
    fn of(kept: &KeptNotice) -> Option<Entry> {
        let form: Value = serde_json::from_str(&kept.form).ok()?;
        let text = |key: &str| Some(form.get(key)?.as_str()?.to_owned());
        let notice = Notice {
            id: kept.id.clone(),
            kind: Kind::of_word(&text("kind")?)?,
            source: text("source")?,
            text: text("text")?,
            raised: form.get("raised_ms").and_then(Value::as_i64).map(Wall),
        };
        Some(Entry { notice, seen: kept.seen, told: kept.told, over: kept.over })
    }

    fn kept(&self) -> KeptNotice {
        let mut form = self.notice.to_json();
        form["raised_ms"] = self.notice.raised.map_or(Value::Null, |at| at.0.into());
        KeptNotice {
            id: self.notice.id.clone(),
            form: form.to_string(),
            seen: self.seen,
            told: self.told,
            over: self.over,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notice(id: &str) -> Notice {
        Notice { id: id.into(), kind: Kind::Zombie, source: "task:t1".into(), text: "t".into(), raised: Some(Wall(3)) }
    }

    fn told(ledger: &mut Ledger) -> Vec<String> {
        let mut told = Vec::new();
        while let Some(message) = ledger.next() {
            told.push(format!("{} {}", message.notice.id, message.turn.word()));
            ledger.taken(&message.notice.id, message.turn);
        }
        told
    }

    #[test]
    fn each_is_told_once_with_its_end() {
        let mut ledger = Ledger::default();
        ledger.look(&[notice("a9"), notice("a10"), notice("q1")], Wall(1));
        assert_eq!(told(&mut ledger), ["a9 raised", "q1 raised", "a10 raised"]);
        ledger.look(&[notice("a10"), notice("a9")], Wall(2));
        ledger.look(&[notice("a10"), notice("a11")], Wall(3));
        assert_eq!(told(&mut ledger), ["q1 over", "a11 raised", "a9 over"]);
        ledger.look(&[notice("a10"), notice("a11")], Wall(4));
        assert_eq!(told(&mut ledger), [""; 0]);
    }

    #[test]
    fn what_came_and_went_while_the_receiver_was_away_is_told_when_it_is_back() {
        let mut ledger = Ledger::default();
        ledger.look(&[notice("a1")], Wall(1));
        ledger.look(&[notice("a2")], Wall(2));
        ledger.look(&[], Wall(3));
        assert_eq!(ledger.waiting(), 4);
        assert_eq!(told(&mut ledger), ["a1 raised", "a2 raised", "a1 over", "a2 over"]);
        assert_eq!((ledger.waiting(), ledger.dropped()), (0, 0));
    }

    #[test]
    fn no_more_wait_than_there_is_room_for_and_the_oldest_go_first() {
        let mut ledger = Ledger::default();
        for n in 0..ENDED_WAITING_MAX + 5 {
            let now = i64::try_from(n).unwrap() * 2;
            ledger.look(&[notice(&format!("a{n}"))], Wall(now));
            ledger.look(&[], Wall(now + 1));
        }
        assert_eq!((ledger.entries.len(), ledger.dropped()), (ENDED_WAITING_MAX, 5));
        assert_eq!(ledger.next().unwrap().notice.id, "a5");
    }

    #[test]
    fn what_is_kept_is_read_back() {
        let entry = Entry { notice: notice("a1"), seen: Wall(5), told: true, over: Some(Wall(7)) };
        assert_eq!(Entry::of(&entry.kept()), Some(entry));
    }
}

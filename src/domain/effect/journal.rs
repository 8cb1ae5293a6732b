//! Which records are on the disk. Only this room makes a [`LogPosition`], out of an acknowledgement.
//!
//! The mediator numbers its own records ([`Entry`]); the writer, which has other customers too, gives the rows their
//! `Seq`. Whoever carries records to the writer keeps the pairs.
//!
//! Two intents need no acknowledgement, and both are decided in here from the intent itself, so that nobody can ask
//! for the exception by name: one whose contract leaves no effect, and, while the log cannot be written, one that the
//! gate found protective (contracts, "Protective actions": the one named exception).

use std::collections::BTreeMap;

use crate::id::CallId;

use super::Intent;

/// The number of a record in the mediator's own order, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Entry(pub u64);

/// Leave of the log for one intent.
#[derive(Debug)]
#[must_use = "a position is made for one intent: bind it"]
pub struct LogPosition {
    call: CallId,
    ground: Ground,
}

/// Why an intent may go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ground {
    /// Its record is on the disk.
    Durable(Entry),
    /// It changes nothing.
    Reads,
    /// It is protective, and the log cannot be written now: its record comes from the ring later.
    DegradedProtective(Entry),
}

impl LogPosition {
    /// The call that it was made for.
    #[must_use]
    pub fn call(&self) -> CallId {
        self.call
    }

    /// Why it was given.
    #[must_use]
    pub fn ground(&self) -> Ground {
        self.ground
    }
}

/// What was handed to the writer, and what came back.
#[derive(Debug, Default)]
pub struct Journal {
    numbered: u64,
    committed: u64,
    degraded: bool,
    waiting: BTreeMap<CallId, Entry>,
}

impl Journal {
    /// The number of the next record.
    pub fn number(&mut self) -> Entry {
        self.numbered += 1;
        Entry(self.numbered)
    }

    /// The number of the record of an intent, which then waits for its commit.
    pub fn intend(&mut self, intent: &Intent) -> Entry {
        let entry = self.number();
        self.waiting.insert(intent.id(), entry);
        entry
    }

    /// Everything up to here is on the disk. May skip numbers; never goes back, and never runs ahead of what was
    /// handed over.
    pub fn committed(&mut self, upto: Entry) {
        self.committed = self.committed.max(upto.0.min(self.numbered));
        self.degraded = false;
    }

    /// The writer could not commit. What is not on the disk by now may never be.
    pub fn failed(&mut self) {
        self.degraded = true;
    }

    /// The last word of the writer was that it cannot commit.
    #[must_use]
    pub fn is_degraded(&self) -> bool {
        self.degraded
    }

    /// The record is on the disk.
    #[must_use]
    pub fn is_committed(&self, entry: Entry) -> bool {
        entry.0 <= self.committed
    }

    /// Leave for an intent to go on, if there is a ground for it.
    pub fn position(&mut self, intent: &Intent) -> Option<LogPosition> {
        let call = intent.id();
        let entry = *self.waiting.get(&call)?;
        let ground = if !intent.contract().changes() {
            Ground::Reads
        } else if self.is_committed(entry) {
            Ground::Durable(entry)
        } else if self.degraded && intent.protective() {
            Ground::DegradedProtective(entry)
        } else {
            return None;
        };
        self.waiting.remove(&call);
        Some(LogPosition { call, ground })
    }

    /// Takes leave back from an intent that has not started: it was given while the log could not be written, and the
    /// log can be written again.
    pub(super) fn take_back(&mut self, at: &LogPosition) {
        if let Ground::DegradedProtective(entry) = at.ground {
            self.waiting.insert(at.call, entry);
        }
    }

    /// The call will not start: its intent waits no more.
    pub fn forget(&mut self, call: CallId) {
        self.waiting.remove(&call);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effect::ledger::Ledger;
    use crate::sample;
    use crate::schedule::Board;

    fn intent(verb: &str) -> Intent {
        let ticket = Board::default().admit(sample::permits(1, &[verb]).remove(0)).unwrap();
        Intent::declare(ticket, &mut Ledger::default()).unwrap()
    }

    /// What the journal says of an intent that is its third record, after these words of the writer.
    fn ground(verb: &str, words: &[Result<u64, ()>]) -> Option<Ground> {
        let mut journal = Journal::default();
        journal.number();
        journal.number();
        let intent = intent(verb);
        assert_eq!(journal.intend(&intent), Entry(3));
        for word in words {
            match word {
                Ok(upto) => journal.committed(Entry(*upto)),
                Err(()) => journal.failed(),
            }
        }
        journal.position(&intent).map(|at| at.ground())
    }

    #[test]
    fn an_intent_goes_on_when_its_record_is_on_the_disk_and_two_need_no_disk() {
        let table: [(&str, &[Result<u64, ()>], Option<Ground>); 10] = [
            ("write:a", &[], None),
            ("write:a", &[Ok(2)], None),
            ("write:a", &[Ok(3)], Some(Ground::Durable(Entry(3)))),
            ("write:a", &[Ok(3), Ok(1)], Some(Ground::Durable(Entry(3)))),
            // Nobody can acknowledge what was not handed over.
            ("write:a", &[Err(())], None),
            ("look", &[], Some(Ground::Reads)),
            ("stop:a", &[], None),
            ("stop:a", &[Err(())], Some(Ground::DegradedProtective(Entry(3)))),
            ("stop:a", &[Err(()), Ok(2)], None),
            ("stop:a", &[Err(()), Ok(3)], Some(Ground::Durable(Entry(3)))),
        ];
        for (verb, words, want) in table {
            assert_eq!(ground(verb, words), want, "{verb} {words:?}");
        }
    }

    #[test]
    fn a_position_is_given_once_and_for_one_intent() {
        let mut journal = Journal::default();
        let (one, other) = (intent("look"), intent("look"));
        journal.intend(&one);
        let at = journal.position(&one).unwrap();
        assert!(journal.position(&one).is_none());
        // Both are call 1.0 here; an intent of another batch is refused.
        let ticket = Board::default().admit(sample::permits(2, &["look"]).remove(0)).unwrap();
        let stranger = Intent::declare(ticket, &mut Ledger::default()).unwrap();
        let stranger = stranger.journaled(at).unwrap_err();
        drop((other, stranger));
    }
}

//! Which rows one receiver has, which are under way, and which it will never get.
//!
//! Pure: what was read, sent and acknowledged comes in, and what to keep comes out. A row counts as arrived only when
//! all before it have, in whatever order they were acknowledged. What is under way when a link ends has not arrived.

use std::collections::VecDeque;

use interlock_domain::id::Seq;

use crate::engine::keeper::Position;

/// Rows that a receiver does not get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    /// The first of them.
    pub first: Seq,
    /// The last of them.
    pub last: Seq,
    /// Why.
    pub why: Missing,
}

impl Gap {
    /// How many rows that are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.last.0 + 1 - self.first.0
    }
}

/// Why a receiver does not get rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// More waited than may: the newest are kept.
    Backlog,
    /// The log has them no longer: retired with their segment, or lost before they were written.
    NotInTheLog,
    /// It is there and cannot be read.
    Unreadable,
}

impl Missing {
    /// As it is told.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Missing::Backlog => "backlog",
            Missing::NotInTheLog => "not_in_the_log",
            Missing::Unreadable => "unreadable",
        }
    }
}

/// Something that was sent and names rows.
#[derive(Debug)]
struct Flight {
    id: u64,
    upto: u64,
    dropped: u64,
    arrived: bool,
}

/// What of the log one receiver has.
#[derive(Debug)]
pub(super) struct Outbox {
    position: Position,
    /// Everything up to here was read, or left out as a gap that is under way.
    read: u64,
    flying: VecDeque<Flight>,
    next: u64,
    backlog_max: u64,
}

impl Outbox {
    pub(super) fn new(position: Position, backlog_max: u64) -> Outbox {
        Outbox { position, read: position.seq.0, flying: VecDeque::new(), next: 0, backlog_max }
    }

    /// What has arrived.
    pub(super) fn position(&self) -> Position {
        self.position
    }

    /// The row after which to read.
    pub(super) fn read(&self) -> Seq {
        Seq(self.read)
    }

    /// The rows of a log that ends at `last` which have not arrived and still may.
    pub(super) fn waiting(&self, last: Seq) -> u64 {
        last.0.saturating_sub(self.position.seq.0).min(self.backlog_max)
    }

    /// How many rows were left out over all time, with those that are now too old.
    pub(super) fn dropped(&self, last: Seq) -> u64 {
        let flying: u64 = self.flying.iter().map(|flight| flight.dropped).sum();
        self.position.dropped + flying + self.excess(last)
    }

    fn excess(&self, last: Seq) -> u64 {
        last.0.saturating_sub(self.read).saturating_sub(self.backlog_max)
    }

    /// The log began anew, with lower numbers: it is told from its beginning.
    pub(super) fn begin_anew(&mut self) {
        *self = Outbox::new(Position { seq: Seq(0), ..self.position }, self.backlog_max);
    }

    /// The rows that are left out because too many wait; they are to be told before anything else is read.
    pub(super) fn too_many(&self, last: Seq) -> Option<Gap> {
        let excess = self.excess(last);
        let gap = Gap { first: Seq(self.read + 1), last: Seq(self.read + excess), why: Missing::Backlog };
        (excess > 0).then_some(gap)
    }

    /// The rows that are missing before this one, the next that there is.
    pub(super) fn missing_before(&self, next: Seq) -> Option<Gap> {
        let gap = Gap { first: Seq(self.read + 1), last: Seq(next.0.saturating_sub(1)), why: Missing::NotInTheLog };
        (next.0 > self.read + 1).then_some(gap)
    }

    /// A row is sent; gives the name under which it may arrive.
    pub(super) fn send(&mut self, row: Seq) -> u64 {
        self.fly(row, 0)
    }

    /// A gap is sent.
    pub(super) fn send_gap(&mut self, gap: &Gap) -> u64 {
        self.fly(gap.last, gap.count())
    }

    fn fly(&mut self, upto: Seq, dropped: u64) -> u64 {
        self.next += 1;
        self.read = upto.0;
        self.flying.push_back(Flight { id: self.next, upto: upto.0, dropped, arrived: false });
        self.next
    }

    /// The receiver has it.
    pub(super) fn arrived(&mut self, id: u64) {
        if let Some(flight) = self.flying.iter_mut().find(|flight| flight.id == id) {
            flight.arrived = true;
        }
        while let Some(first) = self.flying.front().filter(|flight| flight.arrived) {
            self.position.seq = Seq(first.upto);
            self.position.dropped += first.dropped;
            self.flying.pop_front();
        }
    }

    /// The receiver has said that it has so many of the rows under way not, and will not.
    pub(super) fn rejected(&mut self, count: u64) {
        self.position.dropped += count;
    }

    /// The link has ended: what is under way has not arrived, and is read again.
    pub(super) fn link_ended(&mut self) {
        self.flying.clear();
        self.read = self.position.seq.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seq: u64, dropped: u64) -> Position {
        Position { seq: Seq(seq), dropped }
    }

    #[test]
    fn a_row_has_arrived_when_all_before_it_have() {
        let mut outbox = Outbox::new(at(10, 0), 100);
        let [a, b, c] = [11, 12, 13].map(|seq| outbox.send(Seq(seq)));
        assert_eq!((outbox.read(), outbox.position()), (Seq(13), at(10, 0)));
        outbox.arrived(c);
        outbox.arrived(b);
        assert_eq!(outbox.position(), at(10, 0));
        outbox.arrived(a);
        assert_eq!(outbox.position(), at(13, 0));
        outbox.arrived(a);
        assert_eq!(outbox.position(), at(13, 0), "told twice is told once");
    }

    #[test]
    fn what_is_under_way_when_the_link_ends_is_sent_again() {
        let mut outbox = Outbox::new(at(0, 0), 100);
        let [a, late, c] = [1, 2, 3].map(|seq| outbox.send(Seq(seq)));
        outbox.arrived(a);
        outbox.arrived(c);
        outbox.link_ended();
        assert_eq!((outbox.read(), outbox.position()), (Seq(1), at(1, 0)));
        outbox.arrived(late);
        assert_eq!(outbox.position(), at(1, 0), "a word of a link that has ended counts for nothing");
        let again = outbox.send(Seq(2));
        outbox.arrived(again);
        assert_eq!(outbox.position(), at(2, 0));
    }

    #[test]
    fn the_newest_are_kept_and_the_others_are_told_as_a_gap_that_counts_once_it_has_arrived() {
        let mut outbox = Outbox::new(at(5, 7), 50);
        assert_eq!((outbox.too_many(Seq(55)), outbox.dropped(Seq(55)), outbox.waiting(Seq(55))), (None, 7, 50));
        let gap = Gap { first: Seq(6), last: Seq(55), why: Missing::Backlog };
        assert_eq!(
            (outbox.too_many(Seq(105)), outbox.dropped(Seq(105)), outbox.waiting(Seq(105))),
            (Some(gap), 57, 50)
        );
        let id = outbox.send_gap(&gap);
        assert_eq!((outbox.read(), outbox.dropped(Seq(105)), outbox.position()), (Seq(55), 57, at(5, 7)));
        assert_eq!(outbox.too_many(Seq(105)), None);
        // The link ends before the gap was taken: it is still to be told, whole.
        outbox.link_ended();
        assert_eq!((outbox.too_many(Seq(106)).map(|gap| gap.count()), outbox.dropped(Seq(106))), (Some(51), 58));
        let gap = outbox.too_many(Seq(106)).unwrap();
        let again = outbox.send_gap(&gap);
        outbox.arrived(id);
        assert_eq!(outbox.position(), at(5, 7));
        outbox.arrived(again);
        assert_eq!((outbox.position(), outbox.dropped(Seq(106))), (at(56, 58), 58));
    }

    #[test]
    fn rows_that_the_log_has_no_longer_are_a_gap() {
        let mut outbox = Outbox::new(at(5, 0), 1_000);
        assert_eq!(outbox.missing_before(Seq(6)), None);
        let gap = Gap { first: Seq(6), last: Seq(99), why: Missing::NotInTheLog };
        assert_eq!(outbox.missing_before(Seq(100)), Some(gap));
        let id = outbox.send_gap(&gap);
        assert_eq!(outbox.missing_before(Seq(100)), None);
        outbox.arrived(id);
        assert_eq!(outbox.position(), at(99, 94));
        outbox.begin_anew();
        assert_eq!((outbox.position(), outbox.read()), (at(0, 94), Seq(0)));
    }
}

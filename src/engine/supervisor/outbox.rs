//! Notices on their way to the evidence: offered without waiting, kept in a bounded ring while nobody takes them.
//!
//! What does not fit is counted, and one notice says how many were lost as soon as there is room. An ending is worth
//! more than a note: when the ring is full, the oldest note makes room for it.

use std::collections::VecDeque;

use interlock_domain::liveness::lifecycle::{Cause, Kind, Notice};
use interlock_domain::time::Tick;

use super::Offer;

/// Notices that wait. A thousand workers that die at once fit, with what led to it.
const WAITING_MAX: usize = 4096;

pub(super) struct Outbox {
    offer: Offer,
    waiting: VecDeque<Notice>,
    lost: u64,
    lost_unsaid: u64,
}

impl Outbox {
    pub(super) fn new(offer: Offer) -> Outbox {
        Outbox { offer, waiting: VecDeque::new(), lost: 0, lost_unsaid: 0 }
    }

    pub(super) fn put(&mut self, notice: Notice) {
        if self.waiting.len() >= WAITING_MAX {
            let note = self.waiting.iter().position(|waiting| waiting.kind == Kind::Note);
            self.lost += 1;
            self.lost_unsaid += 1;
            match note {
                Some(at) if notice.kind != Kind::Note => drop(self.waiting.remove(at)),
                Some(_) | None => return,
            }
        }
        self.waiting.push_back(notice);
    }

    /// Offers what waits, in order, until someone says no.
    pub(super) fn flush(&mut self, now: Tick) {
        if self.lost_unsaid > 0 && self.waiting.len() < WAITING_MAX {
            let detail = format!("{} notices did not fit", self.lost_unsaid);
            self.waiting.push_back(Notice::supervisor(Cause::NoticesLost, detail, now));
            self.lost_unsaid = 0;
        }
        while let Some(notice) = self.waiting.pop_front() {
            if let Err(notice) = (self.offer)(notice) {
                self.waiting.push_front(notice);
                break;
            }
        }
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn lost(&self) -> u64 {
        self.lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::sync_channel;

    #[test]
    fn what_is_not_taken_waits_and_what_does_not_fit_is_counted() {
        let (sender, receiver) = sync_channel(2);
        let mut outbox = Outbox::new(Box::new(move |notice| {
            sender.try_send(notice).map_err(|error| match error {
                std::sync::mpsc::TrySendError::Full(notice) | std::sync::mpsc::TrySendError::Disconnected(notice) => {
                    notice
                }
            })
        }));
        let notice = |n: usize| Notice::supervisor(Cause::SupervisorGap, n.to_string(), Tick(0));
        for n in 0..WAITING_MAX + 3 {
            outbox.put(notice(n));
        }
        assert_eq!((outbox.waiting(), outbox.lost()), (WAITING_MAX, 3));
        let mut taken = Vec::new();
        while outbox.waiting() > 0 || outbox.lost_unsaid > 0 {
            outbox.flush(Tick(9));
            taken.extend(receiver.try_iter());
        }
        assert_eq!(taken.len(), WAITING_MAX + 1);
        assert_eq!(taken[..WAITING_MAX], (0..WAITING_MAX).map(notice).collect::<Vec<_>>());
        assert_eq!(taken[WAITING_MAX], Notice::supervisor(Cause::NoticesLost, "3 notices did not fit".into(), Tick(9)));
    }

    #[test]
    fn a_note_makes_room_for_an_ending() {
        let mut outbox = Outbox::new(Box::new(Err));
        let mut note = Notice::supervisor(Cause::HalfTau, String::new(), Tick(0));
        note.kind = Kind::Note;
        outbox.put(note);
        for _ in 0..WAITING_MAX {
            outbox.put(Notice::supervisor(Cause::Panic, String::new(), Tick(0)));
        }
        assert!(outbox.waiting.iter().all(|notice| notice.kind == Kind::Supervisor));
        assert_eq!(outbox.lost(), 1);
    }
}

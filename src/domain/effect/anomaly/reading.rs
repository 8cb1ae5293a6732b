//! What may be so of each effect: the worlds that fit a history (section 3).
//!
//! Each attempt has one bit: it had its effect, or it had not. In the view of the world the bit is what the history
//! lists; in that of the runtime it is what was observed last, and open while that is `unknown`. Everything else follows
//! from the bits one by one, so that no verdict needs a search over worlds.

use super::history::{At, Attempt, History};
use super::{Seen, View};

/// Whether something is so in no world, in some, in all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum May {
    Never,
    Maybe,
    Surely,
}

/// One effect, listed or inferred.
#[derive(Debug, Clone, Copy)]
pub(super) struct Item {
    pub(super) attempt: u32,
    pub(super) at: At,
    pub(super) visible: Option<At>,
    pub(super) discarded: Option<At>,
    pub(super) exists: May,
    /// The first time at which a compensation undid it in every world …
    pub(super) surely_undone: Option<At>,
    /// … and in some world.
    pub(super) maybe_undone: Option<At>,
}

impl Item {
    pub(super) fn surely_survives(&self) -> bool {
        self.exists == May::Surely && self.maybe_undone.is_none() && self.discarded.is_none()
    }

    pub(super) fn may_survive(&self) -> bool {
        self.exists != May::Never && self.surely_undone.is_none() && self.discarded.is_none()
    }

    /// A compensation undid it at this time, if the compensation had its effect. One that undoes its own effect does so
    /// in every world in which there is one.
    fn undo(&mut self, compensation: u32, bits: &[May], at: At) {
        let earlier = |known: Option<At>| Some(known.map_or(at, |known| known.min(at)));
        match bits[compensation as usize] {
            May::Never => {}
            May::Maybe if compensation != self.attempt => self.maybe_undone = earlier(self.maybe_undone),
            May::Maybe | May::Surely => {
                self.maybe_undone = earlier(self.maybe_undone);
                self.surely_undone = earlier(self.surely_undone);
            }
        }
    }

    /// The same as it was at one time.
    pub(super) fn as_of(&self, at: At) -> Item {
        let before = |time: Option<At>| time.filter(|time| *time < at);
        let exists = if self.at < at { self.exists } else { May::Never };
        Item {
            exists,
            discarded: before(self.discarded),
            surely_undone: before(self.surely_undone),
            maybe_undone: before(self.maybe_undone),
            ..*self
        }
    }
}

/// The effects of a history under one view: the listed ones by their numbers, then those that must be inferred.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) items: Vec<Item>,
    /// The bit of each attempt.
    pub(super) bits: Vec<May>,
}

impl Reading {
    pub(super) fn of(history: &History, view: View) -> Reading {
        let bits: Vec<May> = history.attempt.iter().map(|attempt| bit(attempt, view)).collect();
        let listed = history.effect.iter().map(|effect| Item {
            attempt: effect.attempt,
            at: effect.at,
            visible: effect.visible,
            discarded: effect.discarded,
            exists: bits[effect.attempt as usize],
            surely_undone: None,
            maybe_undone: None,
        });
        let mut items: Vec<Item> = listed.collect();
        match view {
            View::World => {}
            View::Runtime => infer(history, &bits, &mut items),
        }
        for edge in &history.undone {
            items[edge.to as usize].undo(edge.from, &bits, edge.at);
        }
        match view {
            View::World => {}
            View::Runtime => {
                // A compensation of which nothing is listed undoes, if it has its effect, all that it aims at.
                let silent = || history.compensated.iter().filter(|edge| !history.attempt[edge.from as usize].undoes);
                if silent().next().is_some() {
                    let of_attempt = Lists::new(history.attempt.len(), items.iter().map(|item| item.attempt));
                    for edge in silent() {
                        for item in of_attempt.of(edge.to) {
                            items[*item as usize].undo(edge.from, &bits, edge.at);
                        }
                    }
                }
            }
        }
        Reading { items, bits }
    }
}

fn bit(attempt: &Attempt, view: View) -> May {
    match (view, attempt.seen) {
        (View::World, _) | (View::Runtime, Seen::Confirmed) => May::Surely,
        (View::Runtime, Seen::Failed) => May::Never,
        (View::Runtime, Seen::Unknown) => May::Maybe,
    }
}

/// Adds the effects that the runtime must reckon with and that the history does not list.
fn infer(history: &History, bits: &[May], items: &mut Vec<Item>) {
    // An operation that was done once, for certain, and is listed: another confirmed attempt gave that result back.
    let mut done = vec![false; history.group.len()];
    for attempt in history.attempt.iter().filter(|attempt| attempt.has_effect && attempt.seen == Seen::Confirmed) {
        done[attempt.group as usize] = true;
    }
    for (number, attempt) in (0_u32..).zip(&history.attempt) {
        let exists = bits[number as usize];
        let given_back = exists == May::Surely && done[attempt.group as usize];
        if attempt.has_effect || exists == May::Never || given_back {
            continue;
        }
        items.push(Item {
            attempt: number,
            at: attempt.at,
            visible: Some(attempt.at),
            discarded: None,
            exists,
            surely_undone: None,
            maybe_undone: None,
        });
    }
}

/// What belongs to each of some numbers, in two flat arrays.
#[derive(Debug)]
pub(super) struct Lists {
    from: Vec<u32>,
    what: Vec<u32>,
}

impl Lists {
    /// `keys` gives the owner of 0, 1, 2, …
    #[expect(clippy::cast_possible_truncation, reason = "the history bounds its events below u32::MAX")]
    pub(super) fn new(owners: usize, keys: impl Iterator<Item = u32> + Clone) -> Lists {
        let mut from = vec![0_u32; owners + 1];
        let mut len = 0;
        for key in keys.clone() {
            from[key as usize + 1] += 1;
            len += 1;
        }
        for owner in 0..owners {
            from[owner + 1] += from[owner];
        }
        let mut next = from.clone();
        let mut what = vec![0_u32; len];
        for (number, key) in keys.enumerate() {
            what[next[key as usize] as usize] = number as u32;
            next[key as usize] += 1;
        }
        Lists { from, what }
    }

    pub(super) fn of(&self, owner: u32) -> &[u32] {
        &self.what[self.from[owner as usize] as usize..self.from[owner as usize + 1] as usize]
    }
}

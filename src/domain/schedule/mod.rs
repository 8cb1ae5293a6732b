//! When may it be done? One law of order, and two counters a call that carry it out.
//!
//! The board keeps a small [`Place`] per call and never looks into a passport. A [`Ticket`] says where in line a call
//! stands; a [`Turn`] says "now", and is given only while the run's policy is the one that permitted the call. All
//! waiting is for calls that were admitted earlier, or (for what waits when a protective action cuts in) for one that
//! itself waits for started calls only: no circle can form. A composite call leaves the line when it starts, so that
//! its own wishes wait for nothing that waits for it; what comes after it in its batch waits outside ([`hold`]).

pub mod hold;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::gate::docket::Permit;
use crate::id::{BatchId, CallId, Epoch};
use crate::request::why::Why;
use crate::request::{Refusal, Request};
use crate::surface::nature::{Class, Keys, Nature};
use crate::surface::tool::Tool;

/// The most calls in line and running together. Admission looks at each of them; ours are edge boxes, not data
/// centres, and whoever comes later is told to come again.
pub const LIVE_CALLS_MAX: usize = 1024;

/// How many places beyond [`LIVE_CALLS_MAX`] only a protective action may take: a full line must not stop it.
pub const PROTECTIVE_RESERVE: usize = 64;

/// What the law of order looks at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The call.
    pub call: CallId,
    /// How it stands towards others in time.
    pub class: Class,
    /// What it touches.
    pub keys: Keys,
    /// It cuts in: it waits for nothing but what already runs.
    pub protective: bool,
}

impl Place {
    /// The place of a permitted call.
    #[must_use]
    pub fn of(permit: &Permit) -> Place {
        let nature = permit.nature();
        Place {
            call: permit.id(),
            class: nature.class.clone(),
            keys: nature.keys.clone(),
            protective: permit.protective(),
        }
    }
}

/// The law of order: `later` may not start before `earlier` has ended.
///
/// Lane, overlap of keys, and the barrier in the batch. Nothing else orders two calls.
#[must_use]
pub fn must_follow(earlier: &Place, later: &Place) -> bool {
    if interferes(earlier, later) {
        return true;
    }
    let one_batch = |one: BatchId, two: BatchId| one == two;
    let alone = earlier.class == Class::Exclusive || later.class == Class::Exclusive;
    // Nobody knows yet what a composite will touch, so it keeps its place in the order of its batch.
    let composites = usize::from(earlier.class == Class::Composite) + usize::from(later.class == Class::Composite);
    one_batch(earlier.call.batch, later.call.batch) && !later.protective && (alone || composites == 1)
}

/// One lane, or keys that overlap.
fn interferes(one: &Place, two: &Place) -> bool {
    let one_lane = match (&one.class, &two.class) {
        (Class::Queue(one), Class::Queue(two)) => one == two,
        (Class::Background, Class::Background) => true,
        (Class::Safe | Class::Queue(_) | Class::Exclusive | Class::Background | Class::Composite, _) => false,
    };
    one_lane || one.keys.interfere(&two.keys)
}

/// A permitted call with its place in line.
#[derive(Debug)]
#[must_use = "each ticketed call is answered: declare its intent or refuse it"]
pub struct Ticket {
    permit: Permit,
}

impl Ticket {
    /// The call.
    #[must_use]
    pub fn id(&self) -> CallId {
        self.permit.id()
    }

    /// The request.
    pub fn request(&self) -> &Request {
        self.permit.request()
    }

    /// The tool.
    #[must_use]
    pub fn tool(&self) -> &Arc<Tool> {
        self.permit.tool()
    }

    /// What the call is by nature.
    #[must_use]
    pub fn nature(&self) -> &Arc<Nature> {
        self.permit.nature()
    }

    /// The gate found it protective.
    #[must_use]
    pub fn protective(&self) -> bool {
        self.permit.protective()
    }

    /// Ends the call before its start.
    pub fn refuse(self, why: Why) -> Refusal {
        self.permit.refuse(why)
    }

    /// For the stations behind.
    pub(crate) fn into_permit(self) -> Permit {
        self.permit
    }
}

/// Leave to start now, for one call.
#[derive(Debug)]
#[must_use = "a turn that is not used blocks everything behind it"]
pub struct Turn {
    call: CallId,
}

impl Turn {
    /// The call.
    #[must_use]
    pub fn call(&self) -> CallId {
        self.call
    }
}

/// Why there is no turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoTurn {
    /// Something that it must follow has not ended.
    NotYet,
    /// It was permitted under another epoch.
    Stale,
    /// It is not in line, or has had its turn.
    NotInLine,
}

/// The line.
#[derive(Debug, Default)]
pub struct Board {
    spots: BTreeMap<CallId, Spot>,
    up: BTreeSet<CallId>,
}

#[derive(Debug)]
struct Spot {
    place: Place,
    epoch: Epoch,
    started: bool,
    /// [`Board::next_up`] has named it.
    announced: bool,
    /// How many of those that it must follow have not started.
    unstarted: usize,
    /// How many of those that it must follow have not ended.
    unended: usize,
    followers: Vec<CallId>,
}

impl Board {
    /// Puts a permitted call in line, behind all that it must follow.
    ///
    /// A protective call follows only what already runs; whatever waits and would have had to end before it now
    /// follows the protective call instead.
    ///
    /// # Errors
    /// A refusal when the line is full.
    pub fn admit(&mut self, permit: Permit) -> Result<Ticket, Refusal> {
        let limit = LIVE_CALLS_MAX + if permit.protective() { PROTECTIVE_RESERVE } else { 0 };
        if self.spots.len() >= limit {
            return Err(permit.refuse(Why::Busy { limit: LIVE_CALLS_MAX }));
        }
        let mut spot = Spot {
            place: Place::of(&permit),
            epoch: permit.epoch(),
            started: false,
            announced: false,
            unstarted: 0,
            unended: 0,
            followers: Vec::new(),
        };
        for (call, earlier) in &mut self.spots {
            if spot.place.protective && !earlier.started && !earlier.place.protective {
                // It cuts in: what waits, and would have to come after it, does.
                if must_follow(&spot.place, &earlier.place) {
                    spot.followers.push(*call);
                    earlier.unended += 1;
                    earlier.unstarted += 1;
                    self.up.remove(call);
                }
            } else if must_follow(&earlier.place, &spot.place) {
                earlier.followers.push(permit.id());
                spot.unended += 1;
                spot.unstarted += usize::from(!earlier.started);
            }
        }
        if spot.unstarted == 0 {
            self.up.insert(permit.id());
        }
        self.spots.insert(permit.id(), spot);
        Ok(Ticket { permit })
    }

    /// What waits in line and touches what this protective call acts on: it was wished for before the emergency.
    #[must_use]
    pub fn superseded_by(&self, protective: &Nature) -> Vec<CallId> {
        let voided =
            |spot: &&Spot| !spot.started && !spot.place.protective && spot.place.keys.interfere(&protective.keys);
        self.spots.values().filter(voided).map(|spot| spot.place.call).collect()
    }

    /// The calls whose predecessors have all started, each once: their intents are due, so that the commit hides
    /// behind what still runs.
    #[must_use]
    pub fn next_up(&mut self) -> Vec<CallId> {
        let up: Vec<CallId> = std::mem::take(&mut self.up).into_iter().collect();
        for call in &up {
            if let Some(spot) = self.spots.get_mut(call) {
                spot.announced = true;
            }
        }
        up
    }

    /// Gives the turn, once.
    ///
    /// # Errors
    /// When it is not the call's turn, or never will be under this epoch.
    pub fn turn(&mut self, call: CallId, epoch: Epoch) -> Result<Turn, NoTurn> {
        let Some(spot) = self.spots.get_mut(&call) else { return Err(NoTurn::NotInLine) };
        if spot.started {
            return Err(NoTurn::NotInLine);
        }
        if spot.epoch != epoch {
            return Err(NoTurn::Stale);
        }
        if spot.unended > 0 {
            return Err(NoTurn::NotYet);
        }
        spot.started = true;
        let followers = spot.followers.clone();
        for follower in followers {
            self.step_up(follower);
        }
        Ok(Turn { call })
    }

    /// Takes a call out of the line: it has ended, or will not start. Gives the calls that may now have their turn.
    pub fn leave(&mut self, call: CallId) -> Vec<CallId> {
        self.up.remove(&call);
        let Some(gone) = self.spots.remove(&call) else { return Vec::new() };
        let mut free = Vec::new();
        for follower in gone.followers {
            if !gone.started {
                self.step_up(follower);
            }
            if let Some(spot) = self.spots.get_mut(&follower) {
                spot.unended -= 1;
                if spot.unended == 0 {
                    free.push(follower);
                }
            }
        }
        free
    }

    /// One that `follower` waits for has started, or left without a start.
    fn step_up(&mut self, follower: CallId) {
        if let Some(spot) = self.spots.get_mut(&follower) {
            spot.unstarted -= 1;
            if spot.unstarted == 0 && !spot.announced {
                self.up.insert(follower);
            }
        }
    }

    /// The call has had its turn and has not left.
    #[must_use]
    pub fn has_started(&self, call: CallId) -> bool {
        self.spots.get(&call).is_some_and(|spot| spot.started)
    }

    /// How many calls are in line or running.
    #[must_use]
    pub fn len(&self) -> usize {
        self.spots.len()
    }

    /// Nothing is in line and nothing runs.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.spots.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::docket::Permit;
    use crate::sample;

    /// Admits batches, one per list, and lets calls take their turns as soon as they may; gives the waves.
    fn waves(batches: &[&[&str]]) -> Vec<Vec<(u64, u32)>> {
        let mut board = Board::default();
        let mut waiting = Vec::new();
        for (number, verbs) in (1..).zip(batches) {
            for permit in sample::permits(number, verbs) {
                waiting.push(board.admit(permit).unwrap().id());
            }
        }
        let mut waves = Vec::new();
        while !waiting.is_empty() {
            let mut wave = Vec::new();
            for call in &waiting {
                if board.turn(*call, Epoch(0)).is_ok() {
                    wave.push(*call);
                }
            }
            assert!(!wave.is_empty(), "nobody may go on: {waiting:?}");
            waiting.retain(|call| !wave.contains(call));
            wave.iter().for_each(|call| {
                board.leave(*call);
            });
            waves.push(wave.iter().map(|call| (call.batch.0, call.position)).collect());
        }
        assert!(board.is_empty());
        waves
    }

    #[test]
    fn lanes_keys_and_barriers_order_and_nothing_else_does() {
        type Waves = Vec<Vec<(u64, u32)>>;
        let table: [(&[&[&str]], Waves); 12] = [
            (&[&["look", "look", "lane:1", "lane:2"]], vec![vec![(1, 0), (1, 1), (1, 2), (1, 3)]]),
            (&[&["lane:1", "lane:1", "look"]], vec![vec![(1, 0), (1, 2)], vec![(1, 1)]]),
            (&[&["write:a", "read:a", "write:a"]], vec![vec![(1, 0)], vec![(1, 1)], vec![(1, 2)]]),
            (&[&["read:a", "read:a"]], vec![vec![(1, 0), (1, 1)]]),
            (&[&["read:a", "write:a", "write:b"]], vec![vec![(1, 0), (1, 2)], vec![(1, 1)]]),
            (&[&["look", "alone", "look"]], vec![vec![(1, 0)], vec![(1, 1)], vec![(1, 2)]]),
            (&[&["back", "back"]], vec![vec![(1, 0)], vec![(1, 1)]]),
            // A barrier is one in its batch; a lane and a key are for everybody.
            (&[&["alone"], &["look", "lane:1"], &["lane:1"]], vec![vec![(1, 0), (2, 0), (2, 1)], vec![(3, 0)]]),
            (&[&["write:a"], &["write:a"]], vec![vec![(1, 0)], vec![(2, 0)]]),
            // A composite keeps its place in the order of its batch; two of them run beside one another.
            (&[&["look", "family", "look"]], vec![vec![(1, 0)], vec![(1, 1)], vec![(1, 2)]]),
            (&[&["family", "family"], &["look"]], vec![vec![(1, 0), (1, 1), (2, 0)]]),
            (&[&["family:a", "family:a", "family"]], vec![vec![(1, 0), (1, 2)], vec![(1, 1)]]),
        ];
        for (batches, want) in table {
            assert_eq!(waves(batches), want, "{batches:?}");
        }
    }

    fn admitted(board: &mut Board, number: u64, verbs: &[&str]) -> Vec<CallId> {
        sample::permits(number, verbs).into_iter().map(|permit| board.admit(permit).unwrap().id()).collect()
    }

    #[test]
    fn an_intent_is_due_when_all_before_it_have_started_and_a_turn_when_they_have_ended() {
        let mut board = Board::default();
        let calls = admitted(&mut board, 1, &["lane:1", "lane:1", "lane:1"]);
        assert_eq!(board.next_up(), [calls[0]]);
        assert_eq!(board.next_up(), []);
        assert_eq!(board.turn(calls[1], Epoch(0)).unwrap_err(), NoTurn::NotYet);
        assert!(board.turn(calls[0], Epoch(0)).is_ok());
        assert_eq!(board.next_up(), [calls[1]]);
        assert_eq!(board.turn(calls[0], Epoch(0)).unwrap_err(), NoTurn::NotInLine);
        assert_eq!(board.turn(calls[1], Epoch(0)).unwrap_err(), NoTurn::NotYet);
        assert_eq!(board.leave(calls[0]), [calls[1]]);
        // One that leaves without a start lets the next one step up all the same.
        assert_eq!(board.leave(calls[1]), [calls[2]]);
        assert_eq!(board.next_up(), [calls[2]]);
        assert_eq!(board.turn(calls[2], Epoch(1)).unwrap_err(), NoTurn::Stale);
    }

    /// What the model knows of a verb: its lane, what it reads and writes, whether it is alone in its batch.
    fn known(verb: &str) -> (Option<&str>, Option<&str>, Option<&str>, bool) {
        match verb.split_once(':') {
            Some(("lane", lane)) => (Some(lane), None, None, false),
            Some(("read", key)) => (None, Some(key), None, false),
            Some(("write", key)) => (None, None, Some(key), false),
            Some(_) => unreachable!("{verb}"),
            None => (if verb == "back" { Some("background") } else { None }, None, None, verb == "alone"),
        }
    }

    /// The same law, written down once more and in other words: pairs of verbs of one batch that may not overlap.
    fn apart(one: &str, two: &str) -> bool {
        let ((lane, reads, writes, alone), (lane2, reads2, writes2, alone2)) = (known(one), known(two));
        let same = |a: Option<&str>, b: Option<&str>| a.is_some() && a == b;
        alone || alone2 || same(lane, lane2) || same(writes, writes2) || same(writes, reads2) || same(reads, writes2)
    }

    #[test]
    fn random_batches_start_in_order_and_never_later_than_they_must() {
        const VERBS: &[&str] = &["look", "look", "lane:1", "lane:2", "read:a", "write:a", "write:b", "alone", "back"];
        let mut rng = fastrand::Rng::with_seed(20_270_813);
        for round in 0..2_000 {
            let verbs: Vec<&str> = (0..rng.usize(1..12)).map(|_| VERBS[rng.usize(0..VERBS.len())]).collect();
            let took: Vec<u64> = verbs.iter().map(|_| rng.u64(1..50)).collect();
            // The model: a call starts when the last of those before it that it may not overlap has ended.
            let mut want = vec![0; verbs.len()];
            for at in 0..verbs.len() {
                let before = (0..at).filter(|earlier| apart(verbs[*earlier], verbs[at]));
                want[at] = before.map(|earlier| want[earlier] + took[earlier]).max().unwrap_or(0);
            }
            // The board, driven by a clock that jumps from end to end.
            let mut board = Board::default();
            let calls = admitted(&mut board, 1, &verbs);
            let mut starts: Vec<Option<u64>> = vec![None; verbs.len()];
            let mut running: Vec<(u64, usize)> = Vec::new();
            let mut now = 0;
            loop {
                for (at, call) in calls.iter().enumerate() {
                    if starts[at].is_none() && board.turn(*call, Epoch(0)).is_ok() {
                        starts[at] = Some(now);
                        running.push((now + took[at], at));
                    }
                }
                running.sort_unstable_by(|one, two| two.cmp(one));
                let Some((end, at)) = running.pop() else { break };
                now = end;
                board.leave(calls[at]);
            }
            let starts: Vec<u64> = starts.into_iter().map(|start| start.unwrap()).collect();
            assert_eq!(starts, want, "round {round}: {verbs:?} {took:?}");
            assert!(board.is_empty());
        }
    }

    #[test]
    fn a_protective_call_waits_for_what_runs_and_for_nothing_else() {
        let mut board = Board::default();
        let calls = admitted(&mut board, 1, &["write:a", "write:a"]);
        assert!(board.turn(calls[0], Epoch(0)).is_ok());
        let stop = admitted(&mut board, 2, &["stop:a"])[0];
        assert_eq!(board.turn(stop, Epoch(0)).unwrap_err(), NoTurn::NotYet);
        assert_eq!(board.leave(calls[0]), [stop]);
        // What waited comes after it.
        assert_eq!(board.turn(calls[1], Epoch(0)).unwrap_err(), NoTurn::NotYet);
        assert!(board.turn(stop, Epoch(0)).is_ok());
        assert_eq!(board.leave(stop), [calls[1]]);
    }

    #[test]
    fn the_line_is_bounded_and_keeps_room_for_protective_calls() {
        let mut board = Board::default();
        for number in 0..LIVE_CALLS_MAX as u64 {
            admitted(&mut board, number, &["look"]);
        }
        let mut admit = |verb: &str| -> Result<(), Why> {
            let permit: Permit = sample::permits(u64::MAX, &[verb]).remove(0);
            board.admit(permit).map(drop).map_err(|refusal| refusal.why().clone())
        };
        assert_eq!(admit("look"), Err(Why::Busy { limit: LIVE_CALLS_MAX }));
        assert_eq!(admit("stop:a"), Ok(()));
    }
}

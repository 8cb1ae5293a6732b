//! A6: what is kept must not rest on what is not.
//!
//! In one world the question comes down to single edges: on any path from a kept effect to one that was not kept, there
//! is an edge on which it turns. Over all worlds it does not, so *certain* walks from everything that is never kept.

use super::history::{Edge, History, Settled};
use super::reading::{Lists, May, Reading};

/// An edge out of an effect that is kept in every world and rests, over any number of steps, on one that is kept in
/// none; and that one. One marked search over reversed edges.
pub(super) fn certain<'h>(rests: &'h [Edge], kept: &[May]) -> Option<(&'h Edge, u32)> {
    let on = Lists::new(kept.len(), rests.iter().map(|edge| edge.to));
    let mut root: Vec<Option<u32>> =
        (0_u32..).zip(kept).map(|(at, kept)| (*kept == May::Never).then_some(at)).collect();
    let mut next: Vec<u32> = root.iter().flatten().copied().collect();
    while let Some(effect) = next.pop() {
        for edge in on.of(effect) {
            let edge = &rests[*edge as usize];
            if kept[edge.from as usize] == May::Surely {
                return root[effect as usize].map(|root| (edge, root));
            }
            if root[edge.from as usize].is_none() {
                root[edge.from as usize] = root[effect as usize];
                next.push(edge.from);
            }
        }
    }
    None
}

/// An edge whose one end is kept and whose other end is not, in some world that fits. The two ends may hang on the
/// same bits: an effect is not kept and lost by one and the same attempt.
pub(super) fn possible<'h>(history: &'h History, reading: &Reading, kept: &[May]) -> Option<&'h Edge> {
    let of_effect = Lists::new(history.effect.len(), history.rests.iter().map(|edge| edge.from));
    let undone = Undone::new(history, reading);
    // The compensations that must have had no effect for the one end to be kept; marked by that end.
    let mut idle: Vec<Option<u32>> = vec![None; history.attempt.len()];
    for (number, own) in (0_u32..).zip(kept) {
        let edges = of_effect.of(number);
        if *own == May::Never || edges.is_empty() {
            continue;
        }
        undone.of(number, |compensation| idle[compensation as usize] = Some(number));
        let maker = reading.items[number as usize].attempt;
        for edge in edges {
            let edge = &history.rests[*edge as usize];
            let item = &reading.items[edge.to as usize];
            let is_idle = |attempt: u32| idle[attempt as usize] == Some(number);
            let absent = match reading.bits[item.attempt as usize] {
                May::Never => true,
                May::Maybe => item.attempt != maker || is_idle(item.attempt),
                May::Surely => is_idle(item.attempt),
            };
            let mut gone = absent || item.discarded.is_some() || !settled_well(history, item.attempt);
            undone.of(edge.to, |compensation| {
                gone |= match reading.bits[compensation as usize] {
                    May::Never => false,
                    May::Maybe => !is_idle(compensation),
                    May::Surely => true,
                }
            });
            if gone {
                return Some(edge);
            }
        }
    }
    None
}

/// Its workflow committed, with its branch.
fn settled_well(history: &History, attempt: u32) -> bool {
    let attempt = &history.attempt[attempt as usize];
    let branch = history.branch[attempt.branch as usize];
    match history.workflow[history.groups.all[attempt.group as usize].0 as usize].settled {
        Settled::Committed(_) => branch.kept && branch.aborted.is_none(),
        Settled::Aborted(_) | Settled::Open => false,
    }
}

/// Which compensations may undo each listed effect.
struct Undone<'h> {
    history: &'h History,
    listed: Lists,
    /// The compensations that list nothing, by the attempt that they aim at.
    silent: Vec<(u32, u32)>,
    runtime: bool,
}

impl<'h> Undone<'h> {
    fn new(history: &'h History, reading: &Reading) -> Undone<'h> {
        let listed = Lists::new(history.effect.len(), history.undone.iter().map(|edge| edge.to));
        let silent = history.compensated.iter().filter(|edge| !history.attempt[edge.from as usize].undoes);
        let mut silent: Vec<(u32, u32)> = silent.map(|edge| (edge.to, edge.from)).collect();
        silent.sort_unstable();
        // In the view of the world every bit is set, and a compensation undoes just what it is said to.
        let runtime = reading.bits.iter().any(|bit| *bit != May::Surely);
        Undone { history, listed, silent, runtime }
    }

    fn of(&self, effect: u32, mut each: impl FnMut(u32)) {
        for edge in self.listed.of(effect) {
            each(self.history.undone[*edge as usize].from);
        }
        if self.runtime {
            let attempt = self.history.effect[effect as usize].attempt;
            let from = self.silent.partition_point(|(aim, _)| *aim < attempt);
            for (_, compensation) in self.silent[from..].iter().take_while(|(aim, _)| *aim == attempt) {
                each(*compensation);
            }
        }
    }
}

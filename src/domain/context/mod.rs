//! Keeps a history within a model's window: six levels, each only as far as needed (mediation, "Context lifecycle").
//!
//! 0 prunes pictures, 1 snips results, 2 puts results on the disk with a pointer that can be read back, 3 folds the
//! middle into a bounded summary, 4 keeps the last round only, 5 caps what is left. For each of them: the estimate does
//! not grow, what the active task hangs on stays, the history stays legal, and doing it twice changes nothing. The
//! machine never waits: it says what it needs (files on the disk, a summary) and is told what came of that. It cannot
//! loop: a fixed part that is too large is an error, and three compactions that free nothing are the end.

mod cut;
pub mod estimate;
mod fold;
#[cfg(test)]
mod tests;

use thiserror::Error;

use crate::block::Message;

pub use cut::Spilled;
pub use fold::{SUMMARY_MARK, anchored};

use estimate::Scale;

/// How full a window may be before it is made smaller, in hundredths of what is not kept for the answer.
const TRIGGER: usize = 85;

/// How full it may be after the provider said that it was too full all the same.
const TRIGGER_FORCED: usize = 60;

/// A compaction that frees less than this part of the trigger made no progress: the next turn fills it again.
const PROGRESS: usize = 20;

/// How many compactions without progress end a run.
pub const STALLED_MAX: u32 = 3;

/// The longest summary in tokens, and the shortest bound for one.
const SUMMARY_MAX: usize = 2000;
const SUMMARY_MIN: usize = 64;

/// A result below this is never sent to the disk for its size alone.
const RESULT_MIN: usize = 256;

/// What there is room for. Tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// The model's window.
    pub window: usize,
    /// What of it is kept for the answer.
    pub reserve: usize,
    /// Above this, the history is made smaller.
    pub trigger: usize,
    /// The longest summary.
    pub summary: usize,
    /// A result above this goes to the disk in any case.
    pub result: usize,
}

impl Budget {
    /// Of a window, `reserve` of which is kept for the answer.
    #[must_use]
    pub fn of(window: usize, reserve: usize) -> Budget {
        let trigger = window.saturating_sub(reserve) * TRIGGER / 100;
        Budget {
            window,
            reserve,
            trigger,
            summary: (trigger / 8).clamp(SUMMARY_MIN, SUMMARY_MAX),
            result: (trigger / 4).max(RESULT_MIN),
        }
    }

    fn room(&self) -> usize {
        self.window.saturating_sub(self.reserve)
    }
}

/// What was done to make a history smaller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// 0: pictures.
    Images,
    /// 1: old results, shortened.
    Snip,
    /// 2: results on the disk.
    Spill,
    /// 3: the middle, summed up.
    Fold,
    /// 4: everything but the last round, summed up.
    Compact,
    /// 5: no result above a cap.
    Cap,
}

impl Level {
    /// The word in evidence rows.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Level::Images => "images",
            Level::Snip => "snip",
            Level::Spill => "spill",
            Level::Fold => "fold",
            Level::Compact => "compact",
            Level::Cap => "cap",
        }
    }
}

/// Why a history cannot be made to fit. Tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Stuck {
    /// What is always sent leaves no room for a history: no compaction can ever help.
    #[error("instructions and tools take {fixed} tokens; the window leaves {trigger} for everything")]
    FixedTooLarge {
        /// Instructions and tools.
        fixed: usize,
        /// What they must stay below.
        trigger: usize,
    },
    /// Compaction frees nothing any more.
    #[error("three compactions in a row freed nothing that lasts")]
    NoProgress,
    /// What must stay is larger than the window.
    #[error("what the task needs takes {needed} tokens; the window has room for {room}")]
    NoRoom {
        /// What must stay.
        needed: usize,
        /// What there is room for.
        room: usize,
    },
}

impl Stuck {
    /// The stable code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Stuck::FixedTooLarge { .. } => "fixed_overhead_exceeds_budget",
            Stuck::NoProgress => "no_progress",
            Stuck::NoRoom { .. } => "no_room",
        }
    }
}

/// What is to be done next.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// The history may be sent. What was done to it is told; if anything was, it has to be written down first.
    Ready(Vec<Message>, Option<Done>),
    /// Put these on the disk, then call [`Keeper::spilled`].
    Spill(Vec<Spilled>),
    /// Ask for a summary with this request, then call [`Keeper::summary`].
    Summarize(Vec<Message>),
    /// It cannot go on.
    Stop(Stuck),
}

/// What was done to a history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Done {
    /// Which levels changed it.
    pub levels: Vec<Level>,
    /// The estimate before, with the fixed part.
    pub before: usize,
    /// The estimate after.
    pub after: usize,
}

/// A history on its way through the levels.
#[derive(Debug)]
struct Work {
    history: Vec<Message>,
    before: usize,
    goal: usize,
    levels: Vec<Level>,
}

#[derive(Debug, Default)]
enum At {
    #[default]
    Idle,
    Spilling(Work, Vec<Spilled>),
    Summing(Work, fold::Cut, Level),
}

/// The machine: one for a run.
#[derive(Debug)]
pub struct Keeper {
    budget: Budget,
    fixed: usize,
    scale: Scale,
    stalled: u32,
    at: At,
}

impl Keeper {
    /// For a model with this room, of which `fixed` tokens (as estimated) are always taken.
    #[must_use]
    pub fn new(budget: Budget, fixed: usize) -> Keeper {
        Keeper { budget, fixed, scale: Scale::default(), stalled: 0, at: At::Idle }
    }

    /// From now on so many tokens (as estimated) are always taken: other tools are offered.
    pub fn takes(&mut self, fixed: usize) {
        self.fixed = fixed;
    }

    /// The provider counted `tokens` for a request with this history.
    pub fn counted(&mut self, history: &[Message], tokens: u64) {
        self.scale = self.scale.seen(self.fixed + estimate::history(history), tokens);
    }

    /// Before every model call, also inside a turn: may this history be sent? `forced` after the provider said that it
    /// was too long.
    pub fn check(&mut self, history: Vec<Message>, forced: bool) -> Step {
        let trigger = self.budget.trigger;
        let goal = if forced { trigger * TRIGGER_FORCED / TRIGGER } else { trigger };
        let fixed = self.scale.of(self.fixed);
        if fixed >= goal {
            return Step::Stop(Stuck::FixedTooLarge { fixed, trigger: goal });
        }
        let before = self.total(&history);
        let mut work = Work { history, before, goal, levels: Vec::new() };
        let need = self.need(&work);
        if need > 0 && cut::prune_images(&mut work.history, need) > 0 {
            work.levels.push(Level::Images);
        }
        let need = self.need(&work);
        if need > 0 && cut::snip(&mut work.history, need) > 0 {
            work.levels.push(Level::Snip);
        }
        let files = cut::to_spill(&work.history, self.need(&work), self.budget.result);
        if files.is_empty() {
            return self.fold(work);
        }
        self.at = At::Spilling(work, files.clone());
        Step::Spill(files)
    }

    /// Where each of the files lies now, in their order; `None` for one that found no room.
    pub fn spilled(&mut self, places: Vec<Option<String>>) -> Step {
        let At::Spilling(mut work, files) = std::mem::take(&mut self.at) else { return Step::Stop(Stuck::NoProgress) };
        let places = places.into_iter().chain(std::iter::repeat(None));
        let kept: Vec<_> = files.into_iter().zip(places).collect();
        cut::point(&mut work.history, &kept, self.budget.result);
        work.levels.push(Level::Spill);
        self.fold(work)
    }

    /// The summary that was asked for; `None` when no model wrote one, and a plain one takes its place.
    pub fn summary(&mut self, summary: Option<&str>) -> Step {
        let At::Summing(mut work, cut, level) = std::mem::take(&mut self.at) else {
            return Step::Stop(Stuck::NoProgress);
        };
        let limit = self.budget.summary;
        let written = summary.map(|text| fold::bounded(text, limit)).filter(|text| !text.is_empty());
        let plain = || fold::plain(&work.history, cut, limit);
        let now = estimate::history(&work.history);
        let smaller =
            |text: String| Some(fold::folded(&work.history, cut, &text)).filter(|h| estimate::history(h) < now);
        if let Some(folded) = written.and_then(smaller).or_else(|| smaller(plain())) {
            work.history = folded;
            work.levels.push(level);
        }
        match level {
            Level::Fold if self.need(&work) > 0 => self.compact(work),
            Level::Images | Level::Snip | Level::Spill | Level::Fold | Level::Compact | Level::Cap => self.finish(work),
        }
    }

    /// Level 3, if it is needed.
    fn fold(&mut self, work: Work) -> Step {
        if self.need(&work) == 0 {
            return self.finish(work);
        }
        if self.stalled >= STALLED_MAX {
            return Step::Stop(Stuck::NoProgress);
        }
        let tail = work.goal.saturating_sub(self.scale.of(self.fixed)) / 2;
        match fold::cut(&work.history, self.unscaled(tail)) {
            Some(cut) => self.ask(work, cut, Level::Fold),
            None => self.finish(work),
        }
    }

    fn compact(&mut self, work: Work) -> Step {
        match fold::last_round(&work.history) {
            Some(cut) => self.ask(work, cut, Level::Compact),
            None => self.finish(work),
        }
    }

    fn ask(&mut self, work: Work, cut: fold::Cut, level: Level) -> Step {
        let request = fold::request(&work.history, cut, self.unscaled(self.budget.room()));
        self.at = At::Summing(work, cut, level);
        Step::Summarize(request)
    }

    /// Level 5, and the account of what was gained.
    fn finish(&mut self, mut work: Work) -> Step {
        if self.need(&work) > 0 {
            let before = estimate::history(&work.history);
            let mut cap = self.budget.result;
            while self.need(&work) > 0 && cap >= SUMMARY_MIN {
                cap /= 2;
                cut::cap(&mut work.history, cap);
            }
            if estimate::history(&work.history) < before {
                work.levels.push(Level::Cap);
            }
        }
        let after = self.total(&work.history);
        if after > self.budget.room() {
            return Step::Stop(Stuck::NoRoom { needed: after, room: self.budget.room() });
        }
        if work.levels.iter().any(|level| *level >= Level::Fold) {
            let freed = work.before.saturating_sub(after);
            self.stalled = if freed < self.budget.trigger / PROGRESS { self.stalled + 1 } else { 0 };
        }
        let done = (!work.levels.is_empty()).then_some(Done { levels: work.levels, before: work.before, after });
        Step::Ready(work.history, done)
    }

    fn total(&self, history: &[Message]) -> usize {
        self.scale.of(self.fixed + estimate::history(history))
    }

    /// How many tokens, as estimated, are too many.
    fn need(&self, work: &Work) -> usize {
        self.unscaled(self.total(&work.history).saturating_sub(work.goal).saturating_mul(1001) / 1000)
    }

    fn unscaled(&self, tokens: usize) -> usize {
        tokens.saturating_mul(1000) / self.scale.of(1000).max(1)
    }
}

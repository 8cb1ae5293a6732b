//! Who is there: births, ends and the records of the ended, each under (task, generation).
//!
//! Bounded on all sides: so many living, so many ended that are listed, so many cleaned that are remembered. A number
//! is never given twice, also not after a restart (the caller passes the first free one).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use thiserror::Error;

use super::judge::{Life, Limits, Sample};
use super::lifecycle::{Cause, Notice, State};
use crate::id::{TaskId, WorkerKey};
use crate::time::Tick;

/// How long STOPPED and DEAD stay listed by default (contracts.md, "Liveness defaults").
pub const KEEP: Duration = Duration::from_secs(60 * 60);
/// Most ended lives that are listed at once; the oldest is cleaned early, since a crash loop must not fill the memory.
pub const ENDED_MAX: usize = 1024;
/// Most cleaned lives that are remembered for `task list --all`.
pub const CLEANED_MAX: usize = 1024;

/// Why no worker is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("{living} workers run, and {max} are allowed")]
pub struct TooMany {
    /// How many run.
    pub living: usize,
    /// How many may.
    pub max: usize,
}

/// A task that cannot be cleaned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum NotCleaned {
    /// Nobody has that number.
    #[error("there is no task {0}")]
    NoSuchTask(TaskId),
    /// It still runs.
    #[error("task {0} is {state}: stop it first", state = .1.name())]
    Living(TaskId, State),
}

/// All lives that are known.
#[derive(Debug)]
pub struct Census {
    next: u64,
    living_max: usize,
    keep: Duration,
    lives: BTreeMap<WorkerKey, Life>,
    living: usize,
    ended: BTreeSet<(Tick, WorkerKey)>,
    cleaned: BTreeSet<(Tick, WorkerKey)>,
}

impl Census {
    /// Nobody is there yet; the first task gets the number `first`.
    #[must_use]
    pub fn new(first: TaskId, living_max: usize, keep: Duration) -> Census {
        Census {
            next: first.0,
            living_max,
            keep,
            lives: BTreeMap::new(),
            living: 0,
            ended: BTreeSet::new(),
            cleaned: BTreeSet::new(),
        }
    }

    /// The first life of a new task.
    ///
    /// # Errors
    /// When as many run as may.
    pub fn birth(&mut self, limits: Limits, now: Tick) -> Result<WorkerKey, TooMany> {
        if self.living >= self.living_max {
            return Err(TooMany { living: self.living, max: self.living_max });
        }
        let key = WorkerKey { task: TaskId(self.next), generation: 1 };
        self.next += 1;
        self.living += 1;
        self.lives.insert(key, Life::new(key, limits, now));
        Ok(key)
    }

    /// The next life of a task whose newest one has ended or was given up.
    ///
    /// # Errors
    /// When as many run as may; one that was given up and is still there counts.
    pub fn rebirth(&mut self, task: TaskId, limits: Limits, now: Tick) -> Result<Option<WorkerKey>, TooMany> {
        let Some(newest) = self.newest(task) else { return Ok(None) };
        if newest.state().is_living() && !newest.is_abandoned() {
            return Ok(None);
        }
        if self.living >= self.living_max {
            return Err(TooMany { living: self.living, max: self.living_max });
        }
        let key = WorkerKey { task, generation: newest.key().generation + 1 };
        self.living += 1;
        self.lives.insert(key, Life::new(key, limits, now));
        Ok(Some(key))
    }

    /// Takes back a birth of which nobody has heard: its thread could not be made. The number stays used.
    pub fn unborn(&mut self, key: WorkerKey) {
        if self.lives.remove(&key).is_some_and(|life| life.state().is_living()) {
            self.living -= 1;
        }
    }

    /// One life.
    #[must_use]
    pub fn life(&self, key: WorkerKey) -> Option<&Life> {
        self.lives.get(&key)
    }

    /// One life, to be paused or resumed.
    pub fn life_mut(&mut self, key: WorkerKey) -> Option<&mut Life> {
        self.lives.get_mut(&key)
    }

    /// The newest life of a task.
    #[must_use]
    pub fn newest(&self, task: TaskId) -> Option<&Life> {
        let all = WorkerKey { task, generation: 0 }..=WorkerKey { task, generation: u32::MAX };
        self.lives.range(all).next_back().map(|(_, life)| life)
    }

    /// All lives, by task and generation.
    pub fn lives(&self) -> impl Iterator<Item = &Life> {
        self.lives.values()
    }

    /// How many run.
    #[must_use]
    pub fn living(&self) -> usize {
        self.living
    }

    /// Looks once at one life.
    pub fn judge(&mut self, key: WorkerKey, sample: &Sample<'_>, now: Tick) -> Option<Notice> {
        let life = self.lives.get_mut(&key)?;
        let lived = life.state().is_living();
        let notice = life.judge(sample, now);
        if lived && !life.state().is_living() {
            self.living -= 1;
            self.ended.insert((now, key));
        }
        notice
    }

    /// The supervisor did not run: nobody is judged on that time.
    pub fn rebaseline(&mut self, now: Tick) {
        for life in self.lives.values_mut().filter(|life| life.state().is_living()) {
            life.rebaseline(now);
        }
    }

    /// Cleans the newest life of a task, and those before it that have ended.
    ///
    /// # Errors
    /// When there is no such task, or it still runs.
    pub fn clean(&mut self, task: TaskId, now: Tick) -> Result<Vec<Notice>, NotCleaned> {
        let newest = self.newest(task).ok_or(NotCleaned::NoSuchTask(task))?;
        if newest.state().is_living() {
            return Err(NotCleaned::Living(task, newest.state()));
        }
        let keys: Vec<_> = self.ended.iter().filter(|(_, key)| key.task == task).copied().collect();
        Ok(keys.into_iter().filter_map(|entry| self.clean_one(entry, Cause::CleanedOnRequest, now)).collect())
    }

    /// Cleans what was listed for its time or is one too many, and forgets the oldest of the cleaned.
    pub fn expire(&mut self, now: Tick) -> Vec<Notice> {
        let mut notices = Vec::new();
        while let Some(&entry) = self.ended.first() {
            if now.since(entry.0) < self.keep && self.ended.len() <= ENDED_MAX {
                break;
            }
            notices.extend(self.clean_one(entry, Cause::Expired, now));
        }
        notices
    }

    fn clean_one(&mut self, entry: (Tick, WorkerKey), cause: Cause, now: Tick) -> Option<Notice> {
        self.ended.remove(&entry);
        self.cleaned.insert((now, entry.1));
        if self.cleaned.len() > CLEANED_MAX
            && let Some((_, oldest)) = self.cleaned.pop_first()
        {
            self.lives.remove(&oldest);
        }
        self.lives.get_mut(&entry.1)?.clean(cause, now)
    }
}

#[cfg(test)]
mod tests {
    use super::super::judge::{Doing, Hard};
    use super::super::lifecycle::{Outcome, Said};
    use super::*;

    const HOUR: u64 = 3_600_000_000_000;

    fn end(census: &mut Census, key: WorkerKey, now: Tick) {
        let said = Said::Finished { outcome: Outcome::Success, text: String::new() };
        let sample = Sample {
            hard: Hard::Gone,
            said: Some(&said),
            doing: Doing::Busy,
            beat_at: now,
            progress: 0,
            progress_at: None,
            counters: None,
        };
        census.judge(key, &sample, now);
    }

    fn states(census: &Census) -> Vec<(u64, State)> {
        census.lives().map(|life| (life.key().task.0, life.state())).collect()
    }

    #[test]
    fn numbers_go_on_from_the_first_and_are_never_reused() {
        let mut census = Census::new(TaskId(41), 2, KEEP);
        let first = census.birth(Limits::default(), Tick(0)).unwrap();
        assert_eq!(first, WorkerKey { task: TaskId(41), generation: 1 });
        let second = census.birth(Limits::default(), Tick(0)).unwrap();
        assert_eq!(census.birth(Limits::default(), Tick(0)), Err(TooMany { living: 2, max: 2 }));
        census.unborn(second);
        end(&mut census, first, Tick(1));
        assert_eq!(census.birth(Limits::default(), Tick(1)).unwrap().task, TaskId(43));
        assert_eq!(census.living(), 1);
    }

    #[test]
    fn an_ended_life_is_listed_for_its_time_and_then_cleaned() {
        let mut census = Census::new(TaskId(1), 9, KEEP);
        let key = census.birth(Limits::default(), Tick(0)).unwrap();
        end(&mut census, key, Tick(7));
        assert_eq!(census.expire(Tick(HOUR + 6)), []);
        let notices = census.expire(Tick(HOUR + 7));
        assert_eq!(
            notices.iter().map(|notice| (notice.to, notice.cause)).collect::<Vec<_>>(),
            [(Some(State::Cleaned), Cause::Expired)]
        );
        assert_eq!(states(&census), [(1, State::Cleaned)]);
        assert_eq!(census.life(key).unwrap().outcome(), Some(Outcome::Success));
        assert_eq!(census.expire(Tick(9 * HOUR)), []);
    }

    #[test]
    fn a_person_cleans_what_has_ended_and_nothing_else() {
        let mut census = Census::new(TaskId(1), 9, KEEP);
        let key = census.birth(Limits::default(), Tick(0)).unwrap();
        assert_eq!(census.clean(TaskId(9), Tick(1)), Err(NotCleaned::NoSuchTask(TaskId(9))));
        assert_eq!(census.clean(TaskId(1), Tick(1)), Err(NotCleaned::Living(TaskId(1), State::Running)));
        end(&mut census, key, Tick(1));
        assert_eq!(census.clean(TaskId(1), Tick(2)).unwrap().len(), 1);
        assert_eq!(census.clean(TaskId(1), Tick(3)).unwrap().len(), 0);
    }

    #[test]
    fn a_task_has_one_life_after_another() {
        let mut census = Census::new(TaskId(1), 2, KEEP);
        let first = census.birth(Limits::default(), Tick(0)).unwrap();
        assert_eq!(census.rebirth(TaskId(1), Limits::default(), Tick(1)), Ok(None), "the first one lives");
        assert_eq!(census.rebirth(TaskId(9), Limits::default(), Tick(1)), Ok(None), "nobody has that number");
        end(&mut census, first, Tick(1));
        let second = census.rebirth(TaskId(1), Limits::default(), Tick(2)).unwrap().unwrap();
        assert_eq!(second, WorkerKey { task: TaskId(1), generation: 2 });
        census.life_mut(second).unwrap().abandon(Tick(3));
        let third = census.rebirth(TaskId(1), Limits::default(), Tick(4)).unwrap().unwrap();
        assert_eq!(third.generation, 3);
        census.life_mut(third).unwrap().abandon(Tick(5));
        let full = census.rebirth(TaskId(1), Limits::default(), Tick(6));
        assert_eq!(full, Err(TooMany { living: 2, max: 2 }), "two given up are still there");
        assert_eq!(census.newest(TaskId(1)).map(Life::key), Some(third));
    }

    #[test]
    fn a_crash_loop_does_not_fill_the_memory() {
        let mut census = Census::new(TaskId(1), 9, KEEP);
        for n in 0..3000 {
            let key = census.birth(Limits::default(), Tick(n)).unwrap();
            end(&mut census, key, Tick(n));
            census.expire(Tick(n));
        }
        assert_eq!(census.lives().count(), ENDED_MAX + CLEANED_MAX);
    }
}

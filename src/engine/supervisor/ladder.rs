//! Carries out what the ladder says: ask, give up, replace, hold, end the process.

use std::sync::Arc;

use interlock_domain::id::{TaskId, WorkerKey};
use interlock_domain::liveness::lifecycle::{Cause, Notice, State};
use interlock_domain::liveness::remedy::{Remedy, Restart, Step};
use interlock_domain::time::Tick;

use super::children::Launch;
use super::patrol::{Body, Patrol};
use super::spec::{Again, ChildSpec, ForeignAgain, SpawnRefused, TaskError, TaskSpec, Work};

/// How a task begins anew.
#[derive(Clone)]
pub(super) enum Anew {
    Rust(Again),
    Foreign(ForeignAgain),
    Child(ChildSpec),
}

/// What is remembered of a task over its lives.
pub(super) struct Care {
    remedy: Remedy,
    spec: TaskSpec,
    anew: Option<Anew>,
    /// When it is in the agenda.
    due: Option<Tick>,
}

impl Patrol {
    /// A life begins: the first of its task, or one more.
    pub(super) fn care_for(&mut self, key: WorkerKey, spec: &TaskSpec, anew: Option<Anew>, now: Tick) {
        if self.cares.contains_key(&key.task) {
            return;
        }
        let mut policy = spec.policy;
        if anew.is_none() {
            // What can be done only once is not begun again.
            policy.restart = Restart::Never;
        }
        let care = Care { remedy: Remedy::new(policy, now), spec: spec.clone(), anew, due: None };
        self.cares.insert(key.task, care);
    }

    /// Something was noticed about a life: the ladder of its task hears of it, if it is the newest.
    pub(super) fn heed(&mut self, notice: &Notice) {
        let (Some(key), Some(to)) = (notice.key, notice.to) else { return };
        if self.census.newest(key.task).map(|life| life.key()) != Some(key) {
            return;
        }
        let random = self.random();
        if let Some(care) = self.cares.get_mut(&key.task) {
            care.remedy.seen(to, notice.cause, notice.at, random);
        }
        self.schedule(key.task);
    }

    /// Puts the task where it belongs in the agenda.
    fn schedule(&mut self, task: TaskId) {
        let Some(care) = self.cares.get_mut(&task) else { return };
        let due = care.remedy.wake_at();
        if due == care.due {
            return;
        }
        if let Some(before) = care.due {
            self.agenda.remove(&(before, task));
        }
        care.due = due;
        if let Some(at) = due {
            self.agenda.insert((at, task));
        }
    }

    /// When the agenda is due.
    pub(super) fn agenda_due(&self) -> Option<Tick> {
        self.agenda.first().map(|(at, _)| *at)
    }

    /// Does what is due.
    pub(super) fn climb(&mut self, now: Tick) {
        // Each task is turned once in a round: a ladder cannot put off a scan.
        let due: Vec<TaskId> = self.agenda.iter().take_while(|(at, _)| *at <= now).map(|(_, task)| *task).collect();
        for task in due {
            let random = self.random();
            let Some(care) = self.cares.get_mut(&task) else { continue };
            let step = care.remedy.turn(now, random);
            self.schedule(task);
            match step {
                None => {}
                Some(Step::AskToStop) => self.ask_to_stop(task, "silent for too long", now),
                Some(Step::GiveUp) => self.give_up(task, now),
                Some(Step::Replace) => self.replace(task, now),
                Some(Step::Hold) => self.held(task, Cause::RestartHeld, now),
                Some(Step::EndProcess) => {
                    self.held(task, Cause::Escalated, now);
                    self.end_process(task);
                }
            }
        }
    }

    /// Asks the newest life of a task to stop, once.
    pub(super) fn ask_to_stop(&mut self, task: TaskId, why: &str, now: Tick) {
        let Ok(at) = self.living(task) else { return };
        let first = !self.rows[at].slot.stop_asked();
        self.rows[at].slot.ask_to_stop();
        if let Body::Process(process) = &self.rows[at].body {
            // Gone already: its end is on the way to us.
            let _ = process.ask_to_end();
        }
        if first && let Some(life) = self.census.life(self.rows[at].key) {
            let notice = life.note(Cause::StopAsked, why.to_owned(), now);
            self.outbox.put(notice);
        }
    }

    /// A person asks a task to stop: nothing follows it.
    pub(super) fn dismiss(&mut self, task: TaskId, now: Tick) {
        if let Some(care) = self.cares.get_mut(&task) {
            care.remedy.dismiss(now);
        }
        self.schedule(task);
    }

    /// Revokes the handle of the newest life; kills it where it is a process.
    pub(super) fn give_up(&mut self, task: TaskId, now: Tick) {
        let Ok(at) = self.living(task) else { return };
        let key = self.rows[at].key;
        self.rows[at].slot.revoke();
        self.hot[at].plain = false;
        if let Body::Process(process) = &self.rows[at].body {
            process.kill_group();
        }
        if let Some(notice) = self.census.life_mut(key).and_then(|life| life.abandon(now)) {
            self.outbox.put(notice);
        }
    }

    fn replace(&mut self, task: TaskId, now: Tick) {
        let Some(care) = self.cares.get(&task) else { return };
        let (spec, anew) = (care.spec.clone(), care.anew.clone());
        let work = match anew {
            None => return,
            Some(Anew::Rust(work)) => Work::Again(work),
            Some(Anew::Foreign(make)) => Work::Foreign(make),
            Some(Anew::Child(child)) => {
                let launch = Launch {
                    tau: spec.tau.unwrap_or(self.limits.tau),
                    spec,
                    child,
                    again_for: Some(task),
                    reply: None,
                    requests: self.requests.clone(),
                    bell: self.bell(),
                    ear: Arc::from(self.ear.address()),
                };
                if launch.start().is_err() {
                    self.not_replaced(task, now);
                }
                return;
            }
        };
        let born: Result<WorkerKey, SpawnRefused> = self.begin(spec, work, Some(task), now);
        if born.is_err() {
            self.not_replaced(task, now);
        }
    }

    /// A new life could not begin; it is tried again.
    pub(super) fn not_replaced(&mut self, task: TaskId, now: Tick) {
        if let Some(care) = self.cares.get_mut(&task) {
            care.remedy.not_replaced(now);
        }
        self.schedule(task);
    }

    /// A person begins it again.
    pub(super) fn restart(&mut self, task: TaskId, now: Tick) -> Result<(), TaskError> {
        let life = self.census.newest(task).ok_or(TaskError::NoSuchTask(task))?;
        let ended = !life.state().is_living() || life.is_abandoned();
        let care = self.cares.get_mut(&task).filter(|care| ended && care.anew.is_some());
        let begun = care.is_some_and(|care| care.remedy.again(now));
        if !begun {
            return Err(TaskError::NotRestartable(task));
        }
        self.schedule(task);
        Ok(())
    }

    fn held(&mut self, task: TaskId, cause: Cause, now: Tick) {
        let (Some(life), Some(care)) = (self.census.newest(task), self.cares.get(&task)) else { return };
        let policy = care.spec.policy;
        let detail =
            format!("{} restarts in {:.0} s are all that it may have", policy.most, policy.within.as_secs_f64());
        let notice = life.note(cause, detail, now);
        self.outbox.put(notice);
    }

    fn end_process(&mut self, task: TaskId) {
        let why = format!("task {task} was restarted too often");
        match &mut self.end_process {
            Some(end) => end(&why),
            None => self.hopeless = Some(why),
        }
    }

    /// A task of which nothing is left: its ladder is forgotten.
    pub(super) fn forget_cares(&mut self) {
        let census = &self.census;
        self.cares.retain(|task, _| census.newest(*task).is_some_and(|life| life.state() != State::Cleaned));
        let cares = &self.cares;
        self.agenda.retain(|(_, task)| cares.contains_key(task));
    }
}

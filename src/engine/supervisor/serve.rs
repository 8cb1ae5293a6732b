//! What others ask of the supervisor, answered between two scans.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::TryRecvError;

use interlock_domain::id::{TaskId, WorkerKey};
use interlock_domain::liveness::census::TooMany;
use interlock_domain::liveness::judge::Limits;
use interlock_domain::liveness::lifecycle::{Cause, Notice, State};
use interlock_domain::liveness::suspicion::History;
use interlock_domain::time::Tick;

use super::Request;
use super::glance::Hot;
use super::ladder::Anew;
use super::patrol::{Body, Patrol, Row};
use super::slot::{Deaths, Slot};
use super::spec::{SpawnRefused, TaskError, TaskRow, TaskSpec, Work};
use super::worker;
use crate::sys::thread::Thread;
use crate::sys::{clock, machine};

/// Requests served in one round: a flood of them must not put off a scan.
const SERVED_MAX: usize = 256;

impl Patrol {
    pub(super) fn serve(&mut self, now: Tick) -> ControlFlow<()> {
        for _ in 0..SERVED_MAX {
            match self.inbox.try_recv() {
                Ok(request) if matches!(*request, Request::End) => return ControlFlow::Break(()),
                Ok(request) => self.serve_one(*request, now),
                // We hold an end ourselves, so nobody is ever the last to go.
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => {
                    self.behind = false;
                    return ControlFlow::Continue(());
                }
            }
        }
        self.behind = true;
        ControlFlow::Continue(())
    }

    /// Whoever asked may have gone: then the answer is dropped.
    fn serve_one(&mut self, request: Request, now: Tick) {
        match request {
            Request::Spawn(spec, work, reply) => drop(reply.send(self.begin(spec, work, None, now))),
            Request::Adopt(spec, slot, reply) => drop(reply.send(self.adopt(spec, slot, now))),
            Request::Launched(launched) => self.launched(*launched, now),
            Request::Stop(task, reply) => {
                let _ = reply.send(self.not_own(task).and_then(|()| self.stop(task, now)));
            }
            Request::Pause(task, pause, reply) => {
                let _ = reply.send(self.not_own(task).and_then(|()| self.pause(task, pause, now)));
            }
            Request::Abandon(task, reply) => {
                let _ = reply.send(self.not_own(task).and_then(|()| self.abandon(task, now)));
            }
            Request::Restart(task, reply) => drop(reply.send(self.restart(task, now))),
            Request::Clean(task, reply) => drop(reply.send(self.clean(task, now))),
            Request::List(reply) => drop(reply.send(self.list(now))),
            Request::StopAll(reply) => {
                let tasks: Vec<TaskId> = self.rows.iter().map(|row| row.key.task).collect();
                let asked = tasks.into_iter().filter(|task| self.stop(*task, now).is_ok()).count();
                // Whoever asked may be gone.
                let _ = reply.send(asked);
            }
            Request::End => {}
        }
    }

    // ---- births ----

    fn limits_of(&self, spec: &TaskSpec) -> Limits {
        Limits { tau: spec.tau.unwrap_or(self.limits.tau), ..self.limits }
    }

    /// A key for a new life: of a new task, or of one that begins anew.
    pub(super) fn birth(
        &mut self,
        spec: &TaskSpec,
        again_for: Option<TaskId>,
        now: Tick,
    ) -> Result<WorkerKey, SpawnRefused> {
        let limits = self.limits_of(spec);
        let born = match again_for {
            None => self.census.birth(limits, now).map(Some),
            Some(task) => self.census.rebirth(task, limits, now),
        };
        match born {
            Ok(Some(key)) => Ok(key),
            Ok(None) => Err(SpawnRefused::StillThere),
            Err(TooMany { living, max }) => Err(self.refused(SpawnRefused::TooMany { living, max }, now)),
        }
    }

    pub(super) fn slot(&mut self, spec: &TaskSpec, key: WorkerKey) -> Arc<Slot> {
        let tau = self.limits_of(spec).tau;
        let lies = Arc::clone(&self.figures.lies);
        let slot = Slot::new(&spec.name, tau, spec.checkpoints.clone(), lies, self.lines.take());
        slot.christen(key);
        Arc::new(slot)
    }

    /// Starts one life on a thread of its own.
    pub(super) fn begin(
        &mut self,
        spec: TaskSpec,
        work: Work,
        again_for: Option<TaskId>,
        now: Tick,
    ) -> Result<WorkerKey, SpawnRefused> {
        let key = self.birth(&spec, again_for, now)?;
        let slot = self.slot(&spec, key);
        let anew = match &work {
            Work::Once(_) => None,
            Work::Again(work) => Some(Anew::Rust(Arc::clone(work))),
            Work::Foreign(make) => Some(Anew::Foreign(Arc::clone(make))),
        };
        match worker::start(&spec, &slot, self.tier, &self.bell(), work) {
            Ok(thread) => {
                self.settle_in(key, spec, slot, Body::Thread, Some(thread), anew, now);
                Ok(key)
            }
            Err(error) => {
                self.census.unborn(key);
                let pids_max = machine::pids_max().unwrap_or_else(|| "unknown".to_owned());
                let refused = SpawnRefused::NoThread { name: spec.name, error: error.to_string(), pids_max };
                Err(self.refused(refused, now))
            }
        }
    }

    fn adopt(&mut self, spec: TaskSpec, slot: Arc<Slot>, now: Tick) -> Result<WorkerKey, SpawnRefused> {
        let key = self.birth(&spec, None, now)?;
        slot.christen(key);
        self.settle_in(key, spec, slot, Body::Adopted, None, None, now);
        Ok(key)
    }

    /// Gives a new life its place in the rounds.
    #[expect(clippy::too_many_arguments, reason = "all that a life is made of, from three makers")]
    pub(super) fn settle_in(
        &mut self,
        key: WorkerKey,
        spec: TaskSpec,
        slot: Arc<Slot>,
        body: Body,
        thread: Option<Thread>,
        anew: Option<Anew>,
        now: Tick,
    ) {
        self.care_for(key, &spec, anew, now);
        if let Some(life) = self.census.life(key) {
            let notice = life.birth(format!("{}: {}", spec.name, spec.about));
            self.outbox.put(notice);
        }
        let tau = self.limits_of(&spec).tau;
        let tau_ns = u64::try_from(tau.as_nanos()).unwrap_or(u64::MAX);
        self.by_token.insert(slot.token, key);
        self.places.insert(key, self.rows.len());
        let line = slot.pulse.number();
        self.hot.push(Hot { tau_ns, quiet_ns: tau_ns / 2, thread, line, deaths: Deaths::NotKnown, plain: true });
        self.rows.push(Row {
            slot,
            key,
            spec,
            started: clock::wall(),
            body,
            noted: [0; 4],
            history: History::default(),
            suspected: Tick(0),
            counting: None,
            status: String::new(),
        });
        // Its first deadline is not known to the last scan.
        let due = now.after(tau);
        self.due = Some(self.due.map_or(due, |other| other.min(due)));
    }

    pub(super) fn refused(&mut self, refused: SpawnRefused, now: Tick) -> SpawnRefused {
        let count = self.figures.spawn_refused.fetch_add(1, Ordering::Relaxed) + 1;
        // Whoever asks for ten thousand is told ten thousand times; the evidence, whenever the count has doubled.
        if count.is_power_of_two() {
            let detail = format!("{refused}; {count} refused so far");
            self.outbox.put(Notice::supervisor(Cause::SpawnRefused, detail, now));
        }
        refused
    }

    // ---- what a person says ----

    /// The place of the living life of a task.
    pub(super) fn living(&self, task: TaskId) -> Result<usize, TaskError> {
        let life = self.census.newest(task).ok_or(TaskError::NoSuchTask(task))?;
        let key = life.key();
        self.places.get(&key).copied().ok_or(TaskError::Ended(task, life.state()))
    }

    /// What the daemon is made of is nobody's to stop one by one.
    fn not_own(&self, task: TaskId) -> Result<(), TaskError> {
        let own = self.living(task).is_ok_and(|at| self.rows[at].spec.own);
        if own { Err(TaskError::Own(task)) } else { Ok(()) }
    }

    fn stop(&mut self, task: TaskId, now: Tick) -> Result<(), TaskError> {
        // Also when it is just between two lives: then no other one follows.
        self.dismiss(task, now);
        self.living(task)?;
        self.ask_to_stop(task, "", now);
        Ok(())
    }

    fn pause(&mut self, task: TaskId, pause: bool, now: Tick) -> Result<(), TaskError> {
        let at = self.living(task)?;
        if let Some(life) = self.census.life_mut(self.rows[at].key) {
            let notice = if pause { life.pause(now) } else { life.resume(now) };
            if let Some(notice) = notice {
                self.outbox.put(notice);
            }
        }
        self.rows[at].slot.set_pause(pause);
        Ok(())
    }

    fn abandon(&mut self, task: TaskId, now: Tick) -> Result<(), TaskError> {
        self.living(task)?;
        self.dismiss(task, now);
        self.give_up(task, now);
        Ok(())
    }

    fn clean(&mut self, task: TaskId, now: Tick) -> Result<usize, TaskError> {
        let notices = self.census.clean(task, now)?;
        let count = notices.len();
        notices.into_iter().for_each(|notice| self.outbox.put(notice));
        self.forget();
        Ok(count)
    }

    // ---- what is shown ----

    fn list(&self, now: Tick) -> Vec<TaskRow> {
        self.census
            .lives()
            .filter_map(|life| {
                let key = life.key();
                let mut row = match self.places.get(&key) {
                    Some(at) => self.row_of_living(*at, now),
                    None => self.past.get(&key)?.row(key),
                };
                (row.state, row.cause, row.outcome) = (life.state(), life.cause(), life.outcome());
                row.counters = life.window().map(ToString::to_string).unwrap_or_default();
                Some(row)
            })
            .collect()
    }

    fn row_of_living(&self, at: usize, now: Tick) -> TaskRow {
        let row = &self.rows[at];
        let slot = &row.slot;
        let (phase, checkpoint) = slot.names();
        let in_phase = !slot.is_plainly_busy() && !slot.owes_nothing();
        let silent = now.since(slot.beat_at());
        TaskRow {
            key: row.key,
            name: row.spec.name.clone(),
            about: row.spec.about.clone(),
            own: row.spec.own,
            state: State::Running,
            cause: None,
            last_beat_ms: u64::try_from(silent.as_millis()).ok(),
            progress: slot.progress_at().map(|_| slot.progress()),
            tid: slot.tid.load(Ordering::Acquire),
            started: row.started,
            outcome: None,
            said: String::new(),
            output: None,
            phase: if in_phase { phase } else { String::new() },
            checkpoint,
            wrong_thread_beats: slot.lies.wrong_thread.load(Ordering::Relaxed),
            status: row.status.clone(),
            suspicion: row.history.phi(silent, self.limits_of(&row.spec).tau),
            counters: String::new(),
        }
    }
}

//! The rounds of the supervisor's thread: wait, serve, scan, tell.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Duration;

use interlock_domain::id::{TaskId, WorkerKey};
use interlock_domain::liveness::cause::Counters;
use interlock_domain::liveness::census::{Census, TooMany};
use interlock_domain::liveness::judge::{Hard, Limits, Sample};
use interlock_domain::liveness::lifecycle::{Cause, Notice, Said, State};
use interlock_domain::time::{Tick, Wall};
use serde_json::Value;

use super::heart::{Deaths, Slot};
use super::outbox::Outbox;
use super::watchdog::{Fed, Feeder};
use super::worker::{self, Work};
use super::{Offer, Request, Settings, SharedFigures, SpawnRefused, TaskError, TaskRow, TaskSpec, Tier};
use crate::sys::family::Orphans;
use crate::sys::wake::Waiter;
use crate::sys::{clock, machine, proc, thread};

/// Requests served in one round: a flood of them must not put off a scan.
const SERVED_MAX: usize = 256;
/// The shortest time between two looks at everybody, however many deadlines fall together.
const SCAN_GAP_MIN: Duration = Duration::from_millis(5);
/// When notices that nobody took are offered again.
const OFFER_AGAIN: Duration = Duration::from_millis(20);
/// How long the mark of the panic hook excuses a silence: a backtrace takes its time, but not for ever.
const DYING_MAX: Duration = Duration::from_secs(10);
/// The nice value that the supervisor asks for: it must run on a machine that starves its workers.
const NICE: i32 = -10;

/// What a scan reads of a worker that is plainly well. One of these for each living worker, side by side.
struct Hot {
    slot: Arc<Slot>,
    tau_ns: u64,
    deaths: Deaths,
    /// Nothing was said about it: no cause, no suspicion.
    plain: bool,
}

struct Row {
    key: WorkerKey,
    spec: TaskSpec,
    started: Wall,
    thread: thread::Thread,
    /// Of each lie, how many were noted.
    noted: [u64; 4],
}

/// What is left of an ended life.
struct Past {
    spec: TaskSpec,
    started: Wall,
    tid: i32,
    progress: Option<u64>,
    said: String,
    output: Option<Value>,
    checkpoint: String,
    wrong_thread_beats: u64,
}

pub(super) struct Patrol {
    limits: Limits,
    tier: Tier,
    waiter: Waiter,
    inbox: Receiver<Request>,
    outbox: Outbox,
    figures: Arc<SharedFigures>,
    feeder: Option<Feeder>,
    orphans: Option<Orphans>,
    census: Census,
    /// `hot[i]` and `rows[i]` are the same worker.
    hot: Vec<Hot>,
    rows: Vec<Row>,
    by_token: BTreeMap<u64, WorkerKey>,
    places: BTreeMap<WorkerKey, usize>,
    past: BTreeMap<WorkerKey, Past>,
    /// Threads that are gone and could not be joined yet.
    joining: Vec<thread::Thread>,
    own_pid: i32,
    last_scan: Tick,
    /// Places to be looked at closely; kept, so that a scan allocates nothing.
    closely: Vec<usize>,
    /// The earliest deadline of anyone.
    due: Option<Tick>,
    lies_seen: u64,
    /// More requests wait than were served.
    behind: bool,
}

impl Patrol {
    pub(super) fn new(
        settings: Settings,
        tier: Tier,
        waiter: Waiter,
        inbox: Receiver<Request>,
        offer: Offer,
        figures: Arc<SharedFigures>,
    ) -> Patrol {
        let now = clock::now();
        Patrol {
            limits: settings.limits,
            tier,
            waiter,
            inbox,
            outbox: Outbox::new(offer),
            figures,
            feeder: settings.watchdog.map(|watchdog| Feeder::new(watchdog, now)),
            orphans: settings.reap_orphans.then(Orphans::default),
            census: Census::new(settings.first_task, settings.workers_max, settings.keep),
            hot: Vec::new(),
            rows: Vec::new(),
            by_token: BTreeMap::new(),
            places: BTreeMap::new(),
            past: BTreeMap::new(),
            joining: Vec::new(),
            own_pid: i32::try_from(std::process::id()).unwrap_or(0),
            last_scan: now,
            closely: Vec::new(),
            due: None,
            lies_seen: 0,
            behind: false,
        }
    }

    /// Until it is told to end.
    pub(super) fn run(mut self) {
        let raised = thread::set_nice(NICE);
        let detail =
            format!("tier {}, {}", self.tier.name(), if raised { "raised priority" } else { "usual priority" });
        self.outbox.put(Notice::supervisor(Cause::SupervisorStarted, detail, clock::now()));
        loop {
            let limit = self.patience(clock::now());
            let tokens = self.waiter.wait(limit);
            let now = clock::now();
            for token in tokens {
                self.told_gone(token, now);
            }
            if self.serve(now).is_break() {
                self.outbox.flush(now);
                return;
            }
            if now >= self.next_scan() {
                self.scan(now);
            }
            self.outbox.flush(now);
            self.show_figures();
        }
    }

    /// How long to wait for something to happen.
    fn patience(&self, now: Tick) -> Duration {
        let scan = self.next_scan().since(now);
        match (self.behind, self.outbox.waiting()) {
            (true, _) => Duration::ZERO,
            (false, 0) => scan,
            (false, 1..) => scan.min(OFFER_AGAIN),
        }
    }

    /// When to look at everybody: at each period, and at the earliest deadline, so that a silence is noticed at tau.
    fn next_scan(&self) -> Tick {
        let period = self.last_scan.after(self.limits.scan);
        let due = self.due.map_or(period, |due| due.max(self.last_scan.after(SCAN_GAP_MIN)));
        let ping = self.feeder.as_ref().map_or(period, Feeder::due);
        period.min(due).min(ping)
    }

    fn show_figures(&self) {
        let figures = &self.figures;
        figures.cpu_ns.store(clock::thread_cpu_ns(), Ordering::Relaxed);
        figures.notices_waiting.store(self.outbox.waiting() as u64, Ordering::Relaxed);
        figures.notices_lost.store(self.outbox.lost(), Ordering::Relaxed);
        figures.living.store(self.rows.len() as u64, Ordering::Relaxed);
    }

    // ---- what others ask ----

    fn serve(&mut self, now: Tick) -> std::ops::ControlFlow<()> {
        for _ in 0..SERVED_MAX {
            match self.inbox.try_recv() {
                Ok(Request::End) => return std::ops::ControlFlow::Break(()),
                Ok(request) => self.serve_one(request, now),
                Err(TryRecvError::Empty) => {
                    self.behind = false;
                    return std::ops::ControlFlow::Continue(());
                }
                // Nobody can ask any more; the workers are still watched.
                Err(TryRecvError::Disconnected) => {
                    self.behind = false;
                    return std::ops::ControlFlow::Continue(());
                }
            }
        }
        self.behind = true;
        std::ops::ControlFlow::Continue(())
    }

    /// Whoever asked may have gone: then the answer is dropped.
    fn serve_one(&mut self, request: Request, now: Tick) {
        match request {
            Request::Spawn(spec, work, reply) => drop(reply.send(self.spawn(spec, work, now))),
            Request::Stop(task, reply) => drop(reply.send(self.stop(task, now))),
            Request::Pause(task, pause, reply) => drop(reply.send(self.pause(task, pause, now))),
            Request::Abandon(task, reply) => drop(reply.send(self.abandon(task, now))),
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

    fn spawn(&mut self, spec: TaskSpec, work: Work, now: Tick) -> Result<WorkerKey, SpawnRefused> {
        let limits = Limits { tau: spec.tau.unwrap_or(self.limits.tau), ..self.limits };
        let born = self.census.birth(limits, now);
        let key = born.map_err(|TooMany { living, max }| self.refused(SpawnRefused::TooMany { living, max }, now))?;
        let slot =
            Arc::new(Slot::new(&spec.name, limits.tau, spec.checkpoints.clone(), Arc::clone(&self.figures.lies)));
        slot.christen(key);
        let bell = self.waiter.bell();
        let thread = match worker::start(&spec.name, spec.stack, &slot, self.tier, &bell, work) {
            Ok(thread) => thread,
            Err(error) => {
                self.census.unborn(key);
                let pids_max = machine::pids_max().unwrap_or_else(|| "unknown".to_owned());
                let refused = SpawnRefused::NoThread { name: spec.name, error: error.to_string(), pids_max };
                return Err(self.refused(refused, now));
            }
        };
        if let Some(life) = self.census.life(key) {
            self.outbox.put(life.birth(format!("{}: {}", spec.name, spec.about)));
        }
        let tau_ns = u64::try_from(limits.tau.as_nanos()).unwrap_or(u64::MAX);
        self.by_token.insert(slot.token, key);
        self.places.insert(key, self.rows.len());
        self.hot.push(Hot { slot, tau_ns, deaths: Deaths::NotKnown, plain: true });
        self.rows.push(Row { key, spec, started: clock::wall(), thread, noted: [0; 4] });
        // Its first deadline is not known to the last scan.
        let due = now.after(limits.tau);
        self.due = Some(self.due.map_or(due, |other| other.min(due)));
        Ok(key)
    }

    fn refused(&mut self, refused: SpawnRefused, now: Tick) -> SpawnRefused {
        self.figures.spawn_refused.fetch_add(1, Ordering::Relaxed);
        self.outbox.put(Notice::supervisor(Cause::SpawnRefused, refused.to_string(), now));
        refused
    }

    /// The row of the living life of a task.
    fn living(&self, task: TaskId) -> Result<usize, TaskError> {
        let life = self.census.newest(task).ok_or(TaskError::NoSuchTask(task))?;
        let key = life.key();
        self.places.get(&key).copied().ok_or(TaskError::Ended(task, life.state()))
    }

    fn stop(&mut self, task: TaskId, now: Tick) -> Result<(), TaskError> {
        let at = self.living(task)?;
        let (slot, key) = (&self.hot[at].slot, self.rows[at].key);
        let first = !slot.stop_asked();
        slot.ask_to_stop();
        if first && let Some(life) = self.census.life(key) {
            self.outbox.put(life.note(Cause::StopAsked, String::new(), now));
        }
        Ok(())
    }

    fn pause(&mut self, task: TaskId, pause: bool, now: Tick) -> Result<(), TaskError> {
        let at = self.living(task)?;
        let key = self.rows[at].key;
        if let Some(life) = self.census.life_mut(key) {
            let notice = if pause { life.pause(now) } else { life.resume(now) };
            if let Some(notice) = notice {
                self.outbox.put(notice);
            }
        }
        self.hot[at].slot.set_pause(pause);
        Ok(())
    }

    fn abandon(&mut self, task: TaskId, now: Tick) -> Result<(), TaskError> {
        let at = self.living(task)?;
        let key = self.rows[at].key;
        self.hot[at].slot.revoke();
        self.hot[at].plain = false;
        if let Some(notice) = self.census.life_mut(key).and_then(|life| life.abandon(now)) {
            self.outbox.put(notice);
        }
        Ok(())
    }

    fn clean(&mut self, task: TaskId, now: Tick) -> Result<usize, TaskError> {
        let notices = self.census.clean(task, now)?;
        let count = notices.len();
        notices.into_iter().for_each(|notice| self.outbox.put(notice));
        self.forget();
        Ok(count)
    }

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
        let (slot, row) = (&self.hot[at].slot, &self.rows[at]);
        let (phase, checkpoint) = slot.names();
        let in_phase = !slot.is_plainly_busy() && !slot.owes_nothing();
        TaskRow {
            key: row.key,
            name: row.spec.name.clone(),
            about: row.spec.about.clone(),
            state: State::Running,
            cause: None,
            last_beat_ms: u64::try_from(now.since(slot.beat_at()).as_millis()).ok(),
            progress: slot.progress_at().map(|_| slot.progress()),
            tid: slot.tid.load(Ordering::Acquire),
            started: row.started,
            outcome: None,
            said: String::new(),
            output: None,
            phase: if in_phase { phase } else { String::new() },
            checkpoint,
            wrong_thread_beats: slot.lies.wrong_thread.load(Ordering::Relaxed),
            counters: String::new(),
        }
    }

    // ---- what the threads do ----

    /// The kernel says that a thread is gone.
    fn told_gone(&mut self, token: u64, now: Tick) {
        let Some(key) = self.by_token.get(&token).copied() else { return };
        if let Some(at) = self.places.get(&key).copied() {
            self.bury(at, now);
        }
    }

    fn bury(&mut self, at: usize, now: Tick) {
        let Hot { slot, .. } = self.hot.swap_remove(at);
        let Row { key, spec, started, mut thread, .. } = self.rows.swap_remove(at);
        self.by_token.remove(&slot.token);
        self.places.remove(&key);
        if let Some(moved) = self.rows.get(at) {
            self.places.insert(moved.key, at);
        }
        if !thread.is_gone() {
            self.joining.push(thread);
        }
        let sample = sample(&slot, Hard::Gone, None);
        if let Some(notice) = self.census.judge(key, &sample, now) {
            self.outbox.put(notice);
        }
        slot.unlink();
        let said = match slot.said.get() {
            None => String::new(),
            Some(Said::Finished { text, .. }) => text.clone(),
            Some(Said::Panicked { text, place }) => format!("{text} at {place}"),
        };
        let past = Past {
            spec,
            started,
            tid: slot.tid.load(Ordering::Acquire),
            progress: slot.progress_at().map(|_| slot.progress()),
            said,
            output: slot.output.get().cloned(),
            checkpoint: slot.names().1,
            wrong_thread_beats: slot.lies.wrong_thread.load(Ordering::Relaxed),
        };
        self.past.insert(key, past);
    }

    /// One complete look at everybody.
    fn scan(&mut self, now: Tick) {
        let since = now.since(self.last_scan);
        if since > self.limits.scan * 2 {
            self.gap(since, now);
        }
        self.last_scan = now;
        let (mut due, mut closely) = self.glance(now);
        let mut stuck: Option<String> = None;
        // Backwards: a burial moves the last row to the place of the buried one, and the last was looked at.
        while let Some(at) = closely.pop() {
            if let Some(next) = self.look_closely(at, now, &mut stuck) {
                due = Some(due.map_or(next, |due| due.min(next)));
            }
        }
        self.closely = closely;
        self.due = due;
        self.note_lies(now);
        self.tidy_up(now);
        self.feed(stuck.as_deref(), now);
        let took = u64::try_from(clock::now().since(now).as_nanos()).unwrap_or(u64::MAX);
        self.figures.last_scan_ns.store(took, Ordering::Relaxed);
        self.figures.longest_scan_ns.fetch_max(took, Ordering::Relaxed);
        self.figures.scans.fetch_add(1, Ordering::Release);
    }

    /// One pass over everybody that touches one line of each: the earliest deadline of those that are plainly well, and
    /// the places of the others.
    fn glance(&mut self, now: Tick) -> (Option<Tick>, Vec<usize>) {
        let mut closely = std::mem::take(&mut self.closely);
        closely.clear();
        let mut due = u64::MAX;
        for (at, hot) in self.hot.iter().enumerate() {
            match hot.quiet(now) {
                Some(next) if hot.deaths == Deaths::Told => due = due.min(next),
                Some(_) | None => closely.push(at),
            }
        }
        ((due != u64::MAX).then_some(Tick(due)), closely)
    }

    /// The second look, at those who are not plainly well or have to be asked whether they are there.
    fn look_closely(&mut self, at: usize, now: Tick, stuck: &mut Option<String>) -> Option<Tick> {
        if self.hot[at].deaths == Deaths::NotKnown {
            self.hot[at].deaths = self.hot[at].slot.deaths();
        }
        let gone = match self.hot[at].deaths {
            Deaths::Told => false,
            Deaths::NotKnown | Deaths::Joined => self.rows[at].thread.is_gone(),
            Deaths::Asked => {
                let link = self.hot[at].slot.with_link(super::link::Link::says_gone);
                link.unwrap_or(false) || self.rows[at].thread.is_gone()
            }
        };
        if gone {
            self.bury(at, now);
            return None;
        }
        match self.hot[at].quiet(now) {
            Some(next) => (next != u64::MAX).then_some(Tick(next)),
            None => self.look(at, now, stuck),
        }
    }

    /// Judges one worker; when it is due next.
    fn look(&mut self, at: usize, now: Tick, stuck: &mut Option<String>) -> Option<Tick> {
        let hot = &mut self.hot[at];
        let row = &self.rows[at];
        let life = self.census.life(row.key)?;
        let hard = match hot.slot.dying_since() {
            Some(since) if now.since(since) < DYING_MAX => Hard::Dying,
            Some(_) | None => Hard::Alive,
        };
        let mut sample = sample(&hot.slot, hard, None);
        if life.is_suspect(&sample, now) {
            // Of a thread that goes away under our hands there are none.
            sample.counters = proc::counters(self.own_pid, hot.slot.tid.load(Ordering::Acquire)).ok();
        }
        if let Some(mut notice) = self.census.judge(row.key, &sample, now) {
            let (phase, _) = hot.slot.names();
            if !phase.is_empty() && !hot.slot.is_plainly_busy() {
                notice.detail = format!("phase {phase}: {}", notice.detail);
            }
            self.outbox.put(notice);
        }
        let life = self.census.life(row.key)?;
        hot.plain = life.state() == State::Running && life.cause().is_none() && life.window().is_none();
        if row.spec.vital && life.state() == State::Zombie && !life.is_abandoned() && stuck.is_none() {
            *stuck = Some(format!("{} ({})", row.key.task, row.spec.name));
        }
        life.due(&sample, now)
    }

    fn gap(&mut self, since: Duration, now: Tick) {
        self.census.rebaseline(now);
        if let Some(feeder) = &mut self.feeder {
            feeder.rebaseline(now);
        }
        // Whoever was plainly well is looked at closely until the baseline is in its past.
        self.hot.iter_mut().for_each(|hot| hot.plain = false);
        self.figures.gaps.fetch_add(1, Ordering::Relaxed);
        let detail = format!(
            "no scan for {:.3} s where one is due every {:.3} s; nobody is judged on that time",
            since.as_secs_f64(),
            self.limits.scan.as_secs_f64()
        );
        self.outbox.put(Notice::supervisor(Cause::SupervisorGap, detail, now));
    }

    /// Each kind of lie of each worker is noted the first time and whenever its count has doubled.
    fn note_lies(&mut self, now: Tick) {
        let total = self.figures.lies.load(Ordering::Acquire);
        if std::mem::replace(&mut self.lies_seen, total) == total {
            return;
        }
        for (hot, row) in self.hot.iter().zip(&mut self.rows) {
            let lies = &hot.slot.lies;
            let counts = [
                (&lies.wrong_thread, Cause::WrongThreadHeartbeat),
                (&lies.backwards, Cause::ProgressBackwards),
                (&lies.limit_cut, Cause::PhaseLimitCut),
                (&lies.out_of_order, Cause::CheckpointOrder),
            ];
            for ((count, cause), noted) in counts.into_iter().zip(&mut row.noted) {
                let count = count.load(Ordering::Relaxed);
                if count > 0 && count >= *noted * 2 && count > *noted {
                    *noted = count;
                    if let Some(life) = self.census.life(row.key) {
                        self.outbox.put(life.note(cause, format!("{count} so far"), now));
                    }
                }
            }
        }
    }

    fn tidy_up(&mut self, now: Tick) {
        self.joining.retain_mut(|thread| !thread.is_gone());
        let expired = self.census.expire(now);
        if !expired.is_empty() {
            expired.into_iter().for_each(|notice| self.outbox.put(notice));
            self.forget();
        }
        if let Some(orphans) = &mut self.orphans {
            orphans.reap(now);
        }
    }

    /// The census remembers only so many of the cleaned.
    fn forget(&mut self) {
        let census = &self.census;
        self.past.retain(|key, _| census.life(*key).is_some());
    }

    fn feed(&mut self, stuck: Option<&str>, now: Tick) {
        let Some(feeder) = &mut self.feeder else { return };
        match feeder.turn(stuck, now) {
            Fed::NotDue => {}
            Fed::Pinged => drop(self.figures.pings.fetch_add(1, Ordering::Relaxed)),
            Fed::Held { what, first } => {
                if first {
                    let detail = format!("{what} does not advance; systemd will restart the service");
                    self.outbox.put(Notice::supervisor(Cause::WatchdogHeld, detail, now));
                }
            }
        }
    }
}

impl Hot {
    /// When it is due next, ns (never, while it owes nothing: the far end of time), if a glance says that all is well.
    #[inline]
    fn quiet(&self, now: Tick) -> Option<u64> {
        if !self.plain {
            return None;
        }
        if !self.slot.is_plainly_busy() {
            return self.slot.owes_nothing().then_some(u64::MAX);
        }
        let beat_at = self.slot.beat_at();
        let silent = now.0.saturating_sub(beat_at.0);
        let flat = self.slot.progress_at().map_or(0, |at| now.0.saturating_sub(at.0));
        (silent < self.tau_ns / 2 && flat < self.tau_ns).then_some(beat_at.0 + self.tau_ns)
    }
}

impl Past {
    fn row(&self, key: WorkerKey) -> TaskRow {
        TaskRow {
            key,
            name: self.spec.name.clone(),
            about: self.spec.about.clone(),
            state: State::Dead,
            cause: None,
            last_beat_ms: None,
            progress: self.progress,
            tid: self.tid,
            started: self.started,
            outcome: None,
            said: self.said.clone(),
            output: self.output.clone(),
            phase: String::new(),
            checkpoint: self.checkpoint.clone(),
            wrong_thread_beats: self.wrong_thread_beats,
            counters: String::new(),
        }
    }
}

fn sample(slot: &Slot, hard: Hard, counters: Option<Counters>) -> Sample<'_> {
    let doing = slot.doing();
    Sample {
        hard,
        said: slot.said.get(),
        doing,
        beat_at: slot.beat_at(),
        progress: slot.progress(),
        progress_at: slot.progress_at(),
        counters,
    }
}

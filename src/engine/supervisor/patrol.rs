//! The rounds of the supervisor's thread: wait, serve, scan, tell.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender};
use std::time::Duration;

use interlock_domain::id::{TaskId, WorkerKey};
use interlock_domain::liveness::cause::Counters;
use interlock_domain::liveness::census::Census;
use interlock_domain::liveness::judge::{Hard, Limits, Sample};
use interlock_domain::liveness::lifecycle::{Cause, Notice, Said, State};
use interlock_domain::liveness::rate::Counting;
use interlock_domain::liveness::suspicion::History;
use interlock_domain::time::{Tick, Wall};
use serde_json::Value;

use super::glance::{Glanced, Hot, glance};
use super::ladder::Care;
use super::notes::wall_at_boot;
use super::outbox::Outbox;
use super::pulse::Lines;
use super::slot::{Deaths, Slot};
use super::watchdog::{Fed, Feeder};
use super::{EndProcess, Offer, Request, Settings, SharedFigures, TaskRow, TaskSpec, Tier};
use crate::sys::child::Process;
use crate::sys::family::Orphans;
use crate::sys::notified::Ear;
use crate::sys::wake::{Bell, Waiter};
use crate::sys::{clock, machine, proc, thread};

/// The token of the socket on which child processes speak. Slots count from 1.
pub(super) const EAR: u64 = u64::MAX - 1;
/// The shortest time between two looks at everybody, however many deadlines fall together.
const SCAN_GAP_MIN: Duration = Duration::from_millis(5);
/// When notices that nobody took are offered again.
const OFFER_AGAIN: Duration = Duration::from_millis(20);
/// How long the mark of the panic hook excuses a silence: a backtrace takes its time, but not for ever.
const DYING_MAX: Duration = Duration::from_secs(10);
/// The least lateness that counts as a gap, for scans that are shorter: below it, it is the scheduler's daily noise.
const GAP_MIN: Duration = Duration::from_millis(250);
/// The nice value that the supervisor asks for: it must run on a machine that starves its workers.
const NICE: i32 = -10;

/// What lives in a row.
pub(super) enum Body {
    /// A thread that we made; its handle lies with what every scan reads.
    Thread,
    /// A thread that somebody else made.
    Adopted,
    /// A child process.
    Process(Process),
}

impl Body {
    /// Whether it can be told that it is gone by asking the body itself.
    fn is_gone(&mut self) -> bool {
        match self {
            Body::Thread | Body::Adopted => false,
            Body::Process(process) => process.is_gone(),
        }
    }
}

pub(super) struct Row {
    pub(super) slot: Arc<Slot>,
    pub(super) key: WorkerKey,
    pub(super) spec: TaskSpec,
    pub(super) started: Wall,
    pub(super) body: Body,
    /// Of each lie, how many were noted.
    pub(super) noted: [u64; 4],
    pub(super) history: History,
    /// The beat after which the silence was called unusual.
    pub(super) suspected: Tick,
    pub(super) counting: Option<Counting>,
    /// What it says of itself.
    pub(super) status: String,
}

/// What is left of an ended life.
pub(super) struct Past {
    spec: TaskSpec,
    started: Wall,
    tid: i32,
    progress: Option<u64>,
    said: String,
    output: Option<Value>,
    checkpoint: String,
    wrong_thread_beats: u64,
    status: String,
}

pub(super) struct Patrol {
    pub(super) limits: Limits,
    pub(super) tier: Tier,
    waiter: Waiter,
    pub(super) requests: SyncSender<Box<Request>>,
    pub(super) inbox: Receiver<Box<Request>>,
    pub(super) ear: Ear,
    pub(super) outbox: Outbox,
    pub(super) figures: Arc<SharedFigures>,
    feeder: Option<Feeder>,
    orphans: Option<Orphans>,
    pub(super) census: Census,
    pub(super) lines: Lines,
    /// `hot[i]` and `rows[i]` are the same worker.
    pub(super) hot: Vec<Hot>,
    pub(super) rows: Vec<Row>,
    pub(super) by_token: BTreeMap<u64, WorkerKey>,
    pub(super) by_pid: BTreeMap<i32, WorkerKey>,
    pub(super) places: BTreeMap<WorkerKey, usize>,
    pub(super) past: BTreeMap<WorkerKey, Past>,
    pub(super) cares: BTreeMap<TaskId, Care>,
    /// When which ladder has a step to make.
    pub(super) agenda: BTreeSet<(Tick, TaskId)>,
    pub(super) end_process: Option<EndProcess>,
    /// Why the watchdog is held for good.
    pub(super) hopeless: Option<String>,
    /// Threads that are gone and could not be joined yet.
    joining: Vec<thread::Thread>,
    own_pid: i32,
    last_scan: Tick,
    /// Places to be looked at closely; kept, so that a scan allocates nothing.
    closely: Vec<usize>,
    /// Whose rhythm is looked at next.
    pub(super) rhythm_at: usize,
    /// The earliest deadline of anyone.
    pub(super) due: Option<Tick>,
    pub(super) lies_seen: u64,
    /// What the wall clock said at the start of the boot's time, ms: it moves only when it is set.
    pub(super) wall_at_boot: i64,
    random: u64,
    /// More requests wait than were served.
    pub(super) behind: bool,
}

impl Patrol {
    pub(super) fn new(
        settings: Settings,
        tier: Tier,
        waiter: Waiter,
        (requests, inbox): (SyncSender<Box<Request>>, Receiver<Box<Request>>),
        ear: Ear,
        offer: Offer,
        figures: Arc<SharedFigures>,
    ) -> Patrol {
        let now = clock::now();
        Patrol {
            limits: settings.limits,
            tier,
            waiter,
            requests,
            inbox,
            ear,
            outbox: Outbox::new(offer),
            figures,
            feeder: settings.watchdog.map(|watchdog| Feeder::new(watchdog, now)),
            orphans: settings.reap_orphans.then(Orphans::default),
            census: Census::new(settings.first_task, settings.workers_max, settings.keep),
            lines: Lines::default(),
            hot: Vec::new(),
            rows: Vec::new(),
            by_token: BTreeMap::new(),
            by_pid: BTreeMap::new(),
            places: BTreeMap::new(),
            past: BTreeMap::new(),
            cares: BTreeMap::new(),
            agenda: BTreeSet::new(),
            end_process: settings.end_process,
            hopeless: None,
            joining: Vec::new(),
            own_pid: i32::try_from(std::process::id()).unwrap_or(0),
            last_scan: now,
            closely: Vec::new(),
            rhythm_at: 0,
            due: None,
            lies_seen: 0,
            wall_at_boot: wall_at_boot(),
            random: machine::random::<8>().map_or(now.0, u64::from_le_bytes) | 1,
            behind: false,
        }
    }

    pub(super) fn bell(&self) -> Bell {
        self.waiter.bell()
    }

    /// For the jitter of restarts (xorshift64): what died together does not come back together.
    pub(super) fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    /// A notice goes to the evidence, and the ladder of its task hears of it.
    fn notice(&mut self, notice: Notice) {
        self.heed(&notice);
        self.outbox.put(notice);
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
                match token {
                    EAR => self.hear(),
                    token => self.told_gone(token, now),
                }
            }
            if self.serve(now).is_break() {
                self.outbox.flush(now);
                return;
            }
            if now >= self.next_scan() {
                self.scan(now);
            }
            self.climb(now);
            self.outbox.flush(now);
            self.show_figures();
        }
    }

    /// How long to wait for something to happen.
    fn patience(&self, now: Tick) -> Duration {
        let next = self.next_scan();
        let scan = self.agenda_due().map_or(next, |due| due.min(next)).since(now);
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

    /// The kernel says that a thread is gone.
    fn told_gone(&mut self, token: u64, now: Tick) {
        let Some(key) = self.by_token.get(&token).copied() else { return };
        if let Some(at) = self.places.get(&key).copied() {
            self.bury(at, now);
        }
    }

    fn bury(&mut self, at: usize, now: Tick) {
        if let Body::Process(process) = &mut self.rows[at].body {
            // Not to be reaped yet: it is asked again at the next scan.
            let Some(exit) = process.reap() else {
                self.hot[at].deaths = Deaths::NotKnown;
                let pid = process.pid();
                self.rows[at].slot.watched(pid, Deaths::NotKnown);
                return;
            };
            Patrol::last_word(&self.rows[at].slot, exit);
        }
        let Hot { thread, .. } = self.hot.swap_remove(at);
        let Row { slot, key, spec, started, body, status, .. } = self.rows.swap_remove(at);
        self.by_token.remove(&slot.token);
        self.places.remove(&key);
        if let Some(moved) = self.rows.get(at) {
            self.places.insert(moved.key, at);
        }
        match body {
            Body::Thread | Body::Adopted => {}
            Body::Process(process) => drop(self.by_pid.remove(&process.pid())),
        }
        if let Some(mut thread) = thread
            && !thread.is_gone()
        {
            self.joining.push(thread);
        }
        let notice = self.census.judge(key, &sample(&slot, Hard::Gone, None), now);
        slot.unlink();
        let past = Past {
            spec,
            started,
            tid: slot.tid.load(Ordering::Acquire),
            progress: slot.progress_at().map(|_| slot.progress()),
            said: slot.said.get().map(last_words).unwrap_or_default(),
            output: slot.output.get().cloned(),
            checkpoint: slot.names().1,
            wrong_thread_beats: slot.lies.wrong_thread.load(Ordering::Relaxed),
            status,
        };
        self.past.insert(key, past);
        if let Some(notice) = notice {
            let poisoned = notice.cause == Cause::Panic;
            self.notice(notice);
            if poisoned {
                self.tell_dependants(key.task, now);
            }
        }
    }

    /// One complete look at everybody.
    fn scan(&mut self, now: Tick) {
        let since = now.since(self.last_scan);
        if since > self.limits.scan + self.limits.scan.max(GAP_MIN) {
            self.gap(since, now);
        }
        self.last_scan = now;
        let closely = std::mem::take(&mut self.closely);
        let Glanced { mut due, mut closely } = glance(&mut self.hot, &self.lines, closely, now);
        let mut stuck: Option<String> = None;
        // Backwards: a burial moves the last row to the place of the buried one, and the last was looked at.
        while let Some(at) = closely.pop() {
            if let Some(next) = self.look_closely(at, now, &mut stuck) {
                due = Some(due.map_or(next, |due| due.min(next)));
            }
        }
        self.closely = closely;
        self.due = due;
        self.follow_rhythms(now);
        self.note_lies(now);
        self.note_clock_step(now);
        self.tidy_up(now);
        self.feed(stuck, now);
        let took = u64::try_from(clock::now().since(now).as_nanos()).unwrap_or(u64::MAX);
        self.figures.last_scan_ns.store(took, Ordering::Relaxed);
        self.figures.longest_scan_ns.fetch_max(took, Ordering::Relaxed);
        self.figures.scans.fetch_add(1, Ordering::Release);
    }

    /// The second look, at those who are not plainly well or have to be asked whether they are there.
    fn look_closely(&mut self, at: usize, now: Tick, stuck: &mut Option<String>) -> Option<Tick> {
        if self.hot[at].deaths == Deaths::NotKnown {
            self.hot[at].deaths = self.rows[at].slot.deaths();
        }
        let (hot, row) = (&mut self.hot[at], &mut self.rows[at]);
        let gone = match hot.deaths {
            Deaths::Told => false,
            Deaths::NotKnown | Deaths::Joined => hot.is_joined() || row.body.is_gone(),
            Deaths::Asked => {
                let link = row.slot.with_link(super::link::Link::says_gone);
                link.unwrap_or(false) || hot.is_joined() || row.body.is_gone()
            }
        };
        if gone {
            self.bury(at, now);
            return None;
        }
        match self.hot[at].quiet(&self.rows[at].slot.pulse, now) {
            Some(next) => (next != u64::MAX).then_some(Tick(next)),
            None => self.look(at, now, stuck),
        }
    }

    /// Judges one worker; when it is due next.
    fn look(&mut self, at: usize, now: Tick, stuck: &mut Option<String>) -> Option<Tick> {
        self.suspect(at, now);
        let hot = &mut self.hot[at];
        let row = &self.rows[at];
        let life = self.census.life(row.key)?;
        let hard = match row.slot.dying_since() {
            Some(since) if now.since(since) < DYING_MAX => Hard::Dying,
            Some(_) | None => Hard::Alive,
        };
        let mut sample = sample(&row.slot, hard, None);
        if life.is_suspect(&sample, now) {
            // Of a thread that goes away under our hands there are none.
            let pid = if let Body::Process(process) = &row.body { process.pid() } else { self.own_pid };
            sample.counters = proc::counters(pid, row.slot.tid.load(Ordering::Acquire)).ok();
        }
        let mut notice = self.census.judge(row.key, &sample, now);
        let life = self.census.life(row.key)?;
        hot.plain = life.state() == State::Running && life.cause().is_none() && life.window().is_none();
        if row.spec.vital && life.state() == State::Zombie && !life.is_abandoned() && stuck.is_none() {
            *stuck = Some(format!("{} ({})", row.key.task, row.spec.name));
        }
        let due = life.due(&sample, now);
        if let Some(notice) = &mut notice {
            let (phase, _) = row.slot.names();
            if !phase.is_empty() && !row.slot.is_plainly_busy() {
                notice.detail = format!("phase {phase}: {}", notice.detail);
            }
        }
        if let Some(notice) = notice {
            self.notice(notice);
        }
        due
    }

    fn gap(&mut self, since: Duration, now: Tick) {
        self.census.rebaseline(now);
        if let Some(feeder) = &mut self.feeder {
            feeder.rebaseline(now);
        }
        // Whoever was plainly well is looked at closely until the baseline is in its past.
        self.hot.iter_mut().for_each(|hot| hot.plain = false);
        self.rows.iter_mut().for_each(|row| {
            row.history.skip();
            row.counting = None;
        });
        self.figures.gaps.fetch_add(1, Ordering::Relaxed);
        let detail = format!(
            "no scan for {:.3} s where one is due every {:.3} s; nobody is judged on that time",
            since.as_secs_f64(),
            self.limits.scan.as_secs_f64()
        );
        self.outbox.put(Notice::supervisor(Cause::SupervisorGap, detail, now));
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
    pub(super) fn forget(&mut self) {
        let census = &self.census;
        self.past.retain(|key, _| census.life(*key).is_some());
        self.forget_cares();
    }

    fn feed(&mut self, stuck: Option<String>, now: Tick) {
        let Some(feeder) = &mut self.feeder else { return };
        let stuck = self.hopeless.clone().or(stuck.map(|who| format!("{who} does not advance")));
        match feeder.turn(stuck.as_deref(), now) {
            Fed::NotDue => {}
            Fed::Pinged => drop(self.figures.pings.fetch_add(1, Ordering::Relaxed)),
            Fed::Held { what, first } => {
                if first {
                    let detail = format!("{what}; systemd will restart the service");
                    self.outbox.put(Notice::supervisor(Cause::WatchdogHeld, detail, now));
                }
            }
        }
    }
}

impl Past {
    pub(super) fn row(&self, key: WorkerKey) -> TaskRow {
        TaskRow {
            key,
            name: self.spec.name.clone(),
            about: self.spec.about.clone(),
            own: self.spec.own,
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
            status: self.status.clone(),
            suspicion: None,
            counters: String::new(),
        }
    }
}

fn last_words(said: &Said) -> String {
    match said {
        Said::Finished { text, .. } | Said::Killed { text } => text.clone(),
        Said::Panicked { text, place } => format!("{text} at {place}"),
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

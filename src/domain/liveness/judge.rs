//! Judges one life from one sample and the time: the table of the spec, "The two channels and the five states".
//!
//! A verdict never rests on wall time, on one scan alone, or on time in which the supervisor itself did not run
//! ([`Life::rebaseline`]). A completion record beats a stale heartbeat in the same scan, and an ended life is judged
//! no more: one DEAD for each (task, generation), however often it is scanned.

use std::time::Duration;

use super::cause::{Counters, Window};
use super::lifecycle::{Cause, Kind, Notice, Outcome, Said, State};
use crate::id::WorkerKey;
use crate::time::Tick;

/// Default time without a beat after which a worker is silent (ReliHarness: no false alarm from 5 s on, 15 s chosen).
pub const TAU: Duration = Duration::from_secs(15);
/// Default time between two scans (the paper: 5 s).
pub const SCAN: Duration = Duration::from_secs(1);
/// Default number of scans that must have seen no change: one scan may have looked at the wrong moment.
pub const SCANS: u32 = 2;
/// The longest limit of a phase; a worker that declares more (ten years) is cut to it, or nobody would watch it.
pub const PHASE_LIMIT_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// How patient to be with one worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Time without a beat after which it is silent.
    pub tau: Duration,
    /// Time between two scans.
    pub scan: Duration,
    /// How many scans must have seen no change (K).
    pub scans: u32,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { tau: TAU, scan: SCAN, scans: SCANS }
    }
}

/// The hard channel: what the operating system says of the thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hard {
    /// It is there.
    Alive,
    /// It is there and on its way out: the panic hook marked it (a backtrace can take over 100 ms).
    Dying,
    /// It is gone.
    Gone,
}

/// What the worker declared that it is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doing {
    /// At work: beats are due.
    Busy,
    /// Waiting for work: nothing is due.
    Idle,
    /// Waiting in a pause that a person asked for: nothing is due.
    Paused,
    /// In a declared phase: its end is due, beats are not.
    Phase(Phase),
}

/// A declared phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Phase {
    /// When it was entered.
    pub began: Tick,
    /// Its limit.
    pub limit: Duration,
    /// Whether something outside does the work (an accelerator, a vendor's library).
    pub external: bool,
}

/// One look at one worker.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample<'a> {
    /// The hard channel.
    pub hard: Hard,
    /// Its last word, where it left one.
    pub said: Option<&'a Said>,
    /// What it says it is doing.
    pub doing: Doing,
    /// The stamp of the last beat.
    pub beat_at: Tick,
    /// The progress counter.
    pub progress: u64,
    /// The stamp of the last progress; none in a task that never declared any.
    pub progress_at: Option<Tick>,
    /// What the kernel counted; read for suspects only.
    pub counters: Option<Counters>,
}

/// What a look finds, before it is compared with what was known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Finding {
    Well(Option<Cause>),
    Silent(Cause),
}

/// One life of one task, as the judge remembers it.
#[derive(Debug, Clone)]
pub struct Life {
    key: WorkerKey,
    limits: Limits,
    state: State,
    cause: Option<Cause>,
    outcome: Option<Outcome>,
    born: Tick,
    ended: Option<Tick>,
    pause_asked: bool,
    abandoned: bool,
    /// Nothing before this counts against the worker.
    baseline: Tick,
    /// The last pair of (beat, progress), how many scans saw it, and the first of them.
    seen: (Tick, u64),
    scans: u32,
    seen_since: Tick,
    window: Option<Window>,
    half_noted: bool,
    /// What it was stuck at when it became a ZOMBIE: only a change of this lets it return.
    stuck_at: Option<StuckAt>,
}

/// What has to change before a ZOMBIE is believed to be back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StuckAt {
    /// This beat and this progress.
    Work(Tick, u64),
    /// The phase that was entered then.
    Phase(Tick),
}

impl Life {
    /// Begins at `now`, which counts as the first beat.
    #[must_use]
    pub fn new(key: WorkerKey, limits: Limits, now: Tick) -> Life {
        Life {
            key,
            limits,
            state: State::Running,
            cause: None,
            outcome: None,
            born: now,
            ended: None,
            pause_asked: false,
            abandoned: false,
            baseline: now,
            seen: (now, 0),
            scans: 0,
            seen_since: now,
            window: None,
            half_noted: false,
            stuck_at: None,
        }
    }

    /// Whose life it is.
    #[must_use]
    pub fn key(&self) -> WorkerKey {
        self.key
    }

    /// The state.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    /// Why it is in that state; none for a worker that simply runs.
    #[must_use]
    pub fn cause(&self) -> Option<Cause> {
        match self.state {
            State::Running if self.pause_asked => Some(Cause::Paused),
            State::Running | State::Zombie | State::Dead | State::Stopped | State::Cleaned => self.cause,
        }
    }

    /// How it ended, if it said so.
    #[must_use]
    pub fn outcome(&self) -> Option<Outcome> {
        self.outcome
    }

    /// How patient we are with it.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// When it began.
    #[must_use]
    pub fn born(&self) -> Tick {
        self.born
    }

    /// When it was seen to have ended.
    #[must_use]
    pub fn ended(&self) -> Option<Tick> {
        self.ended
    }

    /// From when on its silence counts.
    #[must_use]
    pub fn judged_since(&self) -> Tick {
        self.baseline
    }

    /// The last looks at its counters, while it is a suspect.
    #[must_use]
    pub fn window(&self) -> Option<&Window> {
        self.window.as_ref()
    }

    /// Whether the kernel's counters should be read for this look: it is silent for half of tau, or flat where it
    /// declared progress, or past half of its phase, or a ZOMBIE already.
    #[must_use]
    pub fn is_suspect(&self, sample: &Sample<'_>, now: Tick) -> bool {
        if sample.hard != Hard::Alive || sample.said.is_some() || self.abandoned {
            return false;
        }
        let half = self.limits.tau / 2;
        match sample.doing {
            Doing::Idle | Doing::Paused => false,
            Doing::Phase(phase) => now.since(phase.began.max(self.baseline)) >= phase.limit / 2,
            Doing::Busy => {
                self.state == State::Zombie
                    || now.since(self.since_beat(sample)) >= half
                    || self.since_progress(sample).is_some_and(|since| now.since(since) >= self.limits.tau)
            }
        }
    }

    /// The next moment at which a look without any change would find something else; none while nothing is due.
    #[must_use]
    pub fn due(&self, sample: &Sample<'_>, now: Tick) -> Option<Tick> {
        if self.abandoned || sample.said.is_some() {
            return None;
        }
        let at = match sample.doing {
            Doing::Idle | Doing::Paused => return None,
            Doing::Phase(phase) => phase.began.max(self.baseline).after(phase.limit),
            Doing::Busy => {
                let enough_scans = self.seen_since.after(self.limits.scan * self.limits.scans.saturating_sub(1));
                self.since_beat(sample).after(self.limits.tau).max(enough_scans)
            }
        };
        (at > now).then_some(at)
    }

    /// Looks once.
    pub fn judge(&mut self, sample: &Sample<'_>, now: Tick) -> Option<Notice> {
        if !self.state.is_living() {
            return None;
        }
        match (sample.hard, sample.said) {
            (Hard::Gone, Some(Said::Finished { outcome, text })) => {
                self.outcome = Some(*outcome);
                Some(self.go(State::Stopped, outcome.cause(), text.clone(), now))
            }
            (Hard::Gone, Some(Said::Panicked { text, place })) => {
                Some(self.go(State::Dead, Cause::Panic, format!("{text} at {place}"), now))
            }
            (Hard::Gone, Some(Said::Killed { text })) => Some(self.go(State::Dead, Cause::Killed, text.clone(), now)),
            (Hard::Gone, None) => {
                let detail = "the thread ended without a completion record".to_owned();
                Some(self.go(State::Dead, Cause::Vanished, detail, now))
            }
            // On its way out: what it said stands, and the next scan sees it gone.
            (Hard::Alive | Hard::Dying, Some(_)) | (Hard::Dying, None) => None,
            // Given up: only its end is still news.
            (Hard::Alive, None) if self.abandoned => None,
            (Hard::Alive, None) => self.judge_living(sample, now),
        }
    }

    fn judge_living(&mut self, sample: &Sample<'_>, now: Tick) -> Option<Notice> {
        self.remember(sample, now);
        let found = match sample.doing {
            Doing::Idle | Doing::Paused => Finding::Well(None),
            Doing::Phase(phase) => self.find_in_phase(phase, now),
            Doing::Busy => self.find_busy(sample, now),
        };
        match (self.state, found) {
            // Time that was forgiven is no sign of life.
            (State::Zombie, Finding::Well(_)) if self.stuck_at == Some(StuckAt::of(sample)) => None,
            (State::Zombie, Finding::Well(cause)) => {
                let cause = cause.unwrap_or(Cause::RecoveredBeat);
                let silent = now.since(self.seen_since);
                let notice =
                    self.go(State::Running, cause, format!("seen silent for {:.1} s", silent.as_secs_f64()), now);
                self.cause = (cause == Cause::RecoveredProgress).then_some(Cause::Slow);
                Some(notice)
            }
            (State::Running, Finding::Silent(cause)) => {
                let detail = self.describe(sample, now);
                self.stuck_at = Some(StuckAt::of(sample));
                Some(self.go(State::Zombie, cause, detail, now))
            }
            // "Not known" is no news about a ZOMBIE whose cause was known.
            (State::Zombie, Finding::Silent(Cause::NoBeat)) => None,
            (State::Zombie, Finding::Silent(cause)) if self.cause != Some(cause) => {
                self.cause = Some(cause);
                let detail = self.describe(sample, now);
                Some(self.note(cause, detail, now))
            }
            (State::Running, Finding::Well(Some(cause))) => {
                let shown = if cause == Cause::RecoveredProgress { Cause::Slow } else { cause };
                if self.cause == Some(shown) {
                    return None;
                }
                self.cause = Some(shown);
                let detail = self.describe(sample, now);
                Some(self.note(cause, detail, now))
            }
            (State::Running, Finding::Well(None)) => {
                if sample.doing == Doing::Busy && now.since(self.since_beat(sample)) >= self.limits.tau / 2 {
                    return self.note_half(sample, now);
                }
                self.cause = None;
                None
            }
            (State::Zombie, Finding::Silent(_))
            | (State::Dead | State::Stopped | State::Cleaned, Finding::Well(_) | Finding::Silent(_)) => None,
        }
    }

    /// The soft channel of a worker at work.
    fn find_busy(&self, sample: &Sample<'_>, now: Tick) -> Finding {
        let tau = self.limits.tau;
        let progress_at = self.since_progress(sample);
        let enough_scans = self.scans >= self.limits.scans
            && now.since(self.seen_since) >= self.limits.scan * self.limits.scans.saturating_sub(1);
        let stale = now.since(self.since_beat(sample)) >= tau;
        let flat_for = progress_at.map(|since| now.since(since));
        if !stale {
            return match flat_for {
                // Once found, a livelock ends when progress returns, not when the CPU is used less.
                Some(flat) if flat >= tau * 2 && self.is_livelocked() => Finding::Silent(Cause::Livelock),
                Some(_) | None => Finding::Well(None),
            };
        }
        if flat_for.is_some_and(|flat| flat < tau) {
            return Finding::Well(Some(Cause::RecoveredProgress));
        }
        if self.state == State::Zombie {
            return Finding::Silent(self.window.as_ref().map_or(Cause::NoBeat, Window::cause));
        }
        if !enough_scans {
            return Finding::Well(self.cause);
        }
        match &self.window {
            Some(window) if window.is_starved() => Finding::Well(Some(Cause::Starved)),
            Some(window) => Finding::Silent(window.cause()),
            None => Finding::Silent(Cause::NoBeat),
        }
    }

    fn is_livelocked(&self) -> bool {
        let found_before = self.state == State::Zombie && self.cause == Some(Cause::Livelock);
        found_before || self.window.as_ref().is_some_and(Window::is_busy)
    }

    fn find_in_phase(&self, phase: Phase, now: Tick) -> Finding {
        if now.since(phase.began.max(self.baseline)) < phase.limit {
            return Finding::Well(None);
        }
        let cause = if phase.external { Cause::BlockedExternal } else { Cause::PhaseOverrun };
        match &self.window {
            Some(window) if self.state == State::Running && window.is_starved() => Finding::Well(Some(Cause::Starved)),
            Some(_) | None => Finding::Silent(cause),
        }
    }

    fn note_half(&mut self, sample: &Sample<'_>, now: Tick) -> Option<Notice> {
        if self.half_noted || self.window.is_none() {
            return None;
        }
        self.half_noted = true;
        let detail = self.describe(sample, now);
        Some(self.note(Cause::HalfTau, detail, now))
    }

    fn remember(&mut self, sample: &Sample<'_>, now: Tick) {
        let pair = (sample.beat_at, sample.progress);
        if pair == self.seen {
            self.scans = self.scans.saturating_add(1);
        } else {
            self.seen = pair;
            self.scans = 1;
            self.seen_since = now;
            self.half_noted = false;
        }
        match (&sample.counters, &mut self.window) {
            (Some(counters), Some(window)) => window.look(counters.clone(), now),
            (Some(counters), window @ None) => *window = Some(Window::open(counters.clone(), now)),
            (None, window) => *window = None,
        }
    }

    fn since_beat(&self, sample: &Sample<'_>) -> Tick {
        sample.beat_at.max(self.baseline)
    }

    fn since_progress(&self, sample: &Sample<'_>) -> Option<Tick> {
        sample.progress_at.map(|at| at.max(self.baseline))
    }

    fn describe(&self, sample: &Sample<'_>, now: Tick) -> String {
        let silent = now.since(self.since_beat(sample)).as_secs_f64();
        let mut text = match sample.doing {
            Doing::Phase(phase) => {
                let inside = now.since(phase.began.max(self.baseline)).as_secs_f64();
                format!("in its phase for {inside:.1} s, limit {:.1} s", phase.limit.as_secs_f64())
            }
            Doing::Busy | Doing::Idle | Doing::Paused => {
                format!("no beat for {silent:.1} s, tau {:.1} s", self.limits.tau.as_secs_f64())
            }
        };
        if let Some(since) = self.since_progress(sample) {
            let flat = now.since(since).as_secs_f64();
            text.push_str(&format!(", progress {} for {flat:.1} s", sample.progress));
        }
        if let Some(window) = &self.window {
            text.push_str(&format!("; {window}"));
        }
        text
    }

    /// Forgets all waiting so far: the supervisor did not run, or the worker was let go on.
    pub fn rebaseline(&mut self, now: Tick) {
        self.baseline = now;
        self.scans = 0;
        self.seen_since = now;
        self.window = None;
        self.half_noted = false;
    }

    /// A person asks it to pause. It is shown as paused from now on, and judged until it waits.
    pub fn pause(&mut self, now: Tick) -> Option<Notice> {
        if !self.state.is_living() || std::mem::replace(&mut self.pause_asked, true) {
            return None;
        }
        Some(self.note(Cause::Paused, String::new(), now))
    }

    /// A person lets it go on.
    pub fn resume(&mut self, now: Tick) -> Option<Notice> {
        if !self.state.is_living() || !std::mem::replace(&mut self.pause_asked, false) {
            return None;
        }
        self.rebaseline(now);
        Some(self.note(Cause::Resumed, String::new(), now))
    }

    /// Gives it up. It is a ZOMBIE from now on, whatever it beats, until its thread is gone.
    pub fn abandon(&mut self, now: Tick) -> Option<Notice> {
        if !self.state.is_living() || std::mem::replace(&mut self.abandoned, true) {
            return None;
        }
        self.pause_asked = false;
        match self.state {
            State::Running => Some(self.go(State::Zombie, Cause::Abandoned, String::new(), now)),
            State::Zombie | State::Dead | State::Stopped | State::Cleaned => {
                self.cause = Some(Cause::Abandoned);
                Some(self.note(Cause::Abandoned, String::new(), now))
            }
        }
    }

    /// Whether it was given up.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.abandoned
    }

    /// Gives back what an ended life held. None when it has not ended, or is cleaned already.
    pub fn clean(&mut self, cause: Cause, now: Tick) -> Option<Notice> {
        self.state.may_become(State::Cleaned).then(|| self.go(State::Cleaned, cause, String::new(), now))
    }

    /// The notice of its birth.
    #[must_use]
    pub fn birth(&self, detail: String) -> Notice {
        Notice {
            key: Some(self.key),
            kind: Kind::Lifecycle,
            from: None,
            to: Some(State::Running),
            cause: Cause::Spawned,
            detail,
            at: self.born,
        }
    }

    /// A note about it, in the state in which it is.
    #[must_use]
    pub fn note(&self, cause: Cause, detail: String, at: Tick) -> Notice {
        Notice {
            key: Some(self.key),
            kind: Kind::Note,
            from: Some(self.state),
            to: Some(self.state),
            cause,
            detail,
            at,
        }
    }

    fn go(&mut self, to: State, cause: Cause, detail: String, at: Tick) -> Notice {
        let from = self.state;
        debug_assert!(from.may_become(to), "{from:?} -> {to:?}");
        self.state = to;
        // A cleaned life keeps the cause of its end: it is what people look for.
        if to != State::Cleaned {
            self.cause = Some(cause).filter(|_| to != State::Running);
        }
        if !to.is_living() && self.ended.is_none() {
            self.ended = Some(at);
            self.window = None;
        }
        Notice { key: Some(self.key), kind: Kind::Lifecycle, from: Some(from), to: Some(to), cause, detail, at }
    }
}

impl StuckAt {
    fn of(sample: &Sample<'_>) -> StuckAt {
        match sample.doing {
            Doing::Phase(phase) => StuckAt::Phase(phase.began),
            Doing::Busy | Doing::Idle | Doing::Paused => StuckAt::Work(sample.beat_at, sample.progress),
        }
    }
}

#[cfg(test)]
#[path = "judge_tests.rs"]
mod tests;

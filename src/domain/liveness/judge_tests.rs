//! The table of the spec, row by row, and what must never happen in any order of samples.

use super::super::cause::{ThreadState, Waits};
use super::*;
use crate::id::TaskId;

const MS: u64 = 1_000_000;
const KEY: WorkerKey = WorkerKey { task: TaskId(1), generation: 1 };
const LIMITS: Limits = Limits { tau: Duration::from_secs(5), scan: Duration::from_secs(1), scans: 2 };

fn ms(at: u64) -> Tick {
    Tick(at * MS)
}

/// A busy worker that beats and progresses as told, in milliseconds.
fn busy(beat_at: u64, progress: Option<(u64, u64)>) -> Sample<'static> {
    Sample {
        hard: Hard::Alive,
        said: None,
        doing: Doing::Busy,
        beat_at: ms(beat_at),
        progress: progress.map_or(0, |(count, _)| count),
        progress_at: progress.map(|(_, at)| ms(at)),
        counters: None,
    }
}

fn with(mut sample: Sample<'_>, letter: char, cpu_ms: u64, delay_ms: u64, waits: Waits) -> Sample<'_> {
    sample.counters = Some(Counters {
        state: ThreadState::from_letter(letter),
        cpu_ns: cpu_ms * MS,
        delay_ns: delay_ms * MS,
        voluntary: 7,
        involuntary: 7,
        waits,
        syscall: None,
        wchan: String::new(),
    });
    sample
}

/// Feeds the looks (at ms, sample) and returns what was noticed as (ms, from, to, cause).
fn run(life: &mut Life, looks: &[(u64, Sample<'_>)]) -> Vec<(u64, Option<State>, Option<State>, Cause)> {
    looks
        .iter()
        .filter_map(|(at, sample)| life.judge(sample, ms(*at)))
        .map(|notice| (notice.at.0 / MS, notice.from, notice.to, notice.cause))
        .collect()
}

fn check(looks: &[(u64, Sample<'_>)], expected: &[(u64, State, State, Cause)]) {
    let mut life = Life::new(KEY, LIMITS, ms(0));
    let expected: Vec<_> = expected.iter().map(|&(at, from, to, cause)| (at, Some(from), Some(to), cause)).collect();
    assert_eq!(run(&mut life, looks), expected);
}

const R: State = State::Running;
const Z: State = State::Zombie;

#[test]
fn tau_is_inclusive() {
    check(&[(1000, busy(0, None)), (4999, busy(0, None))], &[]);
    check(&[(1000, busy(0, None)), (5000, busy(0, None))], &[(5000, R, Z, Cause::NoBeat)]);
    check(&[(1000, busy(0, None)), (5001, busy(0, None))], &[(5001, R, Z, Cause::NoBeat)]);
}

#[test]
fn one_scan_alone_condemns_nobody() {
    check(&[(9000, busy(1, None))], &[]);
    // Two looks at nearly the same moment are one.
    check(&[(9000, busy(1, None)), (9010, busy(1, None))], &[]);
    check(&[(9000, busy(1, None)), (10_000, busy(1, None))], &[(10_000, R, Z, Cause::NoBeat)]);
}

#[test]
fn a_zombie_returns_with_its_beats_or_its_progress() {
    check(
        &[(1000, busy(0, None)), (5000, busy(0, None)), (6000, busy(5900, None))],
        &[(5000, R, Z, Cause::NoBeat), (6000, Z, R, Cause::RecoveredBeat)],
    );
    check(
        &[(1000, busy(0, Some((1, 0)))), (5000, busy(0, Some((1, 0)))), (6000, busy(0, Some((2, 5500))))],
        &[(5000, R, Z, Cause::NoBeat), (6000, Z, R, Cause::RecoveredProgress)],
    );
}

#[test]
fn stale_beats_with_advancing_progress_are_slow_work_and_said_once() {
    check(
        &[
            (1000, busy(0, Some((1, 900)))),
            (5000, busy(0, Some((2, 4000)))),
            (6000, busy(0, Some((3, 5500)))),
            (9000, busy(8900, Some((4, 8900)))),
        ],
        &[(5000, R, R, Cause::RecoveredProgress)],
    );
}

#[test]
fn fresh_beats_flat_progress_and_a_busy_cpu_are_a_livelock() {
    let spin = |at, cpu| with(busy(at, Some((1, 0))), 'R', cpu, 0, Waits::Unknown);
    check(
        &[(6000, spin(5900, 6000)), (9999, spin(9900, 9900)), (10_000, spin(9990, 10_000))],
        &[(10_000, R, Z, Cause::Livelock)],
    );
    // Not above half of the CPU: no livelock.
    let calm = |at, cpu| with(busy(at, Some((1, 0))), 'S', cpu, 0, Waits::Sleep);
    check(&[(6000, calm(5900, 0)), (10_000, calm(9990, 2000)), (11_000, calm(10_900, 2500))], &[]);
    // A task that never declared progress cannot be flat.
    let undeclared = |at, cpu| with(busy(at, None), 'R', cpu, 0, Waits::Unknown);
    check(&[(6000, undeclared(5900, 6000)), (11_000, undeclared(10_900, 11_000))], &[]);
    // It stays a ZOMBIE on beats alone, and returns with progress.
    check(
        &[
            (6000, spin(5900, 6000)),
            (10_000, spin(9990, 10_000)),
            (11_000, with(busy(10_900, Some((1, 0))), 'S', 10_000, 0, Waits::Sleep)),
            (12_000, busy(11_900, Some((2, 11_800)))),
        ],
        &[(10_000, R, Z, Cause::Livelock), (12_000, Z, R, Cause::RecoveredBeat)],
    );
}

#[test]
fn a_starved_worker_is_not_a_zombie() {
    let starved = |cpu, delay| with(busy(0, None), 'R', cpu, delay, Waits::Unknown);
    check(
        &[(2500, starved(100, 2000)), (5000, starved(150, 4400)), (6000, starved(180, 5300))],
        &[(2500, R, R, Cause::HalfTau), (5000, R, R, Cause::Starved)],
    );
}

#[test]
fn at_half_of_tau_it_is_noted_and_the_cause_is_there_at_tau() {
    let locked = |_| with(busy(0, None), 'S', 3, 0, Waits::Futex);
    check(
        &[(1000, busy(0, None)), (2500, locked(0)), (3500, locked(0)), (5000, locked(0)), (6000, locked(0))],
        &[(2500, R, R, Cause::HalfTau), (5000, R, Z, Cause::Deadlock)],
    );
}

#[test]
fn a_cause_that_is_found_later_is_written_once() {
    let locked = |_| with(busy(0, None), 'S', 3, 0, Waits::Futex);
    check(
        &[(1000, busy(0, None)), (5000, locked(0)), (6000, locked(0)), (7000, locked(0)), (8000, locked(0))],
        &[(5000, R, Z, Cause::NoBeat), (7000, Z, Z, Cause::Deadlock)],
    );
}

#[test]
fn a_phase_is_judged_by_its_limit_alone() {
    let phase = |external| Sample {
        doing: Doing::Phase(Phase { began: ms(1000), limit: Duration::from_secs(120), external }),
        ..busy(1000, None)
    };
    check(&[(60_000, phase(false)), (120_999, phase(false)), (121_000, busy(121_000, None))], &[]);
    check(&[(60_000, phase(false)), (121_000, phase(false))], &[(121_000, R, Z, Cause::PhaseOverrun)]);
    check(&[(60_000, phase(true)), (121_000, phase(true))], &[(121_000, R, Z, Cause::BlockedExternal)]);
}

#[test]
fn idle_and_paused_workers_owe_nothing() {
    for doing in [Doing::Idle, Doing::Paused] {
        let sample = || Sample { doing, ..busy(0, Some((1, 0))) };
        check(&[(1000, sample()), (50_000, sample()), (100_000, sample())], &[]);
    }
}

#[test]
fn a_record_beats_a_stale_heartbeat_and_a_thread_without_one_is_dead() {
    let finished = Said::Finished { outcome: Outcome::Success, text: String::new() };
    let gone = |said| Sample { hard: Hard::Gone, said, ..busy(0, None) };
    let leaving = Sample { said: Some(&finished), ..busy(0, None) };
    let last = (9000, gone(Some(&finished)));
    check(
        &[(1000, busy(0, None)), (8000, leaving.clone()), last.clone(), last],
        &[(9000, R, State::Stopped, Cause::Success)],
    );
    check(
        &[(1000, busy(0, None)), (9000, gone(None)), (10_000, gone(None)), (11_000, busy(10_900, None))],
        &[(9000, R, State::Dead, Cause::Vanished)],
    );
    let panicked = Said::Panicked { text: "boom".to_owned(), place: "a.rs:1:2".to_owned() };
    check(&[(9000, gone(Some(&panicked)))], &[(9000, R, State::Dead, Cause::Panic)]);
    // The panic hook is still writing its backtrace.
    let dying = Sample { hard: Hard::Dying, ..busy(0, None) };
    check(&[(1000, dying.clone()), (9000, dying)], &[]);
}

#[test]
fn time_in_which_the_supervisor_did_not_run_counts_against_nobody() {
    let mut life = Life::new(KEY, LIMITS, ms(0));
    assert_eq!(run(&mut life, &[(1000, busy(900, None))]), []);
    life.rebaseline(ms(61_000));
    assert_eq!(run(&mut life, &[(61_000, busy(900, None)), (65_999, busy(900, None))]), []);
    let found = run(&mut life, &[(66_000, busy(900, None))]);
    assert_eq!(found, [(66_000, Some(R), Some(Z), Cause::NoBeat)]);
}

#[test]
fn forgiven_time_does_not_bring_a_zombie_back() {
    let mut life = Life::new(KEY, LIMITS, ms(0));
    let found = run(&mut life, &[(1000, busy(0, None)), (5000, busy(0, None))]);
    assert_eq!(found, [(5000, Some(R), Some(Z), Cause::NoBeat)]);
    life.rebaseline(ms(65_000));
    assert_eq!(run(&mut life, &[(65_000, busy(0, None)), (66_000, busy(0, None))]), []);
    assert_eq!(run(&mut life, &[(67_000, busy(66_500, None))]), [(67_000, Some(Z), Some(R), Cause::RecoveredBeat)]);

    let phase = |beat| Sample {
        doing: Doing::Phase(Phase { began: ms(0), limit: Duration::from_secs(2), external: false }),
        ..busy(beat, None)
    };
    let mut life = Life::new(KEY, LIMITS, ms(0));
    assert_eq!(run(&mut life, &[(2000, phase(1900))]), [(2000, Some(R), Some(Z), Cause::PhaseOverrun)]);
    life.rebaseline(ms(65_000));
    assert_eq!(run(&mut life, &[(65_100, phase(65_000))]), [], "beats inside the phase do not end it");
    assert_eq!(run(&mut life, &[(66_000, busy(65_900, None))]), [(66_000, Some(Z), Some(R), Cause::RecoveredBeat)]);
}

#[test]
fn paused_is_shown_from_the_asking_on_and_ended_by_resume() {
    let mut life = Life::new(KEY, LIMITS, ms(0));
    assert_eq!(life.pause(ms(100)).map(|notice| notice.cause), Some(Cause::Paused));
    assert_eq!(life.pause(ms(200)), None);
    assert_eq!((life.state(), life.cause()), (R, Some(Cause::Paused)));
    assert_eq!(run(&mut life, &[(60_000, Sample { doing: Doing::Paused, ..busy(0, None) })]), []);
    assert_eq!(life.resume(ms(60_000)).map(|notice| notice.cause), Some(Cause::Resumed));
    assert_eq!(run(&mut life, &[(61_000, busy(0, None)), (64_999, busy(0, None))]), []);
    assert_eq!(life.cause(), None);
}

#[test]
fn an_abandoned_life_does_not_return_and_still_ends_once() {
    let mut life = Life::new(KEY, LIMITS, ms(0));
    let notice = life.abandon(ms(100)).unwrap();
    assert_eq!((notice.from, notice.to, notice.cause), (Some(R), Some(Z), Cause::Abandoned));
    assert_eq!(life.abandon(ms(200)), None);
    assert_eq!(run(&mut life, &[(1000, busy(900, None)), (9000, busy(8900, Some((1, 8900))))]), []);
    let gone = Sample { hard: Hard::Gone, ..busy(0, None) };
    assert_eq!(run(&mut life, &[(10_000, gone)]), [(10_000, Some(Z), Some(State::Dead), Cause::Vanished)]);
}

#[test]
fn the_wake_for_a_deadline_is_the_deadline() {
    let life = Life::new(KEY, LIMITS, ms(0));
    assert_eq!(life.due(&busy(700, None), ms(1000)), Some(ms(5700)));
    assert_eq!(life.due(&busy(700, None), ms(5700)), None);
    assert_eq!(life.due(&Sample { doing: Doing::Idle, ..busy(700, None) }, ms(1000)), None);
}

/// Any order of samples: only legal moves, at most one end, nothing after it.
#[test]
fn no_order_of_samples_makes_an_illegal_row() {
    let mut random = fastrand::Rng::with_seed(7);
    let finished = Said::Finished { outcome: Outcome::Error, text: String::new() };
    for round in 0..20_000 {
        let mut life = Life::new(KEY, LIMITS, ms(0));
        let (mut now, mut beat, mut state, mut ends) = (0, 0, R, 0);
        for _ in 0..12 {
            now += random.u64(1..4000);
            if random.bool() {
                beat = now - random.u64(0..now.min(6000));
            }
            let mut sample = busy(beat, random.bool().then(|| (random.u64(0..3), now - random.u64(0..now.min(9000)))));
            sample.hard = match random.u8(0..12) {
                0 => Hard::Gone,
                1 => Hard::Dying,
                _ => Hard::Alive,
            };
            sample.said = random.bool().then_some(&finished).filter(|_| random.u8(0..6) == 0);
            if random.bool() {
                sample = with(sample, 'R', now / 2, 0, Waits::Unknown);
            }
            if random.u8(0..20) == 0 {
                life.rebaseline(ms(now));
            }
            if let Some(notice) = life.judge(&sample, ms(now)) {
                assert_eq!(notice.from, Some(state), "round {round}");
                let to = notice.to.unwrap();
                assert!(to == state || state.may_become(to), "round {round}: {notice:?}");
                state = to;
                ends += u32::from(!state.is_living());
            }
            assert_eq!(life.state(), state);
        }
        assert!(ends <= 1, "round {round}");
    }
}

//! What follows a failure, and workers that are not Rust closures: child processes, foreign code, adopted threads.

use std::ffi::{OsString, c_void};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use interlock::engine::supervisor::{ChildSpec, Finished, Settings, TaskError, TaskSpec, Tier};
use interlock::sys::thread::Foreign;
use interlock_domain::id::{TaskId, WorkerKey};
use interlock_domain::liveness::lifecycle::{Cause, Kind, Notice, Outcome, State};
use interlock_domain::liveness::rate::Rate;
use interlock_domain::liveness::remedy::{Policy, Then};
use serde_json::Value;

use crate::supervision::{PATIENCE, World, settings};

const MS: Duration = Duration::from_millis(1);

/// Quick, so that a test sees the whole ladder.
const QUICK: Policy = Policy {
    window: Duration::from_millis(100),
    grace: Duration::from_millis(100),
    most: 2,
    run_min: Duration::from_millis(1),
    backoff: Duration::from_millis(5),
    backoff_max: Duration::from_millis(20),
    ..Policy::RESTART
};

fn spec(name: &str, policy: Policy) -> TaskSpec {
    TaskSpec { policy, ..TaskSpec::new(name, "a test") }
}

/// The notices of a task up to and with the first that `last` takes.
fn story(world: &World, task: TaskId, last: impl Fn(&Notice) -> bool) -> Vec<(u32, Option<State>, Cause)> {
    let mut story = Vec::new();
    loop {
        let notice = world.notices.recv_timeout(world.left()).unwrap();
        let Some(key) = notice.key.filter(|key| key.task == task) else { continue };
        if notice.kind == Kind::Lifecycle || notice.cause != Cause::HalfTau {
            story.push((key.generation, notice.to, notice.cause));
        }
        if last(&notice) {
            return story;
        }
    }
}

#[test]
fn a_worker_that_dies_begins_again_until_it_is_too_much() {
    let world = World::new(settings());
    let lives = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&lives);
    let work = move |_| {
        if count.fetch_add(1, Ordering::Relaxed) == 1 {
            return Finished::Failed("no such device".to_owned());
        }
        std::panic::resume_unwind(Box::new("quiet"))
    };
    let key = world.supervisor.spawn_again(spec("crashes", QUICK), work).wait(PATIENCE).unwrap().unwrap();
    let told = story(&world, key.task, |notice| notice.cause == Cause::RestartHeld);
    let (running, dead, stopped) = (Some(State::Running), Some(State::Dead), Some(State::Stopped));
    assert_eq!(
        told,
        [
            (1, running, Cause::Spawned),
            (1, dead, Cause::Panic),
            (2, running, Cause::Spawned),
            (2, stopped, Cause::Error),
            (3, running, Cause::Spawned),
            (3, dead, Cause::Panic),
            (3, dead, Cause::RestartHeld),
        ]
    );
    // A person lets it begin again.
    world.supervisor.restart(key.task).wait(PATIENCE).unwrap().unwrap();
    let told = story(&world, key.task, |notice| notice.to == dead);
    assert_eq!(told, [(4, running, Cause::Spawned), (4, dead, Cause::Panic)]);
}

#[test]
fn a_stuck_worker_is_asked_given_up_and_replaced_and_the_old_one_cannot_act() {
    let world = World::new(settings());
    let (said, heard) = channel();
    let (hold, held) = channel::<()>();
    let held = std::sync::Mutex::new(Some(held));
    let work = move |heart: interlock::engine::supervisor::Heart| {
        // The first life is stuck in something that it does not come back from in time.
        if let Some(held) = held.lock().unwrap().take() {
            assert!(held.recv().is_err());
            said.send((heart.may_act(), heart.should_stop(), heart.progress(7))).unwrap();
            return Finished::Done(Value::Null);
        }
        while heart.rest(MS * 10) {}
        Finished::Stopped(Value::Null)
    };
    let key = world.supervisor.spawn_again(spec("stuck", QUICK), work).wait(PATIENCE).unwrap().unwrap();
    let told = story(&world, key.task, |notice| notice.key.is_some_and(|key| key.generation == 2));
    let (running, zombie) = (Some(State::Running), Some(State::Zombie));
    let expected = [
        (1, running, Cause::Spawned),
        (1, zombie, Cause::NoBeat),
        (1, zombie, Cause::StopAsked),
        (1, zombie, Cause::Abandoned),
        (2, running, Cause::Spawned),
    ];
    assert_eq!(told, expected);
    drop(hold);
    assert_eq!(heard.recv_timeout(PATIENCE).unwrap(), (false, true, false));
    // The old life ends under its own name, and the new one lives on.
    let told = story(&world, key.task, |notice| notice.key == Some(key));
    assert_eq!(told.last(), Some(&(1, Some(State::Stopped), Cause::Success)));
    assert!(world.row(WorkerKey { generation: 2, ..key }).state.is_living());
}

#[test]
fn a_stop_that_is_ignored_ends_in_giving_up_and_nothing_follows() {
    let world = World::new(settings());
    let (hold, held) = channel::<()>();
    let spec = spec("deaf", Policy { grace: MS * 50, ..Policy::LEAVE });
    let key = world.spawn(spec, move |heart| {
        while held.recv_timeout(MS * 5).is_err_and(|error| error == std::sync::mpsc::RecvTimeoutError::Timeout) {
            heart.beat();
        }
        Finished::Done(Value::Null)
    });
    world.supervisor.stop(key.task).wait(PATIENCE).unwrap().unwrap();
    let told = story(&world, key.task, |notice| notice.cause == Cause::Abandoned);
    assert_eq!(told.last(), Some(&(1, Some(State::Zombie), Cause::Abandoned)));
    assert_eq!(world.supervisor.restart(key.task).wait(PATIENCE).unwrap(), Err(TaskError::NotRestartable(key.task)));
    drop(hold);
    world.until_state(key, State::Stopped);
}

#[test]
fn what_the_daemon_cannot_do_without_ends_the_process() {
    let (said, heard) = channel();
    let end = move |why: &str| said.send(why.to_owned()).unwrap();
    let world = World::new(Settings { end_process: Some(Box::new(end)), ..settings() });
    let policy = Policy { most: 0, then: Then::EndProcess, ..QUICK };
    let work = |_| Finished::Failed("x".to_owned());
    let key = world.supervisor.spawn_again(spec("vital", policy), work).wait(PATIENCE).unwrap().unwrap();
    assert_eq!(heard.recv_timeout(PATIENCE).unwrap(), "task t1 was restarted too often");
    world.until_cause(key, Cause::Escalated);
}

#[test]
fn those_who_need_the_dead_are_told() {
    let world = World::new(settings());
    let (needed, strings) = world.puppet();
    let spec = TaskSpec { needs: vec![needed.task], ..TaskSpec::new("dependent", "") };
    let key = world.spawn(spec, |heart| {
        while heart.rest(MS * 10) {}
        Finished::Stopped(Value::Null)
    });
    strings.send(crate::supervision::Word::Panic("with a lock in its hands")).unwrap();
    assert_eq!(world.until_cause(key, Cause::DependencyPoisoned).detail, "t1 died of a panic");
}

#[test]
fn a_rhythm_that_breaks_is_noted() {
    let world = World::new(settings());
    let rate = Rate { least: 0, most: 5, per: MS * 100 };
    let spec = TaskSpec { rate: Some(rate), ..TaskSpec::new("fast", "") };
    let key = world.spawn(spec, |heart| {
        while heart.rest(MS) {}
        Finished::Stopped(Value::Null)
    });
    let note = world.until_cause(key, Cause::BeatRate);
    assert!(note.detail.ends_with("s, 0 to 5 are due"), "{}", note.detail);
}

// ---- threads of others ----

#[test]
fn an_adopted_thread_is_watched_on_every_tier() {
    for tier in Tier::ALL.into_iter().filter(|tier| *tier != Tier::Pidfd || Tier::probe() == Tier::Pidfd) {
        let world = World::new(Settings { tier: Some(tier), ..settings() });
        for (finishes, state, cause) in [(true, State::Stopped, Cause::Success), (false, State::Dead, Cause::Vanished)]
        {
            let supervisor = world.supervisor.clone();
            let thread = std::thread::spawn(move || {
                let (heart, born) = supervisor.adopt(TaskSpec::new("adopted", "made by somebody else"));
                let key = born.wait(PATIENCE).unwrap().unwrap();
                assert!(heart.beat());
                if finishes {
                    assert!(heart.finish(Finished::Done(Value::Null)));
                }
                key
            });
            let key = thread.join().unwrap();
            let (_, notice) = world.until(key, |notice| notice.to.is_some_and(|to| !to.is_living()));
            assert_eq!((notice.to, notice.cause), (Some(state), cause), "{tier:?}");
        }
    }
}

#[test]
fn foreign_code_may_leave_as_it_likes() {
    unsafe extern "C-unwind" {
        fn pthread_exit(value: *mut c_void) -> !;
    }
    unsafe extern "C-unwind" fn exits(_: *mut c_void) -> *mut c_void {
        // SAFETY: ends this thread, which has nothing to drop.
        unsafe { pthread_exit(std::ptr::null_mut()) }
    }
    unsafe extern "C-unwind" fn raw(_: *mut c_void) -> *mut c_void {
        interlock::sys::thread::raw_exit()
    }
    unsafe extern "C-unwind" fn returns(code: *mut c_void) -> *mut c_void {
        code
    }
    for tier in Tier::ALL.into_iter().filter(|tier| *tier != Tier::Pidfd || Tier::probe() == Tier::Pidfd) {
        let world = World::new(Settings { tier: Some(tier), ..settings() });
        for (entry, code, state, cause) in [
            (exits as interlock::sys::thread::ForeignEntry, 0, State::Dead, Cause::Vanished),
            (raw, 0, State::Dead, Cause::Vanished),
            (returns, 0, State::Stopped, Cause::Success),
            (returns, 3, State::Stopped, Cause::Error),
        ] {
            // SAFETY: the three take any argument.
            let make = move || unsafe { Foreign::new(entry, std::ptr::without_provenance_mut(code)) };
            let spec = TaskSpec::new("vendor", "a C library");
            let key = world.supervisor.spawn_foreign(spec, make).wait(PATIENCE).unwrap().unwrap();
            let (_, notice) = world.until(key, |notice| notice.to.is_some_and(|to| !to.is_living()));
            assert_eq!((notice.to, notice.cause), (Some(state), cause), "{tier:?}");
        }
    }
}

// ---- child processes ----

struct Puppet {
    key: WorkerKey,
    words: File,
    _folder: tempfile::TempDir,
}

impl Puppet {
    fn say(&mut self, word: &str) {
        writeln!(self.words, "{word}").unwrap();
    }
}

fn fifo(folder: &Path) -> PathBuf {
    let path = folder.join("words");
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    path
}

fn puppet(world: &World, program: &[&Path], policy: Policy) -> Puppet {
    let folder = tempfile::tempdir().unwrap();
    let path = fifo(folder.path());
    let mut args: Vec<OsString> = program[1..].iter().map(|part| part.as_os_str().to_owned()).collect();
    args.push(path.clone().into_os_string());
    let child = ChildSpec { program: program[0].as_os_str().to_owned(), args, ..ChildSpec::default() };
    let spec = TaskSpec { tau: Some(MS * 500), ..spec("child", policy) };
    let key = world.supervisor.spawn_child(spec, child).wait(PATIENCE).unwrap().unwrap();
    // Opened for both, so that it does not wait for the child; the child's end is the reading one.
    let words = File::options().read(true).write(true).open(path).unwrap();
    Puppet { key, words, _folder: folder }
}

fn workers() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/workers")
}

/// A C and a Python worker, through the same life.
#[test]
fn workers_in_c_and_python_are_supervised_through_the_socket() {
    let built = tempfile::tempdir().unwrap();
    let binary = built.path().join("worker");
    let compiled =
        Command::new("cc").args(["-Wall", "-Werror", "-o"]).arg(&binary).arg(workers().join("worker.c")).status();
    let mut programs: Vec<(&str, Vec<PathBuf>)> = Vec::new();
    match compiled {
        Ok(status) if status.success() => programs.push(("speaks C", vec![binary])),
        Ok(status) => panic!("worker.c does not compile: {status}"),
        Err(_) => crate::skipped("workers_in_c_and_python_are_supervised_through_the_socket", "no C compiler"),
    }
    if Command::new("python3").arg("--version").output().is_ok() {
        programs.push(("speaks Python", vec!["python3".into(), workers().join("worker.py")]));
    } else {
        crate::skipped("workers_in_c_and_python_are_supervised_through_the_socket", "no python3");
    }
    let module = std::fs::read_to_string(workers().join("interlock_worker.py")).unwrap();
    assert!(module.lines().count() < 60);
    for (status, program) in programs {
        let program: Vec<&Path> = program.iter().map(PathBuf::as_path).collect();
        let world = World::new(settings());
        let mut child = puppet(&world, &program, Policy::LEAVE);
        let key = child.key;
        // Silent from the start: it speaks no watchdog yet, and owes nothing.
        world.scans(40);
        assert_eq!(world.row(key).state, State::Running);
        child.say("status");
        child.say("progress");
        child.say("beat");
        while world.row(key).status != status || world.row(key).progress != Some(1) {
            world.scans(1);
        }
        // It has beaten once: now its silence counts.
        world.until_state(key, State::Zombie);
        child.say("beat");
        assert_eq!(world.until_state(key, State::Running).cause, Cause::RecoveredBeat);
        child.say("crash");
        let (_, dead) = world.until(key, |notice| notice.to == Some(State::Dead));
        assert_eq!((dead.cause, dead.detail.as_str()), (Cause::Killed, "signal 6"));
    }
}

fn shell(world: &World, script: &str, policy: Policy) -> WorkerKey {
    let child = ChildSpec { program: "sh".into(), args: vec!["-c".into(), script.into()], ..ChildSpec::default() };
    world.supervisor.spawn_child(spec("sh", policy), child).wait(PATIENCE).unwrap().unwrap()
}

#[test]
fn a_child_ends_as_it_says_and_is_stopped_with_its_group() {
    let world = World::new(settings());
    for (script, state, cause, outcome) in [
        ("exit 0", State::Stopped, Cause::Success, Some(Outcome::Success)),
        ("exit 7", State::Stopped, Cause::Error, Some(Outcome::Error)),
        ("kill -SEGV $$", State::Dead, Cause::Killed, None),
    ] {
        let key = shell(&world, script, Policy::LEAVE);
        let (_, notice) = world.until(key, |notice| notice.to.is_some_and(|to| !to.is_living()));
        assert_eq!((notice.to, notice.cause, world.row(key).outcome), (Some(state), cause, outcome), "{script}");
    }
    let key = shell(&world, "exec sleep 3600", Policy::LEAVE);
    world.supervisor.stop(key.task).wait(PATIENCE).unwrap().unwrap();
    assert_eq!(world.until_state(key, State::Stopped).cause, Cause::StoppedOnRequest);

    // It ignores the stop, and so does what it started: the group is killed.
    let folder = tempfile::tempdir().unwrap();
    let (pids, ready) = (folder.path().join("pids"), fifo(folder.path()));
    let script = format!(
        "trap '' TERM; sh -c 'trap \"\" TERM; echo $$ > {0}; echo > {1}; while :; do sleep 1; done' & wait; sleep 9",
        pids.display(),
        ready.display()
    );
    let key = shell(&world, &script, Policy { grace: MS * 50, ..Policy::LEAVE });
    // The end of this read is the grandchild's word that it is there.
    std::fs::read(&ready).unwrap();
    let grandchild: i32 = std::fs::read_to_string(&pids).unwrap().trim().parse().unwrap();
    world.supervisor.stop(key.task).wait(PATIENCE).unwrap().unwrap();
    assert_eq!(world.until_state(key, State::Dead).detail, "signal 9");
    while interlock::sys::proc::process(grandchild).is_ok_and(|stat| stat.state.letter() != 'Z') {
        world.scans(1);
    }
}

#[test]
fn a_child_begins_again_and_inherits_no_line_to_systemd() {
    let world = World::new(settings());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("env");
    let script = format!("env >> {}; exit 3", path.display());
    let key = shell(&world, &script, Policy { most: 1, ..QUICK });
    let told = story(&world, key.task, |notice| notice.cause == Cause::RestartHeld);
    let stopped = Some(State::Stopped);
    let ends: Vec<_> = told.iter().filter(|(_, to, _)| *to == stopped).map(|(n, _, cause)| (*n, *cause)).collect();
    assert_eq!(ends, [(1, Cause::Error), (2, Cause::Error), (2, Cause::RestartHeld)]);
    let env = std::fs::read_to_string(path).unwrap();
    let named = |name: &str| env.lines().filter(|line| line.starts_with(name)).count();
    assert_eq!((named("NOTIFY_SOCKET=@interlock-"), named("WATCHDOG_USEC="), named("WATCHDOG_PID=")), (2, 2, 0));
}

#[test]
fn a_program_that_is_not_there_is_refused() {
    let world = World::new(settings());
    let child = ChildSpec { program: "/no/such/program".into(), ..ChildSpec::default() };
    let refused = world.supervisor.spawn_child(TaskSpec::new("none", ""), child).wait(PATIENCE).unwrap().unwrap_err();
    assert_eq!(
        refused.to_string(),
        "SPAWN_REFUSED: /no/such/program does not start: No such file or directory (os error 2)"
    );
    assert!(world.list().is_empty());
}

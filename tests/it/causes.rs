//! Why real threads are silent, as the kernel's counters tell it; and what is no silence at all.

use std::ffi::CString;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use interlock::engine::supervisor::{Finished, Heart, Settings, TaskSpec, runtime_probe};
use interlock_domain::liveness::judge::Limits;
use interlock_domain::liveness::lifecycle::{Cause, Notice, State};
use serde_json::Value;

use crate::supervision::{PATIENCE, World};

/// Causes need a window of two seconds: from half of tau on.
const TAU: Duration = Duration::from_millis(4500);
const MS: Duration = Duration::from_millis(1);

fn settings() -> Settings {
    Settings { limits: Limits { tau: TAU, scan: MS * 100, scans: 2 }, ..Settings::default() }
}

type Work = Box<dyn FnOnce(Heart) -> Finished + Send>;

fn stopped() -> Finished {
    Finished::Stopped(Value::Null)
}

/// A child that waits for a fifo before it loads its program keeps its parent's thread in state D, as vfork does.
fn wait_in_vfork(fifo: &CString) {
    let program = CString::new("/bin/true").unwrap();
    // SAFETY: all pointers are to live, initialized values of the types that `posix_spawn` wants; the lists end with
    // null; the file actions are initialized before and destroyed after use.
    unsafe {
        let mut actions: libc::posix_spawn_file_actions_t = std::mem::zeroed();
        libc::posix_spawn_file_actions_init(&raw mut actions);
        libc::posix_spawn_file_actions_addopen(&raw mut actions, 0, fifo.as_ptr(), libc::O_RDONLY, 0);
        let mut pid = 0;
        let arguments = [program.as_ptr().cast_mut(), std::ptr::null_mut()];
        let environment = [std::ptr::null_mut()];
        let code = libc::posix_spawn(
            &raw mut pid,
            program.as_ptr(),
            &raw const actions,
            std::ptr::null(),
            arguments.as_ptr(),
            environment.as_ptr(),
        );
        libc::posix_spawn_file_actions_destroy(&raw mut actions);
        assert_eq!(code, 0);
        libc::waitpid(pid, std::ptr::null_mut(), 0);
    }
}

#[test]
fn each_silence_has_its_cause() {
    let world = World::new(settings());
    let folder = tempfile::tempdir().unwrap();
    let fifo = folder.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let over = Arc::new(AtomicBool::new(false));
    let lock = Arc::new(Mutex::new(()));
    let held = lock.lock().unwrap();
    let (mut reader, writer) = std::io::pipe().unwrap();
    let mut works: Vec<(&str, Cause, Work)> = Vec::new();

    let waits_for = Arc::clone(&lock);
    works.push((
        "lock",
        Cause::Deadlock,
        Box::new(move |_| {
            drop(waits_for.lock());
            stopped()
        }),
    ));
    works.push((
        "pipe",
        Cause::BlockedIo,
        Box::new(move |_| {
            // The other end is closed at the end of the test.
            let _ = reader.read(&mut [0]);
            stopped()
        }),
    ));
    let path = CString::new(fifo.to_str().unwrap()).unwrap();
    works.push((
        "vfork",
        Cause::BlockedInKernel,
        Box::new(move |_| {
            wait_in_vfork(&path);
            stopped()
        }),
    ));
    let until = Arc::clone(&over);
    works.push((
        "naps",
        Cause::Livelock,
        Box::new(move |_| {
            while !until.load(Ordering::Acquire) {
                std::thread::park_timeout(MS * 20);
            }
            stopped()
        }),
    ));
    let until = Arc::clone(&over);
    works.push((
        "phase",
        Cause::PhaseOverrun,
        Box::new(move |heart| {
            heart.phase("load_model", MS * 500);
            while !until.load(Ordering::Acquire) {
                heart.beat();
                std::thread::park_timeout(MS * 20);
            }
            stopped()
        }),
    ));
    let until = Arc::clone(&over);
    works.push((
        "npu",
        Cause::BlockedExternal,
        Box::new(move |heart| {
            heart.external_phase("npu_sync", MS * 500);
            while !until.load(Ordering::Acquire) {
                std::thread::park_timeout(MS * 200);
            }
            stopped()
        }),
    ));

    let mut waiting = Vec::new();
    for (name, cause, work) in works {
        waiting.push((world.spawn(TaskSpec::new(name, ""), work), name, cause));
    }
    let mut noted_at_half = 0;
    while !waiting.is_empty() {
        let notice = world.notices.recv_timeout(world.left()).unwrap();
        let Some(at) = waiting.iter().position(|(key, ..)| notice.key == Some(*key)) else { continue };
        noted_at_half += usize::from(notice.cause == Cause::HalfTau && notice.detail.contains("; state "));
        if notice.to != Some(State::Zombie) || notice.cause == Cause::NoBeat {
            continue;
        }
        let (key, name, cause) = waiting.remove(at);
        assert_eq!(notice.cause, cause, "{name}: {}", notice.detail);
        let expected = match name {
            "lock" | "pipe" | "vfork" => "switches 0 voluntary 0 involuntary",
            "phase" => "phase load_model: in its phase for ",
            "npu" => "phase npu_sync: in its phase for ",
            _ => "no beat for ",
        };
        assert!(notice.detail.contains(expected), "{name}: {}", notice.detail);
        assert_eq!(world.row(key).cause, Some(cause));
    }
    assert_eq!(noted_at_half, 4, "those that owe beats were noted at half of tau, with their counters");

    drop(held);
    drop(writer);
    over.store(true, Ordering::Release);
    drop(File::options().write(true).open(&fifo).unwrap());
    while world.list().iter().any(|row| row.state != State::Stopped) {
        world.scans(1);
    }
}

/// Beats that come from inside a loop that gets nowhere, beside slow work whose counter moves.
#[test]
fn a_busy_loop_is_a_livelock_and_slow_work_is_not() {
    let world = World::new(Settings { limits: Limits { tau: MS * 1500, scan: MS * 100, scans: 2 }, ..settings() });
    let spin = world.spawn(TaskSpec::new("spin", ""), |heart| {
        heart.progress(1);
        while !heart.should_stop() {
            heart.beat();
        }
        stopped()
    });
    let slow = world.spawn(TaskSpec::new("slow", ""), |heart| {
        let mut done = 0;
        while !heart.should_stop() {
            let until = Instant::now() + MS * 500;
            while Instant::now() < until {
                std::hint::spin_loop();
            }
            done += 1;
            heart.progress(done);
        }
        stopped()
    });
    let mut before = Vec::new();
    let zombie = loop {
        match world.notices.recv_timeout(MS * 200) {
            Ok(notice) if notice.key == Some(spin) && notice.to == Some(State::Zombie) => break notice,
            Ok(notice) => before.push(notice),
            // Half of a CPU is what a livelock takes; a machine that does not give it cannot show one.
            Err(_) if world.spent(MS * 15_000) => {
                let why = format!("this machine does not give half of a CPU: {}", world.row(spin).counters);
                crate::skipped("a_busy_loop_is_a_livelock_and_slow_work_is_not", &why);
                return;
            }
            Err(_) => {}
        }
    };
    assert_eq!(zombie.cause, Cause::Livelock, "{}", zombie.detail);
    assert!(!before.iter().any(|notice| notice.key == Some(slow) && notice.to == Some(State::Zombie)), "{before:#?}");
}

/// It beats every ten milliseconds and has a tau of six seconds: it is suspected long before half of that.
#[test]
fn an_unusual_silence_is_warned_of_before_half_of_tau() {
    let world = World::new(Settings { limits: Limits { tau: MS * 6000, scan: MS * 50, scans: 2 }, ..settings() });
    let (hold, held) = channel::<()>();
    let key = world.spawn(TaskSpec::new("lively", ""), move |heart| {
        // Enough scans to learn its rhythm.
        while heart.progress(heart.beats()) && heart.beats() < 150 {
            std::thread::park_timeout(MS * 10);
            heart.beat();
        }
        assert!(held.recv().is_err());
        stopped()
    });
    let (before, note) = world.until(key, |notice| notice.cause == Cause::Suspicious);
    assert!(before.iter().all(|notice| notice.cause != Cause::HalfTau), "{before:#?}");
    assert_eq!((note.from, note.to), (Some(State::Running), Some(State::Running)));
    assert!(note.detail.contains(" s, phi "), "{}", note.detail);
    drop(hold);
    world.until_state(key, State::Stopped);
}

/// Nine threads on one CPU, each at the lowest priority, so that nobody else is slowed down much.
#[test]
fn a_starved_worker_stays_running() {
    let world = World::new(Settings { limits: Limits { tau: MS * 1500, scan: MS * 100, scans: 2 }, ..settings() });
    let one_cpu = || {
        let mut cpus = nix::sched::CpuSet::new();
        let allowed = nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(0)).unwrap();
        let first = (0..nix::sched::CpuSet::count()).find(|cpu| allowed.is_set(*cpu).unwrap()).unwrap();
        cpus.set(first).unwrap();
        nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &cpus).unwrap();
        interlock::sys::thread::set_nice(19);
    };
    let over = Arc::new(AtomicBool::new(false));
    let spinners: Vec<_> = (0..12)
        .map(|_| {
            let over = Arc::clone(&over);
            std::thread::spawn(move || {
                one_cpu();
                while !over.load(Ordering::Acquire) {
                    std::hint::spin_loop();
                }
            })
        })
        .collect();
    let key = world.spawn(TaskSpec::new("starved", ""), move |heart| {
        one_cpu();
        while !heart.should_stop() {
            // So much of its own time between two beats that its share makes it late.
            let until = interlock::sys::clock::thread_cpu_ns() + 300_000_000;
            while interlock::sys::clock::thread_cpu_ns() < until && !heart.should_stop() {
                std::hint::spin_loop();
            }
            heart.beat();
        }
        stopped()
    });
    let (before, note) = world.until(key, |notice| notice.cause == Cause::Starved);
    assert_eq!((note.from, note.to), (Some(State::Running), Some(State::Running)), "{before:#?}");
    assert!(!before.iter().any(|notice| notice.to == Some(State::Zombie)), "{before:#?}");
    over.store(true, Ordering::Release);
    spinners.into_iter().for_each(|spinner| spinner.join().unwrap());
}

#[test]
fn a_wedged_async_runtime_is_a_zombie_and_returns() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let world = World::new(Settings { limits: Limits { tau: MS * 300, scan: MS * 50, scans: 2 }, ..settings() });
    let key = world.spawn(TaskSpec::new("runtime", ""), runtime_probe(runtime.handle().clone(), MS * 300));
    let (holds, helds): (Vec<_>, Vec<_>) = (0..2).map(|_| channel::<()>()).unzip();
    let helds: Vec<_> =
        helds.into_iter().map(|held| runtime.spawn(async move { assert!(held.recv().is_err()) })).collect();
    let zombie = world.until_state(key, State::Zombie);
    assert_eq!(zombie.cause, Cause::BlockedExternal);
    assert!(zombie.detail.starts_with("phase the async runtime answers: "), "{}", zombie.detail);
    drop(holds);
    world.until_state(key, State::Running);
    drop(helds);
    // The last rounds of the probe must not find the runtime gone.
    world.supervisor.stop(key.task).wait(PATIENCE).unwrap().unwrap();
    world.until_state(key, State::Stopped);
}

// ---- things that concern the whole process happen to a process of their own ----

const ROLE: &str = "INTERLOCK_TEST_ROLE";

/// Runs this very test in a process of its own.
fn role(test: &str) -> (Child, BufReader<std::process::ChildStdout>) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("causes::{test}"), "--nocapture"])
        .env(ROLE, test)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let stdout = BufReader::new(child.stdout.take().unwrap());
    (child, stdout)
}

fn line(stdout: &mut BufReader<std::process::ChildStdout>, wanted: &str) -> String {
    let mut line = String::new();
    while stdout.read_line(&mut line).unwrap() > 0 {
        if let Some(at) = line.find(wanted) {
            return line[at..].trim_end().to_owned();
        }
        line.clear();
    }
    panic!("the process ended without saying {wanted:?}");
}

#[test]
#[expect(clippy::print_stdout, reason = "the other process speaks to this one")]
fn a_stopped_process_condemns_nobody() {
    let name = "a_stopped_process_condemns_nobody";
    if std::env::var(ROLE).as_deref() == Ok(name) {
        let world = World::new(Settings { limits: Limits { tau: MS * 1000, scan: MS * 200, scans: 2 }, ..settings() });
        let hang = Arc::new(AtomicBool::new(false));
        for n in 0..20 {
            let hang = Arc::clone(&hang);
            world.spawn(TaskSpec::new(format!("w{n}"), ""), move |heart| {
                while heart.rest(MS * 50) {
                    while n == 0 && hang.load(Ordering::Acquire) && !heart.should_stop() {
                        std::thread::park_timeout(MS * 1000);
                    }
                }
                stopped()
            });
        }
        println!("ready");
        let mut word = String::new();
        std::io::stdin().read_line(&mut word).unwrap();
        let mut told = Vec::new();
        // Long enough for a naive scan to condemn everybody; then a real hang.
        world.scans(10);
        told.extend(world.notices.try_iter());
        // On a loaded machine there may be shorter ones.
        let long = |notice: &&Notice| {
            let seconds = notice.detail.strip_prefix("no scan for ").and_then(|rest| rest.split(' ').next());
            notice.cause == Cause::SupervisorGap && seconds.is_some_and(|s| s.parse::<f64>().unwrap() >= 2.5)
        };
        let gaps = told.iter().filter(long).count();
        let false_alarms = told.iter().filter(|notice| matches!(notice.to, Some(State::Zombie | State::Dead))).count();
        println!("told {told:?}");
        println!("gaps {gaps} false alarms {false_alarms}");
        hang.store(true, Ordering::Release);
        loop {
            let notice = world.notices.recv_timeout(world.left()).unwrap();
            if notice.to == Some(State::Zombie) {
                println!("found {}", notice.key.unwrap().task);
                return;
            }
        }
    }
    let (mut child, mut stdout) = role(name);
    line(&mut stdout, "ready");
    let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGSTOP).unwrap();
    // The time that passes is what is tested: three times tau.
    std::thread::park_timeout(MS * 3000);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGCONT).unwrap();
    writeln!(child.stdin.take().unwrap(), "go on").unwrap();
    let told = line(&mut stdout, "told ");
    assert_eq!(line(&mut stdout, "gaps "), "gaps 1 false alarms 0", "{told}");
    assert_eq!(line(&mut stdout, "found "), "found t1");
    assert!(child.wait().unwrap().success());
}

#[test]
#[expect(clippy::print_stdout, reason = "the other process speaks to this one")]
fn a_panic_with_a_slow_backtrace_is_a_death_and_never_a_silence() {
    let name = "a_panic_with_a_slow_backtrace_is_a_death_and_never_a_silence";
    if std::env::var(ROLE).as_deref() == Ok(name) {
        // Three times tau, as a backtrace on a slow disk.
        std::panic::set_hook(Box::new(|_| std::thread::park_timeout(MS * 900)));
        let world = World::new(Settings { limits: Limits { tau: MS * 300, scan: MS * 50, scans: 2 }, ..settings() });
        let key = world.spawn(TaskSpec::new("slow", ""), |_| panic!("slowly"));
        let (before, dead) = world.until(key, |notice| notice.to == Some(State::Dead));
        let silences = before.iter().filter(|notice| notice.to == Some(State::Zombie)).count();
        println!("silences {silences} cause {}", dead.cause.name());
        return;
    }
    let (mut child, mut stdout) = role(name);
    assert_eq!(line(&mut stdout, "silences "), "silences 0 cause PANIC");
    assert!(child.wait().unwrap().success());
}

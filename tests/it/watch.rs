//! `interlock watch` on programs that know nothing of us.

use std::io::{BufRead, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use interlock::engine::supervisor::ChildSpec;
use interlock::engine::watch::{Ended, Event, Options, Seen, Target, WatchError, run};
use interlock::sys::child::Exit;

const PATIENCE: Duration = Duration::from_secs(60);

struct Watching {
    seen: Receiver<Seen>,
    stop: Arc<AtomicBool>,
    ended: std::thread::JoinHandle<Result<Ended, WatchError>>,
    deadline: Instant,
}

fn watch(target: Target) -> Watching {
    let (tell, seen) = channel();
    let options = Options { scan: Duration::from_millis(50), tau: Duration::from_millis(400), ..Options::new(target) };
    let stop = Arc::clone(&options.stop);
    let ended = std::thread::spawn(move || run(&options, |seen| tell.send(seen.clone()).unwrap()));
    Watching { seen, stop, ended, deadline: Instant::now() + PATIENCE }
}

impl Watching {
    fn until(&self, event: Event) -> Seen {
        let mut before = Vec::new();
        loop {
            let left = self.deadline.saturating_duration_since(Instant::now());
            match self.seen.recv_timeout(left) {
                Ok(seen) if seen.event == event => return seen,
                Ok(seen) => before.push(seen),
                Err(error) => panic!("{event:?} was not seen ({error}); before it: {before:#?}"),
            }
        }
    }

    fn ended(self) -> Ended {
        self.ended.join().unwrap().unwrap()
    }
}

fn python(script: &str) -> Target {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/workers");
    Target::Command(ChildSpec {
        program: "python3".into(),
        args: vec!["-c".into(), script.into()],
        envs: vec![("PYTHONPATH".into(), folder.into())],
        ..ChildSpec::default()
    })
}

#[test]
fn a_program_whose_threads_all_wait_for_each_other_is_a_zombie() {
    let script = "import threading as t\n\
        a, b, both = t.Lock(), t.Lock(), t.Barrier(2)\n\
        def work(first, second):\n\
        \x20   with first:\n\
        \x20       both.wait()\n\
        \x20       with second: pass\n\
        threads = [t.Thread(target=work, args=x) for x in ((a, b), (b, a))]\n\
        [x.start() for x in threads]\n\
        [x.join() for x in threads]\n";
    let watching = watch(python(script));
    let born = watching.until(Event::ProcessBorn);
    assert!(watching.until(Event::ThreadBorn).tid != born.pid);
    let zombie = watching.until(Event::Zombie);
    assert_eq!((zombie.pid, zombie.cause), (born.pid, Some("DEADLOCK")));
    assert!(zombie.detail.starts_with("all 3 threads wait and none has run: "), "{}", zombie.detail);
    watching.stop.store(true, Ordering::Release);
    assert_eq!(watching.ended(), Ended::Exited(Exit::Signal(15)));
}

#[test]
fn a_program_that_beats_is_judged_by_its_beats() {
    let script = "import sys, time\n\
        from interlock_worker import Heart\n\
        heart = Heart()\n\
        heart.status('at work')\n\
        heart.beat()\n\
        time.sleep(1.5)\n\
        heart.beat()\n\
        sys.exit(7)\n";
    let watching = watch(python(script));
    assert_eq!(watching.until(Event::Status).detail, "at work");
    let zombie = watching.until(Event::Zombie);
    assert_eq!((zombie.cause, zombie.detail.as_str()), (Some("NO_BEAT"), "no WATCHDOG=1 for 0.4 s"));
    assert_eq!(watching.until(Event::Running).cause, Some("RECOVERED_BEAT"));
    assert_eq!(watching.ended(), Ended::Exited(Exit::Code(7)));
}

#[test]
fn a_program_that_beats_and_computes_and_gets_nowhere_is_a_zombie() {
    let script = "import time, threading\n\
        from interlock_worker import Heart\n\
        heart = Heart()\n\
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n\
        heart.progress(1)\n\
        end = time.monotonic() + 3\n\
        while time.monotonic() < end: heart.beat()\n\
        heart.progress(2)\n\
        time.sleep(0.2)\n";
    let watching = watch(python(script));
    let zombie = watching.until(Event::Zombie);
    assert_eq!(zombie.cause, Some("LIVELOCK"), "{}", zombie.detail);
    assert_eq!(watching.until(Event::Running).cause, Some("RECOVERED_PROGRESS"));
    let gone = watching.until(Event::ThreadGone);
    assert_ne!(gone.tid, zombie.pid, "each thread that was born is told gone");
    assert_eq!(watching.ended(), Ended::Exited(Exit::Code(0)));
}

#[test]
fn what_a_program_starts_is_watched_too() {
    let target = |script: &str| {
        Target::Command(ChildSpec {
            program: "sh".into(),
            args: vec!["-c".into(), script.into()],
            ..ChildSpec::default()
        })
    };
    let watching = watch(target("sleep 0.7; sleep 0.7"));
    let shell = watching.until(Event::ProcessBorn);
    let (first, gone) = (watching.until(Event::ProcessBorn), watching.until(Event::ProcessGone));
    assert_eq!((first.detail, gone.pid), (format!("parent {}", shell.pid), first.pid));
    assert_eq!(watching.ended(), Ended::Exited(Exit::Code(0)));

    let none = Target::Command(ChildSpec { program: "/no/such".into(), ..ChildSpec::default() });
    assert!(matches!(watch(none).ended.join().unwrap(), Err(WatchError::NoProgram(..))));
}

#[test]
fn a_process_that_was_there_is_never_ended_by_us() {
    let mut cat = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let pid = i32::try_from(cat.id()).unwrap();
    let watching = watch(Target::Pid(pid));
    watching.until(Event::ProcessBorn);
    watching.stop.store(true, Ordering::Release);
    assert_eq!(watching.ended(), Ended::Stopped);

    let watching = watch(Target::Pid(pid));
    assert_eq!(watching.until(Event::ProcessBorn).name, "cat");
    cat.stdin.take().unwrap().write_all(b"bye\n").unwrap();
    cat.wait().unwrap();
    watching.until(Event::ProcessGone);
    assert_eq!(watching.ended(), Ended::Gone);
    assert!(matches!(watch(Target::Pid(pid)).ended.join().unwrap(), Err(WatchError::NoProcess(..))));
}

/// Whoever ends the watch of a program ends the program, by asking it: the watch itself reads its signals, and what it
/// starts must not inherit that it does.
#[test]
fn a_signal_to_the_watch_reaches_the_program() {
    for signal in [nix::sys::signal::SIGTERM, nix::sys::signal::SIGINT] {
        let mut watch = Command::new(env!("CARGO_BIN_EXE_interlock"))
            .args([
                "watch",
                "--scan",
                "0.05",
                "--",
                "sh",
                "-c",
                "trap 'echo asked; kill $!; exit 3' TERM; sleep 600 & echo ready; wait",
            ])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = std::io::BufReader::new(watch.stdout.take().unwrap()).lines().map_while(Result::ok);
        lines.find(|line| line == "ready").unwrap();
        let pid = nix::unistd::Pid::from_raw(i32::try_from(watch.id()).unwrap());
        nix::sys::signal::kill(pid, signal).unwrap();
        assert!(lines.any(|line| line == "asked"), "{signal}");
        assert_eq!(watch.wait().unwrap().code(), Some(3), "{signal}");
    }
}

/// A thread or a program may bear any name; on the screen it stays what it is, and it makes no line of its own.
#[test]
fn a_hostile_name_makes_no_line() {
    let place = tempfile::tempdir().unwrap();
    let program = place.path().join("a\u{1b}[31m\nb");
    std::fs::copy("/bin/sleep", &program).unwrap();
    let watch = |json: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_interlock"));
        let output = command.args(["watch"]).args(json).arg("--").arg(&program).arg("0.2").output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    };
    let plain = watch(&[]);
    assert!(plain.lines().all(|line| line.contains(" ms  ")) && !plain.contains('\u{1b}'), "{plain:?}");
    let first: serde_json::Value = serde_json::from_str(watch(&["--json"]).lines().next().unwrap()).unwrap();
    assert_eq!(first["name"], "a\u{1b}[31m\nb");
}

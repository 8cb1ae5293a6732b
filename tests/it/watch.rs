//! `interlock watch` on programs that know nothing of us.

use std::io::Write;
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

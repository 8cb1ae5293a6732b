//! What the daemon says and does about itself: its log, its disk, its runtime, its configuration, its own end.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{DEADLINE, Daemon, Heard, Home};
use crate::skipped;

/// Rows of the log of a directory, read without the daemon.
fn rows(state: &Path, kind: &str) -> Vec<Value> {
    let output = Command::new(env!("CARGO_BIN_EXE_interlock"))
        .args(["evidence", "query", "--json", "--limit", "10000", "--kind", kind, "--state"])
        .arg(state)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    String::from_utf8(output.stdout).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Waits until the log of a running daemon has such a row.
fn row(daemon: &Daemon, kind: &str, fits: impl Fn(&Value) -> bool) -> Value {
    let state = daemon.path("state");
    daemon.eventually(kind, || rows(&state, kind).into_iter().find(|row| fits(row)))
}

#[test]
fn a_reload_is_announced_and_ended_and_a_refused_one_is_written_down_with_its_place() {
    let home = Home::new();
    let path = home.config("version = 1\n");
    let (daemon, mut heard) = home.start_heard(Some(&path), &[]);
    let told = path.display().to_string();
    let missing = daemon.path("gone.toml").display().to_string();
    let table = [
        ("version = 1\nask = [\n", json!(told), 2, json!("ask"), ""),
        ("version = 1\n[ask]\ncolour = 3\n", json!(told), 3, json!("ask.colour"), "unknown field"),
        ("version = 1\n[ask]\ntimeout = 1\n", json!(told), 3, json!("ask.timeout"), "1 is outside 5 to 28800 seconds"),
        ("version = 1\n[evidence]\nquota-mib = 1\n", json!(told), 3, json!("evidence.quota-mib"), "1 is outside 128"),
        ("version = 1\n[evidence]\nhash = \"md5\"\n", json!(told), 3, json!("evidence.hash"), "no such hash"),
        ("version = 1\n[commands]\nfiles = [\"gone.toml\"]\n", json!(missing), 0, json!(""), "No such file"),
        ("version = 1\n[liveness]\ntau = 3.0\n", json!(told), -1, Value::Null, "liveness cannot change"),
        ("version = 1\n[evidence]\nhash = \"sm3\"\n", json!(told), -1, Value::Null, "evidence cannot change"),
    ];
    for (n, (text, file, line, key, message)) in table.iter().enumerate() {
        std::fs::write(&path, text).unwrap();
        daemon.signal(nix::sys::signal::Signal::SIGHUP);
        heard.until("RELOADING=1");
        let usec = heard.until("MONOTONIC_USEC=");
        assert!(usec["MONOTONIC_USEC=".len()..].parse::<u64>().unwrap() > 0);
        heard.until("READY=1");
        let status = heard.until("STATUS=");
        assert!(status.starts_with("STATUS=configuration rejected, the old one stays: "), "{text}: {status}");
        row(&daemon, "config", |_| rows(&daemon.path("state"), "config").len() > n);
        let rejected = rows(&daemon.path("state"), "config").pop().unwrap();
        assert_eq!((&rejected["to"], &rejected["cause"]), (&json!("rejected"), &json!("CONFIG_REJECTED")), "{text}");
        let place = if *line < 0 { Value::Null } else { json!(line) };
        let detail = &rejected["detail"];
        assert_eq!((&detail["file"], &detail["line"], &detail["key"]), (file, &place, key), "{text}: {detail}");
        assert!(detail["message"].as_str().unwrap().contains(message), "{text}: {detail}");
    }
    // The whole file is not there.
    std::fs::remove_file(&path).unwrap();
    assert_eq!(daemon.cli(&["reload"]).status.code(), Some(78));
    std::fs::write(&path, "version = 1\n[ask]\ntimeout = 30\n").unwrap();
    assert_eq!(daemon.cli(&["reload"]).status.code(), Some(0));
    for status in ["STATUS=configuration rejected", "STATUS=ready"] {
        heard.until("RELOADING=1");
        heard.until("READY=1");
        let said = heard.until("STATUS=");
        assert!(said.starts_with(status), "{said}");
    }
    row(&daemon, "config", |row| row["to"] == "in_force");
    assert_eq!(daemon.say("启动二号泵")["result"], "done");
}

#[test]
fn a_run_that_was_cut_off_is_told_by_the_next_one_and_an_orderly_end_is_not() {
    let daemon = Daemon::start();
    assert_eq!(daemon.say("启动二号泵")["result"], "done");
    let home = daemon.kill();
    let daemon = home.start(None);
    let told = row(&daemon, "previous_run_abnormal", |_| true);
    assert_eq!(told["cause"], "PREVIOUS_RUN_ABNORMAL");
    assert!(told["detail"]["head"]["seq"].as_u64().unwrap() > 1, "{told}");
    let (status, home) = daemon.end();
    assert_eq!(status.code(), Some(0));
    let last = rows(&home.path("state"), "end").pop().unwrap();
    assert_eq!(last["detail"]["why"], "asked to");
    let daemon = home.start(None);
    row(&daemon, "verified", |row| row["seq"].as_u64() > last["seq"].as_u64());
    let home = daemon.kill();
    assert_eq!(rows(&home.path("state"), "previous_run_abnormal").len(), 1);
}

#[test]
fn what_the_daemon_is_made_of_is_supervised_and_nobodys_to_stop() {
    let daemon = Daemon::with("version = 1\n[liveness]\nscan = 0.1\ntau = 0.5\n");
    let names = |args: &[&str]| -> Vec<(String, String)> {
        let output = daemon.cli(args);
        let text = String::from_utf8(output.stdout).unwrap();
        let rows = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let text = |row: &Value, key: &str| row[key].as_str().unwrap().to_owned();
        rows.map(|row| (text(&row, "task"), text(&row, "name"))).collect()
    };
    assert_eq!(names(&["task", "list", "--json"]), []);
    assert_eq!(names(&["task", "list", "--all", "--json"]), []);
    let own: Vec<String> = ["t1", "t2", "t3"].map(|task| names(&["task", "show", task, "--json"])[0].1.clone()).into();
    assert_eq!(own, ["runtime", "ground", "verify"]);
    let refused = daemon.cli(&["task", "stop", "t1"]);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains("is the daemon's own; stop the daemon instead"), "{said}");
    assert_eq!(daemon.cli(&["task", "restart", "t1"]).status.code(), Some(1));
    // "Cancel all tasks" means those of people.
    daemon.say("监测传感器十分钟");
    assert_eq!(names(&["task", "list", "--json"]).len(), 1);
    let cancelled = daemon.say("取消全部任务");
    if cancelled["decision"] == "ask" {
        let question = cancelled["question"].as_str().unwrap().to_owned();
        assert_eq!(daemon.cli(&["ask", "allow", &question]).status.code(), Some(0));
    }
    let task = row(&daemon, "validity", |row| row["task"] != Value::Null);
    assert_eq!((&task["to"], &task["cause"]), (&json!("valid"), &Value::Null), "{task}");
    assert!(!rows(&daemon.path("state"), "lifecycle").iter().any(|row| row["to"] == "ZOMBIE"));
}

#[test]
fn each_tier_of_the_hard_channel_can_be_forced_and_says_which_it_is() {
    for tier in ["pidfd", "tryjoin", "sentinel", "proc"] {
        let home = Home::new();
        let path = home.config(&format!("version = 1\n[liveness]\nscan = 0.1\ntau = 1.0\ntier = \"{tier}\"\n"));
        if tier == "pidfd" && !interlock::sys::pidfd::has_threads() {
            let refused = home.command(Some(&path)).output().unwrap();
            assert!(String::from_utf8_lossy(&refused.stderr).contains("it needs Linux 6.9"), "{refused:?}");
            continue;
        }
        let daemon = home.start(Some(&path));
        let started = row(&daemon, "supervisor", |row| row["cause"] == "SUPERVISOR_STARTED");
        let detail = started["detail"]["detail"].as_str().unwrap();
        assert!(detail.starts_with(&format!("tier {tier}, ")), "{detail}");
        // The end of a thread is seen through it: that of the one that reads the log once.
        let ended = row(&daemon, "lifecycle", |row| row["to"] == "STOPPED");
        assert_eq!(ended["cause"], "SUCCESS", "{tier}: {ended}");
    }
}

// ---- layer 2 ----

#[test]
fn each_output_is_held_against_what_its_tool_promised() {
    let daemon = Daemon::start();
    let call = daemon.say("查询一号水泵出口压力");
    assert_eq!(call["result"], "done");
    let run = call["run"].as_str().unwrap().to_owned();
    let found = row(&daemon, "validity", |row| row["run"] == run.as_str());
    assert_eq!((&found["to"], &found["cause"]), (&json!("valid"), &Value::Null), "{found}");
    let valid = found["detail"]["valid"].as_array().unwrap();
    for parameter in ["/action", "/device", "/point", "/value"] {
        assert!(valid.contains(&json!(parameter)), "{found}");
    }
}

#[test]
fn a_reading_outside_of_its_range_is_invalid_and_still_done() {
    // A register that always says 500.
    let register = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = register.local_addr().unwrap().port();
    std::thread::spawn(move || {
        use std::io::{Read, Write};
        for stream in register.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut request = [0; 12];
            while stream.read_exact(&mut request).is_ok() {
                let [high, low] = [request[0], request[1]];
                if stream.write_all(&[high, low, 0, 0, 0, 5, request[6], request[7], 2, 0x01, 0xf4]).is_err() {
                    break;
                }
            }
        }
    });
    let daemon = Daemon::with(&format!(
        "version = 1\n[[bus]]\nname = \"line\"\ntcp = \"127.0.0.1:{port}\"\n\
         [[device]]\nname = \"pump-1\"\nkind = \"pump\"\nbus = \"line\"\nunit = 1\n\
         [device.points]\nfrequency = {{ input = 0, unit = \"Hz\", range = [0, 50] }}\n"
    ));
    let read = daemon.cli(&["device", "read", "pump-1", "frequency", "--json"]);
    assert_eq!(read.status.code(), Some(0), "{read:?}");
    let found = row(&daemon, "validity", |_| true);
    assert_eq!((&found["to"], &found["cause"]), (&json!("invalid"), &json!("INVALID_OUTPUT")), "{found}");
    let expected = json!([{ "at": "pump-1/frequency", "expected": "0 to 50", "found": "number 500" }]);
    assert_eq!(found["detail"]["invalid"].to_string().replace("500.0", "500"), expected.to_string(), "{found}");
}

// ---- a part of the daemon that does not move ----

/// Threads of a process that are held still, one by one, until this is dropped: what a wedge looks like from outside.
pub(super) struct Frozen(Vec<i32>);

impl Frozen {
    /// All threads of that name, or none where the kernel does not let us.
    fn threads(daemon: &Daemon, name: &str) -> Option<Frozen> {
        Frozen::those(daemon, name, |_, comm| comm == name)
    }

    /// One thread, by its number.
    pub(super) fn thread(daemon: &Daemon, tid: u64) -> Option<Frozen> {
        Frozen::those(daemon, &tid.to_string(), |number, _| number.to_string() == tid.to_string())
    }

    fn those(daemon: &Daemon, name: &str, is_it: impl Fn(i32, &str) -> bool) -> Option<Frozen> {
        let tasks = format!("/proc/{}/task", daemon.child.id());
        let mut frozen = Frozen(Vec::new());
        for entry in std::fs::read_dir(tasks).unwrap() {
            let path = entry.unwrap().path();
            let tid: i32 = path.file_name().unwrap().to_str().unwrap().parse().unwrap();
            if std::fs::read_to_string(path.join("comm")).is_ok_and(|comm| is_it(tid, comm.trim_end())) {
                // SAFETY: plain numbers; the thread is another process's, which is our child.
                let held = unsafe {
                    libc::ptrace(libc::PTRACE_SEIZE, tid, 0, 0) == 0
                        && libc::ptrace(libc::PTRACE_INTERRUPT, tid, 0, 0) == 0
                        && libc::waitpid(tid, std::ptr::null_mut(), libc::__WALL) == tid
                };
                if !held {
                    return None;
                }
                frozen.0.push(tid);
            }
        }
        assert!(!frozen.0.is_empty(), "no thread is called {name}");
        Some(frozen)
    }

    /// The process has ended by itself: each of its held threads is given back to it.
    fn reap(self) {
        for tid in &self.0 {
            // SAFETY: as above.
            unsafe { libc::waitpid(*tid, std::ptr::null_mut(), libc::__WALL) };
        }
        std::mem::drop(self);
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        for tid in &self.0 {
            // SAFETY: as above; one that is gone is no tracee any more, and nothing happens.
            unsafe { libc::ptrace(libc::PTRACE_DETACH, *tid, 0, 0) };
        }
    }
}

/// A daemon that pings ten times a second.
fn pinging() -> (Daemon, Heard) {
    let home = Home::new();
    let path = home.config("version = 1\n[liveness]\nscan = 0.1\ntau = 0.5\n");
    let (daemon, mut heard) = home.start_heard(Some(&path), &[("WATCHDOG_USEC", "300000")]);
    heard.until("WATCHDOG=1");
    (daemon, heard)
}

#[test]
fn the_watchdog_is_fed_only_while_scanner_and_evidence_writer_advance() {
    let (daemon, mut heard) = pinging();
    for thread in ["supervisor", "evidence"] {
        let Some(frozen) = Frozen::threads(&daemon, thread) else {
            return skipped(
                "the_watchdog_is_fed_only_while_scanner_and_evidence_writer_advance",
                "ptrace is not allowed",
            );
        };
        // Those that were on their way, and then silence for many times its period.
        let end = Instant::now() + DEADLINE;
        while heard.listen(Duration::from_secs(2)) {
            assert!(Instant::now() < end, "it is fed although {thread} stands still");
        }
        heard.told.clear();
        drop(frozen);
        heard.until("WATCHDOG=1");
    }
    // What it was is in the log.
    row(&daemon, "supervisor", |row| {
        row["cause"] == "WATCHDOG_HELD"
            && row["detail"]["detail"].as_str().unwrap().starts_with("evidence does not advance")
    });
}

#[test]
fn a_wedged_runtime_is_a_zombie_in_the_log_and_ends_the_process_while_the_watchdog_is_fed() {
    let (mut daemon, mut heard) = pinging();
    let Some(frozen) = Frozen::threads(&daemon, "tokio-rt-worker") else {
        return skipped(
            "a_wedged_runtime_is_a_zombie_in_the_log_and_ends_the_process_while_the_watchdog_is_fed",
            "ptrace is not allowed",
        );
    };
    let zombie = row(&daemon, "lifecycle", |row| row["to"] == "ZOMBIE");
    assert_eq!((&zombie["cause"], &zombie["task"]), (&json!("BLOCKED_EXTERNAL"), &json!("t1")), "{zombie}");
    heard.told.clear();
    heard.until("WATCHDOG=1");
    // The ladder: asked, no other life, the end of the process with the code of a bug.
    frozen.reap();
    let status = daemon.child.wait().unwrap();
    assert_eq!(status.code(), Some(70), "{}", daemon.log());
    let home = daemon.kill();
    let escalated = rows(&home.path("state"), "note");
    assert!(escalated.iter().any(|row| row["cause"] == "ESCALATED"), "{escalated:?}");
    // And systemd's next start finds everything.
    let daemon = home.start(None);
    row(&daemon, "previous_run_abnormal", |_| true);
    assert_eq!(daemon.say("启动二号泵")["result"], "done");
}

// ---- disks ----

/// A small file system of its own, where root may mount one; unmounted when it goes.
pub(super) struct Disk(std::path::PathBuf);

impl Disk {
    pub(super) fn mounted(test: &str, home: &Home, size: &str) -> Option<Disk> {
        let at = home.path("state");
        std::fs::create_dir_all(&at).unwrap();
        let options = format!("size={size},mode=700");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &options, "interlock-test"]).arg(&at).stderr(Stdio::null());
        if !mount.status().is_ok_and(|status| status.success()) {
            skipped(test, "a file system can only be mounted by root");
            return None;
        }
        Some(Disk(at))
    }

    fn remount(&self, how: &str) {
        let done = Command::new("mount").args(["-o", &format!("remount,{how}")]).arg(&self.0).status().unwrap();
        assert!(done.success(), "remount {how}");
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn on_a_read_only_disk_the_daemon_is_ready_degraded_and_writes_later() {
    let test = "on_a_read_only_disk_the_daemon_is_ready_degraded_and_writes_later";
    let home = Home::new();
    let Some(disk) = Disk::mounted(test, &home, "256m") else { return };
    let (_, home) = home.start(None).end();
    disk.remount("ro");
    let (daemon, mut heard) = home.start_heard(None, &[]);
    let status = heard.until("STATUS=DEGRADED: ");
    let said = "STATUS=DEGRADED: the evidence log takes no rows: the file system is read-only; the state is only";
    assert!(status.starts_with(said), "{status}");
    // What changes the world does not happen without its row; reading does.
    let refused = daemon.say("启动二号泵");
    assert_eq!(refused["result"], "not_started", "{refused}");
    assert_eq!(daemon.say("查询一号水泵出口压力")["result"], "done");
    disk.remount("rw");
    heard.told.clear();
    let status = heard.until("STATUS=");
    assert!(status.starts_with("STATUS=DEGRADED: the state is only remembered"), "{status}");
    assert_eq!(daemon.say("启动二号泵")["result"], "done");
    row(&daemon, "evidence_recovered", |row| row["cause"] == "read_only");
    let home = daemon.kill();
    let daemon = home.start(None);
    assert_eq!(daemon.say("停止二号泵")["result"], "done");
    drop(daemon);
    drop(disk);
}

/// What an image puts in the place of a data partition that is lost: an empty place that takes nothing. And a place that
/// is not even there.
#[test]
fn without_its_data_partition_the_daemon_supervises_and_says_so() {
    let test = "without_its_data_partition_the_daemon_supervises_and_says_so";
    for below in ["state", "state/below"] {
        let home = Home::new();
        let Some(disk) = Disk::mounted(test, &home, "4k") else { return };
        disk.remount("ro");
        let state = home.path(below);
        let (daemon, mut heard) = home.start_heard_on(&state, None, &[]);
        let status = heard.until("STATUS=DEGRADED: ");
        assert!(status.contains("the evidence log takes no rows") && status.contains("only remembered"), "{status}");
        let refused = daemon.say("启动二号泵");
        assert_eq!(refused["result"], "not_started", "{refused}");
        assert_eq!(daemon.say("查询一号水泵出口压力")["result"], "done");
        // What is protective runs all the same, and the tasks are watched.
        assert_eq!(daemon.say("全线急停")["result"], "done");
        assert_eq!(daemon.cli(&["task", "list", "--all"]).status.code(), Some(0));
        let told = daemon.cli(&["status"]);
        assert!(String::from_utf8_lossy(&told.stdout).contains("ready     true"), "{told:?}");
        let doctor = daemon.cli(&["doctor", "--json", "--state", state.to_str().unwrap()]);
        let disk_line = String::from_utf8(doctor.stdout).unwrap();
        let disk_line = disk_line.lines().find(|line| line.contains("\"disk\"")).unwrap().to_owned();
        assert!(disk_line.contains("\"bad\""), "{disk_line}");
        assert_eq!(std::fs::read_dir(&disk.0).unwrap().count(), 0, "nothing is written elsewhere");
        drop(daemon);
        drop(disk);
    }
}

#[test]
fn a_start_on_a_full_disk_is_no_crash_loop_and_little_room_is_told() {
    let test = "a_start_on_a_full_disk_is_no_crash_loop_and_little_room_is_told";
    let home = Home::new();
    let Some(disk) = Disk::mounted(test, &home, "140m") else { return };
    let (daemon, mut heard) = home.start_heard(None, &[]);
    // A slow start says what it is at before.
    heard.until("STATUS=ready");
    // Somebody else fills the disk, nearly.
    let ballast = disk.0.join("ballast");
    std::fs::write(&ballast, vec![1; 100 << 20]).unwrap();
    let low = heard.until("STATUS=DEGRADED");
    assert_eq!(low, "STATUS=DEGRADED: less than 128 MiB are free for the log");
    let told = row(&daemon, "disk", |row| row["to"] == "low");
    assert!(told["detail"]["free"].as_u64().unwrap() < 128 << 20, "{told}");
    let home = daemon.kill();
    // And then all of it.
    std::fs::write(&ballast, vec![1; 200 << 20]).unwrap_err();
    let (daemon, mut heard) = home.start_heard(None, &[]);
    heard.until("STATUS=DEGRADED: ");
    assert_eq!(daemon.say("启动二号泵")["result"], "not_started");
    assert_eq!(daemon.say("查询一号水泵出口压力")["result"], "done");
    std::fs::remove_file(&ballast).unwrap();
    let end = Instant::now() + DEADLINE;
    while daemon.say("启动二号泵")["result"] != "done" {
        assert!(Instant::now() < end, "it does not come back: {}", daemon.log());
    }
    drop(daemon);
    drop(disk);
}

#[test]
fn a_log_that_was_altered_is_found_by_the_next_start_and_is_an_alarm() {
    let daemon = Daemon::start();
    assert_eq!(daemon.say("启动二号泵")["result"], "done");
    row(&daemon, "verified", |row| row["to"] == "INTACT");
    let (_, home) = daemon.end();
    let segment = rusqlite::Connection::open(home.path("state/evidence/1.db")).unwrap();
    segment.execute("UPDATE evidence SET \"to\" = 'failed' WHERE kind = 'settled'", []).unwrap();
    drop(segment);
    let daemon = home.start(None);
    let found = row(&daemon, "verified", |row| row["to"] != "INTACT");
    assert_eq!((&found["to"], &found["detail"]["verdict"]), (&json!("ALTERED"), &json!("ALTERED")), "{found}");
    let alarms = daemon.eventually("the alarm", || {
        let said = daemon.say("查看当前报警");
        said["output"].to_string().contains("ALTERED").then_some(said)
    });
    assert!(alarms["output"].to_string().contains("evidence:verify"), "{alarms}");
}

//! The sandbox of a tool's children, with real children: what they may not do fails, and what a command needs works.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::process::{Command, Stdio};

use interlock::sys::sandbox::{Reach, Sandbox, support};

use super::skipped;

/// Runs a line of shell in a sandbox; whether it succeeded, and what it said.
fn run(reach: &Reach, script: &str) -> (bool, String) {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", script]).stdin(Stdio::null());
    Sandbox::new(reach).unwrap().confine(&mut command);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).trim().to_owned();
    (output.status.success(), said)
}

/// The second is what a link or a move out of its tree is told.
const REFUSED: [&str; 2] = ["ermission denied", "nvalid cross-device link"];

/// A place outside of every temporary directory, so that only the rules under test open it.
fn place() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// Whether this kernel has that version of Landlock, and the build lies where the sandbox opens nothing by itself.
fn can_run(test: &str, version: u32) -> bool {
    let why = match support().landlock {
        None => "this kernel has no Landlock".to_owned(),
        Some(found) if found < version => format!("this kernel has Landlock {found}, {version} is wanted"),
        Some(_) if env!("CARGO_TARGET_TMPDIR").starts_with("/tmp/") => "the build lies in /tmp".to_owned(),
        Some(_) => return true,
    };
    skipped(test, &why);
    false
}

#[test]
fn a_child_writes_where_work_is_done_and_nowhere_else() {
    if !can_run("a_child_writes_where_work_is_done_and_nowhere_else", 1) {
        return;
    }
    let place = place();
    let (work, other) = (place.path().join("work"), place.path().join("other"));
    for dir in [&work, &other] {
        fs::create_dir(dir).unwrap();
    }
    fs::write(other.join("there"), "text").unwrap();
    let reach = Reach { write: vec![work.clone()], hidden: vec![] };
    let check = |script: &str, succeeds: bool| {
        let script = script.replace("WORK", work.to_str().unwrap()).replace("OTHER", other.to_str().unwrap());
        let (succeeded, said) = run(&reach, &script);
        assert_eq!(succeeded, succeeds, "{script}: {said}");
        assert!(succeeds || REFUSED.iter().any(|words| said.contains(words)), "{script}: {said}");
    };
    check("echo a > WORK/new && mkdir WORK/d && mv WORK/new WORK/d/ && rm -r WORK/d", true);
    check("cat OTHER/there && ls OTHER && true > /dev/null", true);
    check("f=$(mktemp) && echo a > $f && rm $f", true);
    check("echo a > OTHER/new", false);
    check("echo a >> OTHER/there", false);
    check("rm OTHER/there", false);
    check("mv OTHER/there WORK/", false);
    check("ln OTHER/there WORK/link", false);
    check("truncate -s 0 OTHER/there", false);
    // Also what the child starts, and the child of that.
    check("sh -c 'sh -c \"echo a > OTHER/new\"'", false);
    assert_eq!(fs::read_to_string(other.join("there")).unwrap(), "text");
}

#[test]
fn what_is_hidden_is_not_read_but_for_the_work_inside_of_it() {
    if !can_run("what_is_hidden_is_not_read_but_for_the_work_inside_of_it", 1) {
        return;
    }
    let place = place();
    let state = place.path().join("state");
    let (work, beside) = (state.join("work"), place.path().join("beside"));
    for dir in [&state, &work, &beside] {
        fs::create_dir(dir).unwrap();
    }
    for file in [state.join("key"), work.join("file"), beside.join("file")] {
        fs::write(file, "text").unwrap();
    }
    let reach = Reach { write: vec![work.clone()], hidden: vec![state.clone()] };
    let check = |script: String, succeeds: bool| {
        let (succeeded, said) = run(&reach, &script);
        assert_eq!(succeeded, succeeds, "{script}: {said}");
    };
    let (state, work, beside) = (state.display(), work.display(), beside.display());
    check(format!("cat {state}/key"), false);
    check(format!("echo a > {state}/new"), false);
    check(format!("cat {work}/../key"), false);
    check(format!("ln -s {state}/key {work}/link; cat {work}/link"), false);
    check(format!("cat {work}/file && echo a > {work}/new"), true);
    check(format!("cat {beside}/file"), true);
    check(format!("echo a > {beside}/file"), false);
}

#[test]
fn whoever_started_it_can_be_neither_signalled_nor_looked_into() {
    if !can_run("whoever_started_it_can_be_neither_signalled_nor_looked_into", 6) {
        return;
    }
    let us = std::process::id();
    let check = |script: String| {
        let (succeeded, said) = run(&Reach::default(), &script);
        assert!(!succeeded, "{script}: {said}");
    };
    check(format!("kill -0 {us}"));
    check(format!("cat /proc/{us}/environ"));
    check(format!("readlink /proc/{us}/fd/0"));
    check(format!("ls /proc/{us}/root/"));
    // Its own children are its own.
    let (succeeded, said) = run(&Reach::default(), "sleep 60 & kill $!");
    assert!(succeeded, "{said}");
}

const HARMLESS: [&str; 6] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];

#[test]
fn devices_are_shut_but_for_the_harmless_ones() {
    if !can_run("devices_are_shut_but_for_the_harmless_ones", 1) {
        return;
    }
    let (succeeded, said) = run(&Reach::default(), "head -c 4 /dev/urandom > /dev/null && echo a > /dev/full");
    assert!(!succeeded && !said.contains("ermission denied"), "opened, and full: {said}");
    // The node itself and not a link: `/dev/stderr` leads to a pipe of the child's own.
    let others = fs::read_dir("/dev").unwrap().flatten();
    let others =
        others.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_char_device() || kind.is_block_device()));
    let device = others.map(|entry| entry.path()).find(|path| !HARMLESS.contains(&path.to_str().unwrap_or_default()));
    let Some(device) = device else {
        return skipped("devices_are_shut_but_for_the_harmless_ones", "this machine has no other device");
    };
    let (_, said) = run(&Reach::default(), &format!("head -c 1 {} < /dev/null", device.display()));
    assert!(said.contains("ermission denied"), "{}: {said}", device.display());
}

/// Python asks the kernel by number and says what it answered.
#[test]
fn system_calls_that_no_command_needs_are_refused() {
    let test = "system_calls_that_no_command_needs_are_refused";
    if !support().seccomp {
        return skipped(test, "this kernel has no filters of system calls");
    }
    if Command::new("python3").arg("--version").output().is_err() {
        return skipped(test, "python3 is not installed");
    }
    let (_, said) = run(&Reach::default(), &format!("python3 -c '{SYSTEM_CALLS}'"));
    let wrong: Vec<&str> =
        said.lines().filter(|line| !line.ends_with(" refused") && !line.ends_with(" works")).collect();
    assert_eq!(wrong, Vec::<&str>::new(), "{said}");
    assert_eq!(said.lines().count(), 14, "{said}");
}

const SYSTEM_CALLS: &str = r#"
import ctypes, errno, os, platform, socket, threading
libc = ctypes.CDLL(None, use_errno=True)
arm = platform.machine() == "aarch64"
def refused(name, x86, aarch64, *args):
    got = libc.syscall(aarch64 if arm else x86, *args)
    code = ctypes.get_errno()
    print(name, "refused" if got == -1 and code in (errno.EPERM, errno.ENOSYS) else "%s %s" % (got, errno.errorcode.get(code)))
refused("ptrace", 101, 117, 0, 0, 0, 0)
refused("mount", 165, 40, 0, 0, 0, 0, 0)
refused("keyctl", 250, 219, 0, -3, 0)
refused("bpf", 321, 280, 0, 0, 0)
refused("init_module", 175, 105, 0, 0, 0)
refused("kexec_load", 246, 104, 0, 0, 0, 0)
refused("io_uring_setup", 425, 425, 1, 0)
refused("unshare", 272, 97, 0x10000000)
refused("process_vm_readv", 310, 270, os.getppid(), 0, 0, 0, 0, 0)
def no_socket(name, *args):
    try:
        socket.socket(*args)
        print(name, "was made")
    except OSError as why:
        print(name, "refused" if why.errno in (errno.EPERM, errno.EAFNOSUPPORT) else why)
no_socket("raw", socket.AF_INET, socket.SOCK_RAW, 1)
no_socket("packet", socket.AF_PACKET, socket.SOCK_DGRAM, 0)
no_socket("netlink", socket.AF_NETLINK, socket.SOCK_DGRAM, 0)
one, other = socket.socketpair()
tcp = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
print("ordinary sockets", "works")
thread = threading.Thread(target=os.getpid)
thread.start()
thread.join()
print("threads", "works")
"#;

//! Power cuts. What was acknowledged is there afterwards, and nothing looks altered that was not.
//!
//! Two ways: a real ext4 that is shut down in the middle of its writes (needs root), and every state that a crash can
//! leave between two operations on the files, worked out from a recording (needs a C compiler).

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use interlock::record::{Row, Stamp, TimeQuality};
use interlock::store::chain::Algorithm;
use interlock::store::queue::Entry;
use interlock::store::read::{self, Query};
use interlock::store::verify::{Verdict, verify};
use interlock::store::{Limits, Settings, Store};
use interlock_domain::id::Seq;
use interlock_domain::time::{Tick, Wall};

use crate::skips::skipped;
use crate::{asked, asked_count};

/// The state directory of the process that writes; where it puts what was acknowledged.
const CHILD: &str = "INTERLOCK_EXPERIMENT_CHILD";

fn clock() -> Stamp {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NOW: AtomicU64 = AtomicU64::new(1);
    let now = NOW.fetch_add(1, Ordering::Relaxed);
    Stamp { mono: Tick(now), boottime_ns: now, wall: Wall(1_764_500_000_000), quality: TimeQuality::Unknown }
}

fn settings(state: &Path) -> Settings {
    Settings {
        state: state.to_owned(),
        boot_id: "0b5c9f4e-8f5e-4f0e-9d55-2f6a2f1f7b11".to_owned(),
        version: "0.1.0".to_owned(),
        clock,
        // Small, so that segments begin and go within a hundred rows.
        limits: Limits { segment_len_max: 25_000, log_len_max: 120_000, reserve_len: 16 * 1024, ..Limits::default() },
        algorithm: Algorithm::default(),
    }
}

fn row(n: u64) -> Row {
    Row::new(clock(), "note").detailed(&serde_json::json!({ "n": n, "filler": "x".repeat(100) }))
}

/// Not an experiment: the process that writes. With a second line in its variable it ends by itself after so many
/// durable rows, and closes and opens the log on the way.
#[test]
fn child_writer() {
    let Ok(told) = std::env::var(CHILD) else { return };
    let mut words = told.split('\n');
    let state = PathBuf::from(words.next().unwrap());
    let acks = words.next().unwrap();
    let rows: u64 = words.next().map_or(u64::MAX, |rows| rows.parse().unwrap());
    let mut acks: Box<dyn Write> =
        if acks == "-" { Box::new(std::io::stdout()) } else { Box::new(File::create(acks).unwrap()) };
    let mut store = Store::open(&settings(&state)).unwrap().store;
    for n in 1..=rows {
        let writer = store.writer();
        for _ in 0..n % 7 {
            let _ = writer.append(Entry::relaxed(row(0)));
        }
        if let Ok(seq) = writer.append_durable(row(n)) {
            // One write for one line: a line is there whole or not at all.
            acks.write_all(format!("\nACK {} {n} {}\n", seq.0, now_ns()).as_bytes()).unwrap();
        }
        if n % 40 == 0 && rows != u64::MAX {
            drop(writer);
            store.close();
            store = Store::open(&settings(&state)).unwrap().store;
        }
    }
    store.close();
}

fn child(state: &Path, acks: &str, more: &[(&str, &Path)]) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "power::child_writer", "--nocapture", "--test-threads=1"])
        .env(CHILD, format!("{}\n{acks}", state.display()))
        .envs(more.iter().copied())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Row, what is in it, and when that was told.
fn ack(line: &str) -> Option<(u64, u64, u128)> {
    let mut words = line.strip_prefix("ACK ")?.split(' ');
    Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?, words.next()?.parse().ok()?))
}

/// Nanoseconds after 1970: the one clock that this process, the child and Python read alike.
fn now_ns() -> u128 {
    std::time::SystemTime::now().duration_since(std::time::SystemTime::UNIX_EPOCH).unwrap().as_nanos()
}

/// Holds a log after a crash against what was acknowledged before it. Rows that retention took are told by the log.
fn judge(state: &Path, acknowledged: &BTreeMap<u64, u64>) -> Result<(), String> {
    let found = match verify(state) {
        Ok(found) => found,
        Err(e) if acknowledged.is_empty() => return drop_ok(e),
        Err(e) => return Err(e.to_string()),
    };
    let begun = found.rows > 0;
    if found.verdict != Verdict::Intact && (begun || !acknowledged.is_empty()) {
        return Err(format!("{found:?}"));
    }
    let first = read::stats(state).map_err(|e| e.to_string())?.first.unwrap_or(Seq(1));
    let mut lost = Vec::new();
    for (seq, n) in acknowledged.iter().filter(|(seq, _)| Seq(**seq) >= first) {
        let there = read::show(state, Seq(*seq)).map_err(|e| e.to_string())?;
        let text = there.and_then(|there| there.row.detail).unwrap_or_default();
        if text != row(*n).detail.unwrap_or_default() {
            lost.push((*seq, *n, text));
        }
    }
    if !lost.is_empty() {
        let last = acknowledged.iter().next_back();
        return Err(format!("acknowledged rows are lost: {lost:?}; the last was {last:?}; {found:?}"));
    }
    let opened = Store::open(&settings(state)).map_err(|e| e.to_string())?;
    let last = acknowledged.keys().next_back().copied().unwrap_or(0);
    let next = opened.store.writer().append_durable(row(0)).map_err(|e| e.to_string())?;
    opened.store.close();
    if next.0 <= last {
        return Err(format!("row {} was given again", next.0));
    }
    let again = verify(state).map_err(|e| e.to_string())?;
    if again.verdict == Verdict::Intact { Ok(()) } else { Err(format!("after the next start: {again:?}")) }
}

/// Before the first row there may be no log at all.
fn drop_ok(_: interlock::store::error::StoreError) -> Result<(), String> {
    Ok(())
}

fn sh(command: &str) -> bool {
    told(command).is_ok()
}

/// Runs a line of shell; what it complained about, when it did not succeed.
fn told(command: &str) -> Result<(), String> {
    let output = Command::new("sh").args(["-c", command]).stdin(Stdio::null()).output().unwrap();
    if output.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
}

/// An ext4 of its own in a file, mounted over a loop device.
struct Plugged<'a> {
    image: &'a Path,
    at: &'a Path,
    mounted: bool,
}

impl<'a> Plugged<'a> {
    /// A new and empty file system in `image`, at `at`.
    fn fresh(image: &'a Path, at: &'a Path) -> Result<Plugged<'a>, String> {
        told(&format!("truncate -s 0 {0} && truncate -s 64M {0} && mkfs.ext4 -q -F {0}", image.display()))?;
        Plugged::again(image, at)
    }

    /// What is in `image`, as after a power cut: the kernel replays its journal.
    fn again(image: &'a Path, at: &'a Path) -> Result<Plugged<'a>, String> {
        told(&format!("mount -o loop {} {}", image.display(), at.display()))?;
        Ok(Plugged { image, at, mounted: true })
    }

    /// Pulls the plug: what was not written is lost. When that was, by the clock that [`now_ns`] reads.
    fn pull(&self) -> Result<u128, String> {
        let script = format!(
            "import fcntl, os, struct, time\nfd = os.open('{}', 0)\nprint(time.time_ns(), flush=True)\n\
             fcntl.ioctl(fd, 0x8004587d, struct.pack('I', 2))",
            self.at.display()
        );
        let shut = Command::new("python3").args(["-c", &script]).output().map_err(|e| format!("python3: {e}"))?;
        if !shut.status.success() {
            return Err(String::from_utf8_lossy(&shut.stderr).lines().last().unwrap_or("python3").to_owned());
        }
        String::from_utf8_lossy(&shut.stdout).trim().parse().map_err(|e| format!("the time of the cut: {e}"))
    }

    /// Lets go of the file system, so that it can be mounted anew.
    fn unplug(mut self) -> (&'a Path, &'a Path) {
        // A process that was killed may hold it for a moment.
        let gone = (0..50).any(|_| sh(&format!("umount {}", self.at.display())));
        assert!(gone, "{} stays mounted", self.at.display());
        self.mounted = false;
        (self.image, self.at)
    }
}

impl Drop for Plugged<'_> {
    fn drop(&mut self) {
        if self.mounted {
            sh(&format!("umount -l {}", self.at.display()));
        }
    }
}

/// The plug is pulled (`EXT4_IOC_SHUTDOWN`, without flushing the journal) at a random moment.
///
/// Unlike in a real cut, the process lives on for a moment, and a sync that was under way when the plug was pulled
/// can return success though its data never came to the disk. So a row counts as acknowledged when it was told before
/// the plug was pulled, by the same clock; what was told later is counted apart.
#[test]
fn power_cuts_on_ext4() {
    if !asked("evidence-power-cuts") {
        return;
    }
    let cuts = asked_count(100);
    let dir = tempfile::tempdir().unwrap();
    let (image, mount) = (dir.path().join("image"), dir.path().join("mount"));
    fs::create_dir(&mount).unwrap();
    // All that a cut needs, tried once: root, loop devices, ext4, its ioctl and Python.
    let dry = Plugged::fresh(&image, &mount).and_then(|plugged| plugged.pull().map(|_| plugged.unplug()));
    if let Err(why) = dry {
        say(&format!("power cuts on ext4: skipped: {why}"));
        return skipped("power::power_cuts_on_ext4 (100 power cuts)", &why);
    }
    let mut random = fastrand::Rng::new();
    let begun = Instant::now();
    let (mut acknowledged_rows, mut told_later, mut bad) = (0, 0, Vec::new());
    for cut in 0..cuts {
        let plugged = Plugged::fresh(&image, &mount).unwrap();
        let state = mount.join("state");
        let mut child = child(&state, "-", &[]);
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let mut told = Vec::new();
        let wanted = random.usize(1..120);
        while told.len() < wanted {
            told.extend(ack(&lines.next().expect("the child writes")));
        }
        let cut_at = plugged.pull();
        child.kill().unwrap();
        child.wait().unwrap();
        let cut_at = cut_at.unwrap();
        told.extend(lines.filter_map(|line| ack(&line)));
        let acknowledged: BTreeMap<u64, u64> =
            told.iter().filter(|(.., when)| *when < cut_at).map(|(seq, n, _)| (*seq, *n)).collect();
        told_later += told.len() - acknowledged.len();
        let (image, at) = plugged.unplug();
        let plugged = Plugged::again(image, at).unwrap();
        acknowledged_rows += acknowledged.len();
        if let Err(why) = judge(&state, &acknowledged) {
            bad.push(format!("cut {cut}: {why}"));
        }
        plugged.unplug();
    }
    say(&format!(
        "power cuts on ext4: {cuts} cuts, {acknowledged_rows} rows acknowledged, {} cuts with a loss; \
         {told_later} rows told after the plug was pulled; {:.0} s",
        bad.len(),
        begun.elapsed().as_secs_f64()
    ));
    assert!(acknowledged_rows > 0 && bad.is_empty(), "{bad:#?}");
}

#[expect(clippy::print_stdout, reason = "an experiment prints what it measured")]
fn say(text: &str) {
    println!("{text}");
}

/// One operation of the recording.
#[derive(Debug, Clone)]
enum Op {
    Create(PathBuf),
    Truncate(PathBuf, u64),
    Write(PathBuf, u64, Vec<u8>),
    Sync(PathBuf),
    Rename(PathBuf, PathBuf),
    Unlink(PathBuf),
    Mkdir(PathBuf),
}

fn recording(log: &Path) -> Vec<Op> {
    let bytes = fs::read(log).unwrap();
    let mut ops = Vec::new();
    let mut rest = bytes.as_slice();
    while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
        let line = std::str::from_utf8(&rest[..end]).unwrap();
        rest = &rest[end + 1..];
        let (what, of) = line.split_at(2);
        let mut words = of.rsplitn(3, ' ');
        ops.push(match what {
            "C " => Op::Create(of.into()),
            "S " => Op::Sync(of.into()),
            "U " => Op::Unlink(of.into()),
            "M " => Op::Mkdir(of.into()),
            "R " => {
                let (from, to) = of.split_once('\t').unwrap();
                Op::Rename(from.into(), to.into())
            }
            "T " => {
                let (path, len) = of.rsplit_once(' ').unwrap();
                Op::Truncate(path.into(), len.parse().unwrap())
            }
            "W " => {
                let len: usize = words.next().unwrap().parse().unwrap();
                let at = words.next().unwrap().parse().unwrap();
                let data = rest[..len].to_vec();
                rest = &rest[len + 1..];
                Op::Write(words.next().unwrap().into(), at, data)
            }
            _ => panic!("{line}"),
        });
    }
    ops
}

/// What of a file a crash cannot take, and what it can.
#[derive(Debug, Clone, Default)]
struct Inode {
    durable: Vec<u8>,
    pending: Vec<Change>,
}

#[derive(Debug, Clone)]
enum Change {
    Write(u64, Vec<u8>),
    Truncate(u64),
}

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Change::Truncate(len) => bytes.resize(usize::try_from(*len).unwrap(), 0),
            Change::Write(at, data) => {
                let at = usize::try_from(*at).unwrap();
                if bytes.len() < at + data.len() {
                    bytes.resize(at + data.len(), 0);
                }
                bytes[at..at + data.len()].copy_from_slice(data);
            }
        }
    }
}

/// A change of names in one directory; durable with a sync of that directory.
#[derive(Debug, Clone)]
enum Naming {
    Add(PathBuf, usize),
    Remove(PathBuf),
}

/// A file system of the strictest kind: nothing is durable before its file, or for names its directory, is synced;
/// until then each write may be there, missing or torn at a sector, in any order.
#[derive(Debug, Clone, Default)]
struct Disk {
    inodes: Vec<Inode>,
    names: BTreeMap<PathBuf, usize>,
    durable_names: BTreeMap<PathBuf, usize>,
    pending_names: BTreeMap<PathBuf, Vec<Naming>>,
    directories: BTreeSet<PathBuf>,
}

impl Disk {
    fn name(&mut self, naming: Naming) {
        let (Naming::Add(path, _) | Naming::Remove(path)) = &naming;
        let directory = path.parent().unwrap().to_owned();
        naming.apply(&mut self.names);
        self.pending_names.entry(directory).or_default().push(naming);
    }

    fn play(&mut self, op: &Op) {
        match op {
            Op::Mkdir(path) => drop(self.directories.insert(path.clone())),
            Op::Create(path) => {
                self.inodes.push(Inode::default());
                self.name(Naming::Add(path.clone(), self.inodes.len() - 1));
            }
            Op::Truncate(path, len) => self.change(path, Change::Truncate(*len)),
            Op::Write(path, at, data) => self.change(path, Change::Write(*at, data.clone())),
            Op::Unlink(path) => self.name(Naming::Remove(path.clone())),
            Op::Rename(from, to) => {
                let inode = self.names[from];
                // One change: a crash leaves the old name or the new one.
                self.name(Naming::Remove(from.clone()));
                let directory = from.parent().unwrap();
                self.pending_names.get_mut(directory).unwrap().pop();
                self.name(Naming::Add(to.clone(), inode));
                self.pending_names.entry(directory.to_owned()).or_default().push(Naming::Remove(from.clone()));
            }
            Op::Sync(path) => {
                if let Some(inode) = self.names.get(path) {
                    let inode = &mut self.inodes[*inode];
                    for change in inode.pending.drain(..) {
                        change.apply(&mut inode.durable);
                    }
                } else {
                    for naming in self.pending_names.remove(path).unwrap_or_default() {
                        naming.apply(&mut self.durable_names);
                    }
                }
            }
        }
    }

    fn change(&mut self, path: &Path, change: Change) {
        // A file that was unlinked while it was open is of no interest any more.
        if let Some(inode) = self.names.get(path) {
            self.inodes[*inode].pending.push(change);
        }
    }

    /// What is left after a crash now: `luck` is the share of what was not synced that is there all the same.
    fn crash(&self, luck: f64, random: &mut fastrand::Rng) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut names = self.durable_names.clone();
        for pending in self.pending_names.values() {
            let kept = if luck >= 1.0 { pending.len() } else { random.usize(0..=pending.len()) };
            for naming in &pending[..if luck <= 0.0 { 0 } else { kept }] {
                naming.apply(&mut names);
            }
        }
        let mut files = BTreeMap::new();
        for (path, inode) in names {
            let inode = &self.inodes[inode];
            let mut bytes = inode.durable.clone();
            for change in &inode.pending {
                if random.f64() >= luck {
                    continue;
                }
                match change {
                    Change::Write(at, data) if luck < 1.0 && random.u8(0..4) == 0 => {
                        let sectors = data.len() / 512;
                        let torn = &data[..random.usize(0..=sectors) * 512];
                        Change::Write(*at, torn.to_vec()).apply(&mut bytes);
                    }
                    whole @ (Change::Write(..) | Change::Truncate(_)) => whole.apply(&mut bytes),
                }
            }
            files.insert(path, bytes);
        }
        files
    }
}

impl Naming {
    fn apply(&self, names: &mut BTreeMap<PathBuf, usize>) {
        match self {
            Naming::Add(path, inode) => drop(names.insert(path.clone(), *inode)),
            Naming::Remove(path) => drop(names.remove(path)),
        }
    }
}

/// Every state that a crash can leave: after each operation of a recorded run with the least, with the most and with
/// a random part of what was not synced.
#[test]
fn every_crash_between_two_operations() {
    if !asked("evidence-crashes") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("root");
    fs::create_dir(&root).unwrap();
    let (library, log) = (dir.path().join("record.so"), dir.path().join("log"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/experiments/record.c");
    assert!(sh(&format!("cc -shared -fPIC -o {} {} -ldl", library.display(), source.display())), "a C compiler");
    let acks = root.join("acks");
    let rows = asked_count(160);
    let more = [("LD_PRELOAD", library.as_path()), ("RECORD_ROOT", &root), ("RECORD_LOG", &log)];
    let child = child(&root.join("state"), &format!("{}\n{rows}", acks.display()), &more);
    assert!(child.wait_with_output().unwrap().status.success());
    let ops = recording(&log);
    let begun = Instant::now();
    let (states, bad) = replay(&ops, &root, Syncs::Kept);
    // A check that cannot fail guards nothing: on a disk that does not sync the write-ahead log, rows must be lost.
    let (_, found) = replay(&ops, &root, Syncs::OfTheLogIgnored);
    assert!(!found.is_empty(), "a disk that does not sync is not noticed");
    let synced = ops.iter().filter(|op| matches!(op, Op::Sync(_))).count();
    let stored = read::query(&root.join("state"), &Query { limit: Some(1), ..Query::default() }).unwrap();
    say(&format!(
        "crashes: {} operations with {synced} syncs, {rows} rows acknowledged, last row {}, {states} states, {} bad, {:.0} s",
        ops.len(),
        stored[0].seq.0,
        bad.len(),
        begun.elapsed().as_secs_f64()
    ));
    assert!(bad.is_empty(), "{} bad, the first: {:#?}", bad.len(), &bad[..bad.len().min(5)]);
}

/// Whether the disk does what it is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Syncs {
    Kept,
    OfTheLogIgnored,
}

/// Plays the recording and judges what a crash leaves after each operation; how many states that were, and which of
/// them were bad. A lying disk is left at its first bad state.
fn replay(ops: &[Op], root: &Path, syncs: Syncs) -> (usize, Vec<String>) {
    let acks = root.join("acks");
    let (mut disk, mut acknowledged, mut random) = (Disk::default(), BTreeMap::new(), fastrand::Rng::with_seed(11));
    let (mut states, mut bad) = (0, Vec::new());
    for (at, op) in ops.iter().enumerate() {
        if let Op::Write(path, _, data) = op
            && *path == acks
        {
            let told = std::str::from_utf8(data).unwrap().lines().filter_map(ack);
            acknowledged.extend(told.map(|(seq, n, _)| (seq, n)));
            continue;
        }
        let of_the_log = matches!(op, Op::Sync(path) if path.to_string_lossy().ends_with("-wal"));
        if of_the_log && syncs == Syncs::OfTheLogIgnored {
            continue;
        }
        disk.play(op);
        for luck in if syncs == Syncs::Kept { vec![0.0, 0.5, 1.0] } else { vec![0.0] } {
            let left = tempfile::tempdir_in("/dev/shm").unwrap();
            for (path, bytes) in disk.crash(luck, &mut random) {
                let to = left.path().join(path.strip_prefix(root).unwrap());
                fs::create_dir_all(to.parent().unwrap()).unwrap();
                fs::write(to, bytes).unwrap();
            }
            states += 1;
            if let Err(why) = judge(&left.path().join("state"), &acknowledged) {
                bad.push(format!("after operation {at} ({}) with luck {luck}: {why}", kind_of(op)));
                if syncs == Syncs::OfTheLogIgnored {
                    return (states, bad);
                }
            }
        }
    }
    (states, bad)
}

fn kind_of(op: &Op) -> String {
    match op {
        Op::Write(path, at, data) => format!("write {} at {at}, {} bytes", path.display(), data.len()),
        Op::Create(path) | Op::Sync(path) | Op::Unlink(path) | Op::Mkdir(path) | Op::Truncate(path, _) => {
            format!("{} {}", if matches!(op, Op::Sync(_)) { "sync" } else { "name" }, path.display())
        }
        Op::Rename(from, to) => format!("rename {} {}", from.display(), to.display()),
    }
}

//! What happens to the disk, and what the log does about it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use interlock::record::{Row, TimeQuality, kind};
use interlock::store::checkpoint;
use interlock::store::error::Fault;
use interlock::store::export::{Format, export};
use interlock::store::queue::{Acks, Entry, Health, NotWritten, Writer};
use interlock::store::read::{self, Query};
use interlock::store::verify::{Elsewhere, Verdict, verify, verify_against};
use interlock::store::{Limits, Settings, Standing, Store};
use interlock_domain::id::Seq;
use rusqlite::Connection;

use super::{call, check, clock, copy, first_segment, log_of, open, rewrite_suffix, row, settings, wait_for};
use crate::skipped;

/// Set for the process whose sync fails.
const CHILD: &str = "INTERLOCK_TEST_FSYNC_CHILD";

fn small(state: &Path) -> Settings {
    let limits = Limits { segment_len_max: 40_000, log_len_max: 150_000, reserve_len: 64 * 1024, ..Limits::default() };
    Settings { limits, ..settings(state) }
}

fn rows_of(state: &Path, kind: &str) -> Vec<interlock::record::Recorded> {
    read::query(state, &Query { kind: Some(kind.to_owned()), limit: Some(10_000), ..Query::default() }).unwrap()
}

fn detail(recorded: &interlock::record::Recorded) -> serde_json::Value {
    serde_json::from_str(recorded.row.detail.as_deref().unwrap()).unwrap()
}

/// A small file system of its own; unmounted when it goes.
struct Mounted(tempfile::TempDir);

impl Mounted {
    fn new(test: &str, size: &str) -> Option<Mounted> {
        let dir = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "interlock-test"])
            .arg(dir.path())
            .stderr(Stdio::null())
            .status();
        if !mounted.is_ok_and(|status| status.success()) {
            skipped(test, "a file system can only be mounted by root");
            return None;
        }
        Some(Mounted(dir))
    }

    fn remount(&self, how: &str) {
        let done = Command::new("mount").args(["-o", &format!("remount,{how}")]).arg(self.0.path()).status().unwrap();
        assert!(done.success(), "remount {how}");
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[track_caller]
fn wait_for_health(writer: &Writer, health: Health) -> Acks {
    wait_for(writer, |acks| acks.health == health)
}

#[test]
fn a_full_disk_is_told_and_what_did_not_fit_is_counted() {
    let Some(disk) = Mounted::new("a_full_disk_is_told_and_what_did_not_fit_is_counted", "4m") else { return };
    let state = disk.0.path().join("state");
    let limits = Limits { reserve_len: 256 * 1024, ..Limits::default() };
    let store = Store::open(&Settings { limits, ..settings(&state) }).unwrap().store;
    let writer = store.writer();
    writer.append_durable(row("before")).unwrap();
    // The reserve is there once the writer has turned; now everything else is taken.
    let ballast = disk.0.path().join("ballast");
    fs::write(&ballast, vec![1; 8 * 1024 * 1024]).unwrap_err();
    let large = row(&"x".repeat(2_000));
    let mut refused = 0;
    let mut acks = writer.acks();
    while acks.borrow_and_update().health == Health::Writing {
        refused += u64::from(writer.append(Entry::relaxed(large.clone())).is_err());
        std::thread::yield_now();
    }
    assert_eq!(acks.borrow().health, Health::Degraded(Fault::DiskFull));
    // Far more than the memory keeps.
    let mut taken = 0;
    for _ in 0..30_000 {
        while writer.append(Entry::relaxed(large.clone())).is_err() {
            std::thread::yield_now();
        }
        taken += 1;
    }
    assert_eq!(writer.append_durable(row("urgent")), Err(NotWritten::Kept(Fault::DiskFull)));
    let dropped = writer.acks().borrow().dropped;
    assert!(dropped > 1_000 && dropped < taken, "{dropped} of {taken} dropped, {refused} refused");
    assert_eq!(rows_of(&state, kind::DISK_FULL).len(), 1);
    // Space returns, as much as the kept rows need.
    fs::remove_file(&ballast).unwrap();
    disk.remount("size=64m");
    wait_for_health(&writer, Health::Writing);
    let after = writer.append_durable(row("after")).unwrap();
    store.close();
    let gap = detail(&rows_of(&state, kind::GAP)[0]);
    assert_eq!(gap["dropped"].as_u64(), Some(dropped));
    assert_eq!(rows_of(&state, kind::EVIDENCE_RECOVERED)[0].row.cause.as_deref(), Some("disk_full"));
    let urgent = read::query(&state, &Query { text: Some("urgent".into()), ..Query::default() }).unwrap();
    assert_eq!(urgent.len(), 1);
    check(&state, (Verdict::Intact, None, 0));
    assert!(read::show(&state, after).unwrap().is_some());
}

#[test]
fn a_start_on_a_read_only_disk_keeps_its_rows_until_it_can_write() {
    let test = "a_start_on_a_read_only_disk_keeps_its_rows_until_it_can_write";
    let Some(disk) = Mounted::new(test, "16m") else { return };
    let state = disk.0.path().join("state");
    open(&state).store.close();
    disk.remount("ro");
    let opened = open(&state);
    assert!(matches!(opened.standing, Standing::Unreachable { .. }), "{:?}", opened.standing);
    let writer = opened.store.writer();
    writer.append(Entry::urgent(row("kept"))).unwrap();
    assert!(matches!(writer.append_durable(row("kept too")), Err(NotWritten::Kept(_))));
    // Reading works all the same.
    assert_eq!(read::tail(&state, 10).unwrap().len(), 1);
    check(&state, (Verdict::Intact, None, 0));
    disk.remount("rw");
    wait_for_health(&writer, Health::Writing);
    let last = writer.append_durable(row("written")).unwrap();
    opened.store.close();
    let kinds: Vec<String> = read::tail(&state, 10).unwrap().iter().map(|row| row.row.kind.to_string()).collect();
    assert_eq!(kinds, ["boot", "boot", "note", "note", "evidence_recovered", "note"]);
    assert_eq!(last, Seq(6));
    check(&state, (Verdict::Intact, None, 0));
}

/// Not a test: what the next one runs with a library that makes one sync fail.
#[test]
fn child_whose_sync_fails() {
    let Some(state) = std::env::var_os(CHILD) else { return };
    let state = Path::new(&state);
    let store = open(state).store;
    let writer = store.writer();
    for n in 0..200 {
        if n == 100 {
            fs::write(std::env::var_os("FSYNC_FAILS_AFTER").unwrap(), "").unwrap();
        }
        let told = writer.append_durable(row(&format!("durable {n}")));
        #[expect(clippy::print_stdout, reason = "this is how the parent learns what was acknowledged")]
        match told {
            Ok(seq) => println!("\nACK {} {n}", seq.0),
            Err(why) => println!("\nNOT {n} {why}"),
        }
    }
    wait_for_health(&writer, Health::Writing);
    assert_eq!(store.close().unwritten, 0);
}

#[test]
fn after_a_failed_sync_nothing_acknowledged_is_lost_and_nothing_is_written_twice() {
    let dir = tempfile::tempdir().unwrap();
    let library = dir.path().join("fsync_fails_once.so");
    let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/it/evidence/fsync_fails_once.c");
    let built = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(source).arg("-ldl").status();
    if !built.is_ok_and(|status| status.success()) {
        skipped("after_a_failed_sync_nothing_acknowledged_is_lost_and_nothing_is_written_twice", "no C compiler");
        return;
    }
    let state = dir.path().join("state");
    let trigger = dir.path().join("fail");
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "evidence::faults::child_whose_sync_fails", "--nocapture", "--test-threads=1"])
        .env(CHILD, &state)
        .env("LD_PRELOAD", &library)
        .env("FSYNC_FAILS_AFTER", &trigger)
        .stderr(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "the child ended with {}", output.status);
    assert!(!trigger.exists(), "no sync failed");
    let told = String::from_utf8(output.stdout).unwrap();
    let refused: Vec<&str> = told.lines().filter(|line| line.starts_with("NOT")).collect();
    assert_eq!(refused, ["NOT 100 the evidence log takes no rows: the disk reported an error"]);
    check(&state, (Verdict::Intact, None, 0));
    assert_eq!(rows_of(&state, kind::EVIDENCE_RECOVERED)[0].row.cause.as_deref(), Some("io_error"));
    // Every row is there once, in order: also the one whose commit was not told.
    let texts: Vec<String> = rows_of(&state, "note").iter().map(|row| detail(row)["text"].to_string()).collect();
    let expected: Vec<String> = (0..200).map(|n| format!("\"durable {n}\"")).collect();
    assert_eq!(texts, expected);
    for line in told.lines().filter_map(|line| line.strip_prefix("ACK ")) {
        let (seq, n) = line.split_once(' ').unwrap();
        let there = read::show(&state, Seq(seq.parse().unwrap())).unwrap().unwrap();
        assert_eq!(detail(&there)["text"], format!("durable {n}"));
    }
}

#[test]
fn a_damaged_segment_is_moved_aside_and_the_log_goes_on() {
    let state = log_of(200);
    let segment = first_segment(state.path());
    let mut bytes = fs::read(&segment).unwrap();
    let len = bytes.len();
    bytes[8192..len - 4096].fill(0xa5);
    fs::write(&segment, &bytes).unwrap();
    let opened = open(state.path());
    assert_eq!(opened.standing, Standing::Quarantined { first: Seq(1) });
    // No number is used twice.
    let next = opened.store.writer().append_durable(row("after")).unwrap();
    assert_eq!(next, Seq(201 + 3));
    opened.store.close();
    let first = read::query(state.path(), &Query { after: Some(Seq(0)), limit: Some(1), ..Query::default() }).unwrap();
    assert_eq!(first[0].row.kind, kind::QUARANTINED);
    assert_eq!(detail(&first[0])["head"]["seq"], 201);
    let moved = state.path().join("evidence/quarantine").join(detail(&first[0])["file"].as_str().unwrap());
    assert_eq!(fs::read(moved).unwrap(), bytes);
    // Rows are missing, and that stays so.
    assert_eq!(verify(state.path()).unwrap().verdict, Verdict::Altered);
    open(state.path()).store.close();
    assert_eq!(verify(state.path()).unwrap().verdict, Verdict::Altered);
}

/// Whatever is found where the newest segment, the head or the checkpoints should be: the log goes on, and nothing of
/// what was there is deleted.
#[test]
fn whatever_stands_in_the_place_of_a_file_of_the_log_it_goes_on() {
    type Put = fn(&Path);
    let foreign: Put = |path| Connection::open(path).unwrap().execute_batch("CREATE TABLE t (a); VACUUM").unwrap();
    let things: [(&str, Put); 4] = [
        ("no length", |path| fs::write(path, "").unwrap()),
        ("garbage", |path| fs::write(path, [0xa5; 30_000]).unwrap()),
        ("a directory", |path| fs::create_dir(path).unwrap()),
        ("a foreign database", foreign),
    ];
    for (thing, put) in things {
        let state = log_of(20);
        let segment = first_segment(state.path());
        fs::remove_file(&segment).unwrap();
        put(&segment);
        let opened = open(state.path());
        assert_eq!(opened.standing, Standing::Quarantined { first: Seq(1) }, "{thing}");
        let next = opened.store.writer().append_durable(row("after")).unwrap();
        assert!(next > Seq(21), "{thing}: number {} was given again", next.0);
        opened.store.close();
        assert_eq!(verify(state.path()).unwrap().verdict, Verdict::Altered, "{thing}");
        let kept = fs::read_dir(state.path().join("evidence/quarantine")).unwrap();
        assert!(kept.count() > 0, "{thing} was deleted");
    }
    for (file, found) in [("head", Standing::HeadMissing), ("checkpoints", Standing::Whole { beyond: 0 })] {
        let state = log_of(20);
        fs::remove_file(state.path().join("evidence").join(file)).unwrap();
        fs::create_dir(state.path().join("evidence").join(file)).unwrap();
        let opened = open(state.path());
        assert_eq!(opened.standing, found, "{file}");
        opened.store.writer().append_durable(row("after")).unwrap();
        opened.store.close();
        assert_eq!(fs::read_dir(state.path().join("evidence/quarantine")).unwrap().count(), 1, "{file}");
    }
    // A name that no segment can have is somebody else's file.
    let state = log_of(20);
    for name in ["18446744073709551615.db", "0007.db", "notes.db"] {
        fs::write(state.path().join("evidence").join(name), "").unwrap();
    }
    let opened = open(state.path());
    assert_eq!(opened.standing, Standing::Whole { beyond: 0 });
    opened.store.close();
    check(state.path(), (Verdict::Intact, None, 0));
}

#[test]
fn the_oldest_segments_go_and_what_is_open_is_carried_forward() {
    let state = tempfile::tempdir().unwrap();
    let opened = Store::open(&small(state.path())).unwrap();
    let writer = opened.store.writer();
    let intent = Row::new(clock(), "intent").of_call(call(1)).detailed(&serde_json::json!({ "op": "start 二号泵" }));
    let intent_seq = writer.append_durable(intent.clone()).unwrap();
    for n in 0..3_000 {
        writer.append_durable(row(&n.to_string())).unwrap();
        if n == 1_500 {
            writer.append(Entry::relaxed(Row::new(clock(), "started").of_call(call(1)))).unwrap();
        }
    }
    opened.store.close();
    let segments = interlock::store::segment::list(&state.path().join("evidence")).unwrap();
    assert!(segments[0] > Seq(1_000), "{segments:?}");
    let bytes = read::stats(state.path()).unwrap().bytes;
    assert!(bytes < 250_000, "{bytes} bytes");
    assert!(rows_of(state.path(), kind::CARRIED).len() >= 2);
    check(state.path(), (Verdict::Intact, None, 0));
    // The rows themselves are given to repair, not the copies.
    let opened = Store::open(&small(state.path())).unwrap();
    let kinds: Vec<&str> = opened.open_calls.iter().map(|open| open.row.kind.as_ref()).collect();
    assert_eq!(kinds, ["intent", "started"]);
    assert_eq!((opened.open_calls[0].seq, &opened.open_calls[0].row), (intent_seq, &intent));
    opened.store.writer().append_durable(Row::new(clock(), kind::SETTLED).of_call(call(1))).unwrap();
    opened.store.close();
    assert_eq!(Store::open(&small(state.path())).unwrap().open_calls, []);
    check(state.path(), (Verdict::Intact, None, 0));
    // One more segment gone than the log says.
    let oldest = interlock::store::segment::list(&state.path().join("evidence")).unwrap()[0];
    fs::remove_file(state.path().join(format!("evidence/{}.db", oldest.0))).unwrap();
    assert_eq!(verify(state.path()).unwrap().verdict, Verdict::Altered);
}

#[test]
fn checkpoints_anchor_a_log_whose_head_is_gone() {
    let state = log_of(300);
    let head = state.path().join("evidence/head");
    let key = interlock::store::keys::public_of_state(state.path()).unwrap().unwrap();
    let (checkpoints, unsigned) = checkpoint::read(&state.path().join("evidence"), &key).unwrap();
    // At rest, the last checkpoint is over all rows.
    assert_eq!((checkpoints.last_key_value().map(|(size, _)| *size), unsigned), (Some(301), 0));
    let whole = copy(state.path());
    fs::remove_file(&head).unwrap();
    let found = check(state.path(), (Verdict::Unanchored, None, 0));
    assert_eq!(found.anchored_to, Some(Seq(301)));
    // The end cut off, with the head gone.
    let cut = copy(state.path());
    Connection::open(first_segment(cut.path())).unwrap().execute("DELETE FROM evidence WHERE seq > 250", []).unwrap();
    check(cut.path(), (Verdict::TailLost, None, 51));
    // The end rewritten, with the head gone.
    let rewritten = copy(state.path());
    rewrite_suffix(rewritten.path(), 30);
    assert_eq!(verify(rewritten.path()).unwrap().verdict, Verdict::Altered);
    // Whoever has the key can sign all of it anew: only what left the machine tells.
    let exported = fs::read_to_string(checkpoint::path(&whole.path().join("evidence"))).unwrap();
    fs::remove_file(checkpoint::path(&rewritten.path().join("evidence"))).unwrap();
    open(rewritten.path()).store.close();
    check(rewritten.path(), (Verdict::Intact, None, 0));
    let exported = Elsewhere { checkpoints: exported, ..Elsewhere::default() };
    let found = verify_against(rewritten.path(), &exported).unwrap();
    assert_eq!(found.verdict, Verdict::Altered, "{found:?}");
    assert_eq!(verify_against(whole.path(), &exported).unwrap().verdict, Verdict::Intact);
}

#[test]
fn a_head_that_left_the_machine_tells_what_the_machine_says_no_more() {
    let state = log_of(300);
    let key = interlock::store::keys::public_of_state(state.path()).unwrap().unwrap();
    let carried = interlock::store::head::text(&state.path().join("evidence"), &key).unwrap().unwrap();
    let held = |state: &Path, heads: &str| {
        let elsewhere = Elsewhere { heads: heads.to_owned(), ..Elsewhere::default() };
        let found = verify_against(state, &elsewhere).unwrap();
        (found.verdict, found.lost)
    };
    assert_eq!(held(state.path(), &carried), (Verdict::Intact, 0));
    // Whoever has the key signs all of it anew, shorter or otherwise.
    let older = copy(state.path());
    for name in ["head", "checkpoints"] {
        fs::remove_file(older.path().join("evidence").join(name)).unwrap();
    }
    Connection::open(first_segment(older.path())).unwrap().execute("DELETE FROM evidence WHERE seq > 250", []).unwrap();
    open(older.path()).store.close();
    check(older.path(), (Verdict::Intact, None, 0));
    assert_ne!(held(older.path(), &carried).0, Verdict::Intact);
    let rewritten = copy(state.path());
    rewrite_suffix(rewritten.path(), 30);
    for name in ["head", "checkpoints"] {
        fs::remove_file(rewritten.path().join("evidence").join(name)).unwrap();
    }
    open(rewritten.path()).store.close();
    check(rewritten.path(), (Verdict::Intact, None, 0));
    assert_eq!(held(rewritten.path(), &carried).0, Verdict::Altered);
    // One of another log says nothing for this one.
    let other = log_of(3);
    let foreign = interlock::store::keys::public_of_state(other.path()).unwrap().unwrap();
    let foreign = interlock::store::head::text(&other.path().join("evidence"), &foreign).unwrap().unwrap();
    assert_eq!(held(state.path(), &foreign).0, Verdict::Unanchored);
}

#[test]
fn checkpoints_survive_segments_and_starts() {
    let state = tempfile::tempdir().unwrap();
    let settings = Settings {
        limits: Limits { segment_len_max: 40_000, log_len_max: u64::MAX, ..Limits::default() },
        ..settings(state.path())
    };
    for start in 0..3 {
        let store = Store::open(&settings).unwrap().store;
        for n in 0..400 {
            store.writer().append_durable(row(&format!("{start} {n}"))).unwrap();
        }
        store.close();
    }
    check(state.path(), (Verdict::Intact, None, 0));
    let key = interlock::store::keys::public_of_state(state.path()).unwrap().unwrap();
    let (checkpoints, _) = checkpoint::read(&state.path().join("evidence"), &key).unwrap();
    let firsts = interlock::store::segment::list(&state.path().join("evidence")).unwrap();
    for first in &firsts[1..] {
        assert!(checkpoints.contains_key(&(first.0 - 1)), "the segment before {} has no last checkpoint", first.0);
    }
}

#[test]
fn an_export_has_every_row_and_says_what_time_it_was() {
    let state = tempfile::tempdir().unwrap();
    let store = open(state.path()).store;
    let writer = store.writer();
    let mut early = row("booted in 1970, \"quoted\"");
    early.at.quality = TimeQuality::Unsynced;
    early.at.boottime_ns = 5_000_000_000;
    early.at.wall.0 = 5_000;
    writer.append(Entry::relaxed(early)).unwrap();
    let mut late = row("clock set");
    late.at.quality = TimeQuality::Synced;
    late.at.boottime_ns = 65_000_000_000;
    late.at.wall.0 = 1_764_500_060_000;
    writer.append_durable(late).unwrap();
    store.close();
    let mut out = Vec::new();
    assert_eq!(export(state.path(), &Query::default(), Format::JsonLines, &mut out).unwrap(), 3);
    let lines: Vec<serde_json::Value> =
        String::from_utf8(out).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[1]["time"], "1970-01-01T00:00:05.000Z");
    assert_eq!(lines[1]["time_reconstructed"], "2025-11-30T10:53:20.000Z");
    assert_eq!(lines[2]["time_reconstructed"], serde_json::Value::Null);
    let mut out = Vec::new();
    let query = Query { kind: Some("note".into()), limit: Some(1), ..Query::default() };
    assert_eq!(export(state.path(), &query, Format::Csv, &mut out).unwrap(), 1);
    let text = String::from_utf8(out).unwrap();
    let lines: Vec<&str> = text.split("\r\n").collect();
    assert!(lines[0].starts_with("seq,boot_id,mono_ns,"), "{}", lines[0]);
    assert!(lines[1].contains(r#""{""text"":""booted in 1970, \""quoted\""""}""#), "{}", lines[1]);
    assert!(lines[1].ends_with(",1970-01-01T00:00:05.000Z,2025-11-30T10:53:20.000Z"), "{}", lines[1]);
}

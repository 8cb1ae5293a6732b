//! The evidence log from outside: what is acknowledged stays, and what is changed shows.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use interlock::record::{Canonical, Recorded, Row, Stamp, TimeQuality, kind};
use interlock::store::chain::{Algorithm, START};
use interlock::store::error::{Fault, StoreError};
use interlock::store::queue::{Acks, Entry, Health, Receipt, Tell, Writer};
use interlock::store::read::{self, Query};
use interlock::store::verify::{Verdict, Verification, verify};
use interlock::store::{Limits, Opened, Settings, Standing, Store};
use interlock_domain::id::{CallId, Seq};
use interlock_domain::time::{Tick, Wall};
use rusqlite::Connection;

mod faults;
mod flips;
mod looks;
mod readers;
mod verb;

/// Nothing in here may take longer than this; whoever waits fails then.
const DEADLINE: Duration = Duration::from_secs(30);
/// Set for the process that the crash tests start: this binary again, which then only writes.
const CHILD: &str = "INTERLOCK_TEST_EVIDENCE_CHILD";

fn clock() -> Stamp {
    static NOW: AtomicU64 = AtomicU64::new(1);
    let now = NOW.fetch_add(1, Ordering::Relaxed);
    let wall = Wall(1_764_500_000_000 + i64::try_from(now).unwrap());
    Stamp { mono: Tick(now), boottime_ns: now, wall, quality: TimeQuality::Unknown }
}

fn settings(state: &Path) -> Settings {
    Settings {
        state: state.to_owned(),
        boot_id: "0b5c9f4e-8f5e-4f0e-9d55-2f6a2f1f7b11".to_owned(),
        version: "0.1.0".to_owned(),
        clock,
        limits: Limits::default(),
        algorithm: Algorithm::default(),
    }
}

fn open(state: &Path) -> Opened {
    Store::open(&settings(state)).unwrap()
}

fn row(text: &str) -> Row {
    Row::new(clock(), "note").detailed(&serde_json::json!({ "text": text }))
}

fn call(position: u32) -> CallId {
    format!("01KBA6AK800000000000000007.3.{position}").parse().unwrap()
}

/// A log of `rows` rows besides its boot row, at rest.
fn log_of(rows: usize) -> tempfile::TempDir {
    let state = tempfile::tempdir().unwrap();
    let store = open(state.path()).store;
    let writer = store.writer();
    for n in 0..rows {
        writer.append(Entry::relaxed(row(&format!("row {n}")))).unwrap();
    }
    assert_eq!(store.close().unwritten, 0);
    state
}

fn copy(from: &Path) -> tempfile::TempDir {
    let to = tempfile::tempdir().unwrap();
    copy_into(from, to.path());
    to
}

fn copy_into(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            fs::create_dir(&target).unwrap();
            copy_into(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), &target).unwrap();
        }
    }
}

fn first_segment(state: &Path) -> PathBuf {
    state.join("evidence/1.db")
}

#[track_caller]
fn wait_for(writer: &Writer, reached: impl Fn(&Acks) -> bool) -> Acks {
    let mut acks = writer.acks();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let told = runtime.block_on(async { tokio::time::timeout(DEADLINE, acks.wait_for(|acks| reached(acks))).await });
    *told.expect("the writer says nothing").unwrap()
}

#[track_caller]
fn check(state: &Path, expected: (Verdict, Option<u64>, u64)) -> Verification {
    let found = verify(state).unwrap();
    assert_eq!((found.verdict, found.first_bad.map(|seq| seq.0), found.lost), expected, "{found:?}");
    found
}

#[test]
fn rows_come_back_in_order_and_the_next_start_goes_on() {
    let state = log_of(100);
    let rows = read::tail(state.path(), 1000).unwrap();
    assert_eq!(rows.iter().map(|row| row.seq.0).collect::<Vec<_>>(), (1..=101).collect::<Vec<_>>());
    assert_eq!(rows[0].row.kind, kind::BOOT);
    assert_eq!(rows[100].row.detail.as_deref(), Some(r#"{"text":"row 99"}"#));
    let opened = open(state.path());
    assert_eq!(opened.standing, Standing::Whole { beyond: 0 });
    assert_eq!(opened.previous_head.unwrap().seq, Seq(101));
    assert_eq!(opened.store.writer().append_durable(row("more")), Ok(Seq(103)));
    let while_open = check(state.path(), (Verdict::Intact, None, 0));
    assert_eq!((while_open.rows, while_open.anchored_to), (103, Some(Seq(103))));
    opened.store.close();
    check(state.path(), (Verdict::Intact, None, 0));
    check(&state.path().join("evidence"), (Verdict::Intact, None, 0));
    check(&first_segment(state.path()), (Verdict::Intact, None, 0));
}

#[test]
fn the_hash_is_the_one_that_the_contract_defines() {
    let state = log_of(3);
    let mut previous = START;
    let mut canonical = Canonical::default();
    for recorded in read::tail(state.path(), 10).unwrap() {
        canonical.write(recorded.seq, &recorded.boot_id, &recorded.row);
        previous = Algorithm::Sha256.row(&previous, canonical.bytes());
        assert_eq!(recorded.hash, previous, "row {}", recorded.seq.0);
    }
}

#[test]
fn tickets_are_told_in_order_and_receipts_name_the_row() {
    let state = tempfile::tempdir().unwrap();
    let store = open(state.path()).store;
    let writer = store.writer();
    let receipt = Receipt::default();
    for ticket in 1..=100 {
        let receipt = (ticket == 60).then(|| receipt.clone());
        writer.append(Entry { row: row("mine"), now: ticket == 100, tell: Tell::Ticket(ticket), receipt }).unwrap();
        writer.append(Entry::relaxed(row("another's"))).unwrap();
    }
    let acks = wait_for(&writer, |acks| acks.ticket == 100);
    assert_eq!((acks.failures, acks.health), (0, Health::Writing));
    let seq = receipt.seq().unwrap();
    assert_eq!(seq, Seq(1 + 119));
    assert_eq!(read::show(state.path(), seq).unwrap().unwrap().seq, seq);
}

#[test]
fn a_row_that_may_wait_is_written_all_the_same() {
    let state = tempfile::tempdir().unwrap();
    let store = open(state.path()).store;
    let writer = store.writer();
    writer.append(Entry::relaxed(row("alone"))).unwrap();
    wait_for(&writer, |acks| acks.seq == Seq(2));
}

#[test]
fn a_full_queue_gives_the_row_back_and_counts_it_on_request() {
    let state = tempfile::tempdir().unwrap();
    let store = open(state.path()).store;
    let writer = store.writer();
    let large = row(&"x".repeat(60_000));
    let mut refused = 0;
    // Faster than any disk: 60 MB without a pause.
    for _ in 0..1_000 {
        if writer.append(Entry::relaxed(large.clone())).is_err() {
            writer.append_or_count(Entry::relaxed(large.clone()));
            refused += 1;
        }
    }
    if refused == 0 {
        return;
    }
    store.close();
    let gaps = read::query(state.path(), &Query { kind: Some("gap".to_owned()), ..Query::default() }).unwrap();
    let counted: u64 = gaps
        .iter()
        .map(|gap| serde_json::from_str::<serde_json::Value>(gap.row.detail.as_ref().unwrap()).unwrap())
        .map(|detail| detail["queue_full"].as_u64().unwrap())
        .sum();
    assert!(counted <= refused, "{counted} of {refused}");
    check(state.path(), (Verdict::Intact, None, 0));
}

#[test]
fn calls_without_a_settlement_are_given_to_repair() {
    let state = tempfile::tempdir().unwrap();
    let opened = open(state.path());
    assert_eq!(opened.open_calls, []);
    let writer = opened.store.writer();
    for (kind, position) in
        [("requested", 0), ("requested", 1), ("intent", 1), ("settled", 0), ("resolved", 0), ("requested", 2)]
    {
        writer.append(Entry::relaxed(Row::new(clock(), kind).of_call(call(position)))).unwrap();
    }
    opened.store.close();
    let kinds = |opened: &Opened| -> Vec<(String, u32)> {
        let kind = |open: &Recorded| (open.row.kind.to_string(), open.row.call.unwrap().position);
        opened.open_calls.iter().map(kind).collect()
    };
    let expected = [("requested".to_owned(), 1), ("intent".to_owned(), 1), ("requested".to_owned(), 2)];
    let opened = open(state.path());
    assert_eq!(kinds(&opened), expected);
    // Still open after two starts that wrote nothing about them, and after enough rows for a mark.
    let writer = opened.store.writer();
    for n in 0..10_000 {
        while writer.append(Entry::relaxed(row(&n.to_string()))).is_err() {
            std::thread::yield_now();
        }
    }
    writer.append(Entry::relaxed(Row::new(clock(), kind::SETTLED).of_call(call(1)))).unwrap();
    opened.store.close();
    assert_eq!(kinds(&open(state.path())), expected[2..]);
    check(state.path(), (Verdict::Intact, None, 0));
}

#[test]
fn a_log_goes_on_over_segments() {
    let state = tempfile::tempdir().unwrap();
    let settings =
        Settings { limits: Limits { segment_len_max: 40_000, ..Limits::default() }, ..settings(state.path()) };
    let mut rows = 0;
    for start in 0..3 {
        let opened = Store::open(&settings).unwrap();
        assert_eq!(opened.open_calls.len(), start.min(1), "start {start}");
        let writer = opened.store.writer();
        if start == 0 {
            writer.append(Entry::relaxed(Row::new(clock(), "requested").of_call(call(7)))).unwrap();
        }
        for n in 0..300 {
            rows = writer.append_durable(row(&n.to_string())).unwrap().0;
        }
        opened.store.close();
    }
    let segments = read::stats(state.path()).unwrap().segments;
    assert!(segments > 4, "{segments} segments");
    let found = check(state.path(), (Verdict::Intact, None, 0));
    assert_eq!((found.rows, found.anchored_to), (rows, Some(Seq(rows))));
    let all = read::query(state.path(), &Query { limit: Some(2_000), ..Query::default() }).unwrap();
    assert_eq!(all.iter().map(|row| row.seq.0).collect::<Vec<_>>(), (1..=rows).collect::<Vec<_>>());
    let page = read::query(state.path(), &Query { after: Some(Seq(150)), limit: Some(200), ..Query::default() });
    assert_eq!(page.unwrap().iter().map(|row| row.seq.0).collect::<Vec<_>>(), (151..=350).collect::<Vec<_>>());
    // A segment taken out of the middle.
    let firsts = interlock::store::segment::list(&state.path().join("evidence")).unwrap();
    let gone = firsts[2];
    fs::remove_file(state.path().join(format!("evidence/{}.db", gone.0))).unwrap();
    check(state.path(), (Verdict::Altered, Some(gone.0), 0));
}

#[test]
fn the_first_segment_cannot_go_without_a_word() {
    let state = tempfile::tempdir().unwrap();
    let settings =
        Settings { limits: Limits { segment_len_max: 40_000, ..Limits::default() }, ..settings(state.path()) };
    let store = Store::open(&settings).unwrap().store;
    for n in 0..300 {
        store.writer().append_durable(row(&n.to_string())).unwrap();
    }
    store.close();
    fs::remove_file(first_segment(state.path())).unwrap();
    check(state.path(), (Verdict::Altered, Some(1), 0));
}

#[test]
fn a_second_daemon_is_refused_and_told_who_has_the_log() {
    let state = tempfile::tempdir().unwrap();
    let first = open(state.path());
    let refused = Store::open(&settings(state.path())).unwrap_err();
    assert!(matches!(refused, StoreError::InUse { pid: Some(pid), .. } if pid == std::process::id()), "{refused}");
    first.store.close();
    open(state.path());
}

#[test]
fn reading_leaves_a_copy_as_it_was() {
    let state = tempfile::tempdir().unwrap();
    let store = open(state.path()).store;
    for n in 0..100 {
        store.writer().append_durable(row(&n.to_string())).unwrap();
    }
    // Copied while it is open: the rows are in the write-ahead log.
    let cold = copy(state.path());
    fs::remove_file(cold.path().join("evidence/1.db-shm")).unwrap();
    assert!(fs::metadata(cold.path().join("evidence/1.db-wal")).unwrap().len() > 10_000);
    let listing = |dir: &Path| -> BTreeSet<(PathBuf, Vec<u8>)> {
        let read = |entry: fs::DirEntry| (entry.path(), fs::read(entry.path()).unwrap());
        fs::read_dir(dir.join("evidence")).unwrap().map(|entry| read(entry.unwrap())).collect()
    };
    let before = listing(cold.path());
    check(cold.path(), (Verdict::Intact, None, 0));
    assert_eq!(read::tail(cold.path(), 1000).unwrap().len(), 101);
    assert_eq!(read::stats(cold.path()).unwrap().rows, 101);
    assert_eq!(listing(cold.path()), before);
}

#[test]
fn a_query_finds_what_fits_and_nothing_else() {
    let state = tempfile::tempdir().unwrap();
    let store = open(state.path()).store;
    let writer = store.writer();
    writer.append(Entry::relaxed(Row::new(clock(), "requested").of_call(call(1)))).unwrap();
    writer.append(Entry::relaxed(row("pump-2 starts"))).unwrap();
    writer.append(Entry::relaxed(Row { cause: Some("LIVELOCK".into()), ..row("t4") })).unwrap();
    let last = writer.append_durable(Row::new(clock(), kind::SETTLED).of_call(call(1))).unwrap();
    let seqs =
        |query: Query| -> Vec<u64> { read::query(state.path(), &query).unwrap().iter().map(|row| row.seq.0).collect() };
    assert_eq!(seqs(Query { call: Some(call(1)), ..Query::default() }), [2, 5]);
    assert_eq!(seqs(Query { run: Some(call(1).run), limit: Some(1), ..Query::default() }), [5]);
    assert_eq!(seqs(Query { kind: Some("note".into()), ..Query::default() }), [3, 4]);
    assert_eq!(seqs(Query { text: Some("pump-2".into()), ..Query::default() }), [3]);
    assert_eq!(seqs(Query { text: Some("LIVELOCK".into()), ..Query::default() }), [4]);
    assert_eq!(seqs(Query { text: Some("'; DROP TABLE evidence; --".into()), ..Query::default() }), Vec::<u64>::new());
    let wall = read::show(state.path(), last).unwrap().unwrap().row.at.wall;
    assert_eq!(seqs(Query { since: Some(wall), ..Query::default() }), [5]);
    assert_eq!(seqs(Query { until: Some(Wall(wall.0 - 1)), after: Some(Seq(3)), ..Query::default() }), [4]);
}

#[test]
fn where_there_is_no_log_the_path_is_named() {
    let empty = tempfile::tempdir().unwrap();
    let missing = empty.path().join("missing");
    assert!(matches!(verify(empty.path()), Err(StoreError::NoLog { .. })));
    let refused = read::tail(&missing, 1).unwrap_err();
    assert!(refused.to_string().starts_with(&missing.display().to_string()), "{refused}");
    assert!(refused.hint().is_some());
    let garbage = empty.path().join("1.db");
    fs::write(&garbage, "not a database, but long enough to be taken for one at first sight".repeat(20)).unwrap();
    assert!(matches!(read::tail(&garbage, 1), Err(StoreError::Sqlite { .. })));
    check(&garbage, (Verdict::Altered, Some(1), 0));
}

// --- Tampering ---

#[test]
fn lost_rows_show() {
    let state = log_of(50);
    // The last rows.
    let cut = copy(state.path());
    Connection::open(first_segment(cut.path())).unwrap().execute("DELETE FROM evidence WHERE seq > 40", []).unwrap();
    check(cut.path(), (Verdict::TailLost, None, 11));
    // All rows, with the file.
    let gone = copy(state.path());
    fs::remove_file(first_segment(gone.path())).unwrap();
    check(gone.path(), (Verdict::TailLost, None, 51));
    // A row in the middle.
    let holed = copy(state.path());
    Connection::open(first_segment(holed.path())).unwrap().execute("DELETE FROM evidence WHERE seq = 7", []).unwrap();
    check(holed.path(), (Verdict::Altered, Some(7), 0));
    // The head.
    let unanchored = copy(state.path());
    fs::remove_file(unanchored.path().join("evidence/head")).unwrap();
    let found = check(unanchored.path(), (Verdict::Unanchored, None, 0));
    // The last checkpoint still holds the rows up to it.
    assert_eq!((found.rows, found.anchored_to), (51, Some(Seq(51))));
}

#[test]
fn lost_rows_still_show_after_the_next_start() {
    let state = log_of(50);
    let cut = copy(state.path());
    Connection::open(first_segment(cut.path())).unwrap().execute("DELETE FROM evidence WHERE seq > 40", []).unwrap();
    let opened = open(cut.path());
    assert_eq!(opened.standing, Standing::TailLost { lost: 11 });
    // Numbers of lost rows are not given again.
    assert_eq!(opened.store.writer().append_durable(row("after")), Ok(Seq(53)));
    opened.store.close();
    check(cut.path(), (Verdict::TailLost, None, 11));
    open(cut.path()).store.close();
    check(cut.path(), (Verdict::TailLost, None, 11));

    let gone = copy(state.path());
    fs::remove_file(first_segment(gone.path())).unwrap();
    let opened = open(gone.path());
    assert_eq!(opened.standing, Standing::TailLost { lost: 51 });
    opened.store.close();
    check(gone.path(), (Verdict::TailLost, None, 51));
}

#[test]
fn a_lost_segment_at_the_end_still_shows_after_the_next_start() {
    let state = tempfile::tempdir().unwrap();
    let settings =
        Settings { limits: Limits { segment_len_max: 40_000, ..Limits::default() }, ..settings(state.path()) };
    let store = Store::open(&settings).unwrap().store;
    let mut last = 0;
    for n in 0..300 {
        last = store.writer().append_durable(row(&n.to_string())).unwrap().0;
    }
    store.close();
    let firsts = interlock::store::segment::list(&state.path().join("evidence")).unwrap();
    let gone = firsts.last().unwrap().0;
    fs::remove_file(state.path().join(format!("evidence/{gone}.db"))).unwrap();
    let lost = last - gone + 1;
    check(state.path(), (Verdict::TailLost, None, lost));
    let opened = Store::open(&settings).unwrap();
    assert_eq!(opened.standing, Standing::TailLost { lost });
    opened.store.close();
    check(state.path(), (Verdict::TailLost, None, lost));
}

/// Writes rows `from..` again with another text, with every hash right.
fn rewrite_suffix(state: &Path, from: u64) {
    let rows = read::tail(state, 10_000).unwrap();
    let connection = Connection::open(first_segment(state)).unwrap();
    let at = usize::try_from(from).unwrap() - 1;
    let mut previous = rows[at - 1].hash;
    let mut canonical = Canonical::default();
    for mut recorded in rows.into_iter().skip(at) {
        recorded.row.detail = Some(r#"{"text":"nothing happened"}"#.to_owned());
        canonical.write(recorded.seq, &recorded.boot_id, &recorded.row);
        previous = Algorithm::Sha256.row(&previous, canonical.bytes());
        connection
            .execute(
                "UPDATE evidence SET detail = ?, hash = ? WHERE seq = ?",
                rusqlite::params![recorded.row.detail, previous, recorded.seq.0.cast_signed()],
            )
            .unwrap();
    }
}

#[test]
fn a_rewritten_end_shows() {
    let state = log_of(50);
    rewrite_suffix(state.path(), 30);
    // Every row fits the row before it; the head does not.
    check(state.path(), (Verdict::Altered, Some(51), 0));
    let opened = open(state.path());
    assert_eq!(opened.standing, Standing::Altered { first_bad: Seq(51) });
    opened.store.close();
    check(state.path(), (Verdict::Altered, Some(51), 0));
}

#[test]
fn a_changed_row_is_named() {
    for (column, value) in [
        ("wall", "0"),
        ("kind", "'x'"),
        ("cause", "''"),
        ("detail", "NULL"),
        ("run", "'01KBA6AK800000000000000007'"),
        ("hash", "zeroblob(32)"),
        ("boot_id", "upper(boot_id)"),
    ] {
        let state = log_of(20);
        let change = format!("UPDATE evidence SET {column} = {value} WHERE seq = 9");
        Connection::open(first_segment(state.path())).unwrap().execute(&change, []).unwrap();
        let found = verify(state.path()).unwrap();
        assert_eq!((found.verdict, found.first_bad), (Verdict::Altered, Some(Seq(9))), "{column}");
        assert!(found.bad_count <= 2, "{column}: {found:?}");
    }
}

#[test]
fn a_damaged_head_is_not_taken_for_no_loss() {
    let state = tempfile::tempdir().unwrap();
    let store = open(state.path()).store;
    for n in 0..10 {
        store.writer().append_durable(row(&n.to_string())).unwrap();
    }
    store.close();
    let head = state.path().join("evidence/head");
    let whole = fs::read(&head).unwrap();
    // The head alone, without the checkpoints that would also tell.
    fs::remove_file(state.path().join("evidence/checkpoints")).unwrap();
    for slot in [0, 4096] {
        let mut damaged = whole.clone();
        damaged[slot + 30] ^= 1;
        fs::write(&head, &damaged).unwrap();
        let newest = slot == 0;
        let found = verify(state.path()).unwrap();
        // With the newer slot damaged, the log passes the older one, as after a power cut. With the older slot
        // damaged, whether more followed cannot be told.
        assert!(matches!(found.verdict, Verdict::Intact | Verdict::Unanchored), "{newest}: {found:?}");
        // The attack: the newest rows go, and so does the slot that knows them.
        let cut = copy(state.path());
        let anchored = found.anchored_to.unwrap().0;
        Connection::open(first_segment(cut.path()))
            .unwrap()
            .execute("DELETE FROM evidence WHERE seq > ?", [anchored.cast_signed()])
            .unwrap();
        assert_eq!(verify(cut.path()).unwrap().verdict, Verdict::Unanchored, "slot at {slot}");
    }
    fs::write(&head, vec![0; 8192]).unwrap();
    check(state.path(), (Verdict::Unanchored, None, 0));
}

// --- Faults ---

#[test]
fn a_second_locker_stalls_the_log_and_loses_nothing() {
    let state = tempfile::tempdir().unwrap();
    let store = open(state.path()).store;
    let writer = store.writer();
    let other = Connection::open(first_segment(state.path())).unwrap();
    other.execute_batch("BEGIN EXCLUSIVE").unwrap();
    for ticket in 1..=5 {
        writer.append(Entry { row: row("kept"), now: true, tell: Tell::Ticket(ticket), receipt: None }).unwrap();
    }
    let stalled = wait_for(&writer, |acks| acks.health == Health::Degraded(Fault::Locked));
    assert_eq!(stalled.ticket, 0);
    assert!(stalled.failures > 0);
    other.execute_batch("ROLLBACK").unwrap();
    let acks = wait_for(&writer, |acks| acks.ticket == 5 && acks.health == Health::Writing);
    assert_eq!(acks.dropped, 0);
    store.close();
    check(state.path(), (Verdict::Intact, None, 0));
    let told = read::query(state.path(), &Query { kind: Some("evidence_recovered".into()), ..Query::default() });
    assert_eq!(told.unwrap()[0].row.cause.as_deref(), Some("locked"));
}

// --- Crashes ---

/// Not a test: what the crash tests run in a process of its own. Writes until it is killed, and names each row that
/// was acknowledged.
#[test]
fn child_writer() {
    let Some(state) = std::env::var_os(CHILD) else { return };
    let opened = open(Path::new(&state));
    let writer = opened.store.writer();
    let mut n = 0;
    loop {
        n += 1;
        for _ in 0..n % 50 {
            while writer.append(Entry::relaxed(row("relaxed"))).is_err() {
                std::thread::yield_now();
            }
        }
        let seq = writer.append_durable(row(&format!("durable {n}"))).unwrap();
        #[expect(clippy::print_stdout, reason = "this is how the parent learns what was acknowledged")]
        {
            println!("ACK {} {n}", seq.0);
        }
    }
}

#[test]
fn kill_9_at_any_moment_loses_no_acknowledged_row() {
    let state = tempfile::tempdir().unwrap();
    let loops = if std::env::var_os("INTERLOCK_TEST_LONG").is_some() { 200 } else { 12 };
    let mut random = fastrand::Rng::with_seed(7);
    let mut acknowledged: Vec<(u64, u64)> = Vec::new();
    for start in 0..loops {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "evidence::child_writer", "--nocapture", "--test-threads=1"])
            .env(CHILD, state.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let kill_after = random.usize(1..60);
        let started = Instant::now();
        let mut seen = 0;
        let mut note = |line: &str| {
            let mut words = line.split(' ').skip_while(|word| !word.ends_with("ACK")).skip(1);
            if let (Some(Ok(seq)), Some(Ok(n))) = (words.next().map(str::parse), words.next().map(str::parse)) {
                acknowledged.push((seq, n));
                return true;
            }
            false
        };
        while seen < kill_after {
            assert!(started.elapsed() < DEADLINE, "start {start}: nothing is written");
            let line = lines.next().expect("the child ended by itself").unwrap();
            seen += usize::from(note(&line));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        lines.map_while(Result::ok).for_each(|line| {
            note(&line);
        });
    }
    let found = verify(state.path()).unwrap();
    assert_eq!(found.verdict, Verdict::Intact, "{found:?}");
    let last = acknowledged.last().unwrap().0;
    assert!(found.rows >= last, "{last} acknowledged, {} there", found.rows);
    for (seq, n) in acknowledged {
        let there = read::show(state.path(), Seq(seq)).unwrap().unwrap();
        assert_eq!(there.row.detail, row(&format!("durable {n}")).detail, "row {seq}");
    }
}

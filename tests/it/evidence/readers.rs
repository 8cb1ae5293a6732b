//! What others do to the log while it is written, and logs of another hash.

use std::fs;

use interlock::record::kind;
use interlock::store::chain::Algorithm;
use interlock::store::queue::{Entry, NotTaken};
use interlock::store::read::{self, Query};
use interlock::store::segment;
use interlock::store::verify::{Verdict, verify};
use interlock::store::{Settings, Store, WAL_LEN_WANTED, wal_len};
use interlock_domain::id::Seq;
use rusqlite::Connection;

use super::{check, first_segment, open, row, settings};

/// A reader that nobody limits, such as a tool of somebody else's: the rows go on in a segment of their own.
#[test]
fn a_pinned_reader_does_not_let_the_write_ahead_log_grow_without_bound() {
    let state = tempfile::tempdir().unwrap();
    let store = open(state.path()).store;
    let writer = store.writer();
    writer.append_durable(row("before")).unwrap();
    let reader = Connection::open(first_segment(state.path())).unwrap();
    reader.execute_batch("BEGIN").unwrap();
    let _: i64 = reader.query_row("SELECT count(*) FROM evidence", [], |row| row.get(0)).unwrap();
    let large = row(&"x".repeat(30_000));
    let mut longest = 0;
    for _ in 0..1_000 {
        writer.append_durable(large.clone()).unwrap();
        longest = longest.max(wal_len(state.path()));
    }
    // A group of 32 rows may pass the bound before it is looked at again.
    let bound = 2 * WAL_LEN_WANTED + 33 * 2 * 32_768;
    assert!(longest > 2 * WAL_LEN_WANTED && longest <= bound, "{longest} of {bound} bytes");
    let firsts = segment::list(&state.path().join("evidence")).unwrap();
    assert_eq!(firsts.len(), 2, "{firsts:?}");
    // What the reader began with, it still has.
    let seen: i64 = reader.query_row("SELECT count(*) FROM evidence", [], |row| row.get(0)).unwrap();
    assert_eq!(seen, 2);
    let told = read::query(state.path(), &Query { kind: Some(kind::WAL_LARGE.into()), ..Query::default() }).unwrap();
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].seq, Seq(firsts[1].0));
    check(state.path(), (Verdict::Intact, None, 0));
    drop(reader);
    store.close();
    // The next start brings in what was left.
    open(state.path()).store.close();
    assert_eq!(wal_len(state.path()), 0);
    check(state.path(), (Verdict::Intact, None, 0));
}

#[test]
fn fifty_thousand_rows_in_a_burst_are_all_there() {
    let state = tempfile::tempdir().unwrap();
    let store = open(state.path()).store;
    let writer = store.writer();
    for n in 0..50_000 {
        let mut entry = Entry::relaxed(row(&n.to_string()));
        while let Err(NotTaken { entry: back, .. }) = writer.append(entry) {
            entry = *back;
            std::thread::yield_now();
        }
    }
    assert_eq!(store.close().unwritten, 0);
    let found = verify(state.path()).unwrap();
    let kinds = read::stats(state.path()).unwrap().kinds.unwrap();
    assert_eq!((found.verdict, kinds["note"]), (Verdict::Intact, 50_000));
}

#[test]
fn a_log_of_sm3_is_verified_and_keeps_its_hash() {
    let state = tempfile::tempdir().unwrap();
    let sm3 = Settings { algorithm: Algorithm::Sm3, ..settings(state.path()) };
    let store = Store::open(&sm3).unwrap().store;
    for n in 0..200 {
        store.writer().append_durable(row(&n.to_string())).unwrap();
    }
    store.close();
    check(state.path(), (Verdict::Intact, None, 0));
    let header = Connection::open(first_segment(state.path())).unwrap();
    let id: String =
        header.query_row("SELECT value FROM header WHERE key = 'algorithm'", [], |row| row.get(0)).unwrap();
    assert_eq!(id, "sm3");
    drop(header);
    // Opened by a daemon that would begin one of SHA-256: it goes on as it is, over segments too.
    let limits = interlock::store::Limits { segment_len_max: 40_000, ..sm3.limits };
    let store = Store::open(&Settings { limits, ..settings(state.path()) }).unwrap().store;
    for n in 0..200 {
        store.writer().append_durable(row(&n.to_string())).unwrap();
    }
    store.close();
    let found = check(state.path(), (Verdict::Intact, None, 0));
    assert_eq!(found.rows, found.anchored_to.unwrap().0);
    let changed = "UPDATE evidence SET detail = 'x' WHERE seq = 50";
    Connection::open(first_segment(state.path())).unwrap().execute(changed, []).unwrap();
    check(state.path(), (Verdict::Altered, Some(50), 0));
    // A header that names another hash than its rows have is not signed for.
    let forged = "UPDATE header SET value = 'sha256' WHERE key = 'algorithm'";
    Connection::open(first_segment(state.path())).unwrap().execute(forged, []).unwrap();
    let found = verify(state.path()).unwrap();
    assert_eq!(found.verdict, Verdict::Altered);
    assert!(found.notes.iter().any(|note| note.contains("signature of its header")), "{found:?}");
    fs::metadata(first_segment(state.path())).unwrap();
}

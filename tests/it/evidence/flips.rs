//! One flipped bit, anywhere: no row changes unseen, and no row is accused for what is not its own.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

use interlock::store::read;
use interlock::store::verify::{Verdict, verify};
use rusqlite::Connection;

use super::{check, copy, first_segment, log_of, open, row};

#[test]
fn a_flipped_bit_in_a_hot_write_ahead_log_is_a_lost_tail() {
    let state = tempfile::tempdir().unwrap();
    let store = open(state.path()).store;
    for n in 0..200 {
        store.writer().append_durable(row(&n.to_string())).unwrap();
    }
    let hot = copy(state.path());
    let wal = hot.path().join("evidence/1.db-wal");
    let mut bytes = fs::read(&wal).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    fs::write(&wal, &bytes).unwrap();
    let found = verify(hot.path()).unwrap();
    assert_eq!(found.verdict, Verdict::TailLost, "{found:?}");
    assert_eq!(found.rows + found.lost, 201);
    assert!(found.lost > 50, "{found:?}");
}

/// Everything that a log says, as plain text: the rows and the header with their storage classes.
fn dump(segment: &Path) -> rusqlite::Result<Vec<String>> {
    let uri = format!("file:{}?mode=ro&immutable=1", segment.display());
    let connection = Connection::open(uri)?;
    let mut all = Vec::new();
    for table in ["header", "evidence"] {
        let mut statement = connection.prepare(&format!("SELECT * FROM {table} ORDER BY 1"))?;
        let columns = statement.column_count();
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let cells: Result<Vec<String>, _> =
                (0..columns).map(|at| row.get_ref(at).map(|cell| format!("{cell:?}"))).collect();
            all.push(cells?.join("|"));
        }
    }
    Ok(all)
}

/// One flipped bit at each offset of a small log. What the verifier does not see must be no change of what the log
/// says: every row and the header read back as before, with their storage classes (free space, page counters,
/// SQLite's own bookkeeping).
#[test]
fn no_flipped_bit_changes_a_row_unseen() {
    let state = log_of(6);
    let segment = first_segment(state.path());
    let whole = fs::read(&segment).unwrap();
    let says = dump(&segment).unwrap();
    let file = fs::OpenOptions::new().write(true).open(&segment).unwrap();
    let (mut seen, mut unseen) = (0, 0);
    for (byte, bit) in flips(whole.len()) {
        file.write_all_at(&[whole[byte] ^ 1 << bit], byte as u64).unwrap();
        let intact = verify(state.path()).is_ok_and(|found| found.verdict == Verdict::Intact);
        if intact {
            unseen += 1;
            assert_eq!(dump(&segment).ok().as_ref(), Some(&says), "byte {byte} bit {bit}");
        } else {
            seen += 1;
        }
        file.write_all_at(&whole[byte..=byte], byte as u64).unwrap();
    }
    check(state.path(), (Verdict::Intact, None, 0));
    assert!(seen > 1_500, "{seen} seen, {unseen} of no consequence");
}

/// Each byte of a file with one bit of it, or in the long run with all eight.
fn flips(len: usize) -> impl Iterator<Item = (usize, usize)> {
    let bits = if std::env::var_os("INTERLOCK_TEST_LONG").is_some() { 8 } else { 1 };
    (0..len).flat_map(move |byte| (0..bits).map(move |bit| (byte, (byte + bit) % 8)))
}

/// The same in a write-ahead log that nobody has brought in yet: a frame that does not fit ends the log there, which
/// the head tells as a lost tail. A row is never told as another one.
#[test]
fn no_flipped_bit_of_a_hot_write_ahead_log_passes_for_a_whole_log() {
    let state = tempfile::tempdir().unwrap();
    let store = open(state.path()).store;
    for n in 0..4 {
        store.writer().append_durable(row(&n.to_string())).unwrap();
    }
    let hot = copy(state.path());
    store.close();
    let evidence = hot.path().join("evidence");
    let rows = read::tail(hot.path(), 10).unwrap();
    let path = evidence.join("1.db-wal");
    let whole = fs::read(&path).unwrap();
    let (mut seen, mut unseen) = (0, 0);
    for (byte, bit) in flips(whole.len()).filter(|(byte, _)| byte % 5 == 0 || byte % (24 + 4096) < 64) {
        // What an earlier look left in the index of the log would hide the change.
        let _ = fs::remove_file(evidence.join("1.db-shm"));
        let mut damaged = whole.clone();
        damaged[byte] ^= 1 << bit;
        fs::write(&path, &damaged).unwrap();
        let found = verify(hot.path()).unwrap();
        match found.verdict {
            Verdict::Intact => {
                unseen += 1;
                assert_eq!(read::tail(hot.path(), 10).unwrap(), rows, "byte {byte} bit {bit}");
            }
            // Nothing of the log may be left but the file that was made before its first commit.
            Verdict::TailLost => {
                seen += 1;
                assert_eq!(found.rows + found.lost, 5, "byte {byte} bit {bit}: {found:?}");
            }
            Verdict::Altered | Verdict::Unanchored => panic!("byte {byte} bit {bit}: {found:?}"),
        }
    }
    assert!(seen > 1_000, "{seen} seen, {unseen} of no consequence");
}

/// Head and checkpoints vouch for rows and are none: damage to them never makes a row look altered.
#[test]
fn no_flipped_bit_of_what_vouches_accuses_a_row() {
    let state = log_of(70);
    for name in ["head", "checkpoints"] {
        let path = state.path().join("evidence").join(name);
        let whole = fs::read(&path).unwrap();
        assert!(!whole.is_empty(), "{name}");
        // Of the head's blocks all but the first sector is empty.
        for (byte, bit) in flips(whole.len()).filter(|(byte, _)| byte % 4096 < 512) {
            let mut damaged = whole.clone();
            damaged[byte] ^= 1 << bit;
            fs::write(&path, &damaged).unwrap();
            let found = verify(state.path()).unwrap();
            let fair = matches!(found.verdict, Verdict::Intact | Verdict::Unanchored);
            assert!(fair && found.bad_count == 0, "{name} byte {byte} bit {bit}: {found:?}");
        }
        fs::write(&path, &whole).unwrap();
    }
    check(state.path(), (Verdict::Intact, None, 0));
}

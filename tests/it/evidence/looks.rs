//! A look back through the log: bounded, from the newest on, and it says where the next one goes on.

use std::time::Duration;

use interlock::store::queue::Entry;
use interlock::store::search::{Found, Search, search};
use interlock::store::{Limits, Settings, Store};
use interlock_domain::id::Seq;

use super::{DEADLINE, call, log_of, open, row, settings, wait_for};

fn numbers(found: &Found) -> Vec<u64> {
    found.rows.iter().map(|row| row.seq.0).collect()
}

#[test]
fn the_newest_come_first_and_each_look_goes_on_where_the_last_one_ended() {
    // After the boot row.
    let state = log_of(10);
    let notes = Search { kinds: vec!["note".into()], limit: 4, ..Search::default() };
    let first = search(state.path(), &notes, DEADLINE).unwrap();
    assert_eq!((numbers(&first), first.from, first.rest), (vec![11, 10, 9, 8], Some(Seq(11)), Some(Seq(7))));
    let second = search(state.path(), &Search { until: first.rest, ..notes.clone() }, DEADLINE).unwrap();
    assert_eq!((numbers(&second), second.from, second.rest), (vec![7, 6, 5, 4], Some(Seq(7)), Some(Seq(3))));
    let third = search(state.path(), &Search { until: second.rest, ..notes.clone() }, DEADLINE).unwrap();
    assert_eq!((numbers(&third), third.from, third.rest), (vec![3, 2], Some(Seq(3)), None));
    let before = search(state.path(), &Search { until: Some(Seq(0)), ..notes }, DEADLINE).unwrap();
    assert_eq!(before, Found::default());
    // The limit is reached with the very first row: nothing is older.
    let all = search(state.path(), &Search { limit: 11, ..Search::default() }, DEADLINE).unwrap();
    assert_eq!((all.rows.len(), all.rest), (11, None));
}

#[test]
fn what_must_hold_holds_together_and_a_begin_ends_the_look() {
    let state = tempfile::tempdir().unwrap();
    let store = open(state.path()).store;
    let writer = store.writer();
    for n in 0..4 {
        writer.append(Entry::relaxed(row(&format!("x{n}")).of_call(call(n % 2)))).unwrap();
    }
    store.close();
    let of = |wanted: Search| numbers(&search(state.path(), &Search { limit: 9, ..wanted }, DEADLINE).unwrap());
    assert_eq!(of(Search { text: Some("x2".into()), ..Search::default() }), [4]);
    assert_eq!(of(Search { call: Some(call(1)), ..Search::default() }), [5, 3]);
    assert_eq!(of(Search { call: Some(call(1)), text: Some("x2".into()), ..Search::default() }), [] as [u64; 0]);
    assert_eq!(of(Search { kinds: vec!["a".into(), "note".into()], ..Search::default() }), [5, 4, 3, 2]);
    assert_eq!(of(Search { text: Some("' OR 1 --".into()), ..Search::default() }), [] as [u64; 0]);
    let began = Search { call: Some(call(1)), begin: Some("note"), limit: 9, ..Search::default() };
    let found = search(state.path(), &began, DEADLINE).unwrap();
    assert_eq!(found.rest, None, "a row of the begin is the last of interest");
}

/// No time at all: one step each, over several segments, and nothing is left out.
#[test]
fn a_look_without_time_gets_on_and_the_sum_of_all_looks_is_the_log() {
    const ROWS: usize = 9_000;
    let state = tempfile::tempdir().unwrap();
    let limits = Limits { segment_len_max: 512 * 1024, ..Limits::default() };
    let store = Store::open(&Settings { limits, ..settings(state.path()) }).unwrap().store;
    let writer = store.writer();
    for n in 0..ROWS {
        let text = if n % 1_000 == 7 { "rare" } else { "often" };
        let mut entry = Entry::relaxed(row(text));
        while let Err(not_taken) = writer.append(entry) {
            entry = *not_taken.entry;
            std::thread::yield_now();
        }
    }
    wait_for(&writer, |acks| acks.seq.0 > ROWS as u64);
    for (text, count) in [("rare", 9), ("often", ROWS - 9), ("nowhere", 0)] {
        let (mut until, mut seen, mut looks) = (None, Vec::new(), 0);
        loop {
            let wanted = Search { until, text: Some(text.into()), limit: 100_000, ..Search::default() };
            let found = search(state.path(), &wanted, Duration::ZERO).unwrap();
            seen.extend(numbers(&found));
            looks += 1;
            match found.rest {
                None => break,
                Some(rest) => {
                    assert!(until.is_none_or(|until| rest < until), "it gets on: {rest:?}");
                    until = Some(rest);
                }
            }
        }
        assert_eq!(seen.len(), count, "{text}");
        assert!(seen.is_sorted_by(|newer, older| newer > older), "{text}");
        assert!((5..50).contains(&looks), "{looks} looks for {text}");
    }
    store.close();
}

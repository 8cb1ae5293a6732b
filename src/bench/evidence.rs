//! What the evidence log costs, on the disk of the directory that is given.
//!
//! Beside our figures stands what SQLite itself does with the same rows, in the same groups, on the same disk and in
//! the same run, without hashes and heads: disks and neighbours differ too much for a figure without its measure.
//! Rounds of both alternate, and the median is told. Both make their rows while they write, both commit after so many
//! rows; ours go through the queue, where the next group waits already when one is durable.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::LazyLock;
use std::time::{Duration, Instant, SystemTime};

use interlock_domain::id::{BatchId, CallId, RunId};
use interlock_domain::time::{Tick, Wall};
use rusqlite::{Connection, TransactionBehavior, params};
use serde_json::{Value, json};

use crate::record::{Row, Stamp, TimeQuality, kind};
use crate::store::chain::Algorithm;
use crate::store::error::StoreError;
use crate::store::queue::{Entry, NotTaken, Writer};
use crate::store::verify::{Verdict, verify};
use crate::store::{Limits, Settings, Store};

/// Rounds of each measurement; the median counts.
const ROUNDS: usize = 5;
/// Rows of one round of a throughput.
const ROUND_ROWS: usize = 50_000;
/// Rows that are timed one by one.
const TIMED_ROWS: usize = 50_000;
/// Timed in bursts of so many, with time for the writer between: a plant writes in bursts, not in a line.
const BURST: usize = 1_000;
/// Groups in which raw SQLite is measured: a group that wakes the writer, and the largest.
const GROUPS: [usize; 2] = [32, 4096];

/// The figures (`cli.md`, "bench evidence").
#[derive(Debug, Clone, PartialEq)]
pub struct Evidence {
    /// Handing in one row, median, on the thread on which the thing happened.
    pub append_us_p50: f64,
    /// The same, 99th percentile.
    pub append_us_p99: f64,
    /// Rows through the queue until the last one is durable.
    pub durable_events_per_s: f64,
    /// Rows that are handed in in bursts that fit the queue, until the last one is taken: what an asker that does
    /// not wait sees.
    pub relaxed_events_per_s: f64,
    /// Bytes of the files, divided by their rows.
    pub bytes_per_event: f64,
    /// Rows verified per second, with all hashes.
    pub verify_events_per_s: f64,
    /// Raw SQLite in groups of so many rows, rows per second.
    pub raw_sqlite_events_per_s: BTreeMap<usize, f64>,
    /// Ours in the same groups, through the queue, until the last row is durable.
    pub grouped_events_per_s: BTreeMap<usize, f64>,
    /// Ours against raw SQLite in the same groups, median over the pairs of rounds.
    pub against_raw: BTreeMap<usize, f64>,
}

impl Evidence {
    /// For scripts.
    #[must_use]
    pub fn to_json(&self) -> Value {
        json!({
            "append_us_p50": self.append_us_p50,
            "append_us_p99": self.append_us_p99,
            "durable_events_per_s": self.durable_events_per_s.round(),
            "relaxed_events_per_s": self.relaxed_events_per_s.round(),
            "bytes_per_event": self.bytes_per_event.round(),
            "verify_events_per_s": self.verify_events_per_s.round(),
            "raw_sqlite_events_per_s": rounded(&self.raw_sqlite_events_per_s),
            "grouped_events_per_s": rounded(&self.grouped_events_per_s),
            "against_raw": self.against_raw,
        })
    }
}

fn rounded(figures: &BTreeMap<usize, f64>) -> BTreeMap<usize, f64> {
    figures.iter().map(|(group, figure)| (*group, figure.round())).collect()
}

/// Measures in `dir`, which must be empty and on the disk that is meant.
///
/// # Errors
/// When a log cannot be made there.
pub fn run(dir: &Path) -> Result<Evidence, StoreError> {
    let store = Store::open(&settings(&dir.join("append")))?.store;
    let (append_us_p50, append_us_p99, relaxed_events_per_s) = appends(&store.writer());
    store.close();

    let state = dir.join("durable");
    let store = Store::open(&settings(&state))?.store;
    let writer = store.writer();
    let durable = median((0..ROUNDS).map(|_| per_second(ROUND_ROWS, || through_the_queue(&writer))));
    store.close();
    let begun = Instant::now();
    let verified = verify(&state)?;
    let verify_events_per_s =
        if verified.verdict == Verdict::Intact { rate(verified.rows, begun.elapsed()) } else { 0.0 };
    let stats = crate::store::read::stats(&state)?;
    let bytes_per_event = figure(stats.bytes) / figure(stats.rows.max(1));

    let mut raw_sqlite_events_per_s = BTreeMap::new();
    let mut grouped_events_per_s = BTreeMap::new();
    let mut against_raw = BTreeMap::new();
    for group in GROUPS {
        let (raw, ours) = side_by_side(&dir.join(format!("group-{group}")), group)?;
        against_raw.insert(group, median(ours.iter().zip(&raw).map(|(ours, raw)| ours / raw)));
        raw_sqlite_events_per_s.insert(group, median(raw.into_iter()));
        grouped_events_per_s.insert(group, median(ours.into_iter()));
    }
    Ok(Evidence {
        append_us_p50,
        append_us_p99,
        durable_events_per_s: durable,
        relaxed_events_per_s,
        bytes_per_event,
        verify_events_per_s,
        raw_sqlite_events_per_s,
        grouped_events_per_s,
        against_raw,
    })
}

fn settings(state: &Path) -> Settings {
    Settings {
        state: state.to_owned(),
        boot_id: "0b5c9f4e-8f5e-4f0e-9d55-2f6a2f1f7b11".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        clock,
        limits: Limits::default(),
        algorithm: Algorithm::default(),
    }
}

fn clock() -> Stamp {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    let mono = u64::try_from(START.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Stamp {
        mono: Tick(mono),
        boottime_ns: mono,
        wall: Wall(i64::try_from(wall.as_millis()).unwrap_or(i64::MAX)),
        quality: TimeQuality::Unknown,
    }
}

/// Rows as they are written of one call after the other, each from its request to its settlement.
fn row(at: Stamp, n: usize) -> Row {
    const STATIONS: [&str; 4] = ["requested", "intent", "outcome", kind::SETTLED];
    let call = CallId {
        run: RunId::new(1_764_500_000_000, 7),
        batch: BatchId(u64::try_from(n / STATIONS.len()).unwrap_or(0)),
        position: 0,
    };
    let detail = json!({ "tool": "device", "known": "done", "output": { "device": "pump-2", "value": 48.5 } });
    let station = STATIONS[n % STATIONS.len()];
    Row { to: Some("done".into()), ..Row::new(at, station).of_call(call).detailed(&detail) }
}

/// Hands the row in; when the queue is full, leaves the processor to the writer for a moment and tries again. A full
/// queue lasts the writer many times as long.
fn hand_in(writer: &Writer, entry: Entry) {
    const MOMENT: Duration = Duration::from_millis(1);
    let mut entry = entry;
    while let Err(NotTaken { entry: back, .. }) = writer.append(entry) {
        entry = *back;
        std::thread::park_timeout(MOMENT);
    }
}

fn wait_until_durable(writer: &Writer) {
    // An error shows in the figures: the row is then not counted as written by `verify`.
    let _ = writer.append_durable(row(clock(), 3));
}

/// Median and 99th percentile of one append in microseconds, and appends per second in bursts.
fn appends(writer: &Writer) -> (f64, f64, f64) {
    let mut times = Vec::with_capacity(TIMED_ROWS);
    let mut in_bursts = Duration::ZERO;
    for _ in 0..TIMED_ROWS / BURST {
        let rows: Vec<Entry> = (0..BURST).map(|n| Entry::relaxed(row(clock(), n))).collect();
        let begun = Instant::now();
        for entry in rows {
            let appended = Instant::now();
            let taken = writer.append(entry);
            times.push(appended.elapsed());
            drop(taken);
        }
        in_bursts += begun.elapsed();
        wait_until_durable(writer);
    }
    times.sort_unstable();
    let us = |time: Duration| time.as_secs_f64() * 1e6;
    let p50 = us(times[times.len() / 2]);
    let p99 = us(times[times.len() * 99 / 100]);
    (p50, p99, rate(TIMED_ROWS as u64, in_bursts))
}

fn through_the_queue(writer: &Writer) {
    for n in 0..ROUND_ROWS {
        hand_in(writer, Entry::relaxed(row(clock(), n)));
    }
    wait_until_durable(writer);
}

/// Rounds of raw SQLite and of ours in turn, rows per second each.
fn side_by_side(dir: &Path, group: usize) -> Result<(Vec<f64>, Vec<f64>), StoreError> {
    // Many small commits take long on a slow disk.
    let rows = (group * 200).min(ROUND_ROWS);
    let limits = Limits { group_max: group, ..Limits::default() };
    let store = Store::open(&Settings { limits, ..settings(dir) })?.store;
    let writer = store.writer();
    let path = dir.join("raw.db");
    let sqlite = |source| StoreError::Sqlite { path: path.clone(), source };
    let mut raw_connection = raw_open(&path).map_err(sqlite)?;
    let (mut raw, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        raw_write(&mut raw_connection, rows, group).map_err(sqlite)?;
        raw.push(rate(rows as u64, begun.elapsed()));
        ours.push(per_second(rows, || {
            for n in 1..rows {
                hand_in(&writer, Entry::relaxed(row(clock(), n)));
            }
            wait_until_durable(&writer);
        }));
    }
    store.close();
    Ok((raw, ours))
}

fn raw_open(path: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open(path)?;
    let _: String = connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0))?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.execute_batch(
        r#"CREATE TABLE evidence (seq INTEGER PRIMARY KEY, boot_id TEXT, mono_ns INTEGER, boottime_ns INTEGER,
        wall INTEGER, time_quality TEXT, run TEXT, call TEXT, task TEXT, generation INTEGER, kind TEXT, "from" TEXT,
        "to" TEXT, cause TEXT, detail TEXT, hash BLOB) STRICT"#,
    )?;
    Ok(connection)
}

/// The same columns with values of the same length, from the same kind of row, made while the clock runs as ours are.
fn raw_write(connection: &mut Connection, rows: usize, group: usize) -> rusqlite::Result<()> {
    let hash = [7u8; 32];
    for _ in 0..rows / group {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        {
            let mut insert = transaction.prepare_cached(
                r#"INSERT INTO evidence (boot_id, mono_ns, boottime_ns, wall, time_quality, run, call, task, generation,
                kind, "from", "to", cause, detail, hash) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"#,
            )?;
            for n in 0..group {
                let row = row(clock(), n);
                insert.execute(params![
                    "0b5c9f4e-8f5e-4f0e-9d55-2f6a2f1f7b11",
                    row.at.mono.0.cast_signed(),
                    row.at.boottime_ns.cast_signed(),
                    row.at.wall.0,
                    row.at.quality.as_str(),
                    row.run.map(|run| run.to_string()),
                    row.call.map(|call| call.to_string()),
                    None::<String>,
                    None::<u32>,
                    row.kind,
                    row.from,
                    row.to,
                    row.cause,
                    row.detail,
                    hash,
                ])?;
            }
        }
        transaction.commit()?;
    }
    Ok(())
}

fn per_second(rows: usize, work: impl FnOnce()) -> f64 {
    let begun = Instant::now();
    work();
    rate(rows as u64, begun.elapsed())
}

fn rate(rows: u64, time: Duration) -> f64 {
    figure(rows) / time.as_secs_f64().max(1e-9)
}

/// Counts here are far below 2^52.
fn figure(count: u64) -> f64 {
    count as f64
}

fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_of_an_odd_number_of_rounds_is_told() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), 2.0);
        assert_eq!(median(std::iter::empty()), 0.0);
    }
}

//! The one written form of what happened: disk, console and exporters share it.
//!
//! A [`Row`] is what someone wants to have written; a [`Recorded`] is what stands in the log, with the number that
//! the writer gave it and the hash that ties it to the row before. The columns, their order and the canonical form
//! are fixed for good (`contracts.md`, "State"): a change of one byte here makes every log in the field unreadable
//! to `evidence verify`. Nothing in here does I/O or reads a clock: the moment comes with the row.

pub mod census;
pub mod contract;
pub mod detail;
pub mod effects;
pub mod event;
pub mod learned;
pub mod ledger;
pub mod retold;
pub mod settled;
pub mod trace;
pub mod workflow;

use std::borrow::Cow;
use std::ops::Range;
use std::str::FromStr;

use interlock_domain::id::{CallId, RUN_ID_LEN, RunId, Seq, TaskId};
use interlock_domain::time::{Tick, Wall};
use serde_json::{Map, Value};
use thiserror::Error;

/// The columns, in the order of the file and of the canonical form; `hash` follows them.
pub const COLUMNS: [&str; 15] = [
    "seq",
    "boot_id",
    "mono_ns",
    "boottime_ns",
    "wall",
    "time_quality",
    "run",
    "call",
    "task",
    "generation",
    "kind",
    "from",
    "to",
    "cause",
    "detail",
];

/// Longest `detail` that a row keeps, in bytes. Larger things (outputs, file contents) belong into the spill; a row
/// is evidence, and the queue in front of the writer must stay bounded in bytes too.
pub const DETAIL_LEN_MAX: usize = 64 * 1024;

/// How far the wall clock of a row can be believed. It is written, never used to decide or to rewrite.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TimeQuality {
    /// The kernel says that the clock is disciplined.
    Synced,
    /// The kernel says that it is not: a boot at 1970, or a time server out of reach.
    Unsynced,
    /// Nobody could be asked (`ProtectClock=yes` closes `adjtimex`).
    Unknown,
}

impl TimeQuality {
    /// As it is written.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            TimeQuality::Synced => "synced",
            TimeQuality::Unsynced => "unsynced",
            TimeQuality::Unknown => "unknown",
        }
    }
}

impl FromStr for TimeQuality {
    type Err = NotARow;

    fn from_str(text: &str) -> Result<TimeQuality, NotARow> {
        match text {
            "synced" => Ok(TimeQuality::Synced),
            "unsynced" => Ok(TimeQuality::Unsynced),
            "unknown" => Ok(TimeQuality::Unknown),
            _ => Err(NotARow { column: "time_quality" }),
        }
    }
}

/// One reading of all clocks, taken when the thing happened (not when it was written).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// `CLOCK_MONOTONIC`: orders the rows of one boot, stands still in suspend.
    pub mono: Tick,
    /// `CLOCK_BOOTTIME`, nanoseconds: goes on in suspend.
    pub boottime_ns: u64,
    /// The wall clock, for people.
    pub wall: Wall,
    /// What the wall clock is worth.
    pub quality: TimeQuality,
}

/// The words of the log itself: what the writer says about its own file. All other kinds are written by the
/// conversion of events.
pub mod kind {
    /// A process opened the log; `detail` holds version, previous head, what was found, and what is open.
    pub const BOOT: &str = "boot";
    /// A resting point for the next start: `detail` holds what is open. Every few thousand rows.
    pub const MARK: &str = "mark";
    /// Rows were lost before they were written; `detail` says how many and from when to when.
    pub const GAP: &str = "gap";
    /// The disk was full; written into the room that the reserve file gave back.
    pub const DISK_FULL: &str = "disk_full";
    /// The writer could not write for a while and can again.
    pub const EVIDENCE_RECOVERED: &str = "evidence_recovered";
    /// The last row of a segment.
    pub const SEGMENT_CLOSED: &str = "segment_closed";
    /// The oldest segment is about to be unlinked; `detail` names its rows.
    pub const SEGMENT_UNLINKED: &str = "segment_unlinked";
    /// A copy of a row of an open call whose segment is about to be unlinked; `detail.row` is that row.
    pub const CARRIED: &str = "carried";
    /// A damaged segment was moved aside.
    pub const QUARANTINED: &str = "quarantined";
    /// The daemon ended in order; the next `boot` row follows it, or the run before was cut off.
    pub const END: &str = "end";
    /// The run before did not end in order; `detail` names its head.
    pub const PREVIOUS_RUN_ABNORMAL: &str = "previous_run_abnormal";
    /// A configuration was read again; `to` says whether it is in force or was rejected.
    pub const CONFIG: &str = "config";
    /// The room on the disk of the log fell below what is wanted, or is there again.
    pub const DISK: &str = "disk";
    /// A reader kept the write-ahead log from being brought in, until a new segment had to begin.
    pub const WAL_LARGE: &str = "wal_large";
    /// The state came from a backup; `detail` says which and when.
    pub const RESTORED: &str = "restored";
    /// Which update of commands and model counts: `to` is `in_force` or `none`, or `not_loaded` when one of them does not
    /// count although it should; `detail` says which and why.
    pub const UPDATE: &str = "update";
    /// Somebody was let into the console, or is not any more; `to` says which, `detail` who, by whom and as what.
    pub const CONSOLE_PERSON: &str = "console_person";
    /// The log was held against its hashes and its head after a start; `to` is the verdict.
    pub const VERIFIED: &str = "verified";
    /// A call ended. One that ended as unknown, with an effect to look at, stays open until it is resolved.
    pub const SETTLED: &str = "settled";
    /// Learned after the settlement; points to it and closes the call for good.
    pub const RESOLVED: &str = "resolved";
    /// A report of a tool that came after the settlement; opens nothing.
    pub const LATE_REPORT: &str = "late_report";
}

/// The way out of an unknown outcome that needs nobody, as `detail.way_out` of its settlement has it.
const ASK_AGAIN: &str = "ask_again";

/// What a row does to its call in the eyes of the next start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bearing {
    /// The call is open from here on: repair needs this row if the process ends now.
    Opens,
    /// The call has its end.
    Closes,
    /// Nothing: no call, or something that was learned after the end.
    Aside,
}

/// Something to be written, before it has a number. Cheap to make and to move: it is built on the thread on which
/// the thing happened.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// When it happened.
    pub at: Stamp,
    /// The run that it belongs to.
    pub run: Option<RunId>,
    /// The call that it belongs to.
    pub call: Option<CallId>,
    /// The background task that it belongs to.
    pub task: Option<TaskId>,
    /// Which life of the task.
    pub generation: Option<u32>,
    /// What happened, `snake_case`.
    pub kind: Cow<'static, str>,
    /// The state before.
    pub from: Option<Cow<'static, str>>,
    /// The state after.
    pub to: Option<Cow<'static, str>>,
    /// Why.
    pub cause: Option<Cow<'static, str>>,
    /// Everything else: one JSON object as text. Set it through [`Row::detailed`], which bounds it.
    pub detail: Option<String>,
}

impl Row {
    /// A row of `kind` that names nothing else yet.
    #[must_use]
    pub fn new(at: Stamp, kind: impl Into<Cow<'static, str>>) -> Row {
        Row {
            at,
            run: None,
            call: None,
            task: None,
            generation: None,
            kind: kind.into(),
            from: None,
            to: None,
            cause: None,
            detail: None,
        }
    }

    /// The same row of a call; its run comes with it.
    #[must_use]
    pub fn of_call(self, call: CallId) -> Row {
        Row { run: Some(call.run), call: Some(call), ..self }
    }

    /// The same row with `detail`. What is longer than [`DETAIL_LEN_MAX`] is replaced by an object that says so and
    /// keeps the beginning: `{"cut": <bytes that there were>, "head": "…"}`.
    #[must_use]
    pub fn detailed(self, detail: &Value) -> Row {
        self.told(detail.to_string())
    }

    /// The same with a detail that is written already: the text of an object.
    #[must_use]
    pub fn told(self, text: String) -> Row {
        if text.len() <= DETAIL_LEN_MAX {
            return Row { detail: Some(text), ..self };
        }
        // Escaping can at most grow a byte sixfold ("\u0001"), so that this object keeps the bound too.
        let head = &text[..text.floor_char_boundary(DETAIL_LEN_MAX / 8)];
        let cut = serde_json::json!({ "cut": text.len(), "head": head });
        Row { detail: Some(cut.to_string()), ..self }
    }

    /// What the row does to its call.
    #[must_use]
    pub fn bearing(&self) -> Bearing {
        match (&self.call, self.kind.as_ref()) {
            (None, _) => Bearing::Aside,
            // An unknown effect waits for a person, who may come after the next start: it stays open until it is
            // resolved. One that changes nothing may simply be asked again.
            (Some(_), kind::SETTLED) if self.waits_for_a_person() => Bearing::Opens,
            (Some(_), kind::SETTLED | kind::RESOLVED) => Bearing::Closes,
            (Some(_), kind::LATE_REPORT | kind::CARRIED) => Bearing::Aside,
            (Some(_), _) => Bearing::Opens,
        }
    }

    fn waits_for_a_person(&self) -> bool {
        let asks_again = format!("\"way_out\":\"{ASK_AGAIN}\"");
        self.to.as_deref() == Some("unknown") && !self.detail.as_deref().unwrap_or_default().contains(&asks_again)
    }

    /// About how many bytes the row holds, for the bounds of queues.
    #[must_use]
    pub fn weight(&self) -> usize {
        let text = |t: &Option<Cow<'static, str>>| t.as_ref().map_or(0, |t| t.len());
        size_of::<Row>()
            + self.kind.len()
            + text(&self.from)
            + text(&self.to)
            + text(&self.cause)
            + self.detail.as_ref().map_or(0, String::len)
    }
}

/// A row as it stands in the log.
#[derive(Debug, Clone, PartialEq)]
pub struct Recorded {
    /// Its number.
    pub seq: Seq,
    /// The boot of the machine in which it was written.
    pub boot_id: String,
    /// What was written.
    pub row: Row,
    /// The hash that ties it to the row before.
    pub hash: [u8; 32],
}

/// A column that does not hold what a row holds there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("column {column} holds no value of its kind")]
pub struct NotARow {
    /// The column.
    pub column: &'static str,
}

/// The canonical form of one row, and where in it each column's text stands.
///
/// The bytes are those that the hash covers: the columns in order, each as a little-endian `u32` length and the
/// bytes (numbers as decimal text, null as length `0xffff_ffff`). One buffer is used again for every row.
#[derive(Debug, Default)]
pub struct Canonical {
    bytes: Vec<u8>,
    columns: [Option<Range<usize>>; COLUMNS.len()],
}

const NULL: [u8; 4] = u32::MAX.to_le_bytes();

impl Canonical {
    /// Writes `row` as number `seq` of boot `boot_id` into the buffer.
    pub fn write(&mut self, seq: Seq, boot_id: &str, row: &Row) {
        self.clear();
        self.number(0, seq.0);
        self.text(1, Some(boot_id));
        self.number(2, row.at.mono.0);
        self.number(3, row.at.boottime_ns);
        self.signed(4, row.at.wall.0);
        self.text(5, Some(row.at.quality.as_str()));
        let mut run = [0; RUN_ID_LEN];
        self.text(6, row.run.map(|id| id.written(&mut run)));
        self.call(7, row.call);
        self.task(8, row.task);
        match row.generation {
            Some(generation) => self.number(9, u64::from(generation)),
            None => self.text(9, None),
        }
        self.text(10, Some(&row.kind));
        self.text(11, row.from.as_deref());
        self.text(12, row.to.as_deref());
        self.text(13, row.cause.as_deref());
        self.text(14, row.detail.as_deref());
    }

    /// Forgets the row, keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
    }

    /// The next column (number `at`), as text or null.
    pub fn text(&mut self, at: usize, text: Option<&str>) {
        self.raw(at, text.map(str::as_bytes));
    }

    /// The next column (number `at`), as the bytes that stand there or null.
    pub fn raw(&mut self, at: usize, bytes: Option<&[u8]>) {
        match bytes {
            None => {
                self.bytes.extend_from_slice(&NULL);
                self.columns[at] = None;
            }
            Some(bytes) => {
                // A column is bounded by SQLite at 1 GB, so its length always fits.
                let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX - 1);
                self.bytes.extend_from_slice(&len.to_le_bytes());
                let start = self.bytes.len();
                self.bytes.extend_from_slice(bytes);
                self.columns[at] = Some(start..self.bytes.len());
            }
        }
    }

    /// The next column (number `at`), as decimal text.
    pub fn signed(&mut self, at: usize, number: i64) {
        if number >= 0 {
            self.number(at, number.unsigned_abs());
        } else {
            let mut digits = Digits::new();
            let text = digits.write(number.unsigned_abs(), true);
            self.raw(at, Some(text));
        }
    }

    fn number(&mut self, at: usize, number: u64) {
        let mut digits = Digits::new();
        let text = digits.write(number, false);
        self.raw(at, Some(text));
    }

    /// The form of [`CallId`]'s `Display`.
    fn call(&mut self, at: usize, call: Option<CallId>) {
        let Some(call) = call else { return self.text(at, None) };
        self.parts(at, |bytes| {
            bytes.extend_from_slice(call.run.written(&mut [0; RUN_ID_LEN]).as_bytes());
            bytes.push(b'.');
            bytes.extend_from_slice(Digits::new().write(call.batch.0, false));
            bytes.push(b'.');
            bytes.extend_from_slice(Digits::new().write(call.position.into(), false));
        });
    }

    /// The form of [`TaskId`]'s `Display`.
    fn task(&mut self, at: usize, task: Option<TaskId>) {
        let Some(task) = task else { return self.text(at, None) };
        self.parts(at, |bytes| {
            bytes.push(b't');
            bytes.extend_from_slice(Digits::new().write(task.0, false));
        });
    }

    /// The next column (number `at`), which is written in parts.
    fn parts(&mut self, at: usize, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len() + NULL.len();
        self.bytes.extend_from_slice(&[0; NULL.len()]);
        write(&mut self.bytes);
        // Ids are shorter than a hundred bytes.
        let len = u32::try_from(self.bytes.len() - start).unwrap_or(0);
        self.bytes[start - NULL.len()..start].copy_from_slice(&len.to_le_bytes());
        self.columns[at] = Some(start..self.bytes.len());
    }

    /// The canonical form.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The bytes of one column, `None` where it is null.
    #[must_use]
    pub fn column(&self, at: usize) -> Option<&[u8]> {
        self.columns[at].clone().map(|range| &self.bytes[range])
    }
}

/// Decimal digits without going through `fmt`: this runs several times for each row of the log.
struct Digits([u8; 21]);

impl Digits {
    fn new() -> Digits {
        Digits([0; 21])
    }

    fn write(&mut self, mut number: u64, negative: bool) -> &[u8] {
        let mut at = self.0.len();
        loop {
            at -= 1;
            // The remainder of ten is a digit.
            self.0[at] = b'0' + u8::try_from(number % 10).unwrap_or(0);
            number /= 10;
            if number == 0 {
                break;
            }
        }
        if negative {
            at -= 1;
            self.0[at] = b'-';
        }
        &self.0[at..]
    }
}

impl Recorded {
    /// The form for scripts, the console and exporters: one object, keys in the order of the columns. `wall` is in
    /// milliseconds, `time` is the same for people, `detail` is an object again, `hash` is hexadecimal.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let row = &self.row;
        let text = |t: &Option<Cow<'static, str>>| t.as_deref().map_or(Value::Null, Value::from);
        let id = |t: Option<String>| t.map_or(Value::Null, Value::from);
        let detail = match &row.detail {
            None => Value::Null,
            Some(detail) => serde_json::from_str(detail).unwrap_or_else(|_| Value::from(detail.as_str())),
        };
        let mut object = Map::new();
        let mut put = |key: &str, value: Value| object.insert(key.to_owned(), value);
        put("seq", self.seq.0.into());
        put("boot_id", self.boot_id.as_str().into());
        put("mono_ns", row.at.mono.0.into());
        put("boottime_ns", row.at.boottime_ns.into());
        put("wall", row.at.wall.0.into());
        put("time", rfc3339(row.at.wall).into());
        put("time_quality", row.at.quality.as_str().into());
        put("run", id(row.run.map(|run| run.to_string())));
        put("call", id(row.call.map(|call| call.to_string())));
        put("task", id(row.task.map(|task| task.to_string())));
        put("generation", row.generation.map_or(Value::Null, Value::from));
        put("kind", row.kind.as_ref().into());
        put("from", text(&row.from));
        put("to", text(&row.to));
        put("cause", text(&row.cause));
        put("detail", detail);
        put("hash", hex(&self.hash).into());
        Value::Object(object)
    }

    /// Reads back what [`Recorded::to_json`] wrote, without loss: the console's and the exporters' side, and rows that
    /// were carried forward.
    ///
    /// # Errors
    /// The first column that does not hold a value of its kind.
    pub fn from_json(value: &Value) -> Result<Recorded, NotARow> {
        let at = |column: &'static str| value.get(column).unwrap_or(&Value::Null);
        let number = |column| at(column).as_u64().ok_or(NotARow { column });
        let text = |column| at(column).as_str().ok_or(NotARow { column });
        let optional = |column| match at(column) {
            Value::Null => Ok(None),
            Value::String(text) => Ok(Some(Cow::Owned(text.clone()))),
            Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => Err(NotARow { column }),
        };
        let row = Row {
            at: Stamp {
                mono: Tick(number("mono_ns")?),
                boottime_ns: number("boottime_ns")?,
                wall: Wall(at("wall").as_i64().ok_or(NotARow { column: "wall" })?),
                quality: text("time_quality")?.parse()?,
            },
            run: parsed("run", optional("run")?.as_deref())?,
            call: parsed("call", optional("call")?.as_deref())?,
            task: parsed("task", optional("task")?.as_deref())?,
            generation: match at("generation") {
                Value::Null => None,
                Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {
                    Some(u32::try_from(number("generation")?).map_err(|_| NotARow { column: "generation" })?)
                }
            },
            kind: Cow::Owned(text("kind")?.to_owned()),
            from: optional("from")?,
            to: optional("to")?,
            cause: optional("cause")?,
            detail: match at("detail") {
                Value::Null => None,
                Value::String(text) => Some(text.clone()),
                other @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
                    Some(other.to_string())
                }
            },
        };
        let hash = unhex(text("hash")?).ok_or(NotARow { column: "hash" })?;
        Ok(Recorded { seq: Seq(number("seq")?), boot_id: text("boot_id")?.to_owned(), row, hash })
    }
}

/// An id out of a column's text.
///
/// # Errors
/// When there is a text and it is not the written form of such an id.
pub fn parsed<T: FromStr>(column: &'static str, text: Option<&str>) -> Result<Option<T>, NotARow> {
    text.map(|text| text.parse().map_err(|_| NotARow { column })).transpose()
}

/// Lower-case hexadecimal.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes.iter().flat_map(|b| [DIGITS[usize::from(b >> 4)], DIGITS[usize::from(b & 15)]]).map(char::from).collect()
}

/// The `N` bytes of a lower-case hexadecimal text of exactly that length. Upper case is refused: one value has one
/// written form.
#[must_use]
pub fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digit = |b: u8| match b {
        b'0'..=b'9' => Some(b - b'0'),
        b'a'..=b'f' => Some(b - b'a' + 10),
        _ => None,
    };
    let text = text.as_bytes();
    if text.len() != N * 2 {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

/// `2026-11-30T12:00:00.000Z`. Days are counted by Howard Hinnant's `civil_from_days`.
#[must_use]
pub fn rfc3339(wall: Wall) -> String {
    const DAY_MS: i64 = 86_400_000;
    let days = wall.0.div_euclid(DAY_MS);
    let ms = wall.0.rem_euclid(DAY_MS);
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let day_of_era = z.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute, second) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1_000 % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", ms % 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp() -> Stamp {
        Stamp { mono: Tick(5), boottime_ns: 7, wall: Wall(-1), quality: TimeQuality::Unsynced }
    }

    #[test]
    fn the_canonical_form_is_as_the_contract_says() {
        let mut canonical = Canonical::default();
        let row = Row { to: Some("RUNNING".into()), generation: Some(0), ..Row::new(stamp(), "spawned") };
        canonical.write(Seq(12), "b", &row);
        let mut expected = Vec::new();
        for column in ["12", "b", "5", "7", "-1", "unsynced", "", "", "", "0", "spawned", "", "RUNNING", "", ""] {
            if column.is_empty() {
                expected.extend([0xff; 4]);
            } else {
                expected.extend([u8::try_from(column.len()).unwrap(), 0, 0, 0]);
                expected.extend(column.as_bytes());
            }
        }
        assert_eq!(canonical.bytes(), expected);
        assert_eq!(canonical.column(12), Some(b"RUNNING".as_slice()));
        assert_eq!(canonical.column(6), None);
    }

    #[test]
    fn an_empty_text_is_not_null() {
        let (mut null, mut empty) = (Canonical::default(), Canonical::default());
        null.write(Seq(1), "b", &Row::new(stamp(), "x"));
        empty.write(Seq(1), "b", &Row { cause: Some("".into()), ..Row::new(stamp(), "x") });
        assert_ne!(null.bytes(), empty.bytes());
    }

    #[test]
    fn json_comes_back_as_it_was() {
        let call: CallId = "01KBA6AK800000000000000007.3.0".parse().unwrap();
        let full = Row {
            task: Some(TaskId(4)),
            generation: Some(2),
            from: Some("RUNNING".into()),
            to: Some("ZOMBIE".into()),
            cause: Some("DEADLOCK".into()),
            ..Row::new(stamp(), "lifecycle").of_call(call).detailed(&serde_json::json!({"b": 1, "a": "二号泵"}))
        };
        for row in [full, Row::new(stamp(), "boot")] {
            let recorded = Recorded { seq: Seq(9), boot_id: "b".into(), row, hash: [0xab; 32] };
            assert_eq!(Recorded::from_json(&recorded.to_json()), Ok(recorded));
        }
    }

    #[test]
    fn what_is_too_long_is_cut_and_says_so() {
        for filler in ["\u{1}", "泵", "x"] {
            let row = Row::new(stamp(), "x").detailed(&Value::from(filler.repeat(DETAIL_LEN_MAX)));
            let detail = row.detail.unwrap();
            assert!(detail.len() <= DETAIL_LEN_MAX, "{}", detail.len());
            assert!(detail.starts_with("{\"cut\":"), "{}", &detail[..20]);
        }
    }

    #[test]
    fn a_call_is_open_until_it_is_settled_and_an_unknown_one_until_it_is_resolved() {
        let call: CallId = "01KBA6AK800000000000000007.3.0".parse().unwrap();
        let of = |kind: &'static str| Row::new(stamp(), kind).of_call(call).bearing();
        let unknown = |way_out: &str| {
            let row =
                Row::new(stamp(), kind::SETTLED).of_call(call).detailed(&serde_json::json!({ "way_out": way_out }));
            Row { to: Some("unknown".into()), ..row }.bearing()
        };
        assert_eq!(unknown("hold"), Bearing::Opens);
        assert_eq!(unknown("query_first"), Bearing::Opens);
        assert_eq!(unknown("ask_again"), Bearing::Closes);
        assert_eq!(of("requested"), Bearing::Opens);
        assert_eq!(of("intent"), Bearing::Opens);
        assert_eq!(of(kind::SETTLED), Bearing::Closes);
        assert_eq!(of(kind::RESOLVED), Bearing::Closes);
        assert_eq!(of(kind::LATE_REPORT), Bearing::Aside);
        assert_eq!(Row::new(stamp(), "boot").bearing(), Bearing::Aside);
    }

    #[test]
    fn moments_are_written_for_people() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
            (951_782_400_123, "2000-02-29T00:00:00.123Z"),
            (1_796_083_199_000, "2026-11-30T23:59:59.000Z"),
        ] {
            assert_eq!(rfc3339(Wall(ms)), text);
        }
    }

    #[test]
    fn hexadecimal_has_one_form() {
        assert_eq!(unhex::<2>("00ff"), Some([0, 255]));
        for text in ["00fF", "00f", "00fff", "0xff", "+0ff"] {
            assert_eq!(unhex::<2>(text), None, "{text}");
        }
    }
}

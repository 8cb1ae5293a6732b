//! Looks after the ground that the daemon stands on: the evidence log, its disk, its readers; and says how it is.
//!
//! A worker of the daemon's own, supervised like any other, so that a disk that does not answer shows as a ZOMBIE in
//! state D instead of as nothing. It changes nothing: it raises alarms, writes rows about what it found, and keeps the
//! status line that `systemctl status` shows. What the log itself must do about a fault, the log does.

use std::path::PathBuf;
use std::time::Duration;

use interlock_domain::liveness::remedy::Policy;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::keeper::{Keeper, NotKept};
use super::stamp;
use super::supervisor::{Finished, Heart, TaskSpec};
use crate::record::{Row, hex, kind};
use crate::store::error::Fault;
use crate::store::queue::{Entry, Health, Writer};
use crate::store::verify::{Verdict, Verification, verify};
use crate::store::{WAL_LEN_WANTED, wal_len};
use crate::store::{head, keys};
use crate::sys::notify::Notifier;
use crate::sys::{chrony, clock, machine, thread};

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// So many looks from one line of the journal to the next.
const JOURNAL_EVERY: u64 = 60;
/// So many looks from one question to a time service to the next: it moves slowly.
const TIME_EVERY: u64 = 16;
/// How long its answer is waited for; it comes over loopback.
const TIME_PATIENCE: Duration = Duration::from_millis(100);
/// Room on the disk below which a person is told: two segments of the log. Above, its quota and the reserve file see to
/// it that the log itself does not fill the disk; others may.
const ROOM_WANTED: u64 = 128 * 1024 * 1024;
/// How much more than that there must be again, before the alarm is over.
const ROOM_AGAIN: u64 = ROOM_WANTED / 4 * 5;
/// How long reading a whole log may take. The largest has a few million rows, of which the slowest box reads 50,000 a
/// second.
const VERIFY_LIMIT: Duration = Duration::from_secs(600);
/// Reading the whole log must not take time from anybody.
const VERIFY_NICE: i32 = 19;

/// What the looks need.
pub struct Ground {
    /// The state directory.
    pub state: PathBuf,
    /// The way to the log.
    pub writer: Writer,
    /// Where alarms are kept.
    pub keeper: Keeper,
    /// The line to systemd.
    pub notifier: Notifier,
    /// What the status line says; `boot` says the same with its READY.
    pub status: watch::Sender<String>,
    /// Why the state is only remembered, if it is.
    pub not_kept: Option<Fault>,
    /// What is known from the looks before.
    pub known: Known,
}

/// What is known from the looks before.
#[derive(Debug, Default)]
pub struct Known {
    health: Option<String>,
    room: Option<String>,
    wal: Option<String>,
    looks: u64,
    /// The last row that the journal was told of.
    told: u64,
}

/// The task of [`Ground::watch`].
#[must_use]
pub fn watch_spec() -> TaskSpec {
    TaskSpec { own: true, ..TaskSpec::new("ground", "looks after the evidence log and its disk") }
}

/// The task of [`verify_once`].
#[must_use]
pub fn verify_spec() -> TaskSpec {
    TaskSpec {
        own: true,
        policy: Policy::LEAVE,
        ..TaskSpec::new("verify", "holds the evidence log against its hashes, once after the start")
    }
}

impl Ground {
    /// Looks until it is told to stop.
    pub fn watch(mut self) -> impl FnOnce(Heart) -> Finished + Send {
        move |heart| {
            while heart.rest(LOOK_EVERY) {
                self.look();
            }
            Finished::Stopped(Value::Null)
        }
    }

    /// Looks once. The first look is `boot`'s, before the status line is said for the first time.
    pub fn look(&mut self) {
        let mut known = std::mem::take(&mut self.known);
        ask_time_service(&known);
        self.tell_journal(&mut known);
        let health = match self.writer.acks().borrow().health {
            Health::Writing => None,
            Health::Degraded(Fault::Locked) => Some(format!("EVIDENCE_STALLED: {}", Fault::Locked)),
            Health::Degraded(fault) => Some(format!("the evidence log takes no rows: {fault}")),
        };
        self.alarm("evidence", &mut known.health, health);

        let free = machine::room(&self.state).map(|room| room.free);
        let wanted = if known.room.is_some() { ROOM_AGAIN } else { ROOM_WANTED };
        if let Ok(free) = free {
            // The number stands in the row; in the alarm it would make a new one of each look.
            let low = (free < wanted).then(|| format!("less than {} MiB are free for the log", ROOM_WANTED >> 20));
            if self.alarm("disk", &mut known.room, low) {
                let to = if known.room.is_some() { "low" } else { "enough" };
                let row = Row { to: Some(to.into()), ..Row::new(stamp::now(), kind::DISK) };
                self.write(row.detailed(&json!({ "free": free, "wanted": ROOM_WANTED })));
            }
        }

        let long = wal_len(&self.state) > 2 * WAL_LEN_WANTED;
        let wal = long.then(|| {
            format!("wal_bytes above {} MiB: somebody reads the log for too long", (2 * WAL_LEN_WANTED) >> 20)
        });
        self.alarm("evidence:wal", &mut known.wal, wal);

        let not_kept = self.not_kept.map(|fault| format!("the state is only remembered: {fault}"));
        let said = [&known.health, &not_kept, &known.room, &known.wal];
        let troubles: Vec<&str> = said.into_iter().flatten().map(String::as_str).collect();
        let status =
            if troubles.is_empty() { "ready".to_owned() } else { format!("DEGRADED: {}", troubles.join("; ")) };
        self.notifier.turn(clock::now());
        let changed = self.status.send_if_modified(|said| {
            let changed = *said != status;
            if changed {
                said.clone_from(&status);
            }
            changed
        });
        if changed {
            self.notifier.status(&status, clock::now());
        }
        self.known = known;
    }

    /// The journal gets one line a minute with the head of the log: an anchor in another file, under another owner. How
    /// far the clock can be believed is told once.
    fn tell_journal(&self, known: &mut Known) {
        let due = known.looks.is_multiple_of(JOURNAL_EVERY);
        known.looks += 1;
        let seq = self.writer.acks().borrow().seq.0;
        if !due || seq == known.told {
            return;
        }
        let key = keys::public_of_state(&self.state).ok().flatten();
        let head = key.and_then(|key| head::read(&self.state.join("evidence"), &key).ok()?.newest());
        if let Some(head) = head {
            let rows = seq.saturating_sub(known.told);
            tracing::info!(rows, seq = head.seq.0, hash = %hex(&head.hash), "evidence");
        }
        known.told = seq;
    }

    /// Raises or clears the alarm of a source; whether something changed.
    fn alarm(&self, source: &'static str, known: &mut Option<String>, now: Option<String>) -> bool {
        if *known == now {
            return false;
        }
        let at = clock::wall();
        let kept = match &now {
            Some(text) => {
                tracing::warn!(source, "{text}");
                raise(&self.keeper, source, text.clone())
            }
            None => {
                tracing::info!(source, "over");
                self.keeper.later(move |state| state.clear_alarms(source, at).map(|_| ()))
            }
        };
        if let Err(error) = kept {
            tracing::error!(%error, source, "an alarm was not kept");
        }
        *known = now;
        true
    }

    fn write(&self, row: Row) {
        self.writer.append_or_count(Entry::urgent(row));
    }
}

/// Where the kernel may not be asked how good the clock is, chronyd is, now and then.
fn ask_time_service(known: &Known) {
    if !known.looks.is_multiple_of(TIME_EVERY) || clock::kernel_tells_quality() {
        return;
    }
    clock::tell_quality(chrony::is_synchronised(chrony::PLACE, TIME_PATIENCE));
    if known.looks == 0 && clock::time_quality() == clock::TimeQuality::Unknown {
        tracing::warn!("nobody says whether the clock is right: rows carry time_quality unknown");
    }
}

fn raise(keeper: &Keeper, source: &'static str, text: String) -> Result<(), NotKept> {
    let at = clock::wall();
    keeper.later(move |state| {
        // What it said before is not so any more.
        state.clear_alarms(source, at)?;
        state.raise_alarm(source, &text, at).map(|_| ())
    })
}

/// Reads the whole log once, beside everything else, and writes down what it is. After a start, because that is when
/// somebody may have had the disk in his hands.
pub fn verify_once(state: PathBuf, writer: Writer, keeper: Keeper) -> impl FnOnce(Heart) -> Finished + Send {
    move |heart| {
        thread::set_nice(VERIFY_NICE);
        heart.phase("verify", VERIFY_LIMIT);
        let found = match verify(&state) {
            Ok(found) => found,
            // No log yet, or none that can be read: the log itself tells of that.
            Err(error) => return Finished::Failed(error.to_string()),
        };
        let row = Row { to: Some(found.verdict.as_str().into()), ..Row::new(stamp::now(), kind::VERIFIED) };
        writer.append_or_count(Entry::relaxed(row.detailed(&found.to_json())));
        let kept = match alarm_text(&found) {
            Some(text) => {
                tracing::error!("{text}");
                raise(&keeper, "evidence:verify", text)
            }
            None => {
                let at = clock::wall();
                keeper.later(move |state| state.clear_alarms("evidence:verify", at).map(|_| ()))
            }
        };
        if let Err(error) = kept {
            tracing::error!(%error, "an alarm was not kept");
        }
        Finished::Done(json!({ "verdict": found.verdict.as_str(), "rows": found.rows }))
    }
}

fn alarm_text(found: &Verification) -> Option<String> {
    match found.verdict {
        Verdict::Intact => None,
        Verdict::Altered => {
            let first = found.first_bad.map_or(0, |seq| seq.0);
            Some(format!("the evidence log is ALTERED from row {first} on: interlock evidence verify"))
        }
        Verdict::TailLost => {
            Some(format!("{} rows of the evidence log are lost: interlock evidence verify", found.lost))
        }
        Verdict::Unanchored => {
            Some("the evidence log has no head to hold it against: interlock evidence verify".into())
        }
    }
}

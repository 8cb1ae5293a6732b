//! What the daemon does about itself around its run: the patience of systemd while it starts, its own tasks, the last
//! rung of the ladder, and the last row of its life.

use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use interlock_domain::id::Seq;
use serde_json::json;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use crate::engine::ground::{self, Ground};
use crate::engine::keeper::Keeper;
use crate::engine::supervisor::{EndProcess, Supervisor, runtime_probe, runtime_spec};
use crate::record::{Row, hex, kind};
use crate::store::backup::take_note;
use crate::store::head::Head;
use crate::store::queue::{Entry, Writer};
use crate::sys::notify::Notifier;
use crate::sys::{npu, process};

/// A start that takes longer than this is told to systemd ...
const START_USUAL: Duration = Duration::from_secs(2);
/// ... which is asked for so much more each time ...
const START_MORE: Duration = Duration::from_secs(30);
/// ... and at most so often: ten minutes. A log is opened in milliseconds; a disk that takes longer is broken.
const START_ASKS_MAX: u32 = 300;
/// How long the orderly end may take once the ladder has reached it; after that the process ends as it is.
const END_PATIENCE: Duration = Duration::from_secs(5);
/// The exit code of such an end: a bug of ours (`EX_SOFTWARE`), and systemd starts us anew.
const ESCALATED: i32 = 70;
/// The answer of the supervisor to a start of one of our tasks. It comes within microseconds.
const BORN_PATIENCE: Duration = Duration::from_secs(5);

/// Keeps systemd patient while the daemon starts; ends with its drop.
pub(super) struct Starting {
    _done: SyncSender<()>,
}

impl Starting {
    pub(super) fn begin(notifier: Notifier) -> std::io::Result<Starting> {
        let (done, over) = sync_channel::<()>(1);
        let ask = move || {
            for _ in 0..START_ASKS_MAX {
                match over.recv_timeout(START_USUAL) {
                    Err(RecvTimeoutError::Timeout) => {}
                    Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
                }
                notifier.extend_timeout(START_MORE, "opening the evidence log and what is open in it");
            }
        };
        std::thread::Builder::new().name("starting".to_owned()).spawn(ask)?;
        Ok(Starting { _done: done })
    }
}

/// The last rung of the ladder: asks the daemon to end in order, and ends the process when that does not happen. The
/// supervisor calls it, so it waits for nothing.
pub(super) fn end_process() -> (EndProcess, mpsc::Receiver<String>) {
    let (tell, told) = mpsc::channel(1);
    let end = move |why: &str| {
        tracing::error!(why, "the process ends, so that systemd starts it anew");
        // A second reason is no news.
        let _ = tell.try_send(why.to_owned());
        let wait = || {
            std::thread::park_timeout(END_PATIENCE);
            process::end_at_once(ESCALATED)
        };
        if std::thread::Builder::new().name("end".to_owned()).spawn(wait).is_err() {
            process::end_at_once(ESCALATED);
        }
    };
    (Box::new(end), told)
}

/// Starts the daemon's own tasks. One that cannot be started is told, and the daemon runs without it.
pub(super) fn start(supervisor: &Supervisor, runtime: &Handle, tau: Duration, mut ground: Ground) {
    ground.look();
    for node in npu::nodes().into_iter().filter(|node| node.refused) {
        let directive = format!("DeviceAllow={} rw", node.path);
        tracing::warn!(directive, "{} may not be opened: its line is missing in the unit", node.path);
    }
    let (state, writer, keeper) = (ground.state.clone(), ground.writer.clone(), ground.keeper.clone());
    let verify = ground::verify_once(state, writer, keeper);
    let born = [
        supervisor.spawn_again(runtime_spec(tau), runtime_probe(runtime.clone(), tau)).wait(BORN_PATIENCE),
        supervisor.spawn(ground::watch_spec(), ground.watch()).wait(BORN_PATIENCE),
        supervisor.spawn(ground::verify_spec(), verify).wait(BORN_PATIENCE),
    ];
    for born in born {
        match born {
            Ok(Ok(_)) => {}
            Ok(Err(refused)) => tracing::error!("{refused}"),
            Err(error) => tracing::error!("{error}"),
        }
    }
}

/// Says that the run before was cut off, where the log shows that it was.
pub(super) fn note_previous(writer: &Writer, ended: Option<bool>, head: Option<Head>) {
    if ended != Some(false) {
        return;
    }
    let head = head.map(|head| json!({ "seq": head.seq.0, "hash": hex(&head.hash) }));
    let row = Row {
        cause: Some("PREVIOUS_RUN_ABNORMAL".into()),
        ..Row::new(crate::engine::stamp::now(), kind::PREVIOUS_RUN_ABNORMAL)
    };
    tracing::warn!("the run before did not end in order");
    writer.append_or_count(Entry::urgent(row.detailed(&json!({ "head": head }))));
}

/// Says where the state came from, when a restore put it there.
pub(super) fn note_restored(writer: &Writer, state: &Path) {
    if let Some(note) = take_note(state) {
        let row = Row::new(crate::engine::stamp::now(), kind::RESTORED).detailed(&note);
        writer.append_or_count(Entry::urgent(row));
    }
}

/// The last row of a run that ends in order. Every other row must have been handed in.
pub(super) fn note_end(writer: &Writer, why: &str) -> Option<Seq> {
    let row = Row::new(crate::engine::stamp::now(), kind::END).detailed(&json!({ "why": why }));
    // Where the disk takes no rows, the next start says that this run was cut off, and it was.
    writer.append_durable(row).ok()
}

/// Alarms of the run before about the ground are looked at anew.
pub(super) fn forget_ground_alarms(keeper: &Keeper) {
    let at = crate::sys::clock::wall();
    let forgotten = keeper.later(move |state| {
        for source in ["evidence", "disk", "evidence:wal"] {
            state.clear_alarms(source, at)?;
        }
        Ok(())
    });
    if let Err(error) = forgotten {
        tracing::error!(%error, "old alarms stand");
    }
}

#[cfg(test)]
mod tests {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixDatagram};

    use super::*;

    #[test]
    fn a_start_that_takes_long_asks_systemd_for_more_time_and_says_why() {
        let name = format!("interlock-test-starting-{}", std::process::id());
        let systemd = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        systemd.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let starting = Starting::begin(Notifier::new(Some(&format!("@{name}"))).unwrap()).unwrap();
        let mut message = [0; 256];
        let length = systemd.recv(&mut message).unwrap();
        let expected = "EXTEND_TIMEOUT_USEC=30000000\nSTATUS=opening the evidence log and what is open in it\n";
        assert_eq!(String::from_utf8_lossy(&message[..length]), expected);
        drop(starting);
    }
}

//! The plant's own systems are told what happens here: brokers, a collector, an alarm desk, and what reads figures.
//!
//! Everything is told out of the evidence log, by its numbers: what a receiver has not acknowledged is read from there
//! and sent again, after a cut link, a restart and a power cut alike, so that no queue of ours can lose a row. A
//! receiver never holds anybody up: rows are read beside the writer in bounded batches, and one that is away too long
//! gets the newest and a gap that says how many are missing. The engine knows nothing of this room.

mod feed;
pub mod metrics;
pub mod mqtt;
pub mod notice;
pub mod otlp;
mod outbox;
mod pace;
pub mod post;
pub mod sparkplug;
pub mod webhook;

use tokio::sync::watch;

pub use feed::{Receiver, Standing};
pub use outbox::{Gap, Missing};

/// Waits until the daemon stops; a sender that is gone means the same.
async fn told(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

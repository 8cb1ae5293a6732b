//! The plant's own systems are told what happens here: brokers, and what reads figures.
//!
//! Everything is told out of the evidence log, by its numbers: what a receiver has not acknowledged is read from there
//! and sent again, after a cut link, a restart and a power cut alike, so that no queue of ours can lose a row. A
//! receiver never holds anybody up: rows are read beside the writer in bounded batches, and one that is away too long
//! gets the newest and a gap that says how many are missing. The engine knows nothing of this room.

pub mod mqtt;
mod outbox;
mod pace;

pub use outbox::{Gap, Missing};

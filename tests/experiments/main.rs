//! Measured claims: each prints its table and what it was made of. They take long or need root, so that each runs
//! only when it is asked for by name: `INTERLOCK_EXPERIMENT=NAME cargo test --release --test experiments -- --nocapture`.
//! `INTERLOCK_EXPERIMENT_COUNT` makes some of them longer. `cargo xtask test` asks for one: 100 power cuts.
//!
//! What issue and article ask of liveness and evidence:
//!
//! | name | what it does | how long, and longer |
//! |---|---|---|
//! | `liveness-paper` | 150 tasks with both channels and each alone, 50 deadlocked against 50 slow, tau from 2 to 20 s | a minute |
//! | `liveness-1500` | ten times the article's 150 tasks | a minute |
//! | `liveness-python` | the bench beside the article's protocol in Python, in one run | a minute |
//! | `liveness-evidence` | 100 tasks: events in the log, each parameter against its schema | a second |
//! | `liveness-overhead` | what a task pays, split into log and beats, beside Python | seconds |
//! | `liveness-scale` | CPU, memory, log, latency with 10 to 10,000 threads, beside Python | two minutes |
//! | `liveness-sessions` | slow tasks under beats with a counter and under sessions | a minute, compressed five times |
//! | `liveness-starved` | 64 spinners on all processors; load for the whole machine | two minutes; the count is in seconds |
//! | `liveness-sigstop` | the process stands for 60 s | a minute and a half; the count is in seconds |
//! | `liveness-bound` | 200 workers fall silent at random moments; none is found late | seconds, compressed five times |
//! | `evidence-power-cuts` | ext4 shut down in the middle of writes; root | 100 cuts, a minute; 1,000 in the long run |
//! | `evidence-crashes` | every state that a crash can leave between two operations on the files | minutes; the count is rows |
//! | `evidence-figures`, `evidence-large`, `evidence-wear` | costs; a log of 512 MB; a day of 1,000 tasks on flash | a minute each |
//! | `export-figures` | memory and rows a second of each receiver, with a backlog of 50,000 rows; Mosquitto | a minute |
//! | `console` | the console with 1,000 tasks and 1,000,000 rows: pages, searches, memory off and on | minutes; the count is rows |
//!
//! Three are tests in `tests/it`: the clock that is set ten years on and back (`clocks.rs`), `kill -9` in a loop and the
//! flipped bits (`evidence.rs`). `INTERLOCK_TEST_LONG=1 cargo test --release --test it evidence::` kills 200 times
//! instead of 12 and flips each of the eight bits.
#![cfg(test)]

mod article;
mod console;
mod dialects;
mod effects;
mod evidence;
mod export;
mod faults;
mod learning;
mod liveness;
mod mcp_liveness;
mod mediation;
mod power;
mod routes;
#[path = "../it/skips.rs"]
mod skips;
mod understanding;

/// Whether the experiment of this name was asked for.
fn asked(name: &str) -> bool {
    std::env::var("INTERLOCK_EXPERIMENT").is_ok_and(|asked| asked == name)
}

/// How often, when the variable `INTERLOCK_EXPERIMENT_COUNT` says something else than `usual`.
fn asked_count(usual: u64) -> u64 {
    std::env::var("INTERLOCK_EXPERIMENT_COUNT").ok().and_then(|count| count.parse().ok()).unwrap_or(usual)
}

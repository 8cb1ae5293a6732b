//! What only the operating system can say or do, as plain values: clocks, threads, `/proc`, sockets' peers, systemd.
//!
//! The only room with `unsafe` (besides the raw ONNX Runtime call in `infer`). It decides nothing and knows no word of
//! ours beyond `domain`'s plain types: a rule that hid in here could not be tested without a kernel.
#![expect(unsafe_code, reason = "the room for it; each block says why it holds")]

pub mod child;
pub mod chrony;
pub mod clock;
pub mod entry;
pub mod family;
pub mod interfaces;
pub mod journal;
pub mod machine;
pub mod notified;
pub mod notify;
pub mod npu;
pub mod offspring;
pub mod open;
pub mod paths;
pub mod peer;
pub mod pidfd;
pub mod proc;
pub mod process;
pub mod sandbox;
mod seccomp;
pub mod sentinel;
pub mod signal;
pub mod thread;
pub mod wake;

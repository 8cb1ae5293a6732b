//! Runs what was ordered: files, processes, HTTP, devices. The only code that makes an effect.
//!
//! Each tool takes a checked input and its bounds and gives a [`Report`], never an error beside it: what was refused by
//! the world with authority is `Failed`, what nobody can know is `Lost`, and everything else is `Done`. No tool
//! decides whether it may act, asks anybody, retries, or writes evidence; the stations before and after do. What is
//! dropped half way must leave nothing running behind.

use interlock_domain::effect::report::{Failure, Report};
use serde_json::Value;

pub mod device;
pub mod files;
pub mod http;
pub mod modbus;
pub mod shell;

/// What a caller is told about a tool, in English and in simplified Chinese.
#[derive(Debug, Clone, Copy)]
pub struct About {
    /// As callers write it.
    pub name: &'static str,
    /// For people: English, Chinese.
    pub title: [&'static str; 2],
    /// For people and models: English, Chinese.
    pub description: [&'static str; 2],
    /// The JSON schema (2020-12) of the input.
    pub input: fn() -> Value,
    /// The JSON schema (2020-12) of what [`Report::Done`] holds.
    pub output: fn() -> Value,
}

/// Nothing was changed, and this is why.
pub(crate) fn failed(code: &'static str, message: impl Into<String>) -> Report {
    Report::Failed(Failure { code, message: message.into() })
}

/// A member of an input that the schema should have refused: nothing was changed.
pub(crate) fn bad_input(message: impl Into<String>) -> Report {
    failed("bad_input", message)
}

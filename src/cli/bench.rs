//! `interlock bench`: figures of this machine, measured now.

use serde_json::Value;

use super::args::{BenchArgs, BenchName};
use super::error::{CliError, Exit};
use super::out::Out;
use crate::bench;

pub(super) fn bench(args: &BenchArgs, out: &Out) -> Result<(), CliError> {
    let figures: Value = match args.name {
        _ => Value::Null,
    };
    if args.json {
        return out.json(&figures);
    }
    for (key, value) in figures.as_object().into_iter().flatten() {
        out.line(&format!("{key:<32} {value}"))?;
    }
    Ok(())
}

fn failed(error: impl std::fmt::Display) -> CliError {
    CliError::new(Exit::NotSo, format!("nothing was measured: {error}"))
}

//! `interlock bench`: figures of this machine, measured now.

use std::path::PathBuf;

use serde_json::Value;

use super::args::{BenchArgs, BenchName};
use super::error::{CliError, Exit};
use super::match_verb;
use super::out::Out;
use crate::bench;
use crate::boot::model;

pub(super) fn bench(args: &BenchArgs, out: &Out) -> Result<(), CliError> {
    let figures: Value = match args.name {
        BenchName::Liveness => {
            let figures = bench::liveness::run(args.long).map_err(failed)?;
            serde_json::to_value(figures).map_err(failed)?
        }
        BenchName::Evidence => bench::evidence::run(&Scratch::new()?.0).map_err(failed)?.to_json(),
        BenchName::Match => {
            let source = model::source(None)?;
            bench::match_bench::run(|| match_verb::parts(None), args.commands, &source).map_err(failed)?
        }
        BenchName::Gate => bench::gate::run().map_err(failed)?.to_json(),
        BenchName::Schedule => bench::schedule::run(&Scratch::new()?.0).map_err(failed)?,
        BenchName::Effects => bench::effects::run(args.long).map_err(failed)?,
        BenchName::Mcp => bench::mcp::run(&Scratch::new()?.0, &args.beside).map_err(failed)?,
        BenchName::McpServer => return bench::mcp::server().map_err(failed),
        BenchName::Normalize => bench::normalize::run(),
        BenchName::Startup => bench::startup::run(&Scratch::new()?.0).map_err(failed)?,
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

/// A directory of our own that goes with us. On the disk that `TMPDIR` names: the figures are those of that disk.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Scratch, CliError> {
        let path = std::env::temp_dir().join(format!("interlock-bench-{}", std::process::id()));
        std::fs::create_dir(&path)
            .map_err(|error| CliError::new(Exit::CannotWrite, format!("{}: {error}", path.display())))?;
        Ok(Scratch(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

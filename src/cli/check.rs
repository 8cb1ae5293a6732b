//! `interlock check`: a configuration and its commands, read as the daemon reads them.

use std::path::PathBuf;

use serde_json::json;

use super::args::CheckArgs;
use super::error::CliError;
use super::out::Out;
use super::places;
use crate::boot;
use crate::config;

pub(super) fn check(args: &CheckArgs, out: &Out) -> Result<(), CliError> {
    let file: Option<PathBuf> = places::config(args.config.as_deref());
    let config = config::load(file.as_deref())?;
    let commands = boot::load_commands(&config)?;
    let (devices, simulated) = boot::devices(&config)?;
    let bound = commands.bound();
    if args.json {
        return out.json(&json!({
            "ok": true,
            "file": file.as_ref().map(|file| file.display().to_string()),
            "devices": devices.len(),
            "interlocks": devices.interlock_count(),
            "embedded_plant": simulated,
            "commands": commands.len(),
            "bound": bound,
            "rules": config.rules.all().len(),
        }));
    }
    let name = file.map_or_else(|| "the embedded default".to_owned(), |file| file.display().to_string());
    out.line(&format!("{name} is right"))?;
    let simulated = if simulated { " (of the embedded simulator)" } else { "" };
    out.line(&format!("  devices  {}{simulated}, {} interlocks", devices.len(), devices.interlock_count()))?;
    out.line(&format!("  commands {} ({bound} bound to a tool)", commands.len()))?;
    out.line(&format!("  rules    {}", config.rules.all().len()))
}

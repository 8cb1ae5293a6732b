//! `interlock check`: a configuration and its commands, read as the daemon reads them.

use std::path::PathBuf;

use serde_json::json;

use super::args::CheckArgs;
use super::error::{CliError, Exit};
use super::out::Out;
use super::places;
use crate::boot;
use crate::config;

pub(super) fn check(args: &CheckArgs, out: &Out) -> Result<(), CliError> {
    let file: Option<PathBuf> = places::config(args.config.as_deref());
    let mut config = config::load(file.as_deref())?;
    let updates = match places::state(args.state.as_deref()) {
        Some(state) => boot::update::settle(&mut config, &state),
        None => boot::update::InForce::default(),
    };
    let commands = boot::load_commands(&config)?;
    boot::model::of_config(&config, &updates)?;
    boot::receivers(&config)?;
    let (devices, simulated) = boot::devices(&config)?;
    let bound = commands.bound();
    let clashes = boot::clashes(&config, &commands)?;
    let ended = if clashes.is_empty() { Ok(()) } else { Err(CliError::silent(Exit::NotSo)) };
    if args.json {
        let conflicts: Vec<_> = clashes
            .iter()
            .map(|clash| {
                json!({
                    "file": clash.at.0.display().to_string(), "line": clash.at.1,
                    "phrase": clash.conflict.phrase, "command": clash.conflict.command,
                    "other_file": clash.other_at.0.display().to_string(), "other_line": clash.other_at.1,
                    "other_phrase": clash.conflict.other_phrase, "other": clash.conflict.other,
                    "margin": (f64::from(clash.conflict.margin) * 10.0).round() / 10.0,
                })
            })
            .collect();
        out.json(&json!({
            "ok": clashes.is_empty(),
            "conflicts": conflicts,
            "file": file.as_ref().map(|file| file.display().to_string()),
            "devices": devices.len(),
            "interlocks": devices.interlock_count(),
            "embedded_plant": simulated,
            "commands": commands.len(),
            "bound": bound,
            "rules": config.rules.all().len(),
            "servers": config.mcp.servers.len(),
            "plugins": config.extensions.manifests.len(),
            "skills": config.extensions.skills.len(),
            "aliases": config.extensions.aliases.len(),
            "checks": config.extensions.maintenance.len(),
            "updates": updates.to_json(),
            "warnings": warnings(&config, &updates),
        }))?;
        return ended;
    }
    let name = file.map_or_else(|| "the embedded default".to_owned(), |file| file.display().to_string());
    for clash in &clashes {
        out.line(&clash.to_string())?;
    }
    if !clashes.is_empty() {
        let count = clashes.len();
        out.note(&format!("{count} pairs of commands are too near to each other: give one of each another phrase"));
    } else {
        out.line(&format!("{name} is right"))?;
    }
    let simulated = if simulated { " (of the embedded simulator)" } else { "" };
    out.line(&format!("  devices  {}{simulated}, {} interlocks", devices.len(), devices.interlock_count()))?;
    out.line(&format!("  commands {} ({bound} bound to a tool)", commands.len()))?;
    out.line(&format!("  rules    {}", config.rules.all().len()))?;
    let more = &config.extensions;
    let (servers, skills, checks) = (config.mcp.servers.len(), more.skills.len(), more.maintenance.len());
    out.line(&format!("  servers  {servers} ({} plugins)", more.manifests.len()))?;
    out.line(&format!("  skills   {skills}, aliases {}, checks {checks}", more.aliases.len()))?;
    if !updates.is_shipped() {
        out.line(&format!("  updates  {}", updates.line()[0]))?;
    }
    warnings(&config, &updates).iter().try_for_each(|warning| out.line(&format!("warning: {warning}")))?;
    ended
}

/// What the writer of a rule should know.
fn warnings(config: &config::Config, updates: &boot::update::InForce) -> Vec<String> {
    let of_rules = config.rules.all().iter().filter_map(|rule| rule.warning().map(str::to_owned));
    of_rules.chain(updates.warnings()).collect()
}

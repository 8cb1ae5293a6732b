//! `interlock effects`: which anomalies a history has, by the very code that watches the daemon's own ledger.

use super::args::EffectsVerb;
use super::error::{CliError, Exit};
use super::json_lines;
use crate::record::effects;

/// The longest history that is taken, in bytes: some 300,000 events.
const HISTORY_LEN_MAX: u64 = 16 << 20;

pub(super) fn effects(verb: &EffectsVerb) -> Result<(), CliError> {
    match verb {
        EffectsVerb::Check => check(),
    }
}

fn check() -> Result<(), CliError> {
    let mut found_any = false;
    let good =
        json_lines::texts(&mut std::io::stdin().lock(), &mut std::io::stdout().lock(), HISTORY_LEN_MAX, |text| {
            let line = effects::read(text).map_err(|error| error.to_string())?;
            let found = line.history.check(&line.terms);
            found_any |= !found.is_empty();
            Ok(effects::told(&line, &found))
        })?;
    match (good, found_any) {
        (false, _) => Err(CliError::silent(Exit::Data)),
        (true, true) => Err(CliError::silent(Exit::NotSo)),
        (true, false) => Ok(()),
    }
}

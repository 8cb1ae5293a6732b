//! `interlock learn`: what the review gate says of proposals. Nothing is kept.

use std::path::Path;

use interlock_domain::command::understanding::Learned;
use interlock_domain::learn::gate::Policy;

use super::args::LearnVerb;
use super::error::{CliError, Exit};
use super::learn_propose::Session;
use super::match_verb::{self, MatchError};

pub(super) fn learn(verb: &LearnVerb) -> Result<(), CliError> {
    let LearnVerb::Propose { commands } = verb;
    let failed = |error: MatchError| CliError::new(Exit::Config, error.to_string());
    let ended = propose(commands.as_deref()).map_err(failed)?;
    if ended == 0 { Ok(()) } else { Err(CliError::silent(Exit::Data)) }
}

fn propose(commands: Option<&Path>) -> Result<u8, MatchError> {
    let (set, _, _) = match_verb::parts(commands)?;
    // What the set itself says must mean afterwards what it meant before.
    let replay = set.list.iter().flat_map(|command| [&command.text].into_iter().chain(&command.aliases)).cloned();
    let replay = replay.collect();
    let mut session = Session::new(set, Learned::default(), replay, Policy::Strict)?;
    session.propose(&mut std::io::stdin().lock(), &mut std::io::stdout().lock())
}

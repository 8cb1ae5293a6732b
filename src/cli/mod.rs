//! Verbs of the command line: arguments in, text or JSON Lines out.

pub mod doctor;
pub mod generate;
pub mod match_verb;

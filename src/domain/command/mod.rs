//! Understanding commands: from what was said to a command with typed slots, or to the reason why not.
//!
//! A wrong command is worse than none. What negates, asks, reports, puts off or takes back is recognised before
//! anything is matched ([`hazard`]), and no stage may execute what it mentions. Nothing here does I/O or waits:
//! [`cascade`] is the conductor, and answers with a step for its owner to carry out.

mod another;
mod asking;
pub mod bind;
pub mod cascade;
mod compound;
pub mod conflict;
pub mod decide;
pub mod definition;
mod frame;
pub mod grams;
pub mod hazard;
pub mod instead;
mod lattice;
pub mod lexicon;
pub mod number;
pub mod pattern;
pub mod resolution;
mod score;
pub mod sound;
pub mod template;
pub mod understanding;
pub mod utterance;
pub mod vote;
mod words;

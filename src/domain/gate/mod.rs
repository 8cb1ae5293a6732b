//! May this be done? Judges whole batches, and keeps what waits for a person's word.
//!
//! Pure: facts about files come in with the wish, time as an argument. No [`docket::Permit`] leaves a [`docket::Docket`] while one
//! question of the batch is open: the batch rule is a return type. A question leaves the line here and comes back
//! here; an answer fits one (call, input, facts, epoch) and nothing else, and the first answer counts.

mod address;
pub mod breaker;
pub mod check;
mod danger;
pub mod decide;
pub mod docket;
mod matches;
mod pattern;
mod peel;
pub mod policy;
pub mod protected;
mod reach;
pub mod rule;
mod shell;

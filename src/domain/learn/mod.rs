//! Learning from the floor: a mishearing, a word of the trade, a new command.
//!
//! Nothing is learned that changes anything else. Each proposal passes the gate ([`gate`]), which replays the whole
//! regression set with the proposal applied; what is dangerous is never taken without a person.

pub mod describe;
pub mod gate;
pub mod head;
pub mod retold;
pub mod skill;

//! What an effect may come to, and what its contract says about it.

pub mod report;

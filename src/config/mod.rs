//! TOML files into checked settings. Unknown keys are refused, and a file is taken whole or not at all.

pub mod commands;
pub mod device;
mod error;
pub mod lexicon;

pub use error::ConfigError;

//! TOML files into checked settings. Unknown keys are refused, and a file is taken whole or not at all.

pub mod device;
mod error;

pub use error::ConfigError;
